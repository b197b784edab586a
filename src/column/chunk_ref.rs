//! [`ColumnRef`]: a chunk of a column, an array by itself or one column of an array of structs.

use arrow_schema::FieldRef;
use smallvec::{SmallVec, smallvec};

use super::host_reads::refuse_known;
use crate::arrow::{DeviceArray, Leaf, Validated};
use crate::convert::{self, ColumnChunk};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::ChunkSize;
use crate::spec::Spec;
use crate::stream_order::Readiness;

/// A chunk of a column: an array, or one column of an array of structs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnRef<'a> {
    pub(super) array: &'a DeviceArray,
    pub(super) column: Option<usize>,
    /// As [`ChunkSize::continues`].
    pub(super) continues: bool,
}

impl<'a> ColumnRef<'a> {
    /// The array itself.
    pub(crate) fn whole(array: &'a DeviceArray) -> Self {
        Self { array, column: None, continues: false }
    }

    /// One column of an array of structs.
    pub(crate) fn column(array: &'a DeviceArray, index: usize) -> Self {
        Self { array, column: Some(index), continues: false }
    }

    /// The column at this position of an array of structs, or the array itself.
    pub(crate) fn of(array: &'a DeviceArray, column: Option<usize>) -> Self {
        Self { array, column, continues: false }
    }

    /// Returns the rows and what comes before them, for a plan that knows no more of the chunk.
    pub(super) fn uncounted(&self) -> ChunkSize {
        ChunkSize { continues: self.continues, ..ChunkSize::without_nulls(self.rows()) }
    }

    /// Where the column's elements are.
    pub(crate) fn leaf(&self, spec: &Spec) -> Result<Leaf<'a>> {
        let view = self.array.view();
        match self.column {
            None => view.leaf(spec),
            Some(index) => view.struct_field(index)?.leaf(spec),
        }
    }

    /// The chunk: of host memory with its nulls, of a device without a look at its memory.
    // Inlined, as the chunk is too large to be handed on without a copy of it.
    #[inline(always)]
    pub(crate) fn chunk(&self, spec: &Spec) -> Result<ColumnChunk<'a>> {
        let leaf = self.leaf(spec)?;
        let mask = match self.array.readiness() {
            None => leaf.logical_mask(self.array),
            Some(_) => Ok(None),
        };
        Ok(ColumnChunk { mask: mask.map_err(|error| error.in_column(spec.field().name()))?, leaf, array: self.array })
    }

    pub(crate) fn rows(&self) -> usize {
        self.array.len()
    }

    /// The lists of the column as fixed-size lists over the same items; `None` if their items do not follow each other.
    pub(crate) fn dense(&self, spec: &Spec) -> Result<Option<DeviceArray>> {
        require_host(self.array.device(), spec.field().name())?;
        convert::dense(&self.whole_array()?, spec)
    }

    /// The column as an array.
    pub(crate) fn whole_array(&self) -> Result<DeviceArray> {
        self.column.map_or_else(|| Ok(self.array.clone()), |index| self.array.column(index))
    }

    /// Returns the column with its runs, its dictionary's values or its lists written out, always in memory of its own: `explain` and the
    /// copy log count these bytes, even if another thread has meanwhile changed the offsets so that the lists follow each other.
    pub(crate) fn decode(&self, spec: &Spec, field: &FieldRef, known: &Validated) -> Result<DeviceArray> {
        require_host(self.array.device(), spec.field().name())?;
        convert::decode_apart(&self.whole_array()?, spec, field, known)
    }
}

/// The chunks as columns.
pub(crate) fn columns(chunks: &[DeviceArray]) -> SmallVec<[ColumnRef<'_>; 1]> {
    match chunks {
        [only] => smallvec![ColumnRef::whole(only)],
        _ => chunks.iter().map(ColumnRef::whole).collect(),
    }
}

/// As [`columns`], where null rows divide chunks: `continues` is [`ChunkSize::continues`] of each.
pub(crate) fn columns_of_pieces<'a>(chunks: &'a [DeviceArray], continues: &[bool]) -> SmallVec<[ColumnRef<'a>; 1]> {
    let mut columns = columns(chunks);
    columns.iter_mut().zip(continues).for_each(|(column, continues)| column.continues = *continues);
    columns
}

/// As [`DeviceArray::readiness_of`].
pub(crate) fn readiness_of<'a>(chunks: &[ColumnRef<'a>]) -> Option<&'a Readiness> {
    DeviceArray::readiness_of(chunks.iter().map(|chunk| chunk.array))
}

/// As [`refuse_known`], of a whole array, or of the column of a struct's. What has to be decoded has not counted them.
pub(crate) fn refuse_counted(spec: &Spec, column: &ColumnRef<'_>) -> Result<()> {
    if spec.decoded().is_some() {
        return Ok(());
    }
    refuse_known(spec, column.leaf(spec)?.known_nulls())
}

/// Refuses memory that is not the host's.
pub(crate) fn require_host(device: Device, column: &str) -> Result<()> {
    if device.is_cpu() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Device, format!("the data is on {device}, where this build makes no such conversion"))
        .remedy_is(device.host_remedy())
        .in_column(column))
}
