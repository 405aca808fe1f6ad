//! Disks: how busy, how long an I/O takes, how many wait.

use crate::doctor::finding::{Finding, Layer, Severity};

/// Counters of one device since it was there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Disk {
    pub name: String,
    ios: u64,
    sectors: u64,
    /// Of all I/Os together, in milliseconds.
    waited_ms: u64,
    in_flight: u64,
    busy_ms: u64,
    queued_ms: u64,
}

/// What it did meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DiskUse {
    pub name: String,
    pub ios: u64,
    pub mb_per_second: f64,
    /// Share of the time in which it had something to do.
    pub busy: f64,
    pub await_ms: f64,
    /// I/Os that were on their way, in the mean.
    pub queue: f64,
    /// It had I/O at both ends and nothing came back.
    pub hangs: bool,
}

impl Disk {
    /// Of `/proc/diskstats`: `MAJOR MINOR NAME READS MERGED SECTORS MS WRITES MERGED SECTORS MS IN_FLIGHT MS WEIGHTED_MS ...`.
    pub fn parse(text: &str, name: &str) -> Option<Self> {
        let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(name))?;
        let numbers: Vec<u64> = line.split_whitespace().skip(3).map_while(|word| word.parse().ok()).collect();
        let [reads, _, read, read_ms, writes, _, written, write_ms, in_flight, busy_ms, queued_ms, ..] =
            numbers[..]
        else {
            return None;
        };
        Some(Self {
            name: name.to_owned(),
            ios: reads + writes,
            sectors: read + written,
            waited_ms: read_ms + write_ms,
            in_flight,
            busy_ms,
            queued_ms,
        })
    }

    pub fn since(&self, earlier: &Self, seconds: f64) -> DiskUse {
        let ios = self.ios.saturating_sub(earlier.ios);
        let waited_ms = self.waited_ms.saturating_sub(earlier.waited_ms);
        DiskUse {
            name: self.name.clone(),
            ios,
            mb_per_second: self.sectors.saturating_sub(earlier.sectors) as f64 * SECTOR / 1e6 / seconds,
            busy: (self.busy_ms.saturating_sub(earlier.busy_ms) as f64 / 1e3 / seconds).min(1.0),
            await_ms: if ios == 0 { 0.0 } else { waited_ms as f64 / ios as f64 },
            queue: self.queued_ms.saturating_sub(earlier.queued_ms) as f64 / 1e3 / seconds,
            hangs: ios == 0 && self.in_flight > 0 && earlier.in_flight > 0,
        }
    }
}

impl DiskUse {
    /// Of a time in which nothing was measured: what others do.
    pub fn finding(&self) -> Finding {
        let Self { name, ios, busy, await_ms, queue, mb_per_second, hangs } = self;
        let severity = match () {
            () if *hangs => Severity::Critical,
            () if *busy >= BUSY && *await_ms >= SLOW_MS => Severity::Critical,
            () if *busy >= BUSY => Severity::Warning,
            () => Severity::Info,
        };
        let why = match severity {
            Severity::Info => "it has time left",
            _ if *hangs => "I/O went to it and none came back",
            _ => "others keep it busy: whatever is asked of it now has to wait",
        };
        Finding {
            layer: Layer::Storage,
            severity,
            what: format!("disk {name}"),
            seen: format!(
                "{:.0} % busy, {ios} I/Os of {await_ms:.1} ms, {queue:.1} on their way, {mb_per_second:.1} MB/s",
                busy * 100.0
            ),
            expected: format!("less than {:.0} % busy, I/Os of less than {SLOW_MS:.0} ms", BUSY * 100.0),
            why: why.to_owned(),
            next: "see who does it: pidstat -d 1, iotop; then the disk itself: dmesg, smartctl -a".to_owned(),
        }
    }
}

/// The unit of the kernel's counters, whatever the device's.
const SECTOR: f64 = 512.0;
/// A disk that is busier has no time for others.
const BUSY: f64 = 0.9;
/// Longer than a turn of a slow disk and a seek.
const SLOW_MS: f64 = 30.0;

#[cfg(test)]
mod tests {
    use super::*;

    // After Documentation/admin-guide/iostats.rst and a machine of 6.18.
    const FIRST: &str = "   7       0 loop0 32701 577 794750 20232 567309 205925 17693270 150750 0 139628 263980 0 0 0 0 267875 92997\n \
                         8       0 sda 100 0 800 50 100 0 800 150 1 1000 2000\n";
    const LATER: &str = "   8       0 sda 150 0 1200 1050 150 0 1200 1150 4 1980 6000\n";

    #[test]
    fn what_a_disk_did_is_the_difference() {
        let (first, later) = (Disk::parse(FIRST, "sda").unwrap(), Disk::parse(LATER, "sda").unwrap());
        let used = later.since(&first, 1.0);
        assert_eq!((used.ios, used.await_ms, used.busy, used.queue), (100, 20.0, 0.98, 4.0));
        assert_eq!(used.finding().severity, Severity::Warning);
        assert_eq!(DiskUse { await_ms: 40.0, ..used.clone() }.finding().severity, Severity::Critical);
        assert_eq!(DiskUse { busy: 0.2, ..used }.finding().severity, Severity::Info);
        assert!(Disk::parse(FIRST, "loop0").is_some());
    }

    #[test]
    fn a_disk_from_which_nothing_comes_back_hangs() {
        let first = Disk::parse(FIRST, "sda").unwrap();
        let used = first.since(&first, 2.0);
        assert!(used.hangs && used.finding().severity == Severity::Critical);
    }

    #[test]
    fn what_is_no_line_of_it_is_nothing() {
        for text in ["", "8 0 sda", "8 0 sda 1 2 x 4 5 6 7 8 9 10 11"] {
            assert_eq!(Disk::parse(text, "sda"), None);
        }
    }
}
