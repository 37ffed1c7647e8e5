//! Encodes Arrow batches as TFRecord frames of `tf.train.Example` and `SequenceExample`.
//!
//! A protobuf message stores each length before the content, so encoding takes two passes. The
//! first pass measures each feature of each record, column by column. The second pass writes record
//! by record into memory of exactly the right size, and computes each checksum while its payload is
//! still in the CPU's cache.
//!
//! The output is canonical: keys are unique and sorted bytewise, a key comes before its value, a list is
//! one packed run, and varints are minimal. A null is an absent feature; an empty list is a list without
//! values.

mod frames;
mod lengths;
#[cfg(test)]
mod tests;
mod values;

use crate::tuned::BORROWED_BYTES;
use arrow_array::{Array, StructArray};

use self::frames::Frames;
pub use self::lengths::field_len;
use self::lengths::{Sections, measure};
pub use self::values::{Head, Pen};
use self::values::{SHORT_HEAD, write_section};
use super::example_columns::{Bytes, Column, Section, Values, columns_of};
use super::parts::Pieces;
use crate::wire::{Fault, FaultKind};

/// The message that a record becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// `tf.train.Example`.
    Example,
    /// `tf.train.SequenceExample`.
    Sequence,
}

/// Encoded frames, with the facts about each that an index keeps.
#[derive(Clone, Debug)]
pub struct Framed {
    /// The frames: one piece if no value is borrowed.
    pub bytes: Pieces,
    /// Bytes of each whole frame.
    pub lengths: Vec<u64>,
    /// The masked checksum of each payload, as stored.
    pub checksums: Vec<u32>,
}

/// No protobuf reader accepts a longer message.
pub const MESSAGE_BYTES: u64 = i32::MAX as u64;
/// Marks an absent feature among the measured lengths.
const ABSENT: u32 = u32::MAX;
/// The first field of a message (`features`, `context`, `feature`, `key`, `value`, `bytes_list`),
/// and the second field (`feature_lists`, `value`), both length-delimited.
pub const FIRST: u8 = 0x0a;
const SECOND: u8 = 0x12;

/// Encode a batch, whose columns are the features.
pub fn encode_examples(batch: &StructArray, payload: Payload) -> Result<Framed, Fault> {
    let encoder = Encoder::new(batch, payload)?;
    let borrowed = encoder.borrowed_bytes()?;
    let frames =
        Frames::room(batch.len(), |record| encoder.sections.payload_len(record), borrowed)?;
    frames.fill(|pen, record| encoder.write(pen, record, true))
}

/// The records of a batch, measured and ready to be written one by one.
pub struct Encoder<'a> {
    columns: Vec<Column<'a>>,
    measured: Vec<Vec<u32>>,
    sections: Sections,
    num_records: usize,
}

impl<'a> Encoder<'a> {
    /// Measure each feature of each record.
    pub fn new(batch: &'a StructArray, payload: Payload) -> Result<Self, Fault> {
        let columns = columns_of(batch, payload)?;
        let num_records = batch.len();
        let mut measured = Vec::with_capacity(columns.len());
        let mut sections = Sections::new(&columns, payload, num_records);
        for column in &columns {
            let lengths = measure(column, num_records).map_err(|f| f.in_field(&column.name))?;
            column.head.add_entries(&lengths, sections.of(column.section));
            measured.push(lengths);
        }
        Ok(Self { columns, measured, sections, num_records })
    }

    /// Total bytes of borrowed values.
    fn borrowed_bytes(&self) -> Result<u64, Fault> {
        let mut total = 0u64;
        for (column, lengths) in self.columns.iter().zip(&self.measured) {
            // ABSENT + 1 wraps to 0. There is no branch, so that the loop is vectorised.
            let longest = lengths.iter().fold(0u32, |max, length| max.max(length.wrapping_add(1)));
            let Values::Bytes(values) = &column.values else { continue };
            if longest as usize <= BORROWED_BYTES {
                continue;
            }
            for (record, &length) in lengths.iter().enumerate() {
                if length != ABSENT && length as usize >= BORROWED_BYTES {
                    let borrowed = borrowed_in_record(column, values, record);
                    total = total.saturating_add(borrowed.ok_or_else(|| disagree(record))?);
                }
            }
        }
        Ok(total)
    }

    /// The number of records in the batch.
    pub fn num_records(&self) -> usize {
        self.num_records
    }

    /// The features.
    pub fn columns(&self) -> &[Column<'a>] {
        &self.columns
    }

