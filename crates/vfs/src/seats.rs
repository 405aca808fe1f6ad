//! Removals and renames of directories go by what the kernel has under a name, which another node may have given to another directory.

use meta::ops::RenameMode;
use meta::{FsError, Op, OpReply};
use obs::OperationKind;
use types::{Ino, Name};

use crate::core::Core;
use crate::namespace::names_given;
use crate::request::{Reply, Request};
use crate::wait::{Progress, Step, Try};

impl Core {
    /// The directory that the kernel takes for removed or replaced when this is done, which it holds locked; 0 if there is none that is known. To be
    /// looked up before anything is waited for: others may look at the name meanwhile.
    pub(crate) fn meant_by(&mut self, request: &Request) -> Ino {
        let (parent, name) = match request {
            Request::Rmdir { parent, name, .. } => (*parent, name),
            Request::Rename { new_parent, new_name, mode: RenameMode::Replace, .. } => {
                (*new_parent, new_name)
            }
            _ => return Ino(0),
        };
        #[cfg(feature = "planted")]
        if types::planted::strikes(types::planted::Planted::AnyDirectoryRemoved) {
            return Ino(0);
        }
        Name::new(name).map_or(Ino(0), |name| self.known.take_meant(parent, &name))
    }

    /// Runs a removal or rename by which the kernel takes a directory for gone: if another node has moved that, and something else has its name, the
    /// kernel is to look there again, and then comes back.
    pub(crate) fn run_as_meant(
        &mut self,
        op: &Op,
        kind: OperationKind,
        progress: &mut Progress,
    ) -> Try<OpReply> {
        let done = self.run_op(op, kind, progress);
        if let Err(Step::Done(Reply::Error(FsError::Stale))) = &done
            && let Some((parent, name)) = name_vacated(op)
        {
            self.known.clear_seat(parent, name);
        }
        done
    }

    /// The kernel has the directories that were renamed where they are now, and none where one was replaced.
    pub(crate) fn note_seats(&mut self, op: &Op, reply: OpReply) {
        let (Op::Rename { parent, name, new_parent, new_name, .. }, OpReply::Renamed { ino, replaced }) =
            (op, reply)
        else {
            return;
        };
        let seats = [(*parent, name), (*new_parent, new_name)];
        let had = seats.map(|(parent, name)| self.known.seated(parent, name));
        for (parent, name) in seats {
            self.known.clear_seat(parent, name);
        }
        for (moved, (parent, name)) in [ino, replaced].into_iter().zip(names_given(op)) {
            // It had that under the old name, or was told of it under the new one since. What another node had moved there it has not moved.
            if had.contains(&Some(moved)) {
                self.known.move_seat(moved, parent, name);
            }
        }
    }
}

/// The name that an operation takes a directory from.
fn name_vacated(op: &Op) -> Option<(Ino, &Name)> {
    match op {
        Op::Rmdir { parent, name, .. } => Some((*parent, name)),
        Op::Rename { new_parent, new_name, .. } => Some((*new_parent, new_name)),
        _ => None,
    }
}
