//! Appends the values of one record to their columns. A fast path handles the encoding that all common
//! writers produce; the exact functions of the dialect handle all others.

use std::ops::Range;

use super::{Dialect, Numbers, Wanted};
use crate::kernels::columns::{Column, Values};
use crate::wire::cursor::Cursor;
use crate::wire::example::{self, Kind, WireField, WireValue};
use crate::wire::fields::{only_field, split_field};
use crate::wire::tf_example::{self, Parser};
use crate::wire::{Fault, FaultKind};

#[cold]
fn missing(column: &mut Column, wanted: &Wanted) -> Result<(), Fault> {
    match &wanted.default {
        Some(default) => column.close_default(default),
        None if wanted.required => {
            Err(Fault::new(FaultKind::Schema, 0, "required, but this record lacks it"))
        }
        None => column.close_null(),
    }
}

#[cold]
fn wrong_kind(wanted: Option<Kind>, found: Kind) -> Fault {
    let message = format!(
        "holds {} values, the schema wants {}",
        found.name(),
        wanted.map_or("none at all", Kind::name)
    );
    Fault::new(FaultKind::Schema, 0, message)
}

/// Append one record's feature to its column.
#[inline(always)]
pub(super) fn fill_feature(
    column: &mut Column,
    wanted: &Wanted,
    bytes: &[u8],
    present: impl Fn() -> bool,
    dialect: Dialect,
) -> Result<(), Fault> {
    match append_usual(&mut column.values, bytes)? {
        Some(values) => column.close_record_of(values),
        None => fill_odd(column, wanted, bytes, present(), dialect),
    }
}

/// The same for a feature in an encoding that the fast path does not handle.
#[cold]
fn fill_odd(
    column: &mut Column,
    wanted: &Wanted,
    bytes: &[u8],
    present: bool,
    dialect: Dialect,
) -> Result<(), Fault> {
    let before = column.values.as_ref().map_or(0, Values::len);
    let counts = match dialect {
        Dialect::Protobuf => append_odd(column, wanted, bytes)?,
        Dialect::TensorFlow(parser) => {
            append_tensorflow(column, wanted, &mut Cursor::new(bytes), parser)?
                || (present && parser == Parser::Sequence)
        }
    };
    if counts { column.close_record(before) } else { missing(column, wanted) }
}

/// Append the values of a feature of the wanted kind in the encoding of the common writers, and return
/// their range in the column. None, and nothing is appended, for any other encoding.
#[inline(always)]
fn append_usual(values: &mut Option<Values>, bytes: &[u8]) -> Result<Option<Range<usize>>, Fault> {
    match values {
        Some(Values::Int64(out)) => {
            let before = out.len();
            // The most common feature: one number.
            if let [0x1a, 3, 0x0a, 1, byte] = *bytes
                && byte < 0x80
            {
                out.push(i64::from(byte));
                return Ok(Some(before..out.len()));
            }
            let Some(packed) = only_field(bytes, 0x1a).and_then(|list| only_field(list, 0x0a))
            else {
                return Ok(None);
            };
            example::packed_int64s(packed, out)?;
            Ok(Some(before..out.len()))
        }
        Some(Values::Float(out)) => {
            match only_field(bytes, 0x12).and_then(|list| only_field(list, 0x0a)) {
                Some(packed) if packed.len().is_multiple_of(4) => {
                    let before = out.len();
                    example::packed_floats(packed, out)?;
                    Ok(Some(before..out.len()))
                }
                _ => Ok(None),
            }
        }
        Some(Values::Double(out)) => {
            let before = out.len();
            match only_field(bytes, 0x12).and_then(|list| only_field(list, 0x0a)) {
                Some(packed) if packed.len().is_multiple_of(4) => {
                    let (words, _) = packed.as_chunks::<4>();
                    out.extend(words.iter().map(|word| f64::from(f32::from_le_bytes(*word))));
                    Ok(Some(before..out.len()))
                }
                _ => Ok(None),
            }
        }
        Some(out @ (Values::Bytes(..) | Values::Borrowed(_))) => {
            let Some(mut list) = only_field(bytes, 0x0a) else { return Ok(None) };
            let before = out.len();
            if let Some(value) = only_field(list, 0x0a) {
                out.push_bytes(value)?;
                return Ok(Some(before..before.wrapping_add(1)));
            }
            while !list.is_empty() {
                let Some((value, rest)) = split_field(list, 0x0a) else {
                    out.cut_bytes(before);
                    return Ok(None);
                };
                out.push_bytes(value)?;
                list = rest;
            }
            Ok(Some(before..out.len()))
        }
        None => Ok(None),
    }
}

/// Append the values of a feature in any encoding that protobuf reads. False if it has no kind.
fn append_odd(column: &mut Column, wanted: &Wanted, bytes: &[u8]) -> Result<bool, Fault> {
    let Some((kind, lists)) = example::feature(bytes)? else { return Ok(false) };
    if wanted.kind != Some(kind) && !converts(wanted, kind) {
        return Err(wrong_kind(wanted.kind, kind));
    }
    let Some(values) = &mut column.values else { return Ok(false) };
    if wanted.numbers == Numbers::Doubles || wanted.kind != Some(kind) {
        return append_converted(values, kind, lists).map(|()| true);
    }
    example::lists(kind, lists, |list| match &mut *values {
        Values::Int64(out) => example::int64s(list, out),
        Values::Float(out) => example::floats(list, out),
        Values::Double(_) => Ok(()),
        out @ (Values::Bytes(..) | Values::Borrowed(_)) => {
            example::byte_strings(list, |value| out.push_bytes(value))
        }
    })?;
    Ok(true)
}

