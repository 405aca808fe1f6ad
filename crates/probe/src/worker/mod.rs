//! The worker: the process that touches the targets.
//!
//! It gets its orders as one line of JSON on standard input, tells [`Event`]s on standard output, and ends when its
//! standard input does. A thread for each target waits for the kernel as long as that takes; nobody waits for it.
//!
//! | Thread | Does | Ends when |
//! | --- | --- | --- |
//! | main | waits for the end of standard input, then exits | |
//! | `target-N` | opens target N, then one I/O each interval | with the process |
//! | `tell` | writes events | standard output is closed |

mod mount;
mod operation;
mod target;

use std::ffi::OsStr;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use crate::event::Event;
use crate::options::{Op, Options};
use crate::system;

use crate::beneath::Place;
use mount::MountPlace;
use operation::Operation;

/// What the worker is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Orders {
    pub origin_ns: u64,
    pub interval_ns: u64,
    pub size: u32,
    pub op: Op,
    pub paths: Vec<PathBuf>,
}

impl Orders {
    /// Orders for a run that begins at `origin_ns` of the monotonic clock.
    pub fn new(options: &Options, origin_ns: u64) -> Self {
        Self {
            origin_ns,
            interval_ns: u64::try_from(options.interval.as_nanos()).unwrap_or(u64::MAX),
            size: options.size,
            op: options.op,
            paths: options.targets.iter().map(|target| target.path.clone()).collect(),
        }
    }

    /// One line. Paths are bytes, as the kernel has them.
    pub fn to_line(&self) -> String {
        let paths: Vec<&[u8]> = self.paths.iter().map(|path| path.as_os_str().as_bytes()).collect();
        json!({
            "origin_ns": self.origin_ns,
            "interval_ns": self.interval_ns,
            "size": self.size,
            "op": self.op.name(),
            "paths": paths,
        })
        .to_string()
    }

    /// Reads [`Self::to_line`].
    pub fn parse(line: &str) -> Option<Self> {
        let document: Json = serde_json::from_str(line).ok()?;
        let byte = |byte: &Json| u8::try_from(byte.as_u64()?).ok();
        let path = |path: &Json| {
            let bytes: Vec<u8> = path.as_array()?.iter().map(byte).collect::<Option<_>>()?;
            Some(PathBuf::from(OsStr::from_bytes(&bytes)))
        };
        Some(Self {
            origin_ns: document["origin_ns"].as_u64()?,
            interval_ns: document["interval_ns"].as_u64().filter(|interval| *interval > 0)?,
            size: u32::try_from(document["size"].as_u64()?).ok()?,
            op: Op::of_name(document["op"].as_str()?)?,
            paths: document["paths"].as_array()?.iter().map(path).collect::<Option<_>>()?,
        })
    }
}

/// Runs the worker; returns only when it could not start.
///
/// # Errors
///
/// Those of reading the orders and starting threads.
pub fn work() -> io::Result<()> {
    // The front ends the worker by closing its input. A signal meant for both must not end it within an operation.
    let _signals = system::Signals::block()?;
    let mut line = String::new();
    let mut input = io::stdin().lock();
    input.read_line(&mut line)?;
    let orders = Orders::parse(&line)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "run by holdfast watch, not by hand"))?;
    let orders = Arc::new(orders);
    let (tell, told) = sync_channel(EVENTS_MAX);
    let origin_ns = orders.origin_ns;
    std::thread::Builder::new().name("tell".to_owned()).spawn(move || write_events(&told, origin_ns))?;
    let mut busy = Vec::new();
    for target in 0..orders.paths.len() {
        let is_busy = Arc::new(Mutex::new(()));
        busy.push(Arc::clone(&is_busy));
        let sampler = Sampler { orders: Arc::clone(&orders), target, tell: tell.clone(), busy: is_busy };
        std::thread::Builder::new().name(format!("target-{target}")).spawn(move || sampler.run())?;
    }
    io::copy(&mut input.by_ref(), &mut io::sink())?;
    // What an operation leaves behind it removes itself, if it can get so far.
    for busy in &busy {
        std::mem::forget(busy.try_lock_for(PATIENCE));
    }
    std::process::exit(0);
}

/// One target's thread.
struct Sampler {
    orders: Arc<Orders>,
    target: usize,
    tell: SyncSender<Event>,
    /// Locked while an operation runs.
    busy: Arc<Mutex<()>>,
}

