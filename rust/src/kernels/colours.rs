//! Changes hue and saturation pixel by pixel.

use std::ops::{Add, Div, Mul, Sub};

/// A float of either size.
pub trait Real:
    Copy
    + PartialOrd
    + From<f32>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
}
impl Real for f32 {}
impl Real for f64 {}

/// A change of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// RGB to hue, saturation and value.
    ToHsv,
    /// The reverse.
    FromHsv,
    /// Rotate the hue by a number of turns.
    Hue,
    /// Multiply the saturation.
    Saturation,
}

/// Change pixels of three values each. `amount` is used only for hue and saturation.
pub fn change<T: Real>(pixels: &[T], change: Change, amount: T) -> Vec<T> {
    if change == Change::Saturation {
        return saturate(pixels, amount);
    }
    let mut made = Vec::with_capacity(pixels.len());
    for &pixel in pixels.as_chunks::<3>().0 {
        made.extend_from_slice(&match change {
            Change::ToHsv => to_hsv(pixel),
            Change::FromHsv => from_hsv(pixel),
            Change::Hue | Change::Saturation => turned(pixel, amount),
        });
    }
    made
}

/// Multiply the saturation, with the widest vectors of this machine. The arithmetic is the same for all widths.
fn saturate<T: Real>(pixels: &[T], amount: T) -> Vec<T> {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2<T: Real>(pixels: &[T], amount: T) -> Vec<T> {
            saturated(pixels, amount)
        }
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the machine has the features for which the function was compiled.
            return unsafe { avx2(pixels, amount) };
        }
    }
    saturated(pixels, amount)
}

/// Pixels changed together: their values are sorted by colour, so that one instruction handles several of them.
const TOGETHER: usize = 32;

/// Multiply the distances of a pixel's values from the largest, until the smallest would be below 0. That is what
/// multiplying the saturation of HSV does, without HSV.
#[inline(always)]
fn saturated<T: Real>(pixels: &[T], amount: T) -> Vec<T> {
    let zero = T::from(0.0);
    let mut made = Vec::with_capacity(pixels.len());
    let mut colours = [[zero; TOGETHER]; 3];
    let mut block = [[zero; 3]; TOGETHER];
    for part in pixels.as_chunks::<3>().0.chunks(TOGETHER) {
        let [red, green, blue] = &mut colours;
        for (((r, g), b), pixel) in red.iter_mut().zip(&mut *green).zip(&mut *blue).zip(part) {
            [*r, *g, *b] = *pixel;
        }
        for ((r, g), b) in red.iter_mut().zip(&mut *green).zip(&mut *blue) {
            let top = most(*r, most(*g, *b));
            let ratio = top / (top - least(*r, least(*g, *b)));
            let ratio = if ratio < amount { ratio } else { amount };
            let ratio = if ratio > zero { ratio } else { zero };
            *r = (*r - top) * ratio + top;
            *g = (*g - top) * ratio + top;
            *b = (*b - top) * ratio + top;
        }
        for (pixel, ((r, g), b)) in block.iter_mut().zip(red.iter().zip(&*green).zip(&*blue)) {
            *pixel = [*r, *g, *b];
        }
        made.extend_from_slice(block.as_flattened().get(..part.len() * 3).unwrap_or_default());
    }
    made
}

fn most<T: Real>(a: T, b: T) -> T {
    if a < b { b } else { a }
}

fn least<T: Real>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

fn to_hsv<T: Real>([r, g, b]: [T; 3]) -> [T; 3] {
    let (zero, one, six) = (T::from(0.0), T::from(1.0), T::from(6.0));
    let value = most(r, most(g, b));
    let range = value - least(r, least(g, b));
    let saturation = if value > zero { range / value } else { zero };
    if range <= zero {
        return [zero, saturation, value];
    }
    let norm = one / (six * range);
    let hue = if r == value {
        norm * (g - b)
    } else if g == value {
        norm * (b - r) + T::from(2.0) / six
    } else {
        norm * (r - g) + T::from(4.0) / six
    };
    [if hue < zero { hue + one } else { hue }, saturation, value]
}

/// Each primary colour rises and falls along a trapezoid over the six parts of the circle, and each is
/// shifted.
fn from_hsv<T: Real>([hue, saturation, value]: [T; 3]) -> [T; 3] {
    let (zero, one) = (T::from(0.0), T::from(1.0));
    let clip = |x: T| {
        if x < zero {
            zero
        } else if x > one {
            one
        } else {
            x
        }
    };
    let distance = |x: T| if x < zero { zero - x } else { x };
    let at = hue * T::from(6.0);
    let red = clip(distance(at - T::from(3.0)) - one);
    let green = clip(T::from(2.0) - distance(at - T::from(2.0)));
    let blue = clip(T::from(2.0) - distance(at - T::from(4.0)));
    [red, green, blue].map(|part| ((part - one) * saturation + one) * value)
}

/// Rotate the hue, keeping the largest and the smallest value.
fn turned<T: Real>([r, g, b]: [T; 3], turns: T) -> [T; 3] {
    let (zero, one, six) = (T::from(0.0), T::from(1.0), T::from(6.0));
    let (high, low) = (most(r, most(g, b)), least(r, least(g, b)));
    let range = high - low;
    let mut at = if range <= zero {
        zero
    } else if r == high {
        let at = (g - b) / range;
        if at < zero { at + six } else { at }
    } else if g == high {
        (b - r) / range + T::from(2.0)
    } else {
        (r - g) / range + T::from(4.0)
    };
    at = at + turns * six;
    while at < zero {
        at = at + six;
    }
    while at >= six {
        at = at - six;
    }
    let clip = |x: T| {
        if x < zero {
            zero
        } else if x > one {
            one
        } else {
            x
        }
    };
    let distance = |x: T| if x < zero { zero - x } else { x };
    let parts = [
        clip(distance(at - T::from(3.0)) - one),
        clip(T::from(2.0) - distance(at - T::from(2.0))),
        clip(T::from(2.0) - distance(at - T::from(4.0))),
    ];
    parts.map(|part| low + part * range)
}
