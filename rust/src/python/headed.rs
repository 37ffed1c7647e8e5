//! Joins byte strings whose heads are stored separately from their bodies.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::arrow::{ArrowArray, import};
use super::run;
use crate::kernels::headed;

/// Concatenate the heads (binary) and bodies (binary_view) of a struct array: a binary array.
#[pyfunction]
pub fn glue(py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<ArrowArray> {
    let array = import(array)?;
    let Some(separate) = array.as_struct_opt() else {
        let message = format!("expected a struct of heads and bodies, not {}", array.data_type());
        return Err(PyTypeError::new_err(message));
    };
    Ok(ArrowArray::new(run(py, || headed::glue(separate))?))
}
