//! Which columns of a source does a conversion read?

use std::collections::{BTreeSet, HashMap, HashSet};

use arrow_schema::{DataType, Field};

use super::Conversion;

impl Conversion {
    /// Returns the positions of the columns that the conversion needs of a struct type, in the order of the type: those that its selection
    /// or an option names, and the structs of fields that go by path. `None` where it needs all of them, no column, or a name that is
    /// not that of one column alone: the error of such a name lists all columns.
    pub(crate) fn columns_read(&self, field: &Field) -> Option<BTreeSet<usize>> {
        let DataType::Struct(fields) = field.data_type() else { return None };
        let mut positions: HashMap<&str, Option<usize>> = HashMap::with_capacity(fields.len());
        for (position, column) in fields.iter().enumerate() {
            positions.entry(column.name()).and_modify(|first| *first = None).or_insert(Some(position));
        }
        let groups: HashSet<&str> = self.selection.names().collect();
        let mut read = BTreeSet::new();
        for name in self.selection.columns().chain(self.names_of_options()) {
            read.insert(position(&positions, name)?);
        }
        for name in self.dtype.names().chain(self.nulls.names()) {
            match position(&positions, name) {
                Some(position) => _ = read.insert(position),
                // These options name groups too.
                None if groups.contains(name) && !positions.contains_key(name) => {}
                None => return None,
            }
        }
        let is_some = self.selection.columns().next().is_some() && read.len() < fields.len();
        is_some.then_some(read)
    }
}

/// The position of the column that a name names, or whose field it names by its path.
fn position(positions: &HashMap<&str, Option<usize>>, name: &str) -> Option<usize> {
    if let Some(position) = positions.get(name) {
        return *position;
    }
    let mut starts = name.rmatch_indices('.').filter_map(|(dot, _)| name.get(..dot));
    starts.find_map(|start| positions.get(start)).copied().flatten()
}

#[cfg(test)]
mod tests {
    use arrow_schema::TimeUnit;

    use super::*;
    use crate::dtype::DType;
    use crate::spec::{Group, PerColumn, Selection};

    fn read(conversion: &Conversion) -> Option<Vec<usize>> {
        let names = ["b", "s", "s.a", "a", "d", "d"];
        let columns: Vec<_> = names.iter().map(|name| Field::new(*name, DataType::Int32, true)).collect();
        let field = Field::new("", DataType::Struct(columns.into()), false);
        conversion.columns_read(&field).map(|read| read.into_iter().collect())
    }

    #[test]
    fn columns_come_in_the_order_of_the_source() {
        for (names, expected) in [
            (&["a", "b", "a"][..], Some(&[0, 3][..])),
            (&["s.b", "s.c.d"], Some(&[1])),
            (&["s.a"], Some(&[2])),
            (&["s.a.b"], Some(&[2])),
            (&["a", "no"], None),
            (&["no.a"], None),
            (&["a", "d"], None),
            (&["d.a"], None),
            (&[], None),
        ] {
            assert_eq!(read(&Conversion::default().columns(names.iter().copied())).as_deref(), expected, "{names:?}");
        }
        assert_eq!(read(&Conversion::default()), None);
        assert_eq!(read(&Conversion::default().select(Selection::Each(None))), None);
        let field = Field::new("a", DataType::Int32, true);
        assert_eq!(Conversion::default().columns(["a"]).columns_read(&field), None);
    }

    #[test]
    fn a_source_of_which_all_columns_are_named_is_read_whole() {
        let columns: Vec<_> = ["a", "b"].iter().map(|name| Field::new(*name, DataType::Int32, true)).collect();
        let field = Field::new("", DataType::Struct(columns.into()), false);
        assert_eq!(Conversion::default().columns(["b", "a"]).columns_read(&field), None);
        assert_eq!(Conversion::default().columns(["b"]).columns_read(&field), Some(BTreeSet::from([1])));
    }

    #[test]
    fn columns_that_options_name_are_read_too() {
        let conversion = Conversion::default().columns(["a"]);
        let unit = |name| conversion.clone().unit(PerColumn::named([(name, Some(TimeUnit::Second))]));
        assert_eq!((read(&unit("b")), read(&unit("no"))), (Some(vec![0, 3]), None));
        let groups = Selection::Named(vec![("x".to_owned(), Group::matrix(["s.b", "b"]))]);
        let conversion = Conversion::default().select(groups);
        let dtype = |name| conversion.clone().dtype(PerColumn::named([(name, Some(DType::Float32))]));
        for (name, expected) in [("x", Some(vec![0, 1])), ("a", Some(vec![0, 1, 3])), ("no", None), ("d", None)] {
            assert_eq!(read(&dtype(name)), expected, "{name}");
        }
    }
}
