//! Who may have a file open by the right to its directory, and is asked before it is deleted.
//!
//! A master alone; the test plays two nodes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{A, B, Rig, make};
use master::{Output, PeerId};
use meta::ops::RenameMode;
use meta::{Change, FileKind, Op};
use types::{Ino, LockMode, Name, NodeId, OpSeq, ResourceId, Timespec};
use wire::{FromMaster, OpenReport, ToMaster, Want};

const F: Ino = Ino(50);
const G: Ino = Ino(51);

fn name(name: &[u8]) -> Name {
    Name::new(name).unwrap()
}

fn ship(rig: &mut Rig, peer: PeerId, seq: u64, op: Op) -> Vec<Output> {
    let (seq, acked, now) = (OpSeq(seq), OpSeq(seq - 1), Timespec::default());
    rig.tell(peer, ToMaster::Ship { seq, acked, now, op, spent: Vec::new() })
}

/// Goal: an operation that meets another inode than its sender meant deletes nothing that the sender has open. Method: one node puts `g` in the
/// place of `f`; before the other has heard of it, it removes `f`, which it says is not open.
#[test]
fn who_removes_what_it_has_not_heard_of_may_have_it_open() {
    for is_heard in [false, true] {
        let mut rig = Rig::new();
        let (a, _) = (rig.join(A, NodeId(0)), rig.join(B, NodeId(0)));
        ship(&mut rig, A, 1, make(F, b"f", FileKind::File, b""));
        ship(&mut rig, A, 2, make(G, b"g", FileKind::File, b""));
        let root = ResourceId::dir(Ino::ROOT);
        rig.tell(A, ToMaster::Release { list: vec![(root, LockMode::Pr)], open: Vec::new() });
        let (want, ahead) = (Want::Directory { ino: Ino::ROOT }, wire::Ahead::default());
        rig.tell(B, ToMaster::Acquire { request: 1, want, ahead });
        assert_eq!(rig.master.mode(NodeId(2), root), LockMode::Pr);

        let (parent, new_parent, mode) = (Ino::ROOT, Ino::ROOT, RenameMode::Replace);
        let (old, new_name, target_open_here) = (name(b"g"), name(b"f"), false);
        let told = ship(
            &mut rig,
            B,
            1,
            Op::Rename {
                parent,
                name: old,
                new_parent,
                new_name,
                mode,
                target_open_here,
                meant: Ino(0),
                bound: None,
                whiteout: None,
            },
        );
        let forget = told.iter().find_map(|output| match output {
            Output::Send { peer: A, message: FromMaster::Forget { seq, .. } } => Some(*seq),
            _ => None,
        });
        let forgotten = ToMaster::Forgotten { seq: forget.expect("it is told"), open: Vec::new() };
        if is_heard {
            rig.tell(A, forgotten.clone());
        }
        let mut outputs =
            ship(&mut rig, A, 3, Op::Unlink { parent, name: name(b"f"), open_here: false, bound: None });
        if !is_heard {
            outputs.extend(rig.tell(A, forgotten));
        }
        let changes = outputs.iter().find_map(|output| match output {
            Output::Send { peer: A, message: FromMaster::Changed { changes, .. } } => Some(changes),
            _ => None,
        });
        let is_kept = changes
            .expect("it is told")
            .iter()
            .any(|change| matches!(change, Change::PutOrphan { ino: G, holders } if holders.contains(&a)));
        assert_eq!(is_kept, !is_heard, "{changes:?}");
    }
}

/// Goal: a node that says what it has open, and reads the directory that covers that, knows from then on that it does not. Method: the report comes
/// with the directory that is given up, or without.
#[test]
fn who_reports_a_file_to_be_open_and_reads_its_directory_is_told_of_the_split() {
    for is_given_up in [true, false] {
        let mut rig = Rig::new();
        rig.join(A, NodeId(0));
        ship(&mut rig, A, 1, make(F, b"f", FileKind::File, b""));
        let root = ResourceId::dir(Ino::ROOT);
        rig.tell(A, ToMaster::Release { list: vec![(root, LockMode::Pr)], open: Vec::new() });
        let list = if is_given_up { vec![(root, LockMode::Nl)] } else { Vec::new() };
        let outputs = rig.tell(A, ToMaster::Release { list, open: vec![OpenReport { ino: F }] });
        let is_told = outputs.iter().any(|output| match output {
            Output::Send { peer: A, message: FromMaster::Forget { changes, .. } } => {
                let is_split = |entry: &meta::Dirent| entry.ino == F && entry.covered().is_none();
                changes
                    .iter()
                    .any(|change| matches!(change, Change::PutEntry { entry, .. } if is_split(entry)))
            }
            _ => false,
        });
        assert_eq!(is_told, !is_given_up, "{outputs:?}");
    }
}

/// Goal: who removes names gets the next files to itself, but for those that another node has open: whoever has one so removes it without asking. Method: of
/// files with two names in one directory another node has every second one open, and has given up its rights to them.
#[test]
fn who_removes_names_is_given_no_file_that_another_has_open() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    let files: Vec<Ino> = (50..70).map(Ino).collect();
    let mut seq = 0;
    let mut next = || {
        seq += 1;
        seq
    };
    for ino in &files {
        ship(&mut rig, A, next(), make(*ino, format!("a{ino}").as_bytes(), FileKind::File, b""));
        let link = Op::Link { ino: *ino, parent: Ino::ROOT, name: name(format!("b{ino}").as_bytes()) };
        ship(&mut rig, A, next(), link);
    }
    let rights = |ino: Ino| [ResourceId::attr(ino), ResourceId::file(ino)].map(|right| (right, LockMode::Nl));
    let list: Vec<_> = files.iter().flat_map(|ino| rights(*ino)).collect();
    rig.tell(A, ToMaster::Release { list, open: Vec::new() });
    let is_open = |ino: Ino| ino.0 % 2 == 0;
    for ino in files.iter().copied().filter(|ino| is_open(*ino)) {
        let (want, ahead) = (Want::Open { ino }, wire::Ahead::default());
        rig.tell(B, ToMaster::Acquire { request: ino.0, want, ahead });
        rig.tell(B, ToMaster::Release { list: rights(ino).to_vec(), open: Vec::new() });
    }
    let mut given = 0;
    for ino in &files {
        let (parent, removed) = (Ino::ROOT, name(format!("a{ino}").as_bytes()));
        let unlink = Op::Unlink { parent, name: removed, open_here: false, bound: None };
        let outputs = ship(&mut rig, A, next(), unlink);
        let grants = outputs.iter().find_map(|output| match output {
            Output::Send { peer: A, message: FromMaster::Shipped { grants, .. } } => Some(grants),
            _ => None,
        });
        for grant in grants.expect("it is answered").iter().filter(|grant| grant.mode == LockMode::Ex) {
            assert!(!is_open(grant.resource.ino), "{:?}", grant.resource);
            given += 1;
        }
    }
    assert!(given > 2, "{given} rights");
}
