//! Everything that a user can do with an array, each outcome being the right data or a clear error.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use arrow_dlpack::arrow::{
    DeviceArrayStream, export_device_array, export_device_stream, export_schema, export_stream, read_field,
};
use arrow_dlpack::ffi::arrow_device::ArrowDeviceArray;
use arrow_dlpack::ffi::dlpack::DLDeviceType;
use arrow_dlpack::{
    Chunks, Conversion, CopyMode, DType, DecimalMode, Device, DeviceArray, DictionaryMode, Error, NullPolicy, Pad,
    Result, Scalar, Selection, Tensor, request_field, to_arrow,
};
use arrow_schema::{DataType, Field, FieldRef};

use super::build::Structs;
use super::node::{Node, Untellable};
use super::one_in;
use super::rows::Rows;
use super::tensors;
use super::wrong::Wrong;
use crate::support::reference::read;

/// What came of a case.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Why the schema or the array was refused.
    pub(crate) refused: Option<Error>,
    /// Every other error.
    pub(crate) errors: Vec<Error>,
    /// Whether the array was read as arrow-rs' array.
    pub(crate) is_read: bool,
    /// Whether a tensor or ragged rows were made of it.
    pub(crate) is_converted: bool,
}

/// Where the array says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) device_type: i32,
    pub(crate) device_id: i64,
    pub(crate) sync_event: usize,
    pub(crate) reserved: i64,
}

impl Place {
    pub(crate) const CPU: Self = Self { device_type: 1, device_id: -1, sync_event: 0, reserved: 0 };

    /// Devices that are wrong, unknown, or out of reach.
    pub(crate) fn odd() -> Vec<Self> {
        let types = [0, 2, 3, 13, 99, -1, i32::MIN, i32::MAX].map(|device_type| Self { device_type, ..Self::CPU });
        let ids = [0, 7, i64::MIN, i64::MAX, 1 << 31].map(|device_id| Self { device_id, ..Self::CPU });
        let far = [0, -1, i64::MAX, 1 << 31].map(|device_id| Self { device_type: 2, device_id, ..Self::CPU });
        let events = [1, 2].map(|device_type| Self { device_type, sync_event: 0x1000, reserved: -1, ..Self::CPU });
        [&types[..], &ids, &far, &events].concat()
    }
}

/// Imports a node with these faults and does everything with it, under Miri a part of everything. Panics where something is
/// neither right nor a clear error.
pub(crate) fn exercise(base: &Node, wrongs: &[Wrong], place: Place) -> Result<Outcome, Untellable> {
    exercise_as(base, wrongs, place, &Use::in_turn())
}

/// As [`exercise`], with these uses alone.
pub(crate) fn exercise_as(base: &Node, wrongs: &[Wrong], place: Place, uses: &[Use]) -> Result<Outcome, Untellable> {
    let mut node = base.clone();
    for wrong in wrongs {
        wrong.apply(&mut node);
    }
    node.settle()?;
    // Nobody here can read the memory of a device.
    let mut structs = Structs::new(if place.device_type == 1 { node.clone() } else { node.clone().out_of_reach() })?;
    let mut outcome = Outcome::default();
    match import(&mut structs, place) {
        Ok(array) => used(&array, &node, uses, &mut outcome),
        Err(error) => outcome.refused = Some(error),
    }
    structs.release();
    structs.check().unwrap_or_else(|fault| panic!("{fault}; {:?}", outcome.refused));
    outcome.refused.iter().chain(&outcome.errors).for_each(assert_clear);
    Ok(outcome)
}

/// Reads the schema of a node with these faults, and exports and reads again what it became.
pub(crate) fn read_type(base: &Node, wrongs: &[Wrong]) -> Result<Outcome, Untellable> {
    let mut node = base.clone();
    wrongs.iter().for_each(|wrong| wrong.apply(&mut node));
    let mut structs = Structs::of_schema(node)?;
    let mut outcome = Outcome::default();
    // SAFETY: a struct that is right, but for what the reader has to find.
    match unsafe { read_field(&structs.schema) } {
        Ok(field) => {
            // SAFETY: as before.
            let strict = unsafe { arrow_dlpack::arrow::read_schema(&structs.schema) }.expect("read before");
            assert_eq!(*field, strict);
            if let Some(exported) = Errors(&mut outcome.errors).keep(export_schema(&field)) {
                // SAFETY: our own export.
                let again = unsafe { read_field(&exported) }.expect("what we export we read");
                assert_eq!(again, field);
            }
            outcome.is_read = true;
        }
        Err(error) => outcome.refused = Some(error),
    }
    structs.release();
    structs.check().unwrap_or_else(|fault| panic!("{fault}; {:?}", outcome.refused));
    outcome.refused.iter().chain(&outcome.errors).for_each(assert_clear);
    Ok(outcome)
}

