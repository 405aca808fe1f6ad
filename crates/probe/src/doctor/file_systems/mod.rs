//! What file systems of clusters and networks tell of themselves, in files of the kernel.
//!
//! Each file system has a module with two halves: `read` finds its files and reads them, `findings` is pure and compares
//! what they held at two moments. A file that is missing or not allowed is left out, and then nothing is told of it:
//! debugfs may not be mounted, and only root may look. No text makes anything here panic.

mod ceph;
mod dlm;
mod fuse;
mod gfs2;
mod lustre;
mod nfs;
mod ocfs2;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::doctor::Finding;

/// Files of the kernel's that tell of one mount, read at one moment: their paths and what they held.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    kind: Option<Kind>,
    at: PathBuf,
    files: Files,
}

impl Told {
    /// Reads what there is for a mount of file system type `kind` (as in /proc/mounts: gfs2, ocfs2, lustre, nfs, nfs4,
    /// ceph, fuse, fuse.xxx), source `source`, mount point `at`, device number `dev` (major, minor; of FUSE the
    /// connection is the minor). Touches nothing of the mount itself, so it never waits for its server.
    pub fn read(kind: &str, source: &str, at: &Path, dev: (u32, u32)) -> Self {
        let kind = Kind::named(kind);
        let files = match kind {
            Some(Kind::Gfs2) => gfs2::read(dev),
            Some(Kind::Ocfs2) => ocfs2::read(dev),
            Some(Kind::Lustre) => lustre::read(source),
            Some(Kind::Nfs) => nfs::read(at),
            Some(Kind::Ceph) => ceph::read(source),
            Some(Kind::Fuse) => fuse::read(dev),
            None => Files::default(),
        };
        Self { kind, at: at.to_owned(), files }
    }

    /// What two moments, `seconds` apart, tell. Nothing if they are of different mounts.
    pub fn findings(earlier: &Self, later: &Self, seconds: f64) -> Vec<Finding> {
        let is_one_mount = earlier.kind == later.kind && earlier.at == later.at;
        if !is_one_mount || !seconds.is_finite() || seconds <= 0.0 {
            return Vec::new();
        }
        let between = Between { earlier: &earlier.files, later: &later.files, seconds, at: &later.at };
        match later.kind {
            Some(Kind::Gfs2) => gfs2::findings(&between),
            Some(Kind::Ocfs2) => ocfs2::findings(&between),
            Some(Kind::Lustre) => lustre::findings(&between),
            Some(Kind::Nfs) => nfs::findings(&between),
            Some(Kind::Ceph) => ceph::findings(&between),
            Some(Kind::Fuse) => fuse::findings(&between),
            None => Vec::new(),
        }
    }
}

/// File systems that tell something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gfs2,
    Ocfs2,
    Lustre,
    Nfs,
    Ceph,
    Fuse,
}

impl Kind {
    fn named(kind: &str) -> Option<Self> {
        match kind.split('.').next()? {
            "gfs2" => Some(Self::Gfs2),
            "ocfs2" => Some(Self::Ocfs2),
            "lustre" => Some(Self::Lustre),
            "nfs" | "nfs4" => Some(Self::Nfs),
            "ceph" => Some(Self::Ceph),
            "fuse" | "fuseblk" => Some(Self::Fuse),
            _ => None,
        }
    }
}

/// Files and what they held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Files(BTreeMap<PathBuf, String>);

impl Files {
    /// Reads `path`, if that is possible; of a very long file the beginning.
    fn add(&mut self, path: PathBuf) {
        let Ok(file) = File::open(&path) else { return };
        let mut bytes = Vec::new();
        // What was read before an error is whole lines, or cut like a file that is too long.
        let is_whole = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).is_ok();
        let is_whole = is_whole && (bytes.len() as u64) < FILE_BYTES_MAX;
        if !is_whole {
            let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            bytes.truncate(end);
        }
        self.insert(path, String::from_utf8_lossy(&bytes).into_owned());
    }

    /// Reads `path` line by line and keeps what `choose` makes of it: for files that may be longer than memory.
    fn add_chosen(&mut self, path: PathBuf, choose: fn(&mut dyn Iterator<Item = String>) -> String) {
        let Ok(file) = File::open(&path) else { return };
        let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
        let text = choose(&mut lines.map(|line| String::from_utf8_lossy(&line).into_owned()));
        self.insert(path, text);
    }

    fn insert(&mut self, path: PathBuf, text: String) {
        self.0.insert(path, text);
    }

    fn text(&self, path: &Path) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }
}

/// Two moments of one mount.
struct Between<'a> {
    earlier: &'a Files,
    later: &'a Files,
    seconds: f64,
    /// The mount point.
    at: &'a Path,
}

impl<'a> Between<'a> {
    /// Files whose path ends in `end` and that were read both times: path, earlier text, later text.
    fn pairs(&self, end: &'a str) -> impl Iterator<Item = (&'a Path, &'a str, &'a str)> {
        let earlier = self.earlier;
        let later = self.later.0.iter().filter(move |(path, _)| path.ends_with(end));
        later.filter_map(move |(path, text)| Some((&**path, earlier.text(path)?, &**text)))
    }
}

