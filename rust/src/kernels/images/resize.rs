//! Resizes a part of an image with Pillow's antialiased bilinear filter. It uses a crate that
//! computes exactly as Pillow does.

use fast_image_resize as fast;

use fast::PixelTrait;
use fast::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast::pixels::{U8x3, U16x3};
use fast::{FilterType, ResizeAlg, ResizeOptions};

use super::crop::{Region, Span};
use super::{Shape, damaged};
use crate::wire::Fault;

/// The pixels on each side of a span that the filter reads, if the span becomes `new` pixels.
pub fn reach(span: Span, new: u32) -> f64 {
    (span.length / f64::from(new)).max(1.0)
}

/// Resizes images one after another, and keeps reusable state.
#[derive(Default)]
pub struct Resizer(fast::Resizer);

impl Resizer {
    /// Resize the two spans, which are inside the bounds, to an image of `new` width and height.
    /// The pixels are RGB with this shape. Nothing outside the bounds is read.
    pub fn resize(
        &mut self,
        pixels: &[u8],
        shape: Shape,
        bounds: Region,
        spans: (Span, Span),
        (width, height): (u32, u32),
        out: &mut [u8],
    ) -> Result<(), Fault> {
        // Only two pixel types are used: the crate's loops for all thirteen would take half of the
        // compile time.
        let whole = TypedImageRef::<U8x3>::from_buffer(shape.width, shape.height, pixels);
        let target = TypedImage::<U8x3>::from_buffer(width, height, out);
        let (whole, target) = (whole.map_err(refused)?, target.map_err(refused)?);
        self.typed(whole, bounds, spans, target)
    }

    /// The same for pixels of 16 bits per value.
    pub fn resize_deep(
        &mut self,
        pixels: &[U16x3],
        (old_width, old_height): (u32, u32),
        bounds: Region,
        spans: (Span, Span),
        (width, height): (u32, u32),
        out: &mut [U16x3],
    ) -> Result<(), Fault> {
        let whole = TypedImageRef::new(old_width, old_height, pixels).map_err(refused)?;
        let target = TypedImage::from_pixels_slice(width, height, out).map_err(refused)?;
        self.typed(whole, bounds, spans, target)
    }

    fn typed<P: PixelTrait>(
        &mut self,
        whole: TypedImageRef<'_, P>,
        bounds: Region,
        (across, down): (Span, Span),
        mut target: TypedImage<'_, P>,
    ) -> Result<(), Fault> {
        let Region { left, top, width, height } = bounds;
        let part = TypedCroppedImage::new(whole, left, top, width, height).map_err(refused)?;
        let (across, down) = (within(across, left, width), within(down, top, height));
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .use_alpha(false)
            .crop(across.start, down.start, across.length, down.length);
        self.0.resize_typed(&part, &mut target, &options).map_err(refused)
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
