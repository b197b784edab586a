//! Describes a column to the kernels: where its elements are, which are null, and what becomes of nulls.

use std::ops::Range;

use crate::arrow::{BitRange, BitmapLevel, DictionaryValues, Leaf};
use crate::cuda::{CodeMeaning, ColumnType, Current, DeviceBits, KernelDictionary, KernelLevel, KernelRuns, Stream};
use crate::error::Result;
use crate::spec::{Element, Nulls, Spec};
use crate::transfer::device_address;

/// The memory of one chunk of a column that a kernel reads.
#[derive(Debug)]
pub(crate) struct KernelSource {
    pub(super) values: Range<usize>,
    first_bit: usize,
    pub(super) dtype: ColumnType,
    /// Of decimals and ticks.
    pub(super) scale: i8,
    pub(super) levels: Vec<BitmapLevel>,
    pub(super) elements: usize,
    /// The elements of a row of the matrix that has this column.
    pub(super) width: usize,
    fill: Option<[u8; 16]>,
    /// Whether the kernel writes validity: a bool for each element, without reading values.
    pub(super) is_validity: bool,
    /// The values that the elements, which are codes then, stand for.
    pub(super) dictionary: Option<DictionarySource>,
}

/// The dictionary that a kernel gathers values of, or reads which are null.
#[derive(Debug)]
pub(super) struct DictionarySource {
    /// Whether the elements stay codes, and only the values' validity is read.
    pub(super) are_codes: bool,
    /// Of codes, or of run ends.
    code_type: ColumnType,
    coding: Coding,
    pub(super) values: Range<usize>,
    count: usize,
    pub(super) validity: Option<BitRange>,
}

/// What the elements of a column with a dictionary are.
#[derive(Clone, Copy, Debug)]
enum Coding {
    /// Indices of values.
    Codes,
    /// Run ends, with a value per run.
    RunEnds {
        /// The logical offset of the first row.
        first_row: u64,
    },
    /// Indices of the elements of padded rows; an index out of range stands for padding.
    Places {
        /// The first bytes of the padding value.
        padding: [u8; 8],
    },
}

impl DictionarySource {
    /// The values of the dictionary of a leaf, and which of its bytes has the first bit, if they are bits; `None` if codes are no
    /// integers, or a buffer is missing.
    fn new(element: Element, dictionary: DictionaryValues) -> Option<(Self, usize)> {
        let DictionaryValues { codes, first_row, start, offset, count, validity, .. } = dictionary;
        let runs = |row| Coding::RunEnds { first_row: row as u64 };
        let coding = first_row.map_or(Coding::Codes, runs);
        let first_bit = if element == Element::Bits { offset % 8 } else { 0 };
        let values = if element == Element::Bits {
            let start = start.saturating_add(offset / 8);
            start..start.saturating_add(first_bit.saturating_add(count).div_ceil(8))
        } else {
            let size = element.stored_bytes();
            let start = start.saturating_add(offset.saturating_mul(size));
            start..start.saturating_add(count.saturating_mul(size))
        };
        let code_type = ColumnType::of(codes)?;
        Some((Self { are_codes: false, code_type, coding, values, count, validity }, first_bit))
    }

    /// The dictionary whose nulls are those of its codes; `None` if codes are no integers.
    fn of_null_values(dictionary: DictionaryValues) -> Option<Self> {
        let DictionaryValues { codes, count, validity, .. } = dictionary;
        let code_type = ColumnType::of(codes)?;
        Some(Self { are_codes: true, code_type, coding: Coding::Codes, values: 0..0, count, validity })
    }

    /// The runs whose ends start at an address; `None` of codes.
    pub(super) fn runs(&self, ends: usize) -> Option<KernelRuns> {
        let Coding::RunEnds { first_row } = self.coding else { return None };
        let (ends, count) = (bits(ends, 0).bitmap, self.count as u64);
        Some(KernelRuns { ends, ends_type: self.code_type, count, first_row })
    }

