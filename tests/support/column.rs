//! A column of any chunks, converted, against the definition.

use arrow_array::{Array, ArrayRef};
use arrow_dlpack::dtype::Kind;
use arrow_dlpack::{
    Chunks, Conversion, CopyLog, CopyMode, DType, DeviceArray, ErrorKind, NullPolicy, Scalar, Selection,
};
use arrow_schema::{DataType, TimeUnit};

use super::Random;
use super::arrow::{field, random_array, shared};
use super::cast::{Value, is_nan, reference};
use super::plan::assert_planned;
use super::reference::{Element, elements, read, read_bools, read_bytes};

/// The dtypes that Arrow has, but for complex numbers.
pub(crate) const DTYPES: [DType; 12] = [
    DType::Bool,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::Float16,
    DType::Float32,
    DType::Float64,
];

/// Types of columns that have these dtypes, and two of times.
pub(crate) const TYPES: [DataType; 14] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Float16,
    DataType::Float32,
    DataType::Float64,
    DataType::Boolean,
    DataType::Date32,
    DataType::Timestamp(TimeUnit::Nanosecond, None),
];

/// What the conversion must give: the elements, or what kind of error at the lowest row; a null before a value of its row.
fn expected(
    dtype: DType,
    source: &[Element],
    from: DType,
    row: usize,
    nulls: NullPolicy,
) -> Result<Vec<Option<Vec<u8>>>, (ErrorKind, usize)> {
    let null = source.iter().position(Option::is_none).filter(|_| nulls == NullPolicy::Error).map(|first| first / row);
    let convert = |(index, element): (usize, &Element)| match element {
        _ if null == Some(index / row) => Err((ErrorKind::Null, index / row)),
        None => Ok(None),
        Some(bytes) if from == dtype => Ok(Some(bytes.clone())),
        Some(bytes) => match reference(Value::of(from, bytes), dtype) {
            Some(cast) => Ok(Some(cast)),
            None => Err((ErrorKind::Cast, index / row)),
        },
    };
    source.iter().enumerate().map(convert).collect()
}

fn assert_null_slot(found: &[u8], dtype: DType, options: &Conversion, copied: bool) {
    let integer = |value| Some(reference(Value::Int(value), dtype).unwrap());
    let expected = match options.nulls.of("x") {
        NullPolicy::Nan => return assert!(is_nan(dtype, found)),
        NullPolicy::Fill(Scalar::Int(value)) => integer(value),
        NullPolicy::Fill(_) => integer(0),
        // A view keeps what lies there.
        _ => copied.then(|| vec![0; dtype.itemsize()]),
    };
    assert!(expected.is_none_or(|expected| expected == found));
}

/// Asserts that a column of chunks becomes what the definition says, or is the error that it says, and that the report, the copy log
/// and the plan agree. A chunk is an offset, a length, and one null in so many slots; `seed` determines the values.
pub(crate) fn assert_column(data_type: &DataType, chunks: &[(usize, usize, usize)], options: &Conversion, seed: u64) {
    let column = field("x", data_type.clone());
    let mut random = Random(seed);
    let arrays: Vec<ArrayRef> = chunks
        .iter()
        .map(|(offset, length, nulls)| {
            random_array(data_type, offset + length + 3, *nulls, &mut random).slice(*offset, *length)
        })
        .collect();
    let source: Vec<Element> = arrays.iter().flat_map(|array| elements(&column, array)).collect();
    let shared: Vec<DeviceArray> = arrays.iter().map(|array| shared(array, &column)).collect();
    let rows: usize = arrays.iter().map(|array| array.len()).sum();

    let valid = Conversion::default().validity(Chunks::new(&column, &shared)).unwrap();
    assert_eq!(read_bools(&valid), source.iter().map(Option::is_some).collect::<Vec<_>>());
    assert_eq!(valid.shape()[0], i64::try_from(rows).unwrap());

    assert_planned(options, &column, &shared, read_bytes);
    let log = CopyLog::new();
    let outcome = log.track(|| options.to_tensor(Chunks::new(&column, &shared)));
    let report = options.clone().select(Selection::Each(None)).explain(Chunks::new(&column, &shared)).unwrap();
    let natural = Conversion::default().to_tensor(Chunks::new(&column, &[])).unwrap().dtype();
    let dtype = options.dtype.of("x").unwrap_or(natural);
    if options.nulls.of("x") == NullPolicy::Nan && dtype.kind() != Kind::Float {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Null);
        return;
    }
    let expected = expected(dtype, &source, natural, (source.len() / rows.max(1)).max(1), options.nulls.of("x"));
    match (outcome, expected) {
        (Ok(tensor), Ok(expected)) => {
            assert_eq!((tensor.dtype(), tensor.shape()), (dtype, valid.shape()));
            assert_eq!(tensor.is_copied(), log.bytes() > 0);
            assert_eq!((log.bytes(), report.rows[0].view), (report.bytes(), log.bytes() == 0));
            assert!(tensor.is_writable() == (tensor.is_copied() || tensor.is_empty()));
            assert!(options.copy != CopyMode::Never || !tensor.is_copied());
            assert!(!(options.writable || options.copy == CopyMode::Always) || tensor.is_copied() || tensor.is_empty());
            assert_eq!(tensor.field().is_some(), dtype == natural);
            let found = read(&tensor);
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                match expected {
                    Some(expected) => assert!(found == expected || is_nan(dtype, found) && is_nan(dtype, expected)),
                    None => assert_null_slot(found, dtype, options, tensor.is_copied()),
                }
            }
        }
        (Err(error), _) if error.kind() == ErrorKind::Copy => {
            assert_eq!(options.copy, CopyMode::Never);
            assert!(error.reason().contains("a copy") && error.remedy().is_some(), "{error}");
            assert_eq!(report.rows[0].error.as_ref(), Some(&error));
            // It is true that a copy is needed.
            let allowed = options.clone().copy(CopyMode::IfNeeded).nulls(NullPolicy::Keep);
            let filled =
                matches!(options.nulls.of("x"), NullPolicy::Nan | NullPolicy::Fill(_)) && source.contains(&None);
            let copied = allowed.to_tensor(Chunks::new(&column, &shared)).map(|tensor| tensor.is_copied());
            assert!(filled || copied.unwrap_or(true));
        }
        (Err(error), Err((kind, row))) => {
            assert_eq!((error.kind(), error.column(), error.row()), (kind, Some("x"), Some(row)));
            assert_eq!(log.bytes(), 0);
        }
        (outcome, expected) => panic!("{outcome:?}, not {expected:?}"),
    }
}
