//! The crew: workers, and what they are told.

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::bench::BenchError;
use crate::bench::coherence::Seen;
use crate::bench::task::{Outcome, Task, Work};
use crate::system::{self, Signals};

/// Workers that do one task each at a time.
///
/// | Thread | Does | Ends when |
/// | --- | --- | --- |
/// | `worker-N` | reads what worker N answers | the worker ends |
/// | `signal` | SIGINT, SIGTERM, SIGHUP: the benchmark is over, and at one a second later the process | with the process |
pub(crate) struct Crew {
    workers: Vec<Worker>,
    heard: Receiver<Heard>,
}

struct Worker {
    child: Child,
    input: ChildStdin,
}

enum Heard {
    Outcome(usize, Outcome),
    Ended,
    Signal,
}

/// What came of tasks that were done at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    /// Of all workers.
    pub count: u64,
    /// From the beginning of the first to the end of the last.
    pub seconds: f64,
    /// CPU time of all workers in their own code.
    pub user_seconds: f64,
    /// Of all workers, by seconds since the common beginning.
    pub series: Vec<u64>,
    /// Of all calls that were timed, in nanoseconds.
    pub delays: Vec<u64>,
    /// Of all workers.
    pub seen: Vec<Seen>,
}

impl Crew {
    /// Starts `count` workers.
    pub fn new(count: usize, start: &dyn Fn() -> Command) -> Result<Self, BenchError> {
        let (tell, heard) = channel();
        hear_signals(tell.clone())?;
        let mut crew = Self { workers: Vec::new(), heard };
        for number in 0..count {
            let worker = Worker::start(start(), number, tell.clone()).map_err(BenchError::Start)?;
            crew.workers.push(worker);
        }
        Ok(crew)
    }

    /// Has the first workers do a task each, all at once, and waits for them.
    pub fn run(&mut self, tasks: Vec<(PathBuf, Work)>) -> Result<Done, BenchError> {
        self.run_for(tasks, None)
    }

    /// As [`run`](Self::run), for no longer than `limit` where the work knows how to end before it is done. What does not answer for long
    /// after is stuck: the crew is of no use then.
    pub fn run_for(
        &mut self,
        tasks: Vec<(PathBuf, Work)>,
        limit: Option<Duration>,
    ) -> Result<Done, BenchError> {
        if IS_INTERRUPTED.load(Ordering::SeqCst) {
            return Err(BenchError::Interrupted);
        }
        // One alone waits for nobody.
        let head_start = if tasks.len() > 1 { HEAD_START } else { Duration::ZERO };
        let start_ns = system::monotonic_ns() + head_start.as_nanos() as u64;
        let until_ns = limit.map_or(u64::MAX, |limit| start_ns + limit.as_nanos() as u64);
        let dirs: Vec<PathBuf> = tasks.iter().map(|(dir, _)| dir.clone()).collect();
        for (worker, (dir, work)) in self.workers.iter_mut().zip(tasks) {
            let task = Task { dir, work, start_ns, until_ns };
            writeln!(worker.input, "{}", task.to_line()).map_err(|_| BenchError::WorkerEnded)?;
        }
        let mut outcomes: Vec<Option<Outcome>> = vec![None; dirs.len()];
        let mut unsupported = None;
        while outcomes.iter().any(Option::is_none) {
            let heard = match limit {
                Some(limit) => self.heard.recv_timeout(limit + PATIENCE),
                None => self.heard.recv().map_err(RecvTimeoutError::from),
            };
            match heard {
                Err(RecvTimeoutError::Timeout) => {
                    let stuck = outcomes.iter().position(Option::is_none).unwrap_or(0);
                    return Err(BenchError::Stuck { dir: dirs[stuck].clone(), seconds: PATIENCE.as_secs() });
                }
                Ok(Heard::Outcome(number, outcome)) => {
                    if let Some(what) = outcome.error.clone() {
                        let (dir, is_unsupported) = (dirs[number].clone(), outcome.is_unsupported);
                        let error = BenchError::Call { dir, what, is_unsupported };
                        if !is_unsupported {
                            return Err(error);
                        }
                        // The crew goes on after that: the others are to have ended.
                        unsupported.get_or_insert(error);
                    }
                    outcomes[number] = Some(outcome);
                }
                Ok(Heard::Signal) => return Err(BenchError::Interrupted),
                Ok(Heard::Ended) | Err(_) => return Err(BenchError::WorkerEnded),
            }
        }
        match unsupported {
            Some(error) => Err(error),
            None => Ok(Done::of(&outcomes.into_iter().flatten().collect::<Vec<_>>())),
        }
    }
}

