//! One mount from beginning to end.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adapter::{Brought, CatchUp, Drops, Hooks, Invalidator, KernelCache, Server};
use fuse::mount::{Mount, MountMethod, Unmount};
use fuse::{RingUse, Session, SessionEnd, SessionError};
use guard::{End, Keeper};
use obs::Metrics;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::system::uname;
use types::Micros;
use vfs::{Asker, Dealt, Outdated};
use volume::Volume;

use crate::control::Control;
use crate::error::NodeError;
use crate::fail_stop::Listed;
use crate::frames::MESSAGE_KINDS;
use crate::leaving::{self, Left, Patience};
use crate::link::{self, Link, describe};
use crate::options::MountRequest;
use crate::process;
use crate::shell::{Identity, Membership, Shell, ToSync, Work};
use crate::signals::{Signalled, Signals};
use crate::store::VolumeStore;
use crate::threads::{join, spawn, spawn_loose};
use crate::utab::UtabLine;

/// Mounts, calls `ready`, and returns when unmounted and flushed.
///
/// `ready` is called once the mount answers: the kernel has shaken hands and the node is a member. Unmounts, or
/// gives up coming up, at SIGTERM, SIGINT and SIGHUP, which are blocked in the calling thread and all it starts from here on;
/// so call this before other threads are started, or block them there.
///
/// # Errors
///
/// Before `ready`: whatever kept the node from coming up; nothing is left mounted. After it:
/// [`NodeError::Lost`], [`NodeError::LostBefore`], [`NodeError::DiskFull`] and [`NodeError::NotFlushed`] if not
/// everything that was written reached the volume.
pub fn mount(request: MountRequest, ready: Box<dyn FnOnce()>) -> Result<(), NodeError> {
    let signals = Arc::new(Signals::block().map_err(|source| NodeError::io("block signals", source))?);
    raise_limits();
    check_mountpoint(&request.mountpoint)?;
    Node::start(&request, signals)?.serve(ready)
}

/// A node outlives the shell that it was mounted from, and is not held to what that may use. Tables of metadata, segments and connections
/// stay open: the 1,024 files that a shell allows are too few for a large volume.
fn raise_limits() {
    raise_limit(Resource::Nofile, "open files", Some(FILES_OPEN));
    raise_limit(Resource::Fsize, "the length of files", None);
    raise_limit(Resource::Cpu, "the time on a processor", None);
}

/// Raises a limit to `wanted`, `None` for none at all, or as far as this process may.
fn raise_limit(resource: Resource, what: &str, wanted: Option<u64>) {
    let limit = getrlimit(resource);
    let is_enough = |has: Option<u64>| has.is_none_or(|has| wanted.is_some_and(|wanted| has >= wanted));
    if is_enough(limit.current) {
        return;
    }
    let most = if is_enough(limit.maximum) { limit.maximum } else { wanted };
    let raised = setrlimit(resource, Rlimit { current: wanted, maximum: most })
        .or_else(|_| setrlimit(resource, Rlimit { current: limit.maximum, ..limit }));
    if let Err(error) = raised {
        log::warn!("the limit of {what} stays at {:?}: {error}", limit.current);
    }
}

/// A node, mounted or not.
struct Node {
    shell: Arc<Shell>,
    signals: Arc<Signals>,
    link_keeper: Option<JoinHandle<()>>,
    threads: Vec<JoinHandle<()>>,
    mountpoint: PathBuf,
    guard_command: guard::Command,
    guard: Option<Keeper>,
}

/// What a mounted node has beside, given up in this order.
struct Mounted {
    mount: Arc<Mount>,
    session: JoinHandle<Result<SessionEnd, SessionError>>,
    control: Control,
    _utab: Option<UtabLine>,
    _listed: Listed,
}

