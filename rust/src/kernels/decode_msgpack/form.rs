//! The types of columns of MessagePack values, derived from the fields of an Arrow schema.

use arrow_schema::{DataType, Field, FieldRef, Fields, TimeUnit};

use super::{TYPE_LEVELS, mark, unknown};
use crate::wire::Fault;
use crate::wire::numpy_map::{Dtype, Kind};

/// The type of a column's values.
#[derive(Clone, Debug)]
pub enum Form {
    /// Only nil.
    Null,
    /// true and false
    Bool,
    /// Integers within int64.
    Int,
    /// Integers within uint64.
    UInt,
    /// Floats of 32 bits.
    Float,
    /// Floats of 64 bits, and integers that float64 can hold exactly.
    Double,
    /// str
    Text,
    /// bin, and the bytes of str
    Binary,
    /// The bytes of whole values.
    Raw,
    /// Timestamps in nanoseconds.
    Time,
    /// Extensions: type and data.
    Ext(Fields),
    /// Arrays.
    List(FieldRef, Box<Form>),
    /// Maps.
    Struct(Fields, Vec<(Vec<u8>, Form)>),
    /// Maps of NumPy arrays of one shape.
    Tensor(DataType, Dtype, Vec<u32>),
    /// Maps of NumPy arrays with this many axes.
    Ragged(Fields, Dtype, usize),
}

impl Form {
    /// The form for a field of the wanted schema.
    pub(super) fn of(field: &Field, level: usize) -> Result<Self, Fault> {
        if level > TYPE_LEVELS {
            return Err(unknown(field.data_type()));
        }
        let (mark, numbers) = mark(field).split_once(' ').unwrap_or((mark(field), ""));
        let kind = field.data_type();
        Ok(match (kind, mark) {
            (_, "tensor") => {
                let axis = |axis: &str| axis.parse::<u32>().ok();
                let shape: Option<Vec<u32>> = match numbers {
                    "" => Some(Vec::new()),
                    numbers => numbers.split(',').map(axis).collect(),
                };
                let of = match kind {
                    DataType::FixedSizeList(item, _) => item.data_type(),
                    other => other,
                };
                let dtype = dtype_of(of).ok_or_else(|| unknown(kind))?;
                Self::Tensor(kind.clone(), dtype, shape.ok_or_else(|| unknown(kind))?)
            }
            (DataType::Struct(fields), "ragged") => {
                let [data, _] = &fields[..] else { return Err(unknown(kind)) };
                let DataType::List(item) = data.data_type() else { return Err(unknown(kind)) };
                let axes = numbers.parse().map_err(|_| unknown(kind))?;
                let dtype = dtype_of(item.data_type()).ok_or_else(|| unknown(kind))?;
                Self::Ragged(fields.clone(), dtype, axes)
            }
            (DataType::Struct(fields), "ext") => Self::Ext(fields.clone()),
            (DataType::Binary, "raw") => Self::Raw,
            (DataType::Null, _) => Self::Null,
            (DataType::Boolean, _) => Self::Bool,
            (DataType::Int64, _) => Self::Int,
            (DataType::UInt64, _) => Self::UInt,
            (DataType::Float32, _) => Self::Float,
            (DataType::Float64, _) => Self::Double,
            (DataType::Utf8, _) => Self::Text,
            (DataType::Binary, _) => Self::Binary,
            (DataType::Timestamp(TimeUnit::Nanosecond, _), _) => Self::Time,
            (DataType::List(item), _) => {
                Self::List(item.clone(), Box::new(Self::of(item, level.wrapping_add(1))?))
            }
            (DataType::Struct(fields), _) => {
                let inner = |field: &FieldRef| {
                    let form = Self::of(field, level.wrapping_add(1))?;
                    Ok((field.name().as_bytes().to_vec(), form))
                };
                Self::Struct(fields.clone(), fields.iter().map(inner).collect::<Result<_, _>>()?)
            }
            _ => return Err(unknown(kind)),
        })
    }
}

/// The NumPy dtype for an Arrow type of numbers.
pub fn dtype_of(kind: &DataType) -> Option<Dtype> {
    let (kind, size) = match kind {
        DataType::Boolean => (Kind::Bool, 1),
        DataType::Int8 => (Kind::Int, 1),
        DataType::Int16 => (Kind::Int, 2),
        DataType::Int32 => (Kind::Int, 4),
        DataType::Int64 => (Kind::Int, 8),
        DataType::UInt8 => (Kind::UInt, 1),
        DataType::UInt16 => (Kind::UInt, 2),
        DataType::UInt32 => (Kind::UInt, 4),
        DataType::UInt64 => (Kind::UInt, 8),
        DataType::Float16 => (Kind::Float, 2),
        DataType::Float32 => (Kind::Float, 4),
        DataType::Float64 => (Kind::Float, 8),
        _ => return None,
    };
    Some(Dtype { kind, size })
}
