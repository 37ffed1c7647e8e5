//! Frames and their operations: finding, verifying, decoding, inferring.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, UInt64Array};
use arrow_buffer::Buffer;
use arrow_schema::{Field, Schema};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PySlice};

use super::arrow::{ArrowArray, import};
use super::buffer::{PyBuffer, room};
use super::files::{PyFile, threads_for};
use super::{PyFault, raise, run, run_on};
use crate::kernels::buffer_pool;
use crate::kernels::columns::{Layout, Values};
use crate::kernels::decode_examples::{Dialect, Numbers, Plan, Wanted, decode};
use crate::kernels::infer_examples::infer;
use crate::kernels::walk::{self as walking, Frames, Walk};
use crate::wire::example::Kind;
use crate::wire::frames::{AnyFraming, Framing, with_framing};
use crate::wire::tf_example::Parser;
use crate::wire::{Fault, FaultKind};

/// The frames of one buffer.
#[pyclass(name = "Frames", frozen, module = "penstock._core")]
pub struct PyFrames(pub(super) Frames);

pub(super) fn u64s(object: &Bound<'_, PyAny>) -> PyResult<UInt64Array> {
    let array = import(object)?;
    match array.as_primitive_opt::<UInt64Type>() {
        Some(numbers) => Ok(numbers.clone()),
        None => Err(PyTypeError::new_err("expected an array of uint64")),
    }
}

fn u32s(object: &Bound<'_, PyAny>) -> PyResult<UInt32Array> {
    let array = import(object)?;
    match array.as_primitive_opt::<UInt32Type>() {
        Some(numbers) => Ok(numbers.clone()),
        None => Err(PyTypeError::new_err("expected an array of uint32")),
    }
}

/// The checksums to verify before a kernel runs.
pub(super) struct Checks {
    pub(super) check: bool,
    indexed: Option<UInt32Array>,
}

impl Checks {
    pub(super) fn new(check: bool, indexed: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Ok(Self { check, indexed: indexed.map(u32s).transpose()? })
    }

    pub(super) fn of(check: bool, indexed: Vec<u32>) -> Self {
        Self { check, indexed: Some(indexed.into()) }
    }

    /// Verify these frames of the records, if `check`.
    pub(super) fn verify_part(&self, frames: &Frames, records: Range<usize>) -> Result<(), Fault> {
        let known = self.indexed.as_ref().and_then(|numbers| numbers.values().get(records));
        match self.check {
            true => frames.verify_range(0..frames.spans.len(), known),
            false => Ok(()),
        }
    }

    pub(super) fn verify(&self, frames: &Frames, records: Range<usize>) -> Result<(), Fault> {
        let known = self.indexed.as_ref().map(|numbers| &numbers.values()[..]);
        frames.verify_range(records, known)
    }

    pub(super) fn pass(&self, frames: &Frames) -> Result<(), Fault> {
        match self.check {
            true => self.verify(frames, 0..frames.spans.len()),
            false => Ok(()),
        }
    }
}

pub(super) fn framing(name: &str) -> PyResult<AnyFraming> {
    AnyFraming::named(name)
        .ok_or_else(|| PyValueError::new_err(format!("unknown framing {name:?}")))
}

/// An estimate of a kernel's work, in bytes, with an overhead for each record. If the records are a
/// small part of the buffer, the buffer may be a mapped file whose pages have to come from disk, so
/// this counts as much work.
fn work(buffer_bytes: usize, num_bytes: usize, records: usize) -> usize {
    let touched = num_bytes.saturating_add(records.saturating_mul(128));
    if buffer_bytes / 4 > touched { usize::MAX } else { touched }
}

#[pymethods]
impl PyFrames {
    fn __len__(&self) -> usize {
        self.0.spans.len()
    }

    #[getter]
    fn base(&self) -> u64 {
        self.0.base
    }

    /// The buffer of the records.
    #[getter]
    fn buffer(&self) -> PyBuffer {
        PyBuffer(self.0.buffer.clone())
    }

    /// Bytes of all payloads.
    #[getter]
    fn num_bytes(&self) -> u64 {
        self.0.spans.iter().map(|span| span.1 as u64).sum()
    }

