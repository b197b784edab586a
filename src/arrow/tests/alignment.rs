//! Is an array whose buffers are not aligned the one that it would be if they were?

use std::ffi::c_void;
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{Array, ArrayRef, BinaryArray, DictionaryArray, Int8Array, LargeStringArray, StringArray};

use super::{edited, set_buffer, structs};
use crate::ffi::arrow_device::ArrowArray;

/// Moves the offsets of an array of our export to an odd address in `memory`.
fn move_offsets(raw: &mut ArrowArray, bytes: usize, memory: &mut [u64]) {
    assert!(bytes < size_of_val(memory));
    let start = memory.as_mut_ptr().cast::<u8>().wrapping_add(1);
    // SAFETY: the second of at least two buffers.
    let offsets = unsafe { raw.buffers.wrapping_add(1).read() };
    // SAFETY: the offsets have so many bytes, and so has `memory` behind its first byte.
    unsafe { start.copy_from_nonoverlapping(offsets.cast(), bytes) };
    set_buffer(raw, 1, start.cast::<c_void>());
}

#[test]
fn offsets_at_an_odd_address_are_copied() {
    let words = vec![Some("ab"), None, Some(""), Some("cde")];
    let values = || Arc::new(StringArray::from(words.clone()));
    let mut memory = vec![0_u64; 8];
    let arrays: [(ArrayRef, usize); 3] = [
        (values(), 4),
        (Arc::new(LargeStringArray::from(words.clone())), 8),
        (Arc::new(BinaryArray::from_vec(vec![b"ab", b"", b"\xff", b"cd"])), 4),
    ];
    for (array, width) in arrays {
        let moved = edited(&array, |raw| move_offsets(raw, 5 * width, &mut memory));
        assert_eq!(moved.to_arrow().unwrap().as_ref(), array.as_ref());
        assert_eq!(moved.slice(2, 2).unwrap().to_arrow().unwrap().as_ref(), array.slice(2, 2).as_ref());
    }

    let rows = structs(vec![("words", values())], Some(vec![true, true, false, true].into()));
    let moved = edited(&rows, |raw| {
        // SAFETY: our export has one child, so there is one pointer.
        let child = unsafe { raw.children.read() };
        // SAFETY: the live child of our export, which nobody else uses.
        move_offsets(unsafe { &mut *child }, 20, &mut memory);
    });
    assert_eq!(moved.to_arrow().unwrap().as_ref(), &rows as &dyn Array);

    let codes = DictionaryArray::<Int8Type>::new(Int8Array::from(vec![3, 0]), values());
    let moved = edited(&codes, |raw| {
        // SAFETY: the live dictionary of our export, which nobody else uses.
        move_offsets(unsafe { &mut *raw.dictionary }, 20, &mut memory);
    });
    assert_eq!(moved.to_arrow().unwrap().as_ref(), &codes as &dyn Array);
}
