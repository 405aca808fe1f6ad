//! Acceptance: the binary as people run it, with real mounts, programs of the system and several users.
//!
//! Each node is a process of its own, started by `holdfast mount`. Needs root and a FUSE device; says so
//! without.

mod aio;
mod applications;
mod bad_disks;
mod care;
mod check;
mod coherence;
mod containers;
mod copies;
mod counters;
mod directories;
mod filling;
mod gone;
mod handles;
mod judged;
mod lab;
mod large_files;
mod late;
mod late_answers;
mod logs;
mod looks;
mod mappings;
mod old_volumes;
mod owners;
mod privileges;
mod quotas;
mod read_only;
mod rings;
mod scrub;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../kills/stall.rs"]
mod stall;
mod system_mounts;
mod users;
