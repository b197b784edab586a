//! What does each Arrow type become, and is it the view or the copy that was promised?

#![allow(unsafe_code, reason = "edits C structs to leave the null count out")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod support;

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int32Array, make_array};
use arrow_dlpack::{
    Chunks, Conversion, CopyLog, CopyMode, DType, Device, DeviceArray, ErrorKind, NullPolicy, Scalar, Selection,
};
use arrow_schema::{DataType, Field, FieldRef, IntervalUnit, TimeUnit, UnionFields, UnionMode};
use support::Random;
use support::arrow::{address_of_values, child_of, extension, field, import_edited, list, random_array, shared};
use support::reference::{Element, elements, positions, read, read_bools};

const UNITS: [TimeUnit; 4] = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];

/// Every plain type that has a tensor form, with its dtype.
fn scalars() -> Vec<(DataType, DType)> {
    let mut types = vec![
        (DataType::Int8, DType::Int8),
        (DataType::Int16, DType::Int16),
        (DataType::Int32, DType::Int32),
        (DataType::Int64, DType::Int64),
        (DataType::UInt8, DType::UInt8),
        (DataType::UInt16, DType::UInt16),
        (DataType::UInt32, DType::UInt32),
        (DataType::UInt64, DType::UInt64),
        (DataType::Float16, DType::Float16),
        (DataType::Float32, DType::Float32),
        (DataType::Float64, DType::Float64),
        (DataType::Boolean, DType::Bool),
        (DataType::Date32, DType::Int32),
        (DataType::Date64, DType::Int64),
        (DataType::Time32(TimeUnit::Second), DType::Int32),
        (DataType::Time32(TimeUnit::Millisecond), DType::Int32),
        (DataType::Time64(TimeUnit::Microsecond), DType::Int64),
        (DataType::Time64(TimeUnit::Nanosecond), DType::Int64),
        (DataType::Timestamp(TimeUnit::Second, Some("Asia/Kolkata".into())), DType::Int64),
    ];
    types.extend(UNITS.map(|unit| (DataType::Timestamp(unit, None), DType::Int64)));
    types.extend(UNITS.map(|unit| (DataType::Duration(unit), DType::Int64)));
    types
}

