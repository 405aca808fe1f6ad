//! The writer on a store that crashes and fails, read back through extents and scans.

use fastrand::Rng;

use super::*;
use crate::store::Action;
use crate::{Fault, MemStore, ScanItem, read_extent, scan_segment, verify_extent, verify_run};

const VOLUME: VolumeUuid = *b"0123456789abcdef";
const INO: Ino = Ino(42);

fn writer(store: &MemStore, segment_len: u64, segments: u64) -> SegmentWriter {
    let config = WriterConfig { volume: VOLUME, node: NodeId(5), segment_len };
    let mut writer = SegmentWriter::new(config, Arc::new(store.clone()));
    writer.add_segments((1..=segments).map(SegmentId));
    writer
}

fn sync(writer: &mut SegmentWriter, store: &MemStore) -> Vec<SyncFailure> {
    let outcome = writer.sync_plan().run(store);
    writer.on_synced(outcome)
}

/// Content that depends on the place, so that bytes of elsewhere show.
fn content(salt: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::with_seed(salt);
    (0..len).map(|_| rng.u8(..)).collect()
}

fn read(store: &MemStore, extent: &Extent) -> Result<Vec<u8>, ChunkError> {
    let mut bytes = vec![0; extent.len() as usize];
    read_extent(store, INO, extent, extent.range(), &mut bytes)?;
    Ok(bytes)
}

fn runs(store: &MemStore, segment: u64) -> Vec<crate::StoredRun> {
    let items = scan_segment(store, SegmentId(segment)).unwrap().map(Result::unwrap);
    items.filter_map(|item| if let ScanItem::Run(run) = item { Some(run) } else { None }).collect()
}

#[test]
fn appended_bytes_read_back_in_any_range() {
    let store = MemStore::new();
    let mut writer = writer(&store, SEGMENT_LEN, 4);
    let bytes = content(1, 2_500_000);
    let parts: Vec<&[u8]> = bytes.chunks(77_777).collect();
    let extents = writer.append(INO, 1000, &parts).unwrap();
    let lens: Vec<_> = extents.iter().map(|extent| (extent.file_offset(), extent.len())).collect();
    let run = RUN_LEN_MAX;
    let second = 1000 + u64::from(run);
    assert_eq!(lens, [(1000, run), (second, run), (second + u64::from(run), 2_500_000 - 2 * run)]);
    let mut rng = Rng::with_seed(3);
    for _ in 0..500 {
        let extent = rng.choice(&extents).unwrap();
        let part = rng.u64(extent.range());
        let part = part..rng.u64(part..=extent.end());
        // Read through the whole extent and through a trimmed one.
        for extent in [Some(extent.clone()), extent.slice(part.clone())].into_iter().flatten() {
            let mut out = vec![0; (part.end - part.start) as usize];
            read_extent(&store, INO, &extent, part.clone(), &mut out).unwrap();
            assert!(out == bytes[(part.start - 1000) as usize..(part.end - 1000) as usize]);
        }
    }
}

#[test]
fn a_flipped_bit_is_noticed_and_named() {
    let store = MemStore::new();
    let mut writer = writer(&store, SEGMENT_LEN, 4);
    let extents = writer.append(INO, 0, &[&content(1, 100_000)]).unwrap();
    let extent = &extents[0];
    store.corrupt(extent.segment(), extent.segment_offset() + 40_000);
    let mut out = vec![0; 32_768];
    read_extent(&store, INO, extent, 0..32_768, &mut out).unwrap();
    let error = read_extent(&store, INO, extent, 30_000..62_768, &mut out).unwrap_err();
    let text = "ino 42 is damaged at byte 32768: checksum does not hold in segment 1 at byte 32880";
    assert_eq!(error.to_string(), text);
    assert!(verify_extent(&store, INO, extent).is_err());
    assert!(verify_run(&store, &runs(&store, 1)[0]).is_err());
}

