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
    /// Whether the call has its effect, and returns the code as that of an earlier asynchronous launch.
    late: bool,
    code: Error,
}

/// What a call is told to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) code: Error,
    /// Whether the call has its effect before.
    pub(crate) late: bool,
}

impl Failure {
    /// Reads `function:nth:code`; `nth+` stands for that call and all after it, `nth!` for that call, which has its effect.
    pub(crate) fn parse(text: &str) -> Option<Failure> {
        let mut parts = text.split(':');
        let (function, nth, code) = (parts.next()?, parts.next()?, parts.next()?);
        let known = function == "*" || function.starts_with("cu");
        let (nth, on) = nth.strip_suffix('+').map_or((nth, false), |nth| (nth, true));
        let (nth, late) = nth.strip_suffix('!').map_or((nth, false), |nth| (nth, true));
        let (nth, code) = (nth.parse().ok()?, Error(code.parse().ok()?));
        let failure = Failure { function: function.into(), nth, on, late, code };
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
        self.push(Failure { function: function.into(), nth, on, late: false, code: Error(code) });
    }

    /// Lets a later call, the `nth` from now of `function`, have its effect and fail.
    pub(crate) fn add_late(&mut self, function: &str, nth: u64, code: u32) {
        self.push(Failure { function: function.into(), nth, on: false, late: true, code: Error(code) });
    }

    /// `nth` counts from now.
    fn push(&mut self, failure: Failure) {
        let failure = Failure { nth: self.calls(&failure.function) + failure.nth, ..failure };
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
    pub(crate) fn count(&mut self, function: &'static str) -> Option<Told> {
        let nth = self.calls.entry(function).or_default();
        *nth += 1;
        self.all += 1;
        let (nth, all) = (*nth, self.all);
        let is_due = |failure: &Failure, count: u64| failure.nth == count || (failure.on && failure.nth < count);
        let due = |failure: &&Failure| match failure.function.as_str() {
            "*" => is_due(failure, all),
            name => name == function && is_due(failure, nth),
        };
        self.failures.iter().find(due).map(|failure| Told { code: failure.code, late: failure.late })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Injection {
        fn code(&mut self, function: &'static str) -> Option<Error> {
            self.count(function).map(|told| told.code)
        }
    }

    #[test]
    fn what_is_not_a_failure_is_refused() {
        for text in ["cuMemAlloc_v2:3:2", "*:1:700", "*:5+:700", "cuMemFree_v2:1!:719"] {
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
        assert_eq!(injection.code("cuInit"), None);
        assert_eq!(injection.code("cuDeviceGet"), None);
        assert_eq!(injection.code("cuInit"), Some(Error::OUT_OF_MEMORY));
        assert_eq!(injection.code("cuInit"), None);
        injection.add("*", 1, false, 700);
        assert_eq!(injection.code("cuDeviceGet"), Some(Error::ILLEGAL_ADDRESS));
        assert_eq!(injection.code("cuDeviceGet"), None);
        injection.add("*", 1, true, 700);
        injection.clear();
        assert_eq!(injection.code("cuDeviceGet"), None);
    }

    #[test]
    fn a_late_failure_says_that_the_call_has_its_effect() {
        let mut injection =
            Injection { failures: vec![Failure::parse("cuInit:1!:719").unwrap()], ..Injection::default() };
        assert_eq!(injection.count("cuInit"), Some(Told { code: Error::LAUNCH_FAILED, late: true }));
        injection.add_late("*", 2, 999);
        assert_eq!(injection.count("cuInit"), None);
        assert_eq!(injection.count("cuInit"), Some(Told { code: Error::UNKNOWN, late: true }));
    }

    #[test]
    fn all_calls_from_the_nth_on_fail() {
        let mut injection = Injection { failures: vec![Failure::parse("*:2+:700").unwrap()], ..Injection::default() };
        assert_eq!(injection.code("cuInit"), None);
        for function in ["cuInit", "cuDeviceGet", "cuInit"] {
            assert_eq!(injection.code(function), Some(Error::ILLEGAL_ADDRESS));
        }
    }
}
