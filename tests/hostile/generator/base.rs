//! Valid arrays of every Arrow type, with nulls and nested, to be made wrong.

use std::sync::{Arc, LazyLock};

use arrow_array::builder::{
    BinaryViewBuilder, FixedSizeBinaryBuilder, Int32Builder, ListBuilder, MapBuilder, StringBuilder, StringViewBuilder,
};
use arrow_array::types::{Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, DictionaryArray, FixedSizeListArray, Int8Array, Int16Array, Int32Array,
    Int64Array, LargeBinaryArray, LargeListArray, LargeListViewArray, LargeStringArray, ListArray, ListViewArray,
    NullArray, RunArray, StringArray, StructArray, UnionArray, new_empty_array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field, FieldRef, IntervalUnit, TimeUnit, UnionFields};

use super::node::Node;
use crate::support::Random;
use crate::support::arrow::{extension, field, list, random_array};

/// The rows of every base array.
const ROWS: usize = 6;

fn nulls() -> Option<NullBuffer> {
    Some(NullBuffer::new(BooleanBuffer::from(vec![true, false, true, true, true, false])))
}

fn plain_types() -> Vec<DataType> {
    use DataType::{
        Boolean, Date32, Date64, Decimal32, Decimal64, Decimal128, Decimal256, Duration, Float16, Float32, Float64,
        Int8, Int16, Int32, Int64, Interval, Time32, Time64, Timestamp, UInt8, UInt16, UInt32, UInt64,
    };
    let mut all = vec![Boolean, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float16, Float32, Float64];
    all.extend([
        Date32,
        Date64,
        Time32(TimeUnit::Second),
        Time64(TimeUnit::Nanosecond),
        Duration(TimeUnit::Millisecond),
    ]);
    all.extend([Timestamp(TimeUnit::Microsecond, None), Timestamp(TimeUnit::Nanosecond, Some("Europe/Berlin".into()))]);
    all.extend([IntervalUnit::YearMonth, IntervalUnit::DayTime, IntervalUnit::MonthDayNano].map(Interval));
    all.extend([list(Int16, 2), list(list(Int8, 2), 3), list(Boolean, 3), list(Int32, 0)]);
    all.extend([Decimal32(9, 2), Decimal64(18, -2), Decimal128(38, 10), Decimal256(76, 0)]);
    all
}

fn strings() -> [Option<&'static str>; ROWS] {
    [Some("ab"), None, Some(""), Some("a string that is too long to be inlined"), Some("ü"), None]
}

fn ints() -> ArrayRef {
    Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4), Some(5), None]))
}

fn long_items() -> ArrayRef {
    Arc::new(Int64Array::from((0..9).map(|value| (value % 4 != 0).then_some(value)).collect::<Vec<_>>()))
}

fn lists() -> Vec<ArrayRef> {
    let item = || field("item", DataType::Int64);
    let small = || vec![0_i32, 2, 2, 3, 5, 9, 9];
    let offsets = || arrow_buffer::OffsetBuffer::new(small().into());
    let wide = arrow_buffer::OffsetBuffer::new(small().into_iter().map(i64::from).collect());
    let (starts, sizes) = (vec![7_i32, 0, 3, 0, 2, 9], vec![2_i32, 0, 3, 9, 0, 0]);
    let wider = |values: &[i32]| values.iter().copied().map(i64::from).collect::<Vec<i64>>();
    let (wide_starts, wide_sizes) = (wider(&starts), wider(&sizes));
    let mut text = ListBuilder::new(StringBuilder::new());
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for row in 0..ROWS {
        for entry in 0..row % 3 {
            text.values().append_option((entry > 0).then_some("entry"));
            map.keys().append_value(format!("{row}-{entry}"));
            map.values().append_option((entry > 0).then_some(7));
        }
        text.append(row != 1);
        map.append(row != 4).expect("as many keys as values");
    }
    vec![
        Arc::new(ListArray::new(item(), offsets(), long_items(), nulls())),
        Arc::new(LargeListArray::new(item(), wide, long_items(), nulls())),
        Arc::new(ListViewArray::new(item(), starts.into(), sizes.into(), long_items(), nulls())),
        Arc::new(LargeListViewArray::new(item(), wide_starts.into(), wide_sizes.into(), long_items(), nulls())),
        Arc::new(text.finish()),
        Arc::new(map.finish()),
    ]
}

fn binaries() -> Vec<ArrayRef> {
    let bytes = strings().map(|text| text.map(str::as_bytes));
    let mut fixed = FixedSizeBinaryBuilder::new(3);
    for row in 0..ROWS {
        match row {
            1 => fixed.append_null(),
            _ => fixed.append_value([row as u8, 0xff, 3]).expect("three bytes"),
        }
    }
    let mut text = StringViewBuilder::new().with_fixed_block_size(64);
    let mut views = BinaryViewBuilder::new();
    for row in bytes {
        views.append_option(row);
    }
    for row in strings().iter().chain(&strings()[..0]) {
        text.append_option(*row);
    }
    vec![
        Arc::new(BinaryArray::from_iter(bytes)),
        Arc::new(LargeBinaryArray::from_iter(bytes)),
        Arc::new(StringArray::from_iter(strings())),
        Arc::new(LargeStringArray::from_iter(strings())),
        Arc::new(text.finish()),
        Arc::new(views.finish()),
        Arc::new(fixed.finish()),
        new_empty_array(&DataType::FixedSizeBinary(0)),
    ]
}

