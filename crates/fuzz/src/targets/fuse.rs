//! Requests of the kernel.

use fuse::{Dialect, InHeader, Request};
use testkit::fuzz::{Target, outcome};

/// One message of `/dev/fuse`.
pub struct Requests;

impl Target for Requests {
    fn name(&self) -> &'static str {
        "fuse"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        RECORDED.lines().filter_map(|line| check::unhex(line.trim())).collect()
    }

    fn repair(&self, bytes: &mut Vec<u8>) {
        if bytes.len() < size_of::<InHeader>() {
            bytes.resize(size_of::<InHeader>(), 0);
        }
        let len = bytes.len() as u32;
        bytes[0..4].copy_from_slice(&len.to_le_bytes());
    }

    fn run(&mut self, bytes: &[u8]) -> String {
        // As the session's buffer, aligned to 8.
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        for (word, eight) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..eight.len()].copy_from_slice(eight);
            *word = u64::from_le_bytes(whole);
        }
        let aligned = &zerocopy::IntoBytes::as_bytes(&words[..])[..bytes.len()];
        let mut said = String::new();
        for setxattr_ext in [false, true] {
            let text = match Request::from_message(aligned, Dialect { setxattr_ext }) {
                Err(error) => error.to_string(),
                Ok(request) => {
                    assert!(size_of::<InHeader>() + request.arg.len() + request.payload.len() <= bytes.len());
                    match request.operation() {
                        Ok(operation) => {
                            let text = format!("{operation:?}");
                            text.split([' ', '(']).next().unwrap_or_default().to_owned()
                        }
                        Err(error) => format!("{:?} {error}", request.opcode()),
                    }
                }
            };
            said.push_str(&text);
            said.push(' ');
        }
        outcome(&said)
    }
}

/// One request of each kind and length, in hexadecimal, recorded by `record_requests`.
const RECORDED: &str = include_str!("../../corpus/fuse.hex");
