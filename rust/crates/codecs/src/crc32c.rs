//! CRC-32C (Castagnoli), and the mask with which TFRecord stores it.
//!
//! The speed of a scan depends mostly on short payloads. If the CPU has 64-byte carry-less
//! products, `wide` uses them. Otherwise a loop uses its CRC instruction, which has no set-up cost
//! and lets consecutive records overlap in the pipeline. For long data, `crc-fast` computes many
//! such products in parallel.

#[cfg(target_arch = "x86_64")]
mod wide;

use crc_fast::{CrcAlgorithm, Digest, checksum};

use super::prefetch::prefetch;

const MASK_DELTA: u32 = 0xa282_ead8;
/// From this length on, the folding of `crc-fast` is faster than the CRC instruction.
const FOLD_BYTES: usize = 512;
/// From this length on memory is prefetched, one piece at a time.
const FAR_BYTES: usize = 16 << 10;
const PIECE_BYTES: usize = 8 << 10;

/// CRC-32C of `data`.
#[inline]
pub fn crc32c(data: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if data.len() < wide::WIDE_BYTES && wide::is_here() {
        // SAFETY: the instruction sets were found at run time.
        return unsafe { wide::crc32c(data) };
    }
    #[cfg(target_arch = "x86_64")]
    if data.len() < FOLD_BYTES && has_sse42() {
        // SAFETY: the instruction set was found at run time.
        return unsafe { short(0, data) };
    }
    folded(data)
}

/// CRC-32C by folding. Long data mostly comes from memory, so each piece is prefetched as a whole:
/// the hardware prefetcher stops at page boundaries.
fn folded(data: &[u8]) -> u32 {
    if data.len() < FAR_BYTES {
        return checksum(CrcAlgorithm::Crc32Iscsi, data) as u32;
    }
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for piece in data.chunks(PIECE_BYTES) {
        prefetch(piece, 0, piece.len());
        digest.update(piece);
    }
    digest.finalize() as u32
}

/// The index of the first byte string whose masked checksum differs from the stored one.
///
/// The same as comparing one by one, but CPU features are detected only once, and the loop over short
/// strings is inlined.
#[inline]
pub fn first_mismatch<'a>(items: impl Iterator<Item = (&'a [u8], u32)>) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    if wide::is_here() {
        // SAFETY: the instruction sets were found at run time.
        return unsafe { first_mismatch_wide(items) };
    }
    #[cfg(target_arch = "x86_64")]
    if has_sse42() {
        // SAFETY: the instruction set was found at run time.
        return unsafe { first_mismatch_sse42(items) };
    }
    items.enumerate().find(|(_, (data, stored))| mask(crc32c(data)) != *stored).map(|(at, _)| at)
}

/// Push the masked checksums of some byte strings.
#[inline]
pub fn masked<'a>(items: impl Iterator<Item = &'a [u8]>, found: &mut Vec<u32>) {
    #[cfg(target_arch = "x86_64")]
    if wide::is_here() {
        // SAFETY: the instruction sets were found at run time.
        return unsafe { masked_wide(items, found) };
    }
    found.extend(items.map(|data| mask(crc32c(data))));
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,sse4.2")]
fn masked_wide<'a>(items: impl Iterator<Item = &'a [u8]>, found: &mut Vec<u32>) {
    for data in items {
        found.push(mask(wide::crc32c(data)));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,sse4.2")]
fn first_mismatch_wide<'a>(items: impl Iterator<Item = (&'a [u8], u32)>) -> Option<usize> {
    // This is a loop because `position` is compiled for every CPU and would not inline the
    // checksum.
    for (at, (data, stored)) in items.enumerate() {
        if mask(wide::crc32c(data)) != stored {
            return Some(at);
        }
    }
    None
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
fn first_mismatch_sse42<'a>(items: impl Iterator<Item = (&'a [u8], u32)>) -> Option<usize> {
    let mut group: [&[u8]; LANES] = [&[]; LANES];
    let mut wanted = [0u32; LANES];
    let mut filled = 0;
    let mut done = 0usize;
    for (data, stored) in items {
        if let (Some(place), Some(want)) = (group.get_mut(filled), wanted.get_mut(filled)) {
            (*place, *want) = (data, stored);
            filled = filled.wrapping_add(1);
        }
        if filled == LANES {
            let found = if group.iter().all(|d| LANE_BYTES.contains(&d.len())) {
                in_lanes(group)
            } else {
                group.map(|data| any_length(data))
            };
            if let Some(at) = found.iter().zip(&wanted).position(|(crc, want)| mask(*crc) != *want)
            {
                return Some(done.wrapping_add(at));
            }
            done = done.wrapping_add(LANES);
            filled = 0;
        }
    }
    let mut rest = group.iter().zip(&wanted).take(filled);
    rest.position(|(data, want)| mask(any_length(data)) != *want).map(|at| done.wrapping_add(at))
}

