//! Parts on several threads.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, StructArray};
use arrow_dlpack::{Chunks, Conversion, DType, ErrorKind, MemoryOrder, NullPolicy, Scalar};
use arrow_schema::{DataType, Field};

use crate::cases::{Case, Kind, assert_error, assert_same, expected};
use crate::support::arrow::{field, shared};
use crate::support::reference::read;

/// Threads are worth less where Miri interprets them.
const FEWER: usize = if cfg!(miri) { 1000 } else { 1 };

#[test]
fn parts_on_several_threads_make_one_matrix() {
    let case = |order: MemoryOrder, seed| Case {
        columns: [Kind::Plain(DType::Float32), Kind::Bits, Kind::Plain(DType::Int16), Kind::Plain(DType::Int64)]
            .into_iter()
            .map(|kind| (kind, NullPolicy::Fill(Scalar::Int(1))))
            .collect(),
        // Chunks end inside the parts of threads, and parts inside chunks.
        chunks: vec![(70_001 / FEWER, 3, 9), (0, 0, 0), (17, 1, 2), (120_000 / FEWER, 0, 0)],
        dtype: Some(DType::Float64),
        order,
        seed,
    };
    for order in [MemoryOrder::C, MemoryOrder::F] {
        let case = case(order, 7);
        let data = case.data();
        let make = |threads: usize| {
            let conversion = case.conversion().threads(std::num::NonZero::new(threads).unwrap());
            conversion.to_tensor(Chunks::new(&data.field, &data.chunks))
        };
        assert_same(DType::Float64, &read(&make(5).unwrap()), &expected(&case, &data, DType::Float64).unwrap());
    }
}

#[test]
fn the_lowest_row_that_misfits_is_told_whichever_thread_finds_it() {
    let chunk = |misfits: &[usize]| {
        let column = |misfit: Option<&usize>| -> ArrayRef {
            let value = |row| if Some(&row) == misfit { i64::MAX } else { 1 };
            Arc::new(arrow_array::Int64Array::from_iter_values((0..200_000 / FEWER).map(value)))
        };
        let named = [("a", column(misfits.first())), ("b", column(misfits.get(1)))];
        let fields = named.map(|(name, column)| (Arc::new(Field::new(name, DataType::Int64, true)), column));
        let array = StructArray::from(fields.to_vec());
        shared(&array, &field("", array.data_type().clone()))
    };
    let misfitting = chunk(&[150_000 / FEWER, 60_000 / FEWER]);
    let fitting = chunk(&[]);
    for order in [MemoryOrder::C, MemoryOrder::F] {
        for (chunks, column, row) in [
            (vec![misfitting.clone()], "b", 60_000 / FEWER),
            (vec![fitting.clone(), misfitting.clone()], "b", 260_000 / FEWER),
            (vec![chunk(&[200_000 / FEWER - 1]), misfitting.clone()], "a", 200_000 / FEWER - 1),
        ] {
            let threads = std::num::NonZero::new(3).unwrap();
            let matrix = Conversion::default().dtype(DType::Int32).memory_order(order).threads(threads);
            let error = matrix.to_tensor(Chunks::new(fitting.field(), &chunks)).unwrap_err();
            assert_error(&error, &(ErrorKind::Cast, column.to_owned(), row));
        }
    }
}
