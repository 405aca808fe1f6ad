//! Two nodes that change one directory all the time take turns: what the master asks for, grants, and tells.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{A, B, Rig, file, make};
use master::{Output, PeerId};
use meta::{Change, Child, FileKind};
use types::{BatchSeq, Ino, LockMode, Micros, NodeId, OpSeq, ResourceId, Timespec};
use wire::{FromMaster, GrantData, OpenReport, ToMaster, Want};

const ROOT: ResourceId = ResourceId::dir(Ino::ROOT);

/// Two nodes that have shipped changes of the root until turns are taken in it.
struct Two {
    rig: Rig,
    ships: BTreeMap<PeerId, u64>,
    batches: BTreeMap<PeerId, u64>,
    /// Who has given the root up, or is to.
    other: PeerId,
    /// Whose turn it is, when the other has.
    holder: PeerId,
}

impl Two {
    fn begin() -> Self {
        let mut rig = Rig::new();
        rig.master.take_turns_from(2);
        rig.join(A, NodeId(0));
        rig.join(B, NodeId(0));
        let (ships, batches) = Default::default();
        Self { rig, ships, batches, other: A, holder: B }
    }

    /// The first turn has begun.
    fn contested() -> Self {
        let mut two = Self::begin();
        for ino in 1_000..1_010 {
            // Both at once.
            let mut outputs = Vec::new();
            for ino in [ino, ino + 100] {
                (two.other, two.holder) = (two.holder, two.other);
                outputs.extend(two.ship(ino));
                if is_asked_for_all(&outputs, two.other) {
                    let came = two.answer(outputs);
                    assert!(came.contains(&(two.holder, LockMode::Ex)), "{came:?}");
                    return two;
                }
            }
            two.answer(outputs);
        }
        panic!("no turns are taken")
    }

    fn ship(&mut self, ino: u64) -> Vec<Output> {
        let count = self.ships.entry(self.holder).or_default();
        *count += 1;
        let (seq, acked, now) = (OpSeq(*count), OpSeq(*count - 1), Timespec::default());
        let op = make(Ino(ino), format!("f{ino}").as_bytes(), FileKind::File, b"");
        self.rig.tell(self.holder, ToMaster::Ship { seq, acked, now, op, spent: Vec::new() })
    }

    /// Gives back and takes in what is asked for and told. Returns who was granted the root.
    fn answer(&mut self, mut outputs: Vec<Output>) -> Vec<(PeerId, LockMode)> {
        let mut came = Vec::new();
        while let Some(output) = outputs.pop() {
            for peer in [A, B] {
                came.extend(granted(std::slice::from_ref(&output), peer).map(|(mode, _)| (peer, mode)));
            }
            let Output::Send { peer, message } = output else { continue };
            let answer = match message {
                FromMaster::Revoke { list, .. } => ToMaster::Release { list, open: Vec::new() },
                FromMaster::Forget { seq, .. } => ToMaster::Forgotten { seq, open: Vec::new() },
                _ => continue,
            };
            outputs.extend(self.rig.tell(peer, answer));
        }
        came
    }

    fn release(&mut self, peer: PeerId, open: Vec<OpenReport>) -> Vec<Output> {
        self.rig.tell(peer, ToMaster::Release { list: vec![(ROOT, LockMode::Nl)], open })
    }

    /// Whose turn it is makes a file.
    fn make(&mut self, ino: u64) {
        let seq = self.batches.entry(self.holder).or_default();
        *seq += 1;
        let changes = Arc::new(file(Ino::ROOT, ino, Ino(ino), 10).to_vec());
        let (seq, kept, spent) = (BatchSeq(*seq), Vec::new(), Vec::new());
        let outputs = self.rig.tell(self.holder, ToMaster::Batch { seq, kept, changes, sync: false, spent });
        assert!(outputs.is_empty(), "{outputs:?}");
    }

    /// The other wants his turn, and gets it. Returns what he is granted.
    fn change(&mut self, open: &[u64]) -> Option<(LockMode, GrantData)> {
        let want = Want::Directory { ino: Ino::ROOT };
        let asked =
            self.rig.tell(self.other, ToMaster::Acquire { request: 1, want, ahead: Default::default() });
        assert!(is_asked_for_all(&asked, self.holder), "{asked:?}");
        let open = open.iter().map(|ino| OpenReport { ino: Ino(*ino) }).collect();
        let outputs = self.release(self.holder, open);
        (self.other, self.holder) = (self.holder, self.other);
        granted(&outputs, self.holder)
    }
}

fn is_asked_for_all(outputs: &[Output], of: PeerId) -> bool {
    outputs.iter().any(|output| match output {
        Output::Send { peer, message: FromMaster::Revoke { list, .. } } => {
            *peer == of && list.contains(&(ROOT, LockMode::Nl))
        }
        _ => false,
    })
}

/// What a node is granted of the root.
fn granted(outputs: &[Output], to: PeerId) -> Option<(LockMode, GrantData)> {
    outputs.iter().find_map(|output| {
        let Output::Send { peer, message } = output else { return None };
        let (FromMaster::Acquired { grants, .. } | FromMaster::Shipped { grants, .. }) = message else {
            return None;
        };
        let grant = grants.iter().find(|grant| *peer == to && grant.resource == ROOT)?;
        Some((grant.mode, grant.data.clone()))
    })
}

