//! What is removed and still looked at, by descriptors of which the file system is not told.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::lab::{Lab, Mount};

/// Goal: a FIFO, a path held open, and a directory that somebody stands in can be looked at when their names are gone, as on a local
/// file system; nobody finds them again. Method: each is opened on one mount, and removed there or on the other.
#[test]
fn what_is_gone_can_be_looked_at_until_it_is_closed() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    for (round, remover) in [&a, &b].into_iter().enumerate() {
        for mount in [&a, &b] {
            fs::read_dir(&mount.root).expect("listed").count();
        }
        let at = |name: &str| a.path(&format!("{name}{round}"));
        lab.sh(&format!("mkfifo {}", at("fifo").display())).expect_success();
        fs::write(at("file"), [7; 100_000]).expect("written");
        fs::create_dir(at("dir")).expect("made");
        let opened = |flags: OFlags, name: &str| -> File {
            rustix::fs::open(at(name), flags | OFlags::CLOEXEC, Mode::empty()).expect(name).into()
        };
        let fifo = File::options().read(true).write(true).open(at("fifo")).expect("opened");
        let held = [
            ("fifo", fifo),
            ("file", opened(OFlags::PATH, "file")),
            ("dir", opened(OFlags::RDONLY | OFlags::DIRECTORY, "dir")),
        ];
        let before = held.each_ref().map(|(name, file)| file.metadata().expect(name));
        let gone = |name: &str| remover.path(&format!("{name}{round}"));
        fs::remove_file(gone("fifo")).expect("removed");
        fs::remove_file(gone("file")).expect("removed");
        fs::remove_dir(gone("dir")).expect("removed");
        for ((name, file), before) in held.iter().zip(before) {
            let after = file.metadata().unwrap_or_else(|error| panic!("round {round}, {name}: {error}"));
            assert_eq!(
                (after.ino(), after.mode(), after.nlink()),
                (before.ino(), before.mode(), 0),
                "{name}"
            );
            let written = |of: &fs::Metadata| (of.len(), of.blocks(), of.modified().expect("known"));
            if *name == "file" {
                assert_eq!(written(&after), written(&before), "round {round}");
            }
            for mount in [&a, &b] {
                let looked = fs::symlink_metadata(mount.path(&format!("{name}{round}")));
                assert_eq!(looked.expect_err("gone").kind(), ErrorKind::NotFound, "{name}");
            }
        }
        assert!(held[0].1.metadata().expect("there").file_type().is_fifo());
    }
    for mount in [a, b] {
        mount.unmount(&lab);
    }
}

/// Goal: a descriptor of what is gone takes a mode, an owner, times and extended attributes and tells of them, as on a local file system. Method: a directory and a
/// FIFO are opened on one mount, and removed there or on the other; then the same through the path of a descriptor that only names a link or a file.
#[test]
fn what_is_gone_can_be_changed_until_it_is_closed() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    for (round, remover) in [&a, &b].into_iter().enumerate() {
        let at = |name: &str| a.path(&format!("{name}{round}"));
        lab.sh(&format!("mkfifo {}", at("fifo").display())).expect_success();
        fs::create_dir(at("dir")).expect("made");
        std::os::unix::fs::symlink("target", at("link")).expect("made");
        fs::write(at("file"), "bytes").expect("written");
        for name in ["fifo", "dir", "file"] {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(at(name), "trusted.before", b"1", flags).expect("set");
            fs::symlink_metadata(b.path(&format!("{name}{round}"))).expect("seen");
        }
        let opened = |flags: OFlags, name: &str| {
            rustix::fs::open(at(name), flags | OFlags::CLOEXEC, Mode::empty()).expect(name)
        };
        let named = OFlags::PATH | OFlags::NOFOLLOW;
        let (fifo, dir) = (opened(OFlags::RDWR, "fifo"), opened(OFlags::DIRECTORY, "dir"));
        let (link, file) = (opened(named, "link"), opened(named, "file"));
        for name in ["fifo", "link", "file"] {
            fs::remove_file(remover.path(&format!("{name}{round}"))).expect("removed");
        }
        fs::remove_dir(remover.path(&format!("dir{round}"))).expect("removed");
        for (name, held) in [("fifo", &fifo), ("dir", &dir), ("file", &file)] {
            let path = format!("/proc/self/fd/{}", held.as_raw_fd());
            let told = |what: &str| format!("round {round}, {name}: {what}");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect(&told("mode"));
            std::os::unix::fs::chown(&path, Some(7), Some(8)).expect(&told("owner"));
            let time = std::time::UNIX_EPOCH + Duration::from_secs(9);
            let times = rustix::fs::Timestamps {
                last_access: rustix::fs::Timespec { tv_sec: 9, tv_nsec: 0 },
                last_modification: rustix::fs::Timespec { tv_sec: 9, tv_nsec: 0 },
            };
            rustix::fs::utimensat(rustix::fs::CWD, &path, &times, AtFlags::empty()).expect(&told("times"));
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, "trusted.large", &[7; 5000], flags).expect(&told("attribute"));
            rustix::fs::removexattr(&path, "trusted.before").expect(&told("removed"));
            let mut value = vec![0; 6000];
            assert_eq!(rustix::fs::getxattr(&path, "trusted.large", &mut value[..]), Ok(5000), "{name}");
            let missing = rustix::fs::getxattr(&path, "trusted.before", &mut value[..]);
            assert_eq!(missing, Err(rustix::io::Errno::NODATA), "{name}");
            assert_eq!(rustix::fs::listxattr(&path, &mut value[..]), Ok("trusted.large".len() + 1), "{name}");
            let after = fs::metadata(&path).expect(name);
            assert_eq!(
                (after.mode() & 0o7777, after.uid(), after.gid(), after.nlink()),
                (0o640, 7, 8, 0),
                "{name}"
            );
            assert_eq!(after.modified().expect("known"), time, "{name}");
        }
        assert_eq!(rustix::fs::readlinkat(&link, "", Vec::new()).expect("read").as_bytes(), b"target");
    }
    for mount in [a, b] {
        mount.unmount(&lab);
    }
}

