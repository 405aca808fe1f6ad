//! fjall's manifests and tables, checked from outside.
//!
//! Format of lsm-tree 3.1 (`lsm-tree:src/version/persist.rs`, `recovery.rs`), little-endian, in `keyspaces/<id>/`:
//!
//! | file | bytes |
//! | --- | --- |
//! | `current` | version u64, xxh3 (128 bits) of that version's file, checksum type u8 (0) |
//! | `v<version>` | archive of sections; `tables` is: levels u8, for each runs u8, for each tables u32, for each id u64, checksum type u8 (0), xxh3 (128 bits) of the table's file, sequence u64 |
//! | `tables/<id>` | table |
//!
//! lsm-tree writes these checksums and does not compare them. What it trusts instead it asserts, and a panic while it opens
//! ends the process: the database that is dropped then finds its own locks poisoned and panics again. So nothing
//! that is damaged here may reach it.

use std::{
    fs::{self, File},
    io::{self, Cursor, Read},
    path::{Path, PathBuf},
};

use kv::{EngineError, Pace, Result};
use xxhash_rust::xxh3::Xxh3;

/// A table that a manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    path: PathBuf,
    checksum: u128,
}

/// Checks the manifests, and that their tables are there. Tables themselves are read by [`verify`] alone.
///
/// # Errors
///
/// `Corrupt`, naming the file; `Io`.
pub(crate) fn check(engine_dir: &Path) -> Result<()> {
    for tree in trees(engine_dir) {
        let dir = tree.join("tables");
        let listed = fs::read_dir(&dir).map_err(|source| unreadable(&dir, source))?;
        for entry in listed {
            let entry = entry.map_err(|source| unreadable(&dir, source))?;
            let is_file = entry.file_type().map_err(|source| unreadable(&dir, source))?.is_file();
            let is_table = entry.file_name().to_str().is_some_and(|name| name.parse::<u64>().is_ok());
            if !is_file || !is_table {
                return Err(EngineError::corrupt("no file of a table", entry.path()));
            }
        }
        for table in tables(&tree)? {
            let len = fs::metadata(&table.path).map_err(|source| unreadable(&table.path, source))?.len();
            if len == 0 {
                return Err(EngineError::corrupt("table is empty", table.path));
            }
        }
    }
    Ok(())
}

/// Reads all tables and compares them with their manifests; returns what is damaged. Beside a running engine, too.
///
/// # Errors
///
/// Those of the manifests.
pub(crate) fn verify(engine_dir: &Path, pace: &mut Pace<'_>) -> Result<Vec<EngineError>> {
    let mut found = Vec::new();
    for tree in trees(engine_dir) {
        for table in settled_tables(&tree)? {
            match checksum_of(&table.path, pace) {
                Ok(Some(checksum)) if checksum == table.checksum => {}
                // Compacted meanwhile: those that took its place are not older than this look at all.
                _ if !settled_tables(&tree)?.contains(&table) => {}
                Ok(Some(_)) => found.push(EngineError::corrupt("checksum of the table is wrong", table.path)),
                Ok(None) => return Ok(found),
                Err(source) => found.push(unreadable(&table.path, source)),
            }
        }
    }
    Ok(found)
}

/// Whether the table at `path` is one of the engine's and damaged.
///
/// # Errors
///
/// Those of the manifests.
pub(crate) fn is_damaged(engine_dir: &Path, path: &Path) -> Result<bool> {
    for tree in trees(engine_dir) {
        for table in tables(&tree)?.into_iter().filter(|table| table.path == path) {
            return Ok(
                !matches!(checksum_of(path, &mut |_| true), Ok(Some(checksum)) if checksum == table.checksum),
            );
        }
    }
    Ok(false)
}

/// As [`tables`], of a manifest that may be replaced at any moment.
fn settled_tables(tree: &Path) -> Result<Vec<Table>> {
    let mut tries = 0;
    loop {
        match tables(tree) {
            Err(_) if tries < TRIES => tries += 1,
            result => return result,
        }
    }
}

/// The keyspaces: fjall's catalogue and ours.
fn trees(engine_dir: &Path) -> [PathBuf; 2] {
    ["keyspaces/0", "keyspaces/1"].map(|name| engine_dir.join(name))
}

/// Reads the tables that the manifest of `tree` names.
fn tables(tree: &Path) -> Result<Vec<Table>> {
    let current = tree.join("current");
    let bytes = fs::read(&current).map_err(|source| unreadable(&current, source))?;
    let mut pointer = Fields(&bytes);
    let (version, checksum) = match (pointer.u64(), pointer.u128(), pointer.u8(), pointer.0) {
        (Some(version), Some(checksum), Some(0), []) => (version, checksum),
        _ => return Err(EngineError::corrupt("is no pointer to a manifest", current)),
    };
    let path = tree.join(format!("v{version}"));
    let manifest = fs::read(&path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => {
            let what =
                format!("file is missing, or it is not the one that {} should name", current.display());
            EngineError::corrupt(what, &path)
        }
        _ => unreadable(&path, source),
    })?;
    if xxhash_rust::xxh3::xxh3_128(&manifest) != checksum {
        return Err(EngineError::corrupt(
            "checksum of the manifest is not the one in `current` beside it",
            path,
        ));
    }
    let Some(entries) = entries(&manifest) else {
        return Err(EngineError::corrupt("the manifest cannot be decoded", path));
    };
    let table = |(id, checksum)| Table { path: tree.join("tables").join(format!("{id}")), checksum };
    Ok(entries.into_iter().map(table).collect())
}

/// Ids and checksums of the tables.
fn entries(manifest: &[u8]) -> Option<Vec<(u64, u128)>> {
    let archive = sfa::Reader::from_reader(&mut Cursor::new(manifest)).ok()?;
    let section = archive.toc().section(b"tables")?;
    let (start, len) = (usize::try_from(section.pos()).ok()?, usize::try_from(section.len()).ok()?);
    let mut fields = Fields(manifest.get(start..start.checked_add(len)?)?);
    let mut found = Vec::new();
    for _ in 0..fields.u8()? {
        for _ in 0..fields.u8()? {
            for _ in 0..fields.u32()? {
                let id = fields.u64()?;
                let 0 = fields.u8()? else { return None };
                found.push((id, fields.u128()?));
                fields.u64()?;
            }
        }
    }
    fields.0.is_empty().then_some(found)
}

/// The checksum of a file; `None` if it was not to be read to its end.
fn checksum_of(path: &Path, pace: &mut Pace<'_>) -> io::Result<Option<u128>> {
    let mut file = File::open(path)?;
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; STRIDE];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(Some(hash.digest128()));
        }
        hash.update(&buffer[..count]);
        if !pace(count as u64) {
            return Ok(None);
        }
    }
}

fn unreadable(path: &Path, source: io::Error) -> EngineError {
    match source.kind() {
        io::ErrorKind::NotFound => EngineError::corrupt("file is missing", path),
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
            EngineError::corrupt(format!("cannot be read: {source}"), path)
        }
        _ => EngineError::Io { what: "reading the engine's files", path: path.into(), source },
    }
}

/// Little-endian numbers from the beginning of bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.take().map(u128::from_le_bytes)
    }
}

const STRIDE: usize = 1 << 20;
/// Between two looks at a manifest it can be replaced once, not this often.
const TRIES: u32 = 10;
