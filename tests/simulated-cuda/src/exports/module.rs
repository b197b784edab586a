//! Modules, functions and launches.

use std::ffi::c_void;

use super::{In, Out, Text, driver};
use crate::call::Call;
use crate::costs::{CUBIN, PTX};
use crate::error::{Error, Outcome};
use crate::execute::Action;
use crate::kernel::{Function, Launch, Module, entries_of};

fn load(call: &mut Call, module: Out<usize>, image: *const c_void) -> Outcome {
    let context = call.context()?;
    call.unsafe_while_capturing()?;
    if image.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: the caller of the driver answers for an image that says where it ends.
    let image = unsafe { crate::kernel::image(image.cast()) };
    let (entries, is_cubin) = entries_of(image, call.settings.capability)?;
    call.count_implicit_wait();
    call.spend(if is_cubin { CUBIN } else { PTX });
    let handle = call.handle();
    call.modules.insert(handle, Module { context, entries, is_cubin });
    module.set(handle)
}

fn function(call: &mut Call, handle: usize) -> Outcome<Function> {
    call.context()?;
    call.functions.get(&handle).cloned().ok_or(Error::INVALID_HANDLE)
}

/// `CU_LAUNCH_PARAM_*`: parameters in one buffer are not simulated.
fn parameters(sizes: &[usize], list: In<*const u8>) -> Outcome<Vec<Vec<u64>>> {
    let read = |(index, size): (usize, &usize)| {
        let bytes = In(list.get(index)?).list(*size)?;
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        });
        Ok(words.collect())
    };
    sizes.iter().enumerate().map(read).collect()
}

driver! {
    /// Loads a module from PTX, or from a cubin for this device.
    fn cuModuleLoadData(module: Out<usize>, image: *const c_void) |call| { load(call, module, image) }

    /// As `cuModuleLoadData`, with options that change nothing here.
    fn cuModuleLoadDataEx(
        module: Out<usize>,
        image: *const c_void,
        _count: u32,
        _options: *const u32,
        _values: *const *mut c_void,
    ) |call| {
        load(call, module, image)
    }

    /// Unloads a module, and its functions.
    fn cuModuleUnload(module: usize) |call| {
        call.context()?;
        call.modules.remove(&module).ok_or(Error::INVALID_HANDLE)?;
        call.functions.retain(|_, function| function.module != module);
        Ok(())
    }

    /// A function of a module: one that its text names as an entry, and that a test registered.
    fn cuModuleGetFunction(handle: Out<usize>, module: usize, name: Text) |call| {
        call.context()?;
        let name = name.get()?;
        let found = call.modules.get(&module).ok_or(Error::INVALID_HANDLE)?;
        let context = found.context;
        if !found.entries.contains(&name) {
            return Err(Error::NOT_FOUND);
        }
        let kernel = call.kernels.get(&name).cloned().ok_or(Error::NOT_FOUND)?;
        let number = call.handle();
        call.functions.insert(number, Function { context, module, name, kernel });
        handle.set(number)
    }

    /// An attribute of a function.
    fn cuFuncGetAttribute(value: Out<i32>, attribute: u32, handle: usize) |call| {
        function(call, handle)?;
        value.set(match attribute {
            0 => 1024,
            1..=3 | 7 => 0,
            4 => 32,
            5 => 80,
            6 => 90,
            8 => 48 << 10,
            9 => -1,
            _ => return Err(Error::INVALID_VALUE),
        })
    }

    /// Sets an attribute of a function: checked, and without effect.
    fn cuFuncSetAttribute(handle: usize, attribute: u32, _value: i32) |call| {
        function(call, handle)?;
        if matches!(attribute, 8 | 9) { Ok(()) } else { Err(Error::INVALID_VALUE) }
    }

    /// How many blocks of a launch fit on a multiprocessor.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<i32>, handle: usize, threads: i32, _shared: usize) |call| {
        function(call, handle)?;
        if !(1..=1024).contains(&threads) {
            return Err(Error::INVALID_VALUE);
        }
        blocks.set((2048 / threads).min(32))
    }

    /// Queues a kernel.
    fn cuLaunchKernel(
        handle: usize,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared: u32,
        stream: usize,
        list: In<*const u8>,
        extra: *const *mut c_void,
    ) |call| {
        let stream = call.stream(stream)?;
        let function = function(call, handle)?;
        // A launch belongs to the current context, and so must all that it uses.
        let current = call.context()?;
        if call.streams[stream].context != current || function.context != current {
            return Err(Error::INVALID_HANDLE);
        }
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let threads = block.iter().try_fold(1_u32, |product, count| product.checked_mul(*count));
        if grid.contains(&0) || threads.is_none_or(|threads| !(1..=1024).contains(&threads)) {
            return Err(Error::INVALID_VALUE);
        }
        if grid_x > i32::MAX as u32 || grid_y > 65535 || grid_z > 65535 || block_z > 64 {
            return Err(Error::INVALID_VALUE);
        }
        if !extra.is_null() {
            return Err(Error::NOT_SUPPORTED);
        }
        let parameters = parameters(&function.kernel.parameters, list)?;
        let launch = Launch { function: function.kernel.function, parameters, grid, block, shared };
        let thread = call.thread;
        call.submit(thread, stream, Action::Kernel(launch), None)?;
        *call.reports.launches.entry(function.name).or_default() += 1;
        Ok(())
    }
}