/// Goal: of a directory that is gone, and had more extended attributes than its record holds, none is said to be missing that was there. Method: it is
/// opened on one mount and removed by way of the other, while what it has is known to none of the mounts' answers.
#[test]
fn attributes_too_many_to_be_remembered_are_not_said_to_be_missing() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::create_dir(b.path("dir")).expect("made");
    let (none, replace) = (rustix::fs::XattrFlags::empty(), rustix::fs::XattrFlags::REPLACE);
    rustix::fs::setxattr(b.path("dir"), "user.large", &[7; 3000], none).expect("set");
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(a.path("dir"), flags, Mode::empty()).expect("opened");
    fs::remove_dir(b.path("dir")).expect("removed");
    let stale = Err(rustix::io::Errno::STALE);
    let mut value = vec![0; 6000];
    assert_eq!(rustix::fs::fsetxattr(&dir, "user.large", b"1", replace), stale.map(drop));
    assert_eq!(rustix::fs::fgetxattr(&dir, "user.large", &mut value[..]), stale);
    assert_eq!(rustix::fs::fremovexattr(&dir, "user.large"), stale.map(drop));
    assert_eq!(rustix::fs::flistxattr(&dir, &mut value[..]), stale);
    let missing = Err(rustix::io::Errno::NODATA);
    assert_eq!(rustix::fs::fgetxattr(&dir, "system.posix_acl_access", &mut value[..]), missing);
    rustix::fs::fchmod(&dir, Mode::from_raw_mode(0o700)).expect("the mode is known");
    drop(dir);
    for mount in [a, b] {
        mount.unmount(&lab);
    }
}

/// Goal: a file that one node has open for reading stays readable when another moves it to a directory that only that one knows, and removes it
/// there. Method: for each way of removing, by a third node that knows the directory or by nobody else; read by descriptor.
#[test]
fn a_file_that_was_moved_before_it_was_removed_is_read_to_its_last_close() {
    let Some(lab) = Lab::new() else { return };
    let (a, b, c) = (lab.mount("a"), lab.mount("b"), lab.mount("c"));
    for (round, (how, is_known)) in
        [("unlink", false), ("unlink", true), ("replace", false), ("exchange", false)].into_iter().enumerate()
    {
        let at = |mount: &Mount, name: &str| mount.path(&format!("{round}-{name}"));
        for dir in ["from", "to"] {
            fs::create_dir(at(&a, dir)).expect("made");
        }
        let bytes = vec![round as u8 + 1; 200_000];
        fs::write(at(&a, "from/file"), &bytes).expect("written");
        fs::write(at(&a, "to/other"), "other").expect("written");
        for mount in [&a, &b] {
            fs::read_dir(at(mount, "from")).expect("listed").count();
        }
        let mut reader = File::open(at(&b, "from/file")).expect("opened");
        match how {
            "exchange" => {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let (from, to) = (at(&a, "from/file"), at(&a, "to/other"));
                rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags)
                    .expect("exchanged");
                fs::rename(at(&a, "to/other"), at(&a, "to/file")).expect("moved");
            }
            _ => fs::rename(at(&a, "from/file"), at(&a, "to/file")).expect("moved"),
        }
        if is_known {
            fs::read_dir(at(&c, "to")).expect("listed").count();
        }
        match how {
            "replace" => fs::rename(at(&a, "to/other"), at(&a, "to/file")).expect("replaced"),
            _ => fs::remove_file(at(&a, "to/file")).expect("removed"),
        }
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap_or_else(|error| panic!("{how}, {is_known}: {error}"));
        assert!(read == bytes, "{how}, {is_known}");
        assert_eq!(reader.metadata().expect("there").nlink(), 0, "{how}, {is_known}");
    }
    for mount in [a, b, c] {
        mount.unmount(&lab);
    }
}

