//! Decodes, shrinks and encodes one image. Each codec has its own file; this file has the shared code.
//!
//! Pixels are bytes, in rows from top to bottom, with channels next to each other. If alpha is not wanted,
//! it is dropped and never blended. 16-bit values are reduced to their upper 8 bits. EXIF orientation is
//! ignored, except where `crop::Law` wants it. CMYK becomes RGB as `C * K / 255` of the inverted inks that Adobe's files store.

pub mod bmp;
pub mod crop;
pub mod deep_view;
pub mod draws;
pub mod frame;
pub mod gif;
pub mod jitter;
pub mod jpeg;
pub mod jpeg_parts;
pub mod libjpeg;
pub mod masks;
pub mod pillow;
pub mod png;
pub mod ppm;
pub mod resize;
pub mod samples;
pub mod shrink;
pub mod training_view;
pub mod turn;
pub mod values;
pub mod webp;

use self::crop::Region;
use super::buffer_pool::ask_for_huge_pages;
use crate::wire::image_head::{Codec, Head, probe};
use crate::wire::{Fault, FaultKind, other_images};

/// Which channels are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Three channels, whatever the image has.
    Rgb,
    /// One channel.
    Grey,
    /// The channels of the image.
    Stored,
}

impl Mode {
    /// The mode with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "rgb" => Some(Self::Rgb),
            "grey" => Some(Self::Grey),
            "stored" => Some(Self::Stored),
            _ => None,
        }
    }

    /// The number of channels of an image in this mode.
    pub fn channels(self, head: &Head) -> u8 {
        match self {
            Self::Rgb => 3,
            Self::Grey => 1,
            Self::Stored => head.channels,
        }
    }
}

/// Options of decoding.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Which channels are wanted.
    pub mode: Mode,
    /// The maximum number of pixels of an image.
    pub most_pixels: u64,
    /// Decode a damaged JPEG as far as possible.
    pub allow_damaged: bool,
}

/// The head of an image within the limit.
pub fn head_within(bytes: &[u8], most_pixels: u64) -> Result<Head, Fault> {
    let head = probe(bytes)?;
    within(&head, most_pixels)?;
    Ok(head)
}

/// Check that an image with this head is within the limit.
pub fn within(head: &Head, most_pixels: u64) -> Result<(), Fault> {
    if head.pixels() <= most_pixels {
        return Ok(());
    }
    let (width, height) = (head.width, head.height);
    let message =
        format!("an image of {width} x {height} pixels, beyond image_pixels={most_pixels}");
    Err(Fault::new(FaultKind::Limit, 0, message).values(most_pixels, head.pixels()))
}

/// The size of a decoded image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Pixels from left to right.
    pub width: u32,
    /// Pixels from top to bottom.
    pub height: u32,
    /// Values per pixel.
    pub channels: u8,
}

impl Shape {
    /// The shape of an image decoded in this mode.
    pub fn of(head: &Head, mode: Mode) -> Self {
        Self { width: head.width, height: head.height, channels: mode.channels(head) }
    }

    /// Bytes of its pixels.
    pub fn bytes(&self) -> Result<usize, Fault> {
        let pixels = u64::from(self.width).checked_mul(u64::from(self.height));
        pixels
            .and_then(|pixels| pixels.checked_mul(u64::from(self.channels)))
            .and_then(|bytes| isize::try_from(bytes).ok())
            .map(isize::cast_unsigned)
            .ok_or_else(|| Fault::new(FaultKind::Limit, 0, "an image too large for this machine"))
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        (self.width as usize).saturating_mul(usize::from(self.channels))
    }
}

#[cold]
fn damaged(message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Image, 0, message)
}

/// `length` zero bytes; large allocations cost nothing until they are written.
pub fn zeroed(length: usize) -> Result<Vec<u8>, Fault> {
    let no_memory =
        || Fault::new(FaultKind::Limit, 0, format!("no memory for {length} bytes of pixels"));
    if length == 0 {
        return Ok(Vec::new());
    }
    let layout = std::alloc::Layout::array::<u8>(length).map_err(|_| no_memory())?;
    // SAFETY: the layout is not empty. The pointer is checked, points to `length` zero bytes, and comes
    // from the allocator that the vector returns it to.
    unsafe {
        let pointer = std::alloc::alloc_zeroed(layout);
        if pointer.is_null() {
            return Err(no_memory());
        }
        ask_for_huge_pages(pointer, length);
        Ok(Vec::from_raw_parts(pointer, length, length))
    }
}

