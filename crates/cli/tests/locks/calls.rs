//! fcntl(2) with byte ranges, and signals that interrupt: what has no safe form.

use std::ffi::{c_int, c_long, c_short, c_ulong};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::history::{Answer, Mode, UNIT};

/// `struct flock` of 64-bit Linux.
#[repr(C)]
struct Flock {
    kind: c_short,
    whence: c_short,
    start: c_long,
    len: c_long,
    pid: c_int,
}

/// Whose locks a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Process,
    Description,
}

#[expect(unsafe_code, reason = "of libc")]
unsafe extern "C" {
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
    fn siginterrupt(number: c_int, flag: c_int) -> c_int;
    fn pthread_self() -> c_ulong;
    fn pthread_kill(thread: c_ulong, number: c_int) -> c_int;
}

/// Sets or gives up a range of units; a length of 0 reaches beyond the end.
pub fn set(file: BorrowedFd<'_>, of: Of, mode: Mode, range: (u64, u64), wait: bool) -> Answer {
    let command = match (of, wait) {
        (Of::Process, false) => 6,
        (Of::Process, true) => 7,
        (Of::Description, false) => 37,
        (Of::Description, true) => 38,
    };
    match call(file, command, mode, range) {
        Ok(_) => Answer::Done,
        Err(errno) => Answer::of_errno(errno),
    }
}

/// Asks for what is in the way.
pub fn test(file: BorrowedFd<'_>, of: Of, mode: Mode, range: (u64, u64)) -> Answer {
    let command = match of {
        Of::Process => 5,
        Of::Description => 36,
    };
    let unit = |bytes: c_long| bytes.unsigned_abs() / UNIT;
    match call(file, command, mode, range) {
        Ok(Flock { kind: UNLOCK, .. }) => Answer::Free,
        Ok(found) => {
            let mode = if found.kind == WRITE { Mode::Exclusive } else { Mode::Shared };
            Answer::Found { mode, start: unit(found.start), len: unit(found.len) }
        }
        Err(errno) => Answer::of_errno(errno),
    }
}

#[expect(unsafe_code, reason = "nobody offers byte ranges")]
fn call(file: BorrowedFd<'_>, command: c_int, mode: Mode, (start, len): (u64, u64)) -> Result<Flock, i32> {
    let kind = match mode {
        Mode::Shared => 0,
        Mode::Exclusive => WRITE,
        Mode::None => UNLOCK,
    };
    let bytes = |units: u64| (units * UNIT) as c_long;
    let mut lock = Flock { kind, whence: 0, start: bytes(start), len: bytes(len), pid: 0 };
    // SAFETY: these commands take a pointer to a `struct flock`, which outlives the call.
    match unsafe { fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        _ => Ok(lock),
    }
}

/// From now on this thread is interrupted again and again, after a time that `pause` draws.
#[expect(unsafe_code, reason = "a handler that does nothing, without SA_RESTART, and a signal to one thread")]
pub fn interrupt_this_thread(mut pause: impl FnMut() -> Duration + Send + 'static) {
    extern "C" fn nothing(_: c_int) {}
    // SAFETY: the handler does nothing, and the thread that is signalled lives as long as the process.
    let thread = unsafe {
        signal(SIGUSR1, nothing);
        siginterrupt(SIGUSR1, 1);
        pthread_self()
    };
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(pause());
            // SAFETY: as above.
            unsafe { pthread_kill(thread, SIGUSR1) };
        }
    });
}

const WRITE: c_short = 1;
const UNLOCK: c_short = 2;
const SIGUSR1: c_int = 10;
