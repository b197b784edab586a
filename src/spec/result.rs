//! [`ResultSpec`]: one result of a conversion, and what it is made of.

use std::sync::Arc;

use arrow_schema::FieldRef;

#[cfg(feature = "python")]
use super::MatrixOptions;
use super::group::{CallOptions, GroupOptions};
#[cfg(feature = "python")]
use super::possible::refuse_validity;
use super::select::Positions;
use super::{Group, MatrixSpec, Options, Spec, all_or_errors};
use crate::error::{Error, Result};

/// One result of a conversion.
#[derive(Clone, Debug)]
pub(crate) struct ResultSpec {
    /// The name of a group.
    pub(crate) group: Option<String>,
    /// The name of the result, where it is the validity of the group.
    pub(crate) validity: Option<String>,
    pub(crate) kind: ResultKind,
}

/// What a result is made of.
#[derive(Clone, Debug)]
pub(crate) enum ResultKind {
    /// Columns of a struct as a matrix.
    Matrix(Arc<MatrixSpec>),
    /// Which elements of columns of a struct are valid, as a matrix.
    Validity(Arc<MatrixSpec>),
    /// The column at a position of a struct, or the array itself, and the options that its spec was made of.
    Column { position: Option<usize>, spec: Spec, options: Options },
    /// Which elements of such a column are valid, in the shape of its elements.
    ColumnValidity { position: Option<usize>, spec: Spec },
}

impl ResultSpec {
    /// Returns the result of this kind that no group has.
    pub(crate) fn new(kind: ResultKind) -> Self {
        Self { group: None, validity: None, kind }
    }

    /// Returns the specs of all columns that the result is made of.
    pub(crate) fn specs(&self) -> impl Iterator<Item = &Spec> {
        let (one, all) = match &self.kind {
            ResultKind::Column { spec, .. } | ResultKind::ColumnValidity { spec, .. } => (Some(spec), &[][..]),
            ResultKind::Matrix(spec) | ResultKind::Validity(spec) => (None, spec.columns()),
        };
        one.into_iter().chain(all.iter().map(|(_, column)| column))
    }

    /// Names the group in an error, where there are groups.
    pub(crate) fn in_group(&self, error: Error) -> Error {
        match &self.group {
            Some(group) => error.in_group(group),
            None => error,
        }
    }

    /// The name of the result: that of the group, or of the column; empty for a matrix.
    pub(crate) fn name(&self) -> &str {
        match (&self.validity, &self.group, &self.kind) {
            (Some(name), _, _) | (None, Some(name), _) => name,
            (None, None, ResultKind::Column { spec, .. } | ResultKind::ColumnValidity { spec, .. }) => {
                spec.field().name()
            }
            (None, None, ResultKind::Matrix(_) | ResultKind::Validity(_)) => "",
        }
    }

    /// Whether this is the validity of the columns of the result before it, and reads no others: [`MatrixSpec::is_read_with`].
    pub(crate) fn is_read_with(&self, before: Option<&Self>) -> bool {
        match (before.map(|before| &before.kind), &self.kind) {
            (Some(ResultKind::Matrix(values)), ResultKind::Validity(bools)) => bools.is_read_with(values),
            _ => false,
        }
    }

    /// Refuses a result that is a copy of any rows, where no copy is allowed. `options` are those of a column, `matrix` those of a matrix.
    ///
    /// # Errors
    /// Names the column or the group.
    #[cfg(feature = "python")]
    pub(crate) fn require_view(&self, matrix: &MatrixOptions, options: impl Fn(&str) -> Options) -> Result<()> {
        let required = match &self.kind {
            ResultKind::Column { spec, options, .. } => spec.require_view(options, false),
            ResultKind::Validity(_) | ResultKind::ColumnValidity { .. } => refuse_validity(matrix.copy),
            ResultKind::Matrix(spec) => {
                let column = |(_, column): &(usize, Spec)| column.require_view(&options(column.field().name()), true);
                all_or_errors(spec.columns().iter().map(column)).and_then(|_| spec.require_view(matrix))
            }
        };
        required.map_err(|error| self.in_group(error))
    }
}

/// Returns the results of named groups whose rows have one shape: the tensor of each, and its validity after it where it is asked for.
/// `options` are those of a column, but for the ones that groups may have.
///
/// # Errors
/// As [`CallOptions::check`], [`MatrixSpec::new`] and [`Spec::new`]. Names the group.
pub(crate) fn group_results(
    field: &FieldRef,
    groups: &[(String, Group)],
    call: CallOptions<'_>,
    options: impl Fn(&str) -> Options,
) -> Result<Vec<ResultSpec>> {
    let positions = Positions::new(field);
    group_results_at((field, positions.as_ref()), groups, call, options)
}

