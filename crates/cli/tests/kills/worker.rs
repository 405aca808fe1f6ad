//! One process at one mount: does what a seed draws, checks what it finds of its own exactly, writes all of it down.
//!
//! Its own names begin with its number, in a directory of its own and in one that all share; nobody else changes them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock, flock};

use crate::content::{content, owner, record, records, versions};
use crate::journal::{Op, Saw, Writer};
use crate::model::{Kind, Names, rename};
use crate::stall::now_us;

/// Who a process is and where.
#[derive(Clone, Debug)]
pub struct Spec {
    pub root: PathBuf,
    /// Outside of the volume.
    pub local: PathBuf,
    pub process: u64,
    pub processes: u64,
    /// How many of its number there were before.
    pub life: u64,
    /// Of the mount.
    pub node: u64,
    pub seed: u64,
}

impl Spec {
    /// Tells its files and records from those of others and of its earlier lives.
    pub fn writer(&self) -> u64 {
        self.process * 100_000 + self.life
    }

    pub fn journal(&self) -> PathBuf {
        self.local.join(format!("journal-{}-{}", self.process, self.life))
    }

    /// Made when it has its place, and its operations count.
    pub fn ready(&self) -> PathBuf {
        self.local.join(format!("ready-{}-{}", self.process, self.life))
    }

    pub fn to_text(&self) -> String {
        let (root, local) = (self.root.display(), self.local.display());
        let Self { process, processes, life, node, seed, .. } = self;
        format!("{root}\t{local}\t{process}\t{processes}\t{life}\t{node}\t{seed}")
    }

    fn from_text(text: &str) -> Self {
        let words: Vec<&str> = text.split('\t').collect();
        let number = |at: usize| words[at].parse().expect("a number");
        Self {
            root: words[0].into(),
            local: words[1].into(),
            process: number(2),
            processes: number(3),
            life: number(4),
            node: number(5),
            seed: number(6),
        }
    }
}

/// The variable that makes this program a process of the load.
pub const WORKER: &str = "HOLDFAST_KILLS_WORKER";

/// No test: a process of the load.
#[test]
fn be_worker() {
    if let Ok(text) = std::env::var(WORKER) {
        Worker::new(Spec::from_text(&text)).work();
    }
}

struct Worker {
    spec: Spec,
    rng: Draws,
    journal: Writer,
    names: Names,
    /// Length and version.
    files: BTreeMap<u64, (usize, u64)>,
    next: u64,
    /// The file that all append to now: its number, a descriptor, records of ours in it.
    log: Option<(u64, File, u64)>,
}

type Step = io::Result<()>;

impl Worker {
    fn new(spec: Spec) -> Self {
        let journal = Writer::new(&spec.journal());
        let rng = Draws(spec.seed ^ (spec.writer() << 20) | 1);
        Self { spec, rng, journal, names: Names::new(), files: BTreeMap::new(), next: 1, log: None }
    }