    /// Returns the dictionary of codes or run ends that start at an address. The codes of runs, which a kernel writes, are at `expanded`.
    pub(super) fn of_elements(&self, start: usize, expanded: u64) -> KernelDictionary {
        let (runs, start) = (self.runs(start), bits(start, 0).bitmap);
        let meaning = match (self.coding, runs) {
            (Coding::Places { padding }, _) => CodeMeaning::Places { padding },
            (_, Some(runs)) => CodeMeaning::Runs(runs),
            (_, None) => CodeMeaning::Codes,
        };
        KernelDictionary {
            codes: if runs.is_some() { expanded } else { start },
            code_type: runs.map_or(self.code_type, |runs| runs.code_type()),
            values: bits(self.values.start, 0).bitmap,
            count: self.count as u64,
            validity: self.validity.map(|range| bits(range.start, range.first_bit)),
            meaning,
        }
    }

    /// Whether the codes are places of padded rows, which kernels write.
    pub(super) fn are_places(&self) -> bool {
        matches!(self.coding, Coding::Places { .. })
    }
}

impl KernelSource {
    /// Returns the elements of a chunk; `None` if there is no kernel: for decimals of 256 bits, casts of other dtypes, columns of
    /// nulls only, and codes of a dictionary whose own bitmap does not tell which of its values are null.
    pub(crate) fn new(spec: &Spec, leaf: &Leaf<'_>) -> Option<Self> {
        let (element, dtype) = (spec.element(), column_type(spec)?);
        if spec.has_codes() && !leaf.has_plain_dictionary() {
            return None;
        }
        let (mut dictionary, mut first_bit) = (None, if element == Element::Bits { leaf.offset % 8 } else { 0 });
        let values = if is_gathered(spec) {
            let stored = leaf.gathered_values()?;
            let codes = stored.code_bytes.clone();
            let (found, bit) = DictionarySource::new(element, stored)?;
            (dictionary, first_bit) = (Some(found), bit);
            codes
        } else if element == Element::Bits {
            let start = leaf.values.addr().saturating_add(leaf.offset / 8);
            start..start.saturating_add((first_bit + leaf.elements).div_ceil(8))
        } else {
            let start = leaf.start(element).addr();
            start..start.saturating_add(leaf.elements.saturating_mul(element.stored_bytes()))
        };
        // Where nulls are refused, the host has looked for them.
        if spec.has_codes()
            && spec.nulls() != Nulls::Refused
            && let Some(stored) = leaf.gathered_values().filter(|values| values.validity.is_some())
        {
            dictionary = Some(DictionarySource::of_null_values(stored)?);
        }
        Some(Self {
            values,
            first_bit,
            dtype,
            scale: element.scaled().map_or(0, |(_, scale)| scale),
            levels: if dictionary.is_some() { leaf.own_levels()? } else { leaf.levels()? },
            elements: leaf.elements,
            width: 1,
            fill: spec.nulls().written(),
            is_validity: false,
            dictionary,
        })
    }

    /// Returns the items of padded rows with the bitmaps of the leaf alone: codes as integers, and items that are decoded without values,
    /// which [`KernelSource::holding`] adds.
    pub(super) fn of_items(spec: &Spec, leaf: &Leaf<'_>) -> Option<Self> {
        let dtype = match column_type(spec)? {
            // Decoded bits are bytes.
            ColumnType::Bits => ColumnType::Bool,
            dtype => dtype,
        };
        let values = if spec.decoded().is_some() { 0..0 } else { leaf.element_bytes(spec.element()) };
        Some(Self {
            values,
            first_bit: 0,
            dtype,
            scale: spec.element().scaled().map_or(0, |(_, scale)| scale),
            levels: leaf.own_levels()?,
            elements: leaf.elements,
            width: 1,
            fill: spec.nulls().written(),
            is_validity: false,
            dictionary: None,
        })
    }

    /// Returns the values of a dictionary or of runs, as they are stored, for each element of a leaf; zero for nulls of the leaf's bitmaps.
    /// Nulls of the values are not looked at.
    pub(super) fn stored_values(element: Element, leaf: &Leaf<'_>) -> Option<Self> {
        let stored = leaf.gathered_values()?;
        let codes = stored.code_bytes.clone();
        let (dictionary, first_bit) = DictionarySource::new(element, DictionaryValues { validity: None, ..stored })?;
        let dtype = if element == Element::Bits { ColumnType::Bits } else { ColumnType::Same };
        Self::looked_up(leaf, (codes, dictionary), dtype, first_bit)
    }

