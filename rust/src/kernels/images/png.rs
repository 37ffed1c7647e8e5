//! Decodes and encodes PNG by the png crate. Every checksum is verified: the CRC of each chunk, including
//! chunks that do not affect the pixels, and the Adler-32 of all data.

use std::io::{Cursor, ErrorKind};

use png::{
    BitDepth, ColorType, Compression, DecodeOptions, DecodingError, Limits, Transformations,
};

use super::{Shape, change_channels, damaged, fit};
use crate::wire::{Fault, FaultKind};

/// The decoder's memory limit, not counting the pixels: rows, chunks.
const BESIDE_BYTES: usize = 64 << 20;

/// The fault of a PNG.
pub fn fault(error: &DecodingError) -> Fault {
    let kind = match error {
        DecodingError::IoError(inner) if inner.kind() == ErrorKind::UnexpectedEof => {
            FaultKind::Truncated
        }
        DecodingError::LimitsExceeded => FaultKind::Limit,
        _ => FaultKind::Image,
    };
    Fault::new(kind, 0, format!("a damaged PNG: {}", reason(error)))
}

/// The error in words for the owner of the image. The crate's messages are for its users, and its error
/// kinds are not public.
fn reason(error: &DecodingError) -> &'static str {
    const KNOWN: [(&str, &str); 6] = [
        ("CRC error", "the checksum of a chunk does not match"),
        ("Corrupt deflate", "its pixels do not inflate"),
        ("IDAT or fDAT chunk does not", "it has fewer pixels than its header says"),
        ("IDAT or fdAT chunk is missing", "it has no pixels"),
        ("Missing palette", "its palette is missing"),
        ("Not enough palette", "its palette is too short"),
    ];
    match error {
        DecodingError::IoError(inner) if inner.kind() == ErrorKind::UnexpectedEof => {
            "it ends too early"
        }
        DecodingError::LimitsExceeded => "a chunk of it asks for too much memory",
        _ => {
            let said = error.to_string();
            let known = KNOWN.iter().find(|(begin, _)| said.starts_with(begin));
            known.map_or("its chunks break the rules of PNG", |(_, words)| words)
        }
    }
}

/// Decode into `pixels`, which have the image's size and the wanted channels.
pub fn decode(
    bytes: &[u8],
    shape: Shape,
    scratch: &mut Vec<u8>,
    pixels: &mut [u8],
) -> Result<(), Fault> {
    let mut options = DecodeOptions::default();
    options.set_ignore_adler32(false);
    options.set_skip_ancillary_crc_failures(false);
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = png::Decoder::new_with_options(Cursor::new(bytes), options);
    let row = (shape.width as usize).saturating_mul(8);
    decoder.set_limits(Limits { bytes: BESIDE_BYTES.saturating_add(row.saturating_mul(4)) });
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(|error| fault(&error))?;
    let (colour, depth) = reader.output_color_type();
    let found = Shape {
        width: reader.info().width,
        height: reader.info().height,
        channels: colour.samples() as u8,
    };
    let (length, wanted) = (found.bytes()?, shape.bytes()?);
    if depth != BitDepth::Eight
        || (found.width, found.height) != (shape.width, shape.height)
        || reader.output_buffer_size() != Some(length)
        || pixels.len() != wanted
    {
        return Err(damaged("a PNG that contradicts its header"));
    }
    if found == shape {
        reader.next_frame(pixels).map_err(|error| fault(&error))?;
    } else {
        let source = fit(scratch, length)?;
        reader.next_frame(source).map_err(|error| fault(&error))?;
        change_channels(source, found.channels, shape.channels, pixels)?;
    }
    reader.finish().map_err(|error| fault(&error))
}

/// Encode an image of one to four channels.
pub fn encode(pixels: &[u8], shape: Shape) -> Result<Vec<u8>, Fault> {
    let refuse = |error: png::EncodingError| damaged(format!("no PNG of these pixels: {error}"));
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, shape.width, shape.height);
    encoder.set_color(match shape.channels {
        1 => ColorType::Grayscale,
        2 => ColorType::GrayscaleAlpha,
        3 => ColorType::Rgb,
        _ => ColorType::Rgba,
    });
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Fast);
    let mut writer = encoder.write_header().map_err(refuse)?;
    writer.write_image_data(pixels).map_err(refuse)?;
    writer.finish().map_err(refuse)?;
    Ok(bytes)
}
