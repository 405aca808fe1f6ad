//! Room in the store: who may use the rest of it.
//!
//! What is only in memory here was promised already and counts as used, so that fsync of earlier data works on a
//! full disk. Asking the store costs a system call: between two looks the bytes let in are counted instead.

use meta::FsError;
use types::Micros;

use crate::core::Core;
use crate::wait::Try;

/// Room in the store, asked for now and then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpaceCache {
    asked_at: Micros,
    /// Less what is only in memory here.
    pub free_bytes: u64,
    /// As the store said.
    pub unused_bytes: u64,
    pub total_bytes: u64,
    pub known: bool,
    /// Until when storing is put off, since the store was full.
    full_until: Micros,
    kicked_at: Micros,
    /// Inodes of the volume, and when the master last said so.
    pub inodes: u64,
    pub counted_at: Option<Micros>,
    /// Content in memory only is not more than this.
    pub memory_at_most: usize,
    /// Bytes a second that become durable, as measured; 0 before anything did.
    pub sync_rate: u64,
}

impl Core {
    /// Room in the store, at most a tenth of a second old.
    pub(crate) fn space(&mut self) -> SpaceCache {
        let is_fresh = self.space.known && self.clock.now.since(self.space.asked_at) < SPACE_AGE;
        if !is_fresh {
            self.look_at_space();
        }
        self.space
    }

    fn look_at_space(&mut self) {
        let Ok(space) = self.store.space() else { return };
        let dirty: u64 = self.live.values().map(|live| live.dirty_bytes() as u64).sum();
        let unlogged: u64 = self.live.values().map(|live| live.capture_bytes() as u64).sum();
        let promised = dirty + LOG_COST * (unlogged + self.log.bytes() as u64);
        self.space = SpaceCache {
            asked_at: self.clock.now,
            free_bytes: space.free_bytes.saturating_sub(promised),
            unused_bytes: space.free_bytes,
            total_bytes: space.total_bytes,
            known: true,
            ..self.space
        };
    }

    /// The store had no room: what else is to be stored is put off.
    pub(crate) fn note_full(&mut self) {
        self.look_at_space();
        self.space.full_until = self.clock.now + FULL_PAUSE;
    }

    /// Looks for room that was made since the store was full: for somebody who waits.
    pub(crate) fn look_for_room(&mut self) {
        if self.clock.now < self.space.full_until {
            self.look_at_space();
        }
    }

    /// Whether storing so many bytes is put off: the store was full a moment ago, and shows no room for them. A try costs it
    /// several calls, while everybody waits for the core.
    pub(crate) fn is_put_off(&mut self, bytes: usize) -> bool {
        if self.clock.now >= self.space.full_until {
            return false;
        }
        let space = self.space();
        !space.known || space.unused_bytes < bytes as u64 + FULL_SLACK
    }

    /// Bytes that only removals may use.
    pub(crate) fn space_reserve(&self) -> u64 {
        self.config.reserve_bytes.min(self.space.total_bytes / 20)
    }

    /// Whether so little room is left that nothing should be promised of it: other nodes may use it meanwhile.
    pub(crate) fn is_space_tight(&mut self) -> bool {
        let space = self.space();
        let margin = TIGHT_BYTES.min(space.total_bytes / 10);
        let is_tight = space.known && space.free_bytes < self.space_reserve().saturating_add(margin);
        let is_due = self.clock.now.since(self.space.kicked_at) >= SPACE_AGE;
        if is_tight && is_due && !self.dirty_files.is_empty() && self.flushes.is_empty() {
            self.space.kicked_at = self.clock.now;
            self.flush_all();
        }
        is_tight
    }

    /// Refuses what needs room on a full volume: the rest is for removals.
    pub(crate) fn need_space(&mut self, bytes: u64) -> Try<()> {
        if !self.has_space(bytes) {
            self.look_at_space();
        }
        if self.has_space(bytes) {
            self.space.free_bytes = self.space.free_bytes.saturating_sub(bytes);
            return Ok(());
        }
        // What was removed here gives its room back once the master knows.
        if self.clock.now.since(self.space.kicked_at) >= SPACE_AGE {
            self.space.kicked_at = self.clock.now;
            if !self.live.is_empty() {
                self.flush_all();
            }
            // Each batch takes of the little that is left: none is sent for nothing.
            if !self.log.is_open_empty() || self.log.sync_asked() < self.log.last() {
                self.send_batch(true);
            }
        }
        Err(FsError::NoSpace.into())
    }

    fn has_space(&mut self, bytes: u64) -> bool {
        let space = self.space();
        !space.known || space.free_bytes >= self.space_reserve().saturating_add(bytes)
    }
}

/// Room beside the reserve below which writes are stored at once.
const TIGHT_BYTES: u64 = 64 << 20;
const SPACE_AGE: Micros = Micros::from_millis(100);
/// The engine writes a change to its journal and again when it sorts it away.
const LOG_COST: u64 = 2;
/// How long a store that was full is not tried again unless it shows room.
const FULL_PAUSE: Micros = Micros(1_000_000);
/// What storing takes beside the bytes themselves.
const FULL_SLACK: u64 = 64 << 10;
