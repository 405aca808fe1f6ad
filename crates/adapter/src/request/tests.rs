//! Each operation against the request it becomes. Requests have no equality; their debug form has.

use super::*;

const INO: u64 = 42;
const WALL: Timespec = Timespec { secs: 1_700_000_000, nanos: 5 };

fn header() -> InHeader {
    InHeader { nodeid: INO, uid: 1000, gid: 100, pid: 77, ..InHeader::default() }
}

fn asked(operation: Operation<'_>) -> (Request, Shape) {
    match translate(&header(), operation.clone(), || WALL) {
        Translated::Ask(request, shape) => (request, shape),
        other => panic!("{operation:?} became {other:?}"),
    }
}

fn refused(operation: Operation<'_>) -> Errno {
    match translate(&header(), operation.clone(), || WALL) {
        Translated::Answer(Answer::Error(errno)) => errno,
        other => panic!("{operation:?} became {other:?}"),
    }
}

fn written(operation: Operation<'_>) -> WriteCall<'_> {
    match translate(&header(), operation, || WALL) {
        Translated::Write(write) => write,
        other => panic!("became {other:?}"),
    }
}

fn assert_asks(operation: Operation<'_>, expected: Request, shape: Shape) {
    let found = asked(operation);
    assert_eq!((format!("{:?}", found.0), found.1), (format!("{expected:?}"), shape));
}

fn os(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn boxed(name: &str) -> Box<[u8]> {
    name.as_bytes().into()
}

const PARENT: Ino = Ino(INO);

fn spec(kind: FileKind, mode: u32, umask: u32) -> MakeSpec {
    MakeSpec { kind, mode, umask, uid: 1000, gid: 100, rdev: 0, target: Box::default() }
}

#[test]
fn names() {
    let plain = Shape::Plain;
    assert_asks(
        Operation::Lookup { name: os("a") },
        Request::Lookup { parent: PARENT, name: boxed("a") },
        Shape::Lookup,
    );
    assert_asks(
        Operation::Unlink { name: os("a") },
        Request::Unlink { parent: PARENT, name: boxed("a"), bound: Some(1000) },
        plain,
    );
    assert_asks(
        Operation::Rmdir { name: os("a") },
        Request::Rmdir { parent: PARENT, name: boxed("a"), bound: Some(1000) },
        plain,
    );
    assert_asks(
        Operation::Link { ino: 7, new_name: os("a") },
        Request::Link { ino: Ino(7), parent: PARENT, name: boxed("a") },
        plain,
    );
}

#[test]
fn dots_are_looked_up_for_file_handles() {
    assert_asks(Operation::Lookup { name: os(".") }, Request::Itself { ino: PARENT }, Shape::Plain);
    assert_asks(Operation::Lookup { name: os("..") }, Request::Parent { ino: PARENT }, Shape::Plain);
}

#[test]
fn making() {
    let plain = Shape::Plain;
    let make = |spec| Request::Make { parent: PARENT, name: boxed("a"), spec };
    let mknod = |mode, rdev| Operation::Mknod { name: os("a"), mode, rdev, umask: 0o22 };
    for (mode, kind) in [
        (0o000_644, FileKind::File),
        (0o100_644, FileKind::File),
        (0o010_644, FileKind::Fifo),
        (0o140_644, FileKind::Socket),
    ] {
        assert_asks(mknod(mode, 0x801), make(spec(kind, 0o644, 0o22)), plain);
    }
    for (mode, kind) in [(0o020_644, FileKind::CharDevice), (0o060_644, FileKind::BlockDevice)] {
        let device = MakeSpec { rdev: 0x801, ..spec(kind, 0o644, 0o22) };
        assert_asks(mknod(mode, 0x801), make(device), plain);
    }
    assert_eq!(refused(mknod(0o040_755, 0)), Errno::INVAL);
    assert_asks(
        Operation::Mkdir { name: os("a"), mode: 0o041_777, umask: 0o22 },
        make(spec(FileKind::Directory, 0o1777, 0o22)),
        plain,
    );
    let link = MakeSpec { target: boxed("to"), ..spec(FileKind::Symlink, 0o777, 0) };
    assert_asks(Operation::Symlink { name: os("a"), target: os("to") }, make(link), plain);
}

#[test]
fn what_another_has_made_is_not_opened_by_creating() {
    let create =
        |flags| Operation::Create { name: os("a"), mode: 0o100_644, flags, umask: 0o22, kill_suidgid: false };
    let open = |append| vfs::OpenMode { write: true, map: false, append, sync: false };
    let request = |append, taken| Request::Create {
        parent: PARENT,
        name: boxed("a"),
        spec: spec(FileKind::File, 0o644, 0o22),
        open: open(append),
        taken,
    };
    assert_asks(create(0o101), request(false, Taken::Meet), Shape::Create { exclusive: false });
    assert_asks(create(0o301), request(false, Taken::Refuse), Shape::Create { exclusive: true });
    assert_asks(create(0o2101), request(true, Taken::Meet), Shape::Create { exclusive: false });
    assert_asks(
        Operation::Tmpfile { mode: 0o100_600, flags: 0o2, umask: 0o77 },
        Request::TmpFile {
            parent: PARENT,
            spec: spec(FileKind::File, 0o600, 0o77),
            open: vfs::OpenMode { map: true, ..open(false) },
        },
        Shape::Plain,
    );
}

#[test]
fn renaming() {
    let rename = |flags| Operation::Rename { name: os("a"), new_parent: 9, new_name: os("b"), flags };
    let request = |mode| Request::Rename {
        parent: PARENT,
        name: boxed("a"),
        new_parent: Ino(9),
        new_name: boxed("b"),
        mode,
        bound: Some(1000),
        whiteout: None,
    };
    assert_asks(rename(0), request(RenameMode::Replace), Shape::Plain);
    assert_asks(rename(1), request(RenameMode::NoReplace), Shape::Plain);
    assert_asks(rename(2), request(RenameMode::Exchange), Shape::Plain);
    let whiteout = |mode| {
        let Request::Rename { parent, name, new_parent, new_name, bound, .. } = request(mode) else {
            panic!("a rename")
        };
        let whiteout = Some(Box::new(spec(FileKind::CharDevice, 0, 0)));
        Request::Rename { parent, name, new_parent, new_name, mode, bound, whiteout }
    };
    assert_asks(rename(linux::RENAME_WHITEOUT), whiteout(RenameMode::Replace), Shape::Plain);
    assert_asks(rename(linux::RENAME_WHITEOUT | 1), whiteout(RenameMode::NoReplace), Shape::Plain);
    for flags in [3, linux::RENAME_WHITEOUT | 2, 7, 8] {
        assert_eq!(refused(rename(flags)), Errno::INVAL);
    }
}

#[test]
fn attributes() {
    let set = |setattr, set, size| {
        let request = Request::SetAttr { ino: PARENT, set, size };
        let shape = if size.is_some() { Shape::Truncate } else { Shape::Plain };
        assert_asks(Operation::Setattr(setattr), request, shape);
    };
    let time = |seconds| fuse::Timestamp { seconds, nanoseconds: 6 };
    let none = fuse::Setattr::default();
    set(none, AttrSet::default(), None);
    set(
        fuse::Setattr { mode: Some(0o104_755), uid: Some(1), gid: Some(2), ..none },
        AttrSet {
            mode: Some(0o4755),
            uid: Some(1),
            gid: Some(2),
            kill_privileges: Some(vec![100]),
            only_owner: Some(1000),
            ..AttrSet::default()
        },
        None,
    );
    // The present time may be set by whoever may write.
    set(
        fuse::Setattr { atime: Some(TimeOrNow::Now), mtime: Some(TimeOrNow::Now), ..none },
        AttrSet { atime: Some(WALL), mtime: Some(WALL), ..AttrSet::default() },
        None,
    );
    let owner = AttrSet { only_owner: Some(1000), ..AttrSet::default() };
    set(
        fuse::Setattr { atime: Some(TimeOrNow::Now), mtime: Some(TimeOrNow::At(time(9))), ..none },
        AttrSet { atime: Some(WALL), mtime: Some(Timespec { secs: 9, nanos: 6 }), ..owner.clone() },
        None,
    );
    set(
        fuse::Setattr { atime: Some(TimeOrNow::At(time(-9))), mtime: Some(TimeOrNow::Now), ..none },
        AttrSet { atime: Some(Timespec { secs: -9, nanos: 6 }), mtime: Some(WALL), ..owner },
        None,
    );
    set(
        fuse::Setattr { size: Some(100), kill_suidgid: true, ctime: Some(time(1)), fh: Some(3), ..none },
        AttrSet { kill_privileges: Some(vec![100]), ..AttrSet::default() },
        Some(100),
    );
    let bad = fuse::Timestamp { seconds: 0, nanoseconds: 1_000_000_000 };
    let setattr = fuse::Setattr { mtime: Some(TimeOrNow::At(bad)), ..none };
    assert_eq!(refused(Operation::Setattr(setattr)), Errno::INVAL);
    assert_asks(Operation::Getattr { fh: Some(3) }, Request::GetAttr { ino: PARENT }, Shape::Plain);
    assert_asks(Operation::Getattr { fh: None }, Request::Stat { ino: PARENT }, Shape::Plain);
    let statx = Operation::Statx { fh: None, flags: 0, mask: 0xfff };
    assert_asks(statx, Request::Stat { ino: PARENT }, Shape::Statx);
    assert_asks(Operation::Readlink, Request::ReadLink { ino: PARENT }, Shape::Plain);
}

#[test]
fn open_files() {
    let plain = Shape::Plain;
    assert_asks(
        Operation::Open { flags: 0o2, kill_suidgid: false },
        Request::Open {
            ino: PARENT,
            open: vfs::OpenMode { write: true, map: true, append: false, sync: false },
        },
        plain,
    );
    // Handle 2, direct: what is asked for page by page may be for a mapping, the rest is for a buffer.
    // What goes past the kernel's pages alone has an owner, whatever its place and length are and however the file was opened.
    for (open_flags, noatime) in [(0, false), (0o1_000_000, true), (0o4000, false), (linux::O_DIRECT, false)]
    {
        for (offset, size) in [(8192, 100), (100, 4096), (8192, 4096)] {
            for (fh, lock_owner) in [(4, None), (5, None), (4, Some(9)), (5, Some(9))] {
                let direct = lock_owner.is_some();
                let shape = if direct { Shape::Plain } else { Shape::Read { ino: PARENT, len: size } };
                assert_asks(
                    Operation::Read { fh, offset, size, open_flags, lock_owner },
                    Request::Read { ino: PARENT, offset, len: size, noatime, direct },
                    shape,
                );
            }
        }
    }
    assert_asks(
        Operation::Flush { fh: 4, lock_owner: 99 },
        Request::Flush { ino: PARENT, owner: LockOwner(99) },
        Shape::Flush { ino: PARENT },
    );
    for (release_flags, flock) in [
        (ReleaseFlags::EMPTY, None),
        (ReleaseFlags::FLUSH, None),
        (ReleaseFlags::FLOCK_UNLOCK, Some(LockOwner(99))),
    ] {
        let fh = 5;
        assert_asks(
            Operation::Release { fh, open_flags: 0, release_flags, lock_owner: 99 },
            Request::Release { ino: PARENT, handle: vfs::HandleId(2), flock },
            plain,
        );
    }
    for datasync in [false, true] {
        assert_asks(Operation::Fsync { fh: 4, datasync }, Request::Fsync { ino: PARENT }, plain);
        assert_asks(Operation::Fsyncdir { fh: 0, datasync }, Request::Fsync { ino: PARENT }, plain);
    }
}

#[test]
fn writes() {
    const CACHED: u64 = 4;
    const DIRECT: u64 = 5;
    const O_APPEND: u32 = 0o2000;
    const O_SYNC: u32 = 0o4_010_000;
    const CACHE: WriteFlags = WriteFlags::CACHE;
    const KILL: WriteFlags = WriteFlags::KILL_SUIDGID;
    const NONE: WriteFlags = WriteFlags::EMPTY;
    // Handle, flags of the write, flags of the open file; append, kill, direct, sync, end.
    for (fh, write_flags, open_flags, append, kills, direct, sync, end) in [
        (CACHED, NONE, 0o1, false, false, false, false, Some(15)),
        (CACHED, NONE, linux::O_DIRECT, false, false, false, false, None),
        (CACHED, KILL, 0o1, false, true, false, false, Some(15)),
        // fcntl(F_SETFL, O_APPEND) after the open.
        (CACHED, NONE, O_APPEND, true, false, false, false, None),
        (DIRECT, NONE, O_APPEND, true, false, true, false, None),
        // The kernel sends an FSYNC by itself only after cached writes.
        (CACHED, NONE, O_SYNC, false, false, false, false, Some(15)),
        (DIRECT, NONE, O_SYNC | O_APPEND, true, false, true, true, None),
        (DIRECT, NONE, 0o10_000 | O_APPEND, true, false, true, true, None),
        // Nor does it where a program does not wait for what it writes by O_DIRECT.
        (CACHED, NONE, O_SYNC | linux::O_DIRECT, false, false, false, true, None),
        // Pages of a mapping.
        (CACHED, CACHE, O_APPEND, false, false, false, false, None),
        (DIRECT, CACHE, O_SYNC | O_APPEND, false, false, false, false, None),
    ] {
        let data = b"bytes";
        let operation =
            Operation::Write { fh, offset: 10, data, write_flags, open_flags, lock_owner: Some(9) };
        let of_pages = write_flags.contains(CACHE);
        let kill_privileges = kills.then(|| vec![100]);
        let past_pages = direct || open_flags & linux::O_DIRECT != 0 && !of_pages;
        let refusal_cuts = past_pages.then_some(MayCut { end: 15, fh, owner: Some(9) });
        let expected = WriteCall {
            ino: PARENT,
            offset: 10,
            data,
            append,
            kill_privileges,
            of_pages,
            direct,
            past_pages,
            sync,
            end,
            refusal_cuts,
        };
        assert_eq!(written(operation), expected);
    }
}

#[test]
fn directories() {
    let dir = |request: Request| match request {
        Request::ReadDir { ino, after, plus, noatime, sink: _ } => (ino, after, plus, noatime),
        other => panic!("became {other:?}"),
    };
    for (open_flags, noatime) in [(0, false), (linux::O_NOATIME, true)] {
        let plain = asked(Operation::Readdir { fh: 0, offset: 6, size: 100, open_flags });
        let shape = Shape::List { dir: PARENT, goes_on: true };
        assert_eq!((dir(plain.0), plain.1), ((PARENT, 6, false, noatime), shape));
        let plus = asked(Operation::Readdirplus { fh: 0, offset: 6, size: 100, open_flags });
        assert_eq!((dir(plus.0), plus.1), ((PARENT, 6, true, noatime), shape));
        let first = asked(Operation::Readdir { fh: 0, offset: 0, size: 100, open_flags });
        assert_eq!(first.1, Shape::List { dir: PARENT, goes_on: false });
    }
    assert_asks(Operation::Statfs, Request::StatFs, Shape::Plain);
}

#[test]
fn extended_attributes() {
    assert_asks(
        Operation::Getxattr { name: os("user.a"), size: 10 },
        Request::GetXattr { ino: PARENT, name: boxed("user.a") },
        Shape::Sized { size: 10 },
    );
    assert_asks(
        Operation::Listxattr { size: 0 },
        Request::ListXattr { ino: PARENT, is_trusted: false },
        Shape::Sized { size: 0 },
    );
    assert_asks(
        Operation::Removexattr { name: os("user.a") },
        Request::RemoveXattr { ino: PARENT, name: boxed("user.a"), only_owner: None },
        Shape::Plain,
    );
    let set = |flags| Operation::Setxattr { name: os("user.a"), value: b"v", flags, acl_kill_sgid: false };
    for (flags, mode) in [(0, XattrMode::Any), (1, XattrMode::Create), (2, XattrMode::Replace)] {
        let (name, value) = (boxed("user.a"), boxed("v"));
        assert_asks(
            set(flags),
            Request::SetXattr { ino: PARENT, name, value, mode, only_owner: None },
            Shape::SetXattr,
        );
    }
    assert_eq!(refused(set(3)), Errno::INVAL);
    let (name, value, mode) = (boxed("user.a"), boxed("v"), XattrMode::AnyWithoutSetgid);
    assert_asks(
        Operation::Setxattr { name: os("user.a"), value: b"v", flags: 0, acl_kill_sgid: true },
        Request::SetXattr { ino: PARENT, name, value, mode, only_owner: None },
        Shape::SetXattr,
    );
}

#[test]
fn locks() {
    use fuse::LockKind::{Read, Unlock, Write};
    const END: u64 = i64::MAX as u64;
    let range = |start, end, kind| fuse::FileLock { start, end, kind, pid: 77 };
    let setlk = |lock, sleep, flock| Operation::Setlk { fh: 4, owner: 99, lock, sleep, flock };
    let byte = |kind, exclusive, start, end| ByteLock {
        ino: PARENT,
        kind,
        owner: LockOwner(99),
        pid: 77,
        exclusive,
        start,
        end,
    };
    let (posix, flock) = (LockKind::Posix, LockKind::Flock);
    for (operation, request) in [
        (
            setlk(range(0, 0, Read), false, false),
            Request::SetLock { handle: vfs::HandleId(2), lock: byte(posix, false, 0, 1), wait: false },
        ),
        (
            setlk(range(5, 9, Write), true, false),
            Request::SetLock { handle: vfs::HandleId(2), lock: byte(posix, true, 5, 10), wait: true },
        ),
        (
            setlk(range(5, END, Write), true, false),
            Request::SetLock {
                handle: vfs::HandleId(2),
                lock: byte(posix, true, 5, BYTE_MAX + 1),
                wait: true,
            },
        ),
        (
            setlk(range(0, u64::MAX, Write), false, true),
            Request::SetLock {
                handle: vfs::HandleId(2),
                lock: byte(flock, true, 0, BYTE_MAX + 1),
                wait: false,
            },
        ),
        (
            setlk(range(0, END, Unlock), false, false),
            Request::Unlock { lock: byte(posix, false, 0, BYTE_MAX + 1) },
        ),
        (
            setlk(range(0, END, Unlock), true, true),
            Request::Unlock { lock: byte(flock, false, 0, BYTE_MAX + 1) },
        ),
        (
            Operation::Getlk { fh: 4, owner: 99, lock: range(5, 5, Write), flock: false },
            Request::TestLock { lock: byte(posix, true, 5, 6) },
        ),
    ] {
        assert_asks(operation, request, Shape::Plain);
    }
    assert_eq!(refused(setlk(range(6, 5, Read), false, false)), Errno::INVAL);
    assert_eq!(refused(setlk(range(END + 1, END + 1, Read), false, false)), Errno::INVAL);
    let any = Operation::Getlk { fh: 4, owner: 99, lock: range(0, 0, Unlock), flock: false };
    assert_eq!(refused(any), Errno::INVAL);
}

#[test]
fn room_holes_and_zeros() {
    let fallocate = |mode| Operation::Fallocate { fh: 4, offset: 1, len: 2, mode };
    for (mode, expected) in [
        (0x00, AllocateMode::Extend),
        (0x01, AllocateMode::KeepSize),
        (0x03, AllocateMode::PunchHole),
        (0x10, AllocateMode::ZeroRange),
        (0x11, AllocateMode::ZeroRangeKeepSize),
    ] {
        let request = Request::Allocate {
            ino: PARENT,
            offset: 1,
            len: 2,
            mode: expected,
            handle: vfs::HandleId(2),
            kill_privileges: Some(vec![100]),
        };
        assert_asks(fallocate(mode), request, Shape::Plain);
    }
    // PUNCH_HOLE alone, COLLAPSE_RANGE, INSERT_RANGE, UNSHARE_RANGE, two at once.
    for mode in [0x02, 0x08, 0x20, 0x40, 0x13, 0x80] {
        assert_eq!(refused(fallocate(mode)), Errno::OPNOTSUPP);
    }
    let lseek = |whence| Operation::Lseek { fh: 4, offset: 7, whence };
    for (whence, for_hole) in [(3, false), (4, true)] {
        assert_asks(lseek(whence), Request::Seek { ino: PARENT, offset: 7, for_hole }, Shape::Plain);
    }
    for whence in [0, 1, 2, 5] {
        assert_eq!(refused(lseek(whence)), Errno::INVAL);
    }
}

#[test]
fn a_copy_is_asked_of_the_source_and_made_in_the_destination() {
    let copy = |flags| Operation::CopyFileRange {
        fh_in: 4,
        offset_in: 10,
        ino_out: 7,
        fh_out: 6,
        offset_out: 20,
        len: 1,
        flags,
    };
    let request = Request::Copy {
        from: PARENT,
        from_offset: 10,
        ino: Ino(7),
        offset: 20,
        len: 1,
        handle: vfs::HandleId(3),
        kill_privileges: Some(vec![100]),
    };
    assert_asks(copy(0), request, Shape::Copy { ino: Ino(7), offset: 20 });
    assert_eq!(refused(copy(1)), Errno::INVAL);
}

#[test]
fn what_is_not_offered() {
    let ioctl = Operation::Ioctl { fh: 4, command: 1, flags: 0, arg: 0, input: b"", out_size: 0 };
    for (operation, errno) in [
        (Operation::Opendir { flags: 0 }, Errno::NOSYS),
        (Operation::Access { mask: 4 }, Errno::NOSYS),
        (Operation::Bmap { block: 0, blocksize: 512 }, Errno::NOSYS),
        (Operation::Poll { fh: 4, kh: 0, flags: 0, events: 1 }, Errno::NOSYS),
        (ioctl, Errno::NOTTY),
        (Operation::Syncfs, Errno::NOSYS),
        (Operation::Unknown { opcode: 4096 }, Errno::NOSYS),
    ] {
        assert_eq!(refused(operation), errno);
    }
    let releasedir =
        Operation::Releasedir { fh: 0, open_flags: 0, release_flags: ReleaseFlags::EMPTY, lock_owner: 0 };
    for operation in [releasedir, Operation::Destroy] {
        let translated = translate(&header(), operation, || WALL);
        assert!(matches!(translated, Translated::Answer(Answer::Done)));
    }
}
