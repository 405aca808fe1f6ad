//! Exact outputs of the master's table.

use types::LockMode::{Ex, Nl, Pr};

use super::*;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
const D: ResourceId = ResourceId::dir(Ino(7));

fn outputs(table: &mut MasterTable) -> Vec<Output> {
    std::iter::from_fn(|| table.poll_output()).collect()
}

fn ready(id: u64) -> Output {
    Output::Ready { waiter: WaiterId(id), resource: D }
}

fn revoke(node: NodeId, to: LockMode) -> Output {
    Output::Revoke { node, resource: D, to }
}

fn table_with(holders: &[(NodeId, LockMode)]) -> MasterTable {
    let mut table = MasterTable::new();
    for (node, mode) in holders {
        table.grant(*node, D, *mode);
    }
    table
}

#[test]
fn free_resource_is_ready_at_once() {
    let mut table = MasterTable::new();
    table.wait(Micros(0), WaiterId(1), A, D, Need::Token(Ex));
    assert_eq!(outputs(&mut table), [ready(1)]);
    assert!(table.is_empty());
}

#[test]
fn reader_makes_the_writer_convert_to_pr_and_no_further() {
    let mut table = table_with(&[(A, Ex)]);
    table.wait(Micros(5), WaiterId(1), B, D, Need::Token(Pr));
    assert_eq!(outputs(&mut table), [revoke(A, Pr)]);
    table.release(Micros(9), A, D, Pr);
    assert_eq!(outputs(&mut table), [ready(1)]);
    table.grant(B, D, Pr);
    assert_eq!(table.holders(D).collect::<Vec<_>>(), [(A, Pr), (B, Pr)]);
}

#[test]
fn writer_takes_everything_from_every_reader() {
    let mut table = table_with(&[(A, Pr), (B, Pr), (C, Pr)]);
    table.wait(Micros(0), WaiterId(1), C, D, Need::Token(Ex));
    assert_eq!(outputs(&mut table), [revoke(A, Nl), revoke(B, Nl)]);
    table.release(Micros(1), A, D, Nl);
    assert_eq!(outputs(&mut table), []);
    table.release(Micros(2), B, D, Nl);
    assert_eq!(outputs(&mut table), [ready(1)]);
}

#[test]
fn shipped_change_leaves_readers_alone() {
    let mut table = table_with(&[(A, Pr), (B, Pr)]);
    table.wait(Micros(0), WaiterId(1), B, D, Need::Change);
    assert_eq!(outputs(&mut table), [ready(1)]);
    let mut table = table_with(&[(A, Ex)]);
    table.wait(Micros(0), WaiterId(1), A, D, Need::Change);
    assert_eq!(outputs(&mut table), [ready(1)], "the sender's own EX is no hindrance");
    table.wait(Micros(0), WaiterId(2), B, D, Need::Change);
    assert_eq!(outputs(&mut table), [revoke(A, Pr)]);
}

#[test]
fn waiters_are_served_in_order_and_one_at_a_time() {
    let mut table = table_with(&[(A, Ex)]);
    table.wait(Micros(0), WaiterId(1), B, D, Need::Token(Ex));
    table.wait(Micros(0), WaiterId(2), C, D, Need::Token(Pr));
    assert_eq!(outputs(&mut table), [revoke(A, Nl)]);
    table.release(Micros(1), A, D, Nl);
    assert_eq!(outputs(&mut table), [ready(1)]);
    table.grant(B, D, Ex);
    table.settle(Micros(1), D);
    assert_eq!(outputs(&mut table), [revoke(B, Pr)]);
}

#[test]
fn revoke_is_sent_once_and_again_only_for_more() {
    let mut table = table_with(&[(A, Ex)]);
    table.wait(Micros(0), WaiterId(1), B, D, Need::Token(Pr));
    table.settle(Micros(1), D);
    assert_eq!(outputs(&mut table), [revoke(A, Pr)]);
    table.cancel(Micros(2), WaiterId(1), D);
    table.wait(Micros(3), WaiterId(2), B, D, Need::Token(Ex));
    assert_eq!(outputs(&mut table), [revoke(A, Nl)]);
    assert_eq!(table.owed().collect::<Vec<_>>(), [(A, D, Micros(0))], "the first revoke's time counts");
}

#[test]
fn dead_node_frees_tokens_waiters_and_opens() {
    let mut table = table_with(&[(A, Ex)]);
    table.open(A, Ino(9));
    table.wait(Micros(0), WaiterId(1), B, D, Need::Token(Pr));
    table.wait(Micros(0), WaiterId(2), C, D, Need::Token(Pr));
    outputs(&mut table);
    assert_eq!(table.remove_node(Micros(4), B), []);
    assert_eq!(outputs(&mut table), []);
    assert_eq!(table.remove_node(Micros(5), A), [Ino(9)]);
    assert_eq!(outputs(&mut table), [ready(2)]);
    assert_eq!(table.open_nodes(Ino(9)).count(), 0);
}

#[test]
fn release_of_nothing_changes_nothing() {
    let mut table = table_with(&[(A, Pr)]);
    table.release(Micros(0), B, D, Nl);
    assert_eq!(outputs(&mut table), []);
    assert_eq!(table.mode(A, D), Pr);
}

#[test]
#[should_panic(expected = "grant of Ex on D(7) to 2")]
fn incompatible_grant_is_refused_loudly() {
    table_with(&[(A, Pr), (B, Ex)]);
}

#[test]
fn only_what_is_asked_back_is_looked_at_for_answers_that_are_due() {
    let mut table = table_with(&[(A, Ex)]);
    for ino in 100..200 {
        table.grant(A, ResourceId::dir(Ino(ino)), Ex);
    }
    let owed = |table: &MasterTable| table.owed().collect::<Vec<_>>();
    assert_eq!(owed(&table), []);
    table.wait(Micros(5), WaiterId(1), B, D, Need::Token(Pr));
    table.revoke(Micros(7), A, ResourceId::dir(Ino(100)), Pr);
    let other = ResourceId::dir(Ino(100));
    assert_eq!(owed(&table), [(A, D, Micros(5)), (A, other, Micros(7))]);
    table.release(Micros(9), A, D, Pr);
    assert_eq!(owed(&table), [(A, other, Micros(7))]);
    table.remove_node(Micros(10), A);
    assert_eq!(owed(&table), []);
}
