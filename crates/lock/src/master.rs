//! Master side: who holds what, who waits for what.
//!
//! Invariants, asserted after every change in debug builds:
//!
//! - No two holders of a resource have incompatible modes (ARCHITECTURE.md, invariant 1).
//! - A holder is never granted less than it has except by its own release.
//! - Waiters of a resource are served in the order they came; a waiter holds nothing on account of waiting.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::{Ino, LockMode, Micros, NodeId, ResourceId};

/// Name of somebody who waits, chosen by the caller and unique among those waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// What a waiter needs of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// To be granted this mode: no other node may hold an incompatible one.
    Token(LockMode),
    /// To change it at the master on a node's behalf: no other node may hold EX.
    Change,
}

/// What the caller must do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Ask a holder for rights back.
    Revoke {
        /// The holder.
        node: NodeId,
        /// The resource.
        resource: ResourceId,
        /// The most it may keep.
        to: LockMode,
    },
    /// A waiter's need is met now. Act on it, then call [`MasterTable::settle`]: the next in line is not judged
    /// before.
    Ready {
        /// Who.
        waiter: WaiterId,
        /// What it waited for.
        resource: ResourceId,
    },
}

/// The token table of a master. Deterministic: the same calls give the same outputs.
#[derive(Clone, Debug, Default)]
pub struct MasterTable {
    /// Nearly all have one holder and nobody who waits: together with what [`held`](Self::held_by) needs, such a one takes less than
    /// [`TOKEN_BYTES`](crate::TOKEN_BYTES).
    resources: BTreeMap<ResourceId, Resource>,
    held: BTreeMap<NodeId, BTreeSet<ResourceId>>,
    opens: BTreeMap<Ino, BTreeSet<NodeId>>,
    /// Revokes that are not answered, and since when.
    owed: BTreeMap<(NodeId, ResourceId), Micros>,
    outputs: VecDeque<Output>,
}

#[derive(Clone, Debug, Default)]
struct Resource {
    holders: Vec<Holder>,
    /// `None` if there are none.
    waiters: Option<Box<VecDeque<Waiter>>>,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    node: NodeId,
    mode: LockMode,
    revoking: Option<Revoking>,
}

#[derive(Clone, Copy, Debug)]
struct Revoking {
    to: LockMode,
    since: Micros,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    id: WaiterId,
    node: NodeId,
    need: Need,
}

