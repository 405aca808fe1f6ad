//! File data: whether it is stored, and whether it is what was written.

use std::collections::BTreeMap;
use std::ops::Range;

use chunk::{ChunkError, Extent, RUN_HEADER_LEN, RUN_LEN_MAX, ScanItem, SegmentStore, StoredRun};
use kv::Pace;
use meta::Key;
use types::{Ino, SegmentId};

use crate::CheckError;
use crate::report::{FaultKind, Report};
use crate::segments::Segments;

/// An extent and the record that names it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub key: Key,
    pub ino: Ino,
    pub extent: Extent,
}

/// Extents by segment.
pub(crate) type Extents = BTreeMap<SegmentId, Vec<Named>>;

/// Asks whether an extent is named still, where others change the volume meanwhile.
pub(crate) type IsNamed<'a> = dyn Fn(&Named) -> Result<bool, CheckError> + 'a;

/// What is wrong with the data of files, a fault for each.
#[derive(Debug, Default)]
pub(crate) struct DataFaults(BTreeMap<Ino, DataFault>);

#[derive(Debug)]
struct DataFault {
    kind: FaultKind,
    key: Key,
    ranges: Vec<Range<u64>>,
    what: String,
}

impl DataFaults {
    /// Compares an extent with the length of its segment. Returns whether its bytes are there.
    pub fn check_length(&mut self, named: &Named, stored: &Segments) -> bool {
        let Named { key, ino, extent } = named;
        let segment = extent.segment();
        let end = extent.run().offset() + u64::from(extent.run().len());
        let what = match stored.len_of(segment) {
            Some(len) if len >= end => return true,
            Some(len) => format!("bytes up to {end} of segment {segment} are named, which is {len} bytes"),
            None => format!("bytes up to {end} of segment {segment} are named, which is missing"),
        };
        self.add(FaultKind::MissingData, *key, *ino, [extent.range()], what);
        false
    }

    fn add(
        &mut self,
        kind: FaultKind,
        key: Key,
        ino: Ino,
        ranges: impl IntoIterator<Item = Range<u64>>,
        what: String,
    ) {
        let fault = self.0.entry(ino).or_insert(DataFault { kind, key, ranges: Vec::new(), what });
        fault.ranges.extend(ranges);
    }

    /// Hands the faults over.
    pub fn report(self, report: &mut Report) {
        for (ino, DataFault { kind, key, ranges, what }) in self.0 {
            let ranges = joined(ranges);
            let shown: Vec<String> = ranges
                .iter()
                .take(RANGES_SHOWN)
                .map(|range| format!("{}..{}", range.start, range.end))
                .collect();
            let more = if ranges.len() > RANGES_SHOWN { ", ..." } else { "" };
            let what = format!("bytes {}{more} of the file: {what}", shown.join(", "));
            report.add(kind, key, Some(ino), what);
            if let Some(fault) = report.faults.last_mut().filter(|fault| fault.ino == Some(ino)) {
                fault.ranges = ranges;
            }
        }
    }
}

/// Sorts ranges and joins those that touch.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            Some(_) | None => joined.push(range),
        }
    }
    joined
}

/// Reads segments and compares them with the sums in extents and in themselves.
pub(crate) struct DataCheck<'a, 'p> {
    pub store: &'a dyn SegmentStore,
    pub pace: &'a mut Pace<'p>,
    /// `None` where nobody changes anything: then bytes that no file needs are looked at, too.
    pub is_named: Option<&'a IsNamed<'a>>,
    pub faults: DataFaults,
}

