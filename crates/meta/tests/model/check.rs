//! Compares a store with the model, and its keys with each other.

use std::collections::BTreeMap;

use meta::ops::list_xattrs;
use meta::{Body, Child, Cookie, Dirent, FileKind, Inode, Key, OrphanRecord, Placement, SegmentRecord};
use meta::{StoreView, StoredInode, Totals, UsageCount, UsageRecord, View, Xattrs, value_decode};
use testkit::model::{Node, NodeBody, Tree};
use testkit::store::MapStore;
use types::{Decode, Ino, LockMode, SegmentId};

type Check = Result<(), String>;

/// The whole tree, then every key.
pub fn compare(tree: &Tree, store: &MapStore) -> Check {
    let view = store.view(&|_| Vec::new());
    for (ino, node) in tree.nodes() {
        let (inode, _) = view.inode(ino, LockMode::Pr).map_err(|error| format!("inode {ino}: {error:?}"))?;
        compare_node(tree, &view, ino, node, &inode)?;
    }
    let mut sums = Sums::default();
    for (bytes, value) in &store.0 {
        let key = Key::from_slice(bytes).ok_or("a key of no kind")?;
        check_key(&view, key, bytes, value, &mut sums).map_err(|failure| format!("{key:?}: {failure}"))?;
    }
    same("inodes", &tree.nodes().count(), &sums.inodes)?;
    let totals = read::<Totals>(store, Key::Totals)?;
    same("totals", &Totals { bytes: sums.bytes, inodes: sums.inodes as u64 }, &totals)?;
    same("usage", &sums.usage, &sums.recorded_usage)?;
    sums.live.retain(|_, bytes| *bytes > 0);
    same("live bytes", &sums.live, &sums.recorded_live)
}

/// What the keys add up to.
#[derive(Default)]
struct Sums {
    inodes: usize,
    bytes: u64,
    usage: UsageCount,
    recorded_usage: UsageCount,
    live: BTreeMap<SegmentId, u64>,
    recorded_live: BTreeMap<SegmentId, u64>,
}

fn compare_node(tree: &Tree, view: &StoreView<'_, MapStore>, ino: Ino, node: &Node, inode: &Inode) -> Check {
    let attr = &inode.attr;
    let spilled = match attr.xattrs {
        Xattrs::Spilled {} => view.spilled_xattrs(ino).map_err(|error| format!("{error:?}"))?,
        Xattrs::Embedded { .. } => Vec::new(),
    };
    let xattrs: BTreeMap<_, _> = list_xattrs(inode, &spilled)
        .iter()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec()))
        .collect();
    let times = (inode.content.atime, inode.content.mtime, inode.ctime(), attr.btime);
    let owner = (attr.uid, attr.gid, attr.rdev);
    let fields = [
        same("kind", &node.kind, &attr.kind),
        same("mode", &node.mode, &attr.mode),
        same("owner", &(node.uid, node.gid, node.rdev), &owner),
        same("times", &(node.atime, node.mtime, node.ctime, node.btime), &times),
        same("nlink", &tree.nlink(ino), &attr.nlink),
        same("xattrs", &node.xattrs, &xattrs),
        compare_body(tree, view, ino, &node.body, inode),
    ];
    let all: Check = fields.into_iter().collect();
    all.map_err(|failure| format!("inode {ino}: {failure}"))
}

fn compare_body(
    tree: &Tree,
    view: &StoreView<'_, MapStore>,
    ino: Ino,
    body: &NodeBody,
    inode: &Inode,
) -> Check {
    let content = &inode.content;
    match body {
        NodeBody::Directory { entries } => {
            let stored = view.entries(ino, Cookie::START, usize::MAX).map_err(|e| format!("{e:?}"))?;
            let stored: BTreeMap<_, _> =
                stored.into_iter().map(|(_, entry)| (entry.name.as_bytes().to_vec(), entry.ino)).collect();
            same("entries", entries, &stored)?;
            let is_exempt = ino == Ino::ROOT || tree.nlink(ino) == 0;
            let parent = if is_exempt { inode.attr.parent } else { tree.parent_of(ino).unwrap_or(Ino(0)) };
            same("parent", &parent, &inode.attr.parent)
        }
        NodeBody::File { bytes } => {
            same("size", &(bytes.len() as u64), &content.size)?;
            match &content.body {
                Body::Inline { data } => same("bytes", bytes.as_slice(), data),
                stored => same("stored bytes", &(bytes.len() as u64), &stored.stored_bytes()),
            }
        }
        NodeBody::Symlink { target } => {
            same("size", &(target.len() as u64), &content.size)?;
            same("target", &Body::Target { path: target.as_slice().into() }, &content.body)
        }
        NodeBody::Special => same("body", &Body::Empty {}, &content.body),
    }
}

