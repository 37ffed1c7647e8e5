//! Examples as the parts of NumPy's arrays, for batches so small that Arrow's border would cost more
//! than the decoding.

use std::sync::Mutex;

use arrow_buffer::Buffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyTuple};

use super::arrow::import;
use super::frames::{PyFrames, PyPlan};
use super::objects::bytes_objects;
use super::run;
use crate::kernels::columns::{Column, Values};
use crate::kernels::decode_examples::decode_columns;
use crate::kernels::decode_images::values;

/// Up to here copying numbers into a bytearray is cheaper than NumPy's look at an array interface.
const SMALL_BYTES: usize = 64 << 10;

/// Numbers that NumPy may read and write by its array interface.
#[pyclass(name = "Numbers", frozen, module = "penstock._core")]
pub struct PyNumbers {
    values: Mutex<Held>,
    kind: &'static str,
    length: usize,
}

enum Held {
    Int64(Vec<i64>),
    Float(Vec<f32>),
    Int32(Vec<i32>),
}

#[pymethods]
impl PyNumbers {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut held = self.values.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let address = match &mut *held {
            Held::Int64(values) => values.as_mut_ptr() as usize,
            Held::Float(values) => values.as_mut_ptr() as usize,
            Held::Int32(values) => values.as_mut_ptr() as usize,
        };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.kind)?;
        interface.set_item("shape", (self.length,))?;
        // The vector is never touched again, and lives as long as the array that points to it.
        interface.set_item("data", (address, false))?;
        Ok(interface)
    }

    fn __len__(&self) -> usize {
        self.length
    }
}

/// Numbers on their way to NumPy: a bytearray for `np.frombuffer`, or where there are many of them an
/// object for `np.asarray`.
fn numbers(py: Python<'_>, held: Held) -> PyResult<Bound<'_, PyAny>> {
    let (kind, length, width) = match &held {
        Held::Int64(values) => ("<i8", values.len(), 8),
        Held::Float(values) => ("<f4", values.len(), 4),
        Held::Int32(values) => ("<i4", values.len(), 4),
    };
    if length.saturating_mul(width) > SMALL_BYTES {
        return Ok(Bound::new(py, PyNumbers { values: Mutex::new(held), kind, length })?.into_any());
    }
    let bytes = match held {
        Held::Int64(values) => Buffer::from_vec(values),
        Held::Float(values) => Buffer::from_vec(values),
        Held::Int32(values) => Buffer::from_vec(values),
    };
    Ok(PyByteArray::new(py, &bytes).into_any())
}

fn parts<'py>(py: Python<'py>, column: Column, sparse: bool) -> PyResult<Bound<'py, PyTuple>> {
    let (values, lists, frames) = column.into_parts();
    let values = match values {
        Some(Values::Int64(values)) => numbers(py, Held::Int64(values))?,
        Some(Values::Float(values)) => numbers(py, Held::Float(values))?,
        Some(Values::Bytes(ends, data)) => {
            let span = |pair: &[i32]| match *pair {
                [start, end] => data.get(start as usize..end as usize),
                _ => None,
            };
            let spans: Vec<_> = ends.windows(2).map(span).collect();
            PyList::new(py, bytes_objects(py, &spans)?)?.into_any()
        }
        None => py.None().into_bound(py),
    };
    if let (true, Some(lists)) = (sparse, &lists) {
        let (indices, longest) = run(py, || Ok(indices(lists, frames.as_deref())))?;
        let longest = PyTuple::new(py, longest)?.into_any();
        return PyTuple::new(py, [values, numbers(py, Held::Int64(indices))?, longest]);
    }
    let ends = |ends: Option<Vec<i32>>| match ends {
        Some(ends) => numbers(py, Held::Int32(ends)),
        None => Ok(py.None().into_bound(py)),
    };
    PyTuple::new(py, [values, ends(lists)?, ends(frames)?])
}

/// Where the values of lists stand: record and place, or record, frame and place, of each; and the
/// longest list, or the most frames and the longest.
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

/// How much each list holds.
fn counts(ends: &[i32]) -> impl Iterator<Item = usize> {
    ends.windows(2).map(|pair| match *pair {
        [start, end] => end.saturating_sub(start) as usize,
        _ => 0,
    })
}

fn longest(ends: &[i32]) -> i64 {
    counts(ends).max().unwrap_or_default() as i64
}

/// Examples decoded, as (values, ends of lists or None, ends of lists of frames or None) for each
/// column of the plan, or (values, indices, longest lists) for those numbered in `sparse`: numbers as
/// `numbers` gives them, strings as a list of bytes. `payloads` is a list of bytes, a binary array, or
/// Frames.
#[pyfunction]
pub fn decode_tensors<'py>(
    py: Python<'py>,
    plan: &PyPlan,
    payloads: &Bound<'py, PyAny>,
    sparse: Vec<usize>,
) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    let columns = if let Ok(list) = payloads.cast::<PyList>() {
        let not_bytes = |_| PyTypeError::new_err("expected a list of bytes");
        let held: Vec<Bound<'py, PyBytes>> = list
            .iter()
            .map(|value| value.cast_into::<PyBytes>().map_err(|e| not_bytes(e)))
            .collect::<PyResult<_>>()?;
        let records: Vec<&[u8]> = held.iter().map(|value| value.as_bytes()).collect();
        run(py, || decode_columns(&records[..], &plan.plan, |_| Ok(())))?
    } else if let Ok(frames) = payloads.cast::<PyFrames>() {
        let frames = &frames.get().0;
        run(py, || decode_columns(frames, &plan.plan, |_| Ok(())))?
    } else {
        let array = import(payloads)?;
        run(py, || {
            let records: Vec<&[u8]> =
                values(&array)?.into_iter().map(Option::unwrap_or_default).collect();
            decode_columns(&records[..], &plan.plan, |_| Ok(()))
        })?
    };
    let columns = columns.into_iter().enumerate();
    columns.map(|(number, column)| parts(py, column, sparse.contains(&number))).collect()
}
