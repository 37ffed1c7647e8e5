//! The messages of `tf.train` as Python classes that behave like protobuf's, without protobuf.
//!
//! A class here is a thin view of a node; `kernels/messages` has its functions. Values are small and come
//! one by one from Python, so the GIL is kept.

mod classes;
mod lists;
mod maps;
mod values;

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyType};

pub use classes::{
    BytesList, Example, Feature, FeatureList, FeatureLists, Features, FloatList, Int64List,
    SequenceExample,
};
pub use lists::{RepeatedMessage, RepeatedScalar};
pub use maps::MessageMap;
use values::{PyBlob, bytes_of, message_of, text_of};

use crate::kernels::messages::{self as kernel, Body, Field, Kind};
use crate::wire::Fault;

/// A message, which views share.
type Node = Arc<kernel::Node<PyBlob>>;

/// Number and name of a field, for `ListFields`.
#[pyclass(name = "MessageField", frozen, get_all, module = "penstock._core")]
pub struct MessageField {
    name: &'static str,
    number: usize,
}

/// The base class of all messages.
#[pyclass(name = "Message", subclass, frozen, module = "penstock._core")]
pub struct Message(Mutex<Node>);

impl From<Node> for Message {
    fn from(node: Node) -> Self {
        Self(Mutex::new(node))
    }
}

fn no_field(kind: Kind, name: &str) -> PyErr {
    PyValueError::new_err(format!("Protocol message {} has no \"{name}\" field.", kind.name()))
}

fn not_decoded(py: Python<'_>, kind: Kind, fault: &Fault) -> PyErr {
    static ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let message =
        format!("Error parsing message with type 'tensorflow.{}': {}", kind.name(), fault.message);
    match ERROR.import(py, "penstock.tf.errors", "DecodeError") {
        Ok(error) => PyErr::from_type(error.clone(), message),
        Err(error) => error,
    }
}

/// Merge bytes into a message, and return how many there were.
fn merge_bytes(node: &Node, data: &Bound<'_, PyAny>) -> PyResult<usize> {
    let data = bytes_of(data)?;
    let bytes = data.as_bytes();
    kernel::parse(node, bytes).map_err(|fault| not_decoded(data.py(), node.kind(), &fault))?;
    Ok(bytes.len())
}

/// The index of a field, by its name.
fn place(kind: Kind, name: &Bound<'_, PyAny>) -> PyResult<usize> {
    let bytes;
    let name = match name.cast::<PyString>() {
        Ok(text) => text.to_str()?,
        Err(_) => {
            bytes = bytes_of(name)?;
            text_of(&bytes)?
        }
    };
    let found = kind.fields().iter().position(|field| field.name == name);
    found.ok_or_else(|| no_field(kind, name))
}

/// Wrap a message in the class of its kind.
fn view(py: Python<'_>, node: Node) -> PyResult<Bound<'_, PyAny>> {
    classes::wrap(py, node)
}

/// The Python value of a field.
fn value_of<'py>(py: Python<'py>, node: &Node, index: usize) -> PyResult<Bound<'py, PyAny>> {
    let node = node.clone();
    match node.kind() {
        Kind::Features | Kind::FeatureLists => Ok(Bound::new(py, MessageMap(node))?.into_any()),
        Kind::FeatureList => Ok(Bound::new(py, RepeatedMessage(node))?.into_any()),
        Kind::BytesList | Kind::FloatList | Kind::Int64List => {
            Ok(Bound::new(py, RepeatedScalar(node))?.into_any())
        }
        _ => view(py, node.child(index)),
    }
}

/// Whether a field has a value, as `ListFields` defines it.
fn is_listed(node: &Node, index: usize) -> bool {
    match &node.lock().body {
        Body::Parts(_, set) => set & 1 << index != 0,
        Body::Map(entries) => !entries.is_empty(),
        Body::Many(items) => !items.is_empty(),
        Body::Bytes(values) => !values.is_empty(),
        Body::Floats(values) => !values.is_empty(),
        Body::Ints(values) => !values.is_empty(),
    }
}

impl Message {
    /// The node of this message. It is settled first, because it may have been shared since the
    /// last call.
    fn node(&self) -> Node {
        let mut node = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kernel::Node::settle(&mut node);
        node.clone()
    }

    /// A node that another message can hold.
    fn share(&self) -> Node {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).share()
    }

    fn kind(&self) -> Kind {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).kind()
    }

    /// Only fields that are set or cleared as a whole have presence.
    fn place_of_message(&self, name: &Bound<'_, PyAny>) -> PyResult<usize> {
        let kind = self.kind();
        let index = place(kind, name)?;
        if !matches!(kind, Kind::Example | Kind::SequenceExample | Kind::Feature) {
            let name = kind.fields().get(index).map_or("", |field| field.name);
            return Err(PyValueError::new_err(format!(
                "Field tensorflow.{}.{name} does not have presence.",
                kind.name()
            )));
        }
        Ok(index)
    }

    fn is_oneof(&self, name: &Bound<'_, PyAny>) -> bool {
        self.kind() == Kind::Feature && name.extract::<&str>().is_ok_and(|name| name == "kind")
    }

    fn kind_set(&self) -> Option<&'static Field> {
        let fields = self.kind().fields();
        fields.iter().enumerate().find(|(index, _)| self.node().has(*index)).map(|(_, field)| field)
    }

    /// Another message of the same kind, for merging.
    fn take_from(&self, other: &Bound<'_, PyAny>, verb: &str) -> PyResult<Node> {
        message_of(self.kind(), other, false).map_err(|error| {
            if !error.is_instance_of::<PyTypeError>(other.py()) {
                return error;
            }
            PyTypeError::new_err(format!(
                "Parameter to {verb}() must be instance of same class: expected {}, got {}",
                self.kind().name(),
                values::type_name(other)
            ))
        })
    }
}

