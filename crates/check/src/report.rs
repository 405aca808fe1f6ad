//! What a check found.

use std::ops::Range;

use meta::{Key, KeyText};
use types::Ino;

/// Everything that a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Faults and notes, in the order of the rules; at most [`Report::FAULTS_MAX`].
    pub faults: Vec<Fault>,
    /// Faults beyond.
    pub more_faults: u64,
    /// Notes beyond.
    pub more_notes: u64,
    /// What was looked at.
    pub counts: Counts,
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are what they are called")]
pub struct Counts {
    pub keys: u64,
    pub inodes: u64,
    pub directories: u64,
    pub names: u64,
    pub orphans: u64,
    pub extents: u64,
    pub stored_bytes: u64,
    pub segments: u64,
    pub members: u64,
    /// Bytes of file data read and compared with their sums.
    pub data_bytes_read: u64,
}

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind of thing.
    pub kind: FaultKind,
    /// The record concerned.
    pub key: KeyText,
    /// The inode concerned.
    pub ino: Option<Ino>,
    /// A path of it, as far as its names lead.
    pub path: Option<String>,
    /// What was found, and what should be.
    pub what: String,
    /// Byte ranges of the file that cannot be read, if that is the fault; ascending.
    pub ranges: Vec<Range<u64>>,
}

/// Whether a finding is damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Left behind by a node that died. The next mount sees to it.
    Note,
    /// Records contradict each other or their sums.
    Fault,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $severity:ident;)*) => {
        /// Kinds of findings.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FaultKind {
            $($(#[$doc])* $name,)*
        }

        impl FaultKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Whether it is damage.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }
        }
    };
}

kinds! {
    /// A record cannot be read.
    Damaged = "damaged-record", Fault;
    /// A key of no kind.
    UnknownKey = "unknown-key", Fault;
    /// A record breaks a rule of its own.
    BadRecord = "bad-record", Fault;
    /// A number that was never given out.
    OutOfBounds = "out-of-bounds", Fault;
    /// A record of the volume as a whole is not there.
    NoVolumeRecord = "no-volume-record", Fault;
    /// There is no root directory.
    NoRoot = "no-root", Fault;
    /// An entry in something that is no directory.
    NoDirectory = "no-directory", Fault;
    /// An entry is not where the hash of its name has it.
    WrongCookie = "wrong-cookie", Fault;
    /// Two entries of one directory have one name.
    DuplicateName = "duplicate-name", Fault;
    /// An entry of an inode that is not there.
    NoInode = "no-inode", Fault;
    /// Entry and inode say different things of where the record is.
    WrongPlace = "wrong-place", Fault;
    /// An inode whose record should be in an entry that is not there.
    NoEntry = "no-entry", Fault;
    /// Entry and inode are of different types.
    WrongKind = "wrong-kind", Fault;
    /// The content of an inode is not there.
    NoContent = "no-content", Fault;
    /// Content, pages, attributes or an orphan's record of an inode that has none.
    Stray = "stray-record", Fault;
    /// Pages of extents do not add up to what the content says.
    WrongPages = "wrong-pages", Fault;
    /// Extended attributes are not where the inode says.
    NoXattrs = "no-xattrs", Fault;
    /// The count of links is not that of the names.
    WrongLinks = "wrong-links", Fault;
    /// The parent is not the directory of the name.
    WrongParent = "wrong-parent", Fault;
    /// No path leads from the root to it.
    Unreachable = "unreachable", Fault;
    /// An inode without a name that is not recorded as one.
    NoOrphan = "no-orphan-record", Fault;
    /// Bytes that an extent names are not stored.
    MissingData = "missing-data", Fault;
    /// Stored bytes are not those that were written.
    BadData = "bad-data", Fault;
    /// A segment's own headers do not lead to bytes that files need: they can be read, and not be moved or salvaged.
    DamagedSegment = "damaged-segment", Fault;
    /// A file of the metadata engine is damaged.
    DamagedEngine = "damaged-engine-file", Fault;
    /// A segment's count of live bytes is not what extents name.
    WrongLiveBytes = "wrong-live-bytes", Fault;
    /// The volume's totals are not the sums.
    WrongTotals = "wrong-totals", Fault;
    /// What an account is said to use is not the sum.
    WrongUsage = "wrong-usage", Fault;
    /// An inode without a name that only dead nodes had open.
    DeadOrphan = "dead-orphan", Note;
    /// A segment that no extent names.
    UnusedSegment = "unused-segment", Note;
    /// Stored bytes that no file needs are damaged, or torn by a death.
    DeadDamage = "damaged-dead-bytes", Note;
    /// A node that has not left in order.
    DeadMember = "dead-member", Note;
}

impl Report {
    /// Findings that are kept; more are counted.
    pub const FAULTS_MAX: usize = 100_000;

    /// Whether there is no damage; notes do not count.
    pub fn is_clean(&self) -> bool {
        self.more_faults == 0 && self.faults.iter().all(|fault| fault.kind.severity() == Severity::Note)
    }

    /// Whether a finding of `kind` is there.
    pub fn has(&self, kind: FaultKind) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind)
    }

    pub(crate) fn add(&mut self, kind: FaultKind, key: Key, ino: Option<Ino>, what: String) {
        self.add_raw(kind, key.into(), ino, what);
    }

    pub(crate) fn add_raw(&mut self, kind: FaultKind, key: KeyText, ino: Option<Ino>, what: String) {
        if self.faults.len() >= Self::FAULTS_MAX {
            match kind.severity() {
                Severity::Fault => self.more_faults += 1,
                Severity::Note => self.more_notes += 1,
            }
            return;
        }
        self.faults.push(Fault { kind, key, ino, path: None, what, ranges: Vec::new() });
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}", self.kind.name(), self.key, printable(&self.what))?;
        match &self.path {
            Some(path) => write!(f, " [{}]", printable(path)),
            None => Ok(()),
        }
    }
}

/// A text with names in it, as one line that does nothing to a terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_printed_on_one_line() {
        assert_eq!(printable("a b/ü\u{1b}[2J\nrepaired: all"), "a b/ü\\u{1b}[2J\\nrepaired: all");
    }

    #[test]
    fn notes_that_are_not_kept_are_no_faults() {
        let mut report = Report::default();
        for _ in 0..=Report::FAULTS_MAX {
            report.add(FaultKind::UnusedSegment, Key::Totals, None, String::new());
        }
        assert_eq!((report.faults.len(), report.more_notes), (Report::FAULTS_MAX, 1));
        assert!(report.is_clean());
        report.add(FaultKind::WrongTotals, Key::Totals, None, String::new());
        assert_eq!((report.more_faults, report.is_clean()), (1, false));
    }
}
