//! The trait every engine implements, and the words of its signatures.

use std::fmt;

use crate::{Batch, EngineError, Result};

/// Number of a batch: 1 for the first, one more for each next. 0 means that nothing was committed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// Returns the number the next batch must carry.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Claim number of a master in the store: each new master has a greater one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Under which generation an engine is opened.
///
/// The open is refused as `Fenced` unless the generation is greater than every one recorded before, and it
/// records its own durably before it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The claimant's generation, at least 1.
    pub generation: Generation,
}

impl Claim {
    /// Claims the volume under generation `number`.
    pub const fn new(number: u64) -> Self {
        Self { generation: Generation(number) }
    }
}

/// Half-open range of keys; empty where `start >= end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// First key of the range.
    pub start: Vec<u8>,
    /// First key after the range.
    pub end: Vec<u8>,
}

impl KeyRange {
    /// Makes the range `start..end`.
    pub fn new(start: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> Self {
        Self { start: start.into(), end: end.into() }
    }

    /// Returns whether no key can be inside.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Returns what is left of the range behind a page of a scan in `direction` that ended with `last`.
    pub fn rest_after(&self, last: &[u8], direction: Direction) -> Self {
        match direction {
            Direction::Forward => {
                let mut start = last.to_vec();
                start.push(0); // The smallest key greater than `last`.
                Self { start, end: self.end.clone() }
            }
            Direction::Backward => Self { start: self.start.clone(), end: last.to_vec() },
        }
    }
}

/// Order in which a scan returns keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Smallest key first.
    Forward,
    /// Greatest key first.
    Backward,
}

/// Where a page ends at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimit {
    /// Most entries of a page; 0 gives an empty page.
    pub entries: usize,
    /// Most bytes (keys and values) of a page. The first entry is returned even where it is greater.
    pub bytes: usize,
}

/// Key and value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// One page of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Entries in the scan's direction.
    pub entries: Vec<Entry>,
    /// Whether the limit ended the page and the range holds more: go on at [`KeyRange::rest_after`].
    pub more: bool,
}

impl Page {
    /// Fills a page from `entries`, which come in the scan's order.
    ///
    /// # Errors
    ///
    /// The first error of `entries`.
    pub fn collect(entries: impl Iterator<Item = Result<Entry>>, limit: ScanLimit) -> Result<Self> {
        let mut page = Self::default();
        let mut bytes = 0_usize;
        for entry in entries {
            let (key, value) = entry?;
            let len = key.len() + value.len();
            let over = page.entries.len() >= limit.entries
                || (!page.entries.is_empty() && bytes.saturating_add(len) > limit.bytes);
            if over {
                page.more = true;
                break;
            }
            bytes += len;
            page.entries.push((key, value));
        }
        Ok(page)
    }
}

/// Calls `each` with every entry of `range`, in order, page by page: commits between two pages are seen or not.
///
/// # Errors
///
/// As [`Engine::get`]; the entries before the failure were handed over.
pub fn scan_all(engine: &dyn Engine, mut range: KeyRange, mut each: impl FnMut(Entry)) -> Result<()> {
    loop {
        let page = engine.scan(&range, SCAN_PAGE, Direction::Forward)?;
        if let Some((last, _)) = page.entries.last() {
            range = range.rest_after(last, Direction::Forward);
        }
        let is_last = !page.more;
        page.entries.into_iter().for_each(&mut each);
        if is_last {
            return Ok(());
        }
    }
}

/// A page of [`scan_all`].
const SCAN_PAGE: ScanLimit = ScanLimit { entries: 4096, bytes: 1 << 20 };

/// Is told how many bytes were read, waits if that was too fast, and answers whether to go on.
pub type Pace<'a> = dyn FnMut(u64) -> bool + 'a;

/// Is given records one after the other, and answers whether to go on.
pub type TakeEntry<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

/// An opened engine: ordered records of one volume, written by one master under one generation.
///
/// All methods may be called from several threads. One thread commits; a second may `sync` meanwhile.
/// Reads see every committed batch whole, durable or not, and go on working on a poisoned engine.
pub trait Engine: Send + Sync {
    /// Returns the value of `key`.
    ///
    /// # Errors
    ///
    /// `Corrupt` or `Io` where the record cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Returns the values of `keys`, in their order, all as of one moment.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>>;

    /// Returns the first page of `range` in `direction`, as of one moment.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn scan(&self, range: &KeyRange, limit: ScanLimit, direction: Direction) -> Result<Page>;

    /// Hands over every record as of one moment, in the order of their keys, for as long as `take` says to go on. Others
    /// may commit meanwhile, `take` among them; what they replace keeps its room until this returns.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); the records before the failure were handed over.
    fn snapshot(&self, take: &mut TakeEntry<'_>) -> Result<()>;

    /// Returns the number of the last committed batch.
    fn last_seq(&self) -> Seq;

    /// Applies `batch` whole, after all earlier ones.
    ///
    /// When it returns, the batch has reached the operating system: it survives the death of this process,
    /// not a power loss. Blocks while the engine is behind with its background work.
    ///
    /// # Errors
    ///
    /// `Sequence` and `Invalid`: nothing was done. `Fenced`: final. `Full`, `Io`, `Unavailable`: the outcome
    /// is unknown; the handle is poisoned, reopen and read [`last_seq`](Self::last_seq). `Poisoned`: refused.
    fn commit(&self, batch: Batch) -> Result<()>;

    /// Makes everything committed before the call durable and returns the last durable batch.
    ///
    /// Safe beside a running [`commit`](Self::commit). Callers that wait together are served by one sync.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    fn sync(&self) -> Result<Seq>;

    /// Whether [`prepare`](Self::prepare) has anything to do.
    fn is_unprepared(&self) -> bool {
        false
    }

    /// Does ahead what makes the next sync shorter. To be called after a sync was answered.
    ///
    /// # Errors
    ///
    /// `Poisoned`, `Fenced`; nothing depends on it.
    fn prepare(&self) -> Result<()> {
        Ok(())
    }

    /// Makes durable what tells of earlier syncs, so that a later opening notices if what they made durable is gone. To be called
    /// soon after a sync, when nobody waits.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the bytes the engine occupies on its volume.
    ///
    /// # Errors
    ///
    /// `Io`, `Unavailable`.
    fn disk_bytes(&self) -> Result<u64>;

    /// Reads what the engine keeps in files of its own, beside the records, and compares it with its checksums; returns what
    /// is damaged. May run beside everything else. Records that are read are checked in any case.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), where it cannot be told what there is to read.
    fn verify(&self, pace: &mut Pace<'_>) -> Result<Vec<EngineError>>;

    /// Syncs, settles, ends the engine's threads, leaves the volume as the next opening goes on with it fastest, and gives it free.
    ///
    /// Dropping the engine ends the threads and gives the volume free, no more.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync); the volume is given free in any case.
    fn close(self: Box<Self>) -> Result<()>;
}
