//! Credit: what this node may promise on behalf of accounts that have limits.
//!
//! Invariants, of each such account:
//!
//! - What the master counts for this node is what may still be promised here (`Held`), what was promised for content that no change records
//!   yet (`pending`), and what changes in the log use that it has not got (`WriteLog::spent`). Whatever moves between these three is noted in
//!   the step that moves it.
//! - What is taken away may be promised again when the log has it, not before: so it is committed before what takes its place, and no death
//!   leaves more than what is allowed. Where it is needed sooner, content that has become less is flushed.
//! - Credit of several accounts is asked for in the order of the accounts, and what is here for a request stays here while it waits for that of a later one.
//!   So no two nodes take from each other what both need: who has the last that is asked for goes on.
//!
//! An account without limits costs nothing.

use std::collections::{BTreeMap, BTreeSet};

use meta::ops::NewInode;
use meta::{Change, Content, FsError, Op};
use rustc_hash::FxHashMap;
use types::{Account, BatchSeq, Charge, Credit, Ino, LockMode, ResourceId};
use wire::{ToMaster, Want};

use crate::cache::Place;
use crate::core::Core;
use crate::wait::{Progress, Step, Try, WaitKey};

/// What may be promised.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    /// Of every account that has limits.
    held: BTreeMap<Account, Held>,
    /// Bytes that content newer than its record will be charged for beyond it, and to whom.
    pending: FxHashMap<Ino, (Charge, i64)>,
    /// Files whose newer content is less than their record.
    shrunk: BTreeSet<Ino>,
    /// Accounts whose credit is to go back once these are flushed.
    recalled: BTreeMap<Account, Recall>,
    /// Accounts that owe.
    in_debt: BTreeSet<Account>,
    /// Files whose content came without a word of whose they are.
    unknown: Vec<Ino>,
}

/// What may be promised of one account; below zero: what is owed.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    bytes: i64,
    inodes: i64,
    /// What the master was asked for and has not answered, and the number of that.
    asked: Option<(Credit, u64)>,
    /// Whether that is owed.
    is_owed: bool,
}

/// Credit that is asked back.
#[derive(Clone, Copy, Debug)]
struct Recall {
    seq: u64,
    /// The flush of what had become less when it came.
    awaits: Option<u64>,
    /// What has come since: the master counts that apart.
    bytes: i64,
    inodes: i64,
}

impl Quota {
    /// Whether any account has limits.
    pub fn binds(&self) -> bool {
        !self.held.is_empty()
    }

    fn take(&mut self, account: Account, bytes: i64, inodes: i64) -> bool {
        let Some(held) = self.held.get_mut(&account) else { return false };
        held.bytes = held.bytes.saturating_sub(bytes);
        held.inodes = held.inodes.saturating_sub(inodes);
        if held.bytes < 0 || held.inodes < 0 {
            self.in_debt.insert(account);
        }
        true
    }

    /// What content that no change records yet was promised, of one account.
    fn pending_of(&self, account: Account) -> i64 {
        let is_its = |(charge, _): &&(Charge, i64)| charge.accounts().any(|of| of == account);
        self.pending.values().filter(is_its).map(|(_, bytes)| *bytes).sum()
    }
}

impl Core {
    /// The master says which accounts have limits.
    pub(crate) fn on_limited(&mut self, version: u64, accounts: &[Account]) {
        self.take_limited(accounts);
        // What was changed without credit is in the usage by then.
        self.send_batch(false);
        self.send(ToMaster::LimitsTaken { version });
    }

    /// From now on nothing is promised without credit on behalf of these, and of no others.
    pub(crate) fn take_limited(&mut self, accounts: &[Account]) {
        let mut pending = std::mem::take(&mut self.quota.pending);
        for (charge, bytes) in pending.values_mut() {
            for account in charge.accounts() {
                self.quota.take(account, -*bytes, 0);
            }
            // Whose it is may not be known otherwise any more.
            *bytes = 0;
        }
        let old = std::mem::take(&mut self.quota.held);
        self.quota.held = accounts
            .iter()
            .map(|account| (*account, old.get(account).copied().unwrap_or_default()))
            .collect();
        self.log.keep_spent(accounts);
        if self.quota.binds() {
            self.quota.pending = pending;
            for ino in self.live.keys().copied().collect::<Vec<_>>() {
                self.settle_pending(ino);
            }
        }
        for account in old.into_keys() {
            if !self.quota.held.contains_key(&account) {
                self.wake(WaitKey::Credit(account));
            }
        }
    }

