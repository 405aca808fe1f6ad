//! `cargo xtask apps`: real programs and the suites of others on two mounts of one volume, one result line each.
//!
//! A program is a script in `scripts/apps`, run by `sh -eu` with the mounts `$A` and `$B` and a local directory `$WORK`. Its
//! line `# packages:` says which packages of Debian it needs. Its last line of output is its result.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

/// Runs all, or those named. `words` are the arguments after `apps`.
pub fn run(words: &[&str]) -> Result<(), String> {
    let (holdfast, names) = match words {
        ["--holdfast", path, names @ ..] => {
            (fs::canonicalize(path).map_err(|error| format!("{path}: {error}"))?, names)
        }
        names => (crate::long::release_binary()?, names),
    };
    let scripts = scripts()?;
    let known: Vec<&str> = scripts.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        return Err(format!("no program {unknown}; there are {}", known.join(", ")));
    }
    let mut failed = 0;
    for (script, name) in scripts.iter().zip(&known) {
        if !names.is_empty() && !names.contains(name) {
            continue;
        }
        let began = Instant::now();
        let result = App { script, holdfast: &holdfast, dir: place(name) }.run();
        failed += u32::from(result.is_err());
        let line = match &result {
            Ok(line) => format!("passed  {line}"),
            Err(line) => format!("FAILED  {line}"),
        };
        println!("{name:<10} {:>5.0} s  {line}", began.elapsed().as_secs_f64());
    }
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} failed")),
    }
}

fn scripts() -> Result<Vec<PathBuf>, String> {
    let dir = xtask::root().join("scripts/apps");
    let entries = fs::read_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut scripts: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    scripts.sort();
    Ok(scripts)
}

fn place(name: &str) -> PathBuf {
    let base = std::env::var_os("HOLDFAST_TRY_DIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    base.join(format!("holdfast-apps-{}-{name}", std::process::id()))
}

/// One program, in a directory of its own that is gone afterwards.
struct App<'a> {
    script: &'a Path,
    holdfast: &'a Path,
    dir: PathBuf,
}

impl App<'_> {
    fn run(&self) -> Result<String, String> {
        self.install_packages()?;
        for name in ["a", "b", "work"] {
            fs::create_dir_all(self.dir.join(name)).map_err(|error| error.to_string())?;
        }
        self.holdfast(&["format", "vol"])?;
        for name in ["a", "b"] {
            self.holdfast(&["mount", "vol", name])?;
        }
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", "900", "sh", "-eu"]).arg(self.script);
        for (variable, name) in [("A", "a"), ("B", "b"), ("WORK", "work")] {
            command.env(variable, self.dir.join(name));
        }
        let told = finish(command.current_dir(self.dir.join("work")));
        let unmounted: Vec<_> = ["b", "a"].iter().map(|name| self.holdfast(&["umount", name])).collect();
        let checked = self.holdfast(&["fsck", "--data", "vol"]);
        let told = told?;
        unmounted.into_iter().collect::<Result<Vec<_>, _>>()?;
        checked.map_err(|error| format!("the volume is damaged: {error}"))?;
        Ok(told.lines().last().unwrap_or_default().to_owned())
    }

    fn install_packages(&self) -> Result<(), String> {
        let script = fs::read_to_string(self.script).map_err(|error| error.to_string())?;
        let Some(packages) = script.lines().find_map(|line| line.strip_prefix("# packages: ")) else {
            return Ok(());
        };
        let is_there = |package: &&str| {
            let known = Command::new("dpkg").args(["--status", package]).output();
            known.is_ok_and(|known| known.status.success())
        };
        let missing: Vec<&str> = packages.split_whitespace().filter(|package| !is_there(package)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut command = Command::new("apt-get");
        command.args(["install", "-y", "-q", "--no-install-recommends"]).args(missing);
        finish(command.env("DEBIAN_FRONTEND", "noninteractive")).map(drop)
    }

    fn holdfast(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new("timeout");
        command.arg("300").arg(self.holdfast).args(words);
        finish(command.current_dir(&self.dir))
    }
}

impl Drop for App<'_> {
    fn drop(&mut self) {
        for name in ["a", "b"] {
            // Not mounted any more, if all went well.
            _ = Command::new("umount").arg("-l").arg(self.dir.join(name)).output();
        }
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("{} is left behind: {error}", self.dir.display());
        }
    }
}

/// What it printed, or what it said last when it failed.
fn finish(command: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } =
        command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    if status.success() {
        return Ok(stdout.trim_end().to_owned());
    }
    let said: Vec<&str> = stdout.lines().chain(stderr.lines()).filter(|line| !line.is_empty()).collect();
    Err(format!("{status}: {}", said[said.len().saturating_sub(5)..].join(" / ")))
}
