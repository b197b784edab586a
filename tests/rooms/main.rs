//! The architecture as a test: a room of the crate imports only from rooms above it, files of a room use each other one way
//! (circles.rs) and are short and on the map (sizes.rs), no two types share a name (names.rs), and unsafe code stays in its rooms
//! and says why it is sound (safety.rs).
//!
//! What it reads is source text, so it sees paths: `crate::…` and `super::…` in `use` lists, code and macros. It does not
//! see a method that one room adds to another room's type.

// It reads all sources, which takes Miri minutes, and has no pointer of ours.
#![cfg(not(miri))]
#![allow(clippy::indexing_slicing, clippy::expect_used, reason = "a checker that fails loudly is a test that fails")]

mod circles;
mod files;
mod names;
mod proofs;
mod public;
mod safety;
mod scan;
mod sizes;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use scan::scan;

/// Every room, from the top down. A room imports from itself and from rooms that stand before it in this list.
#[rustfmt::skip]
const ROOMS: &[&str] = &[
    "ffi",
    "callback", "error", "device", "dtype", "copy_log",
    "alloc",
    "categories",
    "spec", "plan",
    "cuda", "stream_order",
    "arrow",
    "tensor",
    "dlpack",
    "convert",
    "transfer", "kernels", "cuda_slice",
    "column", "batch", "matrix", "ragged", "explain", "conversion", "loader",
    "polars", "ndarray",
    "python",
    "lib",
];

/// The rooms that may hold unsafe code, or the files where a room is mostly safe.
#[rustfmt::skip]
const UNSAFE_ROOMS: &[&str] = &[
    "ffi", "alloc", "cuda", "stream_order", "tensor", "arrow", "dlpack", "convert", "transfer", "kernels", "cuda_slice",
    "polars/import", "polars/export", "ndarray", "python/capsule", "python/exchange", "python/tensor",
];

/// A name that only some rooms may use, and whether their tests are bound by that too.
struct Reserved {
    names: &'static [&'static str],
    rooms: &'static [&'static str],
    tests_too: bool,
}

const RESERVED: &[Reserved] = &[
    Reserved { names: &["unsafe"], rooms: UNSAFE_ROOMS, tests_too: true },
    // One place owns the rules of capsules: names, consumption, destructors.
    Reserved { names: &["PyCapsule", "PyCapsule_*"], rooms: &["python/capsule"], tests_too: false },
    // It panics without a driver, so the guard is kept beside every call.
    Reserved { names: &["cudarc"], rooms: &["cuda", "stream_order", "cuda_slice"], tests_too: true },
];

/// What catches the panics of a C callback's body.
#[rustfmt::skip]
const GUARDS: &[&str] = &[
    "callback::run", "callback::caught",
    // The callbacks of exported streams, and those of the exchange table: their bodies run in one place each.
    "exported::call", "exported::last_error", "answer",
];

impl Reserved {
    fn names(&self, word: &str) -> bool {
        self.names.iter().any(|name| match name.strip_suffix('*') {
            Some(start) => word.starts_with(start),
            None => word == *name,
        })
    }
}

#[test]
fn rooms_import_only_from_rooms_above() {
    let sources = sources("src");
    let mut report = check(&sources);
    report.faults.extend(phantoms(&sources));
    assert!(report.files > 0 && report.imports > 0, "nothing was checked: {report:?}");
    assert!(report.faults.is_empty(), "\n  {}\n", report.faults.join("\n  "));
}

/// Every file under a folder of the repository, by its path there; with its text, if it is Rust or Python.
fn sources(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files = Vec::new();
    list(&root, &mut files).expect("the folder is readable");
    let read = |file: &PathBuf| {
        let name = file.strip_prefix(&root).expect("listed under it").to_string_lossy().replace('\\', "/");
        let is_text = file.extension().is_some_and(|ext| ["rs", "py", "cu", "cuh"].iter().any(|text| ext == *text));
        (name, if is_text { fs::read_to_string(file).expect("a source is UTF-8") } else { String::new() })
    };
    files.iter().map(read).collect()
}

fn list(folder: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // An editor's swap file is not a source.
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        match (hidden, path.is_dir()) {
            (true, _) => {}
            (false, true) => list(&path, into)?,
            (false, false) => into.push(path),
        }
    }
    into.sort();
    Ok(())
}

