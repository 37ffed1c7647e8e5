//! Arrow batches to TFRecord frames of `tf.train.Example` and `SequenceExample`.
//!
//! Every length in a protobuf message stands before what it measures, so the work is two passes:
//! the first measures each feature of each record, column by column; the second writes record by
//! record into memory of exactly the right size, and takes each checksum while its payload is
//! still in the processor's cache.
//!
//! What is written is the subset that every reader agrees on: keys sorted bytewise and each once,
//! key before value, one packed run a list, minimal varints. A null is an absent feature, an empty
//! list is a list with no values.

use arrow_array::{Array, StructArray};
use arrow_buffer::Buffer;

use super::example_columns::{Bytes, Column, Section, Values, columns_of};
use crate::wire::crc32c::{crc32c, crc32c_u64, mask};
use crate::wire::frames::{TFRECORD_HEAD, TFRECORD_TAIL};
use crate::wire::{Fault, FaultKind, varint};

/// The message that a record becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// `tf.train.Example`.
    Example,
    /// `tf.train.SequenceExample`.
    Sequence,
}

/// Frames one after another, with what an index keeps of each.
#[derive(Clone, Debug)]
pub struct Framed {
    /// The frames.
    pub data: Buffer,
    /// Bytes of each whole frame.
    pub lengths: Vec<u64>,
    /// The masked checksum of each payload, as it is stored.
    pub checksums: Vec<u32>,
}

/// No protobuf reader takes a longer message.
pub const MESSAGE_BYTES: u64 = i32::MAX as u64;
/// Stands for an absent feature among the measured lengths.
const ABSENT: u32 = u32::MAX;
/// The first field of a message (`features`, `context`, `feature`, `key`, `value`, `bytes_list`),
/// and the second (`feature_lists`, `value`), both length-delimited.
pub const FIRST: u8 = 0x0a;
const SECOND: u8 = 0x12;

/// A batch, whose columns are the features, as frames.
pub fn encode_examples(batch: &StructArray, payload: Payload) -> Result<Framed, Fault> {
    let encoder = Encoder::new(batch, payload)?;
    let mut frames = Frames::room(batch.len(), |record| encoder.sections.payload_len(record))?;
    for record in 0..batch.len() {
        frames.next(|pen| encoder.write(pen, record, true)).ok_or_else(|| disagree(record))?;
    }
    Ok(frames.finish())
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
            let entries = sections.of(column.section);
            for (entries, &length) in entries.iter_mut().zip(&lengths) {
                if length != ABSENT {
                    let entry = field_len(column.head.entry_len(u64::from(length)));
                    *entries = entries.saturating_add(entry);
                }
            }
            measured.push(lengths);
        }
        Ok(Self { columns, measured, sections, num_records })
    }

    /// How many records the batch has.
    pub fn num_records(&self) -> usize {
        self.num_records
    }

    /// The features.
    pub fn columns(&self) -> &[Column<'a>] {
        &self.columns
    }

    /// Whether a record has any feature in this part of the message.
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

    /// Append a record's features as a message that merges with the one before it: parts without
    /// a feature are left out, so nothing is added where all features are absent.
    #[inline]
    pub fn append(&self, record: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
        let start = out.len();
        let length = self.addition_len(record);
        if length > MESSAGE_BYTES {
            return Err(too_long(record, length));
        }
        let stop = start.wrapping_add(length as usize);
        // Room for a ready-made head behind the end, which only then may be copied whole.
        out.resize(stop.wrapping_add(SHORT_HEAD), 0);
        let mut pen = Pen { out, at: start };
        let written = self.write(&mut pen, record, false);
        if written.is_none() || pen.at != stop {
            return Err(disagree(record));
        }
        out.truncate(stop);
        Ok(())
    }

    /// One record's message; `empty_parts`: also parts that have no feature.
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

/// Byte strings, each of which is a record already, as frames.
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
    let mut frames = Frames::room(array.len(), length)?;
    for record in 0..array.len() {
        frames.next(|pen| pen.put(bytes.get(record)?)).ok_or_else(|| disagree(record))?;
    }
    Ok(frames.finish())
}