    /// Waits until so much may be promised on behalf of an inode's accounts; [`FsError::QuotaExceeded`] if that is more than what is left.
    pub(crate) fn need_credit(
        &mut self,
        accounts: impl Iterator<Item = Account>,
        bytes: u64,
        inodes: u64,
        progress: &mut Progress,
    ) -> Try<()> {
        if progress.is_exempt || !self.quota.binds() {
            return Ok(());
        }
        let (bytes, inodes) =
            (i64::try_from(bytes).unwrap_or(i64::MAX), i64::try_from(inodes).unwrap_or(i64::MAX));
        let is_short = |held: &Held| bytes > 0 && held.bytes < bytes || inodes > 0 && held.inodes < inodes;
        let mut accounts: Vec<Account> = accounts.collect();
        accounts.sort_unstable();
        progress.reserved.clear();
        for account in accounts {
            if self.quota.held.get(&account).is_some_and(is_short) {
                // What was promised for content that is gone is there again.
                self.settle_all_pending();
            }
            let Some(held) = self.quota.held.get_mut(&account) else { continue };
            if !is_short(held) {
                progress.reserved.push(Credit { account, bytes, inodes });
                continue;
            }
            if progress.refused_credit == Some(account) {
                return Err(FsError::QuotaExceeded.into());
            }
            if !std::mem::replace(&mut progress.shrunk_flushed, true) && !self.quota.shrunk.is_empty() {
                return Err(self.flush_shrunk());
            }
            if held.asked.is_none() {
                let lacking =
                    |needed: i64, held: i64| if needed > 0 { needed.saturating_sub(held).max(0) } else { 0 };
                let want = Credit {
                    account,
                    bytes: lacking(bytes, held.bytes),
                    inodes: lacking(inodes, held.inodes),
                };
                self.note_asked(want, false);
                self.metrics.credit_waits.add(1);
                self.ask_credit(want, false);
            }
            return Err(Step::Wait(WaitKey::Credit(account)));
        }
        progress.reserved.clear();
        Ok(())
    }

    /// What is here of an account for requests that wait for credit of another one.
    fn reserved_of(&self, account: Account) -> (i64, i64) {
        let waiting = self.parked.values().filter(|parked| matches!(parked.key, WaitKey::Credit(_)));
        let its =
            waiting.flat_map(|parked| &parked.progress.reserved).filter(|credit| credit.account == account);
        its.fold((0, 0), |(bytes, inodes): (i64, i64), credit| {
            (bytes.saturating_add(credit.bytes), inodes.saturating_add(credit.inodes))
        })
    }

    fn note_asked(&mut self, want: Credit, is_owed: bool) {
        let number = self.number();
        if let Some(held) = self.quota.held.get_mut(&want.account) {
            (held.asked, held.is_owed) = (Some((want, number)), is_owed);
        }
    }

    fn ask_credit(&mut self, want: Credit, force: bool) {
        let now = self.clock.wall;
        self.send(ToMaster::AskCredit { want, now, force });
    }

    /// What was used without credit, by root or because it could not be asked for, counts against the limits as what others use.
    pub(crate) fn cover_debts(&mut self) {
        if self.quota.in_debt.is_empty() {
            return;
        }
        for account in std::mem::take(&mut self.quota.in_debt) {
            let Some(held) = self.quota.held.get_mut(&account) else { continue };
            let (bytes, inodes) = (held.bytes.saturating_neg().max(0), held.inodes.saturating_neg().max(0));
            if bytes == 0 && inodes == 0 {
                continue;
            }
            if held.asked.is_some() && held.is_owed {
                // When that is answered.
                self.quota.in_debt.insert(account);
                continue;
            }
            // In place of what was asked for: who waits for that asks again. What is owed is known to the master before a batch that uses it.
            let want = Credit { account, bytes, inodes };
            self.note_asked(want, true);
            self.ask_credit(want, true);
        }
    }

