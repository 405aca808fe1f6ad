//! Scrubs: damage is named by path and byte range, on a volume at rest and under load, and load is not taken for damage.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::lab::Lab;

/// Bytes that are nowhere else.
fn marked(mark: u8, len: usize) -> Vec<u8> {
    (0..len as u32).flat_map(|n| [mark, n as u8, (n >> 8) as u8, (n >> 16) as u8]).take(len).collect()
}

/// Changes the byte of a file's content at `offset`, which lies in blocks that start with the file.
fn damage(lab: &Lab, content: &[u8], offset: usize) {
    let needle = &content[offset..offset + 64];
    for entry in fs::read_dir(lab.path("vol/segments")).expect("listed") {
        let path = entry.expect("listed").path();
        let bytes = fs::read(&path).expect("read");
        if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
            let file = OpenOptions::new().write(true).open(path).expect("opened");
            return file.write_all_at(&[bytes[at] ^ 1], at as u64).expect("written");
        }
    }
    panic!("the content is in no segment");
}

fn found(document: &Json) -> Vec<(Json, Json, Json)> {
    let faults = document["found"].as_array().expect("a list").iter();
    faults
        .filter(|fault| fault["is_fault"] == true)
        .map(|fault| (fault["kind"].clone(), fault["path"].clone(), fault["ranges"].clone()))
        .collect()
}

#[test]
fn a_scrub_names_damaged_files_and_their_bytes_mounted_or_not() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::create_dir(a.path("dir")).expect("made");
    for mark in 1..=8 {
        let path = a.path(&format!("dir/f{mark}"));
        fs::write(&path, marked(mark, 300_000)).expect("written");
        File::open(path).and_then(|file| file.sync_all()).expect("synced");
    }
    let clean = lab.holdfast(&["scrub", "vol", "--json"]).json();
    assert_eq!((&clean["clean"], &clean["found"]), (&json!(true), &json!([])));
    assert!(clean["data_bytes_read"].as_u64() >= Some(2_400_000), "{clean}");

    damage(&lab, &marked(3, 300_000), 40_000);
    damage(&lab, &marked(3, 300_000), 50_000);
    damage(&lab, &marked(5, 300_000), 299_000);
    let expected = |kind: &str| {
        let range = |start: u64, end: u64| json!([{ "start": start, "end": end }]);
        vec![
            (json!(kind), json!("/dir/f3"), range(32_768, 65_536)),
            (json!(kind), json!("/dir/f5"), range(294_912, 300_000)),
        ]
    };
    for volume in ["vol", "b"] {
        let ended = lab.holdfast(&["scrub", volume, "--json"]);
        assert_eq!(ended.code, 4, "{}", ended.err);
        assert_eq!(found(&serde_json::from_str(&ended.out).expect("JSON")), expected("bad-data"));
    }
    let since = Instant::now();
    let ended = lab.holdfast(&["scrub", "vol", "--rate", "2"]);
    assert!(since.elapsed() >= Duration::from_secs(1), "2.4 MB took {:?}", since.elapsed());
    assert!(
        ended.code == 4
            && ended.out.contains("bytes 32768..65536 of the file")
            && ended.out.contains("/dir/f3")
    );

    b.unmount(&lab);
    a.unmount(&lab);
    for arguments in [&["scrub", "vol", "--json"][..], &["fsck", "vol", "--data", "--json"]] {
        let ended = lab.holdfast(arguments);
        assert_eq!(ended.code, 4, "{}", ended.err);
        assert_eq!(found(&serde_json::from_str(&ended.out).expect("JSON")), expected("bad-data"));
    }
}

#[test]
fn a_scrub_takes_no_change_for_damage_and_ends_with_the_mount() {
    let Some(lab) = Lab::without_volume() else { return };
    // Small segments: overwritten, cleaned and deleted as fast as possible.
    lab.holdfast(&["format", "vol", "--segment-size", "1M"]).expect_success();
    let a = lab.mount_with("a", "commit=0.05");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0u8;
            while !is_over.load(Ordering::Relaxed) {
                round = round.wrapping_add(1);
                for file in 0..20 {
                    fs::write(a.path(&format!("f{file}")), marked(round, 150_000)).expect("written");
                }
                fs::remove_file(a.path(&format!("f{}", round % 20))).expect("removed");
            }
        });
        let until = Instant::now() + Duration::from_secs(5);
        let mut scrubs = 0;
        // On a busy machine each takes long.
        while Instant::now() < until || (scrubs < 2 && Instant::now() < until + Duration::from_secs(60)) {
            let ended = lab.holdfast(&["scrub", "vol", "--json", "--rate", "400"]);
            assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
            scrubs += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(scrubs >= 2, "too slow to mean anything");
    });
    // The last round may have been committed as far as its truncations: there would be nothing to read.
    for entry in fs::read_dir(a.path("")).expect("listed") {
        File::open(entry.expect("listed").path()).and_then(|file| file.sync_all()).expect("synced");
    }
    // One that would take minutes keeps nobody from unmounting.
    let mut slow =
        lab.command(crate::lab::BINARY).args(["scrub", "vol", "--rate", "0.01"]).spawn().expect("started");
    // Longer than who asks waits for a sign of life.
    std::thread::sleep(Duration::from_millis(6500));
    assert_eq!(slow.try_wait().expect("looked at"), None, "it was given up");
    let since = Instant::now();
    a.unmount(&lab);
    assert!(since.elapsed() < Duration::from_secs(60), "unmounting took {:?}", since.elapsed());
    assert_eq!(slow.wait().expect("ended").code(), Some(8));
    assert_eq!(lab.holdfast(&["scrub", "vol"]).code, 0);
}
