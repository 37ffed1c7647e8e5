//! Makes one image for a model. Only the pixels that the crop needs are decoded, at the smallest sufficient
//! scale. Then they are resized, mirrored, and written in the wanted type and layout.

use super::crop::{Law, Region, Span, View};
use super::resize::{Resizer, reach};
use super::{Decoder, Mode, Rules, Shape, change_channels, damaged, head_within, ppm, room};
use crate::wire::image_head::Codec;
use crate::wire::{Fault, FaultKind};

/// How images are made.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// How images are cropped, resized and flipped.
    pub law: Law,
    /// Whether to decode whole images, even if a part would be enough.
    pub exact: bool,
    /// The output value of each byte.
    pub values: Values,
    /// Whether channels are planes (NCHW) instead of interleaved (NHWC).
    pub planes: bool,
}

#[derive(Clone, Copy)]
enum Channel {
    Red,
    Green,
    Blue,
}

/// The value of each byte of each channel.
#[derive(Clone, Debug)]
pub struct Table<const N: usize>(Box<[[[u8; N]; 256]; 3]>);

impl<const N: usize> Table<N> {
    fn new(bytes: &[u8]) -> Option<Self> {
        let (channels, []) = bytes.as_chunks::<N>().0.as_chunks::<256>() else { return None };
        channels.try_into().ok().map(|channels| Self(Box::new(channels)))
    }

    #[inline]
    fn value(&self, channel: Channel, byte: u8) -> [u8; N] {
        let [red, green, blue] = &*self.0;
        let values = match channel {
            Channel::Red => red,
            Channel::Green => green,
            Channel::Blue => blue,
        };
        values.get(usize::from(byte)).copied().unwrap_or([0; N])
    }
}

/// The output values of bytes.
#[derive(Clone, Debug)]
pub enum Values {
    /// The byte itself.
    Bytes,
    /// A value of two bytes.
    Two(Table<2>),
    /// A value of four bytes.
    Four(Table<4>),
}

impl Values {
    /// From a table with the 256 values of red, green and blue, each of this width; None if the table has
    /// another length.
    pub fn table(bytes: &[u8]) -> Option<Self> {
        match bytes.len() / (3 * 256) {
            2 => Table::new(bytes).map(Self::Two),
            4 => Table::new(bytes).map(Self::Four),
            _ => None,
        }
    }

    /// Bytes of a value.
    pub fn width(&self) -> usize {
        match self {
            Self::Bytes => 1,
            Self::Two(_) => 2,
            Self::Four(_) => 4,
        }
    }
}

impl Recipe {
    /// Whether an image of this shape is copied unchanged.
    fn keeps_all(&self, view: &View, image: Shape) -> bool {
        let whole = |span: Span, old: u32, new: u32| {
            old == new && span == Span { start: 0.0, length: new.into() }
        };
        whole(view.across, image.width, view.width)
            && whole(view.down, image.height, view.height)
            && self.as_bytes(view)
    }

    /// Whether pixels are written in the decoded order: interleaved, from left to right.
    fn as_bytes(&self, view: &View) -> bool {
        matches!(self.values, Values::Bytes) && !self.planes && !view.flip
    }

    /// Bytes of the result for an image of this size.
    pub fn length(&self, width: u32, height: u32) -> Result<usize, Fault> {
        let (height, width) = self.law.size.unwrap_or((height, width));
        let length = Shape { width, height, channels: 3 }.bytes()?.checked_mul(self.values.width());
        length.ok_or_else(|| Fault::new(FaultKind::Limit, 0, "an image too large for this machine"))
    }
}

/// The decoded pixels of a view, and the part of the image that they are.
struct Pixels<'a> {
    pixels: &'a [u8],
    shape: Shape,
    view: View,
}

/// Makes images one after another, and keeps reusable state.
#[derive(Default)]
pub struct Maker {
    decoder: Decoder,
    resizer: Resizer,
    source: Vec<u8>,
    made: Vec<u8>,
}

impl Maker {
    /// Make the view of an encoded image.
    pub fn encoded(
        &mut self,
        bytes: &[u8],
        key: u64,
        recipe: &Recipe,
        most_pixels: u64,
        allow_damaged: bool,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let head = head_within(bytes, most_pixels)?;
        let view = recipe.law.view(head.width, head.height, key);
        let Self { decoder, resizer, source, made } = self;
        let shape = Shape::of(&head, Mode::Rgb);
        let rules = Rules { mode: Mode::Rgb, most_pixels, allow_damaged };
        if recipe.keeps_all(&view, shape) {
            return decoder.decode(bytes, &head, &rules, out);
        }
        if head.codec == Codec::Jpeg && !recipe.exact && !allow_damaged {
            let part = part_for(&view);
            let view = view_of_part(&view, part);
            let region = needed(&view);
            let found = decoder.decode_region(bytes, &head, part, region, source)?;
            let shape = Shape { width: found.width, height: found.height, channels: 3 };
            let pixels = source.get(..shape.bytes()?).unwrap_or_default();
            let view = view_within(&view, found);
            return Pixels { pixels, shape, view }.finish(recipe, resizer, made, out);
        }
        if head.codec == Codec::Ppm
            && let Some(pixels) = ppm::plain(bytes, shape)?
        {
            return Pixels { pixels, shape, view }.finish(recipe, resizer, made, out);
        }
        let pixels = room(source, shape.bytes()?)?;
        decoder.decode(bytes, &head, &rules, pixels)?;
        Pixels { pixels, shape, view }.finish(recipe, resizer, made, out)
    }

