//! Makes Arrow arrays of collected values.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, ArrowPrimitiveType, ListArray, PrimitiveArray, StructArray, make_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Fields};

use super::unknown;
use crate::wire::numpy_map::{Dtype, Kind};
use crate::wire::{Fault, FaultKind};

/// Values in Arrow's form: a bool is a bit.
pub(super) fn numbers(data: MutableBuffer, dtype: Dtype) -> Buffer {
    match dtype.kind {
        Kind::Bool => {
            let bytes = data.as_slice();
            let bit = |at: usize| bytes.get(at).is_some_and(|&byte| byte != 0);
            BooleanBuffer::collect_bool(bytes.len(), bit).into_inner()
        }
        _ => data.into(),
    }
}

pub(super) fn tensors(
    kind: DataType,
    shape: &[u32],
    data: Buffer,
    count: usize,
    nulls: Option<NullBuffer>,
    rows: usize,
) -> Result<ArrayRef, Fault> {
    let validity = nulls.map(|nulls| nulls.into_inner().into_inner());
    let built = match &kind {
        DataType::FixedSizeList(item, _) if !shape.is_empty() => {
            let values = ArrayData::builder(item.data_type().clone()).len(count).add_buffer(data);
            let values = values.build().map_err(arrow_fault)?;
            ArrayData::builder(kind).len(rows).null_bit_buffer(validity).add_child_data(values)
        }
        _ => ArrayData::builder(kind).len(rows).null_bit_buffer(validity).add_buffer(data),
    };
    Ok(make_array(built.build().map_err(arrow_fault)?))
}

pub(super) fn ragged(
    fields: Fields,
    axes: usize,
    shapes: Vec<i32>,
    ends: Vec<i32>,
    (data, count): (Buffer, usize),
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, Fault> {
    let rows = ends.len().saturating_sub(1);
    let (Some(list), Some(shape)) = (fields.first(), fields.get(1)) else {
        return Err(unknown(&DataType::Null));
    };
    let (DataType::List(item), DataType::FixedSizeList(axis, _)) =
        (list.data_type(), shape.data_type())
    else {
        return Err(unknown(list.data_type()));
    };
    let values = ArrayData::builder(item.data_type().clone()).len(count).add_buffer(data);
    let values = make_array(values.build().map_err(arrow_fault)?);
    let lists = ListArray::try_new(item.clone(), offsets(ends), values, None);
    let axis_values = ArrayData::builder(axis.data_type().clone())
        .len(rows.saturating_mul(axes))
        .add_buffer(Buffer::from_vec(shapes));
    let shapes = ArrayData::builder(shape.data_type().clone())
        .len(rows)
        .add_child_data(axis_values.build().map_err(arrow_fault)?);
    let shapes = make_array(shapes.build().map_err(arrow_fault)?);
    structs(fields, vec![Arc::new(lists.map_err(arrow_fault)?), shapes], nulls, rows)
}

pub(super) fn structs(
    fields: Fields,
    arrays: Vec<ArrayRef>,
    nulls: Option<NullBuffer>,
    rows: usize,
) -> Result<ArrayRef, Fault> {
    let array = StructArray::try_new_with_length(fields, arrays, nulls, rows);
    Ok(Arc::new(array.map_err(arrow_fault)?))
}

pub(super) fn primitive<T: ArrowPrimitiveType>(
    values: Vec<T::Native>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))
}

pub(super) fn offsets(ends: Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ScalarBuffer::from(ends))
}

pub(super) fn arrow_fault(error: arrow_schema::ArrowError) -> Fault {
    Fault::new(FaultKind::Schema, 0, error.to_string())
}
