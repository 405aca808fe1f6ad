//! Command line: each command and flag once; help and completions come from here.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::units;

/// Holdfast, a cluster file system: one volume, many mounts, one coherent tree.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, arg_required_else_help = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a volume in a new or empty directory
    Format(FormatArgs),
    /// Mount a volume; returns when the mount is ready
    Mount(MountArgs),
    /// Unmount; returns when everything is flushed
    Umount(UmountArgs),
    /// Show who has a volume mounted, its master and its space
    Status(StatusArgs),
    /// Show a mount's counters, first since the mount, then per interval
    Stat(StatArgs),
    /// Change options of a mount while it is in use, or show them
    Set(SetArgs),
    /// Check a volume, of a mounted one what it was at one moment; repair what needs no guess
    Fsck(FsckArgs),
    /// Read everything a volume holds, mounted or not, and compare it with its checksums
    Scrub(ScrubArgs),
    /// Show what users, groups and directory trees use of a mounted volume, and limit it
    Quota(QuotaArgs),
    /// Write all metadata of an unmounted volume as text
    Dump(DumpArgs),
    /// Read metadata written by `dump` into an unmounted volume whose metadata are empty
    Load(LoadArgs),
    /// Watch how long I/O takes on any file system or block device, layer by layer
    Watch(WatchArgs),
    /// Measure how fast a file system is, any file system, beside a local one and from several mount points
    Bench(BenchArgs),
    /// Say why a file system is slow: storage, network, locks, cache, or itself
    Doctor(DoctorArgs),
    /// Install this binary, the helpers of mount(8) and umount(8), manual pages and completions
    Install(InstallArgs),
    /// Write manual pages into a directory
    Man(ManArgs),
    /// Print completions of a shell
    Completions(CompletionsArgs),
    /// Look after the kernel's caches of a mount: how a node starts its guard
    #[command(hide = true)]
    Guard(GuardArgs),
    /// Touch the targets of a watch: how `watch` samples without being stuck with what it samples
    #[command(hide = true)]
    WatchWorker,
    /// Make the system calls of a benchmark
    #[command(hide = true)]
    BenchWorker,
    /// Ask a mount for its space: how commands find out whether it is served, without being stuck with it
    #[command(hide = true)]
    AskMount(AskMountArgs),
}

/// Arguments of `ask-mount`.
#[derive(Debug, clap::Args)]
pub struct AskMountArgs {
    /// The mount point
    pub mountpoint: PathBuf,
}

/// Arguments of `format`.
#[derive(Debug, clap::Args)]
pub struct FormatArgs {
    /// Directory of the volume, new or empty, on a local file system
    pub dir: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Size of a segment of file data; by default a 64th of the file system, 1M to 64M
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub segment_size: Option<u64>,
    /// Files up to this size are kept in the metadata
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = size)]
    pub inline_size: u64,
}

/// Arguments of `mount`.
#[derive(Debug, clap::Args)]
#[command(after_help = crate::options::HELP)]
pub struct MountArgs {
    /// Directory of the volume
    pub volume: PathBuf,
    /// Where to mount it
    pub mountpoint: PathBuf,
    /// Mount options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Stay in the foreground and log to the terminal
    #[arg(short = 'f', long)]
    pub foreground: bool,
    /// Says "ready" or "error TEXT" on standard output and leaves the terminal: how `mount` runs itself
    /// in the background
    #[arg(long, hide = true, conflicts_with = "foreground")]
    pub report_ready: bool,
}

/// Arguments of `guard`. What it needs comes from the node, by its standard input.
#[derive(Debug, clap::Args)]
pub struct GuardArgs {
    /// The mount point, for those who look at the list of processes
    pub mountpoint: PathBuf,
}

/// Arguments of `umount`.
#[derive(Debug, clap::Args)]
pub struct UmountArgs {
    /// The mount point
    pub mountpoint: PathBuf,
    /// Longest time to wait for the flush
    #[arg(long, value_name = "SEC", default_value_t = 300, value_parser = clap::value_parser!(u64).range(..=YEAR_SECS))]
    pub timeout: u64,
}

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// Directory of the volume, or where it is mounted
    pub volume: PathBuf,
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `stat`.
#[derive(Debug, clap::Args)]
pub struct StatArgs {
    /// The mount point
    pub mountpoint: PathBuf,
    /// Print again every SEC seconds what changed
    #[arg(short = 't', value_name = "SEC", value_parser = seconds)]
    pub interval: Option<std::time::Duration>,
    /// Stop after COUNT prints; without -t, one second apart
    #[arg(short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Show rows that are zero too
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Print JSON, one document per line
    #[arg(long, conflicts_with = "prometheus")]
    pub json: bool,
    /// Print the Prometheus text format; always since the mount
    #[arg(long)]
    pub prometheus: bool,
}

