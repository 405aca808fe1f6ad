//! On every file system there is, with every operation, and nothing stays behind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value as Json;

use crate::juicefs::Juicefs;
use crate::place::{Mounted, Scratch, names, sh};
use crate::slow_disk::SlowDisk;
use crate::troubles::{Hang, Record, undisturbed};
use crate::{Running, json, text, wait_for, watch};

#[test]
fn every_operation_runs_on_every_file_system() {
    let Some(scratch) = Scratch::to_mount() else { return };
    for kind in ["ext4", "xfs", "btrfs", "tmpfs"] {
        let Some(mounted) = Mounted::make(&scratch, kind) else { continue };
        every_operation(kind, &mounted.at);
        if let Some(device) = &mounted.device {
            all_layers(&mounted, device);
        }
        // Nothing of the watch keeps it busy.
        sh(&format!("umount {}", mounted.at.display())).expect("nobody is in it");
    }
}

#[test]
fn every_operation_runs_on_a_file_system_in_user_space() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let Some(mounted) = Juicefs::mount(&scratch) else { return };
    every_operation("fuse.juicefs", &mounted.at);
}

fn every_operation(kind: &str, at: &Path) {
    let before = names(at);
    for op in ["read", "write", "flock", "stat", "create"] {
        let arguments = [text(at), "--op", op, "--interval", "20ms", "--duration", "2s", "--json"];
        let output = watch(&arguments);
        let document = json(&output);
        let target = &document["targets"][0];
        assert!(output.status.success(), "{kind} {op}: {document:#}");
        assert!(target["ios_total"].as_u64() >= Some(3), "{kind} {op}: {document:#}");
        assert_eq!(target["errors_total"], 0, "{kind} {op}: {document:#}");
        // Neither knows O_DIRECT: the watch says so, and goes through the page cache.
        if !["tmpfs", "fuse.juicefs"].contains(&kind) && ["read", "write"].contains(&op) {
            assert_eq!(target["direct"], true, "{kind} {op}: {document:#}");
        }
        assert_eq!(names(at), before, "{kind} {op}");
    }
}

/// The kernel knows what stands on what: nobody says it here.
fn all_layers(mounted: &Mounted, device: &str) {
    let image = mounted.at.with_extension("img");
    let targets = [
        format!("{}=files", text(&mounted.at)),
        format!("{device}=device"),
        format!("{}=image", text(&image)),
    ];
    let options = ["--interval", "20ms", "--duration", "3s", "--json"];
    let output = watch(&[&targets.each_ref().map(String::as_str)[..], &options].concat());
    let document = json(&output);
    assert_eq!(document["targets"][1]["kind"], "block device", "{document:#}");
    let layers = document["layers"].as_array().unwrap_or_else(|| panic!("{document:#}"));
    let names: Vec<&str> = layers.iter().filter_map(|layer| layer["targets"].as_str()).collect();
    assert_eq!(names, ["image", "device", "files"], "{document:#}");
}

#[test]
fn a_stall_below_a_file_system_is_blamed_on_the_disk_and_not_on_what_stands_on_it() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let disk = SlowDisk::mount(&scratch.join("d"), 16 << 20);
    std::fs::create_dir(scratch.join("files")).expect("made");
    let Some(mounted) = Mounted::make_on(&disk.path(), "ext4", scratch.join("files")) else { return };
    let targets = [format!("{}=files", text(&mounted.at)), format!("{}=disk", text(&disk.path()))];
    let document = undisturbed(|| stall_below(&scratch, [&targets[0], &targets[1]], &disk));
    let layers = document["layers"].as_array().unwrap_or_else(|| panic!("{document:#}"));
    let figure = |layer: usize, name: &str| layers[layer][name].as_f64().expect("a number");
    assert_eq!(
        (&layers[0]["targets"], &layers[1]["targets"]),
        (&"disk".into(), &"files".into()),
        "{document:#}"
    );
    // Both have waited; the upper only with the lower.
    assert!((1.2..2.5).contains(&figure(0, "emax_seconds")), "{document:#}");
    assert!((1.2..2.5).contains(&figure(1, "emax_seconds")), "{document:#}");
    assert!(figure(1, "emax_added_seconds") < 0.5, "{document:#}");
    let verdict = document["verdict"].as_str().expect("a verdict");
    assert!(verdict.starts_with("disk adds most at peak"), "{verdict}");
}

/// Watches what is on a disk, and the disk, which stalls for 1.5 s; returns what was told.
fn stall_below(scratch: &Scratch, targets: [&str; 2], disk: &SlowDisk) -> Json {
    let record = Record::new(scratch);
    let options = ["--interval", "200ms", "--json", "--record", record.path()];
    let running = Running::start(&[&targets[..], &options].concat());
    (0..2).for_each(|target| record.wait_for_samples(target, 5));
    // Both are asked at the same instants.
    let hang = Hang::of(disk);
    std::thread::sleep(Duration::from_millis(1500));
    drop(hang);
    (0..2).for_each(|target| record.wait_for_samples(target, record.samples(target) + 3));
    json(&running.interrupt())
}

#[test]
fn nothing_stays_behind_however_it_ends() {
    let scratch = Scratch::new();
    for (op, signal) in
        [("read", "INT"), ("create", "TERM"), ("create", "KILL"), ("write", "HUP"), ("read", "KILL")]
    {
        let running = Running::start(&[text(&scratch.0), "--op", op, "--interval", "1ms"]);
        let id = running.0.as_ref().expect("it runs").id();
        let children = PathBuf::from(format!("/proc/{id}/task/{id}/children"));
        let children = || std::fs::read_to_string(&children).unwrap_or_default();
        wait_for("there is a sampling process", || !children().is_empty());
        let worker = PathBuf::from(format!("/proc/{}", children().trim()));
        std::thread::sleep(Duration::from_millis(300));
        sh(&format!("kill -{signal} {id}")).expect("it runs");
        drop(running.wait());
        wait_for("the sampling process ends", || !worker.exists());
        assert_eq!(scratch.names(), [""; 0], "{op} {signal}");
    }
}
