//! What cannot be watched is refused with a message that names what and where, exit code 3, and nothing left behind.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::place::Scratch;
use crate::slow_disk::SlowDisk;
use crate::{code_and_error, text, watch};

#[test]
fn bad_targets_are_refused_by_name() {
    let scratch = Scratch::new();
    std::fs::write(scratch.join("empty"), "").expect("written");
    std::fs::write(scratch.join("file"), [1; 4096]).expect("written");
    let at = |name: &str| text(&scratch.join(name)).to_owned();
    for (target, rest, part) in [
        (at("gone"), &[][..], "gone: cannot be looked at: No such file or directory"),
        (at("file/x"), &[], "file/x: cannot be looked at: Not a directory"),
        ("/dev/null".to_owned(), &[], "/dev/null: neither a file nor a directory nor a block device"),
        (at("empty"), &[], "empty: holds 0 bytes, and 512 are to be read"),
        (at("file"), &["--op", "write"], "file: a file: writing would change what it holds"),
        (at("file"), &["--op", "create"], "file: a file: files are created in a directory"),
        (at("file"), &["--size", "1M"], "file: holds 4096 bytes, and 1048576 are to be read"),
        ("/proc".to_owned(), &[], "/proc: no file can be made in it"),
        (at("file=a") + "/b", &[], "cannot be looked at"),
    ] {
        let record = at("record");
        let options = ["--interval", "50ms", "--duration", "1s", "--json", "--record", &record];
        let output = watch(&[&[target.as_str()][..], &options, rest].concat());
        let (code, error) = code_and_error(&output);
        assert!(code == 3 && error.contains(part), "{target}: {code} {error}");
        assert!(output.stdout.is_empty(), "{target}: {output:?}");
        assert!(!scratch.join("record").exists(), "{target}");
    }
    let mut left = scratch.names();
    left.sort();
    assert_eq!(left, ["empty", "file"]);
}

#[test]
fn bad_arguments_are_refused_by_name() {
    let scratch = Scratch::new();
    std::fs::write(scratch.join("text"), "hello\n").expect("written");
    std::fs::write(scratch.join("bytes"), b"\xff\xfe\n").expect("written");
    let at = |name: &str| text(&scratch.join(name)).to_owned();
    for (arguments, part) in [
        (vec![], "required"),
        (vec!["/a".to_owned(), "/a".to_owned()], "two targets are called \"/a\""),
        (vec!["=x".to_owned()], "it has no path"),
        (vec!["/a=".to_owned()], "1 to 64 characters"),
        (vec!["/a".to_owned(), "--interval=0".to_owned()], "expected a time above zero"),
        (vec!["/a".to_owned(), "--interval=2h".to_owned()], "--interval must be 1ms to 1h"),
        (vec!["/a".to_owned(), "--interval=-1s".to_owned()], "expected a time"),
        (vec!["/a".to_owned(), "--size=100".to_owned()], "--size must be"),
        (vec!["/a".to_owned(), "--window=0".to_owned()], "--window must be"),
        (vec!["/a".to_owned(), "--op=fly".to_owned()], "read, write, flock, stat, create"),
        (
            vec!["/a".to_owned(), "--check".to_owned(), "-w10:1".to_owned()],
            "threshold \"10:1\" ends before it starts",
        ),
        (
            vec!["/a".to_owned(), "--check".to_owned(), "-c".to_owned(), "x".to_owned()],
            "\"x\" is no threshold",
        ),
        (vec!["/a".to_owned(), "-w".to_owned(), "1".to_owned()], "--check"),
        (vec!["/a".to_owned(), "--figure=x".to_owned()], "last, davg, dmax, emax, p99, max"),
        (vec!["/a".to_owned(), "--plot=x.gif".to_owned()], "x.gif: graphs are SVG or PNG"),
        (vec!["/a".to_owned(), "--plot=/no/dir/x.svg".to_owned()], "/no/dir/x.svg"),
        (vec!["/a".to_owned(), "--listen=nowhere".to_owned()], "nowhere: metrics cannot be served there"),
        (vec!["/a".to_owned(), "--stack=/a:/b".to_owned()], "\"/b\", which is no target's label"),
        (vec!["/a".to_owned(), format!("--record={}", at("text"))], "text: cannot be written: File exists"),
        (vec!["/a".to_owned(), format!("--record={}", at("no/x"))], "no/x: cannot be written: No such file"),
        (vec!["/a".to_owned(), format!("--socket={}", at("text"))], "text: "),
        (vec![format!("--replay={}", at("gone"))], "gone: cannot be read: No such file"),
        (vec![format!("--replay={}", at("text"))], "text: not a recording of holdfast watch"),
        (vec![format!("--replay={}", at("bytes"))], "bytes: "),
    ] {
        let output = watch(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let (code, error) = code_and_error(&output);
        assert!(code == 3 && error.contains(part), "{arguments:?}: {code} {error}");
    }
    assert_eq!(std::fs::read_to_string(scratch.join("text")).expect("it stays"), "hello\n");
}

#[test]
fn a_full_and_a_read_only_file_system_are_named() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let at = scratch.join("small");
    std::fs::create_dir(&at).expect("made");
    let mount = |options: &str| {
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(&at).status();
        assert!(done.expect("mount(8) is there").success());
    };
    mount("size=64k");
    let (code, error) = code_and_error(&watch(&[text(&at), "--duration", "1s"]));
    mount("remount,ro,size=64k");
    let (read_only_code, read_only_error) = code_and_error(&watch(&[text(&at), "--duration", "1s"]));
    let left = crate::place::names(&at);
    rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
    assert!(
        code == 3 && error.contains("small: no room for a file of the watch's own: No space left"),
        "{error}"
    );
    assert!(read_only_code == 3 && read_only_error.contains("small: no file can be made in it: Read-only"));
    assert!(left.is_empty());
}

