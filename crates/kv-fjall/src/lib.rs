//! The key-value engine of directory volumes, on fjall 3.
//!
//! [`FjallEngine`] keeps one volume in one directory:
//!
//! | path | holds |
//! | --- | --- |
//! | `lock` | `flock` of the process that has the volume open |
//! | `witness` | the last durable batch, see [`kv::FileWitness`] |
//! | `engine/` | fjall's files, in one keyspace |
//! | `unmerged` | present while a table is damaged that a compaction met; its text is the table's path |
//! | `damaged` | present once damage was found that a second opening could no longer see; its text says what |
//!
//! # What is built around fjall, and why
//!
//! - fjall's replay ends silently at the first journal page it cannot read, and truncates the journal there. So
//!   the journals are read before fjall sees them (module `journal`): every batch carries its number and a checksum,
//!   and a hole, a flipped byte or an end before the witness is reported with nothing changed on disk.
//! - fjall deletes a keyspace that its own catalogue does not name, and makes a new one where files are gone.
//!   So what must be there is checked first.
//! - lsm-tree writes checksums of manifests and tables and compares neither, and a panic of its own while it opens would end the
//!   process. So manifests are checked before fjall sees them, and tables by [`kv::Engine::verify`] (module `manifest`).
//! - fjall's own sync holds its journal lock, which stops commits for as long as the disk takes. So the journal
//!   file is synced through a descriptor of ours. A flush of fjall's still begins with one.
//! - fjall's thread is asked to seal a full memtable with every batch, by a queue of a thousand messages that it puts some in itself: a thousand
//!   small batches during one compaction stop it for ever. So memtables are sealed here, before they are full.
//! - A sync of a journal that grows costs half as much again as one that does not. So zeros are written ahead
//!   where that matters (module `ahead`), also in a journal that fjall found (module `descriptor`).
//! - fjall's commit waits without end for a background thread that may have died. So the wait is ours, ends
//!   when fjall is poisoned, and has a limit.
//! - A compaction that cannot read a table ends fjall's threads, and with them every later opening. So such a table is noted, and the
//!   engine opened without these threads from then on (module `unmerged`).
//! - fjall may panic on damaged files. Every call is caught.
//!
//! # Threads
//!
//! [`Options::worker_threads`] threads of fjall for flushes and compactions, or none ([`Options::merges`]); none of ours.

mod ahead;
mod descriptor;
mod engine;
mod failure;
mod journal;
mod lock;
mod manifest;
mod open;
mod options;
mod retire;
mod unmerged;

pub use engine::FjallEngine;
pub use options::Options;
pub use unmerged::known_damage;
