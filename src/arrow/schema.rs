//! Reads `ArrowSchema` into a [`Field`], and checks every pointer and count in it.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::Arc;

use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit, UnionFields, UnionMode};

use super::binary_metadata::text_of;
use super::foreign::{MAX_DEPTH, foreign, foreign_entry};
use crate::error::{Error, Result};
use crate::ffi::arrow_device::{
    ARROW_FLAG_DICTIONARY_ORDERED, ARROW_FLAG_MAP_KEYS_SORTED, ARROW_FLAG_NULLABLE, ArrowSchema,
};

/// Returns the field that a schema struct describes. Only reads the struct, which its owner releases.
///
/// # Errors
/// If the struct was released, breaks the specification, or names a type that arrow-rs does not know.
///
/// # Safety
/// - `strings`: `name` and `format` are NULL or end with NUL.
/// - `nested`: `children`, unless NULL or misaligned, has `n_children` entries. Each of them, and `dictionary`, is
///   NULL, misaligned, or a schema as described here.
/// - `metadata`: NULL, or a count and as many pairs of strings, each after its length.
/// - Nobody changes any of it during the call.
pub unsafe fn read_schema(schema: &ArrowSchema) -> Result<Field> {
    // SAFETY: `strings`, `nested` and `metadata` are promised, in the same words.
    unsafe { read(schema, 0, &mut MAX_FIELDS.clone()) }
}

/// Schemas with more fields are refused. Structs may share a child, so a schema of 64 structs can have 2^64 fields.
const MAX_FIELDS: usize = if cfg!(miri) { 1 << 8 } else { 1 << 18 };

/// `budget` is the number of fields that may still be read.
///
/// # Safety
/// As [`read_schema`].
unsafe fn read(schema: &ArrowSchema, depth: usize, budget: &mut usize) -> Result<Field> {
    if schema.release.is_none() {
        return Err(Error::invalid("the ArrowSchema was released"));
    }
    *budget = budget
        .checked_sub(1)
        .ok_or_else(|| Error::unsupported(format!("ArrowSchema has more than {MAX_FIELDS} fields on all levels")))?;
    if depth > MAX_DEPTH {
        return Err(Error::unsupported(format!("ArrowSchema nested deeper than {MAX_DEPTH} levels")));
    }
    // SAFETY: `strings`: NULL, or it ends with NUL.
    let name = unsafe { text(schema.name, "ArrowSchema.name") }?.unwrap_or("");
    // SAFETY: `strings`: NULL, or it ends with NUL.
    let format = unsafe { text(schema.format, "ArrowSchema.format") }?
        .ok_or_else(|| Error::invalid("ArrowSchema.format is NULL").in_column(name))?;
    // SAFETY: `nested` is promised for the schema's children.
    let children = unsafe { children(schema, depth, budget) }.map_err(|error| error.in_column(name))?;
    let mut data_type = parse(format, children, schema.flags).map_err(|error| error.in_column(name))?;
    if !schema.dictionary.is_null() {
        // SAFETY: `nested`: the dictionary is a schema, unless it is NULL or misaligned.
        let values = unsafe { foreign(schema.dictionary.cast_const(), "ArrowSchema.dictionary") };
        let values = values.map_err(|error| error.in_column(name))?;
        // SAFETY: `nested`: all clauses hold for the dictionary too.
        let values = unsafe { read(values, depth + 1, budget) }.map_err(|error| error.in_column(name))?;
        if !data_type.is_dictionary_key_type() {
            return Err(Error::invalid(format!("a dictionary with indices of type {data_type}")).in_column(name));
        }
        data_type = DataType::Dictionary(Box::new(data_type), Box::new(values.data_type().clone()));
    }
    // SAFETY: `metadata` is promised for this schema.
    let metadata = unsafe { metadata(schema.metadata) }.map_err(|error| error.in_column(name))?;
    let field = Field::new(name, data_type, schema.flags & ARROW_FLAG_NULLABLE != 0)
        .with_dict_is_ordered(schema.flags & ARROW_FLAG_DICTIONARY_ORDERED != 0);
    Ok(if metadata.is_empty() { field } else { field.with_metadata(metadata) })
}

