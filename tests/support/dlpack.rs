//! Managed tensors as another library makes them, with a deleter that counts.

use std::ffi::c_void;
use std::ptr::NonNull;

use arrow_dlpack::dlpack::{import_legacy, import_versioned};
use arrow_dlpack::ffi::dlpack::{
    DLDataType, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};
use arrow_dlpack::{DType, Output, Result, Tensor};

use super::reference::positions;
use super::{Count, Random};

/// The memory of a tensor to be, in whole words so that it is aligned for every dtype.
#[derive(Debug)]
pub(crate) struct Memory {
    words: Vec<u64>,
    dtype: DLDataType,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Bytes to the first element.
    start: u64,
}

/// What a deleter frees.
struct Made<M> {
    managed: M,
    memory: Memory,
    released: Count,
}

impl Memory {
    /// A tensor over `bytes`, whose first element is number `first`.
    pub(crate) fn new(bytes: &[u8], dtype: DType, shape: &[i64], strides: &[i64], first: usize) -> Self {
        let words = bytes
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_ne_bytes(word)
            })
            // So that memory of no bytes has an address too.
            .chain([0])
            .collect();
        let start = (first * dtype.itemsize()) as u64;
        Self { words, dtype: dtype.to_dlpack(), shape: shape.to_vec(), strides: strides.to_vec(), start }
    }

    /// Four `int32`: 1, 2, 3, 4.
    pub(crate) fn four() -> Self {
        let bytes: Vec<u8> = [1_i32, 2, 3, 4].iter().flat_map(|value| value.to_ne_bytes()).collect();
        Self::new(&bytes, DType::Int32, &[4], &[1], 0)
    }

    fn dl_tensor(&mut self) -> DLTensor {
        DLTensor {
            data: self.words.as_mut_ptr().cast(),
            device: DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
            ndim: self.shape.len() as i32,
            dtype: self.dtype,
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            byte_offset: self.start,
        }
    }

    /// A versioned managed tensor, changed by `edit`.
    pub(crate) fn versioned(
        mut self,
        edit: impl FnOnce(&mut DLManagedTensorVersioned),
    ) -> (NonNull<DLManagedTensorVersioned>, Count) {
        let managed = DLManagedTensorVersioned {
            version: DLPackVersion { major: 1, minor: 3 },
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete_versioned),
            flags: 0,
            dl_tensor: self.dl_tensor(),
        };
        let (made, released) = self.into_made(managed);
        // SAFETY: a live box that nobody else refers to.
        let managed = unsafe { &mut (*made.as_ptr()).managed };
        managed.manager_ctx = made.as_ptr().cast();
        edit(managed);
        (NonNull::from(managed), released)
    }

    /// A legacy managed tensor, changed by `edit`.
    pub(crate) fn legacy(mut self, edit: impl FnOnce(&mut DLManagedTensor)) -> (NonNull<DLManagedTensor>, Count) {
        let dl_tensor = self.dl_tensor();
        let managed = DLManagedTensor { dl_tensor, manager_ctx: std::ptr::null_mut(), deleter: Some(delete_legacy) };
        let (made, released) = self.into_made(managed);
        // SAFETY: a live box that nobody else refers to.
        let managed = unsafe { &mut (*made.as_ptr()).managed };
        managed.manager_ctx = made.as_ptr().cast();
        edit(managed);
        (NonNull::from(managed), released)
    }

    fn into_made<M>(self, managed: M) -> (NonNull<Made<M>>, Count) {
        let released = Count::default();
        let made = Box::new(Made { managed, memory: self, released: released.clone() });
        (NonNull::from(Box::leak(made)), released)
    }

    /// Imports the memory as a versioned tensor.
    pub(crate) fn import(self) -> (Result<Tensor>, Count) {
        self.import_edited(|_| ())
    }

    /// Imports a versioned tensor, changed by `edit`.
    pub(crate) fn import_edited(self, edit: impl FnOnce(&mut DLManagedTensorVersioned)) -> (Result<Tensor>, Count) {
        let (managed, released) = self.versioned(edit);
        // SAFETY: made above, ours, not deleted; what `edit` breaks on purpose is what import has to find.
        (unsafe { import_versioned(managed) }, released)
    }

    /// Imports a legacy tensor, changed by `edit`.
    pub(crate) fn import_legacy(self, edit: impl FnOnce(&mut DLManagedTensor)) -> (Result<Tensor>, Count) {
        let (managed, released) = self.legacy(edit);
        // SAFETY: made above, as `dlpack.h` describes it but for the edit, which import has to find.
        (unsafe { import_legacy(managed) }, released)
    }
}

