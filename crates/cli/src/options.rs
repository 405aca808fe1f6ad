//! Mount options: the text after `-o`.
//!
//! Four tables say all: switches, options with a value, words that concern mount(8) or fstab only, and
//! words that mean something to other file systems but are refused here, with the reason.

use std::time::Duration;

use crate::units::{parse_seconds, parse_size};

/// What a mount is asked to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// No change is allowed through this mount.
    pub read_only: bool,
    /// When reading a file updates its access time.
    pub atime: Atime,
    /// Whether reading a directory updates its access time like that of a file.
    pub diratime: bool,
    /// Times reach the volume late, with the next other change.
    pub lazytime: bool,
    /// Sizes and times of files that other nodes write may be late.
    pub lazysize: bool,
    /// Others are shown late when this node wrote.
    pub nomtime: bool,
    /// Longest time that a change stays in memory only.
    pub commit: Duration,
    /// Every change is durable before its system call returns.
    pub sync: bool,
    /// Every change of a directory is.
    pub dirsync: bool,
    /// Other users than the mounting one may enter.
    pub allow_other: bool,
    /// The kernel checks permissions.
    pub default_permissions: bool,
    /// Device files work.
    pub dev: bool,
    /// Set-user-id bits work.
    pub suid: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Budget of this volume for tokens, when this node is its master.
    pub token_memory_bytes: u64,
    /// Limit of the write-behind log.
    pub log_memory_bytes: u64,
    /// Limit of cached directories; none for a quarter of the machine's memory.
    pub cache_memory_bytes: Option<u64>,
    /// How long a silent node stays a member.
    pub lease: Duration,
    /// Whether the kernel's requests come through io_uring.
    pub uring: Uring,
}

/// Whether the kernel's requests come through io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uring {
    /// Where the kernel offers it, on more than one processor.
    Auto,
    /// Without it there is no mount.
    On,
    /// Never.
    Off,
}

/// When reading updates the access time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atime {
    /// Never.
    Never,
    /// When it is older than the last change, or than a day.
    Relative,
    /// At each read that is not answered from the kernel's cache.
    Strict,
}

/// Who mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// root, by mount(2).
    Root,
    /// Anybody else, by fusermount3.
    User,
}

/// What happens to an option nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Refused by name.
    Refuse,
    /// Passed over, as `mount -s` asks.
    Ignore,
}

/// Why options were refused. Every message names the option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("unknown mount option \"{name}\"{}", .nearest.map_or(String::new(), |n| format!("; did you mean \"{n}\"?")))]
    Unknown {
        /// As given.
        name: String,
        /// A known one spelled nearly so.
        nearest: Option<&'static str>,
    },
    /// Known elsewhere, not possible here.
    #[error("mount option \"{name}\" is not supported: {reason}")]
    Refused {
        /// As given.
        name: String,
        /// Why.
        reason: &'static str,
    },
    /// The value is missing, malformed or out of range.
    #[error("mount option \"{name}\" needs {expected}")]
    Value {
        /// As given.
        name: String,
        /// In words.
        expected: &'static str,
    },
    /// A value where none belongs.
    #[error("mount option \"{name}\" takes no value")]
    NoValue {
        /// As given.
        name: String,
    },
    /// Only root may.
    #[error("mount option \"{name}\" is for root only")]
    RootOnly {
        /// As given.
        name: String,
    },
}

impl MountOptions {
    /// Options when none are given.
    pub fn default_of(caller: Caller) -> Self {
        let is_root = caller == Caller::Root;
        Self {
            read_only: false,
            atime: Atime::Relative,
            diratime: true,
            lazytime: false,
            lazysize: false,
            nomtime: false,
            commit: Duration::from_secs(1),
            sync: false,
            dirsync: false,
            allow_other: is_root,
            default_permissions: true,
            dev: is_root,
            suid: is_root,
            exec: true,
            token_memory_bytes: 256 << 20,
            log_memory_bytes: 64 << 20,
            cache_memory_bytes: None,
            lease: Duration::from_secs(10),
            uring: Uring::Auto,
        }
    }

