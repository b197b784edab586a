//! [`Categories`]: the values that a column may have, and the code of each.

mod marks;
mod short_texts;
mod slots;
mod table;
mod value_kind;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::types::{BinaryType, ByteArrayType, LargeBinaryType, LargeUtf8Type, Utf8Type};
use arrow_array::{Array, ArrayRef, GenericByteArray, Int64Array, UInt64Array};
use arrow_buffer::{ArrowNativeType, Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;

pub(crate) use short_texts::{TextWords, WordPair};
pub(crate) use slots::{Slots, Visit, visit};
pub(crate) use value_kind::{Key, ValueKind, leaf_of};

use crate::alloc::fallible;
use crate::error::{Error, Remedy, Result};
use short_texts::Finder;
use table::CategoryTable;

/// A fixed vocabulary: the code of a value is its position in it. Cloning shares it.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::StringArray;
/// use arrow_dlpack::{Categories, Conversion};
///
/// let carriers = Categories::new(Arc::new(StringArray::from(vec!["AA", "DL", "UA"])))?.unknown(3);
/// let column = StringArray::from(vec!["UA", "AA", "XX"]);
/// let codes = Conversion::default().categories(carriers).to_tensor(&column)?;
/// assert_eq!(codes.as_slice::<i32>()?, [2, 0, 3]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
#[derive(Clone)]
pub struct Categories {
    vocabulary: Arc<Vocabulary>,
    /// The code of other values, which are an error without one.
    unknown: Option<i32>,
}

struct Vocabulary {
    values: ArrayRef,
    table: CategoryTable,
    unknowns: Mutex<UnknownValues>,
}

/// Values that were looked up and not found, for the error of the row that has one.
#[derive(Default)]
struct UnknownValues {
    texts: Vec<String>,
    positions: HashMap<String, usize>,
}

/// The most values that are kept for errors, and the most letters of each.
const MOST_UNKNOWN: usize = if cfg!(miri) { 40 } else { 1024 };
const MOST_LETTERS: usize = 80;

/// Looks values of arrays up.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    categories: &'a Categories,
    short: Option<Finder<'a>>,
}

impl Lookup<'_> {
    /// Returns the code of an array's value, as [`Categories::code`]; `None` if the array does not have it.
    #[inline(always)]
    pub(crate) fn code_at<'a, S: Slots<'a>>(self, slots: S, slot: usize) -> Option<i32> {
        if !S::HAS_BLOCKS {
            return slots.key(slot).map(|key| self.categories.code(key));
        }
        // Most values are short, and most are categories.
        let found = match (slots.block(slot), self.short) {
            (Some((block, bytes)), Some(short)) => short.find::<WordPair>(block, bytes),
            (Some((block, bytes)), None) => self.categories.vocabulary.table.find_short(block, bytes),
            (None, _) => None,
        };
        if found.is_some() { found } else { self.categories.code_of_key(slots, slot) }
    }

    /// Writes the codes of an array's values from slot `first` on, as [`Self::code_at`]; `None` if the array does not have one. Holds
    /// short texts as `W`.
    pub(crate) fn write_codes<'a, W: TextWords>(
        self,
        slots: impl Slots<'a>,
        first: usize,
        codes: &mut [i32],
    ) -> Option<()> {
        let mut written = 0;
        while written < codes.len() {
            let Some(short) = self.short else {
                *codes.get_mut(written)? = self.code_at(slots, first.saturating_add(written))?;
                written = written.saturating_add(1);
                continue;
            };
            let found = slots.find_short::<W>(short, first.saturating_add(written), codes.get_mut(written..)?);
            written = written.saturating_add(found);
            if let Some(code) = codes.get_mut(written) {
                *code = self.categories.code_of_key(slots, first.saturating_add(written))?;
                written = written.saturating_add(1);
            }
        }
        Some(())
    }
}

impl Categories {
    /// Returns the categories whose codes are the positions of these values: strings, binary values or integers, of any width and with
    /// offsets or views.
    ///
    /// A column is looked up in categories of its own kind: strings in strings, binary values in binary values, integers in integers.
    /// It may be a dictionary or runs of them.
    ///
    /// # Errors
    /// If a value is null or occurs twice, or there are more values than int32 has codes; for values of other types, such as a
    /// dictionary: pass its values.
    pub fn new(values: ArrayRef) -> Result<Self> {
        if i32::try_from(values.len()).is_err() {
            return Err(Error::argument(format!("{} categories are more than int32 has codes", values.len())));
        }
        let kind = ValueKind::of(values.data_type()).ok_or_else(|| {
            let reason =
                format!("categories of type {} are none of strings, binary values and integers", values.data_type());
            let of_dictionary = matches!(values.data_type(), DataType::Dictionary(_, _));
            Error::unsupported(reason).remedy_is(if of_dictionary {
                "pass the dictionary's values"
            } else {
                "cast them to one of these types"
            })
        })?;
        if let Some(nulls) = values.nulls().filter(|nulls| nulls.null_count() > 0) {
            let at = nulls.iter().position(|valid| !valid).unwrap_or(0);
            return Err(null_at(at));
        }
        let table = CategoryTable::new(&values.to_data(), kind)?;
        Ok(Self { vocabulary: Arc::new(Vocabulary { values, table, unknowns: Mutex::default() }), unknown: None })
    }

