//! Goal: what the kernel is told, in which order, and what is reported, when calls return and when they do not.
//!
//! Method: a kernel whose calls can be made to block. Patience is either over at once or never ends within a
//! test, so outcomes do not depend on how fast the machine is; timeouts only bound a failure.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use fuse::{Errno, NotificationKind};
use types::Name;
use vfs::OverStep;

use super::*;

/// A kernel that writes down each call when it begins, as text, and lets those in `blocked` wait.
struct FakeKernel {
    has_expire_only: bool,
    has_inc_epoch: bool,
    /// Calls take their time, without waiting for anything.
    is_busy: AtomicBool,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    begun: Vec<String>,
    blocked: BTreeSet<String>,
    refuses_epoch: bool,
}

impl FakeKernel {
    fn call(&self, text: String) -> Result<Notified, NotifyError> {
        let mut inner = self.inner.lock();
        inner.begun.push(text.clone());
        self.changed.notify_all();
        while inner.blocked.contains(&text) {
            self.changed.wait(&mut inner);
        }
        let refuses = text == "epoch" && inner.refuses_epoch;
        drop(inner);
        while text != "epoch" && self.is_busy.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        if refuses {
            return Err(NotifyError::Refused { kind: NotificationKind::IncEpoch, errno: Errno::INVAL });
        }
        Ok(Notified::Done)
    }

    fn block(&self, text: &str) {
        self.inner.lock().blocked.insert(text.to_owned());
    }

    fn unblock(&self, text: &str) {
        self.inner.lock().blocked.remove(text);
        self.changed.notify_all();
    }

    fn wait_for(&self, text: &str) {
        let mut inner = self.inner.lock();
        let deadline = Instant::now() + LONG;
        while !inner.begun.iter().any(|begun| begun == text) {
            assert!(
                !self.changed.wait_until(&mut inner, deadline).timed_out(),
                "no {text}: {:?}",
                inner.begun
            );
        }
    }

    fn begun(&self) -> Vec<String> {
        self.inner.lock().begun.clone()
    }
}

impl Notify for FakeKernel {
    fn expire_entry(&self, parent: u64, name: &OsStr) -> Result<Notified, NotifyError> {
        self.call(format!("expire {parent} {}", name.display()))
    }

    fn inval_entry(&self, parent: u64, name: &OsStr) -> Result<Notified, NotifyError> {
        self.call(format!("entry {parent} {}", name.display()))
    }

    fn inval_inode(&self, ino: u64, offset: i64, len: i64) -> Result<Notified, NotifyError> {
        self.call(format!("inode {ino} {offset} {len}"))
    }

    fn raise_size(&self, ino: u64, size: u64) -> Result<Notified, NotifyError> {
        self.call(format!("raise {ino} {size}"))
    }

    fn inc_epoch(&self) -> Result<Notified, NotifyError> {
        self.call("epoch".to_owned())
    }

    fn mark(&self, unique: u64, ino: u64) -> Result<Notified, NotifyError> {
        self.call(format!("mark {unique} {ino}"))
    }

    fn has_expire_only(&self) -> bool {
        self.has_expire_only
    }

    fn has_inc_epoch(&self) -> bool {
        self.has_inc_epoch
    }
}

struct Bench {
    kernel: Arc<FakeKernel>,
    metrics: Arc<Metrics>,
    invalidator: Invalidator,
    done: Receiver<u64>,
    aborted: Receiver<()>,
}

const LONG: Duration = Duration::from_secs(20);
const NEVER: Duration = Duration::from_secs(3600);
const AT_ONCE: Duration = Duration::from_millis(1);
/// Where calls that return must not be taken for stuck ones.
const SOON: Duration = Duration::from_millis(500);

fn bench(config: Config) -> Bench {
    bench_with(config, true, true)
}

fn bench_with(config: Config, has_expire_only: bool, has_inc_epoch: bool) -> Bench {
    bench_for(config, has_expire_only, has_inc_epoch, Box::new(|_| None))
}

