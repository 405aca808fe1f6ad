//! Checks, metrics and graphs, of a watch that runs and without one.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::place::{Scratch, sh};
use crate::slow_disk::SlowDisk;
use crate::{Running, text, wait_for, watch};

fn first_line(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_check_without_a_watch_samples_itself() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let disk = SlowDisk::mount(&scratch.join("d"), 1 << 20);
    let target = format!("{}=disk", text(&disk.path()));
    let check = |rest: &[&str]| {
        let options = ["--check", "--interval", "100ms", "--duration", "1s"];
        watch(&[&[target.as_str()][..], &options, rest].concat())
    };
    let output = check(&["-w", "500ms", "-c", "900ms"]);
    let line = first_line(&output);
    assert!(output.status.code() == Some(0) && line.starts_with("WATCH OK - disk emax "), "{line}");
    assert!(line.contains("'disk emax'=0.") && line.contains("s;0.5;0.9;0"), "{line}");
    let output = check(&["-w", "1s:", "-c", "900ms"]);
    assert!(
        output.status.code() == Some(1) && first_line(&output).starts_with("WATCH WARNING"),
        "{output:?}"
    );
    let output = check(&["-c", "@0:900ms"]);
    assert!(
        output.status.code() == Some(2) && first_line(&output).starts_with("WATCH CRITICAL"),
        "{output:?}"
    );
    disk.fail();
    let output = check(&[]);
    let line = first_line(&output);
    assert!(output.status.code() == Some(3) && line.contains("Input/output error"), "{line}");
    assert!(line.starts_with("WATCH UNKNOWN - "), "{line}");
}

#[test]
fn a_check_of_a_disk_that_hangs_is_critical_and_returns() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let disk = SlowDisk::mount(&scratch.join("d"), 1 << 20);
    disk.hang();
    let started = Instant::now();
    let output = watch(&[text(&disk.path()), "--check", "--duration", "1500ms"]);
    assert!(started.elapsed() < Duration::from_secs(6));
    let line = first_line(&output);
    assert!(output.status.code() == Some(2) && line.contains("has not answered for"), "{line}");
}

