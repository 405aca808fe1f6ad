//! Processors of this machine.

use std::cell::RefCell;
use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

thread_local! {
    /// Where this thread might run before it was bound.
    static HOME: RefCell<Option<CpuSet>> = const { RefCell::new(None) };
}

/// Returns how many processors the machine may ever have: the kernel has a queue for each.
pub(crate) fn possible_count() -> Option<usize> {
    Some(count(&fs::read_to_string("/sys/devices/system/cpu/possible").ok()?))
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

/// How many numbers a list like `0-3,8` has.
fn count(list: &str) -> usize {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    });
    ranges.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(count("0\n"), 1);
        assert_eq!(count("0-3\n"), 4);
        assert_eq!(count("0-3,8,10-11"), 7);
        assert_eq!(count("\n"), 0);
    }
}
