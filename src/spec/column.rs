//! [`Spec`]: what the conversion of a column returns, from its field and the options alone.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};

#[cfg(feature = "python")]
use super::CopyMode;
use super::NullPolicy;
use super::list_lengths::{check_length, is_list, item_of_lists};
use super::no_tensor::remedy_of_column;
use super::nulls::Nulls;
use super::objects::require_values;
use super::options::Options;
#[cfg(feature = "python")]
use super::possible::Undecided;
use super::possible::{ABOVE_1, APART, NULLS, PRIVATE, PossibleStep, UNPACKED, casting};
use super::value::{self, Element, Value, has_codes};
use crate::categories::Categories;
use crate::dtype::DType;
use crate::error::{Error, Remedy, Result};

/// What the conversion of a column returns, from its field and the options alone.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    field: FieldRef,
    decoded: Option<FieldRef>,
    element: Element,
    dtype: DType,
    // Vecs, because most columns leave them empty, and an empty Vec is smaller than a SmallVec.
    lists: Vec<usize>,
    inner_shape: Vec<i64>,
    inner_strides: Vec<i64>,
    row_elements: usize,
    nulls: Nulls,
    categories: Option<Categories>,
    /// The field of the dictionary array that codes of categories are.
    encoded: Option<FieldRef>,
}

impl Spec {
    /// Returns the spec of a column of this field under these options.
    ///
    /// # Errors
    /// If the type has no tensor form, no cast to the requested dtype exists, or the null policy does not fit the
    /// dtype. Names the column.
    pub(crate) fn new(field: &FieldRef, options: &Options) -> Result<Self> {
        Self::build(field, options).map_err(|error| error.in_column(field.name()))
    }

    #[inline]
    fn build(field: &FieldRef, options: &Options) -> Result<Self> {
        // Plain numbers skip the steps below, which would cost as much as their conversion.
        if let Some(dtype) = DType::of_arrow(field.data_type()).filter(|_| options.keep_numbers_of(field)) {
            return Self::of_value(field, None, Value::scalar(Element::Values(dtype)), dtype, Nulls::Refused);
        }
        check_length(field.data_type(), options)?;
        if let Some(categories) = &options.categories {
            return Self::of_categories(field, categories, options);
        }
        let decoded = value::decoded(field, options).map(Arc::new);
        let stored = decoded.as_ref().unwrap_or(field);
        let value = Value::of(stored, options).map_err(|error| {
            // Other forms of the column help where it has none, and not where a dtype or a unit is refused.
            if Value::stored(stored, options).is_ok() {
                return error;
            }
            let codes = has_codes(field.data_type()) && decoded.is_some();
            let remedy = if codes { Some(Remedy::DictionaryCodes) } else { remedy_of_column(field) };
            match remedy {
                Some(remedy) => error.remedy_is(remedy),
                None => error,
            }
        })?;
        let dtype = options.dtype.unwrap_or(value.element.dtype());
        Self::of_value(field, decoded, value, dtype, Nulls::of(options.nulls, dtype)?)
    }

    /// Returns the spec of a column's codes.
    fn of_categories(field: &FieldRef, categories: &Categories, options: &Options) -> Result<Self> {
        require_values(field)?;
        categories.require_type(field.data_type())?;
        let codes = Arc::new(value::with_leaf(field, &DataType::Int32));
        let value = Value::of(&codes, options)?;
        let dtype = options.dtype.unwrap_or(value.element.dtype());
        let spec = Self::of_value(field, Some(codes), value, dtype, Nulls::of(options.nulls, dtype)?)?;
        // The code of unknown values may be none of the dictionary.
        let encoded = categories.unknown_code().is_none().then(|| {
            let values = Box::new(categories.values().data_type().clone());
            Arc::new(value::with_leaf(field, &DataType::Dictionary(Box::new(DataType::Int32), values)))
        });
        Ok(Self { categories: Some(categories.clone()), encoded, ..spec })
    }

    /// Returns the spec of the same column with another dtype and null policy.
    ///
    /// # Errors
    /// If no cast to the dtype exists, or the null policy does not fit the dtype.
    pub(super) fn with_dtype(self, dtype: DType, nulls: NullPolicy) -> Result<Self> {
        self.element.require_cast_to(dtype)?;
        Ok(Self { dtype, nulls: Nulls::of(nulls, dtype)?, ..self })
    }

