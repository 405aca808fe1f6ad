//! The rules: what was read, compared with itself.

use std::collections::{BTreeMap, BTreeSet};

use meta::{Dirent, FileKind, Key, Totals, UsageCount, value_decode};
use types::{Ino, SegmentId};

use crate::facts::{Attr, Facts, Form, Node, Options, Record};
use crate::report::{FaultKind, Report};
use crate::source::Source;

/// Judges the facts, and names the paths of what is found.
pub(crate) fn judge(source: &dyn Source, mut facts: Facts, options: &Options<'_>) -> Report {
    let mut report = std::mem::take(&mut facts.report);
    for (ino, node) in &facts.nodes {
        judge_keys(&facts, *ino, node, &mut report);
        judge_names(*ino, node, &mut report);
    }
    judge_parents(&facts, &mut report);
    judge_orphans(&facts, &mut report);
    judge_sums(&facts, &mut report);
    judge_segments(&facts, options, &mut report);
    judge_members(&facts, &mut report);
    for fault in &mut report.faults {
        fault.path = fault.ino.and_then(|ino| path_of(source, &facts, ino));
    }
    report
}

/// Each key of an inode is there exactly if its record says so.
fn judge_keys(facts: &Facts, ino: Ino, node: &Node, report: &mut Report) {
    let key = Key::Inode(ino);
    let Some(record) = node.record else {
        return judge_missing(facts, ino, node, report);
    };
    match (record, node.covering) {
        (Record::Covered(dir, cookie), Some(place)) if place != (dir, cookie) => {
            let what = format!("its record should be in {:?}", Key::Entry(dir, cookie));
            report.add(FaultKind::WrongPlace, key, Some(ino), what);
        }
        (Record::Covered(dir, cookie), Some(_)) if node.names > 1 => {
            let what =
                format!("its record is in {:?}, and {} entries name it", Key::Entry(dir, cookie), node.names);
            report.add(FaultKind::WrongPlace, key, Some(ino), what);
        }
        (Record::Covered(dir, cookie), None) => {
            let what =
                format!("its record should be in {:?}, which does not have it", Key::Entry(dir, cookie));
            report.add(FaultKind::NoEntry, key, Some(ino), what);
        }
        (Record::Directory | Record::Own, Some((dir, cookie))) => {
            let what = format!("its record is here and in {:?}", Key::Entry(dir, cookie));
            report.add(FaultKind::WrongPlace, key, Some(ino), what);
        }
        (Record::Covered(..), Some(_)) | (Record::Directory | Record::Own, None) => {}
    }
    let needs_content = record == Record::Own;
    if needs_content && !node.has_content_key {
        report.add(FaultKind::NoContent, key, Some(ino), "its content is missing".to_owned());
    }
    if !needs_content && node.has_content_key {
        let what = "its content is elsewhere".to_owned();
        report.add(FaultKind::Stray, Key::Content(ino), Some(ino), what);
    }
    if node.has_entries && record != Record::Directory {
        let what = "there are entries in it, and it is no directory".to_owned();
        report.add(FaultKind::NoDirectory, key, Some(ino), what);
    }
    judge_pages(ino, node, report);
    if let Some(attr) = node.attr {
        judge_attributes(ino, node, attr, report);
    }
}

/// What speaks of an inode that is not there.
fn judge_missing(facts: &Facts, ino: Ino, node: &Node, report: &mut Report) {
    if facts.damaged_inodes.contains(&ino) {
        return;
    }
    if let Some((dir, cookie)) = node.name {
        let what = format!("ino {ino}, which it names, is missing");
        report.add(FaultKind::NoInode, Key::Entry(dir, cookie), Some(ino), what);
    }
    if node.has_entries {
        let what = "it has entries and no record".to_owned();
        report.add(FaultKind::NoDirectory, Key::Inode(ino), Some(ino), what);
    }
    let is_orphan = facts.orphans.contains_key(&ino);
    let strays = [
        (node.has_content_key, Key::Content(ino)),
        (node.has_xattrs_key, Key::Xattrs(ino)),
        (node.pages > 0, Key::ExtentPage(ino, 0)),
        (is_orphan, Key::Orphan(ino)),
    ];
    for (_, key) in strays.into_iter().filter(|(is_there, _)| *is_there) {
        report.add(FaultKind::Stray, key, Some(ino), "its inode is missing".to_owned());
    }
}

fn judge_pages(ino: Ino, node: &Node, report: &mut Report) {
    let key = Key::ExtentPage(ino, 0);
    match node.body {
        Some(body) if body.is_paged && body.bytes != node.pages_bytes => {
            let what = format!("pages map {} bytes of {}", node.pages_bytes, body.bytes);
            report.add(FaultKind::WrongPages, key, Some(ino), what);
        }
        Some(body) if !body.is_paged && node.pages > 0 => {
            let what = format!("{} pages of extents of an inode that has none", node.pages);
            report.add(FaultKind::Stray, key, Some(ino), what);
        }
        Some(_) | None => {}
    }
}

