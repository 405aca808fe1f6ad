//! Where log lines go: standard error in the foreground, else the system log. `HOLDFAST_LOG` sets the level.

use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::time::{SystemTime, UNIX_EPOCH};

use log::{LevelFilter, Log, Metadata, Record};

use crate::units;

/// Where log lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard error.
    Terminal,
    /// Datagrams to `/dev/log`, best effort: a full or missing system log loses lines, never time.
    Syslog,
}

/// Starts logging. Does nothing when it was started before.
pub fn start(target: Target) {
    let level = level_of(std::env::var("HOLDFAST_LOG").ok().as_deref());
    let sink: Box<dyn Log> = match target {
        // The journal stamps what it takes from a service's standard error.
        Target::Terminal => Box::new(Terminal { stamps: std::env::var_os("JOURNAL_STREAM").is_none() }),
        Target::Syslog => Box::new(Syslog::new()),
    };
    if log::set_boxed_logger(sink).is_ok() {
        log::set_max_level(level);
    }
}

fn level_of(text: Option<&str>) -> LevelFilter {
    text.and_then(|text| text.parse().ok()).unwrap_or(LevelFilter::Info)
}

struct Terminal {
    stamps: bool,
}

/// The time before a line, or nothing where who reads the lines stamps them.
fn now(stamps: bool) -> String {
    let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else { return String::new() };
    match stamps {
        true => format!("{} ", units::show_stamp(now)),
        false => String::new(),
    }
}

impl Log for Terminal {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        // One write, so that lines of several nodes on one terminal stay whole.
        let line =
            format!("{}{:<5} {}: {}\n", now(self.stamps), record.level(), record.target(), record.args());
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

struct Syslog {
    socket: Option<UnixDatagram>,
}

impl Syslog {
    fn new() -> Self {
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Self { socket: socket.ok() }
    }
}

impl Log for Syslog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        if let Some(socket) = &self.socket {
            let line = syslog_line(record.level(), std::process::id(), &record.args().to_string());
            // Sent by path each time, so that a restarted log daemon is found again.
            let _ = socket.send_to(line.as_bytes(), "/dev/log");
        }
    }

    fn flush(&self) {}
}

/// The form that syslog(3) sends; facility 3, daemon.
fn syslog_line(level: log::Level, pid: u32, message: &str) -> String {
    let severity = match level {
        log::Level::Error => 3,
        log::Level::Warn => 4,
        log::Level::Info => 6,
        log::Level::Debug | log::Level::Trace => 7,
    };
    let message: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
    format!("<{}>holdfast[{pid}]: {}", (3 << 3) | severity, message.replace('\n', " | "))
}

/// Below what every log daemon takes in one datagram.
const MESSAGE_CHARS_MAX: usize = 1500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_priority_name_and_pid() {
        assert_eq!(syslog_line(log::Level::Error, 7, "a\nb"), "<27>holdfast[7]: a | b");
        assert_eq!(syslog_line(log::Level::Info, 7, "x"), "<30>holdfast[7]: x");
    }

    #[test]
    fn an_unknown_level_means_info() {
        for (text, level) in [
            (None, LevelFilter::Info),
            (Some("loud"), LevelFilter::Info),
            (Some("debug"), LevelFilter::Debug),
            (Some("OFF"), LevelFilter::Off),
        ] {
            assert_eq!(level_of(text), level);
        }
    }
}
