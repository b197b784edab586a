//! [`Error`], the one error type: column, row, reason, and the remedy.

mod conversions;
mod counted;
mod foreign;
mod language;
mod remedy;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub(crate) use conversions::{from, try_from};
pub(crate) use counted::Counted;
pub(crate) use language::Language;
pub(crate) use remedy::Remedy;

/// The kind of an error. New kinds may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A foreign struct breaks its specification, or data the schema that it came with.
    Invalid,
    /// No conversion exists for this type, layout or device.
    Unsupported,
    /// A copy is needed, and not allowed.
    Copy,
    /// A null that the null policy refuses, or a policy that does not fit the dtype: NaN or a fill value that it cannot hold.
    Null,
    /// A value does not fit the requested type.
    Cast,
    /// The memory is on a device that cannot be reached, or not be converted to the requested one.
    Device,
    /// An option contradicts the data or another option.
    Argument,
    /// A foreign producer reported its own failure.
    Producer,
    /// Memory could not be allocated.
    Memory,
    /// A signal ended the call, or the producer of a stream reports that one ended its work, such as Python's
    /// `KeyboardInterrupt`.
    Interrupted,
    /// A bug in this crate: an invariant does not hold. The remedy says where to report it.
    Internal,
}

/// The reason why a conversion failed, with the column and the row if there is one, and the remedy if there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Details>);

#[derive(Clone, PartialEq, Eq)]
struct Details {
    kind: ErrorKind,
    column: Option<String>,
    row: Option<usize>,
    reason: String,
    remedy: Option<Remedy>,
    code: Option<i32>,
    source: Option<Cause>,
    shard: Option<usize>,
    others: Vec<Error>,
}

/// The cause of another error. Equal only to itself.
#[derive(Clone)]
struct Cause(Arc<dyn std::error::Error + Send + Sync>);

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Cause {}

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The remedy of bugs in this crate.
const REPORT: &str = concat!("this is a bug of arrow-dlpack: please report this at ", env!("CARGO_PKG_REPOSITORY"));

