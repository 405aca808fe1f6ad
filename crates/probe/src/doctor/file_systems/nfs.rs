//! NFS: what the server and the network take, what waits in the client, what is sent twice.
//!
//! Source: `linux:fs/proc_namespace.c` (`show_vfsstat`), `linux:fs/nfs/super.c` (`nfs_show_stats`), and of the RPC layer
//! `linux:net/sunrpc/stats.c`, `xprtsock.c` and `xprtrdma/transport.c` (`print_stats`), `xprt.c` for what is counted.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::{Between, Files, count_of};
use crate::doctor::{Finding, Layer, Severity};
use crate::units::show_delay;

/// Reads the section of the mount at `at`.
pub(super) fn read(at: &Path) -> Files {
    let mut files = Files::default();
    let Ok(bytes) = fs::read(MOUNTSTATS) else { return files };
    if let Some(section) = section_of(&String::from_utf8_lossy(&bytes), at) {
        files.insert(PathBuf::from(MOUNTSTATS), section);
    }
    files
}

pub(super) fn findings(between: &Between<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (_, earlier, later) in between.pairs("mountstats") {
        let (before, after) = (Statistics::parse(earlier), Statistics::parse(later));
        if let Some(silence) = silence(&before, &after, between.seconds) {
            found.push(silence);
            continue;
        }
        let interval = after.since(&before);
        found.extend(sent_again(&interval, between.seconds));
        found.extend(slow_replies(&interval));
        found.extend(queueing(&interval));
        found.extend(asking_for_attributes(&interval, between.seconds));
    }
    found
}

/// `device SOURCE mounted on AT with fstype nfs4 statvers=1.1` and the lines below it. The last such mount is on top.
fn section_of(text: &str, at: &Path) -> Option<String> {
    let mut section: Option<String> = None;
    let mut is_inside = false;
    for line in text.lines() {
        if line.starts_with("device ") || line.starts_with("no device ") {
            is_inside = is_nfs_at(line, at);
            if is_inside {
                section = Some(String::new());
            }
        }
        if is_inside && let Some(section) = &mut section {
            section.push_str(line);
            section.push('\n');
        }
    }
    section
}

fn is_nfs_at(line: &str, at: &Path) -> bool {
    let Some((_, rest)) = line.split_once(" mounted on ") else { return false };
    let Some((place, kind)) = rest.split_once(" with fstype ") else { return false };
    let kind = kind.split(' ').next().unwrap_or_default();
    matches!(kind, "nfs" | "nfs4") && unescape(place) == at.as_os_str()
}

/// Space, tab, newline and backslash stand in the file as `\040` and the like.
fn unescape(text: &str) -> OsString {
    let (bytes, mut plain, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 4).filter(|digits| digits.iter().all(u8::is_ascii_digit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| byte == b'\\');
        plain.push(escaped.unwrap_or(byte));
        at += if escaped.is_some() { 4 } else { 1 };
    }
    OsString::from_vec(plain)
}

/// Of one kind of operation. Times are of all operations together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Op {
    /// That have ended.
    ops: u64,
    /// Requests sent for them: more than one for what was sent again.
    sent: u64,
    /// Gave up waiting, to send again or to fail.
    timeouts: u64,
    /// From the request being sent to its reply.
    round_trip_ms: u64,
    /// From the file system's asking to its having the answer.
    execute_ms: u64,
}

impl Op {
    /// `OPS SENT TIMEOUTS BYTES-SENT BYTES-RECEIVED QUEUE-MS RTT-MS EXECUTE-MS [ERRORS]`.
    fn parse(text: &str) -> Option<Self> {
        let values: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [ops, sent, timeouts, _, _, _, round_trip_ms, execute_ms, ..] = values[..] else { return None };
        Some(Self { ops, sent, timeouts, round_trip_ms, execute_ms })
    }

    /// None if a counter has gone back: the mount is another one.
    fn since(self, earlier: Self) -> Option<Self> {
        Some(Self {
            ops: self.ops.checked_sub(earlier.ops)?,
            sent: self.sent.checked_sub(earlier.sent)?,
            timeouts: self.timeouts.checked_sub(earlier.timeouts)?,
            round_trip_ms: self.round_trip_ms.checked_sub(earlier.round_trip_ms)?,
            execute_ms: self.execute_ms.checked_sub(earlier.execute_ms)?,
        })
    }

