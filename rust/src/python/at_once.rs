//! Reads and decodes random records of a local file in one call.

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;
use pyo3::prelude::*;

use super::arrow::ArrowArray;
use super::buffer::PyBuffer;
use super::files::{PyFile, threads_for};
use super::frames::{Checks, PyPlan, batch, framing};
use super::run;
use crate::kernels::buffer_pool;
use crate::kernels::columns::are_large;
use crate::kernels::decode_examples::at_once::{decode_at_once, is_simple};
use crate::kernels::decode_examples::decode;
use crate::kernels::walk::{Frames, frames_at};
use crate::wire::frames::AnyFraming;
use crate::wire::{Fault, FaultKind};

/// The positions of some records in a file, from its index.
struct Places<'a> {
    kind: AnyFraming,
    file: &'a PyFile,
    mapped: Option<&'a Buffer>,
    starts: Vec<u64>,
    sizes: Vec<u64>,
}

impl Places<'_> {
    fn num_bytes(&self) -> u64 {
        self.sizes.iter().fold(0, |sum, &size| sum.saturating_add(size))
    }

    /// The frames of some records, read from the file or borrowed from its memory map.
    fn frames(&self, records: Range<usize>) -> Result<Frames, Fault> {
        let part = |all: &'_ [u64]| all.get(records.clone()).unwrap_or_default().to_vec();
        let (starts, sizes) = (part(&self.starts), part(&self.sizes));
        if let Some(mapped) = self.mapped {
            return frames_at(self.kind, mapped, &starts, &sizes, &starts);
        }
        let ranges: Vec<_> = starts.iter().copied().zip(sizes.iter().copied()).collect();
        let total = sizes.iter().fold(0u64, |sum, &size| sum.saturating_add(size));
        let bytes = usize::try_from(total).ok().and_then(buffer_pool::take);
        let mut bytes = bytes.ok_or_else(unread)?;
        let is_part = records.len() < self.starts.len(); // then this is one of several threads
        self.file.gather_into(&mut bytes, &ranges, is_part).map_err(|_| unread())?;
        let begins = sizes.iter().scan(0u64, |end, &size| {
            *end = end.saturating_add(size);
            Some(end.saturating_sub(size))
        });
        let inside: Vec<u64> = begins.collect();
        frames_at(self.kind, &buffer_pool::pooled(bytes), &inside, &sizes, &starts)
    }
}

#[cold]
fn unread() -> Fault {
    Fault::new(FaultKind::Truncated, 0, "the records could not be read")
}

/// Read and decode Examples of a plain local file, which may be `mapped`, by their numbers (bytes
/// of int64). Returns a struct array with one field for each column of the plan. `starts` (uint64)
/// has the start of each record of the file and the end of the last one. With `check`, payloads are
/// verified against `checksums` (uint32). All three arguments are bytes of little-endian numbers,
/// as an index stores them: for a few hundred records, Arrow's interface would take longer than
/// decoding.
///
/// Returns None if anything is wrong: a record is beyond the index or the file, longer than
/// `max_record`, damaged, or does not fit the plan. The caller then reads the records in the usual
/// way, which reports the fault.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub fn examples_at(
    py: Python<'_>,
    name: &str,
    file: &PyFile,
    mapped: Option<&PyBuffer>,
    starts: &PyBuffer,
    checksums: &PyBuffer,
    records: &[u8],
    max_record: u64,
    plan: &PyPlan,
    check: bool,
) -> PyResult<Option<ArrowArray>> {
    let kind = framing(name)?;
    let (all, known) = (starts.0.as_chunks::<8>().0, checksums.0.as_chunks::<4>().0);
    let numbers = records.as_chunks::<8>().0;
    let mapped = mapped.map(|buffer| &buffer.0);
    let room = || Vec::with_capacity(numbers.len());
    let mut places = Places { kind, file, mapped, starts: room(), sizes: room() };
    let mut indexed = Vec::with_capacity(numbers.len());
    for &number in numbers {
        let found = usize::try_from(i64::from_le_bytes(number)).ok().and_then(|at| {
            let &[start, end] = all.get(at..)?.first_chunk()?;
            let (start, end) = (u64::from_le_bytes(start), u64::from_le_bytes(end));
            Some((start, end.checked_sub(start)?, u32::from_le_bytes(*known.get(at)?), end))
        });
        let Some((start, size, checksum, end)) = found else { return Ok(None) };
        if size > max_record || end > file.size {
            return Ok(None);
        }
        places.starts.push(start);
        places.sizes.push(size);
        indexed.push(checksum);
    }
    let checks = Checks::of(check, indexed);
    let count = places.starts.len();
    let done = run(py, || {
        let arrays = decoded(&places, plan, &checks);
        Ok(arrays.and_then(|arrays| batch(&plan.names, arrays, count)).ok())
    })?;
    Ok(done.map(ArrowArray::batch))
}

fn decoded(places: &Places<'_>, plan: &PyPlan, checks: &Checks) -> Result<Vec<ArrayRef>, Fault> {
    let (count, num_bytes) = (places.starts.len(), places.num_bytes() as usize);
    let threads = threads_for(num_bytes);
    if threads > 1 && are_large(num_bytes, count) && is_simple(&plan.plan) {
        let read = |records| places.frames(records);
        let verify = |frames: &Frames, records| checks.verify_part(frames, records);
        if let Some(done) = decode_at_once(&places.sizes, &plan.plan, threads, read, verify)? {
            return Ok(done);
        }
    }
    let frames = places.frames(0..count)?;
    match checks.check {
        true => decode(&frames, &plan.plan, threads, |records| checks.verify(&frames, records)),
        false => decode(&frames, &plan.plan, threads, |_| Ok(())),
    }
}
