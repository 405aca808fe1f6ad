//! Removals that the master carries out, of what is held here.
//!
//! A core alone; the test plays the master and the kernel.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, attr, content, member};
use meta::ops::RenameMode;
use meta::{Change, Child, Cookie, CookieKey, Dirent, FileKind, FsError, Inode, Op, OpReply};
use types::{Ino, LockMode, Micros, Name, ResourceId};
use vfs::{Clock, Core, DirSink, Entry, MakeSpec, Output, Reply, Request, RequestId};
use wire::{FromMaster, Grant, GrantData, Listing, ToMaster, Want};

const DIR: Ino = Ino(50);
const LATER: Clock = Clock { now: Micros(CLOCK.now.0 + 1_000_000), ..CLOCK };

/// Goal: nothing is logged of a directory behind its removal, which the master would refuse, and the membership with it.
/// Method: a directory that is held in EX and was read is removed where the master has to do it, and asked for by another
/// node before the answer: the time of the read would be logged as it is given back.
#[test]
fn nothing_is_logged_of_a_directory_that_is_being_removed() {
    for is_name_known in [true, false] {
        let mut core = holder();
        assert_eq!(core.held_mode(ResourceId::dir(DIR)), LockMode::Ex);
        if !is_name_known {
            revoke(&mut core, Ino::ROOT);
            assert_eq!(core.held_mode(ResourceId::dir(Ino::ROOT)), LockMode::Nl);
        }

        let remove = Request::Rmdir { parent: Ino::ROOT, name: b"d"[..].into(), bound: None };
        assert!(core.submit(LATER, RequestId(3), remove).is_none());
        let said = run(&mut core);
        let is_removal = |message: &ToMaster| matches!(message, ToMaster::Ship { op: Op::Rmdir { .. }, .. });
        assert!(said.iter().any(is_removal), "name known {is_name_known}: {said:?}");
        let said = revoke(&mut core, DIR);
        let is_of_dir = |change: &Change| matches!(change, Change::PutDirectory { ino: DIR, .. });
        for message in &said {
            let ToMaster::Batch { changes, .. } = message else { continue };
            assert!(!changes.iter().any(is_of_dir), "name known {is_name_known}: {said:?}");
        }
        assert!(said.iter().any(|message| matches!(message, ToMaster::Release { .. })), "{said:?}");
    }
}

/// Goal: nothing is made in a directory that the master may just have removed. Method: the same directory, whose removal is shipped; a
/// directory that is made in it has to wait.
#[test]
fn nothing_is_made_in_a_directory_that_is_being_removed() {
    let mut core = holder();
    let remove = Request::Rmdir { parent: Ino::ROOT, name: b"d"[..].into(), bound: None };
    assert!(core.submit(LATER, RequestId(3), remove).is_none());
    run(&mut core);
    let (kind, target) = (FileKind::Directory, Box::default());
    let spec = MakeSpec { kind, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0, target };
    let make = Request::Make { parent: DIR, name: b"x"[..].into(), spec };
    assert!(core.submit(LATER, RequestId(4), make).is_none(), "it waits");
    core.handle_timeout(Clock { now: Micros(LATER.now.0 + 2_000_000), ..LATER });
    let said = run(&mut core);
    assert!(!said.iter().any(|message| matches!(message, ToMaster::Batch { .. })), "{said:?}");
}

/// Goal: who asks for what is removed in this node's log alone hears of that at once, and not with the next batch, which may be longer off than the lease
/// lasts. Method: a directory that was made here, and is known to the master, is removed here and asked back.
#[test]
fn what_the_log_alone_removed_is_told_when_it_is_asked_for() {
    let mut core = member();
    let look = Request::Lookup { parent: Ino::ROOT, name: b"x"[..].into() };
    assert!(core.submit(CLOCK, RequestId(1), look).is_none());
    while let Some(output) = core.poll_output() {
        if let Output::Send(ToMaster::Acquire { request, .. }) = output {
            core.handle_message(CLOCK, common::root_acquired(request));
        }
    }
    let (kind, target) = (FileKind::Directory, Box::default());
    let spec = MakeSpec { kind, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0, target };
    let make = Request::Make { parent: Ino::ROOT, name: b"x"[..].into(), spec };
    let Some(Reply::Entry(entry)) = core.submit(CLOCK, RequestId(2), make) else { panic!("made") };
    core.handle_timeout(LATER);
    run(&mut core);
    let remove = Request::Rmdir { parent: Ino::ROOT, name: b"x"[..].into(), bound: None };
    assert!(matches!(core.submit(LATER, RequestId(3), remove), Some(Reply::Done)));
    assert_eq!(run(&mut core), []);
    let list = vec![(ResourceId::dir(entry.attr.ino), LockMode::Nl)];
    core.handle_message(LATER, FromMaster::Revoke { list, speculative: false });
    let said = run(&mut core);
    let is_removal = |change: &Change| matches!(change, Change::DeleteInode { .. });
    let tells = |message: &ToMaster| matches!(message, ToMaster::Batch { changes, .. } if changes.iter().any(is_removal));
    assert!(said.iter().any(tells), "{said:?}");
}

