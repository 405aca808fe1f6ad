//! What is done next: drawn from a seed and from what is there.

use std::collections::BTreeMap;

use rustix::fs::{Access, FallocateFlags, OFlags, RenameFlags, SeekFrom, XattrFlags};

use crate::arena::SITES;
use crate::op::{On, Op, Slot, Table, When};
use crate::raw::TRANSFER_MAX;

/// A name on the local side.
#[derive(Clone, Debug)]
pub struct Name {
    pub path: String,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Dir,
    File,
    Link,
    Fifo,
}

/// One operation, where, and as whom.
#[derive(Clone, Debug)]
pub struct Step {
    pub site: usize,
    /// As this user instead of root.
    pub user: Option<u32>,
    pub op: Op,
}

/// How steps are drawn for a while, so that each node is alone at times, and nobody looks at times.
#[derive(Clone, Debug)]
pub struct Phase {
    pub left: u32,
    /// Of 100 steps so many are on the first mount.
    first: u32,
    /// Column of [`Source::WEIGHTS`].
    load: usize,
    /// Of 100 steps so many are an ordinary user's.
    user: u32,
    /// Of 100 steps so many are followed by a look from the same mount.
    pub look: u32,
    /// The same from the other mount.
    pub look_across: u32,
}

impl Phase {
    pub fn draw(rng: &mut fastrand::Rng) -> Self {
        Self {
            left: rng.u32(20..200),
            first: [0, 10, 50, 50, 90, 100][rng.usize(0..6)],
            load: rng.usize(0..3),
            user: [0, 0, 10, 40][rng.usize(0..4)],
            look: [0, 50, 100, 100][rng.usize(0..4)],
            look_across: [0, 5, 50, 100][rng.usize(0..4)],
        }
    }
}

/// Draws steps.
pub struct Source<'a> {
    pub rng: &'a mut fastrand::Rng,
    pub names: &'a [Name],
    pub table: &'a Table,
    /// Sizes of what is open, by the twin's inode.
    pub sizes: &'a BTreeMap<u64, u64>,
    pub phase: &'a Phase,
}

/// What an operation needs to be drawn.
type Make<'a> = fn(&mut Source<'a>, usize) -> Option<Op>;

impl<'a> Source<'a> {
    /// How often each is drawn when names, content, or both are at work.
    const WEIGHTS: [([u32; 3], Make<'a>); 38] = [
        ([20, 20, 25], Self::open),
        ([2, 2, 2], Self::open_tmpfile),
        ([5, 1, 2], Self::open_at),
        ([12, 10, 14], Self::close),
        ([2, 15, 8], Self::read),
        ([1, 20, 8], Self::pread),
        ([3, 20, 10], Self::write),
        ([3, 25, 12], Self::pwrite),
        ([1, 7, 4], Self::ftruncate),
        ([2, 6, 4], Self::truncate),
        ([0, 8, 3], Self::fallocate),
        ([0, 8, 3], Self::copy),
        ([1, 6, 3], Self::seek),
        ([0, 5, 2], Self::seek_data),
        ([1, 3, 2], Self::fsync),
        ([10, 1, 5], Self::mkdir),
        ([7, 1, 4], Self::rmdir),
        ([12, 4, 8], Self::unlink),
        ([18, 3, 10], Self::rename),
        ([10, 2, 5], Self::link),
        ([2, 1, 2], Self::link_open),
        ([6, 1, 3], Self::symlink),
        ([3, 0, 2], Self::readlink),
        ([2, 0, 1], Self::mkfifo),
        ([5, 2, 4], Self::chmod),
        ([5, 2, 4], Self::chown),
        ([4, 3, 4], Self::utimens),
        ([6, 1, 4], Self::set_xattr),
        ([4, 1, 3], Self::read_xattr),
        ([3, 0, 2], Self::remove_xattr),
        ([4, 3, 4], Self::stat),
        ([4, 0, 2], Self::access),
        ([8, 1, 4], Self::read_dir),
        ([0, 5, 2], Self::map),
        ([0, 10, 4], Self::load),
        ([0, 10, 4], Self::store),
        ([0, 4, 2], Self::msync),
        ([0, 3, 2], Self::unmap),
    ];

    pub fn step(&mut self) -> Step {
        let site = usize::from(self.rng.u32(0..100) >= self.phase.first);
        assert!(site < SITES);
        loop {
            let all: u32 = Self::WEIGHTS.iter().map(|(weights, _)| weights[self.phase.load]).sum();
            let mut at = self.rng.u32(0..all);
            let drawn = Self::WEIGHTS.iter().find(|(weights, _)| {
                let weight = weights[self.phase.load];
                let is_it = at < weight;
                at = at.wrapping_sub(weight);
                is_it
            });
            let (_, make) = drawn.expect("less than all");
            if let Some(op) = make(self, site) {
                let user = (self.rng.u32(0..100) < self.phase.user).then_some(USERS[0]);
                return Step { site, user, op };
            }
        }
    }

    fn chance(&mut self, of_100: u32) -> bool {
        self.rng.u32(0..100) < of_100
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.rng.usize(0..all.len())].clone()
    }

