//! What a shipped operation made and its process has not been told of yet.
//!
//! A core alone; the test plays two masters, one after the other.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, change_master, create, member, root_grant};
use meta::{Change, Child, Cookie, CookieKey, Dirent, FileKind, FsError, Inode, OpReply};
use types::{Ino, LockMode, Name, ResourceId};
use vfs::{Core, Keep, MakeSpec, Output, Reply, Request, RequestId};
use wire::{FromMaster, Grant, GrantData, ReassertPart, ToMaster, Want};

/// Goal: what has been made for a process is open, whatever others do to its name before the process is told, and whoever
/// is master then. Method: the operation is answered, its process waits for the attributes, and the master dies.
#[test]
fn what_is_made_and_not_yet_open_is_reported_to_the_next_master() {
    let mut core = member();
    let made = make(&mut core);

    change_master(&mut core);
    let mut reported = None;
    while let Some(output) = core.poll_output() {
        if let Output::Send(ToMaster::Reassert { part: ReassertPart::Open { list }, .. }) = output {
            reported = Some(list);
        }
    }
    assert_eq!(reported.unwrap(), [made]);
}

/// Goal: what was made was made, though another node has removed it before its process is told. Method: a directory is made by the
/// master, and by the time it is asked for it is no more.
#[test]
fn a_directory_that_is_removed_at_once_was_made() {
    let mut core = member();
    let spec = MakeSpec {
        kind: FileKind::Directory,
        mode: 0o777,
        umask: 0o022,
        uid: 3,
        gid: 4,
        rdev: 0,
        target: Box::default(),
    };
    let make = Request::Make { parent: Ino::ROOT, name: b"d"[..].into(), spec };
    assert!(core.submit(CLOCK, RequestId(1), make).is_none());
    let mut made = None;
    let mut answered = None;
    // A grant from before a release was heard of counts for nothing.
    let mut seen = 0;
    while let Some(output) = core.poll_output() {
        let answer = match output {
            Output::Send(ToMaster::Acquire { request, want: Want::Directory { ino: Ino::ROOT }, .. }) => {
                let mut grant = root_grant();
                grant.mode = LockMode::Pr;
                FromMaster::Acquired { request, error: None, grants: vec![grant], seen, glimpse: None }
            }
            Output::Send(ToMaster::Ship { seq, op: meta::Op::Create { new, .. }, .. }) => {
                made = Some(new.ino);
                let result = Ok(OpReply::Inode { ino: new.ino });
                FromMaster::Shipped { seq, result, changes: Vec::new(), grants: Vec::new(), seen }
            }
            Output::Send(ToMaster::Acquire { request, .. }) => {
                let error = Some(FsError::Stale);
                FromMaster::Acquired { request, error, grants: Vec::new(), seen, glimpse: None }
            }
            Output::Send(ToMaster::Release { .. }) => {
                seen += 1;
                continue;
            }
            Output::Reply(_, reply) => {
                answered = Some(reply);
                continue;
            }
            Output::Invalidate { job, .. } => {
                core.invalidated(CLOCK, job);
                continue;
            }
            _ => continue,
        };
        core.handle_message(CLOCK, answer);
    }
    let Some(Reply::Entry(entry)) = answered else { panic!("answered {answered:?}") };
    let attr = entry.attr;
    assert_eq!((Some(attr.ino), attr.kind, attr.mode), (made, FileKind::Directory, 0o755));
    assert_eq!((attr.uid, attr.gid, attr.nlink), (3, 4, 0));
    assert_eq!((entry.keep_name, entry.keep_attr), (Keep::No, Keep::No));
}

/// Goal: what is told of what was made is about that, though its name is another file's by then. Method: a FIFO is made by the master; under its name
/// there is a file of another node's, of which attributes are told for once; the FIFO is no more, or told of for once as well.
#[test]
fn what_has_the_name_of_what_was_made_lends_it_nothing() {
    for is_there in [false, true] {
        made_and_lost(is_there);
    }
}

