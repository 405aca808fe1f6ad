//! Request opcodes and their names.

/// `enum fuse_opcode`: what the kernel asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
#[expect(missing_docs, reason = "each variant is the kernel's name; the meaning is in `Operation`")]
pub enum Opcode {
    Lookup = 1,
    Forget = 2,
    Getattr = 3,
    Setattr = 4,
    Readlink = 5,
    Symlink = 6,
    Mknod = 8,
    Mkdir = 9,
    Unlink = 10,
    Rmdir = 11,
    Rename = 12,
    Link = 13,
    Open = 14,
    Read = 15,
    Write = 16,
    Statfs = 17,
    Release = 18,
    Fsync = 20,
    Setxattr = 21,
    Getxattr = 22,
    Listxattr = 23,
    Removexattr = 24,
    Flush = 25,
    Init = 26,
    Opendir = 27,
    Readdir = 28,
    Releasedir = 29,
    Fsyncdir = 30,
    Getlk = 31,
    Setlk = 32,
    Setlkw = 33,
    Access = 34,
    Create = 35,
    Interrupt = 36,
    Bmap = 37,
    Destroy = 38,
    Ioctl = 39,
    Poll = 40,
    NotifyReply = 41,
    BatchForget = 42,
    Fallocate = 43,
    Readdirplus = 44,
    Rename2 = 45,
    Lseek = 46,
    CopyFileRange = 47,
    SetupMapping = 48,
    RemoveMapping = 49,
    Syncfs = 50,
    Tmpfile = 51,
    Statx = 52,
    CopyFileRange64 = 53,
}

impl Opcode {
    /// Every opcode, in numeric order.
    #[rustfmt::skip]
    pub const ALL: [Self; 51] = [
        Self::Lookup, Self::Forget, Self::Getattr, Self::Setattr, Self::Readlink, Self::Symlink,
        Self::Mknod, Self::Mkdir, Self::Unlink, Self::Rmdir, Self::Rename, Self::Link, Self::Open,
        Self::Read, Self::Write, Self::Statfs, Self::Release, Self::Fsync, Self::Setxattr,
        Self::Getxattr, Self::Listxattr, Self::Removexattr, Self::Flush, Self::Init, Self::Opendir,
        Self::Readdir, Self::Releasedir, Self::Fsyncdir, Self::Getlk, Self::Setlk, Self::Setlkw,
        Self::Access, Self::Create, Self::Interrupt, Self::Bmap, Self::Destroy, Self::Ioctl,
        Self::Poll, Self::NotifyReply, Self::BatchForget, Self::Fallocate, Self::Readdirplus,
        Self::Rename2, Self::Lseek, Self::CopyFileRange, Self::SetupMapping, Self::RemoveMapping,
        Self::Syncfs, Self::Tmpfile, Self::Statx, Self::CopyFileRange64,
    ];

    /// Returns the opcode numbered `number`, or `None` if this crate does not know it.
    pub fn from_number(number: u32) -> Option<Self> {
        BY_NUMBER.get(number as usize).copied().flatten()
    }

    /// Returns the opcode's number on the wire.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Returns the lower-case name used in logs and metric labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Forget => "forget",
            Self::Getattr => "getattr",
            Self::Setattr => "setattr",
            Self::Readlink => "readlink",
            Self::Symlink => "symlink",
            Self::Mknod => "mknod",
            Self::Mkdir => "mkdir",
            Self::Unlink => "unlink",
            Self::Rmdir => "rmdir",
            Self::Rename => "rename",
            Self::Link => "link",
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Statfs => "statfs",
            Self::Release => "release",
            Self::Fsync => "fsync",
            Self::Setxattr => "setxattr",
            Self::Getxattr => "getxattr",
            Self::Listxattr => "listxattr",
            Self::Removexattr => "removexattr",
            Self::Flush => "flush",
            Self::Init => "init",
            Self::Opendir => "opendir",
            Self::Readdir => "readdir",
            Self::Releasedir => "releasedir",
            Self::Fsyncdir => "fsyncdir",
            Self::Getlk => "getlk",
            Self::Setlk => "setlk",
            Self::Setlkw => "setlkw",
            Self::Access => "access",
            Self::Create => "create",
            Self::Interrupt => "interrupt",
            Self::Bmap => "bmap",
            Self::Destroy => "destroy",
            Self::Ioctl => "ioctl",
            Self::Poll => "poll",
            Self::NotifyReply => "notify_reply",
            Self::BatchForget => "batch_forget",
            Self::Fallocate => "fallocate",
            Self::Readdirplus => "readdirplus",
            Self::Rename2 => "rename2",
            Self::Lseek => "lseek",
            Self::CopyFileRange => "copy_file_range",
            Self::SetupMapping => "setup_mapping",
            Self::RemoveMapping => "remove_mapping",
            Self::Syncfs => "syncfs",
            Self::Tmpfile => "tmpfile",
            Self::Statx => "statx",
            Self::CopyFileRange64 => "copy_file_range_64",
        }
    }
}

/// One more than the largest opcode number.
pub(crate) const OPCODE_NUMBER_END: usize = 54;

/// Opcodes by their number, so that decoding one is a single load.
static BY_NUMBER: [Option<Opcode>; OPCODE_NUMBER_END] = {
    let mut table = [None; OPCODE_NUMBER_END];
    let mut index = 0;
    while index < Opcode::ALL.len() {
        table[Opcode::ALL[index] as usize] = Some(Opcode::ALL[index]);
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_is_found_by_its_number_and_names_are_distinct() {
        for opcode in Opcode::ALL {
            assert_eq!(Opcode::from_number(opcode.number()), Some(opcode));
        }
        let mut names: Vec<_> = Opcode::ALL.iter().map(|opcode| opcode.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Opcode::ALL.len());
        for hole in [0, 7, 19, 54, 4096, u32::MAX] {
            assert_eq!(Opcode::from_number(hole), None);
        }
    }
}