/// Has a signal end the crew that was made last. Signals are blocked for this thread and all that it starts: call it before any other
/// thread is started.
fn hear_signals(tell: Sender<Heard>) -> Result<(), BenchError> {
    let mut listener = LISTENER.lock();
    if listener.is_none() {
        let signals = Signals::block().map_err(BenchError::Signals)?;
        let wait = move || {
            _ = signals.wait();
            let asked = Instant::now();
            IS_INTERRUPTED.store(true, Ordering::SeqCst);
            if let Some(tell) = &*LISTENER.lock() {
                _ = tell.send(Heard::Signal);
            }
            // What is to be removed may hang as well: who asks again gets out. timeout(1) signals the child and then its process
            // group, and asks once.
            while asked.elapsed() < SAME_REQUEST {
                _ = signals.wait();
            }
            for worker in &*WORKERS.lock() {
                _ = kill_process(*worker, Signal::KILL);
            }
            std::process::exit(INTERRUPTED_CODE);
        };
        std::thread::Builder::new().name("signal".to_owned()).spawn(wait).map_err(BenchError::Signals)?;
    }
    *listener = Some(tell);
    Ok(())
}

impl Drop for Crew {
    /// Workers that are stuck in the kernel go when it lets them.
    fn drop(&mut self) {
        for worker in &mut self.workers {
            _ = worker.child.kill();
            // Before it is waited for: its number is another's then.
            let own = Pid::from_child(&worker.child);
            WORKERS.lock().retain(|worker| *worker != own);
        }
        for worker in &mut self.workers {
            for _ in 0..KILL_WAITS {
                match worker.child.try_wait() {
                    Ok(None) => std::thread::sleep(KILL_WAIT),
                    Ok(Some(_)) | Err(_) => break,
                }
            }
        }
    }
}

impl Worker {
    fn start(mut command: Command, number: usize, tell: Sender<Heard>) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let read = move || {
            for line in BufReader::new(output).lines() {
                let outcome = line.ok().and_then(|line| Outcome::parse(&line));
                let Some(outcome) = outcome else { break };
                if tell.send(Heard::Outcome(number, outcome)).is_err() {
                    return;
                }
            }
            _ = tell.send(Heard::Ended);
        };
        std::thread::Builder::new().name(format!("worker-{number}")).spawn(read)?;
        WORKERS.lock().push(Pid::from_child(&child));
        Ok(Self { child, input })
    }
}

impl Done {
    fn of(outcomes: &[Outcome]) -> Self {
        let begun = outcomes.iter().map(|outcome| outcome.begun_ns).min().unwrap_or(0);
        let ended = outcomes.iter().map(|outcome| outcome.ended_ns).max().unwrap_or(0);
        let len = outcomes.iter().map(|outcome| outcome.series.len()).max().unwrap_or(0);
        let of_second =
            |second| outcomes.iter().filter_map(|outcome| outcome.series.get(second)).sum::<u64>();
        Self {
            count: outcomes.iter().map(|outcome| outcome.count).sum(),
            seconds: (ended - begun) as f64 / 1e9,
            user_seconds: outcomes.iter().map(|outcome| outcome.user_ns).sum::<u64>() as f64 / 1e9,
            series: (0..len).map(of_second).collect(),
            delays: outcomes.iter().flat_map(|outcome| outcome.delays.iter().copied()).collect(),
            seen: outcomes.iter().flat_map(|outcome| outcome.seen.clone()).collect(),
        }
    }

    /// In a second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.seconds.max(1e-9)
    }
}

/// Whom a signal is told.
static LISTENER: Mutex<Option<Sender<Heard>>> = Mutex::new(None);
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Of all crews: those that have not been waited for.
static WORKERS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());
/// 128 and SIGINT, as shells have it.
pub const INTERRUPTED_CODE: i32 = 130;
/// Between the order and the beginning: all workers have their orders by then.
const HEAD_START: Duration = Duration::from_millis(20);
/// For one call to come back.
const PATIENCE: Duration = Duration::from_secs(20);
/// A signal that comes so soon after another asks for the same.
const SAME_REQUEST: Duration = Duration::from_secs(1);
const KILL_WAIT: Duration = Duration::from_millis(10);
const KILL_WAITS: u32 = 200;
