//! Somebody else's file system in user space.

use crate::other::Juicefs;
use crate::place::Scratch;
use crate::{counts, figures, measured, names, text};

/// Goal: every benchmark runs on it, and tells what its daemon takes. Method: small numbers of everything.
#[test]
fn every_benchmark_runs_on_a_file_system_in_user_space() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let Some(mounted) = Juicefs::mount(&scratch) else { return };
    let at = text(&mounted.at);
    let local = text(&scratch.join("")).to_owned();
    let before = names(&mounted.at);
    let made = measured(&["create", at, "--files", "210", "--local", &local, "--runs", "1"]);
    // One more file for the links.
    let readdir_of_links = 18;
    let want = |at| if at == readdir_of_links { 211 } else { 210 };
    assert_eq!(counts(&made), (0..20).map(want).collect::<Vec<u64>>(), "{made:#}");
    assert_eq!(made["file_system"]["type"], "fuse.juicefs");
    assert!(made["figures"][0]["cpu_us"]["daemon"].is_number(), "{made:#}");
    let walked = measured(&["walk", at, "--files", "300", "--per-directory", "100", "--runs", "1"]);
    assert_eq!(figures(&walked), ["make", "cold", "warm", "chmod of all"]);
    let notes = walked["notes"].to_string();
    assert!(notes.contains("--remount") && notes.contains("not fuse.juicefs"), "{walked:#}");
    let unpacked = measured(&["tar", at, "--files", "100", "--runs", "1"]);
    assert_eq!(figures(&unpacked), ["unpack", "du", "du again", "cold du", "remove"]);
    let timed = measured(&["latency", at, "--count", "20", "--runs", "1", "--local", &local]);
    assert_eq!(figures(&timed).len(), 7, "{timed:#}");
    let rungs = measured(&["ladder", at, "--size", "8M", "--runs", "1", "--local", &local]);
    assert_eq!(figures(&rungs).last(), Some(&"read, file system"), "{rungs:#}");
    let seen = measured(&["coherence", at, "--rounds", "3"]);
    assert_eq!(counts(&seen), [3; 15], "{seen:#}");
    let turns = measured(&["pingpong", at, "--count", "10", "--runs", "1"]);
    assert!(turns["warnings"].to_string().contains("took turns with itself"), "{turns:#}");
    assert_eq!(names(&mounted.at), before);
}
