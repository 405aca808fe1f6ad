//! Checks of the repository itself, each a pure function from a tree of texts to a list of problems.

pub mod layers;
mod manifest;
mod source;
pub mod tidy;
mod tree;

pub use tree::{Tree, root};
