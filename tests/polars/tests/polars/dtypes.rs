//! Is every dtype of polars a result, or an error that says what to do?

use std::borrow::Cow;
use std::fmt;

use arrow_dlpack::{Conversion, CopyLog, CopyMode, DType, Error, ErrorKind, NullPolicy, Ragged, Tensor};
use arrow_dlpack_polars::{Convert, chunks, to_series};
use arrow_schema::DataType as ArrowType;
use polars_core::datatypes::extension::{ExtensionTypeImpl, ExtensionTypeInstance};
use polars_core::prelude::*;

/// What becomes of a column.
enum Expected {
    /// A view of two rows, of this dtype and inner shape.
    View(DType, &'static [i64]),
    /// A copy, of this dtype.
    Copy(DType),
    /// Rows of different lengths.
    Ragged,
    /// An error whose message has this text.
    Error(&'static str),
}

/// An extension type over 32 bits.
#[derive(Clone, Debug, PartialEq)]
struct Pixel;

impl ExtensionTypeImpl for Pixel {
    fn name(&self) -> Cow<'_, str> {
        "tests.pixel".into()
    }
    fn serialize_metadata(&self) -> Option<Cow<'_, str>> {
        Some("rgba".into())
    }
    fn dyn_clone(&self) -> Box<dyn ExtensionTypeImpl> {
        Box::new(self.clone())
    }
    fn dyn_eq(&self, other: &dyn ExtensionTypeImpl) -> bool {
        other.name() == self.name()
    }
    fn dyn_hash(&self) -> u64 {
        7
    }
    fn dyn_display(&self) -> Cow<'_, str> {
        "pixel".into()
    }
    fn dyn_debug(&self) -> Cow<'_, str> {
        "Pixel".into()
    }
}

/// A Rust object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Thing(u8);

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thing {}", self.0)
    }
}

impl polars_utils::total_ord::TotalHash for Thing {
    fn tot_hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::hash::Hash::hash(self, state);
    }
}

impl polars_utils::total_ord::TotalEq for Thing {
    fn tot_eq(&self, other: &Self) -> bool {
        self == other
    }
}

impl PolarsObject for Thing {
    fn type_name() -> &'static str {
        "thing"
    }
}

fn cast(series: Series, dtype: DataType) -> Series {
    series.cast(&dtype).unwrap()
}

fn ints() -> Series {
    Series::new("x".into(), [1_i64, 2])
}

fn texts() -> Series {
    Series::new("x".into(), ["to", "a longer text than twelve bytes"])
}

/// A column of Rust objects.
pub(crate) fn objects() -> Series {
    ObjectChunked::new_from_vec("x".into(), vec![Thing(1), Thing(2)]).into_series()
}

fn enumeration() -> DataType {
    DataType::from_frozen_categories(FrozenCategories::new(["a longer text than twelve bytes", "to"]).unwrap())
}

fn extension() -> Series {
    let storage = Series::new("x".into(), [1_u32, 2]);
    ExtensionChunked::from_storage(ExtensionTypeInstance(Box::new(Pixel)), storage).into_series()
}

