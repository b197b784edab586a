//! Exports [`Tensor`]s as managed tensors: one allocation each for header, owner, shape and strides.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{NonNull, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::callback;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::{
    DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackVersion, DLTensor,
};
use crate::stream_order::Wait;
use crate::tensor::{Owner, Tensor};

/// The head of the block; shape and strides follow. With one dimension the block has the largest size of glibc's fast
/// bins.
#[repr(C)]
struct ManagedBlock<M> {
    managed: M,
    owner: Owner,
    /// Not read from the struct when it is freed, because a consumer may have changed it.
    ndim: u32,
    /// The holders that have not released the block: its consumer, and an [`Offer`] that awaits an answer.
    holders: AtomicU32,
}

impl<M> ManagedBlock<M> {
    /// The block's layout, and where the dimensions start.
    fn layout(ndim: usize) -> Option<(Layout, usize)> {
        let dims = Layout::array::<i64>(ndim.checked_mul(2)?).ok()?;
        Layout::new::<Self>().extend(dims).ok()
    }

    /// Makes the block of a tensor; `managed` writes the `DLTensor` and the context into its header. The context is the
    /// block. This code does not need it, but PaddlePaddle calls no deleter if it is NULL.
    fn export(tensor: &Tensor, holders: u32, managed: impl FnOnce(DLTensor, *mut c_void) -> M) -> Result<NonNull<M>> {
        if let Some(readiness) = tensor.readiness() {
            readiness.lend(Wait::LentByDlpack);
        }
        let ndim = tensor.ndim();
        let refused = || Error::new(ErrorKind::Memory, "a DLPack header could not be allocated");
        let dims_each = u32::try_from(ndim).map_err(|_| refused())?;
        let (layout, dims) = Self::layout(ndim).ok_or_else(refused)?;
        // SAFETY: the header has a size, so the layout has.
        let block: NonNull<Self> = NonNull::new(unsafe { alloc(layout) }).ok_or_else(refused)?.cast();
        // SAFETY: `extend` put `ndim * 2` entries there, inside the block.
        let shape = unsafe { block.byte_add(dims) }.cast::<i64>();
        // SAFETY: the block has room for `ndim` extents and as many strides, by `layout`: these are the second half.
        let strides = unsafe { shape.add(ndim) };
        // SAFETY: `ndim` entries from a slice of that many; the block is new.
        unsafe { shape.as_ptr().copy_from_nonoverlapping(tensor.shape().as_ptr(), ndim) };
        // SAFETY: `ndim` entries from a slice of that many, into the second half of the room.
        unsafe { strides.as_ptr().copy_from_nonoverlapping(tensor.strides().as_ptr(), ndim) };
        // Exposes the provenance that `ManagedBlock::of` picks up again.
        block.as_ptr().expose_provenance();
        let dl_tensor = DLTensor { shape: shape.as_ptr(), strides: strides.as_ptr(), ..borrowed(tensor) };
        let managed = managed(dl_tensor, block.as_ptr().cast());
        // SAFETY: the start of the block, whose layout begins with that of `Self`.
        unsafe {
            block.write(Self {
                managed,
                owner: tensor.owner().clone(),
                ndim: dims_each,
                holders: AtomicU32::new(holders),
            })
        };
        // The header is the first member of a repr(C) struct.
        Ok(block.cast())
    }

    /// The block of a header. A consumer may give its deleter a pointer that is for the header alone, as one from a
    /// reference to it is in Rust; the block's own reaches what follows.
    fn of(managed: *mut M) -> *mut Self {
        with_exposed_provenance_mut(managed.addr())
    }

    /// Releases the block for one of its holders; the last one frees it.
    ///
    /// # Safety
    /// `managed` came from [`ManagedBlock::export`], and this holder did not give it up yet.
    unsafe fn give_up(managed: *mut M) {
        let block = Self::of(managed);
        // SAFETY: `export` made the block, and it is not freed while this holder is there.
        let holders = unsafe { &(*block).holders };
        // Most blocks have one holder, which can skip the atomic decrement.
        if holders.load(Ordering::Acquire) == 1 || holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: the count was 1, or fell from 1 to 0, so no other holder is left, and what they did happened before this
            // (acquire).
            unsafe { Self::free(managed) };
        }
    }

    /// # Safety
    /// `managed` came from [`ManagedBlock::export`], was not freed yet, and nobody uses it after this.
    unsafe fn free(managed: *mut M) {
        let block = Self::of(managed);
        // SAFETY: `export` initialised the block, which was not freed yet.
        let ndim = unsafe { (*block).ndim };
        let Some((layout, _)) = usize::try_from(ndim).ok().and_then(Self::layout) else { return };
        // SAFETY: `export` initialised the block, which was not freed yet; only the address is taken.
        let owner = unsafe { &raw const (*block).owner };
        // SAFETY: initialised by `export`; nobody uses the owner in the block after this.
        let owner = unsafe { owner.read() };
        // SAFETY: allocated by `export` with this layout; the pointer has the provenance of the block, which `export` exposed.
        unsafe { dealloc(block.cast(), layout) };
        callback::let_go(owner);
    }
}

/// Returns a `DLTensor` over the tensor's own shape and strides, valid while the tensor is not moved. It has no
/// read-only flag.
#[must_use]
pub(crate) fn borrowed(tensor: &Tensor) -> DLTensor {
    DLTensor {
        data: tensor.as_ptr().cast(),
        device: tensor.device().to_dlpack(),
        ndim: i32::try_from(tensor.ndim()).unwrap_or(i32::MAX),
        dtype: tensor.dtype().to_dlpack(),
        shape: tensor.shape().as_ptr().cast_mut(),
        strides: tensor.strides().as_ptr().cast_mut(),
        byte_offset: 0,
    }
}

