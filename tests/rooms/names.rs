//! No two things share a name: a type that other files may use is called as no other such type.

use std::collections::{BTreeMap, BTreeSet};

use super::sources;

/// Python's classes have the names of what they hold.
const CLASSES: &[&str] = &["CopyLog", "Device", "Group", "Ragged", "Report", "ReportRow", "Tensor"];

/// Names of several types. The list may only become shorter: one that is of a single type now is a fault.
#[rustfmt::skip]
const SHARED: &[(&str, &[&str])] = &[
    ("Bits", &["column/validity.rs", "convert/pack/select.rs"]),
    ("Parts", &["ragged/part.rs", "tensor.rs"]),
    ("Report", &["explain/report.rs", "ragged/part.rs"]),
    ("Rows", &["convert/pack/rows.rs", "ragged/level.rs"]),
    ("Run", &["conversion/run.rs", "ragged/part.rs"]),
    ("Source", &["alloc/pool.rs", "python/exchange/package/layout.rs", "python/loader/source.rs"]),
    ("Target", &["convert/pack/target.rs", "kernels.rs"]),
    ("Values", &["ragged/mod.rs", "ragged/part.rs"]),
];

/// The types of a source that other files may use: its lines that begin with `pub`.
fn types(text: &str) -> BTreeSet<&str> {
    fn name(line: &str) -> Option<&str> {
        let rest = line.strip_prefix("pub")?;
        let rest = match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(") ")?.1,
            None => rest.strip_prefix(' ')?,
        };
        let (kind, rest) = rest.strip_prefix("unsafe ").unwrap_or(rest).split_once(' ')?;
        let is_type = ["struct", "enum", "trait", "type", "union"].contains(&kind);
        rest.split(|letter: char| !letter.is_alphanumeric()).next().filter(|_| is_type)
    }
    text.lines().filter_map(name).collect()
}

/// What is wrong with the names of the types in some sources, of which these are known to be shared.
fn faults(sources: &[(String, String)], shared: &[(&str, &[&str])]) -> Vec<String> {
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, text) in sources {
        for name in types(text) {
            let is_class = file.starts_with("python/") && CLASSES.contains(&name);
            if !is_class {
                files.entry(name).or_default().push(file);
            }
        }
    }
    let known: BTreeMap<&str, &[&str]> = shared.iter().copied().collect();
    let mut faults = Vec::new();
    for (name, files) in &files {
        if files.len() > 1 && known.get(name).is_none_or(|known| *known != files.as_slice()) {
            faults.push(format!("{name} is the name of types in {}: rename all but one", files.join(", ")));
        }
    }
    for (name, known) in shared.iter().filter(|(name, _)| files.get(name).is_none_or(|files| files.len() < 2)) {
        faults.push(format!("tests/rooms/names.rs: {name} is shared no more by {}; take it off", known.join(", ")));
    }
    faults
}

#[test]
fn no_two_types_share_a_name() {
    let mut sources = sources("src");
    sources.retain(|(name, _)| name.ends_with(".rs"));
    let faults = faults(&sources, SHARED);
    assert!(faults.is_empty(), "\n  {}\n", faults.join("\n  "));
}

#[test]
fn shared_names_are_found() {
    let of = |files: &[(&str, &str)], shared: &[(&str, &[&str])]| {
        let sources: Vec<_> = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        faults(&sources, shared).len()
    };
    let a = ("a.rs", "pub(crate) struct Lane<'a> {}\n");
    for text in ["pub struct Lane;", "pub(super) enum Lane {}", "pub(in crate::x) trait Lane {}", "pub type Lane = u8;"]
    {
        assert_eq!(of(&[a, ("b.rs", text)], &[]), 1, "{text}");
        assert_eq!(of(&[a, ("b.rs", text)], &[("Lane", &["a.rs", "b.rs"])]), 0, "{text}");
    }
    for text in ["struct Lane;", "    pub struct Lane;", "pub struct Lanes;", "pub fn lane() {}", "// pub struct Lane;"]
    {
        assert_eq!(of(&[a, ("b.rs", text)], &[]), 0, "{text}");
        assert_eq!(of(&[a, ("b.rs", text)], &[("Lane", &["a.rs", "b.rs"])]), 1, "{text}");
    }
    let tensor = "pub struct Tensor;";
    assert_eq!(of(&[("tensor.rs", tensor), ("python/tensor.rs", tensor)], &[]), 0);
}
