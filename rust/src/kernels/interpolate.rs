//! Images at another size, in TensorFlow's arithmetic: centres of pixels at halves, float32 all the
//! way, nothing rounded or cut off. Rows are interpolated as they are needed; no image is ever held
//! as floats but the one that is made.

use crate::wire::{Fault, FaultKind};

/// What a value of an image can be.
pub trait Value: Copy {
    /// As float32.
    fn float(self) -> f32;
}

macro_rules! values {
    ($($kind:ty)*) => {
        $(impl Value for $kind {
            #[inline(always)]
            fn float(self) -> f32 {
                self as f32
            }
        })*
    };
}
values!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);

/// How values between pixels are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Between the two next pixels; `triangle` where it widens as the image shrinks.
    Bilinear,
    /// Keys' cubic of a = -1/2, from a table of 1024 steps.
    Bicubic,
    /// The mean of what a new pixel covers.
    Area,
    /// A filter of its own, with or without widening.
    Filter(Filter),
}

/// A filter: what a pixel at a distance counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Falls in a line.
    Triangle,
    /// Keys' cubic.
    Keys,
    /// Three lobes of Lanczos' window.
    Lanczos3,
    /// Five lobes.
    Lanczos5,
    /// Gauss' bell of radius 1.5.
    Gaussian,
    /// Mitchell's and Netravali's cubic.
    Mitchell,
}

impl Filter {
    fn radius(self) -> f32 {
        match self {
            Self::Triangle => 1.0,
            Self::Gaussian => 1.5,
            Self::Keys | Self::Mitchell => 2.0,
            Self::Lanczos3 => 3.0,
            Self::Lanczos5 => 5.0,
        }
    }

    fn at(self, x: f32) -> f32 {
        let cubic = |[a, b, c, d]: [f32; 4]| ((a * x + b) * x + c) * x + d;
        match self {
            _ if x > self.radius() => 0.0,
            Self::Triangle => 1.0 - x,
            Self::Gaussian => (-x * x / 0.5).exp(),
            Self::Keys if x < 1.0 => cubic([1.5, -2.5, 0.0, 1.0]),
            Self::Keys => cubic([-0.5, 2.5, -4.0, 2.0]),
            Self::Mitchell if x < 1.0 => cubic([7.0 / 6.0, -2.0, 0.0, 8.0 / 9.0]),
            Self::Mitchell => cubic([-7.0 / 18.0, 2.0, -10.0 / 3.0, 16.0 / 9.0]),
            Self::Lanczos3 | Self::Lanczos5 if x <= 1e-3 => 1.0,
            Self::Lanczos3 | Self::Lanczos5 => {
                let (turn, radius) = (std::f32::consts::PI * x, self.radius());
                radius * turn.sin() * (turn / radius).sin() / (turn * turn)
            }
        }
    }
}

/// Rows, columns and channels.
pub type Size = (usize, usize, usize);

/// So many images one behind another, each at a new height and width.
pub fn resize<T: Value>(
    images: &[T],
    size: Size,
    new: (usize, usize),
    method: Method,
    antialias: bool,
) -> Result<Vec<f32>, Fault> {
    let (height, width, channels) = size;
    let image_length = height * width * channels;
    let count = images.len().checked_div(image_length).unwrap_or(0);
    let length = count
        .checked_mul(new.0)
        .and_then(|rows| rows.checked_mul(new.1 * channels))
        .ok_or_else(|| Fault::new(FaultKind::Limit, 0, "an image too large for this machine"))?;
    let mut made = Vec::new();
    let no_memory = |_| Fault::new(FaultKind::Limit, 0, format!("no memory for {length} values"));
    made.try_reserve_exact(length).map_err(no_memory)?;
    for image in images.chunks_exact(image_length.max(1)) {
        match method {
            Method::Bilinear => {
                let (down, across) = (taps(height, new.0), taps(width, new.1));
                bilinear(image, (width, channels), &down, &across, &mut made);
            }
            Method::Bicubic => {
                let (down, across) = (bicubic(height, new.0), bicubic(width, new.1));
                convolve(image, (width, channels), &down, &across, 1.0, &mut made);
            }
            Method::Area => {
                let (down, across) = (boxes(height, new.0), boxes(width, new.1));
                let part = 1.0 / (step(height, new.0) * step(width, new.1));
                convolve(image, (width, channels), &down, &across, part, &mut made);
            }
            Method::Filter(filter) => {
                let down = filtered(filter, height, new.0, antialias);
                let across = filtered(filter, width, new.1, antialias);
                convolve(image, (width, channels), &down, &across, 1.0, &mut made);
            }
        }
    }
    Ok(made)
}

/// Pixels of an old image for one of the new.
fn step(old: usize, new: usize) -> f32 {
    old as f32 / new as f32
}

/// The pixel whose area holds the middle of each new one.
pub fn nearest(old: usize, new: usize) -> Vec<usize> {
    let scale = step(old, new);
    (0..new).map(|i| (((i as f32 + 0.5) * scale) as usize).min(old.saturating_sub(1))).collect()
}

