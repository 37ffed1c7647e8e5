//! Values of one kind, which fill a column.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Float32Array, Float64Array, Int64Array, StringArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};

use crate::kernels::buffer_pool;
use crate::kernels::strings::BorrowedStrings;
use crate::wire::example::Kind;
use crate::wire::{Fault, FaultKind};

/// Values of one kind, one after another.
#[derive(Clone, Debug)]
pub enum Values {
    /// int64
    Int64(Vec<i64>),
    /// float32
    Float(Vec<f32>),
    /// float64: numbers of both kinds, if both are wanted
    Double(Vec<f64>),
    /// byte strings: the start of each and the end of the last, then the bytes
    Bytes(Vec<i32>, Vec<u8>),
    /// byte strings borrowed from the buffer that was read
    Borrowed(BorrowedStrings),
}

/// Arrow's 32-bit offsets end here.
pub const MAX_OFFSET: usize = i32::MAX as usize;

impl Values {
    /// No values of this kind.
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Int64 => Self::Int64(Vec::new()),
            Kind::Float => Self::Float(Vec::new()),
            Kind::Bytes => Self::Bytes(vec![0], Vec::new()),
        }
    }

    /// The number of values.
    #[inline(always)]
    pub fn len(&self) -> usize {
        match self {
            Self::Int64(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Double(values) => values.len(),
            Self::Bytes(offsets, _) => offsets.len().saturating_sub(1),
            Self::Borrowed(strings) => strings.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Append a byte string. For other kinds, this does nothing.
    #[inline(always)]
    pub fn push_bytes(&mut self, value: &[u8]) -> Result<(), Fault> {
        match self {
            Self::Bytes(offsets, data) => {
                data.extend_from_slice(value);
                if data.len() > MAX_OFFSET {
                    return Err(too_large(data.len()));
                }
                offsets.push(data.len() as i32);
            }
            Self::Borrowed(strings) => strings.push(value),
            Self::Int64(_) | Self::Float(_) | Self::Double(_) => {}
        }
        Ok(())
    }

    /// Keep only the first byte strings. For other kinds, this does nothing.
    pub fn cut_bytes(&mut self, count: usize) {
        match self {
            Self::Bytes(offsets, data) => {
                offsets.truncate(count.saturating_add(1));
                data.truncate(offsets.last().map_or(0, |&end| end as usize));
            }
            Self::Borrowed(strings) => strings.truncate(count),
            Self::Int64(_) | Self::Float(_) | Self::Double(_) => {}
        }
    }

    /// Append `count` zeros or empty strings, for nulls. The count comes from the schema, so there may not
    /// be enough memory.
    pub(super) fn push_blanks(&mut self, count: usize) -> Result<(), Fault> {
        match self {
            Self::Int64(values) => push_copies(values, count, 0)?,
            Self::Float(values) => push_copies(values, count, 0.0)?,
            Self::Double(values) => push_copies(values, count, 0.0)?,
            Self::Bytes(offsets, data) => push_copies(offsets, count, data.len() as i32)?,
            Self::Borrowed(strings) => (0..count).for_each(|_| strings.push(&[])),
        }
        Ok(())
    }

    /// Append copies of all values of another collection of the same kind.
    pub(super) fn extend(&mut self, other: &Self) -> Result<(), Fault> {
        match (self, other) {
            (Self::Int64(mine), Self::Int64(theirs)) => {
                make_room(mine, theirs.len())?;
                mine.extend_from_slice(theirs);
            }
            (Self::Float(mine), Self::Float(theirs)) => {
                make_room(mine, theirs.len())?;
                mine.extend_from_slice(theirs);
            }
            (mine @ (Self::Bytes(..) | Self::Borrowed(_)), Self::Bytes(offsets, data)) => {
                for pair in offsets.windows(2) {
                    if let [start, end] = *pair {
                        mine.push_bytes(
                            data.get(start as usize..end as usize).unwrap_or_default(),
                        )?;
                    }
                }
            }
            _ => return Err(Fault::new(FaultKind::Schema, 0, "the default has a different type")),
        }
        Ok(())
    }

    pub(super) fn into_array(self, text: bool) -> Result<ArrayRef, Fault> {
        Ok(match self {
            Self::Int64(values) => Arc::new(Int64Array::new(values.into(), None)),
            Self::Float(values) => Arc::new(Float32Array::new(values.into(), None)),
            Self::Double(values) => Arc::new(Float64Array::new(values.into(), None)),
            Self::Bytes(offsets, data) => bytes_array(offsets, data, None, text)?,
            Self::Borrowed(strings) => Arc::new(strings.views(None)?),
        })
    }
}

fn push_copies<T: Copy>(values: &mut Vec<T>, count: usize, value: T) -> Result<(), Fault> {
    make_room(values, count)?;
    values.resize(values.len().saturating_add(count), value);
    Ok(())
}

fn make_room<T>(values: &mut Vec<T>, count: usize) -> Result<(), Fault> {
    let all = (values.len() as u64).saturating_add(count as u64);
    values.try_reserve(count).map_err(|_| {
        let message = "not enough memory for the values; read fewer records at once";
        Fault::new(FaultKind::Limit, 0, message).values(0, all)
    })
}

/// The fault for a column with more bytes than 32-bit offsets can count.
#[cold]
pub fn too_large(bytes: usize) -> Fault {
    let message = "a column of this batch outgrows Arrow's 2 GiB; read fewer records at once";
    Fault::new(FaultKind::Limit, 0, message).values(MAX_OFFSET as u64, bytes as u64)
}

#[cold]
fn not_text(array: &BinaryArray) -> Fault {
    let record = array.iter().position(|v| v.is_some_and(|v| std::str::from_utf8(v).is_err()));
    let mut fault = Fault::new(FaultKind::Schema, 0, "the value is not UTF-8, as a string must be");
    fault.record = record;
    fault
}

pub(super) fn bytes_array(
    offsets: Vec<i32>,
    data: Vec<u8>,
    nulls: Option<NullBuffer>,
    text: bool,
) -> Result<ArrayRef, Fault> {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let data = buffer_pool::pooled(data);
    let array = BinaryArray::try_new(offsets, data, nulls)
        .map_err(|error| Fault::new(FaultKind::Schema, 0, error.to_string()))?;
    if !text {
        return Ok(Arc::new(array));
    }
    match StringArray::try_from_binary(array.clone()) {
        Ok(strings) => Ok(Arc::new(strings)),
        Err(_) => Err(not_text(&array)),
    }
}
