//! What a backend reads: the columns of one chunk, by themselves or as those of a matrix.

use crate::arrow::{DeviceArray, Leaf, Mask};
use crate::plan::ChunkSize;
use crate::spec::{Element, MatrixSpec, Nulls, Spec};

/// How many bytes Arrow recommends to pad buffers to
/// (<https://arrow.apache.org/docs/format/Columnar.html#buffer-alignment-and-padding>).
const PADDING: usize = 64;

/// Less than this may lie between the columns of a view: the smallest page of any system, so that gaps share pages with columns.
const PAGE: usize = 4096;

/// Returns how many bytes behind a column of so many are of its own allocation, if nothing else tells: its padding, or what allocators round
/// sizes up by, a quarter at most. A consumer that copies a tensor's whole span, as `torch.save` does, reads what lies between the
/// columns, too, and more could be other memory of the process.
fn slack(bytes: usize) -> usize {
    (bytes / 4).clamp(PADDING - 1, PAGE - 1)
}

/// A chunk of a column: where its elements are, which are null, and what keeps both alive. On a device, which are null is known
/// only where nulls are refused and the host has read it.
pub(crate) struct ColumnChunk<'a> {
    pub(crate) leaf: Leaf<'a>,
    pub(crate) mask: Option<Mask<'a>>,
    pub(crate) array: &'a DeviceArray,
}

impl ColumnChunk<'_> {
    /// Returns what a plan needs to know of the chunk.
    pub(crate) fn size(&self, spec: &Spec) -> ChunkSize {
        match self.array.readiness() {
            None => self.leaf.chunk(spec, self.mask.as_ref().map_or(0, Mask::nulls)),
            Some(_) => self.leaf.chunk_on_device(spec),
        }
    }

    /// Whether slots may be null, and hold any value. On a device nobody has checked.
    pub(crate) fn may_have_nulls(&self) -> bool {
        self.mask.is_some() || (self.array.readiness().is_some() && self.leaf.has_bitmaps())
    }

    /// Returns whether the bytes of an `arrow.bool8` chunk in host memory are all 0 or 1, as a tensor's bools must be.
    pub(super) fn are_bools(&self) -> bool {
        if self.leaf.elements == 0 {
            return true;
        }
        // SAFETY: the checked array has this many one-byte elements in host memory, alive while `self` is.
        let bytes = unsafe { std::slice::from_raw_parts(self.leaf.start(Element::Bool8), self.leaf.elements) };
        bytes.iter().fold(0, |all, byte| all | byte) <= 1
    }
}

/// A column of a matrix, over one chunk.
#[derive(Clone, Copy)]
pub(crate) struct PackedColumn<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) chunk: &'a ColumnChunk<'a>,
}

/// The columns of a matrix over one chunk, or over some of its rows.
pub(crate) struct MatrixColumns<'a> {
    /// The number of rows, which matrices without columns also have.
    pub(crate) rows: usize,
    /// The columns, in the order of the matrix.
    pub(crate) columns: Vec<ColumnChunk<'a>>,
    /// Whether every column is one of plain numbers without a bitmap.
    pub(crate) is_plain: bool,
}

impl MatrixColumns<'_> {
    /// Each column with its spec.
    pub(crate) fn packed<'a>(&'a self, spec: &'a MatrixSpec) -> Vec<PackedColumn<'a>> {
        spec.columns().iter().zip(&self.columns).map(|((_, spec), chunk)| PackedColumn { spec, chunk }).collect()
    }

    /// Returns the bytes from one column to the next, if the columns form a column-major matrix without changing an
    /// element. 0 for a single column.
    pub(crate) fn column_stride(&self, spec: &MatrixSpec) -> Option<usize> {
        let as_it_is = |column: &PackedColumn<'_>| {
            let PackedColumn { spec, chunk } = column;
            let as_stored = matches!(spec.element(), Element::Values(_) | Element::Pairs(_) | Element::Bool8);
            let may_be_null = match chunk.array.readiness() {
                None => chunk.mask.is_some(),
                Some(_) => chunk.leaf.chunk_on_device(spec).nulls != 0,
            };
            let fills = may_be_null && matches!(spec.nulls(), Nulls::Filled(_));
            as_stored && !spec.is_cast() && !fills
        };
        if spec.has_shapes() {
            return None;
        }
        let mut columns = spec
            .columns()
            .iter()
            .zip(&self.columns)
            .map(|((position, spec), chunk)| (*position, PackedColumn { spec, chunk }));
        let (mut behind, first) = columns.next().filter(|(_, first)| as_it_is(first))?;
        let size = spec.dtype().itemsize();
        let start_of = |column: &PackedColumn<'_>| column.chunk.leaf.start(column.spec.element()).addr();
        let is_decoded = |column: &PackedColumn<'_>| column.spec.decoded().is_some();
        if is_decoded(&first) || !start_of(&first).is_multiple_of(spec.dtype().alignment()) {
            return None;
        }
        let (mut before, mut stride) = (first, None);
        for (position, column) in columns {
            let (start, next) = (start_of(&before), start_of(&column));
            let step = next.checked_sub(start).filter(|step| step.is_multiple_of(size))?;
            let (leaf, element) = (&before.chunk.leaf, before.spec.element());
            let gap = leaf.known_end(element)..column.chunk.leaf.values.addr();
            let own = slack(gap.start.saturating_sub(leaf.values.addr()));
            let is_held = || gap.len() <= own || before.chunk.array.view().columns_hold(&gap, PADDING, behind);
            if step < self.rows.saturating_mul(size)
                || *stride.get_or_insert(step) != step
                || !as_it_is(&column)
                || is_decoded(&column)
                || !is_held()
            {
                return None;
            }
            (behind, before) = (position, column);
        }
        Some(stride.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::slack;
    use crate::alloc::{injected, page_size};

    #[test]
    fn no_gap_has_a_page_of_its_own() {
        for page in injected::SIZES.into_iter().chain([page_size()]) {
            for end in (0..2 * page).step_by(page / 16 - 1) {
                let next = end + slack(usize::MAX);
                assert!(end.next_multiple_of(page) + page > next, "{page} {end}");
            }
        }
    }
}
