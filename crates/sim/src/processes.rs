//! Several processes at once on every node, deaths of nodes and of the master, losses of power.
//!
//! Each process is a future that the seed lets go on or not; everything else that can happen happens in between.
//! What a process finds of its own must be exact at every step. When all are done and all is quiet, every node
//! must show what the engine holds, and the engine's records must be whole.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use meta::FileKind;
use types::{Ino, Micros};
use vfs::{MakeSpec, OpenMode, Reply, Request, Taken};

use crate::check::Tree;
use crate::cluster::{Cluster, ClusterConfig, Figures};
use crate::coverage::Coverage;
use crate::process::{Gate, Own, Process, State};
use crate::traffic::Traffic;

mod names;
mod troubles;

pub(crate) use names::{Begun, Seen, SharedNames};
pub use troubles::Trouble;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct ProcessesConfig {
    /// The cluster.
    pub cluster: ClusterConfig,
    /// Processes in all, on any node.
    pub processes: usize,
    /// What each does.
    pub steps: usize,
    /// Directories that all share, beside the root.
    pub directories: usize,
    /// What dies.
    pub deaths: Deaths,
    /// What goes wrong beside, and after how many steps of all processes.
    pub plan: Vec<(u64, Trouble)>,
}

/// What dies: one in so many events each, 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deaths {
    /// The master.
    pub master_every: u64,
    /// A node; another may join.
    pub node_every: u64,
    /// Everything.
    pub power_every: u64,
    /// Nobody: a machine stands still for a while.
    pub pause_every: u64,
    /// Nobody: a node and the master do not reach each other for a while, or one way only.
    pub cut_every: u64,
    /// Nobody: a connection breaks.
    pub break_every: u64,
}

/// Outcome of a run that found no fault.
#[derive(Clone, Debug)]
pub struct ProcessesRun {
    /// What happened.
    pub figures: Figures,
    /// Digest of the run.
    pub trace: u64,
    /// Steps that processes began.
    pub steps: u64,
    /// What went wrong as planned, and how often.
    pub troubles: BTreeMap<&'static str, u64>,
    /// Which transitions it went through.
    pub coverage: Coverage,
    /// Some of what was sent and all that was stored at the end.
    pub traffic: Traffic,
}

/// What the processes share.
pub(crate) struct World {
    pub cluster: Cluster,
    pub seed: u64,
    pub states: Vec<State>,
    /// Directories that all share, the root among them.
    pub shared: Vec<(Vec<u8>, u64)>,
    /// How many were told that they made a name of a race.
    pub winners: BTreeMap<(u64, Vec<u8>), u64>,
    /// What was done with shared names, and what was seen of them.
    pub names: SharedNames,
    /// Who is in the critical section.
    pub critical: Option<usize>,
    /// How often it was gone through.
    pub counted: u64,
    /// Whether something can be lost, so that what was true before counts.
    pub keeps_history: bool,
    turns: u64,
}

impl World {
    /// The oldest answer that can be taken: a node that stands still takes none.
    fn next_answered(&mut self) -> Option<(usize, vfs::RequestId)> {
        let (node, request) = self.cluster.oldest_reply()?;
        (!self.cluster.is_up(node) || self.cluster.goes(node)).then_some((node, request))
    }

    /// Whether a process goes on when it can.
    fn may_run(&self, id: usize) -> bool {
        let node = self.states[id].node;
        !self.cluster.is_up(node) || self.cluster.goes(node)
    }

    /// Number of the race that goes on.
    pub fn round(&self) -> u64 {
        self.turns / 40
    }
}

/// What a death leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// What the master committed, not all of it durable.
    Committed,
    /// What was durable.
    Durable,
    /// Nothing is missing.
    All,
}

type Task = Option<Pin<Box<dyn Future<Output = ()>>>>;

struct Runner {
    config: ProcessesConfig,
    world: Rc<RefCell<World>>,
    tasks: Vec<Task>,
    /// What is still to go wrong.
    plan: VecDeque<(u64, Trouble)>,
    struck: BTreeMap<&'static str, u64>,
    /// Failures of the segment store that were noted.
    failures: u64,
}