/// Whether a column accepts numbers of a kind other than its own.
fn converts(wanted: &Wanted, found: Kind) -> bool {
    let is_number = |kind: Kind| matches!(kind, Kind::Int64 | Kind::Float);
    wanted.numbers != Numbers::OfItsKind && wanted.kind.is_some_and(is_number) && is_number(found)
}

/// Append numbers of either kind to a column of numbers. A number whose value would change is a fault.
fn append_converted(values: &mut Values, found: Kind, lists: &[u8]) -> Result<(), Fault> {
    let (mut integers, mut floats) = (Vec::new(), Vec::new());
    example::lists(found, lists, |list| match found {
        Kind::Int64 => example::int64s(list, &mut integers),
        _ => example::floats(list, &mut floats),
    })?;
    for value in integers {
        match values {
            Values::Double(out) if (value as f64) as i128 == i128::from(value) => {
                out.push(value as f64);
            }
            Values::Float(out) if (value as f32) as i128 == i128::from(value) => {
                out.push(value as f32);
            }
            Values::Double(_) => return Err(inexact(value, "float64")),
            _ => return Err(inexact(value, "float32")),
        }
    }
    for value in floats {
        match values {
            Values::Double(out) => out.push(f64::from(value)),
            // 2^63 itself is beyond int64, but the casts below would accept it as the largest int64.
            Values::Int64(out)
                if value as i64 as f32 == value && value < 9_223_372_036_854_775_808.0 =>
            {
                out.push(value as i64);
            }
            _ => return Err(inexact(value, "int64")),
        }
    }
    Ok(())
}

#[cold]
fn inexact(value: impl std::fmt::Display, wanted: &str) -> Fault {
    Fault::new(FaultKind::Schema, 0, format!("holds {value}, which {wanted} cannot hold exactly"))
}

/// Append the values of a feature in any encoding that TensorFlow reads. False if it has no kind.
fn append_tensorflow(
    column: &mut Column,
    wanted: &Wanted,
    feature: &mut Cursor<'_>,
    parser: Parser,
) -> Result<bool, Fault> {
    let Some(kind) = tf_example::kind(feature.rest())? else { return Ok(false) };
    feature.u8()?;
    append_list_tensorflow(column, wanted, kind, feature, parser)?;
    Ok(true)
}

/// Append the values of the list of a kind, read from after its tag.
fn append_list_tensorflow(
    column: &mut Column,
    wanted: &Wanted,
    kind: Kind,
    list: &mut Cursor<'_>,
    parser: Parser,
) -> Result<(), Fault> {
    if wanted.kind != Some(kind) {
        return Err(wrong_kind(wanted.kind, kind));
    }
    match &mut column.values {
        Some(Values::Int64(out)) => tf_example::int64s(list, parser, out),
        Some(Values::Float(out)) => tf_example::floats(list, parser, out),
        Some(Values::Double(_)) => Ok(()),
        Some(out @ (Values::Bytes(..) | Values::Borrowed(_))) => {
            tf_example::byte_strings(list, |value| out.push_bytes(value))
        }
        None => Ok(()),
    }
}

/// Append one record's feature list to its column.
pub(super) fn fill_list(
    column: &mut Column,
    wanted: &Wanted,
    bytes: &[u8],
    present: bool,
    dialect: Dialect,
) -> Result<(), Fault> {
    if !present {
        return missing(column, wanted);
    }
    if dialect != Dialect::Protobuf {
        return fill_list_tensorflow(column, wanted, bytes);
    }
    let mut cursor = Cursor::new(bytes);
    while !cursor.is_empty() {
        let field = example::next_field(&mut cursor)?;
        let WireField { number: 1, value: WireValue::Bytes(frame) } = field else {
            continue;
        };
        let before = column.values.as_ref().map_or(0, Values::len);
        if append_usual(&mut column.values, frame)?.is_none() {
            append_odd(column, wanted, frame)?;
        }
        column.close_frame(before)?;
    }
    let before = column.values.as_ref().map_or(0, Values::len);
    column.close_record(before)
}

/// The same by TensorFlow's rules, which read the rest of a frame as the next frame.
fn fill_list_tensorflow(
    column: &mut Column,
    wanted: &Wanted,
    mut bytes: &[u8],
) -> Result<(), Fault> {
    for frame in 0.. {
        if bytes.is_empty() {
            break;
        }
        bytes =
            fill_frame_tensorflow(column, wanted, bytes).map_err(|fault| fault.in_frame(frame))?;
    }
    let before = column.values.as_ref().map_or(0, Values::len);
    column.close_record(before)
}

/// Append one frame, and return the rest.
fn fill_frame_tensorflow<'a>(
    column: &mut Column,
    wanted: &Wanted,
    bytes: &'a [u8],
) -> Result<&'a [u8], Fault> {
    let before = column.values.as_ref().map_or(0, Values::len);
    let rest = match split_field(bytes, 0x0a) {
        Some((frame, rest)) if append_usual(&mut column.values, frame)?.is_some() => rest,
        _ => {
            let mut cursor = Cursor::new(bytes);
            tf_example::frame(&mut cursor, |kind, list| {
                append_list_tensorflow(column, wanted, kind, list, Parser::Sequence)
            })?;
            cursor.rest()
        }
    };
    column.close_frame(before)?;
    Ok(rest)
}