fn made_and_lost(is_there: bool) {
    let mut core = member();
    let (kind, target) = (FileKind::Fifo, Box::default());
    let spec = MakeSpec { kind, mode: 0o640, umask: 0, uid: 3, gid: 4, rdev: 0, target };
    let make = Request::Make { parent: Ino::ROOT, name: b"n"[..].into(), spec };
    assert!(core.submit(CLOCK, RequestId(1), make).is_none());
    let (mut made, mut answered, mut asked) = (None, None, Vec::new());
    // A grant from before a release was heard of counts for nothing.
    let mut seen = 0;
    while let Some(output) = core.poll_output() {
        let answer = match output {
            Output::Send(ToMaster::Acquire { request, want: Want::Directory { ino: Ino::ROOT }, .. }) => {
                let grants = vec![root_with(b"n", OTHER)];
                FromMaster::Acquired { request, error: None, grants, seen, glimpse: None }
            }
            Output::Send(ToMaster::Ship { seq, op: meta::Op::Create { new, .. }, .. }) => {
                made = Some(new.ino);
                let result = Ok(OpReply::Inode { ino: new.ino });
                FromMaster::Shipped { seq, result, changes: Vec::new(), grants: Vec::new(), seen }
            }
            Output::Send(ToMaster::Acquire { request, want, .. }) => {
                asked.push(want.ino());
                assert!(asked.len() < 20, "asked for ever: {asked:?}");
                let is_other = want.ino() == OTHER;
                let is_told = is_other || is_there;
                let error = Some(FsError::Stale).filter(|_| !is_told);
                let kind = if is_other { FileKind::File } else { FileKind::Fifo };
                let inode = Inode { attr: common::attr(kind), content: common::content(0) };
                let glimpse = Some(Box::new(inode)).filter(|_| is_told);
                FromMaster::Acquired { request, error, grants: Vec::new(), seen, glimpse }
            }
            Output::Send(ToMaster::Release { .. }) => {
                seen += 1;
                continue;
            }
            Output::Invalidate { job, .. } => {
                core.invalidated(CLOCK, job);
                continue;
            }
            Output::Reply(_, reply) => {
                answered = Some(reply);
                continue;
            }
            _ => continue,
        };
        core.handle_message(CLOCK, answer);
    }
    let Some(Reply::Entry(entry)) = answered else { panic!("answered {answered:?}") };
    assert!(asked.contains(&OTHER) && asked.contains(&made.unwrap()), "attributes are asked for: {asked:?}");
    let attr = entry.attr;
    let (mode, uid) = if is_there { (0o644, 0) } else { (0o640, 3) };
    assert_eq!((Some(attr.ino), attr.kind, attr.mode, attr.uid), (made, FileKind::Fifo, mode, uid));
}

/// Goal: a link that was made was made, though another node has removed all names of the file before its process is told. Method: the master has made it, and
/// says that the file is gone before it answers; whoever asks for that is told so.
#[test]
fn a_link_to_what_is_removed_at_once_was_made() {
    let mut core = member();
    let link = Request::Link { ino: OTHER, parent: Ino::ROOT, name: b"l"[..].into() };
    assert!(core.submit(CLOCK, RequestId(1), link).is_none());
    let (mut is_made, mut answered, mut asked) = (false, None, 0);
    // A grant from before a release was heard of counts for nothing.
    let mut seen = 0;
    while let Some(output) = core.poll_output() {
        let answer = match output {
            Output::Send(ToMaster::Acquire { request, want: Want::Directory { ino: Ino::ROOT }, .. }) => {
                let grants = vec![root_with(b"f", OTHER)];
                FromMaster::Acquired { request, error: None, grants, seen, glimpse: None }
            }
            Output::Send(ToMaster::Ship { seq, op: meta::Op::Link { .. }, .. }) => {
                is_made = true;
                let gone = Change::DeleteInode { ino: OTHER, parent: Ino(0), kind: FileKind::File };
                let forget = FromMaster::Forget { seq: 1, changes: vec![gone], removed: Vec::new() };
                core.handle_message(CLOCK, forget);
                let result = Ok(OpReply::Inode { ino: OTHER });
                FromMaster::Shipped { seq, result, changes: Vec::new(), grants: Vec::new(), seen }
            }
            Output::Send(ToMaster::Acquire { request, .. }) => {
                asked += 1;
                assert!(asked < 20, "asked for ever");
                let (attr, content) = (common::attr(FileKind::File), common::content(7));
                let data = [GrantData::Attr { attr }, GrantData::Content { content }];
                let rights = [ResourceId::attr(OTHER), ResourceId::file(OTHER)].into_iter().zip(data);
                let grants = rights.map(|(resource, data)| Grant { resource, mode: LockMode::Pr, data });
                let grants = grants.filter(|_| !is_made).collect();
                let error = Some(FsError::Stale).filter(|_| is_made);
                FromMaster::Acquired { request, error, grants, seen, glimpse: None }
            }
            Output::Send(ToMaster::Release { .. }) => {
                seen += 1;
                continue;
            }
            Output::Invalidate { job, .. } => {
                core.invalidated(CLOCK, job);
                continue;
            }
            Output::Reply(_, reply) => {
                answered = Some(reply);
                continue;
            }
            _ => continue,
        };
        core.handle_message(CLOCK, answer);
    }
    let Some(Reply::Entry(entry)) = answered else { panic!("answered {answered:?}") };
    assert_eq!((entry.attr.ino, entry.attr.kind, entry.attr.nlink), (OTHER, FileKind::File, 0));
    assert_eq!((entry.attr.size, entry.keep_attr), (7, Keep::No));
}