    /// Returns the spec of a column's validity: of the options, only the length of lists counts. Structs have none: they are columns
    /// themselves.
    ///
    /// # Errors
    /// If the type is a struct, list sizes overflow, or the length is not for this column. Names the column.
    pub(crate) fn of_validity(field: &FieldRef, options: &Options) -> Result<Self> {
        let build = || {
            check_length(field.data_type(), options)?;
            if let DataType::Struct(_) = field.data_type() {
                return Err(Error::unsupported("a struct has a validity for each of its columns")
                    .remedy_is("ask for the validity of its columns"));
            }
            let decoded = value::decoded_for_validity(field, options).map(Arc::new);
            let value = Value::of_validity(decoded.as_ref().unwrap_or(field))?;
            Self::of_value(field, decoded, value, DType::Bool, Nulls::Kept)
        };
        build().map_err(|error| error.in_column(field.name()))
    }

    /// Returns the spec of this column's validity: a bool for each element.
    ///
    /// # Errors
    /// For complex numbers, of which each part has a validity.
    pub(crate) fn validity(&self) -> Result<Self> {
        if let Element::Pairs(_) = self.element {
            let reason = "a complex number is a list of two values, and each of them has a validity";
            return Err(Error::unsupported(reason)
                .remedy_is("ask for the validity of the column by itself, or leave it out")
                .in_column(self.field.name()));
        }
        let by_row = Self::of_validity(&self.field, &Options::default())?;
        let Some(decoded) = &self.decoded else { return Ok(by_row) };
        // Values may be lists or bytes where their codes, runs and lists of any length are none: they have a validity for each element.
        let value = Value::of_validity(decoded)?;
        if value.lists == by_row.lists && value.shape == by_row.inner_shape && !is_list(self.field.data_type()) {
            return Ok(by_row);
        }
        let decoded = match &self.categories {
            None => decoded.clone(),
            // Nobody looks the values up.
            Some(_) => Arc::new(value::with_leaf(&self.field, &DataType::Boolean)),
        };
        Self::of_value(&self.field, Some(decoded), value, DType::Bool, Nulls::Kept)
    }

    #[inline]
    fn of_value(field: &FieldRef, decoded: Option<FieldRef>, value: Value, dtype: DType, nulls: Nulls) -> Result<Self> {
        Ok(Self {
            field: field.clone(),
            decoded,
            element: value.element,
            dtype,
            lists: value.lists,
            inner_shape: value.shape,
            inner_strides: value.strides,
            row_elements: usize::try_from(value.elements)
                .map_err(|_| Error::invalid("the sizes of the nested fixed-size lists overflow"))?,
            nulls,
            categories: None,
            encoded: None,
        })
    }

    /// The column's field.
    #[must_use]
    pub(crate) fn field(&self) -> &FieldRef {
        &self.field
    }

    /// Returns the field of the decoded array; `None` if the column is not decoded. Runs always are, dictionaries if
    /// their values are wanted.
    #[must_use]
    pub(crate) fn decoded(&self) -> Option<&FieldRef> {
        self.decoded.as_ref()
    }

    /// Returns whether decoding is no more than to make fixed-size lists of lists that all have one length. Such lists need not be
    /// decoded if their items follow each other.
    #[must_use]
    pub(crate) fn is_of_lists(&self) -> bool {
        let decoded = self.decoded.as_ref().map(|field| field.data_type());
        match (item_of_lists(self.field.data_type()), decoded) {
            (Some(own), Some(DataType::FixedSizeList(item, _))) => {
                self.categories.is_none() && own.data_type() == item.data_type()
            }
            _ => false,
        }
    }

    /// Returns the spec of the same result from fixed-size lists, which lists of one length are if their items follow each other; `None`
    /// if the items have to be decoded, or are no lists.
    #[must_use]
    pub(crate) fn of_dense_lists(&self) -> Option<Self> {
        let field = self.decoded.clone().filter(|_| self.is_of_lists())?;
        Some(Self { field, decoded: None, ..self.clone() })
    }

