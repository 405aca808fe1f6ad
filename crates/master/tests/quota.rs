//! Credit at the master: who gets how much, and what is asked back before anybody is refused.

mod common;

use common::{A, B, Rig};
use master::Output;
use meta::{Change, Limit, Limits};
use types::{Account, BatchSeq, Charge, Credit, NodeId, Timespec};
use wire::{FromMaster, ReassertPart, ToMaster};

const ACCOUNT: Account = Account::User(7);

fn credit(bytes: i64) -> Credit {
    Credit { account: ACCOUNT, bytes, inodes: 0 }
}

fn ask(bytes: i64, force: bool) -> ToMaster {
    ToMaster::AskCredit { want: credit(bytes), now: Timespec::default(), force }
}

fn batch(seq: u64, bytes: i64) -> ToMaster {
    let charge = Charge { uid: 7, gid: 8, tree: 0 };
    let changes = vec![Change::AddUsage { charge, bytes, inodes: 0 }];
    ToMaster::Batch {
        seq: BatchSeq(seq),
        kept: Vec::new(),
        changes: changes.into(),
        sync: false,
        spent: vec![credit(bytes)],
    }
}

fn limit(rig: &mut Rig, hard: u64) -> u64 {
    let limits = Limits { bytes: Limit { hard, ..Limit::default() }, ..Limits::default() };
    rig.master.set_limits(rig.clock(), ACCOUNT, limits).unwrap()
}

/// What `peer` was granted, and whether that was all.
fn granted(outputs: &[Output], to: master::PeerId) -> Option<(i64, bool)> {
    outputs.iter().find_map(|output| match output {
        Output::Send { peer, message: FromMaster::Credited { credit, refused } } if *peer == to => {
            Some((credit.bytes, *refused))
        }
        _ => None,
    })
}

fn recalled(outputs: &[Output], from: master::PeerId) -> Option<u64> {
    outputs.iter().find_map(|output| match output {
        Output::Send { peer, message: FromMaster::RecallCredit { seq, .. } } if *peer == from => Some(*seq),
        _ => None,
    })
}

/// `peer` answers the recall among `outputs`.
fn keep(rig: &mut Rig, outputs: &[Output], peer: master::PeerId, bytes: i64) -> Vec<Output> {
    let seq = recalled(outputs, peer).unwrap();
    rig.tell(peer, ToMaster::CreditKept { seq, kept: credit(bytes) })
}

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.join(A, NodeId(0));
    rig.join(B, NodeId(0));
    rig
}

#[test]
fn who_asks_gets_a_share_and_the_others_are_asked_before_anybody_is_refused() {
    let mut rig = rig();
    limit(&mut rig, 1_000);
    assert_eq!(
        granted(&rig.tell(A, ask(200, false)), A),
        Some((300, false)),
        "and an eighth of the other 800"
    );
    let outputs = rig.tell(B, ask(900, false));
    assert_eq!(granted(&outputs, B), None);
    let seq = recalled(&outputs, A).unwrap();
    keep(&mut rig, &outputs, B, 0);
    let outputs = rig.tell(A, ToMaster::CreditKept { seq, kept: credit(150) });
    assert_eq!(granted(&outputs, B), Some((850, true)), "what A has not promised, and no more");
    // What A logs and gives back is there for B.
    rig.tell(A, batch(1, 150));
    let outputs = rig.tell(B, ask(50, false));
    let seq = recalled(&outputs, A).unwrap();
    keep(&mut rig, &outputs, B, 850);
    rig.tell(A, batch(2, -100));
    let outputs = rig.tell(A, ToMaster::CreditKept { seq, kept: credit(0) });
    assert_eq!(granted(&outputs, B), Some((56, false)));
    assert_eq!(rig.master.overdrawn(), Vec::<String>::new());
}

#[test]
fn what_is_granted_while_it_is_asked_back_is_not_lost() {
    let mut rig = rig();
    limit(&mut rig, 1_000);
    rig.tell(A, ask(400, false));
    let outputs = rig.tell(B, ask(900, false));
    let seq = recalled(&outputs, A).unwrap();
    // Root needs some at A meanwhile: A counts it after the recall, and so does the master.
    assert_eq!(granted(&rig.tell(A, ask(30, true)), A), Some((30, false)));
    rig.tell(A, ToMaster::CreditKept { seq, kept: credit(0) });
    assert_eq!(rig.master.credit_of(NodeId(1)), [credit(30)]);
    // An answer that comes twice, or to a recall of a connection before, changes nothing.
    rig.tell(A, ToMaster::CreditKept { seq, kept: credit(500) });
    assert_eq!(rig.master.credit_of(NodeId(1)), [credit(30)]);
}

