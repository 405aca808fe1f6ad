//! `holdfast mount`, and what the mount helpers share with it.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use volume::{Volume, sources};

use crate::args::MountArgs;
use crate::commands::umount;
use crate::failure::{Failure, with_causes};
use crate::launch;
use crate::logging::{self, Target};
use crate::options::{Caller, MountOptions, Unknown};

/// Mounts; in the background it returns when the mount is ready.
pub fn run(args: &MountArgs) -> Result<(), Failure> {
    if args.report_ready {
        launch::close_inherited();
    }
    let plan = Plan::new(&args.volume, &args.mountpoint, args.options.clone(), Unknown::Refuse)?;
    if args.report_ready {
        return launch::as_child(plan);
    }
    if !args.foreground {
        return plan.start();
    }
    logging::start(Target::Terminal);
    let at = plan.mountpoint.display().to_string();
    crate::backend::mount(plan, Box::new(move || log::info!("mounted at {at}")))
}

/// A mount that was checked as far as it can be without mounting.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Absolute path of the volume.
    pub volume: PathBuf,
    /// Absolute path of the mount point.
    pub mountpoint: PathBuf,
    /// What was asked for.
    pub options: MountOptions,
    /// The same in words, for the child process; without those nobody knows.
    pub option_lists: Vec<String>,
}

impl Plan {
    /// Checks options, volume and mount point. A mount there whose node is dead is unmounted.
    pub fn new(
        volume: &Path,
        mountpoint: &Path,
        lists: Vec<String>,
        unknown: Unknown,
    ) -> Result<Self, Failure> {
        let caller = if rustix::process::geteuid().is_root() { Caller::Root } else { Caller::User };
        let options = MountOptions::parse(&lists, caller, unknown).map_err(Failure::usage)?;
        let opened = Volume::open(volume).map_err(|error| Failure::mount(with_causes(&error)))?;
        clear_of_the_dead(mountpoint)?;
        let mountpoint = check_mountpoint(mountpoint)?;
        check_apart(opened.path(), &mountpoint)?;
        let is_known =
            |word: &&str| MountOptions::parse(&[(*word).to_owned()], caller, Unknown::Refuse).is_ok();
        let option_lists =
            lists.iter().map(|list| list.split(',').filter(is_known).collect::<Vec<_>>().join(","));
        let option_lists = option_lists.filter(|list| !list.is_empty()).collect();
        Ok(Self { volume: opened.path().to_owned(), mountpoint, options, option_lists })
    }

    /// Mounts in the background.
    pub fn start(&self) -> Result<(), Failure> {
        launch::in_background(self)
    }
}

/// Unmounts what dead nodes left at `given`: programs get nothing but ENOTCONN from it.
fn clear_of_the_dead(given: &Path) -> Result<(), Failure> {
    for _ in 0..STACKED_MAX {
        let mounted = sources::find(given).ok().flatten().filter(sources::MountEntry::is_holdfast);
        let Some(mount) = mounted.filter(|mount| is_dead(&mount.mountpoint)) else { break };
        umount::detach(&mount.mountpoint)?;
        let (at, source) = (given.display(), mount.source.display());
        eprintln!("holdfast: {at}: a mount of {source} was left there by a node that is dead: unmounted");
    }
    Ok(())
}

/// Whether the kernel knows that nobody serves this mount any more. Of one that hangs it does not.
///
/// A process of its own asks: what a node has been sent and does not answer keeps even a killed process from ending.
pub fn is_dead(mountpoint: &Path) -> bool {
    let mut command = std::process::Command::new(launch::own_path());
    command.arg0("holdfast").arg("ask-mount").arg("--").arg(mountpoint);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut asker) = command.spawn() else { return false };
    let asked = Instant::now();
    while asked.elapsed() < PATIENCE_ANSWER {
        match asker.try_wait() {
            Ok(Some(status)) => return status.code() == Some(NOBODY_SERVES),
            Ok(None) => std::thread::sleep(PAUSE_ANSWER),
            Err(_) => return false,
        }
    }
    // It may end later.
    _ = asker.kill();
    false
}

/// How the process that [`is_dead`] starts asks.
pub fn ask(mountpoint: &Path) -> ! {
    let is_served = rustix::fs::statfs(mountpoint).err() != Some(Errno::NOTCONN);
    std::process::exit(if is_served { 0 } else { NOBODY_SERVES })
}

/// Exit code of who asked.
const NOBODY_SERVES: i32 = 3;
/// More mounts than anybody stacks.
const STACKED_MAX: usize = 16;
/// Longest wait for a node that may be alive.
const PATIENCE_ANSWER: Duration = Duration::from_secs(2);
const PAUSE_ANSWER: Duration = Duration::from_millis(2);

fn check_mountpoint(given: &Path) -> Result<PathBuf, Failure> {
    let refused = |reason: String| Failure::mount(format!("mount point {}: {reason}", given.display()));
    // Looked up before it is resolved: a mount that hangs must not hang this.
    let mounted = sources::find(given).ok().flatten().filter(sources::MountEntry::is_holdfast);
    if let Some(mount) = mounted {
        return Err(refused(format!("busy: volume {} is mounted there", mount.source.display())));
    }
    let mountpoint = std::fs::canonicalize(given).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => refused("does not exist".to_owned()),
        _ => refused(error.to_string()),
    })?;
    let metadata = std::fs::metadata(&mountpoint).map_err(|error| refused(error.to_string()))?;
    if !metadata.is_dir() {
        return Err(refused("not a directory".to_owned()));
    }
    Ok(mountpoint)
}

/// A node that looked its own volume up through its own mount would wait for itself.
fn check_apart(volume: &Path, mountpoint: &Path) -> Result<(), Failure> {
    if mountpoint.starts_with(volume) {
        return Err(Failure::mount(format!("mount point {}: lies within the volume", mountpoint.display())));
    }
    if volume.starts_with(mountpoint) {
        return Err(Failure::mount(format!("mount point {}: would hide the volume", mountpoint.display())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_and_mount_point_must_not_contain_each_other() {
        for (volume, mountpoint, is_fine) in [
            ("/srv/v", "/mnt/a", true),
            ("/srv/v", "/srv/v2", true),
            ("/srv/v", "/srv/v", false),
            ("/srv/v", "/srv/v/run", false),
            ("/srv/v", "/srv", false),
        ] {
            let result = check_apart(Path::new(volume), Path::new(mountpoint));
            assert_eq!(result.is_ok(), is_fine, "{volume} at {mountpoint}");
        }
    }

    #[test]
    fn a_missing_mount_point_is_named() {
        let failure = check_mountpoint(Path::new("/nowhere/at/all")).expect_err("missing");
        assert_eq!(failure.to_string(), "mount point /nowhere/at/all: does not exist");
        assert_eq!(failure.code, 32);
    }
}