    fn work(&mut self) {
        for _ in 0..BEGINNINGS {
            match self.begin() {
                Ok(()) => break,
                // A membership that ends late, after a stop, ends what is under way with an error, once.
                Err(error) if error.raw_os_error() == Some(EIO) => {
                    std::thread::sleep(Duration::from_millis(200))
                }
                Err(error) => return self.journal.lost(&format!("at its beginning: {error}")),
            }
        }
        if self.names.is_empty() {
            return self.journal.lost("at its beginning: nothing but errors");
        }
        File::create(self.spec.ready()).expect("a file outside of the volume");
        let stop = self.spec.local.join("stop");
        while !stop.exists() {
            if let Err(error) = self.step() {
                return self.journal.lost(&error.to_string());
            }
            std::thread::sleep(Duration::from_micros(self.rng.below(4000)));
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.spec.root.join(path)
    }

    fn home(&self) -> String {
        format!("p{}", self.spec.process)
    }

    /// Clears away what an earlier life left, durably.
    fn begin(&mut self) -> Step {
        let home = self.path(&self.home());
        match fs::remove_dir_all(&home) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let own = format!("{}-", self.spec.process);
        for entry in fs::read_dir(self.path("mix"))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&own) {
                if entry.file_type()?.is_dir() {
                    fs::remove_dir_all(entry.path())?;
                } else {
                    fs::remove_file(entry.path())?;
                }
            }
        }
        fs::create_dir(&home)?;
        for dir in [home, self.path("mix"), self.spec.root.clone()] {
            File::open(dir)?.sync_all()?;
        }
        self.names.insert(self.home(), Kind::Directory);
        Ok(())
    }

    fn step(&mut self) -> Step {
        let draw = self.rng.below(100);
        // A sync covers all that its node did: on every other node they are rare, or nothing could ever be lost.
        let is_sync = matches!(draw, 51..56 | 85..87 | 91..97);
        if is_sync && self.spec.node % 2 == 0 && self.rng.below(40) != 0 {
            return self.write();
        }
        match draw {
            0..14 => self.create(),
            14..30 => self.write(),
            30..36 => self.rename(),
            36..40 => self.link(),
            40..46 => self.unlink(),
            46..49 => self.make_directory(),
            49..51 => self.remove_directory(),
            51..56 => self.fsync(),
            56..68 => self.check(),
            68..77 => self.look(),
            77..85 => self.append(),
            85..87 => self.fsync_log(),
            87..91 => self.read_log(),
            91..97 => self.locked(),
            97..98 => self.race(),
            _ => self.unlink_while_open(),
        }
    }

    /// Writes down and does something that has to succeed.
    fn must(&mut self, op: Op, act: impl FnOnce(&Self) -> Step) -> Step {
        self.journal.begin(&op);
        match act(self) {
            Ok(()) => {
                self.journal.end(true);
                Ok(())
            }
            Err(error) => {
                self.journal.end(false);
                Err(io::Error::other(format!("{op:?}: {error}")))
            }
        }
    }

    /// Nobody looks at what every other process makes: its node holds all of it, and has it in its log alone.
    fn is_alone(&self) -> bool {
        self.spec.process % 2 == 1
    }

    fn directories(&self) -> Vec<String> {
        let own =
            self.names.iter().filter(|(_, kind)| **kind == Kind::Directory).map(|(path, _)| path.clone());
        own.chain((!self.is_alone()).then(|| "mix".to_owned())).collect()
    }

    fn any_file(&mut self) -> Option<(String, u64)> {
        let all = self.names.iter().filter_map(|(path, kind)| match kind {
            Kind::File(file) => Some((path.clone(), *file)),
            Kind::Directory => None,
        });
        let all = all.collect::<Vec<_>>();
        (!all.is_empty()).then(|| all[self.rng.below(all.len() as u64) as usize].clone())
    }

    fn new_name(&mut self) -> String {
        let directories = self.directories();
        let dir = &directories[self.rng.below(directories.len() as u64) as usize];
        self.next += 1;
        format!("{dir}/{}-{}", self.spec.process, self.next)
    }

    fn create(&mut self) -> Step {
        if self.names.len() > NAMES_MAX {
            return self.unlink();
        }
        let path = self.new_name();
        self.next += 1;
        let file = (self.spec.writer() << 24) + self.next;
        let len = LENGTHS[self.rng.below(LENGTHS.len() as u64) as usize];
        let bytes = content(file, 1, len);
        self.must(Op::Create(path.clone(), file, len), |own| {
            let mut open = OpenOptions::new().write(true).create_new(true).open(own.path(&path))?;
            open.write_all(&bytes)
        })?;
        self.names.insert(path, Kind::File(file));
        self.files.insert(file, (len, 1));
        Ok(())
    }

    fn write(&mut self) -> Step {
        let Some((path, file)) = self.any_file() else { return Ok(()) };
        let (len, version) = self.files[&file];
        let bytes = content(file, version + 1, len);
        self.must(Op::Write(path.clone(), file, version + 1), |own| {
            OpenOptions::new().write(true).open(own.path(&path))?.write_all_at(&bytes, 0)
        })?;
        self.files.insert(file, (len, version + 1));
        Ok(())
    }

    fn rename(&mut self) -> Step {
        let home = self.home();
        let all: Vec<_> = self.names.keys().filter(|path| **path != home).cloned().collect();
        if all.is_empty() {
            return Ok(());
        }
        let from = all[self.rng.below(all.len() as u64) as usize].clone();
        let is_file = self.names[&from] != Kind::Directory;
        let over =
            if is_file && self.rng.below(3) == 0 { self.any_file().map(|(path, _)| path) } else { None };
        let to = over.unwrap_or_else(|| self.new_name());
        let is_below = to.starts_with(&format!("{from}/"));
        // Two names of one file stay as they are, by POSIX.
        let is_same = self.names.get(&to) == self.names.get(&from);
        if is_below || is_same || to == from {
            return Ok(());
        }
        self.must(Op::Rename(from.clone(), to.clone()), |own| fs::rename(own.path(&from), own.path(&to)))?;
        rename(&mut self.names, &from, &to);
        Ok(())
    }

    fn link(&mut self) -> Step {
        let Some((from, file)) = self.any_file() else { return Ok(()) };
        let to = self.new_name();
        self.must(Op::Link(from.clone(), to.clone()), |own| fs::hard_link(own.path(&from), own.path(&to)))?;
        self.names.insert(to, Kind::File(file));
        Ok(())
    }

    fn unlink(&mut self) -> Step {
        let Some((path, _)) = self.any_file() else { return Ok(()) };
        self.must(Op::Unlink(path.clone()), |own| fs::remove_file(own.path(&path)))?;
        self.names.remove(&path);
        Ok(())
    }

    fn unlink_while_open(&mut self) -> Step {
        let Some((path, file)) = self.any_file() else { return Ok(()) };
        let (len, version) = self.files[&file];
        let open = File::open(self.path(&path))?;
        self.must(Op::Unlink(path.clone()), |own| fs::remove_file(own.path(&path)))?;
        self.names.remove(&path);
        let mut bytes = vec![0; len];
        open.read_exact_at(&mut bytes, 0)?;
        if bytes != content(file, version, len) {
            self.journal.violation(&format!("{path} changed when it was removed while open"));
        }
        Ok(())
    }

    fn make_directory(&mut self) -> Step {
        let path = self.new_name();
        // Deep trees are not the point.
        if path.matches('/').count() > 3 {
            return Ok(());
        }
        self.must(Op::Mkdir(path.clone()), |own| fs::create_dir(own.path(&path)))?;
        self.names.insert(path, Kind::Directory);
        Ok(())
    }

    fn remove_directory(&mut self) -> Step {
        let home = self.home();
        let is_empty = |path: &&String| {
            let inside = format!("{path}/");
            **path != home && !self.names.keys().any(|name| name.starts_with(&inside))
        };
        let directories = self.names.iter().filter(|(_, kind)| **kind == Kind::Directory);
        let Some(path) = directories.map(|(path, _)| path).find(is_empty).cloned() else { return Ok(()) };
        self.must(Op::Rmdir(path.clone()), |own| fs::remove_dir(own.path(&path)))?;
        self.names.remove(&path);
        Ok(())
    }

    fn fsync(&mut self) -> Step {
        let target = if self.rng.below(3) == 0 { Some((self.home(), 0)) } else { self.any_file() };
        let Some((path, file)) = target else { return Ok(()) };
        self.must(Op::Fsync(path.clone(), file), |own| File::open(own.path(&path))?.sync_all())
    }

    /// What is its own must be exactly what it made.
    fn check(&mut self) -> Step {
        if self.rng.below(4) == 0 {
            return self.check_listing();
        }
        let Some((path, file)) = self.any_file() else { return Ok(()) };
        let (len, version) = self.files[&file];
        let links = self.names.values().filter(|kind| **kind == Kind::File(file)).count() as u64;
        let (mut bytes, mut found) = (Vec::new(), (0, 0));
        self.must(Op::Check(path.clone()), |own| {
            let metadata = fs::metadata(own.path(&path))?;
            found = (metadata.len(), metadata.nlink());
            bytes = fs::read(own.path(&path))?;
            Ok(())
        })?;
        if bytes != content(file, version, len) || found != (len as u64, links) {
            let seen = versions(file, &bytes);
            self.journal.violation(&format!(
                "{path} (file {file}): size and links {found:?}, expected {:?}; {} bytes of versions {seen:?}, expected {version}",
                (len, links),
                bytes.len()
            ));
        }
        Ok(())
    }

    fn check_listing(&mut self) -> Step {
        let directories = self.directories();
        let dir = directories[self.rng.below(directories.len() as u64) as usize].clone();
        let mut found = Vec::new();
        self.must(Op::Check(dir.clone()), |own| {
            for entry in fs::read_dir(own.path(&dir))? {
                found.push(entry?.file_name().to_string_lossy().into_owned());
            }
            Ok(())
        })?;
        let own = format!("{}-", self.spec.process);
        found.retain(|name| name.starts_with(&own));
        found.sort();
        let inside = format!("{dir}/");
        let mut expected: Vec<_> = self.names.keys().filter_map(|path| path.strip_prefix(&inside)).collect();
        expected.retain(|name| !name.contains('/'));
        expected.sort_unstable();
        if found != expected {
            self.journal.violation(&format!("{dir} lists {found:?}, expected {expected:?}"));
        }
        Ok(())
    }

    /// Reads a file of another process, and says what it saw.
    fn look(&mut self) -> Step {
        let other = self.rng.below(self.spec.processes) & !1;
        let dir = if self.rng.below(2) == 0 { "mix".to_owned() } else { format!("p{other}") };
        let op = Op::Look(dir.clone());
        self.journal.begin(&op);
        let result = self.look_into(&dir, other);
        self.journal.end(result.is_ok());
        // What is looked at may be removed meanwhile, and its directory too.
        match result {
            Err(error)
                if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::StaleNetworkFileHandle) =>
            {
                Err(io::Error::other(format!("{op:?}: {error}")))
            }
            _ => Ok(()),
        }
    }

    fn look_into(&mut self, dir: &str, other: u64) -> Step {
        let prefix = format!("{other}-");
        let mut names = Vec::new();
        for entry in fs::read_dir(self.path(dir))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&prefix) && entry.file_type()?.is_file() {
                names.push(name);
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        let path = format!("{dir}/{}", names[self.rng.below(names.len() as u64) as usize]);
        let bytes = fs::read(self.path(&path))?;
        let Some(file) = owner(&bytes) else { return Ok(()) };
        match versions(file, &bytes) {
            Ok((version, _)) => self.journal.saw(&Saw::File { path, file, version }),
            Err(error) => self.journal.violation(&format!("{path}: {error}")),
        }
        Ok(())
    }

    fn append(&mut self) -> Step {
        let log = now_us() / LOG_US;
        if self.log.as_ref().is_none_or(|(open, ..)| *open != log) {
            let path = self.path(&format!("logs/{log}"));
            let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
            self.log = Some((log, file, 0));
        }
        let Some((_, file, count)) = self.log.take() else { return Ok(()) };
        let bytes = record(self.spec.writer(), count + 1);
        let result = self.must(Op::Append(log, count + 1), |_| (&file).write_all(&bytes));
        self.log = Some((log, file, count + 1));
        result
    }

    fn fsync_log(&mut self) -> Step {
        let Some((log, file, count)) = self.log.take() else { return Ok(()) };
        let result = self.must(Op::FsyncLog(log), |_| file.sync_all());
        self.log = Some((log, file, count));
        result
    }

    fn read_log(&mut self) -> Step {
        let Some((log, _, count)) = self.log else { return Ok(()) };
        self.journal.begin(&Op::ReadLog(log));
        let path = self.path(&format!("logs/{log}"));
        let result = fs::read(&path);
        if let Ok(bytes) = &result {
            self.judge_log(log, count, bytes);
        }
        self.journal.end(result.is_ok());
        result.map(|_| ())
    }

    fn judge_log(&mut self, log: u64, count: u64, bytes: &[u8]) {
        let found = match records(bytes) {
            Ok(found) => found,
            Err(error) => return self.journal.violation(&format!("log {log}: {error}")),
        };
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for (writer, number) in found {
            let before = last.insert(writer, number).unwrap_or(0);
            if number != before + 1 {
                self.journal.violation(&format!("log {log}: record {number} of {writer} behind {before}"));
            }
        }
        let own = last.get(&self.spec.writer()).copied().unwrap_or(0);
        if own != count {
            self.journal.violation(&format!("log {log}: {own} records of its own, expected {count}"));
        }
        for (writer, record) in last {
            self.journal.saw(&Saw::Record { log, writer, record });
        }
    }

    /// Takes a lock that all nodes take, and counts one up under it.
    fn locked(&mut self) -> Step {
        let how = if self.rng.below(2) == 0 { "flock" } else { "fcntl" };
        self.journal.begin(&Op::Locked(how));
        let result = self.count_up(how);
        self.journal.end(result.is_ok());
        result.map_err(|error| io::Error::other(format!("{how}: {error}")))
    }

    fn count_up(&mut self, how: &'static str) -> Step {
        let file = OpenOptions::new().read(true).write(true).open(self.path(&format!("locks/{how}")))?;
        match how {
            "flock" => flock(&file, FlockOperation::LockExclusive)?,
            _ => fcntl_lock(&file, FlockOperation::LockExclusive)?,
        }
        let referee = Referee::enter(&self.spec, how);
        if let Err(error) = &referee {
            self.journal.violation(&format!("{how}: {error}"));
        }
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0)?;
        let found = u64::from_le_bytes(bytes);
        let (intent, acked) = (self.number_of(how, "intent"), self.number_of(how, "acked"));
        if found != intent && found != acked {
            self.journal.violation(&format!("{how}: the counter is {found}, expected {acked} or {intent}"));
        }
        self.set_number(how, "intent", found + 1);
        file.write_all_at(&(found + 1).to_le_bytes(), 0)?;
        file.sync_data()?;
        self.set_number(how, "acked", found + 1);
        drop(referee);
        match how {
            // A close gives up what nobody unlocks.
            "flock" if self.rng.below(2) == 0 => flock(&file, FlockOperation::Unlock)?,
            "fcntl" if self.rng.below(2) == 0 => fcntl_lock(&file, FlockOperation::Unlock)?,
            _ => {}
        }
        Ok(())
    }

    fn number_of(&self, how: &str, which: &str) -> u64 {
        let text = fs::read_to_string(self.spec.local.join(format!("{which}-{how}")));
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    fn set_number(&self, how: &str, which: &str, number: u64) {
        fs::write(self.spec.local.join(format!("{which}-{how}")), number.to_string()).expect("room");
    }

    /// Of all who make one name, one succeeds; once that is durable, nobody does ever again.
    fn race(&mut self) -> Step {
        let round = now_us() / RACE_US;
        self.journal.begin(&Op::Race(round));
        let path = self.path(&format!("race/{round}"));
        let result = match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => file.sync_all().map(|()| {
                let won = self.spec.local.join(format!("won-{round}"));
                if OpenOptions::new().write(true).create_new(true).open(won).is_err() {
                    self.journal.violation(&format!("race {round} has two winners"));
                }
            }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        };
        self.journal.end(result.is_ok());
        result
    }
}