#[derive(Debug, Default)]
struct Report {
    files: usize,
    imports: usize,
    faults: Vec<String>,
}

/// The rooms that this test lists, and in which there is no source.
fn phantoms(sources: &[(String, String)]) -> Vec<String> {
    let modules: Vec<String> = sources.iter().map(|(name, _)| module_of(name).join("/")).collect();
    let reserved = RESERVED.iter().flat_map(|rule| rule.rooms);
    let mut listed: Vec<&str> = ROOMS.iter().chain(reserved).filter(|room| **room != "lib").copied().collect();
    listed.sort_unstable();
    listed.dedup();
    listed.retain(|room| !modules.iter().any(|module| within(module, room)));
    listed.iter().map(|room| format!("the room {room} is listed in tests/rooms/main.rs, and has no file")).collect()
}

/// Checks sources given as (path under src, text).
fn check(sources: &[(String, String)]) -> Report {
    let mut report = Report::default();
    let mut scans = Vec::new();
    for (name, text) in sources {
        let module = module_of(name);
        let room = module.first().map_or("lib", String::as_str).to_owned();
        if !ROOMS.contains(&room.as_str()) || (room == "lib" && name != "lib.rs") {
            report.faults.push(format!("src/{name}: belongs to no room; give it one in tests/rooms/main.rs"));
        } else if name.ends_with(".rs") {
            scans.push((name, room, scan(module, text)));
        }
    }
    // `#[cfg(test)] mod tests;` makes a whole file, and what lies under it, test code.
    let test_modules: Vec<String> = scans.iter().flat_map(|(_, _, scan)| scan.test_modules.clone()).collect();
    for (name, room, scan) in scans {
        let module = scan.module.join("/");
        let is_test_file = test_modules.iter().any(|test| within(&module, test));
        let mut fault = |line: usize, what: String| report.faults.push(format!("src/{name}:{line}: {what}"));
        for (line, word, in_test) in scan.words {
            for rule in
                RESERVED.iter().filter(|rule| rule.names(&word) && (rule.tests_too || !(in_test || is_test_file)))
            {
                if !rule.rooms.iter().any(|allowed| within(&module, allowed)) {
                    fault(line, format!("`{word}` is only for {}", rule.rooms.join(", ")));
                }
            }
        }
        for callback in scan.callbacks.iter().filter(|_| !is_test_file) {
            if !callback.calls.iter().any(|call| GUARDS.contains(&call.as_str())) {
                let name = &callback.name;
                fault(callback.line, format!("a panic of `{name}` would end the process; use callback::run"));
            }
        }
        for (line, what) in scan.tricks {
            fault(line, format!("{what} hides imports from this test"));
        }
        for line in scan.filled.iter().filter(|_| !is_test_file) {
            fault(*line, "a `vec!` of that length may end the process; use alloc::fallible".to_owned());
        }
        if !is_test_file {
            let imports: BTreeSet<_> = scan.paths.iter().filter_map(|path| Some((path.line, path.room()?))).collect();
            report.imports += imports.len();
            for (line, to) in imports {
                if let Err(why) = allowed(&room, to) {
                    fault(line, why);
                }
            }
        }
        report.files += 1;
    }
    report
}

fn allowed(room: &str, to: &str) -> Result<(), String> {
    let place = |room: &str| ROOMS.iter().position(|other| *other == room);
    match place(to) {
        _ if room == "lib" => Ok(()),
        Some(target) if Some(target) <= place(room) => Ok(()),
        Some(_) => Err(format!("room {room} imports from {to}, which lies below it")),
        None => Err(format!("room {room} imports crate::{to}, which is no room: name the room that has it")),
    }
}

