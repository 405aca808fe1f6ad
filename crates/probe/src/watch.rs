//! A run as its events tell it. Pure: live runs and replays go the same way.

use crate::event::{Event, Header};
use crate::series::{Figures, Series};
use crate::stack::{Stack, StackError};
use crate::units::seconds;

/// Everything known of a run.
#[derive(Debug)]
pub struct Watch {
    header: Header,
    stack: Option<Stack>,
    targets: Vec<TargetState>,
    notices: Vec<(Option<usize>, String)>,
    cpu_ns: u64,
    now_ns: u64,
}

/// One target of a run.
#[derive(Debug)]
pub struct TargetState {
    /// As given, absolute.
    pub path: String,
    /// What it is called.
    pub label: String,
    /// How far its opening got.
    pub phase: Phase,
    /// Its name among what others have beneath them.
    own: Option<String>,
    /// What it stands on, by the kernel's word.
    beneath: Vec<String>,
    /// What was measured.
    pub series: Series,
    /// Figures after each sample, for graphs.
    pub history: History,
}

/// How far the opening of a target got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not open yet.
    Opening,
    /// It is measured.
    Open { kind: String, size_bytes: u32, is_direct: bool },
    /// It cannot be measured.
    Failed { text: String },
}

/// How a target is at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Being opened, or nothing measured yet.
    Starting,
    /// I/Os return.
    Good,
    /// An I/O, or the opening, has not returned within an interval.
    Overdue,
    /// The last I/O failed.
    Failing,
    /// It could not be opened.
    Failed,
    /// No I/O is known to be under way, and none returned for three intervals.
    Silent,
}

impl Condition {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Good => "ok",
            Self::Overdue => "pending",
            Self::Failing => "failing",
            Self::Failed => "failed",
            Self::Silent => "silent",
        }
    }

    /// Whether somebody should look.
    pub fn is_alarm(self) -> bool {
        match self {
            Self::Starting | Self::Good => false,
            Self::Overdue | Self::Failing | Self::Failed | Self::Silent => true,
        }
    }
}

impl Watch {
    /// A run that begins.
    ///
    /// # Errors
    ///
    /// [`StackError`] if the header's stack does not fit its targets.
    pub fn new(header: Header) -> Result<Self, StackError> {
        let labels: Vec<String> = header.targets.iter().map(|(_, label)| label.clone()).collect();
        let stack = header.stack.as_deref().map(|text| Stack::parse(text, &labels)).transpose()?;
        let target = |(path, label): &(String, String)| TargetState {
            path: path.clone(),
            label: label.clone(),
            phase: Phase::Opening,
            own: None,
            beneath: Vec::new(),
            series: Series::new(header.interval_ns, header.window),
            history: History::default(),
        };
        let targets = header.targets.iter().map(target).collect();
        Ok(Self { stack, targets, notices: Vec::new(), cpu_ns: 0, now_ns: 0, header })
    }

    /// Takes in what happened. Targets of events must be the header's.
    pub fn handle_event(&mut self, event: &Event) {
        match event {
            Event::Ready { target, at_ns, kind, size_bytes, is_direct, own, beneath } => {
                let target = &mut self.targets[*target];
                target.phase =
                    Phase::Open { kind: kind.clone(), size_bytes: *size_bytes, is_direct: *is_direct };
                target.series.handle_open(*at_ns);
                target.own.clone_from(own);
                target.beneath.clone_from(beneath);
                self.pass(*at_ns);
                self.find_stack();
            }
            Event::Failed { target, at_ns, text } => {
                self.targets[*target].phase = Phase::Failed { text: text.clone() };
                self.pass(*at_ns);
            }
            Event::Notice { target, text } => self.notices.push((*target, text.clone())),
            Event::Begin { target, at_ns } => {
                self.targets[*target].series.handle_begin(*at_ns);
                self.pass(*at_ns);
            }
            Event::End { target, at_ns, delay_ns, error } => {
                self.pass(*at_ns);
                let target = &mut self.targets[*target];
                target.series.handle_end(*at_ns, *delay_ns, error.as_deref());
                if error.is_none() {
                    target.history.push(*at_ns, &target.series.figures(*at_ns));
                }
            }
            Event::Cost { at_ns, cpu_ns } => {
                self.cpu_ns = *cpu_ns;
                self.pass(*at_ns);
            }
            Event::Stop { at_ns } => self.pass(*at_ns),
        }
    }

