//! What the class `Loader` holds.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::keywords::Order;
use super::sources::Sources;
use crate::loader::{LoadOptions, Progress};
use crate::spec::Conversion;

/// Yields training batches of `batch_size` rows from an Arrow stream, prefetched on a native thread.
///
/// A batch is a matrix of all columns or of those that `columns` lists, or a dict of named groups. No other
/// object shares its memory, which the loader reuses after the batch is dropped; but columns of `arrow` may be
/// over the memory of the source.
///
/// source: Arrow data of any library (a table, data frame, query or stream), an iterable of it, a data set or
///     file that is read in batches, or a callable without arguments that returns one of these. Each `iter()`
///     starts an epoch: it reads the source again, or calls the callable. A reader, an iterator or the result
///     of a connection can be read once.
/// batch_size: rows per batch; the last batch may have fewer.
/// columns: a list of names, or a dict {name: column, list of columns that become a matrix, or `group` of these
///     with options of its own, or `padded`, `ragged` or `arrow` columns}. None takes all columns except the index
///     of a pandas data frame.
/// dtype, nulls, decimal, dictionary, unit, length: as for `to_tensors`, each also as a dict by column, dtype and
///     nulls also by group. nulls="keep" is an error, unless the `group` has a validity.
/// categories, unknown: as for `to_tensor`, for all columns or as a dict by column. An unknown value is an error of
///     the batch for which its row is read.
/// xp: an array namespace, or its name ("numpy", "torch", "jax", ...); batches are its arrays.
/// device: where the batches are: "cpu"; "cuda", copied ahead on a stream of the loader; "cuda_host",
///     page-locked memory.
/// allocator: as for `to_tensor`, for batches on a device; called on the thread that makes them. None is the device's
///     pool, with any `xp`: with a library's own allocator, copies would wait for that library's work.
/// shuffle_buffer: the number of rows that the shuffle holds back. Each new row replaces a random row of the
///     buffer, which goes into the batch. 0 keeps the source's order. If the buffer holds all rows, every order
///     is equally likely; a small buffer only mixes rows that are near each other.
/// shuffle_bytes: the most bytes of the rows in that buffer, of all lanes; None sets no limit. A row counts the bytes
///     of its values, and 8 for the place of each string and list of `padded`, `ragged` and `arrow`. More bytes are an
///     error of the batch that needs them: the order does not depend on it.
/// seed: the seed of the shuffle, together with the epoch's number. None draws a random seed; `state_dict()`
///     contains it. Without a shuffle no seed is used, and the state has None.
/// drop_last: whether to leave out a last batch with fewer rows.
/// prefetch: the number of batches to make ahead; 0 makes each batch on request, without a thread.
/// threads: the number of threads that convert a large batch; None is ARROW_DLPACK_THREADS, or one per core.
/// rank, world_size: batch k belongs to rank k % world_size. All ranks get the same number of batches.
/// sources: the parts of a source, instead of `source`: a list of sources or callables, each also as (source, rows)
///     with its number of rows, or None. All have one schema. The threads that read them open them.
/// lanes: the number of equal parts that the rows of `sources` are cut into. Batch k has the next rows of lane
///     k % lanes, so that a rank reads only its lanes if world_size divides their number. Each lane shuffles by
///     itself, in an equal part of the buffer. More than one needs the number of rows of each of `sources`.
/// shuffle_shards: whether each epoch permutes `sources`; None does if there is a shuffle_buffer.
/// readers: the number of threads that read lanes.
/// verify: what a loaded state is compared with, by hashes of sampled rows: "replay", the rows that are read
///     again; "all", which makes it an error if rows that were taken have no hashes: those of other ranks' lanes.
/// worker: (v, V) makes only the rank's batches j with j % V == v, for a worker process v of V of the rank.
///     world_size * V must divide `lanes`, so that no worker reads the rows of another.
///
/// A pickle holds the source, if that can be pickled, the options and the state of `state_dict()`. The new
/// loader continues from there.
///
/// The seed, epoch, rank, world size, the sizes above and the source's rows alone determine the order of the
/// rows. The source has to yield the same rows in the same order each time, as tables and files do, and a query
/// with ORDER BY over a unique key.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct Loader {
    pub(super) sources: Sources,
    pub(super) conversion: Conversion,
    /// `nulls=` as it was passed, for a pickle: of a fill not every type of number is in the options.
    pub(super) nulls: Option<Py<PyAny>>,
    /// The groups of `columns=`, for a pickle.
    pub(super) groups: Option<Py<PyDict>>,
    pub(super) xp: Option<Py<PyAny>>,
    pub(super) allocator: Option<Py<PyAny>>,
    pub(super) load: LoadOptions,
    pub(super) order: Order,
    /// Whether `worker=` was passed.
    pub(super) is_worker: bool,
    /// Whether a state must be compared with what is read.
    pub(super) verifies_all: bool,
    pub(super) progress: Arc<Progress>,
}
