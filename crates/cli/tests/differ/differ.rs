//! A run: steps on both sides, compared after each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, Gid, OFlags, SeekFrom, Uid};
use rustix::io::Errno;
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use crate::arena::{Arena, LOCAL, NAMES, SITES};
use crate::draw::{Kind, Name, Phase, Source, Step};
use crate::look::{
    Difference, Times, Tree, compare_bytes, compare_path, compare_trees, content, names_in, tree,
};
use crate::op::{Attributes, Map, Op, Opened, Outcome, Side, Slot, Table, Value};
use crate::tally::{Tally, errno_name};

/// Where a run ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Steps(u64),
    Time(Duration),
}

pub struct Differ {
    // Before the mounts go.
    table: Table,
    arena: Arena,
    rng: fastrand::Rng,
    phase: Phase,
    names: Vec<Name>,
    /// Whether names are others than in `names`.
    is_stale: bool,
    times: Times,
    log: Vec<Entry>,
    next: u32,
    step: u64,
    /// Sizes at the last step, and the mounts on which they became what they are.
    sizes: BTreeMap<u64, u64>,
    resized: BTreeMap<u64, usize>,
    /// Files that were resized on a mount, ever.
    ever_resized: BTreeSet<(u64, usize)>,
    /// Local inodes of removed directories whose mode or owner was changed there alone.
    changed_there: BTreeSet<u64>,
    pub tally: Tally,
}

/// A step that was done.
struct Entry {
    step: u64,
    text: String,
    /// Local inodes that it touched; none for what touches everything.
    inos: Option<BTreeSet<u64>>,
}

impl Differ {
    pub fn new(arena: Arena, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let phase = Phase::draw(&mut rng);
        Self {
            table: Table::default(),
            arena,
            rng,
            phase,
            names: Vec::new(),
            is_stale: false,
            times: Times::default(),
            log: Vec::new(),
            next: 0,
            step: 0,
            sizes: BTreeMap::new(),
            resized: BTreeMap::new(),
            ever_resized: BTreeSet::new(),
            changed_there: BTreeSet::new(),
            tally: Tally::default(),
        }
    }

    /// Runs to the end or to the first difference, which it tells with what led there. Returns the steps done.
    pub fn run(&mut self, end: End) -> Result<u64, String> {
        let began = Instant::now();
        let is_over = |step: u64| match end {
            End::Steps(steps) => step >= steps,
            End::Time(time) => began.elapsed() >= time,
        };
        while !is_over(self.step) {
            self.step += 1;
            self.one_step().map_err(|difference| self.tell(&difference))?;
        }
        self.step += 1;
        self.compare_all().map_err(|difference| self.tell(&difference))?;
        Ok(self.step - 1)
    }

    fn one_step(&mut self) -> Result<(), Difference> {
        self.refresh();
        if self.phase.left == 0 {
            self.phase = Phase::draw(&mut self.rng);
        }
        self.phase.left -= 1;
        match self.rng.u32(0..2_000) {
            0..2 => self.remount(),
            2..8 => std::thread::sleep(Duration::from_millis(self.rng.u64(10..200))),
            8 => std::thread::sleep(Duration::from_millis(1_200)),
            _ => {}
        }
        let (names, table, phase) = (&self.names, &self.table, &self.phase);
        let step = Source { rng: &mut self.rng, names, table, sizes: &self.sizes, phase }.step();
        if !self.opens_fifo(&step.op) {
            let is_append = matches!(&step.op, Op::Write { slot, .. } | Op::Pwrite { slot, .. }
                if self.table.slots[slot].flags.contains(OFlags::APPEND));
            // Not even this kernel knows the end after an append: it counted from the end that it knew.
            let site = if is_append { SITES } else { step.site };
            self.execute(step)?;
            self.note_sizes(site);
        }
        if self.step.is_multiple_of(TREES_EVERY) {
            self.compare_all()?;
        }
        Ok(())
    }

