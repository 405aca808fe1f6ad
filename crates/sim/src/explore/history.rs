//! Histories of operations, and whether some order of them explains what they were told.
//!
//! An order explains a history if it respects what ended before what began, and if the reference model, doing one
//! operation after the other in that order, gives every answer that was given and ends as the volume did. Operations
//! without an answer may have happened or not. Of processes that died, operations that nothing made durable may be
//! missing: names from the end, in order; content from the end. What died with all its witnesses in a loss of power
//! need not be explained, and a size that was asked for while it was being written may go back with its writer.

use std::collections::{BTreeMap, BTreeSet};

use meta::ops::{AttrSet, OpReply, RenameMode};
use meta::{FileKind, FsError, Op};
use testkit::model::Tree;
use types::{Ino, Name, NodeId, Timespec};
use vfs::Attr;

use super::setup::{context, create};

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Create {
        dir: u64,
        name: Vec<u8>,
    },
    Mkdir {
        dir: u64,
        name: Vec<u8>,
    },
    Unlink {
        dir: u64,
        name: Vec<u8>,
    },
    Rmdir {
        dir: u64,
        name: Vec<u8>,
    },
    Rename {
        dir: u64,
        name: Vec<u8>,
        to: u64,
        new_name: Vec<u8>,
    },
    Link {
        ino: u64,
        dir: u64,
        name: Vec<u8>,
    },
    Lookup {
        dir: u64,
        name: Vec<u8>,
    },
    List {
        dir: u64,
    },
    Stat {
        ino: u64,
    },
    Chmod {
        ino: u64,
        mode: u32,
    },
    Truncate {
        ino: u64,
        size: u64,
    },
    Open {
        ino: u64,
    },
    /// At an offset, or at the end.
    Write {
        ino: u64,
        offset: Option<u64>,
        data: Vec<u8>,
    },
    Read {
        ino: u64,
    },
    Fsync {
        ino: u64,
    },
    Close {
        ino: u64,
    },
}

/// What it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Refused(FsError),
    Made(u64),
    /// With attributes, unless the kernel knew the name alone.
    Found(Option<(u64, Option<Facts>)>),
    Facts(Facts),
    Data(Vec<u8>),
    Names(BTreeMap<Vec<u8>, u64>),
}

/// Attributes that are compared. Those of directories are not: how many links and when are other tests' affairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Facts {
    Directory,
    File { mode: u32, nlink: u32, size: u64 },
}

impl Facts {
    pub fn of(attr: &Attr) -> Self {
        match attr.kind {
            FileKind::Directory => Self::Directory,
            _ => Self::File { mode: attr.mode, nlink: attr.nlink, size: attr.size },
        }
    }
}

/// An operation of a history.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub process: usize,
    pub call: Call,
    pub outcome: Option<Outcome>,
    /// Operations that had ended when it began.
    pub after: u64,
}

/// What a volume holds at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Names by directory.
    pub names: BTreeMap<u64, BTreeMap<Vec<u8>, u64>>,
    /// Attributes and bytes of files.
    pub files: BTreeMap<u64, (Facts, Vec<u8>)>,
}

/// Searches for an order.
pub(crate) struct Judge<'a> {
    items: &'a [Item],
    ending: &'a Ending,
    /// Inodes that somebody saw and no answered operation made.
    strangers: Vec<u64>,
    /// Operations that count as never made.
    dropped: u64,
    /// Files whose content they changed.
    torn: BTreeSet<u64>,
    seen: BTreeSet<(u64, String)>,
}

