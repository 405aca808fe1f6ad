//! Processes at two mounts by turns, while a third mount walks the tree: nothing stale, nothing lost.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use crate::lab::{Lab, Mount, PYTHON, Partner};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

/// Goal: whatever one process did is what the other sees at once: names, absent names, sizes, modes, content and
/// listings, from caches filled before. Method: a model of the tree; each step one partner changes something at
/// random, and the other one, or both, must find exactly the model.
#[test]
fn two_processes_by_turns_see_nothing_stale() {
    let Some(lab) = Lab::new() else { return };
    let (a, b, c) = (lab.mount("a"), lab.mount("b"), lab.mount("c"));
    let mut partners = [Partner::start(&a.root), Partner::start(&b.root)];
    for dir in DIRS {
        partners[0].must("mkdir", &[json!(dir)]);
    }
    let seed = std::env::var("HOLDFAST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut turns = Turns { files: BTreeMap::new(), gone: Vec::new(), random: seed, stale: Vec::new() };
    let begun = Instant::now();
    let mut steps = 0;
    let walks = with_walker(&c.root, || {
        for step in 0..STEPS {
            if step >= STEPS_MIN && begun.elapsed() > LONG_ENOUGH {
                break;
            }
            steps = step + 1;
            let actor = turns.below(2);
            let touched = turns.change(&mut partners[actor], step);
            turns.check(&mut partners[1 - actor], step, &touched);
            if turns.below(4) == 0 {
                turns.check(&mut partners[actor], step, &touched);
            }
        }
    });
    assert!(turns.stale.is_empty(), "seed {seed}: {} stale: {:#?}", turns.stale.len(), turns.stale);
    assert!(walks > 20, "{walks} walks of the third mount in {steps} steps");
    drop(partners);
    for mount in [c, b, a] {
        mount.unmount(&lab);
    }
    // What they agreed on is what is there.
    let again = lab.mount("a");
    for (name, content) in &turns.files {
        assert_eq!(&fs::read_to_string(again.path(name)).expect(name), content, "{name}");
    }
}

/// Goal: what two nodes do in one directory at once is all there, and seen by both. Method: on each a thread makes files there, renames
/// some, removes some of its own and some of the other's, and looks at each of its own at the other mount, while they take turns.
#[test]
fn two_nodes_that_fill_one_directory_lose_nothing() {
    let Some(lab) = Lab::new() else { return };
    let mounts = [lab.mount("a"), lab.mount("b")];
    fs::create_dir(mounts[0].path("d")).expect("made");
    std::thread::scope(|scope| {
        for of in 0..2 {
            let [own, other] = [&mounts[of], &mounts[1 - of]];
            scope.spawn(move || {
                let at = |mount: &Mount, n: usize| mount.path(&format!("d/{of}-{n}"));
                for n in 0..FILES {
                    fs::write(at(own, n), format!("{of} {n}")).expect("written");
                    if n % 5 == 0 {
                        fs::rename(at(own, n), own.path(&format!("d/{of}-{n}-renamed"))).expect("renamed");
                    }
                    if n % 7 == 3 {
                        assert_eq!(
                            fs::read_to_string(at(other, n)).ok(),
                            (n % 5 != 0).then(|| format!("{of} {n}"))
                        );
                    }
                    if n % 7 == 4 && n > 40 {
                        // By the other mount, and a while after it was made.
                        _ = fs::remove_file(at(other, n - 40));
                        assert!(!at(own, n - 40).exists(), "{of}-{}", n - 40);
                    }
                }
            });
        }
    });
    let expected = |of: usize| {
        (0..FILES).filter_map(move |n| match (n % 5, (n + 40) % 7 == 4 && n + 40 < FILES) {
            (0, _) => Some((format!("{of}-{n}-renamed"), format!("{of} {n}"))),
            (_, true) => None,
            (_, false) => Some((format!("{of}-{n}"), format!("{of} {n}"))),
        })
    };
    let expected: BTreeMap<String, String> = expected(0).chain(expected(1)).collect();
    for mount in &mounts {
        let found = fs::read_dir(mount.path("d")).expect("listed").map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(path).expect("read"))
        });
        assert!(found.collect::<BTreeMap<_, _>>() == expected, "at {:?}", mount.root);
    }
    let turns = || mounts[0].counters(&lab)["turns_total"].as_u64().expect("counted");
    let deadline = Instant::now() + Duration::from_secs(120);
    for round in 0.. {
        if turns() > 10 {
            break;
        }
        // A machine that was busy makes changes too slowly to have them taken by turns.
        assert!(Instant::now() < deadline, "{} turns", turns());
        std::thread::scope(|scope| {
            for (of, mount) in mounts.iter().enumerate() {
                let path = move |n: usize| mount.path(&format!("d/{of}-{round}-more-{n}"));
                scope.spawn(move || (0..FILES).for_each(|n| fs::write(path(n), "").expect("written")));
            }
        });
    }
    for mount in mounts {
        mount.unmount(&lab);
    }
}

