//! Inflating and deflating for Python.

use arrow_buffer::Buffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::buffer::PyBuffer;
use super::{PyFault, raise, run};
use crate::kernels::deflate::{self, ZlibDeflater};
use crate::kernels::inflate::{Inflater, SeekPoint};
use crate::kernels::packed_chunks::{Filter, Packing, unpack_chunks as unpack_chunks_of};
use crate::kernels::{buffer_pool, members};
use crate::wire::gzip::{self, Container};

fn container(name: &str) -> PyResult<Container> {
    match name {
        "gzip" => Ok(Container::Gzip),
        "zlib" => Ok(Container::Zlib),
        _ => Err(PyValueError::new_err(format!("unknown container {name:?}; known: gzip, zlib"))),
    }
}

/// Inflates a gzip file of any number of members, or a zlib stream, in pieces.
#[pyclass(name = "Inflater", module = "penstock._core")]
pub struct PyInflater(Inflater);

#[pymethods]
impl PyInflater {
    #[new]
    #[pyo3(signature = (container, point_bytes = 0, join_streams = false))]
    fn new(container: &str, point_bytes: u64, join_streams: bool) -> PyResult<Self> {
        let inflater = Inflater::new(self::container(container)?, point_bytes).map_err(raise)?;
        Ok(Self(if join_streams { inflater.join_streams() } else { inflater }))
    }

    /// Continue from a seek point. Push the bytes from `compressed_bit // 8` on.
    #[staticmethod]
    fn at_point(
        container: &str,
        compressed_bit: u64,
        plain_start: u64,
        window: &[u8],
    ) -> PyResult<Self> {
        let point = SeekPoint { compressed_bit, plain_start, window: window.to_vec() };
        Inflater::at_point(self::container(container)?, &point).map(Self).map_err(raise)
    }

    /// Inflate `data` and then `more`. Returns a copy of `prefix` followed by up to `out_bytes` plain
    /// bytes, and how many input bytes were used.
    #[pyo3(signature = (data, at_end, out_bytes, prefix = None, more = None))]
    fn push(
        &mut self,
        py: Python<'_>,
        data: PyRef<'_, PyBuffer>,
        at_end: bool,
        out_bytes: usize,
        prefix: Option<PyRef<'_, PyBuffer>>,
        more: Option<PyRef<'_, PyBuffer>>,
    ) -> PyResult<(PyBuffer, usize)> {
        if out_bytes == 0 {
            return Err(PyValueError::new_err("out_bytes must be at least 1"));
        }
        let (inflater, data) = (&mut self.0, data.0.clone());
        let [prefix, more] =
            [prefix, more].map(|bytes| bytes.map(|bytes| bytes.0.clone()).unwrap_or_default());
        let push = move || inflater.push_after(&prefix, [&data, &more], at_end, out_bytes);
        let piece = run(py, push)?;
        Ok((PyBuffer(buffer_pool::pooled(piece.plain)), piece.consumed))
    }

    #[getter]
    fn finished(&self) -> bool {
        self.0.is_finished()
    }

    #[getter]
    fn compressed_bytes(&self) -> u64 {
        self.0.compressed_bytes()
    }

    #[getter]
    fn plain_bytes(&self) -> u64 {
        self.0.plain_bytes()
    }

    #[getter]
    fn num_members(&self) -> u64 {
        self.0.num_members()
    }

    #[getter]
    fn num_empty_members(&self) -> u64 {
        self.0.num_empty_members()
    }

    fn take_members(&mut self) -> Vec<(u64, u64)> {
        self.0.take_members()
    }

    fn take_points<'py>(&mut self, py: Python<'py>) -> Vec<(u64, u64, Bound<'py, PyBytes>)> {
        let points = self.0.take_points().into_iter();
        points.map(|p| (p.compressed_bit, p.plain_start, PyBytes::new(py, &p.window))).collect()
    }

    fn take_findings(&mut self) -> Vec<PyFault> {
        self.0.take_findings().into_iter().map(PyFault::from).collect()
    }
}

