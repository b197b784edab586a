//! What each fuzz target does with its bytes. The targets are functions in `targets`, which `tests/hostile/corpus.rs` calls too;
//! the structures and the definitions are the tests' own (`tests/hostile/generator`, `tests/support`).

#![allow(dead_code, reason = "the generator has more than the targets use")]

#[path = "../../tests/hostile/generator/mod.rs"]
mod generator;
#[path = "../../tests/support/mod.rs"]
mod support;
mod targets;

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

/// Runs the target of this name with these bytes.
///
/// # Panics
/// On a finding; if there is no such target.
pub fn run(target: &str, bytes: &[u8]) {
    match targets::ALL.iter().find(|(name, _)| *name == target) {
        Some((_, run)) => run(bytes),
        None => panic!("there is no target {target}"),
    }
}
