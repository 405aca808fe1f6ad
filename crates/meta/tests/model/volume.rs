//! The volume under test: plans by the store's view, applied to a map.

use std::sync::Arc;

use chunk::{Extent, ExtentMap, Run};
use meta::ops::AttrSet;
use meta::{
    Body, Change, Child, FileKind, FsError, Op, OpContext, OpReply, Placement, StoreView, View, ViewError,
};
use testkit::generate::Step;
use testkit::model::{Outcome, Tree};
use testkit::store::{AuditView, MapStore};
use types::{Ino, LockMode, NodeId, SegmentId, Timespec};

pub struct Volume {
    pub store: MapStore,
}

impl Volume {
    pub fn new(now: Timespec) -> Self {
        Self { store: MapStore::formatted(now) }
    }

    /// Runs a step; `tree` is the model before it, and tells who has what open.
    pub fn step(&mut self, tree: &Tree, step: &Step, now: Timespec) -> Outcome {
        match step {
            Step::Op { op, node } => self.perform(tree, op, &OpContext { now, node: *node }),
            Step::Open { ino, .. } => self.exists(*ino),
            Step::Close { ino, node } => {
                let mut closed = tree.clone();
                closed.close(*ino, *node);
                self.perform(&closed, &Op::Reclaim { ino: *ino }, &OpContext { now, node: *node })
            }
            Step::Write { ino, offset, data } => {
                let mut written = tree.clone();
                written.write(*ino, *offset, data, now)?;
                self.set_bytes(&written, *ino, now)
            }
            Step::Truncate { ino, size } => {
                let mut cut = tree.clone();
                cut.truncate(*ino, *size, now)?;
                self.set_bytes(&cut, *ino, now)
            }
        }
    }

    fn perform(&mut self, tree: &Tree, op: &Op, context: &OpContext) -> Outcome {
        let holders = |ino| tree.openers(ino);
        let view = self.store.view(&holders);
        let audit = AuditView::new(&view);
        let plan = op.plan(&audit, context).map_err(refusal)?;
        let unheld = audit.first_unheld(&plan.changes);
        assert_eq!(unheld, None, "{op:?} changes what it does not hold: {:?}", audit.rights());
        assert!(view.take_failures().is_empty(), "{op:?}");
        self.store.apply(&plan.changes);
        Ok(plan.reply)
    }

    fn exists(&self, ino: Ino) -> Outcome {
        let view = self.store.view(&|_| Vec::new());
        view.inode(ino, LockMode::Pr).map(|_| OpReply::Done).map_err(refusal)
    }

    /// Stores what the model says a file holds, in the form that its size asks for.
    fn set_bytes(&mut self, tree: &Tree, ino: Ino, now: Timespec) -> Outcome {
        let bytes = tree.read(ino, 0, usize::MAX)?.to_vec();
        let changes = content_changes(&self.store.view(&|_| Vec::new()), ino, &bytes, now)?;
        self.store.apply(&changes);
        // By somebody in every group.
        let set = AttrSet { kill_privileges: Some((0..16).collect()), ..AttrSet::default() };
        self.perform(tree, &Op::SetAttr { ino, set }, &OpContext { now, node: NodeId(1) })?;
        Ok(OpReply::Done)
    }
}

fn content_changes(
    view: &StoreView<'_, MapStore>,
    ino: Ino,
    bytes: &[u8],
    now: Timespec,
) -> Result<Vec<Change>, FsError> {
    let (mut inode, placement) = view.inode(ino, LockMode::Ex).map_err(refusal)?;
    assert_eq!(inode.attr.kind, FileKind::File);
    let cover = match placement {
        Placement::Covered { parent, .. } => parent,
        Placement::Own {} => Ino(0),
    };
    let old_bytes = inode.content.body.stored_bytes();
    let mut changes = drop_body(&inode.content.body, ino, cover);
    let (body, added) = new_body(ino, cover, bytes);
    changes.extend(added);
    let delta = body.stored_bytes() as i64 - old_bytes as i64;
    inode.content.body = body;
    inode.content.size = bytes.len() as u64;
    (inode.content.mtime, inode.content.ctime) = (now, now);
    match placement {
        Placement::Own {} => changes.push(Change::PutContent { ino, content: inode.content }),
        Placement::Covered { parent, cookie } => {
            let (_, mut entry) = view.entry_of(parent, ino).map_err(refusal)?.ok_or(FsError::Io)?;
            changes.push(Change::AddUsage { charge: inode.attr.charge(), bytes: delta, inodes: 0 });
            entry.child = Child::Covered { inode: Arc::new(inode) };
            changes.push(Change::PutEntry { parent, cookie, entry });
        }
    }
    Ok(changes)
}

fn drop_body(body: &Body, ino: Ino, parent: Ino) -> Vec<Change> {
    match body {
        Body::Extents { map } => map
            .iter()
            .map(|extent| Change::AddLive { segment: extent.segment(), bytes: -i64::from(extent.len()) })
            .collect(),
        Body::Paged { .. } => vec![Change::DeleteExtentPages { ino, parent, from_page: 0 }],
        Body::Empty {} | Body::Inline { .. } | Body::Target { .. } => Vec::new(),
    }
}

fn new_body(ino: Ino, parent: Ino, bytes: &[u8]) -> (Body, Vec<Change>) {
    let segment = SegmentId(1 + ino.0 % 3);
    let live = Change::AddLive { segment, bytes: bytes.len() as i64 };
    match bytes.len() {
        0 => (Body::Empty {}, Vec::new()),
        1..=4_096 => (Body::Inline { data: bytes.into() }, Vec::new()),
        4_097..=8_192 => (Body::Extents { map: one_extent(segment, bytes) }, vec![live]),
        _ => {
            let page = Change::PutExtentPage { ino, parent, page: 0, map: one_extent(segment, bytes) };
            (Body::Paged { mapped_bytes: bytes.len() as u64 }, vec![page, live])
        }
    }
}

fn one_extent(segment: SegmentId, bytes: &[u8]) -> ExtentMap {
    let run = Run::of_data(segment, 0, &[bytes]).expect("short data is a run");
    let mut map = ExtentMap::new();
    let freed = map.insert(Extent::new(0, run).expect("a run at 0 fits"));
    assert!(freed.is_empty());
    map
}

fn refusal(error: ViewError) -> FsError {
    match error {
        ViewError::Refused(error) => error,
        ViewError::Missing(missing) => panic!("the master's view lacks {missing:?}"),
    }
}
