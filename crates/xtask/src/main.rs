//! `cargo xtask layers`, `tidy [--update]`, `sim [--seeds N]`, `try`, `fuzz`, `long`, `apps`.

mod apps;
mod long;
mod try_it;

use std::path::Path;
use std::process::ExitCode;

use xtask::{Tree, layers, tidy};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(problems) => {
            problems.iter().for_each(|problem| eprintln!("{problem}"));
            eprintln!("{} problems", problems.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[&str]) -> Result<Vec<String>, String> {
    match words {
        ["try", rest @ ..] => return try_it::run(rest).map(|()| Vec::new()),
        ["fuzz", rest @ ..] => return long::fuzz(rest).map(|()| Vec::new()),
        ["sim", rest @ ..] => return long::trials(rest).map(|()| Vec::new()),
        ["apps", rest @ ..] => return apps::run(rest).map(|()| Vec::new()),
        ["long", rest @ ..] => return long::run(rest).map(|()| Vec::new()),
        _ => {}
    }
    let root = xtask::root();
    let tree = Tree::read(&root).map_err(|error| error.to_string())?;
    match words {
        ["layers"] => Ok(layers::check(&tree)),
        ["tidy"] => Ok(tidy::check(&tree)),
        ["tidy", "--update"] => {
            write_ratchet(&root, &tidy::ratchet_of(&tree))?;
            Ok(Vec::new())
        }
        _ => Err(USAGE.to_owned()),
    }
}

const USAGE: &str = "usage: cargo xtask layers | tidy [--update] | sim [--seeds N] | try --holdfast BINARY \
    | fuzz [--seconds N] [--seed N] [--input HEX] [TARGET...] | long [NAME...] | apps [--holdfast BINARY] [NAME...]";

fn write_ratchet(root: &Path, text: &str) -> Result<(), String> {
    std::fs::write(root.join(tidy::RATCHET), text).map_err(|error| format!("{}: {error}", tidy::RATCHET))
}
