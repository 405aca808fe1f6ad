//! Each kind of damage is found and named, and what needs no guess is repaired.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use check::{FaultKind, Severity};
use common::*;
use meta::{
    Body, Child, Content, Cookie, Dirent, FileKind, Key, MemberRecord, OrphanRecord, SegmentRecord,
    StoredInode, Totals, UsageRecord, Xattrs,
};
use types::{Account, BatchSeq, Ino, NodeId, SegmentId};

type Plant = fn(&Volume);

fn dirent(of: &[u8], ino: Ino, kind: FileKind) -> Dirent {
    Dirent { name: name(of), ino, child: Child::Own { kind } }
}

fn first_segment() -> Key {
    Key::Segment(SegmentId(1))
}

/// What is planted, the kind that must be found, and the inode it must name.
const PLANTS: &[(FaultKind, Option<Ino>, Plant)] = &[
    (FaultKind::Damaged, Some(SUB), |v| {
        let key = v.entry_of(INLINE).to_vec();
        let mut value = kv::Engine::get(&v.engine, &key).unwrap().unwrap();
        value[5] ^= 1;
        v.commit(vec![(key, Some(value))]);
    }),
    (FaultKind::UnknownKey, None, |v| v.commit(vec![(b"zz".to_vec(), Some(b"?".to_vec()))])),
    (FaultKind::BadRecord, Some(SYMLINK), |v| v.edit_covered(SYMLINK, |inode| inode.content.size = 3)),
    (FaultKind::BadRecord, Some(SUB), |v| {
        let StoredInode::Directory { inode } = v.read(Key::Inode(SUB)) else { unreachable!() };
        let child = Child::Covered { inode: std::sync::Arc::new(*inode) };
        v.put(v.place_of(DIR, b"sub"), &Dirent { name: name(b"sub"), ino: SUB, child });
    }),
    (FaultKind::BadRecord, Some(SYMLINK), |v| {
        v.edit_covered(SYMLINK, |inode| inode.content.body = Body::Empty {});
    }),
    (FaultKind::BadRecord, Some(SUB), |v| {
        v.edit(Key::Inode(SUB), |stored: &mut StoredInode| match stored {
            StoredInode::Directory { inode } => inode.content.body = Body::Inline { data: [][..].into() },
            _ => unreachable!(),
        });
    }),
    (FaultKind::BadRecord, Some(LINKED), |v| {
        v.edit(Key::Content(LINKED), |content: &mut Content| {
            (content.size, content.body) = (1, Body::Target { path: b"x"[..].into() });
        });
    }),
    (FaultKind::BadRecord, Some(INLINE), |v| {
        let list = [b"user.b", b"user.a"].map(|of| (name(of), [1][..].into()));
        v.edit_covered(INLINE, |inode| inode.attr.xattrs = Xattrs::embedded(list.to_vec()));
    }),
    (FaultKind::BadRecord, Some(SPILLED), |v| {
        v.edit(Key::Xattrs(SPILLED), |list: &mut Vec<(types::Name, Box<[u8]>)>| list.push(list[0].clone()));
    }),
    (FaultKind::OutOfBounds, Some(DIR), |v| {
        v.edit(Key::Volume, |record: &mut meta::VolumeRecord| record.next_inode = 100);
    }),
    (FaultKind::OutOfBounds, Some(EXTENTS), |v| {
        v.edit(Key::Volume, |record: &mut meta::VolumeRecord| record.next_segment = 1);
    }),
    (FaultKind::NoVolumeRecord, None, |v| v.remove(Key::Volume)),
    (FaultKind::NoRoot, Some(Ino::ROOT), |v| v.remove(Key::Inode(Ino::ROOT))),
    (FaultKind::NoDirectory, Some(LINKED), |v| {
        v.put(Key::Entry(LINKED, Cookie(999 << 8)), &dirent(b"in-a-file", SUB, FileKind::Directory));
    }),
    (FaultKind::WrongCookie, Some(DIR), |v| {
        let place = v.place_of(Ino::ROOT, b"dir");
        let entry: Dirent = v.read(place);
        v.remove(place);
        v.put(Key::Entry(Ino::ROOT, Cookie(777 << 8)), &entry);
    }),
    (FaultKind::DuplicateName, Some(LINKED), |v| {
        let Key::Entry(dir, cookie) = v.place_of(DIR, b"other") else { unreachable!() };
        v.put(Key::Entry(dir, Cookie(cookie.0 + 1)), &dirent(b"other", LINKED, FileKind::File));
    }),
    (FaultKind::NoInode, Some(Ino(500)), |v| {
        v.put(v.place_of(DIR, b"nothing"), &dirent(b"nothing", Ino(500), FileKind::File));
    }),
    (FaultKind::WrongPlace, Some(INLINE), |v| {
        v.put(Key::Inode(INLINE), &StoredInode::Covered { parent: DIR, cookie: Cookie(256) });
    }),
    (FaultKind::WrongPlace, Some(INLINE), |v| {
        v.edit_covered(INLINE, |inode| inode.attr.nlink = 2);
        v.put(v.place_of(DIR, b"again"), &dirent(b"again", INLINE, FileKind::File));
    }),
    (FaultKind::NoEntry, Some(INLINE), |v| v.remove(v.entry_of(INLINE))),
    (FaultKind::WrongKind, Some(LINKED), |v| {
        v.put(v.place_of(DIR, b"other"), &dirent(b"other", LINKED, FileKind::Fifo));
    }),
    (FaultKind::NoContent, Some(LINKED), |v| v.remove(Key::Content(LINKED))),
    (FaultKind::Stray, Some(INLINE), |v| {
        let content: Content = v.read(Key::Content(LINKED));
        v.put(Key::Content(INLINE), &content);
    }),
    (FaultKind::Stray, Some(Ino(501)), |v| {
        v.put(Key::Orphan(Ino(501)), &OrphanRecord { holders: vec![NodeId(1)] });
    }),
    (FaultKind::WrongPages, Some(PAGED), |v| v.remove(Key::ExtentPage(PAGED, 3))),
    (FaultKind::WrongPages, Some(PAGED), |v| {
        // More than the totals can say.
        for ino in [INLINE, EXTENTS, PAGED] {
            v.edit_covered(ino, |inode| inode.content.body = Body::Paged { mapped_bytes: i64::MAX as u64 });
        }
    }),
    (FaultKind::NoXattrs, Some(SPILLED), |v| v.remove(Key::Xattrs(SPILLED))),
    (FaultKind::WrongLinks, Some(LINKED), |v| {
        v.edit(Key::Inode(LINKED), |stored: &mut StoredInode| match stored {
            StoredInode::Own { attr } => attr.nlink = 5,
            _ => unreachable!(),
        });
    }),
    (FaultKind::WrongLinks, Some(DIR), |v| {
        v.edit(Key::Inode(DIR), |stored: &mut StoredInode| match stored {
            StoredInode::Directory { inode } => inode.attr.nlink = 9,
            _ => unreachable!(),
        });
    }),
    (FaultKind::WrongLinks, Some(LINKED), |v| {
        v.edit(Key::Inode(LINKED), |stored: &mut StoredInode| match stored {
            StoredInode::Own { attr } => attr.nlink = 0,
            _ => unreachable!(),
        });
        v.put(Key::Orphan(LINKED), &OrphanRecord { holders: vec![NodeId(1)] });
    }),
    (FaultKind::WrongLinks, Some(EXTENTS), |v| {
        v.edit_covered(EXTENTS, |inode| inode.attr.nlink = 0);
        v.put(Key::Orphan(EXTENTS), &OrphanRecord { holders: vec![NodeId(1)] });
    }),
    (FaultKind::WrongLinks, Some(SUB), |v| {
        v.edit_directory(SUB, |attr| attr.nlink = 0);
        v.put(Key::Orphan(SUB), &OrphanRecord { holders: vec![NodeId(1)] });
    }),
    (FaultKind::Unreachable, Some(SUB), |v| {
        v.remove(v.place_of(DIR, b"sub"));
        v.edit_directory(DIR, |attr| attr.nlink -= 1);
        v.edit_directory(SUB, |attr| attr.nlink = 0);
        v.put(Key::Orphan(SUB), &OrphanRecord { holders: vec![NodeId(1)] });
    }),
    (FaultKind::WrongParent, Some(SUB), |v| {
        v.edit(Key::Inode(SUB), |stored: &mut StoredInode| match stored {
            StoredInode::Directory { inode } => inode.attr.parent = Ino::ROOT,
            _ => unreachable!(),
        });
    }),
    (FaultKind::Unreachable, Some(SUB), |v| {
        // The directory is its own grandchild.
        v.remove(v.place_of(Ino::ROOT, b"dir"));
        v.put(v.place_of(SUB, b"dir"), &dirent(b"dir", DIR, FileKind::Directory));
    }),
    (FaultKind::NoOrphan, Some(ORPHAN), |v| {
        let new = new_inode(ORPHAN, FileKind::File, b"");
        v.run(&meta::Op::CreateOrphan { parent: DIR, new });
        v.remove(Key::Orphan(ORPHAN));
    }),
    (FaultKind::MissingData, Some(EXTENTS), |v| {
        chunk::SegmentStore::delete(&v.store, SegmentId(1)).unwrap();
    }),
    (FaultKind::BadData, Some(EXTENTS), |v| v.store.corrupt(SegmentId(1), 1000)),
    (FaultKind::DamagedSegment, Some(EXTENTS), |v| v.store.corrupt(SegmentId(1), 80)),
    (FaultKind::DeadDamage, None, |v| {
        chunk::SegmentStore::create(&v.store, SegmentId(50)).unwrap();
        let junk = std::io::IoSlice::new(&[1; 500]);
        chunk::SegmentStore::write_at(&v.store, SegmentId(50), 0, &[junk]).unwrap();
    }),
    (FaultKind::WrongLiveBytes, None, |v| {
        v.edit(first_segment(), |record: &mut SegmentRecord| record.live_bytes += 1);
    }),
    (FaultKind::WrongLiveBytes, None, |v| v.remove(first_segment())),
    (FaultKind::WrongTotals, None, |v| v.edit(Key::Totals, |totals: &mut Totals| totals.bytes += 1)),
    (FaultKind::WrongUsage, None, |v| {
        v.edit(Key::Usage(Account::User(0)), |usage: &mut UsageRecord| usage.inodes += 1);
    }),
    (FaultKind::WrongUsage, None, |v| {
        v.put(Key::Usage(Account::Tree(7)), &UsageRecord { bytes: 0, inodes: 1 });
    }),
    (FaultKind::UnusedSegment, None, |v| {
        chunk::SegmentStore::create(&v.store, SegmentId(50)).unwrap();
    }),
    (FaultKind::DeadMember, None, |v| {
        let (label, device) = ("host:/mnt".to_owned(), "0:1".to_owned());
        let record =
            MemberRecord { pid: 1, pid_start: 1, label, device, batch: BatchSeq(0), segments: Vec::new() };
        v.put(Key::Member(NodeId(1)), &record);
    }),
];