/// The number of strings whose checksums are computed in parallel.
#[cfg(target_arch = "x86_64")]
const LANES: usize = 4;
/// The lengths of such strings.
#[cfg(target_arch = "x86_64")]
const LANE_BYTES: std::ops::Range<usize> = 16..FOLD_BYTES;

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
fn any_length(data: &[u8]) -> u32 {
    if data.len() < FOLD_BYTES { short(0, data) } else { folded(data) }
}

/// The checksums of some strings with lengths in `LANE_BYTES`.
///
/// For a single string, each instruction waits three cycles for the previous one, and the branches for odd
/// bytes and for the end are unpredictable. So all strings advance in step, without branches for a
/// single string. The odd bytes of a string go first, in one word after zeros, which leave a zero
/// state unchanged. In the last steps, a string that has ended keeps its state.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
fn in_lanes(strings: [&[u8]; LANES]) -> [u32; LANES] {
    use std::arch::x86_64::_mm_crc32_u64;

    let mut states = [0u64; LANES];
    let mut words: [&[[u8; 8]]; LANES] = [&[]; LANES];
    for ((state, words), data) in states.iter_mut().zip(&mut words).zip(strings) {
        let odd = (data.len().wrapping_sub(1) & 7).wrapping_add(1); // 1 to 8
        let odd_bits = (odd as u32).wrapping_mul(8);
        let (first, _) = data.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        // The usual initial value, 32 set bits, goes into the first four bytes instead.
        let first = (u64::from_le_bytes(*first) ^ 0xffff_ffff) << 64u32.wrapping_sub(odd_bits);
        let after = 0xffff_ffff_u64 >> odd_bits.wrapping_sub(8) >> 8;
        let rest = data.get(odd..).unwrap_or_default().as_chunks::<8>().0;
        let (second, rest) = rest.split_first().unwrap_or((&[0; 8], &[]));
        *state = _mm_crc32_u64(0, first);
        *state = _mm_crc32_u64(*state, u64::from_le_bytes(*second) ^ after);
        *words = rest;
    }
    let common = words.iter().map(|w| w.len()).min().unwrap_or_default();
    let longest = words.iter().map(|w| w.len()).max().unwrap_or_default();
    let [a, b, c, d] = words;
    for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
        for (state, word) in states.iter_mut().zip([a, b, c, d]) {
            *state = _mm_crc32_u64(*state, u64::from_le_bytes(*word));
        }
    }
    for step in common..longest {
        for (state, words) in states.iter_mut().zip(&words) {
            let there = words.get(step.min(words.len().wrapping_sub(1))).unwrap_or(&[0; 8]);
            let next = _mm_crc32_u64(*state, u64::from_le_bytes(*there));
            let keep = u64::from(step < words.len()).wrapping_neg();
            *state = (next & keep) | (*state & !keep);
        }
    }
    let [a, b, c, d] = states;
    [!(a as u32), !(b as u32), !(c as u32), !(d as u32)]
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn has_sse42() -> bool {
    std::arch::is_x86_feature_detected!("sse4.2")
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
fn short(before: u32, data: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};

    let (words, mut rest) = data.as_chunks::<8>();
    let mut wide = u64::from(!before);
    for word in words {
        wide = _mm_crc32_u64(wide, u64::from_le_bytes(*word));
    }
    let mut crc = wide as u32;
    if let Some((word, after)) = rest.split_first_chunk::<4>() {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*word));
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<2>() {
        crc = _mm_crc32_u16(crc, u16::from_le_bytes(*word));
        rest = after;
    }
    if let Some(byte) = rest.first() {
        crc = _mm_crc32_u8(crc, *byte);
    }
    !crc
}