const FILES: usize = 4_000;

const DIRS: [&str; 3] = ["d0", "d1", "d2"];
const STEPS: usize = 5_000;
/// On a busy machine fewer steps do.
const LONG_ENOUGH: Duration = Duration::from_secs(60);
const STEPS_MIN: usize = 500;

/// What is in the tree, and what was and is not.
struct Turns {
    files: BTreeMap<String, String>,
    gone: Vec<String>,
    random: u64,
    stale: Vec<String>,
}

impl Turns {
    /// The next random number below `end`: xorshift64, by George Marsaglia.
    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % end
    }

    fn some_file(&mut self) -> String {
        let at = self.below(self.files.len());
        self.files.keys().nth(at).expect("below its length").clone()
    }

    /// Has `partner` change something; returns the names concerned.
    fn change(&mut self, partner: &mut Partner, step: usize) -> Vec<String> {
        let which = self.below(if self.files.len() < 30 { 11 } else { 16 });
        if self.files.is_empty() || which < 2 {
            let name = format!("{}/f{step}", DIRS[self.below(3)]);
            let content = format!("{step} ").repeat(1 + self.below(40) * self.below(40));
            partner.must("create", &[json!(name), json!(content)]);
            self.files.insert(name.clone(), content);
            return vec![name];
        }
        let name = self.some_file();
        let mut content = self.files[&name].clone();
        match which {
            2..=4 => {
                let more = format!("{step};").repeat(1 + self.below(20));
                partner.must("append", &[json!(name), json!(more)]);
                content.push_str(&more);
            }
            5..=6 => {
                let at = self.below(content.len() + 1);
                partner.must("overwrite", &[json!(name), json!(at), json!("#overwritten#")]);
                let end = (at + 13).min(content.len());
                content.replace_range(at..end, "#overwritten#");
            }
            7 => {
                let size = self.below(content.len() + 20);
                partner.must("truncate", &[json!(name), json!(size)]);
                content.truncate(size);
                content.extend(std::iter::repeat_n('\0', size - content.len()));
            }
            8..=10 => return self.rename(partner, step, &name),
            _ => {
                partner.must("unlink", &[json!(name)]);
                self.files.remove(&name);
                self.gone.push(name.clone());
                return vec![name];
            }
        }
        self.files.insert(name.clone(), content);
        vec![name]
    }

    /// To a new name, or over another file.
    fn rename(&mut self, partner: &mut Partner, step: usize, old: &str) -> Vec<String> {
        let new = match self.below(3) {
            0 => self.some_file(),
            _ => format!("{}/r{step}", DIRS[self.below(3)]),
        };
        partner.must("rename", &[json!(old), json!(new)]);
        if new != old {
            let content = self.files.remove(old).expect("it was there");
            self.files.insert(new.clone(), content);
            self.gone.push(old.to_owned());
        }
        vec![old.to_owned(), new]
    }

    /// Compares what `partner` sees with the model: the names concerned, another file, an absent name, a listing.
    fn check(&mut self, partner: &mut Partner, step: usize, touched: &[String]) {
        let mut names = touched.to_vec();
        if !self.files.is_empty() {
            names.push(self.some_file());
        }
        if !self.gone.is_empty() {
            let at = self.below(self.gone.len());
            names.push(self.gone[at].clone());
        }
        for name in names {
            let size = partner.ask("stat", &[json!(name)]).map(|found| found["size"].clone());
            let content = partner.ask("read", &[json!(name)]);
            let (expected_size, expected) = match self.files.get(&name) {
                Some(content) => (Ok(json!(content.len())), Ok(json!(content))),
                None => (Err("ENOENT".to_owned()), Err("ENOENT".to_owned())),
            };
            self.compare(step, &name, &size, &expected_size);
            self.compare(step, &name, &content, &expected);
        }
        let dir = DIRS[self.below(3)];
        let listed = partner.ask("list", &[json!(dir)]);
        let in_dir = |name: &&String| name.starts_with(dir);
        let expected: Vec<&str> = self.files.keys().filter(in_dir).map(|name| &name[3..]).collect();
        self.compare(step, dir, &listed, &Ok(json!(expected)));
    }

    fn compare(&mut self, step: usize, what: &str, seen: &Result<Json, String>, is: &Result<Json, String>) {
        if seen != is {
            let short =
                |value: &Result<Json, String>| format!("{value:?}").chars().take(200).collect::<String>();
            self.stale.push(format!("step {step}, {what}: saw {}, is {}", short(seen), short(is)));
        }
    }
}

