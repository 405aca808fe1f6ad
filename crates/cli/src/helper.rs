//! The helpers of mount(8) and umount(8).
//!
//! mount(8) runs `mount.TYPE SOURCE TARGET [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`, umount(8) runs
//! `umount.TYPE TARGET [-nlfrv] [-N NAMESPACE] [-t TYPE]`; see "EXTERNAL HELPERS" in their pages.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::commands;
use crate::commands::umount::{Mode, Request};
use crate::failure::Failure;
use crate::options::Unknown;

/// Runs as `mount.holdfast`.
pub fn mount(argv: &[OsString]) -> Result<(), Failure> {
    let line = Line::parse(&argv[1..], "sfnvrw").map_err(Failure::usage)?;
    let [source, target] =
        <[PathBuf; 2]>::try_from(line.operands).map_err(|_| Failure::usage(MOUNT_USAGE))?;
    let mut options = line.options;
    if line.flags.contains('r') {
        options.push("ro".to_owned());
    }
    let unknown = if line.flags.contains('s') { Unknown::Ignore } else { Unknown::Refuse };
    let plan = commands::mount::Plan::new(&source, &target, options, unknown)?;
    // -f: everything but the mount itself.
    if line.flags.contains('f') { Ok(()) } else { plan.start() }
}

/// Runs as `umount.holdfast`.
pub fn umount(argv: &[OsString]) -> Result<(), Failure> {
    let line = Line::parse(&argv[1..], "nlfrv").map_err(Failure::usage)?;
    let [mountpoint] = <[PathBuf; 1]>::try_from(line.operands).map_err(|_| Failure::usage(UMOUNT_USAGE))?;
    let mode = match (line.flags.contains('l'), line.flags.contains('f')) {
        (true, _) => Mode::Lazy,
        (false, true) => Mode::Force,
        (false, false) => Mode::Wait,
    };
    commands::umount::unmount(&Request { mountpoint, mode, timeout: commands::umount::HELPER_TIMEOUT })
}

const MOUNT_USAGE: &str = "usage: mount.holdfast VOLUME MOUNTPOINT [-sfnv] [-o OPTIONS]";
const UMOUNT_USAGE: &str = "usage: umount.holdfast MOUNTPOINT [-nlfrv]";

/// A helper's command line, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
struct Line {
    operands: Vec<PathBuf>,
    /// Letters without value.
    flags: String,
    /// Values of `-o`.
    options: Vec<String>,
}

impl Line {
    fn parse(args: &[OsString], known_flags: &str) -> Result<Self, String> {
        let mut line = Self::default();
        let mut args = args.iter();
        let mut is_after_dashes = false;
        while let Some(arg) = args.next() {
            let text =
                arg.to_str().filter(|text| text.starts_with('-') && text.len() > 1 && !is_after_dashes);
            let Some(text) = text else {
                line.operands.push(arg.into());
                continue;
            };
            if text == "--" {
                is_after_dashes = true;
                continue;
            }
            line.take_cluster(&text[1..], known_flags, || args.next().and_then(|value| value.to_str()))?;
        }
        Ok(line)
    }

    /// Takes letters such as `-nv`, `-o`, `-oro`; `next` gives a value that stands by itself.
    fn take_cluster<'a>(
        &mut self,
        letters: &str,
        known_flags: &str,
        mut next: impl FnMut() -> Option<&'a str>,
    ) -> Result<(), String> {
        for (at, letter) in letters.char_indices() {
            if known_flags.contains(letter) {
                self.flags.push(letter);
                continue;
            }
            if !matches!(letter, 'o' | 't' | 'N') {
                return Err(format!("unknown flag \"-{letter}\""));
            }
            let attached = &letters[at + letter.len_utf8()..];
            let value = if attached.is_empty() { next() } else { Some(attached) };
            let value = value.ok_or_else(|| format!("flag \"-{letter}\" needs a value"))?;
            if letter == 'o' {
                self.options.push(value.to_owned());
            }
            return Ok(());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Line, String> {
        let args: Vec<OsString> = text.split_whitespace().map(Into::into).collect();
        Line::parse(&args, "sfnv")
    }

    #[test]
    fn lines_of_mount_are_taken_apart() {
        let line = |operands: &[&str], flags: &str, options: &[&str]| Line {
            operands: operands.iter().map(PathBuf::from).collect(),
            flags: flags.to_owned(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        };
        for (text, expected) in [
            ("/v /m", line(&["/v", "/m"], "", &[])),
            ("/v /m -o rw,noatime", line(&["/v", "/m"], "", &["rw,noatime"])),
            ("/v /m -sv -oro -t fuse.holdfast", line(&["/v", "/m"], "sv", &["ro"])),
            ("-n /v -o a -o b /m", line(&["/v", "/m"], "n", &["a", "b"])),
            ("-nvo ro /v /m", line(&["/v", "/m"], "nv", &["ro"])),
            ("-- -v /m", line(&["-v", "/m"], "", &[])),
            ("- /m", line(&["-", "/m"], "", &[])),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn wrong_lines_are_refused() {
        assert_eq!(parse("/v /m -x"), Err("unknown flag \"-x\"".to_owned()));
        assert_eq!(parse("/v /m -o"), Err("flag \"-o\" needs a value".to_owned()));
    }
}