/// # Safety
/// As [`read_schema`].
unsafe fn children(schema: &ArrowSchema, depth: usize, budget: &mut usize) -> Result<Vec<Arc<Field>>> {
    let count = usize::try_from(schema.n_children)
        .map_err(|_| Error::invalid(format!("ArrowSchema.n_children is {}", schema.n_children)))?;
    let mut children = Vec::new();
    for index in 0..count {
        // SAFETY: `nested`: `children` has `n_children` entries, and `index` is below that.
        let child = unsafe { foreign_entry(schema.children, index, "ArrowSchema.children") }?;
        // SAFETY: `nested`: all clauses hold for a child too.
        children.push(Arc::new(unsafe { read(child, depth + 1, budget) }?));
    }
    Ok(children)
}

/// # Safety
/// The pointer is NULL or a NUL-terminated string that lives for `'a`.
pub(super) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, so NUL-terminated by `# Safety`.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Error::invalid(format!("{what} is not UTF-8")))
}

/// # Safety
/// The pointer is NULL, or metadata as [`read_schema`] asks.
unsafe fn metadata(pointer: *const c_char) -> Result<HashMap<String, String>> {
    let mut entries = HashMap::new();
    if pointer.is_null() {
        return Ok(entries);
    }
    let mut reader = MetadataReader { position: pointer.cast() };
    // SAFETY: four bytes of count come first.
    let count = unsafe { reader.length("count") }?;
    for _ in 0..count {
        // SAFETY: fewer than `count` pairs were read, so a key follows, after its length.
        let key = unsafe { reader.string() }?;
        // SAFETY: a pair's value follows its key, after its length.
        let value = unsafe { reader.string() }?;
        entries.insert(key, value);
    }
    Ok(entries)
}

pub(super) struct MetadataReader {
    pub(super) position: *const u8,
}

impl MetadataReader {
    /// # Safety
    /// Four bytes can be read.
    pub(super) unsafe fn length(&mut self, what: &str) -> Result<usize> {
        // SAFETY: four bytes can be read, at any alignment.
        let length = unsafe { self.position.cast::<i32>().read_unaligned() };
        // SAFETY: inside or one past what was just read.
        self.position = unsafe { self.position.add(4) };
        usize::try_from(length).map_err(|_| Error::invalid(format!("ArrowSchema.metadata has a {what} of {length}")))
    }

    /// # Safety
    /// A length and as many bytes can be read, which live for `'a`.
    pub(super) unsafe fn bytes<'a>(&mut self) -> Result<&'a [u8]> {
        // SAFETY: a length comes first, four bytes.
        let length = unsafe { self.length("string length") }?;
        // SAFETY: `length` bytes follow their length, and live for `'a`.
        let bytes = unsafe { std::slice::from_raw_parts(self.position, length) };
        // SAFETY: inside or one past what was just read.
        self.position = unsafe { self.position.add(length) };
        Ok(bytes)
    }

    /// # Safety
    /// A length and as many bytes can be read.
    unsafe fn string(&mut self) -> Result<String> {
        // SAFETY: a length and as many bytes can be read; they are copied before anything else is.
        let bytes = unsafe { self.bytes() }?;
        Ok(text_of(bytes).into_owned())
    }
}

