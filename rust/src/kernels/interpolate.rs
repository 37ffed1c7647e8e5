//! Resizes images with TensorFlow's arithmetic: the centres of pixels are at halves, all values are
//! float32, and nothing is rounded or clipped. Rows are interpolated when they are needed. Images of bytes
//! and floats are read in place; other images are converted to floats first.

mod bilinear;
mod sums;

use bilinear::{Across, Tap, bilinear, taps};
use sums::{Spans, bicubic, boxes, convolve, filtered};

use std::borrow::Cow;

use crate::wire::{Fault, FaultKind};

/// A type of image values.
pub trait Value: Copy {
    /// The type that the loops read it as, so that they are compiled for few types.
    type Read: Read;

    /// View the values of an image as this type.
    fn read(values: &[Self]) -> Result<Cow<'_, [Self::Read]>, Fault>;
}

/// A type that the loops read.
pub trait Read: Copy {
    /// As float32.
    fn float(self) -> f32;

    /// Compute the first columns of a row with three channels by vector code. Returns the number of
    /// columns that were computed.
    #[inline(always)]
    fn across_three(_row: &[Self], _across: &Across, _out: &mut [f32]) -> usize {
        0
    }
}

macro_rules! values {
    ($($kind:ty)*) => {
        $(impl Value for $kind {
            type Read = f32;

            fn read(values: &[Self]) -> Result<Cow<'_, [f32]>, Fault> {
                let mut floats = room(values.len())?;
                floats.extend(values.iter().map(|&value| value as f32));
                Ok(Cow::Owned(floats))
            }
        })*
    };
}
values!(i8 u16 i16 u32 i32 u64 i64 f64);

macro_rules! read_as_they_lie {
    ($($kind:ty)*) => {
        $(impl Value for $kind {
            type Read = Self;

            fn read(values: &[Self]) -> Result<Cow<'_, [Self]>, Fault> {
                Ok(Cow::Borrowed(values))
            }
        })*
    };
}
read_as_they_lie!(u8 f32);

impl Read for f32 {
    #[inline(always)]
    fn float(self) -> f32 {
        self
    }
}

impl Read for u8 {
    #[inline(always)]
    fn float(self) -> f32 {
        f32::from(self)
    }

    #[inline(always)]
    fn across_three(row: &[u8], across: &Across, out: &mut [f32]) -> usize {
        across.bytes_of_three(row, out)
    }
}

/// How values between pixels are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Between the two nearest pixels; `triangle` if the filter widens when the image shrinks.
    Bilinear,
    /// Keys' cubic with a = -1/2, from a table of 1024 steps.
    Bicubic,
    /// The mean of the old pixels that a new pixel covers.
    Area,
    /// Another filter, with or without widening.
    Filter(Filter),
}

/// A filter: the weight of a pixel at a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Falls linearly.
    Triangle,
    /// Keys' cubic.
    Keys,
    /// Three lobes of Lanczos' window.
    Lanczos3,
    /// Five lobes.
    Lanczos5,
    /// A Gaussian of radius 1.5.
    Gaussian,
    /// The cubic of Mitchell and Netravali.
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

/// Consecutive images, each resized to a new height and width.
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
    let mut made = room(length)?;
    let plan = Plan::of(size, new, method, antialias);
    for image in images.chunks_exact(image_length.max(1)) {
        let image = &*T::read(image)?;
        match channels {
            1 => wide(image, Few::<1>, &plan, &mut made),
            3 => wide(image, Few::<3>, &plan, &mut made),
            4 => wide(image, Few::<4>, &plan, &mut made),
            _ => wide(image, Many(channels), &plan, &mut made),
        }
    }
    Ok(made)
}

fn room(length: usize) -> Result<Vec<f32>, Fault> {
    let mut values = Vec::new();
    let no_memory = |_| Fault::new(FaultKind::Limit, 0, format!("no memory for {length} values"));
    values.try_reserve_exact(length).map_err(no_memory)?;
    Ok(values)
}

/// The state shared by all images of a batch.
enum Plan {
    Bilinear { width: usize, down: Vec<Tap>, across: Across },
    Sums { width: usize, down: Spans, across: Spans, part: f32 },
}

impl Plan {
    fn of(
        (rows, width, channels): Size,
        new: (usize, usize),
        method: Method,
        antialias: bool,
    ) -> Self {
        let sums = |down, across, part| Self::Sums { width, down, across, part };
        match method {
            Method::Bilinear => {
                let across = Across::of(width, new.1, channels);
                Self::Bilinear { width, down: taps(rows, new.0), across }
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

/// The number of channels of a pixel: known to the compiler, or any.
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

/// Resize one image with the widest vectors of this machine. The arithmetic is the same for all widths.
fn wide<T: Read>(image: &[T], channels: impl Channels, plan: &Plan, made: &mut Vec<f32>) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2<T: Read>(image: &[T], channels: impl Channels, plan: &Plan, made: &mut Vec<f32>) {
            one(image, channels, plan, made);
        }
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the machine has the features for which the function was compiled.
            return unsafe { avx2(image, channels, plan, made) };
        }
    }
    one(image, channels, plan, made);
}

#[inline(always)]
fn one<T: Read>(image: &[T], channels: impl Channels, plan: &Plan, made: &mut Vec<f32>) {
    match plan {
        Plan::Bilinear { width, down, across } => {
            bilinear(image, *width, channels, down, across, made);
        }
        Plan::Sums { width, down, across, part } => {
            convolve(image, *width, channels, (down, across), *part, made);
        }
    }
}

/// The old pixel for each new pixel.
fn step(old: usize, new: usize) -> f32 {
    old as f32 / new as f32
}

/// The old pixel whose area contains the centre of each new pixel.
pub fn nearest(old: usize, new: usize) -> Vec<usize> {
    let scale = step(old, new);
    (0..new).map(|i| (((i as f32 + 0.5) * scale) as usize).min(old.saturating_sub(1))).collect()
}

/// Images whose pixels are copied unchanged; `pixel` is their size in bytes.
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
