//! Base-128 varints, as protobuf writes them.

use super::{Fault, FaultKind};

/// The fault of a varint that begins at this byte.
#[cold]
pub fn endless(at: u64) -> Fault {
    Fault::new(FaultKind::Message, at, "varint does not end")
}

/// The value at the front of `data` and its number of bytes, or None if it does not end within `data` or
/// within ten bytes. Bits beyond 64 are dropped, as in protobuf.
#[inline]
pub fn read(data: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (at, &byte) in data.iter().take(10).enumerate() {
        let shift = 7 * at as u32;
        value |= u64::from(byte & 0x7f).wrapping_shl(shift);
        if byte < 0x80 {
            return Some((value, at + 1));
        }
    }
    None
}

/// The same for a varint that ends within the eight bytes of `word`, the first of which is the lowest. No
/// branch depends on its length, which differs from value to value.
#[inline(always)]
pub fn in_word(word: u64) -> Option<(u64, usize)> {
    let ends = !word & 0x8080_8080_8080_8080;
    if ends == 0 {
        return None;
    }
    // All bits up to the end of the last byte, then groups of seven are joined to fourteen, and so on.
    let sevens = word & (ends ^ ends.wrapping_sub(1)) & 0x7f7f_7f7f_7f7f_7f7f;
    let pairs = sevens & 0x007f_007f_007f_007f | sevens >> 1 & 0x3f80_3f80_3f80_3f80;
    let fours = pairs & 0x0000_3fff_0000_3fff | pairs >> 2 & 0x0fff_c000_0fff_c000;
    let value = fours & 0x0fff_ffff | fours >> 4 & 0x00ff_ffff_f000_0000;
    Some((value, ends.trailing_zeros() as usize / 8 + 1))
}

/// Fewer than eight bytes as a word, with the first as the lowest, and zeros after them.
#[inline(always)]
pub fn word(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let last = u64::from(u32::from_le_bytes(*last));
        return u64::from(u32::from_le_bytes(*first)) | last << (8 * (length & 7) - 32);
    }
    let first = bytes.first_chunk::<2>().map_or(0, |first| u16::from_le_bytes(*first));
    let last = bytes.last().map_or(0, |&last| u64::from(last) << (8 * (length & 7) - 8));
    u64::from(first) | last
}

/// The number of bytes that `value` takes.
#[inline]
pub fn len(value: u64) -> usize {
    // Each byte has seven bits, and zero takes one byte. For up to 64 bits, 9/64 is close enough to 1/7.
    let num_bits = 64 - (value | 1).leading_zeros() as usize;
    (num_bits * 9 + 64) / 64
}

/// Append `value`.
#[inline]
pub fn write(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_read_back_with_their_length() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                write(&mut out, value);
                assert_eq!(out.len(), len(value));
                assert_eq!(read(&out), Some((value, out.len())));
                let in_eight = (out.len() <= 8).then_some((value, out.len()));
                for behind in [0, 0x80, 0xff] {
                    out.resize(out.len().max(8), behind);
                    assert_eq!(in_word(u64::from_le_bytes(*out.first_chunk().unwrap())), in_eight);
                    out.truncate(len(value));
                }
            }
        }
    }

    #[test]
    fn a_few_bytes_are_a_word_with_zeros_behind() {
        let bytes = [0x81, 0x92, 0xa3, 0xb4, 0xc5, 0xd6, 0xe7];
        for length in 0..8 {
            let mut eight = [0; 8];
            eight[..length].copy_from_slice(&bytes[..length]);
            assert_eq!(word(&bytes[..length]), u64::from_le_bytes(eight));
        }
    }

    #[test]
    fn eleven_bytes_and_cut_ones_are_refused() {
        assert_eq!(read(&[0x80; 11]), None);
        assert_eq!(read(&[0x80]), None);
        assert_eq!(read(&[]), None);
    }
}
