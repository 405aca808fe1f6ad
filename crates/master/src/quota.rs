//! Limits of accounts, and the credit that nodes have.
//!
//! Invariant: what an account uses, and all credit of it that nodes have or have put into operations that are under way, are within its
//! limit together; or some of it was there before the limit, or is root's. So a node that has credit may promise it without a word, and
//! a batch is never refused. Usage changes with commits; each says how much credit it used, and the sum stays as it is.

use std::collections::{BTreeMap, BTreeSet};

use meta::{Key, KeyKind, Limit, Limits, UsageRecord};
use types::{Account, Credit, Ino, Micros, NodeId, OpSeq, Timespec};
use wire::FromMaster;

use crate::commit::own_write;
use crate::error::MasterError;
use crate::state::Master;

/// Limits, credit, and who asks for it.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    limits: BTreeMap<Account, Limits>,
    /// Raised when accounts get limits or lose all of them.
    version: u64,
    /// Since when members are to take that.
    version_since: Micros,
    /// The last list that each member has acknowledged.
    taken: BTreeMap<NodeId, u64>,
    held: BTreeMap<(Account, NodeId), Amount>,
    /// Credit that went with operations that are under way.
    shipped: BTreeMap<(NodeId, OpSeq), Vec<Credit>>,
    /// Operations that members have told of as they came back, and will send again.
    told: BTreeSet<(NodeId, OpSeq)>,
    asks: Vec<Ask>,
    /// Credit that members were asked to give back and have not, by account, member and number, and what they were granted since.
    recalls: BTreeMap<(Account, NodeId, u64), Amount>,
    /// Members that may have credit of before a limit became lower: the number of their recall, and since when.
    lowered: BTreeMap<(Account, NodeId), (u64, Micros)>,
    /// Inodes without a name whose removal waits for tokens: what they use falls free at once.
    reclaiming: BTreeSet<Ino>,
    /// What was granted beyond limits since this master began, or by those before as far as it was told.
    forced: BTreeMap<Account, Amount>,
}

/// Bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    bytes: i64,
    inodes: i64,
}

/// A node that waits for credit.
#[derive(Debug)]
struct Ask {
    node: NodeId,
    want: Credit,
    now: Timespec,
    /// Who has yet to give back what he has, with the number of that recall, and since when he is asked; `None` before anybody was.
    recall: Option<(BTreeMap<NodeId, u64>, Micros)>,
}

/// An account's figures, for `holdfast quota`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountStatus {
    /// Which.
    pub account: Account,
    /// What it uses, as committed.
    pub usage: UsageRecord,
    /// Its limits.
    pub limits: Limits,
    /// Credit of its that nodes have.
    pub credit: (i64, i64),
}

impl Amount {
    fn of(credit: &Credit) -> Self {
        Self { bytes: credit.bytes, inodes: credit.inodes }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            inodes: self.inodes.saturating_sub(other.inodes),
        }
    }

    /// Whether `want` fits into it. What is not asked for need not be there.
    fn has(self, want: Self) -> bool {
        (want.bytes <= 0 || want.bytes <= self.bytes) && (want.inodes <= 0 || want.inodes <= self.inodes)
    }
}

impl Master {
    /// Reads all limits.
    pub(crate) fn load_limits(&mut self) -> Result<(), MasterError> {
        let (start, end) = Key::range_of_kind(KeyKind::Limits);
        let limits = &mut self.quota.limits;
        kv::scan_all(&*self.engine, kv::KeyRange::new(start, end), |(key, value)| {
            match (Key::from_slice(&key), meta::value_decode(&key, &value)) {
                (Some(Key::Limits(account)), Ok(found)) => _ = limits.insert(account, found),
                (_, Err(damage)) => log::error!("limits that cannot be read do not bind: {damage}"),
                (_, Ok(_)) => {}
            }
        })?;
        self.quota.version = u64::from(self.volume.epoch.0) << EPOCH_SHIFT;
        Ok(())
    }

    /// The accounts that have limits, and the number of that list.
    pub(crate) fn limited(&self) -> (u64, Vec<Account>) {
        (self.quota.version, self.quota.limits.keys().copied().collect())
    }

