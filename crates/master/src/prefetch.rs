//! Walks: a node that goes from directory to directory is granted those that it will come to next.
//!
//! This is why a walk costs few messages: a directory asked for brings others along, ever more while the walk goes
//! on. The node knows where its walk is going and how much of what was brought it has used ([`Ahead`]); the master adds
//! what lies under that. Directories that another node holds in EX but does not use are asked back in one
//! message, for the walk to find them free when it comes there.

use std::collections::{BTreeMap, VecDeque};

use meta::{Child, Cookie, FileKind, Key};
use types::{Ino, LockMode, NodeId, ResourceId};
use wire::{Ahead, FromMaster, Grant, GrantData};

use crate::acquire::LISTING_BYTES;
use crate::state::Master;

/// What is asked back for what may come, by holder.
pub(crate) type AskBack = BTreeMap<NodeId, Vec<(ResourceId, LockMode)>>;

impl Master {
    /// Adds grants of directories that a walk through `dir` will come to, and asks back what lies there and is
    /// held by others: the next step of the walk finds it free. What `grants` has takes `taken` bytes already; returns what it takes then.
    pub(crate) fn prefetch(
        &mut self,
        node: NodeId,
        dir: Ino,
        ahead: Ahead,
        grants: &mut Vec<Grant>,
        taken: usize,
    ) -> usize {
        let window = window_of(&ahead);
        let Some(first) = grants.first().filter(|_| window > 0) else { return taken };
        let mut bytes = taken;
        let mut ask = AskBack::new();
        let mut route = Route::new(directories_of(first), ahead.next);
        let (mut brought, mut asked, mut seen) = (0, 0, 0);
        // Of directories that did not fit, and what was read of those that others hold.
        let (mut misfits, mut looked) = (0, 0);
        while let Some((next, side)) = route.next() {
            seen += 1;
            let is_full = brought >= window || bytes + GRANT_BYTES_MIN > BYTES_MAX || misfits >= MISFITS_MAX;
            // Beyond what is granted only those are of interest that somebody else holds, if anybody does.
            if seen > 4 * window || asked >= window || looked > LOOKED_MAX || is_full && asked == 0 {
                break;
            }
            let resource = ResourceId::dir(next);
            if next == dir || self.table.mode(node, resource) != LockMode::Nl || self.is_changing(resource) {
                continue;
            }
            let children = if self.note_held(node, resource, &mut ask) {
                asked += 1;
                self.listing(next, 0, LISTING_BYTES).map(|(listing, bytes)| {
                    looked += bytes;
                    directories_in(&listing)
                })
            } else if is_full || !self.table.may_grant(node, resource, LockMode::Pr) {
                continue;
            } else {
                let room = (BYTES_MAX - bytes).min(LISTING_BYTES);
                if room < LISTING_BYTES && !self.fits(next, room) {
                    // The walk asks for it by itself, and gets it whole.
                    misfits += 1;
                    continue;
                }
                self.grant_directory(node, next, LockMode::Pr, room).map(|(grant, grant_bytes)| {
                    let children = directories_of(&grant);
                    bytes += grant_bytes;
                    brought += 1;
                    grants.push(grant);
                    children
                })
            };
            route.add(children.unwrap_or_default(), side);
        }
        log::debug!("walk of node {node}: D({dir}) brings {brought} more, {bytes} bytes; {asked} asked back");
        self.ask_back(ask);
        bytes
    }

    /// A walk has come to a directory that another node holds in EX. What lies ahead and is held likewise is
    /// asked back together with it, so that one answer brings it all.
    pub(crate) fn ask_ahead(&mut self, node: NodeId, dir: Ino, ahead: Ahead) {
        let window = window_of(&ahead);
        if window == 0 {
            return;
        }
        let Ok((listing, mut looked)) = self.listing(dir, 0, LISTING_BYTES) else { return };
        let mut ask = AskBack::new();
        let mut route = Route::new(directories_in(&listing), ahead.next);
        let (mut asked, mut seen) = (0, 0);
        while let Some((next, side)) = route.next() {
            seen += 1;
            if asked >= window || seen > 2 * window || looked > LOOKED_MAX {
                break;
            }
            if next == dir {
                continue;
            }
            asked += usize::from(self.note_held(node, ResourceId::dir(next), &mut ask));
            let Ok((listing, bytes)) = self.listing(next, 0, LISTING_BYTES) else { continue };
            looked += bytes;
            route.add(directories_in(&listing), side);
        }
        self.ask_back(ask);
    }

