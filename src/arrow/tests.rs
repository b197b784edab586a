//! What do the checks and the walk of an array find: sizes at their limits, nulls of every level, dictionaries, rows?

mod alignment;
mod decompose;
mod devices;
mod narrowed;

use std::ptr::{null, null_mut};
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, DictionaryArray, FixedSizeListArray, Int8Array, Int32Array, NullArray, RunArray,
    StringArray, StructArray, UnionArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Fields, UnionFields};

use super::check::{check, check_sizes, counts_in};
use super::foreign::MAX_DEPTH;
use super::import::DeviceArray;
use super::lists::Hidden;
use super::view::Leaf;
use super::{BitRange, export_array};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::arrow_device::{ArrowArray, ArrowDeviceArray};
use crate::spec::{NullPolicy, Options, Spec};

/// Returns the array after a change of its C struct.
fn edited(array: &dyn Array, edit: impl FnOnce(&mut ArrowArray)) -> DeviceArray {
    let field = Arc::new(Field::new("x", array.data_type().clone(), true));
    let shared = DeviceArray::from_arrow(array, field.clone()).unwrap();
    let mut raw = export_array(&shared).unwrap().into_raw();
    edit(&mut raw);
    // SAFETY: our export, of which `edit` changed counts alone.
    unsafe { DeviceArray::import(&raw mut raw, field) }.unwrap()
}

/// Returns the array as one of a device that nobody reads.
fn on_device(array: &dyn Array) -> DeviceArray {
    edited_on_device(array, |_| ())
}

/// Returns the array as one of a device that nobody reads, after a change of its C struct.
fn edited_on_device(array: &dyn Array, edit: impl FnOnce(&mut ArrowArray)) -> DeviceArray {
    let field = Arc::new(Field::new("x", array.data_type().clone(), true));
    let shared = DeviceArray::from_arrow(array, field.clone()).unwrap();
    let mut array = export_array(&shared).unwrap().into_raw();
    edit(&mut array);
    let mut raw = ArrowDeviceArray { array, device_id: 0, device_type: 10, sync_event: null_mut(), reserved: [0; 3] };
    // SAFETY: our export; a label of another device keeps it from being read.
    unsafe { DeviceArray::import_device(&raw mut raw, field) }.unwrap()
}

/// Changes a buffer of our export.
fn set_buffer(array: &mut ArrowArray, index: usize, start: *const std::ffi::c_void) {
    assert!(index < usize::try_from(array.n_buffers).unwrap());
    // SAFETY: `buffers` has `n_buffers` entries, and `index` is below that.
    unsafe { array.buffers.wrapping_add(index).write(start) };
}

fn leaf(array: &DeviceArray) -> Leaf<'_> {
    let spec = Spec::new(array.field(), &Options::default().nulls(NullPolicy::Keep)).unwrap();
    array.view().leaf(&spec).unwrap()
}

/// Returns the leaf of an array of the null type, which only columns of other types around it have.
fn leaf_of_nulls(array: &DeviceArray) -> Leaf<'_> {
    let mut leaf = Leaf::of_bytes(&[0; 3]);
    leaf.innermost = Some((&DataType::Null, array.view().array));
    leaf
}

fn structs(columns: Vec<(&str, ArrayRef)>, nulls: Option<NullBuffer>) -> StructArray {
    let (fields, columns): (Vec<_>, Vec<_>) =
        columns.into_iter().map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column)).unzip();
    StructArray::new(Fields::from(fields), columns, nulls)
}

fn union() -> UnionArray {
    let fields = UnionFields::try_new([0], [Field::new("a", DataType::Int32, true)]).unwrap();
    let column: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    UnionArray::try_new(fields, vec![0, 0].into(), None, vec![column]).unwrap()
}

