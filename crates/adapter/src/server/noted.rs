//! What is noted before an answer is given: what the kernel has from then on, who was told what, and what comes before the answer.

use meta::FileKind;
use obs::FuseKind;
use types::{Ino, Micros};
use vfs::{Asker, Clock, Core, Keep, Outdated, Over, Reply};

use crate::call::Call;
use crate::invalidate::Before;
use crate::looks::Looks;
use crate::reply::{Answer, Shape, WriteShape};
use crate::server::Driver;

/// Before anything else is asked of the core: what the kernel may have as soon as it is answered, and what has to be done
/// about that first.
pub(super) fn note_answer<D: Driver>(
    core: &mut Core,
    clock: Clock,
    driver: &D,
    call: &mut Call,
    reply: &Reply,
) {
    let catch_up = driver.catch_up();
    note_told(&driver.pending().looks, clock.now, call, reply);
    note_named(driver, clock.now, call, reply);
    note_found(driver, core, clock.now, call, reply);
    let is_short = |len: usize, wanted: u32| len < wanted as usize;
    match (call.shape, reply) {
        // Nothing may come before this answer.
        (Shape::Truncate, Reply::Attr(attr, _)) => {
            if let Some(catch_up) = catch_up {
                catch_up.cuts(attr.ino, call.pid());
            }
            core.attributes_set(reply);
        }
        (Shape::Write(shape), Reply::Written { .. }) => note_written(core, shape, call.pid(), reply),
        (Shape::Copy { ino, offset }, Reply::Copied { len, .. }) => {
            core.end_moved(ino, offset.saturating_add(*len));
        }
        (Shape::Read { ino, len: wanted }, Reply::Data(data)) if is_short(data.len(), wanted) => {
            note_earlier_end(core, call, ino);
        }
        (Shape::Read { ino, len: wanted }, Reply::ReadJob(job)) if is_short(job.len, wanted) => {
            note_earlier_end(core, call, ino);
        }
        // From an answer to SETATTR the kernel takes everything.
        _ if call.kind() == FuseKind::Setattr => {
            core.attributes_set(reply);
            let raise = core.later_end(reply, Asker::Holder);
            if raise.is_some() {
                call.before_mut().raise = raise;
            }
        }
        _ => {
            let asker = match call.kind() {
                FuseKind::Link => Asker::Holder,
                _ if call.is_by_handle => Asker::Thread(call.pid()),
                FuseKind::Getattr => Asker::Judged,
                _ => Asker::Other,
            };
            let outdated = core.outdated(reply).map(|of| Outdated { asker, ..of });
            // What is to be brought up to date may be waiting for this.
            let may_wait = |_: &Outdated| !catch_up.is_some_and(|looks| looks.is_looking(call.pid()));
            let before = Before {
                drop: core.seat_before(reply),
                catch_up: outdated.filter(may_wait),
                raise: core.later_end(reply, Asker::Thread(call.pid())),
                shield: None,
                listing: listing_before(core, driver, call, reply),
            };
            call.set_before(before);
        }
    }
}

/// Nobody is left what somebody else was told of a directory before a change.
fn listing_before<D: Driver>(core: &Core, driver: &D, call: &Call, reply: &Reply) -> Option<Ino> {
    let (Shape::List { dir, goes_on }, Reply::Dir(_)) = (call.shape, reply) else { return None };
    let (listings, thread, of) = (&driver.pending().listings, call.pid(), core.last_change_of(dir));
    let is_to_go = match goes_on {
        false => listings.begin(thread, dir, of),
        true => listings.is_of_before(thread, dir, of),
    };
    is_to_go.then_some(dir)
}

/// What an answer tells others of may be changed before they take it in, and what it changes they may have been told of before.
fn note_told(looks: &Looks, now: Micros, call: &mut Call, reply: &Reply) {
    let thread = call.pid();
    match (call.kind(), reply) {
        (FuseKind::Getattr | FuseKind::Statx, Reply::Attr(attr, Keep::Yes)) => {
            looks.note(attr.ino, thread, now)
        }
        (FuseKind::Lookup, Reply::Entry(entry)) if entry.keep_attr == Keep::Yes => {
            looks.note(entry.attr.ino, thread, now);
        }
        (FuseKind::Readdirplus, Reply::Dir(_)) => looks.note_many(thread, now),
        // Also with an error: it may be of what came after the change.
        _ if call.changes[0].is_some() => {
            for change in &mut call.changes {
                *change = change.filter(|ino| looks.are_under_way(*ino, thread, now));
            }
            call.changed_at = now;
        }
        _ => {}
    }
}

/// Who is given a name takes it in before he asks for anything else.
fn note_named<D: Driver>(driver: &D, now: Micros, call: &Call, reply: &Reply) {
    let (pending, thread) = (driver.pending(), call.pid());
    match reply {
        Reply::Entry(entry) | Reply::Created(entry, _) => {
            pending.names.note(entry.attr.ino, thread, now);
            if entry.keep_name == Keep::No && thread != 0 {
                pending.named.note(thread, entry.attr.ino);
            }
        }
        Reply::Dir(_) => pending.names.note_many(thread, now),
        _ => {}
    }
}