#[test]
fn a_full_segment_is_left_and_sealed_with_the_next_sync() {
    let store = MemStore::new();
    let mut writer = writer(&store, 4096, 3);
    for n in 0..5 {
        let _ = writer.append(INO, n * 1500, &[&content(n, 1500)]).unwrap();
    }
    let plan = writer.sync_plan();
    let seals: Vec<_> = plan.segments.iter().map(|planned| planned.seal).collect();
    assert_eq!(seals, [Some(64 + 2 * 1552), Some(64 + 2 * 1552), None]);
    assert!(writer.on_synced(plan.run(&store)).is_empty());
    assert_eq!(writer.synced_watermark(), 5);
    assert_eq!(writer.segments_in_use(), [SegmentId(3)]);
    assert!(matches!(writer.append(INO, 0, &[&[1; 4000]]), Err(ChunkError::NeedSegments { count: 2 })));
    assert_eq!(writer.watermark(), 5);
    assert_eq!(writer.unsynced_bytes(), 0);
}

#[test]
fn a_failed_sync_reports_all_unsynced_writes_once() {
    let store = MemStore::new();
    let mut writer = writer(&store, SEGMENT_LEN, 4);
    let kept = writer.append(INO, 0, &[b"kept"]).unwrap();
    assert!(sync(&mut writer, &store).is_empty());
    let first = writer.append(INO, 10, &[b"first"]).unwrap();
    let (plan, other_plan) = (writer.sync_plan(), writer.sync_plan());
    let second = writer.append(Ino(43), 20, &[b"second"]).unwrap();

    store.fail(Action::Sync, 0, Fault::Io);
    let mut failures = writer.on_synced(plan.run(&store));
    let failure = failures.pop().unwrap();
    assert!(matches!(failure.error, ChunkError::Io { action: Action::Sync, .. }));
    let lost = |ino, extent: &Extent| Lost { ino, extent: extent.clone() };
    assert_eq!(failure.lost, [lost(INO, &first[0]), lost(Ino(43), &second[0])]);
    // A sync that ran beside it fails too, though the store could tell it otherwise.
    let failures = writer.on_synced(other_plan.run(&store));
    assert!(matches!(failures[0].error, ChunkError::Poisoned { .. }) && failures[0].lost.is_empty());

    let again = writer.append(INO, 10, &[b"first"]).unwrap();
    assert_eq!(again[0].segment(), SegmentId(2));
    assert!(sync(&mut writer, &store).is_empty());
    store.crash(0);
    assert_eq!(read(&store, &kept[0]).unwrap(), b"kept");
    assert_eq!(read(&store, &again[0]).unwrap(), b"first");
}

#[test]
fn what_comes_after_a_sync_that_somebody_else_has_failed_is_kept() {
    let store = MemStore::new();
    let mut writer = writer(&store, SEGMENT_LEN, 4);
    let before = writer.append(INO, 0, &[b"before"]).unwrap();
    store.fail(Action::Sync, 0, Fault::Io);
    store.sync(before[0].segment()).unwrap_err();
    let after = writer.append(INO, 10, &[b"after"]).unwrap();
    assert_eq!(after[0].segment(), SegmentId(2));
    let failures = sync(&mut writer, &store);
    assert_eq!(failures[0].lost, [Lost { ino: INO, extent: before[0].clone() }]);
    store.crash(0);
    assert_eq!(read(&store, &after[0]).unwrap(), b"after");
}

#[test]
fn a_failed_write_ends_the_segment_and_loses_no_earlier_one() {
    let store = MemStore::new();
    let mut writer = writer(&store, SEGMENT_LEN, 4);
    let before = writer.append(INO, 0, &[b"before"]).unwrap();
    store.fail(Action::Write, 1, Fault::Io);
    // The first run of this append is written and the second fails: neither waits for a sync.
    assert!(writer.append(INO, 0, &[&content(1, 2_000_000)]).is_err());
    assert_eq!(writer.unsynced_bytes(), 6);
    let after = writer.append(INO, 10, &[b"after"]).unwrap();
    assert_eq!(after[0].segment(), SegmentId(2));
    assert!(sync(&mut writer, &store).is_empty());
    store.crash(0);
    assert_eq!(read(&store, &before[0]).unwrap(), b"before");
    assert_eq!(read(&store, &after[0]).unwrap(), b"after");
}

