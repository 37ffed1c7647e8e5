//! Byte strings in two parts: a body borrowed from the buffer that was read, and a head made for
//! it. They are images from containers that store pixels without the head of an image file.

use arrow_array::{Array, BinaryArray, BinaryViewArray, StructArray, cast::AsArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};

use super::buffer_pool;
use crate::wire::{Fault, FaultKind};

/// The heads and the bodies of a struct array.
pub fn parts(array: &StructArray) -> Result<(&BinaryArray, &BinaryViewArray), Fault> {
    let [heads, bodies] = array.columns() else { return Err(no_parts()) };
    let heads = heads.as_binary_opt::<i32>().ok_or_else(no_parts)?;
    let bodies = bodies.as_binary_view_opt().ok_or_else(no_parts)?;
    match array.null_count() + heads.null_count() + bodies.null_count() {
        0 => Ok((heads, bodies)),
        _ => Err(no_parts()),
    }
}

#[cold]
fn no_parts() -> Fault {
    Fault::new(
        FaultKind::Schema,
        0,
        "expected heads (binary) and bodies (binary_view), none missing",
    )
}

/// Concatenate each head and its body.
pub fn glue(array: &StructArray) -> Result<BinaryArray, Fault> {
    let (heads, bodies) = parts(array)?;
    let pairs = || heads.iter().flatten().zip(bodies.iter().flatten());
    let mut offsets = Vec::with_capacity(array.len().saturating_add(1));
    let mut total = 0usize;
    offsets.push(0);
    for (head, body) in pairs() {
        total = total.saturating_add(head.len()).saturating_add(body.len());
        offsets.push(i32::try_from(total).map_err(|_| {
            let message = "the images of one batch have 2 GiB or more; take fewer at once";
            Fault::new(FaultKind::Limit, 0, message)
        })?);
    }
    let mut bytes = buffer_pool::take(total)
        .ok_or_else(|| Fault::new(FaultKind::Limit, 0, format!("no memory for {total} bytes")))?;
    for (head, body) in pairs() {
        bytes.extend_from_slice(head);
        bytes.extend_from_slice(body);
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(BinaryArray::new(offsets, buffer_pool::pooled(bytes), None::<NullBuffer>))
}