    /// Notes what another node holds in EX; returns whether one does.
    pub(crate) fn note_held(&self, node: NodeId, resource: ResourceId, ask: &mut AskBack) -> bool {
        let holder = self.table.exclusive_holder(resource).filter(|holder| *holder != node);
        if let Some(holder) = holder {
            ask.entry(holder).or_default().push((resource, LockMode::Pr));
        }
        holder.is_some()
    }

    /// Whether the entries of `dir`, as far as one message has them at all, take no more than `room` bytes.
    fn fits(&self, dir: Ino, room: usize) -> bool {
        let (start, end) = Key::entries_after(dir, Cookie::START);
        let limit = kv::ScanLimit { entries: self.listing_entries, bytes: room };
        let page = self.engine.scan(&kv::KeyRange::new(start, end), limit, kv::Direction::Forward);
        page.is_ok_and(|page| !page.more || page.entries.len() == self.listing_entries)
    }

    pub(crate) fn ask_back(&mut self, ask: AskBack) {
        for (holder, list) in ask {
            self.send(holder, FromMaster::Revoke { list, speculative: true });
        }
    }
}

/// Directories in the order in which a walk may come to them: by turns those below where it is, depth first, and those
/// beside it. Some tools read a directory before they look at the next one, others look at all of them first.
struct Route {
    below: VecDeque<Ino>,
    beside: VecDeque<Ino>,
    turn: Side,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Below,
    Beside,
}

impl Route {
    fn new(below: Vec<Ino>, beside: Vec<Ino>) -> Self {
        Self { below: below.into(), beside: beside.into(), turn: Side::Below }
    }

    fn next(&mut self) -> Option<(Ino, Side)> {
        let side = match self.turn {
            Side::Below if self.below.is_empty() => Side::Beside,
            Side::Beside if self.beside.is_empty() => Side::Below,
            turn => turn,
        };
        let (queue, turn) = match side {
            Side::Below => (&mut self.below, Side::Beside),
            Side::Beside => (&mut self.beside, Side::Below),
        };
        self.turn = turn;
        queue.pop_front().map(|ino| (ino, side))
    }

    /// What lies below a directory that came from `side`: next, or after everything below those before it.
    fn add(&mut self, children: Vec<Ino>, side: Side) {
        match side {
            Side::Below => children.into_iter().rev().for_each(|child| self.below.push_front(child)),
            Side::Beside => self.below.extend(children),
        }
    }
}

/// Directories to bring along.
fn window_of(ahead: &Ahead) -> usize {
    usize::try_from(ahead.window).map_or(WINDOW_MAX, |window| window.min(WINDOW_MAX))
}

fn directories_of(grant: &Grant) -> Vec<Ino> {
    match &grant.data {
        GrantData::Directory { listing, .. } => directories_in(listing),
        GrantData::Held {} | GrantData::Since { .. } | GrantData::Attr { .. } | GrantData::Content { .. } => {
            Vec::new()
        }
    }
}

/// The subdirectories of a listing, in its order.
fn directories_in(listing: &wire::Listing) -> Vec<Ino> {
    let is_dir = |child: &Child| matches!(child, Child::Own { kind: FileKind::Directory });
    listing.entries.iter().filter(|(_, e)| is_dir(&e.child)).map(|(_, e)| e.ino).collect()
}

/// Directories that one grant brings along at most.
const WINDOW_MAX: usize = 512;
/// Bytes of the grants in one message, at most; what goes beyond it is one directory's record and one entry.
pub(crate) const BYTES_MAX: usize = 896 << 10;
/// Bytes of directories that are read only to see what lies below them, about, for one message.
const LOOKED_MAX: usize = 16 << 20;
/// Directories that do not fit after which nothing more is tried: each is read as far as there is room.
const MISFITS_MAX: usize = 4;
/// With less room than this nothing more is tried.
const GRANT_BYTES_MIN: usize = 4 << 10;
