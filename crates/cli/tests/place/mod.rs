//! Directories and file systems that go away with the test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that goes away with the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // In memory, so that other work on the machine's disk is not what is measured.
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let dir = base.join(format!("holdfast-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).expect("a directory of its own");
        Self(std::fs::canonicalize(dir).expect("it exists"))
    }

    /// None, with a line that says so, where nothing can be mounted.
    pub fn to_mount() -> Option<Self> {
        if Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root() {
            return Some(Self::new());
        }
        println!("SKIPPED: mounting needs root and /dev/fuse");
        None
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn names(&self) -> Vec<String> {
        names(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a directory holds.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    entries.map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8")).collect()
}

/// A file system on a loop device, unmounted with the test.
pub struct Mounted {
    pub at: PathBuf,
    pub device: Option<String>,
}

impl Mounted {
    /// None, with a line that says so, where its tools are missing.
    pub fn make(scratch: &Scratch, kind: &str) -> Option<Self> {
        let at = scratch.join(kind);
        std::fs::create_dir(&at).expect("made");
        if kind == "tmpfs" {
            sh(&format!("mount -t tmpfs -o size=16M none {}", at.display())).expect("mounted");
            return Some(Self { at, device: None });
        }
        let image = scratch.join(&format!("{kind}.img"));
        // The smallest that mkfs.xfs makes.
        std::fs::File::create(&image).and_then(|file| file.set_len(320 << 20)).expect("made");
        Self::make_on(&image, kind, at)
    }

    /// As [`make`](Self::make), on something that is there.
    pub fn make_on(image: &Path, kind: &str, at: PathBuf) -> Option<Self> {
        if sh(&format!("command -v mkfs.{kind} && mkfs.{kind} -q {}", image.display())).is_err() {
            println!("SKIPPED: {kind}: no mkfs.{kind}");
            return None;
        }
        let device = sh(&format!("losetup --find --show {}", image.display())).expect("a loop device");
        let mounted = Self { at, device: Some(device.trim().to_owned()) };
        match sh(&format!("mount -t {kind} {} {}", device.trim(), mounted.at.display())) {
            Ok(_) => Some(mounted),
            Err(error) => {
                println!("SKIPPED: {kind}: {error}");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = sh(&format!("umount -l {} 2>/dev/null", self.at.display()));
        if let Some(device) = &self.device {
            let _ = sh(&format!("losetup --detach {device}"));
        }
    }
}

/// Runs a script; its output, or its error.
pub fn sh(script: &str) -> Result<String, String> {
    let output = Command::new("sh").args(["-ec", script]).output().expect("sh(1) is there");
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(shown(&output.stdout)) } else { Err(shown(&output.stderr)) }
}
