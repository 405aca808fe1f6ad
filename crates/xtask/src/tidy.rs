//! House rules that a compiler does not know: sizes, words that must not reach main, links that lead somewhere.

use std::collections::BTreeMap;

use crate::layers::test_files_of;
use crate::source::{Source, Token};
use crate::tree::Tree;

/// Longest file.
const FILE_LINES_MAX: usize = 1000;
/// Longest function that needs no line in the ratchet.
const FUNCTION_LINES_MAX: usize = 70;
/// Functions that are longer, with the length they have: it may only fall.
pub const RATCHET: &str = "crates/xtask/ratchet.txt";

/// Returns every breach, one line each.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.files(".rs") {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            problems.push(format!("{path}: {lines} lines, more than {FILE_LINES_MAX}; split it"));
        }
    }
    let sources = shipped_sources(tree);
    for (path, source) in &sources {
        problems.extend(banned_words(source).map(|(line, what)| format!("{path}:{line}: {what}")));
    }
    check_ratchet(&long_functions(&sources), &ratchet(tree), &mut problems);
    for (path, text) in tree.files(".md") {
        problems.extend(dead_links(tree, path, text));
    }
    problems
}

/// The ratchet's text as it has to be for the tree as it is.
pub fn ratchet_of(tree: &Tree) -> String {
    let mut text = String::from(
        "# Functions longer than the limit: file, name, lines. `cargo xtask tidy --update` writes it.\n",
    );
    for ((path, name), (len, _)) in long_functions(&shipped_sources(tree)) {
        text.push_str(&format!("{path} {name} {len}\n"));
    }
    text
}

/// Every file that is compiled outside tests.
fn shipped_sources(tree: &Tree) -> Vec<(&str, Source<'_>)> {
    let is_in_src = |path: &str| path.starts_with("crates/") && path.contains("/src/");
    let files = tree.files(".rs").filter(|(path, _)| is_in_src(path));
    let all: Vec<(&str, Source<'_>)> = files.map(|(path, text)| (path, Source::parse(text))).collect();
    let tests: Vec<String> = all.iter().flat_map(|(path, source)| test_files_of(path, source)).collect();
    let is_test = |path: &str| {
        tests.iter().any(|test| path == format!("{test}.rs") || path.starts_with(&format!("{test}/")))
    };
    all.into_iter().filter(|(path, _)| !is_test(path)).collect()
}

fn banned_words<'a>(source: &'a Source<'_>) -> impl Iterator<Item = (usize, String)> + 'a {
    let windows = source.tokens.windows(3);
    windows.filter_map(|window| {
        let [first, second, third] = window else { return None };
        let found = match (first.text, second.text, third.text) {
            (name @ ("todo" | "dbg" | "unimplemented"), "!", _) => format!("{name}! must not reach main"),
            (".", "unwrap", "(") => {
                "unwrap() outside tests; return an error, or say in expect() why it cannot fail".to_owned()
            }
            _ => return None,
        };
        let Token { line, .. } = second;
        Some((*line, found))
    })
}

/// Of functions with one name in one file the longest counts.
type Lengths<'a> = BTreeMap<(&'a str, &'a str), (usize, usize)>;

fn long_functions<'a>(sources: &[(&'a str, Source<'a>)]) -> Lengths<'a> {
    let mut found = Lengths::new();
    for (path, source) in sources {
        for function in source.functions().into_iter().filter(|function| function.len > FUNCTION_LINES_MAX) {
            let longest = found.entry((*path, function.name)).or_default();
            *longest = (*longest).max((function.len, function.line));
        }
    }
    found
}

fn ratchet(tree: &Tree) -> BTreeMap<(&str, &str), usize> {
    let lines = tree.text(RATCHET).unwrap_or("").lines().filter(|line| !line.starts_with('#'));
    let entries = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(((words.next()?, words.next()?), words.next()?.parse().ok()?))
    });
    entries.collect()
}

fn check_ratchet(found: &Lengths<'_>, allowed: &BTreeMap<(&str, &str), usize>, problems: &mut Vec<String>) {
    for ((path, name), (len, line)) in found {
        match allowed.get(&(*path, *name)) {
            None => problems.push(format!(
                "{path}:{line}: fn {name} has {len} lines, more than {FUNCTION_LINES_MAX}; split it"
            )),
            Some(max) if len > max => {
                problems.push(format!("{path}:{line}: fn {name} grew from {max} to {len} lines; split it"))
            }
            Some(max) if len < max => {
                problems.push(format!(
                    "{RATCHET}: {path} {name} is down to {len} lines; run `cargo xtask tidy --update`"
                ));
            }
            Some(_) => {}
        }
    }
    for (path, name) in allowed.keys().filter(|key| !found.contains_key(*key)) {
        problems
            .push(format!("{RATCHET}: {path} {name} is short now or gone; run `cargo xtask tidy --update`"));
    }
}

