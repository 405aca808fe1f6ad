//! Steps of cases: one system call each, or one look at what there is.

use std::fmt::Write;
use std::time::Duration;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Stat, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::place::{Place, become_user};
use crate::raw;

type Answer = Result<String, Errno>;

/// Does one step and says what it answered: `ok`, the name of an error, or what was asked for.
pub fn run(place: &mut Place, words: &[String]) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let found = match words[..] {
        ["as", uid] => become_whom(uid),
        ["umask", mode] => {
            rustix::process::umask(octal(mode));
            done(())
        }
        ["nap"] => {
            std::thread::sleep(NAP);
            done(())
        }
        [verb, ref rest @ ..] => names(place, verb, rest)
            .or_else(|| attributes(place, verb, rest))
            .or_else(|| contents(place, verb, rest))
            .or_else(|| held(place, verb, rest))
            .unwrap_or_else(|| panic!("no step is {words:?}")),
        [] => panic!("an empty step"),
    };
    place.turn();
    match found {
        Ok(text) => text,
        Err(errno) => name_of(errno),
    }
}

fn become_whom(whom: &str) -> Answer {
    let mut numbers = whom.split([':', '+']).map(number::<u32>);
    let uid = numbers.next().unwrap_or(0);
    let gid = numbers.next().unwrap_or(uid);
    become_user(uid, gid, &numbers.collect::<Vec<_>>());
    done(())
}

/// Calls on names.
fn names(place: &mut Place, verb: &str, words: &[&str]) -> Option<Answer> {
    let dir = place.dir();
    Some(match (verb, words) {
        ("mkdir", [path, mode]) => rustix::fs::mkdirat(dir, path_of(path), octal(mode)).and_then(done),
        ("rmdir", [path]) => rustix::fs::unlinkat(dir, path_of(path), AtFlags::REMOVEDIR).and_then(done),
        ("unlink", [path]) => rustix::fs::unlinkat(dir, path_of(path), AtFlags::empty()).and_then(done),
        ("make", [kind, path]) => make(place, kind, path, 0o755),
        ("make", [kind, path, mode]) => make(place, kind, path, octal(mode).as_raw_mode()),
        ("symlink", [target, path]) => {
            rustix::fs::symlinkat(path_of(target), dir, path_of(path)).and_then(done)
        }
        ("readlink", [path]) => {
            let target = rustix::fs::readlinkat(dir, path_of(path), Vec::new());
            target.map(|target| String::from_utf8_lossy(target.as_bytes()).into_owned())
        }
        ("link", [old, new]) => {
            rustix::fs::linkat(dir, path_of(old), dir, path_of(new), AtFlags::empty()).and_then(done)
        }
        ("linkfollow", [old, new]) => {
            rustix::fs::linkat(dir, path_of(old), dir, path_of(new), AtFlags::SYMLINK_FOLLOW).and_then(done)
        }
        ("rename", [old, new]) => rename(place, old, new, RenameFlags::empty()),
        ("noreplace", [old, new]) => rename(place, old, new, RenameFlags::NOREPLACE),
        ("exchange", [old, new]) => rename(place, old, new, RenameFlags::EXCHANGE),
        ("both", [old, new]) => rename(place, old, new, RenameFlags::NOREPLACE | RenameFlags::EXCHANGE),
        ("names", [path]) => list(place, path),
        ("same", [one, other]) => (|| {
            let follow = AtFlags::SYMLINK_NOFOLLOW;
            let one = rustix::fs::statat(dir, path_of(one), follow)?;
            let other = rustix::fs::statat(dir, path_of(other), follow)?;
            Ok(if one.st_ino == other.st_ino { "same" } else { "other" }.to_owned())
        })(),
        _ => return None,
    })
}

