//! The end of a node that found a defect in itself.
//!
//! A panic in a core leaves a state that nobody can vouch for, and one in a thread that the node does not do without leaves a mount that
//! answers nobody. Better no node than one that goes on: its process ends, and with it the mount answers errors and the
//! membership ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fuse::mount::Mount;
use parking_lot::Mutex;

/// Calls into a core, or does a thread's work; a panic ends the process.
pub(crate) fn guarded<T>(what: &str, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        log::error!("defect in {what}; the node stops to protect the volume");
        // A thread that waits in the kernel for an answer of ours would keep the process from ending.
        for mount in MOUNTS.lock().iter() {
            if let Err(error) = mount.abort() {
                log::error!("{error}");
            }
        }
        std::process::exit(EXIT_DEFECT)
    })
}

/// A mount whose connection is to be aborted when the process stops. Dropping it takes it off the list.
#[derive(Debug)]
pub(crate) struct Listed(Arc<Mount>);

impl Listed {
    pub fn new(mount: &Arc<Mount>) -> Self {
        MOUNTS.lock().push(Arc::clone(mount));
        Self(Arc::clone(mount))
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        MOUNTS.lock().retain(|listed| !Arc::ptr_eq(listed, &self.0));
    }
}

/// One per node in this process: a stop ends them all.
static MOUNTS: Mutex<Vec<Arc<Mount>>> = Mutex::new(Vec::new());

/// EX_SOFTWARE of sysexits(3).
const EXIT_DEFECT: i32 = 70;
