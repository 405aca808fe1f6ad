//! What is kept of segments until their sync is kept until it is in them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{IoSlice, IoSliceMut};

use chunk::{Action, Fault, MemStore, SegmentStore};
use common::{A, B, Rig};
use master::Output;
use meta::{Key, RedoRecord, SegmentRecord};
use types::{NodeId, SegmentId};
use wire::ToMaster;

const SEGMENT: SegmentId = SegmentId(1);
const BYTES: &[u8] = &[7; 5000];

/// Logs bytes of a segment, as an fsync does.
fn log(rig: &Rig, segment: SegmentId, offset: u64) {
    let key = Key::Redo(segment, offset).to_vec();
    let value = meta::value_encode(&key, &RedoRecord { bytes: BYTES.into() });
    let mut batch = kv::Batch::new(rig.engine.last_seq().next());
    batch.puts.push((key, value));
    rig.engine.commit(batch).unwrap();
}

/// A segment with bytes that no sync has covered, and what is kept of them.
fn unsynced() -> (Rig, MemStore) {
    let (rig, store) = (Rig::new(), MemStore::new());
    store.create(SEGMENT).unwrap();
    store.write_at(SEGMENT, 0, &[IoSlice::new(BYTES)]).unwrap();
    log(&rig, SEGMENT, 0);
    (rig, store)
}

fn is_kept(rig: &Rig) -> bool {
    rig.value(Key::Redo(SEGMENT, 0)).is_some()
}

fn bytes(store: &MemStore) -> Vec<u8> {
    let mut bytes = vec![0; BYTES.len()];
    store.read_at(SEGMENT, 0, &mut [IoSliceMut::new(&mut bytes)]).unwrap();
    bytes
}

/// Goal: what a failed sync left in memory alone is not taken for stored. Method: a sync fails, another process opens the volume and
/// reads the bytes, or the membership of this one's writer ends; then the power goes.
#[test]
fn what_can_be_read_after_a_failed_sync_is_stored_again() {
    for seed in 0..50 {
        let (rig, store) = unsynced();
        store.fail(Action::Sync, 0, Fault::Io);
        assert!(store.sync(SEGMENT).is_err());
        master::redo(&*rig.engine, &store).unwrap();
        assert!(is_kept(&rig), "this process cannot store it while its writer may go on");
        assert_eq!(bytes(&store), BYTES);
        if seed % 2 == 0 {
            store.forget_failures();
            master::redo(&*rig.engine, &store).unwrap();
            assert!(!is_kept(&rig));
        } else {
            let keys = master::put_back(&*rig.engine, &store, &[], &|| true).unwrap();
            assert_eq!(keys, [Key::Redo(SEGMENT, 0)], "that writer is no more");
        }
        store.crash(seed);
        assert_eq!(bytes(&store), BYTES, "seed {seed}");
    }
}

#[test]
fn what_is_stored_in_a_sealed_segment_is_no_more_kept() {
    let (rig, store) = unsynced();
    store.sync(SEGMENT).unwrap();
    store.seal(SEGMENT, BYTES.len() as u64).unwrap();
    master::redo(&*rig.engine, &store).unwrap();
    assert!(!is_kept(&rig));
}

#[test]
fn what_cannot_be_decoded_is_left_for_a_check() {
    let (rig, store) = unsynced();
    rig.damage(Key::Redo(SEGMENT, 0));
    for _ in 0..2 {
        master::redo(&*rig.engine, &store).unwrap();
        assert!(is_kept(&rig));
    }
}

#[test]
fn what_is_left_of_a_missing_segment_is_kept_while_files_need_it() {
    let (rig, store) = unsynced();
    store.delete(SEGMENT).unwrap();
    let live = |live_bytes| {
        let key = Key::Segment(SEGMENT).to_vec();
        let value = meta::value_encode(&key, &SegmentRecord { writer: NodeId(1), live_bytes });
        let mut batch = kv::Batch::new(rig.engine.last_seq().next());
        batch.puts.push((key, value));
        rig.engine.commit(batch).unwrap();
    };
    live(BYTES.len() as u64);
    master::redo(&*rig.engine, &store).unwrap();
    assert!(is_kept(&rig));
    // Found again, without what was not synced.
    store.create(SEGMENT).unwrap();
    master::redo(&*rig.engine, &store).unwrap();
    assert!(!is_kept(&rig));
    assert_eq!(bytes(&store), BYTES);

    let (rig, store) = unsynced();
    store.delete(SEGMENT).unwrap();
    master::redo(&*rig.engine, &store).unwrap();
    assert!(!is_kept(&rig), "nothing names it");
}

/// The round in which something is to be put back.
fn ordered(outputs: &[Output]) -> Option<u64> {
    outputs.iter().find_map(|output| match output {
        Output::PutBack { round } => Some(*round),
        _ => None,
    })
}

