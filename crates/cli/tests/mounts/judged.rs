//! Access as a kernel judges it, right after another node has changed the permissions.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::lab::{Lab, Mount, as_user};

const ROUNDS: u32 = 1000;
const NOBODY: u32 = 65_534;

/// Something that goes on meanwhile.
type Traffic = (&'static str, fn(&Mount, &Mount, u64));

fn nothing(_: &Mount, _: &Mount, _: u64) {
    std::thread::sleep(Duration::from_millis(1));
}

fn write_here(_: &Mount, there: &Mount, _: u64) {
    let file = File::options().write(true).open(there.path("f")).expect("opened");
    for _ in 0..100 {
        file.write_all_at(b"written here", 0).expect("written");
    }
}

fn write_there(here: &Mount, _: &Mount, _: u64) {
    let file = File::options().write(true).open(here.path("f")).expect("opened");
    file.write_all_at(b"written there", 0).expect("written");
}

fn look_there(_: &Mount, there: &Mount, _: u64) {
    for _ in 0..100 {
        // Nobody may have walked there.
        fs::symlink_metadata(there.path("f")).expect("the owner may");
        fs::symlink_metadata(there.path("d/absent")).expect_err("there is none");
    }
}

fn make_names(here: &Mount, there: &Mount, count: u64) {
    for mount in [here, there] {
        let path = mount.path(&format!("d/{}-{count}", mount.root.ends_with("a")));
        fs::write(&path, "").expect("made");
        fs::remove_file(&path).expect("removed");
    }
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("the owner may");
}

/// Goal: whoever opens a file or walks through a directory on a node is judged by the permissions that another node has set by
/// then, whatever else happens to the file. Method: they are given and taken back in turns on one node, and an
/// ordinary user of the other tries at once each time: left alone, and beside writes to the file and changes of the directory, which have the
/// kernel drop what it is told.
#[test]
fn access_is_judged_by_the_permissions_that_another_node_has_set() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::write(a.path("f"), "content").expect("made");
    fs::create_dir(a.path("d")).expect("made");
    let traffic: [Traffic; 5] = [
        ("nothing", nothing),
        ("looks on that node", look_there),
        ("writes on this node", write_here),
        ("writes on the other node", write_there),
        ("names made on both", make_names),
    ];
    for (what, go_on) in traffic {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(|n| go_on(&a, &b, n))
            });
            let wrong = (0..ROUNDS).filter(|round| !is_judged_right(&a, &b, round % 2 == 0)).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(wrong, 0, "of {ROUNDS}, beside: {what}");
        });
    }
}

fn is_judged_right(here: &Mount, there: &Mount, is_allowed: bool) -> bool {
    let (file, directory) = if is_allowed { (0o644, 0o755) } else { (0o600, 0o700) };
    allow(&here.path("f"), file);
    let opened = as_user(NOBODY, || File::open(there.path("f")).map(|_| ()));
    allow(&here.path("d"), directory);
    let walked = as_user(NOBODY, || fs::symlink_metadata(there.path("d/absent")).map(|_| ()));
    let kind = |result: io::Result<()>| result.err().map(|error| error.kind());
    let expected = match is_allowed {
        true => (None, Some(io::ErrorKind::NotFound)),
        false => (Some(io::ErrorKind::PermissionDenied), Some(io::ErrorKind::PermissionDenied)),
    };
    (kind(opened), kind(walked)) == expected
}

/// Goal: the same for the files of a directory that is listed after all of them were changed, where the listing tells of them.
/// Method: an ordinary user lists and opens all, with another who looks at single ones and lists as well.
#[test]
fn access_is_judged_by_permissions_that_a_listing_told() {
    const FILES: u32 = 40;
    const ROUNDS: u32 = 150;
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::create_dir(a.path("d")).expect("made");
    let name = |n: u32| format!("d/f{n}");
    for n in 0..FILES {
        fs::write(a.path(&name(n)), "content").expect("made");
    }
    let list = |mount: &Mount| fs::read_dir(mount.path("d")).expect("listed").count();
    let traffic: [(&str, &(dyn Fn(u32) + Sync)); 2] = [
        ("nothing", &|_| std::thread::sleep(Duration::from_millis(1))),
        ("looks and lists on that node", &|n| {
            fs::symlink_metadata(b.path(&name(n % FILES))).expect("everybody may");
            list(&b);
        }),
    ];
    for (what, go_on) in traffic {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(go_on));
            let mut wrong = 0;
            for round in 0..ROUNDS {
                let is_allowed = round % 2 == 0;
                (0..FILES).for_each(|n| allow(&a.path(&name(n)), if is_allowed { 0o644 } else { 0o600 }));
                assert_eq!(list(&b), FILES as usize);
                let opens =
                    as_user(NOBODY, || (0..FILES).filter(|n| File::open(b.path(&name(*n))).is_ok()).count());
                wrong += opens.abs_diff(if is_allowed { FILES as usize } else { 0 });
            }
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(wrong, 0, "of {}, beside: {what}", ROUNDS * FILES);
        });
    }
}
