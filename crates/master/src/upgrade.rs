//! What an earlier version of the format did not have, added when its volume is opened.

use kv::{Batch, Engine, EngineError, KeyRange};
use meta::{
    Child, Content, Damage, Dirent, Key, KeyKind, StoredInode, UsageCount, value_decode, value_encode,
};

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
    record.inspect_err(|damage| log::warn!("not counted: {damage}")).ok()
}
