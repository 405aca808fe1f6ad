//! `holdfast install`: the binary, links to it under the names that mount(8) and umount(8) look for, manual pages and completions.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::args::InstallArgs;
use crate::commands::manual;
use crate::failure::Failure;

/// Names by which mount(8) and umount(8) find us, for the types `holdfast` and `fuse.holdfast`.
const HELPERS: [&str; 4] =
    ["mount.holdfast", "mount.fuse.holdfast", "umount.holdfast", "umount.fuse.holdfast"];

/// Installs, or removes what was installed.
pub fn run(args: &InstallArgs) -> Result<(), Failure> {
    let binary = std::path::absolute(args.prefix.join("bin/holdfast")).map_err(Failure::unable)?;
    // All is looked at before anything is changed.
    for name in HELPERS {
        check_helper(&args.helper_dir.join(name))?;
    }
    let files = manual::files().map_err(Failure::unable)?;
    if args.remove {
        for (path, _) in files {
            remove(&args.prefix.join(path))?;
        }
        for name in HELPERS {
            remove(&args.helper_dir.join(name))?;
        }
        return remove(&binary);
    }
    install_binary(&binary)?;
    println!("{}", binary.display());
    create_directory(&args.helper_dir)?;
    for name in HELPERS {
        let helper = args.helper_dir.join(name);
        // Renamed over the old one, so that a mount meanwhile finds one or the other.
        let new = args.helper_dir.join(format!(".{name}.{}", std::process::id()));
        let _ = fs::remove_file(&new);
        symlink(&binary, &new)
            .and_then(|()| fs::rename(&new, &helper))
            .map_err(|error| Failure::unable(format!("{}: {error}", helper.display())))?;
        println!("{} -> {}", helper.display(), binary.display());
    }
    for (path, content) in files {
        install_file(&args.prefix.join(path), &content)?;
    }
    Ok(())
}

fn install_file(path: &Path, content: &[u8]) -> Result<(), Failure> {
    if let Some(dir) = path.parent() {
        create_directory(dir)?;
    }
    fs::write(path, content).map_err(|error| Failure::unable(format!("{}: {error}", path.display())))?;
    println!("{}", path.display());
    Ok(())
}

/// Refuses to touch a helper that is not one of our links.
fn check_helper(helper: &Path) -> Result<(), Failure> {
    match fs::read_link(helper) {
        Ok(target) if target.file_name().is_some_and(|name| name == "holdfast") => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(_) | Err(_) => Err(Failure::problem(format!("{}: not ours; remove it first", helper.display()))),
    }
}

fn install_binary(binary: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::unable(format!("{}: {error}", binary.display()));
    if let Some(dir) = binary.parent() {
        create_directory(dir)?;
    }
    let own = std::env::current_exe().map_err(failed)?;
    if fs::canonicalize(binary).is_ok_and(|installed| installed == own) {
        return Ok(());
    }
    // A running binary cannot be written to, but its name can be given to another.
    let new = binary.with_file_name(format!(".holdfast.{}", std::process::id()));
    let copied = fs::copy(&own, &new)
        .and_then(|_| fs::set_permissions(&new, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::File::open(&new)?.sync_all())
        .and_then(|()| fs::rename(&new, binary));
    if copied.is_err() {
        let _ = fs::remove_file(&new);
    }
    copied.map_err(failed)
}

fn create_directory(dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(|error| Failure::unable(format!("{}: {error}", dir.display())))
}

fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Ok(()) => println!("removed {}", path.display()),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(Failure::unable(format!("{}: {error}", path.display()))),
    }
    Ok(())
}
