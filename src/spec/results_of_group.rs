//! Which results does one group of a conversion have?

use arrow_schema::FieldRef;

use super::result::group_results_at;
use super::{Conversion, Group, Positions, ResultSpec};
use crate::error::Result;

impl Conversion {
    /// Returns the results of one group, the positions of whose columns are known: its tensor, and its validity where it asks for that.
    ///
    /// # Errors
    /// As [`Conversion::results`].
    pub(crate) fn results_of(
        &self,
        (field, positions): (&FieldRef, &Positions<'_>),
        (name, group): (&str, &Group),
    ) -> Result<Vec<ResultSpec>> {
        let groups = [(name.to_owned(), group.clone())];
        group_results_at((field, Ok(positions)), &groups, self.call(), |name| self.of(name))
    }
}