impl Sampler {
    fn run(self) {
        for (what, done) in
            [("FIFO priority 79", system::set_fifo()), ("real-time I/O", system::set_io_class())]
        {
            // One thread tells for all.
            if let (0, Err(error)) = (self.target, done) {
                let text =
                    format!("no {what}: {error}; delays may include waiting for a CPU or for other I/O");
                self.tell(Event::Notice { target: None, text });
            }
        }
        let (operation, mut mount) = match self.open() {
            Ok(opened) => opened,
            Err(text) => return self.tell(Event::Failed { target: self.target, at_ns: self.now_ns(), text }),
        };
        // All targets are asked at the same instants, so that what they show can be compared.
        let interval = self.orders.interval_ns;
        let mut operation = Some(operation);
        loop {
            let next = (self.now_ns() / interval + 1) * interval;
            std::thread::sleep(Duration::from_nanos(next.saturating_sub(self.now_ns())));
            operation = operation.filter(|_| !mount.is_gone());
            match &mut operation {
                Some(operation) => self.sample(operation),
                // Closed by now, so that it does not keep what is left of the file system alive.
                None => self.tell_gone(),
            }
        }
    }

    fn tell_gone(&self) {
        let (target, at_ns) = (self.target, self.now_ns());
        let error = Some("its file system is not mounted there any more".to_owned());
        self.tell(Event::Begin { target, at_ns });
        self.tell(Event::End { target, at_ns, delay_ns: 0, error });
    }

    fn open(&self) -> Result<(Operation, MountPlace), String> {
        // Opening can hang as any I/O can: it shows as one that is pending.
        self.tell(Event::Begin { target: self.target, at_ns: self.now_ns() });
        let _busy = self.busy.lock();
        let path = &self.orders.paths[self.target];
        let operation = Operation::open(path, self.orders.op, self.orders.size)?;
        let mount = MountPlace::of(path);
        for text in operation.notices() {
            self.tell(Event::Notice { target: Some(self.target), text: text.clone() });
        }
        let Place { own, beneath } = Place::of(path);
        self.tell(Event::Ready {
            target: self.target,
            at_ns: self.now_ns(),
            kind: operation.kind().to_owned(),
            size_bytes: operation.size(),
            is_direct: operation.is_direct(),
            own,
            beneath,
        });
        Ok((operation, mount))
    }

    fn sample(&self, operation: &mut Operation) {
        let busy = self.busy.lock();
        operation.prepare();
        let begin_ns = self.now_ns();
        self.tell(Event::Begin { target: self.target, at_ns: begin_ns });
        let begin = system::monotonic_ns();
        let result = operation.run();
        let delay_ns = system::monotonic_ns() - begin;
        operation.clean_up();
        drop(busy);
        let error = result.err().map(operation::failure);
        self.tell(Event::End { target: self.target, at_ns: self.now_ns(), delay_ns, error });
    }

    fn now_ns(&self) -> u64 {
        system::monotonic_ns().saturating_sub(self.orders.origin_ns)
    }

    /// Never waits: a front that does not read must not slow the sampling. What does not fit is not told; the front
    /// sees a begin without an end, or the reverse, and goes on.
    fn tell(&self, event: Event) {
        let _ = self.tell.try_send(event);
    }
}

/// Writes what is told, at once, and now and then what it cost.
fn write_events(told: &Receiver<Event>, origin_ns: u64) {
    let mut output = io::stdout().lock();
    let mut cost_ns = 0;
    while let Ok(event) = told.recv() {
        let mut lines = event.to_line() + "\n";
        while let Ok(event) = told.try_recv() {
            lines += &(event.to_line() + "\n");
        }
        let at_ns = system::monotonic_ns().saturating_sub(origin_ns);
        if at_ns.saturating_sub(cost_ns) > COST_INTERVAL_NS {
            cost_ns = at_ns;
            lines += &(Event::Cost { at_ns, cpu_ns: system::cpu_ns() }.to_line() + "\n");
        }
        if output.write_all(lines.as_bytes()).and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

/// Events that may wait for the front.
const EVENTS_MAX: usize = 4096;
/// How long an operation may take to come to its end when the run is over.
const PATIENCE: Duration = Duration::from_millis(200);
/// From one word about cost to the next.
const COST_INTERVAL_NS: u64 = 500_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_back_with_paths_of_any_bytes() {
        let orders = Orders {
            origin_ns: 1 << 60,
            interval_ns: 3,
            size: 512,
            op: Op::Create,
            paths: vec![PathBuf::from(OsStr::from_bytes(b"/a\xff\n\"b")), PathBuf::from("/dev/sda")],
        };
        assert_eq!(Orders::parse(&orders.to_line()), Some(orders));
        assert_eq!(Orders::parse("{}"), None);
    }
}
