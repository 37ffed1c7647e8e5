//! Reads the codec, size and channels of an image from its first bytes, without decoding.
//!
//! | codec | begins with | size is in |
//! |---|---|---|
//! | JPEG | `FF D8 FF` | the first SOFn segment: precision, height, width (u16, big endian), components |
//! | PNG | `89 P N G 0D 0A 1A 0A` | the chunk IHDR: width, height (u32, big endian), depth, colour type |
//! | WebP | `RIFF` size `WEBP` | `VP8 `, `VP8L` or `VP8X`: 14 bits each, or 24 bits less one |
//! | PPM, PGM | `P6`, `P5` | decimal numbers: width, height, largest value |
//! | BMP, GIF, TIFF | `BM`; `GIF8`; `II` 42, `MM` 42 or 43 | read by the crate `image`: see `other_images` |
//!
//! Sources: ITU-T T.81 annex B; the PNG specification; the WebP container specification and
//! RFC 6386, 9649; the man pages ppm(5) and pgm(5).

use super::cursor::Cursor;
use super::{Fault, FaultKind, other_images};

/// How an image is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
    /// WebP, lossy or lossless.
    Webp,
    /// Raw pixels after a text header: PPM, or PGM for grey.
    Ppm,
    /// BMP; read only, like the codecs below.
    Bmp,
    /// The first frame of a GIF.
    Gif,
    /// The first page of a TIFF.
    Tiff,
}

impl Codec {
    /// Its name in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::Webp => "webp",
            Self::Ppm => "ppm",
            Self::Bmp => "bmp",
            Self::Gif => "gif",
            Self::Tiff => "tiff",
        }
    }

    /// The codec with this name, if it can be written.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Jpeg, Self::Png, Self::Webp, Self::Ppm].into_iter().find(|one| one.name() == name)
    }
}

/// The facts from an image's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// How it is encoded.
    pub codec: Codec,
    /// Pixels from left to right, at least 1.
    pub width: u32,
    /// Pixels from top to bottom, at least 1.
    pub height: u32,
    /// Values per pixel: 1 for grey, 2 for grey and alpha, 3 for RGB, 4 for RGBA. A palette counts
    /// as its colours, and CMYK as RGB.
    pub channels: u8,
    /// For JPEG: whether its components are cyan, magenta, yellow and black.
    pub cmyk: bool,
    /// For WebP: whether it is a sequence of frames.
    pub animated: bool,
    /// Whether its values have 16 bits.
    pub deep: bool,
    /// For PNG: whether its pixels are indices of a palette.
    pub indexed: bool,
}

impl Head {
    /// A head for which all the optional facts are false.
    pub fn new(codec: Codec, width: u32, height: u32, channels: u8) -> Self {
        let (cmyk, animated, deep, indexed) = (false, false, false, false);
        Self { codec, width, height, channels, cmyk, animated, deep, indexed }
    }

    /// Pixels of the image.
    pub fn pixels(&self) -> u64 {
        u64::from(self.width).saturating_mul(u64::from(self.height))
    }
}

#[cold]
fn bad(byte: usize, message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Image, byte as u64, message)
}

/// Read the head of an image.
pub fn probe(bytes: &[u8]) -> Result<Head, Fault> {
    let head = match bytes {
        [0xff, 0xd8, ..] => jpeg(bytes),
        [0x89, b'P', b'N', b'G', ..] => png(bytes),
        [b'R', b'I', b'F', b'F', ..] => webp(bytes),
        [b'P', b'5' | b'6', b' ' | b'\t' | b'\n' | 0x0b..=b'\r' | b'#', ..] => {
            ppm(bytes).map(|(head, _, _)| head)
        }
        [b'B', b'M', ..] => other_images::head(bytes, Codec::Bmp),
        [b'G', b'I', b'F', b'8', ..] => other_images::head(bytes, Codec::Gif),
        [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => {
            other_images::head(bytes, Codec::Tiff)
        }
        [] => return Err(Fault::new(FaultKind::Truncated, 0, "an image of no bytes")),
        _ => {
            return Err(bad(
                0,
                "these bytes are not a JPEG, PNG, WebP, PPM, PGM, BMP, GIF or TIFF",
            ));
        }
    }?;
    if head.width == 0 || head.height == 0 {
        let (width, height) = (head.width, head.height);
        return Err(bad(0, format!("{} of {width} x {height} pixels", head.codec.name())));
    }
    Ok(head)
}

fn jpeg(bytes: &[u8]) -> Result<Head, Fault> {
    let mut cursor = Cursor::new(bytes);
    cursor.take(2)?;
    loop {
        // Stray bytes are skipped here; the decoder decides about them.
        while cursor.u8()? != 0xff {}
        let mut marker = 0xff;
        while marker == 0xff {
            marker = cursor.u8()?;
        }
        let at = cursor.offset();
        match marker {
            0x00 | 0x01 | 0xd0..=0xd8 => {}
            0xd9 | 0xda => return Err(bad(at, "a JPEG without a frame header")),
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                return frame_header(marker, &mut cursor);
            }
            _ => {
                let length = u16_be(&mut cursor)?;
                let Some(length) = usize::from(length).checked_sub(2) else {
                    return Err(bad(at, "a JPEG segment shorter than its own length"));
                };
                cursor.take(length)?;
            }
        }
    }
}

