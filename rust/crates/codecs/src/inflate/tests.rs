//! Raw deflate data compared with zlib-rs: the output of compressors, the same with flipped bits, and
//! blocks of codes that no compressor makes.

use libdeflater::{CompressionLvl, Compressor};
use zlib_rs::{Deflate, DeflateFlush};

#[cfg(target_arch = "x86_64")]
use super::codes::{Anyhow, Bmi, LITLENS, LitlenTable, Shift};
use super::oracle::{Verdict, agree};

const MOST: usize = 1 << 18;

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end) as usize
    }
}

/// Noise, words, and repeats of every distance.
fn sample(length: usize) -> Vec<u8> {
    let (mut dice, mut out) = (Dice(0x9e37_79b9_7f4a_7c15), Vec::new());
    while out.len() < length {
        match dice.below(4) {
            0 => out.extend((0..dice.below(40)).map(|n| (n * 37) as u8 ^ dice.0 as u8)),
            1 => out.extend_from_slice(b"a few words "),
            _ => {
                let distance =
                    dice.below(out.len().clamp(1, [5, 300, 40_000][out.len() % 3]) as u64);
                let start = out.len().saturating_sub(distance + 1);
                for at in 0..dice.below(400) {
                    out.push(out.get(start + at).copied().unwrap_or(at as u8));
                }
            }
        }
    }
    out.truncate(length);
    out
}

fn by_libdeflate(plain: &[u8], level: i32) -> Vec<u8> {
    let mut compressor = Compressor::new(CompressionLvl::new(level).unwrap());
    let mut out = vec![0; compressor.deflate_compress_bound(plain.len())];
    let length = compressor.deflate_compress(plain, &mut out).unwrap();
    out.truncate(length);
    out
}

fn by_zlib(plain: &[u8], level: i32) -> Vec<u8> {
    let mut deflate = Deflate::new(level, false, 15);
    let mut out = vec![0; plain.len() * 2 + 1000];
    deflate.compress(plain, &mut out, DeflateFlush::Finish).unwrap();
    out.truncate(deflate.total_out() as usize);
    out
}

#[test]
fn streams_of_every_level() {
    for length in [0, 1, 100, 5000, 200_000] {
        let plain = sample(length);
        for level in 0..=12 {
            let mut streams = vec![by_libdeflate(&plain, level)];
            streams.extend((level < 10).then(|| by_zlib(&plain, level)));
            for data in streams {
                let verdict = agree(&data, MOST, 1 + length % 97, 1 + length % 1009);
                assert_eq!(verdict, Verdict::Ended(data.len()), "level {level}, {length} bytes");
            }
        }
    }
}

#[test]
fn streams_of_every_flipped_bit_and_cut() {
    for (plain, level) in [(sample(300), 9), (sample(3000), 6), (sample(100), 1), (sample(60), 0)] {
        let data = by_libdeflate(&plain, level);
        for at in 0..data.len() {
            assert_eq!(agree(&data[..at], MOST, 7, 50), Verdict::Cut);
            for bit in 0..8 {
                let mut wrong = data.clone();
                wrong[at] ^= 1 << bit;
                agree(&wrong, MOST, 11, 40);
            }
        }
    }
}

/// Bits, the first bit lowest.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    num_bits: usize,
}

impl Bits {
    fn put(&mut self, value: usize, num_bits: usize) {
        for bit in 0..num_bits {
            if self.num_bits.is_multiple_of(8) {
                self.bytes.push(0);
            }
            *self.bytes.last_mut().unwrap() |= ((value >> bit & 1) as u8) << (self.num_bits % 8);
            self.num_bits += 1;
        }
    }

    /// The head of a block with codes of these lengths. The lengths are written in a code of 5 bits each
    /// (and 4 for the rest of the 32).
    fn codes(&mut self, is_last: bool, litlens: &[u8], distances: &[u8]) {
        self.put(is_last as usize | 2 << 1, 3);
        self.put(litlens.len() - 257, 5);
        self.put(distances.len() - 1, 5);
        self.put(15, 4);
        // Lengths 0 to 12 take 4 bits, 13 to 18 take 5.
        for symbol in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15] {
            self.put(if symbol < 13 { 4 } else { 5 }, 3);
        }
        for &length in litlens.iter().chain(distances) {
            let length = usize::from(length);
            if length < 13 {
                self.put(reversed(length, 4), 4);
            } else {
                self.put(reversed(26 + length - 13, 5), 5);
            }
        }
    }
}

