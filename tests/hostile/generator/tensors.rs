//! Managed tensors: valid ones, everything that can be wrong with them, and everything that can be done with one.

use std::ptr::{NonNull, null_mut, without_provenance_mut};

use arrow_dlpack::dlpack::{export_legacy, export_versioned, import_legacy, import_versioned};
use arrow_dlpack::ffi::dlpack::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion,
    DLTensor,
};
use arrow_dlpack::{Conversion, CopyMode, Tensor, to_arrow};

use super::build::Block;
use super::exercise::{Errors, Outcome};
use super::node::{Pointer, Untellable, aimed};
use crate::support::Count;
use crate::support::reference::{positions, read};

/// More elements than this are not read one by one.
const MANY: usize = 1 << 12;
/// Larger memory is not made.
const LARGEST: i128 = 1 << 16;

/// A managed tensor as its producer describes it.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
    pub(crate) shape: Vec<i64>,
    /// `None` is NULL.
    pub(crate) strides: Option<Vec<i64>>,
    pub(crate) ndim: Option<i32>,
    pub(crate) byte_offset: u64,
    pub(crate) device_type: i32,
    pub(crate) device_id: i32,
    pub(crate) version: (u32, u32),
    pub(crate) flags: u64,
    pub(crate) data: Pointer,
    pub(crate) shape_pointer: Pointer,
    pub(crate) strides_pointer: Pointer,
    pub(crate) without_deleter: bool,
}

/// A field of a description to make wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Flaw {
    Code(u8),
    Bits(u8),
    Lanes(u16),
    Extent(usize, i64),
    Stride(usize, i64),
    NoStrides,
    Ndim(i32),
    ByteOffset(u64),
    DeviceType(i32),
    DeviceId(i32),
    Version(u32, u32),
    Flags(u64),
    Data(Pointer),
    Shape(Pointer),
    Strides(Pointer),
    NoDeleter,
}

impl Flaw {
    /// The same flaw with another number in it, where there is one.
    pub(crate) fn with_number(mut self, number: i64) -> Self {
        match &mut self {
            Self::Code(own) | Self::Bits(own) => *own = number as u8,
            Self::Lanes(own) => *own = number as u16,
            Self::Extent(_, own) | Self::Stride(_, own) => *own = number,
            Self::Ndim(own) | Self::DeviceType(own) | Self::DeviceId(own) => *own = number as i32,
            Self::ByteOffset(own) | Self::Flags(own) => *own = number as u64,
            Self::Version(major, minor) => (*major, *minor) = (number as u32, (number >> 32) as u32),
            _ => {}
        }
        self
    }
}

impl Description {
    pub(crate) fn new((code, bits): (u8, u8), shape: &[i64], strides: Option<&[i64]>) -> Self {
        Self {
            code,
            bits,
            lanes: 1,
            shape: shape.to_vec(),
            strides: strides.map(<[i64]>::to_vec),
            ndim: None,
            byte_offset: 0,
            device_type: 1,
            device_id: 0,
            version: (1, 3),
            flags: 0,
            data: Pointer::Right,
            shape_pointer: Pointer::Right,
            strides_pointer: Pointer::Right,
            without_deleter: false,
        }
    }

    /// Valid tensors of every dtype, and of every kind of layout.
    pub(crate) fn bases() -> Vec<Self> {
        let mut all = Vec::new();
        let mut dtypes =
            vec![(0, 8), (0, 16), (0, 32), (0, 64), (1, 8), (1, 16), (1, 32), (1, 64), (2, 16), (2, 32), (2, 64)];
        dtypes.extend([(4, 16), (5, 64), (5, 128), (6, 8)]);
        dtypes.extend((7..15).map(|code| (code, 8)));
        all.extend(dtypes.into_iter().map(|dtype| Self::new(dtype, &[4], Some(&[1]))));
        let layouts: [(&[i64], Option<&[i64]>); 9] = [
            (&[], Some(&[])),
            (&[], None),
            (&[2, 3], None),
            (&[2, 3], Some(&[3, 1])),
            (&[2, 3, 2], Some(&[1, 4, 2])),
            (&[3, 4], Some(&[-4, -1])),
            (&[3, 4], Some(&[0, 2])),
            (&[0, 3], Some(&[7, -9])),
            (&[1, 2], Some(&[i64::MAX, 1])),
        ];
        for (shape, strides) in layouts {
            all.extend([(0, 32), (6, 8), (2, 16)].map(|dtype| Self::new(dtype, shape, strides)));
        }
        all
    }

