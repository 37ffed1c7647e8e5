//! Arrays that Rust makes for NumPy.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The values of an array.
pub enum Store {
    /// uint8, or the bytes of any numbers
    Bytes(Vec<u8>),
    /// int32
    Int32(Vec<i32>),
    /// int64
    Int64(Vec<i64>),
    /// float32
    Floats(Vec<f32>),
    /// float64
    Doubles(Vec<f64>),
}

impl Store {
    fn kind(&self) -> &'static str {
        match self {
            Self::Bytes(_) => "|u1",
            Self::Int32(_) => "<i4",
            Self::Int64(_) => "<i8",
            Self::Floats(_) => "<f4",
            Self::Doubles(_) => "<f8",
        }
    }
}

/// An array made by Rust, which NumPy reads and writes by its array interface.
#[pyclass(name = "Values", module = "penstock._core")]
pub struct PyValues {
    store: Store,
    kind: &'static str,
    shape: Vec<usize>,
}

impl PyValues {
    /// An array of this shape, which fits the number of values.
    pub fn new(store: Store, shape: Vec<usize>) -> Self {
        let kind = store.kind();
        Self { store, kind, shape }
    }

    /// The same bytes as numbers of another kind, with the array interface's name for it.
    pub fn of_kind(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }
}

#[pymethods]
impl PyValues {
    #[getter]
    fn __array_interface__<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        // Nothing else uses the vector, and it lives as long as the array that points to it.
        let address = match &mut self.store {
            Store::Bytes(values) => values.as_mut_ptr() as usize,
            Store::Int32(values) => values.as_mut_ptr() as usize,
            Store::Int64(values) => values.as_mut_ptr() as usize,
            Store::Floats(values) => values.as_mut_ptr() as usize,
            Store::Doubles(values) => values.as_mut_ptr() as usize,
        };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.kind)?;
        interface.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        interface.set_item("data", (address, false))?;
        Ok(interface)
    }

    fn __len__(&self) -> usize {
        self.shape.first().copied().unwrap_or_default()
    }
}
