//! What kernels make of columns, against what the same columns become in host memory.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_dlpack::arrow::export_device_array;
use arrow_dlpack::ffi::arrow_device::{ArrowArray, ArrowDeviceArray};
use arrow_dlpack::stream_order::{host_waits, stream_scope};
use arrow_dlpack::transfer::{Transfer, tensor_to_device, with_null_count};
use arrow_dlpack::{
    Chunks, Conversion, CopyMode, DType, Device, DeviceArray, ErrorKind, MemoryOrder, NullPolicy, Scalar, Tensor,
};
use arrow_schema::{DataType, FieldRef};

use crate::support::Random;
use crate::support::arrow::{child_of, counted, extension, field, list, random_array, release, set_buffer, shared};
use crate::support::cuda::{self, Busy, Stream};
use crate::support::reference::read;

const SOURCES: [DataType; 12] = [
    DataType::Boolean,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Float16,
    DataType::Float32,
    DataType::Float64,
];

const TARGETS: [DType; 13] = [
    DType::Bool,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::Float16,
    DType::BFloat16,
    DType::Float32,
    DType::Float64,
];

/// An array in memory of the device, which stays as long as the process.
pub(crate) fn on_device(array: &dyn Array, field: &FieldRef) -> DeviceArray {
    let (mut moved, _) = counted(array);
    move_buffers(&mut moved, array.data_type());
    import(moved, null_mut(), field)
}

fn import(array: ArrowArray, sync_event: *mut c_void, field: &FieldRef) -> DeviceArray {
    let mut device = ArrowDeviceArray { array, device_id: 0, device_type: 2, sync_event, reserved: [0; 3] };
    // SAFETY: a valid struct, whose memory is never freed.
    unsafe { DeviceArray::import_device(&raw mut device, field.clone()) }.unwrap()
}

/// Copies the buffers that an array has slots in to the device.
fn move_buffers(array: &mut ArrowArray, data_type: &DataType) {
    let slots = (array.offset + array.length) as usize;
    let bits = slots.div_ceil(8);
    let mut sizes = vec![bits];
    match data_type {
        DataType::FixedSizeList(item, _) => move_buffers(child_of(array, 0), item.data_type()),
        DataType::Struct(fields) => {
            for (index, field) in fields.iter().enumerate() {
                move_buffers(child_of(array, index), field.data_type());
            }
        }
        DataType::Boolean => sizes.push(bits),
        other => sizes.push(slots * other.primitive_width().unwrap()),
    }
    for (index, bytes) in sizes.into_iter().enumerate() {
        // SAFETY: the struct has this buffer.
        let start = unsafe { array.buffers.wrapping_add(index).read() };
        if start.is_null() || bytes == 0 {
            continue;
        }
        // SAFETY: arrow-rs gives as many bytes as there are slots.
        let host = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), bytes) };
        set_buffer(array, index, std::ptr::without_provenance(cuda::upload(host) as usize));
    }
}

/// Bits that are numbers of every size, with those at which casts change their mind among them.
fn numbers(data_type: &DataType, length: usize, random: &mut Random) -> ArrayRef {
    let Some(width) = data_type.primitive_width() else { return random_array(data_type, length, 5, random) };
    let mut bytes = Vec::with_capacity(length * width);
    let floats =
        [0.0, -0.0, 1.0, 0.5, 255.0, -129.0, 65_504.0, 65_520.0, 3.4e38, 6e-8, 5.9e-8, f64::NAN, 1e300, -1e-310];
    for _ in 0..length {
        let word = random.next();
        let small = word >> (word % 64);
        let float = match random.below(3) {
            0 => floats[random.below(floats.len())],
            1 => small as f64 * if word & 1 == 0 { 1.0 } else { -0.5 },
            _ => f64::from_bits(word),
        };
        let half = half::f16::from_bits(word as u16);
        bytes.extend_from_slice(&match data_type {
            DataType::Float16 if word & 0x10_0000 == 0 => half.to_bits().to_le_bytes().to_vec(),
            DataType::Float16 => half::f16::from_f64(float).to_le_bytes().to_vec(),
            DataType::Float32 => (float as f32).to_le_bytes().to_vec(),
            DataType::Float64 => float.to_le_bytes().to_vec(),
            _ if word & 0x100_0000 == 0 => (small as i64).wrapping_neg().to_le_bytes()[..width].to_vec(),
            _ => small.to_le_bytes()[..width].to_vec(),
        });
    }
    let nulls = NullBuffer::new(BooleanBuffer::collect_bool(length, |_| random.below(5) != 0));
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let buffer = Buffer::from_iter(words).slice_with_length(0, length * width);
    let data = ArrayData::builder(data_type.clone()).len(length).nulls(Some(nulls)).add_buffer(buffer);
    make_array(data.build().unwrap())
}

