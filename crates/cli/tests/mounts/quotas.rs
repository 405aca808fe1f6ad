//! Limits of users, groups and trees: met by the call that asks for too much, on every mount, and never exceeded.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, chown};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use serde_json::Value as Json;

use crate::lab::{Lab, Mount};

const USER: u32 = 4711;
const GROUP: u32 = 4712;
const MIB: u64 = 1 << 20;

/// A volume with two mounts and a directory `home` of the user's.
fn with_home() -> Option<(Lab, Mount, Mount)> {
    let lab = Lab::new()?;
    fs::set_permissions(&lab.dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::create_dir(a.path("home")).expect("made");
    chown(a.path("home"), Some(USER), Some(GROUP)).expect("given");
    Some((lab, a, b))
}

fn set(lab: &Lab, arguments: &[&str]) {
    let all: Vec<&str> = ["quota", "set", "vol"].into_iter().chain(arguments.iter().copied()).collect();
    lab.holdfast(&all).expect_success();
}

/// Lines of sh(1) as the user; what they print, and whether they ended well.
fn as_user(lab: &Lab, script: &str) -> (String, bool) {
    run_as(lab, USER, script)
}

fn run_as(lab: &Lab, user: u32, script: &str) -> (String, bool) {
    let mut command = lab.command("setpriv");
    let (uid, gid) = (format!("--reuid={user}"), format!("--regid={GROUP}"));
    command.args([uid.as_str(), gid.as_str(), "--clear-groups", "sh", "-c", script]);
    let output = command.output().expect("setpriv(1) is there");
    let said = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&said).into_owned(), output.status.success())
}

fn succeeds(lab: &Lab, script: &str) {
    let (said, is_good) = as_user(lab, script);
    assert!(is_good, "{script}: {said}");
}

fn is_refused(lab: &Lab, script: &str) {
    let (said, is_good) = as_user(lab, script);
    assert!(!is_good && said.contains("Disk quota exceeded"), "{script}: {said}");
}

/// What the volume says of an account.
fn account(lab: &Lab, name: &str) -> Json {
    let report = lab.holdfast(&["quota", "report", "vol", "--json"]).json();
    let accounts = report["accounts"].as_array().expect("a list");
    accounts.iter().find(|account| account["account"] == name).cloned().unwrap_or_default()
}

fn used(lab: &Lab, name: &str) -> (u64, u64) {
    let account = account(lab, name);
    (account["bytes"].as_u64().unwrap_or(0), account["inodes"].as_u64().unwrap_or(0))
}

/// Blocks and inodes below a directory, it included, that belong to the user.
fn count(dir: &Path) -> (u64, u64) {
    let own = |metadata: &fs::Metadata| if metadata.uid() == USER { (metadata.blocks(), 1) } else { (0, 0) };
    let mut sum = own(&fs::symlink_metadata(dir).expect("there"));
    for entry in fs::read_dir(dir).expect("listed") {
        let path = entry.expect("listed").path();
        let metadata = fs::symlink_metadata(&path).expect("there");
        let (blocks, inodes) = if metadata.is_dir() { count(&path) } else { own(&metadata) };
        sum = (sum.0 + blocks, sum.1 + inodes);
    }
    sum
}

/// Waits until the volume says of an account what is expected: for the commit interval, and for what it takes to log on a
/// busy disk.
#[track_caller]
fn settles_at(lab: &Lab, name: &str, expected: (u64, u64)) {
    // What comes late is to be seen, too.
    std::thread::sleep(Duration::from_millis(2_500));
    let deadline = Instant::now() + Duration::from_secs(60);
    while used(lab, name) != expected && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(used(lab, name), expected, "{name}");
}