/// Goal: what was made is told to its maker wherever another node has moved it by then, and he asks for its attributes no more often than once. Method:
/// a symbolic link is made by the master; before the answer its name goes and another one comes; under that the directory covers it.
#[test]
fn what_was_made_is_found_where_another_node_has_moved_it() {
    let mut core = member();
    let lookup = Request::Lookup { parent: Ino::ROOT, name: b"none"[..].into() };
    assert!(core.submit(CLOCK, RequestId(2), lookup).is_none());
    let (kind, target) = (FileKind::Symlink, b"x"[..].into());
    let spec = MakeSpec { kind, mode: 0o777, umask: 0, uid: 3, gid: 4, rdev: 0, target };
    let make = Request::Make { parent: Ino::ROOT, name: b"n"[..].into(), spec };
    let mut make = Some(make);
    let cookie_of = |name: &[u8]| Cookie::range_of(CookieKey([9; 16]).hash(name)).0;
    let at = |name: &[u8], ino: Ino| meta::Change::PutEntry {
        parent: Ino::ROOT,
        cookie: cookie_of(name),
        entry: Dirent {
            name: Name::new(name).unwrap(),
            ino,
            child: Child::Covered {
                inode: Box::new(Inode { attr: common::attr(kind), content: common::content(1) }).into(),
            },
        },
    };
    let gone = |name: &[u8]| meta::Change::DeleteEntry {
        parent: Ino::ROOT,
        cookie: cookie_of(name),
        name: Name::new(name).unwrap(),
    };
    let (mut made, mut answered, mut asked) = (None, None, 0);
    while let Some(output) = core.poll_output() {
        let answer = match output {
            Output::Send(ToMaster::Acquire { request, want: Want::Directory { ino: Ino::ROOT }, .. }) => {
                let mut grant = root_grant();
                grant.mode = LockMode::Pr;
                FromMaster::Acquired { request, error: None, grants: vec![grant], seen: 0, glimpse: None }
            }
            Output::Send(ToMaster::Ship { seq, op: meta::Op::Create { new, .. }, .. }) => {
                made = Some(new.ino);
                let changes = vec![at(b"n", new.ino)];
                core.handle_message(CLOCK, FromMaster::Changed { seq, changes });
                let changes = vec![gone(b"n"), at(b"other", new.ino)];
                core.handle_message(CLOCK, FromMaster::Forget { seq: 7, changes, removed: Vec::new() });
                let result = Ok(OpReply::Inode { ino: new.ino });
                FromMaster::Shipped { seq, result, changes: Vec::new(), grants: Vec::new(), seen: 0 }
            }
            Output::Send(ToMaster::Acquire { request, want: Want::Attr { .. }, .. }) => {
                asked += 1;
                assert!(asked < 20, "asked for ever");
                let data = GrantData::Held {};
                let grant = Grant { resource: types::ResourceId::dir(Ino::ROOT), mode: LockMode::Pr, data };
                FromMaster::Acquired { request, error: None, grants: vec![grant], seen: 0, glimpse: None }
            }
            Output::Invalidate { job, .. } => {
                core.invalidated(CLOCK, job);
                continue;
            }
            Output::Reply(RequestId(2), _) => {
                assert!(make.take().is_some_and(|make| core.submit(CLOCK, RequestId(1), make).is_none()));
                continue;
            }
            Output::Reply(_, reply) => {
                answered = Some(reply);
                continue;
            }
            _ => continue,
        };
        core.handle_message(CLOCK, answer);
    }
    let Some(Reply::Entry(entry)) = answered else { panic!("answered {answered:?}, asked {asked} times") };
    assert_eq!((Some(entry.attr.ino), entry.attr.kind), (made, kind));
    assert!(asked <= 1, "asked {asked} times");
}

