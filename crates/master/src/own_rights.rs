//! Rights to files that no directory covers, brought along with what their directory is used for.
//!
//! Such a file has two tokens of its own. A node that lists a directory will look at what is in there, and one that removes names in it will
//! remove the next ones as well: asking for each by itself would cost a walk, or a removal, a round trip for each file.

use meta::{Change, Child, Content, Cookie, Dirent, FileKind, InodeAttr, Key, Op, StoredInode};
use types::{Encode, Ino, LockMode, NodeId, ResourceId};
use wire::{Grant, GrantData};

use crate::acquire::GRANT_LEN_MAX;
use crate::prefetch::AskBack;
use crate::state::Master;

impl Master {
    /// Adds PR on the files of the directories in `grants` that have tokens of their own, as far as there is room. What `grants` has takes `taken`
    /// bytes already, of at most `bytes_max`.
    pub(crate) fn bring_files(
        &mut self,
        node: NodeId,
        grants: &mut Vec<Grant>,
        taken: usize,
        bytes_max: usize,
    ) {
        let files: Vec<Ino> = grants.iter().flat_map(files_of).collect();
        let mut bytes = taken;
        for ino in files {
            if self.is_short_of_tokens(node) {
                return;
            }
            let Some(file) = self.free_for(node, ino, LockMode::Pr) else { continue };
            bytes += file.bytes();
            if bytes > bytes_max {
                return;
            }
            self.grant_file(node, file, LockMode::Pr, grants);
        }
    }

    /// Adds PR on files that a walk will come to, and asks back what others hold of them and do not use.
    pub(crate) fn bring_next(&mut self, node: NodeId, next: Vec<Ino>, grants: &mut Vec<Grant>) {
        let mut ask = AskBack::new();
        let mut bytes = 0;
        for ino in next.into_iter().take(FILES_MAX) {
            if bytes > FILES_BYTES || self.is_short_of_tokens(node) {
                break;
            }
            self.note_held_file(node, ino, &mut ask);
            let Some(file) = self.free_for(node, ino, LockMode::Pr) else { continue };
            bytes += file.bytes();
            self.grant_file(node, file, LockMode::Pr, grants);
        }
        self.ask_back(ask);
    }

    /// A walk has come to a file that another node holds in EX: what lies ahead and is held likewise is asked back with it.
    pub(crate) fn ask_next(&mut self, node: NodeId, next: &[Ino]) {
        let mut ask = AskBack::new();
        next.iter().take(FILES_MAX).for_each(|ino| self.note_held_file(node, *ino, &mut ask));
        self.ask_back(ask);
    }

    fn note_held_file(&self, node: NodeId, ino: Ino, ask: &mut AskBack) {
        // The content first: who is granted the attributes is told of the content as well.
        for right in rights_to(ino).into_iter().rev() {
            self.note_held(node, right, ask);
        }
    }

    /// The sender of a removal that has the directory to itself gets what it will remove next in EX: it does that by itself then. What others
    /// have of it and do not use is asked back.
    pub(crate) fn grant_removals(
        &mut self,
        node: NodeId,
        op: &Op,
        changes: &[Change],
        grants: &mut Vec<Grant>,
    ) {
        let Some(member) = self.members.get_mut(&node) else { return };
        let removed = changes.iter().find_map(|change| match change {
            Change::DeleteEntry { parent, cookie, .. } => Some((*parent, *cookie)),
            _ => None,
        });
        let (Op::Unlink { .. }, Some((dir, cookie))) = (op, removed) else {
            if !matches!(op, Op::Rmdir { .. }) {
                member.removals = Removals::default();
            }
            return;
        };
        let Some(mut window) = member.removals.begin(dir, cookie) else { return };
        if self.recovering || self.table.mode(node, ResourceId::dir(dir)) != LockMode::Ex {
            return;
        }
        let Ok((listing, _)) = self.listing(dir, cookie.0, LOOKED_BYTES) else { return };
        let (mut bytes, mut upto, mut is_fruitless) = (0, cookie, true);
        let mut ask = AskBack::new();
        for (cookie, ino) in files_in(&listing.entries) {
            if window == 0 || bytes > FILES_BYTES || self.is_short_of_tokens(node) {
                break;
            }
            let rights = rights_to(ino);
            if rights.iter().all(|right| self.table.mode(node, *right) == LockMode::Ex) {
                continue;
            }
            window -= 1;
            upto = cookie;
            let others: Vec<(NodeId, ResourceId)> = rights
                .iter()
                .flat_map(|right| self.table.holders(*right).map(|(holder, _)| (holder, *right)))
                .filter(|(holder, _)| *holder != node)
                .collect();
            for (holder, right) in &others {
                ask.entry(*holder).or_default().push((*right, LockMode::Nl));
            }
            if others.is_empty()
                && let Some(file) = self.free_for(node, ino, LockMode::Ex)
            {
                bytes += file.bytes();
                is_fruitless = false;
                self.grant_file(node, file, LockMode::Ex, grants);
            }
        }
        let is_asked = !ask.is_empty();
        self.ask_back(ask);
        if let Some(member) = self.members.get_mut(&node) {
            member.removals.end((dir, upto), is_asked && is_fruitless);
        }
    }

