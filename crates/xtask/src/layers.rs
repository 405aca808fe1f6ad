//! Who may use whom, and who may not touch the world.
//!
//! Crates stand in one order, bottom up; a crate uses only crates above it in [`ORDER`]'s list, that is,
//! lower ones. Crates beside the order use any and are used by tests only.

use crate::manifest::{Kind, dependencies};
use crate::source::Source;
use crate::tree::Tree;

/// Layer and crate, lowest first. A crate that is not built yet has its place already.
pub const ORDER: &[(&str, &str)] = &[
    ("core", "types"),
    ("core", "lock"),
    ("storage", "kv"),
    ("storage", "kv-fjall"),
    ("storage", "kv-slate"),
    ("storage", "chunk"),
    ("storage", "meta"),
    ("storage", "check"),
    // Messages carry the mutations of `meta`, so their codec stands above it; it is as pure as a core.
    ("storage", "wire"),
    ("node", "obs"),
    ("node", "vfs"),
    ("node", "master"),
    ("driver", "volume"),
    ("driver", "fuse"),
    ("driver", "adapter"),
    ("driver", "guard"),
    ("driver", "node"),
    ("driver", "probe"),
    ("driver", "web"),
    ("face", "cli"),
];

/// Beside the order, with those of their own kind that each may use.
const BESIDE: &[(&str, &[&str])] =
    &[("testkit", &[]), ("sim", &["testkit"]), ("fuzz", &["testkit", "sim"]), ("xtask", &[])];

/// Crates that measure from the outside, and the only ones of ours that they may use.
const OUTSIDE: &[(&str, &[&str])] = &[("probe", &["types", "obs"])];

/// Crates that touch no clock, randomness, thread, file or socket, and their files that may.
const PURE: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("lock", &[]),
    // The contract suite is compiled into tests only; the witness is a file beside the engine.
    ("kv", &["contract.rs", "witness.rs"]),
    ("meta", &[]),
    ("check", &[]),
    ("wire", &[]),
    ("obs", &[]),
    ("vfs", &[]),
    ("master", &[]),
];

/// What a pure crate may not name: a path that has these parts in a row, and why.
const FORBIDDEN: &[(&[&str], &str)] = &[
    (&["Instant"], "clock"),
    (&["SystemTime"], "clock"),
    (&["std", "thread"], "threads"),
    (&["thread", "spawn"], "threads"),
    (&["thread", "sleep"], "threads"),
    (&["std", "fs"], "I/O"),
    (&["std", "net"], "I/O"),
    (&["std", "os"], "I/O"),
    (&["std", "env"], "I/O"),
    (&["std", "process"], "I/O"),
    (&["io", "stdin"], "I/O"),
    (&["io", "stdout"], "I/O"),
    (&["io", "stderr"], "I/O"),
    (&["println"], "I/O"),
    (&["eprintln"], "I/O"),
    (&["RandomState"], "randomness"),
    (&["std", "collections", "HashMap"], "randomness (iteration order)"),
    (&["std", "collections", "HashSet"], "randomness (iteration order)"),
];

/// Outside crates that a pure crate may not depend on or name.
const FORBIDDEN_CRATES: &[(&str, &str)] = &[
    ("tokio", "threads"),
    ("rand", "randomness"),
    ("fastrand", "randomness"),
    ("getrandom", "randomness"),
    ("rustix", "I/O"),
    ("libc", "I/O"),
    ("nix", "I/O"),
];

/// Returns every breach, one line each.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for name in tree.crates() {
        if rank(name).is_none() && !is_beside(name) {
            problems.push(format!("crates/{name}: has no place in the order of layers"));
            continue;
        }
        let manifest = tree.text(&format!("crates/{name}/Cargo.toml")).unwrap_or("");
        for (kind, dependency) in dependencies(manifest) {
            check_dependency(name, kind, dependency, &mut problems);
        }
    }
    for (name, exempt) in PURE {
        check_purity(tree, name, exempt, &mut problems);
    }
    problems
}

