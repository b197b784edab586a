//! [`PathColumns`]: the columns of a conversion that names fields of structs by their path, such as "s.a".

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields};

use super::select::other_names;
use super::{Conversion, Selection, is_of_structs, require_columns};
use crate::error::{Error, Remedy, Result};

/// The columns that a conversion names, of which some are fields of structs: a struct type with each of them as a column, and where
/// they are in the source.
#[derive(Debug)]
pub(crate) struct PathColumns {
    source: FieldRef,
    field: FieldRef,
    positions: Vec<Vec<usize>>,
}

/// A field that a path leads to.
struct FieldAtPath {
    positions: Vec<usize>,
    field: FieldRef,
    is_nullable: bool,
}

impl PathColumns {
    /// Returns the columns of these names; `None` if no name is a path. `keys` may name something else than a column.
    ///
    /// # Errors
    /// For each path that leads to no field, and then for each other name that does not exist.
    fn new(source: &FieldRef, names: &[&str], keys: &[&str]) -> Result<Option<Self>> {
        let DataType::Struct(fields) = source.data_type() else { return Ok(None) };
        let own: HashSet<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        let (mut paths, mut missing, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        let mut known = HashSet::new();
        for name in names.iter().filter(|name| !own.contains(*name) && known.insert(**name)) {
            match find(fields, name) {
                None => missing.push(*name),
                Some(Ok(found)) => paths.push((*name, found)),
                Some(Err(error)) => errors.push(error.in_column(name)),
            }
        }
        if paths.is_empty() && errors.is_empty() {
            return Ok(None);
        }
        errors.extend(require_columns(source, missing).err());
        if let Some(error) = Error::of_columns(errors) {
            return Err(error);
        }
        let named: HashSet<&str> = names.iter().chain(keys).copied().collect();
        let kept = fields.iter().enumerate().filter(|(_, field)| named.contains(field.name().as_str()));
        let (mut columns, mut positions): (Vec<FieldRef>, Vec<Vec<usize>>) =
            kept.map(|(position, field)| (field.clone(), vec![position])).unzip();
        for (name, found) in paths {
            let field = Field::clone(&found.field).with_name(name).with_nullable(found.is_nullable);
            columns.push(Arc::new(field));
            positions.push(found.positions);
        }
        let field = Field::clone(source).with_data_type(DataType::Struct(columns.into()));
        Ok(Some(Self { source: source.clone(), field: Arc::new(field), positions }))
    }

    /// Returns columns of a struct type, as a struct type of these alone; `None` for any other type, and where a position is none of a column.
    #[cfg(feature = "python")]
    pub(crate) fn of_columns(source: &FieldRef, positions: impl IntoIterator<Item = usize>) -> Option<Self> {
        let DataType::Struct(fields) = source.data_type() else { return None };
        let column = |position: usize| Some((fields.get(position)?.clone(), vec![position]));
        let columns = positions.into_iter().map(column).collect::<Option<Vec<_>>>()?;
        let (columns, positions): (Vec<FieldRef>, Vec<Vec<usize>>) = columns.into_iter().unzip();
        let field = Field::clone(source).with_data_type(DataType::Struct(columns.into()));
        Some(Self { source: source.clone(), field: Arc::new(field), positions })
    }

    /// Returns the type whose fields the paths name.
    pub(crate) fn source(&self) -> &FieldRef {
        &self.source
    }

    /// Returns the struct type of the columns.
    pub(crate) fn field(&self) -> &FieldRef {
        &self.field
    }

    /// Returns the positions of each column: in the source, and then in the struct before.
    pub(crate) fn positions(&self) -> impl Iterator<Item = &[usize]> {
        self.positions.iter().map(Vec::as_slice)
    }
}

impl Conversion {
    /// Returns the columns that the conversion names, where some are fields of structs in data of this type.
    ///
    /// # Errors
    /// For paths that lead to no field; tells all of them.
    pub(crate) fn paths(&self, field: &FieldRef) -> Result<Option<Arc<PathColumns>>> {
        if matches!(self.selection, Selection::Whole(None) | Selection::Each(None)) {
            return Ok(None);
        }
        let mut names = self.names_of_columns().chain(self.names_of_shared_options());
        if !names.any(|name| name.contains('.')) {
            return Ok(None);
        }
        // A thread that is ending remembers nothing any more.
        let last = LAST.try_with(|last| last.borrow().clone()).ok().flatten();
        if let Some(last) = last.filter(|last| Arc::ptr_eq(&last.field, field) && last.conversion == *self) {
            return Ok(last.paths.clone());
        }
        let is_group = |name: &&str| self.selection.names().any(|group| group == *name);
        let (keys, of_elements): (Vec<&str>, Vec<&str>) = self.names_of_shared_options().partition(is_group);
        let names: Vec<&str> = self.names_of_columns().chain(of_elements).collect();
        let paths = PathColumns::new(field, &names, &keys)?.map(Arc::new);
        let last = LastPaths { conversion: self.clone(), field: field.clone(), paths: paths.clone() };
        let _ = LAST.try_with(|known| known.replace(Some(Arc::new(last))));
        Ok(paths)
    }

