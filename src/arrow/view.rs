//! [`ArrayView`]: a checked walk over imported arrays that reads structs, never buffers, so that one set of rules
//! serves every device.

use std::ops::Range;

use arrow_schema::{DataType, FieldRef};

use super::bitmaps::{BitRange, BitmapBytes, BitmapLevel, ValidityBits};
use super::check::has_validity;
use super::foreign::{buffer, child, dictionary, overflow, slot};
use super::mask::Mask;
use crate::dtype::DType;
use crate::error::{Error, Remedy, Result};
use crate::ffi::arrow_device::ArrowArray;
use crate::plan::{ChunkSize, UnreadChunk};
use crate::spec::{Element, Spec};

/// A range of slots of an array that [`super::DeviceArray`] owns and has checked.
#[derive(Clone, Debug)]
pub(crate) struct ArrayView<'a> {
    pub(super) field: &'a FieldRef,
    pub(super) array: &'a ArrowArray,
    /// The first slot, counted from the start of the buffers.
    pub(super) offset: usize,
    pub(super) length: usize,
    /// Bitmaps of enclosing structs that have nulls, with a bit for each slot of this view.
    pub(super) inherited: Vec<ValidityBits>,
}

/// The innermost values of a column's chunk: where its elements are, and the bitmaps that say which are null.
#[derive(Clone, Debug)]
pub(crate) struct Leaf<'a> {
    /// The values buffer.
    pub(crate) values: *const u8,
    /// The first stored value, in stored values (for bits, in bits) from `values`.
    pub(crate) offset: usize,
    /// How many elements.
    pub(crate) elements: usize,
    /// How many rows they make.
    pub(crate) rows: usize,
    // A Vec is smaller than a SmallVec, and costs nothing for columns without nulls.
    validity: Vec<ValidityBits>,
    /// The innermost array with its type; `None` for elements that were taken from one.
    pub(super) innermost: Option<(&'a DataType, &'a ArrowArray)>,
}

/// Where the values of a leaf's dictionary, or of its runs, are.
#[derive(Clone, Debug)]
pub(crate) struct DictionaryValues {
    /// The type of the codes, or of the runs' ends.
    pub(crate) codes: DType,
    /// The addresses of the codes of the leaf's elements, or of the ends of all runs.
    pub(crate) code_bytes: Range<usize>,
    /// Of runs, the number of the leaf's first element, as their ends count it.
    pub(crate) first_row: Option<usize>,
    /// The address of the buffer of values.
    pub(crate) start: usize,
    /// The number of the first value in the buffer.
    pub(crate) offset: usize,
    /// How many values there are.
    pub(crate) count: usize,
    /// Which are valid; `None` if all are.
    pub(crate) validity: Option<BitRange>,
}

/// The dictionary of a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafDictionary<'a> {
    /// The type of the indices.
    pub(super) codes: DType,
    /// The values, and their type.
    pub(super) array: &'a ArrowArray,
    pub(super) values: &'a DataType,
}

// SAFETY: the pointers lead into an array that is borrowed for 'a, whose memory is immutable by Arrow's specification.
unsafe impl Send for Leaf<'_> {}
// SAFETY: shared references only give the addresses, and the memory behind them does not change.
unsafe impl Sync for Leaf<'_> {}

