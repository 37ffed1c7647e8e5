//! Decodes PNG as TensorFlow does: to the file's or the requested channels, of 8 or 16 bits. It
//! works on the stored samples, because it must do what libpng does as TensorFlow configures it: if
//! alpha is added to grey of fewer than 8 bits, it is not opaque, and grey is computed from colour
//! with weights of 15 bits and truncated.

use std::borrow::Cow;
use std::io::Cursor;

use png::{BitDepth, ColorType, DecodeOptions, Decoder, Limits, Transformations};

use super::libjpeg::Picture;
use super::png::fault;
use super::{damaged, zeroed};
use crate::wire::image_head::{Codec, probe};
use crate::wire::{Fault, FaultKind};

/// The decoder's limit for the memory of rows and chunks, which does not include the pixels.
const BESIDE_BYTES: usize = 64 << 20;

/// Weights of red and green in 1/32768: .299 and .587, truncated as in libpng. Blue gets the rest.
const RED: u32 = 9797;
const GREEN: u32 = 19234;
const BLUE: u32 = 3737;

/// An image as stored.
struct Stored {
    colour: ColorType,
    depth: u8,
    palette: Vec<u8>,
    transparent: Option<Vec<u8>>,
    gamma: Option<f64>,
    height: usize,
    width: usize,
    row_bytes: usize,
    data: Vec<u8>,
}

/// The file without the chunks of an animation, which libpng does not know and does not check.
fn still(bytes: &[u8]) -> Cow<'_, [u8]> {
    const SIGNATURE: usize = 8;
    const FRAME: usize = 12; // length, name and checksum of a chunk
    let mut kept = bytes.get(..SIGNATURE).unwrap_or_default().to_vec();
    let (mut rest, mut moving) = (bytes.get(SIGNATURE..).unwrap_or_default(), false);
    while let Some((&[a, b, c, d, name @ ..], _)) = rest.split_first_chunk::<8>() {
        let length = (u32::from_be_bytes([a, b, c, d]) as usize).saturating_add(FRAME);
        let Some((chunk, others)) = rest.split_at_checked(length) else { break };
        if matches!(&name, b"acTL" | b"fcTL" | b"fdAT") {
            moving = true;
        } else {
            kept.extend_from_slice(chunk);
        }
        rest = others;
    }
    if !moving {
        return Cow::Borrowed(bytes);
    }
    kept.extend_from_slice(rest);
    Cow::Owned(kept)
}

fn stored(bytes: &[u8], most_pixels: u64) -> Result<Stored, Fault> {
    let head = probe(bytes)?;
    if head.codec != Codec::Png {
        return Err(damaged("no PNG"));
    }
    if head.pixels() > most_pixels {
        let (width, height) = (head.width, head.height);
        let message =
            format!("an image of {width} x {height} pixels, beyond image_pixels={most_pixels}");
        return Err(Fault::new(FaultKind::Limit, 0, message).values(most_pixels, head.pixels()));
    }
    let bytes = still(bytes);
    let mut options = DecodeOptions::default();
    options.set_ignore_adler32(false);
    options.set_skip_ancillary_crc_failures(true);
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = Decoder::new_with_options(Cursor::new(bytes.as_ref()), options);
    let row = (head.width as usize).saturating_mul(8);
    decoder.set_limits(Limits { bytes: BESIDE_BYTES.saturating_add(row.saturating_mul(4)) });
    decoder.set_transformations(Transformations::IDENTITY);
    let mut reader = decoder.read_info().map_err(|error| fault(&error))?;
    let info = reader.info();
    let (width, height) = (info.width as usize, info.height as usize);
    let colour = info.color_type;
    let depth = info.bit_depth as u8;
    let palette = info.palette.as_deref().unwrap_or_default().to_vec();
    let transparent = info.trns.as_deref().map(<[u8]>::to_vec);
    // libpng ignores a gamma that is nearly linear.
    let gamma = info.gamma().map(|gamma| f64::from(gamma.into_scaled()) / 100_000.0);
    let gamma = gamma.filter(|gamma| *gamma > 0.0 && (gamma - 1.0).abs() > 0.05);
    let length = reader.output_buffer_size();
    let length = length.ok_or_else(|| damaged("a PNG too large for this machine"))?;
    let row_bytes = length / height.max(1);
    let mut data = zeroed(length)?;
    reader.next_frame(&mut data).map_err(|error| fault(&error))?;
    reader.finish().map_err(|error| fault(&error))?;
    if colour == ColorType::Indexed && palette.is_empty() {
        return Err(damaged("a damaged PNG: its palette is missing"));
    }
    Ok(Stored { colour, depth, palette, transparent, gamma, height, width, row_bytes, data })
}

