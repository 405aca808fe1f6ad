//! Limits of an account.

use types::{Timespec, codec_struct};

use crate::volume::UsageRecord;

/// Limits of an account, on bytes and on inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// On bytes stored.
    pub bytes: Limit,
    /// On inodes.
    pub inodes: Limit,
}

codec_struct!(Limits { bytes, inodes });

/// A limit on one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Never exceeded but by root; 0 for none.
    pub hard: u64,
    /// Exceeded for a time of grace at most; 0 for none.
    pub soft: u64,
    /// Time of grace in seconds.
    pub grace_secs: u64,
    /// Since when it is exceeded, in seconds since 1970; 0 while it is not.
    pub exceeded_since: u64,
}

codec_struct!(Limit { hard, soft, grace_secs, exceeded_since });

impl Limits {
    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        self.bytes.is_none() && self.inodes.is_none()
    }

    /// These limits with what `usage` makes of their times of grace at `now`.
    #[must_use]
    pub fn judged(self, usage: UsageRecord, now: Timespec) -> Self {
        let now = u64::try_from(now.secs).unwrap_or(0).max(1);
        Self { bytes: self.bytes.judged(usage.bytes, now), inodes: self.inodes.judged(usage.inodes, now) }
    }
}

impl Limit {
    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        self.hard == 0 && self.soft == 0
    }

    fn judged(self, used: u64, now: u64) -> Self {
        let exceeded_since = match (self.soft != 0 && used > self.soft, self.exceeded_since) {
            (false, _) => 0,
            (true, 0) => now,
            (true, since) => since,
        };
        Self { exceeded_since, ..self }
    }

    /// How much there may be in all at `now`: after the time of grace no more than the soft limit.
    pub fn allowed(&self, now: Timespec) -> u64 {
        let hard = if self.hard == 0 { u64::MAX } else { self.hard };
        let now = u64::try_from(now.secs).unwrap_or(0);
        let is_over = self.exceeded_since != 0 && now >= self.exceeded_since.saturating_add(self.grace_secs);
        if is_over { self.soft.min(hard) } else { hard }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timespec {
        Timespec { secs, nanos: 0 }
    }

    #[test]
    fn a_soft_limit_binds_when_its_grace_is_over() {
        let limit = Limit { hard: 100, soft: 50, grace_secs: 10, exceeded_since: 0 };
        let usage = |bytes| UsageRecord { bytes, inodes: 0 };
        let limits = Limits { bytes: limit, inodes: Limit::default() };
        assert_eq!(limits.judged(usage(50), at(1000)).bytes.exceeded_since, 0);
        let above = limits.judged(usage(51), at(1000)).judged(usage(60), at(1005));
        assert_eq!(above.bytes.exceeded_since, 1000);
        assert_eq!((above.bytes.allowed(at(1009)), above.bytes.allowed(at(1010))), (100, 50));
        assert_eq!(above.judged(usage(50), at(2000)).bytes.allowed(at(2000)), 100);
        assert_eq!(above.inodes.allowed(at(5000)), u64::MAX);
    }
}
