//! Images at another size, in TensorFlow's arithmetic: centres of pixels at halves, float32 all the
//! way, nothing rounded or cut off. Rows are interpolated as they are needed; no image is ever held
//! as floats but the one that is made.

use crate::wire::{Fault, FaultKind};

/// What a value of an image can be.
pub trait Value: Copy {
    /// As float32.
    fn float(self) -> f32;

    /// Four values between four and four others.
    #[inline(always)]
    fn four_between(low: &[Self; 4], high: &[Self; 4], part: f32, out: &mut [f32; 4]) {
        for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
            *out = between(low.float(), high.float(), part);
        }
    }
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
values!(i8 u16 i16 u32 i32 u64 i64 f32 f64);

impl Value for u8 {
    #[inline(always)]
    fn float(self) -> f32 {
        f32::from(self)
    }

    /// The compiler makes four times one of this, the most frequent case.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn four_between(low: &[u8; 4], high: &[u8; 4], part: f32, out: &mut [f32; 4]) {
        use std::arch::x86_64::*;
        // SAFETY: every x86-64 has SSE2, and `out` is as long as what is stored.
        unsafe {
            let floats = |bytes: &[u8; 4]| {
                let zero = _mm_setzero_si128();
                let bytes = _mm_cvtsi32_si128(i32::from_le_bytes(*bytes));
                let words = _mm_unpacklo_epi8(bytes, zero);
                _mm_cvtepi32_ps(_mm_unpacklo_epi16(words, zero))
            };
            let (low, high) = (floats(low), floats(high));
            let step = _mm_mul_ps(_mm_sub_ps(high, low), _mm_set1_ps(part));
            _mm_storeu_ps(out.as_mut_ptr(), _mm_add_ps(low, step));
        }
    }
}

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
            _ if x >= self.radius() => 0.0,
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
    let plan = Plan::of(size, new, method, antialias);
    for image in images.chunks_exact(image_length.max(1)) {
        match channels {
            1 => wide(image, Few::<1>, &plan, &mut made),
            3 => wide(image, Few::<3>, &plan, &mut made),
            4 => wide(image, Few::<4>, &plan, &mut made),
            _ => wide(image, Many(channels), &plan, &mut made),
        }
    }
    Ok(made)
}

/// What is the same for all images of a batch.
enum Plan {
    Bilinear { width: usize, down: Vec<Tap>, across: Vec<Tap> },
    Sums { width: usize, down: Spans, across: Spans, part: f32 },
}

impl Plan {
    fn of((rows, width, _): Size, new: (usize, usize), method: Method, antialias: bool) -> Self {
        let sums = |down, across, part| Self::Sums { width, down, across, part };
        match method {
            Method::Bilinear => {
                Self::Bilinear { width, down: taps(rows, new.0), across: taps(width, new.1) }
            }
            Method::Bicubic => sums(bicubic(rows, new.0), bicubic(width, new.1), 1.0),
            Method::Area => {
                let part = 1.0 / (step(rows, new.0) * step(width, new.1));
                sums(boxes(rows, new.0), boxes(width, new.1), part)
            }
            Method::Filter(filter) => sums(
                filtered(filter, rows, new.0, antialias),
                filtered(filter, width, new.1, antialias),
                1.0,
            ),
        }
    }
}

/// How many channels a pixel has: a number that the compiler knows, or any.
trait Channels: Copy {
    fn count(self) -> usize;
}

#[derive(Clone, Copy)]
struct Few<const N: usize>;

impl<const N: usize> Channels for Few<N> {
    #[inline(always)]
    fn count(self) -> usize {
        N
    }
}

#[derive(Clone, Copy)]
struct Many(usize);

impl Channels for Many {
    #[inline(always)]
    fn count(self) -> usize {
        self.0
    }
}

/// One image, with the widest vectors of this machine; the same arithmetic with any.
fn wide<T: Value>(image: &[T], channels: impl Channels, plan: &Plan, made: &mut Vec<f32>) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2<T: Value>(image: &[T], channels: impl Channels, plan: &Plan, made: &mut Vec<f32>) {
            one(image, channels, plan, made);
        }
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the machine has what the function was compiled for.
            return unsafe { avx2(image, channels, plan, made) };
        }
    }
    one(image, channels, plan, made);
}

#[inline(always)]
fn one<T: Value>(image: &[T], channels: impl Channels, plan: &Plan, made: &mut Vec<f32>) {
    match plan {
        Plan::Bilinear { width, down, across } => {
            bilinear(image, *width, channels, down, across, made);
        }
        Plan::Sums { width, down, across, part } => {
            convolve(image, *width, channels, (down, across), *part, made);
        }
    }
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
fn row_across<T: Value>(row: &[T], channels: impl Channels, across: &[Tap], out: &mut [f32]) {
    let count = channels.count();
    // Three channels go as four, of which the last is overwritten by the next pixel's first: that is
    // one vector. It reads a value beyond its pixel, which the last pixel of a row does not have.
    let whole = across.partition_point(|tap| (tap.high + 1) * count < row.len());
    let (inner, rest) = across.split_at(if count == 3 { whole } else { 0 });
    for (x, tap) in inner.iter().enumerate() {
        let low = row.get(tap.low * 3..).and_then(<[T]>::first_chunk::<4>);
        let high = row.get(tap.high * 3..).and_then(<[T]>::first_chunk::<4>);
        let target = out.get_mut(x * 3..).and_then(<[f32]>::first_chunk_mut::<4>);
        if let (Some(low), Some(high), Some(target)) = (low, high, target) {
            T::four_between(low, high, tap.part, target);
        }
    }
    let out = out.get_mut(inner.len() * count..).unwrap_or_default();
    for (target, tap) in out.chunks_exact_mut(count.max(1)).zip(rest) {
        let low = row.get(tap.low * count..(tap.low + 1) * count).unwrap_or_default();
        let high = row.get(tap.high * count..(tap.high + 1) * count).unwrap_or_default();
        for ((target, low), high) in target.iter_mut().zip(low).zip(high) {
            *target = between(low.float(), high.float(), tap.part);
        }
    }
}

#[inline(always)]
fn bilinear<T: Value>(
    image: &[T],
    width: usize,
    channels: impl Channels,
    down: &[Tap],
    across: &[Tap],
    made: &mut Vec<f32>,
) {
    let (length, row_length) = (across.len() * channels.count(), width * channels.count());
    let (mut low, mut high) = (vec![0f32; length + 1], vec![0f32; length + 1]);
    let (mut low_is, mut high_is) = (usize::MAX, usize::MAX);
    let row = |y: usize| image.get(y * row_length..(y + 1) * row_length).unwrap_or_default();
    for tap in down {
        // Often the lower of the two rows was the upper one before.
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
#[inline(always)]
fn convolve<T: Value>(
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
        // A sum begins with 0, as a product of it is not: -0 becomes 0.
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
