//! Inputs that broke something once.
#![allow(clippy::unwrap_used, reason = "tests")]

/// Target, input in hexadecimal, what it broke.
const FOUND: &[(&str, &str, &str)] = &[
    (
        "master",
        "4846444c020000003c4724d60200",
        "a refusal without a reason gave the volume up without a word",
    ),
    (
        "member",
        "4846444c240000007ee5767a010502878e9cb8f0e0c18307878e9cb8f0e0c1830700006501066e6f6465203103303a31\
         4846444c05000000830421970e808004104846444c0d000000d3596dc36490800402ed03120101000000474f2e2e474f2e2e\
         4846444c1f00000044d54ff8060c0b90c49fd50c80f3fa870301100373756294800402ed03120101000000474f2e2e\
         4846444c2c0000008131245b0608ffffffffffffffffff0186c49fd50cc0acefd10308121373656375726974792e63617061\
         62696c697479474f2e2e",
        "a member that had every result, and one operation under way, overflowed a number of the master",
    ),
];

#[test]
fn what_was_found_once_stays_mended() {
    for (name, input, broke) in FOUND {
        let mut input = check::unhex(input).unwrap();
        let mut target = fuzz::target(name).unwrap();
        // A later version of the protocol changes a byte.
        target.repair(&mut input);
        let (result, _) = testkit::fuzz::execute(&mut *target, &input, fuzz::meter::measure);
        assert!(result.is_ok(), "{name}: {broke}: {result:?}");
    }
}
