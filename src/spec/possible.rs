//! The steps that a type alone may lead to, and what data has to hold for them.

use std::fmt;

use arrow_schema::{DataType, Field};

use super::CopyMode;
use super::list_lengths::item_of_lists;
use crate::error::{Error, ErrorKind, Remedy, Result};

/// A step that a schema may lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PossibleStep {
    /// What happens.
    pub text: String,
    /// The condition on the data for this step; `None` if it applies to all data.
    pub only_if: Option<&'static str>,
}

/// The step of a column that is not a view of one chunk, and its condition on the data.
pub(crate) const JOINED: &str = "copied, unless all rows are in one aligned chunk";
pub(crate) const CHUNKS: &str = "rows are not in one aligned chunk";
pub(crate) const NULLS: &str = "values are null";
/// What the host may wait for on a device where null values are refused.
pub(crate) const NULLS_READ: &str = "nulls are looked for, where they are not counted";
pub(crate) const ABOVE_1: &str = "bytes are above 1";
pub(crate) const APART: &str = "lists do not follow each other";
pub(crate) const DICTIONARIES: &str = "chunks have different dictionaries";
/// Steps that a plan has too, by the same words.
pub(crate) const UNPACKED: &str = "bits unpacked to bytes";
pub(crate) const PRIVATE: &str = "memory of its own asked for";

/// Returns the step that casts values.
pub(crate) fn casting(from: impl fmt::Display, to: impl fmt::Display) -> String {
    format!("cast from {from} to {to}")
}

/// Adds, in front of these steps, the step that several chunks need, unless a step is certain anyway.
pub(crate) fn unless_one_chunk(mut steps: Vec<PossibleStep>) -> Vec<PossibleStep> {
    if steps.iter().all(|step| step.only_if.is_some()) {
        steps.insert(0, PossibleStep { text: JOINED.to_owned(), only_if: Some(CHUNKS) });
    }
    steps
}

/// The steps for data that has not been read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Undecided {
    pub(crate) steps: Vec<String>,
    /// Whether only the data decides if any step is needed.
    pub(crate) at_most: bool,
    /// The conditions under which `CopyMode::Never` refuses the data.
    pub(crate) refused_if: Vec<String>,
}

impl Undecided {
    /// # Errors
    /// If a step is certain, and no copy is allowed.
    pub(crate) fn new(steps: &[PossibleStep], copy: CopyMode) -> Result<Self> {
        let is_certain = steps.iter().any(|step| step.only_if.is_none());
        let texts = || steps.iter().map(|step| step.text.clone()).collect::<Vec<_>>();
        match (copy, is_certain) {
            (CopyMode::Never, true) => {
                let reason = format!("a copy is needed of any rows ({})", texts().join(", "));
                Err(Error::new(ErrorKind::Copy, reason).remedy_is(Remedy::AllowCopy))
            }
            (CopyMode::Never, false) => {
                let refused_if = steps.iter().filter_map(|step| step.only_if).map(str::to_owned).collect();
                Ok(Self { refused_if, ..Self::default() })
            }
            _ => Ok(Self { steps: texts(), at_most: !steps.is_empty() && !is_certain, refused_if: Vec::new() }),
        }
    }
}

/// Under [`CopyMode::Never`], refuses a validity, which is a copy of any rows.
///
/// # Errors
/// As [`Undecided::new`].
#[cfg(feature = "python")]
pub(crate) fn refuse_validity(copy: CopyMode) -> Result<()> {
    let unpacked = PossibleStep { text: UNPACKED.to_owned(), only_if: None };
    Undecided::new(&[unpacked], copy).map(drop)
}

/// Returns whether elements of a type may be null, as far as the type tells.
pub(crate) fn may_be_null(field: &Field) -> bool {
    field.is_nullable()
        || match field.data_type() {
            DataType::FixedSizeList(item, _) | DataType::RunEndEncoded(_, item) => may_be_null(item),
            DataType::Dictionary(_, _) => true,
            DataType::Struct(fields) => fields.iter().any(|field| may_be_null(field)),
            other => item_of_lists(other).is_some_and(|item| may_be_null(item)),
        }
}

/// Returns whether a type allows no nulls among the innermost elements of its rows.
pub(crate) fn forbids_null_elements(field: &Field) -> bool {
    match field.data_type() {
        DataType::FixedSizeList(item, _) => forbids_null_elements(item),
        DataType::RunEndEncoded(_, values) => !field.is_nullable() || !values.is_nullable(),
        other => item_of_lists(other).map_or(!field.is_nullable(), |item| forbids_null_elements(item)),
    }
}
