//! Repeated fields: live views that behave like lists. Rare operations go through a Python list.

use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList};

use super::values::{blob, float, gathered, int, message_of, type_name};
use super::{Message, Node, view};
use crate::kernels::messages::{self as kernel, Blob, Body, Kind};
use crate::python::values::{PyValues, Store};

/// The position for an index, which may be negative.
fn index_of(index: &Bound<'_, PyAny>, length: usize) -> PyResult<usize> {
    let Ok(given) = index.extract::<isize>() else {
        return Err(PyTypeError::new_err(format!(
            "list indices must be integers or slices, not {}",
            type_name(index)
        )));
    };
    let place = if given < 0 { given.checked_add_unsigned(length) } else { Some(given) };
    match place.and_then(|place| usize::try_from(place).ok()) {
        Some(place) if place < length => Ok(place),
        _ => Err(PyIndexError::new_err("list index out of range")),
    }
}

fn not_pickled() -> PyErr {
    PyTypeError::new_err("can't pickle repeated message fields, convert to list first")
}

/// The values of a BytesList, FloatList or Int64List.
#[pyclass(name = "RepeatedScalar", frozen, sequence, module = "penstock._core")]
pub struct RepeatedScalar(pub Node);

impl RepeatedScalar {
    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        // Work on a copy, because making a list may run a finalizer that uses this message.
        let copy = self.0.copy();
        let copy = copy.lock();
        match &copy.body {
            Body::Bytes(values) => PyList::new(py, values.iter().map(|value| value.0.bind(py))),
            Body::Floats(values) => PyList::new(py, values.iter().map(|value| f64::from(*value))),
            Body::Ints(values) => PyList::new(py, values),
            _ => Ok(PyList::empty(py)),
        }
    }

    /// Replace the values by those of a list.
    fn replace(&self, list: &Bound<'_, PyAny>) -> PyResult<()> {
        let body = gathered(self.0.kind(), list)?;
        self.0.lock().body = body;
        Ok(())
    }

    fn length(&self) -> usize {
        match &self.0.lock().body {
            Body::Bytes(values) => values.len(),
            Body::Floats(values) => values.len(),
            Body::Ints(values) => values.len(),
            _ => 0,
        }
    }
}

#[pymethods]
#[allow(non_snake_case, reason = "protobuf's names")]
impl RepeatedScalar {
    fn __len__(&self) -> usize {
        self.length()
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        let Ok(place) = index_of(key, self.length()) else {
            return self.list(py)?.as_any().get_item(key);
        };
        let out = || PyIndexError::new_err("list index out of range");
        match &self.0.lock().body {
            Body::Bytes(values) => {
                Ok(values.get(place).ok_or_else(out)?.share().0.into_bound(py).into_any())
            }
            Body::Floats(values) => {
                Ok(f64::from(*values.get(place).ok_or_else(out)?).into_pyobject(py)?.into_any())
            }
            Body::Ints(values) => {
                Ok(values.get(place).ok_or_else(out)?.into_pyobject(py)?.into_any())
            }
            _ => Err(out()),
        }
    }

    /// The values as a NumPy array: float32, int64 or bytes, as from protobuf's lists.
    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            return Err(PyValueError::new_err("the values of a message are always copied"));
        }
        // Use the length of the copy, because the list may grow before NumPy reads it.
        let copy = match &self.0.lock().body {
            Body::Floats(values) => Some((Store::Floats(values.clone()), values.len())),
            Body::Ints(values) => Some((Store::Int64(values.clone()), values.len())),
            _ => None,
        };
        let values = match copy {
            Some((store, length)) => Bound::new(py, PyValues::new(store, vec![length]))?.into_any(),
            None => self.list(py)?.into_any(),
        };
        py.import("numpy")?.call_method1("array", (values, dtype))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.touch();
        let list = self.list(key.py())?;
        list.as_any().set_item(key, value)?;
        self.replace(&list)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.touch();
        let list = self.list(key.py())?;
        list.as_any().del_item(key)?;
        self.replace(&list)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.list(py)?.as_any().try_iter()
    }

    fn __contains__(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.list(value.py())?.contains(value)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let list = self.list(other.py())?;
        match other.cast::<Self>() {
            Ok(other) => list.eq(other.get().list(list.py())?),
            Err(_) => list.eq(other),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.list(py)?.repr()?.to_string())
    }

    fn append(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.touch();
        match self.0.kind() {
            Kind::BytesList => {
                let value = blob(value)?;
                if let Body::Bytes(values) = &mut self.0.lock().body {
                    values.push(value);
                }
            }
            Kind::FloatList => {
                let value = float(value)?;
                if let Body::Floats(values) = &mut self.0.lock().body {
                    values.push(value);
                }
            }
            _ => {
                let value = int(value)?;
                if let Body::Ints(values) = &mut self.0.lock().body {
                    values.push(value);
                }
            }
        }
        Ok(())
    }

    fn extend(&self, values: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.touch();
        let kind = self.0.kind();
        let more = kernel::Node::with(kind, gathered(kind, values)?);
        self.0.absorb(more);
        Ok(())
    }

    fn MergeFrom(&self, values: &Bound<'_, PyAny>) -> PyResult<()> {
        self.extend(values)
    }

    fn insert(&self, index: isize, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.touch();
        let list = self.list(value.py())?;
        list.call_method1("insert", (index, value))?;
        self.replace(&list)
    }

    #[pyo3(signature = (index = -1))]
    fn pop<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        self.0.touch();
        let list = self.list(py)?;
        let popped = list.call_method1("pop", (index,))?;
        self.replace(&list)?;
        Ok(popped)
    }

    fn remove(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.touch();
        let list = self.list(value.py())?;
        if list.call_method1("remove", (value,)).is_err() {
            return Err(PyValueError::new_err("remove(x): x not in container"));
        }
        self.replace(&list)
    }

    fn reverse(&self) {
        self.0.touch();
        match &mut self.0.lock().body {
            Body::Bytes(values) => values.reverse(),
            Body::Floats(values) => values.reverse(),
            Body::Ints(values) => values.reverse(),
            _ => {}
        }
    }

    #[pyo3(signature = (**options))]
    fn sort(&self, py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let list = self.list(py)?;
        list.call_method("sort", (), options)?;
        if !list.is_empty() {
            self.0.touch();
            self.replace(&list)?;
        }
        Ok(())
    }

    fn clear(&self) {
        self.0.clear_field(0);
    }

    fn __copy__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list(py)
    }

    fn __deepcopy__<'py>(&self, memo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        self.list(memo.py())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(not_pickled())
    }
}

