//! Answers that the kernel takes in late.

use std::fs::{self, File};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::lab::{Lab, Mount};

/// Goal: what a process is told while another one of its node changes that is not kept in place of what is so. Method: three threads look at a directory and a file, while a fourth sets
/// extended attributes of the file, and makes and removes names in the directory; then nobody does anything, and what the kernel has is compared with what
/// the node has.
#[test]
fn what_is_told_beside_a_change_of_this_node_is_not_kept() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    let (dir, file) = (a.path("dir"), a.path("dir/file"));
    fs::create_dir(&dir).expect("made");
    fs::write(&file, "bytes").expect("written");
    let (stage, both) = (AtomicU8::new(LOOK), [&dir, &file]);
    let mut stale = Vec::new();
    std::thread::scope(|scope| {
        for looker in 0..3 {
            // By GETATTR and by STATX.
            let look = move |path: &std::path::PathBuf| match looker {
                0 => drop(fs::metadata(path)),
                _ => drop(rustix::fs::stat(path)),
            };
            let stage = &stage;
            scope.spawn(move || {
                while stage.load(Ordering::Relaxed) != END {
                    match stage.load(Ordering::Relaxed) {
                        LOOK => both.into_iter().for_each(look),
                        _ => std::thread::sleep(Duration::from_micros(200)),
                    }
                }
            });
        }
        let flags = rustix::fs::XattrFlags::empty();
        let at = |name: &str| dir.join(name);
        for round in 0..300 {
            stage.store(LOOK, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(100));
            for n in 0..3 {
                match round % 4 {
                    0 | 1 => {
                        let value = format!("{round} {n}");
                        rustix::fs::setxattr(&file, "user.n", value.as_bytes(), flags).expect("set");
                    }
                    2 => fs::create_dir(at(&format!("sub{round}{n}"))).expect("made"),
                    _ => {
                        fs::hard_link(&file, at("link")).expect("linked");
                        fs::rename(at("link"), at(&format!("other{round}{n}"))).expect("renamed");
                    }
                }
            }
            stage.store(REST, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(10));
            for path in both {
                let looked = |flags| {
                    let of = rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS).expect("there");
                    let time = |time: rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
                    (of.stx_nlink, time(of.stx_ctime), time(of.stx_mtime))
                };
                let (kept, there) = (looked(AtFlags::empty()), looked(AtFlags::STATX_FORCE_SYNC));
                if kept != there {
                    stale.push((round, kept, there));
                }
            }
        }
        stage.store(END, Ordering::Relaxed);
    });
    assert!(stale.is_empty(), "{} looks of 600, the first {:?}", stale.len(), stale.first());
    a.unmount(&lab);
}

const LOOK: u8 = 0;
const REST: u8 = 1;
const END: u8 = 2;

/// Goal: a name that one node removes and another makes anew, before the removal has returned, is found as what it is now; and neither has its kernel lose all names by
/// that. Method: one thread removes files and directories on one mount, and another makes each anew on the other, as soon as it can, and looks at it on the first.
#[test]
fn a_name_made_anew_elsewhere_is_found_though_its_removal_has_not_returned() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    const NAMES: usize = 400;
    let path = |number: usize| format!("d{number}/name");
    let is_dir = |number: usize| number % 2 == 1;
    let (begun, removed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut stale = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..NAMES {
                while begun.load(Ordering::Acquire) <= number {
                    std::hint::spin_loop();
                }
                match is_dir(number) {
                    true => fs::remove_dir(b.path(&path(number))),
                    false => fs::remove_file(b.path(&path(number))),
                }
                .expect("removed");
                removed.store(number + 1, Ordering::Release);
            }
        });
        for number in 0..NAMES {
            fs::create_dir(a.path(&format!("d{number}"))).expect("made");
            let make = || match is_dir(number) {
                true => fs::create_dir(a.path(&path(number))),
                false => fs::File::create_new(a.path(&path(number))).map(drop),
            };
            make().expect("made");
            for _ in 0..2 {
                fs::metadata(b.path(&path(number))).expect("seen");
            }
            begun.store(number + 1, Ordering::Release);
            while let Err(error) = make() {
                assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            }
            let found = fs::metadata(b.path(&path(number)));
            let made = fs::metadata(a.path(&path(number))).expect("seen");
            stale.extend((found.expect("it is there").ino() != made.ino()).then_some(number));
            while removed.load(Ordering::Acquire) <= number {
                std::hint::spin_loop();
            }
        }
    });
    for mount in [&a, &b] {
        let epochs =
            mount.counters(&lab)["by_label"]["invalidations_total"]["epoch"].as_u64().expect("counted");
        assert!(epochs < NAMES as u64 / 10, "{epochs} epochs");
    }
    assert!(stale.is_empty(), "{} of {NAMES} as before: {stale:?}", stale.len());
    for mount in [a, b] {
        mount.unmount(&lab);
    }
}

