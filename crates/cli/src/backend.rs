//! The only place that calls the node: in this process to mount, over its control socket for all else.
//!
//! Control protocol: connect to the node's socket in the volume, send one line, read one JSON document until
//! end of file. White space may come before the document at any time. The lines:
//!
//! - `stat`: [`obs::Snapshot::to_json`] and beside it `uptime_seconds`.
//! - `status`: `node`, `host`, `pid`, `mountpoint`, `role` (`master` or `member`), `epoch`, `master` (node),
//!   `unflushed_mutations`, `unflushed_bytes`, `problem` if there is one, as a full disk; from a master also `members`, an array of such objects.
//! - `scrub RATE`, of the master: white space at least every few seconds, then what a scrub at so many bytes a second
//!   found, in the form of [`node::report_json`].
//! - `set`, `set NAME=on ...`: options that may change while mounted, by name, as they are then.
//! - `snapshot`, `record HEX`, of the master: see [`node::check_mounted`].
//! - `umount`: the node answers white space at once and keeps the connection open until it has been
//!   unmounted (the asker does that) and has flushed; then `clean` (boolean) and, if not, `error`.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use volume::{Volume, VolumeError, sources};

use crate::commands::mount::Plan;
use crate::failure::{Failure, with_causes};
use crate::logging::{self, Target};
use crate::options::{Atime, MountOptions, Uring};

/// Mounts and stays until unmounted. `ready` is called once the mount answers.
pub fn mount(plan: Plan, ready: Box<dyn FnOnce()>) -> Result<(), Failure> {
    let guard = node::GuardCommand {
        // This very program, also when its file has been replaced.
        program: "/proc/self/exe".into(),
        args: vec!["guard".into(), "--".into(), plan.mountpoint.clone().into()],
    };
    let request = node::MountRequest {
        guard,
        volume: plan.volume,
        mountpoint: plan.mountpoint,
        options: options_of(&plan.options),
    };
    node::mount(request, ready).map_err(|error| match error.is_loss() {
        true => Failure::problem(with_causes(&error)),
        false => Failure::mount(with_causes(&error)),
    })
}

/// Guards a mount: what a node starts beside itself.
pub fn guard() -> Result<(), Failure> {
    node::guard(|| logging::start(Target::Syslog)).map_err(|error| Failure::mount(format!("guard: {error}")))
}

fn options_of(options: &MountOptions) -> node::MountOptions {
    node::MountOptions {
        read_only: options.read_only,
        atime: match options.atime {
            Atime::Never => node::Atime::Never,
            Atime::Relative => node::Atime::Relative,
            Atime::Strict => node::Atime::Strict,
        },
        diratime: options.diratime,
        lazytime: options.lazytime,
        lazysize: options.lazysize,
        nomtime: options.nomtime,
        commit: options.commit,
        sync: options.sync,
        dirsync: options.dirsync,
        allow_other: options.allow_other,
        default_permissions: options.default_permissions,
        dev: options.dev,
        suid: options.suid,
        exec: options.exec,
        token_memory_bytes: options.token_memory_bytes,
        log_memory_bytes: options.log_memory_bytes,
        cache_memory_bytes: options.cache_memory_bytes,
        lease: options.lease,
        uring: match options.uring {
            Uring::Auto => node::RingUse::IfOffered,
            Uring::On => node::RingUse::Required,
            Uring::Off => node::RingUse::Off,
        },
    }
}

