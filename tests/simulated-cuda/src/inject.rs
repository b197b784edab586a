//! Which call is told to fail: the n-th of a function, or the n-th of all.

use std::collections::HashMap;

use crate::error::Error;
use crate::exports::lookup;

/// One failure to come.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The driver's name of the function, or `*` for any that has a result worth failing.
    function: String,
    /// Counted from 1.
    nth: u64,
    /// Whether all calls from there on fail, or that one alone.
    on: bool,
    code: Error,
}

impl Failure {
    /// Reads `function:nth:code`; `nth+` stands for that call and all after it.
    pub(crate) fn parse(text: &str) -> Option<Failure> {
        let mut parts = text.split(':');
        let (function, nth, code) = (parts.next()?, parts.next()?, parts.next()?);
        let known = function == "*" || function.starts_with("cu");
        let (nth, on) = nth.strip_suffix('+').map_or((nth, false), |nth| (nth, true));
        let (nth, code) = (nth.parse().ok()?, Error(code.parse().ok()?));
        let failure = Failure { function: function.into(), nth, on, code };
        (known && failure.nth > 0 && failure.code.0 > 0 && parts.next().is_none()).then_some(failure)
    }

    fn check(&self) {
        if self.function != "*" && lookup(&self.function).is_none() {
            eprintln!("simulated CUDA: {} cannot fail, as there is no such function", self.function);
            std::process::abort();
        }
    }
}

/// The calls so far, and the failures to come.
#[derive(Debug, Default)]
pub(crate) struct Injection {
    failures: Vec<Failure>,
    calls: HashMap<&'static str, u64>,
    all: u64,
}

impl Injection {
    /// Failures to come. A function that there is not would never fail, and the test would prove nothing.
    pub(crate) fn new(failures: Vec<Failure>) -> Injection {
        failures.iter().for_each(Failure::check);
        Injection { failures, ..Injection::default() }
    }

    /// Fails a later call, the `nth` from now of `function`, and if `on` all after it.
    pub(crate) fn add(&mut self, function: &str, nth: u64, on: bool, code: u32) {
        let so_far = self.calls(function);
        let failure = Failure { function: function.into(), nth: so_far + nth, on, code: Error(code) };
        failure.check();
        self.failures.push(failure);
    }

    /// Nothing fails any more that was told to.
    pub(crate) fn clear(&mut self) {
        self.failures.clear();
    }

    /// How often `function` was called; `*` asks for all calls.
    pub(crate) fn calls(&self, function: &str) -> u64 {
        if function == "*" { self.all } else { self.calls.get(function).copied().unwrap_or(0) }
    }

    /// Counts a call, and says whether it is one that fails.
    pub(crate) fn count(&mut self, function: &'static str) -> Option<Error> {
        let nth = self.calls.entry(function).or_default();
        *nth += 1;
        self.all += 1;
        let (nth, all) = (*nth, self.all);
        let is_due = |failure: &Failure, count: u64| failure.nth == count || (failure.on && failure.nth < count);
        let due = |failure: &&Failure| match failure.function.as_str() {
            "*" => is_due(failure, all),
            name => name == function && is_due(failure, nth),
        };
        self.failures.iter().find(due).map(|failure| failure.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_failure_is_refused() {
        for text in ["cuMemAlloc_v2:3:2", "*:1:700", "*:5+:700"] {
            assert!(Failure::parse(text).is_some(), "{text}");
        }
        for text in
            ["", "cuMemAlloc_v2", "cuMemAlloc_v2:0:2", "cuInit:0+:2", "cuMemAlloc_v2:1:0", "malloc:1:2", "cuInit:1:2:3"]
        {
            assert!(Failure::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn only_the_nth_call_fails() {
        let mut injection = Injection { failures: vec![Failure::parse("cuInit:2:2").unwrap()], ..Injection::default() };
        assert_eq!(injection.count("cuInit"), None);
        assert_eq!(injection.count("cuDeviceGet"), None);
        assert_eq!(injection.count("cuInit"), Some(Error::OUT_OF_MEMORY));
        assert_eq!(injection.count("cuInit"), None);
        injection.add("*", 1, false, 700);
        assert_eq!(injection.count("cuDeviceGet"), Some(Error::ILLEGAL_ADDRESS));
        assert_eq!(injection.count("cuDeviceGet"), None);
        injection.add("*", 1, true, 700);
        injection.clear();
        assert_eq!(injection.count("cuDeviceGet"), None);
    }

    #[test]
    fn all_calls_from_the_nth_on_fail() {
        let mut injection = Injection { failures: vec![Failure::parse("*:2+:700").unwrap()], ..Injection::default() };
        assert_eq!(injection.count("cuInit"), None);
        for function in ["cuInit", "cuDeviceGet", "cuInit"] {
            assert_eq!(injection.count(function), Some(Error::ILLEGAL_ADDRESS));
        }
    }
}
