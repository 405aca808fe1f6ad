use std::sync::Arc;

use types::{Encode, Timespec};

use super::*;
use crate::record::Child;

const FAR: u64 = u64::MAX >> 1;
const LATE: Timespec = Timespec { secs: i64::MIN, nanos: 999_999_999 };

fn widest_attr(xattrs: Xattrs) -> InodeAttr {
    InodeAttr {
        kind: FileKind::File,
        mode: 0o7777,
        uid: u32::MAX,
        gid: u32::MAX,
        tree: u32::MAX,
        nlink: u32::MAX,
        rdev: u32::MAX,
        generation: u32::MAX,
        parent: Ino(FAR),
        btime: LATE,
        ctime: LATE,
        xattrs,
    }
}

fn widest_content(body: Body) -> Content {
    Content { size: FAR, mtime: LATE, atime: LATE, ctime: LATE, body }
}

/// Extents of one byte each, every number of theirs as long as it can be.
fn widest_map(count: u64) -> ExtentMap {
    let mut map = ExtentMap::new();
    for index in 0..count {
        let run = chunk::Run::new(SegmentId(u64::MAX), FAR - (2 << 20), 40_000, &[7; 3]);
        let start = FAR - (1 << 40) + index * 100_000;
        let whole = chunk::Extent::new(start, run.unwrap()).unwrap();
        let _ = map.insert(whole.slice(start + 16_000..start + 30_000).unwrap());
    }
    map
}

fn covered(body: Body, xattrs: Xattrs) -> Change {
    let inode = Arc::new(Inode { attr: widest_attr(xattrs), content: widest_content(body) });
    let name = Name::new(&[b'n'; 255]).unwrap();
    let entry = Dirent { name, ino: Ino(FAR), child: Child::Covered { inode } };
    Change::PutEntry { parent: Ino(FAR), cookie: Cookie(FAR), entry }
}

#[test]
fn no_change_is_longer_than_it_says() {
    let list: Vec<(Name, Box<[u8]>)> =
        (0..40u8).map(|n| (Name::new(&[b'a' + n % 26, n + 128]).unwrap(), vec![n; 7].into())).collect();
    let embedded = Xattrs::embedded(list.clone());
    let name = Name::new(&[b'n'; 255]).unwrap();
    let inode =
        Box::new(Inode { attr: widest_attr(embedded.clone()), content: widest_content(Body::Empty {}) });
    let (ino, parent) = (Ino(FAR), Ino(FAR));
    let map = widest_map(300);
    let changes = [
        covered(Body::Inline { data: vec![1; 4096].into() }, Xattrs::NONE),
        covered(Body::Extents { map: widest_map(32) }, embedded.clone()),
        covered(Body::Target { path: vec![b'p'; 4095].into() }, Xattrs::Spilled {}),
        covered(Body::Paged { mapped_bytes: FAR }, Xattrs::NONE),
        Change::DeleteEntry { parent, cookie: Cookie(FAR), name },
        Change::PutPlacement { ino, parent, cookie: Cookie(FAR) },
        Change::PutDirectory { ino, inode },
        Change::PutAttr { ino, attr: widest_attr(embedded) },
        Change::PutContent { ino, content: widest_content(Body::Extents { map: widest_map(32) }) },
        Change::DeleteInode { ino, parent, kind: FileKind::File },
        Change::DeleteContent { ino },
        Change::PutExtentPage { ino, parent, page: u64::MAX, map },
        Change::DeleteExtentPages { ino, parent, from_page: u64::MAX },
        Change::PutXattrs { ino, parent, list },
        Change::PutOrphan { ino, holders: vec![NodeId(u32::MAX); 50] },
        Change::DeleteOrphan { ino },
        Change::AddUsage {
            charge: types::Charge { uid: u32::MAX, gid: u32::MAX, tree: u32::MAX },
            bytes: i64::MIN,
            inodes: i64::MIN,
        },
        Change::AddLive { segment: SegmentId(u64::MAX), bytes: i64::MIN },
        Change::PutRedo { segment: SegmentId(u64::MAX), offset: u64::MAX, bytes: vec![3; 5000].into() },
        Change::DeleteRedo { segment: SegmentId(u64::MAX), offset: u64::MAX },
    ];
    for change in changes {
        let (len, said) = (change.to_bytes().len(), change.encoded_len_max());
        assert!(len <= said, "{len} bytes, not {said}: {change:?}");
    }
}
