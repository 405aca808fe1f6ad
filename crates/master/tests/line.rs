//! Who waits for a file's content, or for a directory, has his turn, whoever asks meanwhile.
//!
//! A master alone; the test plays three nodes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{A, B, Rig, make};
use master::{Output, PeerId};
use meta::{FileKind, Op};
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

/// Goal: who looks at a file that changes is told at once, and once: neither content nor a word of it would have him ask again without end. Method: the
/// times of a file that B reads are changed; before B has acknowledged that, C looks at it.
#[test]
fn who_looks_at_a_file_while_its_change_is_told_learns_all_at_once() {
    let mut rig = Rig::new();
    for peer in [A, B, C] {
        rig.join(peer, NodeId(0));
    }
    let now = Timespec::default();
    let ship =
        |seq: u64, op: Op| ToMaster::Ship { seq: OpSeq(seq), acked: OpSeq(0), now, op, spent: Vec::new() };
    rig.tell(A, ship(1, make(F, b"f", FileKind::File, b"")));
    give(&mut rig, A, ResourceId::dir(Ino::ROOT), LockMode::Pr);
    for peer in [B, C] {
        ask(&mut rig, peer, 1, Want::Directory { ino: Ino::ROOT });
    }
    assert_eq!(
        ask(&mut rig, C, 2, Want::Write { ino: F }),
        [(C, LockMode::Ex)],
        "it has tokens of its own now"
    );
    give(&mut rig, C, CONTENT, LockMode::Nl);
    assert_eq!(ask(&mut rig, B, 3, Want::Read { ino: F }), [(B, LockMode::Pr)]);
    let later = Timespec { secs: 7, nanos: 0 };
    let set = meta::ops::AttrSet { mtime: Some(later), ..Default::default() };
    let told = forgets(&rig.tell(A, ship(2, Op::SetAttr { ino: F, set })));
    assert!(told.iter().any(|(peer, _)| *peer == B), "{told:?}");
    let look = ToMaster::Acquire { request: 9, want: Want::Attr { ino: F }, ahead: wire::Ahead::default() };
    let outputs = rig.tell(C, look);
    let answer = outputs.iter().find_map(|output| match output {
        Output::Send { peer: C, message: FromMaster::Acquired { request: 9, grants, glimpse, .. } } => {
            Some((grants, glimpse))
        }
        _ => None,
    });
    if let Some((grants, glimpse)) = answer {
        let has_content = grants.iter().any(|grant| grant.resource == CONTENT);
        assert!(has_content || glimpse.is_some(), "it would ask again: {grants:?}");
    }
}

/// Goal: who asks for a directory that others change without a pause is let in. Method: one node's changes are acknowledged one behind the
/// next, so that there is always one that is not; after 20 ms the next pause is for who waits, and ends by itself if B does not answer.
#[test]
fn endless_changes_of_a_directory_let_a_newcomer_in() {
    change_endlessly(true);
    change_endlessly(false);
}

fn change_endlessly(acknowledges: bool) {
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

    // Shortly before a pause.
    rig.now = Micros((rig.now.0 / 500_000 + 1) * 500_000 - 16_000);
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
    if !acknowledges {
        rig.now = rig.now + Micros(96_000);
        rig.master.handle_timeout(rig.clock());
        let outputs = rig.outputs();
        assert_eq!(forgets(&outputs).len(), 1, "it goes on");
        assert_eq!(change(&mut rig).len(), 1, "and so does the next one");
        return;
    }
    let outputs = acknowledge(&mut rig, last[0]);
    assert!(is_let_in(&outputs));
    assert_eq!(change(&mut rig), [], "he may have to ask somebody else");
    rig.now = rig.now + Micros(5_000);
    rig.master.handle_timeout(rig.clock());
    let mut told: Vec<PeerId> = forgets(&rig.outputs()).into_iter().map(|(peer, _)| peer).collect();
    told.sort_unstable_by_key(|peer| peer.0);
    assert_eq!(told, [B, B, C, C], "then it goes on");
}

/// Goal: an operation over two directories comes to its end although both are changed all the time by those who hold them: it waits for one after the
/// other, and what it has been given is not taken away meanwhile. Method: who gave the first one up changes it again before the
/// second is there, alone in it.
#[test]
fn who_gave_a_directory_up_for_a_rename_is_not_alone_in_it_before_that_is_done() {
    let mut rig = Rig::new();
    for peer in [A, B] {
        rig.join(peer, NodeId(0));
    }
    let (from, to) = (Ino(60), Ino(61));
    let ship = |rig: &mut Rig, peer, seq: u64, op: Op| {
        let (now, seq) = (Timespec::default(), OpSeq(seq));
        rig.tell(peer, ToMaster::Ship { seq, acked: OpSeq(0), now, op, spent: Vec::new() })
    };
    ship(&mut rig, A, 1, make(from, b"from", FileKind::Directory, b""));
    ship(&mut rig, A, 2, make(to, b"to", FileKind::Directory, b""));
    let within = |parent: Ino, op: Op| match op {
        Op::Create { name, new, split, .. } => Op::Create { parent, name, new, split },
        other => other,
    };
    ship(&mut rig, A, 3, within(from, make(F, b"f", FileKind::Fifo, b"")));
    let name = |name: &[u8]| types::Name::new(name).unwrap();
    let rename = Op::Rename {
        parent: from,
        name: name(b"f"),
        new_parent: to,
        new_name: name(b"g"),
        mode: meta::ops::RenameMode::Replace,
        target_open_here: false,
        meant: Ino(0),
        bound: None,
        whiteout: None,
    };
    let mut outputs = ship(&mut rig, B, 1, rename);
    let mut made = 0;
    for _ in 0..2 {
        let asked = outputs.iter().find_map(|output| match output {
            Output::Send { peer, message: FromMaster::Revoke { list, .. } } if *peer == A => Some(list[0].0),
            _ => None,
        });
        let resource = asked.unwrap();
        outputs = rig.tell(A, ToMaster::Release { list: vec![(resource, LockMode::Pr)], open: Vec::new() });
        // At once, as its next creation was waiting for this.
        made += 1;
        let new = make(Ino(200 + made), format!("n{made}").as_bytes(), FileKind::Fifo, b"");
        let answer = ship(&mut rig, A, 3 + made, within(resource.ino, new));
        let is_granted = |grant: &wire::Grant| grant.resource == resource && grant.mode == LockMode::Ex;
        let is_given = answer.iter().any(|output| {
            matches!(output, Output::Send { message: FromMaster::Shipped { grants, .. }, .. }
                if grants.iter().any(is_granted))
        });
        assert!(made == 2 || !is_given, "the rename still waits for the other: {answer:?}");
    }
    let is_done = |output: &Output| {
        matches!(output, Output::Send { peer, message: FromMaster::Shipped { result: Ok(_), .. } } if *peer == B)
            || matches!(output, Output::Send { message: FromMaster::Forget { changes, .. }, .. }
                if changes.iter().any(|change| matches!(change, meta::Change::DeleteEntry { .. })))
    };
    assert!(outputs.iter().any(is_done), "{outputs:?}");
}

fn forgets(outputs: &[Output]) -> Vec<(PeerId, u64)> {
    let forget = |output: &Output| match output {
        Output::Send { peer, message: FromMaster::Forget { seq, .. } } => Some((*peer, *seq)),
        _ => None,
    };
    outputs.iter().filter_map(forget).collect()
}
