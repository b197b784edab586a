//! Memory that its owner writes to while, or after, it is converted: other values or an error, and never a bad access.

#![allow(unsafe_code, reason = "writes to memory as the library that lent it")]

use std::sync::Arc;

use arrow_array::{Array, Int32Array, StringArray, UInt8Array};
use arrow_dlpack::ffi::dlpack::DLPACK_FLAG_BITMASK_READ_ONLY;
use arrow_dlpack::{Conversion, CopyMode, DType, ErrorKind, Ragged, Tensor};
use arrow_schema::DataType;

use crate::one;
use crate::support::arrow::field;
use crate::support::dlpack::Memory;

/// An int32 tensor over memory that a library lends, read-only or not.
fn lent(values: &[i32], read_only: bool) -> Tensor {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let memory = Memory::new(&bytes, DType::Int32, &[values.len() as i64], &[1], 0);
    let flags = if read_only { DLPACK_FLAG_BITMASK_READ_ONLY } else { 0 };
    memory.import_edited(|managed| managed.flags |= flags).0.unwrap()
}

/// Writes to a tensor's memory as its owner may.
fn write(tensor: &Tensor, at: usize, value: i32) {
    assert!(at < tensor.len() && tensor.dtype() == DType::Int32);
    // SAFETY: an element of the tensor, whose memory this test owns and nobody reads now.
    unsafe { tensor.as_ptr().cast::<i32>().wrapping_add(at).write(value) };
}

#[test]
fn lent_offsets_are_checked_again_before_they_are_exported() {
    let values = || Conversion::default().to_tensor(&UInt8Array::from(vec![1, 2, 3])).unwrap();
    for read_only in [true, false] {
        let offsets = lent(&[0, 2, 3], read_only);
        let ragged = Ragged::new(values(), offsets.clone(), None, None, None).unwrap();
        assert!(ragged.to_arrow(CopyMode::Never).is_ok());
        write(&offsets, 1, 1_000_000);
        let error = ragged.to_arrow(CopyMode::Never).unwrap_err();
        assert!(error.to_string().contains("offset 1000000"), "{error}");
        let binary = field("x", DataType::Binary);
        assert_eq!(ragged.to_arrow_as(&binary, CopyMode::Never).unwrap_err().kind(), ErrorKind::Argument);

        let (offsets, lengths) = (lent(&[0, 2], read_only), lent(&[2, 1], read_only));
        let views = Ragged::new(values(), offsets, Some(lengths.clone()), None, None).unwrap();
        assert!(views.to_arrow(CopyMode::Never).is_ok());
        write(&lengths, 1, 7);
        assert_eq!(views.to_arrow(CopyMode::Never).unwrap_err().row(), Some(1));

        let offsets = Conversion::default().to_tensor(&Int32Array::from(vec![0, 2])).unwrap();
        let shapes = lent(&[1, 2], read_only).reshape(&[1, 2]).unwrap();
        let tensors = Ragged::new(values(), offsets, None, Some(shapes.clone()), None).unwrap();
        assert!(tensors.to_arrow(CopyMode::Never).is_ok());
        write(&shapes, 1, 3);
        assert_eq!(tensors.to_arrow(CopyMode::Never).unwrap_err().row(), Some(0));
    }
}

#[test]
fn strings_are_checked_unless_bytes_and_offsets_are_untouched_arrow_memory() {
    let text: Arc<dyn Array> = Arc::new(StringArray::from(vec!["a", "é", "b"]));
    // The offsets of a slice are a copy, which a consumer may write to.
    let ragged = Conversion::default().ragged(&one(&text.slice(1, 2))).unwrap();
    assert!(ragged.to_arrow(CopyMode::Never).is_ok());
    write(ragged.offsets(), 1, 1);
    let error = ragged.to_arrow(CopyMode::Never).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(0)));
}

#[cfg(all(target_os = "linux", not(miri)))]
mod racing {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use arrow_array::types::Int16Type;
    use arrow_array::{BinaryViewArray, LargeListArray, ListArray};
    use arrow_dlpack::{Conversion, Pad, Scalar};

