//! Does a copy of a slice of runs and views have its rows, and no more bytes than they show?

use std::sync::Arc;

use arrow_array::builder::{GenericListViewBuilder, Int64Builder};
use arrow_array::types::{Int16Type, Int32Type, Int64Type, RunEndIndexType};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, Int64Array, ListArray, ListViewArray, OffsetSizeTrait, PrimitiveArray, RunArray,
    StringViewArray, StructArray,
};
use arrow_buffer::{ArrowNativeType, OffsetBuffer};
use arrow_schema::Field;

use crate::arrow::{Decomposed, DeviceArray, Piece, host_array, read_host, rebase};

/// Rows of the arrays that are sliced.
const ROWS: usize = if cfg!(miri) { 40 } else { 1000 };
/// The numbers of these rows.
const NUMBERS: std::ops::Range<i32> = if cfg!(miri) { 0..40 } else { 0..1000 };

/// Returns a copy of an array in host memory, and its bytes.
fn copied(array: &dyn Array) -> (ArrayRef, usize) {
    let field = Arc::new(Field::new("x", array.data_type().clone(), true));
    let array = DeviceArray::from_arrow(array, field.clone()).unwrap();
    // SAFETY: memory of the host, which the array keeps.
    let apart = Decomposed::new(&array, true, &mut |wanted| unsafe { read_host(wanted) }).unwrap();
    let bytes_of = |piece: &Piece| match piece {
        Piece::OfArray(range) | Piece::Offsets { range, .. } => {
            let start = std::ptr::with_exposed_provenance::<u8>(range.start);
            // SAFETY: memory of the host, which the array keeps.
            let mut bytes = unsafe { std::slice::from_raw_parts(start, range.len()) }.to_vec();
            if let Piece::Offsets { wide, first, .. } = piece {
                rebase(&mut bytes, *wide, *first);
            }
            bytes
        }
        Piece::Made(bytes) => bytes.clone(),
    };
    let pieces: Vec<Vec<u8>> = apart.pieces.iter().map(bytes_of).collect();
    let bytes = pieces.iter().map(Vec::len).sum();
    let starts: Vec<*const u8> = pieces.iter().map(|piece| piece.as_ptr()).collect();
    let (node, owner) = apart.together(&starts, Arc::new(pieces)).unwrap();
    (host_array(node.export(&owner).unwrap(), field).unwrap().to_arrow().unwrap(), bytes)
}

/// Checks the copies of some slices: `most` bytes are those of one of 3 rows.
fn check(array: &dyn Array, most: usize) {
    for (start, length) in [(0, 3), (1, 3), (ROWS / 2, 3), (ROWS - 3, 3), (0, 0), (ROWS, 0), (0, ROWS), (3, ROWS - 10)]
    {
        let slice = array.slice(start, length);
        let (copy, bytes) = copied(slice.as_ref());
        assert_eq!(copy.as_ref(), slice.as_ref(), "{} {start} {length}", array.data_type());
        assert!(length > 3 || bytes <= most, "{} {start} {length}: {bytes} bytes", array.data_type());
    }
}

fn runs<T: RunEndIndexType>() -> RunArray<T> {
    let ends = (1..=ROWS / 2).map(|run| T::Native::from_usize(2 * run).unwrap());
    let values = NUMBERS.take(ROWS / 2).map(|value| (value % 3 != 0).then_some(i64::from(value)));
    let values = Int64Array::from_iter(values);
    RunArray::try_new(&PrimitiveArray::<T>::from_iter_values(ends), &values).unwrap()
}

#[test]
fn copies_of_runs_have_those_that_rows_show() {
    check(&runs::<Int16Type>(), 64);
    check(&runs::<Int32Type>(), 64);
    check(&runs::<Int64Type>(), 64);
}

#[test]
fn copies_of_list_views_have_the_items_between_those_that_rows_show() {
    fn views<T: OffsetSizeTrait>() -> ArrayRef {
        let mut lists = GenericListViewBuilder::<T, _>::new(Int64Builder::new());
        for row in NUMBERS.map(i64::from) {
            match row % 5 {
                0 => lists.append_null(),
                1 => lists.append_value([]),
                _ => lists.append_value([Some(row), None]),
            }
        }
        Arc::new(lists.finish())
    }
    check(&views::<i32>(), 128);
    check(&views::<i64>(), 128);
    // Rows of the items in another order, some of which share them.
    let item = Arc::new(Field::new("item", arrow_schema::DataType::Int64, true));
    let offsets: Vec<i32> = NUMBERS.rev().map(|row| row / 2).collect();
    let items = Arc::new(Int64Array::from_iter_values(NUMBERS.map(i64::from)));
    check(&ListViewArray::new(item, offsets.into(), vec![2; ROWS].into(), items, None), 128);
}

#[test]
fn copies_of_strings_have_the_bytes_between_those_that_views_show() {
    let text = |row: usize| match row % 4 {
        0 => None,
        1 => Some(format!("{row}")),
        _ => Some(format!("the text of the row {row}")),
    };
    let texts = StringViewArray::from_iter((0..ROWS).map(text));
    check(&texts, 256);
    check(&texts.to_binary_view(), 256);
    // Of many buffers, most have none.
    let mut buffers = arrow_array::builder::StringViewBuilder::new().with_fixed_block_size(64);
    (0..ROWS).for_each(|row| buffers.append_option(text(row)));
    check(&buffers.finish(), 256);
    let short = BinaryViewArray::from_iter_values((0..250_u8).cycle().take(ROWS).map(|row| [row; 3]));
    check(&short, 64);
}

#[test]
fn copies_of_slices_of_lists_and_structs_are_narrow_too() {
    let texts: ArrayRef =
        Arc::new(StringViewArray::from_iter_values((0..2 * ROWS).map(|row| format!("text of a row: {row}"))));
    let item = Arc::new(Field::new("item", texts.data_type().clone(), true));
    let lists = ListArray::new(item, OffsetBuffer::from_lengths([2; ROWS]), texts.clone(), None);
    check(&lists, 512);
    let runs: ArrayRef = Arc::new(runs::<Int32Type>());
    let fields = [("r", &runs), ("t", &texts.slice(7, ROWS))]
        .map(|(name, array)| (Arc::new(Field::new(name, array.data_type().clone(), true)), array.clone()));
    check(&StructArray::from(fields.to_vec()), 512);
}
