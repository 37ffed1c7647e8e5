//! Reads some members of a tar archive from a local file, without the contents of the others.

use std::collections::HashSet;
use std::time::Instant;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

use super::buffer::PyBuffer;
use super::files::PyFile;
use crate::kernels::buffer_pool;
use crate::tuned::{HOP_BYTES, POOL_BYTES, TIMED_READS};
use crate::wire::tar::{BLOCK, Head, Member, head, split};

/// One read has a header, small contents and the next header.
const AHEAD: usize = 4096;
/// A fast disk reads so many bytes in a microsecond. Hopping must not be slower.
const BYTES_A_MICROSECOND: u64 = 2 << 10;

/// A part of an archive that begins with a header: (its bytes, whether hopping paid). The contents of members
/// that belong to none of these fields may be any bytes, if reading around them takes less time than reading them.
/// If it does not, all bytes after the first members are there. So are all after a damaged header.
#[pyfunction]
pub fn read_members(
    py: Python<'_>,
    file: &PyFile,
    start: u64,
    length: usize,
    fields: HashSet<String>,
) -> PyResult<(PyBuffer, bool)> {
    let length = file.clamp(start, length);
    // Of more than the pool keeps, the system need not clear what is not read.
    let room = match length <= POOL_BYTES {
        true => buffer_pool::take_used(length),
        false => Some(vec![0; length]),
    };
    let no_memory = || PyMemoryError::new_err(format!("no memory for {length} bytes"));
    let room = room.ok_or_else(no_memory)?;
    let mut hops =
        Hops { file, start, room, length, filled: 0, num_reads: 0, num_slow: 0, num_bytes: 0 };
    let pays = py.detach(|| hops.read(&fields))?;
    hops.room.truncate(hops.length);
    Ok((PyBuffer(buffer_pool::pooled(hops.room)), pays))
}

/// A part of a file, of which some is read.
struct Hops<'a> {
    file: &'a PyFile,
    start: u64,
    room: Vec<u8>,
    /// The end of the part. It moves if the file is truncated.
    length: usize,
    /// Where the next read begins.
    filled: usize,
    num_reads: usize,
    /// Reads that took longer than to read on from the one before.
    num_slow: usize,
    num_bytes: usize,
}

impl Hops<'_> {
    /// Read the headers, and the contents of members with these fields. False if that takes too long.
    fn read(&mut self, fields: &HashSet<String>) -> std::io::Result<bool> {
        let mut at = 0;
        while at < self.length {
            if self.num_reads >= TIMED_READS && !self.pays(at) {
                self.fill(self.length)?;
                return Ok(false);
            }
            let before = self.filled;
            if at.saturating_sub(before) as u64 >= HOP_BYTES {
                self.filled = at;
            }
            if self.filled < at + BLOCK {
                let begun = Instant::now();
                self.fill(at.saturating_add(AHEAD))?;
                let passed = (self.filled - before) as u64;
                let is_slow = begun.elapsed().as_micros() as u64 > passed / BYTES_A_MICROSECOND;
                self.num_slow += usize::from(is_slow);
            }
            let known = &self.room[at.min(self.filled)..self.filled];
            let total = match head(known) {
                Head::Zeros => BLOCK as u64,
                Head::Broken(_) => {
                    self.fill(self.length)?;
                    return Ok(true);
                }
                Head::Need(_) if self.filled >= self.length => return Ok(true),
                Head::Need(need) => {
                    self.fill(at.saturating_add(usize::try_from(need).unwrap_or(usize::MAX)))?;
                    continue;
                }
                Head::Member(member) => {
                    let (total, is_wanted) = (member.total, is_in(fields, &member));
                    if is_wanted {
                        let end = at.saturating_add(usize::try_from(total).unwrap_or(usize::MAX));
                        self.fill(end.saturating_add(BLOCK))?;
                    }
                    total
                }
            };
            at = at.saturating_add(usize::try_from(total).unwrap_or(usize::MAX));
        }
        Ok(true)
    }

    /// Whether hopping this far took less time, and read fewer bytes, than reading on. One read may be slow because
    /// another program ran meanwhile, so it is the number of slow ones that counts.
    fn pays(&self, passed: usize) -> bool {
        self.num_slow <= self.num_reads / 2 && self.num_bytes <= passed / 2
    }

    /// Read on up to `end`, or to the end of the part.
    fn fill(&mut self, end: usize) -> std::io::Result<()> {
        let end = end.min(self.length);
        if end <= self.filled {
            return Ok(());
        }
        let place = self.start + self.filled as u64;
        let count = self.file.read_part(&mut self.room[self.filled..end], place)?;
        self.num_reads += 1;
        self.num_bytes += count;
        self.filled += count;
        if self.filled < end {
            self.length = self.filled;
        }
        Ok(())
    }
}

/// Whether a member has one of these fields.
fn is_in(fields: &HashSet<String>, member: &Member<'_>) -> bool {
    let name = split(&member.name).filter(|_| member.is_file);
    let field = name.and_then(|name| std::str::from_utf8(name.field).ok());
    field.is_some_and(|field| fields.contains(field) || fields.contains(&field.to_lowercase()))
}
