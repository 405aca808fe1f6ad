//! Nodes as processes: signals and sudden death.
//!
//! Run with `HOLDFAST_TEST_NODE` set, this program is a node; without, it is the test and starts itself.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{AS_GUARD, Scratch, be_guard_now, guard_by_test, wait_until};
use node::{DataCheck, MountOptions, MountRequest, Offline, Purpose};
use obs::Metrics;
use rustix::process::{Pid, Signal, kill_process};
use vfs::{Clock, Config, Core};
use volume::Volume;

fn main() {
    if std::env::args().any(|arg| arg == AS_GUARD) {
        be_guard_now();
    }
    if std::env::var_os("HOLDFAST_TEST_NODE").is_some() {
        return be_node();
    }
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let tests: [(&str, Test); 10] = [
        ("a_signal_unmounts_and_flushes", a_signal_unmounts_and_flushes),
        ("a_signal_ends_a_mount_in_use", a_signal_ends_a_mount_in_use),
        ("survivors_go_on_when_the_master_is_killed", survivors_go_on_when_the_master_is_killed),
        ("rights_of_a_killed_member_are_free_at_once", rights_of_a_killed_member_are_free_at_once),
        ("what_was_synced_survives_the_death_of_all", what_was_synced_survives_the_death_of_all),
        ("with_sync_every_change_survives_at_once", with_sync_every_change_survives_at_once),
        ("with_dirsync_every_name_survives_at_once", with_dirsync_every_name_survives_at_once),
        ("what_a_killed_node_reserved_comes_back", what_a_killed_node_reserved_comes_back),
        ("a_node_that_stood_still_shows_nothing_stale", a_node_that_stood_still_shows_nothing_stale),
        ("who_went_away_and_died_later_is_forgotten", who_went_away_and_died_later_is_forgotten),
    ];
    for (name, test) in tests.into_iter().filter(|(name, _)| name.contains(&filter)) {
        let Some(scratch) = Scratch::new() else { return };
        let since = Instant::now();
        test(&scratch);
        println!("test {name} ... ok ({:.2} s)", since.elapsed().as_secs_f64());
    }
}

type Test = fn(&Scratch);

const SHORT_LEASE: &str = "short-lease";
const VISITOR: &str = "visitor";

/// What is not waited for by a lease, which is ten seconds long and has two thirds of that left at least.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Mounts and tells by a line that it is ready.
fn be_node() {
    drop(Scratch::new());
    let mut args = std::env::args().skip(1).map(PathBuf::from);
    let (volume, mountpoint) = (args.next().unwrap(), args.next().unwrap());
    let word = std::env::var("HOLDFAST_TEST_OPTION").unwrap_or_default();
    if word == VISITOR {
        return visit(&volume);
    }
    let options = MountOptions {
        sync: word == "sync",
        dirsync: word == "dirsync",
        lease: Duration::from_secs(if word == SHORT_LEASE { 1 } else { 10 }),
        // Nothing is made durable by the time alone.
        commit: Duration::from_secs(if word.is_empty() { 1 } else { 300 }),
        ..MountOptions::default()
    };
    let request = MountRequest { volume, mountpoint, options, guard: guard_by_test() };
    let ready = Box::new(|| println!("ready"));
    if let Err(error) = node::mount(request, ready) {
        eprintln!("node: {error}");
        std::process::exit(1);
    }
}

/// Joins, breaks its connection as soon as it is a member, tells so by a line, and stays away.
fn visit(volume: &Path) {
    let volume = Volume::open(volume).unwrap();
    let id = volume.header().id.0;
    let mut core =
        Core::new(Config::default(), id, Arc::new(chunk::MemStore::new()), Arc::new(Metrics::new()));
    let clock = Clock { now: types::Micros(1), wall: types::Timespec::default() };
    let hello = core.hello(clock, std::process::id(), 0, "visitor".to_owned(), "0:0".to_owned());
    let mut stream = volume.connect("master").unwrap();
    stream.write_all(&wire::encode_frame(&hello)).unwrap();
    // Of the welcome, which comes when the member is recorded.
    stream.read_exact(&mut [0; 1]).unwrap();
    drop(stream);
    println!("ready");
    std::thread::sleep(Duration::from_secs(60));
}

