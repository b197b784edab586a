//! Tests the fast path of plain views against spec, plan and convert.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int8Array, Int32Array, StructArray};
use arrow_schema::{DataType, Field, TimeUnit};

use super::*;
use crate::dtype::DType;
use crate::error::{ErrorKind, Language};
use crate::spec::{CopyMode, NullPolicy};

fn field(data_type: DataType) -> Field {
    Field::new("x", data_type, true)
}

/// Columns of 10 rows: with and without nulls, of plain and other types.
fn columns() -> Vec<(Field, ArrayRef)> {
    let ints: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10));
    let bool8 = field(DataType::Int8).with_metadata([("ARROW:extension:name".into(), "arrow.bool8".into())].into());
    vec![
        (field(DataType::Int32), ints.clone()),
        (field(DataType::Int32), Arc::new(Int32Array::from_iter((0..10).map(|row| (row != 4).then_some(row))))),
        (field(DataType::Date32), arrow_cast::cast(&ints, &DataType::Date32).unwrap()),
        (
            field(DataType::Timestamp(TimeUnit::Second, Some("UTC".into()))),
            arrow_cast::cast(
                &arrow_cast::cast(&ints, &DataType::Int64).unwrap(),
                &DataType::Timestamp(TimeUnit::Second, Some("UTC".into())),
            )
            .unwrap(),
        ),
        (field(DataType::Float64), Arc::new(Float64Array::from(vec![0.5; 10]))),
        (field(DataType::Boolean), Arc::new(BooleanArray::from(vec![true; 10]))),
        (bool8, Arc::new(Int8Array::from(vec![1; 10]))),
    ]
}

/// What a conversion came to, in words.
fn outcome(tensor: Result<Tensor>) -> String {
    match tensor {
        Ok(tensor) => {
            format!("{tensor:?} {:?} {:?}", tensor.field(), tensor.is_copied().then_some(()).ok_or(tensor.as_ptr()))
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_short_way_gives_what_the_long_way_does() {
    let null_rows = Some((0..10).map(|row| row != 2).collect::<Vec<bool>>().into());
    let options = [
        Options::default(),
        Options::default().copy(CopyMode::Never),
        Options::default().copy(CopyMode::Always),
        Options::default().writable(true),
        Options::default().dtype(DType::Float64),
        Options::default().nulls(NullPolicy::Keep),
        Options::default().nulls(NullPolicy::Nan),
    ];
    let mut short = 0;
    for (field, column) in columns() {
        let field = Arc::new(field);
        let whole = DeviceArray::from_arrow(&column, field.clone()).unwrap();
        let structs = [None, null_rows.clone()].map(|nulls| {
            let rows = StructArray::new(vec![field.clone()].into(), vec![column.clone()], nulls);
            let of_rows = Arc::new(Field::new("", rows.data_type().clone(), true));
            DeviceArray::from_arrow(&rows, of_rows).unwrap()
        });
        for range in [0..10, 3..7, 5..5] {
            let whole = whole.clipped(&range);
            let structs = structs.each_ref().map(|rows| rows.clipped(&range));
            let taken = structs.each_ref().map(|rows| rows.column(0).unwrap());
            let chunks = structs.iter().map(|rows| ColumnRef::column(rows, 0));
            let chunks = chunks.chain([&whole, &taken[0], &taken[1]].map(ColumnRef::whole));
            for chunk in chunks {
                for options in &options {
                    if let Some(view) = convert::plain_view(&field, chunk.array, chunk.column, options).unwrap() {
                        let long = Spec::new(&field, options).and_then(|spec| {
                            convert_chunks(&spec, &[chunk], options, SharedReads::default(), &run_here)
                        });
                        assert_eq!(outcome(Ok(view)), outcome(long), "{field:?} {range:?} {options:?}");
                        short += 1;
                    }
                }
            }
        }
    }
    // Four of the columns, in two ranges: alone, and in the struct whose rows are none null or as a column taken from it;
    // with the two kinds of options that ask for nothing.
    assert_eq!(short, 4 * 2 * 3 * 2);
}

#[test]
fn a_cast_that_is_not_allowed_is_to_be_allowed() {
    let ints: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10));
    let array = DeviceArray::from_arrow(&ints, Arc::new(field(DataType::Int32))).unwrap();
    let tensor = crate::Conversion::default().to_tensor(&array).unwrap();
    let error = to_arrow_as(&tensor, None, &Arc::new(field(DataType::Int64)), CopyMode::Never).unwrap_err();
    assert_eq!((error.kind(), error.reason()), (ErrorKind::Copy, "a copy is needed (cast from Int32 to Int64)"));
    assert_eq!(error.remedy().as_deref(), Some("pass CopyMode::IfNeeded to allow it"));
    assert_eq!(error.remedy_in(Language::Python).as_deref(), Some("pass copy=None to allow it"));
}
