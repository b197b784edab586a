//! Some columns of an array of structs as another one, and fixed-size lists as lists, over the same memory.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};
use smallvec::smallvec;

use super::export::shared_buffer;
use super::foreign::child;
use super::import::{DeviceArray, array_ready_at, host_array};
use super::node::ArrayNode;
use crate::alloc::{Owner, fallible};
use crate::error::{Error, Result};

impl DeviceArray {
    /// Returns the columns of an array of structs at these positions, as structs of this field. Null structs stay null.
    ///
    /// # Errors
    /// If there are no such columns, or the array is itself a column of a struct.
    pub(crate) fn project(&self, positions: &[usize], field: &FieldRef) -> Result<Self> {
        if !self.is_alone() {
            return Err(Error::unsupported("columns of a struct in a struct cannot be passed through"));
        }
        let view = self.view();
        let mut node = ArrayNode::rows(&view)?;
        let columns = positions.iter().map(|position| {
            // Checks that there is such a column.
            self.column(*position)?;
            ArrayNode::whole(child(view.array, *position)?)
        });
        node.children = columns.collect::<Result<_>>()?;
        array_ready_at(node.export(&self.owner())?, field.clone(), self.readiness().cloned())
    }

    /// Returns a host array of fixed-size lists as lists of this field, of large lists of the same items, with offsets of their own.
    ///
    /// # Errors
    /// If the types are others, the memory is not the host's, or the allocation of offsets fails.
    pub(crate) fn fixed_as_lists(&self, field: &FieldRef) -> Result<Self> {
        self.require_host()?;
        let (DataType::FixedSizeList(_, size), DataType::LargeList(_)) = (self.field().data_type(), field.data_type())
        else {
            return Err(Error::internal(format!("{} as {}", self.field().data_type(), field.data_type())));
        };
        let view = self.view();
        let mut node = ArrayNode::range(&view)?;
        let overflow = || Error::invalid("the items of fixed-size lists overflow");
        let size = i64::from(*size);
        // The rows keep their position in a byte of the bitmap.
        let (skipped, offset) = (node.offset - node.offset % 8, node.offset % 8);
        let first = usize::try_from(size).ok().and_then(|size| size.checked_mul(skipped)).ok_or_else(overflow)?;
        let count = offset.checked_add(node.length).and_then(|slots| slots.checked_add(1)).ok_or_else(overflow)?;
        let offsets = (0..count).map(|slot| {
            let offset = i64::try_from(slot).ok().and_then(|slot| slot.checked_mul(size)).ok_or_else(overflow)?;
            Ok(offset)
        });
        // Not a box, as the pointer is used after a move.
        let offsets: Vec<i64> = fallible::collected(offsets)?;
        let start = offsets.as_ptr().cast();
        let mut owner: Owner = Arc::new((offsets, self.owner()));
        // SAFETY: host memory: `require_host`. What the view inherits is of the owner, which `self` holds.
        let mask = unsafe { view.host_mask() }?;
        let mut validity = std::ptr::null();
        node.null_count = Some(0);
        if let Some(mask) = mask {
            node.null_count = Some(mask.nulls());
            (validity, owner) = shared_buffer(mask.shifted(offset)?, owner);
        }
        for items in &mut node.children {
            let length = items.length.checked_sub(first).ok_or_else(overflow)?;
            items.offset = items.offset.checked_add(first).ok_or_else(overflow)?;
            items.null_count = items.null_count.filter(|nulls| *nulls == 0);
            items.length = length;
        }
        (node.offset, node.buffers) = (offset, smallvec![validity, start]);
        host_array(node.export(&owner)?, field.clone())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int16Type;
    use arrow_array::{Array, ArrayRef, FixedSizeListArray, Int8Array, RecordBatch, StructArray};
    use arrow_schema::Field;

    use super::*;

    #[test]
    fn columns_are_chosen_in_any_order_over_the_same_memory() {
        let column = |values: Vec<Option<i8>>| -> ArrayRef { Arc::new(Int8Array::from(values)) };
        let (a, b) = (column(vec![Some(1), None, Some(3)]), column(vec![None, Some(5), Some(6)]));
        let batch = RecordBatch::try_from_iter([("a", a.clone()), ("b", b.clone())]).unwrap();
        let all = DeviceArray::from_record_batch(&batch).unwrap();
        for positions in [vec![1], vec![1, 0], vec![]] {
            let fields = positions.iter().map(|at| all.columns()[*at].clone()).collect();
            let field = Arc::new(Field::new("", DataType::Struct(fields), false));
            let part = all.slice(1, 2).unwrap().project(&positions, &field).unwrap().to_record_batch().unwrap();
            assert_eq!((part.num_rows(), part.num_columns()), (2, positions.len()));
            for (column, at) in part.columns().iter().zip(&positions) {
                assert_eq!(column, &batch.column(*at).slice(1, 2));
            }
        }
        assert!(all.project(&[2], all.field()).is_err());
        // The nulls of a struct around the columns would be lost.
        let fields = vec![Field::new("s", all.field().data_type().clone(), true)];
        let rows =
            StructArray::new(fields.into(), vec![Arc::new(StructArray::from(batch))], Some(vec![false; 3].into()));
        let outer = DeviceArray::from_arrow(&rows, Arc::new(Field::new("", rows.data_type().clone(), true))).unwrap();
        assert!(outer.column(0).unwrap().project(&[0, 1], all.field()).is_err());
    }

    #[test]
    fn fixed_size_lists_become_lists_wherever_they_start() {
        let rows = (0..20).map(|row| (row % 5 != 2).then(|| vec![Some(row), None, Some(-row)]));
        let lists = FixedSizeListArray::from_iter_primitive::<Int16Type, _, _>(rows, 3);
        let DataType::FixedSizeList(item, _) = lists.data_type() else { panic!("no lists") };
        let own = Arc::new(Field::new("x", lists.data_type().clone(), true));
        let field = Arc::new(Field::new("x", DataType::LargeList(item.clone()), true));
        let array = DeviceArray::from_arrow(&lists, own).unwrap();
        for (start, length) in [(0, 20), (3, 9), (8, 12), (17, 3), (20, 0)] {
            let part = array.slice(start, length).unwrap().fixed_as_lists(&field).unwrap().to_arrow().unwrap();
            let part = part.as_any().downcast_ref::<arrow_array::LargeListArray>().unwrap();
            assert_eq!(part.len(), length);
            for row in 0..length {
                assert_eq!(part.is_null(row), (start + row) % 5 == 2);
                assert!(part.is_null(row) || *part.value(row) == *lists.value(start + row));
            }
        }
    }
}
