//! What is done to a target each time.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, AtFlags, CWD, FlockOperation, Mode, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;

use super::target::{
    Kind, explain, first_free, make_named, make_nameless, open, open_to_lock, own_names, text_of,
};
use crate::options::Op;

/// An open target and what is measured of it.
pub(super) struct Operation {
    kind: Kind,
    action: Action,
    buffer: Buffer,
    size: usize,
    is_direct: bool,
    notices: Vec<String>,
}

enum Action {
    Read { file: File, places: Places },
    Write { file: File, places: Places },
    Flock { file: File },
    Stat { path: PathBuf },
    Create { name: PathBuf, is_made: bool },
}

impl Operation {
    /// Opens `path` for `op`, with I/O of `size` bytes where that has a meaning. The error is for the user.
    pub fn open(path: &Path, op: Op, size: u32) -> Result<Self, String> {
        let kind = Kind::of(path)?;
        let size = size as usize;
        let refused = |why: &str| Err(format!("{}: a {}: {why}", path.display(), kind.name()));
        let this = |action| Self {
            kind,
            action,
            buffer: Buffer::new(SIZE_MAX),
            size,
            is_direct: false,
            notices: Vec::new(),
        };
        match (op, kind) {
            (Op::Read, Kind::File | Kind::BlockDevice) => Self::open_read(path, kind, size),
            (Op::Read, Kind::Directory) => Self::open_own(path, Op::Read, size),
            (Op::Write, Kind::Directory) => Self::open_own(path, Op::Write, size),
            (Op::Write, Kind::File | Kind::BlockDevice) => refused(
                "writing would change what it holds; give a directory, where the watch writes a file of its own",
            ),
            (Op::Flock, Kind::File) => {
                let file = open_to_lock(path).map_err(|errno| explain(path, "cannot be opened", errno))?;
                Ok(this(Action::Flock { file: locked_once(path, file)? }))
            }
            (Op::Flock, Kind::Directory) => {
                let file = make_nameless(path, OFlags::empty())?;
                Ok(this(Action::Flock { file: locked_once(path, file)? }))
            }
            (Op::Flock, Kind::BlockDevice) => {
                refused("a lock on it would stop udev from working; give a file or a directory")
            }
            (Op::Stat, Kind::File | Kind::Directory | Kind::BlockDevice) => {
                Ok(this(Action::Stat { path: path.to_owned() }))
            }
            (Op::Create, Kind::Directory) => Self::open_create(path, own_names(path)),
            (Op::Create, Kind::File | Kind::BlockDevice) => {
                refused("files are created in a directory; give one")
            }
        }
    }

    /// Makes the first of `names` that is free, and removes it; each sample then does the same with that name.
    fn open_create(dir: &Path, names: impl Iterator<Item = PathBuf>) -> Result<Self, String> {
        let failed = |errno| explain(dir, "no file can be made in it", errno);
        let try_out = |name: &Path| {
            let mut operation = Self {
                kind: Kind::Directory,
                action: Action::Create { name: name.to_owned(), is_made: false },
                buffer: Buffer::new(SIZE_MAX),
                size: 0,
                is_direct: false,
                notices: Vec::new(),
            };
            let tried = operation.run();
            operation.clean_up();
            tried.map(|()| operation)
        };
        first_free(names, try_out).map(|(operation, _)| operation).map_err(failed)
    }

    fn open_read(path: &Path, kind: Kind, size: usize) -> Result<Self, String> {
        let failed = |errno| explain(path, "cannot be opened to read", errno);
        let (file, is_direct) = match open(path, OFlags::DIRECT) {
            Ok(file) => (file, true),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => (open(path, OFlags::empty()).map_err(failed)?, false),
            Err(errno) => return Err(failed(errno)),
        };
        let len = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(failed)?;
        let places = Places::new(len);
        let action = Action::Read { file, places };
        Self { kind, action, buffer: Buffer::new(SIZE_MAX), size, is_direct, notices: Vec::new() }.tried(
            path,
            || open(path, OFlags::empty()),
            len,
        )
    }

    /// A file of the watch's own in directory `dir`, for reads or writes.
    fn open_own(dir: &Path, op: Op, size: usize) -> Result<Self, String> {
        let sync = if op == Op::Write { OFlags::DSYNC } else { OFlags::empty() };
        let len = OWN_LEN.max(4 * size as u64);
        let make = |extra| {
            let file = make_nameless(dir, extra)?;
            fill(&file, len).map_err(|errno| explain(dir, "no room for a file of the watch's own", errno))?;
            Ok::<File, String>(file)
        };
        let plain = make(OFlags::empty())?;
        // The same file once more, through /proc: its name is gone.
        let again = |flags| reopen(&plain, flags | OFlags::RDWR);
        let (file, is_direct) = match again(OFlags::DIRECT | sync) {
            Ok(file) => (file, true),
            // Where a file without a name cannot be opened again, another one is made.
            Err(Errno::NOENT | Errno::STALE) => match make(OFlags::DIRECT | sync) {
                Ok(file) => (file, true),
                Err(_) => (make(sync)?, false),
            },
            Err(_) => (again(sync).or_else(|_| make(sync))?, false),
        };
        let places = Places::new(len);
        let action = match op {
            Op::Write => Action::Write { file, places },
            Op::Read | Op::Flock | Op::Stat | Op::Create => Action::Read { file, places },
        };
        let this = Self {
            kind: Kind::Directory,
            action,
            buffer: Buffer::new(SIZE_MAX),
            size,
            is_direct,
            notices: Vec::new(),
        };
        this.tried(dir, || reopen(&plain, OFlags::RDWR | sync), len)
    }

