//! Length-delimited fields of protobuf in the encoding that common writers produce.

use super::varint;

/// The length of `entry`, with the bytes of its head, if `b` starts with a field that has this tag and a
/// short length. Short means below 2^14, which covers keys, tags and most values.
#[inline(always)]
fn short_field(b: &[u8], tag: u8) -> Option<(usize, usize)> {
    match *b {
        [t, length, ..] if t == tag && length < 0x80 => Some((usize::from(length), 2)),
        [t, low, high, ..] if t == tag && high < 0x80 => {
            Some((usize::from(low & 0x7f) | usize::from(high) << 7, 3))
        }
        _ => None,
    }
}

/// The contents of a field with this tag at the front of `b`, and the bytes after it.
#[inline(always)]
pub fn split_field(b: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    if let Some((length, head)) = short_field(b, tag) {
        return b.get(head..)?.split_at_checked(length);
    }
    let (first, rest) = b.split_first()?;
    if *first != tag {
        return None;
    }
    let (length, head) = varint::read(rest)?;
    rest.get(head..)?.split_at_checked(usize::try_from(length).ok()?)
}

/// The contents of a field with this tag that fills `b`.
#[inline(always)]
pub fn only_field(b: &[u8], tag: u8) -> Option<&[u8]> {
    match split_field(b, tag) {
        Some((contents, [])) => Some(contents),
        _ => None,
    }
}