    /// Reads comma-separated lists; of options that contradict each other the last counts.
    pub fn parse(lists: &[String], caller: Caller, unknown: Unknown) -> Result<Self, OptionError> {
        let mut options = Self::default_of(caller);
        for word in lists.iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty()) {
            match options.apply(word, caller) {
                Err(OptionError::Unknown { .. }) if unknown == Unknown::Ignore => {}
                result => result?,
            }
        }
        Ok(options)
    }

    fn apply(&mut self, word: &str, caller: Caller) -> Result<(), OptionError> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        if is_ignored(name) {
            return Ok(());
        }
        if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            return Err(OptionError::Refused { name: name.to_owned(), reason });
        }
        if caller == Caller::User && ROOT_ONLY.contains(&name) {
            return Err(OptionError::RootOnly { name: name.to_owned() });
        }
        if let Some((_, set)) = SWITCHES.iter().find(|(switch, _)| *switch == name) {
            if value.is_some() {
                return Err(OptionError::NoValue { name: name.to_owned() });
            }
            set(self);
            return Ok(());
        }
        let Some((_, expected, set)) = VALUES.iter().find(|(valued, ..)| *valued == name) else {
            return Err(OptionError::Unknown { name: name.to_owned(), nearest: nearest(name) });
        };
        value.and_then(|value| set(self, value)).ok_or(OptionError::Value { name: name.to_owned(), expected })
    }
}

type Set = fn(&mut MountOptions);
type SetValue = fn(&mut MountOptions, &str) -> Option<()>;

const SWITCHES: &[(&str, Set)] = &[
    ("ro", |o| o.read_only = true),
    ("rw", |o| o.read_only = false),
    ("noatime", |o| o.atime = Atime::Never),
    ("atime", |o| o.atime = Atime::Relative),
    ("relatime", |o| o.atime = Atime::Relative),
    ("norelatime", |o| o.atime = Atime::Relative),
    ("nostrictatime", |o| o.atime = Atime::Relative),
    ("strictatime", |o| o.atime = Atime::Strict),
    ("diratime", |o| o.diratime = true),
    ("nodiratime", |o| o.diratime = false),
    ("lazytime", |o| o.lazytime = true),
    ("nolazytime", |o| o.lazytime = false),
    ("lazysize", |o| o.lazysize = true),
    ("nolazysize", |o| o.lazysize = false),
    ("nomtime", |o| o.nomtime = true),
    ("mtime", |o| o.nomtime = false),
    ("sync", |o| o.sync = true),
    ("async", |o| o.sync = false),
    ("dirsync", |o| o.dirsync = true),
    ("allow_other", |o| o.allow_other = true),
    ("noallow_other", |o| o.allow_other = false),
    ("default_permissions", |o| o.default_permissions = true),
    ("dev", |o| o.dev = true),
    ("nodev", |o| o.dev = false),
    ("suid", |o| o.suid = true),
    ("nosuid", |o| o.suid = false),
    ("exec", |o| o.exec = true),
    ("noexec", |o| o.exec = false),
];

const VALUES: &[(&str, &str, SetValue)] = &[
    ("commit", "seconds between 0.01 and 300, like commit=5", |o, v| {
        set_seconds(&mut o.commit, v, Duration::from_millis(10), Duration::from_secs(300))
    }),
    ("token_memory", "a size of at least 1M, like token_memory=256M", |o, v| {
        set_size(&mut o.token_memory_bytes, v)
    }),
    ("log_memory", "a size of at least 1M, like log_memory=64M", |o, v| set_size(&mut o.log_memory_bytes, v)),
    ("cache_memory", "a size of at least 1M, like cache_memory=2G", |o, v| {
        let mut bytes = 0;
        set_size(&mut bytes, v)?;
        o.cache_memory_bytes = Some(bytes);
        Some(())
    }),
    // For tests: shorter than any network deserves.
    ("lease", "seconds between 0.1 and 600, like lease=10", |o, v| {
        set_seconds(&mut o.lease, v, Duration::from_millis(100), Duration::from_secs(600))
    }),
    ("uring", "auto, on or off", |o, v| {
        o.uring = match v {
            "auto" => Uring::Auto,
            "on" => Uring::On,
            "off" => Uring::Off,
            _ => return None,
        };
        Some(())
    }),
];