    fn and(self, other: Self) -> Self {
        Self {
            ops: self.ops.saturating_add(other.ops),
            sent: self.sent.saturating_add(other.sent),
            timeouts: self.timeouts.saturating_add(other.timeouts),
            round_trip_ms: self.round_trip_ms.saturating_add(other.round_trip_ms),
            execute_ms: self.execute_ms.saturating_add(other.execute_ms),
        }
    }

    fn mean_round_trip_ms(self) -> f64 {
        self.round_trip_ms as f64 / self.ops.max(1) as f64
    }

    /// What is neither the server's nor the network's.
    fn mean_queue_ms(self) -> f64 {
        self.execute_ms.saturating_sub(self.round_trip_ms) as f64 / self.ops.max(1) as f64
    }
}

/// Of one mount, since it was made; or between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Statistics {
    options: String,
    /// More than one with `nconnect`.
    connections: u64,
    /// Requests and replies of all connections.
    sends: u64,
    receives: u64,
    /// Requests that waited for a slot, counted anew each time one was sent.
    backlog: u64,
    ops: BTreeMap<String, Op>,
}

impl Statistics {
    fn parse(section: &str) -> Self {
        let mut this = Self::default();
        for line in section.lines() {
            let Some((key, rest)) = line.trim_start().split_once(':') else { continue };
            match key {
                "opts" => this.options = rest.trim().to_owned(),
                "xprt" => this.add_connection(rest),
                // Other lines have letters after the colon, or fewer numbers.
                _ => {
                    if let Some(op) = Op::parse(rest).filter(|_| is_op(key)) {
                        this.ops.insert(key.to_owned(), op);
                    }
                }
            }
        }
        this
    }

    /// `tcp PORT BINDS CONNECTS CONNECT-TIME IDLE SENDS RECEIVES BAD-XIDS REQUESTS-SUM BACKLOG-SUM ...`; rdma is alike,
    /// udp has no connections, local no port.
    fn add_connection(&mut self, text: &str) {
        let mut words = text.split_whitespace();
        let skipped = match words.next() {
            Some("tcp" | "rdma") => 5,
            Some("local") => 4,
            Some("udp") => 2,
            _ => return,
        };
        let values: Vec<u64> = words.skip(skipped).map_while(|word| word.parse().ok()).collect();
        let [sends, receives, _, _, backlog, ..] = values[..] else { return };
        self.connections += 1;
        self.sends = self.sends.saturating_add(sends);
        self.receives = self.receives.saturating_add(receives);
        self.backlog = self.backlog.saturating_add(backlog);
    }

    /// Operations whose counters make no sense are left out.
    fn since(&self, earlier: &Self) -> Self {
        let ops = self.ops.iter().filter_map(|(name, op)| {
            let op = op.since(earlier.ops.get(name).copied()?)?;
            Some((name.clone(), op)).filter(|_| op.ops > 0)
        });
        Self {
            options: self.options.clone(),
            connections: self.connections,
            sends: self.sends.saturating_sub(earlier.sends),
            receives: self.receives.saturating_sub(earlier.receives),
            backlog: self.backlog.saturating_sub(earlier.backlog),
            ops: ops.collect(),
        }
    }

    fn sum(&self) -> Op {
        self.ops.values().fold(Op::default(), |sum, op| sum.and(*op))
    }

    /// Those of which at least `OPS_MIN` have ended and that exceed `limit` by `measure`; if none does by itself, all
    /// together. The one with the most time first.
    fn exceeding(&self, limit: f64, measure: fn(Op) -> f64) -> Vec<(String, Op)> {
        let exceeds = |op: Op| op.ops >= OPS_MIN && measure(op) > limit;
        let each = self.ops.iter().map(|(name, op)| (name.clone(), *op));
        let mut found: Vec<(String, Op)> = each.filter(|(_, op)| exceeds(*op)).collect();
        found.sort_by(|(_, one), (_, other)| {
            (measure(*other) * other.ops as f64).total_cmp(&(measure(*one) * one.ops as f64))
        });
        if found.is_empty() && exceeds(self.sum()) {
            found.push(("all operations".to_owned(), self.sum()));
        }
        found
    }
}

