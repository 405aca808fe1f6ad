//! Counts what came of operations.

use std::collections::BTreeMap;

use rustix::io::Errno;

/// By operation and errno; no errno is success.
#[derive(Default)]
pub struct Tally {
    counts: BTreeMap<&'static str, BTreeMap<Option<i32>, u64>>,
    /// Differences that are meant to be, by reason.
    excepted: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub fn count(&mut self, operation: &'static str, errno: Option<Errno>) {
        let of_operation = self.counts.entry(operation).or_default();
        *of_operation.entry(errno.map(Errno::raw_os_error)).or_default() += 1;
    }

    pub fn except(&mut self, reason: &'static str) {
        *self.excepted.entry(reason).or_default() += 1;
    }

    pub fn total(&self) -> u64 {
        self.counts.values().flat_map(BTreeMap::values).sum()
    }

    pub fn successes(&self) -> u64 {
        self.counts.values().filter_map(|counts| counts.get(&None)).sum()
    }

    pub fn print(&self) {
        for (operation, counts) in &self.counts {
            let mut line = format!("{operation:>18}: {} done", counts.get(&None).unwrap_or(&0));
            for (errno, count) in counts.iter().filter_map(|(errno, count)| Some(((*errno)?, count))) {
                line += &format!(", {} {count}", errno_name(Errno::from_raw_os_error(errno)));
            }
            println!("{line}");
        }
        for (reason, count) in &self.excepted {
            println!("excepted {count}: {reason}");
        }
        let (total, successes) = (self.total(), self.successes());
        println!("{total} operations, {successes} of them succeeded ({} %)", successes * 100 / total.max(1));
    }
}

pub fn errno_name(errno: Errno) -> String {
    let known = NAMES.iter().find(|(known, _)| *known == errno);
    known.map_or_else(|| format!("errno {}", errno.raw_os_error()), |(_, name)| (*name).to_owned())
}

const NAMES: &[(Errno, &str)] = &[
    (Errno::PERM, "EPERM"),
    (Errno::NOENT, "ENOENT"),
    (Errno::INTR, "EINTR"),
    (Errno::IO, "EIO"),
    (Errno::NXIO, "ENXIO"),
    (Errno::TOOBIG, "E2BIG"),
    (Errno::BADF, "EBADF"),
    (Errno::AGAIN, "EAGAIN"),
    (Errno::NOMEM, "ENOMEM"),
    (Errno::ACCESS, "EACCES"),
    (Errno::FAULT, "EFAULT"),
    (Errno::BUSY, "EBUSY"),
    (Errno::EXIST, "EEXIST"),
    (Errno::XDEV, "EXDEV"),
    (Errno::NODEV, "ENODEV"),
    (Errno::NOTDIR, "ENOTDIR"),
    (Errno::ISDIR, "EISDIR"),
    (Errno::INVAL, "EINVAL"),
    (Errno::TXTBSY, "ETXTBSY"),
    (Errno::FBIG, "EFBIG"),
    (Errno::NOSPC, "ENOSPC"),
    (Errno::SPIPE, "ESPIPE"),
    (Errno::MLINK, "EMLINK"),
    (Errno::RANGE, "ERANGE"),
    (Errno::NAMETOOLONG, "ENAMETOOLONG"),
    (Errno::NOSYS, "ENOSYS"),
    (Errno::NOTEMPTY, "ENOTEMPTY"),
    (Errno::LOOP, "ELOOP"),
    (Errno::NODATA, "ENODATA"),
    (Errno::OVERFLOW, "EOVERFLOW"),
    (Errno::OPNOTSUPP, "EOPNOTSUPP"),
    (Errno::STALE, "ESTALE"),
];
