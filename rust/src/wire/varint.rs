//! Base-128 varints, as protobuf writes them.

/// The value at the front of `data` and the bytes it takes, or None if it does not end within
/// them or within ten bytes. Bits beyond 64 are dropped, as protobuf does.
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

/// How many bytes `value` takes.
#[inline]
pub fn len(value: u64) -> usize {
    // Each byte carries seven bits; zero still takes one byte. 9/64 is near enough to 1/7 for 64 bits.
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
            }
        }
    }

    #[test]
    fn eleven_bytes_and_cut_ones_are_refused() {
        assert_eq!(read(&[0x80; 11]), None);
        assert_eq!(read(&[0x80]), None);
        assert_eq!(read(&[]), None);
    }
}
