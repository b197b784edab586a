//! Reads a stream to its end by a [`Conversion`].

use smallvec::SmallVec;

use super::run::Run;
use crate::arrow::{Chunks, DeviceArrayStream, empty_on};
use crate::column::run_here;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::matrix::{Read, read};
use crate::spec::{Conversion, ResultSpec};
use crate::tensor::Tensor;

impl Conversion {
    /// Reads a stream to its end as the only result: see [`Conversion::read_tensors`].
    ///
    /// # Errors
    /// As [`Conversion::read_tensors`].
    pub fn read_tensor(&self, stream: &mut DeviceArrayStream) -> Result<Tensor> {
        self.require_whole()?;
        self.with_paths(stream, |stream| self.read_tensor_there(stream))
    }

    fn read_tensor_there(&self, stream: &mut DeviceArrayStream) -> Result<Tensor> {
        let field = stream.field().clone();
        self.check_columns(&field)?;
        let results = self.results(&field, None)?;
        self.check_stream(stream)?;
        match self.read(stream, &results)? {
            Read::Arrays(arrays) => self.convert_whole(&field, &arrays, Run::default()),
            Read::Tensors(mut tensors) => {
                let tensor = tensors.pop().ok_or_else(|| Error::internal("a stream without a result"))?;
                self.send_one(tensor, &run_here)
            }
        }
    }

    /// Reads a stream to its end as named results.
    ///
    /// Arrays are let go of as they are packed: beside the results, arrays of an eighth of their size are held at most, and the
    /// one that was read last. All of them are held for a column-major result of several columns, for codes of dictionaries, and
    /// on a device. A single array stays where it is, if it can be the result as it lies.
    ///
    /// # Errors
    /// As [`Conversion::check`], before anything is read; then those of the stream, and as [`Conversion::to_tensors`]. The stream
    /// can be read on, without the arrays that were read.
    pub fn read_tensors(&self, stream: &mut DeviceArrayStream) -> Result<Vec<(String, Tensor)>> {
        self.with_paths(stream, |stream| self.read_tensors_there(stream))
    }

    fn read_tensors_there(&self, stream: &mut DeviceArrayStream) -> Result<Vec<(String, Tensor)>> {
        let field = stream.field().clone();
        self.check_columns(&field)?;
        self.require_fixed_rows()?;
        let results = self.results(&field, None)?;
        self.check_stream(stream)?;
        match self.read(stream, &results)? {
            Read::Arrays(arrays) => self.to_tensors(Chunks::new(&field, &arrays)),
            Read::Tensors(tensors) => {
                let names = results.iter().map(|result| result.name().to_owned());
                Ok(names.zip(self.send(tensors, &run_here)?).collect())
            }
        }
    }

    /// Refuses a stream whose results cannot come where they are asked for.
    fn check_stream(&self, stream: &DeviceArrayStream) -> Result<()> {
        self.destination().check_stream(Device::new(stream.device_type(), 0))
    }

    /// Reads a stream to its end: these results, which are those of [`Conversion::results`], or its arrays. There is at least one of
    /// a device.
    ///
    /// # Errors
    /// Those of the stream, and of the results.
    pub(crate) fn read(&self, stream: &mut DeviceArrayStream, results: &[ResultSpec]) -> Result<Read> {
        let read = read(stream, results, &self.matrix())?;
        let device = Device::new(stream.device_type(), 0);
        Ok(match read {
            Read::Arrays(arrays) if arrays.is_empty() && !device.is_cpu() => {
                Read::Arrays(SmallVec::from_elem(empty_on(stream.field().clone(), device)?, 1))
            }
            read => read,
        })
    }
}