/// Resize `scratch` to this length and fill it with zeros, in its memory if that is large enough.
fn fit(scratch: &mut Vec<u8>, length: usize) -> Result<&mut [u8], Fault> {
    if scratch.capacity() < length {
        *scratch = zeroed(length)?;
    }
    scratch.resize(length, 0);
    Ok(scratch.as_mut_slice())
}

/// `length` bytes of `scratch` with any contents, to be overwritten.
fn room(scratch: &mut Vec<u8>, length: usize) -> Result<&mut [u8], Fault> {
    if scratch.len() < length {
        *scratch = zeroed(length)?;
    }
    scratch.get_mut(..length).ok_or_else(|| damaged("no room for pixels"))
}

/// Decodes images one after another, and keeps reusable state.
#[derive(Default)]
pub struct Decoder {
    jpeg: Option<jpeg::Decompressor>,
    scratch: Vec<u8>,
}

impl Decoder {
    /// Decode into `pixels`, whose shape follows from head and mode.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        head: &Head,
        rules: &Rules,
        pixels: &mut [u8],
    ) -> Result<(), Fault> {
        let shape = Shape::of(head, rules.mode);
        match head.codec {
            Codec::Jpeg => self.jpeg(bytes, head, shape, rules, 1, pixels),
            Codec::Png => png::decode(bytes, shape, &mut self.scratch, pixels),
            Codec::Webp => webp::decode(bytes, head, shape, &mut self.scratch, pixels),
            Codec::Ppm => ppm::decode(bytes, shape, pixels),
            Codec::Bmp | Codec::Gif | Codec::Tiff => self.other(bytes, head, shape, pixels),
        }
    }

    /// Decode a BMP, GIF or TIFF. Of 16-bit values, the upper 8 bits are returned.
    fn other(
        &mut self,
        bytes: &[u8],
        head: &Head,
        shape: Shape,
        pixels: &mut [u8],
    ) -> Result<(), Fault> {
        let stored = Shape::of(head, Mode::Stored);
        if stored == shape && !head.deep {
            return other_images::decode(bytes, head, pixels);
        }
        let values = stored.bytes()?;
        let source = fit(&mut self.scratch, values.saturating_mul(if head.deep { 2 } else { 1 }))?;
        other_images::decode(bytes, head, source)?;
        if head.deep {
            for place in 0..values {
                let pair = source.get(place * 2..).and_then(<[u8]>::first_chunk::<2>).copied();
                let upper = u16::from_ne_bytes(pair.unwrap_or_default()) >> 8;
                if let Some(value) = source.get_mut(place) {
                    *value = upper as u8;
                }
            }
        }
        let source = source.get(..values).unwrap_or_default();
        change_channels(source, stored.channels, shape.channels, pixels)
    }

    /// Decode to an image whose longer side is still at least twice `max_side`, in the cheapest
    /// way: decoding a JPEG at a half, a quarter or an eighth of its size takes less time than at
    /// its full size.
    pub fn decode_for(
        &mut self,
        bytes: &[u8],
        head: &Head,
        rules: &Rules,
        max_side: Option<u32>,
        pixels: &mut Vec<u8>,
    ) -> Result<Shape, Fault> {
        let mut shape = Shape::of(head, rules.mode);
        let mut part = 1;
        if let (Some(side), Codec::Jpeg) = (max_side, head.codec) {
            let longer = u64::from(shape.width.max(shape.height));
            while part < 8 && longer / (part * 2) >= u64::from(side).saturating_mul(2) {
                part *= 2;
            }
        }
        shape.width = shape.width.div_ceil(part as u32);
        shape.height = shape.height.div_ceil(part as u32);
        let pixels = fit(pixels, shape.bytes()?)?;
        if head.codec == Codec::Jpeg {
            self.jpeg(bytes, head, shape, rules, part as u8, pixels)?;
        } else {
            self.decode(bytes, head, rules, pixels)?;
        }
        Ok(shape)
    }

    /// Decode a JPEG at 1/`part` of its size: the region, and as little as possible around it.
    /// Returns the decoded region.
    pub fn decode_region(
        &mut self,
        bytes: &[u8],
        head: &Head,
        part: u8,
        region: Region,
        pixels: &mut Vec<u8>,
    ) -> Result<Region, Fault> {
        let whole = |side: u32| side.div_ceil(u32::from(part));
        let (width, height) = (whole(head.width), whole(head.height));
        let mut found = Region { left: 0, top: 0, width, height };
        let begun =
            self.jpeg.get_or_insert_with(jpeg::Decompressor::new).begin(bytes, head, false)?;
        let mut asked = None;
        // A file that does not end as a JPEG should may be truncated anywhere, so it is decoded to
        // its end.
        if let (Some(columns), true) = (begun.block_columns(), is_whole(bytes)) {
            let columns = (columns / u32::from(part)).max(1);
            // Subsampled colour is interpolated from neighbours. The neighbours of the region are needed to
            // get the same pixels as when decoding the whole image.
            let left = region.left.saturating_sub(1) / columns * columns;
            let right = (region.left + region.width).saturating_add(2).min(width);
            found = Region { left, width: right.saturating_sub(left), ..region };
            asked = (left < right).then_some(found);
        }
        let shape = Shape { width: found.width, height: found.height, channels: 3 };
        let pixels = room(pixels, shape.bytes()?)?;
        if head.cmyk {
            let inks = Shape { channels: 4, ..shape };
            let four = room(&mut self.scratch, inks.bytes()?)?;
            begun.decode(inks, part, asked, four)?;
            from_inks(four, 3, pixels);
        } else {
            begun.decode(shape, part, asked, pixels)?;
        }
        Ok(found)
    }

    fn jpeg(
        &mut self,
        bytes: &[u8],
        head: &Head,
        shape: Shape,
        rules: &Rules,
        part: u8,
        pixels: &mut [u8],
    ) -> Result<(), Fault> {
        let decompressor = self.jpeg.get_or_insert_with(jpeg::Decompressor::new);
        let damage = rules.allow_damaged;
        let wanted = jpeg::Wanted { shape, part, allow_damaged: damage };
        if !head.cmyk {
            return decompressor.decode(bytes, head, &wanted, pixels);
        }
        let inks = Shape { channels: 4, ..shape };
        let four = fit(&mut self.scratch, inks.bytes()?)?;
        decompressor.decode(bytes, head, &jpeg::Wanted { shape: inks, ..wanted }, four)?;
        from_inks(four, shape.channels, pixels);
        Ok(())
    }
}

