//! Object stores for Python: waiting without the interpreter's lock, with Ctrl-C.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::GetRange;
use pyo3::buffer::PyBuffer as ForeignBuffer;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};

use super::buffer::PyBuffer;
use super::frames::u64s;
use crate::remote::client::Remote;
use crate::remote::config::Config;
use crate::remote::fetch::{self, Landed, Urgency};
use crate::remote::pending::Pending;
use crate::remote::process::{PerProcess, runtime};
use crate::remote::upload::{self, Upload};
use crate::remote::{Problem, State, list};

/// How long is waited before looking for Ctrl-C.
const GLANCE: Duration = Duration::from_millis(50);

/// Times are cut to this, in seconds, so that sums of them cannot overflow.
const LONGEST: f64 = 1e8;
/// A first range is cut to this: some servers do not understand larger numbers.
const MOST: u64 = 1 << 40;

pyo3::create_exception!(
    penstock._core,
    StoreError,
    PyException,
    "Something could not be done in a store: kind, message, key, start, end, tries, seconds."
);

fn raised(problem: Problem) -> PyErr {
    let Problem { kind, message, key, range, tries, seconds } = problem;
    let (start, end) = (range.map(|range| range.0), range.map(|range| range.1));
    StoreError::new_err((kind.name(), message, key, start, end, tries, seconds))
}

/// What identifies one state of an object.
#[pyclass(name = "ObjectState", frozen, get_all, eq, hash, module = "penstock._core")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PyState {
    size: u64,
    etag: Option<String>,
    version: Option<String>,
    modified_ms: Option<i64>,
}

#[pymethods]
impl PyState {
    #[new]
    #[pyo3(signature = (size, etag = None, version = None, modified_ms = None))]
    fn new(
        size: u64,
        etag: Option<String>,
        version: Option<String>,
        modified_ms: Option<i64>,
    ) -> Self {
        Self { size, etag, version, modified_ms }
    }

    fn __getnewargs__(&self) -> (u64, Option<String>, Option<String>, Option<i64>) {
        (self.size, self.etag.clone(), self.version.clone(), self.modified_ms)
    }

    fn __repr__(&self) -> String {
        let text = |value: &Option<String>| match value {
            Some(value) => format!("{value:?}"),
            None => "None".to_owned(),
        };
        let modified = self.modified_ms.map_or("None".to_owned(), |time| time.to_string());
        format!(
            "ObjectState({}, {}, {}, {modified})",
            self.size,
            text(&self.etag),
            text(&self.version)
        )
    }
}

impl From<State> for PyState {
    fn from(state: State) -> Self {
        let State { size, etag, version, modified_ms } = state;
        Self { size, etag, version, modified_ms }
    }
}

impl From<&PyState> for State {
    fn from(state: &PyState) -> Self {
        Self {
            size: state.size,
            etag: state.etag.clone(),
            version: state.version.clone(),
            modified_ms: state.modified_ms,
        }
    }
}

/// What threads call while they wait, besides the signal handlers.
static GLANCES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Let threads that wait for a store call this, many times a second. What it raises ends the wait.
#[pyfunction]
pub fn while_waiting(py: Python<'_>, check: Py<PyAny>) {
    let _ = GLANCES.set(py, check); // the first one stays
}

/// Wait for work, and cancel it if a signal handler raises.
fn wait<T: Clone + Send + 'static>(
    py: Python<'_>,
    remote: &Remote,
    pending: &Pending<T>,
) -> PyResult<T> {
    let start = Instant::now();
    let outcome = loop {
        if let Some(outcome) = py.detach(|| pending.outcome_within(GLANCE)) {
            break Ok(outcome);
        }
        if let Err(error) = py.check_signals() {
            break Err(error);
        }
        if let Some(Err(error)) = GLANCES.get(py).map(|check| check.call0(py)) {
            break Err(error);
        }
    };
    if let Ok(client) = remote.client() {
        let waited = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        client.traffic.waiting_ns.fetch_add(waited, Ordering::Relaxed);
    }
    outcome?.map_err(raised)
}

