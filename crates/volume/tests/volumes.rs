//! A volume's life: made, opened, damaged, contended, connected to. Every test has a directory of its own.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use volume::{FormatOptions, Header, Volume, VolumeError, format};

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("holdfast-volume-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
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

fn small() -> FormatOptions {
    FormatOptions { reserve_bytes: Some(4 << 20), ..FormatOptions::default() }
}

fn made(path: &Path) -> Header {
    format(path, &small()).expect("format works")
}

#[test]
fn a_directory_that_somebody_else_formats_is_left_to_him() {
    let scratch = Scratch::new();
    let dir = File::open(&scratch.0).expect("opened");
    rustix::fs::flock(&dir, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    fs::write(scratch.join("reserve"), "his").expect("written");
    let error = format(&scratch.0, &small()).expect_err("taken");
    assert!(error.to_string().contains("lock the directory"), "{error}");
    assert_eq!(fs::read_to_string(scratch.join("reserve")).expect("it stays"), "his");
}

#[test]
fn a_formatted_volume_opens_with_the_same_header() {
    let scratch = Scratch::new();
    let path = scratch.join("vol");
    let header = made(&path);
    let volume = Volume::open(&path).expect("opens");
    assert_eq!(volume.header(), &header);
    assert_eq!(volume.path(), path);
    assert_ne!(header.id, made(&scratch.join("other")).id);
}

#[test]
fn everything_is_private_and_in_its_place() {
    let scratch = Scratch::new();
    let path = scratch.join("vol");
    made(&path);
    for (name, mode) in [
        ("", 0o700),
        ("meta", 0o700),
        ("segments", 0o700),
        ("run", 0o700),
        ("holdfast.volume", 0o600),
        ("master.lock", 0o600),
        ("reserve", 0o600),
    ] {
        let metadata = fs::metadata(path.join(name)).expect(name);
        assert_eq!(metadata.permissions().mode() & 0o7777, mode, "{name}");
    }
    assert!(!path.join("holdfast.volume.new").exists());
    let reserve = fs::metadata(path.join("reserve")).expect("exists");
    assert_eq!(reserve.len(), 4 << 20);
    assert!(reserve.blocks() * 512 >= 4 << 20, "the reserve is allocated");
}

#[test]
fn an_empty_directory_is_taken_and_made_private() {
    let scratch = Scratch::new();
    made(&scratch.0);
    let mode = fs::metadata(&scratch.0).expect("exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn format_refuses_what_is_not_its_own() {
    let scratch = Scratch::new();
    let full = scratch.join("full");
    fs::create_dir(&full).expect("made");
    fs::write(full.join("letter"), "mine").expect("written");
    let error = format(&full, &small()).expect_err("not empty");
    assert!(matches!(error, VolumeError::NotEmpty { .. }), "{error}");
    assert_eq!(fs::read(full.join("letter")).expect("untouched"), b"mine");

    let file = scratch.join("file");
    fs::write(&file, "").expect("written");
    assert!(matches!(format(&file, &small()), Err(VolumeError::NotADirectory { .. })));

    let vol = scratch.join("vol");
    made(&vol);
    assert!(matches!(format(&vol, &small()), Err(VolumeError::AlreadyAVolume { .. })));
    assert!(matches!(format(&scratch.join("a/b"), &small()), Err(VolumeError::Io { .. })));
}

#[test]
fn format_refuses_options_out_of_range() {
    let scratch = Scratch::new();
    for options in [
        FormatOptions { segment_bytes: Some(1000), ..small() },
        FormatOptions { segment_bytes: Some((1 << 20) + 1), ..small() },
        FormatOptions { inline_bytes: (64 << 10) + 1, ..small() },
        FormatOptions { reserve_bytes: Some(1), ..small() },
    ] {
        let result = format(&scratch.join("vol"), &options);
        assert!(matches!(result, Err(VolumeError::BadOption { .. })), "{options:?}");
        assert!(!scratch.join("vol").exists());
    }
}

#[test]
fn a_format_that_fails_takes_back_what_it_made() {
    let scratch = Scratch::new();
    let huge = FormatOptions { reserve_bytes: Some(1 << 50), ..small() };
    let vol = scratch.join("vol");
    let error = format(&vol, &huge).expect_err("no disk is that large");
    assert!(matches!(error, VolumeError::NoSpace { .. } | VolumeError::Io { .. }), "{error}");
    assert!(!vol.exists());
}

#[test]
fn open_tells_every_kind_of_bad_volume_apart_and_names_it() {
    let scratch = Scratch::new();
    let path = scratch.join("vol");
    made(&path);
    let header_file = path.join("holdfast.volume");
    let good = fs::read(&header_file).expect("readable");
    let damage = |bytes: &[u8]| {
        fs::write(&header_file, bytes).expect("writable");
        Volume::open(&path).expect_err("damaged")
    };

    let mut bad = good.clone();
    bad[40] ^= 1;
    let error = damage(&bad);
    assert!(matches!(error, VolumeError::DamagedHeader { .. }), "{error}");
    assert!(error.to_string().contains(path.to_str().expect("utf-8")), "{error}");
    assert!(matches!(damage(b""), VolumeError::DamagedHeader { .. }));
    assert!(matches!(damage(&vec![0; 1 << 20]), VolumeError::DamagedHeader { .. }));

    let mut newer = good.clone();
    set_version(&mut newer, volume::FORMAT_VERSION as u8 + 1);
    let VolumeError::NewerVersion { found, known, .. } = damage(&newer) else { panic!("taken for damage") };
    assert_eq!((found, known), (volume::FORMAT_VERSION + 1, volume::FORMAT_VERSION));

    fs::write(&header_file, &good).expect("writable");
    fs::remove_dir(path.join("segments")).expect("empty");
    assert!(matches!(Volume::open(&path), Err(VolumeError::MissingPart { part: "segments", .. })));

    fs::rename(&header_file, path.join("holdfast.volume.new")).expect("renamed");
    assert!(matches!(Volume::open(&path), Err(VolumeError::HalfFormatted { .. })));
    assert!(matches!(format(&path, &small()), Err(VolumeError::HalfFormatted { .. })));

    assert!(matches!(Volume::open(&scratch.0), Err(VolumeError::NotAVolume { .. })));
    assert!(matches!(Volume::open(&scratch.join("none")), Err(VolumeError::Missing { .. })));
    File::create(scratch.join("file")).expect("made");
    assert!(matches!(Volume::open(&scratch.join("file")), Err(VolumeError::NotADirectory { .. })));
}

fn set_version(header: &mut [u8], version: u8) {
    header[8] = version;
    let crc = crc32c::crc32c(&header[..124]);
    header[124..].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_volume_of_version_1_is_opened_and_becomes_one_of_version_2() {
    let scratch = Scratch::new();
    let path = scratch.join("vol");
    made(&path);
    let header_file = path.join("holdfast.volume");
    let new = fs::read(&header_file).expect("readable");
    let mut old = new.clone();
    set_version(&mut old, 1);
    fs::write(&header_file, &old).expect("writable");
    let volume = Volume::open(&path).expect("readable");
    assert_eq!(fs::read(&header_file).expect("readable"), old, "to open it changes nothing");
    for _ in 0..2 {
        volume.raise_version().expect("replaced");
        assert_eq!(fs::read(&header_file).expect("readable"), new);
    }
    assert!(!path.join("holdfast.volume.new").exists());
}

#[test]
fn a_volume_is_opened_through_a_symbolic_link_by_its_own_path() {
    let scratch = Scratch::new();
    made(&scratch.join("vol"));
    symlink(scratch.join("vol"), scratch.join("link")).expect("linked");
    assert_eq!(Volume::open(&scratch.join("link")).expect("opens").path(), scratch.join("vol"));
}

#[test]
fn only_one_is_elected_until_it_gives_up() {
    let scratch = Scratch::new();
    let path = scratch.join("vol");
    made(&path);
    let (one, two) = (Volume::open(&path).expect("opens"), Volume::open(&path).expect("opens"));
    assert_eq!(one.master_pid().expect("known"), None);
    let lock = one.try_elect().expect("works").expect("nobody else is there");
    assert!(two.try_elect().expect("works").is_none());
    assert_eq!(two.master_pid().expect("known"), Some(std::process::id()));
    drop(lock);
    assert_eq!(two.master_pid().expect("known"), None);
    assert!(two.try_elect().expect("works").is_some());
}

#[test]
fn sockets_work_below_a_path_longer_than_an_address() {
    let scratch = Scratch::new();
    let deep = scratch.join(&"d".repeat(120)).join("vol");
    fs::create_dir(deep.parent().expect("has one")).expect("made");
    made(&deep);
    let volume = Volume::open(&deep).expect("opens");
    let listener = volume.listen("master").expect("listens");
    let socket = fs::symlink_metadata(deep.join("run/master")).expect("named");
    assert!(socket.file_type().is_socket());
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    let mut client = volume.connect("master").expect("connects");
    let (mut server, _) = listener.accept().expect("accepts");
    client.write_all(b"hi").expect("sent");
    drop(client);
    let mut got = String::new();
    server.read_to_string(&mut got).expect("received");
    assert_eq!(got, "hi");
    assert_eq!(volume.socket_names().expect("listed"), ["master"]);
    drop(listener);
    assert!(volume.socket_names().expect("listed").is_empty());
}

#[test]
fn a_stale_socket_is_recognised_and_replaced() {
    let scratch = Scratch::new();
    let path = scratch.join("vol");
    made(&path);
    let volume = Volume::open(&path).expect("opens");
    assert!(volume.connect("node-0:1").expect_err("nobody").is_nobody_listening());
    // What a killed process leaves: a name that nobody listens to.
    drop(std::os::unix::net::UnixListener::bind(path.join("run/node-0:1")).expect("bound"));
    assert!(volume.connect("node-0:1").expect_err("stale").is_nobody_listening());
    let first = volume.listen("node-0:1").expect("listens in its place");
    volume.connect("node-0:1").expect("connects");
    let second = volume.listen("node-0:1").expect("takes the name over");
    drop(first);
    volume.connect("node-0:1").expect("the newer one keeps its name");
    drop(second);
}

#[test]
fn socket_names_cannot_leave_the_directory() {
    let scratch = Scratch::new();
    made(&scratch.join("vol"));
    let volume = Volume::open(&scratch.join("vol")).expect("opens");
    for name in ["", "../x", "a/b", ".hidden", "nul\0"] {
        assert!(matches!(volume.listen(name), Err(VolumeError::BadSocketName { .. })), "{name:?}");
        assert!(matches!(volume.connect(name), Err(VolumeError::BadSocketName { .. })), "{name:?}");
    }
}

#[test]
fn the_reserve_is_released_and_refilled() {
    let scratch = Scratch::new();
    made(&scratch.join("vol"));
    let volume = Volume::open(&scratch.join("vol")).expect("opens");
    let space = volume.space().expect("known");
    assert_eq!(space.reserve_bytes, 4 << 20);
    assert!(space.total_bytes >= space.free_bytes && space.free_bytes >= space.available_bytes);
    assert_eq!(volume.release_reserve().expect("works"), 4 << 20);
    assert_eq!(volume.release_reserve().expect("works"), 0);
    assert_eq!(volume.space().expect("known").reserve_bytes, 0);
    assert!(volume.refill_reserve().expect("works"));
    assert_eq!(volume.space().expect("known").reserve_bytes, 4 << 20);
}
