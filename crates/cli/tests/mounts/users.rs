//! Mounts of an ordinary user, through fusermount3.

use crate::lab::Lab;

/// As `nobody`, with the installed binary in the path.
const AS_NOBODY: &str = r#"
"$HOLDFAST" install --prefix usr --helper-dir sbin > /dev/null
as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups env "PATH=$PWD/usr/bin:$PATH" "$@"; }
mkdir u
chown 65534:65534 u
as_user mkdir u/a u/b
as_user holdfast format u/vol > /dev/null
[ -f /etc/fuse.conf ] || : > /etc/fuse.conf
grep -v '^user_allow_other' /etc/fuse.conf > .apart/fuse.conf || true
mount --bind .apart/fuse.conf /etc/fuse.conf
"#;

#[test]
fn a_user_mounts_uses_and_unmounts_a_volume_of_his_own() {
    let Some(lab) = Lab::without_volume() else { return };
    let script = format!("{AS_NOBODY}{USER_SESSION}");
    let told = lab.sh_apart(&script).expect_success().out;
    let expected =
        "fuse.holdfast nosuid nodev user_id=65534\nhello\nroot is refused\n1001 files\n1001 files\n";
    assert_eq!(told, expected);
}

const USER_SESSION: &str = r#"
as_user holdfast mount u/vol u/a
as_user holdfast mount u/vol u/b
awk -v at="$PWD/u/a" -v from="$PWD/u/vol" '$1 == from && $2 == at {
    n = split($4, options, ","); line = $3
    for (i = 1; i <= n; i++) if (options[i] ~ /^(nosuid|nodev|user_id=.*)$/) line = line " " options[i]
    print line
}' /proc/mounts
as_user sh -c 'echo hello > u/a/f; cat u/b/f; seq 1000 | while read n; do echo $n > u/a/x$n; done'
! ls u/a > /dev/null 2>&1 && echo root is refused
as_user fusermount3 -u u/b
as_user fusermount3 -u u/a
as_user holdfast mount u/vol u/b
echo "$(as_user ls u/b | wc -l) files"
as_user umount u/b
! grep -q "$PWD/u/" /proc/mounts
as_user holdfast mount u/vol u/a
echo "$(as_user ls u/a | wc -l) files"
as_user holdfast umount u/a
[ "$(as_user holdfast status u/vol --json | grep -c '"mounted": false')" = 1 ]
"#;

#[test]
fn allow_other_is_granted_as_fuse_conf_says() {
    let Some(lab) = Lab::without_volume() else { return };
    let script = format!("{AS_NOBODY}{ALLOW_OTHER_SESSION}");
    let ended = lab.sh_apart(&script).expect_success();
    assert_eq!(ended.out, "32\n1\n32\nallow_other\nothers read it\n");
    let said: Vec<&str> = ended.err.lines().collect();
    assert_eq!(said.len(), 3, "{}", ended.err);
    assert!(said[0].contains("allow_other only allowed if 'user_allow_other' is set"), "{}", said[0]);
    assert!(said[1].contains("mount option \"suid\" is for root only"), "{}", said[1]);
    assert!(said[2].contains("no right to open /dev/fuse"), "{}", said[2]);
}

const ALLOW_OTHER_SESSION: &str = r#"
as_user holdfast mount u/vol u/a -o allow_other || echo $?
as_user holdfast mount u/vol u/a -o suid || echo $?
chmod 600 .apart/fuse
as_user holdfast mount u/vol u/a || echo $?
chmod 666 .apart/fuse
! grep -q "$PWD/u/" /proc/mounts
echo user_allow_other >> .apart/fuse.conf
as_user holdfast mount u/vol u/a -o allow_other
grep " $PWD/u/a " /proc/mounts | grep -o allow_other
as_user sh -c 'echo others read it > u/a/f'
cat u/a/f
as_user holdfast umount u/a
"#;