/// Runs processes. Panics, naming the seed, at the first thing that must not be.
pub fn run_processes(config: ProcessesConfig) -> ProcessesRun {
    let mut cluster = Cluster::new(config.cluster.clone());
    let shared = make_shared(&mut cluster, config.directories);
    let deaths = config.deaths;
    let world = World {
        cluster,
        seed: config.cluster.seed,
        states: Vec::new(),
        shared,
        winners: BTreeMap::new(),
        names: SharedNames::default(),
        critical: None,
        counted: 0,
        keeps_history: !config.plan.is_empty()
            || deaths.node_every + deaths.power_every + deaths.pause_every + deaths.cut_every > 0,
        turns: 0,
    };
    let mut runner = Runner {
        world: Rc::new(RefCell::new(world)),
        tasks: Vec::new(),
        plan: config.plan.iter().copied().collect(),
        struck: BTreeMap::new(),
        failures: 0,
        config,
    };
    for id in 0..runner.config.processes {
        let node = id % runner.config.cluster.nodes;
        let own = Own::default();
        let state = State { node, history: vec![own.clone()], own, ..State::default() };
        runner.world.borrow_mut().states.push(state);
        let task = runner.start(id, runner.config.steps);
        runner.tasks.push(task);
    }
    runner.work();
    runner.world.borrow_mut().cluster.quiesce();
    runner.note_failures();
    runner.bury_ended();
    runner.check();
    if !runner.config.plan.is_empty() {
        runner.check_end();
    }
    let mut world = runner.world.borrow_mut();
    ProcessesRun {
        traffic: world.cluster.traffic(),
        figures: world.cluster.figures(),
        trace: world.cluster.trace(),
        steps: world.turns,
        troubles: runner.struck.clone(),
        coverage: world.cluster.coverage().clone(),
    }
}

/// Makes what all share, durably.
fn make_shared(cluster: &mut Cluster, directories: usize) -> Vec<(Vec<u8>, u64)> {
    let spec =
        |kind| MakeSpec { kind, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0, target: Box::default() };
    let mut shared = vec![(Vec::new(), 1)];
    for index in 0..directories {
        let name = format!("s{index}").into_bytes();
        let request =
            Request::Make { parent: Ino::ROOT, name: name.clone().into(), spec: spec(FileKind::Directory) };
        match cluster.call(0, request) {
            Reply::Entry(entry) => shared.push((name, entry.attr.ino.0)),
            other => panic!("mkdir answered {other:?}"),
        }
    }
    for name in [&b"log"[..], b"count", b"far"] {
        let spec = spec(FileKind::File);
        let open = OpenMode { write: true, map: true, ..OpenMode::default() };
        let request =
            Request::Create { parent: Ino::ROOT, name: name.into(), spec, open, taken: Taken::Refuse };
        let Reply::Created(entry, opened) = cluster.call(0, request) else { panic!("a file is made") };
        let ino = entry.attr.ino;
        let _ = cluster.call(0, Request::Release { ino, handle: opened.handle, flock: None });
    }
    let _ = cluster.call(0, Request::Fsync { ino: Ino::ROOT });
    shared
}

impl Runner {
    fn start(&self, id: usize, steps: usize) -> Task {
        let process = Process { world: self.world.clone(), id };
        let mut task: Pin<Box<dyn Future<Output = ()>>> = Box::pin(process.run(steps));
        // To its first pause.
        let _ = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        Some(task)
    }

    fn fault(&self, what: &str) -> ! {
        panic!("seed {}: {what}", self.config.cluster.seed)
    }

    /// Lets things happen until every process is done.
    fn work(&mut self) {
        while self.tasks.iter().any(Option::is_some) {
            let turn = {
                let world = &mut *self.world.borrow_mut();
                let under_way = world.cluster.changes_under_way();
                let cluster = &world.cluster;
                let may_go = |state: &mut State| {
                    let is_new = !matches!(state.gate, Gate::Open);
                    let goes = cluster.goes(state.node) && !(is_new && cluster.has_broken_files(state.node));
                    state.is_idle && goes && state.gate.try_pass(under_way.as_ref())
                };
                let idle: Vec<usize> = (0..world.states.len())
                    .filter(|id| self.tasks[*id].is_some() && may_go(&mut world.states[*id]))
                    .collect();
                // Seldom is nothing done for long: then timers run out between steps.
                let odds = if world.cluster.is_quiet() {
                    1 + u64::from(world.cluster.random(40) == 0) * 30
                } else {
                    6
                };
                let goes = !idle.is_empty() && world.cluster.random(odds) == 0;
                let next = goes.then(|| idle[world.cluster.random(idle.len() as u64) as usize]);
                match next {
                    Some(id) => {
                        world.turns += 1;
                        world.states[id].may_go = true;
                    }
                    None => world.cluster.step(),
                }
                next
            };
            self.note_failures();
            self.bury_ended();
            self.poll(turn);
            self.check_progress();
            self.check_sizes();
            self.signal();
            self.die();
        }
    }

