//! Managed tensors of DLPack, out and in: what another library gets, and what it gives.
//!
//! `cargo run --example 03-managed-tensors`

#![allow(unsafe_code, reason = "a managed tensor is a C struct, and the word of whoever made it")]
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use arrow_dlpack::dlpack::{export_versioned, import_versioned};
use arrow_dlpack::{Result, Tensor};

pub(crate) fn main() -> Result<()> {
    let tensor = Tensor::from_vec(vec![1.0_f64, 2.0, 3.0], &[3])?;

    // An export shares the memory until its deleter runs. Dropped, it runs it.
    let managed = export_versioned(&tensor, false)?;
    println!("{} dimension(s), flags {}", managed.dl_tensor.ndim, managed.flags);

    // `into_raw` hands it over to a C function, which then calls the deleter.
    let raw = managed.into_raw();

    // An import takes ownership first and checks second, so that a refused tensor is deleted, too.
    // SAFETY: a managed tensor of our own, which nobody else has deleted or writes to.
    let imported = unsafe { import_versioned(raw) }?;
    assert_eq!(imported.as_ptr(), tensor.as_ptr());

    // Its memory is lent: another library may write to it. A copy is safe to read.
    assert!(imported.as_slice::<f64>().is_err());
    assert_eq!(imported.to_vec::<f64>()?, [1.0, 2.0, 3.0]);
    Ok(())
}
