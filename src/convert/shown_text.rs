//! The text that the views of an array show: its bytes, and a copy of it alone, so that no other text is kept alive.

use std::ops::Range;

use arrow_buffer::Buffer;
use arrow_data::{ArrayData, ByteView, MAX_INLINE_VIEW_LEN};
use arrow_schema::DataType;

use super::repeat::copied_bytes;
use crate::alloc::fallible;
use crate::error::{Error, Result};

/// The most bytes of one buffer of text, whose offsets have 31 bits.
const MOST: usize = if cfg!(any(test, miri)) { 100 } else { (1 << 31) - 1 };

/// The views of these rows, those of nulls as views of no text.
fn views(data: &ArrayData, rows: Range<usize>) -> impl Iterator<Item = u128> {
    let stored = data.buffers().first().map_or(&[][..], |_| data.buffer::<u128>(0));
    let shown = stored.get(rows.start..rows.end.min(data.len())).unwrap_or(&[]);
    let is_null = |row| data.nulls().is_some_and(|nulls| nulls.is_null(row));
    rows.zip(shown).map(move |(row, view)| if is_null(row) { 0 } else { *view })
}

/// All text of an array that is not in its views.
fn all_bytes(data: &ArrayData) -> usize {
    data.buffers().iter().skip(1).map(Buffer::len).fold(0, usize::saturating_add)
}

/// The bytes of the texts that are not in their views, each as often as it is shown.
fn repeated_bytes(data: &ArrayData, rows: &Range<usize>) -> usize {
    views(data, rows.clone()).map(outside).fold(0, usize::saturating_add)
}

/// The length of a text that is not in its view; 0 for one that is.
fn outside(view: u128) -> usize {
    let length = ByteView::from(view).length;
    if length > MAX_INLINE_VIEW_LEN { usize::try_from(length).unwrap_or(usize::MAX) } else { 0 }
}

/// Returns the bytes of the texts of these rows that are not in their views; of texts that several rows show, at most all of the array.
pub(super) fn shown_bytes(data: &ArrayData, rows: &Range<usize>) -> usize {
    repeated_bytes(data, rows).min(all_bytes(data))
}

/// Returns the array with buffers of the text that its views show, of those of its children too; dictionaries keep theirs, and so does
/// an array whose views show more than that, because several show one text.
///
/// # Errors
/// If a view shows no bytes of the array, or an allocation fails.
pub(super) fn with_shown_text(data: ArrayData) -> Result<ArrayData> {
    match data.data_type() {
        DataType::Utf8View | DataType::BinaryView => gathered(&data),
        DataType::Dictionary(_, _) => Ok(data),
        _ if data.child_data().is_empty() => Ok(data),
        _ => {
            let children = data.child_data().iter().cloned().map(with_shown_text).collect::<Result<_>>()?;
            // SAFETY: children of the same types and lengths, with the same values.
            Ok(unsafe { data.into_builder().child_data(children).build_unchecked() })
        }
    }
}

fn gathered(data: &ArrayData) -> Result<ArrayData> {
    let texts = data.buffers().get(1..).unwrap_or(&[]);
    let mut left = repeated_bytes(data, &(0..data.len()));
    if left > all_bytes(data) {
        return Ok(data.clone());
    }
    let (mut made, mut buffers) = (fallible::with_room(data.len())?, Vec::new());
    let mut text: Vec<u8> = Vec::new();
    for (row, view) in views(data, 0..data.len()).enumerate() {
        let length = outside(view);
        if length == 0 {
            made.push(view);
            continue;
        }
        let shown = ByteView::from(view);
        let place = usize::try_from(shown.buffer_index).ok().zip(usize::try_from(shown.offset).ok());
        let bytes = place.and_then(|(buffer, at)| texts.get(buffer)?.as_slice().get(at..at.checked_add(length)?));
        if text.capacity() - text.len() < length {
            if !text.is_empty() {
                fallible::push(&mut buffers, Buffer::from_vec(std::mem::take(&mut text)))?;
            }
            text = fallible::with_room(left.min(MOST).max(length))?;
        }
        let offset = u32::try_from(text.len()).map_err(|_| beyond(row))?;
        let buffer_index = u32::try_from(buffers.len()).map_err(|_| beyond(row))?;
        text.extend_from_slice(bytes.ok_or_else(|| beyond(row))?);
        left = left.saturating_sub(length);
        made.push(ByteView { buffer_index, offset, ..shown }.as_u128());
    }
    if !text.is_empty() {
        fallible::push(&mut buffers, Buffer::from_vec(text))?;
    }
    let copy = ArrayData::builder(data.data_type().clone()).len(data.len()).nulls(data.nulls().cloned());
    let copy = copy.add_buffer(Buffer::from_vec(made)).add_buffers(buffers);
    // SAFETY: a view for each slot of a valid array, with the text of that slot where the view says.
    Ok(unsafe { copy.build_unchecked() })
}