#[test]
fn what_a_rename_replaced_can_be_looked_at_until_it_is_closed() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    for (round, replacer) in [&a, &b].into_iter().enumerate() {
        for mount in [&a, &b] {
            fs::read_dir(&mount.root).expect("listed").count();
        }
        let names = ["fifo", "file"].map(|name| format!("{name}{round}"));
        lab.sh(&format!("mkfifo {}", a.path(&names[0]).display())).expect_success();
        fs::write(a.path(&names[1]), "content").expect("written");
        let held = names.map(|name| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let file: File = rustix::fs::open(a.path(&name), flags, Mode::empty()).expect("opened").into();
            (file.metadata().expect("there"), file, name)
        });
        for (before, file, name) in held {
            fs::write(replacer.path("new"), "new").expect("written");
            fs::rename(replacer.path("new"), replacer.path(&name)).expect("replaced");
            let after = file.metadata().unwrap_or_else(|error| panic!("round {round}, {name}: {error}"));
            assert_eq!(
                (after.ino(), after.mode(), after.nlink()),
                (before.ino(), before.mode(), 0),
                "{name}"
            );
        }
    }
}

/// Goal: who opens a file that others make and remove all the time is told nothing worse than that it is not there, and of one that is replaced by
/// rename(2) not even that. Method: two nodes make, remove and replace, a third opens and changes by path, for some seconds.
#[test]
fn names_that_others_make_and_remove_all_the_time_are_opened_or_not_there() {
    let Some(lab) = Lab::new() else { return };
    let (a, b, c) = (lab.mount("a"), lab.mount("b"), lab.mount("c"));
    fs::write(a.path("replaced"), "0").expect("written");
    let until = Instant::now() + Duration::from_secs(5);
    let is_on = || Instant::now() < until;
    let make = |mount: &Mount, truncate: bool| {
        for n in (0..3).cycle().take_while(|_| is_on()) {
            let path = mount.path(&format!("n{n}"));
            let file = File::options().create(true).truncate(truncate).write(true).open(&path);
            file.and_then(|mut file| file.write_all(b"x")).expect("made, or opened");
            match fs::remove_file(&path).map_err(|error| error.kind()) {
                Ok(()) | Err(ErrorKind::NotFound) => {}
                other => panic!("removed: {other:?}"),
            }
        }
    };
    let replace = || {
        for n in (0..).take_while(|_| is_on()) {
            fs::write(b.path("new"), format!("{n}")).expect("written");
            fs::rename(b.path("new"), b.path("replaced")).expect("replaced");
        }
    };
    let may_be_gone = |what: &str, done: std::io::Result<()>| match done.map_err(|error| error.kind()) {
        Ok(()) | Err(ErrorKind::NotFound) => {}
        other => panic!("{what}: {other:?}"),
    };
    let look = || {
        for n in (0..3).cycle().take_while(|_| is_on()) {
            let path = c.path(&format!("n{n}"));
            may_be_gone("opened", File::open(&path).map(drop));
            may_be_gone("chmod", fs::set_permissions(&path, fs::Permissions::from_mode(0o600 + n)));
            may_be_gone("truncate", File::options().write(true).truncate(true).open(&path).map(drop));
            may_be_gone(
                "listxattr",
                rustix::fs::listxattr(&path, &mut [0u8; 64]).map(drop).map_err(Into::into),
            );
            File::open(c.path("replaced")).expect("it is always there");
        }
    };
    let change = || {
        let path = c.path("replaced");
        for n in (0u32..).take_while(|_| is_on()) {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600 + n % 64)).expect("chmod");
            rustix::fs::setxattr(&path, "user.n", &n.to_ne_bytes(), rustix::fs::XattrFlags::empty())
                .expect("setxattr");
            let now = rustix::fs::Timespec { tv_sec: i64::from(n), tv_nsec: 0 };
            let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
            rustix::fs::utimensat(rustix::fs::CWD, &path, &times, rustix::fs::AtFlags::empty())
                .expect("utimensat");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| make(&a, true));
        scope.spawn(|| make(&b, false));
        scope.spawn(|| make(&c, true));
        scope.spawn(replace);
        scope.spawn(look);
        scope.spawn(change);
    });
    // What was held to be opened is given up when the nodes leave, if not before.
    for mount in [c, b, a] {
        mount.unmount(&lab);
    }
    lab.holdfast(&["fsck", "vol"]).expect_success();
}

