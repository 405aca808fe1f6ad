//! What an administrator does with a volume besides mounting it: docs/operating/volumes.md, by command.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::Signal;

use crate::lab::{Lab, Mount, wait_until};

#[test]
fn a_mount_that_a_dead_node_left_is_replaced() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::write(a.path("f"), "content").expect("written");
    File::open(a.path("f")).and_then(|file| file.sync_all()).expect("synced");
    // One that hangs is not dead.
    b.signal(Signal::STOP);
    let refused = lab.holdfast(&["mount", "vol", "b"]);
    assert!(refused.code == 32 && refused.err.contains("busy: volume"), "{}", refused.err);
    b.signal(Signal::CONT);
    for dead in [b, a] {
        let name = dead.root.file_name().and_then(|name| name.to_str()).expect("utf-8").to_owned();
        dead.signal(Signal::KILL);
        assert!(dead.wait_for_end(Duration::from_secs(10)), "it was killed");
        std::mem::forget(dead);
        let left = lab.path(&name);
        wait_until("the kernel to say so", || {
            rustix::fs::statfs(&left).is_err_and(|error| error == Errno::NOTCONN)
        });
        let problems = lab.status()["problems"].to_string();
        assert!(problems.contains(&format!("/{name}: its node is dead")), "{problems}");
        let mounted = lab.holdfast(&["mount", "vol", &name]).expect_success();
        assert_eq!(lab.status()["problems"], serde_json::json!([]));
        assert!(mounted.err.contains("a node that is dead: unmounted"), "{}", mounted.err);
        assert_eq!(fs::read_to_string(left.join("f")).expect("read"), "content");
        lab.holdfast(&["umount", &name]).expect_success();
        // Nothing lies beneath.
        assert_eq!(lab.holdfast(&["umount", &name]).code, 32);
    }
}

/// Goal: what commands say of mounts is true whatever else is mounted, and however. Method: the doctor beside a mount whose name is not UTF-8, and of a node that
/// was killed; `umount` of what has another mount in it; `status` of a mount point.
#[test]
fn commands_tell_what_is_the_matter_with_a_mount() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let script =
        "x=$(printf 'x\\377') && mkdir $x && mount -t tmpfs t $x && exec $0 doctor --passive --json a";
    let holdfast = env!("CARGO_BIN_EXE_holdfast");
    let examined = lab.sh(&format!("unshare -m sh -euc \"{}\" {holdfast}", script.replace('$', "\\$")));
    assert!(examined.out.contains("\"type\":\"fuse.holdfast\""), "{}{}", examined.out, examined.err);
    assert_eq!(lab.holdfast(&["status", "a"]).expect_success().out.lines().count(), {
        lab.holdfast(&["status", "vol"]).expect_success().out.lines().count()
    });

    fs::create_dir(a.path("d")).expect("made");
    lab.sh("mount -t tmpfs t a/d").expect_success();
    let refused = lab.holdfast(&["umount", "a"]);
    assert!(refused.code == 32 && refused.err.contains("/a/d is mounted in it"), "{}", refused.err);
    lab.sh("umount a/d").expect_success();

    b.signal(Signal::KILL);
    assert!(b.wait_for_end(Duration::from_secs(10)), "it was killed");
    wait_until("the kernel to say so", || {
        rustix::fs::statfs(&b.root).is_err_and(|error| error == Errno::NOTCONN)
    });
    let examined = lab.holdfast(&["doctor", "--passive", "b"]);
    assert!(examined.code == 3 && examined.err.contains("its server is gone"), "{}", examined.err);
    drop(b);
    a.unmount(&lab);
}

/// Goal: a copy is checked beside the original. Method: copies made while that is mounted, and nobody writes; the original is refused.
#[test]
fn a_copy_is_checked_while_the_original_is_mounted() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::write(a.path("f"), "content").expect("written");
    File::open(a.path("f")).and_then(|file| file.sync_all()).expect("synced");
    lab.sh("tar -C vol --exclude=./run -cf copy.tar . && mkdir copy && tar -C copy -xf copy.tar")
        .expect_success();
    for command in ["fsck", "scrub"] {
        lab.holdfast(&[command, "copy"]).expect_success();
    }
    assert!(lab.holdfast(&["dump", "copy"]).expect_success().out.starts_with("holdfast-dump"));
    let refused = lab.holdfast(&["fsck", "--repair", "vol"]);
    assert!(refused.code == 8 && refused.err.contains("mounted"), "{}", refused.err);
    a.signal(Signal::KILL);
    assert!(a.wait_for_end(Duration::from_secs(10)), "it was killed");
    let refused = lab.holdfast(&["fsck", "--repair", "vol"]);
    assert!(refused.code == 8 && refused.err.contains("mounted"), "{}", refused.err);
    b.unmount(&lab);
}

