//! From bytes to [`Operation`]. Total: no input panics.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{DecodeError, FileLock, LockKind, Operation, Setattr, TimeOrNow};
use crate::abi::{self, Opcode, ReleaseFlags, WriteFlags, fattr};
use crate::attr::Timestamp;
use crate::request::Request;

impl<'a> Operation<'a> {
    /// Decodes `request` by its opcode.
    pub(crate) fn decode(request: &Request<'a>) -> Result<Self, DecodeError> {
        let Some(opcode) = request.opcode() else {
            return Ok(Self::Unknown { opcode: request.header.opcode });
        };
        let mut names = Names { rest: request.payload };
        Ok(match opcode {
            Opcode::Lookup => Self::Lookup { name: names.take_name()? },
            Opcode::Getattr => {
                let arg: abi::GetattrIn = fixed(request)?;
                Self::Getattr { fh: (arg.getattr_flags & abi::GETATTR_FH != 0).then_some(arg.fh) }
            }
            Opcode::Setattr => Self::Setattr(decode_setattr(&fixed(request)?)),
            Opcode::Readlink => Self::Readlink,
            Opcode::Symlink => Self::Symlink { name: names.take_name()?, target: names.take_name()? },
            Opcode::Mknod => {
                let arg: abi::MknodIn = fixed(request)?;
                Self::Mknod { name: names.take_name()?, mode: arg.mode, rdev: arg.rdev, umask: arg.umask }
            }
            Opcode::Mkdir => {
                let arg: abi::MkdirIn = fixed(request)?;
                Self::Mkdir { name: names.take_name()?, mode: arg.mode, umask: arg.umask }
            }
            Opcode::Unlink => Self::Unlink { name: names.take_name()? },
            Opcode::Rmdir => Self::Rmdir { name: names.take_name()? },
            Opcode::Rename => {
                let arg: abi::RenameIn = fixed(request)?;
                decode_rename(&mut names, arg.newdir, 0)?
            }
            Opcode::Rename2 => {
                let arg: abi::Rename2In = fixed(request)?;
                decode_rename(&mut names, arg.newdir, arg.flags)?
            }
            Opcode::Link => {
                let arg: abi::LinkIn = fixed(request)?;
                Self::Link { ino: arg.oldnodeid, new_name: names.take_name()? }
            }
            Opcode::Open => {
                let arg: abi::OpenIn = fixed(request)?;
                let kill_suidgid = arg.open_flags & abi::OPEN_KILL_SUIDGID != 0;
                Self::Open { flags: arg.flags, kill_suidgid }
            }
            Opcode::Opendir => {
                let arg: abi::OpenIn = fixed(request)?;
                Self::Opendir { flags: arg.flags }
            }
            Opcode::Create => {
                let arg: abi::CreateIn = fixed(request)?;
                Self::Create {
                    name: names.take_name()?,
                    mode: arg.mode,
                    flags: arg.flags,
                    umask: arg.umask,
                    kill_suidgid: arg.open_flags & abi::OPEN_KILL_SUIDGID != 0,
                }
            }
            Opcode::Tmpfile => {
                // The kernel sends the name "/" to fill the structure of CREATE.
                let arg: abi::CreateIn = fixed(request)?;
                Self::Tmpfile { mode: arg.mode, flags: arg.flags, umask: arg.umask }
            }
            Opcode::Read => {
                let arg: abi::ReadIn = fixed(request)?;
                Self::Read {
                    fh: arg.fh,
                    offset: arg.offset,
                    size: arg.size,
                    open_flags: arg.flags,
                    lock_owner: (arg.read_flags & abi::READ_LOCKOWNER != 0).then_some(arg.lock_owner),
                }
            }
            Opcode::Write => {
                let arg: abi::WriteIn = fixed(request)?;
                let write_flags = WriteFlags::from_bits(arg.write_flags);
                Self::Write {
                    fh: arg.fh,
                    offset: arg.offset,
                    data: data(request.payload, arg.size)?,
                    write_flags,
                    open_flags: arg.flags,
                    lock_owner: write_flags.contains(WriteFlags::LOCKOWNER).then_some(arg.lock_owner),
                }
            }
            Opcode::Statfs => Self::Statfs,
            Opcode::Release => {
                let arg: abi::ReleaseIn = fixed(request)?;
                Self::Release {
                    fh: arg.fh,
                    open_flags: arg.flags,
                    release_flags: ReleaseFlags::from_bits(arg.release_flags),
                    lock_owner: arg.lock_owner,
                }
            }
            Opcode::Releasedir => {
                let arg: abi::ReleaseIn = fixed(request)?;
                Self::Releasedir {
                    fh: arg.fh,
                    open_flags: arg.flags,
                    release_flags: ReleaseFlags::from_bits(arg.release_flags),
                    lock_owner: arg.lock_owner,
                }
            }
            Opcode::Fsync => {
                let arg: abi::FsyncIn = fixed(request)?;
                Self::Fsync { fh: arg.fh, datasync: arg.fsync_flags & abi::FSYNC_FDATASYNC != 0 }
            }
            Opcode::Fsyncdir => {
                let arg: abi::FsyncIn = fixed(request)?;
                Self::Fsyncdir { fh: arg.fh, datasync: arg.fsync_flags & abi::FSYNC_FDATASYNC != 0 }
            }
            Opcode::Setxattr => decode_setxattr(request, &mut names)?,
            Opcode::Getxattr => {
                let arg: abi::GetxattrIn = fixed(request)?;
                Self::Getxattr { name: names.take_name()?, size: arg.size }
            }
            Opcode::Listxattr => {
                let arg: abi::GetxattrIn = fixed(request)?;
                Self::Listxattr { size: arg.size }
            }
            Opcode::Removexattr => Self::Removexattr { name: names.take_name()? },
            Opcode::Flush => {
                let arg: abi::FlushIn = fixed(request)?;
                Self::Flush { fh: arg.fh, lock_owner: arg.lock_owner }
            }
            Opcode::Readdir => {
                let arg: abi::ReadIn = fixed(request)?;
                Self::Readdir { fh: arg.fh, offset: arg.offset, size: arg.size, open_flags: arg.flags }
            }
            Opcode::Readdirplus => {
                let arg: abi::ReadIn = fixed(request)?;
                Self::Readdirplus { fh: arg.fh, offset: arg.offset, size: arg.size, open_flags: arg.flags }
            }
            Opcode::Getlk => {
                let arg: abi::LkIn = fixed(request)?;
                let flock = arg.lk_flags & abi::LK_FLOCK != 0;
                Self::Getlk { fh: arg.fh, owner: arg.owner, lock: decode_lock(&arg.lk)?, flock }
            }
            Opcode::Setlk | Opcode::Setlkw => {
                let arg: abi::LkIn = fixed(request)?;
                Self::Setlk {
                    fh: arg.fh,
                    owner: arg.owner,
                    lock: decode_lock(&arg.lk)?,
                    sleep: opcode == Opcode::Setlkw,
                    flock: arg.lk_flags & abi::LK_FLOCK != 0,
                }
            }
            Opcode::Access => {
                let arg: abi::AccessIn = fixed(request)?;
                Self::Access { mask: arg.mask }
            }
            Opcode::Bmap => {
                let arg: abi::BmapIn = fixed(request)?;
                Self::Bmap { block: arg.block, blocksize: arg.blocksize }
            }
            Opcode::Ioctl => {
                let arg: abi::IoctlIn = fixed(request)?;
                Self::Ioctl {
                    fh: arg.fh,
                    command: arg.cmd,
                    flags: arg.flags,
                    arg: arg.arg,
                    input: data(request.payload, arg.in_size)?,
                    out_size: arg.out_size,
                }
            }
            Opcode::Poll => {
                let arg: abi::PollIn = fixed(request)?;
                Self::Poll { fh: arg.fh, kh: arg.kh, flags: arg.flags, events: arg.events }
            }
            Opcode::Fallocate => {
                let arg: abi::FallocateIn = fixed(request)?;
                Self::Fallocate { fh: arg.fh, offset: arg.offset, len: arg.length, mode: arg.mode }
            }
            Opcode::Lseek => {
                let arg: abi::LseekIn = fixed(request)?;
                Self::Lseek { fh: arg.fh, offset: arg.offset, whence: arg.whence }
            }
            Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
                let arg: abi::CopyFileRangeIn = fixed(request)?;
                Self::CopyFileRange {
                    fh_in: arg.fh_in,
                    offset_in: arg.off_in,
                    ino_out: arg.nodeid_out,
                    fh_out: arg.fh_out,
                    offset_out: arg.off_out,
                    len: arg.len,
                    flags: arg.flags,
                }
            }
            Opcode::Statx => {
                let arg: abi::StatxIn = fixed(request)?;
                let fh = (arg.getattr_flags & abi::GETATTR_FH != 0).then_some(arg.fh);
                Self::Statx { fh, flags: arg.sx_flags, mask: arg.sx_mask }
            }
            Opcode::Syncfs => Self::Syncfs,
            Opcode::Destroy => Self::Destroy,
            Opcode::Forget
            | Opcode::BatchForget
            | Opcode::Init
            | Opcode::Interrupt
            | Opcode::NotifyReply
            | Opcode::SetupMapping
            | Opcode::RemoveMapping => Self::Unknown { opcode: request.header.opcode },
        })
    }
}

