//! Ties a plan to its report, to what `explain` says, to the copy log, and to what the conversion without it gives.

use arrow_dlpack::{Chunks, Conversion, Converted, CopyLog, DeviceArray, Error, ErrorKind, Report, Tensor};
use arrow_schema::FieldRef;

/// Whether only values decide how many of the report's bytes move.
fn is_bound(report: &Report) -> bool {
    let at_most = |step: &String| step.contains("if there are any");
    report.rows.iter().chain(&report.matrices).any(|row| row.at_most || row.steps.iter().any(at_most))
}

/// Whether only values decide that there is this error.
fn is_of_values(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Null | ErrorKind::Cast) || error.reason().contains("bytes above 1")
}

/// Asserts that the plan of a conversion says what `explain` says, and does what it says: the results, errors and copies of the
/// conversion without a plan. `contents` reads a tensor.
pub(crate) fn assert_planned<C: PartialEq + std::fmt::Debug>(
    conversion: &Conversion,
    field: &FieldRef,
    chunks: &[DeviceArray],
    contents: impl Fn(&Tensor) -> C,
) {
    let data = || Chunks::new(field, chunks);
    let (log, planning, running) = (CopyLog::new(), CopyLog::new(), CopyLog::new());
    let expected = log.track(|| conversion.to_tensors(data()));
    let explained = conversion.explain(data());
    let plan = planning.track(|| conversion.plan(data()));
    assert!(planning.entries().is_empty(), "planning copies nothing");
    let plan = match plan {
        Ok(plan) => plan,
        Err(error) => {
            let refused = expected.expect_err("what cannot be planned cannot be converted");
            // What values decide of another result may come first.
            assert!(is_of_values(&refused) || refused == error, "{refused} {error}");
            let is_row = |report: &Report| report.rows.iter().chain(&report.matrices).any(|row| row.error.is_some());
            let Ok(report) = explained else { return };
            // Lists and strings are no tensor, and are explained as the ragged rows that they can become.
            let is_ragged =
                || conversion.plan_ragged(data()).is_ok_and(|plan| plan.report().to_string() == report.to_string());
            return assert!(is_row(&report) || is_ragged(), "{error}\n{report}");
        }
    };
    let report = plan.report();
    assert_eq!(report.to_string(), explained.unwrap().to_string());
    assert_eq!(plan.bytes(), report.bytes());
    match (running.track(|| plan.run()), expected) {
        (Ok(made), Ok(expected)) => {
            let tensor = |made: Converted| made.as_tensor().expect("rows of one shape").clone();
            let made: Vec<_> = made.into_iter().map(|(name, made)| (name, tensor(made))).collect();
            let of = |tensors: &[(String, Tensor)]| {
                let of = |(name, tensor): &(String, Tensor)| {
                    let layout = (tensor.dtype(), tensor.device(), tensor.shape().to_vec(), tensor.strides().to_vec());
                    (name.clone(), layout, tensor.is_copied(), tensor.is_writable(), contents(tensor))
                };
                tensors.iter().map(of).collect::<Vec<_>>()
            };
            assert_eq!(of(&made), of(&expected));
            assert_eq!(running.entries(), log.entries());
            let bytes = running.bytes();
            assert!(bytes <= report.bytes() || report.transfer.is_some(), "{bytes}\n{report}");
            assert!(bytes == report.bytes() || is_bound(&report) || report.transfer.is_some(), "{bytes}\n{report}");
        }
        (Err(error), Err(expected)) => {
            assert_eq!(error, expected);
            let is_told = error.kind() == ErrorKind::Null
                && report
                    .rows
                    .iter()
                    .chain(&report.matrices)
                    .any(|row| row.error.as_ref().is_some_and(|own| own.kind() == error.kind()));
            assert!(is_told || error.kind() != ErrorKind::Null && is_of_values(&error), "{error}\n{report}");
        }
        (made, expected) => panic!("{made:?}, not {expected:?}"),
    }
}
