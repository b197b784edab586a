//! [`Counted`]: a number and what it counts, in the singular or the plural.

use std::fmt;

/// Displays a number and what it counts: "1 row", "2 rows", "2 copies".
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted<N>(pub(crate) N, pub(crate) &'static str);

impl<N: fmt::Display> fmt::Display for Counted<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, noun) = self;
        let number = number.to_string();
        match (number.as_str(), noun.strip_suffix('y')) {
            ("1", _) => write!(f, "{number} {noun}"),
            (_, Some(stem)) => write!(f, "{number} {stem}ies"),
            (_, None) => write!(f, "{number} {noun}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!(Counted(1, "row").to_string(), "1 row");
        assert_eq!(Counted(0, "row").to_string(), "0 rows");
        assert_eq!(
            (Counted(1, "copy").to_string(), Counted(2, "copy").to_string()),
            ("1 copy".into(), "2 copies".into())
        );
    }
}
