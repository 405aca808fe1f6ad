//! The master in this process: its engine, its socket, its peers.
//!
//! Started by who wins the election, stopped when the node leaves or the engine fails. Peers see the end of
//! their connections and elect another.

mod segments;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use chunk::SegmentStore;
use kv::{Claim, Engine, EngineError, Seq};
use kv_fjall::FjallEngine;
use master::{AccountStatus, LockWait, Master, MasterError, MemberStatus, Output, PeerId};
use meta::{Key, KeyKind, Limits, SegmentRecord};
use obs::Metrics;
use parking_lot::{Condvar, Mutex};
use types::{Account, Epoch, Micros};
use volume::{Listener, MasterLock, Volume};
use wire::{FromMaster, ToMaster};

use self::segments::SegmentJob;
use crate::clock;
use crate::engine_sync::EngineSync;
use crate::error::NodeError;
use crate::fail_stop;
use crate::frames::{FrameReader, FrameWriter, ReadError, SendError, WhenFull};
use crate::jobs::Jobs;
use crate::link::{Link, MASTER_SOCKET, describe};
use crate::options::micros;
use crate::process::{self, Process};
use crate::shell::{Shell, Work};
use crate::threads::{join, spawn};
use crate::turn::Turn;

/// The node in this process, to the master.
pub(crate) const LOCAL: PeerId = PeerId(0);

/// The master in this process.
pub(crate) struct Service {
    /// `None` once stopped.
    master: Mutex<Option<Master>>,
    turn: Turn,
    peers: Mutex<BTreeMap<PeerId, Arc<FrameWriter>>>,
    next_peer: AtomicU64,
    /// Peers but root must be this user: the owner of the volume.
    owner: u32,
    metrics: Arc<Metrics>,
    syncs: EngineSync,
    segment_jobs: Jobs<SegmentJob>,
    keeper: Mutex<()>,
    keeper_woken: Condvar,
    is_stopping: AtomicBool,
    held: Mutex<Option<Held>>,
}

/// What the service holds until it stops, given up in this order.
struct Held {
    threads: Vec<JoinHandle<()>>,
    listener: Arc<Listener>,
    engine: Arc<FjallEngine>,
    _lock: MasterLock,
}

impl Service {
    /// Opens the volume's metadata and serves them. The node's own link comes later.
    pub fn start(shell: &Arc<Shell>, lock: MasterLock) -> Result<Arc<Self>, NodeError> {
        let volume = &shell.volume;
        let owner =
            std::fs::metadata(volume.path()).map_err(|source| NodeError::io("examine the volume", source))?;
        volume.raise_version()?;
        let meta_dir = volume.meta_dir();
        let was_known = kv_fjall::known_damage(&meta_dir);
        let (engine, master) = match take_over(shell, &owner) {
            // A compaction has met it just now. Without any it goes on.
            Err(error) if was_known.is_none() && kv_fjall::known_damage(&meta_dir).is_some() => {
                log::warn!("the metadata are opened once more: {}", describe(&error));
                take_over(shell, &owner)?
            }
            taken_over => taken_over?,
        };
        let listener = Arc::new(volume.listen(MASTER_SOCKET)?);
        let service = Arc::new(Self {
            master: Mutex::new(Some(master)),
            turn: Turn::default(),
            peers: Mutex::default(),
            next_peer: AtomicU64::new(LOCAL.0 + 1),
            owner: owner.uid(),
            metrics: Arc::clone(&shell.metrics),
            syncs: EngineSync::new(),
            segment_jobs: Jobs::default(),
            keeper: Mutex::default(),
            keeper_woken: Condvar::new(),
            is_stopping: AtomicBool::new(false),
            held: Mutex::default(),
        });
        let mut threads = Vec::new();
        let started = service.start_threads(shell, &listener, &engine, &mut threads);
        *service.held.lock() = Some(Held { threads, listener, engine, _lock: lock });
        match started {
            Ok(()) => Ok(service),
            Err(error) => {
                service.stop(shell);
                Err(error)
            }
        }
    }

