//! Faults, taken away again with the test.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Limits of the root control group on a device: they bind everybody.
pub struct Throttle {
    numbers: String,
}

impl Throttle {
    /// None, with a line that says so, where there are no control groups of the first version.
    pub fn of(device: &str, bytes_per_second: u64) -> Option<Self> {
        let name = device.trim_start_matches("/dev/");
        let numbers = fs::read_to_string(format!("/sys/class/block/{name}/dev")).expect("a device");
        let this = Self { numbers: numbers.trim().to_owned() };
        if this.set(bytes_per_second).is_err() {
            println!("SKIPPED: no blkio control group of the first version");
            return None;
        }
        Some(this)
    }

    fn set(&self, bytes_per_second: u64) -> std::io::Result<()> {
        for way in ["read", "write"] {
            let file = format!("/sys/fs/cgroup/blkio/blkio.throttle.{way}_bps_device");
            fs::OpenOptions::new()
                .write(true)
                .open(file)?
                .write_all(format!("{} {bytes_per_second}\n", self.numbers).as_bytes())?;
        }
        Ok(())
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        _ = self.set(0);
    }
}

/// A control group.
pub struct Group {
    dir: PathBuf,
    members: std::cell::RefCell<Vec<u64>>,
}

impl Group {
    /// None, with a line that says so, where there are none of the first version.
    pub fn new(controller: &str, limits: &[(&str, &str)]) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup").join(controller);
        if !root.join("cgroup.procs").exists() || root.join("cgroup.controllers").exists() {
            println!("SKIPPED: no {controller} control group of the first version");
            return None;
        }
        let dir = root.join(format!("holdfast-{}", std::process::id()));
        fs::create_dir(&dir).expect("made");
        let this = Self { dir, members: Vec::new().into() };
        for (file, limit) in limits {
            fs::write(this.dir.join(file), limit).expect("set");
        }
        Some(this)
    }

    pub fn add(&self, pid: u64) {
        fs::write(self.dir.join("cgroup.procs"), pid.to_string()).expect("moved");
        self.members.borrow_mut().push(pid);
    }

    /// Runs a program in it.
    pub fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new("sh");
        let file = self.dir.join("cgroup.procs");
        command.arg("-c").arg(format!("echo $$ > {} && exec \"$@\"", file.display())).arg0("sh").arg("sh");
        command.args(words).output().expect("sh(1) is there")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for pid in self.members.borrow().iter() {
            if let Some(root) = self.dir.parent() {
                _ = fs::write(root.join("cgroup.procs"), pid.to_string());
            }
        }
        _ = fs::remove_dir(&self.dir);
    }
}

/// Makes and removes names in one directory, through each of several mounts at once.
pub struct Fight {
    threads: Vec<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
}

impl Fight {
    pub fn between(dirs: &[PathBuf]) -> Self {
        let (is_over, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let fighter = |(number, dir): (usize, &PathBuf)| {
            let (path, is_over, rounds) = (dir.join(format!("x{number}")), is_over.clone(), rounds.clone());
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    fs::File::create(&path).expect("made");
                    fs::remove_file(&path).expect("removed");
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads = dirs.iter().enumerate().map(fighter).collect();
        Self { threads, is_over, rounds }
    }

    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }
}

impl Drop for Fight {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

/// Fills a file system with small files, removes every second one of the first, and writes a large file into the holes.
pub fn fragment(root: &Path) {
    let dir = root.join("fill");
    fs::create_dir(&dir).expect("made");
    let path = |number: u32| dir.join(number.to_string());
    let mut count = 0;
    // Until it is full, of bytes or of inodes.
    while fs::write(path(count), [count as u8; PIECE]).is_ok() {
        count += 1;
    }
    rustix::fs::sync();
    for number in (0..count.min(2 * HOLES)).step_by(2) {
        fs::remove_file(path(number)).expect("removed");
    }
    rustix::fs::sync();
    let mut large = fs::File::create(root.join("large")).expect("made");
    for _ in 0..HOLES * 2 / 3 {
        large.write_all(&[7; PIECE]).expect("there are holes");
    }
    large.sync_all().expect("stored");
}

const PIECE: usize = 16 << 10;
const HOLES: u32 = 800;
