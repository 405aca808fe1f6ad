//! What the kernel asks, as a request to the core, or the answer if none is needed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuse::{Errno, InHeader, Operation, ReleaseFlags, TimeOrNow, WriteFlags};
use meta::FileKind;
use meta::ops::{AttrSet, Groups, RenameMode, XattrMode};
use types::{Ino, Timespec};
use vfs::{AllocateMode, MakeSpec, Request, Taken};
use wire::{BYTE_MAX, ByteLock, LockKind, LockOwner};

use crate::capability::CAPABILITY;
use crate::convert::{FileHandle, kind_of_mode, open_mode_of, timespec_of};
use crate::dir::DirPacker;
use crate::groups::OwnersOnly;
use crate::linux;
use crate::refused::MayCut;
use crate::reply::{Answer, Shape};

/// What to do about a request of the kernel.
#[derive(Debug)]
pub enum Translated<'a> {
    /// Nothing but to answer.
    Answer(Answer),
    /// Ask the core, and answer in this shape.
    Ask(Request, Shape),
    /// A write, whose bytes are copied only if it has to wait.
    Write(WriteCall<'a>),
}

/// A WRITE of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteCall<'a> {
    /// The file.
    pub ino: Ino,
    /// Where the kernel believes that the bytes go.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
    /// Whether they go to the end, wherever that is.
    pub append: bool,
    /// Whether setuid, setgid and capabilities go: groups of who writes.
    pub kill_privileges: Option<Groups>,
    /// Whether the kernel writes pages of a mapping back.
    pub of_pages: bool,
    /// Whether the bytes bypass the kernel's page cache, as it was told by the handle that all do.
    pub direct: bool,
    /// The same, or the program wants it.
    pub past_pages: bool,
    /// Whether they must be durable before the answer.
    pub sync: bool,
    /// Where they have the kernel's end at least, if it takes no size from an answer before it moved it there
    /// (`fuse_perform_write` in linux:fs/fuse/file.c).
    pub end: Option<u64>,
    /// Where they end, if the kernel may cut the file when they are refused ([`refused`](crate::refused)).
    pub refusal_cuts: Option<MayCut>,
}

/// Translates `operation`. `wall` is asked for the time only if the time is to be set to now.
pub fn translate<'a>(
    header: &InHeader,
    operation: Operation<'a>,
    wall: impl FnOnce() -> Timespec,
) -> Translated<'a> {
    match try_translate(header, operation, wall) {
        Ok(translated) => translated,
        Err(errno) => Translated::Answer(Answer::Error(errno)),
    }
}