    /// Returns whether decoding is no more than to gather plain values of a dictionary or of runs, as they are.
    #[must_use]
    pub(crate) fn gathers(&self) -> bool {
        let values = value::gathered_values(self.field.data_type());
        let decoded = self.decoded.as_ref().map(|field| value::innermost(field.data_type()));
        let is_plain = |values: &DataType| values.is_primitive() || *values == DataType::Boolean;
        self.categories.is_none() && decoded == values && values.is_some_and(is_plain)
    }

    /// Returns the bytes that a row of the decoded array takes, without its bitmap. Bits count as bytes, and so do values whose validity
    /// alone is wanted and that have no fixed size.
    pub(crate) fn decoded_row_bytes(&self) -> usize {
        let stored = match self.element {
            Element::Bits => self.decoded.as_ref().map_or(1, |field| value::width(field.data_type())),
            element => element.stored_bytes(),
        };
        self.row_elements.saturating_mul(stored)
    }

    /// Returns the categories whose codes the elements become; `None` if they are the values.
    #[must_use]
    pub(crate) fn categories(&self) -> Option<&Categories> {
        self.categories.as_ref()
    }

    /// Returns how the source (or the decoded array) stores its elements.
    #[must_use]
    pub(crate) fn element(&self) -> Element {
        self.element
    }

    /// The dtype of the result.
    #[must_use]
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the sizes of the nested fixed-size lists around a slot of the leaf, outermost first.
    #[must_use]
    pub(crate) fn lists(&self) -> &[usize] {
        &self.lists
    }

    /// Returns the shape of one row of the result; empty for scalars.
    #[must_use]
    pub(crate) fn inner_shape(&self) -> &[i64] {
        &self.inner_shape
    }

    /// Returns the strides of one row of the result, in elements. They are not row-major if the type has a permutation.
    #[must_use]
    pub(crate) fn inner_strides(&self) -> &[i64] {
        &self.inner_strides
    }

    /// Returns what happens to nulls.
    #[must_use]
    pub(crate) fn nulls(&self) -> Nulls {
        self.nulls
    }

    /// Returns whether the elements are cast. Unpacked bits and normalised bytes of booleans do not count.
    #[must_use]
    pub(crate) fn is_cast(&self) -> bool {
        self.element.is_cast_to(self.dtype)
    }

    /// Returns whether the cast is checked: a value may not fit. Bools fit every dtype.
    pub(crate) fn is_checked_cast(&self) -> bool {
        self.is_cast() && !matches!(self.element, Element::Bits | Element::Bool8)
    }

    /// Lists the steps that data of this spec may need, as a column by itself: `explain` of a schema.
    #[must_use]
    pub(crate) fn possible_steps(&self, options: &Options) -> Vec<PossibleStep> {
        let mut steps = self.possible_steps_in_matrix(options);
        if let Some(decoded) = steps.first_mut().filter(|_| self.is_of_lists()) {
            decoded.only_if = Some(APART);
        }
        steps
    }

    /// Says how the column is decoded, and for which data; `None` if it is not.
    #[must_use]
    pub(crate) fn decoding(&self) -> Option<String> {
        match (&self.categories, &self.decoded) {
            (Some(categories), _) => Some(encoding(categories.count())),
            (None, Some(_)) if self.is_of_lists() => Some("decoded, unless the lists follow each other".to_owned()),
            (None, Some(_)) => Some("decoded".to_owned()),
            (None, None) => None,
        }
    }

