//! readdir, with and without attributes.

use std::ops::Bound;

use meta::{COOKIE_DOT, COOKIE_DOTDOT, Cookie, FileKind, FsError};
use obs::OperationKind;
use types::Ino;

use crate::cache::KernelHas;
use crate::core::Core;
use crate::request::{Attr, Entry, Keep, Reply, Request};
use crate::wait::{Step, Try};

impl Core {
    /// The sink stays with the request until it is answered: a parked listing starts over.
    pub(crate) fn try_readdir(&mut self, request: &mut Request) -> Try<Reply> {
        let Request::ReadDir { ino, after, plus, sink } = request else { return Err(FsError::Io.into()) };
        let (dir, mut after, plus) = (*ino, *after, *plus);
        self.need_dir(dir)?;
        let parent = self.cache.dirs.get(&dir).map_or(dir, |d| d.inode.attr.parent);
        let mut is_any = false;
        for (offset, name, ino) in [(COOKIE_DOT, &b"."[..], dir), (COOKIE_DOTDOT, &b".."[..], parent)] {
            if after < offset {
                if !sink.push(name, ino, FileKind::Directory, offset, None) {
                    return Ok(self.end_readdir(dir, request));
                }
                after = offset;
                is_any = true;
            }
        }
        let keep_name = self.keep_names(dir);
        let keep_attr = self.keep_covered(dir);
        loop {
            let start = Bound::Excluded(Cookie(after));
            let Some(cached) = self.cache.dirs.get(&dir) else { return Err(FsError::Io.into()) };
            let Some((cookie, entry)) = cached.entries.range((start, Bound::Unbounded)).next() else {
                if !cached.is_complete() && !is_any {
                    return Err(Step::Wait(self.load_more(dir)));
                }
                break;
            };
            let (cookie, child, kind) = (*cookie, entry.dirent.ino, entry.dirent.kind());
            let name = entry.dirent.name.clone();
            let known = plus.then(|| match entry.dirent.covered() {
                Some(inode) => Some((self.visible(child, inode), keep_attr)),
                None => self.cached_own_attr(child),
            });
            // A listing waits for nothing: the kernel asks for the attributes of such a file when somebody wants them, and looks
            // such a directory up.
            let is_elsewhere = self.known.get(&child).is_some_and(|known| known.seat.is_elsewhere(dir));
            let is_to_wait = |attr: &Attr| {
                is_elsewhere
                    || self.moves_end(attr)
                    || self.may_miss_permissions(attr)
                    || self.is_losing_links(child)
            };
            let known = known.flatten().filter(|(attr, _)| !is_to_wait(attr));
            let entry = known.map(|(attr, keep_attr)| Entry { attr, keep_name, keep_attr });
            let Request::ReadDir { sink, .. } = request else { return Err(FsError::Io.into()) };
            if !sink.push(name.as_bytes(), child, kind, cookie.0, entry.as_ref()) {
                break;
            }
            if let Some(entry) = entry {
                self.give_entry(dir, cookie, entry.attr, entry.keep_name, entry.keep_attr);
            }
            after = cookie.0;
            is_any = true;
        }
        self.metrics.operations_local.add(OperationKind::Readdir, 1);
        self.note_listed(dir);
        Ok(self.end_readdir(dir, request))
    }

    fn end_readdir(&mut self, dir: Ino, request: &mut Request) -> Reply {
        if let Some(cached) = self.cache.dirs.get_mut(&dir) {
            cached.kernel_has = KernelHas::Listing;
        }
        let Request::ReadDir { sink, .. } = request else { return Reply::Error(FsError::Io) };
        Reply::Dir(std::mem::replace(sink, Box::new(Taken)))
    }

    /// Attributes of an uncovered child if its token is here; the listing does not wait for others.
    fn cached_own_attr(&self, ino: Ino) -> Option<(Attr, Keep)> {
        use types::{LockMode::Pr, ResourceId};
        let has = |resource| self.tokens.usable(resource).permits(Pr);
        if let Some(dir) = self.cache.dirs.get(&ino) {
            let keep = if has(ResourceId::dir(ino)) { Keep::Yes } else { Keep::No };
            return Some((self.visible(ino, &dir.inode), keep));
        }
        let own = self.cache.owns.get(&ino)?;
        if !has(ResourceId::attr(ino)) || !has(ResourceId::file(ino)) {
            return None;
        }
        let inode = meta::Inode { attr: own.attr.clone()?, content: own.content.clone()? };
        Some((self.visible(ino, &inode), Keep::Yes))
    }
}

/// Stands where a sink was taken from an answered request.
#[derive(Debug)]
struct Taken;

impl crate::request::DirSink for Taken {
    fn push(&mut self, _: &[u8], _: Ino, _: FileKind, _: u64, _: Option<&Entry>) -> bool {
        false
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}