/// Returns the type of a format string
/// (<https://arrow.apache.org/docs/format/CDataInterface.html#data-type-description-format-strings>).
pub(super) fn parse(format: &str, children: Vec<Arc<Field>>, flags: i64) -> Result<DataType> {
    let children = ChildFields { format, fields: children };
    if let Some(data_type) = simple(format) {
        return children.none(data_type);
    }
    let data_type = match format {
        "+l" => DataType::List(children.one()?),
        "+L" => DataType::LargeList(children.one()?),
        "+vl" => DataType::ListView(children.one()?),
        "+vL" => DataType::LargeListView(children.one()?),
        "+s" => DataType::Struct(children.fields.into()),
        "+m" => {
            let entries = children.one()?;
            if !matches!(entries.data_type(), DataType::Struct(fields) if fields.len() == 2) {
                return Err(Error::invalid("a map whose entries are not a struct of two fields"));
            }
            DataType::Map(entries, flags & ARROW_FLAG_MAP_KEYS_SORTED != 0)
        }
        "+r" => {
            let [run_ends, values] = children.exactly()?;
            if !run_ends.data_type().is_run_ends_type() {
                return Err(Error::invalid(format!("run ends of type {}", run_ends.data_type())));
            }
            DataType::RunEndEncoded(run_ends, values)
        }
        _ => return parameterised(format, children),
    };
    Ok(data_type)
}

pub(super) fn simple(format: &str) -> Option<DataType> {
    Some(match format {
        "n" => DataType::Null,
        "b" => DataType::Boolean,
        "c" => DataType::Int8,
        "C" => DataType::UInt8,
        "s" => DataType::Int16,
        "S" => DataType::UInt16,
        "i" => DataType::Int32,
        "I" => DataType::UInt32,
        "l" => DataType::Int64,
        "L" => DataType::UInt64,
        "e" => DataType::Float16,
        "f" => DataType::Float32,
        "g" => DataType::Float64,
        "z" => DataType::Binary,
        "Z" => DataType::LargeBinary,
        "vz" => DataType::BinaryView,
        "u" => DataType::Utf8,
        "U" => DataType::LargeUtf8,
        "vu" => DataType::Utf8View,
        "tdD" => DataType::Date32,
        "tdm" => DataType::Date64,
        "tts" => DataType::Time32(TimeUnit::Second),
        "ttm" => DataType::Time32(TimeUnit::Millisecond),
        "ttu" => DataType::Time64(TimeUnit::Microsecond),
        "ttn" => DataType::Time64(TimeUnit::Nanosecond),
        "tDs" => DataType::Duration(TimeUnit::Second),
        "tDm" => DataType::Duration(TimeUnit::Millisecond),
        "tDu" => DataType::Duration(TimeUnit::Microsecond),
        "tDn" => DataType::Duration(TimeUnit::Nanosecond),
        "tiM" => DataType::Interval(IntervalUnit::YearMonth),
        "tiD" => DataType::Interval(IntervalUnit::DayTime),
        "tin" => DataType::Interval(IntervalUnit::MonthDayNano),
        _ => return None,
    })
}

fn parameterised(format: &str, children: ChildFields<'_>) -> Result<DataType> {
    let unknown = || {
        let reason = format!("ArrowSchema.format {format:?} is not a type that is known here");
        Error::unsupported(reason).remedy_is("cast the column first, or pass the data without it")
    };
    let broken = |why: &str| Error::invalid(format!("ArrowSchema.format {format:?} {why}"));
    let size = |text: &str| {
        text.parse::<i32>().ok().filter(|size| *size >= 0).ok_or_else(|| broken("has a size that is not 0 to 2^31 - 1"))
    };
    let (kind, parameter) = format.split_once(':').ok_or_else(unknown)?;
    let unit = |letter: &str| match letter {
        "s" => Ok(TimeUnit::Second),
        "m" => Ok(TimeUnit::Millisecond),
        "u" => Ok(TimeUnit::Microsecond),
        "n" => Ok(TimeUnit::Nanosecond),
        _ => Err(unknown()),
    };
    match kind {
        "w" => children.none(DataType::FixedSizeBinary(size(parameter)?)),
        "+w" => Ok(DataType::FixedSizeList(children.one()?, size(parameter)?)),
        "d" => {
            let (precision, scale, bits) =
                decimal(parameter).ok_or_else(|| broken("is not a precision, a scale and perhaps a width"))?;
            let (data_type, digits) = match bits {
                "32" => (DataType::Decimal32(precision, scale), 9),
                "64" => (DataType::Decimal64(precision, scale), 18),
                "128" => (DataType::Decimal128(precision, scale), 38),
                "256" => (DataType::Decimal256(precision, scale), 76),
                _ => return Err(unknown()),
            };
            if !(1..=digits).contains(&precision) {
                return Err(broken(&format!("has a precision that is not 1 to {digits}")));
            }
            children.none(data_type)
        }
        "+ud" | "+us" => {
            let mode = if kind == "+ud" { UnionMode::Dense } else { UnionMode::Sparse };
            let id = |id: &str| id.parse::<i8>().ok().filter(|id| *id >= 0);
            let ids = parameter.split(',').filter(|text| !text.is_empty()).map(id).collect::<Option<Vec<i8>>>();
            let ids = ids.ok_or_else(|| broken("has a type id that is not 0 to 127"))?;
            let found = children.fields.len();
            if ids.len() != found {
                return Err(broken(&format!("has {} type ids, and ArrowSchema.n_children is {found}", ids.len())));
            }
            UnionFields::try_new(ids, children.fields)
                .map(|fields| DataType::Union(fields, mode))
                .map_err(|error| broken(&format!("is no union: {error}")))
        }
        _ => {
            let letter = kind.strip_prefix("ts").ok_or_else(unknown)?;
            let zone = (!parameter.is_empty()).then(|| Arc::from(parameter));
            children.none(DataType::Timestamp(unit(letter)?, zone))
        }
    }
}