/// The two passes differ, or the array's offsets point outside of its values.
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

/// Bytes of a varint, as the type that lengths have here.
#[inline(always)]
fn varint_len(value: u64) -> u64 {
    varint::len(value) as u64
}

/// Bytes of a length-delimited field whose tag takes one byte.
#[inline(always)]
pub fn field_len(length: u64) -> u64 {
    1u64.saturating_add(varint_len(length)).saturating_add(length)
}

/// The bytes of a list's run, given those of the list, which are tag, varint and run.
#[inline(always)]
fn run_len(list: u64) -> Option<u64> {
    (1..=10).find_map(|width| {
        let run = list.checked_sub(1)?.checked_sub(width)?;
        (varint_len(run) == width).then_some(run)
    })
}

/// How long the parts of every record's message are, without their own tags and lengths. A part
/// that the message does not have at all is an empty vector.
struct Sections {
    context: Vec<u64>,
    lists: Vec<u64>,
}

impl Sections {
    fn new(columns: &[Column<'_>], payload: Payload, num_records: usize) -> Self {
        let has = |section| columns.iter().any(|column| column.section == section);
        let part = |present| if present { vec![0; num_records] } else { Vec::new() };
        Self {
            context: part(payload == Payload::Example || has(Section::Context)),
            lists: part(has(Section::Lists)),
        }
    }

    fn of(&mut self, section: Section) -> &mut [u64] {
        match section {
            Section::Context => &mut self.context,
            Section::Lists => &mut self.lists,
        }
    }

    #[inline(always)]
    fn lengths(&self, section: Section) -> &[u64] {
        match section {
            Section::Context => &self.context,
            Section::Lists => &self.lists,
        }
    }

    fn payload_len(&self, record: usize) -> Option<u64> {
        let part = |lengths: &Vec<u64>| lengths.get(record).map_or(0, |&length| field_len(length));
        Some(part(&self.context).saturating_add(part(&self.lists)))
    }
}

/// The bytes inside each record's list (of a feature), or feature list (of a column of those).
fn measure(column: &Column<'_>, num_records: usize) -> Result<Vec<u32>, Fault> {
    let mut lengths = Vec::with_capacity(num_records);
    for record in 0..num_records {
        if column.is_null(record) {
            lengths.push(ABSENT);
            continue;
        }
        let length = match &column.frames {
            None => feature_list_len(column, record, record)?,
            Some(frames) => {
                let (start, count) = frames.span(record).ok_or_else(|| disagree(record))?;
                let mut total = 0u64;
                for frame in start..start.saturating_add(count) {
                    let list = feature_list_len(column, frame, record)?.unwrap_or(0);
                    total = total.saturating_add(field_len(field_len(list)));
                }
                (!matches!(column.values, Values::Nothing)).then_some(total)
            }
        };
        match length {
            None => lengths.push(ABSENT),
            Some(length) if length <= MESSAGE_BYTES => lengths.push(length as u32),
            Some(length) => return Err(too_long(record, length)),
        }
    }
    Ok(lengths)
}

/// The bytes inside the list of one feature, or None where its column cannot say of what type an
/// empty list is.
#[inline(always)]
fn feature_list_len(column: &Column<'_>, row: usize, record: usize) -> Result<Option<u64>, Fault> {
    let (start, count) = column.rows.span(row).ok_or_else(|| disagree(record))?;
    column.refuse_nulls(row, start, count).map_err(|fault| fault.in_record(record))?;
    if matches!(column.values, Values::Nothing) {
        return Ok(None);
    }
    let length = column.values.list_len(start, count).ok_or_else(|| disagree(record))?;
    Ok(Some(length))
}

impl Values<'_> {
    /// Bytes inside the list message of `count` values.
    #[inline(always)]
    fn list_len(&self, start: usize, count: usize) -> Option<u64> {
        let run = match self {
            Self::Nothing => 0,
            Self::Int(values) => {
                let values = values.get(start..start.checked_add(count)?)?;
                values.iter().fold(0u64, |sum, &v| sum.wrapping_add(varint_len(v as u64)))
            }
            Self::Float(values) => {
                let values = values.get(start..start.checked_add(count)?)?;
                (values.len() as u64).saturating_mul(4)
            }
            Self::Bytes(values) => {
                let mut total = 0u64;
                for at in start..start.checked_add(count)? {
                    total = total.saturating_add(field_len(values.get(at)?.len() as u64));
                }
                return Some(total);
            }
        };
        Some(if run == 0 { 0 } else { field_len(run) })
    }

