//! Each reply against the answer it becomes. Answers have no equality; their debug form has.

use super::*;
use meta::FileKind;
use types::Timespec;
use vfs::{Attr, Entry, HandleId, Keep, Opened, ReadJob, Reread};
use wire::{LockKind, LockOwner};

fn attr(ino: u64) -> Attr {
    let time = |secs| Timespec { secs, nanos: 1 };
    Attr {
        ino: Ino(ino),
        generation: 3,
        kind: FileKind::File,
        mode: 0o644,
        nlink: 1,
        uid: 10,
        gid: 20,
        rdev: 0,
        size: 100,
        tree: 0,
        stored_bytes: 100,
        atime: time(1),
        mtime: time(2),
        ctime: time(3),
        btime: time(4),
    }
}

fn entry() -> Entry {
    Entry { attr: attr(7), keep_name: Keep::Yes, keep_attr: Keep::No }
}

fn opened() -> Opened {
    Opened { handle: HandleId(5), direct: false, keep_pages: vfs::Keep::Yes }
}

fn write_shape() -> Shape {
    Shape::Write(WriteShape {
        ino: Ino(7),
        offset: 0,
        direct: false,
        sync: false,
        end: None,
        refusal_cuts: None,
    })
}

fn assert_answers(shape: Shape, reply: Reply, expected: Answer) {
    let found = Answer::of(shape, reply).expect("it fits");
    assert_eq!(format!("{found:?}"), format!("{expected:?}"));
}

const FOREVER: Duration = Duration::from_secs(315_360_000);

#[test]
fn replies_that_say_all() {
    let plain = Shape::Plain;
    assert_answers(plain, Reply::Done, Answer::Done);
    assert_answers(plain, Reply::Entry(entry()), Answer::Entry(entry_of(&entry())));
    assert_answers(plain, Reply::Attr(attr(7), Keep::Yes), Answer::Attr(attr_of(&attr(7)), FOREVER));
    assert_answers(plain, Reply::Attr(attr(7), Keep::No), Answer::Attr(attr_of(&attr(7)), Duration::ZERO));
    assert_answers(plain, Reply::Opened(opened()), Answer::Opened(opened_of(opened())));
    let created = Answer::Created(entry_of(&entry()), opened_of(opened()));
    assert_answers(Shape::Create { exclusive: false }, Reply::Created(entry(), opened()), created);
    assert_answers(plain, Reply::Data(b"abc".to_vec()), Answer::Data(b"abc".to_vec()));
    assert_answers(
        write_shape(),
        Reply::Written { len: 9, moved_to: Some(1), reread: Reread::NONE, shield: None },
        Answer::Written(9),
    );
    assert_answers(plain, Reply::Offset(12), Answer::Offset(12));
}

#[test]
fn a_missing_name_is_an_answer_to_lookup_alone() {
    for (keep, ttl) in [(Keep::Yes, FOREVER), (Keep::No, Duration::ZERO)] {
        let negative = fuse::Entry::negative(ttl);
        assert_eq!((negative.nodeid, negative.entry_ttl), (0, ttl));
        assert_answers(Shape::Lookup, Reply::NoEntry(keep), Answer::Entry(negative));
    }
    for shape in [Shape::Plain, Shape::Create { exclusive: true }] {
        assert_answers(shape, Reply::NoEntry(Keep::Yes), Answer::Error(Errno::NOENT));
    }
}

#[test]
fn statx_has_the_time_of_birth() {
    let Ok(Answer::Statx(statx, ttl)) = Answer::of(Shape::Statx, Reply::Attr(attr(7), Keep::Yes)) else {
        panic!("no statx")
    };
    assert_eq!(statx.btime, Some(fuse::Timestamp { seconds: 4, nanoseconds: 1 }));
    assert_eq!((statx.attr, ttl), (attr_of(&attr(7)), FOREVER));
}

#[test]
fn sized_answers() {
    let data = || Reply::Data(b"abc".to_vec());
    for (size, expected) in [
        (0, Answer::Size(3)),
        (2, Answer::Error(Errno::RANGE)),
        (3, Answer::Data(b"abc".to_vec())),
        (9, Answer::Data(b"abc".to_vec())),
    ] {
        assert_answers(Shape::Sized { size }, data(), expected);
    }
    assert_answers(Shape::Sized { size: 0 }, Reply::Data(Vec::new()), Answer::Size(0));
}

#[test]
fn errors() {
    for shape in [Shape::Plain, Shape::Lookup, Shape::Statx, write_shape()] {
        assert_answers(shape, Reply::Error(FsError::TooLarge), Answer::Error(Errno::FBIG));
        assert_answers(shape, Reply::Error(FsError::Exists), Answer::Error(Errno::EXIST));
    }
    assert_answers(Shape::SetXattr, Reply::Error(FsError::TooLarge), Answer::Error(Errno::TOOBIG));
}

#[test]
fn a_create_that_lost_the_race_is_walked_again_unless_exclusive() {
    for (exclusive, errno) in [(false, Errno::STALE), (true, Errno::EXIST)] {
        assert_answers(Shape::Create { exclusive }, Reply::Error(FsError::Exists), Answer::Error(errno));
        assert_answers(Shape::Create { exclusive }, Reply::Met(Ino(7)), Answer::Error(Errno::STALE));
        assert_answers(
            Shape::Create { exclusive },
            Reply::Error(FsError::NoSpace),
            Answer::Error(Errno::NOSPC),
        );
    }
}

#[test]
fn figures_are_in_blocks_rounded_down() {
    let figures = StatFs { total_bytes: 40_960, free_bytes: 8193, available_bytes: 4097, inodes_used: 100 };
    let Ok(Answer::Statfs(statfs)) = Answer::of(Shape::Plain, Reply::StatFs(figures)) else {
        panic!("no figures")
    };
    let expected = fuse::Statfs {
        blocks: 10,
        blocks_free: 2,
        blocks_available: 1,
        files: 101,
        files_free: 1,
        block_size: 4096,
        name_len_max: 255,
        fragment_size: 4096,
    };
    assert_eq!(statfs, expected);
}

#[test]
fn locks_in_the_way() {
    let lock = |exclusive, start, end| {
        let (kind, owner) = (LockKind::Posix, LockOwner(9));
        Reply::Lock(Some(ByteLock { ino: Ino(7), kind, owner, pid: 77, exclusive, start, end }))
    };
    let range = |start, end, kind, pid| Answer::Lock(fuse::FileLock { start, end, kind, pid });
    assert_answers(Shape::Plain, Reply::Lock(None), range(0, 0, fuse::LockKind::Unlock, 0));
    assert_answers(Shape::Plain, lock(false, 5, 10), range(5, 9, fuse::LockKind::Read, 77));
    let to_the_end = range(0, i64::MAX as u64, fuse::LockKind::Write, 77);
    assert_answers(Shape::Plain, lock(true, 0, BYTE_MAX + 1), to_the_end);
}

#[test]
fn directory_entries_come_back_from_the_sink() {
    let mut packer = DirPacker::plain(4096);
    assert!(packer.push(b"a", Ino(7), FileKind::File, 1, None));
    let Ok(Answer::Dir(buffer)) = Answer::of(Shape::Plain, Reply::Dir(Box::new(packer))) else {
        panic!("no entries")
    };
    assert_eq!(buffer.len(), 32);
}

#[test]
fn a_read_job_is_no_answer_yet() {
    let job = ReadJob { ino: Ino(7), len: 0, parts: Vec::new(), overlay: Vec::new(), pin: 1 };
    assert_eq!(Answer::of(Shape::Plain, Reply::ReadJob(job)).err(), Some(Misfit));
}