    /// Credit has come.
    pub(crate) fn on_credited(&mut self, credit: Credit, refused: bool) {
        let account = credit.account;
        let Some(held) = self.quota.held.get_mut(&account) else { return };
        let asked = held.asked.take();
        self.take_credit(credit);
        if let Some((_, number)) = asked.filter(|_| refused) {
            self.edit_waiting(WaitKey::Credit(account), |progress| {
                // Who came after it was asked for asks again: something may have been freed before that call.
                if progress.number < number {
                    progress.refused_credit = Some(account);
                }
            });
        }
        self.wake(WaitKey::Credit(account));
    }

    /// A shipped operation was refused: what went with it is this node's again.
    pub(crate) fn take_credit_back(&mut self, spent: &[Credit]) {
        for credit in spent {
            if self.quota.held.contains_key(&credit.account) {
                self.take_credit(*credit);
            }
        }
    }

    /// Has credit that came with the message at hand.
    fn take_credit(&mut self, credit: Credit) {
        let Credit { account, bytes, inodes } = credit;
        self.quota.take(account, bytes.saturating_neg(), inodes.saturating_neg());
        if let Some(recall) = self.quota.recalled.get_mut(&account) {
            recall.bytes = recall.bytes.saturating_add(bytes);
            recall.inodes = recall.inodes.saturating_add(inodes);
        }
    }

    /// Has all content logged that is less than its record, so that others can be in its place.
    fn flush_shrunk(&mut self) -> Step {
        let inos: Vec<Ino> = self.quota.shrunk.iter().copied().collect();
        let job = self.flush(&inos).unwrap_or_else(|| {
            let job = self.number();
            self.wake(WaitKey::Flush(job));
            job
        });
        Step::Wait(WaitKey::Flush(job))
    }

    /// Others need credit: what is not promised goes back, and what was taken away is told.
    pub(crate) fn on_recall_credit(&mut self, seq: u64, account: Account) {
        let mut awaits = None;
        if !self.quota.shrunk.is_empty() {
            let _ = self.flush_shrunk();
            let shrunk: Vec<Ino> = self.quota.shrunk.iter().copied().collect();
            // What becomes less after this is another matter: there may be no end of it.
            awaits = self.flush_under_way(&shrunk);
        }
        self.quota.recalled.insert(account, Recall { seq, awaits, bytes: 0, inodes: 0 });
    }

    /// Gives back what was asked back.
    pub(crate) fn answer_recalls(&mut self) {
        let is_ready = |recall: &Recall| recall.awaits.is_none_or(|job| !self.flushes.contains_key(&job));
        let ready: BTreeMap<Account, Recall> = self
            .quota
            .recalled
            .iter()
            .filter(|(_, recall)| is_ready(recall))
            .map(|(account, recall)| (*account, *recall))
            .collect();
        if ready.is_empty() {
            return;
        }
        self.quota.recalled.retain(|account, _| !ready.contains_key(account));
        // What was promised for content that is gone, with its file perhaps, is there for others.
        self.settle_all_pending();
        self.send_batch(false);
        for (account, Recall { seq, awaits: _, bytes, inodes }) in ready {
            let (reserved_bytes, reserved_inodes) = self.reserved_of(account);
            if let Some(held) = self.quota.held.get_mut(&account) {
                held.bytes = held.bytes.min(bytes.saturating_add(reserved_bytes));
                held.inodes = held.inodes.min(inodes.saturating_add(reserved_inodes));
            }
            let mut kept = self.credit_of(account);
            kept.bytes = kept.bytes.saturating_sub(bytes);
            kept.inodes = kept.inodes.saturating_sub(inodes);
            self.send(ToMaster::CreditKept { seq, kept });
        }
    }

    /// What the master should count for this node, apart from what is on its way to it.
    fn credit_of(&self, account: Account) -> Credit {
        let held = self.quota.held.get(&account).copied().unwrap_or_default();
        let (bytes, inodes) = self.log.spent(account);
        let pending = self.quota.pending_of(account);
        Credit {
            account,
            bytes: held.bytes.saturating_add(pending).saturating_add(bytes),
            inodes: held.inodes.saturating_add(inodes),
        }
    }

