//! NumPy arrays in MessagePack, as `msgpack-numpy` writes them: a map of five keys.
//!
//! ```text
//! nd     true for an array, false for a single number
//! type   dtype string, such as "<f4"
//! kind   empty; "V" for structured dtypes, "O" for pickled objects
//! shape  array of integers
//! data   bin, the values in C order
//! ```
//!
//! Keys are bin; str is accepted too. Anything but an array of plain numbers counts as odd. The data of
//! object arrays is a pickle and is never read.

use super::cursor::Cursor;
use super::msgpack::{Token, put_array, put_bin_head, put_str, put_uint, skip, token};

/// The kind of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One byte each, 0 or 1.
    Bool,
    /// Signed.
    Int,
    /// Unsigned.
    UInt,
    /// IEEE 754.
    Float,
}

/// The type of an array's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtype {
    /// Their kind.
    pub kind: Kind,
    /// Bytes of each.
    pub size: usize,
}

impl Dtype {
    /// A dtype string, and whether its bytes must be swapped.
    pub fn parse(text: &[u8]) -> Option<(Self, bool)> {
        let &[order, kind, size] = text else { return None };
        let (kind, sizes): (_, &[u8]) = match kind {
            b'b' => (Kind::Bool, b"1"),
            b'i' => (Kind::Int, b"1248"),
            b'u' => (Kind::UInt, b"1248"),
            b'f' => (Kind::Float, b"248"),
            _ => return None,
        };
        if !sizes.contains(&size) || !b"<>|=".contains(&order) {
            return None;
        }
        Some((Self { kind, size: usize::from(size - b'0') }, order == b'>'))
    }

    /// The dtype string for its bytes in native order.
    pub fn text(self) -> [u8; 3] {
        let kind = match self.kind {
            Kind::Bool => b'b',
            Kind::Int => b'i',
            Kind::UInt => b'u',
            Kind::Float => b'f',
        };
        [if self.size == 1 { b'|' } else { b'<' }, kind, b'0'.wrapping_add(self.size as u8)]
    }
}

/// An array of plain numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumpyArray<'a> {
    /// The type of its numbers.
    pub dtype: Dtype,
    /// Whether they are big endian.
    pub swapped: bool,
    /// Its axes; empty for a single number.
    pub shape: Vec<u32>,
    /// The values in C order.
    pub data: &'a [u8],
}

/// The kind of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// An array of plain numbers.
    Array(NumpyArray<'a>),
    /// An array of other values, or one that contradicts itself.
    Odd,
    /// Any other map.
    Other,
}

/// Read a value that may be a map of an array.
pub fn numpy_map(value: &[u8]) -> Found<'_> {
    let mut cursor = Cursor::new(value);
    let Ok(Token::Map(count @ 3..=5)) = token(&mut cursor) else { return Found::Other };
    match array(&mut cursor, count) {
        Some((nd, Some(array))) if nd || array.shape.is_empty() => Found::Array(array),
        Some(_) => Found::Odd,
        None => Found::Other,
    }
}

/// The value of `nd`, and the array. None for a map with other keys, or without `nd`, `type` or `data`.
fn array<'a>(cursor: &mut Cursor<'a>, count: u32) -> Option<(bool, Option<NumpyArray<'a>>)> {
    let (mut nd, mut dtype, mut shape, mut data) = (None, None, Some(Vec::new()), None);
    let mut plain = true;
    for _ in 0..count {
        let (Token::Str(key) | Token::Bin(key)) = token(cursor).ok()? else { return None };
        let value = Cursor::new(skip(cursor, 2).ok()?);
        match (key, token(&mut value.clone()).ok()?) {
            (b"nd", Token::Bool(value)) => nd = Some(value),
            (b"type", Token::Str(text) | Token::Bin(text)) => dtype = Some(Dtype::parse(text)),
            (b"type", _) => dtype = Some(None),
            (b"kind", Token::Str(b"") | Token::Bin(b"")) => {}
            (b"kind", _) => plain = false,
            (b"shape", _) => shape = axes(value),
            (b"data", Token::Bin(bytes)) => data = Some(bytes),
            (b"data", _) => plain = false,
            _ => return None,
        }
    }
    let (nd, dtype) = (nd?, dtype?);
    let found = (|| {
        let ((dtype, swapped), shape, data) = (dtype?, shape?, data?);
        let bytes = shape.iter().try_fold(dtype.size, |n, &axis| n.checked_mul(axis as usize))?;
        (bytes == data.len() && plain).then_some(NumpyArray { dtype, swapped, shape, data })
    })();
    Some((nd, found))
}

/// The maximum number of axes in NumPy.
const MAX_AXES: u32 = 64;

fn axes(mut cursor: Cursor<'_>) -> Option<Vec<u32>> {
    let Ok(Token::Array(count @ 0..=MAX_AXES)) = token(&mut cursor) else { return None };
    let axis = |_| match token(&mut cursor) {
        Ok(Token::Int(axis @ 0..=0x7fff_ffff)) => Some(axis as u32),
        _ => None,
    };
    (0..count).map(axis).collect()
}

/// Append the map of an array up to its data; the caller appends the data.
pub fn put_numpy_head(
    out: &mut Vec<u8>,
    dtype: Dtype,
    shape: impl ExactSizeIterator<Item = u32>,
    bytes: u32,
) {
    out.extend_from_slice(b"\x85\xc4\x02nd\xc3\xc4\x04type");
    put_str(out, &dtype.text());
    out.extend_from_slice(b"\xc4\x04kind\xc4\x00\xc4\x05shape");
    put_array(out, shape.len() as u32);
    shape.for_each(|axis| put_uint(out, u64::from(axis)));
    out.extend_from_slice(b"\xc4\x04data");
    put_bin_head(out, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_written_as_it_is_read() {
        let dtype = Dtype::parse(b"<f4").unwrap().0;
        let mut out = Vec::new();
        put_numpy_head(&mut out, dtype, [1, 2].into_iter(), 8);
        out.extend_from_slice(&[7; 8]);
        let Found::Array(array) = numpy_map(&out) else { panic!() };
        assert_eq!((array.dtype, array.shape, array.data), (dtype, vec![1, 2], &[7; 8][..]));
        for end in 0..out.len() {
            assert_eq!(numpy_map(&out[..end]), Found::Other, "{end}");
        }
    }

    #[test]
    fn a_map_that_contradicts_itself_is_odd() {
        let dtype = Dtype::parse(b">i2").unwrap().0;
        let mut out = Vec::new();
        put_numpy_head(&mut out, dtype, [3].into_iter(), 4);
        out.extend_from_slice(&[7; 4]);
        assert_eq!(numpy_map(&out), Found::Odd);
        let objects = b"\x85\xc4\x02nd\xc3\xc4\x04type\xa2|O\xc4\x04kind\xc4\x01O\xc4\x05shape\x90\xc4\x04data\xc4\x00";
        assert_eq!(numpy_map(objects), Found::Odd);
        assert_eq!(numpy_map(b"\x83\xa1a\x01\xa1b\x02\xa1c\x03"), Found::Other);
    }
}
