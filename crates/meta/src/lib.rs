//! Metadata: keys, records, and each operation as a pure plan over a view.
//!
//! An operation reads through a [`View`], decides, and returns a [`Plan`]: the changes to make and the
//! reply to give. The same plan code runs on a node that holds the directory (its view is its cache) and
//! on the master (its view is the engine). Nothing here knows about tokens beyond saying, through
//! [`Missing`], which right a decision would have needed.

mod apply;
mod change;
mod cookie;
mod error;
mod keys;
mod limits;
mod master_records;
pub mod ops;
mod record;
mod store;
mod store_view;
mod view;
mod volume;

pub use apply::{Applied, ApplyError, Write, apply};
pub use change::{Change, ChangeKey};
pub use cookie::{COOKIE_DOT, COOKIE_DOTDOT, Cookie, CookieKey};
pub use error::FsError;
pub use keys::{Key, KeyKind};
pub use limits::{Limit, Limits};
pub use master_records::{MemberRecord, ResultRecord, SegmentRange, VolumeRecord};
pub use ops::{Op, OpContext, OpReply, Plan};
pub use record::{
    Body, Child, Content, Dirent, FewXattrs, FileKind, Inode, InodeAttr, Placement, StoredInode, Xattrs,
};
pub use store::{
    Damage, KeyText, KeyValue, ReadFailure, StoreError, StoreRead, VALUE_VERSION, value_decode,
    value_decode_raw, value_encode, value_encode_raw,
};
pub use store_view::StoreView;
pub use view::{Lookup, Missing, View, ViewError};
pub use volume::{OrphanRecord, RedoRecord, SegmentRecord, Totals, UsageCount, UsageRecord, initial_changes};
