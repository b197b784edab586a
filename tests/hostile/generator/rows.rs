//! What a node's rows are by the Arrow format, read value by value; nothing where they cannot be told.

use super::kind::Kind;
use super::node::{Node, Pointer, int};

/// A value of any type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bytes(Vec<u8>),
    /// Of lists, structs and maps.
    Several(Vec<Value>),
    Union(i64, Box<Value>),
}

/// The rows of a node, by its bitmaps and by its null counts: a count of 0 may be believed.
#[derive(Debug)]
pub(crate) struct Rows([Option<Vec<Value>>; 2]);

impl Rows {
    pub(crate) fn of(node: &Node) -> Self {
        Self([node.rows(), node.clone().trusting().rows()])
    }

    /// Whether these rows are a right reading.
    pub(crate) fn allow(&self, rows: &Option<Vec<Value>>) -> bool {
        rows.is_some() && self.0.contains(rows)
    }
}

/// More rows than this are not looked at.
const MANY: i64 = 1 << 12;

impl Node {
    /// Every row; `None` where the contents are broken, or too many.
    pub(crate) fn rows(&self) -> Option<Vec<Value>> {
        if self.length > MANY {
            return None;
        }
        (0..self.length).map(|row| self.row(row)).collect()
    }

    fn bytes(&self, index: usize) -> Option<&[u8]> {
        let buffer = self.buffers.get(index)?;
        match buffer.pointer {
            Pointer::Right | Pointer::Misaligned => Some(&buffer.bytes),
            Pointer::Null | Pointer::Wild | Pointer::Device => None,
        }
    }

    /// Whether the bitmap says that a slot is valid.
    pub(crate) fn is_valid(&self, slot: usize) -> Option<bool> {
        match self.buffers.first()?.pointer {
            Pointer::Null => Some(true),
            _ => Some(self.bytes(0)?.get(slot / 8)? >> (slot % 8) & 1 == 1),
        }
    }

    /// The same node as whoever believes a null count of 0 sees it.
    fn trusting(mut self) -> Self {
        if self.null_count == 0 && self.kind().is_some_and(|kind| kind.has_validity()) {
            self.buffers.iter_mut().take(1).for_each(|bitmap| bitmap.pointer = Pointer::Null);
        }
        self.children = self.children.into_iter().map(Self::trusting).collect();
        self.dictionary = self.dictionary.map(|values| Box::new(values.trusting()));
        self
    }

    /// A row, counted from the offset.
    pub(crate) fn row(&self, row: i64) -> Option<Value> {
        if row < 0 || row >= self.length || self.offset < 0 {
            return None;
        }
        let slot = usize::try_from(self.offset.checked_add(row)?).ok()?;
        let kind = self.kind()?;
        if kind.has_validity() && !self.is_valid(slot)? {
            return Some(Value::Null);
        }
        if let Some(dictionary) = &self.dictionary {
            let Kind::Fixed(width) = kind else { return None };
            let unsigned = matches!(self.format.as_deref(), Some(b"C" | b"S" | b"I" | b"L"));
            let key = int(self.bytes(1)?, slot, width)?;
            let key = if unsigned && width < 8 { key & ((1 << (8 * width)) - 1) } else { key };
            return dictionary.row(key);
        }
        let child = |index: usize| self.children.get(index);
        let several = |node: &Node, first: i64, count: i64| {
            let rows = (first..first.checked_add(count)?).map(|row| node.row(row));
            rows.collect::<Option<Vec<Value>>>().map(Value::Several)
        };
        let width = |wide: &bool| if *wide { 8 } else { 4 };
        match &kind {
            Kind::Null => Some(Value::Null),
            Kind::Bits => Some(Value::Bytes(vec![self.bytes(1)?.get(slot / 8)? >> (slot % 8) & 1])),
            Kind::Fixed(width) => {
                let start = slot.checked_mul(*width)?;
                Some(Value::Bytes(self.bytes(1).unwrap_or(&[]).get(start..start.checked_add(*width)?)?.to_vec()))
            }
            Kind::Bytes { wide } => {
                let at = |slot| int(self.bytes(1)?, slot, width(wide)).and_then(|at| usize::try_from(at).ok());
                let (start, end) = (at(slot)?, at(slot + 1)?);
                // The data of empty strings may be NULL.
                let data = self.bytes(2).unwrap_or(&[]);
                Some(Value::Bytes(data.get(start..end)?.to_vec()))
            }
            Kind::View => {
                let view = self.bytes(1)?.get(slot * 16..slot * 16 + 16)?;
                let length = usize::try_from(int(view, 0, 4)?).ok()?;
                if length <= 12 {
                    return Some(Value::Bytes(view[4..4 + length].to_vec()));
                }
                let index = usize::try_from(int(view, 2, 4)?).ok()?.checked_add(2)?;
                let start = usize::try_from(int(view, 3, 4)?).ok()?;
                let last = self.buffers.len() - 1;
                let data = self.bytes(Some(index).filter(|index| *index < last)?)?;
                Some(Value::Bytes(data.get(start..start.checked_add(length)?)?.to_vec()))
            }
            Kind::List { wide } => {
                let at = |slot| int(self.bytes(1)?, slot, width(wide));
                let (start, end) = (at(slot)?, at(slot + 1)?);
                several(child(0)?, start, end.checked_sub(start).filter(|count| *count >= 0)?)
            }
            Kind::Map => {
                let (start, end) = (int(self.bytes(1)?, slot, 4)?, int(self.bytes(1)?, slot + 1, 4)?);
                several(child(0)?, start, end.checked_sub(start).filter(|count| *count >= 0)?)
            }
            Kind::ListView { wide } => {
                let at = |index| int(self.bytes(index)?, slot, width(wide));
                several(child(0)?, at(1)?, at(2)?.max(-1)).filter(|_| at(2).is_some_and(|size| size >= 0))
            }
            Kind::FixedList(size) => several(child(0)?, i64::try_from(slot.checked_mul(*size)?).ok()?, *size as i64),
            Kind::Struct => {
                let slot = i64::try_from(slot).ok()?;
                self.children.iter().map(|child| child.row(slot)).collect::<Option<_>>().map(Value::Several)
            }
            Kind::Sparse(ids) | Kind::Dense(ids) => {
                let id = int(self.bytes(0)?, slot, 1)?;
                let index = ids.iter().position(|own| i64::from(*own) == id)?;
                let at =
                    if let Kind::Dense(_) = kind { int(self.bytes(1)?, slot, 4)? } else { i64::try_from(slot).ok()? };
                Some(Value::Union(id, Box::new(child(index)?.row(at)?)))
            }
            Kind::Runs => {
                let (ends, values) = (child(0)?, child(1)?);
                let run = (0..ends.length.min(MANY)).find(|run| {
                    let end = match ends.row(*run) {
                        Some(Value::Bytes(bytes)) => int(&bytes, 0, bytes.len()),
                        _ => None,
                    };
                    end.is_some_and(|end| end > slot as i64)
                })?;
                values.row(run)
            }
        }
    }

