//! Adds, removes, renames and finds fields of existing records.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::arrow::{ArrowArray, import};
use super::encode::{PyFramed, payload};
use super::frames::PyFrames;
use super::run;
use crate::kernels::encode_examples::Encoder;
use crate::kernels::splice_fields::{self as kernel, Edit};
use crate::wire::{Fault, FaultKind};

/// Change the fields of records. Returns the new frames, and a list with the number of records that had
/// each name: first the names of `drop`, then those of `rename`. `fields` has a row for each record, and
/// its columns are appended. `verify` verifies all old payloads; without it, damage stays detectable in
/// the new frames.
#[pyfunction]
#[pyo3(signature = (
    frames, fields = None, kind = "example", *, drop = Vec::new(), rename = Vec::new(),
    replace = false, verify = true
))]
#[expect(clippy::too_many_arguments, reason = "keywords on the other side")]
pub fn splice_fields(
    py: Python<'_>,
    frames: &PyFrames,
    fields: Option<&Bound<'_, PyAny>>,
    kind: &str,
    drop: Vec<String>,
    rename: Vec<(String, String)>,
    replace: bool,
    verify: bool,
) -> PyResult<(PyFramed, Vec<u64>)> {
    let payload = payload(kind)?;
    let array = fields.map(import).transpose()?;
    let batch = match &array {
        None => None,
        Some(array) => match array.as_struct_opt() {
            Some(batch) => Some(batch),
            None => return Err(PyTypeError::new_err("expected a record batch or a struct array")),
        },
    };
    let spliced = run(py, || {
        let added = batch.map(|batch| Encoder::new(batch, payload)).transpose()?;
        let edit = Edit::new(payload, &drop, &rename, added.as_ref(), replace)?;
        kernel::splice(&frames.0, &edit, added.as_ref(), verify)
    })?;
    Ok((PyFramed::new(py, spliced.framed)?, spliced.found))
}

/// Which of the names each record has: a struct array with a bool column for each name.
#[pyfunction]
pub fn has_fields(
    py: Python<'_>,
    frames: &PyFrames,
    names: Vec<String>,
    kind: &str,
) -> PyResult<ArrowArray> {
    let payload = payload(kind)?;
    let batch = run(py, || {
        let found = kernel::has_fields(&frames.0, &names, payload)?;
        let columns: Vec<ArrayRef> =
            found.into_iter().map(|one| Arc::new(BooleanArray::from(one)) as ArrayRef).collect();
        let fields: Vec<Field> =
            names.iter().map(|name| Field::new(name, DataType::Boolean, false)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(frames.0.spans.len()));
        RecordBatch::try_new_with_options(Schema::new(fields).into(), columns, &options)
            .map_err(|error| Fault::new(FaultKind::Schema, 0, error.to_string()))
    })?;
    Ok(ArrowArray::batch(batch))
}
