//! From the raw device up to the file system and to its second node: how much of the device's throughput each layer leaves.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::bench::crew::Crew;
use crate::bench::device::Device;
use crate::bench::environment::{FileSystem, Machine, drop_caches};
use crate::bench::measure::{Shown, measure};
use crate::bench::report::{Figure, Report, Shares, Unit, unix_now};
use crate::bench::scratch::{Scratch, check_room};
use crate::bench::stream::BLOCK;
use crate::bench::task::{Stream, Work};
use crate::bench::{BenchError, Stage};

/// What is written and read, and where.
#[derive(Clone, Debug)]
pub struct Ladder {
    /// Mount points of the file system in question, one or two.
    pub mounts: Vec<PathBuf>,
    /// A device that is read. Without one the lowest beneath the file systems, if there is one and it may be read.
    pub device: Option<PathBuf>,
    /// A device that is written over and read.
    pub destroy: Option<PathBuf>,
    /// A directory of a local file system on the device.
    pub local: Option<PathBuf>,
    /// Layers between, the lowest first: devices, which are read, and directories.
    pub layers: Vec<Layer>,
    /// A directory of the file system in question, mounted by one node only or without its locks.
    pub alone: Option<PathBuf>,
    /// Bytes that are written and read in a run, in whole MiB.
    pub size: u64,
    /// How often.
    pub runs: u32,
}

/// A layer with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// For the report.
    pub name: String,
    /// A block device or a directory.
    pub path: PathBuf,
}

/// One rung.
struct Rung {
    name: String,
    /// Of the directory that a file is made in; `/` for devices.
    dir: PathBuf,
    target: PathBuf,
    is_direct: bool,
    is_written: bool,
}

/// What has to be there for as long as it is measured.
#[derive(Default)]
struct Held {
    rungs: Vec<Rung>,
    devices: Vec<Device>,
    scratches: Vec<Scratch>,
    notes: Vec<String>,
}

impl Ladder {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// [`BenchError`]; what was made is removed.
    pub fn run(&self, stage: &mut Stage<'_>) -> Result<Report, BenchError> {
        let (machine, started) = (Machine::look(), unix_now());
        let crew = Crew::new(1, &stage.worker)?;
        let held = self.hold()?;
        // Goes before what it makes files in.
        let mut crew = crew;
        let blocks = held.devices.iter().map(|device| device.len).fold(self.size, u64::min) / BLOCK as u64;
        let mut shown: Vec<[Vec<Shown>; 2]> = vec![Default::default(); held.rungs.len()];
        let mut has_dropped = true;
        let runs = self.runs as usize;
        for run in 0..runs {
            for (at, (rung, shown)) in held.rungs.iter().zip(&mut shown).enumerate() {
                // What one node has written, another one reads before it writes its own.
                let ways = if rung.name == SECOND { [false, true] } else { [true, false] };
                for is_write in ways.into_iter().filter(|is_write| rung.is_written || !is_write) {
                    let way = if is_write { "write" } else { "read" };
                    let what = format!("{}, {way}, {} of {runs}", rung.name, run + 1);
                    stage.tell(run * held.rungs.len() + at, runs * held.rungs.len(), &what);
                    has_dropped &= drop_caches();
                    let work = Work::Stream(rung.stream(is_write, blocks));
                    let found = measure(&mut crew, stage, vec![(rung.dir.clone(), work)])?;
                    shown[usize::from(is_write)].push(found);
                }
            }
            held.rungs.iter().for_each(Rung::clear);
        }
        let mut report = Report {
            bench: "ladder",
            figures: figures(&held.rungs, &shown),
            settings: self.settings(blocks),
            warnings: Vec::new(),
            notes: held.notes,
            version: stage.version.to_owned(),
            started,
            machine,
            file_system: FileSystem::of(&self.mounts[0]),
            local: self.local.as_ref().map(|local| FileSystem::of(local)),
            runs: self.runs as usize,
            beside: "raw",
        };
        report.judge();
        if !has_dropped {
            let text = "the kernel's caches could not be emptied (only root may): reads may come from memory";
            report.warnings.push(text.to_owned());
        }
        if blocks * (BLOCK as u64) < self.size / BLOCK as u64 * BLOCK as u64 {
            let text = format!("{} MiB only were written and read: a device is no longer", blocks);
            report.warnings.push(text);
        }
        Ok(report)
    }

    /// Refuses what would not fit.
    pub(crate) fn check_room(&self) -> Result<(), BenchError> {
        let layers = self.layers.iter().map(|layer| &layer.path).filter(|path| path.is_dir());
        let mut dirs = self.local.iter().chain(layers).chain(&self.alone);
        dirs.try_for_each(|dir| check_room(dir, 1, self.size))?;
        check_room(&self.mounts[0], self.mounts.len() as u64, self.size)
    }