    /// A name that is there, of one of these kinds.
    fn existing(&mut self, kinds: &[Kind]) -> Option<String> {
        let fitting: Vec<&Name> = self.names.iter().filter(|name| kinds.contains(&name.kind)).collect();
        if fitting.is_empty() {
            return None;
        }
        Some(fitting[self.rng.usize(0..fitting.len())].path.clone())
    }

    /// A directory that is there, with the slash behind it; nothing for the root.
    fn dir(&mut self) -> String {
        let shallow = |path: &String| path.matches('/').count() < DEPTH_MAX;
        match self.existing(&[Kind::Dir]).filter(shallow) {
            Some(dir) if !self.chance(25) => dir + "/",
            _ => String::new(),
        }
    }

    /// A name that may be there or not.
    fn fresh(&mut self) -> String {
        let dir = self.dir();
        match self.rng.u32(0..100) {
            0 => format!("{dir}{}", "l".repeat(255)),
            1 => format!("{dir}{}", "m".repeat(256)),
            _ => format!("{dir}{}{}", self.pick(&["a", "b", "c", "d"]), self.rng.u32(0..12)),
        }
    }

    /// Mostly a name of the wanted kinds, sometimes anything.
    fn path(&mut self, kinds: &[Kind]) -> String {
        let wanted = match self.rng.u32(0..100) {
            0..84 => self.existing(kinds),
            84..90 => self.existing(ALL),
            90..92 => self.existing(&[Kind::Link]).map(|link| format!("{link}/{}", self.rng.u32(0..4))),
            92 => self.existing(ALL).map(|name| name + "/"),
            93 => self.existing(ALL).map(|name| name + "/."),
            94 => self.existing(&[Kind::File]).map(|name| name + "/x"),
            95 => Some(".".to_owned()),
            _ => None,
        };
        wanted.unwrap_or_else(|| self.fresh())
    }

    /// A place for something new: mostly free.
    fn place(&mut self) -> String {
        let occupied = self.names.len() > NAMES_MAX;
        if occupied || self.chance(15) { self.path(ALL) } else { self.fresh() }
    }

    fn slot(&mut self, site: usize, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        let own = self.table.slots.iter().filter(|(_, slot)| slot.site == site);
        let fitting: Vec<u32> = own.clone().filter(|(_, slot)| fits(slot)).map(|(id, _)| *id).collect();
        if !fitting.is_empty() && !self.chance(4) {
            return Some(self.pick(&fitting));
        }
        let all: Vec<u32> = own.map(|(id, _)| *id).collect();
        if all.is_empty() { None } else { Some(self.pick(&all)) }
    }

