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

/// Returns whether rows may have any dictionary: theirs is empty, and none of their elements is a code.
pub(crate) fn has_no_element_codes(data: &ArrayData) -> bool {
    let Some(child) = data.child_data().get(elements_of(data.data_type())) else { return false };
    match data.data_type() {
        DataType::Dictionary(_, _) => child.is_empty() && data.null_count() == data.len(),
        _ => has_no_element_codes(child),
    }
}

/// Returns the array with this dictionary for its elements, which has the same values as theirs, or takes the place of an empty one.
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
    // SAFETY: the child has the type of the one in its place. It has the same values, or each code that leads to it is null.
    Ok(unsafe { data.into_builder().child_data(children).build_unchecked() })
}
