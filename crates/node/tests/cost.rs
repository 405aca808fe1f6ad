//! What coherence costs, in messages, revokes and requests: the figures that make a cluster file system fast or
//! slow are counted here, not timed.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use common::{Mounted, Scratch, wait_until};

/// Messages that a node's link has carried, both ways.
fn messages(mounted: &Mounted) -> u64 {
    mounted.stat("messages_sent_total") + mounted.stat("messages_received_total")
}

/// Waits until nothing more is said between the nodes, but for what keeps the lease.
fn quiet(mounted: &Mounted) {
    let mut last = messages(mounted);
    wait_until("silence", || {
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let now = messages(mounted);
        now - std::mem::replace(&mut last, now) <= 4
    });
}

fn create(path: &Path) {
    fs::OpenOptions::new().write(true).create_new(true).open(path).unwrap();
}

fn walk(root: &Path) -> usize {
    let output = Command::new("find").arg(root).arg("-ls").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.split(|b| *b == b'\n').count() - 1
}

/// Two nodes that create in directories of their own say next to nothing and take nothing from each other.
#[test]
fn creating_in_own_directories_costs_no_revokes_and_few_messages() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    for (mounted, name) in [(&a, "of-a"), (&b, "of-b")] {
        fs::create_dir(mounted.path(name)).unwrap();
        create(&mounted.path(name).join("first"));
    }
    quiet(&b);
    let before = (messages(&b), a.stat("tokens_revoked_total") + b.stat("tokens_revoked_total"));
    std::thread::scope(|scope| {
        for (mounted, name) in [(&a, "of-a"), (&b, "of-b")] {
            scope.spawn(move || {
                for number in 0..10_000 {
                    create(&mounted.path(name).join(format!("f{number}")));
                }
            });
        }
    });
    let after = (messages(&b), a.stat("tokens_revoked_total") + b.stat("tokens_revoked_total"));
    assert_eq!(after.1 - before.1, 0, "revokes");
    assert!(after.0 - before.0 < 100, "{} messages for 10,000 creates", after.0 - before.0);
}

/// Creating by turns in one directory ships each create, hands EX to nobody, and throws no cache away.
#[test]
fn creating_by_turns_keeps_both_caches() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    let dir = |mounted: &Mounted| mounted.path("shared");
    fs::create_dir(dir(&a)).unwrap();
    for number in 0..1000 {
        create(&dir(&a).join(format!("old{number}")));
    }
    assert_eq!(walk(&dir(&b)), 1001);
    quiet(&b);
    let converted = || -> u64 {
        let of = |m: &Mounted| m.ask("stat")["by_label"]["tokens_converted_total"]["dir"].as_u64().unwrap();
        of(&a) + of(&b)
    };
    let before = converted();
    for number in 0..500 {
        create(&dir(&a).join(format!("a{number}")));
        create(&dir(&b).join(format!("b{number}")));
    }
    assert_eq!(converted() - before, 0, "directory tokens handed over");
    for mounted in [&a, &b] {
        let stat = mounted.ask("stat");
        // One for each name that could not be taken back at once, if threads had to wait for a processor; not one for each create.
        let epochs = stat["by_label"]["invalidations_total"]["epoch"].as_u64().unwrap();
        assert!(epochs < 50, "{epochs} times all names ran out");
        assert_eq!(fs::read_dir(dir(mounted)).unwrap().count(), 2000);
    }
    quiet(&b);
    let before = messages(&b);
    for mounted in [&a, &b] {
        for number in 0..1000 {
            fs::metadata(dir(mounted).join(format!("old{number}"))).unwrap();
        }
    }
    // What keeps the lease may fall into the time.
    assert!(messages(&b) - before <= 2, "{} messages for 2,000 stats", messages(&b) - before);
}

/// A tree of `dirs` directories of `files` files, grouped by a hundred.
fn make_tree(root: &Path, dirs: usize, files: usize) -> usize {
    fs::create_dir(root).unwrap();
    for dir in 0..dirs {
        let group = root.join(format!("g{}", dir / 100));
        let sub = group.join(format!("d{dir}"));
        fs::create_dir_all(&sub).unwrap();
        for file in 0..files {
            create(&sub.join(format!("f{file}")));
        }
    }
    1 + dirs.div_ceil(100) + dirs + dirs * files
}

