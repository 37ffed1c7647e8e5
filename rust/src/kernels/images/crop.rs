//! Computes which part of an image is used, from its size and the record's key only, so that the result
//! does not depend on threads or batches.
//!
//! Random numbers are computed from the key by splitmix64: first the flips, then the area and the
//! aspect ratio of up to ten tries, and then top and left for the first try that fits into the
//! image. This is torchvision's `RandomResizedCrop` with other random numbers. Only sums, products,
//! quotients and square roots are used, because their results are the same on every machine; those
//! of the C library's `exp` and `log` are not.

use super::draws::{Draws, exp, log};
use crate::wire::{Fault, FaultKind};

/// The part of an image to crop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crop {
    /// The whole image.
    Whole,
    /// The middle, at a size with some margin.
    Center,
    /// A part of random area, aspect ratio and position.
    Random,
    /// The whole image in its proportions, with a margin where the new size has others.
    Letterbox,
}

impl Crop {
    /// The crop with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "whole" => Some(Self::Whole),
            "center" => Some(Self::Center),
            "random" => Some(Self::Random),
            "letterbox" => Some(Self::Letterbox),
            _ => None,
        }
    }
}

/// The inputs that determine the view of an image, in addition to its own size.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// The key of its record.
    pub key: u64,
    /// Width and height of the record's main image, whose view this image shares; None for the main
    /// image.
    pub main: Option<(u32, u32)>,
}

/// How images are cropped, resized and flipped.
#[derive(Clone, Debug)]
pub struct Law {
    /// Height and width of the result; None for those of each image.
    pub size: Option<(u32, u32)>,
    /// The kind of crop.
    pub crop: Crop,
    /// Whether each image is mirrored with a probability of one half.
    pub flip: bool,
    /// Whether each image is turned upside down with a probability of one half.
    pub upside_down: bool,
    /// The smallest and largest area of a random crop, as a fraction of the image's area.
    pub scale: (f64, f64),
    /// The smallest and largest width / height.
    pub ratio: (f64, f64),
    /// The fraction of the shorter side that a center crop keeps.
    pub center_fraction: f64,
    /// Whether each image is first turned upright, as its EXIF says.
    pub exif: bool,
    /// The pixels that are added on each side of the image before a center or random crop of `size`
    /// pixels, which is not resized; None if crops are resized.
    pub pad: Option<u32>,
}

/// A rectangle of whole pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its first column.
    pub left: u32,
    /// Its first row.
    pub top: u32,
    /// Columns, at least 1.
    pub width: u32,
    /// Rows, at least 1.
    pub height: u32,
}

/// A range of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Its beginning; pixel 3 reaches from 3.0 to 4.0.
    pub start: f64,
    /// Its length.
    pub length: f64,
}

/// The geometry for one image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// The pixels that are read.
    pub bounds: Region,
    /// The columns that become the new image, inside the pixels that are read.
    pub across: Span,
    /// Its rows.
    pub down: Span,
    /// Pixels of the new image from left to right, without its margin.
    pub width: u32,
    /// Pixels from top to bottom.
    pub height: u32,
    /// Whether the image is mirrored.
    pub flip: bool,
    /// Whether its rows are in reverse.
    pub upside_down: bool,
    /// What surrounds it in the result.
    pub margin: Margin,
}

/// Pixels around a new image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Margin {
    /// Columns before it.
    pub left: u32,
    /// Rows above it.
    pub top: u32,
    /// Columns behind it.
    pub right: u32,
    /// Rows below it.
    pub bottom: u32,
}

impl View {
    /// Give the new image the proportions of the old one, with a margin up to the size that it had:
    /// Pillow's `ImageOps.pad`.
    fn fit(&mut self, width: u32, height: u32) {
        let [old_width, old_height, new_width, new_height] =
            [width, height, self.width, self.height].map(f64::from);
        let side = |length: f64, most: u32| length.round_ties_even().clamp(1.0, most.into()) as u32;
        let margin = |left_over: u32| (f64::from(left_over) * 0.5).round_ties_even() as u32;
        if old_width / old_height > new_width / new_height {
            let height = side(old_height / old_width * new_width, self.height);
            let (top, rest) = (margin(self.height - height), self.height - height);
            self.margin = Margin { top, bottom: rest - top, ..Margin::default() };
            self.height = height;
        } else {
            let width = side(old_width / old_height * new_height, self.width);
            let (left, rest) = (margin(self.width - width), self.width - width);
            self.margin = Margin { left, right: rest - left, ..Margin::default() };
            self.width = width;
        }
    }