/// Asks for the array of a node as the type of another, both with faults.
pub(crate) fn converse(own: (&Node, &[Wrong]), requested: (&Node, &[Wrong])) -> Result<Outcome, Untellable> {
    let broken = |(node, wrongs): (&Node, &[Wrong])| {
        let mut node = node.clone();
        wrongs.iter().for_each(|wrong| wrong.apply(&mut node));
        node
    };
    let (mut own, mut requested) = (Structs::new(broken(own))?, Structs::of_schema(broken(requested))?);
    let mut outcome = Outcome::default();
    // SAFETY: a struct that is right, but for what the reader has to find.
    let field = unsafe { read_field(&requested.schema) };
    match import(&mut own, Place::CPU).and_then(|array| Ok((array, field?))) {
        // A few rows of such a type take all the memory that there is, and the request is for that.
        Ok((array, field)) if (array.len() as u64).saturating_mul(row_bytes(field.data_type())) > MOST_REQUESTED => {}
        Ok((array, field)) => {
            let mut errors = Errors(&mut outcome.errors);
            if let Some(converted) = errors.keep(request_field(&array, &field)) {
                assert_eq!((converted.field(), converted.len()), (&field, array.len()));
                errors.keep(converted.to_arrow());
                errors.keep(Conversion::default().to_tensor(&converted)).inspect(tensors::touch);
            }
        }
        Err(error) => outcome.refused = Some(error),
    }
    for structs in [&mut own, &mut requested] {
        structs.release();
        structs.check().unwrap_or_else(|fault| panic!("{fault}; {:?}", outcome.refused));
    }
    Ok(outcome)
}

/// The most bytes that are asked for.
const MOST_REQUESTED: u64 = 1 << 28;

/// Bytes that a row of this type may take, by its fixed sizes.
fn row_bytes(data_type: &DataType) -> u64 {
    match data_type {
        DataType::FixedSizeBinary(width) => u64::try_from(*width).unwrap_or(0),
        DataType::FixedSizeList(item, size) => {
            u64::try_from(*size).unwrap_or(0).saturating_mul(row_bytes(item.data_type()))
        }
        DataType::Struct(fields) => {
            fields.iter().map(|field| row_bytes(field.data_type())).fold(0, u64::saturating_add)
        }
        _ => 16,
    }
}

fn import(structs: &mut Structs, place: Place) -> Result<DeviceArray> {
    // SAFETY: a struct that is right, but for what import has to find.
    let field = unsafe { read_field(&structs.schema) }?;
    // SAFETY: a struct that is right, but for what import has to find.
    let strict = unsafe { arrow_dlpack::arrow::read_schema(&structs.schema) }.expect("read before");
    assert_eq!(*field, strict);
    if place == Place::CPU && structs.array.length % 2 == 0 {
        // SAFETY: a struct that is right, but for what import has to find; it is moved out of `structs`.
        return unsafe { DeviceArray::import(&raw mut structs.array, field) };
    }
    let Place { device_type, device_id, sync_event, reserved } = place;
    // SAFETY: the struct is moved, as the C data interface moves one.
    let array = unsafe { (&raw const structs.array).read() };
    let sync_event = std::ptr::without_provenance_mut(sync_event);
    let mut device = ArrowDeviceArray { array, device_id, device_type, sync_event, reserved: [reserved; 3] };
    structs.array.release = None;
    // SAFETY: a struct that is right, but for what import has to find; it was moved out of `structs`.
    unsafe { DeviceArray::import_device(&raw mut device, field) }
}

