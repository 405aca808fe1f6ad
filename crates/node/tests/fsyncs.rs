//! Who makes the syncs of a master's engine: the reader of requests for a caller who is alone, a thread of its own otherwise.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Mounted, Scratch};
use parking_lot::Mutex;

/// In memory, where a sync takes no time: on a slow disk the reader keeps away from syncs.
fn scratch(name: &str) -> Option<Scratch> {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        println!("SKIPPED: there is no /dev/shm on this machine");
        return None;
    }
    let scratch = Scratch::empty(&memory.join(format!("holdfast-{name}-{}", std::process::id())))?;
    volume::format(&scratch.volume(), &volume::FormatOptions::default()).unwrap();
    Some(scratch)
}

/// The tests go one after the other: each is measured by how soon its threads get a processor.
static TURN: Mutex<()> = Mutex::new(());

/// How often it is tried to come to what the tests want. A thread that is kept from its processor for some milliseconds makes
/// a sync look long, and the reader keeps away from the next ones.
const ROUNDS_MAX: usize = 10;

/// Writes and syncs a block so often; returns how many syncs of the engine there were, and how many of them the reader made.
fn sync_blocks(mounted: &Mounted, count: u64) -> (u64, u64) {
    let figures = || {
        let stat = mounted.ask("stat");
        let all = stat["engine_sync_duration_seconds"]["count"].as_u64().unwrap();
        (all, stat["engine_syncs_by_reader_total"].as_u64().unwrap())
    };
    let file = File::create(mounted.path("f")).unwrap();
    let before = figures();
    for number in 0..count {
        file.write_all_at(&[number as u8; 4096], number % 64 * 4096).unwrap();
        file.sync_all().unwrap();
    }
    let after = figures();
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn the_reader_syncs_for_a_caller_who_is_alone() {
    let _turn = TURN.lock();
    let Some(scratch) = scratch("alone") else { return };
    let mounted = scratch.mount("a");
    let is_by_reader = (0..ROUNDS_MAX).any(|_| {
        let (all, by_reader) = sync_blocks(&mounted, 3_000);
        println!("{all} syncs, {by_reader} of them by the reader");
        assert!(all >= 3_000, "{all} syncs");
        by_reader > all / 2
    });
    assert!(is_by_reader, "never more than half by the reader");
    let content = fs::read(mounted.path("f")).unwrap();
    mounted.unmount().unwrap();
    let again = scratch.mount("a");
    assert_eq!(fs::read(again.path("f")).unwrap(), content);
}

/// Others do not wait for somebody's syncs.
#[test]
fn the_reader_leaves_syncs_to_the_thread_while_others_ask() {
    let _turn = TURN.lock();
    let Some(scratch) = scratch("beside") else { return };
    let mounted = scratch.mount("a");
    let is_done = AtomicBool::new(false);
    let is_by_thread = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !is_done.load(Ordering::Relaxed) {
                fs::create_dir(mounted.path(&format!("d{number}"))).unwrap();
                number += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let is_by_thread = (0..ROUNDS_MAX).any(|_| {
            let (all, by_reader) = sync_blocks(&mounted, 3_000);
            println!("{all} syncs, {by_reader} of them by the reader");
            // Where the other thread gets no processor for 20 ms, nobody asks but this one.
            by_reader < all / 2
        });
        is_done.store(true, Ordering::Relaxed);
        is_by_thread
    });
    assert!(is_by_thread, "never less than half by the reader");
}
