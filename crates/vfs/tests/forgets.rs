//! What a node serves while it takes back what another changed.
//!
//! A core alone; the test plays its master and its kernel.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use chunk::MemStore;
use common::{attr, content, reserved, root_grant, welcome};
use meta::{Body, Change, Child, Content, Cookie, CookieKey, Dirent, FileKind, Inode};
use obs::Metrics;
use types::{Ino, LockMode, Micros, Name, ResourceId, Timespec};
use vfs::{Clock, Config, Core, Invalidation, Keep, OpenMode, Output, Reply, Request, RequestId};
use wire::{FromMaster, GrantData, OpenReport, ToMaster, Want};

const CLOCK: Clock = Clock { now: Micros(1_000_000), wall: Timespec { secs: 0, nanos: 0 } };
const OLD: Ino = Ino(50);
const NEW: Ino = Ino(51);

fn cookie() -> Cookie {
    Cookie::range_of(CookieKey([9; 16]).hash(b"f")).0
}

/// The name `f` with a file of its directory's.
fn entry(ino: Ino, data: &[u8]) -> Dirent {
    let body = Body::Inline { data: data.into() };
    let content = Content { body, ..content(data.len() as u64) };
    let inode = Box::new(Inode { attr: attr(FileKind::File), content });
    Dirent { name: Name::new(b"f").unwrap(), ino, child: Child::Covered { inode: inode.into() } }
}

/// Goal: a change that has to wait until this node's kernel has dropped pages does not wait for a read of such pages, which
/// would wait for the change. Method: another node puts a file in the place of one that is being read here, or removes it.
#[test]
fn a_file_is_read_on_while_another_node_takes_its_name() {
    let parent = Ino::ROOT;
    let put = Change::PutEntry { parent, cookie: cookie(), entry: entry(NEW, b"new") };
    let name = Name::new(b"f").unwrap();
    let delete_entry = Change::DeleteEntry { parent, cookie: cookie(), name };
    let delete = Change::DeleteInode { ino: OLD, parent, kind: FileKind::File };
    for changes in [vec![put, delete.clone()], vec![delete_entry, delete]] {
        let mut core = reading();
        core.handle_message(CLOCK, FromMaster::Forget { seq: 7, changes, removed: vec![OLD] });
        let (job, list) = taken_back(&mut core).unwrap();
        assert!(list.contains(&Invalidation::Pages { ino: OLD }), "{list:?}");
        // The kernel drops no page that this is to fill.
        let read = Request::Read { ino: OLD, offset: 0, len: 4096, noatime: true, direct: false };
        let Some(Reply::Data(data)) = core.submit(CLOCK, RequestId(9), read) else { panic!("it waits") };
        assert_eq!(data, b"old bytes");
        // Pages that were filled meanwhile go in another round.
        let mut clock = CLOCK;
        core.invalidated(clock, job);
        let mut is_acknowledged = false;
        for _ in 0..100 {
            clock.now = clock.now + Micros(10_000);
            core.handle_timeout(clock);
            while let Some(output) = core.poll_output() {
                match output {
                    Output::Invalidate { job, .. } => core.invalidated(clock, job),
                    Output::Send(ToMaster::Forgotten { seq: 7, open }) => {
                        assert_eq!(open, [OLD]);
                        is_acknowledged = true;
                    }
                    _ => {}
                }
            }
        }
        assert!(is_acknowledged);
    }
}

