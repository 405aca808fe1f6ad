//! Changed bytes cost an error, never a panic, and what is read back says the same again.

use meta::{Change, Dirent, FsError, Key, Op, OpReply, OrphanRecord, SegmentRecord, StoredInode, Totals};
use testkit::generate::{Generator, Step};
use testkit::model::Tree;
use testkit::store::MapStore;
use types::{Decode, Encode, Ino, NodeId, Timespec};

type Check = fn(&[u8]) -> bool;

/// Decodes; a value that comes out must survive its own round trip.
fn check<T: Decode + Encode + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> bool {
    let Ok(value) = T::from_bytes(bytes) else { return false };
    assert_eq!(T::from_bytes(&value.to_bytes()).as_ref(), Ok(&value));
    true
}

#[test]
fn mutated_bytes_never_panic() {
    let mut rng = fastrand::Rng::with_seed(1);
    for (bytes, check) in samples() {
        assert!(check(&bytes), "a sample decodes");
        for _ in 0..40 {
            check(&mutated(&bytes, &mut rng));
        }
    }
}

#[test]
fn mutated_keys_never_panic() {
    let mut rng = fastrand::Rng::with_seed(2);
    for _ in 0..10_000 {
        let bytes: Vec<u8> = (0..rng.usize(0..20)).map(|_| rng.u8(..)).collect();
        if let Some(key) = Key::from_slice(&bytes) {
            assert_eq!(key.to_vec(), bytes);
        }
    }
}

fn mutated(bytes: &[u8], rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..rng.usize(1..4) {
        let index = rng.usize(0..=bytes.len());
        match rng.u8(0..4) {
            0 => bytes.truncate(index),
            1 => bytes.insert(index, rng.u8(..)),
            2 => bytes.extend([0xff; 9]),
            _ => {
                if let Some(byte) = bytes.get_mut(index) {
                    *byte = rng.u8(..);
                }
            }
        }
    }
    bytes
}

/// Operations, changes and records from a random sequence.
fn samples() -> Vec<(Vec<u8>, Check)> {
    let now = Timespec { secs: 1, nanos: 2 };
    let mut samples: Vec<(Vec<u8>, Check)> = vec![
        (FsError::Io.to_bytes(), check::<FsError>),
        (OpReply::Removed { ino: Ino(300), deleted: true }.to_bytes(), check::<OpReply>),
        (OrphanRecord { holders: vec![NodeId(1), NodeId(300)] }.to_bytes(), check::<OrphanRecord>),
        (SegmentRecord { writer: NodeId(1), live_bytes: 1 << 40 }.to_bytes(), check::<SegmentRecord>),
        (Totals { bytes: 1 << 40, inodes: 7 }.to_bytes(), check::<Totals>),
    ];
    let mut generator = Generator::new(5);
    let mut tree = Tree::new(now, 0, 0);
    let mut store = MapStore::formatted(now);
    for _ in 0..400 {
        let Step::Op { op, node } = generator.step(&tree) else { continue };
        let context = meta::OpContext { now, node };
        samples.push((op.to_bytes(), check::<Op>));
        let plan = op.plan(&store.view(&|_| Vec::new()), &context);
        // The model is here to feed the generator alone.
        let _ = tree.perform(&op, &context);
        let Ok(plan) = plan else { continue };
        store.apply(&plan.changes);
        samples.extend(plan.changes.iter().map(|change| (change.to_bytes(), check::<Change> as Check)));
        samples.extend(plan.changes.iter().filter_map(record_of));
    }
    samples
}

fn record_of(change: &Change) -> Option<(Vec<u8>, Check)> {
    match change {
        Change::PutEntry { entry, .. } => Some((entry.to_bytes(), check::<Dirent>)),
        _ => Some((change.stored_inode()?.1.to_bytes(), check::<StoredInode>)),
    }
}
