//! A master whose place another has taken, and who has not noticed: he goes on with what he had been sent. Nobody hears
//! him, and the engine must take nothing from him.

use std::collections::VecDeque;
use std::sync::Arc;

use kv::Engine;
use master::{Master, Output, PeerId};
use wire::ToMaster;

use super::Cluster;

/// The old master, with its opening of the engine.
pub(super) struct Deposed {
    master: Master,
    engine: Arc<dyn Engine>,
    /// What had been sent to it.
    messages: VecDeque<(PeerId, ToMaster)>,
}

impl Cluster {
    /// The master goes on without its nodes.
    pub(super) fn depose(&mut self, master: Master) {
        self.figures.deposed += 1;
        self.note(self.engine.last_seq().0);
        // Of its process, not of the next one's.
        self.disk.fail_no_more();
        let nodes = self.nodes.iter().filter(|node| node.is_up);
        let messages =
            nodes.flat_map(|node| node.to_master.iter().map(|message| (node.peer, message.clone())));
        let messages = messages.collect();
        self.deposed = Some(Deposed { master, engine: Arc::clone(&self.engine), messages });
    }

    /// It reads a message, or finds that time has passed, until there is nothing left or it has noticed.
    pub(super) fn deposed_goes_on(&mut self) {
        let clock = self.master_clock();
        let Some(mut deposed) = self.deposed.take() else { return };
        let message = deposed.messages.pop_front();
        let is_last = message.is_none();
        match message {
            Some((peer, message)) => deposed.master.handle(clock, peer, message),
            None => deposed.master.handle_timeout(clock),
        }
        while let Some(output) = deposed.master.poll_output() {
            match output {
                Output::Sync { job } => {
                    let result = deposed.engine.sync();
                    deposed.master.synced(clock, job, result);
                }
                Output::DeleteSegments { list } => {
                    // What it had made durable that nobody needs.
                    list.iter().for_each(|segment| drop(chunk::SegmentStore::delete(&self.store, *segment)));
                }
                Output::Failed { .. } => return,
                _ => {}
            }
        }
        self.deposed = Some(deposed).filter(|_| !is_last);
    }
}
