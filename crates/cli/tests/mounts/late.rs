//! `lazysize`, `nomtime` and `holdfast set`: what a look at a file that another node writes costs and shows.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use serde_json::Value as Json;

use crate::lab::{Lab, Mount};

/// A file that `writer` appends to and `looker` looks at, neither of them the master.
struct Log {
    lab: Lab,
    _master: Mount,
    writer: Mount,
    looker: Mount,
    file: File,
    len: u64,
}

impl Log {
    fn new(options: &str) -> Option<Self> {
        let lab = Lab::new()?;
        let (_master, writer, looker) = (lab.mount("m"), lab.mount_with("w", options), lab.mount("l"));
        let file =
            fs::OpenOptions::new().append(true).create_new(true).open(writer.path("log")).expect("made");
        let mut log = Self { lab, _master, writer, looker, file, len: 0 };
        log.append();
        assert_eq!(log.look(), 1);
        // Names in a directory that others change go out for one use, for a second.
        std::thread::sleep(Duration::from_millis(1_200));
        log.append();
        assert_eq!(log.look(), 2);
        Some(log)
    }

    fn append(&mut self) {
        self.file.write_all(b"x").expect("written");
        self.len += 1;
    }

    fn look(&self) -> u64 {
        fs::metadata(self.looker.path("log")).expect("it is there").len()
    }

    /// Or what follows would show nothing. A machine that stands still for a second may take some tries.
    fn see_a_late_size(&mut self) {
        for _ in 0..100 {
            self.look();
            self.append();
            if self.look() < self.len {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no look is late");
    }

    fn set(&self, mount: &Mount, setting: &str) {
        self.lab.holdfast(&["set", mount.root.to_str().expect("utf-8"), setting]).expect_success();
    }

    /// Messages that the looker sent and received about tokens, and looks that were late.
    fn counted(&self) -> [u64; 3] {
        let counters = self.looker.counters(&self.lab);
        let of = |name: &str, kind: &str| counters["by_label"][name][kind].as_u64().expect("a counter");
        let late = counters["sizes_late_total"].as_u64().expect("a counter");
        [of("messages_sent_total", "acquire"), of("messages_received_total", "acquired"), late]
    }

    fn end(self) {
        let Self { lab, _master, writer, looker, file, .. } = self;
        drop(file);
        for mount in [looker, writer, _master] {
            mount.unmount(&lab);
        }
    }
}

fn difference(after: [u64; 3], before: [u64; 3]) -> [u64; 3] {
    [0, 1, 2].map(|n| after[n] - before[n])
}

#[test]
fn a_look_at_a_growing_file_costs_a_message_and_with_lazysize_none() {
    let Some(mut log) = Log::new("rw") else { return };
    let before = log.counted();
    for _ in 0..1_000 {
        log.append();
        assert_eq!(log.look(), log.len, "exact");
    }
    let exact = difference(log.counted(), before);
    println!("1000 exact looks: {exact:?} (acquire sent, acquired received, late)");
    assert_eq!(exact, [1_000, 1_000, 0]);

    log.set(&log.looker, "lazysize=on");
    let (before, since, first) = (log.counted(), Instant::now(), log.len);
    let mut last = first;
    for _ in 0..1_000 {
        log.append();
        let size = log.look();
        assert!((last..=log.len).contains(&size), "{last} and then {size} of {}", log.len);
        last = size;
    }
    let lazy = difference(log.counted(), before);
    let (took, seconds) = (since.elapsed(), since.elapsed().as_secs());
    println!("1000 looks with lazysize in {took:?}: {lazy:?}");
    assert!(lazy[0] <= seconds + 1 && lazy[2] >= 999 - seconds, "{lazy:?} in {took:?}");
    assert_eq!(lazy[0] + lazy[2], 1_000, "each is one or the other");
    log.see_a_late_size();

    // Nothing else is late: reads to the end, seeks to it, appends, who opened it since.
    let mut reader = File::open(log.looker.path("log")).expect("opened");
    assert_eq!(reader.metadata().expect("open").len(), log.len);
    for _ in 0..20 {
        log.append();
        log.look();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).expect("read");
        assert_eq!(reader.stream_position().expect("open"), log.len);
        log.append();
        assert_eq!(reader.seek(SeekFrom::End(0)).expect("sought"), log.len);
    }
    for _ in 0..20 {
        log.look();
        log.append();
        rustix::fs::flock(&reader, FlockOperation::LockShared).expect("locked");
        assert_eq!(log.look(), log.len, "who has a lock is shown what there is");
        rustix::fs::flock(&reader, FlockOperation::Unlock).expect("unlocked");
    }
    let mut appender = fs::OpenOptions::new().append(true).open(log.looker.path("log")).expect("opened");
    for _ in 0..20 {
        log.append();
        appender.write_all(b"yy").expect("written");
        log.len += 2;
        assert_eq!(log.look(), log.len, "who writes is shown the truth");
        log.append();
        assert_eq!(appender.metadata().expect("open").len(), log.len);
    }
    // Looks at what is open here may bring the kernel's end forward, by questions of their own.
    drop((appender, reader));
    log.see_a_late_size();

    // Off again: at once.
    log.set(&log.looker, "lazysize=off");
    let before = log.counted();
    for _ in 0..100 {
        log.append();
        assert_eq!(log.look(), log.len);
    }
    assert_eq!(difference(log.counted(), before), [100, 100, 0]);
    let mut all = String::new();
    File::open(log.looker.path("log")).expect("opened").read_to_string(&mut all).expect("read");
    assert_eq!((all.len() as u64, all.matches("yy").count()), (log.len, 20));
    log.end();
}

/// With a clock beside it: what is shown was so at most a second before the look.
#[test]
fn a_late_size_is_a_second_old_at_most() {
    let Some(mut log) = Log::new("rw") else { return };
    log.set(&log.looker, "lazysize=on");
    let (written, is_over) = (AtomicU64::new(log.len), AtomicBool::new(false));
    let path = log.looker.path("log");
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            // What was written for certain at a moment, and the moment.
            let mut history = vec![(Instant::now(), written.load(Ordering::SeqCst))];
            let mut count = 0;
            while !is_over.load(Ordering::SeqCst) {
                let asked = Instant::now();
                let size = fs::metadata(&path).expect("it is there").len();
                let known = history.iter().rev().find(|(at, _)| asked.duration_since(*at) >= LATE_MAX);
                if let Some((_, least)) = known {
                    assert!(size >= *least, "{size} though {least} were there a second before");
                }
                history.push((Instant::now(), written.load(Ordering::SeqCst)));
                count += 1;
            }
            count
        });
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(3_500) {
            log.append();
            written.store(log.len, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Ordering::SeqCst);
        println!("{} looks in 3.5 s", looks.join().expect("it ends"));
    });
    let [.., late] = log.counted();
    assert!(late > 100, "{late}");
    log.end();
}

