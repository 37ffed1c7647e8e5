//! Decodes RecordIO frames to columns, and encodes columns as RecordIO frames.

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::arrow::{ArrowArray, import};
use super::encode::PyFramed;
use super::frames::{Checks, PyFrames};
use super::run;
use crate::kernels::decode_recordio::{self as decoding, Label, Wanted};
use crate::kernels::encode_recordio as encoding;
use crate::wire::{Fault, FaultKind};

/// RecordIO payloads as binary, or with `lend` as binary_view. Views are made without a copy,
/// except of records with several parts. With `check`, the frames are verified first.
#[pyfunction]
#[pyo3(signature = (frames, lend, check = false, indexed = None))]
pub fn recordio_payloads(
    py: Python<'_>,
    frames: &PyFrames,
    lend: bool,
    check: bool,
    indexed: Option<&Bound<'_, PyAny>>,
) -> PyResult<ArrowArray> {
    let checks = Checks::new(check, indexed)?;
    let values = run(py, || {
        checks.pass(&frames.0)?;
        decoding::payloads(&frames.0, lend)
    })?;
    Ok(ArrowArray(values))
}

/// The requested columns of label, id, id2 and image, in this order, as a struct array. `num_labels` is 0
/// for one number, the length of fixed-size lists, or None for lists. With `lend`, images are binary_view,
/// not binary.
#[pyfunction]
#[pyo3(signature = (frames, columns, num_labels, lend, check = false, indexed = None))]
pub fn recordio_columns(
    py: Python<'_>,
    frames: &PyFrames,
    columns: Vec<String>,
    num_labels: Option<usize>,
    lend: bool,
    check: bool,
    indexed: Option<&Bound<'_, PyAny>>,
) -> PyResult<ArrowArray> {
    let checks = Checks::new(check, indexed)?;
    let label = match num_labels {
        None => Label::List,
        Some(0) => Label::Scalar,
        Some(count) => Label::Fixed(count),
    };
    let mut wanted = Wanted { borrow: lend, ..Wanted::default() };
    for column in &columns {
        match column.as_str() {
            "label" => wanted.label = Some(label),
            "id" => wanted.id = true,
            "id2" => wanted.id2 = true,
            "image" => wanted.image = true,
            other => return Err(PyValueError::new_err(format!("unknown column {other:?}"))),
        }
    }
    let decoded = run(py, || {
        checks.pass(&frames.0)?;
        batch(decoding::columns(&frames.0, wanted)?, frames.0.spans.len())
    })?;
    Ok(ArrowArray::batch(decoded))
}

fn batch(columns: Vec<(&str, ArrayRef)>, num_records: usize) -> Result<RecordBatch, Fault> {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns
        .into_iter()
        .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
        .unzip();
    let options = RecordBatchOptions::new().with_row_count(Some(num_records));
    RecordBatch::try_new_with_options(Schema::new(fields).into(), arrays, &options)
        .map_err(|error| Fault::new(FaultKind::Schema, 0, error.to_string()))
}

/// Encode byte strings as RecordIO frames, each after the header in the same row of a struct array (label:
/// float32 or a list of them; id, id2: uint64), if one is given.
#[pyfunction]
#[pyo3(signature = (bodies, headers = None))]
pub fn encode_recordio(
    py: Python<'_>,
    bodies: &Bound<'_, PyAny>,
    headers: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyFramed> {
    let bodies = import(bodies)?;
    let headers = headers.map(import).transpose()?;
    let headers = match &headers {
        None => None,
        Some(array) => Some(array.as_struct_opt().ok_or_else(|| {
            PyTypeError::new_err("expected a record batch or a struct array of headers")
        })?),
    };
    let framed = run(py, || encoding::encode_recordio(bodies.as_ref(), headers))?;
    PyFramed::new(py, framed)
}
