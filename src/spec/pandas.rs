//! Finds the index of a pandas data frame among the columns of a struct type.

use arrow_schema::{DataType, Field, FieldRef};
use serde_json::Value;

use super::select;
use crate::error::Result;

/// The key of the schema's metadata under which pandas lists its index columns, among other things.
const KEY: &str = "pandas";

/// Which index columns of a pandas data frame a conversion of all columns takes. It always takes a column that is
/// named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PandasIndex {
    /// All of them.
    #[default]
    Keep,
    /// Index columns with their own name. `__index_level_0__` (or another level) is left out.
    KeepNamed,
    /// None: columns that pandas' metadata lists as index are left out, too.
    LeaveOut,
}

impl PandasIndex {
    /// Returns the columns of a struct type that are left out, in their order; none for any other type.
    #[must_use]
    pub(crate) fn left_out(self, field: &Field) -> Vec<String> {
        self.names(field, true)
    }

    /// Returns the columns of a struct type that remain; `None` if none is left out.
    #[must_use]
    pub(crate) fn remaining(self, field: &Field) -> Option<Vec<String>> {
        if self == Self::Keep || self.left_out(field).is_empty() {
            return None;
        }
        Some(self.names(field, false))
    }

    /// Like [`select`], but takes only the columns that remain if `columns` is `None`.
    pub(crate) fn select<'a>(
        self,
        field: &'a FieldRef,
        columns: Option<&[String]>,
    ) -> Result<Vec<(usize, &'a FieldRef)>> {
        match columns {
            Some(columns) => select(field, Some(columns)),
            None => select(field, self.remaining(field).as_deref()),
        }
    }

    /// The columns that are left out, or the others.
    fn names(self, field: &Field, is_left_out: bool) -> Vec<String> {
        let DataType::Struct(fields) = field.data_type() else { return Vec::new() };
        let listed = if self == Self::LeaveOut { listed(field) } else { Vec::new() };
        let is_index = |name: &String| self != Self::Keep && (is_level(name) || listed.contains(name));
        fields.iter().map(|column| column.name()).filter(|name| is_index(name) == is_left_out).cloned().collect()
    }
}

/// Returns whether pandas gives this name to an index level without a name.
fn is_level(name: &str) -> bool {
    let level = name.strip_prefix("__index_level_").and_then(|rest| rest.strip_suffix("__"));
    level.is_some_and(|level| !level.is_empty() && level.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Returns whether pandas' metadata lists index columns.
#[cfg(feature = "python")]
#[must_use]
pub(crate) fn lists_index(field: &Field) -> bool {
    !field.metadata().is_empty() && field.metadata().contains_key(KEY)
}

/// Returns the columns that pandas' metadata lists as index. A range is described there, and is no column.
fn listed(field: &Field) -> Vec<String> {
    let metadata = field.metadata().get(KEY).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(Value::Array(columns)) = metadata.as_ref().and_then(|metadata| metadata.get("index_columns")) else {
        return Vec::new();
    };
    columns.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn frame(columns: &[&str], metadata: &str) -> Field {
        let fields: Vec<Field> = columns.iter().map(|name| Field::new(*name, DataType::Int64, true)).collect();
        let metadata = HashMap::from([(KEY.to_owned(), metadata.to_owned())]);
        Field::new("", DataType::Struct(fields.into()), false).with_metadata(metadata)
    }

    #[test]
    fn levels_without_a_name_are_left_out_by_their_name_and_others_by_the_metadata() {
        let field = frame(&["a", "id", "__index_level_1__"], r#"{"index_columns": ["id", "__index_level_1__"]}"#);
        assert_eq!(PandasIndex::Keep.left_out(&field), [""; 0]);
        assert_eq!(PandasIndex::Keep.remaining(&field), None);
        assert_eq!(PandasIndex::KeepNamed.left_out(&field), ["__index_level_1__"]);
        assert_eq!(PandasIndex::LeaveOut.left_out(&field), ["id", "__index_level_1__"]);
        assert_eq!(PandasIndex::LeaveOut.remaining(&field).unwrap(), ["a"]);
    }

    #[test]
    fn names_that_only_look_like_a_level_are_columns() {
        let names =
            ["__index_level___", "__index_level_x__", "__index_level_0", "index_level_0__", "__index_level_-1__"];
        assert_eq!(PandasIndex::LeaveOut.remaining(&frame(&names, "{}")), None);
        assert_eq!(PandasIndex::KeepNamed.left_out(&frame(&["__index_level_12__"], "")), ["__index_level_12__"]);
    }

    #[test]
    fn ranges_and_metadata_that_cannot_be_read_name_no_column() {
        for metadata in [
            r#"{"index_columns": [{"kind": "range", "name": "a", "start": 0, "stop": 1, "step": 1}]}"#,
            r#"{"index_columns": "a"}"#,
            r#"["a"]"#,
            r#"{"index_columns": ["a""#,
            "",
        ] {
            assert_eq!(PandasIndex::LeaveOut.remaining(&frame(&["a"], metadata)), None, "{metadata}");
        }
    }

    #[test]
    fn an_array_that_is_no_struct_has_no_index() {
        let field = Field::new("__index_level_0__", DataType::Int64, true);
        assert_eq!(PandasIndex::LeaveOut.remaining(&field), None);
    }
}