#[test]
fn a_volume_with_one_of_everything_is_clean() {
    let report = Volume::new().check();
    assert_eq!(report.faults, []);
    let counts = report.counts;
    assert_eq!((counts.inodes, counts.directories, counts.names, counts.extents), (9, 3, 9, 6));
    assert_eq!(counts.data_bytes_read, 190_000);
}

#[test]
fn every_kind_of_damage_is_found_and_named() {
    for (kind, ino, plant) in PLANTS {
        let volume = Volume::new();
        plant(&volume);
        let report = volume.check();
        let found = report.faults.iter().find(|fault| fault.kind == *kind && fault.ino == *ino);
        let Some(found) = found else {
            panic!("{} of {ino:?} is not found: {:#?}", kind.name(), report.faults)
        };
        assert!(!found.what.is_empty());
        assert_eq!(report.is_clean(), kind.severity() == Severity::Note, "{:?}", report.faults);
    }
    let planted: std::collections::BTreeSet<FaultKind> = PLANTS.iter().map(|(kind, ..)| *kind).collect();
    let all: std::collections::BTreeSet<FaultKind> = FaultKind::ALL.iter().copied().collect();
    let missing: Vec<_> = all.difference(&planted).collect();
    // An engine in memory has no files.
    assert_eq!(missing, [&FaultKind::DamagedEngine, &FaultKind::DeadOrphan], "a kind that nothing plants");
}

