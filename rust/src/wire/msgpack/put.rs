//! Writes MessagePack values, each in its smallest form.

use super::TIMESTAMP;

/// Append the head of a value with a length: the short form, if there is one, otherwise 8, 16 or 32 bits.
#[inline(always)]
fn put_length(out: &mut Vec<u8>, length: u32, short: Option<(u8, u32)>, codes: [u8; 3]) {
    let [one, two, four] = codes;
    match short {
        Some((code, below)) if length < below => out.push(code | length as u8),
        _ if length <= 0xff && one != 0 => out.extend_from_slice(&[one, length as u8]),
        _ if length <= 0xffff => {
            let [a, b] = (length as u16).to_be_bytes();
            out.extend_from_slice(&[two, a, b]);
        }
        _ => {
            out.push(four);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
}

/// Append a str.
#[inline(always)]
pub fn put_str(out: &mut Vec<u8>, text: &[u8]) {
    put_length(out, text.len() as u32, Some((0xa0, 32)), [0xd9, 0xda, 0xdb]);
    out.extend_from_slice(text);
}

/// Append the head of a bin of this many bytes.
#[inline(always)]
pub fn put_bin_head(out: &mut Vec<u8>, length: u32) {
    put_length(out, length, None, [0xc4, 0xc5, 0xc6]);
}

/// Append the head of an array.
#[inline(always)]
pub fn put_array(out: &mut Vec<u8>, count: u32) {
    put_length(out, count, Some((0x90, 16)), [0, 0xdc, 0xdd]);
}

/// Append the head of a map.
#[inline(always)]
pub fn put_map(out: &mut Vec<u8>, count: u32) {
    put_length(out, count, Some((0x80, 16)), [0, 0xde, 0xdf]);
}

/// Append an extension.
pub fn put_ext(out: &mut Vec<u8>, kind: i8, data: &[u8]) {
    match data.len() {
        1 | 2 | 4 | 8 | 16 => out.push(0xd4 + data.len().trailing_zeros() as u8),
        length => put_length(out, length as u32, None, [0xc7, 0xc8, 0xc9]),
    }
    out.push(kind as u8);
    out.extend_from_slice(data);
}

/// Append a timestamp in its smallest form.
pub fn put_timestamp(out: &mut Vec<u8>, seconds: i64, nanos: u32) {
    match u64::try_from(seconds) {
        Ok(seconds) if seconds >> 32 == 0 && nanos == 0 => {
            put_ext(out, TIMESTAMP, &(seconds as u32).to_be_bytes());
        }
        Ok(seconds) if seconds >> 34 == 0 => {
            put_ext(out, TIMESTAMP, &(u64::from(nanos) << 34 | seconds).to_be_bytes());
        }
        _ => {
            let mut data = [0; 12];
            let (head, tail) = data.split_at_mut(4);
            head.copy_from_slice(&nanos.to_be_bytes());
            tail.copy_from_slice(&seconds.to_be_bytes());
            put_ext(out, TIMESTAMP, &data);
        }
    }
}

/// Append an integer in its smallest form, which is unsigned if it is not negative.
#[inline(always)]
pub fn put_int(out: &mut Vec<u8>, value: i64) {
    match value {
        0.. => put_uint(out, value as u64),
        -32..0 => out.push(value as u8),
        -0x80..-32 => out.extend_from_slice(&[0xd0, value as u8]),
        -0x8000..-0x80 => {
            let [a, b] = (value as i16).to_be_bytes();
            out.extend_from_slice(&[0xd1, a, b]);
        }
        -0x8000_0000..-0x8000 => {
            out.push(0xd2);
            out.extend_from_slice(&(value as i32).to_be_bytes());
        }
        _ => {
            out.push(0xd3);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

/// Append an integer that is not negative, in its smallest form.
#[inline(always)]
pub fn put_uint(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x80 => out.push(value as u8),
        0x80..0x100 => out.extend_from_slice(&[0xcc, value as u8]),
        0x100..0x1_0000 => {
            let [a, b] = (value as u16).to_be_bytes();
            out.extend_from_slice(&[0xcd, a, b]);
        }
        0x1_0000..0x1_0000_0000 => {
            out.push(0xce);
            out.extend_from_slice(&(value as u32).to_be_bytes());
        }
        _ => {
            out.push(0xcf);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}
