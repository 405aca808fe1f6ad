//! The store on real directories, a full one among them.

use std::os::unix::fs::MetadataExt;
use std::process;

use types::{Ino, NodeId};

use super::*;
use crate::{SegmentWriter, WriterConfig, read_extent};

const S: SegmentId = SegmentId(0xabc);

/// A directory that goes when the test ends, with what is mounted on it.
struct TempDir {
    path: PathBuf,
    is_mounted: bool,
}

impl TempDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("chunk-{name}-{}", process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self { path, is_mounted: false }
    }

    /// A file system of `mib` MiB; `None` where the system does not permit one.
    fn tmpfs(name: &str, mib: u32) -> Option<Self> {
        let mut dir = Self::new(name);
        let options = std::ffi::CString::new(format!("size={mib}m")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("none", &dir.path, "tmpfs", flags, Some(options.as_c_str())) {
            Ok(()) => dir.is_mounted = true,
            Err(errno) => {
                println!("skipped: no tmpfs may be mounted here: {errno}");
                return None;
            }
        }
        Some(dir)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::DETACH);
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn read(store: &DirStore, segment: SegmentId, offset: u64, len: usize) -> Result<Vec<u8>, ChunkError> {
    let mut bytes = vec![0; len];
    store.read_at(segment, offset, &mut [IoSliceMut::new(&mut bytes)])?;
    Ok(bytes)
}

#[test]
fn a_segment_lives_its_life() {
    let dir = TempDir::new("life");
    let store = DirStore::open_with_reserve(dir.path.join("new"), 1 << 20).unwrap();
    assert!(matches!(read(&store, S, 0, 1), Err(ChunkError::Missing { segment: S })));
    store.create(S).unwrap();
    assert!(matches!(store.create(S), Err(ChunkError::Exists { segment: S })));
    // More parts than one system call takes, empty ones among them.
    let bytes: Vec<u8> = (0..6000u32).map(|n| n as u8).collect();
    let mut parts = vec![IoSlice::new(&[])];
    parts.extend(bytes.chunks(2).map(IoSlice::new));
    store.write_at(S, 10, &parts).unwrap();
    assert_eq!(read(&store, S, 10, 6000).unwrap(), bytes);
    let (mut a, mut b) = ([0; 7], vec![0; 5993]);
    store
        .read_at(S, 10, &mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut []), IoSliceMut::new(&mut b)])
        .unwrap();
    assert_eq!([&a[..], &b].concat(), bytes);
    let early = read(&store, S, 6009, 2).unwrap_err();
    assert!(matches!(early, ChunkError::Damaged { offset: 6009, what: Damage::EndsEarly, .. }));

    std::fs::write(dir.path.join("new/readme"), "not a segment").unwrap();
    std::fs::write(dir.path.join("new/ABC.seg"), "neither").unwrap();
    assert_eq!(store.list().unwrap(), [(S, 6010)]);
    store.sync(S).unwrap();
    let blocks = || std::fs::metadata(dir.path.join("new/0000000000000abc.seg")).unwrap().blocks();
    let reserved = blocks();
    store.seal(S, 6010).unwrap();
    assert!(blocks() * 512 <= 16 * 1024, "{} blocks of {reserved} left", blocks());
    assert!(matches!(store.seal(S, 6011), Err(ChunkError::Damaged { .. })));

    let reopened = DirStore::open(dir.path.join("new")).unwrap();
    assert_eq!(read(&reopened, S, 10, 6000).unwrap(), bytes);
    reopened.delete(S).unwrap();
    assert!(matches!(reopened.delete(S), Err(ChunkError::Missing { .. })));
    assert_eq!(reopened.list().unwrap(), []);
    let space = reopened.space().unwrap();
    assert!(0 < space.free_bytes && space.free_bytes <= space.total_bytes);
}

#[test]
fn open_files_are_bounded_but_unsynced_ones_stay() {
    let dir = TempDir::new("files");
    let store = DirStore::open_with_reserve(&dir.path, 0).unwrap();
    let segments = (1..=OPEN_FILES_MAX as u64 + 40).map(SegmentId);
    for segment in segments.clone() {
        store.create(segment).unwrap();
        store.write_at(segment, 0, &[IoSlice::new(&segment.0.to_le_bytes())]).unwrap();
        if segment.0 > 5 {
            store.sync(segment).unwrap();
        }
    }
    for segment in segments {
        assert_eq!(read(&store, segment, 0, 8).unwrap(), segment.0.to_le_bytes());
    }
    let open = store.open.lock();
    assert_eq!((open.by_segment.len(), open.by_use.len()), (OPEN_FILES_MAX, OPEN_FILES_MAX));
    assert!((1..=5).all(|unsynced| open.by_segment.contains_key(&SegmentId(unsynced))));
}

