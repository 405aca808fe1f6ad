//! Names that this node changes, until its kernel is done with that.
//!
//! A core alone; the test plays its master and its kernel.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, attr, create, member, root_acquired, root_grant};
use meta::{Change, Child, Cookie, CookieKey, Dirent, FileKind, Inode, Op, OpReply};
use types::{Ino, LockMode, Micros, Name, ResourceId};
use vfs::{Clock, Core, Invalidation, Output, Over, OverStep, Reply, Request, RequestId};
use wire::{FromMaster, GrantData, ToMaster};

const FILE: Ino = Ino(50);
const LATER: Clock = Clock { now: Micros(1_500_000), ..CLOCK };

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn cookie(text: &str) -> Cookie {
    Cookie::range_of(CookieKey([9; 16]).hash(text.as_bytes())).0
}

fn settled(text: &str) -> Invalidation {
    Invalidation::Settled { parent: Ino::ROOT, name: name(text) }
}

fn over(job: u64, step: OverStep) -> Over {
    Over { job, step, parent: Ino::ROOT, name: name("f") }
}

/// What the core sends, and what it takes back from the kernel.
fn outputs(core: &mut Core) -> (Vec<ToMaster>, Vec<(u64, Vec<Invalidation>)>) {
    let (mut sent, mut taken_back) = (Vec::new(), Vec::new());
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(message) => sent.push(message),
            Output::Invalidate { job, list } => taken_back.push((job, list)),
            _ => {}
        }
    }
    (sent, taken_back)
}

/// A core that holds the root in EX and has made `f` there, by request 2.
fn maker() -> Core {
    let mut core = member();
    let look = Request::Lookup { parent: Ino::ROOT, name: b"other"[..].into() };
    assert!(core.submit(CLOCK, RequestId(1), look).is_none());
    let (sent, _) = outputs(&mut core);
    let asked = sent.iter().find_map(|message| match message {
        ToMaster::Acquire { request, .. } => Some(*request),
        _ => None,
    });
    core.handle_message(CLOCK, root_acquired(asked.expect("the root is asked for")));
    assert!(matches!(core.submit(CLOCK, RequestId(2), create("f")), Some(Reply::Created(..))));
    outputs(&mut core);
    core
}

/// A core that holds the root in PR, with these entries, and has looked for one there by request 1.
fn sharer(entries: Vec<(Cookie, Dirent)>) -> Core {
    let mut core = member();
    let look = Request::Lookup { parent: Ino::ROOT, name: b"f"[..].into() };
    assert!(core.submit(CLOCK, RequestId(1), look).is_none());
    let (sent, _) = outputs(&mut core);
    let asked = sent.iter().find_map(|message| match message {
        ToMaster::Acquire { request, .. } => Some(*request),
        _ => None,
    });
    let mut grant = root_grant();
    grant.mode = LockMode::Pr;
    if let GrantData::Directory { listing, .. } = &mut grant.data {
        listing.entries.extend(entries);
    }
    let (request, grants) = (asked.expect("the root is asked for"), vec![grant]);
    core.handle_message(CLOCK, FromMaster::Acquired { request, error: None, grants, seen: 0, glimpse: None });
    outputs(&mut core);
    core
}

fn share_root(core: &mut Core) -> (Vec<ToMaster>, Vec<(u64, Vec<Invalidation>)>) {
    let list = vec![(ResourceId::dir(Ino::ROOT), LockMode::Pr)];
    core.handle_message(LATER, FromMaster::Revoke { list, speculative: false });
    outputs(core)
}

fn is_released(sent: &[ToMaster]) -> bool {
    let root = (ResourceId::dir(Ino::ROOT), LockMode::Pr);
    sent.iter().any(|message| matches!(message, ToMaster::Release { list, .. } if list.contains(&root)))
}

/// Goal: no other node sees a change of names before everybody on this one does. Method: a directory in which a file was made is to be shared.
#[test]
fn a_directory_is_shared_when_the_kernel_is_done_with_what_was_made_there() {
    let mut core = maker();
    let (sent, taken_back) = share_root(&mut core);
    assert!(!is_released(&sent), "{sent:?}");
    let [(job, list)] = &taken_back[..] else { panic!("{taken_back:?}") };
    assert_eq!(list[..], [settled("f")]);
    core.invalidated(LATER, *job);
    let (sent, _) = outputs(&mut core);
    assert!(is_released(&sent), "{sent:?}");
}

