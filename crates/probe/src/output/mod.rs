//! What a run looks like: for people, for programs.

pub(crate) mod json;
pub(crate) mod lines;
pub(crate) mod prometheus;
pub(crate) mod table;
pub(crate) mod verdict;