    /// Sets the limits of an account to what `change` makes of those that it has, as [`set_limits`](Self::set_limits) does.
    ///
    /// # Errors
    ///
    /// Those of `change`, and of [`set_limits`](Self::set_limits).
    pub fn change_limits(
        &mut self,
        clock: crate::state::Clock,
        account: Account,
        change: impl FnOnce(Limits) -> Result<Limits, String>,
    ) -> Result<u64, String> {
        let changed = change(self.quota.limits.get(&account).copied().unwrap_or_default())?;
        self.set_limits(clock, account, changed)
    }

    /// Sets the limits of an account, or takes them away. Times of grace that have begun go on. Binds every node once it has
    /// [taken](Master::limits_taken) the list of the returned number; durable soon.
    ///
    /// # Errors
    ///
    /// The account that is one too many; the engine's.
    pub fn set_limits(
        &mut self,
        clock: crate::state::Clock,
        account: Account,
        limits: Limits,
    ) -> Result<u64, String> {
        self.wake_at(clock);
        let old = self.quota.limits.get(&account).copied();
        if old.is_none() && self.quota.limits.len() >= LIMITED_MAX {
            return Err(format!("{LIMITED_MAX} accounts have limits, and no more can"));
        }
        let since = |new: Limit, old: Limit| Limit { exceeded_since: old.exceeded_since, ..new };
        let kept = old.unwrap_or_default();
        let limits =
            Limits { bytes: since(limits.bytes, kept.bytes), inodes: since(limits.inodes, kept.inodes) };
        let key = Key::Limits(account);
        let write = if limits.is_none() { (key, None) } else { own_write(key, &limits) };
        if let Err(error) = self.commit(NodeId(0), &[], vec![write]) {
            self.fail(format!("limits could not be set: {error:?}"));
            return Err("the metadata cannot be written".to_owned());
        }
        self.want_sync();
        match limits.is_none() {
            true => {
                self.quota.limits.remove(&account);
                self.quota.held.retain(|(of, _), _| *of != account);
            }
            false => _ = self.quota.limits.insert(account, limits),
        }
        if old.is_some() == limits.is_none() {
            self.quota.version += 1;
            self.quota.version_since = self.clock.now;
            let (version, accounts) = self.limited();
            for node in self.members.keys().copied().collect::<Vec<_>>() {
                self.send(node, FromMaster::Limited { version, accounts: accounts.clone() });
            }
        }
        let is_lower =
            |old: Limits| allows_less(old.bytes, limits.bytes) || allows_less(old.inodes, limits.inodes);
        // At the end of a recovery those are asked that are beyond it.
        if !self.recovering && old.is_some_and(is_lower) {
            for node in self.members.keys().copied().collect::<Vec<_>>() {
                self.recall_lowered(node, account, self.clock.now);
            }
        }
        self.serve_asks(account);
        self.settle();
        Ok(self.quota.version)
    }

    /// Whether every member has taken the list of accounts with limits, or a later one, and nobody has credit any more that lower ones do not allow.
    pub fn limits_taken(&self, version: u64) -> bool {
        let has = |node| self.quota.taken.get(node).is_some_and(|taken| *taken >= version);
        !self.recovering && self.quota.lowered.is_empty() && self.members.keys().all(has)
    }

    fn recall_lowered(&mut self, node: NodeId, account: Account, since: Micros) {
        let seq = self.recall(node, account);
        self.quota.lowered.insert((account, node), (seq, since));
    }

    /// Members, or one, have told what credit they have: of accounts that are beyond a limit as it is now it goes back.
    pub(crate) fn recall_beyond(&mut self, of: Option<NodeId>) {
        let is_of = |(_, node): &&(Account, NodeId)| of.is_none_or(|of| of == *node);
        let held: Vec<(Account, NodeId)> = self.quota.held.keys().filter(is_of).copied().collect();
        for (account, node) in held {
            let Some(Left { all, softly }) = self.left(account, self.clock.wall) else { continue };
            if all.bytes.min(softly.bytes) < 0 || all.inodes.min(softly.inodes) < 0 {
                self.recall_lowered(node, account, self.clock.now);
            }
        }
    }