impl<'a> Judge<'a> {
    pub fn new(items: &'a [Item], ending: &'a Ending, first: &Tree) -> Self {
        let mut made: BTreeSet<u64> = first.nodes().map(|(ino, _)| ino.0).collect();
        let mut seen: BTreeSet<u64> = ending.names.values().flat_map(BTreeMap::values).copied().collect();
        for item in items {
            match &item.outcome {
                Some(Outcome::Made(ino)) => drop(made.insert(*ino)),
                Some(Outcome::Found(Some((ino, _)))) => drop(seen.insert(*ino)),
                Some(Outcome::Names(names)) => seen.extend(names.values()),
                Some(Outcome::Done | Outcome::Refused(_) | Outcome::Found(None)) => {}
                Some(Outcome::Facts(_) | Outcome::Data(_)) | None => {}
            }
        }
        let strangers = seen.difference(&made).copied().collect();
        Self { items, ending, strangers, dropped: 0, torn: BTreeSet::new(), seen: BTreeSet::new() }
    }

    /// Whether some order explains the history; `dead` processes may have lost what was not durable. If everybody
    /// died, nobody is left who was shown anything.
    pub fn explains(&mut self, first: &Tree, dead: &BTreeSet<usize>, all_died: bool) -> bool {
        for mut dropped in self.losses(dead) {
            let items = self.items.iter().enumerate();
            if all_died {
                let is_view =
                    |item: &Item| !item.call.changes() || matches!(item.outcome, Some(Outcome::Refused(_)));
                dropped |= items
                    .clone()
                    .filter(|(_, item)| is_view(item))
                    .fold(0, |all, (index, _)| all | 1 << index);
            }
            let lost = items.filter(|(index, _)| dropped & 1 << index != 0);
            self.torn = lost.filter_map(|(_, item)| item.call.content_changed()).collect();
            self.dropped = dropped;
            self.seen.clear();
            if self.search(dropped, first.clone()) {
                return true;
            }
        }
        false
    }

    /// What may be missing: for each dead process some number of names and some of writes from the end, but nothing
    /// that an fsync had covered.
    fn losses(&self, dead: &BTreeSet<usize>) -> Vec<u64> {
        let mut all = vec![0];
        for process in dead {
            for is_name in [true, false] {
                let mut tail = vec![0];
                let own = self.items.iter().enumerate().rev().filter(|(_, item)| item.process == *process);
                for (index, item) in own {
                    if is_durable_by(item) {
                        break;
                    }
                    if item.call.changes_names() == is_name && item.call.changes() {
                        let last = tail[tail.len() - 1];
                        tail.push(last | 1 << index);
                    }
                }
                all = all.iter().flat_map(|a| tail.iter().map(move |b| a | b)).collect();
            }
        }
        // What a dead process was shown of its own lost work does not count either.
        all.into_iter().map(|lost| lost | self.views_of_lost(lost, dead)).collect()
    }

    fn views_of_lost(&self, lost: u64, dead: &BTreeSet<usize>) -> u64 {
        let mut views = 0;
        for process in dead {
            let own = self.items.iter().enumerate().filter(|(_, item)| item.process == *process);
            let mut has_lost = false;
            for (index, item) in own {
                has_lost |= lost & 1 << index != 0;
                if has_lost && !item.call.changes() {
                    views |= 1 << index;
                }
            }
        }
        views
    }

    fn search(&mut self, done: u64, tree: Tree) -> bool {
        let is_done = |index: usize| done & 1 << index != 0;
        let answered = (0..self.items.len()).filter(|index| self.items[*index].outcome.is_some());
        if answered.into_iter().all(is_done) && self.is_ending(&tree) {
            return true;
        }
        if !self.seen.insert((done, format!("{tree:?}"))) {
            return false;
        }
        for index in 0..self.items.len() {
            let item = &self.items[index];
            if is_done(index) || item.after & !done != 0 {
                continue;
            }
            let mut next = tree.clone();
            if self.perform(&mut next, item) && self.search(done | 1 << index, next) {
                return true;
            }
        }
        false
    }

    /// Does an operation; whether it is told what it was told.
    fn perform(&self, tree: &mut Tree, item: &Item) -> bool {
        let node = NodeId(item.process as u32 + 1);
        let made = match item.outcome {
            Some(Outcome::Made(ino)) => ino,
            _ => {
                let known = |ino: &&u64| tree.node(Ino(**ino)).is_none();
                self.strangers.iter().find(known).copied().unwrap_or(NOWHERE)
            }
        };
        let found = perform(tree, node, &item.call, made);
        item.outcome.as_ref().is_none_or(|told| self.is_same(&item.call, told, &found))
    }

