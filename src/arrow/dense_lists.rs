//! Turns dense lists into fixed-size lists over the same items.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};
use smallvec::smallvec;

use super::import::{DeviceArray, host_array};
use super::node::ArrayNode;
use crate::error::{Error, Remedy, Result};

impl DeviceArray {
    /// Returns lists, large lists or list views in host memory as the fixed-size lists of `field`, whose items have the same type, over
    /// the same items; `None` if there are gaps between the lists, or a null list has another length. Stops at the first such list. Copies
    /// the bitmap of null rows, if there are any.
    ///
    /// # Errors
    /// If a list that is not null has another length: names the row. As [`DeviceArray::lists`]; if the bitmap cannot be allocated.
    pub(crate) fn dense_lists(&self, field: &FieldRef) -> Result<Option<Self>> {
        let DataType::FixedSizeList(_, size) = field.data_type() else { return Ok(None) };
        let Ok(length) = usize::try_from(*size) else { return Ok(None) };
        let lists = self.lists()?;
        let mut first = None;
        for row in 0..lists.rows {
            let items = lists.row(row);
            let is_null = lists.is_null(row);
            if items.len() != length && !is_null {
                return Err(wrong_length(items.len(), length).at_row(row).in_column(self.field().name()));
            }
            let expected =
                row.checked_mul(length).and_then(|before| first.get_or_insert(items.start).checked_add(before));
            if items.len() != length || expected != Some(items.start) {
                return Ok(None);
            }
        }
        let start = first.unwrap_or(0);
        let count = lists.rows.checked_mul(length);
        let end = count.and_then(|count| start.checked_add(count)).filter(|end| *end <= lists.items.len());
        let Some(end) = end else { return Ok(None) };
        let mut node = ArrayNode {
            length: lists.rows,
            null_count: Some(0),
            buffers: smallvec![std::ptr::null()],
            children: vec![lists.items.clipped(&(start..end)).node()?],
            ..ArrayNode::default()
        };
        let mut owner = self.owner();
        if let Some(valid) = &lists.valid {
            let bitmap = valid.shifted(0)?;
            node.buffers = smallvec![bitmap.as_ptr()];
            node.null_count = Some(valid.nulls());
            owner = Arc::new((bitmap, owner));
        }
        host_array(node.export(&owner)?, field.clone()).map(Some)
    }
}

/// Returns the error for a list of another length than the one that was asked for.
pub(crate) fn wrong_length(own: usize, length: usize) -> Error {
    let reason = format!("the list has {own} element{}, and not {length}", if own == 1 { "" } else { "s" });
    Error::argument(reason).remedy_is(Remedy::RaggedOrPadded)
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, FixedSizeListArray, Int32Array, LargeListArray, ListArray, ListViewArray};
    use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
    use arrow_schema::Field;

    use super::*;

    fn item() -> FieldRef {
        Arc::new(Field::new("item", DataType::Int32, true))
    }

    fn values(count: i32) -> Arc<Int32Array> {
        Arc::new(Int32Array::from_iter((0..count).map(|value| (value != 5).then_some(value))))
    }

    /// The fixed-size lists of two, as an arrow-rs array, and where the first item lies.
    fn dense(lists: &dyn Array) -> Result<Option<(FixedSizeListArray, *const i32)>> {
        let array = DeviceArray::from_arrow(lists, Arc::new(Field::new("x", lists.data_type().clone(), true)))?;
        let field = Arc::new(Field::new("x", DataType::FixedSizeList(item(), 2), true));
        let Some(made) = array.dense_lists(&field)? else { return Ok(None) };
        let made = FixedSizeListArray::from(made.to_arrow()?.to_data());
        let start = Int32Array::from(made.values().to_data()).values().as_ptr();
        Ok(Some((made, start)))
    }

    fn nulls() -> NullBuffer {
        NullBuffer::from(vec![true, false, true, true])
    }

    #[test]
    fn lists_that_follow_each_other_are_the_same_items() {
        let items = values(11);
        let lists = ListArray::new(item(), OffsetBuffer::new(vec![1, 3, 5, 7, 9].into()), items.clone(), Some(nulls()));
        let large = OffsetBuffer::new(vec![1_i64, 3, 5, 7, 9].into());
        let large = LargeListArray::new(item(), large, items.clone(), Some(nulls()));
        let (starts, sizes) = (ScalarBuffer::from(vec![1, 3, 5, 7]), ScalarBuffer::from(vec![2; 4]));
        let views = ListViewArray::new(item(), starts, sizes, items.clone(), Some(nulls()));
        for lists in [&lists as &dyn Array, &large, &views] {
            for skipped in 0..=4 {
                let (made, start) = dense(&*lists.slice(skipped, 4 - skipped)).unwrap().unwrap();
                let expected = FixedSizeListArray::new(item(), 2, Arc::new(items.slice(1, 8)), Some(nulls()));
                assert_eq!(made, expected.slice(skipped, 4 - skipped));
                if skipped < 4 {
                    assert_eq!(start, items.values()[1 + 2 * skipped..].as_ptr());
                }
            }
        }
    }

    #[test]
    fn gaps_and_short_null_lists_are_not_dense_and_other_lengths_are_errors() {
        let offsets = OffsetBuffer::new(vec![0, 2, 2, 4, 6].into());
        assert!(dense(&ListArray::new(item(), offsets.clone(), values(6), Some(nulls()))).unwrap().is_none());
        let error = dense(&ListArray::new(item(), offsets, values(6), None)).unwrap_err();
        assert_eq!((error.column(), error.row()), (Some("x"), Some(1)));
        assert!(error.to_string().contains("0 elements, and not 2"), "{error}");
        for starts in [vec![0, 3], vec![2, 0], vec![0, 0]] {
            let views = ListViewArray::new(item(), starts.into(), vec![2, 2].into(), values(6), None);
            assert!(dense(&views).unwrap().is_none());
        }
    }
}
