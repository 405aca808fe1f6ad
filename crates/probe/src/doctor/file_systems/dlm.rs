//! The lock manager of the kernel (DLM), under GFS2 and OCFS2: requests that no other node answers, and locks that are
//! waited for.
//!
//! Source: `linux:fs/dlm/debug_fs.c` (`waiters_read`, `print_format2_lock`), `linux:fs/dlm/dlm_internal.h`, and
//! `dlm_controld/dlm_tool` of the user space, which reads the same files.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Between, DEBUGFS, Files, count_of, gfs2, number};
use crate::doctor::{Finding, Layer, Severity};
use crate::units::show_delay;

/// Adds what there is of `lockspace`.
pub(super) fn read(lockspace: &str, files: &mut Files) {
    let dir = Path::new(DEBUGFS).join("dlm");
    files.add(dir.join(format!("{lockspace}_waiters")));
    files.add_chosen(dir.join(format!("{lockspace}_locks")), only_contended);
}

pub(super) fn findings(between: &Between<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in &between.later.0 {
        let (name, earlier) = (path.to_string_lossy(), between.earlier.text(path));
        if name.ends_with("_waiters")
            && let Some(earlier) = earlier
        {
            found.extend(unanswered(&parse_waiters(earlier), &parse_waiters(text), between.seconds));
        } else if name.ends_with("_locks") {
            found.extend(contended(&parse_locks(text)));
        }
    }
    found
}

/// A request to another node that has had no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiter {
    lock: u32,
    /// Type of the message.
    message: i32,
    node: i32,
    resource: String,
}

/// `LOCK MESSAGE NODE RESOURCE`, the first in hex. The kernel has room for 4 kB: some 100 of them.
fn parse_waiters(text: &str) -> Vec<Waiter> {
    let parse = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let lock = u32::from_str_radix(words.next()?, 16).ok()?;
        let (message, node) = (number(&mut words)?, number(&mut words)?);
        Some(Waiter { lock, message, node, resource: words.next()?.trim().to_owned() })
    };
    text.lines().filter_map(parse).collect()
}

fn unanswered(earlier: &[Waiter], later: &[Waiter], seconds: f64) -> Option<Finding> {
    let stuck: Vec<&Waiter> = later.iter().filter(|waiter| earlier.contains(waiter)).collect();
    let mut nodes: BTreeMap<i32, u64> = BTreeMap::new();
    for waiter in &stuck {
        *nodes.entry(waiter.node).or_default() += 1;
    }
    let (node, count) = nodes.into_iter().max_by_key(|&(_, count)| count)?;
    let first = stuck.iter().find(|waiter| waiter.node == node)?;
    let is_critical = stuck.len() >= UNANSWERED_CRITICAL;
    Some(Finding {
        layer: Layer::Locks,
        severity: if is_critical { Severity::Critical } else { Severity::Warning },
        what: "a node does not answer the lock manager".to_owned(),
        seen: format!(
            "{} without a reply for at least {seconds:.0} s, {count} of them to node {node}; one is to {} {}",
            count_of(stuck.len() as u64, "request"),
            message_name(first.message),
            resource_name(&first.resource),
        ),
        expected: "a reply within milliseconds, even if the lock cannot be granted yet".to_owned(),
        why: "What waits for these locks waits for that node: it is gone and not yet fenced, overloaded, or messages \
              do not get through."
            .to_owned(),
        next: format!(
            "Look at node {node} and the network to it: dlm_tool ls, dlm_tool status, dmesg. A lockspace that waits \
             for fencing or for quorum says so there."
        ),
    })
}

/// `DLM_MSG_*`.
fn message_name(message: i32) -> &'static str {
    match message {
        1 => "request",
        2 => "convert",
        3 => "release",
        4 => "cancel a request for",
        11 => "find the master of",
        _ => "do something with",
    }
}

fn resource_name(resource: &str) -> String {
    match gfs2::Name::of_resource(resource) {
        Some(name) => name.to_string(),
        None => format!("resource \"{resource}\""),
    }
}

/// A lock of a node, or a request for one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lock {
    /// Zero is this node. Where the master is elsewhere, all locks are this node's own, and this is the master.
    node: i64,
    status: Status,
    granted: i32,
    requested: i32,
    /// For so long it has been granted, or has waited.
    us: u64,
    /// Zero is this node.
    master: i64,
    resource: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Waiting,
    Granted,
    Converting,
}