/// The array with one more row null.
fn without(array: &ArrayRef, row: usize) -> ArrayRef {
    let nulls = array.nulls().map(|nulls| nulls.inner().clone());
    let valid = |index| index != row && nulls.as_ref().is_none_or(|nulls| nulls.value(index));
    let nulls = NullBuffer::new(BooleanBuffer::collect_bool(array.len(), valid));
    make_array(array.to_data().into_builder().nulls(Some(nulls)).build().unwrap())
}

fn host_bytes(tensor: &Tensor) -> Vec<Vec<u8>> {
    read(&tensor_to_device(tensor, &Transfer::to(Device::CPU, "to compare")).unwrap())
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn every_cast_gives_what_the_host_gives() {
    cuda::use_device(0);
    let mut random = Random(7);
    for from in SOURCES {
        for to in TARGETS {
            let name = format!("{from} to {to}");
            let options =
                Conversion::default().dtype(to).nulls(NullPolicy::Fill(Scalar::Int(1))).copy(CopyMode::Always);
            let field = field("x", from.clone());
            let mut array = numbers(&from, 150, &mut random);
            array = array.slice(3, 140);
            let mut refused = 0;
            let expected = loop {
                match options.to_tensor(&shared(&array, &field)) {
                    Ok(tensor) => break read(&tensor),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Cast, "{name}");
                        // The first ones and some later ones.
                        if refused < 2 || refused % 16 == 0 {
                            let found = options.to_tensor(&on_device(&array, &field)).unwrap_err();
                            assert_eq!(
                                (found.kind(), found.row(), found.column()),
                                (error.kind(), error.row(), error.column()),
                                "{name}: {found}"
                            );
                        }
                        array = without(&array, error.row().unwrap());
                        refused += 1;
                    }
                }
            };
            let made = options.to_tensor(&on_device(&array, &field)).unwrap();
            assert!(made.is_copied() && made.is_writable());
            assert_eq!(host_bytes(&made), expected, "{name}");
        }
    }
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn chunks_offsets_and_levels_of_nulls_give_what_the_host_gives() {
    cuda::use_device(0);
    let mut random = Random(11);
    let types = [
        DataType::Boolean,
        DataType::Int8,
        DataType::Int16,
        DataType::Float32,
        DataType::Float64,
        list(DataType::Int16, 3),
        list(DataType::Boolean, 5),
        list(list(DataType::UInt8, 2), 2),
    ];
    for data_type in types {
        let field = field("x", data_type.clone());
        for (policy, one_null_in) in
            [(NullPolicy::Fill(Scalar::Int(1)), 3), (NullPolicy::Keep, 3), (NullPolicy::Error, 0)]
        {
            let options = Conversion::default().nulls(policy).copy(CopyMode::Always);
            let lengths = [0, 1, 15, 16, 17, 64, 131];
            let chunks: Vec<ArrayRef> = lengths
                .iter()
                .map(|length| {
                    let start = random.below(20);
                    random_array(&data_type, start + length + random.below(9), one_null_in, &mut random)
                        .slice(start, *length)
                })
                .collect();
            for count in [2, lengths.len()] {
                let on_host: Vec<_> = chunks[..count].iter().map(|chunk| shared(chunk, &field)).collect();
                let moved: Vec<_> = chunks[..count].iter().map(|chunk| on_device(chunk, &field)).collect();
                let expected = options.to_tensor(Chunks::new(&field, &on_host)).unwrap();
                let made = options.to_tensor(Chunks::new(&field, &moved)).unwrap();
                assert_eq!(made.shape(), expected.shape(), "{data_type}");
                assert_eq!(host_bytes(&made), read(&expected), "{data_type} {options:?}");
            }
        }
    }
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn matrices_give_what_the_host_gives() {
    cuda::use_device(0);
    let mut random = Random(13);
    let mixed = [DataType::Boolean, DataType::Int8, DataType::UInt16, DataType::Float32, DataType::Float16];
    let cases = [
        (vec![DataType::Int8], DType::Int8),
        (vec![DataType::UInt16], DType::UInt16),
        (vec![DataType::Float32], DType::Float32),
        (vec![DataType::Int64], DType::Int64),
        (mixed.to_vec(), DType::Float32),
        (mixed.to_vec(), DType::Float64),
        (vec![DataType::Boolean], DType::Bool),
        (vec![DataType::Boolean, DataType::UInt8], DType::Int16),
    ];
    for (types, dtype) in cases {
        for (columns, rows) in
            [(1, 70), (3, 129), (4, 40), (8, 300), (16, 33), (37, 65), (64, 70), (600, 3), (4, 9000), (5, 2500)]
        {
            let fields: Vec<FieldRef> =
                (0..columns).map(|index| field(&format!("c{index}"), types[index % types.len()].clone())).collect();
            let chunk = |random: &mut Random, rows: usize| -> ArrayRef {
                let start = random.below(9);
                let columns = fields.iter().map(|field| random_array(field.data_type(), start + rows, 4, random));
                let batch = arrow_array::StructArray::new(fields.clone().into(), columns.collect(), None);
                Arc::new(batch.slice(start, rows))
            };
            let chunks = [chunk(&mut random, rows), chunk(&mut random, 0), chunk(&mut random, 5)];
            let count = if columns % 2 == 0 { 1 } else { 3 };
            let whole = field("", chunks[0].data_type().clone());
            for order in [MemoryOrder::C, MemoryOrder::F] {
                let matrix = Conversion::default().dtype(dtype).memory_order(order);
                let matrix = matrix.nulls(NullPolicy::Fill(Scalar::Int(1)));
                let on_host: Vec<_> = chunks[..count].iter().map(|chunk| shared(chunk, &whole)).collect();
                let moved: Vec<_> = chunks[..count].iter().map(|chunk| on_device(chunk, &whole)).collect();
                let expected = matrix.to_tensor(Chunks::new(&whole, &on_host)).unwrap();
                let made = matrix.to_tensor(Chunks::new(&whole, &moved)).unwrap();
                assert_eq!((made.shape(), made.strides()), (expected.shape(), expected.strides()));
                assert_eq!(host_bytes(&made), read(&expected), "{columns} columns to {dtype}, {order:?}");
            }
        }
    }
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn validity_gives_what_the_host_gives() {
    cuda::use_device(0);
    let mut random = Random(17);
    for data_type in [DataType::Int32, list(DataType::Int16, 3), list(list(DataType::UInt8, 2), 2)] {
        let field = field("x", data_type.clone());
        for one_null_in in [0, 3] {
            let chunks = [40, 0, 17]
                .map(|length| random_array(&data_type, length + 11, one_null_in, &mut random).slice(11, length));
            let on_host = chunks.each_ref().map(|chunk| shared(chunk, &field));
            let moved = chunks.each_ref().map(|chunk| on_device(chunk, &field));
            let (expected, made) = (
                Conversion::default().validity(Chunks::new(&field, &on_host)).unwrap(),
                Conversion::default().validity(Chunks::new(&field, &moved)).unwrap(),
            );
            assert_eq!(made.shape(), expected.shape());
            assert_eq!(host_bytes(&made), read(&expected), "{data_type}");
        }
    }
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn bytes_that_are_no_bools_become_some() {
    cuda::use_device(0);
    let field = extension(&field("x", DataType::Int8), "arrow.bool8", "");
    for (rows, odd) in [(1, 0), (100, 99), (100, 3), (1000, 517)] {
        let values = (0..rows + 5).map(|row| if row == odd + 5 { 7 } else { i8::from(row % 3 == 0) });
        let array = arrow_array::Int8Array::from_iter_values(values).slice(5, rows);
        let made = Conversion::default().to_tensor(&on_device(&array, &field)).unwrap();
        let expected = Conversion::default().to_tensor(&shared(&array, &field)).unwrap();
        assert!(made.is_copied() && made.dtype() == DType::Bool);
        assert_eq!(host_bytes(&made), read(&expected));
        let refused = Conversion::default().copy(CopyMode::Never).to_tensor(&on_device(&array, &field)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Copy);
    }
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn nulls_are_counted_where_they_are() {
    cuda::use_device(0);
    let mut random = Random(19);
    for length in [1, 7, 8, 127, 128, 129, 1000, 20_000] {
        for start in [0, 1, 8, 13, 130] {
            let rows = start + length;
            let valid = NullBuffer::new(BooleanBuffer::collect_bool(rows, |_| random.below(3) != 0));
            let column: ArrayRef = Arc::new(arrow_array::Int8Array::from(vec![0; rows]));
            let fields = vec![field("c", DataType::Int8)];
            let array = arrow_array::StructArray::new(fields.into(), vec![column], Some(valid)).slice(start, length);
            let (mut moved, _) = counted(&array);
            move_buffers(&mut moved, array.data_type());
            moved.null_count = -1;
            let moved = import(moved, null_mut(), &field("", array.data_type().clone()));
            let mut exported = export_device_array(&with_null_count(&moved).unwrap()).unwrap().into_raw();
            assert_eq!(exported.array.null_count, array.null_count() as i64, "{length} from {start}");
            release(&mut exported.array);
        }
    }
    cuda::expect_no_races();
}

/// A column of bytes that `stream` fills behind a gate, and the event behind that.
fn late_column(value: u8, rows: usize, stream: Stream) -> (DeviceArray, Busy) {
    let memory = cuda::allocate(rows);
    let busy = Busy::new(stream);
    cuda::fill(memory, value, rows, stream);
    let event = Box::leak(Box::new(cuda::record(stream)));
    let array = arrow_array::UInt8Array::from(vec![0; rows]);
    let (mut moved, _) = counted(&array);
    set_buffer(&mut moved, 1, std::ptr::without_provenance(memory as usize));
    (import(moved, std::ptr::from_mut(event).cast(), &field("x", DataType::UInt8)), busy)
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn kernels_read_what_is_written_and_are_waited_for() {
    const ROWS: usize = 1 << 12;
    cuda::use_device(0);
    let (producer, ours, consumer) = (Stream::new(false), Stream::new(false), Stream::new(false));
    // The first copy loads what it needs, which may wait for the device.
    let (first, busy) = late_column(4, ROWS, producer);
    busy.end();
    drop((Conversion::default().copy(CopyMode::Always).to_tensor(&first).unwrap(), first));
    producer.synchronize();
    let (column, busy) = late_column(5, ROWS, producer);
    let scope = stream_scope(ours.named());
    let before = (cuda::host_waits(), host_waits());
    let tensor = Conversion::default().copy(CopyMode::Always).to_tensor(&column).unwrap();
    // Nothing is known to the host, and nothing was asked.
    assert_eq!((cuda::host_waits(), host_waits()), before);
    drop(scope);
    tensor.readiness().unwrap().make_stream_wait(Some(consumer.named())).unwrap();
    busy.end();
    let found = cuda::read(tensor.as_ptr().addr() as u64, ROWS, consumer);
    assert!(found.iter().all(|byte| *byte == 5));
    cuda::expect_no_races();
    drop((tensor, column));
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn a_cast_waits_once_and_names_what_does_not_fit() {
    cuda::use_device(0);
    let array: ArrayRef = Arc::new(arrow_array::Int32Array::from_iter_values((0..1000).map(|row| row - 3)));
    let column = on_device(&array, &field("x", DataType::Int32));
    let before = host_waits();
    let error = Conversion::default().dtype(DType::Int8).to_tensor(&column).unwrap_err();
    assert_eq!((error.kind(), error.row(), error.column()), (ErrorKind::Cast, Some(131), Some("x")));
    assert!(host_waits() <= before + 1);
    let refused = Conversion::default().dtype(DType::Int64).copy(CopyMode::Never).to_tensor(&column).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Copy);
    cuda::expect_no_races();
}