#[test]
fn plain_columns_are_numbers_without_any_bitmap() {
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let columns = vec![
        ("plain", numbers.clone()),
        ("nulls", Arc::new(Int32Array::from(vec![Some(1), None, Some(3)])) as ArrayRef),
        ("text", Arc::new(StringArray::from(vec!["a", "b", "c"])) as ArrayRef),
    ];
    let rows = edited(&structs(columns.clone(), None), |_| ());
    let plain = |array: &DeviceArray, index| array.view().plain_column(index).map(|leaf| (leaf.elements, leaf.rows));
    assert_eq!([0, 1, 2, 3].map(|index| plain(&rows, index)), [Some((3, 3)), None, None, None]);
    let sliced = rows.slice(1, 2).unwrap();
    let found = sliced.view().plain_column(0).unwrap();
    // SAFETY: three int32 of an array that is alive.
    assert_eq!(unsafe { found.values.cast::<i32>().wrapping_add(found.offset).read() }, 2);
    assert_eq!(rows.plain_values(Some(0), 4).map(|(_, count)| count), Some(3));
    assert_eq!([1, 3].map(|index| rows.plain_values(Some(index), 4)), [None; 2]);

    // A bitmap that the count calls unused is none.
    let unused = edited(&Int32Array::from(vec![Some(1), None]), |raw| raw.null_count = 0);
    assert_eq!(unused.plain_values(None, 4).map(|(_, count)| count), Some(2));

    // Nulls of the struct, counted or not, or of a struct around it, are nulls of each column.
    let valid = NullBuffer::from(vec![true, false, true]);
    let with_nulls = structs(columns, Some(valid.clone()));
    for count in [1, -1] {
        let rows = edited(&with_nulls, |raw| raw.null_count = count);
        assert!(plain(&rows, 0).is_none() && rows.plain_values(Some(0), 4).is_none());
        let column = rows.column(0).unwrap();
        assert!(column.plain_values(None, 4).is_none() && !column.is_alone());
        let (own, mask) = column.split_inherited().unwrap();
        assert!(own.is_alone() && mask.unwrap().nulls() == 1);
    }
    let inner = structs(vec![("n", numbers.clone())], None);
    let outer = edited(&structs(vec![("s", Arc::new(inner))], Some(valid)), |_| ());
    let inner = outer.column(0).unwrap();
    assert!(plain(&inner, 0).is_none() && inner.plain_values(Some(0), 4).is_none());

    // No struct has no columns, and memory of a device no values that the host reads.
    let alone = edited(&numbers, |_| ());
    assert!(plain(&alone, 0).is_none());
    assert_eq!(alone.plain_values(None, 4).map(|(_, count)| count), Some(3));
    assert!(on_device(&numbers).plain_values(None, 4).is_none());
}

#[test]
fn a_bitmap_is_that_of_a_type_that_has_one() {
    let nulls = Int32Array::from(vec![Some(1), None]);
    assert_eq!(edited(&nulls, |_| ()).view().bitmap().unwrap().unwrap().bytes, 1);
    assert!(edited(&nulls, |_| ()).slice(0, 0).unwrap().view().bitmap().unwrap().is_none());
    assert!(edited(&Int32Array::from(vec![1]), |_| ()).view().bitmap().unwrap().is_none());
    let error = edited(&union(), |_| ()).view().bitmap().unwrap_err();
    assert!(error.reason().contains("has no validity bitmap"), "{error}");
}

#[test]
fn bits_are_inside_their_bytes() {
    for (bytes, offset, elements, fits) in [
        (1, 0, 8, true),
        (1, 1, 8, false),
        (1, 1, 7, true),
        (2, 9, 7, true),
        (2, 9, 8, false),
        (0, 0, 0, true),
        (1, 0, usize::MAX, false),
        (1, usize::MAX, 1, false),
    ] {
        assert_eq!(Leaf::of_bits(&vec![0; bytes], offset, elements).is_ok(), fits, "{elements} from {offset}");
    }
}

#[test]
fn elements_that_may_be_null_are_told_from_the_structs() {
    let null = edited(&NullArray::new(3), |_| ());
    let none = edited(&Int32Array::from(vec![1, 2]), |_| ());
    let some = edited(&Int32Array::from(vec![Some(1), None]), |_| ());
    let leaves = [leaf_of_nulls(&null), leaf(&none), leaf(&some)];
    assert_eq!(leaves.each_ref().map(Leaf::has_bitmaps), [true, false, true]);
    assert_eq!(leaves.each_ref().map(Leaf::known_nulls), [Some(3), Some(0), Some(1)]);
    // Of a null array, no bitmap tells that all is null.
    let levels = leaves.each_ref().map(|leaf| leaf.own_levels().map(|levels| levels.len()));
    assert_eq!(levels, [None, Some(0), Some(1)]);
    let empty = some.slice(0, 0).unwrap();
    assert_eq!((leaf(&empty).own_levels().unwrap().len(), leaf(&empty).bitmaps(false).count()), (0, 0));
    assert_eq!(leaf(&some).bitmaps(false).count(), 1);

    // Lists of nothing have nulls of no element.
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let valid = NullBuffer::from(vec![true, false]);
    let lists =
        FixedSizeListArray::try_new_with_length(item, 0, Arc::new(Int32Array::from(Vec::<i32>::new())), Some(valid), 2)
            .unwrap();
    let lists = edited(&lists, |_| ());
    assert_eq!((leaf(&lists).own_levels().unwrap().len(), leaf(&lists).bitmaps(false).count()), (0, 0));
}

