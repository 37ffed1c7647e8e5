//! Table lookups against decoding one symbol after another.

use super::bits::{Bits, Block, State};
use super::codes::{Firsts, Others, Spec};
use super::{Ready, Tables};

/// Codes of every length for these symbols: one bit, two bits, and so on up to sixteen.
fn stairs(symbols: &[u8]) -> Spec {
    let (mut counts, mut all) = ([0; 16], [0; 256]);
    for (place, symbol) in symbols.iter().enumerate() {
        counts[place.min(15)] += 1;
        all[place] = *symbol;
    }
    (counts, all)
}

/// The luminance table of annex K has these counts of code lengths. The order of its symbols does
/// not matter here.
fn usual() -> Spec {
    let counts = [0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125];
    let mut symbols = [0; 256];
    let sizes = (0..=15u8).flat_map(|zeros| (1..=10u8).map(move |size| (zeros << 4) | size));
    let ends = [0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0xf0];
    let others = sizes.filter(|symbol| !ends.contains(symbol));
    for (place, symbol) in symbols.iter_mut().zip(ends.into_iter().chain(others)) {
        *place = symbol;
    }
    (counts, symbols)
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Annex F.2.2.2, as the standard words it.
fn plainly(bits: &mut impl Iterator<Item = u32>, spec: &Spec) -> Option<[i16; 64]> {
    let mut values = [0; 64];
    let mut place = 0;
    while place < 63 {
        let (mut code, mut first, mut index, mut symbol) = (0, 0, 0, None);
        for count in spec.0 {
            code = (code << 1) | bits.next()?;
            if code - first < u32::from(count) {
                symbol = Some(spec.1[(index + code - first) as usize]);
                break;
            }
            index += u32::from(count);
            first = (first + u32::from(count)) << 1;
        }
        let (zeros, size) = (usize::from(symbol? >> 4), symbol? & 15);
        if size == 0 && zeros < 15 {
            break;
        }
        place += zeros + 1;
        let mut value = 0;
        for _ in 0..size {
            value = (value << 1) | bits.next()? as i32;
        }
        if size > 0 && value < 1 << (size - 1) {
            value -= (1 << size) - 1;
        }
        *values.get_mut(place)? = value as i16;
    }
    Some(values)
}

#[test]
fn looks_see_what_one_symbol_after_another_is() {
    let steps = stairs(&[0x01, 0x00, 0xf0, 0x0f, 0x11, 0x77, 0x02, 0x1a, 0x03]);
    let mut blocks = 0;
    for spec in [usual(), steps, stairs(&[0xf0, 0x11]), stairs(&[0x08, 0x09])] {
        let table = Others::new(&spec).unwrap();
        for seed in 0..3000 {
            let bytes = noise(seed, 400);
            let mut plain = bytes
                .iter()
                .flat_map(|byte| (0..8).rev().map(move |bit| u32::from((byte >> bit) & 1)));
            let ready = [bytes.as_slice(), &[0; 8]].concat();
            let mut bits = Bits::new(&ready, State::default());
            let mut skipping = bits;
            loop {
                let mut block: Block = [0; 64];
                let expected = plainly(&mut plain, &spec);
                let found = bits.others(&table, &mut block);
                let skipped = skipping.skip_others(&table);
                let Some(mut expected) = expected else {
                    let beyond = bits.state().taken() > bytes.len() * 8;
                    assert!(found.is_err() || beyond, "seed {seed}");
                    assert!(skipped.is_err() || skipping.state().taken() > bytes.len() * 8);
                    break;
                };
                assert!(found.is_ok() && skipped.is_ok(), "seed {seed}");
                assert_eq!(bits.state().taken(), skipping.state().taken(), "seed {seed}");
                assert_eq!(bits.state().taken(), bytes.len() * 8 - plain.clone().count());
                // Only values are compared here: tests with files check the places.
                block.sort_unstable();
                expected.sort_unstable();
                assert_eq!(block, expected, "seed {seed}");
                blocks += 1;
            }
        }
    }
    assert!(blocks > 20_000, "{blocks} blocks");
}

#[test]
fn counts_that_no_codes_have_make_no_table() {
    let mut spec = stairs(&[0x01, 0x02]);
    spec.0[0] = 2;
    assert!(Others::new(&spec).is_none() && Firsts::new(&spec).is_none());
    spec.0 = [0; 16];
    spec.0[8] = 255;
    spec.0[15] = 255;
    assert!(Others::new(&spec).is_none());
}

#[test]
fn tables_are_made_once_for_what_is_used_again() {
    let mut tables = Tables::default();
    let specs: Vec<Spec> = (1..=6u8).map(|symbol| stairs(&[symbol, 0])).collect();
    let first = tables.others(&specs[0]).unwrap();
    for spec in &specs[1..4] {
        tables.others(spec).unwrap();
    }
    assert!(std::rc::Rc::ptr_eq(&first, &tables.others(&specs[0]).unwrap()));
    for spec in &specs {
        tables.others(spec).unwrap();
    }
    assert!(!std::rc::Rc::ptr_eq(&first, &tables.others(&specs[0]).unwrap()));
}

#[test]
fn bytes_are_made_ready_up_to_a_marker_wherever_they_are_cut() {
    for length in [0, 1, 7, 31, 32, 33, 100, 20_000, 50_000] {
        for every in [3, 40, 1000, 100_000] {
            let plain: Vec<u8> = noise(length as u64, length)
                .iter()
                .enumerate()
                .map(|(place, byte)| if place % every == every - 1 { 0xff } else { byte & 0xfe })
                .collect();
            let mut source = Vec::new();
            for byte in &plain {
                source.push(*byte);
                if *byte == 0xff {
                    source.push(0);
                }
            }
            let end = source.len();
            source.extend([0xff, 0xd9, 1, 2, 3]);
            let (mut ready, mut from, mut found) = (Ready::default(), 0, Vec::new());
            loop {
                let mut at = ready.length;
                let ended = ready.fill(&mut at, &source, &mut from).unwrap();
                assert_eq!(at, 0);
                found.extend_from_slice(&ready.bytes[..ready.length]);
                assert_eq!(ready.bytes[ready.length..][..8], [0; 8]);
                if ended {
                    break;
                }
            }
            assert!(found == plain, "{length} bytes, every {every}");
            assert_eq!(from, end);
            source.truncate(end);
            let (mut ready, mut from) = (Ready::default(), 0);
            let cut = (0..10).any(|_| {
                let mut at = ready.length;
                ready.fill(&mut at, &source, &mut from).is_err()
            });
            assert!(cut, "{length} bytes, every {every}");
        }
    }
}
