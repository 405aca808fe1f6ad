//! INIT: what the two sides agree on.

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, InitFlags, InitIn, InitOut};
use crate::request::Dialect;

/// What the file system wants of a session. [`Config::default`] suits a coherent shared one.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Largest WRITE and READ in bytes, a multiple of the page size; at most 1 MiB on an untuned
    /// kernel (sysctl `fs.fuse.max_pages_limit`).
    pub max_write: u32,
    /// Background requests (read-ahead, asynchronous direct I/O, RELEASE) in flight at once. High,
    /// because requests that wait for a lock must not starve those the lock's holder needs.
    pub max_background: u16,
    /// Background requests from which on the kernel holds off further read-ahead.
    pub congestion_threshold: u16,
    /// Upper bound of read-ahead in bytes; the mount's `read_ahead_kb` bounds it further.
    pub max_readahead: u32,
    /// Granularity of timestamps in nanoseconds, a power of ten.
    pub time_gran_ns: u32,
    /// Flags to ask for; those the kernel does not offer are left out.
    pub flags: InitFlags,
    /// Stacking depth allowed to backing files of PASSTHROUGH; 0 without it.
    pub max_stack_depth: u32,
    /// Whether requests are to come through io_uring.
    pub rings: RingUse,
}

/// Whether requests are to come through io_uring, which the kernel offers while its module parameter `enable_uring` is set
/// (see [`ring_check`](crate::ring_check)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingUse {
    /// Never.
    Off,
    /// Where that can be had.
    IfOffered,
    /// Without it there is no session.
    Required,
}

/// What INIT settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Minor protocol version of the kernel, at most [`abi::MINOR_MAX`].
    pub minor: u32,
    /// Flags in force: wanted, and offered.
    pub flags: InitFlags,
    /// Everything the kernel offered; says what the kernel could do.
    pub offered: InitFlags,
    /// Largest WRITE in bytes.
    pub max_write: u32,
    /// Read-ahead in bytes.
    pub max_readahead: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_write: 1 << 20,
            max_background: 1024,
            congestion_threshold: 768,
            max_readahead: 4 << 20,
            time_gran_ns: 1,
            flags: Self::FLAGS_DEFAULT,
            max_stack_depth: 0,
            rings: RingUse::Off,
        }
    }
}

impl Config {
    /// Write-through, explicit invalidation, locks forwarded, ACLs and suid clearing by the server.
    ///
    /// Not in it, on purpose: WRITEBACK_CACHE (the kernel then ignores size and times of the
    /// server, and remote appends are overwritten), AUTO_INVAL_DATA (excluded by
    /// EXPLICIT_INVAL_DATA), ASYNC_DIO (whoever answers a direct read would wait for the lock of the page that it was read into, which may
    /// be one of this mount that is being written back, by a request that nobody else reads), READDIRPLUS_AUTO (a LOOKUP per file after the first buffers),
    /// ALLOW_IDMAP, PASSTHROUGH, OVER_IO_URING (that is [`Config::rings`]).
    pub const FLAGS_DEFAULT: InitFlags = InitFlags::ASYNC_READ
        .union(InitFlags::POSIX_LOCKS)
        .union(InitFlags::ATOMIC_O_TRUNC)
        .union(InitFlags::EXPORT_SUPPORT)
        .union(InitFlags::BIG_WRITES)
        .union(InitFlags::DONT_MASK)
        .union(InitFlags::FLOCK_LOCKS)
        .union(InitFlags::HAS_IOCTL_DIR)
        .union(InitFlags::DO_READDIRPLUS)
        .union(InitFlags::NO_OPEN_SUPPORT)
        .union(InitFlags::PARALLEL_DIROPS)
        .union(InitFlags::POSIX_ACL)
        .union(InitFlags::ABORT_ERROR)
        .union(InitFlags::MAX_PAGES)
        .union(InitFlags::CACHE_SYMLINKS)
        .union(InitFlags::NO_OPENDIR_SUPPORT)
        .union(InitFlags::EXPLICIT_INVAL_DATA)
        .union(InitFlags::HANDLE_KILLPRIV_V2)
        .union(InitFlags::SETXATTR_EXT)
        .union(InitFlags::INIT_EXT)
        .union(InitFlags::HAS_EXPIRE_ONLY)
        .union(InitFlags::DIRECT_IO_ALLOW_MMAP)
        .union(InitFlags::HAS_RESEND);

    /// Returns the length of a buffer that holds any request.
    ///
    /// The kernel refuses to deliver into less than header, WRITE arguments and `max_write`
    /// (`fuse_dev_do_read` in linux:fs/fuse/dev.c).
    pub(crate) fn buffer_len(&self) -> usize {
        (self.max_write as usize + BUFFER_HEADROOM).max(BUFFER_LEN_MIN)
    }

    /// Returns the length of a ring entry's payload. The kernel refuses shorter ones than a WRITE (`fuse_uring_create` in
    /// linux:fs/fuse/dev_uring.c).
    pub(crate) fn payload_len(&self) -> usize {
        (self.max_write as usize).max(BUFFER_LEN_MIN)
    }
}

impl Negotiated {
    /// Returns whether every flag of `flags` is in force.
    pub fn has(&self, flags: InitFlags) -> bool {
        self.flags.contains(flags)
    }