fn within(module: &str, room: &str) -> bool {
    module.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// `arrow/view.rs` is module `arrow::view`; `arrow/mod.rs` is `arrow`; `lib.rs` is the root.
fn module_of(name: &str) -> Vec<String> {
    let mut parts: Vec<String> = name.split('/').map(str::to_owned).collect();
    if let Some(stem) = parts.last().and_then(|last| last.strip_suffix(".rs")).map(str::to_owned) {
        parts.pop();
        if !(stem == "mod" && !parts.is_empty() || stem == "lib" && parts.is_empty()) {
            parts.push(stem);
        }
    }
    parts
}

/// The faults of one small crate, given as (file, text), without the places.
fn faults(sources: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<_> = sources.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    check(&sources).faults
}

#[test]
fn a_room_without_a_file_is_a_fault() {
    let own = |path: &str| (path.to_owned(), String::new());
    let listed = ROOMS.iter().chain(RESERVED.iter().flat_map(|rule| rule.rooms));
    let mut sources: Vec<_> = listed.filter(|room| **room != "lib").map(|room| own(&format!("{room}.rs"))).collect();
    assert_eq!(phantoms(&sources), [""; 0]);
    sources.retain(|(name, _)| name != "kernels.rs" && name != "python/tensor.rs");
    let found = phantoms(&sources);
    assert!(found.len() == 2 && found[0].contains("kernels") && found[1].contains("python/tensor"), "{found:?}");
    sources.push(own("kernels/check.rs"));
    assert_eq!(phantoms(&sources).len(), 1, "a folder is a room too");
}

#[test]
fn the_checker_finds_what_is_wrong() {
    for (name, text, expected) in [
        ("spec.rs", "use crate::plan::Plan;", "1: room spec imports from plan"),
        ("spec.rs", "\n\nuse crate::{dtype::{Dtype, *}, tensor};", "3: room spec imports from tensor"),
        ("spec.rs", "use {std::fmt, crate::{error::Error, plan::{Plan, Step}}};", "room spec imports from plan"),
        ("spec.rs", "pub use super::plan;", "room spec imports from plan"),
        ("arrow/view.rs", "use super::super::dlpack::import;", "room arrow imports from dlpack"),
        ("arrow/view.rs", "mod a { mod b { use super::super::super::super::convert::cast; } }", "imports from convert"),
        ("ffi/mod.rs", "use super::error::Error;", "room ffi imports from error"),
        ("tensor.rs", "fn f() -> crate::batch::Batch { todo!() }", "room tensor imports from batch"),
        (
            "arrow/view.rs",
            "fn f<'a>(x: &'a [Vec<crate::error::E<crate::tensor::T>>]) {}",
            "room arrow imports from tensor",
        ),
        ("error.rs", "macro_rules! m { () => { $crate::spec::f() } }", "room error imports from spec"),
        ("error.rs", "macro_rules! m { () => { use $crate::spec::f; } }", "room error imports from spec"),
        ("error.rs", "fn f() { arrow_dlpack::spec::g() }", "room error imports from spec"),
        ("error.rs", "use ::arrow_dlpack::{spec::g};", "room error imports from spec"),
        // A name at the crate root could lead anywhere.
        ("spec.rs", "struct A(pub (crate::plan::P, u8));", "room spec imports from plan"),
        ("spec.rs", "use crate::Tensor;", "imports crate::Tensor, which is no room"),
        ("spec.rs", "use crate::*;", "imports crate::*, which is no room"),
        ("spec.rs", "use crate as root;", "imports crate::{self}"),
        ("spec.rs", "use super::{self as root, dtype};", "imports crate::{self}"),
        ("spec.rs", "#[path = \"../plan.rs\"] mod plan;", "#[path] hides"),
        ("spec.rs", "include!(\"plan.rs\");", "include! hides"),
        // Only test modules are exempt.
        ("spec.rs", "#[cfg(test)] use std::fmt; use crate::plan::P;", "room spec imports from plan"),
        ("spec.rs", "#[cfg(not(test))] mod a { use crate::plan::P; }", "room spec imports from plan"),
        ("spec.rs", "#[cfg(test)] mod tests { mod deep {} } use crate::plan::P;", "room spec imports from plan"),
        // What looks like a comment, a string or a character must not hide what follows.
        ("spec.rs", "const A: &str = r#\"/*\"#; use crate::plan::P;", "room spec imports from plan"),
        ("spec.rs", "const A: [char; 2] = ['\"', '\\'']; use crate::plan::P;", "room spec imports from plan"),
        ("spec.rs", "const A: &str = \"\\\\\"; /* /* */ */ use crate::plan::P;", "room spec imports from plan"),
        // Names that only some rooms may use.
        ("spec.rs", "fn f() { unsafe { g() } }", "`unsafe` is only for ffi"),
        ("spec.rs", "#[cfg(test)] mod tests { unsafe fn f() {} }", "`unsafe` is only for ffi"),
        ("python/input.rs", "unsafe fn f() {}", "`unsafe` is only for ffi"),
        ("python/tensors.rs", "unsafe fn f() {}", "`unsafe` is only for ffi"),
        ("python/input.rs", "use pyo3::types::PyCapsule;", "`PyCapsule` is only for python/capsule"),
        ("python/input.rs", "fn f() { pyo3::ffi::PyCapsule_New() }", "`PyCapsule_New` is only for"),
        ("tensor.rs", "use cudarc::driver;", "`cudarc` is only for cuda, stream_order"),
        // No panic leaves a callback.
        ("ffi/a.rs", "extern \"C\" fn f(x: u8) -> u8 { g(x) }", "a panic of `f` would end the process"),
        ("ffi/a.rs", "pub extern \"C-unwind\" fn f<T: Fn(u8)>() { run(); callback::g() }", "a panic of `f`"),
        // Lengths that data may tell.
        ("spec.rs", "fn f(n: usize) { vec![0; n] }", "1: a `vec!` of that length"),
        ("spec.rs", "fn f(n: &[u8]) { smallvec![[0; 2]; n.len() + 1] }", "a `vec!` of that length"),
        // Files of no room.
        ("misc.rs", "", "src/misc.rs: belongs to no room"),
        ("bin/tool.rs", "", "src/bin/tool.rs: belongs to no room"),
        ("lib/a.rs", "", "src/lib/a.rs: belongs to no room"),
        ("kernels.cu", "", "src/kernels.cu: belongs to no room"),
    ] {
        let found = faults(&[(name, text)]);
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{name}: {text}\n  expected {expected}\n  found {found:?}"
        );
    }
}