fn make(place: &Place, kind: &str, path: &str, mode: u32) -> Answer {
    let (dir, name, mode) = (place.dir(), path_of(path), Mode::from_raw_mode(mode));
    let node = |kind, device| rustix::fs::mknodat(dir, name, kind, mode, device);
    match kind {
        "file" => {
            rustix::fs::openat(dir, name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, mode).map(drop)
        }
        "plain" => node(FileType::RegularFile, 0),
        "dir" => rustix::fs::mkdirat(dir, name, mode),
        "link" => rustix::fs::symlinkat("nowhere", dir, name),
        "fifo" => node(FileType::Fifo, 0),
        "sock" => node(FileType::Socket, 0),
        "chr" => node(FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        "blk" => node(FileType::BlockDevice, rustix::fs::makedev(42, 7)),
        _ => panic!("nothing is a {kind}"),
    }
    .and_then(done)
}

fn rename(place: &Place, old: &str, new: &str, flags: RenameFlags) -> Answer {
    let dir = place.dir();
    let result = match flags.is_empty() {
        true => rustix::fs::renameat(dir, path_of(old), dir, path_of(new)),
        false => rustix::fs::renameat_with(dir, path_of(old), dir, path_of(new), flags),
    };
    result.and_then(done)
}

fn list(place: &Place, path: &str) -> Answer {
    let dir = rustix::fs::openat(place.dir(), path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names.sort();
    Ok(if names.is_empty() { "nothing".to_owned() } else { names.join(",") })
}

/// Calls on attributes.
fn attributes(place: &mut Place, verb: &str, words: &[&str]) -> Option<Answer> {
    let (dir, no_follow) = (place.dir(), AtFlags::SYMLINK_NOFOLLOW);
    Some(match (verb, words) {
        ("stat", [path, field]) => {
            rustix::fs::statat(dir, path_of(path), AtFlags::empty()).map(|stat| field_of(&stat, field))
        }
        ("lstat", [path, field]) => {
            rustix::fs::statat(dir, path_of(path), no_follow).map(|stat| field_of(&stat, field))
        }
        ("chmod", [path, mode]) => {
            rustix::fs::chmodat(dir, path_of(path), octal(mode), AtFlags::empty()).and_then(done)
        }
        ("chown", [path, uid, gid]) => rustix::fs::chownat(
            dir,
            path_of(path),
            id(uid).map(Uid::from_raw),
            id(gid).map(Gid::from_raw),
            AtFlags::empty(),
        )
        .and_then(done),
        ("lchown", [path, uid, gid]) => rustix::fs::chownat(
            dir,
            path_of(path),
            id(uid).map(Uid::from_raw),
            id(gid).map(Gid::from_raw),
            no_follow,
        )
        .and_then(done),
        ("access", [path, how]) => {
            rustix::fs::accessat(dir, path_of(path), access_of(how), AtFlags::EACCESS).and_then(done)
        }
        ("utimes", [path, atime, mtime]) => {
            let times = Timestamps { last_access: time_of(atime), last_modification: time_of(mtime) };
            rustix::fs::utimensat(dir, path_of(path), &times, AtFlags::empty()).and_then(done)
        }
        ("lutimes", [path, atime, mtime]) => {
            let times = Timestamps { last_access: time_of(atime), last_modification: time_of(mtime) };
            rustix::fs::utimensat(dir, path_of(path), &times, no_follow).and_then(done)
        }
        ("mark", [path]) => rustix::fs::statat(dir, path_of(path), no_follow).map(|stat| {
            place.marks.insert((*path).to_owned(), times_of(&stat));
            std::thread::sleep(NAP);
            OK.to_owned()
        }),
        // Which times have changed since the mark: `a`, `m` and `c`.
        ("moved", [path]) => rustix::fs::statat(dir, path_of(path), no_follow).map(|stat| {
            let before = place.marks.get(*path).unwrap_or_else(|| panic!("{path} has no mark"));
            let now = times_of(&stat);
            let changed = (0..3).filter(|at| now[*at] != before[*at]).map(|at| ["a", "m", "c"][at]);
            let names: String = changed.collect();
            if names.is_empty() { "none".to_owned() } else { names }
        }),
        ("setx", [path, name, value]) => set_xattr(place, path, name, value, XattrFlags::empty()),
        ("createx", [path, name, value]) => set_xattr(place, path, name, value, XattrFlags::CREATE),
        ("replacex", [path, name, value]) => set_xattr(place, path, name, value, XattrFlags::REPLACE),
        ("getx", [path, name]) => {
            let mut value = vec![0; 65536];
            rustix::fs::lgetxattr(place.path(path), *name, &mut value[..])
                .map(|len| String::from_utf8_lossy(&value[..len]).into_owned())
        }
        ("lenx", [path, name]) => {
            let mut value = vec![0; 1 << 17];
            rustix::fs::lgetxattr(place.path(path), *name, &mut value[..]).map(|len| len.to_string())
        }
        ("rmx", [path, name]) => rustix::fs::lremovexattr(place.path(path), *name).and_then(done),
        ("listx", [path]) => list_xattrs(place, path),
        _ => return None,
    })
}

/// A value `*N` is one of N bytes.
fn set_xattr(place: &Place, path: &str, name: &str, value: &str, flags: XattrFlags) -> Answer {
    let value = match value.strip_prefix('*') {
        Some(count) => "v".repeat(number(count)),
        None => value.to_owned(),
    };
    rustix::fs::lsetxattr(place.path(path), name, value.as_bytes(), flags).and_then(done)
}

fn list_xattrs(place: &Place, path: &str) -> Answer {
    let mut list = vec![0u8; 65536];
    let len = rustix::fs::llistxattr(place.path(path), &mut list[..])?;
    let names = list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<_> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.sort();
    Ok(if names.is_empty() { "nothing".to_owned() } else { names.join(",") })
}

/// Calls on contents, by name.
fn contents(place: &mut Place, verb: &str, words: &[&str]) -> Option<Answer> {
    Some(match (verb, words) {
        ("open", [path, flags]) => open(place, path, flags, 0o644).map(drop).and_then(done),
        ("open", [path, flags, mode]) => {
            open(place, path, flags, octal(mode).as_raw_mode()).map(drop).and_then(done)
        }
        ("write", [path, text]) => {
            open(place, path, "w", 0).and_then(|file| rustix::io::write(&file, text.as_bytes())).map(said)
        }
        ("append", [path, text]) => open(place, path, "w,append", 0)
            .and_then(|file| rustix::io::write(&file, text.as_bytes()))
            .map(said),
        ("read", [path]) => open(place, path, "r", 0).and_then(|file| read(&file, 1 << 16)),
        ("truncate", [path, len]) => raw::truncate(&place.path(path_of(path)), number(len)).and_then(done),
        _ => return None,
    })
}

/// Calls on open files.
fn held(place: &mut Place, verb: &str, words: &[&str]) -> Option<Answer> {
    if let ("hold", [name, path, flags, rest @ ..]) = (verb, words) {
        let mode = rest.first().map_or(0o644, |mode| octal(mode).as_raw_mode());
        return Some(open(place, path, flags, mode).and_then(|file| {
            place.hold(name, file);
            done(())
        }));
    }
    if !verb.starts_with('f') && verb != "drop" {
        return None;
    }
    let (name, words) = words.split_first()?;
    if verb == "drop" {
        return Some(place.held.remove(*name).ok_or(Errno::BADF).and_then(|_| done(())));
    }
    let (file, turn) = place.held.get(*name).unwrap_or_else(|| panic!("{name} is not open"));
    Some(match (verb, words) {
        ("fwrite", [text]) => rustix::io::write(file, text.as_bytes()).map(said),
        ("fwriteat", [offset, text]) => rustix::io::pwrite(file, text.as_bytes(), number(offset)).map(said),
        ("fread", [len]) => read(file, number(len)),
        ("freadat", [offset, len]) => {
            let mut bytes = vec![0; number(len)];
            rustix::io::pread(file, &mut bytes[..], number(offset)).map(|count| show(&bytes[..count]))
        }
        ("fstat", [field]) => rustix::fs::fstat(file).map(|stat| field_of(&stat, field)),
        ("fchmod", [mode]) => rustix::fs::fchmod(file, octal(mode)).and_then(done),
        ("fchown", [uid, gid]) => {
            rustix::fs::fchown(file, id(uid).map(Uid::from_raw), id(gid).map(Gid::from_raw)).and_then(done)
        }
        ("ftruncate", [len]) => rustix::fs::ftruncate(file, number::<i64>(len) as u64).and_then(done),
        ("fsync", []) => rustix::fs::fsync(file).and_then(done),
        ("fdatasync", []) => rustix::fs::fdatasync(file).and_then(done),
        ("futimes", [atime, mtime]) => {
            let times = Timestamps { last_access: time_of(atime), last_modification: time_of(mtime) };
            rustix::fs::futimens(file, &times).and_then(done)
        }
        ("fseek", [whence, offset]) => {
            let position = match *whence {
                "set" => SeekFrom::Start(number(offset)),
                "end" => SeekFrom::End(number(offset)),
                "data" => SeekFrom::Data(number(offset)),
                "hole" => SeekFrom::Hole(number(offset)),
                _ => panic!("no place to seek from is {whence}"),
            };
            rustix::fs::seek(file, position).map(|at| at.to_string())
        }
        ("fallocate", [how, offset, len]) => {
            let mode = match *how {
                "grow" => FallocateFlags::empty(),
                "keep" => FallocateFlags::KEEP_SIZE,
                "punch" => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                "zero" => FallocateFlags::ZERO_RANGE,
                _ => panic!("no way to allocate is {how}"),
            };
            rustix::fs::fallocate(file, mode, number(offset), number(len)).and_then(done)
        }
        // Gives a file without a name one.
        ("flink", [path]) => {
            let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
            rustix::fs::linkat(CWD, own, place.dir_at(*turn), *path, AtFlags::SYMLINK_FOLLOW).and_then(done)
        }
        ("fcopy", [to, offset, len]) => {
            let (to, _) = place.held.get(*to).unwrap_or_else(|| panic!("{to} is not open"));
            let mut from = number(offset);
            rustix::fs::copy_file_range(file, Some(&mut from), to, None, number(len)).map(said)
        }
        _ => return None,
    })
}

fn open(place: &Place, path: &str, flags: &str, mode: u32) -> Result<OwnedFd, Errno> {
    let mut all = OFlags::CLOEXEC | OFlags::NONBLOCK;
    for flag in flags.split(',') {
        all |= match flag {
            "r" => OFlags::RDONLY,
            "w" => OFlags::WRONLY,
            "rw" => OFlags::RDWR,
            "creat" => OFlags::CREATE,
            "excl" => OFlags::EXCL,
            "trunc" => OFlags::TRUNC,
            "append" => OFlags::APPEND,
            "dir" => OFlags::DIRECTORY,
            "nofollow" => OFlags::NOFOLLOW,
            "path" => OFlags::PATH,
            "tmpfile" => OFlags::TMPFILE,
            "direct" => OFlags::DIRECT,
            "noatime" => OFlags::NOATIME,
            "sync" => OFlags::SYNC,
            "dsync" => OFlags::DSYNC,
            _ => panic!("no flag of open is {flag}"),
        };
    }
    rustix::fs::openat(place.dir(), path_of(path), all, Mode::from_raw_mode(mode))
}

fn read(file: impl AsFd, len: usize) -> Answer {
    let mut bytes = vec![0; len];
    let count = rustix::io::read(file, &mut bytes[..])?;
    Ok(show(&bytes[..count]))
}

/// Bytes as text: zeros are dots, nothing is `nothing`, and much is a count.
fn show(bytes: &[u8]) -> String {
    match bytes.len() {
        0 => "nothing".to_owned(),
        1..=64 => bytes.iter().map(|byte| if *byte == 0 { '.' } else { char::from(*byte) }).collect(),
        len => format!("{len} bytes"),
    }
}

fn field_of(stat: &Stat, field: &str) -> String {
    let time = |secs: i64, nanos: u64| match nanos {
        0 => secs.to_string(),
        nanos => format!("{secs}.{nanos:09}"),
    };
    match field {
        "type" => match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => "file",
            FileType::Directory => "dir",
            FileType::Symlink => "link",
            FileType::Fifo => "fifo",
            FileType::Socket => "sock",
            FileType::CharacterDevice => "chr",
            FileType::BlockDevice => "blk",
            FileType::Unknown => "unknown",
        }
        .to_owned(),
        "mode" => format!("{:o}", stat.st_mode & 0o7777),
        "nlink" => stat.st_nlink.to_string(),
        "uid" => stat.st_uid.to_string(),
        "gid" => stat.st_gid.to_string(),
        "size" => stat.st_size.to_string(),
        "rdev" => format!("{}:{}", rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)),
        "atime" => time(stat.st_atime, stat.st_atime_nsec as u64),
        "mtime" => time(stat.st_mtime, stat.st_mtime_nsec as u64),
        _ => panic!("no field is {field}"),
    }
}

