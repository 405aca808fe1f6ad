//! Goal: a file handle, as NFS servers keep them, finds its file on every mount, after renames and remounts, and is stale
//! once the file is gone. Method: name_to_handle_at(2) and open_by_handle_at(2) on two mounts.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;

use crate::lab::Lab;

/// `struct file_handle`, with room for the longest.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
struct Handle {
    bytes: c_uint,
    kind: c_int,
    rest: [u8; 128],
}

#[expect(unsafe_code, reason = "rustix does not have the calls")]
mod calls {
    use super::{Handle, c_char, c_int};

    unsafe extern "C" {
        pub fn name_to_handle_at(
            dir: c_int,
            path: *const c_char,
            handle: *mut Handle,
            mount: *mut c_int,
            flags: c_int,
        ) -> c_int;
        pub fn open_by_handle_at(mount: c_int, handle: *const Handle, flags: c_int) -> c_int;
    }
}

#[expect(unsafe_code, reason = "rustix does not have the call")]
fn handle_of(path: &Path) -> Handle {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no zero in it");
    let (mut handle, mut mount) = (Handle { bytes: 128, kind: 0, rest: [0; 128] }, 0);
    // SAFETY: the kernel writes at most as many bytes as the handle says that it has.
    let done = unsafe {
        calls::name_to_handle_at(
            rustix::fs::CWD.as_raw_fd(),
            path.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            0,
        )
    };
    assert_eq!(done, 0, "{path:?}: {}", std::io::Error::last_os_error());
    handle
}

#[expect(unsafe_code, reason = "rustix does not have the call")]
fn open(mount: &Path, handle: &Handle) -> Result<File, Errno> {
    let root = File::open(mount).expect("mounted");
    // SAFETY: the kernel reads as many bytes of the handle as it says it has, which it does.
    match unsafe { calls::open_by_handle_at(root.as_raw_fd(), handle, 0) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).expect("an errno")),
        // SAFETY: a new descriptor that nobody else has.
        file => Ok(unsafe { File::from_raw_fd(file) }),
    }
}

fn read(mount: &Path, handle: &Handle) -> Result<String, Errno> {
    let mut text = String::new();
    open(mount, handle)?.read_to_string(&mut text).expect("it is open");
    Ok(text)
}

#[test]
fn a_file_handle_finds_its_file_until_it_is_gone() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::create_dir_all(a.path("x/y")).expect("made");
    fs::write(a.path("x/y/f"), "one").expect("made");
    let (file, dir) = (handle_of(&a.path("x/y/f")), handle_of(&a.path("x/y")));
    assert_eq!(handle_of(&b.path("x/y/f")), file, "the same on all nodes");
    assert_eq!(read(&b.root, &file), Ok("one".to_owned()));

    // By another name, with other content, and from a mount that has never seen it.
    fs::rename(b.path("x/y/f"), b.path("g")).expect("moved");
    fs::write(b.path("g"), "two").expect("written");
    assert_eq!(read(&a.root, &file), Ok("two".to_owned()));
    let c = lab.mount("c");
    assert_eq!(read(&c.root, &file), Ok("two".to_owned()));
    let parent = |mount: &Path| {
        let opened = open(mount, &dir).expect("it is there");
        fs::metadata(format!("/proc/self/fd/{}/..", opened.as_raw_fd())).expect("it has one").ino()
    };
    assert_eq!(parent(&c.root), fs::metadata(a.path("x")).expect("there").ino());

    // No node remembers anything.
    for mount in [a, b, c] {
        mount.unmount(&lab);
    }
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    assert_eq!(read(&a.root, &file), Ok("two".to_owned()));
    assert_eq!(parent(&b.root), fs::metadata(a.path("x")).expect("there").ino());

    // Gone for all, though one that is open stays readable; and nothing that is made later is taken for it.
    let mut kept = open(&b.root, &file).expect("it is there");
    fs::remove_file(a.path("g")).expect("removed");
    fs::remove_dir(a.path("x/y")).expect("removed");
    (0..100).for_each(|n| fs::write(a.path(&format!("n{n}")), "new").expect("made"));
    let mut text = String::new();
    kept.read_to_string(&mut text).expect("it is open");
    assert_eq!(text, "two");
    drop(kept);
    // The last close of each is told to the node in the kernel's own time.
    for (mount, handle) in [(&a, &dir), (&b, &dir), (&b, &file), (&a, &file)] {
        crate::lab::wait_until("the last close", || open(&mount.root, handle).err() == Some(Errno::STALE));
    }
}

/// Goal: a handle is as good as a name as soon as the call that made the file has returned, though nothing of it was flushed yet.
/// Method: one mount makes files in a directory that it has for itself; the other opens them by their handles at once.
#[test]
fn a_handle_of_a_file_that_was_just_made_opens_it_elsewhere() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::create_dir(a.path("own")).expect("made");
    for round in 0..50 {
        let (path, text) = (a.path(&format!("own/{round}")), format!("round {round}"));
        fs::write(&path, &text).expect("made");
        let handle = handle_of(&path);
        assert_eq!(read(&b.root, &handle), Ok(text), "round {round}");
        fs::remove_file(&path).expect("removed");
        // Its last close is told to the node in the kernel's own time.
        crate::lab::wait_until("the last close", || open(&b.root, &handle).err() == Some(Errno::STALE));
    }
    a.unmount(&lab);
    b.unmount(&lab);
}
