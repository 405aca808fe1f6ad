//! Faults planted on purpose, to show that the tests would find them. The feature `planted` compiles them in; no product
//! has it.

use std::cell::Cell;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Node: a forget leaves attributes and pages with the kernel.
    ForgetKeepsAttributes,
    /// Node: a forget is acknowledged before the kernel has let go of anything.
    ForgetAcknowledgedEarly,
    /// Node: a token is given back before the kernel has let go of what it covers.
    ReleasedBeforeTheKernel,
    /// Node: an operation is sent to the master before the changes that it builds on.
    ShippedBeforeTheLog,
    /// Node: an open file gets no tokens of its own when its directory's are given back.
    SplitForgotten,
    /// Node: an inode number is given to the next inode too.
    InodeNumberReused,
    /// Node: an fsync is answered though the master has not said that it is durable.
    SyncSkipped,
    /// Node: a grant is taken that the master made before it saw that the token was given back.
    StaleGrantTaken,
    /// Master: a new one does not know that the last batch of a member was applied, and applies it again.
    BatchAppliedTwice,
    /// Master: a refusal is answered while readers have not been told of what it rests on.
    RefusedEarly,
    /// Master: what a shipped operation made is granted as it was then, not as it is by now.
    GrantedAsItWas,
    /// Master: a shipped operation is answered before readers have acknowledged it.
    AnsweredEarly,
    /// Master: what a member holds is granted to others when its connection breaks, not when its lease ends.
    LeaseCutShort,
    /// Engine: a master that another has fenced off writes all the same.
    FenceLeftOpen,
    /// Node: what is held is used after the lease that it is held under has ended.
    LeaseUnchecked,
    /// Master: who has an inode open that loses its name is not noted.
    OrphanLost,
    /// Node: a directory is removed, or replaced, whatever the kernel has under its name.
    AnyDirectoryRemoved,
    /// Master: a node that has its turn in a directory again is not told the last of what has changed there since.
    TurnMissesTheLast,
    /// Node: what it has changed others see before its own kernel is done with the answer.
    SeenBeforeTakenIn,
}

#[derive(Clone, Copy)]
struct Plant {
    fault: Planted,
    every: u32,
    occasions: u32,
}

thread_local! {
    static PLANT: Cell<Option<Plant>> = const { Cell::new(None) };
}

/// Plants a fault in every core of this thread: it strikes on each so manieth occasion.
pub fn plant(fault: Planted, every: u32) {
    PLANT.set(Some(Plant { fault, every: every.max(1), occasions: 0 }));
}

/// Plants nothing any more.
pub fn clear() {
    PLANT.set(None);
}

/// Whether a fault strikes on this occasion.
pub fn strikes(fault: Planted) -> bool {
    let Some(mut plant) = PLANT.get().filter(|plant| plant.fault == fault) else { return false };
    plant.occasions = (plant.occasions + 1) % plant.every;
    PLANT.set(Some(plant));
    plant.occasions == 0
}