#[test]
fn bytes_are_refused_by_the_write_that_is_one_too_many() {
    let Some((lab, a, b)) = with_home() else { return };
    set(&lab, &["user:4711", "--bytes", "4M"]);
    succeeds(&lab, "dd if=/dev/zero of=a/home/x bs=64k count=48 status=none");
    is_refused(&lab, "dd if=/dev/zero of=b/home/y bs=64k count=48 status=none");
    let sizes = ["x", "y"].map(|name| fs::metadata(b.path("home").join(name)).expect("there").len());
    assert_eq!(sizes.iter().sum::<u64>(), 4 * MIB, "to the last byte that fits");
    // What is there may be written again, made durable, and copied over itself.
    succeeds(&lab, "dd if=/dev/zero of=b/home/x bs=64k count=48 conv=notrunc,fsync status=none");
    succeeds(&lab, "dd if=/dev/zero of=a/home/y bs=64k count=16 conv=fsync status=none");
    for refused in [
        "/bin/echo more than nothing > a/home/z",
        "cp b/home/y b/home/z",
        "/bin/echo x >> a/home/x",
        "ln -s target b/home/l",
    ] {
        is_refused(&lab, refused);
    }
    // Room that is made on one mount is there on the other, when the call has returned.
    succeeds(&lab, "truncate -s 1M a/home/x; dd if=/dev/zero of=b/home/z bs=64k count=32 status=none");
    is_refused(&lab, "/bin/echo x >> b/home/z");
    succeeds(&lab, "rm b/home/y; dd if=/dev/zero of=a/home/y bs=64k count=16 status=none");
    is_refused(&lab, "/bin/echo x >> b/home/y");
    // And on the same, at once: what was never recorded too.
    succeeds(
        &lab,
        "cd b/home; rm z; for round in 1 2 3 4; do dd if=/dev/zero of=z bs=64k count=32 status=none && rm z || exit 1; done",
    );
    succeeds(&lab, "dd if=/dev/zero of=b/home/z bs=64k count=32 status=none");
    // Root is counted and not bound; and what it used is not there for others.
    fs::write(a.path("home/roots"), vec![1; MIB as usize]).expect("root is not bound");
    chown(a.path("home/roots"), Some(USER), None).expect("nor is what it gives away");
    is_refused(&lab, "/bin/echo x >> b/home/z");
    let counter = |mount: &Mount, name: &str| mount.counters(&lab)[name].clone();
    for (mount, name) in
        [(&a, "credit_waits_total"), (&b, "credit_waits_total"), (&a, "master_credit_refused_total")]
    {
        assert_ne!(counter(mount, name), 0, "{name}");
    }
    let (blocks, inodes) = count(&a.path("home"));
    // As a full count at rest has it.
    settles_at(&lab, "user:4711", (blocks * 512, inodes));
    assert_eq!(used(&lab, "user:4711").0, 5 * MIB);
    drop((a, b));
    lab.holdfast(&["fsck", "vol"]).expect_success();
}

#[test]
fn inodes_are_refused_by_the_call_that_makes_one_too_many() {
    let Some((lab, a, b)) = with_home() else { return };
    set(&lab, &["group:4712", "--inodes", "20"]);
    succeeds(
        &lab,
        "for n in $(seq 10); do : > a/home/a$n; done; for n in $(seq 9); do mkdir b/home/b$n; done",
    );
    for refused in ["touch a/home/x", "mkdir b/home/x", "mkfifo a/home/x", "ln -s a1 b/home/x"] {
        is_refused(&lab, refused);
    }
    succeeds(&lab, "mv a/home/a1 a/home/b1/a1; ln b/home/b1/a1 b/home/again");
    succeeds(&lab, "rm b/home/a2; touch a/home/x");
    is_refused(&lab, "touch b/home/y");
    // In a directory of another group that hands its own down it is that one's.
    fs::create_dir(a.path("other")).expect("made");
    fs::set_permissions(a.path("other"), std::os::unix::fs::PermissionsExt::from_mode(0o2777)).expect("set");
    succeeds(&lab, "touch b/other/y");
    set(&lab, &["group:4712", "--inodes", "0"]);
    succeeds(&lab, "touch b/home/y a/home/z");
    drop((a, b));
    lab.holdfast(&["fsck", "vol"]).expect_success();
}

