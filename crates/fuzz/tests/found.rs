//! Inputs that broke something once.
#![allow(clippy::unwrap_used, reason = "tests")]

/// Target, input in hexadecimal, what it broke.
const FOUND: &[(&str, &str, &str)] = &[(
    "master",
    "4846444c020000003c4724d60200",
    "a refusal without a reason gave the volume up without a word",
)];

#[test]
fn what_was_found_once_stays_mended() {
    for (name, input, broke) in FOUND {
        let input = check::unhex(input).unwrap();
        let mut target = fuzz::target(name).unwrap();
        let (result, _) = testkit::fuzz::execute(&mut *target, &input, fuzz::meter::measure);
        assert!(result.is_ok(), "{name}: {broke}: {result:?}");
    }
}
