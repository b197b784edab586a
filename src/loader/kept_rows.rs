//! Rows that differ in length or are passed through: they stay in arrays of the source until their batch is made.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, make_array};
use arrow_data::ArrayData;

#[cfg(feature = "python")]
use super::conversion_hashes::fold_group;
use super::kept_dictionaries::KeptDictionaries;
use super::row_bytes::row_bytes;
use super::row_hashes::{NO_VALUE, fold};
use super::texts::with_ticks;
use super::varied_hashes::{fold_part, fold_texts};
use crate::alloc::fallible;
use crate::arrow::DeviceArray;
use crate::conversion::{Converted, VariedGroup};
use crate::convert::{has_no_element_codes, join_data};
use crate::error::{Error, ErrorKind, Result, catch_panic};
use crate::spec::{CopyMode, GroupForm};

/// Runs of rows from which on they are copied together before they are converted, which is faster than one by one.
const JOINED_FROM: usize = 4;
/// The most rows that the shuffle buffer copies into one array, and the fewest, unless there are not as many.
const MOST_COPIED: usize = 1 << 16;
const FEWEST_COPIED: usize = 16;
/// Into so many arrays it copies its rows at least, so that the memory of copied rows is free for the next ones.
const COPIES: usize = 16;

/// The groups of a batch whose rows differ in length, or are passed through.
pub(super) struct VariedGroups {
    groups: Arc<Vec<VariedGroup>>,
    dictionaries: KeptDictionaries,
}

/// What the groups are made of in an array of the source, or in rows that were copied together.
pub(super) struct KeptArray {
    parts: Vec<KeptPart>,
    origin: RowOrigin,
    /// Whether the array is read no more, and is alive for these rows alone.
    is_passed: AtomicBool,
}

struct KeptPart {
    array: DeviceArray,
    data: OnceLock<ArrayData>,
    /// The same rows under the dictionary of a later array, if they are nulls alone of codes.
    under_later: OnceLock<ArrayData>,
    /// The columns of an Arrow group, as their texts are hashed.
    columns: OnceLock<Vec<ArrayRef>>,
}

/// Where rows are from: a shard, and the number of a row in it.
enum RowOrigin {
    Array { shard: usize, first: usize },
    Rows(Vec<(usize, usize)>),
}

/// A row that waits for its batch.
#[derive(Clone)]
pub(super) struct KeptRow {
    array: Arc<KeptArray>,
    row: usize,
    /// Counted if a shuffle buffer may hold so many bytes only.
    bytes: usize,
}

/// A row whose array is read no more, with the array, by which rows are sorted.
type PassedRow<'a> = (*const KeptArray, &'a mut KeptRow);

impl KeptPart {
    fn new(array: DeviceArray) -> Self {
        Self { array, data: OnceLock::new(), under_later: OnceLock::new(), columns: OnceLock::new() }
    }

    /// The array as one of arrow-rs, which is validated once.
    fn data(&self) -> Result<&ArrayData> {
        if self.data.get().is_none() {
            // Another thread may have been first.
            _ = self.data.set(self.array.to_arrow_unlogged()?.to_data());
        }
        self.data.get().ok_or_else(|| Error::internal("an array was not read"))
    }

    /// As [`KeptPart::data`], to be joined with other arrays, the first dictionary of which may be known by now.
    fn joined_data(&self, number: usize, dictionaries: &KeptDictionaries) -> Result<&ArrayData> {
        let data = self.data()?;
        if !dictionaries.has_codes(number) || !has_no_element_codes(data) {
            return Ok(data);
        }
        if self.under_later.get().is_none() {
            let Some(under_later) = dictionaries.under_known(number, data)? else { return Ok(data) };
            // Another thread may have been first.
            _ = self.under_later.set(under_later);
        }
        self.under_later.get().ok_or_else(|| Error::internal("an array was not read"))
    }

    /// The columns of an array of structs, with ticks in place of times.
    fn columns(&self) -> Result<&[ArrayRef]> {
        if self.columns.get().is_none() {
            let data = self.data()?;
            let columns = catch_panic(|| {
                let array = make_array(data.clone());
                let structs = array.as_struct_opt().ok_or_else(|| Error::internal("an Arrow group without columns"))?;
                structs.columns().iter().map(with_ticks).collect::<Result<Vec<_>>>()
            })?;
            // Another thread may have been first.
            _ = self.columns.set(columns);
        }
        self.columns.get().map(Vec::as_slice).ok_or_else(|| Error::internal("columns were not read"))
    }
}

impl KeptArray {
    /// Says that the array is read no more.
    pub(super) fn pass(&self) {
        self.is_passed.store(true, Ordering::Relaxed);
    }

    fn origin(&self, row: usize) -> (usize, usize) {
        match &self.origin {
            RowOrigin::Array { shard, first } => (*shard, first.saturating_add(row)),
            RowOrigin::Rows(rows) => rows.get(row).copied().unwrap_or_default(),
        }
    }

