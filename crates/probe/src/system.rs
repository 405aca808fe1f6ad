//! System calls without a safe form in what we depend on. The only place of this crate with `unsafe`.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    in_ns(clock_gettime(ClockId::Monotonic))
}

/// CPU time of this process.
pub(crate) fn cpu_ns() -> u64 {
    in_ns(clock_gettime(ClockId::ProcessCPUTime))
}

fn in_ns(time: Timespec) -> u64 {
    // Neither clock is ever negative.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Makes the calling thread FIFO real time of priority 79: only what is more urgent yet runs before it.
#[expect(unsafe_code, reason = "rustix has no scheduling policies")]
pub(crate) fn set_fifo() -> io::Result<()> {
    unsafe extern "C" {
        fn sched_setscheduler(pid: i32, policy: i32, param: *const i32) -> i32;
    }
    let priority = FIFO_PRIORITY;
    // SAFETY: `struct sched_param` of Linux is one int; 0 means the calling thread.
    match unsafe { sched_setscheduler(0, SCHED_FIFO, &raw const priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts the calling thread's I/O into the real-time class, at its lowest level, 7.
#[expect(unsafe_code, reason = "the C library has no ioprio_set")]
pub(crate) fn set_io_class() -> io::Result<()> {
    unsafe extern "C" {
        fn syscall(number: std::ffi::c_long, ...) -> std::ffi::c_long;
    }
    let Some(number) = IOPRIO_SET else { return Err(io::ErrorKind::Unsupported.into()) };
    // SAFETY: ioprio_set(2) takes three ints and touches no memory of ours; 0 means the calling thread.
    match unsafe { syscall(number, IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_RT << IOPRIO_CLASS_SHIFT | 7) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How a file lies on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    /// In how many pieces.
    pub count: u32,
    /// Whether one of the first [`EXTENTS_SEEN`] is compressed or encrypted: the file system then chose its length.
    pub are_encoded: bool,
}

/// Asks the file system how a file lies.
///
/// # Errors
///
/// Of the ioctl: EOPNOTSUPP where the file system does not tell.
pub(crate) fn extents(file: &std::fs::File) -> io::Result<Extents> {
    // Without room for extents they are counted only, all of them.
    let count = Fiemap::of(file, 0)?.mapped;
    let first = Fiemap::of(file, EXTENTS_SEEN)?;
    let seen = first.extents.iter().take(first.mapped as usize);
    Ok(Extents { count, are_encoded: seen.into_iter().any(|extent| extent.flags & EXTENT_ENCODED != 0) })
}

impl Fiemap {
    /// The first extents of a file, as many as there is room for.
    #[expect(unsafe_code, reason = "rustix has no FIEMAP")]
    fn of(file: &std::fs::File, count: usize) -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        unsafe extern "C" {
            fn ioctl(fd: i32, request: std::ffi::c_ulong, ...) -> i32;
        }
        let count = count.min(EXTENTS_SEEN) as u32;
        let extents = [FiemapExtent::default(); EXTENTS_SEEN];
        let mut map = Self { start: 0, length: u64::MAX, flags: 0, mapped: 0, count, reserved: 0, extents };
        // SAFETY: the kernel reads and writes the 32 bytes of the header, and behind it no more than `count` extents, for
        // which there is room.
        match unsafe { ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) } {
            0 => Ok(map),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Bytes of a block of the file system; 4096 where it does not tell.
pub(crate) fn block_size(path: &std::path::Path) -> u64 {
    rustix::fs::statvfs(path).map_or(4096, |found| found.f_bsize)
}

/// `struct fiemap` with room for its first extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [FiemapExtent; EXTENTS_SEEN],
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

// The kernel writes extents of this length.
const _: () = assert!(size_of::<FiemapExtent>() == 56 && size_of::<Fiemap>() == 32 + 56 * EXTENTS_SEEN);

/// Extents of a file whose flags are looked at.
const EXTENTS_SEEN: usize = 64;
/// `FIEMAP_EXTENT_ENCODED`.
const EXTENT_ENCODED: u32 = 8;

/// SIGINT, SIGTERM and SIGHUP as something to read. Taken away from their default action for this thread and all it
/// starts: call it before any other thread is started.
pub(crate) struct Signals(OwnedFd);

impl Signals {
    /// Blocks the signals in the calling thread.
    pub fn block() -> io::Result<Self> {
        blocked_signals(&[SIGHUP, SIGINT, SIGTERM]).map(Self)
    }

    /// Waits until a signal came.
    pub fn wait(&self) -> io::Result<()> {
        loop {
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        rustix::io::read(self.0.as_fd(), &mut [0u8; SIGNAL_LEN])?;
        Ok(())
    }
}

/// Has a command begin with no signal blocked, whatever this process has [blocked](Signals::block): what it starts may stay.
#[expect(unsafe_code, reason = "the standard library passes the mask of signals on")]
pub(crate) fn unblock_signals(command: &mut Command) -> &mut Command {
    unsafe extern "C" {
        fn sigemptyset(set: *mut SignalSet) -> i32;
        fn pthread_sigmask(how: i32, set: *const SignalSet, old: *mut SignalSet) -> i32;
    }
    let unblock = || {
        let mut set = SignalSet([0; 16]);
        // SAFETY: `set` is as large and aligned as the C library's `sigset_t` and outlives the calls.
        unsafe { sigemptyset(&raw mut set) };
        // SAFETY: `set` is initialised; a null `old` asks for nothing back.
        match unsafe { pthread_sigmask(SIG_SETMASK, &raw const set, std::ptr::null_mut()) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    };
    // SAFETY: both calls may be made between fork and exec (signal-safety(7)), and nothing is allocated.
    unsafe { command.pre_exec(unblock) }
}

/// Has a command be killed when the thread that starts it ends: nobody else knows of it.
#[expect(unsafe_code, reason = "the standard library has no safe way to act in the child")]
pub(crate) fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = rustix::process::getpid();
    let die_with_it = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        match rustix::process::getppid() == Some(parent) {
            true => Ok(()),
            // It ended just before, and its death is told no more.
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: both calls are system calls alone, and nothing is allocated.
    unsafe { command.pre_exec(die_with_it) }
}

/// The C library's `sigset_t`: 1,024 bits, in glibc and in musl.
#[repr(C)]
struct SignalSet([u64; 16]);

#[expect(unsafe_code, reason = "rustix has no signal masks and no signalfd")]
fn blocked_signals(signals: &[i32]) -> io::Result<OwnedFd> {
    unsafe extern "C" {
        fn sigemptyset(set: *mut SignalSet) -> i32;
        fn sigaddset(set: *mut SignalSet, signal: i32) -> i32;
        fn pthread_sigmask(how: i32, set: *const SignalSet, old: *mut SignalSet) -> i32;
        fn signalfd(fd: i32, set: *const SignalSet, flags: i32) -> i32;
    }
    let mut set = SignalSet([0; 16]);
    // SAFETY: `set` is as large and aligned as the C library's `sigset_t` and outlives the calls.
    unsafe { sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: as above; the set is initialised.
        unsafe { sigaddset(&raw mut set, *signal) };
    }
    // SAFETY: `set` is initialised; a null `old` asks for nothing back.
    let error = unsafe { pthread_sigmask(SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: `set` is initialised; -1 asks for a new descriptor.
    let fd = unsafe { signalfd(-1, &raw const set, SFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

// Numbers of Linux on all architectures but alpha, mips, parisc and sparc.
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
const SIG_BLOCK: i32 = 0;
const SIG_SETMASK: i32 = 2;
const SFD_CLOEXEC: i32 = 0o2_000_000;
/// Length of `struct signalfd_siginfo`.
const SIGNAL_LEN: usize = 128;
const FS_IOC_FIEMAP: std::ffi::c_ulong = 0xC020_660B;
const SCHED_FIFO: i32 = 1;
/// Below the kernel's own threads that would have to run for an I/O to return (migration, watchdog: 99), above
/// threaded interrupts (50).
const FIFO_PRIORITY: i32 = 79;
const IOPRIO_WHO_PROCESS: std::ffi::c_long = 1;
const IOPRIO_CLASS_RT: std::ffi::c_long = 1;
const IOPRIO_CLASS_SHIFT: u32 = 13;
/// Number of ioprio_set(2).
const IOPRIO_SET: Option<std::ffi::c_long> = if cfg!(target_arch = "x86_64") {
    Some(251)
} else if cfg!(any(target_arch = "aarch64", target_arch = "riscv64")) {
    Some(30)
} else {
    None
};
