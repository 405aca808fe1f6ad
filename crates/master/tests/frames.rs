//! Nothing that the master says is larger than a frame, and what it is told may come in parts.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{A, B, Rig, directory_at, file, make};
use master::{Output, PeerId};
use meta::{Change, FileKind};
use types::{BatchSeq, Encode, Ino, LockMode, Name, NodeId, OpSeq, ResourceId, Timespec};
use wire::{FRAME_LEN_MAX, FromMaster, GrantData, ReassertPart, ToMaster, Want};

fn batch(rig: &mut Rig, peer: PeerId, seq: u64, kept: Vec<Ino>, changes: Vec<Change>) -> Vec<Output> {
    let kept = kept.into_iter().map(|ino| (ResourceId::dir(ino), LockMode::Ex)).collect();
    rig.tell(
        peer,
        ToMaster::Batch { seq: BatchSeq(seq), kept, changes: changes.into(), sync: false, spent: Vec::new() },
    )
}

fn messages(outputs: &[Output]) -> Vec<FromMaster> {
    let message = |output: &Output| match output {
        Output::Send { message, .. } => Some(message.clone()),
        _ => None,
    };
    let all: Vec<FromMaster> = outputs.iter().filter_map(message).collect();
    for message in &all {
        let len = message.to_bytes().len();
        assert!(len <= FRAME_LEN_MAX, "{} bytes: {}", len, FromMaster::KINDS[message.kind()]);
    }
    all
}

fn is_ended(outputs: &[Output]) -> bool {
    messages(outputs).iter().any(|m| matches!(m, FromMaster::Ended { .. }))
}

#[test]
fn parts_take_effect_with_the_end_of_their_batch_and_no_sooner() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.hold_root(A);
    let seq = BatchSeq(1);
    let changes = file(Ino::ROOT, 256, Ino(100), 10).to_vec();
    let kept = vec![(ResourceId::dir(Ino(200)), LockMode::Ex)];
    assert!(messages(&rig.tell(A, ToMaster::BatchPart { seq, kept, changes })).is_empty());
    assert!(rig.value(meta::Key::Inode(Ino(100))).is_none());
    let changes = directory_at(Ino::ROOT, 257, Ino(200)).to_vec();
    assert!(!is_ended(&rig.tell(
        A,
        ToMaster::Batch { seq, kept: Vec::new(), changes: changes.into(), sync: false, spent: Vec::new() }
    )));
    assert!(rig.value(meta::Key::Inode(Ino(100))).is_some());
    // What the part declared is held: the next batch may change it.
    assert!(!is_ended(&batch(&mut rig, A, 2, Vec::new(), file(Ino(200), 256, Ino(101), 10).to_vec())));
}

#[test]
fn parts_told_to_a_dead_master_are_told_again_or_forgotten() {
    let mut rig = Rig::new();
    let node = rig.join(A, NodeId(0));
    rig.hold_root(A);
    let part = |n: u64| ToMaster::BatchPart {
        seq: BatchSeq(1),
        kept: Vec::new(),
        changes: file(Ino::ROOT, 256 + n, Ino(100 + n), 10).to_vec(),
    };
    rig.tell(A, part(1));
    rig.remaster();
    assert_eq!(rig.join(A, node), node);
    rig.tell(A, part(2));
    batch(&mut rig, A, 1, Vec::new(), Vec::new());
    assert!(rig.value(meta::Key::Inode(Ino(101))).is_none(), "it was not sent again");
    assert!(rig.value(meta::Key::Inode(Ino(102))).is_some());
}

#[test]
fn a_batch_without_end_costs_its_sender_the_membership() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.hold_root(A);
    let mut parts = 0;
    loop {
        let changes: Vec<Change> =
            (0..100).flat_map(|n| file(Ino::ROOT, 256 + n, Ino(100 + n), 4096)).collect();
        let part = ToMaster::BatchPart { seq: BatchSeq(1), kept: Vec::new(), changes };
        if is_ended(&rig.tell(A, part)) {
            break;
        }
        parts += 1;
        assert!(parts < 100, "it grows without limit");
    }
    assert!(parts > 20);
}

