//! The validity of a matrix, against its values and back.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_dlpack::{
    Chunks, ColumnOptions, Conversion, CopyLog, CopyMode, DType, DeviceArray, DeviceArrayStream, ErrorKind, Group,
    MemoryOrder, NullPolicy, Selection, matrix_to_arrow,
};
use arrow_schema::DataType;
use proptest::prelude::*;

use crate::cases::{Kind, cases};
use crate::of_one_buffer;
use crate::support::arrow::{field, shared};
use crate::support::reference::read;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn an_element_is_valid_where_the_value_is_no_null(case in cases(), threads in 1..3_usize) {
        let data = case.data();
        let (rows, columns) = (data.values.len(), case.columns.len());
        let options = case.conversion().threads(std::num::NonZero::new(threads).unwrap());
        let log = CopyLog::new();
        let valid = log.track(|| options.validity(Chunks::new(&data.field, &data.chunks))).unwrap();
        prop_assert_eq!((valid.shape(), valid.dtype()), (&[rows as i64, columns as i64][..], DType::Bool));
        let expected: Vec<Vec<u8>> = data.values.iter().flatten().map(|value| vec![u8::from(value.is_some())]).collect();
        prop_assert_eq!(read(&valid), expected);
        if rows > 1 && columns > 1 {
            let strides = if case.order == MemoryOrder::F { [1, rows as i64] } else { [columns as i64, 1] };
            prop_assert_eq!(valid.strides(), strides);
        }
        prop_assert_eq!(log.entries().len(), usize::from(rows > 0));
        prop_assert!(rows == 0 || log.entries()[0].bytes >= rows * columns);
        let plan = options.plan_validity(Chunks::new(&data.field, &data.chunks)).unwrap();
        let (report, running) = (plan.report(), CopyLog::new());
        prop_assert_eq!((plan.bytes(), report.rows[0].shape.as_slice()), (log.bytes(), &[Some(rows as i64), Some(columns as i64)][..]));
        let planned = running.track(|| plan.run()).unwrap();
        prop_assert_eq!((read(&planned), planned.strides()), (read(&valid), valid.strides()));
        prop_assert_eq!(running.entries(), log.entries());
        prop_assert!(rows == 0 || options.clone().copy(CopyMode::Never).plan_validity(Chunks::new(&data.field, &data.chunks)).is_err());
        let never = options.copy(CopyMode::Never).validity(Chunks::new(&data.field, &data.chunks));
        prop_assert_eq!(never.err().map(|error| error.kind()), (rows > 0).then_some(ErrorKind::Copy));
    }

    #[test]
    fn runs_that_are_decoded_for_it_are_counted_of_columns_as_of_matrices(case in cases()) {
        let data = case.data();
        let rows = data.values.len();
        let validity = |group: Group| {
            let groups = vec![("x".to_owned(), group.nulls(NullPolicy::Keep).validity("valid"))];
            Conversion::default().select(Selection::Named(groups))
        };
        // Each run is of int16, and each value of them has a bool.
        let bytes = rows * if case.columns[0].0 == Kind::Runs { 3 } else { 1 };
        for conversion in [validity(Group::column("c0")), validity(Group::matrix(["c0"]))] {
            let report = conversion.explain(Chunks::new(&data.field, &data.chunks)).unwrap();
            let row = report.rows.iter().find(|row| row.column == "valid").unwrap();
            prop_assert_eq!(row.bytes, bytes, "{}", report);
            let of_type = conversion.explain_type(&data.field, arrow_dlpack::Device::CPU).unwrap();
            let row_of_type = of_type.rows.iter().find(|row| row.column == "valid").unwrap();
            prop_assert_eq!(row_of_type.steps.contains(&"decoded".to_owned()), case.columns[0].0 == Kind::Runs);
            prop_assert_eq!(row.steps.iter().any(|step| step.contains("decoded")), bytes > rows, "{}", report);
            let (whole, streamed) = (CopyLog::new(), CopyLog::new());
            whole.track(|| conversion.to_tensors(Chunks::new(&data.field, &data.chunks))).unwrap();
            let chunks: Vec<_> = data.chunks.iter().cloned().map(Ok).collect();
            let device = arrow_dlpack::Device::CPU.device_type();
            let mut stream = DeviceArrayStream::new(data.field.clone(), device, chunks.into_iter());
            streamed.track(|| conversion.read_tensors(&mut stream)).unwrap();
            for log in [whole, streamed] {
                let entries = log.entries();
                let made = entries.iter().find(|copied| copied.what.starts_with("validity"));
                prop_assert_eq!(made.map_or(0, |made| made.bytes), bytes);
                prop_assert_eq!(made.map_or(String::new(), |made| made.why.clone()), row.steps.join(", "));
            }
        }
    }

    #[test]
    fn with_the_values_it_makes_the_batch_again(case in cases()) {
        let data = case.data();
        let matrix = case.conversion().dtype(DType::Float64).nulls(NullPolicy::Keep);
        let values = matrix.to_tensor(Chunks::new(&data.field, &data.chunks)).unwrap();
        let valid = matrix.validity(Chunks::new(&data.field, &data.chunks)).unwrap();
        let names: Vec<String> = (0..case.columns.len()).map(|index| format!("c{index}")).collect();
        let back = matrix_to_arrow(&values, &names, &ColumnOptions::default().validity(valid)).unwrap();
        let back = RecordBatch::from(back.to_arrow().unwrap().as_struct());
        let expected: Vec<bool> = data.values.iter().flatten().map(Option::is_some).collect();
        let elements = (0..back.num_rows()).flat_map(|row| back.columns().iter().map(move |column| column.is_valid(row)));
        prop_assert_eq!(elements.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn columns_are_chosen_and_may_be_none() {
    let batch = of_one_buffer(3, 4, 8);
    let of = |options: &Conversion| options.validity(&batch);
    assert_eq!(of(&Conversion::default().columns(["c3", "c1"])).unwrap().shape(), [3, 2]);
    let none: [&str; 0] = [];
    assert_eq!(of(&Conversion::default().columns(none)).unwrap().shape(), [3, 0]);
    assert_eq!(of(&Conversion::default().columns(["z"])).unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!(of(&Conversion::default().columns(["c1", "c1"])).unwrap_err().column(), Some("c1"));
    assert_eq!(Conversion::default().validity(Chunks::new(batch.field(), &[])).unwrap().shape(), [0, 4]);
}

#[test]
fn a_struct_has_no_bitmap_and_one_column_no_columns() {
    let batch = of_one_buffer(3, 2, 8);
    let error = Conversion::default().validity_bits(&batch).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.remedy().is_some(), "{error}");
    let column = batch.column(0).unwrap();
    let chosen = Conversion::default().columns(["c0"]);
    for error in [chosen.validity(&column).unwrap_err(), chosen.validity_bits(&column).unwrap_err()] {
        assert!(error.kind() == ErrorKind::Argument && error.remedy().is_some(), "{error}");
    }
}

#[test]
fn strings_are_told_and_nested_columns_are_named() {
    let texts: arrow_array::ArrayRef = std::sync::Arc::new(arrow_array::StringArray::from(vec![Some("a"), None]));
    let lists = DataType::FixedSizeList(field("item", DataType::Int8), 2);
    let nested = arrow_array::new_null_array(&lists, 2);
    let batch = RecordBatch::try_from_iter([("s", texts), ("n", nested)]).unwrap();
    let batch = DeviceArray::from_record_batch(&batch).unwrap();
    let of = |options: &Conversion| options.validity(&batch);
    assert_eq!(of(&Conversion::default().columns(["s"])).unwrap().as_bytes().unwrap(), [1, 0]);
    let all = of(&Conversion::default()).unwrap();
    assert_eq!((all.shape(), all.as_bytes().unwrap()), (&[2, 3][..], &[1_u8, 0, 0, 0, 0, 0][..]));
    let bytes = arrow_array::new_null_array(&DataType::FixedSizeBinary(2), 2);
    let batch = DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("n", bytes)]).unwrap()).unwrap();
    let error = Conversion::default().validity(&batch).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Unsupported, Some("n")));
    let null = arrow_array::new_null_array(&DataType::Null, 2);
    let array = arrow_array::StructArray::from(vec![(field("x", DataType::Null), null)]);
    let nulls = shared(&array, &field("", arrow_array::Array::data_type(&array).clone()));
    let valid = Conversion::default().validity(&nulls).unwrap();
    assert_eq!(valid.as_bytes().unwrap(), [0, 0]);
}
