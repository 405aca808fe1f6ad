//! Extent maps as values: decoded, then changed as a node changes them.

use chunk::{ExtentMap, FILE_SIZE_MAX, Run};
use testkit::fuzz::{Memory, Target, outcome};
use types::{Decode, Encode, SegmentId};

use crate::targets::round_trip;
use crate::traffic::traffic;

/// Where one is changed, then the map's byte form.
pub struct Extents;

impl Target for Extents {
    fn name(&self) -> &'static str {
        "extents"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let maps = traffic().records.iter().filter_map(|(key, value)| map_of(key, value));
        let mut seeds: Vec<_> = maps.map(|map| with_place(&map)).take(100).collect();
        let mut many = ExtentMap::new();
        for n in 0..20u64 {
            let run = Run::new(SegmentId(n), n * 100, 40_000, &[7; 3]).expect("a run");
            let _ = many.insert(chunk::Extent::new(n * 50_000, run).expect("an extent"));
        }
        seeds.push(with_place(&many));
        seeds
    }

    fn repair(&self, _bytes: &mut Vec<u8>) {}

    fn run(&mut self, bytes: &[u8]) -> String {
        let Some((place, bytes)) = bytes.split_first_chunk::<8>() else { return "no place".to_owned() };
        let map = match ExtentMap::from_bytes(bytes) {
            Ok(map) => map,
            Err(error) => return outcome(&error.to_string()),
        };
        round_trip(&map);
        let mapped: u64 = map.iter().map(|extent| u64::from(extent.len())).sum();
        assert_eq!(mapped, map.mapped_bytes());
        let at = u64::from_le_bytes(*place) & FILE_SIZE_MAX;
        let mut changed = map.clone();
        let end = at.saturating_add(1 << 20).min(FILE_SIZE_MAX);
        let _ = changed.punch(at..end);
        assert!(changed.pieces(at..end).all(|piece| matches!(piece, chunk::Piece::Hole { .. })));
        round_trip(&changed);
        let mut changed = map.clone();
        changed.split_at(at);
        assert_eq!(changed.mapped_bytes(), mapped, "a split loses nothing");
        round_trip(&changed);
        let _ = changed.truncate(at);
        assert!(changed.end() <= at);
        round_trip(&changed);
        format!("{} extents", map.len().next_power_of_two())
    }

    fn memory(&self) -> Memory {
        Memory { per_byte: 1024, ..Memory::DECODER }
    }
}

fn map_of(key: &[u8], value: &[u8]) -> Option<ExtentMap> {
    use meta::{Body, Key};
    let body = |content: meta::Content| match content.body {
        Body::Extents { map } => Some(map),
        _ => None,
    };
    match Key::from_slice(key)? {
        Key::ExtentPage(..) => meta::value_decode(key, value).ok(),
        Key::Content(_) => body(meta::value_decode(key, value).ok()?),
        Key::Entry(..) => {
            body(meta::value_decode::<meta::Dirent>(key, value).ok()?.covered()?.content.clone())
        }
        _ => None,
    }
}

fn with_place(map: &ExtentMap) -> Vec<u8> {
    [&10_000u64.to_le_bytes()[..], &map.to_bytes()].concat()
}