/// The features of a FeatureList.
#[pyclass(name = "RepeatedMessage", frozen, sequence, module = "penstock._core")]
pub struct RepeatedMessage(pub Node);

impl RepeatedMessage {
    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let views: PyResult<Vec<_>> =
            self.0.items().into_iter().map(|node| view(py, node)).collect();
        PyList::new(py, views?)
    }

    /// Replace the messages by those of a list of views.
    fn replace(&self, list: &Bound<'_, PyList>) -> PyResult<()> {
        let mut nodes = Vec::with_capacity(list.len());
        for item in list.iter() {
            nodes.push(item.cast::<Message>()?.get().node());
        }
        self.0.lock().body = Body::Many(nodes);
        Ok(())
    }

    fn push(&self, node: Node) {
        self.0.touch();
        if let Body::Many(items) = &mut self.0.lock().body {
            items.push(node);
        }
    }

    fn copied(value: &Bound<'_, PyAny>) -> PyResult<Node> {
        message_of(Kind::Feature, value, false).map_err(|_| {
            PyTypeError::new_err(format!("Expected a message object, but got {value}."))
        })
    }
}

#[pymethods]
#[allow(non_snake_case, reason = "protobuf's names")]
impl RepeatedMessage {
    fn __len__(&self) -> usize {
        self.0.items().len()
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let nodes = self.0.items();
        match index_of(key, nodes.len()).ok().and_then(|place| nodes.get(place)) {
            Some(node) => view(key.py(), node.clone()),
            None => self.list(key.py())?.as_any().get_item(key),
        }
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = (key, value);
        Err(PyTypeError::new_err(
            "'RepeatedMessage' object does not support item assignment; try .CopyFrom(…) on the item",
        ))
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.touch();
        let list = self.list(key.py())?;
        list.as_any().del_item(key)?;
        self.replace(&list)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.list(py)?.as_any().try_iter()
    }

    fn __contains__(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.list(value.py())?.contains(value)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let list = self.list(other.py())?;
        match other.cast::<Self>() {
            Ok(other) => list.eq(other.get().list(list.py())?),
            Err(_) => list.eq(other),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.list(py)?.repr()?.to_string())
    }

    /// Add a new feature with these fields.
    #[pyo3(signature = (**fields))]
    fn add<'py>(
        &self,
        py: Python<'py>,
        fields: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let node = match fields {
            Some(fields) => message_of(Kind::Feature, fields, true)?,
            None => kernel::Node::new(Kind::Feature),
        };
        self.push(node.clone());
        view(py, node)
    }

    fn append(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.touch();
        self.push(Self::copied(value)?);
        Ok(())
    }

    fn extend(&self, values: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.touch();
        let copies: PyResult<Vec<Node>> =
            values.try_iter()?.map(|value| Self::copied(&value?)).collect();
        let more = kernel::Node::with(Kind::FeatureList, Body::Many(copies?));
        self.0.absorb(more);
        Ok(())
    }

    fn MergeFrom(&self, values: &Bound<'_, PyAny>) -> PyResult<()> {
        self.extend(values)
    }

    fn insert(&self, index: isize, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.touch();
        let list = self.list(value.py())?;
        let copy = view(value.py(), Self::copied(value)?)?;
        list.call_method1("insert", (index, copy))?;
        self.replace(&list)
    }

    #[pyo3(signature = (index = -1))]
    fn pop<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        self.0.touch();
        let list = self.list(py)?;
        let popped = list.call_method1("pop", (index,))?;
        self.replace(&list)?;
        Ok(popped)
    }

    fn remove(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.touch();
        let list = self.list(value.py())?;
        if list.call_method1("remove", (value,)).is_err() {
            return Err(PyValueError::new_err("remove(x): x not in container"));
        }
        self.replace(&list)
    }

    fn reverse(&self) {
        self.0.touch();
        if let Body::Many(items) = &mut self.0.lock().body {
            items.reverse();
        }
    }

    #[pyo3(signature = (**options))]
    fn sort(&self, py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let list = self.list(py)?;
        list.call_method("sort", (), options)?;
        if !list.is_empty() {
            self.0.touch();
            self.replace(&list)?;
        }
        Ok(())
    }

    fn clear(&self) {
        self.0.clear_field(0);
    }

    fn __deepcopy__<'py>(&self, memo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        Self(self.0.copy()).list(memo.py())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(not_pickled())
    }
}
