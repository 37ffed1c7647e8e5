//! Batches and byte strings to TFRecord frames.

use arrow_array::UInt32Array;
use arrow_array::UInt64Array;
use arrow_array::cast::AsArray;
use arrow_buffer::Buffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::arrow::{ArrowArray, import};
use super::bytes::{PyBuffer, joined};
use super::run;
use crate::kernels::encode_examples::{self as kernel, Framed, Payload};

/// Frames one after another, with what an index keeps of each.
#[pyclass(name = "Framed", frozen, module = "penstock._core")]
pub struct PyFramed {
    /// The frames, in parts that follow one another.
    parts: Vec<Buffer>,
    /// uint64: the bytes of each whole frame.
    #[pyo3(get)]
    lengths: Py<ArrowArray>,
    /// uint32: the masked checksum of each payload, as stored.
    #[pyo3(get)]
    checksums: Py<ArrowArray>,
}

impl PyFramed {
    /// The result of a kernel.
    pub(super) fn new(py: Python<'_>, framed: Framed) -> PyResult<Self> {
        let parts = vec![framed.data];
        Self::of(py, parts, framed.lengths, framed.checksums)
    }

    /// A result that has parts of the buffer `old` in it.
    pub(super) fn of(
        py: Python<'_>,
        parts: Vec<Buffer>,
        lengths: Vec<u64>,
        checksums: Vec<u32>,
    ) -> PyResult<Self> {
        Ok(Self {
            parts,
            lengths: Py::new(py, ArrowArray::new(UInt64Array::from(lengths)))?,
            checksums: Py::new(py, ArrowArray::new(UInt32Array::from(checksums)))?,
        })
    }
}

#[pymethods]
impl PyFramed {
    /// The frames as one Buffer; copied where they are in parts.
    #[getter]
    fn data(&self, py: Python<'_>) -> PyResult<PyBuffer> {
        match &self.parts[..] {
            [whole] => Ok(PyBuffer(whole.clone())),
            parts => joined(py, parts),
        }
    }

    /// The frames as Buffers that follow one another.
    #[getter]
    fn parts(&self) -> Vec<PyBuffer> {
        self.parts.iter().cloned().map(PyBuffer).collect()
    }

    /// Bytes of all frames.
    #[getter]
    fn num_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
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
