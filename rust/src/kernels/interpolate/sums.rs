//! Weighted sums of old pixels: bicubic, area and all filters.

use super::{Channels, Filter, Read, step};

/// The old pixels for each new pixel, and their weights: `size` weights each, of which the last may be 0.
pub struct Spans {
    starts: Vec<usize>,
    weights: Vec<f32>,
    size: usize,
}

impl Spans {
    fn of(spans: &[(usize, Vec<f32>)]) -> Self {
        let size = spans.iter().map(|(_, weights)| weights.len()).max().unwrap_or(0).max(1);
        let mut weights = Vec::with_capacity(size * spans.len());
        for (_, some) in spans {
            weights.extend_from_slice(some);
            weights.resize(weights.len() + size - some.len(), 0.0);
        }
        Self { starts: spans.iter().map(|(start, _)| *start).collect(), weights, size }
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &[f32])> {
        self.starts.iter().copied().zip(self.weights.chunks_exact(self.size))
    }
}

/// The weights divided by their sum; all 0 if the sum is 0.
fn normalised(mut weights: Vec<f32>) -> Vec<f32> {
    let sum: f32 = weights.iter().sum();
    if sum.abs() >= 1000.0 * f32::MIN_POSITIVE {
        let part = 1.0 / sum;
        weights.iter_mut().for_each(|weight| *weight *= part);
    } else {
        weights.fill(0.0);
    }
    weights
}

pub fn filtered(filter: Filter, old: usize, new: usize, antialias: bool) -> Spans {
    // TensorFlow divides by the scale of the new image, rounded to float32.
    let scale = (1.0 / f64::from(new as f32 / old as f32)) as f32;
    let widened = if antialias { scale.max(1.0) } else { 1.0 };
    let (reach, shrink) = (filter.radius() * widened, 1.0 / widened);
    let last = old.saturating_sub(1);
    let span = |i: usize| {
        let middle = (i as f32 + 0.5) * scale;
        let first = ((middle - reach - 0.5).ceil().max(0.0) as usize).min(last);
        let end = ((middle + reach - 0.5).floor().max(0.0) as usize).min(last);
        let weight = |pixel: usize| filter.at(((pixel as f32 + 0.5 - middle) * shrink).abs());
        (first, normalised((first..=end).map(weight).collect()))
    };
    Spans::of(&(0..new).map(span).collect::<Vec<_>>())
}

pub fn bicubic(old: usize, new: usize) -> Spans {
    const STEPS: f32 = 1024.0;
    let scale = step(old, new);
    // The nearer two pixels are weighted by one cubic, the farther two by another.
    let near = |x: f64| ((1.5 * x - 2.5) * x * x + 1.0) as f32;
    let far = |x: f64| (((-0.5 * x + 2.5) * x - 4.0) * x + 2.0) as f32;
    let span = |i: usize| {
        let place = (i as f32 + 0.5) * scale - 0.5;
        let floor = place.floor();
        let steps = ((place - floor) * STEPS).round_ties_even();
        let x = f64::from(steps / STEPS);
        let all = [far(1.0 + x), near(x), near(1.0 - x), far(2.0 - x)];
        let begin = floor as isize - 1;
        let inside = |at: isize| usize::try_from(at).ok().filter(|&at| at < old);
        let kept: Vec<_> =
            (begin..).zip(all).filter_map(|(at, w)| inside(at).map(|at| (at, w))).collect();
        let weights = normalised(kept.iter().map(|(_, weight)| *weight).collect());
        (kept.first().map_or(0, |(at, _)| *at), weights)
    };
    Spans::of(&(0..new).map(span).collect::<Vec<_>>())
}

pub fn boxes(old: usize, new: usize) -> Spans {
    let scale = step(old, new);
    let span = |i: usize| {
        let (begin, end) = (i as f32 * scale, (i + 1) as f32 * scale);
        let first = (begin as usize).min(old.saturating_sub(1));
        let covered = |pixel: usize| {
            let (left, right) = (pixel as f32, (pixel + 1) as f32);
            match (left < begin, right > end) {
                (true, true) => scale,
                (true, false) => right - begin,
                (false, true) => end - left,
                (false, false) => 1.0,
            }
        };
        (first, (first..(end.ceil() as usize).min(old).max(first + 1)).map(covered).collect())
    };
    Spans::of(&(0..new).map(span).collect::<Vec<_>>())
}

/// Weighted sums of pixels: first down, into one row of the old width, then across.
#[inline(always)]
pub fn convolve<T: Read>(
    image: &[T],
    width: usize,
    channels: impl Channels,
    (down, across): (&Spans, &Spans),
    part: f32,
    made: &mut Vec<f32>,
) {
    let count = channels.count();
    let row_length = width * count;
    let mut sums = vec![0f32; row_length];
    let mut row_made = vec![0f32; across.starts.len() * count];
    for (first, weights) in down.iter() {
        let mut rows = image.chunks_exact(row_length.max(1)).skip(first).zip(weights);
        // A sum begins with 0, unlike a product: -0 becomes 0.
        if let Some((row, &weight)) = rows.next() {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum = 0.0 + value.float() * weight;
            }
        }
        for (row, &weight) in rows {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += value.float() * weight;
            }
        }
        for ((first, weights), target) in across.iter().zip(row_made.chunks_exact_mut(count.max(1)))
        {
            let pixels = sums.get(first * count..).unwrap_or_default();
            target.fill(0.0);
            for (values, &weight) in pixels.chunks_exact(count.max(1)).zip(weights) {
                for (sum, &value) in target.iter_mut().zip(values) {
                    *sum += value * weight;
                }
            }
        }
        made.extend(row_made.iter().map(|sum| sum * part));
    }
}
