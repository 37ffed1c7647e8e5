//! Parses bytes to messages by protobuf's rules: fields merge, the last field of a oneof and the last entry
//! of a key count, and unknown fields are kept. A map entry with an unknown field counts as unknown, as in
//! protobuf.

use std::str;
use std::sync::Arc;

use super::{Blob, Body, Kind, Node, State, serialize};
use crate::wire::cursor::Cursor;
use crate::wire::example::{WireField, WireValue, next_field, packed_floats, packed_int64s};
use crate::wire::{Fault, FaultKind, varint};

/// Merge the fields in `bytes` into a message. If there is a fault, the fields before it have been merged.
///
/// The messages have a fixed depth, and anything that a sender could nest more deeply is skipped without
/// recursion. Nothing is allocated for a length that exceeds the available bytes.
pub fn parse<B: Blob>(node: &Arc<Node<B>>, bytes: &[u8]) -> Result<(), Fault> {
    let mut cursor = Cursor::new(bytes);
    if matches!(node.kind(), Kind::BytesList | Kind::FloatList | Kind::Int64List) {
        let mut state = node.lock();
        while !cursor.is_empty() {
            let start = cursor.offset();
            let field = next_field(&mut cursor)?;
            if !value(&mut state, field)? {
                state.unknown.extend_from_slice(cursor.since(start));
            }
        }
        return Ok(());
    }
    while !cursor.is_empty() {
        let start = cursor.offset();
        let field = next_field(&mut cursor)?;
        if !message(node, field)? {
            node.lock().unknown.extend_from_slice(cursor.since(start));
        }
    }
    Ok(())
}

/// Read a field of a list of values; false if it is not such a field.
fn value<B: Blob>(state: &mut State<B>, field: WireField<'_>) -> Result<bool, Fault> {
    match (&mut state.body, field.number, field.value) {
        (Body::Bytes(values), 1, WireValue::Bytes(bytes)) => values.push(B::of(bytes)),
        (Body::Floats(values), 1, WireValue::Bytes(packed)) => packed_floats(packed, values)?,
        (Body::Floats(values), 1, WireValue::Fixed32(bits)) => values.push(f32::from_bits(bits)),
        (Body::Ints(values), 1, WireValue::Bytes(packed)) => packed_int64s(packed, values)?,
        (Body::Ints(values), 1, WireValue::Varint(value)) => values.push(value as i64),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Read a field of a message that holds messages; false if it is not such a field.
fn message<B: Blob>(node: &Arc<Node<B>>, field: WireField<'_>) -> Result<bool, Fault> {
    let WireValue::Bytes(bytes) = field.value else { return Ok(false) };
    let index = field.number.wrapping_sub(1);
    if index >= node.kind().fields().len() as u64 {
        return Ok(false);
    }
    let index = index as usize;
    match node.kind() {
        Kind::Features | Kind::FeatureLists => entry(node, bytes)?,
        Kind::FeatureList => {
            let made = Node::new(node.kind().held(index));
            parse(&made, bytes)?;
            if let Body::Many(items) = &mut node.lock().body {
                items.push(made);
            }
        }
        _ => {
            let child = node.child(index);
            node.set(index);
            parse(&child, bytes)?;
        }
    }
    Ok(true)
}

fn entry<B: Blob>(node: &Arc<Node<B>>, bytes: &[u8]) -> Result<(), Fault> {
    let mut cursor = Cursor::new(bytes);
    let mut key = "";
    let value = Node::new(node.kind().held(0));
    let mut has_value = false;
    let mut unknown = Vec::new();
    while !cursor.is_empty() {
        let start = cursor.offset();
        match next_field(&mut cursor)? {
            WireField { number: 1, value: WireValue::Bytes(text) } => {
                key = str::from_utf8(text).map_err(|_| {
                    Fault::new(FaultKind::Message, cursor.offset() as u64, "key is not UTF-8")
                })?;
            }
            WireField { number: 2, value: WireValue::Bytes(message) } => {
                parse(&value, message)?;
                has_value = true;
            }
            _ => unknown.extend_from_slice(cursor.since(start)),
        }
    }
    if unknown.is_empty() {
        node.insert(key, value);
        return Ok(());
    }
    let mut entry = Vec::new();
    if !key.is_empty() {
        write(&mut entry, 0x0a, key.as_bytes());
    }
    if has_value {
        write(&mut entry, 0x12, &serialize(&value, false));
    }
    entry.extend_from_slice(&unknown);
    write(&mut node.lock().unknown, 0x0a, &entry);
    Ok(())
}

fn write(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    varint::write(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
