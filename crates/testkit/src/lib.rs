//! For tests: a reference model of a POSIX tree, and seeded sequences of operations to run against it.
//!
//! The model says what users may see and nothing of how it is stored. It shares argument and error types with
//! `meta`, and no code.

pub mod generate;
pub mod model;
pub mod store;
