//! Arrow arrays, in and out.

use std::sync::Arc;

use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{Array, DictionaryArray, Int32Array, RunArray, StringArray, StringViewArray};
use arrow_dlpack::arrow::export_device_array;
use arrow_dlpack::ffi::arrow_device::{ArrowArray, ArrowDeviceArray};
use arrow_dlpack::{
    Conversion, CopyMode, DType, DeviceArray, ErrorKind, NullPolicy, Scalar, Selection, copy_array, request_field,
    to_arrow,
};
use arrow_schema::{DataType, Field};

use crate::support::Count;
use crate::support::arrow::{child_of, counted, field, import_edited, release, shared};
use crate::support::dlpack::Memory;
use crate::support::reference::read;
use crate::{batch, column};

fn imported() -> (DeviceArray, Count) {
    let (array, released) = import_edited(&column(), &field("x", DataType::Int32), |_| ());
    (array.unwrap(), released)
}

#[test]
fn an_imported_array_is_released_after_its_last_view() {
    let (array, released) = imported();
    let keep = Conversion::default().nulls(NullPolicy::Keep).copy(CopyMode::Never);
    let view = keep.to_tensor(&array).unwrap();
    let copy = Conversion::default().nulls(NullPolicy::Fill(Scalar::Int(2))).to_tensor(&array).unwrap();
    let valid = Conversion::default().validity(&array).unwrap();
    let arrow = array.to_arrow().unwrap();
    drop(array);
    drop((copy.clone(), valid.clone()));
    assert_eq!(released.get(), 0);
    drop(arrow);
    assert_eq!(released.get(), 0, "the view is left");
    drop(view);
    assert_eq!(released.get(), 1);
    assert_eq!(copy.as_slice::<i32>().unwrap(), [1, 2, 3, 4]);
    assert_eq!(read(&valid).concat(), [1, 0, 1, 1]);
}

