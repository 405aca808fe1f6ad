//! Damages every file of a volume in every way there is.
//!
//! Goal: whatever has become of any file, the damage is found by checking the volume, and by scrubbing it, and named, files that it does not
//! touch can be read, nobody is ever served bytes or names that were not written, and nothing panics. Method: a real volume with
//! everything in it, its files found by walking, so that none is forgotten; for each of them each damage on a copy of
//! its own, which is checked as `fsck --data` does, then mounted and read.
//!
//! The first file of a kind is damaged in every way, the others in a few; with `HOLDFAST_DAMAGE=all` all in every way, with
//! `HOLDFAST_DAMAGE=PART` those whose path and damage have it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, symlink};
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chunk::ExtentMap;
use common::Scratch;
use kv::{Batch, Claim, Engine, EngineError, KeyRange};
use kv_fjall::{FjallEngine, Options};
use meta::{Body, Child, Dirent, Key};
use node::{DataCheck, MountOptions, Offline, Purpose};
use rustix::fs::XattrFlags;
use testkit::crash_disk::{CrashDisk, Image, Promise};
use volume::FormatOptions;

/// What is done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    CutTo(u64),
    Flip(u64),
    Removed,
    Zeroed,
    ZeroedPage(u64),
    /// With the next of its kind, in order.
    Exchanged,
    /// A directory is in its place: every attempt to read it fails.
    Unreadable,
}

/// What is at a path of the mounted volume.
type Tree = BTreeMap<String, Vec<u8>>;

/// A volume with everything in it.
struct Template {
    dir: PathBuf,
    tree: Tree,
    /// Files in which bytes of a path are.
    segments: BTreeMap<String, BTreeSet<String>>,
    /// Bytes of each segment that files need, their headers included.
    live: BTreeMap<String, Vec<Range<u64>>>,
}

impl Drop for Template {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.dir).unwrap();
    }
}

impl Template {
    /// Makes one, on a disk so small that metadata go into tables. `None` where nothing can be mounted.
    fn new(dir: &Path) -> Option<Self> {
        volume::accept_fuse();
        let scratch = Scratch::empty(dir)?;
        let at = dir.join("disk");
        fs::create_dir(&at).unwrap();
        let disk = CrashDisk::mount(&at, Image::empty(), 64 << 20).unwrap();
        fs::create_dir(at.join("at")).unwrap();
        let on_disk = Scratch { dir: at.clone() };
        let format = FormatOptions { reserve_bytes: Some(4 << 20), ..FormatOptions::default() };
        volume::format(&on_disk.volume(), &format).unwrap();
        let mounted = on_disk.mount("at");
        fill(&mounted.root);
        mounted.unmount().unwrap();
        let mounted = on_disk.mount("at");
        // What is only in a journal, too.
        fs::write(mounted.path("last"), [9; 5_000]).unwrap();
        fs::write(mounted.path("last-inline"), [9; 50]).unwrap();
        let tree = read_tree(&mounted.root).unwrap();
        mounted.unmount().unwrap();
        std::mem::forget(on_disk);
        let log = disk.finish();
        let mut replay = log.replay(Promise::Nothing);
        replay.advance(log.len());
        let volume = dir.join("vol");
        fs::create_dir(&volume).unwrap();
        replay.seen().store("vol", &volume).unwrap();
        std::mem::forget(scratch);
        let segments = segments_of(&volume, &tree);
        let live = live_bytes(&volume);
        Some(Self { dir: dir.to_owned(), tree, segments, live })
    }

    fn volume(&self) -> PathBuf {
        self.dir.join("vol")
    }

    /// All files of the volume, as paths below it, by kind. What a file is called but for numbers is its kind.
    fn files(&self) -> BTreeMap<String, Vec<String>> {
        let mut found = Vec::new();
        walk(&self.volume(), "", &mut found);
        let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for path in found {
            let is_digit =
                |byte: char| byte.is_ascii_digit() || path.ends_with(".seg") && byte.is_ascii_hexdigit();
            let name = path.rsplit('/').next().unwrap_or(&path);
            let dir = &path[..path.len() - name.len()];
            let kind = dir.chars().chain(name.chars().map(|c| if is_digit(c) { '#' } else { c })).collect();
            kinds.entry(kind).or_default().push(path);
        }
        kinds
    }
}