    /// Gives all values that are no category this code, which may be any number; without it they are an error.
    #[must_use]
    pub fn unknown(mut self, code: i32) -> Self {
        self.unknown = Some(code);
        self
    }

    /// Returns the values, in the order of their codes.
    #[must_use]
    pub fn values(&self) -> &ArrayRef {
        &self.vocabulary.values
    }

    /// Returns the code of values that are no category; `None` if they are an error.
    #[must_use]
    pub fn unknown_code(&self) -> Option<i32> {
        self.unknown
    }

    /// Returns bytes that differ for other values, another order of them, and another code of unknown values.
    #[cfg(feature = "python")]
    pub(crate) fn content(&self) -> Result<Vec<u8>> {
        self.vocabulary.table.content(self.unknown)
    }

    /// Returns the number of categories.
    pub(crate) fn count(&self) -> usize {
        self.vocabulary.values.len()
    }

    /// Refuses columns whose values cannot be categories of this type.
    pub(crate) fn require_type(&self, data_type: &DataType) -> Result<()> {
        let leaf = leaf_of(data_type);
        if ValueKind::of(leaf) == Some(self.vocabulary.table.kind()) {
            return Ok(());
        }
        let own = self.vocabulary.values.data_type();
        Err(Error::unsupported(format!("a {leaf} column cannot be looked up in {own} categories")).remedy_is(
            match ValueKind::of(leaf) {
                Some(_) => Remedy::from("pass categories of the column's type"),
                None => match leaf {
                    DataType::List(_) | DataType::LargeList(_) | DataType::ListView(_) | DataType::LargeListView(_) => {
                        Remedy::CastListsForCategories
                    }
                    _ => Remedy::CastForCategories,
                },
            },
        ))
    }

    /// Returns the code of a value: negative if it is no category, and such values are an error. `text` writes the value.
    #[inline]
    pub(crate) fn code(&self, key: Key<'_>) -> i32 {
        match self.vocabulary.table.find(key) {
            Some(code) => code,
            None => self.unknown.unwrap_or_else(|| self.note(key)),
        }
    }

    /// Returns what looks so many values up.
    pub(crate) fn lookup(&self, values: usize) -> Lookup<'_> {
        let table = &self.vocabulary.table;
        table.foresee(values);
        Lookup { categories: self, short: table.short() }
    }

    // Apart, so that the loop over short values keeps its registers.
    #[inline(never)]
    fn code_of_key<'a>(&self, slots: impl Slots<'a>, slot: usize) -> Option<i32> {
        slots.key(slot).map(|key| self.code(key))
    }

    /// Whether a value was looked up that is no category, and such values are an error: only then codes may be negative.
    pub(crate) fn has_unknown(&self) -> bool {
        self.unknown.is_none() && !self.unknowns().texts.is_empty()
    }

    /// Returns the error of a negative code.
    pub(crate) fn error(&self, code: i32) -> Error {
        let count = self.count();
        let known = format!("none of the {count} categor{}", if count == 1 { "y" } else { "ies" });
        let unknowns = self.unknowns();
        let position = usize::try_from(code.saturating_add(1).saturating_neg()).unwrap_or(usize::MAX);
        let reason = match unknowns.texts.get(position) {
            Some(text) => format!("the value {text} is {known}"),
            None => format!("a value is {known}"),
        };
        Error::new(crate::error::ErrorKind::Cast, reason).remedy_is(Remedy::UnknownCategory)
    }

    #[cold]
    fn note(&self, key: Key<'_>) -> i32 {
        let mut unknowns = self.unknowns();
        let next = unknowns.texts.len();
        let position = if next < MOST_UNKNOWN {
            let text = self.text(key);
            let known = unknowns.positions.get(&text).copied();
            known.unwrap_or_else(|| {
                unknowns.positions.insert(text.clone(), next);
                unknowns.texts.push(text);
                next
            })
        } else {
            MOST_UNKNOWN
        };
        i32::try_from(position).map_or(i32::MIN, |position| -1 - position)
    }

    /// The value as an error writes it.
    fn text(&self, key: Key<'_>) -> String {
        let text = match key {
            Key::Int(value) => return value.to_string(),
            Key::Bytes(bytes) if self.vocabulary.table.kind() == ValueKind::Text => {
                format!("{:?}", String::from_utf8_lossy(bytes.get(..4 * MOST_LETTERS).unwrap_or(bytes)))
            }
            Key::Bytes(bytes) => format!("b\"{}\"", bytes.get(..MOST_LETTERS).unwrap_or(bytes).escape_ascii()),
        };
        match text.char_indices().nth(MOST_LETTERS) {
            Some((end, _)) => format!("{}...", text.get(..end).unwrap_or(&text)),
            None => text,
        }
    }

    fn unknowns(&self) -> MutexGuard<'_, UnknownValues> {
        self.vocabulary.unknowns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Categories {
    fn eq(&self, other: &Self) -> bool {
        let (own, values) = (&self.vocabulary.values, &other.vocabulary.values);
        self.unknown == other.unknown && (Arc::ptr_eq(&self.vocabulary, &other.vocabulary) || own == values)
    }
}