/// The root directory, shared, with one name.
fn root_with(name: &[u8], ino: Ino) -> Grant {
    let mut grant = root_grant();
    grant.mode = LockMode::Pr;
    if let GrantData::Directory { listing, .. } = &mut grant.data {
        let (cookie, _) = Cookie::range_of(CookieKey([9; 16]).hash(name));
        let (name, kind) = (Name::new(name).unwrap(), FileKind::File);
        listing.entries.push((cookie, Dirent { name, ino, child: Child::Own { kind } }));
    }
    grant
}

const OTHER: Ino = Ino(22);

/// Has a file made in the root, which others read too, and leaves its process waiting for the attributes.
fn make(core: &mut Core) -> Ino {
    assert!(core.submit(CLOCK, RequestId(1), create("f")).is_none());
    let mut made = None;
    while let Some(output) = core.poll_output() {
        let answer = match output {
            Output::Send(ToMaster::Acquire { request, want: Want::Directory { .. }, .. }) => {
                let mut grant = root_grant();
                grant.mode = LockMode::Pr;
                FromMaster::Acquired { request, error: None, grants: vec![grant], seen: 0, glimpse: None }
            }
            Output::Send(ToMaster::Ship { seq, op: meta::Op::Create { new, .. }, .. }) => {
                made = Some(new.ino);
                let result = Ok(OpReply::Inode { ino: new.ino });
                FromMaster::Shipped { seq, result, changes: Vec::new(), grants: Vec::new(), seen: 0 }
            }
            Output::Reply(_, reply) => panic!("answered {reply:?}"),
            _ => continue,
        };
        core.handle_message(CLOCK, answer);
    }
    made.expect("the operation is shipped")
}

/// Goal: an inode is found by its number as soon as whoever made it was told. Method: a file with two names, which has tokens of its own, is
/// in this node's log alone when the master asks for what it is like.
#[test]
fn what_is_made_goes_before_what_is_told_of_it() {
    let mut core = member();
    core.handle_message(CLOCK, common::reserved());
    let mut said = Vec::new();
    let lookup = Request::Lookup { parent: Ino::ROOT, name: b"none"[..].into() };
    assert!(matches!(ask(&mut core, 3, lookup, &mut said), Reply::NoEntry(_)), "the root is held");
    let created = ask(&mut core, 1, create("a"), &mut said);
    let Reply::Created(entry, _) = created else { panic!("{created:?}") };
    let ino = entry.attr.ino;
    let link = Request::Link { ino, parent: Ino::ROOT, name: b"b"[..].into() };
    let linked = ask(&mut core, 2, link, &mut said);
    assert!(matches!(linked, Reply::Entry(entry) if entry.attr.nlink == 2));
    assert!(!said.iter().any(|message| matches!(message, ToMaster::Batch { .. })), "nothing asked for it");
    core.handle_message(CLOCK, FromMaster::Glimpse { seq: 9, list: vec![ino] });
    let mut said = Vec::new();
    while let Some(output) = core.poll_output() {
        if let Output::Send(message) = output {
            said.push(message);
        }
    }
    let [ToMaster::Batch { changes, .. }, ToMaster::Glimpsed { seq: 9, contents }] = &said[..] else {
        panic!("{said:?}")
    };
    assert!(
        changes.iter().any(|change| matches!(change, meta::Change::PutAttr { ino: of, .. } if *of == ino))
    );
    assert_eq!(contents.len(), 1);
}

/// Asks a core whose master grants the root directory; what else it says goes to `said`.
fn ask(core: &mut Core, id: u64, request: Request, said: &mut Vec<ToMaster>) -> Reply {
    let mut reply = core.submit(CLOCK, RequestId(id), request);
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(ToMaster::Acquire { request, .. }) => {
                core.handle_message(CLOCK, common::root_acquired(request));
            }
            Output::Send(message) => said.push(message),
            Output::Reply(RequestId(of), answer) if of == id => reply = Some(answer),
            other => panic!("{other:?}"),
        }
    }
    reply.expect("an answer")
}
