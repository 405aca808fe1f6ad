//! Whole volumes with changed records: opened, used, checked and repaired.

use std::sync::Arc;

use check::Options;
use kv::{Batch, Claim, Engine, MemDisk};
use meta::ops::{RenameMode, XattrMode};
use meta::{CookieKey, Dirent, Key, Op};
use testkit::fuzz::{Memory, Target, outcome};
use types::{Ino, Name, OpSeq, Timespec};
use wire::{Ahead, FetchWhat, ToMaster, Want};

use crate::traffic::traffic;
pub use crate::world::VOLUME;
use crate::world::{COOKIE_KEY, World};

/// Records in place of those of a volume: for each one byte with the length of the key, the key, two bytes with the
/// length of the value, the value.
pub struct Volumes;

impl Target for Volumes {
    fn name(&self) -> &'static str {
        "volume"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let join = |records: &[(Vec<u8>, Vec<u8>)]| records.iter().flat_map(|(k, v)| join(k, v)).collect();
        let short: Vec<_> =
            traffic().records.iter().filter(|(_, value)| value.len() < 2000).cloned().collect();
        let mut seeds: Vec<_> = short.chunks(2).map(join).collect();
        // Every kind alone: what is one of a kind must not be needed by all.
        let mut kinds = std::collections::BTreeSet::new();
        seeds.extend(
            short
                .iter()
                .filter(|(key, _)| kinds.insert(key[0]))
                .map(|record| join(std::slice::from_ref(record))),
        );
        seeds
    }

    fn repair(&self, bytes: &mut Vec<u8>) {
        let records = split(bytes);
        let repaired = records.into_iter().flat_map(|(key, value)| {
            let record = value.get(1..value.len().saturating_sub(4)).unwrap_or_default();
            join(key, &meta::value_encode_raw(key, record))
        });
        *bytes = repaired.collect();
    }

    fn run(&mut self, bytes: &[u8]) -> String {
        let changed = split(bytes);
        let base = traffic().records.iter().map(|(key, value)| (&key[..], &value[..]));
        let records: Vec<_> = base.chain(changed.iter().copied()).collect();
        let used = use_it(&records, &changed);
        let checked = check_it(&records);
        format!("{used}; {checked}")
    }

    fn memory(&self) -> Memory {
        Memory::UNLIMITED
    }

    fn len_max(&self) -> usize {
        8192
    }
}

/// A member asks a master for everything that was changed, and changes it.
fn use_it(records: &[(&[u8], &[u8])], changed: &[(&[u8], &[u8])]) -> String {
    let (_, engine) = engine_from(records.iter().copied());
    let mut world = match World::open(engine, chunk::MemStore::new()) {
        Ok(world) => world,
        Err(error) => return outcome(&error),
    };
    // Members that a damaged record promises have no process.
    for (node, _, _) in world.master.absent_members() {
        let clock = master::Clock { now: types::Micros(1_000_001), wall: Timespec::default() };
        world.master.member_is_dead(clock, node);
    }
    let node = world.add_node();
    let mut request = 1 << 32;
    let mut seq = 1 << 32;
    for (key, value) in changed {
        for ino in inos_of(key, value) {
            for want in [
                Want::Attr { ino },
                Want::Directory { ino },
                Want::Read { ino },
                Want::Write { ino },
                Want::Open { ino },
            ] {
                request += 1;
                world.say(
                    node,
                    ToMaster::Acquire { request, want, ahead: Ahead { window: 8, next: vec![ino] } },
                );
            }
            for what in [
                FetchWhat::Xattrs { ino },
                FetchWhat::ExtentPages { ino, from: 0, to: 1 << 20 },
                FetchWhat::Totals {},
            ] {
                request += 1;
                world.say(node, ToMaster::Fetch { request, what });
            }
            for op in operations(ino, key, value) {
                seq += 1;
                let (acked, now) = (OpSeq(seq - 1), Timespec::default());
                world.say(node, ToMaster::Ship { seq: OpSeq(seq), acked, now, op, spent: Vec::new() });
            }
        }
    }
    // Whatever was changed: what sums are kept of must go on.
    for (_, value) in
        records.iter().filter(|(key, _)| matches!(Key::from_slice(key), Some(Key::Entry(..)))).take(8)
    {
        let Some((key, _)) = records.iter().find(|(_, other)| other == value) else { continue };
        for op in operations(Ino::ROOT, key, value) {
            seq += 1;
            let (acked, now) = (OpSeq(seq - 1), Timespec::default());
            world.say(node, ToMaster::Ship { seq: OpSeq(seq), acked, now, op, spent: Vec::new() });
        }
    }
    world.rest(types::Micros(4_000_000));
    match world.failed {
        Some(reason) => panic!("one damaged record stops the master: {reason}"),
        None => "used".to_owned(),
    }
}

