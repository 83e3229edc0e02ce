//! A small set of small numbers.

/// A set of numbers below 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Bits(u8);

impl Bits {
    pub(super) const fn of(number: usize) -> Bits {
        Bits(1 << number)
    }

    pub(super) fn has(self, number: usize) -> bool {
        self.meets(Bits::of(number))
    }

    pub(super) fn meets(self, other: Bits) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub(super) fn with(self, other: Bits) -> Bits {
        Bits(self.0 | other.0)
    }

    #[must_use]
    pub(super) fn without(self, number: usize) -> Bits {
        Bits(self.0 & !(1 << number))
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..8).filter(move |number| self.has(*number))
    }
}

impl FromIterator<usize> for Bits {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Bits {
        numbers.into_iter().fold(Bits::default(), |bits, number| bits.with(Bits::of(number)))
    }
}