/// Arguments of `set`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Changes count from the next request on, until the mount ends; to keep them give the option to `mount` or in fstab. \
See `holdfast mount --help` for what the options mean. Exit codes: 0 good, 2 wrong usage or could not be set."
)]
pub struct SetArgs {
    /// The mount point
    pub mountpoint: PathBuf,
    /// lazysize=on, lazysize=off, nomtime=on, nomtime=off; none to show what is set
    #[arg(value_name = "NAME=on|off", value_parser = crate::commands::set::setting)]
    pub settings: Vec<String>,
    /// Print what is set then as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `quota`.
#[derive(Debug, clap::Args)]
pub struct QuotaArgs {
    /// What to do
    #[command(subcommand)]
    pub command: QuotaCommand,
}

/// What `quota` does.
#[derive(Debug, Subcommand)]
pub enum QuotaCommand {
    /// Show what accounts use, and their limits
    Report(QuotaReportArgs),
    /// Set limits of a user, a group or a tree; those not given stay, 0 takes one away. Root is counted and not bound
    Set(QuotaSetArgs),
    /// Charge a directory and all below it to a tree of its own, which may have limits
    Tree(QuotaTreeArgs),
}

/// Arguments of `quota report`.
#[derive(Debug, clap::Args)]
pub struct QuotaReportArgs {
    /// Directory of the volume, or a mount point of it
    pub volume: PathBuf,
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `quota set`.
#[derive(Debug, clap::Args)]
pub struct QuotaSetArgs {
    /// Directory of the volume, or a mount point of it
    pub volume: PathBuf,
    /// user:NAME, group:NAME or tree:DIR; numbers instead of names are taken too
    pub account: String,
    /// The most bytes that may be stored
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub bytes: Option<u64>,
    /// Bytes that may be exceeded for the time of grace
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub soft_bytes: Option<u64>,
    /// The most inodes
    #[arg(long, value_name = "COUNT")]
    pub inodes: Option<u64>,
    /// Inodes that may be exceeded for the time of grace
    #[arg(long, value_name = "COUNT")]
    pub soft_inodes: Option<u64>,
    /// Time of grace, a week unless it was set before
    #[arg(long, value_name = "SEC", value_parser = seconds)]
    pub grace: Option<std::time::Duration>,
}

/// Arguments of `quota tree`.
#[derive(Debug, clap::Args)]
pub struct QuotaTreeArgs {
    /// The directory, on a mount
    pub dir: PathBuf,
    /// Charge it and all below it to no tree
    #[arg(long)]
    pub remove: bool,
}

/// Arguments of `fsck`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 no fault, 1 all faults repaired, 4 faults left, 8 could not be checked, \
16 wrong usage."
)]
pub struct FsckArgs {
    /// Directory of the volume, or a mount point
    pub volume: PathBuf,
    /// Read all file data and compare it with its checksums
    #[arg(long)]
    pub data: bool,
    /// Repair what needs no guess: counts, files without a name that dead nodes had open, unused segments. Only where nobody
    /// has the volume mounted
    #[arg(long)]
    pub repair: bool,
    /// Show what dead nodes left behind too, which the next mount sees to
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `scrub`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 no damage, 4 damage, 8 could not be read, 16 wrong usage. Nothing is changed: restore \
the files named from a backup. `fsck` compares the records of an unmounted volume with each other as well."
)]
pub struct ScrubArgs {
    /// Directory of the volume, or where it is mounted
    pub volume: PathBuf,
    /// Read at most so many MB (10^6 bytes) a second; by default 50 of a mounted volume, else as fast as it goes
    #[arg(long, value_name = "MB/S", value_parser = rate)]
    pub rate: Option<f64>,
    /// Show damage to bytes that no file needs too
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `dump`.
#[derive(Debug, clap::Args)]
pub struct DumpArgs {
    /// Directory of the volume
    pub volume: PathBuf,
    /// Write to FILE, which must not exist, instead of standard output
    #[arg(short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `load`.
#[derive(Debug, clap::Args)]
pub struct LoadArgs {
    /// Directory of the volume; its `meta` directory must be empty
    pub volume: PathBuf,
    /// Read from FILE instead of standard input
    pub input: Option<PathBuf>,
}

/// Arguments of `watch`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Nothing of Holdfast is needed, and root only where the kernel asks for it. Exit codes: 0 all targets well \
at the end, 1 an I/O pending or failing, 3 could not be watched; with --check those of Nagios: 0 good, 1 warning, 2 critical, \
3 unknown."
)]
pub struct WatchArgs {
    /// A file, a directory (a nameless file of the watch's own is measured) or a block device (only read); LABEL
    /// names it in outputs
    #[arg(value_name = "TARGET[=LABEL]", required_unless_present_any = ["replay", "socket"])]
    pub targets: Vec<std::ffi::OsString>,
    /// From one I/O of a target to its next; 3s, of a check that samples itself 250ms
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub interval: Option<std::time::Duration>,
    /// What is done: read, write, flock, stat or create
    #[arg(long, value_name = "OP", default_value = "read", value_parser = op)]
    pub op: probe::Op,
    /// Bytes of a read or write; more where direct I/O needs it
    #[arg(long, value_name = "SIZE", default_value = "512", value_parser = size)]
    pub size: u64,
    /// Samples that davg, dstd_dev, dmin and dmax look back on
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub window: usize,
    /// End after this time; otherwise by SIGINT or SIGTERM, a check after 5s
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub duration: Option<std::time::Duration>,
    /// How the targets stand on one another, by labels, lowest layer first, like leg1,leg2:volume:files
    #[arg(long, value_name = "LAYERS")]
    pub stack: Option<String>,
    /// Print one JSON document at the end
    #[arg(long, conflicts_with = "check")]
    pub json: bool,
    /// Draw a graph into FILE, an SVG or (with rsvg-convert) a PNG, at the end
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Serve metrics for Prometheus at ADDR, like 127.0.0.1:9700, as /metrics
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Where checks ask this watch; with --check, the watch to ask
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Answer as a plugin of Nagios, at once where a watch of the targets runs, else after sampling
    #[arg(long, conflicts_with_all = ["record", "replay", "plot", "listen"])]
    pub check: bool,
    /// Warning where the figure is not in RANGE: 20ms, 10ms:, ~:1s, 1ms:20ms; @ turns it around
    #[arg(short = 'w', long, value_name = "RANGE", requires = "check", allow_hyphen_values = true)]
    pub warning: Option<probe::Range>,
    /// Critical where the figure is not in RANGE
    #[arg(short = 'c', long, value_name = "RANGE", requires = "check", allow_hyphen_values = true)]
    pub critical: Option<probe::Range>,
    /// Figure to compare: last, davg, dmax, emax, p99 or max
    #[arg(long, value_name = "NAME", default_value = "emax", value_parser = figure)]
    pub figure: probe::Figure,
    /// Write every event to FILE, which must not exist
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Show what FILE recorded instead of watching
    #[arg(long, value_name = "FILE", conflicts_with_all = ["targets", "record", "duration", "stack", "listen", "socket"])]
    pub replay: Option<PathBuf>,
}

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "What is tried is small and bounded in time, made in a directory of its own below PATH and removed at the end; nothing else is \
changed. Nothing of Holdfast is needed, and root only to see all. Exit codes: 0 healthy, 1 warning, 2 critical, 3 could not tell."
)]
pub struct DoctorArgs {
    /// A directory of the file system that seems slow, best the very one
    pub path: PathBuf,
    /// The same directory through another node's mount
    #[arg(long, value_name = "PATH2", conflicts_with = "passive")]
    pub peer: Option<PathBuf>,
    /// Only look; try nothing and write nothing
    #[arg(long)]
    pub passive: bool,
    /// Look at uncached inodes too: the kernel's caches are emptied for it, of the whole machine
    #[arg(long, conflicts_with = "passive")]
    pub cold: bool,
    /// Write all that was found to FILE, which must not exist
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Compare with what was saved on a better day
    #[arg(long, value_name = "FILE", conflicts_with = "passive")]
    pub against: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Everything is made in a directory of the benchmark's own, below the first mount point, and removed at the end. \
Nothing of Holdfast is needed, and root only to empty the kernel's caches. Exit codes: 0 measured, 1 what was seen was old (coherence) or a figure is worse (compare), 3 not measured."
)]
pub struct BenchArgs {
    /// Which benchmark
    #[command(subcommand)]
    pub what: BenchCommand,
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Make, look at, list and remove names in one directory: how many in a second
    Create(BenchCreateArgs),
    /// Look at every inode of a tree: cold, warm, from another mount point, and after changes there
    Walk(BenchWalkArgs),
    /// Unpack a source tree, look at it by `du` again and again and from another mount point, remove it
    Tar(BenchTarArgs),
    /// Time single calls: read, write+fsync, create+unlink, rename, stat, flock, fcntl
    Latency(BenchLatencyArgs),
    /// Time single calls that two mount points make by turns, in one directory, on one file
    Pingpong(BenchLatencyArgs),
    /// Do things through one mount point and look at once through another: how often is what it shows old?
    Coherence(BenchCoherenceArgs),
    /// Write and read one long file, from the raw device up to the second node: what does each layer leave?
    Ladder(BenchLadderArgs),
    /// Run all of them, and write the reports as JSON, Markdown and a page with graphs
    All(BenchAllArgs),
    /// Compare two reports: which differences exceed those between runs?
    Compare(BenchCompareArgs),
}