fn inos_of(key: &[u8], value: &[u8]) -> Vec<Ino> {
    match Key::from_slice(key) {
        Some(Key::Entry(parent, _)) => {
            let child = meta::value_decode::<Dirent>(key, value).map(|entry| entry.ino);
            [Some(parent), child.ok()].into_iter().flatten().collect()
        }
        Some(
            Key::Inode(ino)
            | Key::Content(ino)
            | Key::ExtentPage(ino, _)
            | Key::WideExtentPage(ino, _)
            | Key::Xattrs(ino)
            | Key::Orphan(ino),
        ) => {
            vec![ino]
        }
        _ => Vec::new(),
    }
}

fn operations(ino: Ino, key: &[u8], value: &[u8]) -> Vec<Op> {
    let name = |bytes: &[u8]| Name::new(bytes).expect("a fixed name is valid");
    let mut list = vec![
        Op::SetXattr {
            ino,
            name: name(b"user.y"),
            value: vec![1; 2000].into(),
            mode: XattrMode::Any,
            only_owner: None,
        },
        Op::Link { ino, parent: Ino::ROOT, name: name(b"linked") },
        Op::Split { ino },
        Op::Merge { ino },
    ];
    if let (Some(Key::Entry(parent, _)), Ok(entry)) =
        (Key::from_slice(key), meta::value_decode::<Dirent>(key, value))
    {
        list.push(Op::Rename {
            parent,
            name: entry.name.clone(),
            new_parent: Ino::ROOT,
            new_name: name(b"moved"),
            mode: RenameMode::Replace,
            target_open_here: false,
            meant: Ino(0),
            bound: None,
            whiteout: None,
        });
        list.push(Op::Rmdir { parent: Ino::ROOT, name: name(b"moved"), meant: Ino(0), bound: None });
        list.push(Op::Unlink { parent: Ino::ROOT, name: name(b"moved"), open_here: false, bound: None });
    }
    list
}

/// A check finds what is wrong, a repair leaves nothing that it could have repaired.
fn check_it(records: &[(&[u8], &[u8])]) -> String {
    let (_, engine) = engine_from(records.iter().copied());
    let options = Options { cookie_key: Some(CookieKey(COOKIE_KEY)), store: None, reads_data: false };
    let report = check::check(&*engine, &options).expect("an engine in memory can be read");
    let mut kinds: Vec<_> = report.faults.iter().map(|fault| fault.kind.name()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let repaired = match check::repair(&*engine, &options) {
        Ok(_) => "",
        Err(error) => return outcome(&format!("{kinds:?} {error}")),
    };
    let again = check::check(&*engine, &options).expect("an engine in memory can be read");
    assert!(
        again.faults.len() <= report.faults.len(),
        "a repair makes faults: {:?} after {:?}",
        again.faults,
        report.faults
    );
    outcome(&format!("{kinds:?}{repaired}"))
}

/// A disk with these records.
pub fn engine_of(records: &[(Vec<u8>, Vec<u8>)]) -> (MemDisk, Arc<dyn Engine>) {
    engine_from(records.iter().map(|(key, value)| (&key[..], &value[..])))
}

fn engine_from<'a>(records: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> (MemDisk, Arc<dyn Engine>) {
    let disk = MemDisk::new();
    let engine: Arc<dyn Engine> = Arc::new(disk.open(Claim::new(1)).expect("a new disk"));
    let mut batch = Batch::new(engine.last_seq().next());
    batch.puts.extend(
        records
            .filter(|(key, value)| {
                *key != kv::RESERVED_KEY
                    && (1..=kv::KEY_LEN_MAX).contains(&key.len())
                    && value.len() <= kv::VALUE_LEN_MAX
            })
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect::<std::collections::BTreeMap<_, _>>(),
    );
    engine.commit(batch).expect("records of lawful lengths");
    (disk, engine)
}

fn split(mut bytes: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut records = Vec::new();
    while let Some((len, rest)) = bytes.split_first() {
        let Some((key, rest)) = rest.split_at_checked(usize::from(*len)) else { break };
        let Some((len, rest)) = rest.split_first_chunk::<2>() else { break };
        let (value, rest) = rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()));
        records.push((key, value));
        bytes = rest;
    }
    records
}

/// One record of an input.
pub fn join(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&[key.len() as u8], key, &(value.len() as u16).to_le_bytes(), value].concat()
}
