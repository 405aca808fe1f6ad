//! Files that grow on several nodes while all of them read: what was written before a read began is read.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::lab::Lab;
use crate::stall::{Stall, now_us};

const LONG_ENOUGH: Duration = Duration::from_secs(10);
const RECORD: usize = 48;
const PAGE: usize = 4096;
const FAULTS_MAX: usize = 40;

/// Goal: the end of a file that all append to is never an old one, and no bytes in it are ever zeros: the two
/// ways in which a kernel shows a size wrongly (`kernel_cache.rs` of the crate `fuse`). Method: every append counts its
/// record after it returned; every reader knows the count from before it began. Descriptors of readers are kept
/// or new, four at each mount, the third one without an appender.
#[test]
fn logs_that_all_nodes_append_to_are_read_to_their_end() {
    let Some(lab) = Lab::new() else { return };
    let mounts = [lab.mount("a"), lab.mount("b"), lab.mount("c")];
    fs::write(mounts[0].path("log"), b"").expect("made");
    let (appended, faults, stop) = (AtomicU64::new(0), Faults::default(), AtomicBool::new(false));
    // Before anybody appends: later ones read past the pages of the kernel.
    let kept: Vec<_> = mounts
        .iter()
        .flat_map(|mount| {
            [Reading::Whole, Reading::Tail, Reading::End, Reading::Size].map(|reading| (mount, reading))
        })
        .map(|(mount, reading)| {
            let path = mount.path("log");
            (File::open(&path).expect("opened"), path, reading)
        })
        .collect();
    let reads = thread::scope(|scope| {
        let (appended, faults, stop) = (&appended, &faults, &stop);
        for (index, mount) in mounts[..2].iter().enumerate() {
            for writer in [2 * index, 2 * index + 1] {
                let path = mount.path("log");
                scope.spawn(move || append(&path, writer, appended, stop));
            }
        }
        let readers: Vec<_> = kept
            .into_iter()
            .map(|(file, path, reading)| {
                scope.spawn(move || read_log(file, &path, reading, appended, faults, stop))
            })
            .collect();
        thread::sleep(LONG_ENOUGH);
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().expect("a reader")).sum::<u64>()
    });
    let appended = appended.into_inner();
    println!("{appended} records, {reads} reads");
    faults.expect_none();
    assert!(appended > 100 && reads > 100, "{appended} records, {reads} reads");
    for mount in &mounts {
        let content = fs::read(mount.path("log")).expect("read");
        assert_eq!(content.len() as u64, appended * RECORD as u64);
        assert_eq!(records(&content), Ok(()));
    }
    for mount in mounts {
        mount.unmount(&lab);
    }
}

/// A file that one node cuts short and makes long again, while two processes of another read pages of it, one of them
/// behind the new end. The kernel does not take the end that such reads meet, and would show zeros behind it.
#[test]
fn a_file_that_another_node_cut_shows_no_zeros_behind_its_end() {
    let Some(lab) = Lab::new() else { return };
    let mounts = [lab.mount("a"), lab.mount("b")];
    let cut = OpenOptions::new().write(true).create_new(true).open(mounts[1].path("cut")).expect("made");
    let reader = File::open(mounts[0].path("cut")).expect("opened");
    let turn = Barrier::new(2);
    let (mut wrong, mut buffer) = (Vec::new(), vec![0; 16384]);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..CUTS {
                turn.wait();
                reader.read_at(&mut [0; 100], 8192).expect("read");
                turn.wait();
            }
        });
        for round in 0..CUTS {
            // Longer than the two pages that are read, and no end of a page.
            cut.write_all_at(&[b'x'; 13_000], 0).expect("written");
            assert_eq!(reader.read_at(&mut buffer, 0).expect("read"), 13_000);
            cut.set_len(10).expect("cut");
            turn.wait();
            reader.read_at(&mut [0; 5], 0).expect("read");
            turn.wait();
            // Within the end that was: the kernel asks nobody.
            let len = reader.read_at(&mut buffer[..100], 0).expect("read");
            if len != 10 {
                wrong.push((round, len));
            }
        }
    });
    assert_eq!(wrong, [], "rounds that read more than ten bytes");
    drop((cut, reader));
    for mount in mounts {
        mount.unmount(&lab);
    }
}

