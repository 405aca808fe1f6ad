//! What a node says.

use std::sync::Arc;

use meta::{Change, Content, Op};
use types::{
    BatchSeq, Credit, Epoch, Ino, LockMode, NodeId, OpSeq, ResourceId, SegmentId, Timespec, codec_enum,
    codec_struct,
};

/// A message from a node to the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToMaster {
    /// First message of a connection.
    Hello {
        /// [`crate::PROTOCOL_VERSION`].
        version: u32,
        /// The volume's identity.
        volume: Vec<u64>,
        /// Who the node was under an earlier master, 0 if it is new.
        rejoin: NodeId,
        /// The epoch it knows.
        epoch: Epoch,
        /// Its process.
        pid: u32,
        /// Start time of that process in clock ticks, which tells it from a later one of the same number.
        pid_start: u64,
        /// Host and mount point, for people.
        label: String,
        /// Device of the mount, `major:minor`, which names its control socket.
        device: String,
    },
    /// Keeps the lease.
    Ping {
        /// Microseconds that the oldest call to the store that has not returned has been under way, 0 without one: who is owed
        /// something may have to wait for that.
        store_wait_us: u64,
    },
    /// Asks for what is needed to serve an inode.
    Acquire {
        /// Number of the request, the sender's own.
        request: u64,
        /// What is needed.
        want: Want,
        /// What a walk will need next.
        ahead: Ahead,
    },
    /// Asks for the next range of entries of a directory the sender holds.
    More {
        /// The directory.
        dir: Ino,
        /// After this cookie.
        after: u64,
    },
    /// Asks for a record that grants do not carry. Valid under a token on what covers it.
    Fetch {
        /// Number of the request.
        request: u64,
        /// What to read.
        what: FetchWhat,
    },
    /// Runs an operation at the master.
    Ship {
        /// Its number.
        seq: OpSeq,
        /// Results up to here have arrived and need not be kept.
        acked: OpSeq,
        /// The sender's clock, to stamp.
        now: Timespec,
        /// The operation.
        op: Op,
        /// Credit that goes with it, of accounts that have limits, whatever comes of it.
        spent: Vec<Credit>,
    },
    /// A piece of the write-behind log.
    Batch {
        /// Its number.
        seq: BatchSeq,
        /// Tokens kept on what the batch makes; undeclared is NL.
        kept: Vec<(ResourceId, LockMode)>,
        /// What it changes. The sender keeps them too until they are durable.
        changes: Arc<Vec<Change>>,
        /// Whether [`crate::FromMaster::Durable`] is awaited by somebody.
        sync: bool,
        /// Credit that its changes use, of accounts that have limits; below zero: that they give back.
        spent: Vec<Credit>,
    },
    /// Gives rights up: the answer to a revoke, or by itself.
    Release {
        /// What, and what the sender keeps of it.
        list: Vec<(ResourceId, LockMode)>,
        /// Inodes that the sender has open and that released directories covered until now.
        open: Vec<OpenReport>,
    },
    /// The last handle of an uncovered inode was closed here.
    Closed {
        /// The inode.
        ino: Ino,
    },
    /// Acknowledges a forget.
    Forgotten {
        /// Its number.
        seq: u64,
        /// Inodes of removed names that the sender has open.
        open: Vec<Ino>,
    },
    /// Answers a glimpse.
    Glimpsed {
        /// Number of the glimpse.
        seq: u64,
        /// Content without its body, of those still held.
        contents: Vec<(Ino, Content)>,
    },
    /// Locks or unlocks for an application, or asks.
    Lock {
        /// Number of the request.
        request: u64,
        /// What to do.
        op: LockOp,
    },
    /// Gives up a lock request that waits.
    CancelLock {
        /// Number of the request.
        request: u64,
    },
    /// Asks for more inode numbers and segments.
    Reserve {
        /// Inode numbers wanted, 0 for none.
        inodes: u32,
        /// Segments wanted, 0 for none.
        segments: u32,
    },
    /// Tells a new master what the sender holds.
    Reassert {
        /// One part of it.
        part: ReassertPart,
        /// Whether this was the last part.
        done: bool,
    },
    /// Leaves the volume: everything is flushed and released.
    Bye {},
    /// Gives segments up: no batch after this one names any of them for the first time.
    Disown {
        /// The segments, reserved by the sender.
        segments: Vec<SegmentId>,
    },
    /// Answers a barrier: nothing here reads by older maps any more.
    Barriered {
        /// Its number.
        seq: u64,
    },
    /// Answers [`crate::FromMaster::TellCloses`]: what closes gave up was told before this.
    ClosesTold {
        /// Its number.
        seq: u64,
    },
    /// A part of a batch that is too large for a frame: goes before what follows, and takes effect with it.
    BatchPart {
        /// The batch's number.
        seq: BatchSeq,
        /// As in `Batch`.
        kept: Vec<(ResourceId, LockMode)>,
        /// As in `Batch`.
        changes: Vec<Change>,
    },
    /// Asks for credit of an account that has limits.
    AskCredit {
        /// How much at least.
        want: Credit,
        /// The sender's clock, for times of grace.
        now: Timespec,
        /// Whether it is granted whatever is left: somebody whom limits do not bind has used it.
        force: bool,
    },
    /// Answers [`crate::FromMaster::RecallCredit`].
    CreditKept {
        /// Number of the recall.
        seq: u64,
        /// What the sender has promised already and not told, without what was granted after it was asked.
        kept: Credit,
    },
    /// Acknowledges [`crate::FromMaster::Limited`].
    LimitsTaken {
        /// Its number.
        version: u64,
    },
}