/// CRC-32C of some bytes followed by `data`. `before` is the checksum of those bytes.
#[inline]
pub fn extend(before: u32, data: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if data.len() < FOLD_BYTES && has_sse42() {
        // SAFETY: the instruction set was found at run time.
        return unsafe { short(before, data) };
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(data);
    digest.finalize() as u32
}

/// Extend a payload's stored checksum over the `data` after it. The payload is not read: if `stored` was
/// wrong, the result is wrong.
#[inline]
pub fn extend_stored(stored: u32, data: &[u8]) -> u32 {
    mask(extend(unmask(stored), data))
}

/// CRC-32C of the eight bytes of a frame's length.
#[inline]
pub fn crc32c_u64(value: u64) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if has_sse42() {
        let mut state = u64::from(u32::MAX);
        // SAFETY: the instruction was found at run time. Its intrinsic would be a call for each record,
        // from code that is compiled for every CPU.
        unsafe {
            std::arch::asm!(
                "crc32 {state}, {value}",
                state = inout(reg) state,
                value = in(reg) value,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        return !(state as u32);
    }
    crc32c(&value.to_le_bytes())
}

/// The stored form of a checksum.
#[inline]
pub fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

/// The checksum of a stored form.
#[inline]
pub fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(MASK_DELTA).rotate_left(15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_vectors_match() {
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(mask(crc32c(b"")), 0xa282_ead8);
        assert_eq!(mask(crc32c_u64(5)), 0x3e04_b2ea);
        assert_eq!(crc32c_u64(u64::MAX - 5), crc32c(&(u64::MAX - 5).to_le_bytes()));
        assert_eq!(unmask(mask(0x1234_5678)), 0x1234_5678);
    }

    /// The first mismatch on every code path of this machine, which must agree.
    fn first_by_all(data: &[&[u8]], stored: &[u32]) -> Option<usize> {
        let items = || data.iter().copied().zip(stored.iter().copied());
        let found = first_mismatch(items());
        #[cfg(target_arch = "x86_64")]
        if has_sse42() {
            // SAFETY: the instruction set was found.
            assert_eq!(unsafe { first_mismatch_sse42(items()) }, found);
        }
        #[cfg(target_arch = "x86_64")]
        if wide::is_here() {
            // SAFETY: the instruction sets were found.
            assert_eq!(unsafe { first_mismatch_wide(items()) }, found);
        }
        found
    }

    #[test]
    fn the_first_mismatch_is_found_among_short_and_long() {
        let data = [0, 3, 100, 511, 512, 1023, 1024, 5000].map(|n| &[7u8; 5000][..n]);
        let right: Vec<u32> = data.iter().map(|d| mask(crc32c(d))).collect();
        assert_eq!(first_by_all(&data, &right), None);
        for at in 0..data.len() {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            assert_eq!(first_by_all(&data, &wrong), Some(at));
        }
    }

    #[test]
    fn strings_side_by_side_have_their_own_checksums() {
        let bytes: Vec<u8> = (0..4000u32).map(|i| (i * 167 % 251) as u8).collect();
        let data: Vec<&[u8]> =
            (0..2000).map(|i| bytes.get(i..i + 14 + i * 37 % 520).unwrap()).collect();
        let mut stored: Vec<u32> = data.iter().map(|d| mask(crc32c(d))).collect();
        for strings in [1, 3, 4, 2000] {
            assert_eq!(first_by_all(&data[..strings], &stored), None);
        }
        for at in [1999, 1998, 1001, 6, 0] {
            stored[at] ^= 0x8000;
            assert_eq!(first_by_all(&data, &stored), Some(at));
        }
    }

    #[test]
    fn an_extended_checksum_is_that_of_the_whole() {
        let data: Vec<u8> = (0..3000u32).map(|i| (i % 253) as u8).collect();
        for cut in 0..=data.len() {
            let (old, new) = data.split_at(cut);
            assert_eq!(extend(crc32c(old), new), crc32c(&data), "{cut}");
            assert_eq!(extend_stored(mask(crc32c(old)), new), mask(crc32c(&data)), "{cut}");
        }
        let pieces = data.chunks(700).fold(0, extend);
        assert_eq!(pieces, crc32c(&data));
    }

    #[test]
    fn a_wrong_checksum_stays_wrong_when_it_is_extended() {
        for bit in 0..32 {
            let wrong = mask(crc32c(b"old")) ^ (1 << bit);
            for new in [b"".as_slice(), b"n", &[0; 600]] {
                let whole = [b"old", new].concat();
                assert_ne!(extend_stored(wrong, new), mask(crc32c(&whole)));
            }
        }
    }

    /// The oracle: the remainder by Castagnoli's polynomial, bit by bit.
    fn bit_by_bit(state: u32, byte: u8) -> u32 {
        (0..8).fold(state ^ u32::from(byte), |state, _| (state >> 1) ^ (0x82f6_3b78 * (state & 1)))
    }

    #[test]
    fn every_length_agrees_with_the_oracle() {
        let data: Vec<u8> = (0..2000u32).map(|i| (i * 31 % 251) as u8).collect();
        let mut state = u32::MAX;
        for length in 0..data.len() {
            assert_eq!(crc32c(&data[..length]), !state, "{length} bytes");
            assert_eq!(extend(0, &data[..length]), !state, "{length} bytes");
            assert_eq!(folded(&data[..length]), !state, "{length} bytes");
            state = bit_by_bit(state, data[length]);
        }
        let mut found = vec![7];
        masked((0..data.len()).map(|length| &data[..length]), &mut found);
        let right = (0..data.len()).map(|length| mask(crc32c(&data[..length])));
        assert_eq!(found, [7].into_iter().chain(right).collect::<Vec<_>>());
    }
}
