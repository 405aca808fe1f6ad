//! The clocks, read together.

use rustix::time::{ClockId, clock_gettime};
use types::{Micros, Timespec};

/// Time since the machine started, suspension included: for leases, hold times and patience.
pub(crate) fn now() -> Micros {
    let time = clock_gettime(ClockId::Boottime);
    Micros(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}

/// The time of day: for stamps of files.
pub(crate) fn wall() -> Timespec {
    let time = clock_gettime(ClockId::Realtime);
    Timespec { secs: time.tv_sec, nanos: time.tv_nsec as u32 }
}

/// Both, as a node's core wants them.
pub(crate) fn for_core() -> vfs::Clock {
    vfs::Clock { now: now(), wall: wall() }
}

/// Both, as a master wants them.
pub(crate) fn for_master() -> master::Clock {
    master::Clock { now: now(), wall: wall() }
}
