//! Who asks a running watch: a Unix socket for checks, HTTP for Prometheus. The front's main thread answers.
//!
//! Both serve one asker at a time, each with [`PATIENCE`] to say what it wants and take what it gets.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use serde_json::Value as Json;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// The document, on one line.
    Document,
    /// The metrics.
    Metrics,
}

/// Hands a question to the main thread; false when that is gone.
pub(crate) type Ask = Box<dyn Fn(Question, Sender<String>) -> bool + Send>;

/// The socket of a running watch, removed when dropped.
pub(crate) struct Socket {
    path: PathBuf,
}

impl Socket {
    /// Listens at `path`; whoever may enter its directory may ask.
    pub fn open(path: &Path, ask: Ask) -> io::Result<Self> {
        if let Some(parent) = directory_of(path) {
            make_dir(parent)?;
            // Left by watches that were killed. One that is just about to listen refuses too, but its process lives.
            for old in watches_in(parent).into_iter().filter(|old| !has_process(old) && is_abandoned(old)) {
                // Another watch that starts may be quicker.
                let _ = std::fs::remove_file(old);
            }
        }
        let listener = match UnixListener::bind(path) {
            // Of a watch that was killed.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            other => other?,
        };
        let socket = Self { path: path.to_owned() };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
        std::thread::Builder::new().name("socket".to_owned()).spawn(move || {
            for stream in listener.incoming() {
                let Some(answer) = answer(&ask, Question::Document) else { return };
                if let Ok(mut stream) = stream {
                    let _ = stream.set_write_timeout(Some(PATIENCE));
                    // Whoever asked and went away needs no answer.
                    let _ = stream.write_all(answer.as_bytes());
                }
            }
        })?;
        Ok(socket)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Serves `/metrics` at `address`; returns where.
pub(crate) fn serve_metrics(address: &str, ask: Ask) -> io::Result<std::net::SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let at = listener.local_addr()?;
    std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let patience = Some(PATIENCE);
            if stream.set_read_timeout(patience).and(stream.set_write_timeout(patience)).is_ok() {
                // Whoever hangs up or talks nonsense learns nothing; the next is served.
                let _ = serve(stream, &ask);
            }
        }
    })?;
    Ok(at)
}

fn serve(mut stream: impl Read + Write, ask: &Ask) -> io::Result<()> {
    let mut request = Vec::new();
    let mut part = [0u8; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part)? {
            0 => return Ok(()),
            len => request.extend_from_slice(&part[..len]),
        }
        if request.len() > REQUEST_MAX {
            return respond(&mut stream, "431 Request Header Fields Too Large", "too long\n");
        }
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    match (words.next(), words.next()) {
        (Some(b"GET"), Some(b"/metrics" | b"/")) => match answer(ask, Question::Metrics) {
            Some(metrics) => respond(&mut stream, "200 OK", &metrics),
            None => respond(&mut stream, "503 Service Unavailable", "the watch is over\n"),
        },
        (Some(b"GET"), Some(_)) => respond(&mut stream, "404 Not Found", "see /metrics\n"),
        _ => respond(&mut stream, "405 Method Not Allowed", "GET /metrics\n"),
    }
}

fn respond(stream: &mut impl Write, status: &str, body: &str) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

fn answer(ask: &Ask, question: Question) -> Option<String> {
    let (send, receive) = channel();
    if ask(question, send) { receive.recv().ok() } else { None }
}

/// Where a watch of this user listens: `/run/holdfast` of root, else in `$XDG_RUNTIME_DIR`. None where there is no
/// such directory.
pub(crate) fn own_socket() -> Option<PathBuf> {
    let name = format!("watch-{}.sock", std::process::id());
    if rustix::process::geteuid().is_root() {
        return Some(Path::new(ROOT_DIR).join(name));
    }
    std::env::var_os("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join("holdfast").join(name))
}

/// Sockets of watches that this user may ask: its own and root's.
pub(crate) fn known_sockets() -> Vec<PathBuf> {
    let own = own_socket().and_then(|path| path.parent().map(Path::to_owned));
    let mut dirs: Vec<PathBuf> = own.into_iter().chain([PathBuf::from(ROOT_DIR)]).collect();
    dirs.dedup();
    dirs.iter().flat_map(|dir| watches_in(dir)).collect()
}

fn watches_in(dir: &Path) -> Vec<PathBuf> {
    let is_watch = |name: &str| name.starts_with("watch-") && name.ends_with(".sock");
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_watch));
    let mut found: Vec<PathBuf> = named.map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Asks the watch at `path` for its document.
pub(crate) fn ask_document(path: &Path) -> io::Result<Json> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    stream.take(DOCUMENT_MAX).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(io::Error::other)
}

/// Whether it is a socket that nobody listens at. What is no socket at all refuses connections as well (unix(7)).
fn is_abandoned(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    is_socket
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Whether the process that the name of a socket tells is there.
fn has_process(path: &Path) -> bool {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix("watch-").is_some_and(|id| Path::new("/proc").join(id).exists())
}

/// Of a bare name it is the current directory, which [`Path::parent`] has as "".
fn directory_of(path: &Path) -> Option<&Path> {
    path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

fn make_dir(dir: &Path) -> io::Result<()> {
    match std::fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

const ROOT_DIR: &str = "/run/holdfast";
/// How long one asker may take for each step.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request.
const REQUEST_MAX: usize = 8 << 10;
/// Longest document that is taken.
const DOCUMENT_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that has a request in it and keeps the response.
    struct Line(io::Cursor<Vec<u8>>, Vec<u8>);

    impl Read for &mut Line {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            // A few bytes at a time, as a network may.
            let len = buffer.len().min(7);
            self.0.read(&mut buffer[..len])
        }
    }

    impl Write for &mut Line {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn requests_get_what_they_ask_for() {
        let ask: Ask = Box::new(|question, answer| {
            assert_eq!(question, Question::Metrics);
            answer.send("metric 1\n".to_owned()).is_ok()
        });
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(9000));
        for (request, response) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n"),
            ("GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n"),
            ("GET /x HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
            ("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
            ("\r\n\r\n", "HTTP/1.1 405 "),
            (&long, "HTTP/1.1 431 "),
            ("GET /metrics", ""),
        ] {
            let mut line = Line(io::Cursor::new(request.as_bytes().to_vec()), Vec::new());
            serve(&mut line, &ask).unwrap();
            let found = String::from_utf8(line.1).unwrap();
            assert!(
                found.starts_with(response) && found.is_empty() == response.is_empty(),
                "{request}: {found}"
            );
            if response.contains("200") {
                assert!(
                    found.contains("Content-Length: 9\r\n") && found.ends_with("\r\n\r\nmetric 1\n"),
                    "{found}"
                );
            }
        }
    }
}