/// Goal: a read goes on for as long as a change waits for its pages, though the right to read is given back meanwhile. Method: the directory is revoked, and a
/// change of the file in it told just after; the pages of the first are gone before those of the second.
#[test]
fn a_right_goes_back_when_no_change_waits_for_its_pages_any_more() {
    let mut core = reading();
    let root = ResourceId::dir(Ino::ROOT);
    core.handle_message(CLOCK, FromMaster::Revoke { list: vec![(root, LockMode::Nl)], speculative: false });
    // What was used a moment ago is kept for a moment.
    let mut clock = CLOCK;
    let release = std::iter::from_fn(|| {
        clock.now = clock.now + Micros(10_000);
        core.handle_timeout(clock);
        Some(taken_back(&mut core))
    });
    let (release, _) = release.take(100).flatten().next().unwrap();
    let put = Change::PutEntry { parent: Ino::ROOT, cookie: cookie(), entry: entry(OLD, b"new bytes") };
    core.handle_message(clock, FromMaster::Forget { seq: 7, changes: vec![put], removed: Vec::new() });
    let (forget, list) = taken_back(&mut core).unwrap();
    assert!(list.contains(&Invalidation::Pages { ino: OLD }), "{list:?}");
    core.invalidated(clock, release);
    let is_given_back = |core: &mut Core| {
        std::iter::from_fn(|| core.poll_output()).any(|o| matches!(o, Output::Send(ToMaster::Release { .. })))
    };
    assert!(!is_given_back(&mut core), "a read would have to wait for a right, and the change for its pages");
    let read = Request::Read { ino: OLD, offset: 0, len: 4096, noatime: true, direct: false };
    assert!(matches!(core.submit(clock, RequestId(9), read), Some(Reply::Data(_))));
    core.invalidated(clock, forget);
    let mut order = Vec::new();
    for _ in 0..100 {
        clock.now = clock.now + Micros(10_000);
        core.handle_timeout(clock);
        while let Some(output) = core.poll_output() {
            match output {
                Output::Invalidate { job, .. } => core.invalidated(clock, job),
                Output::Send(ToMaster::Forgotten { seq: 7, .. }) => order.push("acknowledged"),
                Output::Send(ToMaster::Release { .. }) => order.push("given back"),
                _ => {}
            }
        }
    }
    assert_eq!(order, ["acknowledged", "given back"]);
}

/// Goal: attributes that the kernel is told while pages are taken back do not outlive the next change. Method: between a change and its
/// acknowledgement the file is looked at; then it changes once more.
#[test]
fn what_is_told_while_pages_are_taken_back_is_taken_back_by_the_next_change() {
    let change = |seq: u64, data: &[u8]| {
        let put = Change::PutEntry { parent: Ino::ROOT, cookie: cookie(), entry: entry(OLD, data) };
        FromMaster::Forget { seq, changes: vec![put], removed: Vec::new() }
    };
    for is_looked_at in [false, true] {
        let mut core = reading();
        core.handle_message(CLOCK, change(7, b"new bytes"));
        let (job, _) = taken_back(&mut core).unwrap();
        if is_looked_at {
            let stat = core.submit(CLOCK, RequestId(9), Request::Stat { ino: OLD });
            assert!(matches!(stat, Some(Reply::Attr(_, Keep::Yes))), "{stat:?}");
        }
        core.invalidated(CLOCK, job);
        core.handle_message(CLOCK, change(8, b"newer bytes"));
        let taken =
            taken_back(&mut core).is_some_and(|(_, list)| list.contains(&Invalidation::Attr { ino: OLD }));
        assert_eq!(taken, is_looked_at);
    }
}

/// Goal: a read of pages that two changes take back is served until both have. Method: a file is changed, then split out, and the first
/// of these is done before the second.
#[test]
fn a_file_is_read_on_while_a_second_change_takes_its_pages_back() {
    let parent = Ino::ROOT;
    let put = Change::PutEntry { parent, cookie: cookie(), entry: entry(OLD, b"new bytes") };
    let mut core = reading();
    let mut forget = |seq: u64, changes: Vec<Change>, removed: Vec<Ino>| {
        core.handle_message(CLOCK, FromMaster::Forget { seq, changes, removed });
        taken_back(&mut core).unwrap().0
    };
    let (first, second) = (forget(7, vec![put], Vec::new()), forget(8, split(), vec![OLD]));
    core.invalidated(CLOCK, first);
    let read = Request::Read { ino: OLD, offset: 0, len: 4096, noatime: true, direct: false };
    assert!(matches!(core.submit(CLOCK, RequestId(9), read), Some(Reply::Data(_))), "it waits");
    let mut acknowledged = Vec::new();
    let mut jobs = vec![second];
    for round in 0..100 {
        let clock = Clock { now: Micros(CLOCK.now.0 + round * 10_000), ..CLOCK };
        jobs.drain(..).for_each(|job| core.invalidated(clock, job));
        core.handle_timeout(clock);
        while let Some(output) = core.poll_output() {
            match output {
                Output::Invalidate { job, .. } => jobs.push(job),
                Output::Send(ToMaster::Forgotten { seq, .. }) => acknowledged.push(seq),
                _ => {}
            }
        }
    }
    assert_eq!(acknowledged, [7, 8]);
}

