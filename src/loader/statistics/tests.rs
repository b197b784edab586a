//! Tests statistics: each by its definition, exactly, and what has none.

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, StructArray, UInt64Array};
use arrow_schema::Field;

use super::*;
use crate::error::ErrorKind;

/// A statistic of a column, of which a mode counts three values at most.
fn of(column: ArrayRef, statistic: Statistic) -> Result<Scalar> {
    let batch = RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap();
    let array = DeviceArray::from_record_batch(&batch)?;
    let mut statistics = Statistics::new(array.field(), &[("a".to_owned(), statistic)], 3)?;
    statistics.add(&array)?;
    Ok(statistics.finish()?.remove(0).1)
}

fn floats(values: &[f64]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

fn integers(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

#[test]
fn each_statistic_has_a_name_and_leaves_out_nulls_and_nan() {
    let values = [Some(1.0), Some(2.0), None, Some(f64::NAN), Some(-0.0), Some(0.0), Some(2.0)];
    let column: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
    let cases = [
        ("mean", Scalar::Float(1.0)),
        ("min", Scalar::Float(0.0)),
        ("max", Scalar::Float(2.0)),
        ("std", Scalar::Float(0.8_f64.sqrt())),
        // Of two that are as frequent.
        ("mode", Scalar::Float(0.0)),
        ("count", Scalar::Int(5)),
        ("null_count", Scalar::Int(1)),
    ];
    for (name, expected) in cases {
        assert_eq!(of(column.clone(), Statistic::of_name(name).unwrap()).unwrap(), expected, "{name}");
    }
    assert_eq!(Statistic::of_name("median"), None);
    let Scalar::Float(least) = of(column, Statistic::Min).unwrap() else { panic!("no float") };
    assert!(least.is_sign_positive());
}

#[test]
fn integers_are_summed_and_compared_exactly() {
    let large = 1 << 52;
    let (mean, least, most) = (Statistic::Mean, Statistic::Min, Statistic::Max);
    let unsigned: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX, u64::MAX - 2]));
    let cases = [
        (integers(&[3, 1, 5, 4]), least, Scalar::Int(1)),
        (integers(&[3, 1, 5, 4]), most, Scalar::Int(5)),
        (integers(&[i64::MAX - 1, i64::MAX]), most, Scalar::Int(i64::MAX.into())),
        (unsigned.clone(), least, Scalar::Int((u64::MAX - 2).into())),
        (unsigned, mean, Scalar::Float(2_f64.powi(64))),
        (integers(&[-1, -2]), mean, Scalar::Float(-1.5)),
        // Divided once: one and two thirds would be rounded twice.
        (integers(&[1, 2, 2]), mean, Scalar::Float(5.0 / 3.0)),
        (integers(&[-1, -2, -2]), mean, Scalar::Float(-5.0 / 3.0)),
        // The sum has more digits than a double: rounded, its mean would be one more.
        (integers(&[large, large, large, large, large, large, large + 3]), mean, Scalar::Float(2_f64.powi(52))),
        (integers(&[4, 7, 4, 9, 9]), Statistic::Mode, Scalar::Int(4)),
    ];
    for (column, statistic, expected) in cases {
        assert_eq!(of(column.clone(), statistic).unwrap(), expected, "{statistic:?} {column:?}");
    }
}

#[test]
fn sums_of_floats_keep_what_rounding_loses() {
    for values in [[1e16, 1.0, -1e16], [1.0, 1e16, -1e16], [1e16, -1e16, 1.0]] {
        assert_eq!(of(floats(&values), Statistic::Mean).unwrap(), Scalar::Float(1.0 / 3.0), "{values:?}");
    }
    assert_eq!(of(floats(&[f64::INFINITY, 1.0]), Statistic::Mean).unwrap(), Scalar::Float(f64::INFINITY));
}

