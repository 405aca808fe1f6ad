//! What is kept of segments until their sync is kept until it is in them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{IoSlice, IoSliceMut};

use chunk::{Action, Fault, MemStore, SegmentStore};
use common::{A, B, Rig};
use master::Output;
use meta::{Key, RedoRecord, SegmentRange, SegmentRecord};
use types::{NodeId, SegmentId};

const SEGMENT: SegmentId = SegmentId(1);
const BYTES: &[u8] = &[7; 5000];

/// A segment with bytes that no sync has covered, and what is kept of them.
fn unsynced() -> (Rig, MemStore) {
    let (rig, store) = (Rig::new(), MemStore::new());
    store.create(SEGMENT).unwrap();
    store.write_at(SEGMENT, 0, &[IoSlice::new(BYTES)]).unwrap();
    let mut batch = kv::Batch::new(rig.engine.last_seq().next());
    let record = RedoRecord { bytes: BYTES.into() };
    let key = Key::Redo(SEGMENT, 0).to_vec();
    let value = meta::value_encode(&key, &record);
    batch.puts.push((key, value));
    rig.engine.commit(batch).unwrap();
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

/// What is to be put back, and what is not.
fn ordered(outputs: &[Output]) -> Option<(u64, Vec<SegmentRange>)> {
    outputs.iter().find_map(|output| match output {
        Output::PutBack { round, spared } => Some((*round, spared.clone())),
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
    let mut batch = kv::Batch::new(rig.engine.last_seq().next());
    for segment in [of_a, of_b] {
        store.create(segment).unwrap();
        let key = Key::Redo(segment, 0).to_vec();
        let value = meta::value_encode(&key, &RedoRecord { bytes: BYTES.into() });
        batch.puts.push((key, value));
    }
    rig.engine.commit(batch).unwrap();
    assert_eq!(ordered(&rig.wait()), None);

    rig.master.disconnected(rig.clock(), A, true);
    let (round, spared) = ordered(&rig.wait()).unwrap();
    let keys = master::put_back(&*rig.engine, &store, &spared, &|| true).unwrap();
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
        let mut batch = kv::Batch::new(rig.engine.last_seq().next());
        let key = Key::Redo(segment, 0);
        batch
            .puts
            .push((key.to_vec(), meta::value_encode(&key.to_vec(), &RedoRecord { bytes: BYTES.into() })));
        rig.engine.commit(batch).unwrap();
        rig.master.disconnected(rig.clock(), A, true);
        let (round, _) = ordered(&rig.wait()).unwrap();
        if others_die {
            rig.master.disconnected(rig.clock(), B, true);
            assert!(ordered(&rig.wait()).is_some_and(|(later, _)| later > round));
        }
        rig.master.were_put_back(rig.clock(), round, vec![key.clone()]);
        rig.outputs();
        assert!(rig.value(key).is_some(), "{others_die}");
    }
}
