//! Lock modes.

use crate::codec::{CodecError, Decode, Decoder, Encode, Encoder};

/// Lock mode. The subset of the VMS and Linux lock managers' modes that Holdfast uses, and OP.
///
/// OP ("open here") is beside the order NL < PR < EX: it excludes nobody and nobody excludes it, so
/// it is kept apart from the token's mode and never appears in a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LockMode {
    /// Null: permits nothing.
    Nl = 0,
    /// Protected read: many readers, no writer.
    Pr = 1,
    /// Exclusive: beside it only NL.
    Ex = 2,
}

impl LockMode {
    /// Returns whether `self` and `other` may be granted on one resource at once. Symmetric.
    pub const fn is_compatible_with(self, other: Self) -> bool {
        COMPATIBLE[self as usize][other as usize]
    }

    /// Returns whether a holder of `self` may do what `needed` permits.
    pub const fn permits(self, needed: Self) -> bool {
        self as u8 >= needed as u8
    }

    /// The strongest mode that another may hold beside `self`.
    pub const fn strongest_beside(self) -> Self {
        match self {
            Self::Nl => Self::Ex,
            Self::Pr => Self::Pr,
            Self::Ex => Self::Nl,
        }
    }
}

/// Rows: granted mode. Columns: requested mode. Order: NL PR EX.
#[rustfmt::skip]
const COMPATIBLE: [[bool; 3]; 3] = {
    const Y: bool = true;
    const N: bool = false;
    [
        [Y, Y, Y], // NL
        [Y, Y, N], // PR
        [Y, N, N], // EX
    ]
};

impl Encode for LockMode {
    fn encode(&self, out: &mut Encoder) {
        out.u8(*self as u8);
    }
}

impl Decode for LockMode {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, CodecError> {
        match input.u8()? {
            0 => Ok(Self::Nl),
            1 => Ok(Self::Pr),
            2 => Ok(Self::Ex),
            tag => Err(CodecError::UnknownTag { what: "lock mode", tag }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LockMode::{Ex, Nl, Pr};

    #[test]
    fn compatibility_is_symmetric_and_matches_strongest_beside() {
        for a in [Nl, Pr, Ex] {
            for b in [Nl, Pr, Ex] {
                assert_eq!(a.is_compatible_with(b), b.is_compatible_with(a));
                assert_eq!(a.is_compatible_with(b), a.strongest_beside().permits(b));
            }
        }
    }
}