    /// What a member freed above a limit is not to be used again without being asked for: it goes back.
    pub(crate) fn recall_surplus(&mut self, node: NodeId, spent: &[Credit]) {
        for credit in spent.iter().filter(|credit| credit.bytes < 0 || credit.inodes < 0) {
            let recalls = (credit.account, node, 0)..=(credit.account, node, u64::MAX);
            if self.quota.recalls.range(recalls).next().is_some() {
                // Its answer comes behind this batch.
                continue;
            }
            let held = self.quota.held.get(&(credit.account, node)).copied().unwrap_or_default();
            let Some(Left { all, .. }) = self.left(credit.account, self.clock.wall) else { continue };
            let is_surplus = |freed: i64, left: i64, held: i64| freed < 0 && left < 0 && held > 0;
            if is_surplus(credit.bytes, all.bytes, held.bytes)
                || is_surplus(credit.inodes, all.inodes, held.inodes)
            {
                self.recall(node, credit.account);
            }
        }
    }

    /// Tells a member the list of accounts with limits, if it has not taken the newest.
    pub(crate) fn say_limited_again(&mut self, node: NodeId) {
        let (version, accounts) = self.limited();
        if self.quota.taken.get(&node).is_none_or(|taken| *taken < version) {
            self.send(node, FromMaster::Limited { version, accounts });
        }
    }

