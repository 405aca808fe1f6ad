//! Programs that people run: git, sqlite and make over two mounts of one volume.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::lab::Lab;

/// A repository with history, cloned on one mount, checked out, committed to and packed from both.
#[test]
fn git_works_on_a_clone_from_both_mounts() {
    let Some(lab) = Lab::new() else { return };
    fs::write(lab.path("history"), history()).expect("written");
    lab.sh(GIT_SETUP).expect_success();
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let told = lab.sh(GIT_SESSION).expect_success().out;
    assert_eq!(told, "main side 300 of 300, 302 after two commits\n");
    a.unmount(&lab);
    // All of it is there for one who was not present.
    lab.mount("c").unmount(&lab);
    lab.sh("cd b/work && git fsck --full --strict && git diff --exit-code HEAD").expect_success();
    b.unmount(&lab);
}

const GIT_SETUP: &str = r"
git config --global user.name Tester
git config --global user.email tester@example.org
git config --global init.defaultBranch main
git init --quiet --bare origin.git
git -C origin.git fast-import --quiet < history
";

const GIT_SESSION: &str = r#"
is_clean() { [ -z "$(git -C "$1" status --porcelain)" ] || { git -C "$1" status; exit 9; }; }
git clone --quiet "file://$PWD/origin.git" a/work
git -C a/work fsck --full --strict 2>&1
is_clean a/work
first=$(git -C b/work rev-parse --abbrev-ref HEAD)
is_clean b/work
git -C b/work checkout --quiet side
is_clean a/work
second=$(git -C a/work rev-parse --abbrev-ref HEAD)
git -C a/work diff --exit-code origin/side
commits=$(git -C b/work rev-list --count --all)
printf 'from a\n' >> a/work/dir-1/file-2
git -C b/work commit --quiet -a -m 'seen from b'
printf 'from b\n' >> b/work/dir-1/file-2
git -C a/work commit --quiet -a -m 'seen from a'
is_clean a/work
is_clean b/work
git -C a/work gc --quiet
git -C b/work fsck --full --strict 2>&1
git -C b/work checkout --quiet main
is_clean a/work
echo "$first $second $commits of 300, $(git -C a/work rev-list --count --all) after two commits"
"#;

/// A stream of git-fast-import(1): 200 commits on `main`, and 100 on `side`, which leaves it half way.
fn history() -> String {
    let mut stream = String::new();
    let mut commit = |branch: &str, number: usize, from: &str| {
        let message = format!("change {number} of {branch}");
        _ = writeln!(stream, "commit refs/heads/{branch}\nmark :{number}");
        _ = writeln!(stream, "committer Tester <tester@example.org> {} +0000", 1_700_000_000 + number);
        _ = write!(stream, "data {}\n{message}\n{from}", message.len());
        for step in 0..5 {
            let text = format!("{message}, line {step}\n").repeat(1 + number * 7 % 300);
            let (dir, file) = (number * 3 % 8, (number + step) % 12);
            _ = write!(stream, "M 100644 inline dir-{dir}/file-{file}\ndata {}\n{text}\n", text.len());
        }
    };
    for number in 1..=200 {
        commit("main", number, "");
    }
    for number in 201..=300 {
        commit("side", number, if number == 201 { "from :100\n" } else { "" });
    }
    stream
}

/// Two writers with a rollback journal, one at each mount: every row is there, and the file is sound.
#[test]
fn sqlite_keeps_the_rows_of_writers_on_two_mounts() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let counts = lab.sh(SQLITE_SESSION).expect_success().out;
    assert_eq!(counts, "delete\nok\na|150\nb|150\nok\na|150\nb|150\n");
    assert!(!a.path("db-journal").exists() && !b.path("db-journal").exists());
    a.unmount(&lab);
    b.unmount(&lab);
    let _again = lab.mount("a");
    let check = "sqlite3 a/db 'pragma integrity_check; select count(*) from rows'";
    assert_eq!(lab.sh(check).expect_success().out, "ok\n300\n");
}

