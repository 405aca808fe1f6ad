//! `holdfast quota`.

mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value as Json;
use volume::Volume;

use crate::args::{QuotaArgs, QuotaCommand, QuotaReportArgs, QuotaSetArgs};
use crate::backend::{self, Attempt, Mastery, past_election};
use crate::commands::scrub::volume_of;
use crate::failure::{Failure, with_causes};
use crate::units::show_size;

/// Shows what accounts use, sets limits, or makes a directory a tree of its own.
pub fn run(args: &QuotaArgs) -> Result<(), Failure> {
    match &args.command {
        QuotaCommand::Report(args) => report(args),
        QuotaCommand::Set(args) => set(args),
        QuotaCommand::Tree(args) => tree::run(args),
    }
}

/// An account as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    User,
    Group,
    Tree,
}

fn report(args: &QuotaReportArgs) -> Result<(), Failure> {
    let document = past_election(|| {
        let (volume, socket) = master_of(&args.volume)?;
        Ok(asked(backend::ask(&volume, &socket, "quota")).map_or_else(Attempt::Early, Attempt::Done))
    })?;
    if args.json {
        println!("{document:#}");
        return Ok(());
    }
    println!(
        "{:<24} {:>12} {:>12} {:>12} {:>10} {:>10} {:>10}",
        "ACCOUNT", "USED", "SOFT", "HARD", "INODES", "SOFT", "HARD"
    );
    let accounts = document["accounts"].as_array().into_iter().flatten();
    accounts.for_each(print_account);
    Ok(())
}

fn print_account(account: &Json) {
    let number = |value: &Json| value.as_u64().unwrap_or(0);
    let size = |value: &Json| if number(value) == 0 { "-".to_owned() } else { show_size(number(value)) };
    let count = |value: &Json| if number(value) == 0 { "-".to_owned() } else { number(value).to_string() };
    let (bytes, inodes) = (&account["limits"]["bytes"], &account["limits"]["inodes"]);
    println!(
        "{:<24} {:>12} {:>12} {:>12} {:>10} {:>10} {:>10}{}",
        shown(account["account"].as_str().unwrap_or("?")),
        show_size(number(&account["bytes"])),
        size(&bytes["soft"]),
        size(&bytes["hard"]),
        number(&account["inodes"]),
        count(&inodes["soft"]),
        count(&inodes["hard"]),
        if [bytes, inodes].iter().any(|limit| number(&limit["exceeded_since_unix_seconds"]) > 0) {
            "  soft limit exceeded"
        } else {
            ""
        }
    );
}

/// An account by its name, where it has one.
fn shown(account: &str) -> String {
    let Some((kind, id)) = account.split_once(':') else { return account.to_owned() };
    let database = match kind {
        "user" => "passwd",
        "group" => "group",
        _ => return account.to_owned(),
    };
    name_in(database, id, 0).map_or_else(|| account.to_owned(), |name| format!("{kind}:{name}"))
}

fn set(args: &QuotaSetArgs) -> Result<(), Failure> {
    let (volume, socket) = master_of(&args.volume)?;
    let account = account_of(&args.account, volume.path())?;
    let limits = [args.bytes, args.soft_bytes, args.inodes, args.soft_inodes];
    if args.grace.is_none() && limits.iter().all(Option::is_none) {
        return Err(Failure::unable("nothing to set: a limit or --grace is needed"));
    }
    if args.grace.is_some_and(|grace| grace.as_secs() == 0) {
        return Err(Failure::unable("--grace: a second at least"));
    }
    // What is not given stays as it is when the master sets the rest.
    let word = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let grace = word(args.grace.map(|grace| grace.as_secs()));
    let limit = |hard, soft| format!("{} {} {grace}", word(hard), word(soft));
    let bytes = limit(args.bytes, args.soft_bytes);
    let inodes = limit(args.inodes, args.soft_inodes);
    asked(backend::ask(&volume, &socket, &format!("quota-set {account} {bytes} {inodes}")))?;
    Ok(())
}

