//! Faults planted in the cores: small worlds must find each of them.

use sim::explore::{Bounds, Explorer, World, worlds};

/// Within two delays, and with one fault where it shows only then.
fn is_found(what: &str, faults: u32) -> bool {
    let bounds = Bounds { delays: Some(2), waits: 0, faults, runs_max: 1_000 };
    let violated = |world: &World| {
        let found = Explorer::new(world, bounds).explore();
        let violation = found.violation?;
        let text: String = violation.what.chars().take(100).collect();
        println!("{what}: {} after {} runs: {text}", world.name, found.runs);
        Some(())
    };
    worlds().iter().any(|world| violated(world).is_some())
}

#[test]
fn small_worlds_find_every_planted_fault() {
    // Assertions that fail are what is looked for.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    {
        use vfs::planted::{Planted, plant};
        for fault in [
            Planted::ForgetKeepsAttributes,
            Planted::ForgetAcknowledgedEarly,
            Planted::ReleasedBeforeTheKernel,
        ] {
            plant(Some(fault));
            if !is_found(&format!("{fault:?}"), 0) {
                missed.push(format!("{fault:?}"));
            }
        }
        plant(None);
    }
    {
        use master::planted::{Planted, plant};
        for (fault, faults) in [
            (Planted::BatchAppliedTwice, 1),
            (Planted::RefusedEarly, 0),
            (Planted::GrantedAsItWas, 0),
            (Planted::AnsweredEarly, 0),
        ] {
            plant(Some(fault));
            if !is_found(&format!("{fault:?}"), faults) {
                missed.push(format!("{fault:?}"));
            }
        }
        plant(None);
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