fn judge_attributes(ino: Ino, node: &Node, attr: Attr, report: &mut Report) {
    let key = Key::Inode(ino);
    if attr.is_spilled && !node.has_xattrs_key {
        let what = "its extended attributes are missing".to_owned();
        report.add(FaultKind::NoXattrs, key, Some(ino), what);
    }
    if !attr.is_spilled && node.has_xattrs_key {
        let what = "its extended attributes are elsewhere".to_owned();
        report.add(FaultKind::Stray, Key::Xattrs(ino), Some(ino), what);
    }
    let fits = |form| match attr.kind {
        FileKind::File => form != Form::Target,
        FileKind::Symlink => form == Form::Target,
        FileKind::Directory | FileKind::Fifo | FileKind::Socket => form == Form::Empty,
        FileKind::CharDevice | FileKind::BlockDevice => form == Form::Empty,
    };
    if let Some(body) = node.body.filter(|body| !fits(body.form)) {
        let what = format!("its content is that of something else than a {:?}: {:?}", attr.kind, body.form);
        report.add(FaultKind::BadRecord, key, Some(ino), what);
    }
    if node.entry_kind.is_some_and(|kind| kind != attr.kind) {
        let what = format!("it is a {:?}, its name says {:?}", attr.kind, node.entry_kind);
        report.add(FaultKind::WrongKind, key, Some(ino), what);
    }
}

/// Links are counted by names.
fn judge_names(ino: Ino, node: &Node, report: &mut Report) {
    let Some(attr) = node.attr else { return };
    let key = Key::Inode(ino);
    if let Some(expected) = links_of(ino, node, attr)
        && expected != attr.nlink
    {
        let what = format!("{} links are counted, there are {expected}", attr.nlink);
        report.add(FaultKind::WrongLinks, key, Some(ino), what);
    }
    if attr.kind == FileKind::Directory && node.names > 1 {
        let what = format!("a directory has {} names", node.names);
        report.add(FaultKind::WrongLinks, key, Some(ino), what);
    }
    let Some((dir, _)) = node.name else { return };
    let is_known = attr.kind == FileKind::Directory || attr.nlink == 1 && attr.parent.0 != 0;
    let must_be_known = node.covering.is_some();
    if (is_known || must_be_known) && node.names == 1 && attr.parent != dir {
        let what = format!("its parent is {}, it is named in {dir}", attr.parent);
        report.add(FaultKind::WrongParent, key, Some(ino), what);
    }
}

/// How many links an inode has by its names.
pub(crate) fn links_of(ino: Ino, node: &Node, attr: Attr) -> Option<u32> {
    match (attr.kind, node.names) {
        (FileKind::Directory, 0) if ino != Ino::ROOT => Some(0),
        (FileKind::Directory, _) => Some(2 + node.subdirectories),
        (_, names) => Some(names),
    }
}

/// Every directory with a name is below the root, and one without is empty.
fn judge_parents(facts: &Facts, report: &mut Report) {
    if !matches!(facts.nodes.get(&Ino::ROOT).and_then(|n| n.record), Some(Record::Directory)) {
        let what = "there is no root directory".to_owned();
        report.add(FaultKind::NoRoot, Key::Inode(Ino::ROOT), Some(Ino::ROOT), what);
    }
    let mut reached = BTreeSet::from([Ino::ROOT]);
    for (ino, node) in facts.nodes.iter().filter(|(_, node)| node.record == Some(Record::Directory)) {
        if node.name.is_none() {
            if node.has_entries && *ino != Ino::ROOT {
                let what = "there are entries in it, and it has no name".to_owned();
                report.add(FaultKind::Unreachable, Key::Inode(*ino), Some(*ino), what);
            }
            continue;
        }
        let (mut at, mut way) = (*ino, Vec::new());
        let mut on_way = BTreeSet::new();
        let is_reached = loop {
            if reached.contains(&at) {
                break true;
            }
            if !on_way.insert(at) {
                break false;
            }
            way.push(at);
            match facts.nodes.get(&at).and_then(|node| node.name) {
                Some((dir, _)) => at = dir,
                // A directory without a name that is still open takes no new ones: it has no children.
                None => break false,
            }
        };
        if is_reached {
            reached.extend(way);
        } else {
            let what = "no path leads to it from the root".to_owned();
            report.add(FaultKind::Unreachable, Key::Inode(*ino), Some(*ino), what);
        }
    }
}

fn judge_orphans(facts: &Facts, report: &mut Report) {
    for (ino, node) in &facts.nodes {
        let Some(attr) = node.attr.filter(|_| node.record.is_some()) else { continue };
        let holders = facts.orphans.get(ino);
        match (attr.nlink, holders) {
            // Its links are wrong, which was said.
            (0, Some(_)) if node.names > 0 => {}
            (0, None) => {
                let what = "it has no links and is not recorded as open".to_owned();
                report.add(FaultKind::NoOrphan, Key::Inode(*ino), Some(*ino), what);
            }
            (0, Some(holders)) => {
                let what = format!("it has no name, and nodes {holders:?} that had it open are gone");
                report.add(FaultKind::DeadOrphan, Key::Orphan(*ino), Some(*ino), what);
            }
            (_, Some(_)) => {
                let what = format!("it is recorded as open without a name, and has {} links", attr.nlink);
                report.add(FaultKind::Stray, Key::Orphan(*ino), Some(*ino), what);
            }
            (_, None) => {}
        }
    }
}

