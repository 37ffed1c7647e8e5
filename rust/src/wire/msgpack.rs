//! Reads MessagePack values: finds their ends and their types.
//!
//! Every length is compared with the available bytes before use. No function here is recursive, so nesting
//! cannot exhaust the stack.

mod put;
#[cfg(test)]
mod tests;

pub use self::put::{
    put_array, put_bin_head, put_ext, put_int, put_map, put_str, put_timestamp, put_uint,
};
use super::cursor::Cursor;
use super::frames::{Candidate, Framing, Skim, Skip, Step};
use super::{Fault, FaultKind};

/// The value at the front of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A whole value of this many bytes.
    Whole(usize),
    /// The start of a value of at least this many bytes.
    Cut(u64),
    /// The byte at this offset does not begin a value.
    Reserved(usize),
}

#[inline(always)]
fn be(window: &[u8], at: usize, width: usize) -> Option<usize> {
    let bytes = window.get(at..at.checked_add(width)?)?;
    Some(bytes.iter().fold(0, |number, &byte| number << 8 | usize::from(byte)))
}

/// The value at the front of a window, found without reading strings and without a stack: a container only
/// increases the number of values that are still to come.
#[inline]
pub fn extent(window: &[u8]) -> Extent {
    extent_on(window, &mut 0, &mut 1)
}

/// The same from an offset inside a value, with the number of values that are still to come. If the
/// window ends first, both arguments are set so that the next call continues at the value at its
/// end.
#[inline(always)]
fn extent_on(window: &[u8], from: &mut usize, values: &mut u64) -> Extent {
    let (mut at, mut left) = (*from, *values);
    while left > 0 {
        let Some(&byte) = window.get(at) else {
            (*from, *values) = (at, left);
            return Extent::Cut((at as u64).saturating_add(left));
        };
        left = left.wrapping_sub(1);
        // The size of the length field, and the bytes between it and the content.
        let (width, more) = match byte {
            0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => {
                at = at.wrapping_add(1);
                continue;
            }
            0xa0..=0xbf => {
                at = at.wrapping_add(1 + usize::from(byte & 31));
                continue;
            }
            0x80..=0x8f => {
                left = left.wrapping_add(2 * u64::from(byte & 15));
                at = at.wrapping_add(1);
                continue;
            }
            0x90..=0x9f => {
                left = left.wrapping_add(u64::from(byte & 15));
                at = at.wrapping_add(1);
                continue;
            }
            0xca | 0xce | 0xd2 => {
                at = at.wrapping_add(5);
                continue;
            }
            0xcb | 0xcf | 0xd3 => {
                at = at.wrapping_add(9);
                continue;
            }
            0xcc | 0xd0 => {
                at = at.wrapping_add(2);
                continue;
            }
            0xcd | 0xd1 => {
                at = at.wrapping_add(3);
                continue;
            }
            0xd4..=0xd8 => {
                at = at.wrapping_add(2 + (1 << (byte - 0xd4)));
                continue;
            }
            0xc1 => return Extent::Reserved(at),
            0xc4 | 0xd9 => (1, 0),
            0xc5 | 0xda => (2, 0),
            0xc6 | 0xdb => (4, 0),
            0xc7 => (1, 1),
            0xc8 => (2, 1),
            0xc9 => (4, 1),
            0xdc | 0xde => (2, 0),
            0xdd | 0xdf => (4, 0),
        };
        let body = at.wrapping_add(1 + width + more);
        let Some(number) = be(window, at.wrapping_add(1), width) else {
            (*from, *values) = (at, left.wrapping_add(1));
            return Extent::Cut((body as u64).saturating_add(left));
        };
        at = body;
        match byte {
            0xdc | 0xdd => left = left.saturating_add(number as u64),
            0xde | 0xdf => left = left.saturating_add(2 * number as u64),
            _ => at = at.saturating_add(number),
        }
    }
    (*from, *values) = (at, 0);
    match at <= window.len() {
        true => Extent::Whole(at),
        false => Extent::Cut(at as u64),
    }
}

/// Consecutive values, each a record.
#[derive(Clone, Copy, Debug)]
pub struct MessagePack;

impl Framing for MessagePack {
    #[inline(always)]
    fn next(self, window: &[u8], _last: bool) -> Step {
        match extent(window) {
            Extent::Whole(total) => Step::Frame { payload: 0, length: total, total },
            Extent::Cut(need) => Step::Need(need),
            Extent::Reserved(at) => {
                Step::Broken(Fault { kind: FaultKind::Framing, ..reserved(at) })
            }
        }
    }

