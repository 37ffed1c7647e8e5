//! Which of several datasets (sets) comes at a position of a mixture. In every prefix each set has its
//! share, but there is no regular pattern.
//!
//! A tree divides the sets into halves. At a node, the left half has round(n * share) of the first n
//! positions, so the set at a position, and the number of its records so far, are found by descending the
//! tree. Then the pattern is jittered: within groups of positions, random pairs are swapped if the two sets
//! stay within one record of their shares in between.

use super::permute::{below, key_of};

/// Positions that are jittered together: as many as one byte of a key can number.
const GROUP: usize = 256;

/// Random pairs per group: enough to hide the regular pattern.
const DRAWS: u64 = 8 * GROUP as u64;

enum Node {
    Set(usize),
    Halves { left_weight: u64, weight: u64, left: Box<Node>, right: Box<Node> },
}

impl Node {
    /// A tree of sets sorted by weight, the largest first; all weights are positive. With up to four sets,
    /// no path is longer than two, so each stays within one record of its share.
    fn new(sets: &[(u64, usize)]) -> Self {
        let weight = sets.iter().map(|&(weight, _)| weight).sum::<u64>();
        if let &[(_, set)] = sets {
            return Self::Set(set);
        }
        let (mut cut, mut left_weight) = (0, 0);
        for (number, &(next, _)) in sets.iter().enumerate().take(sets.len().saturating_sub(1)) {
            let wanted = if sets.len() <= 4 {
                number < sets.len() / 2
            } else {
                number == 0 || left_weight + next / 2 < weight / 2
            };
            if !wanted {
                break;
            }
            (cut, left_weight) = (number + 1, left_weight + next);
        }
        let (left, right) = sets.split_at(cut);
        let halves = [left, right].map(|half| Box::new(Self::new(half)));
        let [left, right] = halves;
        Self::Halves { left_weight, weight, left, right }
    }

    /// Count how many of the first `positions` belong to each set.
    fn count(&self, positions: u64, counts: &mut [u64]) {
        match self {
            Self::Set(set) => {
                if let Some(count) = counts.get_mut(*set) {
                    *count = positions;
                }
            }
            Self::Halves { left_weight, weight, left, right } => {
                let [share, all, positions_] = [*left_weight, *weight, positions].map(u128::from);
                // Rounded to the nearest, halves down.
                let in_left = ((2 * share * positions_ + all - 1) / (2 * all)) as u64;
                left.count(in_left, counts);
                right.count(positions - in_left, counts);
            }
        }
    }
}

/// Sets mixed by weights, which are whole numbers with a sum below 2^40.
pub struct Mixture {
    weights: Vec<u64>,
    weight: u64,
    tree: Node,
    key: u64,
}

/// The sets of some positions, and how many records each set had before them.
pub struct Mixed {
    /// By position.
    pub sets: Vec<u32>,
    /// By set.
    pub before: Vec<u64>,
}

impl Mixture {
    /// None if no weight is positive.
    pub fn new(weights: &[u64], key: u64) -> Option<Self> {
        let mut sets: Vec<_> = weights.iter().copied().zip(0..).filter(|set| set.0 > 0).collect();
        sets.sort_by_key(|&(weight, set)| (std::cmp::Reverse(weight), set));
        let weight = weights.iter().sum();
        (!sets.is_empty()).then(|| Self {
            tree: Node::new(&sets),
            weights: weights.to_vec(),
            weight,
            key,
        })
    }

    fn counts(&self, positions: u64) -> Vec<u64> {
        let mut counts = vec![0; self.weights.len()];
        self.tree.count(positions, &mut counts);
        counts
    }

    /// The sets at positions start to stop of an epoch of `length` positions, after `origin` positions of
    /// earlier epochs. At the end of the epoch, all sets are as close to their shares as whole records can
    /// be.
    pub fn take(&self, origin: u64, length: u64, start: u64, stop: u64) -> Mixed {
        let size = GROUP as u64;
        let first_group = start / size;
        let mut before = self.counts(origin + first_group * size);
        let mut sets = Vec::with_capacity((stop - start) as usize);
        for group in first_group..stop.div_ceil(size) {
            let first = group * size;
            let count = size.min(length.saturating_sub(first));
            for (position, set) in (first..stop).zip(self.group(origin + first, count)) {
                if position >= start {
                    sets.push(set);
                } else if let Some(count) = before.get_mut(set as usize) {
                    *count += 1;
                }
            }
        }
        Mixed { sets, before }
    }

