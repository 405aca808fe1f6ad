//! Acquires: what a node needs to serve an inode. The request names the inode; what covers it now is found
//! here, in the engine.

use std::ops::Range;

use chunk::ExtentMap;
use lock::Need;
use meta::{Change, Cookie, Dirent, FileKind, FsError, Inode, InodeAttr, Key, StoredInode};
use types::{Encode, Ino, LockMode, Micros, NodeId, ResourceId};
use wire::{Ahead, FetchWhat, FromMaster, Grant, GrantData, Listing, Want};

use crate::prefetch::BYTES_MAX;
use crate::state::{Master, Task};

/// A glimpse on its way to the holder of a content.
#[derive(Debug)]
pub(crate) struct Glimpse {
    /// Who asked.
    node: NodeId,
    request: u64,
    /// Of what.
    pub ino: Ino,
    /// Who was asked.
    pub holder: NodeId,
    /// When.
    pub since: Micros,
    /// The inquiry that it is a part of.
    inquiry: Option<u64>,
}

/// An acquire of an inode that is not recorded: the node that was given its number may have made it and not flushed its log yet.
/// A process may know such an inode by its handle only. Who may have it is asked, and flushes it before he answers.
#[derive(Debug)]
pub(crate) struct Inquiry {
    node: NodeId,
    request: u64,
    want: Want,
    ahead: Ahead,
    /// How many have yet to answer.
    left: usize,
}

impl Master {
    pub(crate) fn try_acquire(&mut self, node: NodeId, request: u64, want: Want, ahead: Ahead) {
        if !self.members.contains_key(&node) {
            return;
        }
        match self.read::<StoredInode>(Key::Inode(want.ino())) {
            Ok(None) if self.inquire(node, request, want, &ahead) => {}
            _ => self.acquire_recorded(node, request, want, ahead),
        }
    }

    /// Acquires what is recorded; nothing else is there.
    fn acquire_recorded(&mut self, node: NodeId, request: u64, want: Want, ahead: Ahead) {
        if let Err(error) = self.acquire(node, request, want, ahead) {
            let message = FromMaster::Acquired {
                request,
                error: Some(error),
                grants: Vec::new(),
                seen: 0,
                glimpse: None,
            };
            self.send(node, message);
        }
    }

    /// Asks about an inode that is not recorded. False if there is nobody who could know of it.
    fn inquire(&mut self, node: NodeId, request: u64, want: Want, ahead: &Ahead) -> bool {
        let ino = want.ino();
        if ino.0 >= self.volume.next_inode {
            return false;
        }
        let given = self.numbers_given.range(..=ino).next_back().map(|(_, member)| *member);
        // An earlier master may have given it to anybody.
        let may_have = |member: &NodeId| *member != node && given.is_none_or(|given| given == *member);
        let others: Vec<NodeId> = self.members.keys().copied().filter(may_have).collect();
        if others.is_empty() {
            return false;
        }
        let id = self.number();
        let since = self.clock.now;
        self.inquiries.insert(id, Inquiry { node, request, want, ahead: ahead.clone(), left: others.len() });
        for holder in others {
            let seq = self.number();
            self.glimpses.insert(seq, Glimpse { node, request, ino, holder, since, inquiry: Some(id) });
            self.send(holder, FromMaster::Glimpse { seq, list: vec![ino] });
        }
        true
    }

    /// One more has answered an inquiry, behind what it had to flush.
    fn on_inquired(&mut self, id: u64) {
        let Some(inquiry) = self.inquiries.get_mut(&id) else { return };
        inquiry.left -= 1;
        if inquiry.left == 0
            && let Some(Inquiry { node, request, want, ahead, .. }) = self.inquiries.remove(&id)
            && self.members.contains_key(&node)
        {
            self.acquire_recorded(node, request, want, ahead);
        }
    }

