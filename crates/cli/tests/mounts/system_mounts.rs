//! Mounts by mount(8) and fstab through the installed helpers, and what ends them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::lab::{BINARY, Lab, Partner};

/// Helpers where mount(8) looks for them, in a copy of that directory that nobody else sees.
const INSTALLED: &str = r#"
sbin=$(readlink -f /sbin)
mkdir .apart/real
mount --bind "$sbin" .apart/real
mount -t tmpfs sbin "$sbin"
cp -as "$PWD/.apart/real/." "$sbin/"
"$HOLDFAST" install --prefix "$PWD/usr" > /dev/null
mkdir a b
# Whether nobody serves the volume and all of $1 files are there for a fresh mount.
flushed() {
    "$HOLDFAST" status vol --json > status.json
    grep -q '"mounted": false' status.json && grep -q '"master_pid": null' status.json || { cat status.json; exit 9; }
    "$HOLDFAST" mount vol b
    [ "$(ls b | wc -l)" = "$1" ] || { ls b | wc -l; exit 9; }
    [ "$(cat b/f$1)" = "$1" ]
    "$HOLDFAST" umount b
}
write() { seq "$1" "$2" | while read n; do echo "$n" > "a/f$n"; done; }
"#;

#[test]
fn mount_by_type_and_umount_wait_for_what_they_promise() {
    let Some(lab) = Lab::new() else { return };
    let told = lab.sh_apart(&format!("{INSTALLED}{BY_TYPE_SESSION}")).expect_success().out;
    assert_eq!(told, "fuse.holdfast rw relatime\nfuse.holdfast ro noatime\n32 nothing changes\nuhelper\n");
}

const BY_TYPE_SESSION: &str = r#"
shown() { awk -v at="$PWD/$1" '$2 == at { split($4, o, ","); print $3, o[1], o[2] }' /proc/mounts; }
mount -t holdfast "$PWD/vol" "$PWD/a"
shown a
mount -t fuse.holdfast "$PWD/vol" "$PWD/b" -o ro,noatime,_netdev
shown b
write 1 1000
[ "$(ls b | wc -l)" = 1000 ]
mount -t holdfast "$PWD/vol" "$PWD/a" -o nobarrier 2> said || grep -q 'unknown mount option "nobarrier"' said
mount -t holdfast "$PWD/vol" "$PWD/a" 2> said || echo "$? nothing changes"
grep -q "busy: volume $PWD/vol is mounted there" said
grep -o uhelper /run/mount/utab | head -n 1
umount b
umount a
! grep -q "$PWD/" /run/mount/utab
flushed 1000
mount -t holdfast "$PWD/vol" "$PWD/a"
write 1001 2000
umount "$PWD/a"
flushed 2000
# By force while a file is open there: gone, with all that was stored.
mount -t holdfast "$PWD/vol" "$PWD/a"
write 2001 3000
exec 8>> a/f2001
umount -f "$PWD/a" 2> said
grep -q 'cut off while in use' said
! mountpoint -q a
exec 8>&-
flushed 3000
"#;

#[test]
fn lines_of_fstab_are_mounted() {
    let Some(lab) = Lab::new() else { return };
    let told = lab.sh_apart(&format!("{INSTALLED}{FSTAB_SESSION}")).expect_success().out;
    assert_eq!(told, "rw\nro\nuser nosuid nodev noexec\n");
}

const FSTAB_SESSION: &str = r#"
cat > fstab <<END
$PWD/vol $PWD/a holdfast defaults,_netdev,nofail,x-systemd.automount,commit=5 0 0
$PWD/vol $PWD/b fuse.holdfast noauto,ro 0 0
$PWD/u/vol $PWD/u/a holdfast noauto,user 0 0
$PWD/gone $PWD/b holdfast noauto 0 0
END
at() { awk -v at="$PWD/$1" '$2 == at { split($4, o, ","); print o[1] }' /proc/mounts; }
mount --all --fstab fstab
at a
[ -z "$(at b)" ]
write 1 1000
umount a
flushed 1000
[ -f /etc/fstab ] || : > /etc/fstab
mount --bind fstab /etc/fstab
mount b
at b
umount b
# A user's line, mounted and unmounted by the user.
as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
mkdir u
chown 65534:65534 u
as_user "$PWD/usr/bin/holdfast" format u/vol > /dev/null
as_user mkdir u/a
as_user mount u/a
awk -v at="$PWD/u/a" '$2 == at {
    n = split($4, options, ","); line = "user"
    for (i = 1; i <= n; i++) if (options[i] ~ /^(nosuid|nodev|noexec)$/) line = line " " options[i]
    print line
}' /proc/mounts
as_user sh -c 'echo kept > u/a/f'
as_user umount u/a
as_user "$PWD/usr/bin/holdfast" mount u/vol u/a
[ "$(as_user cat u/a/f)" = kept ]
as_user "$PWD/usr/bin/holdfast" umount u/a
"#;