    /// Whether slots under fixed-size lists, or in runs, are codes of a dictionary.
    pub(crate) fn has_codes(&self) -> bool {
        let inner = match self.kind() {
            Some(Kind::Runs) => self.children.get(1),
            Some(Kind::FixedList(_)) => self.children.first(),
            _ => None,
        };
        self.dictionary.is_some() || inner.is_some_and(Node::has_codes)
    }

    /// The elements of a column with a tensor form, as rows of fixed-size lists of numbers, bools or ticks; of a
    /// dictionary, the values. A null is
    /// a null in each of its elements.
    pub(crate) fn elements(&self) -> Option<Vec<Option<Vec<u8>>>> {
        let mut elements = Vec::new();
        for row in self.rows()? {
            self.flatten(&row, &mut elements)?;
        }
        Some(elements)
    }

    fn flatten(&self, value: &Value, into: &mut Vec<Option<Vec<u8>>>) -> Option<()> {
        let bool8 = self.format.as_deref() == Some(b"c")
            && self.metadata.as_ref().is_some_and(|bytes| bytes.windows(11).any(|word| word == b"arrow.bool8"));
        if let Some(dictionary) = &self.dictionary {
            return dictionary.flatten(value, into);
        }
        let binary = self.format.as_deref().is_some_and(|format| format.starts_with(b"w:"));
        match (self.kind()?, value) {
            (Kind::Runs, value) => self.children.get(1)?.flatten(value, into)?,
            (Kind::Fixed(width), Value::Null) if binary => into.extend(vec![None; width]),
            (Kind::Fixed(_), Value::Bytes(bytes)) if binary => {
                into.extend(bytes.iter().map(|byte| Some(vec![*byte])));
            }
            (Kind::FixedList(size), value) => {
                let child = self.children.first()?;
                for index in 0..size {
                    match value {
                        Value::Several(items) => child.flatten(items.get(index)?, into)?,
                        _ => child.flatten(&Value::Null, into)?,
                    }
                }
            }
            (Kind::Bits | Kind::Fixed(_), Value::Null) => into.push(None),
            (Kind::Bits | Kind::Fixed(_), Value::Bytes(bytes)) if bool8 => {
                into.push(Some(vec![u8::from(bytes[0] != 0)]))
            }
            (Kind::Bits | Kind::Fixed(_), Value::Bytes(bytes)) => into.push(Some(bytes.clone())),
            _ => return None,
        }
        Some(())
    }
}