    /// The bytes of one payload.
    fn payload<'py>(&self, py: Python<'py>, record: usize) -> PyResult<Bound<'py, PyBytes>> {
        match self.0.payload(record) {
            Some(payload) => Ok(PyBytes::new(py, payload)),
            None => Err(PyIndexError::new_err(record)),
        }
    }

    /// Offset of each frame in its file, as uint64.
    fn starts(&self) -> ArrowArray {
        let starts = (0..self.0.spans.len()).map(|record| self.0.start(record));
        ArrowArray::new(starts.collect::<UInt64Array>())
    }

    /// Bytes of each payload, as uint64.
    fn lengths(&self) -> ArrowArray {
        let lengths = self.0.spans.iter().map(|span| span.1 as u64);
        ArrowArray::new(lengths.collect::<UInt64Array>())
    }

    /// The stored checksum of each record, as uint32.
    fn checksums(&self, py: Python<'_>) -> PyResult<ArrowArray> {
        let stored = run(py, || Ok(self.0.checksums()))?;
        Ok(ArrowArray::new(UInt32Array::from(stored)))
    }

    /// The records with these numbers (uint64), in this order.
    fn select(&self, records: &Bound<'_, PyAny>) -> PyResult<Self> {
        let records = u64s(records)?;
        match self.0.select(records.values().iter().map(|&r| r as usize)) {
            Some(frames) => Ok(Self(frames)),
            None => Err(PyIndexError::new_err("record number beyond the chunk")),
        }
    }

    fn __getitem__(&self, range: &Bound<'_, PySlice>) -> PyResult<Self> {
        let at = range.indices(self.0.spans.len() as isize)?;
        if at.step != 1 {
            return Err(PyValueError::new_err("step must be 1"));
        }
        match self.0.select(at.start as usize..(at.stop.max(at.start)) as usize) {
            Some(frames) => Ok(Self(frames)),
            None => Err(PyIndexError::new_err("record number beyond the chunk")),
        }
    }

    /// Compare payloads with their stored checksums, and the stored checksums with those of an
    /// index (uint32), if given. Returns the faults.
    #[pyo3(signature = (indexed = None))]
    fn verify(&self, py: Python<'_>, indexed: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<PyFault>> {
        let indexed = indexed.map(u32s).transpose()?;
        let known = indexed.as_ref().map(|numbers| &numbers.values()[..]);
        let faults = run(py, || Ok(self.0.verify(known)))?;
        Ok(faults.into_iter().map(PyFault::from).collect())
    }

    /// Verify payloads, and raise the first fault.
    #[pyo3(signature = (indexed = None))]
    fn prove(&self, py: Python<'_>, indexed: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let checks = Checks::new(true, indexed)?;
        run(py, || checks.pass(&self.0))
    }

    /// The payloads as a binary_view array, without copying. With `check`, all are verified first, and the
    /// first fault is raised.
    #[pyo3(signature = (check = false, indexed = None))]
    fn views(
        &self,
        py: Python<'_>,
        check: bool,
        indexed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ArrowArray> {
        let checks = Checks::new(check, indexed)?;
        let views = run(py, || {
            checks.pass(&self.0)?;
            self.0.views()
        })?;
        Ok(ArrowArray::new(views))
    }

    /// Decode the payloads as Examples: a struct array with a field for each column of the plan. With
    /// `check`, all are verified first, and the first fault is raised. Large batches of scattered records,
    /// as `take` gathers them, are decoded on several threads.
    #[pyo3(signature = (plan, check = false, indexed = None))]
    fn decode(
        &self,
        py: Python<'_>,
        plan: &PyPlan,
        check: bool,
        indexed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ArrowArray> {
        let checks = Checks::new(check, indexed)?;
        let frames = &self.0;
        let num_bytes = frames.spans.iter().map(|span| span.1).sum();
        let decoded = run_on(py, work(frames.buffer.len(), num_bytes, frames.spans.len()), || {
            let threads = match frames.places.is_some() {
                true => threads_for(num_bytes),
                false => 1,
            };
            let verify = |records| checks.verify(frames, records);
            let arrays = match checks.check {
                true => decode(frames, &plan.plan, threads, verify)?,
                false => decode(frames, &plan.plan, threads, |_| Ok(()))?,
            };
            batch(&plan.names, arrays, frames.spans.len())
        })?;
        Ok(ArrowArray::batch(decoded))
    }

    /// Facts about the payloads for a schema, if they are Examples.
    fn infer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let facts = run(py, || Ok(infer(&self.0)))?;
        let out = PyDict::new(py);
        out.set_item("num_records", facts.num_records)?;
        out.set_item("num_examples", facts.num_examples)?;
        out.set_item("num_broken", facts.num_broken)?;
        let keys = PyList::empty(py);
        for ((in_lists, key), seen) in facts.keys {
            let entry = PyDict::new(py);
            entry.set_item("in_lists", in_lists)?;
            entry.set_item("key", String::from_utf8_lossy(&key))?;
            entry.set_item("present", seen.present)?;
            entry.set_item("unset", seen.unset)?;
            entry.set_item("kinds", seen.kinds)?;
            entry.set_item("values", seen.values)?;
            entry.set_item("frames", seen.frames)?;
            entry.set_item("strings", seen.strings)?;
            keys.append(entry)?;
        }
        out.set_item("keys", keys)?;
        Ok(out)
    }
}

