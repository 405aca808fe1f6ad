//! How long it takes to look at every inode of a tree, as `find -ls` and `du` do: cold, warm, from another mount, and after
//! another mount has changed them all.

use std::path::PathBuf;

use serde_json::json;

use crate::bench::report::Report;
use crate::bench::sequence::{By, Sequence, Step};
use crate::bench::task::Work;
use crate::bench::{BenchError, Stage};

/// What is walked, and from where.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Mount points of one file system, one or two.
    pub mounts: Vec<PathBuf>,
    /// A directory of a local file system, for the same tree by turns with it.
    pub local: Option<PathBuf>,
    /// Regular files of the tree.
    pub files: u64,
    /// So many in each directory.
    pub per_directory: u64,
    /// How often.
    pub runs: u32,
}

impl Walk {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// [`BenchError`]; what was made is removed.
    pub fn run(&self, stage: &mut Stage<'_>) -> Result<Report, BenchError> {
        let per_directory = self.per_directory.max(1);
        let steps = vec![
            Step::new("make", By::First, Work::Grow { count: self.files, per_directory }),
            Step::new("cold", By::First, Work::Walk).cold(),
            Step::new("warm", By::First, Work::Walk),
            Step::new("first from the other", By::Last, Work::Walk),
            Step::new("again from there", By::Last, Work::Walk),
            Step::new("back", By::FirstAgain, Work::Walk),
            Step::new("chmod of all", By::First, Work::Chmod { mode: 0o600 }),
            Step::new("from the other after it", By::Last, Work::Walk),
            Step::new("both at once", By::Both, Work::Walk),
        ];
        let sequence = Sequence {
            bench: "walk",
            mounts: &self.mounts,
            local: self.local.as_ref(),
            runs: self.runs,
            steps,
            inodes: self.files + self.files / per_directory + 1,
            bytes_each: INODE_BYTES,
            settings: json!({
                "mounts": self.mounts.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
                "local": self.local.as_ref().map(|path| path.to_string_lossy()),
                "files": self.files,
                "files_per_directory": per_directory,
            }),
        };
        sequence.run(stage)
    }
}

/// What an inode and its name take on a file system that does not say how many it has.
const INODE_BYTES: u64 = 512;
