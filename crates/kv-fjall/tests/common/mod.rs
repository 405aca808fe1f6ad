//! What the tests of this crate share.
#![allow(dead_code, missing_docs, clippy::unwrap_used, reason = "each test file uses a part")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use kv::{Batch, Claim, Result, Seq};
use kv_fjall::{FjallEngine, Options};

/// A directory that is removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        Self::below(&std::env::temp_dir(), name)
    }

    /// In memory, where there is one to write to: for what the death of a process shows, and not the loss of power.
    /// A disk that is busy with other work takes seconds for a sync.
    pub fn in_memory(name: &str) -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::below(memory, name) } else { Self::new(name) }
    }

    fn below(base: &Path, name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = base.join(format!("holdfast-kv-{name}-{}-{count}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn open(dir: &Path, generation: u64) -> Result<FjallEngine> {
    FjallEngine::open(dir, Options::default(), Claim::new(generation))
}

/// Batch `seq`: its own key, and a key that every batch writes.
pub fn batch(seq: u64, value_len: usize) -> Batch {
    let own = (key(seq), vec![seq as u8; value_len]);
    Batch { puts: vec![own, (b"last".to_vec(), seq.to_be_bytes().to_vec())], ..Batch::new(Seq(seq)) }
}

pub fn key(seq: u64) -> Vec<u8> {
    [b"k".as_slice(), &seq.to_be_bytes()].concat()
}
