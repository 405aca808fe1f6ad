//! Faults planted on purpose, to show that the tests would find them. The feature `planted` compiles them in; no product
//! has it.

use std::cell::Cell;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A new master does not know that the last batch of a member was applied, and applies it again.
    BatchAppliedTwice,
    /// A refusal is answered while readers have not been told of what it rests on.
    RefusedEarly,
    /// What a shipped operation made is granted as it was then, not as it is by now.
    GrantedAsItWas,
    /// A shipped operation is answered before readers have acknowledged it.
    AnsweredEarly,
}

thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// Plants a fault in every master of this thread, or none.
pub fn plant(fault: Option<Planted>) {
    PLANTED.set(fault);
}

/// Whether a fault is planted.
pub(crate) fn is(fault: Planted) -> bool {
    PLANTED.get() == Some(fault)
}