    fn poll(&mut self, turn: Option<usize>) {
        loop {
            self.take_replies();
            for id in 0..self.tasks.len() {
                let is_idle = self.world.borrow().states[id].is_idle;
                if !is_idle || turn == Some(id) {
                    self.poll_one(id);
                }
            }
            if self.world.borrow_mut().next_answered().is_none() {
                return;
            }
        }
    }

    /// Lets those go on who were answered, in the order of the answers.
    fn take_replies(&mut self) {
        loop {
            let Some((node, request)) = self.world.borrow_mut().next_answered() else { return };
            let is_its = |state: &State| state.node == node && state.request == Some(request);
            let id = self.world.borrow().states.iter().position(is_its);
            match id {
                Some(id) => self.poll_one(id),
                None => self.world.borrow_mut().cluster.abandon(node, request),
            }
        }
    }

    fn poll_one(&mut self, id: usize) {
        if !self.world.borrow().may_run(id) {
            return;
        }
        let Some(task) = &mut self.tasks[id] else { return };
        if task.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(()) {
            self.tasks[id] = None;
        }
    }

    /// Nobody waits for ever.
    fn check_progress(&self) {
        let world = self.world.borrow();
        let now = world.cluster.clock().now;
        let Deaths { master_every, node_every, power_every, pause_every, cut_every, break_every } =
            self.config.deaths;
        let is_troubled = pause_every + cut_every > 0 || !self.config.plan.is_empty();
        let may_fail = self.config.cluster.may_break || self.config.cluster.may_fail;
        let is_calm = master_every + node_every + power_every + break_every == 0 && !may_fail;
        let patience = match (is_troubled, is_calm) {
            (true, _) => PATIENCE_TROUBLED,
            (false, false) => PATIENCE,
            (false, true) => PATIENCE_CALM,
        };
        for (id, state) in world.states.iter().enumerate() {
            if self.tasks[id].is_some() && !state.is_idle && now.since(state.since) > patience {
                let waiting = world.cluster.waiting();
                self.fault(&format!(
                    "process {id} waits since {}, step {}; waiting:\n{waiting}",
                    state.since, state.last
                ));
            }
        }
    }

    /// Now and then a signal reaches one who waits for a lock.
    fn signal(&self) {
        let mut world = self.world.borrow_mut();
        if world.cluster.random(300) != 0 {
            return;
        }
        let waiting: Vec<_> = (0..world.states.len())
            .filter(|id| world.states[*id].interruptible && world.cluster.goes(world.states[*id].node))
            .filter_map(|id| Some((id, world.states[id].request?)))
            .collect();
        if !waiting.is_empty() {
            let (id, request) = waiting[world.cluster.random(waiting.len() as u64) as usize];
            let node = world.states[id].node;
            world.states[id].interrupted = true;
            world.cluster.interrupt(node, request);
        }
    }

    /// Processes that died start again elsewhere from what is left of their work.
    fn restart(&mut self, what_is_left: Left, died: impl Fn(&State) -> bool) {
        let tree = Tree::read(self.world.borrow().cluster.engine());
        for id in 0..self.tasks.len() {
            if !died(&self.world.borrow().states[id]) {
                continue;
            }
            let was_done = self.tasks[id].take().is_none();
            let left = self.left_of(&tree, id, what_is_left);
            let steps_left;
            {
                let world = &mut *self.world.borrow_mut();
                if world.critical == Some(id) {
                    world.critical = None;
                }
                let up = world.cluster.nodes_up();
                let node = up[world.cluster.random(up.len() as u64) as usize];
                let appended = world.states[id].appended;
                let doubtful = std::mem::take(&mut world.states[id].doubtful);
                steps_left = world.states[id].steps_left;
                // What the master committed for a dead node may still be lost with the power.
                let mut history = match what_is_left {
                    Left::Committed | Left::All => std::mem::take(&mut world.states[id].history),
                    Left::Durable => Vec::new(),
                };
                history.push(left.clone());
                let gate = Gate::Unknown;
                world.states[id] =
                    State { node, history, own: left, appended, gate, doubtful, ..State::default() };
            }
            if !was_done {
                // With deaths by chance there would be no end to it.
                let steps = if self.config.plan.is_empty() { self.config.steps / 2 } else { steps_left };
                self.tasks[id] = self.start(id, steps);
            }
        }
    }