fn walk(dir: &Path, prefix: &str, found: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            walk(&entry.path(), &format!("{path}/"), found);
        } else if !kind.is_socket() {
            found.push(path);
        }
    }
}

/// Everything that metadata and segments can hold.
fn fill(root: &Path) {
    let bytes = |seed: u32, len: usize| -> Vec<u8> {
        (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761).wrapping_add(seed * 97) >> 13) as u8).collect()
    };
    for dir in 0..4 {
        fs::create_dir(root.join(format!("d{dir}"))).unwrap();
        for file in 0..110 {
            fs::write(root.join(format!("d{dir}/inline{file}")), bytes(file, 3_500)).unwrap();
        }
        for file in 0..3 {
            fs::write(root.join(format!("d{dir}/extents{file}")), bytes(file, 150_000 + dir * 90_000))
                .unwrap();
        }
    }
    fs::write(root.join("large"), bytes(5, 2_500_000)).unwrap();
    // So many pieces that they do not fit a record.
    let paged = File::create(root.join("paged")).unwrap();
    for piece in 0..80 {
        paged.write_all_at(&bytes(piece, 6_000), u64::from(piece) * 20_000).unwrap();
    }
    drop(paged);
    fs::hard_link(root.join("d0/inline0"), root.join("linked")).unwrap();
    fs::hard_link(root.join(SECOND_NAMES[0]), root.join(SECOND_NAMES[1])).unwrap();
    symlink("d0/inline0", root.join("symlink")).unwrap();
    for (name, len) in [("user.small", 20), ("user.spilled", 3_000)] {
        rustix::fs::setxattr(root.join("paged"), name, &bytes(7, len), XattrFlags::empty()).unwrap();
    }
    // Overwritten and removed, so that there are old versions and dead bytes.
    fs::write(root.join("d2/extents1"), bytes(77, 200_000)).unwrap();
    fs::remove_file(root.join("d3/extents0")).unwrap();
    for file in 0..110 {
        fs::write(root.join(format!("d1/inline{file}")), bytes(file + 1_000, 3_000)).unwrap();
    }
}

/// All names with what is at them; the bytes of a directory are its names, and a link's its target.
fn read_tree(root: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    read_below(root, "", &mut |path, read| {
        tree.insert(path, read?);
        Ok(())
    })?;
    Ok(tree)
}

/// Calls `each` for every name. Extended attributes are read as if they were files beside.
fn read_below(
    dir: &Path,
    prefix: &str,
    each: &mut dyn FnMut(String, io::Result<Vec<u8>>) -> io::Result<()>,
) -> io::Result<()> {
    let names = fs::read_dir(dir).and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
    let mut names: Vec<std::ffi::OsString> = match names {
        Ok(names) => names,
        Err(error) => return each(format!("{prefix}."), Err(error)),
    };
    names.sort();
    let list = names.iter().map(|name| name.to_string_lossy()).collect::<Vec<_>>().join(" ");
    each(format!("{prefix}."), Ok(list.into_bytes()))?;
    for name in names {
        let (at, path) = (dir.join(&name), format!("{prefix}{}", name.to_string_lossy()));
        let metadata = match fs::symlink_metadata(&at) {
            Ok(metadata) => metadata,
            Err(error) => {
                each(path, Err(error))?;
                continue;
            }
        };
        if metadata.is_dir() {
            read_below(&at, &format!("{path}/"), each)?;
        } else if metadata.is_symlink() {
            each(path, fs::read_link(&at).map(|target| target.to_string_lossy().into_owned().into_bytes()))?;
        } else {
            each(path.clone(), fs::read(&at))?;
            for name in ["user.small", "user.spilled"] {
                let mut value = vec![0; 4_096];
                match rustix::fs::getxattr(&at, name, &mut value[..]) {
                    Ok(len) => each(format!("{path} {name}"), Ok(value[..len].to_vec()))?,
                    Err(rustix::io::Errno::NODATA) => {}
                    Err(errno) => each(format!("{path} {name}"), Err(errno.into()))?,
                }
            }
        }
    }
    Ok(())
}

