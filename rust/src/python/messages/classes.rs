//! The nine classes: their names, constructor arguments and fields.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::values::made;
use super::{Message, Node, merge_bytes, no_field, value_of};
use crate::kernels::messages::{self as kernel, Kind};

/// Positional and unknown arguments are refused.
fn refuse(
    kind: Kind,
    args: &Bound<'_, PyTuple>,
    unknown: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    if !args.is_empty() {
        return Err(PyTypeError::new_err("No positional arguments allowed"));
    }
    match unknown.and_then(|unknown| unknown.keys().get_item(0).ok()) {
        Some(name) => Err(no_field(kind, &name.str()?.to_string_lossy())),
        None => Ok(()),
    }
}

macro_rules! message {
    ($class:ident, $doc:literal, $($field:ident $index:literal),+) => {
        #[doc = $doc]
        #[pyclass(extends = Message, frozen, module = "penstock.tf.train")]
        pub struct $class;

        #[pymethods]
        #[allow(non_snake_case, reason = "protobuf's names")]
        impl $class {
            #[new]
            #[pyo3(signature = (*args, $($field = None,)+ **unknown))]
            fn new(
                args: &Bound<'_, PyTuple>,
                $($field: Option<&Bound<'_, PyAny>>,)+
                unknown: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<PyClassInitializer<Self>> {
                refuse(Kind::$class, args, unknown)?;
                let node = made(Kind::$class, &[$($field),+])?;
                Ok(PyClassInitializer::from(Message::from(node)).add_subclass(Self))
            }

            #[staticmethod]
            fn FromString<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                let node = kernel::Node::new(Kind::$class);
                merge_bytes(&node, data)?;
                wrap(data.py(), node)
            }

            $(
                #[getter]
                fn $field<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                    value_of(slf.py(), &slf.as_super().get().node(), $index)
                }
            )+
        }
    };
}

message!(Example, "One record: its features, by name.", features 0);
message!(
    SequenceExample,
    "A record of several steps: features of the whole record, and lists with a feature for each step.",
    context 0, feature_lists 1
);
message!(Features, "Features by name.", feature 0);
message!(FeatureLists, "Lists of features by name.", feature_list 0);
message!(FeatureList, "Features, one for each step.", feature 0);
message!(
    Feature,
    "Values of one kind: bytes, floats or whole numbers.",
    bytes_list 0, float_list 1, int64_list 2
);
message!(BytesList, "Byte strings.", value 0);
message!(FloatList, "32-bit floats.", value 0);
message!(Int64List, "64-bit whole numbers.", value 0);

/// Wrap a message in the class of its kind.
pub fn wrap(py: Python<'_>, node: Node) -> PyResult<Bound<'_, PyAny>> {
    macro_rules! of {
        ($class:ident) => {{
            let made = PyClassInitializer::from(Message::from(node)).add_subclass($class);
            Ok(Bound::new(py, made)?.into_any())
        }};
    }
    match node.kind() {
        Kind::Example => of!(Example),
        Kind::SequenceExample => of!(SequenceExample),
        Kind::Features => of!(Features),
        Kind::FeatureLists => of!(FeatureLists),
        Kind::FeatureList => of!(FeatureList),
        Kind::Feature => of!(Feature),
        Kind::BytesList => of!(BytesList),
        Kind::FloatList => of!(FloatList),
        Kind::Int64List => of!(Int64List),
    }
}
