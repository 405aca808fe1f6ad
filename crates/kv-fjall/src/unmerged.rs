//! Metadata with a table that no compaction can read.
//!
//! A read that meets the damage is refused, and all others are answered. A compaction that meets it ends fjall, though, after
//! which nothing is answered; and so would the next, soon after each opening. So the table is noted in a file, and as long as it is there and damaged the
//! engine is opened without fjall's threads: memtables are flushed by who writes, nothing is merged, and after
//! some flushes, when there are [`RUNS_MAX`] runs, no more is written. That leaves time to copy what can be read.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use kv::{EngineError, Result};

use crate::manifest;

/// What is known of a table of the volume in `dir` that is damaged, so that nothing is merged; `None` as usual.
///
/// Looks at what openings have noted and reads no table.
pub fn known_damage(dir: &Path) -> Option<String> {
    fs::read_to_string(dir.join(FILE)).ok().map(|text| text.trim().to_owned())
}

/// Notes a table that was found damaged. Returns whether `damage` is of one, and is noted.
pub(crate) fn note(dir: &Path, damage: &EngineError) -> bool {
    let EngineError::Corrupt { path, .. } = damage else { return false };
    let is_table = path.parent().is_some_and(|parent| parent.ends_with("tables"));
    let Some(table) = path.strip_prefix(dir).ok().and_then(Path::to_str).filter(|_| is_table) else {
        return false;
    };
    let path = dir.join(FILE);
    let written = File::create(&path).and_then(|mut file| {
        writeln!(file, "{table}")?;
        file.sync_all()
    });
    written
        .and_then(|()| File::open(dir)?.sync_all())
        .inspect_err(|error| log::error!("could not leave {}: {error}", path.display()))
        .is_ok()
}

/// The table that was noted, if it is damaged still. Where it is not (it was restored, or the metadata were loaded anew) nothing is noted any more.
pub(crate) fn table(dir: &Path, engine_dir: &Path) -> Result<Option<PathBuf>> {
    let path = dir.join(FILE);
    let noted = match fs::read_to_string(&path) {
        Ok(noted) => noted,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(EngineError::Io { what: "reading", path, source }),
    };
    let table = dir.join(noted.trim());
    if manifest::is_damaged(engine_dir, &table)? {
        return Ok(Some(table));
    }
    fs::remove_file(&path).map_err(|source| EngineError::write("removing", &path, source))?;
    Ok(None)
}

/// In a volume's directory: the path of the table from there.
const FILE: &str = "unmerged";
/// Runs beside each other from which on no more is written. At 30 fjall waits for ever, and there may be 20 when the damage is met.
pub(crate) const RUNS_MAX: usize = 28;
