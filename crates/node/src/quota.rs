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

/// Answers `quota-set ACCOUNT` and six numbers: hard, soft and time of grace in seconds, of bytes and of inodes, `-` for what is to stay. White space
/// comes until the limits bind every node.
pub(crate) fn set(shell: &Shell, stream: &mut UnixStream, words: &str) -> io::Result<Json> {
    let Some((account, changes)) = parse(words) else {
        return Ok(json!({ "error": "no account and six numbers" }));
    };
    let Some(service) = shell.service() else { return Ok(scrub::no_master()) };
    let version = match service.change_limits(account, |limits| changes.made_to(limits)) {
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

/// What is to become of the limits of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LimitChanges {
    bytes: LimitChange,
    inodes: LimitChange,
}

/// Of one limit; what is not given stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LimitChange {
    hard: Option<u64>,
    soft: Option<u64>,
    grace_secs: Option<u64>,
}

impl LimitChanges {
    fn made_to(self, limits: Limits) -> Result<Limits, String> {
        Ok(Limits {
            bytes: self.bytes.made_to(limits.bytes, "bytes")?,
            inodes: self.inodes.made_to(limits.inodes, "inodes")?,
        })
    }
}

impl LimitChange {
    fn made_to(self, limit: Limit, what: &str) -> Result<Limit, String> {
        let hard = self.hard.unwrap_or(limit.hard);
        let soft = self.soft.unwrap_or(limit.soft);
        if hard != 0 && soft > hard {
            return Err(format!("the soft limit on {what} is above the hard one"));
        }
        let known = if limit.grace_secs == 0 { GRACE_SECS } else { limit.grace_secs };
        Ok(Limit { hard, soft, grace_secs: self.grace_secs.unwrap_or(known), ..limit })
    }
}

fn parse(words: &str) -> Option<(Account, LimitChanges)> {
    let mut words = words.split_ascii_whitespace();
    let account: Account = words.next()?.parse().ok()?;
    let mut limit = || {
        let mut number = || match words.next()? {
            "-" => Some(None),
            number => number.parse().ok().map(Some),
        };
        Some(LimitChange { hard: number()?, soft: number()?, grace_secs: number()? })
    };
    let changes = LimitChanges { bytes: limit()?, inodes: limit()? };
    words.next().is_none().then_some((account, changes))
}

/// Time of grace unless another is given: a week, as with quotas elsewhere.
const GRACE_SECS: u64 = 7 * 24 * 3600;
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_HOPE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_an_account_and_six_numbers() {
        let (account, changes) = parse("tree:7 10 9 8 1 2 -").unwrap();
        assert_eq!(account, Account::Tree(7));
        let limit = |hard, soft, grace_secs| LimitChange { hard, soft, grace_secs };
        assert_eq!(changes.bytes, limit(Some(10), Some(9), Some(8)));
        assert_eq!(changes.inodes, limit(Some(1), Some(2), None));
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

    /// Goal: what is not given stays, whoever else changes it meanwhile. Method: changes one after the other, with nothing known of the one before.
    #[test]
    fn what_is_not_given_stays() {
        let made = |limits, words: &str| parse(words).unwrap().1.made_to(limits);
        let first = made(Limits::default(), "user:1 100 - - - - -").unwrap();
        assert_eq!((first.bytes.hard, first.bytes.grace_secs), (100, GRACE_SECS));
        let second = made(first, "user:1 - 50 - 7 - 60").unwrap();
        assert_eq!((second.bytes.hard, second.bytes.soft), (100, 50));
        assert_eq!((second.inodes.hard, second.inodes.grace_secs), (7, 60));
        assert_eq!(
            made(second, "user:1 49 - - - - -").unwrap_err(),
            "the soft limit on bytes is above the hard one"
        );
    }
}