/// Images whose pixels are taken as they are; `pixel` counts their bytes.
pub fn resize_nearest(images: &[u8], size: Size, new: (usize, usize)) -> Vec<u8> {
    let (height, width, pixel) = size;
    let (rows, columns) = (nearest(height, new.0), nearest(width, new.1));
    let mut made = Vec::new();
    for image in images.chunks_exact((height * width * pixel).max(1)) {
        for &row in &rows {
            let start = row * width * pixel;
            let row = image.get(start..start + width * pixel).unwrap_or_default();
            for &column in &columns {
                let pixel = row.get(column * pixel..(column + 1) * pixel).unwrap_or_default();
                made.extend_from_slice(pixel);
            }
        }
    }
    made
}

/// Two neighbours, and how far it is from the first to the second.
#[derive(Clone, Copy)]
struct Tap {
    low: usize,
    high: usize,
    part: f32,
}

fn taps(old: usize, new: usize) -> Vec<Tap> {
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

/// A row of the old image at the columns of the new one. The room behind the last value is for a
/// fourth channel that is not there.
#[inline(always)]
fn row_across<T: Value>(row: &[T], channels: usize, across: &[Tap], out: &mut [f32]) {
    // Three channels go as four, of which the last is overwritten by the next pixel's first: that is
    // one vector. It reads a value beyond its pixel, which the last pixel of a row does not have.
    let whole = across.partition_point(|tap| (tap.high + 1) * channels < row.len());
    let (inner, rest) = across.split_at(if channels == 3 { whole } else { 0 });
    let start = |column: usize| column * channels;
    for (x, tap) in inner.iter().enumerate() {
        let low = row.get(start(tap.low)..).and_then(<[T]>::first_chunk::<4>);
        let high = row.get(start(tap.high)..).and_then(<[T]>::first_chunk::<4>);
        let target = out.get_mut(x * 3..).and_then(<[f32]>::first_chunk_mut::<4>);
        if let (Some(low), Some(high), Some(target)) = (low, high, target) {
            let (low, high) = (low.map(T::float), high.map(T::float));
            *target = std::array::from_fn(|i| between(low[i], high[i], tap.part));
        }
    }
    let out = out.get_mut(inner.len() * channels..).unwrap_or_default();
    for (target, tap) in out.chunks_exact_mut(channels.max(1)).zip(rest) {
        let low = row.get(start(tap.low)..start(tap.low + 1)).unwrap_or_default();
        let high = row.get(start(tap.high)..start(tap.high + 1)).unwrap_or_default();
        for ((target, low), high) in target.iter_mut().zip(low).zip(high) {
            *target = between(low.float(), high.float(), tap.part);
        }
    }
}

fn bilinear<T: Value>(
    image: &[T],
    (width, channels): (usize, usize),
    down: &[Tap],
    across: &[Tap],
    made: &mut Vec<f32>,
) {
    let length = across.len() * channels;
    let (mut low, mut high) = (vec![0f32; length + 1], vec![0f32; length + 1]);
    let (mut low_is, mut high_is) = (usize::MAX, usize::MAX);
    let row = |y: usize| image.get(y * width * channels..(y + 1) * width * channels);
    for tap in down {
        // Often the lower of the two rows was the upper one before.
        if low_is != tap.low && high_is == tap.low {
            std::mem::swap(&mut low, &mut high);
            std::mem::swap(&mut low_is, &mut high_is);
        }
        for (kept, is, wanted) in
            [(&mut low, &mut low_is, tap.low), (&mut high, &mut high_is, tap.high)]
        {
            if *is != wanted {
                row_across(row(wanted).unwrap_or_default(), channels, across, kept);
                *is = wanted;
            }
        }
        let pairs = low.iter().zip(&high).take(length);
        made.extend(pairs.map(|(&low, &high)| between(low, high, tap.part)));
    }
}

/// Which pixels count for each new one, and how much: `size` weights each, of which the last may be 0.
struct Spans {
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

/// The weights as parts of their sum; all 0 where there is nothing to divide.
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

fn filtered(filter: Filter, old: usize, new: usize, antialias: bool) -> Spans {
    // TensorFlow divides by the scale of the new image, which it has rounded to a float32.
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

fn bicubic(old: usize, new: usize) -> Spans {
    const STEPS: f32 = 1024.0;
    let scale = step(old, new);
    // Of distances in whole steps: the nearer two pixels by one cubic, the farther two by another.
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

fn boxes(old: usize, new: usize) -> Spans {
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

/// Sums of pixels by weights: first down, into one row of the old width, then across.
fn convolve<T: Value>(
    image: &[T],
    (width, channels): (usize, usize),
    down: &Spans,
    across: &Spans,
    part: f32,
    made: &mut Vec<f32>,
) {
    let row_length = width * channels;
    let mut sums = vec![0f32; row_length];
    let mut pixel = vec![0f32; channels];
    for (first, weights) in down.iter() {
        sums.fill(0.0);
        let rows = image.chunks_exact(row_length.max(1)).skip(first);
        for (row, &weight) in rows.zip(weights) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += value.float() * weight;
            }
        }
        for (first, weights) in across.iter() {
            pixel.fill(0.0);
            let pixels = sums.get(first * channels..).unwrap_or_default();
            for (values, &weight) in pixels.chunks_exact(channels.max(1)).zip(weights) {
                for (sum, &value) in pixel.iter_mut().zip(values) {
                    *sum += value * weight;
                }
            }
            made.extend(pixel.iter().map(|sum| sum * part));
        }
    }
}
