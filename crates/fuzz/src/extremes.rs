//! The largest numbers wherever one may stand: what a random change hits once in a hundred thousand.

use std::collections::BTreeMap;

use crate::script;
use crate::traffic::traffic;

/// Numbers as the codec writes them: the largest, the one before, the largest signed one, the one behind it, the largest of
/// 32 bits.
const NUMBERS: [&[u8]; 5] = [
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
];

/// Inputs of the target `volume`: in a few records of each kind each byte of the value, and each eight of the key, replaced.
pub fn volumes() -> impl Iterator<Item = Vec<u8>> {
    let mut kinds: BTreeMap<u8, usize> = BTreeMap::new();
    let few = traffic().records.iter().filter(move |(key, value)| {
        let count = kinds.entry(key[0]).or_default();
        *count += 1;
        *count <= EACH && value.len() < LEN_MAX
    });
    few.flat_map(|(key, value)| {
        let record = &value[1..value.len() - 4];
        let values = spliced(record).map(|record| (key.clone(), record));
        let keys = (1..key.len()).flat_map(|at| {
            [u64::MAX, u64::MAX - 1, i64::MAX as u64].map(|number| {
                let mut key = key.clone();
                let end = key.len().min(at + 8);
                key[at..end].copy_from_slice(&number.to_be_bytes()[..end - at]);
                (key, record.to_vec())
            })
        });
        values
            .chain(keys)
            .map(|(key, record)| crate::targets::volume::join(&key, &meta::value_encode_raw(&key, &record)))
    })
}

/// Conversations: in a few messages of each kind in `conversation` each byte replaced, and the same said before the message
/// as it was: then more comes of it.
pub fn conversations(conversation: &[u8]) -> impl Iterator<Item = Vec<u8>> + use<> {
    let pieces: Vec<Vec<u8>> = script::pieces(conversation).into_iter().map(<[u8]>::to_vec).collect();
    let mut kinds: BTreeMap<u8, usize> = BTreeMap::new();
    let few: Vec<usize> = (0..pieces.len())
        .filter(|at| {
            let Some(payload) = script::payload(&pieces[*at]) else { return false };
            let count = kinds.entry(payload.first().copied().unwrap_or(0)).or_default();
            *count += 1;
            *count <= EACH && payload.len() < LEN_MAX
        })
        .collect();
    few.into_iter().flat_map(move |at| {
        let (before, behind) = (pieces[..at].concat(), pieces[at + 1..].concat());
        let payload = script::payload(&pieces[at]).unwrap_or_default().to_vec();
        let changed: Vec<_> = spliced(&payload).collect();
        let whole = crate::targets::wire::frame(&payload);
        changed.into_iter().flat_map(move |payload| {
            let frame = crate::targets::wire::frame(&payload);
            let instead = [&before[..], &frame, &behind].concat();
            let besides = [&before[..], &frame, &whole, &behind].concat();
            [instead, besides]
        })
    })
}

/// `bytes` with each byte replaced by each number.
fn spliced(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let places = 0..bytes.len();
    places.flat_map(move |at| {
        NUMBERS.iter().map(move |number| [&bytes[..at], number, &bytes[at + 1..]].concat())
    })
}

/// Records and messages of one kind.
const EACH: usize = 2;
/// Longer ones hold data, or more of the same.
const LEN_MAX: usize = 400;
