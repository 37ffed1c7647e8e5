//! Record orders: keyed permutations of any length, computed number by number in constant memory, and keys
//! computed from numbers.
//!
//! A Feistel network (Luby and Rackoff, 1988) permutes the numbers below a power of two. A result that is
//! not below the length goes through the network again until it is (cycle walking: Black and Rogaway,
//! "Ciphers with arbitrary finite domains", 2002). Short permutations are shuffled directly. Orders must
//! stay the same forever and on every machine: changing a constant here changes every user's order.

/// 2^64 divided by the golden ratio, as in splitmix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Two rounds for each of the four that make a network pseudorandom, because the halves may be as small as
/// six bits.
const DOUBLE_ROUNDS: usize = 4;

/// Up to this many numbers, shuffling is faster than cycle walking.
const FEW: usize = 64;

/// The minimum number of bits of a network: a smaller one has too few keys for all permutations to be
/// equally frequent.
const LEAST_BITS: u32 = 12;

/// Positions computed in parallel.
const BLOCK: usize = 256;

/// Lengths are signed numbers in other places.
pub const MOST_RECORDS: u64 = i64::MAX as u64;

/// The finaliser of splitmix64 (Stafford's thirteenth): every bit of the result depends on all of x.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A key and another number make a new key. With the same key, different numbers make different keys.
pub fn absorb(key: u64, number: u64) -> u64 {
    mix((key ^ number).wrapping_add(GOLDEN))
}

/// A key made of any numbers and their order.
pub fn key_of(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |key, &number| absorb(key, number))
}

/// `key_of([seed, epoch, record])` for each record.
pub fn record_keys(seed: u64, epoch: u64, records: impl Iterator<Item = u64>) -> Vec<u64> {
    let key = key_of(&[seed, epoch]);
    records.map(|record| absorb(key, record)).collect()
}

/// A number below `end` for a key; all are equally frequent.
pub fn below(key: u64, end: u64) -> u64 {
    ((u128::from(key) * u128::from(end)) >> u64::BITS) as u64
}

/// A permutation of the numbers below a length.
pub enum Permutation {
    /// In a list (Fisher and Yates).
    Few([u8; FEW]),
    /// By arithmetic.
    Many(Network),
}

impl Permutation {
    /// The permutation that two keys choose, of at most `MOST_RECORDS` numbers.
    pub fn new(num_records: u64, key0: u64, key1: u64) -> Self {
        let key = key_of(&[key0, key1]);
        if num_records > FEW as u64 {
            return Self::Many(Network::new(num_records, key));
        }
        let mut numbers = [0; FEW];
        for (number, slot) in (0..).zip(&mut numbers) {
            *slot = number;
        }
        for first in 0..num_records {
            let other = first + below(absorb(key, first), num_records - first);
            numbers.swap(first as usize, other as usize);
        }
        Self::Few(numbers)
    }

    /// The numbers at the positions from `start` on, which must all be below the length.
    pub fn fill(&self, start: u64, numbers: &mut [i64]) {
        match self {
            Self::Few(all) => {
                let found = all.iter().skip(start as usize);
                numbers.iter_mut().zip(found).for_each(|(number, &at)| *number = i64::from(at));
            }
            Self::Many(network) => network.fill(start, numbers),
        }
    }

    /// The number at one position, which must be below the length.
    pub fn at(&self, position: u64) -> i64 {
        let mut number = [0];
        self.fill(position, &mut number);
        let [number] = number;
        number
    }
}

/// A Feistel network with cycle walking.
pub struct Network {
    num_records: u64,
    left_bits: u32,
    right_bits: u32,
    round_keys: [[u64; 2]; DOUBLE_ROUNDS],
}

impl Network {
    fn new(num_records: u64, key: u64) -> Self {
        let num_records = num_records.min(MOST_RECORDS);
        let bits = (u64::BITS - num_records.saturating_sub(1).leading_zeros()).max(LEAST_BITS);
        let mut round = 0;
        let round_keys = [[(); 2]; DOUBLE_ROUNDS].map(|pair| {
            pair.map(|()| {
                round += 1;
                absorb(key, round)
            })
        });
        Self { num_records, left_bits: bits / 2, right_bits: bits - bits / 2, round_keys }
    }