    /// Whether what comes in advance would take its room from what a node uses.
    fn is_short_of_tokens(&self, node: NodeId) -> bool {
        self.table.held_count(node) as u64 >= self.token_share() / 2
    }

    /// A file with tokens of its own as it is, if `node` has less than `mode` of it and may have that at once, with nobody to be told or asked.
    fn free_for(&self, node: NodeId, ino: Ino, mode: LockMode) -> Option<File> {
        let rights = rights_to(ino);
        let is_new = rights.iter().any(|right| self.table.mode(node, *right) < mode);
        let is_free =
            rights.iter().all(|right| !self.is_changing(*right) && self.table.may_grant(node, *right, mode));
        // Who holds it in EX may remove it, and knows of no opens but its own.
        let may_be_open = || {
            self.table.open_nodes(ino).any(|holder| holder != node)
                || self.may_be_open_unsaid(ino)
                || !self.unheard(ino).is_empty()
        };
        if !is_new || !is_free || mode == LockMode::Ex && may_be_open() {
            return None;
        }
        match (self.read(Key::Inode(ino)), self.read(Key::Content(ino))) {
            (Ok(Some(StoredInode::Own { attr })), Ok(Some(content))) if attr.nlink > 0 => {
                Some(File { ino, attr, content })
            }
            // What cannot be read is said to who asks for it.
            _ => None,
        }
    }

    fn grant_file(&mut self, node: NodeId, file: File, mode: LockMode, grants: &mut Vec<Grant>) {
        let File { ino, attr, content } = file;
        let data = [GrantData::Attr { attr }, GrantData::Content { content }];
        for (resource, data) in rights_to(ino).into_iter().zip(data) {
            self.table.grant(node, resource, mode);
            grants.push(Grant { resource, mode, data });
        }
    }
}

/// A file that no directory covers.
struct File {
    ino: Ino,
    attr: InodeAttr,
    content: Content,
}

impl File {
    /// What it takes in a message, at most.
    fn bytes(&self) -> usize {
        self.attr.to_bytes().len() + self.content.to_bytes().len() + 2 * GRANT_LEN_MAX
    }
}

/// Attributes first: with them it is known whom the content is charged to.
fn rights_to(ino: Ino) -> [ResourceId; 2] {
    [ResourceId::attr(ino), ResourceId::file(ino)]
}

fn files_of(grant: &Grant) -> Vec<Ino> {
    match &grant.data {
        GrantData::Directory { listing, .. } => {
            files_in(&listing.entries).into_iter().map(|(_, ino)| ino).collect()
        }
        GrantData::Held {} | GrantData::Since { .. } | GrantData::Attr { .. } | GrantData::Content { .. } => {
            Vec::new()
        }
    }
}

/// Those of the entries that no directory covers, and that are none.
fn files_in(entries: &[(Cookie, Dirent)]) -> Vec<(Cookie, Ino)> {
    let is_file = |child: &Child| matches!(child, Child::Own { kind } if *kind != FileKind::Directory);
    let files = entries.iter().filter(|(_, entry)| is_file(&entry.child));
    files.map(|(cookie, entry)| (*cookie, entry.ino)).collect()
}

/// A run of removals that a member asks for one by one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Removals {
    /// Files whose rights the last one was to bring.
    window: usize,
    /// The last file looked at, in its directory.
    upto: Option<(Ino, Cookie)>,
    /// How many in a row brought no right, though others were asked for some.
    fruitless: u32,
}

impl Removals {
    /// One in `dir` at `cookie`: of how many files it is to bring the rights. `None` where those that follow were asked for again and again, and whoever has
    /// them, as he has them open, gives none: looking through them once more for each would cost more than all else.
    fn begin(&mut self, dir: Ino, cookie: Cookie) -> Option<usize> {
        let is_passed = self.upto.is_none_or(|(of, upto)| of != dir || cookie > upto);
        match (is_passed, self.fruitless >= FRUITLESS_MAX) {
            (false, true) => return None,
            (true, true) => *self = Self::default(),
            (_, false) => {}
        }
        self.window = (self.window * 4).clamp(REMOVALS_MIN, FILES_MAX);
        Some(self.window)
    }

    fn end(&mut self, upto: (Ino, Cookie), is_fruitless: bool) {
        self.upto = Some(upto);
        self.fruitless = if is_fruitless { self.fruitless + 1 } else { 0 };
    }
}

/// So many removals in a row may ask for rights and be given none.
const FRUITLESS_MAX: u32 = 4;

/// Files that the first removal of a run brings.
const REMOVALS_MIN: usize = 4;
/// Files that one answer brings beside what was asked for, at most.
const FILES_MAX: usize = 256;
/// And bytes of their rights, about.
const FILES_BYTES: usize = 128 << 10;
/// Bytes of entries looked at for one removal, about.
const LOOKED_BYTES: usize = 64 << 10;
