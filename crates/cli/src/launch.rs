//! Mounting in the background: this program starts itself again and waits until the mount is ready.
//!
//! The child reports on its standard output, one line: `ready`, or `error CODE TEXT`. Then it leaves the
//! terminal. A child that ends without a line is reported by how it ended.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::backend;
use crate::commands::mount::Plan;
use crate::failure::Failure;
use crate::logging::{self, Target};

/// Starts the child and waits for its report.
pub fn in_background(plan: &Plan) -> Result<(), Failure> {
    let mut command = Command::new(own_path());
    command.arg0("holdfast").args(["mount", "--report-ready"]);
    for list in &plan.option_lists {
        command.arg("-o").arg(list);
    }
    command.arg("--").arg(&plan.volume).arg(&plan.mountpoint);
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped());
    command.env(TUNABLES, tunables(std::env::var_os(TUNABLES)));
    let mut child =
        command.spawn().map_err(|error| Failure::mount(format!("cannot start the node: {error}")))?;
    let mut line = String::new();
    if let Some(report) = child.stdout.take() {
        // A failed read is a missing line.
        let _ = BufReader::new(report).read_line(&mut line);
    }
    match parse_report(&line) {
        Some(result) => result,
        None => Err(Failure::mount(how_it_ended(&mut child))),
    }
}

/// Settings of the C library for a node, beside `given` ones. They are read when a program starts.
///
/// Each directory that is read makes and frees some hundred small pieces of memory at once. Of a size the library keeps seven at hand for a thread, and puts
/// the others together with what lies beside, only to split that again for the next directory.
fn tunables(given: Option<OsString>) -> OsString {
    let mut all = given.unwrap_or_default();
    if !all.as_encoded_bytes().windows(KEPT.len()).any(|part| part == KEPT.as_bytes()) {
        if !all.is_empty() {
            all.push(":");
        }
        all.push(KEPT);
        all.push("=1000");
    }
    all
}

/// See "Memory Allocation Tunables" in the GNU C library's manual.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// How many free pieces of a size each thread keeps.
const KEPT: &str = "glibc.malloc.tcache_count";

/// Closes what the child was given beside the standard descriptors: a lock or a pipe of whoever asked for the mount would be held as
/// long as that is there. Called before anything is opened.
#[expect(unsafe_code, reason = "descriptors of others are closed by number")]
pub fn close_inherited() {
    let Ok(list) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = list.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let numbers: Vec<i32> = numbers.filter(|number| *number > 2).collect();
    // One was the list's own.
    let is_open = |number: &i32| std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok();
    for number in numbers.into_iter().filter(is_open) {
        // SAFETY: it is open, and nothing of this process has been opened that would rely on it.
        unsafe { rustix::io::close(number) };
    }
}

/// Runs as that child: mounts, reports, stays until unmounted.
pub fn as_child(plan: Plan) -> Result<(), Failure> {
    // Fails only for a process group leader, which then has nothing to leave.
    let _ = rustix::process::setsid();
    logging::start(Target::Syslog);
    let mountpoint = plan.mountpoint.clone();
    let reported = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mark = std::sync::Arc::clone(&reported);
    let ready = Box::new(move || {
        mark.store(true, std::sync::atomic::Ordering::Relaxed);
        report_ready(&mountpoint);
    });
    match backend::mount(plan, ready) {
        Ok(()) => Ok(()),
        Err(failure) if reported.load(std::sync::atomic::Ordering::Relaxed) => {
            log::error!("{failure}");
            Err(failure)
        }
        Err(failure) => {
            let text = failure.message.replace('\n', " ");
            let _ = writeln!(std::io::stdout(), "error {} {text}", failure.code);
            // Said by the parent; a second line on the terminal would be one too many.
            std::process::exit(i32::from(failure.code));
        }
    }
}

fn report_ready(mountpoint: &Path) {
    let mut stdout = std::io::stdout();
    let told = writeln!(stdout, "ready").and_then(|()| stdout.flush());
    leave_terminal();
    if told.is_err() {
        // Whoever asked for the mount was interrupted. Not on this thread: the node must go on to
        // answer the kernel while it unmounts.
        log::warn!("mount of {} was interrupted; unmounting", mountpoint.display());
        let mountpoint = mountpoint.to_owned();
        std::thread::spawn(move || {
            if let Err(failure) = crate::commands::umount::detach(&mountpoint) {
                log::error!("{failure}");
            }
        });
    }
}

/// Points standard output and error to `/dev/null`.
fn leave_terminal() {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    match null {
        Ok(null) => {
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
        Err(error) => log::warn!("cannot open /dev/null: {error}"),
    }
}

/// This program's file; when it was replaced since, the running one through `/proc`.
pub fn own_path() -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or(running)
}

fn parse_report(line: &str) -> Option<Result<(), Failure>> {
    let line = line.strip_suffix('\n')?;
    if line == "ready" {
        return Some(Ok(()));
    }
    let (code, text) = line.strip_prefix("error ")?.split_once(' ')?;
    Some(Err(Failure { message: text.to_owned(), code: code.parse().ok()? }))
}

fn how_it_ended(child: &mut Child) -> String {
    match child.wait() {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("the node ended with exit code {code} before the mount was ready"),
            (None, Some(signal)) => {
                format!("the node was killed by signal {signal} before the mount was ready")
            }
            (None, None) => "the node ended before the mount was ready".to_owned(),
        },
        Err(error) => format!("the node ended before the mount was ready: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse_report, tunables};

    #[test]
    fn what_the_administrator_tunes_stays() {
        let of = |given: &str| tunables(Some(given.into())).into_string().unwrap_or_default();
        assert_eq!(tunables(None), "glibc.malloc.tcache_count=1000");
        assert_eq!(of(""), "glibc.malloc.tcache_count=1000");
        assert_eq!(of("glibc.malloc.hugetlb=1"), "glibc.malloc.hugetlb=1:glibc.malloc.tcache_count=1000");
        assert_eq!(of("glibc.malloc.tcache_count=9"), "glibc.malloc.tcache_count=9");
    }

    #[test]
    fn reports_are_read() {
        assert!(matches!(parse_report("ready\n"), Some(Ok(()))));
        let Some(Err(failure)) = parse_report("error 32 /v: no volume here\n") else {
            panic!("an error was reported");
        };
        assert_eq!((failure.code, failure.message.as_str()), (32, "/v: no volume here"));
        for line in ["", "ready", "error\n", "error x y\n", "panic\n"] {
            assert!(parse_report(line).is_none(), "{line:?}");
        }
    }
}