    /// Everything that can be wrong with it.
    pub(crate) fn flaws(&self) -> Vec<Flaw> {
        let mut all: Vec<Flaw> = (0..20).chain([127, 128, 255]).map(Flaw::Code).collect();
        all.extend([0, 1, 4, 7, 8, 9, 16, 31, 32, 63, 64, 80, 128, 255].map(Flaw::Bits));
        all.extend([0, 2, 4, u16::MAX].map(Flaw::Lanes));
        let numbers = [-1, i64::MIN, i64::MAX, 0, 1, 2, 5, 1 << 32, 1 << 61, i64::MAX / 2, i64::MIN / 2];
        for axis in 0..self.shape.len() {
            all.extend(numbers.map(|number| Flaw::Extent(axis, number)));
            all.extend(numbers.map(|number| Flaw::Stride(axis, number)));
        }
        all.extend([-1, i32::MIN, i32::MAX, 65, 0, 1].map(Flaw::Ndim));
        all.extend([1, 2, 4, 64, 1 << 31, 1 << 62, 1 << 63, u64::MAX, u64::MAX - 7].map(Flaw::ByteOffset));
        all.extend([0, 2, 3, 13, 99, -1, i32::MIN, i32::MAX].map(Flaw::DeviceType));
        all.extend([1, -1, i32::MIN, i32::MAX].map(Flaw::DeviceId));
        all.extend(
            [(0, 0), (0, 8), (1, 0), (1, u32::MAX), (2, 0), (u32::MAX, 0)]
                .map(|(major, minor)| Flaw::Version(major, minor)),
        );
        all.extend([1, 2, 3, 4, 7, 1 << 63, u64::MAX].map(Flaw::Flags));
        let pointers = [Pointer::Null, Pointer::Misaligned, Pointer::Wild];
        all.extend(pointers.map(Flaw::Data));
        all.extend([Pointer::Null, Pointer::Misaligned].map(Flaw::Shape));
        all.extend([Pointer::Null, Pointer::Misaligned].map(Flaw::Strides));
        all.extend([Flaw::NoStrides, Flaw::NoDeleter]);
        all
    }

    pub(crate) fn apply(&mut self, flaw: &Flaw) {
        match *flaw {
            Flaw::Code(code) => self.code = code,
            Flaw::Bits(bits) => self.bits = bits,
            Flaw::Lanes(lanes) => self.lanes = lanes,
            Flaw::Extent(axis, extent) => {
                if let Some(own) = self.shape.get_mut(axis) {
                    *own = extent;
                }
            }
            Flaw::Stride(axis, stride) => {
                if let Some(own) = self.strides.as_mut().and_then(|strides| strides.get_mut(axis)) {
                    *own = stride;
                }
            }
            Flaw::NoStrides => self.strides = None,
            Flaw::Ndim(ndim) => self.ndim = Some(ndim),
            Flaw::ByteOffset(offset) => self.byte_offset = offset,
            Flaw::DeviceType(device_type) => self.device_type = device_type,
            Flaw::DeviceId(id) => self.device_id = id,
            Flaw::Version(major, minor) => self.version = (major, minor),
            Flaw::Flags(flags) => self.flags = flags,
            Flaw::Data(pointer) => self.data = pointer,
            Flaw::Shape(pointer) => self.shape_pointer = pointer,
            Flaw::Strides(Pointer::Null) => self.strides = None,
            Flaw::Strides(pointer) => self.strides_pointer = pointer,
            Flaw::NoDeleter => self.without_deleter = true,
        }
    }