fn cases() -> Vec<(Series, Expected)> {
    use Expected::{Copy, Ragged, View};
    let plain = |dtype: DataType| cast(ints(), dtype);
    let zone = || Some(TimeZone::opt_try_new(Some("Europe/Berlin")).unwrap().unwrap());
    let lists = || Series::new("x".into(), [ints(), Series::new("".into(), [3_i64])]);
    let arrays = Series::new("x".into(), [1_i16, 2, 3, 4]).reshape_array(&[2, 2].map(ReshapeDimension::new)).unwrap();
    let structs = df!("a" => [1_i32, 2], "b" => [0.5_f64, 1.5]).unwrap().into_struct("x".into()).into_series();
    let categories = DataType::from_categories(Categories::global());
    let small = Categories::new("small".into(), "".into(), CategoricalPhysical::U8);
    vec![
        (Series::new("x".into(), [true, false]), Copy(DType::Bool)),
        (plain(DataType::Int8), View(DType::Int8, &[])),
        (plain(DataType::Int16), View(DType::Int16, &[])),
        (plain(DataType::Int32), View(DType::Int32, &[])),
        (ints(), View(DType::Int64, &[])),
        (plain(DataType::UInt8), View(DType::UInt8, &[])),
        (plain(DataType::UInt16), View(DType::UInt16, &[])),
        (plain(DataType::UInt32), View(DType::UInt32, &[])),
        (plain(DataType::UInt64), View(DType::UInt64, &[])),
        (plain(DataType::Int128), Expected::Error("no integers of 128 bits")),
        (plain(DataType::UInt128), Expected::Error("no integers of 128 bits")),
        (plain(DataType::Float16), View(DType::Float16, &[])),
        (plain(DataType::Float32), View(DType::Float32, &[])),
        (plain(DataType::Float64), View(DType::Float64, &[])),
        (plain(DataType::Date), View(DType::Int32, &[])),
        (plain(DataType::Time), View(DType::Int64, &[])),
        (plain(DataType::Datetime(TimeUnit::Milliseconds, None)), View(DType::Int64, &[])),
        (plain(DataType::Datetime(TimeUnit::Microseconds, zone())), View(DType::Int64, &[])),
        (plain(DataType::Datetime(TimeUnit::Nanoseconds, zone())), View(DType::Int64, &[])),
        (plain(DataType::Duration(TimeUnit::Nanoseconds)), View(DType::Int64, &[])),
        (plain(DataType::Decimal(38, 0)), Expected::Error("dtype")),
        (plain(DataType::Decimal(20, 3)), Expected::Error("dtype")),
        (texts(), Ragged),
        (Series::new("x".into(), [&b"to"[..], b"be"]), Ragged),
        (cast(Series::new("x".into(), [&b"to"[..], b"be"]), DataType::BinaryOffset), Ragged),
        (lists(), Ragged),
        (arrays, View(DType::Int16, &[2])),
        (structs, Copy(DType::Float64)),
        (cast(texts(), categories), View(DType::UInt32, &[])),
        (cast(texts(), DataType::from_categories(small)), View(DType::UInt8, &[])),
        (cast(texts(), enumeration()), View(DType::UInt8, &[])),
        (Series::full_null("x".into(), 2, &DataType::Null), Expected::Error("has no tensor form")),
        (extension(), View(DType::UInt32, &[])),
        (objects(), Expected::Error("Rust objects have no Arrow type")),
    ]
}

fn result(series: &Series) -> Result<Tensor, Error> {
    Conversion::default().tensor(series)
}

#[test]
fn every_dtype_is_a_result_or_an_error_that_says_what_to_do() {
    for (series, expected) in cases() {
        let name = format!("{:?}", series.dtype());
        let log = CopyLog::new();
        let found = log.track(|| result(&series));
        match expected {
            Expected::View(dtype, inner) => {
                let tensor = found.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!((tensor.dtype(), &tensor.shape()[1..]), (dtype, inner), "{name}");
                assert!(log.entries().is_empty(), "{name}: {:?}", log.entries());
                let buffer = series.rechunk();
                assert_eq!(tensor.nbytes(), buffer.len() * dtype.itemsize() * inner.iter().product::<i64>() as usize);
            }
            Expected::Copy(dtype) => {
                assert_eq!(found.unwrap_or_else(|error| panic!("{name}: {error}")).dtype(), dtype, "{name}");
                assert!(!log.entries().is_empty(), "{name}");
            }
            Expected::Ragged => {
                let error = found.unwrap_err();
                assert!(error.remedy().is_some(), "{name}: {error}");
                let rows: Ragged =
                    Conversion::default().rows(&series).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(rows.len(), 2, "{name}");
            }
            Expected::Error(text) => {
                let error = found.unwrap_err();
                assert!(error.to_string().contains(text), "{name}: {error}");
                assert!(error.remedy().is_some(), "{name}: {error}");
                assert_eq!(error.column(), Some("x"), "{name}: {error}");
            }
        }
    }
}

#[test]
fn every_dtype_with_an_arrow_type_is_the_same_series_again() {
    for (series, _) in cases() {
        let Ok(chunks) = chunks(&series) else { continue };
        let name = format!("{:?}", series.dtype());
        let back = to_series(&chunks, CopyMode::IfNeeded).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(back.name(), series.name());
        // Nobody registered the extension type, so that polars reads its storage. Binary is of views.
        let expected = match series.dtype() {
            DataType::Extension(_, storage) => storage.as_ref().clone(),
            dtype => dtype.clone(),
        };
        assert_eq!(back.dtype(), &expected, "{name}");
        let stored = series.to_physical_repr().into_owned();
        assert!(back.to_physical_repr().equals_missing(&stored) || series.dtype().is_categorical(), "{name}: {back:?}");
        assert_eq!(back.null_count(), series.null_count(), "{name}");
    }
}

