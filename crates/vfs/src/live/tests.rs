use super::dirty::DirtyBytes;
use super::map::EXTENT_BYTES;
use super::*;

/// Random writes and punches against a plain byte array.
#[test]
fn dirty_bytes_match_a_plain_array() {
    let mut state = 12345u64;
    let mut next = move |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    for _ in 0..300 {
        let mut dirty = DirtyBytes::default();
        let mut model = vec![None; 300];
        for step in 0..40u8 {
            let start = next(250);
            let len = 1 + next(50);
            if next(4) == 0 {
                dirty.punch(start..start + len);
                model[start as usize..(start + len) as usize].fill(None);
            } else {
                dirty.write(start, &vec![step; len as usize]);
                model[start as usize..(start + len) as usize].fill(Some(step));
            }
            let mut seen = vec![None; 300];
            for (at, bytes) in dirty.overlay(&(0..300)) {
                for (i, b) in bytes.iter().enumerate() {
                    assert_eq!(seen[at + i].replace(*b), None);
                }
            }
            assert_eq!(seen, model);
            assert_eq!(dirty.bytes, model.iter().flatten().count());
        }
    }
}

fn writer() -> (std::sync::Arc<chunk::MemStore>, SegmentWriter) {
    let store = std::sync::Arc::new(chunk::MemStore::new());
    let config = chunk::WriterConfig::new([1; 16], types::NodeId(1));
    let mut writer = SegmentWriter::new(config, store.clone());
    writer.add_segments((1..100).map(SegmentId));
    (store, writer)
}

fn bytes_of(live: &Live, store: &dyn chunk::SegmentStore, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0; live.size as usize];
    let (parts, overlay) = live.read(0..live.size);
    for (at, extent) in parts {
        let out = &mut bytes[at..at + extent.len() as usize];
        chunk::read_extent(store, ino, &extent, extent.range(), out).unwrap();
    }
    for (at, part) in overlay {
        bytes[at..at + part.len()].copy_from_slice(&part);
    }
    bytes
}

/// Goal: what was cut off does not come back, though the master has it until the cut is logged. Method: a file of several pages is cut and grows
/// past a hole; nothing in that is to be loaded, before its content is captured or after.
#[test]
fn pages_that_were_cut_off_are_not_asked_for() {
    let (_, mut writer) = writer();
    let span = Body::PAGE_SPAN;
    let time = Timespec::default();
    let body = Body::Paged { mapped_bytes: 0 };
    let content = Content { size: 7 * span, mtime: time, atime: time, ctime: time, body };
    let mut live = Live::new(&content, 0);
    assert_eq!(live.missing_pages(&(3 * span..3 * span + 1)), Some(3..4));
    assert_eq!(live.missing_pages(&(span - 1..u64::MAX)), Some(0..7));
    live.load_pages(3..4, []);
    assert_eq!(live.missing_pages(&(span..6 * span + 1)), Some(1..3));
    assert_eq!(live.missing_pages(&(4 * span - 1..6 * span)), Some(4..6));
    live.load_pages(2..7, []);
    live.truncate(2 * span, time);
    live.write(6 * span, b"beyond", time);
    live.stage(&mut writer, Ino(9)).unwrap();
    assert_eq!(live.missing_pages(&(2 * span..7 * span)), None);
    live.capture(Ino(9));
    assert_eq!(live.missing_pages(&(2 * span..7 * span)), None);
    assert_eq!(live.missing_pages(&(span..2 * span)), Some(1..2), "it was never loaded");
}

/// The end of a file is known however far away it is, and so is what is behind it.
#[test]
fn a_hole_of_exabytes_is_one_range() {
    let time = Timespec::default();
    let body = Body::Paged { mapped_bytes: 0 };
    let size = i64::MAX as u64;
    let mut live = Live::new(&Content { size, mtime: time, atime: time, ctime: time, body }, 0);
    let pages = live.missing_pages(&(0..size)).expect("nothing is loaded");
    assert_eq!(pages, 0..size.div_ceil(Body::PAGE_SPAN));
    live.load_pages(pages, []);
    live.truncate(1, time);
    live.truncate(size, time);
    assert_eq!((live.missing_pages(&(0..size)), live.seek_data(0), live.seek_hole(5)), (None, None, 5));
    assert!(live.capture(Ino(9)).pages.is_empty());
}

