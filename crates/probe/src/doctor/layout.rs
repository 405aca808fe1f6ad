//! How full a file system is, and in how many pieces its files and its free space lie.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::StatVfsMountFlags;

use crate::doctor::finding::{Finding, Layer, Severity};
use crate::doctor::ground::Ground;
use crate::system::{self, Extents};

/// All that there is to say.
pub(crate) fn findings(ground: &Ground) -> Vec<Finding> {
    let mut found: Vec<Finding> = Room::of(&ground.path).map(Room::finding).into_iter().collect();
    if let Some(pieces) = Pieces::sample(&ground.path) {
        found.push(pieces.finding());
    }
    let device = ground.devices.first().map_or("", |device| &device.name);
    let table = std::fs::read_to_string(format!("/proc/fs/ext4/{device}/mb_groups")).unwrap_or_default();
    if ground.file_system.kind.starts_with("ext")
        && let Some(free) = FreeSpace::parse(&table)
    {
        found.push(free.finding(system::block_size(&ground.path)));
    }
    found
}

/// What is free, as shares.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Room {
    blocks: f64,
    inodes: f64,
    /// What nobody can write to needs no room: images (squashfs, erofs, ISO 9660) have none.
    is_read_only: bool,
}

impl Room {
    /// None where it is not told.
    fn of(path: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(path).ok()?;
        let share = |free: u64, of: u64| if of == 0 { 1.0 } else { free as f64 / of as f64 };
        Some(Self {
            blocks: share(found.f_bavail, found.f_blocks),
            inodes: share(found.f_favail, found.f_files),
            is_read_only: found.f_flag.contains(StatVfsMountFlags::RDONLY),
        })
    }

    fn finding(self) -> Finding {
        let Self { blocks, inodes, is_read_only } = self;
        let severity = match blocks.min(inodes) {
            _ if is_read_only => Severity::Info,
            least if least < FREE_LEAST => Severity::Critical,
            least if least < FREE_LOW => Severity::Warning,
            _ => Severity::Info,
        };
        Finding {
            layer: Layer::FileSystem,
            severity,
            what: "room".to_owned(),
            seen: format!(
                "{:.1} % of the bytes are free, {:.1} % of the inodes",
                blocks * 100.0,
                inodes * 100.0
            ),
            expected: format!("more than {:.0} %, unless it is read-only", FREE_LOW * 100.0),
            why: match severity {
                Severity::Info if is_read_only => "it is read-only: room does not matter",
                Severity::Info => "there is room to put files in one piece",
                Severity::Warning | Severity::Critical => {
                    "nearly full, each new block is searched for longer and lies where there is a hole"
                }
            }
            .to_owned(),
            next: "df -h, df -i, du -x; quotas; grow it or remove something".to_owned(),
        }
    }
}

/// Of files of some size that were looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pieces {
    files: u64,
    bytes: u64,
    extents: u64,
}

impl Pieces {
    /// The first large enough files below `path`. None where there are none, or the file system does not tell.
    fn sample(path: &Path) -> Option<Self> {
        let (mut this, deadline) = (Self::default(), Instant::now() + TIME_MAX);
        let mut seen = 0;
        let device = std::fs::metadata(path).ok()?.dev();
        let mut dirs = vec![path.to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                let Ok(found) = entry.metadata() else { continue };
                seen += 1;
                if seen > LOOK_MAX || this.files >= FILES_MAX || Instant::now() > deadline {
                    dirs.clear();
                    break;
                }
                if found.is_dir() && found.dev() == device {
                    dirs.push(entry.path());
                } else if found.is_file() && found.blocks() * 512 >= FILE_LEAST {
                    this.look_at(&entry.path(), found.blocks() * 512);
                }
            }
        }
        (this.files > 0).then_some(this)
    }

    fn look_at(&mut self, path: &PathBuf, bytes: u64) {
        // A look changes nothing, not even when the file was read last.
        let file =
            File::options().read(true).custom_flags(O_NOATIME).open(path).or_else(|_| File::open(path));
        if let Ok(extents) = file.and_then(|file| system::extents(&file)) {
            self.add(bytes, extents);
        }
    }

    /// What is compressed lies in small pieces whatever room there is (of 128 KiB at most on Btrfs): such files tell nothing.
    fn add(&mut self, bytes: u64, extents: Extents) {
        if extents.count > 0 && !extents.are_encoded {
            *self = Self {
                files: self.files + 1,
                bytes: self.bytes + bytes,
                extents: self.extents + u64::from(extents.count),
            };
        }
    }

    fn finding(self) -> Finding {
        let mean = self.bytes / self.extents.max(1);
        Finding {
            layer: Layer::FileSystem,
            severity: if mean < PIECE_LEAST { Severity::Warning } else { Severity::Info },
            what: "files in pieces".to_owned(),
            seen: format!(
                "{} files of {} MiB lie in {} pieces, of {} KiB in the mean",
                self.files,
                self.bytes >> 20,
                self.extents,
                mean >> 10
            ),
            expected: format!("pieces of {} KiB or more", PIECE_LEAST >> 10),
            why: if mean < PIECE_LEAST { "each piece is an I/O of its own, and a seek on a disk that turns" } else { "files can be read in long runs" }.to_owned(),
            next: "filefrag -v FILE shows one; e4defrag, xfs_fsr or btrfs filesystem defragment, once there is room".to_owned(),
        }
    }
}

