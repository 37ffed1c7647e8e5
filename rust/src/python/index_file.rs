//! Makes the index of a local file in one call.

use crate::tuned::HOP_BYTES;
use arrow_array::{UInt32Array, UInt64Array};
use pyo3::prelude::*;

use super::arrow::ArrowArray;
use super::buffer::PyBuffer;
use super::files::PyFile;
use super::frames::framing;
use super::{PyFault, run};
use crate::kernels::{skim, walk as walking};
use crate::wire::frames::{Framing, Step, with_framing};
use crate::wire::{Fault, FaultKind};

const WINDOW_BYTES: usize = 1 << 20;

/// Index a local file: (starts of all frames and the end of the last, checksums as the index keeps them,
/// fault or None). If frame heads have all needed facts, small records are read in windows and
/// large records are skipped. Indexing begins at the frame at `start`, and ends with the frame that
/// completes `goal` bytes.
#[pyfunction]
#[pyo3(signature = (name, file, max_record, start = 0, goal = u64::MAX))]
pub fn index_file(
    py: Python<'_>,
    name: &str,
    file: &PyFile,
    max_record: u64,
    start: u64,
    goal: u64,
) -> PyResult<(ArrowArray, ArrowArray, Option<PyFault>)> {
    let kind = framing(name)?;
    let goal = start.saturating_add(goal);
    let mut found = Found { file, max_record, goal, starts: vec![start], stored: Vec::new() };
    let fault = run(py, || Ok(with_framing!(kind, f => found.index(f))))??;
    Ok((
        ArrowArray::new(UInt64Array::from(found.starts)),
        ArrowArray::new(UInt32Array::from(found.stored)),
        fault.map(PyFault::from),
    ))
}

struct Found<'a> {
    file: &'a PyFile,
    max_record: u64,
    goal: u64,
    starts: Vec<u64>,
    stored: Vec<u32>,
}

impl Found<'_> {
    fn index<F: Framing>(&mut self, framing: F) -> std::io::Result<Option<Fault>> {
        match F::CHECKED {
            true => self.by_heads(framing),
            false => self.by_windows(framing),
        }
    }

    fn at(&self) -> u64 {
        self.starts.last().copied().unwrap_or_default()
    }

    fn by_heads<F: Framing>(&mut self, framing: F) -> std::io::Result<Option<Fault>> {
        let size = self.file.size;
        let ends = F::HEAD + F::TAIL;
        let mut hops = Hops { file: self.file, window: Vec::new(), at: 0 };
        let mut at = self.at();
        let mut ahead = if self.goal == u64::MAX { WINDOW_BYTES } else { ends };
        while at < size.min(self.goal) {
            let record = self.stored.len();
            let head = hops.bytes(at, F::HEAD, ahead)?;
            let short = head.len() < F::HEAD;
            if short && size - at >= F::HEAD as u64 {
                return Ok(Some(cut(at, F::HEAD as u64, at).in_record(record)));
            }
            let total = match framing.next(head, false) {
                Step::Frame { total, .. } => total as u64,
                Step::Need(total) if !short => total,
                Step::Need(total) => return Ok(Some(cut(at, total, size).in_record(record))),
                Step::Blank(_) => return Ok(None),
                Step::Broken(fault) => return Ok(Some(fault.shifted(at).in_record(record))),
            };
            if total > size - at {
                return Ok(Some(cut(at, total, size).in_record(record)));
            }
            if let Some(fault) = walking::too_long::<F>(total, self.max_record, at) {
                return Ok(Some(fault.in_record(record)));
            }
            ahead = if total < HOP_BYTES { WINDOW_BYTES } else { ends };
            let tail = hops.bytes(at + total - F::TAIL as u64, F::TAIL, ahead)?;
            if tail.len() < F::TAIL {
                return Ok(Some(cut(at, total, at).in_record(record)));
            }
            self.stored.push(framing.stored(tail));
            at += total;
            self.starts.push(at);
        }
        Ok(None)
    }

    fn by_windows<F: Framing>(&mut self, framing: F) -> std::io::Result<Option<Fault>> {
        let size = self.file.size;
        let mut want = WINDOW_BYTES;
        let mut at = self.at();
        let mut window = Vec::new();
        while at < size && self.at() < self.goal {
            let length = self.file.clamp(at, want);
            window.clear();
            self.file.read_into(&mut window, at, length)?;
            if window.len() < length {
                // The file was truncated while it was read. Without this check, the loop would
                // request more bytes forever.
                let end = at + window.len() as u64;
                return Ok(Some(cut(at, length as u64, end).in_record(self.stored.len())));
            }
            let last = at + window.len() as u64 >= size;
            let found = walking::walk(framing, &window, self.max_record, last);
            for &(start, length) in &found.spans {
                let frame = &window[start - F::HEAD..start + length + F::TAIL];
                self.stored.push(framing.stored(frame));
                self.starts.push(at + (start + length + F::TAIL) as u64);
            }
            let record = self.stored.len();
            at += found.consumed as u64;
            if let Some(fault) = found.fault {
                if fault.kind == FaultKind::Limit {
                    match self.long(framing, at)? {
                        Ok(end) => at = end,
                        Err(fault) => return Ok(Some(fault.in_record(record))),
                    }
                    want = WINDOW_BYTES;
                    continue;
                }
                let number = record - found.spans.len() + fault.record.unwrap_or_default();
                let shift = at - found.consumed as u64;
                return Ok(Some(fault.shifted(shift).in_record(number)));
            }
            if found.need > 0 && last {
                return Ok(Some(cut(at, found.need, size).in_record(record)));
            }
            // A frame may not know its size before it ends. Requesting twice as much keeps the work
            // proportional to its bytes.
            let grown = if found.consumed == 0 { want.saturating_mul(2) } else { WINDOW_BYTES };
            want = grown.max(usize::try_from(found.need).unwrap_or(usize::MAX));
        }
        Ok(None)
    }
}