    /// Take these pixels only, without resizing them. Padding becomes the margin, which is mirrored
    /// and reversed as the image is.
    fn cut(&mut self, across: Cut, down: Cut) {
        self.bounds = Region {
            left: across.start,
            top: down.start,
            width: across.length,
            height: down.length,
        };
        let span = |cut: &Cut| Span { start: cut.start.into(), length: cut.length.into() };
        (self.across, self.down) = (span(&across), span(&down));
        (self.width, self.height) = (across.length, down.length);
        let ends = |(before, behind), flip| if flip { (behind, before) } else { (before, behind) };
        let (left, right) = ends(across.margin, self.flip);
        let (top, bottom) = ends(down.margin, self.upside_down);
        self.margin = Margin { left, top, right, bottom };
    }

    /// The view of a smaller or larger image of the same scene.
    fn on(&self, (main_width, main_height): (u32, u32), (width, height): (u32, u32)) -> Self {
        let scaled = |span: Span, from: u32, to: u32| Span {
            start: span.start * f64::from(to) / f64::from(from),
            length: span.length * f64::from(to) / f64::from(from),
        };
        let scale = |first: u32, length: u32, from: u32, to: u32| {
            let [first, length, from, to] = [first, length, from, to].map(u64::from);
            let start = first * to / from;
            let end = ((first + length) * to).div_ceil(from);
            (start as u32, (end - start) as u32)
        };
        let (left, across) = scale(self.bounds.left, self.bounds.width, main_width, width);
        let (top, down) = scale(self.bounds.top, self.bounds.height, main_height, height);
        Self {
            bounds: Region { left, top, width: across, height: down },
            across: scaled(self.across, main_width, width),
            down: scaled(self.down, main_height, height),
            ..*self
        }
    }
}

/// The part of an axis that a crop without resizing takes.
struct Cut {
    start: u32,
    /// Pixels, at least 1.
    length: u32,
    /// The pixels of padding before and behind it.
    margin: (u32, u32),
}

impl Cut {
    /// `place` gives the first pixel of the crop, which has `new` pixels of the `old` and the padding, for the number
    /// of pixels that are not in it. The padding is narrower than the crop, so that a pixel of the image is in it.
    fn new(old: u32, new: u32, pad: u32, place: &mut impl FnMut(u32) -> u32) -> Self {
        let extra = old.saturating_add(pad.saturating_mul(2)).saturating_sub(new);
        let first = place(extra);
        let before = pad.saturating_sub(first).min(new.saturating_sub(1));
        let start = first.saturating_sub(pad).min(old.saturating_sub(1));
        let length = (new - before).min(old - start);
        Self { start, length, margin: (before, new - before - length) }
    }
}

/// Whether both sizes have the same aspect ratio, except that the sides of the smaller one were
/// rounded to whole pixels.
fn have_same_proportions(one: (u32, u32), other: (u32, u32)) -> bool {
    let [w1, h1, w2, h2] = [one.0, one.1, other.0, other.1].map(u64::from);
    (w1 * h2).abs_diff(w2 * h1) <= w1.max(h1).max(w2).max(h2)
}

impl Law {
    /// The geometry for an image of this size whose record has this key.
    pub fn view(&self, width: u32, height: u32, key: u64) -> View {
        let mut draws = Draws::new(key);
        let flip = self.flip && draws.below(2) == 1;
        let upside_down = self.upside_down && draws.below(2) == 1;
        let (new_height, new_width) = self.size.unwrap_or((height, width));
        let whole = Region { left: 0, top: 0, width, height };
        let bounds = if self.crop == Crop::Random && self.size.is_some() && self.pad.is_none() {
            self.random(width, height, &mut draws)
        } else {
            whole
        };
        let span = |start: u32, length: u32| Span { start: start.into(), length: length.into() };
        let mut view = View {
            bounds,
            across: span(bounds.left, bounds.width),
            down: span(bounds.top, bounds.height),
            width: new_width,
            height: new_height,
            flip,
            upside_down,
            margin: Margin::default(),
        };
        if self.crop == Crop::Letterbox {
            view.fit(width, height);
        }
        if let Some(pad) = self.pad {
            let random = self.crop == Crop::Random;
            let mut place = |extra: u32| match random {
                true => draws.below(u64::from(extra) + 1) as u32,
                false => (f64::from(extra) / 2.0).round_ties_even() as u32,
            };
            let down = Cut::new(height, new_height, pad, &mut place);
            view.cut(Cut::new(width, new_width, pad, &mut place), down);
        } else if self.crop == Crop::Center && self.size.is_some() {
            (view.across, view.down) = self.middle(width, height, new_width, new_height);
        }
        view
    }

