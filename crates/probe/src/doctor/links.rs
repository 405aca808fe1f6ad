//! Links: what they lose, and what had to be sent again.

use crate::doctor::finding::{Finding, Layer, Severity};

/// Packets of one link since it was there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub name: String,
    received: u64,
    received_badly: u64,
    received_and_dropped: u64,
    sent: u64,
    sent_badly: u64,
    sent_and_dropped: u64,
}

impl Link {
    /// Of `/proc/net/dev`: `NAME: BYTES PACKETS ERRS DROP FIFO FRAME COMPRESSED MULTICAST`, and the same of what was sent.
    pub fn parse_all(text: &str) -> Vec<Self> {
        let link = |line: &str| {
            let (name, counts) = line.split_once(':')?;
            let numbers: Vec<u64> = counts.split_whitespace().map_while(|word| word.parse().ok()).collect();
            let [_, received, bad, dropped, _, _, _, _, _, sent, sent_bad, sent_dropped, ..] = numbers[..]
            else {
                return None;
            };
            Some(Self {
                name: name.trim().to_owned(),
                received,
                received_badly: bad,
                received_and_dropped: dropped,
                sent,
                sent_badly: sent_bad,
                sent_and_dropped: sent_dropped,
            })
        };
        text.lines().filter_map(link).filter(|link| link.name != "lo").collect()
    }

    fn since(&self, earlier: &Self) -> Self {
        let of = |later: u64, earlier: u64| later.saturating_sub(earlier);
        Self {
            name: self.name.clone(),
            received: of(self.received, earlier.received),
            received_badly: of(self.received_badly, earlier.received_badly),
            received_and_dropped: of(self.received_and_dropped, earlier.received_and_dropped),
            sent: of(self.sent, earlier.sent),
            sent_badly: of(self.sent_badly, earlier.sent_badly),
            sent_and_dropped: of(self.sent_and_dropped, earlier.sent_and_dropped),
        }
    }

    fn share(bad: u64, of: u64) -> f64 {
        bad as f64 / (of + bad).max(1) as f64
    }

    /// Whether anything ever went over it.
    pub fn is_silent(&self) -> bool {
        self.received + self.sent + self.received_badly + self.sent_badly == 0
    }

    /// The worse direction.
    fn bad(&self) -> f64 {
        Self::share(self.received_badly, self.received).max(Self::share(self.sent_badly, self.sent))
    }

    fn dropped(&self) -> f64 {
        Self::share(self.received_and_dropped, self.received)
            .max(Self::share(self.sent_and_dropped, self.sent))
    }

    /// What the whole life and the last moments tell. What is dropped counts only where something had to be sent again: the kernel
    /// also counts frames of protocols that nobody here speaks.
    pub fn finding(&self, earlier: &Self, traffic: Traffic) -> Finding {
        let recent = self.since(earlier);
        let grows = recent.received_badly + recent.sent_badly > 0;
        let dropped = recent.received_and_dropped + recent.sent_and_dropped;
        let is_bad = self.bad() >= BAD_EVER || grows;
        let loses = dropped >= DROPPED_LEAST && recent.dropped() >= BAD_NOW && traffic == Traffic::SentAgain;
        let severity = match () {
            () if traffic == Traffic::Elsewhere => Severity::Info,
            () if grows && recent.bad() >= BAD_NOW => Severity::Critical,
            () if is_bad || loses => Severity::Warning,
            () => Severity::Info,
        };
        Finding {
            layer: Layer::Network,
            severity,
            what: format!("link {}", self.name),
            seen: format!(
                "received badly {:.2} %, sent badly {:.2} %, dropped {:.2} % of {} packets; now {}, {} dropped, of {}",
                Self::share(self.received_badly, self.received) * 100.0,
                Self::share(self.sent_badly, self.sent) * 100.0,
                self.dropped() * 100.0,
                self.received + self.sent,
                recent.received_badly + recent.sent_badly,
                dropped,
                recent.received + recent.sent,
            ),
            expected: format!("less than {:.1} % since it was there, and none now", BAD_EVER * 100.0),
            why: match severity {
                Severity::Warning | Severity::Critical => {
                    "each lost packet costs a wait until it is sent again"
                }
                Severity::Info if is_bad => "the link is bad, but this file system does not go over it",
                Severity::Info if dropped > 0 => {
                    "few, or not missed: frames of protocols that nobody here speaks count as dropped too"
                }
                Severity::Info => "nothing is lost on it",
            }
            .to_owned(),
            next: format!("ethtool -S {}; cable, transceiver, duplex, switch port", self.name),
        }
    }
}

/// What a link has to do with the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// The file system does not go over it.
    Elsewhere,
    /// It does, and TCP sends hardly anything again.
    Arrives,
    /// It does, and TCP sends more again than it should.
    SentAgain,
}

/// What TCP has sent, of the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tcp {
    sent: u64,
    again: u64,
}

