//! The node's control socket, `node-MAJOR:MINOR` in the volume.
//!
//! One line comes in, one JSON document goes out until end of file; white space may come before it.
//!
//! | line | answer |
//! |---|---|
//! | `stat` | all metrics, and `uptime_seconds`, `mountpoint`, `volume`, `node`, `version` |
//! | `status` | this node's place in the volume; from the master also its `members` |
//! | `waiting` | requests that wait: number, operation, inode, what for, age; from the master also `locks`, those of programs that are waited for |
//! | `scrub RATE` | of the master alone: white space now and then; what a scrub at so many bytes a second found; ends when the asker goes |
//! | `quota` | of the master alone: `accounts`, what each uses and its limits |
//! | `quota-set ACCOUNT H S G H S G` | of the master alone: sets limits of bytes and inodes (hard, soft, seconds of grace; `-` for what stays); white space until they bind every node |
//! | `snapshot`, `record HEX` | of the master alone: all records as of one moment, or one as it is: see `snapshot.rs` |
//! | `set NAME=on\|off ...` | sets mount options that may change, `lazysize` and `nomtime`, all or none; what they are then |
//! | `umount` | white space at once and now and then; `clean` once unmounted (by the asker) and flushed |

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fuse::Transport;
use master::{LockWait, MemberStatus};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use types::NodeId;
use vfs::{Lazy, Wait};
use volume::Listener;
use wire::LockKind;

use crate::clock;
use crate::error::NodeError;
use crate::leaving;
use crate::link::Link;
use crate::quota;
use crate::scrub;
use crate::shell::{Membership, Shell};
use crate::snapshot;
use crate::threads::{join, spawn, spawn_loose};

/// The control socket and its threads.
pub(crate) struct Control {
    listener: Arc<Listener>,
    is_stopping: Arc<AtomicBool>,
    accepting: JoinHandle<()>,
    answering: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Control {
    /// Listens as the node whose mount has device `major:minor`.
    pub fn start(shell: &Arc<Shell>, major: u32, minor: u32) -> Result<Self, NodeError> {
        let listener = Arc::new(shell.volume.listen(&volume::control_socket_name(major, minor))?);
        let is_stopping = Arc::new(AtomicBool::new(false));
        let answering = Arc::new(Mutex::new(Vec::new()));
        let accepting = {
            let (shell, listener) = (Arc::clone(shell), Arc::clone(&listener));
            let (is_stopping, answering) = (Arc::clone(&is_stopping), Arc::clone(&answering));
            spawn("control", move || accept(&shell, &listener, &is_stopping, &answering))?
        };
        Ok(Self { listener, is_stopping, accepting, answering })
    }

    /// Stops listening and waits until all have been answered.
    pub fn stop(self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        let _ = rustix::net::shutdown(&**self.listener, rustix::net::Shutdown::Both);
        join(self.accepting);
        for thread in std::mem::take(&mut *self.answering.lock()) {
            join(thread);
        }
    }
}

/// The thread that accepts. Ends when the control socket is stopped.
fn accept(
    shell: &Arc<Shell>,
    listener: &UnixListener,
    is_stopping: &AtomicBool,
    answering: &Mutex<Vec<JoinHandle<()>>>,
) {
    while !is_stopping.load(Ordering::SeqCst) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(_) if is_stopping.load(Ordering::SeqCst) => return,
            Err(error) => {
                log::error!("the control socket: {error}");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let mut answering = answering.lock();
        answering.retain(|thread| !thread.is_finished());
        if answering.len() >= ASKERS_MAX {
            continue;
        }
        let shell = Arc::clone(shell);
        match spawn_loose("control-answer", move || answer(&shell, stream)) {
            Ok(thread) => answering.push(thread),
            Err(error) => log::error!("a question is dropped: {error}"),
        }
    }
}

/// The thread of one question. Ends with its answer.
fn answer(shell: &Shell, mut stream: UnixStream) {
    let answered = read_line(&mut stream).and_then(|line| match line.as_str() {
        "stat" => write_json(&mut stream, &stat(shell)),
        "status" => write_json(&mut stream, &status(shell)),
        "waiting" => write_json(&mut stream, &waiting(shell)),
        "umount" => {
            let end = wait_for_end(shell, &mut stream)?;
            write_json(&mut stream, &end)
        }
        line if line.starts_with("scrub ") => match line["scrub ".len()..].parse() {
            Ok(rate) => {
                let found = scrub::scrub(shell, &mut stream, rate)?;
                write_json(&mut stream, &found)
            }
            Err(_) => write_json(&mut stream, &json!({ "error": "no rate" })),
        },
        "quota" => write_json(&mut stream, &quota::list(shell)),
        line if line.starts_with("quota-set ") => {
            let set = quota::set(shell, &mut stream, &line["quota-set ".len()..])?;
            write_json(&mut stream, &set)
        }
        line if line == "set" || line.starts_with("set ") => {
            write_json(&mut stream, &set(shell, &line["set".len()..]))
        }
        "snapshot" => snapshot::send(shell, &mut stream),
        line if line.starts_with("record ") => {
            write_json(&mut stream, &snapshot::record(shell, &line["record ".len()..]))
        }
        other => write_json(&mut stream, &json!({ "error": format!("unknown question {other:?}") })),
    });
    if let Err(error) = answered {
        log::debug!("control socket: {error}");
    }
}

fn read_line(stream: &mut UnixStream) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE_LINE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_LEN_MAX)).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