/// Lists of each plain type, one to three levels deep, and the extension types.
fn columns() -> Vec<(FieldRef, DType, Vec<i64>)> {
    let mut columns = Vec::new();
    for (data_type, dtype) in scalars() {
        let name = data_type.to_string();
        columns.push((field(&name, data_type.clone()), dtype, vec![]));
        columns.push((field(&name, list(data_type.clone(), 3)), dtype, vec![3]));
        columns.push((field(&name, list(list(data_type.clone(), 3), 2)), dtype, vec![2, 3]));
        columns.push((field(&name, list(list(list(data_type, 3), 1), 2)), dtype, vec![2, 1, 3]));
    }
    if cfg!(miri) {
        // Of each depth one, lists of bits among them.
        columns = columns.into_iter().step_by(23).collect();
    }
    let bool8 = extension(&field("bool8", DataType::Int8), "arrow.bool8", "");
    columns.push((bool8.clone(), DType::Bool, vec![]));
    let items = Arc::new(bool8.as_ref().clone().with_name("item"));
    columns.push((field("bool8s", DataType::FixedSizeList(items, 3)), DType::Bool, vec![3]));
    let tensor =
        |metadata, data_type| extension(&field("tensor", list(data_type, 6)), "arrow.fixed_shape_tensor", metadata);
    columns.push((tensor(r#"{"shape":[2,3]}"#, DataType::Float32), DType::Float32, vec![2, 3]));
    let permuted = r#"{"shape":[1,2,3],"permutation":[2,0,1]}"#;
    columns.push((tensor(permuted, DataType::Int16), DType::Int16, vec![3, 1, 2]));
    columns.push((tensor(permuted, DataType::Boolean), DType::Bool, vec![3, 1, 2]));
    columns
}

/// Where each element of a row is among the elements that storage order gives; known by name here.
fn storage_positions(field: &Field, inner: &[i64]) -> Vec<usize> {
    let strides: Vec<i64> = match field.extension_type_metadata() {
        Some(metadata) if metadata.contains("permutation") => vec![1, 6, 3],
        _ => (1..=inner.len()).map(|axis| inner[axis..].iter().product()).collect(),
    };
    positions(inner, &strides).into_iter().map(|position| usize::try_from(position).unwrap()).collect()
}

/// The elements that the tensor should have, in row-major order of its indices.
fn expected(field: &Field, array: &dyn Array, inner: &[i64]) -> Vec<Element> {
    let (stored, order) = (elements(field, array), storage_positions(field, inner));
    let rows = stored.chunks(order.len());
    rows.flat_map(|row| order.iter().map(|position| row[*position].clone())).collect()
}

/// Slices that start at every bit of a byte, one that is empty, and the whole.
fn slices(array: &ArrayRef) -> Vec<ArrayRef> {
    let mut slices: Vec<ArrayRef> =
        (1..=9).step_by(if cfg!(miri) { 4 } else { 1 }).map(|offset| array.slice(offset, 21)).collect();
    slices.extend([array.clone(), array.slice(5, 0), array.slice(13, 1)]);
    slices
}

fn is_bytes(field: &Field) -> bool {
    match field.data_type() {
        DataType::FixedSizeList(item, _) => is_bytes(item),
        DataType::Boolean => false,
        _ => field.extension_type_name() != Some("arrow.bool8"),
    }
}

/// Converts under a log, and checks that the log, the plan's bytes and the flags tell what happened.
fn convert(array: &DeviceArray, options: &Conversion) -> arrow_dlpack::Result<arrow_dlpack::Tensor> {
    let log = CopyLog::new();
    let tensor = log.track(|| options.to_tensor(array));
    let report = options.clone().select(Selection::Each(None)).explain(array).unwrap();
    let row = &report.rows[0];
    match &tensor {
        Ok(tensor) => {
            assert_eq!(row.error, None);
            assert_eq!(row.dtype, Some(tensor.dtype()));
            assert_eq!(row.shape, tensor.shape().iter().copied().map(Some).collect::<Vec<_>>());
            assert_eq!(tensor.is_copied(), log.bytes() > 0);
            assert_eq!(tensor.is_writable(), tensor.is_copied() || tensor.is_empty());
            assert_eq!(row.how() == "view", row.steps.is_empty());
            let at_most = row.at_most;
            assert!(log.bytes() == row.bytes || (at_most && log.bytes() == 0), "{report}\n{log:?}");
            assert_eq!(log.bytes(), if tensor.is_copied() { tensor.nbytes() } else { 0 });
        }
        // What only the values decide is not explained.
        Err(error) if error.kind() == ErrorKind::Cast => assert_eq!(log.bytes(), 0),
        Err(error) => {
            let by_value = row.at_most || !row.refused_if.is_empty();
            assert!(row.error.as_ref() == Some(error) || by_value, "{report}\n{error}");
            assert_eq!(log.bytes(), 0);
        }
    }
    tensor
}

#[test]
fn every_type_becomes_its_dtype_and_shape_sliced_or_not() {
    for (field, dtype, inner) in columns() {
        let array = random_array(field.data_type(), 40, 0, &mut Random(7));
        for slice in slices(&array) {
            let tensor = convert(&shared(&slice, &field), &Conversion::default()).unwrap();
            let rows = i64::try_from(slice.len()).unwrap();
            assert_eq!((tensor.dtype(), tensor.shape()), (dtype, [&[rows], inner.as_slice()].concat().as_slice()));
            let expected: Vec<Vec<u8>> = expected(&field, &slice, &inner).into_iter().flatten().collect();
            assert_eq!(read(&tensor), expected, "{field:?} at {}", slice.offset());
            assert_eq!(tensor.field(), Some(&field));
            assert_eq!(tensor.as_ptr().is_null(), tensor.is_empty());
        }
    }
}

#[test]
fn values_of_whole_bytes_are_views_of_the_arrays_memory() {
    for (field, _, inner) in columns().into_iter().filter(|(field, ..)| is_bytes(field)) {
        let array = random_array(field.data_type(), 40, 3, &mut Random(8));
        let mut leaf: ArrayRef = array.clone();
        while let DataType::FixedSizeList(_, _) = leaf.data_type() {
            leaf = make_array(leaf.to_data().child_data()[0].clone());
        }
        let width = leaf.data_type().primitive_width().unwrap();
        let row = usize::try_from(inner.iter().product::<i64>()).unwrap() * width;
        let options = Conversion::default().nulls(NullPolicy::Keep).copy(CopyMode::Never);
        for offset in [0, 1, 7] {
            let tensor = convert(&shared(&array.slice(offset, 20), &field), &options).unwrap();
            assert_eq!(tensor.as_ptr().cast_const(), address_of_values(&leaf).wrapping_add(offset * row), "{field:?}");
            assert!(!tensor.is_copied() && !tensor.is_writable());
        }
    }
}

#[test]
fn bits_are_copies_and_an_error_where_none_is_allowed() {
    for (field, _, inner) in columns().into_iter().filter(|(_, dtype, _)| *dtype == DType::Bool) {
        if field.name().starts_with("bool8") {
            continue;
        }
        let array = shared(&random_array(field.data_type(), 40, 0, &mut Random(9)), &field);
        assert!(convert(&array, &Conversion::default()).unwrap().is_copied());
        let error = convert(&array, &Conversion::default().copy(CopyMode::Never)).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Copy, Some(field.name().as_str())));
        let bytes = 40 * inner.iter().product::<i64>();
        assert!(error.reason().contains(&format!("{bytes} bytes")) && error.reason().contains("unpacked"), "{error}");
        assert!(error.remedy().unwrap().contains("CopyMode::IfNeeded"));
    }
}

#[test]
fn bool8_is_a_view_exactly_when_its_bytes_are_bools() {
    let field = extension(&field("b", DataType::Int8), "arrow.bool8", "");
    for (bytes, view) in [(vec![0_i8, 1, 1, 0], true), (vec![0, 2, -1, 1], false)] {
        let array = arrow_array::Int8Array::from(bytes.clone());
        let tensor = convert(&shared(&array, &field), &Conversion::default()).unwrap();
        assert_eq!(!tensor.is_copied(), view);
        assert_eq!(read_bools(&tensor), bytes.iter().map(|byte| *byte != 0).collect::<Vec<_>>());
        let never = convert(&shared(&array, &field), &Conversion::default().copy(CopyMode::Never));
        assert_eq!(
            never.map(|tensor| tensor.is_copied()).map_err(|error| error.kind()),
            if view { Ok(false) } else { Err(ErrorKind::Copy) }
        );
    }
    // The extension type is the field's: the same bytes without it are numbers.
    let plain = Conversion::default().to_tensor(&arrow_array::Int8Array::from(vec![2])).unwrap();
    assert_eq!(plain.dtype(), DType::Int8);
}

#[test]
fn copies_on_request_are_private_and_logged() {
    for (field, _, inner) in columns() {
        let array = random_array(field.data_type(), 40, 0, &mut Random(10));
        for options in [Conversion::default().copy(CopyMode::Always), Conversion::default().writable(true)] {
            let slice = array.slice(3, 30);
            let tensor = convert(&shared(&slice, &field), &options).unwrap();
            assert!(tensor.is_copied() && tensor.is_writable());
            assert_eq!(tensor.as_ptr().addr() % 64, 0);
            assert_eq!(read(&tensor), expected(&field, &slice, &inner).into_iter().flatten().collect::<Vec<_>>());
            let error = convert(&shared(&slice, &field), &Conversion::default().writable(true).copy(CopyMode::Never))
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Copy);
        }
    }
}

