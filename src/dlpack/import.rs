//! Imports managed tensors of other libraries as [`Tensor`]s.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::alloc::is_addressable;
use crate::arrow::{ReleaseGuard, release_directly};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::dlpack::{
    DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPACK_MAJOR_VERSION, DLTensor,
};
use crate::spec::{Dims, row_major_strides};
use crate::stream_order::{self, Readiness};
use crate::tensor::{Tensor, TensorParts};

/// More dimensions than NumPy allows are refused, because a corrupt count would read beyond the shape.
const MAX_NDIM: usize = 64;

/// A managed tensor that we own: its deleter is called exactly once.
struct Managed<M: Deletable> {
    managed: NonNull<M>,
    guard: ReleaseGuard,
    /// Whether it is ours to delete.
    owned: AtomicBool,
    /// When the memory is written; unset for ordinary host memory.
    readiness: OnceLock<Readiness>,
}

impl<M: Deletable> Managed<M> {
    fn new(managed: NonNull<M>, guard: ReleaseGuard, owned: bool) -> Arc<Self> {
        Arc::new(Self { managed, guard, owned: AtomicBool::new(owned), readiness: OnceLock::new() })
    }
}

trait Deletable: 'static {
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

impl Deletable for DLManagedTensor {
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

impl Deletable for DLManagedTensorVersioned {
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

// SAFETY: DLPack lets the deleter be called from any thread; the guard adds what the producer needs on top.
unsafe impl<M: Deletable> Send for Managed<M> {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl<M: Deletable> Sync for Managed<M> {}

impl<M: Deletable> Drop for Managed<M> {
    fn drop(&mut self) {
        if !*self.owned.get_mut() {
            return;
        }
        let (managed, guard) = (Deleted(self.managed), self.guard);
        match self.readiness.take() {
            None => managed.delete(guard),
            Some(readiness) => readiness.release(move || managed.delete(guard)),
        }
    }
}

/// A managed tensor that is about to be deleted.
struct Deleted<M>(NonNull<M>);

// SAFETY: DLPack lets the deleter be called from any thread, and only the pointer is moved here.
unsafe impl<M> Send for Deleted<M> {}

impl<M: Deletable> Deleted<M> {
    fn delete(self, guard: ReleaseGuard) {
        let managed = self.0.as_ptr();
        // SAFETY: owned by us and not yet deleted: `deleter` can be read, whatever the version.
        let mut deleter = unsafe { (*managed).deleter() };
        if deleter.is_none() {
            return;
        }
        guard(&mut || {
            // The deleter is called once, however often the guard calls.
            let Some(deleter) = deleter.take() else { return };
            // SAFETY: owned by us; this is called once.
            unsafe { deleter(managed) };
        });
    }
}

/// Takes ownership of a versioned managed tensor. Its deleter runs on the thread that drops the last share of its memory.
///
/// # Errors
/// If its major version is unknown, its tensor breaks the DLPack specification, or its dtype is unknown here. Its
/// deleter has run then, unless the pointer was misaligned: nothing is read by that.
///
/// # Safety
/// - `owned`: `managed` is owned by the caller, and not yet deleted.
/// - `described`: it is as `dlpack.h` describes it, and so is its memory.
/// - `unwritten`: its memory is not written while a slice of the result is alive.
pub unsafe fn import_versioned(managed: NonNull<DLManagedTensorVersioned>) -> Result<Tensor> {
    // SAFETY: `owned`, `described` and `unwritten` are promised, in the same words.
    unsafe { import_versioned_guarded(managed, release_directly) }
}

/// Like [`import_versioned`], with a guard of the deleter.
///
/// # Errors
/// As [`import_versioned`].
///
/// # Safety
/// As [`import_versioned`].
pub unsafe fn import_versioned_guarded(
    managed: NonNull<DLManagedTensorVersioned>,
    guard: ReleaseGuard,
) -> Result<Tensor> {
    require_aligned(managed)?;
    // SAFETY: `owned`, `described` and `unwritten` are promised, in the same words; the owner is of `managed`.
    unsafe { import_held(managed, Managed::new(managed, guard, true)) }
}

/// Takes ownership of a versioned managed tensor after `wrap` has wrapped it. Before that, and after any error, the
/// caller owns it.
///
/// # Errors
/// As [`import_versioned`], and those of `wrap`. The deleter has not run.
///
/// # Safety
/// As [`import_versioned`], where this succeeds.
pub unsafe fn adopt_versioned<T, E: From<Error>>(
    managed: NonNull<DLManagedTensorVersioned>,
    guard: ReleaseGuard,
    wrap: impl FnOnce(Tensor) -> Result<T, E>,
) -> Result<T, E> {
    require_aligned(managed)?;
    let owner = Managed::new(managed, guard, false);
    // SAFETY: `owned`, `described` and `unwritten` are promised where this succeeds; after an error nobody reads the
    // memory any more.
    let made = wrap(unsafe { import_held(managed, owner.clone()) }?)?;
    // `owner` is the last reference if `wrap` has copied the elements and released the tensor.
    owner.owned.store(true, Ordering::Release);
    Ok(made)
}

fn require_aligned<M>(managed: NonNull<M>) -> Result<()> {
    let misaligned = || Error::invalid("the pointer to the DLPack tensor is misaligned");
    managed.is_aligned().then_some(()).ok_or_else(misaligned)
}

/// # Safety
/// As [`import_versioned`]; `owner` is of `managed`.
unsafe fn import_held(
    managed: NonNull<DLManagedTensorVersioned>,
    owner: Arc<Managed<DLManagedTensorVersioned>>,
) -> Result<Tensor> {
    // SAFETY: `owned` and `described`: the struct is alive, and the version comes first at every major version.
    let version = unsafe { (*managed.as_ptr()).version };
    if version.major != DLPACK_MAJOR_VERSION {
        return Err(Error::invalid(format!(
            "the DLPack tensor has version {}.{}, and only major version {DLPACK_MAJOR_VERSION} is known here",
            version.major, version.minor
        )));
    }
    // SAFETY: `described`: the struct is of our major version, so it has our layout.
    let flags = unsafe { (*managed.as_ptr()).flags };
    // SAFETY: `described`: the struct is of our major version; the copy of the member borrows nothing.
    let tensor = unsafe { (*managed.as_ptr()).dl_tensor };
    let read_only = flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0;
    let copied = flags & DLPACK_FLAG_BITMASK_IS_COPIED != 0;
    // SAFETY: `described`: the tensor is as `dlpack.h` says, and `owned`: it lives until `owner` deletes it.
    unsafe { import(&tensor, owner, read_only, copied) }
}

/// Takes ownership of a legacy managed tensor. It has no read-only flag, so the result is read-only.
///
/// # Errors
/// If its tensor breaks the DLPack specification, or its dtype is unknown here. Its deleter has run then, unless the pointer
/// was misaligned: nothing is read by that.
///
/// # Safety
/// As [`import_versioned`].
pub unsafe fn import_legacy(managed: NonNull<DLManagedTensor>) -> Result<Tensor> {
    // SAFETY: `owned`, `described` and `unwritten` are promised, in the same words.
    unsafe { import_legacy_guarded(managed, release_directly) }
}

/// Like [`import_legacy`], with a guard of the deleter.
///
/// # Errors
/// As [`import_legacy`].
///
/// # Safety
/// As [`import_legacy`].
pub(crate) unsafe fn import_legacy_guarded(managed: NonNull<DLManagedTensor>, guard: ReleaseGuard) -> Result<Tensor> {
    require_aligned(managed)?;
    let owner = Managed::new(managed, guard, true);
    // SAFETY: `owned` and `described`: the struct is alive; the copy of the member borrows nothing.
    let tensor = unsafe { (*managed.as_ptr()).dl_tensor };
    // SAFETY: `described`: the tensor is as `dlpack.h` says, and `owned`: it lives until `owner` deletes it.
    unsafe { import(&tensor, owner, true, false) }
}

/// # Safety
/// `tensor` is as `dlpack.h` describes it: `shape` and `strides`, unless NULL or misaligned, have `ndim` entries, and
/// what they reach lives as long as `owner`.
unsafe fn import<M: Deletable + 'static>(
    tensor: &DLTensor,
    owner: Arc<Managed<M>>,
    read_only: bool,
    copied: bool,
) -> Result<Tensor> {
    let dtype = DType::try_from(tensor.dtype)?;
    // SAFETY: `shape`, unless NULL or misaligned, has `ndim` entries.
    let shape = unsafe { shape(tensor) }?;
    // SAFETY: `strides`, unless NULL or misaligned, has `ndim` entries, as many as `shape`.
    let strides = match unsafe { dims(tensor.strides, shape.len(), "strides") }? {
        Some(strides) => strides,
        // Row-major before version 1.2, and in every consumer since.
        None => row_major_strides(&shape)?,
    };
    let empty = shape.contains(&0);
    let start = tensor.data.addr();
    let leaves = || Error::invalid(format!("DLTensor.byte_offset {} leaves the address space", tensor.byte_offset));
    let offset = usize::try_from(tensor.byte_offset).map_err(|_| leaves())?;
    let address = start.checked_add(offset).ok_or_else(leaves)?;
    if tensor.data.is_null() && !empty {
        return Err(Error::invalid(format!("DLTensor.data is NULL, and shape {shape:?} has elements")));
    }
    let device = stream_order::located(Device::from(tensor.device), if empty { 0 } else { address });
    let readiness = Readiness::written(device).map(|readiness| owner.readiness.get_or_init(|| readiness).clone());
    let data = tensor.data.cast::<u8>().with_addr(address);
    let parts = TensorParts::of_host(data, dtype, (shape, strides), owner);
    let parts = TensorParts { device, read_only, copied, readiness, ..parts };
    // SAFETY: the elements that shape and strides reach are the producer's memory, alive until `owner` calls its
    // deleter.
    let imported = unsafe { Tensor::from_parts(parts) }?.into_lent();
    // One block of memory reaches from `data` to the end of the highest element. Nobody dereferences the address of an empty
    // tensor.
    let block = imported.span().and_then(|(before, bytes)| bytes.checked_sub(before)?.checked_add(offset));
    if empty || block.is_some_and(|bytes| is_addressable(start, bytes)) { Ok(imported) } else { Err(leaves()) }
}

/// Returns the extents, which may be negative.
///
/// # Safety
/// `shape`, unless NULL or misaligned, has `ndim` entries.
pub(super) unsafe fn shape(tensor: &DLTensor) -> Result<Dims> {
    let ndim = usize::try_from(tensor.ndim)
        .ok()
        .filter(|ndim| *ndim <= MAX_NDIM)
        .ok_or_else(|| Error::invalid(format!("DLTensor.ndim is {}, not 0 to {MAX_NDIM}", tensor.ndim)))?;
    // SAFETY: `shape`, unless NULL or misaligned, has `ndim` entries.
    let shape = unsafe { dims(tensor.shape, ndim, "shape") }?;
    if ndim == 0 { Ok(Dims::new()) } else { shape.ok_or_else(|| Error::invalid("DLTensor.shape is NULL")) }
}

/// # Safety
/// `start`, unless NULL or misaligned, has `ndim` entries that live during the call.
unsafe fn dims(start: *const i64, ndim: usize, name: &str) -> Result<Option<Dims>> {
    if start.is_null() {
        return Ok(None);
    }
    if !start.is_aligned() {
        return Err(Error::invalid(format!("DLTensor.{name} is a misaligned pointer")));
    }
    // SAFETY: neither NULL nor misaligned, so there are `ndim` entries.
    let entries = unsafe { std::slice::from_raw_parts(start, ndim) };
    Ok(Some(Dims::from_slice(entries)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::dlpack::{DLDevice, DLDeviceType};

    #[test]
    fn a_misaligned_struct_is_refused_before_it_is_read() {
        fn at_one<M>() -> NonNull<M> {
            NonNull::new(std::ptr::without_provenance_mut(1)).unwrap()
        }
        // SAFETY: nothing is read of a misaligned pointer, which the function has to find.
        let versioned = unsafe { import_versioned(at_one()) };
        // SAFETY: nothing is read of a misaligned pointer, which the function has to find.
        let legacy = unsafe { import_legacy(at_one()) };
        // SAFETY: nothing is read of a misaligned pointer, which the function has to find.
        let adopted = unsafe { adopt_versioned(at_one(), release_directly, Ok::<Tensor, Error>) };
        for result in [versioned, legacy, adopted] {
            assert!(result.unwrap_err().reason().contains("misaligned"));
        }
    }

    #[test]
    fn a_tensor_has_at_most_64_dimensions() {
        let mut extents = [1_i64; 65];
        for (ndim, fits) in [(-1, false), (0, true), (63, true), (64, true), (65, false), (i32::MAX, false)] {
            let tensor = DLTensor {
                data: std::ptr::null_mut(),
                device: DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
                ndim,
                dtype: DType::Int8.to_dlpack(),
                shape: extents.as_mut_ptr(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            };
            // SAFETY: as many extents as dimensions that are accepted.
            let result = unsafe { shape(&tensor) };
            assert_eq!(result.is_ok(), fits, "{ndim}: {result:?}");
        }
    }

    #[test]
    fn a_block_ends_with_its_highest_element() {
        // The last address that ends an aligned element; nobody reads there.
        let end = isize::MAX.cast_unsigned() & !7;
        for (stride, offset, fits) in [(-1, 0, true), (-1, 8, true), (1, 0, true), (1, 8, false), (-1, 16, false)] {
            let (mut shape, mut strides) = ([2_i64], [stride]);
            let dl_tensor = DLTensor {
                data: std::ptr::without_provenance_mut(end - 16),
                device: DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
                ndim: 1,
                dtype: DType::Int64.to_dlpack(),
                shape: shape.as_mut_ptr(),
                strides: strides.as_mut_ptr(),
                byte_offset: offset,
            };
            let mut managed = DLManagedTensor { dl_tensor, manager_ctx: std::ptr::null_mut(), deleter: None };
            // SAFETY: a struct that outlives the result; nobody reads the elements.
            let result = unsafe { import_legacy(NonNull::from(&mut managed)) };
            assert_eq!(result.is_ok(), fits, "{stride} {offset}: {result:?}");
        }
    }
}
