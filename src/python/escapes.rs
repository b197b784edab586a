//! How does Python write the characters that Rust's `{:?}` escapes in its own way?

use std::fmt::Write as _;

use arrow_schema::DataType;

/// Returns a text whose names are written as by `{:?}`, with Python's escapes instead: `\x7f` for `\u{7f}`, and `\x00` for `\0`.
pub(super) fn python_escapes(text: &str) -> String {
    let (mut written, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('\\') {
        written.push_str(before);
        if let Some((code, after)) = code_of(after) {
            // Writing to a string cannot fail.
            _ = match code {
                0..=0xff => write!(written, "\\x{code:02x}"),
                0x100..=0xffff => write!(written, "\\u{code:04x}"),
                _ => write!(written, "\\U{code:08x}"),
            };
            rest = after;
        } else {
            written.push('\\');
            let mut characters = after.chars();
            written.extend(characters.next());
            rest = characters.as_str();
        }
    }
    written.push_str(rest);
    written
}

/// Returns a message as [`python_escapes`] does, of its quoted parts alone: names are quoted, and what another library told may have
/// backslashes, such as those of a path.
pub(super) fn message(text: &str) -> String {
    let (mut written, mut rest) = (String::new(), text);
    while let Some((before, quoted)) = rest.split_once('"') {
        let end = end_of_quoted(quoted);
        let (quoted, after) = quoted.split_at(end);
        written.push_str(before);
        written.push('"');
        written.push_str(&python_escapes(quoted));
        rest = after;
    }
    written.push_str(rest);
    written
}

/// Where what stands behind a quote ends: behind the next quote that no backslash escapes.
fn end_of_quoted(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            '"' if !is_escaped => return at.saturating_add(1),
            _ => is_escaped = character == '\\' && !is_escaped,
        }
    }
    text.len()
}

/// The code of the character that an escape of Rust's stands for, without its backslash, and what follows.
fn code_of(escape: &str) -> Option<(u32, &str)> {
    if let Some(after) = escape.strip_prefix('0') {
        return Some((0, after));
    }
    let (digits, after) = escape.strip_prefix("u{")?.split_once('}')?;
    Some((u32::from_str_radix(digits, 16).ok()?, after))
}

/// Returns the text of an Arrow type, in which names of fields are quoted.
pub(super) fn type_text(data_type: &DataType) -> String {
    python_escapes(&data_type.to_string())
}

/// Returns a name as it is; quoted, if it has characters that do not print.
pub(super) fn bare_name(name: &str) -> String {
    let prints = |character: char| matches!(character, '"' | '\'' | '\\') || character.escape_debug().len() == 1;
    if name.chars().all(prints) { name.to_owned() } else { python_escapes(&format!("{name:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_names_in_messages_become_those_of_python() {
        for (name, written) in
            [("a\u{7f}", r#""a\x7f""#), ("q\"\0", r#""q\"\x00""#), ("\\", r#""\\""#), ("é'\n", r#""é'\n""#)]
        {
            let text = |name: &str| format!(r"C:\0\u{{41}} has {name}, and {name}: \0");
            assert_eq!(message(&text(&format!("{name:?}"))), text(written));
        }
        assert_eq!(message(r#"an open "\0"#), r#"an open "\x00"#);
        assert_eq!(message(r"C:\0"), r"C:\0");
    }

    #[test]
    fn escapes_of_rust_become_those_of_python() {
        for (text, expected) in [
            ("", r#""""#),
            ("a'é", r#""a'é""#),
            ("\0\u{7}\u{7f}\u{ad}", r#""\x00\x07\x7f\xad""#),
            ("\n\t\r\\\"", r#""\n\t\r\\\"""#),
            ("\u{200b}\u{e0001}", r#""\u200b\U000e0001""#),
            (r"\u{7f}\0", r#""\\u{7f}\\0""#),
        ] {
            assert_eq!(python_escapes(&format!("{text:?}")), expected);
        }
        assert_eq!(python_escapes(r"a\"), r"a\");
        assert_eq!([bare_name(r#"a '"\"#), bare_name("a\n"), bare_name("")], [r#"a '"\"#, r#""a\n""#, ""]);
    }
}
