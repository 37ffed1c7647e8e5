//! The output order of a shuffle buffer at any position, without simulating the earlier steps.
//!
//! A buffer of some slots is filled with the first records. Each step draws one slot, outputs its record,
//! and puts the next record of the stream into it. At the end, the buffer is emptied in random order. The
//! slot of a step is a function of the step. So the record in a slot is found by going back to the
//! last step that drew this slot. On average, that takes as many steps as there are slots.

use super::permute::{Permutation, below, key_of};

const UNKNOWN: i64 = -1;
const WANTED: i64 = -2;

/// The positions in the stream of the records that leave the buffer at steps `start` to `stop`.
pub fn buffered(num_records: u64, size: u64, key: u64, start: u64, stop: u64) -> Vec<i64> {
    let size = size.min(num_records);
    // The buffer is not refilled after this many steps.
    let num_refills = num_records - size;
    let slot = |step: u64| below(key_of(&[key, step]), size);
    let refills = start.min(num_refills)..stop.min(num_refills);
    let last = Permutation::new(size, key, u64::MAX);
    let emptied = |step: u64| last.at(step - num_refills) as u64;
    let rest = start.max(num_refills)..stop.max(num_refills);

    let mut held = vec![UNKNOWN; size as usize];
    let mut missing = 0_u64;
    for drawn in refills.clone().map(slot).chain(rest.clone().map(emptied)) {
        if let Some(content @ &mut UNKNOWN) = held.get_mut(drawn as usize) {
            *content = WANTED;
            missing += 1;
        }
    }
    for step in (0..refills.start).rev() {
        if missing == 0 {
            break;
        }
        if let Some(content @ &mut WANTED) = held.get_mut(slot(step) as usize) {
            *content = (size + step) as i64;
            missing -= 1;
        }
    }
    // A slot that no step has drawn still holds its first record.
    for (number, content) in (0..).zip(&mut held) {
        if *content == WANTED {
            *content = number;
        }
    }

    let mut found = Vec::with_capacity((stop - start) as usize);
    for step in refills {
        if let Some(content) = held.get_mut(slot(step) as usize) {
            found.push(std::mem::replace(content, (size + step) as i64));
        }
    }
    found.extend(rest.filter_map(|step| held.get(emptied(step) as usize)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_comes_once() {
        for (num_records, size) in [(0, 5), (1, 1), (10, 1), (10, 10), (10, 99), (1000, 70)] {
            let mut found = buffered(num_records, size, 3, 0, num_records);
            found.sort_unstable();
            assert!(found.into_iter().eq(0..num_records as i64), "{num_records} {size}");
        }
    }

    #[test]
    fn a_buffer_of_one_changes_nothing() {
        assert!(buffered(100, 1, 3, 0, 100).into_iter().eq(0..100));
    }

    #[test]
    fn parts_are_parts_of_the_whole() {
        let whole = buffered(500, 40, 9, 0, 500);
        for start in 0..500 {
            let stop = (start + 33).min(500);
            let part = buffered(500, 40, 9, start, stop);
            assert_eq!(part, &whole[start as usize..stop as usize]);
        }
    }

    #[test]
    fn nothing_comes_before_it_went_in() {
        for (step, record) in (0..).zip(buffered(5000, 64, 1, 0, 5000)) {
            assert!(record < step + 64);
        }
    }
}