    /// All credit as a new master is to count it, who has applied batches up to `applied`; without what went with operations that have no
    /// answer.
    pub(crate) fn credit_to_reassert(&self, applied: BatchSeq) -> Vec<Credit> {
        let mut list: BTreeMap<Account, Credit> =
            self.quota.held.keys().map(|account| (*account, self.credit_of(*account))).collect();
        for credit in self.log.spent_after(applied) {
            if let Some(sum) = list.get_mut(&credit.account) {
                sum.bytes = sum.bytes.saturating_add(credit.bytes);
                sum.inodes = sum.inodes.saturating_add(credit.inodes);
            }
        }
        list.into_values().collect()
    }

    /// All credit as the master counts it when nothing is on its way to it, but for accounts of which there is none.
    pub fn credit(&self) -> Vec<Credit> {
        let mut list = self.credit_to_reassert(self.log.last());
        list.retain(|credit| credit.bytes != 0 || credit.inodes != 0);
        list
    }

    /// Who asked for credit back will ask again.
    pub(crate) fn drop_recalls(&mut self) {
        self.quota.recalled.clear();
    }

    /// Asks again for what was not answered.
    pub(crate) fn ask_credit_again(&mut self) {
        let asked: Vec<Credit> =
            self.quota.held.values().filter_map(|held| held.asked.map(|(want, _)| want)).collect();
        for want in asked {
            if let Some(held) = self.quota.held.get_mut(&want.account) {
                let is_owed = held.bytes < 0 || held.inodes < 0;
                // Who waits for credit asks again for what he lacks by now.
                held.asked = None;
                match is_owed {
                    true => _ = self.quota.in_debt.insert(want.account),
                    false => self.wake(WaitKey::Credit(want.account)),
                }
            }
        }
    }

    /// Changes that are being logged use credit.
    pub(crate) fn note_spent(&mut self, charge: Charge, bytes: i64, inodes: i64) {
        for account in charge.accounts() {
            if self.quota.take(account, bytes, inodes) {
                self.log.note_spent(account, bytes, inodes);
            }
        }
    }

    /// Inodes with keys of their own that changes are about to change, and what they come to now.
    pub(crate) fn own_usage_before(&self, changes: &[Change]) -> BTreeMap<Ino, Option<(Charge, i64)>> {
        if !self.quota.binds() {
            return BTreeMap::new();
        }
        let inos = changes.iter().filter_map(Change::own_inode);
        inos.map(|ino| (ino, self.own_usage(ino))).collect()
    }

    /// Notes what they have come to.
    pub(crate) fn note_own_usage(&mut self, before: BTreeMap<Ino, Option<(Charge, i64)>>) {
        for (ino, was) in before {
            let is = self.own_usage(ino);
            if let Some((charge, bytes)) = was {
                self.note_spent(charge, -bytes, -1);
            }
            if let Some((charge, bytes)) = is {
                self.note_spent(charge, bytes, 1);
            }
        }
    }

    /// Whom an inode with keys of its own is charged to, and for how many bytes, as recorded, as far as is known here.
    fn own_usage(&self, ino: Ino) -> Option<(Charge, i64)> {
        let own = self.cache.owns.get(&ino)?;
        let bytes = own.content.as_ref()?.body.stored_bytes() as i64;
        let pending = self.quota.pending.get(&ino).map(|(charge, _)| *charge);
        let charge = own.charge().or(pending)?;
        Some((charge, bytes))
    }

    /// Whom an inode is charged to whose record is here, or was while nobody could change that.
    fn charge_of(&self, ino: Ino) -> Option<Charge> {
        if let Some(charge) = self.cache.owns.get(&ino).and_then(|own| own.charge()) {
            return Some(charge);
        }
        let Place::Covered(parent, cookie) = self.place(ino) else { return None };
        let entry = self.cache.dirs.get(&parent)?.entries.get(&cookie)?;
        entry.dirent.covered().filter(|_| entry.dirent.ino == ino).map(|inode| inode.attr.charge())
    }

