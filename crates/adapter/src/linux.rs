//! Numbers of system calls' arguments, as the kernel passes them on.
//!
//! Source: linux:include/uapi/asm-generic/fcntl.h and the headers named below. But for O_DIRECT the generic values hold on
//! every architecture that Holdfast is built for (x86-64, arm64, riscv64).

/// Mask of the access mode in open flags.
pub const O_ACCMODE: u32 = 0o3;
/// Access mode: for reading only.
pub const O_RDONLY: u32 = 0o0;
/// For reading and writing.
pub const O_RDWR: u32 = 0o2;
/// The file must not exist.
pub const O_EXCL: u32 = 0o200;
/// Writes go to the end.
pub const O_APPEND: u32 = 0o2000;
/// Writes are durable when they return. Part of O_SYNC.
pub const O_DSYNC: u32 = 0o10000;
/// Reads and writes pass the page cache by. The generic value, but for ARM.
pub const O_DIRECT: u32 = if cfg!(target_arch = "aarch64") { 0o200_000 } else { 0o40_000 };

/// Reads leave the access time alone.
pub const O_NOATIME: u32 = 0o1_000_000;

/// linux:include/uapi/linux/stat.h.
pub const S_IFMT: u32 = 0o170_000;
/// Named pipe.
pub const S_IFIFO: u32 = 0o010_000;
/// Character device.
pub const S_IFCHR: u32 = 0o020_000;
/// Directory.
pub const S_IFDIR: u32 = 0o040_000;
/// Block device.
pub const S_IFBLK: u32 = 0o060_000;
/// Regular file.
pub const S_IFREG: u32 = 0o100_000;
/// Symbolic link.
pub const S_IFLNK: u32 = 0o120_000;
/// Socket.
pub const S_IFSOCK: u32 = 0o140_000;
/// Permission bits with setuid, setgid and sticky.
pub const PERMISSIONS: u32 = 0o7777;
pub const S_ISGID: u32 = 0o2000;

/// linux:include/uapi/linux/fs.h.
pub const RENAME_NOREPLACE: u32 = 1;
/// Swaps both names.
pub const RENAME_EXCHANGE: u32 = 2;
/// Leaves a whiteout under the old name: overlayfs takes it for one that was removed.
pub const RENAME_WHITEOUT: u32 = 4;

/// linux:include/uapi/linux/falloc.h.
pub const FALLOC_FL_KEEP_SIZE: u32 = 0x01;
/// Makes a hole.
pub const FALLOC_FL_PUNCH_HOLE: u32 = 0x02;
/// Makes zeros.
pub const FALLOC_FL_ZERO_RANGE: u32 = 0x10;

/// linux:include/uapi/linux/xattr.h.
pub const XATTR_CREATE: u32 = 1;
/// The attribute must exist.
pub const XATTR_REPLACE: u32 = 2;

/// lseek(2).
pub const SEEK_DATA: u32 = 3;
/// lseek(2).
pub const SEEK_HOLE: u32 = 4;

/// truncate, ftruncate, open, creat, openat and openat2: linux:arch/x86/entry/syscalls/syscall_64.tbl; and those of programs of 32 bits, with
/// truncate64 and ftruncate64: syscall_32.tbl there. None of one table is a write in the other.
#[cfg(target_arch = "x86_64")]
pub(crate) const TRUNCATING_CALLS: &[u32] = &[76, 77, 2, 85, 257, 437, 92, 93, 5, 8, 295, 193, 194];
/// truncate, ftruncate, openat and openat2: linux:include/uapi/asm-generic/unistd.h.
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "loongarch64"))]
pub(crate) const TRUNCATING_CALLS: &[u32] = &[45, 46, 56, 437];
/// Not known: what might be the kernel's own is taken for that.
#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "loongarch64"
)))]
pub(crate) const TRUNCATING_CALLS: &[u32] = &[];

/// rename, renameat and renameat2: linux:arch/x86/entry/syscalls/syscall_64.tbl; and those of programs of 32 bits: syscall_32.tbl there. None of one table
/// looks a name up in the other.
#[cfg(target_arch = "x86_64")]
pub(crate) const RENAMING_CALLS: &[u32] = &[82, 264, 316, 38, 302, 353];
/// renameat and renameat2: linux:include/uapi/asm-generic/unistd.h.
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "loongarch64"))]
pub(crate) const RENAMING_CALLS: &[u32] = &[38, 276];
/// Not known.
#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "loongarch64"
)))]
pub(crate) const RENAMING_CALLS: &[u32] = &[];

/// lseek, which holds the lock of the file while it asks: linux:arch/x86/entry/syscalls/syscall_64.tbl; and _llseek of programs of 32 bits:
/// syscall_32.tbl there. None of the other table under these numbers asks for attributes by an open file.
#[cfg(target_arch = "x86_64")]
pub(crate) const SEEKING_CALLS: &[u32] = &[8, 140];
/// lseek: linux:include/uapi/asm-generic/unistd.h.
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "loongarch64"))]
pub(crate) const SEEKING_CALLS: &[u32] = &[62];
/// Not known.
#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "loongarch64"
)))]
pub(crate) const SEEKING_CALLS: &[u32] = &[];