    fn size_of(&self, slot: u32) -> u64 {
        self.sizes.get(&self.table.slots[&slot].ino).copied().unwrap_or(0)
    }

    /// Within the file, at its ends, at edges of pages and blocks, or a little beyond.
    fn offset(&mut self, size: u64) -> u64 {
        match self.rng.u32(0..10) {
            0 => 0,
            1 => size,
            2 => size + self.rng.u64(0..10_000),
            3..6 => self.rng.u64(0..=size),
            6 => (4096 * self.rng.u64(0..8) + self.rng.u64(0..5)).saturating_sub(2),
            7 => (16_384 * self.rng.u64(0..10) + self.rng.u64(0..5)).saturating_sub(2),
            8 => self.rng.u64(0..200),
            _ => self.rng.u64(0..SIZE_MAX),
        }
    }

    fn len(&mut self) -> usize {
        match self.rng.u32(0..20) {
            0 => 0,
            1..9 => self.rng.usize(1..300),
            9..13 => self.rng.usize(1..5000),
            13..16 => 4096 * self.rng.usize(1..5),
            16..19 => self.rng.usize(1..40_000),
            _ => self.rng.usize(1..200_000),
        }
    }

    fn size(&mut self) -> u64 {
        match self.rng.u32(0..8) {
            0 => 0,
            1..4 => self.rng.u64(0..5000),
            4 => 4096 * self.rng.u64(0..20),
            5..7 => self.rng.u64(0..50_000),
            _ => self.rng.u64(0..SIZE_MAX),
        }
    }

    fn mode(&mut self) -> u32 {
        self.pick(&[
            0o644, 0o755, 0o666, 0o777, 0o600, 0o700, 0o000, 0o444, 0o1777, 0o2775, 0o4755, 0o6711, 0o123,
            0o7777,
        ])
    }

    fn open(&mut self, site: usize) -> Option<Op> {
        if self.table.slots.len() >= SLOTS_MAX {
            return self.close(site);
        }
        let mut flags =
            self.pick(&[OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::RDWR, OFlags::RDWR]);
        let extra = [
            (30, OFlags::CREATE),
            (10, OFlags::EXCL),
            (10, OFlags::TRUNC),
            (20, OFlags::APPEND),
            (6, OFlags::NOFOLLOW),
            (3, OFlags::DSYNC),
        ];
        for (likely, flag) in extra {
            if self.chance(likely) {
                flags |= flag;
            }
        }
        let path = if self.chance(12) {
            flags = (flags - OFlags::RWMODE - OFlags::CREATE) | OFlags::DIRECTORY;
            self.path(&[Kind::Dir])
        } else if flags.contains(OFlags::CREATE) && self.chance(60) {
            self.place()
        } else {
            self.path(&[Kind::File, Kind::File, Kind::Link])
        };
        Some(Op::Open { path, flags, mode: self.mode() })
    }

    fn open_tmpfile(&mut self, site: usize) -> Option<Op> {
        if self.table.slots.len() >= SLOTS_MAX {
            return self.close(site);
        }
        let path = self.path(&[Kind::Dir]);
        let exclusive = if self.chance(20) { OFlags::EXCL } else { OFlags::empty() };
        let access = self.pick(&[OFlags::RDWR, OFlags::WRONLY, OFlags::RDWR, OFlags::RDONLY]);
        Some(Op::Open { path, flags: OFlags::TMPFILE | access | exclusive, mode: self.mode() })
    }

    fn open_at(&mut self, site: usize) -> Option<Op> {
        if self.table.slots.len() >= SLOTS_MAX {
            return self.close(site);
        }
        let dir = self.slot(site, |slot| slot.is_dir)?;
        let flags = self.pick(&[
            OFlags::RDWR | OFlags::CREATE,
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            OFlags::RDONLY,
            OFlags::RDONLY | OFlags::DIRECTORY,
        ]);
        // Not "..": after a move on the other mount it leads to where the directory was until its path is looked up again
        // (docs/semantics.md, "Directories that another node moved").
        let name = format!("{}{}", self.pick(&["a", "b", "c", "d", "."]), self.rng.u32(0..12));
        Some(Op::OpenAt { dir, name: self.pick(&[name.clone(), name.clone(), name, ".".into()]), flags })
    }

