//! What a node's adapter tries before it asks.

use vfs::{Clock, Core, Reply, Request, Via, WriteNow};

/// A write is tried at once before it is asked for, and one that is accepted before it is stored has to be done.
pub(super) fn write(core: &mut Core, clock: Clock, request: &Request) -> Option<Reply> {
    let Request::Write { ino, offset, data, append, direct, kill_privileges: None } = request else {
        return None;
    };
    let via = if *direct { Via::Direct { append: *append } } else { Via::Cache { append: *append } };
    let write = WriteNow { ino: *ino, offset: *offset, data: &data.0, via, is_exempt: false };
    let mut is_accepted = false;
    let mut accept = || is_accepted = true;
    let accepted: Option<&mut dyn FnMut()> = match via {
        Via::Cache { append: false } => Some(&mut accept),
        _ => None,
    };
    let reply = core.write_now(clock, &write, accepted);
    let is_done = matches!(&reply, Some(Reply::Written { len, .. }) if *len as usize == data.0.len());
    assert!(is_done || !is_accepted, "accepted, and answered {reply:?}");
    reply
}