const CUTS: usize = 200;

/// Goal: what is written behind an end that another node has just made is there, although the kernel is told of that end meanwhile, and cuts pages
/// there. Method: after each cut a process of the other node reads, looks at the file or links it while another writes behind the new end and
/// before the old one. Of what was written in the page of the new end, half was lost for good where the kernel took that end without the lock of the file.
#[test]
fn what_is_written_behind_an_end_that_another_node_made_stays() {
    let Some(lab) = Lab::new() else { return };
    let mounts = [lab.mount("a"), lab.mount("b")];
    let ask: [(&str, fn(&File, &Path)); 4] = [
        ("read", |file, _| _ = file.read_at(&mut [0; 100], 0).expect("read")),
        ("lseek", |file, _| _ = (&mut &*file).seek(SeekFrom::End(0)).expect("sought")),
        ("stat", |_, path| _ = fs::metadata(path).expect("there")),
        ("link", |_, path| {
            let link = path.with_extension("link");
            fs::hard_link(path, &link).expect("linked");
            fs::remove_file(link).expect("removed");
        }),
    ];
    for (asks, ask) in ask {
        for (offset, len) in [(200, 100), (0, 8192)] {
            let lost = write_behind_cuts(&mounts.each_ref().map(|mount| mount.path("cut")), ask, offset, len);
            assert!(
                lost.is_empty(),
                "lost in rounds {lost:?}: {len} bytes written at {offset} beside {asks}"
            );
        }
    }
    for mount in mounts {
        mount.unmount(&lab);
    }
}

/// The rounds after which either node reads something else than was written last.
fn write_behind_cuts(paths: &[PathBuf; 2], ask: fn(&File, &Path), offset: usize, len: usize) -> Vec<usize> {
    const LONG: usize = 13_000;
    const SHORT: usize = 100;
    let cut = File::options().read(true).write(true).create(true).truncate(true).open(&paths[1]);
    let cut = cut.expect("made");
    let writer = File::options().write(true).open(&paths[0]).expect("opened");
    let reader = File::open(&paths[0]).expect("opened");
    let turn = Barrier::new(3);
    let mut lost = Vec::new();
    let byte = |round: usize| b'a' + (round % 20) as u8;
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..CUTS / 2 {
                turn.wait();
                ask(&reader, &paths[0]);
                turn.wait();
            }
        });
        scope.spawn(|| {
            for round in 0..CUTS / 2 {
                turn.wait();
                writer.write_all_at(&vec![byte(round); len], offset as u64).expect("written");
                turn.wait();
            }
        });
        for round in 0..CUTS / 2 {
            cut.write_all_at(&[b'x'; LONG], 0).expect("written");
            assert_eq!(reader.read_at(&mut vec![0; 2 * LONG], 0).expect("read"), LONG);
            cut.set_len(SHORT as u64).expect("cut");
            turn.wait();
            turn.wait();
            let mut expected = vec![b'x'; SHORT];
            expected.resize((offset + len).max(SHORT), 0);
            expected[offset..offset + len].fill(byte(round));
            if [&cut, &reader].map(|file| content_of(file, 2 * LONG)) != [expected.clone(), expected] {
                lost.push(round);
            }
        }
    });
    lost
}

fn content_of(file: &File, len_max: usize) -> Vec<u8> {
    let mut content = vec![0; len_max];
    let len = file.read_at(&mut content, 0).expect("read");
    content.truncate(len);
    content
}

