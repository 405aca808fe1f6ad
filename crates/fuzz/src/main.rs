//! `cargo xtask fuzz [--seconds 60] [--seed N] [--input HEX] [TARGET...]`

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use testkit::fuzz::{Limits, Report, execute};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match Wish::parse(&words).and_then(|wish| wish.fulfil()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is to be done.
struct Wish {
    seconds: u64,
    seed: u64,
    input: Option<Vec<u8>>,
    names: Vec<String>,
}

impl Wish {
    fn parse(words: &[String]) -> Result<Self, String> {
        let fresh = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let mut wish = Self { seconds: 60, seed: fresh, input: None, names: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let value = words.next().ok_or_else(|| format!("{word} needs a number"))?;
                value.parse().map_err(|_| format!("{value} is no number"))
            };
            match word.as_str() {
                "--seconds" => wish.seconds = number()?,
                "--seed" => wish.seed = number()?,
                "--input" => {
                    let input = words.next().and_then(|word| check::unhex(word));
                    wish.input = Some(input.ok_or("--input needs bytes in hexadecimal, in small letters")?);
                }
                name if fuzz::target(name).is_some() => wish.names.push(name.to_owned()),
                other => {
                    let names: Vec<_> = fuzz::targets().iter().map(|target| target.name()).collect();
                    return Err(format!("no target {other}; there are {}", names.join(", ")));
                }
            }
        }
        if wish.names.is_empty() {
            wish.names = fuzz::targets().iter().map(|target| target.name().to_owned()).collect();
        }
        Ok(wish)
    }

    fn fulfil(&self) -> Result<(), String> {
        if let Some(input) = &self.input {
            return self.again(input);
        }
        println!("seed {}", self.seed);
        println!(
            "{:<14} {:>10} {:>9} {:>7} {:>9} {:>9} {:>11}",
            "target", "executions", "per s", "corpus", "outcomes", "slowest", "most memory"
        );
        for name in &self.names {
            let Some(mut target) = fuzz::target(name) else { continue };
            let report = fuzz::run(&mut *target, self.seed, Limits::seconds(self.seconds));
            println!("{}", row(name, &report.map_err(|finding| finding.to_string())?));
        }
        Ok(())
    }

    /// One input again.
    fn again(&self, input: &[u8]) -> Result<(), String> {
        for name in &self.names {
            let Some(mut target) = fuzz::target(name) else { continue };
            let (result, memory) = execute(&mut *target, input, fuzz::meter::measure);
            println!("{name}: {} with {memory} bytes", result?);
        }
        Ok(())
    }
}

fn row(name: &str, report: &Report) -> String {
    format!(
        "{name:<14} {:>10} {:>9.0} {:>7} {:>9} {:>6} ms {:>7} KiB",
        report.executions,
        report.executions as f64 / report.seconds,
        report.corpus,
        report.outcomes.len(),
        report.slowest_us / 1000,
        report.memory_max >> 10,
    )
}