    /// Returns whether [`Notifier::expire_entry`](crate::Notifier::expire_entry) works.
    pub fn has_expire_only(&self) -> bool {
        self.minor >= abi::MINOR_EXPIRE_ONLY
    }

    /// Returns whether [`Notifier::inc_epoch`](crate::Notifier::inc_epoch) works.
    pub fn has_inc_epoch(&self) -> bool {
        self.minor >= abi::MINOR_INC_EPOCH
    }

    /// Returns whether [`Notifier::prune`](crate::Notifier::prune) works.
    pub fn has_prune(&self) -> bool {
        self.minor >= abi::MINOR_PRUNE
    }

    pub(crate) fn dialect(&self) -> Dialect {
        Dialect { setxattr_ext: self.has(InitFlags::SETXATTR_EXT) }
    }
}

/// What to answer to one INIT.
#[derive(Debug)]
pub(crate) enum InitAnswer {
    /// Agreed: send this, and the session starts.
    Accept(Negotiated, Box<InitOut>),
    /// The kernel speaks a newer major version: send this, and it asks again with ours.
    Downgrade(Box<InitOut>),
    /// The kernel is too old.
    Refuse { major: u32, minor: u32 },
}

/// Works out the answer to the INIT whose body is `body`, or `None` if it is malformed.
pub(crate) fn answer_init(config: &Config, body: &[u8]) -> Option<InitAnswer> {
    let (init, rest) = InitIn::read_from_prefix(body).ok()?;
    if init.major > abi::MAJOR {
        let out = InitOut { major: abi::MAJOR, minor: abi::MINOR_MAX, ..InitOut::default() };
        return Some(InitAnswer::Downgrade(Box::new(out)));
    }
    if init.major < abi::MAJOR || init.minor < abi::MINOR_MIN {
        return Some(InitAnswer::Refuse { major: init.major, minor: init.minor });
    }
    let mut offered = InitFlags::from_bits(u64::from(init.flags));
    if offered.contains(InitFlags::INIT_EXT) {
        let (flags2, _) = u32::read_from_prefix(rest).ok()?;
        offered |= InitFlags::from_bits(u64::from(flags2) << 32);
    }
    let flags = config.flags.intersection(offered);
    let negotiated = Negotiated {
        minor: init.minor.min(abi::MINOR_MAX),
        flags,
        offered,
        max_write: config.max_write,
        max_readahead: config.max_readahead.min(init.max_readahead),
    };
    let page_len = rustix::param::page_size() as u32;
    let out = InitOut {
        major: abi::MAJOR,
        minor: negotiated.minor,
        max_readahead: negotiated.max_readahead,
        flags: flags.bits() as u32,
        max_background: config.max_background,
        congestion_threshold: config.congestion_threshold,
        max_write: config.max_write,
        time_gran: config.time_gran_ns,
        max_pages: u16::try_from(config.max_write.div_ceil(page_len)).unwrap_or(u16::MAX),
        flags2: (flags.bits() >> 32) as u32,
        max_stack_depth: config.max_stack_depth,
        ..InitOut::default()
    };
    debug_assert_eq!(out.as_bytes().len(), 64);
    Some(InitAnswer::Accept(negotiated, Box::new(out)))
}

/// Header and arguments in front of the data of a WRITE, rounded up.
const BUFFER_HEADROOM: usize = 4096;

/// A SETXATTR of 64 KiB with its name fits.
const BUFFER_LEN_MIN: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn body(major: u32, minor: u32, flags: u64) -> Vec<u8> {
        let mut bytes =
            InitIn { major, minor, max_readahead: 131_072, flags: flags as u32 }.as_bytes().to_vec();
        bytes.extend_from_slice(&((flags >> 32) as u32).to_ne_bytes());
        bytes.extend_from_slice(&[0; 44]);
        bytes
    }

    #[test]
    fn flags_are_those_both_sides_want() {
        let offered = InitFlags::INIT_EXT | InitFlags::POSIX_ACL | InitFlags::PASSTHROUGH;
        let Some(InitAnswer::Accept(negotiated, out)) =
            answer_init(&Config::default(), &body(7, 99, offered.bits()))
        else {
            panic!("refused");
        };
        assert_eq!(negotiated.minor, abi::MINOR_MAX);
        assert_eq!(negotiated.offered, offered);
        assert_eq!(negotiated.flags, InitFlags::INIT_EXT | InitFlags::POSIX_ACL);
        assert_eq!(negotiated.max_readahead, 131_072);
        assert_eq!((out.flags2, out.max_pages), (0, 256));
    }

    #[test]
    fn old_and_new_majors_and_old_minors() {
        let config = Config::default();
        assert!(matches!(answer_init(&config, &body(8, 0, 0)), Some(InitAnswer::Downgrade(_))));
        assert!(matches!(answer_init(&config, &body(7, 30, 0)), Some(InitAnswer::Refuse { minor: 30, .. })));
        assert!(matches!(answer_init(&config, &body(6, 99, 0)), Some(InitAnswer::Refuse { .. })));
        assert!(matches!(answer_init(&config, &body(7, 31, 0)[..16]), Some(InitAnswer::Accept(..))));
    }

    #[test]
    fn truncated_init_is_malformed() {
        let full = body(7, 45, InitFlags::INIT_EXT.bits());
        for len in 0..20 {
            assert!(answer_init(&Config::default(), &full[..len]).is_none(), "{len} bytes");
        }
    }
}