/// Copies the fixed structure out of `request`.
pub(crate) fn fixed<T: FromBytes + KnownLayout + Immutable>(request: &Request<'_>) -> Result<T, DecodeError> {
    T::read_from_prefix(request.arg).map(|(value, _)| value).map_err(|_| DecodeError::Truncated)
}

/// Takes the first `size` bytes of `payload`.
fn data(payload: &[u8], size: u32) -> Result<&[u8], DecodeError> {
    payload.get(..size as usize).ok_or(DecodeError::Truncated)
}

/// Cuts NUL-terminated names off a payload.
struct Names<'a> {
    rest: &'a [u8],
}

impl<'a> Names<'a> {
    /// Takes the next name, without its terminator.
    fn take_name(&mut self) -> Result<&'a OsStr, DecodeError> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(DecodeError::Name)?;
        if end == 0 {
            return Err(DecodeError::Name);
        }
        let name = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(OsStr::from_bytes(name))
    }
}

fn decode_rename<'a>(
    names: &mut Names<'a>,
    new_parent: u64,
    flags: u32,
) -> Result<Operation<'a>, DecodeError> {
    let name = names.take_name()?;
    let new_name = names.take_name()?;
    Ok(Operation::Rename { name, new_parent, new_name, flags })
}

fn decode_setxattr<'a>(request: &Request<'a>, names: &mut Names<'a>) -> Result<Operation<'a>, DecodeError> {
    let arg: abi::SetxattrIn = fixed(request)?;
    // The longer structure is there only if INIT settled on it; see `Dialect`.
    let extended: Option<abi::SetxattrExtIn> = fixed(request).ok();
    let name = names.take_name()?;
    let value = data(names.rest, arg.size)?;
    let acl_kill_sgid =
        extended.is_some_and(|extended| extended.setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0);
    Ok(Operation::Setxattr { name, value, flags: arg.flags, acl_kill_sgid })
}

