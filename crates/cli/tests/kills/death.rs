//! How long a killed node takes to be gone, and where its threads are meanwhile.

use std::fs;
use std::path::PathBuf;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::stall::now_us;

/// Deaths that are watched, each by a thread.
#[derive(Default)]
pub struct Deaths(Vec<JoinHandle<u64>>);

impl Deaths {
    /// Watches a process that was killed just now. Where its threads are goes to `report` as long as it is not gone.
    pub fn watch(&mut self, pid: Pid, report: PathBuf) {
        let killed = now_us();
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        self.0.push(std::thread::spawn(move || {
            let mut text = String::new();
            while now_us() < killed + PATIENCE_US {
                let tick = Timespec { tv_sec: 0, tv_nsec: TICK_US * 1000 };
                if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&tick)).is_ok_and(|ready| ready > 0)
                {
                    break;
                }
                let took = (now_us() - killed) / 1000;
                text.push_str(&format!("after {took} ms\n{}", stacks(pid.as_raw_pid() as u32)));
                _ = fs::write(&report, &text);
            }
            now_us() - killed
        }));
    }

    /// How long each took, in microseconds.
    pub fn end(self) -> Vec<u64> {
        self.0.into_iter().filter_map(|thread| thread.join().ok()).collect()
    }
}

/// Where the threads of a process are in the kernel.
pub fn stacks(pid: u32) -> String {
    let mut text = String::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return text };
    for task in tasks.flatten().map(|task| task.path()) {
        let read = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
        let stack: Vec<String> = read("stack").lines().take(8).map(str::to_owned).collect();
        text.push_str(&format!("{pid} {}: {}\n", read("comm").trim(), stack.join(" ")));
    }
    text
}

const TICK_US: i64 = 100_000;
/// A process that takes longer hangs, which others notice.
const PATIENCE_US: u64 = 60_000_000;