/// Returns copies of the views of an array and of the text that they show: gathered where that lies apart, else what lies between the first
/// and the last byte that they show of each buffer.
///
/// # Errors
/// If a view shows no bytes of the array, or an allocation fails.
pub(super) fn copied_text(data: &ArrayData) -> Result<Vec<Buffer>> {
    let spans = shown_spans(data)?;
    let spanned = spans.iter().map(Range::len).fold(0, usize::saturating_add);
    if repeated_bytes(data, &(0..data.len())) <= spanned / 2 {
        return fallible::collected(gathered(data)?.buffers().iter().cloned().map(Ok));
    }
    let (mut indices, mut copies) = (fallible::with_room(spans.len())?, Vec::new());
    for (text, span) in data.buffers().iter().skip(1).zip(&spans) {
        indices.push(u32::try_from(copies.len()).unwrap_or_default());
        if let Some(text) = text.get(span.clone()).filter(|text| !text.is_empty()) {
            fallible::push(&mut copies, copied_bytes(text)?)?;
        }
    }
    let mut made = fallible::with_room(data.len())?;
    for view in views(data, 0..data.len()) {
        let shown = ByteView::from(view);
        let buffer = usize::try_from(shown.buffer_index).unwrap_or(usize::MAX);
        let place = spans.get(buffer).zip(indices.get(buffer)).filter(|_| outside(view) > 0);
        made.push(place.map_or(view, |(span, buffer_index)| {
            // The span starts at or before each of its texts.
            let offset = shown.offset.saturating_sub(u32::try_from(span.start).unwrap_or_default());
            ByteView { buffer_index: *buffer_index, offset, ..shown }.as_u128()
        }));
    }
    fallible::collected(std::iter::once(Buffer::from_vec(made)).chain(copies).map(Ok))
}

/// Returns of each buffer of text the bytes from the first to the last one that a view shows.
fn shown_spans(data: &ArrayData) -> Result<Vec<Range<usize>>> {
    let texts = data.buffers().get(1..).unwrap_or(&[]);
    let mut spans = fallible::filled(texts.len(), (usize::MAX, 0))?;
    for (row, view) in views(data, 0..data.len()).enumerate() {
        let length = outside(view);
        if length == 0 {
            continue;
        }
        let shown = ByteView::from(view);
        let place = usize::try_from(shown.buffer_index).ok().zip(usize::try_from(shown.offset).ok());
        let found = place.and_then(|(buffer, start)| {
            let end =
                start.checked_add(length).filter(|end| texts.get(buffer).is_some_and(|text| *end <= text.len()))?;
            Some((spans.get_mut(buffer)?, start, end))
        });
        let ((first, last), start, end) = found.ok_or_else(|| beyond(row))?;
        (*first, *last) = ((*first).min(start), (*last).max(end));
    }
    fallible::collected(spans.into_iter().map(|(first, last)| Ok(first.min(last)..last)))
}