/// Which segments each path has bytes in: those whose removal makes it unreadable.
fn segments_of(volume: &Path, tree: &Tree) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let offline = Offline::open(volume, Purpose::Look).unwrap();
    let report = offline.check(DataCheck::Sums).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
    let mut names = Vec::new();
    walk(&volume.join("segments"), "segments/", &mut names);
    for name in names {
        let (path, away) = (volume.join(&name), volume.join("away"));
        fs::rename(&path, &away).unwrap();
        for fault in offline.check(DataCheck::Lengths).unwrap().faults {
            let Some(path) = fault.path.filter(|_| fault.kind == check::FaultKind::MissingData) else {
                continue;
            };
            found.entry(path.trim_start_matches('/').to_owned()).or_default().insert(name.clone());
        }
        fs::rename(&away, &path).unwrap();
    }
    // A report names one path of an inode.
    let other = found[SECOND_NAMES[0]].clone();
    found.insert(SECOND_NAMES[1].to_owned(), other);
    assert!(found.len() >= 14 && found.keys().all(|path| tree.contains_key(path)), "{found:?}");
    found
}

/// What extents name in each segment.
fn live_bytes(volume: &Path) -> BTreeMap<String, Vec<Range<u64>>> {
    let engine = open_engine(volume);
    let mut maps: Vec<ExtentMap> = Vec::new();
    kv::scan_all(&engine, KeyRange::new(vec![1], vec![0xff; 32]), |(key, value)| {
        let content = match Key::from_slice(&key) {
            Some(Key::ExtentPage(..)) => return maps.push(meta::value_decode(&key, &value).unwrap()),
            Some(Key::Content(_)) => meta::value_decode(&key, &value).unwrap(),
            Some(Key::Entry(..)) => match meta::value_decode::<Dirent>(&key, &value).unwrap().child {
                Child::Covered { inode } => inode.content.clone(),
                Child::Own { .. } => return,
            },
            _ => return,
        };
        if let Body::Extents { map } = content.body {
            maps.push(map);
        }
    })
    .unwrap();
    let mut live: BTreeMap<String, Vec<Range<u64>>> = BTreeMap::new();
    for extent in maps.iter().flat_map(ExtentMap::iter) {
        let (run, file) = (extent.run(), format!("segments/{:016x}.seg", extent.segment().0));
        let header = chunk::RUN_HEADER_LEN as u64;
        let ranges = live.entry(file).or_insert_with(|| vec![0..chunk::SEGMENT_HEADER_LEN as u64]);
        ranges.push(run.offset() - header..run.offset() + u64::from(run.len()));
    }
    live
}

/// The damages of a file that is `len` bytes long.
fn damages(len: u64, has_sibling: bool) -> Vec<Damage> {
    let cuts = [0, 1, 63, 64, 127, 4_096, len / 2, len.saturating_sub(1)];
    let flips = [
        0,
        4,
        8,
        12,
        16,
        24,
        32,
        40,
        48,
        60,
        64,
        68,
        80,
        88,
        96,
        104,
        112,
        200,
        4_096,
        4_112,
        len / 3,
        len / 2,
        len.saturating_sub(30),
        len.saturating_sub(1),
    ];
    let mut all: Vec<Damage> = vec![Damage::Removed, Damage::Unreadable, Damage::Zeroed];
    all.extend(has_sibling.then_some(Damage::Exchanged));
    all.extend(cuts.into_iter().filter(|cut| *cut < len).map(Damage::CutTo));
    all.extend([len / 4, len / 2].map(|at| Damage::ZeroedPage(at / 4096 * 4096)));
    all.extend(flips.into_iter().filter(|offset| *offset < len).map(Damage::Flip));
    let mut seen = Vec::new();
    all.retain(|damage| {
        !seen.contains(damage) && {
            seen.push(*damage);
            true
        }
    });
    all
}

/// Bytes up to the last that is not zero: a journal has room behind it.
fn used_len(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap();
    match path.extension().is_some_and(|extension| extension == "jnl") {
        true => bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1),
        false => bytes.len() as u64,
    }
}

