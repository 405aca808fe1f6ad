//! Who waits for a file's content, or for a directory, has his turn, whoever asks meanwhile.
//!
//! A master alone; the test plays three nodes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{A, B, Rig, make};
use master::{Output, PeerId};
use meta::FileKind;
use types::{Ino, LockMode, Micros, NodeId, OpSeq, ResourceId, Timespec};
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

/// Goal: who asks for a directory that others change without a pause is let in. Method: one node's changes are acknowledged one behind the
/// next, so that there is always one that is not; after 20 ms the next one waits.
#[test]
fn endless_changes_of_a_directory_let_a_newcomer_in() {
    let mut rig = Rig::new();
    for peer in [A, B, C] {
        rig.join(peer, NodeId(0));
    }
    for peer in [A, B] {
        ask(&mut rig, peer, 1, Want::Directory { ino: Ino::ROOT });
    }
    let mut count = 0;
    let mut change = |rig: &mut Rig| {
        count += 1;
        let op = make(Ino(100 + count), format!("f{count}").as_bytes(), FileKind::Fifo, b"");
        let (now, seq) = (Timespec::default(), OpSeq(count));
        let outputs = rig.tell(A, ToMaster::Ship { seq, acked: OpSeq(0), now, op, spent: Vec::new() });
        forgets(&outputs)
    };
    let acknowledge = |rig: &mut Rig, (peer, seq): (PeerId, u64)| {
        rig.tell(peer, ToMaster::Forgotten { seq, open: Vec::new() })
    };
    let is_let_in = |outputs: &[Output]| {
        let is_it = |output: &Output| matches!(output, Output::Send { peer, message: FromMaster::Acquired { .. } } if *peer == C);
        outputs.iter().any(is_it)
    };

    let mut last = change(&mut rig);
    assert_eq!(last.len(), 1, "B is told");
    let request = ToMaster::Acquire {
        request: 7,
        want: Want::Directory { ino: Ino::ROOT },
        ahead: wire::Ahead::default(),
    };
    assert!(!is_let_in(&rig.tell(C, request)));
    for _ in 0..4 {
        rig.now = rig.now + Micros(4_000);
        let next = change(&mut rig);
        assert_eq!(next.len(), 1);
        assert!(!is_let_in(&acknowledge(&mut rig, last[0])), "there is another one");
        last = next;
    }
    rig.now = rig.now + Micros(4_000);
    assert_eq!(change(&mut rig), [], "it waits behind C");
    let outputs = acknowledge(&mut rig, last[0]);
    assert!(is_let_in(&outputs));
    let mut told: Vec<PeerId> = forgets(&outputs).into_iter().map(|(peer, _)| peer).collect();
    told.sort_unstable_by_key(|peer| peer.0);
    assert_eq!(told, [B, C], "then it goes on");
}

fn forgets(outputs: &[Output]) -> Vec<(PeerId, u64)> {
    let forget = |output: &Output| match output {
        Output::Send { peer, message: FromMaster::Forget { seq, .. } } => Some((*peer, *seq)),
        _ => None,
    };
    outputs.iter().filter_map(forget).collect()
}