/// SIGTERM unmounts and flushes, also while the mount is in use.
#[test]
fn a_node_that_is_told_to_end_flushes_first() {
    let Some(lab) = Lab::new() else { return };
    for (round, signal) in [Signal::TERM, Signal::INT, Signal::HUP].into_iter().enumerate() {
        let a = lab.mount_with("a", "commit=300");
        fs::create_dir(a.path(&format!("d{round}"))).expect("made");
        for n in 0..300 {
            fs::write(a.path(&format!("d{round}/{n}")), format!("{n}")).expect("written");
        }
        let large = vec![round as u8; 3 << 20];
        fs::write(a.path(&format!("d{round}/large")), &large).expect("written");
        let busy = fs::File::open(a.path(&format!("d{round}/7"))).expect("opened");
        a.signal(signal);
        assert!(a.wait_for_end(Duration::from_secs(20)), "it ends at {signal:?}");
        drop(busy);
        let b = lab.mount("b");
        assert_eq!(fs::read_dir(b.path(&format!("d{round}"))).expect("listed").count(), 301);
        assert_eq!(fs::read(b.path(&format!("d{round}/299"))).expect("read"), b"299");
        assert!(fs::read(b.path(&format!("d{round}/large"))).expect("read") == large);
        b.unmount(&lab);
    }
}

/// Goal: who ends a node loses nothing of what was stored before, msync or not, wherever the mount is by then. Method: a process that
/// maps a file and works in the mount goes on; the mount is where it was, out of the tree, covered, or moved when the signal comes.
#[test]
fn a_signal_ends_a_mount_wherever_it_is_with_all_that_was_stored() {
    let Some(lab) = Lab::new() else { return };
    let _space = Space::new(&lab);
    for (round, (displace, restore)) in DISPLACED.into_iter().enumerate() {
        let a = lab.mount_with("space/a", "commit=300");
        let mut user = Partner::start(&a.root);
        let name = format!("f{round}");
        user.must("create", &[json!(name), json!("-".repeat(20_000))]);
        user.must("map", &[json!(name), json!(20_000)]);
        for page in 0..4 {
            user.must("store", &[json!(name), json!(page * 4_096 + 7), json!("stored")]);
        }
        lab.sh(displace).expect_success();
        a.signal(Signal::TERM);
        assert!(a.wait_for_end(Duration::from_secs(20)), "it ends after {displace:?}");
        assert!(user.ask("stat", &[json!(name)]).is_err(), "its user gets errors after {displace:?}");
        drop(user);
        lab.sh(restore).expect_success();
        let b = lab.mount("b");
        let content = fs::read(b.path(&name)).expect("read");
        assert_eq!(content.len(), 20_000);
        for page in 0..4 {
            assert_eq!(&content[page * 4_096 + 7..][..6], b"stored", "page {page} after {displace:?}");
        }
        b.unmount(&lab);
    }
}

/// A file system of its own, at `space`, in which mounts may be moved; gone with the test.
struct Space(PathBuf);

