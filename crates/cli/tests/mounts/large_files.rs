//! Large files, changed in all ways by two nodes, against one on the local disk.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use crate::lab::Lab;

/// Several pages of extents.
const LARGEST: u64 = 100 << 20;
const STEPS: u32 = 400;

fn open_both(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("opened")
}

/// A number below `n`, from a sequence that a seed begins.
fn draw(state: &mut u64, n: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 24) % n
}

/// What is read of a range, short where the file ends.
fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut got = 0;
    loop {
        match file.read_at(&mut bytes[got..], offset + got as u64).expect("read") {
            0 => break,
            more => got += more,
        }
    }
    bytes.truncate(got);
    bytes
}

fn change(file: &File, state: &mut u64, mark: u8) {
    let offset = draw(state, LARGEST);
    match draw(state, 12) {
        // Enough to be stored at once, and little.
        0..=3 => file
            .write_all_at(&vec![mark; (256 << 10) + draw(state, 4 << 20) as usize], offset)
            .expect("written"),
        4..=6 => file.write_all_at(&vec![mark; 1 + draw(state, 9_000) as usize], offset).expect("written"),
        7 => file.set_len(if offset % 3 == 0 { 0 } else { offset }).expect("cut"),
        8 => {
            let (flags, len) =
                (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1 + draw(state, 30 << 20));
            fallocate(file, flags, offset, len).expect("punched");
        }
        9 => {
            let (from, len) = (draw(state, LARGEST), 1 + draw(state, 8 << 20));
            // Not onto itself.
            let len = if from == offset { 0 } else { len.min(from.abs_diff(offset)) };
            copy(file, from, offset, len as usize);
        }
        10 => {
            let (flags, len) = (FallocateFlags::ZERO_RANGE, 1 + draw(state, 3 << 20));
            fallocate(file, flags, offset, len).expect("zeroed");
        }
        _ => file.sync_all().expect("synced"),
    }
}

/// Copies inside a file, as far as there is something.
fn copy(file: &File, mut from: u64, mut to: u64, mut left: usize) {
    while left > 0 {
        match rustix::fs::copy_file_range(file, Some(&mut from), file, Some(&mut to), left).expect("copied") {
            0 => break,
            copied => left -= copied,
        }
    }
}

/// Goal: whatever is done to a large file, every byte of it is what it would be on a local disk: above all, what was cut off or punched out
/// never comes back. Method: two nodes and a local file system do the same at random, one node at a time, and ranges are compared
/// after each step, everything at the end and after a new start.
#[test]
fn large_files_are_what_they_are_elsewhere() {
    let Some(lab) = Lab::new() else { return };
    let seed = std::env::var("HOLDFAST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1u64);
    let mut state = seed;
    let local = open_both(&lab.path("local"));
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let mut file = open_both(&a.path("f"));
    for step in 0..STEPS {
        if draw(&mut state, 8) == 0 {
            file = open_both(&[&a, &b][draw(&mut state, 2) as usize].path("f"));
        }
        let (mut same, mark) = (state, step as u8 | 1);
        change(&local, &mut same, mark);
        change(&file, &mut state, mark);
        for _ in 0..3 {
            let (offset, len) = (draw(&mut state, LARGEST), 1 + draw(&mut state, 300 << 10) as usize);
            let (expected, is) = (read(&local, offset, len), read(&file, offset, len));
            assert!(is == expected, "seed {seed}, step {step}: {len} bytes from {offset}");
        }
        let len = |file: &File| file.metadata().expect("there").len();
        assert_eq!(len(&file), len(&local), "seed {seed}, step {step}");
    }
    let whole = read(&local, 0, LARGEST as usize + (8 << 20));
    for mount in [&a, &b] {
        assert!(
            read(&File::open(&mount.path("f")).expect("there"), 0, whole.len() + 1) == whole,
            "seed {seed}"
        );
    }
    drop((file, a, b));
    let again = lab.mount("a");
    let is_same = read(&File::open(&again.path("f")).expect("there"), 0, whole.len() + 1) == whole;
    assert!(is_same, "seed {seed}, after a new start");
    drop(again);
    lab.holdfast(&["fsck", "--data", "vol"]).expect_success();
}

/// Goal: a node that has read or written a large file reads what another node makes of it, wherever that has moved it. Method: one node
/// writes it and reads it again; the other moves it to another directory, and perhaps back, and changes it there.
#[test]
fn a_large_file_that_was_moved_is_read_as_it_is() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    for (round, moves_back) in [false, true, false, true].into_iter().enumerate() {
        let [from, to] = ["from", "to"].map(|name| format!("{name}{round}"));
        std::fs::create_dir(a.path(&from)).expect("made");
        let file = open_both(&a.path(&from).join("f"));
        write_mib(&file, 60);
        file.sync_all().expect("synced");
        drop(file);
        assert_eq!(read(&File::open(&a.path(&from).join("f")).expect("there"), 30 << 20, 10), [1; 10]);
        assert_eq!(std::fs::read_dir(b.path(&from)).expect("listed").count(), 1);
        std::fs::create_dir(b.path(&to)).expect("made");
        std::fs::rename(b.path(&from).join("f"), b.path(&to).join("f")).expect("moved");
        open_both(&b.path(&to).join("f")).write_all_at(&vec![2; 1 << 20], 30 << 20).expect("written");
        if moves_back {
            std::fs::rename(b.path(&to).join("f"), b.path(&from).join("f")).expect("moved back");
        }
        let place = if moves_back { from } else { to };
        assert_eq!(
            read(&File::open(&a.path(&place).join("f")).expect("there"), 30 << 20, 10),
            [2; 10],
            "round {round}"
        );
    }
}