/// `ID NODE REMOTE-ID PID XID EXFLAGS FLAGS STATUS GRANTED REQUESTED TIME MASTER LEN "RESOURCE"`. The head line calls the
/// time milliseconds, but it is microseconds: see `print_format2_lock`.
fn parse_lock(line: &str) -> Option<Lock> {
    let (head, rest) = line.split_once(" \"")?;
    let resource = rest.rsplit_once('"')?.0.to_owned();
    let words: Vec<&str> = head.split(' ').collect();
    let [_, node, _, _, _, _, _, status, granted, requested, us, master, _] = words[..] else { return None };
    let status = match status {
        "1" => Status::Waiting,
        "2" => Status::Granted,
        "3" => Status::Converting,
        _ => return None,
    };
    let (granted, requested) = (granted.parse().ok()?, requested.parse().ok()?);
    let (node, master) = (node.parse().ok()?, master.parse().ok()?);
    Some(Lock { node, status, granted, requested, us: us.parse().ok()?, master, resource })
}

fn parse_locks(text: &str) -> Vec<Lock> {
    text.lines().filter_map(parse_lock).collect()
}

/// Lines of resources that somebody waits for. All locks of one resource stand together.
fn only_contended(lines: &mut dyn Iterator<Item = String>) -> String {
    let (mut kept, mut group, mut resource, mut is_waited_for) =
        (String::new(), String::new(), String::new(), false);
    for line in lines {
        let Some(lock) = parse_lock(&line) else { continue };
        if lock.resource != resource {
            if std::mem::take(&mut is_waited_for) {
                kept.push_str(&group);
            }
            group.clear();
        }
        is_waited_for |= lock.status != Status::Granted;
        resource = lock.resource;
        group.push_str(&line);
        group.push('\n');
    }
    if is_waited_for {
        kept.push_str(&group);
    }
    kept
}

fn contended(locks: &[Lock]) -> Option<Finding> {
    let of_applications =
        |lock: &Lock| gfs2::Name::of_resource(&lock.resource).is_some_and(gfs2::Name::is_of_applications);
    let waits =
        |lock: &&Lock| lock.status != Status::Granted && lock.us >= WAIT_US_MIN && !of_applications(lock);
    let waiting: Vec<&Lock> = locks.iter().filter(waits).collect();
    let longest = waiting.iter().max_by_key(|lock| lock.us)?;
    let is_critical = longest.us >= WAIT_US_CRITICAL;
    Some(Finding {
        layer: Layer::Locks,
        severity: if is_critical { Severity::Critical } else { Severity::Warning },
        what: "locks of the cluster are waited for".to_owned(),
        seen: format!(
            "{} longer than {}; the longest for {}: {}, {} wanted, {}",
            count_of(waiting.len() as u64, "request"),
            show_delay(WAIT_US_MIN as f64 / 1e6),
            show_delay(longest.us as f64 / 1e6),
            resource_name(&longest.resource),
            mode_name(longest.requested),
            holders_of(longest, locks),
        ),
        expected: format!("no lock that is waited for longer than {}", show_delay(WAIT_US_MIN as f64 / 1e6)),
        why: "The node that has the lock does not give it away: it writes its changes first, works with the lock all \
              the time, or hangs."
            .to_owned(),
        next: "Look at the node that has it: what does it write, and how fast is its storage? On the master, \
               dlm_tool lockdebug LOCKSPACE shows all holders."
            .to_owned(),
    })
}

fn holders_of(wanted: &Lock, locks: &[Lock]) -> String {
    if wanted.master != 0 {
        return format!("the master is node {}", wanted.master);
    }
    let holds = |lock: &&Lock| {
        lock.resource == wanted.resource && lock.status == Status::Granted && lock.granted > CONCURRENT_READ
    };
    let name = |lock: &Lock| match lock.node {
        0 => format!("this node ({})", mode_name(lock.granted)),
        node => format!("node {node} ({})", mode_name(lock.granted)),
    };
    let holders: Vec<String> = locks.iter().filter(holds).take(HOLDERS_SHOWN).map(name).collect();
    match holders.is_empty() {
        true => "nobody has it".to_owned(),
        false => format!("had by {}", holders.join(", ")),
    }
}

fn mode_name(mode: i32) -> &'static str {
    match mode {
        0 => "NL",
        1 => "CR",
        2 => "CW",
        3 => "PR",
        4 => "PW",
        5 => "EX",
        _ => "none",
    }
}

/// The mode that stands in nobody's way but EX's; NL, which is less, in nobody's.
const CONCURRENT_READ: i32 = 1;