/// Directories with entries of every size, walked by another node.
#[test]
fn every_answer_to_a_walk_fits_a_frame() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    rig.hold_root(A);
    let mut next = 1000;
    let mut seq = 0;
    for n in 0..60u64 {
        let dir = Ino(100 + n);
        let parent = if n == 0 { Ino::ROOT } else { Ino(100 + (n - 1) / 3) };
        let mut changes = directory_at(parent, 256 + n, dir).to_vec();
        for file_number in 0..(n * 7 % 45) * 3 {
            next += 1;
            changes.extend(file(dir, 10_000 + file_number, Ino(next), (n as usize * 97) % 4097));
        }
        seq += 1;
        assert!(!is_ended(&batch(&mut rig, A, seq, vec![dir], changes)));
    }
    // The holder gives all of it back.
    let list = (0..60).map(|n| (ResourceId::dir(Ino(100 + n)), LockMode::Nl));
    let list = list.chain([(ResourceId::dir(Ino::ROOT), LockMode::Nl)]).collect();
    rig.tell(A, ToMaster::Release { list, open: Vec::new() });
    let (mut asked, mut granted, mut largest) = (vec![Ino::ROOT], std::collections::BTreeSet::new(), 0);
    let ahead = wire::Ahead { window: 512, next: Vec::new() };
    let mut request = 0;
    while let Some(ino) = asked.pop() {
        if granted.contains(&ino) {
            continue;
        }
        request += 1;
        let answers = messages(
            &rig.tell(B, ToMaster::Acquire { request, want: Want::Directory { ino }, ahead: ahead.clone() }),
        );
        for answer in answers {
            largest = largest.max(answer.to_bytes().len());
            let FromMaster::Acquired { grants, error: None, .. } = answer else { panic!("{answer:?}") };
            for grant in grants {
                granted.insert(grant.resource.ino);
                let GrantData::Directory { listing, .. } = grant.data else { panic!("no directory") };
                for (_, entry) in listing.entries.iter().rev() {
                    if entry.kind() == FileKind::Directory {
                        asked.push(entry.ino);
                    }
                }
            }
        }
    }
    assert_eq!(granted.len(), 61);
    assert!(largest > 700 << 10, "directories come together, up to {largest} bytes");
    assert!(request < 40, "{request} requests");
}

#[test]
fn what_a_new_master_tells_again_comes_in_as_many_forgets_as_it_takes() {
    let mut rig = Rig::new();
    let nodes = [rig.join(A, NodeId(0)), rig.join(B, NodeId(0))];
    let want = Want::Directory { ino: Ino::ROOT };
    for peer in [A, B] {
        rig.tell(peer, ToMaster::Acquire { request: 1, want, ahead: Default::default() });
    }
    // Results that their sender does not acknowledge pile up: here as large as names and values can be.
    for n in 1..=40u64 {
        let op = meta::Op::SetXattr {
            ino: Ino::ROOT,
            name: Name::new(format!("user.{}", n % 3).as_bytes()).unwrap(),
            value: vec![n as u8; 64 << 10].into(),
            mode: meta::ops::XattrMode::Any,
            only_owner: None,
        };
        let now = Timespec::default();
        let outputs =
            rig.tell(A, ToMaster::Ship { seq: OpSeq(n), acked: OpSeq(0), now, op, spent: Vec::new() });
        for message in messages(&outputs) {
            if let FromMaster::Forget { seq, .. } = message {
                messages(&rig.tell(B, ToMaster::Forgotten { seq, open: Vec::new() }));
            }
        }
    }
    for n in 41..=400u64 {
        let op = make(Ino(1000 + n), format!("{n:0>250}").as_bytes(), FileKind::Symlink, &[b't'; 4000]);
        let now = Timespec::default();
        let outputs =
            rig.tell(A, ToMaster::Ship { seq: OpSeq(n), acked: OpSeq(0), now, op, spent: Vec::new() });
        for message in messages(&outputs) {
            if let FromMaster::Forget { seq, .. } = message {
                messages(&rig.tell(B, ToMaster::Forgotten { seq, open: Vec::new() }));
            }
        }
    }
    rig.remaster();
    let mut forgets = Vec::new();
    for (peer, node) in [(A, nodes[0]), (B, nodes[1])] {
        assert_eq!(rig.join(peer, node), node);
        let list = vec![(ResourceId::dir(Ino::ROOT), LockMode::Pr)];
        let outputs = rig.tell(peer, ToMaster::Reassert { part: ReassertPart::Tokens { list }, done: true });
        forgets.extend(outputs.iter().filter_map(|output| match output {
            Output::Send { peer, message: FromMaster::Forget { seq, changes, .. } } => {
                assert!(changes.iter().map(|c| c.to_bytes().len()).sum::<usize>() < FRAME_LEN_MAX);
                Some((*peer, *seq, changes.len()))
            }
            _ => None,
        }));
        messages(&outputs);
    }
    assert!(forgets.iter().filter(|(peer, ..)| *peer == A).count() > 1, "{forgets:?}");
    // All of them are awaited.
    let want = Want::Directory { ino: Ino::ROOT };
    for (index, (peer, seq, _)) in forgets.iter().enumerate() {
        if index == 0 {
            let asked =
                messages(&rig.tell(A, ToMaster::Acquire { request: 9, want, ahead: Default::default() }));
            assert!(asked.is_empty(), "{asked:?}");
        }
        let outputs = messages(&rig.tell(*peer, ToMaster::Forgotten { seq: *seq, open: Vec::new() }));
        let is_answer = |m: &FromMaster| matches!(m, FromMaster::Acquired { request: 9, .. });
        assert_eq!(outputs.iter().any(is_answer), index == forgets.len() - 1);
    }
}