/// Reads bits whose last one of each range is null.
fn last_is_null(range: BitRange) -> Result<Option<Vec<u8>>> {
    let mut bytes = vec![0xff; (range.first_bit + range.count).div_ceil(8)];
    let last = range.first_bit + range.count - 1;
    bytes[last / 8] &= !(1 << (last % 8));
    Ok(Some(bytes))
}

fn all_valid(_: BitRange) -> Result<Option<Vec<u8>>> {
    Ok(None)
}

fn fails(_: BitRange) -> Result<Option<Vec<u8>>> {
    Err(Error::internal("it was read"))
}

#[test]
fn codes_are_null_by_their_values_as_far_as_these_are_told() {
    let words = |words: Vec<Option<&str>>| -> DictionaryArray<Int8Type> {
        DictionaryArray::new(Int8Array::from(vec![0, 1, 0]), Arc::new(StringArray::from(words)))
    };
    let counted = |dictionary: &DictionaryArray<Int8Type>, count: i64| {
        edited(dictionary, |raw| {
            // SAFETY: the dictionary of our export, which nobody else has.
            unsafe { (*raw.dictionary).null_count = count }
        })
    };
    let with_null = words(vec![Some("a"), None]);

    // Not counted: the bitmap has to be read.
    let codes = counted(&with_null, -1);
    let found = leaf(&codes);
    assert!(found.levels().is_none() && found.own_levels().unwrap().is_empty());
    assert_eq!((found.bitmaps(false).count(), found.bitmaps(true).count()), (1, 0));
    assert!(found.mask_read(false, all_valid).unwrap().is_none());
    let error = found.mask_read(false, last_is_null).unwrap_err();
    assert!(error.reason().contains("may have nulls"), "{error}");
    assert!(found.mask_read(false, fails).unwrap_err().reason().contains("it was read"));
    // Values that are gathered bring their nulls with them.
    assert!(found.mask_read(true, fails).unwrap().is_none());
    assert!(found.has_plain_dictionary() && found.gathered_values().unwrap().validity.is_some());

    // Counted: nothing is read.
    let codes = counted(&with_null, 1);
    let found = leaf(&codes);
    assert!(found.levels().is_some() && found.bitmaps(false).count() == 0);
    assert!(found.mask_read(false, fails).unwrap_err().reason().contains("may have nulls"));
    assert!(found.mask_read(true, fails).unwrap().is_none());
    for codes in [counted(&with_null, 0), counted(&words(vec![Some("a"), Some("b")]), 0)] {
        assert!(leaf(&codes).mask_read(false, fails).unwrap().is_none());
        assert!(leaf(&codes).gathered_values().unwrap().validity.is_none());
    }

    // A dictionary without values, of which a bitmap tells nothing.
    let none = DictionaryArray::<Int8Type>::new(
        Int8Array::from(vec![None, None]),
        Arc::new(StringArray::from(Vec::<&str>::new())),
    );
    let codes = edited(&none, |raw| {
        // SAFETY: the dictionary of our export, which nobody else has.
        let dictionary = unsafe { &mut *raw.dictionary };
        dictionary.null_count = -1;
        static BITS: u8 = 0;
        // SAFETY: three buffers, the first of which is the bitmap, of no bits.
        unsafe { dictionary.buffers.write((&raw const BITS).cast()) };
    });
    let found = leaf(&codes);
    assert_eq!(found.bitmaps(false).count(), 1, "of the codes alone");
    assert!(found.gathered_values().unwrap().validity.is_none());

    // Values of the null type are all null.
    for (count, refused) in [(2, true), (0, false)] {
        let keys = Int8Array::from(if count > 0 { vec![0, 1] } else { vec![] });
        let nothing = edited(&DictionaryArray::<Int8Type>::new(keys, Arc::new(NullArray::new(count))), |_| ());
        assert_eq!(leaf(&nothing).mask_read(false, fails).is_err(), refused);
        assert_eq!(leaf(&nothing).has_plain_dictionary(), !refused);
    }
    let null = edited(&NullArray::new(3), |_| ());
    assert_eq!(leaf_of_nulls(&null).mask_read(false, fails).unwrap().unwrap().nulls(), 3);
}

