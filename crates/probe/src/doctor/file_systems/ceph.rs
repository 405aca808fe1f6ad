//! Ceph (the client of the kernel): requests that stay in flight, rights that are waited for, and how long things take.
//!
//! Source: `linux:fs/ceph/debugfs.c` (`mdsc_show`, `caps_show`, `metrics_latency_show`, `metrics_caps_show`),
//! `linux:fs/ceph/metric.c`, `linux:net/ceph/debugfs.c` (`osdc_show`, `ceph_debugfs_client_init`), mount.ceph(8).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Between, DEBUGFS, Files, count_of, entries, number, parent_name};
use crate::doctor::{Finding, Layer, Severity};
use crate::units::show_delay;

/// Reads the clients that may be the one of the mount of `source`. Which it is the kernel tells only to whoever asks the
/// mount itself, and that may hang.
pub(super) fn read(source: &str) -> Files {
    let mut files = Files::default();
    for dir in entries(Path::new(DEBUGFS).join("ceph")) {
        // A client of RBD has no file mdsc.
        if is_of(&dir, source) && dir.join("mdsc").exists() {
            add_client(&dir, &mut files);
        }
    }
    files
}

fn add_client(dir: &Path, files: &mut Files) {
    for name in ["mdsc", "osdc", "metrics/latency", "metrics/caps"] {
        files.add(dir.join(name));
    }
    // The kernel makes the whole file at once, a line for each capability: too much for it if there are very many.
    let rights = files.text(&dir.join("metrics/caps")).map(parse_rights).unwrap_or_default();
    if rights.get("caps").is_some_and(|caps| caps.total <= CAPS_READ_MAX) {
        files.add(dir.join("caps"));
    }
}

pub(super) fn findings(between: &Between<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, earlier, later) in between.pairs("mdsc") {
        let stuck = stuck(&parse_mdsc(earlier), &parse_mdsc(later));
        found.extend(stuck_at_mds(&stuck, &parent_name(path), between.seconds));
    }
    for (path, earlier, later) in between.pairs("osdc") {
        let (earlier, later) = (parse_osdc(earlier), parse_osdc(later));
        let stuck = stuck(&earlier.requests, &later.requests);
        found.extend(stuck_at_osd(&stuck, &later, &parent_name(path), between.seconds));
    }
    for (_, earlier, later) in between.pairs("metrics/latency") {
        found.extend(slow(&parse_latency(earlier), &parse_latency(later)));
    }
    for (_, earlier, later) in between.pairs("metrics/caps") {
        found.extend(missing(&parse_rights(earlier), &parse_rights(later), between.seconds));
    }
    // The files of metrics end in `caps` too; they have no part about waiters.
    for (_, earlier, later) in between.pairs("caps") {
        found.extend(waiting_for_rights(&parse_waiters(earlier), &parse_waiters(later), between));
    }
    found
}

/// Whether the client in directory `FSID.clientID` may be the one of `NAME@FSID.FS=/PATH`. The older `MONITORS:/PATH`
/// does not tell.
fn is_of(dir: &Path, source: &str) -> bool {
    let fsid = source.split_once('@').and_then(|(_, rest)| rest.split_once('.')).map_or("", |(fsid, _)| fsid);
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.starts_with(fsid)
}

/// A request in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    /// Of this client, never used twice.
    id: u64,
    /// `mds0`, `osd7`.
    target: String,
    /// What is asked, and about what.
    what: String,
}

