//! Waits for lulls: for the lock of each directory, once, on a thread that ends when none is left to wait for.
//!
//! A notification of a name takes the lock, also where nobody has that name. It may wait for as long as an operation of this
//! kernel does; lulls behind it come late then, or are given up where there are too many.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::sync::Arc;

use parking_lot::Mutex;
use types::Ino;

use super::Shared;

/// Those that are waited for.
#[derive(Debug, Default)]
pub(super) struct Lulls(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// Directories, and what to tell.
    waiting: VecDeque<(Ino, u16)>,
    /// Whether a thread waits for the first of them.
    is_served: bool,
}

impl Lulls {
    pub fn clear(&self) {
        self.0.lock().waiting.clear();
    }
}

/// Has the owner told when one comes. Never blocks.
pub(super) fn wait(shared: &Arc<Shared>, dir: Ino, number: u16) {
    // Otherwise a name would be dropped, with what is mounted below it.
    if !shared.notify.has_expire_only() {
        return;
    }
    let mut queue = shared.lulls.0.lock();
    if queue.waiting.len() >= WAITING_MAX {
        queue.waiting.pop_front();
    }
    queue.waiting.push_back((dir, number));
    if queue.is_served {
        return;
    }
    let this = Arc::clone(shared);
    match fuse::spawn(format!("{}-lull", shared.config.name), move || serve(&this)) {
        Ok(_) => queue.is_served = true,
        Err(error) => {
            queue.waiting.clear();
            log::warn!("no thread to wait for a lull: {error}");
        }
    }
}

fn serve(shared: &Arc<Shared>) {
    loop {
        let next = {
            let mut queue = shared.lulls.0.lock();
            let next = queue.waiting.pop_front();
            queue.is_served = next.is_some();
            next
        };
        let Some((dir, number)) = next else { return };
        match shared.notify.expire_entry(dir.0, OsStr::new(NOBODYS_NAME)) {
            Ok(_) => (shared.hooks.lull)(dir, number),
            Err(error) => log::debug!("no lull of directory {dir}: {error}"),
        }
    }
}

/// If somebody has it, it is looked up once more.
const NOBODYS_NAME: &str = ".holdfast-lull";
/// More are given up, the oldest first.
const WAITING_MAX: usize = 1024;
