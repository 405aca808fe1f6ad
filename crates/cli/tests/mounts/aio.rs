//! Writes that a program does not wait for, by io_submit(2), as databases make them.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::chown;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::lab::{Lab, Partner};

const NOBODY: u32 = 65_534;
const MIB: u64 = 1 << 20;

/// Goal: what is written so with O_DIRECT and O_DSYNC is durable when it is done, although the kernel sends no FSYNC for it. Method: the node
/// is killed, which by itself stores nothing for a minute.
#[test]
fn what_is_written_directly_and_durably_outlives_the_node() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount_with("a", "commit=60");
    fs::write(a.path("log"), [b'0'; 8192]).expect("written");
    File::open(a.path("log")).and_then(|file| file.sync_all()).expect("synced");
    let mut program = Partner::start(&a.root);
    let fd = program.must("open", &[json!("log"), json!("rw direct dsync")]);
    assert_eq!(program.must("submit", &[fd, json!("1".repeat(4096)), json!(4096)]), 4096);
    a.signal(Signal::KILL);
    assert!(a.wait_for_end(Duration::from_secs(20)));
    drop(program);
    drop(a);

    let b = lab.mount("b");
    let found = fs::read(b.path("log")).expect("read");
    assert!(found[..4096] == [b'0'; 4096] && found[4096..] == [b'1'; 4096], "{:?}", found.get(4096));
    b.unmount(&lab);
}

/// Goal: an append of this kind that is refused cuts nothing off that another node has appended, though the kernel has the file cut to the end that
/// it has. Method: it goes beyond a limit of the user's; the other node's bytes, which this kernel has not heard of, stay.
#[test]
fn a_refused_append_cuts_nothing_off() {
    let Some(lab) = Lab::new() else { return };
    fs::set_permissions(&lab.dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    for name in ["log", "direct"] {
        fs::write(a.path(name), b"").expect("made");
        chown(a.path(name), Some(NOBODY), None).expect("given");
    }
    lab.holdfast(&["quota", "set", "vol", &format!("user:{NOBODY}"), "--bytes", "1M"]).expect_success();
    let mut program = Partner::start_as_nobody(&a.root);
    for (name, how) in [("log", "a"), ("direct", "a direct")] {
        let fd = program.must("open", &[json!(name), json!(how)]);
        assert_eq!(program.must("submit", &[fd.clone(), json!("a".repeat(100)), json!(0)]), 100);
        let mut other = File::options().append(true).open(b.path(name)).expect("opened");
        other.write_all(&[b'b'; 5000]).expect("appended");
        let refused = program.ask("submit", &[fd, json!("a".repeat(2 * MIB as usize)), json!(0)]);
        assert_eq!(refused, Err("EDQUOT".to_owned()), "{how}");
        let found = fs::read(b.path(name)).expect("read");
        assert!(found.len() >= 5100 && found[100..5100] == [b'b'; 5000], "{how}: {} bytes", found.len());
        fs::write(b.path(name), b"").expect("emptied");
    }
    drop(program);
    for mount in [b, a] {
        mount.unmount(&lab);
    }
}