/// `ID<tab>mds0<tab>OPERATION<tab> #INODE...`. One that was answered already and only not yet written by the server, with
/// `(unsafe)` before the space, keeps nobody waiting.
fn parse_mdsc(text: &str) -> Vec<Request> {
    let parse = |line: &str| {
        let mut fields = line.split('\t');
        let (id, target) = (number(&mut fields)?, fields.next()?.to_owned());
        let mut what = fields.next()?.to_owned();
        for field in fields {
            if field.starts_with("(unsafe)") {
                return None;
            }
            what = format!("{what} {}", field.trim()).trim_end().to_owned();
        }
        Some(Request { id, target, what })
    };
    text.lines().filter_map(parse).collect()
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Osdc {
    requests: Vec<Request>,
    /// Requests for which there is no OSD.
    homeless: u64,
    /// Placement groups that are not to be asked now.
    backoffs: u64,
}

/// `REQUESTS 3 homeless 0`, then `ID<tab>osd7<tab>PG<tab>...<tab>OBJECT<tab>FLAGS<tab>[P<tab>]TRIES<tab>OPERATIONS`, then
/// other lists under heads of their own.
fn parse_osdc(text: &str) -> Osdc {
    let mut osdc = Osdc::default();
    let mut head = "";
    for line in text.lines() {
        if line.starts_with(|c: char| c.is_ascii_uppercase()) {
            head = line.split(' ').next().unwrap_or_default();
            let told = line.split_once(" homeless ").and_then(|(_, count)| count.parse().ok());
            osdc.homeless = told.unwrap_or(osdc.homeless);
        } else if head == "REQUESTS" {
            osdc.requests.extend(parse_osd_request(line));
        } else if head == "BACKOFFS" && !line.is_empty() {
            osdc.backoffs += 1;
        }
    }
    osdc
}

fn parse_osd_request(line: &str) -> Option<Request> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [id, target, _, group, _, _, _, object, .., operations] = fields[..] else { return None };
    let what = format!("{operations} of {object} in placement group {group}");
    Some(Request { id: id.parse().ok()?, target: target.to_owned(), what })
}

/// Requests that are there at both moments.
fn stuck(earlier: &[Request], later: &[Request]) -> Vec<Request> {
    let before: BTreeSet<u64> = earlier.iter().map(|request| request.id).collect();
    later.iter().filter(|request| before.contains(&request.id)).cloned().collect()
}

/// The target with most of the requests, with their count and the oldest.
fn busiest(stuck: &[Request]) -> Option<(&str, u64, &Request)> {
    let mut targets: BTreeMap<&str, u64> = BTreeMap::new();
    for request in stuck {
        *targets.entry(&request.target).or_default() += 1;
    }
    let (target, count) = targets.into_iter().max_by_key(|&(_, count)| count)?;
    let oldest = stuck.iter().filter(|request| request.target == target).min_by_key(|request| request.id)?;
    Some((target, count, oldest))
}

fn severity(stuck: &[Request], seconds: f64) -> Severity {
    match seconds >= STUCK_SECONDS_CRITICAL || stuck.len() >= STUCK_CRITICAL {
        true => Severity::Critical,
        false => Severity::Warning,
    }
}

fn stuck_at_mds(stuck: &[Request], client: &str, seconds: f64) -> Option<Finding> {
    let (target, count, oldest) = busiest(stuck)?;
    Some(Finding {
        layer: Layer::Locks,
        severity: severity(stuck, seconds),
        what: "requests to the metadata server do not end".to_owned(),
        seen: format!(
            "{} in flight for at least {seconds:.0} s, {count} of them at {target}; the oldest: {} (client {client})",
            count_of(stuck.len() as u64, "request"),
            oldest.what
        ),
        expected: "requests that take some milliseconds".to_owned(),
        why: "The metadata server has not answered. Mostly it waits for another client to give capabilities back, for \
              its journal on the OSDs, or it is overloaded."
            .to_owned(),
        next: format!(
            "ceph health detail (slow requests, clients failing to respond to capability release), and where it is: \
             ceph tell {} dump_ops_in_flight.",
            target.replacen("mds", "mds.", 1)
        ),
    })
}