fn frame_header(marker: u8, cursor: &mut Cursor<'_>) -> Result<Head, Fault> {
    let at = cursor.offset();
    let unsupported = |what: String| Err(Fault::new(FaultKind::Unsupported, at as u64, what));
    u16_be(cursor)?;
    let precision = cursor.u8()?;
    let height = u32::from(u16_be(cursor)?);
    let width = u32::from(u16_be(cursor)?);
    let components = cursor.u8()?;
    if !matches!(marker, 0xc0..=0xc3 | 0xc9 | 0xca) {
        return unsupported(format!("a JPEG of process SOF{}", marker & 15));
    }
    if precision != 8 {
        return unsupported(format!("a JPEG with {precision} bits per value"));
    }
    if height == 0 {
        return unsupported("a JPEG that has its height after its pixels".to_owned());
    }
    let channels = match components {
        1 => 1,
        3 | 4 => 3,
        _ => return unsupported(format!("a JPEG of {components} components")),
    };
    let cmyk = components == 4;
    Ok(Head { cmyk, ..Head::new(Codec::Jpeg, width, height, channels) })
}

fn u16_be(cursor: &mut Cursor<'_>) -> Result<u16, Fault> {
    cursor.u16_le().map(u16::swap_bytes)
}

fn u32_be(cursor: &mut Cursor<'_>) -> Result<u32, Fault> {
    cursor.u32_le().map(u32::swap_bytes)
}

fn png(bytes: &[u8]) -> Result<Head, Fault> {
    let mut cursor = Cursor::new(bytes);
    if cursor.take(8)? != b"\x89PNG\r\n\x1a\n" {
        return Err(bad(4, "a PNG signature that was changed in transfer"));
    }
    if u32_be(&mut cursor)? != 13 || cursor.take(4)? != b"IHDR" {
        return Err(bad(8, "a PNG that does not begin with its header"));
    }
    let (width, height) = (u32_be(&mut cursor)?, u32_be(&mut cursor)?);
    let (depth, colour) = (cursor.u8()?, cursor.u8()?);
    let channels = match (colour, depth) {
        (0, 1 | 2 | 4 | 8 | 16) => 1,
        (2, 8 | 16) | (3, 1 | 2 | 4 | 8) => 3,
        (4, 8 | 16) => 2,
        (6, 8 | 16) => 4,
        _ => return Err(bad(24, format!("a PNG of colour type {colour} and {depth} bits"))),
    };
    if width > i32::MAX as u32 || height > i32::MAX as u32 {
        return Err(bad(16, format!("a PNG of {width} x {height} pixels")));
    }
    cursor.take(3)?;
    cursor.take(4)?;
    // One colour, or some colours of a palette, may be transparent. The chunk that says so is before the
    // pixels.
    let mut alpha = 0;
    while alpha == 0 && matches!(colour, 0 | 2 | 3) {
        let length = u32_be(&mut cursor)?;
        match cursor.take(4)? {
            b"tRNS" => alpha = 1,
            b"IDAT" | b"IEND" => break,
            _ => {
                cursor.take(length as usize)?;
                cursor.take(4)?;
            }
        }
    }
    let head = Head::new(Codec::Png, width, height, channels + alpha);
    Ok(Head { deep: depth == 16, indexed: colour == 3, ..head })
}