    fn part(&self, group: usize) -> Result<&KeptPart> {
        self.parts.get(group).ok_or_else(lost)
    }
}

impl KeptRow {
    pub(super) fn new(array: &Arc<KeptArray>, row: usize) -> Self {
        Self { array: array.clone(), row, bytes: 0 }
    }

    /// Returns the bytes that were counted; 0 before.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the row's array is alive for rows that wait alone, so that a copy of these lets go of memory.
    fn is_passed(&self) -> bool {
        self.array.is_passed.load(Ordering::Relaxed)
    }
}

impl VariedGroups {
    /// # Errors
    /// As [`KeptDictionaries::new`].
    pub(super) fn new(groups: Vec<VariedGroup>) -> Result<Self> {
        let dictionaries = KeptDictionaries::new(&groups)?;
        Ok(Self { groups: Arc::new(groups), dictionaries })
    }

    /// Returns the same groups for another lane, whose codes have to be of the same dictionaries.
    pub(super) fn another(&self) -> Self {
        Self { groups: self.groups.clone(), dictionaries: self.dictionaries.another() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the dictionaries of elements that become codes.
    pub(super) fn dictionaries(&self) -> &KeptDictionaries {
        &self.dictionaries
    }

    /// What a group is made of in an array, and whether its dictionary has values. Its codes are compared now: any row may be the first of
    /// them in a batch.
    fn part(&self, number: usize, group: &VariedGroup, array: DeviceArray) -> Result<(KeptPart, bool)> {
        let part = KeptPart::new(array);
        let mut has_values = false;
        if self.dictionaries.has_codes(number) && !part.array.is_empty() {
            let data = part.array.to_arrow_unlogged()?.to_data();
            has_values = !has_no_element_codes(&data);
            let data = self.dictionaries.under_first(number, group, data);
            // A part that was just made has none.
            _ = part.data.set(data.map_err(|error| error.in_group(&group.name))?);
        }
        Ok((part, has_values))
    }

    /// Returns what the groups are made of in a host array, the first row of which is number `first` of its shard.
    ///
    /// # Errors
    /// If the allocation of offsets fails, or its codes are of another dictionary than those of the first array.
    pub(super) fn keep(&self, array: &DeviceArray, shard: usize, first: usize) -> Result<Arc<KeptArray>> {
        let part = |(number, group): (usize, &VariedGroup)| {
            let (part, has_values) = self.part(number, group, group.part_of(array)?)?;
            self.dictionaries.note(number, has_values);
            Ok(part)
        };
        let parts = self.groups.iter().enumerate().map(part).collect::<Result<_>>()?;
        let origin = RowOrigin::Array { shard, first };
        Ok(Arc::new(KeptArray { parts, origin, is_passed: AtomicBool::new(false) }))
    }

    /// Converts these rows: the results of each group.
    ///
    /// # Errors
    /// As [`Conversion::to_results`](crate::Conversion::to_results), with the row of the source, and the number of its shard.
    pub(super) fn convert(&self, rows: &[KeptRow]) -> std::result::Result<Vec<Converted>, (Error, usize)> {
        let mut results = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            let parts = gathered(rows, number, group, &self.dictionaries);
            let made = parts.and_then(|parts| group.convert(&parts, CopyMode::IfNeeded));
            results.extend(made.map_err(|error| located(error, rows))?);
        }
        Ok(results)
    }

    /// Returns a hash that goes on with a row, as docs/loader.md defines it.
    ///
    /// # Errors
    /// If an allocation fails.
    pub(super) fn fold(&self, hash: u64, row: &KeptRow) -> Result<u64> {
        self.groups.iter().enumerate().try_fold(hash, |hash, (number, group)| {
            let part = row.array.part(number)?;
            let folded = match group.group.form() {
                GroupForm::Arrow => {
                    part.columns().and_then(|columns| fold_texts(hash, columns, part.data()?.nulls(), row.row))
                }
                _ => fold_part(hash, group, &part.array.clipped(&(row.row..row.row.saturating_add(1)))),
            };
            match folded {
                // Another row of the batch may have to tell why this one cannot be converted.
                Err(error) if error.is_of_data() => Ok(fold(hash, NO_VALUE)),
                folded => folded,
            }
        })
    }

    /// Returns a hash that goes on with what rows become, for loaders whose hashes of equal rows are equal.
    #[cfg(feature = "python")]
    pub(super) fn fold_conversion(&self, hash: u64) -> u64 {
        self.groups.iter().fold(hash, fold_group)
    }

    /// Counts the bytes of these rows.
    ///
    /// # Errors
    /// If an array cannot be read.
    pub(super) fn count_bytes(&self, rows: &mut [KeptRow]) -> Result<()> {
        for run in rows.chunk_by_mut(|one, next| Arc::ptr_eq(&one.array, &next.array)) {
            let Some(kept) = run.first().map(|row| row.array.clone()) else { continue };
            for part in &kept.parts {
                let data = part.data()?;
                catch_panic(|| {
                    let array = make_array(data.clone());
                    for row in run.iter_mut() {
                        let bytes = row_bytes(array.as_ref(), row.row..row.row.saturating_add(1));
                        row.bytes = row.bytes.saturating_add(bytes);
                    }
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Copies those of these rows whose arrays are read no more into arrays of their own, so that others are let go of: each once its last
    /// row was copied.
    ///
    /// # Errors
    /// If a row cannot be copied, or an allocation fails.
    pub(super) fn compact<'a>(&self, rows: impl Iterator<Item = &'a mut KeptRow>) -> Result<()> {
        let mut passed: Vec<PassedRow<'_>> = Vec::new();
        for row in rows.filter(|row| row.is_passed()) {
            fallible::push(&mut passed, (Arc::as_ptr(&row.array), row))?;
        }
        passed.sort_unstable_by_key(|(array, _)| *array);
        let count = passed.len().div_ceil(COPIES).clamp(FEWEST_COPIED, MOST_COPIED);
        passed.chunks_mut(count).try_for_each(|rows| self.copy(rows))
    }

    fn copy(&self, rows: &mut [PassedRow<'_>]) -> Result<()> {
        let kept: Vec<KeptRow> = rows.iter().map(|(_, row)| KeptRow::clone(row)).collect();
        let joined = |(number, group): (usize, &VariedGroup)| {
            Ok(self.part(number, group, join(&kept, number, group, &self.dictionaries)?)?.0)
        };
        match self.groups.iter().enumerate().map(joined).collect::<Result<Vec<_>>>() {
            Ok(parts) => {
                let origin = RowOrigin::Rows(kept.iter().map(|row| row.array.origin(row.row)).collect());
                let array = Arc::new(KeptArray { parts, origin, is_passed: AtomicBool::new(true) });
                for (at, (_, row)) in rows.iter_mut().enumerate() {
                    **row = KeptRow { bytes: row.bytes, ..KeptRow::new(&array, at) };
                }
                Ok(())
            }
            // Offsets of 32 bits count less than all of the rows have.
            Err(error) if error.kind() == ErrorKind::Unsupported && rows.len() > 1 => {
                let (left, right) = rows.split_at_mut(kept.len() / 2);
                drop(kept);
                self.copy(left)?;
                self.copy(right)
            }
            Err(error) => Err(located(error, &kept).0),
        }
    }
}

/// Names the row of the source in an error about rows of a batch.
fn located(error: Error, rows: &[KeptRow]) -> (Error, usize) {
    let row = error.row().and_then(|row| rows.get(row)).or(rows.first());
    let Some((shard, number)) = row.map(|row| row.array.origin(row.row)) else { return (error, 0) };
    let error = if error.row().is_some() { error.at_row(number) } else { error };
    (error, shard)
}

/// Consecutive rows of one array each.
fn runs(rows: &[KeptRow]) -> Result<Vec<(&Arc<KeptArray>, Range<usize>)>> {
    let mut runs: Vec<(&Arc<KeptArray>, Range<usize>)> = Vec::new();
    for row in rows {
        match runs.last_mut() {
            Some((array, range)) if range.end == row.row && Arc::ptr_eq(array, &row.array) => {
                range.end = range.end.saturating_add(1);
            }
            _ => fallible::push(&mut runs, (&row.array, row.row..row.row.saturating_add(1)))?,
        }
    }
    Ok(runs)
}

/// What a group is made of for these rows: slices, or a copy where there are many.
fn gathered(
    rows: &[KeptRow],
    number: usize,
    group: &VariedGroup,
    dictionaries: &KeptDictionaries,
) -> Result<Vec<DeviceArray>> {
    let runs = runs(rows)?;
    if runs.len() >= JOINED_FROM || group.joins_always() {
        match join(rows, number, group, dictionaries) {
            // Offsets of 32 bits count less than all of the rows have, but not less than those of each array.
            Err(error) if error.kind() == ErrorKind::Unsupported && !group.joins_always() => {}
            joined => return Ok(vec![joined?]),
        }
    }
    fallible::collected(runs.into_iter().map(|(array, range)| Ok(array.part(number)?.array.clipped(&range))))
}

fn join(rows: &[KeptRow], number: usize, group: &VariedGroup, dictionaries: &KeptDictionaries) -> Result<DeviceArray> {
    let data = runs(rows)?.into_iter().map(|(array, range)| {
        let data = array.part(number)?.joined_data(number, dictionaries)?;
        Ok((data, range))
    });
    join_data(&group.field, &fallible::collected(data)?)
}

fn lost() -> Error {
    Error::internal("a kept row without its array")
}
