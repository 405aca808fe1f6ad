//! A volume, its mounts, and programs run against them, all gone with the test.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, Uid, kill_process};
use serde_json::{Value as Json, json};

pub const BINARY: &str = env!("CARGO_BIN_EXE_holdfast");

/// A directory for one test, with a volume at `vol`.
pub struct Lab {
    pub dir: PathBuf,
    /// Longest that a mount may live before its connection is aborted.
    pub patience: Duration,
}

impl Lab {
    /// `None`, with a line that says so, where nothing can be mounted.
    pub fn new() -> Option<Self> {
        let lab = Self::without_volume()?;
        lab.holdfast(&["format", "vol"]).expect_success();
        Some(lab)
    }

    pub fn without_volume() -> Option<Self> {
        if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            println!("SKIPPED: mounting needs root and /dev/fuse");
            return None;
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("holdfast-mounts-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).expect("a directory of its own");
        Some(Self { dir: std::fs::canonicalize(dir).expect("it exists"), patience: PATIENCE })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn holdfast(&self, arguments: &[&str]) -> Ended {
        self.run(BINARY, arguments)
    }

    /// Runs a program here, [`PATIENCE`] at most.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Ended {
        let mut command = self.command(program);
        Ended::of(command.args(arguments).output().expect("timeout(1) is there"), program)
    }

    /// Runs a program of a mount. It is busy for a moment where another test starts a child, which has copies of all descriptors until it
    /// executes, that for writing the program among them.
    pub fn run_written(&self, program: &Path) -> Ended {
        let deadline = Instant::now() + BUSY_MAX;
        loop {
            let ended = self.run(program.to_str().expect("utf-8"), &[]);
            // As timeout(1) says it.
            let is_busy = ended.code == 126 && ended.err.contains("Text file busy");
            if !is_busy || Instant::now() > deadline {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Runs lines of sh(1) here that end at the first failure.
    pub fn sh(&self, script: &str) -> Ended {
        let mut command = self.command("sh");
        Ended::of(command.args(["-euc", script]).output().expect("timeout(1) is there"), script)
    }

    /// Runs lines of sh(1) as root of a mount namespace of its own: what it mounts and covers there, mount
    /// table and device of FUSE included, nobody else sees.
    pub fn sh_apart(&self, script: &str) -> Ended {
        let script = format!("{APART}{script}");
        let mut command = self.command("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-euc", &script]);
        Ended::of(command.env("HOLDFAST", BINARY).output().expect("timeout(1) is there"), &script)
    }

    /// A program that is killed after [`PATIENCE`], in this directory, with what it may expect around it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &PATIENCE.as_secs().to_string(), program]);
        command.current_dir(&self.dir).env("HOME", &self.dir).env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// Mounts the volume at `name`.
    pub fn mount(&self, name: &str) -> Mount {
        self.mount_with(name, "rw")
    }

    pub fn mount_with(&self, name: &str, options: &str) -> Mount {
        std::fs::create_dir_all(self.path(name)).expect("made");
        self.holdfast(&["mount", "vol", name, "-o", options]).expect_success();
        Mount::of(self, "vol", name)
    }

    pub fn status(&self) -> Json {
        self.holdfast(&["status", "vol", "--json"]).json()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            eprintln!("{} is left behind: {error}", self.dir.display());
        }
    }
}

/// A mount and the process behind it; both are gone after the drop.
pub struct Mount {
    pub root: PathBuf,
    pub pid: Pid,
    _call_off: Sender<()>,
}

impl Mount {
    /// Takes charge of a mount of `volume` that was made by other means.
    pub fn of(lab: &Lab, volume: &str, name: &str) -> Self {
        let root = lab.path(name);
        let status = lab.holdfast(&["status", volume, "--json"]).json();
        let nodes = status["nodes"].as_array().expect("a list");
        // A node that was killed at the same place may not be forgotten yet.
        let own = nodes.iter().rev().find(|node| node["mountpoint"] == root.to_str().expect("utf-8"));
        let pid = own.and_then(|node| node["pid"].as_i64()).expect("the node tells its process");
        let pid = Pid::from_raw(pid as i32).expect("not 0");
        let (call_off, called_off) = channel::<()>();
        let (watched, patience) = (root.clone(), lab.patience);
        std::thread::spawn(move || {
            if called_off.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                eprintln!("watchdog: aborting the connection of {}", watched.display());
                // Ends what is in progress, even where it does not unmount.
                _ = rustix::mount::unmount(&watched, UnmountFlags::FORCE);
            }
        });
        Self { root, pid, _call_off: call_off }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Whether the process runs; one that nobody has waited for yet does not.
    pub fn is_alive(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_pid()));
        stat.is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("it runs");
    }

