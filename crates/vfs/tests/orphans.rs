//! Removed files that are open.
//!
//! A core alone; the test plays two masters, one after the other.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, create, member, root_acquired, welcome_back};
use meta::{Change, FileKind};
use types::Ino;
use vfs::{Core, DirSink, Entry, Output, Reply, Request, RequestId};
use wire::{ToMaster, Want};

/// Goal: a removed file goes when it is closed, whoever is master then. Method: it is closed while there is no master, after
/// the removal was sent and before anybody said that he had it.
#[test]
fn what_is_closed_between_masters_is_told_to_the_next() {
    let mut core = member();
    let look = Request::ReadDir { ino: Ino::ROOT, after: 0, plus: false, sink: Box::new(Nothing) };
    assert!(core.submit(CLOCK, RequestId(0), look).is_none());
    run(&mut core);
    let Some(Reply::Created(entry, opened)) = core.submit(CLOCK, RequestId(1), create("f")) else {
        panic!("the root is held")
    };
    let (ino, handle) = (entry.attr.ino, opened.handle);
    let unlink = Request::Unlink { parent: Ino::ROOT, name: b"f"[..].into() };
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
