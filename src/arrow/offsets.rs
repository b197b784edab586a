//! Moves the offsets of arrays that share slots with their children into the children: arrow-rs 59 counts such an
//! offset twice when the types nest, and panics.

use arrow_data::ArrayData;
use arrow_schema::{DataType, UnionMode};

/// Returns the same array with offset 0 in structs, fixed-size lists and sparse unions, and with fitting children.
pub(super) fn push_down(data: ArrayData) -> ArrayData {
    if data.child_data().is_empty() {
        return data;
    }
    let children: Vec<ArrayData> = data.child_data().iter().cloned().map(push_down).collect();
    let (offset, length) = (data.offset(), data.len());
    // SAFETY: the children are the same arrays; `data` was valid with them.
    let data = unsafe { data.into_builder().child_data(children).build_unchecked() };
    match data.data_type() {
        DataType::Struct(_) | DataType::FixedSizeList(_, _) | DataType::Union(_, UnionMode::Sparse) => {
            // The bitmap has its own offset.
            let nulls = data.nulls().cloned();
            let ranged = children_of_range(&data, offset, length);
            // SAFETY: `children_of_range` cut the children of a valid array to the same slots as its bitmap.
            unsafe { ranged.nulls(nulls).build_unchecked() }
        }
        _ => data,
    }
}

/// Returns slots of a valid array that went through [`push_down`].
fn range(data: &ArrayData, offset: usize, length: usize) -> ArrayData {
    match data.data_type() {
        DataType::Struct(_) | DataType::FixedSizeList(_, _) | DataType::Union(_, UnionMode::Sparse) => {
            let nulls = data.nulls().map(|nulls| nulls.slice(offset, length));
            // SAFETY: the children and the bitmap of a valid array are cut to the same slots.
            unsafe { children_of_range(data, offset, length).nulls(nulls).build_unchecked() }
        }
        _ => data.slice(offset, length),
    }
}

/// Returns an array with the children, and the ids of a union, for these slots of the buffers; without nulls yet.
fn children_of_range(data: &ArrayData, offset: usize, length: usize) -> arrow_data::ArrayDataBuilder {
    let items =
        if let DataType::FixedSizeList(_, size) = data.data_type() { usize::try_from(*size).unwrap_or(0) } else { 1 };
    // Products of checked arrays cannot overflow.
    let (first, count) = (offset.saturating_mul(items), length.saturating_mul(items));
    let children = data.child_data().iter().map(|child| range(child, first, count)).collect();
    let buffers = data.buffers().iter().map(|ids| ids.slice_with_length(offset, length)).collect();
    ArrayData::builder(data.data_type().clone()).len(length).buffers(buffers).child_data(children)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, ArrayRef, Int32Array, StructArray, make_array};
    use arrow_buffer::NullBuffer;
    use arrow_schema::{Field, Fields};

    use super::*;

    fn nested(levels: usize) -> ArrayRef {
        let mut array: ArrayRef = Arc::new(Int32Array::from_iter((0..6).map(|value| (value != 4).then_some(value))));
        for level in 0..levels {
            let nulls = NullBuffer::from((0..6).map(|row| row != level).collect::<Vec<_>>());
            let fields = Fields::from(vec![Field::new("x", array.data_type().clone(), true)]);
            array = Arc::new(StructArray::new(fields, vec![array], Some(nulls)));
        }
        array
    }

    #[test]
    fn a_range_of_nested_structs_has_their_rows() {
        for levels in 0..4 {
            let array = nested(levels);
            for (offset, length) in [(0, 6), (0, 2), (2, 4), (3, 1), (6, 0)] {
                let data = array.to_data();
                let nulls = data.nulls().map(|nulls| nulls.slice(offset, length));
                // SAFETY: a range of a valid array, as the C data interface says it: an offset, and whole children.
                let data = unsafe { data.into_builder().offset(offset).len(length).nulls(nulls).build_unchecked() };
                let read = make_array(push_down(data));
                assert_eq!(read.to_data(), array.slice(offset, length).to_data(), "{levels} {offset} {length}");
            }
        }
    }
}