/// What nobody needs by now is somebody's in a volume that is in use; everything else is found as well.
#[test]
fn a_volume_in_use_is_checked_alike() {
    let faults = |report: check::Report| -> Vec<String> {
        let faults = report.faults.iter().filter(|fault| fault.kind.severity() == Severity::Fault);
        faults.map(ToString::to_string).collect()
    };
    let sound = Volume::new().check_live();
    assert_eq!((sound.faults, sound.counts), (Vec::new(), Volume::new().check().counts));
    for (kind, _, plant) in PLANTS {
        let volume = Volume::new();
        plant(&volume);
        let (at_rest, in_use) = (volume.check(), volume.check_live());
        assert!(in_use.faults.iter().all(|fault| fault.kind.severity() == Severity::Fault));
        assert_eq!(faults(in_use), faults(at_rest), "{}", kind.name());
    }
}

#[test]
fn paths_lead_to_what_is_damaged() {
    let volume = Volume::new();
    volume.store.corrupt(SegmentId(1), 1000);
    let report = volume.check();
    assert_eq!(report.faults[0].path.as_deref(), Some("/dir/sub/extents"));
    assert!(report.faults[0].to_string().starts_with("bad-data: Entry("), "{}", report.faults[0]);
}

#[test]
fn what_needs_no_guess_is_repaired_and_the_rest_is_left() {
    let repairable = [
        FaultKind::WrongLinks,
        FaultKind::WrongLiveBytes,
        FaultKind::WrongTotals,
        FaultKind::WrongUsage,
        FaultKind::UnusedSegment,
    ];
    for (kind, _, plant) in PLANTS {
        let volume = Volume::new();
        plant(&volume);
        let before = volume.check();
        let repaired = check::repair(&volume.engine, &volume.options()).unwrap();
        if repairable.contains(kind) {
            assert_eq!(repaired.left.faults, [], "{}", kind.name());
            assert!(!repaired.done.is_empty());
            assert_eq!(volume.check().faults, []);
            assert!(check::repair(&volume.engine, &volume.options()).unwrap().done.is_empty());
        } else if kind.severity() == Severity::Fault {
            assert!(repaired.left.has(*kind), "{} is repaired by a guess: {:?}", kind.name(), repaired.done);
            assert!(repaired.left.faults.len() <= before.faults.len());
        }
    }
}

