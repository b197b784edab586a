//! Does tests/cuda/proofs.txt name, for each numbered wait, a test that there is?

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::sources;

const WAITS: &str = "src/stream_order/waits.rs";
const PROOFS: &str = "tests/cuda/proofs.txt";

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join(path)).expect(path)
}

/// Numbers and names of the waits: lines such as `Name = 1,`.
fn waits(source: &str) -> BTreeMap<u32, String> {
    let numbered = |line: &str| {
        let (name, number) = line.trim().strip_suffix(',')?.split_once(" = ")?;
        Some((number.parse().ok()?, name.to_owned()))
    };
    source.lines().filter_map(numbered).collect()
}

/// Whether a test is there: `tests/python/file.py::Class::test_name[case]`, or `module::test_name` of a Rust program.
fn is_there(test: &str) -> bool {
    let named = |source: &str, name: &str, keyword: &str| source.contains(&format!("{keyword} {name}("));
    let name = test.rsplit("::").next().unwrap_or(test);
    let name = name.split('[').next().unwrap_or(name);
    match test.split_once("::") {
        Some((file, _)) if file.ends_with(".py") => named(&read(file), name, "def"),
        Some(("stream_order", _)) => named(&read("src/stream_order/tests.rs"), name, "fn"),
        Some((module, _)) => named(&read(&format!("tests/cuda/{module}.rs")), name, "fn"),
        None => false,
    }
}

/// What is wrong with the proofs of these waits.
fn complaints(waits: &BTreeMap<u32, String>, proofs: &str) -> Vec<String> {
    let mut missing = waits.clone();
    let mut wrong = Vec::new();
    for line in proofs.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [number, name, schedule, test @ ..] = words.as_slice() else {
            wrong.push(format!("no proof: {line}"));
            continue;
        };
        let found = number.parse().ok().and_then(|number| missing.remove(&number));
        if found.as_deref() != Some(*name) {
            wrong.push(format!("{number} {name} is no wait, or is proven twice"));
        }
        let is_schedule = ["lazy", "eager"].contains(schedule) || schedule.starts_with("random:");
        if !is_schedule || !is_there(&test.join(" ")) {
            wrong.push(format!("{name}: no test {} under {schedule}", test.join(" ")));
        }
    }
    wrong.extend(missing.values().map(|name| format!("{name} has no proof: run `make prove-waits`")));
    wrong
}

#[test]
fn each_wait_has_a_proof() {
    let waits = waits(&read(WAITS));
    assert!(waits.len() > 40, "the waits of {WAITS} were not found");
    assert_eq!(complaints(&waits, &read(PROOFS)), Vec::<String>::new());
}

#[test]
fn what_is_wrong_with_proofs_is_seen() {
    let waits = waits("    First = 1,\n    Second = 2,\n");
    let good = " 1 First  lazy  order::a_named_stream_waits_for_the_producers_event\n";
    let other = "2 Second eager tests/python/cuda/test_release.py::test_behind_recorded_streams[x y]\n";
    assert!(complaints(&waits, &format!("# a comment\n{good}{other}")).is_empty());
    for bad in [
        good.to_owned(),
        format!("{good}{good}{other}"),
        format!("{good}{other}3 Third lazy order::a_named_stream_waits_for_the_producers_event\n"),
        format!("{good}{}", other.replace("eager", "slow")),
        format!("{good}{}", other.replace("recorded_streams", "no_streams")),
        format!("{good}{}", other.replace("Second", "Other")),
        format!("{other}1 First\n"),
    ] {
        assert!(!complaints(&waits, &bad).is_empty(), "{bad}");
    }
}

/// Tests leave its calls out when they count how often the host waits: a call from elsewhere would be a wait that none of them sees.
#[test]
fn the_reaper_alone_synchronises_with_events() {
    let callers = |call: &str| -> Vec<String> {
        sources("src").into_iter().filter(|(_, text)| text.contains(call)).map(|(name, _)| name).collect()
    };
    assert_eq!(callers("event_synchronize("), ["cuda/event.rs"]);
    assert_eq!(callers("event.synchronize()"), ["stream_order/reaper.rs"]);
}