/// A message that a user can act on.
fn assert_clear(error: &Error) {
    let reason = error.reason();
    assert!(reason.len() > 5 && !reason.ends_with("no message"), "{error:?}");
}

/// What a user does with an array.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    /// As arrow-rs' array.
    Read,
    /// As a tensor, and back, with the options of this number.
    Convert(usize),
    Validity,
    Twice,
    /// As ragged rows, with the options of this number.
    Ragged(usize),
    Padded,
    Each,
    Explain,
    Matrices,
    /// Each column alone.
    Columns,
    Again,
    /// As another type, of this number.
    Request(usize),
    Stream,
}

impl Use {
    /// Every use once.
    pub(crate) fn all() -> &'static [Self] {
        static ALL: LazyLock<Vec<Use>> = LazyLock::new(|| {
            let sets = option_sets().len();
            let requests = requests(&Arc::new(Field::new("", DataType::Null, true))).len();
            let mut all = vec![Use::Read];
            all.extend((0..sets).map(Use::Convert));
            all.extend([Use::Validity, Use::Twice]);
            all.extend((0..sets).map(Use::Ragged));
            all.extend([Use::Padded, Use::Each, Use::Explain, Use::Matrices, Use::Columns, Use::Again]);
            all.extend((0..requests).map(Use::Request));
            all.push(Use::Stream);
            all
        });
        &ALL
    }

    /// Every use once; under Miri one in ten, and others in the next call.
    fn in_turn() -> Vec<Self> {
        static TURN: AtomicUsize = AtomicUsize::new(0);
        let step = one_in(10);
        Self::all().iter().copied().skip(TURN.fetch_add(1, Ordering::Relaxed) % step).step_by(step).collect()
    }
}

/// Uses an imported array of a node.
fn used(array: &DeviceArray, node: &Node, uses: &[Use], outcome: &mut Outcome) {
    assert_eq!(array.len() as i64, node.length);
    let rows = LazyLock::new(|| Rows::of(node));
    let (mut is_read, mut is_converted) = (false, false);
    let mut errors = Errors(&mut outcome.errors);
    for one in uses {
        match *one {
            Use::Read => is_read |= read_rows(array, node, &rows, &mut errors),
            Use::Convert(set) => is_converted |= convert(array, node, &option_sets()[set], &mut errors),
            Use::Validity => drop(errors.keep(Conversion::default().validity(array)).inspect(tensors::touch)),
            Use::Twice => {
                let twice =
                    Conversion::default().to_tensor(Chunks::new(array.field(), &[array.clone(), array.clone()]));
                errors.keep(twice).inspect(tensors::touch);
            }
            Use::Ragged(set) => is_converted |= ragged(array, node, &option_sets()[set], &mut errors),
            Use::Padded => {
                for length in [Some(4), None] {
                    let pad = Pad::new(Scalar::Int(0)).length(length);
                    let padded = Conversion::default().nulls(NullPolicy::Keep).padded(array, pad);
                    errors.keep(padded).inspect(|(matrix, valid)| [matrix, valid].into_iter().for_each(tensors::touch));
                }
            }
            Use::Each => {
                let columns = errors.keep(Conversion::default().select(Selection::Each(None)).to_tensors(array));
                columns.into_iter().flatten().for_each(|(_, tensor)| tensors::touch(&tensor));
            }
            Use::Explain => explain(array, &mut errors),
            Use::Matrices => super::matrices::matrices(array, &mut errors),
            Use::Columns => {
                for index in 0..array.columns().len() {
                    let Some(column) = errors.keep(array.column(index)) else { continue };
                    errors.keep(column.to_arrow());
                    let kept = Conversion::default().nulls(NullPolicy::Keep).to_tensor(&column);
                    errors.keep(kept).inspect(tensors::touch);
                    errors.keep(Conversion::default().validity(&column)).inspect(tensors::touch);
                    again(&column, None, &mut errors);
                }
            }
            Use::Again => again(array, Some(&rows), &mut errors),
            Use::Request(number) => {
                let requested = &requests(array.field())[number];
                if let Some(converted) = errors.keep(request_field(array, requested)) {
                    assert_eq!((converted.field(), converted.len()), (requested, array.len()));
                    errors.keep(converted.to_arrow());
                }
            }
            Use::Stream => stream(array, Some(&rows), &mut errors),
        }
    }
    (outcome.is_read, outcome.is_converted) = (is_read, is_converted);
}