#[test]
fn nulls_are_an_error_that_names_the_first_row() {
    for (field, _, inner) in columns() {
        let array = random_array(field.data_type(), 40, 5, &mut Random(11));
        for slice in slices(&array) {
            let elements = expected(&field, &slice, &inner);
            let outcome = convert(&shared(&slice, &field), &Conversion::default());
            let Some(first) = elements.iter().position(Option::is_none) else {
                assert!(outcome.is_ok());
                continue;
            };
            let error = outcome.unwrap_err();
            let row = first / (elements.len() / slice.len());
            assert_eq!(
                (error.kind(), error.column(), error.row()),
                (ErrorKind::Null, Some(field.name().as_str()), Some(row))
            );
            assert!(error.remedy().unwrap().contains("NullPolicy::Keep"));
        }
    }
}

#[test]
fn nulls_are_filled_with_a_value_or_nan() {
    for (field, dtype, inner) in columns() {
        let one: Vec<u8> = match dtype {
            DType::Float16 => half::f16::ONE.to_ne_bytes().into(),
            DType::Float32 => 1_f32.to_ne_bytes().into(),
            DType::Float64 => 1_f64.to_ne_bytes().into(),
            _ => 1_u64.to_le_bytes()[..dtype.itemsize()].into(),
        };
        let nan: Option<Vec<u8>> = match dtype {
            DType::Float16 => Some(half::f16::NAN.to_ne_bytes().into()),
            DType::Float32 => Some(f32::NAN.to_ne_bytes().into()),
            DType::Float64 => Some(f64::NAN.to_ne_bytes().into()),
            _ => None,
        };
        let array = random_array(field.data_type(), 40, 5, &mut Random(12));
        for slice in slices(&array) {
            let column = shared(&slice, &field);
            let elements = expected(&field, &slice, &inner);
            for (policy, fill) in [(NullPolicy::Fill(Scalar::Int(1)), Some(&one)), (NullPolicy::Nan, nan.as_ref())] {
                let outcome = convert_or_refuse(&column, policy);
                let Some(fill) = fill else {
                    let error = outcome.unwrap_err();
                    assert_eq!((error.kind(), error.column()), (ErrorKind::Null, Some(field.name().as_str())));
                    assert!(error.remedy().unwrap().contains("DType::Float64"));
                    continue;
                };
                let expected: Vec<_> =
                    elements.iter().map(|element| element.as_ref().unwrap_or(fill).clone()).collect();
                assert_eq!(read(&outcome.unwrap()), expected, "{field:?} under {policy:?}");
            }
        }
    }
}