fn encoded() -> Vec<ArrayRef> {
    let short: DictionaryArray<Int8Type> = strings().into_iter().collect();
    let unsigned: DictionaryArray<UInt8Type> = strings().into_iter().collect();
    let long = DictionaryArray::<Int64Type>::new(
        Int64Array::from(vec![Some(2), None, Some(0), Some(5), Some(1), Some(2)]),
        ints(),
    );
    vec![
        Arc::new(short),
        Arc::new(unsigned),
        Arc::new(long),
        Arc::new(
            RunArray::<Int16Type>::try_new(
                &Int16Array::from(vec![2, 5, 6]),
                &StringArray::from(vec![Some("a"), None, Some("c")]),
            )
            .expect("runs"),
        ),
        Arc::new(
            RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1, 6]), &Int32Array::from(vec![7, 8])).expect("runs"),
        ),
        Arc::new(
            RunArray::<Int64Type>::try_new(&Int64Array::from(vec![6]), &BooleanArray::from(vec![true])).expect("runs"),
        ),
    ]
}

fn nested() -> Vec<ArrayRef> {
    let union_fields = || {
        let fields = [Field::new("a", DataType::Int32, true), Field::new("b", DataType::Int8, true)];
        UnionFields::try_new([3, 5], fields).expect("two ids")
    };
    let ids = || vec![3_i8, 5, 3, 3, 5, 3];
    let bytes: ArrayRef = Arc::new(Int8Array::from(vec![9, 8, 7, 6, 5, 4]));
    let dense = vec![0_i32, 1, 1, 2, 5, 5].into();
    let strings: ArrayRef = Arc::new(StringArray::from_iter(strings()));
    let pairs: ArrayRef = Arc::new(FixedSizeListArray::new(
        field("item", DataType::Int32),
        2,
        Arc::new(Int32Array::from_iter_values(0..12)),
        nulls(),
    ));
    let inner: ArrayRef = Arc::new(StructArray::new(
        vec![field("z", DataType::Boolean)].into(),
        vec![Arc::new(BooleanArray::from(vec![true, false, true, false, true, true]))],
        nulls(),
    ));
    let columns = vec![
        ("i", ints()),
        ("pair", pairs),
        ("s", strings),
        ("inner", inner),
        ("d", encoded().remove(0)),
        ("n", Arc::new(NullArray::new(ROWS)) as ArrayRef),
    ];
    let fields: Vec<FieldRef> = columns.iter().map(|(name, column)| field(name, column.data_type().clone())).collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    vec![
        Arc::new(
            UnionArray::try_new(union_fields(), ids().into(), None, vec![ints(), bytes.clone()]).expect("a union"),
        ),
        Arc::new(UnionArray::try_new(union_fields(), ids().into(), Some(dense), vec![ints(), bytes]).expect("a union")),
        Arc::new(StructArray::new(fields.into(), columns, nulls())),
        Arc::new(StructArray::new_empty_fields(ROWS, None)),
        Arc::new(NullArray::new(ROWS)),
    ]
}

/// A base structure: its name, field and array.
pub(crate) type Base = (String, FieldRef, ArrayRef);

/// Valid arrays of every type.
pub(crate) fn all() -> Vec<Base> {
    let plain = plain_types().into_iter().map(|data_type| random_array(&data_type, ROWS, 3, &mut Random(3)));
    let named = |array: ArrayRef| (array.data_type().to_string(), field("x", array.data_type().clone()), array);
    let mut all: Vec<Base> =
        plain.chain(binaries()).chain(lists()).chain(encoded()).chain(nested()).map(named).collect();
    let tensors = |name: &str, metadata: &str, data_type: DataType| {
        let array = random_array(&data_type, ROWS, 0, &mut Random(5));
        (format!("{name} {metadata}"), extension(&field("x", data_type), name, metadata), array)
    };
    all.push(tensors("arrow.bool8", "", DataType::Int8));
    all.push(tensors("arrow.fixed_shape_tensor", r#"{"shape":[2,3]}"#, list(DataType::Float32, 6)));
    all.push(tensors("arrow.fixed_shape_tensor", r#"{"shape":[2,3],"permutation":[1,0]}"#, list(DataType::Int16, 6)));
    let ragged = DataType::Struct(
        vec![
            field("data", DataType::List(field("item", DataType::Float32))),
            field("shape", DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int32, false)), 2)),
        ]
        .into(),
    );
    let ragged_array = arrow_array::new_null_array(&ragged, ROWS);
    all.push((
        "variable_shape_tensor".to_owned(),
        extension(&field("x", ragged), "arrow.variable_shape_tensor", ""),
        ragged_array,
    ));
    // Not nullable, and without a name.
    let strict = Arc::new(Field::new("", DataType::Float64, false));
    all.push(("strict".to_owned(), strict, random_array(&DataType::Float64, ROWS, 0, &mut Random(6))));
    all
}

/// Every base structure as a node.
pub(crate) fn whole() -> Vec<(String, Node)> {
    // Made once: Miri takes ten seconds for it.
    static WHOLE: LazyLock<Vec<(String, Node)>> = LazyLock::new(|| {
        all().into_iter().map(|(name, field, array)| (name, Node::of(&field, array.as_ref()))).collect()
    });
    WHOLE.clone()
}

/// Every base structure as a node, whole and sliced.
pub(crate) fn nodes() -> Vec<(String, Node)> {
    let sliced = |(name, node): &(String, Node)| (format!("{name}, sliced"), node.clone().sliced(2.min(node.length)));
    let whole = whole();
    whole.iter().map(sliced).chain(whole.clone()).collect()
}