    /// Returns the bits of a bitmap of a dictionary's or of runs' values, for each element of a leaf; zero for nulls of the leaf's bitmaps.
    pub(super) fn value_validity(leaf: &Leaf<'_>, validity: BitRange) -> Option<Self> {
        let stored = leaf.gathered_values()?;
        let codes = stored.code_bytes.clone();
        // The values are bits, whose bitmap is that of the values in their place.
        let bits = DictionaryValues { start: validity.start, offset: validity.first_bit, validity: None, ..stored };
        let (dictionary, first_bit) = DictionarySource::new(Element::Bits, bits)?;
        Self::looked_up(leaf, (codes, dictionary), ColumnType::Bits, first_bit)
    }

    fn looked_up(
        leaf: &Leaf<'_>,
        (values, dictionary): (Range<usize>, DictionarySource),
        dtype: ColumnType,
        first_bit: usize,
    ) -> Option<Self> {
        Some(Self {
            values,
            first_bit,
            dtype,
            scale: 0,
            levels: leaf.own_levels()?,
            elements: leaf.elements,
            width: 1,
            fill: Some([0; 16]),
            is_validity: false,
            dictionary: Some(dictionary),
        })
    }

    /// The same elements, so many of them in each row of a matrix.
    pub(super) fn in_rows_of(self, width: usize) -> Self {
        Self { width, ..self }
    }

    /// The same elements, with values at these addresses.
    pub(super) fn holding(self, values: Range<usize>) -> Self {
        Self { values, ..self }
    }

    /// The same elements, of which a bitmap tells which are valid.
    pub(super) fn valid_by(self, start: usize, bytes: usize) -> Self {
        Self { levels: vec![BitmapLevel { start, bytes, first_bit: 0, repeat: 1, group: 1 }], ..self }
    }

    /// Returns which elements of a chunk are valid; `None` if its bitmaps do not tell all nulls.
    pub(crate) fn validity(leaf: &Leaf<'_>) -> Option<Self> {
        Some(Self {
            values: 0..0,
            first_bit: 0,
            dtype: ColumnType::Bits,
            scale: 0,
            levels: leaf.levels()?,
            elements: leaf.elements,
            width: 1,
            fill: Some([0; 16]),
            is_validity: true,
            dictionary: None,
        })
    }

    /// The elements as items of padded rows: codes of this type in `places` name `elements` of them. `validity`: which items' elements
    /// are valid, where they have bitmaps.
    pub(super) fn padded(
        self,
        (places, code_type): (Range<usize>, ColumnType),
        elements: usize,
        validity: Option<BitRange>,
        padding: [u8; 8],
    ) -> Self {
        let (values, count, coding) = (self.values, self.elements, Coding::Places { padding });
        let dictionary = DictionarySource { are_codes: false, code_type, coding, values, count, validity };
        Self { values: places, levels: Vec::new(), elements, dictionary: Some(dictionary), ..self }
    }

    /// The same elements, with this written for nulls where they are kept.
    pub(super) fn filled_with(self, kept: [u8; 16], spec: &Spec) -> Self {
        let fill = if spec.nulls() == Nulls::Kept { Some(kept) } else { self.fill };
        Self { fill, ..self }
    }

    /// Returns whether a value may not fit the output, a code may have no value, or an item of padded rows may be a refused null. Bools
    /// fit everything.
    pub(super) fn may_misfit(&self) -> bool {
        let by_code = self.dictionary.as_ref().is_some_and(|dictionary| match dictionary.coding {
            Coding::Places { .. } => dictionary.validity.is_some() && self.fill.is_none(),
            Coding::Codes | Coding::RunEnds { .. } => true,
        });
        by_code || !matches!(self.dtype, ColumnType::Same | ColumnType::Bits | ColumnType::Bool)
    }

    /// Whether the kernels for casts are needed.
    pub(super) fn is_cast(&self) -> bool {
        self.dictionary.is_some() || self.dtype != ColumnType::Same
    }

    /// Whether the kernels of frequent casts make an output of this type and element size.
    pub(super) fn is_frequent_as(&self, to: ColumnType, itemsize: u64) -> bool {
        match &self.dictionary {
            Some(dictionary) if dictionary.are_codes => false,
            // The codes of runs are aligned.
            Some(dictionary) => dictionary.of_elements(self.values.start, 0).is_frequent_as(self.dtype, to, itemsize),
            None => self.dtype.is_frequent_as(to, itemsize, self.elements().0.bitmap),
        }
    }

