//! The lock that keeps a second process, or a second handle of this one, from a volume.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use kv::{EngineError, Result};

/// An exclusive lock on the volume's lock file, given free on drop.
///
/// The lock belongs to the open file, of which a child between fork and exec has a copy; so dropping unlocks,
/// rather than closes: the volume can be opened again at once, whatever children are being started.
pub(crate) struct VolumeLock(File);

impl VolumeLock {
    /// `Unavailable` where another has it.
    pub fn acquire(path: &Path) -> Result<Self> {
        let fail = |source| EngineError::write("locking", path, source);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => {
                let what = format!("{} is locked by another process or handle", path.display());
                Err(EngineError::Unavailable { what, source: None })
            }
            Err(TryLockError::Error(source)) => Err(fail(source)),
        }
    }
}

impl Drop for VolumeLock {
    fn drop(&mut self) {
        // Where this fails, closing does it as soon as there is no copy.
        _ = self.0.unlock();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_copy_in_a_child_that_is_being_started_does_not_keep_the_lock() {
        let path = std::env::temp_dir().join(format!("kv-fjall-lock-{}", std::process::id()));
        let lock = VolumeLock::acquire(&path).unwrap();
        assert!(VolumeLock::acquire(&path).is_err());
        let copy = lock.0.try_clone().unwrap();
        drop(lock);
        VolumeLock::acquire(&path).unwrap();
        drop(copy);
        std::fs::remove_file(&path).unwrap();
    }
}
