//! Resizes a part of an image with one of Pillow's antialiased filters. It uses a crate that computes as
//! Pillow does, but with shorter weights; `pillow` has Pillow's own, for callers that ask for its pixels.

use fast_image_resize as fast;

use fast::PixelTrait;
use fast::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast::pixels::{U8x3, U16x3};
use fast::{FilterType, ResizeAlg, ResizeOptions};

use super::crop::{Region, Span};
use super::masks;
use super::pillow::{self, Filter, Part};
use super::{Shape, damaged};
use crate::wire::Fault;

/// How images are resized.
#[derive(Clone, Copy, Debug)]
pub struct Resampling {
    /// The filter.
    pub filter: Filter,
    /// Whether images of 8 bits equal Pillow's, bit for bit.
    pub exact: bool,
}

impl Resampling {
    /// The pixels on each side of a span that the filter reads, if the span becomes `new` pixels.
    pub fn reach(self, span: Span, new: u32) -> f64 {
        (span.length / f64::from(new)).max(1.0) * self.filter.support()
    }
}

/// Where an image is resized.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// What is read.
    pub bounds: Region,
    /// The columns and rows that become the new image, inside the bounds.
    pub spans: (Span, Span),
    /// New width and height.
    pub new: (u32, u32),
}

/// Resizes images one after another, and keeps reusable state.
#[derive(Default)]
pub struct Resizer {
    fast: fast::Resizer,
    between: Vec<u8>,
}

impl Resizer {
    /// Resize the spans of RGB pixels of this shape. Nothing outside the bounds is read.
    pub fn resize(
        &mut self,
        pixels: &[u8],
        shape: Shape,
        place: Place,
        how: Resampling,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let Place { bounds, new, .. } = place;
        if how.filter == Filter::Nearest {
            nearest((pixels.as_chunks::<3>().0, shape.width), place, out.as_chunks_mut().0);
            return Ok(());
        }
        if how.exact {
            let stride = shape.row_bytes();
            let before = bounds.top as usize * stride + bounds.left as usize * 3;
            let part = Part {
                pixels: pixels.get(before..).unwrap_or_default(),
                stride,
                size: (bounds.width, bounds.height),
            };
            return pillow::resize(part, how.filter, place.within(), new, &mut self.between, out);
        }
        // Only two pixel types are used: the crate's loops for all thirteen would take half of the
        // compile time.
        let whole = TypedImageRef::<U8x3>::from_buffer(shape.width, shape.height, pixels);
        let target = TypedImage::<U8x3>::from_buffer(new.0, new.1, out);
        let (whole, target) = (whole.map_err(refused)?, target.map_err(refused)?);
        self.typed(whole, place, how.filter, target)
    }

    /// The same for pixels of 16 bits per value, which Pillow does not resize.
    pub fn resize_deep(
        &mut self,
        pixels: &[U16x3],
        (old_width, old_height): (u32, u32),
        place: Place,
        filter: Filter,
        out: &mut [U16x3],
    ) -> Result<(), Fault> {
        if filter == Filter::Nearest {
            nearest((pixels, old_width), place, out);
            return Ok(());
        }
        let whole = TypedImageRef::new(old_width, old_height, pixels).map_err(refused)?;
        let (width, height) = place.new;
        let target = TypedImage::from_pixels_slice(width, height, out).map_err(refused)?;
        self.typed(whole, place, filter, target)
    }

    fn typed<P: PixelTrait>(
        &mut self,
        whole: TypedImageRef<'_, P>,
        place: Place,
        filter: Filter,
        mut target: TypedImage<'_, P>,
    ) -> Result<(), Fault> {
        let Region { left, top, width, height } = place.bounds;
        let part = TypedCroppedImage::new(whole, left, top, width, height).map_err(refused)?;
        let (across, down) = place.within();
        let filter = match filter {
            Filter::Bicubic => FilterType::CatmullRom,
            Filter::Lanczos => FilterType::Lanczos3,
            Filter::Bilinear | Filter::Nearest => FilterType::Bilinear,
        };
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(filter))
            .use_alpha(false)
            .crop(across.start, down.start, across.length, down.length);
        self.fast.resize_typed(&part, &mut target, &options).map_err(refused)
    }
}

impl Place {
    /// The spans relative to the first pixel of the bounds.
    fn within(&self) -> (Span, Span) {
        let Region { left, top, width, height } = self.bounds;
        (within(self.spans.0, left, width), within(self.spans.1, top, height))
    }
}

/// Take the old pixel that holds the centre of each new one, as masks do.
fn nearest<P: Copy>((pixels, width): (&[P], u32), place: Place, out: &mut [P]) {
    let Place { bounds, spans, new } = place;
    let columns = masks::nearest(spans.0, new.0, bounds.left, bounds.width);
    let rows = masks::nearest(spans.1, new.1, bounds.top, bounds.height);
    for (row, target) in rows.zip(out.chunks_exact_mut((new.0 as usize).max(1))) {
        let line = pixels.chunks((width as usize).max(1)).nth(row).unwrap_or_default();
        for (column, pixel) in columns.clone().zip(target) {
            if let Some(&value) = line.get(column) {
                *pixel = value;
            }
        }
    }
}

fn refused(error: impl std::fmt::Display) -> Fault {
    damaged(format!("cannot resize: {error}"))
}

/// The span relative to the first pixel of the bounds. It is limited to the bounds, because
/// rounding might make it longer.
fn within(span: Span, first: u32, length: u32) -> Span {
    let length = f64::from(length);
    let start = (span.start - f64::from(first)).clamp(0.0, length);
    Span { start, length: span.length.min(length - start) }
}
