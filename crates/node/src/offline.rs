//! A volume that nobody has mounted: checked, repaired, dumped, loaded.
//!
//! The master's lock is held meanwhile, so no node becomes master; and no member that still lives is recorded, so
//! none waits for a master with changes in its memory.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use check::{CheckError, DumpError, Neighbours, Options, Repaired, Report, Scrubbed};
use chunk::SegmentStore;
use kv::{Engine, KeyRange};
use meta::{CookieKey, Key, KeyKind, MemberRecord};
use volume::{MasterLock, Volume, VolumeError};

use crate::error::NodeError;
use crate::pacer::Pacer;
use crate::process;
use crate::service::{self, open_engine};
use crate::store::VolumeStore;

/// The table of a volume's metadata, by its path, that a compaction found damaged. Nothing is merged since.
pub fn damaged_table(volume: &Volume) -> Option<PathBuf> {
    kv_fjall::known_damage(&volume.meta_dir()).map(|table| volume.meta_dir().join(table))
}

/// Why an unmounted volume could not be worked on.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// The volume cannot be used.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Somebody is the volume's master.
    #[error("the volume is in use: mounted (its master is process {0}), or checked by that; unmount it everywhere", name_of(*pid))]
    Mounted {
        /// Who, if known.
        pid: Option<u32>,
    },
    /// A node waits for a master.
    #[error("the volume is mounted at {label} (process {pid}); unmount it everywhere")]
    MemberLives {
        /// Where.
        label: String,
        /// Its process.
        pid: u32,
    },
    /// Metadata or segments cannot be opened.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The check could not be made.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The dump could not be made or loaded.
    #[error(transparent)]
    Dump(#[from] DumpError),
}

/// Which file data a check looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataCheck {
    /// Whether it is there.
    Lengths,
    /// All of it is read and compared with its sums.
    Sums,
}

/// What a volume is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Only to be looked at: its tables stay as they are, damaged ones too.
    Look,
    /// To be changed.
    Change,
}

/// A volume that nobody else uses until this is closed or dropped.
pub struct Offline {
    engine: Box<dyn Engine>,
    store: VolumeStore,
    volume: Volume,
    _lock: MasterLock,
}

impl Offline {
    /// Takes an unmounted volume for itself.
    ///
    /// # Errors
    ///
    /// [`OfflineError::Mounted`] and [`OfflineError::MemberLives`] if it is in use.
    pub fn open(path: &Path, purpose: Purpose) -> Result<Self, OfflineError> {
        let volume = Volume::open(path)?;
        let Some(lock) = volume.try_elect()? else {
            return Err(OfflineError::Mounted { pid: volume.master_pid()? });
        };
        let engine = Box::new(open_engine(&volume, purpose == Purpose::Change)?);
        let store = VolumeStore::open(&volume, Arc::new(obs::Metrics::new()))?;
        let offline = Self { store, engine, volume, _lock: lock };
        offline.refuse_living_members()?;
        // A loss of power may have come after the last mount.
        master::redo(&*offline.engine, &offline.store).map_err(NodeError::from)?;
        Ok(offline)
    }

    /// Checks everything.
    pub fn check(&self, data: DataCheck) -> Result<Report, OfflineError> {
        if self.is_new()? {
            return Ok(Report::default());
        }
        Ok(check::check(&*self.engine, &self.options(data))?)
    }

    /// Repairs what needs no guess, and checks again.
    pub fn repair(&self, data: DataCheck) -> Result<Repaired, OfflineError> {
        if self.is_new()? {
            return Ok(Repaired::default());
        }
        Ok(check::repair(&*self.engine, &self.options(data))?)
    }

    /// Reads everything and compares it with its checksums, `bytes_per_second` at most.
    pub fn scrub(&self, bytes_per_second: Option<u64>) -> Result<Scrubbed, OfflineError> {
        let mut pacer = Pacer::new(bytes_per_second);
        let pace = &mut |bytes| {
            pacer.wait_after(bytes, |time| {
                std::thread::sleep(time);
                true
            });
            true
        };
        if self.is_new()? {
            return Ok(Scrubbed { is_complete: true, ..Scrubbed::default() });
        }
        Ok(check::scrub(&*self.engine, &self.store, Neighbours::None, pace)?)
    }

    /// Writes all metadata as text. Returns how many records.
    pub fn dump(&self, out: &mut dyn Write) -> Result<u64, OfflineError> {
        self.is_new()?;
        Ok(check::dump(&*self.engine, self.volume.header().id.0, out)?)
    }

    /// Loads a dump of this volume into its empty metadata. Returns how many records.
    pub fn load(&self, input: &mut dyn BufRead) -> Result<u64, OfflineError> {
        Ok(check::load(&*self.engine, self.volume.header().id.0, input)?)
    }

    /// Gives the volume free. What was changed is durable then, and the next mount finds nothing to read over again.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn close(self) -> Result<(), OfflineError> {
        Ok(self.engine.close().map_err(NodeError::from)?)
    }

    /// Whether it was never mounted. Nothing but a dump to load is to be had of one whose metadata are missing.
    fn is_new(&self) -> Result<bool, OfflineError> {
        Ok(service::is_new(&*self.engine, &self.volume, &self.store)?)
    }

    fn options(&self, data: DataCheck) -> Options<'_> {
        let store: &dyn SegmentStore = &self.store;
        Options {
            cookie_key: Some(CookieKey(self.volume.header().cookie_key)),
            store: Some(store),
            reads_data: data == DataCheck::Sums,
        }
    }

    fn refuse_living_members(&self) -> Result<(), OfflineError> {
        let (start, end) = Key::range_of_kind(KeyKind::Member);
        let mut living = None;
        kv::scan_all(&*self.engine, KeyRange::new(start, end), |(key, value)| {
            if let Ok(member) = meta::value_decode::<MemberRecord>(&key, &value) {
                let is_alive = match process::can_be_told(member.pid_start) {
                    // Of a copy of a volume the members live elsewhere. A node has the directory of the segments open.
                    true => {
                        !process::is_gone(member.pid, member.pid_start)
                            && process::may_have_open(member.pid, &self.volume.segments_dir())
                    }
                    // In a PID namespace of its own: what it listens at is in the volume.
                    false => self.volume.connect(&format!("node-{}", member.device)).is_ok(),
                };
                if is_alive {
                    living = Some(OfflineError::MemberLives { label: member.label, pid: member.pid });
                }
            }
        })
        .map_err(CheckError::from)?;
        living.map_or(Ok(()), Err)
    }
}

fn name_of(pid: Option<u32>) -> String {
    pid.map_or("unknown".to_owned(), |pid| pid.to_string())
}
