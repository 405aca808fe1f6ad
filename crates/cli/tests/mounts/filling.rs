//! Files that are made and written through one descriptor, which cannot be read through it: what is written so goes past the kernel's
//! pages, while others read the file through these.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value as Json, json};

use crate::lab::{Lab, Partner};

/// Goal: whoever reads finds all that was written before, however he reads, and no size goes back. Method: a new file is written
/// at its end and within, short and long, while others read it and ask for its size without pause; after each write all of
/// it is read through pages, through a mapping, and now and then on the other node.
#[test]
fn a_new_file_is_read_as_it_is_written() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let mut mapper = Partner::start(&a.root);
    let path = a.path("f");
    let file = OpenOptions::new().write(true).create_new(true).open(&path).expect("made");
    let reader = File::open(&path).expect("opened");
    let (is_over, written_to) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let reads = || {
            let mut rng = fastrand::Rng::with_seed(4);
            let noise = File::open(&path).expect("opened");
            let mut bytes = vec![0; 40_000];
            while !is_over.load(Ordering::SeqCst) {
                let at = rng.u64(..written_to.load(Ordering::SeqCst) + 5_000);
                noise.read_at(&mut bytes, at).expect("read");
            }
        };
        let looks = || {
            let mut last = 0;
            while !is_over.load(Ordering::SeqCst) {
                let least = written_to.load(Ordering::SeqCst).max(last);
                last = std::fs::metadata(&path).expect("looked at").len();
                assert!(last >= least, "{last} after {least}");
            }
        };
        let end = End(&is_over);
        let others = [scope.spawn(reads), scope.spawn(looks)];
        let mut rng = fastrand::Rng::with_seed(7);
        let mut expected: Vec<u8> = Vec::new();
        for round in 0..300_u32 {
            let len = [7, 300, 4_096, 10_240, 50_000, 300_000][rng.usize(..6)];
            let is_within = rng.bool() && !expected.is_empty();
            let at = if is_within { rng.usize(..expected.len()) } else { expected.len() };
            let bytes = vec![b'a' + (round % 26) as u8; len];
            file.write_all_at(&bytes, at as u64).expect("written");
            expected.resize(expected.len().max(at + len), 0);
            expected[at..at + len].copy_from_slice(&bytes);
            written_to.store(expected.len() as u64, Ordering::SeqCst);

            let mut found = vec![0; expected.len() + 1];
            let read = reader.read_at(&mut found, 0).expect("read");
            assert_eq!(read, expected.len(), "round {round}");
            assert!(found[..read] == expected, "round {round}: {len} bytes at {at} are not read");
            if round % 10 == 0 {
                mapper.must("map", &[json!("f"), json!(expected.len())]);
                let from = at.saturating_sub(5_000);
                let seen = mapper.must("load", &[json!("f"), json!(from), json!(at + len - from)]);
                assert!(seen.as_str().expect("text").bytes().eq(expected[from..at + len].iter().copied()));
            }
            if round % 30 == 0 {
                assert!(
                    std::fs::read(b.path("f")).expect("read") == expected,
                    "round {round}, the other node"
                );
            }
        }
        drop(end);
        others.into_iter().for_each(|other| other.join().expect("no fault"));
    });
    drop((file, reader, mapper));
    a.unmount(&lab);
    b.unmount(&lab);
}

/// Goal: the kernel sends what is written to a new file as it is written, and asks for nothing beside. Method: requests are counted while
/// files are filled by two writes that end and begin within a page, through descriptors that can be read, and that cannot.
#[test]
fn writes_to_a_new_file_come_whole() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    let fill = |name: &str, can_read: bool| {
        let before = a.counters(&lab);
        let mut open = OpenOptions::new();
        let file = open.read(can_read).write(true).create_new(true).open(a.path(name)).expect("made");
        for part in 0..2 {
            file.write_all_at(&[7; 10_240], part * 10_240).expect("written");
        }
        let after = a.counters(&lab);
        drop(file);
        ["write", "getxattr"].map(|request| requests(&after, request) - requests(&before, request))
    };
    assert_eq!(fill("f", false), [2, 0]);
    let through_pages = fill("g", true);
    assert!(through_pages >= [2, 0], "{through_pages:?}");
    assert_eq!(std::fs::read(a.path("f")).expect("read"), [7; 20_480]);
    a.unmount(&lab);
}

/// Others are to end, whatever becomes of this thread.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn requests(print: &Json, request: &str) -> u64 {
    print["by_label"]["fuse_requests_total"][request].as_u64().unwrap_or(0)
}