    /// Lists the steps that data of this spec may need as a column of a matrix.
    #[must_use]
    pub(crate) fn possible_steps_in_matrix(&self, options: &Options) -> Vec<PossibleStep> {
        let mut steps = Vec::new();
        let mut step = |text: String, only_if| steps.push(PossibleStep { text, only_if });
        let is_empty = self.row_elements == 0;
        if let Some(decoding) = self.decoding() {
            step(decoding, (is_empty && self.is_of_lists()).then_some(APART));
        }
        if is_empty {
            return steps;
        }
        match self.element {
            Element::Bits => step(UNPACKED.to_owned(), None),
            Element::Bool8 => step("bytes above 1 set to 1, if there are any".to_owned(), Some(ABOVE_1)),
            _ => {}
        }
        if self.is_cast() {
            step(casting(self.element, self.dtype), None);
        }
        if options.copy.asks_for_own(options.writable) {
            match &self.decoded {
                None => step(PRIVATE.to_owned(), None),
                // What is decoded is memory of its own already.
                Some(_) if self.is_of_lists() => {
                    step(format!("{PRIVATE}, if the lists follow each other"), None);
                }
                Some(_) => {}
            }
        }
        if matches!(self.nulls, Nulls::Filled(_)) {
            step("nulls filled, if there are any".to_owned(), Some(NULLS));
        }
        steps
    }

    /// Under [`CopyMode::Never`], refuses a column that is copied whatever its data.
    ///
    /// # Errors
    /// As [`Undecided::new`].
    #[cfg(feature = "python")]
    pub(super) fn require_view(&self, options: &Options, is_in_matrix: bool) -> Result<()> {
        if options.copy != CopyMode::Never {
            return Ok(());
        }
        let steps = if is_in_matrix { self.possible_steps_in_matrix(options) } else { self.possible_steps(options) };
        let certain: Vec<_> = steps.into_iter().filter(|step| step.only_if.is_none()).collect();
        Undecided::new(&certain, options.copy).map(drop).map_err(|error| error.in_column(self.field().name()))
    }

    /// Returns whether a row of this dtype, shape and strides has the layout of the spec; strides of dimensions of
    /// extent 1 do not count.
    pub(crate) fn lays_out(&self, dtype: DType, shape: &[i64], strides: &[i64]) -> bool {
        let same_stride = |((extent, stride), own): ((&i64, &i64), &i64)| *extent <= 1 || stride == own;
        self.dtype == dtype
            && *shape == *self.inner_shape
            && (shape.contains(&0) || shape.iter().zip(strides).zip(&self.inner_strides).all(same_stride))
    }

    /// Returns the type of the dictionary's values; `None` if the elements are not dictionary codes.
    #[must_use]
    pub(crate) fn dictionary_values(&self) -> Option<&DataType> {
        value::dictionary_values(self.decoded.as_ref().unwrap_or(&self.field).data_type())
    }

    /// Returns whether the elements are codes of a dictionary.
    #[must_use]
    pub(crate) fn has_codes(&self) -> bool {
        self.dictionary_values().is_some()
    }

    /// Returns whether a bitmap tells which elements of a row are null: not of runs, nor of what is null by its type.
    #[must_use]
    pub(crate) fn has_bitmap(&self) -> bool {
        self.decoded.is_none() && *value::innermost(self.field.data_type()) != DataType::Null
    }

    /// Returns whether bitmaps alone tell which elements are null, also of lists of one length whose items are not decoded.
    #[must_use]
    pub(crate) fn is_told_by_bitmaps(&self) -> bool {
        let dense = self.of_dense_lists();
        let spec = dense.as_ref().unwrap_or(self);
        spec.has_bitmap() && !spec.has_codes()
    }

    /// Returns the field that a tensor of this spec keeps: only if its elements are still what the field says. Filled
    /// codes are no codes of the dictionary any more, and days in seconds are numbers, as in any other unit.
    #[must_use]
    pub(crate) fn kept_field(&self) -> Option<&FieldRef> {
        let filled_codes = self.has_codes() && matches!(self.nulls, Nulls::Filled(_));
        let still = !self.is_cast() && !filled_codes && !self.counts_days();
        if self.categories.is_some() {
            let is_filled = matches!(self.nulls, Nulls::Filled(_));
            return self.encoded.as_ref().filter(|_| still && !is_filled);
        }
        still.then(|| self.decoded.as_ref().unwrap_or(&self.field))
    }

    /// Returns whether days are decoded to seconds, by `unit=`.
    fn counts_days(&self) -> bool {
        let decoded = self.decoded.as_ref().filter(|_| value::has_days(self.field.data_type()));
        decoded.is_some_and(|decoded| !value::has_days(decoded.data_type()))
    }