/// Goal: of a log that one node cuts short again and again while another appends to it, no process of either reads zeros where a
/// record was cut off or is about to come, and nobody waits for long. Method: reads of the whole of it, each checked record by
/// record. A kernel reads page by page: a read that a cut overtakes may end with a page instead of a record, on a local file
/// system too (ext4: 9,882 of 3,000,000 reads beside 16,007 cuts). No other may.
#[test]
fn a_log_that_is_cut_while_it_grows_shows_whole_records() {
    let Some(lab) = Lab::new() else { return };
    let mounts = [lab.mount("a"), lab.mount("b")];
    fs::write(mounts[0].path("log"), b"").expect("made");
    let (faults, stop, cuts) = (Faults::default(), AtomicBool::new(false), Cuts::default());
    let stall = Stall::start(&lab.dir);
    let ((appended, slow), reads) = thread::scope(|scope| {
        let (faults, stop, cuts) = (&faults, &stop, &cuts);
        let path = mounts[1].path("log");
        let appender = scope.spawn(move || append_all(&path, stop));
        let path = mounts[0].path("log");
        scope.spawn(move || cut_log(&path, cuts, stop));
        thread::sleep(Duration::from_millis(100));
        let readers = [0, 1, 1].map(|mount: usize| {
            let path = mounts[mount].path("log");
            scope.spawn(move || read_whole(&path, cuts, faults, stop))
        });
        thread::sleep(LONG_ENOUGH);
        stop.store(true, Ordering::Relaxed);
        let reads = readers.into_iter().map(|reader| reader.join().expect("a reader")).sum::<u64>();
        (appender.join().expect("the appender"), reads)
    });
    let (cuts, overtaken) = (cuts.ended.into_inner(), cuts.overtook.into_inner());
    println!("{appended} records, {cuts} cuts, {reads} reads, {overtaken} of them end with a page");
    faults.expect_none();
    let stalls = stall.stop();
    for (began, ended) in slow {
        let (took, late) = (ended - began, stalls.between(began, ended));
        assert!(took < PROMPT_US + late, "a record took {took} us; the machine was late by {late} us");
    }
    assert!(appended > 100 && cuts > 20 && reads > 100, "{appended} records, {cuts} cuts, {reads} reads");
    // Of few reads beside many cuts, as on a busy machine, more are overtaken.
    assert!(overtaken <= (reads / 100).max(cuts / 4), "{overtaken} of {reads} reads end with a page");
    for mount in mounts {
        mount.unmount(&lab);
    }
}

/// Of a file, by number.
#[derive(Debug, Default)]
struct Cuts {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Reads that ended with a page because of one.
    overtook: AtomicU64,
}

/// Returns how many records it has appended, and when it began and ended with those that took long.
fn append_all(path: &Path, stop: &AtomicBool) -> (u64, Vec<(u64, u64)>) {
    let mut file = OpenOptions::new().append(true).open(path).expect("opened");
    let (mut number, mut slow) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let began = now_us();
        assert_eq!(file.write(&record(0, number)).expect("appended"), RECORD);
        let ended = now_us();
        if ended - began > PROMPT_US {
            slow.push((began, ended));
        }
        number += 1;
        if number % 3 == 0 {
            thread::sleep(Duration::from_millis(number % 10));
        }
    }
    (number, slow)
}

fn cut_log(path: &Path, cuts: &Cuts, stop: &AtomicBool) {
    let file = OpenOptions::new().write(true).open(path).expect("opened");
    for round in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let records = fs::metadata(path).expect("there").len() / RECORD as u64;
        if records > 20 {
            // By a few, or to nothing.
            let left = if round % 5 == 0 { 0 } else { records - 1 - round % 7 };
            cuts.begun.fetch_add(1, Ordering::SeqCst);
            file.set_len(left * RECORD as u64).expect("cut");
            cuts.ended.fetch_add(1, Ordering::SeqCst);
        }
        thread::sleep(Duration::from_millis(round % 10));
    }
}