    /// Returns the type that the conversion reads of data of this type: that of [`PathColumns`], if it names fields of structs.
    ///
    /// # Errors
    /// As [`Conversion::paths`].
    pub(crate) fn type_at_paths<'a>(&self, field: &'a FieldRef) -> Result<Cow<'a, FieldRef>> {
        Ok(self.paths(field)?.map_or(Cow::Borrowed(field), |paths| Cow::Owned(paths.field().clone())))
    }

    /// Returns whether a name may be a path, in data of which only the names of the columns are known.
    #[cfg(feature = "python")]
    pub(crate) fn may_have_paths(&self, field: &FieldRef) -> bool {
        let DataType::Struct(fields) = field.data_type() else { return false };
        let mut names = self.names_of_columns().chain(self.names_of_shared_options());
        names.any(|name| fields.find(name).is_none() && start_of(fields, name).is_some())
    }

    /// The names of columns, of the selection and of options that groups do not have.
    fn names_of_columns(&self) -> impl Iterator<Item = &str> {
        self.selection.columns().chain(self.names_of_options())
    }
}

/// Follows a path through structs; `None` if it starts with no column.
fn find(fields: &Fields, path: &str) -> Option<Result<FieldAtPath>> {
    start_of(fields, path).map(|_| follow(fields, path))
}

/// The longest name of a field that a path of several names starts with, and the rest of the path.
fn start_of<'a>(fields: &Fields, path: &'a str) -> Option<(&'a str, &'a str)> {
    let mut cuts = path.rmatch_indices('.').filter_map(|(dot, _)| Some((path.get(..dot)?, path.get(dot + 1..)?)));
    cuts.find(|(start, _)| fields.find(start).is_some())
}

fn follow(fields: &Fields, path: &str) -> Result<FieldAtPath> {
    let (mut fields, mut rest, mut positions, mut is_nullable) = (fields, path, Vec::new(), false);
    loop {
        let start = if fields.find(rest).is_some() { None } else { start_of(fields, rest) };
        let name = start.map_or(rest, |(start, _)| start);
        let before = path.strip_suffix(rest).unwrap_or_default().trim_end_matches('.');
        let Some((position, field)) = fields.find(name) else {
            let reason = format!("column {before:?} has no field {name:?}");
            let names = fields.iter().map(|field| field.name().as_str());
            return Err(Error::argument(reason).remedy_is(other_names(name, names, "its fields are")));
        };
        if fields.iter().filter(|field| field.name() == name).count() > 1 {
            let reason = format!("more than one field of column {before:?} is called {name:?}");
            return Err(Error::argument(reason).remedy_is("rename one of them"));
        }
        positions.push(position);
        is_nullable = is_nullable || field.is_nullable();
        let Some((_, after)) = start else { return Ok(FieldAtPath { positions, field: field.clone(), is_nullable }) };
        let DataType::Struct(inner) = field.data_type() else {
            let column = path.strip_suffix(after).and_then(|column| column.strip_suffix('.')).unwrap_or(name);
            let reason = format!("column {column:?} is of type {}, which has no fields by name", field.data_type());
            let error = Error::argument(reason);
            return Err(match is_of_structs(field.data_type()) {
                true => error.remedy_is(Remedy::FieldsOfLists),
                false => error.remedy_is(format!("name {column:?} itself, or a field of a struct")),
            });
        };
        (fields, rest) = (inner, after);
    }
}