/// As `convert`, where the type alone may decide that the policy cannot be met.
fn convert_or_refuse(array: &DeviceArray, policy: NullPolicy) -> arrow_dlpack::Result<arrow_dlpack::Tensor> {
    let options = Conversion::default().nulls(policy);
    match options
        .clone()
        .select(Selection::Each(None))
        .explain_type(array.field(), Device::CPU)
        .unwrap()
        .rows
        .remove(0)
        .error
    {
        Some(error) => {
            assert_eq!(options.to_tensor(array).unwrap_err(), error);
            Err(error)
        }
        None => convert(array, &options),
    }
}

#[test]
fn kept_nulls_are_zero_in_a_copy_and_validity_tells_them() {
    for (field, dtype, inner) in columns() {
        let array = random_array(field.data_type(), 40, 4, &mut Random(13));
        for slice in slices(&array) {
            let column = shared(&slice, &field);
            let elements = expected(&field, &slice, &inner);
            let options = Conversion::default().nulls(NullPolicy::Keep).copy(CopyMode::Always);
            let zero = vec![0; dtype.itemsize()];
            let expected: Vec<_> = elements.iter().map(|element| element.as_ref().unwrap_or(&zero).clone()).collect();
            assert_eq!(read(&convert(&column, &options).unwrap()), expected, "{field:?}");

            let log = CopyLog::new();
            let valid = log.track(|| Conversion::default().validity(Chunks::new(&field, &[column]))).unwrap();
            assert_eq!(valid.shape().iter().product::<i64>(), i64::try_from(elements.len()).unwrap());
            assert_eq!(read_bools(&valid), elements.iter().map(Option::is_some).collect::<Vec<_>>());
            assert_eq!(log.bytes(), elements.len());
        }
    }
}

#[test]
fn filling_needs_a_copy_only_where_there_are_nulls() {
    let options = Conversion::default().nulls(NullPolicy::Fill(Scalar::Int(0))).copy(CopyMode::Never);
    let array = Int32Array::from(vec![Some(1), Some(2), None]);
    let field = field("x", DataType::Int32);
    assert!(convert(&shared(&array.slice(0, 2), &field), &options).is_ok());
    let error = convert(&shared(&array, &field), &options).unwrap_err();
    assert!(error.kind() == ErrorKind::Copy && error.reason().contains("1 null filled"), "{error}");
}

#[test]
fn fill_values_must_be_exact_in_the_dtype() {
    let array = shared(&Int32Array::from(vec![1]), &field("x", DataType::Int32));
    for value in [Scalar::Float(0.5), Scalar::Int(i128::from(i32::MAX) + 1), Scalar::Float(f64::NAN)] {
        let error = convert_or_refuse(&array, NullPolicy::Fill(value)).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Null, Some("x")), "{value:?}");
    }
}

