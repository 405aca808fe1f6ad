//! What the master says.

use chunk::ExtentMap;
use meta::{Change, Content, Cookie, Dirent, FsError, Inode, InodeAttr, OpReply};
use types::{
    Account, BatchSeq, Credit, Epoch, Ino, LockMode, Name, NodeId, OpSeq, ResourceId, SegmentId, codec_enum,
    codec_struct,
};

use crate::to_master::ByteLock;

/// A message from the master to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromMaster {
    /// The node is a member.
    Welcome {
        /// Its incarnation.
        node: NodeId,
        /// The master's epoch.
        epoch: Epoch,
        /// Length of the lease in microseconds, counted from the sending of what renews it.
        lease_us: u64,
        /// Tokens up to which its share of the master's memory goes.
        token_share: u64,
        /// The volume's key for name hashes, 16 bytes.
        cookie_key: Box<[u8]>,
        /// Last batch of the node that the master has applied.
        batch_applied: BatchSeq,
        /// Whether the node must re-assert its tokens.
        reassert: bool,
        /// Number of the list of accounts, as in `Limited`.
        limits: u64,
        /// Accounts that have limits.
        limited: Vec<Account>,
    },
    /// The node is no member, and why. The connection ends.
    Refused {
        /// For people.
        reason: String,
    },
    /// Keeps the lease: answers everything that asks for no other answer.
    Pong {
        /// Tokens that the node may hold from now on.
        token_share: u64,
    },
    /// Answers [`crate::ToMaster::Acquire`].
    Acquired {
        /// The request.
        request: u64,
        /// Why not, if not.
        error: Option<FsError>,
        /// What is granted: what was asked for and what may follow it.
        grants: Vec<Grant>,
        /// Releases of the node that the master had seen: a grant does not outlive a release that crossed it.
        seen: u64,
        /// Attributes of the wanted inode now, not to be kept: its content is held elsewhere.
        glimpse: Option<Box<Inode>>,
    },
    /// Answers [`crate::ToMaster::More`].
    Entries {
        /// The directory.
        dir: Ino,
        /// The range; nothing in case of an error.
        listing: Listing,
        /// Why it could not be read.
        error: Option<FsError>,
    },
    /// Answers [`crate::ToMaster::Fetch`].
    Fetched {
        /// The request.
        request: u64,
        /// Spilled attributes, if asked for.
        xattrs: Vec<(Name, Box<[u8]>)>,
        /// Pages of extents, if asked for: those that there are, in order.
        pages: Vec<(u64, ExtentMap)>,
        /// Up to which page there are no others. Below what was asked for where one message does not hold them, or one cannot be read.
        pages_to: u64,
        /// Inodes of the volume, if asked for.
        inodes: u64,
        /// Why it could not be read.
        error: Option<FsError>,
    },
    /// Answers [`crate::ToMaster::Ship`].
    Shipped {
        /// The operation.
        seq: OpSeq,
        /// Its outcome.
        result: Result<OpReply, FsError>,
        /// What changed, for the sender's cache.
        changes: Vec<Change>,
        /// Rights that come with it.
        grants: Vec<Grant>,
        /// As in `Acquired`.
        seen: u64,
    },
    /// A shipped operation of this node was applied; readers have yet to acknowledge it. `Shipped` follows.
    Changed {
        /// The operation.
        seq: OpSeq,
        /// What changed, for the sender's cache.
        changes: Vec<Change>,
    },
    /// Asks for rights back.
    Revoke {
        /// What, and the most the node may keep.
        list: Vec<(ResourceId, LockMode)>,
        /// Whether the node may keep those it is using: they are wanted for a walk that has not come there.
        speculative: bool,
    },
    /// Tells a reader of a directory what changed in it. The change is complete when all have acknowledged.
    Forget {
        /// Number to acknowledge.
        seq: u64,
        /// What changed.
        changes: Vec<Change>,
        /// Inodes that lost their last covered name: say if they are open.
        removed: Vec<Ino>,
    },
    /// Asks for size and times of contents held in EX, without revoking them.
    Glimpse {
        /// Number to answer.
        seq: u64,
        /// The inodes.
        list: Vec<Ino>,
    },
    /// Batches up to here survive a power loss.
    Durable {
        /// The last one.
        seq: BatchSeq,
    },
    /// A batch was refused: the sender's membership or ownership is gone.
    BatchRefused {
        /// Which.
        seq: BatchSeq,
        /// For people.
        reason: String,
    },
    /// Answers [`crate::ToMaster::Lock`].
    Locked {
        /// The request.
        request: u64,
        /// Why not, if not.
        error: Option<FsError>,
        /// Of a test: the lock in the way.
        conflict: Option<ByteLock>,
    },
    /// Answers [`crate::ToMaster::Reserve`]: numbers that belong to the node for ever.
    Reserved {
        /// First inode number.
        first_inode: Ino,
        /// How many.
        inodes: u32,
        /// First segment.
        first_segment: u64,
        /// How many.
        segments: u32,
    },
    /// The node's membership has ended.
    Ended {
        /// For people.
        reason: String,
    },
    /// Asks to be told once nothing reads by maps that are older than this message.
    Barrier {
        /// Its number.
        seq: u64,
        /// Segments about to be removed.
        segments: Vec<SegmentId>,
    },
    /// Asks to be told once all closes of a file are told that applications have returned from.
    TellCloses {
        /// Number to answer.
        seq: u64,
        /// The file.
        ino: Ino,
    },
    /// Says which accounts have limits: nothing more is promised on their behalf without credit.
    Limited {
        /// Number to acknowledge.
        version: u64,
        /// All of them.
        accounts: Vec<Account>,
    },
    /// Answers [`crate::ToMaster::AskCredit`].
    Credited {
        /// What is granted, which may be more or less than what was asked for.
        credit: Credit,
        /// Whether this is all that is left, here and on all other nodes.
        refused: bool,
    },
    /// Asks for credit back.
    RecallCredit {
        /// Number to answer.
        seq: u64,
        /// Whose.
        account: Account,
    },
}