impl Node {
    /// Opens the volume and starts the threads that need nothing else.
    fn start(request: &MountRequest, signals: Arc<Signals>) -> Result<Self, NodeError> {
        let volume = Volume::open(&request.volume)?;
        let metrics = Arc::new(Metrics::with_message_kinds(MESSAGE_KINDS));
        let store = VolumeStore::open(&volume, Arc::clone(&metrics))?;
        let shell = Arc::new(Shell::new(volume, Arc::new(store), request.options.clone(), metrics));
        let mountpoint = request.mountpoint.clone();
        let mut node = Self {
            shell,
            signals,
            link_keeper: None,
            threads: Vec::new(),
            mountpoint,
            guard_command: request.guard.clone(),
            guard: None,
        };
        match node.start_threads() {
            Ok(()) => Ok(node),
            Err(error) => {
                node.stop();
                Err(error)
            }
        }
    }

    fn start_threads(&mut self) -> Result<(), NodeError> {
        let signals = Arc::clone(&self.signals);
        self.thread("signal", move |shell| watch_signals(shell, &signals))?;
        self.thread("timer", |shell| {
            let _aside = fuse::stand_aside();
            shell.timer.run(|| shell.tick(), || shell.next_due());
        })?;
        self.thread("sync", sync)?;
        self.thread("hand-on", |shell| {
            let _aside = fuse::stand_aside();
            while !shell.bulk.all().is_empty() {
                shell.pump(Work::OfCore);
            }
        })?;
        self.thread("stores", collect_stores)?;
        for index in 0..READERS {
            self.thread(&format!("read-{index}"), |shell| {
                while let Some(task) = shell.tasks.next() {
                    // As in a handler of requests: whose task it was is answered EIO.
                    if catch_unwind(AssertUnwindSafe(|| task.run(shell))).is_err() {
                        log::error!("defect in the second step of a request, which fails");
                    }
                }
            })?;
        }
        let shell = Arc::clone(&self.shell);
        self.link_keeper = Some(spawn("link", move || link::keep(&shell))?);
        Ok(())
    }

    fn thread(&mut self, name: &str, work: impl FnOnce(&Shell) + Send + 'static) -> Result<(), NodeError> {
        let shell = Arc::clone(&self.shell);
        self.threads.push(spawn(name, move || work(&shell))?);
        Ok(())
    }

    /// Mounts, serves until unmounted, flushes, ends.
    fn serve(mut self, ready: Box<dyn FnOnce()>) -> Result<(), NodeError> {
        let mounted = match self.come_up() {
            Ok(mounted) => mounted,
            Err(error) => {
                self.stop();
                return Err(error);
            }
        };
        ready();
        let Mounted { mount: _mount, session, control, _utab, _listed } = mounted;
        match join(session) {
            Some(Ok(SessionEnd::Unmounted)) => {
                log::info!("unmounted; flushing");
                if let Some(guard) = self.guard.take() {
                    guard.end(End::Unmounted);
                }
            }
            Some(Ok(SessionEnd::Aborted)) => log::warn!("the connection to the kernel was aborted; flushing"),
            Some(Err(error)) => log::error!("the connection to the kernel failed: {}", describe(&error)),
            None => {}
        }
        let ended = self.leave();
        // Who waits for the end may mount again at once: by then the volume is free.
        self.stop();
        self.shell.set_end(match &ended {
            Ok(()) => Ok(()),
            Err(error) => Err(describe(error)),
        });
        control.stop();
        ended
    }

    /// Everything up to the moment when the mount answers.
    fn come_up(&mut self) -> Result<Mounted, NodeError> {
        // Before the mount: what is wrong with the volume is then said without one.
        let rings = self.shell.options.rings();
        if rings == RingUse::Required {
            fuse::ring_check()?;
        }
        let link = link::establish(&self.shell, PATIENCE_MASTER)?;
        let (mount, device) = fuse::mount::mount(&self.mountpoint, &self.mount_options())?;
        let mount = Arc::new(mount);
        match self.come_up_mounted(&mount, device, &link) {
            Ok(mounted) => Ok(mounted),
            Err(error) => {
                if let Err(error) = mount.unmount(Unmount::Lazy) {
                    log::error!("{}", describe(&error));
                }
                Err(error)
            }
        }
    }

