//! C streams of nodes, everything that can be wrong with one, and everything that can be done with it.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null;
use std::rc::Rc;

use arrow_dlpack::arrow::DeviceArrayStream;
use arrow_dlpack::ffi::arrow_device::{
    ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema,
};
use arrow_dlpack::{Chunks, Conversion, NullPolicy, Result, Selection};

use super::build::Structs;
use super::exercise::{Errors, Outcome};
use super::node::{Node, Untellable};
use super::rows::Rows;
use super::tensors::touch;
use super::wrong::Wrong;

/// One thing to make wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Flaw {
    NoGetSchema,
    NoGetNext,
    NoLastError,
    Released,
    /// `get_schema` fails with this code.
    SchemaFails(c_int),
    /// `get_schema` succeeds and gives nothing.
    NoSchema,
    /// The batch with this number fails with this code.
    BatchFails(usize, c_int),
    /// The message of the last error is NULL, empty or not UTF-8.
    Message(Option<&'static [u8]>),
    /// The stream has so many batches.
    Batches(usize),
    Schema(Wrong),
    Batch(usize, Wrong),
    DeviceType(i32),
}

/// Everything that can be wrong with a stream of three batches of a node, but for what is wrong with its structs.
pub(crate) fn flaws() -> Vec<Flaw> {
    let mut all = vec![Flaw::NoGetSchema, Flaw::NoGetNext, Flaw::NoLastError, Flaw::Released, Flaw::NoSchema];
    for code in [1, 22, -1, c_int::MIN, c_int::MAX] {
        all.push(Flaw::SchemaFails(code));
        all.extend((0..4).map(|batch| Flaw::BatchFails(batch, code)));
    }
    all.extend([None, Some(&b"\0"[..]), Some(b"\xff\xfe\0"), Some(b"no such\nfile\0")].map(Flaw::Message));
    all.extend((0..3).map(Flaw::Batches));
    all.extend([0, 2, 13, 99, -1, i32::MIN].map(Flaw::DeviceType));
    all
}

/// What a stream owns.
struct Source {
    schema: Structs,
    batches: Rc<[Node]>,
    /// Those of the batches that were asked for.
    made: Vec<Structs>,
    flaws: Vec<Flaw>,
    next: usize,
    ended: bool,
    released: usize,
}

/// What both kinds of C stream have in common.
trait Stream {
    type Array;
    fn private_data(&self) -> *mut c_void;
    fn filled(array: ArrowArray) -> Self::Array;
}

impl Stream for ArrowArrayStream {
    type Array = ArrowArray;
    fn private_data(&self) -> *mut c_void {
        self.private_data
    }
    fn filled(array: ArrowArray) -> ArrowArray {
        array
    }
}

impl Stream for ArrowDeviceArrayStream {
    type Array = ArrowDeviceArray;
    fn private_data(&self) -> *mut c_void {
        self.private_data
    }
    fn filled(array: ArrowArray) -> ArrowDeviceArray {
        ArrowDeviceArray { array, device_id: -1, device_type: 1, sync_event: std::ptr::null_mut(), reserved: [7; 3] }
    }
}

/// # Safety
/// A live stream of [`exercise`].
unsafe fn source<'a, S: Stream>(stream: *mut S) -> &'a mut Source {
    // SAFETY: a live stream of `exercise`.
    let source = unsafe { &*stream }.private_data().cast::<Source>();
    // SAFETY: the box of `exercise`; calls on a stream do not overlap.
    let source = unsafe { &mut *source };
    assert!(source.released == 0, "a call after the release");
    source
}

unsafe extern "C" fn get_schema<S: Stream>(stream: *mut S, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the C stream interface.
    let source = unsafe { source(stream) };
    for flaw in &source.flaws {
        match flaw {
            Flaw::SchemaFails(code) => return *code,
            Flaw::NoSchema => return 0,
            _ => {}
        }
    }
    // SAFETY: a move; the source counts as released.
    let schema = unsafe { (&raw const source.schema.schema).read() };
    // SAFETY: the C stream interface: a struct to fill.
    unsafe { out.write(schema) };
    source.schema.schema.release = None;
    0
}

unsafe extern "C" fn get_next<S: Stream>(stream: *mut S, out: *mut S::Array) -> c_int {
    // SAFETY: the C stream interface.
    let source = unsafe { source(stream) };
    assert!(!source.ended, "a call after the end or an error");
    let index = source.next;
    source.next += 1;
    for flaw in &source.flaws {
        if let Flaw::BatchFails(batch, code) = flaw
            && *batch == index
        {
            source.ended = true;
            return *code;
        }
    }
    let array = match source.batches.get(index) {
        Some(batch) => {
            let mut structs = Structs::of_array(batch);
            let array = std::mem::replace(&mut structs.array, ArrowArray::empty());
            source.made.push(structs);
            array
        }
        None => ArrowArray::empty(),
    };
    source.ended = array.release.is_none();
    // SAFETY: a struct to fill.
    unsafe { out.write(S::filled(array)) };
    0
}

unsafe extern "C" fn get_last_error<S: Stream>(stream: *mut S) -> *const c_char {
    // SAFETY: the C stream interface.
    let source = unsafe { source(stream) };
    let message = source.flaws.iter().find_map(|flaw| if let Flaw::Message(text) = flaw { Some(*text) } else { None });
    message.unwrap_or(Some(b"it failed\0")).map_or(null(), |text| text.as_ptr().cast())
}

unsafe extern "C" fn release<S: Stream>(stream: *mut S) {
    // SAFETY: the C stream interface.
    let source = unsafe { source(stream) };
    source.released += 1;
}

