//! Asking for rights, and taking in what is granted.

use meta::{FsError, Inode};
use types::{Ino, LockMode, ResourceId, ResourceKind};
use wire::{Ahead, Grant, GrantData, ToMaster, Want};

use crate::cache::{DirCache, Place};
use crate::core::Core;
use crate::wait::WaitKey;

impl Core {
    /// Asks the master for what `want` says, once, and returns what to wait for.
    pub(crate) fn want(&mut self, want: Want) -> WaitKey {
        let ino = want.ino();
        // What is being given back is asked for after that, or grant and release would cross.
        let covering = match self.place(ino) {
            Place::Covered(parent, _) => Some(ResourceId::dir(parent)),
            Place::Own | Place::Unknown => None,
        };
        let own = [ResourceId::dir(ino), ResourceId::attr(ino), ResourceId::file(ino)];
        for resource in own.into_iter().chain(covering) {
            if self.tokens.is_releasing(resource) {
                return WaitKey::Released(resource);
            }
        }
        if let Some(dir) = self.sought.get(&ino).copied() {
            if self.place(ino) == Place::Unknown
                && self.cache.dirs.get(&dir).is_some_and(|d| !d.is_complete())
            {
                return self.load_more(dir);
            }
            self.sought.remove(&ino);
        }
        if !self.wants.contains_key(&want) {
            let request = self.number();
            self.wants.insert(want, request);
            self.want_of.insert(request, (want, self.clock.now));
            self.metrics.tokens_requested.add(requested_kind(want).into(), 1);
            self.send_released();
            self.send_batch(false);
            let ahead = match want {
                Want::Directory { ino } => self.look_ahead(ino),
                Want::Attr { ino } => self.look_ahead_of_file(ino),
                Want::Read { .. } | Want::Write { .. } | Want::Open { .. } => Ahead::default(),
            };
            self.send(ToMaster::Acquire { request, want, ahead });
        }
        WaitKey::Want(want)
    }

    pub(crate) fn on_acquired(
        &mut self,
        request: u64,
        error: Option<FsError>,
        grants: Vec<Grant>,
        glimpse: Option<Box<Inode>>,
    ) {
        let granted: Vec<ResourceId> = grants.iter().map(|grant| grant.resource).collect();
        self.unsynced_at_master |= !granted.is_empty();
        for grant in grants {
            self.take_grant(grant);
        }
        let Some((want, since)) = self.want_of.remove(&request) else { return };
        self.metrics.token_wait.record(self.clock.now.since(since).0);
        self.wants.remove(&want);
        self.note_brought(want, &granted);
        self.find_place(want, &granted);
        let key = WaitKey::Want(want);
        // If it came with another directory, that covers the inode, and the master did not note the open.
        if let Want::Open { ino } = want
            && error.is_none()
            && granted.iter().all(|resource| resource.kind != ResourceKind::Dir || resource.ino == ino)
        {
            let known = self.known.note(ino);
            known.open_told = true;
        }
        if let Some(inode) = &glimpse
            && self.place(want.ino()) == Place::Unknown
        {
            self.set_place(want.ino(), Place::Own);
            let _ = inode;
        }
        self.edit_waiting(key, |progress| {
            progress.error = error;
            if error == Some(FsError::Stale) {
                match &mut progress.stale_ino {
                    (Some(last), row) if *last == want.ino() => *row += 1,
                    stale_ino => *stale_ino = (Some(want.ino()), 1),
                }
            }
            // Those that came after it was asked for ask again: it may be older than they are.
            let told = glimpse.clone().filter(|_| progress.number < request);
            progress.glimpse = told.map(|inode| (want.ino(), inode));
        });
        if let Some(inode) = &glimpse {
            self.learn(want.ino(), request, since, &inode.content);
        }
        if let Some(inode) = glimpse
            && self.waiting.contains_key(&key)
        {
            self.glimpsed.tell(want.ino(), request, *inode);
        }
        self.wake(key);
    }

