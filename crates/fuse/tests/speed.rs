//! Round trips per second; run with `cargo test --release --test speed -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::mount_default;
use fuse::mount::{self, MountMethod, MountOptions, Unmount};
use fuse::{
    Attr, Config, Entry, Errno, Forget, Handler, OpenReplyFlags, Opened, Operation, Reply, Request, Session,
};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, mknodat, openat, unlinkat};

#[test]
#[ignore = "a measurement, not a check"]
fn round_trips() {
    let Some(mounted) = mount_default() else { return };
    mounted.fs.quiet.store(true, Ordering::Relaxed);
    mounted.fs.open_flags.store(OpenReplyFlags::DIRECT_IO.bits(), Ordering::Relaxed);
    fs::write(mounted.path("f"), vec![1; 4 << 20]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(mounted.path("f")).unwrap();
    let mut page = vec![0; 4096];
    report("direct 4 KiB read", 50_000, || file.read_exact_at(&mut page, 0).unwrap());
    let mut large = vec![0; 1 << 20];
    report("direct 1 MiB read", 500, || file.read_exact_at(&mut large, 0).unwrap());
    report("direct 1 MiB write", 500, || file.write_all_at(&large, 0).unwrap());
    report("create, close, unlink", 10_000, || {
        drop(fs::File::create(mounted.path("g")).unwrap());
        fs::remove_file(mounted.path("g")).unwrap();
    });
}

/// What names cost where nothing is done for them: a server that has nothing but answers, with the kernel judging access, beside the
/// file system of the directory for temporary files. No node on this transport does better.
#[test]
#[ignore = "a measurement, not a check"]
fn names_for_which_nothing_is_done() {
    const COUNT: u64 = 20_000;
    if !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: there is no /dev/fuse on this machine");
        return;
    }
    let local = std::env::temp_dir().join(format!("fuse-speed-{}", std::process::id()));
    let mounted = local.join("mounted");
    fs::create_dir_all(&mounted).unwrap();
    let options = MountOptions {
        subtype: "nothing".to_owned(),
        default_permissions: true,
        allow_other: true,
        method: MountMethod::Direct,
        ..MountOptions::default()
    };
    let (mount, device) = mount::mount(&mounted, &options).unwrap();
    let mut session = Session::start(device, &Config::default()).unwrap();
    let nothing = Arc::new(Nothing::default());
    let handler = Arc::clone(&nothing);
    let server = std::thread::spawn(move || session.run(&*handler));
    let each = |dir: &File, action: &dyn Fn(&File, &str)| {
        let (start, before) = (Instant::now(), nothing.requests.load(Ordering::Relaxed));
        (0..COUNT).for_each(|n| action(dir, &format!("n{n}")));
        let requests = nothing.requests.load(Ordering::Relaxed) - before;
        let nanos = start.elapsed().as_nanos() as u64 / COUNT;
        format!("{nanos} ns and {:.1} requests", requests as f64 / COUNT as f64)
    };
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    let (mut made, sides) = (Vec::new(), [("nothing done", &mounted), ("local", &local)]);
    for round in 0..5 {
        for (what, root) in sides {
            let dirs = ["made", "created", "unpacked"].map(|name| {
                let path = root.join(format!("{name}{round}"));
                fs::create_dir(&path).unwrap();
                File::open(&path).unwrap()
            });
            let make = each(&dirs[0], &|dir, name| {
                mknodat(dir, name, FileType::RegularFile, Mode::RUSR, 0).unwrap();
            });
            let create = each(&dirs[1], &|dir, name| drop(openat(dir, name, flags, Mode::RUSR).unwrap()));
            let unpack = each(&dirs[2], &|dir, name| unpack(dir, name));
            println!("{what}: mknod {make}; create and close {create}; as unpacked {unpack}");
            made.push((what, dirs));
        }
    }
    // Afterwards: ext4 looks twice at inodes that were freed some seconds ago.
    for (what, [dir, ..]) in &made {
        println!("{what}: unlink {}", each(dir, &|dir, name| unlinkat(dir, name, AtFlags::empty()).unwrap()));
    }
    drop(made);
    mount.unmount(Unmount::Lazy).unwrap();
    server.join().unwrap().unwrap();
    fs::remove_dir_all(&local).unwrap();
}

