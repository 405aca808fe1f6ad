//! Gathers the bytes of a read from segments and memory.

use std::cell::RefCell;
use std::error::Error;

use chunk::{ChunkError, SegmentStore, read_extent};
use obs::Metrics;
use vfs::ReadJob;

/// Whether `job` is done faster than it is handed to another thread.
pub(crate) fn is_small(job: &ReadJob) -> bool {
    job.len <= SMALL_BYTES_MAX && job.parts.len() <= SMALL_PARTS_MAX
}

/// Runs `job` and gives its bytes to `take`, or `None` if they cannot be had; the log then says why.
///
/// The bytes lie in a buffer of the thread, which lives on for the next job: fresh memory for every read
/// would cost a page fault per 4 KiB.
pub(crate) fn with_bytes<R>(
    store: &dyn SegmentStore,
    metrics: &Metrics,
    job: &ReadJob,
    take: impl FnOnce(Option<&[u8]>) -> R,
) -> R {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < job.len {
            buffer.resize(job.len, 0);
        }
        let bytes = &mut buffer[..job.len];
        let filled = fill(store, job, bytes);
        let taken = match filled {
            Ok(()) => take(Some(bytes)),
            Err(error) => {
                report(metrics, job, &error);
                take(None)
            }
        };
        buffer.truncate(KEPT_BYTES_MAX);
        buffer.shrink_to(KEPT_BYTES_MAX);
        taken
    })
}

/// Fills all of `out`: what is in no part with zeros first, for an earlier read has left its bytes there.
fn fill(store: &dyn SegmentStore, job: &ReadJob, out: &mut [u8]) -> Result<(), ChunkError> {
    let mut filled = 0;
    for (at, extent) in &job.parts {
        if *at > filled {
            out[filled..*at].fill(0);
        }
        filled = filled.max(*at + extent.len() as usize);
    }
    out[filled..].fill(0);
    for (at, extent) in &job.parts {
        let len = extent.len() as usize;
        read_extent(store, job.ino, extent, extent.range(), &mut out[*at..*at + len])?;
    }
    for (at, bytes) in &job.overlay {
        out[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    Ok(())
}

fn report(metrics: &Metrics, job: &ReadJob, error: &ChunkError) {
    match error {
        ChunkError::Damaged { .. } | ChunkError::DamagedContent { .. } => metrics.checksum_failures.add(1),
        ChunkError::Full { .. }
        | ChunkError::Missing { .. }
        | ChunkError::Exists { .. }
        | ChunkError::Poisoned { .. }
        | ChunkError::Overwrite { .. }
        | ChunkError::NeedSegments { .. }
        | ChunkError::Extent { .. }
        | ChunkError::Directory { .. }
        | ChunkError::Io { .. } => metrics.errors_unknown.add(1),
    }
    match error.source() {
        Some(source) => log::error!("read of ino {} answered with EIO: {error}: {source}", job.ino),
        None => log::error!("read of ino {} answered with EIO: {error}", job.ino),
    }
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The kernel's largest READ.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// A read of this much from the page cache of the store takes less than waking a thread.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Each part is a system call.
const SMALL_PARTS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::{Action, Extent, Fault, MemStore, Run};
    use std::io::IoSlice;
    use types::{Ino, SegmentId};

    const SEGMENT: SegmentId = SegmentId(3);

    /// A store with `data` at offset 0 of one segment, and the extent that maps it to file offset 0.
    fn stored(data: &[u8]) -> (MemStore, Extent) {
        let store = MemStore::new();
        store.create(SEGMENT).unwrap();
        store.write_at(SEGMENT, 0, &[IoSlice::new(data)]).unwrap();
        let run = Run::of_data(SEGMENT, 0, &[data]).unwrap();
        (store, Extent::new(0, run).unwrap())
    }

    fn job(len: usize, parts: Vec<(usize, Extent)>, overlay: Vec<(usize, Box<[u8]>)>) -> ReadJob {
        ReadJob { ino: Ino(9), len, parts, overlay, pin: 1 }
    }

    #[test]
    fn parts_holes_and_overlay_make_the_answer() {
        let (store, extent) = stored(b"abcdef");
        let metrics = Metrics::new();
        // What an earlier, longer read left behind must not show in the holes.
        with_bytes(&store, &metrics, &job(20, Vec::new(), vec![(0, vec![b'x'; 20].into())]), |_| ());
        let parts = vec![(2, extent.slice(1..5).unwrap())];
        let overlay = vec![(4, b"XYZ".to_vec().into()), (8, b"!".to_vec().into())];
        let bytes = with_bytes(&store, &metrics, &job(10, parts, overlay), |b| b.map(<[u8]>::to_vec));
        assert_eq!(bytes.unwrap(), b"\0\0bcXYZ\0!\0");
        assert_eq!((metrics.checksum_failures.get(), metrics.errors_unknown.get()), (0, 0));
    }

    #[test]
    fn damaged_bytes_are_counted_and_not_shown() {
        let (store, extent) = stored(b"abcdef");
        store.corrupt(SEGMENT, 2);
        let metrics = Metrics::new();
        let is_none = with_bytes(&store, &metrics, &job(6, vec![(0, extent)], Vec::new()), |b| b.is_none());
        assert!(is_none);
        assert_eq!((metrics.checksum_failures.get(), metrics.errors_unknown.get()), (1, 0));
    }

    #[test]
    fn a_failing_store_is_counted_apart() {
        let (store, extent) = stored(b"abcdef");
        store.fail(Action::Read, 0, Fault::Io);
        let metrics = Metrics::new();
        assert!(with_bytes(&store, &metrics, &job(6, vec![(0, extent)], Vec::new()), |b| b.is_none()));
        assert_eq!((metrics.checksum_failures.get(), metrics.errors_unknown.get()), (0, 1));
    }

    #[test]
    fn few_short_parts_are_small() {
        let (_store, extent) = stored(b"abcdef");
        let parts = |count| vec![(0, extent.clone()); count];
        assert!(is_small(&job(64 << 10, parts(4), Vec::new())));
        assert!(!is_small(&job((64 << 10) + 1, parts(1), Vec::new())));
        assert!(!is_small(&job(100, parts(5), Vec::new())));
    }
}
