//! Records of tar archives: their fields, records to columns, and columns to records.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_schema::{Field, Schema};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::arrow::{ArrowArray, import};
use super::buffer::PyBuffer;
use super::encode::PyFramed;
use super::frames::PyFrames;
use super::run;
use crate::kernels::decode_tar::{Contents, Plan, count_fields, decode};
use crate::kernels::encode_tar as kernel;
use crate::wire::tar::{Head, end_of_members, head};
use crate::wire::{Fault, FaultKind};

/// Which fields of a tar archive to read, made once for many batches.
#[pyclass(name = "TarPlan", frozen, module = "penstock._core")]
pub struct PyTarPlan {
    plan: Plan,
    names: Vec<String>,
}

#[pymethods]
impl PyTarPlan {
    /// With `complete`, a record with other fields is a fault.
    #[new]
    #[pyo3(signature = (fields, keys, complete = false))]
    fn new(fields: Vec<(String, String)>, keys: bool, complete: bool) -> PyResult<Self> {
        let mut names: Vec<String> = fields.iter().map(|field| field.0.clone()).collect();
        if keys {
            names.insert(0, "__key__".to_owned());
        }
        let contents = |kind: &str| match kind {
            "bytes" => Ok(Contents::Bytes),
            "views" => Ok(Contents::Views),
            "text" => Ok(Contents::Text),
            "number" => Ok(Contents::Number),
            other => Err(PyValueError::new_err(format!("unknown contents {other:?}"))),
        };
        let fields = fields.into_iter().map(|(name, kind)| Ok((name, contents(&kind)?)));
        Ok(Self { plan: Plan::new(fields.collect::<PyResult<_>>()?, keys, complete), names })
    }

    /// The columns of some records: a struct array.
    fn decode(&self, py: Python<'_>, frames: &PyFrames) -> PyResult<ArrowArray> {
        let decoded = run(py, || batch(&self.names, decode(&frames.0, &self.plan)?, &frames.0))?;
        Ok(ArrowArray::batch(decoded))
    }
}

fn batch(
    names: &[String],
    arrays: Vec<ArrayRef>,
    frames: &crate::kernels::walk::Frames,
) -> Result<RecordBatch, Fault> {
    let field =
        |(name, array): (&String, &ArrayRef)| Field::new(name, array.data_type().clone(), true);
    let fields: Vec<Field> = names.iter().zip(&arrays).map(field).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(frames.spans.len()));
    RecordBatch::try_new_with_options(Schema::new(fields).into(), arrays, &options)
        .map_err(|error| Fault::new(FaultKind::Schema, 0, error.to_string()))
}

/// The fields of some records, sorted, at most `most` of them, each with the number of records that have
/// it.
#[pyfunction]
pub fn tar_fields(
    py: Python<'_>,
    frames: &PyFrames,
    most: usize,
) -> PyResult<BTreeMap<String, u64>> {
    run(py, || count_fields(&frames.0, most))
}

/// For each record, how many of its last bytes are the zeros that end an archive (uint64).
#[pyfunction]
pub fn tar_end_bytes(frames: &PyFrames) -> ArrowArray {
    let zeros = (0..frames.0.spans.len()).map(|record| {
        let frame = frames.0.payload(record).unwrap_or_default();
        frame.len().saturating_sub(end_of_members(frame)) as u64
    });
    ArrowArray::new(zeros.collect::<UInt64Array>())
}

/// Whether these bytes may be the beginning of a tar archive.
#[pyfunction]
pub fn is_tar_head(buffer: &PyBuffer) -> bool {
    match head(&buffer.0) {
        Head::Member(member) => !member.name.is_empty(),
        Head::Need(_) => buffer.0.len() >= 512,
        Head::Zeros | Head::Broken(_) => false,
    }
}

/// Encode columns of byte strings as records with these keys. Fields have the names and order of the
/// columns.
#[pyfunction]
pub fn encode_tar(
    py: Python<'_>,
    keys: &Bound<'_, PyAny>,
    batch: &Bound<'_, PyAny>,
) -> PyResult<PyFramed> {
    let (keys, array) = (import(keys)?, import(batch)?);
    let Some(batch) = array.as_struct_opt() else {
        return Err(PyTypeError::new_err("expected a record batch or a struct array"));
    };
    let framed = run(py, || kernel::encode(keys.as_ref(), batch))?;
    PyFramed::new(py, framed)
}

/// The global PAX header with a comment, padded.
#[pyfunction]
pub fn tar_comment(text: &str) -> PyBuffer {
    PyBuffer(arrow_buffer::Buffer::from_vec(kernel::comment(text.as_bytes())))
}
