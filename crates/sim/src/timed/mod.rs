//! A cluster in which everything takes its time: messages, the master's work, a kernel's invalidations, syncs.
//!
//! The seed decides nothing here. What happens next is what is due next, so the time an operation takes says what the
//! protocol costs it: round trips, waits for others, syncs. Loads are futures, one for each process.

mod client;
mod spread;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use types::Micros;
use vfs::RequestId;

pub use client::Client;
pub use spread::Spread;

use crate::cluster::{Cluster, ClusterConfig, Lane, Move};

/// What things take.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A message on its way, one way.
    pub wire: Micros,
    /// A message in the master, which takes one after the other.
    pub master: Micros,
    /// A message in a node, which takes one after the other.
    pub node: Micros,
    /// A request from a process to its node and back.
    pub request: Micros,
    /// What a kernel answers from its caches.
    pub cached: Micros,
    /// An invalidation in the kernel.
    pub invalidation: Micros,
    /// A sync of segments or of the engine.
    pub sync: Micros,
}

impl Default for Costs {
    /// Two machines on one switch, with disks that keep what they are told.
    fn default() -> Self {
        Self {
            wire: Micros(50),
            master: Micros(10),
            node: Micros(5),
            request: Micros(20),
            cached: Micros(1),
            invalidation: Micros(10),
            sync: Micros(1_000),
        }
    }
}

/// The cluster and its clock.
pub(crate) struct World {
    pub cluster: Cluster,
    pub costs: Costs,
    clients: Vec<State>,
    /// When what stands in each queue arrives.
    due: BTreeMap<Lane, VecDeque<Micros>>,
    /// When kernels are through with each invalidation.
    jobs: BTreeMap<(usize, u64), Micros>,
    /// Until when each reader of a queue is busy.
    busy: BTreeMap<Reader, Micros>,
}

/// Who takes one thing after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reader {
    Master,
    Node(usize),
    Disk(Lane),
}

/// Where a process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Until a time.
    Sleeps(Micros),
    /// Until its kernel lets a request through.
    AtTheDoor,
    /// Until it is answered.
    Asked(usize, RequestId),
    Done,
}

/// A run of timed processes.
pub struct Timed {
    world: Rc<RefCell<World>>,
    tasks: Vec<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Timed {
    /// A cluster with all nodes joined and nothing in it.
    pub fn new(config: ClusterConfig, costs: Costs) -> Self {
        let cluster = Cluster::new(config);
        let world = World {
            cluster,
            costs,
            clients: Vec::new(),
            due: BTreeMap::new(),
            jobs: BTreeMap::new(),
            busy: BTreeMap::new(),
        };
        let mut timed = Self { world: Rc::new(RefCell::new(world)), tasks: Vec::new() };
        timed.run_until(|timed| timed.world.borrow().cluster.is_quiet());
        timed
    }

    /// Starts a process on a node.
    pub fn start<F>(&mut self, node: usize, load: impl FnOnce(Client) -> F)
    where
        F: Future<Output = ()> + 'static,
    {
        let id = self.tasks.len();
        let now = {
            let mut world = self.world.borrow_mut();
            let now = world.cluster.clock().now;
            world.clients.push(State::Sleeps(now));
            now
        };
        self.tasks.push(Box::pin(load(Client::new(self.world.clone(), id, node, now))));
    }

    /// Lets time pass until every process is done.
    ///
    /// # Panics
    ///
    /// If that takes more than an hour of virtual time.
    pub fn run(&mut self) {
        self.run_until(|timed| timed.world.borrow().clients.iter().all(|state| *state == State::Done));
        self.world.borrow_mut().clients.clear();
        self.tasks.clear();
    }

    /// Runs one process by itself.
    pub fn run_alone<F>(&mut self, node: usize, load: impl FnOnce(Client) -> F)
    where
        F: Future<Output = ()> + 'static,
    {
        self.start(node, load);
        self.run();
    }

    /// The time.
    pub fn now(&self) -> Micros {
        self.world.borrow().cluster.clock().now
    }

    /// Looks at the cluster, or changes it.
    pub fn cluster<T>(&self, look: impl FnOnce(&mut Cluster) -> T) -> T {
        look(&mut self.world.borrow_mut().cluster)
    }

    fn run_until(&mut self, is_over: impl Fn(&Self) -> bool) {
        let end = Micros(self.now().0 + 3_600_000_000);
        while !is_over(self) {
            self.step();
            if self.now() > end {
                let waiting = self.world.borrow().cluster.waiting();
                panic!("nothing ends; waiting:\n{waiting}");
            }
        }
    }

    /// What is due next happens.
    fn step(&mut self) {
        let sleeper = self.world.borrow_mut().next_sleeper();
        let event = self.world.borrow_mut().next_event();
        match (sleeper, event) {
            (Some((wakes, id)), Some((due, _))) if wakes <= due => self.wake(wakes, id),
            (Some((wakes, id)), None) => self.wake(wakes, id),
            (_, Some((due, Some(next)))) => self.world.borrow_mut().make(due, next),
            (_, Some((due, None))) => self.world.borrow_mut().cluster.go_to(due),
            (None, None) => panic!("nothing will ever happen: {}", self.world.borrow().cluster.waiting()),
        }
        self.poll_answered();
    }

    fn wake(&mut self, now: Micros, id: usize) {
        self.world.borrow_mut().cluster.go_to(now);
        self.poll(id);
    }

    /// Processes go on that were answered, in the order of the answers, and those that their kernels let through now.
    fn poll_answered(&mut self) {
        loop {
            let answer = self.world.borrow_mut().cluster.oldest_reply();
            let next = match answer {
                Some((node, request)) => {
                    let world = self.world.borrow();
                    world.clients.iter().position(|state| *state == State::Asked(node, request))
                }
                None => None,
            };
            match (answer, next) {
                (None, _) => break,
                (Some(_), Some(id)) => self.poll(id),
                (Some((node, request)), None) => {
                    drop(self.world.borrow_mut().cluster.take_reply(node, request));
                }
            }
        }
        for id in 0..self.tasks.len() {
            if self.world.borrow().clients[id] == State::AtTheDoor {
                self.poll(id);
            }
        }
    }

    fn poll(&mut self, id: usize) {
        if self.tasks[id].as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            self.world.borrow_mut().clients[id] = State::Done;
        }
    }
}

