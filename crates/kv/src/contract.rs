//! What every engine must do, as tests. An engine's crate runs them with [`contract_tests!`](crate::contract_tests).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Batch, Claim, Direction, Engine, EngineError, KeyRange, RESERVED_KEY, Result, ScanLimit, Seq};

/// A volume under test.
pub trait Subject {
    /// Opens the volume. The engine opened before was dropped or closed.
    ///
    /// # Errors
    ///
    /// The engine's.
    fn open(&mut self, claim: Claim) -> Result<Box<dyn Engine>>;

    /// Lets the engine's next write fail for want of space. `false` where this cannot be arranged.
    fn fill(&mut self) -> bool;
}

/// Makes one test function of each case; the argument is an expression that makes a new [`Subject`].
#[macro_export]
macro_rules! contract_tests {
    ($subject:expr) => {
        $crate::contract_tests!(@cases $subject;
            batches_are_applied_in_order_and_visible_at_once,
            a_batch_out_of_order_is_refused_and_changes_nothing,
            an_invalid_batch_is_refused_and_changes_nothing,
            deletes_remove_and_may_miss,
            get_many_keeps_the_order_of_its_keys,
            scans_agree_with_a_model_in_both_directions_and_any_page_size,
            an_empty_range_gives_an_empty_page,
            the_reserved_record_is_hidden,
            large_values_come_back,
            everything_is_there_after_reopening,
            a_generation_not_greater_is_fenced,
            sync_serves_while_another_thread_commits,
            readers_see_batches_whole,
            a_snapshot_is_of_one_moment,
            a_failed_write_poisons,
        );
    };
    (@cases $subject:expr; $($case:ident),* $(,)?) => {
        $(#[test]
        fn $case() {
            $crate::contract::$case(&mut $subject);
        })*
    };
}

const ALL: ScanLimit = ScanLimit { entries: usize::MAX, bytes: usize::MAX };

fn everything() -> KeyRange {
    KeyRange::new([], [0xFF; 9])
}

fn put(seq: u64, entries: &[(&[u8], &[u8])]) -> Batch {
    let puts = entries.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    Batch { puts, ..Batch::new(Seq(seq)) }
}

fn open(subject: &mut dyn Subject, generation: u64) -> Box<dyn Engine> {
    subject.open(Claim::new(generation)).expect("the volume opens")
}

fn commit(engine: &dyn Engine, batch: Batch) {
    engine.commit(batch).expect("the batch is taken");
}

fn read(engine: &dyn Engine, key: &[u8]) -> Option<Vec<u8>> {
    engine.get(key).expect("the key can be read")
}

fn scan(engine: &dyn Engine, range: &KeyRange) -> Vec<(Vec<u8>, Vec<u8>)> {
    engine.scan(range, ALL, Direction::Forward).expect("the range can be read").entries
}

/// Later batches win, and `last_seq` follows.
pub fn batches_are_applied_in_order_and_visible_at_once(subject: &mut dyn Subject) {
    let engine = open(subject, 1);
    assert_eq!(engine.last_seq(), Seq(0));
    for seq in 1..=20_u64 {
        commit(&*engine, put(seq, &[(b"k", &seq.to_be_bytes())]));
        assert_eq!(engine.last_seq(), Seq(seq));
        assert_eq!(read(&*engine, b"k"), Some(seq.to_be_bytes().to_vec()));
    }
    assert_eq!(engine.sync().expect("sync"), Seq(20));
}

/// Neither a gap nor a repetition.
pub fn a_batch_out_of_order_is_refused_and_changes_nothing(subject: &mut dyn Subject) {
    let engine = open(subject, 1);
    commit(&*engine, put(1, &[(b"a", b"1")]));
    for seq in [0, 1, 3] {
        let refused = engine.commit(put(seq, &[(b"a", b"2")]));
        assert!(matches!(refused, Err(EngineError::Sequence { expected: Seq(2), .. })), "{refused:?}");
    }
    assert_eq!(read(&*engine, b"a"), Some(b"1".to_vec()));
    commit(&*engine, put(2, &[(b"a", b"2")]));
}