/// Runs of free blocks by their lengths, as ext4's allocator keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FreeSpace {
    blocks: u64,
    runs: u64,
}

impl FreeSpace {
    /// `#GROUP: FREE FRAGMENTS FIRST [ ...`; groups that nobody has asked about yet are all zeros.
    fn parse(text: &str) -> Option<Self> {
        let mut this = Self::default();
        for line in text.lines() {
            let Some((_, rest)) = line.strip_prefix('#').and_then(|line| line.split_once(':')) else {
                continue;
            };
            let mut numbers = rest.split_whitespace().map_while(|word| word.parse::<u64>().ok());
            if let (Some(free), Some(runs)) = (numbers.next(), numbers.next())
                && runs > 0
            {
                (this.blocks, this.runs) = (this.blocks + free, this.runs + runs);
            }
        }
        (this.runs > 0).then_some(this)
    }

    fn finding(&self, block: u64) -> Finding {
        let mean = self.blocks * block / self.runs.max(1);
        Finding {
            layer: Layer::FileSystem,
            severity: if mean < PIECE_LEAST { Severity::Warning } else { Severity::Info },
            what: "free space in pieces".to_owned(),
            seen: format!(
                "{} free blocks in {} runs, of {} KiB in the mean",
                self.blocks,
                self.runs,
                mean >> 10
            ),
            expected: format!("runs of {} KiB or more", PIECE_LEAST >> 10),
            why: if mean < PIECE_LEAST {
                "whatever is written now is scattered over them"
            } else {
                "new files find long runs"
            }
            .to_owned(),
            next: "e2freefrag DEVICE; free some room, then e4defrag".to_owned(),
        }
    }
}

const FREE_LOW: f64 = 0.05;
const FREE_LEAST: f64 = 0.01;
/// A disk that turns reads as much in the time of a seek; flash takes requests of that size at full speed.
const PIECE_LEAST: u64 = 128 << 10;
/// Smaller files have no choice.
const FILE_LEAST: u64 = 1 << 20;
const FILES_MAX: u64 = 200;
const LOOK_MAX: u64 = 20_000;
const TIME_MAX: Duration = Duration::from_secs(1);
const O_NOATIME: i32 = 0o1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_runs_are_counted_where_they_are_known() {
        let text = "#group: free  frags first [ 2^0   2^1 ]\n#0    : 58    6     1788  [ 4     3 ]\n\
                    #1    : 0     0     32768 [ 0     0 ]\n#2    : 100   4     7 [ 0 0 ]\n#3 :\nx\n";
        let free = FreeSpace::parse(text).unwrap();
        assert_eq!(free, FreeSpace { blocks: 158, runs: 10 });
        assert_eq!(free.finding(4096).severity, Severity::Warning);
        assert_eq!(FreeSpace { blocks: 32768, runs: 1 }.finding(4096).severity, Severity::Info);
        assert_eq!((FreeSpace::parse(""), FreeSpace::parse("#1: 0 0 1 [\n")), (None, None));
    }

    #[test]
    fn small_pieces_are_remarked_on() {
        let pieces = Pieces { files: 2, bytes: 8 << 20, extents: 2 };
        assert_eq!(pieces.finding().severity, Severity::Info);
        assert_eq!(Pieces { extents: 2000, ..pieces }.finding().severity, Severity::Warning);
        assert!(Room::of(Path::new("/")).is_some());
    }

    #[test]
    fn compressed_files_are_passed_over() {
        let (mut pieces, bytes) = (Pieces::default(), 1 << 20);
        pieces.add(bytes, Extents { count: 32, are_encoded: true });
        assert_eq!(pieces, Pieces::default());
        pieces.add(bytes, Extents { count: 32, are_encoded: false });
        assert_eq!(pieces.finding().severity, Severity::Warning);
    }

    #[test]
    fn a_full_file_system_matters_unless_nobody_can_write_to_it() {
        let image = Room { blocks: 0.0, inodes: 1.0, is_read_only: true };
        assert_eq!(image.finding().severity, Severity::Info);
        assert!(image.finding().why.contains("read-only"), "{:?}", image.finding());
        assert_eq!(Room { is_read_only: false, ..image }.finding().severity, Severity::Critical);
        let low = Room { blocks: 0.5, inodes: 0.04, is_read_only: false };
        assert_eq!(low.finding().severity, Severity::Warning);
        assert_eq!(Room { inodes: 0.5, ..low }.finding().severity, Severity::Info);
    }
}
