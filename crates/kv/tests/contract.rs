//! The contract suite on the engine in memory.
#![cfg(feature = "contract")]

use kv::{Claim, Engine, Failure, MemDisk, Operation, Result, contract::Subject};

struct Memory(MemDisk);

impl Subject for Memory {
    fn open(&mut self, claim: Claim) -> Result<Box<dyn Engine>> {
        Ok(Box::new(self.0.open(claim)?))
    }

    fn fill(&mut self) -> bool {
        self.0.fail_next(Operation::Commit, Failure::Full);
        true
    }
}

kv::contract_tests!(Memory(MemDisk::new()));