fn try_translate<'a>(
    header: &InHeader,
    operation: Operation<'a>,
    wall: impl FnOnce() -> Timespec,
) -> Result<Translated<'a>, Errno> {
    let ino = Ino(header.nodeid);
    let (request, shape) = match operation {
        Operation::Lookup { name } => lookup(ino, name),
        Operation::Getattr { fh } => (attributes(ino, fh), Shape::Plain),
        Operation::Statx { fh, .. } => (attributes(ino, fh), Shape::Statx),
        Operation::Setattr(setattr) => {
            let shape = if setattr.size.is_some() { Shape::Truncate } else { Shape::Plain };
            (Request::SetAttr { ino, set: attr_set(header, &setattr, wall)?, size: setattr.size }, shape)
        }
        Operation::Readlink => (Request::ReadLink { ino }, Shape::Plain),
        Operation::Symlink { name, target } => {
            let spec = MakeSpec {
                target: target.as_bytes().into(),
                ..make_spec(header, FileKind::Symlink, SYMLINK_MODE, 0)
            };
            (Request::Make { parent: ino, name: bytes(name), spec }, Shape::Plain)
        }
        Operation::Mknod { name, mode, rdev, umask } => {
            let kind = kind_of_mode(mode).ok_or(Errno::INVAL)?;
            let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
            let rdev = if is_device { rdev } else { 0 };
            let spec = MakeSpec { rdev, ..make_spec(header, kind, mode, umask) };
            (Request::Make { parent: ino, name: bytes(name), spec }, Shape::Plain)
        }
        Operation::Mkdir { name, mode, umask } => {
            let spec = make_spec(header, FileKind::Directory, mode, umask);
            (Request::Make { parent: ino, name: bytes(name), spec }, Shape::Plain)
        }
        Operation::Unlink { name } => {
            (Request::Unlink { parent: ino, name: bytes(name), bound: bound(header) }, Shape::Plain)
        }
        Operation::Rmdir { name } => {
            (Request::Rmdir { parent: ino, name: bytes(name), bound: bound(header) }, Shape::Plain)
        }
        Operation::Rename { name, new_parent, new_name, flags } => {
            let (mode, leaves_whiteout) = rename_mode(flags)?;
            let (name, new_name) = (bytes(name), bytes(new_name));
            let new_parent = Ino(new_parent);
            let bound = bound(header);
            // A character device 0:0 without permissions, as on other file systems.
            let whiteout = || Box::new(make_spec(header, FileKind::CharDevice, 0, 0));
            let whiteout = leaves_whiteout.then(whiteout);
            (Request::Rename { parent: ino, name, new_parent, new_name, mode, bound, whiteout }, Shape::Plain)
        }
        Operation::Link { ino: linked, new_name } => {
            (Request::Link { ino: Ino(linked), parent: ino, name: bytes(new_name) }, Shape::Plain)
        }
        // Suid goes with a truncating open only (FUSE_OPEN_KILL_SUIDGID), which comes as a SETATTR here.
        Operation::Open { flags, kill_suidgid: _ } => {
            (Request::Open { ino, open: open_mode_of(flags) }, Shape::Plain)
        }
        // Answered by a file just made only, see `Shape::Create`: so there is nothing to truncate nor to take suid from.
        Operation::Create { name, mode, flags, umask, kill_suidgid: _ } => {
            let exclusive = flags & linux::O_EXCL != 0;
            let request = Request::Create {
                parent: ino,
                name: bytes(name),
                spec: make_spec(header, FileKind::File, mode, umask),
                open: open_mode_of(flags),
                taken: if exclusive { Taken::Refuse } else { Taken::Meet },
            };
            (request, Shape::Create { exclusive })
        }
        // O_EXCL says here that the file may never get a name; the kernel sees to that (`I_LINKABLE`).
        Operation::Tmpfile { mode, flags, umask } => {
            let spec = make_spec(header, FileKind::File, mode, umask);
            (Request::TmpFile { parent: ino, spec, open: open_mode_of(flags) }, Shape::Plain)
        }
        Operation::Read { offset, size, open_flags, lock_owner, .. } => {
            read(ino, offset, size, open_flags, lock_owner)
        }
        Operation::Write { fh, offset, data, write_flags, open_flags, lock_owner } => {
            let by = (fh, lock_owner);
            return Ok(Translated::Write(write_call(header, by, offset, data, write_flags, open_flags)));
        }
        Operation::Flush { fh: _, lock_owner } => {
            (Request::Flush { ino, owner: LockOwner(lock_owner) }, Shape::Flush { ino })
        }
        Operation::Release { fh, release_flags, lock_owner, .. } => {
            (release(ino, fh, release_flags, LockOwner(lock_owner)), Shape::Plain)
        }
        Operation::Fsync { .. } | Operation::Fsyncdir { .. } => (Request::Fsync { ino }, Shape::Plain),
        Operation::Readdir { offset, size, open_flags, .. } => {
            let (sink, noatime) = (Box::new(DirPacker::plain(size)), open_flags & linux::O_NOATIME != 0);
            (Request::ReadDir { ino, after: offset, plus: false, noatime, sink }, list(ino, offset))
        }
        Operation::Readdirplus { offset, size, open_flags, .. } => {
            let (sink, noatime) = (Box::new(DirPacker::plus(size)), open_flags & linux::O_NOATIME != 0);
            (Request::ReadDir { ino, after: offset, plus: true, noatime, sink }, list(ino, offset))
        }
        Operation::Statfs => (Request::StatFs, Shape::Plain),
        Operation::Getxattr { name, size } => get_xattr(ino, name, size),
        Operation::Listxattr { size } => {
            // The kernel says who asks, not what it may: CAP_SYS_ADMIN goes by root.
            let request = Request::ListXattr { ino, is_trusted: header.uid == ROOT };
            (request, Shape::Sized { size })
        }
        Operation::Setxattr { name, value, flags, acl_kill_sgid } => {
            let mode = xattr_mode(flags, acl_kill_sgid)?;
            let (only_owner, name, value) = (owner_if_acl(header, name), bytes(name), value.into());
            (Request::SetXattr { ino, name, value, mode, only_owner }, Shape::SetXattr)
        }
        Operation::Removexattr { name } => remove_xattr(header, ino, name),
        Operation::Getlk { owner, lock, flock, .. } => {
            (Request::TestLock { lock: test_lock(ino, owner, &lock, flock)? }, Shape::Plain)
        }
        Operation::Setlk { fh, owner, lock, sleep, flock } => {
            let byte_lock = byte_lock(ino, owner, &lock, flock)?;
            let request = match lock.kind {
                fuse::LockKind::Unlock => Request::Unlock { lock: byte_lock },
                fuse::LockKind::Read | fuse::LockKind::Write => {
                    let handle = FileHandle::from_raw(fh).id;
                    Request::SetLock { lock: byte_lock, handle, wait: sleep }
                }
            };
            (request, Shape::Plain)
        }
        Operation::Fallocate { fh, offset, len, mode } => {
            // No flag says that the caller lacks CAP_FSETID, as with a write: root has it.
            let (mode, kill_privileges) = (allocate_mode(mode)?, groups_if(header.uid != ROOT, header));
            let handle = FileHandle::from_raw(fh).id;
            (Request::Allocate { ino, offset, len, mode, handle, kill_privileges }, Shape::Plain)
        }
        Operation::Lseek { offset, whence, .. } => {
            (Request::Seek { ino, offset, for_hole: is_for_hole(whence)? }, Shape::Plain)
        }
        // With NO_OPENDIR_SUPPORT the kernel never asks again and caches listings by itself.
        Operation::Opendir { .. } => return Err(Errno::NOSYS),
        // The kernel checks permissions (`default_permissions`) and asks no more after this.
        Operation::Access { .. } => return Err(Errno::NOSYS),
        // Nothing here lies on a block device. For POLL the kernel then always reports readiness, as for any regular file.
        Operation::Bmap { .. } | Operation::Poll { .. } => return Err(Errno::NOSYS),
        // Not ENOSYS: what is unknown is this command, not ioctl as such.
        Operation::Ioctl { .. } => return Err(Errno::NOTTY),
        Operation::CopyFileRange { offset_in, ino_out, fh_out, offset_out, len, flags, .. } => {
            copy(header, offset_in, (Ino(ino_out), fh_out, offset_out), len, flags)?
        }
        // Only virtiofs sends it; sync(2) reaches other mounts by their write-back, of which there is none.
        Operation::Syncfs => return Err(Errno::NOSYS),
        Operation::Unknown { opcode: _ } => return Err(Errno::NOSYS),
        Operation::Releasedir { .. } | Operation::Destroy => return Ok(Translated::Answer(Answer::Done)),
    };
    Ok(Translated::Ask(request, shape))
}

