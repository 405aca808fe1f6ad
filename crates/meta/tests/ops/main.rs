//! Each operation's exact changes, one file per operation.

mod accounts;
mod create;
mod link;
mod orphan;
mod placement;
mod rename;
mod rmdir;
mod setattr;
mod support;
mod unlink;
mod view;
mod xattr;