    fn come_up_mounted(
        &mut self,
        mount: &Arc<Mount>,
        device: OwnedFd,
        link: &Arc<Link>,
    ) -> Result<Mounted, NodeError> {
        let listed = Listed::new(mount);
        let lowers = fuse::mount::may_look();
        let config = adapter::session_config(true, lowers, self.shell.options.rings());
        let mut session = Session::start(device, &config)?;
        let _ = self.shell.monitor.set(session.monitor());
        self.guard(mount, &session)
            .map_err(|source| NodeError::io("start the guard of the mount", source))?;
        let shell = &self.shell;
        if lowers {
            let _ = shell.catch_up.set(CatchUp::new(Arc::clone(mount)));
        }
        let notify: Arc<dyn adapter::Notify> = Arc::new(KernelCache::new(&session));
        let start = |config| {
            let (notify, metrics) = (Arc::clone(&notify), Arc::clone(&shell.metrics));
            Invalidator::new(config, notify, metrics, hooks(shell, mount))
                .map_err(|source| NodeError::io("start the threads that invalidate", source))
        };
        let _ = shell.invalidator.set(start(adapter::Config::default())?);
        // Waits as long as a read or a write does, which others than this node's kernel decide.
        let corrector =
            adapter::Config { name: "correct", watchdog: Duration::MAX, ..adapter::Config::default() };
        let _ = shell.corrector.set(start(corrector)?);
        let _ = shell.identity.set(identity(mount));

        link::start(shell, link)?;
        match shell.wait_membership(&[Membership::Joining], PATIENCE_MASTER) {
            Membership::Member => {}
            Membership::Lost(reason) => return Err(NodeError::Refused { reason }),
            Membership::Joining | Membership::Left if shell.is_stopping() => {
                return Err(NodeError::CalledOff);
            }
            Membership::Joining | Membership::Left => {
                return Err(NodeError::MasterSilent { pid: shell.volume.master_pid().ok().flatten() });
            }
        }
        let _ = shell.mount.set(Arc::clone(mount));
        if !shell.come_up() {
            return Err(NodeError::CalledOff);
        }
        let control = Control::start(shell, DEVICE_MAJOR, mount.device_minor())?;
        let utab = UtabLine::add(shell.volume.path(), mount.mountpoint(), mount.device_minor());
        raise_read_ahead(mount.device_minor());
        let server = Server::new(Arc::clone(&self.shell));
        // Where it panics the node leaves, with all that was written.
        let session = spawn_loose("fuse", move || session.run(&server))?;
        Ok(Mounted { mount: Arc::clone(mount), session, control, _utab: utab, _listed: listed })
    }

    /// Has a guard look after the mount before anybody can be told anything about it.
    fn guard(&mut self, mount: &Mount, session: &Session) -> io::Result<()> {
        let guarded = guard::Mount {
            device: session.device().try_clone_to_owned()?,
            minor: session.negotiated().minor,
            device_minor: mount.device_minor(),
        };
        let shell = Arc::downgrade(&self.shell);
        let watch = Box::new(move || {
            if let Some(shell) = shell.upgrade() {
                shell.metrics.guard_firings.add(1);
                // Nothing is served before the lease is renewed: at once, not when that would have been due.
                shell.timer.note(Micros(0));
            }
        });
        let (keeper, table) = Keeper::start(self.guard_command.clone(), guarded, watch)?;
        let _ = self.shell.guard.set(keeper.holder());
        self.guard = Some(keeper);
        self.shell.with_core(|core, _| core.set_guard(Box::new(table)));
        Ok(())
    }

