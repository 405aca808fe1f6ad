//! When the membership of a node ends that owes an answer: not before the lease it was granted last, for until then
//! its kernel may show what its tokens stand for, and not much later.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{A, B, Rig, make};
use master::Output;
use meta::FileKind;
use types::{Ino, Micros, NodeId, OpSeq};
use wire::{FromMaster, ToMaster, Want};

fn has(outputs: &[Output], is: impl Fn(&FromMaster) -> bool) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Send { message, .. } if is(message)))
}

fn is_end(message: &FromMaster) -> bool {
    matches!(message, FromMaster::Ended { .. })
}

fn is_pong(message: &FromMaster) -> bool {
    matches!(message, FromMaster::Pong { .. })
}

const PING: ToMaster = ToMaster::Ping { store_wait_us: 0 };

/// A holds the root in EX, and B has just asked for it.
fn wanted() -> Rig {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    rig.hold_root(A);
    let want = Want::Directory { ino: Ino::ROOT };
    let outputs = rig.tell(B, ToMaster::Acquire { request: 1, want, ahead: Default::default() });
    assert!(has(&outputs, |m| matches!(m, FromMaster::Revoke { .. })), "{outputs:?}");
    rig
}

/// Seconds until A's membership ends, at most 30.
fn ends_after(rig: &mut Rig) -> u32 {
    (1..=30).find(|_| has(&rig.wait(), is_end)).expect("it ends")
}

#[test]
fn a_silent_node_is_waited_for_a_lease() {
    let mut rig = wanted();
    assert_eq!(ends_after(&mut rig), 10, "when the lease of 10 has ended");
}

#[test]
fn a_node_that_was_renewed_meanwhile_keeps_its_lease_and_gets_no_other() {
    let mut rig = wanted();
    for _ in 0..9 {
        assert!(!has(&rig.wait(), is_end));
    }
    assert!(has(&rig.tell(A, PING), is_pong), "it may still answer in time");
    for _ in 0..2 {
        assert!(!has(&rig.wait(), is_end), "it may use its tokens");
    }
    assert!(!has(&rig.tell(A, PING), is_pong), "not for longer");
    assert!(rig.master.poll_timeout() > rig.now, "it is not asked again at once");
    assert_eq!(ends_after(&mut rig), 8, "a lease after the ping that was answered");
}

/// Goal: who cannot give back because his store stands still is waited for as long as he says so, and not for ever.
#[test]
fn a_node_that_waits_for_its_store_is_waited_for() {
    let waiting = ToMaster::Ping { store_wait_us: 4_000_000 };
    let renewed = |rig: &mut Rig, ping: &ToMaster| {
        (0..3).all(|_| !has(&rig.wait(), is_end)) && has(&rig.tell(A, ping.clone()), is_pong)
    };
    let mut rig = wanted();
    for _ in 0..8 {
        assert!(renewed(&mut rig, &waiting));
    }
    // It has been asked 24 seconds ago. Its store works again, and it has a lease from there.
    for _ in 0..3 {
        assert!(renewed(&mut rig, &PING));
    }
    assert!(!renewed(&mut rig, &PING), "12 s after it last waited");
    assert_eq!(ends_after(&mut rig), 7, "a lease after the ping that was answered");

    let mut rig = wanted();
    for _ in 0..19 {
        assert!(renewed(&mut rig, &waiting));
    }
    assert!(!renewed(&mut rig, &waiting), "six leases are enough");
    assert_eq!(ends_after(&mut rig), 7);
}

#[test]
fn others_are_renewed_all_the_time() {
    let mut rig = wanted();
    for _ in 0..15 {
        rig.wait();
        assert!(has(&rig.tell(B, PING), is_pong));
    }
}

#[test]
fn a_slow_sync_is_waited_for_without_looking_again_and_again() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    let ship = |rig: &mut Rig, seq: u64| {
        let op = make(Ino(99 + seq), format!("f{seq}").as_bytes(), FileKind::File, b"");
        let ship = ToMaster::Ship {
            seq: OpSeq(seq),
            acked: OpSeq(0),
            now: Default::default(),
            op,
            spent: Vec::new(),
        };
        rig.master.handle(rig.clock(), A, ship);
    };
    ship(&mut rig, 1);
    let mut syncs = Vec::new();
    for _ in 0..5 {
        rig.now = rig.now + Micros(1_000_000);
        rig.master.handle_timeout(rig.clock());
        while let Some(output) = rig.master.poll_output() {
            syncs.extend(if let Output::Sync { job } = output { Some(job) } else { None });
        }
        if syncs.len() == 1 {
            ship(&mut rig, 2);
        }
    }
    assert_eq!(syncs.len(), 1, "it has not ended");
    assert!(rig.master.poll_timeout() > rig.now, "there is nothing to do before it has");
    rig.master.synced(rig.clock(), syncs[0], rig.engine.sync());
    assert!(matches!(rig.master.poll_output(), Some(Output::Sync { .. }) | Some(Output::Send { .. })));
}

