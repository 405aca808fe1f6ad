//! The witness: what was durable last, told by someone other than the engine.
//!
//! An engine that lost the end of its journal often opens without a word. The witness is written after each
//! sync of the engine and before that sync is answered, so an engine that opens behind it has lost synced
//! batches. A claim is made durable at once; a mark soon afterwards, and not at the cost of whoever waits for
//! the engine's sync: until then a loss of power may leave the mark before.
//!
//! The file has two slots, at offsets 0 and 4096 so that one torn sector cannot hit both; the rest is zero.
//! The slot that holds the newest durable mark is never the one being written. A slot is 64 bytes,
//! little-endian:
//!
//! | offset | len | field |
//! | --- | --- | --- |
//! | 0 | 8 | magic `HFWITNES` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | zero |
//! | 16 | 8 | seq |
//! | 24 | 8 | generation |
//! | 32 | 8 | one more than that of the durable slot when it was written; odd ones are in the second slot |
//! | 40 | 20 | zero |
//! | 60 | 4 | CRC32C of bytes 0..60 |

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crate::{EngineError, Generation, Result, Seq};

/// What a witness remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Last durable batch.
    pub seq: Seq,
    /// Last generation that claimed the volume.
    pub generation: Generation,
}

/// Keeper of the last durable mark, beside an engine and independent of it.
pub trait Witness: Send {
    /// Returns the last mark recorded through this handle or found at its opening.
    fn mark(&self) -> Mark;

    /// Returns the generation in the store now, which another process may have raised.
    ///
    /// # Errors
    ///
    /// `Io`, `Corrupt`.
    fn stored_generation(&self) -> Result<Generation>;

    /// Makes `mark` durable. Never goes back: neither field may be smaller than before.
    ///
    /// # Errors
    ///
    /// `Full`, `Io`: the old mark is still there.
    fn record(&mut self, mark: Mark) -> Result<()>;

    /// Writes `mark`, so that it survives this process; [`settle`](Self::settle) makes it survive a loss of power, which
    /// before leaves this mark or the last durable one. Never goes back either.
    ///
    /// # Errors
    ///
    /// `Full`, `Io`: the last durable mark is still there.
    fn note(&mut self, mark: Mark) -> Result<()>;

    /// Makes what was noted durable.
    ///
    /// # Errors
    ///
    /// As [`note`](Self::note).
    fn settle(&mut self) -> Result<()>;

    /// Whether everything noted is durable.
    fn is_settled(&self) -> bool;
}

/// Witness in a file.
#[derive(Debug)]
pub struct FileWitness {
    path: PathBuf,
    file: File,
    /// Written last.
    slot: Slot,
    /// Synced last.
    durable: Slot,
}

impl FileWitness {
    /// Creates the witness of a new volume, durably, its directory entry included.
    ///
    /// # Errors
    ///
    /// `Full`, `Io`.
    pub fn create(path: &Path) -> Result<Self> {
        let slot = Slot::default();
        let open = || -> io::Result<File> {
            let new = path.with_extension("new");
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&new)?;
            file.set_len(FILE_LEN)?;
            file.write_all_at(&slot.encode(), slot.offset())?;
            file.sync_all()?;
            fs::rename(&new, path)?;
            sync_directory(path)?;
            Ok(file)
        };
        let file = open().map_err(|source| EngineError::write("creating the witness", path, source))?;
        Ok(Self { path: path.to_owned(), file, slot, durable: slot })
    }

    /// Opens the witness; `None` where there is none.
    ///
    /// A damaged slot falls back on the other: a write was torn before it was answered.
    ///
    /// # Errors
    ///
    /// `Corrupt` where neither slot can be read; `Io`.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                return Err(EngineError::Io { what: "opening the witness", path: path.into(), source });
            }
        };
        let slot = newest(&file, path)?;
        // Who wrote it may have died before it was durable.
        file.sync_data().map_err(|source| EngineError::write("syncing the witness", path, source))?;
        Ok(Some(Self { path: path.to_owned(), file, slot, durable: slot }))
    }
}

impl Witness for FileWitness {
    fn mark(&self) -> Mark {
        self.slot.mark
    }

    fn stored_generation(&self) -> Result<Generation> {
        // A torn read of a slot being written falls back on the older one, which this caller knows already.
        Ok(newest(&self.file, &self.path)?.mark.generation)
    }

    fn record(&mut self, mark: Mark) -> Result<()> {
        self.note(mark)?;
        self.settle()
    }

    fn note(&mut self, mark: Mark) -> Result<()> {
        let old = self.slot.mark;
        assert!(mark.seq >= old.seq && mark.generation >= old.generation, "the witness never goes back");
        if mark == old {
            return Ok(());
        }
        // The same slot again until it is durable: the other is what a torn one falls back on.
        let slot = Slot { mark, count: self.durable.count + 1 };
        self.file
            .write_all_at(&slot.encode(), slot.offset())
            .map_err(|source| EngineError::write("writing the witness", &self.path, source))?;
        self.slot = slot;
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        if self.is_settled() {
            return Ok(());
        }
        self.file
            .sync_data()
            .map_err(|source| EngineError::write("writing the witness", &self.path, source))?;
        self.durable = self.slot;
        Ok(())
    }