/// Runs `work` while a thread walks the tree below `root`; returns how many walks it made.
fn with_walker(root: &Path, work: impl FnOnce()) -> u32 {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let walker = scope.spawn(|| {
            let mut walks = 0;
            while !is_done.load(Ordering::Relaxed) {
                walk(root);
                walks += 1;
            }
            walks
        });
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_done.store(true, Ordering::Relaxed);
        let walks = walker.join().expect("it walks");
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        walks
    })
}

/// Lists, stats and reads all; what goes meanwhile may be gone.
fn walk(dir: &Path) {
    for entry in fs::read_dir(dir).expect("directories stay") {
        let path = entry.expect("listed").path();
        let seen = match path.is_dir() {
            true => return walk(&path),
            false => fs::metadata(&path).and_then(|_| File::open(&path)),
        };
        match seen {
            // Once it is open it stays, whoever removes or replaces it now.
            Ok(mut file) => _ = file.read_to_end(&mut Vec::new()).expect("an open file is read"),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}: {error}", path.display());
            }
        }
    }
}

/// Both keep a file open: each write of one is what the other reads next, without open or close in between.
#[test]
fn writes_are_seen_through_descriptors_that_stay_open() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let mut partners = [Partner::start(&a.root), Partner::start(&b.root)];
    partners[0].must("create", &[json!("f"), json!("")]);
    let fds = partners.each_mut().map(|partner| partner.must("open", &[json!("f"), json!("rw")]));
    for step in 0..2_000 {
        let (writer, reader) = (step % 2, 1 - step % 2);
        let (at, content) = (step % 700 * 13, format!("{step:08}"));
        partners[writer].must("pwrite", &[fds[writer].clone(), json!(content), json!(at)]);
        let seen = partners[reader].must("pread", &[fds[reader].clone(), json!(8), json!(at)]);
        assert_eq!(seen, json!(content), "step {step}");
        if step % 100 == 99 {
            partners[writer].must("ftruncate", &[fds[writer].clone(), json!(step)]);
            assert_eq!(partners[reader].must("fstat", &[fds[reader].clone()])["size"], json!(step));
        }
    }
    drop(partners);
    b.unmount(&lab);
    a.unmount(&lab);
}

/// 1,000 lines appended by turns and 1,000 at the same time, through O_APPEND at both mounts: all are kept, each
/// writer's in its order.
#[test]
fn appended_lines_are_all_kept() {
    let Some(lab) = Lab::new() else { return };
    let (a, b, c) = (lab.mount("a"), lab.mount("b"), lab.mount("c"));
    let mut partners = [Partner::start(&a.root), Partner::start(&b.root)];
    partners[0].must("create", &[json!("turns"), json!("")]);
    partners[1].must("create", &[json!("race"), json!("")]);
    let fds = partners.each_mut().map(|partner| partner.must("open", &[json!("turns"), json!("a")]));
    let mut expected = String::new();
    with_walker(&c.root, || {
        for step in 0..1_000 {
            let line = format!("{step:05}\n");
            partners[step % 2].must("write", &[fds[step % 2].clone(), json!(line)]);
            expected.push_str(&line);
        }
        for (partner, tag) in partners.iter_mut().zip(["a", "b"]) {
            partner.tell("append_many", &[json!("race"), json!(tag), json!(500)]);
        }
        for partner in &mut partners {
            partner.answer().expect("appended");
        }
    });
    drop(partners);
    for mount in [&a, &b, &c] {
        assert_eq!(fs::read_to_string(mount.path("turns")).expect("read"), expected);
        let raced = fs::read_to_string(mount.path("race")).expect("read");
        for tag in ["a", "b"] {
            let own: Vec<&str> = raced.lines().filter(|line| line.starts_with(tag)).collect();
            let all: Vec<String> = (0..500).map(|number| format!("{tag}{number:05}")).collect();
            assert_eq!(own, all);
        }
        assert_eq!(raced.lines().count(), 1_000);
    }
}

