//! Bytes of a file that are in memory only.

use std::collections::BTreeMap;
use std::ops::Range;

/// Written bytes that no segment has yet, as ranges that neither touch nor overlap.
#[derive(Debug, Default)]
pub struct DirtyBytes {
    pub(super) ranges: BTreeMap<u64, Vec<u8>>,
    pub(super) bytes: usize,
}

impl DirtyBytes {
    /// The parts of `range` that are here.
    pub(super) fn parts_in(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ranges.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let range = range.clone();
        let ranges = self.ranges.range(first..range.end.max(first));
        let parts = ranges
            .map(move |(start, bytes)| range.start.max(*start)..range.end.min(start + bytes.len() as u64));
        parts.filter(|part| part.start < part.end)
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        // The common case: the file grows at its end.
        if let Some((start, last)) = self.ranges.range_mut(..=offset).next_back()
            && start + last.len() as u64 >= offset
        {
            let start = *start;
            let at = (offset - start) as usize;
            let overlap = (last.len() - at).min(data.len());
            last[at..at + overlap].copy_from_slice(&data[..overlap]);
            last.extend_from_slice(&data[overlap..]);
            self.bytes += data.len() - overlap;
            let merged_end = start + last.len() as u64;
            if overlap < data.len() {
                self.join_behind(start, merged_end, end);
            }
            return;
        }
        self.punch(offset..end);
        self.ranges.insert(offset, data.to_vec());
        self.bytes += data.len();
        self.join_behind(offset, end, end);
    }

    /// Removes what `start..end` now hides, keeps what sticks out and touches, as one range.
    pub(super) fn join_behind(&mut self, start: u64, end: u64, _written_to: u64) {
        while let Some((&next, _)) = self.ranges.range(start + 1..=end).next() {
            let Some(bytes) = self.ranges.remove(&next) else { return };
            let hidden = ((end - next) as usize).min(bytes.len());
            self.bytes -= hidden;
            if let Some(range) = self.ranges.get_mut(&start) {
                range.extend_from_slice(&bytes[hidden..]);
            }
            if hidden < bytes.len() {
                return;
            }
        }
    }

    pub(super) fn punch(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let before = self.ranges.range(..range.start).next_back().map(|(start, _)| *start);
        let inside: Vec<u64> =
            before.into_iter().chain(self.ranges.range(range.clone()).map(|(s, _)| *s)).collect();
        for start in inside {
            let Some(mut bytes) = self.ranges.remove(&start) else { continue };
            self.bytes -= bytes.len();
            let end = start + bytes.len() as u64;
            if end > range.end {
                let tail = bytes.split_off((range.end.max(start) - start) as usize);
                self.bytes += tail.len();
                self.ranges.insert(range.end.max(start), tail);
            }
            if start < range.start {
                bytes.truncate((range.start - start) as usize);
                self.bytes += bytes.len();
                self.ranges.insert(start, bytes);
            }
        }
    }

    pub(super) fn overlay(&self, range: &Range<u64>) -> Vec<(usize, Box<[u8]>)> {
        let first = self.ranges.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let mut parts = Vec::new();
        for (start, bytes) in self.ranges.range(first..range.end) {
            let from = range.start.max(*start);
            let to = range.end.min(start + bytes.len() as u64);
            if from < to {
                let part = &bytes[(from - start) as usize..(to - start) as usize];
                parts.push(((from - range.start) as usize, part.into()));
            }
        }
        parts
    }

    pub(super) fn seek_data(&self, offset: u64) -> Option<u64> {
        if self.end_of_data_at(offset).is_some() {
            return Some(offset);
        }
        self.ranges.range(offset..).next().map(|(start, _)| *start)
    }

    pub(super) fn end_of_data_at(&self, offset: u64) -> Option<u64> {
        let (start, bytes) = self.ranges.range(..=offset).next_back()?;
        let end = start + bytes.len() as u64;
        (end > offset).then_some(end)
    }

    /// The range, if there is one alone.
    pub(super) fn only(&self) -> Option<(u64, &[u8])> {
        let (offset, bytes) = self.ranges.first_key_value().filter(|_| self.ranges.len() == 1)?;
        (!bytes.is_empty()).then_some((*offset, bytes))
    }

    pub(super) fn pop_first(&mut self) -> Option<(u64, Vec<u8>)> {
        let (offset, bytes) = self.ranges.pop_first()?;
        self.bytes -= bytes.len();
        Some((offset, bytes))
    }
}