fn stuck_at_osd(stuck: &[Request], osdc: &Osdc, client: &str, seconds: f64) -> Option<Finding> {
    let (target, count, oldest) = busiest(stuck)?;
    Some(Finding {
        layer: Layer::Storage,
        severity: severity(stuck, seconds),
        what: "requests to the storage servers (OSDs) do not end".to_owned(),
        seen: format!(
            "{} in flight for at least {seconds:.0} s, {count} of them at {target}; the oldest: {}; {} without any OSD, \
             {} (client {client})",
            count_of(stuck.len() as u64, "request"),
            oldest.what,
            osdc.homeless,
            count_of(osdc.backoffs, "backoff")
        ),
        expected: "requests that take some milliseconds, and none without an OSD".to_owned(),
        why: "These OSDs have not answered: their disks are slow, the placement group is inactive or the pool full, or \
              the network to them is broken."
            .to_owned(),
        next: format!(
            "ceph health detail; ceph osd perf; ceph pg dump_stuck. On the host of {target}: ceph daemon {} \
             dump_ops_in_flight, and iostat -x.",
            target.replacen("osd", "osd.", 1)
        ),
    })
}

/// Of one kind of operation, since the mount was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Latency {
    count: u64,
    mean_us: u64,
}

/// `read          1203        2113            210             99211           3312`, below a head.
fn parse_latency(text: &str) -> BTreeMap<String, Latency> {
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        Some((name, Latency { count: number(&mut words)?, mean_us: number(&mut words)? }))
    };
    text.lines().filter_map(parse).collect()
}

/// Mean in seconds of the operations between two moments, and their count. The kernel tells the mean of all of them in
/// whole microseconds: with many before, the few since are not known well enough.
fn mean_since(earlier: Latency, later: Latency) -> Option<(f64, u64)> {
    let count = later.count.checked_sub(earlier.count).filter(|&count| count >= OPS_MIN)?;
    let sum_us = |latency: Latency| latency.count as f64 * latency.mean_us as f64;
    let mean_us = (sum_us(later) - sum_us(earlier)) / count as f64;
    let error_us = (earlier.count as f64 + later.count as f64) / count as f64;
    (mean_us > 0.0 && error_us <= mean_us * ERROR_MAX).then_some((mean_us / 1e6, count))
}

fn slow(earlier: &BTreeMap<String, Latency>, later: &BTreeMap<String, Latency>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, layer) in [("read", Layer::Storage), ("write", Layer::Storage), ("metadata", Layer::Locks)] {
        let (Some(before), Some(after)) = (earlier.get(name), later.get(name)) else { continue };
        let Some((mean, count)) = mean_since(*before, *after) else { continue };
        if mean < MEAN_SECONDS_WARNING {
            continue;
        }
        found.push(Finding {
            layer,
            severity: Severity::Warning,
            what: format!("Ceph takes long ({name})"),
            seen: format!("{}, mean of {count}", show_delay(mean)),
            expected: format!("less than {}", show_delay(MEAN_SECONDS_WARNING)),
            why: match name {
                "metadata" => {
                    "The metadata server is busy, or waits for other clients that have capabilities for the same \
                     files."
                }
                _ => "This is from the request to the OSD until its reply: the OSDs, their disks, or the network.",
            }
            .to_owned(),
            next: "ceph health detail, ceph osd perf, ceph fs status; compare with ping to the hosts.".to_owned(),
        });
    }
    found
}

/// Rights to use what is in memory: leases of names, capabilities of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rights {
    total: u64,
    misses: u64,
    hits: u64,
}

/// `caps          14204           7721            1982211`, below a head: total, miss, hit.
fn parse_rights(text: &str) -> BTreeMap<String, Rights> {
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let (total, misses) = (number(&mut words)?, number(&mut words)?);
        Some((name, Rights { total, misses, hits: number(&mut words)? }))
    };
    text.lines().filter_map(parse).collect()
}