impl Error {
    pub(crate) fn new(kind: ErrorKind, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        let (column, row, remedy, code, source, shard) = (None, None, None, None, None, None);
        Self(Box::new(Details { kind, column, row, reason, remedy, code, source, shard, others: Vec::new() }))
    }

    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, reason)
    }

    /// Returns the error of a bug in this crate, whatever the data or the caller.
    #[cold]
    pub(crate) fn internal(reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, reason).remedy_is(REPORT)
    }

    pub(crate) fn unsupported(reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, reason)
    }

    pub(crate) fn argument(reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Argument, reason)
    }

    pub(crate) fn remedy_is(mut self, remedy: impl Into<Remedy>) -> Self {
        self.0.remedy = Some(remedy.into());
        self
    }

    /// Takes back that null rows become empty, where no row may.
    pub(crate) fn without_rows_filled(mut self) -> Self {
        if self.0.remedy == Some(Remedy::KeepRowsOrFill) {
            self.0.remedy = Some(Remedy::KeepRows);
        }
        self
    }

    /// Names the column, unless an inner one is named already or `column` is empty.
    pub(crate) fn in_column(mut self, column: &str) -> Self {
        if self.0.column.is_none() && !column.is_empty() {
            self.0.column = Some(column.to_owned());
        }
        self
    }

    /// Names the group of columns, unless a column is named.
    pub(crate) fn in_group(mut self, group: &str) -> Self {
        if self.0.column.is_none() {
            self.0.reason = format!("group {group:?}: {}", self.0.reason);
        }
        self
    }

    /// Names groups in the remedies of columns, for results that have names.
    pub(crate) fn of_named_results(mut self) -> Self {
        if let Some(column) = &self.0.column {
            self.0.remedy = self.0.remedy.take().map(|remedy| remedy.of_group(column));
        }
        self.0.others = std::mem::take(&mut self.0.others).into_iter().map(Self::of_named_results).collect();
        self
    }

    /// Names the shard of a source by its number.
    pub(crate) fn in_shard(mut self, shard: usize) -> Self {
        self.0.reason = format!("shard {shard}: {}", self.0.reason);
        self.0.shard = Some(shard);
        self
    }

    pub(crate) fn at_row(mut self, row: usize) -> Self {
        self.0.row = Some(row);
        self
    }

    /// Names an element of the values of ragged rows instead of a row.
    pub(crate) fn at_element(mut self, element: usize) -> Self {
        self.0.reason = format!("element {element} of the values: {}", self.0.reason);
        self.0.row = None;
        self
    }

    /// Counts the row, if one is named, from that many rows further ahead.
    pub(crate) fn behind(mut self, rows: usize) -> Self {
        self.0.row = self.0.row.map(|row| rows.saturating_add(row));
        self
    }

    /// Joins the errors of several columns into the first, whose message includes the others, each once. `None` for no
    /// errors.
    pub(crate) fn of_columns(errors: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut all = Vec::new();
        for mut error in errors {
            let others = std::mem::take(&mut error.0.others);
            all.push(error);
            all.extend(others);
        }
        let mut told = HashSet::new();
        let key = |error: &Self| (error.0.column.clone(), error.0.reason.clone(), error.0.remedy.clone(), error.row());
        all.retain(|error| told.insert(key(error)));
        let mut all = all.into_iter();
        let mut first = all.next()?;
        first.0.others.extend(all);
        Some(first)
    }

    /// Returns the error of this column alone.
    pub(crate) fn of_column(&self, column: &str) -> Option<Self> {
        let mut errors = std::iter::once(self).chain(self.others());
        let mut error = errors.find(|error| error.column() == Some(column))?.clone();
        error.0.others.clear();
        Some(error)
    }

    /// Keeps the errno of a producer's callback.
    pub(crate) fn with_code(mut self, code: i32) -> Self {
        self.0.code = Some(code);
        self
    }

    /// Keeps the cause of this error.
    pub(crate) fn caused_by(mut self, source: Arc<dyn std::error::Error + Send + Sync>) -> Self {
        self.0.source = Some(Cause(source));
        self
    }

    /// Returns whether both errors name a row, and this one's is lower.
    pub(crate) fn is_lower_than(&self, other: &Self) -> bool {
        self.row().zip(other.row()).is_some_and(|(row, other)| row < other)
    }

    /// Returns the error in the lowest row; the first one, if none is below that.
    pub(crate) fn lowest(errors: impl IntoIterator<Item = Self>) -> Option<Self> {
        errors.into_iter().reduce(|lowest, error| if error.is_lower_than(&lowest) { error } else { lowest })
    }

    /// Returns all results, or the error in the lowest row.
    pub(crate) fn lowest_or_all<T>(results: impl IntoIterator<Item = Result<T>>) -> Result<Vec<T>> {
        let (mut all, mut errors) = (Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(made) => all.push(made),
                Err(error) => errors.push(error),
            }
        }
        Self::lowest(errors).map_or(Ok(all), Err)
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the column's name, if the error belongs to a column.
    #[must_use]
    pub fn column(&self) -> Option<&str> {
        self.0.column.as_deref()
    }

    /// Returns the first offending row, counted from 0 over all chunks, if the error belongs to a row.
    #[must_use]
    pub fn row(&self) -> Option<usize> {
        self.0.row
    }

    /// Returns whether data and options alone cause the error, and not what else happens while they are converted.
    pub(crate) fn is_of_data(&self) -> bool {
        use ErrorKind::{Device, Internal, Interrupted, Memory, Producer};
        !matches!(self.0.kind, Device | Internal | Interrupted | Memory | Producer)
    }

    /// Returns the number of the shard, counted from 0 in the order given, if the error belongs to one of several. The
    /// reason begins with it.
    #[must_use]
    pub fn shard(&self) -> Option<usize> {
        self.0.shard
    }

    /// Returns the reason, without the column, the row or the remedy.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Returns what to pass or do instead, if something helps.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        self.remedy_in(Language::Rust)
    }

    /// As [`Error::remedy`], for a caller of this language.
    pub(crate) fn remedy_in(&self, language: Language) -> Option<String> {
        self.0.remedy.as_ref().map(|remedy| remedy.told_in(language).to_string())
    }

    /// Returns the errors of further columns.
    #[must_use]
    pub fn others(&self) -> &[Error] {
        &self.0.others
    }

    /// Returns the errno of a foreign producer's callback, if one failed.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.0.code
    }
}

