//! Changed and hostile inputs for everything that takes bytes in.
//!
//! Each [`Target`] is one decoder, or one state machine behind decoders. Seeds are what a simulated cluster sent and
//! stored ([`traffic`]), so they follow the formats; requests of the kernel, which a simulation has none of, are stored.
//! What must hold is in the targets: no panic, no memory beyond a small multiple of the input, an end in time, and a
//! value that comes out says the same again when it is encoded and decoded.

mod actor;
pub mod extremes;
pub mod meter;
mod script;
pub mod targets;
pub mod traffic;
mod world;

use std::time::Duration;

use testkit::fuzz::{Finding, Limits, Report, Runner, Target};

/// Every target, by name.
pub fn targets() -> Vec<Box<dyn Target>> {
    vec![
        Box::new(targets::wire::ToMasterFrames),
        Box::new(targets::wire::FromMasterFrames),
        Box::new(targets::keys::Keys),
        Box::new(targets::records::Records),
        Box::new(targets::extents::Extents),
        Box::new(targets::segments::Segments),
        Box::new(targets::header::Header),
        Box::new(targets::fuse::Requests),
        Box::new(targets::dump::Dumps),
        Box::new(targets::volume::Volumes),
        Box::new(targets::member::HostileMember),
        Box::new(targets::hostile_master::HostileMaster),
    ]
}

/// The target called `name`.
pub fn target(name: &str) -> Option<Box<dyn Target>> {
    targets().into_iter().find(|target| target.name() == name)
}

/// Runs a target from `seed`.
///
/// # Errors
///
/// What it found.
pub fn run(target: &mut dyn Target, seed: u64, limits: Limits) -> Result<Report, Box<Finding>> {
    let _alarm = alarm::set(target.name(), limits.time * SHARE_MIN + HANG);
    Runner::new(target, seed, meter::measure).run(limits)
}

mod alarm {
    //! A target that never comes back.

    use std::sync::mpsc::{self, RecvTimeoutError, Sender};
    use std::time::Duration;

    /// Ends the process unless it is dropped within `time`.
    pub fn set(name: &'static str, time: Duration) -> Sender<()> {
        let (call_off, called_off) = mpsc::channel();
        std::thread::spawn(move || {
            if called_off.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{name}: an input is never done with");
                std::process::abort();
            }
        });
        call_off
    }
}

/// Others may have the processor for the rest.
const SHARE_MIN: u32 = 20;
/// How much longer than its time a run may take: seeds, one slow input, a finding made smaller.
const HANG: Duration = Duration::from_secs(120);
