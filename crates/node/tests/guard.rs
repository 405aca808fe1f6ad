//! Goal: nothing that the kernel has cached of a node outlives the node's rights, when its process is stopped or dead.
//! Method: nodes as processes with a short lease; B caches everything that a kernel can, B is stopped or killed, A
//! changes it, and from the moment when A's change is done nothing on B may show the old state.
//!
//! Run with `HOLDFAST_TEST_NODE` set, this program is a node; without, it is the test and starts itself.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::{AS_GUARD, Scratch, be_guard_now, guard_by_test, wait_until};
use node::{MountOptions, MountRequest};
use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::process::{Pid, Signal, kill_process};

const LEASE: Duration = Duration::from_secs(1);

/// What takes longer hangs, on a busy machine too.
const HANGS: Duration = Duration::from_secs(20);
const LEN: usize = 8192;

fn main() {
    if std::env::args().any(|arg| arg == AS_GUARD) {
        be_guard_now();
    }
    if std::env::var_os("HOLDFAST_TEST_NODE").is_some() {
        return be_node();
    }
    if let Some(path) = std::env::var_os("HOLDFAST_TEST_VIEWER") {
        return be_viewer(Path::new(&path));
    }
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let tests: [(&str, Test); 11] = [
        ("a_stopped_node_shows_nothing_old", a_stopped_node_shows_nothing_old),
        (
            "with_its_guard_stopped_too_a_node_shows_what_is_old",
            with_its_guard_stopped_too_a_node_shows_what_is_old,
        ),
        ("a_stopped_node_that_nobody_missed_goes_on", a_stopped_node_that_nobody_missed_goes_on),
        ("a_node_whose_master_stood_still_goes_on", a_node_whose_master_stood_still_goes_on),
        (
            "pages_changed_through_a_mapping_do_not_outlive_the_lease",
            pages_changed_through_a_mapping_do_not_outlive_the_lease,
        ),
        ("a_killed_node_shows_nothing_at_all", a_killed_node_shows_nothing_at_all),
        ("requests_in_flight_at_a_kill_end", requests_in_flight_at_a_kill_end),
        ("a_node_killed_while_a_name_is_stuck_ends", a_node_killed_while_a_name_is_stuck_ends),
        ("a_guard_that_dies_is_replaced", a_guard_that_dies_is_replaced),
        ("a_guard_ends_with_its_mount", a_guard_ends_with_its_mount),
        ("many_inodes_are_taken_back_in_time", many_inodes_are_taken_back_in_time),
    ];
    for (name, test) in tests.into_iter().filter(|(name, _)| name.contains(&filter)) {
        let Some(scratch) = Scratch::new() else { return };
        let since = Instant::now();
        test(&scratch);
        println!("test {name} ... ok ({:.2} s)", since.elapsed().as_secs_f64());
    }
}

type Test = fn(&Scratch);

/// Mounts and tells by a line that it is ready.
fn be_node() {
    drop(Scratch::new());
    let mut args = std::env::args().skip(1).map(PathBuf::from);
    let (volume, mountpoint) = (args.next().unwrap(), args.next().unwrap());
    let options = MountOptions { lease: LEASE, ..MountOptions::default() };
    let request = MountRequest { volume, mountpoint, options, guard: guard_by_test() };
    let ready = Box::new(|| println!("ready"));
    if let Err(error) = node::mount(request, ready) {
        eprintln!("node: {error}");
        std::process::exit(1);
    }
}

/// Maps a file, and stores to it or shows its first byte, as lines of the standard input say.
fn be_viewer(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mapped = map(&file);
    println!("ready");
    for line in io::stdin().lines() {
        let done = match line.unwrap().as_str() {
            "store" => poke(mapped).map(|()| "done".to_owned()),
            _ => peek(mapped).map(|byte| char::from(byte).to_string()),
        };
        println!("{}", done.unwrap_or_else(|error| error.to_string()));
    }
}

/// A process with a shared mapping of a file: a thread that waits for a page would hold up all of this one.
struct Viewer {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Viewer {
    fn new(path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env("HOLDFAST_TEST_VIEWER", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut viewer = Self { child, lines };
        assert_eq!(viewer.next_line(), "ready");
        viewer
    }

    fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, what: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
        self.next_line()
    }