/// A paged file of ten pages, none of them loaded.
fn ten_pages() -> Live {
    let time = Timespec::default();
    let body = Body::Paged { mapped_bytes: 0 };
    Live::new(&Content { size: 10 * Body::PAGE_SPAN, mtime: time, atime: time, ctime: time, body }, 0)
}

/// Writes so many runs with gaps between.
fn scatter(live: &mut Live, writer: &mut SegmentWriter, runs: u64) {
    for n in 0..runs {
        live.write(n * 8192, b"here", Timespec::default());
    }
    live.stage(writer, Ino(9)).unwrap();
}

/// Goal: of a file that was cut to nothing no page stays where it was logged, whatever it gets before that is logged.
#[test]
fn a_file_that_was_cut_to_nothing_gives_up_all_pages() {
    let (_, mut writer) = writer();
    let mut live = ten_pages();
    let mut extent = |page| writer.append(Ino(9), page * Body::PAGE_SPAN, &[b"logged"]).unwrap();
    let maps: Vec<_> = [0, 1, 2, 3, 4, 6, 9]
        .map(|page| {
            let mut map = ExtentMap::new();
            extent(page).into_iter().for_each(|extent| drop(map.insert(extent)));
            (page, map)
        })
        .into();
    let logged: Vec<u64> = maps.iter().map(|(page, _)| *page).collect();
    live.load_pages(0..10, maps);
    live.truncate(0, Timespec::default());
    scatter(&mut live, &mut writer, 100);
    let capture = live.capture(Ino(9));
    assert!(matches!(capture.content.body, Body::Paged { .. }));
    let pages: Vec<(u64, bool)> = capture.pages.iter().map(|(page, map)| (*page, map.is_empty())).collect();
    assert_eq!(pages, logged.iter().map(|page| (*page, *page != 0)).collect::<Vec<_>>());
    live.truncate(0, Timespec::default());
    let pages: Vec<u64> = live.capture(Ino(9)).pages.into_iter().map(|(page, _)| page).collect();
    assert_eq!(pages, [0], "the others are gone already");
}

/// A hole is logged with the page that it is in, so it counts as what is to be logged.
#[test]
fn holes_count_as_what_is_to_be_logged() {
    let (_, mut writer) = writer();
    let mut live = ten_pages();
    live.load_pages(0..1, []);
    scatter(&mut live, &mut writer, 100);
    live.capture(Ino(9));
    assert_eq!(live.capture_bytes(), 0);
    live.punch(8192..8193, Timespec::default());
    assert!(live.capture_bytes() > 99 * EXTENT_BYTES);
}

/// Goal: what was stored of a write that failed does not show when the file grows. Method: the second page of the write finds no segment.
#[test]
fn a_write_that_failed_in_the_middle_leaves_nothing_behind_the_end() {
    let store = std::sync::Arc::new(chunk::MemStore::new());
    let config =
        chunk::WriterConfig { segment_len: 1 << 20, ..chunk::WriterConfig::new([1; 16], types::NodeId(1)) };
    let mut writer = SegmentWriter::new(config, store.clone());
    writer.add_segments([SegmentId(1)]);
    let time = Timespec::default();
    let body = Body::Empty {};
    let mut live = Live::new(&Content { size: 0, mtime: time, atime: time, ctime: time, body }, 0);
    let data = vec![7; 3 << 20];
    let version = live.version;
    assert!(live.write_through(&mut writer, Ino(9), Body::PAGE_SPAN - (512 << 10), &data, time).is_err());
    assert!(live.version > version, "what was captured before is not all there is");
    assert_eq!((live.size, live.stored_bytes()), (0, 0));
    live.truncate(2 * Body::PAGE_SPAN, time);
    assert!(bytes_of(&live, &*store, Ino(9)).iter().all(|byte| *byte == 0));
}