/// Inflate one whole gzip member.
#[pyfunction]
pub fn inflate_member(
    py: Python<'_>,
    data: PyRef<'_, PyBuffer>,
    start: usize,
    length: usize,
    max_bytes: u64,
) -> PyResult<PyBuffer> {
    inflate_members(py, data, vec![(start, length)], max_bytes)
}

/// Inflate whole gzip members into one buffer.
#[pyfunction]
pub fn inflate_members(
    py: Python<'_>,
    data: PyRef<'_, PyBuffer>,
    members: Vec<(usize, usize)>,
    max_bytes: u64,
) -> PyResult<PyBuffer> {
    let data = data.0.clone();
    let plain = run(py, move || members::inflate_members(&data, &members, max_bytes))?;
    Ok(PyBuffer(buffer_pool::pooled(plain)))
}

/// Decompress chunks of an HDF5 dataset, which are one after another in `data`. Each is given as (bytes,
/// mask of skipped filters). A fault has the number of its chunk as its record.
#[pyfunction]
pub fn unpack_chunks(
    py: Python<'_>,
    data: PyRef<'_, PyBuffer>,
    chunks: Vec<(usize, u32)>,
    filters: Vec<String>,
    chunk_bytes: usize,
    width: usize,
    threads: usize,
) -> PyResult<PyBuffer> {
    let filters = filters.iter().map(|name| match name.as_str() {
        "shuffle" => Ok(Filter::Shuffle),
        "gzip" => Ok(Filter::Gzip),
        "lzf" => Ok(Filter::Lzf),
        _ => Err(PyValueError::new_err(format!("unknown filter {name:?}"))),
    });
    let packing = Packing { filters: filters.collect::<PyResult<_>>()?, chunk_bytes, width };
    let data = data.0.clone();
    let plain = run(py, move || unpack_chunks_of(&data, &chunks, &packing, threads))?;
    Ok(PyBuffer(buffer_pool::pooled(plain)))
}

/// Compress a part of `plain` as a gzip member, with its size and number of records in its header.
#[pyfunction]
pub fn gzip_member(
    py: Python<'_>,
    plain: PyRef<'_, PyBuffer>,
    start: usize,
    length: usize,
    num_records: u32,
    level: i32,
) -> PyResult<PyBuffer> {
    let plain = plain.0.clone();
    let Some(part) = start.checked_add(length).and_then(|end| plain.get(start..end)) else {
        return Err(PyValueError::new_err("start and length are beyond the buffer"));
    };
    run(py, || deflate::gzip_member(part, num_records, level)).map(wrap)
}

fn wrap(bytes: Vec<u8>) -> PyBuffer {
    PyBuffer(Buffer::from_vec(bytes))
}

/// Bytes and records of the gzip member at `at`, or None if penstock did not write it (or its header is
/// truncated).
#[pyfunction]
pub fn member_head(data: PyRef<'_, PyBuffer>, at: usize) -> Option<(u32, u32)> {
    gzip::member_head(data.0.get(at..).unwrap_or_default())
}

/// Writes one zlib stream, in pieces.
#[pyclass(name = "ZlibDeflater", module = "penstock._core")]
pub struct PyZlibDeflater(ZlibDeflater);

#[pymethods]
impl PyZlibDeflater {
    #[new]
    #[pyo3(signature = (level, gzip = false))]
    fn new(level: i32, gzip: bool) -> PyResult<Self> {
        ZlibDeflater::new(level, gzip).map(Self).map_err(raise)
    }

    /// Add plain bytes, and return the compressed bytes that are ready, often none.
    fn push(&mut self, py: Python<'_>, plain: PyRef<'_, PyBuffer>) -> PyResult<PyBuffer> {
        let (deflater, plain) = (&mut self.0, plain.0.clone());
        run(py, move || deflater.push(&plain)).map(wrap)
    }

    /// End the stream, and return the last compressed bytes.
    fn finish(&mut self, py: Python<'_>) -> PyResult<PyBuffer> {
        let deflater = &mut self.0;
        run(py, move || deflater.finish()).map(wrap)
    }
}
