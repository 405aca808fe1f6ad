//! The front: starts the worker, turns its events into outputs, ends with the run.
//!
//! | Thread | Does | Ends when |
//! | --- | --- | --- |
//! | main | [`Watch`], outputs | the run is over |
//! | `events` | reads what the worker tells | the worker's output ends |
//! | `socket`, `metrics` | hand questions to main, see `answers.rs` | with the process |
//! | `signal` | SIGINT, SIGTERM, SIGHUP: the run is over | with the process |

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{Access, FileType};
use rustix::io::Errno;
use serde_json::Value as Json;
use thiserror::Error;

use crate::answers::{self, Ask, Question, Socket, serve_metrics};
use crate::check::CheckError;
use crate::event::{Event, EventError, Header};
use crate::options::Options;
use crate::output::{json, lines, prometheus, table};
use crate::plot;
use crate::stack::StackError;
use crate::system::{self, Signals};
use crate::watch::Watch;
use crate::worker::Orders;

/// What goes to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A table, drawn again and again in place.
    Table,
    /// A line for each sample, and the table at the end.
    Lines,
    /// One document at the end.
    Json,
    /// Nothing.
    Nothing,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every target was well at the end.
    Well,
    /// At least one was not.
    Ill,
}

/// Why a watch could not be kept.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum WatchError {
    #[error("{0}")]
    Target(String),
    #[error("the sampling process cannot be started")]
    Start(#[source] io::Error),
    #[error("the sampling process ended by itself: {0}")]
    WorkerEnded(String),
    #[error("signals cannot be waited for")]
    Signals(#[source] io::Error),
    #[error("{address}: metrics cannot be served there")]
    Listen { address: String, source: io::Error },
    #[error("{}: graphs are SVG or PNG: give a name that ends in .svg or .png", .0.display())]
    PlotKind(PathBuf),
    #[error("{}: a PNG is made by rsvg-convert (package librsvg2-bin), which is missing or fails; .svg needs nothing", .0.display())]
    NoConverter(PathBuf),
    #[error("no watch at {} answers", path.display())]
    NoAnswer { path: PathBuf, source: io::Error },
    #[error("the watch at {} does not watch {target}", path.display())]
    OtherTargets { path: PathBuf, target: String },
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error("{}: cannot be written", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{}: cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}", path.display())]
    Recording { path: PathBuf, source: EventError },
    #[error(transparent)]
    Stack(#[from] StackError),
}

/// What a run is shown to, and for how long.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What goes to standard output.
    pub output: Output,
    /// As in [`Options`], as given.
    pub stack: Option<String>,
    /// Ends after this time; without it, by a signal.
    pub duration: Option<Duration>,
    /// Everything that happens is written there; the file must not exist.
    pub record: Option<PathBuf>,
    /// The graph is written there at the end.
    pub plot: Option<PathBuf>,
    /// Address of the metrics.
    pub listen: Option<String>,
    /// Where checks ask; without it in the user's directory of sockets, if there is one.
    pub socket: Option<PathBuf>,
}

/// Watches until its time is over or a signal comes, and shows it. `worker` is a command that calls [`crate::work`].
///
/// # Errors
///
/// [`WatchError`]; nothing is left behind, but a recording that holds samples.
pub fn watch(options: &Options, settings: &Settings, worker: Command) -> Result<Ended, WatchError> {
    let mut prepared = Prepared::new(options, settings)?;
    let result = prepared.watch(options, settings, worker);
    if result.is_err() {
        prepared.run.forget_recording();
    }
    result
}

/// Watches for a time and gives the document, with nothing shown.
///
/// # Errors
///
/// As [`watch`].
pub(crate) fn sample(options: &Options, settings: &Settings, worker: Command) -> Result<Json, WatchError> {
    let mut prepared = Prepared::new(options, settings)?;
    prepared.follow_worker(options, settings, worker)?;
    Ok(json::document(&prepared.run.watch))
}

/// A run that begins.
struct Prepared {
    run: Run,
    send: SyncSender<Message>,
    messages: Receiver<Message>,
}

impl Prepared {
    fn new(options: &Options, settings: &Settings) -> Result<Self, WatchError> {
        settings.plot.as_deref().map_or(Ok(()), check_plot)?;
        let signals = Signals::block().map_err(WatchError::Signals)?;
        let origin_ns = system::monotonic_ns();
        let header = header(options, settings.stack.as_deref());
        let run = Run::new(header, settings.output, settings.record.as_deref(), origin_ns)?;
        let (send, messages) = sync_channel(MESSAGES_MAX);
        let signalled = send.clone();
        thread("signal", move || {
            if signals.wait().is_ok() {
                let _ = signalled.send(Message::Signal);
            }
        })?;
        Ok(Self { run, send, messages })
    }

    fn watch(
        &mut self,
        options: &Options,
        settings: &Settings,
        worker: Command,
    ) -> Result<Ended, WatchError> {
        let _socket = open_socket(settings, &self.send)?;
        if let Some(address) = &settings.listen {
            let listen = |source| WatchError::Listen { address: address.clone(), source };
            let at = serve_metrics(address, asking(&self.send)).map_err(listen)?;
            eprintln!("holdfast: metrics at http://{at}/metrics");
        }
        self.follow_worker(options, settings, worker)?;
        self.run.show_all(settings.plot.as_deref())
    }

    /// Has the worker sample until the run is over.
    fn follow_worker(
        &mut self,
        options: &Options,
        settings: &Settings,
        worker: Command,
    ) -> Result<(), WatchError> {
        let orders = Orders::new(options, self.run.origin_ns);
        let mut worker = Worker::start(worker, &orders, self.send.clone())?;
        let deadline_ns =
            settings.duration.map(|duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        let result = self.run.follow(&self.messages, deadline_ns).and_then(|()| self.run.stop());
        worker.end();
        match result {
            Err(WatchError::WorkerEnded(_)) => Err(WatchError::WorkerEnded(worker.last_words())),
            other => other,
        }
    }
}

fn open_socket(settings: &Settings, send: &SyncSender<Message>) -> Result<Option<Socket>, WatchError> {
    let Some(path) = settings.socket.clone().or_else(answers::own_socket) else { return Ok(None) };
    match (Socket::open(&path, asking(send)), &settings.socket) {
        (Ok(socket), _) => Ok(Some(socket)),
        (Err(source), Some(_)) => Err(WatchError::Write { path, source }),
        (Err(error), None) => {
            eprintln!("holdfast: note: {}: {error}; checks will not find this watch", path.display());
            Ok(None)
        }
    }
}

fn asking(send: &SyncSender<Message>) -> Ask {
    let send = send.clone();
    Box::new(move |question, answer| send.send(Message::Asked(question, answer)).is_ok())
}

/// Shows a recording as its run would have been shown at its end. One whose last line is cut off (a disk that was full, a crash, a
/// copy made meanwhile) is shown as far as it goes, with a note.
///
/// # Errors
///
/// [`WatchError::Read`], [`WatchError::Recording`] of any other line that says nothing, and [`WatchError::Stack`].
pub fn replay(path: &Path, output: Output, plot: Option<&Path>) -> Result<Ended, WatchError> {
    plot.map_or(Ok(()), check_plot)?;
    let read = |source| WatchError::Read { path: path.to_owned(), source };
    let wrong = |source| WatchError::Recording { path: path.to_owned(), source };
    let mut file = BufReader::new(File::open(path).map_err(read)?);
    let mut first = String::new();
    file.read_line(&mut first).map_err(read)?;
    let header = Header::parse(&first).map_err(wrong)?;
    let count = header.targets.len();
    let mut run = Run::new(header, output, None, system::monotonic_ns())?;
    for number in 2.. {
        let mut line = Vec::new();
        if file.read_until(b'\n', &mut line).map_err(read)? == 0 {
            break;
        }
        let event = match parse_bytes(&line, number, count) {
            Err(_) if line.last() != Some(&b'\n') => {
                let text =
                    format!("{}: line {number} is cut off: what stands before it is shown", path.display());
                Event::Notice { target: None, text }
            }
            other => other.map_err(wrong)?,
        };
        run.apply(&event)?;
    }
    run.show_all(plot)
}

fn parse_bytes(line: &[u8], number: usize, targets: usize) -> Result<Event, EventError> {
    let no_text = |_| EventError::Line { line: number, why: "not UTF-8".to_owned() };
    Event::parse(std::str::from_utf8(line).map_err(no_text)?, number, targets)
}

/// Refuses what cannot be drawn or written, before anything is measured.
fn check_plot(path: &Path) -> Result<(), WatchError> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => {}
        Some("png") if plot::can_convert() => {}
        Some("png") => return Err(WatchError::NoConverter(path.to_owned())),
        Some(_) | None => return Err(WatchError::PlotKind(path.to_owned())),
    }
    check_writable(path).map_err(|error| WatchError::Write { path: path.to_owned(), source: error.into() })
}

