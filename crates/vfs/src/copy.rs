//! Copies within the volume: the destination is to name the bytes of the source where they are stored.
//!
//! Invariants:
//!
//! - What is copied was logged before, and so is stored durably: nothing has to be synced for a copy.
//! - It is logged in the step that looks at the source, under the tokens of both, and whatever the master is told afterwards is
//!   told behind it ([`Core::send`]). So nobody can change the source, and have its bytes deleted, before the master
//!   knows who else names them.
//! - What cannot be done that way is refused as not supported: then the kernel reads and writes.

use std::ops::Range;

use chunk::Extent;
use meta::ops::Groups;
use meta::{Body, Content, FsError};
use obs::OperationKind;
use types::{Ino, LockMode};

use crate::content::FILE_SIZE_MAX;
use crate::core::Core;
use crate::live::{Live, extent_parts, inline_overlay, pages_of};
use crate::request::{HandleId, Reply, Request};
use crate::shield::PAGE_LEN;
use crate::wait::{Progress, Step, Try, WaitKey};

/// What is to be copied where.
#[derive(Clone, Copy, Debug)]
struct Copy {
    from: Ino,
    from_offset: u64,
    to: Ino,
    to_offset: u64,
    len: u64,
}

impl Copy {
    fn source(&self) -> Range<u64> {
        self.from_offset..self.from_offset + self.len
    }

    fn target(&self) -> Range<u64> {
        self.to_offset..self.to_offset + self.len
    }

    /// As much as a batch should have of one file. The caller asks for the rest.
    fn cut_to(&mut self, len: u64) {
        self.len = self.len.min(len);
    }
}

impl Core {
    pub(crate) fn try_copy_request(&mut self, request: &Request, progress: &mut Progress) -> Try<Reply> {
        let Request::Copy { from, from_offset, ino, offset, len, handle, kill_privileges } = request else {
            return Err(FsError::Invalid.into());
        };
        if self.broken.contains_key(from) {
            return Err(FsError::Io.into());
        }
        // Two nodes that copy to and fro may take the tokens from each other before either has both.
        progress.copy_tries += 1;
        if progress.copy_tries > COPY_TRIES_MAX {
            return Err(FsError::NotSupported.into());
        }
        let copy = Copy { from: *from, from_offset: *from_offset, to: *ino, to_offset: *offset, len: *len };
        let reply = self.try_copy(copy, kill_privileges.as_ref(), *handle, progress)?;
        progress.must_sync = self.is_synced(*handle);
        self.finish_data(*ino, reply, progress)
    }

    fn try_copy(
        &mut self,
        mut copy: Copy,
        kill_privileges: Option<&Groups>,
        handle: HandleId,
        progress: &mut Progress,
    ) -> Try<Reply> {
        if self.config.read_only {
            return Err(FsError::ReadOnly.into());
        }
        self.refuse_lost(copy.to)?;
        // Small files are logged without a sync.
        for ino in [copy.from, copy.to] {
            if self.live.get(&ino).is_some_and(Live::is_inline) {
                self.log_live(ino);
            }
        }
        let target = self.need_content(copy.to, LockMode::Ex)?;
        let source = self.need_content_held(copy.from, self.mode_to_read(copy.from))?;
        let size = self.live.get(&copy.from).map_or(source.size, |live| live.size);
        copy.cut_to(size.saturating_sub(copy.from_offset).min(COPY_LEN_MAX));
        if copy.len == 0 {
            return Ok(Reply::Copied { len: 0, shield: None });
        }
        let end = copy.to_offset.checked_add(copy.len).filter(|end| *end <= FILE_SIZE_MAX);
        let Some(_) = end else { return Err(FsError::TooLarge.into()) };
        let is_overlapping =
            copy.source().start < copy.target().end && copy.target().start < copy.source().end;
        if copy.from == copy.to && is_overlapping {
            return Err(FsError::Invalid.into());
        }
        self.lose_privileges(copy.to, kill_privileges, progress)?;
        self.keep_to_pages(&mut copy, handle, &target)?;
        self.need_logged(&copy, progress)?;
        if let Body::Inline { data } = &source.body
            && copy.from_offset < data.len() as u64
        {
            copy.cut_to(INLINE_COPY_MAX);
            return self.copy_inline(&copy, data, progress);
        }
        self.need_write_room()?;
        self.need_pages(copy.from, &source, &copy.source())?;
        self.need_pages(copy.to, &target, &copy.target())?;
        self.note_copied(copy.from);
        let extents = self.extents_to_share(&mut copy, &source)?;
        // What is logged of it: a record for each extent, and its sums.
        self.need_space(extents.len() as u64 * EXTENT_BYTES + copy.len / SUMMED_BYTES)?;
        self.promise_copy(&copy, &target, &extents, progress)?;
        self.share(&copy, &target, &extents)?;
        self.shield_mapped(copy.to, copy.target(), progress);
        self.metrics.operations_local.add(OperationKind::Copy, 1);
        Ok(Reply::Copied { len: copy.len, shield: None })
    }