/// Concern mount(8), fstab or systemd; they reach a helper and mean nothing to the file system.
const IGNORED: &[&str] = &[
    "defaults",
    "_netdev",
    "nofail",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "comment",
    "helper",
    "uhelper",
    "loud",
    "silent",
    "iversion",
    "noiversion",
];

const ROOT_ONLY: &[&str] = &["dev", "suid"];

const REFUSED: &[(&str, &str)] = &[
    ("fsname", "the volume is the source"),
    ("subtype", "the type is fuse.holdfast"),
    ("no_default_permissions", "permissions are checked by the kernel"),
    ("nodefault_permissions", "permissions are checked by the kernel"),
    ("remount", "unmount and mount again; `holdfast set` changes lazysize and nomtime"),
    ("bind", "bind mounts are made without a file system type"),
    ("loop", "a volume is a directory"),
    ("allow_root", "use allow_other, or no option"),
];

/// For `holdfast mount --help`.
pub const HELP: &str = "\
Mount options:
  ro, rw                     read only, or read and write (default)
  relatime                   reading updates an access time older than the last change or a day (default)
  noatime, strictatime       never; at every read that the kernel's cache does not answer
  nodiratime, lazytime       not of directories; written with other changes only
  lazysize                   stat of a file that another node writes may show size and times up to 1 s old (off: nolazysize);
                             unsafe where programs write at the offset that stat told
  nomtime                    others see the times of what is written here when it is flushed, not at once (off: mtime)
  commit=SEC                 longest time a change stays in memory only [1]
  sync, dirsync              every change, every change of a directory, is durable at once
  allow_other                other users may enter (default for root; off: noallow_other)
  default_permissions        the kernel checks permissions (always on)
  dev, suid, exec            and nodev, nosuid, noexec; users get nodev,nosuid
  token_memory=SIZE          budget of the volume's master for tokens [256M]
  log_memory=SIZE            limit of this node's write-behind log [64M]
  cache_memory=SIZE          limit of this node's cached directories [a quarter of the memory]
  uring=auto|on|off          the kernel's requests come through io_uring: if it offers that, or no mount, or never [auto]
Words of fstab (defaults, _netdev, nofail, user, x-systemd.* and the like) are passed over.";

fn is_ignored(name: &str) -> bool {
    IGNORED.contains(&name) || name.starts_with("x-") || name.starts_with("X-")
}

fn set_seconds(field: &mut Duration, value: &str, min: Duration, max: Duration) -> Option<()> {
    *field = parse_seconds(value).filter(|parsed| (min..=max).contains(parsed))?;
    Some(())
}

fn set_size(field: &mut u64, value: &str) -> Option<()> {
    *field = parse_size(value).filter(|bytes| *bytes >= 1 << 20)?;
    Some(())
}

/// The known option that takes the fewest edits, if they are few.
fn nearest(name: &str) -> Option<&'static str> {
    let switches = SWITCHES.iter().map(|(known, _)| *known);
    let known = switches.chain(VALUES.iter().map(|(known, ..)| *known)).chain(IGNORED.iter().copied());
    let best = known.map(|known| (edits(name, known), known)).min()?;
    (best.0 <= name.len().max(3) / 3).then_some(best.1)
}