    fn look(&mut self) -> io::Result<Seen> {
        match self.ask("show").as_str() {
            "o" => Ok(Seen::Old),
            "n" => Ok(Seen::New),
            other => Err(io::Error::other(other.to_owned())),
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A node in a process of its own, killed and cleared away on drop.
struct Node {
    child: Child,
    root: PathBuf,
}

impl Node {
    fn start(scratch: &Scratch, name: &str) -> Self {
        let root = scratch.dir.join(name);
        fs::create_dir_all(&root).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env("HOLDFAST_TEST_NODE", "1")
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

    /// Stops it, and waits until it does nothing any more.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        wait_until("every thread to stop", || {
            fs::read_dir(&tasks).unwrap().all(|task| {
                // A thread that has just ended does nothing either.
                let Ok(stat) = fs::read_to_string(task.unwrap().path().join("stat")) else { return true };
                stat.rsplit_once(')').unwrap().1.trim_start().starts_with('T')
            })
        });
    }

    fn terminate(mut self) -> bool {
        self.signal(Signal::TERM);
        self.child.wait().unwrap().success()
    }

    /// The number of its guard's process.
    fn guard(&self) -> Option<u32> {
        fs::read_dir("/proc").unwrap().find_map(|entry| {
            let pid = entry.unwrap().file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
            let (state, parent) = (fields.next()?, fields.next()?.parse::<u32>().ok()?);
            (parent == self.child.id() && state != "Z" && is_guard(pid)).then_some(pid)
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(guard) = self.guard().and_then(|guard| Pid::from_raw(guard as i32)) {
            // A test that failed may have left it stopped.
            _ = kill_process(guard, Signal::CONT);
        }
        // A stopped process is killed as well.
        _ = self.child.kill();
        _ = self.child.wait();
        _ = fuse::mount::unmount(&self.root, fuse::mount::Unmount::Lazy);
    }
}

fn is_guard(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|arg| arg == AS_GUARD.as_bytes())
}

/// What a program on B has of `dir`: everything that a kernel caches.
struct Reader {
    dir: PathBuf,
    file: File,
    listing: rustix::fs::Dir,
    mapped: Mutex<Viewer>,
}

impl Reader {
    /// Makes `dir` on `a`, and has the kernel of `b` cache all of it.
    fn new(a: &Node, b: &Node, dir: &str) -> Arc<Self> {
        fs::create_dir(a.path(dir)).unwrap();
        fs::write(a.path(dir).join("f"), [b'o'; LEN]).unwrap();
        fs::write(a.path(dir).join("gone"), "").unwrap();
        File::open(a.path(dir).join("f")).unwrap().sync_all().unwrap();
        let dir = b.path(dir);
        let file = File::open(dir.join("f")).unwrap();
        let stream = File::open(&dir).unwrap();
        let listing = rustix::fs::Dir::read_from(&stream).unwrap();
        let mapped = Mutex::new(Viewer::new(&dir.join("f")));
        let mut reader = Self { dir, file, listing, mapped };
        // Twice: the first lets the node hand out for longer than one use.
        for _ in 0..2 {
            for (what, look) in LOOKS {
                assert_eq!(look(&reader).unwrap(), Seen::Old, "{what}");
            }
            assert_eq!(names(&mut reader.listing).unwrap(), Seen::Old);
        }
        Arc::new(reader)
    }
}

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Old,
    New,
}

type Look = fn(&Reader) -> io::Result<Seen>;

/// Ways to look at what may be cached.
const LOOKS: [(&str, Look); 7] = [
    ("stat by name", |r| Ok(by_len(fs::metadata(r.dir.join("f"))?.len()))),
    ("stat of an open file", |r| Ok(by_len(r.file.metadata()?.len()))),
    ("an open file", |r| {
        let mut byte = [0];
        r.file.read_exact_at(&mut byte, 0)?;
        Ok(by_byte(byte[0]))
    }),
    ("a mapping", |r| r.mapped.lock().look()),
    ("a removed name", |r| absent_is(Seen::New, fs::metadata(r.dir.join("gone")))),
    ("an absent name", |r| absent_is(Seen::Old, fs::metadata(r.dir.join("new")))),
    ("a listing", |r| names(&mut rustix::fs::Dir::read_from(File::open(&r.dir)?)?)),
];

/// The change that [`LOOKS`] tell.
fn change(a: &Node, dir: &str) {
    let dir = a.path(dir);
    fs::write(dir.join("f"), vec![b'n'; 2 * LEN]).unwrap();
    fs::remove_file(dir.join("gone")).unwrap();
    File::create(dir.join("new")).unwrap();
}

fn by_len(len: u64) -> Seen {
    if len == LEN as u64 { Seen::Old } else { Seen::New }
}

fn by_byte(byte: u8) -> Seen {
    if byte == b'o' { Seen::Old } else { Seen::New }
}

fn absent_is(seen: Seen, result: io::Result<fs::Metadata>) -> io::Result<Seen> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(seen),
        Err(error) => Err(error),
        Ok(_) => Ok(if seen == Seen::Old { Seen::New } else { Seen::Old }),
    }
}

