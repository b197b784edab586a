//! Files use each other one way. A dispatch table chooses among kernels of instruction sets, which use its types: it says so in
//! its first lines.

use std::collections::BTreeSet;

use super::files::{Arrow, arrows, circles, reached};
use super::scan::{Scan, scan};
use super::{module_of, sources, within};

/// What the first lines of a dispatch table say.
const DISPATCH_TABLE: &str = "Dispatch table";
/// The files, or folders, of the kernels of an instruction set.
const INSTRUCTION_SETS: &[&str] = &["avx2", "avx512", "neon", "vectors"];

/// What is wrong with the arrows among some sources.
fn faults(sources: &[(String, String)]) -> Vec<String> {
    let scans: Vec<(&str, Scan)> =
        sources.iter().map(|(name, text)| (name.as_str(), scan(module_of(name), text))).collect();
    let tests: Vec<String> = scans.iter().flat_map(|(_, scan)| scan.test_modules.clone()).collect();
    let is_test = |scan: &Scan| tests.iter().any(|test| within(&scan.module.join("/"), test));
    let shipped: Vec<(&str, &Scan)> =
        scans.iter().filter(|(_, scan)| !is_test(scan)).map(|(name, scan)| (*name, scan)).collect();
    let tables: BTreeSet<&str> = sources.iter().filter(|(_, text)| is_table(text)).map(|(name, _)| &**name).collect();
    let all = arrows(&shipped);
    let (dispatches, arrows): (BTreeSet<Arrow>, BTreeSet<Arrow>) =
        all.into_iter().partition(|(from, to)| tables.contains(from.as_str()) && is_of_instruction_set(to));

    let mut faults = Vec::new();
    let closes = |(from, to): &Arrow| reached(&arrows, to).contains(from.as_str());
    for table in tables {
        if !dispatches.iter().any(|arrow| arrow.0 == table && closes(arrow)) {
            faults.push(format!("src/{table}: says that it is a dispatch table, and needs not to be one"));
        }
    }
    for circle in circles(&arrows) {
        let is_inside = |(from, to): &&Arrow| circle.contains(from.as_str()) && circle.contains(to.as_str());
        let inside: Vec<String> = arrows.iter().filter(is_inside).map(|(from, to)| format!("{from} -> {to}")).collect();
        faults.push(format!("files use each other in a circle:\n    {}", inside.join("\n    ")));
    }
    faults
}

/// Whether the comment that opens a file calls it a dispatch table.
fn is_table(text: &str) -> bool {
    text.lines().take_while(|line| line.starts_with("//!")).any(|line| line.contains(DISPATCH_TABLE))
}

fn is_of_instruction_set(name: &str) -> bool {
    module_of(name).iter().any(|part| INSTRUCTION_SETS.contains(&part.as_str()))
}

#[test]
fn files_use_each_other_one_way() {
    let mut sources = sources("src");
    sources.retain(|(name, _)| name.ends_with(".rs"));
    let faults = faults(&sources);
    assert!(faults.is_empty(), "\n  {}\n", faults.join("\n  "));
}

#[cfg(test)]
mod tests {
    use super::faults;

    /// The faults of a small crate, given as (file, text).
    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<_> = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        faults(&sources)
    }

    const FACE: &str = "mod a; mod b; pub use a::A; pub(crate) use b::{B, make as made};";

    #[test]
    fn circles_are_found() {
        for files in [
            &[("r/mod.rs", "mod a; mod b;"), ("r/a.rs", "use super::b::B;"), ("r/b.rs", "use crate::r::a::A;")][..],
            // By what a face hands on, under another name too.
            &[("r/mod.rs", FACE), ("r/a.rs", "use super::B;"), ("r/b.rs", "fn f() -> crate::r::A {}")],
            &[("r/mod.rs", FACE), ("r/a.rs", "fn f() { super::made() }"), ("r/b.rs", "use super::A;")],
            &[("r/mod.rs", FACE), ("r/a.rs", "use super::b; fn f() { b::make() }"), ("r/b.rs", "use super::a::*;")],
            &[("lib.rs", "mod r;"), ("r/mod.rs", FACE), ("r/a.rs", "use crate::r::B;"), ("r/b.rs", "use super::A;")],
            // A face that uses what it hands on, and has something of its own.
            &[("r.rs", "mod a; pub use a::A; pub fn f() -> A {}"), ("r/a.rs", "use super::f;")],
            &[("r.rs", "mod a; pub fn f() { a::g() }"), ("r/a.rs", "use super::f; pub fn g() {}")],
            // A function that has the name of its module.
            &[
                ("r.rs", "mod a; mod b; pub use a::a;"),
                ("r/a.rs", "use super::b::B; pub fn a() {}"),
                ("r/b.rs", "use super::a;"),
            ],
            // From a module inside a file.
            &[("r.rs", "mod a; use a::A;"), ("r/a.rs", "mod deep { use super::super::f; }")],
            // Longer ones.
            &[("a.rs", "use crate::b::B;"), ("b.rs", "use crate::c::C;"), ("c.rs", "use crate::a::A;")],
        ] {
            assert_eq!(of(files).len(), 1, "{files:?}");
        }
    }

    #[test]
    fn one_way_is_right() {
        for files in [
            &[("r/mod.rs", FACE), ("r/a.rs", "use super::B; use std::b::C;"), ("r/b.rs", "use crate::x::A;")][..],
            // A face alone uses nothing.
            &[("r.rs", "mod a; pub use a::A; pub fn f() {}"), ("r/a.rs", "use super::f;")],
            &[("r.rs", "mod a; pub use a::a; pub fn f() {}"), ("r/a.rs", "use super::f; pub fn a() {}")],
            &[("r.rs", "mod a; pub use a::to; pub fn f() { x.to() }"), ("r/a.rs", "use super::f; pub fn to() {}")],
            // Tests use what they like.
            &[
                ("r.rs", "mod a; #[cfg(test)] mod tests { use super::a::A; }"),
                ("r/a.rs", "use super::f; #[cfg(test)] mod tests { use super::super::f; }"),
            ],
            &[("r.rs", "mod a; use a::A; #[cfg(test)] mod tests;"), ("r/tests.rs", "use super::f;"), ("r/a.rs", "")],
            &[("r.rs", "mod a; use a::A;"), ("r/a.rs", "//! [`super::f`]\nfn f() { a::g(); r::A::new() }")],
        ] {
            assert_eq!(of(files), [""; 0], "{files:?}");
        }
    }

    #[test]
    fn a_dispatch_table_says_so_and_is_one() {
        let kernels = ("r/avx2.rs", "use super::table::T;");
        let text = "fn f() { super::avx2::f() }";
        let table = format!("//! Kernels.\n//! Dispatch table: the best of them.\n{text}");
        let face = ("r.rs", "mod avx2; mod table;");
        assert_eq!(of(&[face, kernels, ("r/table.rs", &table)]), [""; 0]);
        assert_eq!(of(&[face, kernels, ("r/table.rs", text)]).len(), 1);
        assert_eq!(of(&[face, kernels, ("r/table.rs", &format!("{text}\n//! Dispatch table"))]).len(), 1);
        // It excuses no other circle, and what is none needs no excuse.
        assert_eq!(of(&[face, ("r/avx2.rs", ""), ("r/table.rs", &table)]).len(), 1);
        let other = ("r/other.rs", "use super::table::T;");
        let table = format!("{table} fn g() {{ super::other::g() }}");
        let face = ("r.rs", "mod avx2; mod table; mod other;");
        assert_eq!(of(&[face, kernels, other, ("r/table.rs", &table)]).len(), 1);
    }
}