/// Read the samples of a row, of 1 to 16 bits.
fn samples(row: &[u8], depth: u8, out: &mut Vec<u16>, count: usize) {
    out.clear();
    match depth {
        16 => out.extend(row.as_chunks::<2>().0.iter().map(|pair| u16::from_be_bytes(*pair))),
        8 => out.extend(row.iter().map(|&byte| u16::from(byte))),
        _ => {
            let (mask, per_byte) = ((1u8 << depth) - 1, 8 / depth);
            for &byte in row {
                out.extend(
                    (1..=per_byte).map(|place| u16::from((byte >> (8 - depth * place)) & mask)),
                );
            }
        }
    }
    out.truncate(count);
}

/// One pixel during conversion: colour of one or three values, and optional alpha.
#[derive(Clone, Copy)]
struct Pixel {
    rgb: [u16; 3],
    alpha: Option<u16>,
}

impl Stored {
    fn is_grey(&self) -> bool {
        matches!(self.colour, ColorType::Grayscale | ColorType::GrayscaleAlpha)
    }

    /// Default number of channels.
    fn channels(&self) -> usize {
        match (self.colour, &self.transparent) {
            (ColorType::Indexed, Some(_)) => 4,
            (ColorType::Indexed, None) => 3,
            (colour, _) => colour.samples(),
        }
    }

    /// The one colour that is transparent, for grey or RGB images. The crate returns each of its values as
    /// one byte if samples have at most 8 bits.
    fn key(&self) -> Option<[u16; 3]> {
        let stored = self.transparent.as_deref()?;
        let value = |at: usize| {
            if self.depth == 16 {
                stored.as_chunks::<2>().0.get(at).map(|pair| u16::from_be_bytes(*pair))
            } else {
                stored.get(at).map(|byte| u16::from(*byte))
            }
        };
        match self.colour {
            // If samples have fewer bits than a byte, the bits beyond these are ignored.
            ColorType::Grayscale => Some([value(0)? & (u16::MAX >> (16 - self.depth)); 3]),
            ColorType::Rgb => Some([value(0)?, value(1)?, value(2)?]),
            _ => None,
        }
    }

    /// The pixel for these samples, with 8 bits, or 16 if 16 are stored.
    fn pixel(&self, samples: &[u16], key: Option<[u16; 3]>) -> Option<Pixel> {
        let most = if self.depth == 16 { u16::MAX } else { 255 };
        let alpha_of = |rgb: [u16; 3]| key.map(|key| if key == rgb { 0 } else { most });
        Some(match (self.colour, samples) {
            (ColorType::Indexed, &[index]) => {
                let index = usize::from(index);
                // libpng treats indexes outside the palette as black.
                let [red, green, blue] =
                    self.palette.as_chunks::<3>().0.get(index).copied().unwrap_or_default();
                let known = self.transparent.as_deref();
                let alpha = known.map(|known| known.get(index).copied().unwrap_or(255).into());
                Pixel { rgb: [red.into(), green.into(), blue.into()], alpha }
            }
            (ColorType::Grayscale, &[grey]) => {
                let scale = match self.depth {
                    1 => 255,
                    2 => 85,
                    4 => 17,
                    _ => 1,
                };
                Pixel { rgb: [grey * scale; 3], alpha: alpha_of([grey; 3]) }
            }
            (ColorType::GrayscaleAlpha, &[grey, alpha]) => {
                Pixel { rgb: [grey; 3], alpha: Some(alpha) }
            }
            (ColorType::Rgb, &[r, g, b]) => Pixel { rgb: [r, g, b], alpha: alpha_of([r, g, b]) },
            (ColorType::Rgba, &[r, g, b, alpha]) => Pixel { rgb: [r, g, b], alpha: Some(alpha) },
            _ => return None,
        })
    }
}

/// Convert colour to grey by weights, in linear light if the file has a gamma.
enum Grey {
    AsStored { half: u32 },
    OfBytes { to_light: Vec<u8>, from_light: Vec<u8> },
    OfWords { gamma: f64 },
}

impl Grey {
    fn of(stored: &Stored) -> Self {
        let Some(gamma) = stored.gamma else {
            return Self::AsStored { half: if stored.depth == 16 { 16384 } else { 0 } };
        };
        if stored.depth == 16 {
            return Self::OfWords { gamma };
        }
        let table = |power: f64| {
            let value = |i: u8| (255.0 * (f64::from(i) / 255.0).powf(power) + 0.5).floor() as u8;
            (0..=255).map(value).collect()
        };
        Self::OfBytes { to_light: table(1.0 / gamma), from_light: table(gamma) }
    }

    fn at(&self, rgb: [u16; 3]) -> u16 {
        let [red, green, blue] = rgb;
        if red == green && green == blue {
            return red;
        }
        let weighed = |[red, green, blue]: [u16; 3]| {
            RED * u32::from(red) + GREEN * u32::from(green) + BLUE * u32::from(blue)
        };
        match self {
            // Bytes are truncated; 16-bit values and linear light are rounded.
            Self::AsStored { half } => ((weighed(rgb) + half) >> 15) as u16,
            Self::OfBytes { to_light, from_light } => {
                let entry = |table: &[u8], at: usize| table.get(at).copied().unwrap_or_default();
                let light = rgb.map(|value| u16::from(entry(to_light, value.into())));
                entry(from_light, ((weighed(light) + 16384) >> 15) as usize).into()
            }
            Self::OfWords { gamma } => {
                let power = |value: u16, power: f64| {
                    (65535.0 * (f64::from(value) / 65535.0).powf(power) + 0.5).floor() as u16
                };
                let light = rgb.map(|value| power(value, 1.0 / gamma));
                power(((weighed(light) + 16384) >> 15) as u16, *gamma)
            }
        }
    }
}

