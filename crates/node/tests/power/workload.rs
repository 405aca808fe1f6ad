//! One process at work on a mount, over a disk that keeps a log.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use rustix::fs::XattrFlags;
use testkit::crash_disk::CrashDisk;

use super::history::{History, Kind, Object};

/// Does one thing after the other and notes all of it.
pub struct Worker<'a> {
    pub history: History,
    disk: &'a CrashDisk,
    root: PathBuf,
    random: Rng,
    /// Files that stay open, with or without a name.
    open: Vec<(File, usize)>,
}

impl<'a> Worker<'a> {
    pub fn new(history: History, disk: &'a CrashDisk, root: &Path, seed: u64) -> Self {
        Self { history, disk, root: root.to_owned(), random: Rng::with_seed(seed), open: Vec::new() }
    }

    /// Does something. What cannot be done at the moment is not.
    pub fn step(&mut self) {
        match self.random.u8(0..100) {
            0..16 => self.create(),
            16..22 => self.mkdir(),
            22..44 => self.write(),
            44..50 => self.truncate(),
            50..60 => self.rename(),
            60..66 => self.unlink(),
            66..68 => self.rmdir(),
            68..73 => self.link(),
            73..76 => self.symlink(),
            76..80 => self.chmod(),
            80..85 => self.xattr(),
            85..95 => self.sync(),
            95..98 => _ = self.open.pop(),
            _ => std::thread::sleep(Duration::from_millis(self.random.u64(1..60))),
        }
    }

