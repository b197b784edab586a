//! Reads a whole source, or each of its shards, for what data tells of itself: its categories and statistics.

use arrow_schema::FieldRef;
use pyo3::prelude::*;

use super::sources::Sources;
use crate::arrow::{DeviceArray, difference};
use crate::error::{Error, Result};
use crate::loader::other_rows;
use crate::python::sources::Projection;
use crate::spec::Conversion;
use crate::stream_order::Interrupts;

/// Returns what `begin` makes of the type of the columns that are read, after `add` was called with each array of the
/// source, or of the shards in their order.
///
/// # Errors
/// Those of `begin`, before a stream is consumed, of `add`, and of reading; if shards have other types than the first, or other rows than
/// they were said to have.
pub(super) fn read_whole<T: Send>(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    columns: impl IntoIterator<Item = String>,
    begin: impl Fn(&FieldRef) -> Result<T> + Sync,
    add: impl Fn(&mut T, &DeviceArray) -> Result<()> + Sync,
) -> PyResult<T> {
    let sources = Sources::of_one_or_shards(py, source)?;
    let conversion = Conversion::default().columns(columns);
    let mut projection = Projection::of(&conversion);
    let mut read: Option<(FieldRef, T)> = None;
    for shard in 0..sources.len() {
        let opened = sources.open(py, shard, &projection, &|unread| {
            // A wrong name must not consume a stream.
            Ok(begin(unread.field).map(drop)?)
        })?;
        opened.take_over();
        let name = |error: Error| if sources.len() > 1 { error.in_shard(shard) } else { error };
        let (field, mut whole, opened) = match read.take() {
            None => {
                // Positions are those of the first shard.
                if opened.whole.is_none() {
                    projection = Projection::All;
                }
                (opened.whole().clone(), begin(opened.stream.field())?, opened)
            }
            Some((field, whole)) => (field, whole, opened.narrowed(&projection)),
        };
        if let Some((found, first)) = difference(opened.whole(), &field) {
            let error = Error::argument(format!("the shard has {found}, and the first one {first}"));
            return Err(name(error.remedy_is("give all shards one schema")).into());
        }
        let (mut stream, told) = (opened.stream, sources.told(shard));
        let added = py.detach(|| -> Result<()> {
            let (mut interrupts, mut rows) = (Interrupts::new(), 0_usize);
            for array in &mut stream {
                let array = array.map_err(name)?;
                add(&mut whole, &array).map_err(name)?;
                rows = rows.saturating_add(array.len());
                interrupts.check()?;
            }
            told.filter(|told| *told != rows).map_or(Ok(()), |told| Err(name(other_rows(told, &rows.to_string()))))
        });
        // A source may need the interpreter to be released.
        drop(stream);
        added?;
        read = Some((field, whole));
    }
    let (_, whole) = read.ok_or_else(|| Error::internal("a source without a shard"))?;
    Ok(whole)
}
