//! Specs: what a conversion returns, from the type and the options alone.
//!
//! Dtype and inner shape never depend on data: a batch without nulls has the dtype of the next batch with nulls.
//! Requests that no data could satisfy fail here.

mod column;
#[cfg(any(test, feature = "python"))]
mod columns_read;
mod conversion;
mod fixed_shape_tensor;
mod float8;
mod group;
mod list_lengths;
mod matrix;
mod no_tensor;
mod nulls;
mod objects;
mod options;
mod pad;
mod pandas;
mod paths;
mod per_column;
mod possible;
mod possible_matrix;
mod promotion;
mod result;
mod results_of_group;
mod round;
mod row_shape;
mod select;
mod selection;
mod setters;
mod strides;
mod temporal;
mod tensor;
mod value;
mod variable_shape;

pub(crate) use column::{Spec, encoding};
pub use conversion::Conversion;
#[cfg(feature = "python")]
pub(crate) use conversion::forget_matrix;
pub(crate) use conversion::is_struct;
pub(crate) use fixed_shape_tensor::FixedShapeTensor;
pub use group::Group;
pub(crate) use group::GroupForm;
pub(crate) use list_lengths::{is_list, item_of_lists};
pub(crate) use matrix::MatrixOptions;
pub(crate) use matrix::MatrixSpec;
pub use matrix::MemoryOrder;
pub(crate) use no_tensor::{is_of_structs, is_text, is_utf8, remedy_of_fixed_lists, remedy_of_items};
pub use nulls::{NullPolicy, Scalar};
pub(crate) use nulls::{Nulls, Pattern};
pub(crate) use objects::require_values;
#[cfg(feature = "python")]
pub(crate) use objects::{may_be_objects, require_values_of_all, with_objects};
pub(crate) use options::{ColumnOption, Options};
pub use options::{CopyMode, DecimalMode, DictionaryMode};
pub use pad::{Pad, Side};
pub use pandas::PandasIndex;
#[cfg(feature = "python")]
pub(crate) use pandas::lists_index;
pub(crate) use paths::PathColumns;
#[cfg(feature = "python")]
pub(crate) use paths::forget_paths;
pub use per_column::PerColumn;
pub(crate) use possible::{
    ABOVE_1, APART, CHUNKS, DICTIONARIES, JOINED, NULLS, NULLS_READ, PRIVATE, PossibleStep, UNPACKED, Undecided,
    casting, forbids_null_elements, may_be_null, unless_one_chunk,
};
pub(crate) use possible_matrix::packing;
pub(crate) use result::{ResultKind, ResultSpec};
pub(crate) use round::odd_single;
pub(crate) use row_shape::require_row_major;
pub(crate) use select::{Positions, all_or_errors, require_columns, select};
pub use selection::Selection;
pub(crate) use setters::setters;
pub(crate) use strides::{Dims, row_major_strides, signed};
pub(crate) use tensor::TensorField;
pub(crate) use value::BOOL8;
#[cfg(feature = "python")]
pub(crate) use value::dictionary_values;
pub(crate) use value::{Element, has_codes};
pub(crate) use variable_shape::VariableShape;