#[test]
fn with_nomtime_others_see_times_when_they_are_recorded() {
    let Some(mut log) = Log::new("nomtime,commit=60") else { return };
    let mtime = |mount: &Mount| {
        let metadata = fs::metadata(mount.path("log")).expect("it is there");
        (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec())
    };
    let recorded = mtime(&log.looker);
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(5));
        log.append();
        assert_eq!(log.look(), log.len, "sizes are exact");
        assert_eq!(mtime(&log.looker), recorded);
        assert!(mtime(&log.writer) > recorded);
    }
    let late = log.writer.counters(&log.lab)["times_late_total"].as_u64();
    assert!(late >= Some(10), "{late:?}");
    log.file.sync_all().expect("synced");
    assert_eq!(mtime(&log.looker), mtime(&log.writer));
    // What somebody sets, on either node, shows on both.
    for (mount, secs) in [(&log.writer, 7), (&log.looker, 8)] {
        let file = File::open(mount.path("log")).expect("opened");
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(secs)).expect("set");
        assert_eq!((mtime(&log.looker).0, mtime(&log.writer).0), (secs as i64, secs as i64));
    }
    // A reader has the content, and its times.
    log.file.write_all_at(b"z", 0).expect("written");
    log.len += 1;
    fs::read(log.looker.path("log")).expect("read");
    assert_eq!(mtime(&log.looker), mtime(&log.writer));
    // Off again: at once.
    log.set(&log.writer, "nomtime=off");
    log.append();
    assert_eq!(mtime(&log.looker), mtime(&log.writer));
    log.end();
}

#[test]
fn options_are_set_while_mounted_and_shown() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount_with("b", "lazysize,nomtime"));
    let shown = |lab: &Lab| -> Vec<Json> {
        let status = lab.status();
        status["nodes"].as_array().expect("a list").iter().map(|node| node["options"].clone()).collect()
    };
    let options =
        |lazysize: bool, nomtime: bool| serde_json::json!({ "lazysize": lazysize, "nomtime": nomtime });
    assert_eq!(shown(&lab), [options(false, false), options(true, true)]);
    let set = |arguments: &[&str]| lab.holdfast(&[&["set"], arguments].concat());
    assert_eq!(set(&["a", "lazysize=on"]).expect_success().out, "");
    assert_eq!(set(&["b", "lazysize=off", "nomtime=off", "--json"]).json(), options(false, false));
    assert_eq!(shown(&lab), [options(true, false), options(false, false)]);
    assert_eq!(set(&["a"]).expect_success().out, "lazysize=on\nnomtime=off\n");
    let text = lab.holdfast(&["status", "vol"]).expect_success().out;
    let root = a.root.display();
    assert!(text.contains(&format!("{root} (lazysize)\n")), "{text}");
    for wrong in
        [&["a", "lazysize"][..], &["a", "lazysize=maybe"], &["a", "commit=3"], &["vol", "nomtime=on"]]
    {
        let ended = set(wrong);
        assert!(ended.code == 2 && !ended.err.is_empty(), "{wrong:?}: {} {}", ended.code, ended.err);
    }
    assert_eq!(shown(&lab), [options(true, false), options(false, false)], "refused as a whole");
    b.unmount(&lab);
    a.unmount(&lab);
}

const LATE_MAX: Duration = Duration::from_secs(1);
