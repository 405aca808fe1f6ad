//! Lustre (the client): connections to the servers, how long they take, and locks that other clients want back.
//!
//! Source, of the Lustre release: `lustre/obdclass/lprocfs_status.c` (`lprocfs_stats_seq_show`,
//! `lprocfs_import_seq_show`), `lustre/ptlrpc/lproc_ptlrpc.c` (names and units of counters), `lustre/ldlm/ldlm_pool.c`
//! (`grant`, `cancel`) and `ldlm_resource.c` (`lock_count`). Where files are has changed with the versions: all places
//! are looked at.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Between, Files, count_of, entries, parent_name};
use crate::doctor::{Finding, Layer, Severity};
use crate::units::show_delay;

/// Reads what there is of the file system that `source` names.
pub(super) fn read(source: &str) -> Files {
    let mut files = Files::default();
    let Some(name) = file_system_name(source) else { return files };
    let start = format!("{name}-");
    for (dir, names) in OF_DEVICES {
        for root in ROOTS.map(Path::new) {
            for device in entries(root.join(dir)) {
                let own =
                    device.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                if own.starts_with(&start) {
                    names
                        .iter()
                        .for_each(|name| add_once(&mut files, root, &Path::new(dir).join(&own).join(name)));
                }
            }
        }
    }
    for root in ROOTS.map(Path::new) {
        add_once(&mut files, root, Path::new(CALLBACKS));
    }
    files
}

/// Some versions show a file in two places.
fn add_once(files: &mut Files, root: &Path, path: &Path) {
    if !files.0.keys().any(|known| known.ends_with(path)) {
        files.add(root.join(path));
    }
}

pub(super) fn findings(between: &Between<'_>) -> Vec<Finding> {
    let servers: Vec<Server> = between.pairs("import").map(Server::parse).collect();
    let mut found = Vec::new();
    found.extend(disconnected(&servers, between.seconds));
    found.extend(timed_out(&servers, between.seconds));
    let (mut waits, mut pools) = (Vec::new(), Vec::new());
    for (path, earlier, later) in between.pairs("stats") {
        let counters = since(&parse_stats(earlier), &parse_stats(later));
        match Subject::of(path) {
            Some(Subject::Target(kind)) => waits.push(Wait::new(kind, path, counters, between)),
            Some(Subject::Calls) => found.extend(slow_calls(&counters)),
            Some(Subject::Callbacks) => found.extend(called_back(&counters, between.seconds)),
            Some(Subject::Pool) => pools.extend(Pool::new(path, &counters, between)),
            None => {}
        }
    }
    for kind in [Target::Metadata, Target::Object] {
        let own: Vec<&Wait> = waits.iter().filter(|wait| wait.kind == kind).collect();
        found.extend(slow_replies(kind, &own));
        found.extend(full_pipe(kind, &own));
    }
    found.extend(short_lived(&pools));
    found
}

/// `lustrefs` of `10.0.0.1@tcp:10.0.0.2@tcp:/lustrefs/sub`.
fn file_system_name(source: &str) -> Option<&str> {
    let (_, path) = source.split_once(":/")?;
    path.split('/').next().filter(|name| !name.is_empty())
}

/// What a file `stats` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// Requests to one target.
    Target(Target),
    /// Calls of applications.
    Calls,
    /// What servers say of locks.
    Callbacks,
    /// Locks of one target that this client has.
    Pool,
}

impl Subject {
    fn of(path: &Path) -> Option<Self> {
        let mut names = path.parent()?.iter().rev();
        let (dir, above) = (names.next()?, names.next().unwrap_or_default());
        match above.to_str()? {
            "mdc" => Some(Self::Target(Target::Metadata)),
            "osc" => Some(Self::Target(Target::Object)),
            "llite" => Some(Self::Calls),
            "services" => Some(Self::Callbacks),
            _ => (dir == "pool").then_some(Self::Pool),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Metadata,
    Object,
}

impl Target {
    /// As Lustre names the devices for it.
    fn device(self) -> &'static str {
        match self {
            Self::Metadata => "mdc",
            Self::Object => "osc",
        }
    }
}

/// Samples of one counter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counter {
    samples: u64,
    /// Zero where the counter only counts.
    sum: f64,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Unit {
    Microseconds,
    #[default]
    Other,
}

impl Counter {
    fn mean(self) -> f64 {
        self.sum / self.samples.max(1) as f64
    }