    fn side(&self, which: usize) -> Side<'_> {
        Side { root: self.arena.root(which), path: self.arena.path(which), half: usize::from(which == LOCAL) }
    }

    /// Looks at the local names again if they may be others.
    fn refresh(&mut self) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        let local = self.side(LOCAL);
        let mut names = Vec::new();
        let mut dirs = vec![String::new()];
        while let Some(dir) = dirs.pop() {
            let mut paths = names_in(&local, &dir).expect("the local side can be listed");
            paths.sort();
            for path in paths {
                let stat = fs::statat(local.root, &path, AtFlags::SYMLINK_NOFOLLOW).expect("just listed");
                let found = Attributes::of(&stat);
                let kind = match () {
                    () if found.is_dir() => Kind::Dir,
                    () if found.is_file() => Kind::File,
                    () if found.is_link() => Kind::Link,
                    () => Kind::Fifo,
                };
                if kind == Kind::Dir {
                    dirs.push(path.clone());
                }
                names.push(Name { path, kind });
            }
        }
        self.names = names;
    }

    /// How large what is open is, after a step on a mount.
    fn note_sizes(&mut self, site: usize) {
        let slots = self.table.slots.values().map(|slot| (slot.ino, &slot.halves[1]));
        let maps = self.table.maps.values().map(|map| (map.ino, &map.twin));
        let size_of = |(ino, fd)| (ino, Attributes::of(&fs::fstat(fd).expect("it is open")).size);
        let sizes: BTreeMap<u64, u64> = slots.chain(maps).map(size_of).collect();
        for (ino, size) in &sizes {
            if self.sizes.get(ino) != Some(size) {
                self.resized.insert(*ino, site);
                self.ever_resized.insert((*ino, site));
            }
        }
        self.sizes = sizes;
    }

    /// A fifo is no file of the mount once it is open: each kernel inode has a pipe of its own, and there are three here.
    fn opens_fifo(&self, op: &Op) -> bool {
        let found = match op {
            Op::Open { path, .. } => fs::statat(self.arena.root(LOCAL), path, AtFlags::empty()),
            Op::OpenAt { dir, name, .. } => {
                fs::statat(&self.table.slots[dir].halves[1], name, AtFlags::empty())
            }
            _ => return false,
        };
        found.is_ok_and(|stat| Attributes::of(&stat).is_fifo())
    }

    fn execute(&mut self, step: Step) -> Result<(), Difference> {
        let mut inos = self.inos_of(&step.op);
        self.look_for_the_end(&step);
        self.write_back_before_a_seek(&step);
        let (ours, local) = (self.side(step.site), self.side(LOCAL));
        let (our, their) = as_user(step.user, || {
            let our = step.op.run(&ours, &self.table);
            (our, step.op.run(&local, &self.table))
        });
        let (mut our, our_opened) = split(our);
        let (their, their_opened) = split(their);
        if our == Err(Errno::STALE) && matches!(step.op, Op::Rename { .. }) {
            our = self.again_after_a_look(&step, MOVED_DIRECTORY);
        } else if our == Err(Errno::PERM) && their != our && step.op.slot().is_some() {
            our = self.again_after_a_look(&step, OTHER_OWNER);
        }
        self.follow_appends(&step);
        let user = step.user.map_or(String::new(), |user| format!(" as {user}"));
        let mut text = format!("{}{user}: {}", NAMES[step.site], step.op.text());
        text += &format!(" = {}", told(&our));
        let opened = self.keep(&step, our_opened, their_opened);
        if let Some(id) = opened {
            text += &format!(" ({id})");
        }
        self.tally.count(step.op.name(), our.as_ref().err().copied());
        self.is_stale |= step.op.changes_names() && their.is_ok();
        for new in self.inos_of(&step.op) {
            if inos.insert(new) {
                // Local inode numbers come again.
                self.times.forget(new);
            }
        }
        inos.extend(opened.and_then(|id| self.table.slots.get(&id)).map(|slot| slot.ino));
        self.log.push(Entry { step: self.step, text, inos: Some(inos.clone()) });
        self.compare_outcome(&step, &our, &their, &inos)?;
        self.drop_what_it_closes(&step.op);
        if let Op::Store { map, .. } = step.op {
            let map = &self.table.maps[&map];
            let found = Attributes::of(&fs::fstat(&map.twin).expect("it is open"));
            self.times.stored.insert(map.ino, found.mtime);
        }
        if let Op::SetXattr { .. } = step.op {
            // ext4 leaves ctime alone if the value is the same.
            inos.iter().for_each(|ino| self.times.forget(*ino));
        }
        self.look(&step)
    }

    /// A directory that the other mount moved is moved in this kernel's tree by the first look at its new place, which rename(2)
    /// is not: it holds the locks that it takes (`__d_unalias` in linux:fs/dcache.c). And who owns a file it learns by the
    /// first look after a chown there, which what only its owner may do is not (`setattr_prepare` in linux:fs/attr.c).
    fn again_after_a_look(&mut self, step: &Step, why: &'static str) -> Outcome {
        for path in step.op.paths() {
            // The look needs the locks of both parents at once, and gives up where a name there is just being taken back.
            let root = self.side(step.site).root;
            let is_taken_back = |flags| matches!(fs::statat(root, path, flags), Err(Errno::STALE));
            let mut looks = 0;
            while looks < LOOKS_MAX
                && (is_taken_back(AtFlags::SYMLINK_NOFOLLOW) || is_taken_back(AtFlags::empty()))
            {
                looks += 1;
            }
            if looks > 0 {
                self.tally.except(LOOKED_IN_VAIN);
            }
        }
        let side = self.side(step.site);
        if let Some(slot) = step.op.slot().and_then(|slot| self.table.slots.get(&slot)) {
            _ = fs::fstat(&slot.halves[0]);
        }
        let outcome = split(as_user(step.user, || step.op.run(&side, &self.table))).0;
        self.tally.except(why);
        outcome
    }

    /// The kernel asks for data and holes without a word of what was stored through mappings on the same mount.
    fn write_back_before_a_seek(&mut self, step: &Step) {
        let (Op::SeekData { slot, .. } | Op::SeekHole { slot, .. }) = step.op else { return };
        let ino = self.table.slots[&slot].ino;
        for map in
            self.table.maps.values().filter(|map| map.ino == ino && map.site == step.site && map.is_writable)
        {
            map.halves[0].sync().expect("it is mapped");
            self.tally.except(SEEK_BEHIND_STORES);
        }
    }

    /// Page faults ask nobody for the end of the file: has the kernel ask before a load or a store if the other mount moved
    /// it last.
    fn look_for_the_end(&mut self, step: &Step) {
        let Some(map) = step.op.map().and_then(|map| self.table.maps.get(&map)) else { return };
        if self.resized.get(&map.ino).is_some_and(|site| *site != step.site) {
            map.halves[0].look();
            self.tally.except(MOVED_END);
        }
    }

    /// After an append the kernel moves the descriptor on from where it took the end to be.
    fn follow_appends(&mut self, step: &Step) {
        let Op::Write { slot, .. } = step.op else { return };
        let slot = &self.table.slots[&slot];
        if !slot.flags.contains(OFlags::APPEND) || !slot.is_file {
            return;
        }
        let [ours, local] = slot.halves.each_ref().map(|half| fs::tell(half).expect("a file"));
        if ours != local
            && (self.ever_resized.contains(&(slot.ino, SITES - 1 - step.site))
                || self.ever_resized.contains(&(slot.ino, SITES)))
        {
            fs::seek(&slot.halves[0], SeekFrom::Start(local)).expect("a file");
            self.tally.except(APPEND_POSITION);
        }
    }

    /// Local inodes behind what an operation names.
    fn inos_of(&self, op: &Op) -> BTreeSet<u64> {
        let root = self.arena.root(LOCAL);
        let ino = |path: &str, flags| fs::statat(root, path, flags).ok().map(|stat| stat.st_ino);
        let paths = op.paths().into_iter();
        let named =
            paths.flat_map(|path| [ino(path, AtFlags::empty()), ino(path, AtFlags::SYMLINK_NOFOLLOW)]);
        let slot = op.slot().and_then(|slot| self.table.slots.get(&slot)).map(|slot| slot.ino);
        let map = op.map().and_then(|map| self.table.maps.get(&map)).map(|map| map.ino);
        named.flatten().chain(slot).chain(map).collect()
    }

    /// Enters what was opened on both sides.
    fn keep(&mut self, step: &Step, our: Opened, their: Opened) -> Option<u32> {
        let id = self.next;
        match (our, their) {
            (Opened::File(our), Opened::File(their)) => {
                let found = Attributes::of(&fs::fstat(&their).expect("it is open"));
                let flags = match &step.op {
                    Op::Open { flags, .. } | Op::OpenAt { flags, .. } => *flags,
                    _ => OFlags::empty(),
                };
                let (is_dir, is_file, ino) = (found.is_dir(), found.is_file(), found.ino);
                if flags.intersects(OFlags::TMPFILE | OFlags::CREATE) {
                    // It may be new, and local inode numbers come again: within one tick of ext4's clock the times of
                    // the one before look as if they had not moved there.
                    self.times.forget(ino);
                }
                let slot = Slot { site: step.site, halves: [our, their], flags, is_dir, is_file, ino };
                self.table.slots.insert(id, slot);
            }
            (Opened::Map(our), Opened::Map(their)) => {
                let Op::Map { slot, is_writable, .. } = step.op else { unreachable!("it maps") };
                let slot = &self.table.slots[&slot];
                let (ino, twin) = (slot.ino, slot.halves[1].try_clone().expect("a descriptor more"));
                let map = Map { site: step.site, halves: [our, their], is_writable, ino, twin };
                self.table.maps.insert(id, map);
                if is_writable {
                    self.times.loose.insert(ino);
                }
            }
            _ => return None,
        }
        self.next += 1;
        Some(id)
    }

    fn drop_what_it_closes(&mut self, op: &Op) {
        match op {
            Op::Close { slot } => _ = self.table.slots.remove(slot),
            Op::Unmap { map } => {
                let gone = self.table.maps.remove(map);
                gone.into_iter().for_each(|map| self.settle(map.ino));
            }
            _ => {}
        }
    }

    /// Times count again once nothing is mapped for stores any more: what was stored is written by then.
    fn settle(&mut self, ino: u64) {
        if !self.table.maps.values().any(|map| map.ino == ino && map.is_writable) {
            self.times.loose.remove(&ino);
            self.times.forget(ino);
        }
    }

    fn compare_outcome(
        &mut self,
        step: &Step,
        our: &Outcome,
        their: &Outcome,
        inos: &BTreeSet<u64>,
    ) -> Result<(), Difference> {
        if let Op::SeekData { slot, offset } | Op::SeekHole { slot, offset } = step.op {
            let seeks_data = matches!(step.op, Op::SeekData { .. });
            return self
                .compare_seek(slot, offset, seeks_data, our, their)
                .map_err(|what| Difference::new(what, inos.iter().copied()));
        }
        if our == their {
            return Ok(());
        }
        if self.is_of_removed_dir(step, our, their) {
            self.tally.except(REMOVED_DIR);
            return Ok(());
        }
        let what = match (our, their) {
            (Ok(Value::Bytes(our)), Ok(Value::Bytes(their))) => {
                let Err(what) = compare_bytes(our, their) else { return Ok(()) };
                what
            }
            _ => format!("{}, but locally {}", told(our), told(their)),
        };
        Err(Difference::new(what, inos.iter().copied()))
    }

    /// Which holes a file system remembers is its own; that there is no data in what it calls a hole is not.
    fn compare_seek(
        &self,
        slot: u32,
        offset: u64,
        seeks_data: bool,
        our: &Outcome,
        their: &Outcome,
    ) -> Result<(), String> {
        let [ours, local] = &self.table.slots[&slot].halves;
        let size = Attributes::of(&fs::fstat(local).expect("it is open")).size;
        let is_zero = |from: u64, to: u64| {
            let path =
                std::path::PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(local)));
            let bytes = std::fs::read(path).expect("the local side can be read");
            bytes[from as usize..(to as usize).min(bytes.len())].iter().all(|byte| *byte == 0)
        };
        let is_right = match our {
            Err(Errno::NXIO) => offset >= size || (seeks_data && is_zero(offset, size)),
            Err(errno) => their == &Err(*errno),
            Ok(Value::Number(at)) if seeks_data => *at >= offset && *at < size && is_zero(offset, *at),
            Ok(Value::Number(at)) => *at >= offset && *at <= size && (*at == size || is_zero(*at, *at + 1)),
            Ok(_) => false,
        };
        if let Ok(Value::Number(at)) = our {
            fs::seek(local, SeekFrom::Start(*at)).expect("a file");
        } else if their.is_ok() {
            let at = fs::tell(ours).expect("a file");
            fs::seek(local, SeekFrom::Start(at)).expect("a file");
        }
        if is_right {
            Ok(())
        } else {
            Err(format!("{}, size {size}, but locally {}", told(our), told(their)))
        }
    }

    /// Looks at what a step touched, from its mount and from the other, as the phase has it.
    fn look(&mut self, step: &Step) -> Result<(), Difference> {
        for site in [step.site, SITES - 1 - step.site] {
            let likely = if site == step.site { self.phase.look } else { self.phase.look_across };
            if self.rng.u32(0..100) >= likely {
                continue;
            }
            let with_content = self.rng.u32(0..8) == 0;
            for path in step.op.paths() {
                let parent = path.rsplit_once('/').map_or(".", |(parent, _)| parent);
                for path in [path, parent] {
                    self.look_at(site, path, with_content)
                        .map_err(|difference| seen_from(site, difference))?;
                }
            }
        }
        let touched = step.op.slot().filter(|_| self.rng.u32(0..100) < self.phase.look);
        let any: Vec<u32> = self.table.slots.keys().copied().collect();
        let other = (!any.is_empty() && self.rng.u32(0..10) == 0).then(|| any[self.rng.usize(0..any.len())]);
        for slot in touched.into_iter().chain(other) {
            self.look_at_slot(slot)?;
        }
        Ok(())
    }

    fn look_at(&mut self, site: usize, path: &str, with_content: bool) -> Result<(), Difference> {
        let mut times = std::mem::take(&mut self.times);
        let (ours, local) = (self.side(site), self.side(LOCAL));
        let result = compare_path(&mut times, &ours, &local, path);
        let is_file = fs::statat(local.root, path, AtFlags::empty()).map(|stat| Attributes::of(&stat));
        let result = match is_file {
            Ok(found) if with_content && found.is_file() => result.and_then(|()| {
                let both = [&ours, &local].map(|side| content(side, path).map(Value::Bytes));
                let differs = |what| Difference::new(format!("{path}: {what}"), [found.ino]);
                match &both {
                    [Ok(Value::Bytes(our)), Ok(Value::Bytes(their))] => {
                        compare_bytes(our, their).map_err(differs)
                    }
                    [our, their] if our == their => Ok(()),
                    [our, their] => Err(differs(format!("{}, but locally {}", told(our), told(their)))),
                }
            }),
            _ => result,
        };
        self.times = times;
        result
    }

    fn look_at_slot(&mut self, id: u32) -> Result<(), Difference> {
        let Some(slot) = self.table.slots.get(&id) else { return Ok(()) };
        let differs =
            |what| Difference::new(format!("descriptor {id} on {}: {what}", NAMES[slot.site]), [slot.ino]);
        let found = slot.halves.each_ref().map(|half| fs::fstat(half).map(|stat| Attributes::of(&stat)));
        match found {
            [Ok(ours), Ok(local)] => match self.times.compare(&ours, &local) {
                // What was refused there was done locally.
                Err(_) if ours.nlink == 0 && self.is_removed_dir(id) => self.tally.except(REMOVED_DIR),
                compared => compared.map_err(differs)?,
            },
            [Err(Errno::STALE), Ok(_)] if self.is_removed_dir(id) => self.tally.except(REMOVED_DIR),
            [ours, local] => return Err(differs(format!("fstat brings {ours:?}, but locally {local:?}"))),
        }
        if slot.is_file {
            let [ours, local] = slot.halves.each_ref().map(|half| fs::tell(half).expect("a file"));
            if ours != local {
                return Err(differs(format!("stands at {ours}, but locally at {local}")));
            }
        }
        Ok(())
    }

    /// Whether a difference is what a directory that was removed may have.
    fn is_of_removed_dir(&mut self, step: &Step, our: &Outcome, their: &Outcome) -> bool {
        let Some(slot) = step.op.slot().filter(|slot| self.is_removed_dir(*slot)) else { return false };
        let ino = fs::fstat(&self.table.slots[&slot].halves[1]).expect("it is open").st_ino;
        if matches!(step.op, Op::Fchmod { .. } | Op::Fchown { .. }) && their.is_ok() {
            self.changed_there.insert(ino);
        }
        match our {
            Ok(Value::Names(names)) => names.iter().all(|(name, _)| name == b"." || name == b".."),
            // What was refused with ESTALE was done locally: by owner and mode that came of it more is allowed there, or less.
            Err(Errno::STALE | Errno::PERM | Errno::ACCESS) => true,
            _ => matches!(their, Err(Errno::PERM | Errno::ACCESS)) && self.changed_there.contains(&ino),
        }
    }

    fn is_removed_dir(&self, slot: u32) -> bool {
        let slot = &self.table.slots[&slot];
        slot.is_dir && fs::fstat(&slot.halves[1]).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Compares whole trees, and all that is open.
    fn compare_all(&mut self) -> Result<(), Difference> {
        let local = tree(&self.side(LOCAL)).expect("the local side can be read");
        let mut trees: Vec<Tree> = Vec::new();
        for site in 0..SITES {
            let ours = tree(&self.side(site)).map_err(|what| seen_from(site, Difference::new(what, [])))?;
            compare_trees(&mut self.times, &ours, &local)
                .map_err(|difference| seen_from(site, difference))?;
            trees.push(ours);
        }
        for (path, node) in &trees[0] {
            if trees[1][path].attributes.ino != node.attributes.ino {
                let what = format!("{path}: inode numbers of the mounts are not the same");
                return Err(Difference::new(what, [local[path].attributes.ino]));
            }
        }
        let open: Vec<u32> = self.table.slots.keys().copied().collect();
        open.into_iter().try_for_each(|slot| self.look_at_slot(slot))
    }

    /// Closes what is open on one mount, unmounts it and mounts it again.
    fn remount(&mut self) {
        let site = self.rng.usize(0..SITES);
        self.table.slots.retain(|_, slot| slot.site != site);
        let maps: Vec<u32> =
            self.table.maps.iter().filter(|(_, map)| map.site == site).map(|(id, _)| *id).collect();
        for id in maps {
            self.drop_what_it_closes(&Op::Unmap { map: id });
        }
        self.arena.remount(site);
        let text = format!("{} is mounted again", NAMES[site]);
        self.log.push(Entry { step: self.step, text, inos: None });
    }

    /// What differs and what led there.
    fn tell(&self, difference: &Difference) -> String {
        let mut text = format!("step {}: {}\n", self.step, difference.what);
        let touches =
            |entry: &&Entry| entry.inos.as_ref().is_none_or(|inos| !inos.is_disjoint(&difference.inos));
        let mut of_object: Vec<&Entry> = self.log.iter().rev().filter(touches).take(TOLD_MAX).collect();
        of_object.reverse();
        text += &format!("last steps with {:?}:\n", difference.inos);
        for entry in of_object {
            text += &format!("{:>7} {}\n", entry.step, entry.text);
        }
        text += "last steps:\n";
        for entry in &self.log[self.log.len().saturating_sub(8)..] {
            text += &format!("{:>7} {}\n", entry.step, entry.text);
        }
        text
    }
}