    /// The values of a list, after the list's own length.
    #[inline(always)]
    fn write_list(&self, pen: &mut Pen<'_>, start: usize, count: usize, length: u64) -> Option<()> {
        match self {
            Self::Nothing => Some(()),
            Self::Bytes(values) => {
                for at in start..start.checked_add(count)? {
                    let value = values.get(at)?;
                    pen.open(FIRST, value.len() as u64)?;
                    pen.put(value)?;
                }
                Some(())
            }
            Self::Int(_) | Self::Float(_) if length == 0 => Some(()),
            Self::Int(_) | Self::Float(_) => {
                pen.open(FIRST, run_len(length)?)?;
                self.write_run(pen, start, count)
            }
        }
    }

    /// The bytes of a list's only run: packed numbers, or its one byte string.
    #[inline(always)]
    fn write_run(&self, pen: &mut Pen<'_>, start: usize, count: usize) -> Option<()> {
        match self {
            Self::Nothing => Some(()),
            Self::Int(values) => {
                for &value in values.get(start..start.checked_add(count)?)? {
                    pen.varint(value as u64)?;
                }
                Some(())
            }
            Self::Float(values) => pen.floats(values.get(start..start.checked_add(count)?)?),
            Self::Bytes(values) => pen.put(values.get(start)?),
        }
    }
}