    /// None if it counts no times, or too few.
    fn mean_seconds(self) -> Option<f64> {
        (self.unit == Unit::Microseconds && self.samples >= SAMPLES_MIN).then(|| self.mean() / 1e6)
    }
}

type Counters = BTreeMap<String, Counter>;

/// `NAME COUNT samples [UNIT] MIN MAX SUM SUM-OF-SQUARES`, the last four or one not always. Times of snapshots have no
/// `samples`.
fn parse_stats(text: &str) -> Counters {
    let parse = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, samples, "samples", unit, ref values @ ..] = words[..] else { return None };
        let unit = if matches!(unit, "[usec]" | "[usecs]") { Unit::Microseconds } else { Unit::Other };
        // The sum is a number of 64 bits with a sign; the sum of squares, which is not used, may run over.
        let sum = values.get(2).and_then(|sum| sum.parse::<i64>().ok()).unwrap_or(0);
        Some((name.to_owned(), Counter { samples: samples.parse().ok()?, sum: sum as f64, unit }))
    };
    text.lines().filter_map(parse).collect()
}

/// What was counted between two moments. A counter that was zero is not in the file; one that went back was cleared.
fn since(earlier: &Counters, later: &Counters) -> Counters {
    let grown = later.iter().filter_map(|(name, counter)| {
        let before = earlier.get(name).copied().unwrap_or_default();
        let samples = counter.samples.checked_sub(before.samples)?;
        let sum = counter.sum - before.sum;
        (samples > 0 && sum >= 0.0).then(|| (name.clone(), Counter { samples, sum, unit: counter.unit }))
    });
    grown.collect()
}

/// Connection to one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Import {
    state: String,
    in_flight: u64,
    timeouts: u64,
    is_deactivated: bool,
}

impl Import {
    /// Lines `KEY: VALUE`, indented.
    fn parse(text: &str) -> Self {
        let mut this = Self::default();
        for line in text.lines() {
            let Some((key, value)) = line.trim().split_once(": ") else { continue };
            match key {
                "state" => this.state = value.to_owned(),
                "inflight" => this.in_flight = value.parse().unwrap_or(0),
                "timeouts" => this.timeouts = value.parse().unwrap_or(0),
                "import_flags" => this.is_deactivated = value.contains("deactive"),
                _ => {}
            }
        }
        this
    }

    fn is_broken(&self) -> bool {
        !self.is_deactivated && BROKEN_STATES.contains(&&*self.state)
    }
}

/// One server at two moments.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Server {
    device: String,
    earlier: Import,
    later: Import,
}

impl Server {
    fn parse((path, earlier, later): (&Path, &str, &str)) -> Self {
        Self { device: parent_name(path), earlier: Import::parse(earlier), later: Import::parse(later) }
    }

    fn timeouts(&self) -> u64 {
        self.later.timeouts.saturating_sub(self.earlier.timeouts)
    }
}

/// Requests to one target between two moments.
#[derive(Clone, Debug)]
struct Wait {
    kind: Target,
    device: String,
    counters: Counters,
    /// So many may be in flight.
    max_in_flight: Option<u64>,
}

impl Wait {
    fn new(kind: Target, stats: &Path, counters: Counters, between: &Between<'_>) -> Self {
        let device = parent_name(stats);
        let end = Path::new(kind.device()).join(&device).join("max_rpcs_in_flight");
        Self { kind, device, counters, max_in_flight: later_number(&end, between) }
    }

    fn mean_seconds(&self) -> Option<f64> {
        self.counters.get("req_waittime")?.mean_seconds()
    }
}

/// What a file held that is a number and nothing else.
fn later_number(end: &Path, between: &Between<'_>) -> Option<u64> {
    let (_, text) = between.later.0.iter().find(|(path, _)| path.ends_with(end))?;
    text.trim().parse().ok()
}