/// Goal: who is known to be done is not waited for. Method: whoever made the file asks for something else, or somebody for what takes the same lock,
/// before the directory is to be shared, or while that waits.
#[test]
fn a_thread_that_goes_on_is_not_waited_for() {
    let by_thread = |core: &mut Core| core.taken_in(RequestId(2));
    let by_lock = |core: &mut Core| _ = core.submit(LATER, RequestId(3), create("g"));
    let steps: [&dyn Fn(&mut Core); 2] = [&by_thread, &by_lock];
    for step in steps {
        let mut core = maker();
        step(&mut core);
        assert_eq!(core.take_over(), []);
        let (_, taken_back) = share_root(&mut core);
        let waits = taken_back.iter().flat_map(|(_, list)| list);
        assert!(!waits.into_iter().any(|wait| *wait == settled("f")), "{taken_back:?}");

        let mut core = maker();
        let (_, taken_back) = share_root(&mut core);
        let [(job, _)] = &taken_back[..] else { panic!("{taken_back:?}") };
        step(&mut core);
        assert_eq!(core.take_over(), [over(*job, OverStep::Wait)]);
        assert_eq!(core.take_over(), []);
    }
}

/// Goal: an invalidation knows whose change it waits for, as long as that waits for nothing but its outcome: for more it may be waiting because of the invalidation. Method: a file
/// that the master makes for this node, and another node moves elsewhere before this one is told that it is made.
#[test]
fn a_change_that_waits_for_more_than_its_outcome_is_not_waited_for() {
    let mut core = sharer(Vec::new());
    assert!(core.submit(CLOCK, RequestId(2), create("f")).is_none());
    let (sent, _) = outputs(&mut core);
    let ship = sent.into_iter().find_map(|message| match message {
        ToMaster::Ship { seq, op: Op::Create { new, .. }, .. } => Some((seq, new.ino)),
        _ => None,
    });
    let (seq, ino) = ship.expect("the root is shared");
    let inode = Inode { attr: attr(FileKind::File), content: common::content(0) };
    let entry = Dirent { name: name("f"), ino, child: Child::Covered { inode: inode.into() } };
    let changes = vec![Change::PutEntry { parent: Ino::ROOT, cookie: cookie("f"), entry }];
    core.handle_message(CLOCK, FromMaster::Changed { seq, changes });
    outputs(&mut core);
    let gone = Change::DeleteEntry { parent: Ino::ROOT, cookie: cookie("f"), name: name("f") };
    let changes = vec![gone];
    core.handle_message(LATER, FromMaster::Forget { seq: 7, changes, removed: Vec::new() });
    let (_, taken_back) = outputs(&mut core);
    let is_waiting = |(_, list): &&(u64, Vec<Invalidation>)| list.contains(&settled("f"));
    let (job, _) = taken_back.iter().find(is_waiting).expect("it waits");
    assert_eq!(core.changer_for(*job), Some(RequestId(2)));
    assert_eq!(core.changer_for(*job + 1), None);

    let result = Ok(OpReply::Inode { ino });
    core.handle_message(
        LATER,
        FromMaster::Shipped { seq, result, changes: Vec::new(), grants: Vec::new(), seen: 0 },
    );
    let (sent, _) = outputs(&mut core);
    assert!(sent.iter().any(|message| matches!(message, ToMaster::Acquire { .. })), "it waits: {sent:?}");
    assert_eq!(core.changer_for(*job), None);
}

/// Goal: two nodes that make and remove one name by turns do not wait for one another's kernels in a circle: each request here holds the lock that the removal of the name
/// from the kernel needs. Method: another node removes a name, and this one makes it anew before the name is taken back.
#[test]
fn a_name_that_is_made_anew_needs_no_taking_back() {
    let inode = Inode { attr: attr(FileKind::File), content: common::content(0) };
    let entry = Dirent { name: name("f"), ino: FILE, child: Child::Covered { inode: inode.into() } };
    let mut core = sharer(vec![(cookie("f"), entry)]);
    let changes = vec![Change::DeleteEntry { parent: Ino::ROOT, cookie: cookie("f"), name: name("f") }];
    core.handle_message(LATER, FromMaster::Forget { seq: 7, changes, removed: vec![FILE] });
    let (sent, taken_back) = outputs(&mut core);
    assert!(!sent.iter().any(|message| matches!(message, ToMaster::Forgotten { .. })), "{sent:?}");
    let [(job, list)] = &taken_back[..] else { panic!("{taken_back:?}") };
    let is_of = |step: &Invalidation| match step {
        Invalidation::Name { name: of, .. } | Invalidation::Unhash { name: of, .. } => *of == name("f"),
        _ => false,
    };
    // Once: who has the directory meanwhile may wait for this.
    assert_eq!(list.iter().filter(|step| is_of(step)).count(), 1, "{list:?}");
    assert!(core.submit(LATER, RequestId(2), create("f")).is_none(), "it is shipped");
    assert_eq!(core.take_over(), [over(*job, OverStep::TakeBack)]);
}