impl MasterTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next thing to do. Call until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Mode that `node` holds.
    pub fn mode(&self, node: NodeId, resource: ResourceId) -> LockMode {
        self.resources
            .get(&resource)
            .and_then(|r| r.holders.iter().find(|h| h.node == node))
            .map_or(LockMode::Nl, |h| h.mode)
    }

    /// Holders of a resource and their modes, in order of grant.
    pub fn holders(&self, resource: ResourceId) -> impl Iterator<Item = (NodeId, LockMode)> + '_ {
        self.resources.get(&resource).into_iter().flat_map(|r| &r.holders).map(|h| (h.node, h.mode))
    }

    /// Whether anybody but `node` holds the resource.
    pub fn is_shared(&self, resource: ResourceId, node: NodeId) -> bool {
        self.holders(resource).any(|(holder, _)| holder != node)
    }

    /// Nodes that wait for a resource.
    pub fn waiting(&self, resource: ResourceId) -> impl Iterator<Item = NodeId> + '_ {
        let waiters = self.resources.get(&resource).and_then(|entry| entry.waiters.as_ref());
        waiters.into_iter().flat_map(|waiters| waiters.iter().map(|waiter| waiter.node))
    }

    /// Whether somebody waits for the resource.
    pub fn is_wanted(&self, resource: ResourceId) -> bool {
        self.resources.get(&resource).is_some_and(Resource::is_wanted)
    }

    /// The node that holds EX, if one does.
    pub fn exclusive_holder(&self, resource: ResourceId) -> Option<NodeId> {
        self.holders(resource).find(|(_, mode)| *mode == LockMode::Ex).map(|(node, _)| node)
    }

    /// Whether `need` of `node` is met as things stand, whoever waits.
    pub fn is_met(&self, node: NodeId, resource: ResourceId, need: Need) -> bool {
        self.resources.get(&resource).is_none_or(|r| r.is_met(node, need))
    }

    /// Whether `node` may be granted `mode` at once: compatible, and nobody waits.
    pub fn may_grant(&self, node: NodeId, resource: ResourceId, mode: LockMode) -> bool {
        self.is_met(node, resource, Need::Token(mode)) && !self.is_wanted(resource)
    }

    /// Puts a waiter in line. [`Output::Ready`] follows at once if nothing is in the way, else revokes.
    pub fn wait(&mut self, now: Micros, waiter: WaiterId, node: NodeId, resource: ResourceId, need: Need) {
        let entry = self.resources.entry(resource).or_default();
        entry.waiters.get_or_insert_default().push_back(Waiter { id: waiter, node, need });
        self.advance(now, resource);
    }

    /// Takes a waiter out of line.
    pub fn cancel(&mut self, now: Micros, waiter: WaiterId, resource: ResourceId) {
        if let Some(entry) = self.resources.get_mut(&resource) {
            entry.retain_waiters(|w| w.id != waiter);
        }
        self.advance(now, resource);
    }

    /// Records a grant: raises `node`'s mode to at least `mode`.
    ///
    /// # Panics
    ///
    /// If another holder's mode is incompatible: the caller must have asked [`Self::is_met`].
    pub fn grant(&mut self, node: NodeId, resource: ResourceId, mode: LockMode) {
        if mode == LockMode::Nl {
            return;
        }
        let entry = self.resources.entry(resource).or_default();
        assert!(entry.is_met(node, Need::Token(mode)), "grant of {mode:?} on {resource} to {node}");
        match entry.holders.iter_mut().find(|h| h.node == node) {
            Some(holder) => holder.mode = holder.mode.max(mode),
            None => {
                // One at a time: a list that grows by itself begins with room for four.
                entry.holders.reserve_exact(1);
                entry.holders.push(Holder { node, mode, revoking: None });
                self.held.entry(node).or_default().insert(resource);
            }
        }
        self.check(resource);
    }

    /// A holder keeps at most `to`. Ready waiters and further revokes follow as outputs.
    ///
    /// A release of what is not held changes nothing: it crossed the end of a membership or a lost grant.
    pub fn release(&mut self, now: Micros, node: NodeId, resource: ResourceId, to: LockMode) {
        let Some(entry) = self.resources.get_mut(&resource) else { return };
        let Some(index) = entry.holders.iter().position(|h| h.node == node) else { return };
        let holder = &mut entry.holders[index];
        holder.mode = holder.mode.min(to);
        if holder.revoking.is_some_and(|r| r.to.permits(holder.mode)) {
            holder.revoking = None;
            self.owed.remove(&(node, resource));
        }
        if holder.mode == LockMode::Nl {
            self.owed.remove(&(node, resource));
            entry.holders.remove(index);
            self.unlist(node, resource);
        }
        self.advance(now, resource);
    }

    /// Forgets a node: its tokens and opens fall free. Returns the inodes it had open.
    pub fn remove_node(&mut self, now: Micros, node: NodeId) -> Vec<Ino> {
        let resources = self.held.remove(&node).unwrap_or_default();
        for &resource in &resources {
            self.owed.remove(&(node, resource));
            if let Some(entry) = self.resources.get_mut(&resource) {
                entry.holders.retain(|h| h.node != node);
            }
        }
        let waiting: Vec<_> =
            self.resources.iter().filter(|(_, r)| r.is_wanted()).map(|(id, _)| *id).collect();
        for resource in &waiting {
            if let Some(entry) = self.resources.get_mut(resource) {
                entry.retain_waiters(|w| w.node != node);
            }
        }
        for resource in resources.into_iter().chain(waiting) {
            self.advance(now, resource);
        }
        let open: Vec<Ino> =
            self.opens.iter().filter(|(_, nodes)| nodes.contains(&node)).map(|(ino, _)| *ino).collect();
        for ino in &open {
            self.close(node, *ino);
        }
        open
    }

    /// Forgets a resource that is gone: its holders know, for they are told with what removed it.
    ///
    /// Waiters become ready at once, to find that there is nothing left to wait for.
    pub fn remove_resource(&mut self, resource: ResourceId) {
        let Some(entry) = self.resources.remove(&resource) else { return };
        for holder in entry.holders {
            self.owed.remove(&(holder.node, resource));
            self.unlist(holder.node, resource);
        }
        for waiter in entry.waiters.into_iter().flat_map(|waiters| *waiters) {
            self.outputs.push_back(Output::Ready { waiter: waiter.id, resource });
        }
    }

    /// Notes that `node` has an uncovered inode open (OP).
    pub fn open(&mut self, node: NodeId, ino: Ino) {
        self.opens.entry(ino).or_default().insert(node);
    }

    /// Notes that `node` has closed it. Returns whether nobody has it open now.
    pub fn close(&mut self, node: NodeId, ino: Ino) -> bool {
        let Some(nodes) = self.opens.get_mut(&ino) else { return true };
        nodes.remove(&node);
        let is_last = nodes.is_empty();
        if is_last {
            self.opens.remove(&ino);
        }
        is_last
    }

    /// Nodes that have an uncovered inode open.
    pub fn open_nodes(&self, ino: Ino) -> impl Iterator<Item = NodeId> + '_ {
        self.opens.get(&ino).into_iter().flatten().copied()
    }

    /// All opens.
    pub fn opens(&self) -> Vec<(NodeId, Ino)> {
        self.opens.iter().flat_map(|(ino, nodes)| nodes.iter().map(|node| (*node, *ino))).collect()
    }

    /// Resources that `node` holds, in order.
    pub fn held_by(&self, node: NodeId) -> impl Iterator<Item = ResourceId> + '_ {
        self.held.get(&node).into_iter().flatten().copied()
    }

    /// How many tokens `node` holds.
    pub fn held_count(&self, node: NodeId) -> usize {
        self.held.get(&node).map_or(0, BTreeSet::len)
    }

    /// Resources in the table.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether nobody holds or wants anything.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Revokes sent and not answered: node, resource, since when.
    pub fn owed(&self) -> impl Iterator<Item = (NodeId, ResourceId, Micros)> + '_ {
        self.owed.iter().map(|((node, resource), since)| (*node, *resource, *since))
    }

    /// Whether a revoke of a resource that was sent to `node` is not answered.
    pub fn is_owed(&self, node: NodeId, resource: ResourceId) -> bool {
        self.owed.contains_key(&(node, resource))
    }

    /// Sends the unanswered revokes of `node` once more: its connection broke, and they may be lost.
    pub fn revoke_again(&mut self, node: NodeId) {
        for resource in self.held_by(node).collect::<Vec<_>>() {
            let holders = self.resources.get(&resource).map(|entry| &entry.holders);
            let revoking = holders.into_iter().flatten().find(|h| h.node == node).and_then(|h| h.revoking);
            if let Some(Revoking { to, .. }) = revoking {
                self.outputs.push_back(Output::Revoke { node, resource, to });
            }
        }
    }

    /// Asks `node` for a resource back though nobody waits for it, as for a walk that is about to come.
    pub fn revoke(&mut self, now: Micros, node: NodeId, resource: ResourceId, to: LockMode) {
        if let Some(entry) = self.resources.get_mut(&resource) {
            entry.revoke(now, resource, |h| h.node == node, to, &mut self.outputs, &mut self.owed);
        }
    }

    /// Serves the waiters at the head of the line, or asks for what they need.
    fn advance(&mut self, now: Micros, resource: ResourceId) {
        let Some(entry) = self.resources.get_mut(&resource) else { return };
        // One at a time: the caller acts on Ready (and grants) before the next waiter is judged, in `settle`.
        if let Some(head) = entry.first_waiter() {
            if entry.is_met(head.node, head.need) {
                entry.pop_waiter();
                self.outputs.push_back(Output::Ready { waiter: head.id, resource });
            } else {
                let to = head.need.leaves();
                let others = |h: &Holder| h.node != head.node;
                entry.revoke(now, resource, others, to, &mut self.outputs, &mut self.owed);
            }
        }
        if entry.holders.is_empty() && !entry.is_wanted() {
            self.resources.remove(&resource);
        } else {
            self.check(resource);
        }
    }

    /// Goes on with the line of a resource after a ready waiter was acted on.
    pub fn settle(&mut self, now: Micros, resource: ResourceId) {
        self.advance(now, resource);
    }

    fn unlist(&mut self, node: NodeId, resource: ResourceId) {
        if let Some(list) = self.held.get_mut(&node) {
            list.remove(&resource);
            if list.is_empty() {
                self.held.remove(&node);
            }
        }
    }

    fn check(&self, resource: ResourceId) {
        let Some(entry) = self.resources.get(&resource) else { return };
        for (index, a) in entry.holders.iter().enumerate() {
            for b in &entry.holders[index + 1..] {
                assert!(a.mode.is_compatible_with(b.mode), "{resource}: {a:?} beside {b:?}");
            }
        }
    }
}

