//! Changes as writes: order, sums, pages of extents, and what a failing or damaged store does.

use chunk::{Extent, ExtentMap, Run};
use meta::{
    Change, Damage, Key, KeyValue, OrphanRecord, SegmentRecord, StoreError, StoreRead, Totals, UsageRecord,
};
use meta::{apply, value_decode};
use testkit::store::MapStore;
use types::{Account, Charge, Decode, Ino, NodeId, SegmentId};

const FILE: Ino = Ino(10);
const SEGMENT: SegmentId = SegmentId(5);

fn one_page(page: u64, bytes: usize) -> Change {
    let run = Run::of_data(SEGMENT, 0, &[&vec![1; bytes]]).expect("a short run");
    let mut map = ExtentMap::new();
    assert!(map.insert(Extent::new(page * meta::Body::PAGE_SPAN, run).expect("it fits")).is_empty());
    Change::PutExtentPage { ino: FILE, parent: Ino(0), page, map }
}

fn add_live(bytes: i64) -> Change {
    Change::AddLive { segment: SEGMENT, bytes }
}

fn delete_pages(from_page: u64) -> Change {
    Change::DeleteExtentPages { ino: FILE, parent: Ino(0), from_page }
}

fn stored<T: Decode>(store: &MapStore, key: Key) -> Option<T> {
    let bytes = key.to_vec();
    store.0.get(&bytes).map(|value| value_decode(&bytes, value).expect("undamaged"))
}

#[test]
fn each_key_is_written_once_in_key_order_with_its_last_value() {
    let totals = Change::AddUsage { charge: Charge { uid: 7, gid: 8, tree: 9 }, bytes: 3, inodes: 1 };
    let orphan = Change::PutOrphan { ino: FILE, holders: vec![NodeId(2)] };
    let changes =
        [totals.clone(), orphan, add_live(7), totals, Change::DeleteOrphan { ino: FILE }, add_live(-2)];
    let applied = apply(&changes, &MapStore::default(), NodeId(9)).unwrap();
    let keys: Vec<_> = applied.writes.iter().map(|(key, _)| Key::from_slice(key).unwrap()).collect();
    let accounts = [Account::User(7), Account::Group(8), Account::Tree(9)];
    assert_eq!(keys[..3], [Key::Orphan(FILE), Key::Segment(SEGMENT), Key::Totals]);
    assert_eq!(keys[3..], accounts.map(Key::Usage));
    assert_eq!(applied.writes[0].1, None);
    let mut store = MapStore::default();
    store.apply(&changes);
    assert_eq!(stored(&store, Key::Totals), Some(Totals { bytes: 6, inodes: 2 }));
    for account in accounts {
        assert_eq!(stored(&store, Key::Usage(account)), Some(UsageRecord { bytes: 6, inodes: 2 }));
    }
    let segment = SegmentRecord { writer: NodeId(1), live_bytes: 5 };
    assert_eq!(stored(&store, Key::Segment(SEGMENT)), Some(segment));
    assert_eq!(stored::<OrphanRecord>(&store, Key::Orphan(FILE)), None);
}

#[test]
fn deleted_pages_give_back_what_was_stored_and_what_is_just_being_written() {
    let mut store = MapStore::default();
    let pages: Vec<_> = (0..100).map(|page| one_page(page, 100)).collect();
    store.apply(&pages);
    store.apply(&[add_live(10_000)]);
    // As a log has them: what is put and deleted, and at the end what that makes of the sums.
    store.apply(&[one_page(200, 50), one_page(99, 40), delete_pages(1), add_live(50), add_live(-60)]);
    let left: Vec<_> = store.0.keys().map(|key| Key::from_slice(key).unwrap()).collect();
    assert_eq!(left, [Key::ExtentPage(FILE, 0), Key::Segment(SEGMENT)]);
    let segment = stored::<SegmentRecord>(&store, Key::Segment(SEGMENT)).unwrap();
    assert_eq!(segment.live_bytes, 100);
}

/// A large file that is made and removed in one batch: its bytes are counted where they no longer are, and nothing is below zero.
#[test]
fn what_is_put_and_deleted_in_one_list_counts_for_nothing() {
    let store = MapStore::default();
    let applied = apply(&[one_page(0, 100), delete_pages(0), add_live(100)], &store, NodeId(9)).unwrap();
    assert_eq!(applied.damage, []);
    let (key, value) = applied.writes.iter().find(|(_, value)| value.is_some()).unwrap();
    let record: SegmentRecord = value_decode(key, value.as_ref().unwrap()).unwrap();
    assert_eq!(record.live_bytes, 0);
}

