//! The map against a model: an array with, for each byte of a file, the segment and offset it is stored at.

use std::collections::BTreeMap;

use fastrand::Rng;
use types::{Encoder, SegmentId};

use super::*;
use crate::extent::block_count;
use crate::{CHECKSUM_BLOCK, LiveDeltas, RUN_LEN_MAX, Run};

const BLOCK: u64 = CHECKSUM_BLOCK as u64;
const SIZE: u64 = 200_000;
const SEEDS: u64 = 2_500;
const STEPS: usize = 12;

/// Place of one byte: segment and offset in it.
type Place = Option<(u64, u64)>;

/// One entry for each byte: sorted stretches would be the thing under test again.
struct Model {
    places: Vec<Place>,
}

fn run(segment: u64, offset: u64, len: u32) -> Run {
    // The checksum names its block, so that trimming shows.
    let crcs =
        (0..block_count(len) as u64).map(|block| crc_of(segment, offset / BLOCK * BLOCK + block * BLOCK));
    Run::new(SegmentId(segment), offset, len, &crcs.collect::<Vec<_>>()).unwrap()
}

fn crc_of(segment: u64, block_start: u64) -> u32 {
    (segment * 1_000_003 + block_start / BLOCK) as u32
}

impl Model {
    fn fill(&mut self, range: Range<u64>, place: impl Fn(u64) -> Place) {
        let end = range.end.min(SIZE);
        for at in range.start.min(end)..end {
            self.places[at as usize] = place(at);
        }
    }

    fn live(&self) -> BTreeMap<SegmentId, i64> {
        let mut live = BTreeMap::new();
        for (segment, _) in self.places.iter().flatten() {
            *live.entry(SegmentId(*segment)).or_insert(0) += 1;
        }
        live
    }
}

fn check(map: &ExtentMap, model: &Model, deltas: &LiveDeltas, rng: &mut Rng, seed: u64) {
    let mut places = vec![None; SIZE as usize];
    let mut last_end = 0;
    for extent in map.iter() {
        assert!(extent.file_offset() >= last_end, "seed {seed}: overlap");
        last_end = extent.end();
        let run = extent.run();
        for (index, crc) in run.crcs().iter().enumerate() {
            let want = crc_of(run.segment().0, run.offset() + index as u64 * BLOCK);
            assert_eq!(*crc, want, "seed {seed}: checksum of a wrong block");
        }
        assert!(extent.skip() < CHECKSUM_BLOCK);
        for at in extent.range() {
            let offset = extent.segment_offset() + (at - extent.file_offset());
            places[at as usize] = Some((extent.segment().0, offset));
        }
    }
    assert!(places == model.places, "seed {seed}: bytes are mapped elsewhere");
    let live = model.live();
    assert_eq!(deltas.iter().collect::<BTreeMap<_, _>>(), live, "seed {seed}");
    assert_eq!(map.mapped_bytes() as i64, live.values().sum::<i64>(), "seed {seed}");

    let start = rng.u64(0..SIZE);
    let range = start..rng.u64(start..=SIZE);
    let mut at = range.start;
    for piece in map.pieces(range.clone()) {
        assert_eq!(piece.range().start, at, "seed {seed}");
        assert!(!piece.range().is_empty());
        at = piece.range().end;
        let is_data = matches!(piece, Piece::Data { .. });
        let part = &model.places[piece.range().start as usize..piece.range().end as usize];
        assert!(part.iter().all(|place| place.is_some() == is_data), "seed {seed}");
    }
    assert_eq!(at, range.end, "seed {seed}");

    let rest = &model.places[start as usize..];
    let next =
        |wanted: bool| rest.iter().position(|place| place.is_some() == wanted).map(|n| start + n as u64);
    assert_eq!(map.seek_data(start), next(true), "seed {seed}");
    assert_eq!(map.seek_hole(start, SIZE), Some(next(false).unwrap_or(SIZE)), "seed {seed}");
    assert_eq!(map.extent_at(start).is_some(), rest[0].is_some(), "seed {seed}");
    assert_eq!(ExtentMap::from_bytes(&map.to_bytes()).as_ref(), Ok(map), "seed {seed}");
}