    /// Elements in a row.
    #[must_use]
    pub(crate) fn row_elements(&self) -> usize {
        self.row_elements
    }
}

/// What a conversion does with values that become codes.
pub(crate) fn encoding(categories: usize) -> String {
    format!("encoded by {categories} categor{}", if categories == 1 { "y" } else { "ies" })
}

#[cfg(test)]
mod tests {
    use arrow_schema::{Field, TimeUnit};

    use super::super::FixedShapeTensor;
    use super::super::value::BOOL8;
    use super::*;

    fn spec(data_type: DataType) -> Result<Spec> {
        Spec::new(&Arc::new(Field::new("x", data_type, true)), &Options::default())
    }

    fn list(child: DataType, size: i32) -> DataType {
        DataType::FixedSizeList(Arc::new(Field::new("item", child, true)), size)
    }

    #[test]
    fn temporal_types_are_their_ticks() {
        for (data_type, dtype) in [
            (DataType::Date32, DType::Int32),
            (DataType::Date64, DType::Int64),
            (DataType::Time32(TimeUnit::Second), DType::Int32),
            (DataType::Time64(TimeUnit::Nanosecond), DType::Int64),
            (DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), DType::Int64),
            (DataType::Duration(TimeUnit::Millisecond), DType::Int64),
        ] {
            assert_eq!(spec(data_type).unwrap().dtype(), dtype);
        }
    }

    #[test]
    fn nested_lists_give_the_inner_shape_row_major() {
        let spec = spec(list(list(DataType::Float32, 3), 2)).unwrap();
        assert_eq!((spec.inner_shape(), spec.inner_strides()), (&[2_i64, 3][..], &[3_i64, 1][..]));
        assert_eq!((spec.lists(), spec.row_elements()), (&[2_usize, 3][..], 6));
        assert_eq!(spec.dtype(), DType::Float32);
    }

    #[test]
    fn runs_are_of_the_extension_type_of_their_field_before_that_of_their_values() {
        let named = |field: Field, name: Option<&str>| {
            let entries = name.map(|name| ("ARROW:extension:name".to_owned(), name.to_owned()));
            field.with_metadata(entries.into_iter().collect())
        };
        let dtype = |own: Option<&str>, of_values: Option<&str>| {
            let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
            let values = Arc::new(named(Field::new("values", DataType::Int8, true), of_values));
            let field = named(Field::new("x", DataType::RunEndEncoded(ends, values), true), own);
            Spec::new(&Arc::new(field), &Options::default()).unwrap().dtype()
        };
        assert_eq!(dtype(None, None), DType::Int8);
        assert_eq!(dtype(Some(BOOL8), None), DType::Bool);
        assert_eq!(dtype(None, Some(BOOL8)), DType::Bool);
        assert_eq!(dtype(Some("other"), Some(BOOL8)), DType::Int8);
        assert_eq!(dtype(Some(BOOL8), Some("other")), DType::Bool);
    }

    #[test]
    fn a_permutation_becomes_strides() {
        let field = FixedShapeTensor::new(&[2, 3], &[1, 0]).attach(Field::new("x", list(DataType::Int8, 6), true));
        let spec = Spec::new(&Arc::new(field), &Options::default()).unwrap();
        assert_eq!((spec.inner_shape(), spec.inner_strides()), (&[3_i64, 2][..], &[1_i64, 3][..]));
    }

    #[test]
    fn refusals_name_the_column_and_a_remedy() {
        for data_type in [DataType::Utf8, DataType::Null, DataType::Decimal128(5, 2), DataType::Struct([].into())] {
            let error = spec(data_type).unwrap_err();
            assert_eq!(error.column(), Some("x"));
            assert!(error.remedy().is_some());
        }
        assert!(spec(list(DataType::Int8, -1)).is_err());
        assert!(spec(list(list(list(DataType::Int8, i32::MAX), i32::MAX), i32::MAX)).is_err());
        let nan = Options::default().nulls(NullPolicy::Nan);
        let error = Spec::new(&Arc::new(Field::new("x", DataType::Int32, false)), &nan).unwrap_err();
        assert!(error.remedy().unwrap().contains("DType::Float64"), "{error}");
    }
}
