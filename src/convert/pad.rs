//! Pads rows of different lengths: one pass from the source into a matrix and its validity.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::chunk::ColumnChunk;
use super::lane::Lane;
use super::misfit::Misfit;
use super::pack::Isa;
use crate::alloc::HostBuffer;
use crate::arrow::Mask;
use crate::dtype::{DType, Kind};
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::spec::{Dims, Nulls, Spec, row_major_strides, signed};
use crate::tensor::Tensor;

/// Writes a matrix row by row, with its validity.
pub(crate) struct Padder<'a> {
    spec: &'a Spec,
    /// Bytes of one element of the padding.
    padding: &'a [u8],
    /// The number of items in a padded row.
    length: usize,
    rows: usize,
    /// Whether the padding is in front of a row's items.
    is_left: bool,
    values: HostBuffer,
    valid: HostBuffer,
    written: usize,
}

/// The items of a chunk, whose ranges are the rows.
pub(crate) struct ListItems<'a> {
    spec: &'a Spec,
    lane: Lane<'a>,
    mask: Option<&'a Mask<'a>>,
    count: usize,
}

impl<'a> ListItems<'a> {
    /// # Errors
    /// If no cast to the spec's dtype exists.
    pub(crate) fn new(spec: &'a Spec, chunk: &'a ColumnChunk<'a>) -> Result<Self> {
        // Runs of valid elements and runs of nulls are written in turn, so the lane needs no bitmap.
        let lane = Lane::of(Isa::detect(), spec, &chunk.leaf, None).map_err(|misfit| misfit.error(spec, 0))?;
        let count = chunk.leaf.elements.checked_div(spec.row_elements()).unwrap_or(usize::MAX);
        Ok(Self { spec, lane, mask: chunk.mask.as_ref(), count })
    }
}

/// Why a row was not written.
enum PadRefusal {
    Null,
    Misfit(Misfit),
}

impl<'a> Padder<'a> {
    /// `is_left`: whether the padding is in front of a row's items, instead of after them.
    ///
    /// # Errors
    /// If the allocation fails.
    pub(crate) fn new(
        spec: &'a Spec,
        padding: &'a [u8],
        (rows, length): (usize, usize),
        is_left: bool,
    ) -> Result<Self> {
        let items = rows.checked_mul(length);
        let bytes =
            items.and_then(|items| items.checked_mul(spec.row_elements())?.checked_mul(spec.dtype().itemsize()));
        let (Some(items), Some(bytes)) = (items, bytes) else {
            return Err(Error::new(ErrorKind::Memory, "the padded result is larger than memory can be"));
        };
        let (values, valid) = (HostBuffer::uninitialised(bytes)?, HostBuffer::uninitialised(items)?);
        Ok(Self { spec, padding, length, rows, is_left, values, valid, written: 0 })
    }

    /// Writes the next row: a range of a chunk's items, as far as they exist and fit, and padding beside them. Without a range only
    /// padding.
    ///
    /// # Errors
    /// If an element is null and the policy refuses nulls, or a value does not fit the dtype.
    pub(crate) fn push(&mut self, items: &ListItems<'_>, row: Option<Range<usize>>) -> Result<()> {
        if !std::ptr::eq(self.spec, items.spec) {
            return Err(Error::internal("rows are padded by another spec than their items were made by"));
        }
        let (number, per_item) = (self.written, self.spec.row_elements());
        let row = row.unwrap_or(0..0);
        // Other libraries may have written to lent offsets since they were checked.
        let row = row.start.min(items.count)..row.end.min(items.count);
        let itemsize = self.spec.dtype().itemsize();
        let start = number * self.length;
        let valid = self.valid.as_uninit_mut().get_mut(start..start + self.length).unwrap_or(&mut []);
        let start = start * per_item * itemsize;
        let width = self.length * per_item * itemsize;
        let out = self.values.as_uninit_mut().get_mut(start..start + width).unwrap_or(&mut []);
        let shown = row.len().min(self.length);
        let first = if self.is_left { self.length - shown } else { shown };
        let (valid_left, valid_right) = valid.split_at_mut(first.min(valid.len()));
        let (out_left, out_right) = out.split_at_mut((first * per_item * itemsize).min(out.len()));
        let (valid, no_items, out, rest) = match self.is_left {
            true => (valid_right, valid_left, out_right, out_left),
            false => (valid_left, valid_right, out_left, out_right),
        };
        valid.fill(MaybeUninit::new(1));
        no_items.fill(MaybeUninit::new(0));
        repeat(self.padding, rest);
        self.written += 1;
        let first = row.start * per_item;
        // SAFETY: `row` was cut to the items that there are, so that there are `shown` from `row.start` on, which is what `out`
        // has room for in the spec's dtype, and the items have the same spec; `out` starts at an element of an aligned block.
        unsafe { write(self.spec, items, first, self.padding, out, valid) }.map_err(|refusal| match refusal {
            PadRefusal::Null => null_item(self.spec).at_row(number),
            PadRefusal::Misfit(misfit) => {
                Error::new(ErrorKind::Cast, format!("the value {} does not fit {}", misfit.value, self.spec.dtype()))
                    .at_row(number)
                    .remedy_is("ask for a dtype that holds it, or change the value first")
            }
        })
    }