    fn skim(self, state: &mut Skim, window: &[u8], _last: bool) -> Skip {
        if !state.begun {
            (state.begun, state.left) = (true, 1);
        }
        let mut at = 0;
        match extent_on(window, &mut at, &mut state.left) {
            Extent::Whole(total) => Skip::End(total as u64),
            Extent::Cut(_) if state.left == 0 => Skip::End(at as u64),
            Extent::Cut(_) if at > 0 => Skip::On(at as u64),
            Extent::Cut(_) => Skip::More(16),
            Extent::Reserved(at) => {
                Skip::Broken(Fault { kind: FaultKind::Framing, ..reserved(at) })
            }
        }
    }

    /// Nearly every byte begins a value, so a candidate is only a guess.
    fn find(self, window: &[u8], from: usize) -> Option<Candidate> {
        let at = (from..window.len()).find(|&at| window.get(at) != Some(&0xc1))?;
        match self.next(window.get(at..)?, false) {
            Step::Frame { total, .. } => Some(Candidate { at, total: total as u64 }),
            Step::Need(total) => Some(Candidate { at, total }),
            _ => None,
        }
    }
}

/// One value, or the head of a container, whose values follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// nil
    Nil,
    /// true or false
    Bool(bool),
    /// An integer within int64.
    Int(i64),
    /// A larger integer.
    Large(u64),
    /// float 32
    Float(f32),
    /// float 64
    Double(f64),
    /// str: UTF-8 by the specification, but any bytes in practice
    Str(&'a [u8]),
    /// bin
    Bin(&'a [u8]),
    /// This many values follow.
    Array(u32),
    /// This many pairs of values follow.
    Map(u32),
    /// An extension: its type, and its data.
    Ext(i8, &'a [u8]),
}

impl Token<'_> {
    /// Its name for users.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool(_) => "a bool",
            Self::Int(_) => "an integer",
            Self::Large(_) => "an integer beyond int64",
            Self::Float(_) => "a float32",
            Self::Double(_) => "a float64",
            Self::Str(_) => "a string",
            Self::Bin(_) => "binary",
            Self::Array(_) => "an array",
            Self::Map(_) => "a map",
            Self::Ext(TIMESTAMP, _) => "a timestamp",
            Self::Ext(..) => "an extension",
        }
    }
}

/// The extension type of timestamps.
pub const TIMESTAMP: i8 = -1;

#[inline(always)]
fn word<const N: usize>(cursor: &mut Cursor<'_>) -> Result<[u8; N], Fault> {
    let mut word = [0; N];
    word.copy_from_slice(cursor.take(N)?);
    Ok(word)
}

#[inline(always)]
fn length(cursor: &mut Cursor<'_>, width: u8) -> Result<usize, Fault> {
    Ok(match width {
        0 => usize::from(cursor.u8()?),
        1 => usize::from(u16::from_be_bytes(word(cursor)?)),
        _ => u32::from_be_bytes(word(cursor)?) as usize,
    })
}

#[inline(always)]
fn ext<'a>(cursor: &mut Cursor<'a>, length: usize) -> Result<Token<'a>, Fault> {
    let kind = cursor.u8()? as i8;
    Ok(Token::Ext(kind, cursor.take(length)?))
}

#[inline(always)]
fn unsigned(value: u64) -> Token<'static> {
    i64::try_from(value).map_or(Token::Large(value), Token::Int)
}