impl BenchCommand {
    /// Where a profile goes.
    pub fn profile(&self) -> Option<&std::path::Path> {
        let common = match self {
            Self::Create(args) => &args.common,
            Self::Walk(args) => &args.common,
            Self::Tar(args) => &args.common,
            Self::Latency(args) | Self::Pingpong(args) => &args.common,
            Self::All(args) => &args.common,
            Self::Coherence(_) | Self::Ladder(_) | Self::Compare(_) => return None,
        };
        common.profile.as_deref()
    }
}

/// What all benchmarks take.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchCommonArgs {
    /// A mount point, or a directory below it; several of one file system, a node each
    #[arg(value_name = "DIR", required = true)]
    pub mounts: Vec<PathBuf>,
    /// A directory of a local file system: the same is done there by turns, and the ratio shown
    #[arg(long, value_name = "DIR")]
    pub local: Option<PathBuf>,
    /// How often; a median of fewer than 3 says little
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Write what all CPUs did meanwhile to FILE, which must not exist, as perf(1) records it
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
}

/// Arguments of `bench create`.
#[derive(Debug, clap::Args)]
pub struct BenchCreateArgs {
    /// See there
    #[command(flatten)]
    pub common: BenchCommonArgs,
    /// Names of each kind, of all processes together
    #[arg(long, value_name = "N", default_value_t = 150_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub files: u64,
    /// What is made: mknod, create, mkdir, symlink, link
    #[arg(long, value_name = "KIND", value_delimiter = ',', default_value = "mknod,create,mkdir,symlink,link", value_parser = kind)]
    pub kinds: Vec<probe::bench::Kind>,
    /// Processes at once; they take the mount points by turns
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub processes: u32,
    /// Each process in a directory of its own
    #[arg(long)]
    pub own: bool,
}

