//! Threads that leave a reader its CPU.
//!
//! A CPU that runs nothing but a reader that has stepped back counts as idle. So the scheduler wakes other threads there, where another CPU sleeps
//! or not, and the reader gets next to nothing until they wait again: milliseconds, where they have much to do. Of threads of this process that
//! is spared by keeping them off that CPU, for as long as the reader is bound to it.

use std::marker::PhantomData;

use parking_lot::Mutex;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// Those that stand aside, and where they may run otherwise while they are kept from a CPU.
static ASIDE: Mutex<Vec<(Pid, Option<CpuSet>)>> = Mutex::new(Vec::new());

/// As long as it lives, the thread that made it leaves readers their CPUs.
#[derive(Debug)]
#[must_use = "the thread stands aside as long as this lives"]
pub struct Aside(Pid, PhantomData<*const ()>);

/// Has the calling thread leave a reader the CPU that it is bound to, if there is another one. For threads that work long at a time.
pub fn stand_aside() -> Aside {
    let thread = rustix::thread::gettid();
    ASIDE.lock().push((thread, None));
    Aside(thread, PhantomData)
}

impl Drop for Aside {
    fn drop(&mut self) {
        let mut list = ASIDE.lock();
        if let Some(at) = list.iter().position(|(thread, _)| *thread == self.0)
            && let (_, Some(home)) = list.swap_remove(at)
        {
            _ = sched_setaffinity(None, &home);
        }
    }
}

/// Where the calling thread may run, if it is kept from a CPU.
pub(super) fn home() -> Option<CpuSet> {
    let this = rustix::thread::gettid();
    ASIDE.lock().iter().find(|(thread, _)| *thread == this)?.1.clone()
}

/// Has them leave this CPU alone. One that runs there goes.
pub(super) fn leave(cpu: usize) {
    for (thread, home) in &mut *ASIDE.lock() {
        let Some(allowed) = home.take().or_else(|| sched_getaffinity(Some(*thread)).ok()) else { continue };
        let mut others = allowed.clone();
        others.unset(cpu);
        if others.count() > 0 {
            _ = sched_setaffinity(Some(*thread), &others);
            *home = Some(allowed);
        }
    }
}

/// Lets them run where they may.
pub(super) fn come_back() {
    for (thread, home) in &mut *ASIDE.lock() {
        if let Some(allowed) = home.take() {
            _ = sched_setaffinity(Some(*thread), &allowed);
        }
    }
}