fn read_whole(path: &Path, cuts: &Cuts, faults: &Faults, stop: &AtomicBool) -> u64 {
    let file = File::open(path).expect("opened");
    let (mut reads, mut content) = (0, vec![0; 64 << 10]);
    while !stop.load(Ordering::Relaxed) {
        let ended = cuts.ended.load(Ordering::SeqCst);
        let mut len = file.read_at(&mut content, 0).expect("read");
        let overtaken = cuts.begun.load(Ordering::SeqCst) > ended;
        if overtaken && len.is_multiple_of(PAGE) && !len.is_multiple_of(RECORD) {
            cuts.overtook.fetch_add(1, Ordering::Relaxed);
            len -= len % RECORD;
        }
        if let Err(fault) = records(&content[..len]) {
            faults.add(format!("{path:?}: {fault} of {len} bytes"));
        }
        reads += 1;
        thread::sleep(Duration::from_millis(reads % 3));
    }
    reads
}

/// For an append: beside the waits of a few nodes for each other, on a machine that is at work.
const PROMPT_US: u64 = 2_000_000;

/// As above for writes at places of their own behind the end, which go through the kernel's page cache.
#[test]
fn files_that_all_nodes_extend_show_every_write() {
    let Some(lab) = Lab::new() else { return };
    let mounts = [lab.mount("a"), lab.mount("b")];
    fs::write(mounts[0].path("slots"), b"").expect("made");
    let (next, faults, stop) = (AtomicU64::new(0), Faults::default(), AtomicBool::new(false));
    let written: [AtomicU64; WRITERS] = Default::default();
    let reads = thread::scope(|scope| {
        let (next, written, faults, stop) = (&next, &written, &faults, &stop);
        for (index, last) in written.iter().enumerate() {
            let path = mounts[index % 2].path("slots");
            scope.spawn(move || extend(&path, index, next, last, stop));
        }
        let readers: Vec<_> = (0..WRITERS)
            .map(|index| {
                let path = mounts[index % 2].path("slots");
                scope.spawn(move || read_slots(&path, written, faults, stop))
            })
            .collect();
        thread::sleep(LONG_ENOUGH);
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().expect("a reader")).sum::<u64>()
    });
    let slots = next.into_inner();
    println!("{slots} slots, {reads} reads");
    faults.expect_none();
    assert!(slots > 100 && reads > 100, "{slots} slots, {reads} reads");
    for mount in &mounts {
        let content = fs::read(mount.path("slots")).expect("read");
        assert_eq!((content.len() as u64, records(&content)), (slots * RECORD as u64, Ok(())));
    }
    for mount in mounts {
        mount.unmount(&lab);
    }
}

const WRITERS: usize = 4;

/// What a reader looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// All of it, by a new descriptor.
    Whole,
    /// The last records, by a descriptor that is kept.
    Tail,
    /// Where a descriptor finds the end.
    End,
    /// What stat tells.
    Size,
}

fn append(path: &Path, writer: usize, appended: &AtomicU64, stop: &AtomicBool) {
    let mut file = OpenOptions::new().append(true).open(path).expect("opened");
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        assert_eq!(file.write(&record(writer as u64, number)).expect("appended"), RECORD);
        appended.fetch_add(1, Ordering::SeqCst);
        // Now at once, now with time for others to take the file.
        if number % 3 == 0 {
            thread::sleep(Duration::from_millis(number % 5));
        }
    }
}

