//! Bytes of a file, holes left out.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes in pages that copies share until one of them is written to.
#[derive(Clone, Debug, Default)]
pub struct Sparse {
    pages: BTreeMap<u64, Arc<Page>>,
    len: u64,
}

impl Sparse {
    /// Reads all of a file.
    pub fn of(file: &File) -> io::Result<Self> {
        let mut bytes = Self { len: file.metadata()?.len(), ..Self::default() };
        let mut page = [0; PAGE];
        for index in 0..bytes.len.div_ceil(PAGE as u64) {
            let at = index * PAGE as u64;
            let here = (bytes.len - at).min(PAGE as u64) as usize;
            page[here..].fill(0);
            file.read_exact_at(&mut page[..here], at)?;
            if page != [0; PAGE] {
                bytes.pages.insert(index, Arc::new(page));
            }
        }
        Ok(bytes)
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Bytes that are no holes.
    pub fn stored_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE as u64
    }

    /// Reads at most `size` bytes from `offset` on.
    pub fn read(&self, offset: u64, size: usize) -> Vec<u8> {
        let size = self.len.saturating_sub(offset).min(size as u64) as usize;
        let mut bytes = vec![0; size];
        for (index, within, part) in pieces(offset, size) {
            if let Some(page) = self.pages.get(&index) {
                let piece = &page[within..within + part.len()];
                bytes[part].copy_from_slice(piece);
            }
        }
        bytes
    }

    /// Where the first hole from `offset` on begins; the end of the file is one. None beyond it.
    pub fn hole(&self, offset: u64) -> Option<u64> {
        let first = (offset < self.len).then_some(offset / PAGE as u64)?;
        let hole = (first..).find(|index| !self.pages.contains_key(index))?;
        Some((hole * PAGE as u64).clamp(offset, self.len))
    }

    /// Where the first bytes from `offset` on are that are no hole, if there are any.
    pub fn data(&self, offset: u64) -> Option<u64> {
        let (index, _) = self.pages.range(offset / PAGE as u64..).next()?;
        Some((index * PAGE as u64).max(offset)).filter(|data| *data < self.len)
    }

    /// Writes, beyond the end too.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (index, within, part) in pieces(offset, data.len()) {
            self.page_mut(index)[within..within + part.len()].copy_from_slice(&data[part]);
        }
        self.len = self.len.max(offset + data.len() as u64);
    }

    /// Makes a range read as zeros. The length stays.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = (offset + len).next_multiple_of(PAGE as u64) / PAGE as u64;
        let there: Vec<u64> = self.pages.range(offset / PAGE as u64..end).map(|(index, _)| *index).collect();
        for index in there {
            let at = index * PAGE as u64;
            let from = offset.saturating_sub(at).min(PAGE as u64) as usize;
            let to = (offset + len).saturating_sub(at).min(PAGE as u64) as usize;
            self.page_mut(index)[from..to].fill(0);
        }
    }

    /// Cuts, or grows by a hole.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.split_off(&len.div_ceil(PAGE as u64));
            self.zero(len, self.len - len);
        }
        self.len = len;
    }

    /// Takes over one sector of `other`, and grows to its end if need be.
    pub fn take_sector(&mut self, other: &Self, sector: u64) {
        self.len = self.len.max((sector + 1) * SECTOR);
        let (index, within) = (sector * SECTOR / PAGE as u64, (sector * SECTOR % PAGE as u64) as usize);
        let range = within..within + SECTOR as usize;
        match other.pages.get(&index) {
            Some(page) => self.page_mut(index)[range.clone()].copy_from_slice(&page[range]),
            None => self.zero(sector * SECTOR, SECTOR),
        }
    }

    /// Fills `file` with it, holes left out.
    pub fn store(&self, file: &File) -> io::Result<()> {
        file.set_len(self.len)?;
        for (index, page) in &self.pages {
            let at = index * PAGE as u64;
            let here = self.len.saturating_sub(at).min(PAGE as u64) as usize;
            file.write_all_at(&page[..here], at)?;
        }
        Ok(())
    }

    fn page_mut(&mut self, index: u64) -> &mut Page {
        Arc::make_mut(self.pages.entry(index).or_insert_with(|| Arc::new([0; PAGE])))
    }
}

type Page = [u8; PAGE];

/// Pages of a range: number, where in it, and which bytes of the range.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let part = (len - done).min(PAGE - within);
        let piece = (at / PAGE as u64, within, done..done + part);
        done += part;
        (part > 0).then_some(piece)
    })
}

const PAGE: usize = 4096;

/// What a disk writes whole.
pub const SECTOR: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_vector_of_bytes_with_holes() {
        let (mut sparse, mut plain) = (Sparse::default(), Vec::<u8>::new());
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..2_000u32 {
            let (offset, len) = (random.usize(0..20_000), random.usize(0..9_000));
            match random.u8(0..4) {
                0 => {
                    plain.resize(offset, 0);
                    sparse.set_len(offset as u64);
                }
                1 => {
                    let end = plain.len();
                    plain[offset.min(end)..(offset + len).min(end)].fill(0);
                    sparse.zero(offset as u64, len as u64);
                }
                _ => {
                    let data = vec![round as u8 | 1; len];
                    plain.resize(plain.len().max(offset + len), 0);
                    plain[offset..offset + len].copy_from_slice(&data);
                    sparse.write(offset as u64, &data);
                }
            }
            assert_eq!(sparse.read(0, usize::MAX), plain, "round {round}");
        }
    }

    #[test]
    fn holes_and_what_is_between_them_are_found() {
        let mut sparse = Sparse::default();
        sparse.write(5000, &[1; 100]);
        sparse.set_len(30_000);
        assert_eq!(
            [0, 4096, 4097, 8192, 29_999].map(|at| sparse.hole(at)),
            [0, 8192, 8192, 8192, 29_999].map(Some)
        );
        assert_eq!(
            [0, 4096, 8191, 8192].map(|at| sparse.data(at)),
            [Some(4096), Some(4096), Some(8191), None]
        );
        sparse.set_len(8000);
        assert_eq!([4096, 8000].map(|at| sparse.hole(at)), [Some(8000), None]);
    }
}
