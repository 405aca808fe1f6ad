//! How long it takes to look at every inode of a tree, as `find -ls` and `du` do: cold, warm, from another mount, and after
//! another mount has changed them all.

use std::path::PathBuf;

use serde_json::json;

use crate::bench::report::Report;
use crate::bench::sequence::{By, Ground, Sequence, Step};
use crate::bench::task::Work;
use crate::bench::{BenchError, Stage};

/// What is walked, and from where.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Mount points of one file system, one or two.
    pub mounts: Vec<PathBuf>,
    /// A directory of a local file system, for the same tree by turns with it.
    pub local: Option<PathBuf>,
    /// Which tree.
    pub tree: Tree,
    /// How often.
    pub runs: u32,
    /// A command that mounts the file system anew.
    pub remount: Option<String>,
}

/// A tree to walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// One that is made for it, of regular files.
    Made {
        /// So many.
        files: u64,
        /// Of them in each directory.
        per_directory: u64,
    },
    /// The one that is at the mount points, or the directories below them. It is only looked at.
    There,
}

impl Walk {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// [`BenchError`]; what was made is removed.
    pub fn run(&self, stage: &mut Stage<'_>) -> Result<Report, BenchError> {
        let steps = match self.tree {
            Tree::There => steps(&Work::Look { count: u64::MAX }, None),
            Tree::Made { files, per_directory } => {
                let grow = Work::Grow { count: files, per_directory: per_directory.max(1) };
                steps(&Work::Walk, Some(grow))
            }
        };
        let sequence = Sequence {
            bench: "walk",
            mounts: &self.mounts,
            local: self.local.as_ref(),
            runs: self.runs,
            steps,
            ground: self.ground(),
            remount: self.remount.as_deref(),
            settings: self.settings(),
        };
        sequence.run(stage)
    }

    fn ground(&self) -> Ground {
        match self.tree {
            Tree::There => Ground::There,
            Tree::Made { files, per_directory } => {
                let inodes = files + files / per_directory.max(1) + 1;
                Ground::New { inodes, bytes_each: INODE_BYTES }
            }
        }
    }

    /// Refuses what would not fit.
    pub(crate) fn check_room(&self) -> Result<(), BenchError> {
        self.ground().check_room(&self.mounts, self.local.as_ref())
    }

    fn settings(&self) -> serde_json::Value {
        let made = match self.tree {
            Tree::Made { files, per_directory } => Some((files, per_directory)),
            Tree::There => None,
        };
        json!({
            "mounts": self.mounts.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            "local": self.local.as_ref().map(|path| path.to_string_lossy()),
            "existing": made.is_none(),
            "files": made.map(|(files, _)| files),
            "files_per_directory": made.map(|(_, each)| each),
            "remount": self.remount,
        })
    }
}

/// All walks; with `grow` of a tree that is made first, and changed.
fn steps(walk: &Work, grow: Option<Work>) -> Vec<Step> {
    let is_own = grow.is_some();
    let mut steps: Vec<Step> = grow.into_iter().map(|grow| Step::new("make", By::First, grow)).collect();
    let walk = |name, by| Step::new(name, by, walk.clone());
    steps.extend([
        walk("cold", By::First).cold(),
        walk("warm", By::First),
        walk("first from the other", By::Last),
        walk("again from there", By::Last),
        walk("back", By::FirstAgain),
    ]);
    if is_own {
        steps.push(Step::new("chmod of all", By::First, Work::Chmod { mode: 0o600 }));
        steps.push(walk("from the other after it", By::Last));
    }
    steps.extend([walk("both at once", By::Both), walk("from a new node", By::New).cold()]);
    steps
}

/// What an inode and its name take on a file system that does not say how many it has.
const INODE_BYTES: u64 = 512;
