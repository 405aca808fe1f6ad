//! Flag words of the protocol as small typed sets.

/// Declares a set of bits with `contains`, `union` and the bit operators.
macro_rules! flag_set {
    ($(#[$doc:meta])* $name:ident: $word:ty { $($(#[$bit_doc:meta])* $bit:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name($word);

        impl $name {
            $($(#[$bit_doc])* pub const $bit: Self = Self($value);)*

            /// No bit set.
            pub const EMPTY: Self = Self(0);

            /// Takes the word as the kernel sent it, unknown bits included.
            pub const fn from_bits(bits: $word) -> Self {
                Self(bits)
            }

            /// Returns the word as the kernel wants it.
            pub const fn bits(self) -> $word {
                self.0
            }

            /// Returns whether every bit of `other` is set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns the bits of both.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns the bits common to both.
            #[must_use]
            pub const fn intersection(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }

            /// Returns the bits of `self` that are not in `other`.
            #[must_use]
            pub const fn difference(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                self.union(other)
            }
        }

        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                *self = self.union(other);
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut known = Self::EMPTY;
                let mut separator = "";
                write!(formatter, "{}(", stringify!($name))?;
                $(
                    if self.contains(Self::$bit) {
                        write!(formatter, "{separator}{}", stringify!($bit))?;
                        separator = " | ";
                        known |= Self::$bit;
                    }
                )*
                let unknown = self.difference(known).bits();
                if unknown != 0 {
                    write!(formatter, "{separator}{unknown:#x}")?;
                }
                write!(formatter, ")")
            }
        }
    };
}

flag_set! {
    /// What kernel and file system agree on at INIT. Bits 32 and up travel in `flags2`.
    InitFlags: u64 {
        /// Reads of one file may be in flight together.
        ASYNC_READ = 1 << 0;
        /// fcntl(2) locks are forwarded; without it they are local.
        POSIX_LOCKS = 1 << 1;
        /// O_TRUNC reaches OPEN and CREATE instead of a separate SETATTR.
        ATOMIC_O_TRUNC = 1 << 3;
        /// LOOKUP of "." and ".." by node id works: needed for open_by_handle_at(2) and NFS export.
        EXPORT_SUPPORT = 1 << 4;
        /// Writes above 4 KiB; kernels since 4.20 assume it.
        BIG_WRITES = 1 << 5;
        /// The kernel leaves the umask to the file system (wanted for default ACLs).
        DONT_MASK = 1 << 6;
        /// flock(2) locks are forwarded; without it they are local.
        FLOCK_LOCKS = 1 << 10;
        /// ioctl(2) on directories is forwarded.
        HAS_IOCTL_DIR = 1 << 11;
        /// Drops cached pages when a GETATTR shows another mtime or size.
        AUTO_INVAL_DATA = 1 << 12;
        /// READDIRPLUS instead of READDIR.
        DO_READDIRPLUS = 1 << 13;
        /// READDIRPLUS only for the first buffers of a directory.
        READDIRPLUS_AUTO = 1 << 14;
        /// Asynchronous direct I/O.
        ASYNC_DIO = 1 << 15;
        /// The kernel's own write-back cache. It then ignores size and times of the server.
        WRITEBACK_CACHE = 1 << 16;
        /// ENOSYS to OPEN means that no file needs one.
        NO_OPEN_SUPPORT = 1 << 17;
        /// Lookups and readdirs of one directory may run together.
        PARALLEL_DIROPS = 1 << 18;
        /// First form of suid clearing by the server; superseded by V2.
        HANDLE_KILLPRIV = 1 << 19;
        /// POSIX ACLs are stored by the server and enforced by the kernel.
        POSIX_ACL = 1 << 20;
        /// Reading an aborted connection gives ECONNABORTED, an unmounted one ENODEV.
        ABORT_ERROR = 1 << 21;
        /// `max_pages` of the answer is valid.
        MAX_PAGES = 1 << 22;
        /// Targets of symbolic links are cached.
        CACHE_SYMLINKS = 1 << 23;
        /// ENOSYS to OPENDIR means that no directory needs one.
        NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached pages go only when the server says so.
        EXPLICIT_INVAL_DATA = 1 << 25;
        /// `map_alignment` of the answer is valid (DAX).
        MAP_ALIGNMENT = 1 << 26;
        /// Directories may be announced as roots of sub-mounts.
        SUBMOUNTS = 1 << 27;
        /// The server clears suid, sgid and capabilities on write, chown and truncate.
        HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR carries `setxattr_flags`.
        SETXATTR_EXT = 1 << 29;
        /// `flags2` is valid.
        INIT_EXT = 1 << 30;
        /// Security contexts are appended to creating requests.
        SECURITY_CTX = 1 << 32;
        /// DAX can be chosen per inode.
        HAS_INODE_DAX = 1 << 33;
        /// Supplementary groups are appended to creating requests.
        CREATE_SUPP_GROUP = 1 << 34;
        /// The kernel knows expire-only entry invalidation.
        HAS_EXPIRE_ONLY = 1 << 35;
        /// Shared mappings of files opened with DIRECT_IO are allowed.
        DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Reads and writes may pass through to a backing file.
        PASSTHROUGH = 1 << 37;
        /// The server refuses file handles.
        NO_EXPORT_SUPPORT = 1 << 38;
        /// The kernel can resend unanswered requests.
        HAS_RESEND = 1 << 39;
        /// The mount may be id-mapped.
        ALLOW_IDMAP = 1 << 40;
        /// Requests may travel through io_uring.
        OVER_IO_URING = 1 << 41;
        /// The kernel aborts the connection when a request takes too long.
        REQUEST_TIMEOUT = 1 << 42;
    }
}

flag_set! {
    /// `FOPEN_*`: how an opened file or directory behaves.
    OpenReplyFlags: u32 {
        /// Reads and writes bypass the page cache.
        DIRECT_IO = 1 << 0;
        /// Cached pages (or, with CACHE_DIR, the cached listing) survive this open.
        KEEP_CACHE = 1 << 1;
        /// Seeking fails.
        NONSEEKABLE = 1 << 2;
        /// The kernel may cache the listing.
        CACHE_DIR = 1 << 3;
        /// There is no file position at all.
        STREAM = 1 << 4;
        /// No FLUSH on close.
        NOFLUSH = 1 << 5;
        /// Direct writes to one inode may run together.
        PARALLEL_DIRECT_WRITES = 1 << 6;
        /// Reads and writes go to the backing file named in the reply.
        PASSTHROUGH = 1 << 7;
    }
}

flag_set! {
    /// `FUSE_WRITE_*`: where a WRITE comes from.
    WriteFlags: u32 {
        /// From the page cache (shared mapping or write-back); the handle is a guess.
        CACHE = 1 << 0;
        /// `lock_owner` is valid.
        LOCKOWNER = 1 << 1;
        /// suid and sgid must be cleared.
        KILL_SUIDGID = 1 << 2;
    }
}

flag_set! {
    /// `FUSE_RELEASE_*`: what closing the last descriptor implies.
    ReleaseFlags: u32 {
        /// A FLUSH is implied.
        FLUSH = 1 << 0;
        /// The owner's flock(2) lock goes.
        FLOCK_UNLOCK = 1 << 1;
    }
}
