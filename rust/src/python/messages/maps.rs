//! Maps of messages: live views that behave like dicts. Reading a missing key creates an empty message.

use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyIterator, PyList, PyString};

use super::values::{fill_map, key_of, message_of};
use super::{Node, view};
use crate::kernels::messages::{Body, Kind};

/// The features of Features, or the lists of FeatureLists, by name.
#[pyclass(name = "MessageMap", frozen, mapping, module = "penstock._core")]
pub struct MessageMap(pub Node);

impl MessageMap {
    fn held(&self) -> Kind {
        match self.0.kind() {
            Kind::FeatureLists => Kind::FeatureList,
            _ => Kind::Feature,
        }
    }

    fn dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for key in self.0.keys() {
            if let Some(node) = self.0.get(&key) {
                dict.set_item(key.as_ref(), view(py, node)?)?;
            }
        }
        Ok(dict)
    }

    /// A view of this map, as from `dict.keys()`, `values()` and `items()`.
    fn seen_by<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        static CLASSES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = slf.py();
        let classes = CLASSES.get_or_try_init(py, || {
            PyResult::Ok(py.import("collections.abc")?.into_any().unbind())
        })?;
        classes.bind(py).call_method1(name, (slf,))
    }
}

#[pymethods]
#[allow(non_snake_case, reason = "protobuf's names")]
impl MessageMap {
    fn __len__(&self) -> usize {
        match &self.0.lock().body {
            Body::Map(entries) => entries.len(),
            _ => 0,
        }
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        view(key.py(), self.0.get_or_create(key_of(key)?))
    }

    /// Store a copy of the message. protobuf refuses this.
    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.touch();
        let key = key_of(key)?;
        let message = message_of(self.held(), value, true)?;
        self.0.insert(key, message);
        Ok(())
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = key_of(key)?;
        self.0.touch();
        match self.0.remove(key) {
            Some(_) => Ok(()),
            None => Err(PyKeyError::new_err("Key not present in map")),
        }
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        match key.cast::<PyString>() {
            Ok(key) => Ok(self.0.get(key.to_str()?).is_some()),
            Err(_) => Ok(false),
        }
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let keys = self.0.keys();
        PyList::new(py, keys.iter().map(AsRef::as_ref))?.as_any().try_iter()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let dict = self.dict(other.py())?;
        match other.cast::<Self>() {
            Ok(other) => dict.eq(other.get().dict(dict.py())?),
            Err(_) => dict.eq(other),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.dict(py)?.repr()?.to_string())
    }

    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.0.get(key_of(key)?) {
            Some(node) => view(key.py(), node).map(Some),
            None => Ok(default),
        }
    }

    fn get_or_create<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.__getitem__(key)
    }

    /// The message of a key; if it is missing, a copy of the default, which is stored (protobuf refuses
    /// that).
    #[pyo3(signature = (key, default = None))]
    fn setdefault<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(default) = default
            && !slf.get().__contains__(key)?
        {
            slf.get().__setitem__(key, default)?;
        }
        slf.get().__getitem__(key)
    }

    /// Copy the messages of a mapping, replacing messages with the same keys.
    #[pyo3(signature = (other = None, **more))]
    fn update(
        &self,
        other: Option<&Bound<'_, PyAny>>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.0.touch();
        if let Some(other) = other {
            fill_map(&self.0, self.held(), other)?;
        }
        more.map_or(Ok(()), |more| fill_map(&self.0, self.held(), more))
    }

    fn MergeFrom(&self, other: &Bound<'_, Self>) -> PyResult<()> {
        if other.get().0.kind() != self.0.kind() {
            return Err(PyTypeError::new_err("cannot merge maps of different messages"));
        }
        self.0.touch();
        self.0.absorb(other.get().0.copy());
        Ok(())
    }

    /// Remove and return a message; an empty message if there is none.
    #[pyo3(signature = (key, default = None))]
    fn pop<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let text = key_of(key)?;
        // The default is ignored, as in protobuf, where reading a missing key creates it.
        let _ = default;
        let found = self.0.get_or_create(text);
        self.0.remove(text);
        view(key.py(), found)
    }

    fn popitem<'py>(&self, py: Python<'py>) -> PyResult<(String, Bound<'py, PyAny>)> {
        let first = self.0.keys().into_iter().next();
        match first.and_then(|key| Some((self.0.remove(&key)?, key))) {
            Some((node, key)) => Ok((key.into(), view(py, node)?)),
            None => Err(PyKeyError::new_err("the map is empty")),
        }
    }

    fn clear(&self) {
        self.0.touch();
        self.0.clear_field(0);
    }

    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::seen_by(slf, "KeysView")
    }

    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::seen_by(slf, "ValuesView")
    }

    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::seen_by(slf, "ItemsView")
    }

    fn __deepcopy__<'py>(&self, memo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        Self(self.0.copy()).dict(memo.py())
    }
}