/// Goal: files that are given to a group count for it whole, with what is not recorded yet. Method: as a copy that keeps owners does, a user writes
/// files and gives each away at once.
#[test]
fn what_is_given_away_counts_before_it_is_recorded() {
    let Some((lab, a, b)) = with_home() else { return };
    set(&lab, &["group:4713", "--bytes", "4M"]);
    let script = "cd a/home; for n in 1 2 3 4; do
        dd if=/dev/zero of=f$n bs=64k count=24 status=none && chgrp 4713 f$n || exit $n; done";
    let mut command = lab.command("setpriv");
    let (uid, gid) = (format!("--reuid={USER}"), format!("--regid={GROUP}"));
    command.args([uid.as_str(), gid.as_str(), "--groups=4713", "sh", "-c", script]);
    assert_eq!(command.output().expect("it runs").status.code(), Some(3), "the third is one too many");
    settles_at(&lab, "group:4713", (3 * MIB, 2));
    drop((a, b));
    lab.holdfast(&["fsck", "vol"]).expect_success();
}

#[test]
fn a_tree_has_limits_of_its_own_and_keeps_what_is_in_it() {
    let Some((lab, a, b)) = with_home() else { return };
    succeeds(
        &lab,
        "mkdir -p a/home/t/sub; echo 1 > a/home/t/sub/f; ln -s f a/home/t/sub/l; echo 2 > a/home/out",
    );
    let told = lab.holdfast(&["quota", "tree", "a/home/t"]).expect_success().out;
    assert!(told.starts_with("4 inodes belong to tree:"), "{told}");
    let tree = told.trim().rsplit(' ').next().expect("its number").to_owned();
    set(&lab, &["tree:b/home/t", "--bytes", "1M", "--inodes", "6"]);
    for script in ["mv a/home/out b/home/t/", "mv b/home/t/sub/f b/home/f", "mv a/home/t a/home/t2"] {
        succeeds(&lab, script);
    }
    let (said, is_good) = as_user(&lab, "ln a/home/t2/sub/l a/home/l");
    assert!(!is_good && said.contains("Invalid cross-device link"), "{said}");
    is_refused(&lab, "dd if=/dev/zero of=b/home/t2/big bs=64k count=17 status=none");
    succeeds(&lab, "touch a/home/t2/x");
    is_refused(&lab, "touch b/home/t2/sub/y");
    succeeds(&lab, "touch b/home/y");
    // t2, sub, the link of one byte, out of two, x, and big: as many whole requests as fitted beside them.
    settles_at(&lab, &tree, (15 * 65_536 + 3, 6));
    lab.holdfast(&["quota", "tree", "b/home/t2", "--remove"]).expect_success();
    succeeds(&lab, "touch b/home/t2/sub/y; mv a/home/t2/x a/home/x");
    settles_at(&lab, &tree, (0, 0));
    drop((a, b));
    lab.holdfast(&["fsck", "vol"]).expect_success();
}

/// Goal: who fills what two limits leave exactly is let, and nobody waits for who waits for him. Method: three nodes write at once what together is the limit of a user
/// and of a group, again and again.
#[test]
fn nodes_that_need_credit_of_two_accounts_all_get_it() {
    let Some((lab, a, b)) = with_home() else { return };
    let c = lab.mount("c");
    set(&lab, &["user:4711", "--bytes", "3M"]);
    set(&lab, &["group:4712", "--bytes", "3M"]);
    for round in 0..40 {
        let script = |mount: &str| {
            format!(
                "for n in 1 2; do timeout 20 dd if=/dev/zero of={mount}/home/{mount}$n bs=512k count=1 status=none; done"
            )
        };
        let written = std::thread::scope(|scope| {
            let all = ["a", "b", "c"].map(|mount| {
                scope.spawn({
                    let lab = &lab;
                    move || as_user(lab, &script(mount))
                })
            });
            all.map(|ended| ended.join().expect("no panic"))
        });
        assert!(written.iter().all(|(_, is_good)| *is_good), "round {round}: {written:?}");
        succeeds(&lab, "rm b/home/*");
    }
    drop((a, b, c));
}

