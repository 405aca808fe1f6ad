//! A mutation fuzzer: changes recorded inputs, and judges what a decoder makes of them.
//!
//! It needs no instrumented build. What stands in for coverage is the *outcome*: each target says in a few words
//! what became of an input (which message, which error), and an input with a new outcome joins the corpus.
//! Checksums are made right again for a part of the inputs, so that mutations get past them.

mod mutator;
mod runner;
mod shrink;

pub use mutator::Mutator;
pub use runner::{Finding, Limits, Report, Runner, execute};
pub use shrink::shrink;

/// Something that takes bytes in.
pub trait Target {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// Inputs that are right, from real traffic.
    fn seeds(&self) -> Vec<Vec<u8>>;

    /// Makes lengths and checksums right again after a mutation, as far as the format has any.
    fn repair(&self, bytes: &mut Vec<u8>);

    /// Takes one input in. Panics where the code under test or what it promises is broken; returns in a few words what
    /// became of the input, numbers left out.
    fn run(&mut self, bytes: &[u8]) -> String;

    /// Bytes that may be allocated for each byte of input, and for any input.
    fn memory(&self) -> Memory {
        Memory::DECODER
    }

    /// Longest input made.
    fn len_max(&self) -> usize {
        1 << 16
    }
}

/// How much memory an input may cost.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes for each byte of input.
    pub per_byte: usize,
    /// Bytes for any input.
    pub base: usize,
}

impl Memory {
    /// A decoder, its values and one more copy of them: an item of one byte may be a value of some 200.
    pub const DECODER: Self = Self { per_byte: 512, base: 256 << 10 };
    /// Not limited: the target keeps a state of its own.
    pub const UNLIMITED: Self = Self { per_byte: 0, base: usize::MAX };

    /// Bytes that an input of `len` bytes may cost.
    pub fn limit(self, len: usize) -> usize {
        self.per_byte.saturating_mul(len).saturating_add(self.base)
    }
}

/// What was said of a value, numbers left out, so that there are only so many.
pub fn outcome(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(OUTCOME_LEN));
    let mut is_hex = false;
    for (c, before) in text.chars().take(OUTCOME_LEN).zip(std::iter::once(' ').chain(text.chars())) {
        is_hex = (is_hex && c.is_ascii_hexdigit()) || (before == '0' && c == 'x');
        if !c.is_ascii_digit() && !is_hex {
            out.push(c);
        } else if !out.ends_with('#') {
            out.push('#');
        }
    }
    out
}

const OUTCOME_LEN: usize = 120;

#[cfg(test)]
mod tests {
    #[test]
    fn outcomes_leave_numbers_out() {
        assert_eq!(super::outcome("magic 0xdeadbeef of 17 bytes"), "magic # of # bytes");
    }
}
