//! The header file of a volume.

use std::path::Path;

use testkit::fuzz::{Target, outcome};
use volume::VolumeId;

/// `holdfast.volume`.
pub struct Header;

impl Target for Header {
    fn name(&self) -> &'static str {
        "volume-header"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let header = volume::Header {
            id: VolumeId([7; 16]),
            cookie_key: [9; 16],
            created_secs: 1_700_000_000,
            segment_bytes: 64 << 20,
            inline_bytes: 4096,
            reserve_bytes: 4 << 20,
        };
        vec![header.encode().to_vec()]
    }

    fn repair(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        if len < 20 {
            return;
        }
        bytes[12..16].copy_from_slice(&(len as u32).to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..len - 4]);
        bytes[len - 4..].copy_from_slice(&crc.to_le_bytes());
    }

    fn run(&mut self, bytes: &[u8]) -> String {
        let path = Path::new("/volume");
        match volume::Header::decode(bytes, path) {
            Ok(header) => {
                let again = volume::Header::decode(&header.encode(), path);
                assert_eq!(
                    again.ok().as_ref(),
                    Some(&header),
                    "what was decoded says something else when it is encoded"
                );
                // What every user of a header relies on.
                assert!((1 << 20..=1 << 30).contains(&header.segment_bytes), "{header:?}");
                "header".to_owned()
            }
            Err(error) => outcome(&error.to_string()),
        }
    }
}
