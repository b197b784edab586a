//! Which columns of a row go into a batch: one matrix, or named groups.

use std::borrow::Cow;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, FieldRef};

use super::target::{self, BatchTarget};
use crate::arrow::DeviceArray;
use crate::column::require_host;
use crate::convert::{self, ColumnChunk, RowBlock, RowLayout, check_nulls_of_passing_rows};
use crate::copy_log::Copied;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Remedy, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::matrix::{Group, GroupSpec, MatrixChunk, after, group_specs};
use crate::spec::{MatrixOptions, MatrixSpec, Options, PandasIndex, Spec};
use crate::tensor::Tensor;

/// What of each row a batch has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selection {
    /// One tensor: the matrix of these columns, or of all. For an array that is no struct, its rows.
    Whole(Option<Vec<String>>),
    /// A tensor for each name.
    Named(Vec<(String, Group)>),
}

impl Selection {
    /// Returns the names of all requested columns.
    #[must_use]
    pub fn columns(&self) -> Vec<&str> {
        match self {
            Self::Whole(columns) => columns.iter().flatten().map(String::as_str).collect(),
            Self::Named(groups) => groups.iter().flat_map(|(_, group)| group.columns()).map(String::as_str).collect(),
        }
    }

    /// Refuses options that no source of this type can satisfy.
    ///
    /// # Errors
    /// As [`super::Batches::new`] for columns and options.
    pub fn check(
        &self,
        field: &FieldRef,
        index: PandasIndex,
        options: impl Fn(&str) -> Options,
        dtype: Option<DType>,
    ) -> Result<()> {
        Groups::new(field, &self.without_index(field, index), &options, dtype, None).map(drop)
    }

    /// Returns this selection; a selection of all columns becomes one of the columns that `index` leaves.
    pub(super) fn without_index(&self, field: &FieldRef, index: PandasIndex) -> Cow<'_, Self> {
        let remaining = if let Self::Whole(None) = self { index.remaining(field) } else { None };
        remaining.map_or(Cow::Borrowed(self), |columns| Cow::Owned(Self::Whole(Some(columns))))
    }
}

/// The groups of a batch, with what the source's type tells of them.
pub(super) struct Groups {
    groups: Vec<Prepared>,
    threads: Option<NonZero<usize>>,
}

struct Prepared {
    /// Of a named group.
    name: Option<String>,
    kind: Kind,
    layout: Arc<RowLayout>,
    /// Dictionaries of the first array; later ones must match.
    dictionaries: Vec<Option<Dictionary>>,
}

enum Kind {
    Matrix(MatrixSpec),
    /// A column of structs, or the array itself.
    Column(Option<usize>, Spec),
}

struct Dictionary {
    array: DeviceArray,
    values: ArrayRef,
}

/// The columns of one source array, ready to be packed as rows.
pub(super) struct GroupChunk(Vec<GroupPart>);

enum GroupPart {
    Matrix(MatrixChunk),
    Column(DeviceArray),
}

impl Groups {
    /// # Errors
    /// If a column does not exist or has no tensor form, or as [`MatrixSpec::new`]. Names the column.
    pub(super) fn new(
        field: &FieldRef,
        selection: &Selection,
        options: &dyn Fn(&str) -> Options,
        dtype: Option<DType>,
        threads: Option<NonZero<usize>>,
    ) -> Result<Self> {
        let is_struct = matches!(field.data_type(), DataType::Struct(_));
        let groups = match selection {
            Selection::Whole(None) if !is_struct => {
                let mut options = options(field.name());
                options.dtype = dtype.or(options.dtype);
                vec![Prepared::column(None, None, Spec::new(field, &options)?)?]
            }
            Selection::Whole(columns) => {
                vec![Prepared::matrix(None, MatrixSpec::new(field, columns.as_deref(), options, dtype)?)?]
            }
            Selection::Named(groups) if groups.is_empty() => {
                let reason = "columns names no group";
                return Err(Error::argument(reason).remedy_is("leave it out for a matrix of all columns"));
            }
            Selection::Named(groups) => {
                let matrix = MatrixOptions { dtype, ..MatrixOptions::default() };
                let prepare = |(name, spec)| match spec {
                    GroupSpec::Column(position, spec, _) => Prepared::column(Some(name), Some(position), spec),
                    GroupSpec::Matrix(spec) => Prepared::matrix(Some(name), spec),
                };
                group_specs(field, groups, &matrix, options)?.into_iter().map(prepare).collect::<Result<_>>()?
            }
        };
        Ok(Self { groups, threads })
    }