fn times_of(stat: &Stat) -> [Timespec; 3] {
    let time = |tv_sec, nanos: u64| Timespec { tv_sec, tv_nsec: nanos as i64 };
    [
        time(stat.st_atime, stat.st_atime_nsec as u64),
        time(stat.st_mtime, stat.st_mtime_nsec as u64),
        time(stat.st_ctime, stat.st_ctime_nsec as u64),
    ]
}

fn time_of(word: &str) -> Timespec {
    match word {
        "now" => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        "omit" => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        _ => {
            let (secs, nanos) = word.split_once('.').unwrap_or((word, "0"));
            Timespec { tv_sec: number(secs), tv_nsec: number(nanos) }
        }
    }
}

fn access_of(how: &str) -> Access {
    how.chars().fold(Access::EXISTS, |access, letter| match letter {
        'r' => access | Access::READ_OK,
        'w' => access | Access::WRITE_OK,
        'x' => access | Access::EXEC_OK,
        'f' => access,
        _ => panic!("no access is {letter}"),
    })
}

/// `''` is the empty path.
fn path_of(word: &str) -> &str {
    if word == "''" { "" } else { word }
}

fn octal(word: &str) -> Mode {
    let raw = u32::from_str_radix(word, 8).unwrap_or_else(|_| panic!("no mode is {word}"));
    Mode::from_raw_mode(raw)
}

