//! Two nodes in one process: coherence, garbage on the socket, change of master.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use common::{Scratch, wait_until};

#[test]
fn the_other_mount_sees_everything_at_once() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    assert_eq!((&a.ask("status")["role"], &b.ask("status")["role"]), (&"master".into(), &"member".into()));
    for n in 0..200 {
        let name = format!("f{n}");
        let (writer, reader) = if n % 2 == 0 { (&a, &b) } else { (&b, &a) };
        assert!(fs::metadata(reader.path(&name)).is_err(), "{name} is not there yet");
        fs::write(writer.path(&name), &name).unwrap();
        assert_eq!(fs::read_to_string(reader.path(&name)).unwrap(), name);
        fs::write(reader.path(&name), "changed").unwrap();
        assert_eq!(fs::read_to_string(writer.path(&name)).unwrap(), "changed");
        if n % 4 < 2 {
            fs::remove_file(writer.path(&name)).unwrap();
            assert!(fs::metadata(reader.path(&name)).is_err(), "{name} is gone");
        }
    }
    assert_eq!(fs::read_dir(&a.root).unwrap().count(), 100);
    assert_eq!(fs::read_dir(&b.root).unwrap().count(), 100);
    assert!(b.stat("messages_sent_total") > 0);
    // What is on its way is counted where it was sent.
    wait_until("both ends to count the same", || {
        b.stat("messages_received_total") == a.stat("messages_sent_total")
            && a.stat("messages_received_total") == b.stat("messages_sent_total")
    });
    b.unmount().unwrap();
    a.unmount().unwrap();
}

#[test]
fn garbage_on_the_socket_disturbs_nobody() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    let volume = scratch.open();
    let hello = wire::encode_frame(&wire::ToMaster::Bye {});
    let mut flipped = wire::encode_frame(&wire::ToMaster::Ping { store_wait_us: 0 });
    let last = flipped.len() - 1;
    flipped[last] ^= 0x55;
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096], &[0xff; 64], &hello, &flipped] {
        let mut stream = volume.connect("master").unwrap();
        stream.write_all(garbage).unwrap();
        let mut rest = Vec::new();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // Hung up on, at once or with what was not read thrown away.
        if let Err(error) = stream.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }
    // One who says nothing is hung up on as well.
    let mut silent = volume.connect("master").unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let since = Instant::now();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    assert!(since.elapsed() > Duration::from_secs(4));
    assert_eq!(a.stat("messages_refused_total"), 5);
    fs::write(a.path("f"), "still here").unwrap();
    assert_eq!(fs::read_to_string(b.path("f")).unwrap(), "still here");
    b.unmount().unwrap();
    a.unmount().unwrap();
}

#[test]
fn the_other_node_takes_over_when_the_master_leaves() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    fs::write(a.path("of-a"), "a").unwrap();
    fs::write(b.path("of-b"), "b").unwrap();
    fs::create_dir(b.path("dir")).unwrap();
    for n in 0..100 {
        fs::write(b.path(&format!("dir/{n}")), "x").unwrap();
    }
    a.unmount().unwrap();
    let since = Instant::now();
    fs::write(b.path("later"), "later").unwrap();
    assert_eq!(fs::read_to_string(b.path("of-a")).unwrap(), "a");
    assert_eq!(fs::read_dir(b.path("dir")).unwrap().count(), 100);
    // Not when the lease of ten seconds ends.
    assert!(since.elapsed() < Duration::from_secs(5), "took {:?}", since.elapsed());
    let status = b.ask("status");
    assert_eq!(status["role"], "master", "{status}");
    assert_eq!(b.stat("remasters_total"), 1);

    let a = scratch.mount("a");
    for (name, content) in [("of-a", "a"), ("of-b", "b"), ("later", "later"), ("dir/7", "x")] {
        assert_eq!(fs::read_to_string(a.path(name)).unwrap(), content);
    }
    b.unmount().unwrap();
    assert_eq!(fs::read_to_string(a.path("later")).unwrap(), "later");
    a.unmount().unwrap();
}