fn write_json(stream: &mut UnixStream, document: &Json) -> io::Result<()> {
    stream.write_all(document.to_string().as_bytes())?;
    stream.write_all(b"\n")
}

fn stat(shell: &Shell) -> Json {
    shell.with_core(|core, _| core.export_gauges());
    let mut document = shell.metrics.snapshot().to_json();
    document["uptime_seconds"] = json!(shell.started.elapsed().as_secs_f64());
    document["version"] = json!(env!("CARGO_PKG_VERSION"));
    document["volume"] = json!(shell.volume.path().to_string_lossy());
    document["node"] = json!(shell.with_core(|core, _| core.snapshot()).node.0);
    if let Some(identity) = shell.identity.get() {
        document["mountpoint"] = json!(identity.mountpoint);
    }
    document
}

fn status(shell: &Shell) -> Json {
    let snapshot = shell.with_core(|core, _| core.snapshot());
    let link = shell.link();
    let is_master = matches!(link.as_deref(), Some(Link::Local(_)));
    let (membership, problem) = match shell.membership() {
        Membership::Joining => ("joining", None),
        Membership::Member if link.is_none() => {
            let no_master = || shell.no_master().map(|reason| format!("no master yet: {reason}"));
            ("between masters", leaving::lack_of_room(&snapshot).or_else(no_master))
        }
        Membership::Member => ("member", leaving::lack_of_room(&snapshot)),
        Membership::Left => ("left", None),
        Membership::Lost(reason) => ("lost", Some(reason)),
    };
    let mut document = json!({
        "node": snapshot.node.0,
        "host": shell.identity.get().map(|identity| &identity.host),
        "pid": std::process::id(),
        "mountpoint": shell.identity.get().map(|identity| &identity.mountpoint),
        "role": if is_master { "master" } else { "member" },
        "membership": membership,
        "transport": shell.monitor.get().map(|monitor| transport_name(monitor.transport())),
        "epoch": snapshot.epoch.0,
        "master": if is_master { Some(snapshot.node.0) } else { None },
        "unflushed_mutations": snapshot.unflushed_mutations,
        "unflushed_bytes": snapshot.unflushed_bytes,
        "unflushed_batches": snapshot.unflushed_batches,
        "unflushed_files": snapshot.unflushed_files,
        "tokens": snapshot.tokens,
        "waiting": snapshot.waiting,
        "options": options_json(snapshot.lazy),
        "store_wait_seconds": snapshot.store_wait.0 as f64 / 1e6,
        "uptime_seconds": shell.started.elapsed().as_secs_f64(),
        "version": env!("CARGO_PKG_VERSION"),
    });
    if let Some(problem) = problem {
        document["problem"] = json!(problem);
    }
    if let Some((epoch, members, (bytes, inodes))) = shell.service().and_then(|service| service.status()) {
        document["volume"] = json!({ "bytes": bytes, "inodes": inodes });
        document["members"] = members.iter().map(|member| member_json(member, epoch.0)).collect();
    }
    document
}

