//! Files are short, and each file of the crate is on the map in docs/design.md.

use super::sources;

/// A file is at most so long: it answers one question.
const LINES: usize = 500;

/// Longer tests, and why.
const LONGER: &[(&str, &str)] = &[
    ("tests/python/interop/arrays.py", "one class, from whose cases those of each library derive"),
    ("tests/python/producers.py", "the structs of both protocols, and what makes them, for every test"),
];

#[test]
fn files_are_short() {
    for folder in ["src", "tests", "python", "examples", "benches"] {
        for (name, text) in sources(folder) {
            let (name, lines) = (format!("{folder}/{name}"), text.lines().count());
            let reason = LONGER.iter().find(|(file, _)| *file == name);
            match reason {
                None => assert!(lines <= LINES, "{name} has {lines} lines; split it by meaning"),
                Some(_) => assert!(lines > LINES, "{name} is short, and needs no reason in tests/rooms/sizes.rs"),
            }
        }
    }
    for (name, reason) in LONGER {
        assert!(name.starts_with("tests/") && !reason.is_empty(), "{name}");
        assert!(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name).exists(), "{name} is no file");
    }
}

/// The files and folders that the table of rooms names, without `src/`.
fn map(document: &str) -> Vec<String> {
    let rows = document.lines().filter(|line| line.starts_with("| `src/"));
    let cells = rows.filter_map(|row| row.split('`').nth(1));
    let named = cells.flat_map(str::split_whitespace);
    named.map(|name| name.strip_prefix("src/").unwrap_or(name).to_owned()).collect()
}

/// What of the map is no file or folder, and which files the map does not lead to: by name, or by that of a folder or of a file
/// with such a folder (`column.rs` and `column/`).
fn lost(map: &[String], files: &[String]) -> Vec<String> {
    let leads = |place: &String, file: &str| {
        let folder = place.strip_suffix(".rs").unwrap_or(place.trim_end_matches('/'));
        file == place || file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    };
    let nowhere = map.iter().filter(|place| !files.iter().any(|file| leads(place, file)));
    let off = files.iter().filter(|file| *file != "lib.rs" && !map.iter().any(|place| leads(place, file)));
    let nowhere = nowhere.map(|place| format!("docs/design.md: src/{place} is no file or folder"));
    nowhere.chain(off.map(|file| format!("src/{file}: is not on the map in docs/design.md"))).collect()
}

#[test]
fn every_file_is_on_the_map() {
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/design.md"));
    let map = map(&document.expect("docs/design.md is UTF-8"));
    assert!(map.len() > 10, "the table of rooms was not found: {map:?}");
    let files: Vec<String> = sources("src").into_iter().map(|(name, _)| name).collect();
    assert_eq!(lost(&map, &files), [""; 0]);
}

#[test]
fn files_off_the_map_are_found() {
    let map = map(
        "| room | for |\n|---|---|\n| `src/ffi/` | structs |\n| `src/error.rs column.rs` | more |\n| `x.rs` | no room |",
    );
    assert_eq!(map, ["ffi/", "error.rs", "column.rs"]);
    let files = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let all = files(&["lib.rs", "ffi/a.rs", "ffi/b/c.cu", "error.rs", "column.rs", "column/cast.rs"]);
    assert_eq!(lost(&map, &all), [""; 0]);
    assert_eq!(lost(&map, &files(&["ffi/a.rs", "error.rs"])).len(), 1);
    assert_eq!(lost(&map, &[all, files(&["columns.rs", "ffii/a.rs", "errors/a.rs"])].concat()).len(), 3);
}
