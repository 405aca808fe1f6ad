//! What an earlier version of the format did not have, added when its volume is opened.

use std::collections::BTreeMap;

use chunk::ExtentMap;
use kv::{Batch, Direction, Engine, EngineError, KeyRange, ScanLimit};
use meta::{
    Body, Child, Content, Damage, Dirent, Key, KeyKind, StoredInode, UsageCount, value_decode, value_encode,
};
use types::Ino;

use crate::error::MasterError;

/// Counts what every account uses if nobody has: a volume of format 1, or one loaded from such a dump. Durable when it returns.
///
/// Results of shipped operations go: they tell of sums in a form that is not read any more, and nodes of that version are gone, for
/// they speak another version of the protocol.
///
/// A record that cannot be read is not counted and says so; `fsck --repair` counts anew what can be.
pub(crate) fn count_usage(engine: &dyn Engine) -> Result<(), MasterError> {
    let (start, end) = Key::range_of_kind(KeyKind::Usage);
    let mut is_counted = false;
    kv::scan_all(engine, KeyRange::new(start, end), |_| is_counted = true)?;
    if is_counted {
        return Ok(());
    }
    let mut count = UsageCount::default();
    count_covered(engine, &mut count)?;
    count_uncovered(engine, &mut count)?;
    let mut batch = Batch::new(engine.last_seq().next());
    for (account, usage) in &count.0 {
        let key = Key::Usage(*account).to_vec();
        let value = value_encode(&key, usage);
        batch.puts.push((key, value));
    }
    let (start, end) = Key::range_of_kind(KeyKind::OpResult);
    kv::scan_all(engine, KeyRange::new(start, end), |(key, _)| batch.deletes.push(key))?;
    log::info!("counted what {} users, groups and trees use, for the first time", count.0.len());
    engine.commit(batch)?;
    engine.sync()?;
    Ok(())
}

/// Puts the wide pages of extents of formats 1 to 3 into pages of today's span. Durable when it returns; what an earlier call did
/// before it ended stands, and the rest is found here.
///
/// A page that cannot be read makes pages that cannot be read: whoever reads the file there is told, and so is a check.
pub(crate) fn narrow_pages(engine: &dyn Engine) -> Result<(), MasterError> {
    let (start, end) = Key::range_of_kind(KeyKind::WideExtentPage);
    let mut range = KeyRange::new(start, end);
    let mut narrowed = 0;
    loop {
        let found = engine.scan(&range, WIDE_PAGES, Direction::Forward)?;
        let Some((last, _)) = found.entries.last() else { break };
        range = range.rest_after(last, Direction::Forward);
        let mut batch = Batch::new(engine.last_seq().next());
        for (key, value) in &found.entries {
            let Some(Key::WideExtentPage(ino, page)) = Key::from_slice(key) else { continue };
            match told(value_decode::<ExtentMap>(key, value)) {
                Some(wide) => batch.puts.extend(narrow(ino, &wide)),
                None => batch.puts.extend(unreadable(ino, page, value)),
            }
            batch.deletes.push(key.clone());
            narrowed += 1;
        }
        if !batch.deletes.is_empty() {
            engine.commit(batch)?;
        }
        if !found.more {
            break;
        }
    }
    if narrowed > 0 {
        engine.sync()?;
        log::info!("{narrowed} pages of extents are in the form of this version now");
    }
    Ok(())
}

/// What a damaged wide page leaves: its first bytes in the place of each page, under whose keys their sum is wrong.
fn unreadable(ino: Ino, wide: u64, value: &[u8]) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    const PAGES: u64 = Body::WIDE_PAGE_SPAN / Body::PAGE_SPAN;
    let first = wide.saturating_mul(PAGES);
    (first..first.saturating_add(PAGES))
        .map(move |page| (Key::ExtentPage(ino, page).to_vec(), value[..value.len().min(64)].to_vec()))
}

fn narrow(ino: Ino, wide: &ExtentMap) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pages: BTreeMap<u64, ExtentMap> = BTreeMap::new();
    for extent in wide.iter() {
        let mut start = extent.file_offset();
        while start < extent.end() {
            let page = start / Body::PAGE_SPAN;
            let end = (page + 1) * Body::PAGE_SPAN;
            if let Some(part) = extent.slice(start..end) {
                let _ = pages.entry(page).or_default().insert(part);
            }
            start = end;
        }
    }
    let record = |(page, map): (u64, ExtentMap)| {
        let key = Key::ExtentPage(ino, page).to_vec();
        let value = value_encode(&key, &map);
        (key, value)
    };
    pages.into_iter().map(record).collect()
}

fn count_covered(engine: &dyn Engine, count: &mut UsageCount) -> Result<(), EngineError> {
    let (start, end) = Key::range_of_kind(KeyKind::Entry);
    kv::scan_all(engine, KeyRange::new(start, end), |(key, value)| {
        if let Some(Dirent { child: Child::Covered { inode }, .. }) = told(value_decode(&key, &value)) {
            count.add(inode.attr.charge(), inode.content.body.stored_bytes());
        }
    })
}

fn count_uncovered(engine: &dyn Engine, count: &mut UsageCount) -> Result<(), EngineError> {
    let (start, end) = Key::range_of_kind(KeyKind::Inode);
    let mut failed = Ok(());
    kv::scan_all(engine, KeyRange::new(start, end), |(key, value)| match told(value_decode(&key, &value)) {
        Some(StoredInode::Directory { inode }) => {
            count.add(inode.attr.charge(), inode.content.body.stored_bytes());
        }
        Some(StoredInode::Own { attr }) => {
            let Some(Key::Inode(ino)) = Key::from_slice(&key) else { return };
            let key = Key::Content(ino).to_vec();
            match engine.get(&key) {
                Ok(value) => {
                    let content = value.and_then(|value| told(value_decode::<Content>(&key, &value)));
                    count.add(attr.charge(), content.map_or(0, |content| content.body.stored_bytes()));
                }
                Err(error) => failed = Err(error),
            }
        }
        Some(StoredInode::Covered { .. }) | None => {}
    })?;
    failed
}

fn told<T>(record: Result<T, Damage>) -> Option<T> {
    record.inspect_err(|damage| log::warn!("not taken over from an earlier version: {damage}")).ok()
}

/// Wide pages that one batch takes over.
const WIDE_PAGES: ScanLimit = ScanLimit { entries: 4096, bytes: 1 << 20 };
