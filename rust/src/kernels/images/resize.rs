//! Resizes a part of an image with Pillow's antialiased bilinear filter, by a crate that computes as Pillow
//! does.

use fast_image_resize as fast;

use fast::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast::pixels::U8x3;
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
    /// Resize the spans of the bounds to an image of `new` width and height. The pixels are RGB with this
    /// shape. Nothing outside the bounds is read.
    pub fn resize(
        &mut self,
        pixels: &[u8],
        shape: Shape,
        bounds: Region,
        (across, down): (Span, Span),
        (width, height): (u32, u32),
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let refused = |error: &dyn std::fmt::Display| damaged(format!("cannot resize: {error}"));
        // Only one pixel type, because the crate's loops for all thirteen take half of the compile time.
        let whole = TypedImageRef::<U8x3>::from_buffer(shape.width, shape.height, pixels)
            .map_err(|error| refused(&error))?;
        let Region { left, top, width: old_width, height: old_height } = bounds;
        let part = TypedCroppedImage::new(whole, left, top, old_width, old_height)
            .map_err(|error| refused(&error))?;
        let mut target =
            TypedImage::<U8x3>::from_buffer(width, height, out).map_err(|error| refused(&error))?;
        let (across, down) = (within(across, left, old_width), within(down, top, old_height));
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .use_alpha(false)
            .crop(across.start, down.start, across.length, down.length);
        self.0.resize_typed(&part, &mut target, &options).map_err(|error| refused(&error))
    }
}

/// The span relative to the first pixel of the bounds, and not longer than they are, which rounding might
/// make it.
fn within(span: Span, first: u32, length: u32) -> Span {
    let length = f64::from(length);
    let start = (span.start - f64::from(first)).clamp(0.0, length);
    Span { start, length: span.length.min(length - start) }
}
