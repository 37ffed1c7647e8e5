//! Columns being filled from MessagePack values, and the Arrow arrays they become.

use std::sync::Arc;

use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int64Type, TimestampNanosecondType, UInt64Type,
};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, ListArray, NullArray, PrimitiveArray, StringArray,
};
use arrow_buffer::{BooleanBufferBuilder, MutableBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, FieldRef, Fields};

use super::arrays::{arrow_fault, numbers, offsets, primitive, ragged, structs, tensors};
use super::faults::{blanks, no_text, no_time, other_array, too_large};
use super::form::Form;
use super::{Costs, Map, unfit};
use crate::kernels::buffer_pool;
use crate::wire::Fault;
use crate::wire::cursor::Cursor;
use crate::wire::msgpack::{TIMESTAMP, Token, nanoseconds, skip, token};
use crate::wire::numpy_map::{Dtype, Found, NumpyArray, numpy_map};

/// Byte strings, one after another.
#[derive(Debug)]
pub struct Strings {
    ends: Vec<i32>,
    data: Vec<u8>,
}

impl Strings {
    fn new(rows: usize) -> Self {
        let mut ends = Vec::with_capacity(rows.saturating_add(1));
        ends.push(0);
        Self { ends, data: Vec::new() }
    }

    /// Reserve all memory in one step: otherwise large values are copied each time the memory doubles.
    pub(super) fn reserve(&mut self, num_bytes: usize) {
        if let Some(room) = buffer_pool::take(num_bytes) {
            self.data = room;
        }
    }

    #[inline(always)]
    fn push(&mut self, value: &[u8]) -> Result<(), Fault> {
        self.data.extend_from_slice(value);
        self.ends.push(offset(self.data.len())?);
        Ok(())
    }

    fn push_blank(&mut self) {
        self.ends.push(self.data.len() as i32);
    }

    fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows.saturating_add(1));
        self.data.truncate(self.ends.last().map_or(0, |&end| end as usize));
    }

    fn finish(self, nulls: Option<NullBuffer>) -> Result<BinaryArray, Fault> {
        BinaryArray::try_new(offsets(self.ends), buffer_pool::pooled(self.data), nulls)
            .map_err(arrow_fault)
    }
}

/// The values of a column.
#[derive(Debug)]
pub enum Values {
    Null,
    Bool(BooleanBufferBuilder),
    Int(Vec<i64>),
    UInt(Vec<u64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Text(Strings),
    Binary(Strings),
    Raw(Strings),
    Time(Vec<i64>),
    Ext(Fields, Vec<i8>, Strings),
    List(FieldRef, Vec<i32>, Box<Column>),
    Struct(Fields, Map),
    Tensor {
        kind: DataType,
        dtype: Dtype,
        shape: Vec<u32>,
        size: usize,
        data: MutableBuffer,
    },
    Ragged {
        fields: Fields,
        dtype: Dtype,
        axes: usize,
        shapes: Vec<i32>,
        ends: Vec<i32>,
        data: MutableBuffer,
    },
}

/// One column being filled.
#[derive(Debug)]
pub struct Column {
    values: Values,
    validity: Option<BooleanBufferBuilder>,
    rows: usize,
}

/// Arrow's 32-bit offsets end here.
pub(super) const MAX_OFFSET: usize = i32::MAX as usize;

impl Column {
    /// An empty column, with capacity for `rows`.
    pub(super) fn new(form: &Form, rows: usize) -> Self {
        let room = rows.min(1 << 20);
        let values = match form {
            Form::Null => Values::Null,
            Form::Bool => Values::Bool(BooleanBufferBuilder::new(room)),
            Form::Int => Values::Int(Vec::with_capacity(room)),
            Form::UInt => Values::UInt(Vec::with_capacity(room)),
            Form::Float => Values::Float(Vec::with_capacity(room)),
            Form::Double => Values::Double(Vec::with_capacity(room)),
            Form::Text => Values::Text(Strings::new(room)),
            Form::Binary => Values::Binary(Strings::new(room)),
            Form::Raw => Values::Raw(Strings::new(room)),
            Form::Time => Values::Time(Vec::with_capacity(room)),
            Form::Ext(fields) => Values::Ext(fields.clone(), Vec::new(), Strings::new(room)),
            Form::List(item, form) => {
                Values::List(item.clone(), vec![0], Box::new(Self::new(form, 0)))
            }
            Form::Struct(fields, inner) => Values::Struct(fields.clone(), Map::new(inner, room)),
            Form::Tensor(kind, dtype, shape) => {
                let size =
                    shape.iter().fold(dtype.size, |n, &axis| n.saturating_mul(axis as usize));
                let data = MutableBuffer::new(0);
                Values::Tensor {
                    kind: kind.clone(),
                    dtype: *dtype,
                    shape: shape.clone(),
                    size,
                    data,
                }
            }
            Form::Ragged(fields, dtype, axes) => Values::Ragged {
                fields: fields.clone(),
                dtype: *dtype,
                axes: *axes,
                shapes: Vec::new(),
                ends: vec![0],
                data: MutableBuffer::new(0),
            },
        };
        Self { values, validity: None, rows: 0 }
    }

