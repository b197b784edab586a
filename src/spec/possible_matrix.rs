//! The steps that the types of a matrix's columns alone may lead to.

#[cfg(feature = "python")]
use super::possible::Undecided;
use super::possible::{PRIVATE, PossibleStep};
use super::{MatrixOptions, MatrixSpec, MemoryOrder, Options};
#[cfg(feature = "python")]
use crate::error::Result;

/// Returns the step that packs columns into a matrix.
pub(crate) fn packing(order: MemoryOrder) -> &'static str {
    match order {
        MemoryOrder::F => "packed column-major",
        MemoryOrder::C | MemoryOrder::A => "packed row-major",
    }
}

impl MatrixSpec {
    /// Lists the steps that data of this spec may need to become a matrix; those of its columns stand in their rows of a report.
    #[must_use]
    pub(crate) fn possible_steps(&self, options: &MatrixOptions) -> Vec<PossibleStep> {
        let is_private = options.copy.asks_for_own(options.writable) && self.width() > 0;
        let columns =
            || self.columns().iter().flat_map(|(_, column)| column.possible_steps_in_matrix(&Options::default()));
        let is_never_view = self.has_shapes() && self.width() > 0;
        let changes = options.is_written || is_private || is_never_view || columns().any(|step| step.only_if.is_none());
        let mut steps: Vec<PossibleStep> = Vec::new();
        steps.extend(is_private.then(|| PossibleStep { text: PRIVATE.to_owned(), only_if: None }));
        for step in columns().filter(|step| !changes && step.only_if.is_some()) {
            if !steps.contains(&step) {
                steps.push(step);
            }
        }
        let text = if changes {
            packing(options.memory_order)
        } else {
            "packed, unless the columns lie as the matrix already"
        };
        let only_if = (!changes).then_some("the columns do not lie as the matrix, in one chunk");
        steps.push(PossibleStep { text: text.to_owned(), only_if });
        steps
    }

    /// Refuses a matrix that is a copy of any rows, where no copy is allowed.
    ///
    /// # Errors
    /// As [`Undecided::new`].
    #[cfg(feature = "python")]
    pub(super) fn require_view(&self, options: &MatrixOptions) -> Result<()> {
        Undecided::new(&self.possible_steps(options), options.copy).map(drop)
    }
}