    fn mount_options(&self) -> fuse::mount::MountOptions {
        let options = &self.shell.options;
        fuse::mount::MountOptions {
            fsname: self.shell.volume.path().as_os_str().to_owned(),
            subtype: "holdfast".to_owned(),
            allow_other: options.allow_other,
            default_permissions: options.default_permissions,
            max_read: None,
            flags: options.mount_flags(),
            method: MountMethod::Auto,
        }
    }

    /// Flushes everything and leaves the volume.
    fn leave(&self) -> Result<(), NodeError> {
        let shell = &self.shell;
        shell.call_core(|core, clock| core.leave(clock));
        let since = Instant::now();
        let mut patience = Patience::begin(since);
        // Files that there was no room for in the end, and the bytes that had been lost before that.
        let mut homeless: Option<(u64, u64)> = None;
        let lost = || shell.metrics.content_lost_bytes.get();
        loop {
            let looked = Instant::now();
            let membership = shell.wait_membership(&[Membership::Joining, Membership::Member], PAUSE_REPORT);
            patience.forgive(looked.elapsed().saturating_sub(PAUSE_REPORT));
            match membership {
                Membership::Left => {
                    return match homeless {
                        Some((files, before)) if lost() > before => {
                            Err(NodeError::DiskFull { files, bytes: lost() - before })
                        }
                        Some(_) | None => self.judge(),
                    };
                }
                Membership::Lost(reason) => return Err(NodeError::Lost { reason }),
                Membership::Joining | Membership::Member => {}
            }
            let left = shell.with_core(|core, _| core.snapshot());
            let (changes, files) = (left.unflushed_mutations, left.unflushed_files);
            let text = format!("{changes} changes and the content of {files} files are not flushed");
            if patience.is_over(Instant::now(), Left::of(&left), shell.calls(&left)) {
                if homeless.is_some() || !left.lacks_room {
                    return Err(NodeError::NotFlushed { reason: text });
                }
                homeless = Some((files, lost()));
                patience = Patience::begin(Instant::now());
                shell.call_core(|core, clock| core.leave_rest(clock));
                continue;
            }
            let text = leaving::lack_of_room(&left).unwrap_or(text);
            log::warn!("leaving takes {} s: {text}", since.elapsed().as_secs());
        }
    }

    /// Whether anything was lost before all that was left was flushed. A membership that ended without losses is none.
    fn judge(&self) -> Result<(), NodeError> {
        let metrics = &self.shell.metrics;
        let (changes, files) = (metrics.mutations_lost.get(), metrics.files_lost.get());
        let (bytes, memberships) = (metrics.content_lost_bytes.get(), metrics.memberships_lost.get());
        match changes + files + bytes {
            0 => Ok(()),
            _ => Err(NodeError::LostBefore { changes, files, bytes, memberships }),
        }
    }

    /// Ends link, master and threads, whatever has been started.
    fn stop(&mut self) {
        let shell = &self.shell;
        shell.stop();
        // It could become master any time until it has ended.
        if let Some(thread) = self.link_keeper.take() {
            join(thread);
        }
        if let Some(link) = shell.link() {
            link.close_written(PATIENCE_LAST_MESSAGES);
            shell.link_lost(&link);
        }
        if let Some(service) = shell.set_service(None) {
            service.stop(shell);
        }
        for invalidator in shell.invalidator.get().into_iter().chain(shell.corrector.get()) {
            invalidator.shutdown();
        }
        shell.bulk.close();
        shell.stores.close();
        shell.syncs.close();
        shell.tasks.close();
        shell.timer.stop();
        self.signals.stop();
        // What is still mounted answers errors from here on.
        drop(self.guard.take());
        for thread in self.threads.drain(..) {
            join(thread);
        }
    }
}

