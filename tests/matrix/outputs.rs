//! What can be written to, and what cannot.

use arrow_dlpack::{Chunks, Conversion, DType, ErrorKind};

use crate::cases::memory_of;
use crate::of_one_buffer;
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
    // Columns that are not read may be written over.
    let only = options.columns(["c0"]);
    let memory = Memory::new(&[0; 32], DType::Float64, &[4, 1], &[1, 1], 0);
    let (memory, _) = memory.import_edited(|managed| managed.dl_tensor.data = view.as_ptr().cast());
    let memory = memory.unwrap();
    let mut out = output(&memory).unwrap();
    only.write(Chunks::new(batch.field(), chunks), &mut out).unwrap();
    drop(out);
    assert_eq!(read(&memory)[3], 3_f64.to_ne_bytes());
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
