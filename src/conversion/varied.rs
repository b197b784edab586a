//! [`VariedGroup`]: a group whose rows differ in length, or are passed through as Arrow, and what it is made of.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};

use super::converted::Converted;
use super::planned_rows::{PlannedBatch, PlannedRows};
use crate::arrow::DeviceArray;
use crate::error::{Error, Remedy, Result};
#[cfg(feature = "python")]
use crate::ragged::lengths_of_type;
use crate::ragged::{PlannedPadded, PlannedRagged, check_ragged, has_codes, has_lengths};
use crate::spec::{
    Conversion, CopyMode, Group, GroupForm, Options, Pad, Positions, all_or_errors, remedy_of_fixed_lists,
    require_row_major, require_values,
};

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
        let mut groups = self.selection.varied().peekable();
        if groups.peek().is_none() {
            return Ok(Vec::new());
        }
        let positions = Positions::new(field);
        let group = |(name, group): (&str, &Group)| {
            let positions = positions.as_ref().map_err(Clone::clone);
            let made = positions.and_then(|positions| VariedGroup::new(self, (field, positions), name, group));
            made.map_err(|error| error.in_group(name))
        };
        all_or_errors(groups.map(group)).map_err(Error::of_named_results)
    }
}

impl VariedGroup {
    pub(super) fn new(
        conversion: &Conversion,
        (field, positions): (&FieldRef, &Positions<'_>),
        name: &str,
        group: &Group,
    ) -> Result<Self> {
        let selected = positions.select(Some(group.columns()))?;
        let positions = selected.iter().map(|(position, _)| *position).collect();
        let (field, options) = match (group.form(), selected.as_slice()) {
            (GroupForm::Arrow, columns) => {
                let required = |(_, column): &(usize, &FieldRef)| {
                    require_values(column).map_err(|error| error.in_column(column.name()))
                };
                all_or_errors(columns.iter().map(required)).map(|_: Vec<()>| ())?;
                (batch_field(field, columns), Options::default())
            }
            (_, [(_, column)]) => {
                let mut options = conversion.of_in(name, group, column.name());
                // It is for the groups that make tensors of columns, and not for the items of these lists.
                let length = options.length.take().filter(|length| length.by_name);
                if let Some(length) = length.filter(|_| !conversion.selection.has_tensor_of(column.name())) {
                    let reason =
                        format!("the length {} is for columns of lists that become rows of one shape", length.value);
                    return Err(Error::argument(format!("{reason}, and this one is only padded or ragged"))
                        .remedy_is(Remedy::LeaveOutOfLength)
                        .in_column(column.name()));
                }
                (rows_field(column, group)?, options)
            }
            _ => return Err(Error::internal("rows of several columns")),
        };
        let made = Self { name: name.to_owned(), group: group.clone(), positions, field, options };
        if let Some(pad) = made.rows()? {
            check_ragged(&made.field, pad, &made.options.clone().copy(CopyMode::IfNeeded))?;
        }
        Ok(made)
    }

    /// Returns the names of the results.
    pub(super) fn result_names(&self) -> impl Iterator<Item = &str> {
        self.group.result_names(&self.name)
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
        let lengths = || {
            let part = self.group.lengths_name().map(|_| lengths_of_type(&self.field, CopyMode::Never));
            part.and_then(|part| part.error).map_or(Ok(()), Err)
        };
        required.and_then(|()| lengths()).map_err(|error| error.in_group(&self.name).of_named_results())
    }

    /// Returns whether elements become codes of a dictionary.
    ///
    /// # Errors
    /// As [`check_ragged`].
    pub(crate) fn has_codes(&self) -> Result<bool> {
        Ok(self.rows()?.is_some() && has_codes(&self.field, &self.options)?)
    }

    /// Returns whether rows have to be copied together before they are converted, although they lie in one array: the values of list
    /// views are those of the whole child.
    pub(crate) fn joins_always(&self) -> bool {
        has_lengths(&self.field) && self.group.form() == GroupForm::Ragged
    }

    /// Returns what is converted of an array of structs: the column of lists, or a struct of the columns, over the same memory but for
    /// offsets of fixed-size lists.
    ///
    /// # Errors
    /// If the nulls of the struct cannot be those of a column, or the allocation of offsets fails.
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

    /// Plans the rows of these arrays of structs. A copy that is not allowed is an error of [`PlannedRows::refuse`].
    ///
    /// # Errors
    /// As [`Conversion::plan`]. Names the group.
    pub(super) fn plan(&self, arrays: &[DeviceArray], copy: CopyMode) -> Result<PlannedRows> {
        let parts = arrays.iter().map(|array| self.part_of(array)).collect::<Result<Vec<_>>>()?;
        self.plan_parts(&parts, copy).map_err(|error| error.in_group(&self.name).of_named_results())
    }

    fn plan_parts(&self, parts: &[DeviceArray], copy: CopyMode) -> Result<PlannedRows> {
        match self.rows()? {
            Some(Some(pad)) => Ok(PlannedRows::Padded {
                rows: PlannedPadded::new(&self.field, parts, pad, &self.options)?,
                has_validity: self.group.validity_name().is_some(),
                has_lengths: self.group.lengths_name().is_some(),
            }),
            Some(None) => {
                let rows = PlannedRagged::new(&self.field, parts, &self.options)?;
                Ok(PlannedRows::Ragged(Box::new(rows)))
            }
            None => PlannedBatch::new(&self.field, parts, copy).map(PlannedRows::Arrow),
        }
    }

    /// Converts rows of these parts, one after the other: the result, and then its validity and its lengths, where they are asked
    /// for.
    ///
    /// # Errors
    /// As [`Conversion::to_results`].
    pub(crate) fn convert(&self, parts: &[DeviceArray], copy: CopyMode) -> Result<Vec<Converted>> {
        let made = self.plan_parts(parts, copy).and_then(PlannedRows::run);
        made.map_err(|error| error.in_group(&self.name).of_named_results())
    }
}

/// The field of a batch of these columns.
fn batch_field(field: &FieldRef, columns: &[(usize, &FieldRef)]) -> FieldRef {
    let columns = columns.iter().map(|(_, column)| FieldRef::clone(column)).collect();
    Arc::new(field.as_ref().clone().with_data_type(DataType::Struct(columns)))
}

/// The field of a column whose rows are padded: fixed-size lists of values that have a tensor form are lists then.
///
/// # Errors
/// For tensors in each row that do not lie in row-major order.
fn rows_field(column: &FieldRef, group: &Group) -> Result<FieldRef> {
    match (column.data_type(), group.form()) {
        (DataType::FixedSizeList(item, _), GroupForm::Padded(_))
            if remedy_of_fixed_lists(column.data_type()).is_none() =>
        {
            require_row_major(column)?;
            let lists = Field::new(column.name(), DataType::LargeList(item.clone()), column.is_nullable());
            Ok(Arc::new(lists))
        }
        _ => Ok(column.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Scalar;

    fn group(group: Group) -> VariedGroup {
        let item = |data_type: &DataType| Arc::new(Field::new("item", data_type.clone(), true));
        let codes = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let fields = [
            ("codes", DataType::List(item(&codes))),
            ("numbers", DataType::List(item(&DataType::Int8))),
            ("views", DataType::ListView(item(&DataType::Int8))),
        ];
        let fields = fields.map(|(name, data_type)| Field::new(name, data_type, true));
        let field = Arc::new(Field::new("", DataType::Struct(fields.to_vec().into()), false));
        VariedGroup::new(&Conversion::default(), (&field, &Positions::new(&field).unwrap()), "x", &group).unwrap()
    }

    fn padded(column: &str) -> Group {
        Group::padded(column, Pad::new(Scalar::Int(0)))
    }

    #[test]
    fn rows_of_codes_have_codes_and_batches_have_none() {
        for (own, has_codes) in [
            (Group::ragged("codes"), true),
            (padded("codes"), true),
            (Group::ragged("numbers"), false),
            (padded("numbers"), false),
            (Group::arrow(["codes"]), false),
        ] {
            assert_eq!(group(own.clone()).has_codes().unwrap(), has_codes, "{own:?}");
        }
    }

    #[test]
    fn only_ragged_rows_of_list_views_are_always_joined() {
        for (own, joins) in [
            (Group::ragged("views"), true),
            (padded("views"), false),
            (Group::arrow(["views"]), false),
            (Group::ragged("numbers"), false),
        ] {
            assert_eq!(group(own.clone()).joins_always(), joins, "{own:?}");
        }
    }
}