fn disconnected(servers: &[Server], seconds: f64) -> Option<Finding> {
    let is_broken = |server: &&Server| server.earlier.is_broken() && server.later.is_broken();
    let broken: Vec<&Server> = servers.iter().filter(is_broken).collect();
    let most = broken.iter().max_by_key(|server| server.later.in_flight)?;
    Some(Finding {
        layer: Layer::Network,
        severity: Severity::Critical,
        what: "no connection to a server of Lustre".to_owned(),
        seen: format!(
            "{} of {}; {} is {} now, {} {seconds:.0} s before, {} waiting",
            broken.len(),
            count_of(servers.len() as u64, "connection"),
            most.device,
            most.later.state,
            most.earlier.state,
            count_of(most.later.in_flight, "request")
        ),
        expected: "all FULL, or IDLE when unused".to_owned(),
        why: "What lies on that server waits until it is back: it is down, in recovery, or not to be reached; or it \
              has evicted this client."
            .to_owned(),
        next: format!(
            "lfs check servers; lctl get_param *.{}.import for the NID of the server, and lctl ping NID; dmesg here and \
             there. In recovery: lctl get_param *.*.recovery_status on the server.",
            most.device
        ),
    })
}

fn timed_out(servers: &[Server], seconds: f64) -> Option<Finding> {
    let most =
        servers.iter().max_by_key(|server| server.timeouts()).filter(|server| server.timeouts() > 0)?;
    let count = servers.iter().map(Server::timeouts).fold(0, u64::saturating_add);
    Some(Finding {
        layer: Layer::Network,
        severity: Severity::Warning,
        what: "requests to a server of Lustre time out".to_owned(),
        seen: format!(
            "{} in {seconds:.0} s, {} of them at {}",
            count_of(count, "timeout"),
            most.timeouts(),
            most.device
        ),
        expected: "none".to_owned(),
        why: "The server took longer than it said it would, or messages were lost. The client then connects anew, \
              and what was in flight waits."
            .to_owned(),
        next: "Look at the server's load and dmesg, and at the network: lnetctl stats show, lnetctl net show -v 3."
            .to_owned(),
    })
}

fn slow_replies(kind: Target, waits: &[&Wait]) -> Option<Finding> {
    let mean = |wait: &Wait| wait.mean_seconds().unwrap_or(0.0);
    let slow: Vec<&&Wait> = waits.iter().filter(|wait| mean(wait) >= WAIT_SECONDS_WARNING).collect();
    let slowest = slow.iter().max_by(|one, other| mean(one).total_cmp(&mean(other)))?;
    let (layer, why, look) = match kind {
        Target::Metadata => (
            Layer::Locks,
            "A reply that comes late is a busy server, a slow network, or a lock: a request that needs one is \
             answered when another client has given it back.",
            "mdt.*.md_stats",
        ),
        Target::Object => (
            Layer::Storage,
            "This is from sending a request until its reply: disks of the server, many clients at once, or a slow \
             network.",
            "obdfilter.*.brw_stats",
        ),
    };
    let is_critical = mean(slowest) >= WAIT_SECONDS_CRITICAL;
    Some(Finding {
        layer,
        severity: if is_critical { Severity::Critical } else { Severity::Warning },
        what: format!("servers of Lustre take long ({})", kind.device()),
        seen: format!(
            "{}: {} until the reply, mean of {}; {} of {} so slow",
            slowest.device,
            show_delay(mean(slowest)),
            slowest.counters.get("req_waittime").map_or(0, |counter| counter.samples),
            slow.len(),
            count_of(waits.len() as u64, "target"),
        ),
        expected: format!("less than {}", show_delay(WAIT_SECONDS_WARNING)),
        why: why.to_owned(),
        next: format!(
            "Compare with lctl ping to the server. If that is fast, look at the server: iostat -x, top, lctl \
             get_param {look}."
        ),
    })
}

