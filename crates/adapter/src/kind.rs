//! Metric labels of the kernel's requests.

use fuse::Opcode;
use obs::FuseKind;

/// The label under which a request is counted.
pub const fn kind_of(opcode: Option<Opcode>) -> FuseKind {
    let Some(opcode) = opcode else { return FuseKind::Other };
    match opcode {
        Opcode::Lookup => FuseKind::Lookup,
        Opcode::Forget | Opcode::BatchForget => FuseKind::Forget,
        Opcode::Getattr => FuseKind::Getattr,
        Opcode::Setattr => FuseKind::Setattr,
        Opcode::Readlink => FuseKind::Readlink,
        Opcode::Symlink => FuseKind::Symlink,
        Opcode::Mknod => FuseKind::Mknod,
        Opcode::Mkdir => FuseKind::Mkdir,
        Opcode::Unlink => FuseKind::Unlink,
        Opcode::Rmdir => FuseKind::Rmdir,
        Opcode::Rename | Opcode::Rename2 => FuseKind::Rename,
        Opcode::Link => FuseKind::Link,
        Opcode::Open => FuseKind::Open,
        Opcode::Read => FuseKind::Read,
        Opcode::Write => FuseKind::Write,
        Opcode::Statfs => FuseKind::Statfs,
        Opcode::Release => FuseKind::Release,
        Opcode::Fsync => FuseKind::Fsync,
        Opcode::Setxattr => FuseKind::Setxattr,
        Opcode::Getxattr => FuseKind::Getxattr,
        Opcode::Listxattr => FuseKind::Listxattr,
        Opcode::Removexattr => FuseKind::Removexattr,
        Opcode::Flush => FuseKind::Flush,
        Opcode::Init => FuseKind::Init,
        Opcode::Opendir => FuseKind::Opendir,
        Opcode::Readdir => FuseKind::Readdir,
        Opcode::Readdirplus => FuseKind::Readdirplus,
        Opcode::Releasedir => FuseKind::Releasedir,
        Opcode::Fsyncdir => FuseKind::Fsyncdir,
        Opcode::Getlk => FuseKind::Getlk,
        Opcode::Setlk | Opcode::Setlkw => FuseKind::Setlk,
        Opcode::Access => FuseKind::Access,
        Opcode::Create => FuseKind::Create,
        Opcode::Tmpfile => FuseKind::Tmpfile,
        Opcode::Interrupt => FuseKind::Interrupt,
        Opcode::Ioctl => FuseKind::Ioctl,
        Opcode::Fallocate => FuseKind::Fallocate,
        Opcode::Lseek => FuseKind::Lseek,
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => FuseKind::Copyfilerange,
        Opcode::Statx => FuseKind::Statx,
        Opcode::Poll => FuseKind::Poll,
        Opcode::Destroy => FuseKind::Destroy,
        Opcode::Bmap
        | Opcode::NotifyReply
        | Opcode::SetupMapping
        | Opcode::RemoveMapping
        | Opcode::Syncfs => FuseKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that differ on purpose: two opcodes under one label, or one that metrics spell without underscores.
    const RENAMED: [(Opcode, FuseKind); 11] = [
        (Opcode::BatchForget, FuseKind::Forget),
        (Opcode::Rename2, FuseKind::Rename),
        (Opcode::Setlkw, FuseKind::Setlk),
        (Opcode::CopyFileRange, FuseKind::Copyfilerange),
        (Opcode::CopyFileRange64, FuseKind::Copyfilerange),
        (Opcode::Bmap, FuseKind::Other),
        (Opcode::NotifyReply, FuseKind::Other),
        (Opcode::SetupMapping, FuseKind::Other),
        (Opcode::RemoveMapping, FuseKind::Other),
        (Opcode::Syncfs, FuseKind::Other),
        (Opcode::Lookup, FuseKind::Lookup),
    ];

    #[test]
    fn labels_are_the_opcodes_names() {
        for opcode in Opcode::ALL {
            let renamed = RENAMED.iter().find(|(other, _)| *other == opcode);
            match renamed {
                Some((_, kind)) => assert_eq!(kind_of(Some(opcode)), *kind),
                None => assert_eq!(kind_of(Some(opcode)).name(), opcode.name()),
            }
        }
        assert_eq!(kind_of(None), FuseKind::Other);
    }
}