/// Whether a JPEG ends as it should. Zeros may follow, which pad a row of a table of images.
fn is_whole(bytes: &[u8]) -> bool {
    let padding = bytes.iter().rev().take_while(|&&byte| byte == 0).count();
    bytes.get(..bytes.len() - padding).is_some_and(|file| file.ends_with(&[0xff, 0xd9]))
}

/// Inverted CMYK as Adobe stores it, as RGB or grey.
fn from_inks(inks: &[u8], channels: u8, pixels: &mut [u8]) {
    let over = |ink: u8, black: u8| {
        let product = u32::from(ink) * u32::from(black) + 128;
        (((product >> 8) + product) >> 8) as u8
    };
    let rgb =
        inks.as_chunks::<4>().0.iter().map(|&[c, m, y, k]| [over(c, k), over(m, k), over(y, k)]);
    if channels == 1 {
        for (pixel, [red, green, blue]) in pixels.iter_mut().zip(rgb) {
            *pixel = luma(red, green, blue);
        }
    } else {
        for (pixel, colour) in pixels.as_chunks_mut::<3>().0.iter_mut().zip(rgb) {
            *pixel = colour;
        }
    }
}

/// Brightness by the weights of ITU-R 601, as in JPEG.
fn luma(red: u8, green: u8, blue: u8) -> u8 {
    let sum = 19595 * u32::from(red) + 38470 * u32::from(green) + 7471 * u32::from(blue);
    ((sum + 0x8000) >> 16) as u8
}