    fn acquire(&mut self, node: NodeId, request: u64, want: Want, ahead: Ahead) -> Result<(), FsError> {
        let ino = want.ino();
        let Some(stored) = self.read::<StoredInode>(Key::Inode(ino))? else { return Err(FsError::Stale) };
        let task = Task::Acquire { node, request, want, ahead };
        match (want, stored) {
            (Want::Directory { .. }, StoredInode::Covered { .. } | StoredInode::Own { .. }) => {
                Err(FsError::NotDirectory)
            }
            (Want::Read { .. } | Want::Write { .. }, StoredInode::Directory { .. }) => {
                Err(FsError::IsDirectory)
            }
            (_, StoredInode::Directory { .. }) => self.acquire_directory(node, request, ino, task),
            (Want::Write { .. }, StoredInode::Covered { parent, .. }) => {
                let resource = ResourceId::dir(parent);
                if self.table.mode(node, resource) == LockMode::Ex {
                    // The node got EX since it asked.
                    self.answer(node, request, Vec::new());
                } else if self.may_hold_alone(node, resource) && !self.is_contested(parent) {
                    // Its writes need no tokens of the file's then, and nor do those of the next files.
                    self.table.grant(node, resource, LockMode::Ex);
                    let held = Grant { resource, mode: LockMode::Ex, data: GrantData::Held {} };
                    self.answer(node, request, vec![held]);
                } else {
                    self.split_for(node, request, ino);
                }
                Ok(())
            }
            (_, StoredInode::Covered { parent, .. }) => self.acquire_directory(node, request, parent, task),
            (_, StoredInode::Own { attr }) if attr.nlink == 0 && self.is_going(ino) => Err(FsError::Stale),
            (Want::Attr { .. }, StoredInode::Own { attr }) => {
                self.acquire_attr(node, request, ino, attr, task)
            }
            (Want::Open { .. }, StoredInode::Own { attr }) => {
                // A holder of EX may remove the inode, and knows of no opens but its own.
                let (resource, need) = (ResourceId::attr(ino), Need::Token(LockMode::Pr));
                if !self.table.is_met(node, resource, need) {
                    self.wait_for(node, resource, need, task);
                    return Ok(());
                }
                self.table.open(node, ino);
                let mut grants = Vec::new();
                self.grant_attr(node, ino, attr, &mut grants);
                if !self.table.is_wanted(ResourceId::file(ino)) {
                    self.grant_content(node, ino, LockMode::Pr, &mut grants)?;
                }
                self.answer(node, request, grants);
                Ok(())
            }
            (Want::Read { .. }, StoredInode::Own { attr }) => {
                self.acquire_content(node, request, ino, attr, LockMode::Pr, task)
            }
            (Want::Write { .. }, StoredInode::Own { attr }) => {
                self.acquire_content(node, request, ino, attr, LockMode::Ex, task)
            }
        }
    }

    /// Whether somebody was there before a node that holds nothing of a resource. Readers would else let one another in for ever past a writer
    /// who waits.
    fn is_behind(&self, node: NodeId, resource: ResourceId) -> bool {
        self.table.is_wanted(resource)
            && self.table.mode(node, resource) == LockMode::Nl
            && self.in_turn != Some(resource)
    }

    fn answer(&mut self, node: NodeId, request: u64, grants: Vec<Grant>) {
        let seen = self.releases_seen(node);
        self.send(node, FromMaster::Acquired { request, error: None, grants, seen, glimpse: None });
    }

    fn acquire_directory(&mut self, node: NodeId, request: u64, dir: Ino, task: Task) -> Result<(), FsError> {
        let resource = ResourceId::dir(dir);
        let mode = self.mode_to_read(node, dir);
        let need = Need::Token(mode);
        if self.is_changing(resource) {
            self.wait_behind(resource, task);
            return Ok(());
        }
        if self.is_behind(node, resource) || !self.table.is_met(node, resource, need) {
            self.ask_ahead(node, dir, ahead_of(&task));
            self.wait_for(node, resource, need, task);
            return Ok(());
        }
        let held = self.table.mode(node, resource);
        let (grant, bytes) = match held.permits(mode) && self.is_contested(dir) {
            // Asked for more than once before its turn began.
            true => (Grant { resource, mode: held, data: GrantData::Held {} }, GRANT_LEN_MAX),
            false => self.grant_directory(node, dir, mode, LISTING_BYTES)?,
        };
        let mut grants = vec![grant];
        let bytes = self.prefetch(node, dir, ahead_of(&task), &mut grants, bytes);
        self.bring_files(node, &mut grants, bytes, BYTES_MAX);
        self.answer(node, request, grants);
        self.table.settle(self.clock.now, resource);
        Ok(())
    }