pub(super) fn batch(
    names: &[String],
    arrays: Vec<ArrayRef>,
    records: usize,
) -> Result<RecordBatch, Fault> {
    let field =
        |(name, array): (&String, &ArrayRef)| Field::new(name, array.data_type().clone(), true);
    let fields: Vec<Field> = names.iter().zip(&arrays).map(field).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(records));
    RecordBatch::try_new_with_options(Schema::new(fields).into(), arrays, &options)
        .map_err(|error| Fault::new(FaultKind::Schema, 0, error.to_string()))
}

/// Which columns to decode, made once for many batches.
#[pyclass(name = "ExamplePlan", frozen, module = "penstock._core")]
pub struct PyPlan {
    pub(super) plan: Plan,
    pub(super) names: Vec<String>,
}

/// One column of a plan, as Python passes it: column name; key; whether it is a feature list; kind
/// ("int64", "float", "bytes" or None; or "any_int64", "any_float", "any_double", which also accept
/// numbers of the other kind if no value changes); layout ("scalar", "list", "fixed", "rows",
/// "frame_scalars", "frame_rows", "frame_lists"); size of "fixed" or of a row; how bytes become
/// values ("bytes", "text", or "views" into the buffer that was read); whether it is required;
/// default values or None.
type Given<'py> = (
    String,
    Vec<u8>,
    bool,
    Option<String>,
    String,
    usize,
    String,
    bool,
    Option<Bound<'py, PyList>>,
);

fn wanted(given: Given<'_>) -> PyResult<(String, Wanted)> {
    let (name, key, in_lists, kind, layout, size, strings, required, default) = given;
    let (text, borrow) = (strings == "text", strings == "views");
    let (kind, numbers) = match kind.as_deref() {
        None => (None, Numbers::OfItsKind),
        Some("int64") => (Some(Kind::Int64), Numbers::OfItsKind),
        Some("float") => (Some(Kind::Float), Numbers::OfItsKind),
        Some("bytes") => (Some(Kind::Bytes), Numbers::OfItsKind),
        Some("any_int64") => (Some(Kind::Int64), Numbers::Any),
        Some("any_float") => (Some(Kind::Float), Numbers::Any),
        Some("any_double") => (Some(Kind::Float), Numbers::Doubles),
        Some(other) => return Err(PyValueError::new_err(format!("unknown kind {other:?}"))),
    };
    let layout = match layout.as_str() {
        "scalar" => Layout::Scalar,
        "list" => Layout::List,
        "fixed" => Layout::Fixed(size),
        "rows" => Layout::Rows(size),
        "frame_scalars" => Layout::FrameRows(1),
        "frame_rows" => Layout::FrameRows(size),
        "frame_lists" => Layout::FrameLists,
        other => return Err(PyValueError::new_err(format!("unknown layout {other:?}"))),
    };
    let default = match (kind, default) {
        (Some(kind), Some(list)) => Some(default_values(kind, &list)?),
        _ => None,
    };
    Ok((name, Wanted { key, in_lists, kind, numbers, layout, text, borrow, required, default }))
}

fn default_values(kind: Kind, list: &Bound<'_, PyList>) -> PyResult<Values> {
    Ok(match kind {
        Kind::Int64 => Values::Int64(list.extract()?),
        Kind::Float => Values::Float(list.extract()?),
        Kind::Bytes => {
            let mut values = Values::new(Kind::Bytes);
            for value in list {
                values.push_bytes(value.cast::<PyBytes>()?.as_bytes()).map_err(raise)?;
            }
            values
        }
    })
}

