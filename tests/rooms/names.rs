//! No two things share a name: a type that other files may use is called as no other such type.

use std::collections::{BTreeMap, BTreeSet};

use super::sources;

/// Python's classes have the names of what they hold.
const CLASSES: &[&str] = &["CopyLog", "Device", "Group", "Ragged", "Report", "ReportRow", "Tensor"];

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

/// What is wrong with the names of the types in some sources.
fn faults(sources: &[(String, String)]) -> Vec<String> {
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, text) in sources {
        for name in types(text) {
            let is_class = file.starts_with("python/") && CLASSES.contains(&name);
            if !is_class {
                files.entry(name).or_default().push(file);
            }
        }
    }
    let shared = files.iter().filter(|(_, files)| files.len() > 1);
    shared
        .map(|(name, files)| format!("{name} is the name of types in {}: rename all but one", files.join(", ")))
        .collect()
}

#[test]
fn no_two_types_share_a_name() {
    let mut sources = sources("src");
    sources.retain(|(name, _)| name.ends_with(".rs"));
    let faults = faults(&sources);
    assert!(faults.is_empty(), "\n  {}\n", faults.join("\n  "));
}

#[test]
fn shared_names_are_found() {
    let of = |files: &[(&str, &str)]| {
        let sources: Vec<_> = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        faults(&sources).len()
    };
    let a = ("a.rs", "pub(crate) struct Lane<'a> {}\n");
    for text in ["pub struct Lane;", "pub(super) enum Lane {}", "pub(in crate::x) trait Lane {}", "pub type Lane = u8;"]
    {
        assert_eq!(of(&[a, ("b.rs", text)]), 1, "{text}");
    }
    for text in ["struct Lane;", "    pub struct Lane;", "pub struct Lanes;", "pub fn lane() {}", "// pub struct Lane;"]
    {
        assert_eq!(of(&[a, ("b.rs", text)]), 0, "{text}");
    }
    let tensor = "pub struct Tensor;";
    assert_eq!(of(&[("tensor.rs", tensor), ("python/tensor.rs", tensor)]), 0);
}
