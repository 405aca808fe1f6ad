//! Requests that wait, and what for.

use meta::{FsError, Inode, OpReply};
use obs::OperationKind;
use types::{Account, BatchSeq, Credit, Ino, Micros, OpSeq, ResourceId};
use wire::{ByteLock, FetchWhat, Want};

use crate::request::{Attr, Reply, Request, RequestId, Reread, Shield};

/// What a parked request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitKey {
    /// The master's answer to an acquire.
    Want(Want),
    /// The master's answer to a fetch.
    Fetch(FetchWhat),
    /// The outcome of a shipped operation.
    Ship(OpSeq),
    /// The end of a release or revoke that is being carried out.
    Released(ResourceId),
    /// The end of a shipped operation that froze the directory.
    Thawed(Ino),
    /// The next range of a directory.
    Loaded(Ino),
    /// Room in the log.
    LogSpace,
    /// The end of a flush of content.
    Flush(u64),
    /// The end of a job that has the kernel write back what was stored through mappings.
    WrittenBack(u64),
    /// The end of a job that takes pages of the file back.
    PagesGone(Ino),
    /// The kernel's being done with the removal of names of an inode that has others.
    Unlinked(Ino),
    /// News of durable batches.
    Durable,
    /// Inode numbers or segments.
    Numbers,
    /// The master's answer to who asked for credit of the account.
    Credit(Account),
    /// The master's answer to a lock request.
    Lock(u64),
    /// Being a member.
    Member,
}

/// What can be told of a request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Its number.
    pub request: RequestId,
    /// What was asked.
    pub operation: OperationKind,
    /// Of which inode, or in which directory.
    pub subject: Option<Ino>,
    /// What it waits for: a [`WaitKey`].
    pub waits_for: String,
    /// Whether that is a lock that a program has.
    pub is_lock: bool,
    /// When it came.
    pub since: Micros,
}

/// A request that waits.
#[derive(Debug)]
pub struct Parked {
    /// The request.
    pub request: Request,
    /// How far it came.
    pub progress: Progress,
    /// What it waits for.
    pub key: WaitKey,
}

/// What a request keeps from one try to the next.
#[derive(Debug)]
pub struct Progress {
    /// When it came.
    pub since: Micros,
    /// When it came, among all that was asked for.
    pub number: u64,
    /// What the driver calls it.
    pub id: RequestId,
    /// The number given to the inode it makes.
    pub ino: Option<Ino>,
    /// Its shipped operation.
    pub ship: Option<Ship>,
    /// The answer, once the operation is done and only durability is awaited.
    pub done: Option<Reply>,
    /// The batch whose durability it awaits.
    pub sync: Option<BatchSeq>,
    /// Whether what it did must be durable before it is answered, whatever the mount's options.
    pub must_sync: bool,
    /// Whether no limits of accounts bind whoever asks.
    pub is_exempt: bool,
    /// The account of which no more is left.
    pub refused_credit: Option<Account>,
    /// Credit that is here for it, while it waits for that of another account.
    pub reserved: Vec<Credit>,
    /// Whether content that has become less was flushed for it, as what it adds needs the room.
    pub shrunk_flushed: bool,
    /// Whether its content is flushed.
    pub flushed: bool,
    /// The files of which that is flushed that it may give a name.
    pub any_flushed: Option<Vec<Ino>>,
    /// How often it asked for content that another node may have changed, for the file that it gives a name.
    pub content_asks: u32,
    /// Whether that is what it waits for: what comes of it decides nothing.
    pub asks_content: bool,
    /// How often it tried to copy.
    pub copy_tries: u32,
    /// Whether what it copies was flushed for it.
    pub copy_flushed: bool,
    /// What it changed behind the kernel's pages, until it is answered.
    pub shield: Option<Shield>,
    /// What the kernel has read since of the pages that it writes.
    pub reread: Reread,
    /// Whether what was stored through mappings before it came is written back.
    pub written_back: bool,
    /// Whether it was counted as a search in a cache.
    pub is_counted: bool,
    /// Whether the write took setuid, setgid or capabilities away.
    pub killed_privileges: bool,
    /// Whether the kernel was told of that.
    pub privileges_taken_back: bool,
    /// Whether it has set the owner that is to be told to others.
    pub owner_set: bool,
    /// Attributes told for this once, and of what.
    pub glimpse: Option<(Ino, Box<Inode>)>,
    /// Why its acquire failed.
    pub error: Option<FsError>,
    /// How often an inode that it found by name was gone when it was asked for.
    pub stale_finds: u32,
    /// The inode that was, and how often in a row it was this one.
    pub stale_ino: (Option<Ino>, u32),
    /// Since when it meets others' files under the name that it makes.
    pub met_since: Option<Micros>,
    /// Whether what it made is not to be found any more.
    pub is_gone: bool,
    /// What is to be given another name, as it was before.
    pub linked: Option<Box<Attr>>,
    /// The directory that the kernel takes for removed when it is done, as far as that was known when it came; or 0.
    pub meant: Ino,
    /// Whether the name of what it made was seen to be another's.
    pub lost_name: bool,
    /// Its lock request and the answer.
    pub lock: Option<(u64, Option<LockAnswer>)>,
    /// How often there were none where the record says that there are.
    pub empty_fetches: u32,
    /// Fetched attributes.
    pub xattrs: Option<Vec<(types::Name, Box<[u8]>)>>,
}