/// `user:NAME`, `group:NAME`, `tree:DIR`, or a number instead of a name.
fn account_of(text: &str, volume: &Path) -> Result<String, Failure> {
    let unknown = || Failure::unable(format!("{text:?} is none of user:NAME, group:NAME, tree:DIR"));
    let (kind, name) = text.split_once(':').ok_or_else(unknown)?;
    // What looks names up takes these for numbers.
    if name.starts_with(['+', '-']) {
        return Err(unknown());
    }
    let (kind, label) = match kind {
        "user" => (Kind::User, "user"),
        "group" => (Kind::Group, "group"),
        "tree" => (Kind::Tree, "tree"),
        _ => return Err(unknown()),
    };
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        // A larger one is nobody's: what looks names up would cut it off, and find somebody else.
        let number: u32 = name.parse().map_err(|_| Failure::unable(format!("there is no {label} {name}")))?;
        return Ok(format!("{label}:{number}"));
    }
    let number = match kind {
        Kind::User => name_in("passwd", name, 2),
        Kind::Group => name_in("group", name, 2),
        Kind::Tree => tree_of(Path::new(name), volume)?,
    };
    let number = number.ok_or_else(|| Failure::unable(format!("there is no {label} {name:?}")))?;
    Ok(format!("{label}:{number}"))
}

fn tree_of(dir: &Path, volume: &Path) -> Result<Option<String>, Failure> {
    let its = tree::volume_holding(dir)?;
    if std::fs::canonicalize(volume).is_ok_and(|volume| volume != its) {
        return Err(Failure::unable(format!("{}: it is in the volume {}", dir.display(), its.display())));
    }
    let none =
        || Failure::unable(format!("{}: it is no tree; `holdfast quota tree` makes it one", dir.display()));
    let mut value = [0; 16];
    match rustix::fs::lgetxattr(dir, TREE_XATTR, &mut value[..]) {
        // It was one.
        Ok(len) if value[..len] == *b"0" => Err(none()),
        Ok(len) => Ok(std::str::from_utf8(&value[..len]).ok().map(str::to_owned)),
        Err(rustix::io::Errno::NODATA) => Err(none()),
        Err(error) => Err(Failure::problem(format!("{}: {error}", dir.display()))),
    }
}

/// A field of an entry of the system's databases, wherever they are kept.
fn name_in(database: &str, key: &str, field: usize) -> Option<String> {
    let output = Command::new("getent")
        .args(["--", database, key])
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let line = String::from_utf8(output.stdout).ok()?;
    line.lines().next()?.split(':').nth(field).map(str::to_owned)
}

fn master_of(given: &Path) -> Result<(Volume, String), Failure> {
    let path: PathBuf = volume_of(given);
    let volume = Volume::open(&path).map_err(|error| Failure::unable(with_causes(&error)))?;
    let socket = past_election(|| {
        let unable = |error: &dyn std::error::Error| Failure::unable(with_causes(error));
        match backend::mastery(&volume) {
            Ok(Mastery::At(socket)) => Ok(Attempt::Done(socket)),
            // It may have ended just then.
            Err(error) => Ok(Attempt::Early(unable(&error))),
            Ok(Mastery::Awaited) => {
                Ok(Attempt::Early(Failure::unable("no node says that it is the volume's master")))
            }
            // The last node may be on its way out, or the first on its way in.
            Ok(Mastery::Nobody) => {
                let not_mounted = Failure::unable("the volume is not mounted");
                match volume.master_pid().map_err(|error| unable(&error))? {
                    Some(_) => Ok(Attempt::Early(not_mounted)),
                    None => Err(not_mounted),
                }
            }
        }
    })?;
    Ok((volume, socket))
}

fn asked(answer: Result<Json, backend::ControlError>) -> Result<Json, Failure> {
    let document = answer.map_err(|error| Failure::problem(with_causes(&error)))?;
    match document["error"].as_str() {
        Some(error) => Err(Failure::problem(error)),
        None => Ok(document),
    }
}

/// How the number of a tree is read and set; only root can.
const TREE_XATTR: &str = "trusted.holdfast.tree";
