//! What kernels write into memory of the caller with any stride, start and alignment, against what the host writes there.

use arrow_array::{Array, ArrayRef, StructArray};
use arrow_dlpack::dlpack::import_versioned;
use arrow_dlpack::ffi::dlpack::{DLDevice, DLDeviceType};
use arrow_dlpack::{Conversion, DType, DeviceArray, NullPolicy, Output, Scalar, Tensor};
use arrow_schema::{DataType, FieldRef};

use crate::kernels::on_device;
use crate::support::Random;
use crate::support::arrow::{field, list, random_array, shared};
use crate::support::cuda::{self, Stream};
use crate::support::dlpack::Memory;

/// Elements to the next row, or column, beyond those that are written.
const GAPS: std::ops::RangeInclusive<usize> = 0..=33;
/// What the memory holds before, and what stays between rows.
const PADDING: u8 = 0xa5;

/// A block of memory, and which of its elements a conversion writes.
struct Case {
    dtype: DType,
    shape: Vec<i64>,
    strides: Vec<i64>,
    first: usize,
    elements: usize,
}

impl Case {
    /// Rows of this many elements, or columns of them.
    fn new(dtype: DType, [rows, columns]: [usize; 2], gap: usize, first: usize, is_row_major: bool) -> Self {
        let (lines, length) = if is_row_major { (rows, columns) } else { (columns, rows) };
        let stride = length + gap;
        let strides = if is_row_major { [stride, 1] } else { [1, stride] };
        let [shape, strides] = [[rows, columns], strides].map(|two| two.map(|number| number as i64).to_vec());
        Self { dtype, shape, strides, first, elements: first + lines * stride + 16 }
    }