fn dead_links(tree: &Tree, path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut is_code = false;
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        for target in link_targets(line) {
            let target = target.split('#').next().unwrap_or("");
            let is_outside = target.contains("://") || target.starts_with("mailto:");
            if !target.is_empty() && !is_outside && !resolve(path, target).is_some_and(|file| tree.has(&file))
            {
                problems.push(format!("{path}:{number}: link to {target} leads nowhere"));
            }
        }
    }
    problems
}

/// Targets of `[text](target)` outside `code`.
fn link_targets(line: &str) -> Vec<&str> {
    let prose = line.split('`').step_by(2);
    let pieces = prose.flat_map(|text| text.split("](").skip(1));
    pieces.filter_map(|piece| piece.split([')', ' ']).next()).collect()
}

/// `target` as seen from the file `path`; `None` if it leaves the repository.
fn resolve(path: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files))
    }

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    a();\n".repeat(lines - 2))
    }

    #[test]
    fn a_sound_tree_has_no_problems() {
        assert_eq!(
            problems(&[
                (
                    "crates/a/src/lib.rs",
                    "#[cfg(test)]\nmod tests;\n// todo!() x.unwrap()\nfn f() { x.unwrap_or(\"dbg!\"); }\n"
                ),
                ("crates/a/src/tests.rs", "fn f() { x.unwrap(); todo!() }"),
                ("crates/a/tests/b.rs", "fn f() { x.unwrap(); }"),
                ("crates/a/src/c.rs", &function(70)),
                (
                    "README.md",
                    "[a](docs/a.md#part) [b](https://x.org/y) `[c](none.md)` [d](#here) [e](docs)\n```\n[f](none)\n```\n"
                ),
                ("docs/a.md", "[up](../README.md)"),
            ]),
            [""; 0]
        );
    }

    #[test]
    fn a_long_file_is_a_breach_even_in_tests() {
        let found = problems(&[("crates/a/tests/b.rs", &"\n".repeat(1001))]);
        assert_eq!(found, ["crates/a/tests/b.rs: 1001 lines, more than 1000; split it"]);
    }

    #[test]
    fn words_that_must_not_reach_main_are_found() {
        for (code, part) in [
            ("fn f() { todo!() }", ":1: todo!"),
            ("fn f() {\n dbg!(x); }", ":2: dbg!"),
            ("fn f() { unimplemented!(\"later\") }", ":1: unimplemented!"),
            ("fn f() { x\n  .unwrap(); }", ":2: unwrap()"),
        ] {
            let found = problems(&[("crates/a/src/lib.rs", code)]);
            assert!(found.len() == 1 && found[0].contains(part), "{code}: {found:?}");
        }
    }

    #[test]
    fn function_length_can_only_fall() {
        for (len, ratchet, part) in [
            (71, "", Some("fn long has 71 lines")),
            (80, "crates/a/src/b.rs long 80\n", None),
            (81, "crates/a/src/b.rs long 80\n", Some("grew from 80 to 81")),
            (79, "crates/a/src/b.rs long 80\n", Some("is down to 79")),
            (20, "# why\ncrates/a/src/b.rs long 80\n", Some("is short now or gone")),
        ] {
            let found = problems(&[("crates/a/src/b.rs", &function(len)), (RATCHET, ratchet)]);
            match part {
                None => assert_eq!(found, [""; 0]),
                Some(part) => {
                    assert!(found.len() == 1 && found[0].contains(part), "{len} {ratchet}: {found:?}")
                }
            }
        }
    }

    #[test]
    fn update_writes_a_ratchet_that_passes() {
        let code = function(90);
        let tree = Tree::of(&[("crates/a/src/b.rs", &code)]);
        let ratchet = ratchet_of(&tree);
        assert_eq!(problems(&[("crates/a/src/b.rs", &code), (RATCHET, &ratchet)]), [""; 0]);
    }

    #[test]
    fn a_dead_link_is_a_breach() {
        for link in ["none.md", "../outside.md", "docs/none"] {
            let text = format!("see\n[it]({link})");
            let found = problems(&[("README.md", &text), ("docs/a.md", "")]);
            assert!(found.len() == 1 && found[0].starts_with("README.md:2: "), "{link}: {found:?}");
        }
    }
}
