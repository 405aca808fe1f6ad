//! The master's own records: where they are defined, others that read a volume find them too.

pub(crate) use meta::{MemberRecord, ResultRecord, SegmentRange, VolumeRecord};