/// Convert pixels from one number of channels to another: alpha is dropped or opaque, grey is repeated, and
/// colour becomes grey by brightness.
pub fn change_channels(source: &[u8], from: u8, to: u8, pixels: &mut [u8]) -> Result<(), Fault> {
    fn each<const M: usize, const N: usize>(
        source: &[u8],
        pixels: &mut [u8],
        change: impl Fn([u8; M]) -> [u8; N],
    ) {
        let (targets, _) = pixels.as_chunks_mut::<N>();
        for (target, values) in targets.iter_mut().zip(source.as_chunks::<M>().0) {
            *target = change(*values);
        }
    }
    match (from, to) {
        _ if from == to => pixels.copy_from_slice(source),
        (1, 2) => each(source, pixels, |[g]| [g, 255]),
        (1, 3) => each(source, pixels, |[g]| [g, g, g]),
        (1, 4) => each(source, pixels, |[g]| [g, g, g, 255]),
        (2, 1) => each(source, pixels, |[g, _]| [g]),
        (2, 3) => each(source, pixels, |[g, _]| [g, g, g]),
        (2, 4) => each(source, pixels, |[g, a]| [g, g, g, a]),
        (3, 1) => each(source, pixels, |[r, g, b]| [luma(r, g, b)]),
        (3, 4) => each(source, pixels, |[r, g, b]| [r, g, b, 255]),
        (4, 1) => each(source, pixels, |[r, g, b, _]| [luma(r, g, b)]),
        (4, 3) => each(source, pixels, |[r, g, b, _]| [r, g, b]),
        _ => {
            let message = format!("pixels of {from} channels where {to} are wanted");
            return Err(Fault::new(FaultKind::Unsupported, 0, message));
        }
    }
    Ok(())
}

/// How images are encoded.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The codec.
    pub codec: Codec,
    /// 1 to 100, for JPEG and lossy WebP.
    pub quality: u8,
    /// For WebP: lossless.
    pub lossless: bool,
}

impl Target {
    /// The nearest number of channels that the codec can store.
    pub fn channels(&self, channels: u8) -> u8 {
        match (self.codec, channels) {
            (Codec::Png, any) => any,
            (Codec::Webp, 2 | 4) => 4,
            (Codec::Webp, _) => 3,
            (_, 1 | 2) => 1,
            _ => 3,
        }
    }
}

/// Encodes images one after another, and keeps reusable state.
#[derive(Default)]
pub struct Encoder {
    jpeg: Option<jpeg::Compressor>,
    scratch: Vec<u8>,
}

impl Encoder {
    /// Encode an image of this shape.
    pub fn encode(&mut self, pixels: &[u8], shape: Shape, to: &Target) -> Result<Vec<u8>, Fault> {
        let fitting = Shape { channels: to.channels(shape.channels), ..shape };
        let pixels = if fitting == shape {
            pixels
        } else {
            let changed = fit(&mut self.scratch, fitting.bytes()?)?;
            change_channels(pixels, shape.channels, fitting.channels, changed)?;
            changed
        };
        match to.codec {
            Codec::Jpeg => {
                if self.jpeg.is_none() {
                    self.jpeg = Some(jpeg::Compressor::new()?);
                }
                match &mut self.jpeg {
                    Some(compressor) => compressor.encode(pixels, fitting, to.quality),
                    None => Err(damaged("no JPEG encoder")),
                }
            }
            Codec::Png => png::encode(pixels, fitting),
            Codec::Webp => webp::encode(pixels, fitting, to.quality, to.lossless),
            Codec::Ppm => ppm::encode(pixels, fitting),
            Codec::Bmp | Codec::Gif | Codec::Tiff => {
                let name = to.codec.name().to_uppercase();
                let message = format!("a {name} is only read, and this one has to be written anew");
                Err(Fault::new(FaultKind::Unsupported, 0, message))
            }
        }
    }
}