impl World {
    fn set(&mut self, id: usize, state: State) {
        self.clients[id] = state;
    }

    fn next_sleeper(&self) -> Option<(Micros, usize)> {
        let sleepers = self.clients.iter().enumerate().filter_map(|(id, state)| match state {
            State::Sleeps(until) => Some((*until, id)),
            State::AtTheDoor | State::Asked(..) | State::Done => None,
        });
        sleepers.min()
    }

    /// What happens next beside processes, and when: a move, or a timer.
    fn next_event(&mut self) -> Option<(Micros, Option<Move>)> {
        self.note_arrivals();
        let now = self.cluster.clock().now;
        let queued = self.due.iter().filter_map(|(lane, due)| {
            let free = self.busy.get(&reader(*lane)).copied().unwrap_or_default();
            Some(((*due.front()?).max(free), Some(lane.next())))
        });
        let jobs = self.cluster.moves().into_iter().filter_map(|next| match next {
            Move::Invalidate(node, number) => Some((*self.jobs.get(&(node, number))?, Some(next))),
            _ => None,
        });
        let timer = self.cluster.next_time().map(|due| (due, None));
        let next = queued.chain(jobs).chain(timer).min_by_key(|(due, next)| (*due, next.is_none(), *next));
        next.map(|(due, next)| (due.max(now), next))
    }

    /// What came to stand in a queue arrives after its time.
    fn note_arrivals(&mut self) {
        let now = self.cluster.clock().now;
        for (lane, length) in self.cluster.queues() {
            let takes = match lane {
                Lane::ToMaster(_) | Lane::FromMaster(_) => self.costs.wire,
                Lane::NodeSync(_) | Lane::MasterSync => self.costs.sync,
            };
            let due = self.due.entry(lane).or_default();
            due.truncate(length);
            due.resize(length, now + takes);
        }
        for job in self.cluster.jobs() {
            self.jobs.entry(job).or_insert(now + self.costs.invalidation);
        }
    }

    fn make(&mut self, due: Micros, next: Move) {
        self.cluster.go_to(due);
        if let Some(lane) = Lane::of(next) {
            let works = match lane {
                Lane::ToMaster(_) => self.costs.master,
                Lane::FromMaster(_) => self.costs.node,
                Lane::NodeSync(_) | Lane::MasterSync => self.costs.sync,
            };
            self.busy.insert(reader(lane), due + works);
            if let Some(queue) = self.due.get_mut(&lane) {
                queue.pop_front();
            }
        }
        if let Move::Invalidate(node, number) = next {
            self.jobs.remove(&(node, number));
        }
        self.cluster.make(next);
    }
}

fn reader(lane: Lane) -> Reader {
    match lane {
        Lane::ToMaster(_) => Reader::Master,
        Lane::FromMaster(node) => Reader::Node(node),
        Lane::NodeSync(_) | Lane::MasterSync => Reader::Disk(lane),
    }
}

/// Waits until `ready` has something.
pub(crate) async fn until<T>(mut ready: impl FnMut() -> Option<T>) -> T {
    std::future::poll_fn(move |_| ready().map_or(Poll::Pending, Poll::Ready)).await
}
