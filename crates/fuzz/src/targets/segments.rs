//! Segments: their headers, the headers of runs, and scans that follow them.

use std::io::IoSlice;

use chunk::{
    MemStore, RUN_ALIGN, RUN_HEADER_LEN, SEGMENT_HEADER_LEN, ScanItem, SegmentHeader, SegmentStore,
    scan_segment,
};
use testkit::fuzz::{Memory, Target, outcome};
use types::SegmentId;

use crate::traffic::traffic;

/// A whole segment. Its number is that of its header, or 1.
pub struct Segments;

impl Target for Segments {
    fn name(&self) -> &'static str {
        "segments"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let whole = traffic().segments.iter().filter(|(_, bytes)| bytes.len() > SEGMENT_HEADER_LEN);
        // Short ones: a mutation should meet a header.
        whole.map(|(_, bytes)| bytes[..bytes.len().min(4096)].to_vec()).take(20).collect()
    }

    fn repair(&self, bytes: &mut Vec<u8>) {
        repair(bytes);
    }

    fn run(&mut self, bytes: &[u8]) -> String {
        let segment = number_of(bytes);
        if let Some(first) = bytes.first_chunk::<SEGMENT_HEADER_LEN>()
            && let Ok(header) = SegmentHeader::from_bytes(first, segment)
        {
            assert_eq!(SegmentHeader::from_bytes(&header.to_bytes(), segment), Ok(header));
        }
        let store = MemStore::new();
        store.create(segment).expect("a store in memory");
        store.write_at(segment, 0, &[IoSlice::new(bytes)]).expect("a store in memory");
        let scan = match scan_segment(&store, segment) {
            Ok(scan) => scan,
            Err(error) => return outcome(&error.to_string()),
        };
        let (mut at, mut runs, mut good, mut gaps) = (SEGMENT_HEADER_LEN as u64, 0, 0, 0);
        for item in scan {
            match item.expect("a store in memory can be read") {
                ScanItem::Run(run) => {
                    assert_eq!(
                        run.offset,
                        at + RUN_HEADER_LEN as u64,
                        "a run that is not where it should be"
                    );
                    let end = run.offset + u64::from(run.header.len);
                    assert!(end <= bytes.len() as u64, "a run beyond the end");
                    at = end.next_multiple_of(RUN_ALIGN);
                    runs += 1;
                    good += u32::from(chunk::verify_run(&store, &run).is_ok());
                }
                ScanItem::Gap { offset, len } => {
                    assert!(offset == at && len > 0 && offset + len <= bytes.len() as u64, "a gap elsewhere");
                    at += len;
                    gaps += 1;
                }
            }
        }
        assert!(at >= bytes.len() as u64, "the scan ends at {at} of {}", bytes.len());
        let files = chunk::files_of(&store, segment).expect("as the scan");
        assert!(files.len() <= runs);
        format!("{} runs, {good} good, {gaps} gaps", runs.min(20))
    }

    fn memory(&self) -> Memory {
        // A scan's window, and the store's copies.
        Memory { per_byte: 64, base: 4 << 20 }
    }
}

fn number_of(bytes: &[u8]) -> SegmentId {
    let field = bytes.get(32..40).and_then(|field| field.try_into().ok());
    SegmentId(field.map_or(1, u64::from_le_bytes))
}

fn repair(bytes: &mut [u8]) {
    let segment = number_of(bytes);
    if bytes.len() < SEGMENT_HEADER_LEN {
        return;
    }
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    let volume: [u8; 16] = bytes[16..32].try_into().expect("16 bytes");
    for at in (SEGMENT_HEADER_LEN..bytes.len()).step_by(RUN_ALIGN as usize) {
        let Some(header) = bytes.get_mut(at..at + RUN_HEADER_LEN) else { break };
        if !header.starts_with(b"HFRN") {
            continue;
        }
        let mut crc = crc32c::crc32c(&volume);
        for number in [segment.0, at as u64] {
            crc = crc32c::crc32c_append(crc, &number.to_le_bytes());
        }
        crc = crc32c::crc32c_append(crc, &header[8..]);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}