/// What tar(1) does for a file.
fn unpack(dir: &File, name: &str) {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    let file = File::from(openat(dir, name, flags, Mode::RUSR | Mode::WUSR).unwrap());
    for offset in [0, TAR_BLOCK as u64] {
        file.write_all_at(&[1; TAR_BLOCK], offset).unwrap();
    }
    let times = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        last_modification: rustix::fs::Timespec { tv_sec: 1_700_000_000, tv_nsec: 0 },
    };
    rustix::fs::futimens(&file, &times).unwrap();
    rustix::fs::fchown(&file, Some(rustix::fs::Uid::ROOT), Some(rustix::fs::Gid::ROOT)).unwrap();
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644)).unwrap();
}

/// What tar(1) writes at once.
const TAR_BLOCK: usize = 10_240;

/// Answers that every name can be made and removed, and keeps none.
#[derive(Default)]
struct Nothing {
    requests: AtomicU64,
}

impl Nothing {
    const TTL: Duration = Duration::from_secs(86_400);

    /// A new inode each time.
    fn entry(&self, mode: u32) -> Entry {
        let ino = self.requests.load(Ordering::Relaxed) + fuse::ROOT_ID;
        Entry {
            nodeid: ino,
            attr: attr_of(ino, mode),
            entry_ttl: Self::TTL,
            attr_ttl: Self::TTL,
            ..Entry::default()
        }
    }
}

fn attr_of(ino: u64, mode: u32) -> Attr {
    Attr { ino, mode, nlink: 1, blksize: 4096, ..Attr::default() }
}

impl Handler for Nothing {
    fn handle(&self, request: Request<'_>, reply: Reply) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let ino = request.header.nodeid;
        match request.operation() {
            Ok(Operation::Lookup { .. }) => reply.entry(&Entry::negative(Self::TTL)),
            // Directories are all that is asked for.
            Ok(Operation::Getattr { .. }) => reply.attr(&attr_of(ino, 0o040_755), Self::TTL),
            Ok(Operation::Setattr(_)) => reply.attr(&attr_of(ino, 0o100_644), Self::TTL),
            Ok(Operation::Write { data, .. }) => reply.written(data.len() as u32),
            Ok(Operation::Getxattr { .. }) => reply.error(Errno::NODATA),
            Ok(Operation::Mknod { mode, .. }) => reply.entry(&self.entry(mode)),
            Ok(Operation::Mkdir { mode, .. }) => reply.entry(&self.entry(0o040_000 | mode)),
            Ok(Operation::Create { mode, .. }) => {
                reply.created(&self.entry(0o100_000 | mode & 0o7777), Opened::default())
            }
            Ok(Operation::Opendir { .. } | Operation::Open { .. }) => reply.opened(Opened::default()),
            Ok(
                Operation::Unlink { .. }
                | Operation::Rmdir { .. }
                | Operation::Flush { .. }
                | Operation::Release { .. }
                | Operation::Releasedir { .. },
            ) => reply.ok(),
            Ok(_) => reply.error(Errno::NOSYS),
            Err(_) => reply.malformed(),
        };
    }

    fn interrupt(&self, _unique: u64) {}

    fn forget(&self, _forgets: &[Forget]) {}

    fn destroy(&self) {}
}

fn report(what: &str, count: usize, mut action: impl FnMut()) {
    let mut nanos: Vec<u128> = (0..count)
        .map(|_| {
            let start = Instant::now();
            action();
            start.elapsed().as_nanos()
        })
        .collect();
    nanos.sort_unstable();
    println!(
        "{what}: p50 {} ns, p99 {} ns, max {} ns",
        nanos[count / 2],
        nanos[count * 99 / 100],
        nanos[count - 1]
    );
}