/// Returns the precision, the scale and the width in bits.
fn decimal(parameter: &str) -> Option<(u8, i8, &str)> {
    let mut parts = parameter.split(',');
    let precision = parts.next()?.parse().ok()?;
    let scale = parts.next()?.parse().ok()?;
    let bits = parts.next().unwrap_or("128");
    parts.next().is_none().then_some((precision, scale, bits))
}

struct ChildFields<'a> {
    format: &'a str,
    fields: Vec<Arc<Field>>,
}

impl ChildFields<'_> {
    fn exactly<const N: usize>(self) -> Result<[Arc<Field>; N]> {
        let found = self.fields.len();
        self.fields.try_into().map_err(|_| {
            Error::invalid(format!("ArrowSchema.n_children is {found}, and format {:?} has {N}", self.format))
        })
    }

    fn one(self) -> Result<Arc<Field>> {
        self.exactly().map(|[child]| child)
    }

    fn none(self, data_type: DataType) -> Result<DataType> {
        self.exactly::<0>().map(|_| data_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn of(format: &str, children: usize) -> Result<DataType> {
        let child = Arc::new(Field::new("c", DataType::Int32, true));
        parse(format, vec![child; children], 0)
    }

    #[test]
    fn formats_are_read_as_arrow_rs_writes_them() {
        let child = Arc::new(Field::new("c", DataType::Int32, true));
        let entries = DataType::Struct(vec![child.clone(), child.clone()].into());
        let map = |sorted| DataType::Map(Arc::new(Field::new("entries", entries.clone(), false)), sorted);
        for data_type in [
            DataType::FixedSizeBinary(7),
            DataType::FixedSizeList(child.clone(), 3),
            DataType::Decimal128(38, -3),
            DataType::Decimal64(18, 2),
            DataType::Decimal32(9, 0),
            DataType::Decimal256(76, 5),
            DataType::Timestamp(TimeUnit::Nanosecond, None),
            DataType::Timestamp(TimeUnit::Second, Some("Europe/Berlin".into())),
            DataType::Union(
                UnionFields::try_new([3, 1], [child.as_ref().clone(), Field::new("d", DataType::Utf8, true)]).unwrap(),
                UnionMode::Dense,
            ),
            DataType::RunEndEncoded(child.clone(), child.clone()),
            map(true),
            DataType::List(Arc::new(Field::new("item", map(true), true))),
            map(false),
            DataType::Struct(vec![child.clone(), child].into()),
        ] {
            let field = Field::new("x", data_type, true);
            let mut exported = super::super::export_schema(&field).unwrap().into_raw();
            // SAFETY: a schema that arrow-rs just made.
            assert_eq!(unsafe { read_schema(&exported) }.unwrap(), field);
            let release = exported.release.unwrap();
            // SAFETY: released once, by its owner.
            unsafe { release(&raw mut exported) };
        }
    }

    #[test]
    fn structs_that_share_a_child_are_read_up_to_a_number_of_fields() {
        // Each level contains the one below twice: 2^40 fields at the bottom.
        let field = Field::new("x", DataType::Int32, true);
        let leaf = super::super::export_schema(&field).unwrap().into_raw();
        let nested = Field::new("s", DataType::Struct(vec![field.clone(), field].into()), true);
        let mut levels: Vec<ArrowSchema> =
            (0..40).map(|_| super::super::export_schema(&nested).unwrap().into_raw()).collect();
        let mut below = std::ptr::from_ref(&leaf).cast_mut();
        let mut own = Vec::new();
        for level in &mut levels {
            own.push(level.children);
            level.children = Box::into_raw(Box::new([below, below])).cast();
            below = level;
        }
        // SAFETY: the last of our own schemas, which are alive.
        let top = unsafe { &*below };
        // SAFETY: schemas of our own; each has two children, which are alive.
        let error = unsafe { read_schema(top) }.unwrap_err();
        assert!(error.to_string().contains(&format!("more than {MAX_FIELDS} fields")), "{error}");
        for (mut level, own) in levels.into_iter().zip(own).chain([(leaf, std::ptr::null_mut())]) {
            if !own.is_null() {
                // SAFETY: the box of the loop above.
                drop(unsafe { Box::from_raw(level.children.cast::<[*mut ArrowSchema; 2]>()) });
                level.children = own;
            }
            // SAFETY: released once, as it was made.
            unsafe { level.release.unwrap()(&raw mut level) };
        }
    }

    #[test]
    fn wrong_formats_and_child_counts_are_refused() {
        for (format, children) in [
            ("", 0),
            ("x", 0),
            ("i", 1),
            ("+l", 0),
            ("+l", 2),
            ("+w:-1", 1),
            ("+w:3", 0),
            ("+w:99999999999", 1),
            ("w:-2", 0),
            ("d:0,0", 0),
            ("d:39,0", 0),
            ("d:10,0,32", 0),
            ("d:19,0,64", 0),
            ("d:77,0,256", 0),
            ("d:9,0,16", 0),
            ("d:1", 0),
            ("d:1,2,128,4", 0),
            ("+m", 1),
            ("+r", 1),
            ("tsq:UTC", 0),
            ("ts:", 0),
            ("+ud:1,2", 1),
            ("+us:-1", 1),
            ("+ud:1,1", 2),
            ("tss", 0),
        ] {
            assert!(of(format, children).is_err(), "{format:?} with {children} children");
        }
    }

    #[test]
    fn known_types_with_wrong_parameters_are_broken_and_not_unknown() {
        for (format, children, words) in [
            ("+us:0,1", 1, Some("has 2 type ids, and ArrowSchema.n_children is 1")),
            ("+us:0,0", 2, Some("is no union")),
            ("+ud:0,128", 2, Some("a type id that is not 0 to 127")),
            ("d:0,0", 0, Some("a precision that is not 1 to 38")),
            ("d:10,0,32", 0, Some("a precision that is not 1 to 9")),
            ("d:1", 0, Some("is not a precision, a scale and perhaps a width")),
            ("+w:-1", 1, Some("a size that is not 0")),
            ("w:x", 0, Some("a size that is not 0")),
            ("d:9,0,16", 0, None),
            ("tsq:UTC", 0, None),
            ("+x", 0, None),
        ] {
            let error = of(format, children).unwrap_err();
            let kind = if words.is_some() { ErrorKind::Invalid } else { ErrorKind::Unsupported };
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.reason().contains(words.unwrap_or("not a type that is known here")), "{error}");
        }
    }
}
