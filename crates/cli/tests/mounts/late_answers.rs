//! Answers that the kernel takes in late.

use std::fs;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::lab::Lab;

/// Goal: what a process is told while another one of its node changes that is not kept in place of what is so. Method: three threads look at a directory and a file, while a fourth sets
/// extended attributes of the file, and makes and removes names in the directory; then nobody does anything, and what the kernel has is compared with what
/// the node has.
#[test]
fn what_is_told_beside_a_change_of_this_node_is_not_kept() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    let (dir, file) = (a.path("dir"), a.path("dir/file"));
    fs::create_dir(&dir).expect("made");
    fs::write(&file, "bytes").expect("written");
    let (stage, both) = (AtomicU8::new(LOOK), [&dir, &file]);
    let mut stale = Vec::new();
    std::thread::scope(|scope| {
        for looker in 0..3 {
            // By GETATTR and by STATX.
            let look = move |path: &std::path::PathBuf| match looker {
                0 => drop(fs::metadata(path)),
                _ => drop(rustix::fs::stat(path)),
            };
            let stage = &stage;
            scope.spawn(move || {
                while stage.load(Ordering::Relaxed) != END {
                    match stage.load(Ordering::Relaxed) {
                        LOOK => both.into_iter().for_each(look),
                        _ => std::thread::sleep(Duration::from_micros(200)),
                    }
                }
            });
        }
        let flags = rustix::fs::XattrFlags::empty();
        let at = |name: &str| dir.join(name);
        for round in 0..300 {
            stage.store(LOOK, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(100));
            for n in 0..3 {
                match round % 4 {
                    0 | 1 => {
                        let value = format!("{round} {n}");
                        rustix::fs::setxattr(&file, "user.n", value.as_bytes(), flags).expect("set");
                    }
                    2 => fs::create_dir(at(&format!("sub{round}{n}"))).expect("made"),
                    _ => {
                        fs::hard_link(&file, at("link")).expect("linked");
                        fs::rename(at("link"), at(&format!("other{round}{n}"))).expect("renamed");
                    }
                }
            }
            stage.store(REST, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(10));
            for path in both {
                let looked = |flags| {
                    let of = rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS).expect("there");
                    let time = |time: rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
                    (of.stx_nlink, time(of.stx_ctime), time(of.stx_mtime))
                };
                let (kept, there) = (looked(AtFlags::empty()), looked(AtFlags::STATX_FORCE_SYNC));
                if kept != there {
                    stale.push((round, kept, there));
                }
            }
        }
        stage.store(END, Ordering::Relaxed);
    });
    assert!(stale.is_empty(), "{} looks of 600, the first {:?}", stale.len(), stale.first());
    a.unmount(&lab);
}

const LOOK: u8 = 0;
const REST: u8 = 1;
const END: u8 = 2;