    /// The byte strings of the column, if its values are byte strings.
    pub(super) fn strings(&mut self) -> Option<&mut Strings> {
        match &mut self.values {
            Values::Text(strings) | Values::Binary(strings) | Values::Raw(strings) => Some(strings),
            _ => None,
        }
    }

    /// The number of rows.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// Append the next value.
    #[inline(always)]
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>, costs: &mut Costs) -> Result<(), Fault> {
        let start = cursor.offset();
        match (&mut self.values, token(cursor)?) {
            (_, Token::Nil) => return self.push_null(costs),
            (Values::Int(out), Token::Int(value)) => out.push(value),
            (Values::Double(out), Token::Double(value)) => out.push(value),
            (Values::Float(out), Token::Float(value)) => out.push(value),
            (Values::Text(out), Token::Str(value)) => {
                if std::str::from_utf8(value).is_err() {
                    return Err(no_text());
                }
                out.push(value)?;
            }
            (Values::Binary(out), Token::Bin(value) | Token::Str(value)) => out.push(value)?,
            (Values::Bool(out), Token::Bool(value)) => out.append(value),
            (Values::List(_, ends, items), Token::Array(count)) => {
                *costs = deeper(*costs, cursor)?;
                for _ in 0..count {
                    items.read(cursor, costs)?;
                }
                costs.nesting = costs.nesting.wrapping_add(1);
                ends.push(offset(items.len())?);
            }
            (Values::Struct(_, map), Token::Map(count)) => {
                *costs = deeper(*costs, cursor)?;
                map.read(cursor, count, costs, false)?;
                costs.nesting = costs.nesting.wrapping_add(1);
            }
            (_, found) => self.read_odd(cursor, start, found, costs)?,
        }
        if let Some(bits) = &mut self.validity {
            bits.append(true);
        }
        self.rows = self.rows.wrapping_add(1);
        Ok(())
    }

    /// The same for rare values, and for values of a different type from the column's.
    fn read_odd(
        &mut self,
        cursor: &mut Cursor<'_>,
        start: usize,
        found: Token<'_>,
        costs: &mut Costs,
    ) -> Result<(), Fault> {
        match (&mut self.values, found) {
            (Values::UInt(out), Token::Large(value)) => out.push(value),
            (Values::UInt(out), Token::Int(value @ 0..)) => out.push(value as u64),
            (Values::Double(out), Token::Float(value)) => out.push(f64::from(value)),
            (Values::Double(out), Token::Int(value)) if value.unsigned_abs() <= 1 << 53 => {
                out.push(value as f64);
            }
            (Values::Float(out), Token::Double(value)) if same(value) => out.push(value as f32),
            (Values::Float(out), Token::Int(value)) if value.unsigned_abs() <= 1 << 24 => {
                out.push(value as f32);
            }
            (Values::Time(out), Token::Ext(TIMESTAMP, data)) => match nanoseconds(data) {
                Some(value) => out.push(value),
                None => return Err(no_time()),
            },
            (Values::Ext(_, types, datas), Token::Ext(kind, data)) => {
                types.push(kind);
                datas.push(data)?;
            }
            (Values::Raw(out), _) => {
                *cursor = cursor.at(start);
                out.push(skip(cursor, costs.nesting)?)?;
            }
            (Values::Tensor { .. } | Values::Ragged { .. }, Token::Map(_)) => {
                *cursor = cursor.at(start);
                let value = skip(cursor, costs.nesting)?;
                return self.read_array(value);
            }
            (values, found) => return Err(unfit("a value", &found, values.name())),
        }
        Ok(())
    }

