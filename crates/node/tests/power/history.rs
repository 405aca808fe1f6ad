//! What a process did to a tree and was told, and what of it must be there after a loss of power.
//!
//! Names and attributes are one stream: what is left is one of the states that they went through. The bytes of a file
//! are a stream of their own (docs/semantics.md, "Order").

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// All that was done, with positions in the log of the disk.
pub struct History {
    pub objects: Vec<Object>,
    /// Paths below the root, without a slash at their beginning.
    pub names: BTreeMap<String, usize>,
    states: Vec<State>,
    syncs: Vec<Synced>,
}

/// A file, directory or link, with or without a name.
pub struct Object {
    pub ino: u64,
    pub kind: Kind,
    pub mode: u32,
    pub xattrs: BTreeMap<String, Vec<u8>>,
    pub target: String,
    versions: Vec<Version>,
    /// From this state on the bytes are of this version or a later one.
    bounds: Vec<(usize, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Symlink,
}

/// Bytes of a file, and from when on they may be there.
struct Version {
    began: usize,
    bytes: Arc<Vec<u8>>,
}

/// Names and attributes, and from when on they may be there.
struct State {
    began: usize,
    lines: BTreeSet<String>,
}

/// What was durable from a position on.
struct Synced {
    ended: usize,
    state: usize,
    contents: Vec<(usize, usize)>,
}

/// What is there.
#[derive(Default)]
pub struct Found {
    names: BTreeMap<String, u64>,
    objects: BTreeMap<u64, Object>,
}

impl History {
    /// Begins with what is there and durable.
    pub fn new(found: Found) -> Self {
        let mut history =
            Self { objects: Vec::new(), names: BTreeMap::new(), states: Vec::new(), syncs: Vec::new() };
        let mut places = BTreeMap::new();
        for (ino, object) in found.objects {
            places.insert(ino, history.objects.len());
            history.objects.push(object);
        }
        history.names = found.names.into_iter().map(|(path, ino)| (path, places[&ino])).collect();
        history.states.push(State { began: 0, lines: history.lines() });
        let everything = history.everything();
        history.syncs.push(Synced { ended: 0, state: 0, contents: everything });
        history
    }

    /// Notes a change of names or attributes, made to `objects` and `names` already, that began at a position.
    pub fn changed(&mut self, began: usize) {
        let lines = self.lines();
        self.states.push(State { began, lines });
    }

    /// Notes that from the state that comes next on an object's bytes are as they are now.
    pub fn bind_content(&mut self, object: usize) {
        let (state, object) = (self.states.len(), &mut self.objects[object]);
        if let Some(last) = object.versions.len().checked_sub(1) {
            object.bounds.push((state, last));
        }
    }

    /// Notes new bytes.
    pub fn wrote(&mut self, object: usize, began: usize, bytes: Vec<u8>) {
        self.objects[object].versions.push(Version { began, bytes: Arc::new(bytes) });
    }

    /// Notes an answered fsync of a file, or of a directory.
    pub fn synced(&mut self, ended: usize, object: Option<usize>) {
        let contents = object.map(|object| (object, self.objects[object].versions.len() - 1));
        let state = self.states.len() - 1;
        self.syncs.push(Synced { ended, state, contents: contents.into_iter().collect() });
    }

    /// Notes that all was flushed.
    pub fn flushed(&mut self, ended: usize) {
        let contents = self.everything();
        self.syncs.push(Synced { ended, state: self.states.len() - 1, contents });
    }

    pub fn bytes(&self, object: usize) -> &[u8] {
        self.objects[object].bytes()
    }

    pub fn len(&self) -> usize {
        self.states.len()
    }

    fn everything(&self) -> Vec<(usize, usize)> {
        let files = self.objects.iter().enumerate().filter(|(_, object)| object.kind == Kind::File);
        files.map(|(index, object)| (index, object.versions.len() - 1)).collect()
    }