/// Goal: what fsyncs of a node that died logged does not stay, and what others logged does. Method: one of two nodes dies.
#[test]
fn what_a_dead_member_logged_is_put_back_and_that_of_others_kept() {
    let (mut rig, store) = (Rig::new(), MemStore::new());
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    let (of_a, of_b) = (rig.reserve(A, 4), rig.reserve(B, 4));
    for segment in [of_a, of_b] {
        store.create(segment).unwrap();
        log(&rig, segment, 0);
    }
    assert_eq!(ordered(&rig.wait()), None);

    rig.master.disconnected(rig.clock(), A, true);
    let round = ordered(&rig.wait()).unwrap();
    let keys = master::put_back(&*rig.engine, &store, &rig.master.segments_in_use(), &|| true).unwrap();
    assert_eq!(keys, [Key::Redo(of_a, 0)]);
    rig.master.were_put_back(rig.clock(), round, keys);
    rig.outputs();
    assert!(rig.value(Key::Redo(of_a, 0)).is_none() && rig.value(Key::Redo(of_b, 0)).is_some());
    store.crash(1);
    let mut bytes = vec![0; BYTES.len()];
    store.read_at(of_a, 0, &mut [IoSliceMut::new(&mut bytes)]).unwrap();
    assert_eq!(bytes, BYTES);
}

/// Goal: a job that took long deletes nothing that was logged while it ran. Method: A dies, and before what is put back of it is reported, the segment is a
/// member's again; or B dies too, of which another round has to see to everything.
#[test]
fn what_is_logged_while_it_is_put_back_is_kept() {
    for others_die in [false, true] {
        let (mut rig, store) = (Rig::new(), MemStore::new());
        rig.join(A, NodeId(0));
        rig.join(B, NodeId(0));
        let of_b = rig.reserve(B, 4);
        store.create(SEGMENT).unwrap();
        let segment = if others_die { SEGMENT } else { of_b };
        let key = Key::Redo(segment, 0);
        log(&rig, segment, 0);
        rig.master.disconnected(rig.clock(), A, true);
        let round = ordered(&rig.wait()).unwrap();
        if others_die {
            rig.master.disconnected(rig.clock(), B, true);
            assert!(ordered(&rig.wait()).is_some_and(|later| later > round));
        }
        rig.master.were_put_back(rig.clock(), round, vec![key.clone()]);
        rig.outputs();
        assert!(rig.value(key).is_some(), "{others_die}");
    }
}

/// Goal: what an fsync logged of a segment that could not be synced is put back soon, though its writer lives. Method: a member gives up two segments, of one of
/// which something is logged still; the round that is ordered comes to an end, and there is no other.
#[test]
fn what_a_living_member_could_not_sync_is_put_back() {
    let (mut rig, store) = (Rig::new(), MemStore::new());
    rig.join(A, NodeId(0));
    let (synced, failed) = (rig.reserve(A, 4), rig.reserve(A, 4));
    store.create(failed).unwrap();
    log(&rig, failed, 0);
    let said = rig.tell(A, ToMaster::Disown { segments: vec![synced] });
    assert_eq!((ordered(&said), ordered(&rig.wait())), (None, None));
    assert!(rig.master.segments_in_use().iter().any(|range| range.contains(failed)));
    let said = rig.tell(A, ToMaster::Disown { segments: vec![failed] });
    assert_eq!(ordered(&said), None, "others may follow");
    let round = ordered(&rig.wait()).unwrap();
    let keys = master::put_back(&*rig.engine, &store, &rig.master.segments_in_use(), &|| true).unwrap();
    assert_eq!(keys, [Key::Redo(failed, 0)]);
    rig.master.were_put_back(rig.clock(), round, keys);
    rig.outputs();
    assert!(rig.value(Key::Redo(failed, 0)).is_none());
    assert_eq!(ordered(&rig.wait()), None);
}

/// Goal: what may be lost of a segment is not called stored. Method: its sync fails while the second of two pieces is put back, so that it is opened anew; or that
/// is to stop then.
#[test]
fn what_was_put_back_before_a_segment_failed_is_kept() {
    for stops in [false, true] {
        let (rig, store) = unsynced();
        log(&rig, SEGMENT, 1 << 16);
        let asked = std::cell::Cell::new(0);
        let goes_on = || {
            asked.set(asked.get() + 1);
            if asked.get() == 2 && !stops {
                store.fail(Action::Sync, 0, Fault::Io);
                assert!(store.sync(SEGMENT).is_err());
            }
            asked.get() < 2 || !stops
        };
        assert_eq!(master::put_back(&*rig.engine, &store, &[], &goes_on).unwrap(), [], "{stops}");
        let all = [Key::Redo(SEGMENT, 0), Key::Redo(SEGMENT, 1 << 16)];
        assert_eq!(master::put_back(&*rig.engine, &store, &[], &|| true).unwrap(), all, "the next does it");
    }
}
