//! For tests: a reference model of a POSIX tree, seeded sequences of operations to run against it, a disk that loses
//! power, and a fuzzer.
//!
//! The model says what users may see and nothing of how it is stored. It shares argument and error types with
//! `meta`, and no code.

pub mod crash_disk;
pub mod fuzz;
pub mod generate;
pub mod model;
pub mod store;
