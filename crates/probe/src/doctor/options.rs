//! Mount options that cost something, and who may not know.

use crate::bench::environment::FileSystem;
use crate::doctor::finding::{Finding, Layer, Severity};

/// Of a file system as it is mounted.
pub(crate) fn findings(file_system: &FileSystem) -> Vec<Finding> {
    let FileSystem { kind, options, .. } = file_system;
    let has = |wanted: &str| options.split([',', ';']).any(|option| option == wanted);
    let is_set = |row: &&Row| match row.option {
        // The kernel tells what it comes to, as it does for `noac`.
        "actimeo=0" => has("acdirmax=0") && !has("noac"),
        option => has(option),
    };
    let costly = TABLE.iter().filter(|row| row.kinds.is_empty() || row.kinds.contains(&kind.as_str()));
    let mut found: Vec<Finding> = costly.filter(is_set).map(Row::finding).collect();
    if found.is_empty() {
        found.push(Finding {
            layer: Layer::Configuration,
            severity: Severity::Info,
            what: "mount options".to_owned(),
            seen: options.clone(),
            expected: "none that makes each call wait".to_owned(),
            why: "none of them is known to cost much".to_owned(),
            next: String::new(),
        });
    }
    found
}

/// An option, on which file systems (all where none is named), and what it costs.
struct Row {
    option: &'static str,
    kinds: &'static [&'static str],
    severity: Severity,
    why: &'static str,
    next: &'static str,
}

impl Row {
    fn finding(&self) -> Finding {
        Finding {
            layer: Layer::Configuration,
            severity: self.severity,
            what: format!("mount option {}", self.option),
            seen: self.option.to_owned(),
            expected: "not set, unless somebody knows why".to_owned(),
            why: self.why.to_owned(),
            next: self.next.to_owned(),
        }
    }
}

const TABLE: &[Row] = &[
    Row {
        option: "sync",
        kinds: &[],
        severity: Severity::Warning,
        why: "each write waits until it is stored",
        next: "mount without sync; programs that need it say fsync(2) themselves",
    },
    Row {
        option: "dirsync",
        kinds: &[],
        severity: Severity::Warning,
        why: "each name that is made or removed waits until it is stored",
        next: "mount without dirsync",
    },
    Row {
        option: "noac",
        kinds: &["nfs", "nfs4"],
        severity: Severity::Warning,
        why: "attributes are never kept: each stat(2) is a round trip, and each write waits",
        next: "mount without noac; actimeo=N says for how long attributes are kept",
    },
    Row {
        option: "actimeo=0",
        kinds: &["nfs", "nfs4"],
        severity: Severity::Warning,
        why: "attributes are never kept: each stat(2) is a round trip",
        next: "leave actimeo out, or give it some seconds",
    },
    Row {
        option: "lookupcache=none",
        kinds: &["nfs", "nfs4"],
        severity: Severity::Warning,
        why: "names are never kept: each is asked for again each time",
        next: "leave lookupcache out",
    },
    Row {
        option: "strictatime",
        kinds: &[],
        severity: Severity::Info,
        why: "each read of a file changes its inode; on a cluster that may take a lock from others",
        next: "noatime or relatime, if nobody needs times of access",
    },
    Row {
        option: "data=journal",
        kinds: &["ext3", "ext4"],
        severity: Severity::Info,
        why: "all data is written twice",
        next: "data=ordered, the default",
    },
    Row {
        option: "discard",
        kinds: &["ext4", "xfs", "btrfs", "gfs2", "ocfs2"],
        severity: Severity::Info,
        why: "each removal tells the disk what is free; some disks are slow at that",
        next: "fstrim(8) once a week instead",
    },
    Row {
        option: "soft",
        kinds: &["nfs", "nfs4"],
        severity: Severity::Info,
        why: "writes are given up when the server does not answer in time",
        next: "hard, unless lost writes are acceptable",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costly_options_are_named_where_they_cost() {
        let of = |kind: &str, options: &str| {
            let file_system =
                FileSystem { kind: kind.to_owned(), options: options.to_owned(), ..FileSystem::default() };
            findings(&file_system).into_iter().map(|found| (found.what, found.severity)).collect::<Vec<_>>()
        };
        assert_eq!(of("ext4", "rw,sync;rw,noac"), [("mount option sync".to_owned(), Severity::Warning)]);
        assert_eq!(of("nfs4", "rw,noac;rw"), [("mount option noac".to_owned(), Severity::Warning)]);
        let times = "acregmin=0,acregmax=0,acdirmin=0,acdirmax=0";
        let warned = |option: &str| [(format!("mount option {option}"), Severity::Warning)];
        assert_eq!(of("nfs4", &format!("rw,{times};rw")), warned("actimeo=0"));
        assert_eq!(of("nfs4", &format!("rw,noac,{times};rw")), warned("noac"));
        assert_eq!(of("ext4", "rw,relatime;rw,async"), [("mount options".to_owned(), Severity::Info)]);
    }
}
