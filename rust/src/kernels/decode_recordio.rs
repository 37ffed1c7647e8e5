//! Decodes RecordIO frames to payloads, or to the columns of an image pack.
//!
//! | offset | size | field of an image pack's payload |
//! |---|---|---|
//! | 0 | 4 | flag: the number of labels after this header; 0 if the only label is in the header |
//! | 4 | 4 | label, float32 |
//! | 8 | 8 | id |
//! | 16 | 8 | id2 |
//! | 24 | 4 each | labels, float32 |
//! | .. | | the image's bytes |
//!
//! A record of one part is borrowed from the buffer. The parts of a longer record are copied into
//! one value.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, FixedSizeListArray, Float32Array, ListArray, UInt64Array,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};

use super::buffer_pool;
use super::views::Views;
use super::walk::Frames;
use crate::wire::recordio::{PART_HEAD, join, only_piece};
use crate::wire::{Fault, FaultKind};

/// Bytes before the labels.
const HEADER: usize = 24;

/// How the labels of a pack become a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// One number: every flag is 0.
    Scalar,
    /// This many numbers: every flag is this number.
    Fixed(usize),
    /// Any number of numbers; flag 0 gives a list of one.
    List,
}

/// The columns that are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// The form of the labels, if they are wanted.
    pub label: Option<Label>,
    /// The first number.
    pub id: bool,
    /// The second number.
    pub id2: bool,
    /// The bytes after header and labels.
    pub image: bool,
    /// Images are views into the buffer if possible, not copies.
    pub borrow: bool,
}

/// The payload of one record, and its start in the buffer if it is contiguous there.
fn payload<'a>(
    frames: &'a Frames,
    record: usize,
    copy: &'a mut Vec<u8>,
) -> Result<(Option<usize>, &'a [u8]), Fault> {
    let frame = frames.payload(record).unwrap_or_default();
    if let Some(piece) = only_piece(frame) {
        let start = frames.spans.get(record).map(|span| span.0.wrapping_add(PART_HEAD));
        return Ok((start, piece));
    }
    copy.clear();
    if copy.try_reserve(frame.len()).is_err() {
        let message = format!("no memory for a record of {} bytes", frame.len());
        return Err(fault(frames, record, FaultKind::Limit, message));
    }
    join(frame, copy);
    Ok((None, copy))
}

#[cold]
fn fault(frames: &Frames, record: usize, kind: FaultKind, message: impl Into<String>) -> Fault {
    Fault::new(kind, frames.place(record), message).in_record(record)
}

/// A column of byte strings being built.
enum Values<'a> {
    Borrowed(Views<'a>),
    Copied { bytes: Vec<u8>, ends: Vec<i32> },
}

impl<'a> Values<'a> {
    fn new(frames: &'a Frames, borrow: bool) -> Result<Self, Fault> {
        let num_records = frames.spans.len();
        if borrow {
            return Ok(Self::Borrowed(Views::new(&frames.buffer, num_records)));
        }
        // No value is longer than its frame.
        let most = frames.spans.iter().fold(0usize, |all, span| all.saturating_add(span.1));
        if most > i32::MAX as usize {
            let message = "the values take more bytes than a binary column of one batch holds";
            let fault = Fault::new(FaultKind::Limit, frames.place(0), message);
            return Err(fault.values(i32::MAX as u64, most as u64));
        }
        let no_memory =
            || Fault::new(FaultKind::Limit, frames.place(0), format!("no memory for {most} bytes"));
        let mut ends = Vec::with_capacity(num_records.saturating_add(1));
        ends.push(0);
        Ok(Self::Copied { bytes: buffer_pool::take(most).ok_or_else(no_memory)?, ends })
    }

    /// Append a value; `start` is its offset in the buffer if it is contiguous there.
    #[inline(always)]
    fn push(
        &mut self,
        frames: &Frames,
        record: usize,
        start: Option<usize>,
        value: &[u8],
    ) -> Result<(), Fault> {
        let pushed = match self {
            Self::Borrowed(views) => match start {
                Some(start) => views.push(start, value.len()),
                None => views.push_copy(value),
            },
            Self::Copied { bytes, ends } => {
                bytes.extend_from_slice(value);
                ends.push(bytes.len() as i32);
                Some(())
            }
        };
        pushed.ok_or_else(|| frames.too_long_to_view(record, value.len()))
    }

    fn finish(self) -> Result<ArrayRef, Fault> {
        Ok(match self {
            Self::Borrowed(views) => Arc::new(views.finish()),
            Self::Copied { bytes, ends } => {
                let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
                let array = BinaryArray::try_new(ends, buffer_pool::pooled(bytes), None);
                Arc::new(array.map_err(|e| Fault::new(FaultKind::Limit, 0, e.to_string()))?)
            }
        })
    }
}

