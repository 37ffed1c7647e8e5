//! Columns being filled, one record after another, and the Arrow arrays they become.

mod values;

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int64Array, ListArray, NullArray,
};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef};

use self::values::bytes_array;
pub use self::values::{MAX_OFFSET, Values, too_large};
use super::buffer_pool;
use super::strings::BorrowedStrings;
use crate::wire::example::Kind;
use crate::wire::{Fault, FaultKind};

/// How a feature's values become a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Exactly one value per record.
    Scalar,
    /// Any number of values per record.
    List,
    /// Exactly this many values per record.
    Fixed(usize),
    /// Any number of rows per record, each of this many values, stored as one list of the values.
    Rows(usize),
    /// A feature list with this many values per frame, stored as one list of the values.
    FrameRows(usize),
    /// A feature list with any number of values per frame: `list<list<value>>`.
    FrameLists,
}

/// Whether records are so large on average that, if there is just one column of strings, it has
/// most of their bytes.
pub fn are_large(num_bytes: usize, records: usize) -> bool {
    num_bytes >= 256 << 10 && num_bytes / records.max(1) >= 4 << 10
}

impl Layout {
    /// Whether TensorFlow makes a dense tensor of the column.
    pub fn is_dense(self) -> bool {
        matches!(self, Self::Scalar | Self::Fixed(_) | Self::Rows(_))
    }
}

/// One column being filled.
#[derive(Debug)]
pub struct Column {
    layout: Layout,
    text: bool,
    /// The values, or None for a column that has only nulls.
    pub values: Option<Values>,
    /// Ends of the innermost lists.
    inner: Vec<i32>,
    /// Ends of the outer lists of a feature list.
    outer: Vec<i32>,
    validity: Option<BooleanBufferBuilder>,
    records: usize,
}

impl Column {
    /// An empty column; `kind` None makes one that has only nulls.
    pub fn new(kind: Option<Kind>, layout: Layout, text: bool, records: usize) -> Self {
        Self::of(kind.map(Values::new), layout, text, records)
    }

    /// An empty column that stores its values in `values`.
    pub fn of(mut values: Option<Values>, layout: Layout, text: bool, records: usize) -> Self {
        let reserve = match layout {
            Layout::Scalar => records,
            Layout::Fixed(size) => records.saturating_mul(size).min(1 << 22),
            _ => 0,
        };
        match &mut values {
            Some(Values::Int64(values)) => values.reserve(reserve),
            Some(Values::Float(values)) => values.reserve(reserve),
            Some(Values::Double(values)) => values.reserve(reserve),
            Some(Values::Bytes(offsets, _)) => offsets.reserve(reserve),
            Some(Values::Borrowed(_)) | None => {}
        }
        Self { layout, text, values, inner: vec![0], outer: vec![0], validity: None, records: 0 }
    }

    /// Reserve capacity for all records, in proportion to the records so far, to avoid the copies of
    /// repeated doubling.
    pub fn expect(&mut self, records: usize, num_bytes: usize) {
        let so_far = self.records.max(1);
        let all = |len: usize, most: usize| {
            let mean = len.saturating_mul(records) / so_far;
            mean.saturating_add(mean / 16).min(most)
        };
        let more = |len: usize, most: usize| all(len, most).saturating_sub(len);
        match &mut self.values {
            Some(Values::Int64(values)) => values.reserve(more(values.len(), num_bytes)),
            Some(Values::Float(values)) => values.reserve(more(values.len(), num_bytes / 4)),
            Some(Values::Double(values)) => values.reserve(more(values.len(), num_bytes)),
            Some(Values::Bytes(offsets, data)) => {
                offsets.reserve(more(offsets.len(), num_bytes));
                let total = all(data.len(), num_bytes);
                if total > data.capacity()
                    && let Some(mut room) = buffer_pool::take(total)
                {
                    room.extend_from_slice(data);
                    *data = room;
                }
            }
            Some(Values::Borrowed(_)) | None => {}
        }
        for ends in [&mut self.inner, &mut self.outer] {
            ends.reserve(more(ends.len(), num_bytes));
        }
    }

