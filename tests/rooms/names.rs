//! No two things share a name: a type, private or not, is called as no other type of the crate. Types of tests and associated types,
//! whose names a trait chooses, are free.

use std::collections::BTreeMap;

use super::scan::{Scan, scan};
use super::{module_of, sources, within};

/// What is wrong with the names of the types in some sources. A class of Python (`#[pyclass]`) may have the name of the type that it
/// holds, which users of Rust know.
fn faults(sources: &[(String, String)]) -> Vec<String> {
    let scans: Vec<(&str, Scan)> =
        sources.iter().map(|(file, text)| (file.as_str(), scan(module_of(file), text))).collect();
    let tests: Vec<&String> = scans.iter().flat_map(|(_, scan)| &scan.test_modules).collect();
    let mut places: BTreeMap<(&str, bool), Vec<String>> = BTreeMap::new();
    for (file, scan) in &scans {
        let module = scan.module.join("/");
        if tests.iter().any(|test| within(&module, test)) {
            continue;
        }
        for declared in &scan.types {
            let place = format!("{file}:{}", declared.line);
            places.entry((&declared.name, declared.is_class)).or_default().push(place);
        }
    }
    let shared = places.iter().filter(|(_, places)| places.len() > 1);
    shared
        .map(|((name, _), places)| format!("{name} is the name of types in {}: rename all but one", places.join(", ")))
        .collect()
}

#[test]
fn no_two_types_share_a_name() {
    let mut sources = sources("src");
    sources.retain(|(name, _)| name.ends_with(".rs"));
    let faults = faults(&sources);
    assert!(faults.is_empty(), "\n  {}\n", faults.join("\n  "));
}

/// How many names are shared in a small crate, given as (file, text).
fn shared(files: &[(&str, &str)]) -> usize {
    let sources: Vec<_> = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    faults(&sources).len()
}

#[test]
fn shared_names_are_found() {
    let lane = ("a.rs", "pub(crate) struct Lane<'a> {}\n");
    for text in [
        "pub struct Lane;",
        "pub(super) enum Lane {}",
        "pub(in crate::x) trait Lane {}",
        "pub unsafe trait Lane {}",
        "pub type Lane = u8;",
        "struct Lane;",
        "union Lane { a: u8 }",
        "mod inner { struct Lane; }",
        "fn f() { type Lane = u8; }",
        "impl A { fn f(x: impl B) { struct Lane; } }",
        "impl A { fn f() { type Lane = u8; } }",
        "#[cfg(not(test))] mod inner { struct Lane; }",
    ] {
        assert_eq!(shared(&[lane, ("b.rs", text)]), 1, "{text}");
    }
    for text in [
        "struct Lanes;",
        "fn lane() {}",
        "// struct Lane;",
        "impl Iterator for A { type Lane = u8; }",
        "impl<F: Fn() -> u8> B for A<F> where F: C { fn f() {} type Lane = F; }",
        "unsafe trait B { type Lane: C; }",
        "#[cfg(test)] mod tests { struct Lane; }",
        "use a::Lane; fn f(lane: Lane) {}",
    ] {
        assert_eq!(shared(&[lane, ("b.rs", text)]), 0, "{text}");
    }
    assert_eq!(shared(&[("a.rs", "struct Lane; fn f() { struct Lane; }")]), 1, "of one file");
}

#[test]
fn types_of_test_files_are_free() {
    let lane = "struct Lane;";
    let declared = ("a.rs", "#[cfg(test)]\nmod tests;\nstruct Lane;");
    assert_eq!(shared(&[declared, ("a/tests.rs", lane), ("a/tests/deep.rs", lane)]), 0);
    assert_eq!(shared(&[declared, ("a/others.rs", lane)]), 1);
}

#[test]
fn classes_of_python_may_have_the_names_of_what_they_hold() {
    let tensor = ("tensor.rs", "pub struct Tensor;");
    let class = "#[pyclass(frozen)]\n#[derive(Debug)]\npub struct Tensor(tensor::Tensor);";
    assert_eq!(shared(&[tensor, ("python/tensor.rs", class)]), 0);
    assert_eq!(shared(&[tensor, ("python/tensor.rs", "pub struct Tensor;")]), 1, "of no class");
    assert_eq!(shared(&[("python/tensor.rs", class), ("python/other.rs", class)]), 1, "of two classes");
}