impl<'a> ArrayView<'a> {
    /// Returns a child of a struct, over the same rows. Nulls of the struct are nulls of its fields.
    ///
    /// # Errors
    /// If this is not a struct, or `index` is beyond its fields.
    pub(crate) fn struct_field(&self, index: usize) -> Result<ArrayView<'a>> {
        let DataType::Struct(fields) = self.field.data_type() else {
            return Err(Error::unsupported(format!("{} has no columns", self.field.data_type())));
        };
        let field = fields.get(index).ok_or_else(|| Error::argument(format!("column {index} of {}", fields.len())))?;
        let array = child(self.array, index)?;
        let mut inherited = self.inherited.clone();
        inherited.extend(Self::validity(self.field.data_type(), self.array, self.offset, self.length, 1));
        let offset = slot(array)?.checked_add(self.offset).ok_or_else(overflow)?;
        Ok(ArrayView { field, array, offset, length: self.length, inherited })
    }

    /// Returns the leaf of a struct's column of plain numbers without any bitmap; `None` for every other column.
    #[inline]
    pub(crate) fn plain_column(&self, index: usize) -> Option<Leaf<'a>> {
        let DataType::Struct(fields) = self.field.data_type() else { return None };
        let data_type = fields.get(index)?.data_type();
        if self.array.null_count != 0 || !self.inherited.is_empty() || DType::of_arrow(data_type).is_none() {
            return None;
        }
        let array = child(self.array, index).ok()?;
        let (validity, values) = (buffer(array, 0)?, buffer(array, 1)?);
        let offset = slot(array).ok()?.checked_add(self.offset)?;
        let (rows, innermost) = (self.length, Some((data_type, array)));
        let leaf = Leaf { values, offset, elements: rows, rows, validity: Vec::new(), innermost };
        validity.is_null().then_some(leaf)
    }

    /// Returns a range of the slots, clipped to their number.
    pub(crate) fn slice(mut self, range: &Range<usize>) -> Self {
        let start = range.start.min(self.length);
        self.length = range.end.clamp(start, self.length) - start;
        self.offset = self.offset.saturating_add(start);
        for bits in &mut self.inherited {
            *bits = bits.slice(start, self.length);
        }
        self
    }

    /// Returns the bitmap of an array of this type, a bit for each of `length` slots; `None` if nothing can be null.
    pub(super) fn validity(
        data_type: &DataType,
        array: &ArrowArray,
        offset: usize,
        length: usize,
        repeat: usize,
    ) -> Option<ValidityBits> {
        // The first buffer of a union is not a bitmap.
        let start = buffer(array, 0).filter(|_| has_validity(data_type))?;
        let is_whole = usize::try_from(array.offset) == Ok(offset) && usize::try_from(array.length) == Ok(length);
        let nulls = usize::try_from(array.null_count).ok().filter(|_| is_whole);
        let bits = ValidityBits { start, offset, length, repeat, group: 1, nulls };
        (array.null_count != 0 && !start.is_null()).then_some(bits)
    }

    /// Returns which slots of this view are null; `None` if none is.
    ///
    /// # Errors
    /// If a bit per slot cannot be allocated.
    ///
    /// # Safety
    /// The array is in host memory. Bitmaps of enclosing structs are of arrays that live for `'a`.
    pub(super) unsafe fn host_mask(&self) -> Result<Option<Mask<'a>>> {
        // SAFETY: import checked that the array, borrowed for 'a, has a bitmap of its offset and length; host memory, and
        // bitmaps that were inherited live as long (a clause of `# Safety`).
        unsafe { Mask::combine(&self.validity_levels(), self.length) }
    }

    /// Returns a view of these slots' bitmap; `None` if the array says that no slot is null.
    ///
    /// # Errors
    /// If nulls of enclosing structs would have to be joined with its own, or the type has no bitmap.
    pub(crate) fn bitmap(&self) -> Result<Option<BitmapBytes>> {
        let data_type = self.field.data_type();
        if !has_validity(data_type) {
            return Err(Error::unsupported(format!("{data_type} has no validity bitmap")).remedy_is(Remedy::Bools));
        }
        match self.validity_levels().as_slice() {
            [] => Ok(None),
            [only] => {
                let (start, bytes) = only.bytes();
                Ok((bytes > 0).then_some(BitmapBytes { start, bytes, first_bit: only.offset % 8 }))
            }
            _ => Err(Error::unsupported("the enclosing struct has nulls too, and two bitmaps are joined by a copy")
                .remedy_is(Remedy::BoolsOrCopyToHost)),
        }
    }

    /// Returns the bitmaps that apply to the slots of this view: those of enclosing structs, and its own.
    pub(super) fn validity_levels(&self) -> Vec<ValidityBits> {
        let own = Self::validity(self.field.data_type(), self.array, self.offset, self.length, 1);
        self.inherited.iter().copied().chain(own).collect()
    }

    /// Walks down nested fixed-size lists to the leaf of the column that `spec` describes.
    ///
    /// # Errors
    /// If positions overflow, which import has ruled out.
    #[inline]
    pub(crate) fn leaf(&self, spec: &Spec) -> Result<Leaf<'a>> {
        let mut repeat = spec.row_elements();
        let mut validity: Vec<ValidityBits> =
            self.inherited.iter().map(|bits| ValidityBits { repeat, ..*bits }).collect();
        let (mut array, mut offset, mut length) = (self.array, self.offset, self.length);
        let mut data_type = self.field.data_type();
        let element = spec.element();
        // The slots of the leaf under one slot of the current array.
        let mut slots =
            spec.lists().iter().try_fold(1_usize, |slots, size| slots.checked_mul(*size)).ok_or_else(overflow)?;
        for size in spec.lists() {
            validity.extend(Self::validity(data_type, array, offset, length, repeat));
            array = child(array, 0)?;
            if let DataType::FixedSizeList(child, _) = data_type {
                data_type = child.data_type();
            }
            let first = offset.checked_mul(*size).ok_or_else(overflow)?;
            offset = slot(array)?.checked_add(first).ok_or_else(overflow)?;
            length = length.checked_mul(*size).ok_or_else(overflow)?;
            slots = slots.checked_div(*size).unwrap_or(0);
            repeat = element.elements_of(slots).ok_or_else(overflow)?;
        }
        // A slot of the leaf is one element, the bytes of one row, or a part of a complex number.
        let (repeat, group) = match element {
            Element::Bytes(width) => (width, 1),
            Element::Pairs(_) => (1, 2),
            _ => (1, 1),
        };
        let own = Self::validity(data_type, array, offset, length, repeat);
        validity.extend(own.map(|bits| ValidityBits { group, ..bits }));
        let values = buffer(array, 1).unwrap_or(std::ptr::null());
        let elements = element.elements_of(length).ok_or_else(overflow)?;
        if let Element::Bytes(width) = element {
            offset = offset.checked_mul(width).ok_or_else(overflow)?;
        }
        Ok(Leaf { values, offset, elements, rows: self.length, validity, innermost: Some((data_type, array)) })
    }
}