    /// Closes everything.
    pub fn finish(self) -> History {
        self.history
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn now(&self) -> usize {
        self.disk.position()
    }

    fn pick(&mut self, is_wanted: impl Fn(&str, &Object) -> bool) -> Option<(String, usize)> {
        let objects = &self.history.objects;
        let names = self.history.names.iter().filter(|(path, index)| is_wanted(path, &objects[**index]));
        let names: Vec<_> = names.map(|(path, index)| (path.clone(), *index)).collect();
        (!names.is_empty()).then(|| names[self.random.usize(0..names.len())].clone())
    }

    fn file(&mut self) -> Option<(String, usize)> {
        self.pick(|_, object| object.kind == Kind::File)
    }

    /// A path in some directory that may have something there already.
    fn any_path(&mut self) -> String {
        let dir = self.pick(|path, object| object.kind == Kind::Directory && path.split('/').count() < 4);
        let dir = dir.map_or(String::new(), |(path, _)| path);
        let name = ["a", "b", "c", "d", "e", "f", "g"][self.random.usize(0..7)];
        if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
    }

    fn free_path(&mut self) -> Option<String> {
        let path = self.any_path();
        (!self.history.names.contains_key(&path)).then_some(path)
    }

    /// Notes a new object that came to be at `path`.
    fn made(&mut self, path: String, kind: Kind, began: usize) -> usize {
        let metadata = fs::symlink_metadata(self.at(&path)).unwrap();
        let index = self.history.objects.len();
        self.history.objects.push(Object::new(metadata.ino(), kind, metadata.mode() & 0o7777));
        self.history.names.insert(path, index);
        if kind == Kind::File {
            self.history.wrote(index, began, Vec::new());
        }
        index
    }

    fn create(&mut self) {
        let Some(path) = self.free_path() else { return };
        let began = self.now();
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(self.at(&path)).unwrap();
        let index = self.made(path, Kind::File, began);
        self.history.changed(began);
        if self.random.u8(0..3) > 0 {
            self.write_to(&file, index);
        }
        if self.random.u8(0..4) == 0 && self.open.len() < 3 {
            self.open.push((file, index));
        }
    }

    fn mkdir(&mut self) {
        let Some(path) = self.free_path() else { return };
        let began = self.now();
        fs::create_dir(self.at(&path)).unwrap();
        self.made(path, Kind::Directory, began);
        self.history.changed(began);
    }

    fn symlink(&mut self) {
        let Some(path) = self.free_path() else { return };
        let began = self.now();
        let target = "x".repeat(self.random.usize(1..200));
        symlink(&target, self.at(&path)).unwrap();
        let index = self.made(path, Kind::Symlink, began);
        self.history.objects[index].target = target;
        self.history.changed(began);
    }

    fn write(&mut self) {
        if !self.open.is_empty() && self.random.bool() {
            let (file, index) = self.open.pop().unwrap();
            self.write_to(&file, index);
            self.open.push((file, index));
            return;
        }
        let Some((path, index)) = self.file() else { return };
        let file = OpenOptions::new().write(true).open(self.at(&path)).unwrap();
        self.write_to(&file, index);
    }

    /// One write, mostly one request of the kernel.
    fn write_to(&mut self, file: &File, index: usize) {
        let mut bytes = self.history.bytes(index).to_vec();
        let len = match self.random.u8(0..10) {
            0..4 => self.random.usize(1..300),
            4..7 => self.random.usize(3_000..6_000),
            _ => self.random.usize(20_000..128_000),
        };
        let offset = match self.random.u8(0..4) {
            0 => 0,
            1 => self.random.usize(0..=bytes.len()),
            2 => bytes.len() + self.random.usize(0..10_000),
            _ => bytes.len(),
        };
        let offset = if bytes.len() > 400_000 { self.random.usize(0..100_000) } else { offset };
        let data: Vec<u8> = std::iter::repeat_with(|| self.random.u8(1..)).take(len).collect();
        let began = self.now();
        file.write_all_at(&data, offset as u64).unwrap();
        bytes.resize(bytes.len().max(offset + len), 0);
        bytes[offset..offset + len].copy_from_slice(&data);
        self.history.wrote(index, began, bytes);
    }

    fn truncate(&mut self) {
        let Some((path, index)) = self.file() else { return };
        let mut bytes = self.history.bytes(index).to_vec();
        let len = match self.random.u8(0..3) {
            0 => 0,
            _ => self.random.usize(0..=bytes.len() + 5_000),
        };
        let began = self.now();
        OpenOptions::new().write(true).open(self.at(&path)).unwrap().set_len(len as u64).unwrap();
        bytes.resize(len, 0);
        self.history.wrote(index, began, bytes);
    }

    fn rename(&mut self) {
        let Some((from, index)) = self.pick(|path, _| !path.is_empty()) else { return };
        let to = self.any_path();
        let replaced = self.history.names.get(&to).copied();
        let is_dir = self.history.objects[index].kind == Kind::Directory;
        let is_below = format!("{to}/").starts_with(&format!("{from}/"));
        // Into itself, over a directory or by one, and two names of one file: refused, or nothing happens.
        let is_odd = replaced
            .is_some_and(|old| old == index || is_dir || self.history.objects[old].kind == Kind::Directory);
        if is_below || is_odd {
            return;
        }
        let began = self.now();
        fs::rename(self.at(&from), self.at(&to)).unwrap();
        self.history.bind_content(index);
        let below = format!("{from}/");
        let moved: Vec<_> =
            self.history.names.keys().filter(|path| path.starts_with(&below)).cloned().collect();
        for path in moved {
            let object = self.history.names.remove(&path).unwrap();
            self.history.names.insert(format!("{to}/{}", &path[below.len()..]), object);
        }
        self.history.names.remove(&from);
        self.history.names.insert(to, index);
        self.history.changed(began);
    }

    fn unlink(&mut self) {
        let Some((path, index)) = self.pick(|_, object| object.kind != Kind::Directory) else { return };
        if self.history.objects[index].kind == Kind::File && self.random.u8(0..3) == 0 && self.open.len() < 3
        {
            let file = OpenOptions::new().write(true).open(self.at(&path)).unwrap();
            self.open.push((file, index));
        }
        let began = self.now();
        fs::remove_file(self.at(&path)).unwrap();
        self.history.names.remove(&path);
        self.history.changed(began);
    }

    fn rmdir(&mut self) {
        let Some((path, _)) = self.pick(|path, object| object.kind == Kind::Directory && !path.is_empty())
        else {
            return;
        };
        let below = format!("{path}/");
        if self.history.names.keys().any(|path| path.starts_with(&below)) {
            return;
        }
        let began = self.now();
        fs::remove_dir(self.at(&path)).unwrap();
        self.history.names.remove(&path);
        self.history.changed(began);
    }

    fn link(&mut self) {
        let Some((from, index)) = self.file() else { return };
        let Some(to) = self.free_path() else { return };
        let began = self.now();
        fs::hard_link(self.at(&from), self.at(&to)).unwrap();
        self.history.bind_content(index);
        self.history.names.insert(to, index);
        self.history.changed(began);
    }

    fn chmod(&mut self) {
        let Some((path, index)) = self.pick(|_, object| object.kind != Kind::Symlink) else { return };
        let mode = [0o700, 0o711, 0o750, 0o755, 0o777][self.random.usize(0..5)];
        let began = self.now();
        fs::set_permissions(self.at(&path), Permissions::from_mode(mode)).unwrap();
        self.history.objects[index].mode = mode;
        self.history.changed(began);
    }

    fn xattr(&mut self) {
        let Some((path, index)) = self.pick(|_, object| object.kind != Kind::Symlink) else { return };
        let name = ["user.one", "user.two"][self.random.usize(0..2)];
        let has_it = self.history.objects[index].xattrs.contains_key(name);
        let began = self.now();
        if has_it && self.random.bool() {
            rustix::fs::removexattr(self.at(&path), name).unwrap();
            self.history.objects[index].xattrs.remove(name);
        } else {
            let value = vec![self.random.u8(..); [10, 500, 3_000][self.random.usize(0..3)]];
            rustix::fs::setxattr(self.at(&path), name, &value, XattrFlags::empty()).unwrap();
            self.history.objects[index].xattrs.insert(name.to_owned(), value);
        }
        self.history.changed(began);
    }

    fn sync(&mut self) {
        let Some((path, index)) = self.pick(|_, object| object.kind != Kind::Symlink) else { return };
        let file = File::open(self.at(&path)).unwrap();
        match self.random.bool() {
            true => file.sync_all().unwrap(),
            false => file.sync_data().unwrap(),
        }
        let is_file = self.history.objects[index].kind == Kind::File;
        self.history.synced(self.disk.position(), is_file.then_some(index));
    }
}