#[test]
fn nothing_is_counted_while_a_record_cannot_be_read() {
    // The damaged entry names most of the live bytes: counting without it would free them.
    let volume = Volume::new();
    let key = volume.entry_of(EXTENTS).to_vec();
    let mut value = kv::Engine::get(&volume.engine, &key).unwrap().unwrap();
    value[5] ^= 1;
    volume.commit(vec![(key, Some(value))]);
    let before: SegmentRecord = volume.read(first_segment());
    let repaired = check::repair(&volume.engine, &volume.options()).unwrap();
    assert_eq!(repaired.done, [] as [String; 0]);
    assert_eq!(volume.read::<SegmentRecord>(first_segment()), before);
    assert!(chunk::SegmentStore::list(&volume.store).unwrap().len() == 1);
}

fn damage(volume: &Volume, key: Key) {
    let key = key.to_vec();
    let mut value = kv::Engine::get(&volume.engine, &key).unwrap().unwrap();
    value[1] ^= 0x40;
    volume.commit(vec![(key, Some(value))]);
}

/// What they would say can be counted, also where that is nothing.
#[test]
fn damaged_sums_are_counted_anew() {
    let (tree, empty) = (Key::Usage(Account::Tree(7)), Key::Segment(SegmentId(50)));
    let all = [Key::Totals, Key::Usage(Account::User(0)), first_segment(), tree, empty];
    for sums in all.iter().map(std::slice::from_ref).chain([&all[..]]) {
        let volume = Volume::new();
        volume.put(tree, &UsageRecord { bytes: 1, inodes: 1 });
        volume.put(empty, &SegmentRecord { writer: NodeId(1), live_bytes: 1 });
        sums.iter().for_each(|key| damage(&volume, *key));
        let found = volume.check().faults.iter().filter(|f| f.kind == FaultKind::Damaged).count();
        assert_eq!(found, sums.len());
        let repaired = check::repair(&volume.engine, &volume.options()).unwrap();
        assert_eq!((repaired.left.faults, repaired.refused), (Vec::new(), None), "{sums:?}");
    }
    // Those of all accounts: it is no volume of an earlier version.
    let volume = Volume::new();
    for account in [Account::User(0), Account::Group(0)] {
        damage(&volume, Key::Usage(account));
    }
    let repaired = check::repair(&volume.engine, &volume.options()).unwrap();
    assert_eq!(repaired.left.faults, []);
    assert_eq!(volume.check().faults, []);
}

