//! Links that the kernel counts down by itself.
//!
//! When the kernel hears that a name is gone it takes one off its own count of the inode's links, also where an answer has
//! told it of the lower count already; at 0 it refuses to link the file anew until it is told again. So from the moment that a
//! removal of this node's takes effect until the kernel is done with its answer, other answers tell of the count before, or
//! wait. Only answers that the kernel asks for without the locks that a removal takes matter: attributes, and lookups in
//! other directories.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use meta::ops::RenameMode;
use meta::{Op, OpReply};
use types::{Ino, Micros, Name, OpSeq};

use crate::core::Core;
use crate::jobs::Purpose;
use crate::outputs::Invalidation;
use crate::request::{Attr, Keep};
use crate::wait::{Step, Try, WaitKey};

/// Inodes that lost a name here lately and have others left.
#[derive(Debug, Default)]
pub(crate) struct Unlinked {
    inodes: BTreeMap<Ino, Vec<Removal>>,
    /// When they were answered, oldest first.
    answered: VecDeque<(Micros, Ino)>,
    /// Those that are running, by the operation.
    running: BTreeSet<(OpSeq, Ino)>,
    /// Those of which the kernel is being asked whether it is done.
    asked: BTreeSet<Ino>,
    /// Names that were taken away or changed hands by this node's doing, oldest first: until the kernel is done with the answer it finds what was there.
    going: VecDeque<Going>,
    /// How many changes of names there were.
    changes: u64,
    /// The one that the last request made, if it was answered at once.
    newest: Option<Removed>,
}

/// A removal or rename that a request made and that was answered at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    number: u64,
    /// The inode that lost a name by it and has others left, and when.
    loser: Option<(Ino, Micros)>,
}

/// A name that the kernel is about to lose or move.
#[derive(Debug)]
struct Going {
    number: u64,
    at: Micros,
    parent: Ino,
    name: Name,
}

/// A name that was taken away.
#[derive(Clone, Debug)]
struct Removal {
    parent: Ino,
    name: Name,
    state: State,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has taken effect, and its process has no answer.
    Running(OpSeq),
    /// It was answered.
    Answered(Micros),
}

impl Unlinked {
    fn note(&mut self, ino: Ino, removal: Removal, now: Micros) {
        while let Some((at, old)) = self.answered.front().copied().filter(|(at, _)| now.since(*at) >= QUIET) {
            self.answered.pop_front();
            self.retain(old, |removal| removal.state != State::Answered(at));
        }
        match removal.state {
            State::Answered(at) => self.answered.push_back((at, ino)),
            State::Running(seq) => _ = self.running.insert((seq, ino)),
        }
        self.inodes.entry(ino).or_default().push(removal);
    }

    pub(crate) fn note_newest(&mut self, removal: Option<Removed>) {
        self.newest = removal;
    }

    /// Notes the names that `op` took away or moved. Returns the number of the change.
    fn note_going(&mut self, op: &Op, now: Micros) -> u64 {
        let is_over = |going: &Going| now.since(going.at) >= QUIET;
        while self.going.len() >= GOING_MAX || self.going.front().is_some_and(is_over) {
            self.going.pop_front();
        }
        self.changes += 1;
        let (number, at) = (self.changes, now);
        let names = names_changed(op).into_iter().flatten();
        self.going.extend(names.map(|(parent, name)| Going { number, at, parent, name: name.clone() }));
        number
    }

    /// Whether the kernel may find what was under a name before this node took it away.
    pub(crate) fn is_going(&self, parent: Ino, name: &Name) -> bool {
        self.going.iter().any(|going| going.parent == parent && going.name == *name)
    }

    /// All such names of a directory.
    pub(crate) fn going_in(&self, parent: Ino) -> impl Iterator<Item = &Name> {
        self.going.iter().filter(move |going| going.parent == parent).map(|going| &going.name)
    }

    fn retain(&mut self, ino: Ino, keep: impl Fn(&Removal) -> bool) {
        if let Some(removals) = self.inodes.get_mut(&ino) {
            removals.retain(keep);
            if removals.is_empty() {
                self.inodes.remove(&ino);
            }
        }
    }
}

impl Core {
    /// The inode whose name `op` takes away, as far as it is known here.
    pub(crate) fn loser_of(&self, op: &Op) -> Option<Ino> {
        let (parent, name) = name_taken(op)?;
        self.cached_child(parent, name)
    }

    /// A shipped operation has taken effect, and `loser` lost a name by it.
    pub(crate) fn note_unlinking(&mut self, seq: OpSeq, op: &Op, loser: Option<Ino>) {
        self.cache.unlinked.note_going(op, self.clock.now);
        let Some(ino) = loser else { return };
        // A rename from one name of a file to another does nothing.
        let is_lost = self.loser_of(op) != Some(ino);
        if let Some((parent, name)) = name_taken(op).filter(|_| is_lost && self.has_links_left(ino)) {
            let removal = Removal { parent, name: name.clone(), state: State::Running(seq) };
            self.cache.unlinked.note(ino, removal, self.clock.now);
        }
    }

