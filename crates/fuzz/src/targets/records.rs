//! Values of the metadata engine, under the keys that say what they are. The master's own are among them.

use chunk::ExtentMap;
use meta::{
    Content, Damage, Dirent, Key, Limits, MemberRecord, OrphanRecord, RedoRecord, ResultRecord,
    SegmentRecord, StoredInode, Totals, UsageRecord, VolumeRecord,
};
use testkit::fuzz::{Target, outcome};
use types::{Decode, Encode, Name};

use crate::targets::round_trip;
use crate::traffic::traffic;

/// A key and its value: one byte with the length of the key, the key, the value.
pub struct Records;

impl Target for Records {
    fn name(&self) -> &'static str {
        "records"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut seeds: Vec<_> = traffic().records.iter().map(|(key, value)| join(key, value)).collect();
        // Kinds that a volume at rest has none of.
        let made = [
            (Key::OpResult(types::NodeId(3), types::OpSeq(9)), result_of_an_operation()),
            (Key::Orphan(types::Ino(77)), OrphanRecord { holders: vec![types::NodeId(1)] }.to_bytes()),
        ];
        for (key, record) in made {
            let key = key.to_vec();
            seeds.push(join(&key, &meta::value_encode_raw(&key, &record)));
        }
        seeds
    }

    fn repair(&self, bytes: &mut Vec<u8>) {
        let Some((key, value)) = split(bytes) else { return };
        let Some((body, _)) = value.split_last_chunk::<4>() else { return };
        let record = body.get(1..).unwrap_or_default();
        *bytes = join(key, &meta::value_encode_raw(key, record));
    }

    fn run(&mut self, bytes: &[u8]) -> String {
        let Some((key, value)) = split(bytes) else { return "no key".to_owned() };
        let Some(typed) = Key::from_slice(key) else { return "of no kind".to_owned() };
        let result = match typed {
            Key::Entry(..) => read::<Dirent>(key, value),
            Key::Inode(_) => read::<StoredInode>(key, value),
            Key::Content(_) => read::<Content>(key, value),
            Key::ExtentPage(..) | Key::WideExtentPage(..) => read::<ExtentMap>(key, value),
            Key::Xattrs(_) => read::<Vec<(Name, Box<[u8]>)>>(key, value),
            Key::Orphan(_) => read::<OrphanRecord>(key, value),
            Key::Member(_) => read::<MemberRecord>(key, value),
            Key::OpResult(..) => read::<ResultRecord>(key, value),
            Key::Segment(_) => read::<SegmentRecord>(key, value),
            Key::Totals => read::<Totals>(key, value),
            Key::Usage(_) => read::<UsageRecord>(key, value),
            Key::Limits(_) => read::<Limits>(key, value),
            Key::Volume => read::<VolumeRecord>(key, value),
            Key::Redo(..) => read::<RedoRecord>(key, value),
        };
        match result {
            Ok(()) => outcome(&format!("{typed:?}")),
            Err(Damage::Value { cause, .. }) => outcome(&format!("{typed:?} {cause}")),
            Err(other) => outcome(&other.to_string()),
        }
    }
}

fn read<T: Decode + Encode + PartialEq + std::fmt::Debug>(key: &[u8], value: &[u8]) -> Result<(), Damage> {
    let record: T = meta::value_decode(key, value)?;
    round_trip(&record);
    Ok(())
}

/// A result with the changes of a batch that was sent.
fn result_of_an_operation() -> Vec<u8> {
    let batches = traffic().to_master.values().filter_map(|payload| wire::ToMaster::from_bytes(payload).ok());
    let changes = batches
        .filter_map(|message| match message {
            wire::ToMaster::Batch { changes, .. } => Some(changes.to_vec()),
            _ => None,
        })
        .max_by_key(Vec::len);
    let reply = meta::OpReply::Removed { ino: types::Ino(300), deleted: true };
    ResultRecord { result: Ok(reply), changes: changes.unwrap_or_default() }.to_bytes()
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

fn join(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&[key.len() as u8], key, value].concat()
}
