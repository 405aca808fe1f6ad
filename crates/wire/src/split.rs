//! Messages that are too large for a frame, in parts that are not.
//!
//! What may be told in any number of messages is split here. What may not is bounded by whoever fills it: listings
//! and grants by the master (`LISTING_BYTES`), changes of one operation by the limits of names, records and pages
//! of extents, releases by the node, which numbers them.

use std::sync::Arc;

use meta::Change;
use types::{LockMode, ResourceId};

use crate::from_master::FromMaster;
use crate::to_master::{ReassertPart, ToMaster};

/// Bytes of a part, at most if no single item is larger.
pub const PART_BYTES: usize = 768 << 10;
/// Resources with modes, inodes, segments or locks in one message: none takes more than 64 bytes.
const LIST_MAX: usize = 10_000;

impl ToMaster {
    /// Hands the message to `each` in parts that fit frames, in the order to send them.
    pub fn split(self, mut each: impl FnMut(Self)) {
        match self {
            Self::Batch { seq, mut kept, changes, sync, spent } => {
                while kept.len() > LIST_MAX {
                    let rest = kept.split_off(LIST_MAX);
                    each(Self::BatchPart { seq, kept, changes: Vec::new() });
                    kept = rest;
                }
                let bytes = kept.len() * RIGHT_LEN_MAX + encoded_len_max(&changes);
                if bytes <= PART_BYTES {
                    return each(Self::Batch { seq, kept, changes, sync, spent });
                }
                let mut parts = change_parts(Arc::unwrap_or_clone(changes), kept.len() * RIGHT_LEN_MAX);
                let last = parts.pop().unwrap_or_default();
                for changes in parts {
                    each(Self::BatchPart { seq, kept: std::mem::take(&mut kept), changes });
                }
                each(Self::Batch { seq, kept, changes: Arc::new(last), sync, spent });
            }
            Self::Reassert { part, done } => split_reassertion(part, done, each),
            Self::Disown { mut segments } => {
                while segments.len() > LIST_MAX {
                    let rest = segments.split_off(LIST_MAX);
                    each(Self::Disown { segments });
                    segments = rest;
                }
                each(Self::Disown { segments });
            }
            message => each(message),
        }
    }

    /// Rights given back, in lists that fit a message each. There is one at least.
    pub fn release_parts(list: Vec<(ResourceId, LockMode)>) -> Vec<Vec<(ResourceId, LockMode)>> {
        parts_of(list)
    }
}

impl FromMaster {
    /// Hands the message to `each` in parts that fit frames, in the order to send them.
    pub fn split(self, mut each: impl FnMut(Self)) {
        match self {
            Self::Revoke { list, speculative } => {
                parts_of(list).into_iter().for_each(|list| each(Self::Revoke { list, speculative }));
            }
            message => each(message),
        }
    }
}

/// Changes in lists of about [`PART_BYTES`], of which the first leaves room for `taken` bytes. One list at least.
pub fn change_parts(changes: Vec<Change>, taken: usize) -> Vec<Vec<Change>> {
    let mut bytes = taken + encoded_len_max(&changes);
    if bytes <= PART_BYTES {
        return vec![changes];
    }
    let mut parts = vec![Vec::new()];
    bytes = taken;
    for change in changes {
        let len = change.encoded_len_max();
        if bytes > 0 && bytes + len > PART_BYTES {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += len;
        if let Some(part) = parts.last_mut() {
            part.push(change);
        }
    }
    parts
}

fn encoded_len_max(changes: &[Change]) -> usize {
    changes.iter().map(Change::encoded_len_max).sum()
}

fn split_reassertion(part: ReassertPart, done: bool, mut each: impl FnMut(ToMaster)) {
    let parts: Vec<ReassertPart> = match part {
        ReassertPart::Tokens { list } => {
            parts_of(list).into_iter().map(|list| ReassertPart::Tokens { list }).collect()
        }
        ReassertPart::Open { list } => {
            parts_of(list).into_iter().map(|list| ReassertPart::Open { list }).collect()
        }
        ReassertPart::Locks { list } => {
            parts_of(list).into_iter().map(|list| ReassertPart::Locks { list }).collect()
        }
        ReassertPart::Credit { list, mut shipped } => parts_of(list)
            .into_iter()
            .map(|list| ReassertPart::Credit { list, shipped: std::mem::take(&mut shipped) })
            .collect(),
    };
    let last = parts.len() - 1;
    for (index, part) in parts.into_iter().enumerate() {
        each(ToMaster::Reassert { part, done: done && index == last });
    }
}

/// Lists of at most [`LIST_MAX`]. There is one at least.
fn parts_of<T>(mut list: Vec<T>) -> Vec<Vec<T>> {
    let mut parts = Vec::new();
    while list.len() > LIST_MAX {
        let rest = list.split_off(LIST_MAX);
        parts.push(std::mem::replace(&mut list, rest));
    }
    parts.push(list);
    parts
}

const RIGHT_LEN_MAX: usize = 12;