/// Arguments of `bench walk`.
#[derive(Debug, clap::Args)]
pub struct BenchWalkArgs {
    /// See there
    #[command(flatten)]
    pub common: BenchCommonArgs,
    /// Regular files of the tree
    #[arg(long, value_name = "N", default_value_t = 393_604, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub files: u64,
    /// So many in each directory
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub per_directory: u64,
    /// Make no tree: each DIR, and that of --local, is the tree to walk, which is only looked at
    #[arg(long, conflicts_with_all = ["files", "per_directory"])]
    pub existing: bool,
    /// See there
    #[command(flatten)]
    pub cold: BenchColdArgs,
}

/// What benchmarks with a cold step take.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchColdArgs {
    /// A command for sh(1) that mounts the file system anew, run before what is to be cold: its daemon then remembers nothing
    #[arg(long, value_name = "COMMAND")]
    pub remount: Option<String>,
}

/// Arguments of `bench tar`.
#[derive(Debug, clap::Args)]
pub struct BenchTarArgs {
    /// See there
    #[command(flatten)]
    pub common: BenchCommonArgs,
    /// An archive for tar(1); without it a tree like the source of a large C program is written
    #[arg(long, value_name = "FILE", conflicts_with = "files")]
    pub archive: Option<PathBuf>,
    /// Files of that tree
    #[arg(long, value_name = "N", default_value_t = 16_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub files: u64,
    /// See there
    #[command(flatten)]
    pub cold: BenchColdArgs,
}

