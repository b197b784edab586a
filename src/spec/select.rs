//! Selects columns of a struct type by name.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use arrow_schema::{DataType, FieldRef, Fields};

use crate::alloc::fallible;
use crate::error::{Error, Remedy, Result};

/// Returns columns of a struct type by name, each with its position; all if `columns` is `None`.
///
/// # Errors
/// If the type is no struct, or names do not exist or are not unique. Names all of them.
pub(crate) fn select<'a>(field: &'a FieldRef, columns: Option<&[String]>) -> Result<Vec<(usize, &'a FieldRef)>> {
    Positions::new(field)?.select(columns)
}

/// Refuses names that are not columns of a struct type.
///
/// # Errors
/// As [`select`].
pub(crate) fn require_columns<'a>(field: &FieldRef, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    Positions::new(field)?.require(names)
}

/// Returns the values of all results, or all of their errors as one.
///
/// # Errors
/// When one result is an error.
pub(crate) fn all_or_errors<T>(results: impl Iterator<Item = Result<T>>) -> Result<Vec<T>> {
    let mut found = fallible::with_room(results.size_hint().0)?;
    let mut errors = Vec::new();
    for result in results {
        match result {
            Ok(value) => found.push(value),
            Err(error) => errors.push(error),
        }
    }
    Error::of_columns(errors).map_or(Ok(found), Err)
}

/// Maps each name to its position among the columns of a struct; `None` for a name that several columns have.
pub(crate) struct Positions<'a> {
    fields: &'a Fields,
    by_name: HashMap<&'a str, Option<usize>>,
    missing: Cell<usize>,
}

impl<'a> Positions<'a> {
    /// Returns the positions of all names of a struct type, for several selections of its columns.
    ///
    /// # Errors
    /// When the type is no struct.
    pub(crate) fn new(field: &'a FieldRef) -> Result<Self> {
        struct_fields(field).map(Self::of)
    }

    /// Like [`select`].
    ///
    /// # Errors
    /// When a name does not exist or is not unique; tells all such names.
    pub(crate) fn select(&self, columns: Option<&[String]>) -> Result<Vec<(usize, &'a FieldRef)>> {
        match columns {
            Some(names) => all_or_errors(names.iter().map(|name| self.find(name))),
            None if self.by_name.len() == self.fields.len() => {
                let mut all = fallible::with_room(self.fields.len())?;
                all.extend(self.fields.iter().enumerate());
                Ok(all)
            }
            None => all_or_errors(self.fields.iter().map(|field| self.find(field.name()))),
        }
    }

    /// Like [`require_columns`].
    ///
    /// # Errors
    /// As [`Positions::select`].
    pub(crate) fn require<'b>(&self, names: impl IntoIterator<Item = &'b str>) -> Result<()> {
        let mut known = HashSet::new();
        let names = names.into_iter().filter(|name| known.insert(*name));
        all_or_errors(names.map(|name| self.find(name))).map(|_| ())
    }

    /// Whether a name is that of one column.
    pub(super) fn has(&self, name: &str) -> bool {
        matches!(self.by_name.get(name), Some(Some(_)))
    }

    fn of(fields: &'a Fields) -> Self {
        let mut by_name: HashMap<&str, Option<usize>> = HashMap::with_capacity(fields.len());
        for (index, field) in fields.iter().enumerate() {
            match by_name.entry(field.name()) {
                Entry::Vacant(entry) => drop(entry.insert(Some(index))),
                Entry::Occupied(mut entry) => drop(entry.insert(None)),
            }
        }
        Self { fields, by_name, missing: Cell::new(0) }
    }

    fn find(&self, name: &str) -> Result<(usize, &'a FieldRef)> {
        match self.by_name.get(name) {
            Some(Some(index)) => self.fields.get(*index).map(|field| (*index, field)).ok_or_else(|| self.missing(name)),
            Some(None) => Err(Error::argument("more than one column has this name")
                .remedy_is("rename one of them")
                .in_column(name)),
            None => Err(self.missing(name)),
        }
    }

    fn missing(&self, name: &str) -> Error {
        let names = || self.fields.iter().map(|field| field.name().as_str());
        self.missing.set(self.missing.get().saturating_add(1));
        let is_compared = self.missing.get() <= MOST_NAMES;
        let remedy = match is_compared {
            true => other_names(name, names(), "the columns are"),
            false => list(names(), "the columns are"),
        };
        if name.is_empty() {
            return Error::argument("there is no column with an empty name").remedy_is(remedy);
        }
        Error::argument("there is no such column").remedy_is(remedy).in_column(name)
    }
}

/// Returns a remedy for a name that does not exist: the one that the caller may have meant, or a list of those that do.
pub(super) fn other_names<'a>(name: &str, names: impl Iterator<Item = &'a str> + Clone, are: &str) -> String {
    nearest(name, names.clone()).map_or_else(|| list(names, are), |near| format!("did you mean {near:?}?"))
}

