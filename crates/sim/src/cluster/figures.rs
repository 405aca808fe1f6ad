//! What happened in a run.

macro_rules! figures {
    ($($name:ident, $text:literal;)*) => {
        /// What happened in a run.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Figures {
            $(#[doc = $text] pub $name: u64,)*
        }

        impl Figures {
            /// Adds what happened in another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Each with what it counts.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$(($text, self.$name),)*]
            }
        }
    };
}

figures! {
    messages, "messages delivered, both ways";
    invalidations, "invalidations carried out";
    syncs, "syncs of engine and segments";
    remasters, "changes of master";
    deposed, "masters that went on after another had taken over";
    node_deaths, "deaths of nodes";
    power_losses, "losses of power";
    epochs_raised, "times that all names of a kernel ran out because one could not be taken back";
    late_answers, "changes of names whose answers a kernel took in late";
    waits_ended, "invalidations that waited no longer for a kernel to be done with a change of a name";
    late_writes, "stores through mappings written back while their pages were taken back";
    segments_deleted, "segments deleted";
    extents_copied, "extents that the cleaner had copied";
    pauses, "machines that stood still for a while";
    cuts, "times that a node and the master could not reach each other, or one way only";
    breaks, "connections that broke or were left";
    lapses, "leases that were not renewed in time";
    memberships_lost, "memberships that ended while their nodes lived";
    resent, "batches sent again";
    late_messages, "messages that arrived by a connection which their node had left";
    store_failures, "calls of the segment store that failed";
    engine_failures, "masters that ended because their engine had failed";
    writes_lost, "unsynced writes of which nothing was left";
    writes_torn, "unsynced writes of which a part was left";
    micros, "microseconds of virtual time";
}