    /// Grants a directory with its record and its first entries, about `bytes_max` of them, or, to a node that has kept it aside,
    /// with what has changed since. The caller has asked the table. Returns also the bytes that the grant takes in a message, at most.
    pub(crate) fn grant_directory(
        &mut self,
        node: NodeId,
        dir: Ino,
        mode: LockMode,
        bytes_max: usize,
    ) -> Result<(Grant, usize), FsError> {
        let resource = ResourceId::dir(dir);
        let Some(StoredInode::Directory { inode }) = self.read(Key::Inode(dir))? else {
            return Err(FsError::Stale);
        };
        let since = self.take_aside(node, dir).map(|changes| {
            let bytes: usize = changes.iter().map(Change::encoded_len_max).sum();
            (changes, bytes)
        });
        let (data, bytes) = match since.filter(|(_, bytes)| *bytes <= bytes_max) {
            Some((changes, bytes)) => (GrantData::Since { inode: inode.clone(), changes }, bytes),
            None => {
                let (listing, bytes) = self.listing(dir, 0, bytes_max)?;
                (GrantData::Directory { inode: inode.clone(), listing }, bytes)
            }
        };
        let bytes = bytes + inode.to_bytes().len() + GRANT_LEN_MAX;
        self.note_granted(node, dir, mode);
        self.table.grant(node, resource, mode);
        let mode = self.table.mode(node, resource);
        Ok((Grant { resource, mode, data }, bytes))
    }

    /// A range of entries of about `bytes_max`, and the bytes that it takes in a message, at most: one entry may
    /// go beyond.
    pub(crate) fn listing(
        &self,
        dir: Ino,
        after: u64,
        bytes_max: usize,
    ) -> Result<(Listing, usize), FsError> {
        let (start, end) = Key::entries_after(dir, Cookie(after));
        let mut range = kv::KeyRange::new(start, end);
        // One with nothing but damage in it would be asked for again and again.
        loop {
            let limit = kv::ScanLimit { entries: self.listing_entries, bytes: bytes_max };
            let page = self.engine.scan(&range, limit, kv::Direction::Forward).map_err(|error| {
                log::error!("metadata engine: {error}");
                FsError::Io
            })?;
            if let Some((last, _)) = page.entries.last().filter(|_| page.more) {
                range = range.rest_after(last, kv::Direction::Forward);
            }
            // A stored entry is longer than one in a message.
            let bytes = page.entries.iter().map(|(key, value)| key.len() + value.len()).sum();
            let (entries, more) = (self.readable(dir, page.entries), page.more);
            if !entries.is_empty() || !more {
                return Ok((Listing { after, entries, complete: !more }, bytes));
            }
        }
    }

    /// Entries as they are read; without those that are damaged.
    fn readable(&self, dir: Ino, stored: Vec<kv::Entry>) -> Vec<(Cookie, Dirent)> {
        let mut entries = Vec::with_capacity(stored.len());
        for (key, value) in stored {
            match (Key::from_slice(&key), meta::value_decode::<Dirent>(&key, &value)) {
                (Some(Key::Entry(_, cookie)), Ok(entry)) => entries.push((cookie, entry)),
                // One damaged entry must not hide the rest of its directory.
                (_, Err(damage)) => {
                    log::error!("metadata: {damage}");
                    self.metrics.metadata_damaged.add(1);
                }
                (_, Ok(_)) => {
                    log::error!("metadata: a key among the entries of ino {dir} is none");
                    self.metrics.metadata_damaged.add(1);
                }
            }
        }
        entries
    }

    pub(crate) fn on_more(&mut self, node: NodeId, dir: Ino, after: u64) {
        // A node that has given the directory back meanwhile asks for all of it again.
        let listing = match self.table.mode(node, ResourceId::dir(dir)) {
            LockMode::Nl => Err(FsError::Stale),
            LockMode::Pr | LockMode::Ex => {
                self.listing(dir, after, LISTING_BYTES).map(|(listing, _)| listing)
            }
        };
        let (listing, error) = match listing {
            Ok(listing) => (listing, None),
            Err(error) => (Listing { after, entries: Vec::new(), complete: false }, Some(error)),
        };
        self.send(node, FromMaster::Entries { dir, listing, error });
    }

    pub(crate) fn on_fetch(&mut self, node: NodeId, request: u64, what: FetchWhat) {
        let (mut xattrs, mut pages, mut pages_to, mut inodes, mut error) =
            (Vec::new(), Vec::new(), 0, 0, None);
        match what {
            FetchWhat::Xattrs { ino } => match self.read(Key::Xattrs(ino)) {
                Ok(list) => xattrs = list.unwrap_or_default(),
                Err(cause) => error = Some(cause),
            },
            FetchWhat::ExtentPages { ino, from, to } => match self.extent_pages(ino, from..to) {
                Ok(found) => (pages, pages_to) = found,
                Err(cause) => error = Some(cause),
            },
            FetchWhat::Totals {} => match self.read::<meta::Totals>(Key::Totals) {
                Ok(totals) => inodes = totals.map_or(0, |totals| totals.inodes),
                Err(cause) => error = Some(cause),
            },
        }
        self.send(node, FromMaster::Fetched { request, xattrs, pages, pages_to, inodes, error });
    }