/// A kernel with an end behind the one that another node made, and sure of one before it only, is brought there without a token.
#[test]
fn an_end_that_a_writer_elsewhere_made_is_where_lseek_goes() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    for round in 0..20 {
        let name = format!("f{round}");
        let mut on_b =
            File::options().read(true).append(true).create(true).open(b.path(&name)).expect("made");
        on_b.write_all(&[1; 87]).expect("written");
        on_b.set_len(73_728).expect("made longer");
        let mut on_a = File::options().write(true).open(a.path(&name)).expect("opened");
        on_a.set_len(96).expect("cut");
        assert_eq!(on_b.seek(SeekFrom::End(0)).expect("a file"), 96);
        // Direct writes move the end, too.
        on_b.write_all(&[2; 10_000]).expect("appended");
        on_a.set_len(50).expect("cut");
        on_a.write_all(&[3; 60]).expect("written");
        assert_eq!(on_b.seek(SeekFrom::End(0)).expect("a file"), 60);
        on_b.rewind().expect("a file");
        let mut seen = Vec::new();
        on_b.read_to_end(&mut seen).expect("read");
        assert_eq!(seen, [3; 60]);
    }
}

/// By the right to the directory that covers it now, who removes it would ask nobody: the file has tokens of its own from the rename on,
/// and its mover is known to have it open.
#[test]
fn a_file_that_its_reader_moves_out_of_sight_of_others_outlives_its_removal_by_them() {
    let Some(lab) = Lab::new() else { return };
    let (a, b, c) = (lab.mount("a"), lab.mount("b"), lab.mount("c"));
    for dir in ["from", "to"] {
        fs::create_dir(a.path(dir)).expect("made");
    }
    for way in ["rename", "exchange", "link"] {
        fs::write(a.path(&format!("from/{way}")), way).expect("written");
        fs::write(a.path(&format!("to/{way}-there")), "there").expect("written");
    }
    // One reader of each directory beside the mover, which opens by its share.
    let list = |mount: &Mount, dir: &str| fs::read_dir(mount.path(dir)).expect("listed").count();
    let shared = [list(&b, "from"), list(&c, "to"), list(&a, "from"), list(&a, "to")];
    assert_eq!(shared, [3; 4]);
    for way in ["rename", "exchange", "link"] {
        let (from, to) = (a.path(&format!("from/{way}")), a.path(&format!("to/{way}-there")));
        let file = fs::File::open(&from).expect("opened");
        match way {
            "rename" => fs::rename(&from, &to).expect("moved"),
            "exchange" => {
                rustix::fs::renameat_with(CWD, &from, CWD, &to, RenameFlags::EXCHANGE).expect("moved")
            }
            _ => {
                fs::remove_file(&to).expect("removed");
                fs::hard_link(&from, &to).expect("linked");
                fs::remove_file(b.path(&format!("from/{way}"))).expect("removed");
            }
        }
        fs::remove_file(c.path(&format!("to/{way}-there"))).expect("removed");
        let read = std::io::read_to_string(file);
        assert_eq!(read.ok().as_deref(), Some(way), "a file that is open is there");
    }
    for mount in [a, b, c] {
        mount.unmount(&lab);
    }
    lab.holdfast(&["fsck", "vol"]).expect_success();
}

