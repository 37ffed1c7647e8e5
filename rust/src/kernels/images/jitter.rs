//! Changes the colours of one image at random: torchvision's `ColorJitter`, then `RandomGrayscale`.
//!
//! The formulas are torchvision's for RGB of 8 bits, with the same roundings: `a * b + c` is rounded
//! once. Results are the same on every machine. `tests/loader/test_jitter.py` compares both.

use super::draws::Draws;

/// How colours are changed at random.
#[derive(Clone, Debug)]
pub struct Jitter {
    /// The ranges of brightness, contrast, saturation and hue, in the order of `KINDS`; None leaves
    /// the image as it is.
    pub ranges: [Option<(f64, f64)>; 4],
    /// The probability of these four changes, which are made together or not at all.
    pub probability: f64,
    /// The probability that the image becomes grey.
    pub grayscale: f64,
}

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Multiply all values.
    Brightness,
    /// Multiply the distances from the mean grey of the image.
    Contrast,
    /// Multiply the distances from the grey of the pixel.
    Saturation,
    /// Rotate the hue by a number of turns.
    Hue,
    /// Replace all colours by their grey.
    Grayscale,
}

const KINDS: [Kind; 4] = [Kind::Brightness, Kind::Contrast, Kind::Saturation, Kind::Hue];

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Brightness => "brightness",
            Self::Contrast => "contrast",
            Self::Saturation => "saturation",
            Self::Hue => "hue",
            Self::Grayscale => "grayscale",
        }
    }
}

/// A change, and its factor or the number of turns.
pub type Step = (Kind, f64);

/// Separates these draws from those of the crop and the flips, which have the same key.
const COLOURS: u64 = 0x6a09_e667_f3bc_c909;

impl Jitter {
    /// The changes for a key. As many numbers are drawn whatever the settings are, so that one setting
    /// does not affect what is drawn for another.
    pub fn drawn(&self, key: u64) -> Vec<Step> {
        let mut draws = Draws::new(key ^ COLOURS);
        let is_changed = draws.between(0.0, 1.0) < self.probability;
        let is_grey = draws.between(0.0, 1.0) < self.grayscale;
        let mut steps = [0, 1, 2, 3];
        for last in (1..4).rev() {
            steps.swap(last, draws.below(last as u64 + 1) as usize);
        }
        let factors = self.ranges.map(|range| {
            let (low, high) = range.unwrap_or_default();
            let factor = draws.between(low, high);
            range.map(|_| factor)
        });
        let step = |place: usize| KINDS.get(place).copied().zip(*factors.get(place)?);
        let mut found: Vec<Step> =
            if is_changed { steps.into_iter().filter_map(step).collect() } else { Vec::new() };
        if is_grey {
            found.push((Kind::Grayscale, 1.0));
        }
        found
    }
}

/// Change the colours of RGB pixels.
pub fn change(steps: &[Step], pixels: &mut [u8]) {
    for &(kind, factor) in steps {
        // A larger factor would change nothing more.
        let factor = factor.min(1e6);
        let (times, rest) = (factor as f32, (1.0 - factor) as f32);
        match kind {
            Kind::Brightness => look_up(pixels, times, 0.0),
            Kind::Contrast => {
                let mean = mean_grey(pixels);
                look_up(pixels, times, mean * rest);
            }
            Kind::Saturation => each(pixels, &mut Saturate { times, rest }),
            Kind::Hue => each(pixels, &mut Turn((factor.rem_euclid(1.0) * 6.0) as f32)),
            Kind::Grayscale => each(pixels, &mut Grey),
        }
    }
}

/// Replace each value by `value * times + more`.
fn look_up(pixels: &mut [u8], times: f32, more: f32) {
    let table: [u8; 256] =
        std::array::from_fn(|value| within(value as f32 * times + more, 0.0, 255.0) as u8);
    for value in pixels {
        *value = table.get(usize::from(*value)).copied().unwrap_or_default();
    }
}

fn mean_grey(pixels: &mut [u8]) -> f32 {
    let mut sum = SumOfGreys(0.0);
    each(pixels, &mut sum);
    (sum.0 / (pixels.len() / 3).max(1) as f64) as f32
}

/// A change of single pixels.
trait Change {
    fn pixel(&mut self, pixel: [f32; 3]) -> [f32; 3];
}