    /// Whether the elements are written as they are stored.
    pub(super) fn is_verbatim(&self) -> bool {
        !self.is_validity && !self.is_cast() && !self.fills()
    }

    /// Whether bools become bools.
    pub(super) fn is_bools(&self) -> bool {
        self.dictionary.is_none() && matches!(self.dtype, ColumnType::Bits | ColumnType::Bool)
    }

    /// Writes a single column of bools, in whole vectors.
    pub(super) fn write_bools(
        &self,
        current: &Current,
        validity: Option<DeviceBits>,
        out: u64,
        stream: Stream,
    ) -> Result<()> {
        let (values, count) = (bits(self.values.start, self.first_bit), self.elements as u64);
        if self.is_validity {
            // SAFETY: the output has room for the chunk.
            unsafe { current.set_memory(out, 1, self.elements, stream) }?;
        } else if self.dtype == ColumnType::Bits {
            // SAFETY: `pack` has checked the values, and the output has room for the chunk.
            unsafe { current.unpack_bits(values, count, out, stream) }?;
        } else {
            // SAFETY: `pack` has checked the values, and the output has room for the chunk.
            unsafe { current.normalise_bools(values.bitmap, count, out, stream) }?;
        }
        match (validity, self.fill) {
            // SAFETY: the output has room for the chunk, which was just written there; a bitmap has a bit for each
            // element.
            (Some(validity), Some([fill, ..])) => unsafe { current.fill_nulls(out, validity, count, fill, stream) },
            _ => Ok(()),
        }
    }

    /// Where the values are, and what is written for nulls.
    pub(super) fn elements(&self) -> (DeviceBits, Option<[u8; 16]>) {
        (bits(self.values.start, self.first_bit), self.fill)
    }

    /// Whether nulls are filled, and there is a bitmap that tells them.
    pub(super) fn fills(&self) -> bool {
        self.fill.is_some() && !self.levels.is_empty()
    }

    /// Whether kernels read the column's own bitmap directly.
    pub(super) fn plain_validity(&self) -> Option<DeviceBits> {
        match self.levels.as_slice() {
            [BitmapLevel { start, first_bit, repeat: 1, group: 1, .. }] => Some(bits(*start, *first_bit)),
            _ => None,
        }
    }
}

/// Returns how a kernel reads the elements of a spec; `None` if there is no kernel.
pub(super) fn column_type(spec: &Spec) -> Option<ColumnType> {
    let element = spec.element();
    let dtype = match element {
        Element::Bits => ColumnType::Bits,
        Element::Bool8 => ColumnType::Bool,
        Element::Decimal { bytes, .. } | Element::Ticks { bytes, .. } => ColumnType::scaled(bytes)?,
        _ if spec.is_cast() => ColumnType::of(element.dtype())?,
        _ => ColumnType::Same,
    };
    if dtype != ColumnType::Same {
        ColumnType::of(spec.dtype())?;
    }
    Some(dtype)
}

/// Returns whether there are kernels for the elements of a spec, by their type.
pub(crate) fn has_kernel(spec: &Spec) -> bool {
    (spec.decoded().is_none() || is_gathered(spec) || spec.is_of_lists()) && column_type(spec).is_some()
}

/// Returns whether kernels gather the values of a spec, which is decoded: those of a dictionary or of runs, which become at most 8 bytes
/// each.
pub(crate) fn is_gathered(spec: &Spec) -> bool {
    let are_plain = match spec.element() {
        Element::Bits | Element::Values(_) => true,
        element => element.scaled().is_some(),
    };
    // Elements of 16 bytes have no kernel that casts, and these gather.
    are_plain && spec.gathers() && spec.dtype().itemsize() <= 8 && column_type(spec).is_some()
}

pub(super) fn bits(start: usize, first_bit: usize) -> DeviceBits {
    // Device addresses that this process reaches have at most 64 bits.
    DeviceBits { bitmap: device_address(start).unwrap_or(u64::MAX), first: first_bit as u64 }
}

/// A level as kernels read it.
pub(super) fn kernel_level(level: &BitmapLevel) -> KernelLevel {
    let (repeat, group) = (level.repeat as u64, level.group as u64);
    KernelLevel { bits: bits(level.start, level.first_bit), repeat, group }
}
