//! The metadata of `arrow.variable_shape_tensor`
//! (<https://arrow.apache.org/docs/format/CanonicalExtensions.html#variable-shape-tensor>): rows with a shape each.

use arrow_schema::{DataType, Field, FieldRef};
use serde_json::{Map, Value};

use super::fixed_shape_tensor::permutation;
use crate::error::{Error, Result};

/// The struct's fields of a column of this extension type, and what the type says of all rows.
#[derive(Debug)]
pub(crate) struct VariableShape<'a> {
    /// Position and field of the list of elements.
    pub(crate) data: (usize, &'a FieldRef),
    /// Position and field of the fixed-size list of extents.
    pub(crate) shape: (usize, &'a FieldRef),
    /// Extents that every row has; empty where the type says nothing of them.
    pub(crate) uniform: Vec<Option<i64>>,
    /// The order of the logical dimensions; empty where it is that of the physical ones.
    permutation: Vec<usize>,
}

impl<'a> VariableShape<'a> {
    /// The name of the extension type.
    pub(crate) const NAME: &'static str = "arrow.variable_shape_tensor";

    /// Reads a field's metadata; `None` if the field is not of this extension type.
    ///
    /// # Errors
    /// When storage or metadata are not what the specification asks for.
    pub(crate) fn of(field: &'a Field) -> Result<Option<Self>> {
        let name = Self::NAME;
        if field.extension_type_name() != Some(name) {
            return Ok(None);
        }
        let wrong =
            || Error::invalid(format!("{name} is stored as a struct of data, a list, and shape, int32 of one size"));
        let DataType::Struct(fields) = field.data_type() else { return Err(wrong()) };
        let (data, shape) = fields.find("data").zip(fields.find("shape")).ok_or_else(wrong)?;
        let ndim = match (data.1.data_type(), shape.1.data_type()) {
            (DataType::List(_), DataType::FixedSizeList(extent, ndim)) if *extent.data_type() == DataType::Int32 => {
                usize::try_from(*ndim).map_err(|_| wrong())?
            }
            _ => return Err(wrong()),
        };
        let text = field.extension_type_metadata().unwrap_or("");
        let (uniform, permutation) = parse(text, ndim).ok_or_else(|| {
            Error::invalid(format!("{name}: the metadata {text:?} is not what its specification asks"))
        })?;
        Ok(Some(Self { data, shape, uniform, permutation }))
    }

    /// Returns whether the logical order of the elements is their order in memory.
    pub(crate) fn is_row_major(&self) -> bool {
        self.permutation.is_empty()
    }

    /// Returns whether both types put every element of a row at the same place.
    pub(crate) fn orders_as(&self, other: &Self) -> bool {
        self.permutation == other.permutation
    }

    /// Returns whether each extent that this type gives is one that `own`, the type of the data, gives too.
    pub(crate) fn is_uniform_in(&self, own: Option<&Self>) -> bool {
        let own = own.map_or(&[][..], |own| &own.uniform);
        self.uniform.iter().enumerate().all(|(axis, extent)| extent.is_none() || own.get(axis) == Some(extent))
    }
}

/// The uniform extents and the permutation that metadata gives; `None` where it is malformed.
fn parse(text: &str, ndim: usize) -> Option<(Vec<Option<i64>>, Vec<usize>)> {
    let metadata: Map<String, Value> = if text.is_empty() { Map::new() } else { serde_json::from_str(text).ok()? };
    let list = |key: &str| match metadata.get(key) {
        None | Some(Value::Null) => Some(None),
        Some(value) => value.as_array().filter(|list| list.len() == ndim).map(Some),
    };
    list("dim_names")?;
    let permutation = permutation(&metadata, ndim)?;
    let extent = |extent: &Value| match extent {
        Value::Null => Some(None),
        other => other.as_i64().filter(|extent| *extent >= 0).map(Some),
    };
    let uniform: Vec<_> = match list("uniform_shape")? {
        Some(uniform) => uniform.iter().map(extent).collect::<Option<_>>()?,
        None => Vec::new(),
    };
    let is_told = uniform.iter().any(Option::is_some);
    Some((if is_told { uniform } else { Vec::new() }, permutation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(item: DataType) -> DataType {
        DataType::new_list(item, true)
    }

    fn extents(item: DataType) -> DataType {
        DataType::new_fixed_size_list(item, 2, true)
    }

    #[test]
    fn the_storage_is_a_list_and_extents_of_32_bits() {
        let large = DataType::new_large_list(DataType::Float32, true);
        let (data, shape) = (list(DataType::Float32), extents(DataType::Int32));
        for (columns, is_read) in [
            (vec![("data", data.clone()), ("shape", shape.clone())], true),
            (vec![("shape", shape.clone()), ("data", data.clone())], true),
            (vec![("data", data.clone()), ("shape", extents(DataType::Int64))], false),
            (vec![("data", data.clone()), ("shape", list(DataType::Int32))], false),
            (vec![("data", large), ("shape", shape.clone())], false),
            (vec![("data", data)], false),
            (vec![("shape", shape)], false),
        ] {
            let fields = columns.into_iter().map(|(name, data_type)| Field::new(name, data_type, false)).collect();
            let metadata = [("ARROW:extension:name".to_owned(), VariableShape::NAME.to_owned())].into();
            let field = Field::new("x", DataType::Struct(fields), true).with_metadata(metadata);
            match VariableShape::of(&field) {
                Ok(found) => assert!(is_read && found.is_some(), "{field}"),
                Err(error) => assert!(!is_read && error.reason().contains("is stored as"), "{error}"),
            }
        }
    }

    #[test]
    fn metadata_is_read_or_refused() {
        let nothing = Some((vec![], vec![]));
        for text in ["", "{}", r#"{"permutation":[0,1]}"#, r#"{"uniform_shape":[null,null]}"#] {
            assert_eq!(parse(text, 2), nothing, "{text}");
        }
        // Nothing is allocated for dimensions that the type of the storage claims.
        assert_eq!(parse("", usize::MAX), nothing);
        let full = r#"{"dim_names":["H","W"],"permutation":[1,0],"uniform_shape":[null,3]}"#;
        assert_eq!(parse(full, 2), Some((vec![None, Some(3)], vec![1, 0])));
        for text in [
            "[]",
            "x",
            r#"{"dim_names":["H"]}"#,
            r#"{"permutation":[0,0]}"#,
            r#"{"permutation":[0,2]}"#,
            r#"{"permutation":"10"}"#,
            r#"{"uniform_shape":[-1,null]}"#,
            r#"{"uniform_shape":[1,2,3]}"#,
            r#"{"uniform_shape":[1.5,2]}"#,
        ] {
            assert_eq!(parse(text, 2), None, "{text}");
        }
    }
}