/// `-` is no number.
fn id(word: &str) -> Option<u32> {
    (word != "-").then(|| number(word))
}

fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("no number is {word}"))
}

fn done((): ()) -> Answer {
    Ok(OK.to_owned())
}

fn said(count: usize) -> String {
    count.to_string()
}

fn name_of(errno: Errno) -> String {
    let name = ERRORS.iter().find(|(one, _)| *one == errno).map(|(_, name)| (*name).to_owned());
    name.unwrap_or_else(|| {
        let mut text = String::new();
        let _ = write!(text, "{errno:?}");
        text
    })
}

const OK: &str = "ok";
/// Longer than what times are counted in.
const NAP: Duration = Duration::from_millis(6);

const ERRORS: [(Errno, &str); 31] = [
    (Errno::ACCESS, "EACCES"),
    (Errno::AGAIN, "EAGAIN"),
    (Errno::BADF, "EBADF"),
    (Errno::BUSY, "EBUSY"),
    (Errno::DQUOT, "EDQUOT"),
    (Errno::EXIST, "EEXIST"),
    (Errno::FAULT, "EFAULT"),
    (Errno::FBIG, "EFBIG"),
    (Errno::INVAL, "EINVAL"),
    (Errno::IO, "EIO"),
    (Errno::ISDIR, "EISDIR"),
    (Errno::LOOP, "ELOOP"),
    (Errno::MLINK, "EMLINK"),
    (Errno::NAMETOOLONG, "ENAMETOOLONG"),
    (Errno::NODATA, "ENODATA"),
    (Errno::NODEV, "ENODEV"),
    (Errno::NOENT, "ENOENT"),
    (Errno::NOSPC, "ENOSPC"),
    (Errno::NOSYS, "ENOSYS"),
    (Errno::NOTDIR, "ENOTDIR"),
    (Errno::NOTEMPTY, "ENOTEMPTY"),
    (Errno::NXIO, "ENXIO"),
    (Errno::OPNOTSUPP, "EOPNOTSUPP"),
    (Errno::PERM, "EPERM"),
    (Errno::RANGE, "ERANGE"),
    (Errno::ROFS, "EROFS"),
    (Errno::SPIPE, "ESPIPE"),
    (Errno::STALE, "ESTALE"),
    (Errno::TOOBIG, "E2BIG"),
    (Errno::TXTBSY, "ETXTBSY"),
    (Errno::XDEV, "EXDEV"),
];
