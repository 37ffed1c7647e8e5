//! Chunks of Riegeli files, and the footer of ArrayRecord files.

use arrow_array::UInt64Array;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::arrow::ArrowArray;
use super::buffer::PyBuffer;
use super::frames::{PyFrames, u64s};
use super::run;
use crate::kernels::riegeli::{Limits, Stretch, numbers, unpack};
use crate::wire::riegeli::{Blocks, Head};

/// The records of some chunks of a file, in the order of the chunks. uint64 arrays describe the chunks:
/// start in the buffer, maximum number of bytes, start in the file, number of records, and bytes of all
/// records. Heads are always verified, and data with `check`.
#[pyfunction]
#[pyo3(signature = (buffer, starts, lengths, offsets, counts, sizes, max_record, max_chunk, check = true))]
#[expect(clippy::too_many_arguments, reason = "columns of one table, and three limits")]
pub fn riegeli_records(
    py: Python<'_>,
    buffer: &PyBuffer,
    starts: &Bound<'_, PyAny>,
    lengths: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    counts: &Bound<'_, PyAny>,
    sizes: &Bound<'_, PyAny>,
    max_record: u64,
    max_chunk: u64,
    check: bool,
) -> PyResult<PyFrames> {
    let table = [u64s(starts)?, u64s(lengths)?, u64s(offsets)?, u64s(counts)?, u64s(sizes)?];
    let [starts, lengths, offsets, counts, sizes] = &table;
    if table.iter().any(|column| column.len() != starts.len()) {
        return Err(PyValueError::new_err("the arrays are not of one length"));
    }
    let limits = Limits { record: max_record, chunk: max_chunk, check };
    let chunks: Vec<Stretch> = (0..starts.len())
        .map(|at| Stretch {
            start: usize::try_from(starts.value(at)).unwrap_or(usize::MAX),
            length: usize::try_from(lengths.value(at)).unwrap_or(usize::MAX),
            offset: offsets.value(at),
            known: Some((counts.value(at), sizes.value(at))),
        })
        .collect();
    run(py, || unpack(&buffer.0, &chunks, limits)).map(PyFrames)
}

/// Parse the head of the chunk at the front of a buffer, which is byte `offset` of its file: (kind, bytes
/// of data, number of records, bytes of all records).
#[pyfunction]
pub fn riegeli_head(
    py: Python<'_>,
    buffer: &PyBuffer,
    offset: u64,
) -> PyResult<(u8, u64, u64, u64)> {
    let head: Head = run(py, || Blocks::new(&buffer.0, offset).head())?;
    Ok((head.kind, head.data_size, head.num_records, head.decoded_size))
}

/// The values of some fields in records that are small messages of varints: a uint64 array for each field,
/// 0 for a missing field.
#[pyfunction]
pub fn message_numbers(
    py: Python<'_>,
    frames: &PyFrames,
    fields: [u64; 3],
) -> PyResult<(ArrowArray, ArrowArray, ArrowArray)> {
    let columns = run(py, || {
        let mut columns = [const { Vec::new() }; 3];
        for record in 0..frames.0.spans.len() {
            let message = frames.0.payload(record).unwrap_or_default();
            let found = numbers(message, fields).map_err(|fault| fault.in_record(record))?;
            columns.iter_mut().zip(found).for_each(|(column, number)| column.push(number));
        }
        Ok(columns)
    })?;
    let [one, two, three] = columns.map(|column| ArrowArray::new(UInt64Array::from(column)));
    Ok((one, two, three))
}