/// An exported managed tensor. Dropping it releases its share of the memory.
#[derive(Debug)]
pub struct ManagedTensor<M> {
    managed: NonNull<M>,
    /// Our deleter, whatever the header says by now.
    delete: unsafe extern "C" fn(*mut M),
}

// SAFETY: the block is this value's alone, and what it holds, the tensor's owner, is Send and Sync.
unsafe impl<M> Send for ManagedTensor<M> {}

impl<M> ManagedTensor<M> {
    /// Hands the managed tensor over: its receiver calls its `deleter` once.
    #[must_use = "a managed tensor that nobody deletes leaks"]
    pub fn into_raw(self) -> NonNull<M> {
        ManuallyDrop::new(self).managed
    }

    /// Returns the address of the header, for a consumer that borrows the tensor. The memory stays this value's.
    #[must_use]
    pub fn as_ptr(&self) -> *mut M {
        self.managed.as_ptr()
    }
}

impl<M> Deref for ManagedTensor<M> {
    type Target = M;

    fn deref(&self) -> &M {
        // SAFETY: a header that `ManagedBlock::export` initialised, and that nobody frees before this value is dropped.
        unsafe { self.managed.as_ref() }
    }
}

impl<M> Drop for ManagedTensor<M> {
    fn drop(&mut self) {
        // SAFETY: the deleter of what this value owns, which ends here.
        unsafe { (self.delete)(self.managed.as_ptr()) };
    }
}

/// Exports a tensor as a versioned managed tensor, which shares the memory until its deleter runs. The deleter may run
/// on any thread. `data` points to the first element, `byte_offset` is 0, `strides` are given.
///
/// `sole_owner` says that no other object shares the memory, and sets `DLPACK_FLAG_BITMASK_IS_COPIED`.
///
/// # Errors
/// If the header cannot be allocated.
pub fn export_versioned(tensor: &Tensor, sole_owner: bool) -> Result<ManagedTensor<DLManagedTensorVersioned>> {
    let copied = if sole_owner { DLPACK_FLAG_BITMASK_IS_COPIED } else { 0 };
    Ok(ManagedTensor { managed: export_held(tensor, 1, copied)?, delete: delete_versioned })
}

fn export_held(tensor: &Tensor, holders: u32, flags: u64) -> Result<NonNull<DLManagedTensorVersioned>> {
    let read_only = if tensor.is_writable() { 0 } else { DLPACK_FLAG_BITMASK_READ_ONLY };
    ManagedBlock::export(tensor, holders, |dl_tensor, manager_ctx| DLManagedTensorVersioned {
        version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
        manager_ctx,
        deleter: Some(delete_versioned),
        flags: flags | read_only,
        dl_tensor,
    })
}

/// A versioned managed tensor that a consumer may accept or refuse. `dlpack.h` does not say who owns it after a
/// refusal: most consumers leave it to the caller, others have run its deleter. The block outlives the answer, so both
/// are right here.
#[derive(Debug)]
pub struct Offer(NonNull<DLManagedTensorVersioned>);

impl Offer {
    /// Offers a tensor that shares the memory.
    ///
    /// # Errors
    /// If the header cannot be allocated.
    pub fn new(tensor: &Tensor) -> Result<Self> {
        export_held(tensor, 2, 0).map(Self)
    }

    /// Returns what the consumer receives. It must call the deleter at most once, and not after a refusal.
    pub fn as_ptr(&self) -> *mut DLManagedTensorVersioned {
        self.0.as_ptr()
    }

    /// Tells that the consumer accepted: its call of the deleter, perhaps long ago, frees the memory.
    pub fn accepted(self) {
        let managed = ManuallyDrop::new(self).0;
        // SAFETY: made by `new` with a holder for this offer, which ends here.
        unsafe { ManagedBlock::give_up(managed.as_ptr()) };
    }
}

impl Drop for Offer {
    /// Tells that the consumer refused: whether or not the deleter ran, this holder is the last.
    fn drop(&mut self) {
        // SAFETY: made by `new`; the consumer does not use what it refused.
        unsafe { ManagedBlock::free(self.0.as_ptr()) };
    }
}

/// Exports a tensor as a legacy managed tensor, which has no read-only flag: the caller ensures that the memory is
/// writable, or that the consumer does not write.
///
/// # Errors
/// If the header cannot be allocated.
pub fn export_legacy(tensor: &Tensor) -> Result<ManagedTensor<DLManagedTensor>> {
    let managed = ManagedBlock::export(tensor, 1, |dl_tensor, manager_ctx| DLManagedTensor {
        dl_tensor,
        manager_ctx,
        deleter: Some(delete_legacy),
    })?;
    Ok(ManagedTensor { managed, delete: delete_legacy })
}

/// # Safety
/// `managed` is NULL, or came from [`export_versioned`] or [`Offer::new`] and was not deleted yet.
unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    if !managed.is_null() {
        // SAFETY: `export_held` made the block for its caller, and its consumer gives it up once.
        callback::run(|| unsafe { ManagedBlock::give_up(managed) }, |_| ());
    }
}

/// # Safety
/// `managed` is NULL, or came from [`export_legacy`] and was not deleted yet.
unsafe extern "C" fn delete_legacy(managed: *mut DLManagedTensor) {
    if !managed.is_null() {
        // SAFETY: `export_legacy` made the block, and its consumer gives it up once.
        callback::run(|| unsafe { ManagedBlock::give_up(managed) }, |_| ());
    }
}