    fn read_array(&mut self, value: &[u8]) -> Result<(), Fault> {
        let Found::Array(array) = numpy_map(value) else {
            return Err(unfit("a value", &Token::Map(0), "a NumPy array of plain numbers"));
        };
        match &mut self.values {
            Values::Tensor { dtype, shape, data, .. } => {
                if *dtype != array.dtype || *shape != array.shape {
                    return Err(other_array(&array, *dtype, &format!("the shape {shape:?}")));
                }
                push_numbers(data, &array);
            }
            Values::Ragged { dtype, axes, shapes, ends, data, .. } => {
                if *dtype != array.dtype || *axes != array.shape.len() {
                    return Err(other_array(&array, *dtype, &format!("{axes} axes")));
                }
                push_numbers(data, &array);
                shapes.extend(array.shape.iter().map(|&axis| axis as i32));
                ends.push(offset(data.len() / dtype.size.max(1))?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Append a row without a value.
    pub(super) fn push_null(&mut self, costs: &mut Costs) -> Result<(), Fault> {
        costs.blanks = costs.blanks.checked_sub(self.values.blank_bytes()).ok_or_else(blanks)?;
        match &mut self.values {
            Values::Null => {}
            Values::Bool(out) => out.append(false),
            Values::Int(out) | Values::Time(out) => out.push(0),
            Values::UInt(out) => out.push(0),
            Values::Float(out) => out.push(0.0),
            Values::Double(out) => out.push(0.0),
            Values::Text(out) | Values::Binary(out) | Values::Raw(out) => out.push_blank(),
            Values::Ext(_, types, datas) => {
                types.push(0);
                datas.push_blank();
            }
            Values::List(_, ends, items) => ends.push(offset(items.len())?),
            Values::Struct(_, map) => map.push_nulls(costs)?,
            Values::Tensor { size, data, .. } => data.extend_zeros(*size),
            Values::Ragged { axes, shapes, ends, .. } => {
                shapes.resize(shapes.len().saturating_add(*axes), 0);
                ends.push(ends.last().copied().unwrap_or_default());
            }
        }
        let rows = self.rows;
        let bits = self.validity.get_or_insert_with(|| {
            let mut bits = BooleanBufferBuilder::new(rows.saturating_add(64));
            bits.append_n(rows, true);
            bits
        });
        bits.append(false);
        self.rows = rows.wrapping_add(1);
        Ok(())
    }

    /// Drop the rows from this one on.
    pub(super) fn truncate(&mut self, rows: usize) {
        match &mut self.values {
            Values::Null => {}
            Values::Bool(out) => out.truncate(rows),
            Values::Int(out) | Values::Time(out) => out.truncate(rows),
            Values::UInt(out) => out.truncate(rows),
            Values::Float(out) => out.truncate(rows),
            Values::Double(out) => out.truncate(rows),
            Values::Text(out) | Values::Binary(out) | Values::Raw(out) => out.truncate(rows),
            Values::Ext(_, types, datas) => {
                types.truncate(rows);
                datas.truncate(rows);
            }
            Values::List(_, ends, items) => {
                ends.truncate(rows.saturating_add(1));
                items.truncate(ends.last().map_or(0, |&end| end as usize));
            }
            Values::Struct(_, map) => map.truncate(rows),
            Values::Tensor { size, data, .. } => data.truncate(rows.saturating_mul(*size)),
            Values::Ragged { dtype, axes, shapes, ends, data, .. } => {
                ends.truncate(rows.saturating_add(1));
                shapes.truncate(rows.saturating_mul(*axes));
                let end = ends.last().map_or(0, |&end| end as usize);
                data.truncate(end.saturating_mul(dtype.size));
            }
        }
        if let Some(bits) = &mut self.validity {
            bits.truncate(rows);
        }
        self.rows = rows;
    }

    /// The finished array.
    pub(super) fn finish(mut self) -> Result<ArrayRef, Fault> {
        let nulls = self.validity.take().map(|mut bits| NullBuffer::new(bits.finish()));
        Ok(match self.values {
            Values::Null => Arc::new(NullArray::new(self.rows)),
            Values::Bool(mut bits) => Arc::new(BooleanArray::new(bits.finish(), nulls)),
            Values::Int(values) => primitive::<Int64Type>(values, nulls),
            Values::UInt(values) => primitive::<UInt64Type>(values, nulls),
            Values::Float(values) => primitive::<Float32Type>(values, nulls),
            Values::Double(values) => primitive::<Float64Type>(values, nulls),
            Values::Time(values) => {
                let values: ScalarBuffer<i64> = values.into();
                let array = PrimitiveArray::<TimestampNanosecondType>::new(values, nulls);
                Arc::new(array.with_timezone("UTC"))
            }
            Values::Binary(values) | Values::Raw(values) => Arc::new(values.finish(nulls)?),
            Values::Text(values) => {
                let (ends, data) = (offsets(values.ends), buffer_pool::pooled(values.data));
                // SAFETY: every value was verified to be UTF-8 when it was appended, and the offsets are
                // the ends of the values, in order.
                Arc::new(unsafe { StringArray::new_unchecked(ends, data, nulls) })
            }
            Values::Ext(fields, types, datas) => {
                let arrays =
                    vec![primitive::<Int8Type>(types, None), Arc::new(datas.finish(None)?)];
                structs(fields, arrays, nulls, self.rows)?
            }
            Values::List(item, ends, items) => {
                let array = ListArray::try_new(item, offsets(ends), items.finish()?, nulls);
                Arc::new(array.map_err(arrow_fault)?)
            }
            Values::Struct(fields, map) => {
                let arrays = map.columns.into_iter().map(Self::finish).collect::<Result<_, _>>()?;
                structs(fields, arrays, nulls, self.rows)?
            }
            Values::Tensor { kind, dtype, shape, data, .. } => {
                let count = data.len() / dtype.size.max(1);
                tensors(kind, &shape, numbers(data, dtype), count, nulls, self.rows)?
            }
            Values::Ragged { fields, dtype, axes, shapes, ends, data } => {
                let count = data.len() / dtype.size.max(1);
                ragged(fields, axes, shapes, ends, (numbers(data, dtype), count), nulls)?
            }
        })
    }
}

impl Values {
    fn name(&self) -> &'static str {
        match self {
            Self::Null => "nil",
            Self::Bool(_) => "a bool",
            Self::Int(_) => "an integer of int64",
            Self::UInt(_) => "an integer of uint64",
            Self::Float(_) => "a float32, or a number that is one",
            Self::Double(_) => "a number that float64 holds",
            Self::Text(_) => "a string",
            Self::Binary(_) => "binary",
            Self::Raw(_) => "any value",
            Self::Time(_) => "a timestamp",
            Self::Ext(..) => "an extension",
            Self::List(..) => "an array",
            Self::Struct(..) => "a map",
            Self::Tensor { .. } | Self::Ragged { .. } => "a NumPy array",
        }
    }

    /// The bytes that a null takes in this column. In the file, a null takes one byte or none.
    #[inline(always)]
    fn blank_bytes(&self) -> u64 {
        match self {
            Self::Null | Self::Bool(_) => 1,
            Self::Tensor { size, .. } => (*size as u64).saturating_add(1),
            Self::Ragged { axes, .. } => (*axes as u64).saturating_mul(4).saturating_add(5),
            _ => 9,
        }
    }
}

fn deeper(costs: Costs, cursor: &Cursor<'_>) -> Result<Costs, Fault> {
    match costs.nesting.checked_sub(1) {
        Some(nesting) => Ok(Costs { nesting, ..costs }),
        None => Err(crate::wire::msgpack::too_deep(cursor.offset())),
    }
}

/// Whether a number equals a float32.
fn same(value: f64) -> bool {
    f64::from(value as f32) == value || value.is_nan()
}

/// Append an array's values, little endian.
fn push_numbers(out: &mut MutableBuffer, array: &NumpyArray<'_>) {
    let start = out.len();
    out.extend_from_slice(array.data);
    if array.swapped && array.dtype.size > 1 {
        let added = out.as_slice_mut().get_mut(start..).unwrap_or_default();
        added.chunks_exact_mut(array.dtype.size).for_each(<[u8]>::reverse);
    }
}

#[inline(always)]
fn offset(length: usize) -> Result<i32, Fault> {
    if length > MAX_OFFSET { Err(too_large(length)) } else { Ok(length as i32) }
}
