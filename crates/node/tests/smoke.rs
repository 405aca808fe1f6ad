//! One mount: what is written is there after a remount.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use common::{Scratch, guard_by_test, wait_until};
use node::{DataCheck, MountOptions, MountRequest, NodeError, Offline, OfflineError, Purpose};

#[test]
fn what_was_written_is_intact_after_a_remount() {
    let Some(scratch) = Scratch::new() else { return };
    let large: Vec<u8> = (0..3_000_000u32).flat_map(|n| n.to_le_bytes()).collect();
    let a = scratch.mount("a");
    fs::create_dir_all(a.path("d/e")).unwrap();
    fs::write(a.path("d/small"), "hello").unwrap();
    fs::write(a.path("d/e/large"), &large).unwrap();
    symlink("small", a.path("d/link")).unwrap();
    fs::hard_link(a.path("d/small"), a.path("d/e/second")).unwrap();
    fs::rename(a.path("d/e/large"), a.path("large")).unwrap();
    fs::set_permissions(a.path("d/small"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::read(a.path("large")).unwrap(), large);
    a.unmount().unwrap();

    let a = scratch.mount("a");
    assert_eq!(fs::read(a.path("large")).unwrap(), large);
    assert_eq!(fs::read_to_string(a.path("d/link")).unwrap(), "hello");
    let small = fs::metadata(a.path("d/small")).unwrap();
    assert_eq!((small.nlink(), small.mode() & 0o7777), (2, 0o640));
    assert_eq!(fs::metadata(a.path("d/e/second")).unwrap().ino(), small.ino());
    let mut names: Vec<_> = fs::read_dir(a.path("d")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["e", "link", "small"]);
    fs::remove_dir_all(a.path("d")).unwrap();
    fs::remove_file(a.path("large")).unwrap();
    assert_eq!(fs::read_dir(&a.root).unwrap().count(), 0);
    a.unmount().unwrap();
}

#[test]
fn the_control_socket_tells_counters_and_status() {
    let Some(scratch) = Scratch::new() else { return };
    let a = scratch.mount("a");
    for n in 0..100 {
        fs::write(a.path(&format!("f{n}")), "x").unwrap();
    }
    let stat = a.ask("stat");
    assert!(stat["fuse_requests_total"].as_u64().unwrap() >= 200, "{stat}");
    assert!(stat["uptime_seconds"].as_f64().unwrap() > 0.0);
    // A master's own node sends no frames.
    assert_eq!(stat["messages_sent_total"], 0);
    let status = a.ask("status");
    assert_eq!((&status["role"], &status["pid"]), (&"master".into(), &std::process::id().into()));
    assert_eq!(status["members"].as_array().unwrap().len(), 1);
    assert_eq!(status["members"][0]["node"], status["node"]);
    wait_until("the commit interval", || a.ask("status")["unflushed_mutations"] == 0);
    assert_eq!(a.ask("waiting")["waiting"], serde_json::json!([]));
    assert!(a.ask("dance")["error"].is_string());
    a.unmount().unwrap();
}

#[test]
fn an_asker_for_unmount_learns_of_the_flush() {
    let Some(scratch) = Scratch::new() else { return };
    let a = scratch.mount("a");
    fs::write(a.path("f"), "x").unwrap();
    let mut asker = a.begin_to_ask("umount");
    // The node has taken the question in.
    let mut hope = [0];
    asker.read_exact(&mut hope).unwrap();
    assert_eq!(&hope, b" ");
    common::unmount(&a.root);
    assert_eq!(common::answer(asker), serde_json::json!({ "clean": true }));
    let b = scratch.mount("b");
    assert_eq!(fs::read_to_string(b.path("f")).unwrap(), "x");
    b.unmount().unwrap();
}

#[test]
fn what_cannot_be_mounted_says_why_and_leaves_nothing() {
    let Some(scratch) = Scratch::new() else { return };
    let mount = |volume: &str, mountpoint: &str| {
        let request = MountRequest {
            volume: scratch.dir.join(volume),
            mountpoint: scratch.dir.join(mountpoint),
            options: MountOptions::default(),
            guard: guard_by_test(),
        };
        node::mount(request, Box::new(|| panic!("it must not be ready"))).unwrap_err()
    };
    fs::create_dir(scratch.dir.join("empty")).unwrap();
    fs::write(scratch.dir.join("file"), "").unwrap();
    assert!(matches!(mount("nowhere", "empty"), NodeError::Volume(_)));
    assert!(matches!(mount("empty", "empty"), NodeError::Volume(_)));
    assert!(matches!(mount("vol", "nowhere"), NodeError::MountpointMissing { .. }));
    assert!(matches!(mount("vol", "file"), NodeError::MountpointNotADirectory { .. }));
    let a = scratch.mount("a");
    assert!(matches!(mount("vol", "a"), NodeError::MountpointBusy { .. }));
    a.unmount().unwrap();

    // Metadata that lost what was synced: never served.
    let meta = scratch.open().meta_dir();
    fs::remove_dir_all(meta.join("engine")).unwrap();
    fs::create_dir(meta.join("engine")).unwrap();
    let error = mount("vol", "a");
    assert!(matches!(error, NodeError::Engine(kv::EngineError::Corrupt { .. })), "{error:?}");
    assert!(volume::sources::find(&scratch.dir.join("a")).unwrap().is_none());
    assert!(scratch.open().try_elect().unwrap().is_some(), "the master's lock is free again");
}

/// Goal: a volume whose metadata were emptied, or lie on what is not mounted, is not taken for a new one. Method: its directory is
/// emptied, everything is tried, and a dump is loaded.
#[test]
fn a_volume_without_its_metadata_is_refused_until_they_are_loaded() {
    let Some(scratch) = Scratch::new() else { return };
    let offline = || Offline::open(&scratch.volume(), Purpose::Change).unwrap();
    let new = offline();
    assert_eq!(new.check(DataCheck::Lengths).unwrap().faults, []);
    new.close().unwrap();
    let a = scratch.mount("a");
    fs::write(a.path("f"), [7; 100_000]).unwrap();
    a.unmount().unwrap();
    let mut text = Vec::new();
    let whole = offline();
    whole.dump(&mut text).unwrap();
    whole.close().unwrap();
    let meta = scratch.open().meta_dir();
    fs::remove_dir_all(&meta).unwrap();
    fs::create_dir(&meta).unwrap();

    let request = MountRequest {
        volume: scratch.volume(),
        mountpoint: scratch.dir.join("a"),
        options: MountOptions::default(),
        guard: guard_by_test(),
    };
    let error = node::mount(request, Box::new(|| panic!("it must not be ready"))).unwrap_err();
    assert!(matches!(error, NodeError::MetadataMissing { .. }), "{error:?}");
    let emptied = offline();
    let refused = [
        emptied.check(DataCheck::Lengths).map(drop),
        emptied.repair(DataCheck::Lengths).map(drop),
        emptied.scrub(None).map(drop),
        emptied.dump(&mut Vec::new()).map(drop),
    ];
    for result in refused {
        let is_said = matches!(&result, Err(OfflineError::Node(NodeError::MetadataMissing { .. })));
        assert!(is_said, "{result:?}");
    }
    emptied.load(&mut &text[..]).unwrap();
    emptied.close().unwrap();
    let a = scratch.mount("a");
    assert_eq!(fs::read(a.path("f")).unwrap(), [7; 100_000]);
    a.unmount().unwrap();
}

/// Goal: metadata of an earlier day are as good as new ones, though segments are there that are newer; a volume whose segments are not there is refused.
/// Method: a dump is taken, some mounts write on, each in segments of its own, and the dump is loaded.
#[test]
fn an_older_dump_is_loaded_and_written_on() {
    let Some(scratch) = Scratch::new() else { return };
    let offline = || Offline::open(&scratch.volume(), Purpose::Change).unwrap();
    let write = |name: &str| {
        let a = scratch.mount("a");
        fs::write(a.path(name), [name.as_bytes()[0]; 300_000]).unwrap();
        a.unmount().unwrap();
    };
    write("f");
    let mut text = Vec::new();
    let whole = offline();
    whole.dump(&mut text).unwrap();
    whole.close().unwrap();
    (0..5).for_each(|number| write(&format!("later{number}")));
    let meta = scratch.open().meta_dir();
    fs::remove_dir_all(&meta).unwrap();
    fs::create_dir(&meta).unwrap();
    let emptied = offline();
    emptied.load(&mut &text[..]).unwrap();
    emptied.close().unwrap();
    write("g");
    let a = scratch.mount("a");
    for name in ["f", "g"] {
        assert_eq!(fs::read(a.path(name)).unwrap(), [name.as_bytes()[0]; 300_000]);
    }
    assert!(!a.path("later0").exists());
    // With newer metadata what is in them would be wanted.
    let newer = fs::read_dir(scratch.open().segments_dir()).unwrap().count();
    assert!(newer > 5, "{newer} segments");
    a.unmount().unwrap();

    let segments = scratch.open().segments_dir();
    fs::rename(&segments, scratch.dir.join("aside")).unwrap();
    fs::create_dir(&segments).unwrap();
    let request = MountRequest {
        volume: scratch.volume(),
        mountpoint: scratch.dir.join("a"),
        options: MountOptions::default(),
        guard: guard_by_test(),
    };
    let error = node::mount(request, Box::new(|| panic!("it must not be ready"))).unwrap_err();
    assert!(matches!(error, NodeError::SegmentsMissing { .. }), "{error:?}");
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let Some(scratch) = Scratch::new() else { return };
    let a = scratch.mount("a");
    fs::write(a.path("f"), "x").unwrap();
    a.unmount().unwrap();
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let a = scratch.mount_with("a", options).unwrap();
    assert_eq!(fs::read_to_string(a.path("f")).unwrap(), "x");
    assert_eq!(fs::write(a.path("g"), "x").unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    a.unmount().unwrap();
}
