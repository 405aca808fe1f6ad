//! Walks: a node that goes from directory to directory is granted those that it will come to next.
//!
//! This is why a walk costs few messages: the first directory asked for brings the next ones along, ever more
//! while the walk goes on. Directories that another node holds in EX but does not use are asked back in one
//! message, for the walk to find them free when it comes there.

use std::collections::{BTreeMap, VecDeque};

use meta::{Child, FileKind, Key, StoredInode};
use types::{Ino, LockMode, NodeId, ResourceId};
use wire::{FromMaster, Grant, GrantData};

use crate::state::Master;

/// Where a node's walk stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    /// Directories asked for in a row whose parent the node has.
    steps: u32,
}

impl Master {
    /// Adds grants of directories that a walk through `dir` will come to.
    pub(crate) fn prefetch(&mut self, node: NodeId, dir: Ino, grants: &mut Vec<Grant>) {
        let parent = match grants.first().map(|g| &g.data) {
            Some(GrantData::Directory { inode, .. }) => inode.attr.parent,
            Some(_) | None => return,
        };
        let is_step = parent != dir && self.table.mode(node, ResourceId::dir(parent)) != LockMode::Nl;
        let Some(member) = self.members.get_mut(&node) else { return };
        member.walk.steps = if is_step { member.walk.steps + 1 } else { 0 };
        if member.walk.steps < STEPS_MIN {
            return;
        }
        let window = 4usize.saturating_pow(member.walk.steps - STEPS_MIN + 1).min(WINDOW_MAX);
        let mut ask: BTreeMap<NodeId, Vec<(ResourceId, LockMode)>> = BTreeMap::new();
        let mut bytes = weight(&grants[0]);
        let mut queue = VecDeque::from([dir]);
        queue.extend(self.siblings_after(parent, dir));
        let (mut granted, mut seen) = (0usize, 0usize);
        while let Some(next) = queue.pop_front() {
            seen += 1;
            if granted >= window || bytes >= BYTES_MAX || seen > 4 * WINDOW_MAX {
                break;
            }
            let resource = ResourceId::dir(next);
            if next != dir {
                if self.table.mode(node, resource) != LockMode::Nl || self.is_changing(resource) {
                    continue;
                }
                if !self.table.may_grant(node, resource, LockMode::Pr) {
                    if let Some(holder) = self.table.exclusive_holder(resource) {
                        ask.entry(holder).or_default().push((resource, LockMode::Pr));
                    }
                    granted += 1;
                    continue;
                }
                let Ok(grant) = self.grant_directory(node, next, LockMode::Pr) else { continue };
                bytes += weight(&grant);
                granted += 1;
                grants.push(grant);
            }
            // Depth first, as tools walk: children come before the rest of the queue.
            for child in self.subdirectories(grants.last()).into_iter().rev() {
                queue.push_front(child);
            }
        }
        for (holder, list) in ask {
            self.send(holder, FromMaster::Revoke { list, speculative: true });
        }
    }

    /// A walk has come to a directory that another node holds in EX. What lies ahead and is held likewise is
    /// asked back together with it, so that one answer brings it all.
    pub(crate) fn ask_ahead(&mut self, node: NodeId, dir: Ino) {
        let Ok(Some(StoredInode::Directory { inode })) = self.read(Key::Inode(dir)) else { return };
        let parent = inode.attr.parent;
        let steps = self.members.get(&node).map_or(0, |m| m.walk.steps) + 1;
        let is_step = parent != dir && self.table.mode(node, ResourceId::dir(parent)) != LockMode::Nl;
        if !is_step || steps < STEPS_MIN {
            return;
        }
        let window = 4usize.saturating_pow(steps - STEPS_MIN + 1).min(WINDOW_MAX);
        let mut ask: BTreeMap<NodeId, Vec<(ResourceId, LockMode)>> = BTreeMap::new();
        let mut queue = VecDeque::from([dir]);
        queue.extend(self.siblings_after(parent, dir));
        let (mut asked, mut seen) = (0usize, 0usize);
        while let Some(next) = queue.pop_front() {
            seen += 1;
            if asked >= window || seen > 2 * WINDOW_MAX {
                break;
            }
            let resource = ResourceId::dir(next);
            if next != dir
                && let Some(holder) = self.table.exclusive_holder(resource).filter(|holder| *holder != node)
            {
                ask.entry(holder).or_default().push((resource, LockMode::Pr));
                asked += 1;
            }
            let Ok(listing) = self.listing(next, 0) else { continue };
            for child in directories_in(&listing).into_iter().rev() {
                queue.push_front(child);
            }
        }
        for (holder, list) in ask {
            self.send(holder, FromMaster::Revoke { list, speculative: true });
        }
    }

    fn subdirectories(&self, grant: Option<&Grant>) -> Vec<Ino> {
        let Some(GrantData::Directory { listing, .. }) = grant.map(|g| &g.data) else { return Vec::new() };
        directories_in(listing)
    }

    /// Directories that come after `dir` in its parent, as far as one listing reaches.
    fn siblings_after(&self, parent: Ino, dir: Ino) -> Vec<Ino> {
        if !matches!(self.read(Key::Inode(parent)), Ok(Some(StoredInode::Directory { .. }))) {
            return Vec::new();
        }
        let Ok(listing) = self.listing(parent, 0) else { return Vec::new() };
        let after = listing.entries.iter().skip_while(|(_, e)| e.ino != dir).skip(1);
        let is_dir = |child: &Child| matches!(child, Child::Own { kind: FileKind::Directory });
        after.filter(|(_, e)| is_dir(&e.child)).map(|(_, e)| e.ino).take(WINDOW_MAX).collect()
    }
}

/// The subdirectories of a listing, in its order.
fn directories_in(listing: &wire::Listing) -> Vec<Ino> {
    let is_dir = |child: &Child| matches!(child, Child::Own { kind: FileKind::Directory });
    listing.entries.iter().filter(|(_, e)| is_dir(&e.child)).map(|(_, e)| e.ino).collect()
}

/// Bytes of a grant in a message, about.
fn weight(grant: &Grant) -> usize {
    match &grant.data {
        GrantData::Directory { listing, .. } => {
            256 + listing
                .entries
                .iter()
                .map(|(_, e)| {
                    96 + e.name.as_bytes().len()
                        + e.covered().map_or(0, |i| match &i.content.body {
                            meta::Body::Inline { data } => data.len(),
                            meta::Body::Extents { map } => map.len() * 48,
                            _ => 0,
                        })
                })
                .sum::<usize>()
        }
        GrantData::Held {} | GrantData::Attr { .. } | GrantData::Content { .. } => 256,
    }
}

const STEPS_MIN: u32 = 2;
const WINDOW_MAX: usize = 512;
const BYTES_MAX: usize = 1 << 20;
