//! What `explain` says of lists and strings is what happens.

use arrow_array::{Array, StringArray};
use arrow_dlpack::{Conversion, CopyLog, CopyMode, DType, Device, NullPolicy, Ragged, Selection};
use arrow_schema::DataType;

use crate::support::Random;
use crate::support::arrow::field;
use crate::{KINDS, Kind, fill, keep, lists, one, random_lists};

/// The dtype and shape of each part, in the order of a report.
fn parts(ragged: &Ragged) -> Vec<(DType, Vec<Option<i64>>)> {
    let ints = [Some(ragged.offsets()), ragged.lengths(), ragged.shapes(), ragged.validity()];
    let tensors = ints.into_iter().flatten().chain(ragged.values().as_tensor());
    let mut parts: Vec<_> =
        tensors.map(|part| (part.dtype(), part.shape().iter().copied().map(Some).collect())).collect();
    if let Some(inner) = ragged.values().as_ragged() {
        parts.extend(self::parts(inner));
    }
    parts
}

#[test]
fn it_tells_the_parts_and_every_byte_that_moves() {
    let mut random = Random(11);
    let options = [
        Conversion::default(),
        keep(),
        fill(7),
        keep().dtype(DType::Int32),
        Conversion::default().writable(true),
        keep().copy(CopyMode::Never),
    ];
    for round in 0..if cfg!(miri) { 4 } else { 60 } {
        let kind = KINDS[round % 4];
        let (array, _) = random_lists(kind, round % 9, round % 3, &mut random);
        let array = array.slice(array.len() / 3, array.len() - array.len() / 3);
        let column = one(&array);
        for options in &options {
            let report = options.clone().select(Selection::Each(None)).explain(&column).unwrap();
            let log = CopyLog::new();
            let ragged = log.track(|| options.ragged(&column));
            let refused = report.rows.iter().find_map(|row| row.error.clone());
            let Ok(ragged) = ragged else {
                assert_eq!(refused, ragged.err());
                continue;
            };
            assert!(refused.is_none(), "{kind:?} {options:?}: {report}");
            let explained: Vec<_> = report.rows.iter().map(|row| (row.dtype.unwrap(), row.shape.clone())).collect();
            assert_eq!(explained, parts(&ragged), "{report}");
            assert_eq!(report.bytes(), log.bytes(), "{kind:?} {options:?}: {report} {:?}", log.entries());
        }
    }
}

#[test]
fn rows_are_named_by_their_parts() {
    let list = lists(Kind::List, &[Some(vec![Some(1)]), Some(vec![])]);
    let names = |report: &arrow_dlpack::Report| {
        report.rows.iter().map(|row| (row.column.clone(), row.how())).collect::<Vec<_>>()
    };
    let column = one(&list.slice(1, 1));
    let report = keep().select(Selection::Each(None)).explain(&column).unwrap();
    let expected = [("x.offsets", "copy"), ("x.validity", "copy"), ("x.values", "view")];
    assert_eq!(names(&report), expected.map(|(name, how)| (name.to_owned(), how)));
    let nested = field("x", Kind::LargeList.of(Kind::ListView.of(DataType::Boolean)));
    let report = Conversion::default().select(Selection::Each(None)).explain_type(&nested, Device::CPU).unwrap();
    let expected = [
        ("x.offsets", "view or copy"),
        ("x.values.offsets", "view or copy"),
        ("x.values.lengths", "view or copy"),
        ("x.values.values", "copy"),
    ];
    assert_eq!(names(&report), expected.map(|(name, how)| (name.to_owned(), how)));
    assert!(report.rows.iter().all(|row| row.shape == [None]));
    let text = one(&StringArray::from(vec![Some("a"), None]));
    let refused = Conversion::default().select(Selection::Each(None)).explain(&text).unwrap();
    assert_eq!(names(&refused), [("x".to_owned(), "refused")]);
    let nan = Conversion::default().nulls(NullPolicy::Nan);
    assert!(
        nan.clone().select(Selection::Each(None)).explain_type(text.field(), Device::CPU).unwrap().rows[0]
            .error
            .is_some()
    );
}