    /// Reserve capacity for this many bytes of strings, if the column has strings, to avoid the copies
    /// of repeated doubling.
    pub fn reserve_bytes(&mut self, num_bytes: usize) {
        if let Some(Values::Bytes(_, data)) = &mut self.values
            && let Some(room) = buffer_pool::take(num_bytes)
        {
            *data = room;
        }
    }

    /// Borrow byte strings from this buffer from now on, instead of copying them. All earlier strings
    /// must have been handed over.
    pub fn borrow_from(&mut self, buffer: &Buffer) {
        match &mut self.values {
            Some(values @ Values::Bytes(..)) => {
                *values = Values::Borrowed(BorrowedStrings::new(buffer))
            }
            Some(Values::Borrowed(strings)) => strings.go_on(buffer),
            _ => {}
        }
    }

    /// The index of a record's first value, counted over all records before it.
    pub fn first_value(&self, record: usize) -> usize {
        let at = |ends: &[i32], place: usize| ends.get(place).map_or(0, |&end| end as usize);
        match self.layout {
            Layout::Scalar => record,
            Layout::Fixed(size) => record.saturating_mul(size),
            Layout::List | Layout::Rows(_) => at(&self.inner, record),
            Layout::FrameRows(_) => at(&self.outer, record),
            Layout::FrameLists => at(&self.inner, at(&self.outer, record)),
        }
    }

    /// Close a record whose values were appended since `before`.
    #[inline(always)]
    pub fn close_record(&mut self, before: usize) -> Result<(), Fault> {
        self.close_record_of(before..self.values.as_ref().map_or(0, Values::len))
    }

    /// Close a record whose values are this range, the last of the column's values.
    #[inline(always)]
    pub fn close_record_of(&mut self, values: Range<usize>) -> Result<(), Fault> {
        let (len, added) = (values.end, values.len());
        match self.layout {
            Layout::Scalar if added != 1 => return Err(wrong_count(1, added)),
            Layout::Fixed(size) if added != size => return Err(wrong_count(size, added)),
            Layout::Rows(size) if !added.is_multiple_of(size.max(1)) => {
                return Err(uneven_rows(size, added));
            }
            Layout::List | Layout::Rows(_) => {
                if len > MAX_OFFSET {
                    return Err(too_large(len));
                }
                self.inner.push(len as i32);
            }
            Layout::FrameRows(_) => {
                if len > MAX_OFFSET {
                    return Err(too_large(len));
                }
                self.outer.push(len as i32);
            }
            Layout::FrameLists => self.outer.push(self.inner.len().wrapping_sub(1) as i32),
            _ => {}
        }
        self.close_valid(true);
        Ok(())
    }

    /// Close one frame of a feature list.
    #[inline]
    pub fn close_frame(&mut self, before: usize) -> Result<(), Fault> {
        let len = self.values.as_ref().map_or(0, Values::len);
        let added = len.wrapping_sub(before);
        if let Layout::FrameRows(size) = self.layout
            && added != size
        {
            return Err(wrong_count(size, added));
        }
        if len > MAX_OFFSET || self.inner.len() > MAX_OFFSET {
            return Err(too_large(len));
        }
        self.inner.push(len as i32);
        Ok(())
    }

    #[inline(always)]
    fn close_valid(&mut self, valid: bool) {
        if let Some(bits) = &mut self.validity {
            bits.append(valid);
        }
        self.records = self.records.wrapping_add(1);
    }

    /// Close a record that has no value.
    pub fn close_null(&mut self) -> Result<(), Fault> {
        if self.validity.is_none() {
            let mut bits = BooleanBufferBuilder::new(self.records.saturating_add(64));
            bits.append_n(self.records, true);
            self.validity = Some(bits);
        }
        match (self.layout, &mut self.values) {
            (Layout::Scalar, Some(values)) => values.push_blanks(1)?,
            (Layout::Fixed(size), Some(values)) => values.push_blanks(size)?,
            (Layout::List | Layout::Rows(_), _) => {
                self.inner.push(self.inner.last().copied().unwrap_or(0))
            }
            (Layout::FrameRows(_) | Layout::FrameLists, _) => {
                self.outer.push(self.outer.last().copied().unwrap_or(0));
            }
            (_, None) => {}
        }
        self.close_valid(false);
        Ok(())
    }

