//! Riegeli/records: chunks with a head each, interrupted by a block header at every 64 KiB of the file.
//!
//! | bytes | block header | bytes | chunk head |
//! |---|---|---|---|
//! | 8 | hash of the other 16 | 8 | hash of the other 32 |
//! | 8 | bytes from the chunk's start to here | 8 | bytes of data |
//! | 8 | bytes from here to the chunk's end | 8 | hash of the data |
//! | | | 1 | kind of chunk |
//! | | | 7 | number of records |
//! | | | 8 | bytes of the records, decoded |
//!
//! Numbers are little endian; hashes are HighwayHash-64 with a fixed key. A block header can be anywhere in
//! a chunk, also in its head.

use highway::{HighwayHash, HighwayHasher, Key};

use super::cursor::Cursor;
use super::{Fault, FaultKind};

/// There is a block header at every multiple of this.
pub const BLOCK: u64 = 1 << 16;
/// Bytes of a block header.
pub const BLOCK_HEAD: usize = 24;
/// Bytes of a chunk's head.
pub const CHUNK_HEAD: usize = 40;
const HASH_BYTES: usize = 8;

/// "Riegeli/" and "records\n", twice.
const KEY: [u64; 4] =
    [0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572, 0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572];

/// The hash of the concatenation of some pieces.
pub fn hash(pieces: &[&[u8]]) -> u64 {
    let mut hasher = HighwayHasher::new(Key(KEY));
    pieces.iter().for_each(|piece| hasher.append(piece));
    hasher.finalize64()
}

/// The header before a chunk's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// `r` for records one after another, `t` for transposed records, and other kinds without records.
    pub kind: u8,
    /// Bytes of data.
    pub data_size: u64,
    /// Their hash.
    pub data_hash: u64,
    /// Records in the chunk.
    pub num_records: u64,
    /// Bytes of the records, decoded.
    pub decoded_size: u64,
}

/// Reads a chunk from its start, skipping the block headers in it.
pub struct Blocks<'a> {
    data: &'a [u8],
    at: usize,
    base: u64,
    begin: u64,
}

impl<'a> Blocks<'a> {
    /// At the chunk that starts at `data[0]`, which is the byte `offset` of its file.
    pub fn new(data: &'a [u8], offset: u64) -> Self {
        Self { data, at: 0, base: offset, begin: offset }
    }

    /// Offset in the file of the next read.
    pub fn offset(&self) -> u64 {
        self.base.saturating_add(self.at as u64)
    }

    fn rest(&self) -> &'a [u8] {
        self.data.get(self.at..).unwrap_or_default()
    }

    #[cold]
    fn cut(&self, missing: u64) -> Fault {
        let left = self.rest().len() as u64;
        Fault::new(FaultKind::Truncated, self.offset(), "the file ends inside a chunk")
            .values(missing, left)
    }

    /// Skip the block header here.
    fn pass_header(&mut self) -> Result<(), Fault> {
        let place = self.offset();
        let Some(header) = self.rest().get(..BLOCK_HEAD) else {
            return Err(self.cut(BLOCK_HEAD as u64));
        };
        let mut cursor = Cursor::new(header);
        let stored = cursor.u64_le()?;
        let found = hash(&[cursor.rest()]);
        if stored != found {
            let message = "the hash of a block header does not match";
            return Err(Fault::new(FaultKind::LengthChecksum, place, message).values(stored, found));
        }
        let (before, expected) = (cursor.u64_le()?, place.saturating_sub(self.begin));
        if before != expected {
            let message = "a block header belongs to another chunk";
            return Err(Fault::new(FaultKind::Structure, place, message).values(expected, before));
        }
        self.at = self.at.saturating_add(BLOCK_HEAD);
        Ok(())
    }

    /// The next `length` bytes, in the pieces into which block headers split them.
    pub fn take(&mut self, length: u64, pieces: &mut Vec<&'a [u8]>) -> Result<(), Fault> {
        let mut missing = length;
        while missing > 0 {
            if self.offset().is_multiple_of(BLOCK) {
                self.pass_header()?;
            }
            let in_block = BLOCK.saturating_sub(self.offset() % BLOCK);
            let step = missing.min(in_block) as usize; // at most a block
            let Some(piece) = self.rest().get(..step) else {
                return Err(self.cut(missing));
            };
            pieces.push(piece);
            self.at = self.at.saturating_add(step);
            missing = missing.saturating_sub(step as u64);
        }
        Ok(())
    }

    /// The head of the chunk.
    pub fn head(&mut self) -> Result<Head, Fault> {
        let place = self.offset();
        let mut pieces = Vec::new();
        self.take(CHUNK_HEAD as u64, &mut pieces)?;
        let bytes = pieces.concat();
        let mut cursor = Cursor::new(&bytes);
        let stored = cursor.u64_le()?;
        let found = hash(&[cursor.rest()]);
        if stored != found {
            let message = "the hash of a chunk's head does not match";
            return Err(Fault::new(FaultKind::LengthChecksum, place, message).values(stored, found));
        }
        let (data_size, data_hash) = (cursor.u64_le()?, cursor.u64_le()?);
        let kind_and_count = cursor.u64_le()?;
        debug_assert_eq!(cursor.offset(), HASH_BYTES * 4);
        Ok(Head {
            kind: kind_and_count as u8,
            data_size,
            data_hash,
            num_records: kind_and_count >> 8,
            decoded_size: cursor.u64_le()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first 64 bytes of every file: a block header, and the head of an empty chunk.
    pub const SIGNATURE: [u8; 64] = {
        let mut bytes = [0; 64];
        let words: [u64; 8] = [
            0x3f4a_880d_d170_af83,
            0,
            0x40,
            0xa9e1_8792_3cc2_ba91,
            0,
            0x72c3_b1e9_c013_9fe1,
            0x73,
            0,
        ];
        let mut at = 0;
        while at < 64 {
            bytes[at] = words[at / 8].to_le_bytes()[at % 8];
            at += 1;
        }
        bytes
    };

    #[test]
    fn the_signature_has_right_hashes() {
        let mut blocks = Blocks::new(&SIGNATURE, 0);
        let head = blocks.head().unwrap();
        assert_eq!((head.kind, head.data_size, head.num_records), (b's', 0, 0));
        assert_eq!(blocks.offset(), 64);
        assert_eq!(hash(&[]), head.data_hash);
    }

    #[test]
    fn every_flipped_bit_of_the_signature_is_seen() {
        for bit in 0..512 {
            if (192 + 128..192 + 192).contains(&bit) {
                continue; // the hash detects this too, but as a fault of the data
            }
            let mut bytes = SIGNATURE;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Blocks::new(&bytes, 0).head().is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_cut_chunk_is_an_error_with_its_place() {
        for length in 0..64 {
            let fault = Blocks::new(&SIGNATURE[..length], 0).head().unwrap_err();
            assert_eq!(fault.kind, FaultKind::Truncated);
        }
    }
}