    /// Make the view of raw pixels.
    pub fn raw(
        &mut self,
        pixels: &[u8],
        shape: Shape,
        key: u64,
        recipe: &Recipe,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let view = recipe.law.view(shape.width, shape.height, key);
        let Self { resizer, source, made, .. } = self;
        if shape.channels == 3 {
            return Pixels { pixels, shape, view }.finish(recipe, resizer, made, out);
        }
        let rgb = Shape { channels: 3, ..shape };
        let changed = room(source, rgb.bytes()?)?;
        change_channels(pixels, shape.channels, 3, changed)?;
        Pixels { pixels: changed, shape: rgb, view }.finish(recipe, resizer, made, out)
    }
}

/// The scale at which a JPEG is decoded: 1 / 2, 1 / 4 or 1 / 8 if the result is not smaller than wanted.
/// (libjpeg-turbo has other eighths too, but without vector instructions.)
fn part_for(view: &View) -> u8 {
    let enough = |span: Span, part: f64, new: u32| span.length >= part * f64::from(new);
    let suffices = |part: &u8| {
        let part = f64::from(*part);
        enough(view.across, part, view.width) && enough(view.down, part, view.height)
    };
    [8, 4, 2].into_iter().find(suffices).unwrap_or(1)
}

/// The view in coordinates of the image at 1/`part` of its size.
fn view_of_part(view: &View, part: u8) -> View {
    if part == 1 {
        return *view;
    }
    let whole = u32::from(part);
    let less = |span: Span| Span {
        start: span.start / f64::from(part),
        length: span.length / f64::from(part),
    };
    let Region { left, top, width, height } = view.bounds;
    let (right, bottom) = ((left + width).div_ceil(whole), (top + height).div_ceil(whole));
    let (left, top) = (left / whole, top / whole);
    let bounds = Region { left, top, width: right - left, height: bottom - top };
    View { bounds, across: less(view.across), down: less(view.down), ..*view }
}

/// The pixels that the filter reads.
fn needed(view: &View) -> Region {
    let side = |span: Span, new: u32, first: u32, length: u32| {
        let reach = reach(span, new) + 1.0;
        let start = (span.start - reach).floor().max(f64::from(first)) as u32;
        let end = (span.start + span.length + reach).ceil().min(f64::from(first + length)) as u32;
        (start, end.saturating_sub(start).max(1))
    };
    let (left, width) = side(view.across, view.width, view.bounds.left, view.bounds.width);
    let (top, height) = side(view.down, view.height, view.bounds.top, view.bounds.height);
    Region { left, top, width, height }
}

/// The view relative to the first pixel of the region.
fn view_within(view: &View, region: Region) -> View {
    let moved = |span: Span, by: u32| Span { start: span.start - f64::from(by), ..span };
    let side = |first: u32, length: u32, start: u32, size: u32| {
        let begin = first.max(start);
        let end = (first + length).min(start + size);
        (begin - start, end.saturating_sub(begin))
    };
    let bounds = view.bounds;
    let (left, width) = side(bounds.left, bounds.width, region.left, region.width);
    let (top, height) = side(bounds.top, bounds.height, region.top, region.height);
    View {
        bounds: Region { left, top, width, height },
        across: moved(view.across, region.left),
        down: moved(view.down, region.top),
        ..*view
    }
}

