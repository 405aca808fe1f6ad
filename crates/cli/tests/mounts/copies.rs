//! `copy_file_range`: what is copied is not stored again, and stays whatever becomes of the source.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::lab::Lab;

/// Bytes that are nowhere else.
fn marked(mark: u8, len: usize) -> Vec<u8> {
    (0..len as u32).flat_map(|n| [mark, n as u8, (n >> 8) as u8, (n >> 16) as u8]).take(len).collect()
}

/// Copies as much as is asked for, and returns how much one call did first.
fn copy(from: &File, mut from_offset: u64, to: &File, mut offset: u64, len: usize) -> usize {
    let (mut left, mut first) = (len, None);
    while left > 0 {
        let copied = rustix::fs::copy_file_range(from, Some(&mut from_offset), to, Some(&mut offset), left);
        let copied = copied.expect("copied");
        assert!(copied > 0, "the source ends {left} bytes early");
        left -= copied;
        first.get_or_insert(copied);
    }
    first.unwrap_or(0)
}

fn open_both(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("opened")
}

/// Bytes that the volume's segments take on the disk.
fn stored(lab: &Lab) -> u64 {
    let segments = fs::read_dir(lab.path("vol/segments")).expect("listed");
    segments.filter_map(|entry| entry.ok()?.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}

/// The commit interval, and what it takes to log.
fn settle() {
    std::thread::sleep(Duration::from_millis(2_500));
}

#[test]
fn a_copy_takes_no_room_and_outlives_its_source() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let data = marked(1, 40 << 20);
    fs::write(a.path("source"), &data).expect("written");
    settle();
    let before = stored(&lab);
    let (source, target) = (File::open(a.path("source")).expect("there"), open_both(&a.path("target")));
    assert_eq!(copy(&source, 0, &target, 0, data.len()), data.len(), "in one step");
    let metadata = target.metadata().expect("there");
    assert_eq!((metadata.len(), metadata.blocks() * 512), (data.len() as u64, data.len() as u64));
    assert!(fs::read(a.path("target")).expect("read") == data);
    assert!(fs::read(b.path("target")).expect("read") == data);

    // Not aligned to anything, from the other node, into the middle.
    let (from, to) = (File::open(b.path("source")).expect("there"), open_both(&b.path("target")));
    copy(&from, 12_345, &to, 99, 20_000_001);
    let mut expected = data.clone();
    expected[99..99 + 20_000_001].copy_from_slice(&data[12_345..12_345 + 20_000_001]);
    assert!(fs::read(a.path("target")).expect("read") == expected);
    settle();
    let grown = stored(&lab).saturating_sub(before);
    assert!(grown < 4 << 20, "the store grew by {grown} bytes for copies");

    // Within one file, and what was written just now.
    to.write_all_at(b"new", 5).expect("written");
    copy(&to, 0, &to, data.len() as u64, data.len());
    expected[5..8].copy_from_slice(b"new");
    expected.extend_from_within(..);
    assert!(fs::read(a.path("target")).expect("read") == expected);

    let cut = OpenOptions::new().write(true).open(a.path("source")).expect("there");
    cut.set_len(7).expect("cut");
    fs::remove_file(b.path("source")).expect("removed");
    drop((source, target, from, to, cut));
    settle();
    assert!(fs::read(b.path("target")).expect("read") == expected);
    (a.unmount(&lab), b.unmount(&lab));
    lab.holdfast(&["fsck", "vol", "--data"]).expect_success();
    let a = lab.mount("a");
    assert!(fs::read(a.path("target")).expect("read") == expected);
}

/// Goal: what docs/semantics.md says of the end of a source that another node moves. Method: a file that is open grows elsewhere, is
/// looked at, and copied and sent.
#[test]
fn what_another_node_appended_is_copied_after_a_look() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::write(a.path("source"), marked(1, 5_000)).expect("written");
    let source = File::open(b.path("source")).expect("there");
    assert_eq!(source.metadata().expect("there").len(), 5_000);
    let grown = OpenOptions::new().append(true).open(a.path("source")).expect("there");
    std::io::Write::write_all(&mut &grown, &marked(2, 5_000)).expect("written");
    assert_eq!(source.metadata().expect("there").len(), 10_000);
    let (copied, sent) = (open_both(&b.path("copied")), open_both(&b.path("sent")));
    copy(&source, 0, &copied, 0, 10_000);
    let sent = rustix::fs::sendfile(&sent, &source, Some(&mut 0), 10_000).expect("sent");
    assert_eq!(sent, 10_000);
    assert!(fs::read(a.path("copied")).expect("read") == [marked(1, 5_000), marked(2, 5_000)].concat());
}

