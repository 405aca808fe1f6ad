//! A Rust file as tokens: comments, strings and test code left out, so that a word found is a word used.

/// A word or a punctuation mark and the line, from 1, it stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// An identifier, keyword or number; `::`; or one character.
    pub text: &'a str,
    /// Line, from 1.
    pub line: usize,
}

/// A file without its test code.
#[derive(Debug, Default)]
pub struct Source<'a> {
    /// What is compiled outside tests.
    pub tokens: Vec<Token<'a>>,
    /// Modules in files of their own that only tests see: `#[cfg(test)] mod name;`.
    pub test_modules: Vec<&'a str>,
}

/// A function with its length.
#[derive(Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its name, without path.
    pub name: &'a str,
    /// Line of `fn`.
    pub line: usize,
    /// Lines from `fn` to the closing brace.
    pub len: usize,
}

impl<'a> Source<'a> {
    /// Takes `text` apart.
    pub fn parse(text: &'a str) -> Self {
        let all = tokens(text);
        let mut source = Self::default();
        let mut at = 0;
        while at < all.len() {
            match test_attribute_end(&all, at) {
                None => {
                    source.tokens.push(all[at].clone());
                    at += 1;
                }
                Some(item) => {
                    let end = item_end(&all, item);
                    let mut words =
                        all[item..end].iter().map(|token| token.text).skip_while(|word| *word != "mod");
                    if let (Some("mod"), Some(name), Some(";")) = (words.next(), words.next(), words.next()) {
                        source.test_modules.push(name);
                    }
                    at = end;
                }
            }
        }
        source
    }

    /// All functions with a body, in order of their beginning.
    pub fn functions(&self) -> Vec<Function<'a>> {
        let mut found = Vec::new();
        for (at, token) in self.tokens.iter().enumerate() {
            let Some(name) = self.tokens.get(at + 1).filter(|_| token.text == "fn") else { continue };
            // `fn(u8)` is a type.
            if !name.text.starts_with(is_word_char) {
                continue;
            }
            let end = item_end(&self.tokens, at);
            let last = &self.tokens[end - 1];
            if last.text == "}" {
                found.push(Function { name: name.text, line: token.line, len: last.line - token.line + 1 });
            }
        }
        found
    }

    /// Every path that is named, with its line: those of `use` spelled out, others as they stand.
    pub fn paths(&self) -> Vec<(Vec<&'a str>, usize)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            if self.tokens[at].text == "use" {
                at = self.use_tree(at + 1, &[], &mut found);
            } else {
                at = self.plain_path(at, &mut found);
            }
        }
        found
    }

    /// Reads one tree of a `use` from `at` and returns where it ends.
    fn use_tree(&self, mut at: usize, prefix: &[&'a str], found: &mut Vec<(Vec<&'a str>, usize)>) -> usize {
        let mut path = prefix.to_vec();
        let line = self.tokens.get(at).map_or(0, |token| token.line);
        while let Some(token) = self.tokens.get(at) {
            match token.text {
                "{" => {
                    at += 1;
                    while self.tokens.get(at).is_some_and(|token| token.text != "}") {
                        at = self.use_tree(at, &path, found);
                        if self.tokens.get(at).is_some_and(|token| token.text == ",") {
                            at += 1;
                        }
                    }
                    return at + 1;
                }
                ";" | "," | "}" => break,
                "as" => {
                    // The new name says nothing about what it is.
                    at += 2;
                    continue;
                }
                // `{self}` names what stands before it.
                "::" | "self" if !path.is_empty() => {}
                word => path.push(word),
            }
            at += 1;
        }
        found.push((path, line));
        // The end of an inner tree is for its caller to see.
        at + usize::from(self.tokens.get(at).is_some_and(|token| token.text == ";"))
    }

    fn plain_path(&self, mut at: usize, found: &mut Vec<(Vec<&'a str>, usize)>) -> usize {
        let line = self.tokens[at].line;
        let mut path = Vec::new();
        while let Some(word) = self.tokens.get(at).filter(|token| token.text.starts_with(is_word_char)) {
            path.push(word.text);
            at += 1;
            if self.tokens.get(at).is_none_or(|token| token.text != "::") {
                break;
            }
            at += 1;
        }
        if path.is_empty() {
            return at + 1;
        }
        found.push((path, line));
        at
    }
}

