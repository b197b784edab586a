//! Groups whose rows differ in length, or are passed through as Arrow: what they are made of, and how they are made.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};

use super::converted::Converted;
use crate::arrow::DeviceArray;
use crate::convert::{SomeRows, join_rows, joined_bytes};
use crate::error::{Error, Result};
use crate::plan::{Action, not_allowed};
use crate::ragged::{PaddedTensors, check_ragged, chunks_to_padded_group, chunks_to_ragged};
use crate::spec::{Conversion, CopyMode, Group, GroupForm, Options, Pad, all_or_errors, select};

/// A group whose rows differ in length, or are passed through as Arrow.
#[derive(Clone, Debug)]
pub(crate) struct VariedGroup {
    pub(crate) name: String,
    pub(crate) group: Group,
    /// The positions of its columns in the struct.
    positions: Vec<usize>,
    /// What is converted: the column of lists, or the struct of the columns.
    pub(crate) field: FieldRef,
    /// The options of its elements.
    pub(crate) options: Options,
}

impl Conversion {
    /// Returns the groups of the selection whose rows differ in length, or are passed through as Arrow.
    ///
    /// # Errors
    /// For whatever no data of the type makes possible. Names all such groups.
    pub(crate) fn varied(&self, field: &FieldRef) -> Result<Vec<VariedGroup>> {
        let group = |(name, group): (&str, &Group)| {
            let made = VariedGroup::new(self, field, name, group);
            made.map_err(|error| error.in_group(name))
        };
        all_or_errors(self.selection.varied().map(group))
    }
}

impl VariedGroup {
    pub(super) fn new(conversion: &Conversion, field: &FieldRef, name: &str, group: &Group) -> Result<Self> {
        let selected = select(field, Some(group.columns()))?;
        let positions = selected.iter().map(|(position, _)| *position).collect();
        let (field, options) = match (group.form(), selected.as_slice()) {
            (GroupForm::Arrow, columns) => (batch_field(field, columns), Options::default()),
            (_, [(_, column)]) => (rows_field(column, group), conversion.of_in(name, group, column.name())),
            _ => return Err(Error::internal("rows of several columns")),
        };
        let made = Self { name: name.to_owned(), group: group.clone(), positions, field, options };
        if let Some(pad) = made.rows()? {
            check_ragged(&made.field, pad, &made.options.clone().copy(CopyMode::IfNeeded))?;
        }
        Ok(made)
    }

    /// Returns how rows are padded, or that they are not; `None` of an Arrow batch.
    ///
    /// # Errors
    /// For a group of another form.
    fn rows(&self) -> Result<Option<Option<Pad>>> {
        match self.group.form() {
            GroupForm::Padded(pad) => Ok(Some(Some(pad))),
            GroupForm::Ragged => Ok(Some(None)),
            GroupForm::Arrow => Ok(None),
            GroupForm::Column | GroupForm::Matrix => Err(Error::internal("a tensor is no group of varied rows")),
        }
    }

    /// Refuses a result that is a copy of any rows, where no copy is allowed.
    ///
    /// # Errors
    /// Names the group.
    #[cfg(feature = "python")]
    pub(crate) fn require_view(&self) -> Result<()> {
        let required = match self.rows()? {
            Some(pad) => check_ragged(&self.field, pad, &self.options.clone().copy(CopyMode::Never)),
            None => Ok(()),
        };
        required.map_err(|error| error.in_group(&self.name))
    }

    /// Returns whether rows have to be copied together before they are converted, although they lie in one array: the values of list
    /// views are those of the whole child.
    pub(crate) fn joins_always(&self) -> bool {
        let is_view = matches!(self.field.data_type(), DataType::ListView(_) | DataType::LargeListView(_));
        is_view && self.group.form() == GroupForm::Ragged
    }