/// Goal: what was before a change is not read after that counts as told, whatever else takes the same pages back. Method: the directory is
/// asked for, which takes long; meanwhile a file in it is split out and written elsewhere.
#[test]
fn old_content_is_not_read_after_its_change_is_acknowledged() {
    let mut core = reading();
    let root = (types::ResourceId::dir(Ino::ROOT), types::LockMode::Nl);
    core.handle_message(CLOCK, FromMaster::Revoke { list: vec![root], speculative: false });
    core.handle_timeout(Clock { now: Micros(CLOCK.now.0 + 20_000), ..CLOCK });
    let (_, list) = taken_back(&mut core).unwrap();
    assert!(list.contains(&Invalidation::Pages { ino: OLD }), "{list:?}");
    core.handle_message(CLOCK, FromMaster::Forget { seq: 7, changes: split(), removed: vec![OLD] });
    let (job, _) = taken_back(&mut core).unwrap();
    core.invalidated(CLOCK, job);
    let read = Request::Read { ino: OLD, offset: 0, len: 4096, noatime: true, direct: false };
    assert!(core.submit(CLOCK, RequestId(9), read).is_none(), "it is to be asked for");
}

/// Goal: extents that were fetched for old content are not read by when it is another. Method: another node writes a file with pages of
/// extents, which is read here while its pages are taken back, and read again when the directory covers it once more.
#[test]
fn extents_of_old_content_are_fetched_again() {
    let paged = |mtime: i64| {
        let Child::Covered { inode } = entry(OLD, b"").child else { panic!("it is covered") };
        let body = Body::Paged { mapped_bytes: 1 << 20 };
        let mtime = Timespec { secs: mtime, nanos: 0 };
        let content = Content { body, mtime, ..content(64 << 20) };
        Dirent {
            child: Child::Covered { inode: Box::new(Inode { content, attr: inode.attr.clone() }).into() },
            ..entry(OLD, b"")
        }
    };
    let put = |mtime: i64| Change::PutEntry { parent: Ino::ROOT, cookie: cookie(), entry: paged(mtime) };
    let mut core = reading();
    let mut acknowledged = 0;
    let mut settle = |core: &mut Core| {
        let mut fetched: Vec<u64> = Vec::new();
        while let Some(output) = core.poll_output() {
            match output {
                Output::Invalidate { job, .. } => core.invalidated(CLOCK, job),
                Output::Send(ToMaster::Forgotten { .. }) => acknowledged += 1,
                Output::Send(ToMaster::Fetch { request, .. }) => fetched.push(request),
                _ => {}
            }
        }
        fetched
    };
    core.handle_message(CLOCK, FromMaster::Forget { seq: 7, changes: vec![put(1)], removed: Vec::new() });
    settle(&mut core);
    let read = || Request::Read { ino: OLD, offset: 0, len: 4096, noatime: true, direct: false };
    assert!(core.submit(CLOCK, RequestId(8), read()).is_none());
    let before = settle(&mut core);
    assert_eq!(before.len(), 1);
    answer(&mut core, before[0]);
    assert!(settle(&mut core).is_empty());
    // It is written elsewhere: what was fetched goes, and is fetched once more while the kernel drops its pages.
    core.handle_message(CLOCK, FromMaster::Forget { seq: 8, changes: split(), removed: vec![OLD] });
    let (job, _) = taken_back(&mut core).unwrap();
    assert!(core.submit(CLOCK, RequestId(9), read()).is_none());
    let meanwhile = settle(&mut core);
    assert_eq!(meanwhile.len(), 1);
    answer(&mut core, meanwhile[0]);
    core.invalidated(CLOCK, job);
    settle(&mut core);
    let placed = Change::PutPlacement { ino: OLD, parent: Ino::ROOT, cookie: cookie() };
    let changes = vec![put(2), placed, Change::DeleteContent { ino: OLD }];
    core.handle_message(CLOCK, FromMaster::Forget { seq: 9, changes, removed: Vec::new() });
    settle(&mut core);
    assert!(core.submit(CLOCK, RequestId(10), read()).is_none(), "they are those of the old content");
    assert_eq!(settle(&mut core).len(), 1);
    assert_eq!(acknowledged, 3);
}

/// There are no extents, as far as the master says.
fn answer(core: &mut Core, request: u64) {
    let (xattrs, pages) = Default::default();
    core.handle_message(
        CLOCK,
        FromMaster::Fetched { request, xattrs, pages, pages_to: 64, inodes: 0, error: None },
    );
}