    fn is_settled(&self) -> bool {
        self.slot == self.durable
    }
}

/// Finds the newest readable slot.
fn newest(file: &File, path: &Path) -> Result<Slot> {
    // Both with one call: every commit comes by here.
    let mut all = [0; SLOT_OFFSETS[1] as usize + SLOT_LEN];
    let mut len = 0;
    while len < all.len() {
        match file.read_at(&mut all[len..], len as u64) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => {
                return Err(EngineError::Io { what: "reading the witness", path: path.into(), source });
            }
        }
    }
    let mut best: Option<Slot> = None;
    for offset in SLOT_OFFSETS {
        let start = offset as usize;
        let Some(Ok(bytes)) = all[..len].get(start..start + SLOT_LEN).map(<[u8; SLOT_LEN]>::try_from) else {
            continue;
        };
        let Some(slot) = Slot::decode(&bytes).filter(|slot| slot.offset() == offset) else { continue };
        if best.is_none_or(|best| slot.count > best.count) {
            best = Some(slot);
        }
    }
    best.ok_or_else(|| EngineError::corrupt("neither slot of the witness can be read", path))
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    mark: Mark,
    count: u64,
}

impl Slot {
    fn offset(&self) -> u64 {
        SLOT_OFFSETS[(self.count % 2) as usize]
    }

    fn encode(&self) -> [u8; SLOT_LEN] {
        let mut bytes = [0; SLOT_LEN];
        bytes[0..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.mark.seq.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.mark.generation.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.count.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; SLOT_LEN]) -> Option<Self> {
        let word = |at: usize| bytes[at..at + 8].try_into().ok().map(u64::from_le_bytes);
        let sound = bytes[60..64] == crc32c::crc32c(&bytes[..60]).to_le_bytes()
            && bytes[0..8] == *MAGIC
            && bytes[8..12] == VERSION.to_le_bytes();
        if !sound {
            return None;
        }
        let mark = Mark { seq: Seq(word(16)?), generation: Generation(word(24)?) };
        Some(Self { mark, count: word(32)? })
    }
}

const MAGIC: &[u8; 8] = b"HFWITNES";
const VERSION: u32 = 1;
const SLOT_LEN: usize = 64;
const SLOT_OFFSETS: [u64; 2] = [0, 4096];
const FILE_LEN: u64 = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(seq: u64) -> Mark {
        Mark { seq: Seq(seq), generation: Generation(1) }
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("holdfast-witness-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn a_torn_slot_falls_back_on_the_other() {
        let dir = scratch("torn");
        let path = dir.join("witness");
        let mut witness = FileWitness::create(&path).unwrap();
        for seq in 1..=5 {
            witness.record(mark(seq)).unwrap();
        }
        let newest = witness.slot.offset();
        drop(witness);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[0xAA; 20], newest + 10).unwrap();
        assert_eq!(FileWitness::open(&path).unwrap().unwrap().mark(), mark(4));
        file.set_len(30).unwrap();
        assert!(matches!(FileWitness::open(&path), Err(EngineError::Corrupt { .. })));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn until_a_noted_mark_is_settled_the_durable_one_stays_beside_it() {
        let dir = scratch("note");
        let path = dir.join("witness");
        let mut witness = FileWitness::create(&path).unwrap();
        witness.record(mark(3)).unwrap();
        for seq in 4..=7 {
            witness.note(mark(seq)).unwrap();
            assert!(!witness.is_settled());
            // For every process that opens it now.
            assert_eq!(FileWitness::open(&path).unwrap().unwrap().mark(), mark(seq));
        }
        // A loss of power in the midst of writing it.
        let copy = dir.join("copy");
        fs::copy(&path, &copy).unwrap();
        let file = OpenOptions::new().write(true).open(&copy).unwrap();
        file.write_all_at(&[0xAA; 20], witness.slot.offset() + 10).unwrap();
        assert_eq!(FileWitness::open(&copy).unwrap().unwrap().mark(), mark(3));
        witness.settle().unwrap();
        assert!(witness.is_settled());
        witness.note(mark(8)).unwrap();
        fs::copy(&path, &copy).unwrap();
        let file = OpenOptions::new().write(true).open(&copy).unwrap();
        file.write_all_at(&[0xAA; 20], witness.slot.offset() + 10).unwrap();
        assert_eq!(FileWitness::open(&copy).unwrap().unwrap().mark(), mark(7));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_missing_file_is_none_and_a_mark_survives_reopening() {
        let dir = scratch("reopen");
        let path = dir.join("witness");
        assert!(FileWitness::open(&path).unwrap().is_none());
        FileWitness::create(&path).unwrap().record(mark(9)).unwrap();
        assert_eq!(FileWitness::open(&path).unwrap().unwrap().mark(), mark(9));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    #[should_panic(expected = "never goes back")]
    fn never_goes_back() {
        let dir = scratch("back");
        let mut witness = FileWitness::create(&dir.join("witness")).unwrap();
        witness.record(mark(2)).unwrap();
        fs::remove_dir_all(dir).unwrap();
        let _ = witness.record(mark(1));
    }
}