fn names(dir: &mut rustix::fs::Dir) -> io::Result<Seen> {
    dir.rewind();
    let mut names = BTreeSet::new();
    for entry in dir {
        names.insert(entry?.file_name().to_str().unwrap().to_owned());
    }
    Ok(if names.contains("gone") { Seen::Old } else { Seen::New })
}

/// Maps a file shared. Left mapped: the process does nothing else.
#[expect(unsafe_code, reason = "there is no safe way to map a file")]
fn map(file: &File) -> usize {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping where the kernel likes; nobody makes a reference into it.
    unsafe { mmap(std::ptr::null_mut(), LEN, protection, MapFlags::SHARED, file, 0) }.unwrap() as usize
}

/// Reads a byte of this process's memory; what would be SIGBUS is an error.
fn peek(address: usize) -> io::Result<u8> {
    let mut byte = [0];
    File::open("/proc/self/mem")?.read_exact_at(&mut byte, address as u64)?;
    Ok(byte[0])
}

fn poke(address: usize) -> io::Result<()> {
    File::options().write(true).open("/proc/self/mem")?.write_all_at(b"n", address as u64)
}

/// Looks in every way at once, each on a thread that may block.
fn look_all(reader: &Arc<Reader>) -> Vec<(&'static str, Receiver<io::Result<Seen>>)> {
    let look_one = |(what, look): (&'static str, Look)| {
        let (sender, receiver) = channel();
        let reader = Arc::clone(reader);
        std::thread::spawn(move || sender.send(look(&reader)));
        (what, receiver)
    };
    LOOKS.into_iter().map(look_one).collect()
}

/// What a look has come to, if it has within `patience`.
fn result_of(receiver: &Receiver<io::Result<Seen>>, patience: Duration) -> Option<io::Result<Seen>> {
    receiver.recv_timeout(patience).ok()
}

fn a_stopped_node_shows_nothing_old(scratch: &Scratch) {
    let (a, b) = (Node::start(scratch, "a"), Node::start(scratch, "b"));
    let reader = Reader::new(&a, &b, "d");
    b.stop();
    let stopped = Instant::now();
    change(&a, "d");
    println!("A's change took {:?}", stopped.elapsed());
    let looks = look_all(&reader);
    let mut blocked = Vec::new();
    for (what, receiver) in looks {
        match result_of(&receiver, Duration::from_millis(300)) {
            Some(Ok(seen)) => panic!("{what} shows {seen:?} state while the node is stopped"),
            Some(Err(error)) => println!("{what}: {error}"),
            None => blocked.push((what, receiver)),
        }
    }
    std::thread::sleep((3 * LEASE).saturating_sub(stopped.elapsed()));
    for (what, receiver) in &blocked {
        assert!(receiver.try_recv().is_err(), "{what} waits for the node");
    }
    b.signal(Signal::CONT);
    for (what, receiver) in blocked {
        let result = result_of(&receiver, HANGS).unwrap_or_else(|| panic!("{what} hangs"));
        println!("{what}, after the stop: {result:?}");
        assert!(!matches!(result, Ok(Seen::Old)), "{what} shows the old state");
    }
    for (what, receiver) in look_all(&reader) {
        let result = result_of(&receiver, HANGS).unwrap_or_else(|| panic!("{what} hangs"));
        assert!(!matches!(result, Ok(Seen::Old)), "{what} shows the old state");
    }
    assert!(a.terminate());
}