/// The entries of one part of one record's message.
#[inline(always)]
fn write_section(
    pen: &mut Pen<'_>,
    columns: &[Column<'_>],
    measured: &[Vec<u32>],
    record: usize,
    section: Section,
) -> Option<()> {
    for (column, lengths) in columns.iter().zip(measured) {
        let length = *lengths.get(record)?;
        if length != ABSENT && column.section == section {
            write_entry(pen, column, record, length)?;
        }
    }
    Some(())
}

#[inline(always)]
fn write_entry(pen: &mut Pen<'_>, column: &Column<'_>, record: usize, length: u32) -> Option<()> {
    let Some(frames) = &column.frames else {
        let (start, count) = column.rows.span(record)?;
        if column.head.write_short(pen, length) {
            return column.values.write_run(pen, start, count);
        }
        let length = u64::from(length);
        column.head.write(pen, length)?;
        pen.open(column.head.tag, length)?;
        return column.values.write_list(pen, start, count, length);
    };
    column.head.write(pen, u64::from(length))?;
    let (start, count) = frames.span(record)?;
    for frame in start..start.checked_add(count)? {
        let (start, count) = column.rows.span(frame)?;
        let length = column.values.list_len(start, count)?;
        pen.open(FIRST, field_len(length))?;
        pen.open(column.head.tag, length)?;
        column.values.write_list(pen, start, count, length)?;
    }
    Some(())
}

/// Bytes that a ready-made head takes at most.
const SHORT_HEAD: usize = 48;
/// Bytes of a ready-made head besides its key: six before and around it, five after.
const AROUND_KEY: usize = 10;

/// What stands before a column's values in every record: the map entry, its key, and the tags and
/// lengths down to the list.
#[derive(Clone, Debug)]
pub struct Head {
    key: Box<[u8]>,
    /// The list's field within Feature, which is its type.
    tag: u8,
    section: Section,
    /// The head of a list of one run, with room for the lengths.
    short: [u8; SHORT_HEAD],
    /// The longest list that `short` serves: all of its lengths take one byte.
    short_max: u32,
}

impl Head {
    /// The head of the column `key`. `one_run`: the list holds packed numbers, or one byte string.
    pub fn new(key: &str, tag: u8, section: Section, one_run: bool) -> Self {
        let mut head =
            Self { key: key.as_bytes().into(), tag, section, short: [0; SHORT_HEAD], short_max: 0 };
        let length = head.key.len();
        if one_run && section == Section::Context && length <= SHORT_HEAD.saturating_sub(16) {
            let start = [FIRST, 0, FIRST, length as u8];
            let bytes = start.iter().chain(&head.key).chain(&[SECOND]);
            for (to, from) in head.short.iter_mut().zip(bytes) {
                *to = *from;
            }
            head.short_max = 121u32.saturating_sub(length as u32);
        }
        head
    }

    /// Bytes of the map entry, given those inside its list (or feature list).
    #[inline(always)]
    fn entry_len(&self, length: u64) -> u64 {
        field_len(self.key.len() as u64).saturating_add(field_len(self.value_len(length)))
    }

    #[inline(always)]
    fn value_len(&self, length: u64) -> u64 {
        match self.section {
            Section::Context => field_len(length),
            Section::Lists => length,
        }
    }

    /// The entry down to the length of its value.
    fn write(&self, pen: &mut Pen<'_>, length: u64) -> Option<()> {
        pen.open(FIRST, self.entry_len(length))?;
        pen.open(FIRST, self.key.len() as u64)?;
        pen.put(&self.key)?;
        pen.open(SECOND, self.value_len(length))
    }

    /// The same down to the list's run, copied whole with its five lengths filled in. False, and
    /// nothing written, where a length takes more than a byte or the buffer's end is near.
    #[inline(always)]
    fn write_short(&self, pen: &mut Pen<'_>, length: u32) -> bool {
        if length < 3 || length > self.short_max {
            return false;
        }
        let end = pen.at.wrapping_add(SHORT_HEAD);
        let Some(room) =
            pen.out.get_mut(pen.at..end).and_then(|r| r.first_chunk_mut::<SHORT_HEAD>())
        else {
            return false;
        };
        *room = self.short;
        let (key, list) = (self.key.len(), length as u8);
        // Every sum stays below 128, by `short_max`.
        if let Some(entry) = room.get_mut(1) {
            *entry = list.wrapping_add(key as u8).wrapping_add(6);
        }
        let lengths = [list.wrapping_add(2), self.tag, list, FIRST, list.wrapping_sub(2), 0, 0, 0];
        let after_key = key.wrapping_add(5);
        match room.get_mut(after_key..).and_then(|r| r.first_chunk_mut::<8>()) {
            Some(place) => *place = lengths,
            None => return false,
        }
        pen.at = pen.at.wrapping_add(key).wrapping_add(AROUND_KEY);
        true
    }
}

/// Writes forward through memory of the right size. None means that it was not.
pub struct Pen<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Pen<'_> {
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at.wrapping_add(bytes.len());
        self.out.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    #[inline(always)]
    fn byte(&mut self, byte: u8) -> Option<()> {
        *self.out.get_mut(self.at)? = byte;
        self.at = self.at.wrapping_add(1);
        Some(())
    }

    #[inline(always)]
    fn varint(&mut self, mut value: u64) -> Option<()> {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80)?;
            value >>= 7;
        }
        self.byte(value as u8)
    }

    /// The tag and length of a length-delimited field.
    #[inline(always)]
    fn open(&mut self, tag: u8, length: u64) -> Option<()> {
        self.byte(tag)?;
        self.varint(length)
    }

    #[inline(always)]
    fn floats(&mut self, values: &[f32]) -> Option<()> {
        let end = self.at.wrapping_add(values.len().checked_mul(4)?);
        let (words, _) = self.out.get_mut(self.at..end)?.as_chunks_mut::<4>();
        for (word, value) in words.iter_mut().zip(values) {
            *word = value.to_le_bytes();
        }
        self.at = end;
        Some(())
    }
}

/// Memory for all frames of a batch, filled one frame after another.
struct Frames {
    data: Vec<u8>,
    at: usize,
    lengths: Vec<u64>,
    checksums: Vec<u32>,
}