#[test]
fn rows_of_views_are_read_where_they_are_valid() {
    let views =
        edited(&BinaryViewArray::from(vec![Some(&b"short"[..]), None, Some(b"a value that is not inline")]), |_| ());
    let chunk = views.views().unwrap();
    let rows: Vec<_> = (0..chunk.rows()).map(|row| chunk.bytes(row).unwrap()).collect();
    assert_eq!(rows, [Some(&b"short"[..]), None, Some(b"a value that is not inline")]);
    // Without rows and without buffers.
    let none = edited(&BinaryViewArray::from(Vec::<Option<&[u8]>>::new()), |_| ());
    assert_eq!(none.views().unwrap().rows(), 0);
}

#[test]
fn runs_are_those_that_have_an_end_and_a_value() {
    let runs = RunArray::try_new(&Int32Array::from(vec![1, 3, 4]), &Int32Array::from(vec![5, 6, 7])).unwrap();
    let array = edited(&runs, |raw| {
        // SAFETY: our export has two children, so there are two pointers.
        let values = unsafe { *raw.children.wrapping_add(1) };
        // SAFETY: the live child of our export, which nobody else uses.
        unsafe { (*values).length -= 1 };
    });
    let values = leaf(&array).gathered_values().unwrap();
    assert_eq!((values.count, values.code_bytes.len()), (2, 8));
}

#[test]
fn offsets_have_the_width_of_their_type() {
    let texts = vec!["a", "", "bcd"];
    let narrow = edited(&StringArray::from(texts.clone()), |_| ());
    let wide = edited(&arrow_array::LargeStringArray::from(texts), |_| ());
    for (array, dtype) in [(&narrow, DType::Int32), (&wide, DType::Int64)] {
        let list = array.lists().unwrap();
        assert_eq!((list.offsets().dtype(), list.offsets().len(), list.span()), (dtype, 4, 0..4));
        assert_eq!((0..3).map(|row| list.row(row)).collect::<Vec<_>>(), [0..1, 1..1, 1..4]);
        // A row that is not there shows nothing of another one.
        assert!(list.row(7).is_empty());
        assert!(list.is_aligned());
    }
    let later = wide.slice(1, 2).unwrap();
    let list = later.lists().unwrap();
    assert_eq!((0..2).map(|row| list.row(row)).collect::<Vec<_>>(), [1..1, 1..4]);
    // The second row of 32-bit offsets is aligned, whatever a 64-bit offset needs.
    assert!(narrow.slice(1, 1).unwrap().lists().unwrap().is_aligned());
}

#[test]
fn empty_rows_may_begin_at_the_end_of_the_elements() {
    use arrow_array::ListViewArray;
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let of = |offsets: Vec<i32>, sizes: Vec<i32>| {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        edited(&ListViewArray::new(item.clone(), offsets.into(), sizes.into(), values, None), |_| ())
    };
    let list = of(vec![3, 0, 3], vec![0, 3, 0]);
    let list = list.lists().unwrap();
    assert_eq!((0..3).map(|row| list.row(row)).collect::<Vec<_>>(), [3..3, 0..3, 3..3]);
}

#[test]
fn hidden_elements_are_those_that_no_range_has_shown() {
    for length in [0, 1, 7, 8, 9, 16] {
        let mut hidden = Hidden::all(length).unwrap();
        assert_eq!(hidden.is_any(), length > 0);
        assert!(
            (0..length).all(|index| hidden.contains(index))
                && (length..length + 9).all(|index| !hidden.contains(index))
        );
        // Beyond the end, or of nothing: no element changes.
        for range in [0..length + 1, length..length + 1, 0..0, length..length] {
            hidden.show(&range);
            assert_eq!(hidden.is_any(), length > 0, "{range:?} of {length}");
        }
        for index in 0..length {
            hidden.show(&(index..index + 1));
            assert!(!hidden.contains(index) && (index + 1..length).all(|later| hidden.contains(later)));
        }
        assert!(!hidden.is_any(), "{length}");
    }
    let mut whole = Hidden::all(9).unwrap();
    whole.show(&(0..9));
    assert!(!whole.is_any());
}