/// If a test-only attribute begins at `at`, returns where the item it belongs to begins.
fn test_attribute_end(tokens: &[Token<'_>], at: usize) -> Option<usize> {
    let word = |offset: usize| tokens.get(at + offset).map(|token| token.text);
    if (word(0), word(1)) != (Some("#"), Some("[")) {
        return None;
    }
    let end = closing(tokens, at + 1);
    let inside: Vec<&str> = tokens[at + 2..end.saturating_sub(1)].iter().map(|token| token.text).collect();
    let is_test = match inside.first() {
        Some(&"cfg") => inside.contains(&"test") && !inside.contains(&"not"),
        Some(&"test") => true,
        Some(_) | None => false,
    };
    if !is_test {
        return None;
    }
    let mut item = end;
    while tokens.get(item).is_some_and(|token| token.text == "#") {
        item = closing(tokens, item + 1);
    }
    Some(item)
}

/// Where the item that begins at `at` ends: after its block, or after a `;` outside all brackets.
fn item_end(tokens: &[Token<'_>], at: usize) -> usize {
    let mut at = at;
    while let Some(token) = tokens.get(at) {
        match token.text {
            "(" | "[" => at = closing(tokens, at),
            "{" => return closing(tokens, at),
            ";" => return at + 1,
            _ => at += 1,
        }
    }
    tokens.len()
}

/// The place after the bracket that closes the one at `open`.
fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let skipped = skip(rest);
        if skipped > 0 {
            line += rest[..skipped].matches('\n').count();
            rest = &rest[skipped..];
            continue;
        }
        let len = match first {
            _ if is_word_char(first) => rest.find(|c| !is_word_char(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        found.push(Token { text: &rest[..len], line });
        rest = &rest[len..];
    }
    found
}

/// Length of the blank, comment, string, character or lifetime at the start of `rest`; 0 for anything else.
fn skip(rest: &str) -> usize {
    let first = rest.chars().next().unwrap_or('a');
    if first.is_whitespace() {
        return first.len_utf8();
    }
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    for prefix in ["br", "cr", "r"] {
        if let Some(len) = rest.strip_prefix(prefix).and_then(raw_string) {
            return prefix.len() + len;
        }
    }
    for prefix in ["b", "c", ""] {
        if rest.strip_prefix(prefix).is_some_and(|quoted| quoted.starts_with('"')) {
            return prefix.len() + quoted(&rest[prefix.len()..], '"');
        }
    }
    if rest.starts_with("b'") {
        return 1 + quoted(&rest[1..], '\'');
    }
    if first == '\'' { character_or_lifetime(rest) } else { 0 }
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        let step = match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                2
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Length of `#"..."#` with any number of `#`.
fn raw_string(rest: &str) -> Option<usize> {
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let body = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let len = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(hashes + 1 + len)
}

/// Length of a literal that begins with `quote`, the quotes included.
fn quoted(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `'a'` and `'\n'` are characters; `'a` before anything else is a lifetime.
fn character_or_lifetime(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), _) | (Some(_), Some((_, '\''))) => quoted(rest, '\''),
        _ => 1 + rest[1..].find(|c| !is_word_char(c)).unwrap_or(rest.len() - 1),
    }
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        Source::parse(text).tokens.into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_strings_characters_and_lifetimes_are_left_out() {
        for (text, expected) in [
            ("a // b\nc", &["a", "c"][..]),
            ("a /* b /* c */ d */ e", &["a", "e"]),
            (r#"a("b \" c", 'd', '\'', b'x', b"y")"#, &["a", "(", ",", ",", ",", ",", ")"]),
            ("r#\"a \" b\"# c", &["c"]),
            ("&'a str", &["&", "str"]),
            ("break 'outer;", &["break", ";"]),
            ("x::y", &["x", "::", "y"]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }

    #[test]
    fn test_code_is_left_out_and_the_rest_stays() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { c() } }\nfn d() {}\n#[cfg(test)] use x::{y, z};\n\
            #[cfg(all(test, unix))]\n#[path = \"q.rs\"]\nmod q;\n#[cfg(not(test))]\nfn e() {}";
        let source = Source::parse(text);
        let names: Vec<&str> = source.functions().iter().map(|function| function.name).collect();
        assert_eq!(names, ["a", "d", "e"]);
        assert_eq!(source.test_modules, ["q"]);
        assert!(source.tokens.iter().all(|token| !matches!(token.text, "tests" | "c" | "y")));
    }

    #[test]
    fn use_trees_are_spelled_out() {
        let source = Source::parse("use std::{fs, time::{Duration, Instant as I}};\nlet x = a::b::c();");
        let paths: Vec<String> = source.paths().iter().map(|(path, _)| path.join("::")).collect();
        assert_eq!(paths[..3], ["std::fs", "std::time::Duration", "std::time::Instant"]);
        assert!(paths.contains(&"a::b::c".to_owned()), "{paths:?}");
    }

    #[test]
    fn functions_are_measured_from_fn_to_brace() {
        let text =
            "fn a(\n  x: [u8; 3],\n) -> u8 {\n  x[0]\n}\ntrait T { fn b(); fn c() { } }\ntype F = fn(u8);";
        let source = Source::parse(text);
        let functions: Vec<_> = source.functions().iter().map(|f| (f.name, f.line, f.len)).collect();
        assert_eq!(functions, [("a", 1, 5), ("c", 6, 1)]);
    }
}