fn bench_for(
    config: Config,
    has_expire_only: bool,
    has_inc_epoch: bool,
    changed: Box<dyn Fn(u64) -> Option<Changer> + Send + Sync>,
) -> Bench {
    let inner = Mutex::new(Inner::default());
    let (is_busy, told) = (AtomicBool::new(false), Condvar::new());
    let kernel = Arc::new(FakeKernel { has_expire_only, has_inc_epoch, is_busy, inner, changed: told });
    let metrics = Arc::new(Metrics::new());
    let (done_sender, done) = channel();
    let (abort_sender, aborted) = channel();
    let hooks = Hooks {
        done: Box::new(move |job| _ = done_sender.send(job)),
        raised: Box::new(|_| ()),
        is_due: Box::new(|_| true),
        reaches: Box::new(|_| false),
        catch_up: Box::new(|_| true),
        taken: Box::new(|_, _| ()),
        changed,
        lull: Box::new(|_, _| ()),
        lowered: Box::new(|_| ()),
        unshielded: Box::new(|_| ()),
        drops: Drops {
            begin: Box::new(|_, _| 0),
            end: Box::new(|_, _, _| None),
            for_write: Box::new(|_, _| ()),
        },
        abort: Box::new(move || _ = abort_sender.send(())),
    };
    let notify: Arc<dyn Notify> = kernel.clone();
    let invalidator = Invalidator::new(config, notify, metrics.clone(), hooks).unwrap();
    Bench { kernel, metrics, invalidator, done, aborted }
}

impl Bench {
    fn expect_done(&self, job: u64) {
        assert_eq!(self.done.recv_timeout(LONG), Ok(job), "{:?}", self.kernel.begun());
    }

    fn expect_begun(&self, expected: &[&str]) {
        assert_eq!(self.kernel.begun(), expected);
    }

    /// Has a job of its own go through, so that what was to happen before has happened.
    fn pass(&self, job: u64) {
        self.invalidator.submit(job, vec![attr(1000 + job)]);
        self.expect_done(job);
    }
}

fn patience(patience: Duration) -> Config {
    Config { patience, watchdog: NEVER, ..Config::default() }
}

fn name(parent: u64, name: &str) -> Invalidation {
    Invalidation::Name { parent: Ino(parent), name: Name::new(name.as_bytes()).unwrap() }
}

fn directory(ino: u64) -> Invalidation {
    Invalidation::Directory { ino: Ino(ino) }
}

fn attr(ino: u64) -> Invalidation {
    Invalidation::Attr { ino: Ino(ino) }
}

fn pages(ino: u64) -> Invalidation {
    Invalidation::Pages { ino: Ino(ino) }
}

#[test]
fn steps_are_taken_in_order_and_the_job_is_reported_once() {
    let bench = bench(patience(NEVER));
    bench.invalidator.submit(7, vec![name(1, "a"), directory(1), attr(2), pages(3), name(1, "b")]);
    bench.expect_done(7);
    bench.expect_begun(&["expire 1 a", "inode 1 0 0", "inode 2 -1 0", "inode 3 0 0", "expire 1 b"]);
    bench.pass(8);
    let count = |kind| bench.metrics.invalidations.at(kind).get();
    assert_eq!(count(InvalidationKind::EntryExpire), 2);
    assert_eq!(count(InvalidationKind::InodePages), 2);
    assert_eq!(count(InvalidationKind::Inode), 2);
    assert_eq!(count(InvalidationKind::Epoch), 0);
    assert_eq!(bench.metrics.invalidation_duration.count(), 6);
}

#[test]
fn an_empty_job_is_reported() {
    let bench = bench(patience(NEVER));
    bench.invalidator.submit(7, Vec::new());
    bench.expect_done(7);
    bench.expect_begun(&[]);
}

#[test]
fn a_kernel_without_expire_only_drops_names() {
    let bench = bench_with(patience(NEVER), false, true);
    bench.invalidator.submit(7, vec![name(1, "a")]);
    bench.expect_done(7);
    bench.expect_begun(&["entry 1 a"]);
    assert_eq!(bench.metrics.invalidations.at(InvalidationKind::EntryDelete).get(), 1);
}