#[test]
fn an_unreadable_device_is_named() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let disk = SlowDisk::mount(&scratch.join("d"), 1 << 20);
    disk.fail();
    let (code, error) = code_and_error(&watch(&[text(&disk.path()), "--duration", "1s"]));
    assert!(code == 3 && error.contains("disk: cannot be read or written: Input/output error"), "{error}");
}

#[test]
fn a_path_of_any_bytes_can_be_watched() {
    let scratch = Scratch::new();
    let dir = scratch.0.join(std::ffi::OsStr::from_bytes(b"a \xff\"'\n=b"));
    std::fs::create_dir(&dir).expect("made");
    let mut target = dir.into_os_string();
    target.push("=odd");
    let mut command = Command::new(crate::BINARY);
    command.arg("watch").arg(target).args(["--interval", "50ms", "--duration", "3s", "--json"]);
    let output = command.output().expect("the binary runs");
    let document = crate::json(&output);
    assert!(document["targets"][0]["ios_total"].as_u64() >= Some(3), "{document:#}");
}

/// Goal: figures that nobody gets are not passed over. Method: every output, live and from a recording, to a device that is full; and to
/// a pipe that nobody reads, which is no error.
#[test]
fn an_output_that_cannot_be_written_is_an_error_unless_its_reader_is_gone() {
    let scratch = Scratch::new();
    let (record, graph) = (text(&scratch.join("record")).to_owned(), text(&scratch.join("a.svg")).to_owned());
    let shown = |arguments: &[&str], stdout: Stdio| {
        let mut command = Command::new(crate::BINARY);
        command.arg("watch").args(arguments).stdin(Stdio::null()).stdout(stdout);
        code_and_error(&command.output().expect("the binary runs"))
    };
    let full = || File::options().write(true).open("/dev/full").expect("opened").into();
    let gone = || Stdio::from(std::io::pipe().expect("a pipe").1);
    let live = [text(&scratch.0), "--interval", "50ms", "--duration", "500ms"];
    assert_eq!(watch(&[&live[..], &["--record", &record]].concat()).status.code(), Some(0));
    for arguments in [&live[..], &["--replay", &record]] {
        for json in [&[][..], &["--json", "--plot", &graph]] {
            let arguments = [arguments, json].concat();
            let (code, error) = shown(&arguments, full());
            let part = "standard output: cannot be written: No space left";
            assert!(code == 3 && error.contains(part), "{arguments:?}: {code} {error}");
            if !json.is_empty() {
                std::fs::remove_file(&graph).expect("it is drawn all the same");
            }
            assert_eq!(shown(&arguments, gone()).0, 0, "{arguments:?}");
        }
    }
}