fn reversed(value: usize, num_bits: usize) -> usize {
    (0..num_bits).map(|bit| (value >> bit & 1) << (num_bits - 1 - bit)).sum()
}

/// Lengths of a complete code for some of the symbols: a code is split, again and again.
fn lengths(dice: &mut Dice, num_symbols: usize, num_codes: usize) -> Vec<u8> {
    let mut codes = vec![0u8];
    while codes.len() < num_codes {
        let at = if dice.below(3) == 0 { 0 } else { dice.below(codes.len() as u64) };
        if codes[at] < 15 {
            let length = codes.swap_remove(at) + 1;
            codes.extend([length, length]);
        }
    }
    let mut lengths = vec![0; num_symbols];
    for length in codes {
        let free = (0..).map(|_| dice.below(num_symbols as u64)).find(|&at| lengths[at] == 0);
        lengths[free.unwrap()] = length.max(1);
    }
    lengths
}

#[test]
fn codes_that_no_compressor_makes() {
    let (mut dice, mut seen) = (Dice(88_172_645_463_325_252), [0; 3]);
    for round in 0..4000 {
        let num_litlens = 2 + dice.below(284);
        let mut litlens = lengths(&mut dice, 286, num_litlens);
        let at = litlens.iter().position(|&length| length > 0).unwrap();
        if litlens[256] == 0 && round % 50 != 0 {
            litlens.swap(256, at);
        }
        let num_distances = 1 + dice.below(30);
        let mut distances = lengths(&mut dice, 30, num_distances);
        match round % 20 {
            0 => distances.fill(0),
            1 => distances[3] = (distances[3] + 1) % 16,
            2 => litlens[at] = (litlens[at] + 1) % 16,
            3 => litlens.extend([0, 1]),
            _ => {}
        }
        let mut bits = Bits::default();
        // Some data that matches can refer to.
        bits.put(0, 8);
        bits.bytes.extend([0x00, 0x10, 0xff, 0xef]);
        bits.bytes.extend((0..4096).map(|n| (n * n / 7) as u8));
        bits.num_bits = bits.bytes.len() * 8;
        if litlens.len() > 286 {
            litlens.truncate(287);
        }
        bits.codes(round % 3 > 0, &litlens, &distances);
        for _ in 0..dice.below(400) {
            bits.put(dice.0 as usize >> 3, 40);
        }
        match agree(&bits.bytes, MOST, 1 + round % 13, 1 + round % 701) {
            Verdict::Ended(_) => seen[0] += 1,
            Verdict::Cut | Verdict::TooLong => seen[1] += 1,
            Verdict::Broken => seen[2] += 1,
        }
    }
    assert!(seen.iter().all(|&times| times > 200), "ended, cut, broken: {seen:?}");
}

#[test]
fn fixed_codes_without_a_symbol() {
    for (code, num_bits) in [(0b1100_0110, 8), (0b1100_0111, 8), (0b0000_0010, 7)] {
        for distance in [0, 29, 30, 31] {
            let mut bits = Bits::default();
            bits.put(1 | 1 << 1, 3);
            bits.put(reversed(0x30 + 65, 8), 8);
            bits.put(reversed(code, num_bits), num_bits);
            bits.put(reversed(distance, 5), 5);
            bits.put(0, 60);
            agree(&bits.bytes, MOST, 1, 1);
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn both_shifts_look_at_the_same_bits() {
    let Some(bmi) = Bmi::here() else {
        return; // then no inflater uses this instruction
    };
    let (mut dice, mut litlens) = (Dice(1), LitlenTable::new());
    assert!(litlens.fill(&[8; 256], &LITLENS));
    for _ in 0..10_000 {
        let bits = (dice.below(u64::MAX) as u64).rotate_left(17);
        let literal = litlens.lookup(bits);
        assert!(literal.is_literal());
        assert_eq!(bmi.index_behind(bits, literal), Anyhow.index_behind(bits, literal));
    }
}