fn decode_setattr(arg: &abi::SetattrIn) -> Setattr {
    let is_set = |bit: u32| arg.valid & bit != 0;
    let time = |bit, now_bit, seconds, nanoseconds| {
        if is_set(now_bit) {
            return Some(TimeOrNow::Now);
        }
        is_set(bit).then_some(TimeOrNow::At(Timestamp { seconds, nanoseconds }))
    };
    Setattr {
        mode: is_set(fattr::MODE).then_some(arg.mode),
        uid: is_set(fattr::UID).then_some(arg.uid),
        gid: is_set(fattr::GID).then_some(arg.gid),
        size: is_set(fattr::SIZE).then_some(arg.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, arg.atime, arg.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, arg.mtime, arg.mtimensec),
        ctime: is_set(fattr::CTIME).then_some(Timestamp { seconds: arg.ctime, nanoseconds: arg.ctimensec }),
        fh: is_set(fattr::FH).then_some(arg.fh),
        lock_owner: is_set(fattr::LOCKOWNER).then_some(arg.lock_owner),
        kill_suidgid: is_set(fattr::KILL_SUIDGID),
    }
}

fn decode_lock(lock: &abi::FileLockWire) -> Result<FileLock, DecodeError> {
    let kind = match lock.kind {
        0 => LockKind::Read,
        1 => LockKind::Write,
        2 => LockKind::Unlock,
        kind => return Err(DecodeError::LockKind { kind }),
    };
    Ok(FileLock { start: lock.start, end: lock.end, kind, pid: lock.pid })
}
