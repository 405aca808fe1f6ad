//! Batches of the write-behind log.
//!
//! A core alone; the test plays the master.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{CLOCK, file, member, root_grant};
use meta::Change;
use types::Ino;
use vfs::{Core, Output, Request, RequestId};
use wire::{FromMaster, ToMaster};

/// Goal: who makes many names says so in whole batches, which a driver is told of. Method: names are made in a directory held
/// in EX until two batches are full.
#[test]
fn a_full_batch_goes_in_one_message_and_is_announced_as_long() {
    let mut core = member();
    core.submit(CLOCK, RequestId(1), Request::Lookup { parent: Ino::ROOT, name: b"a"[..].into() });
    let mut batches = take_batches(&mut core);
    let mut announced = 0;
    for n in 0..12_000_u32 {
        assert!(core.submit(CLOCK, RequestId(u64::from(n) + 2), make(n)).is_some(), "it is done here");
        announced += usize::from(core.has_bulk());
        batches.extend(take_batches(&mut core));
    }
    assert!(batches.len() >= 2, "{} batches", batches.len());
    assert_eq!(announced, batches.len());
    for changes in &batches {
        let records = changes.iter().filter(|change| matches!(change, Change::PutDirectory { .. })).count();
        assert_eq!(records, 1, "of a directory in which many names were made the last record counts");
        assert!(changes.len() > 1_000);
    }
}

fn make(n: u32) -> Request {
    Request::Make { parent: Ino::ROOT, name: format!("f{n:07}").as_bytes().into(), spec: file() }
}

/// Hands outputs on and returns the changes of batches among them.
fn take_batches(core: &mut Core) -> Vec<Vec<Change>> {
    let mut batches = Vec::new();
    while let Some(output) = core.poll_output() {
        match output {
            Output::Send(ToMaster::Acquire { request, .. }) => {
                let grants = vec![root_grant()];
                let answer = FromMaster::Acquired { request, error: None, grants, seen: 0, glimpse: None };
                core.handle_message(CLOCK, answer);
            }
            Output::Send(ToMaster::Batch { changes, .. }) => batches.push(changes.to_vec()),
            Output::Send(ToMaster::BatchPart { .. }) => panic!("a full batch went in parts"),
            _ => {}
        }
    }
    batches
}
