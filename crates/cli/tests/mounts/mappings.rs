//! Shared mappings and programs: what one node stores or replaces is what the other maps and runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::lab::{Lab, Partner, unless_busy};

/// SIGBUS on Linux.
const SIGBUS: i32 = 7;

#[test]
fn mappings_on_two_nodes_show_one_file() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let [mut on_a, mut on_b] = [Partner::start(&a.root), Partner::start(&b.root)];
    on_a.must("create", &[json!("f"), json!("-".repeat(20_000))]);
    let fd = on_b.must("open", &[json!("f"), json!("rw")]);
    on_a.must("map", &[json!("f"), json!(20_000)]);
    on_b.must("map", &[json!("f"), json!(20_000)]);
    for round in 0..200 {
        let at = json!(round * 97);
        let text = json!(format!("round {round:05}"));
        on_a.must("store", &[json!("f"), at.clone(), text.clone()]);
        on_a.must("msync", &[json!("f")]);
        assert_eq!(on_b.must("load", &[json!("f"), at.clone(), json!(11)]), text, "stored on a");
        assert_eq!(on_b.must("pread", &[fd.clone(), json!(11), at.clone()]), text, "stored on a, read");
        let text = json!(format!("write {round:05}"));
        on_b.must("pwrite", &[fd.clone(), text.clone(), at.clone()]);
        assert_eq!(on_a.must("load", &[json!("f"), at.clone(), json!(11)]), text, "written on b");
        let text = json!(format!("store {round:05}"));
        on_b.must("store", &[json!("f"), at.clone(), text.clone()]);
        // Taking the pages back writes what was stored, msync or not.
        assert_eq!(on_a.must("load", &[json!("f"), at, json!(11)]), text, "stored on b");
    }
    drop((on_a, on_b));
    let content = fs::read(a.path("f")).expect("read");
    assert_eq!(content, fs::read(b.path("f")).expect("read"));
    a.unmount(&lab);
    b.unmount(&lab);
}

#[test]
fn a_truncation_on_the_other_node_takes_mapped_pages_away() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let [mut on_a, mut on_b] = [Partner::start(&a.root), Partner::start(&b.root)];
    on_a.must("create", &[json!("f"), json!("x".repeat(8_192))]);
    on_b.must("map", &[json!("f"), json!(8_192)]);
    assert_eq!(on_b.must("load", &[json!("f"), json!(8_191), json!(1)]), json!("x"));
    on_a.must("truncate", &[json!("f"), json!(100)]);
    assert_eq!(on_b.must("load", &[json!("f"), json!(99), json!(3)]), json!("x\0\0"));
    on_b.tell("load", &[json!("f"), json!(5_000), json!(1)]);
    assert_eq!(on_b.ended_by(), Some(SIGBUS));
}

/// While a truncation is under way the kernel writes no page of the file back: its answer must not wait for any.
#[test]
fn a_file_grows_by_truncation_under_pages_that_were_stored_to() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let [mut on_a, mut on_b] = [Partner::start(&a.root), Partner::start(&b.root)];
    on_a.must("create", &[json!("f"), json!("-".repeat(20_000))]);
    on_a.must("map", &[json!("f"), json!(20_000)]);
    for (round, size) in [(1, 50_000), (2, 90_000)] {
        let text = format!("round {round}");
        on_a.must("store", &[json!("f"), json!(19_990), json!(text)]);
        on_a.must("truncate", &[json!("f"), json!(size)]);
        let read = on_b.must("read", &[json!("f")]);
        assert_eq!(read.as_str().expect("text")[19_990..19_997], text);
        assert_eq!(read.as_str().expect("text").len(), size);
    }
}

