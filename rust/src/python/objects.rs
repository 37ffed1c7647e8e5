//! Converts columns to Python objects. It needs `unsafe` because bytes objects are made uninitialised while
//! the GIL is held, and filled without the GIL: no other code has a reference to them yet.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::arrow::import;
use super::run_on;
use crate::kernels::decode_images::values;
use crate::wire::{Fault, FaultKind};

/// Address and length of a bytes object's contents.
struct Room(usize, usize);

/// From this size on, a few freed objects are more memory than glibc keeps by default.
const LARGE: usize = 16 << 10;

/// Let glibc keep the memory of freed large objects for the next batch. By default, glibc returns it to the
/// system, and clearing new pages costs several times as much as copying into old ones. It adapts its
/// threshold to the largest block freed so far, so a block that was never used is freed here. It does not
/// adapt if the environment sets the threshold. See docs/decisions/0014-memory-that-comes-back.md.
fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // The largest block to which glibc adapts has 32 MiB, including its head and page rounding.
        const BLOCK_BYTES: usize = (32 << 20) - (64 << 10);
        static ONCE: std::sync::Once = std::sync::Once::new();
        // SAFETY: the block is freed as allocated, or null, which `free` accepts.
        ONCE.call_once(|| unsafe {
            libc::free(std::hint::black_box(libc::malloc(BLOCK_BYTES))); // otherwise it is optimised away
        });
    }
}

/// The values of a binary array as a list of bytes objects, with None for nulls.
#[pyfunction]
pub fn bytes_list<'py>(py: Python<'py>, array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let array = import(array)?;
    let values = run_on(py, array.len().saturating_mul(64), || values(&array))?;
    PyList::new(py, bytes_objects(py, &values)?)
}

/// Make a bytes object for each value, then fill all of them.
pub fn bytes_objects<'py>(
    py: Python<'py>,
    values: &[Option<&[u8]>],
) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
    let mut objects: Vec<Option<Bound<'py, PyBytes>>> = Vec::with_capacity(values.len());
    let mut rooms = Vec::with_capacity(values.len());
    if values.iter().flatten().any(|value| value.len() >= LARGE) {
        keep_freed_memory();
    }
    for value in values {
        let Some(value) = value else {
            objects.push(None);
            continue;
        };
        // SAFETY: a null pointer requests uninitialised bytes; the result is null if memory runs out. The
        // object is new, so no other code reads its bytes.
        let object = unsafe {
            let object =
                ffi::PyBytes_FromStringAndSize(std::ptr::null(), value.len() as ffi::Py_ssize_t);
            Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked::<PyBytes>()
        };
        rooms.push(Room(object.as_bytes().as_ptr() as usize, value.len()));
        objects.push(Some(object));
    }
    let num_bytes = rooms.iter().map(|room| room.1).sum();
    run_on(py, num_bytes, || {
        for (room, value) in rooms.iter().zip(values.iter().flatten()) {
            if room.1 != value.len() {
                return Err(Fault::new(FaultKind::Schema, 0, "values that change their length"));
            }
            // SAFETY: `objects` keeps the object alive, and it has space for the value. It is not shared:
            // Python shares only the empty uninitialised object.
            unsafe {
                std::ptr::copy_nonoverlapping(value.as_ptr(), room.0 as *mut u8, value.len());
            }
        }
        Ok(())
    })?;
    Ok(objects)
}
