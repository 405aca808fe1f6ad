//! All counters beneath a path at one moment, and what became of them by another one.

use std::fs;

use serde_json::{Value as Json, json};

use crate::doctor::disks::{Disk, DiskUse};
use crate::doctor::ground::Ground;
use crate::doctor::inside::Inside;
use crate::doctor::links::{Link, Tcp};
use crate::doctor::pressure::Pressure;
use crate::doctor::processes::{Counters, Process};
use crate::doctor::sockets::{self, Socket};
use crate::system;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    at_ns: u64,
    disks: Vec<Disk>,
    pressure: Option<Pressure>,
    pub links: Vec<Link>,
    pub tcp: Option<Tcp>,
    sockets: Vec<Socket>,
    daemon: Option<Counters>,
    inside: Option<Inside>,
    inodes_taken: u64,
}

/// What happened meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interval {
    pub seconds: f64,
    pub disks: Vec<DiskUse>,
    pub pressure: Option<Pressure>,
    pub sockets: Option<SocketUse>,
    pub daemon: Option<Process>,
    pub inside: Option<Inside>,
    /// By the kernel, for lack of memory.
    pub inodes_taken: u64,
}

/// What the file system's connections did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SocketUse {
    /// Share of the time in which the busiest had sent something that was not acknowledged.
    pub busy: f64,
    /// Of these, shares in which the peer had no room.
    pub peer_full: f64,
    pub round_trip_ms: f64,
    pub least_round_trip_ms: f64,
    pub mb_per_second: f64,
    pub segments: u64,
    pub again: u64,
}

impl Moment {
    pub fn now(ground: &Ground, inside: Option<Inside>) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let disks = read("/proc/diskstats");
        let mut sockets = Vec::new();
        if ground.daemon.is_some() || !ground.peers.is_empty() {
            let inodes = ground.socket_inodes();
            sockets = sockets::list().unwrap_or_default();
            sockets.retain(|socket| socket.is_connected() && ground.is_own(socket, &inodes));
        }
        Self {
            at_ns: system::monotonic_ns(),
            disks: ground.devices.iter().filter_map(|device| Disk::parse(&disks, &device.name)).collect(),
            pressure: Pressure::now(),
            links: Link::parse_all(&read("/proc/net/dev")),
            tcp: Tcp::parse(&read("/proc/net/snmp")),
            sockets,
            daemon: ground.daemon.as_ref().and_then(|daemon| Counters::look(daemon.pid)),
            inside,
            inodes_taken: inodes_taken(&read("/proc/vmstat")),
        }
    }

    pub fn since(&self, earlier: &Self) -> Interval {
        let seconds = (self.at_ns.saturating_sub(earlier.at_ns) as f64 / 1e9).max(1e-6);
        let disk = |disk: &Disk| {
            let before = earlier.disks.iter().find(|other| other.name == disk.name)?;
            Some(disk.since(before, seconds))
        };
        let pressure =
            self.pressure.zip(earlier.pressure).map(|(later, before)| later.since(before, seconds));
        let contended = pressure.map_or(1.0, |pressure| pressure.cpu);
        Interval {
            seconds,
            disks: self.disks.iter().filter_map(disk).collect(),
            pressure,
            sockets: SocketUse::of(&earlier.sockets, &self.sockets, seconds),
            daemon: self
                .daemon
                .as_ref()
                .zip(earlier.daemon.as_ref())
                .map(|(later, before)| Process { contended, ..later.since(before, seconds) }),
            inodes_taken: self.inodes_taken.saturating_sub(earlier.inodes_taken),
            inside: self.inside.zip(earlier.inside).map(|(later, before)| later.since(before)),
        }
    }
}

/// Of `/proc/vmstat`: inodes with file pages that were taken, by who needed memory and by the kernel's own thread.
fn inodes_taken(text: &str) -> u64 {
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    of("pginodesteal ").unwrap_or(0) + of("kswapd_inodesteal ").unwrap_or(0)
}

impl SocketUse {
    /// None without connections.
    fn of(earlier: &[Socket], later: &[Socket], seconds: f64) -> Option<Self> {
        let mut this = Self::default();
        let mut bytes = 0;
        for socket in later {
            let is_same = |other: &&Socket| {
                (other.inode, other.peer, other.port) == (socket.inode, socket.peer, socket.port)
            };
            // One that is new began with nothing.
            let before = earlier.iter().find(is_same);
            let of = |now: f64, before: Option<f64>| (now - before.unwrap_or(0.0)).max(0.0);
            let busy = of(socket.busy_seconds, before.map(|socket| socket.busy_seconds)) / seconds;
            if busy >= this.busy {
                this.busy = busy.min(1.0);
                let full = of(socket.peer_full_seconds, before.map(|socket| socket.peer_full_seconds));
                this.peer_full = (full / seconds).min(1.0);
                this.round_trip_ms = socket.round_trip_ms;
                this.least_round_trip_ms = socket.least_round_trip_ms;
            }
            let count = |now: u64, before: Option<u64>| now.saturating_sub(before.unwrap_or(0));
            this.segments += count(socket.segments_sent, before.map(|socket| socket.segments_sent));
            this.again += count(socket.segments_again, before.map(|socket| socket.segments_again));
            bytes += count(socket.bytes_sent, before.map(|socket| socket.bytes_sent));
            bytes += count(socket.bytes_received, before.map(|socket| socket.bytes_received));
        }
        this.mb_per_second = bytes as f64 / 1e6 / seconds;
        (!later.is_empty()).then_some(this)
    }
}

impl Interval {
    /// For the report.
    pub fn to_json(&self) -> Json {
        let disk = |disk: &DiskUse| {
            json!({
                "name": disk.name,
                "busy": disk.busy,
                "await_ms": disk.await_ms,
                "queue": disk.queue,
                "mb_per_second": disk.mb_per_second,
            })
        };
        let pressure =
            |shares: Pressure| json!({ "cpu": shares.cpu, "io": shares.io, "memory": shares.memory });
        let daemon = |daemon: Process| json!({ "ran": daemon.ran, "waited": daemon.waited, "held_back": daemon.held_back });
        let sockets = |used: SocketUse| {
            json!({
                "busy": used.busy,
                "peer_full": used.peer_full,
                "round_trip_ms": used.round_trip_ms,
                "least_round_trip_ms": used.least_round_trip_ms,
                "mb_per_second": used.mb_per_second,
                "segments": used.segments,
                "segments_again": used.again,
            })
        };
        json!({
            "seconds": self.seconds,
            "disks": self.disks.iter().map(disk).collect::<Vec<_>>(),
            "pressure": self.pressure.map(pressure),
            "daemon": self.daemon.map(daemon),
            "connections": self.sockets.map(sockets),
        })
    }
}