    /// Tries one I/O, larger and larger until the target takes it, then without O_DIRECT.
    fn tried(
        mut self,
        path: &Path,
        open_buffered: impl FnOnce() -> Result<File, Errno>,
        len: u64,
    ) -> Result<Self, String> {
        if len < self.size as u64 {
            return Err(format!("{}: holds {len} bytes, and {} are to be read", path.display(), self.size));
        }
        let asked = self.size;
        let mut result = self.run();
        while self.is_direct
            && result == Err(Errno::INVAL)
            && self.size < SIZE_MAX
            && self.size as u64 * 2 <= len
        {
            self.size = (self.size * 2).next_power_of_two().min(SIZE_MAX);
            result = self.run();
        }
        if self.is_direct && matches!(result, Err(Errno::INVAL | Errno::OPNOTSUPP)) {
            let file = open_buffered().map_err(|errno| explain(path, "cannot be opened", errno))?;
            (self.is_direct, self.size) = (false, asked);
            match &mut self.action {
                Action::Read { file: old, .. } | Action::Write { file: old, .. } => *old = file,
                Action::Flock { .. } | Action::Stat { .. } | Action::Create { .. } => {}
            }
            result = self.run();
        }
        result.map_err(|errno| explain(path, "cannot be read or written", errno))?;
        if self.size != asked {
            self.notices
                .push(format!("{asked} bytes are too few for direct I/O here: {} instead", self.size));
        }
        if !self.is_direct {
            let text = "no direct I/O here: it goes through the page cache, which is emptied of it each time";
            self.notices.push(text.to_owned());
        }
        Ok(self)
    }

    /// What is to be done before, and is not measured.
    pub fn prepare(&mut self) {
        if let (Action::Read { file, .. }, false) = (&self.action, self.is_direct) {
            // Advice: where it is not taken, the notice about the page cache holds all the more.
            let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
        }
    }

    /// Does it once. What is measured is this call.
    pub fn run(&mut self) -> Result<(), Errno> {
        let bytes = self.buffer.aligned(self.size);
        match &mut self.action {
            Action::Read { file, places } => {
                let place = places.next(bytes.len() as u64);
                match rustix::io::pread(&*file, bytes, place)? {
                    // Shorter than it was: nothing is where something was read before.
                    0 => Err(Errno::NODATA),
                    _ => Ok(()),
                }
            }
            Action::Write { file, places } => {
                let place = places.next(bytes.len() as u64);
                rustix::io::pwrite(&*file, bytes, place).map(drop)
            }
            Action::Flock { file } => {
                rustix::fs::flock(&*file, FlockOperation::LockExclusive)?;
                rustix::fs::flock(&*file, FlockOperation::Unlock)
            }
            Action::Stat { path } => {
                let flags = StatxFlags::BASIC_STATS;
                rustix::fs::statx(CWD, &*path, AtFlags::STATX_FORCE_SYNC, flags).map(drop)
            }
            Action::Create { name, is_made } => {
                let file = make_named(name, OFlags::empty())?;
                *is_made = true;
                drop(file);
                rustix::fs::unlink(&*name)?;
                *is_made = false;
                Ok(())
            }
        }
    }

    /// Removes what a failed operation left.
    pub fn clean_up(&mut self) {
        if let Action::Create { name, is_made } = &mut self.action
            && std::mem::take(is_made)
        {
            // It failed once already; the next creation says so again.
            let _ = rustix::fs::unlink(&*name);
        }
    }

    /// What is not as asked.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// What the target is.
    pub fn kind(&self) -> &'static str {
        self.kind.name()
    }

    /// Bytes of each I/O; 0 where it has none.
    pub fn size(&self) -> u32 {
        match self.action {
            Action::Read { .. } | Action::Write { .. } => self.size as u32,
            Action::Flock { .. } | Action::Stat { .. } | Action::Create { .. } => 0,
        }
    }

    /// Whether the page cache is passed by.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }
}

/// Says of a failed operation what it was.
pub(super) fn failure(errno: Errno) -> String {
    match errno {
        Errno::NODATA => "nothing is there any more to read".to_owned(),
        other => text_of(other),
    }
}

/// The file, once it is known that it can be locked at all; whoever has it locked now is waited for later.
fn locked_once(path: &Path, file: File) -> Result<File, String> {
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => rustix::fs::flock(&file, FlockOperation::Unlock),
        Err(Errno::WOULDBLOCK) => Ok(()),
        Err(errno) => Err(errno),
    }
    .map_err(|errno| explain(path, "cannot be locked", errno))?;
    Ok(file)
}