#[test]
fn hidden_elements_become_nulls_of_types_that_have_them() {
    let mut hidden = Hidden::all(3).unwrap();
    hidden.show(&(1..3));
    let array = edited(&Int32Array::from(vec![Some(1), None, Some(3)]), |_| ()).hiding(&hidden).unwrap();
    let nulls: Vec<bool> = (0..3).map(|row| array.to_arrow().unwrap().is_null(row)).collect();
    assert_eq!(nulls, [true, true, false]);
    let error = edited(&union(), |_| ()).hiding(&hidden).unwrap_err();
    assert!(error.reason().contains("has no validity"), "{error}");
}

#[test]
fn a_released_struct_is_refused_by_name() {
    let (array, field) = (Int32Array::from(vec![1]), Arc::new(Field::new("x", DataType::Int32, true)));
    let mut released = ArrowArray::empty();
    // SAFETY: a struct that says that it is released.
    let error = unsafe { DeviceArray::import(&raw mut released, field.clone()) }.unwrap_err();
    assert!(error.reason().contains("consumed already"), "{error}");
    let mut device = ArrowDeviceArray {
        array: ArrowArray::empty(),
        device_id: 0,
        device_type: 1,
        sync_event: null_mut(),
        reserved: [0; 3],
    };
    // SAFETY: a struct that says that it is released.
    let error = unsafe { DeviceArray::import_device(&raw mut device, field) }.unwrap_err();
    assert!(error.reason().contains("consumed already"), "{error}");

    let rows = structs(vec![("n", Arc::new(array))], None);
    let field = Arc::new(Field::new("x", rows.data_type().clone(), true));
    let mut raw = export_array(&DeviceArray::from_arrow(&rows, field.clone()).unwrap()).unwrap().into_raw();
    // SAFETY: our export has one child, so there is one pointer.
    let child = unsafe { *raw.children };
    // SAFETY: the live child of our export, which nobody else uses.
    let release = unsafe { &mut *child }.release.take();
    // SAFETY: a struct whose child says that it is released, which the check has to find.
    let error = unsafe { check(&field, &raw) }.unwrap_err();
    assert!(error.reason().contains("released") && error.column() == Some("n"), "{error}");
    // SAFETY: the live child of our export, which nobody else uses since the check. A reference from before it would be no longer valid,
    // as the check reads the child through the parent's pointer.
    unsafe { &mut *child }.release = release;
    // SAFETY: our export as it was.
    drop(unsafe { DeviceArray::import(&raw mut raw, field) }.unwrap());
}

/// Returns the parts of an array that nobody releases.
fn parts(length: i64, buffers: &mut [*const std::ffi::c_void]) -> ArrowArray {
    unsafe extern "C" fn release(_: *mut ArrowArray) {}
    let n_buffers = i64::try_from(buffers.len()).unwrap();
    ArrowArray { length, n_buffers, buffers: buffers.as_mut_ptr(), release: Some(release), ..ArrowArray::empty() }
}

