//! Shrinks images by averaging areas. A new pixel is the mean of the old pixels that it covers;
//! pixels at its edges are weighted by how much of them it covers. Every old pixel contributes, so
//! there is no aliasing.

use super::{Shape, fit};
use crate::wire::Fault;

/// The size whose longer side is at most `max_side`, with the same aspect ratio, rounded.
pub fn within(width: u32, height: u32, max_side: u32) -> (u32, u32) {
    let longer = u64::from(width.max(height));
    if longer <= u64::from(max_side) {
        return (width, height);
    }
    let shrunk = |side: u32| {
        let side = (u64::from(side) * u64::from(max_side) * 2 + longer) / (longer * 2);
        side.max(1) as u32
    };
    (shrunk(width), shrunk(height))
}

/// The old pixels that a new pixel covers: the first one, and the weight of each.
struct Cover {
    first: usize,
    weights: Vec<f32>,
}

fn covers(old: u32, new: u32) -> Vec<Cover> {
    let (old, new) = (u64::from(old), u64::from(new));
    // In units of 1 / new of an old pixel, all edges are whole numbers.
    let cover = |place: u64| {
        let (start, end) = (place * old, (place + 1) * old);
        let first = start / new;
        let last = end.div_ceil(new);
        let share = |at: u64| ((at + 1) * new).min(end).saturating_sub((at * new).max(start));
        let weights = (first..last).map(|at| (share(at) as f64 / old as f64) as f32).collect();
        Cover { first: first as usize, weights }
    };
    (0..new).map(cover).collect()
}

/// Shrink the image into `shrunk`.
pub fn shrink(
    pixels: &[u8],
    shape: Shape,
    (width, height): (u32, u32),
    shrunk: &mut Vec<u8>,
) -> Result<Shape, Fault> {
    let target = Shape { width, height, ..shape };
    let shrunk = fit(shrunk, target.bytes()?)?;
    let row_bytes = shape.row_bytes();
    let columns = covers(shape.width, width);
    let mut sums = vec![0f32; row_bytes];
    let rows = covers(shape.height, height);
    for (cover, out) in rows.iter().zip(shrunk.chunks_exact_mut(target.row_bytes().max(1))) {
        sums.fill(0.0);
        let lines = pixels.chunks_exact(row_bytes.max(1)).skip(cover.first);
        for (line, &weight) in lines.zip(&cover.weights) {
            for (sum, &value) in sums.iter_mut().zip(line) {
                *sum += f32::from(value) * weight;
            }
        }
        match shape.channels {
            1 => across::<1>(&sums, &columns, out),
            2 => across::<2>(&sums, &columns, out),
            3 => across::<3>(&sums, &columns, out),
            _ => across::<4>(&sums, &columns, out),
        }
    }
    Ok(target)
}

fn across<const N: usize>(sums: &[f32], columns: &[Cover], out: &mut [u8]) {
    let sums = sums.as_chunks::<N>().0;
    for (cover, pixel) in columns.iter().zip(out.as_chunks_mut::<N>().0) {
        let mut total = [0f32; N];
        let covered = sums.get(cover.first..).unwrap_or_default();
        for (values, &weight) in covered.iter().zip(&cover.weights) {
            for (one, value) in total.iter_mut().zip(values) {
                *one += value * weight;
            }
        }
        for (target, one) in pixel.iter_mut().zip(total) {
            *target = (one + 0.5) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_side_is_the_one_that_counts() {
        assert_eq!(within(640, 480, 320), (320, 240));
        assert_eq!(within(480, 640, 100), (75, 100));
        assert_eq!(within(3, 1000, 10), (1, 10));
        assert_eq!(within(64, 64, 64), (64, 64));
    }

    #[test]
    fn a_pixel_is_the_mean_of_what_it_covers() {
        let shape = Shape { width: 4, height: 2, channels: 1 };
        let mut out = Vec::new();
        shrink(&[0, 10, 20, 30, 4, 14, 24, 34], shape, (2, 1), &mut out).unwrap();
        assert_eq!(out, [7, 27]);
        let wide = Shape { width: 3, height: 1, channels: 1 };
        shrink(&[30, 60, 90], wide, (2, 1), &mut out).unwrap();
        assert_eq!(out, [40, 80]);
    }

    #[test]
    fn one_colour_stays() {
        let shape = Shape { width: 37, height: 53, channels: 3 };
        let pixels: Vec<u8> = [9, 200, 255].repeat(37 * 53);
        let mut out = Vec::new();
        shrink(&pixels, shape, (11, 16), &mut out).unwrap();
        assert_eq!(out, [9, 200, 255].repeat(11 * 16));
    }
}
