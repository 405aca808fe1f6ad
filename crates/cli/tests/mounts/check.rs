//! Checks of a volume that is in use.

use std::fs;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value as Json, json};

use crate::lab::{Lab, Mount};

/// Everything that moves records: names made, moved, linked and removed, files that grow and are cut, open ones without a name.
fn churn(mount: &Mount, round: u32, has_old: bool) {
    let dir = mount.path(&format!("{}-{round}", mount.root.file_name().expect("a name").display()));
    fs::create_dir(&dir).expect("made");
    for number in 0..20u32 {
        let path = dir.join(number.to_string());
        fs::write(&path, vec![round as u8; 6000 * number as usize]).expect("written");
        fs::hard_link(&path, mount.path("shared").join(format!("{round}-{number}"))).expect("linked");
    }
    let open = fs::File::open(dir.join("7")).expect("opened");
    for number in 0..20u32 {
        let (path, shared) =
            (dir.join(number.to_string()), mount.path("shared").join(format!("{round}-{number}")));
        match number % 4 {
            0 => fs::remove_file(&path).expect("removed"),
            1 => fs::rename(&path, dir.join(format!("new-{number}"))).expect("renamed"),
            2 => fs::write(&path, "short").expect("cut"),
            _ => {
                fs::remove_file(&path).expect("removed");
                fs::remove_file(&shared).expect("removed");
            }
        }
    }
    drop(open);
    if has_old {
        let old = mount.path(&format!("{}-{}", mount.root.file_name().expect("a name").display(), round - 2));
        fs::remove_dir_all(old).expect("removed");
    }
}

/// Goal: a check under load finds what a check at rest finds: nothing where nothing is wrong. Method: nodes that change everything a record
/// can say and small segments that come and go, checked from the volume and from a mount point, with the content and without.
#[test]
fn a_volume_in_use_is_found_sound_and_left_alone() {
    let Some(lab) = Lab::without_volume() else { return };
    lab.holdfast(&["format", "vol", "--segment-size", "1M"]).expect_success();
    let mounts = [lab.mount_with("a", "commit=0.05"), lab.mount_with("b", "commit=0.05")];
    fs::create_dir(mounts[0].path("shared")).expect("made");
    let is_over = AtomicBool::new(false);
    let (mut checks, mut names) = (0, 0);
    std::thread::scope(|scope| {
        for (number, mount) in mounts.iter().enumerate() {
            let is_over = &is_over;
            scope.spawn(move || {
                let rounds = (number as u32 * 1_000_000..).take_while(|_| !is_over.load(Ordering::Relaxed));
                for (count, round) in rounds.enumerate() {
                    churn(mount, round, count >= 2);
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(6);
        // On a busy machine each takes long.
        while Instant::now() < until
            || ((checks < 4 || names <= 40) && Instant::now() < until + Duration::from_secs(60))
        {
            for arguments in [&["fsck", "vol", "--json"][..], &["fsck", "b", "--data", "--json"]] {
                let ended = lab.holdfast(arguments);
                assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
                let found: Json = serde_json::from_str(&ended.out).expect("JSON");
                assert_eq!((&found["clean"], &found["found"]), (&json!(true), &json!([])));
                names = names.max(found["names"].as_u64().unwrap_or(0));
                checks += 1;
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(checks >= 4 && names > 40, "{checks} checks, {names} names: too little to mean anything");

    // Nothing is repaired under those who use it.
    let refused = lab.holdfast(&["fsck", "vol", "--repair"]);
    assert_eq!(refused.code, 8);
    assert!(refused.err.contains("unmount it everywhere"), "{}", refused.err);
    for mount in mounts {
        mount.unmount(&lab);
    }
    lab.holdfast(&["fsck", "vol", "--data"]).expect_success();
}

/// What a record of a mounted volume must not say is named, with a path.
#[test]
fn damage_of_a_volume_in_use_is_named() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    fs::create_dir(a.path("dir")).expect("made");
    fs::write(a.path("dir/small"), "inline").expect("made");
    fs::write(a.path("dir/large"), vec![7; 300_000]).expect("made");
    fs::File::open(a.path("dir/large")).and_then(|file| file.sync_all()).expect("synced");
    lab.holdfast(&["fsck", "a"]).expect_success();
    for entry in fs::read_dir(lab.path("vol/segments")).expect("listed") {
        let path = entry.expect("listed").path();
        if fs::metadata(&path).expect("there").len() > 0 {
            fs::OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(4096)).expect("cut");
        }
    }
    let ended = lab.holdfast(&["fsck", "vol", "--json"]);
    assert_eq!(ended.code, 4, "{}", ended.err);
    let found: Json = serde_json::from_str(&ended.out).expect("JSON");
    let fault = &found["found"][0];
    assert_eq!((&fault["kind"], &fault["path"]), (&json!("missing-data"), &json!("/dir/large")), "{found}");
}

/// Goal: a node that stands still, and is not the master, is not waited for in vain. Method: a socket at which nobody answers, before all others.
#[test]
fn a_node_that_does_not_answer_keeps_nobody_from_a_check() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    let socket = lab.path("vol/run/node-0:0");
    let listener = UnixListener::bind(&socket).expect("bound");
    for command in ["fsck", "scrub"] {
        lab.holdfast(&[command, "vol"]).expect_success();
    }
    drop(listener);
    fs::remove_file(socket).expect("removed");
    a.unmount(&lab);
}

#[test]
fn a_dump_that_fails_leaves_no_file() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    fs::write(a.path("f"), vec![7; 100_000]).expect("written");
    a.unmount(&lab);
    fs::remove_dir_all(lab.path("vol/meta")).expect("removed");
    fs::create_dir(lab.path("vol/meta")).expect("made");
    let ended = lab.holdfast(&["dump", "vol", "-o", "text"]);
    assert!(ended.code != 0 && ended.err.contains("holdfast load"), "{}", ended.err);
    assert!(!lab.path("text").exists());
}

/// Goal: who checks a volume, or asks for its limits, just after its master has gone is not told that it is in use or not mounted. Method: of two nodes the one
/// that is master is killed, or unmounted; each command is begun at once, and once more as the last node ends.
#[test]
fn between_two_masters_a_check_waits_for_the_next() {
    let Some(lab) = Lab::new() else { return };
    let commands: [&[&str]; 4] =
        [&["fsck", "vol"], &["scrub", "vol"], &["quota", "report", "vol"], &["fsck", "--data", "vol"]];
    for (round, command) in commands.iter().cycle().take(2 * commands.len()).enumerate() {
        let (a, b) = (lab.mount("a"), lab.mount("b"));
        fs::write(a.path("file"), "bytes").expect("written");
        let status = lab.status();
        let is_master = |mount: &Mount| {
            let nodes = status["nodes"].as_array().expect("nodes");
            let name = mount.root.file_name().expect("a name").to_string_lossy().into_owned();
            nodes.iter().any(|node| {
                node["role"] == "master" && node["mountpoint"].as_str().is_some_and(|at| at.ends_with(&name))
            })
        };
        let (master, other) = if is_master(&a) { (a, b) } else { (b, a) };
        match round < commands.len() {
            true => master.signal(Signal::KILL),
            false => master.unmount(&lab),
        }
        lab.holdfast(command).expect_success();
        other.signal(if round % 2 == 0 { Signal::KILL } else { Signal::TERM });
        lab.holdfast(&["fsck", "vol"]).expect_success();
    }
}