/// Goal: a tree is made of what is on a mount of the volume alone, however deep that is. Method: directories beside the mount and of another volume, one that
/// was a tree, and 3,000 levels with a stack of 256 KiB.
#[test]
fn trees_are_of_the_volume_and_may_be_deep() {
    let Some((lab, a, b)) = with_home() else { return };
    fs::create_dir(lab.path("beside")).expect("made");
    let said = lab.holdfast(&["quota", "tree", "beside"]);
    assert!(
        said.code == 2 && said.err.contains("beside: it is on no Holdfast mount"),
        "{} {}",
        said.code,
        said.err
    );
    lab.holdfast(&["format", "other"]).expect_success();
    fs::create_dir(lab.path("o")).expect("made");
    lab.holdfast(&["mount", "other", "o"]).expect_success();
    fs::create_dir(lab.path("o/t")).expect("made");
    lab.holdfast(&["quota", "tree", "o/t"]).expect_success();
    let said = lab.holdfast(&["quota", "set", "vol", "tree:o/t", "--inodes", "6"]);
    assert!(said.code == 2 && said.err.contains("o/t: it is in the volume "), "{} {}", said.code, said.err);
    lab.holdfast(&["quota", "tree", "o/t", "--remove"]).expect_success();
    let said = lab.holdfast(&["quota", "set", "other", "tree:o/t", "--inodes", "6"]);
    assert!(said.code == 2 && said.err.contains("it is no tree"), "{} {}", said.code, said.err);
    lab.holdfast(&["umount", "o"]).expect_success();

    fs::create_dir(a.path("home/deep")).expect("made");
    let mut at = File::open(a.path("home/deep")).expect("opened");
    for _ in 0..3000 {
        rustix::fs::mkdirat(&at, "d", Mode::from(0o755)).expect("made");
        at = rustix::fs::openat(&at, "d", OFlags::DIRECTORY, Mode::empty()).expect("opened").into();
    }
    let holdfast = env!("CARGO_BIN_EXE_holdfast");
    let told = lab.sh(&format!("ulimit -s 256; {holdfast} quota tree b/home/deep")).expect_success().out;
    assert!(told.starts_with("3001 inodes belong to tree:"), "{told}");
    drop(at);
    drop((a, b));
}

#[test]
fn limits_outlive_the_master_and_both_nodes() {
    let Some((lab, a, b)) = with_home() else { return };
    set(&lab, &["user:4711", "--bytes", "2M", "--inodes", "12"]);
    succeeds(&lab, "dd if=/dev/zero of=a/home/x bs=64k count=16 conv=fsync status=none");
    succeeds(&lab, "dd if=/dev/zero of=b/home/y bs=64k count=8 status=none");
    // Credit that is out goes with its node; what was promised on the other one still counts.
    a.signal(Signal::KILL);
    assert!(a.wait_for_end(Duration::from_secs(10)));
    is_refused(&lab, "dd if=/dev/zero of=b/home/z bs=64k count=16 status=none");
    assert_eq!(fs::metadata(b.path("home/z")).expect("there").len(), MIB / 2);
    drop(a);
    let a = lab.mount("a");
    is_refused(&lab, "/bin/echo x >> a/home/z");
    succeeds(&lab, "rm b/home/y; dd if=/dev/zero of=a/home/y bs=64k count=8 status=none");
    drop((a, b));
    let a = lab.mount("a");
    is_refused(&lab, "/bin/echo x >> a/home/x");
    assert_eq!(used(&lab, "user:4711"), (2 * MIB, 4));
    drop(a);
    lab.holdfast(&["fsck", "vol"]).expect_success();
}

/// Has users exceed their soft limits, and write on on another mount within the time of grace, which is longer for each; on a
/// busy machine the first are too late. Returns the first who was not, and his time of grace, which began before.
fn exceeds_in_time(lab: &Lab, a: &Mount) -> (u32, Duration) {
    for (user, grace) in (USER..).zip([2, 4, 8, 16, 32]) {
        chown(a.path("home"), Some(user), Some(GROUP)).expect("given");
        let (name, seconds) = (format!("user:{user}"), grace.to_string());
        set(lab, &[&name, "--soft-bytes", "1M", "--bytes", "2M", "--grace", &seconds]);
        let began = Instant::now();
        let write = |place: &str, count: u32| {
            let script = format!("dd if=/dev/zero of={place}{user} bs=64k count={count} status=none");
            run_as(lab, user, &script)
        };
        let written = [write("a/home/x", 20), write("b/home/y", 1)];
        // It begins with a whole second, which may be nearly over.
        if began.elapsed() < Duration::from_secs(grace - 1) {
            assert!(written.iter().all(|(_, is_good)| *is_good), "{written:?}");
            return (user, Duration::from_secs(grace));
        }
    }
    panic!("the machine is too slow for this test");
}