impl Need {
    /// The most that others may keep.
    fn leaves(self) -> LockMode {
        match self {
            Self::Token(mode) => mode.strongest_beside(),
            Self::Change => LockMode::Pr,
        }
    }
}

impl Resource {
    fn is_wanted(&self) -> bool {
        self.waiters.is_some()
    }

    fn first_waiter(&self) -> Option<Waiter> {
        self.waiters.as_ref().and_then(|waiters| waiters.front()).copied()
    }

    fn pop_waiter(&mut self) {
        if let Some(waiters) = &mut self.waiters {
            waiters.pop_front();
        }
        self.waiters.take_if(|waiters| waiters.is_empty());
    }

    fn retain_waiters(&mut self, keep: impl FnMut(&Waiter) -> bool) {
        if let Some(waiters) = &mut self.waiters {
            waiters.retain(keep);
        }
        self.waiters.take_if(|waiters| waiters.is_empty());
    }

    fn is_met(&self, node: NodeId, need: Need) -> bool {
        let most = need.leaves();
        self.holders.iter().all(|h| h.node == node || most.permits(h.mode))
    }

    fn revoke(
        &mut self,
        now: Micros,
        resource: ResourceId,
        of: impl Fn(&Holder) -> bool,
        to: LockMode,
        outputs: &mut VecDeque<Output>,
        owed: &mut BTreeMap<(NodeId, ResourceId), Micros>,
    ) {
        for holder in self.holders.iter_mut().filter(|h| of(h) && !to.permits(h.mode)) {
            if holder.revoking.is_some_and(|r| to.permits(r.to)) {
                continue;
            }
            let since = holder.revoking.map_or(now, |r| r.since);
            holder.revoking = Some(Revoking { to, since });
            owed.insert((holder.node, resource), since);
            outputs.push_back(Output::Revoke { node: holder.node, resource, to });
        }
    }
}

#[cfg(test)]
mod tests;
