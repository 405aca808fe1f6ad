//! `holdfast set`: options of a mount that may change while it is in use.

use serde_json::Value as Json;

use crate::args::SetArgs;
use crate::backend;
use crate::failure::{Failure, with_causes};

/// Sets what was asked for, all or nothing; without any shows what is set.
pub fn run(args: &SetArgs) -> Result<(), Failure> {
    let (volume, socket) = backend::node_at(&args.mountpoint)?;
    let line = format!("set {}", args.settings.join(" "));
    let options = backend::ask(&volume, &socket, line.trim_end())
        .map_err(|error| Failure::unable(with_causes(&error)))?;
    if let Some(error) = options["error"].as_str() {
        return Err(Failure::unable(error));
    }
    if args.json {
        println!("{options:#}");
    } else if args.settings.is_empty() {
        print!("{}", as_text(&options));
    }
    Ok(())
}

/// One line for each, in the form in which it is set.
fn as_text(options: &Json) -> String {
    let line =
        |(name, value): (&String, &Json)| format!("{name}={}\n", if *value == true { "on" } else { "off" });
    options.as_object().into_iter().flatten().map(line).collect()
}

/// Reads `NAME=on` or `NAME=off`.
pub fn setting(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, "on" | "off")) if NAMES.contains(&name) => Ok(text.to_owned()),
        Some(_) | None => Err("it takes lazysize=on, lazysize=off, nomtime=on and nomtime=off".to_owned()),
    }
}

const NAMES: [&str; 2] = ["lazysize", "nomtime"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_names_and_on_or_off() {
        for good in ["lazysize=on", "lazysize=off", "nomtime=on", "nomtime=off"] {
            assert_eq!(setting(good), Ok(good.to_owned()));
        }
        for bad in ["", "lazysize", "lazysize=", "lazysize=1", "lazysize=on off", "commit=on", "=on"] {
            assert!(setting(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_shown_can_be_set() {
        let shown = as_text(&serde_json::json!({ "lazysize": true, "nomtime": false }));
        assert_eq!(shown, "lazysize=on\nnomtime=off\n");
        assert!(shown.lines().all(|line| setting(line).is_ok()));
    }
}
