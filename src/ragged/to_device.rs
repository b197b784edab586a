//! Copies lists and strings to another device.

use super::{Ragged, Values};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::transfer::{Transfer, tensors_to_device};

impl Ragged {
    /// The rows on another device: what is copied is copied together.
    ///
    /// # Errors
    /// As [`tensors_to_device`].
    pub fn to_device(&self, transfer: &Transfer<'_>) -> Result<Self> {
        let mut moved = tensors_to_device(&self.parts(), transfer)?.into_iter();
        self.with_parts(&mut moved)
    }

    /// All tensors that this is made of.
    pub(crate) fn parts(&self) -> Vec<Tensor> {
        let mut parts = Vec::new();
        self.push_parts(&mut parts);
        parts
    }

    /// Marks the rows as the only owner of their memory, copied for them.
    pub(crate) fn into_own(self) -> Result<Self> {
        let own: Vec<_> = self.parts().into_iter().map(Tensor::into_own).collect();
        self.with_parts(&mut own.into_iter())
    }

    fn push_parts(&self, parts: &mut Vec<Tensor>) {
        match &self.values {
            Values::Tensor(tensor) => parts.push(tensor.clone()),
            Values::Ragged(inner) => inner.push_parts(parts),
        }
        parts.push(self.offsets.clone());
        parts.extend([&self.lengths, &self.shapes, &self.validity].into_iter().flatten().cloned());
    }

    /// The same rows of other parts, in the order of `push_parts`.
    pub(crate) fn with_parts(&self, parts: &mut impl Iterator<Item = Tensor>) -> Result<Self> {
        let values = match &self.values {
            Values::Tensor(_) => Values::from(next(parts)?),
            Values::Ragged(inner) => Values::from(inner.with_parts(parts)?),
        };
        let offsets = next(parts)?;
        let mut optional = |part: &Option<Tensor>| part.as_ref().map(|_| next(parts)).transpose();
        let (lengths, shapes) = (optional(&self.lengths)?, optional(&self.shapes)?);
        let validity = optional(&self.validity)?;
        Ok(Self { values, offsets, lengths, shapes, validity, field: self.field.clone() })
    }
}

fn next(parts: &mut impl Iterator<Item = Tensor>) -> Result<Tensor> {
    parts.next().ok_or_else(|| Error::internal("a part of ragged rows was lost on its way"))
}
