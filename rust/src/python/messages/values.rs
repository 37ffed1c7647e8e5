//! Converts what Python passes as values of fields: numbers, bytes, messages, and dicts of them.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeDecodeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use super::{Message, Node, merge_bytes, no_field};
use crate::kernels::messages::{self as kernel, Blob, Body, Kind};

/// A byte string, kept as its Python object, so that it is never copied.
#[derive(Debug)]
pub struct PyBlob(pub Py<PyBytes>);

impl Blob for PyBlob {
    fn of(bytes: &[u8]) -> Self {
        Python::attach(|py| Self(PyBytes::new(py, bytes).unbind()))
    }

    fn share(&self) -> Self {
        Python::attach(|py| Self(self.0.clone_ref(py)))
    }

    fn bytes(&self) -> &[u8] {
        Python::attach(|py| self.0.as_bytes(py))
    }
}

/// The name of a value's type, for messages.
pub fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

fn expected_bytes(value: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("expected bytes, {} found", type_name(value)))
}

/// The bytes to parse: bytes, or any object with a buffer.
pub fn bytes_of<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    if data.cast::<PyString>().is_ok() || data.cast::<PyList>().is_ok() {
        return Err(expected_bytes(data));
    }
    // SAFETY: the pointer is that of a live object; null means that an error is set.
    let made =
        unsafe { Bound::from_owned_ptr_or_err(data.py(), ffi::PyBytes_FromObject(data.as_ptr())) };
    Ok(made.map_err(|_| expected_bytes(data))?.cast_into::<PyBytes>()?)
}

/// A value of a `BytesList`.
pub fn blob(value: &Bound<'_, PyAny>) -> PyResult<PyBlob> {
    if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        return Ok(PyBlob(bytes.clone().unbind()));
    }
    // Subclasses, such as NumPy's, are converted to plain bytes.
    let bytes = value.cast::<PyBytes>().map_err(|_| expected_bytes(value))?;
    Ok(PyBlob::of(bytes.as_bytes()))
}

/// A value of an `Int64List`: anything that can be an index. bool is an int in Python and in protobuf.
pub fn int(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    value.extract::<i64>().map_err(|error| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            return PyValueError::new_err(format!("Value out of range: {value}"));
        }
        if value.cast::<PyInt>().is_ok() {
            return error;
        }
        PyTypeError::new_err(format!(
            "'{}' object cannot be interpreted as an integer; Int64List holds whole numbers only",
            type_name(value)
        ))
    })
}

/// A value of a `FloatList`, rounded to 32 bits; infinite if it is too large.
pub fn float(value: &Bound<'_, PyAny>) -> PyResult<f32> {
    if let Ok(number) = value.cast_exact::<PyFloat>() {
        return Ok(number.value() as f32);
    }
    if value.getattr_opt("ndim")?.is_some_and(|ndim| ndim.is_truthy().unwrap_or(false)) {
        return Err(PyTypeError::new_err(format!(
            "{value} has type {}, but expected one of: float",
            type_name(value)
        )));
    }
    Ok(value.extract::<f64>()? as f32)
}

/// The items of any iterable. An array is converted to Python numbers in one call if that does not
/// change the values, which is several times as fast as one by one.
fn items<'py>(values: &Bound<'py, PyAny>, kinds: &str) -> PyResult<Bound<'py, PyAny>> {
    if values.cast_exact::<PyList>().is_ok() || values.cast_exact::<PyTuple>().is_ok() {
        return Ok(values.clone());
    }
    if let Some(dtype) = values.getattr_opt("dtype")?
        && let Some(ndim) = values.getattr_opt("ndim")?
        && ndim.eq(1)?
        && kinds.contains(&dtype.getattr("kind")?.extract::<String>()?)
    {
        return values.call_method0("tolist");
    }
    Ok(values.clone())
}

fn collect<T>(
    values: &Bound<'_, PyAny>,
    kinds: &str,
    one: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let values = items(values, kinds)?;
    if let Ok(list) = values.cast_exact::<PyList>() {
        let mut made = Vec::with_capacity(list.len());
        for value in list.iter() {
            made.push(one(&value)?);
        }
        return Ok(made);
    }
    let Ok(iterator) = values.try_iter() else {
        return Err(PyTypeError::new_err(format!(
            "must assign iterable: {} is not iterable; write value=[x] for one value",
            type_name(&values)
        )));
    };
    iterator.map(|value| one(&value?)).collect()
}

/// The fields of a list message or of a `FeatureList`, from an iterable. The iterable is read
/// completely before any message is locked, because iterating may run any code.
pub fn gathered(kind: Kind, values: &Bound<'_, PyAny>) -> PyResult<Body<PyBlob>> {
    Ok(match kind {
        Kind::BytesList => Body::Bytes(collect(values, "", blob)?),
        Kind::FloatList => Body::Floats(collect(values, "fiu", float)?),
        Kind::Int64List => Body::Ints(collect(values, "iu", int)?),
        _ => Body::Many(collect(values, "", |value| message_of(Kind::Feature, value, true))?),
    })
}