impl<'a> Leaf<'a> {
    /// Elements of one byte each.
    pub(crate) fn of_bytes(bytes: &'a [u8]) -> Self {
        let (values, elements) = (bytes.as_ptr(), bytes.len());
        Self { elements, rows: elements, ..Self::plain(values) }
    }

    /// Returns elements of one bit each, the first at bit `offset` of the bytes.
    ///
    /// # Errors
    /// When the bytes have fewer bits.
    pub(crate) fn of_bits(bytes: &'a [u8], offset: usize, elements: usize) -> Result<Self> {
        let end = offset.checked_add(elements).ok_or_else(overflow)?;
        if end.div_ceil(8) > bytes.len() {
            return Err(Error::internal(format!("{elements} bits from bit {offset} of {} bytes", bytes.len())));
        }
        Ok(Self { offset, elements, rows: elements, ..Self::plain(bytes.as_ptr()) })
    }

    /// Returns the same elements as those of so many rows.
    pub(crate) fn in_rows(self, rows: usize) -> Self {
        Self { rows, ..self }
    }

    fn plain(values: *const u8) -> Self {
        Self { values, offset: 0, elements: 0, rows: 0, validity: Vec::new(), innermost: None }
    }

    /// Returns the address of the first element, for elements of whole bytes.
    pub(crate) fn start(&self, element: Element) -> *const u8 {
        // Import checked that the array has offset + length slots, so the product cannot overflow.
        self.values.wrapping_add(self.offset.wrapping_mul(element.stored_size()))
    }