    /// Returns what is converted of an array of structs: the column of lists, or a struct of the columns, over the same memory but for
    /// offsets of fixed-size lists.
    ///
    /// # Errors
    /// If the nulls of the struct cannot be those of a column, or memory for offsets cannot be had.
    pub(crate) fn part_of(&self, array: &DeviceArray) -> Result<DeviceArray> {
        let part = match (self.group.form(), self.positions.as_slice()) {
            (GroupForm::Arrow, positions) => array.project(positions, &self.field),
            (_, [position]) => {
                let column = array.column(*position)?;
                match column.field().data_type() {
                    DataType::FixedSizeList(_, _) => column.fixed_as_lists(&self.field),
                    _ => Ok(column),
                }
            }
            _ => Err(Error::internal("rows of several columns")),
        };
        part.map_err(|error| error.in_group(&self.name))
    }

    /// Converts rows of these parts, one after the other: the result, and then its validity and its lengths, where they are asked
    /// for.
    ///
    /// # Errors
    /// As [`Conversion::to_results`].
    pub(crate) fn convert(&self, parts: &[DeviceArray], copy: CopyMode) -> Result<Vec<Converted>> {
        let made = match self.rows()? {
            Some(Some(pad)) => self.padded(parts, pad),
            Some(None) => chunks_to_ragged(&self.field, parts, &self.options).map(|rows| vec![rows.into()]),
            None => self.batch(parts, copy).map(|batch| vec![Converted::Arrow(batch)]),
        };
        made.map_err(|error| error.in_group(&self.name))
    }

    fn padded(&self, parts: &[DeviceArray], pad: Pad) -> Result<Vec<Converted>> {
        let has_lengths = self.group.lengths_name().is_some();
        let PaddedTensors { matrix, validity, lengths } =
            chunks_to_padded_group(&self.field, parts, pad, &self.options, has_lengths)?;
        let validity = self.group.validity_name().map(|_| validity);
        Ok(std::iter::once(matrix).chain(validity).chain(lengths).map(Converted::Tensor).collect())
    }

    /// The rows of these parts as one batch: that of a single part, or a copy.
    fn batch(&self, parts: &[DeviceArray], copy: CopyMode) -> Result<DeviceArray> {
        if let (Some(part), true) = (single(parts), copy != CopyMode::Always) {
            return Ok(part.clone());
        }
        if copy == CopyMode::Never && !parts.is_empty() {
            return Err(not_allowed(format!("a copy is needed ({})", Action::JoinRows)));
        }
        let rows: Vec<_> = parts.iter().map(|part| SomeRows { array: part, range: 0..part.len() }).collect();
        join_rows(&self.field, &rows)
    }

    /// Returns what would be done to make the batch of these parts, and how many bytes that moves; `None` for the part itself.
    ///
    /// # Errors
    /// If no copy is allowed, or the parts cannot be joined.
    pub(super) fn batch_action(&self, parts: &[DeviceArray], copy: CopyMode) -> Result<Option<(Action, usize)>> {
        if single(parts).is_some() && copy != CopyMode::Always {
            return Ok(None);
        }
        if copy == CopyMode::Never && !parts.is_empty() {
            return Err(not_allowed(format!("a copy is needed ({})", Action::JoinRows)));
        }
        let rows: Vec<_> = parts.iter().map(|part| SomeRows { array: part, range: 0..part.len() }).collect();
        Ok(Some((Action::JoinRows, joined_bytes(&rows)?)))
    }
}

/// The only part that has rows, or the first one.
fn single(parts: &[DeviceArray]) -> Option<&DeviceArray> {
    let mut filled = parts.iter().filter(|part| !part.is_empty());
    match (filled.next(), filled.next()) {
        (first, None) => first.or(parts.first()),
        _ => None,
    }
}

/// The field of a batch of these columns.
fn batch_field(field: &FieldRef, columns: &[(usize, &FieldRef)]) -> FieldRef {
    let columns = columns.iter().map(|(_, column)| FieldRef::clone(column)).collect();
    Arc::new(field.as_ref().clone().with_data_type(DataType::Struct(columns)))
}

/// The field of a column whose rows are padded: fixed-size lists are lists then.
fn rows_field(column: &FieldRef, group: &Group) -> FieldRef {
    match (column.data_type(), group.form()) {
        (DataType::FixedSizeList(item, _), GroupForm::Padded(_)) => {
            let lists = Field::new(column.name(), DataType::LargeList(item.clone()), column.is_nullable());
            Arc::new(lists)
        }
        _ => column.clone(),
    }
}