/// The raw payloads: views if `borrow`, otherwise copies as binary.
pub fn payloads(frames: &Frames, borrow: bool) -> Result<ArrayRef, Fault> {
    let mut values = Values::new(frames, borrow)?;
    let mut copy = Vec::new();
    for record in 0..frames.spans.len() {
        let (start, bytes) = payload(frames, record, &mut copy)?;
        values.push(frames, record, start, bytes)?;
    }
    values.finish()
}

/// The columns of an image pack, in the order label, id, id2, image.
pub fn columns(frames: &Frames, wanted: Wanted) -> Result<Vec<(&'static str, ArrayRef)>, Fault> {
    let num_records = frames.spans.len();
    let mut labels = Labels::new(wanted.label, num_records);
    let mut ids = Vec::with_capacity(if wanted.id { num_records } else { 0 });
    let mut id2s = Vec::with_capacity(if wanted.id2 { num_records } else { 0 });
    let mut images = match wanted.image {
        true => Some(Values::new(frames, wanted.borrow)?),
        false => None,
    };
    let mut copy = Vec::new();
    for record in 0..num_records {
        let (start, bytes) = payload(frames, record, &mut copy)?;
        let header = Header::of(bytes)
            .map_err(|(message, expected)| short(frames, record, message, expected, bytes.len()))?;
        if wanted.label.is_some() {
            labels.push(&header).map_err(|error| error.within(frames, record))?;
        }
        if wanted.id {
            ids.push(header.id);
        }
        if wanted.id2 {
            id2s.push(header.id2);
        }
        if let Some(images) = &mut images {
            let before = HEADER.wrapping_add(header.labels.len());
            let image = bytes.get(before..).unwrap_or_default();
            images.push(frames, record, start.map(|start| start.wrapping_add(before)), image)?;
        }
    }
    let mut found: Vec<(&'static str, ArrayRef)> = Vec::with_capacity(4);
    if let Some(array) = labels.finish()? {
        found.push(("label", array));
    }
    if wanted.id {
        found.push(("id", Arc::new(UInt64Array::from(ids))));
    }
    if wanted.id2 {
        found.push(("id2", Arc::new(UInt64Array::from(id2s))));
    }
    if let Some(images) = images {
        found.push(("image", images.finish()?));
    }
    Ok(found)
}

#[cold]
fn short(frames: &Frames, record: usize, message: &str, expected: u64, found: usize) -> Fault {
    fault(frames, record, FaultKind::Schema, message).values(expected, found as u64)
}

/// The start of an image pack's record.
struct Header<'a> {
    flag: u32,
    label: f32,
    id: u64,
    id2: u64,
    labels: &'a [u8],
}

impl<'a> Header<'a> {
    /// The header or its fault, and how many bytes it takes.
    #[inline(always)]
    fn of(bytes: &'a [u8]) -> Result<Self, (&'static str, u64)> {
        let (Some([flag, label]), Some([id, id2])) = (
            bytes.first_chunk::<8>().map(|b| b.as_chunks::<4>().0).and_then(|w| w.first_chunk()),
            bytes.get(8..HEADER).map(|b| b.as_chunks::<8>().0).and_then(|w| w.first_chunk()),
        ) else {
            let message = "the record has fewer bytes than the header of an image";
            return Err((message, HEADER as u64));
        };
        let flag = u32::from_le_bytes(*flag);
        let before = (HEADER as u64).wrapping_add(u64::from(flag).wrapping_mul(4));
        let Some(labels) = usize::try_from(before).ok().and_then(|end| bytes.get(HEADER..end))
        else {
            return Err(("the record has fewer labels than its header says", before));
        };
        Ok(Self {
            flag,
            label: f32::from_le_bytes(*label),
            id: u64::from_le_bytes(*id),
            id2: u64::from_le_bytes(*id2),
            labels,
        })
    }
}

/// A record that does not have the wanted number of labels.
struct Unlike {
    expected: u64,
    found: u64,
}

impl Unlike {
    #[cold]
    fn within(self, frames: &Frames, record: usize) -> Fault {
        let message = "the record does not have as many labels as the column";
        let fault = fault(frames, record, FaultKind::Schema, message);
        fault.values(self.expected, self.found).in_field("label")
    }
}

/// The label column being built.
struct Labels {
    kind: Option<Label>,
    values: Vec<f32>,
    ends: Vec<i32>,
}

impl Labels {
    fn new(kind: Option<Label>, num_records: usize) -> Self {
        let room = if kind.is_some() { num_records } else { 0 };
        let ends = if kind == Some(Label::List) { vec![0] } else { Vec::new() };
        Self { kind, values: Vec::with_capacity(room), ends }
    }