fn missing(
    earlier: &BTreeMap<String, Rights>,
    later: &BTreeMap<String, Rights>,
    seconds: f64,
) -> Option<Finding> {
    let (before, after) = (earlier.get("caps")?, later.get("caps")?);
    let (misses, hits) = (after.misses.checked_sub(before.misses)?, after.hits.checked_sub(before.hits)?);
    let (per_second, share) =
        (misses as f64 / seconds, misses as f64 / misses.saturating_add(hits).max(1) as f64);
    if per_second < MISSES_MIN || share < MISSES_SHARE_MIN {
        return None;
    }
    Some(Finding {
        layer: Layer::Cache,
        severity: Severity::Info,
        what: "the client lacks capabilities for what it does".to_owned(),
        seen: format!(
            "{per_second:.0} misses/s, {:.0} % of all uses; it has {} capabilities",
            share * 100.0,
            after.total
        ),
        expected: format!("less than {:.0} %", MISSES_SHARE_MIN * 100.0),
        why: "Each miss is a request to the metadata server. These files are new to the client, or other clients take \
              the capabilities away."
            .to_owned(),
        next: "If the same files are used again and again, see mds_max_caps_per_client and mds_cache_memory_limit, \
               and which other clients use them (ceph tell mds.0 session ls)."
            .to_owned(),
    })
}

/// Process and inode, and what the process needs of it.
type Waiters = BTreeMap<(u64, String), String>;

/// `TGID         0xINODE              NEED             WANT`, in the last part of the file.
fn parse_waiters(text: &str) -> Waiters {
    let Some((_, part)) = text.split_once("Waiters:\n") else { return Waiters::new() };
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let key = (number(&mut words)?, words.next().filter(|inode| inode.starts_with("0x"))?.to_owned());
        Some((key, words.next()?.to_owned()))
    };
    part.lines().filter_map(parse).collect()
}

fn waiting_for_rights(earlier: &Waiters, later: &Waiters, between: &Between<'_>) -> Option<Finding> {
    let both: Vec<_> = later.iter().filter(|(key, _)| earlier.contains_key(key)).collect();
    let ((process, inode), need) = both.first()?;
    let is_critical = both.len() >= STUCK_CRITICAL;
    let number = inode.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    Some(Finding {
        layer: Layer::Locks,
        severity: if is_critical { Severity::Critical } else { Severity::Warning },
        what: "processes wait for capabilities".to_owned(),
        seen: format!(
            "{} at both moments, {:.0} s apart; process {process} needs {need} of inode {inode}",
            count_of(both.len() as u64, "process"),
            between.seconds
        ),
        expected: "capabilities that are given within milliseconds".to_owned(),
        why: "Another client has this file open in a way that excludes what is needed here, and has not given it back."
            .to_owned(),
        next: match number {
            Some(number) => format!(
                "Find the file: find {} -xdev -inum {number}. ceph health detail names clients that do not give \
                 capabilities back.",
                between.at.display()
            ),
            None => "ceph health detail names clients that do not give capabilities back.".to_owned(),
        },
    })
}

/// Some 5 MB, which the kernel puts into memory in one piece.
const CAPS_READ_MAX: u64 = 100_000;

/// One that is there twice may be slow; so many are not by chance.
const STUCK_CRITICAL: usize = 10;

/// Ceph itself calls a request slow after 30 s (`osd_op_complaint_time`); people do so earlier.
const STUCK_SECONDS_CRITICAL: f64 = 10.0;

/// Means of fewer tell of chance.
const OPS_MIN: u64 = 10;

/// Of a mean, so much may be the kernel's rounding.
const ERROR_MAX: f64 = 0.1;

/// Ten times what a disk takes.
const MEAN_SECONDS_WARNING: f64 = 0.05;

/// Fewer cost nobody anything.
const MISSES_MIN: f64 = 100.0;