#[test]
fn a_stuck_name_raises_the_epoch_once_and_the_rest_of_its_job_goes_on() {
    let bench = bench(patience(AT_ONCE));
    bench.kernel.block("expire 1 a");
    bench.invalidator.submit(7, vec![name(1, "a"), name(1, "b"), directory(1), name(2, "c"), pages(3)]);
    bench.expect_done(7);
    let expected = ["expire 1 a", "epoch", "inode 1 0 0", "inode 3 0 0"];
    bench.expect_begun(&expected);
    // In that directory the epoch may not have reached all: who had its lock takes in what he was told only now.
    bench.kernel.unblock("expire 1 a");
    bench.kernel.wait_for("expire 1 b");
    bench.pass(8);
    bench.expect_begun(&[&expected[..], &["expire 1 b", "inode 1008 -1 0"]].concat());
    assert_eq!(bench.metrics.invalidations.at(InvalidationKind::Epoch).get(), 1);
    assert_eq!(bench.done.try_recv().ok(), None, "reported twice");
}

#[test]
fn what_an_epoch_stood_for_is_taken_back_again_when_the_lock_is_free() {
    let bench = bench(patience(SOON));
    bench.kernel.block("expire 1 a");
    bench.invalidator.submit(7, vec![name(1, "a"), attr(5)]);
    bench.kernel.wait_for("expire 1 a");
    bench.kernel.block("inode 3 0 0");
    bench.invalidator.submit(8, vec![pages(3), name(1, "b"), name(2, "c"), attr(6)]);
    bench.expect_done(7);
    bench.kernel.unblock("inode 3 0 0");
    bench.expect_done(8);
    let expected = ["expire 1 a", "inode 3 0 0", "epoch", "inode 5 -1 0", "inode 6 -1 0"];
    bench.expect_begun(&expected);
    // A name that nobody waits for takes no epoch, however long it takes.
    bench.kernel.block("expire 1 b");
    bench.kernel.unblock("expire 1 a");
    bench.kernel.wait_for("expire 1 b");
    std::thread::sleep(5 * SOON);
    bench.kernel.unblock("expire 1 b");
    bench.pass(9);
    let again = ["inode 5 -1 0", "expire 1 b", "inode 6 -1 0"];
    let is_done = || bench.kernel.begun().len() == expected.len() + again.len() + 1;
    let begun = std::time::Instant::now();
    while !is_done() && begun.elapsed() < LONG {
        std::thread::sleep(AT_ONCE);
    }
    let mut all = bench.kernel.begun();
    all.retain(|call| call != "inode 1009 -1 0");
    assert_eq!(all, [&expected[..], &again].concat());
}

#[test]
fn names_that_nobody_waits_for_keep_no_thread_from_others_and_end_no_mount() {
    let bench = bench(Config { patience: AT_ONCE, watchdog: SOON, ..Config::default() });
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    for (job, of) in names.iter().enumerate() {
        bench.kernel.block(&format!("expire 1 {of}"));
        bench.invalidator.submit(job as u64, vec![name(1, of)]);
        bench.expect_done(job as u64);
    }
    bench.invalidator.submit(30, vec![pages(3)]);
    bench.expect_done(30);
    std::thread::sleep(3 * SOON);
    assert!(bench.aborted.try_recv().is_err(), "nobody waits for any of them");
    for of in &names {
        bench.kernel.unblock(&format!("expire 1 {of}"));
    }
    bench.pass(31);
}

#[test]
fn a_name_that_is_settled_is_waited_for_no_longer_and_by_no_epoch() {
    let bench = bench(patience(NEVER));
    bench.kernel.block("expire 1 a");
    bench.invalidator.submit(7, vec![name(1, "a"), name(1, "b"), name(1, "c"), directory(1)]);
    bench.kernel.wait_for("expire 1 a");
    let settle = |parent, name: &str| {
        bench.invalidator.settle(Ino(parent), &Name::new(name.as_bytes()).unwrap());
    };
    // Of another directory; later in the list; then the one that is stuck.
    settle(2, "a");
    settle(1, "c");
    settle(1, "a");
    bench.expect_done(7);
    let expected = ["expire 1 a", "expire 1 b", "inode 1 0 0"];
    bench.expect_begun(&expected);
    bench.kernel.unblock("expire 1 a");
    bench.pass(8);
    assert_eq!(bench.done.try_recv().ok(), None, "reported twice");
}