/// Goal: what one node has seen of a change of names everybody sees on the node that makes it, though the call has not returned there. Method: a thread
/// removes, makes and renames names on one mount, in directories that it has to itself; another looks once on the second mount, at one moment or another of that, and then on the first.
#[test]
fn what_another_node_has_seen_of_a_change_is_seen_where_it_is_made() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    const ROUNDS: usize = 600;
    let path = |number: usize, name: &str| format!("d{number}/{name}");
    let (begun, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (mut seen, mut stale) = (0, Vec::new());
    // What the master does for a node others see before that node.
    let shipped = || {
        let counters = b.counters(&lab);
        let of =
            |kind: &str| counters["by_label"]["operations_shipped_total"][kind].as_u64().expect("a count");
        of("unlink") + of("symlink") + of("rename")
    };
    let before = shipped();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..ROUNDS {
                while begun.load(Ordering::Acquire) <= number {
                    std::hint::spin_loop();
                }
                let at = |name| b.path(&path(number, name));
                match number % 3 {
                    0 => fs::remove_file(at("old")).expect("removed"),
                    1 => std::os::unix::fs::symlink("old", at("new")).expect("made"),
                    _ => fs::rename(at("old"), at("new")).expect("renamed"),
                }
                done.store(number + 1, Ordering::Release);
            }
        });
        for number in 0..ROUNDS {
            fs::create_dir(b.path(&format!("d{number}"))).expect("made");
            fs::write(b.path(&path(number, "old")), "").expect("made");
            for other in 0..8 {
                fs::write(b.path(&path(number, &format!("other{other}"))), "").expect("made");
            }
            let is_there =
                |mount: &Mount, name| fs::symlink_metadata(mount.path(&path(number, name))).is_ok();
            assert!(is_there(&b, "old") && !is_there(&b, "new"));
            begun.store(number + 1, Ordering::Release);
            let (name, will_be) = if number % 3 == 1 { ("new", true) } else { ("old", false) };
            let since = Instant::now();
            while since.elapsed() < Duration::from_micros(number as u64 % 80) {
                std::hint::spin_loop();
            }
            if is_there(&a, name) == will_be {
                seen += 1;
                stale.extend((is_there(&b, name) != will_be).then_some(number));
            }
            while done.load(Ordering::Acquire) <= number {
                std::hint::spin_loop();
            }
        }
    });
    let shipped = shipped() - before;
    assert!(
        stale.len() as u64 <= shipped,
        "{} of {seen}, {shipped} shipped, as before: {stale:?}",
        stale.len()
    );
    // More on a machine that is busy.
    println!("{shipped} of {ROUNDS} were shipped; {} of {seen} as before", stale.len());
    assert!(seen > ROUNDS / 10, "{seen} of {ROUNDS} rounds show something");
    for mount in [a, b] {
        mount.unmount(&lab);
    }
}

/// Goal: whoever works in a directory that nodes make and remove by turns finds out where he is. Method: a process on each of two mounts makes one directory as soon as
/// there is none, works there for a moment, asks where that is, and removes it.
#[test]
fn a_directory_that_nodes_make_by_turns_is_found_by_who_works_there() {
    let Some(lab) = Lab::new() else { return };
    let mounts = [lab.mount("a"), lab.mount("b")];
    fs::create_dir(mounts[0].path("p")).expect("made");
    let lost = std::thread::scope(|scope| {
        let works = |mount: &Mount| {
            let dir = mount.path("p");
            let arguments = ["-c", WORKS, dir.to_str().expect("utf-8")];
            lab.run("python3", &arguments).expect_success().out.trim().parse::<u32>().expect("a count")
        };
        let running = mounts.each_ref().map(|mount| scope.spawn(move || works(mount)));
        running.map(|one| one.join().expect("counted"))
    });
    // An epoch, for something else, has all names run out.
    assert!(lost.iter().sum::<u32>() <= 2, "{lost:?} of 400 each");
    for mount in mounts {
        mount.unmount(&lab);
    }
}

const WORKS: &str = "import os, sys, time\nlock, lost = sys.argv[1] + '/lock', 0\nfor turn in range(400):\n    while True:\n        \
                     try: os.mkdir(lock); break\n        except FileExistsError: pass\n    os.chdir(lock); time.sleep(0.0005)\n    \
                     try: os.getcwd()\n    except FileNotFoundError: lost += 1\n    os.chdir('/'); os.rmdir(lock)\nprint(lost)\n";

