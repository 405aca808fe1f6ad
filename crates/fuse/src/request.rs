//! One request as it lies in the read buffer.

use zerocopy::FromBytes;

use crate::abi::{self, InHeader, Opcode};
use crate::operation::{DecodeError, Operation};

/// A request, borrowed from the transport's buffer.
///
/// `arg` is the operation's fixed structure, `payload` what follows it (names, data). The two are
/// apart because io_uring delivers them apart; `/dev/fuse` delivers them in one piece.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Who asks, and for which inode.
    pub header: &'a InHeader,
    /// The fixed argument structure of the operation, possibly cut short by a broken peer.
    pub arg: &'a [u8],
    /// Names and data after the structure, without appended extensions.
    pub payload: &'a [u8],
}

impl<'a> Request<'a> {
    /// Splits `bytes`, one whole message read from `/dev/fuse`.
    ///
    /// `bytes` must be aligned to 8, as the session's buffer is.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Header`] if there is no readable header, [`DecodeError::Length`] if the
    /// header's length is not that of `bytes`.
    pub fn from_message(bytes: &'a [u8], dialect: Dialect) -> Result<Self, DecodeError> {
        let (header, body) = InHeader::ref_from_prefix(bytes).map_err(|_| DecodeError::Header)?;
        if header.len as usize != bytes.len() {
            return Err(DecodeError::Length { declared: header.len, len: bytes.len() });
        }
        let extension_len = usize::from(header.total_extlen) * 8;
        let Some(body_len) = body.len().checked_sub(extension_len) else {
            return Err(DecodeError::Length { declared: header.len, len: bytes.len() });
        };
        let body = &body[..body_len];
        let arg_len = Opcode::from_number(header.opcode).map_or(0, |opcode| dialect.arg_len(opcode));
        let (arg, payload) = body.split_at(arg_len.min(body.len()));
        Ok(Self { header, arg, payload })
    }

    /// Takes apart what lies in a ring entry: the argument structure at the beginning of `op_in`, which the kernel leaves as it was
    /// for operations that have none, and `payload`.
    pub(crate) fn from_parts(
        header: &'a InHeader,
        op_in: &'a [u8],
        payload: &'a [u8],
        dialect: Dialect,
    ) -> Result<Self, DecodeError> {
        let len = size_of::<InHeader>() + payload.len();
        let contradiction = DecodeError::Length { declared: header.len, len };
        let sent_len = (header.len as usize).checked_sub(len).ok_or(contradiction)?;
        let extension_len = usize::from(header.total_extlen) * 8;
        let body_len = payload.len().checked_sub(extension_len).ok_or(contradiction)?;
        let arg_len = Opcode::from_number(header.opcode).map_or(0, |opcode| dialect.arg_len(opcode));
        let arg = op_in.get(..arg_len.min(sent_len)).ok_or(contradiction)?;
        Ok(Self { header, arg, payload: &payload[..body_len] })
    }

    /// Returns the opcode, or `None` for one this crate does not know.
    pub fn opcode(&self) -> Option<Opcode> {
        Opcode::from_number(self.header.opcode)
    }

    /// Decodes the arguments.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the message is cut short or contradicts itself; answer
    /// [`Reply::malformed`](crate::Reply::malformed).
    pub fn operation(&self) -> Result<Operation<'a>, DecodeError> {
        Operation::decode(self)
    }
}

/// What INIT settled about the layout of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// SETXATTR has the longer structure.
    pub setxattr_ext: bool,
}

impl Dialect {
    /// Returns the length of the fixed structure of `opcode`, 0 if it has none.
    fn arg_len(self, opcode: Opcode) -> usize {
        match opcode {
            Opcode::Lookup
            | Opcode::Readlink
            | Opcode::Symlink
            | Opcode::Unlink
            | Opcode::Rmdir
            | Opcode::Statfs
            | Opcode::Removexattr
            | Opcode::Destroy
            | Opcode::Init
            | Opcode::NotifyReply
            | Opcode::SetupMapping
            | Opcode::RemoveMapping => 0,
            Opcode::Forget => size_of::<abi::ForgetIn>(),
            Opcode::Getattr => size_of::<abi::GetattrIn>(),
            Opcode::Setattr => size_of::<abi::SetattrIn>(),
            Opcode::Mknod => size_of::<abi::MknodIn>(),
            Opcode::Mkdir => size_of::<abi::MkdirIn>(),
            Opcode::Rename => size_of::<abi::RenameIn>(),
            Opcode::Link => size_of::<abi::LinkIn>(),
            Opcode::Open | Opcode::Opendir => size_of::<abi::OpenIn>(),
            Opcode::Read | Opcode::Readdir | Opcode::Readdirplus => size_of::<abi::ReadIn>(),
            Opcode::Write => size_of::<abi::WriteIn>(),
            Opcode::Release | Opcode::Releasedir => size_of::<abi::ReleaseIn>(),
            Opcode::Fsync | Opcode::Fsyncdir => size_of::<abi::FsyncIn>(),
            Opcode::Setxattr if self.setxattr_ext => size_of::<abi::SetxattrExtIn>(),
            Opcode::Setxattr => size_of::<abi::SetxattrIn>(),
            Opcode::Getxattr | Opcode::Listxattr => size_of::<abi::GetxattrIn>(),
            Opcode::Flush => size_of::<abi::FlushIn>(),
            Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw => size_of::<abi::LkIn>(),
            Opcode::Access => size_of::<abi::AccessIn>(),
            Opcode::Create | Opcode::Tmpfile => size_of::<abi::CreateIn>(),
            Opcode::Interrupt => size_of::<abi::InterruptIn>(),
            Opcode::Bmap => size_of::<abi::BmapIn>(),
            Opcode::Ioctl => size_of::<abi::IoctlIn>(),
            Opcode::Poll => size_of::<abi::PollIn>(),
            Opcode::BatchForget => size_of::<abi::BatchForgetIn>(),
            Opcode::Fallocate => size_of::<abi::FallocateIn>(),
            Opcode::Rename2 => size_of::<abi::Rename2In>(),
            Opcode::Lseek => size_of::<abi::LseekIn>(),
            Opcode::CopyFileRange | Opcode::CopyFileRange64 => size_of::<abi::CopyFileRangeIn>(),
            Opcode::Syncfs => size_of::<abi::SyncfsIn>(),
            Opcode::Statx => size_of::<abi::StatxIn>(),
        }
    }
}