struct Grey;

impl Change for Grey {
    #[inline(always)]
    fn pixel(&mut self, pixel: [f32; 3]) -> [f32; 3] {
        [grey(pixel); 3]
    }
}

/// The grey of a pixel, rounded down.
#[inline(always)]
fn grey([red, green, blue]: [f32; 3]) -> f32 {
    blue.mul_add(0.114, green.mul_add(0.587, red * 0.2989)) as i32 as f32
}

/// Changes nothing, but adds up greys.
struct SumOfGreys(f64);

impl Change for SumOfGreys {
    #[inline(always)]
    fn pixel(&mut self, pixel: [f32; 3]) -> [f32; 3] {
        self.0 += f64::from(grey(pixel));
        pixel
    }
}

struct Saturate {
    times: f32,
    rest: f32,
}

impl Change for Saturate {
    #[inline(always)]
    fn pixel(&mut self, pixel: [f32; 3]) -> [f32; 3] {
        let grey = grey(pixel);
        pixel.map(|value| within(grey.mul_add(self.rest, value * self.times), 0.0, 255.0))
    }
}

/// Rotates the hue by some sixths of a turn.
///
/// The largest and the smallest value stay. No division is needed, because hues are multiplied by the
/// range of the values: a sixth of a turn is then the range. The value of each colour is the one that
/// `most - range * clamp(min(k, 4 - k), 0, 1)` gives, where k is the hue in sixths plus 5, 3 or 1.
struct Turn(f32);

impl Change for Turn {
    #[inline(always)]
    fn pixel(&mut self, [red, green, blue]: [f32; 3]) -> [f32; 3] {
        // What torchvision multiplies values from 0 to 1 by before it rounds them down, over 255.
        const SCALE: f32 = 255.999 / 255.0;
        let most = larger(larger(red, green), blue);
        let range = most - smaller(smaller(red, green), blue);
        let from_green =
            if most == green { 2.0 * range + blue - red } else { 4.0 * range + red - green };
        let hue = if most == red { green - blue } else { from_green };
        let whole = 6.0 * range;
        let wrapped = |hue: f32| if hue >= whole { hue - whole } else { hue };
        let hue = if hue < 0.0 { hue + whole } else { hue };
        let hue = wrapped(hue + self.0 * range);
        [5.0, 3.0, 1.0].map(|sixths| {
            let place = wrapped(hue + sixths * range);
            (most - within(smaller(place, 4.0 * range - place), 0.0, range)) * SCALE
        })
    }
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a < b { b } else { a }
}

#[inline(always)]
fn smaller(a: f32, b: f32) -> f32 {
    if b < a { b } else { a }
}

/// The value limited to a range. Unlike `clamp`, it cannot panic, so vectors can be used.
#[inline(always)]
fn within(value: f32, low: f32, high: f32) -> f32 {
    smaller(larger(value, low), high)
}

/// Change each pixel, with the widest vectors of this machine, and its instruction for `mul_add`, which is
/// slow without one. The arithmetic is the same.
fn each(pixels: &mut [u8], change: &mut impl Change) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn avx2(pixels: &mut [u8], change: &mut impl Change) {
            by_blocks(pixels, change);
        }
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            // SAFETY: the machine has the features for which the function was compiled.
            return unsafe { avx2(pixels, change) };
        }
    }
    by_blocks(pixels, change);
}

/// Pixels changed together: their values are sorted by colour, so that one instruction handles several
/// of them.
const TOGETHER: usize = 64;

