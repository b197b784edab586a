//! A slice of cudarc as a tensor, and a tensor as a view of cudarc's. Needs a GPU.
//!
//! `cargo run --example 08-cudarc --features cuda`

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;

use arrow_dlpack::transfer::{Transfer, tensor_to_device};
use arrow_dlpack::{Device, Tensor};
use cudarc::driver::CudaContext;

fn main() -> Result<(), Box<dyn Error>> {
    let context = CudaContext::new(0)?;
    let (producer, consumer) = (context.new_stream()?, context.new_stream()?);

    // The tensor has the event of the slice's stream, and frees the slice behind the work that uses the tensor.
    let slice = producer.clone_htod(&[1.0_f32, 2.0, 3.0, 4.0])?;
    let tensor = Tensor::from_cuda_slice(slice, &[2, 2])?;

    // `consumer` waits for that event before it reads. The guard frees nothing.
    let guard = tensor.as_cuda_slice::<f32>(&consumer)?;
    println!("{:?}", consumer.clone_dtoh(&guard.view())?);
    drop(guard);

    let host = tensor_to_device(&tensor, &Transfer::to(Device::CPU, "the host prints it"))?;
    println!("{:?}", host.to_vec::<f32>()?);
    Ok(())
}