/// Entries of a directory, by name; none if it cannot be read.
fn entries(dir: impl AsRef<Path>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// The name of the directory that `path` is in.
fn parent_name(path: &Path) -> String {
    path.parent()
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The next of `words`, as a number.
fn number<'a, T: FromStr>(words: &mut impl Iterator<Item = &'a str>) -> Option<T> {
    words.next()?.parse().ok()
}

/// What follows `key` in the first word of `line` that starts with it: `SH` of `G: s:SH` for `s:`.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key))
}

/// `1 request`, `3 requests`.
fn count_of(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Where Linux mounts debugfs by itself.
const DEBUGFS: &str = "/sys/kernel/debug";

/// Longer than any file that tells something, and short enough to hold twice.
const FILE_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// One file, with what it held at two moments.
    pub(super) fn between<T>(path: &str, texts: (&str, &str), findings: impl Fn(&Between<'_>) -> T) -> T {
        between_all(&[(path, texts.0, texts.1)], findings)
    }

    /// Several files, five seconds apart, of a mount at /mnt.
    pub(super) fn between_all<T>(files: &[(&str, &str, &str)], findings: impl Fn(&Between<'_>) -> T) -> T {
        let (mut earlier, mut later) = (Files::default(), Files::default());
        for (path, first, second) in files {
            earlier.insert(PathBuf::from(path), (*first).to_owned());
            later.insert(PathBuf::from(path), (*second).to_owned());
        }
        findings(&Between { earlier: &earlier, later: &later, seconds: 5.0, at: Path::new("/mnt") })
    }

    /// Each beginning of `text`, and texts that are none, as both moments: no findings of the latter, and no panic.
    pub(super) fn endure(path: &str, text: &str, findings: impl Fn(&Between<'_>) -> Vec<Finding>) {
        let cuts = (0..text.len()).filter(|&end| text.is_char_boundary(end));
        for cut in cuts.map(|end| &text[..end]) {
            between(path, (cut, text), &findings);
            between(path, (text, cut), &findings);
        }
        let backwards: String = text.chars().rev().collect();
        let huge = text.replace(|c: char| c.is_ascii_digit(), "99999999999999999999");
        for garbage in ["", "\n\n\n", "\0", "G:", ": : :", "-1 -1 -1", "ü\u{fffd} [", &backwards, &huge] {
            assert_eq!(between(path, (garbage, garbage), &findings), Vec::new(), "{garbage}");
            between(path, (garbage, text), &findings);
            between(path, (text, garbage), &findings);
        }
    }

    #[test]
    fn kinds_are_as_in_proc_mounts() {
        for (name, kind) in [
            ("gfs2", Some(Kind::Gfs2)),
            ("nfs4", Some(Kind::Nfs)),
            ("fuse.sshfs", Some(Kind::Fuse)),
            ("fuseblk", Some(Kind::Fuse)),
            ("fusectl", None),
            ("nfsd", None),
            ("ext4", None),
            ("", None),
        ] {
            assert_eq!(Kind::named(name), kind, "{name}");
        }
    }

    #[test]
    fn what_cannot_be_read_tells_nothing() {
        let at = Path::new("/nonexistent");
        for kind in ["gfs2", "ocfs2", "lustre", "nfs4", "ceph", "fuse.nothing", "ext4", ""] {
            let told = Told::read(kind, "nobody@no-cluster.none=/", at, (0, u32::MAX));
            assert_eq!(told.files, Files::default(), "{kind}");
            assert_eq!(Told::findings(&told, &told, 5.0), Vec::new(), "{kind}");
        }
    }

    #[test]
    fn moments_of_different_mounts_or_no_time_tell_nothing() {
        let busy = |at: &str| {
            let mut told = Told { kind: Some(Kind::Fuse), at: PathBuf::from(at), files: Files::default() };
            told.files.insert(PathBuf::from("/c/waiting"), "12\n".to_owned());
            told.files.insert(PathBuf::from("/c/max_background"), "12\n".to_owned());
            told
        };
        assert_eq!(Told::findings(&busy("/a"), &busy("/a"), 5.0).len(), 1);
        assert!(Told::findings(&busy("/a"), &busy("/b"), 5.0).is_empty());
        assert!(Told::findings(&Told::default(), &busy("/a"), 5.0).is_empty());
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Told::findings(&busy("/a"), &busy("/a"), seconds).is_empty(), "{seconds}");
        }
    }

    #[test]
    fn files_are_read_whole_or_by_chosen_lines() {
        let mut files = Files::default();
        files.add(PathBuf::from("/proc/self/mounts"));
        files.add(PathBuf::from("/proc/nonexistent"));
        files.add_chosen(PathBuf::from("/proc/meminfo"), |lines| lines.take(1).collect());
        assert_eq!(files.0.len(), 2);
        assert!(files.text(Path::new("/proc/self/mounts")).is_some_and(|text| text.ends_with('\n')));
        assert!(files.text(Path::new("/proc/meminfo")).is_some_and(|text| text.starts_with("MemTotal:")));
    }

    #[test]
    fn words_and_counts() {
        assert_eq!(field(" H: s:EX f:W e:0", "f:"), Some("W"));
        assert_eq!(field("", "f:"), None);
        assert_eq!(number::<u32>(&mut "7 x".split(' ')), Some(7));
        assert_eq!(
            (count_of(1, "request"), count_of(0, "lock")),
            ("1 request".to_owned(), "0 locks".to_owned())
        );
    }
}
