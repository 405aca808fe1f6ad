//! What only an owner may do, judged by a kernel that learnt of the owner before another node made it another.
//!
//! The kernel asks nobody before chmod, utimes or a change of the access list: it goes by the owner that it was told last.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use crate::lab::{Lab, Mount, as_user};

const BEFORE: u32 = 1000;
const AFTER: u32 = 2000;

fn chmod(user: u32, path: &Path, mode: u32) -> Result<(), io::ErrorKind> {
    as_user(user, || {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|error| error.kind())
    })
}

/// Sets times to what they are: which only the owner may.
fn set_times(user: u32, path: &Path) -> Result<(), io::ErrorKind> {
    let set = || {
        let metadata = fs::symlink_metadata(path)?;
        let time = |secs, nanos| rustix::fs::Timespec { tv_sec: secs, tv_nsec: nanos };
        use std::os::unix::fs::MetadataExt;
        let times = rustix::fs::Timestamps {
            last_access: time(metadata.atime(), metadata.atime_nsec() as _),
            last_modification: time(metadata.mtime(), metadata.mtime_nsec() as _),
        };
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
        Ok::<_, io::Error>(())
    };
    as_user(user, || set().map_err(|error| error.kind()))
}

/// Everything that has an owner, in a directory that both nodes use and in one that only the first one changes.
fn make(root: &Path) -> Vec<String> {
    let mut made = Vec::new();
    for dir in ["shared", "held"] {
        let path = root.join(dir);
        fs::create_dir(&path).expect("made");
        fs::write(path.join("file"), "x").expect("made");
        fs::write(path.join("linked"), "x").expect("made");
        fs::hard_link(path.join("linked"), path.join("link")).expect("made");
        fs::create_dir(path.join("directory")).expect("made");
        fs::write(path.join("directory/inside"), "x").expect("made");
        symlink("file", path.join("symlink")).expect("made");
        let names = ["file", "linked", "directory", "directory/inside", "symlink"];
        made.extend(names.map(|name| format!("{dir}/{name}")));
    }
    made
}

/// Goal: who owns a file when another node's chown has returned may do what an owner may, and who owned it before may not, by any
/// path and on any node. Method: both nodes' kernels know all names and owners, and each chown on one is followed by
/// attempts of both users on the other; both ways round, with a file written in between so that its node holds it.
#[test]
fn who_owns_a_file_since_a_moment_ago_is_its_owner_everywhere() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let made = make(&a.root);
    let know = |mount: &Mount| {
        for name in &made {
            fs::symlink_metadata(mount.path(name)).expect("there");
        }
    };
    let mut wrong = Vec::new();
    for (round, (here, there)) in [(&a, &b), (&b, &a), (&a, &b)].into_iter().enumerate() {
        for name in &made {
            let is_link = name.ends_with("symlink");
            let (own, other) = (here.path(name), there.path(name));
            for (old, new) in [(BEFORE, AFTER), (AFTER, BEFORE)] {
                std::os::unix::fs::lchown(&own, Some(old), None).expect("root may");
                know(here);
                know(there);
                if round == 2 && own.is_file() && !is_link {
                    File::options().append(true).open(&own).and_then(|file| file.set_len(7)).expect("cut");
                }
                let open = (!is_link).then(|| File::open(&other).expect("opened"));
                std::os::unix::fs::lchown(&own, Some(new), None).expect("root may");
                let mut expect = |what: &str, found, expected: Result<(), io::ErrorKind>| {
                    if found != expected {
                        wrong.push(format!("round {round}: {what} of {name}: {found:?}, not {expected:?}"));
                    }
                };
                let refused = Err(io::ErrorKind::PermissionDenied);
                if let Some(open) = open {
                    let set = || open.set_permissions(fs::Permissions::from_mode(0o755));
                    let found = as_user(old, || set().map_err(|error| error.kind()));
                    expect("fchmod by who was the owner", found, refused);
                    expect("chmod by who was the owner", chmod(old, &other, 0o755), refused);
                    expect("chmod by the owner", chmod(new, &other, 0o755), Ok(()));
                }
                expect("utimes by who was the owner", set_times(old, &other), refused);
                expect("utimes by the owner", set_times(new, &other), Ok(()));
            }
        }
        chown(here.path("shared"), Some(0), None).expect("root may");
    }
    assert!(wrong.is_empty(), "{} wrong: {wrong:#?}", wrong.len());
    for mount in [a, b] {
        mount.unmount(&lab);
    }
}
