//! Batches and byte strings to TFRecord frames.

use arrow_array::UInt32Array;
use arrow_array::UInt64Array;
use arrow_array::cast::AsArray;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::arrow::{ArrowArray, import};
use super::bytes::PyBuffer;
use super::run;
use crate::kernels::encode_examples::{self as kernel, Framed, Payload};

/// Frames one after another, with what an index keeps of each.
#[pyclass(name = "Framed", frozen, get_all, module = "penstock._core")]
pub struct PyFramed {
    /// The frames, a Buffer.
    data: Py<PyBuffer>,
    /// uint64: the bytes of each whole frame.
    lengths: Py<ArrowArray>,
    /// uint32: the masked checksum of each payload, as stored.
    checksums: Py<ArrowArray>,
}

impl PyFramed {
    /// The result of a kernel.
    pub(super) fn new(py: Python<'_>, framed: Framed) -> PyResult<Self> {
        Ok(Self {
            data: Py::new(py, PyBuffer(framed.data))?,
            lengths: Py::new(py, ArrowArray::new(UInt64Array::from(framed.lengths)))?,
            checksums: Py::new(py, ArrowArray::new(UInt32Array::from(framed.checksums)))?,
        })
    }
}

/// The kind of message that a name stands for.
pub(super) fn payload(kind: &str) -> PyResult<Payload> {
    match kind {
        "example" => Ok(Payload::Example),
        "sequence" => Ok(Payload::Sequence),
        _ => Err(PyValueError::new_err(format!("unknown kind of message: {kind:?}"))),
    }
}

/// The records of a batch as framed `tf.train.Example` ("example") or `SequenceExample`
/// ("sequence") messages. Numbers must come as int64 or float32.
#[pyfunction]
pub fn encode_examples(py: Python<'_>, batch: &Bound<'_, PyAny>, kind: &str) -> PyResult<PyFramed> {
    let payload = payload(kind)?;
    let array = import(batch)?;
    let Some(batch) = array.as_struct_opt() else {
        return Err(PyTypeError::new_err("expected a record batch or a struct array"));
    };
    let framed = run(py, || kernel::encode_examples(batch, payload))?;
    PyFramed::new(py, framed)
}

/// Byte strings, each a record as it stands, as frames.
#[pyfunction]
pub fn frame_records(py: Python<'_>, records: &Bound<'_, PyAny>) -> PyResult<PyFramed> {
    let array = import(records)?;
    let framed = run(py, || kernel::frame_records(array.as_ref()))?;
    PyFramed::new(py, framed)
}