codec_enum!(ToMaster, "message to the master", {
    1 => Hello { version, volume, rejoin, epoch, pid, pid_start, label, device },
    2 => Ping { store_wait_us },
    3 => Acquire { request, want, ahead },
    4 => More { dir, after },
    5 => Fetch { request, what },
    6 => Ship { seq, acked, now, op, spent },
    7 => Batch { seq, kept, changes, sync, spent },
    8 => Release { list, open },
    9 => Closed { ino },
    10 => Forgotten { seq, open },
    11 => Glimpsed { seq, contents },
    12 => Lock { request, op },
    13 => CancelLock { request },
    14 => Reserve { inodes, segments },
    15 => Reassert { part, done },
    16 => Bye {},
    17 => Disown { segments },
    18 => Barriered { seq },
    19 => ClosesTold { seq },
    20 => BatchPart { seq, kept, changes },
    21 => AskCredit { want, now, force },
    22 => CreditKept { seq, kept },
    23 => LimitsTaken { version },
});

impl ToMaster {
    /// Labels of the kinds, in the order of [`ToMaster::kind`].
    pub const KINDS: [&'static str; 23] = [
        "hello",
        "ping",
        "acquire",
        "more",
        "fetch",
        "ship",
        "batch",
        "release",
        "closed",
        "forgotten",
        "glimpsed",
        "lock",
        "cancel_lock",
        "reserve",
        "reassert",
        "bye",
        "disown",
        "barriered",
        "closes_told",
        "batch_part",
        "ask_credit",
        "credit_kept",
        "limits_taken",
    ];

    /// Index of the message's kind in [`ToMaster::KINDS`].
    pub const fn kind(&self) -> usize {
        match self {
            Self::Hello { .. } => 0,
            Self::Ping { .. } => 1,
            Self::Acquire { .. } => 2,
            Self::More { .. } => 3,
            Self::Fetch { .. } => 4,
            Self::Ship { .. } => 5,
            Self::Batch { .. } => 6,
            Self::Release { .. } => 7,
            Self::Closed { .. } => 8,
            Self::Forgotten { .. } => 9,
            Self::Glimpsed { .. } => 10,
            Self::Lock { .. } => 11,
            Self::CancelLock { .. } => 12,
            Self::Reserve { .. } => 13,
            Self::Reassert { .. } => 14,
            Self::Bye {} => 15,
            Self::Disown { .. } => 16,
            Self::Barriered { .. } => 17,
            Self::ClosesTold { .. } => 18,
            Self::BatchPart { .. } => 19,
            Self::AskCredit { .. } => 20,
            Self::CreditKept { .. } => 21,
            Self::LimitsTaken { .. } => 22,
        }
    }
}

/// What a node needs. Requests name the inode; the grant says what covers it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Want {
    /// A directory's entries and attributes, to read.
    Directory {
        /// The directory.
        ino: Ino,
    },
    /// An inode's attributes, to read; the size of a file that another node writes is glimpsed.
    Attr {
        /// The inode.
        ino: Ino,
    },
    /// A file's content, to read.
    Read {
        /// The file.
        ino: Ino,
    },
    /// A file's content, to change. A covered file is split out unless the sender holds its directory in EX.
    Write {
        /// The file.
        ino: Ino,
    },
    /// Marks an uncovered inode open here (OP).
    Open {
        /// The inode.
        ino: Ino,
    },
}

codec_enum!(Want, "want", {
    1 => Directory { ino }, 2 => Attr { ino }, 3 => Read { ino }, 4 => Write { ino }, 5 => Open { ino },
});

impl Want {
    /// The inode wanted.
    pub const fn ino(self) -> Ino {
        match self {
            Self::Directory { ino }
            | Self::Attr { ino }
            | Self::Read { ino }
            | Self::Write { ino }
            | Self::Open { ino } => ino,
        }
    }
}

