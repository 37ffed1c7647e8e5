//! Examples and SequenceExamples as TensorFlow's hand-written parsers read them.
//!
//! `parse_example` and `parse_sequence_example` do not read protobuf in general. They read the
//! usual encoding, and do not strictly enforce the lengths of enclosing messages. They differ from
//! each other:
//!
//! | | Example | SequenceExample |
//! |---|---|---|
//! | map entry | two fields of 1 or 2, in any order | key, then value |
//! | a length beyond the enclosing message | ends with the message | ends with the message |
//! | a length of 2^31 or more | does not limit | does not limit |
//! | tail of packed floats | ignored | refused |
//! | rest of a list after its first run | ignored | in a feature list: read as the next frame |
//! | last entry of a key has no kind | dense: the previous entry counts | present, without values |
//!
//! Tags are single bytes (an over-long tag is an unknown field), and a list is read by the wire type of its
//! first field. Source: `example_proto_fast_parsing.cc` of TensorFlow 2.21.

use super::cursor::Cursor;
use super::example::{self, Kind};
use super::{Fault, FaultKind};

/// One of TensorFlow's two parsers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parser {
    /// The parser of `parse_example`.
    Example,
    /// The parser of `parse_sequence_example`.
    Sequence,
}

const BYTES: u8 = 0x0a;
const FLOAT: u8 = 0x12;
const INT64: u8 = 0x1a;

#[cold]
fn refused(byte: usize) -> Fault {
    Fault::new(FaultKind::Message, byte as u64, "TensorFlow's parser refuses this message")
}

/// Skip a required tag.
fn expect(cursor: &mut Cursor<'_>, tag: u8) -> Result<(), Fault> {
    let at = cursor.offset();
    if cursor.u8()? == tag { Ok(()) } else { Err(refused(at)) }
}

/// A length is the low half of a varint.
fn length(cursor: &mut Cursor<'_>) -> Result<u32, Fault> {
    Ok(cursor.varint()? as u32)
}

/// The bytes that may be read from here on, given a length. A length beyond the remaining bytes
/// does not limit the reader further, nor does a length that is negative as a signed number.
fn within<'a>(cursor: &Cursor<'a>, length: u32) -> &'a [u8] {
    let rest = cursor.rest();
    match i32::try_from(length) {
        Ok(length) => rest.get(..length as usize).unwrap_or(rest),
        Err(_) => rest,
    }
}

/// A string, which must be complete.
fn string<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Fault> {
    let length = length(cursor)?;
    cursor.take(length as usize)
}

/// Skip a field that the parsers do not know.
fn skip_unknown(cursor: &mut Cursor<'_>) -> Result<(), Fault> {
    let at = cursor.offset();
    match cursor.varint()? & 7 {
        0 => cursor.varint().map(drop),
        1 => cursor.take(8).map(drop),
        2 => {
            // Skipping is not checked: a field that is too long ends the message, and a negative length
            // skips nothing.
            if let Ok(length) = i32::try_from(length(cursor)?) {
                let length = (length as usize).min(cursor.rest().len());
                cursor.take(length)?;
            }
            Ok(())
        }
        5 => cursor.take(4).map(drop),
        _ => Err(refused(at)),
    }
}

/// Visit the messages of map entries in a payload: (whether they are feature lists, the message).
pub fn maps<'a>(
    payload: &'a [u8],
    parser: Parser,
    mut visit: impl FnMut(bool, &'a [u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut cursor = Cursor::new(payload);
    while let Some(&tag) = cursor.rest().first() {
        if tag != 0x0a && (tag != 0x12 || parser == Parser::Example) {
            skip_unknown(&mut cursor)?;
            continue;
        }
        cursor.u8()?;
        let length = length(&mut cursor)?;
        let map = within(&cursor, length);
        visit(tag == 0x12, map)?;
        cursor.take(map.len())?;
    }
    Ok(())
}

