//! Memory for the frames of a batch.

use super::values::Pen;
use super::{Framed, MESSAGE_BYTES, disagree, too_long};
use crate::kernels::shelf;
use crate::wire::crc32c::{crc32c, crc32c_u64, mask};
use crate::wire::frames::{TFRECORD_HEAD, TFRECORD_TAIL};
use crate::wire::{Fault, FaultKind};

/// Memory for all frames of a batch, filled one frame after another.
pub(super) struct Frames {
    data: Vec<u8>,
    at: usize,
    lengths: Vec<u64>,
    checksums: Vec<u32>,
}

impl Frames {
    /// Room for records of these lengths; a None is an array that contradicts itself.
    pub(super) fn room(
        num_records: usize,
        payload_len: impl Fn(usize) -> Option<u64>,
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
        let data = usize::try_from(total).ok().and_then(shelf::take_used).ok_or_else(|| {
            Fault::new(FaultKind::Limit, 0, format!("no memory for {total} bytes"))
        })?;
        Ok(Self { data, at: 0, lengths, checksums: Vec::with_capacity(num_records) })
    }

    /// The next frame, whose payload `write` puts there.
    #[inline(always)]
    pub(super) fn next(&mut self, write: impl FnOnce(&mut Pen<'_>) -> Option<()>) -> Option<()> {
        let frame = *self.lengths.get(self.checksums.len())? as usize;
        let start = self.at.wrapping_add(TFRECORD_HEAD);
        let stop = self.at.wrapping_add(frame).wrapping_sub(TFRECORD_TAIL);
        let length = (stop.wrapping_sub(start)) as u64;
        let mut pen = Pen { out: &mut self.data, at: self.at };
        pen.put(&length.to_le_bytes())?;
        pen.put(&mask(crc32c_u64(length)).to_le_bytes())?;
        write(&mut pen)?;
        if pen.at != stop {
            return None;
        }
        let checksum = mask(crc32c(pen.out.get(start..stop)?));
        pen.put(&checksum.to_le_bytes())?;
        self.at = pen.at;
        self.checksums.push(checksum);
        Some(())
    }

    pub(super) fn finish(self) -> Framed {
        Framed { data: shelf::shelve(self.data), lengths: self.lengths, checksums: self.checksums }
    }
}