/// Which files a grant enters, and whether the directory covers them.
#[track_caller]
fn since(granted: Option<(LockMode, GrantData)>) -> Vec<(u64, bool)> {
    let Some((LockMode::Ex, GrantData::Since { changes, .. })) = granted else { panic!("{granted:?}") };
    let entries = changes.iter().filter_map(|change| match change {
        Change::PutEntry { entry, .. } => Some((entry.ino.0, matches!(entry.child, Child::Covered { .. }))),
        _ => None,
    });
    entries.collect()
}

/// Goal: a turn begins with all that the other did in his, as it is by now. Method: files are made by turns, and one of them is open
/// when its maker's turn ends.
#[test]
fn a_turn_comes_with_what_the_other_did_in_his() {
    let mut two = Two::contested();
    two.make(5_000);
    two.make(5_001);
    two.make(5_002);
    let mut came = since(two.change(&[5_001]));
    came.retain(|(ino, _)| *ino >= 5_000);
    assert_eq!(came, [(5_000, true), (5_002, true), (5_001, false)], "of each entry the last");
    two.make(6_000);
    assert_eq!(since(two.change(&[])), [(5_001, false), (6_000, true)], "and what was split out behind him");
    assert_eq!(since(two.change(&[])), []);
}

#[test]
fn what_was_given_up_long_ago_comes_as_a_whole() {
    let mut two = Two::contested();
    two.rig.now = two.rig.now + Micros::from_millis(600);
    // By a look alone he would not get it for himself any more.
    (two.other, two.holder) = (two.holder, two.other);
    let asked = two.ship(9_000);
    (two.other, two.holder) = (two.holder, two.other);
    assert!(is_asked_for_all(&asked, two.holder), "{asked:?}");
    let outputs = two.release(two.holder, Vec::new());
    let granted = granted(&outputs, two.other);
    assert!(matches!(granted, Some((LockMode::Ex, GrantData::Directory { .. }))), "{granted:?}");
}

/// Goal: users that wait for each other share the directory. Method: each change is answered before the other node's is shipped.
#[test]
fn one_after_the_other_takes_no_turns() {
    let mut two = Two::begin();
    for ino in 1_000..1_100 {
        (two.other, two.holder) = (two.holder, two.other);
        let outputs = two.ship(ino);
        two.answer(outputs);
    }
    assert!(two.rig.master.contested().is_empty());
}

/// Goal: whoever only looks does not have the directory handed to and fro. Method: turns in which nothing is changed.
#[test]
fn turns_that_bring_nothing_are_taken_no_more() {
    let mut two = Two::contested();
    let mut turns = 0;
    while two.rig.master.contested() == [Ino::ROOT] {
        turns += 1;
        assert!(turns < 40);
        _ = two.change(&[]);
    }
    let outputs = two.ship(7_000);
    two.answer(outputs);
    assert!(two.rig.master.contested().is_empty(), "nor begun again at once");
}

#[test]
fn a_member_that_goes_leaves_no_turns_behind() {
    let mut two = Two::contested();
    two.rig.master.disconnected(two.rig.clock(), two.holder, true);
    let outputs = two.rig.outputs();
    assert!(two.rig.master.contested().is_empty(), "{outputs:?}");
}

/// Goal: an operation over two directories does not wait for a turn in each, which it would hardly have at once. Method: who waits for his
/// turn ships a rename out of the directory.
#[test]
fn a_rename_between_directories_ends_the_turns() {
    let mut two = Two::contested();
    two.make(5_000);
    let (seq, now) = (OpSeq(100), Timespec::default());
    let name = |text: &[u8]| types::Name::new(text).unwrap();
    let op = meta::Op::Rename {
        parent: Ino::ROOT,
        name: name(b"f5000"),
        new_parent: Ino(7_000),
        new_name: name(b"there"),
        mode: meta::ops::RenameMode::Replace,
        target_open_here: false,
        meant: Ino(0),
        bound: None,
        whiteout: None,
    };
    let mut outputs =
        two.rig.tell(two.other, ToMaster::Ship { seq, acked: OpSeq(99), now, op, spent: Vec::new() });
    assert_eq!(two.rig.master.contested(), []);
    // What it waits for is no more than a change needs.
    assert!(!is_asked_for_all(&outputs, two.holder), "{outputs:?}");
    outputs.extend(two.rig.outputs());
    two.answer(outputs);
}

/// Goal: whoever has stopped to change a directory takes no part in turns. Method: one of two is silent for a second; the other's turn is
/// over because somebody looks.
#[test]
fn a_writer_that_stopped_is_none() {
    let mut two = Two::contested();
    two.make(5_000);
    two.change(&[]);
    assert_eq!(two.rig.master.contested(), [Ino::ROOT]);
    two.rig.wait();
    let reader = PeerId(3);
    two.rig.join(reader, NodeId(0));
    let want = Want::Directory { ino: Ino::ROOT };
    two.rig.tell(reader, ToMaster::Acquire { request: 1, want, ahead: Default::default() });
    two.release(two.holder, Vec::new());
    assert_eq!(two.rig.master.contested(), []);
}
