//! A source tree is unpacked, and `du` looks at it again and again, after GFS's first benchmarks.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::bench::report::Report;
use crate::bench::sequence::{By, Ground, Sequence, Step};
use crate::bench::task::Work;
use crate::bench::{BenchError, Stage};

/// What is unpacked, and where.
#[derive(Clone, Debug)]
pub struct Tar {
    /// Mount points of one file system, one or two.
    pub mounts: Vec<PathBuf>,
    /// A directory of a local file system, for the same by turns with it.
    pub local: Option<PathBuf>,
    /// An archive for tar(1); without it a tree like that of a large C program is written.
    pub archive: Option<PathBuf>,
    /// Files of that tree.
    pub files: u64,
    /// How often.
    pub runs: u32,
    /// A command that mounts the file system anew.
    pub remount: Option<String>,
}

impl Tar {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// [`BenchError`]; what was made is removed.
    pub fn run(&self, stage: &mut Stage<'_>) -> Result<Report, BenchError> {
        let unpack = match &self.archive {
            Some(archive) => {
                let what = "cannot be read";
                let failed = |source| BenchError::Place { path: archive.clone(), what, source };
                let archive = std::fs::canonicalize(archive).map_err(failed)?;
                std::fs::File::open(&archive).map_err(failed)?;
                // A pipe can be read but once.
                if archive.is_file() {
                    check(&archive)?;
                }
                Work::Extract { archive }
            }
            None => Work::Unpack { count: self.files },
        };
        let steps = vec![
            Step::new("unpack", By::First, unpack),
            Step::new("du", By::First, Work::Walk),
            Step::new("du again", By::First, Work::Walk),
            Step::new("cold du", By::First, Work::Walk).cold(),
            Step::new("du from the other", By::Last, Work::Walk),
            Step::new("du from a new node", By::New, Work::Walk).cold(),
            Step::new("remove", By::First, Work::Empty),
        ];
        let sequence = Sequence {
            bench: "tar",
            mounts: &self.mounts,
            local: self.local.as_ref(),
            runs: self.runs,
            steps,
            ground: self.ground(),
            remount: self.remount.as_deref(),
            settings: json!({
                "mounts": self.mounts.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
                "local": self.local.as_ref().map(|path| path.to_string_lossy()),
                "archive": self.archive.as_ref().map(|path| path.to_string_lossy()),
                "files": if self.archive.is_none() { Some(self.files) } else { None },
            }),
        };
        sequence.run(stage)
    }

    /// What is in an archive only tar(1) can tell; unpacked it is no smaller.
    fn ground(&self) -> Ground {
        match &self.archive {
            Some(archive) => Ground::New {
                inodes: 1,
                bytes_each: std::fs::metadata(archive).map_or(0, |found| found.len()),
            },
            None => Ground::New { inodes: self.files + self.files / 10, bytes_each: FILE_BYTES },
        }
    }

    /// Refuses what would not fit.
    pub(crate) fn check_room(&self) -> Result<(), BenchError> {
        self.ground().check_room(&self.mounts, self.local.as_ref())
    }
}

/// Refuses what tar(1) finds nothing in. It reads up to the first name.
fn check(archive: &Path) -> Result<(), BenchError> {
    let mut tar = Command::new("tar");
    tar.arg("-tf").arg(archive).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |source| BenchError::Place { path: archive.to_owned(), what: "tar cannot be run", source };
    let mut child = tar.spawn().map_err(failed)?;
    let mut name = Vec::new();
    let read = child.stdout.take().map_or(Ok(0), |out| BufReader::new(out).read_until(b'\n', &mut name));
    let mut said = String::new();
    if name.is_empty()
        && let Some(mut errors) = child.stderr.take()
    {
        _ = errors.read_to_string(&mut said);
    }
    // It may be in the middle of a long archive.
    _ = child.kill();
    child.wait().and(read).map_err(failed)?;
    match name.is_empty() {
        false => Ok(()),
        true => {
            let why = said.lines().next().unwrap_or("it is empty");
            Err(BenchError::Unfit {
                path: archive.to_owned(),
                what: format!("tar unpacks nothing of it: {why}"),
            })
        }
    }
}

/// What a file takes, in the mean: 11 KiB of content, in whole blocks, and its inode.
const FILE_BYTES: u64 = 14 << 10;