/// Who looks at a file in each of the directories beside one another is brought these in advance, and not those of their neighbours.
#[test]
fn looking_into_all_directories_of_one_brings_no_others() {
    let Some(scratch) = Scratch::new() else { return };
    let (_master, b, c) = (scratch.mount("a"), scratch.mount("b"), scratch.mount("c"));
    make_tree(&b.path("tree"), 1000, 10);
    quiet(&b);
    let before = messages(&c);
    for dir in 300..400 {
        fs::metadata(c.path(&format!("tree/g3/d{dir}/f7"))).unwrap();
    }
    let (spent, held) = (messages(&c) - before, c.stat("tokens_held"));
    assert!(spent < 60, "{spent} messages to look into a hundred directories");
    assert!(held < 120, "{held} tokens held after a look into a hundred directories");
}

/// The first walk of a tree that the other node made, and walks of a tree that the kernel knows.
#[test]
fn walking_costs_less_than_a_message_or_request_for_a_hundred_inodes() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    let inodes = make_tree(&a.path("tree"), 20, 500);
    quiet(&b);
    let before = messages(&b);
    assert_eq!(walk(&b.path("tree")), inodes);
    let spent = messages(&b) - before;
    assert!(spent < inodes as u64 / 100, "{spent} messages for the first walk of {inodes} inodes");
    walk(&b.path("tree"));
    let before = b.stat("fuse_requests_total");
    walk(&b.path("tree"));
    let spent = b.stat("fuse_requests_total") - before;
    assert!(spent < inodes as u64 / 100, "{spent} requests for a warm walk of {inodes} inodes");
}

/// A walk right after another node has changed all permissions looks up a few inodes, not each.
#[test]
fn walking_right_after_a_chmod_of_all_elsewhere_looks_up_few() {
    use std::os::unix::fs::PermissionsExt;
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    let inodes = make_tree(&a.path("tree"), 5, 200);
    let lookups =
        || b.ask("stat")["by_label"]["fuse_requests_total"]["lookup"].as_u64().expect("it is counted");
    let (mut few, mut many) = (0, Vec::new());
    for mode in [0o600, 0o644, 0o640].into_iter().cycle() {
        assert_eq!(walk(&b.path("tree")), inodes);
        for dir in 0..5 {
            for file in 0..200 {
                let path = a.path(&format!("tree/g0/d{dir}/f{file}"));
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        // Lulls come a moment later, when a thread has got a processor.
        std::thread::sleep(std::time::Duration::from_millis(500));
        let before = lookups();
        assert_eq!(walk(&b.path("tree")), inodes);
        let spent = lookups() - before;
        if spent < inodes as u64 / 5 {
            few += 1;
        } else {
            many.push(spent);
        }
        // One that comes too late has a directory looked up: that is the limit. Without them it is each inode, always.
        assert!(many.len() <= 3, "{many:?} lookups in walks of {inodes} inodes, and {few} times few");
        if few == 3 {
            return;
        }
    }
}

/// A walk of directories that another node has changed, and whose attributes the kernel asks for by what it has of them, brings many in one message as one does
/// that looks names up.
#[test]
fn walking_after_a_chmod_of_all_elsewhere_costs_less_than_a_message_for_ten_directories() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    let tree = a.path("tree");
    fs::create_dir(&tree).unwrap();
    for dir in 0..200 {
        let sub = tree.join(format!("d{dir}"));
        fs::create_dir(&sub).unwrap();
        (0..100).for_each(|file| create(&sub.join(format!("f{file}"))));
    }
    let inodes = 1 + 200 + 200 * 100;
    assert_eq!(walk(&b.path("tree")), inodes);
    let changed = Command::new("chmod").args(["-R", "g+w"]).arg(&tree).status().unwrap();
    assert!(changed.success());
    let before = messages(&b);
    assert_eq!(walk(&b.path("tree")), inodes);
    let spent = messages(&b) - before;
    assert!(spent < 20, "{spent} messages for a walk of 201 directories");
}

/// Files with several links have tokens of their own. A walk through them brings those of many along; who removes their names is given the next ones'
/// with one; and who walks through what is left asks for many again.
#[test]
fn files_with_several_links_are_walked_and_removed_many_at_a_time() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    for (maker, other, name) in [(&a, &b, "of-a"), (&b, &a, "of-b")] {
        let (tree, copy) = (maker.path(name), maker.path(&format!("{name}-links")));
        let inodes = make_tree(&tree, 20, 200);
        let linked = Command::new("cp").arg("-al").arg(&tree).arg(&copy).status().unwrap();
        assert!(linked.success());
        quiet(maker);
        let walked = |mounted: &Mounted, name: &str, most: u64| {
            let before = messages(mounted);
            assert_eq!(walk(&mounted.path(name)), inodes);
            let spent = messages(mounted) - before;
            assert!(spent <= most, "{spent} messages for {inodes} inodes of {name}");
        };
        walked(other, name, 100);
        walked(other, name, 4);
        walked(other, &format!("{name}-links"), 100);
        walked(maker, name, 100);

        let before = other.stat("operations_shipped_total");
        fs::remove_dir_all(other.path(&format!("{name}-links"))).unwrap();
        let shipped = other.stat("operations_shipped_total") - before;
        assert!(shipped < inodes as u64 / 3, "{shipped} of {inodes} removals were shipped");
        walked(maker, name, 400);
        assert_eq!(fs::metadata(maker.path(name).join("g0/d0/f0")).unwrap().nlink(), 1);
    }
}