/// The next value, or the head of a container.
#[inline(always)]
pub fn token<'a>(cursor: &mut Cursor<'a>) -> Result<Token<'a>, Fault> {
    let byte = cursor.u8()?;
    Ok(match byte {
        0x00..=0x7f => Token::Int(i64::from(byte)),
        0xe0..=0xff => Token::Int(i64::from(byte as i8)),
        0x80..=0x8f => Token::Map(u32::from(byte & 15)),
        0x90..=0x9f => Token::Array(u32::from(byte & 15)),
        0xa0..=0xbf => Token::Str(cursor.take(usize::from(byte & 31))?),
        0xc0 => Token::Nil,
        0xc1 => return Err(reserved(cursor.offset().saturating_sub(1))),
        0xc2 => Token::Bool(false),
        0xc3 => Token::Bool(true),
        0xc4..=0xc6 => {
            let length = length(cursor, byte - 0xc4)?;
            Token::Bin(cursor.take(length)?)
        }
        0xc7..=0xc9 => {
            let length = length(cursor, byte - 0xc7)?;
            ext(cursor, length)?
        }
        0xca => Token::Float(f32::from_be_bytes(word(cursor)?)),
        0xcb => Token::Double(f64::from_be_bytes(word(cursor)?)),
        0xcc => Token::Int(i64::from(cursor.u8()?)),
        0xcd => Token::Int(i64::from(u16::from_be_bytes(word(cursor)?))),
        0xce => Token::Int(i64::from(u32::from_be_bytes(word(cursor)?))),
        0xcf => unsigned(u64::from_be_bytes(word(cursor)?)),
        0xd0 => Token::Int(i64::from(cursor.u8()? as i8)),
        0xd1 => Token::Int(i64::from(i16::from_be_bytes(word(cursor)?))),
        0xd2 => Token::Int(i64::from(i32::from_be_bytes(word(cursor)?))),
        0xd3 => Token::Int(i64::from_be_bytes(word(cursor)?)),
        0xd4..=0xd8 => ext(cursor, 1 << (byte - 0xd4))?,
        0xd9..=0xdb => {
            let length = length(cursor, byte - 0xd9)?;
            Token::Str(cursor.take(length)?)
        }
        0xdc => Token::Array(u32::from(u16::from_be_bytes(word(cursor)?))),
        0xdd => Token::Array(u32::from_be_bytes(word(cursor)?)),
        0xde => Token::Map(u32::from(u16::from_be_bytes(word(cursor)?))),
        0xdf => Token::Map(u32::from_be_bytes(word(cursor)?)),
    })
}

/// The fault of a byte that does not begin a value.
#[cold]
pub fn reserved(at: usize) -> Fault {
    Fault::new(FaultKind::Message, at as u64, "no MessagePack value begins with the byte c1")
}

/// Skip a value, whose containers may be nested `nesting` levels deep. Returns its bytes.
#[inline]
pub fn skip<'a>(cursor: &mut Cursor<'a>, nesting: usize) -> Result<&'a [u8], Fault> {
    let (rest, start) = (cursor.rest(), cursor.offset());
    if let Token::Array(1..) | Token::Map(1..) = token(cursor)? {
        *cursor = cursor.at(start);
        skip_deep(cursor, nesting)?;
    }
    Ok(rest.get(..cursor.offset().wrapping_sub(start)).unwrap_or_default())
}

fn skip_deep(cursor: &mut Cursor<'_>, nesting: usize) -> Result<(), Fault> {
    // The number of values that are still to come, for each level.
    let mut levels = vec![1u64];
    while let Some(left) = levels.last_mut() {
        if *left == 0 {
            levels.pop();
            continue;
        }
        *left = left.wrapping_sub(1);
        let inner = match token(cursor)? {
            Token::Array(count) => u64::from(count),
            Token::Map(count) => 2 * u64::from(count),
            _ => continue,
        };
        if levels.len() > nesting {
            return Err(too_deep(cursor.offset()));
        }
        levels.push(inner);
    }
    Ok(())
}

/// The fault of containers nested beyond the limit.
#[cold]
pub fn too_deep(at: usize) -> Fault {
    let message = "arrays and maps are nested deeper than the limit nesting";
    Fault::new(FaultKind::Limit, at as u64, message)
}

/// Nanoseconds since 1970 of a timestamp's data; None if they overflow int64, or the data is not a
/// timestamp.
pub fn nanoseconds(data: &[u8]) -> Option<i64> {
    let (seconds, nanos) = match data.len() {
        4 => (i64::try_from(be(data, 0, 4)?).ok()?, 0),
        8 => {
            let word = u64::from_be_bytes(*data.first_chunk::<8>()?);
            ((word & ((1 << 34) - 1)) as i64, (word >> 34) as i64)
        }
        12 => {
            let seconds = i64::from_be_bytes(*data.get(4..)?.first_chunk::<8>()?);
            (seconds, i64::try_from(be(data, 0, 4)?).ok()?)
        }
        _ => return None,
    };
    if nanos > 999_999_999 {
        return None;
    }
    // By way of i128, because the seconds may be below the range until the nanoseconds are added.
    i64::try_from(i128::from(seconds) * 1_000_000_000 + i128::from(nanos)).ok()
}