    /// The pages of extents that there are in `range`, and up to which page these are all: where they are too many for a message, and
    /// before one that cannot be read, it ends.
    fn extent_pages(&self, ino: Ino, range: Range<u64>) -> Result<(Vec<(u64, ExtentMap)>, u64), FsError> {
        let (start, end) = Key::extent_pages_in(ino, &range);
        let limit = kv::ScanLimit { entries: self.listing_entries, bytes: LISTING_BYTES };
        let found = self.engine.scan(&kv::KeyRange::new(start, end), limit, kv::Direction::Forward);
        let found = found.map_err(|error| {
            log::error!("metadata engine: {error}");
            FsError::Io
        })?;
        let mut pages = Vec::with_capacity(found.entries.len());
        for (key, value) in found.entries {
            let Some(Key::ExtentPage(_, page)) = Key::from_slice(&key) else { continue };
            match meta::value_decode(&key, &value) {
                Ok(map) => pages.push((page, map)),
                Err(damage) => {
                    log::error!("metadata: {damage}");
                    self.metrics.metadata_damaged.add(1);
                    return if page > range.start { Ok((pages, page)) } else { Err(FsError::Io) };
                }
            }
        }
        let to = match (found.more, pages.last()) {
            (true, Some((last, _))) => last + 1,
            (true, None) | (false, _) => range.end,
        };
        Ok((pages, to))
    }

    fn acquire_attr(
        &mut self,
        node: NodeId,
        request: u64,
        ino: Ino,
        attr: InodeAttr,
        task: Task,
    ) -> Result<(), FsError> {
        let resource = ResourceId::attr(ino);
        let need = Need::Token(LockMode::Pr);
        if self.is_changing(resource) {
            self.wait_behind(resource, task);
            return Ok(());
        }
        let next = ahead_of(&task).next;
        if !self.table.is_met(node, resource, need) {
            self.ask_next(node, &next);
            self.wait_for(node, resource, need, task);
            return Ok(());
        }
        let file = ResourceId::file(ino);
        let writer = self.table.exclusive_holder(file).filter(|holder| *holder != node);
        if let Some(holder) = writer {
            // Size and times of what another node is writing: asked for, not taken. What is granted is read
            // when the answer has come, for a grant that waited would be older than a forget that did not.
            let seq = self.number();
            let since = self.clock.now;
            self.glimpses.insert(seq, Glimpse { node, request, ino, holder, since, inquiry: None });
            self.send(holder, FromMaster::Glimpse { seq, list: vec![ino] });
            self.ask_next(node, &next);
            self.table.settle(self.clock.now, resource);
            return Ok(());
        }
        let mut grants = Vec::new();
        self.grant_attr(node, ino, attr.clone(), &mut grants);
        self.bring_next(node, next, &mut grants);
        if self.table.exclusive_holder(file) == Some(node) {
            // It has newer content than there is here.
            self.answer(node, request, grants);
        } else if self.table.is_wanted(file) || self.is_changing(file) {
            // Somebody waits to write it, or a change of it has yet to be told: neither is held up by one who only wants to see its size now.
            let Some(content) = self.read(Key::Content(ino))? else { return Err(FsError::Io) };
            let glimpse = Some(Box::new(Inode { attr, content }));
            let seen = self.releases_seen(node);
            self.send(node, FromMaster::Acquired { request, error: None, grants, seen, glimpse });
        } else {
            self.grant_content(node, ino, LockMode::Pr, &mut grants)?;
            self.answer(node, request, grants);
        }
        self.table.settle(self.clock.now, resource);
        Ok(())
    }

