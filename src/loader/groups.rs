//! Which columns of a row go into a batch: one matrix, or named groups.

use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::FieldRef;

#[cfg(feature = "python")]
use super::conversion_hashes::fold_column;
use super::dictionary::{fold_dictionaries, hashes_of, no_values, was_of_fewer};
use super::dictionary_hashes::DictionaryHashes;
use super::kept_rows::{KeptArray, KeptRow, VariedGroups};
use super::packed_dictionaries::PackedDictionaries;
#[cfg(feature = "python")]
use super::row_hashes::{fold_bytes, fold_count};
use super::slot::Slot;
use super::target::{self, BatchTarget};
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Validated};
use crate::column::require_host;
use crate::convert::{self, ColumnChunk, MatrixColumns, RowBlock, RowLayout, check_nulls_of_passing_rows, with_bits};
use crate::copy_log::Copied;
use crate::device::Device;
use crate::error::{Counted, Error, Remedy, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::matrix::MatrixChunk;
use crate::spec::{Conversion, Options, ResultKind, ResultSpec, Selection, Spec};
use crate::tensor::Tensor;

/// The groups of a batch, and what is known of them from the source's type.
pub(super) struct Groups {
    groups: Vec<Prepared>,
    /// Those whose rows differ in length, or are passed through.
    varied: VariedGroups,
    threads: Option<NonZero<usize>>,
    /// How many columns of codes had no dictionary when the hashes of those that are known were told; `None` before.
    unhashed: Option<usize>,
}

struct Prepared {
    result: ResultSpec,
    layout: Arc<RowLayout>,
    /// Of its columns of codes. A validity has none.
    dictionaries: PackedDictionaries,
    /// What the codes of a column stand for, if they are those of categories.
    categories: Option<DeviceArray>,
    /// Whether this is the validity of the matrix before it, read from the same columns.
    is_read_with_values: bool,
}

/// The columns of one source array, ready to be packed as rows.
pub(super) struct GroupChunk {
    parts: Vec<GroupPart>,
    /// What rows that differ in length are taken of; `None` if there are no such groups.
    kept: Option<Arc<KeptArray>>,
    /// The row of that at which the columns start.
    kept_from: usize,
}

impl Drop for GroupChunk {
    fn drop(&mut self) {
        self.kept.iter().for_each(|kept| kept.pass());
    }
}

enum GroupPart {
    Matrix(MatrixChunk),
    Column(DeviceArray),
}

impl Groups {
    /// # Errors
    /// As [`Conversion::check`]; where no group is named; for kept nulls of a result without validity.
    pub(super) fn new(field: &FieldRef, conversion: &Conversion) -> Result<Self> {
        if matches!(&conversion.selection, Selection::Named(groups) if groups.is_empty()) {
            return Err(Error::argument("no group is named").remedy_is(Remedy::MatrixOfAll));
        }
        let field = &*conversion.type_at_paths(field)?;
        conversion.check_columns(field)?;
        conversion.check_groups()?;
        conversion.refuse_kept_nulls()?;
        let (results, varied) = conversion.check_results(field).map_err(Error::of_named_results)?;
        let mut groups: Vec<Prepared> = results.into_iter().map(Prepared::new).collect::<Result<_>>()?;
        let mut values = None;
        for group in &mut groups {
            group.is_read_with_values = group.result.is_read_with(values);
            values = Some(&group.result);
        }
        Ok(Self { groups, varied: VariedGroups::new(varied)?, threads: conversion.threads, unhashed: None })
    }

    /// Returns the copy log's entries for each group's batches, which are made on this device from arrays on devices of
    /// this type.
    pub(super) fn copy_notes(&self, source: DLDeviceType, device: Device) -> Vec<CopyNote> {
        self.groups.iter().map(|group| group.copy_notes(source, device)).collect()
    }

    /// Returns the same groups for another lane. Codes of all lanes have to be of one dictionary.
    pub(super) fn another(&self) -> Self {
        let another = |group: &Prepared| Prepared {
            result: group.result.clone(),
            layout: group.layout.clone(),
            dictionaries: group.dictionaries.another(),
            categories: group.categories.clone(),
            is_read_with_values: group.is_read_with_values,
        };
        let groups = self.groups.iter().map(another).collect();
        Self { groups, varied: self.varied.another(), threads: self.threads, unhashed: None }
    }

    /// Threads to convert with.
    pub(super) fn threads(&self) -> Option<NonZero<usize>> {
        self.threads
    }

    /// Returns the layout of each group's rows.
    pub(super) fn layouts(&self) -> impl Iterator<Item = &Arc<RowLayout>> {
        self.groups.iter().map(|group| &group.layout)
    }

    /// Returns the groups whose rows differ in length, or are passed through.
    pub(super) fn varied(&self) -> &VariedGroups {
        &self.varied
    }

    /// Returns the columns of a source array, the first row of which is number `first` of its shard.
    ///
    /// # Errors
    /// If the array is not in host memory or cannot be decoded, or its codes are of other dictionaries.
    pub(super) fn chunk(&mut self, array: &DeviceArray, shard: usize, first: usize) -> Result<GroupChunk> {
        let parts = self.parts(array)?;
        let kept = self.keep(array, shard, first)?;
        Ok(GroupChunk { parts, kept, kept_from: 0 })
    }

    /// Returns what rows that differ in length are taken of in a source array, as [`Groups::chunk`] does; `None` if there are no such
    /// groups.
    ///
    /// # Errors
    /// As [`VariedGroups::keep`].
    pub(super) fn keep(&self, array: &DeviceArray, shard: usize, first: usize) -> Result<Option<Arc<KeptArray>>> {
        (!self.varied.is_empty()).then(|| self.varied.keep(array, shard, first)).transpose()
    }

    /// Returns the columns of some rows of a source array, the first of which is row `kept_from` of what was kept of that.
    ///
    /// # Errors
    /// As [`Groups::chunk`].
    pub(super) fn chunk_of_rows(
        &mut self,
        rows: &DeviceArray,
        kept: Option<Arc<KeptArray>>,
        kept_from: usize,
    ) -> Result<GroupChunk> {
        Ok(GroupChunk { parts: self.parts(rows)?, kept, kept_from })
    }

    fn parts(&mut self, array: &DeviceArray) -> Result<Vec<GroupPart>> {
        let part = |group: &mut Prepared| group.chunk(array).map_err(|error| group.result.in_group(error));
        self.groups.iter_mut().map(part).collect()
    }

    /// Appends rows of a chunk to the block of each group. The first row is number `row` of the source.
    ///
    /// # Errors
    /// If a null is refused or a value does not fit: names column and row. If the rows do not fit the blocks.
    pub(super) fn append(&self, chunk: &GroupChunk, rows: &Range<usize>, row: usize, slot: &mut Slot) -> Result<()> {
        let (blocks, kept) = slot.parts();
        if chunk.kept.is_some() {
            fallible::reserve(kept, rows.len())?;
        }
        let mut columns = None;
        for ((group, part), block) in self.groups.iter().zip(&chunk.parts).zip(blocks) {
            let appended = group.append(part, rows, row, self.threads, (block, &mut columns));
            appended.map_err(|error| group.result.in_group(error))?;
        }
        if let Some(array) = &chunk.kept {
            kept.extend(rows.clone().map(|row| KeptRow::new(array, row.saturating_add(chunk.kept_from))));
        }
        Ok(())
    }

    /// Returns the hashes of the dictionaries of codes, whenever further columns have one: `None` if there are none.
    ///
    /// # Errors
    /// As [`Groups::fold_dictionaries`].
    pub(super) fn dictionaries(&mut self) -> Result<Option<DictionaryHashes>> {
        let has_more = |unhashed| unhashed > self.known().filter(Option::is_none).count();
        if !self.unhashed.is_none_or(|unhashed| unhashed > 0 && has_more(unhashed))
            || self.known().all(|values| values.is_none())
        {
            return Ok(None);
        }
        let hashes = hashes_of(&fallible::collected(self.known().map(Ok))?)?;
        self.unhashed = Some(hashes.each.iter().filter(|hash| hash.is_none()).count());
        Ok(Some(hashes))
    }

    /// Returns whether this is the hash of some of the dictionaries, in a state whose rows had nulls alone in the other columns.
    ///
    /// # Errors
    /// As [`Groups::fold_dictionaries`].
    pub(super) fn had_fewer_dictionaries(&self, hash: u64) -> Result<bool> {
        was_of_fewer(hash, &fallible::collected(self.known().map(Ok))?)
    }

    /// The values of the dictionary of each column of codes; `None` before an array had any.
    fn known(&self) -> impl Iterator<Item = Option<&ArrayRef>> {
        let packed = self.groups.iter().flat_map(|group| group.dictionaries.known());
        packed.map(|known| known.map(|known| &known.values)).chain(self.varied.dictionaries().known())
    }

    /// Returns a hash that goes on with the dictionaries of the array that was read last, as docs/loader.md defines it.
    ///
    /// # Errors
    /// If arrow-cast writes no values of a dictionary's type, or an allocation fails.
    pub(super) fn fold_dictionaries(&self, hash: u64) -> Result<u64> {
        let packed = self.groups.iter().flat_map(|group| group.dictionaries.of_array());
        fold_dictionaries(hash, packed.chain(self.varied.dictionaries().of_array()))
    }

    /// Returns a number for what rows become: equal for loaders whose hashes of equal rows are equal.
    ///
    /// # Errors
    /// When an allocation fails.
    #[cfg(feature = "python")]
    pub(super) fn conversion_hash(&self) -> Result<u64> {
        let hash = self.groups.iter().try_fold(0, |hash, group| {
            let hash = fold_bytes(hash, group.result.name().as_bytes());
            group.specs().into_iter().try_fold(fold_count(hash, group.layout.bytes()), fold_column)
        })?;
        Ok(self.varied.fold_conversion(hash))
    }

    /// Returns the batch of these blocks, one per group.
    ///
    /// # Errors
    /// As [`BatchTarget::tensor`].
    pub(super) fn tensors(&self, blocks: Vec<RowBlock>, target: &BatchTarget) -> Result<Vec<Tensor>> {
        let tensor = |(group, block): (&Prepared, RowBlock)| {
            let tensor = target.tensor(block)?;
            if let Some(categories) = group.categories.as_ref().filter(|_| tensor.device().is_cpu()) {
                return Ok(tensor.with_categories(categories.clone(), false));
            }
            // A dictionary in ordinary memory goes with codes there.
            match (&group.result.kind, group.dictionaries.known().next()) {
                (ResultKind::Column { spec, .. }, Some(known)) if tensor.device().is_cpu() => {
                    let dictionary = known.map_or_else(|| no_values(spec), |known| Ok(known.array.clone()))?;
                    Ok(tensor.with_dictionary(dictionary, false))
                }
                _ => Ok(tensor),
            }
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
        let what = format!("{}: {} of {}", self.columns, Counted(rows, "row"), self.elements);
        Copied { what, why: self.why.clone(), bytes }
    }
}

impl Prepared {
    fn copy_notes(&self, source: DLDeviceType, device: Device) -> CopyNote {
        let steps = |specs: &mut dyn Iterator<Item = &Spec>| {
            let mut steps: Vec<String> = target::read(source).into_iter().collect();
            steps.push("packed into a batch".to_owned());
            for step in specs.flat_map(|spec| spec.possible_steps_in_matrix(&Options::default())) {
                if step.only_if.is_none() && !steps.contains(&step.text) {
                    steps.push(step.text);
                }
            }
            steps.extend(target::copy_notes(device));
            steps.join(", ")
        };
        match &self.result.kind {
            ResultKind::Matrix(spec) | ResultKind::Validity(spec) => CopyNote {
                columns: Counted(spec.width(), "column").to_string(),
                elements: spec.dtype().to_string(),
                why: steps(&mut spec.columns().iter().map(|(_, spec)| spec)),
            },
            ResultKind::Column { spec, .. } | ResultKind::ColumnValidity { spec, .. } => CopyNote {
                columns: match spec.field().name().as_str() {
                    "" => "column".to_owned(),
                    name => format!("column {name:?}"),
                },
                elements: spec.field().data_type().to_string(),
                why: steps(&mut std::iter::once(spec)),
            },
        }
    }

    /// The spec of each column.
    #[cfg(feature = "python")]
    fn specs(&self) -> Vec<&Spec> {
        match &self.result.kind {
            ResultKind::Matrix(spec) | ResultKind::Validity(spec) => {
                spec.columns().iter().map(|(_, spec)| spec).collect()
            }
            ResultKind::Column { spec, .. } | ResultKind::ColumnValidity { spec, .. } => vec![spec],
        }
    }

    fn new(result: ResultSpec) -> Result<Self> {
        let layout = match &result.kind {
            ResultKind::Matrix(spec) | ResultKind::Validity(spec) => RowLayout::of_matrix(spec)?,
            ResultKind::Column { spec, .. } => RowLayout::of_column(spec)?,
            ResultKind::ColumnValidity { spec, .. } => RowLayout::of_validity(spec)?,
        };
        let categories = match &result.kind {
            ResultKind::Column { spec, .. } => convert::vocabulary(spec)?,
            _ => None,
        };
        let codes = match &result.kind {
            ResultKind::Matrix(spec) => spec.columns().iter().filter(|(_, spec)| spec.has_codes()).count(),
            ResultKind::Column { spec, .. } => usize::from(spec.has_codes()),
            ResultKind::Validity(_) | ResultKind::ColumnValidity { .. } => 0,
        };
        Ok(Self {
            result,
            layout: Arc::new(layout),
            dictionaries: PackedDictionaries::new(codes)?,
            categories,
            is_read_with_values: false,
        })
    }

    fn chunk(&mut self, array: &DeviceArray) -> Result<GroupPart> {
        let part = match &self.result.kind {
            ResultKind::Matrix(spec) | ResultKind::Validity(spec) => GroupPart::Matrix(MatrixChunk::new(spec, array)?),
            ResultKind::Column { position, spec, .. } => column_of(array, *position, spec)?,
            ResultKind::ColumnValidity { position, spec } => column_of(array, *position, spec)?,
        };
        if !array.is_empty() {
            self.check_dictionaries(&part)?;
        }
        Ok(part)
    }

    /// As [`PackedDictionaries::check`].
    fn check_dictionaries(&mut self, part: &GroupPart) -> Result<()> {
        match (part, &self.result.kind) {
            (GroupPart::Matrix(chunk), ResultKind::Matrix(spec))
                if spec.columns().iter().any(|(_, spec)| spec.has_codes()) =>
            {
                let mut columns = chunk.columns(spec, &(0..0))?.columns;
                if columns.iter().any(|column| column.leaf.has_empty_dictionary()) {
                    columns = chunk.columns(spec, &(0..chunk.rows()))?.columns;
                }
                let columns = spec.columns().iter().map(|(_, spec)| spec).zip(&columns);
                self.dictionaries.check(columns.filter(|(spec, _)| spec.has_codes()))
            }
            (GroupPart::Column(array), ResultKind::Column { spec, .. }) if spec.has_codes() => {
                let leaf = array.view().leaf(spec)?;
                let mask = if leaf.has_empty_dictionary() { leaf.logical_mask(array)? } else { None };
                self.dictionaries.check(std::iter::once((spec, &ColumnChunk { leaf, mask, array })))
            }
            _ => Ok(()),
        }
    }

    /// Appends rows of a part. `before` is what was read of the columns of the matrix before it.
    fn append<'a>(
        &self,
        part: &'a GroupPart,
        rows: &Range<usize>,
        row: usize,
        threads: Option<NonZero<usize>>,
        (block, before): (&mut RowBlock, &mut Option<MatrixColumns<'a>>),
    ) -> Result<()> {
        let first = row.saturating_add(rows.start);
        match (part, &self.result.kind) {
            (GroupPart::Matrix(chunk), ResultKind::Matrix(spec)) => {
                let columns = &*before.insert(chunk.checked_columns(spec, rows, row)?);
                // A single column keeps its own layout.
                if let ([(_, spec)], [column]) = (spec.columns(), &columns.columns[..]) {
                    return block.append_column(spec, column, first);
                }
                let bytes = rows.len().saturating_mul(self.layout.bytes());
                block.append_matrix(spec, columns, first, convert::threads(threads.map(NonZero::get), bytes))
            }
            (GroupPart::Matrix(chunk), ResultKind::Validity(spec)) => {
                let columns = match before.take().filter(|_| self.is_read_with_values) {
                    Some(columns) => columns,
                    None => chunk.columns(spec, rows).map_err(|error| error.behind(row))?,
                };
                if block.append_all_valid(&columns)? {
                    return Ok(());
                }
                let bytes = rows.len().saturating_mul(self.layout.bytes());
                let threads = convert::threads(threads.map(NonZero::get), bytes);
                with_bits(std::slice::from_ref(&columns), |bits| {
                    bits.iter().try_for_each(|bits| block.append_matrix(spec, bits, first, threads))
                })
            }
            (GroupPart::Column(array), ResultKind::Column { spec, .. } | ResultKind::ColumnValidity { spec, .. }) => {
                let array = array.clipped(rows);
                let named = |error: Error| error.behind(first).in_column(spec.field().name());
                let leaf = array.view().leaf(spec).map_err(named)?;
                let mask = leaf.logical_mask(&array).map_err(named)?;
                let chunk = ColumnChunk { leaf, mask, array: &array };
                if let ResultKind::ColumnValidity { .. } = self.result.kind {
                    return block.append_validity(&chunk);
                }
                check_nulls_of_passing_rows(spec, &chunk).map_err(named)?;
                block.append_column(spec, &chunk, first)
            }
            _ => Err(Error::internal("a chunk of another group")),
        }
    }
}

/// A column of an array in host memory, decoded where it has to be.
fn column_of(array: &DeviceArray, position: Option<usize>, spec: &Spec) -> Result<GroupPart> {
    require_host(array.device(), spec.field().name())?;
    let column = match position {
        Some(position) => array.column(position)?,
        None => array.clone(),
    };
    Ok(GroupPart::Column(match spec.decoded() {
        Some(field) => convert::decode(&column, spec, field, &Validated::default())?,
        None => column,
    }))
}
