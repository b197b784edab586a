//! Every base structure with each thing wrong in turn.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "wrong numbers are what is wanted"
)]

use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_dlpack::ErrorKind;

use crate::generator::base;
use crate::generator::exercise::{Outcome, Place, Use, converse, exercise, exercise_as};
use crate::generator::node::{Node, Untellable};
use crate::generator::one_in;
use crate::generator::streams::{self, Flaw};
use crate::generator::tensors::{self, Description};
use crate::generator::wrong::{Side, What, Wrong};
use crate::support::Random;

/// What came of many cases.
#[derive(Debug, Default)]
struct Tally {
    untellable: usize,
    refused: usize,
    read: usize,
    panics: std::collections::BTreeMap<String, usize>,
    failed: Vec<String>,
}

impl Tally {
    fn run(&mut self, name: impl Fn() -> String, case: impl FnOnce() -> Result<Outcome, Untellable>) {
        match catch_unwind(AssertUnwindSafe(case)) {
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                self.failed.push(format!("{}: {text}", name()));
            }
            Ok(Err(Untellable)) => self.untellable += 1,
            Ok(Ok(outcome)) => {
                for error in outcome.errors.iter().filter(|error| error.reason().starts_with("arrow-rs cannot read")) {
                    *self.panics.entry(error.reason().to_owned()).or_default() += 1;
                }
                match outcome.refused {
                    Some(_) => self.refused += 1,
                    None => self.read += 1,
                }
            }
        }
    }

    /// At least so many cases were refused, and read, and none of them wrongly; under Miri, which takes fewer cases, some of each.
    fn check(&self, refused: usize, read: usize) {
        let (refused, read) = if cfg!(miri) { (0, 0) } else { (refused, read) };
        eprintln!("{} refused, {} read, {} that nobody could tell", self.refused, self.read, self.untellable);
        eprintln!("panics of arrow-rs that became errors: {:?}", self.panics);
        assert!(
            self.failed.is_empty(),
            "{}\n{}",
            self.failed.len(),
            self.failed[..self.failed.len().min(60)].join("\n")
        );
        assert!(self.refused > refused && self.read > read, "{} {}", self.refused, self.read);
    }
}

/// How the names begin of types that are neither tensors nor ragged rows as a whole.
const FORMLESS: &[&str] =
    &["Interval(", "Map(", "Union(", "Null", "RunEndEncoded(\"run_ends\": non-null Int16, \"values\": Utf8)"];

#[test]
fn valid_structures_are_read() {
    for (name, node) in base::nodes().into_iter().step_by(one_in(61)) {
        let outcome = exercise_as(&node, &[], Place::CPU, Use::all()).expect("a valid structure");
        assert!(outcome.is_read && outcome.refused.is_none(), "{name}: {outcome:?}");
        let called_wrong: Vec<_> = outcome.errors.iter().filter(|error| error.kind() == ErrorKind::Invalid).collect();
        assert!(called_wrong.is_empty(), "{name}: {called_wrong:?}");
        let is_formless = FORMLESS.iter().any(|start| name.starts_with(start));
        // A struct is a matrix if its columns are numbers, or if it has none and the options name a dtype.
        if !name.starts_with("Struct(") {
            assert_ne!(outcome.is_converted, is_formless, "{name}: {:?}", outcome.errors);
        }
    }
}

/// Every fault of every `share`-th base structure.
fn every_fault(share: usize) {
    let mut tally = Tally::default();
    let step = one_in(101);
    for (number, (name, node)) in
        base::whole().into_iter().enumerate().skip(share * one_in(3)).step_by(SHARES * one_in(3))
    {
        for wrong in Wrong::all(&node).into_iter().skip(number * 11 % step).step_by(step) {
            tally.run(|| format!("{name}: {wrong:?}"), || exercise(&node, std::slice::from_ref(&wrong), Place::CPU));
        }
    }
    tally.check(1000, 1000);
}

/// Tests that share the work, so that they run side by side.
const SHARES: usize = 4;

#[test]
fn arrays_and_schemas_with_one_fault_are_right_or_refused_1() {
    every_fault(0);
}

#[test]
fn arrays_and_schemas_with_one_fault_are_right_or_refused_2() {
    every_fault(1);
}

#[test]
fn arrays_and_schemas_with_one_fault_are_right_or_refused_3() {
    every_fault(2);
}

#[test]
fn arrays_and_schemas_with_one_fault_are_right_or_refused_4() {
    every_fault(3);
}

#[test]
fn children_that_were_moved_away_are_refused() {
    for (name, node) in base::whole().into_iter().step_by(one_in(3)) {
        for path in node.paths() {
            let wrong = Wrong { path, what: What::Released(Side::Array) };
            let outcome = exercise(&node, std::slice::from_ref(&wrong), Place::CPU).expect("it can be told");
            let error = outcome.refused.unwrap_or_else(|| panic!("{name}: {wrong:?}"));
            assert!(error.reason().contains("ArrowArray") && error.reason().contains("released"), "{error}");
        }
    }
}

#[test]
fn tensors_with_one_flaw_are_right_or_refused() {
    let mut tally = Tally::default();
    let step = one_in(61);
    for (number, base) in Description::bases().into_iter().step_by(one_in(7)).enumerate() {
        let outcome = tensors::exercise(&base, &[]).expect("a valid tensor");
        assert!(outcome.refused.is_none(), "{base:?}: {outcome:?}");
        for flaw in base.flaws().into_iter().skip(number * 5 % step).step_by(step) {
            tally.run(|| format!("{flaw:?} {base:?}"), || tensors::exercise(&base, std::slice::from_ref(&flaw)));
        }
    }
    tally.check(1000, 1000);
}

