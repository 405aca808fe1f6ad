//! How long a node that leaves waits for what is not flushed.

use std::time::{Duration, Instant};

use vfs::Snapshot;

/// Patience with what is not flushed: it ends when for [`PATIENCE`] nothing has moved, and no call was under way that it waits for; and after
/// [`PATIENCE_MOST`] without anything moving in any case, as calls may be for others.
///
/// A call cannot be called off, and the node's end would wait for it as well.
#[derive(Debug)]
pub(crate) struct Patience {
    /// What was left when something last moved.
    left: Option<Left>,
    moved: Instant,
    /// The same, or when a call was last under way.
    at_work: Instant,
}

/// What is not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub changes: u64,
    pub batches: u64,
    pub files: u64,
    pub bytes: u64,
}

/// Whether a call to the store or the engine is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    None,
    UnderWay,
}

impl Left {
    pub fn of(snapshot: &Snapshot) -> Self {
        Self {
            changes: snapshot.unflushed_mutations,
            batches: snapshot.unflushed_batches,
            files: snapshot.unflushed_files,
            bytes: snapshot.unflushed_bytes,
        }
    }
}

impl Patience {
    pub fn begin(now: Instant) -> Self {
        Self { left: None, moved: now, at_work: now }
    }

    /// A wait between two looks took so much longer than it was to: who is so late was stopped, and so was all that could have moved.
    pub fn forgive(&mut self, late: Duration) {
        if late >= STOOD_STILL {
            self.moved += late;
            self.at_work += late;
        }
    }

    /// Takes in how things stand. Returns whether to give up.
    pub fn is_over(&mut self, now: Instant, left: Left, calls: Calls) -> bool {
        if self.left != Some(left) {
            (self.left, self.moved) = (Some(left), now);
        }
        if calls == Calls::UnderWay {
            self.at_work = now;
        }
        let is_idle = now.duration_since(self.moved.max(self.at_work)) >= PATIENCE;
        is_idle || now.duration_since(self.moved) >= PATIENCE_MOST
    }
}

/// What is wrong with a node whose content finds no room, and what to do.
pub(crate) fn lack_of_room(snapshot: &Snapshot) -> Option<String> {
    snapshot.lacks_room.then(|| {
        let (files, bytes) = (snapshot.unflushed_files, snapshot.unstored_bytes);
        format!("disk full, make room: content of {files} files ({bytes} bytes) is not stored yet")
    })
}

/// Longer than a busy machine has a thread wait that is to wake.
const STOOD_STILL: Duration = Duration::from_secs(5);
/// How long nothing may move.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The same with calls under way.
pub(crate) const PATIENCE_MOST: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: Left = Left { changes: 3, batches: 1, files: 2, bytes: 1 << 30 };
    const LOOK: Duration = Duration::from_secs(5);

    /// Looks every 5 s, and returns at which look it gave up.
    fn looks_until_over(looks: u32, stands: impl Fn(u32) -> (Left, Calls)) -> Option<u32> {
        let begun = Instant::now();
        let mut patience = Patience::begin(begun);
        (0..looks).find(|look| {
            let (left, calls) = stands(*look);
            patience.is_over(begun + LOOK * *look, left, calls)
        })
    }

    #[test]
    fn leaving_is_given_up_when_nothing_moves_and_no_call_is_under_way() {
        assert_eq!(looks_until_over(100, |_| (LEFT, Calls::None)), Some(12));
    }

    #[test]
    fn leaving_goes_on_while_a_call_is_under_way() {
        assert_eq!(looks_until_over(1_000, |_| (LEFT, Calls::UnderWay)), Some(120), "of others, perhaps");
        let until = |look| if look < 100 { Calls::UnderWay } else { Calls::None };
        assert_eq!(looks_until_over(1_000, |look| (LEFT, until(look))), Some(99 + 12));
    }

    #[test]
    fn while_it_was_stopped_nothing_could_move() {
        let begun = Instant::now();
        let mut patience = Patience::begin(begun);
        assert!(!patience.is_over(begun + LOOK, LEFT, Calls::None));
        let continued = begun + PATIENCE * 20;
        patience.forgive(PATIENCE * 20 - LOOK);
        assert!(!patience.is_over(continued, LEFT, Calls::None));
        let looks = (1..100).find(|look| patience.is_over(continued + LOOK * *look, LEFT, Calls::None));
        assert_eq!(looks, Some(12));
    }

    #[test]
    fn leaving_goes_on_while_anything_moves() {
        let slowly = |look: u32| Left { bytes: LEFT.bytes - u64::from(look / 11), ..LEFT };
        assert_eq!(looks_until_over(1_000, |look| (slowly(look), Calls::None)), None);
    }
}