fn seen_from(site: usize, difference: Difference) -> Difference {
    Difference { what: format!("on {}: {}", NAMES[site], difference.what), ..difference }
}

fn split(result: Result<(Value, Opened), Errno>) -> (Outcome, Opened) {
    match result {
        Ok((value, opened)) => (Ok(value), opened),
        Err(errno) => (Err(errno), Opened::Nothing),
    }
}

fn told(outcome: &Outcome) -> String {
    match outcome {
        Ok(Value::Nothing) => "done".to_owned(),
        Ok(Value::Number(number)) => number.to_string(),
        Ok(Value::Bytes(bytes)) => format!("{} bytes", bytes.len()),
        Ok(Value::Names(names)) => {
            let names: Vec<String> = names
                .iter()
                .map(|(name, kind)| {
                    format!("{} {kind}", String::from_utf8_lossy(&name[..name.len().min(20)]))
                })
                .collect();
            format!("[{}]", names.join(", "))
        }
        Err(errno) => errno_name(*errno),
    }
}

/// Does something as another user: this thread alone changes, and changes back.
fn as_user<T>(user: Option<u32>, action: impl FnOnce() -> T) -> T {
    let become_user = |id: u32| {
        // Back to root the user comes first, and on the way there last: the right to change goes with it.
        let group = || set_thread_res_gid(None::<Gid>, Gid::from_raw(id), None::<Gid>).expect("root may");
        let user = || set_thread_res_uid(None::<Uid>, Uid::from_raw(id), None::<Uid>).expect("root may");
        if id == 0 {
            user();
            group();
        } else {
            group();
            user();
        }
    };
    let Some(id) = user else { return action() };
    become_user(id);
    let result = action();
    become_user(0);
    result
}

