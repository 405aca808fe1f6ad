//! The engine as a store of records.

use kv::{Direction, Engine, EngineError, KeyRange, ScanLimit};
use meta::{KeyValue, StoreError, StoreRead};

/// Reads through to the engine.
pub(crate) struct EngineStore<'a>(pub &'a dyn Engine);

impl StoreRead for EngineStore<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.get(key).map_err(failure)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<KeyValue>, StoreError> {
        let limit = ScanLimit { entries: limit, bytes: SCAN_BYTES };
        let page = self.0.scan(&KeyRange::new(start, end), limit, Direction::Forward);
        Ok(page.map_err(failure)?.entries)
    }
}

/// Damage in the engine's files is damage of what is in there; anything else may pass.
fn failure(error: EngineError) -> StoreError {
    match error {
        EngineError::Corrupt { .. } => StoreError::damaged(error),
        error => StoreError::new(error),
    }
}

const SCAN_BYTES: usize = 1 << 20;
