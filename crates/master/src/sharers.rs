//! Files that name segments, wherever they are: the headers in a segment tell only which files its bytes were
//! written for, and copies name them, too.

use std::collections::BTreeSet;

use chunk::ExtentMap;
use kv::{Engine, EngineError, KeyRange, Pace};
use meta::{Body, Content, Dirent, Key, KeyKind};
use types::{Decode, Ino, SegmentId};

/// Files, and offsets in them, of which extents name one of `segments`. Reads all the metadata, and tells `pace` how many bytes
/// that was; what it has found when that says to stop is left.
///
/// Records that cannot be read are passed over: what they name stays where it is.
///
/// # Errors
///
/// Those of the engine.
pub fn files_naming(
    engine: &dyn Engine,
    segments: &BTreeSet<SegmentId>,
    pace: &mut Pace<'_>,
) -> Result<BTreeSet<(Ino, u64)>, EngineError> {
    let mut files = BTreeSet::new();
    let mut goes_on = true;
    for kind in [KeyKind::Entry, KeyKind::Content, KeyKind::ExtentPage] {
        let (start, end) = Key::range_of_kind(kind);
        kv::scan_all(engine, KeyRange::new(start, end), |(key, value)| {
            if !goes_on {
                return;
            }
            let named = |ino: Ino, map: &ExtentMap| -> Vec<(Ino, u64)> {
                let named = map.iter().filter(|extent| segments.contains(&extent.segment()));
                named.map(|extent| (ino, extent.file_offset())).collect()
            };
            match Key::from_slice(&key) {
                Some(Key::Entry(..)) => {
                    if let Some(Dirent { ino, child: meta::Child::Covered { inode }, .. }) =
                        read(&key, &value)
                        && let Body::Extents { map } = &inode.content.body
                    {
                        files.extend(named(ino, map));
                    }
                }
                Some(Key::Content(ino)) => {
                    if let Some(Content { body: Body::Extents { map }, .. }) = read(&key, &value) {
                        files.extend(named(ino, &map));
                    }
                }
                Some(Key::ExtentPage(ino, _)) => {
                    if let Some(map) = read(&key, &value) {
                        files.extend(named(ino, &map));
                    }
                }
                _ => {}
            }
            goes_on = pace((key.len() + value.len()) as u64);
        })?;
    }
    Ok(files)
}

fn read<T: Decode>(key: &[u8], value: &[u8]) -> Option<T> {
    meta::value_decode(key, value).ok()
}