impl Translated<'_> {
    /// The file that somebody changes who may not leave privileges there, and the groups known of him.
    pub(crate) fn killed(&mut self) -> Option<(Ino, &mut Groups)> {
        let (ino, groups) = match self {
            Self::Write(write) => (write.ino, &mut write.kill_privileges),
            Self::Ask(Request::SetAttr { ino, set, .. }, _) => (*ino, &mut set.kill_privileges),
            Self::Ask(
                Request::Allocate { ino, kill_privileges, .. } | Request::Copy { ino, kill_privileges, .. },
                _,
            ) => (*ino, kill_privileges),
            Self::Ask(..) | Self::Answer(_) => return None,
        };
        Some((ino, groups.as_mut()?))
    }

    /// The file with which somebody does what only an owner may, what that is, and who, if it is to be made sure that he is.
    pub(crate) fn owned(&mut self) -> Option<(Ino, OwnersOnly, &mut Option<u32>)> {
        match self {
            Self::Ask(Request::SetAttr { ino, set, .. }, _) if set.only_owner.is_some() => {
                let gives = set.uid.is_some() || set.gid.is_some();
                let has_times = set.atime.is_some() || set.mtime.is_some();
                let what = OwnersOnly { gives, sets: set.mode.is_some() || has_times || !gives };
                Some((*ino, what, &mut set.only_owner))
            }
            Self::Ask(
                Request::SetXattr { ino, only_owner, .. } | Request::RemoveXattr { ino, only_owner, .. },
                _,
            ) if only_owner.is_some() => Some((*ino, OwnersOnly { gives: false, sets: true }, only_owner)),
            Self::Ask(..) | Self::Write(_) | Self::Answer(_) => None,
        }
    }

    /// The file that gets a mode with setgid, and the groups known of whoever sets it.
    pub(crate) fn sets_gid(&mut self) -> Option<(Ino, &mut Option<Groups>)> {
        match self {
            Self::Ask(Request::SetAttr { ino, set, .. }, _) if set.groups.is_some() => {
                Some((*ino, &mut set.groups))
            }
            Self::Ask(..) | Self::Write(_) | Self::Answer(_) => None,
        }
    }

    /// The file whose lock the kernel holds while it waits for the answer, alone.
    pub(crate) fn locks(&self) -> Option<Ino> {
        match self {
            Self::Write(write) if !write.of_pages => Some(write.ino),
            Self::Ask(
                Request::SetAttr { ino, .. } | Request::Allocate { ino, .. } | Request::Copy { ino, .. },
                _,
            ) => Some(*ino),
            Self::Write(_) | Self::Ask(..) | Self::Answer(_) => None,
        }
    }
}