/// Goal: nobody who uses a file waits for who waits for him, however reads, writes, truncations and changes of times of three nodes meet. Method: each
/// node does one of these in a loop, by turns of who does what; a call that waits for a lease, and a mount that dies of it, fail.
#[test]
fn readers_writers_and_times_of_one_file_do_not_wait_for_each_other() {
    let Some(lab) = Lab::new() else { return };
    let mounts = [lab.mount("a"), lab.mount("b"), lab.mount("c")];
    fs::write(mounts[0].path("f"), vec![7; 30_000]).expect("written");
    let write = |at: &Path, n: usize| {
        let file = File::options().write(true).truncate(n % 3 == 0).open(at)?;
        file.write_all_at(&vec![n as u8; [1, 100, 5000, 70_000][n % 4]], (n * 997 % 20_000) as u64)
    };
    let times = |at: &Path, n: usize| {
        let times = fs::FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(n as u64));
        File::open(at)?.set_times(times)
    };
    let read = |at: &Path, _: usize| fs::read(at).map(drop);
    let jobs: [&(dyn Fn(&Path, usize) -> io::Result<()> + Sync); 3] = [&write, &times, &read];
    for turn in 0..3 {
        let until = Instant::now() + Duration::from_secs(2);
        std::thread::scope(|scope| {
            for (node, mount) in mounts.iter().enumerate() {
                let (at, job) = (mount.path("f"), jobs[(node + turn) % 3]);
                scope.spawn(move || {
                    for n in 0.. {
                        let since = Instant::now();
                        job(&at, n).expect("done");
                        assert!(
                            since.elapsed() < Duration::from_secs(5),
                            "a call took {:?}",
                            since.elapsed()
                        );
                        if Instant::now() > until {
                            break;
                        }
                    }
                });
            }
        });
    }
    mounts.into_iter().for_each(|mount| mount.unmount(&lab));
}

/// Goal: who makes a name is told so, whoever has moved it by then. Method: one process makes and removes symbolic links, one of its node looks at them, and two
/// of another node rename them to each other and change their owners.
#[test]
fn who_makes_names_is_told_so_wherever_others_move_them() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let until = Instant::now() + Duration::from_secs(6);
    type Job = fn(&Path, &Path) -> io::Result<()>;
    let make: Job = |at, _| std::os::unix::fs::symlink("x", at).or_else(|_| fs::remove_file(at));
    let look: Job = |at, _| fs::symlink_metadata(at).map(drop);
    let own: Job = |at, _| std::os::unix::fs::lchown(at, Some(1000), None);
    let rename: Job = |at, other| fs::rename(at, other);
    std::thread::scope(|scope| {
        for (mount, job) in [(&a, make), (&a, look), (&b, own), (&b, rename)] {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(7);
                while Instant::now() < until {
                    let [at, other] = [0; 2].map(|_| mount.path(&format!("s{}", random.usize(..3))));
                    let since = Instant::now();
                    let done = job(&at, &other);
                    // Somebody else was faster: ENOENT, EEXIST, ESTALE.
                    let is_fine = |error: &io::Error| [2, 17, 116].map(Some).contains(&error.raw_os_error());
                    assert!(done.as_ref().err().is_none_or(is_fine), "{done:?}");
                    assert!(since.elapsed() < Duration::from_secs(5), "a call took {:?}", since.elapsed());
                }
            });
        }
    });
    b.unmount(&lab);
    a.unmount(&lab);
}

/// Goal: who makes, removes, moves and opens up the same directories waits for nobody who waits for him. Method: two threads on each of three nodes do that
/// at random.
#[test]
fn who_makes_moves_and_removes_the_same_directories_is_answered() {
    let Some(lab) = Lab::new() else { return };
    let mounts = [lab.mount("a"), lab.mount("b"), lab.mount("c")];
    let until = Instant::now() + Duration::from_secs(8);
    type Job = fn(&Path, &Path) -> io::Result<()>;
    let jobs: [Job; 4] = [
        |at, _| fs::create_dir(at),
        |at, _| fs::remove_dir(at),
        |at, _| fs::set_permissions(at, fs::Permissions::from_mode(0o700)),
        |at, other| fs::rename(at, other),
    ];
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let mount = &mounts[thread % 3];
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread as u64);
                while Instant::now() < until {
                    let names = ["d", "e", "d/d", "d/a", "e/d", "e/a", "e/d/x"];
                    let [at, other] = [0; 2].map(|_| mount.path(names[random.usize(..names.len())]));
                    let since = Instant::now();
                    // Most fail, for what somebody else was faster with.
                    let done = jobs[random.usize(..jobs.len())](&at, &other);
                    let is_broken = |error: &io::Error| [5, 107].map(Some).contains(&error.raw_os_error());
                    assert!(!done.as_ref().is_err_and(is_broken), "{done:?}");
                    assert!(since.elapsed() < Duration::from_secs(5), "a call took {:?}", since.elapsed());
                }
            });
        }
    });
    mounts.into_iter().for_each(|mount| mount.unmount(&lab));
}

