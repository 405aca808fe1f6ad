//! Has fjall write a journal that it found as it writes one that it began: from where the last batch ends, not behind the end of the file.
//!
//! fjall opens what it finds with O_APPEND. So no zeros could be written ahead in it (`ahead.rs`), and each sync of a small batch took twice
//! as long, until fjall began the next journal at 64 MB. After its first batch a descriptor stands where that ends, so without O_APPEND
//! the next goes to the same place. fjall does not give its descriptor away, but `/proc/self/fd` tells which it is.

use std::{
    fs,
    io::{self, ErrorKind},
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Takes O_APPEND from the one descriptor of this process that has `journal` open with it and stands at its end. To be called while fjall writes no
/// batch.
///
/// # Errors
///
/// Where there is no such descriptor, or several, or where the journal is so long that fjall may begin the next. Nothing is changed then.
pub(crate) fn stop_appending(journal: &Path) -> io::Result<()> {
    let journal = fs::canonicalize(journal)?;
    let len = fs::metadata(&journal)?.len();
    if len > LEN_MAX {
        return Err(io::Error::new(ErrorKind::FileTooLarge, "its descriptor may not stay open"));
    }
    let mut found = numbers()?.filter(|number| is_appending(*number, &journal, len));
    match (found.next(), found.next()) {
        (Some(number), None) => with_descriptor(number, |file| {
            let flags = fcntl_getfl(file)?;
            Ok(fcntl_setfl(file, flags.difference(OFlags::APPEND))?)
        }),
        (None, _) => Err(io::Error::new(ErrorKind::NotFound, "no descriptor stands at its end")),
        (Some(_), Some(_)) => {
            Err(io::Error::new(ErrorKind::ResourceBusy, "several descriptors stand at its end"))
        }
    }
}

/// Of all descriptors of this process.
fn numbers() -> io::Result<impl Iterator<Item = i32>> {
    let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    Ok(fs::read_dir("/proc/self/fd")?.filter_map(name))
}

fn is_appending(number: i32, journal: &Path, len: u64) -> bool {
    let is_journal = fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|to: PathBuf| to == journal);
    is_journal
        && place_and_flags(number)
            .is_some_and(|(place, flags)| place == len && flags.contains(OFlags::APPEND))
}

/// `/proc/self/fdinfo/N`: `pos:` in decimal digits, `flags:` in octal ones.
fn place_and_flags(number: i32) -> Option<(u64, OFlags)> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = u32::from_str_radix(of("flags:")?, 8).ok()?;
    Some((of("pos:")?.parse().ok()?, OFlags::from_bits_retain(flags)))
}

#[expect(unsafe_code, reason = "the descriptor belongs to fjall, which does not give it away")]
fn with_descriptor(number: i32, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
    // SAFETY: it is fjall's descriptor of the journal that it writes, which is open until fjall begins another. It does not meanwhile: that one is too short.
    call(unsafe { BorrowedFd::borrow_raw(number) })
}

/// fjall begins the next journal at 64 MB.
const LEN_MAX: u64 = 32 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::{fs::OpenOptions, io::Write};

    use super::*;

    #[test]
    fn the_one_that_stands_at_the_end_goes_on_from_there_and_no_other_is_touched() {
        let path = std::env::temp_dir().join(format!("kv-fjall-descriptor-{}", std::process::id()));
        let mut first = OpenOptions::new().append(true).create_new(true).open(&path).unwrap();
        first.write_all(b"claim").unwrap();
        let behind = OpenOptions::new().append(true).open(&path).unwrap();
        stop_appending(&path).unwrap();
        first.set_len(100).unwrap();
        first.write_all(b"batch").unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!((&bytes[..10], bytes.len()), (&b"claimbatch"[..], 100));
        assert!(fcntl_getfl(&behind).unwrap().contains(OFlags::APPEND));
        // Now none stands at the end, then two do.
        assert_eq!(stop_appending(&path).unwrap_err().kind(), ErrorKind::NotFound);
        let mut both = [(); 2].map(|()| OpenOptions::new().append(true).open(&path).unwrap());
        let copy = both[0].try_clone().unwrap();
        both[0].write_all(b"x").unwrap();
        assert_eq!(stop_appending(&path).unwrap_err().kind(), ErrorKind::ResourceBusy);
        assert!(fcntl_getfl(&copy).unwrap().contains(OFlags::APPEND));
        fs::remove_file(path).unwrap();
    }
}