    /// The dimensions that the struct claims, padded as the arrays behind it are.
    fn claimed(&self) -> Option<(Vec<i64>, Option<Vec<i64>>)> {
        let ndim =
            self.ndim.map_or(Some(self.shape.len()), |ndim| usize::try_from(ndim).ok()).filter(|ndim| *ndim <= 64)?;
        let padded = |dims: &[i64]| dims.iter().copied().chain(std::iter::repeat(1)).take(ndim).collect::<Vec<_>>();
        Some((padded(&self.shape), self.strides.as_deref().map(padded)))
    }

    /// Bytes before and after the first element that the elements take; `None` where no memory can have them, so that
    /// nobody may read.
    fn reach(&self) -> Result<Option<(i128, i128)>, Untellable> {
        let Some((shape, strides)) = self.claimed() else { return Ok(None) };
        if shape.iter().any(|extent| *extent < 0) {
            return Ok(None);
        }
        let itemsize = i128::from((u32::from(self.bits) * u32::from(self.lanes)).div_ceil(8));
        if shape.contains(&0) {
            return Ok(Some((0, 0)));
        }
        let mut product = 1_i128;
        let mut dense = vec![0; shape.len()];
        for (axis, extent) in shape.iter().enumerate().rev() {
            dense[axis] = product;
            product = product.saturating_mul(i128::from(*extent));
        }
        let strides: Vec<i128> = strides.map_or(dense, |strides| strides.into_iter().map(i128::from).collect());
        let (mut low, mut high) = (0_i128, itemsize);
        for (extent, stride) in shape.iter().zip(strides) {
            let reach = stride.saturating_mul(i128::from(*extent) - 1).saturating_mul(itemsize);
            if reach < 0 { low = low.saturating_add(reach) } else { high = high.saturating_add(reach) }
        }
        // One block of memory reaches from the lowest of the data and the elements to the end of the highest element.
        let offset = i128::from(self.byte_offset);
        let span = offset.saturating_add(high).saturating_sub(offset.saturating_add(low).min(0));
        // A broadcast that memory could hold when copied would take the machine's.
        if span >= 1 << 56 || product > i128::from(i64::MAX) {
            Ok(None)
        } else if span > LARGEST || (MANY as i128..1 << 56).contains(&product) {
            Err(Untellable)
        } else {
            Ok(Some((low, high)))
        }
    }
}

/// A managed tensor that counts how often it is deleted. It frees its memory then, and itself when it is dropped.
struct Made {
    versioned: DLManagedTensorVersioned,
    legacy: DLManagedTensor,
    deleted: Count,
    held: std::cell::Cell<Option<Block>>,
    _dims: (Vec<i64>, Vec<i64>),
}

unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: a live tensor of `exercise`.
    delete(unsafe { (*managed).manager_ctx });
}

unsafe extern "C" fn delete_legacy(managed: *mut DLManagedTensor) {
    // SAFETY: a live tensor of `exercise`.
    delete(unsafe { (*managed).manager_ctx });
}

fn delete(context: *mut std::ffi::c_void) {
    // SAFETY: the box of `exercise`, which outlives the tensor.
    let made = unsafe { &*context.cast::<Made>() };
    made.deleted.add();
    drop(made.held.take());
}

/// Imports a tensor with these flaws, in both of its forms, and does everything with it.
pub(crate) fn exercise(base: &Description, flaws: &[Flaw]) -> Result<Outcome, Untellable> {
    let mut description = base.clone();
    flaws.iter().for_each(|flaw| description.apply(flaw));
    let mut outcome = Outcome::default();
    for versioned in [true, false] {
        exercise_as(&description, versioned, Use::ALL, &mut outcome)?;
    }
    Ok(outcome)
}