    /// Members that have not taken the newest list, and since when they were told it, or know of it from their welcome.
    pub(crate) fn limits_owed(&self) -> impl Iterator<Item = (NodeId, Micros)> + '_ {
        let is_behind =
            |node: &&NodeId| self.quota.taken.get(node).is_some_and(|taken| *taken < self.quota.version);
        self.members.keys().filter(is_behind).map(|node| (*node, self.quota.version_since))
    }

    /// Every account that uses something or has limits.
    ///
    /// # Errors
    ///
    /// Why they cannot be read.
    pub fn accounts(&self, now: Timespec) -> Result<Vec<AccountStatus>, MasterError> {
        let mut accounts: BTreeMap<Account, UsageRecord> =
            self.quota.limits.keys().map(|account| (*account, UsageRecord::default())).collect();
        let (start, end) = Key::range_of_kind(KeyKind::Usage);
        kv::scan_all(&*self.engine, kv::KeyRange::new(start, end), |(key, value)| {
            if let (Some(Key::Usage(account)), Ok(usage)) =
                (Key::from_slice(&key), meta::value_decode(&key, &value))
            {
                accounts.insert(account, usage);
            }
        })?;
        let status = |(account, usage)| {
            let limits = self.quota.limits.get(&account).copied().unwrap_or_default().judged(usage, now);
            let out = self.out(account);
            AccountStatus { account, usage, limits, credit: (out.bytes, out.inodes) }
        };
        Ok(accounts.into_iter().map(status).collect())
    }

    /// Accounts that could use more than their hard limits, though nobody was granted anything beyond them. For checks of a volume whose
    /// limits are older than anything that they limit, by a master that [knows](Self::note_granted_beyond) what others granted before.
    pub fn overdrawn(&self) -> Vec<String> {
        if self.recovering {
            return Vec::new();
        }
        let mut faults = Vec::new();
        for (account, limits) in &self.quota.limits {
            let Ok(usage) = self.read::<UsageRecord>(Key::Usage(*account)) else { continue };
            let usage = usage.unwrap_or_default();
            let (out, forced) =
                (self.out(*account), self.quota.forced.get(account).copied().unwrap_or_default());
            let used = Amount { bytes: signed(usage.bytes), inodes: signed(usage.inodes) }.plus(out);
            let beyond = used.minus(forced);
            let is_beyond = |used: i64, limit: &Limit| limit.hard != 0 && used > signed(limit.hard);
            if is_beyond(beyond.bytes, &limits.bytes) || is_beyond(beyond.inodes, &limits.inodes) {
                faults.push(format!(
                    "{account} uses {usage:?}, {out:?} of its credit is out, {limits:?} bind it"
                ));
            }
        }
        faults
    }

    /// What was granted beyond limits, for checks: it may be in use for as long as there is anything.
    pub fn granted_beyond(&self) -> Vec<Credit> {
        let credit = |(account, amount): (&Account, &Amount)| Credit {
            account: *account,
            bytes: amount.bytes,
            inodes: amount.inodes,
        };
        self.quota.forced.iter().map(credit).collect()
    }

    /// Tells a new master what those before it granted beyond limits, for [`overdrawn`](Self::overdrawn) alone.
    pub fn note_granted_beyond(&mut self, earlier: &[Credit]) {
        for credit in earlier {
            let forced = self.quota.forced.entry(credit.account).or_default();
            *forced = forced.plus(Amount::of(credit));
        }
    }

    /// Credit that a member has, but for accounts of which it has none.
    pub fn credit_of(&self, node: NodeId) -> Vec<Credit> {
        let held = self
            .quota
            .held
            .iter()
            .filter(|((_, holder), amount)| *holder == node && **amount != Amount::default());
        held.map(|((account, _), amount)| Credit {
            account: *account,
            bytes: amount.bytes,
            inodes: amount.inodes,
        })
        .collect()
    }

    pub(crate) fn on_limits_taken(&mut self, node: NodeId, version: u64) {
        self.quota.taken.insert(node, version);
    }

    pub(crate) fn on_ask_credit(&mut self, node: NodeId, want: Credit, now: Timespec, force: bool) {
        self.quota.asks.retain(|ask| ask.node != node || ask.want.account != want.account);
        if force {
            self.note_granted_beyond(&[want]);
            return self.grant_credit(node, want.account, Amount::of(&want), false);
        }
        self.quota.asks.push(Ask { node, want, now, recall: None });
        self.serve_asks(want.account);
    }

    pub(crate) fn on_credit_kept(&mut self, node: NodeId, seq: u64, kept: Credit) {
        let answered = (kept.account, node, 0)..=(kept.account, node, seq);
        let (_, since) = match self.quota.recalls.extract_if(answered, |_, _| true).last() {
            Some(last) => last,
            // Of a connection before this.
            None => return,
        };
        let holder = (kept.account, node);
        let before = self.quota.held.get(&holder).copied().unwrap_or_default();
        self.hold(node, kept);
        if let Some(held) = self.quota.held.get_mut(&holder) {
            *held = held.plus(since);
        }
        let given_back = before.minus(Amount::of(&kept).plus(since));
        if self.quota.lowered.get(&holder).is_some_and(|(lowered, _)| *lowered <= seq) {
            self.quota.lowered.remove(&holder);
        }
        for ask in self.quota.asks.iter_mut().filter(|ask| ask.want.account == kept.account) {
            // An answer to a recall before says nothing of what it was granted since.
            if let Some((awaited, _)) = &mut ask.recall
                && awaited.get(&node).is_some_and(|recall| *recall <= seq)
            {
                awaited.remove(&node);
            }
            // It asked for what it lacked beside that.
            if ask.node == node {
                let more =
                    |want: i64, back: i64| if want > 0 { want.saturating_add(back.max(0)) } else { want };
                ask.want.bytes = more(ask.want.bytes, given_back.bytes);
                ask.want.inodes = more(ask.want.inodes, given_back.inodes);
            }
        }
        self.serve_asks(kept.account);
    }

    /// Takes in what credit a member says it has.
    pub(crate) fn hold(&mut self, node: NodeId, credit: Credit) {
        if self.quota.limits.contains_key(&credit.account) {
            self.quota.held.insert((credit.account, node), Amount::of(&credit));
        }
    }

    /// What a member told of its credit before its connection broke counts no more: it tells all of it again.
    pub(crate) fn drop_told_credit(&mut self, node: NodeId) {
        self.quota.held.retain(|(_, holder), _| *holder != node);
        self.quota.told.retain(|(sender, _)| *sender != node);
        self.quota.recalls.retain(|(_, holder, _), _| *holder != node);
        // It asks anew. Were it granted something before it can hear of that, nobody would know what became of it.
        self.quota.asks.retain(|ask| ask.node != node);
    }

    /// Takes in the credit that a member says it has, and what went with operations that have no answer. These will be sent again; some may
    /// have come before.
    pub(crate) fn hold_told(&mut self, node: NodeId, list: Vec<Credit>, shipped: Vec<(OpSeq, Vec<Credit>)>) {
        for credit in list {
            self.hold(node, credit);
        }
        for (seq, spent) in shipped {
            self.quota.told.insert((node, seq));
            // What is under way has it already, or is in the usage and waits for readers.
            if !self.members.get(&node).is_some_and(|member| member.running.contains(&seq)) {
                self.note_shipped(node, seq, spent);
            }
        }
    }

    /// A batch used credit.
    pub(crate) fn spend(&mut self, node: NodeId, spent: &[Credit]) {
        for credit in spent.iter().filter(|credit| self.quota.limits.contains_key(&credit.account)) {
            let held = self.quota.held.entry((credit.account, node)).or_default();
            *held = held.minus(Amount::of(credit));
        }
    }

    /// Credit came with an operation, which has it until it is done.
    pub(crate) fn spend_on(&mut self, node: NodeId, seq: OpSeq, spent: Vec<Credit>) {
        if spent.is_empty() || self.quota.told.remove(&(node, seq)) {
            return;
        }
        self.spend(node, &spent);
        self.note_shipped(node, seq, spent);
    }

    /// Credit counts as used by an operation until that is done.
    fn note_shipped(&mut self, node: NodeId, seq: OpSeq, spent: Vec<Credit>) {
        let is_done = self.members.get(&node).is_none_or(|m| seq <= m.acked || m.results.contains(&seq));
        if !is_done {
            self.quota.shipped.insert((node, seq), spent);
        }
    }

    /// An operation is refused: with the answer its sender has again what it came with. Were that free for others at once, and the answer lost
    /// with this master, it would come to the next one again with the operation.
    pub(crate) fn return_spent(&mut self, node: NodeId, seq: OpSeq) {
        for credit in self.quota.shipped.remove(&(node, seq)).unwrap_or_default() {
            self.give_credit(node, credit.account, Amount::of(&credit));
            self.serve_asks(credit.account);
        }
    }

    /// An operation is done: what it came with counts as used.
    pub(crate) fn end_spending(&mut self, node: NodeId, seq: OpSeq) {
        for credit in self.quota.shipped.remove(&(node, seq)).unwrap_or_default() {
            self.serve_asks(credit.account);
        }
    }

    /// Credit falls free with the membership.
    pub(crate) fn drop_credit(&mut self, node: NodeId) {
        self.quota.taken.remove(&node);
        self.quota.held.retain(|(_, holder), _| *holder != node);
        self.quota.shipped.retain(|(holder, _), _| *holder != node);
        self.quota.told.retain(|(sender, _)| *sender != node);
        self.quota.recalls.retain(|(_, holder, _), _| *holder != node);
        self.quota.lowered.retain(|(_, holder), _| *holder != node);
        self.quota.asks.retain(|ask| ask.node != node);
        for ask in &mut self.quota.asks {
            if let Some((awaited, _)) = &mut ask.recall {
                awaited.remove(&node);
            }
        }
    }

    /// Asks a member that came back again for credit that others wait for.
    pub(crate) fn recall_again(&mut self, node: NodeId) {
        // What it was asked while it came back it has not heard.
        self.quota.recalls.retain(|(_, holder, _), _| *holder != node);
        let owes = |ask: &&Ask| ask.recall.as_ref().is_some_and(|(awaited, _)| awaited.contains_key(&node));
        let accounts: BTreeSet<Account> =
            self.quota.asks.iter().filter(owes).map(|ask| ask.want.account).collect();
        for account in accounts {
            let seq = self.recall(node, account);
            for ask in self.quota.asks.iter_mut().filter(|ask| ask.want.account == account) {
                let recall = ask.recall.as_mut().and_then(|(awaited, _)| awaited.get_mut(&node));
                recall.into_iter().for_each(|recall| *recall = seq);
            }
        }
        let lowered = self.quota.lowered.iter().filter(|((_, holder), _)| *holder == node);
        let lowered: Vec<_> = lowered.map(|((account, _), (_, since))| (*account, *since)).collect();
        for (account, since) in lowered {
            self.recall_lowered(node, account, since);
        }
        self.recall_beyond(Some(node));
    }

    /// Asks a member for what it has. Returns the number of that.
    fn recall(&mut self, node: NodeId, account: Account) -> u64 {
        let seq = self.number();
        self.quota.recalls.insert((account, node, seq), Amount::default());
        self.send(node, FromMaster::RecallCredit { seq, account });
        seq
    }

    /// Who owes credit to others, and since when.
    pub(crate) fn credit_owed(&self) -> impl Iterator<Item = (NodeId, Micros)> + '_ {
        let recalls = self.quota.asks.iter().filter_map(|ask| ask.recall.as_ref());
        let lowered = self.quota.lowered.iter().map(|((_, node), (_, since))| (*node, *since));
        recalls.flat_map(|(awaited, since)| awaited.keys().map(|node| (*node, *since))).chain(lowered)
    }

    /// Answers those who wait for credit of an account, in the order they came.
    fn serve_asks(&mut self, account: Account) {
        while let Some(at) = self.quota.asks.iter().position(|ask| ask.want.account == account) {
            let (node, want, now) = {
                let ask = &self.quota.asks[at];
                (ask.node, Amount::of(&ask.want), ask.now)
            };
            let Some(left) = self.left(account, now) else {
                // Without limits, or with usage that cannot be read.
                self.quota.asks.remove(at);
                self.grant_credit(node, account, want, false);
                continue;
            };
            if left.all.has(want) {
                self.quota.asks.remove(at);
                self.grant_credit(node, account, left.with_share(want), false);
                continue;
            }
            // Whoever asks too: what he has removed and not told of, and what he was given and has freed since, counts as used.
            let since = self.clock.now;
            match &self.quota.asks[at].recall {
                None => {
                    let members: Vec<NodeId> = self.members.keys().copied().collect();
                    let awaited = members.into_iter().map(|member| (member, self.recall(member, account)));
                    self.quota.asks[at].recall = Some((awaited.collect(), since));
                }
                // Whoever removed a file has been answered, and counts on its room.
                Some((awaited, since)) if awaited.is_empty() && self.awaits_reclaims(*since) => return,
                Some((awaited, _)) if awaited.is_empty() => {
                    self.quota.asks.remove(at);
                    self.metrics.master_credit_refused.add(1);
                    self.grant_credit(node, account, left.rest(want), true);
                }
                Some(_) => return,
            }
        }
    }

    /// Whether something is about to fall free, for which an ask that began `since` then may wait.
    fn awaits_reclaims(&self, since: Micros) -> bool {
        !self.quota.reclaiming.is_empty() && self.clock.now.since(since) < RECLAIM_PATIENCE
    }

    /// An inode without a name is about to be removed.
    pub(crate) fn note_reclaiming(&mut self, ino: Ino) {
        self.quota.reclaiming.insert(ino);
    }

    /// A part of one is: who waits may have enough, or waits on.
    pub(crate) fn reclaims_gave_room(&mut self) {
        for ask in &mut self.quota.asks {
            if let Some((awaited, since)) = &mut ask.recall
                && awaited.is_empty()
            {
                *since = self.clock.now;
            }
        }
        self.serve_all_asks();
    }

    /// It was, or is not to be.
    pub(crate) fn end_reclaiming(&mut self, ino: Ino) {
        if self.quota.reclaiming.remove(&ino) {
            self.serve_all_asks();
        }
    }

    /// Asks that have waited for reclaims for long are answered without.
    pub(crate) fn end_reclaim_waits(&mut self) {
        if self.reclaim_waits_due() <= self.clock.now {
            self.serve_all_asks();
        }
    }

    /// When [`end_reclaim_waits`](Self::end_reclaim_waits) is next needed.
    pub(crate) fn reclaim_waits_due(&self) -> Micros {
        let waiting = |ask: &Ask| match &ask.recall {
            Some((awaited, since)) if awaited.is_empty() => Some(*since + RECLAIM_PATIENCE),
            _ => None,
        };
        self.quota.asks.iter().filter_map(waiting).min().unwrap_or(Micros::NEVER)
    }

    pub(crate) fn serve_all_asks(&mut self) {
        let accounts: BTreeSet<Account> = self.quota.asks.iter().map(|ask| ask.want.account).collect();
        for account in accounts {
            self.serve_asks(account);
        }
    }

    fn grant_credit(&mut self, node: NodeId, account: Account, amount: Amount, refused: bool) {
        self.give_credit(node, account, amount);
        let credit = Credit { account, bytes: amount.bytes, inodes: amount.inodes };
        self.send(node, FromMaster::Credited { credit, refused });
    }

    /// A member has it with the next message.
    fn give_credit(&mut self, node: NodeId, account: Account, amount: Amount) {
        if self.quota.limits.contains_key(&account) {
            let held = self.quota.held.entry((account, node)).or_default();
            *held = held.plus(amount);
        }
        for (_, since) in self.quota.recalls.range_mut((account, node, 0)..=(account, node, u64::MAX)) {
            *since = since.plus(amount);
        }
    }

    /// Credit that is out. Who owes some is asking for it.
    fn out(&self, account: Account) -> Amount {
        let range = (account, NodeId(0))..=(account, NodeId(u32::MAX));
        let is_there = |amount: &Amount| Amount { bytes: amount.bytes.max(0), inodes: amount.inodes.max(0) };
        let held = self.quota.held.range(range).map(|(_, amount)| is_there(amount));
        let shipped = self.quota.shipped.values().flatten().filter(|credit| credit.account == account);
        held.chain(shipped.map(Amount::of)).fold(Amount::default(), Amount::plus)
    }

    /// What an account may still use; `None` if it has no limits. Notes when it exceeds a soft one.
    fn left(&mut self, account: Account, now: Timespec) -> Option<Left> {
        let limits = *self.quota.limits.get(&account)?;
        let usage = match self.read::<UsageRecord>(Key::Usage(account)) {
            Ok(usage) => usage.unwrap_or_default(),
            Err(_) => return None,
        };
        let used =
            Amount { bytes: signed(usage.bytes), inodes: signed(usage.inodes) }.plus(self.out(account));
        let in_use = UsageRecord { bytes: used.bytes.max(0) as u64, inodes: used.inodes.max(0) as u64 };
        let judged = limits.judged(in_use, now);
        if judged != limits {
            self.quota.limits.insert(account, judged);
            if let Err(error) = self.commit(NodeId(0), &[], vec![own_write(Key::Limits(account), &judged)]) {
                self.fail(format!("a time of grace could not be recorded: {error:?}"));
            }
        }
        let allowed =
            Amount { bytes: signed(judged.bytes.allowed(now)), inodes: signed(judged.inodes.allowed(now)) };
        let soft = |limit: Limit| if limit.soft == 0 { i64::MAX } else { signed(limit.soft) };
        let softly = Amount { bytes: soft(judged.bytes), inodes: soft(judged.inodes) };
        Some(Left { all: allowed.minus(used), softly: softly.minus(used) })
    }
}

