//! What a node tells its kernel of an inode to which another node gives other permissions.
//!
//! A core alone; the test plays its master and its kernel. The inode is the root directory, which a kernel knows from the first.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, member, root_grant};
use types::{Ino, LockMode, Micros, ResourceId};
use vfs::{Clock, Core, Invalidation, Outdated, Output, Permissions, Reply, Request, RequestId, Seen};
use wire::{FromMaster, GrantData, ToMaster};

const TAKEN: Invalidation = Invalidation::Taken { ino: Ino::ROOT, generation: 0 };

struct Rig {
    core: Core,
    clock: Clock,
    next: u64,
}

impl Rig {
    fn new() -> Self {
        Self { core: member(), clock: CLOCK, next: 1 }
    }

    fn passes(&mut self, time: Micros) {
        self.clock.now = self.clock.now + time;
    }

    /// The kernel asks, and the master is asked what there is.
    fn stat(&mut self, mode: u32) -> Reply {
        let id = RequestId(self.next);
        self.next += 1;
        let mut reply = self.core.submit(self.clock, id, Request::GetAttr { ino: Ino::ROOT });
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Send(ToMaster::Acquire { request, .. }) => {
                    let mut grant = root_grant();
                    grant.mode = LockMode::Pr;
                    if let GrantData::Directory { inode, .. } = &mut grant.data {
                        inode.attr.mode = mode;
                    }
                    let acquired = FromMaster::Acquired {
                        request,
                        error: None,
                        grants: vec![grant],
                        seen: u64::MAX,
                        glimpse: None,
                    };
                    self.core.handle_message(self.clock, acquired);
                }
                Output::Reply(_, told) => reply = Some(told),
                _ => {}
            }
        }
        reply.unwrap()
    }

    /// Another node is about to change it, somewhat later. What the kernel loses for that.
    fn give_back(&mut self) -> Vec<Invalidation> {
        self.passes(Micros(20_000));
        let list = vec![(ResourceId::dir(Ino::ROOT), LockMode::Nl)];
        self.core.handle_message(self.clock, FromMaster::Revoke { list, speculative: false });
        let mut ordered = Vec::new();
        while let Some(output) = self.core.poll_output() {
            if let Output::Invalidate { job, list } = output {
                ordered.extend(list);
                self.core.invalidated(self.clock, job);
            }
        }
        ordered
    }

    /// The kernel was seen to judge by these. Whether that is as it should be.
    fn see(&mut self, of: Outdated, mode: u32) -> bool {
        let seen = Seen { end: 0, permissions: Permissions { mode, uid: 0, gid: 0 } };
        let is_current = self.core.is_current(of, seen).unwrap();
        if is_current {
            self.core.seen(self.clock, of, seen);
        }
        is_current
    }
}

#[test]
fn an_answer_with_other_permissions_waits_until_the_kernel_has_them() {
    let mut rig = Rig::new();
    let told = rig.stat(0o700);
    let of = rig.core.outdated(&told).unwrap();
    assert!(of.permissions && !of.end, "what the kernel has at first is not known");
    assert!(!rig.see(of, 0) && rig.see(of, 0o700));
    assert_eq!(rig.core.outdated(&told), None);

    rig.give_back();
    let told = rig.stat(0o755);
    let of = rig.core.outdated(&told).unwrap();
    // Changed once more before the kernel was seen to have that: it is to have what it was told last.
    rig.give_back();
    let told = rig.stat(0o750);
    assert!(rig.core.outdated(&told).is_some());
    assert_eq!(rig.core.attr_now(of, None).map(|attr| attr.mode & 0o7777), Some(0o750));
    assert!(!rig.see(of, 0o755) && rig.see(of, 0o750));
    assert_eq!(rig.core.outdated(&told), None);

    // From an answer to its own chmod the kernel takes everything.
    rig.give_back();
    let told = rig.stat(0o711);
    rig.core.attributes_set(&told);
    assert_eq!(rig.core.outdated(&told), None);
}

/// After a while in which nothing could come between, the answer does not wait; what follows it closely does.
#[test]
fn what_is_taken_back_waits_for_an_answer_that_did_not_wait() {
    let mut rig = Rig::new();
    let told = rig.stat(0o700);
    let of = rig.core.outdated(&told).unwrap();
    assert!(rig.see(of, 0o700));
    assert!(!rig.give_back().contains(&TAKEN));
    for (pause, mode, waits) in [(30_000, 0o755, true), (500_000, 0o750, false)] {
        rig.passes(Micros(2_000_000));
        let told = rig.stat(mode);
        assert_eq!(rig.core.outdated(&told), None);
        rig.passes(Micros(pause));
        let ordered = rig.give_back();
        assert_eq!(ordered.first() == Some(&TAKEN), waits, "{ordered:?}");
        assert!(ordered.contains(&Invalidation::Attr { ino: Ino::ROOT }));
    }
}
