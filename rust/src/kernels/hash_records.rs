//! Hashes of records, and groups of equal records.
//!
//! A record is hashed as the MessagePack map of its columns. The bytes of a map say where each value ends, so records
//! with different values have different bytes.
//!
//! - `draws` are computed like the keys of orders (`permute::key_of`), which takes a fifth of the
//!   time of BLAKE3 for short records. They must never change, on any machine, because `split`
//!   depends on them.
//! - `secure_hashes` are BLAKE3 with a key. If the key is secret, nobody can make two different
//!   records with the same hash. `dedupe` depends on that, because it would drop the second record.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use arrow_array::{Array, StructArray};

use super::encode_msgpack::encode_msgpack;
use super::permute::{absorb, key_of};
use crate::wire::{Fault, FaultKind};

/// Bytes of a hash.
pub const HASH_BYTES: usize = 16;

/// The number of records that are encoded at a time: few enough for their bytes to stay in the
/// cache.
const BLOCK: usize = 4096;

/// A number of 64 bits for each record of a batch, computed from the seed and the record. It is the
/// key (`key_of`) of the seed, of the record's bytes as 64-bit little-endian numbers (the last one
/// padded with zeros), and of the number of bytes.
pub fn draws(batch: &StructArray, seed: u64) -> Result<Vec<u64>, Fault> {
    of_each(batch, |record| {
        let (words, rest) = record.as_chunks::<8>();
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
        absorb(words.fold(key_of(&[seed]), absorb), record.len() as u64)
    })
}

/// The hash of each record of a batch under a key.
pub fn secure_hashes(batch: &StructArray, key: &[u8; 32]) -> Result<Vec<[u8; HASH_BYTES]>, Fault> {
    of_each(batch, |record| {
        let mut hash = [0; HASH_BYTES];
        for (to, from) in hash.iter_mut().zip(blake3::keyed_hash(key, record).as_bytes()) {
            *to = *from;
        }
        hash
    })
}

/// The result of a function for the bytes of each record.
fn of_each<T>(batch: &StructArray, make: impl Fn(&[u8]) -> T) -> Result<Vec<T>, Fault> {
    let mut made = Vec::with_capacity(batch.len());
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
                made.push(make(record));
            }
        }
    }
    Ok(made)
}

fn counted_from(mut fault: Fault, start: usize) -> Fault {
    fault.record = fault.record.map(|record| record.saturating_add(start));
    fault
}

/// Numbers groups of equal records: the first record and all records equal to it get 0, the next
/// different record gets 1, and so on. This takes about 32 bytes of memory per group.
#[derive(Default)]
pub struct Groups(HashMap<Known, i64, BuildHasherDefault<Own>>);

/// A hash of a record. A hash table need not hash it again.
#[derive(PartialEq, Eq)]
struct Known(u64, u64);

impl Hash for Known {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// A hasher for hash tables that returns the first half of a record's hash.
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
    /// The numbers of some records, whose hashes are passed one after another.
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

    /// The number of groups.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no groups.
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
        let hashes = secure_hashes(&many, &[1; 32]).unwrap();
        assert_eq!(hashes.len(), 10_000);
        assert!(hashes.iter().zip(&hashes[7..]).all(|(one, other)| one == other));
        let draws = draws(&many, 1).unwrap();
        assert!(draws.iter().zip(&draws[7..]).all(|(one, other)| one == other));
        let three = batch(vec![Some(3)]);
        assert_eq!(secure_hashes(&three, &[1; 32]).unwrap()[0], hashes[3]);
        assert_ne!(secure_hashes(&three, &[2; 32]).unwrap()[0], hashes[3]);
    }

    #[test]
    fn what_is_hashed_never_changes() {
        // The MessagePack map {"0": 5}.
        let map = [0x81, 0xa1, b'0', 5];
        let five = batch(vec![Some(5)]);
        assert_eq!(draws(&five, 7).unwrap(), [key_of(&[7, u64::from(u32::from_le_bytes(map)), 4])]);
        let secure = secure_hashes(&five, &[9; 32]).unwrap();
        assert_eq!(secure[0], blake3::keyed_hash(&[9; 32], &map).as_bytes()[..HASH_BYTES]);
    }

    #[test]
    fn draws_are_spread_evenly() {
        let draws = draws(&batch((0..100_000).map(Some).collect()), 0).unwrap();
        for bit in 0..64 {
            let ones = draws.iter().filter(|&draw| draw >> bit & 1 == 1).count();
            assert!((49_000..51_000).contains(&ones), "bit {bit}: {ones}");
        }
    }

    #[test]
    fn groups_are_numbered_as_they_are_first_seen() {
        let mut groups = Groups::default();
        let hashes =
            secure_hashes(&batch(vec![Some(9), None, Some(9), Some(1)]), &[0; 32]).unwrap();
        assert_eq!(groups.of(hashes.as_flattened()), [0, 1, 0, 2]);
        assert_eq!(groups.of(hashes.as_flattened()), [0, 1, 0, 2]);
        assert_eq!(groups.len(), 3);
    }
}
