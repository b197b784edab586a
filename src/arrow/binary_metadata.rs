//! Metadata that is not UTF-8. arrow-rs holds text alone, so a field has text that leads back to the bytes, and exports
//! have the bytes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{c_char, c_void};

use crate::callback;
use crate::error::{Error, Result};
use crate::ffi::arrow_device::ArrowSchema;

/// Begins text that stands for bytes, with a character for each of them: a noncharacter, which Unicode leaves to
/// programs.
const MARK: char = '\u{10FFFE}';

/// Returns a key or a value of a schema's metadata as text. Different bytes have different texts.
pub(super) fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with(MARK) => text.into(),
        _ => std::iter::once(MARK).chain(bytes.iter().copied().map(char::from)).collect::<String>().into(),
    }
}

/// Returns the bytes that a text of [`text_of`] stands for: borrowed, if they are the text.
pub(super) fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.strip_prefix(MARK).map(|bytes| bytes.chars().map(u8::try_from).collect::<Result<Vec<_>, _>>());
    match bytes {
        Some(Ok(bytes)) if matches!(text_of(&bytes), Cow::Owned(_)) => bytes.into(),
        _ => text.as_bytes().into(),
    }
}

/// What a schema of arrow-rs loses while it has metadata of ours.
struct Displaced {
    /// The metadata of the schema.
    bytes: Vec<u8>,
    metadata: *const c_char,
    private_data: *mut c_void,
    release: unsafe extern "C" fn(*mut ArrowSchema),
}

/// Gives a schema the bytes of its field's metadata, where their text stands for bytes.
///
/// # Errors
/// If a key or a value is longer than the C data interface can say.
///
/// # Safety
/// A live schema that arrow-rs made of the field, and that nobody else reads meanwhile.
pub(super) unsafe fn export_bytes(metadata: &HashMap<String, String>, schema: &mut ArrowSchema) -> Result<()> {
    let is_text = |text: &String| matches!(bytes_of(text), Cow::Borrowed(_));
    let Some(release) = schema.release.filter(|_| !metadata.iter().all(|(key, value)| is_text(key) && is_text(value)))
    else {
        return Ok(());
    };
    let displaced = Box::new(Displaced {
        bytes: serialized(metadata)?,
        metadata: schema.metadata,
        private_data: schema.private_data,
        release,
    });
    // The bytes stay where they are: `release_bytes` alone takes them back.
    schema.metadata = displaced.bytes.as_ptr().cast();
    schema.private_data = Box::into_raw(displaced).cast();
    schema.release = Some(release_bytes);
    Ok(())
}

/// Returns metadata as the C data interface has it: the number of pairs, and the strings, each after its length.
fn serialized(metadata: &HashMap<String, String>) -> Result<Vec<u8>> {
    let count = |count: usize| {
        let count = i32::try_from(count).map(i32::to_ne_bytes);
        count.map_err(|_| Error::unsupported("metadata is longer than the C data interface can say"))
    };
    let mut bytes = Vec::from(count(metadata.len())?);
    for text in metadata.iter().flat_map(|(key, value)| [key, value]) {
        let string = bytes_of(text);
        bytes.extend(count(string.len())?);
        bytes.extend_from_slice(&string);
    }
    Ok(bytes)
}

