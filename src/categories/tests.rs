//! Codes of each layout of values, and of values that are none.

use arrow_array::types::Int8Type;
use arrow_array::{
    BinaryArray, BinaryViewArray, DictionaryArray, FixedSizeBinaryArray, Float32Array, Int8Array, Int64Array,
    LargeBinaryArray, LargeStringArray, NullArray, StringArray, StringViewArray, UInt64Array,
};

use super::*;

fn array(values: impl Array + 'static) -> ArrayRef {
    Arc::new(values)
}

fn codes(categories: &Categories, values: &dyn Array) -> Vec<i32> {
    struct All<'a>(&'a Categories, usize);
    impl Visit for All<'_> {
        type Out = Vec<i32>;
        fn visit<'b>(self, slots: impl Slots<'b>) -> Vec<i32> {
            let look = self.0.lookup(0);
            let single: Vec<i32> = (0..self.1).map(|slot| look.code_at(slots, slot).unwrap()).collect();
            for first in [0, self.1.min(1), self.1 / 2, self.1] {
                let mut rest = vec![7; self.1 - first];
                look.write_codes::<WordPair>(slots, first, &mut rest).unwrap();
                assert!(are_same(&rest, &single[first..]));
            }
            single
        }
    }
    let codes = || visit(&values.to_data(), All(categories, values.len())).unwrap();
    let in_buckets = codes();
    // After many look-ups by a perfect hash.
    categories.lookup(1 << 20);
    assert!(are_same(&codes(), &in_buckets));
    in_buckets
}

/// Negative codes are those of values that are noted for errors, of which few are.
fn are_same(codes: &[i32], others: &[i32]) -> bool {
    let is_same = |(code, other): (&i32, &i32)| code == other || *code < 0 && *other < 0;
    codes.len() == others.len() && codes.iter().zip(others).all(is_same)
}

#[test]
fn the_code_of_a_value_is_its_position_whatever_the_layouts() {
    let long = "a value of more than twelve bytes";
    let texts = vec!["", "a", "abcd", "abcdefgh", "abcdefghi", long, "abcdefghijklmnop"];
    let bytes: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    let of_text = [
        array(StringArray::from(texts.clone())),
        array(LargeStringArray::from(texts.clone())),
        array(StringViewArray::from(texts.clone())),
    ];
    let of_bytes = [
        array(BinaryArray::from(bytes.clone())),
        array(LargeBinaryArray::from(bytes.clone())),
        array(BinaryViewArray::from(bytes)),
    ];
    for layouts in [of_text, of_bytes] {
        for own in &layouts {
            let categories = Categories::new(own.clone()).unwrap();
            for column in &layouts {
                assert_eq!(codes(&categories, column), [0, 1, 2, 3, 4, 5, 6]);
                assert_eq!(codes(&categories, &column.slice(2, 3)), [2, 3, 4]);
                assert!(categories.require_type(column.data_type()).is_ok());
            }
            assert!(categories.require_type(&DataType::Int8).is_err());
        }
    }
}

#[test]
fn values_of_each_length_that_differ_in_one_byte_are_other_values() {
    let text = |length: usize, other: Option<usize>| -> Vec<u8> {
        (0..length).map(|at| if other == Some(at) { b'x' } else { b'a' }).collect()
    };
    let values: Vec<_> = (0..36).flat_map(|length| (0..length).map(move |at| text(length, Some(at)))).collect();
    let known = BinaryArray::from_iter_values(&values);
    let categories = Categories::new(array(known.clone())).unwrap().unknown(1000);
    assert!(codes(&categories, &known).into_iter().eq(0..i32::try_from(values.len()).unwrap()));
    let others = BinaryArray::from_iter_values((0..36).map(|length| text(length, None)));
    assert_eq!(codes(&categories, &others), [1000; 36]);
}

#[test]
fn fixed_sizes_have_codes() {
    let uuids = array(FixedSizeBinaryArray::try_from_iter([b"0123", b"4567"].into_iter()).unwrap());
    let categories = Categories::new(uuids.slice(1, 1)).unwrap();
    assert_eq!(codes(&categories.unknown(9), &uuids), [9, 0]);
    // Shorter than a block, one as long, and longer: the last values have fewer bytes behind their start.
    for width in [1, 15, 16, 17, 40] {
        let values = (0..6_u8).map(|value| vec![value; width]);
        let column = FixedSizeBinaryArray::try_from_iter(values).unwrap();
        let categories = Categories::new(array(column.slice(2, 4))).unwrap().unknown(-5);
        assert_eq!(codes(&categories, &column), [-5, -5, 0, 1, 2, 3], "{width}");
    }
}

#[test]
fn short_values_are_found_by_the_sixteen_bytes_at_their_start() {
    struct Short<'a>(&'a Categories, usize);
    impl Visit for Short<'_> {
        type Out = Vec<Option<i32>>;
        fn visit<'b>(self, slots: impl Slots<'b>) -> Vec<Option<i32>> {
            let (short, table) = (self.0.lookup(0).short, &self.0.vocabulary.table);
            let find = |(block, bytes)| match short {
                Some(short) => short.find::<WordPair>(block, bytes),
                None => table.find_short(block, bytes),
            };
            let found = |slot| slots.block(slot).and_then(find);
            (0..self.1).map(found).collect()
        }
    }
    let texts: Vec<&str> = (0..20).map(|length| &"abcdefghijklmnopqrst"[..length]).collect();
    let numbers = FixedSizeBinaryArray::try_from_iter((0..6_u8).map(|value| [value; 4])).unwrap();
    // The shortest values are found: up to 16 bytes of texts, 12 in a view, and none with fewer than 16 from its start on.
    for (values, most) in [
        (array(StringArray::from(texts.clone())), 17),
        (array(LargeStringArray::from(texts.clone())), 17),
        (array(StringViewArray::from(texts)), 13),
        (array(numbers), 3),
    ] {
        let categories = Categories::new(values.clone()).unwrap();
        let count = i32::try_from(values.len()).unwrap();
        // In the buckets, and after many look-ups by a perfect hash.
        for sought in [0, 1000] {
            categories.lookup(sought);
            let found = visit(&values.to_data(), Short(&categories, values.len())).unwrap();
            assert!(found.into_iter().eq((0..count).map(|code| (code < most).then_some(code))), "{values:?}");
        }
    }
}

