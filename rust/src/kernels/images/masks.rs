//! Makes one mask for a model: each new pixel gets the stored value of the nearest old pixel.
//!
//! Values are not interpolated or scaled, because they are numbers of classes or instances. A PNG
//! with a palette gives its indices; alpha is dropped. The nearest old pixel is the one that
//! contains the centre of the new pixel, as in Pillow's `NEAREST`.

use super::crop::{Draw, Law, Span, View};
use super::frame::{Fill, framed};
use super::turn::Turn;
use super::{Decoder, Mode, Rules, Shape, damaged, head_within, png, ppm, room};
use crate::wire::image_head::{Codec, Head};
use crate::wire::{Fault, FaultKind, other_images};

/// The type of the values of a batch's masks.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    /// 1, or 3 if masks are stored in colour.
    pub channels: u8,
    /// Whether values have 16 bits (in native byte order), not 8.
    pub wide: bool,
    /// The value of the margin.
    pub fill: u16,
}

impl Samples {
    /// Bytes of a pixel.
    pub fn pixel_bytes(self) -> usize {
        usize::from(self.channels) << usize::from(self.wide)
    }

    /// The bytes of a pixel of the margin.
    fn filled(self) -> Vec<u8> {
        let value = if self.wide { &self.fill.to_ne_bytes()[..] } else { &[self.fill as u8] };
        value.repeat(self.channels.into())
    }
}

/// A mask as stored in its file.
struct Stored<'a> {
    bytes: &'a [u8],
    shape: Shape,
    deep: bool,
}

/// Makes masks one after another, and keeps reusable state.
#[derive(Default)]
pub struct MaskMaker {
    decoder: Decoder,
    source: Vec<u8>,
    turned: Vec<u8>,
    room: Vec<u8>,
}

impl MaskMaker {
    /// Make the view of an encoded mask.
    pub fn encoded(
        &mut self,
        bytes: &[u8],
        draw: Draw,
        law: &Law,
        samples: Samples,
        rules: &Rules,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let head = head_within(bytes, rules.most_pixels)?;
        let turn = Turn::of(bytes, law.exif);
        let (width, height) = turn.size((head.width, head.height));
        let view = law.view_of(width, height, draw)?;
        let shape = self.decode(bytes, &head, rules)?;
        let mut stored = Stored { bytes: &self.source, shape, deep: head.deep };
        if !turn.is_none() {
            let pixel_bytes = usize::from(shape.channels) << usize::from(head.deep);
            let pixels = shape.bytes()?.saturating_mul(if head.deep { 2 } else { 1 });
            let pixels = self.source.get(..pixels).unwrap_or_default();
            let size = (shape.width, shape.height);
            stored.bytes = turn.bytes(pixels, pixel_bytes, size, &mut self.turned)?;
            stored.shape = Shape { width, height, ..shape };
        }
        stored.place(&view, samples, &mut self.room, out)
    }

    /// Decode to `source`, which may be longer than the decoded values.
    fn decode(&mut self, bytes: &[u8], head: &Head, rules: &Rules) -> Result<Shape, Fault> {
        let shape = Shape::of(head, Mode::Stored);
        match head.codec {
            Codec::Png => return png::stored(bytes, head, true, &mut self.source),
            Codec::Ppm => ppm::stored(bytes, shape, &mut self.source)?,
            Codec::Bmp | Codec::Gif | Codec::Tiff => {
                let width = if head.deep { 2 } else { 1 };
                let values = room(&mut self.source, shape.bytes()?.saturating_mul(width))?;
                other_images::decode(bytes, head, values)?;
            }
            _ => {
                let pixels = room(&mut self.source, shape.bytes()?)?;
                self.decoder.decode(
                    bytes,
                    head,
                    &Rules { mode: Mode::Stored, ..*rules },
                    pixels,
                )?;
            }
        }
        Ok(shape)
    }
}

/// Make the view of a mask of raw values. If there are twice as many bytes as values, these have 16
/// bits in native byte order.
pub fn raw(
    bytes: &[u8],
    shape: Shape,
    draw: Draw,
    law: &Law,
    samples: Samples,
    out: &mut [u8],
) -> Result<(), Fault> {
    let view = law.view_of(shape.width, shape.height, draw)?;
    let deep = shape.bytes()?.checked_mul(2) == Some(bytes.len());
    Stored { bytes, shape, deep }.place(&view, samples, &mut Vec::new(), out)
}