#[test]
fn a_step_that_is_over_holds_up_the_job_that_it_is_of_no_longer() {
    let bench = bench(patience(NEVER));
    let of = |text: &str| Name::new(text.as_bytes()).unwrap();
    let over = |job, step, text: &str| {
        bench.invalidator.end(Over { job, step, parent: Ino(1), name: of(text) });
    };
    let (wait, take_back) = (OverStep::Wait, OverStep::TakeBack);
    for step in ["expire 1 a", "entry 1 b", "expire 1 c"] {
        bench.kernel.block(step);
    }
    bench.invalidator.submit(7, vec![Invalidation::Settled { parent: Ino(1), name: of("a") }, attr(7)]);
    bench.invalidator.submit(8, vec![Invalidation::Unhash { parent: Ino(1), name: of("b") }, attr(8)]);
    bench.invalidator.submit(9, vec![name(1, "c"), attr(9)]);
    for step in ["expire 1 a", "entry 1 b", "expire 1 c"] {
        bench.kernel.wait_for(step);
    }
    // Another job's, and what is not waited for but taken back.
    over(7, take_back, "a");
    over(9, take_back, "b");
    over(9, wait, "c");
    bench.pass(20);
    over(7, wait, "a");
    bench.expect_done(7);
    over(8, take_back, "b");
    bench.expect_done(8);
    over(9, take_back, "c");
    bench.expect_done(9);
    // Before the job has come.
    over(10, take_back, "c");
    bench.invalidator.submit(10, vec![name(1, "c"), directory(10)]);
    bench.expect_done(10);
    for step in ["expire 1 a", "entry 1 b", "expire 1 c"] {
        bench.kernel.unblock(step);
    }
    bench.pass(21);
}

#[test]
fn who_has_run_since_his_answer_is_not_waited_for_as_if_he_lacked_a_processor() {
    let thread = Arc::new(AtomicU32::new(0));
    let (told, is_over) = (Arc::clone(&thread), Arc::new(AtomicBool::new(false)));
    let until = Arc::clone(&is_over);
    let runs = std::thread::spawn(move || {
        told.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::Relaxed);
        while !until.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    let changed = move |_| Some(Changer::Thread(thread.load(Ordering::Relaxed)));
    let bench = bench_for(patience(Duration::from_millis(20)), true, true, Box::new(changed));
    bench.kernel.block("expire 1 a");
    let of = Name::new(b"a").unwrap();
    bench.invalidator.submit(1, vec![Invalidation::Settled { parent: Ino(1), name: of }]);
    bench.expect_done(1);
    is_over.store(true, Ordering::Relaxed);
    runs.join().unwrap();
    bench.kernel.unblock("expire 1 a");
    bench.expect_begun(&["expire 1 a"]);
}

#[test]
fn a_change_whose_answer_is_not_out_is_waited_for() {
    let asked = Arc::new(AtomicU32::new(0));
    let times = Arc::clone(&asked);
    let changed = move |_| match times.fetch_add(1, Ordering::Relaxed) {
        0..3 => Some(Changer::Unanswered),
        _ => None,
    };
    let bench = bench_for(patience(AT_ONCE), true, true, Box::new(changed));
    bench.kernel.block("expire 1 a");
    let of = Name::new(b"a").unwrap();
    let since = Instant::now();
    bench.invalidator.submit(1, vec![Invalidation::Settled { parent: Ino(1), name: of }]);
    bench.expect_done(1);
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked == 4 || since.elapsed() >= starved::STARVED_MAX, "asked {asked} times");
    bench.kernel.unblock("expire 1 a");
    bench.expect_begun(&["expire 1 a"]);
}

#[test]
fn a_thread_that_only_lacks_a_processor_gets_no_epoch() {
    let bench = bench(patience(AT_ONCE));
    bench.kernel.is_busy.store(true, Ordering::Relaxed);
    bench.invalidator.submit(1, vec![name(1, "a")]);
    bench.kernel.wait_for("expire 1 a");
    std::thread::sleep(20 * AT_ONCE);
    bench.kernel.is_busy.store(false, Ordering::Relaxed);
    bench.expect_done(1);
    bench.expect_begun(&["expire 1 a"]);
}