/// Goal: nobody waits a lease for what a living mount was before. Method: a mount that joins anew while what it was has
/// not been given up yet, once before and once after a change of master.
#[test]
fn a_mount_that_joins_anew_is_waited_for_once() {
    let mut rig = Rig::new();
    let first = rig.join(A, NodeId(0));
    let second = rig.join(A, NodeId(0));
    assert!(second > first);
    rig.remaster();
    let expected =
        |rig: &Rig| rig.master.absent_members().into_iter().map(|(node, ..)| node).collect::<Vec<_>>();
    assert_eq!(expected(&rig), [second]);
    let third = rig.join(A, NodeId(0));
    assert_eq!(expected(&rig), [], "the new master waits for nobody");
    rig.remaster();
    assert_eq!(expected(&rig), [third]);
}

/// Goal: a member that is away is given up when its process is gone, though nobody wants anything of it, and only then.
#[test]
fn a_member_that_is_away_can_be_buried() {
    let mut rig = Rig::new();
    let first = rig.join(A, NodeId(0));
    let second = rig.join(B, NodeId(0));
    let absent =
        |rig: &Rig| rig.master.absent_members().into_iter().map(|(node, ..)| node).collect::<Vec<_>>();
    assert_eq!(absent(&rig), []);
    rig.master.disconnected(rig.clock(), A, false);
    assert_eq!(absent(&rig), [first]);
    rig.master.member_is_dead(rig.clock(), second);
    rig.master.member_is_dead(rig.clock(), first);
    assert_eq!(absent(&rig), []);
    let members: Vec<_> = rig.master.members().into_iter().map(|member| member.node).collect();
    assert_eq!(members, [second], "one that has a connection is not buried");
}

/// Goal: a node that stands still does not keep what nobody needs from being removed for ever, nor is it sent away for a short stop. Method: A
/// names a segment and gives it up; B does not answer the barrier and does not ping.
#[test]
fn a_node_that_stands_still_holds_up_segments_for_some_leases() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    let segment = rig.reserve(A, 1);
    rig.add_live(A, 1, segment, 100);
    rig.add_live(A, 2, segment, -100);
    rig.tell(A, ToMaster::Disown { segments: vec![segment] });
    let mut ended = None;
    let mut deleted = false;
    for second in 1..=100 {
        let mut outputs = rig.wait();
        let barrier = outputs.iter().find_map(|output| match output {
            Output::Send { peer: A, message: FromMaster::Barrier { seq, .. } } => Some(*seq),
            _ => None,
        });
        if let Some(seq) = barrier {
            outputs.extend(rig.tell(A, ToMaster::Barriered { seq }));
        }
        outputs.extend(rig.tell(A, PING));
        if has(&outputs, is_end) {
            ended.get_or_insert(second);
        }
        deleted |= outputs.iter().any(|output| matches!(output, Output::DeleteSegments { .. }));
    }
    assert!(ended.is_some_and(|second| (60..=70).contains(&second)), "{ended:?}");
    assert!(deleted);
}

/// Goal: a new master waits as long as the old one's members may go on, whatever lease it grants itself. Method: the volume's record says a
/// longer one than the master has; the member that does not come back ends after that, and the one after is waited for as long as this master
/// has granted.
#[test]
fn a_new_master_waits_for_the_leases_of_the_old_one() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    let key = meta::Key::Volume.to_vec();
    let mut record: meta::VolumeRecord =
        meta::value_decode(&key, &rig.engine.get(&key).unwrap().unwrap()).unwrap();
    assert_eq!(record.lease, Micros(10_000_000), "what members are granted");
    record.lease = Micros(25_000_000);
    let mut batch = kv::Batch::new(rig.engine.last_seq().next());
    batch.puts.push((key.clone(), meta::value_encode(&key, &record)));
    rig.engine.commit(batch).unwrap();
    rig.engine.sync().unwrap();
    rig.remaster();
    let recovered = |rig: &mut Rig| {
        (1..=40).find(|_| {
            rig.wait();
            !rig.master.is_recovering()
        })
    };
    assert_eq!(recovered(&mut rig), Some(25));
    rig.join(B, NodeId(0));
    rig.remaster();
    assert_eq!(recovered(&mut rig), Some(10));
}

/// Goal: a machine that slept sends nobody away, for locks that others wait for neither. Method: one node waits for another's lock, nothing happens for
/// longer than a lease, and the timer comes before the ping; who says nothing after that has to go.
#[test]
fn who_slept_with_the_master_is_not_sent_away_for_his_locks() {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    let lock = |node: u64| wire::ByteLock {
        ino: Ino(50),
        kind: wire::LockKind::Flock,
        owner: wire::LockOwner(node),
        pid: 1,
        exclusive: true,
        start: 0,
        end: wire::BYTE_MAX,
    };
    for (peer, node) in [(A, 1), (B, 2)] {
        let op = wire::LockOp::Set { lock: lock(node), wait: true };
        rig.tell(peer, ToMaster::Lock { request: 1, op });
    }
    rig.now = rig.now + Micros(12_000_000);
    rig.master.handle_timeout(rig.clock());
    assert!(!has(&rig.outputs(), is_end), "A has had no time to say that it is there");
    assert!(has(&rig.tell(A, PING), is_pong));
    assert!(has(&rig.tell(B, PING), is_pong));
    let silent = |rig: &mut Rig| {
        let ended = has(&rig.wait(), is_end);
        rig.tell(B, PING);
        ended
    };
    let ends = (1..=30).find(|_| silent(&mut rig));
    assert_eq!(ends, Some(10), "a lease after its ping");
}
