//! Changes that readers have yet to acknowledge, and which of them wait for which.
//!
//! A change is complete when its readers have acknowledged it and the changes before it are complete: those of the same resources, and of what it rests
//! on. Of these it waits for the last of each resource alone, which waits for the one before: a thousand changes of one directory are a chain.

use std::collections::{BTreeMap, BTreeSet};

use types::{NodeId, ResourceId};

use crate::change::Pending;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// By number.
    pub pending: BTreeMap<u64, Pending>,
    /// Forgets without an answer: whose it is, and of which change.
    forgets: BTreeMap<u64, (NodeId, u64)>,
    /// The same by resource, and the last change of each that somebody was told of.
    unacknowledged: BTreeMap<ResourceId, Unacknowledged>,
}

#[derive(Debug)]
struct Unacknowledged {
    forgets: BTreeSet<u64>,
    last: u64,
}

/// What a reader's acknowledgement brings about.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    /// In the order in which they were made.
    pub complete: Vec<Pending>,
    /// Resources of which nothing is unacknowledged any more.
    pub free: Vec<ResourceId>,
}

impl UnderWay {
    /// The changes that one of these resources waits for.
    pub fn before<'a>(&self, resources: impl Iterator<Item = &'a ResourceId>) -> BTreeSet<u64> {
        let last = resources.filter_map(|resource| self.unacknowledged.get(resource)).map(|told| told.last);
        last.filter(|id| self.pending.contains_key(id)).collect()
    }

    /// Notes that `reader` is told of change `id` by forget `seq`.
    pub fn tell(&mut self, seq: u64, reader: NodeId, id: u64, resources: &BTreeSet<ResourceId>) {
        self.forgets.insert(seq, (reader, id));
        for resource in resources {
            let told = self
                .unacknowledged
                .entry(*resource)
                .or_insert_with(|| Unacknowledged { forgets: BTreeSet::new(), last: id });
            told.forgets.insert(seq);
            told.last = told.last.max(id);
        }
    }

    /// Notes one more forget, `new`, of the reader and the change of forget `seq`.
    pub fn tell_more(&mut self, seq: u64, new: u64) {
        let Some((reader, id)) = self.forgets.get(&seq).copied() else { return };
        let Some(pending) = self.pending.get_mut(&id) else { return };
        pending.left.insert(new);
        let resources = pending.resources.clone();
        self.tell(new, reader, id, &resources);
    }

    /// Takes in a change that is not complete.
    pub fn insert(&mut self, id: u64, pending: Pending) {
        for earlier in &pending.after {
            if let Some(earlier) = self.pending.get_mut(earlier) {
                earlier.followers.push(id);
            }
        }
        self.pending.insert(id, pending);
    }

    /// Whose forget this is.
    pub fn reader(&self, seq: u64) -> Option<NodeId> {
        self.forgets.get(&seq).map(|(reader, _)| *reader)
    }

    /// All forgets without an answer: number, whose, and of which change.
    pub fn forgets(&self) -> impl Iterator<Item = (u64, NodeId, u64)> + '_ {
        self.forgets.iter().map(|(seq, (reader, id))| (*seq, *reader, *id))
    }

    /// Whether readers have yet to acknowledge changes of a resource.
    pub fn is_changing(&self, resource: ResourceId) -> bool {
        self.unacknowledged.contains_key(&resource)
    }

    /// Who has yet to acknowledge changes of a resource.
    pub fn readers_behind(&self, resource: ResourceId) -> impl Iterator<Item = NodeId> + '_ {
        let told = self.unacknowledged.get(&resource).into_iter().flat_map(|told| &told.forgets);
        told.filter_map(|seq| self.reader(*seq))
    }

    /// Whom these changes wait for, and those before them.
    pub fn readers_awaited(&self, ids: impl Iterator<Item = u64>) -> BTreeSet<NodeId> {
        let (mut readers, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut due: Vec<u64> = ids.collect();
        while let Some(id) = due.pop() {
            let Some(pending) = self.pending.get(&id).filter(|_| seen.insert(id)) else { continue };
            readers.extend(pending.left.iter().filter_map(|seq| self.reader(*seq)));
            due.extend(&pending.after);
        }
        readers
    }

    /// Crosses a forget off.
    pub fn acknowledge(&mut self, seq: u64) -> Acknowledged {
        let mut done = Acknowledged::default();
        let Some((_, id)) = self.forgets.remove(&seq) else { return done };
        let Some(pending) = self.pending.get_mut(&id) else {
            // A change that was answered before it was complete: a fault that tests plant.
            let free = self.unacknowledged.extract_if(.., |_, told| {
                told.forgets.remove(&seq);
                told.forgets.is_empty()
            });
            done.free = free.map(|(resource, _)| resource).collect();
            return done;
        };
        pending.left.remove(&seq);
        for resource in &pending.resources {
            if let Some(told) = self.unacknowledged.get_mut(resource) {
                told.forgets.remove(&seq);
                if told.forgets.is_empty() {
                    self.unacknowledged.remove(resource);
                    done.free.push(*resource);
                }
            }
        }
        let mut due = BTreeSet::from([id]);
        while let Some(id) = due.pop_first() {
            if !self.pending.get(&id).is_some_and(Pending::is_complete) {
                continue;
            }
            let Some(pending) = self.pending.remove(&id) else { continue };
            for follower in &pending.followers {
                if let Some(later) = self.pending.get_mut(follower) {
                    later.after.remove(&id);
                    due.insert(*follower);
                }
            }
            done.complete.push(pending);
        }
        done
    }
}
