//! Vectors, sets and maps whose length comes from data: a failed allocation is an error, not the end of the process. Rooms that read
//! foreign data use these; `clippy.toml` refuses the infallible ones there.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::Hash;
use std::ptr::NonNull;

use super::block_cache::KEPT;
use crate::error::{Error, ErrorKind, Result};

/// Returns the error of a failed allocation.
pub(crate) fn out_of_memory(bytes: usize) -> Error {
    Error::new(ErrorKind::Memory, format!("{bytes} bytes of host memory could not be allocated"))
}

/// Returns whether this many bytes are refused without trying, because Miri ends the process when an allocation fails.
pub(super) fn is_beyond_memory(bytes: usize) -> bool {
    cfg!(miri) && bytes > 1 << 30
}

/// Returns an empty vector with room for `len` elements.
///
/// # Errors
/// When the allocation fails.
pub(crate) fn with_room<T>(len: usize) -> Result<Vec<T>> {
    let mut vector = Vec::new();
    reserve(&mut vector, len)?;
    Ok(vector)
}

/// Reserves room for `more` elements in a vector.
///
/// # Errors
/// If the allocation fails. The vector is unchanged then.
pub(crate) fn reserve<T>(vector: &mut Vec<T>, more: usize) -> Result<()> {
    let bytes = more.saturating_mul(size_of::<T>());
    if is_beyond_memory(bytes) {
        return Err(out_of_memory(bytes));
    }
    grown(bytes, || vector.try_reserve(more))
}

/// Appends an element.
///
/// # Errors
/// If the allocation fails. The vector is unchanged then.
pub(crate) fn push<T>(vector: &mut Vec<T>, element: T) -> Result<()> {
    if vector.len() == vector.capacity() {
        reserve(vector, 1)?;
    }
    vector.push(element);
    Ok(())
}

/// Inserts an element into a set; returns whether it is new.
///
/// # Errors
/// If the allocation fails. The set is unchanged then.
pub(crate) fn insert<T: Eq + Hash>(set: &mut HashSet<T>, element: T) -> Result<bool> {
    if set.len() == set.capacity() {
        let bytes = set.len().saturating_mul(size_of::<T>());
        grown(bytes, || set.try_reserve(1))?;
    }
    Ok(set.insert(element))
}

/// Returns the value of a key, which is the default one where the map has none yet.
///
/// # Errors
/// If the allocation fails. The map is unchanged then.
pub(crate) fn entry<K: Eq + Hash, V: Default>(map: &mut HashMap<K, V>, key: K) -> Result<&mut V> {
    if map.len() == map.capacity() {
        let bytes = map.len().saturating_mul(size_of::<(K, V)>());
        grown(bytes, || map.try_reserve(1))?;
    }
    Ok(map.entry(key).or_default())
}

/// Reserves, twice if the first try fails while a block is cached, which may be the memory that is missing.
fn grown<E>(bytes: usize, mut reserve: impl FnMut() -> std::result::Result<(), E>) -> Result<()> {
    match reserve() {
        Err(_) if KEPT.clear() => reserve().map_err(|_| out_of_memory(bytes)),
        reserved => reserved.map_err(|_| out_of_memory(bytes)),
    }
}

/// What an iterator gives.
///
/// # Errors
/// If the allocation fails, and the errors of the iterator.
pub(crate) fn collected<T>(items: impl IntoIterator<Item = Result<T>>) -> Result<Vec<T>> {
    let items = items.into_iter();
    let mut vector = with_room(items.size_hint().0)?;
    for item in items {
        push(&mut vector, item?)?;
    }
    Ok(vector)
}

/// Returns the elements in a new vector.
///
/// # Errors
/// When the allocation fails.
pub(crate) fn copied<T: Clone>(elements: &[T]) -> Result<Vec<T>> {
    let mut vector = with_room(elements.len())?;
    vector.extend_from_slice(elements);
    Ok(vector)
}

/// Returns what `write` writes.
///
/// # Errors
/// If the allocation fails, and the errors of `write`.
pub(crate) fn written(write: impl FnOnce(&mut dyn fmt::Write) -> Result<()>) -> Result<String> {
    let mut text = FallibleText::default();
    let written = write(&mut text);
    text.failed.map_or(written, Err).map(|()| text.text)
}

/// A text that grows fallibly.
#[derive(Default)]
struct FallibleText {
    text: String,
    failed: Option<Error>,
}