impl Pixels<'_> {
    /// Resize if needed, and write the result.
    fn finish(
        &self,
        recipe: &Recipe,
        resizer: &mut Resizer,
        made: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let view = self.view;
        let new = Shape { width: view.width, height: view.height, channels: 3 };
        if new.bytes()?.checked_mul(recipe.values.width()) != Some(out.len()) {
            return Err(damaged("no room for the pixels that are made"));
        }
        let as_they_are = |span: Span, new: u32| {
            span.length == f64::from(new) && span.start.fract() == 0.0 && span.start >= 0.0
        };
        let same = as_they_are(view.across, view.width) && as_they_are(view.down, view.height);
        let bytes = recipe.as_bytes(&view);
        let (pixels, stride, first) = if same {
            let stride = self.shape.row_bytes();
            let before = view.down.start as usize * stride + view.across.start as usize * 3;
            (self.pixels, stride, before)
        } else {
            let target = if bytes { &mut *out } else { room(made, new.bytes()?)? };
            let size = (view.width, view.height);
            let spans = (view.across, view.down);
            resizer.resize(self.pixels, self.shape, view.bounds, spans, size, target)?;
            if bytes {
                return Ok(());
            }
            (made.as_slice(), new.row_bytes(), 0)
        };
        let from = pixels.get(first..).unwrap_or_default();
        let rows = from.chunks(stride.max(1)).filter_map(|row| row.get(..new.row_bytes()));
        let rows = rows.take(view.height as usize);
        if bytes && stride == new.row_bytes() {
            let from = from.get(..out.len()).ok_or_else(|| damaged("fewer pixels than said"))?;
            out.copy_from_slice(from);
        } else if bytes {
            for (target, row) in out.chunks_exact_mut(new.row_bytes()).zip(rows) {
                target.copy_from_slice(row);
            }
        } else if let (Values::Bytes, false) = (&recipe.values, recipe.planes) {
            for (target, row) in out.chunks_exact_mut(new.row_bytes()).zip(rows) {
                mirror(row, target);
            }
        } else {
            let how = (view.flip, recipe.planes);
            match &recipe.values {
                Values::Bytes => write(rows, new, how, |_, byte| [byte], out),
                Values::Two(table) => write(rows, new, how, |of, byte| table.value(of, byte), out),
                Values::Four(table) => write(rows, new, how, |of, byte| table.value(of, byte), out),
            }
        }
        Ok(())
    }
}

/// Reverse a row of RGB bytes. Four pixels are three words, which are made of three other words. This is
/// several times faster than byte by byte.
fn mirror(row: &[u8], target: &mut [u8]) {
    let (rest, fours) = row.as_rchunks::<12>();
    let (targets, last) = target.as_chunks_mut::<12>();
    for (target, four) in targets.iter_mut().zip(fours.iter().rev()) {
        let &[b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11] = four;
        let left = u32::from_le_bytes([b0, b1, b2, b3]);
        let middle = u32::from_le_bytes([b4, b5, b6, b7]);
        let right = u32::from_le_bytes([b8, b9, b10, b11]);
        let words = [
            (right >> 8) | ((middle << 8) & 0xff00_0000),
            (middle >> 24) | ((right & 0xff) << 8) | ((left >> 24) << 16) | (middle << 24),
            ((middle >> 8) & 0xff) | (left << 8),
        ];
        for (bytes, word) in target.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
    }
    let pixels = rest.as_chunks::<3>().0.iter().rev();
    for (target, pixel) in last.as_chunks_mut::<3>().0.iter_mut().zip(pixels) {
        *target = *pixel;
    }
}

/// Write rows of RGB bytes as values, mirrored or not, with channels interleaved or as planes.
fn write<'a, const N: usize>(
    rows: impl Iterator<Item = &'a [u8]>,
    new: Shape,
    (flip, planes): (bool, bool),
    value: impl Fn(Channel, u8) -> [u8; N] + Copy,
    out: &mut [u8],
) {
    let out = out.as_chunks_mut::<N>().0;
    let width = (new.width as usize).max(1);
    if planes {
        let (red, rest) = out.split_at_mut(out.len() / 3);
        let (green, blue) = rest.split_at_mut(rest.len() / 2);
        let reds = red.chunks_exact_mut(width);
        let others = green.chunks_exact_mut(width).zip(blue.chunks_exact_mut(width));
        for (row, (red, (green, blue))) in rows.zip(reds.zip(others)) {
            let targets = red.iter_mut().zip(green.iter_mut().zip(blue.iter_mut()));
            let put =
                |((red, (green, blue)), [r, g, b]): ((&mut _, (&mut _, &mut _)), &[u8; 3])| {
                    *red = value(Channel::Red, *r);
                    *green = value(Channel::Green, *g);
                    *blue = value(Channel::Blue, *b);
                };
            let pixels = row.as_chunks::<3>().0.iter();
            if flip {
                targets.zip(pixels.rev()).for_each(put);
            } else {
                targets.zip(pixels).for_each(put);
            }
        }
    } else {
        for (row, target) in rows.zip(out.chunks_exact_mut(width.saturating_mul(3))) {
            let targets = target.as_chunks_mut::<3>().0.iter_mut();
            let put = |(target, [r, g, b]): (&mut [[u8; N]; 3], &[u8; 3])| {
                let [red, green, blue] = [Channel::Red, Channel::Green, Channel::Blue];
                *target = [value(red, *r), value(green, *g), value(blue, *b)];
            };
            let pixels = row.as_chunks::<3>().0.iter();
            if flip {
                targets.zip(pixels.rev()).for_each(put);
            } else {
                targets.zip(pixels).for_each(put);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirrored_row_has_its_pixels_in_reverse() {
        for width in 0..14u8 {
            let row: Vec<u8> = (0..width * 3).collect();
            let mut found = vec![0; row.len()];
            mirror(&row, &mut found);
            let expected: Vec<u8> = row.chunks(3).rev().flatten().copied().collect();
            assert_eq!(found, expected);
        }
    }
}