/// The one group that the kernel tells of the caller.
fn groups_if(kills: bool, header: &InHeader) -> Option<Groups> {
    kills.then(|| vec![header.gid])
}

/// "." and ".." come from file handles alone (open_by_handle_at, NFS export), with the inode itself for `ino`.
fn lookup(ino: Ino, name: &OsStr) -> (Request, Shape) {
    match name.as_bytes() {
        b"." => (Request::Itself { ino }, Shape::Plain),
        b".." => (Request::Parent { ino }, Shape::Plain),
        name => (Request::Lookup { parent: ino, name: name.into() }, Shape::Lookup),
    }
}

fn list(dir: Ino, offset: u64) -> Shape {
    Shape::List { dir, goes_on: offset > 0 }
}

/// The kernel names a handle where it goes by the end itself, for a read behind the one that it has or a seek to it
/// (`fuse_update_attributes` in linux:fs/fuse/dir.c), and none for stat and fstat.
fn attributes(ino: Ino, fh: Option<u64>) -> Request {
    match fh {
        Some(_) => Request::GetAttr { ino },
        None => Request::Stat { ino },
    }
}

/// To an inode, through a handle, at an offset. The kernel says of no caller that he lacks CAP_FSETID: root has it.
fn copy(
    header: &InHeader,
    from_offset: u64,
    (ino, fh, offset): (Ino, u64, u64),
    len: u64,
    flags: u64,
) -> Result<(Request, Shape), Errno> {
    if flags != 0 {
        return Err(Errno::INVAL);
    }
    let (handle, kill_privileges) = (FileHandle::from_raw(fh).id, groups_if(header.uid != ROOT, header));
    let from = Ino(header.nodeid);
    Ok((
        Request::Copy { from, from_offset, ino, offset, len, handle, kill_privileges },
        Shape::Copy { ino, offset },
    ))
}

fn get_xattr(ino: Ino, name: &OsStr, size: u32) -> (Request, Shape) {
    let shape = match (name.as_bytes(), size) {
        (CAPABILITY, 0) => Shape::CapabilityLen { ino },
        _ => Shape::Sized { size },
    };
    (Request::GetXattr { ino, name: bytes(name) }, shape)
}

fn remove_xattr(header: &InHeader, ino: Ino, name: &OsStr) -> (Request, Shape) {
    let is_capability = name.as_bytes() == CAPABILITY;
    let shape = if is_capability { Shape::RemoveCapability { ino } } else { Shape::Plain };
    let (only_owner, name) = (owner_if_acl(header, name), bytes(name));
    (Request::RemoveXattr { ino, name, only_owner }, shape)
}

/// Access lists are the owner's to change, as modes are.
fn owner_if_acl(header: &InHeader, name: &OsStr) -> Option<u32> {
    let is_acl = name.as_bytes().starts_with(ACL_PREFIX);
    (header.uid != ROOT && is_acl).then_some(header.uid)
}

fn release(ino: Ino, fh: u64, flags: ReleaseFlags, owner: LockOwner) -> Request {
    let flock = flags.contains(ReleaseFlags::FLOCK_UNLOCK).then_some(owner);
    Request::Release { ino, handle: FileHandle::from_raw(fh).id, flock }
}

