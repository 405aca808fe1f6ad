//! Processors of this machine.

use std::cell::RefCell;
use std::fs;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

thread_local! {
    /// Where this thread might run before it was bound.
    static HOME: RefCell<Option<CpuSet>> = const { RefCell::new(None) };
}

/// Returns how many processors the machine may ever have: the kernel has a queue for each.
pub(crate) fn possible_count() -> io::Result<usize> {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    numbers(&list).map(|cpus| cpus.len()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The processors that run.
pub(crate) fn online() -> Option<Vec<usize>> {
    numbers(&fs::read_to_string("/sys/devices/system/cpu/online").ok()?)
}

/// Where this thread may run.
pub(crate) fn allowed() -> CpuSet {
    sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new())
}

/// Binds this thread to one processor of `allowed`; returns whether it is.
pub(crate) fn bind(allowed: &CpuSet, cpu: usize) -> bool {
    if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
        return false;
    }
    let mut one = CpuSet::new();
    one.set(cpu);
    let is_bound = sched_setaffinity(None, &one).is_ok();
    HOME.set(is_bound.then_some(*allowed));
    is_bound
}

/// Where threads may run that this one starts, if it has been bound.
pub(crate) fn home() -> Option<CpuSet> {
    HOME.with_borrow(Clone::clone)
}

/// Lets this thread run where `allowed` says.
pub(crate) fn unbind(allowed: &CpuSet) {
    _ = sched_setaffinity(None, allowed);
}

/// The numbers of a list like `0-3,8`; `None` if it is none.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(numbers("0\n"), Some(vec![0]));
        assert_eq!(numbers("0-3\n"), Some(vec![0, 1, 2, 3]));
        assert_eq!(numbers("0-1,8,10-11"), Some(vec![0, 1, 8, 10, 11]));
        assert_eq!(numbers("\n"), None);
    }
}