    fn close(&mut self, site: usize) -> Option<Op> {
        let slot = self.slot(site, |_| true)?;
        (self.table.slots.len() > SLOTS_MAX / 2 || self.chance(40)).then_some(Op::Close { slot })
    }

    fn read(&mut self, site: usize) -> Option<Op> {
        let slot = self.slot(site, Slot::is_readable)?;
        // Where a directory's stream stands is each file system's own, and may be too far to read from.
        (!self.table.slots[&slot].is_dir).then(|| Op::Read { slot, len: self.len() })
    }

    fn pread(&mut self, site: usize) -> Option<Op> {
        let slot = self.slot(site, Slot::is_readable)?;
        let offset = self.offset(self.size_of(slot));
        Some(Op::Pread { slot, offset, len: self.len() })
    }

    fn write(&mut self, site: usize) -> Option<Op> {
        Some(Op::Write { slot: self.slot(site, Slot::is_writable)?, len: self.len(), tag: self.rng.u8(..) })
    }

    fn pwrite(&mut self, site: usize) -> Option<Op> {
        let slot = self.slot(site, Slot::is_writable)?;
        let offset = self.offset(self.size_of(slot));
        Some(Op::Pwrite { slot, offset, len: self.len(), tag: self.rng.u8(..) })
    }

    fn ftruncate(&mut self, site: usize) -> Option<Op> {
        Some(Op::Ftruncate { slot: self.slot(site, Slot::is_writable)?, len: self.size() })
    }

    fn truncate(&mut self, _: usize) -> Option<Op> {
        Some(Op::Truncate { path: self.path(&[Kind::File]), len: self.size() })
    }

    fn fallocate(&mut self, site: usize) -> Option<Op> {
        let slot = self.slot(site, Slot::is_writable)?;
        let mode = self.pick(&[
            FallocateFlags::empty(),
            FallocateFlags::KEEP_SIZE,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::PUNCH_HOLE,
            FallocateFlags::ZERO_RANGE,
            FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        ]);
        let offset = self.offset(self.size_of(slot));
        Some(Op::Fallocate { slot, mode, offset, len: self.len() as u64 })
    }

    fn copy(&mut self, site: usize) -> Option<Op> {
        let from = self.slot(site, |slot| slot.is_file && slot.is_readable())?;
        let slot = self.slot(site, Slot::is_writable)?;
        let from_offset = self.offset(self.size_of(from));
        let offset = self.offset(self.size_of(slot));
        Some(Op::Copy { from, from_offset, slot, offset, len: self.len() })
    }

    fn seek(&mut self, site: usize) -> Option<Op> {
        let slot = self.slot(site, |slot| slot.is_file)?;
        let size = self.size_of(slot);
        let offset = self.offset(size) as i64;
        let to = self.pick(&[
            SeekFrom::Start(offset as u64),
            SeekFrom::End(-offset / 2),
            SeekFrom::End(offset),
            SeekFrom::Current(100),
            SeekFrom::Current(-100),
        ]);
        // Where a directory's stream stands is each file system's own.
        self.table.slots[&slot].is_file.then_some(Op::Seek { slot, to })
    }

    fn seek_data(&mut self, site: usize) -> Option<Op> {
        let slot = self.slot(site, |slot| slot.is_file)?;
        let offset = self.offset(self.size_of(slot));
        let ops = [Op::SeekData { slot, offset }, Op::SeekHole { slot, offset }];
        if self.table.slots[&slot].is_file { Some(self.pick(&ops)) } else { None }
    }

    fn fsync(&mut self, site: usize) -> Option<Op> {
        Some(Op::Fsync { slot: self.slot(site, |_| true)?, data_only: self.rng.bool() })
    }

