//! Blanks what lies under nulls, where it is no text or no view: Arrow says nothing of it, and arrow-rs looks at it.

use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use crate::alloc::fallible;
use crate::error::Result;

/// Returns the array with copies of its texts and views, at all levels, that are zeros under nulls.
///
/// # Errors
/// If an allocation fails.
pub(super) fn blanked(data: &ArrayData) -> Result<ArrayData> {
    let children = fallible::collected(data.child_data().iter().map(blanked))?;
    let mut buffers = fallible::copied(data.buffers())?;
    if let Some(nulls) = data.nulls().filter(|nulls| nulls.null_count() > 0) {
        let blank = match data.data_type() {
            DataType::Utf8 => blank_text::<i32>(data, nulls)?.map(|text| (1, text)),
            DataType::LargeUtf8 => blank_text::<i64>(data, nulls)?.map(|text| (1, text)),
            DataType::Utf8View | DataType::BinaryView => blank_views(data, nulls)?.map(|views| (0, views)),
            _ => None,
        };
        if let Some((index, bytes)) = blank {
            buffers.get_mut(index).into_iter().for_each(|buffer| *buffer = bytes.clone());
        }
    }
    let nulls = data.nulls().cloned();
    // SAFETY: the same array, of buffers of the same sizes: other bytes lie under nulls alone.
    Ok(unsafe { data.clone().into_builder().nulls(nulls).buffers(buffers).child_data(children).build_unchecked() })
}

/// The text of an array of strings; `None` if its offsets lead out of it.
fn blank_text<T: ArrowNativeType>(data: &ArrayData, nulls: &NullBuffer) -> Result<Option<Buffer>> {
    let [offsets, text] = data.buffers() else { return Ok(None) };
    let Some(offsets) = offsets.typed_data::<T>().get(data.offset()..) else { return Ok(None) };
    let mut text = fallible::copied(text.as_slice())?;
    for (slot, ends) in offsets.windows(2).take(data.len()).enumerate() {
        if nulls.is_valid(slot) {
            continue;
        }
        let &[start, end] = ends else { continue };
        let range = start.to_usize().zip(end.to_usize()).and_then(|(start, end)| text.get_mut(start..end));
        let Some(bytes) = range else { return Ok(None) };
        bytes.fill(0);
    }
    Ok(Some(text.into()))
}

/// The views of an array; `None` if it has fewer than slots.
fn blank_views(data: &ArrayData, nulls: &NullBuffer) -> Result<Option<Buffer>> {
    let Some(views) = data.buffers().first() else { return Ok(None) };
    let mut words = fallible::copied(views.typed_data::<u128>())?;
    let slots = words.get_mut(data.offset()..).unwrap_or_default();
    if slots.len() < data.len() {
        return Ok(None);
    }
    for (slot, view) in slots.iter_mut().take(data.len()).enumerate() {
        if nulls.is_null(slot) {
            *view = 0;
        }
    }
    Ok(Some(Buffer::from_vec(words)))
}