    /// The geometry for an image of this size: its own, or that of the main image of its record.
    pub fn view_of(&self, width: u32, height: u32, draw: Draw) -> Result<View, Fault> {
        let main = draw.main.unwrap_or((width, height));
        if !have_same_proportions(main, (width, height)) {
            let (main_width, main_height) = main;
            let message = format!(
                "its {width} x {height} pixels do not have the proportions of the image that it \
                 goes with, which has {main_width} x {main_height}"
            );
            return Err(Fault::new(FaultKind::Schema, 0, message));
        }
        self.check_size(main)?;
        if main == (width, height) || self.size.is_none() {
            return Ok(self.view(width, height, draw.key));
        }
        Ok(self.view(main.0, main.1, draw.key).on(main, (width, height)))
    }

    /// Refuse an image that is too small for a crop that is not resized.
    fn check_size(&self, (width, height): (u32, u32)) -> Result<(), Fault> {
        let (Some(pad), Some((new_height, new_width))) = (self.pad, self.size) else {
            return Ok(());
        };
        let [wide, high] = [width, height].map(|side| side.saturating_add(pad.saturating_mul(2)));
        if wide >= new_width && high >= new_height {
            return Ok(());
        }
        let padded =
            if pad > 0 { format!(" (with pad={pad}: {wide} x {high})") } else { String::new() };
        let message = format!(
            "its {width} x {height} pixels{padded} are fewer than the {new_width} x {new_height} of \
             the crop, which resize=False does not enlarge; a larger pad= or a smaller size= fits it"
        );
        Err(Fault::new(FaultKind::Schema, 0, message))
    }

    /// torchvision's `RandomResizedCrop.get_params`.
    fn random(&self, width: u32, height: u32, draws: &mut Draws) -> Region {
        let area = f64::from(width) * f64::from(height);
        let (low, high) = self.ratio;
        let log_ratio = log(high / low);
        for _ in 0..10 {
            let area = area * draws.between(self.scale.0, self.scale.1);
            let ratio = low * exp(draws.between(0.0, log_ratio));
            let new_width = (area * ratio).sqrt().round_ties_even();
            let new_height = (area / ratio).sqrt().round_ties_even();
            let fits = |new: f64, old: u32| new >= 1.0 && new <= f64::from(old);
            if fits(new_width, width) && fits(new_height, height) {
                let (new_width, new_height) = (new_width as u32, new_height as u32);
                let top = draws.below(u64::from(height - new_height) + 1) as u32;
                let left = draws.below(u64::from(width - new_width) + 1) as u32;
                return Region { left, top, width: new_width, height: new_height };
            }
        }
        let found = f64::from(width) / f64::from(height);
        let side = |length: f64, most: u32| length.round_ties_even().clamp(1.0, most.into()) as u32;
        let (new_width, new_height) = if found < low {
            (width, side(f64::from(width) / low, height))
        } else if found > high {
            (side(f64::from(height) * high, width), height)
        } else {
            (width, height)
        };
        let (left, top) = ((width - new_width) / 2, (height - new_height) / 2);
        Region { left, top, width: new_width, height: new_height }
    }

