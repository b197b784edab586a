//! Arrow arrays of any type that has a tensor form, and C structs of them that count their releases.

use std::ffi::c_void;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_dlpack::DeviceArray;
use arrow_dlpack::arrow::ReleaseGuard;
use arrow_dlpack::ffi::arrow_device::ArrowArray;
use arrow_schema::{DataType, Field, FieldRef};

use super::{Count, Random};

/// A nullable field.
pub(crate) fn field(name: &str, data_type: DataType) -> FieldRef {
    Arc::new(Field::new(name, data_type, true))
}

/// A fixed-size list of nullable items.
pub(crate) fn list(item: DataType, size: i32) -> DataType {
    DataType::FixedSizeList(field("item", item), size)
}

/// An extension type over a field's type.
pub(crate) fn extension(field: &FieldRef, name: &str, metadata: &str) -> FieldRef {
    let entries = [("ARROW:extension:name", name), ("ARROW:extension:metadata", metadata)];
    let entries = entries.into_iter().filter(|(_, value)| !value.is_empty());
    let entries = entries.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    Arc::new(field.as_ref().clone().with_metadata(entries))
}

/// An array of random bits, one slot in `one_null_in` null on every level, or none if that is 0. Floats are small, so
/// that they are neither NaN nor infinite. Null slots hold junk.
pub(crate) fn random_array(data_type: &DataType, length: usize, one_null_in: usize, random: &mut Random) -> ArrayRef {
    let nulls = (one_null_in > 0)
        .then(|| NullBuffer::new(BooleanBuffer::collect_bool(length, |_| random.below(one_null_in) != 0)));
    let data = ArrayData::builder(data_type.clone()).len(length).nulls(nulls);
    let data = match data_type {
        DataType::FixedSizeList(item, size) => {
            let items = random_array(item.data_type(), length * *size as usize, one_null_in, random);
            data.add_child_data(items.to_data())
        }
        DataType::Boolean => {
            data.add_buffer(BooleanBuffer::collect_bool(length, |_| random.next() & 1 == 1).into_inner())
        }
        DataType::Float16 => {
            data.add_buffer(Buffer::from_iter((0..length).map(|_| half::f16::from_f32(small(random)))))
        }
        DataType::Float32 => data.add_buffer(Buffer::from_iter((0..length).map(|_| small(random)))),
        DataType::Float64 => data.add_buffer(Buffer::from_iter((0..length).map(|_| f64::from(small(random)) / 3.0))),
        other => {
            let bytes = length * other.primitive_width().expect("a type with a tensor form");
            let words: Vec<_> = (0..bytes.div_ceil(8)).map(|_| random.next()).collect();
            // In 16 bytes each, so that the buffer is aligned for every width.
            let pair = |words: &[u64]| u128::from(words[0]) | words.get(1).map_or(0, |word| u128::from(*word) << 64);
            let pairs: Vec<_> = words.chunks(2).map(|words| pair(words).cast_signed()).collect();
            data.add_buffer(Buffer::from_vec(pairs).slice_with_length(0, bytes))
        }
    };
    make_array(data.build().expect("a valid array"))
}

fn small(random: &mut Random) -> f32 {
    f32::from(random.next() as i16) / 64.0
}

/// An array with its field, over the same memory.
pub(crate) fn shared(array: &dyn Array, field: &FieldRef) -> DeviceArray {
    DeviceArray::from_arrow(array, field.clone()).unwrap()
}

/// The values buffer's address of the first row of an array of primitives.
pub(crate) fn address_of_values(array: &dyn Array) -> *const u8 {
    let data = array.to_data();
    let width = array.data_type().primitive_width().unwrap();
    data.buffers()[0].as_ptr().wrapping_add(data.offset() * width)
}

/// What a counted struct owns: the true struct, and copies of its pointers for the test to change.
struct Counted {
    _original: FFI_ArrowArray,
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
    released: Count,
}

/// arrow-rs' C struct of an array, with a release callback that counts. Members may be changed: release needs none of
/// them but `private_data`.
pub(crate) fn counted(array: &dyn Array) -> (ArrowArray, Count) {
    let mut original = FFI_ArrowArray::new(&array.to_data());
    // SAFETY: both are `struct ArrowArray` of the C data interface, which tests/layout.rs checks; read, not moved.
    let mut outer = unsafe { (&raw mut original).cast::<ArrowArray>().read() };
    let entries = |count: i64| 0..count as usize;
    // SAFETY: arrow-rs gives as many entries as it says.
    let buffers = entries(outer.n_buffers).map(|index| unsafe { outer.buffers.wrapping_add(index).read() }).collect();
    // SAFETY: arrow-rs gives as many entries as it says.
    let children =
        entries(outer.n_children).map(|index| unsafe { outer.children.wrapping_add(index).read() }).collect();
    let released = Count::default();
    let mut counted = Box::new(Counted { _original: original, buffers, children, released: released.clone() });
    outer.buffers = counted.buffers.as_mut_ptr();
    outer.children = counted.children.as_mut_ptr();
    outer.private_data = Box::into_raw(counted).cast();
    outer.release = Some(release_counted);
    (outer, released)
}

/// # Safety
/// `array` was made by [`counted`], moved perhaps, not yet released.
unsafe extern "C" fn release_counted(array: *mut ArrowArray) {
    // SAFETY: `counted` made the struct, and its owner releases it once.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: the box of [`counted`]; a struct is released once.
    let counted = unsafe { Box::from_raw(array.private_data.cast::<Counted>()) };
    counted.released.add();
}

/// Imports a counted struct of an array, changed by `edit`.
pub(crate) fn import_edited(
    array: &dyn Array,
    field: &FieldRef,
    edit: impl FnOnce(&mut ArrowArray),
) -> (arrow_dlpack::Result<DeviceArray>, Count) {
    import_guarded(array, field, edit, |release| release())
}

/// As [`import_edited`], with a guard of the release callback.
pub(crate) fn import_guarded(
    array: &dyn Array,
    field: &FieldRef,
    edit: impl FnOnce(&mut ArrowArray),
    guard: ReleaseGuard,
) -> (arrow_dlpack::Result<DeviceArray>, Count) {
    let (mut counted, released) = counted(array);
    edit(&mut counted);
    // SAFETY: a struct of arrow-rs; what `edit` breaks on purpose is what import has to find.
    let imported = unsafe { DeviceArray::import_guarded(&raw mut counted, field.clone(), guard) };
    assert!(counted.release.is_none(), "a moved struct counts as released");
    (imported, released)
}

/// Changes a buffer pointer of a struct.
pub(crate) fn set_buffer(array: &mut ArrowArray, index: usize, pointer: *const c_void) {
    assert!((index as i64) < array.n_buffers);
    // SAFETY: a struct of [`counted`], which has this entry.
    unsafe { array.buffers.wrapping_add(index).write(pointer) };
}

/// A child struct, to be changed.
pub(crate) fn child_of(array: &mut ArrowArray, index: usize) -> &mut ArrowArray {
    assert!((index as i64) < array.n_children);
    // SAFETY: a struct of [`counted`], which has this entry.
    let child = unsafe { array.children.wrapping_add(index).read() };
    // SAFETY: a live child, borrowed with its parent.
    unsafe { &mut *child }
}

/// Releases a struct as its consumer.
pub(crate) fn release(array: &mut ArrowArray) {
    let release = array.release.expect("a live struct");
    // SAFETY: a live struct that this test owns.
    unsafe { release(array) };
    assert!(array.release.is_none(), "a release callback marks the struct as released");
}