/// docs/semantics.md, "`mmap`".
const MOVED_END: &str = "a mapping ends where its kernel last saw the end of the file: looked at it before";
/// docs/semantics.md, "Directories that another node moved".
const MOVED_DIRECTORY: &str =
    "a rename answers ESTALE for a directory that the other mount moved: looked at it before";
/// docs/semantics.md, "Owners that another node made".
const OTHER_OWNER: &str =
    "EPERM through a descriptor for the owner that the other mount gave a file: looked at it before";
/// docs/semantics.md, "`O_TMPFILE`".
const SEEK_BEHIND_STORES: &str =
    "SEEK_DATA and SEEK_HOLE do not see what was stored and not written back: msync before";
/// docs/semantics.md, "`O_APPEND`".
const APPEND_POSITION: &str = "an append leaves the descriptor behind the end that its kernel last saw";
/// docs/semantics.md, "`unlink` while open".
const LOOKED_IN_VAIN: &str = "a look at a directory that the other mount moved answers ESTALE: looked again";
const LOOKS_MAX: u32 = 100;
const REMOVED_DIR: &str =
    "a removed directory that is open answers ESTALE or nothing, or with what it was like";
const TREES_EVERY: u64 = 250;
/// Longest history that a failure tells.
const TOLD_MAX: usize = 40;