#[inline(always)]
fn by_blocks(pixels: &mut [u8], change: &mut impl Change) {
    for block in pixels.as_chunks_mut::<3>().0.chunks_mut(TOGETHER) {
        let [mut reds, mut greens, mut blues] = [[0.0; TOGETHER]; 3];
        let colours = reds.iter_mut().zip(&mut greens).zip(&mut blues);
        for (((red, green), blue), pixel) in colours.zip(&*block) {
            [*red, *green, *blue] = pixel.map(f32::from);
        }
        for ((red, green), blue) in reds.iter_mut().zip(&mut greens).zip(&mut blues) {
            [*red, *green, *blue] = change.pixel([*red, *green, *blue]);
        }
        let colours = reds.iter().zip(&greens).zip(&blues);
        for (((red, green), blue), pixel) in colours.zip(block) {
            *pixel = [*red, *green, *blue].map(|value| value as i32 as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Jitter = Jitter {
        ranges: [Some((0.6, 1.4)), Some((0.6, 1.4)), Some((0.6, 1.4)), Some((-0.1, 0.1))],
        probability: 0.8,
        grayscale: 0.2,
    };

    /// Colours of all hues, some of them grey, in no whole number of blocks.
    fn colours() -> Vec<u8> {
        let steps = [0u8, 1, 60, 128, 200, 254, 255];
        let pixel = |r: u8| steps.into_iter().flat_map(move |g| steps.map(move |b| [r, g, b]));
        steps.into_iter().flat_map(pixel).flatten().collect()
    }

    fn changed(steps: &[Step]) -> Vec<u8> {
        let mut pixels = colours();
        change(steps, &mut pixels);
        pixels
    }

    #[test]
    fn one_setting_does_not_affect_what_is_drawn_for_another() {
        for key in 0..200 {
            let all = ALL.drawn(key);
            let [_, contrast, _, hue] = ALL.ranges;
            let some = Jitter { ranges: [None, contrast, None, hue], ..ALL }.drawn(key);
            let without = |step: &&Step| !matches!(step.0, Kind::Brightness | Kind::Saturation);
            assert_eq!(some, all.iter().filter(without).copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn probabilities_and_orders_are_uniform() {
        let drawn: Vec<_> = (0..4000).map(|key| ALL.drawn(key)).collect();
        let count = |of: &dyn Fn(&Vec<Step>) -> bool| drawn.iter().filter(|one| of(one)).count();
        assert!((3100..3300).contains(&count(&|steps| steps.len() >= 4)));
        let is_grey = |steps: &Vec<Step>| steps.last() == Some(&(Kind::Grayscale, 1.0));
        assert!((720..880).contains(&count(&is_grey)));
        for kind in KINDS {
            for place in 0..4 {
                let is_there = |steps: &Vec<Step>| steps.get(place).is_some_and(|s| s.0 == kind);
                assert!((720..880).contains(&count(&is_there)), "{kind:?} {place}");
            }
        }
        let never = Jitter { probability: 0.0, grayscale: 0.0, ..ALL };
        assert!((0..100).all(|key| never.drawn(key).is_empty()));
        let always = Jitter { probability: 1.0, grayscale: 1.0, ..ALL };
        assert!((0..100).all(|key| always.drawn(key).len() == 5));
    }

    #[test]
    fn a_factor_of_one_and_whole_turns_change_nothing() {
        for step in [(Kind::Brightness, 1.0), (Kind::Contrast, 1.0), (Kind::Saturation, 1.0)] {
            assert_eq!(changed(&[step]), colours(), "{step:?}");
        }
        for turns in [0.0, 1.0, -1.0] {
            assert_eq!(changed(&[(Kind::Hue, turns)]), colours());
        }
    }

    #[test]
    fn a_third_of_a_turn_moves_red_to_green() {
        let thirds = changed(&[(Kind::Hue, 1.0 / 3.0)]);
        for (new, old) in thirds.as_chunks::<3>().0.iter().zip(colours().as_chunks::<3>().0) {
            let [red, green, blue] = *old;
            let near = new.iter().zip([blue, red, green]).all(|(a, b)| a.abs_diff(b) <= 1);
            assert!(near, "{old:?} {new:?}");
        }
    }

    #[test]
    fn extreme_factors_stay_in_range() {
        let grey = changed(&[(Kind::Grayscale, 1.0)]);
        assert_eq!(changed(&[(Kind::Saturation, 0.0)]), grey);
        assert!(changed(&[(Kind::Brightness, 0.0)]).iter().all(|&value| value == 0));
        let bright = changed(&[(Kind::Brightness, 1e300)]);
        assert!(
            bright.iter().zip(colours()).all(|(&new, old)| new == if old > 0 { 255 } else { 0 })
        );
        for ((new, old), grey) in
            changed(&[(Kind::Saturation, 1e300)]).iter().zip(colours()).zip(grey)
        {
            let expected = if old < grey {
                0
            } else if old > grey {
                255
            } else {
                grey
            };
            assert_eq!(*new, expected);
        }
        change(&[(Kind::Contrast, 0.5)], &mut []);
    }
}
