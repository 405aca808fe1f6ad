//! One process at one mount that takes, converts, tests and gives up locks as a seed draws, and counts under them.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use fastrand::Rng;
use rustix::fs::{FlockOperation, flock};

use crate::calls::{self, Of};
use crate::history::{Answer, Call, Family, Mode, PLACES, UNIT, UNITS, Writer, places};

/// The variable that makes this program a process of the load.
pub const WORKER: &str = "HOLDFAST_LOCKS_WORKER";
/// Descriptions of each file that a process has.
const SLOTS: usize = 3;
/// On the first file processes wait for locks of their own until they get them: nothing but the detection of deadlocks keeps
/// them going. On the others everything happens, and waits are interrupted.
pub const FILES: u8 = 3;

/// Who a process is and where.
#[derive(Clone, Debug)]
pub struct Spec {
    pub root: PathBuf,
    pub history: PathBuf,
    /// Ends all when it is there.
    pub stop: PathBuf,
    pub seed: u64,
}

impl Spec {
    pub fn to_text(&self) -> String {
        let Self { root, history, stop, seed } = self;
        format!("{}\t{}\t{}\t{seed}", root.display(), history.display(), stop.display())
    }

    fn from_text(text: &str) -> Self {
        let words: Vec<&str> = text.split('\t').collect();
        let seed = words[3].parse().expect("a number");
        Self { root: words[0].into(), history: words[1].into(), stop: words[2].into(), seed }
    }
}

/// No test: a process of the load.
#[test]
fn be_worker() {
    if let Ok(text) = std::env::var(WORKER) {
        Worker::new(Spec::from_text(&text)).work();
    }
}

struct Worker {
    spec: Spec,
    rng: Rng,
    history: Writer,
    files: Vec<Vec<File>>,
    /// Record locks of each slot, by file and unit.
    held: Vec<Vec<[Mode; PLACES as usize]>>,
    is_patient: bool,
}

/// The node is gone.
struct Gone;

impl Worker {
    fn new(spec: Spec) -> Self {
        let mut rng = Rng::with_seed(spec.seed);
        let history = Writer::new(&spec.history);
        let is_patient = rng.u8(0..3) == 0;
        let held = vec![vec![[Mode::None; PLACES as usize]; SLOTS]; usize::from(FILES)];
        Self { spec, rng, history, files: Vec::new(), held, is_patient }
    }

    fn work(&mut self) {
        for file in 0..FILES {
            let opened: Result<Vec<File>, _> = (0..SLOTS).map(|_| self.open(file)).collect();
            let Ok(opened) = opened else { return };
            self.files.push(opened);
        }
        if !self.is_patient {
            let mut rng = self.rng.fork();
            calls::interrupt_this_thread(move || Duration::from_micros(rng.u64(2_000..60_000)));
        }
        while !self.spec.stop.exists() {
            if self.step().is_err() {
                return;
            }
            std::thread::sleep(Duration::from_micros(self.rng.u64(0..3_000)));
        }
        // Who waits for what this one has goes on to see the end, too.
        for file in 0..FILES {
            for slot in 0..SLOTS as u8 {
                _ = self.set(Family::Records, file, slot, Mode::None, (0, 0), false);
                _ = self.set(Family::Whole, file, slot, Mode::None, (0, 0), false);
            }
        }
    }