/// Goal: a truncation that has returned is not undone by what somebody is told who asked before. Method: a file is truncated to one length after the other, and read and its end asked for
/// each time, while another thread looks at it now and then.
#[test]
fn an_end_that_was_asked_for_before_a_truncation_does_not_come_back() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    let path = a.path("file");
    const ROUNDS: usize = 6000;
    fs::write(&path, vec![1; LONG]).expect("written");
    let mut file = fs::File::options().read(true).write(true).open(&path).expect("opened");
    let (stage, mut wrong) = (AtomicU8::new(LOOK), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = fs::File::open(&path).expect("opened");
            let mut looks = 0;
            while stage.load(Ordering::Relaxed) != END {
                looks += 1;
                match looks % 3 {
                    0 => drop(other.metadata().expect("told")),
                    1 => drop(fs::metadata(&path).expect("told")),
                    _ => drop(fs::File::open(&path).expect("opened")),
                }
                if looks % 8 == 0 {
                    std::thread::sleep(Duration::from_micros(looks % 200));
                }
            }
        });
        let mut bytes = vec![0; 2 * LONG];
        for round in 0..ROUNDS {
            let len = round * 7919 % LONG + 1;
            file.set_len(len as u64).expect("cut");
            let end = file.seek(SeekFrom::End(0)).expect("told") as usize;
            let read = file.read_at(&mut bytes, 0).expect("read");
            if (end, read) != (len, len) {
                wrong.push((round, len, end, read));
            }
            if round % 4 == 0 {
                std::thread::sleep(Duration::from_micros(round as u64 % 200));
            }
        }
        stage.store(END, Ordering::Relaxed);
    });
    assert!(wrong.is_empty(), "{} of {ROUNDS}, the first {:?}", wrong.len(), wrong.first());
    drop(file);
    a.unmount(&lab);
}

/// Goal: `lseek` from the end finds one that the file has had since it was called. Method: two nodes cut and extend a file by turns, while at each, through an own descriptor for writing,
/// somebody asks for the end so, and somebody else looks at the file.
#[test]
fn the_end_that_lseek_finds_is_one_since_it_was_called() {
    let Some(lab) = Lab::new() else { return };
    let mounts = ["a", "b", "c"].map(|name| lab.mount(name));
    fs::write(mounts[0].path("f"), "").expect("made");
    let open = |mount: &Mount| File::options().read(true).write(true).open(mount.path("f")).expect("opened");
    let mut random = fastrand::Rng::with_seed(7);
    // Each but once.
    let mut lens: Vec<u64> = (1..=20_000).collect();
    random.shuffle(&mut lens);
    let until = Instant::now() + Duration::from_secs(8);
    // How many changes have begun, and have ended.
    let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let goes_on = || Instant::now() < until && begun.load(Ordering::SeqCst) < lens.len();
    let wrong: Vec<String> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let files = mounts.each_ref().map(open);
            let mut random = fastrand::Rng::new();
            for len in &lens {
                if !goes_on() {
                    break;
                }
                begun.fetch_add(1, Ordering::SeqCst);
                files[random.usize(..3)].set_len(*len).expect("changed");
                ended.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_micros(random.u64(..600)));
            }
            begun.store(lens.len(), Ordering::SeqCst);
        });
        let seekers = mounts.each_ref().map(|mount| {
            let file = open(mount);
            scope.spawn(|| {
                let (mut file, mut wrong) = (file, Vec::new());
                while goes_on() {
                    let before = ended.load(Ordering::SeqCst);
                    let end = file.seek(SeekFrom::End(0)).expect("told");
                    let after = begun.load(Ordering::SeqCst).min(lens.len());
                    let may_be = before == 0 || lens[before - 1..after].contains(&end);
                    if !may_be {
                        let at = lens.iter().position(|len| *len == end);
                        wrong.push(format!("{end} of change {at:?} between {before} and {after}"));
                    }
                }
                wrong
            })
        });
        for mount in &mounts {
            scope.spawn(|| {
                let mut random = fastrand::Rng::new();
                while goes_on() {
                    fs::metadata(mount.path("f")).expect("told");
                    std::thread::sleep(Duration::from_micros(random.u64(..500)));
                }
            });
        }
        seekers.into_iter().flat_map(|seeker| seeker.join().expect("it seeks")).collect()
    });
    let changes = ended.load(Ordering::SeqCst);
    assert!(wrong.is_empty(), "{} beside {changes} changes: {:?}", wrong.len(), wrong.first());
    assert!(changes > 100, "{changes} changes");
    for mount in mounts {
        mount.unmount(&lab);
    }
}

const LONG: usize = 20_000;
