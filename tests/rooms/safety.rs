//! A SAFETY comment is an argument: it names the clause that unsafe code rests on, and what discharges it.

use super::sources;

/// Words that point at an argument that stands elsewhere. A comment does not begin with them; nor does it speak of a contract,
/// where it can name the clause.
const POINTERS: &[&str] = &["the contract", "as above", "as this function's contract", "by this function's contract"];
/// Words that may begin an argument, but are none without another clause.
const ALONE: &[&str] = &["as for", "as in", "as with", "the same", "our own clauses", "see", "ditto", "likewise"];

#[test]
fn safety_comments_name_what_they_rest_on() {
    let mut comments = 0;
    for folder in ["src", "tests", "python", "fuzz/fuzz_targets", "fuzz/src"] {
        let found: Vec<_> =
            sources(folder).into_iter().map(|(name, text)| (format!("{folder}/{name}"), text)).collect();
        for (name, text) in found {
            for (line, comment) in safety_comments(&text) {
                comments += 1;
                assert!(
                    !says_nothing(&comment),
                    "{name}:{line}: SAFETY: {comment}\n  name the clause, and what discharges it"
                );
            }
        }
    }
    assert!(comments > 500, "{comments} comments were found: the test looks for them in the wrong way");
}

/// The SAFETY comments of a source, each with the number of its first line, its lines joined.
fn safety_comments(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let first = lines.iter().enumerate().filter_map(|(index, line)| Some((index, line.strip_prefix("// SAFETY:")?)));
    first
        .map(|(index, start)| {
            let more = lines.iter().skip(index + 1).map_while(|line| line.strip_prefix("// "));
            let parts: Vec<&str> = std::iter::once(start).chain(more).map(str::trim).collect();
            (index + 1, parts.join(" "))
        })
        .collect()
}

/// Whether a comment only points at an argument.
fn says_nothing(comment: &str) -> bool {
    let comment = comment.trim().trim_end_matches('.').to_lowercase();
    let begins_with =
        |words: &&str| comment.strip_prefix(*words).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
    let has_one_clause = !comment.contains([',', ';', ':', '.']);
    comment.is_empty()
        || comment.contains("contract")
        || POINTERS.iter().any(begins_with)
        || (has_one_clause && ALONE.iter().any(begins_with))
}

#[test]
fn a_comment_that_only_points_elsewhere_is_found() {
    for comment in [
        "",
        "the contract.",
        "The contract: a line.",
        "as above",
        "As above; bytes need no alignment.",
        "as for `Send`.",
        "as in `from_arrow_rs`.",
        "As this function's contract.",
        "attached (contract).",
        "the same.",
    ] {
        assert!(says_nothing(comment), "{comment:?}");
    }
    for comment in [
        "`index < len`, so inside the buffer.",
        "as for `Send`; no method changes the tensor.",
        "the same bytes, which nobody writes.",
        "a fresh block.",
        "as many bytes as `out` has.",
    ] {
        assert!(!says_nothing(comment), "{comment:?}");
    }
    let source = "    // SAFETY: as\n    // above.\n    unsafe { f() }\n    /// # Safety\n    // SAFETY: a line\n    let text = \"// SAFETY: x\";";
    assert_eq!(safety_comments(source), [(1, "as above.".to_owned()), (5, "a line".to_owned())]);
}