    /// What is left of a process' work: its names as they were at some moment since the last fsync, each file with
    /// content that it had since its own.
    fn left_of(&self, tree: &Tree, id: usize, what_is_left: Left) -> Own {
        let world = self.world.borrow();
        let state = &world.states[id];
        let found = found_names(tree, id);
        let history = if what_is_left == Left::All { &[] } else { state.history.as_slice() };
        let moments = history.iter().chain([&state.own]).chain(state.next.iter());
        let Some(matching) = moments.clone().rev().find(|own| matches(own, &found, tree)) else {
            let nearest =
                moments.map(|own| difference(own, &found, tree)).min_by_key(Vec::len).unwrap_or_default();
            self.fault(&format!(
                "process {id} of dead node {}: its names are at no moment what is left; at the nearest: {}",
                state.node,
                nearest.join("; ")
            ));
        };
        let mut left = Own::default();
        for ((dir, name), ino) in &found {
            let known = matching.names[&(*dir, name.clone())];
            let mut file = matching.files[&known].clone();
            if file.kind == FileKind::File {
                let data = match tree.data(Ino(*ino), world.cluster.store()) {
                    Ok(data) => data,
                    Err(error) => self.fault(&format!("process {id}: {error}")),
                };
                let had = |file: &crate::process::File| match what_is_left {
                    Left::All => **file.data() == data,
                    Left::Committed | Left::Durable => file.versions.iter().any(|v| **v == data),
                };
                let was = |own: &Own| own.files.get(ino).is_some_and(&had);
                if !state.doubtful.contains(ino) && !moments.clone().any(was) && !had(&file) {
                    let versions: Vec<_> =
                        file.versions.iter().map(|v| (v.len(), v.first().copied())).collect();
                    self.fault(&format!(
                        "process {id}: ino {ino} has content that it never had since its fsync: {} bytes; {versions:?}",
                        data.len()
                    ));
                }
                if what_is_left == Left::Durable {
                    file.versions.clear();
                }
                file.versions.push(Rc::new(data));
            }
            file.mtime = None;
            left.names.insert((*dir, name.clone()), *ino);
            left.files.insert(*ino, file);
        }
        left
    }

    /// All is done: what is there must be what the processes know, on every node, and whole.
    fn check(&self) {
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        world.cluster.quiesce();
        let tree = Tree::read(world.cluster.engine());
        let faults = tree.faults();
        if !faults.is_empty() {
            self.fault(&format!("the records are not whole:\n{}", faults.join("\n")));
        }
        if !tree.orphans().is_empty() {
            self.fault(&format!("orphans are left: {:?}", tree.orphans()));
        }
        for id in 0..world.states.len() {
            self.check_own(world, &tree, id);
        }
        let names: BTreeSet<_> = world.winners.iter().filter(|(_, count)| **count != 1).collect();
        if !names.is_empty() && !world.keeps_history {
            self.fault(&format!("not one winner each: {names:?}"));
        }
        let (sights, faults) = world.names.judge();
        if !faults.is_empty() && !world.keeps_history {
            self.fault(&format!("{} of {sights} sights of shared names: {}", faults.len(), faults[0]));
        }
        self.check_common(world, &tree);
        for node in world.cluster.nodes_up() {
            self.check_node(world, &tree, node);
            if let Some(fault) = world.cluster.credit_fault(node) {
                self.fault(&fault);
            }
        }
    }

