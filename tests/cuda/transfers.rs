//! Arrays and tensors there and back, of random types, lengths and slices.

use std::num::NonZero;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_dlpack::stream_order::host_waits;
use arrow_dlpack::transfer::{Transfer, array_to_device, is_shared, stream_to_device, tensors_to_device};
use arrow_dlpack::{Conversion, Device, DeviceArray, DeviceArrayStream, ErrorKind};
use arrow_schema::DataType;

use crate::support::Random;
use crate::support::arrow::{field, list, random_array, shared};
use crate::support::cuda;

fn moved(array: &DeviceArray, devices: &[&str]) -> DeviceArray {
    devices.iter().fold(array.clone(), |array, device| {
        let device: Device = device.parse().unwrap();
        let moved = array_to_device(&array, &Transfer::to(device, "a test")).unwrap();
        assert_eq!(moved.device(), device);
        moved
    })
}

const WAYS: [&[&str]; 4] =
    [&["cuda:0", "cpu"], &["cuda_host:0", "cpu"], &["cuda:0", "cuda_host:0", "cpu"], &["cuda_host:0", "cuda:0", "cpu"]];

fn lists(length: usize, random: &mut Random) -> ArrayRef {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for _ in 0..length {
        for _ in 0..random.below(4) {
            lists.values().append_value("x".repeat(random.below(30)));
        }
        lists.append(random.below(5) != 0);
    }
    Arc::new(lists.finish())
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn random_arrays_come_back_as_they_were() {
    cuda::use_device(0);
    let mut random = Random(11);
    let types = [
        DataType::Boolean,
        DataType::Int8,
        DataType::Int32,
        DataType::Float64,
        list(DataType::Int16, 3),
        list(DataType::Boolean, 2),
    ];
    for round in 0..60 {
        let length = random.below(2000);
        let array = match types.get(round % (types.len() + 1)) {
            Some(data_type) => random_array(data_type, length, random.below(4), &mut random),
            None => lists(length, &mut random),
        };
        let start = random.below(length + 1);
        let array = array.slice(start, random.below(length - start + 1));
        let source = shared(array.as_ref(), &field("x", array.data_type().clone()));
        let back = moved(&source, WAYS[round % WAYS.len()]);
        assert_eq!(&back.to_arrow().unwrap(), &array);
    }
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn many_threads_stage_one_array() {
    cuda::use_device(0);
    let mut random = Random(12);
    let array = random_array(&DataType::Int64, 2_000_000, 3, &mut random);
    let source = shared(array.as_ref(), &field("x", DataType::Int64));
    for threads in [1, 2, 5] {
        let mut transfer = Transfer::to("cuda:0".parse().unwrap(), "a test");
        transfer.threads = NonZero::new(threads);
        let waits = host_waits();
        let there = array_to_device(&source, &transfer).unwrap();
        assert_eq!(host_waits(), waits);
        transfer.device = Device::CPU;
        assert_eq!(&array_to_device(&there, &transfer).unwrap().to_arrow().unwrap(), &array);
    }
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn tensors_share_one_block_of_memory() {
    cuda::use_device(0);
    let mut random = Random(13);
    let tensors: Vec<_> = (1..20)
        .map(|length| {
            let array = random_array(&DataType::Float32, length, 0, &mut random);
            Conversion::default().to_tensor(&shared(array.as_ref(), &field("x", DataType::Float32))).unwrap()
        })
        .collect();
    let there = tensors_to_device(&tensors, &Transfer::to("cuda:0".parse().unwrap(), "a test")).unwrap();
    let span = there.last().unwrap().as_ptr().addr() - there[0].as_ptr().addr();
    assert!(span < 20 * 128, "{span}");
    let back = tensors_to_device(&there, &Transfer::to(Device::CPU, "a test")).unwrap();
    for (back, tensor) in back.iter().zip(&tensors) {
        assert_eq!(back.as_bytes().unwrap(), tensor.as_bytes().unwrap());
    }
    drop(there);
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn streams_move_each_array_and_devices_without_a_way_are_errors() {
    cuda::use_device(0);
    let strings: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("ccc")]));
    let batch = RecordBatch::try_from_iter_with_nullable([("s", strings, true)]).unwrap();
    let array = DeviceArray::from_record_batch(&batch).unwrap();
    let (field, kind) = (array.field().clone(), array.device().device_type());
    let arrays = vec![Ok(array.clone()), Ok(array.clone())];
    let stream = DeviceArrayStream::new(field, kind, arrays.into_iter());
    let device: Device = "cuda:0".parse().unwrap();
    let stream = stream_to_device(stream, device, None, None, "a test".to_owned());
    let there: Vec<_> = stream.map(Result::unwrap).collect();
    assert!(there.iter().all(|array| array.device() == device));
    assert!(!is_shared(Device::CPU, device).unwrap() && is_shared(device, device).unwrap());
    for name in ["cuda_managed:0", "rocm:0"] {
        let error = array_to_device(&array, &Transfer::to(name.parse().unwrap(), "a test")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device);
    }
}