fn webp(bytes: &[u8]) -> Result<Head, Fault> {
    let mut cursor = Cursor::new(bytes);
    cursor.take(4)?;
    cursor.u32_le()?;
    if cursor.take(4)? != b"WEBP" {
        return Err(bad(8, "a RIFF file that is not a WebP"));
    }
    let kind = cursor.take(4)?;
    cursor.u32_le()?;
    let head = |width, height, alpha: bool, animated| Head {
        animated,
        ..Head::new(Codec::Webp, width, height, if alpha { 4 } else { 3 })
    };
    match kind {
        b"VP8 " => {
            if cursor.take(3)?.first().is_none_or(|tag| tag & 1 != 0) {
                return Err(bad(20, "a WebP that does not begin with a key frame"));
            }
            if cursor.take(3)? != [0x9d, 0x01, 0x2a] {
                return Err(bad(23, "a WebP whose frame has no start code"));
            }
            let (width, height) = (cursor.u16_le()? & 0x3fff, cursor.u16_le()? & 0x3fff);
            Ok(head(width.into(), height.into(), false, false))
        }
        b"VP8L" => {
            if cursor.u8()? != 0x2f {
                return Err(bad(20, "a lossless WebP without its signature"));
            }
            let bits = cursor.u32_le()?;
            let (width, height) = ((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1);
            Ok(head(width, height, bits & (1 << 28) != 0, false))
        }
        b"VP8X" => {
            let flags = cursor.u32_le()?;
            let mut side = || -> Result<u32, Fault> {
                Ok(u32::from(cursor.u16_le()?) + (u32::from(cursor.u8()?) << 16) + 1)
            };
            let (width, height) = (side()?, side()?);
            Ok(head(width, height, flags & 0x10 != 0, flags & 0x02 != 0))
        }
        _ => Err(bad(12, "a WebP that does not begin with an image")),
    }
}

/// The head of a PPM or PGM, the offset of its pixels, and its largest value.
pub fn ppm(bytes: &[u8]) -> Result<(Head, usize, u16), Fault> {
    let mut cursor = Cursor::new(bytes);
    let channels = if cursor.take(2)? == b"P6" { 3 } else { 1 };
    let width = decimal(&mut cursor)?;
    let height = decimal(&mut cursor)?;
    let largest = decimal(&mut cursor)?;
    // `decimal` has read the one white space that ends the header.
    match u16::try_from(largest) {
        Ok(largest @ 1..) => {
            let head = Head::new(Codec::Ppm, width, height, channels);
            Ok((Head { deep: largest > 255, ..head }, cursor.offset(), largest))
        }
        _ => Err(bad(cursor.offset(), format!("a PPM whose largest value is {largest}"))),
    }
}

/// A number, the white space and comments before it, and the one white space after it.
fn decimal(cursor: &mut Cursor<'_>) -> Result<u32, Fault> {
    let mut digits = 0u32;
    let mut value = 0u32;
    loop {
        let at = cursor.offset();
        match cursor.u8()? {
            digit @ b'0'..=b'9' => {
                digits += 1;
                value = value.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
                if digits > 10 {
                    return Err(bad(at, "a PPM number with too many digits"));
                }
            }
            b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r' if digits > 0 => return Ok(value),
            b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r' => {}
            b'#' if digits == 0 => while !matches!(cursor.u8()?, b'\n' | b'\r') {},
            _ => return Err(bad(at, "a PPM header that is not a number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ppm_says_its_size() {
        let (head, start, largest) = ppm(b"P6\n# made by hand\n3 2\n255\nabc").unwrap();
        assert_eq!((head.width, head.height, head.channels), (3, 2, 3));
        assert_eq!((start, largest), (26, 255));
    }

    #[test]
    fn every_cut_of_a_head_is_a_fault() {
        let whole: [&[u8]; 3] = [
            b"P5 3 2 255\n",
            b"\xff\xd8\xff\xc0\x00\x0b\x08\x00\x02\x00\x03\x01",
            b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\0\0\0\0",
        ];
        for bytes in whole {
            assert!(probe(bytes).is_ok());
            for cut in 0..bytes.len() {
                assert!(probe(&bytes[..cut]).is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn other_bytes_are_no_image() {
        assert_eq!(probe(b"\0\0\0\x0cjP  ").unwrap_err().kind, FaultKind::Image);
        assert_eq!(probe(b"P6 0 1 255\n").unwrap_err().kind, FaultKind::Image);
        assert_eq!(probe(b"").unwrap_err().kind, FaultKind::Truncated);
    }
}