impl Stored<'_> {
    /// Write the view with its margin.
    fn place(
        &self,
        view: &View,
        samples: Samples,
        room: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let fill = Fill { pixel: &samples.filled(), planes: 1 };
        framed(view, fill, room, out, |out| self.sample(view, samples, out))
    }

    /// Write the pixels of the view.
    fn sample(&self, view: &View, samples: Samples, out: &mut [u8]) -> Result<(), Fault> {
        let is_grey = self.shape.channels < 3;
        if is_grey != (samples.channels == 1) {
            let of = |grey: bool| if grey { "one channel" } else { "three channels" };
            let message =
                format!("a mask of {} in a batch of masks of {}", of(is_grey), of(!is_grey));
            return Err(Fault::new(FaultKind::Schema, 0, message));
        }
        match (samples.channels, self.deep, samples.wide) {
            (1, false, false) => self.each::<1, 1>(view, |value| value, out),
            (1, true, true) => self.each::<2, 2>(view, |value| value, out),
            (1, false, true) => self.each::<1, 2>(view, |[g]| u16::from(g).to_ne_bytes(), out),
            (3, false, false) => self.each::<3, 3>(view, |value| value, out),
            (3, true, true) => self.each::<6, 6>(view, |value| value, out),
            (3, false, true) => self.each::<3, 6>(view, widened, out),
            _ => Err(damaged("a mask of 16 bits where 8 are wanted")),
        }
    }

    /// Write the pixels of the view. Each is computed from the first `M` bytes of a stored pixel.
    fn each<const M: usize, const N: usize>(
        &self,
        view: &View,
        change: impl Fn([u8; M]) -> [u8; N],
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let wrong = || damaged("a mask of other pixels than its header says");
        let stride = usize::from(self.shape.channels) << usize::from(self.deep);
        let row_bytes = stride.saturating_mul(self.shape.width as usize);
        let (targets, []) = out.as_chunks_mut::<N>() else { return Err(wrong()) };
        if targets.len() as u64 != u64::from(view.width) * u64::from(view.height) {
            return Err(wrong());
        }
        let mut columns: Vec<usize> =
            nearest(view.across, view.width, view.bounds.left, view.bounds.width)
                .map(|column| column.saturating_mul(stride))
                .collect();
        if view.flip {
            columns.reverse();
        }
        let rows = nearest(view.down, view.height, view.bounds.top, view.bounds.height);
        for (row, targets) in rows.zip(targets.chunks_exact_mut(columns.len().max(1))) {
            let start = row.saturating_mul(row_bytes);
            let rest = self.bytes.get(start..).and_then(|rest| rest.get(..row_bytes));
            let row = rest.ok_or_else(wrong)?;
            for (target, &column) in targets.iter_mut().zip(&columns) {
                let pixel = row.get(column..).and_then(<[u8]>::first_chunk::<M>);
                *target = change(*pixel.ok_or_else(wrong)?);
            }
        }
        Ok(())
    }
}

fn widened([red, green, blue]: [u8; 3]) -> [u8; 6] {
    let [[r0, r1], [g0, g1], [b0, b1]] =
        [red, green, blue].map(|value| u16::from(value).to_ne_bytes());
    [r0, r1, g0, g1, b0, b1]
}

/// The old pixels that contain the centres of the new pixels, limited to the bounds.
pub fn nearest(
    span: Span,
    new: u32,
    first: u32,
    length: u32,
) -> impl Iterator<Item = usize> + Clone {
    let last = first.saturating_add(length).saturating_sub(1);
    (0..new).map(move |place| {
        let centre = span.start + (f64::from(place) + 0.5) * span.length / f64::from(new);
        (centre.floor().clamp(0.0, f64::from(u32::MAX)) as u32).clamp(first, last.max(first))
            as usize
    })
}

#[cfg(test)]
mod tests {
    use super::super::crop::{Crop, Law};
    use super::*;

    fn law(size: (u32, u32)) -> Law {
        Law {
            size: Some(size),
            crop: Crop::Whole,
            flip: false,
            upside_down: false,
            scale: (0.08, 1.0),
            ratio: (0.75, 4.0 / 3.0),
            center_fraction: 0.875,
            exif: false,
            pad: None,
        }
    }

    #[test]
    fn a_new_pixel_is_the_old_one_that_holds_its_centre() {
        let whole = Span { start: 0.0, length: 5.0 };
        assert_eq!(nearest(whole, 2, 0, 5).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(nearest(whole, 10, 0, 5).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
        let part = Span { start: 2.0, length: 2.0 };
        assert_eq!(nearest(part, 4, 2, 2).collect::<Vec<_>>(), [2, 2, 3, 3]);
    }

    #[test]
    fn values_are_widened_and_alpha_is_left_out() {
        let (draw, law) = (Draw { key: 0, main: None }, law((1, 2)));
        let shape = Shape { width: 2, height: 1, channels: 2 };
        let samples = Samples { channels: 1, wide: true, fill: 0 };
        let mut out = [0; 4];
        raw(&[7, 255, 9, 255], shape, draw, &law, samples, &mut out).unwrap();
        assert_eq!(out.as_chunks::<2>().0, [7u16.to_ne_bytes(), 9u16.to_ne_bytes()]);
        let deep: Vec<u8> = [300u16, 0, 500, 0].iter().flat_map(|v| v.to_ne_bytes()).collect();
        raw(&deep, shape, draw, &law, samples, &mut out).unwrap();
        assert_eq!(out.as_chunks::<2>().0, [300u16.to_ne_bytes(), 500u16.to_ne_bytes()]);
        let narrow = Samples { wide: false, ..samples };
        assert!(raw(&deep, shape, draw, &law, narrow, &mut out[..2]).is_err());
        let colour = Samples { channels: 3, wide: false, fill: 0 };
        assert!(raw(&[0; 4], shape, draw, &law, colour, &mut [0; 6]).is_err());
    }
}
