//! Serializes messages in two passes: one computes the size of each, and the other writes into memory of
//! that size.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Blob, Body, Node};
use crate::wire::varint;

/// The bytes of a message. Keys are sorted by their bytes; with `as_protobuf`, they have the order of
/// protobuf's deterministic mode.
pub fn serialize<B: Blob>(node: &Node<B>, as_protobuf: bool) -> Vec<u8> {
    let mut sizes = Vec::with_capacity(16);
    let size = measure(node, as_protobuf, &mut sizes);
    let mut out = Vec::with_capacity(size);
    let mut sizes = sizes.into_iter();
    sizes.next();
    write(node, as_protobuf, &mut sizes, &mut out);
    out
}

/// The size of a message in bytes.
pub fn size<B: Blob>(node: &Node<B>) -> usize {
    measure(node, false, &mut Vec::new())
}

/// Bytes of a length-delimited field whose tag takes one byte.
fn prefixed(length: usize) -> usize {
    1 + varint::len(length as u64) + length
}

type Entry<'a, B> = (&'a Box<str>, &'a Arc<Node<B>>);

/// The entries in the order in which they are written.
fn ordered<B>(entries: &BTreeMap<Box<str>, Arc<Node<B>>>, as_protobuf: bool) -> Vec<Entry<'_, B>> {
    let mut all: Vec<Entry<'_, B>> = entries.iter().collect();
    if as_protobuf {
        all.sort_by(|(a, _), (b, _)| protobuf_order(a.as_bytes(), b.as_bytes()));
    }
    all
}

/// If one key is the beginning of another, protobuf writes the longer one first.
fn protobuf_order(a: &[u8], b: &[u8]) -> Ordering {
    let unequal = a.iter().zip(b).map(|(a, b)| a.cmp(b)).find(|order| order.is_ne());
    unequal.unwrap_or_else(|| b.len().cmp(&a.len()))
}

/// The size of a message. `sizes` gets the sizes of it and of all messages in it, in writing order. The
/// packed values of an `Int64List` count as a message.
fn measure<B: Blob>(node: &Node<B>, as_protobuf: bool, sizes: &mut Vec<usize>) -> usize {
    let place = sizes.len();
    sizes.push(0);
    let state = node.lock();
    let mut total = state.unknown.len();
    match &state.body {
        Body::Parts(slots, set) => {
            for child in present(slots, *set) {
                total += prefixed(measure(child.1, as_protobuf, sizes));
            }
        }
        Body::Map(entries) => {
            for (key, child) in ordered(entries, as_protobuf) {
                let value = prefixed(measure(child, as_protobuf, sizes));
                total += prefixed(prefixed(key.len()) + value);
            }
        }
        Body::Many(items) => {
            for item in items {
                total += prefixed(measure(item, as_protobuf, sizes));
            }
        }
        Body::Bytes(values) => {
            total += values.iter().map(|value| prefixed(value.bytes().len())).sum::<usize>();
        }
        Body::Floats(values) if !values.is_empty() => total += prefixed(4 * values.len()),
        Body::Ints(values) if !values.is_empty() => {
            let packed = values.iter().map(|value| varint::len(*value as u64)).sum();
            sizes.push(packed);
            total += prefixed(packed);
        }
        Body::Floats(_) | Body::Ints(_) => {}
    }
    if let Some(size) = sizes.get_mut(place) {
        *size = total;
    }
    total
}

/// The messages that are set, with their field numbers.
pub(super) fn present<B>(
    slots: &[Option<Arc<Node<B>>>; 3],
    set: u8,
) -> impl Iterator<Item = (usize, &Arc<Node<B>>)> {
    let all = slots.iter().enumerate().filter(move |(index, _)| set & 1 << index != 0);
    all.filter_map(|(index, slot)| Some((index, slot.as_ref()?)))
}

fn head(out: &mut Vec<u8>, number: usize, length: usize) {
    out.push((number << 3 | 2) as u8);
    varint::write(out, length as u64);
}

fn write<B: Blob>(
    node: &Node<B>,
    as_protobuf: bool,
    sizes: &mut impl Iterator<Item = usize>,
    out: &mut Vec<u8>,
) {
    let next = |sizes: &mut dyn Iterator<Item = usize>| sizes.next().unwrap_or_default();
    let state = node.lock();
    match &state.body {
        Body::Parts(slots, set) => {
            for (index, child) in present(slots, *set) {
                head(out, index + 1, next(sizes));
                write(child, as_protobuf, sizes, out);
            }
        }
        Body::Map(entries) => {
            for (key, child) in ordered(entries, as_protobuf) {
                let size = next(sizes);
                head(out, 1, prefixed(key.len()) + prefixed(size));
                head(out, 1, key.len());
                out.extend_from_slice(key.as_bytes());
                head(out, 2, size);
                write(child, as_protobuf, sizes, out);
            }
        }
        Body::Many(items) => {
            for item in items {
                head(out, 1, next(sizes));
                write(item, as_protobuf, sizes, out);
            }
        }
        Body::Bytes(values) => {
            for value in values {
                let value = value.bytes();
                head(out, 1, value.len());
                out.extend_from_slice(value);
            }
        }
        Body::Floats(values) if !values.is_empty() => {
            head(out, 1, 4 * values.len());
            values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        }
        Body::Ints(values) if !values.is_empty() => {
            head(out, 1, next(sizes));
            values.iter().for_each(|value| varint::write(out, *value as u64));
        }
        Body::Floats(_) | Body::Ints(_) => {}
    }
    out.extend_from_slice(&state.unknown);
}