impl FromMaster {
    /// Labels of the kinds, in the order of [`FromMaster::kind`].
    pub const KINDS: [&'static str; 21] = [
        "welcome",
        "refused",
        "pong",
        "acquired",
        "entries",
        "fetched",
        "shipped",
        "revoke",
        "forget",
        "glimpse",
        "durable",
        "batch_refused",
        "locked",
        "reserved",
        "ended",
        "changed",
        "barrier",
        "tell_closes",
        "limited",
        "credited",
        "recall_credit",
    ];

    /// Index of the message's kind in [`FromMaster::KINDS`].
    pub const fn kind(&self) -> usize {
        match self {
            Self::Welcome { .. } => 0,
            Self::Refused { .. } => 1,
            Self::Pong { .. } => 2,
            Self::Acquired { .. } => 3,
            Self::Entries { .. } => 4,
            Self::Fetched { .. } => 5,
            Self::Shipped { .. } => 6,
            Self::Revoke { .. } => 7,
            Self::Forget { .. } => 8,
            Self::Glimpse { .. } => 9,
            Self::Durable { .. } => 10,
            Self::BatchRefused { .. } => 11,
            Self::Locked { .. } => 12,
            Self::Reserved { .. } => 13,
            Self::Ended { .. } => 14,
            Self::Changed { .. } => 15,
            Self::Barrier { .. } => 16,
            Self::TellCloses { .. } => 17,
            Self::Limited { .. } => 18,
            Self::Credited { .. } => 19,
            Self::RecallCredit { .. } => 20,
        }
    }
}

codec_enum!(FromMaster, "message from the master", {
    1 => Welcome { node, epoch, lease_us, token_share, cookie_key, batch_applied, reassert, limits, limited },
    2 => Refused { reason },
    3 => Pong { token_share },
    4 => Acquired { request, error, grants, seen, glimpse },
    5 => Entries { dir, listing, error },
    6 => Fetched { request, xattrs, pages, pages_to, inodes, error },
    7 => Shipped { seq, result, changes, grants, seen },
    8 => Revoke { list, speculative },
    9 => Forget { seq, changes, removed },
    10 => Glimpse { seq, list },
    11 => Durable { seq },
    12 => BatchRefused { seq, reason },
    13 => Locked { request, error, conflict },
    14 => Reserved { first_inode, inodes, first_segment, segments },
    15 => Ended { reason },
    16 => Changed { seq, changes },
    17 => Barrier { seq, segments },
    18 => TellCloses { seq, ino },
    19 => Limited { version, accounts },
    20 => Credited { credit, refused },
    21 => RecallCredit { seq, account },
});

/// A right given, and what it is a right on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The resource.
    pub resource: ResourceId,
    /// The mode now held.
    pub mode: LockMode,
    /// Its contents; the holder of a weaker mode has them already.
    pub data: GrantData,
}

codec_struct!(Grant { resource, mode, data });

/// What a grant carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantData {
    /// Nothing: the holder has it.
    Held {},
    /// A directory and its first entries.
    Directory {
        /// Its record.
        inode: Box<Inode>,
        /// The entries.
        listing: Listing,
    },
    /// A directory that the node keeps aside since it gave it back for another's turn, or has let go of by now.
    Since {
        /// Its record.
        inode: Box<Inode>,
        /// What has changed under the directory's right since then, in order.
        changes: Vec<Change>,
    },
    /// The names' half of an uncovered inode.
    Attr {
        /// The record.
        attr: InodeAttr,
    },
    /// The content of an uncovered inode.
    Content {
        /// The record.
        content: Content,
    },
}

codec_enum!(GrantData, "grant data", {
    1 => Held {}, 2 => Directory { inode, listing }, 3 => Attr { attr }, 4 => Content { content },
    5 => Since { inode, changes },
});

/// A range of entries in cookie order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The range starts after this cookie, 0 for the start.
    pub after: u64,
    /// The entries.
    pub entries: Vec<(Cookie, Dirent)>,
    /// Whether the directory ends here.
    pub complete: bool,
}

codec_struct!(Listing { after, entries, complete });