/// Calls arrow-rs, and turns its panics into errors: it panics at some arrays that the format allows.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // Nothing reads the half-done state of the work: it owns its values, and they are dropped.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("no message");
        // The messages of the standard library and arrow-rs for sizes beyond the address space.
        let too_large = ["capacity overflow", "length overflow", "failed to round upto", "failed to create layout"];
        if too_large.iter().any(|said| text.contains(said)) {
            return Err(Error::new(ErrorKind::Memory, format!("more memory than there can be ({text})")));
        }
        Err(Error::unsupported(format!("arrow-rs cannot read or convert this array: {text}"))
            .remedy_is("make a plain copy of the data with its own library first"))
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.told_in(Language::Rust).fmt(f)
    }
}

/// The message of an error for a caller of one language.
struct ErrorText<'a>(&'a Error, Language);

impl fmt::Display for ErrorText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self(all, language) = self;
        // Columns with the same error share a line.
        let mut lines: Vec<(&Error, Vec<&str>)> = Vec::new();
        let (mut line_of, mut named) = (HashMap::new(), HashSet::new());
        for error in std::iter::once(all).chain(all.others()) {
            let Some(column) = error.column() else {
                lines.push((error, Vec::new()));
                continue;
            };
            let line = *line_of
                .entry((error.reason(), error.0.remedy.as_ref().map(Remedy::kind), error.row()))
                .or_insert_with(|| {
                    lines.push((error, Vec::new()));
                    lines.len() - 1
                });
            if let Some((_, columns)) = lines.get_mut(line).filter(|_| named.insert((line, column))) {
                columns.push(column);
            }
        }
        for (index, (error, columns)) in lines.iter().take(MOST_LINES).enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            error.line(columns, language, f)?;
        }
        match lines.len().saturating_sub(MOST_LINES) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// The most lines, and the most columns in a line, of a message about several columns.
const MOST_LINES: usize = 20;

impl Error {
    /// The message for a caller of this language.
    pub(crate) fn told_in(&self, language: Language) -> impl fmt::Display {
        ErrorText(self, language)
    }