/// The columns of a conversion, and what they were found from.
struct LastPaths {
    conversion: Conversion,
    field: FieldRef,
    paths: Option<Arc<PathColumns>>,
}

/// Forgets this thread's last columns.
#[cfg(feature = "python")]
pub(crate) fn forget_paths() {
    let last = LAST.try_with(RefCell::take);
    drop(last);
}

thread_local! {
    /// The last columns on this thread: the batches of a stream share their field.
    static LAST: RefCell<Option<Arc<LastPaths>>> = const { RefCell::new(None) };
}

#[cfg(test)]
mod tests {
    use arrow_schema::TimeUnit;

    use super::*;
    use crate::error::ErrorKind;
    use crate::spec::{DecimalMode, DictionaryMode, PerColumn};

    fn structs(name: &str, fields: Vec<Field>) -> Field {
        Field::new(name, DataType::Struct(fields.into()), false)
    }

    fn number(name: &str) -> Field {
        Field::new(name, DataType::Int32, false)
    }

    #[test]
    fn a_field_is_nullable_if_it_or_a_struct_around_it_is() {
        for nullable in 0..8 {
            let [of_outer, of_inner, of_leaf] = [1, 2, 4].map(|bit| nullable & bit != 0);
            let inner = structs("t", vec![number("a").with_nullable(of_leaf)]).with_nullable(of_inner);
            let table = Arc::new(structs("", vec![structs("s", vec![inner]).with_nullable(of_outer)]));
            let paths = Conversion::default().columns(["s.t.a"]).paths(&table).unwrap().unwrap();
            let DataType::Struct(columns) = paths.field().data_type() else { panic!("no columns") };
            assert_eq!(columns[0].is_nullable(), nullable != 0, "{table:?}");
        }
    }

    #[test]
    fn paths_that_do_not_lead_to_one_field_are_refused() {
        let table = |fields: &[&str]| {
            let fields = fields.iter().map(|name| number(name)).collect();
            Arc::new(structs("", vec![structs("s", fields)]))
        };
        for (fields, path, reason) in [
            (&["a", "a"][..], "s.a", "more than one field of column \"s\" is called \"a\""),
            (&["a"], "s.a.b", "column \"s.a\" is of type Int32, which has no fields by name"),
            (&["a"], "s.b", "column \"s\" has no field \"b\""),
        ] {
            let error = Conversion::default().columns([path]).check(&table(fields)).unwrap_err();
            assert_eq!((error.kind(), error.column(), error.reason()), (ErrorKind::Argument, Some(path), reason));
        }
    }

    #[test]
    fn options_beside_paths_may_name_any_column() {
        let time = Field::new("t", DataType::Timestamp(TimeUnit::Second, None), false);
        let table = Arc::new(structs("", vec![structs("s", vec![number("a")]), time]));
        for name in ["t", "u"] {
            let conversion = Conversion::default().columns(["s.a"]);
            for conversion in [
                conversion.clone().unit(PerColumn::named([(name, Some(TimeUnit::Second))])),
                conversion.clone().length(PerColumn::named([(name, Some(2))])),
                conversion.clone().decimal(PerColumn::named([(name, DecimalMode::Unscaled)])),
                conversion.clone().dictionary(PerColumn::named([(name, Some(DictionaryMode::Values))])),
                conversion.clone().categories(PerColumn::named([(name, None)])),
            ] {
                let missing = conversion.check(&table).err();
                assert_eq!(missing.as_ref().and_then(Error::column), (name == "u").then_some("u"), "{conversion:?}");
            }
        }
    }
}