    /// Waits until `growth` bytes more may be promised for the content of a file, and promises them. Whose it is must be known without
    /// waiting for a right that is being given back, for a write owns pages; else it is charged when it is logged.
    pub(crate) fn promise_bytes(&mut self, ino: Ino, growth: u64, progress: &mut Progress) -> Try<()> {
        if !self.quota.binds() || growth == 0 {
            return Ok(());
        }
        let charge =
            match self.charge_of(ino).or_else(|| self.quota.pending.get(&ino).map(|(charge, _)| *charge)) {
                Some(charge) => charge,
                None => match self.charge_for_write(ino)? {
                    Some(charge) => charge,
                    None => return Ok(()),
                },
            };
        // What is less than its record may become as much again.
        let below = match self.quota.shrunk.contains(&ino) {
            true => self.beyond_record(ino).map_or(0, |beyond| beyond.min(0).unsigned_abs()),
            false => 0,
        };
        let growth = growth.saturating_sub(below);
        self.need_credit(charge.accounts(), growth, 0, progress)?;
        if self.quota.pending.get(&ino).is_none_or(|(of, _)| *of != charge) {
            // Another's since, or counted for nobody as nobody knew whose it was.
            self.count_pending_for(ino, charge);
        }
        let (charge, pending) = self.quota.pending.entry(ino).or_insert((charge, 0));
        *pending = pending.saturating_add(growth as i64);
        let charge = *charge;
        for account in charge.accounts() {
            self.quota.take(account, growth as i64, 0);
        }
        Ok(())
    }

    /// Counts anew what the newer content of a file will be charged for.
    pub(crate) fn settle_pending(&mut self, ino: Ino) {
        if !self.quota.binds() {
            return;
        }
        let old = self.quota.pending.get(&ino).copied();
        self.quota.shrunk.remove(&ino);
        self.forget_charge(ino);
        let Some(beyond) = self.beyond_record(ino) else {
            // Whose it is may not be to be found out when pages are written back: it stays known while the content is held.
            if let Some((charge, _)) = old.filter(|_| self.may_become_live(ino)) {
                self.quota.pending.insert(ino, (charge, 0));
            }
            return;
        };
        if beyond < 0 {
            self.quota.shrunk.insert(ino);
        }
        if let Some(charge) = self.charge_of(ino).or(old.map(|(charge, _)| charge)) {
            self.count_pending_for(ino, charge);
        }
    }

    /// What the newer content of a file has beyond its record counts for these.
    fn count_pending_for(&mut self, ino: Ino, charge: Charge) {
        self.forget_charge(ino);
        let bytes = self.beyond_record(ino).unwrap_or(0).max(0);
        self.quota.pending.insert(ino, (charge, bytes));
        for account in charge.accounts() {
            self.quota.take(account, bytes, 0);
        }
    }

    /// A file may have another owner than it was counted for.
    pub(crate) fn forget_charge(&mut self, ino: Ino) {
        if let Some((charge, bytes)) = self.quota.pending.remove(&ino) {
            for account in charge.accounts() {
                self.quota.take(account, -bytes, 0);
            }
        }
    }

    fn may_become_live(&self, ino: Ino) -> bool {
        self.live.contains_key(&ino)
            || self.tokens.held(ResourceId::file(ino)) == LockMode::Ex
            || self.known.get(&ino).is_some_and(|known| known.is_written())
    }

    /// Content came that may be written. Whose the file is will have to be known when attributes cannot be waited for any more.
    pub(crate) fn note_content_granted(&mut self, ino: Ino) {
        if self.quota.binds() && self.charge_of(ino).is_none() {
            self.quota.unknown.push(ino);
        }
    }

    /// Asks for attributes where they did not come with the content.
    pub(crate) fn learn_charges(&mut self) {
        for ino in std::mem::take(&mut self.quota.unknown) {
            if self.tokens.held(ResourceId::file(ino)) == LockMode::Ex && self.charge_of(ino).is_none() {
                self.want(Want::Attr { ino });
            }
        }
    }

    /// A file is open for writing: whose it is will be known when its pages are written back.
    pub(crate) fn note_charge(&mut self, ino: Ino) {
        if self.quota.binds()
            && !self.quota.pending.contains_key(&ino)
            && let Some(charge) = self.charge_of(ino)
        {
            self.quota.pending.insert(ino, (charge, 0));
        }
    }

