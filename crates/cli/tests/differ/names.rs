//! One small tree, and two or three operations on its names at once, on one mount or on both, after another that one mount has just done: each answer, and
//! what is left as both mounts show it, are what ext4 has for some order of them. Kernels keep names of the tree, and both have files and directories of it open.
//!
//! A path is walked step by step anywhere: what moves a directory is not done beside what walks through it, nor what names one file twice beside what moves
//! it from the one name to the other, nor a link of a file beside what takes its name.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::arena::{Arena, LOCAL, NAMES, SITES};
use crate::differ::End;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Nothing,
    /// With O_EXCL.
    Create(&'static str),
    Open(&'static str),
    Mkdir(&'static str),
    Fifo(&'static str),
    Symlink(&'static str),
    Link(&'static str, &'static str),
    /// Of a file by its descriptor.
    LinkOpen(&'static str),
    Unlink(&'static str),
    Rmdir(&'static str),
    Rename(&'static str, &'static str),
    NoReplace(&'static str, &'static str),
    Exchange(&'static str, &'static str),
    Chmod(&'static str),
    SetXattr(&'static str),
    Truncate(&'static str),
    /// In a directory by its descriptor.
    CreateIn(&'static str),
    Look(&'static str),
    List(&'static str),
}

use Op::{
    Chmod, Create, CreateIn, Exchange, Fifo, Link, LinkOpen, List, Look, Mkdir, NoReplace, Nothing, Open,
    Rename, Rmdir, SetXattr, Symlink, Truncate, Unlink,
};

const OPS: &[Op] = &[
    Nothing,
    Create("d/n"),
    Create("d/f"),
    Create("d/e/k"),
    Create("c/n"),
    Open("d/n"),
    Open("d/f"),
    Open("d/e/k"),
    Mkdir("d/n"),
    Mkdir("d/e/k"),
    Mkdir("c/n"),
    Fifo("d/n"),
    Symlink("d/n"),
    Link("d/f", "d/n"),
    Link("d/f", "c/n"),
    Link("c/h", "d/n"),
    Link("d/g", "d/e/k"),
    LinkOpen("d/n"),
    Unlink("d/f"),
    Unlink("d/g"),
    Unlink("c/h"),
    Unlink("d/l"),
    Unlink("d/n"),
    Unlink("d/s/x"),
    Rmdir("d/e"),
    Rmdir("d/s"),
    Rmdir("c/p"),
    Rename("d/f", "d/n"),
    Rename("d/f", "d/g"),
    Rename("d/g", "d/f"),
    Rename("d/f", "c/n"),
    Rename("d/f", "c/h"),
    Rename("c/h", "d/f"),
    Rename("d/e", "d/s"),
    Rename("d/s", "d/e"),
    Rename("d/s", "c/p/q"),
    Rename("c/p", "d/s/p"),
    Rename("c/p", "d/e"),
    Rename("d/e", "c/p"),
    Rename("d/e", "d/n"),
    Rename("d/f", "d/e"),
    Rename("d/l", "d/n"),
    Rename("d/g", "d/s/x"),
    Rename("d/s/x", "d/n"),
    NoReplace("d/f", "d/g"),
    NoReplace("d/f", "d/n"),
    NoReplace("d/e", "c/n"),
    Exchange("d/f", "d/g"),
    Exchange("d/e", "d/s"),
    Exchange("d/s", "c/p"),
    Exchange("d/f", "d/s"),
    Exchange("d/f", "c/h"),
    Chmod("d/f"),
    Chmod("c/h"),
    SetXattr("d/f"),
    Truncate("d/f"),
    CreateIn("k"),
    Look("d/n"),
    Look("d/f"),
    Look("d/e/k"),
    Look("d/s/x"),
    List("d"),
    List("c"),
];

impl Op {
    /// The names in it.
    fn names(self) -> Vec<&'static str> {
        match self {
            Nothing | CreateIn(_) => vec![],
            Create(name) | Open(name) | Mkdir(name) | Fifo(name) | Symlink(name) | LinkOpen(name) => {
                vec![name]
            }
            Unlink(name) | Rmdir(name) | Chmod(name) | SetXattr(name) | Truncate(name) => vec![name],
            Look(name) | List(name) => vec![name],
            Link(old, new) | Rename(old, new) | NoReplace(old, new) | Exchange(old, new) => vec![old, new],
        }
    }

    fn moves(self) -> bool {
        matches!(self, Rename(..) | NoReplace(..) | Exchange(..))
    }

    /// Whether it walks through something that the other moves.
    fn walks_through(self, other: Self) -> bool {
        let moved = if other.moves() { other.names() } else { vec![] };
        let is_below =
            |name: &str, dir: &str| name.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
        self.names().iter().any(|name| moved.iter().any(|dir| is_below(name, dir)))
    }

    /// Whether it may be done beside another as if each were done at one moment.
    fn goes_with(self, other: Self) -> bool {
        let (mut ours, mut theirs) = (self.names(), other.names());
        ours.sort_unstable();
        theirs.sort_unstable();
        let is_twice = ours.len() == 2 && ours == theirs && (self.moves() || other.moves());
        let takes = |a, b| matches!((a, b), (Link(old, _), Rename(_, new)) if old == new);
        !self.walks_through(other)
            && !other.walks_through(self)
            && !is_twice
            && !takes(self, other)
            && !takes(other, self)
    }
}

/// The tree by one way to it.
struct Tree {
    root: PathBuf,
    held: Vec<(&'static str, File)>,
}

impl Tree {
    fn make(root: &Path) {
        fs::create_dir(root).expect("made");
        for dir in ["d", "c", "d/e", "d/s", "c/p"] {
            fs::create_dir(root.join(dir)).expect("made");
        }
        for file in ["d/f", "d/g", "d/s/x"] {
            fs::write(root.join(file), file.repeat(3)).expect("written");
        }
        fs::hard_link(root.join("d/f"), root.join("c/h")).expect("linked");
        std::os::unix::fs::symlink("f", root.join("d/l")).expect("linked");
    }

    fn hold(root: PathBuf) -> Self {
        let held =
            ["d/f", "d/g", "d/e", "d/s"].map(|name| (name, File::open(root.join(name)).expect("there")));
        Self { root, held: held.into() }
    }

    fn held(&self, name: &str) -> &File {
        &self.held.iter().find(|(held, _)| *held == name).expect("held").1
    }

    fn perform(&self, op: Op) -> Result<Option<FileType>, Errno> {
        let path = |name: &str| self.root.join(name);
        let mode = Mode::from_raw_mode(0o640);
        let make = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let rename =
            |old: &str, new: &str, flags| rustix::fs::renameat_with(CWD, path(old), CWD, path(new), flags);
        match op {
            Nothing => Ok(()),
            Create(name) => rustix::fs::open(path(name), make | OFlags::EXCL, mode).and_then(|file| {
                let size = rustix::fs::fstat(&file)?.st_size;
                if size == 0 { Ok(()) } else { Err(Errno::FBIG) }
            }),
            Open(name) => rustix::fs::open(path(name), make, mode).map(drop),
            Mkdir(name) => rustix::fs::mkdir(path(name), mode),
            Fifo(name) => rustix::fs::mknodat(CWD, path(name), FileType::Fifo, mode, 0),
            Symlink(name) => rustix::fs::symlink("g", path(name)),
            Link(old, new) => rustix::fs::link(path(old), path(new)),
            LinkOpen(name) => rustix::fs::linkat(self.held("d/f"), "", CWD, path(name), AtFlags::EMPTY_PATH),
            Unlink(name) => rustix::fs::unlink(path(name)),
            Rmdir(name) => rustix::fs::rmdir(path(name)),
            Rename(old, new) => rename(old, new, RenameFlags::empty()),
            NoReplace(old, new) => rename(old, new, RenameFlags::NOREPLACE),
            Exchange(old, new) => rename(old, new, RenameFlags::EXCHANGE),
            Chmod(name) => rustix::fs::chmod(path(name), Mode::from_raw_mode(0o604)),
            SetXattr(name) => rustix::fs::setxattr(path(name), "user.a", b"1", XattrFlags::empty()),
            Truncate(name) => rustix::fs::open(path(name), OFlags::WRONLY | OFlags::NONBLOCK, mode)
                .and_then(|file| rustix::fs::ftruncate(file, 2)),
            CreateIn(name) => {
                rustix::fs::openat(self.held("d/e").as_fd(), name, make | OFlags::EXCL, mode).map(drop)
            }
            Look(name) => {
                let found = rustix::fs::lstat(path(name))?;
                return Ok(Some(FileType::from_raw_mode(found.st_mode)));
            }
            List(name) => fs::read_dir(path(name))
                .and_then(|list| list.map(|entry| entry.map(drop)).collect())
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
        .map(|()| None)
    }

    /// Has the kernel know all of it, and what is not there.
    fn look(&self) {
        _ = self.state();
        for name in OPS.iter().flat_map(|op| op.names()) {
            _ = fs::symlink_metadata(self.root.join(name));
        }
    }

    /// All there is, and what is held. Inodes are numbered in the order in which they are met.
    fn state(&self) -> Vec<String> {
        let mut state = Vec::new();
        let mut inodes = BTreeMap::new();
        self.add("", &mut state, &mut inodes);
        for name in OPS.iter().flat_map(|op| op.names()) {
            let is_listed = state.iter().any(|line| line.split(' ').next() == Some(name));
            if fs::symlink_metadata(self.root.join(name)).is_ok() != is_listed {
                state.push(format!("{name} is listed: {is_listed}, and found otherwise"));
            }
        }
        for (name, file) in &self.held {
            let found = file.metadata().expect("held");
            let (inode, size) = (inodes.get(&found.ino()), if found.is_dir() { 0 } else { found.len() });
            let links = if found.is_dir() { found.nlink().min(1) } else { found.nlink() };
            state.push(format!("held {name}: {inode:?} {:o} {links} {size}", found.mode()));
        }
        state
    }

    fn add(&self, name: &str, state: &mut Vec<String>, inodes: &mut BTreeMap<u64, usize>) {
        let path = self.root.join(name);
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) => return state.push(format!("{name} is listed, and {error}")),
        };
        let next = inodes.len();
        let inode = *inodes.entry(found.ino()).or_insert(next);
        let kind = found.file_type();
        let content = match () {
            () if kind.is_file() => {
                let mut content = String::new();
                let mut open = OpenOptions::new();
                let read = open.read(true).custom_flags(NONBLOCK).open(&path);
                match read.and_then(|mut file| file.read_to_string(&mut content)) {
                    Ok(len) if len as u64 == found.len() => content,
                    other => format!("{other:?} of {}", found.len()),
                }
            }
            () if kind.is_symlink() => format!("{:?}", fs::read_link(&path)),
            () => format!("fifo: {}", kind.is_fifo()),
        };
        let xattr = rustix::fs::lgetxattr(&path, "user.a", &mut [0; 8][..]).is_ok();
        let mode = found.permissions().mode();
        state.push(format!("{name} {inode} {mode:o} {} {xattr} {content}", found.nlink()));
        if kind.is_dir() {
            let list =
                fs::read_dir(&path).and_then(|list| list.map(|entry| Ok(entry?.file_name())).collect());
            let mut names: Vec<_> = list.unwrap_or_else(|error| vec![format!("{error}").into()]);
            names.sort();
            for below in names {
                let below = below.to_string_lossy();
                self.add(
                    &if name.is_empty() { below.to_string() } else { format!("{name}/{below}") },
                    state,
                    inodes,
                );
            }
        }
    }
}

/// What was answered, and what is left.
type Outcome = (Vec<Result<Option<FileType>, Errno>>, Vec<String>);

/// Operations at once, drawn by a seed. A step is some of them, a few times over.
pub struct Names {
    arena: Arena,
    rng: fastrand::Rng,
    trees: u64,
    stale: u64,
}

impl Names {
    pub fn new(arena: Arena, seed: u64) -> Self {
        Self { arena, rng: fastrand::Rng::with_seed(seed), trees: 0, stale: 0 }
    }

    /// Runs to the end or to the first step that leaves something else. Returns the steps done.
    pub fn run(&mut self, end: End) -> Result<u64, String> {
        let began = Instant::now();
        let mut steps = 0;
        loop {
            match end {
                End::Steps(max) if steps >= max => break,
                End::Time(time) if began.elapsed() >= time => break,
                End::Steps(_) | End::Time(_) => {}
            }
            steps += 1;
            let mut draw = || OPS[self.rng.usize(..OPS.len())];
            let (before, mut ops) = (draw(), vec![draw(), draw(), draw()]);
            ops.truncate(self.rng.usize(2..=3));
            let are_apart = |at: usize| ops[at + 1..].iter().all(|other| ops[at].goes_with(*other));
            if !(0..ops.len()).all(are_apart) {
                continue;
            }
            let allowed: Vec<Outcome> =
                orders(ops.len()).iter().map(|order| self.in_order(before, &ops, order)).collect();
            let mut sites: Vec<usize> = ops.iter().map(|_| self.rng.usize(..SITES)).collect();
            sites[0] = 0;
            for round in 0..ROUNDS {
                self.round(before, &ops, &sites, &allowed).map_err(|what| {
                    let names: Vec<&str> = sites.iter().map(|site| NAMES[*site]).collect();
                    format!("step {steps}: after {before:?} on {}, {ops:?} at once on {names:?}, round {round}: {what}", NAMES[1])
                })?;
            }
        }
        println!(
            "{} rounds with ESTALE, as a kernel answers for a directory in use that another node has moved",
            self.stale
        );
        Ok(steps)
    }

    fn next_tree(&mut self) -> String {
        self.trees += 1;
        format!("tree{}", self.trees)
    }

    /// What ext4 has for one order.
    fn in_order(&mut self, before: Op, ops: &[Op], order: &[usize]) -> Outcome {
        let root = self.arena.path(LOCAL).join(self.next_tree());
        Tree::make(&root);
        let tree = Tree::hold(root.clone());
        _ = tree.perform(before);
        let mut answers = vec![Ok(None); ops.len()];
        for at in order {
            answers[*at] = tree.perform(ops[*at]);
        }
        let state = tree.state();
        drop(tree);
        fs::remove_dir_all(root).expect("removed");
        (answers, state)
    }

    fn round(&mut self, before: Op, ops: &[Op], sites: &[usize], allowed: &[Outcome]) -> Result<(), String> {
        let name = self.next_tree();
        let roots = [0, 1].map(|site| self.arena.path(site).join(&name));
        Tree::make(&roots[self.rng.usize(..SITES)]);
        let trees = roots.clone().map(Tree::hold);
        for tree in &trees {
            if self.rng.u8(..10) < 7 {
                tree.look();
            }
        }
        _ = trees[1].perform(before);
        if self.rng.u8(..10) < 3 {
            trees[0].look();
        }
        let turn = Barrier::new(ops.len());
        let answers: Vec<_> = std::thread::scope(|scope| {
            let start = |(op, site): (&Op, &usize)| {
                let (op, tree, turn) = (*op, &trees[*site], &turn);
                scope.spawn(move || {
                    turn.wait();
                    tree.perform(op)
                })
            };
            let threads: Vec<_> = ops.iter().zip(sites).map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let first = self.rng.usize(..SITES);
        let states = [first, 1 - first, first].map(|site| trees[site].state());
        let is_stale = |(op, answer): (&Op, &Result<_, Errno>)| op.moves() && *answer == Err(Errno::STALE);
        let is_right =
            |state: &Vec<String>| allowed.iter().any(|(told, left)| *told == answers && left == state);
        let result = if ops.iter().zip(&answers).any(is_stale) {
            self.stale += 1;
            Ok(())
        } else if states.iter().all(is_right) && states[1] == states[0] && states[2] == states[0] {
            Ok(())
        } else {
            Err(format!("answered {answers:?}, found {states:#?}, not one of {allowed:#?}"))
        };
        drop(trees);
        match fs::remove_dir_all(&roots[self.rng.usize(..SITES)]) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                result.and(Err(format!("not removed: {error}")))
            }
            _ => result,
        }
    }
}

/// All orders of so many.
fn orders(count: usize) -> Vec<Vec<usize>> {
    match count {
        0 => vec![vec![]],
        _ => orders(count - 1)
            .into_iter()
            .flat_map(|order| {
                (0..count).map(move |at| {
                    let mut longer = order.clone();
                    longer.insert(at, count - 1);
                    longer
                })
            })
            .collect(),
    }
}

/// How often each step is tried.
const ROUNDS: u8 = 3;
/// O_NONBLOCK: nobody waits for the other end of a FIFO.
const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;