fn full_pipe(kind: Target, waits: &[&Wait]) -> Option<Finding> {
    let of = |wait: &&Wait| {
        let active = wait.counters.get("req_active").filter(|active| active.samples >= SAMPLES_MIN)?;
        let max = wait.max_in_flight.filter(|&max| max > 0)?;
        (active.mean() >= max as f64 * IN_FLIGHT_SHARE).then(|| (wait.device.clone(), active.mean(), max))
    };
    let full: Vec<(String, f64, u64)> = waits.iter().filter_map(of).collect();
    let (device, mean, max) = full.first()?;
    Some(Finding {
        layer: Layer::Configuration,
        severity: Severity::Info,
        what: format!("as many requests in flight as allowed ({})", kind.device()),
        seen: format!(
            "{device}: {mean:.1} on average, of at most {max}; so with {} of {}",
            full.len(),
            count_of(waits.len() as u64, "target")
        ),
        expected: format!("less than {:.0} % of max_rpcs_in_flight", IN_FLIGHT_SHARE * 100.0),
        why: "More would be sent if it might. Where the way is long or the server has many disks, more at once are \
              faster; where the server is the limit, they only wait there."
            .to_owned(),
        next: format!(
            "Try twice as many: lctl set_param {}.*.max_rpcs_in_flight={}.",
            kind.device(),
            max.saturating_mul(2)
        ),
    })
}

fn slow_calls(counters: &Counters) -> Option<Finding> {
    let slow = counters.iter().filter_map(|(name, counter)| {
        let mean = counter.mean_seconds().filter(|&mean| mean >= WAIT_SECONDS_WARNING)?;
        Some((name, counter, mean))
    });
    let (name, counter, mean) = slow.max_by(|(_, one, _), (_, other, _)| one.sum.total_cmp(&other.sum))?;
    Some(Finding {
        layer: Layer::FileSystem,
        severity: Severity::Info,
        what: "calls of applications take long".to_owned(),
        seen: format!("{name}: {}, mean of {}", show_delay(mean), counter.samples),
        expected: format!("less than {}", show_delay(WAIT_SECONDS_WARNING)),
        why: "This is what applications see, with all that lies below: caches, locks, servers, network."
            .to_owned(),
        next: "See what else is told of mdc and osc: if they are fast, the time goes on this client."
            .to_owned(),
    })
}

fn called_back(counters: &Counters, seconds: f64) -> Option<Finding> {
    let count = counters.get("ldlm_bl_callback")?.samples;
    let per_second = count as f64 / seconds;
    if per_second < CALLBACKS_INFO {
        return None;
    }
    let is_warning = per_second >= CALLBACKS_WARNING;
    Some(Finding {
        layer: Layer::Locks,
        severity: if is_warning { Severity::Warning } else { Severity::Info },
        what: "other clients want locks of this one".to_owned(),
        seen: format!("{per_second:.0} locks/s called back ({count} in {seconds:.0} s, all Lustre mounts together)"),
        expected: format!("less than {CALLBACKS_INFO:.0}/s"),
        why: "Each time, this client writes what it changed under the lock and loses what it had in memory of the file; \
              the other waits for that."
            .to_owned(),
        next: "See which clients write to the same files or directories, and part them: a directory for each, or parts \
               of a file that do not overlap in stripes."
            .to_owned(),
    })
}

/// Locks of one target that this client has.
#[derive(Clone, Debug)]
struct Pool {
    namespace: String,
    locks: u64,
    given_up_per_second: f64,
}

impl Pool {
    /// `stats` is `NAMESPACE/pool/stats`.
    fn new(stats: &Path, counters: &Counters, between: &Between<'_>) -> Option<Self> {
        let namespace = parent_name(stats.parent()?);
        let locks = later_number(&Path::new(&namespace).join("lock_count"), between)?;
        let given_up_per_second = counters.get("cancel")?.samples as f64 / between.seconds;
        Some(Self { namespace, locks, given_up_per_second })
    }

    /// How long a lock lives, if it goes on like this.
    fn lifetime_seconds(&self) -> f64 {
        self.locks as f64 / self.given_up_per_second
    }
}