impl DataCheck<'_, '_> {
    /// Checks all of `extents` and all segments that are stored. Returns whether it came to the end.
    pub fn run(
        &mut self,
        mut extents: Extents,
        stored: &Segments,
        report: &mut Report,
    ) -> Result<bool, CheckError> {
        for segment in stored.iter() {
            extents.entry(segment).or_default();
        }
        for (segment, mut named) in extents {
            named.sort_unstable_by_key(|named| named.extent.run().offset());
            let mut live = Vec::new();
            for named in &named {
                let run = named.extent.run();
                live.push((run.offset()..run.offset() + u64::from(run.len()), named));
                report.counts.data_bytes_read += u64::from(named.extent.len());
                if self.check_length(named, stored)? {
                    self.check_extent(named)?;
                }
                if !(self.pace)(u64::from(run.len())) {
                    return Ok(false);
                }
            }
            if stored.len_of(segment).is_some_and(|len| len > 0)
                && !self.check_structure(segment, &live, report)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Checks whether all of `extents` is there.
    pub fn check_lengths(&mut self, extents: &Extents, stored: &Segments) -> Result<(), CheckError> {
        for named in extents.values().flatten() {
            self.check_length(named, stored)?;
        }
        Ok(())
    }

    fn check_length(&mut self, named: &Named, stored: &Segments) -> Result<bool, CheckError> {
        if stored.has(named) {
            return Ok(true);
        }
        if self.is_named(named)? {
            self.faults.check_length(named, stored);
        }
        Ok(false)
    }

    fn is_named(&self, named: &Named) -> Result<bool, CheckError> {
        self.is_named.map_or(Ok(true), |is_named| is_named(named))
    }

    fn check_extent(&mut self, named: &Named) -> Result<(), CheckError> {
        let Named { key, ino, extent } = named;
        let Err(error) = chunk::verify_extent(self.store, *ino, extent) else { return Ok(()) };
        if !self.is_named(named)? {
            return Ok(());
        }
        let kind = match error {
            ChunkError::Missing { .. } => FaultKind::MissingData,
            _ => FaultKind::BadData,
        };
        let ranges = chunk::bad_ranges(self.store, *ino, extent);
        self.faults.add(kind, *key, *ino, ranges, error.to_string());
        Ok(())
    }

    /// Goes through the headers of a segment: cleaner and salvage find what is in it by them.
    fn check_structure(
        &mut self,
        segment: SegmentId,
        live: &[(Range<u64>, &Named)],
        report: &mut Report,
    ) -> Result<bool, CheckError> {
        let scan = match chunk::scan_segment(self.store, segment) {
            Ok(scan) => scan,
            Err(error) => {
                self.add_structure(
                    segment,
                    live.first().map(|(_, named)| *named),
                    error.to_string(),
                    report,
                )?;
                return Ok(true);
            }
        };
        for item in scan {
            match item {
                Ok(ScanItem::Run(run)) => {
                    if !self.check_dead_run(&run, live, report) {
                        return Ok(false);
                    }
                }
                Ok(ScanItem::Gap { offset, len }) => {
                    let gap = offset..offset + len;
                    let needed =
                        live.iter().find(|(stored, _)| stored.start < gap.end && gap.start < stored.end);
                    if let Some((_, named)) = needed {
                        let what = format!(
                            "segment {segment} has no header that leads to its bytes {}..{}",
                            gap.start, gap.end
                        );
                        self.add_structure(segment, Some(named), what, report)?;
                    }
                    if !(self.pace)(len) {
                        return Ok(false);
                    }
                }
                // Deleted meanwhile, or damage that the extents told of.
                Err(_) => return Ok(true),
            }
        }
        Ok(true)
    }

    fn add_structure(
        &self,
        segment: SegmentId,
        needed_by: Option<&Named>,
        what: String,
        report: &mut Report,
    ) -> Result<(), CheckError> {
        match needed_by {
            Some(named) if self.is_named(named)? => {
                report.add(FaultKind::DamagedSegment, Key::Segment(segment), Some(named.ino), what);
            }
            None if self.is_named.is_none() => {
                report.add(FaultKind::DeadDamage, Key::Segment(segment), None, what);
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    /// Reads a run of which no file has anything. Returns whether to go on.
    fn check_dead_run(
        &mut self,
        run: &StoredRun,
        live: &[(Range<u64>, &Named)],
        report: &mut Report,
    ) -> bool {
        let bytes = run.offset..run.offset + u64::from(run.header.len);
        // No run is longer, so what begins earlier than that ends before this one. Copies may overlap.
        let first = live.partition_point(|(stored, _)| stored.start + u64::from(RUN_LEN_MAX) <= bytes.start);
        let mut near = live[first..].iter().take_while(|(stored, _)| stored.start < bytes.end);
        let is_live = near.any(|(stored, _)| stored.end > bytes.start);
        if is_live || self.is_named.is_some() {
            return (self.pace)(RUN_HEADER_LEN as u64);
        }
        if let Err(error) = chunk::verify_run(self.store, run) {
            report.add(FaultKind::DeadDamage, Key::Segment(run.segment), None, error.to_string());
        }
        (self.pace)(u64::from(run.header.len))
    }
}

/// Ranges of a file that are spelled out; all are in the report.
const RANGES_SHOWN: usize = 8;
