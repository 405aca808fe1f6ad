//! The engine as a store of records.

use kv::{Direction, Engine, KeyRange, ScanLimit};
use meta::{KeyValue, StoreError, StoreRead};

/// Reads through to the engine.
pub(crate) struct EngineStore<'a>(pub &'a dyn Engine);

impl StoreRead for EngineStore<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.get(key).map_err(StoreError::new)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<KeyValue>, StoreError> {
        let limit = ScanLimit { entries: limit, bytes: SCAN_BYTES };
        let page = self.0.scan(&KeyRange::new(start, end), limit, Direction::Forward);
        Ok(page.map_err(StoreError::new)?.entries)
    }
}

const SCAN_BYTES: usize = 1 << 20;