    /// Returns the matrix, of shape (rows, length, *inner), and its validity, of shape (rows, length).
    ///
    /// # Errors
    /// If a row was not written.
    pub(crate) fn finish(self) -> Result<(Tensor, Tensor)> {
        if self.written != self.rows {
            return Err(Error::internal(format!("{} rows of {}", self.written, self.rows)));
        }
        let shape = Dims::from_slice(&[signed(self.rows)?, signed(self.length)?]);
        let strides = row_major_strides(&shape)?;
        let item = signed(self.spec.row_elements())?;
        let inner = |outer: &Dims, own: &[i64]| outer.iter().chain(own).copied().collect::<Dims>();
        let scaled: Dims = strides.iter().map(|stride| stride.saturating_mul(item)).collect();
        let (inner_shape, inner_strides) =
            (inner(&shape, self.spec.inner_shape()), inner(&scaled, self.spec.inner_strides()));
        // SAFETY: `push` wrote every element of each row in the spec's dtype, and all rows were pushed.
        let values =
            unsafe { Tensor::from_host_buffer(self.values, self.spec.dtype(), inner_shape, inner_strides, None) }?;
        // SAFETY: `push` wrote a 0 or a 1 for every item.
        let valid = unsafe { Tensor::from_host_buffer(self.valid, DType::Bool, shape, strides, None) }?;
        Ok((values, valid))
    }
}

/// Returns the error for a null element that the policy refuses.
pub(crate) fn null_item(spec: &Spec) -> Error {
    let is_float = spec.dtype().kind() == Kind::Float;
    let remedy = if is_float { Remedy::NanFillOrKeep } else { Remedy::FillOrKeep };
    Error::new(ErrorKind::Null, "a null element").remedy_is(remedy)
}

/// Writes the elements from `first` on, and clears `valid` where an item has a null.
///
/// # Safety
/// The items have `spec`, and as many elements from `first` on as `out` has room for; `out` starts at an element of an aligned
/// block.
unsafe fn write(
    spec: &Spec,
    items: &ListItems<'_>,
    first: usize,
    padding: &[u8],
    out: &mut [MaybeUninit<u8>],
    valid: &mut [MaybeUninit<u8>],
) -> Result<(), PadRefusal> {
    let Some(mask) = items.mask else {
        // SAFETY: the caller promises as many elements from `first` on as `out` has room for, and that `out` is aligned; `out` is
        // fresh memory, apart from the chunk; `ListItems::new` chose the detected instruction set.
        return unsafe { items.lane.write(first, out) }.map_err(PadRefusal::Misfit);
    };
    let itemsize = spec.dtype().itemsize();
    let elements = out.len() / itemsize.max(1);
    let pattern = match spec.nulls() {
        Nulls::Filled(pattern) => Some(pattern),
        Nulls::Refused | Nulls::Kept => None,
    };
    let filling = pattern.as_ref().map_or(padding, |pattern| pattern.bytes());
    let mut at = 0;
    while at < elements {
        let is_valid = mask.is_valid(first + at);
        let end = (at + 1..elements).find(|next| mask.is_valid(first + next) != is_valid).unwrap_or(elements);
        let slots = out.get_mut(at * itemsize..end * itemsize).unwrap_or(&mut []);
        if is_valid {
            // SAFETY: `slots` is the part of `out` for the elements `at..end`, all of which the items have, as the caller
            // promises; it is aligned and fresh, as all of `out` is; `ListItems::new` chose the detected instruction set.
            unsafe { items.lane.write(first + at, slots) }.map_err(PadRefusal::Misfit)?;
        } else {
            if spec.nulls() == Nulls::Refused {
                return Err(PadRefusal::Null);
            }
            repeat(filling, slots);
            let per_item = spec.row_elements().max(1);
            let items = at / per_item..end.div_ceil(per_item);
            valid.get_mut(items).unwrap_or(&mut []).fill(MaybeUninit::new(0));
        }
        at = end;
    }
    Ok(())
}

