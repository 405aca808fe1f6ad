//! The thread that does the master's work on the segment store, at its leisure.
//!
//! A master that ends waits for it: its peers are hung up on by then. So whatever takes long looks between two steps whether it is to go on; the next
//! master has the same to do.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use chunk::{ChunkError, SegmentStore};
use kv::Engine;
use types::{Ino, SegmentId};

use super::Service;
use crate::link::describe;
use crate::shell::{Shell, Work};

/// What the master wants of the segment store.
#[derive(Debug)]
pub(super) enum SegmentJob {
    /// These removed.
    Delete(Vec<SegmentId>),
    /// What is reserved behind the end of these given back.
    Trim(Vec<SegmentId>),
    /// What fsyncs logged put into the segments that no member uses.
    PutBack { round: u64 },
    /// All of them listed.
    List,
    /// The files found that these were written for, or that name them at all.
    FindFiles(Vec<SegmentId>, bool),
    /// Extents of files copied to fresh segments.
    Copy(Vec<SegmentId>, Vec<(Ino, chunk::Extent)>),
}

/// What the master waits for before it orders the next job of its kind.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    Nothing,
    Deletion,
    Files,
    Copies,
}

impl SegmentJob {
    fn awaited(&self) -> Awaited {
        match self {
            Self::Delete(_) => Awaited::Deletion,
            Self::FindFiles(..) => Awaited::Files,
            Self::Copy(..) => Awaited::Copies,
            Self::Trim(_) | Self::PutBack { .. } | Self::List => Awaited::Nothing,
        }
    }
}

impl Service {
    /// The thread that removes segments nobody needs, at its leisure: a large file takes the disk a while.
    pub(super) fn clear_segments(&self, shell: &Shell) {
        while let Some(job) = self.segment_jobs.next() {
            if self.is_stopping() {
                return;
            }
            // What one job cannot be done for is no reason to end the node, nor the next master, which has the same to do.
            let awaited = job.awaited();
            let done = catch_unwind(AssertUnwindSafe(|| self.clear(shell, job)));
            if done.is_err() {
                log::error!("defect in a job on segments, which is left");
                self.with_master(|master, clock| match awaited {
                    Awaited::Deletion => master.segments_deleted(clock, &[]),
                    Awaited::Files => master.files_found(clock, &BTreeSet::new()),
                    Awaited::Copies => master.extents_copied(clock, Vec::new()),
                    Awaited::Nothing => {}
                });
            }
            shell.pump(Work::OfMaster);
        }
    }

    fn clear(&self, shell: &Shell, job: SegmentJob) {
        match job {
            SegmentJob::Delete(list) => {
                let list = list.into_iter().take_while(|_| !self.is_stopping());
                let deleted: Vec<SegmentId> =
                    list.filter(|segment| is_deleted(&*shell.store, *segment)).collect();
                self.with_master(|master, clock| master.segments_deleted(clock, &deleted));
            }
            SegmentJob::Trim(list) => self.trim(&*shell.store, &list),
            SegmentJob::PutBack { round } => self.put_back(&*shell.store, round),
            SegmentJob::FindFiles(list, everywhere) => {
                let files = match self.engine().filter(|_| everywhere) {
                    Some(engine) => self.find_sharers(&*engine, list),
                    None => self.find_files(&*shell.store, &list),
                };
                self.with_master(|master, clock| master.files_found(clock, &files));
            }
            SegmentJob::Copy(segments, list) => {
                let copies = self.copy_extents(shell, segments, list);
                self.with_master(|master, clock| master.extents_copied(clock, copies));
            }
            SegmentJob::List => match shell.store.list() {
                Ok(listed) => {
                    self.with_master(|master, clock| master.segments_listed(clock, &listed));
                }
                Err(error) => log::warn!("segments cannot be listed: {}", describe(&error)),
            },
        }
    }

