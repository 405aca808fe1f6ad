//! Who waits for a file's content has his turn, whoever asks meanwhile.
//!
//! A master alone; the test plays three nodes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{A, B, Rig, make};
use master::{Output, PeerId};
use meta::FileKind;
use types::{Ino, LockMode, NodeId, OpSeq, ResourceId, Timespec};
use wire::{FromMaster, ToMaster, Want};

const C: PeerId = PeerId(3);
const F: Ino = Ino(50);
const CONTENT: ResourceId = ResourceId::file(F);

/// Sends a message, takes in whatever is told of changes, and returns the requests that are granted content, and how.
fn granted(rig: &mut Rig, peer: PeerId, message: ToMaster) -> Vec<(PeerId, LockMode)> {
    let mut outputs = rig.tell(peer, message);
    let mut granted = Vec::new();
    while let Some(output) = outputs.pop() {
        match output {
            Output::Send { peer, message: FromMaster::Forget { seq, .. } } => {
                outputs.extend(rig.tell(peer, ToMaster::Forgotten { seq, open: Vec::new() }));
            }
            Output::Send { peer, message: FromMaster::Acquired { grants, error, .. } } => {
                assert_eq!(error, None);
                granted.extend(grants.iter().filter(|g| g.resource == CONTENT).map(|g| (peer, g.mode)));
            }
            _ => {}
        }
    }
    granted
}

fn ask(rig: &mut Rig, peer: PeerId, request: u64, want: Want) -> Vec<(PeerId, LockMode)> {
    granted(rig, peer, ToMaster::Acquire { request, want, ahead: wire::Ahead::default() })
}

fn give(rig: &mut Rig, peer: PeerId, resource: ResourceId, to: LockMode) -> Vec<(PeerId, LockMode)> {
    granted(rig, peer, ToMaster::Release { list: vec![(resource, to)], open: Vec::new() })
}

/// Goal: two nodes that read a file all the time do not keep a third from writing it for ever. Method: each gives the file back when it is
/// asked for it, and asks again at once.
#[test]
fn readers_do_not_let_one_another_in_past_a_writer() {
    let mut rig = Rig::new();
    for peer in [A, B, C] {
        rig.join(peer, NodeId(0));
    }
    let (now, op) = (Timespec::default(), make(F, b"f", FileKind::File, b""));
    rig.tell(A, ToMaster::Ship { seq: OpSeq(1), acked: OpSeq(0), now, op, spent: Vec::new() });
    give(&mut rig, A, ResourceId::dir(Ino::ROOT), LockMode::Pr);
    for peer in [B, C] {
        ask(&mut rig, peer, 1, Want::Directory { ino: Ino::ROOT });
    }
    let (read, write) = (Want::Read { ino: F }, Want::Write { ino: F });
    assert_eq!(ask(&mut rig, C, 2, write), [(C, LockMode::Ex)], "it has tokens of its own now");
    give(&mut rig, C, CONTENT, LockMode::Nl);
    for peer in [A, B] {
        assert_eq!(ask(&mut rig, peer, 3, read), [(peer, LockMode::Pr)]);
    }
    assert_eq!(ask(&mut rig, C, 4, write), []);

    assert_eq!(give(&mut rig, A, CONTENT, LockMode::Nl), []);
    assert_eq!(ask(&mut rig, A, 5, read), [], "the writer was there before");
    assert_eq!(ask(&mut rig, A, 6, Want::Open { ino: F }), [], "opened, and nothing of its content");
    assert_eq!(give(&mut rig, B, CONTENT, LockMode::Nl), [(C, LockMode::Ex)]);
    assert_eq!(ask(&mut rig, B, 7, read), []);
    let mut both = give(&mut rig, C, CONTENT, LockMode::Nl);
    both.sort_unstable_by_key(|(peer, _)| peer.0);
    assert_eq!(both, [(A, LockMode::Pr), (B, LockMode::Pr)]);
}
