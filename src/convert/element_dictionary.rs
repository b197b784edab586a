//! The dictionary of the elements of lists, under as many lists as there are.

use arrow_data::ArrayData;
use arrow_schema::DataType;

use crate::alloc::fallible;
use crate::error::Result;

/// Which child leads to the elements of rows: of runs their values, of `arrow.variable_shape_tensor` the data.
fn elements_of(data_type: &DataType) -> usize {
    usize::from(matches!(data_type, DataType::RunEndEncoded(_, _)))
}

/// Returns the dictionary of the elements of rows; `None` if they have none.
pub(crate) fn element_dictionary(data: &ArrayData) -> Option<&ArrayData> {
    let child = data.child_data().get(elements_of(data.data_type()))?;
    match data.data_type() {
        DataType::Dictionary(_, _) => Some(child),
        _ => element_dictionary(child),
    }
}

/// Returns the array with this dictionary for its elements, which has the same values as theirs.
///
/// # Errors
/// If an allocation fails.
pub(crate) fn with_element_dictionary(data: ArrayData, values: &ArrayData) -> Result<ArrayData> {
    let mut children = fallible::copied(data.child_data())?;
    if let Some(child) = children.get_mut(elements_of(data.data_type())) {
        *child = match data.data_type() {
            DataType::Dictionary(_, _) => values.clone(),
            _ => with_element_dictionary(child.clone(), values)?,
        };
    }
    // SAFETY: a child of the same type, length and values.
    Ok(unsafe { data.into_builder().child_data(children).build_unchecked() })
}
