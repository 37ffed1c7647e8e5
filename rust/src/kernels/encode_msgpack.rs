//! Encodes Arrow batches as MessagePack maps: one per record, whose keys are the columns in their order.
//!
//! Each value is as small as MessagePack can make it, as common writers do. A null is nil. The
//! metadata of a field states facts that its type does not express, as for `decode_msgpack`.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use arrow_array::{Array, BooleanArray, StructArray};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::{DataType, Field, TimeUnit};

use super::decode_msgpack::{MARK, TYPE_LEVELS, dtype_of};
use super::encode_examples::Framed;
use super::example_columns::{Bytes, Rows};
use super::parts::Pieces;
use crate::wire::msgpack::{
    Extent, extent, put_array, put_bin_head, put_ext, put_int, put_map, put_str, put_timestamp,
    put_uint,
};
use crate::wire::numpy_map::{Dtype, put_numpy_head};
use crate::wire::{Fault, FaultKind};
use penstock_codecs::crc32c::crc32c;

/// The values of a column.
enum Values<'a> {
    Null,
    Bool(&'a BooleanArray),
    Int(&'a [i64]),
    UInt(&'a [u64]),
    Float(&'a [f32]),
    Double(&'a [f64]),
    Text(Bytes<'a>),
    Binary(Bytes<'a>),
    /// Whole values, unchanged.
    Raw(Bytes<'a>),
    /// Counts of a unit of time, with the number of units per second.
    Time(&'a [i64], i64),
    Ext(&'a [i8], Bytes<'a>),
    List(Rows<'a>, Box<Column<'a>>),
    Struct(Vec<(Vec<u8>, Column<'a>)>),
    /// NumPy arrays: the rows of their numbers, their shapes, and the numbers.
    Array(Rows<'a>, Shapes<'a>, Numbers),
}

enum Shapes<'a> {
    Fixed(Vec<u32>),
    /// This many axes per row.
    Ragged(&'a [i32], usize),
}

/// Numbers as bytes.
struct Numbers {
    dtype: Dtype,
    data: Buffer,
    nulls: Option<NullBuffer>,
}

struct Column<'a> {
    values: Values<'a>,
    nulls: Option<NullBuffer>,
}

/// Encode a batch, whose columns are the fields of maps.
pub fn encode_msgpack(batch: &StructArray) -> Result<Framed, Fault> {
    let fields = map_of(batch, 0)?;
    let count = fields.len() as u32;
    let mut out = Vec::with_capacity(batch.get_buffer_memory_size().min(1 << 26));
    let mut framed = Ends::new(batch.len());
    for record in 0..batch.len() {
        let start = out.len();
        put_map(&mut out, count);
        for (number, (key, column)) in fields.iter().enumerate() {
            out.extend_from_slice(key);
            if let Err(fault) = column.put(&mut out, record) {
                let name = batch.fields().get(number).map_or("", |field| field.name());
                return Err(fault.in_field(name).in_record(record));
            }
        }
        framed.close(&out, start);
    }
    Ok(framed.finish(out))
}

/// Byte strings, each one MessagePack value.
pub fn frame_values(records: &dyn Array) -> Result<Framed, Fault> {
    let message = || format!("records cannot be of type {}", records.data_type());
    let values = Bytes::of(records).ok_or_else(|| Fault::new(FaultKind::Schema, 0, message()))?;
    let mut out = Vec::new();
    let mut framed = Ends::new(records.len());
    for record in 0..records.len() {
        let start = out.len();
        if records.is_null(record) {
            let fault = Fault::new(FaultKind::Schema, 0, "a record cannot be null");
            return Err(fault.in_record(record));
        }
        put_raw(&mut out, values.get(record)).map_err(|fault| fault.in_record(record))?;
        framed.close(&out, start);
    }
    Ok(framed.finish(out))
}

/// The facts about the records that an index keeps.
struct Ends {
    lengths: Vec<u64>,
    checksums: Vec<u32>,
}

impl Ends {
    fn new(records: usize) -> Self {
        Self { lengths: Vec::with_capacity(records), checksums: Vec::with_capacity(records) }
    }

    #[inline(always)]
    fn close(&mut self, out: &[u8], start: usize) {
        let record = out.get(start..).unwrap_or_default();
        self.lengths.push(record.len() as u64);
        self.checksums.push(crc32c(record));
    }

    fn finish(self, out: Vec<u8>) -> Framed {
        Framed { bytes: Pieces::whole(out), lengths: self.lengths, checksums: self.checksums }
    }
}

/// The fields of a map, each with the bytes of its key.
fn map_of(array: &StructArray, level: usize) -> Result<Vec<(Vec<u8>, Column<'_>)>, Fault> {
    let mut fields = Vec::with_capacity(array.num_columns());
    for (field, column) in array.fields().iter().zip(array.columns()) {
        let column = Column::of(field, column.as_ref(), level);
        let mut key = Vec::new();
        put_str(&mut key, field.name().as_bytes());
        fields.push((key, column.map_err(|fault| fault.in_field(field.name()))?));
    }
    Ok(fields)
}

impl<'a> Column<'a> {
    fn of(field: &Field, array: &'a dyn Array, level: usize) -> Result<Self, Fault> {
        let values =
            Values::of(field, array, level).unwrap_or_else(|| Err(unheld(array.data_type())))?;
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        Ok(Self { values, nulls })
    }

    /// Append the value of a row.
    #[inline(always)]
    fn put(&self, out: &mut Vec<u8>, row: usize) -> Result<(), Fault> {
        if self.nulls.as_ref().is_some_and(|nulls| row < nulls.len() && nulls.is_null(row)) {
            out.push(0xc0);
            return Ok(());
        }
        self.values.put(out, row).unwrap_or_else(|| Err(disagree()))
    }
}

impl<'a> Values<'a> {
    /// The values of an array; None if its type is not supported.
    fn of(field: &Field, array: &'a dyn Array, level: usize) -> Option<Result<Self, Fault>> {
        let mark = field.metadata().get(MARK).map_or("", String::as_str);
        let (mark, numbers) = mark.split_once(' ').unwrap_or((mark, ""));
        if level > TYPE_LEVELS {
            return None;
        }
        Some(Ok(match (array.data_type(), mark) {
            (_, "tensor") => Self::tensor(array, numbers)?,
            (DataType::Struct(_), "ragged") => Self::ragged(array.as_struct_opt()?)?,
            (DataType::Struct(_), "ext") => {
                let [types, datas] = array.as_struct_opt()?.columns() else { return None };
                let types = types.as_primitive_opt::<Int8Type>()?.values();
                Self::Ext(types, Bytes::of(datas.as_ref())?)
            }
            (_, "raw") => Self::Raw(Bytes::of(array)?),
            (DataType::Null, _) => Self::Null,
            (DataType::Boolean, _) => Self::Bool(array.as_boolean_opt()?),
            (DataType::Int64, _) => Self::Int(array.as_primitive_opt::<Int64Type>()?.values()),
            (DataType::UInt64, _) => Self::UInt(array.as_primitive_opt::<UInt64Type>()?.values()),
            (DataType::Float32, _) => {
                Self::Float(array.as_primitive_opt::<Float32Type>()?.values())
            }
            (DataType::Float64, _) => {
                Self::Double(array.as_primitive_opt::<Float64Type>()?.values())
            }
            (DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View, _) => {
                Self::Text(Bytes::of(array)?)
            }
            (DataType::Timestamp(unit, _), _) => Self::time(array, *unit)?,
            (DataType::Struct(_), _) => {
                match map_of(array.as_struct_opt()?, level.wrapping_add(1)) {
                    Ok(fields) => Self::Struct(fields),
                    Err(fault) => return Some(Err(fault)),
                }
            }
            (DataType::List(item), _) => {
                let list = array.as_list_opt::<i32>()?;
                let rows = Rows::Small(list.value_offsets());
                return Some(Self::list(rows, item, list.values().as_ref(), level));
            }
            (DataType::LargeList(item), _) => {
                let list = array.as_list_opt::<i64>()?;
                let rows = Rows::Large(list.value_offsets());
                return Some(Self::list(rows, item, list.values().as_ref(), level));
            }
            (DataType::FixedSizeList(item, size), _) => {
                let list = array.as_fixed_size_list_opt()?;
                let rows = Rows::Fixed(usize::try_from(*size).ok()?);
                return Some(Self::list(rows, item, list.values().as_ref(), level));
            }
            _ => Self::Binary(Bytes::of(array)?),
        }))
    }

    fn list(
        rows: Rows<'a>,
        item: &Field,
        items: &'a dyn Array,
        level: usize,
    ) -> Result<Self, Fault> {
        Ok(Self::List(rows, Box::new(Column::of(item, items, level.wrapping_add(1))?)))
    }

    fn time(array: &'a dyn Array, unit: TimeUnit) -> Option<Self> {
        Some(match unit {
            TimeUnit::Second => {
                Self::Time(array.as_primitive_opt::<TimestampSecondType>()?.values(), 1)
            }
            TimeUnit::Millisecond => {
                Self::Time(array.as_primitive_opt::<TimestampMillisecondType>()?.values(), 1000)
            }
            TimeUnit::Microsecond => {
                let array = array.as_primitive_opt::<TimestampMicrosecondType>()?;
                Self::Time(array.values(), 1_000_000)
            }
            TimeUnit::Nanosecond => {
                let array = array.as_primitive_opt::<TimestampNanosecondType>()?;
                Self::Time(array.values(), 1_000_000_000)
            }
        })
    }

    fn tensor(array: &'a dyn Array, numbers: &str) -> Option<Self> {
        let axis = |axis: &str| axis.parse::<u32>().ok();
        if numbers.is_empty() {
            return Some(Self::Array(Rows::One, Shapes::Fixed(Vec::new()), Numbers::of(array)?));
        }
        let shape = numbers.split(',').map(axis).collect::<Option<Vec<u32>>>()?;
        let list = array.as_fixed_size_list_opt()?;
        let rows = Rows::Fixed(usize::try_from(list.value_length()).ok()?);
        Some(Self::Array(rows, Shapes::Fixed(shape), Numbers::of(list.values().as_ref())?))
    }

    fn ragged(array: &'a StructArray) -> Option<Self> {
        let [data, shapes] = array.columns() else { return None };
        let lists = data.as_list_opt::<i32>()?;
        let shapes = shapes.as_fixed_size_list_opt()?;
        let axes = usize::try_from(shapes.value_length()).ok()?;
        let numbers = shapes.values().as_primitive_opt::<Int32Type>()?.values();
        let rows = Rows::Small(lists.value_offsets());
        let data = Numbers::of(lists.values().as_ref())?;
        Some(Self::Array(rows, Shapes::Ragged(numbers, axes), data))
    }

    /// Append the value of a row. None if an array contradicts itself.
    #[inline(always)]
    fn put(&self, out: &mut Vec<u8>, row: usize) -> Option<Result<(), Fault>> {
        match self {
            Self::Null => out.push(0xc0),
            Self::Bool(values) => {
                let value = row < values.len() && values.value(row);
                out.push(if value { 0xc3 } else { 0xc2 });
            }
            Self::Int(values) => put_int(out, *values.get(row)?),
            Self::UInt(values) => put_uint(out, *values.get(row)?),
            Self::Float(values) => {
                out.push(0xca);
                out.extend_from_slice(&values.get(row)?.to_be_bytes());
            }
            Self::Double(values) => {
                out.push(0xcb);
                out.extend_from_slice(&values.get(row)?.to_be_bytes());
            }
            Self::Text(values) => match values.get(row)? {
                text if text.len() as u64 > MOST_BYTES => return Some(Err(too_long(text.len()))),
                text => put_str(out, text),
            },
            Self::Binary(values) => match values.get(row)? {
                bytes if bytes.len() as u64 > MOST_BYTES => {
                    return Some(Err(too_long(bytes.len())));
                }
                bytes => {
                    put_bin_head(out, bytes.len() as u32);
                    out.extend_from_slice(bytes);
                }
            },
            Self::Time(values, unit) => {
                let value = *values.get(row)?;
                let nanos = value.rem_euclid(*unit).checked_mul(1_000_000_000 / unit)?;
                put_timestamp(out, value.div_euclid(*unit), u32::try_from(nanos).ok()?);
            }
            Self::List(rows, items) => {
                let (start, count) = rows.span(row)?;
                put_array(out, u32::try_from(count).ok()?);
                for at in start..start.checked_add(count)? {
                    if let Err(fault) = items.put(out, at) {
                        return Some(Err(fault));
                    }
                }
            }
            Self::Struct(fields) => {
                put_map(out, u32::try_from(fields.len()).ok()?);
                for (key, column) in fields {
                    out.extend_from_slice(key);
                    if let Err(fault) = column.put(out, row) {
                        return Some(Err(fault));
                    }
                }
            }
            Self::Raw(values) => return Some(put_raw(out, values.get(row))),
            Self::Ext(types, datas) => {
                let data = datas.get(row)?;
                if data.len() as u64 > MOST_BYTES {
                    return Some(Err(too_long(data.len())));
                }
                put_ext(out, *types.get(row)?, data);
            }
            Self::Array(rows, shapes, numbers) => {
                return put_numbers(out, rows.span(row)?, shapes, numbers, row);
            }
        }
        Some(Ok(()))
    }
}

fn put_numbers(
    out: &mut Vec<u8>,
    (start, count): (usize, usize),
    shapes: &Shapes<'_>,
    numbers: &Numbers,
    row: usize,
) -> Option<Result<(), Fault>> {
    let Numbers { dtype, data, nulls } = numbers;
    let end = start.checked_add(count)?;
    if let Some(nulls) = nulls
        && (start..end).any(|at| at < nulls.len() && nulls.is_null(at))
    {
        let message = "a tensor holds a null, which a NumPy array cannot hold";
        return Some(Err(Fault::new(FaultKind::Schema, 0, message)));
    }
    let bytes = data.get(start.checked_mul(dtype.size)?..end.checked_mul(dtype.size)?)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Some(Err(too_long(bytes.len())));
    }
    let length = bytes.len() as u32;
    match shapes {
        Shapes::Fixed(shape) => put_numpy_head(out, *dtype, shape.iter().copied(), length),
        Shapes::Ragged(all, axes) => {
            let first = row.checked_mul(*axes)?;
            let shape = all.get(first..first.checked_add(*axes)?)?;
            let product = shape
                .iter()
                .try_fold(1usize, |n, &axis| n.checked_mul(usize::try_from(axis).ok()?));
            if product != Some(count) {
                let message = format!("a tensor of shape {shape:?} has {count} values");
                return Some(Err(Fault::new(FaultKind::Schema, 0, message)));
            }
            put_numpy_head(out, *dtype, shape.iter().map(|&axis| axis as u32), length);
        }
    }
    out.extend_from_slice(bytes);
    Some(Ok(()))
}

impl Numbers {
    /// The numbers of an array, if its memory layout is NumPy's.
    fn of(array: &dyn Array) -> Option<Self> {
        let dtype = dtype_of(array.data_type())?;
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        if let Some(bits) = array.as_boolean_opt() {
            let bytes: Vec<u8> = bits.values().iter().map(u8::from).collect();
            return Some(Self { dtype, data: Buffer::from_vec(bytes), nulls });
        }
        let data = array.to_data();
        let values = data.buffers().first()?;
        let start = data.offset().checked_mul(dtype.size)?;
        let length = data.len().checked_mul(dtype.size)?;
        let within = values.len() >= start.checked_add(length)?;
        within.then(|| Self { dtype, data: values.slice_with_length(start, length), nulls })
    }
}

/// MessagePack stores the size of a value in 32 bits.
const MOST_BYTES: u64 = u32::MAX as u64;

fn put_raw(out: &mut Vec<u8>, value: Option<&[u8]>) -> Result<(), Fault> {
    let value = value.ok_or_else(disagree)?;
    if extent(value) != Extent::Whole(value.len()) {
        let message = "the bytes are not one whole MessagePack value";
        return Err(Fault::new(FaultKind::Message, 0, message));
    }
    out.extend_from_slice(value);
    Ok(())
}

#[cold]
fn too_long(bytes: usize) -> Fault {
    let message = format!("a value has {bytes} bytes, and MessagePack holds at most {MOST_BYTES}");
    Fault::new(FaultKind::Schema, 0, message)
}

#[cold]
fn unheld(kind: &DataType) -> Fault {
    let message = format!("MessagePack cannot hold a column of type {kind}");
    Fault::new(FaultKind::Schema, 0, message)
}

#[cold]
fn disagree() -> Fault {
    Fault::new(FaultKind::Schema, 0, "the column's offsets and values contradict each other")
}
