//! Fields of structs in an array of structs as columns of another one, over the same memory.

use std::sync::Arc;

use arrow_schema::DataType;
use smallvec::smallvec;

use super::bitmaps::ValidityBits;
use super::check::has_validity;
use super::export::shared_buffer;
use super::foreign::{child, overflow, slot};
use super::import::{DeviceArray, array_ready_at};
use super::mask::Mask;
use super::node::ArrayNode;
use super::view::ArrayView;
use crate::alloc::Owner;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::PathColumns;

impl DeviceArray {
    /// Returns an array of structs with these columns, each a view. A null of a struct is a null of its fields: where a struct and its
    /// field both have a bitmap, a new one is made in host memory.
    ///
    /// # Errors
    /// If the array is of another layout; if bitmaps of a device would have to be joined, or a type has none; if an allocation fails.
    pub(crate) fn at_paths(&self, paths: &PathColumns) -> Result<Self> {
        let relabelled;
        let source = match Arc::ptr_eq(self.field(), paths.source()) {
            true => self,
            false => {
                relabelled = self.relabel(paths.source().clone())?;
                &relabelled
            }
        };
        let (view, mut owner) = (source.view(), source.owner());
        let DataType::Struct(fields) = view.field.data_type() else {
            return Err(Error::internal(format!("{} has no fields", view.field.data_type())));
        };
        let mut node = ArrayNode { length: view.length, null_count: Some(0), ..ArrayNode::default() };
        let mut validity = std::ptr::null();
        match view.validity_levels().as_slice() {
            [] => {}
            [only] => {
                validity = only.bytes().0;
                (node.offset, node.null_count) = (only.offset % 8, only.nulls);
            }
            _ => {
                if let Some(mask) = source.joined(&view)? {
                    node.null_count = Some(mask.nulls());
                    (validity, owner) = shared_buffer(mask.shifted(0)?, owner);
                }
            }
        }
        node.buffers = smallvec![validity];
        // Slots before the rows keep the rows' bits where they are in a byte.
        let first = view.offset.checked_sub(node.offset).ok_or_else(overflow)?;
        let length = view.length.checked_add(node.offset).ok_or_else(overflow)?;
        for positions in paths.positions() {
            let (top, below) = positions.split_first().ok_or_else(|| Error::internal("a path without names"))?;
            let field = fields.get(*top).ok_or_else(|| Error::internal("a path to no column"))?;
            let array = child(view.array, *top)?;
            let offset = slot(array)?.checked_add(first).ok_or_else(overflow)?;
            let column = ArrayView { field, array, offset, length, inherited: Vec::new() };
            let column = below.iter().try_fold(column, |column, position| column.struct_field(*position))?;
            let made = source.path_node(&column, &mut owner);
            let named = |error: Error| {
                let name = paths.field().data_type();
                let DataType::Struct(columns) = name else { return error };
                columns.get(node.children.len()).map_or(error.clone(), |column| error.in_column(column.name()))
            };
            let made = made.map_err(named)?;
            node.children.push(made);
        }
        array_ready_at(node.export(&owner)?, paths.field().clone(), source.readiness().cloned())
    }

    /// A column with the nulls of its structs.
    fn path_node(&self, column: &ArrayView<'_>, owner: &mut Owner) -> Result<ArrayNode> {
        let mut node = ArrayNode::range(column)?;
        let data_type = column.field.data_type();
        if column.inherited.is_empty() || *data_type == DataType::Null {
            return Ok(node);
        }
        if !has_validity(data_type) {
            return match self.joined_inherited(column)? {
                None => Ok(node),
                Some(_) => Err(Error::unsupported(format!("{data_type} has no validity, and its struct has nulls"))
                    .remedy_is("fill the nulls of the struct first, or cast the field to a type with validity")),
            };
        }
        if let [only] = column.validity_levels().as_slice()
            && only.offset % 8 == node.offset % 8
        {
            node.set_validity(data_type, only.bytes().0, 0)?;
            node.null_count = only.nulls;
            return Ok(node);
        }
        if let Some(mask) = self.joined(column)? {
            let nulls = mask.nulls();
            let (validity, both) = shared_buffer(mask.shifted(node.offset)?, owner.clone());
            *owner = both;
            node.set_validity(data_type, validity, nulls)?;
        } else {
            node.buffers.first_mut().into_iter().for_each(|validity| *validity = std::ptr::null());
            node.null_count = Some(0);
        }
        Ok(node)
    }