#[test]
fn integers_of_any_width_are_compared_by_value() {
    for values in [vec![5, -3, 100], vec![5, -3, i64::MAX]] {
        let categories = Categories::new(array(Int64Array::from(values.clone()))).unwrap().unknown(7);
        assert_eq!(codes(&categories, &Int8Array::from(vec![-3, 5, 0])), [1, 0, 7]);
        assert_eq!(codes(&categories, &UInt64Array::from(vec![u64::MAX, 5])), [7, 0]);
    }
    let wide = Categories::new(array(UInt64Array::from(vec![u64::MAX, 0]))).unwrap().unknown(7);
    assert_eq!(codes(&wide, &UInt64Array::from(vec![0, u64::MAX])), [1, 0]);
    assert_eq!(codes(&wide, &Int64Array::from(vec![-1, 0])), [7, 1]);
    let none = Categories::new(array(Int64Array::from(Vec::<i64>::new()))).unwrap().unknown(0);
    assert_eq!(codes(&none, &Int64Array::from(vec![i64::MIN])), [0]);
}

#[test]
fn many_values_are_found_and_others_are_not() {
    let count: i32 = if cfg!(miri) { 100 } else { 20_000 };
    let texts = StringArray::from_iter_values((0..count).map(|value| format!("category {value}")));
    let categories = Categories::new(array(texts.clone())).unwrap().unknown(count);
    assert_eq!(codes(&categories, &texts), (0..count).collect::<Vec<_>>());
    let others = StringArray::from_iter_values((0..count).map(|value| format!("categorx {value}")));
    assert!(codes(&categories, &others).iter().all(|code| *code == count));
    let sparse = Int64Array::from_iter_values((0..count).map(|value| i64::from(value) * 1_000_003));
    let categories = Categories::new(array(sparse.clone())).unwrap();
    assert_eq!(codes(&categories, &sparse), (0..count).collect::<Vec<_>>());
}

#[test]
fn wrong_vocabularies_are_refused() {
    let message = |values: ArrayRef| Categories::new(values).unwrap_err().to_string();
    let twice = message(array(StringArray::from(vec!["a", "b", "a"])));
    assert!(twice.contains("category 2 is \"a\", as category 0 is"), "{twice}");
    let long = format!("{:a<1000}", "");
    let twice = message(array(StringArray::from(vec![long.as_str(); 2])));
    assert!(twice.contains(&format!("category 1 is \"{:a<100}\"..., as category 0 is", "")), "{twice}");
    let twice = message(array(Int8Array::from(vec![4, 4])));
    assert!(twice.contains("category 1 is 4, as category 0 is"), "{twice}");
    assert!(message(array(StringArray::from(vec![Some("a"), None]))).contains("category 1 is null"));
    assert!(message(array(Float32Array::from(vec![1.0]))).contains("Float32"));
    assert!(message(array(NullArray::new(1 << 31))).contains("more than int32 has codes"));
    let encoded: DictionaryArray<Int8Type> = ["a"].into_iter().collect();
    assert!(message(array(encoded)).contains("pass the dictionary's values"));
}

#[test]
fn an_unknown_value_is_told_in_short() {
    let categories = Categories::new(array(StringArray::from(vec!["a"]))).unwrap();
    assert!(!categories.has_unknown());
    let found = codes(&categories, &StringArray::from(vec!["b", "a", "c", "b", &"x".repeat(1000)]));
    assert_eq!(found, [-1, 0, -2, -1, -3]);
    assert!(categories.has_unknown());
    let told: Vec<String> = found.iter().map(|code| categories.error(*code).to_string()).collect();
    assert!(told[0].contains("the value \"b\" is none of the 1 category"), "{}", told[0]);
    assert!(told[2].contains("\"c\"") && told[4].len() < 300, "{}", told[4]);
    // Only so many are kept.
    let many = StringArray::from_iter_values((0..2 * MOST_UNKNOWN).map(|value| value.to_string()));
    let last = codes(&categories, &many).last().copied().unwrap();
    assert!(categories.error(last).to_string().contains("a value is none of"));
    let binary = Categories::new(array(BinaryArray::from(vec![b"a".as_slice()]))).unwrap();
    let code = codes(&binary, &BinaryArray::from(vec![b"\xff".as_slice()]))[0];
    assert!(binary.error(code).to_string().contains("b\"\\xff\""));
}

#[test]
fn equal_categories_are_equal() {
    let of = |values: Vec<&str>| Categories::new(array(StringArray::from(values))).unwrap();
    assert_eq!(of(vec!["a", "b"]), of(vec!["a", "b"]));
    assert_ne!(of(vec!["a", "b"]), of(vec!["b", "a"]));
    assert_ne!(of(vec!["a"]), of(vec!["a"]).unknown(1));
    assert_eq!(format!("{:?}", of(vec!["a"])), "Categories { values: 1 of Utf8, unknown: None }");
}