/// Arguments of `bench latency` and `bench pingpong`.
#[derive(Debug, clap::Args)]
pub struct BenchLatencyArgs {
    /// See there
    #[command(flatten)]
    pub common: BenchCommonArgs,
    /// Calls of each kind in a run
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub count: u64,
    /// Which: read, write+fsync, create+unlink, rename, stat, flock, fcntl; all that make sense
    #[arg(long, value_name = "CALL", value_delimiter = ',', value_parser = call)]
    pub calls: Option<Vec<probe::bench::Call>>,
}

/// Arguments of `bench coherence`.
#[derive(Debug, clap::Args)]
pub struct BenchCoherenceArgs {
    /// Two mount points of one file system, or directories below them
    #[arg(value_name = "DIR", required = true, num_args = 1..=2)]
    pub mounts: Vec<PathBuf>,
    /// How often each kind of change is tried
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rounds: u64,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench ladder`.
#[derive(Debug, clap::Args)]
pub struct BenchLadderArgs {
    /// Mount points of the file system in question, or directories below them: one, or two nodes'
    #[arg(value_name = "DIR", required = true, num_args = 1..=2)]
    pub mounts: Vec<PathBuf>,
    /// A directory of a local file system on the device
    #[arg(long, value_name = "DIR")]
    pub local: Option<PathBuf>,
    /// The raw device, which is only read; the lowest beneath the file systems otherwise
    #[arg(long, value_name = "DEVICE", conflicts_with = "destroy_data")]
    pub device: Option<PathBuf>,
    /// The raw device, which is WRITTEN OVER: all that it holds is lost. Refused if it is mounted, held or carries a known signature
    #[arg(long, value_name = "DEVICE")]
    pub destroy_data: Option<PathBuf>,
    /// A layer between the local and the file system in question, the lowest first: a device, which is only read, or a directory
    #[arg(long = "layer", value_name = "NAME=PATH", value_parser = layer)]
    pub layers: Vec<probe::bench::Layer>,
    /// A directory of the same file system that is mounted by one node only, or without its locks
    #[arg(long, value_name = "DIR")]
    pub alone: Option<PathBuf>,
    /// So much is written and read at each rung, in whole MiB; more than the caches of a storage controller tells more
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = stream_size)]
    pub size: u64,
    /// How often; a median of fewer than 3 says little
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench all`.
#[derive(Debug, clap::Args)]
pub struct BenchAllArgs {
    /// See there
    #[command(flatten)]
    pub common: BenchCommonArgs,
    /// Of the usual numbers of names, files and calls: 0.1 takes a tenth
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = scale)]
    pub scale: f64,
    /// Write NAME.json, NAME.md and NAME.html, which must not exist
    #[arg(long, value_name = "NAME", default_value = "holdfast-bench")]
    pub out: PathBuf,
    /// See there
    #[command(flatten)]
    pub cold: BenchColdArgs,
}

/// Arguments of `bench compare`.
#[derive(Debug, clap::Args)]
pub struct BenchCompareArgs {
    /// What `bench ... --json` printed before
    pub first: PathBuf,
    /// And what it printed after
    pub second: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `install`.
#[derive(Debug, clap::Args)]
pub struct InstallArgs {
    /// The binary goes to PREFIX/bin, manual pages and completions below PREFIX/share
    #[arg(long, default_value = "/usr/local")]
    pub prefix: PathBuf,
    /// Where mount(8) looks for its helpers
    #[arg(long, value_name = "DIR", default_value = "/sbin")]
    pub helper_dir: PathBuf,
    /// Remove what install put there
    #[arg(long)]
    pub remove: bool,
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// An existing directory, for holdfast.1 and a page for each command
    pub dir: PathBuf,
}

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: clap_complete::Shell,
}