/// Goal: what a node has freed of what it was given counts as free, for itself too; a time of grace ends with it. Method: a lone user of an
/// account goes beyond its soft limit, frees all, and asks for more when the grace would be over.
#[test]
fn what_who_asks_has_freed_is_free() {
    let mut rig = rig();
    let bytes = Limit { hard: 2_000, soft: 1_000, grace_secs: 10, exceeded_since: 0 };
    rig.master.set_limits(rig.clock(), ACCOUNT, Limits { bytes, ..Limits::default() }).unwrap();
    let ask_at = |rig: &mut Rig, bytes, secs| {
        let now = Timespec { secs, nanos: 0 };
        rig.tell(A, ToMaster::AskCredit { want: credit(bytes), now, force: false })
    };
    ask_at(&mut rig, 1_500, 100);
    rig.tell(A, batch(1, 1_500));
    assert_eq!(granted(&ask_at(&mut rig, 10, 101), A), Some((10, false)), "the grace begins");
    rig.tell(A, batch(2, -1_500));
    // It has 1,510, and lacks 90.
    let outputs = ask_at(&mut rig, 90, 1_000);
    assert_eq!(granted(&outputs, A), None);
    keep(&mut rig, &outputs, B, 0);
    let granted = granted(&keep(&mut rig, &outputs, A, 0), A).unwrap();
    assert!(granted.0 >= 1_600 && !granted.1, "{granted:?}");
    let status = rig.master.accounts(Timespec { secs: 1_000, nanos: 0 }).unwrap();
    let own = status.iter().find(|status| status.account == ACCOUNT).unwrap();
    assert_eq!((own.usage.bytes, own.limits.bytes.exceeded_since), (0, 0));
}

#[test]
fn what_root_uses_is_not_there_for_others() {
    let mut rig = rig();
    limit(&mut rig, 1_000);
    assert_eq!(granted(&rig.tell(A, ask(5_000, true)), A), Some((5_000, false)));
    rig.tell(A, batch(1, 5_000));
    let outputs = rig.tell(B, ask(1, false));
    keep(&mut rig, &outputs, A, 0);
    assert_eq!(granted(&keep(&mut rig, &outputs, B, 0), B), Some((0, true)));
    assert_eq!(rig.master.overdrawn(), Vec::<String>::new());
}

#[test]
fn who_does_not_answer_is_waited_for_as_long_as_its_lease() {
    let mut rig = rig();
    limit(&mut rig, 1_000);
    rig.tell(A, ask(700, false));
    let asked = rig.tell(B, ask(900, false));
    assert_eq!(granted(&asked, B), None);
    keep(&mut rig, &asked, B, 0);
    let mut outputs = Vec::new();
    for _ in 0..30 {
        outputs.extend(rig.wait());
        rig.tell(B, ToMaster::Ping { store_wait_us: 0 });
    }
    assert_eq!(granted(&outputs, B), Some((912, false)));
}

#[test]
fn limits_bind_when_all_have_taken_them_and_outlive_the_master() {
    let mut rig = rig();
    let version = limit(&mut rig, 1_000);
    rig.outputs();
    for peer in [A, B] {
        assert!(!rig.master.limits_taken(version));
        rig.tell(peer, ToMaster::LimitsTaken { version });
    }
    assert!(rig.master.limits_taken(version));
    rig.tell(A, ask(300, false));
    rig.tell(A, batch(1, 100));
    rig.remaster();
    rig.join(A, NodeId(1));
    rig.join(B, NodeId(2));
    let told = ReassertPart::Credit { list: vec![credit(280)], shipped: Vec::new() };
    rig.tell(A, ToMaster::Reassert { part: told, done: true });
    rig.tell(B, ToMaster::Reassert { part: ReassertPart::Locks { list: Vec::new() }, done: true });
    assert!(!rig.master.is_recovering());
    assert_eq!(rig.master.credit_of(NodeId(1)), [credit(280)]);
    assert_eq!(granted(&rig.tell(B, ask(600, false)), B), Some((602, false)), "1,000 without 100 and 280");
    let status = rig.master.accounts(Timespec::default()).unwrap();
    let own = status.iter().find(|status| status.account == ACCOUNT).unwrap();
    assert_eq!((own.usage.bytes, own.credit.0, own.limits.bytes.hard), (100, 882, 1_000));
    // Without limits nobody needs credit.
    limit(&mut rig, 0);
    assert_eq!(rig.master.credit_of(NodeId(1)), []);
}