fn short_lived(pools: &[Pool]) -> Option<Finding> {
    let is_short = |pool: &&Pool| {
        pool.given_up_per_second >= CANCELS_MIN && pool.lifetime_seconds() <= LIFETIME_SECONDS_MIN
    };
    let short = pools.iter().filter(is_short);
    let most = short.max_by(|one, other| one.given_up_per_second.total_cmp(&other.given_up_per_second))?;
    let namespace = &most.namespace;
    Some(Finding {
        layer: Layer::Cache,
        severity: Severity::Info,
        what: "locks, and what is cached under them, are soon given up".to_owned(),
        seen: format!(
            "{namespace}: {:.0} locks/s given up of {}, so they live for {}",
            most.given_up_per_second,
            count_of(most.locks, "lock"),
            show_delay(most.lifetime_seconds())
        ),
        expected: "locks that are kept for minutes".to_owned(),
        why: "What is in memory of a file goes with its lock. Either other clients want the locks, or this client \
              may keep only a few, or the files are only used once."
            .to_owned(),
        next: format!(
            "lctl get_param ldlm.namespaces.{namespace}.lru_size ldlm.namespaces.{namespace}.lru_max_age: if \
             lru_size was set to a number, set it to 0, and the server decides."
        ),
    })
}

/// Since 2.12 most is in sysfs and debugfs, before in proc.
const ROOTS: [&str; 3] = ["/sys/fs/lustre", "/sys/kernel/debug/lustre", "/proc/fs/lustre"];

/// Directories with one entry for each device, and what is read of it.
const OF_DEVICES: [(&str, &[&str]); 4] = [
    ("mdc", &["stats", "import", "max_rpcs_in_flight"]),
    ("osc", &["stats", "import", "max_rpcs_in_flight"]),
    ("llite", &["stats"]),
    ("ldlm/namespaces", &["lock_count", "pool/stats"]),
];

/// The service that takes what servers say of locks.
const CALLBACKS: &str = "ldlm/services/ldlm_cbd/stats";

/// Of `ptlrpc_import_state_name`. NEW is not yet used, CLOSED no more; FULL and IDLE are well.
const BROKEN_STATES: [&str; 7] =
    ["DISCONN", "CONNECTING", "REPLAY", "REPLAY_LOCKS", "REPLAY_WAIT", "RECOVER", "EVICTED"];

/// Means of fewer tell of chance.
const SAMPLES_MIN: u64 = 10;

/// Ten times what a disk takes.
const WAIT_SECONDS_WARNING: f64 = 0.05;

/// Two requests take a second.
const WAIT_SECONDS_CRITICAL: f64 = 0.5;

/// A mean so near the limit is the limit most of the time.
const IN_FLIGHT_SHARE: f64 = 0.8;

/// Files that are shared now and then make fewer.
const CALLBACKS_INFO: f64 = 50.0;

/// Then this client is busy with giving locks back.
const CALLBACKS_WARNING: f64 = 500.0;

/// Fewer cost nobody anything.
const CANCELS_MIN: f64 = 100.0;

