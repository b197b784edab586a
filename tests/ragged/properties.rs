//! Random lists of every kind, sliced and joined, against rows that are read one by one.

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef};
use arrow_dlpack::{Chunks, Conversion, CopyMode, DType, ErrorKind, NullPolicy, Scalar};
use arrow_schema::DataType;
use proptest::prelude::*;

use crate::support::Random;
use crate::support::arrow::{field, shared};
use crate::{KINDS, Kind, PAD, Row, random_lists, ranges, values};

/// What the options ask of a row: its elements, null ones as they become.
fn expected_row(row: &Row, options: &Conversion) -> Option<Vec<Option<i16>>> {
    match (row, options.nulls.of("x")) {
        (None, NullPolicy::Keep) => None,
        (None, _) => Some(Vec::new()),
        (Some(items), NullPolicy::Fill(_)) => Some(items.iter().map(|item| item.or(Some(77))).collect()),
        (Some(items), _) => Some(items.clone()),
    }
}

/// The items of a row.
fn row_of(kind: Kind, lists: &dyn Array, row: usize) -> ArrayRef {
    match kind {
        Kind::List => lists.as_list::<i32>().value(row),
        Kind::LargeList => lists.as_list::<i64>().value(row),
        Kind::ListView => lists.as_list_view::<i32>().value(row),
        Kind::LargeListView => lists.as_list_view::<i64>().value(row),
    }
}

proptest! {
    #[test]
    fn any_slice_of_any_lists_has_the_rows_that_it_has(
        seed in any::<u64>(),
        kind in proptest::sample::select(&KINDS[..]),
        rows in 0..12_usize,
        one_null_in in 0..5_usize,
        chunks in 0..3_usize,
        policy in 0..3_usize,
        cast in any::<bool>(),
        (cut, cut_end) in (0..6_usize, 0..6_usize),
    ) {
        let mut random = Random(seed);
        let nulls = [NullPolicy::Error, NullPolicy::Keep, NullPolicy::Fill(Scalar::Int(77))][policy];
        let mut options = Conversion::default().nulls(nulls);
        if cast {
            options = options.dtype(DType::Int32);
        }
        let field = field("x", kind.of(DataType::Int16));
        let (mut arrays, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..chunks {
            let (array, own) = random_lists(kind, rows, one_null_in, &mut random);
            let start = cut.min(rows);
            let length = (rows - start).saturating_sub(cut_end);
            arrays.push(shared(&array.slice(start, length), &field));
            expected.extend_from_slice(&own[start..start + length]);
        }
        let has_null = expected.iter().any(|row| row.as_ref().is_none_or(|items| items.contains(&None)));
        let ragged = options.ragged(Chunks::new(&field, &arrays));
        let padded = options.padded(Chunks::new(&field, &arrays), PAD);
        if nulls == NullPolicy::Error && has_null {
            let first = expected.iter().position(|row| row.is_none());
            let first = first.or_else(|| expected.iter().position(|row| row.as_ref().unwrap().contains(&None)));
            let error = ragged.unwrap_err();
            prop_assert_eq!((error.kind(), error.row()), (ErrorKind::Null, first));
            prop_assert_eq!(padded.unwrap_err().kind(), ErrorKind::Null);
            return Ok(());
        }
        let (ragged, (matrix, mask)) = (ragged.unwrap(), padded.unwrap());
        let wanted: Vec<_> = expected.iter().map(|row| expected_row(row, &options)).collect();
        let elements: Vec<i32> = match values(&ragged).dtype() {
            DType::Int32 => values(&ragged).as_slice::<i32>().unwrap().to_vec(),
            _ => values(&ragged).as_slice::<i16>().unwrap().iter().map(|value| i32::from(*value)).collect(),
        };
        prop_assert_eq!(ragged.len(), wanted.len());
        let flags = ragged.validity().map(|flags| flags.as_bytes().unwrap().to_vec());
        prop_assert_eq!(flags.is_some(), nulls == NullPolicy::Keep);
        for (row, (range, wanted)) in ranges(&ragged).into_iter().zip(&wanted).enumerate() {
            if let Some(flags) = &flags {
                prop_assert_eq!(flags[row] == 1, wanted.is_some());
            }
            let Some(wanted) = wanted else { continue };
            prop_assert_eq!(range.len(), wanted.len());
            for (element, wanted) in elements[range].iter().zip(wanted) {
                prop_assert!(wanted.is_none_or(|wanted| i32::from(wanted) == *element));
            }
        }
        // Back to Arrow: arrow-rs validates it, and the rows are the same.
        let back = ragged.to_arrow(CopyMode::IfNeeded).unwrap().to_arrow().unwrap();
        prop_assert_eq!(back.len(), wanted.len());
        prop_assert_eq!(back.null_count(), wanted.iter().filter(|row| row.is_none()).count());
        for (row, wanted) in wanted.iter().enumerate() {
            prop_assert_eq!(back.is_valid(row), wanted.is_some());
            let Some(wanted) = wanted else { continue };
            let items = arrow_cast::cast(&row_of(kind, back.as_ref(), row), &DataType::Int32).unwrap();
            prop_assert_eq!(items.len(), wanted.len());
            for (item, wanted) in items.as_primitive::<Int32Type>().values().iter().zip(wanted) {
                prop_assert!(wanted.is_none_or(|wanted| i32::from(wanted) == *item));
            }
        }
        // Padded: an item is padding, or what the row has there.
        let length = usize::try_from(matrix.shape()[1]).unwrap();
        let longest = expected.iter().flatten().map(Vec::len).max().unwrap_or(0);
        prop_assert_eq!(length, longest);
        let items: Vec<i32> = match matrix.dtype() {
            DType::Int32 => matrix.as_slice::<i32>().unwrap().to_vec(),
            _ => matrix.as_slice::<i16>().unwrap().iter().map(|value| i32::from(*value)).collect(),
        };
        let mask = mask.as_bytes().unwrap();
        for (row, own) in expected.iter().enumerate() {
            for column in 0..length {
                let (item, valid) = (items[row * length + column], mask[row * length + column] == 1);
                let source = own.as_ref().and_then(|own| own.get(column));
                prop_assert_eq!(valid, source.is_some_and(Option::is_some));
                let null = if policy == 2 { 77 } else { -1 };
                let expected = source.map_or(-1, |source| source.map_or(null, i32::from));
                prop_assert_eq!(item, expected);
            }
        }
    }
}