fn read(ino: Ino, offset: u64, len: u32, open_flags: u32, lock_owner: Option<u64>) -> (Request, Shape) {
    let noatime = open_flags & linux::O_NOATIME != 0;
    // Mappings, read ahead and splice(2) fill pages through any handle. Of what goes past the pages alone the kernel names an owner (`fuse_send_read` in
    // linux:fs/fuse/file.c). It shows nothing behind its own end.
    let direct = lock_owner.is_some();
    let shape = if direct { Shape::Plain } else { Shape::Read { ino, len } };
    (Request::Read { ino, offset, len, noatime, direct }, shape)
}

fn make_spec(header: &InHeader, kind: FileKind, mode: u32, umask: u32) -> MakeSpec {
    let (uid, gid) = (header.uid, header.gid);
    MakeSpec { kind, mode: mode & linux::PERMISSIONS, umask, uid, gid, rdev: 0, target: Box::default() }
}

/// `ctime` is sent in write-back mode only, which is never negotiated.
fn attr_set(
    header: &InHeader,
    setattr: &fuse::Setattr,
    wall: impl FnOnce() -> Timespec,
) -> Result<AttrSet, Errno> {
    let is_now = setattr.atime == Some(TimeOrNow::Now) || setattr.mtime == Some(TimeOrNow::Now);
    let now = if is_now { wall() } else { Timespec::default() };
    let time = |time: Option<TimeOrNow>| match time {
        None => Ok(None),
        Some(TimeOrNow::Now) => Ok(Some(now)),
        Some(TimeOrNow::At(time)) => timespec_of(time).map(Some).ok_or(Errno::INVAL),
    };
    // With a chown the flag does not say that the caller lacks CAP_FSETID: root has it.
    let is_given = setattr.uid.is_some() || setattr.gid.is_some();
    let kills = if is_given { header.uid != ROOT } else { setattr.kill_suidgid };
    Ok(AttrSet {
        mode: setattr.mode.map(|mode| mode & linux::PERMISSIONS),
        uid: setattr.uid,
        gid: setattr.gid,
        atime: time(setattr.atime)?,
        mtime: time(setattr.mtime)?,
        tree: None,
        kill_privileges: groups_if(kills, header),
        only_owner: (header.uid != ROOT && is_for_owner(setattr)).then_some(header.uid),
        groups: groups_if(
            header.uid != ROOT && setattr.mode.is_some_and(|mode| mode & linux::S_ISGID != 0),
            header,
        ),
    })
}

/// Whether only the owner may, and who has the right to act as one. The present time may be set by whoever may write.
fn is_for_owner(setattr: &fuse::Setattr) -> bool {
    let is_given = |time: Option<TimeOrNow>| matches!(time, Some(TimeOrNow::At(_)));
    // A truncation comes with times of the kernel's own.
    let has_times = setattr.size.is_none() && (is_given(setattr.atime) || is_given(setattr.mtime));
    has_times || setattr.mode.is_some() || setattr.uid.is_some() || setattr.gid.is_some()
}

/// A write of mapped pages goes where the pages are, whatever the handle that the kernel happened to choose.
/// Nor is it of the program that the handle's flags belong to: msync(2) and fsync(2) make it durable.
fn write_call<'a>(
    header: &InHeader,
    (fh, owner): (u64, Option<u64>),
    offset: u64,
    data: &'a [u8],
    write_flags: WriteFlags,
    open_flags: u32,
) -> WriteCall<'a> {
    let is_of_pages = write_flags.contains(WriteFlags::CACHE);
    let direct = !is_of_pages && FileHandle::from_raw(fh).direct;
    let by_pages = !is_of_pages && !direct && open_flags & (linux::O_APPEND | linux::O_DIRECT) == 0;
    let kills = !is_of_pages && write_flags.contains(WriteFlags::KILL_SUIDGID);
    let end = offset.saturating_add(data.len() as u64);
    let past_pages = !is_of_pages && (direct || open_flags & linux::O_DIRECT != 0);
    WriteCall {
        ino: Ino(header.nodeid),
        offset,
        data,
        append: !is_of_pages && open_flags & linux::O_APPEND != 0,
        kill_privileges: groups_if(kills, header),
        of_pages: is_of_pages,
        direct,
        past_pages,
        // After a cached write the kernel sends an FSYNC for O_DSYNC; after a direct one it does not
        // (`fuse_direct_write_iter` in linux:fs/fuse/file.c), nor after one by O_DIRECT that a program does not wait for
        // (`fuse_aio_complete`).
        sync: past_pages && open_flags & linux::O_DSYNC != 0,
        end: by_pages.then_some(end),
        refusal_cuts: past_pages.then_some(MayCut { end, fh, owner }),
    }
}