/// A refused batch does not poison.
pub fn an_invalid_batch_is_refused_and_changes_nothing(subject: &mut dyn Subject) {
    let engine = open(subject, 1);
    let refused = engine.commit(put(1, &[(b"a", b"1"), (RESERVED_KEY, b"x")]));
    assert!(matches!(refused, Err(EngineError::Invalid { .. })), "{refused:?}");
    let refused = engine.commit(put(1, &[(b"a", b"1"), (b"a", b"2")]));
    assert!(matches!(refused, Err(EngineError::Invalid { .. })), "{refused:?}");
    assert_eq!((read(&*engine, b"a"), engine.last_seq()), (None, Seq(0)));
    commit(&*engine, put(1, &[(b"a", b"1")]));
}

/// Removal of what is there and of what is not; an empty batch counts as one.
pub fn deletes_remove_and_may_miss(subject: &mut dyn Subject) {
    let engine = open(subject, 1);
    commit(&*engine, put(1, &[(b"a", b"1"), (b"b", b"2")]));
    commit(&*engine, Batch { deletes: vec![b"a".to_vec(), b"none".to_vec()], ..put(2, &[(b"c", b"")]) });
    commit(&*engine, Batch::new(Seq(3)));
    assert_eq!(scan(&*engine, &everything()), [(b"b".to_vec(), b"2".to_vec()), (b"c".to_vec(), vec![])]);
    assert_eq!(engine.last_seq(), Seq(3));
}

/// Missing and repeated keys included.
pub fn get_many_keeps_the_order_of_its_keys(subject: &mut dyn Subject) {
    let engine = open(subject, 1);
    commit(&*engine, put(1, &[(b"a", b"1"), (b"b", b"2")]));
    let found = engine.get_many(&[b"b", b"none", b"a", b"b"]).expect("get_many");
    let b = Some(b"2".to_vec());
    assert_eq!(found, [b.clone(), None, Some(b"1".to_vec()), b]);
    assert!(engine.get_many(&[]).expect("get_many").is_empty());
}

/// Pages of every size, joined, give what a sorted map gives.
pub fn scans_agree_with_a_model_in_both_directions_and_any_page_size(subject: &mut dyn Subject) {
    let engine = open(subject, 1);
    let mut model = BTreeMap::new();
    for seq in 1..=40_u64 {
        let key = (seq * 7919 % 97).to_be_bytes().to_vec();
        let value = vec![seq as u8; (seq % 9) as usize];
        commit(&*engine, put(seq, &[(&key, &value)]));
        model.insert(key, value);
    }
    let range = KeyRange::new(5_u64.to_be_bytes(), 90_u64.to_be_bytes());
    let forward: Vec<_> =
        model.range(range.start.clone()..range.end.clone()).map(|(k, v)| (k.clone(), v.clone())).collect();
    let backward: Vec<_> = forward.iter().rev().cloned().collect();
    let limits = [(1, usize::MAX), (3, usize::MAX), (7, 40), (usize::MAX, 1), (usize::MAX, 50)];
    for (entries, bytes) in limits {
        for (direction, expected) in [(Direction::Forward, &forward), (Direction::Backward, &backward)] {
            let limit = ScanLimit { entries, bytes };
            assert_eq!(&pages(&*engine, &range, limit, direction), expected, "{limit:?} {direction:?}");
        }
    }
}