/// Goal: who takes a job out of a queue by renaming it is the only one. Method: two nodes rename all that is in a directory to the same names in another.
#[test]
fn of_two_who_rename_the_same_file_one_is_told_so() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    for dir in ["queue", "run"] {
        fs::create_dir(a.path(dir)).expect("made");
    }
    (0..JOBS).for_each(|n| fs::write(a.path(&format!("queue/{n}")), "job").expect("made"));
    let claim = |mount: &Mount| {
        let mut claimed = 0;
        loop {
            let jobs: Vec<_> = fs::read_dir(mount.path("queue")).expect("listed").flatten().collect();
            if jobs.is_empty() {
                return claimed;
            }
            for job in jobs {
                let name = job.file_name();
                match fs::rename(job.path(), mount.path("run").join(name)) {
                    Ok(()) => claimed += 1,
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}"),
                }
            }
        }
    };
    let claimed = std::thread::scope(|scope| {
        let both = [&a, &b].map(|mount| scope.spawn(move || claim(mount)));
        both.map(|claimed| claimed.join().expect("it ends"))
    });
    assert_eq!(claimed.iter().sum::<usize>(), JOBS, "{claimed:?}");
    assert_eq!(fs::read_dir(b.path("run")).expect("listed").count(), JOBS);
    b.unmount(&lab);
    a.unmount(&lab);
}

const JOBS: usize = 1500;

/// Goal: a directory in which two nodes work by turns stays where it is for a third process, which works in it: names are not dropped from the kernel for each turn.
/// Method: a process of either node creates, renames and looks; the working directory of one that does nothing else is asked for all the time.
#[test]
fn a_working_directory_stays_while_two_nodes_work_in_it() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::create_dir(a.path("d")).expect("made");
    fs::write(a.path("d/stays"), "content").expect("written");
    let until = Instant::now() + Duration::from_secs(4);
    let work = |mount: &Mount, id: &str| {
        let (new, old) = (mount.path(&format!("d/new{id}")), mount.path(&format!("d/old{id}")));
        let mut done = 0;
        while Instant::now() < until {
            File::create_new(&new).expect("made");
            fs::rename(&new, &old).expect("renamed");
            fs::metadata(mount.path("d/stays")).expect("it stays");
            done += 1;
        }
        done
    };
    let script = "import os, sys, time\nos.chdir(sys.argv[1])\nlost = looks = 0\nuntil = time.time() + 4\n\
        while time.time() < until:\n    looks += 1\n    try: os.getcwd()\n    except FileNotFoundError: lost += 1\n\
        print(lost, looks)";
    let epochs = |name: &str| {
        let print = lab.holdfast(&["stat", name, "--json"]).expect_success().out;
        let print: Json = serde_json::from_str(&print).expect("JSON");
        print["by_label"]["invalidations_total"]["epoch"].as_u64().expect("a number")
    };
    let (looked, done) = std::thread::scope(|scope| {
        let workers = [(&a, "a"), (&b, "b")].map(|(mount, id)| scope.spawn(move || work(mount, id)));
        let looked = lab.run(PYTHON, &["-c", script, "a/d"]).expect_success();
        (looked.out, workers.map(|worker| worker.join().expect("it ends")))
    });
    let numbers: Vec<u64> = looked.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let epochs = epochs("a") + epochs("b");
    println!("{done:?} times of work, {epochs} epochs; gone in {} of {} looks", numbers[0], numbers[1]);
    assert!(done.iter().all(|done| *done > 20), "{done:?}");
    assert!(epochs < 80, "{epochs} epochs");
    assert!(numbers[0] * 50 < numbers[1], "gone in {} of {} looks", numbers[0], numbers[1]);
    b.unmount(&lab);
    a.unmount(&lab);
}