/// Every key must be one that the records which lead to it call for.
fn check_key(view: &StoreView<'_, MapStore>, key: Key, bytes: &[u8], value: &[u8], sums: &mut Sums) -> Check {
    let inode_of = |ino| view.inode(ino, LockMode::Pr).map_err(|error| format!("{error:?}"));
    match key {
        Key::Inode(ino) => {
            let (inode, placement) = inode_of(ino)?;
            sums.inodes += 1;
            sums.bytes += inode.content.body.stored_bytes();
            sums.usage.add(inode.attr.charge(), inode.content.body.stored_bytes());
            add_live(&inode.content.body, &mut sums.live);
            let stored = decode::<StoredInode>(bytes, value)?;
            check_placement(&inode, placement, &stored)
        }
        Key::Entry(parent, cookie) => {
            let entry = decode::<Dirent>(bytes, value)?;
            same("parent kind", &FileKind::Directory, &inode_of(parent)?.0.attr.kind)?;
            same("hash", &view.name_hash(&entry.name), &cookie.hash())?;
            let (inode, placement) = inode_of(entry.ino)?;
            same("kind", &inode.attr.kind, &entry.kind())?;
            let expected = match entry.child {
                Child::Covered { .. } => Placement::Covered { parent, cookie },
                Child::Own { .. } => Placement::Own {},
            };
            same("placement", &expected, &placement)
        }
        Key::Content(ino) => {
            let (inode, placement) = inode_of(ino)?;
            same("placement", &Placement::Own {}, &placement)?;
            same("is directory", &false, &(inode.attr.kind == FileKind::Directory))
        }
        Key::ExtentPage(ino, page) => {
            let (inode, _) = inode_of(ino)?;
            same("is paged", &true, &matches!(inode.content.body, Body::Paged { .. }))?;
            same("page", &0, &page)?;
            let map = decode(bytes, value)?;
            add_live(&Body::Extents { map }, &mut sums.live);
            Ok(())
        }
        Key::WideExtentPage(..) => Err("a page of an earlier version".to_owned()),
        Key::Xattrs(ino) => same("xattrs", &Xattrs::Spilled {}, &inode_of(ino)?.0.attr.xattrs),
        Key::Orphan(ino) => {
            decode::<OrphanRecord>(bytes, value)?;
            same("nlink", &0, &inode_of(ino)?.0.attr.nlink)
        }
        Key::Segment(segment) => {
            let SegmentRecord { live_bytes, .. } = decode(bytes, value)?;
            if live_bytes > 0 {
                sums.recorded_live.insert(segment, live_bytes);
            }
            Ok(())
        }
        Key::Totals => Ok(()),
        Key::Usage(account) => {
            sums.recorded_usage.0.insert(account, decode::<UsageRecord>(bytes, value)?);
            Ok(())
        }
        Key::Limits(_) | Key::Member(_) | Key::OpResult(_, _) | Key::Redo(..) | Key::Volume => {
            Err("was never written".to_owned())
        }
    }
}

fn check_placement(inode: &Inode, placement: Placement, stored: &StoredInode) -> Check {
    let parent = inode.attr.parent;
    match (placement, stored) {
        (Placement::Covered { parent: cover, .. }, StoredInode::Covered { .. }) => {
            same("parent", &cover, &parent)?;
            same("nlink", &1, &inode.attr.nlink)
        }
        (Placement::Own {}, StoredInode::Directory { .. }) => Ok(()),
        (Placement::Own {}, StoredInode::Own { .. }) => {
            same("has a parent with many links", &false, &(inode.attr.nlink > 1 && parent != Ino(0)))
        }
        (Placement::Covered { .. } | Placement::Own {}, _) => Err(format!("is stored as {stored:?}")),
    }
}

fn add_live(body: &Body, live: &mut BTreeMap<SegmentId, u64>) {
    if let Body::Extents { map } = body {
        for extent in map.iter() {
            *live.entry(extent.segment()).or_default() += u64::from(extent.len());
        }
    }
}

fn read<T: Decode>(store: &MapStore, key: Key) -> Result<T, String> {
    let bytes = key.to_vec();
    let value = store.0.get(&bytes).ok_or_else(|| format!("{key:?} is missing"))?;
    decode(&bytes, value)
}

fn decode<T: Decode>(key: &[u8], value: &[u8]) -> Result<T, String> {
    value_decode(key, value).map_err(|damage| damage.to_string())
}

fn same<T: PartialEq + std::fmt::Debug + ?Sized>(what: &str, expected: &T, actual: &T) -> Check {
    if expected == actual {
        return Ok(());
    }
    let mut text = format!("{what} is {actual:?} instead of {expected:?}");
    text.truncate(2_000);
    Err(text)
}
