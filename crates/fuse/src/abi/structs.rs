//! Structures of the protocol. Field names are the kernel's.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares protocol structures with their size checked at compile time.
macro_rules! wire_structs {
    ($($(#[$doc:meta])* $visibility:vis struct $name:ident[$size:literal] {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            $visibility struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }
            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

wire_structs! {
    /// `struct fuse_in_header`: who asks for what.
    pub struct InHeader[40] {
        /// Bytes of the whole request.
        len: u32,
        /// See [`Opcode`](crate::abi::Opcode).
        opcode: u32,
        /// Names this request in its reply and in INTERRUPT.
        unique: u64,
        /// Inode the request is about.
        nodeid: u64,
        /// Effective user of the caller.
        uid: u32,
        /// Effective group of the caller.
        gid: u32,
        /// Thread id of the caller, 0 for the kernel itself.
        pid: u32,
        /// Length of appended extensions, in units of 8 bytes.
        total_extlen: u16,
        /// Unused.
        padding: u16,
    }

    /// `struct fuse_forget_one`: the kernel drops `nlookup` references to `nodeid`.
    pub struct Forget[16] {
        /// Inode.
        nodeid: u64,
        /// References to drop; each positive LOOKUP, create or READDIRPLUS entry gave one.
        nlookup: u64,
    }

    pub(crate) struct OutHeader[16] { len: u32, error: i32, unique: u64, }

    pub(crate) struct AttrWire[88] {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }

    pub(crate) struct EntryOut[128] {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: AttrWire,
    }

    pub(crate) struct AttrOut[104] { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: AttrWire, }
    pub(crate) struct OpenOut[16] { fh: u64, open_flags: u32, backing_id: i32, }
    pub(crate) struct CreateOut[144] { entry: EntryOut, open: OpenOut, }
    pub(crate) struct WriteOut[8] { size: u32, padding: u32, }
    pub(crate) struct GetxattrOut[8] { size: u32, padding: u32, }
    pub(crate) struct LseekOut[8] { offset: u64, }
    pub(crate) struct BmapOut[8] { block: u64, }
    pub(crate) struct PollOut[8] { revents: u32, padding: u32, }
    pub(crate) struct IoctlOut[16] { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    pub(crate) struct CopyFileRangeOut[8] { bytes_copied: u64, }

    pub(crate) struct StatfsOut[80] {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }

    pub(crate) struct FileLockWire[24] { start: u64, end: u64, kind: u32, pid: u32, }

    pub(crate) struct StatxTimeWire[16] { seconds: i64, nanoseconds: u32, reserved: i32, }

    pub(crate) struct StatxWire[256] {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: StatxTimeWire,
        btime: StatxTimeWire,
        ctime: StatxTimeWire,
        mtime: StatxTimeWire,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }

    pub(crate) struct StatxOut[288] {
        attr_valid: u64,
        attr_valid_nsec: u32,
        flags: u32,
        spare: [u64; 2],
        stat: StatxWire,
    }

    pub(crate) struct Dirent[24] { ino: u64, off: u64, namelen: u32, kind: u32, }

    pub(crate) struct InitIn[16] { major: u32, minor: u32, max_readahead: u32, flags: u32, }

    pub(crate) struct InitOut[64] {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    }

    pub(crate) struct ForgetIn[8] { nlookup: u64, }
    pub(crate) struct BatchForgetIn[8] { count: u32, dummy: u32, }
    pub(crate) struct GetattrIn[16] { getattr_flags: u32, dummy: u32, fh: u64, }
    pub(crate) struct MknodIn[16] { mode: u32, rdev: u32, umask: u32, padding: u32, }
    pub(crate) struct MkdirIn[8] { mode: u32, umask: u32, }
    pub(crate) struct RenameIn[8] { newdir: u64, }
    pub(crate) struct Rename2In[16] { newdir: u64, flags: u32, padding: u32, }
    pub(crate) struct LinkIn[8] { oldnodeid: u64, }

    pub(crate) struct SetattrIn[88] {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }

    pub(crate) struct OpenIn[8] { flags: u32, open_flags: u32, }
    pub(crate) struct CreateIn[16] { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    pub(crate) struct ReleaseIn[24] { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    pub(crate) struct FlushIn[24] { fh: u64, unused: u32, padding: u32, lock_owner: u64, }

    pub(crate) struct ReadIn[40] {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }

    pub(crate) struct WriteIn[40] {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }

    pub(crate) struct FsyncIn[16] { fh: u64, fsync_flags: u32, padding: u32, }
    pub(crate) struct SetxattrIn[8] { size: u32, flags: u32, }
    pub(crate) struct SetxattrExtIn[16] { size: u32, flags: u32, setxattr_flags: u32, padding: u32, }
    pub(crate) struct GetxattrIn[8] { size: u32, padding: u32, }
    pub(crate) struct LkIn[48] { fh: u64, owner: u64, lk: FileLockWire, lk_flags: u32, padding: u32, }
    pub(crate) struct AccessIn[8] { mask: u32, padding: u32, }
    pub(crate) struct InterruptIn[8] { unique: u64, }
    pub(crate) struct BmapIn[16] { block: u64, blocksize: u32, padding: u32, }
    pub(crate) struct IoctlIn[32] { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    pub(crate) struct PollIn[24] { fh: u64, kh: u64, flags: u32, events: u32, }
    pub(crate) struct FallocateIn[32] { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    pub(crate) struct LseekIn[24] { fh: u64, offset: u64, whence: u32, padding: u32, }
    pub(crate) struct SyncfsIn[8] { padding: u64, }
    pub(crate) struct StatxIn[24] { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32, }

    pub(crate) struct CopyFileRangeIn[56] {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }

    pub(crate) struct InvalInodeOut[24] { ino: u64, off: i64, len: i64, }
    pub(crate) struct InvalEntryOut[16] { parent: u64, namelen: u32, flags: u32, }
    pub(crate) struct DeleteOut[24] { parent: u64, child: u64, namelen: u32, padding: u32, }
    pub(crate) struct StoreOut[24] { nodeid: u64, offset: u64, size: u32, padding: u32, }
    pub(crate) struct RetrieveOut[32] { notify_unique: u64, nodeid: u64, offset: u64, size: u32, padding: u32, }
    pub(crate) struct PruneOut[16] { count: u32, padding: u32, spare: u64, }

    /// `struct fuse_uring_ent_in_out`: what a ring entry says of the request in it, or of its answer.
    pub(crate) struct RingEntry[32] { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64, }
    /// `struct fuse_uring_cmd_req`: the command in a submission.
    pub(crate) struct RingCommand[24] { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6], }
    /// `struct fuse_uring_req_header`: where header, arguments and the rest lie.
    pub(crate) struct RingHeader[288] { in_out: [u64; 16], op_in: [u64; 16], entry: RingEntry, }
}