    pub(crate) fn on_glimpsed(&mut self, seq: u64, contents: Vec<(Ino, meta::Content)>) {
        let Some(Glimpse { node, request, ino, holder, inquiry, .. }) = self.glimpses.remove(&seq) else {
            return;
        };
        if let Some(id) = inquiry {
            return self.on_inquired(id);
        }
        let file = ResourceId::file(ino);
        let content = contents.into_iter().find(|(found, _)| *found == ino).map(|(_, content)| content);
        let resource = ResourceId::attr(ino);
        let is_still = !self.is_changing(resource)
            && self.table.is_met(node, resource, Need::Token(LockMode::Pr))
            && self.members.contains_key(&node);
        match (content, self.read(Key::Inode(ino))) {
            (Some(content), Ok(Some(StoredInode::Own { attr }))) if is_still => {
                let mut grants = Vec::new();
                self.grant_attr(node, ino, attr.clone(), &mut grants);
                let glimpse = Some(Box::new(Inode { attr, content }));
                let seen = self.releases_seen(node);
                self.send(node, FromMaster::Acquired { request, error: None, grants, seen, glimpse });
            }
            // Given back meanwhile, or changed: what there is now is in the engine.
            (content, _) => {
                let (want, ahead) = (Want::Attr { ino }, Ahead::default());
                let task = Task::Acquire { node, request, want, ahead };
                match content.is_none() && self.table.exclusive_holder(file) == Some(holder) {
                    // It holds what it knows nothing of, and would say so for ever.
                    true => self.wait_for(node, file, Need::Token(LockMode::Pr), task),
                    false => self.tasks.push_back(task),
                }
            }
        }
    }

    fn acquire_content(
        &mut self,
        node: NodeId,
        request: u64,
        ino: Ino,
        attr: InodeAttr,
        mode: LockMode,
        task: Task,
    ) -> Result<(), FsError> {
        if attr.kind != FileKind::File && mode == LockMode::Ex {
            return Err(FsError::Invalid);
        }
        let resource = ResourceId::file(ino);
        let need = Need::Token(mode);
        if self.is_changing(resource) {
            self.wait_behind(resource, task);
            return Ok(());
        }
        if self.is_behind(node, resource) || !self.table.is_met(node, resource, need) {
            self.wait_for(node, resource, need, task);
            return Ok(());
        }
        let mut grants = Vec::new();
        self.grant_attr(node, ino, attr, &mut grants);
        self.grant_content(node, ino, mode, &mut grants)?;
        self.answer(node, request, grants);
        self.table.settle(self.clock.now, resource);
        Ok(())
    }

    /// Adds PR on the attributes of an uncovered inode, if nothing is in the way.
    pub(crate) fn grant_attr(&mut self, node: NodeId, ino: Ino, attr: InodeAttr, grants: &mut Vec<Grant>) {
        let resource = ResourceId::attr(ino);
        if self.is_changing(resource) || !self.table.may_grant(node, resource, LockMode::Pr) {
            return;
        }
        self.table.grant(node, resource, LockMode::Pr);
        let mode = self.table.mode(node, resource);
        grants.push(Grant { resource, mode, data: GrantData::Attr { attr } });
    }

    /// Adds a right on the content of an uncovered inode, if nothing is in the way.
    pub(crate) fn grant_content(
        &mut self,
        node: NodeId,
        ino: Ino,
        mode: LockMode,
        grants: &mut Vec<Grant>,
    ) -> Result<(), FsError> {
        let resource = ResourceId::file(ino);
        let is_free = self.table.is_met(node, resource, Need::Token(mode));
        if !is_free || self.is_changing(resource) {
            return Ok(());
        }
        let Some(content) = self.read(Key::Content(ino))? else { return Err(FsError::Io) };
        self.table.grant(node, resource, mode);
        let mode = self.table.mode(node, resource);
        grants.push(Grant { resource, mode, data: GrantData::Content { content } });
        Ok(())
    }

    /// Glimpses that a node will never answer.
    pub(crate) fn retry_glimpses_of(&mut self, holder: NodeId) {
        let seqs: Vec<u64> =
            self.glimpses.iter().filter(|(_, g)| g.holder == holder).map(|(s, _)| *s).collect();
        for seq in seqs {
            // Who is still a member answers inquiries by its new connection.
            match self
                .glimpses
                .get(&seq)
                .filter(|g| g.inquiry.is_some() && self.members.contains_key(&holder))
            {
                Some(glimpse) => {
                    let list = vec![glimpse.ino];
                    self.send(holder, FromMaster::Glimpse { seq, list });
                }
                None => self.on_glimpsed(seq, Vec::new()),
            }
        }
    }
}

/// What a task says of the walk that it is a step of.
fn ahead_of(task: &Task) -> Ahead {
    match task {
        Task::Acquire { ahead, .. } => ahead.clone(),
        _ => Ahead::default(),
    }
}

/// Bytes of entries in one message, about: half a frame, as one entry may be large and others may come with it.
pub(crate) const LISTING_BYTES: usize = 512 << 10;
/// Of a grant beside record and entries.
pub(crate) const GRANT_LEN_MAX: usize = 64;
/// Entries of a directory in one message.
pub(crate) const LISTING_ENTRIES: usize = 8192;
