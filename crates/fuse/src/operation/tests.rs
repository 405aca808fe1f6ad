//! Table tests: a valid message of every kind, and every prefix of it.

use zerocopy::IntoBytes;

use super::*;
use crate::abi::{self, InHeader, Opcode};
use crate::request::{Dialect, Request};

/// Builds a message in an aligned buffer; `declared` is the length in the header.
fn message(opcode: u32, body: &[u8]) -> (Vec<u64>, usize) {
    let len = size_of::<InHeader>() + body.len();
    let header = InHeader { len: len as u32, opcode, unique: 2, nodeid: 1, ..InHeader::default() };
    let mut words = vec![0u64; len.div_ceil(8)];
    words.as_mut_bytes()[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
    words.as_mut_bytes()[size_of::<InHeader>()..len].copy_from_slice(body);
    (words, len)
}

fn decode(opcode: Opcode, body: &[u8]) -> Result<String, DecodeError> {
    let (words, len) = message(opcode.number(), body);
    let request = Request::from_message(&words.as_bytes()[..len], Dialect { setxattr_ext: true })?;
    request.operation().map(|operation| format!("{operation:?}"))
}

fn body(arg: &[u8], payload: &[u8]) -> Vec<u8> {
    [arg, payload].concat()
}

/// One valid body per opcode with arguments.
fn samples() -> Vec<(Opcode, Vec<u8>)> {
    let lock = abi::FileLockWire { start: 1, end: 9, kind: 1, pid: 7 };
    let lk = abi::LkIn { fh: 3, owner: 4, lk: lock, lk_flags: 1, padding: 0 };
    let read = abi::ReadIn { fh: 3, offset: 5, size: 6, ..Default::default() };
    let release = abi::ReleaseIn { fh: 3, flags: 1, release_flags: 3, lock_owner: 8 };
    let copy = abi::CopyFileRangeIn { fh_in: 1, len: 1 << 40, ..Default::default() };
    let setxattr = abi::SetxattrExtIn { size: 5, flags: 1, setxattr_flags: 1, padding: 0 };
    vec![
        (Opcode::Lookup, body(&[], b"name\0")),
        (Opcode::Getattr, body(abi::GetattrIn { getattr_flags: 1, dummy: 0, fh: 9 }.as_bytes(), b"")),
        (Opcode::Setattr, body(abi::SetattrIn { valid: 0xfff, ..Default::default() }.as_bytes(), b"")),
        (Opcode::Readlink, vec![]),
        (Opcode::Symlink, body(&[], b"name\0target\0")),
        (Opcode::Mknod, body(abi::MknodIn { mode: 0o644, rdev: 1, umask: 2, padding: 0 }.as_bytes(), b"n\0")),
        (Opcode::Mkdir, body(abi::MkdirIn { mode: 0o755, umask: 2 }.as_bytes(), b"n\0")),
        (Opcode::Unlink, body(&[], b"n\0")),
        (Opcode::Rmdir, body(&[], b"n\0")),
        (Opcode::Rename, body(abi::RenameIn { newdir: 5 }.as_bytes(), b"a\0b\0")),
        (Opcode::Rename2, body(abi::Rename2In { newdir: 5, flags: 2, padding: 0 }.as_bytes(), b"a\0b\0")),
        (Opcode::Link, body(abi::LinkIn { oldnodeid: 5 }.as_bytes(), b"n\0")),
        (Opcode::Open, body(abi::OpenIn { flags: 2, open_flags: 1 }.as_bytes(), b"")),
        (Opcode::Opendir, body(abi::OpenIn { flags: 2, open_flags: 0 }.as_bytes(), b"")),
        (
            Opcode::Create,
            body(abi::CreateIn { flags: 2, mode: 3, umask: 4, open_flags: 1 }.as_bytes(), b"n\0"),
        ),
        (
            Opcode::Tmpfile,
            body(abi::CreateIn { flags: 2, mode: 3, umask: 4, open_flags: 0 }.as_bytes(), b"/\0"),
        ),
        (Opcode::Read, body(read.as_bytes(), b"")),
        (Opcode::Readdir, body(read.as_bytes(), b"")),
        (Opcode::Readdirplus, body(read.as_bytes(), b"")),
        (Opcode::Write, body(abi::WriteIn { fh: 1, size: 4, ..Default::default() }.as_bytes(), b"data")),
        (Opcode::Statfs, vec![]),
        (Opcode::Release, body(release.as_bytes(), b"")),
        (Opcode::Releasedir, body(release.as_bytes(), b"")),
        (Opcode::Fsync, body(abi::FsyncIn { fh: 1, fsync_flags: 1, padding: 0 }.as_bytes(), b"")),
        (Opcode::Fsyncdir, body(abi::FsyncIn { fh: 1, fsync_flags: 0, padding: 0 }.as_bytes(), b"")),
        (Opcode::Setxattr, body(setxattr.as_bytes(), b"user.n\0value")),
        (Opcode::Getxattr, body(abi::GetxattrIn { size: 5, padding: 0 }.as_bytes(), b"user.n\0")),
        (Opcode::Listxattr, body(abi::GetxattrIn { size: 5, padding: 0 }.as_bytes(), b"")),
        (Opcode::Removexattr, body(&[], b"user.n\0")),
        (Opcode::Flush, body(abi::FlushIn { fh: 1, lock_owner: 2, ..Default::default() }.as_bytes(), b"")),
        (Opcode::Getlk, body(lk.as_bytes(), b"")),
        (Opcode::Setlk, body(lk.as_bytes(), b"")),
        (Opcode::Setlkw, body(lk.as_bytes(), b"")),
        (Opcode::Access, body(abi::AccessIn { mask: 4, padding: 0 }.as_bytes(), b"")),
        (Opcode::Bmap, body(abi::BmapIn { block: 1, blocksize: 2, padding: 0 }.as_bytes(), b"")),
        (Opcode::Ioctl, body(abi::IoctlIn { fh: 1, in_size: 3, ..Default::default() }.as_bytes(), b"abc")),
        (Opcode::Poll, body(abi::PollIn { fh: 1, kh: 2, flags: 0, events: 1 }.as_bytes(), b"")),
        (
            Opcode::Fallocate,
            body(abi::FallocateIn { fh: 1, length: 2, ..Default::default() }.as_bytes(), b""),
        ),
        (Opcode::Lseek, body(abi::LseekIn { fh: 1, offset: 2, whence: 3, padding: 0 }.as_bytes(), b"")),
        (Opcode::CopyFileRange, body(copy.as_bytes(), b"")),
        (Opcode::CopyFileRange64, body(copy.as_bytes(), b"")),
        (Opcode::Statx, body(abi::StatxIn { getattr_flags: 1, fh: 9, ..Default::default() }.as_bytes(), b"")),
        (Opcode::Syncfs, body(abi::SyncfsIn { padding: 0 }.as_bytes(), b"")),
        (Opcode::Destroy, vec![]),
    ]
}

#[test]
fn every_valid_sample_decodes_to_its_own_variant() {
    for (opcode, body) in samples() {
        let decoded = decode(opcode, &body).unwrap_or_else(|error| panic!("{opcode:?}: {error}"));
        assert!(!decoded.starts_with("Unknown"), "{opcode:?} became {decoded}");
    }
}

#[test]
fn every_prefix_of_a_valid_body_decodes_or_is_refused() {
    for (opcode, body) in samples() {
        for len in 0..body.len() {
            let prefix = decode(opcode, &body[..len]);
            // Operations that ignore their arguments stay valid; no prefix panics.
            let ignores_arguments = matches!(opcode, Opcode::Syncfs | Opcode::Tmpfile);
            assert!(prefix.is_err() || ignores_arguments, "{opcode:?} of {len} bytes gave {prefix:?}");
        }
    }
}

#[test]
fn every_prefix_of_a_message_is_refused() {
    let (words, len) = message(Opcode::Lookup.number(), b"name\0");
    for prefix_len in 0..len {
        let result = Request::from_message(&words.as_bytes()[..prefix_len], Dialect::default());
        assert!(result.is_err(), "{prefix_len} bytes");
    }
}

#[test]
fn extensions_longer_than_the_body_are_refused() {
    let (mut words, len) = message(Opcode::Lookup.number(), b"name\0");
    // `total_extlen` is the first half of the last word of the header.
    words[4] |= 0xffff << 32;
    assert!(Request::from_message(&words.as_bytes()[..len], Dialect::default()).is_err());
}

#[test]
fn random_bodies_never_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..20_000 {
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let opcode = next() as u32 % 60;
        let body: Vec<u8> = (0..next() % 120).map(|_| next() as u8).collect();
        let (words, len) = message(opcode, &body);
        if let Ok(request) = Request::from_message(&words.as_bytes()[..len], Dialect::default()) {
            _ = request.operation();
        }
    }
}

