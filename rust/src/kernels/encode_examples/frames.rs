//! Memory for the frames of a batch.

use super::values::Pen;
use super::{Framed, MESSAGE_BYTES, disagree, too_long};
use crate::kernels::buffer_pool;
use crate::kernels::parts::{Between, Pieces};
use crate::tuned::UNSEALED_BYTES;
use crate::wire::frames::{TFRECORD_HEAD, TFRECORD_TAIL};
use crate::wire::{Fault, FaultKind};
use penstock_codecs::crc32c::{crc32c_u64, mask, masked};

/// Memory for all frames of a batch, filled one frame after another.
pub(super) struct Frames {
    data: Vec<u8>,
    at: usize,
    /// Frames before this offset have their checksums.
    sealed: usize,
    /// Borrowed values, which are not in `data`; None if no value is borrowed.
    borrowed: Option<Between>,
    lengths: Vec<u64>,
    checksums: Vec<u32>,
}

impl Frames {
    /// Memory for records of these lengths without their `borrowed` bytes. `payload_len` returns None for
    /// inconsistent offsets.
    pub(super) fn room(
        num_records: usize,
        payload_len: impl Fn(usize) -> Option<u64>,
        borrowed: u64,
    ) -> Result<Self, Fault> {
        let mut lengths = Vec::with_capacity(num_records);
        let mut total = 0u64;
        for record in 0..num_records {
            let length = payload_len(record).ok_or_else(|| disagree(record))?;
            if length > MESSAGE_BYTES {
                return Err(too_long(record, length));
            }
            let frame = length.saturating_add((TFRECORD_HEAD + TFRECORD_TAIL) as u64);
            total = total.saturating_add(frame);
            lengths.push(frame);
        }
        let total = total.checked_sub(borrowed).ok_or_else(|| disagree(0))?;
        let data =
            usize::try_from(total).ok().and_then(buffer_pool::take_used).ok_or_else(|| {
                Fault::new(FaultKind::Limit, 0, format!("no memory for {total} bytes"))
            })?;
        let borrowed = (borrowed > 0).then(Between::default);
        Ok(Self {
            data,
            at: 0,
            sealed: 0,
            borrowed,
            lengths,
            checksums: Vec::with_capacity(num_records),
        })
    }

    /// Write all frames; `write` writes one payload.
    #[inline(always)]
    pub(super) fn fill(
        mut self,
        write: impl Fn(&mut Pen<'_>, usize) -> Option<()>,
    ) -> Result<Framed, Fault> {
        if let Some(borrowed) = self.borrowed.take() {
            return self.fill_between(borrowed, &write);
        }
        for record in 0..self.lengths.len() {
            self.next(record, |pen| write(pen, record)).ok_or_else(|| disagree(record))?;
            if self.at.wrapping_sub(self.sealed) >= UNSEALED_BYTES {
                self.seal().ok_or_else(|| disagree(record))?;
            }
        }
        self.seal().ok_or_else(|| disagree(self.checksums.len()))?;
        let bytes = Pieces::whole(self.data);
        Ok(Framed { bytes, lengths: self.lengths, checksums: self.checksums })
    }

    /// Write a frame without its checksum.
    #[inline(always)]
    fn next(
        &mut self,
        record: usize,
        write: impl FnOnce(&mut Pen<'_>) -> Option<()>,
    ) -> Option<()> {
        let frame = *self.lengths.get(record)? as usize;
        let start = self.at.wrapping_add(TFRECORD_HEAD);
        let end = self.at.wrapping_add(frame);
        let stop = end.wrapping_sub(TFRECORD_TAIL);
        let mut pen = Pen { out: &mut self.data, at: self.at, borrowed: None };
        pen.head(stop.wrapping_sub(start) as u64)?;
        write(&mut pen)?;
        if pen.at != stop {
            return None;
        }
        self.at = end;
        Some(())
    }

    /// Write the checksums of all frames that lack them.
    fn seal(&mut self) -> Option<()> {
        let first = self.checksums.len();
        let mut waiting = self.data.get(self.sealed..self.at)?;
        let frames = self.lengths.iter().skip(first).map_while(|&frame| {
            let (frame, behind) = waiting.split_at_checked(frame as usize)?;
            waiting = behind;
            frame.get(TFRECORD_HEAD..frame.len().wrapping_sub(TFRECORD_TAIL))
        });
        masked(frames, &mut self.checksums);
        let sealed = self.lengths.iter().zip(&self.checksums).skip(first);
        for (&frame, checksum) in sealed {
            let end = self.sealed.wrapping_add(frame as usize);
            let tail = self.data.get_mut(end.wrapping_sub(TFRECORD_TAIL)..end)?;
            tail.copy_from_slice(&checksum.to_le_bytes());
            self.sealed = end;
        }
        Some(())
    }

    /// `fill` for batches with borrowed values. It is a separate function, not inlined, to keep its
    /// branches out of the loop for short records.
    #[inline(never)]
    fn fill_between(
        mut self,
        mut borrowed: Between,
        write: &dyn Fn(&mut Pen<'_>, usize) -> Option<()>,
    ) -> Result<Framed, Fault> {
        for record in 0..self.lengths.len() {
            self.next_between(&mut borrowed, &|pen| write(pen, record))
                .ok_or_else(|| disagree(record))?;
        }
        let bytes = borrowed.finish(self.data);
        Ok(Framed { bytes, lengths: self.lengths, checksums: self.checksums })
    }

    fn next_between(
        &mut self,
        borrowed: &mut Between,
        write: &dyn Fn(&mut Pen<'_>) -> Option<()>,
    ) -> Option<()> {
        let frame = *self.lengths.get(self.checksums.len())? as usize;
        let start = self.at.wrapping_add(TFRECORD_HEAD);
        let length = frame.wrapping_sub(TFRECORD_HEAD + TFRECORD_TAIL);
        let before = borrowed.mark();
        let mut pen = Pen { out: &mut self.data, at: self.at, borrowed: Some(borrowed) };
        pen.head(length as u64)?;
        write(&mut pen)?;
        let stop = pen.at;
        let own = stop.wrapping_sub(start);
        let borrowed = pen.borrowed.take()?;
        if own.wrapping_add(borrowed.bytes_since(before)) != length {
            return None;
        }
        let checksum = mask(borrowed.crc32c(pen.out, start, stop, before));
        pen.put(&checksum.to_le_bytes())?;
        self.at = pen.at;
        self.checksums.push(checksum);
        Some(())
    }
}

impl Pen<'_> {
    /// Write the head of a frame.
    #[inline(always)]
    fn head(&mut self, length: u64) -> Option<()> {
        self.put(&length.to_le_bytes())?;
        self.put(&mask(crc32c_u64(length)).to_le_bytes())
    }
}