    /// The shipped operation is answered.
    pub(crate) fn end_unlinking(&mut self, seq: OpSeq) {
        let unlinked = &mut self.cache.unlinked;
        let of = (seq, Ino(0))..=(seq, Ino(u64::MAX));
        for (_, ino) in unlinked.running.extract_if(of, |_| true).collect::<Vec<_>>() {
            unlinked.retain(ino, |removal| removal.state != State::Running(seq));
        }
    }

    /// An operation is answered by `reply`.
    pub(crate) fn note_unlinked(&mut self, op: &Op, reply: OpReply) {
        let now = self.clock.now;
        let loser = match reply {
            OpReply::Removed { ino, deleted: false } | OpReply::Renamed { replaced: ino, .. } => Some(ino),
            OpReply::Removed { .. } | OpReply::Inode { .. } | OpReply::Done => None,
        };
        let loser = loser.filter(|ino| self.has_links_left(*ino)).zip(name_taken(op));
        if let Some((ino, (parent, name))) = loser {
            let removal = Removal { parent, name: name.clone(), state: State::Answered(now) };
            self.cache.unlinked.note(ino, removal, now);
        }
        if names_changed(op)[0].is_some() {
            let number = self.cache.unlinked.note_going(op, now);
            self.cache.unlinked.newest = Some(Removed { number, loser: loser.map(|(ino, _)| (ino, now)) });
        }
    }

    /// The removal or rename that the last request made, if it was answered at once. Once.
    pub fn take_removal(&mut self) -> Option<Removed> {
        self.cache.unlinked.newest.take()
    }

    /// Whoever removed or renamed it has the answer: the kernel is done with that.
    pub fn removal_taken_in(&mut self, removed: Removed) {
        let unlinked = &mut self.cache.unlinked;
        unlinked.going.retain(|going| going.number != removed.number);
        if let Some((ino, at)) = removed.loser {
            unlinked.retain(ino, |removal| removal.state != State::Answered(at));
        }
    }

    /// Whether the kernel may link an inode again. What nobody knows of here may have links.
    fn has_links_left(&mut self, ino: Ino) -> bool {
        self.known.get(&ino).is_some() && self.attr_here(ino).is_none_or(|(attr, _)| attr.nlink > 0)
    }

    /// The kernel asks for something for which it has the lock of the inode: it is done with all removals that were answered.
    pub(crate) fn settle_links(&mut self, ino: Ino) {
        self.cache.unlinked.retain(ino, |removal| matches!(removal.state, State::Running(_)));
    }

    /// Attributes with the links that the kernel may be told of now. `within` is the directory that it has locked.
    pub(crate) fn with_links(
        &mut self,
        (attr, keep): (Attr, Keep),
        within: Option<Ino>,
    ) -> Try<(Attr, Keep)> {
        if self.cache.unlinked.inodes.is_empty() {
            return Ok((attr, keep));
        }
        let (ino, now) = (attr.ino, self.clock.now);
        self.cache.unlinked.retain(ino, |removal| match removal.state {
            State::Running(_) => true,
            State::Answered(at) => Some(removal.parent) != within && now.since(at) < QUIET,
        });
        let Some(removals) = self.cache.unlinked.inodes.get(&ino) else { return Ok((attr, keep)) };
        let answered = removals.iter().filter(|removal| matches!(removal.state, State::Answered(_)));
        let list: Vec<_> = answered
            .map(|removal| Invalidation::Settled { parent: removal.parent, name: removal.name.clone() })
            .collect();
        if list.is_empty() {
            let nlink = attr.nlink.saturating_add(removals.len() as u32);
            return Ok((Attr { nlink, ..attr }, Keep::No));
        }
        if self.cache.unlinked.asked.insert(ino) {
            // The kernel looks at a name when it has the lock of the directory, which a removal has until it is done.
            self.invalidate(Purpose::Unlinked(ino), list, Vec::new());
        }
        Err(Step::Wait(WaitKey::Unlinked(ino)))
    }

    /// The kernel is done with the removals of an inode's names.
    pub(crate) fn links_are_settled(&mut self, ino: Ino) {
        self.cache.unlinked.asked.remove(&ino);
        self.settle_links(ino);
        self.wake(WaitKey::Unlinked(ino));
    }

    /// Whether a listing had better not tell of an inode's attributes.
    pub(crate) fn is_losing_links(&self, ino: Ino) -> bool {
        self.cache.unlinked.inodes.contains_key(&ino)
    }
}

fn name_taken(op: &Op) -> Option<(Ino, &Name)> {
    match op {
        Op::Unlink { parent, name, .. } => Some((*parent, name)),
        // Names that are exchanged stay names of both.
        Op::Rename { new_parent, new_name, mode, .. } if *mode != RenameMode::Exchange => {
            Some((*new_parent, new_name))
        }
        _ => None,
    }
}

/// The names under which the kernel has something else when it is done with `op`.
fn names_changed(op: &Op) -> [Option<(Ino, &Name)>; 2] {
    match op {
        Op::Unlink { parent, name, .. } | Op::Rmdir { parent, name, .. } => [Some((*parent, name)), None],
        Op::Rename { parent, name, new_parent, new_name, .. } => {
            [Some((*parent, name)), Some((*new_parent, new_name))]
        }
        _ => [None, None],
    }
}

/// So many names are remembered at most: one thread has two on their way.
const GOING_MAX: usize = 1024;
/// An answer is taken within that.
const QUIET: Micros = Micros(1_000_000);