fn size(text: &str) -> Result<u64, String> {
    units::parse_size(text).ok_or_else(|| "expected a size like 4096, 64K, 64M or 1G".to_owned())
}

fn stream_size(text: &str) -> Result<u64, String> {
    size(text).ok().filter(|size| *size >= 1 << 20).ok_or_else(|| "expected a size of 1M at least".to_owned())
}

fn layer(text: &str) -> Result<probe::bench::Layer, String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok(probe::bench::Layer { name: name.to_owned(), path: PathBuf::from(path) })
        }
        _ => Err("expected NAME=PATH".to_owned()),
    }
}

fn seconds(text: &str) -> Result<std::time::Duration, String> {
    let parsed = units::parse_seconds(text).filter(is_a_time);
    parsed.ok_or_else(|| "expected seconds above zero, like 1 or 0.5, and no more than a year".to_owned())
}

fn time(text: &str) -> Result<std::time::Duration, String> {
    let parsed = probe::parse_duration(text).filter(is_a_time);
    parsed
        .ok_or_else(|| "expected a time above zero, like 3s, 500ms or 2m, and no more than a year".to_owned())
}

/// Whether somebody can wait for so long: clocks end somewhere.
fn is_a_time(time: &std::time::Duration) -> bool {
    !time.is_zero() && time.as_secs() <= YEAR_SECS
}

const YEAR_SECS: u64 = 366 * 86_400;

fn scale(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok().filter(|scale| (0.0001..=100.0).contains(scale));
    parsed.ok_or_else(|| "expected a number from 0.0001 to 100".to_owned())
}

fn call(text: &str) -> Result<probe::bench::Call, String> {
    let names = || probe::bench::Call::ALL.map(probe::bench::Call::name).join(", ");
    probe::bench::Call::of_name(text).ok_or_else(|| format!("expected one of {}", names()))
}

fn kind(text: &str) -> Result<probe::bench::Kind, String> {
    let names = || probe::bench::Kind::ALL.map(probe::bench::Kind::name).join(", ");
    probe::bench::Kind::of_name(text).ok_or_else(|| format!("expected one of {}", names()))
}

fn figure(text: &str) -> Result<probe::Figure, String> {
    let names = || probe::Figure::ALL.map(probe::Figure::name).join(", ");
    probe::Figure::of_name(text).ok_or_else(|| format!("expected one of {}", names()))
}

fn op(text: &str) -> Result<probe::Op, String> {
    probe::Op::of_name(text)
        .ok_or_else(|| format!("expected one of {}", probe::Op::ALL.map(probe::Op::name).join(", ")))
}

fn rate(text: &str) -> Result<f64, String> {
    let parsed = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    parsed.ok_or_else(|| "expected megabytes a second above zero, like 50 or 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::{CommandFactory, Parser};

    #[test]
    fn definitions_are_consistent() {
        super::Args::command().debug_assert();
    }

    /// Goal: what the documentation tells to type is understood. Method: each line of its examples that begins with our name is parsed.
    #[test]
    fn commands_in_the_documentation_are_understood() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut pages = vec![root.join("README.md")];
        add_pages(&root.join("docs"), &mut pages);
        let mut count = 0;
        for page in pages {
            let text = std::fs::read_to_string(&page).unwrap();
            for line in text.lines().filter(|line| line.starts_with("holdfast ")) {
                if let Err(error) = super::Args::try_parse_from(words(line)) {
                    panic!("{}: {line}\n{error}", page.display());
                }
                count += 1;
            }
        }
        assert!(count > 40, "{count}");
    }

    fn add_pages(dir: &Path, pages: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => add_pages(&path, pages),
                false if path.extension().is_some_and(|extension| extension == "md") => pages.push(path),
                false => {}
            }
        }
    }

    /// As a shell takes them, up to a comment, a pipe or a redirection.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut is_quoted = false;
        for letter in line.chars() {
            match letter {
                '\'' => is_quoted = !is_quoted,
                '#' | '|' | '>' if !is_quoted => break,
                ' ' if !is_quoted => words.push(String::new()),
                letter => words.last_mut().unwrap().push(letter),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }
}
