//! Which is the first row whose dictionary code is beyond the dictionary?

use arrow_buffer::ArrowNativeType;
use arrow_data::ArrayData;
use arrow_schema::DataType;

use crate::error::Error;

/// Returns the error of a code beyond a dictionary of this length.
pub(super) fn beyond(length: usize) -> Error {
    Error::invalid(format!("a code is beyond the dictionary's {length} values"))
}

/// Returns the error of the lowest row with a code beyond its dictionary, at any level but inside of dictionaries; `None` if no row has
/// one.
pub(super) fn of_lowest_row(data: &ArrayData) -> Option<Error> {
    let Beyond { slot, code, values } = first_beyond(data)?;
    Some(Error::invalid(format!("the code {code} is beyond the dictionary's {values} values")).at_row(slot))
}

/// A code beyond a dictionary.
struct Beyond {
    /// The slot of the array that has the code.
    slot: usize,
    code: i128,
    /// How many values the dictionary has.
    values: usize,
}

fn first_beyond(data: &ArrayData) -> Option<Beyond> {
    if let DataType::Dictionary(codes, _) = data.data_type() {
        let values = data.child_data().first()?.len();
        let found = match codes.as_ref() {
            DataType::Int8 => first_code::<i8>(data, values),
            DataType::Int16 => first_code::<i16>(data, values),
            DataType::Int32 => first_code::<i32>(data, values),
            DataType::Int64 => first_code::<i64>(data, values),
            DataType::UInt8 => first_code::<u8>(data, values),
            DataType::UInt16 => first_code::<u16>(data, values),
            DataType::UInt32 => first_code::<u32>(data, values),
            DataType::UInt64 => first_code::<u64>(data, values),
            _ => None,
        };
        return found.map(|(slot, code)| Beyond { slot, code, values });
    }
    let children = data.child_data().iter().filter_map(|child| {
        let found = first_beyond(child)?;
        let slot = slot_with(data, found.slot).filter(|slot| *slot < data.len())?;
        Some(Beyond { slot, ..found })
    });
    children.min_by_key(|found| found.slot)
}

/// Returns the first slot whose code, which is not null, is negative or `values` or more, and the code.
fn first_code<T: ArrowNativeType + Into<i128>>(data: &ArrayData, values: usize) -> Option<(usize, i128)> {
    let codes = data.buffers().first()?.typed_data::<T>().get(data.offset()..)?;
    let mut codes = codes.iter().take(data.len()).enumerate();
    let is_null = |slot| data.nulls().is_some_and(|nulls| nulls.is_null(slot));
    codes
        .find(|(slot, code)| code.to_usize().is_none_or(|code| code >= values) && !is_null(*slot))
        .map(|(slot, code)| (slot, (*code).into()))
}

/// Returns the first slot of an array, which shares its offset with no child, that shows this slot of a child; `None` if none does or the
/// type does not tell.
fn slot_with(data: &ArrayData, slot: usize) -> Option<usize> {
    match data.data_type() {
        DataType::Struct(_) => Some(slot),
        DataType::FixedSizeList(_, size) => slot.checked_div(usize::try_from(*size).ok()?),
        DataType::List(_) | DataType::Map(_, _) => list_with::<i32>(data, slot),
        DataType::LargeList(_) => list_with::<i64>(data, slot),
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => row_of_run::<i16>(data, slot),
            DataType::Int32 => row_of_run::<i32>(data, slot),
            _ => row_of_run::<i64>(data, slot),
        },
        _ => None,
    }
}

fn list_with<T: ArrowNativeType>(data: &ArrayData, item: usize) -> Option<usize> {
    let offsets = data.buffers().first()?.typed_data::<T>().get(data.offset()..)?;
    let row = offsets.iter().skip(1).position(|end| end.to_usize().is_some_and(|end| end > item))?;
    offsets.get(row)?.to_usize().filter(|start| *start <= item).map(|_| row)
}