fn damage(volume: &Path, file: &str, sibling: Option<&str>, damage: Damage) {
    let path = volume.join(file);
    let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
    match damage {
        Damage::CutTo(len) => open().set_len(len).unwrap(),
        Damage::Flip(offset) => {
            let mut byte = [0];
            open().read_exact_at(&mut byte, offset).unwrap();
            open().write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
        }
        Damage::Removed => fs::remove_file(&path).unwrap(),
        Damage::Zeroed => fs::write(&path, vec![0; used_len(&path) as usize]).unwrap(),
        Damage::ZeroedPage(offset) => {
            let len = (used_len(&path) - offset).min(4096);
            open().write_all_at(&vec![0; len as usize], offset).unwrap();
        }
        Damage::Exchanged => {
            let other = volume.join(sibling.unwrap());
            fs::rename(&path, volume.join("between")).unwrap();
            fs::rename(&other, &path).unwrap();
            fs::rename(volume.join("between"), &other).unwrap();
        }
        Damage::Unreadable => {
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
        }
    }
}

/// Two names of one file.
const SECOND_NAMES: [&str; 2] = ["d0/extents0", "d1/linked"];

/// What came of a case.
#[derive(Debug, Default)]
struct Outcome {
    /// What the check said; `None` if it found nothing.
    check: Option<String>,
    /// Why it was not mounted.
    mount: Option<String>,
    /// Paths that could not be read.
    unreadable: BTreeSet<String>,
    /// What is wrong with the outcome.
    problems: Vec<String>,
}