    fn start_threads(
        self: &Arc<Self>,
        shell: &Arc<Shell>,
        listener: &Arc<Listener>,
        engine: &Arc<FjallEngine>,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> Result<(), NodeError> {
        let (service, node, listener) = (Arc::clone(self), Arc::clone(shell), Arc::clone(listener));
        threads.push(spawn("master-accept", move || service.accept(&node, &listener))?);
        let (service, node, engine) = (Arc::clone(self), Arc::clone(shell), Arc::clone(engine));
        threads.push(spawn("engine-sync", move || {
            let _aside = fuse::stand_aside();
            service.syncs.run(&service, &node, &*engine);
        })?);
        let (service, node) = (Arc::clone(self), Arc::clone(shell));
        threads.push(spawn("master-keeper", move || service.keep(&node))?);
        let (service, node) = (Arc::clone(self), Arc::clone(shell));
        threads.push(spawn("master-segments", move || service.clear_segments(&node))?);
        Ok(())
    }

    /// Gives up: ends all connections, makes the engine durable, closes it and releases the master's lock.
    ///
    /// The node's own link must have been given up before. Not to be called on a thread of the service.
    pub fn stop(&self, shell: &Shell) {
        // What they reserved would be kept until the next mount.
        self.end_dead_members(shell);
        self.is_stopping.store(true, Ordering::SeqCst);
        let Some(held) = self.held.lock().take() else { return };
        // Wakes the thread that accepts; from here on connects are refused.
        let _ = rustix::net::shutdown(&**held.listener, rustix::net::Shutdown::Both);
        for writer in std::mem::take(&mut *self.peers.lock()).into_values() {
            writer.close();
        }
        self.syncs.close();
        self.segment_jobs.close();
        // Taken once, so that the keeper either sees the flag or waits already.
        drop(self.keeper.lock());
        self.keeper_woken.notify_all();
        for thread in held.threads {
            join(thread);
        }
        drop(self.master.lock().take());
        // First, whoever still reads from it.
        if let Err(error) = held.engine.sync() {
            log::error!("a sync of the metadata failed: {}", describe(&error));
        }
        let mut shared = held.engine;
        let engine = loop {
            match Arc::try_unwrap(shared) {
                Ok(engine) => break engine,
                // A scrub reads from it until it sees that it is to end.
                Err(still) => shared = still,
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        // The engine's threads end with it, before the lock is given up.
        if let Err(error) = Box::new(engine).close() {
            log::error!("the last sync of the metadata failed: {}", describe(&error));
        }
        keep_reserve(shell);
        drop(held.listener);
        log::info!("this node is no longer master");
    }

    /// Takes in a message of `peer`. Outputs wait for [`Shell::pump`].
    pub fn tell(&self, peer: PeerId, message: ToMaster) {
        self.with_master(|master, clock| master.handle(clock, peer, message));
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Whether the engine is at work: synced, or called by who has the master locked.
    pub fn is_busy(&self) -> bool {
        self.syncs.is_under_way() || self.master.is_locked()
    }

    /// The node in this process connects.
    pub fn connect_local(&self) {
        self.with_master(|master, clock| master.connected(clock, LOCAL));
    }

    /// The engine, unless stopped. Who has it gives it up soon after [`is_stopping`](Self::is_stopping): the volume stays
    /// locked until then.
    pub fn engine(&self) -> Option<Arc<dyn Engine>> {
        self.held.lock().as_ref().map(|held| Arc::clone(&held.engine) as Arc<dyn Engine>)
    }

    /// The master's own figures: epoch, members, and stored bytes and inodes.
    pub fn status(&self) -> Option<(Epoch, Vec<MemberStatus>, (u64, u64))> {
        self.with_master(|master, _| (master.epoch(), master.members(), master.totals()))
    }

    /// Locks of programs that somebody waits for, so many at most.
    pub fn lock_queues(&self, most: usize) -> Option<Vec<LockWait>> {
        self.with_master(|master, _| master.lock_queues(most))
    }

    /// What every account uses, and its limits.
    pub fn accounts(&self) -> Option<Result<Vec<AccountStatus>, MasterError>> {
        self.with_master(|master, clock| master.accounts(clock.wall))
    }

    /// Changes limits; returns the number of the list of accounts that they are in. Outputs wait for [`Shell::pump`].
    pub fn change_limits(
        &self,
        account: Account,
        change: impl FnOnce(Limits) -> Result<Limits, String>,
    ) -> Option<Result<u64, String>> {
        self.with_master(|master, clock| master.change_limits(clock, account, change))
    }

    /// Whether every member has taken the list of this number, and none has credit of before a limit became lower, of whatever account.
    pub fn limits_taken(&self, version: u64) -> Option<bool> {
        self.with_master(|master, _| master.limits_taken(version))
    }

    /// Calls what is due. Outputs wait for [`Shell::pump`].
    pub fn tick(&self) {
        self.with_master(|master, clock| {
            if master.poll_timeout() <= clock.now {
                master.handle_timeout(clock);
            }
        });
    }

    /// When the master next needs the time.
    pub fn next_due(&self) -> Micros {
        self.with_master(|master, _| master.poll_timeout()).unwrap_or(Micros::NEVER)
    }

    /// `None` once stopped.
    fn with_master<T>(&self, call: impl FnOnce(&mut Master, master::Clock) -> T) -> Option<T> {
        let mut master = self.master.lock();
        let master = master.as_mut()?;
        Some(fail_stop::guarded("the master", || call(master, clock::for_master())))
    }

    /// Hands outputs on until none is left. Returns whether the node in this process was told something.
    pub fn hand_on(self: &Arc<Self>, shell: &Shell) -> bool {
        let mut told_core = false;
        let local = Link::Local(Arc::clone(self));
        self.turn.take(|| {
            loop {
                let taken = self.with_master(|master, _| {
                    let mut outputs = Vec::new();
                    while let Some(output) = master.poll_output() {
                        outputs.push(output);
                    }
                    (outputs, master.poll_timeout())
                });
                let Some((outputs, due)) = taken else { break };
                shell.timer.note(due);
                if outputs.is_empty() {
                    break;
                }
                for output in outputs {
                    told_core |= self.hand_on_one(shell, &local, output);
                }
            }
        });
        told_core
    }

    fn hand_on_one(&self, shell: &Shell, local: &Link, output: Output) -> bool {
        match output {
            Output::Send { peer: LOCAL, message } => {
                shell.deliver(local, message);
                return true;
            }
            Output::Send { peer, message } => self.send(peer, &message),
            Output::Close { peer: LOCAL, reason } => {
                log::warn!("the master in this process gives its own node up: {reason}");
                shell.link_lost(local);
                return true;
            }
            Output::Close { peer, reason } => {
                if let Some(writer) = self.peers.lock().remove(&peer) {
                    log::info!("connection {} is closed: {reason}", peer.0);
                    writer.close_after_queue();
                }
            }
            Output::Sync { job } => self.syncs.push(job),
            Output::DeleteSegments { list } => self.segment_jobs.push(SegmentJob::Delete(list)),
            Output::TrimSegments { list } => self.segment_jobs.push(SegmentJob::Trim(list)),
            Output::PutBack { round } => self.segment_jobs.push(SegmentJob::PutBack { round }),
            Output::ListSegments => self.segment_jobs.push(SegmentJob::List),
            Output::FindFiles { list, everywhere } => {
                self.segment_jobs.push(SegmentJob::FindFiles(list, everywhere))
            }
            Output::CopyExtents { segments, list } => {
                self.segment_jobs.push(SegmentJob::Copy(segments, list))
            }
            Output::Failed { reason } => shell.service_failed(reason),
        }
        false
    }

    fn send(&self, peer: PeerId, message: &FromMaster) {
        let Some(writer) = self.peers.lock().get(&peer).cloned() else { return };
        match writer.send(message) {
            Ok(()) => {}
            // Its reader notices.
            Err(SendError::Closed) => {}
            Err(SendError::Full) => {
                log::error!("node on connection {} does not read what it is sent; it is given up", peer.0);
                self.peers.lock().remove(&peer);
                writer.close();
                // A node that does not take revokes in holds others up until its lease ends.
                self.with_master(|master, clock| master.disconnected(clock, peer, false));
            }
        }
    }

    /// The thread that accepts connections. Ends when the service stops.
    fn accept(self: &Arc<Self>, shell: &Arc<Shell>, listener: &UnixListener) {
        while !self.is_stopping() {
            match listener.accept() {
                Ok((stream, _)) => {
                    let (service, node) = (Arc::clone(self), Arc::clone(shell));
                    if let Err(error) = spawn("master-peer", move || service.serve(&node, stream)) {
                        log::error!("a connection is dropped: {}", describe(&error));
                    }
                }
                Err(_) if self.is_stopping() => return,
                Err(error) => {
                    log::error!("the master's socket: {error}");
                    // Out of descriptors, most likely.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// The thread of one connection. Ends with it.
    fn serve(self: &Arc<Self>, shell: &Shell, stream: UnixStream) {
        let (process, uid) = match Process::behind(&stream) {
            Ok(found) => found,
            Err(error) => return log::error!("a connection without credentials is dropped: {error}"),
        };
        let pid = process.pid;
        if uid != 0 && uid != self.owner {
            return log::warn!(
                "process {pid} of user {uid} may not use the volume; its connection is closed"
            );
        }
        let peer = PeerId(self.next_peer.fetch_add(1, Ordering::Relaxed));
        let writer = match FrameWriter::new(&stream, WhenFull::Fail, Arc::clone(&self.metrics)) {
            Ok(writer) => Arc::new(writer),
            Err(error) => return log::error!("connection of process {pid}: {error}"),
        };
        let running = Arc::clone(&writer);
        if let Err(error) = spawn("master-writer", move || running.run()) {
            return log::error!("connection of process {pid}: {}", describe(&error));
        }
        let mut reader = FrameReader::new(stream, Arc::clone(&self.metrics));
        if let Some(hello) = self.first_message(&mut reader, &process) {
            self.peers.lock().insert(peer, Arc::clone(&writer));
            if self.is_stopping() {
                // It came too late to be closed with the others.
                return writer.close();
            }
            self.with_master(|master, clock| {
                master.connected(clock, peer);
                master.handle(clock, peer, hello);
            });
            shell.pump(Work::OfMaster);
            self.read(shell, peer, &mut reader, &process);
            let is_dead = process.dies_within(PATIENCE_DEATH);
            let node = self.with_master(|master, clock| {
                let node = master.node_of(peer);
                master.disconnected(clock, peer, is_dead);
                node
            });
            self.peers.lock().remove(&peer);
            shell.pump(Work::OfMaster);
            writer.close();
            drop(reader);
            if let Some(node) = node.flatten().filter(|_| !is_dead) {
                self.await_death(shell, node, &process);
            }
        }
        writer.close();
    }

    /// A process that is killed on a busy machine takes its time to end. One that lives comes back or loses its membership
    /// with its lease. One that has come back is judged by its new connection alone, which its guard keeps open until the
    /// kernel's caches are empty.
    fn await_death(&self, shell: &Shell, node: types::NodeId, process: &Process) {
        let deadline = Instant::now() + shell.options.lease;
        let goes_on = || Instant::now() < deadline && !self.is_stopping() && process.is_watched();
        let is_away = || self.with_master(|master, _| master.is_away(node)) == Some(true);
        while goes_on() && is_away() {
            if process.dies_within(PATIENCE_DEATH) {
                self.with_master(|master, clock| master.member_is_dead(clock, node));
                return shell.pump(Work::OfMaster);
            }
        }
    }

    /// The Hello, with what the kernel knows of its sender in the place of what it says of itself.
    fn first_message(&self, reader: &mut FrameReader, process: &Process) -> Option<ToMaster> {
        let mut hello = match reader.read_within(PATIENCE_HELLO) {
            Ok(hello) => hello,
            Err(error) => {
                self.refuse(&error, process);
                return None;
            }
        };
        if let ToMaster::Hello { pid, pid_start, .. } = &mut hello {
            // In another namespace of process numbers a later master could not find it: better no number
            // that can be looked up than one that looks dead.
            *pid_start = if *pid == process.pid { process.start } else { 0 };
            *pid = process.pid;
            return Some(hello);
        }
        self.metrics.messages_refused.add(1);
        log::warn!("process {} did not begin with a hello; its connection is closed", process.pid);
        None
    }

    fn read(&self, shell: &Shell, peer: PeerId, reader: &mut FrameReader, process: &Process) {
        loop {
            match reader.read::<ToMaster>() {
                Ok(message) => {
                    self.tell(peer, message);
                    shell.pump(Work::OfMaster);
                    self.syncs.wake_if_asked();
                }
                Err(error) => return self.refuse(&error, process),
            }
        }
    }

    fn refuse(&self, error: &ReadError, process: &Process) {
        match error {
            ReadError::End => {}
            ReadError::Frame(_) | ReadError::Defect => {
                self.metrics.messages_refused.add(1);
                log::warn!("process {}: {error}; its connection is closed", process.pid);
            }
            ReadError::Silent | ReadError::Io(_) => {
                log::warn!("process {}: {error}; its connection is closed", process.pid);
            }
        }
    }

    /// A sync of the engine is over, which these jobs asked for. Outputs wait for [`Shell::pump`].
    pub fn synced(&self, jobs: &[u64], result: kv::Result<kv::Seq>, took: Duration) {
        self.metrics.engine_sync.record(took.as_micros() as u64);
        if fuse::is_reader() {
            self.metrics.engine_syncs_by_reader.add(1);
        }
        let Some((last, earlier)) = jobs.split_last() else { return };
        self.with_master(|master, clock| {
            if let Ok(seq) = &result {
                earlier.iter().for_each(|job| master.synced(clock, *job, Ok(*seq)));
            }
            // After a failure the master stops; one report is enough.
            master.synced(clock, *last, result);
        });
    }

    /// A reader of the kernel's requests has done what one asked for but a sync.
    pub fn sync_put_off(&self, shell: &Shell) {
        let engine = self.held.lock().as_ref().map(|held| Arc::clone(&held.engine));
        if let Some(engine) = engine {
            self.syncs.see_to(self, shell, &*engine);
        }
    }

    /// The thread that looks after processes that should have rejoined, and after the reserve.
    fn keep(&self, shell: &Shell) {
        let mut looked_at_space: Option<Instant> = None;
        let mut is_low = false;
        loop {
            let is_awaited = self.end_dead_members(shell);
            if is_low || looked_at_space.is_none_or(|at| at.elapsed() >= PAUSE_SPACE) {
                looked_at_space = Some(Instant::now());
                is_low = keep_reserve(shell);
            }
            let pause = if is_awaited || is_low { PAUSE_REJOIN } else { PAUSE_SPACE };
            let mut keeper = self.keeper.lock();
            if self.is_stopping() {
                return;
            }
            self.keeper_woken.wait_for(&mut keeper, pause);
        }
    }

    /// Ends memberships of dead processes; returns whether others have yet to rejoin.
    fn end_dead_members(&self, shell: &Shell) -> bool {
        let absent = self.with_master(|master, _| master.absent_members()).unwrap_or_default();
        for (node, pid, _) in absent.into_iter().filter(|(_, pid, start)| process::is_gone(*pid, *start)) {
            log::info!("node {node} will not come back: process {pid} is gone");
            self.with_master(|master, clock| master.member_is_dead(clock, node));
            shell.pump(Work::OfMaster);
        }
        self.with_master(|master, _| master.is_recovering()) == Some(true)
    }
}

/// Opens the metadata, and a master on them that has recovered what was under way.
fn take_over(shell: &Shell, owner: &std::fs::Metadata) -> Result<(Arc<FjallEngine>, Master), NodeError> {
    let volume = &shell.volume;
    let since = Instant::now();
    let engine = Arc::new(open_engine(volume, true)?);
    let opened = since.elapsed();
    if is_new(&*engine, volume, &*shell.store)? {
        Master::format(&*engine, clock::wall(), owner.uid(), owner.gid())?;
    }
    let config = master::Config {
        volume: volume.header().id.0,
        cookie_key: volume.header().cookie_key,
        lease: micros(shell.options.lease),
        token_memory: shell.options.token_memory_bytes,
        commit_interval: micros(shell.options.commit),
        store: Arc::clone(&shell.store),
    };
    let master = Master::open(clock::for_master(), engine.clone(), config, Arc::clone(&shell.metrics))?;
    // What a loss of power took of them has been made anew.
    refuse_missing_segments(&*engine, volume, &*shell.store)?;
    log::info!(
        "this node is master under epoch {}: metadata opened in {} ms, taken over in {} ms",
        master.epoch(),
        opened.as_millis(),
        since.elapsed().saturating_sub(opened).as_millis()
    );
    Ok((engine, master))
}

/// Opens the engine under the next generation. Who `merges` changes it, too.
pub(crate) fn open_engine(volume: &Volume, merges: bool) -> Result<FjallEngine, NodeError> {
    let total_bytes = volume.space()?.total_bytes;
    let options = kv_fjall::Options {
        merges,
        memtable_bytes: (total_bytes / 64).clamp(1 << 20, 16 << 20),
        ..kv_fjall::Options::default()
    };
    let mut generation = 1;
    let mut released = false;
    loop {
        match FjallEngine::open(&volume.meta_dir(), options, Claim::new(generation)) {
            Ok(engine) => return Ok(engine),
            // We hold the master's lock: whoever recorded a greater one is master no more.
            Err(EngineError::Fenced { stored, .. }) if stored.0 >= generation => generation = stored.0 + 1,
            Err(EngineError::Full { .. }) if !released => {
                released = true;
                volume.release_reserve()?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the metadata of a volume were never written to: the first master writes the root directory.
///
/// # Errors
///
/// [`NodeError::MetadataMissing`] where they were: no segment is before they are durable.
pub(crate) fn is_new(
    engine: &dyn Engine,
    volume: &Volume,
    store: &dyn SegmentStore,
) -> Result<bool, NodeError> {
    if engine.last_seq() != Seq(0) {
        return Ok(false);
    }
    if store.list()?.is_empty() {
        return Ok(true);
    }
    Err(NodeError::MetadataMissing { meta: volume.meta_dir(), segments: volume.segments_dir() })
}

/// Refuses a volume whose files have content and which has no segment at all.
fn refuse_missing_segments(
    engine: &dyn Engine,
    volume: &Volume,
    store: &dyn SegmentStore,
) -> Result<(), NodeError> {
    if !store.list().map_err(MasterError::Segments)?.is_empty() {
        return Ok(());
    }
    let (start, end) = Key::range_of_kind(KeyKind::Segment);
    let mut is_missing = false;
    kv::scan_all(engine, kv::KeyRange::new(start, end), |(key, value)| {
        let record = meta::value_decode::<SegmentRecord>(&key, &value);
        is_missing |= record.is_ok_and(|record| record.live_bytes > 0);
    })?;
    match is_missing {
        true => Err(NodeError::SegmentsMissing { segments: volume.segments_dir() }),
        false => Ok(()),
    }
}

/// Gives the reserve up while the disk is nearly full, so that removals can be committed, and takes it back
/// when there is room again. Returns whether the disk is to be watched closely.
fn keep_reserve(shell: &Shell) -> bool {
    let volume = &shell.volume;
    let kept = volume.space().and_then(|space| {
        if space.reserve_bytes == 0 {
            return volume.refill_reserve().map(|is_full| !is_full);
        }
        if space.available_bytes < SPACE_LOW {
            let freed = volume.release_reserve()?;
            log::warn!("the disk is full: the reserve of {freed} bytes is released");
        }
        Ok(space.available_bytes < SPACE_WATCHED)
    });
    kept.unwrap_or_else(|error| {
        log::debug!("the reserve cannot be seen to: {}", describe(&error));
        false
    })
}

/// How long a new connection may take to say hello.
const PATIENCE_HELLO: Duration = Duration::from_secs(5);
/// How long before its death a process's connections end, on a machine that is not too busy.
const PATIENCE_DEATH: Duration = Duration::from_millis(50);
/// Between two looks at members that have yet to rejoin.
const PAUSE_REJOIN: Duration = Duration::from_millis(50);
/// Between two looks at the space left.
const PAUSE_SPACE: Duration = Duration::from_secs(1);
/// Bytes below which the engine's own writes are in danger.
const SPACE_LOW: u64 = 4 << 20;
/// Bytes below which a fast writer could fill the disk between two looks at it.
const SPACE_WATCHED: u64 = 64 << 20;