/// Whether a file can be written there, without making it.
fn check_writable(path: &Path) -> rustix::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match rustix::fs::stat(path) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => Err(Errno::ISDIR),
        Ok(_) => rustix::fs::access(path, Access::WRITE_OK),
        Err(Errno::NOENT) => rustix::fs::access(parent, Access::WRITE_OK | Access::EXEC_OK),
        Err(error) => Err(error),
    }
}

fn header(options: &Options, stack: Option<&str>) -> Header {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let target =
        |target: &crate::TargetSpec| (target.path.to_string_lossy().into_owned(), target.label.clone());
    Header {
        started_unix_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
        interval_ns: u64::try_from(options.interval.as_nanos()).unwrap_or(u64::MAX),
        window: options.window,
        size: options.size,
        op: options.op,
        targets: options.targets.iter().map(target).collect(),
        stack: stack.map(str::to_owned),
    }
}

/// A run in progress.
struct Run {
    watch: Watch,
    output: Output,
    record: Option<(PathBuf, BufWriter<File>)>,
    origin_ns: u64,
    /// Which targets were told to be ill.
    told_ill: Vec<bool>,
    notices_told: usize,
    is_output_gone: bool,
}

enum Message {
    Event(Event),
    WorkerEnded,
    Signal,
    Asked(Question, Sender<String>),
}

