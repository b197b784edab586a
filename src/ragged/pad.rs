//! Pads lists and strings to rows of one length.

use arrow_schema::{DataType, FieldRef};

use super::convert::{item_field, parts, unsupported};
use super::level::{RaggedPart, null_row};
use super::variable_shape;
use crate::arrow::{DeviceArray, Leaf};
use crate::column::ColumnRef;
use crate::convert::{ColumnChunk, Items, Padder, decode};
use crate::copy_log::{self, Copied};
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::plan::Action;
use crate::spec::{CopyMode, NullPolicy, Options, Pattern, Scalar, Spec};
use crate::tensor::Tensor;

/// How rows are padded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pad {
    /// What stands where there is no element, in the result's dtype as a fill of nulls is.
    pub value: Scalar,
    /// The length of every row; `None` is that of the longest one.
    pub length: Option<usize>,
}

/// Converts an array of lists or strings into a matrix of shape (rows, length, *inner), padded at the end of each row, and
/// a bool for each of its items, of shape (rows, length), true where a valid row has a valid element. One pass.
///
/// Null rows are an error, or all padding where null elements are kept (they are padding then) or filled.
///
/// # Errors
/// When a row is longer than `pad.length`, lists are nested, a copy is not allowed, or as [`super::to_ragged`].
///
/// ```
/// use arrow_array::{Array, StringArray};
/// use arrow_dlpack::{DeviceArray, Options, Pad, Scalar, to_padded};
/// use arrow_schema::{DataType, Field};
///
/// let text = StringArray::from(vec!["to", "be"]);
/// let array = DeviceArray::from_arrow(&text, Field::new("x", DataType::Utf8, true).into())?;
/// let pad = Pad { value: Scalar::Int(0), length: Some(3) };
/// let (matrix, validity) = to_padded(&array, pad, &Options::default())?;
/// assert_eq!(matrix.as_slice::<u8>()?, b"to\0be\0");
/// assert_eq!(validity.shape(), [2, 3]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn to_padded(array: &DeviceArray, pad: Pad, options: &Options) -> Result<(Tensor, Tensor)> {
    chunks_to_padded(array.field(), std::slice::from_ref(array), pad, options)
}

/// As [`to_padded`], for the chunks of a column.
///
/// # Errors
/// As [`to_padded`].
pub fn chunks_to_padded(
    field: &FieldRef,
    chunks: &[DeviceArray],
    pad: Pad,
    options: &Options,
) -> Result<(Tensor, Tensor)> {
    padded(field, chunks, pad, options).map_err(|error| error.in_column(field.name()))
}

/// What an item of a padded row becomes, and the padding.
///
/// # Errors
/// What no data could make possible.
pub(super) fn item_spec(field: &FieldRef, pad: Pad, options: &Options) -> Result<(Spec, Pattern)> {
    if field.extension_type_name() == Some(variable_shape::NAME) {
        return Err(Error::unsupported(format!("rows of {} cannot be padded: each has a shape", variable_shape::NAME))
            .remedy_is("convert them without pad, or pass the field data of their storage"));
    }
    let item = item_field(field).ok_or_else(|| unsupported(field.data_type()))?;
    if item_field(&item).is_some() {
        return Err(Error::unsupported(format!("nested lists ({}) cannot be padded", field.data_type()))
            .remedy_is("convert them without pad, or flatten one level first"));
    }
    let spec = Spec::new(&item, options)?;
    let padding = Pattern::of(pad.value, spec.dtype())?;
    Ok((spec, padding))
}

fn padded(field: &FieldRef, chunks: &[DeviceArray], pad: Pad, options: &Options) -> Result<(Tensor, Tensor)> {
    let (spec, padding) = item_spec(field, pad, options)?;
    let parts = parts(field, chunks)?;
    let sources = parts.iter().map(|part| PadSource::new(part, &spec)).collect::<Result<Vec<_>>>()?;
    let (mut rows, mut longest) = (0, 0);
    for source in &sources {
        for row in 0..source.rows() {
            let at_row = |error: Error| error.at_row(rows + row);
            match source.length(row).map_err(at_row)? {
                None if options.nulls == NullPolicy::Error => return Err(null_row(rows + row)),
                Some(length) if pad.length.is_some_and(|most| length > most) => {
                    let most = pad.length.unwrap_or(0);
                    return Err(at_row(Error::argument(format!(
                        "the row has {length} elements, and is padded to {most}"
                    )))
                    .remedy_is(format!("pass a length of {length} or more, or None for that of the longest row")));
                }
                length => longest = longest.max(length.unwrap_or(0)),
            }
        }
        rows += source.rows();
    }
    let length = pad.length.unwrap_or(longest);
    account(field, &spec, rows, length, options)?;
    let mut padder = Padder::new(&spec, padding.bytes(), rows, length)?;
    for source in &sources {
        source.write(&mut padder)?;
    }
    padder.finish()
}