impl fmt::Debug for Categories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = format_args!("{} of {}", self.count(), self.vocabulary.values.data_type());
        f.debug_struct("Categories").field("values", &values).field("unknown", &self.unknown).finish()
    }
}

/// Returns the values of chunks as one array: the only one itself. Categories cannot be of every type of it.
///
/// # Errors
/// If one of several values is null; if an allocation fails.
#[cfg(feature = "python")]
pub(crate) fn joined(data_type: &DataType, chunks: &[ArrayRef]) -> Result<ArrayRef> {
    struct Append<'a>(usize, &'a mut Vec<Box<[u8]>>, &'a mut Vec<i128>);
    impl Visit for Append<'_> {
        type Out = Result<()>;
        fn visit<'a>(self, slots: impl Slots<'a>) -> Result<()> {
            for slot in 0..self.0 {
                match slots.key(slot) {
                    Some(Key::Bytes(bytes)) => fallible::push(self.1, fallible::copied(bytes)?.into())?,
                    Some(Key::Int(value)) => fallible::push(self.2, value)?,
                    None => {}
                }
            }
            Ok(())
        }
    }
    let kind = match (ValueKind::of(data_type), chunks) {
        (_, [only]) => return Ok(only.clone()),
        (_, []) => return Ok(arrow_array::new_empty_array(data_type)),
        (None, [first, ..]) => return Ok(first.clone()),
        (Some(kind), _) => kind,
    };
    let (mut bytes, mut ints, mut before) = (Vec::new(), Vec::new(), 0_usize);
    for chunk in chunks {
        if let Some(at) = chunk.nulls().and_then(|nulls| nulls.iter().position(|valid| !valid)) {
            return Err(null_at(before.saturating_add(at)));
        }
        visit(&chunk.to_data(), Append(chunk.len(), &mut bytes, &mut ints)).transpose()?;
        before = before.saturating_add(chunk.len());
    }
    values_of(kind, &bytes, &ints)
}

fn null_at(position: usize) -> Error {
    Error::argument(format!("category {position} is null")).remedy_is(Remedy::NullCategory)
}

/// Returns the array of these values, which are of one kind.
///
/// # Errors
/// If a string is not UTF-8; if an integer is of no type of Arrow; if an allocation fails.
pub(crate) fn values_of(kind: ValueKind, bytes: &[Box<[u8]>], ints: &[i128]) -> Result<ArrayRef> {
    let size = bytes.iter().fold(0_usize, |size, bytes| size.saturating_add(bytes.len()));
    let is_small = i32::try_from(size).is_ok();
    let beyond = |_| Error::unsupported("the column has integers that neither int64 nor uint64 can hold");
    Ok(match kind {
        ValueKind::Text if is_small => Arc::new(values_array::<Utf8Type>(bytes, size)?),
        ValueKind::Text => Arc::new(values_array::<LargeUtf8Type>(bytes, size)?),
        ValueKind::Bytes if is_small => Arc::new(values_array::<BinaryType>(bytes, size)?),
        ValueKind::Bytes => Arc::new(values_array::<LargeBinaryType>(bytes, size)?),
        ValueKind::Int if ints.iter().all(|int| i64::try_from(*int).is_ok()) => {
            let ints = ints.iter().map(|int| i64::try_from(*int).map_err(beyond));
            Arc::new(Int64Array::from(fallible::collected(ints)?))
        }
        ValueKind::Int => {
            let ints = ints.iter().map(|int| u64::try_from(*int).map_err(beyond));
            Arc::new(UInt64Array::from(fallible::collected(ints)?))
        }
    })
}

/// Returns the array of these strings or binary values, which have `size` bytes together.
///
/// # Errors
/// If a string is not UTF-8, or an allocation fails.
fn values_array<T: ByteArrayType>(bytes: &[Box<[u8]>], size: usize) -> Result<GenericByteArray<T>> {
    let beyond = || Error::internal("offsets beyond their type");
    let mut data = fallible::with_room(size)?;
    let mut offsets = fallible::with_room(bytes.len().saturating_add(1))?;
    offsets.push(T::Offset::default());
    for bytes in bytes {
        data.extend_from_slice(bytes);
        offsets.push(T::Offset::from_usize(data.len()).ok_or_else(beyond)?);
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    GenericByteArray::try_new(offsets, Buffer::from_vec(data), None).map_err(|error| Error::invalid(error.to_string()))
}

#[cfg(test)]
mod tests;
