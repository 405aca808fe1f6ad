//! The largest messages there can be go through frames, whole and in order.
#![allow(clippy::unwrap_used, reason = "tests")]

use chunk::{Extent, ExtentMap, Run};
use meta::{Change, Content};
use types::{
    Account, BatchSeq, Credit, Decode, Encode, Ino, LockMode, Name, ResourceId, SegmentId, Timespec,
};
use wire::{
    BYTE_MAX, ByteLock, FRAME_HEADER_LEN, FRAME_LEN_MAX, FrameHeader, FromMaster, LockKind, LockOwner,
    ReassertPart, ToMaster,
};

const FAR: u64 = u64::MAX >> 1;

/// Through a frame and back, as a reader does it.
fn through_a_frame<M: Encode + Decode>(message: &M) -> M {
    let frame = wire::encode_frame(message);
    let (header, payload) = frame.split_at(FRAME_HEADER_LEN);
    let header = FrameHeader::decode(header.try_into().unwrap()).unwrap();
    assert_eq!(header.len, payload.len());
    wire::decode_payload(header, payload).unwrap()
}

fn sent(message: ToMaster) -> Vec<ToMaster> {
    let mut parts = Vec::new();
    message.split(|part| parts.push(through_a_frame(&part)));
    parts
}

fn rights(count: u64) -> Vec<(ResourceId, LockMode)> {
    (0..count).map(|n| (ResourceId::dir(Ino(FAR - n)), LockMode::Ex)).collect()
}

/// A page with as many extents as a node lets it have, none of which touches another.
fn fullest_page(ino: u64) -> Change {
    let mut map = ExtentMap::new();
    for n in 0..meta::Body::PAGE_EXTENTS_MAX as u64 + 64 {
        let run = Run::new(SegmentId(FAR), FAR - (2 << 20), 1, &[u32::MAX]).unwrap();
        let _ = map.insert(Extent::new(FAR - (1 << 30) + n * 1000, run).unwrap());
    }
    Change::PutExtentPage { ino: Ino(ino), parent: Ino(FAR), page: FAR, map }
}

fn widest_xattrs(ino: u64) -> Change {
    let list = (0..4u8).map(|n| (Name::new(&[b'x', b'a' + n]).unwrap(), vec![n; 64 << 10].into())).collect();
    Change::PutXattrs { ino: Ino(ino), parent: Ino(FAR), list }
}

fn inline(ino: u64) -> Change {
    let time = Timespec { secs: i64::MIN, nanos: 999_999_999 };
    let body = meta::Body::Inline { data: vec![7; 4096].into() };
    let content = Content { size: FAR, mtime: time, atime: time, ctime: time, body };
    Change::PutContent { ino: Ino(ino), content }
}

#[test]
fn a_batch_of_any_size_goes_in_parts_that_make_it_up() {
    let mut changes: Vec<Change> = (0..3000).map(inline).collect();
    changes.extend((0..20).map(fullest_page));
    changes.extend((0..20).map(widest_xattrs));
    changes.extend((0..50_000).map(|n| Change::AddLive { segment: SegmentId(FAR - n), bytes: i64::MIN }));
    let kept = rights(35_000);
    let seq = BatchSeq(FAR);
    let mut parts = sent(ToMaster::Batch {
        seq,
        kept: kept.clone(),
        changes: changes.clone().into(),
        sync: true,
        spent: Vec::new(),
    });
    let Some(ToMaster::Batch { kept: last_kept, changes: last, sync: true, .. }) = parts.pop() else {
        panic!("the batch itself comes last")
    };
    assert!(parts.len() > 10);
    let (mut all_kept, mut all) = (Vec::new(), Vec::new());
    for part in parts {
        let ToMaster::BatchPart { seq: of, kept, changes } = part else { panic!("{part:?}") };
        assert_eq!(of, seq);
        all_kept.extend(kept);
        all.extend(changes);
    }
    all_kept.extend(last_kept);
    all.extend(last.iter().cloned());
    assert_eq!((all_kept, all), (kept, changes));
}

#[test]
fn a_small_batch_and_an_empty_one_stay_whole() {
    for changes in [Vec::new(), vec![inline(1)]] {
        let batch = ToMaster::Batch {
            seq: BatchSeq(1),
            kept: rights(1),
            changes: changes.into(),
            sync: false,
            spent: Vec::new(),
        };
        assert_eq!(sent(batch.clone()), [batch]);
    }
}