    fn open(&self, file: u8) -> std::io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.spec.root.join(format!("f{file}")))
    }

    fn step(&mut self) -> Result<(), Gone> {
        let file = if self.is_patient { 0 } else { self.rng.u8(1..FILES) };
        let slot = if self.is_patient { 0 } else { self.rng.u8(0..SLOTS as u8) };
        let range = self.range();
        match self.rng.u8(0..100) {
            0..45 => {
                let mode = self.mode();
                let wait = self.is_patient || self.rng.bool();
                let answer = self.set(Family::Records, file, slot, mode, range, wait)?;
                if answer == Answer::Deadlock {
                    self.set(Family::Records, file, slot, Mode::None, (0, 0), false)?;
                }
                self.count(file, slot)
            }
            45..72 => self.set(Family::Records, file, slot, Mode::None, range, false).map(drop),
            72..78 => self.set(Family::Records, file, slot, Mode::None, (0, 0), false).map(drop),
            78..86 => self.test(file, slot, range),
            86..96 if !self.is_patient => {
                let mode = [Mode::None, Mode::None, Mode::Shared, Mode::Exclusive][self.rng.usize(0..4)];
                let wait = mode != Mode::None && self.rng.bool();
                self.set(Family::Whole, file, slot, mode, (0, 0), wait).map(drop)
            }
            96..98 if !self.is_patient => self.reopen(file, slot),
            _ => Ok(()),
        }
    }

    fn range(&mut self) -> (u8, u8) {
        let start = self.rng.u8(0..UNITS);
        match self.rng.u8(0..10) {
            0 => (start, 0),
            1..7 => (start, 1),
            _ => (start, self.rng.u8(1..=UNITS - start)),
        }
    }

    fn mode(&mut self) -> Mode {
        if self.rng.bool() { Mode::Shared } else { Mode::Exclusive }
    }

    fn set(
        &mut self,
        family: Family,
        file: u8,
        slot: u8,
        mode: Mode,
        (start, len): (u8, u8),
        wait: bool,
    ) -> Result<Answer, Gone> {
        let handle = &self.files[usize::from(file)][usize::from(slot)];
        let call = Call::Set { family, file, slot, mode, start, len, wait };
        let answer = self.history.record(call, || match family {
            Family::Records => calls::set(handle.as_fd(), of(slot), mode, (start.into(), len.into()), wait),
            Family::Whole => {
                let operation = match (mode, wait) {
                    (Mode::None, _) => FlockOperation::Unlock,
                    (Mode::Shared, true) => FlockOperation::LockShared,
                    (Mode::Shared, false) => FlockOperation::NonBlockingLockShared,
                    (Mode::Exclusive, true) => FlockOperation::LockExclusive,
                    (Mode::Exclusive, false) => FlockOperation::NonBlockingLockExclusive,
                };
                match flock(handle, operation) {
                    Ok(()) => Answer::Done,
                    Err(errno) => Answer::of_errno(errno.raw_os_error()),
                }
            }
        });
        if matches!(answer, Answer::Error(_)) {
            return Err(Gone);
        }
        if family == Family::Records && answer == Answer::Done {
            let held = &mut self.held[usize::from(file)][usize::from(slot)];
            places(start, len).for_each(|unit| held[usize::from(unit)] = mode);
        }
        Ok(answer)
    }

    fn test(&mut self, file: u8, slot: u8, (start, len): (u8, u8)) -> Result<(), Gone> {
        let mode = self.mode();
        let handle = &self.files[usize::from(file)][usize::from(slot)];
        let call = Call::Test { file, slot, mode, start, len };
        let answer = self
            .history
            .record(call, || calls::test(handle.as_fd(), of(slot), mode, (start.into(), len.into())));
        if matches!(answer, Answer::Error(_)) { Err(Gone) } else { Ok(()) }
    }

    fn reopen(&mut self, file: u8, slot: u8) -> Result<(), Gone> {
        let path = self.spec.root.join(format!("f{file}"));
        let handles = &mut self.files[usize::from(file)];
        let call = Call::Reopen { file, slot };
        let answer = self.history.record(call, || {
            drop(handles.remove(usize::from(slot)));
            match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(opened) => {
                    handles.insert(usize::from(slot), opened);
                    Answer::Done
                }
                Err(error) => Answer::Error(error.raw_os_error().unwrap_or(0)),
            }
        });
        // Any close of a file by a process gives up the process' own locks of it.
        for gone in [0, usize::from(slot)] {
            self.held[usize::from(file)][gone] = [Mode::None; PLACES as usize];
        }
        if answer == Answer::Done { Ok(()) } else { Err(Gone) }
    }

    /// Counts one up where this process may.
    fn count(&mut self, file: u8, slot: u8) -> Result<(), Gone> {
        let held = &self.held[usize::from(file)][usize::from(slot)];
        let Some(unit) = (0..UNITS).find(|unit| held[usize::from(*unit)] == Mode::Exclusive) else {
            return Ok(());
        };
        let handle = &self.files[usize::from(file)][usize::from(slot)];
        let (offset, mut bytes) = (u64::from(unit) * UNIT, [0; UNIT as usize]);
        if handle.read_exact_at(&mut bytes, offset).is_err() {
            return Err(Gone);
        }
        let value = u64::from_le_bytes(bytes);
        let answer = self.history.record(Call::Count { file, unit, value }, || {
            match handle.write_all_at(&(value + 1).to_le_bytes(), offset) {
                Ok(()) => Answer::Done,
                Err(error) => Answer::Error(error.raw_os_error().unwrap_or(0)),
            }
        });
        if answer == Answer::Done { Ok(()) } else { Err(Gone) }
    }
}

fn of(slot: u8) -> Of {
    if slot == 0 { Of::Process } else { Of::Description }
}
