//! Choices that the bytes of a target make.

use std::sync::{LazyLock, OnceLock};

use crate::generator::base;
use crate::generator::node::Node;
use crate::generator::wrong::Wrong;

/// A valid structure.
pub(super) struct Base {
    pub(super) node: Node,
    wrongs: OnceLock<Vec<Wrong>>,
    in_schema: OnceLock<Vec<Wrong>>,
}

impl Base {
    /// Everything that can be wrong with it. Miri takes long to list that of every structure.
    pub(super) fn wrongs(&self) -> &[Wrong] {
        self.wrongs.get_or_init(|| Wrong::all(&self.node))
    }

    /// What of that is in the schema.
    pub(super) fn in_schema(&self) -> &[Wrong] {
        self.in_schema.get_or_init(|| self.wrongs().iter().filter(|wrong| wrong.is_in_schema()).cloned().collect())
    }
}

/// Valid structures of every type, whole and sliced.
pub(super) static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let base = |(_, node): (String, Node)| Base { node, wrongs: OnceLock::new(), in_schema: OnceLock::new() };
    base::nodes().into_iter().map(base).collect()
});

/// Choices from bytes; the first of each after their end.
pub(super) struct Choices<'a>(pub(super) &'a [u8]);

impl Choices<'_> {
    pub(super) fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    /// Whether it is so, once in `one_in` choices.
    pub(super) fn chance(&mut self, one_in: u8) -> bool {
        self.byte() % one_in == one_in - 1
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        let wide = if limit > 256 { self.byte() } else { 0 };
        usize::from(u16::from_le_bytes([self.byte(), wide])) % limit.max(1)
    }

    pub(super) fn number(&mut self) -> i64 {
        i64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    pub(super) fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Bytes of a text of up to so many.
    pub(super) fn text(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.byte()).collect()
    }

    /// A fault of these, perhaps with a number of the fuzzer's own.
    pub(super) fn wrong(&mut self, all: &[Wrong]) -> Wrong {
        let wrong = self.of(all).clone();
        if self.byte().is_multiple_of(2) { wrong } else { wrong.with_number(self.number()) }
    }

    /// Up to three faults of these.
    pub(super) fn wrongs(&mut self, all: &[Wrong]) -> Vec<Wrong> {
        (0..self.below(4)).map(|_| self.wrong(all)).collect()
    }
}