/// That these tests can fail: the kernel does show what nobody takes back.
fn with_its_guard_stopped_too_a_node_shows_what_is_old(scratch: &Scratch) {
    let (a, b) = (Node::start(scratch, "a"), Node::start(scratch, "b"));
    let reader = Reader::new(&a, &b, "d");
    let guard = Pid::from_raw(b.guard().expect("it has a guard") as i32).unwrap();
    kill_process(guard, Signal::STOP).unwrap();
    b.stop();
    change(&a, "d");
    let seen = |what, patience| {
        let (_, receiver) = look_all(&reader).into_iter().find(|(looked, _)| *looked == what).unwrap();
        result_of(&receiver, patience)
    };
    for what in ["an open file", "a mapping"] {
        // The kernel alone answers.
        assert!(matches!(seen(what, HANGS), Some(Ok(Seen::Old))), "{what}");
    }
    kill_process(guard, Signal::CONT).unwrap();
    let deadline = Instant::now() + HANGS;
    while matches!(seen("an open file", Duration::from_secs(1)), Some(Ok(Seen::Old))) {
        assert!(Instant::now() < deadline, "a guard that comes late empties the caches all the same");
    }
    b.signal(Signal::CONT);
    assert!(a.terminate());
}

fn a_stopped_node_that_nobody_missed_goes_on(scratch: &Scratch) {
    let (a, b) = (Node::start(scratch, "a"), Node::start(scratch, "b"));
    let reader = Reader::new(&a, &b, "d");
    fs::create_dir(b.path("own")).unwrap();
    fs::write(b.path("own/f"), "unflushed, perhaps").unwrap();
    let guard = b.guard();
    b.stop();
    std::thread::sleep(3 * LEASE);
    let looks = look_all(&reader);
    std::thread::sleep(LEASE / 2);
    b.signal(Signal::CONT);
    for (what, receiver) in looks {
        let result = result_of(&receiver, HANGS).unwrap_or_else(|| panic!("{what} hangs"));
        assert_eq!(result.unwrap(), Seen::Old, "{what}: nothing has changed");
    }
    assert_eq!(fs::read_to_string(b.path("own/f")).unwrap(), "unflushed, perhaps");
    fs::write(b.path("own/g"), "").unwrap();
    change(&a, "d");
    for (what, look) in LOOKS {
        assert_eq!(look(&reader).unwrap(), Seen::New, "{what}");
    }
    assert_eq!(b.guard(), guard);
    assert!(b.terminate() && a.terminate());
}

/// It cannot renew its lease, takes everything back itself, and waits: who reads meanwhile waits, too.
fn a_node_whose_master_stood_still_goes_on(scratch: &Scratch) {
    let (a, b) = (Node::start(scratch, "a"), Node::start(scratch, "b"));
    let reader = Reader::new(&a, &b, "d");
    fs::create_dir(b.path("own")).unwrap();
    fs::write(b.path("own/f"), "unflushed, perhaps").unwrap();
    a.stop();
    std::thread::sleep(LEASE * 85 / 100);
    let looks = look_all(&reader);
    std::thread::sleep(3 * LEASE);
    let late = look_all(&reader);
    std::thread::sleep(LEASE / 2);
    a.signal(Signal::CONT);
    for (what, receiver) in looks.into_iter().chain(late) {
        let result = result_of(&receiver, HANGS).unwrap_or_else(|| panic!("{what} hangs"));
        assert_eq!(result.unwrap(), Seen::Old, "{what}: nothing has changed");
    }
    assert_eq!(fs::read_to_string(b.path("own/f")).unwrap(), "unflushed, perhaps");
    fs::write(b.path("own/g"), "").unwrap();
    change(&a, "d");
    for (what, look) in LOOKS {
        assert_eq!(look(&reader).unwrap(), Seen::New, "{what}");
    }
    assert!(b.terminate() && a.terminate());
}