fn list<'a>(names: impl Iterator<Item = &'a str> + Clone, are: &str) -> String {
    let more = names.clone().count().saturating_sub(MOST_NAMES);
    let more = (more > 0).then(|| format!("and {more} more"));
    let text: Vec<String> = names.take(MOST_NAMES).map(|name| format!("{name:?}")).chain(more).collect();
    format!("{are} {}", text.join(", "))
}

/// The most columns that an error lists, and the most names that are compared with all others for it.
const MOST_NAMES: usize = 50;

/// The longest names that are compared letter by letter, because the work grows with the square.
const MOST_LETTERS: usize = 64;

/// Returns the name that the caller may have meant: the same in another case, or with at most a third of its letters
/// different.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let most = name.chars().count() / 3;
    let distance = |other: &&'a str| {
        let other = other.to_lowercase();
        match name.len().max(other.len()) <= MOST_LETTERS {
            true => edits(&lower, &other),
            false if lower == other => 0,
            false => usize::MAX,
        }
    };
    names
        .map(|other| (distance(&other), other))
        .filter(|(edits, _)| *edits <= most)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, other)| other)
}

/// The Levenshtein distance of two texts.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (line, a) in a.chars().enumerate() {
        let mut left = line.saturating_add(1);
        let mut diagonal = line;
        for (above, b) in row.iter_mut().zip(std::iter::once(None).chain(b.iter().map(Some))) {
            let Some(b) = b else {
                *above = left;
                continue;
            };
            let replaced = diagonal.saturating_add(usize::from(a != *b));
            diagonal = *above;
            left = replaced.min(above.saturating_add(1)).min(left.saturating_add(1));
            *above = left;
        }
    }
    row.last().copied().unwrap_or(0)
}

fn struct_fields(field: &FieldRef) -> Result<&Fields> {
    match field.data_type() {
        DataType::Struct(fields) => Ok(fields),
        other => Err(Error::argument(format!("an array of {other} has no columns")).remedy_is(Remedy::ColumnOfTable)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn edits_are_insertions_deletions_and_replacements() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "ab", 2),
            ("ab", "", 2),
            ("kitten", "sitting", 3),
            ("heigth", "height", 2),
            ("a", "a", 0),
        ] {
            assert_eq!(edits(a, b), expected, "{a:?} {b:?}");
            assert_eq!(edits(b, a), expected, "{b:?} {a:?}");
        }
    }

    fn table(names: &[&str]) -> FieldRef {
        let fields: Vec<_> = names.iter().map(|name| arrow_schema::Field::new(*name, DataType::Int8, true)).collect();
        Arc::new(arrow_schema::Field::new("", DataType::Struct(fields.into()), false))
    }

    #[test]
    fn a_name_that_is_missing_often_is_told_once() {
        let field = table(&["height"]);
        let told = |error: &Error| std::iter::once(error).chain(error.others()).map(Error::to_string).count();
        for name in ["z", ""] {
            let names = vec![name.to_owned(); 3];
            assert_eq!(told(&select(&field, Some(&names)).unwrap_err()), 1, "{name:?}");
            assert_eq!(told(&require_columns(&field, [name; 3]).unwrap_err()), 1, "{name:?}");
        }
        // A name that is told already is not compared again: names further on would not be.
        let names: Vec<String> = (0..30).map(|number| format!("heig{number:02}")).collect();
        let twice = || names.iter().chain(&names).map(String::as_str);
        let error = require_columns(&field, twice()).unwrap_err();
        assert_eq!((told(&error), error.to_string().matches("did you mean").count()), (30, 1));
    }

    #[test]
    fn fifty_missing_names_are_compared_with_the_columns() {
        let field = table(&["height"]);
        let names: Vec<String> = (0..MOST_NAMES + 2).map(|number| format!("heig{number:02}")).collect();
        let error = select(&field, Some(&names)).unwrap_err();
        let all: Vec<&Error> = std::iter::once(&error).chain(error.others()).collect();
        let is_compared = |error: &Error| error.remedy().unwrap().contains("did you mean \"height\"?");
        assert!(all[..50].iter().all(|error| is_compared(error)));
        assert_eq!(
            all[50..].iter().map(|error| error.remedy().unwrap()).collect::<Vec<_>>(),
            ["the columns are \"height\""; 2]
        );
    }

    #[test]
    fn the_nearest_name_is_near() {
        let names = ["height", "weight", "Label"];
        for (name, expected) in
            [("heigth", Some("height")), ("wieght", Some("weight")), ("label", Some("Label")), ("x", None), ("", None)]
        {
            assert_eq!(nearest(name, names.into_iter()), expected, "{name:?}");
        }
        let long = "x".repeat(1000);
        assert_eq!(nearest(&long, ["y".repeat(1000).as_str()].into_iter()), None);
    }
}