    /// Returns the address where the slots of the innermost array end, including those after the elements; for elements
    /// taken from an array, where they end.
    pub(crate) fn known_end(&self, element: Element) -> usize {
        let own = self.offset.saturating_add(self.elements);
        let end = self.innermost.and_then(|(_, array)| usize::try_from(array.offset.saturating_add(array.length)).ok());
        let bytes = end.unwrap_or(own).max(own).saturating_mul(element.stored_size());
        self.values.addr().saturating_add(bytes)
    }

    /// Returns which elements are null; `None` if none is.
    ///
    /// # Errors
    /// If a bit per element cannot be allocated.
    ///
    /// # Safety
    /// The array that this is a leaf of is in host memory.
    #[inline]
    pub(crate) unsafe fn host_mask(&self) -> Result<Option<Mask<'a>>> {
        if let Some((DataType::Null, _)) = self.innermost {
            return Mask::of_nulls(self.elements);
        }
        // SAFETY: the walk gave bitmaps of an array that is borrowed for 'a, which import checked to have their offsets and
        // lengths; host memory (a clause of `# Safety`).
        unsafe { Mask::combine(&self.validity, self.elements) }
    }

    /// Returns the addresses of the elements, which are of whole bytes.
    pub(crate) fn element_bytes(&self, element: Element) -> Range<usize> {
        let start = self.start(element).addr();
        start..start.saturating_add(self.elements.saturating_mul(element.stored_bytes()))
    }

    /// Returns whether elements are or may be null.
    pub(crate) fn has_bitmaps(&self) -> bool {
        !self.validity.is_empty() || matches!(self.innermost, Some((DataType::Null, _)))
    }

    /// Returns the number of null elements, if the arrays tell without their bitmaps.
    pub(crate) fn known_nulls(&self) -> Option<usize> {
        match (self.innermost, self.validity.as_slice()) {
            (Some((DataType::Null, _)), _) => Some(self.elements),
            (_, []) => Some(0),
            (_, [only]) if only.group == 1 => only.nulls?.checked_mul(only.repeat),
            _ => None,
        }
    }

    /// Returns the device bitmaps of the elements, the outermost first; `None` if they do not tell all nulls:
    /// everything is null, or values of a dictionary are.
    pub(crate) fn levels(&self) -> Option<Vec<BitmapLevel>> {
        if self.dictionary_bitmap().is_some() { None } else { self.own_levels() }
    }

    /// As [`Leaf::levels`], whether or not codes of a dictionary are null by its values.
    pub(crate) fn own_levels(&self) -> Option<Vec<BitmapLevel>> {
        if matches!(self.innermost, Some((DataType::Null, _))) {
            return None;
        }
        let levels = self.validity.iter().filter(|level| level.repeat > 0 && self.elements > 0);
        Some(levels.map(ValidityBits::level).collect())
    }

    /// Returns the addresses of the bits that [`Leaf::mask_read`] reads; without those of a dictionary's values if these are
    /// gathered.
    pub(crate) fn bitmaps(&self, are_gathered: bool) -> impl Iterator<Item = BitRange> {
        let levels = self.validity.iter().filter(|level| level.repeat > 0 && self.elements > 0);
        let of_values = self.dictionary_bitmap().filter(|_| !are_gathered && self.elements > 0);
        levels.map(ValidityBits::range).chain(of_values)
    }

    /// Returns the bitmap of the dictionary, if only that tells whether codes stand for nulls.
    fn dictionary_bitmap(&self) -> Option<BitRange> {
        Some(self.dictionary_levels()?.range())
    }

    fn dictionary_levels(&self) -> Option<ValidityBits> {
        let LeafDictionary { array, values, .. } = self.dictionary()?;
        let (offset, length) = (slot(array).ok()?, usize::try_from(array.length).ok()?);
        ArrayView::validity(values, array, offset, length, 1).filter(|level| level.nulls.is_none() && length > 0)
    }

    /// Returns which elements of an array on a device are null; `None` if none is. `read` returns the bytes of a bitmap, one of
    /// [`Leaf::bitmaps`], or `None` if all its bits are set. Of values that are gathered, which codes are null.
    ///
    /// # Errors
    /// If the elements are codes of a dictionary with nulls, and those of `read`.
    pub(crate) fn mask_read(
        &self,
        are_gathered: bool,
        mut read: impl FnMut(BitRange) -> Result<Option<Vec<u8>>>,
    ) -> Result<Option<Mask<'a>>> {
        if let Some((DataType::Null, _)) = self.innermost {
            return Mask::of_nulls(self.elements);
        }
        if !are_gathered && self.elements > 0 {
            self.refuse_null_values(&mut read)?;
        }
        Mask::combine_read(&self.validity, self.elements, read)
    }

    /// Refuses codes of a dictionary that is known to have nulls before a bitmap is read, as [`Leaf::mask_read`] does.
    ///
    /// # Errors
    /// If the elements are such codes.
    pub(crate) fn refuse_counted_values(&self, are_gathered: bool) -> Result<()> {
        if are_gathered || self.elements == 0 {
            return Ok(());
        }
        self.refuse_null_values(&mut |_| Ok(None))
    }

    /// Refuses codes of a dictionary with nulls, because only its values tell which codes stand for one.
    fn refuse_null_values(&self, read: &mut impl FnMut(BitRange) -> Result<Option<Vec<u8>>>) -> Result<()> {
        let Some(LeafDictionary { array, values, .. }) = self.dictionary() else { return Ok(()) };
        let has_nulls = match values {
            DataType::Null => array.length > 0,
            // Their nulls are the nulls of the values that they stand for.
            DataType::Dictionary(_, _) | DataType::RunEndEncoded(_, _) | DataType::Union(_, _) => true,
            _ => match self.dictionary_levels() {
                Some(level) => Mask::combine_read(&[level], level.length, read)?.is_some(),
                None => array.null_count > 0 && buffer(array, 0).is_some_and(|bits| !bits.is_null()),
            },
        };
        if !has_nulls {
            return Ok(());
        }
        let reason =
            format!("the dictionary of {values} is on a device and may have nulls, so codes may be null by it");
        Err(Error::unsupported(reason).remedy_is(Remedy::Keep))
    }

    /// Returns the dictionary of the elements.
    pub(super) fn dictionary(&self) -> Option<LeafDictionary<'a>> {
        let Some((DataType::Dictionary(codes, values), array)) = self.innermost else { return None };
        Some(LeafDictionary { codes: DType::of_arrow(codes)?, array: dictionary(array)?, values })
    }

    /// Returns whether the bitmap of the dictionary's values tells which codes stand for nulls.
    pub(crate) fn has_plain_dictionary(&self) -> bool {
        self.dictionary().is_some_and(|LeafDictionary { array, values, .. }| match values {
            DataType::Null => array.length == 0,
            DataType::Dictionary(_, _) | DataType::RunEndEncoded(_, _) | DataType::Union(_, _) => false,
            _ => true,
        })
    }

    /// Returns where the values of the dictionary, or of the runs, are; `None` if the elements are neither codes nor in runs.
    pub(crate) fn gathered_values(&self) -> Option<DictionaryValues> {
        if let Some((DataType::RunEndEncoded(ends, values), array)) = self.innermost {
            let (codes, ends, array) =
                (DType::of_arrow(ends.data_type())?, child(array, 0).ok()?, child(array, 1).ok()?);
            let runs = usize::try_from(ends.length.min(array.length)).ok()?;
            let start = buffer(ends, 1).map_or(0, |ends| ends.addr());
            let start = start.saturating_add(slot(ends).ok()?.saturating_mul(codes.itemsize()));
            let code_bytes = start..start.saturating_add(runs.saturating_mul(codes.itemsize()));
            return Self::values_of(array, values.data_type(), (codes, code_bytes), runs, Some(self.offset));
        }
        let LeafDictionary { codes, array, values } = self.dictionary()?;
        let count = usize::try_from(array.length).ok()?;
        let code_bytes = self.element_bytes(Element::Values(codes));
        Self::values_of(array, values, (codes, code_bytes), count, None)
    }

    fn values_of(
        array: &ArrowArray,
        values: &DataType,
        (codes, code_bytes): (DType, Range<usize>),
        count: usize,
        first_row: Option<usize>,
    ) -> Option<DictionaryValues> {
        let offset = slot(array).ok()?;
        let validity = ArrayView::validity(values, array, offset, count, 1).filter(|_| count > 0);
        let (start, validity) = (buffer(array, 1).map_or(0, |values| values.addr()), validity.map(|bits| bits.range()));
        Some(DictionaryValues { codes, code_bytes, first_row, start, offset, count, validity })
    }

    /// Returns what a plan needs to know of this chunk, which has so many nulls.
    pub(crate) fn chunk(&self, spec: &Spec, nulls: usize) -> ChunkSize {
        let element = spec.element();
        let aligned = self.elements == 0 || self.start(element).addr().is_multiple_of(element.alignment());
        ChunkSize { rows: self.rows, nulls, aligned, ..ChunkSize::without_nulls(0) }
    }

    /// Returns what a plan needs to know of this chunk on a device, as far as the arrays tell without their memory.
    pub(crate) fn chunk_on_device(&self, spec: &Spec) -> ChunkSize {
        // Values may be null where their codes are not.
        let is_gathered = spec.decoded().is_some();
        let is_told = is_gathered || self.has_plain_dictionary();
        let may_be_null = |values: DictionaryValues| values.validity.is_some() || !is_told;
        let has_null_values = self.gathered_values().is_some_and(may_be_null);
        let nulls = self.known_nulls().filter(|_| !has_null_values);
        let chunk = self.chunk(spec, nulls.unwrap_or(self.elements));
        ChunkSize {
            is_counted: nulls.is_some(),
            unread: UnreadChunk {
                bitmaps: self.bitmaps(is_gathered).next().is_some(),
                null_values: has_null_values,
                dictionary: false,
            },
            // Codes of any alignment are gathered by.
            aligned: chunk.aligned || is_gathered,
            ..chunk
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, Int32Array, StructArray};
    use arrow_buffer::NullBuffer;
    use arrow_schema::Field;

    use crate::arrow::DeviceArray;
    use crate::spec::{NullPolicy, Options, Spec};

    #[test]
    fn the_null_count_of_an_enclosing_struct_is_not_that_of_some_of_its_rows() {
        let item = Arc::new(Field::new("x", arrow_schema::DataType::Int32, true));
        let nulls = NullBuffer::from([[false; 4], [true; 4]].concat());
        let rows = StructArray::new(
            vec![item.clone()].into(),
            vec![Arc::new(Int32Array::from_iter_values(0..8))],
            Some(nulls),
        );
        let field = Arc::new(Field::new("", rows.data_type().clone(), true));
        let rows = DeviceArray::from_arrow(&rows, field).unwrap();
        let spec = Spec::new(&item, &Options::default().nulls(NullPolicy::Keep)).unwrap();
        let column = rows.view().struct_field(0).unwrap();
        let known = |range| column.clone().slice(&range).leaf(&spec).unwrap().known_nulls();
        // Four rows of which none is null are not the four nulls of all.
        assert_eq!([known(0..8), known(4..8), known(0..4)], [Some(4), None, None]);
    }
}
