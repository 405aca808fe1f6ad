//! This repository is tidy: `cargo xtask tidy` as a test.

#[test]
fn the_house_rules_hold() {
    let tree = xtask::Tree::read(&xtask::root()).expect("the repository is readable");
    let problems = xtask::tidy::check(&tree);
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
