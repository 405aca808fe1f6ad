//! What only an owner may do, judged by a kernel that learnt of the owner before another node made it another.
//!
//! The kernel asks nobody before chmod, utimes or a change of the access list: it goes by the owner that it was told last.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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

/// Goal: an access list is its owner's to change, and setgid is for who is in the group, whatever the kernel knew of both. Method: a file is
/// opened at one mount, and given to another user, or group, at the other; then who had it before changes it by the descriptor.
#[test]
fn access_lists_and_setgid_are_judged_by_what_the_file_is_now() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let list = |user: u32| {
        let entries =
            [(1u16, 6u16, u32::MAX), (2, 6, user), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 4, u32::MAX)];
        let bytes = entries.into_iter().flat_map(|(tag, rights, id)| {
            [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        });
        2u32.to_le_bytes().into_iter().chain(bytes).collect::<Vec<u8>>()
    };
    let set_list = |user: u32, file: &File| {
        let flags = rustix::fs::XattrFlags::empty();
        as_user(user, || rustix::fs::fsetxattr(file, "system.posix_acl_access", &list(user), flags))
    };
    let remove_list =
        |user: u32, file: &File| as_user(user, || rustix::fs::fremovexattr(file, "system.posix_acl_access"));
    for (dir, name) in [(true, "dir"), (false, "file")] {
        match dir {
            true => fs::create_dir(a.path(name)).expect("made"),
            false => fs::write(a.path(name), "x").expect("made"),
        }
        chown(a.path(name), Some(BEFORE), Some(BEFORE)).expect("root may");
        let open = File::open(b.path(name)).expect("opened");
        assert_eq!(set_list(BEFORE, &open), Ok(()), "the owner may");
        chown(a.path(name), Some(AFTER), None).expect("root may");
        assert_eq!(set_list(BEFORE, &open), Err(rustix::io::Errno::PERM), "{name}");
        assert_eq!(remove_list(BEFORE, &open), Err(rustix::io::Errno::PERM), "{name}");
        assert_eq!(set_list(AFTER, &File::open(b.path(name)).expect("opened")), Ok(()), "{name}");
    }
    fs::write(a.path("grouped"), "x").expect("made");
    chown(a.path("grouped"), Some(BEFORE), Some(BEFORE)).expect("root may");
    let open = File::open(b.path("grouped")).expect("opened");
    let set_gid = || {
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                let group = rustix::fs::Gid::from_raw(BEFORE);
                rustix::thread::set_thread_groups(&[group]).expect("root may");
                rustix::thread::set_thread_res_gid(group, group, group).expect("root may");
                as_user(BEFORE, || open.set_permissions(fs::Permissions::from_mode(0o2755)))
            });
            done.join().expect("it returns").expect("the owner may");
        });
        fs::metadata(a.path("grouped")).expect("there").mode() & 0o7777
    };
    assert_eq!(set_gid(), 0o2755);
    chown(a.path("grouped"), None, Some(AFTER)).expect("root may");
    assert_eq!(set_gid(), 0o755);
    drop(open);
    for mount in [a, b] {
        mount.unmount(&lab);
    }
}

/// Goal: in a sticky directory nobody removes what somebody else has put in the place of his own file, on another node, since his kernel looked. Method: a user
/// removes one name on one node, again and again, by unlink and by moving it away; root gives him that name on the other, takes it for itself and sees whether it has
/// kept it.
#[test]
fn what_another_node_puts_into_a_sticky_directory_is_not_removed_for_what_was_there() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let dir = a.path("sticky");
    fs::create_dir(&dir).expect("made");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777)).expect("set");
    let (name, there) = (dir.join("f"), b.path("sticky/f"));
    let is_over = AtomicBool::new(false);
    let (mut kept, mut removed) = (0, 0);
    std::thread::scope(|scope| {
        let user = scope.spawn(|| {
            as_user(BEFORE, || {
                let mut done = 0;
                while !is_over.load(Ordering::Relaxed) {
                    done += usize::from(fs::remove_file(&name).is_ok());
                    done += usize::from(fs::rename(&name, dir.join("away")).is_ok());
                }
                done
            })
        });
        let until = Instant::now() + Duration::from_secs(6);
        while Instant::now() < until {
            let new = b.path("sticky/new");
            fs::write(&new, "his").expect("made");
            chown(&new, Some(BEFORE), Some(BEFORE)).expect("given");
            fs::rename(&new, &there).expect("moved");
            fs::write(&new, "root's").expect("made");
            fs::rename(&new, &there).expect("moved");
            std::thread::sleep(Duration::from_millis(1));
            match fs::symlink_metadata(&there) {
                Ok(found) => kept += usize::from(found.uid() == 0),
                Err(_) => removed += 1,
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let done = user.join().expect("it returns");
        println!("root kept its file {kept} times and lost it {removed} times; the user removed {done}");
        assert!(done > 0, "the user may remove his own");
    });
    assert!(kept > 0 && removed == 0, "root's file was removed {removed} times, and stayed {kept} times");
}
