//! All metadata as text, and back.
//!
//! ```text
//! holdfast-dump 1
//! volume 0123456789abcdef0123456789abcdef
//! e0000000000000001000000000000a100 05...
//! end 1234 89abcdef
//! ```
//!
//! One record a line, in key order: the key and the record without version and sum, both in hexadecimal. `end` has the
//! number of records and the CRC32C of all bytes before it. The volume's identity goes with it because segments carry
//! it too. Secrets do not: the key of the name hashes stays in the volume's header.

use std::io::{self, BufRead, Write};

use kv::{Batch, Engine, KeyRange, RESERVED_KEY, Seq};
use meta::{Key, KeyText, VALUE_VERSION, value_decode_raw, value_encode_raw};

/// Why a dump could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The engine failed.
    #[error("the metadata cannot be read or written")]
    Engine(#[from] kv::EngineError),
    /// The text could not be read or written.
    #[error("the dump cannot be read or written")]
    Io(#[from] io::Error),
    /// A record is damaged: a dump that leaves it out would not be the volume.
    #[error("{damage}")]
    Damaged {
        /// What is wrong.
        damage: meta::Damage,
    },
    /// A key that no record has.
    #[error("key {key} is of no kind")]
    UnknownKey {
        /// The key.
        key: KeyText,
    },
    /// The text is no dump, or not all of one.
    #[error("line {line}: {what}")]
    Text {
        /// Which line, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// There is something in the volume already.
    #[error("the volume's metadata are not empty")]
    NotEmpty,
}

/// Writes all records of `engine` to `out`. Returns how many.
///
/// # Errors
///
/// [`DumpError::Damaged`] or [`DumpError::UnknownKey`] at the first record that cannot be dumped.
pub fn dump(engine: &dyn Engine, volume: [u8; 16], out: &mut dyn Write) -> Result<u64, DumpError> {
    let mut out = Summed { out, crc: 0 };
    writeln!(out, "{MAGIC} {VERSION}")?;
    writeln!(out, "volume {}", hex(&volume))?;
    let (mut count, mut result) = (0, Ok(()));
    kv::scan_all(engine, KeyRange::new(vec![0], vec![0xff; 32]), |(key, value)| {
        if result.is_ok() && key != RESERVED_KEY {
            count += 1;
            result = dump_record(&key, &value, &mut out);
        }
    })?;
    result?;
    let crc = out.crc;
    writeln!(out, "end {count} {crc:08x}")?;
    out.flush()?;
    Ok(count)
}

fn dump_record(key: &[u8], value: &[u8], out: &mut dyn Write) -> Result<(), DumpError> {
    if Key::from_slice(key).is_none() {
        return Err(DumpError::UnknownKey { key: KeyText(key.to_vec()) });
    }
    let record = value_decode_raw(key, value).map_err(|damage| DumpError::Damaged { damage })?;
    writeln!(out, "{} {}", hex(key), hex(record))?;
    Ok(())
}

/// Reads a dump into an empty engine, durably. Returns how many records. `volume` must be the one that was dumped.
///
/// # Errors
///
/// Those of the text are found while it is loaded: what was loaded until then is no volume, and must be removed. No master takes
/// it for one: the volume's own record comes last.
pub fn load(engine: &dyn Engine, volume: [u8; 16], input: &mut dyn BufRead) -> Result<u64, DumpError> {
    if engine.last_seq() != Seq(0) {
        return Err(DumpError::NotEmpty);
    }
    let mut lines = Lines { input, number: 0, crc: 0, text: String::new() };
    if lines.next()? != format!("{MAGIC} {VERSION}") {
        return Err(lines.wrong("this is no dump of version 1"));
    }
    if lines.next()? != format!("volume {}", hex(&volume)) {
        return Err(lines.wrong("it is of another volume"));
    }
    let (mut batch, mut bytes, mut count) = (Batch::new(engine.last_seq().next()), 0, 0u64);
    let mut last = None;
    loop {
        let crc = lines.crc;
        let line = lines.next()?.to_owned();
        if let Some(end) = line.strip_prefix("end ") {
            if end != format!("{count} {crc:08x}") {
                return Err(lines.wrong("records are missing, or are not those that were dumped"));
            }
            break;
        }
        let Some((key, record)) = line.split_once(' ').and_then(|(k, r)| Some((unhex(k)?, unhex(r)?))) else {
            return Err(lines.wrong("it is no record"));
        };
        if Key::from_slice(&key).is_none() {
            return Err(lines.wrong("its key is of no kind"));
        }
        let value = value_encode_raw(&key, &record);
        count += 1;
        if key == Key::Volume.to_vec() {
            last = Some((key, value));
            continue;
        }
        bytes += key.len() + value.len();
        batch.puts.push((key, value));
        if bytes >= BATCH_BYTES {
            engine.commit(std::mem::take(&mut batch))?;
            batch = Batch::new(engine.last_seq().next());
            bytes = 0;
        }
    }
    batch.puts.extend(last);
    if !batch.puts.is_empty() {
        engine.commit(batch)?;
    }
    engine.sync()?;
    Ok(count)
}

/// Sums what goes through.
struct Summed<'a> {
    out: &'a mut dyn Write,
    crc: u32,
}

impl Write for Summed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.crc = crc32c::crc32c_append(self.crc, &bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads lines with limits, and sums them.
struct Lines<'a> {
    input: &'a mut dyn BufRead,
    number: u64,
    crc: u32,
    text: String,
}

impl Lines<'_> {
    fn next(&mut self) -> Result<&str, DumpError> {
        use io::Read;
        self.number += 1;
        self.text.clear();
        let mut limited = (&mut *self.input).take(LINE_MAX);
        if let Err(error) = limited.read_line(&mut self.text) {
            return match error.kind() {
                io::ErrorKind::InvalidData => Err(self.wrong("it is no text")),
                _ => Err(error.into()),
            };
        }
        self.crc = crc32c::crc32c_append(self.crc, self.text.as_bytes());
        match self.text.pop() {
            Some('\n') => Ok(&self.text),
            Some(_) | None => Err(self.wrong("the dump ends early")),
        }
    }

    fn wrong(&self, what: &str) -> DumpError {
        DumpError::Text { line: self.number, what: what.to_owned() }
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// Reads [`hex`] back; `None` for anything else.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}

const MAGIC: &str = "holdfast-dump";
/// Of the text, with records of [`VALUE_VERSION`].
const VERSION: u8 = VALUE_VERSION;
/// Longest line: twice the longest value the engine takes.
const LINE_MAX: u64 = 2 * (kv::VALUE_LEN_MAX + kv::KEY_LEN_MAX) as u64 + 2;
const BATCH_BYTES: usize = 4 << 20;
