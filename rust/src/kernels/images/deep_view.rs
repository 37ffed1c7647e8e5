//! Makes one image for a model from an image of 16 bits per value, in full depth: it is decoded
//! whole, cropped, resized and mirrored.

use fast_image_resize::pixels::U16x3;

use super::crop::View;
use super::resize::{Place, Resizer};
use super::training_view::Recipe;
use super::turn::Turn;
use super::values::{DeepValues, write, write_grey};
use super::{Mode, Shape, damaged, png, ppm, room};
use crate::wire::image_head::{Codec, Head};
use crate::wire::{Fault, FaultKind, image_head, other_images};

/// Makes images one after another, and keeps reusable state.
#[derive(Default)]
pub struct DeepMaker {
    pixels: Vec<U16x3>,
    made: Vec<U16x3>,
    size: (u32, u32),
}

impl DeepMaker {
    /// Decode an image of 16 bits to RGB.
    pub fn decode(&mut self, bytes: &[u8], head: &Head, source: &mut Vec<u8>) -> Result<(), Fault> {
        let (shape, largest) = match head.codec {
            Codec::Png => (png::stored(bytes, head, false, source)?, u16::MAX),
            Codec::Ppm => {
                let shape = Shape::of(head, Mode::Stored);
                ppm::stored(bytes, shape, source)?;
                (shape, image_head::ppm(bytes)?.2)
            }
            _ => {
                let shape = Shape::of(head, Mode::Stored);
                let values = room(source, shape.bytes()?.saturating_mul(2))?;
                other_images::decode(bytes, head, values)?;
                (shape, u16::MAX)
            }
        };
        let length = shape.bytes()?.saturating_mul(2);
        let values = source.get(..length).unwrap_or_default();
        self.size = (shape.width, shape.height);
        let count = (shape.width as usize).saturating_mul(shape.height as usize);
        fill(&mut self.pixels, pixels_of(values, shape.channels, largest), count)
    }

    /// Turn the decoded image upright.
    pub fn turn(&mut self, turn: Turn) -> Result<(), Fault> {
        let count = self.pixels.len();
        fill(&mut self.made, std::iter::repeat_n(U16x3::new([0; 3]), count), count)?;
        turn.pixels(&self.pixels, self.size, &mut self.made);
        std::mem::swap(&mut self.pixels, &mut self.made);
        self.size = turn.size(self.size);
        Ok(())
    }

    /// Crop, resize and mirror the decoded image, and write the result.
    pub fn finish(
        &mut self,
        view: &View,
        (recipe, values): (&Recipe, &DeepValues),
        resizer: &mut Resizer,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let new = Shape { width: view.width, height: view.height, channels: 3 };
        let wanted = Shape { channels: recipe.channels(), ..new };
        if wanted.bytes()?.checked_mul(values.width()) != Some(out.len()) {
            return Err(damaged("no room for the pixels that are made"));
        }
        if recipe.grey {
            self.pixels.iter_mut().for_each(|pixel| pixel.0 = [luma(pixel.0); 3]);
        }
        let count = new.bytes()? / 3;
        fill(&mut self.made, std::iter::repeat_n(U16x3::new([0; 3]), count), count)?;
        let spans = (view.across, view.down);
        let place = Place { bounds: view.bounds, spans, new: (view.width, view.height) };
        let filter = recipe.resampling.filter;
        resizer.resize_deep(&self.pixels, self.size, place, filter, &mut self.made)?;
        let (how, rows) =
            ((view.flip, recipe.planes), self.made.chunks((view.width as usize).max(1)));
        match (values, recipe.grey) {
            (DeepValues::Two(table), false) => {
                write(rows, new, how, |pixel| table.pixel(pixel.0), out);
            }
            (DeepValues::Four(table), false) => {
                write(rows, new, how, |pixel| table.pixel(pixel.0), out);
            }
            (DeepValues::Two(table), true) => {
                write_grey(rows, new, view.flip, |pixel| table.pixel(pixel.0), out);
            }
            (DeepValues::Four(table), true) => {
                write_grey(rows, new, view.flip, |pixel| table.pixel(pixel.0), out);
            }
        }
        Ok(())
    }
}

/// The brightness, with the weights that bytes have.
fn luma([red, green, blue]: [u16; 3]) -> u16 {
    let sum = 19595 * u64::from(red) + 38470 * u64::from(green) + 7471 * u64::from(blue);
    ((sum + 0x8000) >> 16) as u16
}

/// Replace the contents of a vector by these pixels, in its memory if that is large enough.
fn fill(
    target: &mut Vec<U16x3>,
    pixels: impl Iterator<Item = U16x3>,
    most: usize,
) -> Result<(), Fault> {
    target.clear();
    target.try_reserve_exact(most).map_err(|_| {
        Fault::new(FaultKind::Limit, 0, format!("no memory for {most} pixels of 16 bits"))
    })?;
    target.extend(pixels);
    Ok(())
}

/// Converts pixels of one to four channels to RGB. `largest` is the value that stands for white.
fn pixels_of(values: &[u8], channels: u8, largest: u16) -> impl Iterator<Item = U16x3> {
    let scaled = move |pair: [u8; 2]| {
        let (value, most) = (u32::from(u16::from_ne_bytes(pair)), u32::from(largest.max(1)));
        if most == u32::from(u16::MAX) {
            value as u16
        } else {
            ((u64::from(value) * 65535 + u64::from(most) / 2) / u64::from(most)) as u16
        }
    };
    let pixel = move |values: &[[u8; 2]]| match *values {
        [red, green, blue, ..] => [red, green, blue].map(scaled),
        [grey, ..] => [scaled(grey); 3],
        [] => [0; 3],
    };
    let pairs = values.as_chunks::<2>().0.chunks_exact(usize::from(channels.max(1)));
    pairs.map(move |values| U16x3::new(pixel(values)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_rgb_and_are_scaled_to_16_bits() {
        let bytes: Vec<u8> =
            [1u16, 2, 3, 4, 500, 600, 700, 1000].iter().flat_map(|v| v.to_ne_bytes()).collect();
        let found = |channels, largest| -> Vec<[u16; 3]> {
            pixels_of(&bytes, channels, largest).map(|pixel| pixel.0).collect()
        };
        assert_eq!(found(4, u16::MAX), [[1, 2, 3], [500, 600, 700]]);
        assert_eq!(found(2, u16::MAX), [[1; 3], [3; 3], [500; 3], [700; 3]]);
        assert_eq!(found(1, 1000).last(), Some(&[65535; 3]));
        assert_eq!(found(1, 1000)[4], [32768; 3]);
    }
}