    /// Returns the copy log's entries for each group's batches, which are made on this device from arrays on devices of
    /// this type.
    pub(super) fn copy_notes(&self, source: DLDeviceType, device: Device) -> Vec<CopyNote> {
        self.groups.iter().map(|group| group.copy_notes(source, device)).collect()
    }

    /// Threads to convert with.
    pub(super) fn threads(&self) -> Option<NonZero<usize>> {
        self.threads
    }

    /// Returns the layout of each group's rows.
    pub(super) fn layouts(&self) -> impl Iterator<Item = &Arc<RowLayout>> {
        self.groups.iter().map(|group| &group.layout)
    }

    /// Returns the columns of a source array.
    ///
    /// # Errors
    /// If the array is not in host memory or cannot be decoded, or its codes are of other dictionaries.
    pub(super) fn chunk(&mut self, array: &DeviceArray) -> Result<GroupChunk> {
        let chunk = |group: &mut Prepared| group.chunk(array).map_err(|error| group.named(error));
        self.groups.iter_mut().map(chunk).collect::<Result<_>>().map(GroupChunk)
    }

    /// Appends rows of a chunk to the block of each group. The first row is number `row` of the source.
    ///
    /// # Errors
    /// If a null is refused or a value does not fit: names column and row. If the rows do not fit the blocks.
    pub(super) fn append(
        &self,
        chunk: &GroupChunk,
        rows: &Range<usize>,
        row: usize,
        blocks: &mut [RowBlock],
    ) -> Result<()> {
        for ((group, part), block) in self.groups.iter().zip(&chunk.0).zip(blocks) {
            group.append(part, rows, row, self.threads, block).map_err(|error| group.named(error))?;
        }
        Ok(())
    }

    /// Returns the batch of these blocks, one per group.
    ///
    /// # Errors
    /// As [`BatchTarget::tensor`].
    pub(super) fn tensors(&self, blocks: Vec<RowBlock>, target: &BatchTarget) -> Result<Vec<Tensor>> {
        let tensor = |(group, block): (&Prepared, RowBlock)| {
            let tensor = target.tensor(block)?;
            Ok(match (&group.kind, group.dictionaries.first()) {
                // A dictionary in host memory goes with these codes.
                (Kind::Column(..), Some(Some(dictionary))) if tensor.device().is_cpu() => {
                    tensor.with_dictionary(dictionary.array.clone(), false)
                }
                _ => tensor,
            })
        };
        self.groups.iter().zip(blocks).map(tensor).collect()
    }
}

/// The copy log's entry for a group's batches.
#[derive(Debug)]
pub(super) struct CopyNote {
    columns: String,
    elements: String,
    why: String,
}

impl CopyNote {
    /// The entry of a batch.
    pub(super) fn of(&self, rows: usize, bytes: usize) -> Copied {
        let what = format!("{}: {rows} rows of {}", self.columns, self.elements);
        Copied { what, why: self.why.clone(), bytes }
    }
}

impl Prepared {
    fn copy_notes(&self, source: DLDeviceType, device: Device) -> CopyNote {
        let steps = |specs: &mut dyn Iterator<Item = &Spec>| {
            let mut steps: Vec<String> = target::read(source).into_iter().collect();
            steps.push("packed into a batch".to_owned());
            for step in specs.flat_map(|spec| spec.possible_steps(&Options::default())) {
                if step.only_if.is_none() && !steps.contains(&step.text) {
                    steps.push(step.text);
                }
            }
            steps.extend(target::copy_notes(device));
            steps.join(", ")
        };
        match &self.kind {
            Kind::Matrix(spec) => CopyNote {
                columns: format!("{} columns", spec.columns().len()),
                elements: spec.dtype().to_string(),
                why: steps(&mut spec.columns().iter().map(|(_, spec)| spec)),
            },
            Kind::Column(_, spec) => CopyNote {
                columns: format!("column {:?}", spec.field().name()),
                elements: spec.field().data_type().to_string(),
                why: steps(&mut std::iter::once(spec)),
            },
        }
    }

    fn matrix(name: Option<&str>, spec: MatrixSpec) -> Result<Self> {
        let (name, layout) = (name.map(str::to_owned), Arc::new(RowLayout::of_matrix(&spec)?));
        Ok(Self { name, kind: Kind::Matrix(spec), layout, dictionaries: Vec::new() })
    }