impl Run {
    fn new(
        header: Header,
        output: Output,
        record: Option<&Path>,
        origin_ns: u64,
    ) -> Result<Self, WatchError> {
        let line = header.to_line();
        let watch = Watch::new(header)?;
        let open = |path: &Path| {
            let mut file = File::create_new(path).map(BufWriter::new)?;
            writeln!(file, "{line}")?;
            Ok((path.to_owned(), file))
        };
        let record = record
            .map(|path| open(path).map_err(|source| WatchError::Write { path: path.to_owned(), source }));
        let told_ill = vec![false; watch.targets().len()];
        let record = record.transpose()?;
        Ok(Self { watch, output, record, origin_ns, told_ill, notices_told: 0, is_output_gone: false })
    }

    /// Until the deadline, a signal, a target that cannot be measured, or the worker's end.
    fn follow(&mut self, messages: &Receiver<Message>, deadline_ns: Option<u64>) -> Result<(), WatchError> {
        let mut redrawn = Instant::now();
        loop {
            let now_ns = self.now_ns();
            let left_ns = deadline_ns.map_or(u64::MAX, |deadline| deadline.saturating_sub(now_ns));
            if left_ns == 0 || self.is_output_gone {
                return Ok(());
            }
            let wait = REDRAW.saturating_sub(redrawn.elapsed());
            match messages.recv_timeout(wait.min(Duration::from_nanos(left_ns))) {
                Ok(Message::Event(event)) => self.take(event)?,
                Ok(Message::Signal) => return Ok(()),
                Ok(Message::Asked(question, answer)) => self.answer(question, &answer),
                Ok(Message::WorkerEnded) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(WatchError::WorkerEnded(String::new()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            // Whatever comes, however fast.
            if redrawn.elapsed() >= REDRAW {
                redrawn = Instant::now();
                self.watch.pass(self.now_ns());
                self.flush()?;
                self.show_table()?;
            }
            self.tell_alarms()?;
        }
    }

    fn take(&mut self, event: Event) -> Result<(), WatchError> {
        // What the worker used, and what we did.
        let event = match event {
            Event::Cost { at_ns, cpu_ns } => {
                Event::Cost { at_ns, cpu_ns: cpu_ns.saturating_add(system::cpu_ns()) }
            }
            other => other,
        };
        self.apply(&event)?;
        match event {
            Event::Failed { text, .. } => Err(WatchError::Target(text)),
            _ => Ok(()),
        }
    }

    fn apply(&mut self, event: &Event) -> Result<(), WatchError> {
        if let Some((path, file)) = &mut self.record {
            writeln!(file, "{}", event.to_line())
                .map_err(|source| WatchError::Write { path: path.clone(), source })?;
        }
        self.watch.handle_event(event);
        if self.output == Output::Lines {
            if let Event::End { target, .. } = event {
                self.print(&(lines::sample(&self.watch, *target) + "\n"))?;
            }
            let notices = self.watch.notices()[self.notices_told..].to_vec();
            self.notices_told += notices.len();
            for (target, text) in notices {
                let label = target
                    .map_or_else(String::new, |target| self.watch.targets()[target].label.clone() + ": ");
                self.print(&(lines::remark(&self.watch, &format!("note: {label}{text}")) + "\n"))?;
            }
        }
        Ok(())
    }

    fn answer(&mut self, question: Question, answer: &Sender<String>) {
        self.watch.pass(self.now_ns());
        let text = match question {
            Question::Document => format!("{}\n", json::document(&self.watch)),
            Question::Metrics => prometheus::metrics(&self.watch),
        };
        // Whoever asked may be gone.
        let _ = answer.send(text);
    }

    fn plot(&self, path: Option<&Path>) -> Result<(), WatchError> {
        let Some(path) = path else { return Ok(()) };
        plot::write(path, &plot::svg(&self.watch))
            .map_err(|source| WatchError::Write { path: path.to_owned(), source })
    }

    /// Each illness once, when it begins.
    fn tell_alarms(&mut self) -> Result<(), WatchError> {
        if self.output != Output::Lines {
            return Ok(());
        }
        for index in 0..self.told_ill.len() {
            let is_ill = self.watch.condition(index).is_alarm();
            if is_ill && !self.told_ill[index] {
                let alarm = lines::remark(&self.watch, &table::alarm(&self.watch, index));
                self.print(&(alarm + "\n"))?;
            }
            self.told_ill[index] = is_ill;
        }
        Ok(())
    }

    fn show_table(&mut self) -> Result<(), WatchError> {
        if self.output != Output::Table {
            return Ok(());
        }
        // Home, the table with the rest of each line cleared, then what is below it.
        let text = table::table(&self.watch).replace('\n', "\x1b[K\n");
        self.print(&format!("\x1b[H{text}\x1b[J"))
    }

    /// The figures stay as they are at this moment.
    fn stop(&mut self) -> Result<(), WatchError> {
        self.apply(&Event::Stop { at_ns: self.now_ns() })?;
        self.flush()
    }

    /// What cannot be printed can be drawn all the same.
    fn show_all(&mut self, plot: Option<&Path>) -> Result<Ended, WatchError> {
        let shown = self.show_end();
        self.plot(plot)?;
        shown.map(|()| self.ended())
    }

    fn show_end(&mut self) -> Result<(), WatchError> {
        match self.output {
            Output::Table => self.show_table(),
            Output::Lines => self.print(&("\n".to_owned() + &table::table(&self.watch))),
            Output::Nothing => Ok(()),
            Output::Json => self.print(&format!("{:#}\n", json::document(&self.watch))),
        }
    }

    /// Removes a recording of nothing.
    fn forget_recording(&mut self) {
        if let Some((path, _)) = self.record.take()
            && self.watch.figures().iter().all(|figures| figures.count == 0)
        {
            // It stays where it cannot be removed; the error to come is worth more than that.
            let _ = std::fs::remove_file(path);
        }
    }

    fn ended(&self) -> Ended {
        if self.watch.is_any_alarm() { Ended::Ill } else { Ended::Well }
    }

    fn flush(&mut self) -> Result<(), WatchError> {
        let Some((path, file)) = &mut self.record else { return Ok(()) };
        file.flush().map_err(|source| WatchError::Write { path: path.clone(), source })
    }

    fn print(&mut self, text: &str) -> Result<(), WatchError> {
        let mut out = io::stdout().lock();
        let Err(source) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) else { return Ok(()) };
        if source.kind() == io::ErrorKind::BrokenPipe {
            // Whoever read this is gone: nothing is left to do.
            self.is_output_gone = true;
            return Ok(());
        }
        Err(WatchError::Write { path: PathBuf::from("standard output"), source })
    }

    fn now_ns(&self) -> u64 {
        system::monotonic_ns().saturating_sub(self.origin_ns)
    }
}

/// The worker's process. It ends when its input does, which is when this is dropped or we die.
struct Worker {
    child: Child,
}

impl Worker {
    fn start(mut command: Command, orders: &Orders, send: SyncSender<Message>) -> Result<Self, WatchError> {
        // Not our own standard error: whoever waits for the end of that would wait for a worker that hangs.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A terminal's Ctrl-C is for us: we tell the worker when it is over.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(WatchError::Start)?;
        let (Some(input), Some(output)) = (child.stdin.as_mut(), child.stdout.take()) else {
            return Err(WatchError::Start(io::ErrorKind::BrokenPipe.into()));
        };
        writeln!(input, "{}", orders.to_line()).map_err(WatchError::Start)?;
        let targets = orders.paths.len();
        thread("events", move || {
            for (index, line) in BufReader::new(output).lines().enumerate() {
                let event = line.ok().and_then(|line| Event::parse(&line, index + 1, targets).ok());
                let Some(event) = event else { break };
                if send.send(Message::Event(event)).is_err() {
                    return;
                }
            }
            let _ = send.send(Message::WorkerEnded);
        })?;
        Ok(Self { child })
    }

    /// Has the worker end. One whose target hangs in the kernel ends when the kernel lets it; nobody waits for that.
    fn end(&mut self) {
        drop(self.child.stdin.take());
        for _ in 0..END_TRIES {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(END_PAUSE),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        eprintln!(
            "holdfast: note: process {} still waits for the kernel to return an I/O, and ends when it does",
            self.child.id()
        );
    }

    /// What a worker that ended by itself said, and how it ended.
    fn last_words(&mut self) -> String {
        let Ok(Some(status)) = self.child.try_wait() else { return "no exit status".to_owned() };
        let mut text = String::new();
        if let Some(errors) = self.child.stderr.take() {
            // What cannot be read is not there to be told.
            let _ = errors.take(WORDS_MAX).read_to_string(&mut text);
        }
        format!("{status}; {}", text.trim())
    }
}

fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), WatchError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop).map_err(WatchError::Start)
}