    /// Whether two answers are the same, as far as both say.
    fn is_same(&self, call: &Call, told: &Outcome, found: &Outcome) -> bool {
        let same = |ino: &u64, a: &Facts, b: &Facts| match (a, b) {
            (Facts::File { mode, nlink, .. }, Facts::File { mode: m, nlink: n, .. })
                if self.torn.contains(ino) =>
            {
                (mode, nlink) == (m, n)
            }
            (a, b) => a == b,
        };
        match (call, told, found) {
            (_, Outcome::Found(Some((a, None))), Outcome::Found(Some((b, _)))) => a == b,
            (_, Outcome::Found(Some((a, Some(told)))), Outcome::Found(Some((b, Some(found))))) => {
                a == b && same(a, told, found)
            }
            (Call::Stat { ino }, Outcome::Facts(told), Outcome::Facts(found)) => same(ino, told, found),
            // Who still looks at what is gone may be shown it as it was, without a link.
            (Call::Stat { .. }, Outcome::Facts(Facts::File { nlink: 0, .. }), Outcome::Refused(_)) => true,
            (_, told, found) => told == found,
        }
    }

    fn is_ending(&self, tree: &Tree) -> bool {
        self.ending.names.iter().all(|(dir, names)| {
            tree.entries(Ino(*dir)).is_some_and(|entries| {
                entries.len() == names.len()
                    && entries.iter().all(|(name, ino)| names.get(name) == Some(&ino.0))
            })
        }) && self
            .ending
            .files
            .iter()
            .all(|(ino, (facts, data))| facts_of(tree, *ino) == Some(*facts) && bytes_of(tree, *ino) == *data)
    }
}

impl Item {
    /// Whether it counts for every process: it changes something, or was refused to, or keeps a file open.
    pub fn is_told_to_all(&self) -> bool {
        let is_refused = matches!(self.outcome, Some(Outcome::Refused(_)));
        let keeps_open = matches!(self.call, Call::Open { .. } | Call::Close { .. }) && !is_refused;
        self.call.changes() || keeps_open || matches!(self.call, Call::Fsync { .. })
    }
}

impl Call {
    fn changes_names(&self) -> bool {
        match self {
            Self::Create { .. }
            | Self::Mkdir { .. }
            | Self::Unlink { .. }
            | Self::Rmdir { .. }
            | Self::Rename { .. }
            | Self::Link { .. }
            | Self::Chmod { .. } => true,
            Self::Lookup { .. }
            | Self::List { .. }
            | Self::Stat { .. }
            | Self::Truncate { .. }
            | Self::Open { .. }
            | Self::Write { .. }
            | Self::Read { .. }
            | Self::Fsync { .. }
            | Self::Close { .. } => false,
        }
    }

    fn changes(&self) -> bool {
        self.changes_names() || self.content_changed().is_some()
    }

    /// The file whose content it changes.
    fn content_changed(&self) -> Option<u64> {
        match self {
            Self::Truncate { ino, .. } | Self::Write { ino, .. } => Some(*ino),
            _ => None,
        }
    }
}

/// Whether everything before it is durable: names by any fsync of their process, content by that of its file (worlds
/// have one file that a process writes).
fn is_durable_by(item: &Item) -> bool {
    matches!(item.call, Call::Fsync { .. }) && item.outcome == Some(Outcome::Done)
}