#[test]
fn arguments_land_in_the_right_fields() {
    let cases = [
        (Opcode::Getattr, "Getattr { fh: Some(9) }"),
        (Opcode::Rename2, r#"Rename { name: "a", new_parent: 5, new_name: "b", flags: 2 }"#),
        (Opcode::Symlink, r#"Symlink { name: "name", target: "target" }"#),
        (
            Opcode::Setxattr,
            r#"Setxattr { name: "user.n", value: [118, 97, 108, 117, 101], flags: 1, acl_kill_sgid: true }"#,
        ),
        (
            Opcode::Setlkw,
            "Setlk { fh: 3, owner: 4, lock: FileLock { start: 1, end: 9, kind: Write, pid: 7 }, sleep: true, flock: true }",
        ),
        (Opcode::Open, "Open { flags: 2, kill_suidgid: true }"),
    ];
    let samples = samples();
    for (opcode, expected) in cases {
        let (_, body) = samples.iter().find(|(other, _)| *other == opcode).unwrap();
        assert_eq!(decode(opcode, body).unwrap(), expected);
    }
}

#[test]
fn setattr_takes_only_what_is_valid() {
    let arg = abi::SetattrIn {
        valid: abi::fattr::SIZE | abi::fattr::MTIME | abi::fattr::MTIME_NOW | abi::fattr::ATIME,
        size: 77,
        atime: -5,
        atimensec: 3,
        mode: 1,
        ..Default::default()
    };
    let (words, len) = message(Opcode::Setattr.number(), arg.as_bytes());
    let request = Request::from_message(&words.as_bytes()[..len], Dialect::default()).unwrap();
    let expected = Setattr {
        size: Some(77),
        mtime: Some(TimeOrNow::Now),
        atime: Some(TimeOrNow::At(Timestamp { seconds: -5, nanoseconds: 3 })),
        ..Setattr::default()
    };
    assert_eq!(request.operation().unwrap(), Operation::Setattr(expected));
}

#[test]
fn short_setxattr_structure_is_understood_without_the_extension() {
    let arg = abi::SetxattrIn { size: 2, flags: 0 };
    let (words, len) = message(Opcode::Setxattr.number(), &body(arg.as_bytes(), b"user.averylongname\0ab"));
    let request = Request::from_message(&words.as_bytes()[..len], Dialect { setxattr_ext: false }).unwrap();
    let operation = request.operation().unwrap();
    assert!(
        matches!(operation, Operation::Setxattr { value: b"ab", acl_kill_sgid: false, .. }),
        "{operation:?}"
    );
}