/// From one drawing of the table to the next, and from one look at what is pending.
const REDRAW: Duration = Duration::from_millis(500);
/// Messages that may wait for the main thread.
const MESSAGES_MAX: usize = 4096;
/// How often and how long the worker's end is waited for.
/// Bytes of what a worker says at its end.
const WORDS_MAX: u64 = 4096;
const END_TRIES: u32 = 50;
const END_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::tests::sample_events;

    /// A recording comes from anywhere: whatever numbers stand in it, every output can be made of it.
    #[test]
    fn no_number_of_a_recording_breaks_an_output() {
        let (header, events) = sample_events();
        let lines: Vec<String> =
            [header.to_line()].into_iter().chain(events.iter().map(Event::to_line)).collect();
        let numbers =
            ["0", "1", "999999999", "70368744177664", "9223372036854775807", "18446744073709551615"];
        let mut shown = 0;
        for (turn, number) in (0..lines.len() * 3).flat_map(|turn| numbers.map(|number| (turn, number))) {
            let mut changed = lines.clone();
            let at = turn / 3;
            changed[at] = with_number(&changed[at], turn % 3, number);
            let Ok(header) = Header::parse(&changed[0]) else { continue };
            let count = header.targets.len();
            let Ok(mut run) = Run::new(header, Output::Nothing, None, 0) else { continue };
            for (index, line) in changed.iter().enumerate().skip(1) {
                if let Ok(event) = Event::parse(line, index, count) {
                    run.apply(&event).expect("nothing is written");
                }
            }
            let watch = &run.watch;
            shown += table::table(watch).len() + plot::svg(watch).len() + prometheus::metrics(watch).len();
            shown += json::document(watch).to_string().len();
            shown += (0..count).map(|index| lines::sample(watch, index).len()).sum::<usize>();
        }
        assert!(shown > 1_000_000);
    }

    /// Goal: a recording that was cut short, wherever, can be shown; one that is damaged cannot. Method: all beginnings of one, with and
    /// without what a crash leaves behind them; a bad line in the middle.
    #[test]
    fn a_recording_that_is_cut_off_is_shown_as_far_as_it_goes() {
        let (header, events) = sample_events();
        let lines: Vec<String> =
            [header.to_line()].into_iter().chain(events.iter().map(Event::to_line)).collect();
        let whole = lines.join("\n") + "\n";
        let path = std::env::temp_dir().join(format!("holdfast-cut-{}", std::process::id()));
        let shown = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            replay(&path, Output::Nothing, None)
        };
        for end in lines[0].len()..whole.len() {
            assert!(shown(&whole.as_bytes()[..end]).is_ok(), "cut at {end}");
        }
        let half = lines[0].len() + lines[1].len() + 10;
        assert!(shown(&[&whole.as_bytes()[..half], &[0; 50], b"\xff"].concat()).is_ok());
        assert!(matches!(shown(&whole.as_bytes()[..10]), Err(WatchError::Recording { .. })), "no header");
        let [before, after] = [&whole.as_bytes()[..half], &whole.as_bytes()[half - 5..]];
        let damaged = shown(&[before, b"\n", after].concat()).unwrap_err();
        assert!(
            matches!(damaged, WatchError::Recording { source: EventError::Line { line: 3, .. }, .. }),
            "{damaged}"
        );
        std::fs::remove_file(&path).unwrap();
    }

    /// The line with its number `index` replaced; the line itself when it has fewer.
    fn with_number(line: &str, index: usize, number: &str) -> String {
        let mut rest = line;
        let mut before = String::new();
        let mut seen = 0;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let len = rest[at..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - at);
            if seen == index {
                return before + &rest[..at] + number + &rest[at + len..];
            }
            before += &rest[..at + len];
            rest = &rest[at + len..];
            seen += 1;
        }
        line.to_owned()
    }
}
