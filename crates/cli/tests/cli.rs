//! The binary as people and mount(8) run it: output, exit codes, and what it says of bad input.
//!
//! A node is played by the test, which listens at a control socket; nothing is mounted here.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value as Json;
use volume::Volume;

const BINARY: &str = env!("CARGO_BIN_EXE_holdfast");

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("holdfast-cli-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a scratch directory");
        Self(fs::canonicalize(path).expect("it exists"))
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run_as(binary: &Path, args: &[&str], dir: &Path) -> Output {
    Command::new(binary).args(args).current_dir(dir).output().expect("the binary runs")
}

fn holdfast(args: &[&str], dir: &Path) -> Output {
    run_as(Path::new(BINARY), args, dir)
}

fn code_and_error(output: &Output) -> (i32, String) {
    (output.status.code().expect("not killed"), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn json(output: &Output) -> Json {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("valid JSON")
}

#[test]
fn a_reader_who_has_seen_enough_is_no_failure() {
    let scratch = Scratch::new();
    json(&holdfast(&["format", "./vol", "--json"], &scratch.0));
    for arguments in [&["status", "vol", "--json"][..], &["completions", "bash"], &["dump", "vol"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(BINARY)
            .args(arguments)
            .current_dir(&scratch.0)
            .stdout(writer)
            .stderr(std::process::Stdio::piped())
            .output()
            .expect("the binary runs");
        assert_eq!(code_and_error(&output), (141, String::new()), "{arguments:?}");
    }
}

/// Goal: a verdict that cannot be printed is not lost in silence, nor taken for a defect. Method: standard output on a full disk.
#[test]
fn what_cannot_be_printed_is_said_to_be_so() {
    let scratch = Scratch::new();
    json(&holdfast(&["format", "./vol", "--json"], &scratch.0));
    for (command, code) in [("fsck", 8), ("status", 2)] {
        let full = fs::File::options().write(true).open("/dev/full").expect("opened");
        let output =
            Command::new(BINARY).args([command, "./vol"]).current_dir(&scratch.0).stdout(full).output();
        let error = "holdfast: standard output: No space left on device (os error 28)\n".to_owned();
        assert_eq!(code_and_error(&output.expect("the binary runs")), (code, error), "{command}");
    }
}

#[test]
fn format_prints_id_and_options_and_refuses_a_second_time() {
    let scratch = Scratch::new();
    let document = json(&holdfast(&["format", "./vol", "--json"], &scratch.0));
    assert_eq!(document["path"], scratch.join("vol").to_str().expect("utf-8"));
    assert_eq!(document["segment_bytes"], 64 << 20);
    assert_eq!(document["id"].as_str().expect("a string").len(), 36);
    let (code, error) = code_and_error(&holdfast(&["format", "./vol"], &scratch.0));
    assert_eq!((code, error.as_str()), (1, "holdfast: ./vol: already a Holdfast volume\n"));
    let output = holdfast(&["format", "./two", "--inline-size", "1K"], &scratch.0);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("volume   ") && text.contains("inline   1.0 KiB"), "{text}");
    for (size, code) in [("0", 0), ("64K", 0), ("65537", 1), ("1T", 1)] {
        let output = holdfast(&["format", &format!("./v{size}"), "--inline-size", size], &scratch.0);
        let (got, error) = code_and_error(&output);
        assert_eq!(got, code, "{size}: {error}");
        assert!(code == 0 || error.contains("inline size") && error.contains("64 KiB"), "{error}");
    }
}

#[test]
fn mount_says_what_is_wrong_and_with_which_code() {
    let scratch = Scratch::new();
    holdfast(&["format", "vol"], &scratch.0);
    fs::create_dir(scratch.join("mnt")).expect("made");
    fs::create_dir(scratch.join("plain")).expect("made");
    fs::write(scratch.join("file"), "").expect("written");
    for (args, code, part) in [
        (&["none", "mnt"][..], 32, "none: no such directory"),
        (&["plain", "mnt"], 32, "no Holdfast volume here"),
        (&["file", "mnt"], 32, "not a directory"),
        (&["vol", "nowhere"], 32, "mount point nowhere: does not exist"),
        (&["vol", "file"], 32, "mount point file: not a directory"),
        (&["vol", "vol/run"], 32, "lies within the volume"),
        (&["vol", "."], 32, "would hide the volume"),
        (&["vol", "mnt", "-o", "ro,noatme"], 1, "unknown mount option \"noatme\"; did you mean \"noatime\"?"),
        (&["vol", "mnt", "-o", "commit=never"], 1, "\"commit\" needs seconds"),
        (&["vol"], 1, "required arguments"),
    ] {
        let all: Vec<&str> = ["mount"].iter().chain(args).copied().collect();
        let (found, error) = code_and_error(&holdfast(&all, &scratch.0));
        assert!(found == code && error.contains(part), "{args:?}: {found} {error}");
    }
}

#[test]
fn a_damaged_volume_is_named() {
    let scratch = Scratch::new();
    holdfast(&["format", "vol"], &scratch.0);
    fs::create_dir(scratch.join("mnt")).expect("made");
    let header = scratch.join("vol/holdfast.volume");
    let mut bytes = fs::read(&header).expect("readable");
    bytes[60] ^= 0x40;
    fs::write(&header, bytes).expect("writable");
    let (code, error) = code_and_error(&holdfast(&["mount", "vol", "mnt"], &scratch.0));
    assert!(code == 32 && error.contains("header is damaged: checksum mismatch"), "{code} {error}");
    let (code, error) = code_and_error(&holdfast(&["status", "vol"], &scratch.0));
    assert!(code == 2 && error.contains("vol: volume header is damaged"), "{code} {error}");
}

#[test]
fn the_helpers_of_mount_take_its_arguments() {
    let scratch = Scratch::new();
    holdfast(&["format", "vol"], &scratch.0);
    fs::create_dir(scratch.join("mnt")).expect("made");
    for name in ["mount.holdfast", "mount.fuse.holdfast"] {
        let helper = scratch.join(name);
        symlink(BINARY, &helper).expect("linked");
        let run = |args: &[&str]| code_and_error(&run_as(&helper, args, &scratch.0));
        let good = run(&[
            "vol",
            "mnt",
            "-f",
            "-n",
            "-o",
            "rw,_netdev,nofail,x-systemd.automount",
            "-t",
            "fuse.holdfast",
        ]);
        assert_eq!(good, (0, String::new()));
        let (code, error) = run(&["vol", "mnt", "-f", "-o", "bogus"]);
        assert_eq!((code, error), (1, format!("{name}: unknown mount option \"bogus\"\n")));
        assert_eq!(run(&["vol", "mnt", "-f", "-s", "-o", "bogus"]).0, 0);
        assert_eq!(run(&["vol"]).0, 1);
        assert_eq!(run(&["gone", "mnt"]).0, 32);
    }
    let helper = scratch.join("umount.fuse.holdfast");
    symlink(BINARY, &helper).expect("linked");
    let (code, error) = code_and_error(&run_as(&helper, &["mnt"], &scratch.0));
    assert_eq!((code, error.as_str()), (32, "umount.fuse.holdfast: mnt: not mounted\n"));
}

#[test]
fn umount_and_stat_refuse_what_is_not_a_mount() {
    let scratch = Scratch::new();
    let (code, error) = code_and_error(&holdfast(&["umount", "."], &scratch.0));
    assert!(code == 32 && error.contains("not mounted"), "{error}");
    let (code, error) = code_and_error(&holdfast(&["umount", "/proc"], &scratch.0));
    assert!(code == 32 && error.contains("not a Holdfast mount but proc"), "{error}");
    let (code, error) = code_and_error(&holdfast(&["stat", "/proc"], &scratch.0));
    assert!(code == 2 && error.contains("no Holdfast mount"), "{error}");
}

#[test]
fn status_of_an_idle_volume_says_that_nobody_has_it() {
    let scratch = Scratch::new();
    holdfast(&["format", "vol"], &scratch.0);
    let document = json(&holdfast(&["status", "vol", "--json"], &scratch.0));
    assert_eq!(document["mounted"], false);
    assert_eq!(document["nodes"], Json::Array(Vec::new()));
    assert!(document["space"]["total_bytes"].as_u64().expect("a number") > 0);
    let output = holdfast(&["status", "vol"], &scratch.0);
    assert!(String::from_utf8_lossy(&output.stdout).contains("mounted  nowhere"), "{output:?}");
}

#[test]
fn status_gathers_nodes_and_survives_stale_and_garbled_ones() {
    let scratch = Scratch::new();
    holdfast(&["format", "vol"], &scratch.0);
    let volume = Volume::open(&scratch.join("vol")).expect("opens");
    drop(std::os::unix::net::UnixListener::bind(scratch.join("vol/run/node-0:7")).expect("bound"));
    let play = |name: &str, answer: &'static str| {
        let listener = volume.listen(name).expect("listens");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("asked");
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).expect("a line");
            assert_eq!(line, "status\n");
            stream.write_all(answer.as_bytes()).expect("answered");
        })
    };
    let players = [
        play(
            "node-0:51",
            r#" {"node": 1, "role": "master", "epoch": 4, "pid": 9, "host": "h", "unflushed_mutations": 3, "mountpoint": "/mnt/a"}"#,
        ),
        play("node-0:52", "\u{1}garbage"),
    ];
    let document = json(&holdfast(&["status", "vol", "--json"], &scratch.0));
    for player in players {
        player.join().expect("played");
    }
    assert_eq!(document["mounted"], true);
    assert_eq!((&document["master"], &document["epoch"]), (&1.into(), &4.into()));
    assert_eq!(document["unflushed_mutations"], 3);
    assert_eq!(document["nodes"].as_array().expect("an array").len(), 1);
    let problems = document["problems"].to_string();
    assert!(problems.contains("node-0:52") && !problems.contains("node-0:7"), "{problems}");
}

