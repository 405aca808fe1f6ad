//! `cargo xtask try`: the main job on a real tree, with figures beside the local file system's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What stands in the table for one piece of work.
struct Figure {
    work: &'static str,
    local: Option<f64>,
    here: f64,
    /// What the system that this work was first measured on lost by being clustered.
    elsewhere: &'static str,
}

/// The run: everything it made is removed when it is dropped.
struct Trial {
    holdfast: PathBuf,
    dir: PathBuf,
    mounts: Vec<(PathBuf, Child)>,
    figures: Vec<Figure>,
}

/// Runs the trial. `words` are the arguments after `try`.
pub fn run(words: &[&str]) -> Result<(), String> {
    let holdfast = match words {
        ["--holdfast", path, ..] => PathBuf::from(path),
        _ => return Err("usage: cargo xtask try --holdfast BINARY [--tree DIRECTORY]".to_owned()),
    };
    let tree = words.iter().position(|w| *w == "--tree").and_then(|at| words.get(at + 1)).map(PathBuf::from);
    let base = std::env::var_os("HOLDFAST_TRY_DIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    let dir = base.join(format!("holdfast-try-{}", std::process::id()));
    for part in ["local", "a", "b"] {
        fs::create_dir_all(dir.join(part)).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let mut trial = Trial { holdfast, dir, mounts: Vec::new(), figures: Vec::new() };
    trial.work(tree)
}

impl Trial {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn work(&mut self, tree: Option<PathBuf>) -> Result<(), String> {
        let tree = match tree {
            Some(tree) => tree,
            None => source_tree()?,
        };
        say("packing", &tree.display().to_string());
        let tar = self.path("tree.tar");
        shell(&format!("tar cf '{}' -C '{}' .", tar.display(), tree.display()))?;
        let count = shell(&format!("tar tf '{}' | wc -l", tar.display()))?;
        say("tree", &format!("{} entries", count.trim()));

        say("format", "");
        let vol = self.path("vol");
        fs::create_dir(&vol).map_err(|e| e.to_string())?;
        self.command(&["format", &vol.to_string_lossy()])?;
        for name in ["a", "b"] {
            say("mount", name);
            self.mount(name)?;
        }
        let (a, b, local) = (self.path("a"), self.path("b"), self.path("local"));

        self.compare("unpack, second node mounted", &local, &a, "GFS 1.20", |root| untar(&tar, root))?;
        self.compare("du", &local, &a, "GFS 1.14", |root| shell(&format!("du -s '{}'", root.display())))?;
        self.compare("du again", &local, &a, "GFS 33", |root| shell(&format!("du -s '{}'", root.display())))?;
        let before = self.counters("b")?;
        let find = |root: &Path| shell(&format!("find '{}' -ls | wc -l", root.display()));
        self.compare("find -ls, first time from the other node", &local, &b, "Veritas 87", find)?;
        let after = self.counters("b")?;
        self.compare("find -ls, again", &local, &b, "Veritas 59", find)?;
        self.compare("find -ls, back on the first node", &local, &a, "Veritas 0.9", find)?;

        say("checksums", "of every file, both nodes");
        let sums = |root: &Path| {
            shell(&format!(
                "cd '{}' && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum",
                root.display()
            ))
        };
        let expected = sums(&local)?;
        for root in [&a, &b] {
            if sums(root)? != expected {
                return Err(format!("the files under {} are not those of the tree", root.display()));
            }
        }
        say("checksums", "all equal");

        let counters_of_a = self.command(&["stat", &a.to_string_lossy()])?;
        say("kill -9", "the master (node a)");
        self.kill("a")?;
        let started = Instant::now();
        fs::write(b.join("after-the-kill"), b"the other node carries on\n")
            .map_err(|e| format!("after the kill: {e}"))?;
        let back = started.elapsed();
        if sums_without(&b, "after-the-kill")? != expected {
            return Err("files changed by the death of the master".to_owned());
        }
        say("service", &format!("back after {:.2} s, every file as before", back.as_secs_f64()));
        self.compare("rm -r", &local, &b, "", |root| {
            shell(&format!("find '{}' -mindepth 1 -delete", root.display()))
        })?;

        self.report(delta(&before, &after), count.trim(), &counters_of_a)?;
        say("umount", "");
        self.unmount_all();
        Ok(())
    }

    fn report(&self, walk: f64, entries: &str, counters_of_a: &str) -> Result<(), String> {
        println!("\n{:<44} {:>9} {:>9} {:>7}   loss elsewhere", "work", "local s", "here s", "ratio");
        for figure in &self.figures {
            let local = figure.local.map_or(String::new(), |s| format!("{s:.2}"));
            let ratio = figure.local.map_or(String::new(), |s| format!("{:.2}", figure.here / s.max(0.001)));
            println!("{:<44} {local:>9} {:>9.2} {ratio:>7}   {}", figure.work, figure.here, figure.elsewhere);
        }
        println!("\nmessages of the walk from the other node: {walk} for {entries} entries");
        println!("\ncounters of node a, before it was killed:");
        print!("{counters_of_a}");
        println!("\ncounters of node b:");
        print!("{}", self.command(&["stat", &self.path("b").to_string_lossy()])?);
        Ok(())
    }

    /// Does a piece of work on the local file system and on a mount, and notes both times.
    fn compare(
        &mut self,
        work: &'static str,
        local: &Path,
        mount: &Path,
        elsewhere: &'static str,
        run: impl Fn(&Path) -> Result<String, String>,
    ) -> Result<(), String> {
        say(work, "");
        let started = Instant::now();
        let expected = run(local)?;
        let local = started.elapsed().as_secs_f64();
        let started = Instant::now();
        let found = run(mount)?;
        let here = started.elapsed().as_secs_f64();
        if work.starts_with("find") && expected.trim() != found.trim() {
            let extra =
                if self.path("a").join("after-the-kill").exists() { " (with after-the-kill)" } else { "" };
            return Err(format!("{work}: {} lines, {} expected{extra}", found.trim(), expected.trim()));
        }
        self.figures.push(Figure { work, local: Some(local), here, elsewhere });
        Ok(())
    }

    fn command(&self, words: &[&str]) -> Result<String, String> {
        let output = Command::new(&self.holdfast).args(words).output().map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(format!("holdfast {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Mounts in the foreground of a process of ours, so that it can be killed by its number.
    fn mount(&mut self, name: &str) -> Result<(), String> {
        let mountpoint = self.path(name);
        let child = Command::new(&self.holdfast)
            .args(["mount", "-f"])
            .arg(self.path("vol"))
            .arg(&mountpoint)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| e.to_string())?;
        self.mounts.push((mountpoint.clone(), child));
        for _ in 0..200 {
            if is_mounted(&mountpoint) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(format!("{} was not mounted within 10 s", mountpoint.display()))
    }

    fn kill(&mut self, name: &str) -> Result<(), String> {
        let mountpoint = self.path(name);
        let at = self.mounts.iter().position(|(m, _)| *m == mountpoint).ok_or("not mounted")?;
        let (_, mut child) = self.mounts.remove(at);
        child.kill().map_err(|e| e.to_string())?;
        child.wait().map_err(|e| e.to_string())?;
        lazy_unmount(&mountpoint);
        Ok(())
    }

    fn counters(&self, name: &str) -> Result<(f64, f64), String> {
        let text = self.command(&["stat", "--json", &self.path(name).to_string_lossy()])?;
        let number = |key: &str| -> f64 {
            let at = text.find(&format!("\"{key}\"")).map(|at| at + key.len() + 2);
            at.and_then(|at| text[at..].trim_start_matches([':', ' ']).split([',', '}', '\n']).next())
                .and_then(|n| n.trim().parse().ok())
                .unwrap_or(0.0)
        };
        Ok((number("messages_sent_total"), number("messages_received_total")))
    }

    fn unmount_all(&mut self) {
        for (mountpoint, mut child) in self.mounts.drain(..).rev() {
            let unmounted = Command::new(&self.holdfast).arg("umount").arg(&mountpoint).output();
            if !unmounted.is_ok_and(|o| o.status.success()) {
                lazy_unmount(&mountpoint);
                let _ = child.kill();
            }
            let _ = child.wait();
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.unmount_all();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn say(what: &str, detail: &str) {
    println!("== {what} {detail}");
}

fn delta(before: &(f64, f64), after: &(f64, f64)) -> f64 {
    after.0 - before.0 + after.1 - before.1
}

fn shell(line: &str) -> Result<String, String> {
    let output = Command::new("sh").args(["-c", line]).output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn untar(tar: &Path, root: &Path) -> Result<String, String> {
    shell(&format!("tar xf '{}' -C '{}'", tar.display(), root.display()))
}

fn sums_without(root: &Path, name: &str) -> Result<String, String> {
    shell(&format!(
        "cd '{}' && find . -type f ! -name '{name}' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum",
        root.display()
    ))
}

fn is_mounted(mountpoint: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == mountpoint.to_str())
}

fn lazy_unmount(mountpoint: &Path) {
    let by_umount = Command::new("umount").arg("-l").arg(mountpoint).stderr(Stdio::null()).status();
    if !by_umount.is_ok_and(|s| s.success()) {
        let _ = Command::new("fusermount3").arg("-uz").arg(mountpoint).stderr(Stdio::null()).status();
    }
}

/// A source tree of some size: Debian's Go sources, else the Rust toolchain's documents, else `/usr`'s share.
fn source_tree() -> Result<PathBuf, String> {
    for known in ["/usr/share/go-1.19", "/usr/lib/go-1.19/src"] {
        if Path::new(known).join("src/cmd").is_dir() || Path::new(known).join("cmd").is_dir() {
            return Ok(PathBuf::from(known));
        }
    }
    Err("no source tree: install golang-1.19-src, or name one with --tree DIRECTORY".to_owned())
}
