//! What the nodes of a volume have to say when something is slow: who does not answer, and who waits for what, of whom.

use std::fmt::Write;
use std::time::Duration;

use probe::doctor::{Finding, Layer, Severity};
use rustix::net::sockopt::socket_peercred;
use serde_json::Value as Json;
use volume::{Volume, sources};

use crate::backend::{self, ControlError};

/// Asks all nodes of these volumes.
pub fn of<'a>(volumes: impl Iterator<Item = &'a Volume>) -> Vec<Finding> {
    volumes.flat_map(of_volume).collect()
}

fn of_volume(volume: &Volume) -> Vec<Finding> {
    let (mut nodes, mut found) = (Vec::new(), Vec::new());
    let sockets = volume.socket_names().unwrap_or_default();
    for socket in sockets.iter().filter(|name| name.starts_with("node-")) {
        let ask = |line| backend::ask_within(volume, socket, line, PATIENCE);
        match ask("status").and_then(|status| Ok((status, ask("waiting")?))) {
            Ok((status, waiting)) => nodes.push(Node { status, waiting }),
            Err(ControlError::Connect(error)) if error.is_nobody_listening() => {}
            Err(_) => found.push(silent(volume, socket)),
        }
    }
    found.extend(waits(&nodes));
    found
}

/// A node, by its own words.
struct Node {
    status: Json,
    waiting: Json,
}

impl Node {
    fn number(&self) -> u64 {
        self.status["node"].as_u64().unwrap_or(0)
    }
}

fn silent(volume: &Volume, socket: &str) -> Finding {
    let mounts = sources::mounts_of(volume.path()).unwrap_or_default();
    let mount = mounts.into_iter().find(|mount| mount.control_socket() == socket);
    let place = mount.map_or_else(|| socket.to_owned(), |mount| mount.mountpoint.display().to_string());
    let peer = volume.connect(socket).ok().and_then(|stream| socket_peercred(&stream).ok());
    let pid = peer.map(|peer| peer.pid.as_raw_nonzero().get());
    let stat = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
    let is_stopped = stat.is_some_and(|stat| stat.contains(") T ") || stat.contains(") t "));
    let pid = pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    let state = if is_stopped { " and is stopped (state T)" } else { "" };
    Finding {
        layer: Layer::Cpu,
        severity: Severity::Critical,
        what: format!("the node at {place} does not answer"),
        seen: format!("process {pid} has said nothing for {} s{state}", PATIENCE.as_secs()),
        expected: "an answer at once".to_owned(),
        why: "the others wait for what it has until its lease has ended; if it is the master, for everything that they do not have".to_owned(),
        next: match is_stopped {
            true => format!("kill -CONT {pid}, unless a debugger has it"),
            false => format!("its log; cat /proc/{pid}/stack; holdfast status {}", volume.path().display()),
        },
    }
}