/// As [`exercise`], of a description, in one of the forms, with these uses alone.
pub(crate) fn exercise_as(
    description: &Description,
    versioned: bool,
    uses: &[Use],
    outcome: &mut Outcome,
) -> Result<(), Untellable> {
    let reach = description.reach()?;
    let (low, high) = reach.unwrap_or((0, 8));
    // An offset that leaves the address space is not followed.
    let offset = if reach.is_some_and(|(_, high)| high > 0) { description.byte_offset as usize } else { 0 };
    let bytes: Vec<u8> = (0..offset + (high - low) as usize).map(|byte| byte as u8 & 1).collect();
    let block = Block::new(&bytes, usize::from(description.data == Pointer::Misaligned));
    let data = match description.data {
        Pointer::Right | Pointer::Misaligned => block.data().wrapping_sub(low as usize),
        pointer => aimed(pointer, block.data()),
    };
    let on_device = description.device_type != 1;
    // Nobody here can read the memory of a device.
    let data = if on_device && !data.is_null() { without_provenance_mut(0x1000) } else { data };
    let padded = |dims: &[i64]| dims.iter().copied().chain([1; 64]).take(64).collect::<Vec<_>>();
    let mut shape = padded(&description.shape);
    let mut strides = padded(description.strides.as_deref().unwrap_or(&[]));
    let dl_tensor = DLTensor {
        data: data.cast(),
        device: DLDevice { device_type: DLDeviceType(description.device_type), device_id: description.device_id },
        ndim: description.ndim.unwrap_or(description.shape.len() as i32),
        dtype: DLDataType { code: DLDataTypeCode(description.code), bits: description.bits, lanes: description.lanes },
        shape: aimed(description.shape_pointer, shape.as_mut_ptr()),
        strides: if description.strides.is_none() {
            null_mut()
        } else {
            aimed(description.strides_pointer, strides.as_mut_ptr())
        },
        byte_offset: description.byte_offset,
    };
    let deleted = Count::default();
    let made = Box::into_raw(Box::new(Made {
        versioned: DLManagedTensorVersioned {
            version: DLPackVersion { major: description.version.0, minor: description.version.1 },
            manager_ctx: null_mut(),
            deleter: (!description.without_deleter).then_some(delete_versioned),
            flags: description.flags,
            dl_tensor,
        },
        legacy: DLManagedTensor {
            dl_tensor,
            manager_ctx: null_mut(),
            deleter: (!description.without_deleter).then_some(delete_legacy),
        },
        deleted: deleted.clone(),
        held: std::cell::Cell::new(Some(block)),
        _dims: (shape, strides),
    }));
    // SAFETY: the box is alive, and nobody else refers to it yet.
    unsafe { (*made).versioned.manager_ctx = made.cast() };
    // SAFETY: the box is alive, and nobody else refers to it yet.
    unsafe { (*made).legacy.manager_ctx = made.cast() };
    let imported = if versioned {
        // SAFETY: the box is alive; only the address of a member is taken.
        let managed = NonNull::new(unsafe { &raw mut (*made).versioned }).expect("a box");
        // SAFETY: a live box, owned by this import; what is wrong is what import has to find.
        unsafe { import_versioned(managed) }
    } else {
        // SAFETY: the box is alive; only the address of a member is taken.
        let managed = NonNull::new(unsafe { &raw mut (*made).legacy }).expect("a box");
        // SAFETY: a live box, owned by this import; what is wrong is what import has to find.
        unsafe { import_legacy(managed) }
    };
    match imported {
        Ok(tensor) => {
            assert!(!versioned || description.version.0 == 1, "another major version was read");
            assert!(reach.is_some() || on_device, "what cannot be was accepted: {tensor:?}");
            let mut errors = Errors(&mut outcome.errors);
            uses.iter().for_each(|one| used(&tensor, *one, &mut errors));
        }
        Err(error) => outcome.refused = Some(error),
    }
    assert_eq!(deleted.get(), usize::from(!description.without_deleter), "deletions");
    // SAFETY: the box from above; the tensor is gone.
    drop(unsafe { Box::from_raw(made) });
    Ok(())
}

/// What a user does with a tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    /// As bytes and as a slice.
    Lend,
    /// Element by element.
    Touch,
    /// As a managed tensor of both forms, and back.
    Export,
    Explain,
    /// As an array, and back.
    Convert(CopyMode),
    /// As an array with the tensor as its validity.
    Validity,
}

