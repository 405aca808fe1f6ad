//! The contract suite on the real engine.

use kv::{Claim, Engine, Result, contract::Subject};
use kv_fjall::{FjallEngine, Options};

mod common;

struct Volume(common::Scratch);

impl Subject for Volume {
    fn open(&mut self, claim: Claim) -> Result<Box<dyn Engine>> {
        Ok(Box::new(FjallEngine::open(self.0.path(), Options::default(), claim)?))
    }

    /// A full disk has a test of its own: it needs a mount.
    fn fill(&mut self) -> bool {
        false
    }
}

kv::contract_tests!(Volume(common::Scratch::new("contract")));
