//! A scrub finds what sums can tell, names files and bytes, and takes nothing for damage that is only in change.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::cell::Cell;

use check::{FaultKind, Neighbours, Report, Scrubbed};
use chunk::SegmentStore;
use common::*;
use meta::{Body, Key};
use types::{Account, NodeId, OpSeq, SegmentId};

fn scrub(volume: &Volume, neighbours: Neighbours) -> Report {
    let Scrubbed { report, is_complete } =
        check::scrub(&volume.engine, &volume.store, neighbours, &mut |_| true).unwrap();
    assert!(is_complete);
    report
}

#[test]
fn a_sound_volume_is_read_whole() {
    for neighbours in [Neighbours::None, Neighbours::Live] {
        let report = scrub(&Volume::new(), neighbours);
        assert_eq!(report.faults, []);
        assert_eq!((report.counts.extents, report.counts.data_bytes_read), (6, 190_000));
        assert_eq!((report.counts.inodes, report.counts.names, report.counts.segments), (9, 9, 1));
    }
}

#[test]
fn damaged_bytes_are_named_by_path_and_range() {
    let volume = Volume::new();
    // Two blocks that touch, and one in the second extent, which begins at 200,000.
    for at in [40_000, 60_000, 112_000] {
        volume.store.corrupt(SegmentId(1), at);
    }
    let report = scrub(&volume, Neighbours::Live);
    let [fault] = &report.faults[..] else { panic!("{:#?}", report.faults) };
    assert_eq!((fault.kind, fault.ino), (FaultKind::BadData, Some(EXTENTS)));
    assert_eq!(fault.path.as_deref(), Some("/dir/sub/extents"));
    assert_eq!(fault.ranges, [32_768..65_536, 200_000..216_384]);
    assert!(fault.what.starts_with("bytes 32768..65536, 200000..216384 of the file: "), "{}", fault.what);
    // A check of all data says the same.
    let checked = volume.check();
    assert_eq!(checked.faults.iter().map(|fault| &fault.ranges).collect::<Vec<_>>(), [&fault.ranges]);
}

#[test]
fn a_missing_segment_names_all_that_was_in_it() {
    let volume = Volume::new();
    volume.store.delete(SegmentId(1)).unwrap();
    let report = scrub(&volume, Neighbours::None);
    let found: Vec<_> = report.faults.iter().map(|fault| (fault.kind, fault.ino.unwrap())).collect();
    assert_eq!(found, [(FaultKind::MissingData, EXTENTS), (FaultKind::MissingData, PAGED)]);
    assert_eq!(report.faults[0].ranges, [0..100_000, 200_000..250_000]);
}

/// A node of format 1 left them when it died. What counts accounts tells the versions apart.
#[test]
fn results_of_another_form_are_sound_in_a_volume_of_the_first_version() {
    let volume = Volume::new();
    volume.put(Key::OpResult(NodeId(1), OpSeq(1)), &u64::MAX);
    for report in [scrub(&volume, Neighbours::None), volume.check()] {
        let [fault] = &report.faults[..] else { panic!("{:#?}", report.faults) };
        assert_eq!(fault.kind, FaultKind::Damaged);
    }
    [Account::User(0), Account::Group(0)].into_iter().for_each(|account| volume.remove(Key::Usage(account)));
    assert_eq!(scrub(&volume, Neighbours::None).faults, []);
    assert_eq!(volume.check().faults, []);
}

#[test]
fn damaged_records_are_named_and_hide_no_others() {
    let volume = Volume::new();
    let key = volume.entry_of(INLINE).to_vec();
    let mut value = kv::Engine::get(&volume.engine, &key).unwrap().unwrap();
    value[5] ^= 1;
    volume.commit(vec![(key, Some(value)), (b"zz".to_vec(), Some(b"?".to_vec()))]);
    volume.store.corrupt(SegmentId(1), 1_000);
    let report = scrub(&volume, Neighbours::None);
    let kinds: Vec<_> = report.faults.iter().map(|fault| fault.kind).collect();
    assert_eq!(kinds, [FaultKind::Damaged, FaultKind::UnknownKey, FaultKind::BadData]);
    assert_eq!(report.faults[0].path.as_deref(), Some("/dir/sub"));
}

#[test]
fn headers_of_segments_are_checked_where_files_need_them() {
    let volume = Volume::new();
    volume.store.corrupt(SegmentId(1), 80);
    let report = scrub(&volume, Neighbours::Live);
    assert_eq!(report.faults.len(), 1);
    assert_eq!((report.faults[0].kind, report.faults[0].ino), (FaultKind::DamagedSegment, Some(EXTENTS)));
}

/// Between the look at the record and the look at its bytes the file is overwritten and its segment deleted.
#[test]
fn what_goes_meanwhile_is_no_damage() {
    let volume = Volume::new();
    let is_gone = Cell::new(false);
    // The first bytes of a segment come behind all records.
    let total: u64 = 190_000;
    let pace = &mut |bytes: u64| {
        if bytes > 10_000 && !is_gone.replace(true) {
            volume.write(EXTENTS, Body::Empty {});
            volume.remove(Key::ExtentPage(PAGED, 0));
            for page in 0..5 {
                volume.remove(Key::ExtentPage(PAGED, page));
            }
            volume.store.delete(SegmentId(1)).unwrap();
        }
        true
    };
    let live = check::scrub(&volume.engine, &volume.store, Neighbours::Live, pace).unwrap();
    assert!(is_gone.get() && live.is_complete);
    assert_eq!(live.report.faults, []);
    assert!(live.report.counts.data_bytes_read <= total);
}

#[test]
fn it_ends_when_it_is_called_off() {
    let volume = Volume::new();
    let calls = Cell::new(0);
    let pace = &mut |_| calls.replace(calls.get() + 1) < 3;
    let ended = check::scrub(&volume.engine, &volume.store, Neighbours::Live, pace).unwrap();
    assert!(!ended.is_complete);
    assert_eq!((calls.get(), ended.report.counts.data_bytes_read), (4, 0));
}
