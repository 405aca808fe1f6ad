//! fjall's journals, read and synced from outside.
//!
//! Format of fjall 3.1 (`fjall:src/journal/entry.rs`), little-endian, files `<id>.jnl` in ascending order:
//!
//! | entry | bytes |
//! | --- | --- |
//! | start | 1, item count u32, fjall's sequence number u64 |
//! | item | 2, type u8 (0 value, 1 tombstone), compression u8 (0), keyspace u64, key len u16, value len u32, stored len u32, key, value |
//! | end | 3, xxh3 u64, `FJL` 3 |
//!
//! A file is preallocated with zeros. Every batch of ours carries the reserved record, whose checksum covers
//! the batch, so fjall's own need not be computed. A journal other than the last was synced when it was sealed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use kv::{EngineError, Mark, RESERVED_KEY, Reserved, Result, Seq};
use rustix::fs::{Access, AtFlags, StatxFlags, accessat, statx};
use rustix::io::Errno;

/// What the journals of a volume hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Oldest batch of the run that reaches the end, `None` where all journals are empty.
    pub first: Option<Reserved>,
    /// Newest batch.
    pub last: Option<Reserved>,
    /// Bytes of sound batches in the newest journal.
    pub newest_len: u64,
}

/// Reads all journals in `dir` and checks that they are one unbroken run that reaches the `witness`; what is told is of that
/// run. Older journals may stand before it that fjall had flushed.
///
/// A tail of the last journal that cannot be read and was never synced is cut off, so that fjall, which
/// refuses some of them, finds a clean end. Where no batch can be read at all, nothing is: whether any was synced the tables tell, once fjall has opened
/// them without the journals ([`set_aside`]).
///
/// # Errors
///
/// `Corrupt`, naming the file, for a hole or a damaged batch that was synced; `Behind` where the run ends
/// before the witness. Nothing on disk is changed then.
pub(crate) fn check(dir: &Path, witness: Mark) -> Result<Contents> {
    let paths = list(dir)?;
    let mut contents = Contents::default();
    let mut broken: Option<&Path> = None;
    for (index, (_, path)) in paths.iter().enumerate() {
        let is_last = index + 1 == paths.len();
        let mut scan = scan(path, contents.last)?;
        if let (Stop::Gap { expected, found }, None) = (&scan.stop, scan.first)
            && found > expected
        {
            // fjall removes journals that are flushed without a sync of their directory, so an older one may come back
            // without the one between. Then the tables hold all up to here, which is compared once fjall has opened them.
            contents = Contents::default();
            scan = self::scan(path, None)?;
        }
        // The journal before ended early, and yet batches follow.
        if let (Some(early), Some(_)) = (broken, scan.first) {
            return Err(EngineError::corrupt("journal ends amid its batches", early));
        }
        contents.first = contents.first.or(scan.first);
        contents.last = scan.last.or(contents.last);
        contents.newest_len = scan.valid_len;
        match scan.stop {
            Stop::Clean => {}
            Stop::Gap { expected, found } => {
                let what = format!("batch {found} follows where {expected} should");
                return Err(EngineError::corrupt(what, path));
            }
            Stop::Damaged { seq, offset } if !is_last || seq <= witness.seq => {
                let what = format!("checksum of batch {seq} is wrong, at offset {offset}");
                return Err(EngineError::corrupt(what, path));
            }
            Stop::Torn if !is_last => broken = Some(path),
            Stop::Damaged { .. } | Stop::Torn if contents.last.is_none() => {}
            Stop::Damaged { .. } | Stop::Torn => {
                check_reaches(contents.last, witness, path)?;
                cut(path, scan.valid_len)?;
            }
        }
    }
    // None is there after a close. Then, too, the tables decide.
    if let Some((_, newest)) = paths.last() {
        check_reaches(contents.last, witness, newest)?;
    }
    Ok(contents)
}

