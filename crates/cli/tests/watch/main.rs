//! `holdfast watch` as people run it: on a disk that stalls, hangs and fails when told to, on the file systems there
//! are, and on what cannot be watched.
//!
//! Mounts need root and a FUSE device; where there is none, a line says so.

mod answers;
mod file_systems;
mod refusals;
mod slow_disk;
mod troubles;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

const BINARY: &str = env!("CARGO_BIN_EXE_holdfast");

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // In memory, so that other work on the machine's disk is not what is measured.
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let dir = base.join(format!("holdfast-watch-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).expect("a directory of its own");
        Self(std::fs::canonicalize(dir).expect("it exists"))
    }

    /// None, with a line that says so, where nothing can be mounted.
    fn to_mount() -> Option<Self> {
        if Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root() {
            return Some(Self::new());
        }
        println!("SKIPPED: mounting needs root and /dev/fuse");
        None
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        names(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    entries.map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8")).collect()
}

/// A watch under way, killed if the test fails.
struct Running(Option<Child>);

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let child = Command::new(BINARY)
            .arg("watch")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Self(Some(child.expect("the binary runs")))
    }

    /// Ends it as Ctrl-C does.
    fn interrupt(self) -> Output {
        let child = self.0.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), Signal::INT).expect("it runs");
        self.wait()
    }

    fn wait(mut self) -> Output {
        self.0.take().expect("it runs").wait_with_output().expect("it ends")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn watch(arguments: &[&str]) -> Output {
    Running::start(arguments).wait()
}

fn json(output: &Output) -> Json {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

fn code_and_error(output: &Output) -> (i32, String) {
    (output.status.code().expect("not killed"), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