/// Do work and wait for it.
fn finish<T: Clone + Send + 'static>(
    py: Python<'_>,
    remote: &Remote,
    work: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> PyResult<T> {
    let pending = Pending::begin(runtime().map_err(raised)?, work);
    wait(py, remote, &pending)
}

/// The bytes of any object with the buffer protocol; those that cannot change are not copied.
fn bytes_of(data: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(buffer) = data.cast::<PyBuffer>() {
        return Ok(Bytes::from_owner(buffer.get().clone().0));
    }
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(Bytes::from_owner(PyBuffer::from_bytes(bytes.clone()).0));
    }
    let buffer = ForeignBuffer::<u8>::get(data)?;
    Ok(Bytes::from(buffer.to_vec(data.py())?))
}

/// A container in an object store, or a web server.
#[pyclass(name = "RemoteStore", frozen, module = "penstock._core")]
pub struct PyRemoteStore(Arc<Remote>);

#[pymethods]
impl PyRemoteStore {
    #[new]
    #[pyo3(signature = (
        url, options, *, credentials = None, in_flight_bytes = 96 << 20, deadline_s = 120.0, stall_s = 10.0
    ))]
    fn new(
        url: String,
        options: BTreeMap<String, String>,
        credentials: Option<Py<PyAny>>,
        in_flight_bytes: u64,
        deadline_s: f64,
        stall_s: f64,
    ) -> PyResult<Self> {
        let time = |seconds: f64| {
            Duration::try_from_secs_f64(if seconds > LONGEST { LONGEST } else { seconds })
                .ok()
                .filter(|time| !time.is_zero())
                .ok_or_else(|| PyValueError::new_err("times must be positive numbers of seconds"))
        };
        let (deadline, stall) = (time(deadline_s)?, time(stall_s)?);
        let source = credentials.map(|function| asking(function) as _);
        let config = Config { url, options, source, in_flight_bytes, deadline, stall };
        Ok(Self(Arc::new(Remote::new(config).map_err(PyValueError::new_err)?)))
    }

    fn __repr__(&self) -> String {
        format!("RemoteStore({:?})", self.0.address())
    }

    /// An object's state.
    fn head(&self, py: Python<'_>, key: String) -> PyResult<PyState> {
        let (client, path) = self.object(&key)?;
        let work = async move { fetch::head(&client, &key, &path).await };
        finish(py, &self.0, work).map(PyState::from)
    }

    /// All objects whose keys start with the prefix, sorted by key.
    fn list(&self, py: Python<'_>, prefix: String) -> PyResult<Objects> {
        let client = self.0.client().map_err(raised)?;
        let work = async move { list::list(&client, &prefix, false).await };
        Ok(named(finish(py, &self.0, work)?.0))
    }

    /// The same up to the next `/` behind the prefix: objects, and folders, whose names end with `/`.
    fn list_folder(&self, py: Python<'_>, prefix: String) -> PyResult<(Objects, Vec<String>)> {
        let client = self.0.client().map_err(raised)?;
        let work = async move { list::list(&client, &prefix, true).await };
        let (objects, folders) = finish(py, &self.0, work)?;
        Ok((named(objects), folders))
    }

    /// Begin to fetch `length` bytes from `start` of an object of which nothing is known; its last
    /// `length` bytes if `start` is negative.
    fn first(&self, key: String, start: i64, length: u64) -> PyResult<PyFetch> {
        let length = length.min(MOST);
        let range = match u64::try_from(start) {
            Ok(start) => GetRange::Bounded(start..start.saturating_add(length)),
            Err(_) => GetRange::Suffix(length),
        };
        PyFetch::begin(&self.0, Order::First { key, range })
    }

    /// Begin to fetch ranges of an object in a known state.
    fn fetch(
        &self,
        key: String,
        state: &PyState,
        starts: &Bound<'_, PyAny>,
        lengths: &Bound<'_, PyAny>,
    ) -> PyResult<PyFetch> {
        let (starts, lengths) = (u64s(starts)?, u64s(lengths)?);
        if starts.len() != lengths.len() {
            return Err(PyValueError::new_err("starts and lengths are not equally many"));
        }
        let ranges: Vec<(u64, u64)> =
            starts.values().iter().copied().zip(lengths.values().iter().copied()).collect();
        if ranges
            .iter()
            .any(|&(start, length)| start.checked_add(length).is_none_or(|end| end > state.size))
        {
            return Err(PyValueError::new_err("a range reaches beyond the object"));
        }
        PyFetch::begin(&self.0, Order::Ranges { key, state: state.into(), ranges })
    }

    /// Write a whole object; with `create`, only if there is none.
    #[pyo3(signature = (key, data, *, create = false))]
    fn put(
        &self,
        py: Python<'_>,
        key: String,
        data: &Bound<'_, PyAny>,
        create: bool,
    ) -> PyResult<PyState> {
        let (client, path) = self.object(&key)?;
        let data = bytes_of(data)?;
        finish(py, &self.0, upload::put(client, key, path, data, create)).map(PyState::from)
    }

    /// Begin to write an object in parts, or take up what was begun under this id.
    #[pyo3(signature = (key, id = None))]
    fn upload(&self, py: Python<'_>, key: String, id: Option<String>) -> PyResult<PyUpload> {
        let (client, path) = self.object(&key)?;
        let id = match id {
            Some(id) => id,
            None => {
                let work = upload::begin(Arc::clone(&client), key.clone(), path.clone());
                finish(py, &self.0, work)?
            }
        };
        let upload = Arc::new(Upload::new(client, key, path, id));
        Ok(PyUpload { remote: Arc::clone(&self.0), upload })
    }

    /// Remove an object. One that is not there is no error.
    fn delete(&self, py: Python<'_>, key: String) -> PyResult<()> {
        let (client, path) = self.object(&key)?;
        finish(py, &self.0, upload::delete(client, key, path))
    }

    /// Counts since this process began to use the store.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let traffic = &self.0.client().map_err(raised)?.traffic;
        let counts = PyDict::new(py);
        counts.set_item("requests", traffic.requests.load(Ordering::Relaxed))?;
        counts.set_item("bytes", traffic.bytes.load(Ordering::Relaxed))?;
        counts.set_item("retries", traffic.retries.load(Ordering::Relaxed))?;
        counts.set_item("waiting_ns", traffic.waiting_ns.load(Ordering::Relaxed))?;
        Ok(counts)
    }
}

