//! The largest numbers wherever one may stand.
//!
//! Goal: no number that comes from disk or from a peer overflows anything.
//! Method: `fuzz::extremes`, through the same targets as changed inputs.
#![allow(clippy::unwrap_used, reason = "tests")]

fn take_in(name: &str, inputs: impl Iterator<Item = Vec<u8>>) {
    let mut target = fuzz::target(name).unwrap();
    let mut count = 0;
    for input in inputs {
        count += 1;
        let (result, _) = testkit::fuzz::execute(&mut *target, &input, fuzz::meter::measure);
        if let Err(what) = result {
            panic!("{name}: {what}\nagain: cargo xtask fuzz {name} --input {}", check::hex(&input));
        }
    }
    println!("{name}: {count} inputs");
    assert!(count > 1000, "{count}");
}

#[test]
fn records_of_a_volume() {
    take_in("volume", fuzz::extremes::volumes());
}

#[test]
fn what_a_member_says() {
    let seeds = fuzz::target("member").unwrap().seeds();
    take_in("member", seeds.iter().flat_map(|seed| fuzz::extremes::conversations(seed)));
}

#[test]
fn what_a_master_says() {
    let seeds = fuzz::target("master").unwrap().seeds();
    take_in("master", seeds[..2].iter().flat_map(|seed| fuzz::extremes::conversations(seed)));
}
