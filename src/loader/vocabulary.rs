//! [`DistinctValues`]: the values that columns of a source have, as categories for its batches.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::FieldRef;

use super::source_rows::on_host;
use crate::alloc::fallible;
use crate::arrow::DeviceArray;
use crate::categories::{Categories, Key, ValueKind, leaf_of, values_of};
use crate::convert::each_value;
use crate::error::{Error, Remedy, Result};
use crate::kernels::join_bits;
use crate::spec::{Conversion, PathColumns, require_values, select};

/// Collects the different values of columns, array by array: the categories are all values that are no nulls, in ascending order of
/// their bytes or numbers. So they depend neither on the order of rows nor on how the source is cut.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, RecordBatch, StringArray};
/// use arrow_dlpack::DeviceArray;
/// use arrow_dlpack::loader::DistinctValues;
///
/// let column: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None, Some("a"), Some("b")]));
/// let array = DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("carrier", column)]).unwrap())?;
/// let mut values = DistinctValues::new(array.field(), &["carrier".to_owned()], 1000)?;
/// values.add(&array)?;
/// let categories = values.finish()?.remove(0).1;
/// assert_eq!(categories.values().as_ref(), &StringArray::from(vec!["a", "b"]));
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
#[derive(Debug)]
pub struct DistinctValues {
    columns: Vec<DistinctColumn>,
    /// The type of each array.
    field: FieldRef,
    paths: Option<Arc<PathColumns>>,
    limit: usize,
}

#[derive(Debug)]
struct DistinctColumn {
    name: String,
    position: usize,
    kind: ValueKind,
    bytes: HashSet<Box<[u8]>>,
    ints: HashSet<i128>,
}

impl DistinctValues {
    /// Returns no values yet of these columns of a struct, or fields by path, each of which has at most `limit`.
    ///
    /// # Errors
    /// If the type is no struct; for columns that do not exist, or whose values cannot be categories: names all of them.
    pub fn new(field: &FieldRef, columns: &[String], limit: usize) -> Result<Self> {
        let whole = field;
        let paths = Conversion::default().columns(columns.iter().map(String::as_str)).paths(field)?;
        let field = paths.as_deref().map_or(field, PathColumns::field);
        let column = |(position, column): (usize, &FieldRef)| {
            require_values(column).map_err(|error| error.in_column(column.name()))?;
            let leaf = leaf_of(column.data_type());
            let kind = ValueKind::of(leaf).ok_or_else(|| {
                Error::unsupported(format!("values of {leaf} are none of strings, binary values and integers"))
                    .remedy_is("cast the column to one of these types")
                    .in_column(column.name())
            })?;
            let name = column.name().clone();
            Ok(DistinctColumn { name, position, kind, bytes: HashSet::new(), ints: HashSet::new() })
        };
        let columns = crate::spec::all_or_errors(select(field, Some(columns))?.into_iter().map(column))?;
        Ok(Self { columns, field: whole.clone(), paths: paths.clone(), limit })
    }

    /// Adds the values of an array of structs, on any device that can be copied from.
    ///
    /// # Errors
    /// If a column has more values than the limit, or the array has other columns or breaks the Arrow format; those of a copy to the host.
    pub fn add(&mut self, array: &DeviceArray) -> Result<()> {
        array.require_type(&self.field)?;
        let copied = if array.device().is_cpu() { None } else { Some(on_host(array, None)?) };
        let (array, limit) = (copied.as_ref().unwrap_or(array), self.limit);
        let named = self.paths.as_deref().map(|paths| array.at_paths(paths, join_bits)).transpose()?;
        let array = named.as_ref().unwrap_or(array);
        for column in &mut self.columns {
            let values = array.column(column.position)?;
            each_value(&values, &mut |key| column.add(key, limit)).map_err(|error| error.in_column(&column.name))?;
        }
        Ok(())
    }

    /// Returns the categories of each column.
    ///
    /// # Errors
    /// If an allocation fails.
    pub fn finish(self) -> Result<Vec<(String, Categories)>> {
        let categories = self.columns.into_iter().map(|column| {
            let mut ints = fallible::collected(column.ints.into_iter().map(Ok))?;
            let mut bytes = fallible::collected(column.bytes.into_iter().map(Ok))?;
            ints.sort_unstable();
            bytes.sort_unstable();
            let values = values_of(column.kind, &bytes, &ints).and_then(Categories::new);
            let values = values.map_err(|error| error.in_column(&column.name))?;
            Ok((column.name, values))
        });
        categories.collect()
    }
}

