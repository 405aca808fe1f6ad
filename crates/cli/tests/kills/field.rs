//! Mounts of one volume, the processes at each, and what is done to them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::death::{Deaths, stacks};
use crate::journal::Journal;
use crate::lab::{BINARY, Lab, Mount, wait_until};
use crate::stall::now_us;
use crate::verdict::COMMIT_US;
use crate::worker::{Draws, Spec, WORKER};

/// How large and how long.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub sites: usize,
    /// At each site.
    pub processes: u64,
    pub time: Duration,
    pub lease: Duration,
    /// Whether nodes are stopped too, and not only killed.
    pub stops: bool,
}

/// A place where the volume is mounted, again after each death.
pub struct Site {
    pub name: String,
    pub mount: Option<Mount>,
    /// Counts mounts of all sites.
    pub node: u64,
    running: Vec<(Spec, Child)>,
}

/// Something done to a node.
#[derive(Clone, Debug)]
pub struct Event {
    pub at: u64,
    pub what: &'static str,
    /// Nodes that it was done to.
    pub nodes: Vec<u64>,
}

/// A process' life, once it is over or to be looked at.
pub struct Past {
    pub spec: Spec,
    pub journal: Journal,
    /// When its node died.
    pub died: Option<u64>,
    /// Whether what it left was looked at.
    pub is_judged: bool,
}