/// Where a walk is going: what the sender is likely to ask for soon. A hint; nothing depends on it.
///
/// Beside a [`Want::Directory`] these are directories, beside a [`Want::Attr`] files that no directory covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// How many to bring along, these and, of directories, those under them; 0 if there is no walk.
    pub window: u32,
    /// What is without a token here, in the order in which the walk will come to it.
    pub next: Vec<Ino>,
}

codec_struct!(Ahead { window, next });

/// A record that grants do not carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FetchWhat {
    /// Spilled extended attributes.
    Xattrs {
        /// The inode.
        ino: Ino,
    },
    /// Pages of extents.
    ExtentPages {
        /// The inode.
        ino: Ino,
        /// Number of the first.
        from: u64,
        /// Number behind the last.
        to: u64,
    },
    /// Bytes and inodes of the volume.
    Totals {},
}

codec_enum!(FetchWhat, "fetch", { 1 => Xattrs { ino }, 2 => ExtentPages { ino, from, to }, 3 => Totals {} });

/// A child that a node has open as it gives up the directory that covered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenReport {
    /// The inode.
    pub ino: Ino,
}

codec_struct!(OpenReport { ino });

/// Largest offset of a byte-range lock: the end of any file.
pub const BYTE_MAX: u64 = i64::MAX as u64;

/// flock or fcntl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockKind {
    /// flock(2): whole file, owned by the open file.
    Flock,
    /// fcntl(2) record locks and open-file-description locks: byte ranges.
    Posix,
}

codec_enum!(LockKind, "lock kind", { 1 => Flock {}, 2 => Posix {} });

/// Owner of application locks within a node, as its kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner(pub u64);

impl types::Encode for LockOwner {
    fn encode(&self, out: &mut types::Encoder) {
        out.varint(self.0);
    }
}

impl types::Decode for LockOwner {
    fn decode(input: &mut types::Decoder<'_>) -> Result<Self, types::CodecError> {
        input.varint().map(Self)
    }
}

/// A lock on bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteLock {
    /// The file.
    pub ino: Ino,
    /// flock or fcntl.
    pub kind: LockKind,
    /// Who.
    pub owner: LockOwner,
    /// Process, for F_GETLK.
    pub pid: u32,
    /// Exclusive or shared.
    pub exclusive: bool,
    /// First byte.
    pub start: u64,
    /// Byte after the last; at most [`BYTE_MAX`] + 1.
    pub end: u64,
}

codec_struct!(ByteLock { ino, kind, owner, pid, exclusive, start, end });

impl ByteLock {
    /// Both as one, where they are alike and one ends where the other begins; as fcntl(2) has them.
    pub fn joined(self, other: Self) -> Option<Self> {
        let (first, second) = if self.start < other.start { (self, other) } else { (other, self) };
        let is_one =
            first.end == second.start && Self { start: first.start, end: first.end, ..second } == first;
        is_one.then_some(Self { end: second.end, ..first })
    }
}

/// What to do with an application's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOp {
    /// Takes it; waits if told to.
    Set {
        /// The lock.
        lock: ByteLock,
        /// Whether to wait.
        wait: bool,
    },
    /// Gives it up.
    Unset {
        /// The lock; `exclusive` does not matter.
        lock: ByteLock,
    },
    /// Which lock would be in the way.
    Test {
        /// The lock.
        lock: ByteLock,
    },
    /// Gives up everything of an owner on a file.
    Drop {
        /// The file.
        ino: Ino,
        /// flock or fcntl.
        kind: LockKind,
        /// Who.
        owner: LockOwner,
    },
}

codec_enum!(LockOp, "lock operation", {
    1 => Set { lock, wait }, 2 => Unset { lock }, 3 => Test { lock }, 4 => Drop { ino, kind, owner },
});

/// A part of what a node holds, told to a new master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReassertPart {
    /// Tokens.
    Tokens {
        /// Resource and mode.
        list: Vec<(ResourceId, LockMode)>,
    },
    /// Uncovered inodes open here (OP).
    Open {
        /// The inodes.
        list: Vec<Ino>,
    },
    /// Locks of applications.
    Locks {
        /// The locks.
        list: Vec<ByteLock>,
    },
    /// Credit, all of it: what may still be promised, and what was promised and is not committed.
    Credit {
        /// By account.
        list: Vec<Credit>,
        /// What went with operations that have no answer.
        shipped: Vec<(OpSeq, Vec<Credit>)>,
    },
}

codec_enum!(ReassertPart, "part of a re-assertion", {
    1 => Tokens { list }, 2 => Open { list }, 3 => Locks { list }, 4 => Credit { list, shipped },
});
