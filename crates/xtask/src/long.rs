//! `cargo xtask fuzz`, `cargo xtask sim` and `cargo xtask long`: the long forms of tests whose short forms `cargo test` runs.

mod bursts;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use bursts::Bursts;

/// One long form.
struct Long {
    name: &'static str,
    /// About how long it takes.
    minutes: u32,
    /// What cargo is told.
    cargo: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// Whether something of a higher priority takes all processors beside it, for a while again and again.
    is_starved: bool,
}

const ALL: &[Long] = &[
    Long { name: "fuzz", minutes: 13, cargo: &FUZZ, environment: &[], is_starved: false },
    Long {
        name: "sim",
        minutes: 20,
        cargo: &["test", "--release", "-p", "holdfast-sim", "--test", "processes", "--test", "differential"],
        environment: &[("HOLDFAST_SEEDS", "2000")],
        is_starved: false,
    },
    Long {
        name: "trials",
        minutes: 20,
        cargo: &[
            "run",
            "--quiet",
            "--release",
            "--package",
            "holdfast-sim",
            "--bin",
            "trials",
            "--",
            "--seeds",
            "5000",
        ],
        environment: &[],
        is_starved: false,
    },
    Long {
        name: "power-engine",
        minutes: 10,
        cargo: &["test", "-p", "holdfast-kv-fjall", "--test", "power", "--", "--ignored", "--nocapture"],
        environment: &[("HOLDFAST_CRASHES", "5000")],
        is_starved: false,
    },
    Long {
        name: "power-volume",
        minutes: 10,
        cargo: &["test", "-p", "holdfast-node", "--test", "power", "--", "--nocapture"],
        environment: &[("HOLDFAST_CRASHES", "5000")],
        is_starved: false,
    },
    Long {
        name: "damage",
        minutes: 4,
        cargo: &["test", "-p", "holdfast-node", "--test", "damage", "--", "--nocapture"],
        environment: &[("HOLDFAST_DAMAGE", "all")],
        is_starved: false,
    },
    Long {
        name: "differ",
        minutes: 50,
        cargo: &["test", "--release", "-p", "holdfast", "--test", "differ", "--", "--nocapture"],
        environment: &[("HOLDFAST_STEPS", "20000"), ("HOLDFAST_SEEDS", "50")],
        is_starved: false,
    },
    Long {
        name: "pairs",
        minutes: 10,
        cargo: &[
            "test",
            "--release",
            "-p",
            "holdfast",
            "--test",
            "differ",
            "two_operations_at_once",
            "--",
            "--ignored",
            "--nocapture",
        ],
        environment: &[("HOLDFAST_STEPS", "2000"), ("HOLDFAST_SEEDS", "5")],
        is_starved: false,
    },
    Long {
        name: "names",
        minutes: 10,
        cargo: &[
            "test",
            "--release",
            "-p",
            "holdfast",
            "--test",
            "differ",
            "names_at_once",
            "--",
            "--ignored",
            "--nocapture",
        ],
        environment: &[("HOLDFAST_STEPS", "1500"), ("HOLDFAST_SEEDS", "5")],
        is_starved: false,
    },
    Long {
        name: "locks",
        minutes: 6,
        cargo: &["test", "--release", "-p", "holdfast", "--test", "locks", "--", "--nocapture"],
        environment: &[("HOLDFAST_LOCKS_SECONDS", "300")],
        is_starved: false,
    },
    Long {
        name: "kills",
        minutes: 35,
        cargo: &[
            "test",
            "--release",
            "-p",
            "holdfast",
            "--test",
            "kills",
            "--",
            "--ignored",
            "--nocapture",
            "half_an_hour",
        ],
        environment: &[],
        is_starved: false,
    },
    Long {
        name: "many-files",
        minutes: 3,
        cargo: &["test", "--release", "-p", "holdfast", "--test", "many_files", "--", "--nocapture"],
        environment: &[("HOLDFAST_KILLS_FILES", "1000000")],
        is_starved: false,
    },
    Long {
        name: "starved",
        minutes: 6,
        cargo: &["test", "-p", "holdfast", "--test", "mounts"],
        environment: &[],
        is_starved: true,
    },
];

const TRIALS: [&str; 8] =
    ["run", "--quiet", "--release", "--package", "holdfast-sim", "--bin", "trials", "--"];
const FUZZ: [&str; 7] = ["run", "--quiet", "--profile", "fuzz", "-p", "holdfast-fuzz", "--"];

/// Runs the fuzzer. `words` are the arguments after `fuzz`.
pub fn fuzz(words: &[&str]) -> Result<(), String> {
    cargo(&[&FUZZ, words].concat(), &[])
}

/// Runs trials of the simulation. `words` are the arguments after `sim`.
pub fn trials(words: &[&str]) -> Result<(), String> {
    cargo(&[&TRIALS, words].concat(), &[])
}

/// Runs all long forms, or those named. `words` are the arguments after `long`.
pub fn run(words: &[&str]) -> Result<(), String> {
    if let Some(unknown) = words.iter().find(|word| !ALL.iter().any(|long| long.name == **word)) {
        let names: Vec<_> = ALL.iter().map(|long| format!("{} ({} min)", long.name, long.minutes)).collect();
        return Err(format!("no long form {unknown}; there are {}", names.join(", ")));
    }
    let mut rows = Vec::new();
    for long in ALL.iter().filter(|long| words.is_empty() || words.contains(&long.name)) {
        println!("== {}, about {} min", long.name, long.minutes);
        let began = Instant::now();
        let bursts = if long.is_starved { Some(Bursts::begin()?) } else { None };
        let result = cargo(long.cargo, long.environment);
        drop(bursts);
        rows.push((long.name, began.elapsed(), result));
    }
    println!("{:<20} {:>8}  result", "long form", "minutes");
    for (name, took, result) in &rows {
        let result = result.as_ref().map_or_else(String::as_str, |()| "passed");
        println!("{name:<20} {:>8.1}  {result}", minutes(*took));
    }
    match rows.iter().filter(|(_, _, result)| result.is_err()).count() {
        0 => Ok(()),
        count => Err(format!("{count} of {} failed", rows.len())),
    }
}

/// The command as it is shipped, built if it is not there.
pub fn release_binary() -> Result<PathBuf, String> {
    cargo(&["build", "--quiet", "--release", "-p", "holdfast"], &[])?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| xtask::root().join("target"), PathBuf::from);
    Ok(target.join("release/holdfast"))
}

fn minutes(time: Duration) -> f64 {
    time.as_secs_f64() / 60.0
}

fn cargo(words: &[&str], environment: &[(&str, &str)]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(program).args(words).envs(environment.iter().copied()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo {} ended with {status}", words.join(" "))),
        Err(error) => Err(format!("cargo: {error}")),
    }
}
