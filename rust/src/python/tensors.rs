//! Decodes Examples to NumPy arrays, for batches so small that the Arrow interface would cost more than the
//! decoding.

use arrow_buffer::Buffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyTuple};

use super::arrow::import;
use super::frames::{PyFrames, PyPlan};
use super::objects::bytes_objects;
use super::run;
use super::values::{PyValues, Store};
use crate::kernels::columns::{Column, Values};
use crate::kernels::decode_examples::decode_columns;
use crate::kernels::decode_images::values;

/// Up to this size, copying numbers into a bytearray is faster than NumPy's array interface.
const SMALL_BYTES: usize = 64 << 10;

/// Numbers for NumPy: a bytearray for `np.frombuffer`, or, if there are many, an object for `np.asarray`.
fn numbers(py: Python<'_>, store: Store) -> PyResult<Bound<'_, PyAny>> {
    let (length, width) = match &store {
        Store::Bytes(values) => (values.len(), 1),
        Store::Int32(values) => (values.len(), 4),
        Store::Int64(values) => (values.len(), 8),
        Store::Floats(values) => (values.len(), 4),
        Store::Doubles(values) => (values.len(), 8),
    };
    if length.saturating_mul(width) > SMALL_BYTES {
        return Ok(Bound::new(py, PyValues::new(store, vec![length]))?.into_any());
    }
    let bytes = match store {
        Store::Bytes(values) => Buffer::from_vec(values),
        Store::Int32(values) => Buffer::from_vec(values),
        Store::Int64(values) => Buffer::from_vec(values),
        Store::Floats(values) => Buffer::from_vec(values),
        Store::Doubles(values) => Buffer::from_vec(values),
    };
    Ok(PyByteArray::new(py, &bytes).into_any())
}

fn parts<'py>(py: Python<'py>, column: Column, sparse: bool) -> PyResult<Bound<'py, PyTuple>> {
    let (values, lists, frames) = column.into_parts();
    let values = match values {
        Some(Values::Int64(values)) => numbers(py, Store::Int64(values))?,
        Some(Values::Float(values)) => numbers(py, Store::Floats(values))?,
        Some(Values::Double(values)) => numbers(py, Store::Doubles(values))?,
        Some(Values::Bytes(ends, data)) => {
            let span = |pair: &[i32]| match *pair {
                [start, end] => data.get(start as usize..end as usize),
                _ => None,
            };
            let spans: Vec<_> = ends.windows(2).map(span).collect();
            PyList::new(py, bytes_objects(py, &spans)?)?.into_any()
        }
        Some(Values::Borrowed(strings)) => {
            let spans: Vec<_> = strings.iter().collect();
            PyList::new(py, bytes_objects(py, &spans)?)?.into_any()
        }
        None => py.None().into_bound(py),
    };
    if let (true, Some(lists)) = (sparse, &lists) {
        let (indices, longest) = run(py, || Ok(indices(lists, frames.as_deref())))?;
        let longest = PyTuple::new(py, longest)?.into_any();
        return PyTuple::new(py, [values, numbers(py, Store::Int64(indices))?, longest]);
    }
    let ends = |ends: Option<Vec<i32>>| match ends {
        Some(ends) => numbers(py, Store::Int32(ends)),
        None => Ok(py.None().into_bound(py)),
    };
    PyTuple::new(py, [values, ends(lists)?, ends(frames)?])
}

/// The indices of the values of lists: (record, place), or (record, frame, place). Also returns the
/// length of the longest list, or the most frames of a record and the length of the longest list.
fn indices(lists: &[i32], frames: Option<&[i32]>) -> (Vec<i64>, Vec<i64>) {
    let Some(frames) = frames else {
        let mut out = vec![0; 2 * lists.last().map_or(0, |&n| n as usize)];
        let mut slots = out.chunks_exact_mut(2);
        for (record, count) in (0..).zip(counts(lists)) {
            for (slot, place) in slots.by_ref().take(count).zip(0..) {
                slot.copy_from_slice(&[record, place]);
            }
        }
        return (out, vec![longest(lists)]);
    };
    let mut out = vec![0; 3 * frames.last().map_or(0, |&n| n as usize)];
    let mut slots = out.chunks_exact_mut(3);
    let mut inside = counts(frames);
    for (record, count) in (0..).zip(counts(lists)) {
        for (frame, count) in (0..).zip(inside.by_ref().take(count)) {
            for (slot, place) in slots.by_ref().take(count).zip(0..) {
                slot.copy_from_slice(&[record, frame, place]);
            }
        }
    }
    (out, vec![longest(lists), longest(frames)])
}

/// The number of values of each list.
fn counts(ends: &[i32]) -> impl Iterator<Item = usize> {
    ends.windows(2).map(|pair| match *pair {
        [start, end] => end.saturating_sub(start) as usize,
        _ => 0,
    })
}

fn longest(ends: &[i32]) -> i64 {
    counts(ends).max().unwrap_or_default() as i64
}

/// Decode Examples to (values, ends of lists or None, ends of lists of frames or None) for each column of
/// the plan, or (values, indices, longest lists) for columns numbered in `sparse`. Numbers are returned as
/// by `numbers`, and strings as a list of bytes. `payloads` is a list of bytes, a binary array, or Frames.
#[pyfunction]
pub fn decode_tensors<'py>(
    py: Python<'py>,
    plan: &PyPlan,
    payloads: &Bound<'py, PyAny>,
    sparse: Vec<usize>,
) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    let columns = if let Ok(list) = payloads.cast::<PyList>() {
        let held: Vec<Bound<'py, PyBytes>> = list
            .iter()
            .map(|value| {
                value
                    .cast_into::<PyBytes>()
                    .map_err(|_| PyTypeError::new_err("expected a list of bytes"))
            })
            .collect::<PyResult<_>>()?;
        let records: Vec<&[u8]> = held.iter().map(|value| value.as_bytes()).collect();
        run(py, || decode_columns(&records[..], &plan.plan, None))?
    } else if let Ok(frames) = payloads.cast::<PyFrames>() {
        let frames = &frames.get().0;
        run(py, || decode_columns(frames, &plan.plan, Some(&frames.buffer)))?
    } else {
        let array = import(payloads)?;
        run(py, || {
            let records: Vec<&[u8]> =
                values(&array)?.into_iter().map(Option::unwrap_or_default).collect();
            decode_columns(&records[..], &plan.plan, None)
        })?
    };
    let columns = columns.into_iter().enumerate();
    columns.map(|(number, column)| parts(py, column, sparse.contains(&number))).collect()
}
