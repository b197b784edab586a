//! Does everything that a fuzzer has found worth keeping still pass? `fuzz/corpus/NAME.txt` has a case of the target NAME in each
//! line, in hexadecimal digits.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::targets::ALL;

/// The bytes of a line of digits.
fn bytes(line: &str) -> Vec<u8> {
    let digits = |at: usize| line.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let made: Option<Vec<u8>> = (0..line.len()).step_by(2).map(digits).collect();
    made.unwrap_or_else(|| panic!("{line:?} is not in hexadecimal digits"))
}

/// Runs every case of a target.
fn pass(name: &str) {
    let (_, target) = ALL.iter().find(|(known, _)| *known == name).expect("a target");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(format!("{name}.txt"));
    // In small pieces: Miri takes minutes to split one text into lines.
    let lines = File::open(&file).and_then(|file| BufReader::with_capacity(256, file).lines().collect());
    let lines: Vec<String> = lines.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    // Miri takes a second or more for a case: it runs ten of each target, from all over the file.
    let step = if cfg!(miri) { lines.len() / 10 + 1 } else { 1 };
    let failed: Vec<&String> = lines
        .iter()
        .step_by(step)
        .filter(|line| catch_unwind(AssertUnwindSafe(|| target(&bytes(line)))).is_err())
        .collect();
    assert!(failed.is_empty(), "{} cases of {name}, such as {}", failed.len(), failed[0]);
    assert!(lines.len() > 20, "{} has few cases", file.display());
}

/// A test for each target, so that they run side by side.
macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test] fn $name() { pass(stringify!($name)); })*

        #[test]
        fn every_target_has_a_corpus_and_a_program() {
            let named: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
            assert_eq!(named, [$(stringify!($name)),*]);
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
            let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
            for name in named {
                let program = std::fs::read_to_string(root.join(format!("fuzz_targets/{name}.rs"))).unwrap();
                assert!(program.contains(&format!("run(\"{name}\", bytes)")), "{name}");
                assert!(manifest.contains(&format!("fuzz_targets/{name}.rs")), "{name}");
            }
        }
    };
}

targets! { arrow_array arrow_device arrow_schema arrow_stream dlpack uses conversions options loader differential }