/// `path` is the journal that ends where the witness should be reached.
fn check_reaches(last: Option<Reserved>, witness: Mark, path: &Path) -> Result<()> {
    match last {
        Some(last) if last.seq < witness.seq => {
            Err(EngineError::Behind { engine_seq: last.seq, witness_seq: witness.seq, path: path.into() })
        }
        // Without a batch the tables decide, once fjall has opened them.
        Some(_) | None => Ok(()),
    }
}

/// Takes journals of which no batch can be read out of fjall's way, which would empty them: they may be damaged at their start. Returns the newest.
///
/// Afterwards either [`drop_aside`] or [`put_back`] is to be called; a process that dies before has it done by the next.
pub(crate) fn set_aside(dir: &Path, contents: &Contents) -> Result<Option<PathBuf>> {
    let mut newest = None;
    if contents.last.is_some() {
        return Ok(newest);
    }
    for (_, path) in list(dir)? {
        let is_written = has_bytes(&path).map_err(|source| EngineError::Io {
            what: "reading the journal",
            path: path.clone(),
            source,
        })?;
        if is_written {
            log::warn!("journal {}: no batch in it can be read", path.display());
            rename(&path, &path.with_extension(ASIDE), dir)?;
            newest = Some(path);
        }
    }
    Ok(newest)
}

/// Removes what was [set aside](set_aside): the tables hold all that was synced.
pub(crate) fn drop_aside(dir: &Path) -> Result<()> {
    for path in list_of(dir, ASIDE)?.into_iter().map(|(_, path)| path) {
        remove(&path)?;
    }
    // Before anything is synced to a journal of the same name.
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|source| EngineError::write("syncing the directory of the journals", dir, source))
}

/// Has everything as it was before something was [set aside](set_aside). fjall must not have them open.
///
/// What fjall has begun since is removed, if nothing is in it; if something is, that is newer, and the tables held all of what was set aside.
pub(crate) fn put_back(dir: &Path) -> Result<()> {
    let aside = list_of(dir, ASIDE)?;
    let Some(first) = aside.first().map(|(id, _)| *id) else { return Ok(()) };
    let mut is_begun = false;
    for (_, path) in list(dir)?.into_iter().filter(|(id, _)| *id >= first) {
        match has_bytes(&path) {
            Ok(true) => is_begun = true,
            Ok(false) => remove(&path)?,
            Err(source) => return Err(EngineError::Io { what: "reading the journal", path, source }),
        }
    }
    if is_begun {
        return drop_aside(dir);
    }
    aside.iter().try_for_each(|(_, path)| rename(path, &path.with_extension(JOURNAL), dir))
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(|source| EngineError::write("removing a journal", path, source))
}

fn rename(from: &Path, to: &Path, dir: &Path) -> Result<()> {
    fs::rename(from, to)
        .and_then(|()| File::open(dir)?.sync_all())
        .map_err(|source| EngineError::write("renaming a journal", from, source))
}

/// Whether anything but zeros is in a file.
fn has_bytes(path: &Path) -> io::Result<bool> {
    let (mut file, mut piece) = (File::open(path)?, vec![0; STORED_AT_ONCE as usize]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(false),
            len if piece[..len].iter().any(|byte| *byte != 0) => return Ok(true),
            _ => {}
        }
    }
}

fn cut(path: &Path, len: u64) -> Result<()> {
    log::warn!("journal {}: cutting off an unsynced tail that cannot be read, at {len}", path.display());
    let cut = || {
        OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|file| file.set_len(len).and_then(|()| file.sync_all()))
    };
    cut().map_err(|source| EngineError::write("cutting the journal's tail", path, source))
}