    /// Bytes that the newer content of a file, if there is any, has beyond its record; below zero: that it has less.
    fn beyond_record(&self, ino: Ino) -> Option<i64> {
        let stored = self.live.get(&ino)?.stored_bytes();
        Some(stored as i64 - self.recorded_bytes(ino)?)
    }

    /// Counts anew whatever content there is no more of.
    pub(crate) fn settle_all_pending(&mut self) {
        let counted = self.quota.pending.keys().chain(&self.quota.shrunk);
        let gone = counted.filter(|ino| !self.live.contains_key(ino)).copied();
        for ino in gone.collect::<Vec<_>>() {
            self.settle_pending(ino);
        }
    }

    fn recorded_bytes(&self, ino: Ino) -> Option<i64> {
        Some(self.recorded(ino)?.body.stored_bytes() as i64)
    }

    /// The content of a file as it is in its record, if that is here.
    pub(crate) fn recorded(&self, ino: Ino) -> Option<&Content> {
        match self.place(ino) {
            Place::Own => self.cache.owns.get(&ino)?.content.as_ref(),
            Place::Covered(parent, cookie) => {
                let entry = self.cache.dirs.get(&parent)?.entries.get(&cookie)?;
                Some(&entry.dirent.covered().filter(|_| entry.dirent.ino == ino)?.content)
            }
            Place::Unknown => None,
        }
    }

    /// Waits until there is credit for what an operation makes or moves to other accounts. Returns it.
    pub(crate) fn need_credit_for(&mut self, op: &Op, progress: &mut Progress) -> Try<Vec<Credit>> {
        if !self.quota.binds() {
            return Ok(Vec::new());
        }
        // What is not recorded yet goes with the file, but not with the operation.
        let mut unrecorded = 0;
        let (accounts, bytes, inodes) = match op {
            Op::Create { parent, new, .. } | Op::CreateOrphan { parent, new } => {
                self.cost_of(*parent, new)?
            }
            Op::Rename { parent, whiteout: Some(new), .. } => self.cost_of(*parent, new)?,
            Op::SetAttr { ino, set } if set.uid.is_some() || set.gid.is_some() || set.tree.is_some() => {
                let (attr, _) = self.attr_of(*ino, progress)?;
                let user = set.uid.filter(|uid| *uid != attr.uid).map(Account::User);
                let group = set.gid.filter(|gid| *gid != attr.gid).map(Account::Group);
                let tree = set.tree.filter(|tree| *tree != 0 && *tree != attr.tree).map(Account::Tree);
                let moved = user.into_iter().chain(group).chain(tree);
                unrecorded = self.beyond_record(*ino).unwrap_or(0).max(0);
                (moved.collect(), attr.stored_bytes, 1)
            }
            _ => return Ok(Vec::new()),
        };
        self.need_credit(accounts.iter().copied(), bytes, inodes, progress)?;
        let limited = accounts.into_iter().filter(|account| self.quota.held.contains_key(account));
        let bytes = (bytes as i64).saturating_sub(unrecorded);
        Ok(limited.map(|account| Credit { account, bytes, inodes: inodes as i64 }).collect())
    }

    /// Whom a new inode is charged to, its bytes, and that it is one.
    fn cost_of(&mut self, parent: Ino, new: &NewInode) -> Try<(Vec<Account>, u64, u64)> {
        self.need_dir(parent)?;
        let dir = self.cache.dirs.get(&parent).ok_or(FsError::Io)?;
        let attr = &dir.inode.attr;
        let gid = if attr.mode & SETGID != 0 { attr.gid } else { new.gid };
        let charge = Charge { uid: new.uid, gid, tree: attr.tree };
        Ok((charge.accounts().collect(), new.target.len() as u64, 1))
    }

    /// Credit goes with a shipped operation, whatever comes of it.
    pub(crate) fn ship_credit(&mut self, spent: &[Credit]) {
        for credit in spent {
            self.quota.take(credit.account, credit.bytes, credit.inodes);
        }
    }
}

const SETGID: u32 = 0o2000;
