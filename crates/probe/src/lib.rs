//! Measures file systems and block devices from the outside, Holdfast's or anybody's.
//!
//! `watch` samples how long one small I/O takes, on several targets at once, at a fixed interval and a cost that
//! nobody notices. Two processes share the work, so that whoever asks is never stuck with what is measured:
//!
//! * the **worker** ([`work`]) touches the targets: one thread for each, which may hang in the kernel for as long as
//!   it likes. It tells what it does as [`Event`]s and keeps no figures.
//! * the **front** ([`watch`]) touches no target, not even to look whether it exists. It turns events into figures
//!   ([`Watch`], which is pure), and figures into tables, lines, JSON, graphs and answers.
//!
//! The stream of events is also the format of a recording, so a replay shows what the live run showed.
//!
//! [`bench`] measures how fast a file system is; its workers are processes for the same reason.

mod answers;
pub mod bench;
mod beneath;
mod check;
mod daemon;
pub mod doctor;
mod event;
mod front;
mod mounts;
mod nonce;
mod options;
mod output;
mod plot;
mod series;
mod stack;
mod stats;
mod system;
mod units;
mod watch;
mod worker;

pub use check::{Answer, CheckError, Figure, Range, RangeError, Status, Thresholds, check, check_all, judge};
pub use event::{Event, EventError, Header};
pub use front::{Ended, Output, Settings, WatchError, replay, watch};
pub use options::{Op, OptionError, Options, TargetSpec};
pub use series::{Figures, Series};
pub use stack::{Added, Stack, StackError};
pub use stats::{DELAY_NS_MAX, QuickAttack, WINDOW_MAX, Window};
pub use units::{parse_duration, show_delay};
pub use watch::{TargetState, Watch};
pub use worker::work;