/// The thread that makes segments durable. Ends with the node.
fn sync(shell: &Shell) {
    let _aside = fuse::stand_aside();
    while let Some((job, what)) = shell.syncs.next() {
        match what {
            ToSync::Gather => {
                while shell.call_core_by_turns(|core, clock| core.gather(clock, job)) == Dealt::InPart {}
            }
            ToSync::Run(plan) => {
                let outcome = plan.run(&*shell.store);
                let mut dealt = shell.call_core_by_turns(|core, clock| core.synced(clock, job, outcome));
                while dealt == Dealt::InPart {
                    dealt = shell.call_core_by_turns(|core, clock| core.log_synced(clock, job));
                }
            }
        }
    }
}

/// The thread that unmounts at a signal, or calls off what has not come up yet. Ends with the node.
fn watch_signals(shell: &Shell, signals: &Signals) {
    loop {
        match signals.wait() {
            Ok(Signalled::Stopped) => return,
            Ok(Signalled::Signal(number)) if shell.call_off() => {
                log::info!("signal {number}: the mount is called off");
            }
            Ok(Signalled::Signal(number)) => {
                let Some(mount) = shell.mount.get() else { continue };
                log::info!("signal {number}: unmounting {}", mount.mountpoint().display());
                unmount(shell, signals, mount);
            }
            Err(error) => return log::error!("signals are not heard any more: {error}"),
        }
    }
}

