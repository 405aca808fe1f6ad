//! Membership: joining, rejoining another master, the lease, leaving, and losing it all.

use chunk::{SegmentWriter, WriterConfig};
use meta::{Change, CookieKey};
use types::{BatchSeq, Epoch, Ino, Micros, NodeId, OpSeq};
use wire::{FromMaster, PROTOCOL_VERSION, ReassertPart, ToMaster};

use crate::cache::Place;
use crate::core::{Core, Link};
use crate::lost::Unstored;
use crate::namespace::Shipped;
use crate::outputs::{Clock, Output};
use crate::wait::WaitKey;

impl Core {
    /// The first message of a connection, new or after a master was lost.
    pub fn hello(
        &mut self,
        clock: Clock,
        pid: u32,
        pid_start: u64,
        label: String,
        device: String,
    ) -> ToMaster {
        self.clock = clock;
        self.lease.ping_sent = Some(clock.now);
        let volume = self
            .volume
            .chunks_exact(8)
            .map(|part| {
                u64::from_be_bytes([part[0], part[1], part[2], part[3], part[4], part[5], part[6], part[7]])
            })
            .collect();
        ToMaster::Hello {
            version: PROTOCOL_VERSION,
            volume,
            rejoin: self.me,
            epoch: self.epoch,
            pid,
            pid_start,
            label,
            device,
        }
    }

    /// The connection to the master is gone. What is held stays usable within the lease.
    pub fn link_down(&mut self, clock: Clock) {
        self.clock = clock;
        self.drop_barriers();
        self.drop_recalls();
        self.closes.asked.clear();
        self.closes.put_off.clear();
        if self.link == Link::Up {
            self.link = Link::Down;
            self.give_up_cancelled();
            for resource in self.tokens.forget_delayed() {
                self.wake(crate::wait::WaitKey::Released(resource));
            }
            self.reserve_asked = false;
            self.held_forgets.clear();
            // The next connection, or master, may not know what was to come with their grants.
            self.drop_all_aside();
            for job in self.jobs.all_mut() {
                job.forget_master();
            }
        }
        self.settle();
    }

    /// The membership is lost, as the driver sees it.
    pub fn lost(&mut self, clock: Clock, reason: String) {
        self.clock = clock;
        self.lose(reason);
        self.settle();
    }

    pub(crate) fn on_welcome(&mut self, message: FromMaster) {
        let FromMaster::Welcome {
            node,
            epoch,
            lease_us,
            token_share,
            cookie_key,
            batch_applied,
            reassert,
            limits,
            limited,
        } = message
        else {
            return;
        };
        if self.me != NodeId(0) && self.me != node {
            return self.end_membership("the new master does not know this node");
        }
        let is_new = self.me == NodeId(0);
        let Ok(key) = <[u8; 16]>::try_from(&*cookie_key) else {
            return self.lose("the master's name key has a wrong length".to_owned());
        };
        self.me = node;
        self.epoch = epoch;
        self.cookie_key = CookieKey(key);
        self.link = Link::Up;
        self.lease.length = Micros(lease_us);
        self.lease.lapsed = false;
        self.set_share(token_share);
        self.on_pong();
        self.metrics.master_epoch.set(epoch.0 as i64);
        if is_new {
            self.begin_membership();
        }
        if reassert {
            // What is logged so far was made under rights that may be gone: it goes with what is sent again.
            let _ = self.log.seal(true);
            self.released.clear();
            self.released_at.clear();
            self.release_number = 0;
            self.reassert(batch_applied);
        }
        self.on_limited(limits, &limited);
        let batches = self.log.resend_after(batch_applied);
        let closed = self.orphans_closed_since(&batches);
        for batch in batches {
            self.metrics.batches_resent.add(1);
            self.send(batch);
        }
        self.disown_again();
        if reassert {
            let locks = self.locks.values().flatten().copied().collect();
            self.send(ToMaster::Reassert { part: ReassertPart::Locks { list: locks }, done: true });
        }
        for ino in closed {
            self.send(ToMaster::Closed { ino });
        }
        // Whatever the old master was asked to make durable, the new one is asked again.
        if self.log.durable() < self.log.last() {
            self.send_batch(true);
        }
        self.ask_again();
        self.wake(WaitKey::Member);
    }