/// A shipped operation of a request.
#[derive(Debug)]
pub enum Ship {
    /// On its way.
    Sent(OpSeq),
    /// Answered.
    Answered(Result<OpReply, FsError>),
}

/// Answer to a lock request.
#[derive(Debug)]
pub struct LockAnswer {
    /// Why not.
    pub error: Option<FsError>,
    /// Of a test: what is in the way.
    pub conflict: Option<ByteLock>,
}

impl Progress {
    /// Whether what was gone is a directory that the request lists, or names something in.
    pub fn has_no_place(&self, request: &Request) -> bool {
        let is_it = |ino: Ino| self.stale_ino.0 == Some(ino);
        match request {
            Request::ReadDir { ino, .. } => is_it(*ino),
            request => request.names().into_iter().any(|(parent, _)| is_it(parent)),
        }
    }

    /// A request that came at `now` and got this number.
    pub fn new(now: Micros, number: u64, id: RequestId) -> Self {
        Self {
            since: now,
            number,
            id,
            ino: None,
            ship: None,
            done: None,
            sync: None,
            must_sync: false,
            is_exempt: false,
            refused_credit: None,
            reserved: Vec::new(),
            shrunk_flushed: false,
            flushed: false,
            any_flushed: None,
            content_asks: 0,
            asks_content: false,
            copy_tries: 0,
            copy_flushed: false,
            shield: None,
            reread: Reread::NONE,
            written_back: false,
            is_counted: false,
            killed_privileges: false,
            privileges_taken_back: false,
            owner_set: false,
            glimpse: None,
            error: None,
            stale_finds: 0,
            stale_ino: (None, 0),
            met_since: None,
            is_gone: false,
            linked: None,
            meant: Ino(0),
            lost_name: false,
            lock: None,
            empty_fetches: 0,
            xattrs: None,
        }
    }

    /// Attributes of this inode that were told for this once.
    pub fn glimpse_of(&self, ino: Ino) -> Option<&Inode> {
        self.glimpse.as_ref().filter(|(of, _)| *of == ino).map(|(_, inode)| &**inode)
    }

    /// Whether `request` asks for something to be made, and the master has made it.
    pub fn has_made(&self, request: &Request) -> bool {
        let makes = matches!(request, Request::Make { .. } | Request::Link { .. });
        makes && matches!(self.ship, Some(Ship::Answered(Ok(_))))
    }
}

/// Outcome of a try.
#[derive(Debug)]
pub enum Step {
    /// Answered.
    Done(Reply),
    /// To be tried again after this.
    Wait(WaitKey),
}

impl From<FsError> for Step {
    fn from(error: FsError) -> Self {
        Self::Done(Reply::Error(error))
    }
}

/// Lets `?` leave a try early with its outcome.
pub type Try<T> = Result<T, Step>;
