//! Lists of one length on a device: fixed-size lists over the same items, once the host knows that the lists follow each other.

use std::ops::Range;

use crate::arrow::{DeviceArray, ListPlaces, list_size};
use crate::dtype::DType;
use crate::error::{Error, Remedy, Result};
use crate::kernels::{Measured, PaddedRows, measure};
use crate::plan::needs_copy;
use crate::spec::Spec;
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
/// wait of the host for all chunks; the host reads those of list views, and all where the kernel finds others.
///
/// # Errors
/// For a list of another length, and where lists do not follow each other, which nothing on a device gathers: names the column and the row.
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
    for (chunk, dense) in placed.iter().zip(&mut dense).filter(|(_, dense)| dense.is_none()) {
        *dense = Some(chunk.read(&host_read)?);
    }
    Ok(dense.into_iter().flatten().collect())
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

    /// Finds the first item by the offsets on the host.
    fn read(&self, host_read: &HostRead) -> Result<DeviceArray> {
        let read = |range: Range<usize>| match range.is_empty() {
            true => Ok(&[][..]),
            false => host_read.require(range.start, range.len()),
        };
        let (first, nulls) = self
            .lists
            .array
            .read_first_item(self.length, &self.places, &read)
            .map_err(|error| self.lists.error(error))?;
        let dense = first.map_or(Ok(None), |first| self.dense((first, Some(nulls))))?;
        dense.ok_or_else(|| {
            let error = needs_copy(self.lists.array.device(), "lists that do not follow each other gathered");
            self.lists.error(error.remedy_is(Remedy::PaddedOrCopyToHost))
        })
    }

    /// The lists from this item on, of which so many are null, as [`DeviceArray::dense_lists_on_device`] returns them.
    fn dense(&self, place: (usize, Option<usize>)) -> Result<Option<DeviceArray>> {
        let field = self.lists.spec.decoded().ok_or_else(|| Error::internal("lists that are not of one length"))?;
        let made = self.lists.array.dense_lists_on_device(field, &self.places, place);
        made.map_err(|error| self.lists.error(error))
    }
}