/// The sums that should be recorded.
pub(crate) fn totals_of(facts: &Facts) -> Totals {
    let inodes = facts.nodes.values().filter(|node| node.record.is_some());
    // One may say anything, of pages that are not there.
    let bodies = inodes.clone().filter_map(|node| node.body);
    let bytes = bodies.fold(0u64, |sum, body| sum.saturating_add(body.bytes));
    Totals { bytes, inodes: inodes.count() as u64 }
}

/// What every account uses, as inodes say.
pub(crate) fn usage_of(facts: &Facts) -> UsageCount {
    let mut usage = UsageCount::default();
    for node in facts.nodes.values().filter(|node| node.record.is_some()) {
        if let Some(attr) = node.attr {
            usage.add(attr.charge, node.body.map_or(0, |body| body.bytes));
        }
    }
    usage
}

fn judge_usage(facts: &Facts, report: &mut Report) {
    // A volume that an earlier version wrote has no such records: the next mount counts it.
    if !facts.has_usage {
        return;
    }
    for (account, counted, found) in usage_of(facts).differences(&facts.usage) {
        let what = format!(
            "{account} is said to use {} bytes and {} inodes, and uses {} and {}",
            counted.bytes, counted.inodes, found.bytes, found.inodes
        );
        report.add(FaultKind::WrongUsage, Key::Usage(account), None, what);
    }
}

fn judge_sums(facts: &Facts, report: &mut Report) {
    judge_usage(facts, report);
    let expected = totals_of(facts);
    report.counts.stored_bytes = expected.bytes;
    if let Some(totals) = facts.totals.filter(|totals| *totals != expected) {
        let what = format!(
            "{} inodes with {} bytes are counted, there are {} with {}",
            totals.inodes, totals.bytes, expected.inodes, expected.bytes
        );
        report.add(FaultKind::WrongTotals, Key::Totals, None, what);
    }
    for (segment, live) in live_bytes(facts) {
        let counted = facts.segments.get(&segment).map_or(0, |record| record.live_bytes);
        if counted != live {
            let what = format!("{counted} live bytes are counted, extents name {live}");
            report.add(FaultKind::WrongLiveBytes, Key::Segment(segment), None, what);
        }
    }
}

/// Live bytes of every segment that has a record or is named.
pub(crate) fn live_bytes(facts: &Facts) -> BTreeMap<SegmentId, u64> {
    let mut live: BTreeMap<SegmentId, u64> = facts.segments.keys().map(|segment| (*segment, 0)).collect();
    live.extend(&facts.live);
    live
}

/// Segments that no extent names.
pub(crate) fn unused_segments(facts: &Facts) -> BTreeSet<SegmentId> {
    let known = facts.stored.iter().chain(facts.segments.keys().copied());
    known.filter(|segment| !facts.live.contains_key(segment)).collect()
}

fn judge_segments(facts: &Facts, options: &Options<'_>, report: &mut Report) {
    if options.store.is_none() {
        return;
    }
    for segment in unused_segments(facts) {
        let what = match facts.stored.len_of(segment) {
            Some(len) => format!("{len} bytes that no extent names"),
            None => "its file is gone already".to_owned(),
        };
        report.add(FaultKind::UnusedSegment, Key::Segment(segment), None, what);
    }
}

fn judge_members(facts: &Facts, report: &mut Report) {
    for (node, record) in &facts.members {
        let what = format!("{} has not left in order", record.label);
        report.add(FaultKind::DeadMember, Key::Member(*node), None, what);
    }
}

/// The first path that leads to an inode, as far up as there are names.
fn path_of(source: &dyn Source, facts: &Facts, ino: Ino) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    let mut at = ino;
    while at != Ino::ROOT && names.len() < DEPTH_MAX {
        let Some((dir, cookie)) = facts.nodes.get(&at).and_then(|node| node.name) else { break };
        let key = Key::Entry(dir, cookie).to_vec();
        let entry: Dirent = value_decode(&key, &source.get(&key).ok()??).ok()?;
        names.push(String::from_utf8_lossy(entry.name.as_bytes()).into_owned());
        at = dir;
    }
    if names.is_empty() && at != Ino::ROOT {
        return None;
    }
    names.reverse();
    let start = if at == Ino::ROOT { String::new() } else { format!("<ino {at}>") };
    Some(format!("{start}/{}", names.join("/")))
}

/// Names of a path that is shown; deeper ones begin with the inode they begin at.
pub(crate) const DEPTH_MAX: usize = 4096;
