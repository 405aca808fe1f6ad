//! Mutations.

/// Draws mutations from a seed.
pub struct Mutator {
    rng: fastrand::Rng,
}

impl Mutator {
    /// The same seed gives the same mutations.
    pub fn new(seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed) }
    }

    /// An input made of one or two of `corpus`, at most `len_max` bytes.
    ///
    /// # Panics
    ///
    /// If the corpus is empty.
    pub fn input(&mut self, corpus: &[Vec<u8>], len_max: usize) -> Vec<u8> {
        let mut bytes = corpus[self.rng.usize(0..corpus.len())].clone();
        // Mostly few: what is changed in many places is refused at the first of them.
        let count = 1 << self.rng.u32(0..5);
        for _ in 0..self.rng.u32(1..=count) {
            self.mutate(&mut bytes, corpus);
        }
        bytes.truncate(len_max);
        bytes
    }

    /// Whether the next input's checksums are to be right.
    pub fn repairs(&mut self) -> bool {
        self.rng.u8(0..4) != 0
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        match self.rng.u8(0..14) {
            0 | 1 => self.flip_bit(bytes),
            2 => self.set_byte(bytes),
            3 => self.add_to_byte(bytes),
            4 => self.set_number(bytes),
            5 => self.set_varint(bytes),
            6 | 7 => self.nudge_length(bytes),
            8 => self.delete_block(bytes),
            9 => self.duplicate_block(bytes),
            10 => self.insert_block(bytes),
            11 => self.splice(bytes, corpus),
            12 => self.overwrite(bytes, corpus),
            _ => self.swap_blocks(bytes),
        }
    }

    fn at(&mut self, bytes: &[u8]) -> Option<usize> {
        (!bytes.is_empty()).then(|| self.rng.usize(0..bytes.len()))
    }

    /// A block of at most 64 bytes, mostly of a few.
    fn block(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.rng.usize(0..=bytes.len());
        let len_max = 1 << self.rng.u32(0..7);
        let len = self.rng.usize(0..=len_max).min(bytes.len() - start);
        start..start + len
    }

    fn flip_bit(&mut self, bytes: &mut [u8]) {
        if let Some(at) = self.at(bytes) {
            bytes[at] ^= 1 << self.rng.u8(0..8);
        }
    }

    fn set_byte(&mut self, bytes: &mut [u8]) {
        if let Some(at) = self.at(bytes) {
            bytes[at] = if self.rng.bool() { self.pick(&BYTES) } else { self.rng.u8(..) };
        }
    }

    fn add_to_byte(&mut self, bytes: &mut [u8]) {
        if let Some(at) = self.at(bytes) {
            bytes[at] = bytes[at].wrapping_add_signed(self.rng.i8(-16..=16));
        }
    }

    /// A fixed number of 2, 4 or 8 bytes, either end first.
    fn set_number(&mut self, bytes: &mut [u8]) {
        let len = self.pick(&[2, 4, 8]);
        let Some(at) = self.at(bytes).filter(|at| at + len <= bytes.len()) else { return };
        let number = self.pick(&NUMBERS).wrapping_add_signed(self.rng.i64(-2..=2));
        let (little, big) = (number.to_le_bytes(), number.to_be_bytes());
        let form = if self.rng.bool() { &little[..len] } else { &big[8 - len..] };
        bytes[at..at + len].copy_from_slice(form);
    }

    /// A varint in place of the one that may be there.
    fn set_varint(&mut self, bytes: &mut Vec<u8>) {
        let Some(at) = self.at(bytes) else { return };
        let number = self.pick(&NUMBERS).wrapping_add_signed(self.rng.i64(-2..=2));
        let end = varint_end(bytes, at);
        bytes.splice(at..end, varint(number));
    }

    /// A varint or a number of 4 bytes that is somewhat more or less, as a length that is wrong by a little.
    fn nudge_length(&mut self, bytes: &mut Vec<u8>) {
        let Some(at) = self.at(bytes) else { return };
        let by = self.pick(&[-1, 1, -2, 2, 8, 64, 4096]);
        if self.rng.bool() {
            let end = varint_end(bytes, at);
            let old = bytes[at..end].iter().rev().fold(0u64, |n, b| n << 7 | u64::from(b & 0x7f));
            bytes.splice(at..end, varint(old.wrapping_add_signed(by)));
        } else if let Some(field) = bytes[at..].first_chunk_mut::<4>() {
            *field = u32::from_le_bytes(*field).wrapping_add_signed(by as i32).to_le_bytes();
        }
    }

    fn delete_block(&mut self, bytes: &mut Vec<u8>) {
        let block = if self.rng.u8(0..8) == 0 {
            self.rng.usize(0..=bytes.len())..bytes.len()
        } else {
            self.block(bytes)
        };
        bytes.drain(block);
    }

    fn duplicate_block(&mut self, bytes: &mut Vec<u8>) {
        let block = bytes[self.block(bytes)].to_vec();
        let at = self.rng.usize(0..=bytes.len());
        for _ in 0..self.pick(&[1, 1, 2, 16]) {
            bytes.splice(at..at, block.iter().copied());
        }
    }

    fn insert_block(&mut self, bytes: &mut Vec<u8>) {
        let at = self.rng.usize(0..=bytes.len());
        let len = self.rng.usize(1..=16);
        let byte = self.pick(&BYTES);
        let block: Vec<u8> =
            if self.rng.bool() { vec![byte; len] } else { (0..len).map(|_| self.rng.u8(..)).collect() };
        bytes.splice(at..at, block);
    }

    /// The front of this one and the back of another.
    fn splice(&mut self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let other = &corpus[self.rng.usize(0..corpus.len())];
        let (front, back) = (self.rng.usize(0..=bytes.len()), self.rng.usize(0..=other.len()));
        bytes.truncate(front);
        bytes.extend_from_slice(&other[back..]);
    }

    /// A block of another over one of this.
    fn overwrite(&mut self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let other = &corpus[self.rng.usize(0..corpus.len())];
        let (from, to) = (self.block(other), self.block(bytes));
        bytes.splice(to, other[from].iter().copied());
    }

    fn swap_blocks(&mut self, bytes: &mut [u8]) {
        let block = self.block(bytes);
        let len = block.len();
        let to = self.rng.usize(0..=bytes.len() - len);
        for index in 0..len {
            bytes.swap(block.start + index, to + index);
        }
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.rng.usize(0..items.len())]
    }
}

/// Where the varint that may begin at `at` ends.
fn varint_end(bytes: &[u8], at: usize) -> usize {
    let len = bytes[at..].iter().take(10).position(|byte| *byte < 0x80).map_or(1, |last| last + 1);
    at + len
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

const BYTES: [u8; 10] = [0, 1, 2, 16, 0x7f, 0x80, 0x81, 0xfe, 0xff, b'/'];
const NUMBERS: [u64; 18] = [
    0,
    1,
    255,
    256,
    4096,
    16 << 10,
    65_535,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 55,
    (1 << 62) - 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];