/// Goal: who removes a tree that another removes at the same time is told that it is gone, or nothing, and at once. Method: two nodes remove the same
/// trees, as `rm -rf` does it, by descriptors of their directories.
#[test]
fn a_tree_is_removed_by_two_nodes_at_once() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let (dirs, files) = (20, 60);
    for dir in 0..dirs {
        let path = a.path(&format!("tree/{dir}"));
        fs::create_dir_all(&path).expect("made");
        for file in 0..files {
            fs::write(path.join(format!("file{file}")), "content").expect("written");
        }
    }
    let begun = Instant::now();
    let removed = std::thread::scope(|scope| {
        let remove = |mount: &Mount| {
            let mut command = Command::new("rm");
            command.arg("-rf").arg(mount.path("tree"));
            scope.spawn(move || command.output().expect("it runs"))
        };
        [remove(&a), remove(&b)].map(|remover| remover.join().expect("it ends"))
    });
    for output in removed {
        assert!(output.status.success(), "{output:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    for mount in [&a, &b] {
        let looked = fs::symlink_metadata(mount.path("tree"));
        assert_eq!(looked.expect_err("gone").kind(), ErrorKind::NotFound);
    }
    for mount in [b, a] {
        mount.unmount(&lab);
    }
    lab.holdfast(&["fsck", "vol"]).expect_success();
}

/// Goal: whoever goes on in a directory that another node removed finds nothing there, as in one that was removed here. Method: by a descriptor of it.
#[test]
fn a_directory_that_another_node_removed_is_empty() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::create_dir(a.path("dir")).expect("made");
    let names: Vec<String> = (0..100).map(|n| format!("file{n}")).collect();
    names.iter().for_each(|name| fs::write(a.path("dir").join(name), "").expect("written"));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(a.path("dir"), flags, Mode::empty()).expect("opened");
    fs::read_dir(a.path("dir")).expect("listed").count();
    fs::remove_dir_all(b.path("dir")).expect("removed");
    let begun = Instant::now();
    for name in &names {
        let nofollow = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        let looked = rustix::fs::statat(&dir, name, nofollow).map(drop);
        assert_eq!(looked, Err(rustix::io::Errno::NOENT), "{name}");
        let removed = rustix::fs::unlinkat(&dir, name, rustix::fs::AtFlags::empty());
        assert_eq!(removed, Err(rustix::io::Errno::NOENT), "{name}");
    }
    let made = rustix::fs::mkdirat(&dir, "new", Mode::from_raw_mode(0o755));
    assert_eq!(made, Err(rustix::io::Errno::NOENT));
    let mut listed = rustix::fs::Dir::read_from(&dir).expect("a directory");
    let is_dot = |name: &std::ffi::CStr| matches!(name.to_bytes(), b"." | b"..");
    assert!(listed.all(|entry| is_dot(entry.expect("listed").file_name())), "something is in it");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// Goal: so does who does not own it, whom the kernel judges by an access list as well. Method: a shell of another user stands in a directory while it is removed, from the
/// same node or the other, and says what it hears; the same on the file system below.
#[test]
fn a_removed_directory_is_empty_for_strangers_too() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let local = lab.path("local");
    for dir in [&lab.path("."), &local] {
        fs::create_dir_all(dir).expect("made");
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("open to all");
    }
    let below = said_of_a_removed_directory(&local, &local);
    assert!(below.contains("No such file or directory") && !below.contains("denied"), "{below}");
    for (stands, removes) in [(&a, &b), (&b, &a), (&a, &a), (&b, &b)] {
        assert_eq!(said_of_a_removed_directory(&stands.root, &removes.root), below);
    }
    for mount in [a, b] {
        mount.unmount(&lab);
    }
}

/// What a stranger hears in a directory below `stands` that is removed by way of `removes`.
fn said_of_a_removed_directory(stands: &Path, removes: &Path) -> String {
    let dir = stands.join("dir");
    fs::create_dir(&dir).expect("made");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("open to all");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=1000", "--regid=1000", "--clear-groups", "sh", "-c", STRANGER]).current_dir(&dir);
    let mut shell =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("setpriv(1) is there");
    let (mut go, mut told) = (shell.stdin.take().expect("a pipe"), shell.stdout.take().expect("a pipe"));
    told.read_exact(&mut [0]).expect("it stands there");
    fs::remove_dir(removes.join("dir")).expect("removed");
    go.write_all(b"\n").expect("it waits");
    let mut said = String::new();
    told.read_to_string(&mut said).expect("text");
    shell.wait().expect("it ends");
    said
}

const STRANGER: &str = r#"
exec 2>&1
ls -l . > /dev/null
echo
read -r go
for what in 'stat x' 'cat x' 'mkdir x' 'test -r .' 'test -w .' 'ls -A .' 'cat x'; do $what; echo "$what: $?"; done
"#;
