//! Where the records come from: an engine, or the master of a mounted volume.

use kv::{Engine, EngineError, TakeEntry};

/// Records to check.
pub trait Source {
    /// The value of a key by now.
    ///
    /// # Errors
    ///
    /// The engine's, or that it is out of reach.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError>;

    /// Hands over every record as of one moment, in the order of their keys.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn each(&self, take: &mut TakeEntry<'_>) -> Result<(), EngineError>;
}

impl Source for &dyn Engine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        Engine::get(*self, key)
    }

    fn each(&self, take: &mut TakeEntry<'_>) -> Result<(), EngineError> {
        self.snapshot(take)
    }
}