/// Goal: a hole behind the end of a file is one, wherever it begins. Method: ranges that begin and end where pages of extents do, and
/// beside that, of files that end there or long before.
#[test]
fn holes_behind_the_end_are_holes() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    const PAGE: u64 = 1 << 20;
    for (number, len) in [100_000, PAGE].into_iter().enumerate() {
        let file = open_both(&a.path(&number.to_string()));
        file.write_all_at(&vec![1; len as usize], 0).expect("written");
        file.sync_all().expect("synced");
        for start in [PAGE - 1, PAGE, PAGE + 1, 2 * PAGE] {
            for len in [1, 4096, PAGE] {
                for flags in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
                    fallocate(&file, flags | FallocateFlags::KEEP_SIZE, start, len).expect("punched");
                }
            }
        }
        assert_eq!(file.metadata().expect("there").len(), len);
        fallocate(&file, FallocateFlags::ZERO_RANGE, 2 * PAGE, 10).expect("zeroed");
        assert_eq!(read(&file, 2 * PAGE, 100), [0; 10]);
        assert_eq!(read(&file, 0, 10), [1; 10]);
    }
}

/// Goal: a hole costs what is in it, nothing. Method: a file with a few bytes here and there in exabytes is read, searched, cut and
/// filled by both nodes.
#[test]
fn a_file_of_exabytes_is_mostly_one_hole() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let places: Vec<u64> = (0..50).map(|n| n * (1 << 57) / 40 + n * 777).collect();
    let file = open_both(&a.path("f"));
    for place in &places {
        file.write_all_at(&place.to_le_bytes(), *place).expect("written");
    }
    file.set_len(1 << 60).expect("grown");
    file.sync_all().expect("synced");

    let other = open_both(&b.path("f"));
    let mut at = 0;
    for place in &places {
        let data = seek(&other, SeekFrom::Data(at)).expect("there is more");
        assert!(data <= *place && place - data < 4096, "{data} for {place}");
        at = seek(&other, SeekFrom::Hole(*place)).expect("there is a hole");
        assert_eq!(read(&other, *place, 8), place.to_le_bytes());
    }
    assert!(seek(&other, SeekFrom::Data(at)).is_err());
    other.set_len(places[20] + 4).expect("cut");
    other.set_len(1 << 62).expect("grown");
    other.write_all_at(b"far", (1 << 62) - 3).expect("written");
    other.sync_all().expect("synced");
    let expected: Vec<u8> = places[20].to_le_bytes()[..4].iter().copied().chain([0; 4]).collect();
    assert_eq!(read(&file, places[20], 8), expected);
    assert_eq!(read(&file, places[30], 8), [0; 8]);
    assert_eq!(read(&file, (1 << 62) - 3, 10), b"far");
    file.set_len(0).expect("cut");
    drop((file, other, a, b));
    lab.holdfast(&["fsck", "--data", "vol"]).expect_success();
}

/// Goal: what is written and removed at once leaves no segment that counts as used. Method: some files are, and the check of the
/// volume finds every sum right.
#[test]
fn large_files_that_are_removed_at_once_leave_nothing() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    for _ in 0..5 {
        write_mib(&open_both(&a.path("f")), 90);
        std::fs::remove_file(a.path("f")).expect("removed");
    }
    drop(a);
    lab.holdfast(&["fsck", "--data", "vol"]).expect_success();
}

fn write_mib(file: &File, count: u64) {
    for piece in 0..count {
        file.write_all_at(&vec![1; 1 << 20], piece << 20).expect("written");
    }
}

/// Goal: a file of more pages than go with a name at once is gone with it, and its room soon after, however its last name goes. Method: files of 200 GiB, of
/// which little is written; removed, replaced and removed while open, here and on the other node.
#[test]
fn files_too_large_to_go_at_once_go_with_their_names() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let used = || rustix::fs::statvfs(&a.root).map(|v| v.f_files - v.f_ffree).expect("asked");
    let before = used();
    for (round, remover) in [&a, &b, &a, &b].into_iter().enumerate() {
        let path = a.path("large");
        let file = open_both(&path);
        file.set_len(200 << 30).expect("made long");
        // More than a record takes.
        for n in 0..64 {
            file.write_all_at(b"here", n << 31).expect("written");
        }
        file.sync_all().expect("synced");
        let pause = || std::thread::sleep(std::time::Duration::from_millis(300));
        crate::lab::wait_until("it is counted", || {
            // The count is a second old at most.
            pause();
            used() > before
        });
        let open = (round >= 2).then_some(file);
        match round % 2 {
            0 => std::fs::remove_file(remover.path("large")).expect("removed"),
            _ => {
                std::fs::write(remover.path("new"), "new").expect("written");
                std::fs::rename(remover.path("new"), remover.path("large")).expect("replaced");
                std::fs::remove_file(remover.path("large")).expect("removed");
            }
        }
        assert!(File::open(&path).is_err(), "it has no name");
        if let Some(file) = &open {
            assert_eq!(read(file, 5 << 31, 4), b"here");
        }
        drop(open);
        crate::lab::wait_until("its inode falls free", || {
            pause();
            used() <= before
        });
    }
    for mount in [b, a] {
        mount.unmount(&lab);
    }
    lab.holdfast(&["fsck", "vol"]).expect_success();
}
