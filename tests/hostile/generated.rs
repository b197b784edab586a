//! Every base structure with each thing wrong in turn.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::generator::base;
use crate::generator::exercise::{Outcome, Place, exercise};
use crate::generator::node::Untellable;
use crate::generator::tensors::{self, Description};
use crate::generator::wrong::Wrong;

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
        if std::env::var_os("SHOW").is_some() {
            std::fs::write(format!("/tmp/hostile-last-{:?}", std::thread::current().id()), name()).unwrap();
        }
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

    /// At least so many cases were refused, and read, and none of them wrongly.
    fn check(&self, refused: usize, read: usize) {
        if std::env::var_os("SHOW").is_some() {
            for (panic, count) in &self.panics {
                eprintln!("{count} {panic}");
            }
        }
        eprintln!("{} refused, {} read, {} skipped", self.refused, self.read, self.untellable);
        assert!(
            self.failed.is_empty(),
            "{}\n{}",
            self.failed.len(),
            self.failed[..self.failed.len().min(60)].join("\n")
        );
        assert!(self.refused > refused && self.read > read, "{} {}", self.refused, self.read);
    }
}

#[test]
fn valid_structures_are_read() {
    for (name, node) in base::nodes() {
        let outcome = exercise(&node, &[], Place::CPU).expect("a valid structure");
        assert!(outcome.is_read && outcome.refused.is_none(), "{name}: {outcome:?}");
    }
}

/// Every fault of every `share`-th base structure.
fn every_fault(share: usize) {
    let mut tally = Tally::default();
    for (name, node) in base::whole().into_iter().skip(share).step_by(SHARES) {
        for wrong in Wrong::all(&node) {
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
fn tensors_with_one_flaw_are_right_or_refused() {
    let mut tally = Tally::default();
    for base in Description::bases() {
        let outcome = tensors::exercise(&base, &[]).expect("a valid tensor");
        assert!(outcome.refused.is_none(), "{base:?}: {outcome:?}");
        for flaw in base.flaws() {
            tally.run(|| format!("{flaw:?} {base:?}"), || tensors::exercise(&base, std::slice::from_ref(&flaw)));
        }
    }
    tally.check(1000, 1000);
}