/// Whether the array can be read as arrow-rs' array, which has the node's rows then.
fn read_rows(array: &DeviceArray, node: &Node, rows: &Rows, errors: &mut Errors<'_>) -> bool {
    let Some(read) = errors.keep(array.to_arrow()) else { return false };
    assert_eq!(read.len() as i64, node.length);
    if node.length < 1 << 12 {
        let read = Node::of(array.field(), read.as_ref()).rows();
        assert!(rows.allow(&read), "to_arrow gives {read:?}, not {rows:?}");
    }
    true
}

/// Ragged rows of the array, and back; whether there are some.
fn ragged(array: &DeviceArray, node: &Node, options: &Conversion, errors: &mut Errors<'_>) -> bool {
    let Some(ragged) = errors.keep(options.ragged(array)) else { return false };
    assert_eq!(ragged.len() as i64, node.length);
    if let Some(back) = errors.keep(ragged.to_arrow(CopyMode::IfNeeded)) {
        errors.keep(back.to_arrow());
    }
    true
}

fn explain(array: &DeviceArray, errors: &mut Errors<'_>) {
    for report in [
        Conversion::default().select(Selection::Each(None)).explain(array),
        Conversion::default().select(Selection::Each(None)).explain_type(array.field(), Device::CPU),
    ] {
        if let Some(report) = errors.keep(report) {
            assert!(report.to_string().contains("dtype"));
            report.rows.into_iter().filter_map(|row| row.error).for_each(|error| errors.0.push(error));
        }
    }
}

/// Keeps the errors.
pub(crate) struct Errors<'a>(pub(crate) &'a mut Vec<Error>);

impl Errors<'_> {
    pub(crate) fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.0.push(error)).ok()
    }
}

pub(crate) fn option_sets() -> Vec<Conversion> {
    let fill = NullPolicy::Fill(Scalar::Int(0));
    vec![
        Conversion::default(),
        Conversion::default().nulls(NullPolicy::Keep).copy(CopyMode::Never),
        Conversion::default().nulls(NullPolicy::Keep).copy(CopyMode::Always),
        Conversion::default().nulls(fill),
        Conversion::default().nulls(NullPolicy::Nan).dtype(DType::Float64),
        Conversion::default().nulls(fill).dtype(DType::Int8),
        Conversion::default().writable(true).nulls(NullPolicy::Keep),
        Conversion::default().dictionary(DictionaryMode::Values).nulls(NullPolicy::Keep),
        Conversion::default().decimal(DecimalMode::Unscaled).nulls(NullPolicy::Keep),
        Conversion::default().decimal(DecimalMode::Unscaled).dtype(DType::Int64).nulls(fill),
        Conversion::default().dtype(DType::Complex64).nulls(fill),
    ]
}

/// A tensor of the array, its elements compared with the node's, and back; whether there is one.
fn convert(array: &DeviceArray, node: &Node, options: &Conversion, errors: &mut Errors<'_>) -> bool {
    let Some(tensor) = errors.keep(options.to_tensor(array)) else { return false };
    assert_eq!(tensor.shape().first().copied(), Some(node.length));
    if !tensor.is_empty() && tensor.len() < 1 << 12 {
        compare(&tensor, node, options);
    }
    tensors::round_trips(&tensor, errors);
    if let Some(back) = errors.keep(to_arrow(&tensor, None, CopyMode::IfNeeded)) {
        assert_eq!(back.len() as i64, node.length);
        errors.keep(back.to_arrow());
    }
    if node.length < 1 << 12
        && let Some(valid) = errors.keep(Conversion::default().validity(array))
    {
        errors.keep(to_arrow(&tensor, Some(&valid), CopyMode::IfNeeded));
    }
    true
}

