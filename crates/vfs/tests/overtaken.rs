//! Goal: who answers a write through the kernel's pages that waited is told which of them the kernel has read meanwhile, for they
//! may show what was before; and of no others, for those may be locked until the answer.
//!
//! Method: a core alone; the test plays the kernel and the master.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, attr, content, member};
use meta::FileKind;
use types::{Ino, LockMode, ResourceId};
use vfs::{Core, Output, PageSpan, Reply, Request, RequestId, Reread, WriteData};
use wire::{FromMaster, Grant, GrantData, ToMaster, Want};

const FILE: Ino = Ino(50);
const PAGE: u64 = 4096;
const WRITE: RequestId = RequestId(1);
const READ: RequestId = RequestId(2);

struct Rig {
    core: Core,
    asked: Vec<(u64, Want)>,
    replies: Vec<(RequestId, Reply)>,
}

impl Rig {
    /// A member whose kernel writes some bytes across three pages of a file that another node has.
    fn writing(direct: bool) -> Self {
        let mut rig = Self { core: member(), asked: Vec::new(), replies: Vec::new() };
        let data = WriteData(vec![7; 2 * PAGE as usize].into());
        let (offset, append, kill_privileges) = (100, false, None);
        rig.submit(WRITE, Request::Write { ino: FILE, offset, data, append, direct, kill_privileges });
        rig
    }

    fn submit(&mut self, id: RequestId, request: Request) {
        let reply = self.core.submit(CLOCK, id, request);
        self.replies.extend(reply.map(|reply| (id, reply)));
        self.run();
    }

    fn run(&mut self) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Send(ToMaster::Acquire { request, want, .. }) => self.asked.push((request, want)),
                Output::Reply(id, reply) => self.replies.push((id, reply)),
                _ => {}
            }
        }
    }

    fn grant(&mut self, want: Want, mode: LockMode) {
        let at = self.asked.iter().position(|(_, asked)| *asked == want).expect("it was asked for");
        let (request, _) = self.asked.remove(at);
        let data = GrantData::Content { content: content(16 * PAGE) };
        let mut grants = vec![Grant { resource: ResourceId::file(FILE), mode, data }];
        let data = GrantData::Attr { attr: attr(FileKind::File) };
        grants.push(Grant { resource: ResourceId::attr(FILE), mode: LockMode::Pr, data });
        let acquired = FromMaster::Acquired { request, error: None, grants, seen: u64::MAX, glimpse: None };
        self.core.handle_message(CLOCK, acquired);
        self.run();
    }

    fn read(&mut self, page: u64, direct: bool) {
        let (offset, len) = (page * PAGE, PAGE as u32);
        self.submit(READ, Request::Read { ino: FILE, offset, len, noatime: true, direct });
        if self.asked.iter().any(|(_, want)| *want == Want::Read { ino: FILE }) {
            self.grant(Want::Read { ino: FILE }, LockMode::Pr);
        }
        let (id, reply) = self.replies.pop().expect("a read waits for no write");
        assert!(id == READ && matches!(reply, Reply::Data(_)), "{id:?}: {reply:?}");
    }

    /// What is told of the write, which is no longer kept waiting.
    fn reread(mut self) -> Option<PageSpan> {
        self.grant(Want::Write { ino: FILE }, LockMode::Ex);
        match self.replies.pop() {
            Some((WRITE, Reply::Written { reread: Reread { surely, perhaps: None }, .. })) => surely,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn pages_read_while_a_write_waits_are_told_with_its_answer() {
    let mut rig = Rig::writing(false);
    rig.read(2, false);
    assert_eq!(rig.reread(), Some(PageSpan { start: 2 * PAGE, end: 3 * PAGE }));

    let mut rig = Rig::writing(false);
    rig.read(1, false);
    rig.read(0, false);
    assert_eq!(rig.reread(), Some(PageSpan { start: 0, end: 2 * PAGE }));
}

#[test]
fn no_others_are_told() {
    assert_eq!(Rig::writing(false).reread(), None);

    let mut rig = Rig::writing(false);
    rig.read(3, false);
    rig.read(1, true);
    assert_eq!(rig.reread(), None, "beside it, and past the kernel's pages");

    let mut rig = Rig::writing(true);
    rig.read(1, false);
    assert_eq!(rig.reread(), None, "a direct write locks nothing, and all its pages go");
}
