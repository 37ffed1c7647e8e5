//! Changes hue and saturation pixel by pixel, by way of HSV.

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
    let (zero, one) = (T::from(0.0), T::from(1.0));
    let mut made = Vec::with_capacity(pixels.len());
    for &pixel in pixels.as_chunks::<3>().0 {
        made.extend_from_slice(&match change {
            Change::ToHsv => to_hsv(pixel),
            Change::FromHsv => from_hsv(pixel),
            Change::Saturation => {
                let [hue, saturation, value] = to_hsv(pixel);
                let more = saturation * amount;
                let more = if more < zero {
                    zero
                } else if more > one {
                    one
                } else {
                    more
                };
                from_hsv([hue, more, value])
            }
            Change::Hue => turned(pixel, amount),
        });
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
