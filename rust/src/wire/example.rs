//! `tf.train.Example` and `SequenceExample` on the wire, as protobuf reads them.
//!
//! ```text
//! Example          1: Features
//! SequenceExample  1: Features (context)   2: FeatureLists
//! Features, FeatureLists   1: repeated map entry { 1: key  2: Feature or FeatureList }
//! FeatureList      1: repeated Feature
//! Feature          oneof { 1: BytesList  2: FloatList  3: Int64List }, each { 1: repeated value }
//! ```
//!
//! Unknown fields and groups are skipped. Repeated submessages merge, which is the same as concatenating
//! their bytes. The last map entry of a key counts, and so does the last kind of a oneof.

use std::borrow::Cow;

use super::cursor::Cursor;
use super::{Fault, FaultKind, varint};

/// The kind of a feature's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `BytesList`
    Bytes,
    /// `FloatList`
    Float,
    /// `Int64List`
    Int64,
}

impl Kind {
    /// The kind of a field number of `Feature`.
    #[inline(always)]
    pub fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Bytes),
            2 => Some(Self::Float),
            3 => Some(Self::Int64),
            _ => None,
        }
    }

    /// The kind's name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Float => "float",
            Self::Int64 => "int64",
        }
    }
}

/// One field of a message.
#[derive(Clone, Copy, Debug)]
pub struct WireField<'a> {
    /// The field number.
    pub number: u64,
    /// Its value.
    pub value: WireValue<'a>,
}

/// The payload of a field by its wire type.
#[derive(Clone, Copy, Debug)]
pub enum WireValue<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64,
    /// Wire type 2.
    Bytes(&'a [u8]),
    /// Wire type 5.
    Fixed32(u32),
    /// Wire types 3 and 4: skipped whole.
    Group,
}

/// Groups nested deeper than this are refused, as protobuf does.
const MAX_GROUPS: usize = 100;

#[cold]
fn message_fault(cursor: &Cursor<'_>, message: &str) -> Fault {
    Fault::new(FaultKind::Message, cursor.offset() as u64, message)
}

/// The next field of a message.
#[inline]
pub fn next_field<'a>(cursor: &mut Cursor<'a>) -> Result<WireField<'a>, Fault> {
    let tag = cursor.short_varint()?;
    if tag > u64::from(u32::MAX) {
        return Err(message_fault(cursor, "field number is too large"));
    }
    let number = tag >> 3;
    if number == 0 {
        return Err(message_fault(cursor, "field number 0"));
    }
    let value = match tag & 7 {
        0 => WireValue::Varint(cursor.varint()?),
        1 => {
            cursor.take(8)?;
            WireValue::Fixed64
        }
        2 => WireValue::Bytes(cursor.length_prefixed()?),
        3 => {
            skip_group(cursor, number)?;
            WireValue::Group
        }
        5 => WireValue::Fixed32(cursor.u32_le()?),
        _ => return Err(message_fault(cursor, "unknown wire type or stray end of group")),
    };
    Ok(WireField { number, value })
}

/// Skip to the end of a group that was opened. This is a loop, because the sender chooses the nesting.
fn skip_group(cursor: &mut Cursor<'_>, number: u64) -> Result<(), Fault> {
    let mut open = vec![number];
    while let Some(&innermost) = open.last() {
        let tag = cursor.short_varint()?;
        let number = tag >> 3;
        if number == 0 || tag > u64::from(u32::MAX) {
            return Err(message_fault(cursor, "field number out of range"));
        }
        match tag & 7 {
            0 => {
                cursor.varint()?;
            }
            1 => {
                cursor.take(8)?;
            }
            2 => {
                cursor.length_prefixed()?;
            }
            3 if open.len() >= MAX_GROUPS => {
                return Err(message_fault(cursor, "groups are nested too deeply"));
            }
            3 => open.push(number),
            4 if number == innermost => {
                open.pop();
            }
            5 => {
                cursor.take(4)?;
            }
            _ => return Err(message_fault(cursor, "unknown wire type or mismatched end of group")),
        }
    }
    Ok(())
}