/// Why a node could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens at the socket, or the volume is out of reach.
    #[error(transparent)]
    Connect(#[from] VolumeError),
    /// The connection broke, or there was no answer in time.
    #[error("node at {socket} does not answer")]
    Silent {
        /// Name of its socket.
        socket: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The answer is not JSON.
    #[error("node at {socket} gave an answer that cannot be read")]
    Garbled {
        /// Name of its socket.
        socket: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

/// Sends `line` to the node at `socket` and returns its answer.
pub fn ask(volume: &Volume, socket: &str, line: &str) -> Result<Json, ControlError> {
    ask_within(volume, socket, line, PATIENCE)
}

/// As [`ask`], with a shorter wait for each part of the answer.
pub fn ask_within(
    volume: &Volume,
    socket: &str,
    line: &str,
    patience: Duration,
) -> Result<Json, ControlError> {
    let patience = patience.min(PATIENCE);
    let silent = |source: io::Error| {
        // The kernel calls the end of a timeout EAGAIN.
        let source = match source.kind() {
            io::ErrorKind::WouldBlock => io::Error::other(format!("nothing came within {patience:?}")),
            _ => source,
        };
        ControlError::Silent { socket: socket.to_owned(), source }
    };
    let mut stream = open(volume, socket, line)?;
    stream.set_read_timeout(Some(patience)).map_err(silent)?;
    let mut bytes = Vec::new();
    (&mut stream).take(ANSWER_BYTES_MAX).read_to_end(&mut bytes).map_err(silent)?;
    serde_json::from_slice(&bytes)
        .map_err(|source| ControlError::Garbled { socket: socket.to_owned(), source })
}

/// The volume that is mounted at `mountpoint`, and the socket of the node there.
pub fn node_at(mountpoint: &Path) -> Result<(Volume, String), Failure> {
    let given = mountpoint.display();
    let entry = sources::find(mountpoint)
        .map_err(|error| Failure::unable(format!("{given}: {error}")))?
        .filter(sources::MountEntry::is_holdfast)
        .ok_or_else(|| Failure::unable(format!("{given}: no Holdfast mount")))?;
    let volume = Volume::open(&entry.source).map_err(|error| Failure::unable(with_causes(&error)))?;
    Ok((volume, entry.control_socket()))
}

/// Who is master of a volume, as far as nodes say.
pub enum Mastery {
    /// The node at this socket.
    At(String),
    /// None yet, or the one that is has not said so: there are nodes.
    Awaited,
    /// No node answers.
    Nobody,
}

/// Asks all nodes of a volume whether they are its master.
///
/// # Errors
///
/// That of a node which does not answer, if no other says that it is master.
pub fn mastery(volume: &Volume) -> Result<Mastery, ControlError> {
    let (mut none, mut silent) = (Mastery::Nobody, None);
    for socket in volume.socket_names()?.into_iter().filter(|name| name.starts_with("node-")) {
        match ask(volume, &socket, "status") {
            Ok(status) if status["role"] == "master" => return Ok(Mastery::At(socket)),
            Ok(_) => none = Mastery::Awaited,
            Err(ControlError::Connect(_)) => {}
            Err(error) => silent = silent.or(Some(error)),
        }
    }
    silent.map_or(Ok(none), Err)
}

/// What came of something that may have been tried between two masters.
pub enum Attempt<T> {
    /// This.
    Done(T),
    /// Nothing, since a master is going or coming; what to say if it stays so.
    Early(Failure),
}

/// Tries until a volume has a master or none, for as long as an election may take. The pauses grow: a check of the volume itself keeps nodes from becoming master.
///
/// # Errors
///
/// Those of the attempts, and what the last one had to say if it came too early as well.
pub fn past_election<T>(mut attempt: impl FnMut() -> Result<Attempt<T>, Failure>) -> Result<T, Failure> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(20);
    loop {
        match attempt()? {
            Attempt::Done(done) => return Ok(done),
            Attempt::Early(failure) if begun.elapsed() >= ELECTION_MAX => return Err(failure),
            Attempt::Early(_) => thread::sleep(pause),
        }
        pause = pause.saturating_mul(2).min(PAUSE_MAX);
    }
}

/// Sends `line` and returns the connection, whose reads wait [`PATIENCE`] at most.
pub fn open(volume: &Volume, socket: &str, line: &str) -> Result<UnixStream, ControlError> {
    let mut stream = volume.connect(socket)?;
    let sent = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
        .and_then(|()| stream.write_all(format!("{line}\n").as_bytes()));
    sent.map_err(|source| ControlError::Silent { socket: socket.to_owned(), source })?;
    Ok(stream)
}

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a volume may be between two masters.
const ELECTION_MAX: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// More than any answer has.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
