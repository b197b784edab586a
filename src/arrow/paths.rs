//! Fields of structs in an array of structs as columns of another one, over the same memory.

use std::sync::Arc;

use arrow_schema::DataType;
use smallvec::smallvec;

use super::bitmaps::{BitmapLevel, JoinBits, ValidityBits};
use super::check::has_validity;
use super::foreign::{child, overflow, slot};
use super::import::{DeviceArray, array_ready_at};
use super::mask::Mask;
use super::node::ArrayNode;
use super::view::ArrayView;
use crate::alloc::Owner;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::PathColumns;
use crate::stream_order::Readiness;

impl DeviceArray {
    /// Returns an array of structs with these columns, each a view. A null of a struct is a null of its fields: where a struct and its
    /// field both have a bitmap, a new one is made in host memory, or by `join` on a device.
    ///
    /// # Errors
    /// If the array is of another layout; if bitmaps would have to be joined where nothing can, or a type has none; if an allocation or
    /// `join` fails.
    pub(crate) fn at_paths(&self, paths: &PathColumns, join: JoinBits) -> Result<Self> {
        let relabelled;
        let source = match Arc::ptr_eq(self.field(), paths.source()) {
            true => self,
            false => {
                relabelled = self.relabel(paths.source().clone())?;
                &relabelled
            }
        };
        let view = source.view();
        let DataType::Struct(fields) = view.field.data_type() else {
            return Err(Error::internal(format!("{} has no fields", view.field.data_type())));
        };
        let mut node = ArrayNode { length: view.length, null_count: Some(0), ..ArrayNode::default() };
        let mut joins = JoinedPaths { source, bitmaps: Vec::new(), on_device: Vec::new() };
        node.buffers = smallvec![std::ptr::null()];
        match view.validity_levels().as_slice() {
            [] => {}
            [only] => {
                node.buffers = smallvec![only.bytes().0];
                (node.offset, node.null_count) = (only.offset % 8, only.nulls);
            }
            levels => joins.join(&mut node, &view, levels, None)?,
        }
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
            let place = node.children.len();
            let made = joins.path_node(&column, place).map_err(|error| named(paths, place, error))?;
            node.children.push(made);
        }
        let (owner, readiness) = joins.finish(&mut node, length, join).map_err(|(place, error)| match place {
            Some(place) => named(paths, place, error),
            None => error,
        })?;
        array_ready_at(node.export(&owner)?, paths.field().clone(), readiness)
    }
}

/// The error, of the column of a path.
fn named(paths: &PathColumns, place: usize, error: Error) -> Error {
    let DataType::Struct(columns) = paths.field().data_type() else { return error };
    columns.get(place).map_or(error.clone(), |column| error.in_column(column.name()))
}

/// JoinedPaths the bitmaps of columns with those of the structs around them.
struct JoinedPaths<'a> {
    source: &'a DeviceArray,
    /// The bitmaps that were made in host memory.
    bitmaps: Vec<Vec<u8>>,
    /// Bitmaps to be made on the device, all at once.
    on_device: Vec<DeviceJoin>,
}

/// A bitmap to be made on a device.
struct DeviceJoin {
    /// Whose: the number of the column; `None` for the rows'.
    place: Option<usize>,
    /// The number of the buffer.
    buffer: usize,
    levels: Vec<BitmapLevel>,
}

