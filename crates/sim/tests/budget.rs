//! Goal: a working set larger than the budget of tokens costs what does not fit, and no size has a cliff. Method: a
//! node walks round directories that another one made, on a cluster in which everything takes its time.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::cell::RefCell;
use std::rc::Rc;

use sim::ClusterConfig;
use sim::timed::{Client, Costs, Timed};
use types::Micros;

/// Tokens that a node may hold.
const BUDGET: usize = 200;

/// A round of the walk.
#[derive(Clone, Copy, Debug)]
struct Round {
    took: Micros,
    asked: u64,
}

/// Rounds over `dirs` directories.
fn walk(dirs: usize) -> Vec<Round> {
    let core = vfs::Config { token_limit: BUDGET, ..vfs::Config::default() };
    let config = ClusterConfig { seed: 1, nodes: 2, core, ..ClusterConfig::default() };
    let mut timed = Timed::new(config, Costs::default());
    timed.run_alone(0, move |client| async move {
        for d in 0..dirs {
            let dir = client.mkdir(1, format!("d{d}").as_bytes()).await.unwrap();
            client.make(dir, b"f").await.unwrap();
        }
    });
    let rounds: Rc<RefCell<Vec<Round>>> = Rc::default();
    let log = rounds.clone();
    timed.run_alone(1, move |client| async move {
        for _ in 0..6 {
            let (began, asked) = (client.now(), client.tokens_requested());
            go_round(&client, dirs).await;
            log.borrow_mut()
                .push(Round { took: client.now().since(began), asked: client.tokens_requested() - asked });
        }
    });
    rounds.take()
}

async fn go_round(client: &Client, dirs: usize) {
    for d in 0..dirs {
        let dir = client.lookup(1, format!("d{d}").as_bytes()).await.unwrap();
        client.stat(dir, b"f").await.unwrap();
    }
}

/// What a new master takes over is what nodes may hold, however much they have worked with.
#[test]
fn a_new_master_takes_over_no_more_than_the_budget() {
    let budget = (3 * BUDGET) as u64;
    let token_memory = budget * lock::TOKEN_BYTES as u64;
    let config = ClusterConfig { seed: 1, nodes: 3, token_memory, ..ClusterConfig::default() };
    let mut timed = Timed::new(config, Costs::default());
    const DIRS: usize = 4 * BUDGET;
    timed.run_alone(0, |client| async move {
        for d in 0..DIRS {
            client.mkdir(1, format!("d{d}").as_bytes()).await.unwrap();
        }
    });
    for node in 0..3 {
        timed.start(node, |client| async move {
            for d in 0..DIRS {
                let dir = client.lookup(1, format!("d{d}").as_bytes()).await.unwrap();
                client.list(dir).await.unwrap();
            }
            // Nodes learn their share of the members of the moment when they renew their leases.
            client.sleep(Micros::from_millis(5_000)).await;
        });
    }
    timed.run();
    let before = timed.cluster(|cluster| cluster.tokens_granted());
    timed.cluster(|cluster| {
        cluster.kill_master();
        while cluster.changes_under_way().is_none() {
            cluster.step();
        }
    });
    let after = timed.cluster(|cluster| cluster.tokens_granted());
    println!("{DIRS} directories on 3 nodes, room for {budget} tokens: {before} held, {after} taken over");
    assert!(after > budget / 2, "there is something to take over");
    // What was brought in advance is given back when it has come.
    assert!(after <= budget + budget / 4, "more than the budget");
}

#[test]
fn a_working_set_beyond_the_budget_costs_what_does_not_fit() {
    let mut before: Option<(f64, f64)> = None;
    for percent in [50, 90, 100, 105, 110, 125, 150, 200, 400, 1000] {
        let dirs = BUDGET * percent / 100;
        let rounds = walk(dirs);
        // The first is cold, and the second finds what the first brought in advance.
        let warm = &rounds[2..];
        let visits = (dirs * warm.len()) as f64;
        let asked = warm.iter().map(|round| round.asked).sum::<u64>() as f64 / visits;
        let took = warm.iter().map(|round| round.took.0).sum::<u64>() as f64 / visits;
        let cold = rounds[0].took.0 as f64 / dirs as f64;
        let beyond = 1.0 - (100.0 / percent as f64).min(1.0);
        println!(
            "{percent:>4} % of the budget: {:>3.0} % does not fit, {:>3.0} % asked for, {took:>5.1} us a visit (cold {cold:.1})",
            100.0 * beyond,
            100.0 * asked,
        );
        assert!(asked <= 2.0 * beyond + 0.03, "more is asked for than does not fit");
        if let Some((asked_before, beyond_before)) = before {
            assert!(asked - asked_before <= 2.5 * (beyond - beyond_before) + 0.05, "a cliff");
        }
        before = Some((asked, beyond));
    }
}