#[test]
fn a_full_disk_costs_no_segment_for_each_try() {
    let store = MemStore::new();
    let mut writer = writer(&store, SEGMENT_LEN, 3);
    store.fail(Action::Create, 0, Fault::Full);
    assert!(matches!(writer.append(INO, 0, &[b"x"]), Err(ChunkError::Full { .. })));
    let before = writer.append(INO, 0, &[b"before"]).unwrap();
    for _ in 0..10 {
        store.fail(Action::Write, 0, Fault::Full);
        assert!(matches!(writer.append(INO, 0, &[&content(9, 5000)]), Err(ChunkError::Full { .. })));
        // What the failed write left does not become part of anything.
        assert!(sync(&mut writer, &store).is_empty());
    }
    let after = writer.append(INO, 0, &[b"after"]).unwrap();
    assert_eq!((before[0].segment(), after[0].segment()), (SegmentId(1), SegmentId(2)));
    writer.close();
    assert!(sync(&mut writer, &store).is_empty());
    assert_eq!(read(&store, &before[0]).unwrap(), b"before");
    assert_eq!(read(&store, &after[0]).unwrap(), b"after");
    assert_eq!(store.list().unwrap(), [(SegmentId(1), 64 + 48 + 8), (SegmentId(2), 64 + 48 + 8)]);
}

/// Goal: what is appended together lies as if it had been appended one by one. Method: more than a segment takes; each part is one write of the store.
#[test]
fn files_appended_together_lie_one_behind_the_other() {
    let store = MemStore::new();
    let mut writer = writer(&store, 30_000, 3);
    let files: Vec<Vec<u8>> = (0..5).map(|n| content(n, 9_001)).collect();
    let list: Vec<Loose<'_>> =
        (0..).zip(&files).map(|(n, bytes)| Loose { ino: Ino(n), file_offset: n << 20, bytes }).collect();
    store.fail(Action::Write, 2, Fault::Io);
    let mut extents = writer.append_together(&list).unwrap();
    assert_eq!(extents.len(), 3, "as many as the segment takes");
    extents.extend(writer.append_together(&list[3..]).unwrap());
    assert!(matches!(writer.append_together(&list), Err(ChunkError::Io { .. })), "the third write");
    assert!(sync(&mut writer, &store).is_empty());
    for ((n, extent), bytes) in (0..).zip(&extents).zip(&files) {
        assert_eq!((extent.file_offset(), extent.segment()), (n << 20, SegmentId(1 + n / 3)));
        assert!(read(&store, extent).unwrap() == *bytes);
    }
    let sequences: Vec<u64> =
        [1, 2].map(|n| runs(&store, n)).iter().flatten().map(|run| run.header.sequence).collect();
    assert_eq!(sequences, [1, 2, 3, 4, 5]);
    assert!(writer.append_together(&[]).unwrap().is_empty());
}

#[test]
fn a_scan_passes_over_damage() {
    let store = MemStore::new();
    let mut writer = writer(&store, SEGMENT_LEN, 2);
    // One of the runs holds a copy of the segment: its headers are not at their place.
    let mut copy = vec![0; 4096];
    let mut extents = Vec::new();
    for n in 0..6 {
        extents.extend(writer.append(INO, n << 20, &[&copy, &content(n, 400_000)]).unwrap());
        let part = &mut [std::io::IoSliceMut::new(&mut copy)];
        store.read_at(SegmentId(1), 0, part).unwrap();
    }
    assert_eq!(runs(&store, 1).len(), 6);
    let header_of = |extent: &Extent| extent.segment_offset() - RUN_HEADER_LEN as u64;
    store.corrupt(SegmentId(1), header_of(&extents[2]) + 9);
    let items: Vec<_> = scan_segment(&store, SegmentId(1)).unwrap().map(Result::unwrap).collect();
    let gap_len = header_of(&extents[3]) - header_of(&extents[2]);
    assert_eq!(items.len(), 6);
    assert_eq!(items[2], ScanItem::Gap { offset: header_of(&extents[2]), len: gap_len });
    store.corrupt(SegmentId(1), 20);
    assert!(matches!(scan_segment(&store, SegmentId(1)), Err(ChunkError::Damaged { offset: 0, .. })));
}