/// Unmounts even while in use: who was told to end does not wait for others without end.
fn unmount(shell: &Shell, signals: &Signals, mount: &Mount) {
    if let Err(error) = mount.unmount(Unmount::Normal) {
        log::warn!("{}; taking it out of the tree", describe(&error));
        if let Err(error) = mount.unmount(Unmount::Lazy) {
            log::error!("{}", describe(&error));
        }
    }
    // One that was moved, covered or taken out of the tree before is not found at its place: it is still there.
    let unmounted = || shell.wait_unmounted(PAUSE_LOOK);
    match wait_or_signal(signals, PATIENCE_USERS, unmounted) {
        Waited::Done => return,
        Waited::InVain => {
            let job = shell.call_core(|core, clock| core.write_back(clock));
            let written = || unmounted() || shell.with_core(|core, _| core.is_written_back(job));
            if wait_or_signal(signals, PATIENCE_WRITE_BACK, written) != Waited::Done {
                log::error!("what was stored through mappings and not written back may be lost");
            }
            if shell.wait_unmounted(Duration::ZERO) {
                return;
            }
        }
        Waited::Signalled => log::warn!("told again: what was stored through mappings is not written back"),
    }
    log::warn!(
        "{} is still in use, by processes with files or a working directory there, or mounted elsewhere, moved, or covered; \
         its users get errors from here on",
        mount.mountpoint().display()
    );
    if let Err(error) = mount.abort() {
        log::error!("{}", describe(&error));
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    Done,
    InVain,
    /// One more signal came.
    Signalled,
}

/// Calls `is_done` again and again, which pauses, at most for `patience`; one more signal ends that.
fn wait_or_signal(signals: &Signals, patience: Duration, is_done: impl Fn() -> bool) -> Waited {
    let since = Instant::now();
    while !is_done() {
        match signals.pending() {
            Ok(Some(Signalled::Signal(_))) => return Waited::Signalled,
            // The node ends by itself.
            Ok(Some(Signalled::Stopped)) => return Waited::Done,
            Ok(None) => {}
            Err(error) => log::debug!("signals are not heard: {error}"),
        }
        if since.elapsed() >= patience {
            return Waited::InVain;
        }
    }
    Waited::Done
}

fn hooks(shell: &Arc<Shell>, mount: &Arc<Mount>) -> Hooks {
    let (done, raised, mount) = (Arc::downgrade(shell), Arc::downgrade(shell), Arc::clone(mount));
    let [is_due, reaches, brought, taken, changed, lull, lowered, unshielded] =
        [(); 8].map(|()| Arc::downgrade(shell));
    Hooks {
        done: Box::new(move |job| {
            if let Some(shell) = done.upgrade() {
                shell.call_core(|core, clock| core.invalidated(clock, job));
            }
        }),
        raised: Box::new(move |end| {
            if let Some(shell) = raised.upgrade() {
                shell.call_core(|core, _| core.end_reached(end));
            }
        }),
        is_due: Box::new(move |end| {
            is_due.upgrade().is_some_and(|shell| shell.with_core(|core, _| core.is_end_due(end)))
        }),
        reaches: Box::new(move |end| {
            let Some(shell) = reaches.upgrade() else { return false };
            let has = shell.catch_up.get().and_then(|catch_up| catch_up.size(end.ino, end.generation));
            has.is_some_and(|has| has >= end.to)
        }),
        catch_up: Box::new(move |of| brought.upgrade().is_none_or(|shell| bring(&shell, of))),
        taken: Box::new(move |ino, generation| {
            let Some(shell) = taken.upgrade() else { return };
            let of =
                Outdated { ino, generation, told: None, end: false, permissions: true, asker: Asker::Other };
            let weak = Arc::downgrade(&shell);
            if let Some(catch_up) = shell.catch_up.get() {
                catch_up.await_taken(of, move |seen| {
                    weak.upgrade()?.call_core(|core, _| core.has_taken(ino, seen))
                });
            }
        }),
        changed: Box::new(move |job| {
            let shell = changed.upgrade()?;
            let by = shell.with_core(|core, _| core.changer_for(job))?;
            shell.pending.changer(by)
        }),
        lull: Box::new(move |dir, number| {
            if let Some(shell) = lull.upgrade() {
                shell.call_core(|core, clock| core.lull_came(clock, dir, number));
            }
        }),
        lowered: Box::new(move |ino| {
            if let Some(shell) = lowered.upgrade()
                && let Some(catch_up) = shell.catch_up.get()
            {
                catch_up.wait(ino, shell.call_core(|core, _| core.end_of(ino)));
            }
        }),
        unshielded: Box::new(move |shield| {
            if let Some(shell) = unshielded.upgrade() {
                shell.call_core(|core, clock| core.lower_shield(clock, shield));
            }
        }),
        drops: drops(shell),
        abort: Box::new(move || {
            if let Err(error) = mount.abort() {
                log::error!("{}", describe(&error));
            }
        }),
    }
}

/// Has the kernel write back what was stored through mappings, whenever the core asks for it.
fn collect_stores(shell: &Shell) {
    while shell.stores.next().is_some() {
        if let Some(mount) = shell.mount.get()
            && let Err(errno) = mount.write_back()
        {
            log::debug!("what was stored through mappings cannot be written back: {errno}");
        }
        shell.call_core(|core, clock| core.stores_collected(clock));
    }
}

/// How long the kernel may take to act on the answer to a READ.
const READ_BRINGS_END: Duration = Duration::from_millis(2);

/// Brings the kernel to what there is of an inode. Returns whether it may take from the answer that waits for this what it has not.
fn bring(shell: &Arc<Shell>, of: Outdated) -> bool {
    let Some(catch_up) = shell.catch_up.get() else {
        shell.call_core(|core, _| core.unseen(of));
        return true;
    };
    match bring_by(shell, catch_up, of) {
        Brought::To(_) => return true,
        // It is to ask again, whenever that is.
        Brought::Late => return false,
        Brought::Not => {}
    }
    if of.told.is_none() || !of.end || !shell.with_core(|core, _| core.may_fill_pages(of.ino)) {
        return true;
    }
    if of.permissions {
        // These can be told without the end.
        bring_by(shell, catch_up, Outdated { end: false, ..of });
    }
    // A read that is answered about now may bring it the end: what makes it drop one answer makes it drop all.
    std::thread::sleep(READ_BRINGS_END);
    catch_up.size(of.ino, of.generation).is_some_and(|size| of.told.is_some_and(|told| size <= told.size))
}

fn bring_by(shell: &Arc<Shell>, catch_up: &Arc<CatchUp>, of: Outdated) -> Brought {
    let [current, filling, cutting] = [(); 3].map(|()| Arc::downgrade(shell));
    let is_current = move |seen| current.upgrade()?.call_core(|core, _| core.is_current(of, seen));
    let may_fill =
        move || filling.upgrade().is_some_and(|shell| shell.with_core(|core, _| core.may_fill_pages(of.ino)));
    let is_cut = move || {
        cutting
            .upgrade()
            .is_some_and(|shell| shell.with_core(|core, clock| core.is_cut_untold(clock, of.ino)))
    };
    let brought = catch_up.bring(of, is_current, may_fill, is_cut);
    if let Brought::To(seen) = brought {
        shell.call_core(|core, clock| core.seen(clock, of, seen));
    }
    brought
}

fn drops(shell: &Arc<Shell>) -> Drops {
    let [begin, end, for_write] = [(); 3].map(|()| Arc::downgrade(shell));
    Drops {
        begin: Box::new(move |ino, span| {
            begin.upgrade().map_or(0, |shell| shell.with_core(|core, _| core.begin_dropping(ino, span)))
        }),
        end: Box::new(move |ino, span, number| {
            end.upgrade()?.with_core(|core, _| core.end_dropping(ino, span, number))
        }),
        for_write: Box::new(move |ino, span| {
            if let Some(shell) = for_write.upgrade() {
                shell.with_core(|core, _| core.dropped_for_write(ino, span));
            }
        }),
    }
}

fn identity(mount: &Mount) -> Identity {
    let pid = std::process::id();
    Identity {
        pid,
        pid_start: process::stamp(pid),
        host: uname().nodename().to_string_lossy().into_owned(),
        mountpoint: mount.mountpoint().to_string_lossy().into_owned(),
        device: format!("{DEVICE_MAJOR}:{}", mount.device_minor()),
    }
}

/// Says what is wrong with a mount point better than mount(2) does.
fn check_mountpoint(path: &Path) -> Result<(), NodeError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => NodeError::MountpointMissing { path: path.to_owned() },
        io::ErrorKind::NotADirectory => NodeError::MountpointNotADirectory { path: path.to_owned() },
        _ => NodeError::Mountpoint { path: path.to_owned(), source },
    };
    // From the mount table first: looking at a dead mount could hang.
    if volume::sources::find(path).map_err(failed)?.is_some_and(|mount| mount.is_holdfast()) {
        return Err(NodeError::MountpointBusy { path: path.to_owned() });
    }
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Err(NodeError::MountpointNotADirectory { path: path.to_owned() });
    }
    Ok(())
}