    /// Close a record that has no value by appending a default.
    pub fn close_default(&mut self, default: &Values) -> Result<(), Fault> {
        let before = self.values.as_ref().map_or(0, Values::len);
        if let Some(values) = &mut self.values {
            values.extend(default)?;
        }
        self.close_record(before)
    }

    /// The values, and the ends of their lists: first those of each record, then those of the frames in it.
    /// None if there are no such lists.
    pub fn into_parts(self) -> (Option<Values>, Option<Vec<i32>>, Option<Vec<i32>>) {
        let (lists, frames) = match self.layout {
            Layout::Scalar | Layout::Fixed(_) => (None, None),
            Layout::List | Layout::Rows(_) => (Some(self.inner), None),
            Layout::FrameRows(_) => (Some(self.outer), None),
            Layout::FrameLists => (Some(self.outer), Some(self.inner)),
        };
        (self.values, lists, frames)
    }

    /// The finished array.
    pub fn finish(mut self) -> Result<ArrayRef, Fault> {
        let nulls = self.validity.take().map(|mut bits| NullBuffer::new(bits.finish()));
        let Some(values) = self.values.take() else {
            return match self.layout {
                // No frame has a value, but a record may still have frames or an empty list of
                // frames.
                Layout::FrameLists => {
                    let frames = list(self.inner, Arc::new(NullArray::new(0)), None)?;
                    list(self.outer, frames, nulls)
                }
                _ => Ok(Arc::new(NullArray::new(self.records))),
            };
        };
        let text = self.text;
        if self.layout == Layout::Scalar {
            return match values {
                Values::Int64(v) => Ok(Arc::new(Int64Array::new(v.into(), nulls))),
                Values::Float(v) => Ok(Arc::new(Float32Array::new(v.into(), nulls))),
                Values::Double(v) => Ok(Arc::new(Float64Array::new(v.into(), nulls))),
                Values::Bytes(offsets, data) => bytes_array(offsets, data, nulls, text),
                Values::Borrowed(strings) => Ok(Arc::new(strings.views(nulls)?)),
            };
        }
        let items = values.into_array(text).map_err(|fault| self.in_its_record(fault))?;
        match self.layout {
            Layout::Scalar | Layout::List | Layout::Rows(_) => list(self.inner, items, nulls),
            Layout::Fixed(size) => {
                let size = i32::try_from(size).map_err(|_| too_large(size))?;
                let array = FixedSizeListArray::try_new_with_length(
                    item(items.data_type()),
                    size,
                    items,
                    nulls,
                    self.records,
                );
                Ok(Arc::new(array.map_err(arrow_fault)?))
            }
            Layout::FrameRows(_) => list(self.outer, items, nulls),
            Layout::FrameLists => list(self.outer, list(self.inner, items, None)?, nulls),
        }
    }

    /// Turn the fault of a value into a fault of its record.
    #[cold]
    fn in_its_record(&self, mut fault: Fault) -> Fault {
        if let Some(value) = fault.record {
            let end = |record: usize| self.first_value(record.saturating_add(1));
            fault.record = (0..self.records).find(|&record| end(record) > value);
        }
        fault
    }
}

fn arrow_fault(error: arrow_schema::ArrowError) -> Fault {
    Fault::new(FaultKind::Schema, 0, error.to_string())
}

fn item(data_type: &DataType) -> FieldRef {
    Arc::new(Field::new("item", data_type.clone(), true))
}

fn list(offsets: Vec<i32>, items: ArrayRef, nulls: Option<NullBuffer>) -> Result<ArrayRef, Fault> {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let array = ListArray::try_new(item(items.data_type()), offsets, items, nulls);
    Ok(Arc::new(array.map_err(arrow_fault)?))
}

#[cold]
fn wrong_count(wanted: usize, found: usize) -> Fault {
    let message = format!("{found} values where the schema wants {wanted}");
    Fault::new(FaultKind::Schema, 0, message).values(wanted as u64, found as u64)
}

#[cold]
fn uneven_rows(size: usize, found: usize) -> Fault {
    let message = format!("{found} values where the schema wants rows of {size}");
    Fault::new(FaultKind::Schema, 0, message).values(size as u64, found as u64)
}