/// # Safety
/// `context` is the `manager_ctx` of a tensor that was made here: a box, not yet freed.
unsafe fn free<M>(context: *mut c_void) {
    // SAFETY: the box of a tensor that was made here, freed once.
    let made = unsafe { Box::from_raw(context.cast::<Made<M>>()) };
    made.released.add();
}

/// # Safety
/// `managed` was made by [`Memory::versioned`].
unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: `versioned` made the struct, which lives until its context is freed below.
    let context = unsafe { (*managed).manager_ctx };
    // SAFETY: set when the tensor was made; a deleter runs once.
    unsafe { free::<DLManagedTensorVersioned>(context) };
}

/// # Safety
/// `managed` was made by [`Memory::legacy`].
unsafe extern "C" fn delete_legacy(managed: *mut DLManagedTensor) {
    // SAFETY: `legacy` made the struct, which lives until its context is freed below.
    let context = unsafe { (*managed).manager_ctx };
    // SAFETY: set when the tensor was made; a deleter runs once.
    unsafe { free::<DLManagedTensor>(context) };
}

/// The memory of a tensor that nobody but its test knows of, to be written.
pub(crate) fn output(tensor: &Tensor) -> Result<Output<'_>> {
    // SAFETY: nobody else reads or writes it while the output is alive.
    unsafe { Output::from_tensor(tensor) }
}

/// A byte of a tensor's memory, which may lie between its elements.
pub(crate) fn byte(tensor: &Tensor, at: usize) -> u8 {
    // SAFETY: inside the memory of a [`Memory`], which reaches from the first element to the last.
    unsafe { tensor.as_ptr().wrapping_add(at).read() }
}

/// A tensor over random memory, `first` elements from the start of what it reaches, and its elements.
pub(crate) fn tensor_of(dtype: DType, axes: &[(i64, i64)], first: usize, seed: u64) -> (Tensor, Vec<Vec<u8>>) {
    let (shape, strides): (Vec<i64>, Vec<i64>) = axes.iter().copied().unzip();
    let reached = positions(&shape, &strides);
    let lowest = reached.iter().copied().min().unwrap_or(0);
    let highest = reached.iter().copied().max().unwrap_or(0);
    let start = first + usize::try_from(-lowest).unwrap_or(0);
    let count = start + usize::try_from(highest).unwrap_or(0) + 1;
    let mut random = Random(seed);
    let byte = |random: &mut Random| random.next().to_le_bytes()[0] & if dtype == DType::Bool { 1 } else { 255 };
    let bytes: Vec<u8> = (0..count * dtype.itemsize()).map(|_| byte(&mut random)).collect();
    let element = |position: i64| {
        let index = usize::try_from(position + i64::try_from(start).unwrap()).unwrap();
        bytes[index * dtype.itemsize()..][..dtype.itemsize()].to_vec()
    };
    let expected = reached.into_iter().map(element).collect();
    (Memory::new(&bytes, dtype, &shape, &strides, start).import().0.unwrap(), expected)
}

/// The elements of an int32 tensor over lent memory.
pub(crate) fn int32s(tensor: &Tensor) -> Vec<i32> {
    // SAFETY: only the test that lends the memory could write to it, and it does not.
    unsafe { tensor.lent_slice::<i32>() }.unwrap().to_vec()
}