/// What a report says; `None` if it found nothing.
fn said(report: Result<check::Report, node::OfflineError>) -> Option<String> {
    match report {
        Err(error) => Some(chain(&error)),
        Ok(report) if report.is_clean() => None,
        Ok(report) => Some(report.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    }
}

/// Checks, mounts and reads a volume, and compares it with what was written.
fn judge_both(template: &Template, scratch: &Scratch, outcome: &mut Outcome) {
    match Offline::open(&scratch.volume(), Purpose::Look) {
        Err(error) => outcome.check = Some(chain(&error)),
        Ok(offline) => {
            outcome.check = said(offline.check(DataCheck::Sums));
            let scrubbed = said(offline.scrub(None).map(|scrubbed| scrubbed.report));
            if scrubbed.is_some() != outcome.check.is_some() {
                outcome.problems.push(format!("a scrub says {scrubbed:?}"));
            }
        }
    }
    match scratch.mount_with("at", MountOptions::default()) {
        Err(error) => outcome.mount = Some(chain(&error)),
        Ok(mounted) => {
            let read = read_below(&mounted.root, "", &mut |path, read| {
                match (read, template.tree.get(&path)) {
                    (Ok(bytes), Some(expected)) if bytes == *expected => {}
                    (Ok(bytes), Some(expected)) => outcome.problems.push(format!(
                        "{path} is wrong: {} bytes of {}, the same up to {}",
                        bytes.len(),
                        expected.len(),
                        bytes.iter().zip(expected).take_while(|(a, b)| a == b).count()
                    )),
                    (Ok(_), None) => outcome.problems.push(format!("{path} was never there")),
                    (Err(_), _) => _ = outcome.unreadable.insert(path),
                }
                Ok(())
            });
            read.unwrap();
            if let Err(error) = mounted.unmount() {
                outcome.unreadable.insert(format!("(unmount: {})", chain(&error)));
            }
        }
    }
}

/// Checks, mounts and reads a damaged volume.
fn judge(
    template: &Template,
    scratch: &Scratch,
    file: &str,
    sibling: Option<&str>,
    damage: Damage,
) -> Outcome {
    let mut outcome = Outcome::default();
    judge_both(template, scratch, &mut outcome);
    let is_segment = file.starts_with("segments/");
    if is_segment {
        let sibling = sibling.filter(|_| damage == Damage::Exchanged);
        judge_contained(template, &[Some(file), sibling], &mut outcome);
    }
    let is_whole = outcome.mount.is_none() && outcome.unreadable.is_empty() && outcome.problems.is_empty();
    let len = used_len(&template.volume().join(file));
    if outcome.check.is_none() && !(is_whole && is_harmless(template, file, len, damage)) {
        outcome.problems.push("nobody finds it".to_owned());
    }
    if outcome.check.as_ref().is_some_and(|message| !is_named(file, message)) {
        outcome.problems.push("the check does not name the file".to_owned());
    }
    outcome
}

/// Whether a message says which file it is about.
fn is_named(file: &str, message: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    if let Some(digits) = name.strip_suffix(".seg") {
        return message.contains(&format!("segment {} ", u64::from_str_radix(digits, 16).unwrap()));
    }
    // Without its header it is no volume, and without journals none has a name.
    let instead = match name {
        "holdfast.volume" => Some("vol: no Holdfast volume here"),
        name if name.ends_with(".jnl") => Some("there is no journal"),
        _ => None,
    };
    let path = file.strip_prefix("meta/").unwrap_or(file);
    message.contains(path)
        || instead.is_some_and(|text| message.contains(text))
        || message.contains("`current` beside")
}

/// Damage of a segment is no business of files that have nothing in it.
fn judge_contained(template: &Template, files: &[Option<&str>], outcome: &mut Outcome) {
    if let Some(error) = &outcome.mount {
        outcome.problems.push(format!("a segment keeps the volume from being mounted: {error}"));
    }
    for path in &outcome.unreadable {
        let is_touched =
            |file: &&str| template.segments.get(path).is_some_and(|segments| segments.contains(*file));
        if !files.iter().flatten().any(is_touched) {
            outcome.problems.push(format!("{path} has nothing in {files:?} and cannot be read"));
        }
    }
}

/// Damage that need not be found, if nothing of the volume is missing with it.
fn is_harmless(template: &Template, file: &str, len: u64, damage: Damage) -> bool {
    let bytes = match damage {
        Damage::CutTo(offset) => offset..len,
        Damage::Flip(offset) => offset..offset + 1,
        Damage::ZeroedPage(offset) => offset..offset + 4096,
        Damage::Removed | Damage::Zeroed | Damage::Exchanged | Damage::Unreadable => 0..len,
    };
    match file {
        // Their bytes mean nothing.
        "master.lock" | "reserve" | "meta/lock" | "meta/engine/lock" => true,
        // Two slots, and one is enough; a torn one is normal.
        "meta/witness" => bytes.start >= 64 || bytes.end <= 4096,
        // The last entry is the claim of whoever opened it, which the witness has as well.
        _ if file.ends_with(".jnl") => bytes.start + 200 > len,
        // What no file needs any more, and zeros behind runs.
        _ if file.ends_with(".seg") => {
            let is_live = |live: &Range<u64>| live.start < bytes.end && bytes.start < live.end;
            !template.live.get(file).into_iter().flatten().any(is_live)
        }
        _ => false,
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&path, &target);
        } else if path.extension().is_some_and(|extension| extension == "jnl") {
            // The room behind a journal is zeros.
            let mut bytes = fs::read(&path).unwrap();
            let len = bytes.len() as u64;
            bytes.truncate(used_len(&path) as usize);
            fs::write(&target, bytes).unwrap();
            OpenOptions::new().write(true).open(&target).unwrap().set_len(len).unwrap();
        } else if !entry.file_type().unwrap().is_socket() {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// In memory if that is possible.
fn scratch_dir() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    parent.join(format!("holdfast-damage-{}", std::process::id()))
}

/// One test at a time: a process that is just being started by one has the locks of the other open until it has become
/// another program.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Panics of ours, whoever catches them.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map_or(String::new(), ToString::to_string);
        if place.starts_with("crates/") && !place.contains("/tests/") {
            PANICS.lock().unwrap().push(format!("{place}: {info}"));
        }
        usual(info);
    }));
}

