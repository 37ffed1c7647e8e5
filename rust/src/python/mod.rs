//! The PyO3 layer: converts arguments, releases the GIL, wraps results.

mod arrow;
mod at_once;
mod buffer;
mod cached_blocks;
mod compression;
mod encode;
mod files;
mod frames;
mod hashes;
mod headed;
mod image_arrays;
mod images;
mod index_file;
mod mapping;
mod messages;
mod msgpack;
mod objects;
mod permute;
mod recordio;
mod remote;
mod riegeli;
mod splice;
mod tar;
mod tar_members;
mod tensors;
mod train_images;
mod values;

use crate::tuned::BRIEF_BYTES;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::wire::Fault;

/// Every chunk needs buffers of a megabyte, made by one thread and freed by another. The system's allocator
/// returns such memory each time and pays for fresh pages; this allocator keeps it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Freed memory returns to the system if it was not used for a quarter of a second, instead of the
/// allocator's ten milliseconds. A training step may pass between two batches. Each page that was
/// returned to the system costs a page fault and must be cleared, which takes as long as decoding
/// into it.
fn keep_memory_for_a_while() {
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    const USUAL_MS: std::ffi::c_long = 10;
    // SAFETY: options may be read and set at any time. If the value is not the default, the user has
    // set it in the environment, or 15 is the number of another option in this release of mimalloc.
    // In both cases it stays as it is.
    unsafe {
        if libmimalloc_sys::mi_option_get(PURGE_DELAY) == USUAL_MS {
            libmimalloc_sys::mi_option_set(PURGE_DELAY, 250);
        }
    }
}

/// A fault of a kernel, from which Python makes errors and reports.
#[pyclass(name = "Fault", frozen, get_all, module = "penstock._core")]
pub struct PyFault {
    kind: String,
    byte: u64,
    record: Option<usize>,
    field: Option<String>,
    frame: Option<u32>,
    expected: Option<u64>,
    found: Option<u64>,
    message: String,
}

#[pymethods]
impl PyFault {
    /// A fault that a layer above the kernels found.
    #[new]
    #[pyo3(signature = (kind, byte, message, expected = None, found = None))]
    fn new(
        kind: String,
        byte: u64,
        message: String,
        expected: Option<u64>,
        found: Option<u64>,
    ) -> Self {
        Self { kind, byte, record: None, field: None, frame: None, expected, found, message }
    }

    fn __repr__(&self) -> String {
        format!("Fault({:?}, byte={}, {:?})", self.kind, self.byte, self.message)
    }
}

impl From<Fault> for PyFault {
    fn from(fault: Fault) -> Self {
        Self {
            kind: fault.kind.name().to_owned(),
            byte: fault.byte,
            record: fault.record,
            field: fault.field,
            frame: fault.frame.map(|number| number.get().saturating_sub(1)),
            expected: fault.expected,
            found: fault.found,
            message: fault.message,
        }
    }
}

pyo3::create_exception!(
    penstock._core,
    KernelError,
    PyValueError,
    "A kernel met a fault; args[0] is the Fault."
);

/// A fault as an exception whose only argument is the Fault.
pub fn raise(fault: Fault) -> PyErr {
    Python::attach(|py| match Py::new(py, PyFault::from(fault)) {
        Ok(fault) => KernelError::new_err((fault,)),
        Err(error) => error,
    })
}

/// Run a kernel without the GIL. A panic becomes `penstock.errors.InternalError`, an ordinary exception:
/// pyo3's PanicException is not caught by `except Exception`.
pub fn run<T, F>(py: Python<'_>, kernel: F) -> PyResult<T>
where
    T: Send,
    F: FnOnce() -> Result<T, Fault> + Send,
{
    outcome(py, py.detach(|| catch_unwind(AssertUnwindSafe(kernel))))
}

/// The same for a kernel with this many bytes of work: with few bytes, the GIL is kept.
pub fn run_on<T, F>(py: Python<'_>, num_bytes: usize, kernel: F) -> PyResult<T>
where
    T: Send,
    F: FnOnce() -> Result<T, Fault> + Send,
{
    if num_bytes >= BRIEF_BYTES {
        return run(py, kernel);
    }
    outcome(py, catch_unwind(AssertUnwindSafe(kernel)))
}

fn outcome<T>(py: Python<'_>, done: thread::Result<Result<T, Fault>>) -> PyResult<T> {
    match done {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(fault)) => Err(raise(fault)),
        Err(panic) => Err(internal(py, &panic)),
    }
}

#[cold]
fn internal(py: Python<'_>, panic: &(dyn std::any::Any + Send)) -> PyErr {
    static KIND: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown");
    let message = format!("an internal error of penstock: {text}");
    match KIND.import(py, "penstock.errors", "InternalError") {
        Ok(kind) => PyErr::from_type(kind.clone(), message),
        Err(_) => PyRuntimeError::new_err(message),
    }
}

#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::keep_memory_for_a_while();
        Ok(())
    }

    #[pymodule_export]
    use super::{
        KernelError, PyFault,
        arrow::ArrowArray,
        at_once::examples_at,
        buffer::PyBuffer,
        cached_blocks::PyHits,
        compression::{
            PyInflater, PyZlibDeflater, gzip_member, inflate_member, inflate_members, member_head,
            unpack_chunks,
        },
        encode::{PyFramed, encode_examples, frame_records},
        files::{PyFile, exchange, read_files, reserve, start_sync, sync_file_system},
        frames::{PyFrames, PyPlan, frames_at, next_head, read_frames, walk},
        hashes::{PyGroups, record_draws, secure_hashes},
        headed::glue,
        image_arrays::{
            bmp_pixels, change_colours, gif_pixels, jpeg_bytes, jpeg_pixels, jpeg_shape, png_bytes,
            png_pixels, resize_images,
        },
        images::{
            PyPixels, decode_images, encode_images, image_orientations, jpeg_pixels_by,
            probe_images, reencode_images,
        },
        index_file::frame_extent,
        index_file::index_file,
        messages::{
            BytesList, Example, Feature, FeatureList, FeatureLists, Features, FloatList, Int64List,
            Message, MessageField, MessageMap, RepeatedMessage, RepeatedScalar, SequenceExample,
        },
        msgpack::{PyFacts, PyMsgpackPlan, encode_msgpack, frame_values, looks_like_maps},
        objects::bytes_list,
        permute::{buffered, key_of, mixed, permuted, permuted_each, record_keys},
        recordio::{encode_recordio, recordio_columns, recordio_payloads},
        remote::{PyFetch, PyRemoteStore, PyState, PyUpload, StoreError, while_waiting},
        riegeli::{message_numbers, riegeli_head, riegeli_records},
        splice::{has_fields, splice_fields},
        tar::{PyTarPlan, encode_tar, is_tar_head, tar_comment, tar_end_bytes, tar_fields},
        tar_members::read_members,
        tensors::decode_tensors,
        train_images::{
            PyBufferPool, PyPooledBuffer, PyRecipe, image_view_sizes, make_images, mask_kind,
        },
        values::PyValues,
    };
}