    /// Asks again for everything that has no answer.
    fn ask_again(&mut self) {
        let shipped: Vec<OpSeq> = self.shipped.keys().copied().collect();
        for seq in shipped {
            self.send_ship(seq);
        }
        for (request, (want, _)) in self.want_of.clone() {
            self.send(ToMaster::Acquire { request, want, ahead: wire::Ahead::default() });
        }
        for (request, what) in self.fetch_of.clone() {
            self.send(ToMaster::Fetch { request, what });
        }
        self.ask_credit_again();
        self.ask_for_locks_again();
        let loading: Vec<(Ino, u64)> =
            self.cache.dirs.iter().filter(|(_, d)| d.loading).map(|(ino, d)| (*ino, d.loaded_to)).collect();
        for (dir, after) in loading {
            self.send(ToMaster::More { dir, after });
        }
        self.ask_numbers();
    }

    /// Orphans that batches have this node down for and that are not open here any more: to say so once may have been to say
    /// it to a connection that was gone.
    fn orphans_closed_since(&self, batches: &[ToMaster]) -> Vec<Ino> {
        let changes = batches.iter().flat_map(|batch| match batch {
            ToMaster::Batch { changes, .. } => changes.as_slice(),
            _ => &[],
        });
        let orphans = changes.filter_map(|change| match change {
            Change::PutOrphan { ino, holders } if holders.contains(&self.me) => Some(*ino),
            _ => None,
        });
        orphans.filter(|ino| !self.known.get(ino).is_some_and(|known| known.is_open())).collect()
    }

    /// What a new incarnation begins with.
    fn begin_membership(&mut self) {
        let config =
            WriterConfig { segment_len: self.config.segment_len, ..WriterConfig::new(self.volume, self.me) };
        self.writer = Some(SegmentWriter::new(config, self.store.clone()));
        self.known.note(Ino::ROOT).lookups = 1;
        self.report_all_open();
    }

    /// Tells a new master, or the same by a new connection, what is held here.
    fn reassert(&mut self, applied: BatchSeq) {
        let list = self.credit_to_reassert(applied);
        let shipped = self.shipped.iter().filter(|(_, shipped)| !shipped.spent.is_empty());
        let shipped = shipped.map(|(seq, shipped)| (*seq, shipped.spent.clone())).collect();
        self.send(ToMaster::Reassert { part: ReassertPart::Credit { list, shipped }, done: false });
        let tokens = self.tokens.list();
        for part in tokens.chunks(REASSERT_PART) {
            self.send(ToMaster::Reassert { part: ReassertPart::Tokens { list: part.to_vec() }, done: false });
        }
        let mut open: Vec<Ino> = Vec::new();
        for ino in self.known.keys().copied().collect::<Vec<_>>() {
            let is_own = self.place(ino) == Place::Own;
            let Some(known) = self.known.get_mut(&ino) else { continue };
            // Orphans and inodes held in EX, too: who takes the right away asks the master who has it open.
            known.open_told |= is_own && known.is_open();
            if known.open_told {
                open.push(ino);
            }
        }
        // Files that are made and not answered for: another node may have taken the name before they are open here.
        let made: Vec<Ino> = self.shipped.values().filter_map(Shipped::file_made).collect();
        for ino in made {
            self.known.note(ino).open_told = true;
            self.opens_in_doubt.insert(ino);
            open.push(ino);
        }
        // What an operation without an answer may have removed or moved: the master may have it down as open here for that.
        let concerned = self.shipped.values().flat_map(|shipped| self.subjects(&shipped.op));
        for ino in concerned.collect::<Vec<_>>() {
            if let Some(known) = self.known.get_mut(&ino).filter(|known| known.is_open()) {
                known.open_told = true;
                open.push(ino);
            }
        }
        open.sort_unstable();
        open.dedup();
        self.send(ToMaster::Reassert { part: ReassertPart::Open { list: open }, done: false });
    }

    pub(crate) fn on_pong(&mut self) {
        if let Some(sent) = self.lease.ping_sent.take() {
            let was_good = self.is_lease_good();
            self.lease.until = sent + self.lease.length;
            // An answer that is too old confirms nothing; the next one will.
            if self.is_lease_in_time() {
                self.known.guard_mut().extend(self.lease.until, self.lease.length);
            }
            if !was_good && self.is_lease_good() {
                self.lease.lapsed = false;
                self.wake(WaitKey::Member);
                self.judge_syncs();
            }
        }
    }