    /// The nulls of all levels of a view of this array, joined.
    fn joined<'a>(&self, view: &ArrayView<'a>) -> Result<Option<Mask<'a>>> {
        self.require_joinable()?;
        // SAFETY: host memory: `require_joinable`. The bitmaps that the view inherits are of structs of this array, which import
        // checked against their offsets and lengths, and which live as long as the array that the view borrows for 'a.
        unsafe { view.host_mask() }
    }

    /// The nulls of the structs around a view of this array, without its own.
    fn joined_inherited<'a>(&self, view: &ArrayView<'a>) -> Result<Option<Mask<'a>>> {
        self.require_joinable()?;
        let levels: &[ValidityBits] = &view.inherited;
        // SAFETY: host memory: `require_joinable`. The bitmaps are of structs of this array, which import checked against their
        // offsets and lengths, and which live as long as the array that the view borrows for 'a.
        unsafe { Mask::combine(levels, view.length) }
    }

    /// Refuses bitmaps that are not in host memory.
    fn require_joinable(&self) -> Result<()> {
        if self.device().is_cpu() {
            return Ok(());
        }
        let reason = format!("a struct has nulls, which are not joined with those of its fields on {}", self.device());
        Err(Error::new(ErrorKind::Device, reason).remedy_is(self.device().host_remedy()))
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int16Type;
    use arrow_array::{
        Array, ArrayRef, BooleanArray, FixedSizeListArray, Int16Array, NullArray, RecordBatch, RunArray, StringArray,
        StructArray, UnionArray,
    };
    use arrow_buffer::NullBuffer;
    use arrow_schema::{Field, FieldRef, UnionFields};

    use super::*;
    use crate::spec::Conversion;

    fn structs(columns: Vec<(&str, ArrayRef)>, nulls: Option<NullBuffer>) -> ArrayRef {
        let fields: Vec<FieldRef> = columns
            .iter()
            .map(|(name, column)| Arc::new(Field::new(*name, column.data_type().clone(), true)))
            .collect();
        let columns = columns.into_iter().map(|(_, column)| column).collect();
        Arc::new(StructArray::new(fields.into(), columns, nulls))
    }

    /// Every `step`-th row from `first` on is null.
    fn nulls(rows: usize, first: usize, step: usize) -> NullBuffer {
        (0..rows).map(|row| row % step != first).collect()
    }

    fn columns_of(array: &DeviceArray, names: &[&str]) -> RecordBatch {
        let paths = Conversion::default().columns(names.iter().copied()).paths(array.field()).unwrap().unwrap();
        array.at_paths(&paths).unwrap().to_record_batch().unwrap()
    }

    #[test]
    fn nulls_of_each_level_are_nulls_of_the_field_wherever_rows_start() {
        let rows = 40;
        let value = |row: usize| i16::try_from(row).unwrap();
        let numbers: Vec<_> = (0..rows).map(|row| (row % 3 != 0).then(|| value(row))).collect();
        let leaves: [ArrayRef; 4] = [
            Arc::new(Int16Array::from(numbers.clone())),
            Arc::new(Int16Array::from_iter_values((0..rows).map(value))),
            Arc::new(BooleanArray::from_iter((0..rows).map(|row| (row % 3 != 0).then_some(row % 2 == 0)))),
            Arc::new(StringArray::from_iter((0..rows).map(|row| (row % 3 != 0).then(|| row.to_string())))),
        ];
        let item = Arc::new(Field::new("item", DataType::Int16, true));
        let items = Int16Array::from_iter((0..rows * 2).map(|item| (item % 7 != 0).then(|| value(item))));
        let pairs: ArrayRef = Arc::new(FixedSizeListArray::new(item, 2, Arc::new(items), Some(nulls(rows, 1, 3))));
        // Each leaf takes Miri half a minute with all of them.
        let left_out = if cfg!(miri) { 3 } else { 0 };
        for leaf in leaves.into_iter().chain([pairs]) {
            for (of_inner, of_outer) in
                [(None, None), (Some((2, 5)), None), (None, Some((1, 4))), (Some((2, 5)), Some((1, 4)))]
                    .into_iter()
                    .skip(left_out)
            {
                let with = |level: Option<(usize, usize)>| level.map(|(first, step)| nulls(rows, first, step));
                for (cut, slice) in
                    [(0, (0, rows)), (1, (0, 0)), (5, (3, 32)), (3, (5, 20)), (8, (16, 9))].into_iter().skip(left_out)
                {
                    // Each level starts at an offset of its own.
                    let inner = structs(vec![("leaf", leaf.clone())], with(of_inner)).slice(cut, rows - cut);
                    let outer = structs(vec![("inner", inner)], with(of_outer).map(|nulls| nulls.slice(0, rows - cut)));
                    let plain: ArrayRef = Arc::new(Int16Array::from_iter_values((0..rows - cut).map(value)));
                    let batch = RecordBatch::try_from_iter_with_nullable([
                        ("outer", outer, true),
                        ("plain", plain.clone(), true),
                    ]);
                    let batch = batch.unwrap();
                    let array = DeviceArray::from_record_batch(&batch).unwrap();
                    let length = slice.1.min(rows - cut - slice.0);
                    let array = array.slice(slice.0, length).unwrap();
                    let made = columns_of(&array, &["plain", "outer.inner.leaf"]);
                    assert_eq!((made.num_rows(), made.num_columns()), (length, 2));
                    assert_eq!(made.column(0), &plain.slice(slice.0, length));
                    let found = made.column(1);
                    for row in 0..length {
                        let at = slice.0 + row;
                        let is_null = leaf.is_null(cut + at)
                            || of_inner.is_some_and(|(first, step)| (cut + at) % step == first)
                            || of_outer.is_some_and(|(first, step)| at % step == first);
                        assert_eq!(
                            found.is_null(row),
                            is_null,
                            "{} {of_inner:?} {of_outer:?} {cut} {row}",
                            leaf.data_type()
                        );
                        if !is_null {
                            assert_eq!(&found.slice(row, 1), &leaf.slice(cut + at, 1));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn null_rows_stay_null_and_values_are_not_copied() {
        let values = Int16Array::from_iter_values(0..20);
        let start = values.values().as_ptr();
        let inner = structs(vec![("a", Arc::new(values))], Some(nulls(20, 0, 6)));
        let all = structs(vec![("s", inner)], Some(nulls(20, 3, 7)));
        let field = Arc::new(Field::new("", all.data_type().clone(), true));
        let array = DeviceArray::from_arrow(all.slice(9, 8).as_ref(), field).unwrap();
        let paths = Conversion::default().columns(["s.a"]).paths(array.field()).unwrap().unwrap();
        let made = array.at_paths(&paths).unwrap();
        let rows = made.to_arrow().unwrap();
        let rows = rows.as_any().downcast_ref::<StructArray>().unwrap();
        for row in 0..8 {
            assert_eq!(rows.is_null(row), (row + 9) % 7 == 3);
            assert_eq!(rows.column(0).is_null(row), (row + 9) % 6 == 0);
        }
        let column = rows.column(0).as_any().downcast_ref::<Int16Array>().unwrap();
        assert_eq!(column.values().as_ptr(), start.wrapping_add(9));
    }

    #[test]
    fn nulls_of_a_struct_are_refused_where_its_field_has_no_validity() {
        let values: ArrayRef = Arc::new(Int16Array::from(vec![1, 2, 3]));
        let runs = RunArray::<Int16Type>::try_new(&Int16Array::from(vec![1, 2, 3]), &values).unwrap();
        let fields = UnionFields::try_new([0], [Field::new("a", DataType::Int16, true)]).unwrap();
        let union = UnionArray::try_new(fields, vec![0_i8; 3].into(), None, vec![values]).unwrap();
        let leaves: [(ArrayRef, bool); 3] =
            [(Arc::new(runs), false), (Arc::new(union), false), (Arc::new(NullArray::new(3)), true)];
        for (leaf, is_taken) in leaves {
            let rows = structs(vec![("s", structs(vec![("u", leaf)], Some(nulls(3, 1, 3))))], None);
            let field = Arc::new(Field::new("", rows.data_type().clone(), true));
            let array = DeviceArray::from_arrow(rows.as_ref(), field).unwrap();
            let paths = Conversion::default().columns(["s.u"]).paths(array.field()).unwrap().unwrap();
            let refused = array.at_paths(&paths).err().map(|error| (error.kind(), error.column().map(str::to_owned)));
            let expected = (!is_taken).then(|| (ErrorKind::Unsupported, Some("s.u".to_owned())));
            assert_eq!(refused, expected, "{}", array.field());
            // Rows without a null need no place for one.
            assert_eq!(array.slice(0, 1).unwrap().at_paths(&paths).unwrap().len(), 1);
        }
    }
}
