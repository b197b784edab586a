//! Tests of the table of remedies, and of the words in all other errors.

use std::fs;
use std::path::Path;

use super::*;

/// Whether a text has a keyword argument, a literal or a call of Python's.
fn is_python(text: &str) -> bool {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut parts = text.split('=').peekable();
    let mut has_keyword = false;
    while let Some(before) = parts.next() {
        let is_named = before.ends_with(|last: char| last.is_ascii_lowercase());
        has_keyword |= is_named && parts.peek().is_some_and(|after| !after.starts_with('=') && !before.is_empty());
    }
    let words = [
        "True",
        "False",
        "xp",
        "validity()",
        "to_device(\"cpu\")",
        "binary()",
        "\"spawn\"",
        "\"float64\"",
        "\"count\"",
        "dtype out",
    ];
    has_keyword
        || words.iter().any(|word| {
            text.match_indices(word).any(|(at, _)| {
                let (before, after) = (&text[..at], &text[at + word.len()..]);
                !before.ends_with(is_word) && !after.starts_with(is_word)
            })
        })
}

/// The string literals of a source outside of comments and tests, unescaped.
fn literals(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut found = Vec::new();
    for line in code.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        let line = line.replace("\\\"", "\u{1}").replace("'\"'", "");
        found.extend(line.split('"').skip(1).step_by(2).map(|literal| literal.replace('\u{1}', "\"")));
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push((path.to_string_lossy().replace('\\', "/"), fs::read_to_string(&path).unwrap()));
        }
    }
}

fn all_sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found
}

#[test]
fn each_language_is_told_in_its_own_words() {
    for (name, rust, python) in Remedy::TABLE {
        assert!(!is_python(rust), "{name}: {rust}");
        assert!(!python.contains("::"), "{name}: {python}");
        assert_ne!(rust, python, "{name} needs no row");
    }
    let remedy = Remedy::from("do without").or(Remedy::ColumnAlone { column: "\"e\"".to_owned() });
    assert_eq!(
        remedy.told_in(Language::Python).to_string(),
        "do without, or convert it by itself, to_tensor(data[\"e\"]), or leave it out with columns="
    );
    assert_eq!(
        remedy.told_in(Language::Rust).to_string(),
        "do without, or convert it by itself, or leave \"e\" out of the columns"
    );
}

#[test]
#[cfg_attr(miri, ignore = "it reads all sources, which takes Miri minutes and has no pointer of ours")]
fn the_words_of_rust_are_items_that_there_are() {
    let code: String = all_sources().into_iter().map(|(_, text)| text).collect();
    let mut seen = 0;
    for (name, rust, _) in Remedy::TABLE {
        let words = rust.split(|character: char| !(character.is_alphanumeric() || "_:".contains(character)));
        for (owner, item) in words
            .filter_map(|word| word.trim_end_matches(':').rsplit_once("::"))
            .filter(|(owner, _)| *owner != "DataType")
        {
            let owners = ["struct ", "enum ", "mod "].map(|kind| format!("pub {kind}{owner}"));
            let items = [
                format!("fn {item}("),
                format!("fn {item}<"),
                format!("    {item},"),
                format!("pub {item}: "),
                format!("const {item}: "),
                format!("    {item}("),
                format!("{item} = "),
            ];
            assert!(owners.iter().any(|owner| code.contains(owner)), "{name}: {owner}");
            assert!(items.iter().any(|item| code.contains(item)), "{name}: {item}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
#[cfg_attr(miri, ignore = "it reads all sources, which takes Miri minutes and has no pointer of ours")]
fn the_core_speaks_python_in_this_table_alone() {
    assert!(is_python("pass copy=None") && is_python("leave it out with columns=") && !is_python("a == b"));
    let (mut read, mut faults) = (0, Vec::new());
    for (path, text) in all_sources() {
        if path.contains("/src/python/") || path.ends_with("/error/remedy.rs") || path.ends_with("/tests.rs") {
            continue;
        }
        read += 1;
        faults.extend(
            literals(&text).into_iter().filter(|literal| is_python(literal)).map(|text| format!("{path}: {text}")),
        );
    }
    assert!(read > 100 && faults.is_empty(), "{read} files\n{}", faults.join("\n"));
}