    /// Puts into segments what fsyncs of nodes that are gone logged.
    fn put_back(&self, store: &dyn SegmentStore, round: u64) {
        let Some(engine) = self.engine() else { return };
        let Some(spared) = self.with_master(|master, _| master.segments_in_use()) else { return };
        match master::put_back(&*engine, store, &spared, &|| !self.is_stopping()) {
            Ok(keys) if keys.is_empty() => {}
            Ok(keys) => drop(self.with_master(|master, clock| master.were_put_back(clock, round, keys))),
            // The next opening does it.
            Err(error) => log::warn!("what fsyncs logged cannot be read: {}", describe(&error)),
        }
    }

    /// Files that name segments, found in all the metadata.
    fn find_sharers(&self, engine: &dyn Engine, list: Vec<SegmentId>) -> BTreeSet<(Ino, u64)> {
        let segments = list.into_iter().collect();
        let mut read = 0;
        let found = master::files_naming(engine, &segments, &mut |bytes| {
            read += bytes;
            if read >= FIND_BYTES {
                read = 0;
                std::thread::sleep(FIND_PAUSE);
            }
            !self.is_stopping()
        });
        found.unwrap_or_else(|error| {
            log::warn!("segments cannot be cleaned: {}", describe(&error));
            BTreeSet::new()
        })
    }

    /// Gives back what dead writers had reserved. What cannot be given back now is tried again by the next master.
    fn trim(&self, store: &dyn SegmentStore, list: &[SegmentId]) {
        let mut bytes = 0;
        for segment in list.iter().take_while(|_| !self.is_stopping()) {
            match store.trim(*segment) {
                Ok(given) => bytes += given,
                Err(error) => log::warn!("segment {segment} keeps its reserve: {}", describe(&error)),
            }
        }
        if bytes > 0 {
            log::info!("{bytes} bytes reserved by nodes that are gone are given back");
        }
    }

    /// Files that segments were written for. One that cannot be read is left to itself.
    fn find_files(&self, store: &dyn SegmentStore, list: &[SegmentId]) -> BTreeSet<(Ino, u64)> {
        let mut files = BTreeSet::new();
        for segment in list.iter().take_while(|_| !self.is_stopping()) {
            match chunk::files_of(store, *segment) {
                Ok(found) => files.extend(found),
                Err(error) => log::warn!("segment {segment} cannot be cleaned: {}", describe(&error)),
            }
        }
        files
    }

    /// Copies for the cleaner, if that leaves room for others.
    fn copy_extents(
        &self,
        shell: &Shell,
        segments: Vec<SegmentId>,
        list: Vec<(Ino, chunk::Extent)>,
    ) -> Vec<chunk::Copied> {
        let bytes: u64 = list.iter().map(|(_, extent)| u64::from(extent.len())).sum();
        let free = shell.store.space().map_or(0, |space| space.free_bytes);
        if free < bytes + bytes / 4 {
            log::info!("{bytes} bytes in segments that are mostly dead stay: only {free} are free");
            return Vec::new();
        }
        let header = shell.volume.header();
        let config = chunk::WriterConfig {
            segment_len: header.segment_bytes,
            ..chunk::WriterConfig::new(header.id.0, types::NodeId(0))
        };
        match chunk::copy_extents(&shell.store, config, segments, list, &|| !self.is_stopping()) {
            Ok(copies) => copies,
            Err(error) => {
                log::warn!("the cleaner cannot write: {}", describe(&error));
                Vec::new()
            }
        }
    }
}

/// Deletes a segment; returns whether it is gone.
fn is_deleted(store: &dyn SegmentStore, segment: SegmentId) -> bool {
    match store.delete(segment) {
        Ok(()) | Err(ChunkError::Missing { .. }) => true,
        Err(error) => {
            log::warn!("segment {segment} stays: {}", describe(&error));
            false
        }
    }
}

/// Metadata read without a pause when files are looked for in all of it.
const FIND_BYTES: u64 = 1 << 20;
const FIND_PAUSE: Duration = Duration::from_millis(2);
