//! What each fuzz target does with its bytes: they choose a valid structure, and what is made wrong with it. The generator
//! is the tests' own (`tests/hostile/generator`).

#![allow(dead_code, reason = "the generator has more than the targets use")]

#[path = "../../tests/hostile/generator/mod.rs"]
mod generator;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::sync::LazyLock;

use generator::base;
use generator::exercise::{Place, converse, exercise};
use generator::node::Node;
use generator::streams::{self, Flaw};
use generator::tensors::{self, Description};
use generator::wrong::{Side, What, Wrong};

/// Valid structures, each with everything that can be wrong with it.
static NODES: LazyLock<Vec<(Node, Vec<Wrong>)>> = LazyLock::new(|| {
    base::nodes()
        .into_iter()
        .map(|(_, node)| {
            let wrongs = Wrong::all(&node);
            (node, wrongs)
        })
        .collect()
});

/// Panics are findings, but for those of arrow-rs, which the package turns into errors. One that it does not catch ends
/// the process all the same.
pub fn start() {
    std::panic::set_hook(Box::new(|panic| {
        let file = panic.location().map_or("", |location| location.file());
        let of_arrow = file.split(['/', '\\']).any(|part| part.starts_with("arrow-") && part.contains("-5"));
        if !of_arrow {
            eprintln!("{panic}");
            std::process::abort();
        }
    }));
}

/// Numbers from the bytes of a target; zeros after their end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()])) % limit.max(1)
    }

    fn number(&mut self) -> i64 {
        i64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A fault of these, perhaps with a number of the fuzzer's own.
    fn wrong(&mut self, all: &[Wrong]) -> Wrong {
        let wrong = self.of(all).clone();
        if self.byte().is_multiple_of(2) { wrong } else { wrong.with_number(self.number()) }
    }

    fn wrongs(&mut self, all: &[Wrong]) -> Vec<Wrong> {
        (0..self.below(4)).map(|_| self.wrong(all)).collect()
    }
}

/// Up to three faults in an array and its schema, on any device.
pub fn arrow_array(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let (node, all) = choices.of(&NODES);
    let wrongs = choices.wrongs(all);
    let odd = Place::odd();
    let place = if choices.byte() == 1 { *choices.of(&odd) } else { Place::CPU };
    let _ = exercise(node, &wrongs, place);
}

/// Up to three faults in the schema alone.
pub fn arrow_schema(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let (node, all) = choices.of(&NODES);
    let in_schema = |wrong: &&Wrong| {
        matches!(
            wrong.what,
            What::Format(_)
                | What::Name(_)
                | What::Metadata(_)
                | What::Flags(_)
                | What::ChildCount(Side::Schema, _)
                | What::Children(Side::Schema, _)
                | What::Child(Side::Schema, _)
                | What::Dictionary(Side::Schema, _)
                | What::StrayDictionary(Side::Schema)
                | What::Released(Side::Schema)
        )
    };
    let all: Vec<Wrong> = all.iter().filter(in_schema).cloned().collect();
    let _ = exercise(node, &choices.wrongs(&all), Place::CPU);
}

/// Up to three flaws of a stream, of its schema and of its batches.
pub fn arrow_stream(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let (node, all) = choices.of(&NODES);
    let own = streams::flaws();
    let flaws: Vec<Flaw> = (0..choices.below(4))
        .map(|_| match choices.byte() % 3 {
            0 => choices.of(&own).clone(),
            1 => Flaw::Schema(choices.wrong(all)),
            _ => Flaw::Batch(choices.below(3), choices.wrong(all)),
        })
        .collect();
    let _ = streams::exercise(node, &flaws);
}

/// An array as the type of another, both with faults.
pub fn conversions(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let (node, all) = choices.of(&NODES);
    let wrongs = choices.wrongs(all);
    let (requested, all) = choices.of(&NODES);
    let requested_wrongs = choices.wrongs(all);
    let _ = converse((node, &wrongs), (requested, &requested_wrongs));
}

/// Up to three flaws of a managed tensor.
pub fn dlpack(bytes: &[u8]) {
    static BASES: LazyLock<Vec<(Description, Vec<tensors::Flaw>)>> =
        LazyLock::new(|| Description::bases().into_iter().map(|base| (base.clone(), base.flaws())).collect());
    let mut choices = Choices(bytes);
    let (base, all) = choices.of(&BASES);
    let flaws: Vec<tensors::Flaw> = (0..choices.below(4))
        .map(|_| {
            let flaw = choices.of(all).clone();
            if choices.byte() % 2 == 0 { flaw } else { flaw.with_number(choices.number()) }
        })
        .collect();
    let _ = tensors::exercise(base, &flaws);
}