fn pages_changed_through_a_mapping_do_not_outlive_the_lease(scratch: &Scratch) {
    let (a, b) = (Node::start(scratch, "a"), Node::start(scratch, "b"));
    fs::create_dir(a.path("d")).unwrap();
    fs::write(b.path("d/f"), [b'o'; LEN]).unwrap();
    File::open(b.path("d/f")).unwrap().sync_all().unwrap();
    let mut viewer = Viewer::new(&b.path("d/f"));
    assert_eq!(viewer.ask("store"), "done");
    assert_eq!(viewer.ask("show"), "n");
    b.stop();
    let since = Instant::now();
    fs::write(a.path("d/f"), [b'x'; LEN]).unwrap();
    println!("A's change took {:?}", since.elapsed());
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(viewer.look()));
    // Not even what B itself stored there: it is lost.
    let seen = result_of(&receiver, Duration::from_millis(500));
    assert!(!matches!(seen, Some(Ok(_))), "{seen:?}");
    b.signal(Signal::CONT);
    if seen.is_none() {
        let seen = result_of(&receiver, HANGS).expect("it hangs");
        assert!(seen.is_err(), "{seen:?}");
    }
    assert!(a.terminate());
}

fn a_killed_node_shows_nothing_at_all(scratch: &Scratch) {
    let (a, mut b) = (Node::start(scratch, "a"), Node::start(scratch, "b"));
    let reader = Reader::new(&a, &b, "d");
    b.child.kill().unwrap();
    let killed = Instant::now();
    change(&a, "d");
    let changed = killed.elapsed();
    for (what, look) in LOOKS {
        // At once: A may change what B had only when B's kernel has nothing of it any more.
        let seen = look(&reader);
        assert!(seen.is_err(), "{what} shows {seen:?} after {:?}", killed.elapsed());
    }
    assert!(changed < HANGS);
    println!("A's change was done after {changed:?}");
    assert!(a.terminate());
}

fn requests_in_flight_at_a_kill_end(scratch: &Scratch) {
    let (a, mut b) = (Node::start(scratch, "a"), Node::start(scratch, "b"));
    let reader = Reader::new(&a, &b, "d");
    // Stopped, it answers nothing: so everything that is asked of it is in flight when it dies.
    b.stop();
    let uncached = b.path("d/uncached");
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(fs::metadata(uncached).map(|_| Seen::Old)));
    assert!(result_of(&receiver, Duration::from_millis(200)).is_none(), "it waits");
    std::thread::sleep(LEASE);
    let looks = look_all(&reader);
    std::thread::sleep(Duration::from_millis(200));
    b.child.kill().unwrap();
    let killed = Instant::now();
    for (what, receiver) in looks.into_iter().chain([("an uncached name", receiver)]) {
        let result = result_of(&receiver, HANGS);
        assert!(matches!(result, Some(Err(_))), "{what}: {result:?}");
    }
    assert!(killed.elapsed() < HANGS, "{:?}", killed.elapsed());
    assert!(a.terminate());
}

/// A thread that takes a name back waits in the kernel for the creation in its directory, which waits for the master: a
/// kill does not reach it there.
fn a_node_killed_while_a_name_is_stuck_ends(scratch: &Scratch) {
    let (a, mut b) = (Node::start(scratch, "a"), Node::start(scratch, "b"));
    let reader = Reader::new(&a, &b, "d");
    a.stop();
    let made = reader.dir.join("made");
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(File::create(made).map(|_| Seen::New)));
    // It cannot renew its lease, and takes everything back.
    let tasks = PathBuf::from(format!("/proc/{}/task", b.child.id()));
    wait_until("a thread to be stuck", || {
        fs::read_dir(&tasks).unwrap().any(|task| {
            let wchan = fs::read_to_string(task.unwrap().path().join("wchan")).unwrap_or_default();
            wchan == "fuse_reverse_inval_entry"
        })
    });
    b.child.kill().unwrap();
    let killed = Instant::now();
    let made = result_of(&receiver, HANGS);
    assert!(matches!(made, Some(Err(_))), "{made:?}");
    b.child.wait().unwrap();
    assert!(killed.elapsed() < HANGS, "{:?}", killed.elapsed());
    a.signal(Signal::CONT);
    for (what, look) in LOOKS {
        assert!(look(&reader).is_err(), "{what}");
    }
    assert!(a.terminate());
}