    pub(crate) fn ping_due(&self) -> Micros {
        match self.lease.ping_sent {
            Some(_) => Micros::NEVER,
            None if self.known.guard().has_fired() => Micros(0),
            None => Micros(self.lease.until.0.saturating_sub(self.lease.length.0 / 3 * 2)),
        }
    }

    pub(crate) fn renew_lease(&mut self) {
        if self.link == Link::Up && self.ping_due() <= self.clock.now {
            self.lease.ping_sent = Some(self.clock.now);
            let store_wait_us = self.store_wait().0;
            self.send(ToMaster::Ping { store_wait_us });
        }
    }

    /// Flushes everything and leaves; [`Output::Left`] says when that is done. What finds no room is tried again until
    /// [`leave_rest`](Self::leave_rest).
    pub fn leave(&mut self, clock: Clock) {
        self.clock = clock;
        if !self.departure.begun {
            self.departure.begun = true;
            self.drop_holds();
            if self.link == Link::Lost || self.me == NodeId(0) {
                self.outputs.push_back(Output::Left);
                self.departure.ended = true;
            }
        }
        self.settle();
    }

    /// Leaves without what finds no room now: it is counted, and lost.
    pub fn leave_rest(&mut self, clock: Clock) {
        self.clock = clock;
        (self.departure.gives_up, self.departure.again, self.departure.tries) = (true, None, 0);
        self.settle();
    }

    /// The next step of leaving. Called whenever something has moved.
    pub(crate) fn go_on_leaving(&mut self) {
        if self.departure.ended
            || self.link != Link::Up
            || !self.flushes.is_empty()
            || !self.flush_later.is_empty()
            // Nothing of this node's is to happen after it has left.
            || !self.shipped.is_empty()
        {
            return;
        }
        if !self.live.is_empty() && self.is_flushing_to_leave() {
            return;
        }
        // What failed is counted.
        let unstored = self.live.values().filter(|live| !live.failed).count();
        if unstored > 0 {
            log::error!("content of {unstored} files could not be stored and is lost");
        }
        if let Some(writer) = self.writer.as_mut().filter(|_| !self.departure.writer_closed) {
            writer.close();
            self.departure.writer_closed = true;
            self.seal_segments();
            if !self.flushes.is_empty() {
                return;
            }
        }
        let has_atimes = !self.log_last_atimes();
        if has_atimes
            || !self.log.is_open_empty()
            || self.log.durable() < self.log.last()
            || self.unsynced_at_master
        {
            if !self.log.is_open_empty() || self.log.sync_asked() < self.log.last() || self.unsynced_at_master
            {
                self.unsynced_at_master = false;
                self.send_batch(true);
            }
            return;
        }
        self.disown();
        self.send(ToMaster::Bye {});
        self.departure.ended = true;
        if unstored > 0 {
            let reason = format!("content of {unstored} files could not be stored");
            self.outputs.push_back(Output::Lost(reason));
        }
        self.outputs.push_back(Output::Left);
    }

    /// Flushes content to leave, and what found no room again and again. Returns whether that goes on.
    fn is_flushing_to_leave(&mut self) -> bool {
        if self.departure.again.is_some() {
            return true;
        }
        if self.departure.tries >= LEAVE_TRIES {
            return false;
        }
        self.departure.tries += 1;
        let mut inos: Vec<Ino> = self.live.keys().copied().collect();
        inos.sort_unstable();
        let unstored = if self.departure.gives_up { Unstored::GiveUp } else { Unstored::Keep };
        if self.flush_or(&inos, unstored).is_some() {
            return true;
        }
        if self.live.is_empty() || self.departure.gives_up {
            return false;
        }
        if self.lacks_room() {
            // Somebody may make room. What is logged need not wait for it.
            self.departure.tries = 0;
            self.departure.again = Some(self.clock.now + LEAVE_PAUSE);
            self.send_batch(true);
            return true;
        }
        // What fails otherwise does so again.
        self.departure.gives_up = true;
        self.flush_or(&inos, Unstored::GiveUp).is_some()
    }

    /// The epoch this node works under.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

const REASSERT_PART: usize = 10_000;
const LEAVE_TRIES: u32 = 5;
/// Between two tries to store what found no room.
const LEAVE_PAUSE: Micros = Micros(1_000_000);