/// Writes the first `len` bytes of the newest journal, its batches, to their place again, so that the next sync of it takes them along.
///
/// Whoever had it open may have met a sync that failed. What that was to store is in the page cache and reads well, and the kernel calls it stored: no
/// sync would write it, and a loss of power would take it although the syncs after it succeeded.
pub(crate) fn store_again(dir: &Path, len: u64) -> Result<()> {
    let Some((_, newest)) = list(dir)?.pop().filter(|_| len > 0) else { return Ok(()) };
    let store = || -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(&newest)?;
        let mut piece = vec![0; STORED_AT_ONCE.min(len) as usize];
        let mut offset = 0;
        while offset < len {
            let bytes = &mut piece[..STORED_AT_ONCE.min(len - offset) as usize];
            file.read_exact_at(bytes, offset)?;
            file.write_all_at(bytes, offset)?;
            offset += bytes.len() as u64;
        }
        Ok(())
    };
    store().map_err(|source| EngineError::write("storing the journal again", &newest, source))
}

/// Has fjall begin a new journal when it opens: it takes the newest for the one to write to, and flushes and removes the
/// others. Afterwards nothing that is in the journals can be lost to a power failure any more, synced before or not: a
/// hole amid them would be damage.
///
/// To be called after [`check`], which has cut off what cannot be read. A full disk is no error: the old one goes on.
pub(crate) fn begin_next(dir: &Path) -> Result<()> {
    let Some((id, newest)) = list(dir)?.pop() else { return Ok(()) };
    let Some(next) = id.checked_add(1).map(|id| dir.join(format!("{id}.jnl"))) else { return Ok(()) };
    let synced = OpenOptions::new().write(true).open(&newest).and_then(|file| file.sync_all());
    synced.map_err(|source| EngineError::write("syncing the journal", &newest, source))?;
    let begun = File::create_new(&next)
        .and_then(|file| file.sync_all())
        .and_then(|()| File::open(dir).and_then(|dir| dir.sync_all()));
    match begun.map_err(|source| EngineError::write("beginning a journal", &next, source)) {
        Err(EngineError::Full { .. }) => Ok(()),
        result => result,
    }
}

/// Removes all journals, whose batches the tables must hold. At every moment what is left reaches the newest batch, or is nothing.
///
/// # Errors
///
/// `Io`, `Full`: some may be left.
pub(crate) fn remove_all(dir: &Path) -> Result<()> {
    // fjall removes journals without a sync of their directory: an older one must not come back when a newer one is gone.
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|source| EngineError::write("syncing the directory of the journals", dir, source))?;
    for (_, path) in list(dir)? {
        fs::remove_file(&path)
            .and_then(|()| File::open(dir).and_then(|dir| dir.sync_all()))
            .map_err(|source| EngineError::write("removing a journal", &path, source))?;
    }
    Ok(())
}

/// The journal that is written to.
pub(crate) fn newest(dir: &Path) -> Option<(u64, PathBuf)> {
    list(dir).ok()?.pop()
}

/// Lists the journals, oldest first.
fn list(dir: &Path) -> Result<Vec<(u64, PathBuf)>> {
    list_of(dir, JOURNAL)
}

