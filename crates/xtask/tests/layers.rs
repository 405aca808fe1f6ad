//! The layers of this repository hold: `cargo xtask layers` as a test.

#[test]
fn no_crate_imports_upwards_and_no_core_touches_the_world() {
    let tree = xtask::Tree::read(&xtask::root()).expect("the repository is readable");
    assert!(tree.crates().len() > 5, "the crates were found");
    let problems = xtask::layers::check(&tree);
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