/// Sets options of the mount from the next request on. With no words only says what they are.
fn set(shell: &Shell, words: &str) -> Json {
    let mut lazy = shell.with_core(|core, _| core.lazy());
    for word in words.split_ascii_whitespace() {
        if set_one(&mut lazy, word).is_none() {
            return json!({ "error": format!("{word:?} is none of lazysize=on, lazysize=off, nomtime=on, nomtime=off") });
        }
    }
    shell.with_core(|core, _| core.set_lazy(lazy));
    if !words.is_empty() {
        log::info!("options are now {}", options_json(lazy));
    }
    options_json(lazy)
}

fn set_one(lazy: &mut Lazy, word: &str) -> Option<()> {
    let (name, value) = word.split_once('=')?;
    let is_on = match value {
        "on" => true,
        "off" => false,
        _ => return None,
    };
    match name {
        "lazysize" => lazy.size = is_on,
        "nomtime" => lazy.mtime = is_on,
        _ => return None,
    }
    Some(())
}

/// Options that may change while the volume is mounted.
fn options_json(Lazy { size, mtime }: Lazy) -> Json {
    json!({ "lazysize": size, "nomtime": mtime })
}

/// How requests come from the kernel, for reports.
fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Device => "dev_fuse",
        Transport::Ring => "io_uring",
    }
}

/// What the master knows of a member; the member itself knows more.
fn member_json(member: &MemberStatus, epoch: u64) -> Json {
    // The label is `host:mountpoint`.
    let (host, mountpoint) = member.label.split_once(':').unwrap_or((&member.label, ""));
    json!({
        "node": member.node.0,
        "host": host,
        "pid": member.pid,
        "mountpoint": mountpoint,
        "device": member.device,
        "role": "member",
        "membership": if member.is_connected { "member" } else { "silent" },
        "epoch": epoch,
        "tokens": member.tokens,
    })
}

fn waiting(shell: &Shell) -> Json {
    let (waits, invalidations) =
        shell.with_core(|core, _| (core.waits(), core.invalidations(INVALIDATIONS_MAX)));
    let now = clock::now();
    let request = |wait: Wait| {
        json!({
            "request": wait.request.0,
            "operation": format!("{:?}", wait.operation).to_lowercase(),
            "inode": wait.subject.map(|ino| ino.0),
            "waits_for": wait.waits_for,
            "is_lock": wait.is_lock,
            "seconds": now.since(wait.since).0 as f64 / 1e6,
        })
    };
    let waits: Vec<Json> = waits.into_iter().map(request).collect();
    let mut document = json!({ "waiting": waits, "invalidations": invalidations });
    if let Some(queues) = shell.service().and_then(|service| service.lock_queues(LOCK_WAITS_MAX)) {
        document["locks"] = queues.iter().map(lock_wait_json).collect();
    }
    document
}

fn lock_wait_json(wait: &LockWait) -> Json {
    let holder = |(node, pid): &(NodeId, u32)| json!({ "node": node.0, "pid": pid });
    json!({
        "inode": wait.lock.ino.0,
        "kind": match wait.lock.kind {
            LockKind::Flock => "flock",
            LockKind::Posix => "fcntl",
        },
        "node": wait.node.0,
        "pid": wait.lock.pid,
        "holders": wait.holders.iter().map(holder).collect::<Vec<_>>(),
    })
}

/// More than anybody reads.
const INVALIDATIONS_MAX: usize = 100;
const LOCK_WAITS_MAX: usize = 1000;

/// Keeps the asker in hope, by white space, until the node has ended.
fn wait_for_end(shell: &Shell, stream: &mut UnixStream) -> io::Result<Json> {
    loop {
        stream.write_all(b" ")?;
        match shell.wait_end(PAUSE_HOPE) {
            Some(Ok(())) => return Ok(json!({ "clean": true })),
            Some(Err(error)) => return Ok(json!({ "clean": false, "error": error })),
            None => {}
        }
    }
}

/// The line is written with the connection; who has none keeps the node from ending this long.
const PATIENCE_LINE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE_HOPE: Duration = Duration::from_secs(1);
/// Questions answered at once; more are hung up on.
const ASKERS_MAX: usize = 32;
const LINE_LEN_MAX: u64 = 256;
