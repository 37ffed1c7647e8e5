//! Hashes of records, and groups of equal records.
//!
//! A record is hashed as the MessagePack map of its columns, under a key of 256 bits, to 128 bits. The bytes of a map
//! say where each value ends, so records with different values have different bytes.
//!
//! - `Hash::Fast` is HighwayHash (Alakuijala, Cox, Wassenberg 2016; frozen in 2018), three times as fast for short
//!   records. With the same key its hashes are the same for ever and everywhere: `split` depends on that.
//! - `Hash::Secure` is BLAKE3 with a key. If the key is secret, nobody can make two records with one hash: `dedupe`
//!   depends on that, for it would drop the second.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use arrow_array::{Array, StructArray};
use highway::{HighwayHash, HighwayHasher, Key};

use super::encode_msgpack::encode_msgpack;
use crate::wire::{Fault, FaultKind};

/// Bytes of a hash.
pub const HASH_BYTES: usize = 16;

/// Records encoded at a time: few enough for their bytes to stay in the cache.
const BLOCK: usize = 4096;

/// The hash of each record of a batch.
pub fn hash_records(batch: &StructArray, hash: Hash) -> Result<Vec<[u8; HASH_BYTES]>, Fault> {
    let mut hashes = Vec::with_capacity(batch.len());
    for start in (0..batch.len()).step_by(BLOCK) {
        let block = batch.slice(start, BLOCK.min(batch.len().saturating_sub(start)));
        let framed = encode_msgpack(&block).map_err(|fault| counted_from(fault, start))?;
        for buffer in framed.bytes.parts() {
            let mut rest = buffer.as_slice();
            for &length in &framed.lengths {
                let (record, others) = usize::try_from(length)
                    .ok()
                    .and_then(|length| rest.split_at_checked(length))
                    .ok_or_else(|| Fault::new(FaultKind::Schema, 0, "records of other lengths"))?;
                rest = others;
                hashes.push(hash.of(record));
            }
        }
    }
    Ok(hashes)
}

/// A hash function with its key.
#[derive(Clone, Copy)]
pub enum Hash {
    /// HighwayHash.
    Fast([u64; 4]),
    /// BLAKE3.
    Secure([u8; 32]),
}

impl Hash {
    /// The hash of some bytes.
    fn of(&self, record: &[u8]) -> [u8; HASH_BYTES] {
        match self {
            Self::Fast(key) => {
                let [low, high] = HighwayHasher::new(Key(*key)).hash128(record);
                (u128::from(low) | (u128::from(high) << 64)).to_le_bytes()
            }
            Self::Secure(key) => {
                let mut hash = [0; HASH_BYTES];
                for (to, from) in hash.iter_mut().zip(blake3::keyed_hash(key, record).as_bytes()) {
                    *to = *from;
                }
                hash
            }
        }
    }
}

fn counted_from(mut fault: Fault, start: usize) -> Fault {
    fault.record = fault.record.map(|record| record.saturating_add(start));
    fault
}

/// Numbers for equal records: 0 for the first record and all that equal it, 1 for the next other one.
/// It takes about 32 bytes of memory for each number.
#[derive(Default)]
pub struct Groups(HashMap<Known, i64, BuildHasherDefault<Own>>);

/// A hash, which needs no hashing.
#[derive(PartialEq, Eq)]
struct Known(u64, u64);

impl std::hash::Hash for Known {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// The first half of a hash as the hash of a table.
#[derive(Default)]
struct Own(u64);

impl Hasher for Own {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

impl Groups {
    /// The numbers of some records, given as their hashes one after another.
    pub fn of(&mut self, hashes: &[u8]) -> Vec<i64> {
        let (hashes, _) = hashes.as_chunks::<HASH_BYTES>();
        let mut numbers = Vec::with_capacity(hashes.len());
        for hash in hashes {
            let whole = u128::from_le_bytes(*hash);
            let next = self.0.len() as i64;
            numbers.push(*self.0.entry(Known(whole as u64, (whole >> 64) as u64)).or_insert(next));
        }
        numbers
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, StructArray};
    use arrow_schema::{DataType, Field};

    use super::*;

    fn batch(values: Vec<Option<i64>>) -> StructArray {
        let field = Arc::new(Field::new("0", DataType::Int64, true));
        StructArray::from(vec![(field, Arc::new(Int64Array::from(values)) as ArrayRef)])
    }

    #[test]
    fn equal_records_have_equal_hashes_wherever_they_are() {
        let many = batch((0..10_000).map(|n| (n % 7 > 0).then_some(n % 7)).collect());
        let hashes = hash_records(&many, Hash::Secure([1; 32])).unwrap();
        assert_eq!(hashes.len(), 10_000);
        assert!(hashes.iter().zip(&hashes[7..]).all(|(one, other)| one == other));
        let one = hash_records(&batch(vec![Some(3)]), Hash::Secure([1; 32])).unwrap();
        assert_eq!(one[0], hashes[3]);
        assert_ne!(one, hash_records(&batch(vec![Some(3)]), Hash::Secure([2; 32])).unwrap());
    }

    #[test]
    fn hashes_never_change() {
        // Of the MessagePack map {"0": 5}.
        let map = [0x81, 0xa1, b'0', 5];
        let fast = hash_records(&batch(vec![Some(5)]), Hash::Fast([7, 0, 0, 0])).unwrap();
        let [low, high] = HighwayHasher::new(Key([7, 0, 0, 0])).hash128(&map);
        assert_eq!(fast[0], (u128::from(low) | (u128::from(high) << 64)).to_le_bytes());
        let secure = hash_records(&batch(vec![Some(5)]), Hash::Secure([9; 32])).unwrap();
        assert_eq!(secure[0], blake3::keyed_hash(&[9; 32], &map).as_bytes()[..HASH_BYTES]);
    }

    #[test]
    fn groups_are_numbered_as_they_are_first_seen() {
        let mut groups = Groups::default();
        let hashes =
            hash_records(&batch(vec![Some(9), None, Some(9), Some(1)]), Hash::Fast([0; 4]))
                .unwrap();
        assert_eq!(groups.of(hashes.as_flattened()), [0, 1, 0, 2]);
        assert_eq!(groups.of(hashes.as_flattened()), [0, 1, 0, 2]);
        assert_eq!(groups.len(), 3);
    }
}