/// Imports a stream of three batches of a node with these flaws, in both of its forms, and does everything with it.
pub(crate) fn exercise(node: &Node, flaws: &[Flaw]) -> Result<Outcome, Untellable> {
    let mut outcome = Outcome::default();
    for on_device in [false, true] {
        exercise_as(node, flaws, on_device, Use::ALL, &mut outcome)?;
    }
    Ok(outcome)
}

/// As [`exercise`], in one of the forms, with these uses alone.
pub(crate) fn exercise_as(
    node: &Node,
    flaws: &[Flaw],
    on_device: bool,
    uses: &[Use],
    outcome: &mut Outcome,
) -> Result<(), Untellable> {
    let mut schema = node.clone();
    let mut batches = vec![node.clone(), node.clone().sliced(1.min(node.length)), node.clone()];
    for flaw in flaws {
        match flaw {
            Flaw::Schema(wrong) => wrong.apply(&mut schema),
            Flaw::Batch(index, wrong) => batches.get_mut(*index).into_iter().for_each(|batch| wrong.apply(batch)),
            Flaw::Batches(count) => batches.truncate(*count),
            _ => {}
        }
    }
    // The stream's schema says what a batch claims.
    batches.iter_mut().for_each(|batch| batch.take_types(&schema));
    batches.iter_mut().try_for_each(Node::settle)?;
    let batches: Rc<[Node]> = batches.into();
    let has = |flaw: Flaw| flaws.contains(&flaw);
    let source = Box::into_raw(Box::new(Source {
        schema: Structs::of_schema(schema)?,
        batches: Rc::clone(&batches),
        made: Vec::new(),
        flaws: flaws.to_vec(),
        next: 0,
        ended: false,
        released: 0,
    }));
    let alive = !has(Flaw::Released);
    let imported = if on_device {
        let device_type = flaws
            .iter()
            .find_map(|flaw| if let Flaw::DeviceType(device_type) = flaw { Some(*device_type) } else { None });
        let mut stream = ArrowDeviceArrayStream {
            device_type: device_type.unwrap_or(1),
            get_schema: (!has(Flaw::NoGetSchema)).then_some(get_schema::<ArrowDeviceArrayStream>),
            get_next: (!has(Flaw::NoGetNext)).then_some(get_next::<ArrowDeviceArrayStream>),
            get_last_error: (!has(Flaw::NoLastError)).then_some(get_last_error::<ArrowDeviceArrayStream>),
            release: alive.then_some(release::<ArrowDeviceArrayStream>),
            private_data: source.cast(),
        };
        // SAFETY: what is wrong is what import has to find.
        unsafe { DeviceArrayStream::import_device(&raw mut stream) }
    } else {
        let mut stream = ArrowArrayStream {
            get_schema: (!has(Flaw::NoGetSchema)).then_some(get_schema::<ArrowArrayStream>),
            get_next: (!has(Flaw::NoGetNext)).then_some(get_next::<ArrowArrayStream>),
            get_last_error: (!has(Flaw::NoLastError)).then_some(get_last_error::<ArrowArrayStream>),
            release: alive.then_some(release::<ArrowArrayStream>),
            private_data: source.cast(),
        };
        // SAFETY: what is wrong is what import has to find.
        unsafe { DeviceArrayStream::import(&raw mut stream) }
    };
    let mut errors = Errors(&mut outcome.errors);
    match imported {
        Ok(stream) => used(stream, &batches, uses, &mut errors),
        Err(error) => outcome.refused = Some(error),
    }
    // SAFETY: the box from above; the stream is gone.
    let mut source = unsafe { Box::from_raw(source) };
    assert_eq!(source.released, usize::from(alive), "releases of the stream");
    for structs in std::iter::once(&mut source.schema).chain(&mut source.made) {
        structs.release();
        structs.check().unwrap_or_else(|fault| panic!("{fault}"));
    }
    Ok(())
}

/// What a user does with the batches of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    /// Each as arrow-rs' array.
    Read,
    /// All as one tensor.
    Convert,
    Explain,
}

impl Use {
    /// Every use once.
    pub(crate) const ALL: &[Self] = &[Self::Read, Self::Convert, Self::Explain];
}

/// Takes the batches from a stream and uses them.
fn used(mut stream: DeviceArrayStream, batches: &[Node], uses: &[Use], errors: &mut Errors<'_>) {
    let field = stream.field().clone();
    let taken: Vec<_> =
        stream.by_ref().enumerate().filter_map(|(index, item)| Some((index, errors.keep(item)?))).collect();
    assert!(stream.next().is_none());
    let chunks: Vec<_> = taken.iter().map(|(_, array)| array.clone()).collect();
    for one in uses {
        match one {
            Use::Read => {
                for (index, array) in &taken {
                    let Some(read) = errors.keep(array.to_arrow()).filter(|read| read.len() < 1 << 12) else {
                        continue;
                    };
                    let read = Node::of(array.field(), read.as_ref()).rows();
                    let batch = batches.get(*index);
                    assert!(batch.is_some_and(|batch| Rows::of(batch).allow(&read)), "a batch has other data");
                }
            }
            Use::Convert => {
                let options = Conversion::default().nulls(NullPolicy::Keep);
                errors.keep(options.to_tensor(Chunks::new(&field, &chunks))).inspect(touch);
            }
            Use::Explain => {
                let options = Conversion::default().select(Selection::Each(None));
                errors.keep(options.explain(Chunks::new(&field, &chunks)));
            }
        }
    }
}
