//! Directories of many entries that change while they are read, and what is told of changes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, SeekFrom, Timestamps, seek};

use crate::lab::Lab;

/// Reads on from a place: names, and the place behind the last of them. At most `count` names.
fn read_from(dir: &Path, place: u64, count: usize) -> (Vec<String>, u64) {
    let opened = File::open(dir).expect("it is there");
    seek(&opened, SeekFrom::Start(place)).expect("a place that a read told");
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&opened, &mut buffer);
    let (mut names, mut behind) = (Vec::new(), place);
    while names.len() < count {
        let Some(entry) = entries.next() else { break };
        let entry = entry.expect("readable");
        behind = entry.next_entry_cookie();
        let name = entry.file_name().to_str().expect("ascii").to_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    (names, behind)
}

/// Goal: who reads with O_NOATIME leaves no time behind. Method: a directory whose time of access is old is listed so, and then without.
#[test]
fn a_listing_without_access_times_leaves_none() {
    let Some(lab) = Lab::new() else { return };
    let mount = lab.mount("a");
    let dir = mount.path("d");
    fs::create_dir(&dir).expect("made");
    File::create(dir.join("f")).expect("made");
    let accessed = || fs::metadata(&dir).expect("it is there").atime();
    let times = Timestamps {
        last_access: Timespec { tv_sec: 1000, tv_nsec: 0 },
        last_modification: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
    };
    rustix::fs::utimensat(CWD, &dir, &times, AtFlags::empty()).expect("set");
    for (flags, is_noted) in [(OFlags::NOATIME, false), (OFlags::empty(), true)] {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | flags;
        let opened = rustix::fs::open(&dir, flags, Mode::empty()).expect("opened");
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(&opened, &mut buffer);
        while entries.next().is_some() {}
        assert_eq!(accessed() != 1000, is_noted);
        // A listing that the kernel keeps asks nobody.
        fs::rename(dir.join("f"), dir.join("g"))
            .and_then(|()| fs::rename(dir.join("g"), dir.join("f")))
            .expect("moved");
    }
}

/// Goal: telldir and seekdir, over descriptors and mounts. Method: two mounts read the directory by turns, each going on from
/// where the other stopped, while names that stay are among others that come and go.
#[test]
fn a_place_in_a_directory_holds_on_all_mounts_while_names_come_and_go() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::create_dir(a.path("d")).expect("made");
    let path = |kind: &str, n: usize| a.path(&format!("d/{kind}{n}"));
    for n in 0..STAYING {
        File::create(path("stays", n)).expect("made");
        File::create(path("goes", n)).expect("made");
    }
    let (mut seen, mut place, mut turn): (BTreeMap<String, usize>, u64, usize) = (BTreeMap::new(), 0, 0);
    loop {
        let mount = if turn.is_multiple_of(2) { &a } else { &b };
        let (names, behind) = read_from(&mount.path("d"), place, 37);
        if names.is_empty() {
            break;
        }
        names.into_iter().for_each(|name| *seen.entry(name).or_default() += 1);
        place = behind;
        // From the other mount: some go, some come.
        let other = if turn.is_multiple_of(2) { &b } else { &a };
        for n in (turn * 29..(turn + 1) * 29).map(|n| n % STAYING) {
            _ = fs::remove_file(other.path(&format!("d/goes{n}")));
            _ = File::create(other.path(&format!("d/comes{n}")));
        }
        turn += 1;
    }
    assert!(turn > STAYING / 37, "{turn} reads");
    for n in 0..STAYING {
        assert_eq!(seen.get(&format!("stays{n}")), Some(&1), "stays{n}, of {turn} reads");
    }
    assert_eq!(seen.iter().find(|(_, count)| **count > 1), None, "twice");
}

const STAYING: usize = 3_000;

/// What comes within a fifth of a second.
fn events(watch: &File, until: usize) -> Vec<(ReadFlags, String)> {
    let mut told = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let timeout = Timespec { tv_sec: 0, tv_nsec: Duration::from_millis(200).subsec_nanos().into() };
    while told.len() < until
        && poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&timeout)).expect("polled") > 0
    {
        let mut reader = inotify::Reader::new(watch, &mut buffer);
        loop {
            let event = reader.next().expect("there is one");
            let name = event.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
            told.push((event.events(), name));
            if reader.is_buffer_empty() {
                break;
            }
        }
    }
    told
}