#[test]
fn counts_at_their_limits() {
    let of = |data_type: DataType, array: &ArrowArray| {
        // SAFETY: as many buffers as the struct says, where it has any.
        unsafe { check(&Field::new("x", data_type, true), array) }
    };
    let some = std::ptr::dangling::<u64>().cast();
    for (count, fits) in [(0, true), (1, true), (2, false)] {
        let mut buffers = vec![null(); count];
        assert_eq!(of(DataType::Null, &parts(4, &mut buffers)).is_ok(), fits, "{count} buffers of nulls");
    }
    // Nobody may read a buffer by a misaligned pointer, not even of a type without buffers.
    let mut bitmap = [null(); 2];
    let mut misaligned = parts(4, &mut bitmap[..1]);
    misaligned.buffers = misaligned.buffers.wrapping_byte_add(1);
    let error = of(DataType::Null, &misaligned).unwrap_err();
    assert!(error.reason().contains("ArrowArray.buffers is a misaligned pointer"), "{error}");
    // Types without buffers need no pointer to any.
    assert!(of(DataType::Null, &ArrowArray { buffers: null_mut(), ..parts(4, &mut []) }).is_ok());
    for (count, fits) in [(2, false), (3, true), (4, true)] {
        let mut buffers = vec![some; count];
        assert_eq!(of(DataType::Utf8View, &parts(1, &mut buffers)).is_ok(), fits, "{count} buffers of views");
    }
    let error = of(DataType::BinaryView, &parts(1, &mut [some; 2])).unwrap_err();
    assert!(error.reason().ends_with("n_buffers is 2, and BinaryView has 3 or more"), "{error}");
    let mut buffers = [some; 3];
    let many = ArrowArray { n_buffers: i64::from(i32::MAX) + 1, ..parts(1, &mut buffers) };
    assert!(of(DataType::BinaryView, &many).is_err());

    for (levels, fits) in [(MAX_DEPTH, true), (MAX_DEPTH + 1, false)] {
        let (mut data_type, mut pointers) = (DataType::Null, Vec::new());
        let mut array = Box::new(parts(1, &mut []));
        let mut bitmap = [null()];
        let bitmap = bitmap.as_mut_ptr();
        for _ in 0..levels {
            data_type = DataType::FixedSizeList(Arc::new(Field::new("item", data_type, true)), 1);
            let child = Box::into_raw(array);
            // A box that is moved would end the pointers into it.
            let children = Box::into_raw(Box::new(child));
            let of_children = ArrowArray { n_children: 1, children, ..parts(1, &mut []) };
            array = Box::new(ArrowArray { n_buffers: 1, buffers: bitmap, ..of_children });
            pointers.push((child, children));
        }
        let result = of(data_type, &array);
        assert_eq!(result.is_ok(), fits, "{levels} levels: {result:?}");
        for (child, children) in pointers {
            // SAFETY: was a box above, and nothing uses it any more.
            drop(unsafe { Box::from_raw(child) });
            // SAFETY: was a box above, and nothing uses it any more.
            drop(unsafe { Box::from_raw(children) });
        }
    }
}

#[test]
fn sizes_are_read_where_there_are_rows() {
    let sizes = |data_type: &DataType, array: &ArrowArray| {
        // SAFETY: host memory of the sizes that the type and the length ask for.
        unsafe { check_sizes(data_type, array) }
    };
    for data_type in [DataType::Utf8, DataType::Binary, DataType::LargeUtf8, DataType::LargeBinary] {
        assert!(sizes(&data_type, &parts(0, &mut [null(); 3])).is_ok(), "{data_type}");
        let negative = [0_i64, -1];
        let mut buffers = [null(), negative.as_ptr().cast(), null()];
        // The second offset is -1 of 64 bits; of 32 bits, the third is.
        let length = if matches!(data_type, DataType::Utf8 | DataType::Binary) { 2 } else { 1 };
        assert!(sizes(&data_type, &parts(length, &mut buffers)).is_err(), "{data_type}");
        let mut child = parts(length, &mut buffers);
        let mut children = [&raw mut child];
        let rows = DataType::Struct(vec![Field::new("text", data_type.clone(), true)].into());
        let mut none = [null(); 2];
        let array = ArrowArray { n_children: 1, children: children.as_mut_ptr(), ..parts(length, &mut none[..1]) };
        assert_eq!(sizes(&rows, &array).unwrap_err().column(), Some("text"));
        let codes = DataType::Dictionary(Box::new(DataType::Int8), Box::new(data_type));
        let array = ArrowArray { dictionary: children[0], ..parts(length, &mut none) };
        assert!(sizes(&codes, &array).is_err());
    }
}

#[test]
fn counts_are_told_from_the_integers_that_they_are_counted_in() {
    let day = DataType::Date32;
    assert!(counts_in(&DataType::Int32, &day) && counts_in(&day, &DataType::Int32));
    for (one, other) in [
        (DataType::Int32, DataType::Int32),
        (day.clone(), day.clone()),
        (DataType::Int64, day.clone()),
        (DataType::Utf8, day.clone()),
    ] {
        assert!(!counts_in(&one, &other) && !counts_in(&other, &one), "{one} {other}");
    }
    let array = edited(&Int32Array::from(vec![1]), |_| ());
    assert!(array.relabel(Arc::new(Field::new("y", day, true))).is_ok());
    for other in [DataType::Int64, DataType::Utf8, DataType::Float32] {
        assert!(array.relabel(Arc::new(Field::new("y", other, true))).is_err());
    }
}