/// Goal: nobody begins to write a file while its pages are taken back. A write would have a page locked while it waits for the
/// token, and whoever has that may be waiting for the page. Method: another node changes the file, and it is opened for writing before
/// this kernel has dropped its pages.
#[test]
fn a_file_is_opened_for_writing_when_its_pages_are_gone() {
    let mut core = reading();
    let put = Change::PutEntry { parent: Ino::ROOT, cookie: cookie(), entry: entry(OLD, b"new bytes") };
    core.handle_message(CLOCK, FromMaster::Forget { seq: 7, changes: vec![put], removed: Vec::new() });
    let (job, list) = taken_back(&mut core).unwrap();
    assert!(list.contains(&Invalidation::Pages { ino: OLD }), "{list:?}");
    let open = OpenMode { write: true, ..OpenMode::default() };
    assert!(core.submit(CLOCK, RequestId(9), Request::Open { ino: OLD, open }).is_none());
    let asks = |core: &mut Core| {
        std::iter::from_fn(|| core.poll_output())
            .filter(|output| {
                matches!(output, Output::Send(ToMaster::Acquire { want: Want::Write { ino: OLD }, .. }))
            })
            .count()
    };
    assert_eq!(asks(&mut core), 0);
    core.invalidated(CLOCK, job);
    assert_eq!(asks(&mut core), 1);
}

/// Goal: a file that is open here, and that another node moves to where nothing is known here, is not removed without asking. Method: it
/// is moved; before that counts as told the master hears that it is open.
#[test]
fn what_is_moved_out_of_sight_is_told_to_be_open_first() {
    let (parent, name) = (Ino::ROOT, Name::new(b"f").unwrap());
    let changes = vec![
        Change::DeleteEntry { parent, cookie: cookie(), name },
        Change::PutEntry { parent: Ino(60), cookie: cookie(), entry: entry(OLD, b"old bytes") },
        Change::PutPlacement { ino: OLD, parent: Ino(60), cookie: cookie() },
    ];
    let mut core = reading();
    core.handle_message(CLOCK, FromMaster::Forget { seq: 7, changes, removed: Vec::new() });
    let mut is_told = false;
    loop {
        match core.poll_output().expect("it is acknowledged") {
            Output::Invalidate { job, .. } => core.invalidated(CLOCK, job),
            Output::Send(ToMaster::Release { list, open }) => {
                assert_eq!((list, open), (Vec::new(), vec![OpenReport { ino: OLD }]));
                is_told = true;
            }
            Output::Send(ToMaster::Forgotten { seq: 7, .. }) => break,
            _ => {}
        }
    }
    assert!(is_told);
}

/// Goal: the kernel has no name for longer than its right, though it takes the answer to a second lookup at any time. Method: `f` is looked up
/// again or not, a moment before or long before another node removes it, or asks for its directory.
#[test]
fn what_may_be_looked_up_again_is_dropped() {
    let (parent, name) = (Ino::ROOT, Name::new(b"f").unwrap());
    let unhash = Invalidation::Unhash { parent, name: name.clone() };
    let expire = Invalidation::Name { parent, name: name.clone() };
    for (again, later, is_late) in [(false, 0, false), (true, 0, true), (true, 200_000, false)] {
        let taken = |message: FromMaster| {
            let mut core = reading();
            if again {
                let lookup = Request::Lookup { parent, name: b"f"[..].into() };
                assert!(matches!(core.submit(CLOCK, RequestId(8), lookup), Some(Reply::Entry(_))));
            }
            let clock = Clock { now: Micros(CLOCK.now.0 + later), ..CLOCK };
            core.handle_message(clock, message);
            core.handle_timeout(Clock { now: Micros(clock.now.0 + 20_000), ..clock });
            taken_back(&mut core).unwrap().1
        };
        let changes = vec![
            Change::DeleteEntry { parent, cookie: cookie(), name: name.clone() },
            Change::DeleteInode { ino: OLD, parent, kind: FileKind::File },
        ];
        let list = taken(FromMaster::Forget { seq: 7, changes, removed: vec![OLD] });
        assert_eq!((list.contains(&unhash), list.contains(&expire)), (is_late, !is_late), "{list:?}");
        let root = (types::ResourceId::dir(parent), types::LockMode::Nl);
        let list = taken(FromMaster::Revoke { list: vec![root], speculative: false });
        assert!(list.contains(&expire));
        assert_eq!(list.contains(&Invalidation::Names {}), is_late, "{list:?}");
    }
}

