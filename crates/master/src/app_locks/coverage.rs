//! Which bytes requests cover, and whose they are.

use std::collections::BTreeMap;

use super::Holder;

/// Bytes that one or several cover.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// Pieces by where they begin; they do not overlap.
    pieces: BTreeMap<u64, Piece>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u64,
    /// `None` for several.
    owner: Option<Holder>,
}

impl Coverage {
    /// Whether anybody but `owner` covers a byte of a range.
    pub fn is_others(&self, owner: Holder, start: u64, end: u64) -> bool {
        let below = self.pieces.range(..end).rev();
        below.take_while(|(_, piece)| piece.end > start).any(|(_, piece)| piece.owner != Some(owner))
    }

    /// Adds a range.
    pub fn add(&mut self, owner: Holder, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        let mut at = start;
        let mut gaps = Vec::new();
        for (begin, piece) in self.pieces.range_mut(start..end) {
            if at < *begin {
                gaps.push((at, *begin));
            }
            if piece.owner != Some(owner) {
                piece.owner = None;
            }
            at = piece.end;
        }
        if at < end {
            gaps.push((at, end));
        }
        for (begin, end) in gaps {
            self.pieces.insert(begin, Piece { end, owner: Some(owner) });
        }
    }

    /// Has a piece begin at `at` where one covers it.
    fn split(&mut self, at: u64) {
        let Some((_, piece)) = self.pieces.range_mut(..at).next_back() else { return };
        if piece.end > at {
            let rest = *piece;
            piece.end = at;
            self.pieces.insert(at, rest);
        }
    }
}
