//! Resizes with the arithmetic of Pillow up to version 12, bit for bit: a horizontal and then a
//! vertical pass, with weights of 22 bits, and sums that are rounded to bytes after each pass. The
//! crate that resizes elsewhere has weights of 16 bits for vector instructions, so it differs by up
//! to 1 in each pass. The oracle is Pillow (`tests/interop/test_images_pillow.py`).

use super::crop::Span;
use super::{Shape, damaged, room};
use crate::wire::Fault;

/// How a new pixel is computed from old ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// The old pixel that holds its centre.
    Nearest,
    /// A triangle.
    Bilinear,
    /// Keys' cubic with a = -0.5.
    Bicubic,
    /// A windowed sinc of three lobes.
    Lanczos,
}

impl Filter {
    /// The filter with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "nearest" => Some(Self::Nearest),
            "bilinear" => Some(Self::Bilinear),
            "bicubic" => Some(Self::Bicubic),
            "lanczos" => Some(Self::Lanczos),
            _ => None,
        }
    }

    /// The pixels on each side of a centre that it weighs, if the size does not change.
    pub fn support(self) -> f64 {
        match self {
            Self::Nearest => 0.5,
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let distance = x.abs();
        match self {
            Self::Nearest => f64::from(u8::from(x > -0.5 && x <= 0.5)),
            Self::Bilinear if distance < 1.0 => 1.0 - distance,
            Self::Bicubic if distance < 1.0 => {
                ((A + 2.0) * distance - (A + 3.0)) * distance * distance + 1.0
            }
            Self::Bicubic if distance < 2.0 => {
                (((distance - 5.0) * distance + 8.0) * distance - 4.0) * A
            }
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    x.sin() / x
}

const PRECISION: u32 = 32 - 8 - 2;
const HALF: i32 = 1 << (PRECISION - 1);

/// The old pixels of a new one: the first, and the weight of each.
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

/// Weights for each new pixel. The span is within `old` pixels; pixels outside of these have no weight.
fn taps(filter: Filter, span: Span, old: u32, new: u32) -> Vec<Taps> {
    let scale = span.length / f64::from(new);
    let wide = scale.max(1.0);
    let support = filter.support() * wide;
    let step = 1.0 / wide;
    let each = |place: u32| {
        let center = span.start + (f64::from(place) + 0.5) * scale;
        let edge = |at: f64| (at + 0.5).clamp(0.0, f64::from(old)) as u32;
        let (first, end) = (edge(center - support), edge(center + support));
        let weight = |at: u32| filter.weight((f64::from(at) - center + 0.5) * step);
        let weights: Vec<f64> = (first..end).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let sum = if sum == 0.0 { 1.0 } else { sum };
        let fixed = |weight: f64| {
            let scaled = weight / sum * f64::from(1u32 << PRECISION);
            (if scaled < 0.0 { scaled - 0.5 } else { scaled + 0.5 }) as i32
        };
        Taps { first: first as usize, weights: weights.into_iter().map(fixed).collect() }
    };
    (0..new).map(each).collect()
}

fn byte(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

/// Part of an image of RGB: its pixels from the first one on, and the bytes between rows.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// From the first pixel on.
    pub pixels: &'a [u8],
    /// From row to row of the whole image.
    pub stride: usize,
    /// Columns and rows.
    pub size: (u32, u32),
}

/// Resize the spans of a part to `new` width and height. `between` is for the result of the first pass.
pub fn resize(
    part: Part<'_>,
    filter: Filter,
    (across, down): (Span, Span),
    new: (u32, u32),
    between: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<(), Fault> {
    let columns = taps(filter, across, part.size.0, new.0);
    let rows = taps(filter, down, part.size.1, new.1);
    let begin = rows.iter().map(|taps| taps.first).min().unwrap_or(0);
    let end = rows.iter().map(|taps| taps.first + taps.weights.len()).max().unwrap_or(0);
    let height = u32::try_from(end.saturating_sub(begin)).unwrap_or(0);
    let shape = Shape { width: new.0, height, channels: 3 };
    let (wanted, row_bytes) = (Shape { height: new.1, ..shape }, shape.row_bytes());
    if out.len() != wanted.bytes()? || row_bytes == 0 {
        return Err(damaged("no room for the pixels that are made"));
    }
    let between = room(between, shape.bytes()?)?;
    let lines = part.pixels.chunks(part.stride.max(1)).skip(begin);
    for (line, target) in lines.zip(between.chunks_exact_mut(row_bytes)) {
        horizontally(line.as_chunks().0, &columns, target.as_chunks_mut().0);
    }
    let mut sums = vec![HALF; row_bytes];
    for (taps, target) in rows.iter().zip(out.chunks_exact_mut(row_bytes)) {
        sums.fill(HALF);
        let lines = between.chunks_exact(row_bytes).skip(taps.first - begin);
        for (line, &weight) in lines.zip(&taps.weights) {
            for (sum, &value) in sums.iter_mut().zip(line) {
                *sum = sum.wrapping_add(weight.wrapping_mul(i32::from(value)));
            }
        }
        for (target, &sum) in target.iter_mut().zip(&sums) {
            *target = byte(sum);
        }
    }
    Ok(())
}

fn horizontally(line: &[[u8; 3]], columns: &[Taps], target: &mut [[u8; 3]]) {
    for (taps, pixel) in columns.iter().zip(target) {
        let mut sums = [HALF; 3];
        for (values, &weight) in
            line.get(taps.first..).unwrap_or_default().iter().zip(&taps.weights)
        {
            for (sum, &value) in sums.iter_mut().zip(values) {
                *sum = sum.wrapping_add(weight.wrapping_mul(i32::from(value)));
            }
        }
        *pixel = sums.map(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resized(filter: Filter, old: u32, new: u32) -> Vec<u8> {
        let pixels: Vec<u8> = (0..old * 3).map(|at| (at * 40 % 251) as u8).collect();
        let part = Part { pixels: &pixels, stride: pixels.len(), size: (old, 1) };
        let span = |side: u32| Span { start: 0.0, length: side.into() };
        let mut out = vec![0; new as usize * 3];
        let spans = (span(old), span(1));
        resize(part, filter, spans, (new, 1), &mut Vec::new(), &mut out).unwrap();
        out
    }

    #[test]
    fn a_size_that_stays_keeps_the_pixels() {
        for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
            let expected: Vec<u8> = (0..21u32).map(|at| (at * 40 % 251) as u8).collect();
            assert_eq!(resized(filter, 7, 7), expected);
        }
    }

    #[test]
    fn weights_of_a_pixel_sum_to_one() {
        for filter in [Filter::Nearest, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
            for (old, new) in [(1, 5), (7, 3), (500, 224), (3, 500)] {
                for taps in taps(filter, Span { start: 0.0, length: old.into() }, old, new) {
                    let sum: i32 = taps.weights.iter().sum();
                    assert!((sum - (1 << PRECISION)).abs() < 1000, "{filter:?} {old} {new} {sum}");
                    assert!(taps.first + taps.weights.len() <= old as usize);
                }
            }
        }
    }
}
