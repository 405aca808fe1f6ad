//! Volumes of earlier formats.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use chunk::{Extent, ExtentMap, Run};
use common::Rig;
use kv::KeyRange;
use meta::{Body, Key, KeyKind, value_decode, value_encode};
use types::{Ino, SegmentId};

/// An extent of whole blocks.
fn extent(at: u64, len: u32) -> Extent {
    let crcs: Vec<u32> = (0..len.div_ceil(16 << 10)).collect();
    Extent::new(at, Run::new(SegmentId(1), 64, len, &crcs).unwrap()).unwrap()
}

/// Goal: wide pages of extents become narrow ones that map the same bytes to the same places, and what is damaged stays unreadable, where it
/// was. Method: a sound wide page with an extent over a border, and a damaged one; a new master opens the volume.
#[test]
fn wide_pages_are_divided_and_damage_stays_where_it_was() {
    let mut rig = Rig::new();
    let mut wide = ExtentMap::new();
    let (across, alone) = (extent((2 << 20) - (32 << 10), 64 << 10), extent(9 << 20, 100));
    for extent in [&across, &alone] {
        assert!(wide.insert(extent.clone()).is_empty());
    }
    let sound = Key::WideExtentPage(Ino(20), 0).to_vec();
    let damaged = Key::WideExtentPage(Ino(20), 3).to_vec();
    let mut batch = kv::Batch::new(rig.engine.last_seq().next());
    batch.puts.push((sound.clone(), value_encode(&sound, &wide)));
    batch.puts.push((damaged.clone(), value_encode(&sound, &wide)));
    rig.engine.commit(batch).unwrap();
    rig.engine.sync().unwrap();
    rig.remaster();

    let mut pages = Vec::new();
    let (start, end) = Key::range_of_kind(KeyKind::ExtentPage);
    kv::scan_all(&*rig.engine, KeyRange::new(start, end), |(key, value)| {
        let Some(Key::ExtentPage(_, page)) = Key::from_slice(&key) else { panic!("{key:?}") };
        let map = value_decode::<ExtentMap>(&key, &value).ok();
        pages.push((page, map.map(|map| map.iter().cloned().collect::<Vec<_>>())));
    })
    .unwrap();
    let border = 2 * Body::PAGE_SPAN;
    let mut expected = vec![
        (1, Some(vec![across.slice(0..border).unwrap()])),
        (2, Some(vec![across.slice(border..u64::MAX).unwrap()])),
        (9, Some(vec![alone])),
    ];
    expected.extend((48..64).map(|page| (page, None)));
    assert_eq!(pages, expected);
    let (start, end) = Key::range_of_kind(KeyKind::WideExtentPage);
    kv::scan_all(&*rig.engine, KeyRange::new(start, end), |_| panic!("one is left")).unwrap();
}
