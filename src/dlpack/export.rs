//! [`Tensor`]s as managed tensors: one allocation each for header, owner, shape and strides.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::ptr::NonNull;

use crate::callback;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::{
    DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackVersion, DLTensor,
};
use crate::tensor::{Owner, Tensor};

/// The head of the block; shape and strides follow it.
#[repr(C)]
struct Block<M> {
    managed: M,
    owner: Owner,
    /// Not read from the struct when it is freed: a consumer may have changed that.
    ndim: usize,
}

impl<M> Block<M> {
    /// The block's layout, and where the dimensions start.
    fn layout(ndim: usize) -> Option<(Layout, usize)> {
        let dims = Layout::array::<i64>(ndim.checked_mul(2)?).ok()?;
        Layout::new::<Self>().extend(dims).ok()
    }

    /// Makes the block of a tensor; `managed` puts the `DLTensor` and the context into its header. The context is the
    /// block, and not needed here; but PaddlePaddle calls no deleter where it is NULL.
    fn export(tensor: &Tensor, managed: impl FnOnce(DLTensor, *mut c_void) -> M) -> Result<NonNull<M>> {
        let ndim = tensor.ndim();
        let refused = || Error::new(ErrorKind::Memory, "a DLPack header could not be allocated");
        let (layout, dims) = Self::layout(ndim).ok_or_else(refused)?;
        // SAFETY: the header has a size, so the layout has.
        let block: NonNull<Self> = NonNull::new(unsafe { alloc(layout) }).ok_or_else(refused)?.cast();
        // SAFETY: `extend` put `ndim * 2` entries there, inside the block.
        let shape = unsafe { block.byte_add(dims) }.cast::<i64>();
        // SAFETY: as above.
        let strides = unsafe { shape.add(ndim) };
        // SAFETY: `ndim` entries from a slice of that many; the block is new.
        unsafe { shape.as_ptr().copy_from_nonoverlapping(tensor.shape().as_ptr(), ndim) };
        // SAFETY: as above.
        unsafe { strides.as_ptr().copy_from_nonoverlapping(tensor.strides().as_ptr(), ndim) };
        let dl_tensor = DLTensor {
            data: tensor.as_ptr().cast(),
            device: tensor.device().to_dlpack(),
            ndim: i32::try_from(ndim).unwrap_or(i32::MAX),
            dtype: tensor.dtype().to_dlpack(),
            shape: shape.as_ptr(),
            strides: strides.as_ptr(),
            byte_offset: 0,
        };
        let managed = managed(dl_tensor, block.as_ptr().cast());
        // SAFETY: the start of the block, whose layout begins with that of `Self`.
        unsafe { block.write(Self { managed, owner: tensor.owner().clone(), ndim }) };
        // The header is the first member of a repr(C) struct.
        Ok(block.cast())
    }

    /// # Safety
    /// `managed` came from [`Block::export`] and was not deleted yet.
    unsafe fn delete(managed: *mut M) {
        let block = managed.cast::<Self>();
        // SAFETY: the contract.
        let ndim = unsafe { (*block).ndim };
        let Some((layout, _)) = Self::layout(ndim) else { return };
        // SAFETY: the contract.
        let owner = unsafe { &raw const (*block).owner };
        // SAFETY: initialised by `export`; nobody uses the owner in the block after this.
        let owner = unsafe { owner.read() };
        // SAFETY: allocated by `export` with this layout.
        unsafe { dealloc(block.cast(), layout) };
        drop(owner);
    }
}

/// Exports a tensor as a versioned managed tensor, which holds a share of the memory until its deleter runs. The
/// deleter may run on any thread. `data` points to the first element, `byte_offset` is 0, `strides` are given.
///
/// `sole_owner` says that nobody else sees the memory, which sets `DLPACK_FLAG_BITMASK_IS_COPIED`.
///
/// # Errors
/// When the header cannot be allocated.
pub fn export_versioned(tensor: &Tensor, sole_owner: bool) -> Result<NonNull<DLManagedTensorVersioned>> {
    let read_only = if tensor.is_writable() { 0 } else { DLPACK_FLAG_BITMASK_READ_ONLY };
    let copied = if sole_owner { DLPACK_FLAG_BITMASK_IS_COPIED } else { 0 };
    Block::export(tensor, |dl_tensor, manager_ctx| DLManagedTensorVersioned {
        version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
        manager_ctx,
        deleter: Some(delete_versioned),
        flags: read_only | copied,
        dl_tensor,
    })
}

/// Exports a tensor as a legacy managed tensor, which cannot say that its memory is read-only: see that it is not, or
/// that its consumer does not write.
///
/// # Errors
/// When the header cannot be allocated.
pub fn export_legacy(tensor: &Tensor) -> Result<NonNull<DLManagedTensor>> {
    Block::export(tensor, |dl_tensor, manager_ctx| DLManagedTensor {
        dl_tensor,
        manager_ctx,
        deleter: Some(delete_legacy),
    })
}

/// # Safety
/// `managed` is NULL, or came from [`export_versioned`] and was not deleted yet.
unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    if !managed.is_null() {
        // SAFETY: the contract.
        callback::run(|| unsafe { Block::delete(managed) });
    }
}

/// # Safety
/// `managed` is NULL, or came from [`export_legacy`] and was not deleted yet.
unsafe extern "C" fn delete_legacy(managed: *mut DLManagedTensor) {
    if !managed.is_null() {
        // SAFETY: the contract.
        callback::run(|| unsafe { Block::delete(managed) });
    }
}