#[test]
fn a_copy_without_sockets_and_reserve_is_a_volume() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    let content = vec![7; 300_000];
    fs::write(a.path("f"), &content).expect("written");
    a.unmount(&lab);
    let reserve = fs::metadata(lab.path("vol/reserve")).expect("there").len();
    lab.sh("tar -C vol --exclude=./run --exclude=./reserve -cf copy.tar . && rm -r vol && mkdir vol && tar -C vol -xf copy.tar")
        .expect_success();
    lab.holdfast(&["fsck", "--data", "vol"]).expect_success();
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    assert!(fs::read(b.path("f")).expect("read") == content);
    wait_until("the reserve to be taken again", || {
        fs::metadata(lab.path("vol/reserve")).expect("there").len() == reserve
    });
    b.unmount(&lab);
    a.unmount(&lab);
}

/// A file system of its own on a loop device at `disk`, until it is dropped.
struct Disk<'a>(&'a Lab);

impl<'a> Disk<'a> {
    fn new(lab: &'a Lab, make: &str) -> Option<Self> {
        let made = lab.sh(&format!(
            "truncate -s 512M disk.img && {make} disk.img && mkdir disk && mount -o loop disk.img disk"
        ));
        if made.code != 0 {
            println!("SKIPPED: no loop device with {make} can be had: {}", made.err);
            return None;
        }
        Some(Self(lab))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        for at in ["view", "disk"] {
            _ = rustix::mount::unmount(self.0.path(at), UnmountFlags::DETACH);
        }
    }
}

/// Goal: a volume of which there is only a read-only copy is checked, read and dumped all the same. Method: the overlay of
/// which the error speaks.
#[test]
fn a_volume_on_a_read_only_disk_is_opened_through_an_overlay() {
    let Some(lab) = Lab::without_volume() else { return };
    let Some(_disk) = Disk::new(&lab, "mkfs.ext4 -q -m 0") else { return };
    lab.holdfast(&["format", "disk/vol"]).expect_success();
    std::os::unix::fs::symlink("disk/vol", lab.path("vol")).expect("linked");
    let a = lab.mount("a");
    let content = vec![7; 300_000];
    fs::write(a.path("f"), &content).expect("written");
    a.unmount(&lab);
    lab.sh("mount -o remount,ro disk").expect_success();
    for (command, code) in [("fsck", 8), ("scrub", 8), ("dump", 2)] {
        let refused = lab.holdfast(&[command, "vol"]);
        let says_how = refused.err.contains("read-only file system") && refused.err.contains("-t overlay");
        assert!(refused.code == code && says_how, "{command}: {} {}", refused.code, refused.err);
    }
    let overlay = "mkdir upper work view && mount -t overlay overlay -o lowerdir=disk/vol,upperdir=upper,workdir=work view";
    lab.sh(overlay).expect_success();
    lab.holdfast(&["fsck", "--data", "view"]).expect_success();
    lab.holdfast(&["scrub", "view"]).expect_success();
    let dump = lab.holdfast(&["dump", "view"]).expect_success().out;
    assert!(dump.starts_with("holdfast-dump 1"));
    lab.holdfast(&["mount", "view", "a"]).expect_success();
    assert!(fs::read(lab.path("a/f")).expect("read") == content);
    fs::write(lab.path("a/new"), "goes to the overlay").expect("written");
    lab.holdfast(&["umount", "a"]).expect_success();
}

