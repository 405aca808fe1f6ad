//! A name whose inode is gone, while the master that was to tell of it is gone too.
//!
//! A core alone; the test plays the next master.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{CLOCK, member, root_grant};
use meta::{Change, Child, Cookie, CookieKey, Dirent, FileKind, FsError, Inode};
use types::{Ino, LockMode, Name, ResourceId};
use vfs::{Output, Reply, Request, RequestId};
use wire::{FromMaster, Grant, GrantData, ToMaster, Want};

const GONE: Ino = Ino(50);

/// The root, with the name `f` in it or without. PR, as it is with several nodes.
fn root(request: u64, has_name: bool) -> FromMaster {
    let mut grant = root_grant();
    grant.mode = LockMode::Pr;
    if let GrantData::Directory { listing, .. } = &mut grant.data
        && has_name
    {
        let (cookie, _) = Cookie::range_of(CookieKey([9; 16]).hash(b"f"));
        let (name, child) = (Name::new(b"f").unwrap(), Child::Own { kind: FileKind::File });
        listing.entries.push((cookie, Dirent { name, ino: GONE, child }));
    }
    FromMaster::Acquired { request, error: None, grants: vec![grant], seen: 1, glimpse: None }
}

/// Goal: ENOENT, as on any file system, and not ESTALE. Method: the listing has the name, and the inode is gone each
/// time that it is asked for; once the listing is given back and asked for again, the name is not in it.
#[test]
fn a_name_that_stays_stale_is_read_anew() {
    let mut core = member();
    let lookup = Request::Lookup { parent: Ino::ROOT, name: b"f"[..].into() };
    let mut reply = core.submit(CLOCK, RequestId(1), lookup);
    let (mut asked, mut released) = (0, 0);
    while reply.is_none() {
        let Some(output) = core.poll_output() else { panic!("asked {asked} times, then nothing") };
        let message = match output {
            Output::Reply(_, told) => {
                reply = Some(told);
                continue;
            }
            Output::Invalidate { job, .. } => {
                core.invalidated(CLOCK, job);
                continue;
            }
            Output::Send(ToMaster::Acquire { request, want: Want::Directory { .. }, .. }) => {
                root(request, released == 0)
            }
            Output::Send(ToMaster::Acquire { request, want: Want::Attr { ino: GONE }, .. }) => {
                asked += 1;
                let error = Some(FsError::Stale);
                FromMaster::Acquired { request, error, grants: Vec::new(), seen: 1, glimpse: None }
            }
            Output::Send(ToMaster::Release { .. }) => {
                released += 1;
                continue;
            }
            _ => continue,
        };
        core.handle_message(CLOCK, message);
    }
    assert!(matches!(reply, Some(Reply::NoEntry(_))), "{reply:?}");
    assert_eq!(released, 1);
    assert!(asked > 1, "it may be told any moment");
}

/// Goal: as above where the kernel knows the name, and only the open shows that the inode is gone: the kernel walks the
/// path once more, and must not find what it found before. Method: the listing covers the file.
#[test]
fn an_open_that_is_stale_gives_back_what_shows_the_name() {
    let mut core = member();
    let lookup = || Request::Lookup { parent: Ino::ROOT, name: b"f"[..].into() };
    let mut has_name = true;
    let mut ask = |id: u64, request: Request| {
        let mut reply = core.submit(CLOCK, RequestId(id), request);
        while let Some(output) = core.poll_output() {
            let message = match output {
                Output::Reply(_, told) => {
                    reply = Some(told);
                    continue;
                }
                Output::Invalidate { job, .. } => {
                    core.invalidated(CLOCK, job);
                    continue;
                }
                Output::Send(ToMaster::Acquire { request, want: Want::Directory { .. }, .. }) => {
                    covering_root(request, has_name)
                }
                Output::Send(ToMaster::Acquire { request, .. }) => {
                    let error = Some(FsError::Stale);
                    FromMaster::Acquired { request, error, grants: Vec::new(), seen: 1, glimpse: None }
                }
                Output::Send(ToMaster::Release { .. }) => {
                    has_name = false;
                    continue;
                }
                _ => continue,
            };
            core.handle_message(CLOCK, message);
        }
        reply
    };
    assert!(matches!(ask(1, lookup()), Some(Reply::Entry(_))));
    let opened =
        ask(2, Request::Open { ino: GONE, open: vfs::OpenMode { write: true, ..Default::default() } });
    assert!(matches!(opened, Some(Reply::Error(FsError::Stale))), "{opened:?}");
    let found = ask(3, lookup());
    assert!(matches!(found, Some(Reply::NoEntry(_))), "{found:?}");
}