/// A map entry: its key, and the bytes of its value (joined if the entry has several). None if protobuf
/// drops the whole entry because of an unknown field.
pub fn entry(bytes: &[u8], in_lists: bool) -> Result<Option<Entry<'_>>, Fault> {
    let mut cursor = Cursor::new(bytes);
    let mut key: &[u8] = &[];
    let mut value: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    let mut plain = true;
    let mut known = true;
    while !cursor.is_empty() {
        match next_field(&mut cursor)? {
            WireField { number: 1, value: WireValue::Bytes(text) } => {
                key = text;
                check_key(key)?;
            }
            WireField { number: 2, value: WireValue::Bytes(more) } => {
                if value.is_empty() {
                    value = Cow::Borrowed(more);
                } else {
                    plain = false;
                    value.to_mut().extend_from_slice(more);
                }
            }
            _ => known = false,
        }
    }
    if !plain || !known {
        check_values(bytes, in_lists)?;
    }
    Ok(known.then_some((Cow::Borrowed(key), value)))
}

/// Key and value of a map entry.
pub type Entry<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// A key must be UTF-8.
pub fn check_key(key: &[u8]) -> Result<(), Fault> {
    match std::str::from_utf8(key) {
        Ok(_) => Ok(()),
        Err(_) => Err(Fault::new(FaultKind::Message, 0, "key is not UTF-8")),
    }
}

/// Check each value of a map entry separately.
fn check_values(entry: &[u8], in_lists: bool) -> Result<(), Fault> {
    let mut cursor = Cursor::new(entry);
    while !cursor.is_empty() {
        if let WireField { number: 2, value: WireValue::Bytes(value) } = next_field(&mut cursor)? {
            check(value, in_lists)?;
        }
    }
    Ok(())
}