    fn check_own(&self, world: &World, tree: &Tree, id: usize) {
        let own = &world.states[id].own;
        let found = found_names(tree, id);
        if !matches(own, &found, tree) {
            self.fault(&format!("process {id} has left {found:?}, expected {:?}", own.names));
        }
        for (ino, file) in own.files.iter().filter(|(_, f)| f.kind == FileKind::File) {
            let data = tree.data(Ino(*ino), world.cluster.store());
            let is_doubtful = data.is_ok() && world.states[id].doubtful.contains(ino);
            if data.as_ref() != Ok(file.data()) && !is_doubtful {
                let len = data.map(|d| d.len());
                self.fault(&format!(
                    "ino {ino} of process {id} holds {len:?} bytes, expected {}",
                    file.data().len()
                ));
            }
        }
    }

    /// The file that all append to, and the one in which they count.
    fn check_common(&self, world: &World, tree: &Tree) {
        let root = tree.names(Ino::ROOT);
        let data =
            |name: &[u8]| tree.data(root[name], world.cluster.store()).unwrap_or_else(|e| self.fault(&e));
        let count = data(b"count").get(..8).map_or(0, |b| u64::from_le_bytes(b.try_into().expect("8 bytes")));
        let is_right = if world.keeps_history { count <= world.counted } else { count == world.counted };
        if !is_right {
            self.fault(&format!("counted {} under the lock, the file says {count}", world.counted));
        }
        if world.keeps_history {
            return;
        }
        let log = data(b"log");
        let mut expected: BTreeMap<usize, u64> = BTreeMap::new();
        for record in log.chunks(16) {
            let text = String::from_utf8_lossy(record).into_owned();
            let id = text.get(1..4).and_then(|s| s.parse().ok());
            let number = text.get(5..13).and_then(|s| s.parse::<u64>().ok());
            let next = expected.entry(id.unwrap_or(usize::MAX)).or_default();
            if number != Some(*next) {
                self.fault(&format!("appended record {text:?} where {next} was expected"));
            }
            *next += 1;
        }
        for (id, state) in world.states.iter().enumerate() {
            let found = expected.get(&id).copied().unwrap_or(0);
            if found != state.appended {
                self.fault(&format!("process {id} appended {} records, {found} are there", state.appended));
            }
        }
    }

    /// No queue has grown beyond its limit.
    fn check_sizes(&self) {
        let world = self.world.borrow();
        if world.turns % 8 != 0 {
            return;
        }
        for node in world.cluster.nodes_up() {
            if let Some(what) = world.cluster.size_fault(node) {
                self.fault(&format!("node {node}: {what}"));
            }
        }
    }

    /// Everything is closed, and every node leaves: nothing is left that nobody needs.
    fn check_end(&self) {
        let cluster = &mut self.world.borrow_mut().cluster;
        for node in cluster.nodes_up() {
            cluster.leave(node);
        }
        cluster.quiesce();
        cluster.quiesce();
        if !cluster.nodes_up().is_empty() {
            self.fault(&format!("nodes do not leave; waiting:\n{}", cluster.waiting()));
        }
        let options = check::Options { cookie_key: None, store: Some(cluster.store()), reads_data: true };
        let report = check::check(cluster.engine(), &options).expect("engine and store are read");
        // Writes that were torn lie beside what anybody needs.
        let matters = |fault: &&check::Fault| fault.kind != check::FaultKind::DeadDamage;
        let found = report.faults.iter().filter(matters);
        let found: Vec<_> = found.map(|f| format!("{:?}: {f}", f.ino)).collect();
        if !found.is_empty() {
            self.fault(&format!("when all have left: {}", found.join("; ")));
        }
    }

