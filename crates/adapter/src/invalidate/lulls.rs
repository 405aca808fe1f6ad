//! Waits for lulls: for the lock of each directory, once, on a thread that ends when none is left to wait for.
//!
//! A notification of a name takes the lock; some kernels do not where nobody has that name, and say so. It may wait for as long as
//! an operation of this kernel does; lulls behind it come late then, or are given up where there are too many.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fuse::Notified;
use parking_lot::Mutex;
use types::{Ino, Name};

use super::Shared;

/// Those that are waited for.
#[derive(Debug, Default)]
pub(super) struct Lulls(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Lull>,
    /// Whether a thread waits for the first of them.
    is_served: bool,
}

/// A lull that is waited for.
#[derive(Debug)]
pub(super) struct Lull {
    pub dir: Ino,
    /// A name that the kernel has there.
    pub name: Name,
    /// To be told.
    pub number: u16,
}

impl Lulls {
    pub fn clear(&self) {
        self.0.lock().waiting.clear();
    }
}

/// Has the owner told when it comes. Never blocks.
pub(super) fn wait(shared: &Arc<Shared>, lull: Lull) {
    // Otherwise a name would be dropped, with what is mounted below it.
    if !shared.notify.has_expire_only() {
        return;
    }
    let mut queue = shared.lulls.0.lock();
    // The newer one says more.
    queue.waiting.retain(|waiting| waiting.dir != lull.dir);
    if queue.waiting.len() >= WAITING_MAX {
        queue.waiting.pop_front();
    }
    queue.waiting.push_back(lull);
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
        let Some(Lull { dir, name, number }) = next else { return };
        match shared.notify.expire_entry(dir.0, OsStr::from_bytes(name.as_bytes())) {
            Ok(Notified::Done) => {
                let told = catch_unwind(AssertUnwindSafe(|| (shared.hooks.lull)(dir, number)));
                if told.is_err() {
                    log::error!("the report of a lull panicked");
                }
            }
            Ok(Notified::Absent) => {}
            Err(error) => log::debug!("no lull of directory {dir}: {error}"),
        }
    }
}

/// More are given up, the oldest first.
const WAITING_MAX: usize = 256;