/// Then the cache is of little use.
const MISSES_SHARE_MIN: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::super::tests::{between, endure};
    use super::*;

    const DIR: &str = "/sys/kernel/debug/ceph/28f7427e-5558-4ffd-ae1a-51ec3042759a.client25386880";

    fn found(file: &str, earlier: &str, later: &str) -> Vec<Finding> {
        between(&format!("{DIR}/{file}"), (earlier, later), findings)
    }

    // The requests that a parser of mdsc in public code is tested with, as mdsc_show of linux:fs/ceph/debugfs.c prints
    // them, and one more.
    const MDSC: &str = "\
3923\tmds0\treaddir\t #10004c8cd1d
8317\t(no request)\tgetattr\t #1
8320\tmds0\tcreate\t(unsafe) #10004c8cd1d/new (/dir/new)
";

    #[test]
    fn the_same_request_at_both_moments_is_stuck_at_the_mds() {
        let found = found("mdsc", MDSC, MDSC);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Locks, Severity::Warning));
        assert!(
            found[0].seen.starts_with(
                "2 requests in flight for at least 5 s, 1 of them at mds0; the oldest: readdir #10004c8cd1d (client 28f"
            ),
            "{}",
            found[0].seen
        );
        assert!(found[0].next.contains("ceph tell mds.0 dump_ops_in_flight"), "{}", found[0].next);
    }

    #[test]
    fn other_requests_and_answered_ones_are_nothing() {
        assert!(found("mdsc", MDSC, "3924\tmds0\treaddir\t #10004c8cd1d\n").is_empty());
        let answered: String =
            MDSC.lines().filter(|line| line.contains("unsafe")).map(|line| line.to_owned() + "\n").collect();
        assert!(found("mdsc", &answered, &answered).is_empty());
    }

    // The first request is from a mail to ceph-devel of August 2019 (pg 1.32 at osd7), the second from the test of a
    // parser of osdc; the other parts as osdc_show of linux:net/ceph/debugfs.c prints them.
    const OSDC: &str = "\
REQUESTS 2 homeless 0
204\tosd7\t1.4dbcd0b2\t1.32\t[7,5,0]/7\t[7,5,0]/7\te103\t10000000017.00000001\t0x400024\t1\twrite
8141767\tosd807\t40.3a421a86\t40.286s0\t[807,793,674,167]/807\t[807,793,674,167]/807\te1177852\t\
rbd_data.39.380eda51faf086.0000000000076984\t0x400024\tP\t1\twrite
LINGER REQUESTS
18446462598732840961\tosd1\t2.8\t2.8\t[1]/1\t[1]/1\te9\trbd_header.1\t0x20\t8\tWC/0
BACKOFFS
osd7\t1.32\t5\t1:00:::0:head\tMAX
";

    #[test]
    fn the_same_request_at_both_moments_is_stuck_at_the_osd() {
        let second = OSDC.replace("8141767", "8141900").replace("homeless 0", "homeless 3");
        let found = found("osdc", OSDC, &second);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Storage, Severity::Warning));
        assert!(
            found[0].seen.starts_with(
                "1 request in flight for at least 5 s, 1 of them at osd7; the oldest: write of 10000000017.00000001 in \
                 placement group 1.32; 3 without any OSD, 1 backoff (client "
            ),
            "{}",
            found[0].seen
        );
    }

    #[test]
    fn watches_are_no_requests() {
        let quiet: String =
            OSDC.lines().filter(|line| !line.ends_with("write")).map(|line| line.to_owned() + "\n").collect();
        assert!(found("osdc", &quiet, &quiet).is_empty());
    }

    // As metrics_latency_show of linux:fs/ceph/debugfs.c prints it.
    fn latency(reads: u64, read_us: u64, metadata: u64, metadata_us: u64) -> String {
        let mut text =
            "item          total       avg_lat(us)     min_lat(us)     max_lat(us)     stdev(us)\n"
                .to_owned();
        text += "-----------------------------------------------------------------------------------\n";
        for (name, count, us) in
            [("read", reads, read_us), ("write", 0, 0), ("metadata", metadata, metadata_us)]
        {
            text += &format!("{name:<14}{count:<12}{us:<16}{:<16}{:<16}{}\n", 210, 990_211, 3312);
        }
        text
    }

    #[test]
    fn long_reads_are_of_the_storage() {
        let found = found("metrics/latency", &latency(900, 2000, 50, 900), &latency(1000, 12_000, 150, 950));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Storage, Severity::Warning));
        assert_eq!(found[0].seen, "102 ms, mean of 100");
    }

    #[test]
    fn a_mean_that_rounding_may_have_made_is_nothing() {
        let million = 10_000_000;
        assert!(
            found("metrics/latency", &latency(million, 2000, 0, 0), &latency(million + 10, 2001, 0, 0))
                .is_empty()
        );
    }

    // As metrics_caps_show of linux:fs/ceph/debugfs.c prints it.
    fn rights(misses: u64, hits: u64) -> String {
        let head = "item          total           miss            hit\n-------------------------------------------------\n";
        format!(
            "{head}{:<14}{:<16}{:<16}{}\n{:<14}{:<16}{misses:<16}{hits}\n",
            "d_lease", 12, 3, 99, "caps", 14_204
        )
    }

    #[test]
    fn many_misses_are_worth_knowing() {
        let found_many = found("metrics/caps", &rights(100, 1000), &rights(2100, 1500));
        assert_eq!(found_many.len(), 1);
        assert_eq!((found_many[0].layer, found_many[0].severity), (Layer::Cache, Severity::Info));
        assert_eq!(found_many[0].seen, "400 misses/s, 80 % of all uses; it has 14204 capabilities");
        assert!(found("metrics/caps", &rights(100, 1000), &rights(2100, 15_000)).is_empty());
        assert!(found("metrics/caps", &rights(100, 1000), &rights(50, 0)).is_empty());
    }

    // As caps_show of linux:fs/ceph/debugfs.c prints it.
    const CAPS: &str = "\
total\t\t2
avail\t\t0
used\t\t2
reserved\t0
min\t\t1024