#[test]
fn an_epoch_covers_the_names_of_jobs_submitted_before_it_and_of_no_others() {
    let bench = bench(patience(SOON));
    bench.kernel.block("inode 3 0 0");
    bench.invalidator.submit(7, vec![pages(3), name(1, "before")]);
    bench.kernel.wait_for("inode 3 0 0");
    bench.kernel.block("expire 1 a");
    bench.invalidator.submit(8, vec![name(1, "a")]);
    bench.expect_done(8);
    bench.invalidator.submit(9, vec![name(1, "after")]);
    bench.expect_done(9);
    bench.kernel.unblock("inode 3 0 0");
    bench.expect_done(7);
    bench.expect_begun(&["inode 3 0 0", "expire 1 a", "epoch", "expire 1 after"]);
}

#[test]
fn two_names_stuck_at_once_need_one_epoch() {
    let bench = bench(patience(SOON));
    bench.kernel.block("expire 1 a");
    bench.kernel.block("expire 2 b");
    bench.invalidator.submit(7, vec![name(1, "a")]);
    bench.invalidator.submit(8, vec![name(2, "b")]);
    bench.kernel.wait_for("expire 1 a");
    bench.kernel.wait_for("expire 2 b");
    let done: BTreeSet<u64> = (0..2).map(|_| bench.done.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(done, BTreeSet::from([7, 8]));
    assert_eq!(bench.kernel.begun()[2..], ["epoch"]);
}

#[test]
fn later_jobs_pass_a_stuck_name() {
    let bench = bench(patience(NEVER));
    bench.kernel.block("expire 1 a");
    bench.invalidator.submit(7, vec![name(1, "a")]);
    bench.kernel.wait_for("expire 1 a");
    bench.invalidator.submit(8, vec![name(2, "b"), pages(3)]);
    bench.expect_done(8);
    bench.kernel.unblock("expire 1 a");
    bench.expect_done(7);
    bench.expect_begun(&["expire 1 a", "expire 2 b", "inode 3 0 0"]);
}

#[test]
fn jobs_pass_stuck_pages_even_if_all_but_one_thread_are_stuck() {
    let bench = bench(patience(NEVER));
    for ino in 0..7 {
        bench.kernel.block(&format!("inode {ino} 0 0"));
        bench.invalidator.submit(ino, vec![pages(ino)]);
        bench.kernel.wait_for(&format!("inode {ino} 0 0"));
    }
    bench.invalidator.submit(10, vec![pages(50)]);
    bench.pass(11);
    assert!(!bench.kernel.begun().contains(&"inode 50 0 0".to_owned()), "no thread would be left");
    bench.kernel.unblock("inode 4 0 0");
    let done: BTreeSet<u64> = (0..2).map(|_| bench.done.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(done, BTreeSet::from([4, 10]));
    for ino in [0, 1, 2, 3, 5, 6] {
        bench.kernel.unblock(&format!("inode {ino} 0 0"));
        bench.expect_done(ino);
    }
    assert_eq!(bench.invalidator.shared.state.lock().workers, 8);
}

#[test]
fn jobs_held_up_all_get_their_turn() {
    let bench = bench(Config { workers_max: 2, ..patience(NEVER) });
    bench.kernel.block("inode 0 0 0");
    bench.invalidator.submit(0, vec![pages(0)]);
    bench.kernel.wait_for("inode 0 0 0");
    for job in 1..20 {
        bench.invalidator.submit(job, vec![pages(job), name(job, "x")]);
    }
    bench.pass(30);
    bench.expect_begun(&["inode 0 0 0", "inode 1030 -1 0"]);
    bench.kernel.unblock("inode 0 0 0");
    let done: BTreeSet<u64> = (0..20).map(|_| bench.done.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(done, (0..20).collect());
    assert_eq!(bench.metrics.invalidations.at(InvalidationKind::Epoch).get(), 0);
}

#[test]
fn a_name_held_up_by_stuck_calls_gets_an_epoch() {
    let bench = bench(Config { workers_max: 2, ..patience(AT_ONCE) });
    bench.kernel.block("inode 3 0 0");
    bench.invalidator.submit(7, vec![pages(3)]);
    bench.kernel.wait_for("inode 3 0 0");
    bench.invalidator.submit(8, vec![name(1, "a"), attr(2)]);
    bench.expect_done(8);
    bench.expect_begun(&["inode 3 0 0", "epoch", "inode 2 -1 0"]);
    bench.kernel.unblock("inode 3 0 0");
    bench.expect_done(7);
}

#[test]
fn a_kernel_without_epochs_is_waited_for() {
    let bench = bench_with(patience(AT_ONCE), true, false);
    bench.kernel.block("expire 1 a");
    bench.invalidator.submit(7, vec![name(1, "a"), attr(2)]);
    bench.kernel.wait_for("expire 1 a");
    assert_eq!(bench.done.recv_timeout(AT_ONCE * 20), Err(RecvTimeoutError::Timeout));
    bench.pass(8);
    bench.kernel.unblock("expire 1 a");
    bench.expect_done(7);
    bench.expect_begun(&["expire 1 a", "inode 1008 -1 0", "inode 2 -1 0"]);
}

fn renamed(parent: u64, name: &str) -> Invalidation {
    Invalidation::Renamed { parent: Ino(parent), name: Name::new(name.as_bytes()).unwrap() }
}

#[test]
fn a_renamed_name_takes_an_epoch_at_once() {
    let bench = bench(patience(NEVER));
    bench.invalidator.submit(7, vec![renamed(1, "a")]);
    bench.expect_done(7);
    bench.expect_begun(&["epoch"]);
    assert_eq!(bench.metrics.invalidations.at(InvalidationKind::Epoch).get(), 1);
}

#[test]
fn without_epochs_a_renamed_name_is_taken_back_when_its_rename_has_returned() {
    let bench = bench_with(patience(AT_ONCE), true, false);
    bench.kernel.block("expire 1 a");
    bench.invalidator.submit(7, vec![renamed(1, "a")]);
    bench.expect_done(7);
    bench.kernel.wait_for("expire 1 a");
    bench.kernel.unblock("expire 1 a");
}

#[test]
fn an_epoch_that_is_refused_is_not_tried_again() {
    let bench = bench(patience(AT_ONCE));
    bench.kernel.inner.lock().refuses_epoch = true;
    bench.kernel.block("expire 1 a");
    bench.invalidator.submit(7, vec![name(1, "a"), name(1, "b")]);
    bench.kernel.wait_for("epoch");
    assert_eq!(bench.done.recv_timeout(AT_ONCE * 20), Err(RecvTimeoutError::Timeout));
    bench.kernel.unblock("expire 1 a");
    bench.expect_done(7);
    bench.expect_begun(&["expire 1 a", "epoch", "expire 1 b"]);
}

#[test]
fn the_watchdog_aborts_once() {
    let bench = bench(Config { watchdog: AT_ONCE, ..patience(NEVER) });
    bench.kernel.block("inode 3 0 0");
    bench.kernel.block("inode 4 0 0");
    bench.invalidator.submit(7, vec![pages(3)]);
    assert_eq!(bench.aborted.recv_timeout(LONG), Ok(()));
    bench.invalidator.submit(8, vec![pages(4)]);
    bench.kernel.wait_for("inode 4 0 0");
    assert_eq!(bench.aborted.recv_timeout(AT_ONCE * 20), Err(RecvTimeoutError::Timeout));
    assert_eq!(bench.metrics.watchdog_aborts.get(), 1);
    // What the abort brings about: the calls return, and their jobs are reported.
    bench.kernel.unblock("inode 3 0 0");
    bench.expect_done(7);
    bench.kernel.unblock("inode 4 0 0");
    bench.expect_done(8);
}

#[test]
fn a_range_is_taken_back_before_its_owner_goes_on() {
    let bench = bench(patience(NEVER));
    let (sender, receiver) = channel();
    let kernel = bench.kernel.clone();
    let then = Box::new(move || _ = sender.send(kernel.begun()));
    bench.invalidator.range(Ino(3), 8192, 100, Some(then));
    assert_eq!(receiver.recv_timeout(LONG).unwrap(), ["inode 3 8192 100"]);
    bench.expect_begun(&["inode 3 8192 100"]);
    assert_eq!(bench.metrics.invalidations.at(InvalidationKind::InodePages).get(), 1);
}

#[test]
fn a_name_is_dropped_before_its_owner_goes_on_who_waits_no_longer_than_patience() {
    let bench = bench(patience(NEVER));
    let (sender, receiver) = channel();
    let owner = |sender: std::sync::mpsc::Sender<Vec<String>>, kernel: Arc<FakeKernel>| {
        Box::new(move || _ = sender.send(kernel.begun()))
    };
    let dropped = |name: &[u8]| {
        let drop = Some((Ino(3), Name::new(name).unwrap()));
        Before { drop, ..Before::default() }
    };
    bench.invalidator.prepare(dropped(b"d"), owner(sender.clone(), bench.kernel.clone()));
    assert_eq!(receiver.recv_timeout(LONG).unwrap(), ["entry 3 d"]);

    let bench = self::bench(patience(AT_ONCE));
    bench.kernel.block("entry 3 e");
    bench.invalidator.prepare(dropped(b"e"), owner(sender, bench.kernel.clone()));
    receiver.recv_timeout(LONG).unwrap();
    // It goes on by itself, and holds nobody up.
    bench.pass(1);
    bench.kernel.unblock("entry 3 e");
    bench.kernel.wait_for("entry 3 e");
}

/// Pages that the write itself has locked, by a mistake or in a kernel that locks more, must not hang it.
#[test]
fn pages_are_taken_back_before_a_write_is_answered_but_do_not_hang_it() {
    let bench = bench(patience(NEVER));
    let (sender, receiver) = channel();
    let spans = [(0, 4096), (12288, 20480)].map(|(start, end)| PageSpan { start, end });
    let answer = |sender: std::sync::mpsc::Sender<Vec<String>>, kernel: Arc<FakeKernel>| {
        Box::new(move || _ = sender.send(kernel.begun()))
    };
    let later = PageSpan { start: 5, end: 105 };
    let first = |surely| First { surely, perhaps: None };
    bench.invalidator.pages(Ino(3), first(&spans), answer(sender.clone(), bench.kernel.clone()), &[later]);
    assert_eq!(receiver.recv_timeout(LONG).unwrap(), ["inode 3 0 4096", "inode 3 12288 8192"]);
    bench.kernel.wait_for("inode 3 5 100");

    bench.kernel.block("inode 4 0 4096");
    bench.invalidator.pages(Ino(4), first(&spans[..1]), answer(sender.clone(), bench.kernel.clone()), &[]);
    receiver.recv_timeout(LONG).unwrap();
    bench.pass(1);
    bench.kernel.unblock("inode 4 0 4096");

    bench.kernel.block("inode 6 12288 8192");
    let perhaps = First { surely: &spans[..1], perhaps: Some(spans[1]) };
    bench.invalidator.pages(Ino(6), perhaps, answer(sender.clone(), bench.kernel.clone()), &[]);
    let begun = receiver.recv_timeout(LONG).unwrap();
    assert_eq!(begun[begun.len() - 2..], ["inode 6 0 4096", "inode 6 12288 8192"]);
    bench.kernel.unblock("inode 6 12288 8192");

    // Nor do other pages, though as many are stuck as may be.
    for ino in 10..20 {
        bench.kernel.block(&format!("inode {ino} 0 1"));
        bench.invalidator.range(Ino(ino), 0, 1, None);
    }
    bench.invalidator.pages(Ino(5), first(&spans[..1]), answer(sender, bench.kernel.clone()), &[]);
    let begun = receiver.recv_timeout(LONG).unwrap();
    assert!(begun.iter().any(|call| call == "inode 5 0 4096"), "{begun:?}");
    (10..20).for_each(|ino| bench.kernel.unblock(&format!("inode {ino} 0 1")));
}

#[test]
fn a_panicking_report_ends_no_thread() {
    let bench = bench(patience(NEVER));
    for _ in 0..20 {
        bench.invalidator.range(Ino(3), 0, 1, Some(Box::new(|| panic!("on purpose"))));
    }
    bench.pass(1);
}

#[test]
fn all_threads_end_on_shutdown_those_in_a_call_when_it_returns() {
    let bench = bench(patience(NEVER));
    bench.kernel.block("expire 1 a");
    bench.invalidator.submit(7, vec![name(1, "a"), attr(2)]);
    bench.kernel.wait_for("expire 1 a");
    bench.pass(8);
    bench.invalidator.shutdown();
    bench.invalidator.submit(9, vec![attr(3)]);
    assert!(!bench.invalidator.wait_ended(AT_ONCE));
    bench.kernel.unblock("expire 1 a");
    assert!(bench.invalidator.wait_ended(LONG));
    bench.expect_begun(&["expire 1 a", "inode 1008 -1 0"]);
    assert_eq!(bench.done.try_recv().ok(), None, "nothing is reported after the end");
}