#[test]
fn a_scan_ends_with_the_torn_tail() {
    let store = MemStore::new();
    let mut writer = writer(&store, SEGMENT_LEN, 2);
    let whole = writer.append(INO, 0, &[b"whole"]).unwrap();
    // Half of this write is done: its header, and not all of its bytes.
    store.fail(Action::Write, 0, Fault::Full);
    assert!(writer.append(INO, 0, &[&[1; 5000]]).is_err());
    let items: Vec<_> = scan_segment(&store, SegmentId(1)).unwrap().map(Result::unwrap).collect();
    let [ScanItem::Run(run), gap] = items[..] else { panic!("{items:?}") };
    assert_eq!(run.offset, whole[0].segment_offset());
    assert_eq!(gap, ScanItem::Gap { offset: 120, len: (48 + 5000) / 2 });
}

#[test]
fn a_segment_that_ends_during_its_sync_is_sealed_by_the_next() {
    let store = MemStore::new();
    let mut writer = writer(&store, SEGMENT_LEN, 2);
    let _ = writer.append(INO, 0, &[b"x"]).unwrap();
    let plan = writer.sync_plan();
    writer.close();
    assert!(writer.on_synced(plan.run(&store)).is_empty());
    assert_eq!(writer.synced_watermark(), 1);
    let next = writer.sync_plan();
    assert_eq!(next.segments, [PlannedSync { segment: SegmentId(1), seal: Some(120) }]);
    assert!(writer.on_synced(next.run(&store)).is_empty());
    assert!(writer.sync_plan().is_empty() && writer.segments_in_use().is_empty());
}

fn assert_injected(seed: u64, error: &ChunkError) {
    let is_injected = matches!(error, ChunkError::Full { .. } | ChunkError::Io { .. });
    // A store may know of a failed sync before the writer is told.
    let is_poisoned = matches!(error, ChunkError::Poisoned { .. });
    assert!(is_injected || is_poisoned, "seed {seed}: {error}");
}

/// Goal: whatever fails and whenever power is lost, a write that a sync covered reads back, is found by a
/// scan, and each other one was reported as lost or was unsynced at the crash.
#[test]
fn synced_writes_survive_any_faults_and_crash() {
    let mut checked = 0;
    for seed in 0..3000 {
        let mut rng = Rng::with_seed(seed);
        let store = MemStore::new();
        let mut writer = writer(&store, 30_000, 200);
        let mut unsynced: Vec<(u64, Extent)> = Vec::new();
        let mut durable: Vec<(u64, Extent)> = Vec::new();
        let mut pending: Vec<SyncOutcome> = Vec::new();
        for step in 0..rng.u64(1..60) {
            match rng.u8(0..12) {
                0 => {
                    let action = *rng.choice(&[Action::Write, Action::Sync, Action::Create]).unwrap();
                    let fault = if rng.bool() { Fault::Io } else { Fault::Full };
                    store.fail(action, rng.u64(0..3), fault);
                }
                1 | 2 => pending.push(writer.sync_plan().run(&store)),
                3 | 4 if !pending.is_empty() => {
                    let outcome = pending.swap_remove(rng.usize(0..pending.len()));
                    let failures = writer.on_synced(outcome);
                    for lost in failures.iter().flat_map(|failure| &failure.lost) {
                        unsynced.retain(|(_, extent)| *extent != lost.extent);
                    }
                }
                5 => writer.close(),
                6..8 => {
                    let salts = (0..rng.u64(1..6)).map(|n| seed * 1000 + step + n * 100);
                    let files: Vec<(u64, Vec<u8>)> =
                        salts.map(|salt| (salt, content(salt, rng.usize(1..6000)))).collect();
                    let list: Vec<Loose<'_>> = files
                        .iter()
                        .map(|(salt, bytes)| Loose { ino: Ino(*salt), file_offset: 0, bytes })
                        .collect();
                    match writer.append_together(&list) {
                        Ok(extents) => {
                            assert!(!extents.is_empty(), "seed {seed}");
                            unsynced.extend(files.iter().map(|(salt, _)| *salt).zip(extents));
                        }
                        Err(error) => assert_injected(seed, &error),
                    }
                }
                _ => {
                    let len_max = *rng.choice(&[40_000, 3000, 3000, 3000]).unwrap();
                    let len = rng.usize(1..len_max);
                    let salt = seed * 1000 + step;
                    match writer.append(Ino(salt), 0, &[&content(salt, len)]) {
                        Ok(extents) => unsynced.extend(extents.into_iter().map(|extent| (salt, extent))),
                        Err(error) => assert_injected(seed, &error),
                    }
                }
            }
            let waiting: Vec<_> =
                writer.unsynced.values().flat_map(|u| &u.writes).map(|w| &w.1.extent).collect();
            let (still, done) = unsynced.drain(..).partition(|(_, extent)| waiting.contains(&extent));
            unsynced = still;
            durable.extend::<Vec<_>>(done);
            let sum: u64 = unsynced.iter().map(|(_, extent)| u64::from(extent.len())).sum();
            assert_eq!(writer.unsynced_bytes(), sum, "seed {seed}");
        }
        store.crash(seed);
        for (salt, extent) in &durable {
            let bytes = read(&store, extent).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let (start, end) = (extent.file_offset() as usize, extent.end() as usize);
            assert!(bytes == content(*salt, end)[start..], "seed {seed}");
            checked += 1;
            let runs = runs(&store, extent.segment().0);
            let run = runs.iter().find(|run| run.offset == extent.segment_offset()).unwrap();
            assert_eq!((run.header.ino, run.header.len), (Ino(*salt), extent.len()), "seed {seed}");
            assert_eq!(&verify_run(&store, run).unwrap(), extent.run(), "seed {seed}");
        }
    }
    assert!(checked > 10_000, "only {checked} writes were checked");
}

