//! Revokes on their way out, nodes that do not answer, and what becomes of their memberships.
//!
//! Invariant: a membership ends only when nothing can be served under it any more (ARCHITECTURE.md, invariant 1).
//! Its node left, its process is gone or began anew, or its lease has ended, counted from the last renewal that
//! this master granted; the node counts from before that, and stops earlier. So a node that is to go is renewed no
//! more, and what it holds falls free with its lease.

use types::{LockMode, Micros, NodeId, ResourceId};
use wire::FromMaster;

use crate::member::{Member, Standing};
use crate::state::{Clock, Master};

/// Something that others wait for a node to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Debt {
    /// Giving a resource back.
    Release(ResourceId),
    /// Acknowledging a forget.
    Forget(u64),
    /// Answering a glimpse.
    Glimpse,
    /// Giving up a lock of an application. It may keep that as long as it lives.
    Lock,
    /// Giving credit back.
    Credit,
    /// Saying that it reads nothing any more of segments that nobody needs.
    Barrier,
    /// Taking a list of accounts that have limits.
    Limits,
    /// Nothing: it was told to go.
    Going,
}

/// How long a node is waited for.
#[derive(Clone, Copy, Debug)]
enum Patience {
    /// A lease from then on, however well it is: others wait.
    Lease { since: Micros },
    /// As long as its lease is renewed, and several leases from then on: nobody waits yet, and it may only be standing still.
    Idle { since: Micros },
    /// As long as its lease is renewed.
    Alive,
}

impl Debt {
    fn reason(self) -> String {
        match self {
            Self::Release(resource) => format!("it did not give {resource} back within its lease"),
            Self::Forget(seq) => format!("it did not acknowledge forget {seq} within its lease"),
            Self::Glimpse => "it did not answer a glimpse within its lease".to_owned(),
            Self::Lock => "its lease ended, and others wait for its locks".to_owned(),
            Self::Credit => "it did not give credit back within its lease".to_owned(),
            Self::Barrier => "its lease ended, and segments that nobody needs cannot be removed before it says that it does not read them".to_owned(),
            Self::Limits => "its lease ended, and it did not take the list of accounts with limits".to_owned(),
            Self::Going => "it was told to go".to_owned(),
        }
    }
}

impl Master {
    /// A member that may stay is renewed.
    pub(crate) fn on_ping(&mut self, node: NodeId, store_wait: Micros) {
        let (now, lease) = (self.clock.now, self.config.lease);
        let Some(member) = self.members.get_mut(&node).filter(|member| member.standing == Standing::Good)
        else {
            return;
        };
        member.renewed_at = now;
        if store_wait.0 >= lease.0 / STORE_WAIT_PART {
            log::warn!("node {node} has waited for its store for {} ms", store_wait.0 / 1000);
            member.store_waited_at = Some(now);
        }
        self.send(node, FromMaster::Pong { token_share: self.token_share() });
    }

    /// Revokes to one node go out together.
    pub(crate) fn queue_revoke(&mut self, node: NodeId, resource: ResourceId, to: LockMode) {
        if let Some(member) = self.members.get_mut(&node) {
            member.revokes.push((resource, to));
        }
    }

    pub(crate) fn send_revokes(&mut self) {
        let due: Vec<NodeId> =
            self.members.iter().filter(|(_, m)| !m.revokes.is_empty()).map(|(node, _)| *node).collect();
        for node in due {
            let list =
                self.members.get_mut(&node).map(|m| std::mem::take(&mut m.revokes)).unwrap_or_default();
            self.send(node, FromMaster::Revoke { list, speculative: false });
        }
    }