impl Found<'_> {
    /// Skip a record that is too long to read, and note its end.
    fn long<F: Framing>(&mut self, framing: F, at: u64) -> std::io::Result<Result<u64, Fault>> {
        let read = |start, length| {
            let mut bytes = Vec::new();
            self.file.read_into(&mut bytes, start, self.file.clamp(start, length)).map(|()| bytes)
        };
        let end = match skim::end_of(framing, at, read)? {
            Ok(Some(end)) => end,
            Ok(None) => return Ok(Err(cut(at, self.file.size - at + 1, self.file.size))),
            Err(fault) => return Ok(Err(fault)),
        };
        let Some(stored) = skim::stored(framing, at, end, read)? else {
            return Ok(Err(cut(at, end - at, self.file.size)));
        };
        self.stored.push(stored);
        self.starts.push(end);
        Ok(Ok(end))
    }
}

/// Find the end and the index checksum of the frame at `start`, if it is too long to be read as a whole:
/// (end, or None if the stream ends inside it; checksum; fault or None). `read(start, length)` returns
/// bytes of the stream. The checksum is 0 unless requested, because it may require reading the whole frame.
#[pyfunction]
pub fn frame_extent(
    name: &str,
    read: &Bound<'_, PyAny>,
    start: u64,
    checksum: bool,
) -> PyResult<(Option<u64>, u32, Option<PyFault>)> {
    let read = |start: u64, length: usize| -> PyResult<arrow_buffer::Buffer> {
        let buffer = read.call1((start, length))?;
        Ok(buffer.cast::<PyBuffer>()?.borrow().0.clone())
    };
    with_framing!(framing(name)?, f => {
        let end = match skim::end_of(f, start, read)? {
            Ok(end) => end,
            Err(fault) => return Ok((None, 0, Some(PyFault::from(fault)))),
        };
        let stored = match end.filter(|_| checksum) {
            Some(end) => skim::stored(f, start, end, read)?.unwrap_or_default(),
            None => 0,
        };
        Ok((end, stored, None))
    })
}

/// Reads small parts of a file around the next frame head.
struct Hops<'a> {
    file: &'a PyFile,
    window: Vec<u8>,
    at: u64,
}

impl Hops<'_> {
    /// `length` bytes at `at`, or fewer at the end. Reads `ahead` bytes if they are not in memory.
    fn bytes(&mut self, at: u64, length: usize, ahead: usize) -> std::io::Result<&[u8]> {
        let inside = at.checked_sub(self.at).map(|skip| skip as usize);
        let held = inside.filter(|skip| skip + length <= self.window.len());
        let start = match held {
            Some(start) => start,
            None => {
                self.window.clear();
                self.at = at;
                let left = self.file.size.saturating_sub(at).min(ahead as u64) as usize;
                self.file.read_into(&mut self.window, at, left)?;
                0
            }
        };
        Ok(&self.window[start..(start + length).min(self.window.len())])
    }
}

#[cold]
fn cut(at: u64, total: u64, size: u64) -> Fault {
    let left = size.saturating_sub(at);
    Fault::new(FaultKind::Truncated, at, "the file ends inside a record").values(total, left)
}