#[test]
fn install_links_the_helpers_and_takes_everything_back() {
    let scratch = Scratch::new();
    let args = ["install", "--prefix", "usr", "--helper-dir", "sbin"];
    for _ in 0..2 {
        assert!(holdfast(&args, &scratch.0).status.success());
    }
    let binary = scratch.join("usr/bin/holdfast");
    for name in ["mount.holdfast", "mount.fuse.holdfast", "umount.holdfast", "umount.fuse.holdfast"] {
        assert_eq!(fs::read_link(scratch.join("sbin").join(name)).expect("a link"), binary);
    }
    let share = |name: &str| fs::read_to_string(scratch.join("usr/share").join(name));
    for page in ["holdfast.1", "holdfast-mount.1", "holdfast-bench-walk.1", "holdfast-quota-set.1"] {
        let text = share(&format!("man/man1/{page}")).expect("installed");
        assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    for name in [
        "bash-completion/completions/holdfast",
        "zsh/site-functions/_holdfast",
        "fish/vendor_completions.d/holdfast.fish",
    ] {
        assert!(share(name).expect("installed").contains("remount"), "{name}");
    }
    let (code, _) = code_and_error(&run_as(&scratch.join("sbin/mount.holdfast"), &["x", "y"], &scratch.0));
    assert_eq!(code, 32);
    assert!(run_as(&binary, &[&args[..], &["--remove"]].concat(), &scratch.0).status.success());
    assert!(!binary.exists());
    assert_eq!(fs::read_dir(scratch.join("sbin")).expect("listed").count(), 0);
    assert_eq!(fs::read_dir(scratch.join("usr/share/man/man1")).expect("listed").count(), 0);
    assert!(share("zsh/site-functions/_holdfast").is_err());

    fs::write(scratch.join("sbin/mount.holdfast"), "somebody else's").expect("written");
    let (code, error) = code_and_error(&holdfast(&args, &scratch.0));
    assert!(code == 1 && error.contains("not ours"), "{error}");
    assert!(!binary.exists(), "nothing was changed");
}

/// Goal: pages that man(1) shows and completions that a shell takes. Method: man(1)'s own warnings, where it is there; bash sources and completes.
#[test]
fn pages_and_completions_are_of_use() {
    let scratch = Scratch::new();
    assert!(holdfast(&["man", "."], &scratch.0).status.success());
    for entry in fs::read_dir(&scratch.0).expect("listed").flatten() {
        let page = entry.path();
        let Ok(output) =
            Command::new("man").args(["--warnings", "-l"]).arg(&page).env("MANWIDTH", "120").output()
        else {
            println!("SKIPPED: no man(1)");
            break;
        };
        assert!(output.status.success() && output.stderr.is_empty(), "{}: {output:?}", page.display());
    }
    let completions = holdfast(&["completions", "bash"], &scratch.0);
    fs::write(scratch.join("c"), &completions.stdout).expect("written");
    let script = ". ./c; COMP_WORDS=(holdfast bench lat); COMP_CWORD=2; _holdfast holdfast lat bench; echo ${COMPREPLY[@]}";
    let output =
        Command::new("bash").args(["-c", script]).current_dir(&scratch.0).output().expect("bash is there");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "latency\n", "{output:?}");
    let (code, error) = code_and_error(&holdfast(&["man", "nowhere"], &scratch.0));
    assert!(code == 2 && error.contains("nowhere/holdfast.1: No such file"), "{error}");
    assert_eq!(code_and_error(&holdfast(&["completions", "dos"], &scratch.0)).0, 2);
}