/// Visit the entries of such a message: key and value.
pub fn entries<'a>(
    map: &'a [u8],
    parser: Parser,
    mut visit: impl FnMut(&'a [u8], &'a [u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut cursor = Cursor::new(map);
    while !cursor.is_empty() {
        expect(&mut cursor, 0x0a)?;
        let length = length(&mut cursor)?;
        let bytes = within(&cursor, length);
        let (key, value) = entry(bytes, parser)?;
        visit(key, value)?;
        cursor.take(bytes.len())?;
    }
    Ok(())
}

/// Key and value of one entry.
pub fn entry(bytes: &[u8], parser: Parser) -> Result<(&[u8], &[u8]), Fault> {
    let mut cursor = Cursor::new(bytes);
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    match parser {
        Parser::Example => {
            // There are two fields, but not necessarily one key and one value: two keys give a key
            // without a value.
            for _ in 0..2 {
                match cursor.varint()? as u32 {
                    0x0a => key = string(&mut cursor)?,
                    0x12 => value = string(&mut cursor)?,
                    _ => return Err(refused(cursor.offset())),
                }
            }
        }
        Parser::Sequence => {
            expect(&mut cursor, 0x0a)?;
            key = string(&mut cursor)?;
            expect(&mut cursor, 0x12)?;
            value = string(&mut cursor)?;
        }
    }
    if cursor.is_empty() { Ok((key, value)) } else { Err(refused(cursor.offset())) }
}

/// The kind of a `Feature`, by its first byte. None if it is empty.
pub fn kind(feature: &[u8]) -> Result<Option<Kind>, Fault> {
    match feature.first() {
        None => Ok(None),
        Some(&BYTES) => Ok(Some(Kind::Bytes)),
        Some(&FLOAT) => Ok(Some(Kind::Float)),
        Some(&INT64) => Ok(Some(Kind::Int64)),
        Some(_) => Err(Fault::new(FaultKind::Message, 0, "no list of a known data type is there")),
    }
}

/// Read one frame of a feature list; `read` gets its kind and a cursor after the tag.
pub fn frame<'a>(
    cursor: &mut Cursor<'a>,
    read: impl FnOnce(Kind, &mut Cursor<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let at = cursor.offset();
    let no_frame = |_| Fault::new(FaultKind::Message, at as u64, "no frame begins here");
    expect(cursor, 0x0a).map_err(no_frame)?;
    let length = length(cursor).map_err(no_frame)?;
    if length == 0 {
        return Ok(());
    }
    if length == 1 {
        return Err(no_frame(refused(at)));
    }
    let mut feature = Cursor::new(within(cursor, length));
    let Some(kind) = kind(feature.rest())? else {
        return Err(refused(cursor.offset()));
    };
    match length {
        2 => {
            // This is an empty list of the right kind. Its length is read without a limit.
            cursor.u8()?;
            let at = cursor.offset();
            if self::length(cursor)? != 0 {
                return Err(refused(at));
            }
            read(kind, &mut Cursor::new(&[0]))
        }
        _ => {
            feature.u8()?;
            read(kind, &mut feature)?;
            cursor.take(feature.offset()).map(drop)
        }
    }
}

/// Open the list at a cursor after the tag of its kind. None if it ends immediately; the parser for
/// sequences refuses that if values were announced.
fn open<'a>(cursor: &mut Cursor<'a>, parser: Parser) -> Result<Option<Cursor<'a>>, Fault> {
    let length = length(cursor)?;
    let list = within(cursor, length);
    if !list.is_empty() {
        return Ok(Some(Cursor::new(list)));
    }
    if parser == Parser::Sequence && length > 0 {
        return Err(refused(cursor.offset()));
    }
    Ok(None)
}

/// Append the values of an `Int64List`.
pub fn int64s(cursor: &mut Cursor<'_>, parser: Parser, out: &mut Vec<i64>) -> Result<(), Fault> {
    let Some(mut list) = open(cursor, parser)? else { return Ok(()) };
    match list.rest().first() {
        Some(0x0a) => {
            list.u8()?;
            let length = length(&mut list)?;
            let packed = within(&list, length);
            example::packed_int64s(packed, out)?;
            list.take(packed.len())?;
        }
        Some(0x08) => {
            while !list.is_empty() {
                expect(&mut list, 0x08)?;
                out.push(list.varint()? as i64);
            }
        }
        _ => return Err(refused(cursor.offset())),
    }
    cursor.take(list.offset()).map(drop)
}

/// Append the values of a `FloatList`, bit for bit.
pub fn floats(cursor: &mut Cursor<'_>, parser: Parser, out: &mut Vec<f32>) -> Result<(), Fault> {
    let Some(mut list) = open(cursor, parser)? else { return Ok(()) };
    match list.rest().first() {
        Some(0x0a) => {
            list.u8()?;
            let length = length(&mut list)?;
            let packed = within(&list, length);
            let values = match parser {
                Parser::Example => Cursor::new(packed).take(length as usize & !3)?,
                Parser::Sequence => packed,
            };
            example::packed_floats(values, out)?;
            list.take(packed.len())?;
        }
        Some(0x0d) => {
            while !list.is_empty() {
                expect(&mut list, 0x0d)?;
                out.push(f32::from_bits(list.u32_le()?));
            }
        }
        _ => return Err(refused(cursor.offset())),
    }
    cursor.take(list.offset()).map(drop)
}

/// Visit the values of a `BytesList`.
pub fn byte_strings<'a>(
    cursor: &mut Cursor<'a>,
    mut visit: impl FnMut(&'a [u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let length = length(cursor)?;
    let mut list = Cursor::new(within(cursor, length));
    while !list.is_empty() {
        expect(&mut list, 0x0a)?;
        visit(string(&mut list)?)?;
    }
    cursor.take(list.offset()).map(drop)
}
