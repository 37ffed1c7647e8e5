//! CRC-32, the checksum of zip archives and gzip members.

use crc_fast::{CrcAlgorithm, checksum, checksum_combine};

/// CRC-32 of `data`.
pub fn crc32(data: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32IsoHdlc, data) as u32
}

/// CRC-32 of two concatenated byte strings, of which the second has `second_bytes` bytes.
pub fn joined(first: u32, second: u32, second_bytes: u64) -> u32 {
    if first == 0 {
        return second; // 0 is the checksum of no bytes
    }
    let algorithm = CrcAlgorithm::Crc32IsoHdlc;
    checksum_combine(algorithm, first.into(), second.into(), second_bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_the_known_ones() {
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_checksum_is_joined_from_those_of_the_parts() {
        let data: Vec<u8> = (0..100_000_u32).map(|n| (n * 7 + n / 251) as u8).collect();
        for cut in [0, 1, 7, 4096, 65_537, data.len()] {
            let (front, back) = data.split_at(cut);
            let found = joined(crc32(front), crc32(back), back.len() as u64);
            assert_eq!(found, crc32(&data), "{cut}");
        }
    }
}
