//! What a file system's own counters tell of its locks, where who runs this can ask for them.

use crate::doctor::finding::{Finding, Layer, Severity};

/// Counters that only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Inside {
    /// Locks, and what was known under them, that this node had to give up because of other nodes.
    pub revoked: u64,
    /// Seconds that requests waited for locks, together.
    pub waited_seconds: f64,
    /// Locks, and what was cached under them, that were given up for lack of memory.
    pub dropped: u64,
    /// Changes that were lost because the node was cut off.
    pub lost: u64,
    /// Times that the node could not renew its lease in time.
    pub lapsed: u64,
}

impl Inside {
    pub(crate) fn since(self, earlier: Self) -> Self {
        let of = |later: u64, earlier: u64| later.saturating_sub(earlier);
        Self {
            revoked: of(self.revoked, earlier.revoked),
            waited_seconds: (self.waited_seconds - earlier.waited_seconds).max(0.0),
            dropped: of(self.dropped, earlier.dropped),
            lost: of(self.lost, earlier.lost),
            lapsed: of(self.lapsed, earlier.lapsed),
        }
    }

    /// Of differences, and a time in which nothing was measured.
    pub(crate) fn findings(self, seconds: f64) -> Vec<Finding> {
        let (revoked, waited) = (self.revoked as f64 / seconds, self.waited_seconds / seconds);
        let locks = Finding {
            layer: Layer::Locks,
            severity: match () {
                () if waited >= WAITED_MUCH || revoked >= REVOKED_MUCH => Severity::Critical,
                () if waited >= WAITED || revoked >= REVOKED => Severity::Warning,
                () => Severity::Info,
            },
            what: "locks that other nodes want".to_owned(),
            seen: format!(
                "{revoked:.0} given up in a second, requests waited {:.0} % of the time",
                waited * 100.0
            ),
            expected: format!("less than {REVOKED:.0} in a second, less than {:.0} %", WAITED * 100.0),
            why: "nodes that change the same directory or file by turns hand its locks to and fro".to_owned(),
            next: "find who else works there, and give each node a directory of its own".to_owned(),
        };
        let mut found = vec![locks];
        if self.lost + self.lapsed > 0 {
            found.push(Finding {
                layer: Layer::Network,
                severity: Severity::Critical,
                what: "the node was cut off".to_owned(),
                seen: format!("its lease lapsed {} times, {} changes were lost", self.lapsed, self.lost),
                expected: "never".to_owned(),
                why: "other nodes, or what they share, could not be reached in time".to_owned(),
                next: "the node's log says since when; then the links between the nodes".to_owned(),
            });
        }
        found
    }
}

/// In a second: a node alone has none, one that shares now and then has few.
const REVOKED: f64 = 30.0;
const REVOKED_MUCH: f64 = 200.0;
/// Of the time, all requests together.
const WAITED: f64 = 0.2;
const WAITED_MUCH: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fights_are_told_from_sharing_now_and_then() {
        let severity = |revoked, waited_seconds| {
            Inside { revoked, waited_seconds, ..Inside::default() }.findings(2.0)[0].severity
        };
        assert_eq!((severity(0, 0.0), severity(20, 0.1)), (Severity::Info, Severity::Info));
        assert_eq!((severity(100, 0.1), severity(0, 0.5)), (Severity::Warning, Severity::Warning));
        assert_eq!((severity(1000, 0.0), severity(0, 1.5)), (Severity::Critical, Severity::Critical));
        assert_eq!(Inside { lapsed: 1, ..Inside::default() }.findings(1.0).len(), 2);
    }
}