#[pymethods]
#[allow(non_snake_case, reason = "protobuf's names")]
impl Message {
    #[pyo3(signature = (*, deterministic = None))]
    fn SerializeToString<'py>(
        &self,
        py: Python<'py>,
        deterministic: Option<bool>,
    ) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &kernel::serialize(&self.node(), deterministic.unwrap_or(false)))
    }

    #[pyo3(signature = (*, deterministic = None))]
    fn SerializePartialToString<'py>(
        &self,
        py: Python<'py>,
        deterministic: Option<bool>,
    ) -> Bound<'py, PyBytes> {
        self.SerializeToString(py, deterministic)
    }

    fn ParseFromString(&self, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.node().clear();
        self.MergeFromString(data)
    }

    fn MergeFromString(&self, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.node().touch();
        merge_bytes(&self.node(), data)
    }

    fn MergeFrom(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        let other = self.take_from(other, "MergeFrom")?;
        let node = self.node();
        node.touch();
        node.absorb(other);
        Ok(())
    }

    fn CopyFrom(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(other) = other.cast::<Self>()
            && Arc::ptr_eq(&self.node(), &other.get().node())
        {
            return Ok(());
        }
        let other = self.take_from(other, "CopyFrom")?;
        let node = self.node();
        node.touch();
        node.make_room();
        node.absorb(other);
        Ok(())
    }

    fn Clear(&self) {
        self.node().touch();
        self.node().clear();
    }

    fn ClearField(&self, name: &Bound<'_, PyAny>) -> PyResult<()> {
        self.node().touch();
        if self.is_oneof(name) {
            if let Some(index) = (0..3).find(|index| self.node().has(*index)) {
                self.node().clear_field(index);
            }
            return Ok(());
        }
        self.node().clear_field(place(self.kind(), name)?);
        Ok(())
    }

    fn HasField(&self, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        if self.is_oneof(name) {
            return Ok(self.kind_set().is_some());
        }
        Ok(self.node().has(self.place_of_message(name)?))
    }

    fn WhichOneof(&self, name: &Bound<'_, PyAny>) -> PyResult<Option<&'static str>> {
        if !self.is_oneof(name) {
            return Err(no_field(self.kind(), &name.str()?.to_string_lossy()));
        }
        Ok(self.kind_set().map(|field| field.name))
    }

    fn ListFields<'py>(&self, py: Python<'py>) -> PyResult<Vec<(MessageField, Bound<'py, PyAny>)>> {
        let fields = self.kind().fields().iter().enumerate();
        fields
            .filter(|(index, _)| is_listed(&self.node(), *index))
            .map(|(index, field)| {
                let name = MessageField { name: field.name, number: index + 1 };
                Ok((name, value_of(py, &self.node(), index)?))
            })
            .collect()
    }

    fn ByteSize(&self) -> usize {
        kernel::size(&self.node())
    }

    fn IsInitialized(&self) -> bool {
        true
    }

    fn FindInitializationErrors<'py>(&self, py: Python<'py>) -> Bound<'py, PyList> {
        PyList::empty(py)
    }

    fn SetInParent(&self) {
        self.node().touch();
    }

    fn DiscardUnknownFields(&self) {
        self.node().touch();
        self.node().discard_unknown();
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.HasField(name)
    }

    fn __eq__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        let other = match other.cast::<Self>() {
            Ok(other) => other.get().node(),
            Err(_) => match message_of(self.kind(), other, false) {
                Ok(other) => other,
                Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                    return Ok(py.NotImplemented());
                }
                Err(error) => return Err(error),
            },
        };
        // Messages are compared by their bytes, as in protobuf: NaN equals NaN, and 0.0 does not
        // equal -0.0.
        let equal = self.kind() == other.kind()
            && kernel::serialize(&self.node(), false) == kernel::serialize(&other, false);
        Ok(equal.into_pyobject(py)?.to_owned().into_any().unbind())
    }

    fn __repr__(&self) -> String {
        kernel::text(&self.node())
    }

    fn __copy__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        view(py, self.node().copy())
    }

    fn __deepcopy__<'py>(&self, memo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.__copy__(memo.py())
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyType>, (), Bound<'py, PyDict>)> {
        let state = PyDict::new(slf.py());
        state.set_item("serialized", slf.get().SerializeToString(slf.py(), None))?;
        Ok((slf.get_type(), (), state))
    }

    fn __setstate__(&self, state: &Bound<'_, PyDict>) -> PyResult<()> {
        match state.get_item("serialized")? {
            Some(data) => self.ParseFromString(&data).map(drop),
            None => Err(PyValueError::new_err("the state of a message holds its bytes")),
        }
    }
}