#[test]
fn an_empty_page_and_an_empty_list_remove_their_keys() {
    let mut store = MapStore::default();
    let list = |list| Change::PutXattrs { ino: FILE, parent: Ino(0), list };
    let value: Box<[u8]> = b"1".as_slice().into();
    store.apply(&[one_page(0, 10), list(vec![(types::Name::new(b"user.a").unwrap(), value)])]);
    assert_eq!(store.0.len(), 2);
    let empty = Change::PutExtentPage { ino: FILE, parent: Ino(0), page: 0, map: ExtentMap::new() };
    store.apply(&[empty, list(Vec::new())]);
    assert_eq!(store.0.len(), 0);
}

#[test]
fn a_sum_below_zero_is_told_and_its_segment_not_taken_for_empty() {
    let applied = apply(&[add_live(-1)], &MapStore::default(), NodeId(9)).unwrap();
    assert_eq!(applied.damage, [Damage::Underflow { key: Key::Segment(SEGMENT).into() }]);
    assert_eq!(applied.writes, [], "none is made of one that is not there");
    let mut store = MapStore::default();
    store.apply(&[add_live(10)]);
    let applied = apply(&[add_live(-11)], &store, NodeId(9)).unwrap();
    let (key, value) = &applied.writes[0];
    let record: SegmentRecord = value_decode(key, value.as_ref().unwrap()).unwrap();
    assert_eq!(record.live_bytes, SegmentRecord::UNCOUNTED);
}

#[test]
fn a_damaged_page_goes_too_and_a_damaged_sum_stays_and_is_told() {
    let mut store = MapStore::default();
    store.apply(&[
        one_page(0, 10),
        add_live(10),
        Change::AddUsage { charge: Charge::default(), bytes: 1, inodes: 1 },
    ]);
    for value in store.0.values_mut() {
        value[2] ^= 1;
    }
    let applied = apply(&[delete_pages(0)], &store, NodeId(9)).unwrap();
    assert_eq!(applied.writes, [(Key::ExtentPage(FILE, 0).to_vec(), None)]);
    assert!(matches!(&applied.damage[..], [Damage::Value { .. }]));
    // Who changed something cannot take it back, so a sum must not be in its way; and a segment whose sum began
    // anew would look empty.
    let usage = Change::AddUsage { charge: Charge::default(), bytes: 1, inodes: 1 };
    // The totals and two accounts.
    for (changes, damaged) in [(vec![add_live(1)], 1), (vec![usage, add_live(-1)], 4)] {
        let applied = apply(&changes, &store, NodeId(9)).unwrap();
        assert_eq!(applied.writes, [], "what is damaged stays for a repair");
        assert_eq!(applied.damage.len(), damaged, "{:?}", applied.damage);
    }
}

#[test]
fn a_failing_store_fails_the_list() {
    struct Failing;
    impl StoreRead for Failing {
        fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            Err(StoreError::new("gone"))
        }
        fn scan(&self, _: &[u8], _: &[u8], _: usize) -> Result<Vec<KeyValue>, StoreError> {
            Err(StoreError::new("gone"))
        }
    }
    assert!(apply(&[delete_pages(0)], &Failing, NodeId(1)).is_err());
    assert!(apply(&[add_live(1)], &Failing, NodeId(1)).is_err());
    assert!(apply(&[one_page(0, 1)], &Failing, NodeId(1)).is_ok());
}

/// Goal: a part of the store that is damaged for good is in nobody's way, and no segment looks emptier for it than it is. Method: a store
/// that can read nothing.
#[test]
fn a_store_that_is_damaged_in_parts_fails_no_list() {
    struct Damaged;
    impl StoreRead for Damaged {
        fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            Err(StoreError::damaged("a block's checksum is wrong"))
        }
        fn scan(&self, _: &[u8], _: &[u8], _: usize) -> Result<Vec<KeyValue>, StoreError> {
            Err(StoreError::damaged("a block's checksum is wrong"))
        }
    }
    let usage = Change::AddUsage { charge: Charge::default(), bytes: 1, inodes: 1 };
    let applied = apply(&[one_page(0, 10), delete_pages(0), usage], &Damaged, NodeId(9)).unwrap();
    // The pages, the totals, and two accounts; and the segment, from which what this list itself put was taken again.
    assert_eq!(applied.damage.len(), 5, "{:?}", applied.damage);
    assert!(applied.damage.iter().all(|damage| matches!(damage, Damage::Unreadable { .. })));
    assert!(applied.writes.contains(&(Key::ExtentPage(FILE, 0).to_vec(), None)), "{:?}", applied.writes);
    let applied = apply(&[add_live(10)], &Damaged, NodeId(9)).unwrap();
    let [(key, Some(value))] = &applied.writes[..] else { panic!("{:?}", applied.writes) };
    let record: SegmentRecord = value_decode(key, value).unwrap();
    // Of what copies have in common each counts, so that may be more than the segment is long.
    assert_eq!(record, SegmentRecord { writer: NodeId(9), live_bytes: i64::MAX as u64 });
}