/// One that is there twice may be two by chance; three are not.
const UNANSWERED_CRITICAL: usize = 3;

/// Even a node that must write a lot before it gives a lock away is done by then.
const WAIT_US_MIN: u64 = 1_000_000;

/// People give up.
const WAIT_US_CRITICAL: u64 = 10_000_000;

/// More do not help to read.
const HOLDERS_SHOWN: usize = 3;

#[cfg(test)]
mod tests {
    use super::super::tests::{between, endure};
    use super::*;

    const WAITERS: &str = "/sys/kernel/debug/dlm/myfs_waiters";
    const LOCKS: &str = "/sys/kernel/debug/dlm/myfs_locks";

    // As waiters_read of linux:fs/dlm/debug_fs.c prints it; resources are named as by gdlm_lock of
    // linux:fs/gfs2/lock_dlm.c. No dump of a real cluster was found.
    const UNANSWERED: &str = "\
1a0003 2 3        2            805b
1a0007 1 3        3          258028
2c0001 11 2        2           50382
2c0002 1 3        5            805b
";

    #[test]
    fn requests_without_a_reply_at_both_moments_name_the_node() {
        let found = between(WAITERS, (UNANSWERED, UNANSWERED), findings);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Locks, Severity::Critical));
        assert_eq!(
            found[0].seen,
            "4 requests without a reply for at least 5 s, 3 of them to node 3; one is to convert inode 0x805b (glock \
             2/805b)"
        );
    }

    #[test]
    fn requests_that_come_and_go_are_nothing() {
        let others = UNANSWERED.replace("1a", "3b").replace("2c", "4d");
        assert!(between(WAITERS, (UNANSWERED, &others), findings).is_empty());
        assert!(between(WAITERS, (UNANSWERED, ""), findings).is_empty());
        let one = UNANSWERED.lines().next().unwrap();
        assert_eq!(between(WAITERS, (UNANSWERED, one), findings)[0].severity, Severity::Warning);
    }

    // As print_format2_lock of linux:fs/dlm/debug_fs.c prints it: this node is the master of the first two resources.
    const HELD: &str = "\
id nodeid remid pid xid exflags flags sts grmode rqmode time_ms r_nodeid r_len r_name
1a0001 0 0 4466 0 8 0 2 3 -1 91000000 0 24 \"       2           50382\"
1a0002 2 3d0001 1405 0 8 10000 2 5 -1 12500000 0 24 \"       2            805b\"
1a0003 0 0 31819 0 c 0 3 3 5 12400000 0 24 \"       2            805b\"
1a0004 4 2f0009 977 0 8 10000 1 -1 3 1100000 0 24 \"       2            805b\"
1a0005 3 2f0001 4466 0 8 0 1 -1 5 400 3 24 \"       3          258028\"
";

    #[test]
    fn a_long_wait_names_the_resource_and_who_has_it() {
        let found = between(LOCKS, ("", HELD), findings);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].severity, Severity::Critical);
        assert_eq!(
            found[0].seen,
            "2 requests longer than 1.00 s; the longest for 12.4 s: inode 0x805b (glock 2/805b), EX wanted, had by node \
             2 (EX)"
        );
    }

    #[test]
    fn where_the_master_is_elsewhere_it_is_named() {
        let elsewhere =
            HELD.replace(" 400 3 24", " 2400000 3 24").replace("12400000", "9").replace("1100000", "9");
        let found = between(LOCKS, ("", &elsewhere), findings);
        assert_eq!(found[0].severity, Severity::Warning);
        assert!(found[0].seen.ends_with("EX wanted, the master is node 3"), "{}", found[0].seen);
    }

    #[test]
    fn short_waits_and_waits_for_flocks_are_nothing() {
        let short = HELD.replace("12400000", "400").replace("1100000", "400");
        let flock = HELD.replace("\"       2  ", "\"       6  ");
        for text in [short, flock] {
            assert!(between(LOCKS, ("", &text), findings).is_empty(), "{text}");
        }
    }

    #[test]
    fn only_contended_resources_are_kept() {
        let kept = only_contended(&mut HELD.lines().map(str::to_owned));
        assert_eq!(kept.lines().count(), 4);
        assert_eq!(contended(&parse_locks(&kept)), contended(&parse_locks(HELD)));
    }

    #[test]
    fn garbage_tells_nothing() {
        endure(WAITERS, UNANSWERED, findings);
        endure(LOCKS, HELD, findings);
    }
}
