//! Columns as Python objects. `unsafe` because bytes objects are made empty while the GIL is held,
//! and filled while it is not: nobody else knows of them yet.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::arrow::import;
use super::run;
use crate::kernels::decode_images::values;
use crate::wire::{Fault, FaultKind};

/// Where a bytes object holds its bytes, as a number, since it is filled by another name.
struct Room(usize, usize);

/// The values of a binary array as a list of bytes objects, None where there is none.
#[pyfunction]
pub fn bytes_list<'py>(py: Python<'py>, array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let array = import(array)?;
    let values = run(py, || values(&array))?;
    PyList::new(py, bytes_objects(py, &values)?)
}

/// A bytes object for each value, filled all at once.
pub fn bytes_objects<'py>(
    py: Python<'py>,
    values: &[Option<&[u8]>],
) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
    let mut objects: Vec<Option<Bound<'py, PyBytes>>> = Vec::with_capacity(values.len());
    let mut rooms = Vec::with_capacity(values.len());
    for value in values {
        let Some(value) = value else {
            objects.push(None);
            continue;
        };
        // SAFETY: a null pointer asks for bytes that are not set; null comes back where there is no
        // memory. The object is new, so that nothing else looks at its bytes.
        let object = unsafe {
            let object =
                ffi::PyBytes_FromStringAndSize(std::ptr::null(), value.len() as ffi::Py_ssize_t);
            Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked::<PyBytes>()
        };
        rooms.push(Room(object.as_bytes().as_ptr() as usize, value.len()));
        objects.push(Some(object));
    }
    run(py, || {
        for (room, value) in rooms.iter().zip(values.iter().flatten()) {
            if room.1 != value.len() {
                return Err(Fault::new(FaultKind::Schema, 0, "values that change their length"));
            }
            // SAFETY: room for so many bytes, in an object that `objects` keeps alive and nobody
            // else has seen: of objects that are not set, Python shares only the empty one.
            unsafe {
                std::ptr::copy_nonoverlapping(value.as_ptr(), room.0 as *mut u8, value.len());
            }
        }
        Ok(())
    })?;
    Ok(objects)
}
