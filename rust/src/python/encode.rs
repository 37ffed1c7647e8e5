//! Encodes batches and byte strings as TFRecord frames.

use arrow_array::UInt32Array;
use arrow_array::UInt64Array;
use arrow_array::cast::AsArray;
use arrow_buffer::Buffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::arrow::{ArrowArray, import};
use super::buffer::{PyBuffer, joined};
use super::run;
use crate::kernels::encode_examples::{self as kernel, Framed, Payload};
use crate::kernels::parts::Pieces;

/// Encoded frames, with the facts about each that an index keeps.
#[pyclass(name = "Framed", frozen, module = "penstock._core")]
pub struct PyFramed {
    bytes: Pieces,
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
        Ok(Self {
            bytes: framed.bytes,
            lengths: Py::new(py, ArrowArray::new(UInt64Array::from(framed.lengths)))?,
            checksums: Py::new(py, ArrowArray::new(UInt32Array::from(framed.checksums)))?,
        })
    }
}

#[pymethods]
impl PyFramed {
    /// The frames in one buffer; a copy if they are in several pieces.
    #[getter]
    fn data(&self, py: Python<'_>) -> PyResult<PyBuffer> {
        let parts: Vec<Buffer> = self.bytes.parts().collect();
        match &parts[..] {
            [whole] => Ok(PyBuffer(whole.clone())),
            parts => joined(py, parts),
        }
    }

    /// The buffers of the frames.
    #[getter]
    fn buffers(&self) -> Vec<PyBuffer> {
        self.bytes.buffers.iter().cloned().map(PyBuffer).collect()
    }

    /// The pieces of the frames, in order: (buffer, start, end).
    #[getter]
    fn pieces(&self) -> Vec<(usize, usize, usize)> {
        self.bytes.pieces.iter().map(|piece| (piece.buffer, piece.start, piece.end)).collect()
    }

    /// Bytes of all frames.
    #[getter]
    fn num_bytes(&self) -> usize {
        self.bytes.num_bytes()
    }
}

/// The kind of message with this name.
pub(super) fn payload(kind: &str) -> PyResult<Payload> {
    match kind {
        "example" => Ok(Payload::Example),
        "sequence" => Ok(Payload::Sequence),
        _ => Err(PyValueError::new_err(format!("unknown kind of message: {kind:?}"))),
    }
}

/// Encode the records of a batch as framed `tf.train.Example` ("example") or `SequenceExample` ("sequence")
/// messages. Numbers must be int64 or float32.
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

/// Frame byte strings, each of which is a record.
#[pyfunction]
pub fn frame_records(py: Python<'_>, records: &Bound<'_, PyAny>) -> PyResult<PyFramed> {
    let array = import(records)?;
    let framed = run(py, || kernel::frame_records(array.as_ref()))?;
    PyFramed::new(py, framed)
}