#[test]
fn any_sequence_matches_the_byte_array() {
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let mut map = ExtentMap::new();
        let mut model = Model { places: vec![None; SIZE as usize] };
        let mut deltas = LiveDeltas::new();
        for step in 0..STEPS as u64 {
            let start = rng.u64(0..SIZE - 1);
            let len_max = if rng.bool() { 300 } else { 80_000 };
            let len = rng.u64(1..=len_max.min(SIZE - start));
            match rng.u8(0..10) {
                0 | 1 => {
                    let freed = map.punch(start..start + len);
                    deltas.on_freed(&freed);
                    model.fill(start..start + len, |_| None);
                }
                2 => {
                    let freed = map.truncate(start);
                    deltas.on_freed(&freed);
                    model.fill(start..SIZE, |_| None);
                }
                3 => map.split_at(start),
                _ => {
                    // Each run gets its own place: segments are never overwritten.
                    let (segment, offset) = (1 + step % 3, step * u64::from(RUN_LEN_MAX));
                    let extent = Extent::new(start, run(segment, offset, len as u32)).unwrap();
                    deltas.on_added(&extent);
                    let freed = map.insert(extent);
                    deltas.on_freed(&freed);
                    model.fill(start..start + len, |at| Some((segment, offset + at - start)));
                }
            }
        }
        check(&map, &model, &deltas, &mut rng, seed);
    }
}

#[test]
fn damaged_bytes_cost_an_error_or_give_a_valid_map() {
    let mut map = ExtentMap::new();
    for n in 0..8u64 {
        let _ = map.insert(Extent::new(n * 50_000, run(n % 3, n << 20, 40_000)).unwrap());
    }
    let _ = map.punch(60_000..70_000);
    let bytes = map.to_bytes();
    let mut rng = Rng::with_seed(7);
    for _ in 0..20_000 {
        let mut bad = bytes.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(0..bad.len());
            bad[at] = rng.u8(..);
        }
        bad.truncate(rng.usize(0..=bad.len()));
        if let Ok(map) = ExtentMap::from_bytes(&bad) {
            let ends: Vec<_> = map.iter().map(Extent::range).collect();
            assert!(ends.windows(2).all(|pair| pair[0].end <= pair[1].start));
            assert_eq!(ExtentMap::from_bytes(&map.to_bytes()), Ok(map));
        }
    }
}

#[test]
fn limits_are_refused() {
    let extent = Extent::new(FILE_SIZE_MAX - 5, run(1, 0, 5)).unwrap();
    assert_eq!(extent.end(), FILE_SIZE_MAX);
    assert!(Extent::new(FILE_SIZE_MAX - 4, run(1, 0, 5)).is_err());
    assert!(Run::new(SegmentId(1), 0, 0, &[]).is_err());
    assert!(Run::new(SegmentId(1), 0, RUN_LEN_MAX + 1, &[0; 65]).is_err());
    assert!(Run::new(SegmentId(1), 0, CHECKSUM_BLOCK + 1, &[0; 1]).is_err());
    assert!(Run::new(SegmentId(1), u64::MAX, 1, &[0; 1]).is_err());
}

#[test]
fn an_untrimmed_run_is_refused() {
    for (len, skip, tail) in [(1u64, BLOCK, 0), (1, 0, BLOCK), (1, BLOCK - 1, 1), (BLOCK * 64, 1, 0)] {
        let mut out = Encoder::new();
        for value in [0, len, skip, tail, 1, 0] {
            out.varint(value);
        }
        out.raw(&[0; 400]);
        let bytes = out.into_vec();
        assert!(Extent::decode(&mut Decoder::new(&bytes)).is_err(), "{len} {skip} {tail}");
    }
}

#[test]
fn a_split_keeps_only_the_blocks_it_touches() {
    let mut map = ExtentMap::new();
    let _ = map.insert(Extent::new(0, run(1, 0, 10 * CHECKSUM_BLOCK)).unwrap());
    let freed = map.punch(2 * BLOCK + 1..7 * BLOCK - 1);
    assert_eq!(freed.iter().collect::<Vec<_>>(), [(SegmentId(1), 5 * BLOCK - 2)]);
    let stored: Vec<_> =
        map.iter().map(|e| (e.file_offset(), e.len(), e.skip(), e.run().offset(), e.run().len())).collect();
    let block = CHECKSUM_BLOCK;
    let left = (0, 2 * block + 1, 0, 0, 3 * block);
    let right = (7 * BLOCK - 1, 3 * block + 1, block - 1, 6 * BLOCK, 4 * block);
    assert_eq!(stored, [left, right]);
}