fn check_dependency(name: &str, kind: Kind, dependency: &str, problems: &mut Vec<String>) {
    let at = format!("crates/{name}/Cargo.toml");
    let reason = FORBIDDEN_CRATES.iter().find(|(forbidden, _)| *forbidden == dependency).map(|(_, why)| why);
    let is_pure = PURE.iter().any(|(pure, _)| *pure == name);
    if let (true, Kind::Normal, Some(reason)) = (is_pure, kind, reason) {
        problems.push(format!("{at}: depends on {dependency}, but must not touch {reason}"));
    }
    // Our crates are called by their library's name, or by the package's.
    let dependency = dependency.strip_prefix("holdfast-").unwrap_or(dependency).replace('_', "-");
    let beside = BESIDE.iter().find(|(beside, _)| *beside == name);
    if let Some((_, allowed)) = beside {
        if is_beside(&dependency) && !allowed.contains(&dependency.as_str()) && kind == Kind::Normal {
            problems.push(format!("{at}: {name} may not use {dependency}"));
        }
        return;
    }
    if is_beside(&dependency) {
        if kind == Kind::Normal || dependency != "testkit" {
            problems.push(format!("{at}: uses {dependency}, which is for tests only"));
        }
        return;
    }
    let allowed = OUTSIDE.iter().find(|(outside, _)| *outside == name).map(|(_, allowed)| *allowed);
    let is_ours = rank(&dependency).is_some();
    if kind == Kind::Normal
        && is_ours
        && allowed.is_some_and(|allowed| !allowed.contains(&dependency.as_str()))
    {
        problems.push(format!("{at}: {name} measures from the outside and may not use {dependency}"));
        return;
    }
    if let (Some((own, layer)), Some((other, above))) = (rank(name), rank(&dependency))
        && (other > own || (other == own && kind == Kind::Normal))
    {
        problems.push(format!("{at}: {name} ({layer}) uses {dependency} ({above}), which is above it"));
    }
}

fn check_purity(tree: &Tree, name: &str, exempt: &[&str], problems: &mut Vec<String>) {
    let src = format!("crates/{name}/src/");
    let files: Vec<(&str, Source<'_>)> = tree
        .files(".rs")
        .filter(|(path, _)| path.starts_with(&src))
        .map(|(path, text)| (path, Source::parse(text)))
        .collect();
    let test_files: Vec<String> =
        files.iter().flat_map(|(path, source)| test_files_of(path, source)).collect();
    for (path, source) in &files {
        let is_test = test_files
            .iter()
            .any(|test| *path == format!("{test}.rs") || path.starts_with(&format!("{test}/")));
        if is_test || exempt.contains(&&path[src.len()..]) {
            continue;
        }
        for (words, line) in source.paths() {
            if let Some(reason) = forbidden(&words) {
                problems.push(format!(
                    "{path}:{line}: {} is {reason}; {name} must not touch it",
                    words.join("::")
                ));
            }
        }
    }
}

/// Where the files of `path`'s test modules are, without `.rs`.
pub(crate) fn test_files_of(path: &str, source: &Source<'_>) -> Vec<String> {
    let dir = match path.rsplit_once('/') {
        Some((dir, "lib.rs" | "main.rs" | "mod.rs")) => dir,
        Some(_) | None => path.trim_end_matches(".rs"),
    };
    source.test_modules.iter().map(|module| format!("{dir}/{module}")).collect()
}

fn forbidden(path: &[&str]) -> Option<&'static str> {
    let by_crate = FORBIDDEN_CRATES.iter().find(|(name, _)| path.len() > 1 && path[0] == *name);
    let by_path =
        FORBIDDEN.iter().find(|(parts, _)| path.windows(parts.len()).any(|window| window == *parts));
    by_crate.map(|(_, reason)| *reason).or(by_path.map(|(_, reason)| *reason))
}

fn rank(name: &str) -> Option<(usize, &'static str)> {
    let found = ORDER.iter().enumerate().find(|(_, (_, known))| *known == name);
    found.map(|(rank, (layer, _))| (rank, *layer))
}