/// Goal: inotify(7) tells what is done at its own mount, and nothing of what other nodes do, though it is seen.
#[test]
fn inotify_tells_what_is_done_at_its_mount() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::create_dir(a.path("d")).expect("made");
    let watch = File::from(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("made"));
    let what = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::CLOSE_WRITE | WatchFlags::MOVE;
    inotify::add_watch(&watch, a.path("d"), what).expect("watched");
    fs::write(a.path("d/f"), "x").expect("made");
    fs::rename(a.path("d/f"), a.path("d/g")).expect("moved");
    fs::remove_file(a.path("d/g")).expect("removed");
    let told = events(&watch, 5);
    let expected = [
        (ReadFlags::CREATE, "f"),
        (ReadFlags::CLOSE_WRITE, "f"),
        (ReadFlags::MOVED_FROM, "f"),
        (ReadFlags::MOVED_TO, "g"),
        (ReadFlags::DELETE, "g"),
    ];
    assert_eq!(told, expected.map(|(event, name)| (event, name.to_owned())));

    fs::write(b.path("d/h"), "x").expect("made");
    fs::rename(b.path("d/h"), b.path("d/i")).expect("moved");
    assert_eq!(events(&watch, 1), [], "of what another node made");
    assert_eq!(fs::read(a.path("d/i")).expect("it is seen all the same"), b"x");
    fs::remove_file(b.path("d/i")).expect("removed");
    assert_eq!(events(&watch, 1), [], "of a name that this kernel had");
    assert!(fs::metadata(a.path("d/i")).is_err(), "it is gone all the same");
}

/// Goal: what somebody relies on below a name stays although the kernel is asked about something else that had the name: a directory that
/// was moved away, a link that was removed. Method: a file system is mounted there, which goes when the name is dropped.
#[test]
fn names_that_others_had_before_are_not_dropped() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let made = |path: &str| fs::create_dir(a.path(path)).expect("made");
    File::create(a.path("first")).expect("made");
    fs::hard_link(a.path("first"), a.path("second")).expect("linked");
    fs::remove_file(a.path("second")).expect("removed");
    made("second");
    let mounted = |path: &str| {
        let place = a.path(path);
        lab.sh(&format!("mount -t tmpfs none {}", place.display())).expect_success();
        File::create(place.join("there")).expect("made");
    };
    mounted("second");
    fs::metadata(a.path("first")).expect("there");
    assert!(a.path("second/there").exists(), "a link was removed");
    ["from", "to", "from/dir"].into_iter().for_each(made);
    fs::metadata(a.path("from/dir")).expect("there");
    fs::rename(a.path("from/dir"), a.path("to/dir")).expect("moved");
    made("from/dir");
    mounted("from/dir");
    // The other node takes the new parent, so that its names are asked for again.
    File::create(b.path("to/file")).expect("made");
    fs::metadata(a.path("to/dir")).expect("there");
    assert!(a.path("from/dir/there").exists(), "a directory was moved");
    for path in ["second", "from/dir"] {
        lab.sh(&format!("umount {}", a.path(path).display())).expect_success();
    }
}

#[test]
fn a_directory_that_was_moved_lists_its_new_parent() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    for path in ["from", "to", "from/dir"] {
        fs::create_dir(a.path(path)).expect("made");
    }
    let parent_listed = |path: &str| {
        let dir = rustix::fs::Dir::read_from(File::open(a.path(path)).expect("opened")).expect("readable");
        let up = dir.map(|entry| entry.expect("readable")).find(|entry| entry.file_name() == c"..");
        up.expect("listed").ino()
    };
    let ino = |path: &str| fs::metadata(a.path(path)).expect("there").ino();
    assert_eq!(parent_listed("from/dir"), ino("from"));
    assert_eq!(parent_listed("from/dir"), ino("from"));
    fs::rename(a.path("from/dir"), a.path("to/dir")).expect("moved");
    assert_eq!(parent_listed("to/dir"), ino("to"));
}

