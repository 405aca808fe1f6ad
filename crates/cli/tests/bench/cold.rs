//! Trees that are there already, file systems that are mounted anew, and what the CPUs did meanwhile.

use std::path::Path;

use crate::pair::Volume;
use crate::place::{Mounted, Scratch, sh};
use crate::{bench, counts, figures, measured, text};

/// Goal: a tree of the user's is looked at, from every side, and is as before. Method: names, modes and times of all in it, before and after.
#[test]
fn a_tree_that_is_there_is_only_looked_at() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let volume = Volume::mount(&scratch, &scratch.join("volume"));
    let [a, b] = volume.mounts.each_ref().map(|mount| text(mount));
    let local = text(&scratch.join("local")).to_owned();
    for dir in [a, &local] {
        sh(&format!("mkdir -p {dir}/tree/x/y {dir}/empty && cd {dir}/tree && touch f1 f2 x/f3 x/y/f4 && ln -s nowhere x/l"))
            .expect("made");
    }
    let (first, second) = (format!("{a}/tree"), format!("{b}/tree"));
    let look = || sh(&format!("find {first} {local} -printf '%p %m %n %s %T@ %C@\n'")).expect("listed");
    let before = look();
    let local_tree = format!("{local}/tree");
    let walked = measured(&["walk", &first, &second, "--existing", "--local", &local_tree, "--runs", "2"]);
    let want = [
        "cold",
        "warm",
        "first from the other",
        "again from there",
        "back",
        "both at once",
        "from a new node",
    ];
    assert_eq!(figures(&walked), want, "{walked:#}");
    assert_eq!(counts(&walked), [7, 7, 7, 7, 7, 14, 7], "{walked:#}");
    assert!(walked["figures"][0]["ratio"].as_f64() > Some(0.0), "{walked:#}");
    assert!(walked["figures"][0]["cpu_us"]["daemon"].is_number(), "its daemon is found: {walked:#}");
    assert_eq!(look(), before);
    let other = format!("{b}/empty");
    let walked = measured(&["walk", &first, &other, "--existing", "--runs", "3"]);
    assert!(walked["warnings"].to_string().contains("walks saw from 0 to 7 inodes"), "{walked:#}");
    let missing = bench(&["walk", &first, &format!("{b}/gone"), "--existing"]);
    let error = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(missing.status.code() == Some(3) && error.contains("gone: cannot be used"), "{missing:?}");
    let nodes = sh(&format!("{} status --json {}", crate::BINARY, text(&scratch.join("volume"))));
    assert_eq!(nodes.expect("told").matches("\"mountpoint\"").count(), 2, "the new node has left");
}

/// Goal: cold is with a file system that was mounted anew, before each cold step and no other. Method: the command that does it counts.
#[test]
fn a_file_system_is_mounted_anew_before_it_is_cold() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let Some(mounted) = Mounted::make(&scratch, "ext4") else { return };
    let (at, device) = (text(&mounted.at), mounted.device.as_deref().expect("a loop device"));
    let log = text(&scratch.join("log")).to_owned();
    let command = format!("umount {at} && mount {device} {at} && echo x >> {log}");
    let small = ["--files", "50", "--runs", "2", "--remount", &command];
    let walked = measured(&[&["walk", at][..], &small].concat());
    assert!(walked["notes"].to_string().contains("mounted anew"), "{walked:#}");
    measured(&[&["tar", at][..], &small].concat());
    assert_eq!(std::fs::read_to_string(&log).expect("written"), "x\n".repeat(4 + 4));
    let failing = bench(&["walk", at, "--files", "50", "--remount", "exit 7"]);
    let error = String::from_utf8_lossy(&failing.stderr).into_owned();
    assert!(failing.status.code() == Some(3) && error.contains("exit status: 7"), "{failing:?}");
    assert_eq!(crate::names(&mounted.at), ["lost+found"]);
}

/// Goal: a profile tells of the benchmark's processes. Method: perf(1) reads it.
#[test]
fn a_profile_is_recorded() {
    let scratch = Scratch::new();
    let (at, file) = (text(&scratch.join("")).to_owned(), text(&scratch.join("profile")).to_owned());
    let arguments =
        ["create", &at, "--files", "20000", "--runs", "1", "--kinds", "create", "--profile", &file];
    if sh("command -v perf && perf record -q -a -o /dev/null true").is_err() {
        println!("SKIPPED: no perf(1) that records");
        let output = bench(&arguments);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        return;
    }
    measured(&arguments);
    let commands = sh(&format!("perf report -i {file} --stdio --sort comm 2>/dev/null")).expect("read");
    assert!(commands.contains("holdfast"), "{commands}");
    let again = bench(&arguments);
    let error = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.code() == Some(3) && error.contains("profile: File exists"), "{again:?}");
    assert!(Path::new(&file).exists());
}