    pub fn wait_for_end(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.is_alive() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// `holdfast umount`, which has to succeed.
    pub fn unmount(self, lab: &Lab) {
        lab.holdfast(&["umount", self.root.to_str().expect("utf-8")]).expect_success();
        assert!(!self.is_alive(), "the node has ended when umount returns");
    }

    pub fn counters(&self, lab: &Lab) -> Json {
        lab.holdfast(&["stat", self.root.to_str().expect("utf-8"), "--json"]).json()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        _ = rustix::mount::unmount(&self.root, UnmountFlags::DETACH);
        if !self.wait_for_end(Duration::from_secs(10)) {
            eprintln!("the node of {} does not end; killing it", self.root.display());
            _ = kill_process(self.pid, Signal::KILL);
        }
    }
}

/// What a program left behind.
pub struct Ended {
    pub what: String,
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ended {
    fn of(output: Output, what: &str) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().unwrap_or(-1);
        Self { what: what.to_owned(), code, out: text(&output.stdout), err: text(&output.stderr) }
    }

    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(self.code == 0, "exit code {} of\n{}\n{}{}", self.code, self.what, self.out, self.err);
        self
    }

    #[track_caller]
    pub fn json(self) -> Json {
        serde_json::from_str(&self.expect_success().out).expect("valid JSON")
    }
}

/// A process that does one thing with files after the other, as told: a user at one mount.
pub struct Partner {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Partner {
    /// Starts one that works in `dir`.
    pub fn start(dir: &Path) -> Self {
        Self::start_by(Command::new(PYTHON), dir)
    }

    /// Starts one as the user `nobody`.
    pub fn start_as_nobody(dir: &Path) -> Self {
        Self::start_as_nobody_with(&[], dir)
    }

    /// The same with capabilities: options of setpriv(1).
    pub fn start_as_nobody_with(capabilities: &[&str], dir: &Path) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(capabilities).arg(PYTHON);
        Self::start_by(command, dir)
    }

    fn start_by(mut command: Command, dir: &Path) -> Self {
        command.args(["-u", "-c", include_str!("partner.py")]).arg(dir);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 is installed");
        let orders = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, orders, answers }
    }

    /// Has it done; returns the result, or the name of the errno.
    #[track_caller]
    pub fn ask(&mut self, order: &str, arguments: &[Json]) -> Result<Json, String> {
        self.tell(order, arguments);
        self.answer()
    }

    /// As [`ask`](Self::ask) where nothing may go wrong.
    #[track_caller]
    pub fn must(&mut self, order: &str, arguments: &[Json]) -> Json {
        self.ask(order, arguments).unwrap_or_else(|error| panic!("{order} {arguments:?}: {error}"))
    }

    /// Only says it; [`answer`](Self::answer) waits.
    pub fn tell(&mut self, order: &str, arguments: &[Json]) {
        writeln!(self.orders, "{}", json!([order, arguments])).expect("it listens");
    }

    #[track_caller]
    pub fn answer(&mut self) -> Result<Json, String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        let answer: Json = serde_json::from_str(&line).unwrap_or_else(|_| panic!("it answers {line:?}"));
        match answer.get("errno") {
            Some(errno) => Err(errno.as_str().expect("a name").to_owned()),
            None => Ok(answer["result"].clone()),
        }
    }

    /// Waits for its end; returns the signal that ended it.
    pub fn ended_by(&mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        self.child.wait().expect("our child").signal()
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Does something as an ordinary user.
pub fn as_user<T: Send>(user: u32, what: impl FnOnce() -> T + Send) -> T {
    let user = Uid::from_raw(user);
    std::thread::scope(|scope| {
        let done = scope.spawn(|| {
            // Of this thread alone.
            rustix::thread::set_thread_res_uid(user, user, user).expect("root may");
            what()
        });
        done.join().expect("it returns")
    })
}

/// As [`Lab::run_written`], where a program is started by other means.
pub fn unless_busy<T>(mut start: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    let deadline = Instant::now() + BUSY_MAX;
    loop {
        match start() {
            Err(error)
                if error.kind() == std::io::ErrorKind::ExecutableFileBusy && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            started => return started,
        }
    }
}

const BUSY_MAX: Duration = Duration::from_secs(60);

#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The system's: what is first in a path may be out of reach of other users.
pub const PYTHON: &str = "/usr/bin/python3";
/// Longest that a program may run, and a mount may live unless its lab says otherwise. It only ends hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// The tables that mount(8) keeps in /run, and the FUSE device with its usual mode, for one namespace.
const APART: &str = r#"
# Copies of mounts elsewhere would keep their nodes from ending.
for try in $(seq 100); do
    copies=$(awk '$3 ~ /^fuse/ { print $2 }' /proc/mounts)
    [ -n "$copies" ] || break
    # One whose mount point is removed elsewhere meanwhile is gone already.
    echo "$copies" | xargs umount -i -l 2> /dev/null || true
done
[ -z "$copies" ] || { echo "these stay: $copies" >&2; exit 9; }
mkdir -p .apart
mount -t tmpfs -o mode=755 apart .apart
mkdir .apart/run
[ ! -d /run/mount ] || mount --bind .apart/run /run/mount
mknod .apart/fuse c 10 229
chmod 666 .apart/fuse
mount --bind .apart/fuse /dev/fuse
"#;
