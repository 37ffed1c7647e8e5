//! Interpolates between the two nearest pixels, down and across.

use super::{Channels, Read, step};

/// Two neighbours, and the distance from the first, as a fraction.
#[derive(Clone, Copy)]
pub struct Tap {
    low: usize,
    high: usize,
    part: f32,
}

pub fn taps(old: usize, new: usize) -> Vec<Tap> {
    let (scale, last) = (step(old, new), old.saturating_sub(1));
    let tap = |i: usize| {
        let place = (i as f32 + 0.5) * scale - 0.5;
        let floor = place.floor();
        let high = (place.ceil().max(0.0) as usize).min(last);
        Tap { low: (floor.max(0.0) as usize).min(last), high, part: place - floor }
    };
    (0..new).map(tap).collect()
}

#[inline(always)]
fn between(low: f32, high: f32, part: f32) -> f32 {
    low + (high - low) * part
}

/// The columns of new rows, with the two neighbours of each.
pub struct Across {
    taps: Vec<Tap>,
    /// The first columns, in pairs, for pixels of three bytes. Reading four bytes of any of their
    /// neighbours stays inside a row of `row_bytes`.
    pairs: Vec<Pair>,
    row_bytes: usize,
}

/// Two new pixels: the offsets of their neighbours, and the fractions between them.
struct Pair {
    low: [u32; 2],
    high: [u32; 2],
    parts: [f32; 8],
}

impl Across {
    pub fn of(old: usize, new: usize, channels: usize) -> Self {
        let taps = taps(old, new);
        let row_bytes = old * channels;
        let inner = if channels == 3 && u32::try_from(row_bytes).is_ok() {
            taps.partition_point(|tap| (tap.high + 1) * 3 < row_bytes)
        } else {
            0
        };
        let (two_by_two, _) = taps.get(..inner).unwrap_or_default().as_chunks::<2>();
        let pairs = two_by_two.iter().map(|[first, second]| Pair {
            low: [first.low, second.low].map(|pixel| 3 * pixel as u32),
            high: [first.high, second.high].map(|pixel| 3 * pixel as u32),
            parts: std::array::from_fn(|lane| if lane < 4 { first.part } else { second.part }),
        });
        Self { pairs: pairs.collect(), taps, row_bytes }
    }

    /// A row of bytes, three per pixel, at the first columns. Returns the number of these columns.
    #[inline]
    pub fn bytes_of_three(&self, row: &[u8], out: &mut [f32]) -> usize {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && row.len() == self.row_bytes
            && out.len() > 6 * self.pairs.len()
        {
            // SAFETY: the machine has AVX2, and the lengths of the row and the output were just checked.
            unsafe { self.pairs_of_bytes(row, out) };
            return 2 * self.pairs.len();
        }
        0
    }

    /// # Safety
    /// The row has all bytes that the pairs refer to, and `out` has room for one more float than
    /// the pairs write.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn pairs_of_bytes(&self, row: &[u8], out: &mut [f32]) {
        use std::arch::x86_64::*;
        let (row, mut target) = (row.as_ptr(), out.as_mut_ptr());
        let four = |at: u32| {
            // SAFETY: as the caller says.
            unsafe { row.add(at as usize).cast::<i32>().read_unaligned() }
        };
        let floats = |[first, second]: [u32; 2]| {
            let bytes = _mm_insert_epi32::<1>(_mm_cvtsi32_si128(four(first)), four(second));
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))
        };
        for pair in &self.pairs {
            let (low, high) = (floats(pair.low), floats(pair.high));
            // SAFETY: there is room for eight floats, and six of each pair are kept: the fourth of a pixel
            // is overwritten by the first of the next pixel.
            unsafe {
                let part = _mm256_loadu_ps(pair.parts.as_ptr());
                let step = _mm256_mul_ps(_mm256_sub_ps(high, low), part);
                let made = _mm256_add_ps(low, step);
                _mm_storeu_ps(target, _mm256_castps256_ps128(made));
                _mm_storeu_ps(target.add(3), _mm256_extractf128_ps::<1>(made));
                target = target.add(6);
            }
        }
    }
}

/// Interpolate a row of the old image at the columns of the new image. `out` needs space for one
/// more value after the last one, for an unused fourth channel.
#[inline(always)]
fn row_across<T: Read>(row: &[T], channels: impl Channels, across: &Across, out: &mut [f32]) {
    let count = channels.count();
    let done = if count == 3 { T::across_three(row, across, out) } else { 0 };
    let out = out.get_mut(done * count..).unwrap_or_default();
    let rest = across.taps.get(done..).unwrap_or_default();
    for (target, tap) in out.chunks_exact_mut(count.max(1)).zip(rest) {
        let low = row.get(tap.low * count..(tap.low + 1) * count).unwrap_or_default();
        let high = row.get(tap.high * count..(tap.high + 1) * count).unwrap_or_default();
        for ((target, low), high) in target.iter_mut().zip(low).zip(high) {
            *target = between(low.float(), high.float(), tap.part);
        }
    }
}

#[inline(always)]
pub fn bilinear<T: Read>(
    image: &[T],
    width: usize,
    channels: impl Channels,
    down: &[Tap],
    across: &Across,
    made: &mut Vec<f32>,
) {
    let (length, row_length) = (across.taps.len() * channels.count(), width * channels.count());
    let (mut low, mut high) = (vec![0f32; length + 1], vec![0f32; length + 1]);
    let (mut low_is, mut high_is) = (usize::MAX, usize::MAX);
    let row = |y: usize| image.get(y * row_length..(y + 1) * row_length).unwrap_or_default();
    for tap in down {
        // The low row was often the high row of the previous step.
        if low_is != tap.low && high_is == tap.low {
            std::mem::swap(&mut low, &mut high);
            std::mem::swap(&mut low_is, &mut high_is);
        }
        if low_is != tap.low {
            row_across(row(tap.low), channels, across, &mut low);
            low_is = tap.low;
        }
        if high_is != tap.high {
            row_across(row(tap.high), channels, across, &mut high);
            high_is = tap.high;
        }
        let pairs = low.iter().zip(&high).take(length);
        made.extend(pairs.map(|(&low, &high)| between(low, high, tap.part)));
    }
}
