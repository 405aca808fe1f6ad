//! What a path stands on: its file system, the daemon that serves it, devices, peers and links.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use serde_json::{Value as Json, json};

use crate::bench::environment::FileSystem;
use crate::beneath::Place;
use crate::daemon::Daemon;
use crate::doctor::routes;
use crate::doctor::sockets::{self, Socket};
use crate::mounts;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ground {
    pub path: PathBuf,
    pub file_system: FileSystem,
    pub mount_point: PathBuf,
    /// Device number of the file system; of a FUSE one its connection is the second.
    pub number: (u32, u32),
    /// Of the devices beneath: `8:16` and `sdb`, the lowest last.
    pub devices: Vec<Device>,
    pub daemon: Option<Daemon>,
    /// Who is asked over the network.
    pub peers: BTreeSet<IpAddr>,
    /// Links that lead to them.
    pub links: BTreeSet<String>,
}

/// Ports of NFS; SMB; Lustre; Ceph's monitors and its other daemons; GlusterFS and its bricks; 9P.
const SERVED_AT: [RangeInclusive<u16>; 9] = [
    2049..=2049,
    445..=445,
    988..=988,
    3300..=3300,
    6789..=6789,
    6800..=7568,
    24007..=24008,
    49152..=49664,
    564..=564,
];

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub numbers: String,
    pub name: String,
}

impl Ground {
    /// Looks. What the kernel does not tell is left out.
    pub fn of(path: &Path) -> Self {
        let file_system = FileSystem::of(path);
        let number = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS)
            .map_or((0, 0), |found| (found.stx_dev_major, found.stx_dev_minor));
        let is_fuse = file_system.kind.starts_with("fuse") && file_system.kind != "fusectl";
        let daemon = if is_fuse { Daemon::of_connection(number.1) } else { None };
        let mut this = Self {
            path: path.to_owned(),
            mount_point: mount_point(path, number),
            number,
            devices: devices(path, &file_system.source),
            daemon,
            file_system,
            ..Self::default()
        };
        this.find_peers();
        this
    }

    /// What is known of a path without asking its file system, which may not answer.
    pub fn unasked(path: &Path) -> Self {
        let table = mounts::table();
        let (mount_point, number) = mount_above(&table, path).unwrap_or_default();
        let daemon = if number.0 == 0 { Daemon::of_connection(number.1) } else { None };
        let mount = mounts::find(&table, None, path, number);
        let file_system = mount.as_ref().map(FileSystem::of_mount).unwrap_or_default();
        Self { path: path.to_owned(), file_system, mount_point, number, daemon, ..Self::default() }
    }

    /// Whether this process is the daemon's, or a socket of it.
    pub fn is_own(&self, socket: &Socket, inodes: &BTreeSet<u64>) -> bool {
        match self.daemon {
            Some(_) => inodes.contains(&socket.inode),
            // The kernel's own sockets tell nothing of whose they are.
            None => self.peers.contains(&socket.peer) && self.is_served_at(socket.peer_port),
        }
    }

    /// Whether servers of this kind of file system, or this one as the mount's options tell, listen at a port.
    fn is_served_at(&self, port: u16) -> bool {
        let by_option =
            |option: &str| option.strip_prefix("port=").is_some_and(|told| told.parse() == Ok(port));
        self.file_system.options.split([',', ';']).any(by_option)
            || SERVED_AT.iter().any(|at| at.contains(&port))
    }

    /// Inodes of the daemon's sockets.
    pub fn socket_inodes(&self) -> BTreeSet<u64> {
        self.daemon.as_ref().map(Daemon::sockets).unwrap_or_default()
    }

    fn find_peers(&mut self) {
        let text = format!("{} {}", self.file_system.source, self.file_system.options);
        if !self.file_system.kind.starts_with("fuse") && self.devices.is_empty() {
            self.peers = addresses_in(&text);
        }
        let inodes = self.socket_inodes();
        if !inodes.is_empty() {
            let all = sockets::list().unwrap_or_default();
            let own = all.iter().filter(|socket| inodes.contains(&socket.inode) && socket.is_connected());
            self.peers.extend(own.map(|socket| socket.peer).filter(|peer| !peer.is_loopback()));
        }
        self.links = self.peers.iter().filter_map(|peer| routes::link_to(*peer)).collect();
    }

    /// For the report.
    pub fn to_json(&self) -> Json {
        json!({
            "path": self.path.to_string_lossy(),
            "mount_point": self.mount_point.to_string_lossy(),
            "file_system": self.file_system.to_json(),
            "devices": self.devices.iter().map(|device| &device.name).collect::<Vec<_>>(),
            "daemon": self.daemon.as_ref().map(|daemon| json!({ "pid": daemon.pid, "name": daemon.name })),
            "peers": self.peers.iter().map(IpAddr::to_string).collect::<Vec<_>>(),
            "links": self.links,
        })
    }
}

