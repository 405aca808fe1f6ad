use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use fastrand::Rng;

use super::*;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("crash-disk-{}-{name}", std::process::id()));
        fs::create_dir_all(dir.join("disk")).unwrap();
        Self(dir)
    }

    fn disk(&self) -> PathBuf {
        self.0.join("disk")
    }

    /// What an image holds: names, with what is in files.
    fn read(&self, image: &Image) -> BTreeSet<(String, Vec<u8>)> {
        let dir = self.0.join("image");
        fs::create_dir(&dir).unwrap();
        image.store("", &dir).unwrap();
        let names = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let found = names
            .map(|path| {
                let content = if path.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
                (path.file_name().unwrap().to_str().unwrap().to_owned(), content)
            })
            .collect();
        fs::remove_dir_all(&dir).unwrap();
        found
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn mounted(scratch: &Scratch) -> Option<CrashDisk> {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        println!("SKIPPED: mounting needs root and /dev/fuse");
        return None;
    }
    Some(CrashDisk::mount(&scratch.disk(), Image::empty(), 64 << 20).unwrap())
}

/// All that hundreds of crashes leave at `position`.
fn crashes(
    scratch: &Scratch,
    log: &Log,
    promise: Promise,
    position: usize,
) -> BTreeSet<Vec<(String, Vec<u8>)>> {
    let mut replay = log.replay(promise);
    replay.advance(position);
    let mut random = Rng::with_seed(1);
    (0..1_000).map(|_| scratch.read(&replay.crash(&mut random)).into_iter().collect()).collect()
}

#[test]
fn what_was_synced_is_there_and_the_rest_is_a_matter_of_chance() {
    let scratch = Scratch::new("synced");
    let Some(disk) = mounted(&scratch) else { return };
    let mut file = File::create(scratch.disk().join("a")).unwrap();
    file.write_all(&[1; 1024]).unwrap();
    file.sync_all().unwrap();
    File::open(scratch.disk()).unwrap().sync_all().unwrap();
    let synced = disk.position();
    file.write_all_at(&[2; 1024], 512).unwrap();
    fs::rename(scratch.disk().join("a"), scratch.disk().join("b")).unwrap();
    let end = disk.position();
    drop(file);
    let log = disk.finish();

    let a = |content: &[&[u8]]| vec![("a".to_owned(), content.concat())];
    for promise in [Promise::OrderedNames, Promise::Nothing] {
        assert_eq!(crashes(&scratch, &log, promise, synced), BTreeSet::from([a(&[&[1; 1024]])]));
        let found = crashes(&scratch, &log, promise, end);
        let sectors = |content: &Vec<u8>| -> Vec<u8> { content.iter().copied().step_by(512).collect() };
        let contents: BTreeSet<Vec<u8>> =
            found.iter().flatten().map(|(_, content)| sectors(content)).collect();
        let expected = [&[1, 1][..], &[1, 2], &[1, 1, 0], &[1, 1, 2], &[1, 2, 0], &[1, 2, 2]];
        assert_eq!(contents, expected.map(<[u8]>::to_vec).into(), "{promise:?}");
        assert!(found.iter().all(|image| image.len() == 1), "a rename is whole");
    }
}

#[test]
fn names_survive_in_order_or_each_for_itself() {
    let scratch = Scratch::new("names");
    let Some(disk) = mounted(&scratch) else { return };
    for name in ["a", "b", "c"] {
        fs::create_dir(scratch.disk().join(name)).unwrap();
    }
    let end = disk.position();
    let log = disk.finish();
    let images = |promise| -> BTreeSet<String> {
        let found = crashes(&scratch, &log, promise, end);
        found.into_iter().map(|image| image.into_iter().map(|(name, _)| name).collect()).collect()
    };
    let text = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(images(Promise::OrderedNames), text(&["", "a", "ab", "abc"]));
    assert_eq!(images(Promise::Nothing), text(&["", "a", "ab", "abc", "b", "c", "ac", "bc"]));
}

#[test]
fn a_sync_of_a_file_takes_names_along_only_where_they_are_ordered() {
    let scratch = Scratch::new("file");
    let Some(disk) = mounted(&scratch) else { return };
    File::create(scratch.disk().join("other")).unwrap();
    let file = File::create(scratch.disk().join("f")).unwrap();
    file.sync_data().unwrap();
    let data = disk.position();
    file.sync_all().unwrap();
    let all = disk.position();
    drop(file);
    let log = disk.finish();
    let both = vec![("f".to_owned(), vec![]), ("other".to_owned(), vec![])];
    assert_eq!(crashes(&scratch, &log, Promise::OrderedNames, all), BTreeSet::from([both]));
    assert_eq!(crashes(&scratch, &log, Promise::OrderedNames, data).len(), 3);
    assert_eq!(crashes(&scratch, &log, Promise::Nothing, all).len(), 4);
}

#[test]
fn a_directory_takes_along_what_its_names_build_on() {
    let scratch = Scratch::new("builds");
    let Some(disk) = mounted(&scratch) else { return };
    let at = |name: &str| scratch.disk().join(name);
    fs::create_dir(at("d")).unwrap();
    File::create(at("new")).unwrap();
    fs::rename(at("new"), at("d/old")).unwrap();
    File::create(at("other")).unwrap();
    File::open(at("d")).unwrap().sync_all().unwrap();
    let end = disk.position();
    let log = disk.finish();
    let found = crashes(&scratch, &log, Promise::Nothing, end);
    let names =
        |image: &Vec<(String, Vec<u8>)>| image.iter().map(|(name, _)| name.clone()).collect::<String>();
    let names: BTreeSet<String> = found.iter().map(names).collect();
    // Renamed away for good, while the directory's own name may be lost, and the other file's too.
    assert_eq!(names, BTreeSet::from(["", "d", "other", "dother"].map(str::to_owned)));
}

#[test]
fn it_is_a_file_system_and_goes_on_from_an_image() {
    let scratch = Scratch::new("goes-on");
    let Some(disk) = mounted(&scratch) else { return };
    let at = |name: &str| scratch.disk().join(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/f"), vec![7; 10_000]).unwrap();
    fs::hard_link(at("d/f"), at("g")).unwrap();
    let file = OpenOptions::new().write(true).open(at("g")).unwrap();
    file.set_len(6_000).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(fs::read(at("d/f")).unwrap(), vec![7; 6_000]);
    assert_eq!(fs::remove_dir(at("d")).unwrap_err().kind(), std::io::ErrorKind::DirectoryNotEmpty);
    drop(file);
    let log = disk.finish();
    let mut replay = log.replay(Promise::Nothing);
    replay.advance(log.len());

    let disk = CrashDisk::mount(&scratch.disk(), replay.seen(), 64 << 20).unwrap();
    assert_eq!(fs::read(at("g")).unwrap(), vec![7; 6_000]);
    fs::remove_file(at("g")).unwrap();
    let log = disk.finish();
    let mut replay = log.replay(Promise::Nothing);
    assert_eq!(scratch.read(&replay.crash(&mut Rng::with_seed(3))).len(), 2);
    replay.advance(log.len());
    assert_eq!(scratch.read(&replay.seen()).len(), 1);
}