    #[inline(always)]
    fn push(&mut self, header: &Header<'_>) -> Result<(), Unlike> {
        let found = u64::from(header.flag);
        match self.kind {
            Some(Label::Scalar) if header.flag == 0 => self.values.push(header.label),
            Some(Label::Scalar) => return Err(Unlike { expected: 0, found }),
            Some(Label::Fixed(size)) if size as u64 != found => {
                return Err(Unlike { expected: size as u64, found });
            }
            _ => {
                if header.flag == 0 {
                    self.values.push(header.label);
                }
                let words = header.labels.as_chunks::<4>().0;
                self.values.extend(words.iter().map(|word| f32::from_le_bytes(*word)));
                if self.kind == Some(Label::List) {
                    // If there are too many values for one array, this is reported at the end.
                    self.ends.push(i32::try_from(self.values.len()).unwrap_or(-1));
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Option<ArrayRef>, Fault> {
        let Some(kind) = self.kind else { return Ok(None) };
        let wrong = |error: String| Fault::new(FaultKind::Limit, 0, error).in_field("label");
        let values = Arc::new(Float32Array::from(self.values));
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        Ok(Some(match kind {
            Label::Scalar => values,
            Label::Fixed(size) => {
                let size = i32::try_from(size).map_err(|error| wrong(error.to_string()))?;
                let array = FixedSizeListArray::try_new(item, size, values, None);
                Arc::new(array.map_err(|error| wrong(error.to_string()))?)
            }
            Label::List => {
                if self.ends.last() == Some(&-1) {
                    return Err(wrong("more labels than one array holds".to_owned()));
                }
                let ends = OffsetBuffer::new(ScalarBuffer::from(self.ends));
                let array = ListArray::try_new(item, ends, values, None);
                Arc::new(array.map_err(|error| wrong(error.to_string()))?)
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float32Type, UInt64Type};
    use arrow_buffer::Buffer;

    use super::*;
    use crate::kernels::walk::walk;
    use crate::wire::recordio::{MAGIC, RecordIo, write_frame};

    fn frames(payloads: &[Vec<u8>]) -> Frames {
        let mut bytes = Vec::new();
        payloads.iter().for_each(|payload| write_frame(&mut bytes, &[], payload));
        let found = walk(RecordIo, &bytes, 1 << 30, true);
        assert_eq!(found.spans.len(), payloads.len());
        let kind = crate::wire::frames::AnyFraming::RecordIo;
        Frames { kind, buffer: Buffer::from_vec(bytes), spans: found.spans, ..Frames::default() }
    }

    fn packed(flag: u32, labels: &[f32], id: u64, image: &[u8]) -> Vec<u8> {
        let mut out = flag.to_le_bytes().to_vec();
        out.extend_from_slice(&5f32.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&7u64.to_le_bytes());
        labels.iter().for_each(|label| out.extend_from_slice(&label.to_le_bytes()));
        out.extend_from_slice(image);
        out
    }

    const ALL: Wanted =
        Wanted { label: Some(Label::List), id: true, id2: true, image: true, borrow: false };

    #[test]
    fn packs_come_as_columns_also_where_the_magic_cuts_them() {
        let magic = MAGIC.to_le_bytes();
        let id = u64::from_le_bytes([magic, magic].concat().try_into().unwrap());
        let image = [&magic[..], b"an image that is cut", &magic].concat();
        let frames = frames(&[packed(2, &[1.0, 2.0], id, &image), packed(0, &[], 1, b"")]);
        for borrow in [false, true] {
            let found = columns(&frames, Wanted { borrow, ..ALL }).unwrap();
            let names: Vec<_> = found.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, ["label", "id", "id2", "image"]);
            let labels = found[0].1.as_list::<i32>();
            assert_eq!(labels.value(0).as_primitive::<Float32Type>().values()[..], [1.0, 2.0]);
            assert_eq!(labels.value(1).as_primitive::<Float32Type>().values()[..], [5.0]);
            assert_eq!(found[1].1.as_primitive::<UInt64Type>().values()[..], [id, 1]);
            let images = match borrow {
                true => found[3].1.as_binary_view().iter().map(Option::unwrap).collect::<Vec<_>>(),
                false => found[3].1.as_binary::<i32>().iter().map(Option::unwrap).collect(),
            };
            assert_eq!(images, [&image[..], b""]);
        }
    }

    #[test]
    fn records_that_lack_bytes_or_labels_are_named() {
        let whole = packed(0, &[], 1, b"");
        for (bad, expected) in [(whole[..23].to_vec(), 24), (packed(3, &[1.0, 2.0], 1, b"xyz"), 36)]
        {
            let fault = columns(&frames(&[whole.clone(), bad]), ALL).unwrap_err();
            assert_eq!((fault.record, fault.expected), (Some(1), Some(expected)));
        }
        let huge = packed(u32::MAX, &[], 1, b"");
        assert!(columns(&frames(&[huge]), ALL).is_err());
        for label in [Label::Scalar, Label::Fixed(2)] {
            let wanted = Wanted { label: Some(label), ..Wanted::default() };
            let fault = columns(&frames(&[packed(1, &[1.0], 1, b"")]), wanted).unwrap_err();
            assert_eq!(fault.field.as_deref(), Some("label"));
        }
    }

    #[test]
    fn nothing_asked_for_is_nothing_given() {
        assert!(columns(&frames(&[packed(0, &[], 1, b"")]), Wanted::default()).unwrap().is_empty());
        assert_eq!(payloads(&frames(&[]), false).unwrap().len(), 0);
    }
}
