//! Tables of cases.
//!
//! A line is a case: `step = result; step = result; …`. A step without a result must answer `ok`. `result | ext4 other` is a
//! difference that `docs/semantics.md` argues. `{a,b}` stands for one case with each, `{$types}` and the like for lists that
//! are named ([`lists`]); `{1:a,b}` and then `{1}` are the same choice twice. A line that begins with
//! `root:` or `user:` is for one of them alone, one with `one mount:` not for two. `#` begins a remark.

use crate::place::User;

/// One case.
pub struct Case {
    /// Table and line.
    pub place: String,
    /// As written, expanded.
    pub line: String,
    users: Vec<User>,
    /// Whether its steps may be on two mounts by turns.
    pub is_for_two: bool,
    pub steps: Vec<Step>,
}

/// A step and what it must answer.
pub struct Step {
    pub words: Vec<String>,
    pub expected: String,
    /// On ext4.
    pub control: String,
}

impl Case {
    pub fn users(&self) -> impl Iterator<Item = User> {
        self.users.iter().copied()
    }
}

/// Names that stand for lists, and for words that are too long to write.
fn lists() -> Vec<(&'static str, String)> {
    vec![
        // What a user may make, everything, and everything but one.
        ("$made", "file,dir,fifo,sock,link".to_owned()),
        ("$types", "file,dir,fifo,sock,link,chr,blk".to_owned()),
        ("$nodir", "file,fifo,sock,link".to_owned()),
        ("$nolink", "file,dir,fifo,sock".to_owned()),
        ("$longer", "y".repeat(256)),
        ("$long", "x".repeat(255)),
        // 4,095 bytes end in zero within PATH_MAX; one more does not.
        ("$pathmax", format!("{}d/f", "d/../".repeat(818) + "./")),
        ("$pathover", format!("{}d/ff", "d/../".repeat(818) + "./")),
    ]
}

/// Every case of every table.
pub fn all() -> Vec<Case> {
    TABLES.iter().flat_map(|(name, text)| table(name, text)).collect()
}

fn table(name: &str, text: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let both = vec![User::ROOT, User::OTHER];
        let (users, is_for_two, line) = match line.split_once(": ") {
            Some(("root", rest)) => (vec![User::ROOT], true, rest),
            Some(("user", rest)) => (vec![User::OTHER], true, rest),
            Some(("one mount", rest)) => (both, false, rest),
            _ => (both, true, line),
        };
        let mut line = line.to_owned();
        for (word, list) in lists() {
            line = line.replace(word, &list);
        }
        for line in expand(&line) {
            let place = format!("{name}:{}", number + 1);
            cases.push(Case { place, users: users.clone(), is_for_two, steps: steps(&line), line });
        }
    }
    cases
}

/// One line for each choice of the first list in braces, and so on.
fn expand(line: &str) -> Vec<String> {
    let Some(start) = line.find('{') else { return vec![line.to_owned()] };
    let end = start + line[start..].find('}').unwrap_or_else(|| panic!("no end of a list: {line}"));
    let (mark, list) = match line[start + 1..end].split_once(':') {
        Some((mark, list)) => (format!("{{{mark}}}"), list),
        None => (String::new(), &line[start + 1..end]),
    };
    let choices = list.split(',').map(|choice| {
        let line = format!("{}{choice}{}", &line[..start], &line[end + 1..]);
        if mark.is_empty() { line } else { line.replace(&mark, choice) }
    });
    choices.flat_map(|line| expand(&line)).collect()
}

fn steps(line: &str) -> Vec<Step> {
    let steps = line.split(';').map(str::trim).filter(|step| !step.is_empty());
    steps
        .map(|step| {
            let (step, results) = step.split_once(" = ").unwrap_or((step, "ok"));
            let (expected, control) = results.split_once(" | ext4 ").unwrap_or((results, results));
            Step {
                words: step.split_whitespace().map(str::to_owned).collect(),
                expected: expected.trim().to_owned(),
                control: control.trim().to_owned(),
            }
        })
        .collect()
}

const TABLES: [(&str, &str); 10] = [
    ("make", include_str!("tables/make.txt")),
    ("remove", include_str!("tables/remove.txt")),
    ("link", include_str!("tables/link.txt")),
    ("rename", include_str!("tables/rename.txt")),
    ("open", include_str!("tables/open.txt")),
    ("modes", include_str!("tables/modes.txt")),
    ("owners", include_str!("tables/owners.txt")),
    ("times", include_str!("tables/times.txt")),
    ("data", include_str!("tables/data.txt")),
    ("xattr", include_str!("tables/xattr.txt")),
];