    /// The whole block after a conversion into it, in host memory or in that of the device.
    fn written(&self, on_device: bool, convert: impl FnOnce(&mut Output<'_>)) -> Vec<u8> {
        let before = vec![PADDING; self.elements * self.dtype.itemsize()];
        let copy = on_device.then(|| cuda::upload(&before));
        let memory = Memory::new(&before, self.dtype, &self.shape, &self.strides, self.first);
        let mut start = std::ptr::null_mut::<u8>();
        let (managed, _) = memory.versioned(|managed| {
            let tensor = &mut managed.dl_tensor;
            start = tensor.data.cast();
            if let Some(copy) = copy {
                tensor.data = std::ptr::without_provenance_mut(copy as usize);
                tensor.device = DLDevice { device_type: DLDeviceType::CUDA, device_id: 0 };
            }
        });
        // SAFETY: a struct that was just made, and is taken over once.
        let tensor: Tensor = unsafe { import_versioned(managed) }.unwrap();
        // SAFETY: memory of this test alone.
        convert(&mut unsafe { Output::from_tensor(&tensor) }.unwrap());
        let Some(copy) = copy else {
            // SAFETY: the tensor keeps as many bytes.
            return unsafe { std::slice::from_raw_parts(start, before.len()) }.to_vec();
        };
        let found = cuda::read(copy, before.len(), Stream::LEGACY);
        drop(tensor);
        cuda::free(copy);
        found
    }

    /// Fails unless the device writes what the host does, and nothing else.
    fn compare(&self, chunks: &Chunks, convert: impl Fn(&[DeviceArray], &mut Output<'_>)) {
        let expected = self.written(false, |out| convert(&chunks.on_host, out));
        let found = self.written(true, |out| convert(&chunks.moved, out));
        let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        let Self { dtype, shape, strides, first, .. } = self;
        let place = wrong.map(|byte| byte / dtype.itemsize());
        assert_eq!(place, None, "{dtype} {shape:?} with strides {strides:?} from element {first}");
        assert!(expected.iter().any(|byte| *byte != PADDING), "nothing was written");
    }
}

/// The same chunks in host memory and on the device.
struct Chunks {
    on_host: Vec<DeviceArray>,
    moved: Vec<DeviceArray>,
}

impl Chunks {
    fn new(field: &FieldRef, chunks: &[ArrayRef]) -> Self {
        let on_host = chunks.iter().map(|chunk| shared(chunk, field)).collect();
        let moved = chunks.iter().map(|chunk| on_device(chunk, field)).collect();
        Self { on_host, moved }
    }

    /// Batches of columns of one type, one value of `one_null_in` null unless that is 0, and a few rows cut off in front.
    fn batches(
        (data_type, one_null_in): (&DataType, usize),
        columns: usize,
        lengths: &[usize],
        random: &mut Random,
    ) -> Self {
        let fields: Vec<_> = (0..columns).map(|index| field(&format!("c{index}"), data_type.clone())).collect();
        let batch = |length: &usize| -> ArrayRef {
            let arrays = (0..columns).map(|_| random_array(data_type, length + 3, one_null_in, random)).collect();
            std::sync::Arc::new(StructArray::new(fields.clone().into(), arrays, None).slice(3, *length))
        };
        let chunks: Vec<ArrayRef> = lengths.iter().map(batch).collect();
        Self::new(&field("", chunks[0].data_type().clone()), &chunks)
    }
}

/// Fills nulls with one.
fn filled(dtype: DType) -> Conversion {
    Conversion::default().nulls(NullPolicy::Fill(Scalar::Int(1))).dtype(dtype)
}

fn into_matrix(dtype: DType) -> impl Fn(&[DeviceArray], &mut Output<'_>) {
    move |given, out| filled(dtype).write(given, out).unwrap()
}

/// First elements, each at another offset from a multiple of 16 bytes: all that matter without a gap, and one with it.
fn starts(dtype: DType, gap: usize) -> std::ops::Range<usize> {
    let offsets = (16 / dtype.itemsize()).clamp(1, 4);
    if gap < 2 { 0..offsets } else { gap % offsets..gap % offsets + 1 }
}

/// Matrices of as many columns as named, with every distance between rows, or between columns.
fn compare_matrices(source: &DataType, dtype: DType, several: &[usize], is_row_major: bool) {
    cuda::use_device(0);
    let mut random = Random(23);
    for &columns in several {
        // The second chunk starts in the middle of the memory, and of a tile.
        let chunks = Chunks::batches((source, 5), columns, &[37, 0, 6], &mut random);
        let convert = into_matrix(dtype);
        for gap in GAPS {
            for first in starts(dtype, gap) {
                Case::new(dtype, [43, columns], gap, first, is_row_major).compare(&chunks, &convert);
            }
        }
    }
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn rows_of_one_byte_at_every_distance() {
    compare_matrices(&DataType::Int8, DType::Int8, &[1, 2, 3, 4, 16, 17, 64], true);
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn rows_of_two_bytes_at_every_distance() {
    compare_matrices(&DataType::UInt16, DType::UInt16, &[1, 2, 3, 4, 16, 17, 64], true);
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn rows_of_four_bytes_at_every_distance() {
    compare_matrices(&DataType::Float32, DType::Float32, &[1, 2, 3, 4, 16, 17, 64], true);
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn rows_of_eight_bytes_at_every_distance() {
    compare_matrices(&DataType::Int64, DType::Int64, &[1, 2, 3, 4, 16, 17, 64], true);
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn rows_of_casts_at_every_distance() {
    for (source, dtype) in [
        (DataType::Boolean, DType::Int8),
        (DataType::Int8, DType::Float16),
        (DataType::Int16, DType::Float32),
        (DataType::Float32, DType::Float64),
    ] {
        compare_matrices(&source, dtype, &[2, 3, 16], true);
    }
}

/// Pairs of doubles are numbers of 16 bytes, whose rows always begin at vectors.
#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn rows_and_columns_of_sixteen_bytes_at_every_distance() {
    cuda::use_device(0);
    let mut random = Random(31);
    let pair = list(DataType::Float64, 2);
    for columns in [2, 3, 16, 70] {
        let chunks = Chunks::batches((&pair, 0), columns, &[37, 0, 6], &mut random);
        for gap in GAPS {
            for is_row_major in [true, false] {
                let case = Case::new(DType::Complex128, [43, columns], gap, gap % 2, is_row_major);
                case.compare(&chunks, |given, out| {
                    Conversion::default().dtype(DType::Complex128).write(given, out).unwrap();
                });
            }
        }
    }
    cuda::expect_no_races();
}

/// So many rows that a thread casts several of a column: all of them, and fewer at the end of a chunk.
#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn casts_of_many_rows() {
    cuda::use_device(0);
    let mut random = Random(37);
    for (source, dtype, columns, most) in [
        (DataType::Boolean, DType::UInt8, 3, 1290),
        (DataType::Int8, DType::BFloat16, 4, 1290),
        (DataType::UInt16, DType::Float32, 70, 1290),
        (DataType::Float32, DType::Float64, 5, 1290),
        // Three strips of columns, and more tiles than the grid has blocks.
        (DataType::Int8, DType::Int64, 40, 8900),
    ] {
        let lengths = [most, 1025, 97];
        let chunks = Chunks::batches((&source, 5), columns, &lengths, &mut random);
        let rows = lengths.iter().sum();
        let gaps = if most > 8000 { vec![(1, 0)] } else { vec![(0, 0), (0, 1), (1, 0), (5, 3)] };
        for (gap, first) in gaps {
            for is_row_major in [true, false] {
                Case::new(dtype, [rows, columns], gap, first, is_row_major).compare(&chunks, into_matrix(dtype));
            }
        }
    }
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn columns_at_every_distance() {
    for (source, dtype) in [(DataType::Float32, DType::Float32), (DataType::Int8, DType::Int16)] {
        compare_matrices(&source, dtype, &[1, 3, 17], false);
    }
}

/// Rows of lists: made one after the other, and then spread.
#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn lists_at_every_distance() {
    cuda::use_device(0);
    let mut random = Random(29);
    for (item, dtype, complex) in [
        (DataType::Int8, DType::Int8, 1),
        (DataType::UInt16, DType::UInt16, 1),
        (DataType::Int8, DType::Float32, 1),
        (DataType::Float64, DType::Float64, 1),
        (DataType::Float64, DType::Complex128, 2),
    ] {
        for width in [1, 3, 16] {
            let inner = if complex == 2 { list(item.clone(), 2) } else { item.clone() };
            let data_type = list(inner, width);
            let chunks = [40, 9].map(|length| random_array(&data_type, length + 2, 0, &mut random).slice(2, length));
            let chunks = Chunks::new(&field("x", data_type), &chunks);
            for gap in GAPS {
                for first in starts(dtype, gap) {
                    Case::new(dtype, [49, width as usize], gap, first, true).compare(&chunks, |given, out| {
                        Conversion::default().dtype(dtype).write(given, out).unwrap();
                    });
                }
            }
        }
    }
    cuda::expect_no_races();
}