/// The root with a file that it covers, or without.
fn covering_root(request: u64, has_name: bool) -> FromMaster {
    let mut answer = root(request, has_name);
    if let FromMaster::Acquired { grants, .. } = &mut answer
        && let Some(GrantData::Directory { listing, .. }) = grants.first_mut().map(|grant| &mut grant.data)
    {
        for (_, entry) in &mut listing.entries {
            let inode = Inode { attr: common::attr(FileKind::File), content: common::content(0) };
            entry.child = Child::Covered { inode: Arc::new(inode) };
        }
    }
    answer
}

/// A kernel that finds a directory in another place than it has it moves it, if nobody holds the locks for that: its old name
/// is dropped before it is told of the new one.
#[test]
fn a_directory_that_another_node_moved_is_dropped_where_it_was() {
    let mut core = member();
    let (to, moved) = (Ino(60), Ino(61));
    let mut ask = |id: u64, parent: Ino, name: &[u8]| {
        let mut reply = core.submit(CLOCK, RequestId(id), Request::Lookup { parent, name: name.into() });
        while let Some(output) = core.poll_output() {
            match output {
                Output::Reply(_, told) => reply = Some(told),
                Output::Send(ToMaster::Acquire { request, want: Want::Directory { ino }, .. }) => {
                    // The moved one is in both: what the kernel is told is the point here.
                    let names: &[(&[u8], Ino)] = match ino {
                        Ino::ROOT => &[(b"to", to), (b"d", moved), (b"e", moved)],
                        ino if ino == to => &[(b"d", moved)],
                        _ => &[],
                    };
                    core.handle_message(CLOCK, directory(request, ino, names));
                }
                _ => {}
            }
        }
        let reply = reply.unwrap();
        assert!(matches!(reply, Reply::Entry(_)), "{reply:?}");
        core.seat_before(&reply)
    };
    assert_eq!(ask(1, Ino::ROOT, b"to"), None);
    assert_eq!(ask(2, Ino::ROOT, b"d"), None);
    assert_eq!(ask(3, Ino::ROOT, b"d"), None);
    // Within one directory the kernel needs no more than it has.
    assert_eq!(ask(4, Ino::ROOT, b"e"), None);
    assert_eq!(ask(5, to, b"d"), Some((Ino::ROOT, Name::new(b"e").unwrap())));
    assert_eq!(ask(6, to, b"d"), None);
}

fn directory(request: u64, ino: Ino, names: &[(&[u8], Ino)]) -> FromMaster {
    let mut grant = root_grant();
    grant.mode = LockMode::Pr;
    grant.resource = ResourceId::dir(ino);
    if let GrantData::Directory { listing, .. } = &mut grant.data {
        for (name, child) in names {
            let (cookie, _) = Cookie::range_of(CookieKey([9; 16]).hash(name));
            let (name, kind) = (Name::new(name).unwrap(), FileKind::Directory);
            listing.entries.push((cookie, Dirent { name, ino: *child, child: Child::Own { kind } }));
        }
        listing.entries.sort_by_key(|(cookie, _)| *cookie);
    }
    FromMaster::Acquired { request, error: None, grants: vec![grant], seen: 1, glimpse: None }
}