/// Goal: what a redo was taken of is durable without a sync. Method: writes of two files, redos of one, and a crash; then what was
/// taken is put to its place.
#[test]
fn what_a_redo_was_taken_of_survives_a_crash_by_it() {
    for seed in 0..200 {
        let store = MemStore::new();
        let mut writer = writer(&store, SEGMENT_LEN, 4);
        let other = writer.append(Ino(7), 0, &[&content(1, 30_000)]).unwrap();
        let mut extents = Vec::new();
        let mut redos = Vec::new();
        for round in 0..3u64 {
            let bytes = content(2 + round, 4096);
            extents.extend(writer.append(INO, round * 4096, &[&bytes]).unwrap());
            redos.extend(writer.take_redo(INO, 1 << 20).unwrap());
        }
        assert_eq!(writer.take_redo(INO, 1 << 20).unwrap(), [], "each once");
        assert_eq!(redos.len(), 4, "three runs, and the header of the segment");
        assert!(writer.take_redo(Ino(7), 4096).is_none(), "too much");
        store.crash(seed);
        for redo in &redos {
            store.write_at(redo.segment, redo.offset, &[IoSlice::new(&redo.bytes)]).unwrap();
        }
        for (round, extent) in extents.iter().enumerate() {
            assert!(read(&store, extent).unwrap() == content(2 + round as u64, 4096));
        }
        assert!(scan_segment(&store, SegmentId(1)).is_ok(), "the segment has its header");
        assert_eq!(other[0].segment(), SegmentId(1));
    }
}

/// As after metadata of an earlier day were loaded: the numbers that they give are taken.
#[test]
fn segments_that_are_there_already_are_left_alone() {
    let store = MemStore::new();
    let mut writer = writer(&store, SEGMENT_LEN, 4);
    for number in [1, 2] {
        store.create(SegmentId(number)).unwrap();
    }
    let [extent] = &writer.append(INO, 0, &[b"first"]).unwrap()[..] else { panic!("one") };
    assert_eq!(extent.segment(), SegmentId(3));
    assert_eq!(store.segment_len(SegmentId(1)).unwrap(), 0);
}