    fn lines(&self) -> BTreeSet<String> {
        let names = self.names.iter().map(|(path, index)| (path.as_str(), &self.objects[*index]));
        lines(names.collect())
    }

    /// Compares what is there after a loss of power at `position` with what may be. Returns which state it is.
    pub fn judge(&self, found: &Found, position: usize) -> Result<usize, String> {
        let synced: Vec<&Synced> = self.syncs.iter().filter(|sync| sync.ended <= position).collect();
        let least = synced.iter().map(|sync| sync.state).max().unwrap_or(0);
        let most = self.states.iter().rposition(|state| state.began <= position).unwrap_or(0);
        let lines = found.lines();
        let Some(state) = (least..=most).find(|state| self.states[*state].lines == lines) else {
            return Err(self.explain(&lines, least, most));
        };
        for (ino, object) in found.objects.iter().filter(|(_, object)| object.kind == Kind::File) {
            // A number is never used twice.
            let Some(index) = self.objects.iter().position(|known| known.ino == *ino) else {
                return Err(format!("inode {ino} is not known"));
            };
            let was_synced = synced.iter().flat_map(|sync| &sync.contents).filter(|(of, _)| *of == index);
            let was_bound = self.objects[index].bounds.iter().filter(|(from, _)| *from <= state);
            let least = was_synced.map(|(_, version)| *version).max().unwrap_or(0);
            let bound = was_bound.map(|(_, version)| *version).max().unwrap_or(0);
            self.objects[index].judge(object.bytes(), least.max(bound), position).map_err(|what| {
                format!("inode {ino} in state {state}: {what}; version {least} was synced, {bound} renamed")
            })?;
        }
        Ok(state)
    }

    fn explain(&self, lines: &BTreeSet<String>, least: usize, most: usize) -> String {
        let differs = |state: usize| self.states[state].lines.symmetric_difference(lines).count();
        let near = (least..=most).min_by_key(|state| differs(*state)).unwrap_or(least);
        let all = (0..self.states.len()).find(|state| self.states[*state].lines == *lines);
        let only = |from: &BTreeSet<String>, other: &BTreeSet<String>| -> Vec<String> {
            from.difference(other).cloned().collect()
        };
        format!(
            "no state from {least} to {most} (it is {all:?}); state {near} has {:#?} and there is {:#?}",
            only(&self.states[near].lines, lines),
            only(lines, &self.states[near].lines)
        )
    }
}

impl Object {
    pub fn new(ino: u64, kind: Kind, mode: u32) -> Self {
        let (xattrs, target) = (BTreeMap::new(), String::new());
        Self { ino, kind, mode, xattrs, target, versions: Vec::new(), bounds: Vec::new() }
    }

    fn bytes(&self) -> &[u8] {
        self.versions.last().map_or(&[], |version| &version.bytes)
    }

    fn judge(&self, bytes: &[u8], least: usize, position: usize) -> Result<(), String> {
        let may_be = |version: &Version| version.began <= position && *version.bytes == bytes;
        let pairs = self.versions.iter().skip(least).zip(self.versions.iter().skip(least + 1));
        let may_be_half = |(before, after): (&Version, &Version)| {
            after.began <= position && is_half_written(&before.bytes, &after.bytes, bytes)
        };
        if self.versions.iter().skip(least).any(may_be) || pairs.into_iter().any(may_be_half) {
            return Ok(());
        }
        let which = self.versions.iter().position(|version| *version.bytes == bytes);
        let at = self
            .versions
            .get(least)
            .map(|version| version.bytes.iter().zip(bytes).take_while(|(a, b)| a == b));
        Err(format!(
            "its {} bytes are of version {which:?} of {}, and differ from version {least} ({} bytes) after {}",
            bytes.len(),
            self.versions.len(),
            self.versions.get(least).map_or(0, |version| version.bytes.len()),
            at.map_or(0, Iterator::count)
        ))
    }
}

impl Found {
    /// Reads all that is below `root`.
    pub fn walk(root: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        found.walk_directory(root, "")?;
        found.take(root, "")?;
        Ok(found)
    }