impl JoinedPaths<'_> {
    /// A column with the nulls of its structs.
    fn path_node(&mut self, column: &ArrayView<'_>, place: usize) -> Result<ArrayNode> {
        let mut node = ArrayNode::range(column)?;
        let data_type = column.field.data_type();
        if column.inherited.is_empty() || *data_type == DataType::Null {
            return Ok(node);
        }
        if !has_validity(data_type) {
            return match self.has_null_structs(column)? {
                false => Ok(node),
                true => Err(Error::unsupported(format!("{data_type} has no validity, and its struct has nulls"))
                    .remedy_is("fill the nulls of the struct first, or cast the field to a type with validity")),
            };
        }
        match column.validity_levels().as_slice() {
            [only] if only.offset % 8 == node.offset % 8 => {
                node.set_validity(data_type, only.bytes().0, 0)?;
                node.null_count = only.nulls;
            }
            levels => self.join(&mut node, column, levels, Some(place))?,
        }
        Ok(node)
    }

    /// JoinedPaths the bitmaps of a view, and sets the one that comes out on its node: now in host memory, in the end on a device.
    fn join(
        &mut self,
        node: &mut ArrayNode,
        view: &ArrayView<'_>,
        levels: &[ValidityBits],
        place: Option<usize>,
    ) -> Result<()> {
        let data_type = view.field.data_type();
        let levels = if view.length == 0 { &[] } else { levels };
        if !self.source.device().is_cpu() && !levels.is_empty() {
            let bits = [(0, levels.iter().map(ValidityBits::level).collect())];
            // What a kernel makes starts at the first bit of a byte: values that are bits are brought there, too.
            let values = (*data_type == DataType::Boolean && !node.offset.is_multiple_of(8))
                .then(|| value_bits(node))
                .transpose()?;
            let values = values.flatten().map(|values| (1, vec![values]));
            let join = |(buffer, levels)| DeviceJoin { place, buffer, levels };
            self.on_device.extend(bits.into_iter().chain(values).map(join));
            node.skip(data_type, node.offset)?;
            node.null_count = None;
            return Ok(());
        }
        // SAFETY: host memory, or no bits. The bitmaps that the view inherits are of structs of the array, which import checked against
        // their offsets and lengths, and which live as long as the array that the view borrows.
        let mask = unsafe { Mask::combine(levels, view.length) }?;
        if let Some(mask) = mask {
            let nulls = mask.nulls();
            let bitmap = mask.shifted(node.offset)?;
            node.set_validity(data_type, bitmap.as_ptr(), nulls)?;
            self.bitmaps.push(bitmap);
        } else {
            node.buffers.first_mut().into_iter().for_each(|validity| *validity = std::ptr::null());
            node.null_count = Some(0);
        }
        Ok(())
    }

    /// Returns whether a struct around a view is null.
    fn has_null_structs(&self, view: &ArrayView<'_>) -> Result<bool> {
        if !self.source.device().is_cpu() {
            return Err(refused(self.source.device()));
        }
        // SAFETY: host memory. The bitmaps are of structs of the array, which import checked against their offsets and lengths, and
        // which live as long as the array that the view borrows.
        Ok(unsafe { Mask::combine(&view.inherited, view.length) }?.is_some())
    }

    /// Makes the bitmaps of a device for `length` slots, and sets them. Returns what owns all memory, and when it is written; an error with
    /// the number of its column.
    fn finish(
        self,
        node: &mut ArrayNode,
        length: usize,
        join: JoinBits,
    ) -> std::result::Result<(Owner, Option<Readiness>), (Option<usize>, Error)> {
        let readiness = self.source.readiness().cloned();
        let source = self.source.owner();
        let owner: Owner = if self.bitmaps.is_empty() { source } else { Arc::new((self.bitmaps, source)) };
        let (Some(first), Some(written)) = (self.on_device.first(), &readiness) else {
            return Ok((owner, readiness));
        };
        let (places, levels): (Vec<_>, Vec<_>) =
            self.on_device.iter().map(|join| ((join.place, join.buffer), join.levels.clone())).unzip();
        let made = join(written, &levels, length).map_err(|error| (None, error))?;
        let made = made.ok_or_else(|| (first.place, refused(written.device())))?;
        for (at, (place, buffer)) in places.into_iter().enumerate() {
            let node = match place {
                None => Some(&mut *node),
                Some(place) => node.children.get_mut(place),
            };
            let start = node.and_then(|node| node.buffers.get_mut(buffer));
            *start.ok_or_else(|| (place, Error::internal("a bitmap of no buffer")))? = made.column(at);
        }
        let joined = Readiness::joined([written.clone(), made.readiness]).map_err(|error| (None, error))?;
        Ok((Arc::new((made.owner, owner)), joined))
    }
}

/// Where a device finds the values of a node of bools; `None` if it has none.
fn value_bits(node: &ArrayNode) -> Result<Option<BitmapLevel>> {
    let end = node.offset.checked_add(node.length).ok_or_else(overflow)?;
    let level = |start: &*const u8| BitmapLevel {
        start: start.wrapping_add(node.offset / 8).addr(),
        bytes: end.div_ceil(8) - node.offset / 8,
        first_bit: node.offset % 8,
        repeat: 1,
        group: 1,
    };
    Ok(node.buffers.get(1).filter(|start| !start.is_null()).map(level))
}

fn refused(device: Device) -> Error {
    let reason = format!("a struct has nulls, which are not joined with those of its fields on {device}");
    Error::new(ErrorKind::Device, reason).remedy_is(device.host_remedy())
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
        array.at_paths(&paths, |_, _, _| Ok(None)).unwrap().to_record_batch().unwrap()
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
        let made = array.at_paths(&paths, |_, _, _| Ok(None)).unwrap();
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
            let refused = array
                .at_paths(&paths, |_, _, _| Ok(None))
                .err()
                .map(|error| (error.kind(), error.column().map(str::to_owned)));
            let expected = (!is_taken).then(|| (ErrorKind::Unsupported, Some("s.u".to_owned())));
            assert_eq!(refused, expected, "{}", array.field());
            // Rows without a null need no place for one.
            assert_eq!(array.slice(0, 1).unwrap().at_paths(&paths, |_, _, _| Ok(None)).unwrap().len(), 1);
        }
    }
}
