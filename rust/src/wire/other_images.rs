//! Decodes BMP, GIF and TIFF by the crate `image`, so that existing images can be read. It is not
//! optimised for speed, and does not encode.
//!
//! The crate is code by other people for formats with many variants, and it is compiled with
//! overflow checks. So a panic in it is reported as a fault of the file, and its memory is limited.

use std::io::{Cursor, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};

use image::codecs::{bmp::BmpDecoder, gif::GifDecoder, tiff::TiffDecoder};
use image::error::{ImageError, ImageResult};
use image::{ColorType, ImageDecoder, Limits};

use super::image_head::{Codec, Head};
use super::{Fault, FaultKind};

/// The decoder's limit for the memory of strips and tables, which does not include the pixels.
const BESIDE_BYTES: u64 = 64 << 20;

/// The head of an image of one of these codecs.
pub fn head(bytes: &[u8], codec: Codec) -> Result<Head, Fault> {
    guarded(codec, || {
        let decoder = open(bytes, codec)?;
        let ((width, height), colour) = (decoder.dimensions(), decoder.color_type());
        let head = Head::new(codec, width, height, colour.channel_count());
        Ok((Head { deep: is_deep(colour), ..head }, colour))
    })
    .and_then(|(head, colour)| match colour {
        ColorType::Rgb32F | ColorType::Rgba32F => {
            let message = format!("a {} of floating-point values", codec.name());
            Err(Fault::new(FaultKind::Unsupported, 0, message))
        }
        _ => Ok(head),
    })
}

/// Decode to `pixels`, with the channels that the head states. Values have 8 bits, or 16 in native
/// byte order if the head says so.
pub fn decode(bytes: &[u8], head: &Head, pixels: &mut [u8]) -> Result<(), Fault> {
    guarded(head.codec, || {
        let mut decoder = open(bytes, head.codec)?;
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some((pixels.len() as u64).saturating_mul(2) + BESIDE_BYTES);
        decoder.set_limits(limits)?;
        if decoder.total_bytes() != pixels.len() as u64 {
            return Ok(false);
        }
        decoder.read_image_boxed(pixels).map(|()| true)
    })
    .and_then(|is_same| match is_same {
        true => Ok(()),
        false => Err(damaged(head.codec, "it is not what its header says")),
    })
}

fn open(bytes: &[u8], codec: Codec) -> ImageResult<Box<dyn ImageDecoder + '_>> {
    let bytes = Cursor::new(bytes);
    Ok(match codec {
        Codec::Bmp => Box::new(BmpDecoder::new(bytes)?),
        Codec::Gif => Box::new(GifDecoder::new(bytes)?),
        _ => Box::new(TiffDecoder::new(bytes)?),
    })
}

fn is_deep(colour: ColorType) -> bool {
    matches!(colour, ColorType::L16 | ColorType::La16 | ColorType::Rgb16 | ColorType::Rgba16)
}

/// The result of a call of the crate; its errors and panics become faults.
fn guarded<T>(codec: Codec, act: impl FnOnce() -> ImageResult<T>) -> Result<T, Fault> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(result) => result.map_err(|error| fault(codec, &error)),
        Err(_) => Err(damaged(codec, "its decoder gave up")),
    }
}

#[cold]
fn damaged(codec: Codec, what: &str) -> Fault {
    Fault::new(FaultKind::Image, 0, format!("a damaged {}: {what}", codec.name().to_uppercase()))
}

fn fault(codec: Codec, error: &ImageError) -> Fault {
    let name = codec.name().to_uppercase();
    match error {
        ImageError::Unsupported(what) => {
            Fault::new(FaultKind::Unsupported, 0, format!("a {name} of an unknown kind: {what}"))
        }
        ImageError::Limits(_) => Fault::new(
            FaultKind::Limit,
            0,
            format!("a damaged {name}: it asks for too much memory"),
        ),
        ImageError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Fault::new(FaultKind::Truncated, 0, format!("a damaged {name}: it ends too early"))
        }
        _ => damaged(codec, "its data breaks the rules"),
    }
}
