//! `quota` and `quota-set`: what accounts use, and their limits. Of the master's node alone.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use master::AccountStatus;
use meta::{Limit, Limits};
use serde_json::{Value as Json, json};
use types::Account;

use crate::link::describe;
use crate::scrub;
use crate::shell::{Shell, Work};

/// Answers `quota`.
pub(crate) fn list(shell: &Shell) -> Json {
    let Some(accounts) = shell.service().and_then(|service| service.accounts()) else {
        return scrub::no_master();
    };
    match accounts {
        Ok(accounts) => json!({ "accounts": accounts.iter().map(account_json).collect::<Vec<_>>() }),
        Err(error) => json!({ "error": describe(&error) }),
    }
}

fn account_json(status: &AccountStatus) -> Json {
    let limit = |limit: &Limit| {
        json!({
            "hard": limit.hard,
            "soft": limit.soft,
            "grace_seconds": limit.grace_secs,
            "exceeded_since_unix_seconds": limit.exceeded_since,
        })
    };
    json!({
        "account": status.account.to_string(),
        "bytes": status.usage.bytes,
        "inodes": status.usage.inodes,
        "limits": { "bytes": limit(&status.limits.bytes), "inodes": limit(&status.limits.inodes) },
        "credit": { "bytes": status.credit.0, "inodes": status.credit.1 },
    })
}

/// Answers `quota-set ACCOUNT` and six numbers: hard, soft and time of grace in seconds, of bytes and of inodes. White space comes until the
/// limits bind every node.
pub(crate) fn set(shell: &Shell, stream: &mut UnixStream, words: &str) -> io::Result<Json> {
    let Some((account, limits)) = parse(words) else {
        return Ok(json!({ "error": "no account and six numbers" }));
    };
    let Some(service) = shell.service() else { return Ok(scrub::no_master()) };
    let version = match service.set_limits(account, limits) {
        None => return Ok(scrub::no_master()),
        Some(Err(error)) => return Ok(json!({ "error": error })),
        Some(Ok(version)) => version,
    };
    shell.pump(Work::OfMaster);
    let mut hoped = Instant::now();
    while !shell.is_stopping() {
        match service.limits_taken(version) {
            Some(true) => return Ok(json!({ "set": true })),
            Some(false) => {}
            None => break,
        }
        std::thread::sleep(PAUSE);
        if hoped.elapsed() >= PAUSE_HOPE {
            stream.write_all(b" ")?;
            hoped = Instant::now();
        }
    }
    Ok(
        json!({ "error": "the node is no longer master; the limits are recorded, and may not bind every node yet" }),
    )
}

fn parse(words: &str) -> Option<(Account, Limits)> {
    let mut words = words.split_ascii_whitespace();
    let account: Account = words.next()?.parse().ok()?;
    let mut limit = || {
        let mut number = || words.next()?.parse().ok();
        Some(Limit { hard: number()?, soft: number()?, grace_secs: number()?, exceeded_since: 0 })
    };
    let limits = Limits { bytes: limit()?, inodes: limit()? };
    words.next().is_none().then_some((account, limits))
}

const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_HOPE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_an_account_and_six_numbers() {
        let (account, limits) = parse("tree:7 10 9 8 1 2 3").unwrap();
        assert_eq!(account, Account::Tree(7));
        assert_eq!((limits.bytes.hard, limits.bytes.soft, limits.bytes.grace_secs), (10, 9, 8));
        assert_eq!((limits.inodes.hard, limits.inodes.soft, limits.inodes.grace_secs), (1, 2, 3));
        for bad in [
            "",
            "user:1",
            "user:x 1 2 3 4 5 6",
            "user:1 1 2 3 4 5",
            "user:1 1 2 3 4 5 6 7",
            "tree:0 1 1 1 1 1 1",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
