//! `holdfast watch` as people run it: on a disk that stalls, hangs and fails when told to, on the file systems there
//! are, and on what cannot be watched.
//!
//! Mounts need root and a FUSE device; where there is none, a line says so.

mod answers;
mod file_systems;
#[path = "../place/juicefs.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod juicefs;
#[path = "../place/mod.rs"]
mod place;
mod refusals;
mod slow_disk;
mod troubles;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

const BINARY: &str = env!("CARGO_BIN_EXE_holdfast");

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