/// Whoever is told that he has changed names takes that in before he asks for anything else. Whether this is such an answer.
pub(super) fn note_changed<D: Driver>(driver: &D, call: &Call, answer: &Answer) -> bool {
    let changes_names = match call.kind() {
        FuseKind::Mknod
        | FuseKind::Mkdir
        | FuseKind::Symlink
        | FuseKind::Create
        | FuseKind::Link
        | FuseKind::Unlink
        | FuseKind::Rmdir
        | FuseKind::Rename => true,
        _ => false,
    };
    let is_it = changes_names && !matches!(answer, Answer::Error(_));
    is_it.then(|| driver.pending().changes.note(call.pid(), call.id()));
    is_it
}

/// A thread asks for something: it has taken in what it was answered last, a name that it was given, or that some have changed.
///
/// Not where the request may come before that, on its behalf: pages that it reads ahead are read while it goes on, and modules for security look at a label
/// just before a new name is there.
pub(super) fn take_in<D: Driver>(driver: &D, call: &Call) {
    if matches!(call.kind(), FuseKind::Read | FuseKind::Getxattr) {
        return;
    }
    let (pending, thread) = (driver.pending(), call.pid());
    pending.listings.take_in(thread);
    let (change, removal) = (pending.changes.take(thread), pending.removals.take(thread, |_| true));
    if change.is_some() || removal.is_some() {
        let over = driver.with_core(|core, _| {
            removal.into_iter().for_each(|removal| core.removal_taken_in(removal));
            change.into_iter().for_each(|id| core.taken_in(id));
            core.take_over()
        });
        end_waiting(driver, over);
    }
    let Some(ino) = pending.named.take(thread, |_| true) else { return };
    let taken = driver.with_core(|core, clock| {
        match pending.names.were_told_within(vfs::ON_ITS_WAY, ino, thread, clock.now) {
            true => None,
            false => core.name_taken_in(ino),
        }
    });
    if let Some((parent, name)) = taken {
        driver.invalidator().settle(parent, &name);
    }
}

/// What is over is not waited for.
pub(super) fn end_waiting<D: Driver>(driver: &D, over: Vec<Over>) {
    over.into_iter().for_each(|over| driver.invalidator().end(over));
}

/// A rename that finds one file under both names does nothing, and says that it has.
fn note_found<D: Driver>(driver: &D, core: &Core, now: Micros, call: &mut Call, reply: &Reply) {
    let (found, thread) = (&driver.pending().found, call.pid());
    let asked = |call: &Call| Micros(now.0.saturating_sub(call.arrived().elapsed().as_micros() as u64));
    match (call.kind(), reply) {
        (FuseKind::Rename, _) => found.renamed(thread),
        (FuseKind::Lookup, Reply::NoEntry(_)) => {
            if let Some(name) = call.making {
                found.note_nothing(thread, name, (asked(call), now));
            }
        }
        (FuseKind::Lookup, Reply::Entry(entry)) if entry.attr.kind != FileKind::Directory => {
            let Some(name) = call.making else { return };
            let have_run_out = |within: Micros| driver.invalidator().has_raised_within(within);
            let may_have = || core.may_have_old_name(entry.attr.ino, have_run_out);
            let is_twice = found.note(thread, entry.attr.ino, name, (asked(call), now), may_have);
            // Of one with several names it is nothing special.
            call.may_be_twice = is_twice && entry.attr.nlink == 1;
        }
        _ => {}
    }
}

/// An answer that has been there for a while: what it tells may have been changed before anybody could know of it, and is good for once then.
pub(super) fn doubt(core: &mut Core, reply: &mut Reply) {
    match reply {
        Reply::Attr(attr, keep) if *keep == Keep::Yes && !core.is_as_told(attr) => *keep = Keep::No,
        Reply::Entry(entry) if entry.keep_attr == Keep::Yes && !core.is_as_told(&entry.attr) => {
            entry.keep_attr = Keep::No;
        }
        _ => {}
    }
}

/// A read that met an end is answered when the kernel has that one too.
fn note_earlier_end(core: &mut Core, call: &mut Call, ino: Ino) {
    let earlier = core.earlier_end_met(ino);
    if earlier.is_some() {
        call.before_mut().catch_up = earlier;
    }
}

/// Where the kernel has the end of a file once a write is answered.
pub(super) fn note_written(core: &mut Core, shape: WriteShape, thread: u32, reply: &Reply) {
    let WriteShape { ino, offset, sync, end, .. } = shape;
    match (end, reply) {
        (Some(end), Reply::Written { .. }) => core.end_written(ino, end),
        (None, Reply::Written { len, .. }) => {
            let end = offset.saturating_add(u64::from(*len));
            match sync {
                // It may still be refused.
                true => core.end_moved(ino, end),
                false => core.end_moved_by(ino, end, thread),
            }
        }
        _ => {}
    }
}

/// Whether there is anything to [note](note_answer).
pub(super) fn may_need_more(call: &Call, reply: &Reply) -> bool {
    match reply {
        Reply::Attr(..)
        | Reply::Entry(..)
        | Reply::Created(..)
        | Reply::Dir(_)
        | Reply::Written { .. }
        | Reply::Copied { .. } => true,
        Reply::Data(_) | Reply::ReadJob(_) => matches!(call.shape, Shape::Read { .. }),
        _ => call.changes[0].is_some(),
    }
}
