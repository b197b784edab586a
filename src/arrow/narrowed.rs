//! Which runs, items and bytes does a slice of runs, list views and string views show? Rewrites what refers to them, to begin at the first.

use std::ops::Range;

use crate::alloc::fallible;
use crate::error::Result;

/// Reads the bytes at these addresses.
pub(super) type ReadAddresses<'a> = dyn FnMut(Range<usize>) -> Result<Vec<u8>> + 'a;

/// Bytes that refer to what is shown, and where that is; `None` where all is shown.
pub(super) type Narrowed<T> = Option<(Vec<u8>, T)>;

/// Bytes of a view.
const VIEW: usize = 16;

/// The longest value that a view holds by itself.
const INLINE: usize = 12;

/// Returns the ends of the runs that rows show, counted from the first row, and which runs these are; `None` if they are all, or the ends
/// are not ones of these rows. `ends` is where the ends are, of `width` bytes. Without rows, the first run is left.
///
/// # Errors
/// Those of `read`.
pub(super) fn runs(
    ends: &Range<usize>,
    width: usize,
    rows: Range<usize>,
    read: &mut ReadAddresses<'_>,
) -> Result<Narrowed<Range<usize>>> {
    let rows = if rows.is_empty() { 0..1 } else { rows };
    let count = ends.len().checked_div(width).unwrap_or(0);
    let at = |run: usize| ends.start.saturating_add(run.saturating_mul(width));
    let mut run_of = |row: usize| -> Result<usize> {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            let end = int(&read(at(middle)..at(middle + 1))?);
            (low, high) = if end.is_some_and(|end| end > row) { (low, middle) } else { (middle + 1, high) };
        }
        Ok(low)
    };
    let (first, last) = (run_of(rows.start)?, run_of(rows.end.saturating_sub(1))?);
    let is_whole = rows.start == 0 && last + 1 == count;
    if is_whole || first > last || last >= count {
        return Ok(None);
    }
    let mut made = read(at(first)..at(last + 1))?;
    for end in made.chunks_exact_mut(width) {
        // An end that is none stays one that is none.
        let own = int(end).and_then(|own| own.checked_sub(rows.start));
        store(end, own.map(|own| own.min(rows.len())));
    }
    Ok(Some((made, first..last + 1)))
}

/// Returns the offsets of list views, counted from the first item that a slot shows, and the items from there to the last one; `None` if
/// these are all of the `items`, or a slot refers to others. Slots before `keep` show nothing.
///
/// # Errors
/// Those of `read`.
pub(super) fn lists(
    [offsets, sizes]: [Range<usize>; 2],
    width: usize,
    keep: usize,
    items: usize,
    read: &mut ReadAddresses<'_>,
) -> Result<Narrowed<Range<usize>>> {
    let (mut made, sizes) = (read(offsets)?, read(sizes)?);
    let mut span = items..0;
    for (offset, size) in made.chunks_exact(width).zip(sizes.chunks_exact(width)).skip(keep) {
        let Some((start, size)) = int(offset).zip(int(size)) else { return Ok(None) };
        match start.checked_add(size).filter(|end| *end <= items) {
            None => return Ok(None),
            Some(end) if size > 0 => span = span.start.min(start)..span.end.max(end),
            Some(_) => {}
        }
    }
    let span = if span.is_empty() { 0..0 } else { span };
    if span.len() == items {
        return Ok(None);
    }
    for (slot, (offset, size)) in made.chunks_exact_mut(width).zip(sizes.chunks_exact(width)).enumerate() {
        let is_shown = slot >= keep && int(size) != Some(0);
        store(offset, if is_shown { int(offset).and_then(|own| own.checked_sub(span.start)) } else { Some(0) });
    }
    Ok(Some((made, span)))
}

/// Returns views whose offsets count from the first byte that a view of the same buffer shows, and of each buffer the bytes from there to
/// the last one; `None` if these are all of its size. Views of other bytes stay as they are: those under nulls may be any. Slots before
/// `keep` show nothing.
///
/// # Errors
/// Those of `read`; when an allocation fails.
pub(super) fn views(
    views: Range<usize>,
    keep: usize,
    sizes: &[usize],
    read: &mut ReadAddresses<'_>,
) -> Result<Narrowed<Vec<Range<usize>>>> {
    let mut made = read(views)?;
    let mut spans = fallible::filled(sizes.len(), (usize::MAX, 0_usize))?;
    for view in made.chunks_exact(VIEW).skip(keep) {
        let found = bytes_of(view, sizes);
        if let Some((span, bytes)) = found.and_then(|(buffer, bytes)| Some((spans.get_mut(buffer)?, bytes))) {
            *span = (span.0.min(bytes.start), span.1.max(bytes.end));
        }
    }
    let spans = spans.iter().map(|(start, end)| Ok(if start < end { *start..*end } else { 0..0 }));
    let spans = fallible::collected(spans)?;
    if spans.iter().zip(sizes).all(|(span, size)| span.len() == *size) {
        return Ok(None);
    }
    for (slot, view) in made.chunks_exact_mut(VIEW).enumerate() {
        if slot < keep {
            view.fill(0);
        } else if let Some((buffer, bytes)) = bytes_of(view, sizes)
            && let (Some(span), Some(offset)) = (spans.get(buffer), view.get_mut(INLINE..))
        {
            store(offset, bytes.start.checked_sub(span.start));
        }
    }
    Ok(Some((made, spans)))
}

/// Returns the buffer and the bytes of it that a view refers to; `None` if it refers to none that are there.
fn bytes_of(view: &[u8], sizes: &[usize]) -> Option<(usize, Range<usize>)> {
    let [length, _, buffer, offset] = view.as_chunks::<4>().0 else { return None };
    let (length, buffer, start) = (int(length)?, int(buffer)?, int(offset)?);
    let end = start.checked_add(length).filter(|_| length > INLINE)?;
    (end <= *sizes.get(buffer)?).then_some((buffer, start..end))
}

/// Returns the integer of these 2, 4 or 8 bytes; `None` if it is negative.
fn int(bytes: &[u8]) -> Option<usize> {
    let wide = || bytes.first_chunk().map(|bytes| i64::from_ne_bytes(*bytes));
    let int = || bytes.first_chunk().map(|bytes| i64::from(i32::from_ne_bytes(*bytes)));
    let short = || bytes.first_chunk().map(|bytes| i64::from(i16::from_ne_bytes(*bytes)));
    usize::try_from(wide().or_else(int).or_else(short)?).ok()
}

/// Stores a number in 2, 4 or 8 bytes; -1 if there is none, or it does not fit.
fn store(bytes: &mut [u8], value: Option<usize>) {
    let value = value.and_then(|value| i64::try_from(value).ok()).unwrap_or(-1);
    match bytes.len() {
        2 => bytes.copy_from_slice(&i16::try_from(value).unwrap_or(-1).to_ne_bytes()),
        4 => bytes.copy_from_slice(&i32::try_from(value).unwrap_or(-1).to_ne_bytes()),
        8 => bytes.copy_from_slice(&value.to_ne_bytes()),
        _ => {}
    }
}