    fn walk_directory(&mut self, dir: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|_| io::ErrorKind::InvalidData)?;
            let path = format!("{prefix}{name}");
            if self.take(&entry.path(), &path)? == Kind::Directory {
                self.walk_directory(&entry.path(), &format!("{path}/"))?;
            }
        }
        Ok(())
    }

    fn take(&mut self, at: &Path, path: &str) -> io::Result<Kind> {
        let metadata = fs::symlink_metadata(at)?;
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_symlink() => Kind::Symlink,
            _ => Kind::File,
        };
        let mut object = Object::new(metadata.ino(), kind, metadata.mode() & 0o7777);
        match kind {
            Kind::File => {
                let bytes = fs::read(at)?;
                if bytes.len() as u64 != metadata.len() {
                    return Err(io::Error::other(format!(
                        "{path}: size {}, {} bytes",
                        metadata.len(),
                        bytes.len()
                    )));
                }
                object.versions.push(Version { began: 0, bytes: Arc::new(bytes) });
                object.xattrs = xattrs(at)?;
            }
            Kind::Directory => object.xattrs = xattrs(at)?,
            Kind::Symlink => object.target = fs::read_link(at)?.to_string_lossy().into_owned(),
        }
        self.names.insert(path.to_owned(), metadata.ino());
        self.objects.insert(metadata.ino(), object);
        Ok(kind)
    }

    fn lines(&self) -> BTreeSet<String> {
        lines(self.names.iter().map(|(path, ino)| (path.as_str(), &self.objects[ino])).collect())
    }
}

/// Whether `bytes` are `before` with the first pages of the write that made it `after`: the kernel may hand a write on in
/// several pieces.
fn is_half_written(before: &[u8], after: &[u8], bytes: &[u8]) -> bool {
    (4096..after.len()).step_by(4096).any(|cut| {
        let rest = before.get(cut..).unwrap_or(&[]);
        bytes.len() == cut + rest.len() && bytes[..cut] == after[..cut] && bytes[cut..] == *rest
    })
}

/// A line for each name, with all that is compared of it but bytes.
fn lines(names: Vec<(&str, &Object)>) -> BTreeSet<String> {
    let parent_of = |path: &str| path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
    let mut links: BTreeMap<u64, u32> = BTreeMap::new();
    let mut subdirectories: BTreeMap<String, u32> = BTreeMap::new();
    for (path, object) in names.iter().filter(|(path, _)| !path.is_empty()) {
        *links.entry(object.ino).or_default() += 1;
        if object.kind == Kind::Directory {
            *subdirectories.entry(parent_of(path)).or_default() += 1;
        }
    }
    let line = |(path, object): (&str, &Object)| {
        let Object { ino, kind, mode, target, xattrs, .. } = object;
        let nlink = match kind {
            Kind::Directory => 2 + subdirectories.get(path).copied().unwrap_or(0),
            Kind::File | Kind::Symlink => links[ino],
        };
        let xattrs: Vec<_> = xattrs
            .iter()
            .map(|(name, value)| format!("{name}={}:{:?}", value.len(), value.first()))
            .collect();
        format!("/{path} {kind:?} ino {ino} mode {mode:o} nlink {nlink} {target} {}", xattrs.join(" "))
    };
    names.into_iter().map(line).collect()
}

fn xattrs(at: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut list = vec![0u8; 4096];
    let len = rustix::fs::llistxattr(at, &mut list[..])?;
    let names = list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
    names
        .map(|name| {
            let mut value = vec![0u8; 65_536];
            let len = rustix::fs::lgetxattr(at, name.as_str(), &mut value[..])?;
            value.truncate(len);
            Ok((name, value))
        })
        .collect()
}
