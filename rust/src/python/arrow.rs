//! Arrow data to and from Python, by the C data interface's PyCapsules, without copying.

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray, make_array};
use arrow_schema::ArrowError;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi::c_str;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

/// Arrow data for Python, to convert by `pyarrow.array(x)` or `pyarrow.record_batch(x)`.
#[pyclass(frozen, module = "penstock._core")]
pub struct ArrowArray(pub ArrayRef);

impl ArrowArray {
    /// Any array.
    pub fn new(array: impl Array + 'static) -> Self {
        Self(std::sync::Arc::new(array))
    }

    /// A record batch, which is passed as a struct array.
    pub fn batch(batch: RecordBatch) -> Self {
        Self::new(StructArray::from(batch))
    }
}

fn arrow_error(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl ArrowArray {
    #[pyo3(signature = (requested_schema = None))]
    pub fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = requested_schema; // may be ignored: the caller then casts
        let (array, schema) = to_ffi(&self.0.to_data()).map_err(arrow_error)?;
        let schema = PyCapsule::new_with_value(py, schema, c_str!("arrow_schema"))?;
        let array = PyCapsule::new_with_value(py, array, c_str!("arrow_array"))?;
        PyTuple::new(py, [schema, array])
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// Import an array from any object with the Arrow C data interface.
pub fn import(object: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let pair = object.call_method0("__arrow_c_array__").map_err(|_| {
        PyTypeError::new_err("expected an object with __arrow_c_array__, such as a pyarrow array")
    })?;
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = pair.extract()?;
    let schema = schema.pointer_checked(Some(c_str!("arrow_schema")))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(c_str!("arrow_array")))?.cast::<FFI_ArrowArray>();
    // SAFETY: the capsules' names state their contents; `from_raw` moves the array out and marks the
    // capsule's copy as released, as the interface requires.
    let data = unsafe {
        let array = FFI_ArrowArray::from_raw(array.as_ptr());
        from_ffi(array, schema.as_ref())
    };
    Ok(make_array(data.map_err(arrow_error)?))
}