#[test]
fn a_refused_array_is_released_too() {
    for edit in [|array: &mut ArrowArray| array.n_buffers = 9, |array: &mut ArrowArray| array.length = i64::MIN] {
        let (refused, released) = import_edited(&column(), &field("x", DataType::Int32), edit);
        assert!(refused.is_err());
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn what_was_released_or_moved_is_refused_and_left_alone() {
    let (mut array, released) = counted(&column());
    release(&mut array);
    let x = field("x", DataType::Int32);
    // SAFETY: a released struct, which says so.
    let again = unsafe { DeviceArray::import(&raw mut array, x.clone()) };
    assert!(again.unwrap_err().reason().contains("ArrowArray was released"));
    let mut device =
        ArrowDeviceArray { array, device_id: -1, device_type: 1, sync_event: std::ptr::null_mut(), reserved: [0; 3] };
    // SAFETY: a released struct, which says so.
    let again = unsafe { DeviceArray::import_device(&raw mut device, x) };
    assert!(again.unwrap_err().reason().contains("ArrowDeviceArray was released"));
    assert_eq!(released.get(), 1);
}

#[test]
fn columns_share_their_batch() {
    let (imported, released) = import_edited(&batch(), &field("", batch().data_type().clone()), |_| ());
    let rows = imported.unwrap();
    let b = rows.column(1).unwrap();
    let tensors = Conversion::default().select(Selection::Each(Some(vec!["b".to_owned()]))).to_tensors(&rows);
    let tensors = tensors.unwrap();
    assert!(rows.column(2).is_err());
    drop(rows);
    let tensor = Conversion::default().to_tensor(&b).unwrap();
    drop(b);
    assert_eq!(released.get(), 0);
    assert_eq!(tensor.as_slice::<i32>().unwrap(), [5, 6, 7, 8]);
    drop(tensor);
    assert_eq!(released.get(), 0);
    drop(tensors);
    assert_eq!(released.get(), 1);
}

#[test]
fn a_request_shares_memory_or_lets_go_of_it() {
    let (array, released) = imported();
    let renamed = request_field(&array, &field("y", DataType::Int32)).unwrap();
    let cast = request_field(&array, &field("x", DataType::Int64)).unwrap();
    assert!(request_field(&array, &field("x", DataType::Utf8View)).is_ok());
    assert!(request_field(&array, &Arc::new(Field::new("x", DataType::Int32, false))).is_err());
    assert!(request_field(&array, &field("x", DataType::Null)).is_err());
    drop(array);
    assert_eq!(released.get(), 0);
    assert_eq!(renamed.field().name(), "y");
    drop(renamed);
    assert_eq!(cast.to_arrow().unwrap().null_count(), 1);
    drop(cast);
    assert_eq!(released.get(), 1);
}

#[test]
fn a_shared_arrow_rs_array_is_let_go() {
    let array = Int32Array::from(vec![1, 2, 3]);
    let shares = || array.values().inner().strong_count();
    let before = shares();
    let tensor = Conversion::default().to_tensor(&shared(&array, &field("x", DataType::Int32))).unwrap();
    assert_eq!(shares(), before + 1);
    drop(tensor);
    assert_eq!(shares(), before);
    let wrong = DeviceArray::from_arrow(&array, field("x", DataType::Int64)).unwrap_err();
    assert!(wrong.kind() == ErrorKind::Argument && shares() == before);
}

#[test]
fn an_exported_array_keeps_its_memory_and_may_be_moved() {
    let (array, released) = imported();
    let mut exported = export_device_array(&array).unwrap().into_raw().array;
    let mut second = export_device_array(&array).unwrap().into_raw().array;
    drop(array);
    // The move of the C data interface.
    let mut moved = std::mem::replace(&mut exported, ArrowArray::empty());
    release(&mut second);
    assert_eq!(released.get(), 0);
    // SAFETY: a live struct; a released one is left alone by its own callback.
    let callback = moved.release.unwrap();
    release(&mut moved);
    assert_eq!(released.get(), 1);
    // SAFETY: our callback on a struct that says it is released.
    unsafe { callback(&raw mut moved) };
    // SAFETY: our callback on NULL.
    unsafe { callback(std::ptr::null_mut()) };
    assert_eq!(released.get(), 1);
}

#[test]
fn children_may_outlive_the_array_that_they_were_moved_out_of() {
    let (imported, released) = import_edited(&batch(), &field("", batch().data_type().clone()), |_| ());
    let mut parent = export_device_array(&imported.unwrap()).unwrap().into_raw().array;
    let child = child_of(&mut parent, 1);
    let mut moved = std::mem::replace(child, ArrowArray::empty());
    release(&mut parent);
    assert_eq!(released.get(), 0);
    // SAFETY: a live child, moved as the C data interface describes it.
    let column = unsafe { DeviceArray::import(&raw mut moved, field("b", DataType::Int32)) }.unwrap();
    assert_eq!(Conversion::default().to_tensor(&column).unwrap().as_slice::<i32>().unwrap(), [5, 6, 7, 8]);
    drop(column);
    assert_eq!(released.get(), 1);
}

#[test]
fn an_exported_dictionary_is_released_with_its_array() {
    let dictionary: DictionaryArray<Int8Type> = ["a", "b", "a"].into_iter().collect();
    let own = field("d", dictionary.data_type().clone());
    let (imported, released) = import_edited(&dictionary, &own, |_| ());
    let mut exported = export_device_array(&imported.unwrap()).unwrap().into_raw().array;
    assert!(!exported.dictionary.is_null());
    release(&mut exported);
    assert_eq!(released.get(), 1);
}

#[test]
fn a_tensor_lends_its_memory_to_the_array_it_becomes() {
    let (tensor, released) = Memory::four().import();
    let valid = Memory::new(&[1, 1, 0, 1], DType::Bool, &[4], &[1], 0).import().0.unwrap();
    let array = to_arrow(&tensor.unwrap(), Some(&valid), CopyMode::Never).unwrap();
    let mut exported = export_device_array(&array).unwrap().into_raw().array;
    drop(array);
    assert_eq!((released.get(), exported.null_count), (0, 1));
    release(&mut exported);
    assert_eq!(released.get(), 1);

    let (tensor, released) = Memory::four().import();
    let copy = to_arrow(&tensor.unwrap(), None, CopyMode::Always).unwrap();
    assert_eq!(released.get(), 1, "a copy lets its source go");
    assert_eq!(copy.len(), 4);
}

#[test]
fn a_copied_array_lets_its_source_go_whatever_its_type() {
    let long = "a string that is too long to be inlined";
    let dictionary: DictionaryArray<Int8Type> = [long, "b", long].into_iter().collect();
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![2, 5]), &Int32Array::from(vec![7, 8])).unwrap();
    for array in [
        column(),
        Arc::new(batch()),
        Arc::new(StringArray::from(vec![long, "b"])),
        Arc::new(StringViewArray::from(vec![long, "b"])),
        Arc::new(dictionary),
        Arc::new(runs),
    ] {
        let array = array.slice(1, array.len() - 1);
        let own = field("x", array.data_type().clone());
        let (imported, released) = import_edited(&array, &own, |_| ());
        let copy = copy_array(&imported.unwrap()).unwrap();
        assert_eq!(released.get(), 1, "{}", array.data_type());
        assert_eq!((copy.field(), &copy.to_arrow().unwrap().to_data()), (&own, &array.to_data()));
    }
}
