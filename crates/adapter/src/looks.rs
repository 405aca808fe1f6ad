//! Attributes that the kernel was told and may not have taken in yet.
//!
//! An answer with attributes is taken in by the thread that asked, some time after it was given: another one may be answered, and go on, before that.
//! If the other one changed the inode by a request whose answer tells nothing of its attributes (a name made in a directory, an extended attribute
//! set), the kernel drops what it has then, and takes the older answer in after that, for as long as it may keep that. Only what is
//! [taken back](crate::Invalidator::outdate) between the two has it refuse the older one (`attr_version` in linux:fs/fuse/inode.c).
//!
//! A thread has taken in what it was told when it asks for the next thing. So who is alone pays nothing, where the node sees who asks: processes of
//! other namespaces of process numbers are all others to each other.

use parking_lot::Mutex;
use types::{Ino, Micros};

/// Which inodes somebody was told of a moment ago.
#[derive(Debug)]
pub(crate) struct Looks(Mutex<Table>);

/// Of each inode one place; who needs one that another has leaves what that told to `others`.
#[derive(Debug)]
struct Table {
    slots: Box<[Slot]>,
    others: Told,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    ino: u64,
    told: Told,
}

/// When threads were told.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// The last one, 0 if it is not in sight.
    thread: u32,
    at: Option<Micros>,
    /// When any other was last.
    other_at: Option<Micros>,
}

impl Default for Looks {
    fn default() -> Self {
        let slots = vec![Slot::default(); SLOTS].into();
        Self(Mutex::new(Table { slots, others: Told::default() }))
    }
}

impl Looks {
    /// `thread` is about to be told of an inode. Before anybody can change that.
    pub fn note(&self, ino: Ino, thread: u32, now: Micros) {
        let mut table = self.0.lock();
        let Table { slots, others } = &mut *table;
        let slot = &mut slots[place(ino)];
        if slot.ino != ino.0 {
            others.take_in(slot.told);
            *slot = Slot { ino: ino.0, told: Told::default() };
        }
        slot.told.note(thread, now);
    }

    /// `thread` is about to be told of inodes that are not looked at one by one here.
    pub fn note_many(&self, thread: u32, now: Micros) {
        self.0.lock().others.note(thread, now);
    }

    /// Whether somebody else than `thread`, which has changed the inode, may not have taken in what he was told of it before. The caller takes
    /// that back, and says [so](Self::are_taken_back).
    pub fn are_under_way(&self, ino: Ino, thread: u32, now: Micros) -> bool {
        self.were_told_within(TAKEN_IN_WITHIN, ino, thread, now)
    }

    /// Whether somebody else than `thread` was told of an inode within this time.
    pub fn were_told_within(&self, within: Micros, ino: Ino, thread: u32, now: Micros) -> bool {
        let table = self.0.lock();
        let slot = &table.slots[place(ino)];
        let is_fresh = |told: &Told| told.is_fresh(thread, now, within);
        slot.ino == ino.0 && is_fresh(&slot.told) || is_fresh(&table.others)
    }

    /// What anybody was told of an inode until then is taken back.
    pub fn are_taken_back(&self, ino: Ino, until: Micros) {
        let mut table = self.0.lock();
        let slot = &mut table.slots[place(ino)];
        if slot.ino == ino.0 && slot.told.at < Some(until) {
            slot.told = Told::default();
        }
    }
}

impl Told {
    fn note(&mut self, thread: u32, at: Micros) {
        if self.thread != thread || thread == 0 {
            self.other_at = self.at;
            self.thread = thread;
        }
        self.at = self.at.max(Some(at));
    }

    fn take_in(&mut self, told: Self) {
        if let Some(at) = told.other_at {
            self.note(0, at);
        }
        if let Some(at) = told.at {
            self.note(told.thread, at);
        }
    }

    /// Whether any but `thread` was told within this time.
    fn is_fresh(&self, thread: u32, now: Micros, within: Micros) -> bool {
        let is_fresh = |at: Option<Micros>| at.is_some_and(|at| now.since(at) <= within);
        let is_own = self.thread == thread && thread != 0;
        is_fresh(self.other_at) || !is_own && is_fresh(self.at)
    }
}

fn place(ino: Ino) -> usize {
    // Numbers of a node follow each other.
    (ino.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SLOTS.trailing_zeros())) as usize
}

/// A thread that was woken for its answer runs before that, however many there are.
const TAKEN_IN_WITHIN: Micros = Micros(10_000_000);
/// A power of two.
const SLOTS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(70);
    const NOW: Micros = Micros(5);

    #[test]
    fn what_others_were_told_is_under_way_for_ten_seconds_and_once() {
        let looks = Looks::default();
        let at = Micros::from_millis;
        looks.note(FILE, 1, at(10));
        assert!(!looks.are_under_way(FILE, 1, at(20)), "it has asked for something since");
        assert!(looks.are_under_way(FILE, 2, at(20)));
        assert!(looks.are_under_way(FILE, 3, at(20)), "nothing is taken back yet");
        looks.are_taken_back(FILE, at(10));
        assert!(looks.are_under_way(FILE, 2, at(20)), "it may have been told after that");
        looks.are_taken_back(FILE, at(20));
        assert!(!looks.are_under_way(FILE, 2, at(21)), "it was taken back");
        looks.note(FILE, 2, at(30));
        looks.note(FILE, 1, at(40));
        assert!(looks.are_under_way(FILE, 1, at(50)), "the other one's is");
        looks.note(FILE, 2, at(60));
        assert!(!looks.are_under_way(FILE, 1, at(10_062)));
        assert!(!looks.are_under_way(Ino(71), 1, at(61)));
    }

    #[test]
    fn threads_out_of_sight_are_others_to_each_other() {
        let looks = Looks::default();
        looks.note(FILE, 0, NOW);
        assert!(looks.are_under_way(FILE, 0, NOW));
    }

    /// Goal: nothing that was told is forgotten, however many inodes are. Method: one thread is told of very many after another was of one.
    #[test]
    fn what_has_no_place_counts_for_all() {
        let looks = Looks::default();
        let (many, now) = (20 * SLOTS as u64, NOW);
        looks.note(FILE, 1, now);
        (100..many).for_each(|ino| looks.note(Ino(ino), 2, now));
        assert!(looks.are_under_way(FILE, 2, now));
        assert!(looks.are_under_way(Ino(100), 1, now));
        // Who was told of everything alone changes what he likes.
        let looks = Looks::default();
        (100..many).for_each(|ino| looks.note(Ino(ino), 2, now));
        looks.note_many(2, now);
        assert!((100..many).all(|ino| !looks.are_under_way(Ino(ino), 2, now)));
        assert!(looks.are_under_way(FILE, 3, now), "it may have been among them");
    }
}