#[test]
fn deviations_are_as_exact_far_from_zero() {
    let near = [2, 4, 4, 4, 5, 5, 7, 9];
    for far in [0, 1 << 40, -(1 << 40)] {
        let values = near.map(|value| value + far);
        assert_eq!(of(integers(&values), Statistic::Std).unwrap(), Scalar::Float(2.0), "{far}");
        let values = values.map(|value| nearest(value.into()));
        assert_eq!(of(floats(&values), Statistic::Std).unwrap(), Scalar::Float(2.0), "{far}");
    }
    assert_eq!(of(floats(&[0.1; 3]), Statistic::Std).unwrap(), Scalar::Float(0.0));
    for infinite in [[f64::INFINITY, 1.0], [1.0, f64::INFINITY]] {
        let found = of(floats(&infinite), Statistic::Std).unwrap();
        assert!(matches!(found, Scalar::Float(deviation) if deviation.is_nan()), "{found:?}");
    }
}

#[test]
fn rows_beyond_a_block_are_counted() {
    let rows = i64::try_from(ROWS).unwrap() + 1;
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    for (statistic, expected) in
        [(Statistic::Count, rows), (Statistic::Max, rows - 1), (Statistic::Min, 0), (Statistic::NullCount, 0)]
    {
        assert_eq!(of(column.clone(), statistic).unwrap(), Scalar::Int(expected.into()), "{statistic:?}");
    }
}

#[test]
fn columns_without_numbers_or_values_are_counted_alone() {
    let text: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), None, Some("y")]));
    let nothing: ArrayRef = Arc::new(Float64Array::from(vec![None, Some(f64::NAN), None]));
    for (column, count, nulls) in [(text, 2, 1), (nothing, 0, 2)] {
        assert_eq!(of(column.clone(), Statistic::Count).unwrap(), Scalar::Int(count));
        assert_eq!(of(column.clone(), Statistic::NullCount).unwrap(), Scalar::Int(nulls));
        for name in ["mean", "min", "max", "std", "mode"] {
            let error = of(column.clone(), Statistic::of_name(name).unwrap()).unwrap_err();
            assert!(error.column() == Some("a") && error.remedy().is_some(), "{name}: {error}");
        }
    }
}

#[test]
fn a_mode_has_a_limit_of_different_values() {
    assert_eq!(of(integers(&[1, 2, 3, 2, 1, 2]), Statistic::Mode).unwrap(), Scalar::Int(2));
    let error = of(integers(&[1, 2, 3, 4]), Statistic::Mode).unwrap_err();
    assert!(error.reason().contains("more than 3 different values") && error.remedy().is_some(), "{error}");
}

#[test]
fn a_struct_has_no_statistics_but_its_fields_have() {
    let rows = StructArray::from(vec![(Arc::new(Field::new("x", DataType::Int64, true)), integers(&[5, 7]))]);
    for statistic in [Statistic::Count, Statistic::NullCount, Statistic::Mean] {
        let error = of(Arc::new(rows.clone()), statistic).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Unsupported, Some("a")), "{error}");
    }
    let batch = RecordBatch::try_from_iter([("a", Arc::new(rows) as ArrayRef)]).unwrap();
    let array = DeviceArray::from_record_batch(&batch).unwrap();
    let mut statistics = Statistics::new(array.field(), &[("a.x".to_owned(), Statistic::Count)], 3).unwrap();
    statistics.add(&array).unwrap();
    assert_eq!(statistics.finish().unwrap(), [("a.x".to_owned(), Scalar::Int(2))]);
}

#[test]
fn arrays_of_other_columns_are_refused() {
    let batch = |columns: [(&str, ArrayRef); 2]| {
        DeviceArray::from_record_batch(
            &RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap(),
        )
    };
    let first = batch([("a", integers(&[1])), ("b", integers(&[100]))]).unwrap();
    let mut statistics = Statistics::new(first.field(), &[("a".to_owned(), Statistic::Max)], 3).unwrap();
    statistics.add(&first).unwrap();
    for other in [[("b", integers(&[100])), ("a", integers(&[1]))], [("a", floats(&[7.0])), ("b", integers(&[1]))]] {
        assert_eq!(statistics.add(&batch(other).unwrap()).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(statistics.finish().unwrap(), [("a".to_owned(), Scalar::Int(1))]);
}
