//! Who has changed names, and whether he can know: the kernel has a change in its hands until its thread has taken the answer in.

use std::collections::VecDeque;

use parking_lot::Mutex;
use vfs::RequestId;

use crate::told::Told;

/// Where the change of a name is that has taken effect, and that the kernel may not be done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changer {
    /// Its answer is not out yet. Its thread has the directory locked for so long, whoever else waits for that.
    Unanswered,
    /// This thread was answered, and has asked for nothing since.
    Thread(u32),
}

/// Changes of names whose threads were answered last that they have made them.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    told: Told<Change>,
    /// Those of threads that are not in sight, the last ones.
    unseen: Mutex<VecDeque<RequestId>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    by: RequestId,
    /// Whether the answer was handed to the kernel.
    is_out: bool,
}

impl Changes {
    /// `thread` is about to be answered that `by` has changed names.
    pub fn note(&self, thread: u32, by: RequestId) {
        if thread != 0 {
            return self.told.note(thread, Change { by, is_out: false });
        }
        let mut unseen = self.unseen.lock();
        if unseen.len() >= UNSEEN_MAX {
            unseen.pop_front();
        }
        unseen.push_back(by);
    }

    /// `thread` was answered that, or waits for something of its own.
    pub fn note_out(&self, thread: u32, by: RequestId) {
        self.told.replace(thread, Change { by, is_out: false }, Change { by, is_out: true });
    }

    /// What `thread` was answered last to have changed. Once.
    pub fn take(&self, thread: u32) -> Option<RequestId> {
        self.told.take(thread, |_| true).map(|change| change.by)
    }

    /// Where a change is that has taken effect; `None` if that is not in sight.
    pub fn changer(&self, by: RequestId) -> Option<Changer> {
        match self.told.find(|change| change.by == by) {
            Some((thread, Change { is_out: true, .. })) => Some(Changer::Thread(thread)),
            Some(_) => Some(Changer::Unanswered),
            None if self.unseen.lock().contains(&by) => None,
            None => Some(Changer::Unanswered),
        }
    }
}

/// As many changes of names the core remembers.
const UNSEEN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_unanswered_until_its_answer_is_out_and_gone_when_its_thread_asks_again() {
        let changes = Changes::default();
        let (first, second) = (RequestId(7), RequestId(8));
        assert_eq!(changes.changer(first), Some(Changer::Unanswered));
        changes.note(3, first);
        assert_eq!(changes.changer(first), Some(Changer::Unanswered));
        changes.note_out(3, second);
        assert_eq!(changes.changer(first), Some(Changer::Unanswered));
        changes.note_out(3, first);
        assert_eq!(changes.changer(first), Some(Changer::Thread(3)));
        assert_eq!((changes.take(3), changes.take(3)), (Some(first), None));
        changes.note_out(3, first);
        assert_eq!(changes.take(3), None);
    }

    #[test]
    fn a_change_of_a_thread_that_is_not_in_sight_is_not_waited_for() {
        let changes = Changes::default();
        changes.note(0, RequestId(7));
        assert_eq!(changes.changer(RequestId(7)), None);
        (8..8 + UNSEEN_MAX as u64).for_each(|id| changes.note(0, RequestId(id)));
        assert_eq!(changes.changer(RequestId(7)), Some(Changer::Unanswered));
    }
}