/// Opens a file anew by its descriptor.
fn reopen(file: &File, flags: OFlags) -> Result<File, Errno> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map(File::from)
}

/// Bytes that no layer can keep as a hole or as zeros.
fn fill(file: &File, len: u64) -> Result<(), Errno> {
    let block: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut offset = 0;
    while offset < len {
        let wanted = block.len().min((len - offset) as usize);
        offset += rustix::io::pwrite(file, &block[..wanted], offset)? as u64;
    }
    match rustix::fs::fsync(file) {
        // A file system that has nothing to sync to.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Places in a file or device, spread evenly and never the same twice in a row: multiples of the golden ratio.
struct Places {
    len: u64,
    turn: u64,
}

impl Places {
    fn new(len: u64) -> Self {
        // Two watches do not go the same way.
        Self { len, turn: u64::from(std::process::id()) }
    }

    /// Where the next I/O of `size` bytes goes; a multiple of `size`, and it fits.
    fn next(&mut self, size: u64) -> u64 {
        self.turn = self.turn.wrapping_add(1);
        let fraction = self.turn.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let count = (self.len / size.max(1)).max(1);
        ((u128::from(fraction) * u128::from(count)) >> 64) as u64 * size
    }
}

/// Memory as direct I/O wants it.
struct Buffer(Vec<u8>);

impl Buffer {
    fn new(len: usize) -> Self {
        Self(vec![0; len + ALIGN])
    }

    fn aligned(&mut self, len: usize) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(ALIGN);
        &mut self.0[start..start + len]
    }
}

/// No device wants more.
const ALIGN: usize = 4096;
/// Largest I/O.
const SIZE_MAX: usize = 1 << 20;
/// Length of the watch's own file: enough places to go to, little to write.
const OWN_LEN: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_fit_differ_and_cover_the_whole_length() {
        for (len, size) in [(512, 512), (1000, 512), (256 << 10, 4096), (u64::MAX, 512)] {
            let mut places = Places::new(len);
            let count = len / size;
            let found: Vec<u64> = (0..1000).map(|_| places.next(size)).collect();
            assert!(found.iter().all(|at| at % size == 0 && *at <= len - size), "{len} {size}");
            if count >= 64 {
                assert!(found.windows(2).all(|pair| pair[0] != pair[1]));
                let quarters = (0..4).map(|i| found.iter().filter(|at| **at / (len / 4 + 1) == i).count());
                assert!(quarters.into_iter().all(|count| count > 200), "{len} {size}");
            }
        }
    }

    /// Goal: a lock that can never be had is told at once, and one that somebody has is not taken for that. Method: NFSv4 refuses what
    /// is not open for writing with EBADF; so does every file system with a descriptor that is not open for anything.
    #[test]
    fn what_cannot_be_locked_is_told_when_it_is_opened() {
        let path = std::env::temp_dir().join(format!("holdfast-lock-{}", std::process::id()));
        std::fs::write(&path, "x").unwrap();
        let operation = Operation::open(&path, Op::Flock, 512).unwrap();
        let Action::Flock { file } = &operation.action else { panic!("no lock") };
        let flags = rustix::fs::fcntl_getfl(file).unwrap();
        assert_eq!(flags & OFlags::ACCMODE, OFlags::RDWR, "NFSv4 wants that");
        let holder = File::open(&path).unwrap();
        rustix::fs::flock(&holder, FlockOperation::LockExclusive).unwrap();
        assert!(Operation::open(&path, Op::Flock, 512).is_ok(), "somebody else has it now");
        let nothing = rustix::fs::open(&path, OFlags::PATH, Mode::empty()).map(File::from).unwrap();
        let error = locked_once(&path, nothing).unwrap_err();
        assert!(error.contains("cannot be locked") && error.contains("NFSv4"), "{error}");
        // What runs may not be written.
        let own = std::env::current_exe().unwrap();
        assert!(Operation::open(&own, Op::Flock, 512).is_ok());
        assert_eq!(std::fs::read(&path).unwrap(), b"x");
        std::fs::remove_file(&path).unwrap();
    }

    /// Goal: a name that a killed watch left does not keep the next one from starting. Method: the first of two names is there.
    #[test]
    fn a_name_that_is_there_is_passed_over() {
        let dir = std::env::temp_dir().join(format!("holdfast-create-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let names = [dir.join("left"), dir.join("free")];
        std::fs::write(&names[0], "").unwrap();
        let mut operation = Operation::open_create(&dir, names.into_iter()).unwrap();
        assert_eq!(operation.run(), Ok(()));
        assert!(Operation::open_create(&dir, [dir.join("left")].into_iter()).is_err());
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_buffer_is_aligned() {
        let mut buffer = Buffer::new(SIZE_MAX);
        assert_eq!(buffer.aligned(512).as_ptr() as usize % ALIGN, 0);
        assert_eq!(buffer.aligned(SIZE_MAX).len(), SIZE_MAX);
    }
}