#[test]
fn the_checker_accepts_what_is_right() {
    for (name, text) in [
        ("plan.rs", "use crate::{dtype::Dtype, spec::{self, Spec}};"),
        ("spec.rs", "mod rules { use super::Spec; use crate::spec::Other; } use self::rules::R; use rules::plan;"),
        ("arrow/view.rs", "use super::import::take; pub(in crate::arrow) fn f() { super::super::plan::g() }"),
        ("stream_order.rs", "use crate::cuda::Stream; use cudarc::driver;"),
        ("lib.rs", "mod plan; pub use plan::Plan; pub use crate::python::Class; pub(crate) mod spec;"),
        (
            "spec.rs",
            "//! crate::plan\n/// [`crate::plan::P`]\n/* use crate::plan; */ const A: &str = \"use crate::plan;\";",
        ),
        (
            "spec.rs",
            "const A: &[u8] = br##\"\"# crate::plan::f() \"##; const B: u8 = b'\"'; const C: &str = \"\\\" crate::plan\";",
        ),
        (
            "spec.rs",
            "#[cfg(test)]\n#[allow(unused, reason = \"x\")]\npub(crate) mod tests { use crate::{plan, python}; fn f() {} }",
        ),
        (
            "spec.rs",
            "#[cfg(all(test, feature = \"python\"))] mod tests { use crate::plan; mod deep { use crate::batch; } }",
        ),
        ("spec.rs", "fn f(self_: u8) -> impl Sized + use<'static> { |crate_: u8| crate_ } // unsafe"),
        ("spec.rs", "fn f() { (vec![0; 16], vec![0; MOST], vec![[0; n]], vec![|| { g(); h() }], [0; 2]) }"),
        ("spec.rs", "#[cfg(test)] mod tests { fn f(n: usize) { vec![0; n] } }"),
        ("python/capsule.rs", "use pyo3::types::PyCapsule; unsafe fn f() {}"),
        ("python/tensor/buffer.rs", "unsafe fn f() {}"),
        ("cuda/kernels.cu", ""),
        ("ffi/a.rs", "extern \"C\" fn f<T>(x: T) { callback::run(|| g(x), |_| ()) } extern \"C\" { fn g(x: u8); }"),
        ("ffi/a.rs", "struct A { f: Option<extern \"C\" fn(u8)> } type B = extern \"C\" fn(u8) -> u8; fn f() { g() }"),
        ("ffi/a.rs", "#[cfg(test)] mod tests { extern \"C\" fn f() { g() } }"),
    ] {
        assert_eq!(faults(&[(name, text)]), [""; 0], "{name}: {text}");
    }
    let test_file = [("spec/mod.rs", "#[cfg(test)] mod tests;"), ("spec/tests/a.rs", "use crate::plan::P;")];
    assert_eq!(faults(&test_file), [""; 0]);
    assert_eq!(faults(&test_file[1..]).len(), 1, "exempt only because its parent says so");
}