/// Levenshtein distance in bytes.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, caller: Caller) -> Result<MountOptions, OptionError> {
        MountOptions::parse(&[text.to_owned()], caller, Unknown::Refuse)
    }

    #[test]
    fn each_option_changes_what_it_says() {
        type Change = fn(&mut MountOptions);
        let table: &[(&str, Change)] = &[
            ("", |_| {}),
            (",,", |_| {}),
            ("ro", |o| o.read_only = true),
            ("ro,rw", |_| {}),
            ("noatime", |o| o.atime = Atime::Never),
            ("noatime,relatime", |_| {}),
            ("strictatime", |o| o.atime = Atime::Strict),
            ("strictatime,nostrictatime", |_| {}),
            ("nodiratime", |o| o.diratime = false),
            ("lazytime", |o| o.lazytime = true),
            ("lazysize", |o| o.lazysize = true),
            ("lazysize,nolazysize", |_| {}),
            ("nomtime", |o| o.nomtime = true),
            ("nomtime,mtime", |_| {}),
            ("commit=5", |o| o.commit = Duration::from_secs(5)),
            ("commit=0.25", |o| o.commit = Duration::from_millis(250)),
            ("sync", |o| o.sync = true),
            ("sync,async", |_| {}),
            ("dirsync", |o| o.dirsync = true),
            ("noallow_other", |o| o.allow_other = false),
            ("default_permissions", |_| {}),
            ("nodev,nosuid,noexec", |o| (o.dev, o.suid, o.exec) = (false, false, false)),
            ("nodev,dev", |_| {}),
            ("token_memory=8M", |o| o.token_memory_bytes = 8 << 20),
            ("log_memory=1G", |o| o.log_memory_bytes = 1 << 30),
            ("cache_memory=64M", |o| o.cache_memory_bytes = Some(64 << 20)),
            ("lease=0.5", |o| o.lease = Duration::from_millis(500)),
            ("uring=on", |o| o.uring = Uring::On),
            ("uring=off", |o| o.uring = Uring::Off),
            ("uring=off,uring=auto", |_| {}),
            ("rw,_netdev,nofail,noauto,auto,user=joe,users,owner,group,defaults,comment=a b", |_| {}),
            ("x-systemd.automount,X-mount.mkdir=0700", |_| {}),
        ];
        for (text, change) in table {
            let mut expected = MountOptions::default_of(Caller::Root);
            change(&mut expected);
            assert_eq!(parse(text, Caller::Root), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refusals_name_the_option() {
        for (text, message) in [
            ("nobarrier", "unknown mount option \"nobarrier\""),
            ("noatim", "unknown mount option \"noatim\"; did you mean \"noatime\"?"),
            ("ro,comit=3", "unknown mount option \"comit\"; did you mean \"commit\"?"),
            ("allow-other", "unknown mount option \"allow-other\"; did you mean \"allow_other\"?"),
            ("fsname=x", "mount option \"fsname\" is not supported: the volume is the source"),
            (
                "remount",
                "mount option \"remount\" is not supported: unmount and mount again; `holdfast set` changes lazysize and nomtime",
            ),
            ("commit", "mount option \"commit\" needs seconds between 0.01 and 300, like commit=5"),
            ("commit=0", "mount option \"commit\" needs seconds between 0.01 and 300, like commit=5"),
            ("commit=-1", "mount option \"commit\" needs seconds between 0.01 and 300, like commit=5"),
            (
                "token_memory=5",
                "mount option \"token_memory\" needs a size of at least 1M, like token_memory=256M",
            ),
            ("uring", "mount option \"uring\" needs auto, on or off"),
            ("uring=yes", "mount option \"uring\" needs auto, on or off"),
            ("ro=1", "mount option \"ro\" takes no value"),
        ] {
            assert_eq!(parse(text, Caller::Root).expect_err(text).to_string(), message);
        }
    }

    #[test]
    fn root_and_users_have_different_defaults() {
        let (root, user) = (MountOptions::default_of(Caller::Root), MountOptions::default_of(Caller::User));
        assert!(root.allow_other && root.default_permissions && root.dev && root.suid);
        assert!(!user.allow_other && user.default_permissions && !user.dev && !user.suid);
        assert_eq!(parse("suid", Caller::User), Err(OptionError::RootOnly { name: "suid".to_owned() }));
        assert!(parse("allow_other", Caller::User).expect("fusermount3 decides").allow_other);
    }

    #[test]
    fn sloppy_passes_over_unknown_words_only() {
        let lists = ["nobarrier,ro".to_owned(), "noatime".to_owned()];
        let options = MountOptions::parse(&lists, Caller::Root, Unknown::Ignore).expect("passed over");
        assert!(options.read_only && options.atime == Atime::Never);
        assert!(MountOptions::parse(&["commit=x".to_owned()], Caller::Root, Unknown::Ignore).is_err());
    }

    #[test]
    fn no_word_is_in_two_tables() {
        let mut words: Vec<&str> = SWITCHES.iter().map(|(word, _)| *word).collect();
        words.extend(VALUES.iter().map(|(word, ..)| *word));
        words.extend(REFUSED.iter().map(|(word, _)| *word));
        words.extend(IGNORED);
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
    }
}
