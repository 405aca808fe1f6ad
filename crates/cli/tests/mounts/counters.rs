//! What `holdfast status` and `holdfast stat` say of mounts that are in use.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Instant;

use serde_json::Value as Json;

use crate::lab::{Lab, wait_until};

#[test]
fn status_sums_up_what_its_nodes_have_not_flushed() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount_with("a", "commit=300"), lab.mount_with("b", "commit=300"));
    for (mount, count) in [(&a, 100), (&b, 50)] {
        let dir = mount.path(mount.root.file_name().and_then(|name| name.to_str()).expect("utf-8"));
        fs::create_dir(&dir).expect("made");
        for n in 0..count {
            fs::write(dir.join(format!("{n}")), "content").expect("written");
        }
    }
    let mut open = fs::File::create(a.path("a/open")).expect("made");
    open.write_all(&[1; 50_000]).expect("written");
    let status = lab.status();
    let nodes = status["nodes"].as_array().expect("a list");
    assert_eq!(nodes.len(), 2);
    assert_eq!((&status["mounted"], &status["problems"]), (&true.into(), &Json::Array(Vec::new())));
    let of = |mount: &crate::lab::Mount| {
        let root = mount.root.to_str().expect("utf-8");
        nodes.iter().find(|node| node["mountpoint"] == root).expect("it is named")
    };
    assert_eq!((&of(&a)["role"], &of(&b)["role"]), (&"master".into(), &"member".into()));
    assert_eq!((&status["master"], &status["master_pid"]), (&of(&a)["node"], &of(&a)["pid"]));
    for key in ["unflushed_mutations", "unflushed_bytes"] {
        let sum: u64 = nodes.iter().map(|node| node[key].as_u64().expect("a number")).sum();
        assert!(status[key] == sum && sum > 0, "{key}: {status:#}");
    }
    // A file and its parent's times are changes.
    assert!(of(&b)["unflushed_mutations"].as_u64().expect("a number") >= 50, "{status:#}");
    let space = &status["space"];
    let bytes = |key: &str| space[key].as_u64().expect("a number");
    assert!(bytes("total_bytes") >= bytes("free_bytes") && bytes("free_bytes") >= bytes("available_bytes"));
    let text = lab.holdfast(&["status", "vol"]).expect_success().out;
    assert!(text.contains(a.root.to_str().expect("utf-8")) && text.contains("master"), "{text}");

    // After an fsync nothing is left on a.
    fs::File::open(a.path("a")).expect("opened").sync_all().expect("synced");
    wait_until("nothing unflushed on a", || {
        let status = lab.status();
        let nodes = status["nodes"].as_array().expect("a list").clone();
        nodes.iter().any(|node| node["role"] == "master" && node["unflushed_mutations"] == 0)
    });
    drop(open);
    b.unmount(&lab);
    let status = lab.status();
    assert_eq!(status["nodes"].as_array().expect("a list").len(), 1);
    a.unmount(&lab);
    assert_eq!(lab.status()["mounted"], false);
}

#[test]
fn stat_shows_what_happened_in_each_interval() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    let before = lookups(&a.counters(&lab));
    for n in 0..50 {
        assert!(!a.path(&format!("absent{n}")).exists());
    }
    let after = a.counters(&lab);
    assert!(lookups(&after) >= before + 50, "{after:#}");
    assert_eq!(sum(&after, "fuse_requests_total"), after["fuse_requests_total"].as_u64(), "{after:#}");

    // Three prints, a second apart: absolute, then two differences with the time that they really span.
    let root = a.root.to_str().expect("utf-8").to_owned();
    let mut command = lab.command(crate::lab::BINARY);
    command.args(["stat", &root, "-t", "1", "-n", "3", "--json"]).stdout(Stdio::piped());
    let since = Instant::now();
    let mut running = command.spawn().expect("runs");
    let mut lines = BufReader::new(running.stdout.take().expect("piped")).lines();
    let mut next_print = || {
        let line = lines.next()?.expect("utf-8");
        Some(serde_json::from_str::<Json>(&line).expect("JSON"))
    };
    let first = next_print().expect("printed at once");
    let first_seen = since.elapsed().as_secs_f64();
    for n in 0..80 {
        assert!(!a.path(&format!("gone{n}")).exists());
    }
    let prints: Vec<Json> = std::iter::once(first).chain(std::iter::from_fn(next_print)).collect();
    assert!(running.wait().expect("ended").success());
    let took = since.elapsed().as_secs_f64();
    assert_eq!(prints.len(), 3, "{prints:?}");
    assert!(prints[0]["interval_seconds"].is_null() && prints[0]["uptime_seconds"].as_f64() > Some(0.0));
    let spans: Vec<f64> = prints[1..].iter().map(|p| p["interval_seconds"].as_f64().expect("told")).collect();
    assert!(spans.iter().all(|span| *span > 0.1) && spans.iter().sum::<f64>() <= took, "{spans:?} of {took}");
    // The last was due two seconds after the beginning.
    assert!(spans.iter().sum::<f64>() >= 1.95 - first_seen, "{spans:?}, the first after {first_seen}");
    let seen: u64 = prints[1..].iter().map(lookups).sum();
    assert!((80..200).contains(&seen), "{seen} lookups in the intervals");
    assert!(lookups(&prints[0]) >= before + 50);

    let text = lab.holdfast(&["stat", &root, "-t", "0.2", "-n", "2"]).expect_success().out;
    assert!(text.contains("since the mount") && text.contains("--- in 0."), "{text}");
    let text = lab.holdfast(&["stat", &root, "--prometheus"]).expect_success().out;
    assert!(text.contains("# TYPE ") && text.contains("fuse_requests_total"), "{text}");
    a.unmount(&lab);
}

/// LOOKUP requests in a print of `stat --json`.
fn lookups(print: &Json) -> u64 {
    print["by_label"]["fuse_requests_total"]["lookup"].as_u64().unwrap_or(0)
}

/// The sum over the labels of a counter.
fn sum(print: &Json, name: &str) -> Option<u64> {
    print["by_label"][name].as_object()?.values().map(Json::as_u64).sum()
}