    /// A node shows what the engine holds.
    fn check_node(&self, world: &mut World, tree: &Tree, node: usize) {
        let mut queue = vec![Ino::ROOT];
        while let Some(dir) = queue.pop() {
            for (name, ino) in tree.names(dir) {
                let text = String::from_utf8_lossy(&name).into_owned();
                let key = (dir, name.clone());
                let cached = world.cluster.kernel(node).names.get(&key).copied();
                let found = match cached {
                    Some(found) => found,
                    None => {
                        match world.cluster.call(node, Request::Lookup { parent: dir, name: name.into() }) {
                            Reply::Entry(entry) => {
                                world.cluster.kernel(node).entry(dir, &key.1, &entry);
                                Some(entry.attr.ino)
                            }
                            _ => None,
                        }
                    }
                };
                if found != Some(ino) {
                    self.fault(&format!("{dir}/{text} is {found:?} on node {node}, {ino} in the records"));
                }
                let cached = world.cluster.kernel(node).attrs.get(&ino).copied();
                let attr = match cached {
                    Some(attr) => attr,
                    None => match world.cluster.call(node, Request::GetAttr { ino }) {
                        Reply::Attr(attr, _) => attr,
                        other => self.fault(&format!("getattr answered {other:?}")),
                    },
                };
                let Some((stored, content)) = tree.inode(ino) else { continue };
                let is_dir = stored.kind == FileKind::Directory;
                let is_right = attr.nlink == stored.nlink
                    && attr.mode == stored.mode
                    && (is_dir || attr.size == content.size);
                if !is_right {
                    self.fault(&format!(
                        "node {node} shows {attr:?} of {dir}/{text}, the records {stored:?} size {}",
                        content.size
                    ));
                }
                if is_dir {
                    queue.push(ino);
                    continue;
                }
                let pages = world.cluster.kernel(node).pages.get(&ino).cloned();
                if let Some(pages) = pages
                    && Ok(&pages) != tree.data(ino, world.cluster.store()).as_ref()
                {
                    self.fault(&format!("node {node} has old pages of {dir}/{text}"));
                }
            }
        }
        for ((dir, name), ino) in world.cluster.kernel(node).names.clone() {
            if tree.names(dir).get(&name).copied() != ino {
                let text = String::from_utf8_lossy(&name).into_owned();
                self.fault(&format!("the kernel of node {node} has {dir}/{text} = {ino:?}"));
            }
        }
    }
}

/// Names of a process in the records.
fn found_names(tree: &Tree, id: usize) -> BTreeMap<(u64, Vec<u8>), u64> {
    let prefix = format!("p{id}_").into_bytes();
    let mut found = BTreeMap::new();
    for dir in tree.directories() {
        let names = tree.names(dir).into_iter().filter(|(name, _)| name.starts_with(&prefix));
        found.extend(names.map(|(name, ino)| ((dir.0, name), ino.0)));
    }
    found
}

/// Whether names, links and modes are what a process knew at a moment. Number 0 stands for one not known yet.
fn matches(own: &Own, found: &BTreeMap<(u64, Vec<u8>), u64>, tree: &Tree) -> bool {
    difference(own, found, tree).is_empty()
}

/// What is not as a process knew it at a moment.
fn difference(own: &Own, found: &BTreeMap<(u64, Vec<u8>), u64>, tree: &Tree) -> Vec<String> {
    let keys: BTreeSet<_> = own.names.keys().chain(found.keys()).collect();
    let mut differences = Vec::new();
    for key in keys {
        let known = own.names.get(key).map(|known| (*known, own.files.get(known)));
        let there = found.get(key).map(|ino| (*ino, tree.inode(Ino(*ino))));
        let is_same = match (&known, &there) {
            (Some((known, Some(file))), Some((ino, Some((attr, _))))) => {
                let is_it = *known == 0 || known == ino;
                let is_dir = file.kind == FileKind::Directory;
                is_it
                    && attr.kind == file.kind
                    && attr.mode == file.mode
                    && (is_dir || attr.nlink == file.nlink)
            }
            (_, _) => false,
        };
        if !is_same {
            let known = known.map(|(ino, file)| (ino, file.map(|f| (f.kind, f.mode, f.nlink))));
            let there = there.map(|(ino, found)| (ino, found.map(|(a, _)| (a.kind, a.mode, a.nlink))));
            let name = String::from_utf8_lossy(&key.1);
            differences.push(format!("{}/{name}: knew {known:?}, found {there:?}", key.0));
        }
    }
    differences
}

/// Virtual time in which every step ends where nothing goes wrong. Who waits for who waits for him is let go when a lease has ended, which must not be what
/// gets anybody on.
const PATIENCE_CALM: Micros = Micros(5_000_000);
/// The same where nodes and masters die.
const PATIENCE: Micros = Micros(30_000_000);
/// The same where nodes are out of reach for up to 25 s, and others wait for them for two leases.
const PATIENCE_TROUBLED: Micros = Micros(120_000_000);
