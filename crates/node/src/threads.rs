//! Starting threads. ARCHITECTURE.md lists them all.

use std::thread::JoinHandle;

use crate::error::NodeError;
use crate::fail_stop;

/// Starts a thread called `name`, at most 15 bytes long, that the node does not do without: a panic in it ends the process.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, NodeError> {
    let what = format!("the thread {name}");
    spawn_loose(name, move || fail_stop::guarded(&what, work))
}

/// Starts a thread called `name`, at most 15 bytes long, whose end by a panic hurts none but who waits for what it does.
pub(crate) fn spawn_loose<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, NodeError> {
    debug_assert!(name.len() <= 15, "the kernel cuts the name {name}");
    fuse::spawn(name.to_owned(), work).map_err(|source| NodeError::io("start a thread", source))
}

/// Waits for a thread's end. What it panicked with is in the log already.
pub(crate) fn join<T>(thread: JoinHandle<T>) -> Option<T> {
    let name = thread.thread().name().unwrap_or("unnamed").to_owned();
    thread.join().map_err(|_| log::error!("thread {name} panicked")).ok()
}