/// Lets the kernel read ahead as far as there are threads that read: each takes a request of 1 MiB. Only root may; without it
/// reads are smaller, and one after the other.
fn raise_read_ahead(minor: u32) {
    let file = format!("/sys/class/bdi/{DEVICE_MAJOR}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&file, READ_AHEAD_KB) {
        log::debug!("{file}: {error}");
    }
}

/// Device numbers of file systems without a device.
const DEVICE_MAJOR: u32 = 0;
const READ_AHEAD_KB: &str = "4096";
const FILES_OPEN: u64 = 65_536;
/// Threads that read segments.
const READERS: usize = 4;
/// How long a mount waits for another process that is becoming master: it may have journals to read.
const PATIENCE_MASTER: Duration = Duration::from_secs(60);
/// Between two looks at what leaving waits for, each with a line of log.
const PAUSE_REPORT: Duration = Duration::from_secs(5);
/// How long the master may take to read our last messages.
const PATIENCE_LAST_MESSAGES: Duration = Duration::from_secs(5);
/// How long users of a mount have to let go of it after a signal. Whoever ends a container waits 10 s, and then there is still
/// to be flushed.
const PATIENCE_USERS: Duration = Duration::from_secs(5);
/// How long the kernel has to write back what they stored through mappings.
const PATIENCE_WRITE_BACK: Duration = Duration::from_secs(30);
/// Between two looks at both.
const PAUSE_LOOK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests;
