//! Keys of the metadata engine.

use meta::{Cookie, Key, KeyText};
use testkit::fuzz::{Target, outcome};
use types::Ino;

use crate::traffic::traffic;

/// Keys, and the ranges that are made of their numbers.
pub struct Keys;

impl Target for Keys {
    fn name(&self) -> &'static str {
        "keys"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        traffic().records.iter().map(|(key, _)| key.clone()).take(200).collect()
    }

    fn repair(&self, _bytes: &mut Vec<u8>) {}

    fn run(&mut self, bytes: &[u8]) -> String {
        let text = KeyText(bytes.to_vec()).to_string();
        let Some(key) = Key::from_slice(bytes) else {
            return format!("no key of {} bytes", bytes.len().min(40));
        };
        assert_eq!(key.to_vec(), bytes, "{key:?} has another form");
        if let Key::Entry(parent, cookie) = key {
            assert_range(Key::entries_after(parent, cookie), key, cookie);
        }
        if let Key::ExtentPage(ino, page) = key {
            let (start, end) = Key::extent_pages(ino);
            assert!(
                start <= key.to_vec() && key.to_vec() < end,
                "page {page} of {ino} is not among its pages"
            );
        }
        outcome(&text)
    }
}

/// Entries behind a place are those of the same directory with a greater place.
fn assert_range((start, end): (Vec<u8>, Vec<u8>), key: Key, cookie: Cookie) {
    let Key::Entry(parent, _) = key else { return };
    assert!(key.to_vec() < start, "{key:?} is behind itself");
    let last = Key::Entry(parent, Cookie(u64::MAX)).to_vec();
    assert!(cookie.0 == u64::MAX || (start <= last && last < end), "the last place is not behind {key:?}");
    let next = Key::Entry(Ino(parent.0.saturating_add(1)), Cookie(0)).to_vec();
    assert!(parent.0 == u64::MAX || end <= next, "{key:?} is followed by entries of another directory");
}
