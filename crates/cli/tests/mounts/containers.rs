//! Nodes that do not see each other's processes, as in containers.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::lab::{BINARY, Ended, Lab};

/// A shell in namespaces of mounts and of process numbers of its own, and all that it starts. They end with it.
struct Container {
    init: String,
    outside: Child,
}

impl Container {
    /// Mounts the volume at `name` inside, which nobody outside sees.
    fn mount(lab: &Lab, name: &str) -> Self {
        std::fs::create_dir(lab.path(name)).expect("made");
        let script = format!("{BINARY} mount vol {name} -o lease=2 && touch {name}.ready && exec sleep 60");
        let outside = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script])
            .current_dir(&lab.dir)
            .stdin(Stdio::null())
            .spawn()
            .expect("unshare(1) is there");
        let since = Instant::now();
        while !lab.path(&format!("{name}.ready")).exists() {
            assert!(since.elapsed() < Duration::from_secs(20), "it is not mounted");
            std::thread::sleep(Duration::from_millis(20));
        }
        let children = format!("/proc/{0}/task/{0}/children", outside.id());
        let init = std::fs::read_to_string(children).expect("it has a child").trim().to_owned();
        Self { init, outside }
    }

    fn sh(&self, lab: &Lab, script: &str) -> Ended {
        let here = format!("--wdns={}", lab.dir.display());
        let mut arguments = vec!["-t", &self.init, "--mount", "--pid", &here];
        arguments.extend(["sh", "-euc", script]);
        lab.run("nsenter", &arguments)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // The first process of its namespace takes all others with it.
        let _ = self.outside.kill();
        let _ = self.outside.wait();
    }
}

/// Goal: nodes go on under a master that cannot see their processes, and lose nothing. Method: two nodes in namespaces of their own join a
/// master outside, which is killed while one of them has changes of its own; one of the two is master then, and both see everything.
#[test]
fn nodes_go_on_under_a_master_that_does_not_see_their_processes() {
    let Some(lab) = Lab::new() else { return };
    let master = lab.mount_with("m", "lease=2");
    let nodes = ["a", "b"].map(|name| (name, Container::mount(&lab, name)));
    for (name, node) in &nodes {
        node.sh(&lab, &format!("mkdir {name}/of-{name}; echo first > {name}/of-{name}/f")).expect_success();
    }
    kill_process(master.pid, Signal::KILL).expect("killed");
    for (name, node) in &nodes {
        node.sh(&lab, &format!("echo second > {name}/of-{name}/g; sync {name}/of-{name}/g")).expect_success();
    }
    for (name, node) in &nodes {
        let seen = node.sh(&lab, &format!("cat {name}/of-a/f {name}/of-a/g {name}/of-b/f {name}/of-b/g"));
        assert_eq!(seen.expect_success().out, "first\nsecond\nfirst\nsecond\n", "by {name}");
    }
    for (name, node) in &nodes {
        node.sh(&lab, &format!("umount {name}")).expect_success();
    }
    // umount(8) does not wait for the node to leave.
    let since = Instant::now();
    while lab.holdfast(&["fsck", "vol"]).code != 0 {
        assert!(since.elapsed() < Duration::from_secs(10), "it is not left, or damaged");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Goal: a directory of the volume is the upper one of an overlayfs, as container stores have it, and another node sees what was changed in it. Method: files of a lower directory are changed,
/// removed, moved and replaced; once more after it was mounted anew.
#[test]
fn an_overlay_has_its_upper_directory_here() {
    let Some(lab) = Lab::new() else { return };
    if !std::fs::read_to_string("/proc/filesystems").expect("read").contains("overlay") {
        eprintln!("skipped: this kernel has no overlayfs");
        return;
    }
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    lab.sh("mkdir -p a/lower/dir a/upper a/work m").expect_success();
    lab.sh("for name in changed removed moved dir/inside; do echo lower >a/lower/$name; done")
        .expect_success();
    let mount = "mount -t overlay overlay m -o lowerdir=a/lower,upperdir=a/upper,workdir=a/work";
    let changed = lab.sh(&format!(
        "{mount} && trap 'cd .. && umount m' EXIT && cd m && echo upper >>changed && rm removed && mv moved here && rm -r dir && mkdir dir && find . | sort"
    ));
    let expected = ".\n./changed\n./dir\n./here\n";
    assert_eq!(changed.expect_success().out, expected);
    let again = lab.sh(&format!("{mount} && trap 'cd .. && umount m' EXIT && cd m && find . | sort"));
    assert_eq!(again.expect_success().out, expected);
    let seen = lab.sh("cd b/upper && stat -c '%F %t:%T %a' removed moved && cat changed here && ls -A dir");
    let whiteout = "character special file 0:0 0\n";
    assert_eq!(seen.expect_success().out, format!("{whiteout}{whiteout}lower\nupper\nlower\n"));
    for mount in [b, a] {
        mount.unmount(&lab);
    }
    lab.sh(&format!("{BINARY} fsck --data vol")).expect_success();
}