impl Use {
    /// Every use once.
    pub(crate) const ALL: &[Self] = &[
        Self::Lend,
        Self::Touch,
        Self::Export,
        Self::Explain,
        Self::Convert(CopyMode::Never),
        Self::Convert(CopyMode::IfNeeded),
        Self::Convert(CopyMode::Always),
        Self::Validity,
    ];
}

/// Uses an imported tensor.
fn used(tensor: &Tensor, one: Use, errors: &mut Errors<'_>) {
    match one {
        Use::Lend => {
            errors.keep(tensor.as_bytes());
            // SAFETY: nobody writes to the memory while this test runs.
            errors.keep(unsafe { tensor.lent_bytes() }.map(|bytes| bytes.iter().fold(0, |all, byte| all ^ byte)));
            // SAFETY: nobody writes to the memory while the slice lives, which ends here.
            errors.keep(unsafe { tensor.lent_slice::<i32>() });
        }
        Use::Touch => touch(tensor),
        Use::Export => round_trips(tensor, errors),
        Use::Explain => {
            let report = errors.keep(Conversion::default().explain_tensor(tensor));
            assert!(report.is_none_or(|report| report.to_string().contains("dtype")));
        }
        Use::Convert(copy) => convert(tensor, copy, errors),
        Use::Validity => drop(errors.keep(to_arrow(tensor, Some(tensor), CopyMode::IfNeeded))),
    }
}

fn convert(tensor: &Tensor, copy: CopyMode, errors: &mut Errors<'_>) {
    let converted = errors.keep(Conversion::default().copy(copy).convert_tensor(tensor));
    let Some(array) = errors.keep(to_arrow(tensor, None, copy)) else { return };
    if let Some(converted) = converted.filter(|_| tensor.len() < MANY) {
        assert_eq!((converted.dtype(), converted.len()), (tensor.dtype(), tensor.len()));
    }
    errors.keep(array.to_arrow());
    let back = errors.keep(Conversion::default().to_tensor(&array));
    let Some(back) = back.filter(|_| !tensor.is_empty() && tensor.len() < MANY) else { return };
    assert_eq!(back.device(), tensor.device());
    if !back.device().is_cpu() {
        assert_eq!(back.as_ptr(), tensor.as_ptr());
        return;
    }
    // A tensor without dimensions is a column of one row.
    let same_values = tensor.dtype() == back.dtype() && tensor.dtype() != arrow_dlpack::DType::Bool;
    assert!(!same_values || read(&back) == read(tensor), "to_arrow gives other data");
}

/// Exports in both forms and imports again.
pub(crate) fn round_trips(tensor: &Tensor, errors: &mut Errors<'_>) {
    if let Some(managed) = errors.keep(export_versioned(tensor, false)) {
        // SAFETY: our own export.
        let back = unsafe { import_versioned(managed.into_raw()) }.expect("what we export we import");
        same(tensor, &back);
        assert_eq!(back.is_writable(), tensor.is_writable());
    }
    if let Some(managed) = errors.keep(export_legacy(tensor)) {
        // SAFETY: our own export.
        same(tensor, &unsafe { import_legacy(managed.into_raw()) }.expect("what we export we import"));
    }
}

fn same(one: &Tensor, other: &Tensor) {
    assert_eq!((one.shape(), one.strides(), one.dtype()), (other.shape(), other.strides(), other.dtype()));
    // Pinned and managed memory have no ids in DLPack.
    assert_eq!((one.as_ptr(), one.device().device_type()), (other.as_ptr(), other.device().device_type()));
}

/// Reads every byte of every element, for AddressSanitizer to see.
pub(crate) fn touch(tensor: &Tensor) {
    if tensor.device().is_cpu() && !tensor.is_empty() && tensor.len() < MANY {
        assert_eq!(read(tensor).len(), positions(tensor.shape(), tensor.strides()).len());
    }
}