/// Goal: who renames over or exchanges what another node has just moved there, once it has, is not refused. Method: names that one node has seen are changed by the
/// other, and then each in the place of the other by the first; two nodes exchange two files by turns.
#[test]
fn what_another_node_has_moved_is_renamed_at_the_first_try() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let exchange = |mount: &Mount, one: &str, other: &str| {
        let (one, other) = (mount.path(one), mount.path(other));
        rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)
    };
    for n in 0..20 {
        let dir = format!("d{n}");
        fs::create_dir(a.path(&dir)).expect("made");
        let at = |name: &str| format!("{dir}/{name}");
        for name in ["x", "y"] {
            fs::write(a.path(&at(&format!("{name}.tmp"))), name).expect("written");
            fs::metadata(b.path(&at(&format!("{name}.tmp")))).expect("seen");
        }
        for name in ["x", "y"] {
            fs::rename(a.path(&at(&format!("{name}.tmp"))), a.path(&at(name))).expect("renamed");
        }
        match n % 3 {
            0 => fs::rename(b.path(&at("x")), b.path(&at("y"))).expect("renamed over"),
            1 => exchange(&b, &at("x"), &at("y")).expect("exchanged"),
            _ => {
                let (one, other) = (b.path(&at("x")), b.path(&at("y")));
                let refused = rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::NOREPLACE);
                assert_eq!(refused, Err(Errno::EXIST));
                continue;
            }
        }
        assert_eq!(fs::read_to_string(a.path(&at("y"))).expect("read"), "x");
    }
    fs::write(a.path("p"), "0").expect("written");
    fs::write(a.path("q"), "1").expect("written");
    for n in 0..40 {
        exchange([&a, &b][n % 2], "p", "q").expect("exchanged");
    }
    let seen = ["p", "q"].map(|name| fs::read_to_string(b.path(name)).expect("read"));
    assert_eq!(seen, ["0", "1"]);
    b.unmount(&lab);
    a.unmount(&lab);
}

/// Goal: who takes a name that several nodes take by turns has it or finds it taken. Method: many rename each their own file to one name, and back when they have it.
#[test]
fn a_name_that_nodes_take_by_turns_is_taken_or_there() {
    let Some(lab) = Lab::new() else { return };
    let mounts = ["a", "b", "c"].map(|name| lab.mount(name));
    let until = Instant::now() + Duration::from_secs(8);
    let takes = |mount: &Mount, own: &str| {
        let (own, common) = (mount.path(own), mount.path("common"));
        fs::write(&own, "").expect("written");
        let (mut taken, mut random) = (0, fastrand::Rng::new());
        while Instant::now() < until {
            match rustix::fs::renameat_with(CWD, &own, CWD, &common, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    taken += 1;
                    std::thread::sleep(Duration::from_micros(random.u64(..300)));
                    fs::rename(&common, &own).expect("it is nobody else's");
                }
                Err(Errno::EXIST) => {}
                Err(error) => panic!("after {taken}: {error}"),
            }
        }
        taken
    };
    let taken: u32 = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..24)
            .map(|n| {
                let mount = &mounts[n % 3];
                scope.spawn(move || takes(mount, &format!("own{n}")))
            })
            .collect();
        takers.into_iter().map(|taker| taker.join().expect("it takes")).sum()
    });
    assert!(taken > 20, "{taken} times");
    for mount in mounts {
        mount.unmount(&lab);
    }
}

/// Goal: who reads a file that another node cuts and extends waits for what is under way, and not for a limit of time. Method: two threads of one node read all of it,
/// one of the other cuts and extends it.
#[test]
fn readers_of_a_file_that_is_cut_and_extended_elsewhere_do_not_stand_still() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::write(a.path("f"), vec![1; 20_000]).expect("written");
    let until = Instant::now() + Duration::from_secs(8);
    let go_on = |what: &str, step: &mut dyn FnMut()| {
        while Instant::now() < until {
            let since = Instant::now();
            step();
            assert!(since.elapsed() < Duration::from_millis(1900), "{what} took {:?}", since.elapsed());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let file = File::open(a.path("f")).expect("opened");
                let (mut random, mut bytes) = (fastrand::Rng::new(), [0; 4096]);
                go_on("a read", &mut || {
                    file.read_at(&mut bytes, random.u64(..24_000)).expect("read");
                });
            });
        }
        scope.spawn(|| {
            let file = File::options().write(true).open(b.path("f")).expect("opened");
            let mut random = fastrand::Rng::new();
            go_on("a change", &mut || match random.u8(..3) {
                0 => file.set_len(random.u64(..20_000)).expect("cut"),
                1 => file.set_len(20_000 + random.u64(..4000)).expect("extended"),
                _ => file.write_all_at(&[2; 1500], random.u64(..20_000)).expect("written"),
            });
        });
    });
    b.unmount(&lab);
    a.unmount(&lab);
}
