//! Memtables are sealed in time, whatever fjall's thread is at.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use kv::{Batch, Claim, Engine};
use kv_fjall::{FjallEngine, Options};

/// Goal: small batches that come by the thousand while fjall's only thread compacts do not stop it for ever: its queue holds a thousand messages, it
/// puts some in itself, and it had one for each batch that found the memtable full. Method: small memtables above tables of many at random keys, so that
/// compactions are long; then an end, which needs that thread.
#[test]
fn many_batches_during_a_compaction_do_not_stop_it() {
    let scratch = common::Scratch::in_memory("sealing");
    let options = Options { cache_bytes: 4 << 20, memtable_bytes: 64 << 10, ..Options::default() };
    let engine = FjallEngine::open(&scratch.path().join("volume"), options, Claim::new(1)).unwrap();
    let mut rng = fastrand::Rng::with_seed(5);
    let mut write = |records: usize, len: usize| {
        let mut batch = Batch::new(engine.last_seq().next());
        batch.puts = (0..records).map(|_| (rng.u64(..).to_be_bytes().to_vec(), vec![7; len])).collect();
        engine.commit(batch).unwrap();
    };
    (0..2_000).for_each(|_| write(10, 1_000));
    let (begun, mut batches) = (Instant::now(), 0);
    let is_slow = |batches| batches <= 2_000 && begun.elapsed() < Duration::from_secs(20);
    while begun.elapsed() < Duration::from_secs(4) || is_slow(batches) {
        write(1, 100);
        batches += 1;
    }
    assert!(batches > 2_000, "{batches} batches: each waited for something");
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(Box::new(engine).close().is_ok()));
    assert_eq!(ended.recv_timeout(Duration::from_secs(120)), Ok(true), "the engine ends");
}