impl Tcp {
    /// Of `/proc/net/snmp`: two lines that begin with `Tcp:`, names and numbers.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let (names, numbers) = (lines.next()?, lines.next()?);
        let of = |wanted: &str| {
            let at = names.split(' ').position(|name| name == wanted)?;
            numbers.split(' ').nth(at)?.parse().ok()
        };
        Some(Self { sent: of("OutSegs")?, again: of("RetransSegs")? })
    }

    fn since(self, earlier: Self) -> Self {
        Self { sent: self.sent.saturating_sub(earlier.sent), again: self.again.saturating_sub(earlier.again) }
    }

    /// Whether more had to be sent again meanwhile than on a network that is well.
    pub fn resends_since(self, earlier: Self) -> bool {
        let Self { sent, again } = self.since(earlier);
        again >= AGAIN_LEAST && again as f64 / sent.max(1) as f64 >= AGAIN
    }

    /// `is_used`: the file system needs the network.
    pub fn finding(self, earlier: Self, is_used: bool) -> Finding {
        let Self { sent, again } = self.since(earlier);
        let is_bad = self.resends_since(earlier);
        Finding {
            layer: Layer::Network,
            severity: if is_bad && is_used { Severity::Warning } else { Severity::Info },
            what: "TCP".to_owned(),
            seen: format!("{again} of {sent} segments were sent again"),
            expected: format!("less than {:.1} %", AGAIN * 100.0),
            why: if is_bad {
                "packets are lost somewhere between"
            } else {
                "hardly anything is lost on the way"
            }
            .to_owned(),
            next: "ss -ti shows which connections; then each link on the way".to_owned(),
        }
    }
}

/// Of packets, since the link was there: cables and ports that are well have none.
const BAD_EVER: f64 = 0.001;
/// Of packets, now.
const BAD_NOW: f64 = 0.01;
/// Of packets: one or two mean nothing, whatever share of a quiet moment they are.
const DROPPED_LEAST: u64 = 5;
/// Of segments: the share that interconnects are told to be looked at from.
const AGAIN: f64 = 0.001;
/// Fewer happen on any network.
const AGAIN_LEAST: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Inter-|   Receive                                                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
        lo:  900 9 9 9 0 0 0 0 900 9 0 0 0 0 0 0\n  \
        eth0: 123456 7000 1000 3 0 0 0 0 654321 9000 0 0 0 0 0 0\n  \
        eth1: 1 10000 0 0 0 0 0 0 1 10000 0 0 0 0 0 0\n";

    /// Goal: a tenth of what comes in is bad, and it is remarked on, as an administrator once did not.
    #[test]
    fn a_link_that_receives_badly_is_named() {
        let links = Link::parse_all(TEXT);
        assert_eq!(links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>(), ["eth0", "eth1"]);
        let found = links[0].finding(&links[0], Traffic::Arrives);
        assert_eq!((found.severity, found.layer), (Severity::Warning, Layer::Network));
        assert!(found.seen.contains("received badly 12.50 %"), "{}", found.seen);
        assert_eq!(links[0].finding(&links[0], Traffic::Elsewhere).severity, Severity::Info);
        assert_eq!(links[1].finding(&links[1], Traffic::Arrives).severity, Severity::Info);
        let worse = Link { received: 7100, received_badly: 1050, ..links[0].clone() };
        assert_eq!(worse.finding(&links[0], Traffic::Arrives).severity, Severity::Critical);
    }

    /// Goal: what nobody misses is no alarm, and an alarm says what it is about. Method: one frame of a strange protocol in a
    /// quiet moment; many drops, with and without segments that were sent again.
    #[test]
    fn drops_count_where_something_had_to_be_sent_again() {
        let links = Link::parse_all(TEXT);
        let after = |received: u64, dropped: u64| Link {
            received: links[1].received + received,
            received_and_dropped: links[1].received_and_dropped + dropped,
            ..links[1].clone()
        };
        for (received, dropped, traffic, severity) in [
            (20, 1, Traffic::Arrives, Severity::Info),
            (20, 1, Traffic::SentAgain, Severity::Info),
            (1000, 50, Traffic::Elsewhere, Severity::Info),
            (1000, 50, Traffic::Arrives, Severity::Info),
            (1000, 50, Traffic::SentAgain, Severity::Warning),
        ] {
            let found = after(received, dropped).finding(&links[1], traffic);
            assert_eq!(found.severity, severity, "{received} {dropped} {traffic:?}");
            assert!(!found.why.contains("nothing is lost"), "{found:?}");
        }
        assert!(links[1].finding(&links[1], Traffic::Arrives).why.contains("nothing is lost"));
    }

    #[test]
    fn segments_sent_again_are_counted() {
        let text = |sent: u64, again: u64| {
            format!(
                "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm RtoMin OutSegs RetransSegs InErrs\nTcp: 1 200 {sent} {again} 0\n"
            )
        };
        let [first, later] = [text(100, 2), text(1100, 22)].map(|text| Tcp::parse(&text).unwrap());
        assert_eq!(later.finding(first, true).severity, Severity::Warning);
        assert_eq!(later.finding(first, false).severity, Severity::Info);
        assert!(later.resends_since(first) && !first.resends_since(first));
        assert_eq!(first.finding(first, true).severity, Severity::Info);
        assert!(Tcp::parse("Tcp: OutSegs\n").is_none() && Tcp::parse("").is_none());
    }
}
