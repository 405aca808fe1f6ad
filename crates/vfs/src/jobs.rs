//! Invalidations on their way.
//!
//! There may be thousands, and each request asks about them: what it asks is counted, not looked for.

use std::collections::{BTreeMap, BTreeSet};

use types::{Ino, Micros, OpSeq, ResourceId};

/// An invalidation on its way.
#[derive(Debug)]
pub(crate) struct InvalidateJob {
    pub purpose: Purpose,
    /// Inodes whose pages it takes back.
    pub pages: Vec<Ino>,
    pub rounds: u32,
    /// Number when the last round began.
    pub since: u64,
    /// Pages to take back again, and when.
    pub again: Option<(Micros, Vec<Ino>)>,
}

impl InvalidateJob {
    /// Whoever waited for the acknowledgement is gone: another master tells readers again.
    pub fn forget_master(&mut self) {
        if let Purpose::Forget { .. } = self.purpose {
            self.purpose = Purpose::OldForget;
        }
    }
}

/// What an invalidation is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A release.
    Release(ResourceId),
    /// A forget of the master's, to be acknowledged; then these directories are left to who changes them, if nobody uses them.
    Forget { seq: u64, open: Vec<Ino>, left: Vec<Ino> },
    /// A forget of a master that is gone. What the next one tells again is acknowledged after it.
    OldForget,
    /// A shipped rename, to be answered then.
    Renamed(OpSeq),
    /// Attributes of an inode that lost a name are to be told then.
    Unlinked(Ino),
    /// Pages are to be written back.
    WriteBack,
    /// The lease could not be renewed in time.
    Lapse,
    /// The membership has ended: then the node joins anew.
    Anew,
    /// Nobody waits for it.
    Alone,
}

impl Purpose {
    /// Whether it takes back what a change elsewhere has made old.
    pub fn is_forget(&self) -> bool {
        matches!(self, Self::Forget { .. } | Self::OldForget)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    list: BTreeMap<u64, InvalidateJob>,
    /// Those that pause before their next round, by when it begins.
    pausing: BTreeSet<(Micros, u64)>,
    /// Those that empty the kernel's caches; a purpose does not become another's of these.
    emptying: BTreeSet<u64>,
}

impl Jobs {
    pub fn insert(&mut self, number: u64, job: InvalidateJob) {
        if let Some((due, _)) = &job.again {
            self.pausing.insert((*due, number));
        }
        if matches!(job.purpose, Purpose::Lapse | Purpose::Anew) {
            self.emptying.insert(number);
        }
        self.list.insert(number, job);
    }

    pub fn remove(&mut self, number: u64) -> Option<InvalidateJob> {
        let job = self.list.remove(&number)?;
        if let Some((due, _)) = &job.again {
            self.pausing.remove(&(*due, number));
        }
        self.emptying.remove(&number);
        Some(job)
    }

    pub fn is_there(&self, number: u64) -> bool {
        self.list.contains_key(&number)
    }

    pub fn has(&self, number: u64) -> bool {
        self.list.contains_key(&number)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &InvalidateJob)> {
        self.list.iter().map(|(number, job)| (*number, job))
    }

    /// Those after one of them.
    pub fn later(&self, than: u64) -> impl Iterator<Item = &InvalidateJob> {
        self.list.range(than + 1..).map(|(_, job)| job)
    }

    /// All, to be changed in what they are for.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut InvalidateJob> {
        self.list.values_mut()
    }

    /// Takes a job whose pause is over, to begin a round.
    pub fn take_due(&mut self, now: Micros) -> Option<u64> {
        let first = self.pausing.first().copied().filter(|(due, _)| *due <= now)?;
        self.pausing.remove(&first);
        Some(first.1)
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut InvalidateJob> {
        self.list.get_mut(&number)
    }

    /// When the next pause ends.
    pub fn next_round(&self) -> Micros {
        self.pausing.first().map_or(Micros::NEVER, |(due, _)| *due)
    }

    /// Whether the kernel's caches are being emptied.
    pub fn is_emptying(&self) -> bool {
        !self.emptying.is_empty()
    }

    /// Whether they are as the membership has ended.
    pub fn is_ending(&self) -> bool {
        let mut jobs = self.emptying.iter().filter_map(|number| self.list.get(number));
        jobs.any(|job| matches!(job.purpose, Purpose::Anew))
    }
}