    /// When a copy is answered the kernel drops all pages that it touches, and with them what somebody stored meanwhile beside the copy, through
    /// a mapping. Where somebody else may, whole pages are copied.
    fn keep_to_pages(&self, copy: &mut Copy, handle: HandleId, target: &Content) -> Try<()> {
        let own = self.handles.get(&handle).is_some_and(|handle| handle.map);
        if self.known.get(&copy.to).is_none_or(|known| known.uses().mappers <= u32::from(own)) {
            return Ok(());
        }
        let size = self.live.get(&copy.to).map_or(target.size, |live| live.size);
        let beside = if copy.target().end < size { copy.target().end % PAGE_LEN } else { 0 };
        if !copy.to_offset.is_multiple_of(PAGE_LEN) || beside >= copy.len {
            return Err(FsError::NotSupported.into());
        }
        copy.cut_to(copy.len - beside);
        Ok(())
    }

    /// Waits until what a copy adds may be promised. Shared or not, each file counts in full.
    fn promise_copy(
        &mut self,
        copy: &Copy,
        target: &Content,
        extents: &[Extent],
        progress: &mut Progress,
    ) -> Try<()> {
        if !self.quota.binds() {
            return Ok(());
        }
        let copied: u64 = extents.iter().map(|extent| u64::from(extent.len())).sum();
        let old = match &target.body {
            Body::Extents { map } => {
                let range = copy.target();
                map.extents_in(range.clone())
                    .map(|e| e.end().min(range.end) - e.file_offset().max(range.start))
                    .sum()
            }
            Body::Paged { .. } => {
                let range = copy.target();
                let maps = self.pages.in_range(copy.to, pages_of(&range));
                let inside = maps.flat_map(|map| map.extents_in(range.clone()));
                inside.map(|e| e.end().min(range.end) - e.file_offset().max(range.start)).sum()
            }
            Body::Inline { .. } | Body::Empty {} | Body::Target { .. } => 0,
        };
        self.promise_bytes(copy.to, copied.saturating_sub(old), progress)
    }

    /// Waits until nothing of either file is newer than the log. Where that never is, or costs more than to copy the
    /// bytes, they are to be copied.
    fn need_logged(&mut self, copy: &Copy, progress: &mut Progress) -> Try<()> {
        let is_newer = |ino: &Ino| self.live.contains_key(ino) || self.flush_under_way(&[*ino]).is_some();
        let newer: Vec<Ino> = [copy.from, copy.to].into_iter().filter(is_newer).collect();
        let is_removed = [copy.from, copy.to].iter().any(|ino| self.removing.contains_key(ino));
        if newer.is_empty() && !is_removed {
            return Ok(());
        }
        if is_removed || progress.copy_flushed || copy.len < self.config.copy_sync_min {
            return Err(FsError::NotSupported.into());
        }
        progress.copy_flushed = true;
        match self.flush(&newer) {
            Some(job) => Err(Step::Wait(WaitKey::Flush(job))),
            None => Err(FsError::NotSupported.into()),
        }
    }

