//! All metadata of a volume that is in use, as of one moment: sent by its master's node, and checked by who asked for it.
//!
//! | question | answer |
//! |---|---|
//! | `snapshot` | `S`, then each record, then the end; or a JSON document with `error` |
//! | `record HEX` | a JSON document: `value` of this key by now in hexadecimal, or null |
//!
//! A record is the lengths of key and value, four bytes each, little-endian, and their bytes. The end is a key of
//! no bytes; its value is empty, or says why the rest could not be read.

use std::cell::RefCell;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use check::{Options, Report, Source, hex, unhex};
use kv::{EngineError, TakeEntry};
use meta::CookieKey;
use serde_json::{Value as Json, json};
use volume::Volume;

use crate::link::describe;
use crate::offline::{DataCheck, OfflineError};
use crate::scrub;
use crate::shell::Shell;
use crate::store::VolumeStore;

/// What a snapshot begins with.
const BEGIN: u8 = b'S';
/// More than any key or value has.
const LEN_MAX: u32 = 64 << 20;

/// Answers `snapshot`. Ends with the asker, and with the master.
pub(crate) fn send(shell: &Shell, stream: &mut UnixStream) -> io::Result<()> {
    let Some((service, engine)) = scrub::engine_of(shell) else {
        return writeln!(stream, "{}", scrub::no_master());
    };
    scrub::yield_to_others();
    let mut out = BufWriter::with_capacity(BUFFER_LEN, stream);
    out.write_all(&[BEGIN])?;
    let mut sent = Ok(());
    let read = engine.snapshot(&mut |key, value| {
        sent = send_record(&mut out, key, value);
        sent.is_ok() && !shell.is_stopping() && !service.is_stopping()
    });
    sent?;
    let problem = match read {
        _ if shell.is_stopping() || service.is_stopping() => "the node is no longer master".to_owned(),
        Ok(()) => String::new(),
        Err(error) => describe(&error),
    };
    send_record(&mut out, b"", problem.as_bytes())?;
    out.flush()
}

fn send_record(out: &mut impl Write, key: &[u8], value: &[u8]) -> io::Result<()> {
    for part in [key, value] {
        let len = u32::try_from(part.len()).map_err(io::Error::other)?;
        out.write_all(&len.to_le_bytes())?;
    }
    out.write_all(key)?;
    out.write_all(value)
}

/// Answers `record HEX`.
pub(crate) fn record(shell: &Shell, key: &str) -> Json {
    let Some(key) = unhex(key) else { return json!({ "error": "no key" }) };
    let Some((_, engine)) = scrub::engine_of(shell) else { return scrub::no_master() };
    match engine.get(&key) {
        Ok(value) => json!({ "value": value.map(|value| hex(&value)) }),
        Err(error) => json!({ "error": describe(&error) }),
    }
}

/// Asks a node a question of one line.
pub type Ask<'a> = dyn Fn(&str) -> Result<Json, Box<dyn std::error::Error + Send + Sync>> + 'a;

/// Checks a mounted volume: `stream` is the connection on which its master's node was asked for a snapshot, `ask` asks it further. Nothing is
/// changed.
///
/// # Errors
///
/// If the node is not, or no more, the master, or cannot be asked; what it cannot read; and what [`check::check_live`] fails with.
pub fn check_mounted(
    volume: &Volume,
    stream: UnixStream,
    ask: &Ask<'_>,
    data: DataCheck,
) -> Result<Report, OfflineError> {
    let master = Master::begin(stream, ask).map_err(check::CheckError::from)?;
    let store = VolumeStore::open(volume, Arc::new(obs::Metrics::new()))?;
    let options = Options {
        cookie_key: Some(CookieKey(volume.header().cookie_key)),
        store: Some(&store),
        reads_data: data == DataCheck::Sums,
    };
    Ok(check::check_live(&master, &options)?)
}

/// The master's node, asked for records.
struct Master<'a> {
    stream: RefCell<BufReader<UnixStream>>,
    ask: &'a Ask<'a>,
}

impl<'a> Master<'a> {
    /// The snapshot is of this moment or an earlier one.
    fn begin(stream: UnixStream, ask: &'a Ask<'a>) -> Result<Self, EngineError> {
        let mut stream = BufReader::with_capacity(BUFFER_LEN, stream);
        let mut first = [0];
        stream.read_exact(&mut first).map_err(broken)?;
        if first[0] != BEGIN {
            let mut rest = first.to_vec();
            (&mut stream).take(1 << 16).read_to_end(&mut rest).map_err(broken)?;
            let answer: Json = serde_json::from_slice(&rest).unwrap_or_default();
            return Err(refused(&answer));
        }
        Ok(Self { stream: RefCell::new(stream), ask })
    }
}

impl Source for Master<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let failed = |source| EngineError::Unavailable {
            what: "the master's node does not answer".to_owned(),
            source: Some(source),
        };
        let answer = (self.ask)(&format!("record {}", hex(key))).map_err(failed)?;
        match &answer["value"] {
            Json::String(value) => unhex(value).map(Some).ok_or_else(|| refused(&answer)),
            Json::Null if answer["error"].is_null() => Ok(None),
            _ => Err(refused(&answer)),
        }
    }

    fn each(&self, take: &mut TakeEntry<'_>) -> Result<(), EngineError> {
        let mut stream = self.stream.borrow_mut();
        loop {
            let mut lengths = [0; 8];
            stream.read_exact(&mut lengths).map_err(broken)?;
            let (key, value) = lengths.split_at(4);
            let [key, value] = [key, value].map(|len| {
                let len = len.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                read_part(&mut *stream, len)
            });
            let (key, value) = (key?, value?);
            if key.is_empty() && value.is_empty() {
                return Ok(());
            }
            if key.is_empty() {
                let what = format!("the master's node: {}", String::from_utf8_lossy(&value));
                return Err(EngineError::Unavailable { what, source: None });
            }
            if !take(&key, &value) {
                return Ok(());
            }
        }
    }
}

fn read_part(stream: &mut impl Read, len: u32) -> Result<Vec<u8>, EngineError> {
    if len > LEN_MAX {
        return Err(broken(io::Error::from(io::ErrorKind::InvalidData)));
    }
    let mut part = Vec::new();
    stream.take(u64::from(len)).read_to_end(&mut part).map_err(broken)?;
    match part.len() == len as usize {
        true => Ok(part),
        false => Err(broken(io::Error::from(io::ErrorKind::UnexpectedEof))),
    }
}

fn broken(source: io::Error) -> EngineError {
    let what = "the snapshot from the master's node broke off".to_owned();
    EngineError::Unavailable { what, source: Some(Box::new(source)) }
}

fn refused(answer: &Json) -> EngineError {
    let what = answer["error"].as_str().unwrap_or("the master's node gave an answer that cannot be read");
    EngineError::Unavailable { what: what.to_owned(), source: None }
}

const BUFFER_LEN: usize = 256 << 10;