/// What has waited for long: locks of programs, with who has them, and the rest.
fn waits(nodes: &[Node]) -> Vec<Finding> {
    let place = |number: u64| {
        let of = nodes.iter().find(|node| node.number() == number);
        let at = of.and_then(|node| node.status["mountpoint"].as_str());
        at.map_or_else(|| format!("node {number}"), |at| format!("node {number} ({at})"))
    };
    let queues: Vec<&Json> =
        nodes.iter().filter_map(|node| node.waiting["locks"].as_array()).flatten().collect();
    let (mut locks, mut others) = (Vec::new(), Vec::new());
    for node in nodes {
        for wait in node.waiting["waiting"].as_array().into_iter().flatten() {
            let seconds = wait["seconds"].as_f64().unwrap_or(0.0);
            if seconds < LONG_SECONDS {
                continue;
            }
            let (here, inode) = (place(node.number()), &wait["inode"]);
            if wait["is_lock"] == true {
                let is_it = |queue: &&&Json| queue["inode"] == *inode && queue["node"] == node.number();
                let mut seen = format!("{here} waits for {seconds:.0} s for a lock on inode {inode}");
                if let Some(queue) = queues.iter().find(is_it) {
                    _ = write!(seen, " ({}, process {})", text(&queue["kind"]), queue["pid"]);
                    for holder in queue["holders"].as_array().into_iter().flatten() {
                        let number = holder["node"].as_u64().unwrap_or(0);
                        _ = write!(seen, ", which process {} of {} has", holder["pid"], place(number));
                    }
                }
                locks.push(seen);
            } else {
                let (operation, what) = (text(&wait["operation"]), text(&wait["waits_for"]));
                others
                    .push(format!("{here}: {operation} of inode {inode} waits for {seconds:.0} s ({what})"));
            }
        }
    }
    let finding = |what: &str, seen: Vec<String>, why: &str, next: &str| Finding {
        layer: Layer::Locks,
        severity: Severity::Warning,
        what: what.to_owned(),
        seen: shown(&seen),
        expected: format!("less than {LONG_SECONDS:.0} s"),
        why: why.to_owned(),
        next: next.to_owned(),
    };
    let of_programs = (!locks.is_empty()).then(|| {
        let why = "programs lock files against each other: it is for the one that has the lock to give it up";
        finding(
            "locks that programs wait for",
            locks,
            why,
            "find MOUNT -xdev -inum INODE; ps -p PROCESS on the node that has it",
        )
    });
    let of_others = (!others.is_empty()).then(|| {
        let why = "another node has what they need and does not give it back, or the volume's disk does not answer";
        finding("requests that wait", others, why, "holdfast status VOLUME; holdfast stat on the nodes; this again at once shows whether it is the same ones")
    });
    of_programs.into_iter().chain(of_others).collect()
}

/// The first of them.
fn shown(all: &[String]) -> String {
    let first = all[..all.len().min(SHOWN_MAX)].join("; ");
    match all.len() > SHOWN_MAX {
        true => format!("{first}; and {} more", all.len() - SHOWN_MAX),
        false => first,
    }
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or("-")
}

/// A node that is well answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// Nothing but locks of programs takes as long.
const LONG_SECONDS: f64 = 1.0;
const SHOWN_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn who_waits_for_a_lock_and_who_has_it_are_named() {
        let waits_of = |seconds: f64| json!([{"inode": 70, "is_lock": true, "seconds": seconds}]);
        let nodes = |seconds| {
            [
                Node {
                    status: json!({"node": 1, "mountpoint": "/mnt/a"}),
                    waiting: json!({"waiting": [], "locks": [
                        {"inode": 70, "kind": "flock", "node": 2, "pid": 12, "holders": [{"node": 1, "pid": 34}]},
                    ]}),
                },
                Node {
                    status: json!({"node": 2, "mountpoint": "/mnt/b"}),
                    waiting: json!({"waiting": waits_of(seconds)}),
                },
            ]
        };
        assert_eq!(waits(&nodes(0.5)), []);
        let found = waits(&nodes(8.4));
        let seen = "node 2 (/mnt/b) waits for 8 s for a lock on inode 70 (flock, process 12), which process 34 of node 1 (/mnt/a) has";
        assert_eq!((found.len(), found[0].layer, found[0].seen.as_str()), (1, Layer::Locks, seen));
    }

    #[test]
    fn what_waits_for_anything_else_is_shown_to_the_fifth() {
        let wait = json!({"inode": 9, "operation": "getattr", "waits_for": "Want", "is_lock": false, "seconds": 3.0});
        let node = Node { status: json!({"node": 2}), waiting: json!({"waiting": vec![wait; 7]}) };
        let found = waits(&[node]);
        assert!(
            found[0].seen.starts_with("node 2: getattr of inode 9 waits for 3 s (Want); node 2"),
            "{}",
            found[0].seen
        );
        assert!(found[0].seen.ends_with("; and 2 more"), "{}", found[0].seen);
    }
}