    fn line(&self, columns: &[&str], language: Language, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match columns {
            [] => {}
            [column] => write!(f, "column {column:?}")?,
            columns => {
                let named: Vec<String> = columns.iter().take(MOST_LINES).map(|column| format!("{column:?}")).collect();
                write!(f, "columns {}", named.join(", "))?;
                if columns.len() > MOST_LINES {
                    write!(f, " and {} more", columns.len() - MOST_LINES)?;
                }
            }
        }
        match (columns, self.row()) {
            ([], Some(row)) => write!(f, "row {row}: ")?,
            (_, Some(row)) => write!(f, ", row {row}: ")?,
            ([], None) => {}
            (_, None) => f.write_str(": ")?,
        }
        f.write_str(self.reason())?;
        match &self.0.remedy {
            Some(remedy) => write!(f, "; {}", remedy.told_in(language)),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} error: {self}", self.kind())
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source.0.as_ref() as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_column_row_reason_and_remedy() {
        let error = Error::new(ErrorKind::Null, "2 nulls").at_row(7).in_column("x").remedy_is("pass nulls=\"nan\"");
        assert_eq!(error.to_string(), "column \"x\", row 7: 2 nulls; pass nulls=\"nan\"");
        assert_eq!((error.column(), error.row(), error.kind()), (Some("x"), Some(7), ErrorKind::Null));
    }

    #[test]
    fn what_happens_beside_the_data_is_no_error_of_the_data() {
        use ErrorKind::{
            Argument, Cast, Copy, Device, Internal, Interrupted, Invalid, Memory, Null, Producer, Unsupported,
        };
        for (kinds, expected) in [
            (&[Argument, Cast, Copy, Invalid, Null, Unsupported][..], true),
            (&[Device, Internal, Interrupted, Memory, Producer], false),
        ] {
            assert!(kinds.iter().all(|kind| Error::new(*kind, "").is_of_data() == expected), "{kinds:?}");
        }
    }

    #[test]
    fn a_bug_of_ours_says_where_to_report_it() {
        let error = Error::internal("a block was lost");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(
            error.to_string().ends_with(concat!("please report this at ", env!("CARGO_PKG_REPOSITORY"))),
            "{error}"
        );
    }

    #[test]
    fn a_size_beyond_the_address_space_is_an_error_of_memory() {
        let kind_of = |allocate: fn()| {
            let allocate = || {
                allocate();
                Ok(())
            };
            catch_panic(allocate).unwrap_err().kind()
        };
        for allocate in [
            || drop(Vec::<u64>::with_capacity(usize::MAX)),
            || drop(arrow_buffer::MutableBuffer::with_capacity(usize::MAX)),
            || drop(arrow_buffer::MutableBuffer::with_capacity(usize::MAX / 64 * 64)),
            || arrow_buffer::MutableBuffer::from_len_zeroed(1).reserve(usize::MAX),
        ] {
            assert_eq!(kind_of(allocate), ErrorKind::Memory);
        }
    }

    #[test]
    fn a_panic_is_an_error() {
        let error = catch_panic::<()>(|| panic!("out of {}", "range")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.reason().ends_with("out of range"), "{error}");
        assert_eq!(catch_panic(|| Ok(1)), Ok(1));
    }

    #[test]
    fn the_message_of_several_columns_names_each_once() {
        let error = |column: &str, reason: &str| Error::invalid(reason).remedy_is("leave it out").in_column(column);
        let all = Error::of_columns([error("a", "is text"), error("b", "is a map"), error("c", "is text")]).unwrap();
        assert_eq!(
            all.to_string(),
            "columns \"a\", \"c\": is text; leave it out\ncolumn \"b\": is a map; leave it out"
        );
        assert_eq!((all.column(), all.others().len()), (Some("a"), 2));
        assert_eq!(Error::of_columns([error("a", "is text")]), Some(error("a", "is text")));
        assert_eq!(Error::of_columns([]), None);
    }

    #[test]
    fn a_message_of_many_columns_ends() {
        // Enough columns that quadratic work would take minutes.
        const COLUMNS: usize = if cfg!(miri) { 60 } else { 200_000 };
        let many = |reason: &dyn Fn(usize) -> String| {
            let error = |column: usize| Error::invalid(reason(column)).in_column(&format!("c{column}"));
            Error::of_columns((0..COLUMNS).map(error)).unwrap().to_string()
        };
        let rest = COLUMNS - 20;
        assert!(many(&|_| "is text".to_owned()).ends_with(&format!("\"c19\" and {rest} more: is text")));
        assert!(many(&|column| format!("{column} is wrong")).ends_with(&format!("19 is wrong\nand {rest} more")));
    }

    #[test]
    fn the_narrowest_column_wins_and_an_unnamed_one_is_not_named() {
        assert_eq!(Error::invalid("r").in_column("inner").in_column("outer").column(), Some("inner"));
        assert_eq!(Error::invalid("r").in_column("").to_string(), "r");
    }
}
