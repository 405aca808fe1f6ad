//! Disks that are full, read-only, damaged or gone: the operation that is hit says so, and the rest goes on.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::lab::{BINARY, Lab, Mount, PYTHON, wait_until};

/// A small file system on a loop device, at `disk`; unmounted on drop.
struct Disk(PathBuf);

impl Disk {
    fn new(lab: &Lab) -> Option<Self> {
        Self::with(lab, "")
    }

    /// With more for mkfs(8).
    fn with(lab: &Lab, options: &str) -> Option<Self> {
        let made = lab.sh(&format!(
            "truncate -s 128M disk.img && mkfs.ext4 -q -m 0 {options} disk.img && mkdir disk && mount -o loop disk.img disk",
        ));
        if made.code != 0 {
            println!("SKIPPED: no loop device with ext4 can be had: {}", made.err);
            return None;
        }
        lab.holdfast(&["format", "disk/vol"]).expect_success();
        std::os::unix::fs::symlink("disk/vol", lab.path("vol")).expect("linked");
        Some(Self(lab.path("disk")))
    }

    /// Ends all access to the disk as if it were unplugged: EXT4_IOC_SHUTDOWN without a last flush.
    fn unplug(&self, lab: &Lab) {
        let script = "import fcntl, os, struct\n\
            fcntl.ioctl(os.open('disk', os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";
        lab.run(PYTHON, &["-c", script]).expect_success();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_refuses_what_makes_something_and_nothing_else() {
    let Some(lab) = Lab::without_volume() else { return };
    let Some(_disk) = Disk::new(&lab) else { return };
    let a = lab.mount("a");
    for n in 0..200 {
        fs::write(a.path(&format!("f{n}")), "content").expect("written");
    }
    a.unmount(&lab);
    lab.sh("dd if=/dev/zero of=disk/filler bs=1M status=none 2>&1 || true").expect_success();
    // A full disk is mounted, read, and emptied.
    let a = lab.mount("a");
    assert_eq!(fs::read_to_string(a.path("f7")).expect("read"), "content");
    for made in [fs::write(a.path("new"), "x"), fs::create_dir(a.path("dir"))] {
        assert_eq!(made.expect_err("no room").kind(), ErrorKind::StorageFull);
    }
    for n in 0..100 {
        fs::remove_file(a.path(&format!("f{n}"))).expect("removed");
    }
    fs::rename(a.path("f150"), a.path("renamed")).expect("renamed");
    a.unmount(&lab);
    fs::remove_file(lab.path("disk/filler")).expect("removed");
    let a = lab.mount("a");
    assert_eq!(fs::read_dir(&a.root).expect("listed").count(), 100);
    fs::write(a.path("new"), "there is room again").expect("written");
    a.unmount(&lab);
}

/// Goal: whoever unmounts hears of what was lost before, however long ago. Method: a file that found no room is read on another node.
#[test]
fn an_unmount_tells_what_was_lost_before() {
    let Some(lab) = Lab::without_volume() else { return };
    let Some(_disk) = Disk::new(&lab) else { return };
    let (a, b) = (lab.mount_with("a", "commit=300"), lab.mount_with("b", "commit=300"));
    let content = content();
    let open = in_memory(&a, &content);
    fill(&lab);
    let is_lost = |n: usize| fs::read(b.path(&format!("f{n}"))).expect("read") != content;
    assert!((0..open.len()).any(is_lost), "the disk is full");
    lab.sh("rm disk/filler").expect_success();
    drop(open);
    let ended = lab.holdfast(&["umount", "a"]);
    assert!(
        ended.code == 1 && ended.err.contains("lost while it was mounted: "),
        "{}: {}",
        ended.code,
        ended.err
    );
    b.unmount(&lab);
}

fn content() -> Vec<u8> {
    (0..200_000u32).flat_map(u32::to_le_bytes).collect()
}

/// Files whose content stays in memory until they are closed.
fn in_memory(a: &Mount, content: &[u8]) -> Vec<File> {
    let make = |n| {
        let mut file = File::create(a.path(&format!("f{n}"))).expect("made");
        content.chunks(40_000).for_each(|piece| file.write_all(piece).expect("there is room"));
        file
    };
    (0..20).map(make).collect()
}

/// Leaves no room for the content of a file, in one call: the master releases its reserve when it sees a full disk, and a program that still filled it would
/// take that too.
fn fill(lab: &Lab) {
    let space = rustix::fs::statvfs(lab.path("disk")).expect("examined");
    let filler = File::create(lab.path("disk/filler")).expect("made");
    let bytes = (space.f_bavail * space.f_frsize).saturating_sub(LEFT_BYTES);
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, bytes).expect("filled");
}

/// Of a disk that is filled: room for what the file system below notes, not for a file.
const LEFT_BYTES: u64 = 512 << 10;

/// Goal: where others have taken all room, the reserve's too, and nobody can be master, `status` says why, and the nodes go on when there is room.
/// Method: the master is killed on such a disk, and a file is changed, since the metadata may have room for a little.
#[test]
fn a_disk_that_is_too_full_for_a_master_is_named() {
    let Some(lab) = Lab::without_volume() else { return };
    let Some(_disk) = Disk::new(&lab) else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::write(a.path("f"), "content").expect("written");
    assert_eq!(fs::read_to_string(b.path("f")).expect("read"), "content");
    wait_until("a full disk without a reserve", || {
        lab.sh("dd if=/dev/zero bs=1k status=none >> disk/filler; sync disk/filler");
        fs::metadata(lab.path("disk/vol/reserve")).is_ok_and(|reserve| reserve.len() == 0)
    });
    a.signal(Signal::KILL);
    let mut changes = lab.command("sh");
    let script = "while touch b/f 2>/dev/null; do sleep 0.05; done";
    let mut changes = changes.args(["-c", script]).spawn().expect("it starts");
    wait_until("a word about it", || {
        lab.sh("dd if=/dev/zero bs=1k status=none >> disk/filler");
        let problems = lab.status()["problems"].to_string();
        problems.contains("between masters: no master yet: ") && problems.contains("No space left")
    });
    lab.sh("rm disk/filler").expect_success();
    assert_eq!(fs::read_to_string(b.path("f")).expect("read"), "content");
    changes.kill().expect("ended");
    changes.wait().expect("ended");
    fs::write(b.path("g"), "more").expect("written");
    b.unmount(&lab);
}

/// Goal: who unmounts when others have filled the disk is told to make room, and nothing is lost when they do. Method: room goes
/// after the content was taken in, and comes back while umount waits.
#[test]
fn an_unmount_on_a_full_disk_waits_for_room() {
    let Some(lab) = Lab::without_volume() else { return };
    let Some(_disk) = Disk::new(&lab) else { return };
    let a = lab.mount_with("a", "commit=300");
    let content = content();
    let open = in_memory(&a, &content);
    fill(&lab);
    drop(open);
    let mut umount =
        lab.command(BINARY).args(["umount", "a"]).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(umount.stderr.take().expect("piped")).lines();
    // It asks the node now and then; one that ends without a word ends this, too.
    let told =
        lines.by_ref().map_while(Result::ok).find(|line| line.contains("disk full, make room: content of "));
    std::thread::sleep(Duration::from_secs(1));
    let waits = a.is_alive();
    lab.sh("rm disk/filler").expect_success();
    let status = umount.wait().expect("it ends");
    assert!(waits && status.success() && told.is_some(), "{waits} {status} {told:?}");
    drop(a);
    let a = lab.mount("a");
    for n in 0..20 {
        assert!(fs::read(a.path(&format!("f{n}"))).expect("read") == content, "f{n}");
    }
    a.unmount(&lab);
}

#[test]
fn a_read_only_disk_is_named_and_left_alone() {
    let Some(lab) = Lab::without_volume() else { return };
    let Some(_disk) = Disk::new(&lab) else { return };
    lab.mount("a").unmount(&lab);
    lab.sh("mount -o remount,ro disk").expect_success();
    for options in ["rw", "ro"] {
        let ended = lab.holdfast(&["mount", "vol", "a", "-o", options]);
        assert_eq!(ended.code, 32);
        let said = format!("{}/disk/vol/master.lock: the volume lies on a read-only", lab.dir.display());
        assert!(ended.err.contains(&said), "{}", ended.err);
    }
    let ended = lab.holdfast(&["format", "disk/two"]);
    assert!(ended.code == 1 && ended.err.contains("disk/two: cannot create"), "{}", ended.err);
    lab.holdfast(&["status", "vol"]).expect_success();
    lab.sh("mount -o remount,rw disk").expect_success();
    lab.mount("a").unmount(&lab);
}

/// Goal: no process waits for ever for a disk that is gone, what could not be stored is reported, and other volumes
/// are not disturbed. Method: the file system below the volume is shut down under two nodes.
#[test]
fn a_disk_that_is_gone_gives_errors_and_no_hang() {
    let Some(lab) = Lab::without_volume() else { return };
    let Some(disk) = Disk::new(&lab) else { return };
    lab.holdfast(&["format", "elsewhere"]).expect_success();
    fs::create_dir(lab.path("c")).expect("made");
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    lab.holdfast(&["mount", "elsewhere", "c"]).expect_success();
    let c = Mount::of(&lab, "elsewhere", "c");
    let mut synced = File::create(a.path("synced")).expect("made");
    synced.write_all(&vec![7; 1 << 20]).expect("written");
    synced.sync_all().expect("synced");
    let mut file = File::create(a.path("unsynced")).expect("made");
    disk.unplug(&lab);
    let since = Instant::now();
    let stored = file.write_all(&vec![8; 1 << 20]).and_then(|()| file.sync_all());
    assert!(stored.is_err(), "it was not stored");
    drop((file, synced));
    // Until the nodes have given up, requests wait; then they are answered, with errors.
    let made = fs::write(b.path("of-b"), "x").and_then(|()| File::open(b.path("of-b"))?.sync_all());
    assert!(made.is_err(), "it was not stored");
    assert!(since.elapsed() < Duration::from_secs(60), "took {:?}", since.elapsed());
    fs::write(c.path("f"), "undisturbed").expect("another volume");
    assert_eq!(fs::read_to_string(c.path("f")).expect("read"), "undisturbed");
    for mount in ["a", "b"] {
        let ended = lab.holdfast(&["umount", mount]);
        assert!(matches!(ended.code, 1 | 2), "{}: {}", ended.code, ended.err);
        assert!(ended.err.contains("unmounted, but"), "{}", ended.err);
    }
    c.unmount(&lab);
    drop((a, b, disk));
    // Back again: what was synced is there.
    lab.sh("mount -o loop disk.img disk").expect_success();
    let _disk = Disk(lab.path("disk"));
    let a = lab.mount("a");
    assert!(fs::read(a.path("synced")).expect("read") == vec![7; 1 << 20]);
    a.unmount(&lab);
}

#[test]
fn a_damaged_block_is_an_error_of_its_file_alone() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    fs::write(a.path("good"), vec![1; 1 << 20]).expect("written");
    fs::write(a.path("bad"), b"needle in a haystack".repeat(50_000)).expect("written");
    a.unmount(&lab);
    let segments = fs::read_dir(lab.path("vol/segments")).expect("listed");
    let mut flipped = 0;
    for path in segments.map(|entry| entry.expect("listed").path()).filter(|path| path.is_file()) {
        let mut bytes = fs::read(&path).expect("read");
        if let Some(at) = bytes.windows(20).position(|part| part == b"needle in a haystack") {
            bytes[at + 5] ^= 1;
            fs::write(&path, bytes).expect("written");
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1, "one segment has it");
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    for mount in [&a, &b] {
        let error = fs::read(mount.path("bad")).expect_err("damaged");
        assert_eq!(error.raw_os_error(), Some(5), "EIO");
        assert!(fs::read(mount.path("good")).expect("read") == vec![1; 1 << 20]);
        fs::write(mount.path("new"), "goes on").expect("written");
    }
    b.unmount(&lab);
    a.unmount(&lab);
}

#[test]
fn what_cannot_be_mounted_is_named_with_the_reason() {
    let Some(lab) = Lab::new() else { return };
    fs::create_dir(lab.path("mnt")).expect("made");
    let refused = |volume: &str, part: &str| {
        let ended = lab.holdfast(&["mount", volume, "mnt"]);
        assert!(ended.code == 32 && ended.err.contains(part), "{}: {}", ended.code, ended.err);
        assert!(ended.err.contains(volume), "{} names {volume}", ended.err);
    };
    // A later version of the format, with a right checksum.
    lab.holdfast(&["format", "later"]).expect_success();
    let mut header = fs::read(lab.path("later/holdfast.volume")).expect("read");
    header[8] = 99;
    let sum = crc32c::crc32c(&header[..124]);
    header[124..128].copy_from_slice(&sum.to_le_bytes());
    fs::write(lab.path("later/holdfast.volume"), header).expect("written");
    refused("later", "version 99");
    // Metadata that are not ours.
    lab.holdfast(&["format", "foreign"]).expect_success();
    lab.holdfast(&["mount", "foreign", "mnt"]).expect_success();
    lab.holdfast(&["umount", "mnt"]).expect_success();
    for entry in fs::read_dir(lab.path("foreign/meta/engine")).expect("listed") {
        let path = entry.expect("listed").path();
        if path.is_file() {
            fs::write(path, "not a database").expect("written");
        }
    }
    refused("foreign", "metadata");
    assert_eq!(fs::read_dir(lab.path("mnt")).expect("listed").count(), 0, "nothing is left mounted");

    // A mount point that is not empty is covered and comes back, as with any mount.
    fs::write(lab.path("mnt/below"), "hidden").expect("written");
    lab.holdfast(&["mount", "vol", "mnt"]).expect_success();
    assert!(!lab.path("mnt/below").exists());
    let ended = lab.holdfast(&["mount", "vol", "mnt"]);
    assert!(ended.code == 32 && ended.err.contains("busy: volume"), "{}", ended.err);
    lab.holdfast(&["umount", "mnt"]).expect_success();
    assert_eq!(fs::read_to_string(lab.path("mnt/below")).expect("read"), "hidden");
}

/// Goal: on a disk without inodes the volume is full, and nothing else happens: what needs none goes on, no node ends, and with inodes again all is as before. Method: files beside the
/// volume take all inodes; then small files are made in it and synced, until that is refused and for a while after, while another node reads and removes.
#[test]
fn a_disk_without_inodes_is_a_full_one() {
    let Some(lab) = Lab::without_volume() else { return };
    let Some(_disk) = Disk::with(&lab, "-N 400") else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let keep = |mount: &Mount, name: &str| -> std::io::Result<()> {
        let mut file = File::create_new(mount.path(name))?;
        file.write_all(&[7; 3_500])?;
        file.sync_all()
    };
    (0..50).for_each(|n| keep(&a, &format!("before{n}")).expect("there is room"));
    lab.sh("mkdir disk/fill; n=0; while touch disk/fill/$n 2>/dev/null; do n=$((n+1)); done")
        .expect_success();
    let (mut refused, mut slowest) = (0, Duration::ZERO);
    for n in 0..1_500 {
        let begun = Instant::now();
        match keep(if n % 2 == 0 { &a } else { &b }, &format!("after{n}")) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                refused += 1;
            }
        }
        slowest = slowest.max(begun.elapsed());
        if refused > 200 {
            break;
        }
    }
    assert!(refused > 200 && slowest < Duration::from_secs(5), "{refused} refused, {slowest:?} at most");
    assert_eq!(fs::read(b.path("before7")).expect("read"), [7; 3_500]);
    fs::remove_file(b.path("before8")).expect("removed");
    fs::remove_dir_all(lab.path("disk/fill")).expect("there are inodes again");
    let since = Instant::now();
    while let Err(error) = keep(&b, &format!("again{}", since.elapsed().as_micros())) {
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        assert!(since.elapsed() < Duration::from_secs(20), "there is room");
        std::thread::sleep(Duration::from_millis(50));
    }
    for mount in [b, a] {
        mount.unmount(&lab);
    }
    lab.holdfast(&["fsck", "--data", "vol"]).expect_success();
}