/// Goal: in a directory that another node removed there is nothing: ENOENT, as on a local file system. Method: the master knows nothing of the
/// directory.
#[test]
fn in_a_directory_that_is_gone_there_is_nothing() {
    let (parent, name) = (GONE, &b"f"[..]);
    let asked = [
        Request::Lookup { parent, name: name.into() },
        Request::Find { parent, name: name.into(), met: None },
    ];
    let mut replies = Vec::new();
    for request in asked {
        let mut core = member();
        let mut reply = core.submit(CLOCK, RequestId(1), request);
        let mut count = 0;
        while let Some(output) = core.poll_output() {
            match output {
                Output::Reply(_, told) => reply = Some(told),
                Output::Send(ToMaster::Acquire { request, .. }) => {
                    count += 1;
                    let error = Some(FsError::Stale);
                    let grants = Vec::new();
                    core.handle_message(
                        CLOCK,
                        FromMaster::Acquired { request, error, grants, seen: 0, glimpse: None },
                    );
                }
                _ => {}
            }
        }
        assert_eq!(count, 1);
        replies.push(reply.unwrap());
    }
    let is_so = matches!(replies[..], [Reply::NoEntry(_), Reply::NoEntry(_)]);
    assert!(is_so, "{replies:?}");
}

/// Goal: the kernel's second walk finds a file that others replace all the time, however often what it found is gone before it is held;
/// a first walk ends, and so does a second one where the name leads to nothing for good. Method: the master knows nothing of the inode the first nine
/// times that it is asked, and tells before it says so that the name has another, or does not.
#[test]
fn a_second_walk_goes_on_until_it_holds_what_it_finds() {
    let parent = Ino::ROOT;
    let first = Request::Lookup { parent, name: b"f"[..].into() };
    let second = || Request::Find { parent, name: b"f"[..].into(), met: None };
    for (request, is_replaced, finds) in
        [(first, true, false), (second(), true, true), (second(), false, false)]
    {
        let mut core = member();
        let mut reply = core.submit(CLOCK, RequestId(1), request);
        let (mut gone, mut held, mut seen) = (0, 0, 0);
        while reply.is_none() {
            let Some(output) = core.poll_output() else { panic!("nothing more to do") };
            let message = match output {
                Output::Reply(_, told) => {
                    reply = Some(told);
                    continue;
                }
                Output::Invalidate { job, .. } => {
                    core.invalidated(CLOCK, job);
                    continue;
                }
                Output::Send(ToMaster::Release { .. }) => {
                    seen += 1;
                    continue;
                }
                Output::Send(ToMaster::Acquire { request, want: Want::Directory { .. }, .. }) => {
                    root(request, true)
                }
                Output::Send(ToMaster::Acquire { request, want, .. }) if gone < 9 => {
                    gone += 1;
                    if is_replaced {
                        let changes = vec![put_name(Ino(GONE.0 + gone))];
                        let forget = FromMaster::Forget { seq: gone, changes, removed: vec![want.ino()] };
                        core.handle_message(CLOCK, forget);
                    }
                    let error = Some(FsError::Stale);
                    FromMaster::Acquired { request, error, grants: Vec::new(), seen, glimpse: None }
                }
                Output::Send(ToMaster::Acquire { request, want, .. }) => {
                    let grants = match want {
                        Want::Attr { ino } => file_grants(ino),
                        _ => Vec::new(),
                    };
                    held += u32::from(matches!(want, Want::Open { .. }));
                    FromMaster::Acquired { request, error: None, grants, seen, glimpse: None }
                }
                _ => continue,
            };
            core.handle_message(CLOCK, message);
        }
        match finds {
            true => assert!(matches!(reply, Some(Reply::Entry(_))), "{reply:?}"),
            false => assert!(matches!(reply, Some(Reply::Error(FsError::Stale))), "{reply:?}"),
        }
        assert_eq!(held, u32::from(finds));
    }
}

fn put_name(ino: Ino) -> Change {
    let (cookie, _) = Cookie::range_of(CookieKey([9; 16]).hash(b"f"));
    let child = Child::Own { kind: FileKind::File };
    Change::PutEntry {
        parent: Ino::ROOT,
        cookie,
        entry: Dirent { name: Name::new(b"f").unwrap(), ino, child },
    }
}

fn file_grants(ino: Ino) -> Vec<Grant> {
    [
        (ResourceId::attr(ino), GrantData::Attr { attr: common::attr(FileKind::File) }),
        (ResourceId::file(ino), GrantData::Content { content: common::content(0) }),
    ]
    .map(|(resource, data)| Grant { resource, mode: LockMode::Pr, data })
    .into()
}