/// A node in a process of its own, killed and cleared away on drop.
struct Node {
    child: Child,
    root: PathBuf,
}

impl Node {
    fn start(scratch: &Scratch, name: &str) -> Self {
        Self::start_with(scratch, name, "")
    }

    fn start_with(scratch: &Scratch, name: &str, option: &str) -> Self {
        let root = scratch.dir.join(name);
        fs::create_dir_all(&root).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env("HOLDFAST_TEST_NODE", "1")
            .env("HOLDFAST_TEST_OPTION", option)
            .arg(scratch.volume())
            .arg(&root)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it by a signal; returns whether it ended well.
    fn terminate(mut self) -> bool {
        self.signal(Signal::TERM);
        self.child.wait().unwrap().success()
    }

    fn kill(mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = fuse::mount::unmount(&self.root, fuse::mount::Unmount::Lazy);
    }
}

fn is_mounted(root: &Path) -> bool {
    volume::sources::find(root).unwrap().is_some()
}

fn write_synced(path: &Path, content: &str) {
    let mut file = File::create(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file.sync_all().unwrap();
}

fn a_signal_unmounts_and_flushes(scratch: &Scratch) {
    let a = Node::start(scratch, "a");
    for n in 0..1_000 {
        fs::write(a.path(&format!("f{n}")), "x").unwrap();
    }
    let root = a.root.clone();
    assert!(a.terminate(), "it ended well");
    assert!(!is_mounted(&root));
    let a = Node::start(scratch, "a");
    assert_eq!(fs::read_dir(&a.root).unwrap().count(), 1_000);
    assert!(a.terminate());
}

fn a_signal_ends_a_mount_in_use(scratch: &Scratch) {
    let a = Node::start(scratch, "a");
    let mut file = File::create(a.path("f")).unwrap();
    file.write_all(b"before").unwrap();
    let root = a.root.clone();
    assert!(a.terminate(), "it ended well");
    assert!(!is_mounted(&root));
    assert!(file.write_all(b"after").is_err());
    drop(file);
    let a = Node::start(scratch, "a");
    assert_eq!(fs::read_to_string(a.path("f")).unwrap(), "before");
    assert!(a.terminate());
}

fn survivors_go_on_when_the_master_is_killed(scratch: &Scratch) {
    let (a, b, c) = (Node::start(scratch, "a"), Node::start(scratch, "b"), Node::start(scratch, "c"));
    write_synced(&a.path("synced"), "of the master");
    fs::create_dir(b.path("dir")).unwrap();
    for n in 0..1_000 {
        fs::write(b.path(&format!("dir/{n}")), "x").unwrap();
    }
    a.kill();
    let since = Instant::now();
    fs::write(b.path("later"), "later").unwrap();
    assert_eq!(fs::read_to_string(c.path("later")).unwrap(), "later");
    assert_eq!(fs::read_to_string(b.path("synced")).unwrap(), "of the master");
    assert_eq!(fs::read_dir(c.path("dir")).unwrap().count(), 1_000);
    assert!(since.elapsed() < AT_ONCE, "took {:?}", since.elapsed());
    assert!(b.terminate() && c.terminate());
}

fn rights_of_a_killed_member_are_free_at_once(scratch: &Scratch) {
    let (a, b) = (Node::start(scratch, "a"), Node::start(scratch, "b"));
    fs::create_dir(b.path("dir")).unwrap();
    write_synced(&b.path("dir/synced"), "kept");
    fs::write(b.path("dir/unsynced"), "perhaps lost").unwrap();
    b.kill();
    let since = Instant::now();
    assert_eq!(fs::read_to_string(a.path("dir/synced")).unwrap(), "kept");
    fs::write(a.path("dir/mine"), "mine").unwrap();
    assert!(since.elapsed() < AT_ONCE, "took {:?}", since.elapsed());
    assert!(a.terminate());
}

fn what_was_synced_survives_the_death_of_all(scratch: &Scratch) {
    let (a, b) = (Node::start(scratch, "a"), Node::start(scratch, "b"));
    write_synced(&a.path("of-a"), "a");
    write_synced(&b.path("of-b"), "b");
    b.kill();
    a.kill();
    let c = Node::start(scratch, "c");
    let since = Instant::now();
    wait_until("the dead to be forgotten", || fs::read_to_string(c.path("of-a")).is_ok());
    assert_eq!(fs::read_to_string(c.path("of-a")).unwrap(), "a");
    assert_eq!(fs::read_to_string(c.path("of-b")).unwrap(), "b");
    assert!(since.elapsed() < AT_ONCE, "took {:?}", since.elapsed());
    assert!(c.terminate());
}

/// Makes and changes a few things in a directory that the node holds, and kills it at once. Returns what a new
/// mount finds: names, then contents of `f`.
fn killed_right_after_changes(scratch: &Scratch, option: &str) -> (Vec<String>, Vec<u8>) {
    let a = Node::start_with(scratch, option, option);
    let dir = a.path(option);
    fs::create_dir(&dir).unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    fs::write(dir.join("f"), "first").unwrap();
    fs::rename(dir.join("f"), dir.join("g")).unwrap();
    fs::write(dir.join("f"), vec![b'x'; 100_000]).unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(dir.join("f")).unwrap();
    file.write_all(b"end").unwrap();
    fs::remove_dir(dir.join("sub")).unwrap();
    a.kill();
    let b = Node::start(scratch, &format!("{option}-again"));
    let dir = b.path(option);
    let mut names: Vec<String> = match fs::read_dir(&dir) {
        Ok(entries) => entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect(),
        Err(_) => Vec::new(),
    };
    names.sort();
    let content = fs::read(dir.join("f")).unwrap_or_default();
    assert!(b.terminate());
    (names, content)
}

fn with_sync_every_change_survives_at_once(scratch: &Scratch) {
    let (names, content) = killed_right_after_changes(scratch, "sync");
    assert_eq!(names, ["f", "g"]);
    assert_eq!(content.len(), 100_003);
    assert!(content.ends_with(b"xend"));
    // Without it nothing but time would have done that, or this test could not fail.
    let (names, content) = killed_right_after_changes(scratch, "neither");
    assert!(names.is_empty() && content.is_empty(), "{names:?}");
}

fn with_dirsync_every_name_survives_at_once(scratch: &Scratch) {
    let (names, _) = killed_right_after_changes(scratch, "dirsync");
    assert_eq!(names, ["f", "g"]);
}

/// A killed node leaves its segment as it was, reserved to its full length: the survivor gives that back, and so does
/// the next mount when nobody survived.
fn what_a_killed_node_reserved_comes_back(scratch: &Scratch) {
    let used = || {
        let segments = fs::read_dir(scratch.volume().join("segments")).unwrap();
        let blocks =
            |entry: std::io::Result<fs::DirEntry>| entry.unwrap().metadata().map_or(0, |m| m.blocks());
        segments.map(blocks).sum::<u64>() * 512
    };
    let content = "x".repeat(300_000);
    let a = Node::start(scratch, "a");
    let b = Node::start(scratch, "b");
    write_synced(&a.path("of-a"), &content);
    write_synced(&b.path("of-b"), &content);
    let before = used();
    if before < 16 << 20 {
        println!("skipped: this file system reserves nothing");
        return;
    }
    b.kill();
    wait_until("the reserve of a killed member", || used() < before - before / 3);
    assert_eq!(fs::read_to_string(a.path("of-b")).unwrap(), content);
    a.kill();
    let a = Node::start(scratch, "a2");
    wait_until("the reserve of all", || used() < 2 << 20);
    for name in ["of-a", "of-b"] {
        assert_eq!(fs::read_to_string(a.path(name)).unwrap(), content);
    }
    assert!(a.terminate());
}

/// A node stands still for longer than its lease while another changes what it had cached and what it held. It loses
/// its membership, and goes on by itself with what is there now.
fn a_node_that_stood_still_shows_nothing_stale(scratch: &Scratch) {
    let a = Node::start_with(scratch, "a", SHORT_LEASE);
    let b = Node::start_with(scratch, "b", SHORT_LEASE);
    fs::create_dir(a.path("read")).unwrap();
    for name in ["changed", "removed", "renamed"] {
        fs::write(a.path("read").join(name), format!("{name} of a")).unwrap();
        assert_eq!(fs::read_to_string(b.path("read").join(name)).unwrap(), format!("{name} of a"));
    }
    assert!(fs::metadata(b.path("read/made")).is_err());
    fs::create_dir(b.path("held")).unwrap();
    write_synced(&b.path("held/synced"), "of b");
    let mut lost = File::create(b.path("held/lost")).unwrap();
    lost.write_all(b"never made durable").unwrap();

    b.signal(Signal::STOP);
    let since = Instant::now();
    fs::write(a.path("read/changed"), "changed since").unwrap();
    fs::remove_file(a.path("read/removed")).unwrap();
    fs::rename(a.path("read/renamed"), a.path("read/new")).unwrap();
    fs::write(a.path("read/made"), "made since").unwrap();
    // What it held falls free with its lease.
    assert_eq!(fs::read_to_string(a.path("held/synced")).unwrap(), "of b");
    fs::write(a.path("held/synced"), "of a since").unwrap();
    // A lease of a second, and what a busy disk adds.
    assert!(since.elapsed() < Duration::from_secs(10), "took {:?}", since.elapsed());
    std::thread::sleep(Duration::from_secs(3).saturating_sub(since.elapsed()));
    b.signal(Signal::CONT);

    // It answers this when its kernel has nothing old left and it is a member again.
    fs::write(b.path("after"), "goes on").unwrap();
    assert_eq!(fs::read_to_string(b.path("read/changed")).unwrap(), "changed since");
    assert_eq!(fs::metadata(b.path("read/changed")).unwrap().len(), 13);
    for name in ["read/removed", "read/renamed", "held/lost"] {
        assert_eq!(fs::metadata(b.path(name)).unwrap_err().kind(), std::io::ErrorKind::NotFound, "{name}");
    }
    assert_eq!(fs::read_to_string(b.path("read/new")).unwrap(), "renamed of a");
    assert_eq!(fs::read_to_string(b.path("read/made")).unwrap(), "made since");
    assert_eq!(fs::read_dir(b.path("read")).unwrap().count(), 3);
    assert!(lost.sync_all().is_err(), "what was lost is told");
    drop(lost);
    assert_eq!(fs::read_to_string(b.path("held/synced")).unwrap(), "of a since");
    assert_eq!(fs::read_to_string(a.path("after")).unwrap(), "goes on");
    fs::write(b.path("held/synced"), "of b again").unwrap();
    assert_eq!(fs::read_to_string(a.path("held/synced")).unwrap(), "of b again");
    assert!(!b.terminate(), "it tells what it lost");
    assert!(a.terminate());
}

/// Goal: a member that nobody misses does not stay on the list for ever. Method: one loses its connection while it
/// lives, and its process ends after its lease; nobody asks it for anything.
fn who_went_away_and_died_later_is_forgotten(scratch: &Scratch) {
    let lease = Duration::from_secs(1);
    let a = scratch.mount_with("a", MountOptions { lease, ..MountOptions::default() }).unwrap();
    let visitor = Node::start_with(scratch, "b", VISITOR);
    let members = || a.ask("status")["members"].as_array().unwrap().len();
    std::thread::sleep(lease + lease / 2);
    assert_eq!(members(), 2, "it may come back: nobody needs what it holds");
    visitor.kill();
    wait_until("the dead to be forgotten", || members() == 1);
    // One that dies just before the last unmount is not left to the next.
    let visitor = Node::start_with(scratch, "b", VISITOR);
    std::thread::sleep(lease + lease / 2);
    visitor.kill();
    a.unmount().unwrap();
    let offline = Offline::open(&scratch.volume(), Purpose::Look).unwrap();
    let report = offline.check(DataCheck::Lengths).unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
}
