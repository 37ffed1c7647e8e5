//! Decodes and encodes PNG by the png crate. Every checksum is verified: the CRC of each chunk, including
//! chunks that do not affect the pixels, and the Adler-32 of all data.

use std::io::{Cursor, ErrorKind};

use png::{
    BitDepth, ColorType, Compression, DecodeOptions, DecodingError, Limits, Transformations,
};

use super::{Shape, change_channels, damaged, fit, room};
use crate::wire::image_head::Head;
use crate::wire::{Fault, FaultKind};

/// The decoder's limit for the memory of rows and chunks, which does not include the pixels.
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

/// The error, in words for the owner of the image. The crate's messages are for its users, and its
/// error kinds are not public.
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

/// A decoder after the header. It verifies everything, and its memory is limited.
fn open(
    bytes: &[u8],
    width: u32,
    transformations: Transformations,
) -> Result<png::Reader<Cursor<&[u8]>>, Fault> {
    let mut options = DecodeOptions::default();
    options.set_ignore_adler32(false);
    options.set_skip_ancillary_crc_failures(false);
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = png::Decoder::new_with_options(Cursor::new(bytes), options);
    let row = (width as usize).saturating_mul(8);
    decoder.set_limits(Limits { bytes: BESIDE_BYTES.saturating_add(row.saturating_mul(4)) });
    decoder.set_transformations(transformations);
    decoder.read_info().map_err(|error| fault(&error))
}

#[cold]
fn other_than_said() -> Fault {
    damaged("a PNG that is not what its header says")
}

/// Decode into `pixels`, which have the image's size and the wanted channels.
pub fn decode(
    bytes: &[u8],
    shape: Shape,
    scratch: &mut Vec<u8>,
    pixels: &mut [u8],
) -> Result<(), Fault> {
    let transformations = Transformations::EXPAND | Transformations::STRIP_16;
    let mut reader = open(bytes, shape.width, transformations)?;
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
        return Err(other_than_said());
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

/// Decode the stored values to the beginning of `pixels`. They have 8 bits, or 16 in native byte
/// order if the head says so; values of fewer bits are scaled to 8 bits. With `indices`, an image
/// with a palette gives its indices, otherwise its colours. Returns the shape of the pixels.
pub fn stored(
    bytes: &[u8],
    head: &Head,
    indices: bool,
    pixels: &mut Vec<u8>,
) -> Result<Shape, Fault> {
    let indices = indices && head.indexed;
    let transformations = if indices { Transformations::IDENTITY } else { Transformations::EXPAND };
    let mut reader = open(bytes, head.width, transformations)?;
    let (colour, depth) = reader.output_color_type();
    let (width, height) = (reader.info().width, reader.info().height);
    let shape = Shape { width, height, channels: colour.samples() as u8 };
    let is_same = (width, height) == (head.width, head.height)
        && (depth == BitDepth::Sixteen) == head.deep
        && (colour == ColorType::Indexed) == indices;
    let packed = reader.output_buffer_size().filter(|_| is_same).ok_or_else(other_than_said)?;
    let length = shape.bytes()?.checked_mul(if head.deep { 2 } else { 1 });
    let length = length.filter(|length| *length >= packed).ok_or_else(other_than_said)?;
    let values = room(pixels, length)?;
    let target = values.get_mut(..packed).ok_or_else(other_than_said)?;
    reader.next_frame(target).map_err(|error| fault(&error))?;
    reader.finish().map_err(|error| fault(&error))?;
    if head.deep {
        for pair in values.as_chunks_mut::<2>().0 {
            *pair = u16::from_be_bytes(*pair).to_ne_bytes();
        }
    } else if indices && depth != BitDepth::Eight {
        unpack(values, packed / (height as usize).max(1), width as usize, depth as u8);
    }
    Ok(shape)
}

/// Convert rows of packed indices of fewer than 8 bits, which begin where `values` begin, to one
/// byte per index. This is done from the last index to the first, so that no index is overwritten
/// before it is read.
fn unpack(values: &mut [u8], row_bytes: usize, width: usize, depth: u8) {
    let (per_byte, mask) = (usize::from(8 / depth.max(1)), (1u8 << depth.min(7)) - 1);
    let width = width.max(1);
    for place in (0..values.len()).rev() {
        let (row, column) = (place / width, place % width);
        let packed = values.get(row * row_bytes + column / per_byte).copied().unwrap_or_default();
        let shift = 8 - depth * (column % per_byte + 1) as u8;
        if let Some(value) = values.get_mut(place) {
            *value = (packed >> shift) & mask;
        }
    }
}

/// An image of one to four channels.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_indices_are_spread_in_their_own_memory() {
        // Two rows of five pixels of two bits: two bytes each.
        let mut values = vec![0b0001_1011, 0b1100_0000, 0b1110_0100, 0b0100_0000];
        values.resize(10, 0);
        unpack(&mut values, 2, 5, 2);
        assert_eq!(values, [0, 1, 2, 3, 3, 3, 2, 1, 0, 1]);
        let mut values = vec![0b1010_0000, 0b0100_0000, 0, 0, 0, 0];
        unpack(&mut values, 1, 3, 1);
        assert_eq!(values, [1, 0, 1, 0, 1, 0]);
    }
}