    /// Makes and opens all that is needed.
    fn hold(&self) -> Result<Held, BenchError> {
        let mut held = Held::default();
        self.add_raw(&mut held)?;
        self.check_room()?;
        if let Some(local) = &self.local {
            self.add_directory(&mut held, "local".to_owned(), local)?;
        }
        for Layer { name, path } in &self.layers {
            match path.is_dir() {
                true => self.add_directory(&mut held, name.clone(), path)?,
                false => held.add_device(name.clone(), Device::to_read(path)?, true, false),
            }
        }
        if let Some(alone) = &self.alone {
            self.add_directory(&mut held, "alone".to_owned(), alone)?;
        }
        let first = if self.mounts.len() > 1 { "first mount" } else { "file system" };
        let scratch = Scratch::new(&self.mounts)?;
        for (name, place) in [first, SECOND].into_iter().zip(scratch.places()) {
            held.rungs.push(Rung::of_directory(name.to_owned(), place));
        }
        held.scratches.push(scratch);
        Ok(held)
    }

    fn add_raw(&self, held: &mut Held) -> Result<(), BenchError> {
        let (device, is_written) = match (&self.destroy, &self.device) {
            (Some(device), _) => (Some(Device::to_destroy(device)?), true),
            (None, Some(device)) => (Some(Device::to_read(device)?), false),
            (None, None) => {
                let mut dirs = self.local.iter().chain(&self.mounts);
                (dirs.find_map(|dir| Device::beneath(dir)), false)
            }
        };
        let Some(device) = device else {
            let text = "no device beneath that may be read: the ladder has no raw rungs (see --device)";
            held.notes.push(text.to_owned());
            return Ok(());
        };
        if !is_written {
            let path = device.path.display();
            held.notes.push(format!(
                "raw is {path}, which is only read; its blocks that nobody has written may not be read from the disk at all"
            ));
        }
        let again = Device::to_read(&device.path)?;
        held.add_device("raw direct".to_owned(), device, true, is_written);
        held.add_device("raw buffered".to_owned(), again, false, is_written);
        Ok(())
    }

    fn add_directory(&self, held: &mut Held, name: String, dir: &Path) -> Result<(), BenchError> {
        let scratch = Scratch::new(std::slice::from_ref(&dir.to_owned()))?;
        held.rungs.push(Rung::of_directory(name, scratch.first()));
        held.scratches.push(scratch);
        Ok(())
    }

    fn settings(&self, blocks: u64) -> serde_json::Value {
        let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
        json!({
            "mounts": self.mounts.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            "local": shown(&self.local),
            "device": shown(&self.device),
            "destroyed": shown(&self.destroy),
            "alone": shown(&self.alone),
            "layers": self.layers.iter().map(|layer| json!([layer.name, layer.path.to_string_lossy()])).collect::<Vec<_>>(),
            "bytes": blocks * BLOCK as u64,
        })
    }
}

impl Held {
    fn add_device(&mut self, name: String, device: Device, is_direct: bool, is_written: bool) {
        let target = device.path.clone();
        self.rungs.push(Rung { name, dir: PathBuf::from("/"), target, is_direct, is_written });
        self.devices.push(device);
    }
}

impl Rung {
    fn of_directory(name: String, dir: &Path) -> Self {
        Self { name, dir: dir.to_owned(), target: PathBuf::from(FILE), is_direct: false, is_written: true }
    }

    fn stream(&self, is_write: bool, blocks: u64) -> Stream {
        // What the second node writes is its own; what it reads is the first one's.
        let own = self.name == SECOND && is_write;
        let target = if own { PathBuf::from(SECOND_FILE) } else { self.target.clone() };
        Stream { target, is_write, is_direct: self.is_direct, is_synced: false, blocks }
    }

    /// Removes what was written, so that each run begins with nothing.
    fn clear(&self) {
        if self.target.is_relative() {
            // It may be gone by another rung's hand; what is left goes with the directory.
            _ = std::fs::remove_file(self.dir.join(FILE));
            _ = std::fs::remove_file(self.dir.join(SECOND_FILE));
        }
    }
}

/// All writes from the lowest rung up, then all reads.
fn figures(rungs: &[Rung], shown: &[[Vec<Shown>; 2]]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (way, is_write) in [("write", true), ("read", false)] {
        let (mut raw, mut below) = (None, None);
        for (rung, shown) in rungs.iter().zip(shown) {
            let shown = &shown[usize::from(is_write)];
            if shown.is_empty() {
                continue;
            }
            let mut figure = Figure::of(format!("{way}, {}", rung.name), Unit::Throughput, shown, &[]);
            let own = figure.median();
            if rung.name == "raw direct" {
                raw = Some(own);
            }
            let share = |of: Option<f64>| of.filter(|of| *of > 0.0).map(|of| own / of);
            figure.shares = Some(Shares { of_raw: share(raw), of_below: share(below) });
            below = Some(own);
            figures.push(figure);
        }
    }
    figures
}

const SECOND: &str = "second mount";
const FILE: &str = "stream";
const SECOND_FILE: &str = "stream-2";