    /// Takes the kernel's word for how the targets stand on one another, where nobody gave a better one.
    fn find_stack(&mut self) {
        if self.header.stack.is_some() {
            return;
        }
        let is_below = |low: usize, high: usize| {
            let own = self.targets[low].own.as_ref();
            low != high && own.is_some_and(|own| self.targets[high].beneath.contains(own))
        };
        self.stack = Stack::find(self.targets.len(), is_below);
    }

    /// Lets time pass: what is pending grows.
    pub fn pass(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// What the run is.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The targets, in the order given.
    pub fn targets(&self) -> &[TargetState] {
        &self.targets
    }

    /// How the targets stand on one another, if that was said.
    pub fn stack(&self) -> Option<&Stack> {
        self.stack.as_ref()
    }

    /// What is not as asked, by target or of all.
    pub fn notices(&self) -> &[(Option<usize>, String)] {
        &self.notices
    }

    /// Nanoseconds since the beginning.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// CPU time used so far, in seconds.
    pub fn cpu(&self) -> f64 {
        seconds(self.cpu_ns)
    }

    /// Figures of all targets.
    pub fn figures(&self) -> Vec<Figures> {
        self.targets.iter().map(|target| target.series.figures(self.now_ns)).collect()
    }

    /// How target `index` is.
    pub fn condition(&self, index: usize) -> Condition {
        let target = &self.targets[index];
        let silence_ns = self.header.interval_ns.saturating_mul(SILENT_INTERVALS).max(SILENT_NS_MIN);
        match &target.phase {
            Phase::Failed { .. } => Condition::Failed,
            _ if target.series.is_overdue(self.now_ns) => Condition::Overdue,
            Phase::Opening => Condition::Starting,
            Phase::Open { .. } => match target.series.last_end_ns() {
                _ if target.series.is_failing() => Condition::Failing,
                _ if target.series.pending_ns(self.now_ns).is_some() => Condition::Good,
                Some(end_ns) if self.now_ns.saturating_sub(end_ns) > silence_ns => Condition::Silent,
                Some(_) if target.series.window_len() == 0 => Condition::Starting,
                Some(_) => Condition::Good,
                None => Condition::Starting,
            },
        }
    }

    /// Whether something is wrong with any target.
    pub fn is_any_alarm(&self) -> bool {
        (0..self.targets.len()).any(|index| self.condition(index).is_alarm())
    }
}

/// Figures over time, bounded: when full, neighbours become one that keeps both extremes.
#[derive(Clone, Debug, Default)]
pub struct History {
    points: Vec<Point>,
    /// How many samples make a point.
    grain: u32,
    /// Samples in the last point.
    filled: u32,
}

/// Figures after one sample, or after several as one, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub at: f64,
    /// Of several, the longest.
    pub last: f64,
    pub davg: f64,
    pub dstd_dev: f64,
    pub emin: f64,
    pub emax: f64,
}

impl History {
    /// The points, oldest first.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    fn push(&mut self, at_ns: u64, figures: &Figures) {
        let Figures { last: Some(last), davg: Some(davg), dstd_dev: Some(dstd_dev), .. } = *figures else {
            return;
        };
        let (emin, emax) = (figures.emin.unwrap_or(last), figures.emax.unwrap_or(last));
        let point = Point { at: seconds(at_ns), last, davg, dstd_dev, emin, emax };
        self.grain = self.grain.max(1);
        match self.points.last_mut() {
            Some(open) if self.filled < self.grain => {
                *open = open.with(&point);
                self.filled += 1;
            }
            Some(_) | None => {
                self.points.push(point);
                self.filled = 1;
            }
        }
        if self.points.len() >= POINTS_MAX && self.filled == self.grain {
            self.points =
                self.points.chunks(2).map(|pair| pair[0].with(pair.last().unwrap_or(&pair[0]))).collect();
            self.grain = self.grain.saturating_mul(2);
            self.filled = self.grain;
        }
    }
}

impl Point {
    fn with(&self, later: &Self) -> Self {
        Self {
            last: self.last.max(later.last),
            emin: self.emin.min(later.emin),
            emax: self.emax.max(later.emax),
            ..*later
        }
    }
}

