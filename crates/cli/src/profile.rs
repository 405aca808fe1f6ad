//! What all CPUs do during a benchmark, recorded by perf(1).

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;

/// A recording. It ends when this is dropped.
pub struct Profile(Child);

impl Profile {
    /// Begins one, into a file that must not exist.
    pub fn begin(file: &Path) -> Result<Self, Failure> {
        let failed = |what: String| Failure::unwatched(format!("{}: {what}", file.display()));
        // Ours from here on; perf(1) keeps what it finds under another name, and what that is worth to somebody it cannot know.
        std::fs::File::create_new(file)
            .and_then(|_| std::fs::remove_file(file))
            .map_err(|error| failed(error.to_string()))?;
        let mut child = Command::new("perf")
            .args(["record", "--quiet", "--all-cpus", "-g", "--freq", "199", "--output"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| failed(format!("a profile needs perf(1): {error}")))?;
        let (begun, mut asleep) = (Instant::now(), 0);
        // Before it records it looks at all processes, which on a busy machine takes longer than a short benchmark; then it sleeps.
        while (!file.exists() || asleep < ASLEEP) && begun.elapsed() < PATIENCE {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(failed(format!("perf(1) ended: {status}")));
            }
            std::thread::sleep(STEP);
            asleep = if is_asleep(child.id()) { asleep + 1 } else { 0 };
        }
        Ok(Self(child))
    }
}

/// Whether a process waits for something: state S in proc_pid_stat(5), behind a name in parentheses.
fn is_asleep(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
}

impl Drop for Profile {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        // At SIGINT it writes what it has and ends.
        if let Some(pid) = pid
            && kill_process(pid, Signal::INT).is_ok()
        {
            _ = self.0.wait();
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(10);
/// Looks in a row at which it sleeps.
const ASLEEP: u32 = 5;
