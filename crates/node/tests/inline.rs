//! The volume's choice of what stays in the metadata is followed by every node.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use common::Scratch;
use volume::FormatOptions;

#[test]
fn files_up_to_the_inline_size_need_no_segment() {
    for inline_bytes in [0usize, 100, 4096, 64 << 10] {
        let format = FormatOptions { inline_bytes: inline_bytes as u32, ..FormatOptions::default() };
        let Some(scratch) = Scratch::formatted(&format) else { return };
        let (a, b) = (scratch.mount("a"), scratch.mount("b"));
        let mut sizes = vec![1, inline_bytes.max(1), inline_bytes + 1, 70_000];
        sizes.dedup();
        for (number, size) in sizes.into_iter().enumerate() {
            let (writer, reader) = if number % 2 == 0 { (&a, &b) } else { (&b, &a) };
            let name = format!("f{size}");
            let bytes: Vec<u8> = (0..size).map(|at| (at * 7 + number) as u8).collect();
            let before = writer.stat("segment_written_bytes_total");
            let file = File::create(writer.path(&name)).unwrap();
            file.write_all_at(&bytes, 0).unwrap();
            file.sync_all().unwrap();
            drop(file);
            let stored = writer.stat("segment_written_bytes_total") - before;
            assert_eq!(stored > 0, size > inline_bytes, "{size} bytes, inline {inline_bytes}: {stored}");
            assert_eq!(fs::read(reader.path(&name)).unwrap(), bytes);
            // A byte in the middle, by the other node.
            let middle = File::options().write(true).open(reader.path(&name)).unwrap();
            middle.write_all_at(b"!", size as u64 / 2).unwrap();
            drop(middle);
            let mut changed = bytes;
            changed[size / 2] = b'!';
            assert_eq!(fs::read(writer.path(&name)).unwrap(), changed);
        }
        b.unmount().unwrap();
        a.unmount().unwrap();
        let a = scratch.mount("a");
        assert_eq!(fs::read(a.path("f70000")).unwrap().len(), 70_000);
        a.unmount().unwrap();
    }
}

/// The largest inline files at once: listings, batches and grants keep within their limits.
#[test]
fn many_files_of_the_largest_inline_size_pass_between_nodes() {
    let format = FormatOptions { inline_bytes: 64 << 10, ..FormatOptions::default() };
    let Some(scratch) = Scratch::formatted(&format) else { return };
    let (a, b) = (scratch.mount("a"), scratch.mount("b"));
    fs::create_dir(a.path("d")).unwrap();
    let open: Vec<File> = (0..150u8)
        .map(|number| {
            let file = File::create(a.path(&format!("d/f{number}"))).unwrap();
            file.write_all_at(&vec![number; 64 << 10], 0).unwrap();
            file
        })
        .collect();
    assert_eq!(fs::read_dir(b.path("d")).unwrap().count(), 150);
    for number in 0..150u8 {
        assert_eq!(fs::read(b.path(&format!("d/f{number}"))).unwrap(), vec![number; 64 << 10]);
    }
    drop(open);
    b.unmount().unwrap();
    a.unmount().unwrap();
}