#[test]
fn nulls_of_every_dtype_are_kept() {
    // Polars makes nulls of objects only where an application has registered them.
    for (series, _) in cases().into_iter().filter(|(series, _)| !series.dtype().is_object()) {
        let nulls = Series::full_null("x".into(), 3, series.dtype());
        let name = format!("{:?}", series.dtype());
        match chunks(&nulls) {
            Ok(chunks) => {
                let back = to_series(&chunks, CopyMode::IfNeeded).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(back.null_count(), 3, "{name}");
            }
            Err(error) => assert!(error.remedy().is_some(), "{name}: {error}"),
        }
    }
}

#[test]
fn dtypes_inside_of_lists_arrays_and_structs_follow_the_same_rules() {
    for (series, _) in cases() {
        let name = format!("{:?}", series.dtype());
        let plain = chunks(&series).map(drop);
        if series.dtype().is_object() {
            continue; // Polars nests no objects.
        }
        let structs = StructChunked::from_series("x".into(), series.len(), [series.clone()].iter());
        let mut nested = vec![structs.unwrap().into_series()];
        nested.push(series.implode().unwrap().into_series());
        // Polars reshapes the items of lists instead.
        if !series.dtype().is_nested() {
            nested.push(series.reshape_array(&[1, 2].map(ReshapeDimension::new)).unwrap());
        }
        for nested in nested {
            let found = chunks(&nested);
            assert_eq!(found.is_ok(), plain.is_ok(), "{name} in {:?}: {:?}", nested.dtype(), found.err());
            if let Ok(chunks) = found {
                let back = to_series(&chunks, CopyMode::IfNeeded);
                let back = back.unwrap_or_else(|error| panic!("{name} in {:?}: {error}", nested.dtype()));
                assert_eq!(back.len(), nested.len(), "{name}");
            }
        }
    }
}

#[test]
fn decimals_are_cast_to_what_is_asked_for() {
    let series = Series::new("x".into(), ["1.5", "2.25"]).cast(&DataType::Decimal(20, 2)).unwrap();
    let tensor = Conversion::default().dtype(DType::Float64).tensor(&series).unwrap();
    assert_eq!(tensor.as_slice::<f64>().unwrap(), [1.5, 2.25]);
}

#[test]
fn codes_have_the_dictionary_of_their_categories() {
    let texts = Series::new("x".into(), [Some("b"), None, Some("a"), Some("b")]);
    for dtype in [
        DataType::from_categories(Categories::random("".into(), CategoricalPhysical::U16)),
        enumeration_of(&["a", "b"]),
    ] {
        let series = texts.cast(&dtype).unwrap();
        let chunks = chunks(&series).unwrap();
        let ArrowType::Dictionary(_, values) = chunks.field().data_type() else { panic!("{:?}", chunks.field()) };
        assert_eq!(**values, ArrowType::Utf8View);
        let codes = Conversion::default().copy(CopyMode::Never).nulls(NullPolicy::Keep).tensor(&chunks.arrays()[0]);
        let codes = codes.unwrap();
        let array = arrow_dlpack::to_arrow(&codes, None, CopyMode::Never).unwrap().to_arrow().unwrap();
        let back = to_series(&array, CopyMode::IfNeeded).unwrap().cast(&DataType::String).unwrap();
        let text = back.str().unwrap();
        assert_eq!((text.get(0), text.get(2), text.get(3)), (Some("b"), Some("a"), Some("b")));
    }
}

fn enumeration_of(names: &[&str]) -> DataType {
    DataType::from_frozen_categories(FrozenCategories::new(names.iter().copied()).unwrap())
}

#[test]
fn an_error_names_the_column_and_its_kind() {
    let frame = DataFrame::new_infer_height(vec![ints().with_name("a".into()).into_column(), objects().into_column()]);
    let error = Conversion::default().tensor(&frame.unwrap()).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Unsupported, Some("x")), "{error}");
}