fn beyond(row: usize) -> Error {
    Error::invalid("a view shows no bytes of the array").at_row(row)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, ArrayRef, ListArray, StringViewArray, make_array};
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::Field;

    use super::*;

    fn words() -> StringViewArray {
        let word = |row: usize| match row % 4 {
            0 => None,
            1 => Some(format!("word {row}")),
            _ => Some(format!("a word of more than twelve bytes, number {row}")),
        };
        StringViewArray::from_iter((0..40).map(word))
    }

    #[test]
    fn the_text_that_is_shown_is_copied_and_no_other() {
        let words = words();
        for (from, length) in [(0, 40), (3, 20), (9, 1), (5, 0)] {
            let rows = words.slice(from, length);
            let made = with_shown_text(rows.to_data()).unwrap();
            made.validate_full().unwrap();
            let text: usize = rows.iter().flatten().map(str::len).filter(|length| *length > 12).sum();
            assert_eq!(shown_bytes(&words.to_data(), &(from..from + length)), text);
            let buffers: Vec<usize> = made.buffers()[1..].iter().map(Buffer::len).collect();
            assert_eq!(buffers.iter().sum::<usize>(), text);
            assert!(buffers.iter().all(|length| (1..=MOST).contains(length)), "{buffers:?}");
            assert_eq!(StringViewArray::from(made), rows);
        }
    }

    fn with_copied_text(data: &ArrayData) -> ArrayData {
        let copy = ArrayData::builder(data.data_type().clone()).len(data.len()).nulls(data.nulls().cloned());
        let copy = copy.buffers(copied_text(data).unwrap()).build().unwrap();
        copy.validate_full().unwrap();
        copy
    }

    #[test]
    fn a_copy_has_the_text_between_the_first_and_the_last_that_is_shown() {
        let words = words();
        for (from, length) in [(0, 40), (3, 20), (9, 1), (5, 0), (0, 2)] {
            let rows = words.slice(from, length);
            let made = with_copied_text(&rows.to_data());
            let text: usize = rows.iter().flatten().map(str::len).filter(|length| *length > 12).sum();
            assert_eq!(all_bytes(&made), text, "{from} {length}");
            assert_eq!(StringViewArray::from(made), rows);
        }
        // Two texts at the ends of a buffer, and one text that all rows show.
        let text = Buffer::from_vec(vec![b'x'; 1000]);
        let far = |offset| ByteView::new(20, b"xxxx").with_offset(offset).as_u128();
        for (offsets, bytes) in [(vec![0, 980], 40), (vec![500; 9], 20), (vec![100, 110, 115], 35)] {
            let views: Vec<u128> = offsets.iter().map(|offset| far(*offset)).collect();
            let data = ArrayData::builder(DataType::Utf8View).len(views.len()).add_buffer(Buffer::from_vec(views));
            let data = data.add_buffer(text.clone()).build().unwrap();
            let made = with_copied_text(&data);
            assert_eq!((all_bytes(&made), StringViewArray::from(made)), (bytes, StringViewArray::from(data)));
        }
    }

    #[test]
    fn a_text_that_many_rows_show_is_there_once() {
        let word = ByteView::new(30, b"a wo").as_u128();
        let text = Buffer::from_vec(b"a word of more than twelve bytes".to_vec());
        let views = Buffer::from_vec(vec![word; 50]);
        let data = ArrayData::builder(DataType::Utf8View).len(50).add_buffer(views).add_buffer(text).build().unwrap();
        assert_eq!(with_shown_text(data.clone()).unwrap(), data);
        assert_eq!([0..1, 0..50, 9..9, 49..60].map(|rows| shown_bytes(&data, &rows)), [30, 32, 0, 30]);
    }

    #[test]
    fn items_and_texts_under_nulls_are_no_exception() {
        let words = words();
        let field = Arc::new(Field::new("item", words.data_type().clone(), true));
        let lists: ArrayRef =
            Arc::new(ListArray::new(field, OffsetBuffer::from_lengths([3, 0, 5]), Arc::new(words.slice(2, 8)), None));
        let made = make_array(with_shown_text(lists.to_data()).unwrap());
        assert_eq!(&made, &lists);
        assert!(made.get_buffer_memory_size() < words.get_buffer_memory_size());
        // A view under a null may be anything.
        let nulls = vec![false, true].into();
        let views = vec![u128::MAX, 1 | u128::from(b'x') << 32];
        let data = ArrayData::builder(DataType::Utf8View).len(2).nulls(Some(nulls)).add_buffer(Buffer::from_vec(views));
        // SAFETY: the only valid view has its text.
        let made = with_shown_text(unsafe { data.build_unchecked() }).unwrap();
        assert_eq!(StringViewArray::from(made).iter().collect::<Vec<_>>(), [None, Some("x")]);
    }
}