/// As [`group_results`], where the positions of the columns are known, or why there are none.
pub(super) fn group_results_at(
    (field, positions): (&FieldRef, std::result::Result<&Positions<'_>, &Error>),
    groups: &[(String, Group)],
    call: CallOptions<'_>,
    options: impl Fn(&str) -> Options,
) -> Result<Vec<ResultSpec>> {
    call.check(groups)?;
    let result = |(name, group): &(String, Group)| {
        let kinds = positions.map_err(Clone::clone).and_then(|positions| {
            let own = call.of(name, group);
            let kind = group_result((field, positions), group, own, &options)?;
            let validity = group.validity_name().map(|_| validity_of(&kind)).transpose()?;
            Ok((kind, validity))
        });
        let (kind, validity) = kinds.map_err(|error| error.in_group(name))?;
        let of_group = |kind, validity| ResultSpec { group: Some(name.clone()), validity, kind };
        let validity = validity.map(|kind| of_group(kind, group.validity_name().map(str::to_owned)));
        Ok(std::iter::once(of_group(kind, None)).chain(validity))
    };
    let fixed = groups.iter().filter(|(_, group)| group.has_fixed_rows());
    let results = all_or_errors(fixed.map(result)).map_err(Error::of_named_results)?;
    Ok(results.into_iter().flatten().collect())
}

fn group_result(
    (field, positions): (&FieldRef, &Positions<'_>),
    group: &Group,
    own: GroupOptions<'_>,
    options: impl Fn(&str) -> Options,
) -> Result<ResultKind> {
    let columns = group.columns();
    let selected = positions.select(Some(columns))?;
    if group.is_matrix() {
        let options = |column: &str| own.of_column(column, options(column));
        let spec = MatrixSpec::of_selected(field, selected, Some(columns), options, own.dtype())?;
        return Ok(ResultKind::Matrix(Arc::new(spec)));
    }
    let (position, column) = selected.first().copied().ok_or_else(|| Error::internal("no such column"))?;
    let options = own.of_column(column.name(), options(column.name()));
    Ok(ResultKind::Column { position: Some(position), spec: Spec::new(column, &options)?, options })
}

/// Returns the validity of a group's result.
///
/// # Errors
/// For complex numbers, of which each part has a validity.
fn validity_of(kind: &ResultKind) -> Result<ResultKind> {
    match kind {
        ResultKind::Column { position, spec, .. } => {
            Ok(ResultKind::ColumnValidity { position: *position, spec: spec.validity()? })
        }
        ResultKind::Matrix(spec) => Ok(ResultKind::Validity(Arc::new(spec.validity()?))),
        _ => Err(Error::internal("only a column and a matrix have a validity")),
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field};

    use super::*;
    use crate::dtype::DType;

    #[test]
    fn only_the_validity_of_the_same_stored_columns_is_read_with_a_matrix() {
        let lists = DataType::new_fixed_size_list(DataType::Int32, 2, true);
        let codes = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Int32));
        let types = [("a", DataType::Int32), ("b", DataType::Int32), ("l", lists), ("d", codes)];
        let fields = types.map(|(name, data_type)| Field::new(name, data_type, true));
        let field = Arc::new(Field::new("", DataType::Struct(fields.into_iter().collect()), false));
        let matrix = |names: &[&str], dtype| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            MatrixSpec::new(&field, Some(&names), |_| Options::default(), dtype).unwrap()
        };
        let result = |kind| ResultSpec::new(kind);
        let values = |names, dtype| result(ResultKind::Matrix(Arc::new(matrix(names, dtype))));
        let validity = |names| result(validity_of(&ResultKind::Matrix(Arc::new(matrix(names, None)))).unwrap());
        assert!(validity(&["a", "l"]).is_read_with(Some(&values(&["a", "l"], Some(DType::Float64)))));
        assert!(!validity(&["a", "l"]).is_read_with(None));
        assert!(!validity(&["a", "l"]).is_read_with(Some(&validity(&["a", "l"]))));
        for others in [&["a"][..], &["a", "l", "b"], &["l", "a"], &["a", "b"]] {
            assert!(!validity(&["a", "l"]).is_read_with(Some(&values(others, None))), "{others:?}");
        }
        // Codes of a dictionary are stored, its values are decoded.
        assert!(validity(&["d"]).is_read_with(Some(&values(&["d"], None))));
        assert!(!validity(&["d"]).is_read_with(Some(&values(&["d"], Some(DType::Int32)))));
        assert!(!values(&["a"], None).is_read_with(Some(&values(&["a"], None))));
    }
}