impl DistinctColumn {
    fn add(&mut self, key: Key<'_>, limit: usize) -> Result<()> {
        let is_new = match key {
            Key::Int(value) => fallible::insert(&mut self.ints, value)?,
            // Most values are known, and those are not copied.
            Key::Bytes(bytes) if self.bytes.contains(bytes) => false,
            Key::Bytes(bytes) => {
                let own = fallible::copied(bytes)?.into_boxed_slice();
                fallible::insert(&mut self.bytes, own)?
            }
        };
        if is_new && self.ints.len().saturating_add(self.bytes.len()) > limit {
            let reason = format!("the column has more than {limit} different values");
            return Err(Error::argument(reason).remedy_is(Remedy::MoreCategories));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::{Int8Type, Int32Type};
    use arrow_array::{
        Array, ArrayRef, DictionaryArray, FixedSizeListArray, Int8Array, Int16Array, Int64Array, RecordBatch, RunArray,
        StringArray, StringViewArray, StructArray, UInt64Array,
    };
    use arrow_schema::{DataType, Field};

    use super::*;

    fn batch(column: ArrayRef) -> DeviceArray {
        let batch = RecordBatch::try_from_iter_with_nullable([("x", column, true)]).unwrap();
        DeviceArray::from_record_batch(&batch).unwrap()
    }

    fn of(arrays: &[DeviceArray], limit: usize) -> Result<ArrayRef> {
        let mut values = DistinctValues::new(arrays[0].field(), &["x".to_owned()], limit)?;
        arrays.iter().try_for_each(|array| values.add(array))?;
        Ok(values.finish()?.remove(0).1.values().clone())
    }

    #[test]
    fn values_are_sorted_whatever_the_layout_and_the_cuts() {
        let rows = vec![Some("b"), None, Some("a"), Some("b"), Some("c")];
        let encoded: DictionaryArray<Int8Type> = rows.iter().copied().collect();
        let unused = StringArray::from(vec![Some("unused"), Some("c"), Some("b"), None, Some("a"), Some("d")]);
        let codes = Int8Array::from(vec![Some(2), Some(3), Some(4), None, Some(1)]);
        let with_unused = DictionaryArray::<Int8Type>::try_new(codes, Arc::new(unused)).unwrap();
        let ends = arrow_array::Int32Array::from(vec![1, 2, 3, 4, 5]);
        let runs = RunArray::<Int32Type>::try_new(&ends, &StringArray::from(rows.clone())).unwrap();
        let layouts: [ArrayRef; 5] = [
            Arc::new(StringArray::from(rows.clone())),
            Arc::new(StringViewArray::from(rows)),
            Arc::new(encoded),
            Arc::new(with_unused),
            Arc::new(runs),
        ];
        let expected: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
        for column in layouts {
            for cut in 0..=5 {
                let parts = [batch(column.slice(0, cut)), batch(column.slice(cut, 5 - cut))];
                assert_eq!(&of(&parts, 3).unwrap(), &expected, "{} at {cut}", column.data_type());
            }
            // Only what the rows of a slice have.
            let first: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
            assert_eq!(&of(&[batch(column.slice(0, 3))], 3).unwrap(), &first);
        }
    }

    #[test]
    fn integers_are_sorted_by_value() {
        let small: ArrayRef = Arc::new(Int16Array::from(vec![7, -1, 7]));
        assert_eq!(of(&[batch(small)], 9).unwrap().as_ref(), &Int64Array::from(vec![-1, 7]) as &dyn Array);
        let large: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX, 0]));
        assert_eq!(of(&[batch(large)], 9).unwrap().as_ref(), &UInt64Array::from(vec![0, u64::MAX]) as &dyn Array);
    }

    #[test]
    fn values_under_a_null_do_not_count() {
        let item = Arc::new(Field::new("item", DataType::Utf8, true));
        let texts = StringArray::from(vec!["hidden", "hidden", "b", "a"]);
        let lists = FixedSizeListArray::new(item, 2, Arc::new(texts), Some(vec![false, true].into()));
        let expected: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
        assert_eq!(&of(&[batch(Arc::new(lists))], 9).unwrap(), &expected);
        let ends = arrow_array::Int32Array::from(vec![1, 3]);
        let runs = RunArray::<Int32Type>::try_new(&ends, &StringArray::from(vec!["hidden", "a"])).unwrap();
        let plain = StringArray::from(vec!["hidden", "a", "a"]);
        for column in [Arc::new(runs) as ArrayRef, Arc::new(plain)] {
            let fields = vec![Field::new("x", column.data_type().clone(), true)];
            let rows = StructArray::new(fields.into(), vec![column], Some(vec![false, true, true].into()));
            let field = Arc::new(Field::new("", rows.data_type().clone(), true));
            let array = DeviceArray::from_arrow(&rows, field).unwrap();
            assert_eq!(of(&[array], 9).unwrap().as_ref(), &StringArray::from(vec!["a"]) as &dyn Array);
        }
    }

    #[test]
    fn too_many_values_and_values_of_other_types_are_errors_of_the_column() {
        let column: ArrayRef = Arc::new(Int16Array::from(vec![1, 2, 3]));
        assert!(of(&[batch(column.clone())], 3).is_ok());
        let error = of(&[batch(column)], 2).unwrap_err();
        assert_eq!(error.column(), Some("x"));
        assert!(error.to_string().contains("more than 2 different values"), "{error}");
        let floats: ArrayRef = Arc::new(arrow_array::Float32Array::from(vec![1.0]));
        assert_eq!(of(&[batch(floats)], 2).unwrap_err().column(), Some("x"));
        let array = batch(Arc::new(Int16Array::from(vec![1])));
        let text = batch(Arc::new(StringArray::from(vec!["a"])));
        assert!(DistinctValues::new(array.field(), &["x".to_owned()], 1).unwrap().add(&text).is_err());
        assert!(DistinctValues::new(array.field(), &["y".to_owned()], 1).is_err());
    }
}
