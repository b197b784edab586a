//! [`Words`]: the words of a keyword, such as `unit="ms"`, and the value that each stands for.

use arrow_schema::TimeUnit;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::escapes::message;

/// The words of a keyword, each with the value that it stands for.
pub(super) struct Words<T: 'static> {
    pub(super) keyword: &'static str,
    pub(super) words: &'static [(&'static str, T)],
}

/// The words of `unit=`.
pub(super) const UNIT: Words<TimeUnit> = Words {
    keyword: "unit",
    words: &[
        ("s", TimeUnit::Second),
        ("ms", TimeUnit::Millisecond),
        ("us", TimeUnit::Microsecond),
        ("ns", TimeUnit::Nanosecond),
    ],
};

impl<T: Copy + PartialEq> Words<T> {
    /// Returns the value of a word.
    ///
    /// # Errors
    /// `ValueError` for another word; names those that there are.
    pub(super) fn parse(&self, word: &str) -> PyResult<T> {
        self.value(word).ok_or_else(|| PyValueError::new_err(message(&format!("{}, not {word:?}", self.rule(&[])))))
    }

    /// Returns the value of a Python object that is a word; `None` for `None`.
    ///
    /// # Errors
    /// As [`Words::parse`], for any other object.
    pub(super) fn read(&self, object: &Bound<'_, PyAny>) -> PyResult<Option<T>> {
        if object.is_none() {
            return Ok(None);
        }
        match object.cast::<PyString>().ok().and_then(|word| self.value(&word.to_string())) {
            Some(value) => Ok(Some(value)),
            None => Err(PyValueError::new_err(format!("{}, not {}", self.rule(&["None"]), object.repr()?))),
        }
    }

    /// Returns the word of a value; `None` for a value without one.
    pub(super) fn word(&self, value: T) -> Option<&'static str> {
        self.words.iter().find(|(_, own)| *own == value).map(|(word, _)| *word)
    }

    /// Returns what the keyword must be: one of its words, or something else.
    pub(super) fn rule(&self, others: &[&str]) -> String {
        let words = self.words.iter().map(|(word, _)| format!("{word:?}"));
        let mut choices: Vec<String> = words.chain(others.iter().map(|other| (*other).to_owned())).collect();
        let last = choices.pop().unwrap_or_default();
        format!("{} must be {} or {last}", self.keyword, choices.join(", "))
    }

    fn value(&self, word: &str) -> Option<T> {
        self.words.iter().find(|(own, _)| *own == word).map(|(_, value)| *value)
    }
}
