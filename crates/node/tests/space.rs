//! Space comes back: on a small disk of its own, filled, emptied and overwritten.
//!
//! Goal: removals work on a full disk and give their room back, and what is overwritten again and again takes
//! hardly more room than what is left of it. Method: a file with an ext4 file system, mounted by a loop device.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::Scratch;

const MIB: u64 = 1 << 20;

/// A file system of its own for a volume; unmounted on drop.
struct Disk {
    dir: PathBuf,
}

impl Disk {
    fn new(scratch: &Scratch, mib: u64) -> Option<Self> {
        let (image, dir) = (scratch.dir.join("disk.img"), scratch.dir.join("disk"));
        File::create(&image).unwrap().set_len(mib * MIB).unwrap();
        fs::create_dir(&dir).unwrap();
        let (image, at) = (image.to_str().unwrap(), dir.to_str().unwrap());
        if !run("mkfs.ext4", &["-q", "-m", "0", image]) || !run("mount", &["-o", "loop", image, at]) {
            println!("SKIPPED: no loop device with ext4 can be had");
            return None;
        }
        Some(Self { dir })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let dir = self.dir.to_str().unwrap();
        // A master that gave up may still be closing its files.
        let began = Instant::now();
        while !run("umount", &["-q", dir]) {
            if began.elapsed() > Duration::from_secs(5) {
                eprintln!("{dir} stays busy");
                run("umount", &["-l", dir]);
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Bytes that a tree takes on its disk.
fn used(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    let below = match metadata.is_dir() {
        true => fs::read_dir(path).map_or(0, |entries| entries.map(|e| used(&e.unwrap().path())).sum()),
        false => 0,
    };
    metadata.blocks() * 512 + below
}

/// Polls until `condition` holds; returns whether it did within a minute. That is several syncs, which may take seconds each.
fn becomes(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// A block that tells where and when it was written.
fn block(file: u64, round: u64) -> Vec<u8> {
    (0..(MIB / 8)).flat_map(|n| (file << 48 | round << 32 | n).to_le_bytes()).collect()
}

/// Writes files of 4 MiB until the disk is full and stays so; returns how many are whole and durable.
fn fill(root: &Path, name: &str) -> u64 {
    let (mut number, mut since) = (0, Instant::now());
    loop {
        let path = root.join(format!("{name}{number}"));
        let written = File::create(&path).and_then(|mut file| {
            (0..4).try_for_each(|round| file.write_all(&block(number, round)))?;
            file.sync_all()
        });
        match written {
            Ok(()) => (number, since) = (number + 1, Instant::now()),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
                if since.elapsed() > STAYS_FULL {
                    return number;
                }
                // The room of what was removed before may be on its way back.
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Removes what a full disk cut short; there may not have been room for the name either.
fn remove_unfinished(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
    }
}

const STAYS_FULL: Duration = Duration::from_secs(4);

fn check(root: &Path, name: &str, number: u64) {
    let bytes = fs::read(root.join(format!("{name}{number}"))).unwrap();
    let expected: Vec<u8> = (0..4).flat_map(|round| block(number, round)).collect();
    assert!(bytes == expected, "{name}{number} is not what was written");
}

/// Rewrites three of four pieces of 64 KiB of the large file, and of 40 files of 100 KiB a few, ten times: what is
/// never rewritten keeps segments that are mostly dead.
fn overwrite_in_pieces(root: &Path, file: &File) {
    for round in 0..10 {
        for n in (0..24 * 16).filter(|n| n % 4 != 0 && (n + round) % 2 == 0) {
            let expected = block(n / 16, 9);
            let start = (n % 16) as usize * PIECE;
            insist(|| file.write_all_at(&expected[start..start + PIECE], n * PIECE as u64));
        }
        insist(|| file.sync_all());
        for number in (round % 3..40).step_by(3) {
            insist(|| fs::write(root.join(format!("small{number}")), &block(number, 3)[..100_000]));
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Tries again while the disk is full: the room of what was overwritten comes back a moment later.
fn insist(mut write: impl FnMut() -> io::Result<()>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = write() {
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        assert!(Instant::now() < deadline, "no room comes back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn check_pieces(root: &Path) {
    for number in 0..40 {
        let bytes = fs::read(root.join(format!("small{number}"))).unwrap();
        assert!(bytes == block(number, 3)[..100_000], "small{number} is not what was written");
    }
}

const PIECE: usize = 64 << 10;

#[test]
fn a_full_disk_is_emptied_filled_and_overwritten() {
    exercise(128);
}

#[test]
fn a_disk_of_64_mib_remains_usable() {
    exercise(64);
}

fn exercise(disk_mib: u64) {
    let Some(scratch) = Scratch::new() else { return };
    let Some(disk) = Disk::new(&scratch, disk_mib) else { return };
    fs::remove_dir_all(scratch.volume()).unwrap();
    let volume = disk.dir.join("vol");
    volume::format(&volume, &volume::FormatOptions::default()).unwrap();
    std::os::unix::fs::symlink(&volume, scratch.volume()).unwrap();
    let a = scratch.mount("a");

    let first = fill(&a.root, "f");
    println!("{first} files of 4 MiB fill the disk: {} MiB used", used(&volume) / MIB);
    assert!(first * 4 > disk_mib / 2, "{first} files of 4 MiB fill a disk of {disk_mib} MiB");
    // Earlier data is safe, and removals and truncation work at once.
    File::open(a.path("f0")).unwrap().sync_all().unwrap();
    check(&a.root, "f", 0);
    remove_unfinished(&a.path(&format!("f{first}")));
    File::options().write(true).open(a.path("f1")).unwrap().set_len(MIB).unwrap();
    for number in 2..first {
        fs::remove_file(a.path(&format!("f{number}"))).unwrap();
    }
    assert!(becomes(|| used(&volume.join("segments")) < 24 * MIB), "{} MiB stay", used(&volume) / MIB);
    check(&a.root, "f", 0);
    assert_eq!(fs::read(a.path("f1")).unwrap(), block(1, 0));

    let second = fill(&a.root, "g");
    println!("{second} files fill it again");
    assert!(second + 4 >= first, "{first} files fitted, then {second}");
    check(&a.root, "g", second - 1);
    remove_unfinished(&a.path(&format!("g{second}")));
    for number in 0..second {
        fs::remove_file(a.path(&format!("g{number}"))).unwrap();
    }

    // Ten times over the same 24 MiB, in blocks, in an order that leaves no segment dead at once.
    assert!(becomes(|| used(&volume.join("segments")) < 24 * MIB), "{} MiB stay", used(&volume) / MIB);
    let file = File::options().create(true).truncate(false).write(true).open(a.path("over")).unwrap();
    let blocks = 24;
    for round in 0..10 {
        for n in 0..blocks {
            let at = (n * 7 + round) % blocks;
            insist(|| file.write_all_at(&block(at, round), at * MIB));
        }
        insist(|| file.sync_all());
    }
    let live = (blocks + 5) * MIB;
    let limit = live * 13 / 10 + 2 * MIB;
    let segments = volume.join("segments");
    let is_small = becomes(|| used(&segments) <= limit);
    println!(
        "live {} MiB, segments {} MiB, volume {} MiB",
        live / MIB,
        used(&segments) / MIB,
        used(&volume) / MIB
    );
    assert!(is_small, "{} MiB for {} MiB", used(&segments) / MIB, live / MIB);
    overwrite_in_pieces(&a.root, &file);
    let is_small = becomes(|| used(&segments) <= limit + 8 * MIB);
    let moved = a.stat("segment_cleaned_bytes_total");
    println!(
        "after small pieces: segments {} MiB, volume {} MiB; moved {} MiB",
        used(&segments) / MIB,
        used(&volume) / MIB,
        moved / MIB
    );
    assert!(moved > 0, "the cleaner moved nothing");
    assert!(is_small, "{} MiB for {} MiB", used(&segments) / MIB, live / MIB + 4);
    check_pieces(&a.root);
    drop(file);
    let expected: Vec<u8> = (0..blocks).flat_map(|at| block(at, 9)).collect();
    assert!(fs::read(a.path("over")).unwrap() == expected);
    a.unmount().unwrap();

    let a = scratch.mount("a");
    assert!(fs::read(a.path("over")).unwrap() == expected);
    check(&a.root, "f", 0);
    a.unmount().unwrap();
}

/// Goal: a file in many thousand pieces takes hardly more room than its bytes, however often it is overwritten, since what is copied for it is all
/// used. Method: 4 KiB at a time, all over the file, then a part of it again and again.
#[test]
fn a_file_in_many_pieces_is_cleaned_whole() {
    const BLOCKS: u64 = 16_384;
    const BLOCK: u64 = 4096;
    let Some(scratch) = Scratch::new() else { return };
    fs::remove_dir_all(scratch.volume()).unwrap();
    let options = volume::FormatOptions { segment_bytes: Some(4 * MIB), ..volume::FormatOptions::default() };
    volume::format(&scratch.volume(), &options).unwrap();
    let a = scratch.mount("a");
    let file = File::options().create(true).truncate(false).read(true).write(true).open(a.path("f")).unwrap();
    let mut rounds = vec![0u8; BLOCKS as usize];
    let mut random = 5u64;
    for round in 1..=7 {
        let mut since_sync = 0;
        for n in (0..BLOCKS).map(|i| (i * 7919 + u64::from(round)) % BLOCKS) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if round > 1 && random >> 60 > 4 {
                continue;
            }
            file.write_all_at(&[round; BLOCK as usize], n * BLOCK).unwrap();
            rounds[n as usize] = round;
            since_sync += 1;
            if since_sync % 64 == 0 {
                file.sync_data().unwrap();
            }
        }
        file.sync_all().unwrap();
    }
    let segments = scratch.volume().join("segments");
    let limit = BLOCKS * BLOCK * 13 / 10 + 8 * MIB;
    assert!(becomes(|| used(&segments) <= limit), "{} MiB stay", used(&segments) / MIB);
    println!("{} MiB, moved {} MiB", used(&segments) / MIB, a.stat("segment_cleaned_bytes_total") / MIB);
    let mut block = [0; BLOCK as usize];
    for (n, round) in rounds.iter().enumerate() {
        file.read_exact_at(&mut block, n as u64 * BLOCK).unwrap();
        assert!(block.iter().all(|byte| byte == round), "block {n}");
    }
    drop(file);
    a.unmount().unwrap();
}

/// Goal: a disk that others fill while a node has content in memory stops no other node, and who wrote what is lost
/// is told. Method: the disk is filled from outside between the writes on one mount and the reads on the other.
#[test]
fn a_disk_that_others_fill_costs_only_what_finds_no_room() {
    let Some(scratch) = Scratch::new() else { return };
    let Some(disk) = Disk::new(&scratch, 64) else { return };
    fs::remove_dir_all(scratch.volume()).unwrap();
    let volume = disk.dir.join("vol");
    volume::format(&volume, &volume::FormatOptions::default()).unwrap();
    std::os::unix::fs::symlink(&volume, scratch.volume()).unwrap();
    let options = node::MountOptions { commit: Duration::from_secs(30), ..node::MountOptions::default() };
    let a = scratch.mount_with("a", options).unwrap();
    let b = scratch.mount("b");

    let written: Vec<u8> = block(1, 1)[..800 << 10].to_vec();
    let files: Vec<File> = (0..12).map(|n| File::create(a.path(&format!("f{n}"))).unwrap()).collect();
    for file in &files {
        (0..10).for_each(|n| {
            file.write_all_at(&written[n * 80 << 10..(n + 1) * 80 << 10], (n as u64 * 80) << 10).unwrap()
        });
    }
    let filler = File::create(disk.dir.join("filler")).unwrap();
    let mut filled = 0;
    for step in [MIB, 64 << 10, 4 << 10] {
        let flags = rustix::fs::FallocateFlags::empty();
        while rustix::fs::fallocate(&filler, flags, filled, step).is_ok() {
            filled += step;
        }
    }
    let mut lost = Vec::new();
    for number in 0..files.len() {
        let began = Instant::now();
        let read = fs::read(b.path(&format!("f{number}"))).unwrap();
        assert!(began.elapsed() < Duration::from_secs(8), "f{number} took {:?}", began.elapsed());
        assert_eq!(read.len(), written.len());
        let is_kept = |(byte, kept): (&u8, &u8)| byte == kept || *byte == 0;
        assert!(read.iter().zip(&written).all(is_kept), "f{number} shows what nobody wrote");
        if read != written {
            lost.push(number);
        }
    }
    println!(
        "{} MiB filled from outside, {} of {} files lost content",
        filled / MIB,
        lost.len(),
        files.len()
    );
    assert!(!lost.is_empty(), "the disk was not full");
    assert!(lost.len() < files.len(), "what fitted the open segment is kept");
    assert!(a.stat("content_lost_bytes_total") > 0);
    for (number, file) in files.iter().enumerate() {
        let result = file.sync_all();
        assert_eq!(result.is_err(), lost.contains(&number), "f{number}: {result:?}");
        if let Err(error) = result {
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
            let again = file.write_all_at(&[1], 0).unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::StorageFull, "{again}");
        }
    }
    drop((files, filler));
    fs::remove_file(disk.dir.join("filler")).unwrap();
    insist(|| fs::write(a.path(&format!("f{}", lost[0])), &written));
    assert!(
        fs::read(b.path(&format!("f{}", lost[0]))).unwrap() == written,
        "once closed it can be written again"
    );
    let ended = a.unmount();
    assert!(matches!(ended, Err(node::NodeError::LostBefore { .. })), "{ended:?}");
    b.unmount().unwrap();
}