#[test]
fn a_soft_limit_may_be_exceeded_for_its_time_of_grace() {
    let Some((lab, a, _b)) = with_home() else { return };
    let (user, grace) = exceeds_in_time(&lab, &a);
    std::thread::sleep(grace + Duration::from_secs(2));
    let name = format!("user:{user}");
    let write = || run_as(&lab, user, "dd if=/dev/zero of=b/home/z bs=64k count=4 status=none");
    let (said, is_good) = write();
    assert!(!is_good && said.contains("Disk quota exceeded"), "{said}");
    assert_ne!(account(&lab, &name)["limits"]["bytes"]["exceeded_since_unix_seconds"], 0);
    let table = lab.holdfast(&["quota", "report", "vol"]).expect_success().out;
    assert!(
        table.lines().any(|line| line.starts_with(&name) && line.ends_with("soft limit exceeded")),
        "{table}"
    );
    fs::remove_file(a.path(&format!("home/x{user}"))).expect("removed");
    let (said, is_good) = write();
    assert!(is_good, "{said}");
    // 2^32 is no user, and not root either.
    for wrong in ["user:nobody-at-all", "user:4294967296", "group:+1", "tree:a/home", "disk:1"] {
        let said = lab.holdfast(&["quota", "set", "vol", wrong, "--bytes", "1M"]);
        assert_eq!(said.code, 2, "{wrong}: {}", said.err);
    }
    let mixed = lab.holdfast(&["quota", "set", "vol", "user:1", "--bytes", "1M", "--soft-bytes", "2M"]);
    assert_eq!((mixed.code, mixed.err.contains("above the hard one")), (1, true), "{}", mixed.err);
}

/// A kernel that is refused a direct write behind the end of a file cuts the file to the end that it has. Goal: what another node has
/// written meanwhile stays, and whoever cuts the file next does.
#[test]
fn a_direct_write_that_is_refused_cuts_nothing_off() {
    let Some((lab, a, b)) = with_home() else { return };
    let (path, there) = (a.path("home/file"), b.path("home/file"));
    fs::write(&path, b"").expect("made");
    chown(&path, Some(USER), Some(GROUP)).expect("given");
    let file = fs::File::options()
        .read(true)
        .write(true)
        .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
        .open(&path)
        .expect("opened");
    fs::write(&there, vec![7; MIB as usize]).expect("written");
    set(&lab, &["user:4711", "--bytes", "512K"]);
    let writes =
        || crate::lab::as_user(USER, || file.write_at(&[1; 4096], 8 * MIB).map_err(|e| e.raw_os_error()));
    assert_eq!(writes(), Err(Some(rustix::io::Errno::DQUOT.raw_os_error())));
    assert_eq!(fs::metadata(&there).expect("there").len(), MIB);
    assert_eq!(fs::read(&path).expect("read"), vec![7; MIB as usize]);
    file.set_len(100).expect("cut");
    assert_eq!(fs::read(&there).expect("read"), [7; 100]);
    // What was refused and lies within the file is followed by no cut of the kernel's: the next one is meant.
    fs::write(a.path("home/long"), b"").expect("made");
    chown(a.path("home/long"), Some(USER), Some(GROUP)).expect("given");
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    let long = fs::File::options().write(true).custom_flags(flags).open(a.path("home/long")).expect("opened");
    for cut in [0, 4096] {
        long.set_len(1 << 30).expect("made longer");
        let tries = || {
            let written = long.write_at(&vec![1; MIB as usize], 0);
            // By the same thread, as the kernel would cut it.
            (written.is_err(), long.set_len(cut).is_ok())
        };
        assert_eq!(crate::lab::as_user(USER, tries), (true, true));
        assert_eq!(long.metadata().expect("there").len(), cut);
    }
}