type Objects = Vec<(String, PyState)>;
type Object = (Arc<crate::remote::client::Client>, object_store::path::Path);

impl PyRemoteStore {
    fn object(&self, key: &str) -> PyResult<Object> {
        let path = self.0.path(key).map_err(raised)?;
        Ok((self.0.client().map_err(raised)?, path))
    }
}

fn named(objects: Vec<(String, State)>) -> Objects {
    objects.into_iter().map(|(key, state)| (key, state.into())).collect()
}

/// A function of Python that gives credentials. Of its errors only the type is told: their text may
/// hold what is secret.
fn asking(
    function: Py<PyAny>,
) -> Arc<impl Fn() -> Result<BTreeMap<String, String>, String> + Send + Sync> {
    Arc::new(move || {
        let asked = Python::try_attach(|py| {
            let given = function.call0(py).and_then(|given| given.extract(py));
            given.map_err(|error: PyErr| {
                let kind = error
                    .get_type(py)
                    .name()
                    .map_or("an error".to_owned(), |name| name.to_string());
                format!("the function for credentials failed ({kind})")
            })
        });
        asked.unwrap_or_else(|| Err("the interpreter is ending".to_owned()))
    })
}

enum Order {
    First { key: String, range: GetRange },
    Ranges { key: String, state: State, ranges: Vec<(u64, u64)> },
}