#[test]
fn after_a_failed_sync_a_segment_takes_no_more() {
    let dir = TempDir::new("poison");
    let store = DirStore::open_with_reserve(&dir.path, 0).unwrap();
    store.create(S).unwrap();
    // A pipe refuses fdatasync: the nearest to a device error that needs no device.
    let (_reader, pipe) = std::io::pipe().unwrap();
    store.open.lock().remove(S);
    store.open.lock().insert(S, Handle::new(File::from(std::os::fd::OwnedFd::from(pipe))));
    assert!(matches!(store.sync(S), Err(ChunkError::Io { action: Action::Sync, .. })));
    assert!(matches!(store.sync(S), Err(ChunkError::Poisoned { .. })));
    assert!(matches!(store.write_at(S, 0, &[]), Err(ChunkError::Poisoned { .. })));
}

#[test]
fn a_full_disk_is_told_and_what_was_stored_stands() {
    let Some(dir) = TempDir::tmpfs("full", 8) else { return };
    let store = Arc::new(DirStore::open(&dir.path).unwrap());
    assert_eq!(store.space().unwrap().total_bytes, 8 << 20);
    let mut writer = SegmentWriter::new(WriterConfig::new([1; 16], NodeId(1)), store.clone());
    writer.add_segments([S, SegmentId(2)]);
    let mut stored = Vec::new();
    let data = |n: u64| vec![n as u8 + 1; 300_000];
    let error = loop {
        match writer.append(Ino(7), stored.len() as u64 * 300_000, &[&data(stored.len() as u64)]) {
            Ok(extents) => stored.extend(extents),
            Err(error) => break error,
        }
        assert!(stored.len() < 100);
    };
    assert!(matches!(error, ChunkError::Full { action: Action::Write, segment: S }), "{error}");
    assert!(stored.len() >= 25, "only {} fit", stored.len());
    assert!(matches!(writer.append(Ino(7), 0, &[&data(0)]), Err(ChunkError::Full { .. })));

    // The sync cuts off what the failed write left, and less data fits then.
    let outcome = writer.sync_plan().run(&*store);
    assert!(writer.on_synced(outcome).is_empty());
    for (n, extent) in stored.iter().enumerate() {
        let mut bytes = vec![0; 300_000];
        read_extent(&*store, Ino(7), extent, extent.range(), &mut bytes).unwrap();
        assert_eq!(bytes, data(n as u64));
    }
    let small = writer.append(Ino(8), 0, &[b"small"]).unwrap();
    assert_eq!(small[0].segment(), SegmentId(2));
    assert_eq!(store.list().unwrap().len(), 2);
}

#[test]
fn what_a_dead_writer_reserved_is_given_back() {
    let dir = TempDir::new("trim");
    let store = DirStore::open_with_reserve(&dir.path, 8 << 20).unwrap();
    store.create(S).unwrap();
    store.write_at(S, 0, &[IoSlice::new(&[7; 100_000])]).unwrap();
    store.sync(S).unwrap();
    drop(store);
    let file = dir.path.join(file_name(S));
    let blocks = || std::fs::metadata(&file).unwrap().blocks() * 512;
    if blocks() < 8 << 20 {
        println!("skipped: this file system reserves nothing");
        return;
    }
    // Another process sees to it.
    let store = DirStore::open_with_reserve(&dir.path, 8 << 20).unwrap();
    assert!(store.trim(S).unwrap() >= 7 << 20);
    assert!(blocks() <= 200_000, "{} bytes stay", blocks());
    assert_eq!(store.segment_len(S).unwrap(), 100_000);
    let mut bytes = vec![0; 100_000];
    store.read_at(S, 0, &mut [IoSliceMut::new(&mut bytes)]).unwrap();
    assert!(bytes == [7; 100_000]);
    assert_eq!(store.trim(S).unwrap(), 0);
    assert!(matches!(store.trim(SegmentId(99)), Err(ChunkError::Missing { .. })));
}