fn pages(
    engine: &dyn Engine,
    range: &KeyRange,
    limit: ScanLimit,
    direction: Direction,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rest = range.clone();
    let mut found = Vec::new();
    loop {
        let page = engine.scan(&rest, limit, direction).expect("scan");
        assert!(page.entries.len() <= limit.entries);
        let bytes: usize = page.entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(bytes <= limit.bytes || page.entries.len() == 1, "{bytes} over {limit:?}");
        let Some((last, _)) = page.entries.last() else {
            assert!(!page.more);
            return found;
        };
        rest = rest.rest_after(last, direction);
        found.extend(page.entries);
        if !page.more {
            return found;
        }
    }
}

/// Equal ends, crossed ends, and a limit of nothing.
pub fn an_empty_range_gives_an_empty_page(subject: &mut dyn Subject) {
    let engine = open(subject, 1);
    commit(&*engine, put(1, &[(b"b", b"1")]));
    for range in [KeyRange::new(b"b", b"b"), KeyRange::new(b"c", b"a"), KeyRange::new(b"c", b"d")] {
        for direction in [Direction::Forward, Direction::Backward] {
            let page = engine.scan(&range, ALL, direction).expect("scan");
            assert!(page.entries.is_empty() && !page.more, "{range:?}");
        }
    }
    let none = ScanLimit { entries: 0, bytes: 0 };
    let page = engine.scan(&everything(), none, Direction::Forward).expect("scan");
    assert!(page.entries.is_empty() && page.more);
}

/// Neither `get` nor a scan shows it, even beside keys that sort around it.
pub fn the_reserved_record_is_hidden(subject: &mut dyn Subject) {
    let engine = open(subject, 1);
    commit(&*engine, put(1, &[(&[0, 0], b"1"), (&[1], b"2")]));
    assert_eq!(read(&*engine, RESERVED_KEY), None);
    assert_eq!(engine.get_many(&[RESERVED_KEY]).expect("get_many"), [None]);
    let found = scan(&*engine, &everything());
    assert_eq!(found, [(vec![0, 0], b"1".to_vec()), (vec![1], b"2".to_vec())]);
}

/// 300 KiB, among small ones, through a reopening.
pub fn large_values_come_back(subject: &mut dyn Subject) {
    let engine = open(subject, 1);
    let large: Vec<u8> = (0..300 << 10).map(|index: usize| ((index * 31) >> 3) as u8).collect();
    for seq in 1..=5 {
        commit(&*engine, put(seq, &[(&[seq as u8], &large), (b"small", b"s")]));
    }
    assert_eq!(read(&*engine, &[3]), Some(large.clone()));
    engine.close().expect("close");
    let engine = open(subject, 2);
    assert!((1..=5).all(|seq| read(&*engine, &[seq]) == Some(large.clone())));
    assert!(engine.disk_bytes().expect("disk_bytes") >= 5 * (300 << 10));
}

/// After a close and after a drop without one; the next batch follows on.
pub fn everything_is_there_after_reopening(subject: &mut dyn Subject) {
    let mut seq = 0_u64;
    for generation in 1..=6 {
        let engine = open(subject, generation);
        assert_eq!(engine.last_seq(), Seq(seq));
        for earlier in 1..=seq {
            assert_eq!(read(&*engine, &earlier.to_be_bytes()), Some(vec![earlier as u8]));
        }
        for _ in 0..10 {
            seq += 1;
            commit(&*engine, put(seq, &[(&seq.to_be_bytes(), &[seq as u8])]));
        }
        if generation % 2 == 0 {
            engine.close().expect("close");
        }
    }
}

/// Equal and smaller generations, also where nothing was committed under the stored one.
pub fn a_generation_not_greater_is_fenced(subject: &mut dyn Subject) {
    drop(open(subject, 5));
    for generation in [0, 4, 5] {
        match subject.open(Claim::new(generation)) {
            Err(EngineError::Fenced { stored, claimed }) => {
                assert_eq!((stored.0, claimed.0), (5, generation))
            }
            Err(error) => panic!("generation {generation}: {error}"),
            Ok(_) => panic!("generation {generation} was let in"),
        }
    }
    let engine = open(subject, 6);
    commit(&*engine, put(1, &[(b"a", b"1")]));
}

