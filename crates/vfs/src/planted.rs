//! Faults planted on purpose, to show that the tests would find them. The feature `planted` compiles them in; no product
//! has it.

use std::cell::Cell;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A forget leaves attributes and pages with the kernel.
    ForgetKeepsAttributes,
    /// A forget is acknowledged before the kernel has let go of anything.
    ForgetAcknowledgedEarly,
    /// A token is given back before the kernel has let go of what it covers.
    ReleasedBeforeTheKernel,
}

thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// Plants a fault in every core of this thread, or none.
pub fn plant(fault: Option<Planted>) {
    PLANTED.set(fault);
}

/// Whether a fault is planted.
pub(crate) fn is(fault: Planted) -> bool {
    PLANTED.get() == Some(fault)
}
