//! The repository's text files in memory, so that checks can be tried on made-up ones.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Path from the root, with `/`, and text, of every file that a check may look at.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the Rust, TOML, Markdown and text files below `root`; names of all others are known, too.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.read_below(root, "")?;
        Ok(tree)
    }

    /// Makes a tree from paths and texts.
    pub fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect() }
    }

    /// Text of a file, empty for one that is not text.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether there is a file or a directory of this path.
    pub fn has(&self, path: &str) -> bool {
        let below = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.range(below.clone()..).next().is_some_and(|(found, _)| found.starts_with(&below))
    }

    /// All files whose name ends in `suffix`, in order.
    pub fn files(&self, suffix: &str) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(move |(path, _)| path.ends_with(suffix))
    }

    /// Names of the directories in `crates/`, in order.
    pub fn crates(&self) -> Vec<&str> {
        let manifests = self.files("/Cargo.toml").map(|(path, _)| path);
        let names = manifests.filter_map(|path| path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"));
        names.filter(|name| !name.contains('/')).collect()
    }

    fn read_below(&mut self, dir: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // Names that are not UTF-8 are none of ours.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{prefix}{name}");
            let file_type = entry.file_type()?;
            if file_type.is_dir() {
                if !matches!(name.as_str(), ".git" | "target") {
                    self.read_below(&entry.path(), &format!("{path}/"))?;
                }
                continue;
            }
            let is_text =
                file_type.is_file() && [".rs", ".toml", ".md", ".txt"].iter().any(|end| name.ends_with(end));
            let text =
                if is_text { fs::read_to_string(entry.path()).unwrap_or_default() } else { String::new() };
            self.files.insert(path, text);
        }
        Ok(())
    }
}

/// Root of this repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}