/// Goal: what was stored through a mapping and not synced dies with its node only as far as it is younger than two commit intervals. The kernel by itself writes it
/// back half a minute later. Method: a second after stores to pages all over a file, first and again, its node is killed, with an interval of 0.1 s.
#[test]
fn stores_outlive_their_node_after_two_intervals() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount_with("a", "commit=0.1"), lab.mount("b"));
    let mut on_a = Partner::start(&a.root);
    on_a.must("create", &[json!("f"), json!("-".repeat(100_000))]);
    on_a.must("map", &[json!("f"), json!(100_000)]);
    for text in ["first", "again"] {
        for at in (0..100_000).step_by(4_096) {
            on_a.must("store", &[json!("f"), json!(at), json!(text)]);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    a.signal(Signal::KILL);
    let content = fs::read(b.path("f")).expect("read");
    let is_lost = |at: &usize| &content[*at..*at + 5] != b"again";
    let lost: Vec<_> = (0..100_000).step_by(4_096).filter(is_lost).collect();
    assert!(lost.is_empty(), "lost at {lost:?}");
}

/// What was stored before is written when the mapping goes at the latest, and was once stamped then.
#[test]
fn a_time_that_was_set_outlives_what_was_stored_before() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let mut on_a = Partner::start(&a.root);
    on_a.must("create", &[json!("f"), json!("-".repeat(20_000))]);
    let set = std::time::UNIX_EPOCH + std::time::Duration::from_secs(500_867_045);
    for setter in [&a, &b, &a] {
        on_a.must("map", &[json!("f"), json!(20_000)]);
        on_a.must("store", &[json!("f"), json!(4_095), json!("stored")]);
        let file = fs::File::open(setter.path("f")).expect("opened");
        file.set_modified(set).expect("set");
        on_a.must("unmap", &[json!("f")]);
        for mount in [&a, &b] {
            let found = fs::metadata(mount.path("f")).expect("there");
            assert_eq!(found.modified().expect("known"), set);
        }
        assert_eq!(fs::read(b.path("f")).expect("read")[4_095..4_101], *b"stored");
    }
}

/// Taking pages back has them written first, which must not wait for what waits for them: here a look for capabilities
/// among attributes that are too large to be at hand.
#[test]
fn a_rename_elsewhere_finds_what_was_stored_and_waits_for_nobody() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let [mut on_a, mut on_b] = [Partner::start(&a.root), Partner::start(&b.root)];
    on_a.must("create", &[json!("f"), json!("-".repeat(20_000)), json!(0o4755)]);
    on_a.must("set_xattr", &[json!("f"), json!("user.large"), json!("77".repeat(3_000))]);
    on_b.must("map", &[json!("f"), json!(20_000)]);
    for (from, to) in [("f", "g"), ("g", "f")] {
        // The mapping goes by the name that it was made with.
        on_b.must("store", &[json!("f"), json!(5_000), json!(to)]);
        let began = std::time::Instant::now();
        on_a.must("rename", &[json!(from), json!(to)]);
        // Less than a lease, which would end the waiting as well.
        assert!(began.elapsed() < std::time::Duration::from_secs(8), "the rename took {:?}", began.elapsed());
        assert_eq!(on_a.must("read", &[json!(to)]).as_str().expect("text")[5_000..5_001], *to);
    }
    assert_eq!(on_a.must("stat", &[json!("f")])["mode"], json!(0o4755), "stores leave privileges alone");
}

#[test]
fn programs_written_on_one_node_run_on_the_other() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let runs = |path: &std::path::Path| lab.run_written(path).code;
    fs::copy("/bin/true", a.path("program")).expect("copied");
    assert_eq!((runs(&b.path("program")), runs(&a.path("program"))), (0, 0));
    for round in 0..20 {
        // By turns a new file under the old name, and new content in the old file.
        let (from, code) = [("/bin/true", 0), ("/bin/false", 1)][round % 2];
        let (writer, runner) = if round % 4 < 2 { (&a, &b) } else { (&b, &a) };
        if round % 3 == 0 {
            fs::copy(from, writer.path("new")).expect("copied");
            fs::rename(writer.path("new"), writer.path("program")).expect("renamed");
        } else {
            fs::write(writer.path("program"), fs::read(from).expect("read")).expect("written");
        }
        assert_eq!(runs(&runner.path("program")), code, "round {round}");
        assert_eq!(runs(&writer.path("program")), code, "round {round}");
    }
    fs::set_permissions(b.path("program"), fs::Permissions::from_mode(0o644)).expect("changed");
    assert_eq!(runs(&a.path("program")), 126, "timeout(1) says so of what cannot be run");
}