#[test]
fn no_damage_to_any_file_is_served_or_spreads() {
    let _turn = turn();
    let dir = scratch_dir();
    let Some(template) = Template::new(&dir) else { return };
    let since = Instant::now();
    note_panics();
    let wanted = std::env::var("HOLDFAST_DAMAGE").unwrap_or_default();
    // Of those that are asked for by name each outcome is shown.
    let shows_all = !["", "all"].contains(&wanted.as_str());
    let (mut cases, mut failures) = (0, Vec::new());
    for (kind, files) in template.files() {
        println!("{kind}: {} files", files.len());
        for (index, file) in files.iter().enumerate() {
            let sibling = files.get(index + 1).map(String::as_str);
            let mut list = damages(used_len(&template.volume().join(file)), sibling.is_some());
            if index > 0 && wanted.is_empty() {
                list = list.into_iter().skip(index % 4).step_by(8).collect();
            }
            for each in list {
                if shows_all && !format!("{file} {each:?}").contains(&wanted) {
                    continue;
                }
                let scratch = Scratch { dir: dir.join("case") };
                copy_tree(&template.volume(), &scratch.volume());
                damage(&scratch.volume(), file, sibling, each);
                let mut outcome = judge(&template, &scratch, file, sibling, each);
                outcome.problems.append(&mut PANICS.lock().unwrap());
                cases += 1;
                if !outcome.problems.is_empty() || shows_all {
                    failures.push(format!("{file} {each:?}: {outcome:.700?}"));
                }
            }
        }
    }
    println!("{cases} cases, {:.1} s", since.elapsed().as_secs_f64());
    if shows_all {
        return println!("{}", failures.join("\n"));
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// Opens the engine of a volume that nobody uses, as its next master.
fn open_engine(volume: &Path) -> FjallEngine {
    const PATIENCE: Duration = Duration::from_secs(10);
    let (mut generation, since) = (1, Instant::now());
    loop {
        match FjallEngine::open(&volume.join("meta"), Options::default(), Claim::new(generation)) {
            Ok(engine) => return engine,
            Err(EngineError::Fenced { stored, .. }) => generation = stored.0 + 1,
            // A process that another test has just forked holds the lock until it executes its program.
            Err(EngineError::Unavailable { .. }) if since.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Some records of each kind, those of the root and of paged files among them.
fn records(volume: &Path) -> Vec<(Key, Vec<u8>)> {
    let engine = open_engine(volume);
    let mut kinds: BTreeMap<u8, Vec<(Key, Vec<u8>)>> = BTreeMap::new();
    kv::scan_all(&engine, KeyRange::new(vec![1], vec![0xff; 32]), |(key, value)| {
        kinds.entry(key[0]).or_default().push((Key::from_slice(&key).unwrap(), value));
    })
    .unwrap();
    let some = |list: Vec<(Key, Vec<u8>)>| {
        let step = list.len().div_ceil(6);
        list.into_iter().step_by(step)
    };
    assert!(kinds.len() >= 8, "{:?}", kinds.keys());
    kinds.into_values().flat_map(some).collect()
}

/// A record whose bytes the engine gives back as they were stored, and that are not what was written.
#[test]
fn no_damage_to_any_record_is_served() {
    let _turn = turn();
    let dir = scratch_dir().with_extension("records");
    let Some(template) = Template::new(&dir) else { return };
    note_panics();
    let mut failures = Vec::new();
    let records = records(&template.volume());
    println!("{} records", records.len());
    for (key, value) in records {
        let scratch = Scratch { dir: dir.join("case") };
        copy_tree(&template.volume(), &scratch.volume());
        let engine = open_engine(&scratch.volume());
        let mut bytes = value.clone();
        bytes[value.len() / 2] ^= 0x04;
        let puts = vec![(key.to_vec(), bytes)];
        engine.commit(Batch { puts, ..Batch::new(engine.last_seq().next()) }).unwrap();
        engine.sync().unwrap();
        drop(engine);
        let mut outcome = Outcome::default();
        judge_both(&template, &scratch, &mut outcome);
        if !outcome.check.as_ref().is_some_and(|message| message.contains(&format!("{key:?}"))) {
            outcome.problems.push("the check does not name it".to_owned());
        }
        if let Key::Entry(..) = key {
            // A damaged entry is left out of its directory (docs/semantics.md).
            outcome.problems.retain(|problem| !problem.contains(". is wrong"));
        }
        outcome.problems.append(&mut PANICS.lock().unwrap());
        if !outcome.problems.is_empty() {
            failures.push(format!("{key:?}: {outcome:.700?}"));
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}