/// What may still be used.
struct Left {
    all: Amount,
    /// Below the soft limits.
    softly: Amount,
}

impl Left {
    /// What somebody gets who asked for more than there is: all of it, but of what has no limits no more than a share.
    fn rest(&self, want: Amount) -> Amount {
        let part = |want: i64, all: i64, most: i64| all.clamp(0, want.max(0).saturating_add(most));
        Amount {
            bytes: part(want.bytes, self.all.bytes, SHARE_BYTES_MAX),
            inodes: part(want.inodes, self.all.inodes, SHARE_INODES_MAX),
        }
    }

    /// What somebody gets who asked for `want`, which is left: a part of what remains too, so that he need not ask for every call. Nobody
    /// gets beyond a soft limit what he did not ask for.
    fn with_share(&self, want: Amount) -> Amount {
        let part = |want: i64, all: i64, softly: i64, most: i64| {
            let want = want.max(0);
            want + ((all - want).min(softly - want) / SHARE).clamp(0, most)
        };
        Amount {
            bytes: part(want.bytes, self.all.bytes, self.softly.bytes, SHARE_BYTES_MAX),
            inodes: part(want.inodes, self.all.inodes, self.softly.inodes, SHARE_INODES_MAX),
        }
    }
}

/// Whether a limit allows less than before, now or once a time of grace is over.
fn allows_less(old: Limit, new: Limit) -> bool {
    let is_less = |old: u64, new: u64| new != 0 && (old == 0 || new < old);
    is_less(old.hard, new.hard) || is_less(old.soft, new.soft)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Part of what is left that goes out beside what was asked for: what remains is there for others.
const SHARE: i64 = 8;
const SHARE_BYTES_MAX: i64 = 256 << 20;
const SHARE_INODES_MAX: i64 = 10_000;
/// How long an ask waits for what is about to fall free. Whoever holds it gives it back in well under a millisecond.
const RECLAIM_PATIENCE: Micros = Micros::from_millis(1_000);
/// All of them fit a message.
const LIMITED_MAX: usize = 50_000;
const EPOCH_SHIFT: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_part_of_what_is_left_and_ends_at_the_soft_limit() {
        let left = |bytes, softly| Left {
            all: Amount { bytes, inodes: 0 },
            softly: Amount { bytes: softly, inodes: 0 },
        };
        let bytes = |left: Left, want| left.with_share(Amount { bytes: want, inodes: 0 }).bytes;
        assert_eq!(bytes(left(1_000, i64::MAX), 200), 300);
        assert_eq!(bytes(left(1_000, 240), 200), 205);
        assert_eq!(bytes(left(1_000, -50), 200), 200, "above the soft limit nobody gets more than he needs");
        assert_eq!(bytes(left(1_000, i64::MAX), 1_000), 1_000);
        assert_eq!(bytes(left(i64::MAX, i64::MAX), 1), SHARE_BYTES_MAX + 1);
    }
}