    /// One pass through the network: a permutation of all numbers with this many bits.
    #[inline(always)]
    fn step(&self, number: u64) -> u64 {
        let mut left = number >> self.right_bits;
        let mut right = number & ((1 << self.right_bits) - 1);
        for [to_left, to_right] in &self.round_keys {
            left ^= scatter(right ^ to_left) >> (u64::BITS - self.left_bits);
            right ^= scatter(left ^ to_right) >> (u64::BITS - self.right_bits);
        }
        (left << self.right_bits) | right
    }

    /// Like `Permutation::fill`. It terminates, because each position is on the cycle that is walked from
    /// it.
    fn fill(&self, start: u64, numbers: &mut [i64]) {
        let mut first = start;
        for block in numbers.chunks_mut(BLOCK) {
            // The numbers that are still too large. The list is built without a branch, which would be
            // unpredictable.
            let mut walking = [0_u16; BLOCK];
            let mut count = 0;
            for ((at, number), position) in (0_u16..).zip(&mut *block).zip(first..) {
                count = self.walk(number, position, at, &mut walking, count);
            }
            while count > 0 {
                let all = count;
                count = 0;
                for place in 0..all {
                    let at = walking.get(place).copied().unwrap_or_default();
                    if let Some(number) = block.get_mut(usize::from(at)) {
                        let before = *number as u64;
                        count = self.walk(number, before, at, &mut walking, count);
                    }
                }
            }
            first = first.wrapping_add(block.len() as u64);
        }
    }

    /// One step from `before` to `number`. A number that is too large goes onto the list.
    #[inline(always)]
    fn walk(
        &self,
        number: &mut i64,
        before: u64,
        at: u16,
        walking: &mut [u16; BLOCK],
        count: usize,
    ) -> usize {
        let next = self.step(before);
        *number = next as i64;
        if let Some(slot) = walking.get_mut(count) {
            *slot = at;
        }
        count + usize::from(next >= self.num_records)
    }
}

/// The upper bits of the result depend on all bits of x.
#[inline(always)]
fn scatter(x: u64) -> u64 {
    let x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    (x ^ (x >> 32)).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(num_records: u64, key0: u64, key1: u64) -> Vec<i64> {
        let mut numbers = vec![-1; num_records as usize];
        Permutation::new(num_records, key0, key1).fill(0, &mut numbers);
        numbers
    }

    #[test]
    fn every_number_comes_once() {
        for num_records in (0..300).chain([4095, 4096, 4097, 8191, 8193, 100_000]) {
            let mut found = numbers(num_records, 1, 2);
            found.sort_unstable();
            assert!(found.into_iter().eq(0..num_records as i64), "{num_records}");
        }
    }

    #[test]
    fn both_keys_count() {
        let some = [numbers(500, 0, 0), numbers(500, 0, 1), numbers(500, 1, 0)];
        assert!(some[0] != some[1] && some[0] != some[2] && some[1] != some[2]);
    }

    #[test]
    fn the_longest_has_numbers_everywhere() {
        let longest = Permutation::new(MOST_RECORDS, 7, 8);
        for position in [0, 1, MOST_RECORDS / 2, MOST_RECORDS - 1] {
            assert!((0..MOST_RECORDS as i64).contains(&longest.at(position)));
        }
    }

    #[test]
    fn parts_are_parts_of_the_whole() {
        let whole = numbers(1000, 3, 4);
        let mut part = vec![0; 100];
        Permutation::new(1000, 3, 4).fill(450, &mut part);
        assert_eq!(part, &whole[450..550]);
    }

    #[test]
    fn keys_of_records_are_keys_of_three_numbers() {
        let keys = record_keys(5, 6, [0, 9, u64::MAX].into_iter());
        assert_eq!(keys, [key_of(&[5, 6, 0]), key_of(&[5, 6, 9]), key_of(&[5, 6, u64::MAX])]);
    }
}