/// Base structures of every kind of layout.
const KINDS: [&str; 9] = [
    "Int32",
    "Boolean",
    "Utf8",
    "Utf8View",
    "List(Int64)",
    "Dictionary(Int8, Utf8)",
    "Struct(",
    "Union(",
    "RunEndEncoded(",
];

/// Random pairs of faults for each base structure.
const PAIRS: usize = if cfg!(miri) { 2 } else { 200 };

#[test]
fn pairs_of_faults_are_right_or_refused() {
    let mut tally = Tally::default();
    let mut random = Random(7);
    let nodes = base::nodes();
    for kind in KINDS {
        let of_kind: Vec<_> = nodes.iter().filter(|(name, _)| name.starts_with(kind)).collect();
        assert!(!of_kind.is_empty(), "{kind}");
        for (name, node) in of_kind.into_iter().step_by(one_in(5)) {
            let all = Wrong::all(node);
            for _ in 0..PAIRS {
                let pair = [(); 2].map(|()| all[random.below(all.len())].clone());
                tally.run(|| format!("{name}: {pair:?}"), || exercise(node, &pair, Place::CPU));
            }
        }
    }
    tally.check(PAIRS, PAIRS / 10);
}

#[test]
fn pairs_of_flaws_are_right_or_refused() {
    let mut tally = Tally::default();
    // All pairs of a matrix, and random ones of every tensor.
    let matrix = Description::new((0, 32), &[2, 3], Some(&[3, 1]));
    let flaws = matrix.flaws();
    let step = one_in(37);
    for (index, one) in flaws.iter().enumerate().step_by(step) {
        for other in flaws[..index].iter().step_by(step) {
            let pair = [one.clone(), other.clone()];
            tally.run(|| format!("{pair:?}"), || tensors::exercise(&matrix, &pair));
        }
    }
    let mut random = Random(8);
    for base in Description::bases().into_iter().step_by(one_in(7)) {
        let flaws = base.flaws();
        for _ in 0..PAIRS {
            let one = flaws[random.below(flaws.len())].clone().with_number(random.next() as i64);
            let pair = [one, flaws[random.below(flaws.len())].clone()];
            tally.run(|| format!("{pair:?} {base:?}"), || tensors::exercise(&base, &pair));
        }
    }
    tally.check(5000, 500);
}

#[test]
fn arrays_on_odd_devices_are_right_or_refused() {
    let mut tally = Tally::default();
    let step = one_in(Place::odd().len());
    for (number, (name, node)) in base::whole().into_iter().step_by(one_in(3)).enumerate() {
        for place in Place::odd().into_iter().skip(number % step).step_by(step) {
            tally.run(|| format!("{name}: {place:?}"), || exercise(&node, &[], place));
        }
    }
    tally.check(100, 500);
}

#[test]
fn streams_with_faults_are_right_or_refused() {
    let mut tally = Tally::default();
    let mut random = Random(9);
    let of_kind = |(name, _): &(String, Node)| KINDS.iter().any(|kind| name.starts_with(kind));
    let step = one_in(23);
    for (number, (name, node)) in base::whole().into_iter().filter(of_kind).step_by(one_in(7)).enumerate() {
        let valid = streams::exercise(&node, &[]).expect("a valid stream");
        assert!(valid.refused.is_none(), "{name}: {valid:?}");
        let flaws = streams::flaws();
        let wrongs = Wrong::all(&node);
        for flaw in flaws.iter().skip(number * 3 % step).step_by(step) {
            tally.run(|| format!("{name}: {flaw:?}"), || streams::exercise(&node, std::slice::from_ref(flaw)));
            let other = flaws[random.below(flaws.len())].clone();
            let pair = [flaw.clone(), other];
            tally.run(|| format!("{name}: {pair:?}"), || streams::exercise(&node, &pair));
        }
        for _ in 0..PAIRS {
            let wrong = wrongs[random.below(wrongs.len())].clone();
            let flaw = if random.below(2) == 0 { Flaw::Schema(wrong) } else { Flaw::Batch(random.below(3), wrong) };
            tally.run(|| format!("{name}: {flaw:?}"), || streams::exercise(&node, std::slice::from_ref(&flaw)));
        }
    }
    tally.check(100, 100);
}

#[test]
fn requests_with_faults_are_met_or_refused() {
    let mut tally = Tally::default();
    let mut random = Random(10);
    let nodes: Vec<(Node, OnceCell<Vec<Wrong>>)> =
        base::nodes().into_iter().map(|(_, node)| (node, OnceCell::new())).collect();
    for _ in 0..5000 / one_in(600) {
        let mut case = || {
            let (node, all) = &nodes[random.below(nodes.len())];
            let all = all.get_or_init(|| Wrong::all(node));
            let wrongs = (0..random.below(3)).map(|_| {
                let number = random.next() as i64;
                let wrong = all[random.below(all.len())].clone();
                if random.below(2) == 0 { wrong } else { wrong.with_number(number) }
            });
            (node, wrongs.collect::<Vec<_>>())
        };
        let (own, requested) = (case(), case());
        tally.run(|| format!("{own:?} {requested:?}"), || converse((own.0, &own.1), (requested.0, &requested.1)));
    }
    tally.check(500, 500);
}