#[test]
fn fsck_answers_with_the_codes_of_fsck() {
    let scratch = Scratch::new();
    json(&holdfast(&["format", "vol", "--json"], &scratch.0));
    let document = json(&holdfast(&["fsck", "vol", "--json"], &scratch.0));
    assert_eq!((&document["clean"], &document["inodes"]), (&Json::from(true), &Json::from(0)));

    let volume = Volume::open(&scratch.join("vol")).expect("a volume");
    let lock = volume.try_elect().expect("nobody is in the way").expect("nobody else");
    let (code, error) = code_and_error(&holdfast(&["fsck", "vol"], &scratch.0));
    assert_eq!(code, 8, "{error}");
    assert!(error.contains("mounted") && error.contains(&std::process::id().to_string()), "{error}");
    drop(lock);
    assert_eq!(code_and_error(&holdfast(&["fsck", "nothing"], &scratch.0)).0, 8);
    assert_eq!(code_and_error(&holdfast(&["fsck", "--what"], &scratch.0)).0, 16);
}

#[test]
fn scrub_answers_with_the_codes_of_fsck() {
    let scratch = Scratch::new();
    json(&holdfast(&["format", "vol", "--json"], &scratch.0));
    let document = json(&holdfast(&["scrub", "vol", "--json"], &scratch.0));
    assert_eq!((&document["clean"], &document["segments"]), (&Json::from(true), &Json::from(0)));
    // A master that is no node: nobody can be asked.
    let volume = Volume::open(&scratch.join("vol")).expect("a volume");
    let lock = volume.try_elect().expect("nobody is in the way").expect("nobody else");
    let (code, error) = code_and_error(&holdfast(&["scrub", "vol"], &scratch.0));
    assert!(code == 8 && error.contains("no node says"), "{error}");
    drop(lock);
    assert_eq!(code_and_error(&holdfast(&["scrub", "nothing"], &scratch.0)).0, 8);
    for wrong in [&["--rate", "0"][..], &["--rate", "fast"], &["--what"]] {
        let (code, _) = code_and_error(&holdfast(&[&["scrub", "vol"], wrong].concat(), &scratch.0));
        assert_eq!(code, 16, "{wrong:?}");
    }
}

#[test]
fn a_dump_of_another_volume_is_not_loaded() {
    let scratch = Scratch::new();
    for name in ["one", "two"] {
        json(&holdfast(&["format", name, "--json"], &scratch.0));
    }
    assert!(holdfast(&["dump", "one", "-o", "text"], &scratch.0).status.success());
    let text = fs::read_to_string(scratch.join("text")).expect("a dump");
    assert!(text.starts_with("holdfast-dump 1\nvolume "), "{text}");
    let (code, error) = code_and_error(&holdfast(&["load", "two", "text"], &scratch.0));
    assert_eq!(code, 1);
    assert!(error.contains("line 2: it is of another volume"), "{error}");
    assert!(holdfast(&["load", "one", "text"], &scratch.0).status.success(), "nothing was ever in it");
    assert_ne!(code_and_error(&holdfast(&["dump", "one", "-o", "text"], &scratch.0)).0, 0, "it is there");
}