#[test]
fn a_check_asks_the_watch_that_runs_and_gets_its_answer_at_once() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let disk = SlowDisk::mount(&scratch.join("d"), 1 << 20);
    let (target, socket) = (format!("{}=disk", text(&disk.path())), scratch.join("socket"));
    // What a watch that was killed left behind is no obstacle.
    drop(UnixListener::bind(&socket).expect("bound"));
    let arguments = [&target, "/dev/shm=other", "--interval", "100ms", "--socket", text(&socket)];
    let running = Running::start(&arguments);
    let ask = |rest: &[&str]| watch(&[&["--check", "--socket", text(&socket)], rest].concat());
    wait_for("it samples", || ask(&[]).status.code() == Some(0));
    disk.stall(Duration::from_millis(700));
    wait_for("the stall is over", || ask(&["--figure", "max", "-c", "500ms"]).status.code() == Some(2));
    let started = Instant::now();
    // By the path, whatever the label; of one target alone.
    let output = ask(&[text(&disk.path()), "-w", "1ms", "-c", "500ms"]);
    assert!(started.elapsed() < Duration::from_secs(1));
    let line = first_line(&output);
    assert!(output.status.code() == Some(2) && line.starts_with("WATCH CRITICAL - disk emax "), "{line}");
    assert!(!line.contains("other"), "{line}");
    let output = ask(&["/dev/shm", "-c", "500ms"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = ask(&["/nonexistent"]);
    assert!(output.status.code() == Some(3) && first_line(&output).contains("does not watch /nonexistent"));
    disk.hang();
    wait_for("the hang is known", || first_line(&ask(&[])).contains("CRITICAL - disk has not answered for"));
    disk.heal();
    wait_for("it is well again", || ask(&[]).status.code() == Some(0));
    let output = running.interrupt();
    assert!(output.status.success(), "{output:?}");
    assert!(!socket.exists(), "it removes its socket");
    let output = ask(&[]);
    assert!(output.status.code() == Some(3) && first_line(&output).contains("answers"), "{output:?}");
}

#[test]
fn a_socket_of_a_bare_name_is_in_the_current_directory() {
    let scratch = Scratch::new();
    let mut command = Command::new(crate::BINARY);
    command.current_dir(&scratch.0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.args(["watch", ".", "--interval", "100ms", "--socket", "bare"]);
    let running = Running(Some(command.spawn().expect("the binary runs")));
    let socket = scratch.join("bare");
    wait_for("it can be asked", || watch(&["--check", "--socket", text(&socket)]).status.code() == Some(0));
    let output = running.interrupt();
    assert!(output.status.success() && !socket.exists(), "{output:?}");
}

#[test]
fn a_check_finds_the_watch_by_itself() {
    let scratch = Scratch::new();
    let running = Running::start(&[text(&scratch.0), "--interval", "100ms"]);
    let id = running.0.as_ref().expect("it runs").id();
    // Without a watch it would sample for a minute.
    let started = Instant::now();
    wait_for("it is found", || {
        let asked = Instant::now();
        let output = watch(&[text(&scratch.0), "--check", "--duration", "1s", "--interval", "1s"]);
        output.status.code() == Some(0) && asked.elapsed() < Duration::from_millis(900)
    });
    assert!(started.elapsed() < Duration::from_secs(20));
    // One that is killed leaves its socket, and the next takes it away.
    kill_process(Pid::from_raw(id as i32).expect("a number"), Signal::KILL).expect("it runs");
    drop(running.wait());
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let socket = std::path::PathBuf::from(format!("/run/holdfast/watch-{id}.sock"));
    assert!(socket.exists());
    assert_eq!(watch(&[text(&scratch.0), "--interval", "100ms", "--duration", "2s"]).status.code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn metrics_are_served_while_it_runs() {
    // A port that was free a moment ago.
    let address =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let address = address.to_string();
    let running = Running::start(&["/dev/shm=dir", "--interval", "100ms", "--listen", &address]);
    let get = || {
        let mut text = String::new();
        let mut stream = TcpStream::connect(&address).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    };
    wait_for("it samples", || {
        get().is_some_and(|text| text.contains("holdfast_watch_last_seconds{target=\"dir\"} 0."))
    });
    let found = get().expect("it runs");
    assert!(
        found.starts_with("HTTP/1.1 200 OK\r\n") && found.contains("holdfast_watch_up{target=\"dir\"} 1"),
        "{found}"
    );
    // One that says nothing holds the others up for a moment only.
    let _silent = TcpStream::connect(&address).expect("it runs");
    assert!(get().is_some());
    let output = running.interrupt();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_graph_is_drawn_live_and_from_a_recording() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.join("t")).expect("made");
    let (target, record) = (scratch.join("t"), scratch.join("record"));
    let (live, replayed) = (scratch.join("live.svg"), scratch.join("replayed.svg"));
    let arguments =
        ["--interval", "50ms", "--duration", "3s", "--record", text(&record), "--plot", text(&live)];
    let output = watch(&[&[text(&target)], &arguments[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let output = watch(&["--replay", text(&record), "--plot", text(&replayed)]);
    assert!(output.status.success(), "{output:?}");
    let picture = std::fs::read_to_string(&live).expect("drawn");
    assert!(picture.starts_with("<svg ") && picture.matches("<polyline").count() == 4, "{picture}");
    assert_eq!(std::fs::read_to_string(&replayed).expect("drawn"), picture);
    let drawn = scratch.join("drawn.png");
    let output = watch(&["--replay", text(&record), "--plot", text(&drawn)]);
    if sh("command -v rsvg-convert").is_err() {
        println!("SKIPPED: no rsvg-convert");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && error.contains("librsvg2-bin"), "{output:?}");
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let picture = std::fs::read(&drawn).expect("drawn");
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 10_000, "{} bytes", picture.len());
}