/// The kernel keeps who runs and who writes a file apart within a node; other nodes know nothing of it.
#[test]
fn a_running_program_is_not_written_to_on_its_node() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::copy("/bin/sleep", a.path("program")).expect("copied");
    let start = || std::process::Command::new(a.path("program")).arg("600").spawn();
    let mut running = unless_busy(start).expect("runs");
    let busy = fs::OpenOptions::new().write(true).open(a.path("program")).expect_err("it runs");
    assert_eq!(busy.kind(), std::io::ErrorKind::ExecutableFileBusy);
    // Replaced under its name from the other node, it runs on.
    fs::copy("/bin/true", b.path("new")).expect("copied");
    fs::rename(b.path("new"), b.path("program")).expect("renamed");
    assert!(running.try_wait().expect("our child").is_none());
    assert_eq!(lab.run_written(&a.path("program")).code, 0);
    running.kill().expect("our child");
    running.wait().expect("our child");
    let writing = fs::OpenOptions::new().write(true).open(a.path("program")).expect("nobody runs it");
    let busy = std::process::Command::new(a.path("program")).spawn().expect_err("it is being written");
    assert_eq!(busy.kind(), std::io::ErrorKind::ExecutableFileBusy);
    drop(writing);
}

/// Goal: what is stored into a page that a write has filled counts when the write may be done, not before. Method: another node has the right and stands still; a program
/// writes, which waits, and another one of its node stores into the same page.
#[test]
fn a_store_into_what_a_waiting_write_has_filled_waits_as_well() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let [mut writer, mut storer, mut other] = [&a, &a, &b].map(|mount| Partner::start(&mount.root));
    writer.must("create", &[json!("f"), json!("-".repeat(8192))]);
    let fd = writer.must("open", &[json!("f"), json!("rw")]);
    for partner in [&mut storer, &mut other] {
        partner.must("map", &[json!("f"), json!(8192)]);
    }
    other.must("store", &[json!("f"), json!(100), json!("before")]);
    std::thread::sleep(Duration::from_millis(100));
    b.signal(Signal::STOP);
    writer.tell("pwrite", &[fd, json!("w".repeat(4096)), json!(0)]);
    std::thread::sleep(Duration::from_millis(100));
    std::thread::scope(|scope| {
        let stored = scope.spawn(|| storer.must("store", &[json!("f"), json!(100), json!("stored")]));
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(other.must("load", &[json!("f"), json!(100), json!(6)]), "before");
        let waits = !stored.is_finished();
        b.signal(Signal::CONT);
        assert!(waits, "it was done while another node had the right");
        stored.join().expect("it is done");
    });
    writer.answer().expect("written");
    assert_eq!(other.must("load", &[json!("f"), json!(98), json!(10)]), "wwstoredww");
    drop((writer, storer, other));
    a.unmount(&lab);
    b.unmount(&lab);
}

/// Goal: a direct read into a mapping of the same mount keeps nobody waiting. Whoever ended it for the kernel would wait for the page that was read into, and
/// that for being written back by who ends it. Method: the file of the mapping is written directly on its mount, or read on another, meanwhile.
#[test]
fn a_direct_read_into_a_mapping_keeps_nobody_waiting() {
    let Some(mut lab) = Lab::new() else { return };
    lab.patience = Duration::from_secs(30);
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    for (number, (other, how)) in [(&a, "rw direct"), (&b, "rw")].into_iter().enumerate() {
        let (into, from) = (format!("into{number}"), format!("from{number}"));
        let [mut reader, mut visitor] = [&a, other].map(|mount| Partner::start(&mount.root));
        for name in [&into, &from] {
            reader.must("create", &[json!(name), json!("-".repeat(4096))]);
        }
        reader.must("map", &[json!(into), json!(4096)]);
        let fd = reader.must("open", &[json!(from), json!("rw direct")]);
        let visited = visitor.must("open", &[json!(into), json!(how)]);
        reader.tell("read_into", &[fd, json!(into), json!(10_000)]);
        let begun = Instant::now();
        visitor.must("visit", &[visited, json!(2_000), json!(number == 0)]);
        assert!(begun.elapsed() < Duration::from_secs(10), "{how}: {:?}", begun.elapsed());
        reader.answer().expect("read");
    }
    a.unmount(&lab);
    b.unmount(&lab);
}