impl Space {
    fn new(lab: &Lab) -> Self {
        lab.sh("mkdir space && mount -t tmpfs space space && mount --make-private space").expect_success();
        Self(lab.path("space"))
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// What happens to a mount before its node is told to end, and what is to be cleared away afterwards.
const DISPLACED: [(&str, &str); 4] = [
    ("", ""),
    ("umount -l space/a", ""),
    ("mount -t tmpfs above space/a", "umount space/a && umount -l space/a"),
    ("mkdir space/c && mount --move space/a space/c", "umount -l space/c"),
];

#[test]
fn a_second_signal_ends_the_waiting_for_users() {
    let Some(lab) = Lab::without_volume() else { return };
    // In memory: it is to end before its patience does, and a disk may take longer for the flush.
    let _space = Space::new(&lab);
    lab.holdfast(&["format", "space/vol"]).expect_success();
    std::os::unix::fs::symlink("space/vol", lab.path("vol")).expect("linked");
    let a = lab.mount("a");
    let mut user = Partner::start(&a.root);
    user.must("list", &[json!(".")]);
    a.signal(Signal::TERM);
    assert!(!a.wait_for_end(Duration::from_millis(300)), "it waits for its user");
    a.signal(Signal::TERM);
    assert!(a.wait_for_end(Duration::from_secs(3)), "it waits no more");
    drop(user);
}

#[test]
fn a_lock_of_who_mounts_is_not_kept_by_the_node() {
    let Some(lab) = Lab::new() else { return };
    let script = format!(
        "mkdir a; exec 9> lock; flock 9; {BINARY} mount vol a; exec 9>&-; flock -n lock true && echo free; {BINARY} umount a"
    );
    assert_eq!(lab.sh(&script).expect_success().out, "free\n");
}

#[test]
fn a_signal_ends_a_mount_that_waits_for_its_master() {
    let Some(lab) = Lab::new() else { return };
    let master = lab.mount("a");
    fs::create_dir(lab.path("b")).expect("made");
    master.signal(Signal::STOP);
    let mut waits = Command::new(BINARY)
        .args(["mount", "-f", "vol", "b"])
        .current_dir(&lab.dir)
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    std::thread::sleep(Duration::from_secs(1));
    assert!(waits.try_wait().expect("our child").is_none(), "it waits for the master");
    kill_process(Pid::from_child(&waits), Signal::INT).expect("it runs");
    let deadline = Instant::now() + Duration::from_secs(4);
    while waits.try_wait().expect("our child").is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let has_ended = waits.try_wait().expect("our child").is_some();
    if !has_ended {
        _ = waits.kill();
    }
    master.signal(Signal::CONT);
    let ended = waits.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(has_ended && ended.status.code() == Some(32), "{said}");
    assert!(said.contains("called off by a signal"), "{said}");
    lab.sh("! grep -q \"$PWD/b \" /proc/mounts").expect_success();
    master.unmount(&lab);
}

#[test]
fn a_node_is_not_held_to_what_the_shell_may_use_that_it_was_mounted_from() {
    let Some(lab) = Lab::new() else { return };
    lab.sh_apart(LIMITED_SESSION).expect_success();
}

/// Half a MiB of a file and some seconds of a processor, which may be raised; then 1 GiB, which perhaps may not: what cannot be
/// mounted leaves nothing.
const LIMITED_SESSION: &str = r#"
mkdir a
(ulimit -S -f 1024; ulimit -S -t 10; "$HOLDFAST" mount vol a)
head -c 100M /dev/zero > a/f
pid=$("$HOLDFAST" status vol --json | sed -n 's/.*"master_pid": \([0-9]*\).*/\1/p')
grep -E 'Max (cpu time|file size) +unlimited' "/proc/$pid/limits" | wc -l | grep -qx 2
"$HOLDFAST" umount a
"$HOLDFAST" mount vol a
[ "$(stat -c %s a/f)" = 104857600 ]
"$HOLDFAST" umount a
(ulimit -f 2097152; "$HOLDFAST" mount vol a 2> said) && "$HOLDFAST" umount a || grep 'File too large' said
! grep " $PWD/a " /proc/mounts
"#;

#[test]
fn a_node_has_the_c_library_keep_what_it_frees_at_hand() {
    let Some(lab) = Lab::new() else { return };
    lab.sh_apart(TUNED_SESSION).expect_success();
}

const TUNED_SESSION: &str = r#"
mkdir a
GLIBC_TUNABLES=glibc.malloc.hugetlb=0 "$HOLDFAST" mount vol a
pid=$("$HOLDFAST" status vol --json | sed -n 's/.*"master_pid": \([0-9]*\).*/\1/p')
tr '\0' '\n' < "/proc/$pid/environ" > environment
# The library may have put an end to each of the two.
grep -q '^GLIBC_TUNABLES=glibc.malloc.hugetlb=0' environment && grep -q 'glibc.malloc.tcache_count=1000$' environment
"$HOLDFAST" umount a
"#;

#[test]
fn a_volume_may_have_any_name() {
    let Some(lab) = Lab::without_volume() else { return };
    lab.sh_apart(NAMED_SESSION).expect_success();
}

/// A name in Latin-1, with what mount tables escape.
const NAMED_SESSION: &str = r#"
vol=$(printf 'd\351p\303\264t, \\044')
mkdir a
"$HOLDFAST" format "$vol"
"$HOLDFAST" mount "$vol" a
echo 1 > a/f
"$HOLDFAST" stat a > /dev/null
"$HOLDFAST" umount a
"$HOLDFAST" mount "$vol" a
[ "$(cat a/f)" = 1 ]
"$HOLDFAST" umount a
"#;
