//! What a node's core asks of its driver.

use chunk::SyncPlan;
use types::{Ino, Micros, Name, Timespec};
use wire::ToMaster;

use crate::request::{Reply, RequestId};

/// Both clocks, read together by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// For leases, hold times and patience: counts suspension.
    pub now: Micros,
    /// For stamps of files.
    pub wall: Timespec,
}

/// What the driver must do. Sends keep their order.
#[derive(Debug)]
pub enum Output {
    /// Send to the master. Lost only with the connection.
    Send(ToMaster),
    /// Answer a request that was not answered at once.
    Reply(RequestId, Reply),
    /// Take back what the kernel has, in this order, and report [`crate::Core::invalidated`].
    Invalidate {
        /// Number to report.
        job: u64,
        /// What.
        list: Vec<Invalidation>,
    },
    /// Call [`crate::Core::gather`] until all is dealt with, with pauses for others, before any sync that is asked for later.
    Gather {
        /// Number to give.
        job: u64,
    },
    /// Make segments durable, report [`crate::Core::synced`], and call [`crate::Core::log_synced`] until all is dealt with.
    Sync {
        /// Number to report.
        job: u64,
        /// What.
        plan: SyncPlan,
    },
    /// Report [`crate::Core::closes_told`] once every close of a file has been told that applications have returned
    /// from.
    TellCloses {
        /// Number to report.
        seq: u64,
        /// The file.
        ino: Ino,
    },
    /// Have the kernel write back what was stored through mappings, which it keeps, and report [`crate::Core::stores_collected`].
    CollectStores,
    /// Nothing more will come: everything is flushed and released.
    Left,
    /// The membership has ended and nothing of it is left: connect anew and say hello.
    Rejoin,
    /// The volume cannot be used; the mount answers errors from here on.
    Lost(String),
}

/// One thing to take back from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// A name, positive or negative: to be asked for again. May block while an operation of this kernel holds
    /// the directory; after a few milliseconds the driver raises the epoch instead.
    Name {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Name,
    },
    /// A name that a file has lost, and that the kernel may be looking up again: it does so without the lock of the directory, and has the name for
    /// as long as the answer says, whatever was taken back before. So the name is dropped, not left to run out; otherwise as
    /// [`Name`](Self::Name).
    Unhash {
        /// Directory.
        parent: Ino,
        /// Name.
        name: Name,
    },
    /// What a rename that is not answered yet names anew. The kernel will keep it with the lifetime of the old name
    /// and holds the directory meanwhile: all names run out instead.
    Renamed {
        /// Directory.
        parent: Ino,
        /// New name.
        name: Name,
    },
    /// Every name: to be asked for again, which tells of the owner. An operation of this kernel is not waited for.
    Names {},
    /// A directory under a name that it does not have any more, with everything below it. Nobody relies on it: it may come
    /// late or not at all where an operation of this kernel holds the parent.
    Drop {
        /// The parent.
        parent: Ino,
        /// Its old name.
        name: Name,
    },
    /// Nothing but to wait until the kernel is done with what it does under the lock of the directory that has, or had, this name,
    /// unless that takes long. The name is asked for again if somebody has it.
    Settled {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Name,
    },
    /// A directory's attributes and listing.
    Directory {
        /// The directory.
        ino: Ino,
    },
    /// Nothing: [`crate::Core::lull_came`] is told, later or never, when the kernel has had the lock of the directory once after all
    /// that stands before. The job does not wait for that.
    Lull {
        /// The directory.
        dir: Ino,
        /// A name that the kernel has of it. It is asked for again.
        name: Name,
        /// To be told.
        number: u16,
    },
    /// Nothing yet: the kernel has a moment to take an answer that it judges by.
    Taken {
        /// The inode.
        ino: Ino,
        /// Its generation, as the kernel was told.
        generation: u32,
    },
    /// An inode's attributes.
    Attr {
        /// The inode.
        ino: Ino,
    },
    /// An inode's attributes and pages. Waits for reads in progress.
    Pages {
        /// The inode.
        ino: Ino,
    },
}

impl Invalidation {
    /// Whether it waits for the same name as another that takes one back.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        self.waits_for().is_some_and(|name| other.waits_for() == Some(name))
    }

    /// Whether it takes nothing back, and gives up after a while.
    pub(crate) fn is_wait(&self) -> bool {
        matches!(self, Self::Settled { .. })
    }

    /// The name for whose directory's lock it waits.
    fn waits_for(&self) -> Option<(Ino, &Name)> {
        match self {
            Self::Name { parent, name } | Self::Unhash { parent, name } | Self::Settled { parent, name } => {
                Some((*parent, name))
            }
            _ => None,
        }
    }

    /// The inode whose attributes or pages it takes back.
    pub(crate) fn recalls(&self) -> Option<Ino> {
        match self {
            Self::Attr { ino } | Self::Directory { ino } | Self::Pages { ino } => Some(*ino),
            Self::Name { .. }
            | Self::Unhash { .. }
            | Self::Renamed { .. }
            | Self::Names {}
            | Self::Drop { .. }
            | Self::Settled { .. }
            | Self::Lull { .. }
            | Self::Taken { .. } => None,
        }
    }
}