struct Flight {
    pending: Pending<Landed>,
    urgency: Arc<Urgency>,
}

/// Bytes on their way. A child of a fork asks for them again by itself.
#[pyclass(name = "Fetch", frozen, module = "penstock._core")]
pub struct PyFetch {
    remote: Arc<Remote>,
    order: Order,
    flight: PerProcess<Flight>,
}

impl PyFetch {
    fn begin(remote: &Arc<Remote>, order: Order) -> PyResult<Self> {
        let fetch = Self { remote: Arc::clone(remote), order, flight: PerProcess::new() };
        fetch.flight()?;
        Ok(fetch)
    }

    fn flight(&self) -> PyResult<&Flight> {
        self.flight.get_or_make(|| self.start()).map_err(raised)
    }

    fn start(&self) -> Result<Flight, Problem> {
        let (client, urgency) = (self.remote.client()?, Arc::new(Urgency::default()));
        let handle = runtime()?;
        let pending = match &self.order {
            Order::First { key, range } => {
                let (key, path) = (key.clone(), self.remote.path(key)?);
                let work = fetch::first(client, key, path, range.clone(), Arc::clone(&urgency));
                Pending::begin(handle, work)
            }
            Order::Ranges { key, state, ranges } => {
                let (key, path) = (key.clone(), self.remote.path(key)?);
                let (state, ranges, urgency) =
                    (state.clone(), ranges.clone(), Arc::clone(&urgency));
                Pending::begin(handle, fetch::ranges(client, key, path, state, ranges, urgency))
            }
        };
        Ok(Flight { pending, urgency })
    }

    fn landed(&self, py: Python<'_>) -> PyResult<Landed> {
        let flight = self.flight()?;
        flight.urgency.raise();
        wait(py, &self.remote, &flight.pending)
    }
}

#[pymethods]
impl PyFetch {
    /// Whether `wait` would return at once.
    fn ready(&self) -> PyResult<bool> {
        Ok(self.flight()?.pending.is_ready())
    }

    /// The ranges, back to back, when they are there.
    fn wait(&self, py: Python<'_>) -> PyResult<PyBuffer> {
        Ok(PyBuffer(self.landed(py)?.take()))
    }

    /// The object's state, when it is known.
    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<PyState> {
        match &self.order {
            Order::Ranges { state, .. } => Ok(state.clone().into()),
            Order::First { .. } => Ok(self.landed(py)?.state.into()),
        }
    }
}

/// An object that is written in parts.
#[pyclass(name = "Upload", frozen, module = "penstock._core")]
pub struct PyUpload {
    remote: Arc<Remote>,
    upload: Arc<Upload>,
}

#[pymethods]
impl PyUpload {
    /// The store's name for the upload.
    #[getter]
    fn id(&self) -> &str {
        &self.upload.id
    }

    /// Begin to send a part; if four are on their way, wait for one first. Parts are counted from 0.
    fn part(&self, py: Python<'_>, number: usize, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = bytes_of(data)?;
        while let Some(part) = self.upload.oldest().map_err(raised)? {
            wait(py, &self.remote, &part)?;
        }
        self.upload.send(number, data).map_err(raised)
    }

    /// Make the object of the parts, which must be all from 0.
    fn complete(&self, py: Python<'_>) -> PyResult<PyState> {
        for part in self.upload.all().map_err(raised)? {
            wait(py, &self.remote, &part)?;
        }
        finish(py, &self.remote, Arc::clone(&self.upload).complete()).map(PyState::from)
    }

    /// Give the upload up, with what was sent.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        finish(py, &self.remote, Arc::clone(&self.upload).abort())
    }
}