fn a_guard_that_dies_is_replaced(scratch: &Scratch) {
    let (a, mut b) = (Node::start(scratch, "a"), Node::start(scratch, "b"));
    let reader = Reader::new(&a, &b, "d");
    let first = b.guard().expect("it has a guard");
    kill_process(Pid::from_raw(first as i32).unwrap(), Signal::KILL).unwrap();
    let mut second = None;
    wait_until("another guard", || {
        second = b.guard().filter(|guard| *guard != first);
        second.is_some()
    });
    for (what, look) in LOOKS {
        assert_eq!(look(&reader).unwrap(), Seen::Old, "{what}: the mount goes on");
    }
    // Ready before it is seen, or a moment later.
    std::thread::sleep(LEASE);
    b.child.kill().unwrap();
    let killed = Instant::now();
    while LOOKS.iter().any(|(_, look)| look(&reader).is_ok()) {
        assert!(killed.elapsed() < HANGS, "the second guard guards");
    }
    assert!(a.terminate());
}

fn a_guard_ends_with_its_mount(scratch: &Scratch) {
    let a = Node::start(scratch, "a");
    fs::write(a.path("f"), "x").unwrap();
    let guard = a.guard().expect("it has a guard");
    let volume = fs::canonicalize(scratch.volume()).unwrap();
    let open: Vec<PathBuf> = fs::read_dir(format!("/proc/{guard}/fd"))
        .unwrap()
        .map(|fd| fs::read_link(fd.unwrap().path()).unwrap())
        .collect();
    println!("open in the guard: {open:?}");
    assert!(open.iter().all(|path| !path.starts_with(&volume) && !path.starts_with(&a.root)), "{open:?}");
    assert!(open.contains(&Path::new("/dev/fuse").to_owned()));
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(Pid::from_raw(guard as i32).unwrap(), signal).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(a.guard(), Some(guard), "the node decides when it ends");
    // The guard does not keep it busy.
    common::unmount(&a.root);
    wait_until("the guard's end", || !is_guard(guard));
    let mut a = a;
    assert!(a.child.wait().unwrap().success());
}

fn many_inodes_are_taken_back_in_time(scratch: &Scratch) {
    const FILES: usize = 20_000;
    let (a, b) = (Node::start(scratch, "a"), Node::start(scratch, "b"));
    fs::create_dir(a.path("d")).unwrap();
    for n in 0..FILES {
        File::create(a.path(&format!("d/{n}"))).unwrap();
    }
    let paths: Vec<PathBuf> = (0..FILES).map(|n| b.path(&format!("d/{n}"))).collect();
    let open: Vec<File> = paths.iter().step_by(100).map(|path| File::open(path).unwrap()).collect();
    let listed =
        fs::read_dir(b.path("d")).unwrap().filter(|e| e.as_ref().unwrap().metadata().is_ok()).count();
    assert_eq!(listed, FILES);
    b.stop();
    let stopped = Instant::now();
    let last = FILES - 1;
    fs::write(a.path(&format!("d/{last}")), "new").unwrap();
    println!("A's change took {:?}", stopped.elapsed());
    let (sender, receiver) = channel();
    let shown = open.len();
    std::thread::spawn(move || {
        for file in open {
            _ = sender.send(file.metadata().map(|_| Seen::Old));
        }
    });
    let seen = result_of(&receiver, Duration::from_millis(300));
    assert!(!matches!(seen, Some(Ok(_))), "of {shown} open files the first is shown: {seen:?}");
    b.signal(Signal::CONT);
    assert!(a.terminate());
}
