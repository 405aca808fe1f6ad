//! What a node counts: definitions, counters, histograms, snapshots and their three renderings.
//!
//! Every metric is one line of `defs.rs`: field, type, name, unit, stability and help. Recording is a
//! relaxed atomic addition and takes no lock. A [`Snapshot`] is a copy at one moment; it is rendered as
//! JSON, text or Prometheus text, subtracted from a later one, and read back from its own JSON, so
//! that a tool in another process can do all of this too.
//!
//! Nothing here reads a clock, starts a thread or does I/O: durations and ages are given.
//! Nothing here knows an errno or a FUSE type.

mod defs;
mod family;
mod histogram;
mod json;
mod labels;
mod metric;
mod prometheus;
mod snapshot;
mod text;

pub use defs::{DEFINITIONS, Definition, Metrics, Shape, Stability, Unit};
pub use family::Family;
pub use histogram::{Histogram, HistogramSnapshot};
pub use labels::{
    CacheKind, FuseKind, HeldMode, InvalidationKind, LabelSet, MessageKind, OperationKind, Tables, TokenKind,
};
pub use metric::{Counter, Gauge};
pub use snapshot::{Cell, ReadError, Series, Snapshot, Value};
pub use text::Zeros;