/// Goal: a directory that is there is entered on every node, whichever of two renames over each other came first. Method: at two mounts, whose
/// kernels have both directories in use, one is renamed over the other and the other over the one, at once, again and again.
#[test]
fn directories_that_are_renamed_over_each_other_are_entered() {
    let Some(lab) = Lab::new() else { return };
    let mounts = [lab.mount("a"), lab.mount("b")];
    let mut moved_twice = 0;
    for round in 0..SWAPS {
        let dir = format!("d{round}");
        let path = |mount: usize, name: &str| mounts[mount].path(&dir).join(name);
        for made in ["", "full", "empty"] {
            fs::create_dir(path(round % 2, made)).expect("made");
        }
        File::create(path(round % 2, "full/x")).expect("made");
        let both = || [0, 1].into_iter().flat_map(|mount| ["full", "empty"].map(|name| path(mount, name)));
        let open: Vec<File> = both().map(|path| File::open(path).expect("it is there")).collect();
        let turn = Barrier::new(2);
        let moves = [("full", "empty"), ("empty", "full")];
        let done = std::thread::scope(|scope| {
            let threads = [0, 1].map(|mount| {
                let (old, new) = (path(mount, moves[mount].0), path(mount, moves[mount].1));
                let turn = &turn;
                scope.spawn(move || {
                    turn.wait();
                    fs::rename(old, new)
                })
            });
            threads.map(|thread| thread.join().expect("no panic"))
        });
        let left = match done {
            [Ok(()), Ok(())] => "full",
            [Ok(()), Err(error)] if error.kind() == ErrorKind::DirectoryNotEmpty => "empty",
            other => panic!("round {round}: {other:?}"),
        };
        moved_twice += usize::from(left == "full");
        for mount in [0, 1] {
            let names = |dir: &Path| -> Vec<String> {
                let list = fs::read_dir(dir).expect("readable");
                list.map(|entry| entry.expect("readable").file_name().to_str().expect("ascii").to_owned())
                    .collect()
            };
            assert_eq!(names(&path(mount, "")), [left], "round {round}, mount {mount}");
            assert_eq!(names(&path(mount, left)), ["x"], "round {round}, mount {mount}, in {left}");
            assert!(path(mount, left).join("x").exists(), "round {round}, mount {mount}");
        }
        drop(open);
    }
    println!("{moved_twice} of {SWAPS} moved there and back");
    assert!((1..SWAPS).contains(&moved_twice), "both orders were met");
}

const SWAPS: usize = 150;

/// What one getdents64 tells, into a buffer of so many bytes.
fn told_at_once(dir: &File, bytes: usize) -> Vec<String> {
    let mut buffer = vec![MaybeUninit::uninit(); bytes];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        names.push(entry.expect("listed").file_name().to_str().expect("a name of ours").to_owned());
        if entries.is_buffer_empty() {
            break;
        }
    }
    names
}

fn told_of_the_rest(dir: &File, bytes: usize) -> Vec<String> {
    std::iter::repeat_with(|| told_at_once(dir, bytes))
        .take_while(|names| !names.is_empty())
        .flatten()
        .collect()
}

/// Goal: a listing that begins after a name has gone does not show it, though another one that began before comes to its end meanwhile, with which the kernel
/// would go on. Method: listings of two threads, begun and ended in that order, of directories that nobody has listed before.
#[test]
fn a_listing_does_not_go_on_in_one_from_before_a_change() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    for (round, is_renamed) in [false, true].into_iter().enumerate() {
        let path = a.path(&format!("dir{round}"));
        fs::create_dir(&path).expect("made");
        (0..NAMES).for_each(|n| drop(File::create(path.join(format!("name{n}"))).expect("made")));
        let before = File::open(&path).expect("opened");
        let first = told_at_once(&before, 32 << 10);
        let gone = first.last().expect("many").clone();
        match is_renamed {
            true => fs::rename(path.join(&gone), a.path("elsewhere")).expect("renamed"),
            false => fs::remove_file(path.join(&gone)).expect("removed"),
        }
        let (begun, is_ended) = (Barrier::new(2), Barrier::new(2));
        let shown = std::thread::scope(|scope| {
            let after = scope.spawn(|| {
                let after = File::open(&path).expect("opened");
                let mut names = told_at_once(&after, 1_000);
                assert!(!names.is_empty() && !names.contains(&gone), "it comes later");
                begun.wait();
                is_ended.wait();
                names.extend(told_of_the_rest(&after, 1_000));
                names
            });
            begun.wait();
            told_of_the_rest(&before, 32 << 10);
            is_ended.wait();
            after.join().expect("it ends")
        });
        assert!(!shown.contains(&gone), "{gone} of {path:?}");
        let of_now = told_of_the_rest(&File::open(&path).expect("opened"), 32 << 10);
        assert_eq!((shown.len(), of_now.len()), (NAMES + 1, NAMES + 1), "{path:?}");
    }
    a.unmount(&lab);
}

/// More than fit into one request.
const NAMES: usize = 1_000;
