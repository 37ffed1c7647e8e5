//! Byte strings as Arrow views: 16 bytes each, pointing into borrowed buffers.

use std::sync::Arc;

use arrow_array::BinaryViewArray;
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};

use crate::wire::{Fault, FaultKind};

// A view has a 31-bit offset, so a larger buffer is split into overlapping parts of up to 2 GiB,
// one of which begins at each GiB. So a value that begins just before the next part still has a GiB
// left in its own part.
const PART: usize = 1 << 30;
const REACH: usize = i32::MAX as usize;

/// Values up to this length are stored inside the view.
const INLINE: usize = 12;

/// Offset of a value in a buffer; None if the buffer does not contain it.
#[inline]
pub fn place_in(value: &[u8], buffer: &Buffer) -> Option<usize> {
    // An address between the buffer's first and last byte always belongs to the buffer.
    let start = (value.as_ptr() as usize).wrapping_sub(buffer.as_ptr() as usize);
    (start.checked_add(value.len())? <= buffer.len()).then_some(start)
}

/// Builds a view array into one large buffer and into copies of values that are not contiguous in it.
pub struct Views<'a> {
    buffer: &'a Buffer,
    views: Vec<u128>,
    buffers: Vec<Buffer>,
    /// Parts of the large buffer, each with its index in `buffers`.
    parts: Vec<(usize, usize)>,
    copies: Vec<u8>,
    /// Index of the copies in `buffers`.
    copies_at: Option<usize>,
}

impl<'a> Views<'a> {
    /// Empty, with capacity for `num_records` views.
    pub fn new(buffer: &'a Buffer, num_records: usize) -> Self {
        Self {
            buffer,
            views: Vec::with_capacity(num_records),
            buffers: Vec::new(),
            parts: Vec::new(),
            copies: Vec::new(),
            copies_at: None,
        }
    }

    /// Append a range of the buffer. None if it is too long for a view, or out of bounds.
    #[inline(always)]
    pub fn push(&mut self, start: usize, length: usize) -> Option<()> {
        let value = self.buffer.get(start..start.checked_add(length)?)?;
        if let Some(view) = inline_view(value) {
            self.views.push(view);
            return Some(());
        }
        let part = if self.buffer.len() <= REACH { 0 } else { start / PART };
        let origin = part.wrapping_mul(PART);
        let number = match self.parts.last() {
            Some((last, number)) if *last == part => *number,
            _ => self.part_number(part, origin),
        };
        let offset = start.wrapping_sub(origin);
        if offset.checked_add(length)? > REACH {
            return None;
        }
        self.views.push(view(value, number, offset));
        Some(())
    }

    #[cold]
    fn part_number(&mut self, part: usize, origin: usize) -> usize {
        let known = self.parts.iter().position(|(at, _)| *at == part);
        let entry = known.map(|at| self.parts.remove(at)).unwrap_or_else(|| {
            let reach = self.buffer.len().saturating_sub(origin).min(REACH);
            self.buffers.push(self.buffer.slice_with_length(origin, reach));
            (part, self.buffers.len().wrapping_sub(1))
        });
        self.parts.push(entry);
        entry.1
    }

    /// Append a copy of a value. None if it is too long for a view.
    pub fn push_copy(&mut self, value: &[u8]) -> Option<()> {
        if let Some(view) = inline_view(value) {
            self.views.push(view);
            return Some(());
        }
        if value.len() > REACH {
            return None;
        }
        if self.copies.len().saturating_add(value.len()) > REACH {
            self.keep_copies();
        }
        let number = *self.copies_at.get_or_insert_with(|| {
            self.buffers.push(Buffer::default());
            self.buffers.len().wrapping_sub(1)
        });
        self.views.push(view(value, number, self.copies.len()));
        self.copies.extend_from_slice(value);
        Some(())
    }

    fn keep_copies(&mut self) {
        let place = self.copies_at.take().and_then(|number| self.buffers.get_mut(number));
        if let Some(place) = place {
            *place = Buffer::from_vec(std::mem::take(&mut self.copies));
        }
    }

    /// The array.
    pub fn finish(self) -> BinaryViewArray {
        self.finish_with(None)
    }

    /// The array with nulls. None if there are more or fewer nulls than values.
    pub fn finish_with_nulls(self, nulls: Option<NullBuffer>) -> Option<BinaryViewArray> {
        let fits = nulls.as_ref().is_none_or(|nulls| nulls.len() == self.views.len());
        fits.then(|| self.finish_with(nulls))
    }

    fn finish_with(mut self, nulls: Option<NullBuffer>) -> BinaryViewArray {
        self.keep_copies();
        let buffers: Arc<[Buffer]> = self.buffers.into();
        // SAFETY: every view was made from a value inside the buffer it points to, with that value's
        // prefix; short values are inline, padded with zeros. There are as many nulls as views.
        unsafe { BinaryViewArray::new_unchecked(ScalarBuffer::from(self.views), buffers, nulls) }
    }
}

/// Ranges of a buffer, by start and length, as views without a copy.
pub fn borrowed(
    buffer: &Buffer,
    starts: &[u64],
    lengths: &[u64],
) -> Result<BinaryViewArray, Fault> {
    let mut views = Views::new(buffer, starts.len());
    for (&start, &length) in starts.iter().zip(lengths) {
        let place = usize::try_from(start).ok().zip(usize::try_from(length).ok());
        place.and_then(|(start, length)| views.push(start, length)).ok_or_else(|| {
            let message = format!("no {length} bytes at {start} of {}", buffer.len());
            Fault::new(FaultKind::Schema, 0, message)
        })?;
    }
    Ok(views.finish())
}

#[inline(always)]
fn view(value: &[u8], number: usize, offset: usize) -> u128 {
    let prefix = value.first_chunk::<4>().map_or(0, |p| u32::from_le_bytes(*p));
    value.len() as u128 | u128::from(prefix) << 32 | (number as u128) << 64 | (offset as u128) << 96
}

/// The view of a value that is short enough to be inline.
#[inline(always)]
fn inline_view(value: &[u8]) -> Option<u128> {
    if value.len() > INLINE {
        return None;
    }
    let mut bytes = [0u8; 16];
    let (head, body) = bytes.split_at_mut(4);
    head.copy_from_slice(&(value.len() as u32).to_le_bytes());
    body.get_mut(..value.len())?.copy_from_slice(value);
    Some(u128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_and_copied_values_stand_in_the_order_they_came() {
        let buffer =
            Buffer::from_vec(b"a value that is lent, another that is lent as well".to_vec());
        let mut views = Views::new(&buffer, 4);
        views.push(0, 20).unwrap();
        views.push_copy(b"a copy that is longer than a view").unwrap();
        views.push(0, 3).unwrap();
        views.push_copy(b"").unwrap();
        views.push(22, 28).unwrap();
        views.push_copy(b"a second copy of some length").unwrap();
        assert!(views.push(40, 11).is_none());
        let array = views.finish();
        let found: Vec<&[u8]> = (0..array.views().len()).map(|at| array.value(at)).collect();
        let wanted: [&[u8]; 6] = [
            b"a value that is lent",
            b"a copy that is longer than a view",
            b"a v",
            b"",
            b"another that is lent as well",
            b"a second copy of some length",
        ];
        assert_eq!(found, wanted);
    }
}