    /// The middle of the image, as if the image was first resized so that it covers the new size
    /// with a margin: torchvision's `Resize(size / center_fraction)` and `CenterCrop(size)` in one
    /// step.
    fn middle(&self, width: u32, height: u32, new_width: u32, new_height: u32) -> (Span, Span) {
        let margin = |new: u32| (f64::from(new) / self.center_fraction).round_ties_even().max(1.0);
        let (wide, high) = (margin(new_width), margin(new_height));
        let (old_width, old_height) = (f64::from(width), f64::from(height));
        // The relatively shorter side gets its size with margin, and the other follows in proportion.
        let (wide, high) = if wide * old_height >= high * old_width {
            (wide, (wide * old_height / old_width).floor().max(f64::from(new_height)))
        } else {
            ((high * old_width / old_height).floor().max(f64::from(new_width)), high)
        };
        let span = |old: f64, resized: f64, new: u32| {
            let start = ((resized - f64::from(new)) / 2.0).round_ties_even();
            let pixel = old / resized;
            Span { start: start * pixel, length: f64::from(new) * pixel }
        };
        (span(old_width, wide, new_width), span(old_height, high, new_height))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(crop: Crop) -> Law {
        Law {
            size: Some((224, 224)),
            crop,
            flip: true,
            upside_down: false,
            scale: (0.08, 1.0),
            ratio: (0.75, 4.0 / 3.0),
            center_fraction: 0.875,
            exif: false,
            pad: None,
        }
    }

    #[test]
    fn random_crops_are_within_images_of_any_size() {
        for (width, height) in [(1, 1), (500, 375), (1, 3000), (65_500, 2), (3, 4)] {
            for key in 0..300 {
                let found = law(Crop::Random).view(width, height, key).bounds;
                assert!(found.width >= 1 && found.left + found.width <= width, "{found:?}");
                assert!(found.height >= 1 && found.top + found.height <= height, "{found:?}");
            }
        }
    }

    #[test]
    fn the_middle_of_a_square_is_the_fraction_that_was_asked() {
        let view = law(Crop::Center).view(512, 512, 7);
        assert_eq!(view.across, Span { start: 32.0, length: 448.0 });
        assert_eq!(view.down, view.across);
    }

    #[test]
    fn a_smaller_image_of_the_scene_has_the_view_at_its_scale() {
        for key in 0..300 {
            let main = law(Crop::Random).view(500, 375, key);
            let draw = Draw { key, main: Some((500, 375)) };
            assert_eq!(law(Crop::Random).view_of(500, 375, draw).unwrap(), main);
            let half = law(Crop::Random).view_of(250, 188, draw).unwrap();
            assert_eq!(half.across.start * 2.0, main.across.start);
            assert_eq!(half.across.length * 2.0, main.across.length);
            let bounds = half.bounds;
            assert!(bounds.left + bounds.width <= 250 && bounds.top + bounds.height <= 188);
            assert!(f64::from(bounds.left) <= half.across.start);
            let end = half.across.start + half.across.length;
            assert!(f64::from(bounds.left + bounds.width) >= end);
            assert_eq!(half.flip, main.flip);
        }
        let draw = Draw { key: 1, main: Some((500, 375)) };
        assert!(law(Crop::Whole).view_of(375, 500, draw).is_err());
        assert!(law(Crop::Whole).view_of(500, 380, draw).is_err());
    }

    #[test]
    fn an_image_in_a_letterbox_keeps_its_proportions() {
        let view = law(Crop::Letterbox).view(640, 427, 7);
        assert_eq!((view.width, view.height), (224, 149));
        assert_eq!(view.margin, Margin { left: 0, top: 38, right: 0, bottom: 37 });
        let view = law(Crop::Letterbox).view(1, 5000, 7);
        assert_eq!((view.width, view.height), (1, 224));
        assert_eq!(view.margin, Margin { left: 112, top: 0, right: 111, bottom: 0 });
        let view = law(Crop::Letterbox).view(60, 60, 7);
        assert_eq!((view.width, view.height, view.margin), (224, 224, Margin::default()));
    }

    #[test]
    fn each_kind_of_flip_has_a_draw_of_its_own() {
        let both = Law { upside_down: true, ..law(Crop::Whole) };
        let only = Law { flip: false, ..both.clone() };
        let mut seen = [0; 4];
        for key in 0..1000 {
            let one = law(Crop::Whole).view(4, 4, key);
            let two = both.view(4, 4, key);
            assert_eq!((one.flip, one.upside_down), (two.flip, false));
            assert_eq!(only.view(4, 4, key).upside_down, one.flip);
            if let Some(count) =
                seen.get_mut(usize::from(two.flip) + 2 * usize::from(two.upside_down))
            {
                *count += 1;
            }
        }
        assert!(seen.iter().all(|count| (200..300).contains(count)), "{seen:?}");
    }

    #[test]
    fn a_shape_out_of_bounds_gets_the_largest_middle_that_is_within() {
        let found = law(Crop::Random).view(1000, 10, 3).bounds;
        assert_eq!((found.width, found.height), (13, 10));
    }
}
