//! Random sequences of operations, planned and applied on a store in memory, against the reference model.
//!
//! Compared after each step: the answer, and that every change belongs to a resource the plan asked EX for.
//! Compared every few steps: the whole tree, and that no key is left over or missing. A failure prints the
//! shortest sequence that taking steps away leads to.

mod check;
mod volume;

use testkit::generate::{Generator, Step};
use testkit::model::Tree;
use types::{NodeId, Timespec};

use volume::Volume;

#[test]
fn random_sequences_agree_with_the_model() {
    for seed in 0..1_500 {
        let steps = steps_of(seed, 80);
        if run(&steps).is_err() {
            let steps = shrunk(steps);
            let failure = run(&steps).expect_err("shrinking keeps the failure");
            panic!("seed {seed}: {failure}\nafter {steps:#?}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_steps() {
    assert_eq!(steps_of(3, 200), steps_of(3, 200));
}

#[test]
fn long_sequences_agree_with_the_model() {
    for seed in 10_000..10_010 {
        let steps = steps_of(seed, 1_500);
        if let Err(failure) = run(&steps) {
            panic!("seed {seed}: {failure}");
        }
    }
}

/// Draws steps; the model alone says what they meet.
fn steps_of(seed: u64, count: usize) -> Vec<Step> {
    let mut generator = Generator::new(seed);
    let mut tree = Tree::new(time(0), 0, 0);
    let step = |index: usize| {
        let step = generator.step(&tree);
        // The answer is compared when the steps are run.
        let _ = model_step(&mut tree, &step, time(index as i64 + 1));
        step
    };
    (0..count).map(step).collect()
}

fn run(steps: &[Step]) -> Result<(), String> {
    let mut tree = Tree::new(time(0), 0, 0);
    let mut volume = Volume::new(time(0));
    for (index, step) in steps.iter().enumerate() {
        let now = time(index as i64 + 1);
        // The volume runs first: who has what open counts as it was before the step.
        let actual = volume.step(&tree, step, now);
        let expected = model_step(&mut tree, step, now);
        if actual != expected {
            return Err(format!("{step:?} answers {actual:?} instead of {expected:?}"));
        }
        if index % 7 == 0 || index + 1 == steps.len() {
            check::compare(&tree, &volume.store).map_err(|failure| format!("{failure} after {step:?}"))?;
        }
    }
    let last: Vec<_> = tree.opens().map(|(ino, node)| Step::Close { ino, node }).collect();
    for step in last {
        assert_eq!(volume.step(&tree, &step, time(0)), model_step(&mut tree, &step, time(0)));
    }
    check::compare(&tree, &volume.store).map_err(|failure| format!("{failure} after closing all"))
}

/// Takes steps away as long as the rest still fails.
fn shrunk(mut steps: Vec<Step>) -> Vec<Step> {
    let mut index = steps.len();
    while index > 0 {
        index -= 1;
        let mut fewer = steps.clone();
        fewer.remove(index);
        if run(&fewer).is_err() {
            steps = fewer;
        }
    }
    steps
}

fn model_step(tree: &mut Tree, step: &Step, now: Timespec) -> testkit::model::Outcome {
    let done = |result: Result<(), meta::FsError>| result.map(|()| meta::OpReply::Done);
    match step {
        Step::Op { op, node } => tree.perform(op, &meta::OpContext { now, node: *node }),
        Step::Open { ino, node } => done(tree.open(*ino, *node)),
        Step::Close { ino, node } => {
            tree.close(*ino, *node);
            tree.perform(&meta::Op::Reclaim { ino: *ino }, &meta::OpContext { now, node: NodeId(1) })
        }
        Step::Write { ino, offset, data } => done(tree.write(*ino, *offset, data, now)),
        Step::Truncate { ino, size } => done(tree.truncate(*ino, *size, now)),
    }
}

fn time(secs: i64) -> Timespec {
    Timespec { secs: 1_000 + secs, nanos: 0 }
}