    fn copy_inline(&mut self, copy: &Copy, data: &[u8], progress: &mut Progress) -> Try<Reply> {
        let mut bytes = vec![0; copy.len as usize];
        for (at, part) in inline_overlay(data, &copy.source()) {
            bytes[at..at + part.len()].copy_from_slice(&part);
        }
        self.note_copied(copy.from);
        match self.try_write(copy.to, copy.to_offset, &bytes, false, progress)? {
            Reply::Written { len, .. } => {
                self.shield_mapped(copy.to, copy.to_offset..copy.to_offset + u64::from(len), progress);
                Ok(Reply::Copied { len: u64::from(len), shield: None })
            }
            reply => Ok(reply),
        }
    }

    /// Waits until the extents of a range of a file that nothing newer is known of are here.
    fn need_pages(&mut self, ino: Ino, content: &Content, range: &Range<u64>) -> Try<()> {
        let Body::Paged { .. } = content.body else { return Ok(()) };
        let pages = pages_of(&(range.start..range.end.min(content.size)));
        match self.pages.first_gap(ino, &pages) {
            Some(pages) => Err(Step::Wait(self.fetch_pages(ino, pages, content.size))),
            None => Ok(()),
        }
    }

    /// What the source has in the range, as the destination is to have it. Cuts the copy where that is enough.
    fn extents_to_share(&self, copy: &mut Copy, source: &Content) -> Try<Vec<Extent>> {
        let range = copy.source();
        let parts = match &source.body {
            Body::Empty {} | Body::Inline { .. } | Body::Target { .. } => Vec::new(),
            Body::Extents { map } => extent_parts(map, &range),
            Body::Paged { .. } => {
                let maps = self.pages.in_range(copy.from, pages_of(&range));
                maps.flat_map(|map| extent_parts(map, &range)).collect()
            }
        };
        let mut extents = Vec::with_capacity(parts.len());
        for (at, part) in parts {
            if extents.len() >= COPY_EXTENTS_MAX {
                copy.cut_to(at as u64);
                // As in `keep_to_pages`: these are more bytes than a page has.
                copy.cut_to(copy.len - copy.target().end % PAGE_LEN);
                break;
            }
            let moved = part.moved_to(copy.to_offset + at as u64).map_err(|_| FsError::TooLarge)?;
            // None crosses a page of extents.
            let mut start = moved.file_offset();
            while start < moved.end() {
                let end = (start / Body::PAGE_SPAN + 1) * Body::PAGE_SPAN;
                extents.extend(moved.slice(start..end));
                start = end;
            }
        }
        let end = copy.target().end;
        Ok(extents.into_iter().filter_map(|extent| extent.slice(0..end)).collect())
    }

    /// Changes the destination and logs that.
    fn share(&mut self, copy: &Copy, target: &Content, extents: &[Extent]) -> Try<()> {
        let mut live = Live::new(target, self.config.inline_bytes_max);
        self.pages.of(copy.to).into_iter().for_each(|loaded| live.load(loaded.clone()));
        if !live.place(&copy.target(), extents, self.clock.wall) {
            return Err(FsError::NotSupported.into());
        }
        self.pages.take(copy.to);
        let capture = live.capture(copy.to);
        self.live.insert(copy.to, live);
        self.log.note_copy();
        self.log_captures(vec![capture]);
        Ok(())
    }
}

/// Bytes copied by one request, at most.
const COPY_LEN_MAX: u64 = 1 << 30;
/// Extents of the source that one request copies, about: what a batch should have of one file.
const COPY_EXTENTS_MAX: usize = 32 << 10;
/// What an extent takes in a record, about, and how much content a byte of sums stands for.
const EXTENT_BYTES: u64 = 64;
const SUMMED_BYTES: u64 = chunk::CHECKSUM_BLOCK as u64 / 4;
/// After as many tries the bytes are copied, which takes one token at a time.
const COPY_TRIES_MAX: u32 = 1000;
/// Bytes of a file that is kept in its record, with zeros behind them, that are written at once.
const INLINE_COPY_MAX: u64 = 64 << 10;