/// `READ`, `EXCHANGE_ID`, or a number for what the kernel has no name for.
fn is_op(key: &str) -> bool {
    !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

fn silence(before: &Statistics, after: &Statistics, seconds: f64) -> Option<Finding> {
    let sent = after.sends.checked_sub(before.sends)?;
    let is_silent =
        sent >= SILENT_SENDS_MIN && seconds >= SILENT_SECONDS_MIN && after.receives == before.receives;
    if !is_silent || before.connections != after.connections || !after.since(before).ops.is_empty() {
        return None;
    }
    Some(Finding {
        layer: Layer::Network,
        severity: Severity::Critical,
        what: "the NFS server does not answer".to_owned(),
        seen: format!("{} sent in {seconds:.0} s, and no reply", count_of(sent, "request")),
        expected: "a reply to each request, most within milliseconds".to_owned(),
        why: "The server is down or overloaded, or nothing gets through to it. With the option hard, which is usual, \
              processes wait for as long as it takes."
            .to_owned(),
        next: "Is the server up (ping, rpcinfo -t SERVER nfs)? See dmesg for \"not responding\", and ss -tni for the \
               connection to port 2049."
            .to_owned(),
    })
}

fn sent_again(interval: &Statistics, seconds: f64) -> Option<Finding> {
    let again = interval.ops.values().map(|op| op.sent.saturating_sub(op.ops)).fold(0, u64::saturating_add);
    let sum = interval.sum();
    if again == 0 || sum.ops == 0 {
        return None;
    }
    let share = again as f64 / sum.ops as f64;
    let is_critical = again >= OPS_MIN && share >= AGAIN_SHARE_CRITICAL;
    Some(Finding {
        layer: Layer::Network,
        severity: if is_critical { Severity::Critical } else { Severity::Warning },
        what: "NFS requests are sent again".to_owned(),
        seen: format!(
            "{again} sent again of {} in {seconds:.0} s ({:.1} %), {}",
            count_of(sum.ops, "operation"),
            share * 100.0,
            count_of(sum.timeouts, "timeout")
        ),
        expected: "none".to_owned(),
        why: "A reply did not come in time, or the connection broke. Over TCP a request is sent again after a minute \
              (timeo) or when a new connection is made, so each one is a long wait."
            .to_owned(),
        next: "Look for losses on the way (nstat -az TcpRetransSegs, ip -s link, ethtool -S), at dmesg for \"not \
               responding\", and at the load of the server."
            .to_owned(),
    })
}

fn slow_replies(interval: &Statistics) -> Option<Finding> {
    let slow = interval.exceeding(ROUND_TRIP_MS_WARNING, Op::mean_round_trip_ms);
    let (name, op) = slow.first()?;
    let is_critical = op.mean_round_trip_ms() >= ROUND_TRIP_MS_CRITICAL;
    Some(Finding {
        layer: Layer::Network,
        severity: if is_critical { Severity::Critical } else { Severity::Warning },
        what: "the NFS server answers slowly, or the network is slow".to_owned(),
        seen: format!(
            "{name}: {} from request to reply, mean of {}{}",
            show_ms(op.mean_round_trip_ms()),
            op.ops,
            others(&slow)
        ),
        expected: format!("less than {}; on a local network some ms", show_ms(ROUND_TRIP_MS_WARNING)),
        why: "This time passes after the request has left this machine: it is the network's or the server's, not the \
              client's."
            .to_owned(),
        next: "Compare with ping to the server. If that is fast, look at the server: its disks (iostat -x) and its \
               threads (/proc/fs/nfsd/pool_stats)."
            .to_owned(),
    })
}

fn queueing(interval: &Statistics) -> Option<Finding> {
    let slow = interval.exceeding(QUEUE_MS_WARNING, Op::mean_queue_ms);
    let (name, op) = slow.first()?;
    let backlog = interval.backlog as f64 / interval.sends.max(1) as f64;
    let is_short_of_slots = backlog >= BACKLOG_MIN;
    let (layer, next) = if is_short_of_slots {
        (
            Layer::Configuration,
            "Requests wait for a free slot. For NFS 4.1 and later raise max_session_slots of the module nfs, for \
             older ones sunrpc.tcp_max_slot_table_entries; the server has a limit as well."
                .to_owned(),
        )
    } else if interval.connections <= 1 {
        (
            Layer::Configuration,
            "All goes over one connection: mount with nconnect=4, and see whether the CPU that serves it is busy \
             (mpstat -P ALL)."
                .to_owned(),
        )
    } else {
        (
            Layer::Cpu,
            "See what the client's CPUs do (mpstat -P ALL, top for kworker threads of rpciod and nfsiod). With \
             sec=krb5i or krb5p they encrypt."
                .to_owned(),
        )
    };
    Some(Finding {
        layer,
        severity: Severity::Warning,
        what: "NFS requests wait in the client before they are sent".to_owned(),
        seen: format!(
            "{name}: {} beside the {} for the reply, mean of {}{}; {backlog:.1} wait for a slot, {}",
            show_ms(op.mean_queue_ms()),
            show_ms(op.mean_round_trip_ms()),
            op.ops,
            others(&slow),
            count_of(interval.connections, "connection")
        ),
        expected: format!("less than {}", show_ms(QUEUE_MS_WARNING)),
        why: "The client has more to send than it may or can: neither the network nor the server has seen these \
              requests yet. While much data is written at once that is usual, and costs whoever else waits."
            .to_owned(),
        next,
    })
}

fn asking_for_attributes(interval: &Statistics, seconds: f64) -> Option<Finding> {
    let of = |name: &str| interval.ops.get(name).map_or(0, |op| op.ops);
    let asking = ATTRIBUTE_OPS.iter().map(|name| of(name)).fold(0, u64::saturating_add);
    let all = interval.sum().ops;
    let (per_second, share) = (all as f64 / seconds, asking as f64 / all.max(1) as f64);
    if per_second <= ATTRIBUTE_RATE_MIN || share <= ATTRIBUTE_SHARE_MIN {
        return None;
    }
    let told = |option: &&str| ATTRIBUTE_OPTIONS.iter().any(|name| option.starts_with(name));
    let options: Vec<&str> = interval.options.split(',').filter(told).collect();
    Some(Finding {
        layer: Layer::Cache,
        severity: Severity::Info,
        what: "most NFS requests only ask whether something has changed".to_owned(),
        seen: format!(
            "{:.0} % of {per_second:.0} operations/s: {} GETATTR, {} LOOKUP, {} ACCESS; options {}",
            share * 100.0,
            of("GETATTR"),
            of("LOOKUP"),
            of("ACCESS"),
            if options.is_empty() { "of the cache not told".to_owned() } else { options.join(",") }
        ),
        expected: format!("less than {:.0} %, the rest being data and changes", ATTRIBUTE_SHARE_MIN * 100.0),
        why: "What the client knows of a file it believes for some seconds, then asks again, and at each open. Each \
              question is a round trip."
            .to_owned(),
        next: "If noac is set, drop it. If few others change these files, mount with a longer acregmin and acdirmin \
               (or actimeo), with nocto if they never change. See what asks so often (strace -c -e trace=%file)."
            .to_owned(),
    })
}

fn others(slow: &[(String, Op)]) -> String {
    let names: Vec<&str> = slow.iter().skip(1).map(|(name, _)| &**name).collect();
    if names.is_empty() { String::new() } else { format!("; also {}", names.join(", ")) }
}

fn show_ms(ms: f64) -> String {
    show_delay(ms / 1e3)
}

const MOUNTSTATS: &str = "/proc/self/mountstats";

/// Operations that only ask.
const ATTRIBUTE_OPS: [&str; 3] = ["GETATTR", "LOOKUP", "ACCESS"];

/// Options that say how long answers are believed.
const ATTRIBUTE_OPTIONS: [&str; 4] = ["ac", "noac", "nocto", "lookupcache"];

/// Means of fewer tell of chance.
const OPS_MIN: u64 = 10;

/// Ten times what a disk takes: something waits there.
const ROUND_TRIP_MS_WARNING: f64 = 50.0;

/// Two operations take a second.
const ROUND_TRIP_MS_CRITICAL: f64 = 500.0;

/// More than sending takes even on a busy client.
const QUEUE_MS_WARNING: f64 = 20.0;

/// On average one request waits for a slot each time another is sent.
const BACKLOG_MIN: f64 = 1.0;

/// One of a hundred is no accident any more.
const AGAIN_SHARE_CRITICAL: f64 = 0.01;

/// One request may have been sent just before the second moment; three over a second were not.
const SILENT_SENDS_MIN: u64 = 3;
const SILENT_SECONDS_MIN: f64 = 1.0;

/// Fewer cost nobody anything.
const ATTRIBUTE_RATE_MIN: f64 = 100.0;

/// Programs that work with files also read and write them.
const ATTRIBUTE_SHARE_MIN: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::super::tests::{between, endure};
    use super::*;

    // After the fixture of github.com/prometheus/procfs for /proc/self/mountstats, with the column of errors that newer
    // kernels add (linux:net/sunrpc/stats.c, version 1.1), and numbers that make sense for ACCESS.
    const SAMPLE: &str = "\
device rootfs mounted on / with fstype rootfs
device sysfs mounted on /sys with fstype sysfs
device /dev/sda1 mounted on / with fstype ext4
device 192.168.1.1:/srv/test mounted on /mnt/nfs/test with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.0,rsize=1048576,wsize=1048576,namlen=255,acregmin=3,acregmax=60,acdirmin=30,acdirmax=60,hard,\
proto=tcp,port=0,timeo=600,retrans=2,sec=sys,mountaddr=192.168.1.1,clientaddr=192.168.1.5,local_lock=none
\tage:\t13968
\tcaps:\tcaps=0xfff7,wtmult=512,dtsize=32768,bsize=0,namlen=255
\tnfsv4:\tbm0=0xfdffafff,bm1=0xf9be3e,bm2=0x0,acl=0x0,pnfs=not configured
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t52 226 0 0 1 13 398 0 0 331 0 47 0 0 77 0 0 77 0 0 0 0 0 0 0 0 0 
\tbytes:\t1207640230 0 0 0 1210214218 0 295483 0 
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 832 0 1 0 11 6428 6428 0 12154 0 24 26 5726
\tper-op statistics
\t        NULL: 0 0 0 0 0 0 0 0 0
\t        READ: 1298 1298 0 207680 1210292152 6 2600 2700 0
\t       WRITE: 0 0 0 0 0 0 0 0 0
\t     GETATTR: 100 100 0 14400 24000 0 50 60 0
\t      ACCESS: 2927 2927 0 526931 362996 17 1667 1953 0

";

    /// The sample after some time: connection and lines of operations replaced.
    fn after(connection: &str, ops: &[(&str, &str)]) -> String {
        let mut text = SAMPLE.replace("11 6428 6428 0 12154 0 24", &format!("0 {connection} 24"));
        for (name, values) in ops {
            let line =
                SAMPLE.lines().find(|line| line.trim_start().starts_with(&format!("{name}:"))).unwrap();
            text = text.replace(line, &format!("\t{name:>12}: {values}"));
        }
        text
    }

    fn told(later: &str) -> Vec<Finding> {
        let section = |text| section_of(text, Path::new("/mnt/nfs/test")).unwrap();
        between(MOUNTSTATS, (&section(SAMPLE), &section(later)), findings)
    }

    #[test]
    fn a_mount_has_its_section() {
        let section = section_of(SAMPLE, Path::new("/mnt/nfs/test")).unwrap();
        assert!(section.starts_with("device 192.168.1.1:/srv/test") && section.contains("ACCESS: 2927"));
        for other in ["/", "/mnt/nfs", "/mnt/nfs/test2"] {
            assert_eq!(section_of(SAMPLE, Path::new(other)), None, "{other}");
        }
        let spaced = SAMPLE.replace("/mnt/nfs/test", "/mnt/my\\040data\\134x");
        assert!(section_of(&spaced, Path::new("/mnt/my data\\x")).is_some());
        assert_eq!(unescape("a\\0\\9zz\\"), "a\\0\\9zz\\");
    }

    #[test]
    fn statistics_are_of_all_connections_and_operations() {
        let second = SAMPLE.replace(
            "\tper-op",
            "\txprt:\trdma 0 0 3 0 0 72 70 0 90 8 0 0\n\txprt:\tudp 832 0 10 9 0 1 2 3 4 5\n\tper-op",
        );
        let statistics = Statistics::parse(&second);
        assert_eq!(statistics.connections, 3);
        assert_eq!((statistics.sends, statistics.receives, statistics.backlog), (6510, 6507, 10));
        assert_eq!(
            statistics.ops.keys().map(|name| &**name).collect::<Vec<_>>(),
            ["ACCESS", "GETATTR", "NULL", "READ", "WRITE"]
        );
        assert_eq!(statistics.ops["READ"].execute_ms, 2700);
    }

    #[test]
    fn what_is_sent_again_is_of_the_network() {
        let found = told(&after("6528 6528 0 12254 0", &[("READ", "1398 1400 2 1 1 6 2700 2900 0")]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Network, Severity::Warning));
        assert_eq!(found[0].seen, "2 sent again of 100 operations in 5 s (2.0 %), 2 timeouts");
    }

    #[test]
    fn slow_replies_are_of_the_network_or_the_server() {
        let slow = [("READ", "1398 1398 0 1 1 6 10600 10800 0"), ("GETATTR", "120 120 0 1 1 0 1450 1460 0")];
        let found = told(&after("6548 6548 0 12254 0", &slow));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Network, Severity::Warning));
        assert_eq!(found[0].seen, "READ: 80.0 ms from request to reply, mean of 100; also GETATTR");
    }

    #[test]
    fn few_of_each_are_taken_together() {
        let slow = [("READ", "1304 1304 0 1 1 6 8600 8700 0"), ("GETATTR", "106 106 0 1 1 0 6050 6060 0")];
        let found = told(&after("6440 6440 0 12254 0", &slow));
        assert_eq!(found[0].severity, Severity::Critical);
        assert!(found[0].seen.starts_with("all operations: 1.00 s"), "{}", found[0].seen);
    }

    #[test]
    fn queueing_in_the_client_is_told_by_slots_connections_or_cpu() {
        let ops = [("GETATTR", "1100 1100 0 1 1 140000 350 142360 0")];
        let layer_of = |later: &str| {
            let found = told(later);
            let queueing =
                found.into_iter().find(|finding| finding.what.contains("wait in the client")).unwrap();
            (queueing.layer, queueing)
        };
        let (layer, one) = layer_of(&after("7428 7428 0 12254 0", &ops));
        assert_eq!(layer, Layer::Configuration);
        assert!(one.next.contains("nconnect"), "{}", one.next);
        assert!(
            one.seen.starts_with(
                "GETATTR: 142 ms beside the 300 us for the reply, mean of 1000; 0.0 wait for a slot"
            ),
            "{}",
            one.seen
        );
        let (layer, slots) = layer_of(&after("7428 7428 0 12254 9000", &ops));
        assert!(layer == Layer::Configuration && slots.next.contains("max_session_slots"));
        let two = after("7428 7428 0 12254 0", &ops)
            .replace("\tper-op", "\txprt:\ttcp 833 0 1 0 0 5 5 0 5 0 2 0 0\n\tper-op");
        assert_eq!(layer_of(&two).0, Layer::Cpu);
    }

    #[test]
    fn asking_all_the_time_is_told_with_the_options() {
        let found = told(&after("7428 7428 0 12254 0", &[("ACCESS", "3927 3927 0 1 1 17 1967 2253 0")]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Cache, Severity::Info));
        assert_eq!(
            found[0].seen,
            "100 % of 200 operations/s: 0 GETATTR, 0 LOOKUP, 1000 ACCESS; options \
             acregmin=3,acregmax=60,acdirmin=30,acdirmax=60"
        );
        let rare = after("6528 6528 0 12254 0", &[("ACCESS", "3027 3027 0 1 1 17 1697 1983 0")]);
        assert!(told(&rare).is_empty());
    }

    #[test]
    fn a_server_that_does_not_answer_is_critical() {
        let found = told(&after("6440 6428 0 12354 0", &[]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Network, Severity::Critical));
        assert!(told(&after("6430 6428 0 12354 0", &[])).is_empty());
    }

    #[test]
    fn an_idle_mount_or_another_one_tells_nothing() {
        assert!(told(SAMPLE).is_empty());
        let restarted =
            after("2 2 0 3 0", &[("READ", "1 1 0 1 1 0 5000 5000 0"), ("ACCESS", "0 0 0 0 0 0 0 0 0")]);
        assert!(told(&restarted).is_empty());
    }

    #[test]
    fn counters_that_make_no_sense_are_left_out() {
        // The fixture's own line: fewer sent than ended, times that ran over.
        let ran_over =
            "2927395007 2927394995 0 526931094212 362996810236 18446743919241604546 1667369447 1953587717";
        let text = after("6428 6428 0 12154 0", &[("ACCESS", ran_over)]);
        let op = Statistics::parse(&text).ops["ACCESS"];
        assert_eq!((op.ops, op.sent), (2_927_395_007, 2_927_394_995));
        assert!(told(&text).iter().all(|finding| finding.layer == Layer::Cache));
    }

    #[test]
    fn garbage_tells_nothing() {
        let slow = after("7428 7428 0 12254 9000", &[("READ", "1398 1400 2 1 1 6 10600 99999 0")]);
        endure(MOUNTSTATS, &slow, findings);
        for text in ["device ", "device a mounted on ", "device a mounted on /mnt with fstype nfs", "\\", ""]
        {
            section_of(text, Path::new("/mnt"));
        }
        assert_eq!(unescape("\\777\\+12"), "\\777\\+12");
    }
}