fn row_of_run<T: ArrowNativeType>(data: &ArrayData, run: usize) -> Option<usize> {
    let ends = data.child_data().first()?;
    let ends = ends.buffers().first()?.typed_data::<T>().get(ends.offset()..)?;
    let end = ends.get(run)?.to_usize()?;
    let start = run.checked_sub(1).and_then(|before| ends.get(before)?.to_usize()).unwrap_or(0);
    (end > data.offset()).then(|| start.saturating_sub(data.offset()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, Int8Array, Int32Array};
    use arrow_buffer::{Buffer, NullBuffer};
    use arrow_schema::Field;

    use super::*;

    /// Returns codes of two values, whose slots 0 and 2 are null.
    fn coded(codes: &[i8]) -> ArrayData {
        let data_type = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Int32));
        let valid: Vec<bool> = (0..codes.len()).map(|slot| !matches!(slot, 0 | 2)).collect();
        let data = Int8Array::new(codes.to_vec().into(), Some(NullBuffer::from(valid))).into_data().into_builder();
        let data = data.data_type(data_type).add_child_data(Int32Array::from(vec![7, 8]).to_data());
        // SAFETY: nothing decodes the codes.
        unsafe { data.build_unchecked() }
    }

    fn row(data: &ArrayData) -> Option<usize> {
        of_lowest_row(data).and_then(|error| error.row())
    }

    #[test]
    fn the_lowest_slot_that_is_not_null_is_found() {
        assert_eq!(row(&coded(&[9, 0, 9, 1, 0])), None);
        assert_eq!(row(&coded(&[9, 0, 9, 2, -1])), Some(3));
        assert_eq!(row(&coded(&[9, 0, 9, 1, -1])), Some(4));
        assert_eq!(row(&coded(&[9, 5, 9, 1, -1]).slice(2, 3)), Some(2));
        let error = of_lowest_row(&coded(&[0, 2])).unwrap();
        assert_eq!(error.reason(), "the code 2 is beyond the dictionary's 2 values");
    }

    #[test]
    fn rows_are_those_of_the_outermost_array() {
        // The codes 3 and 5 are wrong.
        let codes = coded(&[0, 0, 0, 2, 0, 2]);
        let item = Arc::new(Field::new("item", codes.data_type().clone(), true));
        let of = |data_type, rows| ArrayData::builder(data_type).len(rows).add_child_data(codes.clone());
        // SAFETY: the children and buffers have the slots that the rows need.
        let built = |data: arrow_data::ArrayDataBuilder| unsafe { data.build_unchecked() };
        assert_eq!(row(&built(of(DataType::FixedSizeList(item.clone(), 2), 3))), Some(1));
        assert_eq!(row(&built(of(DataType::FixedSizeList(item.clone(), 2), 1))), None);
        assert_eq!(row(&built(of(DataType::FixedSizeList(item.clone(), 0), 1))), None);
        let fields = [("a", &item), ("b", &item)].map(|(name, item)| Arc::new(item.as_ref().clone().with_name(name)));
        let valid = built(coded(&[0; 6]).into_builder());
        let structs = ArrayData::builder(DataType::Struct(fields.into_iter().collect())).len(6);
        assert_eq!(row(&built(structs.add_child_data(valid).add_child_data(codes.clone()))), Some(3));
        let lists = of(DataType::List(item.clone()), 3).add_buffer(Buffer::from_vec(vec![0_i32, 3, 3, 6]));
        assert_eq!(row(&built(lists)), Some(2));
        let lists = of(DataType::LargeList(item.clone()), 1).add_buffer(Buffer::from_vec(vec![0_i64, 4, 5]));
        assert_eq!(row(&built(lists.offset(1))), None, "no row shows it");
        let ends = Int32Array::from(vec![2, 4, 5, 6, 9, 11]);
        let ends_field = Arc::new(Field::new("run_ends", DataType::Int32, false));
        let values = Arc::new(item.as_ref().clone().with_name("values"));
        let of_runs = DataType::RunEndEncoded(ends_field, values);
        for (rows, found) in [(0..11, Some(5)), (4..11, Some(1)), (7..11, None), (0..4, None)] {
            let runs =
                of(of_runs.clone(), rows.len()).offset(rows.start).child_data(vec![ends.to_data(), codes.clone()]);
            assert_eq!(row(&built(runs)), found, "{rows:?}");
        }
    }
}
