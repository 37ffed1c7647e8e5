//! Hashes of records, and groups of equal ones.

use std::sync::{Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::{FixedSizeBinaryArray, Int64Array};
use arrow_buffer::Buffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::arrow::{ArrowArray, import};
use super::msgpack::batch_of;
use super::run;
use crate::kernels::hash_records::{self as kernel, Groups, HASH_BYTES, Hash};

/// The 128-bit hash of each record of a batch, as binary[16]: BLAKE3 with `secret`, 32 bytes, or HighwayHash with `seed`.
/// Numbers must come in 64 bits.
#[pyfunction]
#[pyo3(signature = (batch, seed = 0, secret = None))]
pub fn hash_records(
    py: Python<'_>,
    batch: &Bound<'_, PyAny>,
    seed: u64,
    secret: Option<[u8; 32]>,
) -> PyResult<ArrowArray> {
    let batch = batch_of(batch)?;
    let hash = secret.map_or(Hash::Fast([seed, 0, 0, 0]), Hash::Secure);
    let hashes = run(py, || kernel::hash_records(&batch, hash))?;
    let values = Buffer::from_vec(hashes.into_flattened());
    FixedSizeBinaryArray::try_new(HASH_BYTES as i32, values, None)
        .map(ArrowArray::new)
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Numbers for equal records, in the order in which they are first seen.
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

    /// The group of each record, given by its hash, as int64. A group that is new gets the next number.
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
