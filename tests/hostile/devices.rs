//! Device arrays.

use std::ptr::{null_mut, without_provenance_mut};

use arrow_array::Int32Array;
use arrow_dlpack::arrow::export_device_array;
use arrow_dlpack::ffi::arrow_device::ArrowDeviceArray;
use arrow_dlpack::{Conversion, DeviceArray, ErrorKind, Result, request_field};
use arrow_schema::DataType;

use crate::support::Count;
use crate::support::arrow::{counted, field, release, set_buffer};

fn import_device(edit: impl FnOnce(&mut ArrowDeviceArray)) -> (Result<DeviceArray>, Count) {
    let (array, released) = counted(&Int32Array::from(vec![1, 2, 3]));
    let mut device =
        ArrowDeviceArray { array, device_id: -1, device_type: 1, sync_event: null_mut(), reserved: [0; 3] };
    edit(&mut device);
    // SAFETY: a valid struct, but for what `edit` breaks on purpose.
    let imported = unsafe { DeviceArray::import_device(&raw mut device, field("x", DataType::Int32)) };
    assert!(device.array.release.is_none());
    (imported, released)
}

#[test]
fn broken_members_of_a_device_array_are_named() {
    let event = without_provenance_mut(0x1000);
    for (edit, word) in [
        ((|array| array.device_id = i64::MAX) as fn(&mut ArrowDeviceArray), "device_id"),
        (|array| array.device_id = i64::MIN, "device_id"),
        (|array| array.array.n_buffers = 1, "n_buffers"),
    ] {
        let (outcome, released) = import_device(edit);
        let error = outcome.unwrap_err();
        assert!(error.reason().contains(word), "{error}");
        assert_eq!(released.get(), 1);
    }
    let (outcome, released) = import_device(|array| array.sync_event = event);
    assert!(outcome.unwrap_err().reason().contains("sync_event"));
    assert_eq!(released.get(), 1);
}

#[test]
fn the_cpus_id_and_reserved_bytes_may_be_anything() {
    for id in [-1, 0, 3] {
        let (imported, _) = import_device(|array| {
            array.device_id = id;
            array.reserved = [i64::MAX, -1, 7];
        });
        let imported = imported.unwrap();
        assert_eq!(Conversion::default().to_tensor(&imported).unwrap().as_slice::<i32>().unwrap(), [1, 2, 3]);
        let mut exported = export_device_array(&imported).unwrap().into_raw();
        assert_eq!((exported.device_id, exported.reserved), (-1, [0; 3]));
        release(&mut exported.array);
    }
}

#[test]
fn buffers_on_a_device_are_not_touched() {
    for device_type in [2, 99, -1] {
        let (imported, released) = import_device(|array| {
            (array.device_type, array.device_id) = (device_type, 5);
            array.sync_event = without_provenance_mut(0x1000);
            array.array.null_count = -1;
            set_buffer(&mut array.array, 0, without_provenance_mut(0x1000));
            set_buffer(&mut array.array, 1, without_provenance_mut(0x2000));
        });
        let imported = imported.unwrap();
        assert_eq!((imported.device().device_type().0, imported.device().id()), (device_type, 5));
        assert_eq!(Conversion::default().to_tensor(&imported).unwrap_err().kind(), ErrorKind::Device);
        assert_eq!(imported.to_arrow().unwrap_err().kind(), ErrorKind::Device);
        assert_eq!(request_field(&imported, &field("x", DataType::Int64)).unwrap_err().kind(), ErrorKind::Device);
        let mut exported = export_device_array(&imported).unwrap().into_raw();
        assert_eq!((exported.device_type, exported.device_id, exported.array.null_count), (device_type, 5, -1));
        assert_eq!(exported.sync_event, without_provenance_mut(0x1000));
        release(&mut exported.array);
        drop(imported);
        assert_eq!(released.get(), 1);
    }
}