fn read_log(
    mut file: File,
    path: &Path,
    reading: Reading,
    appended: &AtomicU64,
    faults: &Faults,
    stop: &AtomicBool,
) -> u64 {
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        let end = appended.load(Ordering::SeqCst) * RECORD as u64;
        let from = match reading {
            Reading::Whole => 0,
            Reading::Tail | Reading::End | Reading::Size => end.saturating_sub(100 * RECORD as u64),
        };
        let mut content = vec![0; (end - from) as usize];
        let found = match reading {
            Reading::Whole => {
                content = fs::read(path).expect("read");
                content.len() as u64
            }
            Reading::Tail => from + file.read_at(&mut content, from).expect("read") as u64,
            Reading::End => {
                let found = file.seek(SeekFrom::End(0)).expect("sought");
                content.clear();
                found
            }
            Reading::Size => {
                content.clear();
                fs::metadata(path).expect("there").len()
            }
        };
        if found < end {
            faults.add(format!("{reading:?} at {path:?} ended at {found}, {end} bytes were there"));
        } else if let Err(fault) = records(&content) {
            faults.add(format!(
                "{reading:?} at {path:?}: {fault} from {from} to {found}, {end} bytes were there"
            ));
        }
        reads += 1;
        thread::sleep(Duration::from_millis(reads % 4));
    }
    reads
}

fn extend(path: &Path, writer: usize, next: &AtomicU64, last: &AtomicU64, stop: &AtomicBool) {
    let file = OpenOptions::new().write(true).open(path).expect("opened");
    while !stop.load(Ordering::Relaxed) {
        let slot = next.fetch_add(1, Ordering::SeqCst);
        file.write_all_at(&record(writer as u64, slot), slot * RECORD as u64).expect("written");
        last.store(slot + 1, Ordering::SeqCst);
        if slot % 3 == 0 {
            thread::sleep(Duration::from_millis(slot % 5));
        }
    }
}

fn read_slots(path: &Path, written: &[AtomicU64; WRITERS], faults: &Faults, stop: &AtomicBool) -> u64 {
    let file = File::open(path).expect("opened");
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        let writer = reads as usize % WRITERS;
        if let Some(slot) = written[writer].load(Ordering::SeqCst).checked_sub(1) {
            let mut content = [0; RECORD];
            let len = file.read_at(&mut content, slot * RECORD as u64).expect("read");
            if content[..len] != record(writer as u64, slot) {
                faults.add(format!("slot {slot} of writer {writer} at {path:?}: {len} bytes, {content:?}"));
            }
        }
        reads += 1;
        thread::sleep(Duration::from_millis(reads % 3));
    }
    reads
}

fn record(writer: u64, number: u64) -> [u8; RECORD] {
    let mut record = [b'.'; RECORD];
    let text = format!("{writer} {number} ");
    record[..text.len()].copy_from_slice(text.as_bytes());
    record[RECORD - 1] = b'\n';
    record
}

/// Whole records and nothing else.
fn records(content: &[u8]) -> Result<(), String> {
    let (whole, rest) = content.as_chunks::<RECORD>();
    if !rest.is_empty() {
        return Err(format!("{} bytes behind the last whole record", rest.len()));
    }
    let is_record = |bytes: &[u8; RECORD]| {
        let text = String::from_utf8_lossy(bytes);
        let mut numbers = text.split(' ').map(|word| word.parse::<u64>().ok());
        let (writer, number) = (numbers.next().flatten(), numbers.next().flatten());
        writer.zip(number).is_some_and(|(writer, number)| record(writer, number) == *bytes)
    };
    match whole.iter().position(|bytes| !is_record(bytes)) {
        Some(at) => Err(format!("record {at} is {:?}", String::from_utf8_lossy(&whole[at]))),
        None => Ok(()),
    }
}

/// The first of them, and how many there were.
#[derive(Debug, Default)]
struct Faults {
    count: AtomicU64,
    first: std::sync::Mutex<Vec<String>>,
}

impl Faults {
    fn add(&self, fault: String) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut first = self.first.lock().expect("no reader panicked");
        if first.len() < FAULTS_MAX {
            first.push(fault);
        }
    }

    fn expect_none(&self) {
        let count = self.count.load(Ordering::Relaxed);
        assert!(count == 0, "{count} faults: {:#?}", self.first.lock().expect("no reader panicked"));
    }
}
