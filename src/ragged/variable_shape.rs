//! `arrow.variable_shape_tensor`
//! (<https://arrow.apache.org/docs/format/CanonicalExtensions.html#variable-shape-tensor>): rows with a shape each.

use arrow_schema::{DataType, Field, FieldRef};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::tensor::Tensor;

pub(super) const NAME: &str = "arrow.variable_shape_tensor";

/// The struct's fields of a column of this extension type.
#[derive(Debug)]
pub(super) struct VariableShape<'a> {
    /// Position and field of the list of elements.
    pub(super) data: (usize, &'a FieldRef),
    /// Position and field of the fixed-size list of extents.
    pub(super) shape: (usize, &'a FieldRef),
    /// Extents that every row has.
    pub(super) uniform: Vec<Option<i64>>,
}

impl<'a> VariableShape<'a> {
    /// `None` where the field is not of this type.
    ///
    /// # Errors
    /// When storage or metadata are not what the specification asks for.
    pub(super) fn of(field: &'a Field) -> Result<Option<Self>> {
        if field.extension_type_name() != Some(NAME) {
            return Ok(None);
        }
        let wrong =
            || Error::invalid(format!("{NAME} is stored as a struct of data, a list, and shape, int32 of one size"));
        let DataType::Struct(fields) = field.data_type() else { return Err(wrong()) };
        let (data, shape) = fields.find("data").zip(fields.find("shape")).ok_or_else(wrong)?;
        let ndim = match (data.1.data_type(), shape.1.data_type()) {
            (DataType::List(_), DataType::FixedSizeList(extent, ndim)) if *extent.data_type() == DataType::Int32 => {
                usize::try_from(*ndim).map_err(|_| wrong())?
            }
            _ => return Err(wrong()),
        };
        let text = field.extension_type_metadata().unwrap_or("");
        let uniform = parse(text, ndim).ok_or_else(|| {
            Error::invalid(format!("{NAME}: the metadata {text:?} is not what its specification asks"))
        })?;
        Ok(Some(Self { data, shape, uniform }))
    }
}

/// The uniform extents that metadata gives; `None` where it is malformed.
fn parse(text: &str, ndim: usize) -> Option<Vec<Option<i64>>> {
    let metadata: Map<String, Value> = if text.is_empty() { Map::new() } else { serde_json::from_str(text).ok()? };
    let list = |key: &str| match metadata.get(key) {
        None | Some(Value::Null) => Some(None),
        Some(value) => value.as_array().filter(|list| list.len() == ndim).map(Some),
    };
    list("dim_names")?;
    if let Some(permutation) = list("permutation")? {
        let axes: Option<Vec<_>> = permutation.iter().map(|axis| usize::try_from(axis.as_u64()?).ok()).collect();
        let mut axes = axes?;
        axes.sort_unstable();
        if !axes.into_iter().eq(0..ndim) {
            return None;
        }
    }
    let Some(uniform) = list("uniform_shape")? else { return Some(Vec::new()) };
    let extent = |extent: &Value| match extent {
        Value::Null => Some(None),
        other => other.as_i64().filter(|extent| *extent >= 0).map(Some),
    };
    uniform.iter().map(extent).collect()
}

/// Checks that each row that is `shown` has as many elements as its shape says.
///
/// # Errors
/// Names the first row of which that is not true.
pub(super) fn check_rows(shapes: &Tensor, offsets: &Tensor, shown: impl Fn(usize) -> bool) -> Result<()> {
    let ndim = shapes.shape().get(1).map_or(0, |ndim| usize::try_from(*ndim).unwrap_or(0));
    let (shapes, offsets) = (shapes.peek::<i32>()?, offsets.peek::<i32>()?);
    for (row, ends) in offsets.windows(2).enumerate().filter(|(row, _)| shown(*row)) {
        let shape = shapes.get(row * ndim..(row + 1) * ndim).unwrap_or(&[]);
        let elements =
            shape.iter().try_fold(
                1_i64,
                |product, extent| {
                    if *extent < 0 { None } else { product.checked_mul(i64::from(*extent)) }
                },
            );
        let length = ends.iter().rev().copied().map(i64::from).reduce(|end, start| end - start);
        if elements.is_none() || elements != length {
            let reason = format!("the shape {shape:?} for a row of {} elements", length.unwrap_or(0));
            return Err(Error::invalid(reason).at_row(row));
        }
    }
    Ok(())
}

/// Checks the extents that the type says are those of every row.
///
/// # Errors
/// Names the first row that has others.
pub(super) fn check_uniform(shapes: &Tensor, uniform: &[Option<i64>], shown: impl Fn(usize) -> bool) -> Result<()> {
    if uniform.is_empty() {
        return Ok(());
    }
    for (row, shape) in shapes.peek::<i32>()?.chunks(uniform.len()).enumerate().filter(|(row, _)| shown(*row)) {
        let fits = shape.iter().zip(uniform).all(|(own, all)| all.is_none_or(|all| all == i64::from(*own)));
        if !fits {
            let reason = format!("the shape {shape:?}, and the type's uniform_shape is {uniform:?}");
            return Err(Error::invalid(reason).at_row(row));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_read_or_refused() {
        assert_eq!(parse("", 2), Some(vec![]));
        assert_eq!(parse("{}", 2), Some(vec![]));
        let full = r#"{"dim_names":["H","W"],"permutation":[1,0],"uniform_shape":[null,3]}"#;
        assert_eq!(parse(full, 2), Some(vec![None, Some(3)]));
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