    fn column(name: Option<&str>, position: Option<usize>, spec: Spec) -> Result<Self> {
        let (name, layout) = (name.map(str::to_owned), Arc::new(RowLayout::of_column(&spec)?));
        Ok(Self { name, kind: Kind::Column(position, spec), layout, dictionaries: Vec::new() })
    }

    /// Names the group, if there are several.
    fn named(&self, error: Error) -> Error {
        match &self.name {
            Some(name) => error.in_group(name),
            None => error,
        }
    }

    fn chunk(&mut self, array: &DeviceArray) -> Result<GroupPart> {
        let part = match &self.kind {
            Kind::Matrix(spec) => GroupPart::Matrix(MatrixChunk::new(spec, array)?),
            Kind::Column(position, spec) => {
                require_host(array.device(), spec.field().name())?;
                let column = match position {
                    Some(position) => array.column(*position)?,
                    None => array.clone(),
                };
                GroupPart::Column(match spec.decoded() {
                    Some(field) => convert::decode(&column, field)?,
                    None => column,
                })
            }
        };
        if !array.is_empty() {
            self.check_dictionaries(&part)?;
        }
        Ok(part)
    }

    /// Refuses codes of another dictionary than the first array's, because they would mean something else.
    fn check_dictionaries(&mut self, part: &GroupPart) -> Result<()> {
        let specs: Vec<&Spec> = match &self.kind {
            Kind::Matrix(spec) => spec.columns().iter().map(|(_, spec)| spec).collect(),
            Kind::Column(_, spec) => vec![spec],
        };
        if !specs.iter().any(|spec| spec.has_codes()) {
            return Ok(());
        }
        let found = match (part, &self.kind) {
            (GroupPart::Matrix(chunk), Kind::Matrix(spec)) => {
                let columns = chunk.columns(spec, &(0..0))?.columns;
                columns.iter().map(|column| column.array.dictionary_of(&column.leaf)).collect::<Result<_>>()?
            }
            (GroupPart::Column(array), Kind::Column(_, spec)) => vec![array.dictionary_of(&array.view().leaf(spec)?)?],
            _ => Vec::new(),
        };
        if self.dictionaries.is_empty() {
            self.dictionaries =
                found.into_iter().map(|found| found.map(Dictionary::new).transpose()).collect::<Result<_>>()?;
            return Ok(());
        }
        for ((spec, first), found) in specs.into_iter().zip(&self.dictionaries).zip(found) {
            let (Some(first), Some(found)) = (first, found) else { continue };
            if found.to_arrow()?.as_ref() != first.values.as_ref() {
                let reason = "the arrays have different dictionaries, so their codes mean different things";
                return Err(Error::unsupported(reason)
                    .remedy_is(Remedy::DictionaryValues)
                    .in_column(spec.field().name()));
            }
        }
        Ok(())
    }

    fn append(
        &self,
        part: &GroupPart,
        rows: &Range<usize>,
        row: usize,
        threads: Option<NonZero<usize>>,
        block: &mut RowBlock,
    ) -> Result<()> {
        let first = row.saturating_add(rows.start);
        match (part, &self.kind) {
            (GroupPart::Matrix(chunk), Kind::Matrix(spec)) => {
                let columns = chunk.checked_columns(spec, rows, row)?;
                // A single column keeps its own layout.
                if let ([(_, spec)], [column]) = (spec.columns(), &columns.columns[..]) {
                    return block.append_column(spec, column, first);
                }
                let bytes = rows.len().saturating_mul(self.layout.bytes());
                block.append_matrix(spec, &columns, first, convert::threads(threads.map(NonZero::get), bytes))
            }
            (GroupPart::Column(array), Kind::Column(_, spec)) => {
                let array = array.slice(rows);
                let named = |error: Error| after(error, first).in_column(spec.field().name());
                let leaf = array.view().leaf(spec).map_err(named)?;
                let mask = leaf.logical_mask(&array).map_err(named)?;
                let chunk = ColumnChunk { leaf, mask, array: &array };
                check_nulls_of_passing_rows(spec, &chunk).map_err(named)?;
                block.append_column(spec, &chunk, first)
            }
            _ => Err(Error::internal("a chunk of another group")),
        }
    }
}

impl Dictionary {
    /// Copied, so that it does not keep its whole array alive.
    fn new(dictionary: DeviceArray) -> Result<Self> {
        let array = convert::copy_array_for(&dictionary, "dictionary kept apart")?;
        let values = array.to_arrow()?;
        Ok(Self { array, values })
    }
}
