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
    /// The one that the last request made, if it was answered at once.
    newest: Option<(Ino, Micros)>,
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
            State::Answered(at) => {
                self.newest = Some((ino, at));
                self.answered.push_back((at, ino));
            }
            State::Running(seq) => _ = self.running.insert((seq, ino)),
        }
        self.inodes.entry(ino).or_default().push(removal);
    }

    pub(crate) fn note_newest(&mut self, removal: Option<(Ino, Micros)>) {
        self.newest = removal;
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

    /// A shipped operation has taken effect, and `ino` lost a name by it.
    pub(crate) fn note_unlinking(&mut self, seq: OpSeq, op: &Op, ino: Ino) {
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
        let (OpReply::Removed { ino, deleted: false } | OpReply::Renamed { replaced: ino, .. }) = reply
        else {
            return;
        };
        if let Some((parent, name)) = name_taken(op).filter(|_| self.has_links_left(ino)) {
            let removal = Removal { parent, name: name.clone(), state: State::Answered(self.clock.now) };
            self.cache.unlinked.note(ino, removal, self.clock.now);
        }
    }

    /// The removal that the last request made, if it was answered at once: which inode lost a name, and when. Once.
    pub fn take_removal(&mut self) -> Option<(Ino, Micros)> {
        self.cache.unlinked.newest.take()
    }

    /// Whoever removed the name has its answer: the kernel is done with that.
    pub fn removal_taken_in(&mut self, (ino, at): (Ino, Micros)) {
        self.cache.unlinked.retain(ino, |removal| removal.state != State::Answered(at));
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

/// An answer is taken within that.
const QUIET: Micros = Micros(1_000_000);