/// Elements that are valid are the node's, where no cast was asked for.
fn compare(tensor: &Tensor, node: &Node, options: &Conversion) {
    let Some(elements) = node.elements() else { return };
    // A view of what nobody reads here.
    if !tensor.device().is_cpu() {
        assert!(!tensor.is_copied());
        return;
    }
    if node.has_codes() && options.dictionary.of("") != Some(DictionaryMode::Values) {
        return tensors::touch(tensor);
    }
    // Stored order: strides of a permutation lead elsewhere.
    if options.dtype.of("").is_some_and(|dtype| Some(dtype) != natural(node)) || !tensor.is_row_major() {
        return tensors::touch(tensor);
    }
    let found = read(tensor);
    assert_eq!(found.len(), elements.len());
    for (found, expected) in found.iter().zip(&elements) {
        if let Some(expected) = expected {
            assert_eq!(found, expected, "to_tensor gives other data with {options:?}");
        }
    }
}

fn natural(node: &Node) -> Option<DType> {
    match node.format.as_deref()? {
        b"c" => Some(DType::Int8),
        b"g" => Some(DType::Float64),
        _ => None,
    }
}

/// Exports and imports again, twice.
fn again(array: &DeviceArray, rows: Option<&Rows>, errors: &mut Errors<'_>) {
    let Some(schema) = errors.keep(export_schema(array.field())) else { return };
    // SAFETY: our own export.
    let field = unsafe { read_field(&schema) };
    drop(schema);
    let field = field.expect("what we export we read");
    assert_eq!(field.data_type(), array.field().data_type());
    let Some(mut exported) = errors.keep(export_device_array(array)) else { return };
    // SAFETY: our own export.
    let imported = unsafe { DeviceArray::import_device(exported.as_mut_ptr(), field) };
    let imported = imported.expect("what we export we import");
    assert_eq!((imported.len(), imported.device()), (array.len(), array.device()));
    if let Some(read) = errors.keep(imported.to_arrow()).filter(|read| read.len() < 1 << 12) {
        assert!(rows.is_none_or(|rows| rows.allow(&Node::of(imported.field(), read.as_ref()).rows())));
    }
}

/// Types to ask for.
fn requests(own: &FieldRef) -> Vec<FieldRef> {
    let other = |data_type| Arc::new(Field::new(own.name(), data_type, true));
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let mut requests = vec![
        own.clone(),
        Arc::new(own.as_ref().clone().with_name("renamed").with_nullable(true)),
        Arc::new(own.as_ref().clone().with_nullable(false)),
        other(own.data_type().clone()),
    ];
    let types = [
        DataType::Boolean,
        DataType::Int8,
        DataType::Float64,
        DataType::LargeUtf8,
        DataType::Utf8View,
        DataType::Date64,
    ];
    requests.extend(types.into_iter().map(other));
    requests.extend(
        [DataType::List(item.clone()), DataType::LargeList(item.clone()), DataType::FixedSizeList(item, 2)].map(other),
    );
    requests.extend(
        [(DataType::Int8, DataType::Utf8), (DataType::Int32, DataType::Int64)]
            .map(|(keys, values)| other(DataType::Dictionary(Box::new(keys), Box::new(values)))),
    );
    requests
}

/// As a stream, out and in.
fn stream(array: &DeviceArray, rows: Option<&Rows>, errors: &mut Errors<'_>) {
    let source = |arrays: Vec<DeviceArray>| {
        let device_type = array.device().device_type();
        DeviceArrayStream::new(array.field().clone(), device_type, arrays.into_iter().map(Ok))
    };
    let mut exported = export_device_stream(source(vec![array.clone(), array.clone()]));
    // SAFETY: our own export.
    let imported = unsafe { DeviceArrayStream::import_device(exported.as_mut_ptr()) };
    let Some(imported) = errors.keep(imported) else { return };
    for item in imported {
        let Some(item) = errors.keep(item) else { continue };
        if let Some(read) = errors.keep(item.to_arrow()).filter(|read| read.len() < 1 << 12) {
            assert!(rows.is_none_or(|rows| rows.allow(&Node::of(item.field(), read.as_ref()).rows())));
        }
    }
    let host = errors.keep(export_stream(source(vec![array.clone()])));
    assert_eq!(host.is_some(), array.device().device_type() == DLDeviceType::CPU);
    if let Some(mut host) = host {
        // SAFETY: our own export.
        let imported = unsafe { DeviceArrayStream::import(host.as_mut_ptr()) };
        assert_eq!(imported.expect("exported before").count(), 1);
    }
}