    fn mkdir(&mut self, _: usize) -> Option<Op> {
        Some(Op::Mkdir { path: self.place(), mode: self.mode() | if self.chance(80) { 0o755 } else { 0 } })
    }

    fn rmdir(&mut self, _: usize) -> Option<Op> {
        let is_empty = |dir: &&Name| {
            let inside = format!("{}/", dir.path);
            dir.kind == Kind::Dir && !self.names.iter().any(|name| name.path.starts_with(&inside))
        };
        let empty: Vec<String> = self.names.iter().filter(is_empty).map(|dir| dir.path.clone()).collect();
        let path =
            if empty.is_empty() || self.chance(20) { self.path(&[Kind::Dir]) } else { self.pick(&empty) };
        Some(Op::Rmdir { path })
    }

    fn unlink(&mut self, _: usize) -> Option<Op> {
        (self.names.len() > NAMES_MAX / 3 || self.chance(30))
            .then(|| Op::Unlink { path: self.path(&[Kind::File, Kind::Link, Kind::Fifo]) })
    }

    fn rename(&mut self, _: usize) -> Option<Op> {
        let from = self.path(ALL);
        let flags = match self.rng.u32(0..10) {
            0..6 => RenameFlags::empty(),
            6..7 => RenameFlags::NOREPLACE,
            // To a free place alone: ext4 changes the times of a directory from which nothing could be moved.
            7..8 => RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
            _ => RenameFlags::EXCHANGE,
        };
        let same_kind: Vec<Kind> =
            self.names.iter().filter(|name| name.path == from).map(|name| name.kind).collect();
        let is_dir = same_kind.contains(&Kind::Dir);
        let to = if flags.contains(RenameFlags::EXCHANGE) {
            self.path(ALL)
        } else if flags.is_empty() && self.chance(30) {
            self.path(if is_dir { &[Kind::Dir] } else { &[Kind::File, Kind::Link, Kind::Fifo] })
        } else {
            self.place()
        };
        Some(Op::Rename { from, to, flags })
    }

    fn link(&mut self, _: usize) -> Option<Op> {
        Some(Op::Link {
            from: self.path(&[Kind::File, Kind::File, Kind::Link, Kind::Fifo]),
            to: self.place(),
        })
    }

    fn link_open(&mut self, site: usize) -> Option<Op> {
        let is_tmpfile = |slot: &Slot| slot.flags.contains(OFlags::TMPFILE);
        let slot = self.slot(site, is_tmpfile)?;
        Some(Op::LinkOpen { slot, to: self.place() })
    }

    fn symlink(&mut self, _: usize) -> Option<Op> {
        let path = self.place();
        // Never upwards: the root must not be left.
        let beside = path.rsplit_once('/').map_or(String::new(), |(dir, _)| format!("{dir}/"));
        let siblings = self.names.iter().filter_map(|name| name.path.strip_prefix(&beside));
        let mut targets: Vec<String> = siblings.map(str::to_owned).collect();
        targets.extend(["gone".to_owned(), ".".to_owned(), "x".repeat(300)]);
        targets.extend(path.rsplit('/').next().map(str::to_owned));
        let target = self.pick(&targets);
        Some(Op::Symlink { target, path })
    }

    fn readlink(&mut self, _: usize) -> Option<Op> {
        Some(Op::Readlink { path: self.path(&[Kind::Link]) })
    }

    fn mkfifo(&mut self, _: usize) -> Option<Op> {
        Some(Op::Mkfifo { path: self.place(), mode: self.mode() })
    }

    fn chmod(&mut self, site: usize) -> Option<Op> {
        let mode = self.mode();
        if self.chance(30) {
            return Some(Op::Fchmod { slot: self.slot(site, |_| true)?, mode });
        }
        Some(Op::Chmod { path: self.path(&[Kind::File, Kind::Dir, Kind::Fifo]), mode })
    }

