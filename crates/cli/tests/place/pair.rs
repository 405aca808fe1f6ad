//! A volume mounted twice.

use std::path::{Path, PathBuf};

use crate::place::{Scratch, sh};

const BINARY: &str = env!("CARGO_BIN_EXE_holdfast");

/// Unmounted with the test.
pub struct Volume {
    pub mounts: [PathBuf; 2],
}

impl Volume {
    /// `at`: where the volume is made.
    pub fn mount(scratch: &Scratch, at: &Path) -> Self {
        sh(&format!("{BINARY} format {}", at.display())).expect("made");
        let mounts = ["a", "b"].map(|name| scratch.join(name));
        for mount in &mounts {
            std::fs::create_dir(mount).expect("made");
            sh(&format!("{BINARY} mount {} {}", at.display(), mount.display())).expect("mounted");
        }
        Self { mounts }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        for mount in &self.mounts {
            _ = sh(&format!("{BINARY} umount {0} || umount -l {0}", mount.display()));
        }
    }
}