/// Goal: attributes that are on their way to the kernel with the first answer that names a file are not kept where the file gets rights of its own meanwhile: there is
/// no inode yet that could lose them, so the name goes first, for which the call waits. Method: another node writes a file that was just looked up, or was long before.
#[test]
fn the_name_of_a_file_that_is_split_out_goes_before_its_attributes() {
    for (later, is_on_its_way) in [(0, true), (200_000, false)] {
        let mut core = after(1);
        let clock = Clock { now: Micros(CLOCK.now.0 + later), ..CLOCK };
        core.handle_message(clock, FromMaster::Forget { seq: 7, changes: split(), removed: Vec::new() });
        let (_, list) = taken_back(&mut core).unwrap();
        let at = |wanted: Invalidation| list.iter().position(|taken| *taken == wanted);
        let name = at(Invalidation::Name { parent: Ino::ROOT, name: Name::new(b"f").unwrap() });
        let attr = at(Invalidation::Attr { ino: OLD });
        assert!(attr.is_some() && name.is_some() == is_on_its_way && name < attr, "{list:?}");
    }
}

/// Goal: a process that looks for names that are not there does not make a node grow for ever. Method: more of them than are kept.
#[test]
fn no_more_absent_names_are_kept_than_can_be_taken_back() {
    let mut core = reading();
    let mut kept = 0;
    for number in 0..20_000 {
        let lookup = Request::Lookup { parent: Ino::ROOT, name: format!("n{number}").into_bytes().into() };
        match core.submit(CLOCK, RequestId(number + 10), lookup) {
            Some(Reply::NoEntry(Keep::Yes)) => kept += 1,
            Some(Reply::NoEntry(Keep::No)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(kept, 16_384);
    let root = (types::ResourceId::dir(Ino::ROOT), types::LockMode::Nl);
    core.handle_message(CLOCK, FromMaster::Revoke { list: vec![root], speculative: false });
    core.handle_timeout(Clock { now: Micros(CLOCK.now.0 + 20_000), ..CLOCK });
    let names = taken_back(&mut core).unwrap().1;
    assert_eq!(names.iter().filter(|taken| matches!(taken, Invalidation::Name { .. })).count(), 16_384 + 1);
}

/// `f` gets tokens of its own.
fn split() -> Vec<Change> {
    let Child::Covered { inode } = entry(OLD, b"new bytes").child else { panic!("it is covered") };
    let own = Dirent { child: Child::Own { kind: FileKind::File }, ..entry(OLD, b"") };
    vec![
        Change::PutEntry { parent: Ino::ROOT, cookie: cookie(), entry: own },
        Change::PutAttr { ino: OLD, attr: inode.attr.clone() },
        Change::PutContent { ino: OLD, content: inode.content.clone() },
    ]
}

/// A core that has `f` open, which its directory covers, and has read it.
fn reading() -> Core {
    after(3)
}

/// A core that has looked `f` up, opened and read it, or the first so many of these.
fn after(requests: usize) -> Core {
    let store = Arc::new(MemStore::new());
    let mut core = Core::new(Config::default(), [7; 16], store, Arc::new(Metrics::new()));
    core.hello(CLOCK, 1, 1, String::new(), String::new());
    core.handle_message(CLOCK, welcome(1_000_000_000));
    core.handle_message(CLOCK, reserved());
    let all = [
        Request::Lookup { parent: Ino::ROOT, name: b"f"[..].into() },
        Request::Open { ino: OLD, open: OpenMode::default() },
        Request::Read { ino: OLD, offset: 0, len: 4096, noatime: true, direct: false },
    ];
    for (id, request) in all.into_iter().take(requests).enumerate() {
        let mut reply = core.submit(CLOCK, RequestId(id as u64 + 1), request);
        while let Some(output) = core.poll_output() {
            match output {
                Output::Reply(_, told) => reply = Some(told),
                Output::Send(ToMaster::Acquire { request, want, .. }) => {
                    assert!(matches!(want, Want::Directory { .. }), "{want:?}");
                    core.handle_message(CLOCK, root_with_file(request));
                }
                _ => {}
            }
        }
        assert!(matches!(reply, Some(Reply::Entry(_) | Reply::Opened(_) | Reply::Data(_))), "{reply:?}");
    }
    core
}

/// The root, read by several nodes.
fn root_with_file(request: u64) -> FromMaster {
    let mut grant = root_grant();
    grant.mode = types::LockMode::Pr;
    if let GrantData::Directory { listing, .. } = &mut grant.data {
        listing.entries.push((cookie(), entry(OLD, b"old bytes")));
    }
    FromMaster::Acquired { request, error: None, grants: vec![grant], seen: 1, glimpse: None }
}

fn taken_back(core: &mut Core) -> Option<(u64, Vec<Invalidation>)> {
    std::iter::from_fn(|| core.poll_output()).find_map(|output| match output {
        Output::Invalidate { job, list } => Some((job, list)),
        _ => None,
    })
}