/// Goal: a write that fails leaves the file as it was, and what is in memory goes as far as there is room. Method: a page of other bytes, and the second page of
/// a write over it, or of what was written to memory, finds no segment.
#[test]
fn a_write_that_failed_in_the_middle_changes_nothing_and_memory_is_stored_as_far_as_it_goes() {
    let store = std::sync::Arc::new(chunk::MemStore::new());
    let config =
        chunk::WriterConfig { segment_len: 3 << 20, ..chunk::WriterConfig::new([1; 16], types::NodeId(1)) };
    let mut writer = SegmentWriter::new(config, store.clone());
    writer.add_segments([SegmentId(1)]);
    let time = Timespec::default();
    let body = Body::Empty {};
    let mut live = Live::new(&Content { size: 0, mtime: time, atime: time, ctime: time, body }, 0);
    live.write_through(&mut writer, Ino(9), 0, &vec![1; 1 << 20], time).unwrap();
    let over = vec![2; 2 << 20];
    assert!(live.write_through(&mut writer, Ino(9), 0, &over, time).is_err());
    assert_eq!(live.size, 1 << 20);
    assert!(bytes_of(&live, &*store, Ino(9)).iter().all(|byte| *byte == 1));
    // Nothing is left to sync but what the file has.
    assert_eq!(writer.unsynced_bytes(), 1 << 20);
    writer.add_segments([SegmentId(2)]);
    live.write(512 << 10, &vec![3; 4 << 20], time);
    assert!(live.stage(&mut writer, Ino(9)).is_err());
    assert_eq!(live.dirty_bytes(), 3 << 19, "half a page and two are stored");
    writer.add_segments([SegmentId(3)]);
    live.stage(&mut writer, Ino(9)).unwrap();
    let bytes = bytes_of(&live, &*store, Ino(9));
    assert!(
        bytes[..512 << 10].iter().all(|byte| *byte == 1) && bytes[512 << 10..].iter().all(|byte| *byte == 3)
    );
}

/// Bytes here and there, stored one by one, and holes punched between: a page of extents stays small enough for
/// a message, and every live byte is accounted for.
#[test]
fn a_page_never_has_more_extents_than_a_message_takes() {
    let empty = Content {
        size: 0,
        mtime: Timespec::default(),
        atime: Timespec::default(),
        ctime: Timespec::default(),
        body: Body::Empty {},
    };
    let (store, mut writer) = writer();
    let (ino, now, mut live) = (Ino(5), Timespec::default(), Live::new(&empty, 4096));
    let mut model = vec![0; 600_000];
    let mut largest = 0;
    let mut changes = |live: &mut Live| {
        let capture = live.capture(ino);
        for (_, map) in &capture.pages {
            largest = largest.max(map.len());
        }
        capture.deltas.iter().map(|(_, bytes)| bytes).sum::<i64>()
    };
    let mut live_bytes = 0;
    for step in 0..20_000usize {
        let at = step * 7919 % 300_000 * 2;
        model[at] = step as u8 | 1;
        live.write(at as u64, &model[at..=at], now);
        if step % 4_000 == 3_999 {
            live.stage(&mut writer, ino).unwrap();
            live_bytes += changes(&mut live);
        }
    }
    let end = live.size as usize;
    live.truncate(model.len() as u64, now);
    assert!(bytes_of(&live, &*store, ino) == model);
    for step in 0..9_000usize {
        let hole = (step * 31 % end) as u64..(step * 31 % end + 1) as u64;
        live.make_room(&mut writer, ino, &hole).unwrap();
        model[hole.start as usize] = 0;
        live.punch(hole, now);
    }
    live_bytes += changes(&mut live);
    assert!(bytes_of(&live, &*store, ino) == model);
    assert!(largest > 512 && largest <= Body::PAGE_EXTENTS_MAX + 64, "{largest} extents");
    let Data::Mapped(map) = &live.data else { panic!("too large to be inline") };
    assert_eq!(live_bytes as u64, map.mapped_bytes);
}

/// Goal: of a file that an earlier version wrote all bytes are found and cut off. Method: an extent that goes on in the next page, as formats
/// 1 to 3 have them in a file's record.
#[test]
fn an_extent_over_the_end_of_a_page_is_in_both() {
    let span = meta::Body::PAGE_SPAN;
    let run = chunk::Run::of_data(SegmentId(5), 0, &[&[1; 4096]]).unwrap();
    let mut record = ExtentMap::new();
    assert!(record.insert(Extent::new(span - 1024, run).unwrap()).is_empty());
    let mut map = map::FileMap::whole(&record);
    assert_eq!(map.mapped_in(&(span..span + 4096)), 3072);
    assert_eq!(map.mapped_in(&(0..span)), 1024);
    let mut deltas = chunk::LiveDeltas::new();
    map.truncate(span + 1, &mut deltas);
    assert_eq!(map.mapped_bytes, 1025);
    assert_eq!(map.mapped_in(&(0..4 * span)), 1025);
}