/// The answer of a sync covers all that was committed before it.
pub fn sync_serves_while_another_thread_commits(subject: &mut dyn Subject) {
    let engine = open(subject, 1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = Seq(0);
                while !done.load(Ordering::Acquire) {
                    let before = engine.last_seq();
                    let synced = engine.sync().expect("sync");
                    assert!(synced >= before && synced >= last, "{synced} after {before} and {last}");
                    last = synced;
                }
            });
        }
        for seq in 1..=300_u64 {
            commit(&*engine, put(seq, &[(&seq.to_be_bytes(), b"v")]));
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(engine.sync().expect("sync"), Seq(300));
}

/// A reader beside the committing thread never sees half a batch.
pub fn readers_see_batches_whole(subject: &mut dyn Subject) {
    let engine = open(subject, 1);
    let done = AtomicBool::new(false);
    let keys: Vec<[u8; 2]> = (0..50).map(|index| [1, index]).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let refs: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
            while !done.load(Ordering::Acquire) {
                let values = engine.get_many(&refs).expect("get_many");
                assert!(values.iter().all(|value| *value == values[0]), "get_many saw half a batch");
                let entries = scan(&*engine, &everything());
                assert!(entries.iter().all(|entry| entry.1 == entries[0].1), "scan saw half a batch");
            }
        });
        for seq in 1..=300_u64 {
            let value = seq.to_be_bytes();
            let entries: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (key.as_slice(), &value[..])).collect();
            commit(&*engine, put(seq, &entries));
        }
        done.store(true, Ordering::Release);
    });
}

/// Also where the taker commits between two records.
pub fn a_snapshot_is_of_one_moment(subject: &mut dyn Subject) {
    let engine = open(subject, 1);
    commit(&*engine, put(1, &[(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]));
    let mut seen = Vec::new();
    let mut take = |key: &[u8], value: &[u8]| {
        if seen.is_empty() {
            let mut batch = put(2, &[(b"b", b"2"), (b"d", b"2")]);
            batch.deletes.push(b"c".to_vec());
            commit(&*engine, batch);
        }
        seen.push((key.to_vec(), value.to_vec()));
        true
    };
    engine.snapshot(&mut take).expect("read");
    let old = |key: &[u8]| (key.to_vec(), b"1".to_vec());
    assert_eq!(seen, [old(b"a"), old(b"b"), old(b"c")]);
    assert_eq!((read(&*engine, b"b"), read(&*engine, b"c")), (Some(b"2".to_vec()), None));

    let mut count = 0;
    let mut take_two = |_: &[u8], _: &[u8]| {
        count += 1;
        count < 2
    };
    engine.snapshot(&mut take_two).expect("read");
    assert_eq!(count, 2);
}

/// `Full` once, then `Poisoned`; reads go on; a reopened volume holds at least what was synced.
pub fn a_failed_write_poisons(subject: &mut dyn Subject) {
    let engine = open(subject, 1);
    commit(&*engine, put(1, &[(b"a", b"1")]));
    engine.sync().expect("sync");
    if !subject.fill() {
        return;
    }
    let large = vec![7; 1 << 20];
    let mut seq = 1;
    let error = loop {
        seq += 1;
        assert!(seq < 1000, "the volume never fills");
        if let Err(error) = engine.commit(put(seq, &[(b"large", &large)])) {
            break error;
        }
    };
    assert!(matches!(error, EngineError::Full { .. }), "{error:?}");
    for _ in 0..2 {
        assert!(matches!(engine.commit(put(seq, &[(b"b", b"1")])), Err(EngineError::Poisoned { .. })));
        assert!(matches!(engine.sync(), Err(EngineError::Poisoned { .. })));
    }
    assert_eq!(read(&*engine, b"a"), Some(b"1".to_vec()));
    drop(engine);
}