/// Goal: room that is freed above a limit is not there again. Method: root's bytes beyond it are removed by a node, which is asked for what it has of them
/// at once, and asks for more.
#[test]
fn what_is_freed_above_a_limit_is_asked_back() {
    let mut rig = rig();
    limit(&mut rig, 1_000);
    rig.tell(A, ask(5_000, true));
    rig.tell(A, batch(1, 5_000));
    let outputs = rig.tell(A, batch(2, -3_000));
    let seq = recalled(&outputs, A).expect("asked for what it freed");
    rig.tell(A, ToMaster::CreditKept { seq, kept: credit(0) });
    assert_eq!(rig.master.credit_of(NodeId(1)), []);
    let outputs = rig.tell(A, batch(3, -1_500));
    let seq = recalled(&outputs, A).expect("a part of that was above");
    rig.tell(A, ToMaster::CreditKept { seq, kept: credit(0) });
    // Below the limit what it frees is its own.
    let outputs = rig.tell(A, batch(4, -300));
    assert_eq!(recalled(&outputs, A), None);
    assert_eq!(rig.master.credit_of(NodeId(1)), [credit(300)]);
}

/// Goal: a lower limit binds when it is said to. Method: a node has credit of the higher one, and takes its time.
#[test]
fn a_lower_limit_binds_once_what_was_given_out_is_back() {
    let mut rig = rig();
    limit(&mut rig, 8_000);
    assert_eq!(granted(&rig.tell(A, ask(800, false)), A), Some((1_700, false)));
    let version = limit(&mut rig, 1_000);
    let outputs = rig.outputs();
    assert!(recalled(&outputs, A).is_some() && recalled(&outputs, B).is_some(), "{outputs:?}");
    keep(&mut rig, &outputs, B, 0);
    for peer in [A, B] {
        rig.tell(peer, ToMaster::LimitsTaken { version });
    }
    assert!(!rig.master.limits_taken(version), "A may still promise 1,700");
    keep(&mut rig, &outputs, A, 900);
    assert!(rig.master.limits_taken(version));
    // More is no matter of what is out.
    limit(&mut rig, 2_000);
    assert_eq!(recalled(&rig.outputs(), A), None);
}

/// Goal: nobody is refused what a node has that has not been asked for it since it got that. Method: B's answer to an older question comes while C waits.
#[test]
fn an_older_answer_says_nothing_of_what_was_granted_since() {
    let mut rig = rig();
    limit(&mut rig, 1_000);
    rig.tell(B, ask(800, false));
    let first = rig.tell(A, ask(900, false));
    // B's is enough; A itself has yet to answer.
    let outputs = keep(&mut rig, &first, B, 0);
    assert!(granted(&outputs, A).is_some_and(|(bytes, refused)| bytes >= 900 && !refused), "{outputs:?}");
    let second = rig.tell(B, ask(500, false));
    keep(&mut rig, &second, B, 0);
    let outputs = keep(&mut rig, &first, A, 0);
    assert_eq!(granted(&outputs, B), None, "A has 900 of its own: {outputs:?}");
    let outputs = keep(&mut rig, &second, A, 100);
    assert!(granted(&outputs, B).is_some_and(|(bytes, refused)| bytes >= 500 && !refused), "{outputs:?}");
}

/// Goal: a lower limit binds under the next master too. Method: it dies before credit of the higher one is back.
#[test]
fn the_next_master_asks_back_what_a_lower_limit_does_not_allow() {
    let mut rig = rig();
    limit(&mut rig, 8_000);
    rig.tell(A, ask(800, false));
    limit(&mut rig, 1_000);
    rig.outputs();
    rig.remaster();
    rig.join_from(A, 101, NodeId(1));
    rig.join_from(B, 102, NodeId(2));
    let part = ReassertPart::Credit { list: vec![credit(1_700)], shipped: Vec::new() };
    rig.tell(A, ToMaster::Reassert { part, done: false });
    let done = || ToMaster::Reassert { part: ReassertPart::Locks { list: Vec::new() }, done: true };
    rig.tell(A, done());
    let outputs = rig.tell(B, done());
    assert!(recalled(&outputs, A).is_some() && recalled(&outputs, B).is_none(), "{outputs:?}");
}