impl Frames {
    /// Room for records of these lengths; a None is an array that contradicts itself.
    fn room(num_records: usize, payload_len: impl Fn(usize) -> Option<u64>) -> Result<Self, Fault> {
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
        let mut data = Vec::new();
        let size = usize::try_from(total).unwrap_or(usize::MAX);
        if data.try_reserve_exact(size).is_err() {
            return Err(Fault::new(FaultKind::Limit, 0, format!("no memory for {total} bytes")));
        }
        data.resize(size, 0);
        Ok(Self { data, at: 0, lengths, checksums: Vec::with_capacity(num_records) })
    }

    /// The next frame, whose payload `write` puts there.
    #[inline(always)]
    fn next(&mut self, write: impl FnOnce(&mut Pen<'_>) -> Option<()>) -> Option<()> {
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

    fn finish(self) -> Framed {
        Framed {
            data: Buffer::from_vec(self.data),
            lengths: self.lengths,
            checksums: self.checksums,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{Int64Builder, ListBuilder};
    use arrow_array::{
        ArrayRef, BinaryViewArray, Float32Array, Int64Array, StringArray, StructArray,
    };
    use arrow_schema::{DataType, Field};

    use super::*;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> StructArray {
        let (fields, arrays): (Vec<_>, Vec<_>) = columns
            .into_iter()
            .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
            .unzip();
        StructArray::new(fields.into(), arrays, None)
    }

    fn payloads(framed: &Framed) -> Vec<Vec<u8>> {
        let mut at = 0;
        framed
            .lengths
            .iter()
            .zip(&framed.checksums)
            .map(|(&length, &checksum)| {
                let frame = &framed.data[at..at + length as usize];
                at += length as usize;
                let payload = frame[TFRECORD_HEAD..frame.len() - TFRECORD_TAIL].to_vec();
                let mut again = Vec::new();
                crate::wire::frames::write_tfrecord(&mut again, &payload);
                assert_eq!(frame, again);
                assert_eq!(frame[frame.len() - TFRECORD_TAIL..], checksum.to_le_bytes());
                payload
            })
            .collect()
    }

    fn ints(lists: &[Option<&[i64]>]) -> ArrayRef {
        let mut builder = ListBuilder::new(Int64Builder::new());
        for list in lists {
            match list {
                Some(values) => {
                    values.iter().for_each(|v| builder.values().append_value(*v));
                    builder.append(true);
                }
                None => builder.append(false),
            }
        }
        Arc::new(builder.finish())
    }

    #[test]
    fn the_published_example_is_written() {
        let batch = batch(vec![("a", ints(&[Some(&[-1, 1]), Some(&[]), None]))]);
        let found = payloads(&encode_examples(&batch, Payload::Example).unwrap());
        let first = b"\x0a\x16\x0a\x14\x0a\x01a\x12\x0f\x1a\x0d\x0a\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01";
        assert_eq!(found[0], first);
        assert_eq!(
            found[1], b"\x0a\x09\x0a\x07\x0a\x01a\x12\x02\x1a\x00",
            "an empty list is a list"
        );
        assert_eq!(found[2], b"\x0a\x00", "a null is an absent feature");
    }

    #[test]
    fn keys_are_sorted_by_their_bytes() {
        let one = || -> ArrayRef { Arc::new(Float32Array::from(vec![1.0])) };
        let batch =
            batch(vec![("b", one()), ("a_list", one()), ("é", one()), ("a", one()), ("B", one())]);
        let payload = &payloads(&encode_examples(&batch, Payload::Example).unwrap())[0];
        let places: Vec<_> = ["B", "a", "a_list", "b", "é"]
            .map(|key| {
                let entry = [&[FIRST, key.len() as u8], key.as_bytes(), &[SECOND]].concat();
                payload.windows(entry.len()).position(|w| w == entry).unwrap()
            })
            .into();
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn ready_made_heads_agree_with_built_ones() {
        for key_len in [0, 1, 31, 32, 33, 60, 200] {
            let key = "k".repeat(key_len);
            let head = Head::new(&key, 0x0a, Section::Context, true);
            for length in 2..=130u32 {
                let mut short = [0; 512];
                let mut pen = Pen { out: &mut short, at: 0 };
                if !head.write_short(&mut pen, length) {
                    continue;
                }
                let at = pen.at;
                let mut built = [0; 512];
                let mut pen = Pen { out: &mut built, at: 0 };
                head.write(&mut pen, length.into()).unwrap();
                pen.open(0x0a, length.into()).unwrap();
                pen.open(FIRST, run_len(length.into()).unwrap()).unwrap();
                let end = pen.at;
                assert_eq!(short[..at], built[..end], "key of {key_len}, list of {length}");
            }
        }
    }

    #[test]
    fn every_run_is_found_from_its_list() {
        for run in (1..70_000).chain([1 << 21, (1 << 21) - 1, 1 << 28, (1 << 31) - 8]) {
            assert_eq!(run_len(field_len(run)), Some(run));
        }
    }

    #[test]
    fn text_of_every_length_is_written() {
        let text: Vec<String> = (0..300).map(|n| "t".repeat(n)).collect();
        let batch = batch(vec![("text", Arc::new(StringArray::from(text.clone())))]);
        let found = payloads(&encode_examples(&batch, Payload::Example).unwrap());
        for (payload, text) in found.iter().zip(&text) {
            let list = field_len(text.len() as u64);
            let entry = field_len(4) + field_len(field_len(list));
            assert_eq!(payload.len() as u64, field_len(field_len(entry)));
            assert!(payload.ends_with(text.as_bytes()));
        }
    }

    #[test]
    fn a_sequence_has_context_and_feature_lists() {
        let inner = ints(&[Some(&[1, 2]), Some(&[]), Some(&[3])]);
        let field = Arc::new(Field::new("item", inner.data_type().clone(), true));
        let offsets = arrow_buffer::OffsetBuffer::from_lengths([3]);
        let lists = arrow_array::ListArray::new(field, offsets, inner, None);
        let batch = batch(vec![("f", Arc::new(lists)), ("c", Arc::new(Int64Array::from(vec![7])))]);
        let found = payloads(&encode_examples(&batch, Payload::Sequence).unwrap());
        let context = b"\x0a\x0c\x0a\x0a\x0a\x01c\x12\x05\x1a\x03\x0a\x01\x07";
        let frames =
            b"\x0a\x06\x1a\x04\x0a\x02\x01\x02\x0a\x02\x1a\x00\x0a\x05\x1a\x03\x0a\x01\x03";
        let lists = [b"\x12\x1a\x0a\x18\x0a\x01f\x12\x13".as_slice(), frames].concat();
        assert_eq!(found[0], [context.as_slice(), &lists].concat());
        assert!(encode_examples(&batch, Payload::Example).is_err());
    }

    #[test]
    fn nulls_inside_lists_and_keys_given_twice_are_faults() {
        let values = Arc::new(Int64Array::from(vec![Some(1), Some(2), None]));
        let field = Arc::new(Field::new("item", DataType::Int64, true));
        let offsets = arrow_buffer::OffsetBuffer::from_lengths([2, 1]);
        let lists = arrow_array::ListArray::new(field, offsets, values, None);
        let fault =
            encode_examples(&batch(vec![("x", Arc::new(lists))]), Payload::Example).unwrap_err();
        assert_eq!((fault.record, fault.field.as_deref()), (Some(1), Some("x")));

        let one = || -> ArrayRef { Arc::new(Int64Array::from(vec![1])) };
        let twice = batch(vec![("context/a", one()), ("a", one())]);
        assert!(encode_examples(&twice, Payload::Sequence).is_err());
    }

    #[test]
    fn raw_records_are_framed_as_they_are() {
        let long = "a record that does not fit into a view".as_bytes();
        let array = BinaryViewArray::from(vec![b"hello".as_slice(), b"", long]);
        let framed = frame_records(&array).unwrap();
        assert_eq!(payloads(&framed), [b"hello".as_slice(), b"", long]);
        let fault =
            frame_records(&BinaryViewArray::from(vec![Some(b"a".as_slice()), None])).unwrap_err();
        assert_eq!(fault.record, Some(1));
    }
}
