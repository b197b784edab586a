//! Lists of one length on a device: fixed-size lists over the same items, once the host knows that the lists follow each other.

use std::ops::Range;

use super::chunk_ref::ColumnRef;
use crate::arrow::{DeviceArray, ListPlaces, list_size};
use crate::convert::refused_null;
use crate::dtype::DType;
use crate::error::{Error, Remedy, Result};
use crate::kernels::{Measured, PaddedRows, measure};
use crate::plan::needs_copy;
use crate::spec::{Nulls, Spec};
use crate::stream_order::{self, Readiness};
use crate::transfer::{HostRead, is_read_in_place, read_to_host};

/// A chunk of a column of lists on a device.
pub(crate) struct DeviceLists<'a> {
    pub(crate) array: DeviceArray,
    pub(crate) spec: &'a Spec,
    /// The number of its first row, for messages.
    pub(crate) first_row: usize,
}

/// A chunk with the length of its lists, and where their offsets are.
struct PlacedLists<'a> {
    lists: &'a DeviceLists<'a>,
    length: usize,
    places: ListPlaces,
}

/// Returns the lists of each chunk, of one length, as fixed-size lists over the same items. A kernel measures lists by their offsets, with one
/// wait of the host for all of these chunks. With one more, the host reads offsets, sizes and bitmaps of list views, and of lists where the
/// kernel finds others.
///
/// # Errors
/// For a list of another length: names the column and the row. Where lists do not follow each other, which nothing on a device gathers: for a
/// null that is refused, or for that.
pub(crate) fn dense_on_device(lists: &[DeviceLists<'_>]) -> Result<Vec<DeviceArray>> {
    let placed = lists.iter().map(|lists| PlacedLists::new(lists).map_err(|error| lists.error(error)));
    let placed = placed.collect::<Result<Vec<_>>>()?;
    let readiness = DeviceArray::joined_readiness(lists.iter().map(|lists| &lists.array))?;
    let mut dense = match &readiness {
        Some(readiness) => measured(readiness, &placed)?,
        None => placed.iter().map(|_| None).collect(),
    };
    let unknown = placed.iter().zip(&dense).filter(|(_, dense)| dense.is_none());
    let ranges: Vec<_> = unknown.flat_map(|(chunk, _)| chunk.places.ranges()).collect();
    let host_read = readiness.map_or_else(|| Ok(HostRead::default()), |readiness| read_to_host(&readiness, &ranges))?;
    let mut refused: Option<Error> = None;
    for (chunk, dense) in placed.iter().zip(&mut dense).filter(|(_, dense)| dense.is_none()) {
        let read = match chunk.read(&host_read) {
            // What is wrong with no row, such as the driver, is told at once.
            Err(error) if error.row().is_none() => return Err(error),
            read => read.and_then(|read| read),
        };
        match read {
            Ok(made) => *dense = Some(made),
            // The lowest row, in whatever chunk, comes first, as on the host.
            Err(error) => {
                let comes_first = |refused: &Error| refused.row().is_some() || error.row().is_none();
                refused = Some(refused.filter(comes_first).unwrap_or(error));
            }
        }
    }
    refused.map_or_else(|| Ok(dense.into_iter().flatten().collect()), Err)
}

/// Refuses chunks of a column of lists as [`dense_on_device`] does before anything is read.
///
/// # Errors
/// If bitmaps of structs would have to be joined with those of the lists: names the column.
pub(crate) fn check_lists_on_device(spec: &Spec, columns: &[ColumnRef<'_>]) -> Result<()> {
    columns.iter().try_for_each(|column| {
        let checked = column.whole_array().and_then(|array| array.list_places().map(drop));
        checked.map_err(|error| error.in_column(spec.field().name()))
    })
}

/// Returns the chunks whose lists a kernel finds to have one length and to follow each other.
fn measured(readiness: &Readiness, chunks: &[PlacedLists<'_>]) -> Result<Vec<Option<DeviceArray>>> {
    // The host reads what it may read in place, and what is on a device that can load no kernels.
    let has_kernel = !is_read_in_place(readiness.device())?
        && stream_order::load_kernels(&stream_order::enter(readiness.device())?).is_ok();
    let rows = chunks.iter().map(|chunk| if has_kernel { chunk.rows() } else { Ok(None) });
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let known: Vec<_> = rows.iter().flatten().cloned().collect();
    let mut measured = measure(readiness, &known, (None, true))?.into_iter();
    let dense = |(chunk, rows): (&PlacedLists<'_>, &Option<PaddedRows>)| {
        let found = rows.as_ref().and_then(|_| measured.next());
        found.and_then(|found| chunk.first_item(&found)).map_or(Ok(None), |first| chunk.dense((first, None)))
    };
    chunks.iter().zip(&rows).map(dense).collect()
}

impl DeviceLists<'_> {
    fn error(&self, error: Error) -> Error {
        error.behind(self.first_row).in_column(self.spec.field().name())
    }
}

impl<'a> PlacedLists<'a> {
    fn new(lists: &'a DeviceLists<'a>) -> Result<Self> {
        let length = lists.spec.decoded().and_then(list_size);
        let length = length.ok_or_else(|| Error::internal("lists that are not of one length"))?;
        Ok(Self { lists, length, places: lists.array.list_places()? })
    }

    /// The lists as rows that a kernel measures, the null ones like the others; `None` of list views, which come in any order, and of no rows.
    fn rows(&self) -> Result<Option<PaddedRows>> {
        let (array, offsets) = (&self.lists.array, self.places.offsets);
        if self.places.lengths.is_some() || array.is_empty() {
            return Ok(None);
        }
        let (is_wide, items) = (offsets.dtype() == DType::Int64, array.device_items_len()?);
        Ok(Some(PaddedRows {
            count: array.len(),
            offsets: offsets.bytes(),
            lengths: None,
            is_wide,
            validity: None,
            items,
        }))
    }

    /// Returns the first item, if the lists have one length: none is longer, and together they have as many items as if none were shorter.
    fn first_item(&self, found: &Measured) -> Option<usize> {
        let items = self.lists.array.len().checked_mul(self.length)?;
        let is_dense = found.outside.is_none()
            && found.longest <= self.length
            && found.start.checked_add(items) == Some(found.end);
        is_dense.then_some(found.start)
    }

    /// The error of a list of another length, or that of a null list in a lower row, which is refused.
    fn lowest_error<'r>(&self, error: Error, read: &'r dyn Fn(Range<usize>) -> Result<&'r [u8]>) -> Error {
        let (Some(row), Nulls::Refused) = (error.row(), self.lists.spec.nulls()) else { return error };
        let before = self.lists.array.clipped(&(0..row));
        let found = before.list_places().and_then(|places| before.read_first_item(self.length, &places, read));
        let null = found.ok().and_then(|found| found.first_null);
        null.map_or(error, |null| refused_null(self.lists.spec, null.saturating_mul(self.lists.spec.row_elements())))
    }

    /// Finds the first item by the offsets on the host; `Err` inside: why nothing makes fixed-size lists of the lists, all of which have the
    /// right length.
    fn read(&self, host_read: &HostRead) -> Result<Result<DeviceArray>> {
        let (array, spec) = (&self.lists.array, self.lists.spec);
        let read = |range: Range<usize>| match range.is_empty() {
            true => Ok(&[][..]),
            false => host_read.require(range.start, range.len()),
        };
        let found = array.read_first_item(self.length, &self.places, &read);
        let found = found.map_err(|error| self.lists.error(self.lowest_error(error, &read)))?;
        let dense = found.first.map_or(Ok(None), |first| self.dense((first, Some(found.nulls))))?;
        Ok(dense.ok_or_else(|| {
            let (gathered, shifted) =
                ("lists that do not follow each other gathered", "the bitmap of null lists moved by some bits");
            let error = match (found.first_null.filter(|_| spec.nulls() == Nulls::Refused), found.first) {
                (Some(row), _) => refused_null(spec, row.saturating_mul(spec.row_elements())),
                (None, None) => needs_copy(array.device(), gathered).remedy_is(Remedy::PaddedOrCopyToHost),
                (None, Some(_)) => needs_copy(array.device(), shifted).remedy_is(Remedy::PaddedOrCopyToHost),
            };
            self.lists.error(error)
        }))
    }

    /// The lists from this item on, of which so many are null, as [`DeviceArray::dense_lists_on_device`] returns them.
    fn dense(&self, place: (usize, Option<usize>)) -> Result<Option<DeviceArray>> {
        let field = self.lists.spec.decoded().ok_or_else(|| Error::internal("lists that are not of one length"))?;
        let made = self.lists.array.dense_lists_on_device(field, &self.places, place);
        made.map_err(|error| self.lists.error(error))
    }
}