#[test]
fn re_assertions_of_any_size_are_done_with_their_last_part() {
    let lock = |n: u64| ByteLock {
        ino: Ino(FAR),
        kind: LockKind::Posix,
        owner: LockOwner(u64::MAX - n),
        pid: u32::MAX,
        exclusive: true,
        start: BYTE_MAX - 1,
        end: BYTE_MAX + 1,
    };
    let locks: Vec<ByteLock> = (0..100_000).map(lock).collect();
    let open: Vec<Ino> = (0..300_000).map(|n| Ino(FAR - n)).collect();
    let tokens = rights(300_000);
    let credit = |n| Credit { account: Account::User(u32::MAX - n), bytes: i64::MIN, inodes: i64::MIN };
    let credits: Vec<Credit> = (0..50_000).map(credit).collect();
    for (part, done) in [
        (ReassertPart::Tokens { list: tokens.clone() }, false),
        (ReassertPart::Open { list: open.clone() }, false),
        (ReassertPart::Credit { list: credits.clone(), shipped: Vec::new() }, false),
        (ReassertPart::Locks { list: locks.clone() }, true),
        (ReassertPart::Locks { list: Vec::new() }, true),
    ] {
        let parts = sent(ToMaster::Reassert { part: part.clone(), done });
        let dones: Vec<bool> =
            parts.iter().map(|p| matches!(p, ToMaster::Reassert { done: true, .. })).collect();
        assert_eq!(dones.iter().filter(|done| **done).count(), usize::from(done));
        assert_eq!(dones.last(), Some(&done));
        let (mut all_tokens, mut all_open, mut all_locks) = (Vec::new(), Vec::new(), Vec::new());
        let mut all_credits = Vec::new();
        for message in parts {
            match message {
                ToMaster::Reassert { part: ReassertPart::Tokens { list }, .. } => all_tokens.extend(list),
                ToMaster::Reassert { part: ReassertPart::Open { list }, .. } => all_open.extend(list),
                ToMaster::Reassert { part: ReassertPart::Locks { list }, .. } => all_locks.extend(list),
                ToMaster::Reassert { part: ReassertPart::Credit { list, .. }, .. } => {
                    all_credits.extend(list)
                }
                other => panic!("{other:?}"),
            }
        }
        match part {
            ReassertPart::Tokens { list } => assert_eq!(all_tokens, list),
            ReassertPart::Open { list } => assert_eq!(all_open, list),
            ReassertPart::Locks { list } => assert_eq!(all_locks, list),
            ReassertPart::Credit { list, .. } => assert_eq!(all_credits, list),
        }
    }
}

#[test]
fn segments_given_up_and_rights_asked_back_go_in_parts() {
    let segments: Vec<SegmentId> = (0..300_000).map(|n| SegmentId(u64::MAX - n)).collect();
    let mut all = Vec::new();
    for part in sent(ToMaster::Disown { segments: segments.clone() }) {
        let ToMaster::Disown { segments } = part else { panic!("{part:?}") };
        all.extend(segments);
    }
    assert_eq!(all, segments);

    let (list, mut all) = (rights(300_000), Vec::new());
    FromMaster::Revoke { list: list.clone(), speculative: true }.split(|part| {
        let FromMaster::Revoke { list, speculative: true } = through_a_frame(&part) else {
            panic!("{part:?}")
        };
        all.extend(list);
    });
    assert_eq!(all, list);

    let mut all = Vec::new();
    for list in ToMaster::release_parts(list.clone()) {
        let release = ToMaster::Release { list, open: Vec::new() };
        let ToMaster::Release { list, .. } = through_a_frame(&release) else { panic!("no release") };
        all.extend(list);
    }
    assert_eq!(all, list);
}

#[test]
fn the_largest_change_that_cannot_be_split_fits_a_frame() {
    for change in [fullest_page(FAR), widest_xattrs(FAR)] {
        assert!(change.encoded_len_max() < FRAME_LEN_MAX - (64 << 10));
        let forget = FromMaster::Forget { seq: u64::MAX, changes: vec![change], removed: Vec::new() };
        assert_eq!(through_a_frame(&forget), forget);
    }
}

#[test]
fn what_cannot_be_a_frame_is_refused_before_it_is_read() {
    let mut frame = wire::encode_frame(&ToMaster::Bye {});
    frame[4..8].copy_from_slice(&(FRAME_LEN_MAX as u32 + 1).to_le_bytes());
    let header: &[u8; FRAME_HEADER_LEN] = frame[..FRAME_HEADER_LEN].try_into().unwrap();
    assert!(FrameHeader::decode(header).is_err());
}
