//! Every target for some seconds. `HOLDFAST_SEED` is the seed, `HOLDFAST_FUZZ_SECONDS` the time for each.
#![allow(clippy::unwrap_used, reason = "tests")]

use testkit::fuzz::Limits;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Goal: nothing that takes bytes in can be made to panic, to take memory or to say something else than it was told.
/// Method: see `testkit::fuzz`; the same seed each time, so that a failure is the change's that brought it.
fn fuzz_target(name: &str) {
    let mut target = fuzz::target(name).unwrap();
    let limits = Limits::seconds(number("HOLDFAST_FUZZ_SECONDS", 5));
    let report = fuzz::run(&mut *target, number("HOLDFAST_SEED", 1), limits);
    let report = report.unwrap_or_else(|finding| panic!("{finding}"));
    let per_second = report.executions as f64 / report.seconds;
    println!(
        "{name}: {} executions, {per_second:.0} a second, {} outcomes",
        report.executions,
        report.outcomes.len()
    );
    // A target that refuses everything alike tests nothing.
    assert!(report.outcomes.len() >= 4, "{:?}", report.outcomes);
}

macro_rules! targets {
    ($($test:ident = $name:literal),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                fuzz_target($name);
            }
        )*

        #[test]
        fn every_target_has_a_test() {
            let names: Vec<_> = fuzz::targets().iter().map(|target| target.name()).collect();
            assert_eq!(names, [$($name),*]);
        }
    };
}

targets! {
    messages_to_a_master = "to-master",
    messages_to_a_node = "from-master",
    keys = "keys",
    records = "records",
    extent_maps = "extents",
    segments = "segments",
    volume_headers = "volume-header",
    requests_of_the_kernel = "fuse",
    dumps = "dump",
    volumes_with_changed_records = "volume",
    a_hostile_member_harms_nobody_else = "member",
    a_hostile_master_cannot_break_a_node = "master",
}