impl fmt::Write for FallibleText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        match grown(more.len(), || self.text.try_reserve(more.len())) {
            Ok(()) => self.text.push_str(more),
            Err(error) => {
                self.failed = Some(error);
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

/// Returns one value so many times.
///
/// # Errors
/// When the allocation fails.
pub(crate) fn filled<T: Copy>(len: usize, value: T) -> Result<Vec<T>> {
    let mut values = with_room(len)?;
    values.extend(std::iter::repeat_n(value, len));
    Ok(values)
}

/// Returns this many zeros, in pages that the system makes when they are touched.
///
/// # Errors
/// When the allocation fails.
pub(crate) fn zeroed(len: usize) -> Result<Vec<u8>> {
    let layout = Layout::array::<u8>(len).map_err(|_| out_of_memory(len))?;
    if len == 0 {
        return Ok(Vec::new());
    }
    if is_beyond_memory(len) {
        return Err(out_of_memory(len));
    }
    // SAFETY: the layout's size is not 0.
    let allocate = || NonNull::new(unsafe { alloc_zeroed(layout) });
    let start =
        allocate().or_else(|| if KEPT.clear() { allocate() } else { None }).ok_or_else(|| out_of_memory(len))?;
    // SAFETY: `start` comes from the global allocator with the layout of `len` bytes, which is that of this vector's
    // capacity; all of them are initialised; nobody else has the pointer.
    Ok(unsafe { Vec::from_raw_parts(start.as_ptr(), len, len) })
}

/// Refuses a size that memory cannot hold, before calls of code that ends the process when an allocation fails.
///
/// # Errors
/// If this many bytes cannot be allocated now.
pub(crate) fn require(len: usize) -> Result<()> {
    // Less than an allocator keeps at hand anyway.
    const ALWAYS_THERE: usize = 64 << 10;
    // For the headers and the unused page ends of several allocations.
    const MORE: usize = 1 << 20;
    if len <= ALWAYS_THERE {
        return Ok(());
    }
    let layout =
        len.checked_add(MORE).and_then(|bytes| Layout::array::<u8>(bytes).ok()).ok_or_else(|| out_of_memory(len))?;
    let is_there = || {
        // SAFETY: the layout's size is not 0. A pair of allocation and release must not be optimised away, which takes every
        // allocation to succeed: `black_box` keeps it.
        let start = std::hint::black_box(unsafe { alloc(layout) });
        if !start.is_null() {
            // SAFETY: just allocated with this layout, and used by nobody.
            unsafe { dealloc(start, layout) };
        }
        !start.is_null()
    };
    if is_beyond_memory(len) {
        return Err(out_of_memory(len));
    }
    if is_there() || (KEPT.clear() && is_there()) { Ok(()) } else { Err(out_of_memory(len)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_memory_cannot_hold_are_errors() {
        for len in [usize::MAX, isize::MAX as usize, 1 << 60] {
            assert_eq!(with_room::<u64>(len).unwrap_err().kind(), ErrorKind::Memory);
            assert_eq!(filled(len, 1).unwrap_err().kind(), ErrorKind::Memory);
            assert_eq!(zeroed(len).unwrap_err().kind(), ErrorKind::Memory);
            assert_eq!(require(len).unwrap_err().kind(), ErrorKind::Memory);
        }
        let mut some = vec![7_u8];
        assert_eq!(reserve(&mut some, usize::MAX).unwrap_err().kind(), ErrorKind::Memory);
        assert_eq!(some, [7]);
        let endless = std::iter::repeat_n(Ok(1_u64), 1 << 60);
        assert_eq!(collected(endless).unwrap_err().kind(), ErrorKind::Memory);
    }

    #[test]
    fn what_can_be_had_has_its_length_and_bytes() {
        for len in [0, 1, if cfg!(miri) { 1000 } else { 100_000 }] {
            assert_eq!(filled(len, 3).unwrap(), vec![3; len]);
            assert_eq!(zeroed(len).unwrap(), vec![0; len]);
            assert_eq!(require(len), Ok(()));
            assert!(with_room::<u64>(len).unwrap().capacity() >= len);
            assert_eq!(collected((0..len).map(Ok)).unwrap(), (0..len).collect::<Vec<_>>());
        }
        // More than is assumed to exist without asking.
        assert_eq!(require(100_000), Ok(()));
        let text = written(|text| {
            text.write_str("one, ").unwrap();
            text.write_str("two").map_err(|_| Error::invalid("no second"))
        });
        assert_eq!(text.unwrap(), "one, two");
        assert_eq!(written(|_| Err(Error::invalid("nothing"))).unwrap_err().reason(), "nothing");
        let refused = [Ok(1), Err(Error::invalid("no second"))];
        assert_eq!(collected(refused).unwrap_err().reason(), "no second");
    }
}
