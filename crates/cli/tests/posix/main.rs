//! Goal: each system call does on a mount what its manual page says, and the same from two nodes by turns as on ext4.
//! Method: tables of cases (`tables/`, one for each family of calls), each a few steps with what each of them must answer.
//! Every case runs as root and as a user, on one mount, with its steps on two mounts by turns, and on ext4, which has to
//! agree with the table: so a wrong table is found, and a difference is argued in its line.
//!
//! `HOLDFAST_CASES=WORD` runs those whose line has the word. Needs root and a FUSE device; says so without.

#[path = "../differ/arena.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod arena;
#[path = "../mounts/lab.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod lab;
mod place;
#[path = "../differ/raw.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod raw;
mod step;
mod table;

use std::fmt::Write;
use std::time::Duration;

use arena::{Arena, LOCAL};
use place::{Place, User};
use table::Case;

/// Where a case runs, and on which roots by turns.
const PLACES: [(&str, &[usize]); 4] = [
    ("ext4", &[LOCAL]),
    ("one mount", &[0]),
    ("two mounts", &[0, 1]),
    ("two mounts, the other first", &[1, 0]),
];

#[test]
fn every_call_does_what_its_manual_page_says() {
    let Some(arena) = Arena::new(Duration::from_secs(400)) else { return };
    let word = std::env::var("HOLDFAST_CASES").unwrap_or_default();
    let cases = table::all();
    let (mut faults, mut runs) = (String::new(), 0);
    for (number, case) in cases.iter().enumerate().filter(|(_, case)| case.line.contains(&word)) {
        for user in case.users() {
            for (at, (place, roots)) in PLACES.iter().enumerate() {
                if roots.len() > 1 && !case.is_for_two {
                    continue;
                }
                runs += 1;
                let name = format!("{number}-{}-{at}", user.name());
                if let Err(fault) = run(&arena, case, user, roots, &name) {
                    let _ = writeln!(faults, "{}, {}, {place}: {fault}", case.place, user.name());
                }
            }
        }
    }
    println!("{} cases, {runs} runs", cases.len());
    assert!(faults.is_empty(), "\n{faults}");
    assert!(cases.len() >= 1500 || !word.is_empty(), "{} cases", cases.len());
}

/// Runs one case in a directory of its own.
fn run(arena: &Arena, case: &Case, user: User, roots: &[usize], name: &str) -> Result<(), String> {
    let mut place = Place::new(arena, roots, user, name);
    let is_control = roots == [LOCAL];
    for step in &case.steps {
        let found = step::run(&mut place, &step.words);
        let expected = if is_control { &step.control } else { &step.expected };
        if found != *expected {
            let words = step.words.iter().map(|word| shorten(word)).collect::<Vec<_>>().join(" ");
            return Err(format!("`{words}` gave {}, not {}", shorten(&found), shorten(expected)));
        }
    }
    Ok(())
}

fn shorten(word: &str) -> String {
    match word.len() {
        0..=60 => word.to_owned(),
        len => format!("{}… ({len} bytes)", &word[..20]),
    }
}