fn perform(tree: &mut Tree, node: NodeId, call: &Call, made: u64) -> Outcome {
    let now = Timespec::default();
    let name = |bytes: &[u8]| Name::new(bytes).expect("names of worlds are names");
    let mut op = |op: Op| tree.perform(&op, &context(node));
    match call {
        Call::Create { dir, name } | Call::Mkdir { dir, name } => {
            let is_dir = matches!(call, Call::Mkdir { .. });
            let kind = if is_dir { FileKind::Directory } else { FileKind::File };
            match op(create(*dir, name, made, kind)) {
                Ok(_) => {
                    if !is_dir {
                        let _ = tree.open(Ino(made), node);
                    }
                    Outcome::Made(made)
                }
                Err(error) => Outcome::Refused(error),
            }
        }
        Call::Unlink { dir, name: old } => {
            told(op(Op::Unlink { parent: Ino(*dir), name: name(old), open_here: false, bound: None }))
        }
        Call::Rmdir { dir, name: old } => {
            told(op(Op::Rmdir { parent: Ino(*dir), name: name(old), meant: Ino(0), bound: None }))
        }
        Call::Rename { dir, name: old, to, new_name } => told(op(Op::Rename {
            parent: Ino(*dir),
            name: name(old),
            new_parent: Ino(*to),
            new_name: name(new_name),
            mode: RenameMode::Replace,
            target_open_here: false,
            meant: Ino(0),
            bound: None,
            whiteout: None,
        })),
        Call::Link { ino, dir, name: new } => {
            told(op(Op::Link { ino: Ino(*ino), parent: Ino(*dir), name: name(new) }))
        }
        Call::Lookup { dir, name } => match tree.entries(Ino(*dir)) {
            None => Outcome::Found(None),
            Some(names) => {
                let ino = names.get(name).map(|ino| ino.0);
                Outcome::Found(ino.map(|ino| (ino, facts_of(tree, ino))))
            }
        },
        Call::List { dir } => match tree.entries(Ino(*dir)) {
            None => Outcome::Refused(FsError::NotFound),
            Some(names) => Outcome::Names(names.iter().map(|(name, ino)| (name.clone(), ino.0)).collect()),
        },
        Call::Stat { ino } => stat(tree, *ino),
        Call::Chmod { ino, mode } => {
            let set = AttrSet { mode: Some(*mode), ..AttrSet::default() };
            told(op(Op::SetAttr { ino: Ino(*ino), set }))
        }
        Call::Truncate { ino, size } => done(tree.truncate(Ino(*ino), *size, now)),
        Call::Open { ino } => done(tree.open(Ino(*ino), node)),
        Call::Write { ino, offset, data } => {
            let at = offset.unwrap_or(bytes_of(tree, *ino).len() as u64);
            done(tree.write(Ino(*ino), at, data, now))
        }
        Call::Read { ino } => match tree.read(Ino(*ino), 0, usize::MAX) {
            Ok(bytes) => Outcome::Data(bytes.to_vec()),
            Err(error) => Outcome::Refused(error),
        },
        Call::Fsync { .. } => Outcome::Done,
        Call::Close { ino } => {
            tree.close(Ino(*ino), node);
            let _ = tree.perform(&Op::Reclaim { ino: Ino(*ino) }, &context(node));
            Outcome::Done
        }
    }
}

fn told(result: Result<OpReply, FsError>) -> Outcome {
    done(result.map(drop))
}

fn done(result: Result<(), FsError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(error) => Outcome::Refused(error),
    }
}

fn stat(tree: &Tree, ino: u64) -> Outcome {
    facts_of(tree, ino).map_or(Outcome::Refused(FsError::NotFound), Outcome::Facts)
}

fn facts_of(tree: &Tree, ino: u64) -> Option<Facts> {
    let node = tree.node(Ino(ino))?;
    let nlink = tree.nlink(Ino(ino));
    Some(match node.kind {
        FileKind::Directory => Facts::Directory,
        _ => Facts::File { mode: node.mode, nlink, size: bytes_of(tree, ino).len() as u64 },
    })
}

fn bytes_of(tree: &Tree, ino: u64) -> Vec<u8> {
    tree.read(Ino(ino), 0, usize::MAX).map(<[u8]>::to_vec).unwrap_or_default()
}

/// The number of an inode that nobody ever saw.
const NOWHERE: u64 = u64::MAX >> 1;
