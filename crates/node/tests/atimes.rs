//! Access times by mount option (docs/semantics.md, "Access times").
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use common::{Mounted, Scratch};
use node::{Atime, MountOptions};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

const NOATIME: i32 = 0o1_000_000;

fn atime(path: &Path) -> (i64, i64) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.atime(), found.atime_nsec())
}

/// Sets access and modification time to so many seconds before now.
fn set_age(path: &Path, atime: u64, mtime: u64) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let at = |age: u64| Timespec { tv_sec: (now - age) as i64, tv_nsec: 0 };
    let times = Timestamps { last_access: at(atime), last_modification: at(mtime) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn read(path: &Path) {
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"content");
}

fn mount(scratch: &Scratch, name: &str, options: MountOptions) -> Mounted {
    scratch.mount_with(name, options).expect("mounted")
}

fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn relatime_notes_the_first_read_after_a_change_and_no_other() {
    let Some(scratch) = Scratch::new() else { return };
    let a = scratch.mount("a");
    let (file, link, dir) = (a.path("f"), a.path("l"), a.path("d"));
    fs::write(&file, "content").unwrap();
    symlink("f", &link).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("x"), "content").unwrap();
    let before = [&file, &link, &dir].map(|path| atime(path));
    pause();
    read(&file);
    fs::read_link(&link).unwrap();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    let first = [&file, &link, &dir].map(|path| atime(path));
    for (before, first) in before.iter().zip(&first) {
        assert!(first > before, "{first:?} after {before:?}");
    }
    pause();
    read(&file);
    fs::read_link(&link).unwrap();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    assert_eq!([&file, &link, &dir].map(|path| atime(path)), first);
    // A change makes the next read count again.
    fs::write(&file, "content").unwrap();
    read(&file);
    assert!(atime(&file) > first[0]);
    // The other node is shown it with the record, and it is there after all have gone.
    let noted = [&file, &link, &dir].map(|path| atime(path));
    let b = scratch.mount("b");
    assert_eq!(["f", "l", "d"].map(|name| atime(&b.path(name))), noted);
    b.unmount().unwrap();
    a.unmount().unwrap();
    let a = scratch.mount("a");
    assert_eq!(["f", "l", "d"].map(|name| atime(&a.path(name))), noted);
}

#[test]
fn what_only_reads_changed_is_written_before_the_node_leaves() {
    let Some(scratch) = Scratch::new() else { return };
    let a = mount(&scratch, "a", MountOptions { lazytime: true, ..MountOptions::default() });
    fs::write(a.path("f"), "content").unwrap();
    let before = atime(&a.path("f"));
    a.unmount().unwrap();
    let a = mount(&scratch, "a", MountOptions { lazytime: true, ..MountOptions::default() });
    // Changed here, so that the directory is held in EX.
    fs::write(a.path("other"), "content").unwrap();
    pause();
    read(&a.path("f"));
    let noted = atime(&a.path("f"));
    assert!(noted > before);
    a.unmount().unwrap();
    let a = scratch.mount("a");
    assert_eq!(atime(&a.path("f")), noted);
}

#[test]
fn a_time_that_was_set_counts_on_all_nodes() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    fs::write(a.path("f"), "content").unwrap();
    pause();
    for mounted in [&a, &b] {
        read(&mounted.path("f"));
    }
    for (setter, age) in [(&a, 100_000), (&b, 50_000)] {
        set_age(&setter.path("f"), age, age + 5);
        let set = atime(&setter.path("f"));
        for mounted in [&a, &b] {
            assert_eq!(atime(&mounted.path("f")), set);
        }
    }
}

#[test]
fn an_access_time_older_than_a_day_is_renewed_by_a_read() {
    let Some(scratch) = Scratch::new() else { return };
    let a = scratch.mount("a");
    for (name, age, is_renewed) in [("old", 100_000, true), ("young", 80_000, false)] {
        let path = a.path(name);
        fs::write(&path, "content").unwrap();
        set_age(&path, age, 200_000);
        // The change of times is itself a change; a later one of the access time alone is not.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
        let set = atime(&path);
        assert!((set.0 - (now - age as i64)).abs() <= 2);
        let relative = fs::metadata(&path).unwrap().ctime() > set.0;
        read(&path);
        assert_eq!(atime(&path) > set, is_renewed || relative, "{name}");
    }
}

#[test]
fn noatime_and_nodiratime_leave_them_alone() {
    let Some(scratch) = Scratch::new() else { return };
    let none = MountOptions { atime: Atime::Never, ..MountOptions::default() };
    let no_dirs = MountOptions { diratime: false, ..MountOptions::default() };
    for (name, options, file_moves) in [("none", none, false), ("no-dirs", no_dirs, true)] {
        let a = mount(&scratch, name, options);
        let (file, dir) = (a.path(name), a.path(&format!("{name}-dir")));
        fs::write(&file, "content").unwrap();
        fs::create_dir(&dir).unwrap();
        let before = [&file, &dir].map(|path| atime(path));
        pause();
        read(&file);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        assert_eq!(atime(&file) > before[0], file_moves, "{name}");
        assert_eq!(atime(&dir), before[1], "{name}");
        a.unmount().unwrap();
    }
}

#[test]
fn strictatime_notes_the_first_read_of_each_open() {
    let Some(scratch) = Scratch::new() else { return };
    let a = mount(&scratch, "a", MountOptions { atime: Atime::Strict, ..MountOptions::default() });
    let path = a.path("f");
    fs::write(&path, "content").unwrap();
    let mut last = atime(&path);
    for _ in 0..3 {
        pause();
        read(&path);
        let now = atime(&path);
        assert!(now > last, "{now:?} after {last:?}");
        last = now;
    }
    pause();
    let mut file = OpenOptions::new().read(true).custom_flags(NOATIME).open(&path).unwrap();
    file.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(atime(&path), last, "O_NOATIME");
}

/// Reading asks for no right and says nothing to anybody.
#[test]
fn access_times_cost_no_message_and_no_token() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    fs::create_dir(a.path("d")).unwrap();
    for number in 0..100 {
        fs::write(a.path(&format!("d/f{number}")), "content").unwrap();
    }
    for mounted in [&a, &b] {
        for entry in fs::read_dir(mounted.path("d")).unwrap() {
            fs::symlink_metadata(entry.unwrap().path()).unwrap();
        }
    }
    let messages = || b.stat("messages_sent_total") + b.stat("messages_received_total");
    let revokes = || a.stat("tokens_revoked_total") + b.stat("tokens_revoked_total");
    let before = (messages(), revokes());
    for mounted in [&a, &b] {
        for number in 0..100 {
            let path = mounted.path(&format!("d/f{number}"));
            let old = atime(&path);
            read(&path);
            assert!(atime(&path) > old);
        }
    }
    assert_eq!(revokes(), before.1);
    // What keeps the lease may fall into the time.
    assert!(messages() - before.0 <= 2, "{} messages", messages() - before.0);
}