/// A message of this kind, made from an object of one of these classes, of one of protobuf's
/// classes, or from a dict of fields. The caller may keep the message.
pub fn message_of(kind: Kind, value: &Bound<'_, PyAny>, or_dict: bool) -> PyResult<Node> {
    if let Ok(message) = value.cast::<Message>() {
        if message.get().kind() == kind {
            return Ok(message.get().share());
        }
    } else if let Ok(fields) = value.cast::<PyDict>() {
        if or_dict {
            let node = kernel::Node::new(kind);
            for (name, value) in fields {
                let index = super::place(kind, &name)?;
                fill(&node, index, &value)?;
            }
            return Ok(node);
        }
    } else if let Some(descriptor) = value.getattr_opt("DESCRIPTOR")?
        && let Some(name) = descriptor.getattr_opt("full_name")?
        && name.extract::<String>().is_ok_and(|n| n == format!("tensorflow.{}", kind.name()))
    {
        let node = kernel::Node::new(kind);
        merge_bytes(&node, &value.call_method0("SerializeToString")?)?;
        return Ok(node);
    }
    Err(PyTypeError::new_err(format!(
        "Parameter to initialize message field must be dict or instance of same class: expected {} got {}.",
        kind.name(),
        type_name(value)
    )))
}

/// Bytes as text.
pub fn text_of<'a>(bytes: &'a Bound<'_, PyBytes>) -> PyResult<&'a str> {
    let data = bytes.as_bytes();
    std::str::from_utf8(data).map_err(|error| {
        let py = bytes.py();
        match PyUnicodeDecodeError::new_utf8(py, data, error) {
            Ok(error) => PyErr::from_value(error.into_any()),
            Err(error) => error,
        }
    })
}

/// A key of a map.
pub fn key_of<'a>(key: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    if let Ok(text) = key.cast::<PyString>() {
        return text.to_str();
    }
    match key.cast::<PyBytes>() {
        Ok(bytes) => text_of(bytes),
        Err(_) => Err(PyTypeError::new_err(format!(
            "bad argument type for built-in operation: keys are str, not {}",
            type_name(key)
        ))),
    }
}

/// Set a field of an unshared message; None leaves the field unchanged.
pub fn fill(node: &Node, index: usize, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if value.is_none() {
        return Ok(());
    }
    let kind = node.kind();
    let Some(field) = kind.fields().get(index) else { return Err(no_field(kind, "")) };
    match (kind, field.holds) {
        (Kind::Features | Kind::FeatureLists, Some(held)) => fill_map(node, held, value),
        (Kind::Example | Kind::SequenceExample | Kind::Feature, Some(held)) => {
            node.put(index, message_of(held, value, true)?);
            Ok(())
        }
        _ => {
            node.absorb(kernel::Node::with(kind, gathered(kind, value)?));
            Ok(())
        }
    }
}

/// Put the items of a mapping into a map of messages.
pub fn fill_map(node: &Node, held: Kind, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Ok(entries) = value.cast::<PyDict>() {
        for (key, value) in entries {
            let key = key_of(&key)?;
            node.insert(key, message_of(held, &value, true)?);
        }
        return Ok(());
    }
    for key in value.try_iter()? {
        let key = key?;
        let text = key_of(&key)?;
        node.insert(text, message_of(held, &value.get_item(&key)?, true)?);
    }
    Ok(())
}

/// A new message with these values, one for each field. Of a oneof, the last value counts.
pub fn made(kind: Kind, values: &[Option<&Bound<'_, PyAny>>]) -> PyResult<Node> {
    let given = values.iter().zip(kind.fields()).enumerate();
    let mut given = given.filter_map(|(index, (value, field))| Some((index, (*value)?, field)));
    match kind {
        Kind::Example | Kind::SequenceExample | Kind::Feature => {
            let (mut slots, mut set) = ([const { None }; 3], 0);
            for (index, value, field) in given {
                if kind == Kind::Feature {
                    (slots, set) = Default::default();
                }
                if let (Some(slot), Some(held)) = (slots.get_mut(index), field.holds) {
                    *slot = Some(message_of(held, value, true)?);
                    set |= 1 << index;
                }
            }
            Ok(kernel::Node::with(kind, Body::Parts(slots, set)))
        }
        Kind::BytesList | Kind::FloatList | Kind::Int64List => match given.next() {
            Some((_, value, _)) => Ok(kernel::Node::with(kind, gathered(kind, value)?)),
            None => Ok(kernel::Node::new(kind)),
        },
        _ => {
            let node = kernel::Node::new(kind);
            for (index, value, _) in given {
                fill(&node, index, value)?;
            }
            Ok(node)
        }
    }
}
