//! What can be written to, and what cannot.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, StructArray, UInt8Array};
use arrow_dlpack::{Chunks, Conversion, DType, DeviceArray, ErrorKind, NullPolicy};

use crate::cases::memory_of;
use crate::of_one_buffer;
use crate::support::arrow::{field, shared};
use crate::support::dlpack::{Memory, output};
use crate::support::reference::read;

#[test]
fn an_output_over_the_data_is_refused() {
    let batch = of_one_buffer(4, 2, 4);
    let view = batch.column(1).unwrap();
    let view = Conversion::default().to_tensor(&view).unwrap();
    // The same memory, as a library gives it that does not know of the array.
    let memory = Memory::new(&[0; 64], DType::Float64, &[4, 2], &[2, 1], 0);
    let (memory, _) = memory.import_edited(|managed| managed.dl_tensor.data = view.as_ptr().wrapping_sub(32).cast());
    let memory = memory.unwrap();
    let mut out = output(&memory).unwrap();
    let options = Conversion::default();
    let chunks = std::slice::from_ref(&batch);
    let error = options.write(Chunks::new(batch.field(), chunks), &mut out).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Argument, Some("c0")));
    assert_eq!(read(&view)[0], 4_f64.to_ne_bytes());
    // Columns that are not read may be written over. Miri lets nobody write to a buffer of arrow-rs.
    if cfg!(miri) {
        return;
    }
    let only = options.columns(["c0"]);
    let memory = Memory::new(&[0; 32], DType::Float64, &[4, 1], &[1, 1], 0);
    let (memory, _) = memory.import_edited(|managed| managed.dl_tensor.data = view.as_ptr().cast());
    let memory = memory.unwrap();
    let mut out = output(&memory).unwrap();
    only.write(Chunks::new(batch.field(), chunks), &mut out).unwrap();
    drop(out);
    assert_eq!(read(&memory)[3], 3_f64.to_ne_bytes());
}

/// Whether a write to an output that starts at this address is refused as one over memory that is read.
fn is_overlap(data: &DeviceArray, options: &Conversion, dtype: DType, shape: &[i64], start: *const u8) -> bool {
    let strides = vec![1; shape.len()];
    let (memory, _) = Memory::new(&[0; 64], dtype, shape, &strides, 0)
        .import_edited(|managed| managed.dl_tensor.data = start.cast_mut().cast());
    let memory = memory.unwrap();
    let written = options.write(data, &mut output(&memory).unwrap());
    written.is_err_and(|error| error.kind() == ErrorKind::Argument && error.reason().contains("overlaps"))
}

#[test]
fn an_output_over_its_own_column_is_refused() {
    let column = of_one_buffer(4, 2, 4).column(1).unwrap();
    let view = Conversion::default().to_tensor(&column).unwrap();
    // Outputs beside the column are written to, in the same buffer, which Miri refuses.
    for (row, expected) in [(-4, false), (-3, true), (0, true), (3, true), (4, false)] {
        if cfg!(miri) && !expected {
            continue;
        }
        let start = view.as_ptr().wrapping_offset(row * 8);
        assert_eq!(is_overlap(&column, &Conversion::default(), DType::Float64, &[4], start), expected, "row {row}");
    }
}

#[test]
fn an_output_over_the_bitmap_of_a_struct_is_refused() {
    let keep = Conversion::default().nulls(NullPolicy::Keep);
    let bytes: ArrayRef = Arc::new(UInt8Array::from(vec![1]));
    let rows = |name, column: ArrayRef, is_null: bool| {
        let nulls = is_null.then(|| vec![false].into());
        StructArray::new(vec![field(name, column.data_type().clone())].into(), vec![column], nulls)
    };
    let own = rows("a", bytes.clone(), true);
    let outer = rows("s", Arc::new(rows("a", bytes, false)), true);
    for (array, depth) in [(&own, 0), (&own, 1), (&outer, 1), (&outer, 2)] {
        let bitmap = array.nulls().unwrap().buffer().as_ptr();
        let whole = shared(array, &field("", array.data_type().clone()));
        let data = (0..depth).fold(whole, |array, _| array.column(0).unwrap());
        let is_struct = data.field().data_type().is_nested();
        let shape = if is_struct { &[1, 1][..] } else { &[1] };
        assert!(is_overlap(&data, &keep, DType::UInt8, shape, bitmap), "column {depth} levels down");
    }
}

#[test]
fn outputs_that_do_not_fit_are_refused() {
    let batch = of_one_buffer(4, 2, 4);
    let chunks = std::slice::from_ref(&batch);
    for (dtype, shape, strides, fits) in [
        (DType::Float64, [4, 2], [2, 1], true),
        (DType::Float64, [4, 2], [1, 4], true),
        (DType::Float32, [4, 2], [2, 1], false),
        (DType::Float64, [2, 4], [4, 1], false),
        (DType::Float64, [4, 3], [3, 1], false),
        (DType::Float64, [4, 2], [4, 2], false),
        (DType::Float64, [4, 2], [2, 8], false),
    ] {
        let memory = memory_of(dtype, &shape, &strides);
        let mut out = output(&memory).unwrap();
        let options = Conversion::default().dtype(DType::Float64);
        let written = options.write(Chunks::new(batch.field(), chunks), &mut out);
        assert_eq!(written.is_ok(), fits, "{dtype} {shape:?} {strides:?}");
        if let Err(error) = written {
            assert!(error.kind() == ErrorKind::Argument && error.remedy().is_some(), "{error}");
        }
    }
}