const SQLITE_SESSION: &str = r#"
sqlite3 a/db 'pragma journal_mode = delete; create table rows (writer text, number integer)'
for writer in a b; do
    n=0
    while [ $n -lt 150 ]; do
        n=$((n + 1))
        echo "insert into rows values ('$writer', $n);"
    done > "$writer.sql"
    sqlite3 -bail -cmd '.timeout 60000' "$writer/db" < "$writer.sql" &
    eval "pid_$writer=\$!"
done
wait "$pid_a"
wait "$pid_b"
for reader in a b; do
    sqlite3 "$reader/db" 'pragma integrity_check;
        select writer, count(distinct number) from rows group by writer order by writer'
done
"#;

/// Sources on one mount, objects on the other: built, run from both, and rebuilt exactly as far as a change on
/// the other mount asks for.
#[test]
fn make_builds_across_mounts_and_the_program_runs_on_both() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    fs::create_dir(a.path("src")).expect("made");
    fs::create_dir(b.path("build")).expect("made");
    write_project(&a.path("src"));
    let make = "make --no-print-directory -C b/build -f ../../a/src/Makefile SRC=../../a/src";
    lab.sh(&format!("{make} -j2 && {make} -q")).expect_success();
    for root in ["a", "b"] {
        assert_eq!(lab.sh(&format!("{root}/build/sum")).expect_success().out, "435\n");
    }
    assert_eq!(fs::metadata(a.path("build/sum")).expect("there").mode() & 0o777, 0o755);

    // One source changes from b, seen by the make that reads a.
    fs::write(b.path("src/part7.c"), "#include \"parts.h\"\nint part7(void) { return 1007; }\n")
        .expect("written");
    let planned = lab.sh(&format!("{make} -n")).expect_success().out;
    assert_eq!(planned.lines().filter(|line| line.contains(" -c ")).count(), 1, "{planned}");
    // The program is replaced while both nodes have pages of the old one.
    lab.sh(&format!("{make} && {make} -q")).expect_success();
    for root in ["a", "b"] {
        assert_eq!(lab.sh(&format!("{root}/build/sum")).expect_success().out, "1435\n");
    }
    // A header that all include is newer than everything.
    lab.sh("touch b/src/parts.h").expect_success();
    let planned = lab.sh(&format!("{make} -n")).expect_success().out;
    assert_eq!(planned.lines().filter(|line| line.contains(" -c ")).count(), 31, "{planned}");
    a.unmount(&lab);
    b.unmount(&lab);
}

/// A program of 31 sources: 30 parts in a library, and what adds them up.
fn write_project(dir: &std::path::Path) {
    let put = |name: &str, text: &str| fs::write(dir.join(name), text).expect("written");
    let (mut header, mut calls) = (String::new(), String::new());
    for n in 0..30 {
        put(&format!("part{n}.c"), &format!("#include \"parts.h\"\nint part{n}(void) {{ return {n}; }}\n"));
        _ = writeln!(header, "int part{n}(void);");
        _ = write!(calls, " + part{n}()");
    }
    put("parts.h", &header);
    put(
        "main.c",
        &format!(
            "#include <stdio.h>\n#include \"parts.h\"\nint main(void) {{ printf(\"%d\\n\", 0{calls}); return 0; }}\n"
        ),
    );
    put("Makefile", MAKEFILE);
}

const MAKEFILE: &str = "\
PARTS := $(patsubst $(SRC)/%.c,%.o,$(wildcard $(SRC)/part*.c))
sum: main.o libparts.a
\tcc -o $@ main.o libparts.a
libparts.a: $(PARTS)
\trm -f $@ && ar rc $@ $^
%.o: $(SRC)/%.c
\tcc -O1 -MMD -c -o $@ $<
-include $(wildcard *.d)
";
