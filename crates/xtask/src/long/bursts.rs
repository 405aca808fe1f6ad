//! What starves everything else on a machine: as a hypervisor does that has given its processors to another.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// One process for each processor, in real time, that computes for a while and sleeps for as long; until this is dropped.
pub struct Bursts(Vec<Child>);

impl Bursts {
    /// Needs root, and `chrt`, `taskset` and `timeout`.
    pub fn begin() -> Result<Self, String> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut bursts = Self(Vec::new());
        for processor in 0..processors {
            bursts.0.push(begin_on(processor)?);
        }
        Ok(bursts)
    }
}

impl Drop for Bursts {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // The whole group. What computes is in one of its own, and ends by itself.
            _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status();
            _ = child.wait();
        }
    }
}

fn begin_on(processor: usize) -> Result<Child, String> {
    let mut command = Command::new("chrt");
    command.args(["--fifo", "50", "taskset", "--cpu-list", &processor.to_string(), "sh", "-c", LOOP]);
    command.process_group(0).stdin(Stdio::null());
    command.spawn().map_err(|error| format!("chrt: {error}"))
}

/// What ends the burst comes before it.
const LOOP: &str = "while :; do timeout 0.1 chrt --fifo 40 sh -c 'while :; do :; done'; sleep 0.1; done";
