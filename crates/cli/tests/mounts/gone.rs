//! What is removed and still looked at, by descriptors of which the file system is not told.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::fs::{Mode, OFlags};

use crate::lab::Lab;

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
        fs::write(at("file"), "content").expect("written");
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