    /// What others wait for, of whom, and how long.
    fn debts(&self) -> impl Iterator<Item = (NodeId, Patience, Debt)> + '_ {
        let releases = self
            .table
            .owed()
            .map(|(node, resource, since)| (node, Patience::Lease { since }, Debt::Release(resource)));
        let forgets = self.under_way.forgets().filter_map(|(seq, node, id)| {
            let since = self.under_way.pending.get(&id)?.since;
            Some((node, Patience::Lease { since }, Debt::Forget(seq)))
        });
        let glimpses =
            self.glimpses.values().map(|g| (g.holder, Patience::Lease { since: g.since }, Debt::Glimpse));
        let locks = self.app_locks.in_way().map(|node| (node, Patience::Alive, Debt::Lock));
        let is_going = |member: &Member| matches!(member.standing, Standing::Leaving { .. });
        let going = self.members.iter().filter(move |(_, member)| is_going(member));
        let going = going.map(|(node, _)| (*node, Patience::Alive, Debt::Going));
        let credit = self.credit_owed().map(|(node, since)| (node, Patience::Lease { since }, Debt::Credit));
        let barriers =
            self.barriers_owed().map(|(node, since)| (node, Patience::Idle { since }, Debt::Barrier));
        let limits = self.limits_owed().map(|(node, since)| (node, Patience::Idle { since }, Debt::Limits));
        releases
            .chain(forgets)
            .chain(glimpses)
            .chain(credit)
            .chain(barriers)
            .chain(limits)
            .chain(locks)
            .chain(going)
    }

    /// When something is to be done about a debt: the node is renewed no more, or its membership ends.
    fn debt_due(&self, node: NodeId, patience: Patience) -> Micros {
        let Some(member) = self.members.get(&node) else { return Micros::NEVER };
        let ends = self.lease_ends(member);
        let due = match (&member.standing, patience) {
            (Standing::Good, Patience::Lease { since }) => {
                ends.min(self.patience_ends(member, since)).max(since)
            }
            (Standing::Good, Patience::Idle { since }) => {
                ends.max(since + Micros(self.config.lease.0 * IDLE_PATIENCE))
            }
            (Standing::Good, Patience::Alive) | (Standing::Leaving { .. }, _) => ends,
        };
        due.max(self.grace_until)
    }

    /// Until when a member that is renewed is waited for, of whom something is wanted since then: a lease, and while it
    /// waits for its store a lease after it last said so. Its content would be lost if it were sent away, and others
    /// may wait for the same store.
    fn patience_ends(&self, member: &Member, since: Micros) -> Micros {
        let from = member.store_waited_at.map_or(since, |at| at.max(since));
        let most = since + Micros(self.config.lease.0 * STORE_PATIENCE);
        most.min(from + self.config.lease)
    }

    /// When the lease that was last granted to a member has ended everywhere.
    pub(crate) fn lease_ends(&self, member: &Member) -> Micros {
        member.renewed_at + self.config.lease
    }

    /// When [`Master::end_overdue`] is next needed, or this is to be asked again: it is, with every message, and there may be thousands of debts, which are a
    /// matter of seconds.
    pub(crate) fn overdue_at(&self) -> Micros {
        let (looked, due) = self.overdue.get();
        let next_look = looked + PAUSE_DEBTS.min(Micros(self.config.lease.0 / 20));
        if due != Micros::NEVER && self.clock.now < due.min(next_look) {
            return due.min(next_look);
        }
        let dues = self.debts().map(|(node, patience, _)| self.debt_due(node, patience));
        let due = dues.min().unwrap_or(Micros::NEVER);
        self.overdue.set((self.clock.now, due));
        due
    }

    /// A machine that slept, or a master that was stopped, finds everything overdue at once. The renewals of those
    /// who slept with it are still on their way.
    pub(crate) fn note_lateness(&mut self) {
        let is_hurried = |patience: &Patience| matches!(patience, Patience::Lease { .. });
        let hurried = self.debts().filter(|(_, patience, _)| is_hurried(patience));
        let hurried = hurried.map(|(node, patience, _)| self.debt_due(node, patience));
        let late =
            hurried.min().is_some_and(|due| self.clock.now.since(due) > Micros(self.config.lease.0 / 10));
        if late {
            self.grace_until = self.clock.now + Micros(self.config.lease.0 / 3);
        }
    }

    /// It is called, and takes in what time it is. Members say something each third of a lease: if not one was heard for longer, it was the master that
    /// stood still, and what they said since is still to be taken in.
    pub(crate) fn wake_at(&mut self, clock: Clock) {
        self.clock = clock;
        let silence = clock.now.since(std::mem::replace(&mut self.entered_at, clock.now));
        let has_members = !(self.members.is_empty() && self.expected.is_empty());
        if has_members && silence > Micros(self.config.lease.0 / 2) {
            log::warn!("nothing was heard or done for {} ms: nobody is sent away for that", silence.0 / 1000);
            self.grace_until = clock.now + Micros(self.config.lease.0 / 3);
        }
    }

    /// A node that does not answer for a lease is renewed no more. The membership of one whose lease has ended
    /// stops nobody any longer.
    pub(crate) fn end_overdue(&mut self) {
        let now = self.clock.now;
        let overdue = self.debts().filter(|(node, patience, _)| self.debt_due(*node, *patience) <= now);
        let overdue: Vec<(NodeId, Debt)> = overdue.map(|(node, _, debt)| (node, debt)).collect();
        for (node, debt) in overdue {
            if debt == Debt::Lock && !self.app_locks.is_in_way(node) {
                continue;
            }
            let Some(member) = self.members.get(&node) else { continue };
            if self.lease_ends(member) <= now {
                let reason = match &member.standing {
                    Standing::Leaving { reason, .. } => reason.clone(),
                    Standing::Good => debt.reason(),
                };
                self.end_membership(node, reason);
            } else {
                self.renew_no_more(node, debt.reason());
            }
        }
    }

    /// The membership of who has a lock ends if its lease has.
    pub(crate) fn end_if_lapsed(&mut self, holder: NodeId) {
        if self.debt_due(holder, Patience::Alive) <= self.clock.now {
            self.end_membership(holder, Debt::Lock.reason());
        }
    }

    /// A member is renewed no more: its membership ends with its lease.
    pub(crate) fn renew_no_more(&mut self, node: NodeId, reason: String) {
        if let Some(member) = self.members.get_mut(&node)
            && member.standing == Standing::Good
        {
            log::warn!("the lease of node {node} is renewed no more: {reason}");
            member.standing = Standing::Leaving { reason, is_told: false };
        }
    }

    /// A member broke the protocol. It is told to go and not listened to; what it holds is held until it says that
    /// it has begun anew, or its lease has ended.
    pub(crate) fn expel(&mut self, node: NodeId, reason: String) {
        log::error!("node {node} is told to go: {reason}");
        self.send(node, FromMaster::Ended { reason: reason.clone() });
        if let Some(member) = self.members.get_mut(&node) {
            member.standing = Standing::Leaving { reason, is_told: true };
        }
    }
}

/// Between two looks at all debts.
const PAUSE_DEBTS: Micros = Micros::from_millis(50);
/// Part of a lease from which on a wait for the store is one.
const STORE_WAIT_PART: u64 = 10;
/// Leases that a node which says nothing is waited for with what nobody waits for.
const IDLE_PATIENCE: u64 = 6;
/// Leases that a node is waited for whose store does not answer, at most.
pub const STORE_PATIENCE: u64 = 6;
