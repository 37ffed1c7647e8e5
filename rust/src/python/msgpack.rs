//! MessagePack: facts about records, records to columns, and columns to records.

use std::sync::{Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::{RecordBatch, RecordBatchOptions, StructArray};
use arrow_schema::{Fields, Schema};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::arrow::{ArrowArray, import};
use super::encode::PyFramed;
use super::frames::{Checks, PyFrames};
use super::run;
use crate::kernels::decode_msgpack::{Costs, Plan, decode};
use crate::kernels::encode_msgpack as encoding;
use crate::kernels::infer_msgpack::{self as inference, Facts};
use crate::wire::{Fault, FaultKind};

/// Facts about some records, for a schema.
#[pyclass(name = "MsgpackFacts", frozen, module = "penstock._core")]
pub struct PyFacts(Mutex<Facts>);

#[pymethods]
impl PyFacts {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(Facts::default()))
    }

    /// Add records, whose containers may be nested `nesting` levels deep.
    fn see(&self, py: Python<'_>, frames: &PyFrames, nesting: usize) -> PyResult<()> {
        let frames = &frames.0;
        run(py, || self.0.lock().unwrap_or_else(PoisonError::into_inner).see(frames, nesting))
    }

    /// The number of records so far.
    #[getter]
    fn num_records(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).num_records()
    }

    /// A batch without records, whose columns fit the records; None if the records are not maps of fields.
    fn columns(&self) -> PyResult<Option<ArrowArray>> {
        let fields = self.0.lock().unwrap_or_else(PoisonError::into_inner).fields();
        Ok(fields
            .map(|fields| ArrowArray::batch(RecordBatch::new_empty(Schema::new(fields).into()))))
    }
}

/// Which columns to decode, made once for many batches.
#[pyclass(name = "MsgpackPlan", frozen, module = "penstock._core")]
pub struct PyMsgpackPlan {
    plan: Plan,
    fields: Fields,
}

/// A record batch or a struct array from Python.
pub fn batch_of(object: &Bound<'_, PyAny>) -> PyResult<StructArray> {
    match import(object)?.as_struct_opt() {
        Some(batch) => Ok(batch.clone()),
        None => Err(PyTypeError::new_err("expected a record batch or a struct array")),
    }
}

#[pymethods]
impl PyMsgpackPlan {
    /// The columns of a batch without records. `nesting` and `blanks` limit what a file may cost. With
    /// `complete`, a map with other keys is a fault.
    #[new]
    #[pyo3(signature = (columns, nesting, blanks, complete = false))]
    fn new(
        py: Python<'_>,
        columns: &Bound<'_, PyAny>,
        nesting: usize,
        blanks: u64,
        complete: bool,
    ) -> PyResult<Self> {
        let fields = batch_of(columns)?.fields().clone();
        let plan = run(py, || Plan::new(&fields, Costs { nesting, blanks, complete }))?;
        Ok(Self { plan, fields })
    }

    /// Decode records to columns: a struct array. With `check`, all are verified first.
    #[pyo3(signature = (frames, check = false, indexed = None))]
    fn decode(
        &self,
        py: Python<'_>,
        frames: &PyFrames,
        check: bool,
        indexed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ArrowArray> {
        let checks = Checks::new(check, indexed)?;
        let frames = &frames.0;
        let decoded = run(py, || {
            let arrays = match checks.check {
                true => decode(frames, &self.plan, |records| checks.verify(frames, records))?,
                false => decode(frames, &self.plan, |_| Ok(()))?,
            };
            let options = RecordBatchOptions::new().with_row_count(Some(frames.spans.len()));
            RecordBatch::try_new_with_options(
                Schema::new(self.fields.clone()).into(),
                arrays,
                &options,
            )
            .map_err(|error| Fault::new(FaultKind::Schema, 0, error.to_string()))
        })?;
        Ok(ArrowArray::batch(decoded))
    }
}

/// Encode the records of a batch as maps. Numbers must have 64 bits, or be float32.
#[pyfunction]
pub fn encode_msgpack(py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<PyFramed> {
    let batch = batch_of(batch)?;
    let framed = run(py, || encoding::encode_msgpack(&batch))?;
    PyFramed::new(py, framed)
}

/// Frame byte strings, each of which is one MessagePack value.
#[pyfunction]
pub fn frame_values(py: Python<'_>, records: &Bound<'_, PyAny>) -> PyResult<PyFramed> {
    let array = import(records)?;
    let framed = run(py, || encoding::frame_values(array.as_ref()))?;
    PyFramed::new(py, framed)
}

/// Whether records are almost certainly maps of the same fields.
#[pyfunction]
pub fn looks_like_maps(py: Python<'_>, frames: &PyFrames) -> PyResult<bool> {
    run(py, || Ok(inference::looks_like_maps(&frames.0)))
}