fn list_of(dir: &Path, extension: &str) -> Result<Vec<(u64, PathBuf)>> {
    let fail = |source| EngineError::Io { what: "listing the journals", path: dir.into(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_none_or(|of| of != extension) {
            continue;
        }
        match path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok()) {
            Some(id) => found.push((id, path)),
            None => return Err(EngineError::corrupt("journal with a name that is no number", path)),
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// What names of journals end with.
const JOURNAL: &str = "jnl";
/// And those of journals that are set aside.
const ASIDE: &str = "aside";

#[derive(Debug)]
struct Scan {
    first: Option<Reserved>,
    last: Option<Reserved>,
    /// End of the last sound batch.
    valid_len: u64,
    stop: Stop,
}

/// Where and why the reading of a journal ended.
#[derive(Debug)]
enum Stop {
    /// At the end of the file or at its zeros, between two batches.
    Clean,
    /// At bytes that are no batch, or not a whole one.
    Torn,
    /// At a whole batch with a wrong checksum.
    Damaged { seq: Seq, offset: u64 },
    /// At a sound batch that does not follow the one before.
    Gap { expected: Seq, found: Seq },
}

fn scan(path: &Path, mut previous: Option<Reserved>) -> Result<Scan> {
    let mut last_order = None;
    let fail = |source| EngineError::Io { what: "reading the journal", path: path.into(), source };
    let file = File::open(path).map_err(fail)?;
    let left = file.metadata().map_err(fail)?.len();
    let mut reader =
        Reader { file: BufReader::with_capacity(1 << 20, file), left, key: vec![], value: vec![] };
    let mut scan = Scan { first: None, last: None, valid_len: 0, stop: Stop::Clean };
    loop {
        let found = reader.read_batch().map_err(fail)?;
        let end = left - reader.left;
        match found {
            Found::Nothing => return Ok(scan),
            Found::Torn => return Ok(Scan { stop: Stop::Torn, ..scan }),
            Found::Batch { order, reserved, contents_crc } => {
                let offset = scan.valid_len;
                let guess = previous.map_or(Seq(1), |previous| previous.seq.next());
                let Some(reserved) = reserved else {
                    return Ok(Scan { stop: Stop::Damaged { seq: guess, offset }, ..scan });
                };
                // fjall's number of the batch has no checksum; a lower one would hide newer values behind older.
                let is_out_of_order = last_order.is_some_and(|before| order <= before);
                if reserved.contents_crc != contents_crc || is_out_of_order {
                    return Ok(Scan { stop: Stop::Damaged { seq: reserved.seq, offset }, ..scan });
                }
                if previous.is_some_and(|previous| !follows(previous, reserved)) {
                    return Ok(Scan { stop: Stop::Gap { expected: guess, found: reserved.seq }, ..scan });
                }
                last_order = Some(order);
                previous = Some(reserved);
                scan.first = scan.first.or(previous);
                scan.last = previous;
                scan.valid_len = end;
            }
        }
    }
}

/// A batch has the next number and the same generation; a claim has the same number and a greater generation.
fn follows(previous: Reserved, next: Reserved) -> bool {
    let is_batch = next.seq == previous.seq.next() && next.generation == previous.generation;
    let is_claim = next.seq == previous.seq && next.generation > previous.generation;
    is_batch || is_claim
}

enum Found {
    Nothing,
    Torn,
    /// A whole batch, with fjall's number of it.
    Batch {
        order: u64,
        reserved: Option<Reserved>,
        contents_crc: u32,
    },
}

struct Reader {
    file: BufReader<File>,
    left: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Reader {
    fn read_batch(&mut self) -> io::Result<Found> {
        let Some([tag]) = self.take::<1>()? else { return Ok(Found::Nothing) };
        match tag {
            0 => return Ok(Found::Nothing),
            TAG_START => {}
            _ => return Ok(Found::Torn),
        }
        let Some(head) = self.take::<12>()? else { return Ok(Found::Torn) };
        let [a, b, c, d, order @ ..] = head;
        let item_count = u32::from_le_bytes([a, b, c, d]);
        let order = u64::from_le_bytes(order);
        let mut reserved = None;
        let mut contents_crc = 0;
        for _ in 0..item_count {
            let Some(is_put) = self.read_item()? else { return Ok(Found::Torn) };
            if self.key == RESERVED_KEY {
                reserved = Reserved::decode(&self.value);
            } else {
                contents_crc = Reserved::contents_crc(contents_crc, &self.key, is_put.then_some(&self.value));
            }
        }
        match self.take::<13>()? {
            Some([TAG_END, .., b'F', b'J', b'L', 3]) => Ok(Found::Batch { order, reserved, contents_crc }),
            Some(_) | None => Ok(Found::Torn),
        }
    }

    /// Reads an item into `key` and `value`; returns whether it is a put, `None` where it is no item.
    fn read_item(&mut self) -> io::Result<Option<bool>> {
        let Some(head) = self.take::<21>()? else { return Ok(None) };
        let [TAG_ITEM, kind @ (0 | 1), 0, _, _, _, _, _, _, _, _, k0, k1, v0, v1, v2, v3, s0, s1, s2, s3] =
            head
        else {
            return Ok(None);
        };
        let value_len = u32::from_le_bytes([v0, v1, v2, v3]);
        let key_len = u16::from_le_bytes([k0, k1]);
        // Checked before anything is allocated: the lengths may be damaged.
        let is_whole = u64::from(key_len) + u64::from(value_len) <= self.left;
        if value_len != u32::from_le_bytes([s0, s1, s2, s3]) || !is_whole {
            return Ok(None);
        }
        self.left -= u64::from(key_len) + u64::from(value_len);
        self.key.resize(usize::from(key_len), 0);
        self.value.resize(value_len as usize, 0);
        self.file.read_exact(&mut self.key)?;
        self.file.read_exact(&mut self.value)?;
        Ok(Some(kind == 0))
    }

    /// Takes `N` bytes; `None` where the file has fewer left.
    fn take<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        if self.left < N as u64 {
            return Ok(None);
        }
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        self.left -= N as u64;
        Ok(Some(bytes))
    }
}

const TAG_START: u8 = 1;
const TAG_ITEM: u8 = 2;
const TAG_END: u8 = 3;
/// Bytes that are written again at once.
const STORED_AT_ONCE: u64 = 1 << 20;

/// Syncs the journal that fjall writes now, without fjall's lock.
///
/// fjall syncs a journal before it starts the next, and creates that one durably before it writes to it. So the
/// newest file, listed after a batch was committed, holds the batch or everything up to it is durable already.
/// The descriptor is kept, because the kernel tells a write error once to each descriptor opened before it.
#[derive(Debug)]
pub(crate) struct JournalSync {
    dir: PathBuf,
    open: Option<Newest>,
}

/// The newest journal when it was last looked for.
#[derive(Debug)]
struct Newest {
    id: u64,
    file: File,
    /// Where it lies, and the name of the one after it.
    dir: File,
    next: String,
}

impl Newest {
    /// `None` if it is gone.
    fn open(dir: &Path, id: u64) -> io::Result<Option<Self>> {
        let file = match File::open(path_of(dir, id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let next = id.checked_add(1).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(Some(Self { id, file, dir: File::open(dir)?, next: format!("{next}.jnl") }))
    }

    /// Whether it still is. fjall numbers journals without holes and removes the oldest first: as long as this one has its name, the next is
    /// there if it was ever begun.
    ///
    /// Asks for no times of the file: once somebody has seen them, the kernel gives the next write times of its own, and on some file
    /// systems a sync then has the inode to write besides.
    fn is_newest(&self) -> bool {
        let links = statx(&self.file, c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK);
        links.is_ok_and(|found| found.stx_nlink > 0)
            && accessat(&self.dir, &*self.next, Access::EXISTS, AtFlags::empty()) == Err(Errno::NOENT)
    }

    fn sync(&self, dir: &Path) -> Result<()> {
        let fail = |source| EngineError::write("syncing the journal", path_of(dir, self.id), source);
        self.file.sync_data().map_err(fail)
    }
}

fn path_of(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id}.jnl"))
}

impl JournalSync {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, open: None }
    }

    /// Makes durable what was committed before the call.
    ///
    /// # Errors
    ///
    /// `Full`, `Io` where the system cannot write; `Corrupt` where no journal is there.
    pub(crate) fn sync(&mut self) -> Result<()> {
        if let Some(newest) = self.open.as_ref().filter(|newest| newest.is_newest()) {
            return newest.sync(&self.dir);
        }
        loop {
            let Some((id, path)) = list(&self.dir)?.pop() else {
                return Err(EngineError::corrupt("no journal", &self.dir));
            };
            if let Some(newest) = self.open.as_ref().filter(|newest| newest.id == id) {
                return newest.sync(&self.dir);
            }
            let opened = Newest::open(&self.dir, id);
            match opened.map_err(|source| EngineError::write("syncing the journal", &path, source))? {
                Some(newest) => self.open = Some(newest),
                // Sealed, flushed and deleted meanwhile: look again for the newest.
                None => continue,
            }
        }
    }
}