/// Whom sticky directories bind: everybody but root, until it is known what he may.
fn bound(header: &InHeader) -> Option<u32> {
    (header.uid != ROOT).then_some(header.uid)
}

/// What is done about the new name, and whether a whiteout takes the old one.
fn rename_mode(flags: u32) -> Result<(RenameMode, bool), Errno> {
    let leaves_whiteout = flags & linux::RENAME_WHITEOUT != 0;
    let mode = match flags & !linux::RENAME_WHITEOUT {
        0 => RenameMode::Replace,
        linux::RENAME_NOREPLACE => RenameMode::NoReplace,
        linux::RENAME_EXCHANGE if !leaves_whiteout => RenameMode::Exchange,
        // EXCHANGE with another, and what is not invented yet: renameat2(2) wants EINVAL.
        _ => return Err(Errno::INVAL),
    };
    Ok((mode, leaves_whiteout))
}

/// The kernel sets access lists without flags.
fn xattr_mode(flags: u32, acl_kill_sgid: bool) -> Result<XattrMode, Errno> {
    match flags {
        0 if acl_kill_sgid => Ok(XattrMode::AnyWithoutSetgid),
        0 => Ok(XattrMode::Any),
        linux::XATTR_CREATE => Ok(XattrMode::Create),
        linux::XATTR_REPLACE => Ok(XattrMode::Replace),
        _ => Err(Errno::INVAL),
    }
}

fn allocate_mode(mode: u32) -> Result<AllocateMode, Errno> {
    use linux::{FALLOC_FL_KEEP_SIZE as KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE};
    match (mode & !KEEP_SIZE, mode & KEEP_SIZE != 0) {
        (0, false) => Ok(AllocateMode::Extend),
        (0, true) => Ok(AllocateMode::KeepSize),
        (FALLOC_FL_PUNCH_HOLE, true) => Ok(AllocateMode::PunchHole),
        (FALLOC_FL_ZERO_RANGE, false) => Ok(AllocateMode::ZeroRange),
        (FALLOC_FL_ZERO_RANGE, true) => Ok(AllocateMode::ZeroRangeKeepSize),
        // fallocate(2): "PUNCH_HOLE must be ORed with KEEP_SIZE"; the kernel checks that as well.
        (_, _) => Err(Errno::OPNOTSUPP),
    }
}

fn is_for_hole(whence: u32) -> Result<bool, Errno> {
    match whence {
        linux::SEEK_DATA => Ok(false),
        linux::SEEK_HOLE => Ok(true),
        _ => Err(Errno::INVAL),
    }
}

fn test_lock(ino: Ino, owner: u64, lock: &fuse::FileLock, flock: bool) -> Result<ByteLock, Errno> {
    match lock.kind {
        fuse::LockKind::Read | fuse::LockKind::Write => byte_lock(ino, owner, lock, flock),
        // Asks for any lock at all (Linux 6.16, OFD only); the core answers for a wanted lock alone.
        fuse::LockKind::Unlock => Err(Errno::INVAL),
    }
}

/// The kernel's range includes its last byte, and `i64::MAX` there means to the end.
fn byte_lock(ino: Ino, owner: u64, lock: &fuse::FileLock, flock: bool) -> Result<ByteLock, Errno> {
    if lock.start > lock.end || lock.start > BYTE_MAX {
        return Err(Errno::INVAL);
    }
    Ok(ByteLock {
        ino,
        kind: if flock { LockKind::Flock } else { LockKind::Posix },
        owner: LockOwner(owner),
        pid: lock.pid,
        exclusive: lock.kind == fuse::LockKind::Write,
        start: lock.start,
        end: lock.end.min(BYTE_MAX) + 1,
    })
}

fn bytes(name: &OsStr) -> Box<[u8]> {
    name.as_bytes().into()
}

/// Of the kernel's cache, at least.
pub(crate) const PAGE_LEN: u64 = 4096;
/// Nobody looks at a link's permissions; every file system shows these.
const SYMLINK_MODE: u32 = 0o777;
const ROOT: u32 = 0;
/// linux:include/uapi/linux/xattr.h: of the access list, and of the default one.
const ACL_PREFIX: &[u8] = b"system.posix_acl_";

#[cfg(test)]
mod tests;
