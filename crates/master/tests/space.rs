//! When a segment may go: messages in, orders out.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{A, B, Rig};
use master::{Output, PeerId};
use types::{Micros, NodeId, SegmentId};
use wire::{FromMaster, ToMaster};

/// Barriers among `outputs`: to whom, number, segments.
fn barriers(outputs: &[Output]) -> Vec<(PeerId, u64, Vec<SegmentId>)> {
    let barrier = |output: &Output| match output {
        Output::Send { peer, message: FromMaster::Barrier { seq, segments } } => {
            Some((*peer, *seq, segments.clone()))
        }
        _ => None,
    };
    outputs.iter().filter_map(barrier).collect()
}

fn deleted(outputs: &[Output]) -> Vec<SegmentId> {
    let delete = |output: &Output| match output {
        Output::DeleteSegments { list } => Some(list.clone()),
        _ => None,
    };
    outputs.iter().filter_map(delete).flatten().collect()
}

#[test]
fn a_disowned_empty_segment_goes_after_every_member_passed_the_barrier() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    let segment = rig.reserve(A, 4);
    rig.add_live(A, 1, segment, 500);
    rig.add_live(A, 2, segment, -500);
    assert_eq!(barriers(&rig.wait()), [], "the writer may still name it");

    rig.tell(A, ToMaster::Disown { segments: vec![segment] });
    let sent = barriers(&rig.wait());
    let [(A, seq, list), (B, same, _)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((seq, &list[..]), (same, &[segment][..]));
    let seq = *seq;
    assert_eq!(deleted(&rig.tell(B, ToMaster::Barriered { seq })), []);
    assert_eq!(deleted(&rig.tell(A, ToMaster::Barriered { seq })), [segment]);
    assert_eq!(rig.record(segment).map(|record| record.live_bytes), Some(0), "until the file is gone");
    rig.master.segments_deleted(rig.clock(), &[segment]);
    assert_eq!(rig.record(segment), None);
    assert_eq!(barriers(&rig.wait()), []);
}

/// Goal: a loss of power does not bring back what names a segment that is gone. Method: while a member has yet to pass the barrier a copy names it once
/// more, and is gone again.
#[test]
fn a_segment_that_is_emptied_twice_waits_for_a_barrier_of_its_own() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    let segment = rig.reserve(A, 4);
    rig.add_live(A, 1, segment, 500);
    rig.add_live(A, 2, segment, -500);
    rig.tell(A, ToMaster::Disown { segments: vec![segment] });
    let sent = barriers(&rig.wait());
    let [(A, seq, _)] = sent[..] else { panic!("{sent:?}") };
    rig.add_live(A, 3, segment, 500);
    rig.add_live(A, 4, segment, -500);
    assert_eq!(deleted(&rig.tell(A, ToMaster::Barriered { seq })), []);
    rig.master.segments_deleted(rig.clock(), &[]);
    let sent = barriers(&rig.wait());
    let [(A, seq, ref list)] = sent[..] else { panic!("{sent:?}") };
    assert_eq!(list[..], [segment]);
    assert_eq!(deleted(&rig.tell(A, ToMaster::Barriered { seq })), [segment]);
}

#[test]
fn a_segment_with_live_bytes_stays_and_goes_once_they_are_gone() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    let segment = rig.reserve(A, 2);
    rig.add_live(A, 1, segment, 500);
    rig.tell(A, ToMaster::Disown { segments: vec![segment] });
    assert_eq!(barriers(&rig.wait()), []);
    rig.add_live(A, 2, segment, -500);
    let seq = barriers(&rig.wait())[0].1;
    assert_eq!(deleted(&rig.tell(A, ToMaster::Barriered { seq })), [segment]);
    // It could not be deleted: it is tried again, later.
    rig.master.segments_deleted(rig.clock(), &[]);
    assert_eq!(barriers(&rig.wait()), []);
    rig.now = rig.now + Micros(10_000_000);
    assert_eq!(barriers(&rig.wait())[0].2, [segment]);
}