/// What is used again, is mostly used again within such a time.
const LIFETIME_SECONDS_MIN: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::super::tests::{between, between_all, endure};
    use super::*;

    const OSC: &str = "/sys/kernel/debug/lustre/osc/lustre-OST0000-osc-ffff88000a8e3400/stats";
    const OSC_MAX: &str = "/sys/fs/lustre/osc/lustre-OST0000-osc-ffff88000a8e3400/max_rpcs_in_flight";
    const OSC_IMPORT: &str = "/sys/kernel/debug/lustre/osc/lustre-OST0000-osc-ffff88000a8e3400/import";
    const MDC: &str = "/proc/fs/lustre/mdc/lustre-MDT0000-mdc-ffff88000a8e3400/stats";
    const CBD: &str = "/sys/kernel/debug/lustre/ldlm/services/ldlm_cbd/stats";

    // After `lctl get_param osc.*.stats` of a client, in a comment of a tool for tuning found in public code, shortened;
    // the sum of squares has run over there too.
    const STATS: &str = "\
snapshot_time             1637627183.394337 secs.usecs
req_waittime              393905757 samples [usec] 31 17820911 483362372205 28824671200467887
req_active                393906200 samples [reqs] 1 8243 1164349055 731470318467
read_bytes                299768458 samples [bytes] 0 4194304 6895163247966 -3193831078871982772
ost_setattr               8288718 samples [usec] 37 6862915 2072463399 268309705137179
obd_ping                  1108 samples [usec] 15 72 47014 2156132
";

    /// The sample after 100 more requests of `wait_us` each, with `active` in flight.
    fn after(wait_us: u64, active: u64) -> String {
        let waits = format!("393905857 samples [usec] 31 17820911 {}", 483_362_372_205 + 100 * wait_us);
        let actives = format!("393906300 samples [reqs] 1 8243 {}", 1_164_349_055 + 100 * active);
        STATS
            .replace("393905757 samples [usec] 31 17820911 483362372205", &waits)
            .replace("393906200 samples [reqs] 1 8243 1164349055", &actives)
    }

    #[test]
    fn slow_object_servers_are_of_the_storage() {
        let found = between(OSC, (STATS, &after(80_000, 1)), findings);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Storage, Severity::Warning));
        assert_eq!(
            found[0].seen,
            "lustre-OST0000-osc-ffff88000a8e3400: 80.0 ms until the reply, mean of 100; 1 of 1 target so slow"
        );
    }

    #[test]
    fn slow_metadata_servers_may_wait_for_locks() {
        let found = between(MDC, (STATS, &after(900_000, 1)), findings);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Locks, Severity::Critical));
    }

    #[test]
    fn fast_servers_and_cleared_counters_are_nothing() {
        for later in [STATS.to_owned(), after(800, 2), String::new(), STATS.replace("39390", "1")] {
            assert!(between(OSC, (STATS, &later), findings).is_empty(), "{later}");
        }
    }

    #[test]
    fn a_full_pipe_is_worth_knowing() {
        let files = [(OSC, STATS, &*after(900, 8)), (OSC_MAX, "8\n", "8\n")];
        let found = between_all(&files, findings);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Configuration, Severity::Info));
        assert!(
            found[0].seen.contains("8.0 on average, of at most 8; so with 1 of 1 target"),
            "{}",
            found[0].seen
        );
        assert!(found[0].next.contains("osc.*.max_rpcs_in_flight=16"));
    }

    // As lprocfs_import_seq_show of lustre:lustre/obdclass/lprocfs_status.c prints it.
    fn import(state: &str, flags: &str, timeouts: u32) -> String {
        format!(
            "import:\n    name: lustre-OST0000-osc-ffff88000a8e3400\n    target: lustre-OST0000_UUID\n    state: {state}\n    \
             connect_flags: [write_grant, server_lock]\n    import_flags: [{flags}]\n    connection:\n       \
             failover_nids: [10.0.0.1@tcp]\n       current_connection: 10.0.0.1@tcp\n       connection_attempts: 1\n    \
             rpcs:\n       inflight: 7\n       unregistering: 0\n       timeouts: {timeouts}\n       avg_waittime: 1227 \
             usec\n"
        )
    }

    #[test]
    fn a_lost_connection_is_critical() {
        let flags = "replayable, pingable";
        let found =
            between(OSC_IMPORT, (&import("DISCONN", flags, 3), &import("CONNECTING", flags, 3)), findings);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].layer, found[0].severity), (Layer::Network, Severity::Critical));
        assert_eq!(
            found[0].seen,
            "1 of 1 connection; lustre-OST0000-osc-ffff88000a8e3400 is CONNECTING now, DISCONN 5 s before, 7 requests \
             waiting"
        );
    }

    #[test]
    fn good_and_deactivated_connections_are_nothing() {
        for (earlier, later) in [
            (import("FULL", "pingable", 3), import("FULL", "pingable", 3)),
            (import("FULL", "pingable", 3), import("IDLE", "pingable", 3)),
            (import("DISCONN", "pingable", 3), import("FULL", "pingable", 3)),
            (import("DISCONN", "invalid, deactive", 3), import("DISCONN", "invalid, deactive", 3)),
        ] {
            assert!(between(OSC_IMPORT, (&earlier, &later), findings).is_empty(), "{later}");
        }
    }

    #[test]
    fn timeouts_are_of_the_network() {
        let found =
            between(OSC_IMPORT, (&import("FULL", "pingable", 3), &import("FULL", "pingable", 5)), findings);
        assert_eq!((found.len(), found[0].severity), (1, Severity::Warning));
        assert!(
            found[0].seen.starts_with("2 timeouts in 5 s, 2 of them at lustre-OST0000"),
            "{}",
            found[0].seen
        );
    }

    // After a fixture for ldlm.services.ldlm_cbd.stats found in public code.
    fn callbacks(count: u64) -> String {
        format!(
            "snapshot_time             1710759783.270541554 secs.nsecs\n\
             req_waittime              1756931 samples [usecs] 1 33890 255153949 6336801119\n\
             ldlm_bl_callback          {count} samples [usecs] 3 60211 79210322 5211903311\n\
             ldlm_cp_callback          421007 samples [usecs] 3 60211 79210322 5211903311\n"
        )
    }

    #[test]
    fn locks_that_others_want_are_told_by_their_rate() {
        for (count, severity) in
            [(1_236_110, None), (1_236_510, Some(Severity::Info)), (1_246_010, Some(Severity::Warning))]
        {
            let found = between(CBD, (&callbacks(1_236_010), &callbacks(count)), findings);
            assert_eq!(found.first().map(|finding| finding.severity), severity, "{count}");
        }
    }

    #[test]
    fn locks_that_do_not_live_long_are_of_the_cache() {
        let name = "lustre-MDT0000-mdc-ffff88000a8e3400";
        let pool = format!("/sys/kernel/debug/lustre/ldlm/namespaces/{name}/pool/stats");
        let count = format!("/sys/fs/lustre/ldlm/namespaces/{name}/lock_count");
        // Counters as ldlm_pool_debugfs_init of lustre:lustre/ldlm/ldlm_pool.c names them.
        let stats = |cancelled: u64| {
            format!(
                "grant                     9000 samples [locks] 1 1 9000\n\
                 cancel                    {cancelled} samples [locks] 1 1 {cancelled}\n"
            )
        };
        let found = |locks: &str| {
            let files = [(&*pool, &*stats(1000), &*stats(3000)), (&*count, locks, locks)];
            between_all(&files, findings)
        };
        let short = found("800\n");
        assert_eq!((short.len(), short[0].layer, short[0].severity), (1, Layer::Cache, Severity::Info));
        assert!(
            short[0].seen.contains("400 locks/s given up of 800 locks, so they live for 2.00 s"),
            "{}",
            short[0].seen
        );
        assert!(found("80000\n").is_empty());
    }

    #[test]
    fn slow_calls_are_worth_knowing() {
        // As in a newer fixture: units in the plural, and times for operations.
        let stats = |sum: u64, count: u64| {
            format!("open                      {count} samples [usecs] 5 65525205 {sum} 34619\n")
        };
        let path = "/sys/kernel/debug/lustre/llite/lustre-ffff88000a8e3400/stats";
        let found = between(path, (&stats(1000, 10), &stats(2_001_000, 30)), findings);
        assert_eq!((found.len(), found[0].severity), (1, Severity::Info));
        assert_eq!(found[0].seen, "open: 100 ms, mean of 20");
    }

    #[test]
    fn the_source_names_the_file_system() {
        for (source, name) in [
            ("10.0.0.1@tcp:/lustre", Some("lustre")),
            ("10.0.0.1@tcp:10.0.0.2@tcp,10.0.1.2@o2ib:/scratch/home/me", Some("scratch")),
            ("10.0.0.1@tcp:/", None),
            ("/dev/sda1", None),
            ("", None),
        ] {
            assert_eq!(file_system_name(source), name, "{source}");
        }
    }

    #[test]
    fn garbage_tells_nothing() {
        endure(OSC, &after(80_000, 9), findings);
        endure(OSC_IMPORT, &import("FULL", "pingable", 3), findings);
        endure(CBD, &callbacks(1_236_010), findings);
        endure("stats", STATS, findings);
        endure("/pool/stats", STATS, findings);
    }
}