/// Goal: a copy's bytes are never deleted with its source, however close together both happen on two nodes. Method: one
/// node makes, replaces, cuts and removes sources while the other copies from them, and everything is read at the end.
#[test]
fn sources_that_go_while_they_are_copied_elsewhere() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    const LEN: usize = 300_000;
    let ends = AtomicBool::new(false);
    let copies = std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0_u32.. {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                let path = a.path(&format!("source{}", round % 3));
                let file = open_both(&path);
                file.write_all_at(&vec![round as u8 | 1; LEN], 0).expect("written");
                if round % 4 > 0 {
                    file.sync_all().expect("synced");
                }
                match round % 5 {
                    0 => fs::remove_file(&path).expect("removed"),
                    1 => file.set_len(0).expect("cut"),
                    2 => fs::rename(&path, a.path("source0")).expect("renamed"),
                    _ => {}
                }
            }
        });
        let deadline = Instant::now() + Duration::from_secs(15);
        let mut copies = 0;
        while Instant::now() < deadline {
            let Ok(source) = File::open(b.path(&format!("source{}", copies % 3))) else { continue };
            let target = open_both(&b.path(&format!("target{copies}")));
            let copied = rustix::fs::copy_file_range(&source, None, &target, None, LEN).expect("copied");
            copies += usize::from(copied > 0);
        }
        ends.store(true, Ordering::Relaxed);
        copies
    });
    println!("{copies} copies");
    assert!(copies > 50, "{copies} copies");
    // Segments that nobody needs are gone by then.
    settle();
    for copy in 0..copies {
        let bytes = fs::read(a.path(&format!("target{copy}"))).expect("its bytes are there");
        assert!(bytes.iter().all(|byte| *byte != 0 || bytes.len() < LEN), "target{copy} has zeros");
    }
    (a.unmount(&lab), b.unmount(&lab));
    lab.holdfast(&["fsck", "vol", "--data"]).expect_success();
}

/// Goal: what copies need of segments that are mostly dead is moved, too. Method: pieces of many files are copied to one, the files are
/// removed, and the store is watched.
#[test]
fn segments_of_which_only_copies_have_something_are_cleaned() {
    let Some(lab) = Lab::without_volume() else { return };
    lab.holdfast(&["format", "vol", "--segment-size", "1M"]).expect_success();
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    const FILES: usize = 64;
    const PIECE: usize = 50_000;
    for number in 0..FILES {
        fs::write(a.path(&format!("f{number}")), marked(number as u8, 1 << 20)).expect("written");
    }
    settle();
    let (pieces, twice) = (open_both(&b.path("pieces")), open_both(&b.path("twice")));
    let mut expected = Vec::new();
    for number in 0..FILES {
        let source = File::open(b.path(&format!("f{number}"))).expect("there");
        copy(&source, 500_000, &pieces, (number * PIECE) as u64, PIECE);
        expected.extend_from_slice(&marked(number as u8, 1 << 20)[500_000..500_000 + PIECE]);
    }
    copy(&pieces, 0, &twice, 1, expected.len());
    let full = stored(&lab);
    for number in 0..FILES {
        fs::remove_file(a.path(&format!("f{number}"))).expect("removed");
    }
    // Where reading all the metadata took long, on a busy machine, the next round may be five minutes later.
    let deadline = Instant::now() + Duration::from_secs(400);
    while stored(&lab) > full / 4 {
        assert!(Instant::now() < deadline, "{} of {full} bytes are still stored", stored(&lab));
        std::thread::sleep(Duration::from_millis(200));
    }
    for mount in [&a, &b] {
        assert!(fs::read(mount.path("pieces")).expect("read") == expected);
        assert!(fs::read(mount.path("twice")).expect("read")[1..] == expected);
    }
    drop((pieces, twice));
    (a.unmount(&lab), b.unmount(&lab));
    lab.holdfast(&["fsck", "vol", "--data"]).expect_success();
}