/// The uppermost directory above `path` that is of the same file system.
fn mount_point(path: &Path, number: (u32, u32)) -> PathBuf {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_same = |dir: &&Path| {
        let found = rustix::fs::statx(CWD, *dir, AtFlags::empty(), StatxFlags::BASIC_STATS);
        found.is_ok_and(|found| (found.stx_dev_major, found.stx_dev_minor) == number)
    };
    path.ancestors().take_while(is_same).last().unwrap_or(&path).to_owned()
}

/// The last mount above `path`, by its text: where, and its device number. proc(5): `ID PARENT MAJOR:MINOR ROOT AT OPTIONS ...`.
fn mount_above(table: &str, path: &Path) -> Option<(PathBuf, (u32, u32))> {
    let mount = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let (major, minor) = words.get(2)?.split_once(':')?;
        let at = PathBuf::from(*words.get(4)?);
        path.starts_with(&at).then_some((at, (major.parse().ok()?, minor.parse().ok()?)))
    };
    table.lines().filter_map(mount).max_by_key(|(at, _)| at.components().count())
}

/// Devices beneath `path`, or beneath the directory that its file system says it is kept in.
fn devices(path: &Path, source: &str) -> Vec<Device> {
    let mut names = Place::of(path).beneath;
    if names.is_empty() && source.starts_with('/') && Path::new(source).is_dir() {
        names = Place::of(Path::new(source)).beneath;
    }
    let numbers = names.iter().filter_map(|name| name.strip_prefix("block "));
    let device = |numbers: &str| {
        let dir = fs::canonicalize(format!("/sys/dev/block/{numbers}")).ok()?;
        Some(Device { numbers: numbers.to_owned(), name: dir.file_name()?.to_string_lossy().into_owned() })
    };
    numbers.filter_map(device).collect()
}

/// IP addresses among the words of a mount's source and options: `10.0.0.1:/export`, `addr=fe80::1`.
fn addresses_in(text: &str) -> BTreeSet<IpAddr> {
    let words = text.split([' ', ',', ';', '=', '/', '@', '[', ']']);
    let address = |word: &str| {
        let word = word.trim_end_matches(':');
        word.parse().ok().or_else(|| word.rsplit_once(':')?.0.parse().ok())
    };
    let routed = |address: &IpAddr| !address.is_unspecified() && !address.is_loopback();
    words.filter_map(address).filter(routed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_mount_options() {
        let found =
            addresses_in("10.1.2.3:/export rw,vers=4.2,clientaddr=0.0.0.0,addr=10.1.2.4;rw 127.0.0.1");
        let expected = ["10.1.2.3", "10.1.2.4"].map(|text| text.parse().unwrap());
        assert_eq!(found, BTreeSet::from(expected));
        let found = addresses_in("192.168.7.1:6789,[fd00::7]:6789:/ name=x");
        assert_eq!(found, BTreeSet::from(["192.168.7.1", "fd00::7"].map(|text| text.parse().unwrap())));
        assert!(addresses_in("/dev/sda1 rw,relatime tmpfs 8:1 1.2.3").is_empty());
    }

    #[test]
    fn a_mount_is_found_without_asking_it() {
        let table = "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 25 0:39 / /mnt/a rw - fuse.x x rw\n32 25 0:40 / /mnt/ab rw - fuse.x x rw\n";
        let found = |path: &str| mount_above(table, Path::new(path)).map(|(_, number)| number);
        assert_eq!(
            (found("/mnt/a/b"), found("/mnt"), found("/mnt/ab")),
            (Some((0, 39)), Some((8, 1)), Some((0, 40)))
        );
        assert_eq!(mount_above("", Path::new("/")), None);
    }

    #[test]
    fn a_path_has_a_mount_point_above_it() {
        let path = std::env::current_exe().unwrap();
        let ground = Ground::of(&path);
        assert!(path.starts_with(&ground.mount_point), "{ground:?}");
        assert!(!ground.file_system.kind.is_empty() && ground.daemon.is_none(), "{ground:?}");
    }
}