/// Releases a schema with metadata of ours.
///
/// # Safety
/// The C data interface: NULL, or a schema that [`export_bytes`] changed and that is not released, wherever it was moved.
unsafe extern "C" fn release_bytes(schema: *mut ArrowSchema) {
    let body = || {
        // SAFETY: NULL, or a live schema that its owner releases, so nobody else reads it (a clause of `# Safety`).
        let Some(schema) = (unsafe { schema.as_mut() }) else { return };
        // SAFETY: `export_bytes` put a box of this type there, and a schema is released once (a clause of `# Safety`).
        let displaced = unsafe { Box::from_raw(schema.private_data.cast::<Displaced>()) };
        schema.metadata = displaced.metadata;
        schema.private_data = displaced.private_data;
        schema.release = Some(displaced.release);
        // SAFETY: the callback of arrow-rs, for a schema that is again as arrow-rs made it, and not released yet.
        unsafe { (displaced.release)(schema) };
    };
    // Nobody can be told of a panic.
    callback::run(body, drop);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{DataType, Field};

    use super::super::schema::read_schema;
    use super::super::{export_schema, read_field};
    use super::*;

    /// Keys and values that are text, that are none, and that look like the text of bytes.
    const STRINGS: [&[u8]; 9] = [
        b"",
        b"k",
        b"a\0b",
        b"\xff",
        b"\x80\x05\x95",
        "\u{fffd}".as_bytes(),
        "\u{10fffe}".as_bytes(),
        "\u{10fffe}\u{ff}".as_bytes(),
        "\u{10fffe}\u{100}".as_bytes(),
    ];

    #[test]
    fn different_bytes_are_different_texts_that_lead_back_to_them() {
        let texts = STRINGS.map(text_of);
        for (bytes, text) in STRINGS.iter().zip(&texts) {
            assert_eq!(bytes_of(text), *bytes, "{text:?}");
            assert_eq!(texts.iter().filter(|other| *other == text).count(), 1, "{text:?}");
            let is_text = std::str::from_utf8(bytes).is_ok_and(|text| !text.starts_with(MARK));
            assert_eq!(matches!(text, Cow::Borrowed(_)), is_text, "{text:?}");
        }
        for text in ["\u{10fffe}\u{100}", "\u{10fffe}abc", "\u{10fffe}"] {
            assert_eq!(bytes_of(text), text.as_bytes(), "text that nobody made of bytes");
        }
    }

    #[test]
    fn exports_have_the_bytes_on_each_level_and_are_released_once() {
        let metadata = |numbers: std::ops::Range<usize>| {
            let text = |number: usize| text_of(STRINGS[number % STRINGS.len()]).into_owned();
            numbers.map(|number| (text(number), text(number + 1))).collect::<HashMap<_, _>>()
        };
        let leaf = Field::new("item", DataType::Int8, true);
        let list = DataType::List(Arc::new(leaf.with_metadata(metadata(2..5))));
        let codes = DataType::Dictionary(Box::new(DataType::Int8), Box::new(list.clone()));
        let children = [Field::new("l", list, true), Field::new("d", codes, true).with_metadata(metadata(3..4))];
        let field = Field::new("", DataType::Struct(children.into_iter().collect()), false);
        for field in [field.clone(), field.with_metadata(metadata(0..9))] {
            let mut schema = export_schema(&field).unwrap().into_raw();
            // SAFETY: a schema that was just made.
            assert_eq!(unsafe { read_schema(&schema) }.unwrap(), field);
            // SAFETY: a schema that was just made.
            let (first, second) = (unsafe { read_field(&schema) }.unwrap(), unsafe { read_field(&schema) }.unwrap());
            assert!(Arc::ptr_eq(&first, &second) && *first == field);
            // SAFETY: released once, by its owner.
            unsafe { schema.release.unwrap()(&raw mut schema) };
            assert!(schema.release.is_none());
        }
    }

    #[test]
    fn the_bytes_of_an_export_are_those_that_were_read() {
        let bytes = [&2_i32.to_ne_bytes()[..], &1_i32.to_ne_bytes(), b"\xff", &2_i32.to_ne_bytes(), b"\xfe\0"].concat();
        let bytes = [&bytes[..], &1_i32.to_ne_bytes(), b"k", &0_i32.to_ne_bytes()].concat();
        let mut schema = export_schema(&Field::new("x", DataType::Int8, true)).unwrap().into_raw();
        let own = std::mem::replace(&mut schema.metadata, bytes.as_ptr().cast());
        // SAFETY: a schema of our own, with metadata that live until the end of this test.
        let field = unsafe { read_schema(&schema) }.unwrap();
        schema.metadata = own;
        // SAFETY: released once, by its owner.
        unsafe { schema.release.unwrap()(&raw mut schema) };
        let one = HashMap::from([(text_of(b"\xff").into_owned(), text_of(b"\xfe\0").into_owned())]);
        assert_eq!(serialized(&one).unwrap()[4..], bytes[4..15]);
        assert_eq!(field.metadata().len(), 2);
        assert_eq!(field.metadata().get(&*text_of(b"\xff")).map(|value| bytes_of(value)).unwrap().as_ref(), b"\xfe\0");
    }
}
