//! Removed files that are open.
//!
//! A core alone; the test plays two masters, one after the other.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, attr, content, create, member, root_acquired, root_grant, welcome_back};
use meta::{Change, Child, Cookie, CookieKey, Dirent, FileKind, InodeAttr, OpReply};
use types::{Ino, LockMode, Name, NodeId, ResourceId};
use vfs::{Core, DirSink, Entry, OpenMode, Output, Reply, Request, RequestId};
use wire::{FromMaster, Grant, GrantData, ToMaster, Want};

/// Goal: a removed file goes when it is closed, whoever is master then. Method: it is closed while there is no master, after
/// the removal was sent and before anybody said that he had it.
#[test]
fn what_is_closed_between_masters_is_told_to_the_next() {
    let mut core = member();
    let look =
        Request::ReadDir { ino: Ino::ROOT, after: 0, plus: false, noatime: false, sink: Box::new(Nothing) };
    assert!(core.submit(CLOCK, RequestId(0), look).is_none());
    run(&mut core);
    let Some(Reply::Created(entry, opened)) = core.submit(CLOCK, RequestId(1), create("f")) else {
        panic!("the root is held")
    };
    let (ino, handle) = (entry.attr.ino, opened.handle);
    let unlink = Request::Unlink { parent: Ino::ROOT, name: b"f"[..].into(), bound: None };
    assert!(matches!(core.submit(CLOCK, RequestId(2), unlink), Some(Reply::Done)));
    assert!(core.submit(CLOCK, RequestId(3), Request::Fsync { ino: Ino::ROOT }).is_none());
    let (_, said) = run(&mut core);
    assert!(said.iter().any(|message| is_removal(message, ino)), "{said:?}");

    core.link_down(CLOCK);
    core.hello(CLOCK, 1, 1, String::new(), String::new());
    core.submit(CLOCK, RequestId(4), Request::Release { ino, handle, flock: None });
    let (_, said) = run(&mut core);
    assert!(said.is_empty(), "there is nobody to say it to: {said:?}");
    core.handle_message(CLOCK, welcome_back());
    let (_, said) = run(&mut core);
    let removed = said.iter().position(|message| is_removal(message, ino)).expect("sent again");
    let closed =
        said.iter().position(|message| matches!(message, ToMaster::Closed { ino: of } if *of == ino));
    assert!(closed.is_some_and(|closed| closed > removed), "{said:?}");
}

/// Goal: the master has down who has a removed file open. Method: it was told of an open, which then waits for a removal that
/// was sent before; the removal is made known.
#[test]
fn an_open_that_waits_for_a_removal_stays_told() {
    let mut core = member();
    let look = Request::Lookup { parent: Ino::ROOT, name: b"f"[..].into() };
    let lookup = core.submit(CLOCK, RequestId(1), look);
    assert!(lookup.is_none());
    let mut root = root_grant();
    root.mode = LockMode::Pr;
    let (name, file) = (Name::new(b"f").unwrap(), Ino(50));
    let cookie = Cookie::range_of(CookieKey([9; 16]).hash(b"f")).0;
    if let GrantData::Directory { listing, .. } = &mut root.data {
        let child = Child::Own { kind: FileKind::File };
        listing.entries.push((cookie, Dirent { name: name.clone(), ino: file, child }));
    }
    let of_file = |nlink| {
        let data = GrantData::Attr { attr: InodeAttr { nlink, ..attr(FileKind::File) } };
        Grant { resource: ResourceId::attr(file), mode: LockMode::Pr, data }
    };
    let data = GrantData::Content { content: content(0) };
    let of_content = Grant { resource: ResourceId::file(file), mode: LockMode::Pr, data };
    let acquired = |core: &mut Core, grants: &[Grant]| {
        let request = wanted(core);
        let grants = grants.to_vec();
        core.handle_message(
            CLOCK,
            FromMaster::Acquired { request, error: None, grants, seen: 0, glimpse: None },
        );
    };
    acquired(&mut core, &[root]);
    acquired(&mut core, &[of_file(1), of_content]);

    let open = Request::Open { ino: file, open: OpenMode::default() };
    assert!(core.submit(CLOCK, RequestId(2), open).is_none());
    let request = wanted(&mut core);
    let unlink = Request::Unlink { parent: Ino::ROOT, name: b"f"[..].into(), bound: None };
    assert!(core.submit(CLOCK, RequestId(3), unlink).is_none());
    let (_, said) = run(&mut core);
    let ship = said.iter().find_map(|message| match message {
        ToMaster::Ship { seq, .. } => Some(*seq),
        _ => None,
    });
    let seq = ship.expect("the root is shared");
    let grants = Vec::new();
    core.handle_message(CLOCK, FromMaster::Acquired { request, error: None, grants, seen: 0, glimpse: None });
    let changes = vec![
        Change::DeleteEntry { parent: Ino::ROOT, cookie, name },
        Change::PutAttr { ino: file, attr: InodeAttr { nlink: 0, ..attr(FileKind::File) } },
        Change::PutOrphan { ino: file, holders: vec![NodeId(1)] },
    ];
    core.handle_message(CLOCK, FromMaster::Changed { seq, changes });
    let result = Ok(OpReply::Removed { ino: file, deleted: false });
    let (changes, grants) = (Vec::new(), vec![of_file(0)]);
    core.handle_message(CLOCK, FromMaster::Shipped { seq, result, changes, grants, seen: 0 });
    let (replies, said) = run(&mut core);
    let is_closed = |said: &[ToMaster]| {
        said.iter().any(|message| matches!(message, ToMaster::Closed { ino } if *ino == file))
    };
    assert!(!is_closed(&said), "{said:?}");
    let opened = replies.iter().find_map(|reply| match reply {
        Reply::Opened(opened) => Some(opened.handle),
        _ => None,
    });
    let handle = opened.unwrap_or_else(|| panic!("{replies:?} {said:?}"));
    core.submit(CLOCK, RequestId(4), Request::Release { ino: file, handle, flock: None });
    let (_, said) = run(&mut core);
    assert!(is_closed(&said), "{said:?}");
}

/// The request by which the node asks for something.
#[track_caller]
fn wanted(core: &mut Core) -> u64 {
    while let Some(output) = core.poll_output() {
        if let Output::Send(ToMaster::Acquire { request, .. }) = output {
            return request;
        }
    }
    panic!("nothing is asked for")
}

/// Room for no names.
#[derive(Debug)]
struct Nothing;

impl DirSink for Nothing {
    fn push(&mut self, _: &[u8], _: Ino, _: FileKind, _: u64, _: Option<&Entry>) -> bool {
        false
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

fn is_removal(message: &ToMaster, of: Ino) -> bool {
    let ToMaster::Batch { changes, .. } = message else { return false };
    changes.iter().any(|change| matches!(change, Change::PutOrphan { ino, .. } if *ino == of))
}

/// Grants the root. Returns what was answered and what was said.
fn run(core: &mut Core) -> (Vec<Reply>, Vec<ToMaster>) {
    let (mut replies, mut said): (Vec<Reply>, Vec<ToMaster>) = Default::default();
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(ToMaster::Acquire { request, want: Want::Directory { .. }, .. }) => {
                core.handle_message(CLOCK, root_acquired(request));
            }
            Output::Send(message) => said.push(message),
            Output::Reply(_, reply) => replies.push(reply),
            Output::Invalidate { job, .. } => core.invalidated(CLOCK, job),
            _ => {}
        }
    }
    (replies, said)
}