ino              mds  issued           implemented
--------------------------------------------------
0x10004c8cd1d      0  pAsLsXsFs        pAsLsXsFsc       


Waiters:
--------
tgid         ino                need             want
-----------------------------------------------------
4466         0x10004c8cd1d      Fw               Fb               
";

    #[test]
    fn a_process_that_waits_for_a_right_is_named() {
        let found_waiting = found("caps", CAPS, CAPS);
        assert_eq!(found_waiting.len(), 1);
        assert_eq!(found_waiting[0].layer, Layer::Locks);
        assert_eq!(
            found_waiting[0].seen,
            "1 process at both moments, 5 s apart; process 4466 needs Fw of inode 0x10004c8cd1d"
        );
        assert!(
            found_waiting[0].next.contains("find /mnt -xdev -inum 1099591896349"),
            "{}",
            found_waiting[0].next
        );
        assert!(found("caps", CAPS, &CAPS.replace("4466", "4467")).is_empty());
    }

    #[test]
    fn the_source_may_tell_the_cluster() {
        let dir = Path::new(DIR);
        for source in
            ["10.0.0.1:6789:/", "admin@28f7427e-5558-4ffd-ae1a-51ec3042759a.cephfs=/", "admin@.cephfs=/", ""]
        {
            assert!(is_of(dir, source), "{source}");
        }
        assert!(!is_of(dir, "admin@07fe3187-00d9-42a3-814b-72a4d5e7d5be.cephfs=/"));
    }

    #[test]
    fn garbage_tells_nothing() {
        for (file, text) in [
            ("mdsc", MDSC),
            ("osdc", OSDC),
            ("metrics/latency", &latency(1000, 12_000, 150, 950)),
            ("metrics/caps", &rights(2100, 15)),
            ("caps", CAPS),
        ] {
            endure(&format!("{DIR}/{file}"), text, findings);
        }
    }
}
