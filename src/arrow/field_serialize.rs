//! Serializes a field to plain values, in the terms of the C data interface, and rebuilds it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field};

use super::check::children_of;
use super::foreign::MAX_DEPTH;
use super::schema::parse;
use crate::error::{Error, Result};
use crate::ffi::arrow_device::{ARROW_FLAG_DICTIONARY_ORDERED, ARROW_FLAG_MAP_KEYS_SORTED, ARROW_FLAG_NULLABLE};

/// The contents of an `ArrowSchema` for a field.
#[derive(Clone, Debug)]
pub(crate) struct FieldParts {
    /// The format string of the type.
    pub(crate) format: String,
    /// The name.
    pub(crate) name: String,
    /// The flags.
    pub(crate) flags: i64,
    /// The metadata.
    pub(crate) metadata: HashMap<String, String>,
    /// The fields of the children.
    pub(crate) children: Vec<FieldParts>,
    /// The field of a dictionary's values.
    pub(crate) dictionary: Option<Box<FieldParts>>,
}

impl FieldParts {
    /// The parts of a field.
    ///
    /// # Errors
    /// If the C data interface has no format string for the type.
    pub(crate) fn of(field: &Field) -> Result<Self> {
        let schema = FFI_ArrowSchema::try_from(field)
            .map_err(|error| Error::unsupported(error.to_string()).in_column(field.name()))?;
        let is_sorted = matches!(field.data_type(), DataType::Map(_, true));
        let flags = [
            (field.is_nullable(), ARROW_FLAG_NULLABLE),
            (schema.dictionary_ordered(), ARROW_FLAG_DICTIONARY_ORDERED),
            (is_sorted, ARROW_FLAG_MAP_KEYS_SORTED),
        ];
        let dictionary = match field.data_type() {
            DataType::Dictionary(_, values) => {
                Some(Box::new(Self::of(&Field::new("", values.as_ref().clone(), true))?))
            }
            _ => None,
        };
        Ok(Self {
            format: schema.format().to_owned(),
            name: field.name().clone(),
            flags: flags.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag),
            metadata: field.metadata().iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            children: children_of(field.data_type()).iter().map(|child| Self::of(child)).collect::<Result<_>>()?,
            dictionary,
        })
    }

    /// The field of these parts.
    ///
    /// # Errors
    /// If the values break the specification, or are nested too deep.
    pub(crate) fn field(self) -> Result<Field> {
        self.nested(0)
    }

    fn nested(self, depth: usize) -> Result<Field> {
        if depth > MAX_DEPTH {
            return Err(Error::unsupported(format!("a field nested deeper than {MAX_DEPTH} levels")));
        }
        let name = self.name;
        let children = self.children.into_iter().map(|child| child.nested(depth + 1).map(Arc::new));
        let children = children.collect::<Result<_>>()?;
        let mut data_type = parse(&self.format, children, self.flags).map_err(|error| error.in_column(&name))?;
        if let Some(values) = self.dictionary {
            if !data_type.is_dictionary_key_type() {
                return Err(Error::invalid(format!("a dictionary with indices of type {data_type}")).in_column(&name));
            }
            let values = values.nested(depth + 1)?.data_type().clone();
            data_type = DataType::Dictionary(Box::new(data_type), Box::new(values));
        }
        let field = Field::new(name, data_type, self.flags & ARROW_FLAG_NULLABLE != 0)
            .with_dict_is_ordered(self.flags & ARROW_FLAG_DICTIONARY_ORDERED != 0);
        Ok(field.with_metadata(self.metadata))
    }
}