#[test]
fn a_repair_that_is_not_begun_says_why() {
    let volume = Volume::new();
    damage(&volume, volume.entry_of(EXTENTS));
    damage(&volume, Key::Totals);
    let repaired = check::repair(&volume.engine, &volume.options()).unwrap();
    assert!(repaired.refused.unwrap().contains("damaged-record: Entry("), "{:?}", repaired.left.faults);
    assert_eq!(repaired.done, [] as [String; 0]);
    assert_eq!(check::repair(&Volume::new().engine, &Volume::new().options()).unwrap().refused, None);
}

/// An earlier version wrote them, and no mount has come since.
#[test]
fn an_orphan_is_reclaimed_with_its_wide_pages() {
    let volume = Volume::new();
    volume.run(&meta::Op::Unlink { parent: SUB, name: name(b"paged"), open_here: true, bound: None });
    let mut wide = chunk::ExtentMap::new();
    for key in [0, 3].map(|page| Key::ExtentPage(PAGED, page)) {
        for extent in volume.read::<chunk::ExtentMap>(key).iter() {
            let _ = wide.insert(extent.clone());
        }
        volume.remove(key);
    }
    volume.put(Key::WideExtentPage(PAGED, 0), &wide);
    assert!(volume.check().is_clean() && volume.check().has(FaultKind::DeadOrphan));
    let repaired = check::repair(&volume.engine, &volume.options()).unwrap();
    assert_eq!(repaired.left.faults, []);
    assert_eq!(repaired.left.counts.extents, 2);
}

/// Goal: no record that a loss of power brings back names a segment that is gone. Method: the power goes as the first segment is to be
/// deleted.
#[test]
fn segments_are_removed_after_what_named_them() {
    for seed in 0..10 {
        let volume = Volume::with_orphan();
        assert_eq!(kv::Engine::sync(&volume.engine).unwrap(), kv::Engine::last_seq(&volume.engine));
        chunk::SegmentStore::create(&volume.store, SegmentId(50)).unwrap();
        volume.store.fail(chunk::Action::Delete, 0, chunk::Fault::Io);
        assert!(check::repair(&volume.engine, &volume.options()).is_err());
        volume.disk.crash(seed);
        let engine = volume.disk.open(kv::Claim::new(2)).unwrap();
        assert_eq!(kv::Engine::get(&engine, &Key::Orphan(ORPHAN).to_vec()).unwrap(), None, "seed {seed}");
    }
}

#[test]
fn orphans_of_dead_nodes_are_noted_and_reclaimed() {
    let volume = Volume::with_orphan();
    let report = volume.check();
    assert!(report.is_clean() && report.has(FaultKind::DeadOrphan), "{:?}", report.faults);
    let repaired = check::repair(&volume.engine, &volume.options()).unwrap();
    assert_eq!(repaired.left.faults, []);
    assert_eq!(repaired.left.counts.inodes, 9);
}