    use super::*;
    use crate::{PAD, fill};

    /// Runs `work` while a thread writes the bytes `one` and `other` by turns. It writes through the kernel, as sanitizers
    /// see no library that was built without them, and such a one is what writes.
    fn while_written(address: usize, one: &[u8], other: &[u8], work: impl Fn()) {
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let (done, memory) = (AtomicBool::new(false), File::options().write(true).open("/proc/self/mem").unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    memory.write_all_at(one, address as u64).unwrap();
                    memory.write_all_at(other, address as u64).unwrap();
                }
                memory.write_all_at(one, address as u64).unwrap();
            });
            let _done = Done(&done);
            work();
        });
    }

    /// Pads an array again and again while some of its bytes, those of one buffer from `at` on, are written.
    fn pad_while_written(array: &dyn Array, buffer: usize, at: usize, other: &[u8]) {
        let data = array.to_data();
        let own = data.buffers()[buffer].as_slice()[at..at + other.len()].to_vec();
        let address = data.buffers()[buffer].as_ptr().addr() + at;
        let array = one(array);
        let (wide, narrow) = (fill(0).dtype(DType::Float64), Conversion::default());
        while_written(address, &own, other, || {
            for round in 0..600 {
                let options = if round % 2 == 0 { &wide } else { &narrow };
                let padded = options.padded(&array, PAD.length(8));
                let allowed = |kind| matches!(kind, ErrorKind::Invalid | ErrorKind::Argument);
                assert!(padded.as_ref().err().is_none_or(|error| allowed(error.kind())), "{padded:?}");
            }
        });
    }

    #[test]
    fn offsets_that_change_while_rows_are_padded_lead_nowhere_else() {
        let rows = || (0..2000_i16).map(|row| Some((0..row % 5).map(Some)));
        let far = [1_i32 << 30, (1 << 30) + 4].map(i32::to_ne_bytes).concat();
        pad_while_written(&ListArray::from_iter_primitive::<Int16Type, _, _>(rows()), 0, 4 * 1000, &far);
        let far = [1_i64 << 40, (1 << 40) + 4].map(i64::to_ne_bytes).concat();
        pad_while_written(&LargeListArray::from_iter_primitive::<Int16Type, _, _>(rows()), 0, 8 * 1000, &far);
    }

    #[test]
    fn views_that_change_while_rows_are_padded_lead_nowhere_else() {
        let long = |row: usize| vec![b'x'; 13 + row % 7];
        let views = BinaryViewArray::from_iter_values((0..2000).map(long));
        let data = views.to_data();
        let far = [20, 0, 0, 1 << 30].map(i32::to_ne_bytes).concat();
        assert_eq!(data.buffers()[0].len(), 2000 * 16);
        let pad = Pad::new(Scalar::Int(0)).length(20);
        let array = one(&views);
        let own = data.buffers()[0].as_slice()[16_000..16_016].to_vec();
        while_written(data.buffers()[0].as_ptr().addr() + 16_000, &own, &far, || {
            for _ in 0..600 {
                let padded = Conversion::default().padded(&array, pad);
                assert!(padded.as_ref().err().is_none_or(|error| error.row() == Some(1000)), "{padded:?}");
            }
        });
    }
}

#[test]
fn lent_lengths_of_offsets_that_nobody_writes_to_are_checked_again() {
    let values = Conversion::default().to_tensor(&UInt8Array::from(vec![1, 2, 3])).unwrap();
    let offsets = Conversion::default().to_tensor(&Int32Array::from(vec![0, 2])).unwrap();
    let lengths = lent(&[2, 1], true);
    let views = Ragged::new(values, offsets, Some(lengths.clone()), None, None).unwrap();
    assert!(views.to_arrow(CopyMode::Never).is_ok());
    write(&lengths, 1, 1_000_000);
    assert_eq!(views.to_arrow(CopyMode::Never).unwrap_err().row(), Some(1));
}