pub struct Field {
    pub lab: Lab,
    pub local: PathBuf,
    pub scale: Scale,
    pub seed: u64,
    pub rng: Draws,
    pub sites: Vec<Site>,
    pub events: Vec<Event>,
    pub past: Vec<Past>,
    /// What each death cost: the event, and how old the oldest name was that was lost.
    pub lost: Vec<(&'static str, u64)>,
    /// Killed nodes until they are gone.
    pub deaths: Deaths,
    /// When the machine itself was late, and by how much; while that is watched, what watches it.
    pub stalls: crate::stall::Stalls,
    pub stall: Option<crate::stall::Stall>,
    pub began: Instant,
    /// Mounts that guards aborted.
    pub aborted: u64,
    /// How long mounts took.
    pub mounts: Vec<u64>,
    /// Processes of nodes, to be waited for.
    nodes: Vec<Child>,
    next_node: u64,
    lives: BTreeMap<u64, u64>,
}

impl Field {
    /// The volume with its shared directories, mounted everywhere, with all processes.
    pub fn new(mut lab: Lab, scale: Scale, seed: u64) -> Self {
        lab.patience = scale.time + Duration::from_secs(600);
        let local = lab.path("local");
        fs::create_dir(&local).expect("a directory of its own");
        let sites = (0..scale.sites).map(|n| Site {
            name: format!("m{n}"),
            mount: None,
            node: 0,
            running: Vec::new(),
        });
        let (sites, rng) = (sites.collect(), Draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
        let (events, past, lives) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (lost, mounts, nodes) = (Vec::new(), Vec::new(), Vec::new());
        let began = Instant::now();
        let mut field = Self {
            lab,
            local,
            scale,
            seed,
            rng,
            sites,
            events,
            past,
            lost,
            deaths: Deaths::default(),
            stalls: crate::stall::Stalls::default(),
            stall: None,
            began,
            aborted: 0,
            mounts,
            nodes,
            next_node: 1,
            lives,
        };
        field.mount(0);
        let root = field.root(0);
        for name in ["mix", "logs", "locks", "race"] {
            fs::create_dir(root.join(name)).expect("a fresh volume");
        }
        for how in ["flock", "fcntl"] {
            fs::write(root.join("locks").join(how), [0; 8]).expect("a fresh volume");
            let file = fs::File::open(root.join("locks").join(how)).expect("just made");
            file.sync_all().expect("durable");
        }
        field
    }

    pub fn root(&self, site: usize) -> PathBuf {
        self.lab.path(&self.sites[site].name)
    }

    /// Mounts at a site where nothing is mounted.
    pub fn mount(&mut self, site: usize) {
        let options = format!("rw,lease={}", self.scale.lease.as_secs_f64());
        let (node, name) = (self.next_node, self.sites[site].name.clone());
        self.next_node += 1;
        fs::create_dir_all(self.lab.path(&name)).expect("made");
        // In the foreground: its log is worth keeping.
        let log =
            fs::File::create(self.local.join(format!("log-{node}"))).expect("room outside of the volume");
        let mut command = Command::new(BINARY);
        command.args(["mount", "-f", "vol", &name, "-o", &options]).current_dir(&self.lab.dir);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("the binary");
        let pid = i64::from(child.id());
        let is_there = || {
            let nodes = self.lab.status()["nodes"].clone();
            nodes.as_array().is_some_and(|all| all.iter().any(|node| node["pid"] == pid))
        };
        let began = Instant::now();
        wait_until("a mount", is_there);
        self.mounts.push(began.elapsed().as_micros() as u64);
        self.sites[site].mount = Some(Mount::of(&self.lab, "vol", &name));
        self.sites[site].node = node;
        self.nodes.push(child);
    }

    /// Starts the processes of a site and waits until each has its place.
    pub fn start_processes(&mut self, site: usize) {
        let first = site as u64 * self.scale.processes;
        for process in first..first + self.scale.processes {
            let life = self.lives.entry(process).or_default();
            *life += 1;
            let spec = Spec {
                root: self.lab.path(&self.sites[site].name),
                local: self.local.clone(),
                process,
                processes: self.scale.processes * self.scale.sites as u64,
                life: *life,
                node: self.sites[site].node,
                seed: self.seed,
            };
            let mut command = Command::new("/proc/self/exe");
            command.args(["--exact", "worker::be_worker", "--nocapture"]).env(WORKER, spec.to_text());
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("this program");
            self.sites[site].running.push((spec, child));
        }
    }

    /// Whether all processes of a site have begun.
    pub fn wait_for_processes(&mut self, site: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.sites[site].running.iter().all(|(spec, _)| spec.ready().exists()) {
            for (spec, child) in &mut self.sites[site].running {
                if let Ok(Some(_)) = child.try_wait() {
                    let journal = Journal::read(&spec.journal());
                    assert!(
                        spec.ready().exists(),
                        "process {} did not begin: {:?}",
                        spec.process,
                        journal.lost
                    );
                }
            }
            assert!(Instant::now() < deadline, "processes of {} do not begin", self.sites[site].name);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The site of the master.
    pub fn master(&self) -> usize {
        let pid = self.lab.status()["master_pid"].as_i64().unwrap_or(0);
        let is_it = |site: &Site| site.mount.as_ref().is_some_and(|m| i64::from(m.pid.as_raw_pid()) == pid);
        self.sites.iter().position(is_it).unwrap_or(0)
    }

    /// From now on locks and names of these nodes may be others'.
    fn mark_dead(&self, node: u64) -> PathBuf {
        let path = self.local.join(format!("dead-{node}"));
        fs::write(&path, "").expect("room outside of the volume");
        path
    }

    /// Kills nodes, one right after the other. Their processes end by the errors they get. Returns when.
    pub fn kill(&mut self, what: &'static str, sites: &[usize]) -> u64 {
        for site in sites {
            self.mark_dead(self.sites[*site].node);
        }
        let at = now_us();
        for site in sites {
            let mount = self.sites[*site].mount.as_ref().expect("mounted");
            mount.signal(Signal::KILL);
            let report = self.local.join(format!("death-{}", self.sites[*site].node));
            self.deaths.watch(mount.pid, report);
        }
        let nodes = sites.iter().map(|site| self.sites[*site].node).collect();
        self.events.push(Event { at, what, nodes });
        for site in sites {
            self.bury(*site, at);
        }
        at
    }

    /// Stops a node for less than a lease: its processes, and with the master's all others', go on afterwards.
    pub fn stop_for_a_moment(&mut self, what: &'static str, site: usize, time: Duration) {
        self.send_stop(what, site, time);
        for site in 0..self.sites.len() {
            self.wait_to_go_on(site);
        }
    }

    /// Stops a node for longer than a lease. The processes that may lose something by it are ended meanwhile: those of
    /// the node, and of a master everybody's. Returns when, and the sites concerned with whether their nodes lost their
    /// memberships.
    pub fn stop(&mut self, what: &'static str, site: usize, time: Duration) -> (u64, Vec<(usize, bool)>) {
        let is_master = what == "stop master";
        let concerned: Vec<usize> =
            (0..self.sites.len()).filter(|other| is_master || *other == site).collect();
        let before: Vec<i64> = concerned.iter().map(|site| self.memberships_lost(*site)).collect();
        let marks: Vec<PathBuf> =
            concerned.iter().map(|site| self.mark_dead(self.sites[*site].node)).collect();
        let nodes = concerned.iter().map(|site| self.sites[*site].node).collect();
        let at = now_us();
        self.events.push(Event { at, what, nodes });
        self.mount_of(site).signal(Signal::STOP);
        std::thread::sleep(time);
        for site in &concerned {
            for (_, child) in &mut self.sites[*site].running {
                // Takes effect when its request is answered.
                _ = child.kill();
            }
        }
        self.mount_of(site).signal(Signal::CONT);
        for site in &concerned {
            self.end_processes(*site, Some(at));
        }
        self.clear_referees(&concerned);
        let mut lost = Vec::new();
        for (site, before) in concerned.into_iter().zip(before) {
            // Where the kernel did not give pages back in time, the guard has aborted the mount.
            let is_aborted = fs::metadata(self.root(site)).is_err();
            let is_lost = is_aborted || self.memberships_lost(site) > before;
            if is_aborted {
                self.aborted += 1;
                self.sites[site].mount = None;
            }
            lost.push((site, is_lost));
        }
        for mark in marks {
            fs::remove_file(mark).expect("it is there");
        }
        (at, lost)
    }

    /// Who was ended within a critical section has left it.
    fn clear_referees(&self, sites: &[usize]) {
        for how in ["flock", "fcntl"] {
            let path = self.local.join(format!("in-{how}"));
            let inside = fs::read_to_string(&path).unwrap_or_default();
            let is_theirs = |site: &usize| inside.starts_with(&format!("{} ", self.sites[*site].node));
            if sites.iter().any(is_theirs) {
                fs::write(&path, "").expect("room outside of the volume");
            }
        }
    }

    fn send_stop(&mut self, what: &'static str, site: usize, time: Duration) {
        let nodes = vec![self.sites[site].node];
        self.events.push(Event { at: now_us(), what, nodes });
        self.mount_of(site).signal(Signal::STOP);
        std::thread::sleep(time);
        self.mount_of(site).signal(Signal::CONT);
    }

    fn mount_of(&self, site: usize) -> &Mount {
        self.sites[site].mount.as_ref().expect("mounted")
    }

    fn memberships_lost(&self, site: usize) -> i64 {
        let counters = self.mount_of(site).counters(&self.lab);
        let found = find_number(&counters, "memberships_lost");
        found.unwrap_or_else(|| panic!("no count of memberships lost in {counters}"))
    }

    /// Waits until every process of a site does something again.
    fn wait_to_go_on(&mut self, site: usize) {
        let lens = |running: &[(Spec, Child)]| -> Vec<u64> {
            running.iter().map(|(spec, _)| fs::metadata(spec.journal()).map_or(0, |m| m.len())).collect()
        };
        let before = lens(&self.sites[site].running);
        let deadline = Instant::now() + Duration::from_secs(30);
        while lens(&self.sites[site].running).iter().zip(&before).any(|(now, before)| *now < before + 200) {
            self.check_alive();
            assert!(Instant::now() < deadline, "processes of {} hang after a stop", self.sites[site].name);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits for the processes of a dead node, keeps what they wrote down, and takes the mount away.
    fn bury(&mut self, site: usize, died: u64) {
        self.end_processes(site, Some(died));
        self.sites[site].mount = None;
    }

    fn end_processes(&mut self, site: usize, died: Option<u64>) {
        let deadline = Instant::now() + Duration::from_secs(60);
        for (spec, mut child) in std::mem::take(&mut self.sites[site].running) {
            while matches!(child.try_wait(), Ok(None)) {
                if Instant::now() > deadline {
                    let mut waits = stacks(child.id());
                    if let Some(mount) = &self.sites[site].mount {
                        waits.push_str(&stacks(mount.pid.as_raw_pid() as u32));
                    }
                    let last = Journal::read(&spec.journal()).done.pop();
                    let (event, kept) = (self.events.last().cloned(), self.keep_evidence());
                    _ = child.kill();
                    panic!("process {} hangs after {event:?} in {last:?}; {kept}\n{waits}", spec.process);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let journal = Journal::read(&spec.journal());
            self.past.push(Past { spec, journal, died, is_judged: false });
        }
    }

    /// Has all processes end of their own accord.
    pub fn end(&mut self) {
        fs::write(self.local.join("stop"), "").expect("room outside of the volume");
        for site in 0..self.sites.len() {
            self.end_processes(site, None);
        }
    }

    /// Copies the journals and the volume to a place that stays.
    pub fn keep_evidence(&self) -> String {
        let to = std::env::temp_dir().join(format!("holdfast-kills-{}", self.seed));
        _ = fs::remove_dir_all(&to);
        let copied = Command::new("cp").args(["-r", "--sparse=always"]).arg(&self.local).arg(&to).status();
        _ = Command::new("cp").args(["-r", "--sparse=always"]).arg(self.lab.path("vol")).arg(&to).status();
        if copied.is_ok_and(|status| status.success()) { to.display().to_string() } else { "none".to_owned() }
    }

    /// Lines of all nodes' logs that hold `text`, in the order of nodes.
    pub fn log_lines(&self, text: &str) -> Vec<String> {
        let read = |node| fs::read_to_string(self.local.join(format!("log-{node}"))).unwrap_or_default();
        let logs = (1..self.next_node).map(read);
        logs.flat_map(|log| {
            log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
    }

    /// Unmounts everything in order. A node that lost its membership before says so.
    pub fn unmount(&mut self) {
        for site in &mut self.sites {
            if let Some(mount) = site.mount.take() {
                let ended = self.lab.holdfast(&["umount", mount.root.to_str().expect("utf-8")]);
                let told = ended.code == 1 && ended.err.contains("lost while it was mounted");
                assert!(ended.code == 0 || told, "{}: {}", ended.code, ended.err);
            }
        }
    }

    /// How old what a node that died has made must be, not to be lost: a commit waits for the disk, which others keep busy.
    pub fn commit_us(&self, died: Option<u64>) -> u64 {
        let (Some(died), Some(stall)) = (died, &self.stall) else { return COMMIT_US };
        COMMIT_US + stall.so_far().syncs_between(died.saturating_sub(2 * COMMIT_US), died)
    }

    /// Processes that run, as far as they have come.
    pub fn present(&self) -> Vec<Past> {
        let all = self.sites.iter().flat_map(|site| &site.running);
        all.map(|(spec, _)| Past {
            spec: spec.clone(),
            journal: Journal::read(&spec.journal()),
            died: None,
            is_judged: false,
        })
        .collect()
    }

    /// A process that ended though its node lives.
    pub fn check_alive(&mut self) {
        let ended =
            |(spec, child): &mut (Spec, Child)| (!matches!(child.try_wait(), Ok(None))).then(|| spec.clone());
        let ended = self.sites.iter_mut().flat_map(|site| &mut site.running).find_map(ended);
        if let Some(spec) = ended {
            let (journal, kept) = (Journal::read(&spec.journal()), self.keep_evidence());
            panic!(
                "seed {}: process {} at node {} ended: {:?} {:?}; {kept}",
                self.seed, spec.process, spec.node, journal.lost, journal.violations
            );
        }
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        for site in &mut self.sites {
            for (_, child) in &mut site.running {
                _ = child.kill();
            }
            // Their requests end with the mount.
            if let Some(mount) = &site.mount {
                _ = rustix::process::kill_process(mount.pid, Signal::CONT);
            }
            site.mount = None;
            for (_, child) in &mut site.running {
                _ = child.wait();
            }
        }
        for node in &mut self.nodes {
            _ = node.kill();
            _ = node.wait();
        }
    }
}

/// A number called `name`, or with that at its end, anywhere in a document.
fn find_number(document: &serde_json::Value, name: &str) -> Option<i64> {
    match document {
        serde_json::Value::Object(fields) => fields.iter().find_map(|(key, value)| {
            let is_it = key.contains(name) && value.is_i64();
            if is_it { value.as_i64() } else { find_number(value, name) }
        }),
        serde_json::Value::Array(items) => items.iter().find_map(|item| find_number(item, name)),
        _ => None,
    }
}

/// Everything below a mount's root, each line one name, for comparison with other mounts.
pub fn tree(root: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let (mut lines, mut dirs) = (Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a directory that is there") {
            let path = entry.expect("an entry").path();
            let m = fs::symlink_metadata(&path).expect("a name that is there");
            let name = path.strip_prefix(root).expect("below it").display();
            let sum = if m.is_file() { crc32c::crc32c(&fs::read(&path).expect("a file")) } else { 0 };
            let (ino, mode, links, size) = (m.ino(), m.mode(), m.nlink(), m.size());
            let (secs, nanos) = (m.mtime(), m.mtime_nsec());
            lines.push(format!("{name} {ino} {mode:o} {links} {size} {secs}.{nanos:09} {sum:08x}"));
            if m.is_dir() {
                dirs.push(path);
            }
        }
    }
    lines.sort();
    lines
}