fn is_beside(name: &str) -> bool {
    BESIDE.iter().any(|(beside, _)| *beside == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files))
    }

    #[test]
    fn a_sound_tree_has_no_problems() {
        assert_eq!(
            problems(&[
                ("crates/types/Cargo.toml", "[dependencies]\n"),
                (
                    "crates/types/src/lib.rs",
                    "//! No std::fs here.\nuse std::time::Duration;\nuse std::io::Error;\n"
                ),
                (
                    "crates/meta/Cargo.toml",
                    "[dependencies]\ntypes.workspace = true\n[dev-dependencies]\nfastrand = \"2\"\ntestkit.workspace = true\n"
                ),
                (
                    "crates/meta/src/lib.rs",
                    "#[cfg(test)]\nmod tests;\nmod plan;\nuse rustc_hash::FxHashMap;\n"
                ),
                ("crates/meta/src/tests.rs", "use std::fs; use std::thread;"),
                ("crates/chunk/Cargo.toml", "[dependencies]\nrustix.workspace = true\n"),
                ("crates/chunk/src/lib.rs", "use std::fs::File;"),
                ("crates/testkit/Cargo.toml", "[dependencies]\nnode.workspace = true\n"),
                ("crates/sim/Cargo.toml", "[dependencies]\ntestkit.workspace = true\n"),
                ("crates/kv/Cargo.toml", ""),
                ("crates/kv/src/contract.rs", "use std::thread;"),
            ]),
            [""; 0]
        );
    }

    #[test]
    fn using_a_crate_above_is_a_breach() {
        for (name, manifest, part) in [
            ("types", "[dependencies]\nlock.workspace = true\n", "types (core) uses lock (core)"),
            ("meta", "[dependencies]\nvfs = { workspace = true }\n", "meta (storage) uses vfs (node)"),
            (
                "vfs",
                "[dependencies]\nholdfast-fuse = { path = \"../fuse\" }\n",
                "vfs (node) uses fuse (driver)",
            ),
            ("kv", "[dev-dependencies]\nkv-fjall.workspace = true\n", "kv (storage) uses kv-fjall (storage)"),
            ("node", "[build-dependencies]\ncli.workspace = true\n", "node (driver) uses cli (face)"),
            ("vfs", "[dependencies.adapter]\nworkspace = true\n", "vfs (node) uses adapter (driver)"),
        ] {
            let found = problems(&[(&format!("crates/{name}/Cargo.toml"), manifest)]);
            assert!(found.len() == 1 && found[0].contains(part), "{manifest}: {found:?}");
        }
    }

    #[test]
    fn crates_for_tests_are_used_by_tests_only() {
        for (name, manifest, count) in [
            ("vfs", "[dependencies]\ntestkit.workspace = true\n", 1),
            ("vfs", "[dev-dependencies]\ntestkit.workspace = true\n", 0),
            ("vfs", "[dev-dependencies]\nsim.workspace = true\n", 1),
            ("testkit", "[dependencies]\nsim.workspace = true\n", 1),
        ] {
            let found = problems(&[(&format!("crates/{name}/Cargo.toml"), manifest)]);
            assert_eq!(found.len(), count, "{manifest}: {found:?}");
        }
    }

    #[test]
    fn a_crate_that_measures_from_the_outside_uses_nothing_of_the_inside() {
        for (manifest, count) in [
            ("[dependencies]\nobs.workspace = true\nrustix.workspace = true\n", 0),
            ("[dependencies]\nnode.workspace = true\n", 1),
            ("[dev-dependencies]\nfuse.workspace = true\n", 0),
        ] {
            let found = problems(&[("crates/probe/Cargo.toml", manifest)]);
            assert_eq!(found.len(), count, "{manifest}: {found:?}");
        }
    }

    #[test]
    fn a_crate_without_a_place_is_a_breach() {
        let found = problems(&[("crates/util/Cargo.toml", "")]);
        assert_eq!(found, ["crates/util: has no place in the order of layers"]);
    }

    #[test]
    fn a_pure_crate_may_not_touch_the_world() {
        for code in [
            "use std::time::Instant;",
            "use std::{collections::BTreeMap, time::{Duration, SystemTime}};",
            "fn f() { std::thread::sleep(d) }",
            "use std::fs;",
            "use std::net::TcpStream;",
            "use std::process::Command;",
            "fn f() { let x = fastrand::u64(..); }",
            "async fn f() { tokio::spawn(g()).await; }",
            "fn f() { println!(\"x\") }",
            "use std::collections::HashMap;",
            "fn f() { rustix::fs::sync() }",
            "mod inner {\n    use std::time as t;\n    fn g() { t::Instant::now(); }\n}",
        ] {
            for name in ["lock", "vfs"] {
                let (manifest, file) =
                    (format!("crates/{name}/Cargo.toml"), format!("crates/{name}/src/a.rs"));
                let found = problems(&[(&manifest, ""), (&file, code)]);
                assert!(found.len() == 1 && found[0].starts_with(&file), "{code}: {found:?}");
            }
        }
    }

    #[test]
    fn a_pure_crate_may_not_depend_on_what_touches_the_world() {
        let found = problems(&[("crates/lock/Cargo.toml", "[dependencies]\nfastrand.workspace = true\n")]);
        assert_eq!(found, ["crates/lock/Cargo.toml: depends on fastrand, but must not touch randomness"]);
    }
}
