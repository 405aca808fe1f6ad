//! Volumes that earlier versions of the format wrote. `tests/fixtures/volume-N.*` are header and dump of one of version N, written by
//! the last program of that version.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::lab::Lab;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// What the dump says that accounts use: kind and number, bytes and inodes.
fn usage(lab: &Lab) -> Vec<(u64, u64, Vec<u8>)> {
    let dump = lab.holdfast(&["dump", "vol"]).expect_success();
    let number = |hex: &str| u64::from_str_radix(hex, 16).expect("hexadecimal");
    let lines = dump.out.lines().filter(|line| line.starts_with("75") && line.find(' ') == Some(34));
    let record = |line: &str| {
        let bytes = (35..line.len()).step_by(2).map(|at| number(&line[at..at + 2]) as u8).collect();
        (number(&line[2..18]), number(&line[18..34]), bytes)
    };
    lines.map(record).collect()
}

#[test]
fn a_volume_of_version_1_is_read_and_counted() {
    let Some(lab) = Lab::without_volume() else { return };
    lab.holdfast(&["format", "vol"]).expect_success();
    let header = fs::read(fixture("volume-1.header")).expect("there");
    fs::write(lab.path("vol/holdfast.volume"), &header).expect("written");
    let dump = fixture("volume-1.dump");
    lab.holdfast(&["load", "vol", dump.to_str().expect("UTF-8")]).expect_success();
    lab.holdfast(&["fsck", "vol"]).expect_success();
    assert_eq!(usage(&lab), []);

    let a = lab.mount("a");
    assert_eq!(fs::read(a.path("d/b")).expect("read"), b"hello\n");
    let big = fs::metadata(a.path("d/sub/big")).expect("there");
    assert_eq!((big.uid(), big.gid(), big.size(), big.mode() & 0o7777), (1001, 100, 3000, 0o644));
    assert_eq!(fs::read_link(a.path("d/l")).expect("read"), Path::new("a"));
    drop(a);
    lab.holdfast(&["fsck", "vol"]).expect_success();
    // Four of root's: the root, d, d/l of one byte, p, and d/sub; each has 100 too: d/a of six bytes and d/sub/big.
    let expected = [
        (0, 0, vec![1, 5]),
        (0, 1000, vec![6, 1]),
        (0, 1001, vec![0xb8, 0x17, 1]),
        (1, 0, vec![1, 5]),
        (1, 100, vec![0xbe, 0x17, 2]),
    ];
    assert_eq!(usage(&lab), expected);
    let raised = fs::read(lab.path("vol/holdfast.volume")).expect("there");
    assert_eq!((header[8], raised[8]), (1, 4), "programs of version 1 refuse it from now on");
}

#[test]
fn a_volume_of_version_2_is_read_and_raised() {
    let Some(lab) = Lab::without_volume() else { return };
    lab.holdfast(&["format", "vol"]).expect_success();
    let header = fs::read(fixture("volume-2.header")).expect("there");
    fs::write(lab.path("vol/holdfast.volume"), &header).expect("written");
    let dump = fixture("volume-2.dump");
    lab.holdfast(&["load", "vol", dump.to_str().expect("UTF-8")]).expect_success();
    lab.holdfast(&["fsck", "vol"]).expect_success();
    let before = usage(&lab);
    assert!(!before.is_empty());
    let a = lab.mount("a");
    assert_eq!(fs::read(a.path("d/b")).expect("read"), b"hello\n");
    assert_eq!(fs::metadata(a.path("d/sub/big")).expect("there").size(), 3000);
    drop(a);
    lab.holdfast(&["fsck", "vol"]).expect_success();
    assert_eq!(usage(&lab), before);
    let raised = fs::read(lab.path("vol/holdfast.volume")).expect("there");
    assert_eq!((header[8], raised[8]), (2, 4), "programs of version 2 refuse it from now on");
}

/// Goal: extents in the wide pages of version 3 are read, changed and checked as before. Method: a sparse file over several of them, with a
/// piece over each kind of border; its segment is beside header and dump.
#[test]
fn a_volume_of_version_3_has_its_extents_in_narrow_pages_from_now_on() {
    let Some(lab) = Lab::without_volume() else { return };
    lab.holdfast(&["format", "vol"]).expect_success();
    let header = fs::read(fixture("volume-3.header")).expect("there");
    fs::write(lab.path("vol/holdfast.volume"), &header).expect("written");
    fs::copy(fixture("volume-3.segment"), lab.path("vol/segments/0000000000000001.seg")).expect("copied");
    let dump = fixture("volume-3.dump");
    lab.holdfast(&["load", "vol", dump.to_str().expect("UTF-8")]).expect_success();
    lab.holdfast(&["fsck", "vol"]).expect_success();
    lab.holdfast(&["scrub", "vol"]).expect_success();
    let pages = |kind: &str| {
        let dump = lab.holdfast(&["dump", "vol"]).expect_success();
        dump.out.lines().filter(|line| line.starts_with(kind) && line.find(' ') == Some(34)).count()
    };
    let (narrow, wide) = ("70", "78");
    assert_eq!((pages(narrow), pages(wide)), (0, 4));

    let mut expected = vec![0; 50_701_000];
    for piece in 0..40_usize {
        expected[piece * 1_300_000..][..1000].fill(b'A' + (piece % 26) as u8);
    }
    expected[(5 << 20) - 1000..][..3000].fill(b'z');
    expected[(16 << 20) - 20_000..][..40_000].fill(b'y');
    let a = lab.mount("a");
    assert!(fs::read(a.path("d/sparse")).expect("read") == expected);
    let file = fs::File::options().write(true).open(a.path("d/sparse")).expect("opened");
    file.write_all_at(b"new", 16 << 20).expect("written");
    file.sync_all().expect("synced");
    expected[16 << 20..][..3].copy_from_slice(b"new");
    drop((file, a));
    assert_eq!((pages(narrow), pages(wide)), (42, 0));
    lab.holdfast(&["fsck", "vol"]).expect_success();
    lab.holdfast(&["scrub", "vol"]).expect_success();
    let a = lab.mount("a");
    assert!(fs::read(a.path("d/sparse")).expect("read") == expected);
    drop(a);
    let raised = fs::read(lab.path("vol/holdfast.volume")).expect("there");
    assert_eq!((header[8], raised[8]), (3, 4), "programs of version 3 refuse it from now on");
}