    fn chown(&mut self, site: usize) -> Option<Op> {
        let mut id = || [None, Some(0), Some(USERS[0]), Some(USERS[0]), Some(USERS[1])][self.rng.usize(0..5)];
        let (uid, gid) = (id(), id());
        if uid.is_none() && gid.is_none() {
            // Changes nothing here, and takes setuid away on ext4: POSIX allows both (docs/semantics.md, "Permissions").
            return None;
        }
        if self.chance(30) {
            return Some(Op::Fchown { slot: self.slot(site, |_| true)?, uid, gid });
        }
        Some(Op::Chown { path: self.path(ALL), uid, gid, follow: self.rng.bool() })
    }

    fn utimens(&mut self, site: usize) -> Option<Op> {
        let mut when = || match self.rng.u32(0..4) {
            0 => When::Now,
            1 => When::Omit,
            2 => When::At(self.rng.i64(-3..1_000_000_000), self.rng.i64(0..1_000_000_000)),
            _ => When::At(self.rng.i64(0..1_000_000_000), 0),
        };
        let times = [when(), when()];
        if self.chance(30) {
            return Some(Op::Futimens { slot: self.slot(site, |_| true)?, times });
        }
        Some(Op::Utimens { path: self.path(ALL), times, follow: self.rng.bool() })
    }

    fn on(&mut self, site: usize) -> Option<On> {
        Some(match self.rng.u32(0..10) {
            0..6 => On::Path(self.path(&[Kind::File, Kind::File, Kind::Dir, Kind::Link])),
            6..8 => On::Link(self.path(ALL)),
            _ => On::Slot(self.slot(site, |_| true)?),
        })
    }

    fn set_xattr(&mut self, site: usize) -> Option<Op> {
        let on = self.on(site)?;
        let flags =
            self.pick(&[XattrFlags::empty(), XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE]);
        if self.chance(15) {
            let name = self.pick(&ACL_NAMES);
            return Some(Op::SetXattr { on, name, value: self.acl(), flags: XattrFlags::empty() });
        }
        let len = self.pick(&[0, 1, 5, 100, 1000, 3000]);
        let tag = self.rng.u8(..);
        Some(Op::SetXattr { on, name: self.pick(&XATTR_NAMES), value: crate::op::pattern(tag, len), flags })
    }

    /// A list as acl(5) has it in extended attributes: one that is as good as a mode, one with a named user, garbage.
    fn acl(&mut self) -> Vec<u8> {
        let permissions = [4_u16, 6, 7, 5, 0][self.rng.usize(0..5)];
        let all = u32::MAX;
        let minimal = [(1, permissions, all), (4, 5, all), (0x20, 4, all)];
        let named =
            [(1, 7, all), (2, permissions, USERS[0]), (4, 5, all), (0x10, permissions, all), (0x20, 1, all)];
        let entries: &[(u16, u16, u32)] = match self.rng.u32(0..5) {
            0 => &[(1, 7, all), (9, 7, all)],
            1 | 2 => &minimal,
            _ => &named,
        };
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(permissions.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        list
    }

    fn xattr_name(&mut self) -> &'static str {
        if self.chance(10) { self.pick(&ACL_NAMES) } else { self.pick(&XATTR_NAMES) }
    }

    fn read_xattr(&mut self, site: usize) -> Option<Op> {
        let (on, room) = (self.on(site)?, self.pick(&[0, 10, 4096, 70_000, 70_000]));
        if self.rng.bool() {
            return Some(Op::ListXattr { on, room });
        }
        Some(Op::GetXattr { on, name: self.xattr_name(), room })
    }

    fn remove_xattr(&mut self, site: usize) -> Option<Op> {
        Some(Op::RemoveXattr { on: self.on(site)?, name: self.xattr_name() })
    }

    fn stat(&mut self, _: usize) -> Option<Op> {
        Some(Op::Stat { path: self.path(ALL) })
    }