#[pymethods]
impl PyPlan {
    /// With `complete`, a record with other features is a fault.
    #[new]
    #[pyo3(signature = (columns, dialect, complete = false))]
    fn new(columns: Vec<Given<'_>>, dialect: &str, complete: bool) -> PyResult<Self> {
        let single = dialect == "tensorflow_single";
        let dialect = match dialect {
            "protobuf" => Dialect::Protobuf,
            "tensorflow" | "tensorflow_single" => Dialect::TensorFlow(Parser::Example),
            "tensorflow_sequence" => Dialect::TensorFlow(Parser::Sequence),
            other => return Err(PyValueError::new_err(format!("unknown dialect {other:?}"))),
        };
        let (names, columns): (_, Vec<_>) =
            columns.into_iter().map(wanted).collect::<PyResult<Vec<_>>>()?.into_iter().unzip();
        let converts = columns.iter().any(|column| column.numbers != Numbers::OfItsKind);
        if converts && dialect != Dialect::Protobuf {
            return Err(PyValueError::new_err("TensorFlow's parsers convert no numbers"));
        }
        let mut plan = Plan::new(columns, dialect);
        plan.single = single;
        plan.complete = complete;
        Ok(Self { plan, names })
    }
}

/// Find the frames of a buffer: (frames, bytes consumed, total bytes of the next frame, fault or None).
/// `base` is the buffer's offset in its file; `last` means that the stream of frames ends where the buffer
/// ends.
#[pyfunction]
#[pyo3(signature = (name, buffer, base, max_record, last = true))]
pub fn walk(
    py: Python<'_>,
    name: &str,
    buffer: &PyBuffer,
    base: u64,
    max_record: u64,
    last: bool,
) -> PyResult<(PyFrames, usize, u64, Option<PyFault>)> {
    let kind = framing(name)?;
    let window = &buffer.0;
    let walk = || Ok(with_framing!(kind, f => walking::walk(f, window, max_record, last)));
    Ok(found(kind, window.clone(), base, run(py, walk)?))
}

/// Read a part of a local file and find its frames, in one call. Returns the results of `walk`, and
/// the number of bytes read.
#[pyfunction]
pub fn read_frames(
    py: Python<'_>,
    name: &str,
    file: &PyFile,
    start: u64,
    length: usize,
    max_record: u64,
) -> PyResult<(PyFrames, usize, u64, Option<PyFault>, usize)> {
    let kind = framing(name)?;
    let length = file.clamp(start, length);
    let last = start.saturating_add(length as u64) >= file.size;
    let mut bytes = room(length)?;
    let mut read = || {
        file.read_into(&mut bytes, start, length)?;
        let walk = with_framing!(kind, f => walking::walk(f, &bytes, max_record, last));
        Ok::<_, std::io::Error>((buffer_pool::pooled(std::mem::take(&mut bytes)), walk))
    };
    let (buffer, walk) = run(py, || Ok(read()))??;
    let num_bytes = buffer.len();
    let (frames, consumed, need, fault) = found(kind, buffer, start, walk);
    Ok((frames, consumed, need, fault, num_bytes))
}

fn found(
    kind: AnyFraming,
    buffer: Buffer,
    base: u64,
    walk: Walk,
) -> (PyFrames, usize, u64, Option<PyFault>) {
    let frames = Frames { kind, buffer, base, spans: walk.spans, places: None };
    let fault = walk.fault.map(|fault| PyFault::from(fault.shifted(base)));
    (PyFrames(frames), walk.consumed, walk.need, fault)
}

/// The frames at positions from an index (uint64 arrays): start in the buffer, total length, offset in the
/// file. A KernelError of kind "stale" if there is no such frame at a position.
#[pyfunction]
pub fn frames_at(
    py: Python<'_>,
    name: &str,
    buffer: &PyBuffer,
    starts: &Bound<'_, PyAny>,
    lengths: &Bound<'_, PyAny>,
    places: &Bound<'_, PyAny>,
) -> PyResult<PyFrames> {
    let kind = framing(name)?;
    let (starts, lengths, places) = (u64s(starts)?, u64s(lengths)?, u64s(places)?);
    let (s, l, p) = (starts.values(), lengths.values(), places.values());
    run_on(py, work(buffer.0.len(), 0, s.len()), || walking::frames_at(kind, &buffer.0, s, l, p))
        .map(PyFrames)
}

/// The first valid frame head from `start` on: (offset in the buffer, bytes of the whole frame), or
/// None.
#[pyfunction]
pub fn next_head(
    py: Python<'_>,
    name: &str,
    buffer: &PyBuffer,
    start: usize,
) -> PyResult<Option<(usize, u64)>> {
    let kind = framing(name)?;
    let found = run(py, || Ok(with_framing!(kind, f => f.find(&buffer.0, start))))?;
    Ok(found.map(|candidate| (candidate.at, candidate.total)))
}