#[test]
fn what_a_dead_member_never_named_is_found_in_the_store() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    let (of_a, of_b) = (rig.reserve(A, 4), rig.reserve(B, 4));
    let unheard = SegmentId(of_b.0 + 1000);
    assert_eq!(rig.listed(&[of_a, of_b, unheard]).len(), 0);
    assert_eq!(barriers(&rig.wait()), []);
    rig.master.disconnected(rig.clock(), A, true);
    assert!(rig.wait().iter().any(|output| matches!(output, Output::ListSegments)));
    rig.listed(&[of_a, of_b, unheard]);
    let sent = barriers(&rig.wait());
    assert_eq!((sent[0].0, &sent[0].2[..], sent.len()), (B, &[of_a][..], 1));
    // A member that ends holds nothing up.
    rig.master.disconnected(rig.clock(), B, true);
    assert_eq!(deleted(&rig.outputs()), [of_a]);
}

#[test]
fn a_new_master_knows_which_segments_are_in_whose_hands() {
    let mut rig = Rig::new();
    let node = rig.join(A, NodeId(0));
    let first = rig.reserve(A, 4);
    rig.tell(A, ToMaster::Disown { segments: vec![SegmentId(first.0 + 1)] });
    rig.remaster();
    assert_eq!(rig.join(A, node), node);
    let part = wire::ReassertPart::Tokens { list: Vec::new() };
    rig.tell(A, ToMaster::Reassert { part, done: true });
    assert!(rig.wait().iter().any(|output| matches!(output, Output::ListSegments)));
    let all: Vec<_> = (first.0..first.0 + 4).map(SegmentId).collect();
    rig.listed(&all);
    assert_eq!(barriers(&rig.wait())[0].2, [SegmentId(first.0 + 1)]);
    // Nobody can give up what is not theirs.
    rig.tell(A, ToMaster::Disown { segments: vec![SegmentId(first.0 + 1), SegmentId(999)] });
}

#[test]
fn what_cannot_be_read_is_not_taken_for_nothing() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    let segment = rig.reserve(A, 4);
    rig.add_live(A, 1, segment, 500);
    rig.damage(meta::Key::Segment(segment));
    rig.master.disconnected(rig.clock(), A, true);
    rig.wait();
    rig.listed(&[segment]);
    assert_eq!(barriers(&rig.wait()), [], "its record is damaged: files may need it");
}

#[test]
fn more_segments_than_one_page_of_a_scan_are_all_kept() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    let first = rig.reserve(A, 10_000).0;
    let changes = (first..first + 10_000).map(|n| meta::Change::AddLive { segment: SegmentId(n), bytes: 1 });
    let (seq, changes) = (types::BatchSeq(1), changes.collect::<Vec<_>>());
    rig.tell(
        A,
        ToMaster::Batch { seq, kept: Vec::new(), changes: changes.into(), sync: false, spent: Vec::new() },
    );
    rig.master.disconnected(rig.clock(), A, true);
    rig.wait();
    let all: Vec<_> = (first..first + 10_000).map(SegmentId).collect();
    rig.listed(&all);
    assert_eq!(barriers(&rig.wait()), []);
}

#[test]
fn what_a_dead_member_reserved_is_given_back_once() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    let (of_a, of_b) = (rig.reserve(A, 4), rig.reserve(B, 4));
    rig.add_live(A, 1, of_a, 500);
    rig.add_live(B, 1, of_b, 500);
    let trims = |outputs: &[Output]| -> Vec<SegmentId> {
        let lists = outputs.iter().filter_map(|output| match output {
            Output::TrimSegments { list } => Some(list.clone()),
            _ => None,
        });
        lists.flatten().collect()
    };
    assert_eq!(trims(&rig.listed(&[of_a, of_b])), [], "they may be written to");
    rig.master.disconnected(rig.clock(), A, true);
    rig.wait();
    assert_eq!(trims(&rig.listed(&[of_a, of_b])), [of_a]);
    assert_eq!(trims(&rig.listed(&[of_a, of_b])), []);
}

/// Goal: what was empty while its owner was there goes when he has gone, though nothing more is heard of it. Method: he writes, removes it,
/// and dies.
#[test]
fn what_was_empty_already_goes_after_its_owner() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    let segment = rig.reserve(A, 1);
    rig.add_live(A, 1, segment, 500);
    rig.add_live(A, 2, segment, -500);
    assert_eq!(barriers(&rig.wait()), [], "the writer may still name it");
    rig.master.disconnected(rig.clock(), A, true);
    let mut outputs = rig.outputs();
    outputs.extend(rig.wait());
    let sent = barriers(&outputs);
    assert_eq!((sent[0].0, &sent[0].2[..]), (B, &[segment][..]));
}