    fn access(&mut self, _: usize) -> Option<Op> {
        let want = self.pick(&[
            Access::EXISTS,
            Access::READ_OK,
            Access::WRITE_OK,
            Access::EXEC_OK,
            Access::READ_OK | Access::WRITE_OK,
        ]);
        Some(Op::Access { path: self.path(ALL), want })
    }

    fn read_dir(&mut self, site: usize) -> Option<Op> {
        let open = self.slot(site, |slot| slot.is_dir).filter(|slot| self.table.slots[slot].is_dir);
        match open {
            Some(slot) if self.rng.bool() => Some(Op::ReadOpenDir { slot }),
            _ => Some(Op::ReadDir { path: self.path(&[Kind::Dir]) }),
        }
    }

    fn map(&mut self, site: usize) -> Option<Op> {
        if self.table.maps.len() >= MAPS_MAX {
            return self.unmap(site);
        }
        let slot = self.slot(site, |slot| slot.is_file && slot.is_readable())?;
        let is_writable = self.table.slots[&slot].is_writable() != self.chance(5);
        Some(Op::Map { slot, len: 4096 * self.rng.usize(1..64), is_writable })
    }

    fn mapping(&mut self, site: usize, is_writable: bool) -> Option<u32> {
        let own =
            self.table.maps.iter().filter(|(_, map)| map.site == site && (map.is_writable || !is_writable));
        let own: Vec<u32> = own.map(|(id, _)| *id).collect();
        if own.is_empty() { None } else { Some(self.pick(&own)) }
    }

    fn load(&mut self, site: usize) -> Option<Op> {
        let map = self.mapping(site, false)?;
        let room = self.table.maps[&map].halves[0].len();
        let size = self.sizes.get(&self.table.maps[&map].ino).copied().unwrap_or(0);
        let offset = (self.offset(size) as usize).min(room - 1);
        let len = self.len().clamp(1, TRANSFER_MAX).min(room - offset);
        Some(Op::Load { map, offset, len })
    }

    /// Never beyond the end of the file: what becomes of such stores is anybody's.
    fn store(&mut self, site: usize) -> Option<Op> {
        let map = self.mapping(site, true)?;
        let size = self.sizes.get(&self.table.maps[&map].ino).copied().unwrap_or(0) as usize;
        let room = self.table.maps[&map].halves[0].len().min(size);
        if room == 0 {
            return None;
        }
        let offset = (self.offset(size as u64) as usize).min(room - 1);
        let len = self.len().clamp(1, TRANSFER_MAX).min(room - offset);
        Some(Op::Store { map, offset, len, tag: self.rng.u8(..) })
    }

    fn msync(&mut self, site: usize) -> Option<Op> {
        Some(Op::Msync { map: self.mapping(site, false)? })
    }

    fn unmap(&mut self, site: usize) -> Option<Op> {
        let map = self.mapping(site, false)?;
        (self.table.maps.len() > MAPS_MAX / 2 || self.chance(30)).then_some(Op::Unmap { map })
    }
}

impl Slot {
    fn is_readable(&self) -> bool {
        self.is_file && !self.flags.contains(OFlags::WRONLY)
    }

    fn is_writable(&self) -> bool {
        self.is_file && self.flags.intersects(OFlags::WRONLY | OFlags::RDWR)
    }
}

/// An ordinary user, and another that only owns things.
pub const USERS: [u32; 2] = [1000, 1001];
const ALL: &[Kind] = &[Kind::Dir, Kind::File, Kind::Link, Kind::Fifo];
const XATTR_NAMES: [&str; 7] = ["user.a", "user.b", "user.b", "user.c", "user.", "trusted.t", "other.x"];
const ACL_NAMES: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];
const DEPTH_MAX: usize = 3;
const NAMES_MAX: usize = 70;
const SLOTS_MAX: usize = 20;
const MAPS_MAX: usize = 6;
const SIZE_MAX: u64 = 400_000;
