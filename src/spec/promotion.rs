//! The dtype that several dtypes promote to: by the array API within a kind, by `numpy.result_type` and `ml_dtypes` for
//! integers with floats.

use crate::dtype::{DType, Kind};

/// Returns the dtype that all of these promote to, in any order; `None` for no dtypes.
///
/// # Errors
/// The positions of two dtypes that promote to none.
pub(super) fn promote_all(dtypes: &[DType]) -> Result<Option<DType>, (usize, usize)> {
    let Some(first) = dtypes.first() else { return Ok(None) };
    if dtypes.iter().all(|dtype| dtype == first) {
        return Ok(Some(*first));
    }
    // Floats first, and the widest of a kind first: then promotion by pairs does not depend on the order, and fails
    // only if it must.
    let mut order: Vec<(usize, DType)> = dtypes.iter().copied().enumerate().collect();
    order.sort_by_key(|(_, dtype)| (rank(*dtype), std::cmp::Reverse(dtype.itemsize())));
    let mut order = order.into_iter();
    let Some((mut decided_by, mut common)) = order.next() else { return Ok(None) };
    for (position, dtype) in order {
        let next = promote(common, dtype).ok_or((decided_by.min(position), decided_by.max(position)))?;
        if next != common {
            (common, decided_by) = (next, position);
        }
    }
    Ok(Some(common))
}

fn rank(dtype: DType) -> u8 {
    match dtype.kind() {
        Kind::Complex => 0,
        Kind::Float => 1,
        Kind::Int => 2,
        Kind::UInt => 3,
        Kind::Bool => 4,
    }
}

/// Returns the dtype that two promote to; `None` if there is none, or no cast to it. `a` is of the kind with the lower
/// rank.
fn promote(a: DType, b: DType) -> Option<DType> {
    if a == b {
        return Some(a);
    }
    let wider = if a.itemsize() >= b.itemsize() { a } else { b };
    match (a.kind(), b.kind()) {
        (Kind::Complex, Kind::Complex) | (Kind::Int, Kind::Int) | (Kind::UInt, Kind::UInt) => Some(wider),
        (Kind::Float, Kind::Float) => {
            let plain = a.is_castable() && b.is_castable() && a.itemsize() != b.itemsize();
            plain.then_some(wider)
        }
        (Kind::Float, Kind::Int | Kind::UInt) => match (a, b.itemsize()) {
            (DType::Float64, _) => Some(a),
            (DType::Float32, 1 | 2) | (DType::Float16 | DType::BFloat16, 1) => Some(a),
            (DType::Float16, 2) => Some(DType::Float32),
            (DType::Float16 | DType::Float32, _) => Some(DType::Float64),
            _ => None,
        },
        (Kind::Int, Kind::UInt) if a.itemsize() > b.itemsize() => Some(a),
        (Kind::Int, Kind::UInt) => match b.itemsize() {
            1 => Some(DType::Int16),
            2 => Some(DType::Int32),
            4 => Some(DType::Int64),
            _ => None,
        },
        (_, Kind::Bool) => a.is_castable().then_some(a),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promoted(names: &str) -> Option<String> {
        let dtypes: Vec<DType> = names.split(' ').map(|name| name.parse().unwrap()).collect();
        promote_all(&dtypes).ok().map(|dtype| dtype.unwrap().name().to_owned())
    }

    #[test]
    fn pairs_promote_as_in_numpy_and_ml_dtypes() {
        for (names, expected) in [
            ("bool bool", Some("bool")),
            ("bool int8", Some("int8")),
            ("bool uint64", Some("uint64")),
            ("bool bfloat16", Some("bfloat16")),
            ("int8 int64", Some("int64")),
            ("uint8 uint32", Some("uint32")),
            ("int8 uint8", Some("int16")),
            ("int16 uint8", Some("int16")),
            ("int8 uint16", Some("int32")),
            ("int32 uint32", Some("int64")),
            ("int64 uint32", Some("int64")),
            ("int64 uint64", None),
            ("int8 uint64", None),
            ("uint64 float32", Some("float64")),
            ("int16 float32", Some("float32")),
            ("int32 float32", Some("float64")),
            ("uint8 float16", Some("float16")),
            ("int16 float16", Some("float32")),
            ("uint32 float16", Some("float64")),
            ("float16 float32", Some("float32")),
            ("int8 bfloat16", Some("bfloat16")),
            ("int16 bfloat16", None),
            ("bfloat16 float16", None),
            ("bfloat16 float64", Some("float64")),
            ("float8_e5m2 float8_e5m2", Some("float8_e5m2")),
            ("float8_e5m2 float8_e4m3", None),
            ("float8_e5m2 float32", None),
            ("float8_e5m2 bool", None),
            ("complex64 complex128", Some("complex128")),
            ("complex64 float32", None),
            ("complex64 bool", None),
        ] {
            let swapped: Vec<&str> = names.split(' ').rev().collect();
            assert_eq!(promoted(names).as_deref(), expected, "{names}");
            assert_eq!(promoted(&swapped.join(" ")).as_deref(), expected, "{names}");
        }
    }

    #[test]
    fn the_order_of_several_does_not_matter() {
        for (names, expected) in [
            (["int16", "uint16", "float32"], Some("float32")),
            (["int8", "uint64", "float64"], Some("float64")),
            (["bfloat16", "float16", "float32"], Some("float32")),
            (["bfloat16", "int32", "float64"], Some("float64")),
            (["uint8", "uint16", "int8"], Some("int32")),
            (["uint64", "bool", "int8"], None),
        ] {
            for [a, b, c] in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                let order = [names[a], names[b], names[c]].join(" ");
                assert_eq!(promoted(&order).as_deref(), expected, "{order}");
            }
        }
    }

    #[test]
    fn those_that_have_nothing_in_common_are_told() {
        let dtypes = [DType::Bool, DType::UInt64, DType::UInt8, DType::Int32];
        assert_eq!(promote_all(&dtypes), Err((1, 3)));
        assert_eq!(promote_all(&[]), Ok(None));
    }
}