/// Who is in a critical section, told outside of the volume.
struct Referee(PathBuf);

impl Referee {
    /// Fails if somebody is in it whose node lives. Who is in it and whose node was killed has left it.
    fn enter(spec: &Spec, how: &str) -> Result<Self, String> {
        let path = spec.local.join(format!("in-{how}"));
        let inside = fs::read_to_string(&path).ok().filter(|text| !text.is_empty());
        let is_alive = |node: &str| !spec.local.join(format!("dead-{node}")).exists();
        let violation =
            inside.as_deref().and_then(|text| text.split_once(' ')).filter(|(node, _)| is_alive(node));
        fs::write(&path, format!("{} {}", spec.node, spec.writer())).expect("room outside of the volume");
        match violation {
            Some((node, writer)) => Err(format!("{writer} of node {node} holds the lock too")),
            None => Ok(Self(path)),
        }
    }
}

impl Drop for Referee {
    fn drop(&mut self) {
        fs::write(&self.0, "").expect("room outside of the volume");
    }
}

/// Numbers from a seed (xorshift).
pub struct Draws(pub u64);

impl Draws {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n.max(1)
    }
}

const BEGINNINGS: u32 = 50;
const EIO: i32 = 5;
const NAMES_MAX: usize = 60;
/// In the record, in few blocks, in several, in segments at once.
const LENGTHS: [usize; 6] = [16, 1600, 4096, 4112, 20_000, 300_000];
/// How long all append to one file.
pub const LOG_US: u64 = 15_000_000;
const RACE_US: u64 = 1_000_000;