/// Who removes another node's tree, of very many small directories, ships two removals of each: at the first the other one leaves the directory to him.
#[test]
fn a_tree_of_another_node_is_left_to_who_removes_it() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    for (maker, other, name) in [(&a, &b, "of-a"), (&b, &a, "of-b")] {
        let inodes = make_tree(&maker.path(name), 200, 4) as u64;
        // Nobody uses it any more.
        std::thread::sleep(std::time::Duration::from_secs(1));
        let before = other.stat("operations_shipped_total");
        fs::remove_dir_all(other.path(name)).unwrap();
        let shipped = other.stat("operations_shipped_total") - before;
        assert!(shipped < inodes / 2, "{shipped} of {inodes} removals were shipped");
        fs::metadata(maker.path(name)).unwrap_err();
    }
}

/// Who changes all of another node's tree ships a few changes of each directory: at the second that follows the first in the listing the other one
/// leaves the directory to him, however many entries it has.
#[test]
fn a_tree_of_another_node_is_left_to_who_changes_it_all() {
    let Some(scratch) = Scratch::new() else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    for (maker, other, name) in [(&a, &b, "of-a"), (&b, &a, "of-b")] {
        let directories = 50;
        let inodes = make_tree(&maker.path(name), directories, 200) as u64;
        for mounted in [maker, other] {
            walk(&mounted.path(name));
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
        let before = other.stat("operations_shipped_total");
        let status = Command::new("chmod").arg("-R").arg("go-rwx").arg(other.path(name)).status().unwrap();
        assert!(status.success());
        let shipped = other.stat("operations_shipped_total") - before;
        println!("{shipped} of {inodes} changes were shipped");
        assert!(shipped < 10 * directories as u64, "{shipped} of {inodes} changes were shipped");
        assert_eq!(fs::metadata(maker.path(name).join("g0/d0/f0")).unwrap().mode() & 0o777, 0o600);
    }
}

/// The same with a few files in each directory, made by a node that is not the master and walked by a third; and by a
/// tool that goes by sorted names.
#[test]
fn walking_small_directories_costs_less_than_a_message_for_a_hundred_inodes() {
    let Some(scratch) = Scratch::new() else { return };
    let (_master, b, c) = (scratch.mount("a"), scratch.mount("b"), scratch.mount("c"));
    for (name, by_name) in [("as-listed", false), ("sorted", true)] {
        let inodes = make_tree(&b.path(name), 1000, 10);
        quiet(&b);
        let before = messages(&c);
        if by_name {
            let output = Command::new("ls").arg("-lR").arg(c.path(name)).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        } else {
            assert_eq!(walk(&c.path(name)), inodes);
        }
        let spent = messages(&c) - before;
        assert!(
            spent < inodes as u64 / 100,
            "{name}: {spent} messages for the first walk of {inodes} inodes"
        );
    }
}