/// Puts the copy on the record, where one is allowed.
fn account(field: &FieldRef, spec: &Spec, rows: usize, length: usize, options: &Options) -> Result<()> {
    let items = rows.saturating_mul(length);
    let bytes = Padder::bytes_of(spec, items).unwrap_or(usize::MAX).saturating_add(items);
    let cast = if spec.is_cast() {
        format!(", cast from {} to {}", spec.element().dtype(), spec.dtype())
    } else {
        String::new()
    };
    let why = format!("rows padded to {length} elements{cast}");
    if bytes > 0 && options.copy == CopyMode::Never {
        return Err(Error::new(ErrorKind::Copy, format!("a copy of {bytes} bytes is needed ({why})"))
            .remedy_is(Remedy::AllowCopyOrNoPad));
    }
    if bytes > 0 {
        let what = || format!("column {:?}: {rows} rows of {}", field.name(), field.data_type());
        copy_log::record(|| Copied { what: what(), why, bytes });
    }
    Ok(())
}

/// Where the rows of a chunk are.
enum PadSource<'a> {
    Lists { list: crate::arrow::ListChunk<'a>, spec: &'a Spec },
    Views { views: crate::arrow::ViewChunk<'a>, array: &'a DeviceArray, spec: &'a Spec },
}

impl<'a> PadSource<'a> {
    fn new(part: &'a RaggedPart, spec: &'a Spec) -> Result<Self> {
        Ok(match part.array.field().data_type() {
            DataType::Utf8View | DataType::BinaryView => {
                Self::Views { views: part.array.views()?, array: &part.array, spec }
            }
            _ => Self::Lists { list: part.array.lists()?, spec },
        })
    }

    fn rows(&self) -> usize {
        match self {
            Self::Lists { list, .. } => list.rows,
            Self::Views { views, .. } => views.rows(),
        }
    }

    /// The length of a row, if it is not null.
    fn length(&self, row: usize) -> Result<Option<usize>> {
        match self {
            Self::Lists { list, .. } => Ok((!list.is_null(row)).then(|| list.row(row).len())),
            // Inside the buffers, or nothing is allocated by it.
            Self::Views { views, .. } => Ok(views.bytes(row)?.map(<[u8]>::len)),
        }
    }

    fn write(&self, padder: &mut Padder<'_>) -> Result<()> {
        match self {
            Self::Lists { list, spec } => {
                let span = list.span();
                let (array, first) = match spec.decoded() {
                    Some(field) => (decoded(&list.items.slice(&span), field, spec)?, span.start),
                    None => (list.items.clone(), 0),
                };
                let chunk = ColumnRef::whole(&array).chunk(spec)?;
                let items = Items::new(spec, &chunk)?;
                (0..list.rows).try_for_each(|row| {
                    let row = (!list.is_null(row)).then(|| list.row(row));
                    padder.push(&items, row.map(|row| row.start.saturating_sub(first)..row.end.saturating_sub(first)))
                })
            }
            Self::Views { views, array, spec } => (0..views.rows()).try_for_each(|row| {
                let bytes = views.bytes(row)?;
                let chunk = ColumnChunk { leaf: Leaf::of_bytes(bytes.unwrap_or(&[])), mask: None, array };
                padder.push(&Items::new(spec, &chunk)?, bytes.map(|bytes| 0..bytes.len()))
            }),
        }
    }
}

/// Items with their runs, or their dictionary's values, written out.
fn decoded(items: &DeviceArray, field: &FieldRef, spec: &Spec) -> Result<DeviceArray> {
    let array = decode(items, field)?;
    copy_log::record(|| Copied {
        what: format!("column {:?}: {} elements of {}", field.name(), items.len(), items.field().data_type()),
        why: Action::Decode.to_string(),
        bytes: items.len().saturating_mul(spec.row_elements()).saturating_mul(spec.element().stored_size()),
    });
    Ok(array)
}