#[test]
fn a_null_count_that_was_not_counted_is_counted() {
    for (field, dtype, inner) in columns() {
        let array = random_array(field.data_type(), 40, 5, &mut Random(14)).slice(3, 30);
        let (imported, released) = import_edited(&array, &field, |exported| {
            let mut level = exported;
            level.null_count = -1;
            while level.n_children > 0 {
                level = child_of(level, 0);
                level.null_count = -1;
            }
        });
        let imported = imported.unwrap();
        let elements = expected(&field, &array, &inner);
        assert_eq!(convert(&imported, &Conversion::default()).unwrap_err().kind(), ErrorKind::Null);
        let valid = Conversion::default().validity(&imported).unwrap();
        assert_eq!(read_bools(&valid), elements.iter().map(Option::is_some).collect::<Vec<_>>());
        let options = Conversion::default().nulls(NullPolicy::Fill(Scalar::Int(0)));
        let zero = vec![0; dtype.itemsize()];
        let expected: Vec<_> = elements.iter().map(|element| element.as_ref().unwrap_or(&zero).clone()).collect();
        assert_eq!(read(&convert(&imported, &options).unwrap()), expected);
        drop(imported);
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn values_that_are_not_aligned_move_or_are_refused() {
    for (data_type, dtype) in scalars() {
        let Some(width) = data_type.primitive_width().filter(|width| *width > 1) else { continue };
        let field = field("x", data_type.clone());
        let aligned = random_array(&data_type, 9, 0, &mut Random(15));
        let bytes = aligned.to_data().buffers()[0].as_slice()[..9 * width].to_vec();
        // One byte further than a word boundary.
        let mut words = vec![0_u64; 10];
        let start = words.as_mut_ptr().cast::<u8>().wrapping_add(1);
        // SAFETY: at most 72 bytes from byte 1 of 80.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let (imported, _) =
            import_edited(&aligned, &field, |array| support::arrow::set_buffer(array, 1, start.cast_const().cast()));
        let imported = imported.unwrap();
        let tensor = convert(&imported, &Conversion::default()).unwrap();
        assert!(tensor.is_copied() && tensor.is_aligned());
        assert_eq!(read(&tensor).concat(), bytes, "{dtype}");
        let error = convert(&imported, &Conversion::default().copy(CopyMode::Never)).unwrap_err();
        assert!(error.kind() == ErrorKind::Copy && error.reason().contains("realigned"), "{error}");
    }
}

#[test]
fn types_without_a_tensor_form_are_refused_with_a_remedy() {
    let item = field("item", DataType::Int32);
    let entries = field("entries", DataType::Struct([field("k", DataType::Int32), field("v", DataType::Int32)].into()));
    let union = UnionFields::try_new([0], [item.as_ref().clone()]).unwrap();
    for data_type in [
        DataType::Null,
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Utf8View,
        DataType::Binary,
        DataType::LargeBinary,
        DataType::BinaryView,
        DataType::List(item.clone()),
        DataType::LargeList(item.clone()),
        DataType::ListView(item.clone()),
        DataType::LargeListView(item.clone()),
        DataType::Map(entries, false),
        DataType::Union(union, UnionMode::Dense),
        DataType::RunEndEncoded(field("run_ends", DataType::Int32), field("values", DataType::Utf8)),
        DataType::Decimal32(5, 2),
        DataType::Decimal64(5, 2),
        DataType::Decimal128(5, 2),
        DataType::Decimal256(5, 2),
        DataType::Interval(IntervalUnit::YearMonth),
        DataType::Interval(IntervalUnit::DayTime),
        DataType::Interval(IntervalUnit::MonthDayNano),
        list(DataType::Utf8, 2),
    ] {
        let field = field("price", data_type.clone());
        let array = shared(&arrow_array::new_empty_array(&data_type), &field);
        let error = Conversion::default().to_tensor(&array).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Unsupported, Some("price")), "{data_type}");
        assert!(error.remedy().is_some(), "{data_type}");
        // Any column has a validity.
        assert!(Conversion::default().validity(&array).is_ok(), "{data_type}");
    }
    // A struct is a matrix, and no column of one: it has a validity for each of its columns.
    let nested = DataType::Struct([field("price", DataType::Struct([item].into()))].into());
    let array = shared(&arrow_array::new_empty_array(&nested), &field("", nested));
    for error in
        [Conversion::default().to_tensor(&array), Conversion::default().validity(&array)].map(Result::unwrap_err)
    {
        assert_eq!((error.kind(), error.column()), (ErrorKind::Unsupported, Some("price")));
        assert!(error.remedy().is_some());
    }
}
