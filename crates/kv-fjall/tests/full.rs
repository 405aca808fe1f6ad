//! A full disk, on a small file system in memory. Needs the right to mount and is skipped without it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use kv::{Engine, EngineError, Seq};
use rustix::mount::{MountFlags, UnmountFlags};

mod common;
use common::{Scratch, batch, open};

/// A tmpfs that is unmounted at the end.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    fn new(dir: &'a Path, options: &std::ffi::CStr) -> Option<Self> {
        rustix::mount::mount("tmpfs", dir, "tmpfs", MountFlags::empty(), Some(options)).ok()?;
        Some(Self(dir))
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, UnmountFlags::DETACH);
    }
}

/// Commits until it fails; returns the last answered batch and the error.
fn commit_until_error(engine: &dyn Engine, value_len: usize) -> (Seq, EngineError) {
    let started = Instant::now();
    loop {
        let last = engine.last_seq();
        if let Err(error) = engine.commit(batch(last.next().0, value_len)) {
            return (last, error);
        }
        assert!(started.elapsed() < Duration::from_secs(15), "the disk never fills");
    }
}

fn check_a_full_disk(size: &std::ffi::CStr, value_len: usize) {
    let scratch = Scratch::new("full");
    let Some(_mount) = Mount::new(scratch.path(), size) else {
        eprintln!("skipped: may not mount");
        return;
    };
    let dir = scratch.path().join("volume");
    let filler = scratch.path().join("filler");
    fs::write(&filler, vec![1; 8 << 20]).unwrap();
    let engine = open(&dir, 1).unwrap();
    engine.commit(batch(1, value_len)).unwrap();
    let synced = engine.sync().unwrap();
    let (last, error) = commit_until_error(&engine, value_len);
    assert!(matches!(error, EngineError::Full { .. }), "{error:?}");
    for _ in 0..2 {
        assert!(matches!(engine.commit(batch(last.next().0, 1)), Err(EngineError::Poisoned { .. })));
        assert!(matches!(engine.sync(), Err(EngineError::Poisoned { .. })));
    }
    assert_eq!(engine.get(b"last").unwrap(), Some(last.0.to_be_bytes().to_vec()));
    drop(engine);
    // Still full: refused without harm, whether the flush of what is in the journals fails before the claim
    // is written or with it. With room again: all that was answered is there.
    for claim in 2..22 {
        if let Err(error) = open(&dir, claim) {
            assert!(matches!(error, EngineError::Full { .. }), "{error:?}");
        }
    }
    fs::remove_file(&filler).unwrap();
    let engine = open(&dir, 22).unwrap();
    assert!(engine.last_seq() >= last && last >= synced);
    let next = engine.last_seq().next();
    engine.commit(batch(next.0, 100)).unwrap();
    assert_eq!(engine.sync().unwrap(), next);
}

#[test]
fn a_disk_that_fills_under_a_commit_gives_full_and_poisons() {
    check_a_full_disk(c"size=24m", 10_000);
}

#[test]
fn a_disk_that_fills_under_a_flush_gives_full_and_never_hangs() {
    check_a_full_disk(c"size=50m", 10_000);
}
