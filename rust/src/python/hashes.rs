//! Hashes of records, and groups of equal records.

use std::sync::{Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::{FixedSizeBinaryArray, Int64Array, UInt64Array};
use arrow_buffer::Buffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::arrow::{ArrowArray, import};
use super::msgpack::batch_of;
use super::run;
use crate::kernels::hash_records::{self as kernel, Groups, HASH_BYTES};

/// A number for each record of a batch, computed from the seed and the record, as uint64. Columns
/// of numbers must have 64-bit types.
#[pyfunction]
pub fn record_draws(py: Python<'_>, batch: &Bound<'_, PyAny>, seed: u64) -> PyResult<ArrowArray> {
    let batch = batch_of(batch)?;
    let draws = run(py, || kernel::draws(&batch, seed))?;
    Ok(ArrowArray::new(UInt64Array::from(draws)))
}

/// The 128-bit hash (BLAKE3) of each record of a batch under a key of 32 bytes, as binary[16].
/// Columns of numbers must have 64-bit types.
#[pyfunction]
pub fn secure_hashes(
    py: Python<'_>,
    batch: &Bound<'_, PyAny>,
    key: [u8; 32],
) -> PyResult<ArrowArray> {
    let batch = batch_of(batch)?;
    let hashes = run(py, || kernel::secure_hashes(&batch, &key))?;
    let values = Buffer::from_vec(hashes.into_flattened());
    FixedSizeBinaryArray::try_new(HASH_BYTES as i32, values, None)
        .map(ArrowArray::new)
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Numbers groups of equal records, in the order in which they first occur.
#[pyclass(name = "Groups", frozen, module = "penstock._core")]
pub struct PyGroups(Mutex<Groups>);

#[pymethods]
impl PyGroups {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(Groups::default()))
    }

    fn __len__(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The group number of each record, whose hash is passed, as int64. A new group gets the next
    /// number.
    fn numbers(&self, py: Python<'_>, hashes: &Bound<'_, PyAny>) -> PyResult<ArrowArray> {
        let hashes = import(hashes)?;
        let held = match hashes.as_fixed_size_binary_opt() {
            Some(held) if held.value_length() == HASH_BYTES as i32 => held,
            _ => return Err(PyTypeError::new_err("hashes are an array of binary[16]")),
        };
        let data = held.value_data();
        let numbers =
            run(py, || Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).of(data)))?;
        Ok(ArrowArray::new(Int64Array::from(numbers)))
    }
}