/// Read a `Feature`, or a `FeatureList`, only to find faults: protobuf also parses values that a
/// later value replaces.
pub fn check(bytes: &[u8], in_lists: bool) -> Result<(), Fault> {
    let mut cursor = Cursor::new(bytes);
    while !cursor.is_empty() {
        match next_field(&mut cursor)? {
            WireField { number: 1, value: WireValue::Bytes(frame) } if in_lists => {
                check(frame, false)?;
            }
            WireField { number, value: WireValue::Bytes(list) } if !in_lists => {
                match Kind::from_number(number) {
                    Some(Kind::Bytes) => byte_strings(list, |_| Ok(()))?,
                    Some(Kind::Float) => floats(list, &mut Vec::new())?,
                    Some(Kind::Int64) => int64s(list, &mut Vec::new())?,
                    None => {}
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The contents of a `Feature`: the kind that counts, and the bytes from which its lists are merged.
pub fn feature(bytes: &[u8]) -> Result<Option<(Kind, &[u8])>, Fault> {
    let mut cursor = Cursor::new(bytes);
    let mut last: Option<(Kind, usize)> = None;
    let mut replaced = false;
    while !cursor.is_empty() {
        let start = cursor.offset();
        let field = next_field(&mut cursor)?;
        if let (Some(kind), WireValue::Bytes(_)) = (Kind::from_number(field.number), field.value) {
            match last {
                Some((before, _)) if before == kind => {}
                _ => {
                    replaced = last.is_some();
                    last = Some((kind, start));
                }
            }
        }
    }
    if replaced {
        check(bytes, false)?;
    }
    Ok(last.map(|(kind, start)| (kind, bytes.get(start..).unwrap_or_default())))
}

/// Visit the lists of one kind in the result of `feature`.
pub fn lists(
    kind: Kind,
    bytes: &[u8],
    mut visit: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut cursor = Cursor::new(bytes);
    while !cursor.is_empty() {
        let field = next_field(&mut cursor)?;
        if let WireValue::Bytes(list) = field.value
            && Kind::from_number(field.number) == Some(kind)
        {
            visit(list)?;
        }
    }
    Ok(())
}

/// Append the values of an `Int64List`.
pub fn int64s(list: &[u8], out: &mut Vec<i64>) -> Result<(), Fault> {
    let mut cursor = Cursor::new(list);
    while !cursor.is_empty() {
        match next_field(&mut cursor)? {
            WireField { number: 1, value: WireValue::Bytes(packed) } => packed_int64s(packed, out)?,
            WireField { number: 1, value: WireValue::Varint(value) } => out.push(value as i64),
            _ => {}
        }
    }
    Ok(())
}

/// Append a packed run of varints.
#[inline]
pub fn packed_int64s(packed: &[u8], out: &mut Vec<i64>) -> Result<(), Fault> {
    let mut rest = packed;
    let at = |rest: &[u8]| packed.len().wrapping_sub(rest.len()) as u64;
    while let Some(word) = rest.first_chunk::<8>() {
        let (value, length) = match varint::in_word(u64::from_le_bytes(*word)) {
            Some(short) => short,
            None => varint::read(rest).ok_or_else(|| varint::endless(at(rest)))?,
        };
        out.push(value as i64);
        rest = rest.get(length..).unwrap_or_default();
    }
    let mut word = varint::word(rest);
    while !rest.is_empty() {
        let (value, length) = varint::in_word(word).unwrap_or((0, 8));
        let Some(behind) = rest.get(length..) else { return Err(varint::endless(at(rest))) };
        out.push(value as i64);
        word = word.wrapping_shr(8 * length as u32);
        rest = behind;
    }
    Ok(())
}

/// Append the values of a `FloatList`, bit for bit.
pub fn floats(list: &[u8], out: &mut Vec<f32>) -> Result<(), Fault> {
    let mut cursor = Cursor::new(list);
    while !cursor.is_empty() {
        match next_field(&mut cursor)? {
            WireField { number: 1, value: WireValue::Bytes(packed) } => packed_floats(packed, out)?,
            WireField { number: 1, value: WireValue::Fixed32(bits) } => {
                out.push(f32::from_bits(bits));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Append a packed run of 32-bit floats.
#[inline]
pub fn packed_floats(packed: &[u8], out: &mut Vec<f32>) -> Result<(), Fault> {
    let (words, rest) = packed.as_chunks::<4>();
    if !rest.is_empty() {
        let message = "packed floats are not a multiple of 4 bytes";
        return Err(Fault::new(FaultKind::Message, 0, message));
    }
    out.extend(words.iter().map(|word| f32::from_le_bytes(*word)));
    Ok(())
}

/// Visit the values of a `BytesList`.
pub fn byte_strings<'a>(
    list: &'a [u8],
    mut visit: impl FnMut(&'a [u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut cursor = Cursor::new(list);
    while !cursor.is_empty() {
        if let WireField { number: 1, value: WireValue::Bytes(value) } = next_field(&mut cursor)? {
            visit(value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_numbers_are_what_one_after_another_are() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 8
        };
        for run in 0..2000 {
            let mut packed = Vec::new();
            let values: Vec<u64> =
                (0..run % 12).map(|_| random() << 8 >> (random() % 64)).collect();
            values.iter().for_each(|&value| varint::write(&mut packed, value));
            if run % 3 == 0 {
                packed.iter_mut().skip(random() as usize % 8).step_by(5).for_each(|b| *b ^= 0x80);
            }
            let (mut found, mut wanted) = (Vec::new(), Vec::new());
            let mut cursor = Cursor::new(&packed);
            let ending = loop {
                if cursor.is_empty() {
                    break Ok(());
                }
                match cursor.varint() {
                    Ok(value) => wanted.push(value as i64),
                    Err(fault) => break Err(fault),
                }
            };
            assert_eq!(packed_int64s(&packed, &mut found), ending, "{packed:x?}");
            assert_eq!(found, wanted);
        }
    }
}
