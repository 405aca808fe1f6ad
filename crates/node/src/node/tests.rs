//! A node that finds a defect in itself, beside one that does not.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use super::*;
use crate::options::MountOptions;

/// Goal: a panic in a core, or in a thread of the node, ends its process with code 70 and its mount with errors, and the other node takes
/// over as master and goes on. Method: the first node is this program once more, told to panic with its core locked, or in a thread.
#[test]
fn a_panic_ends_its_node_alone() {
    for what in ["core", "thread"] {
        defect_ends_its_node_alone(what);
    }
}

fn defect_ends_its_node_alone(what: &str) {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        println!("SKIPPED: mounting needs root and /dev/fuse");
        return;
    }
    let dir = std::env::temp_dir().join(format!("holdfast-defect-{what}-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("a")).unwrap();
    std::fs::create_dir(dir.join("b")).unwrap();
    volume::format(&dir.join("vol"), &volume::FormatOptions::default()).unwrap();
    let mut defective = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "node::tests::be_a_node_with_a_defect", "--nocapture"])
        .env(DIRECTORY, &dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(defective.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().ends_with(READY)), "it mounts");

    let (sender, ready) = channel();
    let request = request_at(&dir, "b");
    let sound = std::thread::spawn(move || mount(request, Box::new(move || sender.send(()).unwrap())));
    ready.recv_timeout(Duration::from_secs(30)).unwrap();
    let synced = std::fs::File::create(dir.join("a/synced")).unwrap();
    (&synced).write_all(b"kept").and_then(|()| synced.sync_all()).unwrap();
    std::fs::write(dir.join("b/of-b"), "b").unwrap();

    writeln!(defective.stdin.take().unwrap(), "{what}").unwrap();
    assert_eq!(defective.wait().unwrap().code(), Some(70));
    assert!(std::fs::read_dir(dir.join("a")).is_err(), "its mount answers errors");
    assert_eq!(std::fs::read_to_string(dir.join("b/synced")).unwrap(), "kept");
    std::fs::write(dir.join("b/later"), "goes on").unwrap();
    drop(synced);
    fuse::mount::unmount(&dir.join("a"), Unmount::Lazy).unwrap();
    fuse::mount::unmount(&dir.join("b"), Unmount::Normal).unwrap();
    sound.join().unwrap().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
#[ignore = "it ends its process: a_panic_ends_its_node_alone runs it in one of its own"]
fn be_a_node_with_a_defect() {
    let Some(dir) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let signals = Arc::new(Signals::block().unwrap());
    let node = Node::start(&request_at(&dir, "a"), signals).unwrap();
    let shell = Arc::clone(&node.shell);
    let ready = move || {
        println!("{READY}");
        std::thread::spawn(move || {
            let mut what = String::new();
            std::io::stdin().read_line(&mut what).unwrap();
            match what.as_str() {
                "thread\n" => drop(spawn("defect", || panic!("a defect"))),
                _ => shell.with_core(|_, _| panic!("a defect")),
            }
        });
    };
    node.serve(Box::new(ready)).unwrap();
}

fn request_at(dir: &Path, name: &str) -> MountRequest {
    let options = MountOptions::default();
    let guard = guard::Command {
        program: "/proc/self/exe".into(),
        args: ["--exact", "node::tests::be_guard", "--nocapture", AS_GUARD].map(Into::into).into(),
    };
    MountRequest { volume: dir.join("vol"), mountpoint: dir.join(name), options, guard }
}

/// No test: the guard of a mount of another test.
#[test]
fn be_guard() {
    if std::env::args().any(|arg| arg == AS_GUARD) {
        let guarded = guard::run(|| {});
        std::process::exit(i32::from(guarded.is_err()));
    }
}

/// A second filter that fits no test.
const AS_GUARD: &str = "as-guard";

const DIRECTORY: &str = "HOLDFAST_TEST_DIRECTORY";
const READY: &str = "the node is ready";