/// Goal: bytes that the system failed to write, and let go of, are not made durable as they are read then. Method: two writes, of which the first is
/// no longer kept in memory; a byte of it changes below.
#[test]
fn no_redo_is_taken_of_what_does_not_read_as_it_was_written() {
    let store = MemStore::new();
    let mut writer = writer(&store, SEGMENT_LEN, 4);
    let first = writer.append(INO, 0, &[&content(1, 8192)]).unwrap();
    writer.append(INO, 8192, &[&content(2, 8192)]).unwrap();
    store.corrupt(first[0].segment(), first[0].segment_offset() + 5000);
    assert_eq!(writer.take_redo(INO, 1 << 20), None);
    store.corrupt(first[0].segment(), first[0].segment_offset() + 5000);
    assert_eq!(writer.take_redo(INO, 1 << 20).map(|redos| redos.len()), Some(2), "as it was");
}

#[test]
fn redos_are_told_once_after_the_sync_that_covers_them() {
    let store = MemStore::new();
    let mut writer = writer(&store, SEGMENT_LEN, 4);
    writer.append(INO, 0, &[b"first"]).unwrap();
    let [first] = &writer.take_redo(INO, 4096).unwrap()[..] else { panic!("one with the header") };
    assert_eq!(first.offset, 0);
    let plan = writer.sync_plan();
    writer.append(INO, 100, &[b"second"]).unwrap();
    let [second] = &writer.take_redo(INO, 4096).unwrap()[..] else { panic!("one") };
    assert!(writer.redone_bytes() > 0 && writer.take_redone_synced().is_empty());
    let outcome = plan.run(&store);
    assert!(writer.on_synced(outcome).is_empty());
    assert_eq!(writer.take_redone_synced(), [(SegmentId(1), 0)]);
    assert!(sync(&mut writer, &store).is_empty());
    assert_eq!(writer.take_redone_synced(), [(SegmentId(1), second.offset)]);
    assert_eq!((writer.redone_bytes(), writer.take_redone_synced()), (0, vec![]));
    // After a failed sync what is kept of the writes stays, and they are not lost.
    writer.append(INO, 200, &[b"third"]).unwrap();
    assert_eq!(writer.take_redo(INO, 4096).unwrap().len(), 1);
    let fourth = writer.append(Ino(7), 0, &[b"fourth"]).unwrap();
    store.fail(Action::Sync, 0, Fault::Io);
    let [failure] = &sync(&mut writer, &store)[..] else { panic!("one") };
    assert_eq!(failure.lost, [Lost { ino: Ino(7), extent: fourth[0].clone() }]);
    assert_eq!((writer.redone_bytes(), writer.take_redone_synced(), writer.unsynced_bytes()), (0, vec![], 0));
}

/// Goal: the next segment is there before it is needed, and nothing is left of one that is not. Method: appends in a store that
/// says when it was asked to make a segment.
#[test]
fn the_next_segment_is_made_while_the_one_before_fills() {
    let store = MemStore::new();
    let mut writer = writer(&store, 64 << 10, 10);
    assert!(writer.plan_ahead().is_none());
    writer.append(INO, 0, &[&content(1, 40_000)]).unwrap();
    let plan = writer.plan_ahead().expect("half full");
    assert_eq!((plan.create, plan.is_empty()), (Some(SegmentId(2)), false));
    assert!(writer.plan_ahead().is_none(), "once");
    let outcome = plan.run(&store);
    assert!(writer.on_synced(outcome).is_empty());
    store.fail(Action::Create, 0, Fault::Io);
    let extents = writer.append(INO, 40_000, &[&content(2, 40_000)]).unwrap();
    assert_eq!(extents[0].segment(), SegmentId(2), "nothing is made now");
    assert_eq!(read(&store, &extents[0]).unwrap(), content(2, 40_000));
    // One that cannot be made ahead is not used; the next is made when it is needed.
    let plan = writer.plan_ahead().expect("half full");
    let outcome = plan.run(&store);
    assert!(writer.on_synced(outcome).is_empty());
    writer.append(INO, 80_000, &[&content(3, 40_000)]).unwrap();
    let plan = writer.plan_ahead().expect("half full");
    let outcome = plan.run(&store);
    let made = outcome.created.as_ref().unwrap().0;
    writer.close();
    assert!(writer.on_synced(outcome).is_empty());
    assert!(store.list().unwrap().iter().all(|(segment, _)| *segment != made), "none is wanted any more");
    assert!(writer.take_left().contains(&made));
}