/// A core that holds the directory in EX and has read it.
fn holder() -> Core {
    let mut core = member();
    let look = Request::Lookup { parent: Ino::ROOT, name: b"d"[..].into() };
    assert!(core.submit(CLOCK, RequestId(1), look).is_none());
    run(&mut core);
    let list = Request::ReadDir { ino: DIR, after: 0, plus: false, noatime: false, sink: Box::new(Names) };
    assert!(!matches!(core.submit(CLOCK, RequestId(2), list), Some(Reply::Error(_))));
    run(&mut core);
    core
}

/// Has a directory given back. Returns what was said.
fn revoke(core: &mut Core, dir: Ino) -> Vec<ToMaster> {
    let list = vec![(ResourceId::dir(dir), LockMode::Nl)];
    core.handle_message(LATER, FromMaster::Revoke { list, speculative: false });
    core.handle_timeout(Clock { now: Micros(LATER.now.0 + 100_000), ..LATER });
    run(core)
}

/// Room for every name.
#[derive(Debug)]
struct Names;

impl DirSink for Names {
    fn push(&mut self, _: &[u8], _: Ino, _: FileKind, _: u64, _: Option<&Entry>) -> bool {
        true
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

/// The root in PR, which has one directory, or that in EX.
fn grant(ino: Ino) -> Grant {
    let name = Name::new(b"d").unwrap();
    let (cookie, _) = Cookie::range_of(CookieKey([9; 16]).hash(b"d"));
    let entry = Dirent { name, ino: DIR, child: Child::Own { kind: FileKind::Directory } };
    let (mode, entries) =
        if ino == DIR { (LockMode::Ex, Vec::new()) } else { (LockMode::Pr, vec![(cookie, entry)]) };
    let inode = Box::new(Inode { attr: attr(FileKind::Directory), content: content(0) });
    let listing = Listing { after: 0, entries, complete: true };
    Grant { resource: ResourceId::dir(ino), mode, data: GrantData::Directory { inode, listing } }
}

/// Grants what is asked for and lets the kernel forget what it is to. Returns what was said else.
fn run(core: &mut Core) -> Vec<ToMaster> {
    let mut said = Vec::new();
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(ToMaster::Acquire { request, want: Want::Directory { ino }, .. }) => {
                let grants = vec![grant(ino)];
                let answer = FromMaster::Acquired { request, error: None, grants, seen: 9, glimpse: None };
                core.handle_message(LATER, answer);
            }
            Output::Send(message) => said.push(message),
            Output::Invalidate { job, .. } => core.invalidated(LATER, job),
            Output::Reply(_, reply) => assert!(!matches!(reply, Reply::Error(_)), "{reply:?}"),
            _ => {}
        }
    }
    said
}

/// Goal: the kernel never takes a directory for removed that is there. Method: it has `d`, which another node moves, and makes another of that
/// name; the removal says which one is meant, the master refuses, and what the kernel asks next, having looked again, is about what it has then.
#[test]
fn a_removal_says_which_directory_the_kernel_has() {
    let mut core = holder();
    revoke(&mut core, Ino::ROOT);
    let remove = || Request::Rmdir { parent: Ino::ROOT, name: b"d"[..].into(), bound: None };
    let rename = || Request::Rename {
        parent: Ino::ROOT,
        name: b"y"[..].into(),
        new_parent: Ino::ROOT,
        new_name: b"d"[..].into(),
        mode: RenameMode::Replace,
        bound: None,
        whiteout: None,
    };
    for (id, (first, second)) in [(10, (remove(), remove())), (20, (rename(), rename()))] {
        assert_eq!(meant(&mut core, id, first, Err(FsError::Stale)), DIR, "as the kernel was told");
        assert_eq!(
            meant(&mut core, id + 1, second, Err(FsError::NotFound)),
            Ino(0),
            "it was told nothing since"
        );
        let look = Request::Lookup { parent: Ino::ROOT, name: b"d"[..].into() };
        core.submit(LATER, RequestId(id + 2), look);
        run(&mut core);
        revoke(&mut core, Ino::ROOT);
    }
    let removed = Ok(OpReply::Removed { ino: DIR, deleted: true });
    assert_eq!(meant(&mut core, 30, remove(), removed), DIR);
    assert_eq!(meant(&mut core, 31, rename(), Err(FsError::NotFound)), Ino(0), "it is removed");
}

/// Has the kernel ask for this, and the master answer. Returns which directory is meant.
fn meant(core: &mut Core, id: u64, request: Request, result: Result<OpReply, FsError>) -> Ino {
    assert!(core.submit(LATER, RequestId(id), request).is_none());
    let said = run(core);
    let shipped = said.iter().find_map(|message| match message {
        ToMaster::Ship { seq, op: Op::Rmdir { meant, .. } | Op::Rename { meant, .. }, .. } => {
            Some((*seq, *meant))
        }
        _ => None,
    });
    let (seq, meant) = shipped.expect("shipped");
    core.handle_message(LATER, FromMaster::Shipped { seq, result, changes: vec![], grants: vec![], seen: 9 });
    let mut replies = Vec::new();
    while let Some(output) = core.poll_output() {
        replies.extend(match output {
            Output::Reply(RequestId(of), reply) if of == id => Some(reply),
            _ => None,
        });
    }
    let is_so = match (&replies[..], result) {
        ([Reply::Error(found)], Err(error)) => *found == error,
        ([Reply::Done], Ok(_)) => true,
        _ => false,
    };
    assert!(is_so, "{replies:?}");
    meant
}