    /// The sets of `count` positions from `first` on, which are jittered among themselves.
    fn group(&self, first: u64, count: u64) -> Vec<u32> {
        // counts[n]: how many records each set has before the n-th position of the group.
        let mut counts: Vec<_> = (0..=count).map(|n| self.counts(first + n)).collect();
        let mut sets: Vec<u32> = counts
            .windows(2)
            .map(|pair| match pair {
                [before, after] => before.iter().zip(after).position(|(a, b)| a != b),
                _ => None,
            })
            .map(|set| set.unwrap_or_default() as u32)
            .collect();
        let key = key_of(&[self.key, first]);
        for draw in 0..DRAWS {
            // Most draws pick positions that are close to each other. Few positions lie between them
            // at which `exchange` could find a share violated, so it accepts more of these swaps.
            let key = key_of(&[key, draw]);
            let early = (key >> 56) as usize;
            let reach = 1_u64 << ((key >> 48) % u64::from(GROUP.ilog2()));
            let late = early + 1 + below(key << 16, reach) as usize;
            self.exchange(first, early, late, &mut sets, &mut counts);
        }
        sets
    }

    /// Swap the sets of two positions of a group, if none leaves its share by more than one record.
    fn exchange(
        &self,
        first: u64,
        early: usize,
        late: usize,
        sets: &mut [u32],
        counts: &mut [Vec<u64>],
    ) {
        let (Some(&gone), Some(&come)) = (sets.get(early), sets.get(late)) else { return };
        let (gone, come) = (gone as usize, come as usize);
        if gone == come {
            return;
        }
        let share = |set: usize| u128::from(self.weights.get(set).copied().unwrap_or_default());
        let Some(between) = counts.get_mut(early + 1..=late) else { return };
        let of = |counts: &[u64], set: usize| u128::from(counts.get(set).copied().unwrap_or(0));
        let all = u128::from(self.weight);
        let stays = (first + early as u64 + 1..).zip(&*between).all(|(positions, counts)| {
            let positions = u128::from(positions);
            of(counts, gone) * all >= share(gone) * positions
                && of(counts, come) * all <= share(come) * positions
        });
        if !stays {
            return;
        }
        for counts in between {
            if let Some(count) = counts.get_mut(gone) {
                *count -= 1;
            }
            if let Some(count) = counts.get_mut(come) {
                *count += 1;
            }
        }
        sets.swap(early, late);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(weights: &[u64], positions: u64) -> f64 {
        let mixed = Mixture::new(weights, 5).unwrap().take(0, positions, 0, positions);
        let weight = weights.iter().sum::<u64>() as f64;
        let mut counts = vec![0.0; weights.len()];
        let mut worst = 0.0_f64;
        for (set, positions) in mixed.sets.iter().zip(1..) {
            counts[*set as usize] += 1.0;
            for (count, &share) in counts.iter().zip(weights) {
                worst = worst.max((count - share as f64 / weight * positions as f64).abs());
            }
        }
        worst
    }

    #[test]
    fn every_prefix_has_its_shares_within_one_record() {
        for weights in [&[3, 1][..], &[1], &[0, 5, 2], &[7, 2, 1], &[90, 5, 4, 1], &[1, 1, 1, 1]] {
            let worst = worst(weights, 5000);
            assert!(worst <= 1.0 + 1e-9, "{weights:?} {worst}");
        }
    }

    #[test]
    fn many_sets_are_within_two_records() {
        for weights in [&[1; 40][..], &[50, 20, 10, 10, 5, 3, 1, 1], &[1000, 1, 1, 1, 1, 1, 1]] {
            let worst = worst(weights, 5000);
            assert!(worst <= 2.0, "{weights:?} {worst}");
        }
    }

    #[test]
    fn parts_are_parts_of_the_whole() {
        let mixture = Mixture::new(&[5, 3, 1], 1).unwrap();
        let whole = mixture.take(100, 2000, 0, 2000);
        for start in (0..1500).step_by(37) {
            let part = mixture.take(100, 2000, start, start + 300);
            let part_of_whole = &whole.sets[start as usize..][..300];
            assert_eq!(part.sets, part_of_whole);
            for (set, &before) in part.before.iter().enumerate() {
                let earlier = &whole.sets[..start as usize];
                let came = earlier.iter().filter(|&&s| s as usize == set).count() as u64;
                assert_eq!(whole.before[set] + came, before);
            }
        }
    }

    #[test]
    fn no_weight_is_no_mixture() {
        assert!(Mixture::new(&[0, 0], 1).is_none());
    }
}
