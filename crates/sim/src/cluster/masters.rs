//! Masters that begin and end, with what outlives them.

use std::sync::Arc;

use kv::Claim;
use master::Master;
use obs::Metrics;
use types::Micros;

use crate::cluster::{COOKIE_KEY, Cluster, LEASE, VOLUME};

impl Cluster {
    pub(super) fn open_engine(&mut self) {
        let claim = Claim::new(self.figures.remasters + self.figures.power_losses + 1);
        self.engine = Arc::new(self.disk.open(claim).expect("the disk opens again"));
    }

    pub(super) fn open_master(&mut self) {
        let config = master::Config {
            volume: VOLUME,
            cookie_key: COOKIE_KEY,
            lease: LEASE,
            token_memory: self.config.token_memory,
            commit_interval: Micros(1_000_000),
            store: Arc::new(self.store.clone()),
        };
        let clock = self.master_clock();
        let master = Master::open(clock, self.engine.clone(), config, Arc::new(Metrics::new()));
        let mut master = master.expect("the volume opens");
        if self.config.listing_entries > 0 {
            master.limit_listings(self.config.listing_entries);
        }
        // Turns are taken in directories that are changed as often as that.
        if !self.config.seed.is_multiple_of(3) {
            master.take_turns_from((self.config.seed % 3) as u32);
        }
        master.note_granted_beyond(&self.granted_beyond);
        self.master = Some(master);
        self.master_syncs.clear();
    }

    /// There is no master from now on. What it granted beyond limits may be in use under the next.
    pub(super) fn take_master(&mut self) -> Option<Master> {
        let master = self.master.take()?;
        self.granted_beyond = master.granted_beyond();
        Some(master)
    }
}
