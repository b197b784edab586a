//! Any case against the definition.

use arrow_dlpack::{Chunks, CopyLog, CopyMode, ErrorKind, Group, MemoryOrder, Selection, Tensor};
use proptest::prelude::*;
use proptest::sample::select;

use crate::cases::{Kind, assert_error, assert_same, cases, expected, memory_of};
use crate::support::dlpack::{byte, output};
use crate::support::plan::assert_planned;
use crate::support::reference::read;

const COPIES: &[CopyMode] = &[CopyMode::IfNeeded, CopyMode::Never, CopyMode::Always];

proptest! {
    #[test]
    fn a_plan_does_what_it_says(case in cases(), copy in select(COPIES), writable: bool) {
        let data = case.data();
        let conversion = case.conversion().copy(copy).writable(writable && copy != CopyMode::Never);
        let all = Group::matrix((0..case.columns.len()).map(|index| format!("c{index}"))).validity("valid");
        let groups = vec![("x".to_owned(), all), ("y".to_owned(), Group::column("c0").validity("y valid"))];
        for selection in [Selection::Whole(None), Selection::Each(None), Selection::Named(groups)] {
            assert_planned(&conversion.clone().select(selection), &data.field, &data.chunks, read);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn a_matrix_is_its_columns(case in cases()) {
        let data = case.data();
        let matrix = case.conversion();
        let log = CopyLog::new();
        let made = log.track(|| matrix.to_tensor(Chunks::new(&data.field, &data.chunks)));
        // No dtype, no matrix: shown for chosen schemas.
        let Some(dtype) = case.dtype.or_else(|| made.as_ref().ok().map(Tensor::dtype)) else {
            let error = made.unwrap_err();
            if error.kind() == ErrorKind::Null {
                let row = data.values.iter().position(|row| row.iter().any(Option::is_none));
                prop_assert!(row.is_some());
            } else {
                prop_assert_eq!(error.kind(), ErrorKind::Unsupported);
            }
            return Ok(());
        };
        let (rows, columns) = (data.values.len(), case.columns.len());
        match expected(&case, &data, dtype) {
            Err(refusal) => assert_error(&made.unwrap_err(), &refusal),
            Ok(expected) => {
                let made = made.unwrap();
                prop_assert_eq!(made.shape(), [rows as i64, columns as i64]);
                prop_assert_eq!(made.dtype(), dtype);
                let found = read(&made);
                // What kept nulls hold in a view is anything.
                let kept = |index: usize| data.values[index / columns][index % columns].is_none();
                let expected: Vec<_> = expected
                    .into_iter()
                    .enumerate()
                    .map(|(index, value)| if !made.is_copied() && kept(index) { found[index].clone() } else { value })
                    .collect();
                assert_same(dtype, &found, &expected);
                prop_assert_eq!(made.is_copied(), !log.entries().is_empty());
                let report = matrix.explain(Chunks::new(&data.field, &data.chunks)).unwrap();
                prop_assert_eq!(report.matrices[0].dtype, Some(dtype));
                if made.is_copied() {
                    let entry = &log.entries()[0];
                    prop_assert_eq!(report.matrices[0].bytes, entry.bytes);
                    prop_assert_eq!(report.bytes(), entry.bytes);
                    prop_assert_eq!(report.matrices[0].steps.join(", "), entry.why.replace(" at most", ""));
                    let never = matrix.clone().copy(CopyMode::Never);
                    let error = never.to_tensor(Chunks::new(&data.field, &data.chunks)).unwrap_err();
                    prop_assert_eq!(error.kind(), ErrorKind::Copy);
                    prop_assert!(error.reason().contains("a copy") && error.remedy().is_some(), "{}", error);
                }
                if rows > 1 && columns > 1 && made.is_copied() {
                    let (by_rows, by_columns) = ([columns as i64, 1], [1, rows as i64]);
                    // Bytes that are no bools keep a view from being made; under A the copy has the order that it would have had,
                    // and an allocator may have put the columns at equal distances.
                    let may_lie = case.order == MemoryOrder::A && case.columns.iter().all(|(of, _)| *of == Kind::Bool8);
                    let strides = if case.order == MemoryOrder::F { by_columns } else { by_rows };
                    prop_assert!(made.strides() == strides || may_lie && made.strides() == by_columns, "{:?}", made.strides());
                }
            }
        }
    }

    #[test]
    fn what_is_written_to_an_output_is_what_a_matrix_is(case in cases(), gap in 0..5_i64, by_column: bool, threads in 1..4_usize) {
        let data = case.data();
        let (rows, columns) = (data.values.len() as i64, case.columns.len() as i64);
        let Ok(made) = case.conversion().to_tensor(Chunks::new(&data.field, &data.chunks)) else {
            // Errors are those of a fresh matrix.
            let Some(dtype) = case.dtype else { return Ok(()) };
            let memory = memory_of(dtype, &[rows, columns], &[columns, 1]);
            let mut out = output(&memory).unwrap();
            let error = case.conversion().write(Chunks::new(&data.field, &data.chunks), &mut out).unwrap_err();
            assert_error(&error, &expected(&case, &data, dtype).unwrap_err());
            return Ok(());
        };
        let dtype = made.dtype();
        let strides = if by_column { [1, (rows + gap).max(1)] } else { [(columns + gap).max(1), 1] };
        let memory = memory_of(dtype, &[rows, columns], &strides);
        let threads = std::num::NonZero::new(threads).unwrap();
        {
            let mut out = output(&memory).unwrap();
            let matrix = case.conversion().threads(threads);
            matrix.write(Chunks::new(&data.field, &data.chunks), &mut out).unwrap();
        }
        assert_same(dtype, &read(&memory), &expected(&case, &data, dtype).unwrap());
        if made.is_empty() {
            return Ok(());
        }
        // Gaps are nobody's.
        let (outer, inner) = if by_column { (columns, rows) } else { (rows, columns) };
        for line in 0..outer - 1 {
            for slot in inner..inner + gap {
                let at = usize::try_from(line * (inner + gap) + slot).unwrap() * dtype.itemsize();
                prop_assert_eq!(byte(&memory, at), 0xEE);
            }
        }
    }
}