    /// The master says what covers an inode by what it grants. A directory that is cached already brings no
    /// listing, so the inode is looked for in what is there.
    fn find_place(&mut self, want: Want, granted: &[ResourceId]) {
        let ino = want.ino();
        for resource in granted.iter().filter(|r| r.kind == ResourceKind::Dir && r.ino != ino) {
            let Some(dir) = self.cache.dirs.get(&resource.ino) else { continue };
            if let Place::Covered(parent, cookie) = self.place(ino)
                && parent == resource.ino
                && dir.entries.get(&cookie).is_some_and(|e| e.dirent.ino == ino)
            {
                return;
            }
            let mut covered = dir.entries.iter().filter(|(_, e)| e.dirent.covered().is_some());
            if let Some((cookie, _)) = covered.find(|(_, e)| e.dirent.ino == ino) {
                let place = Place::Covered(resource.ino, *cookie);
                self.cache.owns.remove(&ino);
                self.cache.learnt.remove(&ino);
                return self.set_place(ino, place);
            }
            // Its entry is further on, wherever it was seen last: asking again would bring the same first range again.
            let is_here = self.cache.dirs.contains_key(&ino) || self.cache.owns.contains_key(&ino);
            if !dir.is_complete() && !is_here && !matches!(want, Want::Directory { .. }) {
                self.set_place(ino, Place::Unknown);
                self.sought.insert(ino, resource.ino);
            }
        }
    }

    /// Takes in a right and what it covers.
    pub(crate) fn take_grant(&mut self, grant: Grant) {
        let Grant { resource, mode, data } = grant;
        #[cfg(feature = "planted")]
        if self.released_at.contains_key(&resource)
            && types::planted::strikes(types::planted::Planted::StaleGrantTaken)
        {
            self.released_at.remove(&resource);
        }
        if self.released_at.contains_key(&resource) {
            // Made before the master saw our release, which takes it away again. What it would have brought does not come again.
            self.drop_aside(resource.ino);
            return;
        }
        let ino = resource.ino;
        let held = self.tokens.held(resource);
        match data {
            GrantData::Held {} if held == LockMode::Nl => return,
            GrantData::Held {} => {}
            GrantData::Since { inode, changes } => self.take_turn(ino, *inode, &changes),
            GrantData::Directory { inode, listing } => {
                self.drop_aside(ino);
                if !self.cache.dirs.contains_key(&ino) {
                    let dir = DirCache::new(*inode, self.clock.now);
                    self.cache.dirs.insert(ino, Box::new(dir));
                    self.cache.add_entries(ino, listing.after, listing.entries, listing.complete);
                    self.set_place(ino, Place::Own);
                }
            }
            GrantData::Attr { attr } => {
                let own = self.cache.owns.entry(ino).or_default();
                if own.attr.is_none() {
                    own.attr = Some(attr);
                }
                self.set_place(ino, Place::Own);
            }
            GrantData::Content { content } => {
                if self.cache.owns.get(&ino).is_none_or(|own| own.content.is_none()) {
                    // Pages of extents that were read under another right may be older.
                    self.drop_pages(ino);
                }
                self.unlearn(ino);
                let own = self.cache.owns.entry(ino).or_default();
                if own.content.is_none() {
                    own.content = Some(content);
                }
                self.set_place(ino, Place::Own);
            }
        }
        let is_new = self.tokens.grant(self.clock.now, resource, mode);
        if resource.kind == ResourceKind::File && mode == LockMode::Ex {
            self.note_content_granted(ino);
        }
        if is_new {
            self.metrics.tokens_granted.add(resource.kind.into(), 1);
        } else if mode > held {
            self.metrics.tokens_converted.add(resource.kind.into(), 1);
        }
        self.note_moves();
    }

    /// The master has seen our releases up to number `seen`: what it grants from here on stands.
    pub(crate) fn note_seen(&mut self, seen: u64) {
        self.released_at.retain(|_, number| *number > seen);
    }

    /// More entries of a directory.
    pub(crate) fn on_entries(&mut self, dir: Ino, listing: wire::Listing, error: Option<FsError>) {
        if error.is_some() {
            if let Some(cached) = self.cache.dirs.get_mut(&dir) {
                cached.loading = false;
            }
            // Given back meanwhile: whoever waits begins again.
            if error != Some(FsError::Stale) {
                self.edit_waiting(WaitKey::Loaded(dir), |progress| progress.error = error);
            }
            self.wake(WaitKey::Loaded(dir));
            return;
        }
        self.unsynced_at_master = true;
        self.cache.add_entries(dir, listing.after, listing.entries, listing.complete);
        if let Some(cached) = self.cache.dirs.get_mut(&dir) {
            cached.loading = false;
        }
        self.note_moves();
        self.wake(WaitKey::Loaded(dir));
    }
}

fn requested_kind(want: Want) -> types::ResourceKind {
    match want {
        Want::Directory { .. } => types::ResourceKind::Dir,
        Want::Attr { .. } | Want::Open { .. } => types::ResourceKind::Attr,
        Want::Read { .. } | Want::Write { .. } => types::ResourceKind::File,
    }
}
