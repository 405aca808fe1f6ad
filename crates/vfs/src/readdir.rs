//! readdir, with and without attributes.

use std::ops::Bound;

use meta::{COOKIE_DOT, COOKIE_DOTDOT, Cookie, FileKind, FsError};
use obs::OperationKind;
use types::{Ino, Micros, Name, Timespec};

use crate::cache::{CachedEntry, KernelHas};
use crate::core::Core;
use crate::known::Known;
use crate::lulls::LullNumber;
use crate::request::{Attr, DirSink, Entry, Keep, Reply, Request};
use crate::wait::{Step, Try};

/// The answer with what there is.
pub(crate) fn no_more(sink: &mut Box<dyn DirSink>) -> Reply {
    Reply::Dir(std::mem::replace(sink, Box::new(Taken)))
}

impl Core {
    /// The sink stays with the request until it is answered: a parked listing starts over.
    pub(crate) fn try_readdir(&mut self, request: &mut Request) -> Try<Reply> {
        let Request::ReadDir { ino, after, plus, noatime, sink } = request else {
            return Err(FsError::Io.into());
        };
        let (dir, mut after, plus, noatime) = (*ino, *after, *plus, *noatime);
        self.need_dir(dir)?;
        if self.cache.dirs.get(&dir).is_some_and(|cached| cached.entries.is_empty() && !cached.is_complete())
        {
            return Err(Step::Wait(self.load_more(dir)));
        }
        let parent = self.cache.dirs.get(&dir).map_or(dir, |d| d.inode.attr.parent);
        let lull = self.lull_of(dir);
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
        loop {
            let listed = self.list_after(dir, after, plus, lull)?;
            if listed.is_empty() {
                let is_complete = self.cache.dirs.get(&dir).is_some_and(|cached| cached.is_complete());
                if !is_complete && !is_any {
                    return Err(Step::Wait(self.load_more(dir)));
                }
                break;
            }
            for Listed { cookie, name, ino, kind, entry } in listed {
                let Request::ReadDir { sink, .. } = request else { return Err(FsError::Io.into()) };
                if !sink.push(name.as_bytes(), ino, kind, cookie.0, entry.as_ref()) {
                    self.note_listing(dir, noatime);
                    return Ok(self.end_readdir(dir, request));
                }
                if let Some(entry) = entry {
                    if lull.is_some() {
                        self.note_calm(ino, lull);
                    }
                    self.give_entry(dir, cookie, entry.attr, entry.keep_name, entry.keep_attr);
                    self.note_told_by_listing(ino);
                }
                after = cookie.0;
                is_any = true;
            }
        }
        self.note_listing(dir, noatime);
        Ok(self.end_readdir(dir, request))
    }

    /// When a directory, or what is in it, changed last, if it is here; each change of a name has another time.
    pub fn last_change_of(&self, dir: Ino) -> Option<Timespec> {
        Some(self.cache.dirs.get(&dir)?.inode.attr.ctime)
    }

    fn note_listing(&mut self, dir: Ino, noatime: bool) {
        self.metrics.operations_local.add(OperationKind::Readdir, 1);
        if !noatime {
            self.note_listed(dir);
        }
    }

    /// Some entries behind a place, if they are here, and what is to be told of their inodes.
    fn list_after(&self, dir: Ino, after: u64, plus: bool, lull: Option<LullNumber>) -> Try<Vec<Listed>> {
        let Some(cached) = self.cache.dirs.get(&dir) else { return Err(FsError::Io.into()) };
        let keep_name = self.keep_names(dir);
        let keep_attr = self.keep_covered(dir);
        let start = Bound::Excluded(Cookie(after));
        let some = cached.entries.range((start, Bound::Unbounded)).take(LISTED_AT_ONCE);
        let listed = some.map(|(cookie, entry)| {
            let ino = entry.dirent.ino;
            let known = self.known.get(&ino);
            let is_told = !plus || self.has_entry(entry, keep_name, known);
            let attr = if is_told { None } else { self.attr_to_list(dir, entry, keep_attr, known, lull) };
            Listed {
                cookie: *cookie,
                name: entry.dirent.name.clone(),
                ino,
                kind: entry.dirent.kind(),
                entry: attr.map(|(attr, keep_attr)| Entry { attr, keep_name, keep_attr }),
            }
        });
        Ok(listed.collect())
    }

    /// A listing waits for nothing: the kernel asks for the attributes of such a file when somebody wants them, and looks
    /// such a directory up.
    fn attr_to_list(
        &self,
        dir: Ino,
        entry: &CachedEntry,
        keep: Keep,
        known: Option<&Known>,
        lull: Option<LullNumber>,
    ) -> Option<(Attr, Keep)> {
        let ino = entry.dirent.ino;
        let found = match entry.dirent.covered() {
            Some(inode) => (self.visible(ino, inode), keep),
            None => self.cached_own_attr(ino, known)?,
        };
        let is_to_wait = known.is_some_and(|known| known.seat.is_elsewhere(dir))
            || self.moves_end(&found.0)
            || lull.is_none_or(|_| !self.is_calm(ino, lull)) && self.may_miss_permissions(&found.0)
            || self.is_losing_links(ino);
        (!is_to_wait).then_some(found)
    }

    /// Whether the kernel has name and attributes: told once more they would cost both sides for nothing.
    ///
    /// It may have given them up in the meantime, and then asks for each. So nothing is believed for a while after it has asked for
    /// any.
    fn has_entry(&self, entry: &CachedEntry, keep_name: Keep, known: Option<&Known>) -> bool {
        let is_believed = self.asked_again_at.is_none_or(|at| self.clock.now.since(at) >= DOUBTED_FOR);
        is_believed
            && entry.name_out
            && keep_name == Keep::Yes
            && known.is_some_and(|known| known.lookups > 0 && known.attr_out())
    }

    fn end_readdir(&mut self, dir: Ino, request: &mut Request) -> Reply {
        if let Some(cached) = self.cache.dirs.get_mut(&dir) {
            cached.kernel_has = KernelHas::Listing;
        }
        let Request::ReadDir { sink, .. } = request else { return Reply::Error(FsError::Io) };
        no_more(sink)
    }

    /// Attributes of an uncovered child if its token is here; the listing does not wait for others.
    fn cached_own_attr(&self, ino: Ino, known: Option<&Known>) -> Option<(Attr, Keep)> {
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
        // What is taken back while the kernel makes an inode of the answer finds none, and would be kept.
        let is_new = known.is_none_or(|known| known.lookups == 0);
        Some((self.visible(ino, &inode), if is_new { Keep::No } else { Keep::Yes }))
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

/// An entry on its way into a listing.
struct Listed {
    cookie: Cookie,
    name: Name,
    ino: Ino,
    kind: FileKind,
    entry: Option<Entry>,
}

/// Entries that are looked up together: the kernel's requests have room for some 200 with attributes (32 KiB, what getdents is mostly asked
/// for), so hardly any is in vain.
const LISTED_AT_ONCE: usize = 16;
/// For how long the kernel is not believed to have what it was given, after it has asked for something of that.
const DOUBTED_FOR: Micros = Micros::from_millis(1_000);
