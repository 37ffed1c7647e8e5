//! Bytes in memory, shared between Python and Rust.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::Array;
use arrow_buffer::Buffer;
use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arrow::{ArrowArray, import};
use super::frames::u64s;
use super::run;
use crate::kernels::buffer_pool;
use crate::kernels::views;
use crate::wire::crc32::{crc32, joined as joined_crc32};
use penstock_codecs::crc32c::extend;

/// Immutable bytes that Rust owns or keeps alive; slices share them.
#[pyclass(name = "Buffer", frozen, module = "penstock._core")]
#[derive(Clone)]
pub struct PyBuffer(pub Buffer);

/// Keeps a Python bytes object alive as long as an Arrow buffer borrows from it.
struct Borrowed(#[expect(dead_code, reason = "held, never read")] Py<PyBytes>);

// The bytes never change, so a panic cannot leave them half written.
impl std::panic::RefUnwindSafe for Borrowed {}

/// Concatenate buffers by copying.
pub(super) fn joined(py: Python<'_>, parts: &[Buffer]) -> PyResult<PyBuffer> {
    let mut bytes = room(parts.iter().map(|part| part.len()).sum())?;
    run(py, || {
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        Ok(PyBuffer(buffer_pool::pooled(bytes)))
    })
}

#[pymethods]
impl PyBuffer {
    #[staticmethod]
    pub(super) fn from_bytes(data: Bound<'_, PyBytes>) -> Self {
        let bytes = data.as_bytes();
        let (pointer, length) = (NonNull::from(bytes).cast::<u8>(), bytes.len());
        let owner = Arc::new(Borrowed(data.unbind()));
        // SAFETY: bytes objects never change and never move, and `owner` keeps this one alive.
        Self(unsafe { Buffer::from_custom_allocation(pointer, length, owner) })
    }

    /// The values of an array of numbers (without nulls), in place.
    #[staticmethod]
    fn from_values(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let data = import(array)?.to_data();
        let (Some(width), Some(values)) =
            (data.data_type().primitive_width(), data.buffers().first())
        else {
            return Err(PyTypeError::new_err("expected an array of numbers"));
        };
        Ok(Self(values.slice_with_length(data.offset() * width, data.len() * width)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// A part of the bytes, without copying; it is shorter if the bytes end before.
    fn slice(&self, start: usize, length: usize) -> Self {
        let start = start.min(self.0.len());
        let length = length.min(self.0.len() - start);
        Self(self.0.slice_with_length(start, length))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0)
    }

    /// CRC-32C of bytes whose checksum is `before`, followed by these bytes.
    #[pyo3(signature = (before = 0))]
    fn crc32c(&self, py: Python<'_>, before: u32) -> PyResult<u32> {
        run(py, || Ok(extend(before, &self.0)))
    }

    /// CRC-32 (that of zip and gzip) of bytes whose checksum is `before`, followed by these bytes.
    #[pyo3(signature = (before = 0))]
    fn crc32(&self, py: Python<'_>, before: u32) -> PyResult<u32> {
        run(py, || Ok(joined_crc32(before, crc32(&self.0), self.0.len() as u64)))
    }

    /// CRC-32 of two concatenated byte strings, from their checksums and the length of the second.
    #[staticmethod]
    fn joined_crc32(first: u32, second: u32, second_bytes: u64) -> u32 {
        joined_crc32(first, second, second_bytes)
    }

    /// Concatenate buffers by copying.
    #[staticmethod]
    fn join(py: Python<'_>, parts: Vec<PyRef<'_, Self>>) -> PyResult<Self> {
        let parts: Vec<Buffer> = parts.iter().map(|part| part.0.clone()).collect();
        joined(py, &parts)
    }

    /// A binary_view array of parts of these bytes, without copying. `starts` and `lengths` are uint64.
    fn views(
        &self,
        py: Python<'_>,
        starts: &Bound<'_, PyAny>,
        lengths: &Bound<'_, PyAny>,
    ) -> PyResult<ArrowArray> {
        let (starts, lengths) = (u64s(starts)?, u64s(lengths)?);
        let made = run(py, || views::borrowed(&self.0, starts.values(), lengths.values()))?;
        Ok(ArrowArray::new(made))
    }

    /// The buffer protocol: read-only bytes, without copying.
    ///
    /// # Safety
    /// Python calls it with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        const READ_ONLY: c_int = 1;
        let bytes = &slf.get().0;
        let (data, length) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as ffi::Py_ssize_t);
        // SAFETY: the bytes neither change nor move while this object exists, and the view refers to it.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), data, length, READ_ONLY, flags) }
        {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

/// Reserve `length` uninitialised bytes; an error instead of an abort if memory runs out.
pub fn room(length: usize) -> PyResult<Vec<u8>> {
    buffer_pool::take(length)
        .ok_or_else(|| PyMemoryError::new_err(format!("no memory for {length} bytes")))
}