/// Goal: what was synced before a snapshot of the disk below is in it, and nothing is damaged. Method: Btrfs takes five while
/// two nodes write and sync files.
#[test]
fn a_snapshot_of_the_disk_below_is_a_volume() {
    let Some(lab) = Lab::without_volume() else { return };
    let Some(_disk) = Disk::new(&lab, "mkfs.btrfs -q") else { return };
    lab.sh("btrfs -q subvolume create disk/vol || btrfs subvolume create disk/vol").expect_success();
    lab.holdfast(&["format", "disk/vol"]).expect_success();
    std::os::unix::fs::symlink("disk/vol", lab.path("vol")).expect("linked");
    let mounts = [lab.mount("a"), lab.mount("b")];
    let is_over = AtomicBool::new(false);
    let synced = [AtomicU32::new(0), AtomicU32::new(0)];
    let mut held = Vec::new();
    std::thread::scope(|scope| {
        for (node, mount) in mounts.iter().enumerate() {
            let (is_over, synced) = (&is_over, &synced[node]);
            scope.spawn(move || {
                for n in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut file = File::create(mount.path(&format!("n{node}-{n}"))).expect("made");
                    file.write_all(&content(n)).and_then(|()| file.sync_all()).expect("synced");
                    synced.store(n + 1, Ordering::Release);
                }
            });
        }
        for number in 0..5 {
            std::thread::sleep(Duration::from_millis(300));
            held.push([0, 1].map(|node: usize| synced[node].load(Ordering::Acquire)));
            lab.sh(&format!("btrfs subvolume snapshot disk/vol disk/snap{number}")).expect_success();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    mounts.into_iter().for_each(|mount| mount.unmount(&lab));
    for (number, counts) in held.into_iter().enumerate() {
        let snapshot = format!("disk/snap{number}");
        lab.holdfast(&["mount", &snapshot, "a"]).expect_success();
        for (node, count) in counts.into_iter().enumerate() {
            assert!(count > 0, "node {node} has synced nothing before snapshot {number}");
            for n in 0..count {
                let stored = fs::read(lab.path(&format!("a/n{node}-{n}")));
                assert!(stored.is_ok_and(|stored| stored == content(n)), "n{node}-{n} in snapshot {number}");
            }
        }
        lab.holdfast(&["umount", "a"]).expect_success();
        lab.holdfast(&["fsck", "--data", &snapshot]).expect_success();
    }
}

/// Of all sizes around that of a block, small enough for the record and too large for it.
fn content(n: u32) -> Vec<u8> {
    (0..n % 50 * 701).map(|at| (at ^ n) as u8).collect()
}

/// Goal: damage of the metadata costs what is in it, and neither checks nor work beside it make that more. Method: a byte of a table is
/// changed; scrubs, and mounts that write, until a compaction has met it, by what `status` says; and on.
#[test]
fn a_damaged_table_costs_what_is_in_it_however_long_it_is_worked_beside() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    for dir in DIRECTORIES {
        fs::create_dir(a.path(dir)).expect("made");
        (0..300).for_each(|n| fs::write(a.path(&format!("{dir}/name-{n}")), "content").expect("written"));
    }
    a.unmount(&lab);
    damage_largest_table(&lab);
    let listed = |mount: &Mount| {
        let lists_all =
            |dir: &&str| fs::read_dir(mount.path(dir)).is_ok_and(|dir| dir.flatten().count() >= 300);
        DIRECTORIES.into_iter().filter(lists_all).collect::<Vec<_>>()
    };
    let a = lab.mount("a");
    let whole = listed(&a);
    assert!((3..6).contains(&whole.len()), "{whole:?} can be listed");
    a.unmount(&lab);
    for _ in 0..6 {
        assert_eq!(lab.holdfast(&["scrub", "vol"]).code, 4);
    }
    let mut rounds = 0;
    let is_met = || lab.status()["problems"].to_string().contains("tables/");
    for round in 0..60 {
        let a = lab.mount("a");
        assert_eq!(listed(&a), whole, "round {round}");
        fs::write(a.path(&format!("{}/round-{round}", whole[0])), "content").expect("written");
        a.unmount(&lab);
        rounds += 1;
        if round >= 8 && is_met() {
            break;
        }
    }
    assert!(is_met(), "no compaction in {rounds} rounds");
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    for n in 0..2000 {
        fs::write(a.path(&format!("{}/more-{n}", whole[0])), "content").expect("written");
    }
    assert_eq!(fs::read_dir(b.path(whole[0])).expect("listed").count(), 300 + rounds + 2000);
    assert_eq!(listed(&b), whole);
    b.unmount(&lab);
    a.unmount(&lab);
    let a = lab.mount("a");
    assert_eq!(fs::read_dir(a.path(whole[0])).expect("listed").count(), 300 + rounds + 2000);
    a.unmount(&lab);
}

const DIRECTORIES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn damage_largest_table(lab: &Lab) {
    let tables = fs::read_dir(lab.path("vol/meta/engine/keyspaces/1/tables")).expect("listed").flatten();
    let len = |entry: &fs::DirEntry| entry.metadata().map_or(0, |metadata| metadata.len());
    let largest = tables.max_by_key(len).expect("a table");
    let file = File::options().read(true).write(true).open(largest.path()).expect("opened");
    let (mut byte, at) = ([0], len(&largest) / 3);
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 1], at).expect("written");
}
