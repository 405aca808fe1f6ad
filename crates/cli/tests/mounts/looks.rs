//! Goal: what a node looks at through its own mount waits for no other node, whomever the root belongs to: READs wait for it. The kernel asks for the root's
//! access list on the way where the root is not root's. Method: the other node has the root for itself and is stopped; a file that this node has cut is read.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{Advice, Mode, OFlags, fadvise, openat};
use rustix::process::Signal;

use crate::lab::Lab;

#[test]
fn a_look_waits_for_nobody_who_has_the_root() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::create_dir(a.path("d")).expect("made");
    std::os::unix::fs::chown(a.path(""), Some(65_534), Some(65_534)).expect("given away");
    let dir = File::open(a.path("d")).expect("opened");
    for round in 0..50 {
        File::create(b.path(&format!("x{round}"))).expect("made");
        thread::sleep(Duration::from_millis(20));
    }
    b.signal(Signal::STOP);
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let file =
            openat(&dir, "y", OFlags::CREATE | OFlags::RDWR, Mode::from_raw_mode(0o600)).expect("made");
        let file = File::from(file);
        file.write_all_at(&[7; 10_000], 0).expect("written");
        file.set_len(100).expect("cut");
        fadvise(&file, 0, None, Advice::DontNeed).expect("dropped");
        let mut bytes = [0; 200];
        let read = file.read_at(&mut bytes, 0);
        done.send(read).expect("heard");
    });
    let read = is_done.recv_timeout(Duration::from_secs(5));
    b.signal(Signal::CONT);
    assert_eq!(read.expect("it did not wait").expect("read"), 100);
    b.unmount(&lab);
    a.unmount(&lab);
}
