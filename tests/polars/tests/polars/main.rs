//! Are series and frames of polars tensors over the same memory, and tensors series again?

mod back;
mod chunks;
mod dtypes;
mod hostile;
mod ownership;
mod streams;
mod values;
mod views;
