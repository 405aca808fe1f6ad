//! The unit of writing.

use crate::{EngineError, RESERVED_KEY, Result, Seq};

/// Longest key, in bytes.
pub const KEY_LEN_MAX: usize = 4096;
/// Longest value, in bytes.
pub const VALUE_LEN_MAX: usize = 16 << 20;
/// Most bytes of keys and values in one batch.
pub const BATCH_BYTES_MAX: usize = 64 << 20;

/// Writes that are applied together.
///
/// A key occurs at most once in a batch, so the order inside has no meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Number of the batch: the engine's last one plus 1.
    pub seq: Seq,
    /// Keys with their new values.
    pub puts: Vec<(Vec<u8>, Vec<u8>)>,
    /// Keys to remove; they need not exist.
    pub deletes: Vec<Vec<u8>>,
}

impl Batch {
    /// Starts an empty batch.
    pub fn new(seq: Seq) -> Self {
        Self { seq, ..Self::default() }
    }

    /// Checks the batch against the limits and against the engine's `last` batch.
    ///
    /// # Errors
    ///
    /// `Sequence` unless it follows `last`; `Invalid` for a key that is empty, reserved, too long or there
    /// twice, a value too long, or too much in all.
    pub fn check(&self, last: Seq) -> Result<()> {
        if self.seq != last.next() {
            return Err(EngineError::Sequence { expected: last.next(), found: self.seq });
        }
        let mut keys = Vec::with_capacity(self.puts.len() + self.deletes.len());
        let mut bytes = 0;
        for (key, value) in &self.puts {
            if value.len() > VALUE_LEN_MAX {
                return Err(invalid(format!("value of {} bytes is over {VALUE_LEN_MAX}", value.len())));
            }
            bytes += value.len();
            keys.push(key.as_slice());
        }
        keys.extend(self.deletes.iter().map(Vec::as_slice));
        for key in &keys {
            if key.is_empty() || *key == RESERVED_KEY || key.len() > KEY_LEN_MAX {
                return Err(invalid(format!("key of {} bytes is empty, reserved or too long", key.len())));
            }
            bytes += key.len();
        }
        if bytes > BATCH_BYTES_MAX {
            return Err(invalid(format!("{bytes} bytes are over {BATCH_BYTES_MAX}")));
        }
        keys.sort_unstable();
        if keys.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(invalid("a key occurs twice".to_owned()));
        }
        Ok(())
    }
}

fn invalid(what: String) -> EngineError {
    EngineError::Invalid { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(keys: &[&[u8]]) -> Batch {
        Batch { puts: keys.iter().map(|key| (key.to_vec(), vec![1])).collect(), ..Batch::new(Seq(1)) }
    }

    #[test]
    fn refuses_empty_reserved_long_and_repeated_keys() {
        let long = vec![b'k'; KEY_LEN_MAX + 1];
        for keys in [&[&b""[..]][..], &[RESERVED_KEY], &[&long[..]], &[&b"a"[..], b"b", b"a"]] {
            assert!(matches!(put(keys).check(Seq(0)), Err(EngineError::Invalid { .. })), "{keys:?}");
        }
        put(&[b"a", b"b", &RESERVED_KEY.repeat(2)]).check(Seq(0)).unwrap();
    }

    #[test]
    fn refuses_a_key_both_put_and_deleted() {
        let mut batch = put(&[b"a"]);
        batch.deletes.push(b"a".to_vec());
        assert!(matches!(batch.check(Seq(0)), Err(EngineError::Invalid { .. })));
    }
}