/// Fills memory with a repeated pattern.
fn repeat(pattern: &[u8], out: &mut [MaybeUninit<u8>]) {
    if let Some((first, true)) =
        pattern.split_first().map(|(first, rest)| (first, rest.iter().all(|byte| byte == first)))
    {
        out.fill(MaybeUninit::new(*first));
        return;
    }
    match pattern.len() {
        2 => repeat_wide::<2>(pattern, out),
        4 => repeat_wide::<4>(pattern, out),
        8 => repeat_wide::<8>(pattern, out),
        _ => repeat_wide::<16>(pattern, out),
    }
}

fn repeat_wide<const N: usize>(pattern: &[u8], out: &mut [MaybeUninit<u8>]) {
    if let Some(pattern) = pattern.first_chunk::<N>() {
        out.as_chunks_mut::<N>().0.fill(pattern.map(MaybeUninit::new));
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Int16Array;

    use super::*;
    use crate::column::ColumnRef;
    use crate::spec::Options;

    #[test]
    fn a_row_that_leads_out_of_the_chunk_is_padding_there() {
        let values = Int16Array::from(vec![1, 2, 3]);
        let field = std::sync::Arc::new(arrow_schema::Field::new("x", arrow_schema::DataType::Int16, true));
        let items = crate::arrow::DeviceArray::from_arrow(&values, field.clone()).unwrap();
        for options in [Options::default(), Options::default().dtype(DType::Float32)] {
            let spec = Spec::new(&field, &options).unwrap();
            let chunk = ColumnRef::whole(&items).chunk(&spec).unwrap();
            let padding = 7_f32.to_ne_bytes();
            let padding = if spec.is_cast() { &padding[..] } else { &[7, 0] };
            let items = ListItems::new(&spec, &chunk).unwrap();
            let mut padder = Padder::new(&spec, padding, (4, 2), false).unwrap();
            for (start, end) in [(1, 1000), (3, 4), (1 << 40, (1 << 40) + 2), (2, 1)] {
                padder.push(&items, Some(start..end)).unwrap();
            }
            let (matrix, valid) = padder.finish().unwrap();
            let found: Vec<f32> = match spec.is_cast() {
                true => matrix.as_slice::<f32>().unwrap().to_vec(),
                false => matrix.as_slice::<i16>().unwrap().iter().map(|value| f32::from(*value)).collect(),
            };
            assert_eq!(found, [2.0, 3.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0]);
            assert_eq!(valid.as_bytes().unwrap(), [1, 1, 0, 0, 0, 0, 0, 0]);
        }
    }

    #[test]
    fn rows_of_another_spec_and_missing_rows_are_errors() {
        let field = std::sync::Arc::new(arrow_schema::Field::new("x", arrow_schema::DataType::Int16, true));
        let items = crate::arrow::DeviceArray::from_arrow(&Int16Array::from(vec![1, 2, 3]), field.clone()).unwrap();
        let [spec, other] = [(), ()].map(|()| Spec::new(&field, &Options::default()).unwrap());
        let chunk = ColumnRef::whole(&items).chunk(&spec).unwrap();
        for (rows, is_whole) in [(1, true), (2, false)] {
            let mut padder = Padder::new(&spec, &[7, 0], (rows, 2), false).unwrap();
            assert!(padder.push(&ListItems::new(&other, &chunk).unwrap(), Some(0..1)).is_err());
            padder.push(&ListItems::new(&spec, &chunk).unwrap(), Some(0..1)).unwrap();
            assert_eq!(padder.finish().is_ok(), is_whole, "one row of {rows}");
        }
    }
}
