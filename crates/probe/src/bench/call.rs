//! Single calls, each timed: in one directory, or by turns through several mount points.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::system;

/// What is done and timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A read of 4 KiB past the page cache.
    Read,
    /// A write of 4 KiB and fsync(2).
    Write,
    /// open(2) with O_CREAT and close(2), then unlink(2).
    Create,
    /// rename(2) of a file within a directory.
    Rename,
    /// statx(2) that asks the file system, not its cache (AT_STATX_FORCE_SYNC).
    Stat,
    /// flock(2), exclusive, and the unlock.
    Flock,
    /// A lock of a whole file by fcntl(2), and the unlock.
    Fcntl,
}

impl Call {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Read, Self::Write, Self::Create, Self::Rename, Self::Stat, Self::Flock, Self::Fcntl];
    /// Those that make sense by turns from two mount points.
    pub const BY_TURNS: [Self; 5] = [Self::Write, Self::Create, Self::Rename, Self::Flock, Self::Fcntl];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write+fsync",
            Self::Create => "create+unlink",
            Self::Rename => "rename",
            Self::Stat => "stat",
            Self::Flock => "flock",
            Self::Fcntl => "fcntl",
        }
    }

    /// The call of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.name() == name)
    }
}

/// Makes the file that calls are made on, of `len` bytes, whole blocks of 4 KiB.
pub(crate) fn prepare(dir: BorrowedFd<'_>, len: u64) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, FILE, flags, Mode::from_raw_mode(0o644))?;
    // Bytes that no layer can keep as a hole or as zeros.
    let block: Vec<u8> = (0..BLOCK as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for offset in (0..len).step_by(BLOCK) {
        if rustix::io::pwrite(&file, &block, offset)? < BLOCK {
            return Err(Errno::NOSPC);
        }
    }
    rustix::fs::fsync(&file)
}

/// Times `count` calls, or as many as `tell` says there is time for, by turns in each of `dirs`, which show the same directory. Nanoseconds of each.
pub(crate) fn time(
    dirs: &[OwnedFd],
    call: Call,
    count: u64,
    mut tell: impl FnMut() -> bool,
) -> Result<Vec<u64>, Errno> {
    let direct = if call == Call::Read { OFlags::DIRECT } else { OFlags::empty() };
    let open = |dir: &OwnedFd| {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(dir, FILE, flags | direct, Mode::empty()) {
            // Without direct I/O it goes through the page cache, which is told to drop the file before each.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => rustix::fs::openat(dir, FILE, flags, Mode::empty()),
            opened => opened,
        }
    };
    let files = dirs.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let blocks = rustix::fs::fstat(&files[0])?.st_size.unsigned_abs() / BLOCK as u64;
    let mut timer = Timer { buffer: vec![0; 2 * BLOCK], turn: u64::from(std::process::id()), blocks };
    let mut delays = Vec::with_capacity(count as usize);
    for number in 0..count as usize {
        let (dir, file) = (&dirs[number % dirs.len()], &files[number % files.len()]);
        delays.push(timer.once(call, dir.as_fd(), file.as_fd(), number)?);
        // Whole rounds: a file that was renamed gets its name back.
        if !tell() && number % 2 == 1 {
            break;
        }
    }
    Ok(delays)
}

/// Times how long it takes to make a file of this name and to remove it. Nanoseconds of each.
pub(crate) fn visit(
    dir: BorrowedFd<'_>,
    name: &str,
    count: u64,
    mut tell: impl FnMut() -> bool,
) -> Result<Vec<u64>, Errno> {
    let mut delays = Vec::new();
    for _ in 0..count {
        let begun = system::monotonic_ns();
        make_and_remove(dir, name)?;
        delays.push(system::monotonic_ns() - begun);
        if !tell() {
            break;
        }
    }
    Ok(delays)
}

fn make_and_remove(dir: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    drop(rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o644))?);
    rustix::fs::unlinkat(dir, name, AtFlags::empty())
}

struct Timer {
    buffer: Vec<u8>,
    turn: u64,
    /// Of the file.
    blocks: u64,
}

impl Timer {
    fn once(
        &mut self,
        call: Call,
        dir: BorrowedFd<'_>,
        file: BorrowedFd<'_>,
        number: usize,
    ) -> Result<u64, Errno> {
        let offset = self.place();
        let start = self.buffer.as_ptr().align_offset(BLOCK);
        let block = &mut self.buffer[start..start + BLOCK];
        if call == Call::Read {
            // Advice: where reads are direct it changes nothing.
            _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
        }
        let begun = system::monotonic_ns();
        match call {
            Call::Read => {
                rustix::io::pread(file, block, offset)?;
            }
            Call::Write => {
                block[0] = number as u8;
                rustix::io::pwrite(file, block, offset)?;
                rustix::fs::fsync(file)?;
            }
            Call::Create => make_and_remove(dir, MADE)?,
            Call::Rename if number % 2 == 0 => rustix::fs::renameat(dir, FILE, dir, RENAMED)?,
            Call::Rename => rustix::fs::renameat(dir, RENAMED, dir, FILE)?,
            Call::Stat => {
                let flags = AtFlags::STATX_FORCE_SYNC;
                rustix::fs::statx(dir, FILE, flags, StatxFlags::BASIC_STATS).map(|_| ())?;
            }
            Call::Flock => {
                rustix::fs::flock(file, FlockOperation::LockExclusive)?;
                rustix::fs::flock(file, FlockOperation::Unlock)?;
            }
            Call::Fcntl => {
                rustix::fs::fcntl_lock(file, FlockOperation::LockExclusive)?;
                rustix::fs::fcntl_lock(file, FlockOperation::Unlock)?;
            }
        }
        Ok(system::monotonic_ns() - begun)
    }

    /// A block of the file, never the same twice in a row: multiples of the golden ratio.
    fn place(&mut self) -> u64 {
        self.turn = self.turn.wrapping_add(1);
        let fraction = self.turn.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(fraction) * u128::from(self.blocks)) >> 64) as u64 * BLOCK as u64
    }
}

const FILE: &str = "file";
const RENAMED: &str = "renamed";
const MADE: &str = "made";
const BLOCK: usize = 4096;