    /// Whether a record has a feature in this part of the message.
    #[inline(always)]
    pub fn has(&self, record: usize, section: Section) -> bool {
        self.sections.lengths(section).get(record).is_some_and(|&length| length > 0)
    }

    /// Bytes that `append` adds for a record.
    #[inline(always)]
    pub fn addition_len(&self, record: usize) -> u64 {
        let part = |section| match self.sections.lengths(section).get(record) {
            Some(&length) if length > 0 => field_len(length),
            _ => 0,
        };
        part(Section::Context).saturating_add(part(Section::Lists))
    }

    /// Append a record's features as a message that merges with the previous one. Parts without a feature
    /// are left out, so a record without features adds nothing.
    #[inline]
    pub fn append(&self, record: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
        let start = out.len();
        let length = self.addition_len(record);
        if length > MESSAGE_BYTES {
            return Err(too_long(record, length));
        }
        let stop = start.wrapping_add(length as usize);
        // Add some space after the end, so that a precomputed head can be copied as a whole.
        out.resize(stop.wrapping_add(SHORT_HEAD), 0);
        let mut pen = Pen { out, at: start, borrowed: None };
        let written = self.write(&mut pen, record, false);
        if written.is_none() || pen.at != stop {
            return Err(disagree(record));
        }
        out.truncate(stop);
        Ok(())
    }

    /// Write one record's message. With `empty_parts`, parts without a feature are written too.
    #[inline(always)]
    fn write(&self, pen: &mut Pen<'_>, record: usize, empty_parts: bool) -> Option<()> {
        for (section, tag) in [(Section::Context, FIRST), (Section::Lists, SECOND)] {
            if let Some(&length) = self.sections.lengths(section).get(record)
                && (length > 0 || empty_parts)
            {
                pen.open(tag, length)?;
                write_section(pen, &self.columns, &self.measured, record, section)?;
            }
        }
        Some(())
    }
}

/// Frame byte strings that are serialized records.
pub fn frame_records(array: &dyn Array) -> Result<Framed, Fault> {
    let Some(bytes) = Bytes::of(array) else {
        let message = format!("a record must be a byte string, not {}", array.data_type());
        return Err(Fault::new(FaultKind::Schema, 0, message));
    };
    if let Some(nulls) = array.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
        let record = (0..array.len()).find(|&record| nulls.is_null(record)).unwrap_or(0);
        let message = "is null; a record may be empty, but not missing";
        return Err(Fault::new(FaultKind::Schema, 0, message).in_record(record));
    }
    let length = |record| bytes.get(record).map(|value| value.len() as u64);
    let mut borrowed = 0u64;
    for record in 0..array.len() {
        let bytes = borrowed_bytes(&bytes, record).ok_or_else(|| disagree(record))?;
        borrowed = borrowed.saturating_add(bytes);
    }
    let frames = Frames::room(array.len(), length, borrowed)?;
    frames.fill(|pen, record| pen.put_or_borrow(bytes.get(record)?, || bytes.home(record)))
}

/// Bytes of a record's borrowed values in a column.
fn borrowed_in_record(column: &Column<'_>, values: &Bytes<'_>, record: usize) -> Option<u64> {
    let (first, count) = match &column.frames {
        Some(frames) => frames.span(record)?,
        None => (record, 1),
    };
    let mut total = 0u64;
    for row in first..first.checked_add(count)? {
        let (start, count) = column.rows.span(row)?;
        for at in start..start.checked_add(count)? {
            total = total.saturating_add(borrowed_bytes(values, at)?);
        }
    }
    Some(total)
}

/// Bytes of a value if it is borrowed, otherwise 0.
#[inline(always)]
fn borrowed_bytes(values: &Bytes<'_>, at: usize) -> Option<u64> {
    let length = values.get(at)?.len();
    Some(if length >= BORROWED_BYTES && values.home(at).is_some() { length as u64 } else { 0 })
}

/// The fault if the two passes differ, or offsets are outside the values.
#[cold]
fn disagree(record: usize) -> Fault {
    Fault::new(FaultKind::Schema, 0, "the array's offsets point outside of its values")
        .in_record(record)
}

/// The fault for a record whose message would be too long.
#[cold]
pub fn too_long(record: usize, length: u64) -> Fault {
    Fault::new(FaultKind::Schema, 0, "takes more bytes than a protobuf message may have")
        .values(MESSAGE_BYTES, length)
        .in_record(record)
}
