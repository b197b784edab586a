//! The module of kernels: loaded when a device first runs one, from a cubin or from PTX, with its functions resolved.

use std::ffi::{CStr, c_void};

use super::driver::{Driver, FunctionHandle, ModuleHandle, Status};
use super::images::Images;
use crate::error::{Error, ErrorKind, Result};

macro_rules! kernels {
    ($($name:ident = $symbol:literal,)+) => {
        /// A kernel of kernels.cu and its headers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Kernel {
            $($name,)+
        }

        /// The kernels as loaded on one device.
        #[derive(Debug)]
        #[allow(non_snake_case, reason = "named as the kernels")]
        pub(crate) struct Kernels {
            $($name: FunctionHandle,)+
            multiprocessors: u64,
            #[cfg_attr(not(feature = "python"), allow(dead_code, reason = "only a test asks"))]
            is_cubin: bool,
        }

        impl Kernels {
            /// Every kernel's name in kernels.cu and its headers.
            #[cfg(test)]
            pub(super) const NAMES: &[&str] = &[$($symbol,)+];

            /// Loads the kernels into the context that is current in this thread, of a device with this compute capability and so many
            /// multiprocessors. They live as long as the context.
            ///
            /// # Errors
            /// If the driver refuses the module, or a function is missing in it.
            pub(super) fn load(driver: &Driver, capability: (u32, u32), multiprocessors: u64) -> Result<Self> {
                let (module, is_cubin) = load(driver, &Images::index()?, capability)?;
                let loaded = Self::of(driver, module, multiprocessors, is_cubin);
                if loaded.is_err() {
                    // If this fails too, only the module is lost.
                    // SAFETY: a module of ours, no function of which is used.
                    let _ = unsafe { driver.module_unload(module) };
                }
                loaded
            }

            fn of(driver: &Driver, module: ModuleHandle, multiprocessors: u64, is_cubin: bool) -> Result<Self> {
                Ok(Self { $($name: function(driver, module, concat!($symbol, "\0"))?,)+ multiprocessors, is_cubin })
            }

            /// Returns whether the kernels were loaded from a cubin; else the driver compiled the PTX.
            #[cfg(feature = "python")]
            pub(super) fn is_cubin(&self) -> bool {
                self.is_cubin
            }

            pub(super) fn multiprocessors(&self) -> u64 {
                self.multiprocessors
            }

            pub(super) fn get(&self, kernel: Kernel) -> FunctionHandle {
                match kernel {
                    $(Kernel::$name => self.$name,)+
                }
            }
        }
    };
}

kernels! {
    UnpackBits = "unpack_bits",
    PackBits = "pack_bits",
    CountNulls = "count_nulls",
    JoinValidity = "join_validity",
    FindNoBool = "find_no_bool",
    NormaliseBools = "normalise_bools",
    StoreTable = "store_table",
    KeepMisfits = "keep_misfits",
    MeasureRows = "measure_rows",
    PlaceRows = "place_rows",
    ShiftOffsets = "shift_offsets",
    ExpandRuns = "expand_runs",
    SpreadRows = "spread_rows",
    CopyStrided = "copy_strided",
    Transpose4 = "transpose_4",
    FillNulls = "fill_nulls",
    PackColumns1 = "pack_columns_1",
    PackColumns2 = "pack_columns_2",
    PackColumns4 = "pack_columns_4",
    PackColumns8 = "pack_columns_8",
    PackColumns16 = "pack_columns_16",
    CastColumns = "cast_columns",
    PadColumns16 = "pad_columns_16",
    PackRows1 = "pack_rows_1",
    PackRows2 = "pack_rows_2",
    PackRows4 = "pack_rows_4",
    PackRows8 = "pack_rows_8",
    PackRows16 = "pack_rows_16",
    CastRows = "cast_rows",
    CastAny = "cast_any",
}

/// Loads the cubin for the device, which takes a millisecond or two, or the PTX if there is none or the driver refuses it: then the
/// driver compiles for a second or two. Returns whether it was the cubin, too. `CUDA_FORCE_PTX_JIT=1` asks for the PTX: a driver takes
/// that only of images that have both (580.159 loads a cubin all the same).
fn load(driver: &Driver, images: &Images, capability: (u32, u32)) -> Result<(ModuleHandle, bool)> {
    let mut module = ModuleHandle::NULL;
    let is_ptx_forced = std::env::var_os("CUDA_FORCE_PTX_JIT").is_some_and(|forced| forced == "1");
    if let (false, Some(cubin)) = (is_ptx_forced, images.cubin(capability)?) {
        // SAFETY: `module` is a local that the driver sets; the image is a whole ELF file, which says how long it is.
        match unsafe { driver.module_load(&raw mut module, cubin.as_ptr().cast::<c_void>()) } {
            Ok(()) => return Ok((module, true)),
            Err(status) if is_of_the_driver(status) => return Err(status.into()),
            // How a driver refuses a cubin differs: invalid image, invalid PTX, invalid source, no binary for the device.
            Err(_) => {}
        }
    }
    let ptx = images.ptx()?;
    // SAFETY: `module` is a local that the driver sets; the image is text that ends with a NUL.
    unsafe { driver.module_load(&raw mut module, ptx.as_ptr().cast::<c_void>()) }?;
    Ok((module, false))
}

/// Returns whether an image that the driver compiles would fail, too.
fn is_of_the_driver(status: Status) -> bool {
    status.is_out_of_memory() || status.is_final() || status.code == Status::UNKNOWN
}

fn function(driver: &Driver, module: ModuleHandle, name: &'static str) -> Result<FunctionHandle> {
    let mut function = FunctionHandle::NULL;
    let text = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default();
    // SAFETY: `function` is a local that the driver sets; the name ends with a NUL.
    let found = unsafe { driver.module_get_function(&raw mut function, module, text.as_ptr()) };
    found.map_err(|Status { call, code }| {
        let name = name.trim_end_matches('\0');
        let reason = format!("{call} failed with code {code}: no kernel {name} in the module of this build");
        Error::new(ErrorKind::Device, reason)
    })?;
    Ok(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches this program itself, because the images may be embedded from anywhere. A header of LZMA is no text, so that the bytes
    /// behind it are those of the file alone.
    #[test]
    #[cfg_attr(miri, ignore = "Miri runs no program that could be read")]
    fn only_a_build_with_the_feature_cuda_embeds_the_kernels() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let packed = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/src/cuda/kernels.lzma")).unwrap();
        let is_embedded = program.windows(64).any(|window| window == &packed[1000..1064]);
        assert_eq!(is_embedded, cfg!(feature = "cuda"));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it splits a long text, which takes Miri minutes and has no pointer of ours")]
    fn the_module_has_every_kernel_and_no_other() {
        // Read at run time, because a build without the feature `cuda` must embed no PTX.
        let ptx = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/cuda/kernels.ptx")).unwrap();
        let entries: Vec<&str> = ptx
            .lines()
            .filter_map(|line| line.strip_prefix(".visible .entry "))
            .map(|name| name.trim_end_matches('('))
            .collect();
        assert_eq!(entries.len(), Kernels::NAMES.len());
        for name in Kernels::NAMES {
            assert!(entries.contains(name), "{name} is not in kernels.ptx");
        }
    }
}