/// Decode a PNG to this many channels (0: those of the file) with 16 bits, or with 8 bits. Both are
/// returned as `u16`.
fn decode(
    bytes: &[u8],
    channels: usize,
    wide: bool,
    most_pixels: u64,
    mut put: impl FnMut(u16),
) -> Result<(usize, usize, usize), Fault> {
    let stored = stored(bytes, most_pixels)?;
    let channels = if channels == 0 { stored.channels() } else { channels };
    let deep = stored.depth == 16;
    let finish = |value: u16| match (deep, wide) {
        (true, true) | (false, false) => value,
        (true, false) => value >> 8,
        (false, true) => value * 257,
    };
    // libpng's filler is the largest value of the stored depth, even if the depth grows later.
    let filler = ((1u32 << stored.depth) - 1) as u16;
    let (key, weigh, mut row_samples) = (stored.key(), Grey::of(&stored), Vec::new());
    let per_pixel = stored.colour.samples();
    for row in stored.data.chunks_exact(stored.row_bytes.max(1)).take(stored.height) {
        samples(row, stored.depth, &mut row_samples, stored.width * per_pixel);
        for pixel in row_samples.chunks_exact(per_pixel) {
            let pixel = stored.pixel(pixel, key);
            let Some(Pixel { rgb, alpha }) = pixel else {
                return Err(damaged("a PNG whose samples contradict its header"));
            };
            let [red, green, blue] = rgb;
            if channels >= 3 {
                [red, green, blue].into_iter().for_each(|value| put(finish(value)));
            } else {
                put(finish(if stored.is_grey() { red } else { weigh.at(rgb) }));
            }
            if channels % 2 == 0 {
                put(finish(alpha.unwrap_or(filler)));
            }
        }
    }
    Ok((stored.height, stored.width, channels))
}

/// A PNG with 8 bits per value.
pub fn decode_u8(bytes: &[u8], channels: usize, most_pixels: u64) -> Result<Picture, Fault> {
    let mut pixels = Vec::new();
    let (height, width, channels) =
        decode(bytes, channels, false, most_pixels, |value| pixels.push(value as u8))?;
    Ok(Picture { pixels, height, width, channels })
}

/// A PNG with 16 bits per value, in native byte order.
pub fn decode_u16(bytes: &[u8], channels: usize, most_pixels: u64) -> Result<Picture, Fault> {
    let mut pixels = Vec::new();
    let put = |value: u16| pixels.extend_from_slice(&value.to_ne_bytes());
    let (height, width, channels) = decode(bytes, channels, true, most_pixels, put)?;
    Ok(Picture { pixels, height, width, channels })
}

/// Encode pixels of 8 bits, or of 16 bits in native byte order, with one to four channels.
pub fn encode(
    pixels: &[u8],
    (height, width, channels): (usize, usize, usize),
    wide: bool,
    level: Option<u8>,
) -> Result<Vec<u8>, Fault> {
    let refuse = |message: String| Fault::new(FaultKind::Schema, 0, message);
    let colour = match channels {
        1 => ColorType::Grayscale,
        2 => ColorType::GrayscaleAlpha,
        3 => ColorType::Rgb,
        4 => ColorType::Rgba,
        _ => return Err(refuse(format!("no PNG of {channels} channels"))),
    };
    let (Ok(across), Ok(down)) = (u32::try_from(width), u32::try_from(height)) else {
        return Err(refuse(format!("no PNG of {width} x {height} pixels")));
    };
    let wrong = |error: png::EncodingError| refuse(format!("no PNG of these pixels: {error}"));
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, across, down);
    encoder.set_color(colour);
    encoder.set_depth(if wide { BitDepth::Sixteen } else { BitDepth::Eight });
    match level {
        Some(0) => encoder.set_deflate_compression(png::DeflateCompression::NoCompression),
        Some(level) => encoder.set_deflate_compression(png::DeflateCompression::Level(level)),
        None => encoder.set_compression(png::Compression::Balanced),
    }
    let mut writer = encoder.write_header().map_err(wrong)?;
    if wide {
        let turned: Vec<u8> = pixels
            .as_chunks::<2>()
            .0
            .iter()
            .flat_map(|pair| u16::from_ne_bytes(*pair).to_be_bytes())
            .collect();
        writer.write_image_data(&turned).map_err(wrong)?;
    } else {
        writer.write_image_data(pixels).map_err(wrong)?;
    }
    writer.finish().map_err(wrong)?;
    Ok(bytes)
}
