//! The library has symbols of a driver of CUDA 12.0 and no others, with arguments of the widths that the bindings pass.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "calls a C library")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test fails by a panic, and its numbers are small"
)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use support::holds;

/// The arguments of each function, as the bytes that each takes.
type Functions = BTreeMap<String, Vec<u8>>;

/// How the names of the questions begin that only this driver answers.
const OWN: &str = "simulated_cuda_";

fn exported() -> Vec<String> {
    let library = support::library_folder().join("libcuda.so.1");
    let output =
        Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().expect("binutils are installed");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter_map(|line| line.split(' ').nth(2))
        .map(|name| name.split('@').next().unwrap().to_owned())
        .collect()
}

/// The source of the bindings, wherever cargo keeps it.
fn bindings() -> PathBuf {
    let cargo = env::var("CARGO").unwrap_or("cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let arguments = ["metadata", "--format-version", "1", "--offline", "--manifest-path"];
    let output = Command::new(cargo).args(arguments).arg(manifest).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let paths = text.split("\"manifest_path\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let path = paths.map(Path::new).find(|path| {
        path.parent().and_then(Path::file_name).is_some_and(|name| name.to_string_lossy().starts_with("cudarc-"))
    });
    path.unwrap().with_file_name("src").join("driver/sys/mod.rs")
}

/// The functions that the bindings have for CUDA 12.0.
fn of_cuda_12_0() -> Functions {
    let source = fs::read_to_string(bindings()).unwrap();
    let mut functions = Functions::new();
    let mut condition = "";
    for line in source.lines() {
        let all = condition.is_empty() || condition.contains("\"cuda-12000\"");
        if let Some(rest) = line.strip_prefix("pub unsafe fn ")
            && all
        {
            let (name, arguments) = declaration(rest);
            functions.insert(name, arguments);
        }
        condition = if line.starts_with("#[cfg(any(feature = \"cuda-") { line } else { "" };
    }
    functions
}

/// The functions that this crate declares.
fn of_this_driver() -> Functions {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/exports");
    let mut functions = Functions::new();
    for file in fs::read_dir(folder).unwrap() {
        let source = fs::read_to_string(file.unwrap().path()).unwrap();
        let starts = ["\n    fn cu", "\npub unsafe extern \"C\" fn cu"];
        for start in starts {
            for rest in source.split(start).skip(1) {
                let (name, arguments) = declaration(&format!("cu{rest}"));
                functions.insert(name, arguments);
            }
        }
    }
    functions
}

/// The name and the arguments of a declaration that begins with the name.
fn declaration(text: &str) -> (String, Vec<u8>) {
    let (name, rest) = text.split_once('(').unwrap();
    let (mut depth, mut arguments, mut current) = (1, Vec::new(), String::new());
    for letter in rest.chars() {
        match letter {
            '(' | '<' | '[' => depth += 1,
            ')' | '>' | ']' => depth -= 1,
            _ => {}
        }
        match letter {
            _ if depth == 0 => break,
            ',' if depth == 1 => arguments.push(std::mem::take(&mut current)),
            _ => current.push(letter),
        }
    }
    arguments.push(current);
    let typed = arguments.iter().filter_map(|argument| argument.split_once(": "));
    (name.to_owned(), typed.map(|(_, kind)| width(kind.trim())).collect())
}

/// The bytes that an argument of a type takes: handles and addresses eight, enumerations and the device four.
fn width(kind: &str) -> u8 {
    let name = kind.rsplit("::").next().unwrap();
    let wide = ["*", "Out<", "In<", "Option<", "Text"].iter().any(|start| kind.starts_with(start));
    match name {
        _ if wide => 8,
        "u64"
        | "usize"
        | "cuuint64_t"
        | "c_ulonglong"
        | "CUdeviceptr"
        | "CUcontext"
        | "CUstream"
        | "CUevent"
        | "CUmodule"
        | "CUmemGenericAllocationHandle"
        | "CUfunction"
        | "CUgraph"
        | "CUgraphExec"
        | "CUmemoryPool"
        | "CUhostFn" => 8,
        "u16" | "c_ushort" => 2,
        "u8" | "c_uchar" => 1,
        _ => 4,
    }
}

#[test]
fn every_symbol_is_one_of_cuda_12_0() {
    let (exported, known) = (exported(), of_cuda_12_0());
    assert!(known.len() > 350 && exported.len() > 120, "{} and {}", known.len(), exported.len());
    assert!(!known.contains_key("cuMemAdvise_v2"), "a function of a later version is taken for one of 12.0");
    let others: Vec<_> = exported.iter().filter(|name| !known.contains_key(*name) && !name.starts_with(OWN)).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn arguments_are_as_wide_as_the_bindings_pass_them() {
    let (ours, known) = (of_this_driver(), of_cuda_12_0());
    let exported = exported();
    for name in exported.iter().filter(|name| !name.starts_with(OWN)) {
        assert_eq!(ours.get(name), known.get(name), "{name}");
    }
    assert_eq!(ours.len(), exported.iter().filter(|name| !name.starts_with(OWN)).count());
}

#[test]
fn both_names_lead_to_the_same_driver() {
    holds("both_names_lead_to_the_same_driver", &[], |run| {
        support::open(0);
        for name in ["libcuda.so", "libcuda.so.1"] {
            // SAFETY: loading a driver runs nothing that depends on this process.
            let library = unsafe { libloading::Library::new(name) }.unwrap();
            // SAFETY: only this driver has a symbol of this name, and it is declared so.
            let calls =
                unsafe { library.get::<extern "C" fn(*const std::ffi::c_char) -> u64>(b"simulated_cuda_calls") };
            assert_eq!(calls.unwrap()(c"cuInit".as_ptr()), run.simulator.calls("cuInit"), "{name}");
        }
    });
}