/// Even, so that neighbours pair up.
const POINTS_MAX: usize = 20_000;
/// Intervals without an I/O after which a target counts as silent.
const SILENT_INTERVALS: u64 = 3;
/// At shorter intervals, that is how long one of the two processes may be without a CPU.
const SILENT_NS_MIN: u64 = 2_000_000_000;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::options::Op;

    pub(crate) const MS: u64 = 1_000_000;

    fn ready(target: usize, at_ms: u64, kind: &str) -> Event {
        let own = [Some("block 8:0".to_owned()), None][target].clone();
        let beneath = [vec![], vec!["block 8:1".to_owned(), "block 8:0".to_owned()]][target].clone();
        let kind = kind.to_owned();
        Event::Ready { target, at_ns: at_ms * MS, kind, size_bytes: 512, is_direct: true, own, beneath }
    }

    #[test]
    fn the_stack_is_found_where_none_is_given() {
        let (mut header, events) = sample_events();
        header.stack = None;
        let mut watch = Watch::new(header).unwrap();
        assert!(watch.stack().is_none());
        events.iter().for_each(|event| watch.handle_event(event));
        assert_eq!(watch.stack().unwrap().layers(), [vec![0], vec![1]]);
    }

    /// A run of two layers at one I/O a second; the lower stalls once for 1.5 s, the upper is always 1 ms slower.
    pub(crate) fn sample_events() -> (Header, Vec<Event>) {
        let header = Header {
            started_unix_ms: 1_700_000_000_000,
            interval_ns: 1000 * MS,
            window: 5,
            size: 512,
            op: Op::Read,
            targets: vec![("/dev/a".into(), "disk".into()), ("/mnt".into(), "files".into())],
            stack: Some("disk:files".into()),
        };
        let mut events = Vec::new();
        for target in 0..2 {
            events.push(Event::Begin { target, at_ns: MS });
            let kind = ["block device", "directory"][target].to_owned();
            events.push(ready(target, 2, &kind));
        }
        for turn in 1..=8u64 {
            for target in 0..2 {
                let delay_ns = (if turn == 6 { 1500 } else { 2 }) * MS + target as u64 * MS;
                let at_ns = turn * 1000 * MS;
                events.push(Event::Begin { target, at_ns });
                events.push(Event::End { target, at_ns: at_ns + delay_ns, delay_ns, error: None });
            }
        }
        events.push(Event::Cost { at_ns: 9000 * MS, cpu_ns: 3 * MS });
        events.push(Event::Stop { at_ns: 9100 * MS });
        (header, events)
    }

    pub(crate) fn sample_watch() -> Watch {
        let (header, events) = sample_events();
        let mut watch = Watch::new(header).unwrap();
        events.iter().for_each(|event| watch.handle_event(event));
        watch
    }

    #[test]
    fn conditions_follow_the_events() {
        let (header, _) = sample_events();
        let mut watch = Watch::new(header).unwrap();
        let begin = |at| Event::Begin { target: 0, at_ns: at * MS };
        let end = |at, error: Option<&str>| Event::End {
            target: 0,
            at_ns: at * MS,
            delay_ns: MS,
            error: error.map(str::to_owned),
        };
        watch.handle_event(&begin(1));
        assert_eq!(watch.condition(0), Condition::Starting);
        watch.pass(1100 * MS);
        assert_eq!(watch.condition(0), Condition::Overdue, "an opening that hangs is told too");
        watch.handle_event(&ready(0, 1200, "file"));
        assert_eq!(watch.condition(0), Condition::Starting);
        watch.handle_event(&begin(2000));
        watch.handle_event(&end(2001, None));
        assert_eq!(watch.condition(0), Condition::Good);
        watch.handle_event(&begin(3000));
        watch.handle_event(&end(3001, Some("Input/output error")));
        assert_eq!(watch.condition(0), Condition::Failing);
        watch.handle_event(&begin(4000));
        watch.handle_event(&end(4001, None));
        assert_eq!(watch.condition(0), Condition::Good);
        watch.pass(7002 * MS);
        assert_eq!(watch.condition(0), Condition::Silent);
        watch.handle_event(&begin(8000));
        watch.pass(9001 * MS);
        assert_eq!(watch.condition(0), Condition::Overdue);
        assert_eq!(watch.condition(1), Condition::Starting);
        watch.handle_event(&Event::Failed { target: 1, at_ns: 1, text: "gone".to_owned() });
        assert_eq!(watch.condition(1), Condition::Failed);
    }

    #[test]
    fn a_history_keeps_every_peak_when_it_gets_coarser() {
        let mut history = History::default();
        let figures =
            |value| Figures { last: Some(value), davg: Some(1.0), dstd_dev: Some(0.0), ..Figures::default() };
        for i in 0..100_000u64 {
            history.push(i * MS, &figures(if i == 777 || i == 99_998 { 9.0 } else { 0.5 }));
        }
        let points = history.points();
        assert!(points.len() < POINTS_MAX && points.len() >= POINTS_MAX / 4, "{}", points.len());
        assert_eq!(points.iter().filter(|point| point.last == 9.0).count(), 2);
        assert!(points.windows(2).all(|pair| pair[0].at < pair[1].at));
    }
}
