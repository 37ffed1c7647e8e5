//! Decodes and encodes JPEG with every option of TensorFlow's operations. These choose the inverse
//! transform, the upsampling of colour, and how much of a truncated file is enough. Encoded files
//! are equal to TensorFlow's, byte for byte. It needs `unsafe` because it calls `libjpeg.c`, whose
//! long jumps end within the call.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uchar};
use std::ptr::NonNull;

use super::jpeg_parts::Parts;
use super::{Shape, damaged};
use crate::wire::{Fault, FaultKind};

/// The maximum number of scans of a progressive file is `SCANNED_PIXELS` divided by its pixels, but
/// within these two limits.
const FEWEST_SCANS: u64 = 32;
const MOST_SCANS: u64 = 500;
const SCANNED_PIXELS: u64 = 1 << 33;
const MESSAGE: usize = 200;

/// A decoding request; the C file has the same struct.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Wanted {
    channels: c_int,
    ratio: c_int,
    fancy: c_int,
    fast: c_int,
    recover: c_int,
    crop: c_int,
    left: c_int,
    top: c_int,
    width: c_int,
    height: c_int,
    most_scans: c_int,
}

#[repr(C)]
struct Found {
    width: c_int,
    height: c_int,
    channels: c_int,
    message: [c_char; MESSAGE],
}

#[repr(C)]
struct RawManner {
    width: c_int,
    height: c_int,
    channels: c_int,
    quality: c_int,
    progressive: c_int,
    optimize: c_int,
    chroma_downsampling: c_int,
    density_unit: c_int,
    x_density: c_int,
    y_density: c_int,
}

#[repr(C)]
struct RawDecoder {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn penstock_jpeg_open(
        bytes: *const c_uchar,
        length: usize,
        wanted: *const Wanted,
        found: *mut Found,
    ) -> *mut RawDecoder;
    fn penstock_jpeg_read(
        decoder: *mut RawDecoder,
        pixels: *mut c_uchar,
        found: *mut Found,
    ) -> c_int;
    fn penstock_jpeg_close(decoder: *mut RawDecoder);
    fn penstock_jpeg_encode(
        pixels: *const c_uchar,
        manner: *const RawManner,
        xmp: *const c_uchar,
        xmp_length: usize,
        made: *mut *mut c_uchar,
        made_length: *mut usize,
        message: *mut c_char,
    ) -> c_int;
    fn penstock_jpeg_free(made: *mut c_uchar);
}

fn fault(message: &[c_char; MESSAGE]) -> Fault {
    let text: Vec<u8> = message.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    let text = String::from_utf8_lossy(&text);
    let kind = if text.contains("scans") { FaultKind::Limit } else { FaultKind::Image };
    Fault::new(kind, 0, format!("a damaged JPEG: {text}"))
}

/// A part of an image, in pixels.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Rows above it.
    pub top: i32,
    /// Columns to the left of it.
    pub left: i32,
    /// Rows.
    pub height: i32,
    /// Columns.
    pub width: i32,
}

/// Options for decoding a JPEG.
#[derive(Clone, Copy, Debug)]
pub struct Choices {
    /// 1 or 3; 0 for the stored channels, which are 3 for inks.
    pub channels: u8,
    /// 1/`ratio` of each side: 1, 2, 4 or 8.
    pub ratio: u8,
    /// Whether subsampled colour is interpolated smoothly.
    pub fancy: bool,
    /// The fast inverse transform, not the accurate one.
    pub fast: bool,
    /// Decode truncated data as far as possible.
    pub recover: bool,
    /// The minimum fraction of rows that must be readable.
    pub fraction: f32,
    /// Decode only this part.
    pub window: Option<Window>,
    /// The maximum number of pixels of an image.
    pub most_pixels: u64,
}

/// Pixels, rows from top to bottom, channels next to each other.
#[derive(Debug)]
pub struct Picture {
    /// One value each.
    pub pixels: Vec<u8>,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Values per pixel.
    pub channels: usize,
}

struct Decoder(NonNull<RawDecoder>);

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: made by `penstock_jpeg_open`, and closed only here.
        unsafe { penstock_jpeg_close(self.0.as_ptr()) }
    }
}

/// Decode a JPEG.
pub fn decode(bytes: &[u8], choices: &Choices) -> Result<Picture, Fault> {
    let (height, width, _) = size(bytes)?;
    let pixels = u64::from(height) * u64::from(width);
    if pixels > choices.most_pixels {
        let most = choices.most_pixels;
        let message = format!("an image of {width} x {height} pixels, beyond image_pixels={most}");
        return Err(Fault::new(FaultKind::Limit, 0, message).values(most, pixels));
    }
    if let Some(picture) = by_parts(bytes, (u32::from(width), u32::from(height)), choices) {
        return Ok(picture);
    }
    let scans = (SCANNED_PIXELS / pixels.max(1)).clamp(FEWEST_SCANS, MOST_SCANS);
    let window = choices.window.unwrap_or(Window { top: 0, left: 0, height: 0, width: 0 });
    let wanted = Wanted {
        channels: choices.channels.into(),
        ratio: choices.ratio.into(),
        fancy: choices.fancy.into(),
        fast: choices.fast.into(),
        recover: choices.recover.into(),
        crop: choices.window.is_some().into(),
        left: window.left,
        top: window.top,
        width: window.width,
        height: window.height,
        most_scans: scans as c_int,
    };
    let mut found = Found { width: 0, height: 0, channels: 0, message: [0; MESSAGE] };
    // SAFETY: pointer and length of a slice that outlives the decoder, and structures of this function.
    let raw = unsafe {
        penstock_jpeg_open(bytes.as_ptr(), bytes.len(), &raw const wanted, &raw mut found)
    };
    let decoder = Decoder(NonNull::new(raw).ok_or_else(|| fault(&found.message))?);
    let side = |side: c_int| usize::try_from(side).map_err(|_| damaged("a JPEG of no size"));
    let (height, width) = (side(found.height)?, side(found.width)?);
    let channels = side(found.channels)?;
    let length = height * width * channels;
    let mut pixels = Vec::<u8>::new();
    let no_memory =
        |_| Fault::new(FaultKind::Limit, 0, format!("no memory for {length} bytes of pixels"));
    pixels.try_reserve_exact(length).map_err(no_memory)?;
    // SAFETY: a live decoder, and space for as many bytes as it says that it will write.
    let rows =
        unsafe { penstock_jpeg_read(decoder.0.as_ptr(), pixels.as_mut_ptr(), &raw mut found) };
    let enough = |rows: usize| rows as f32 / height as f32 >= choices.fraction.min(1.0);
    if !usize::try_from(rows).is_ok_and(enough) {
        return Err(fault(&found.message));
    }
    // SAFETY: every row was written: decoded, or filled if it could not be read.
    unsafe { pixels.set_len(length) };
    Ok(Picture { pixels, height, width, channels })
}

thread_local! {
    static PARTS: RefCell<Option<Parts>> = RefCell::new(Parts::new());
}

/// The fast path for whole, usual baseline JPEGs, with the same pixels.
fn by_parts(bytes: &[u8], size: (u32, u32), choices: &Choices) -> Option<Picture> {
    if !choices.fancy || choices.window.is_some() {
        return None;
    }
    PARTS.with_borrow_mut(|parts| {
        let begun = parts.as_mut()?.begin(bytes, size)?;
        let channels = match (choices.channels, begun.components()) {
            (1 | 3, 1 | 3) => choices.channels,
            (0, 1) => 1,
            (0, 3) => 3,
            _ => return None,
        };
        let side = |pixels: u32| pixels.div_ceil(u32::from(choices.ratio));
        let shape = Shape { width: side(size.0), height: side(size.1), channels };
        let length = shape.bytes().ok()?;
        let mut pixels = Vec::new();
        pixels.try_reserve_exact(length).ok()?;
        pixels.resize(length, 0);
        begun.decode(shape, choices.ratio, None, choices.fast, &mut pixels)?;
        let (height, width) = (shape.height as usize, shape.width as usize);
        Some(Picture { pixels, height, width, channels: channels.into() })
    })
}

/// The size in the frame header of a JPEG, and the number of its components.
pub fn size(bytes: &[u8]) -> Result<(u16, u16, u8), Fault> {
    let mut at = 2usize;
    let ends =
        || Fault::new(FaultKind::Truncated, bytes.len() as u64, "a JPEG truncated in its header");
    if !bytes.starts_with(&[0xff, 0xd8]) {
        return Err(damaged("no JPEG: it does not begin with FF D8"));
    }
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let skipped = rest.iter().position(|&byte| byte == 0xff).ok_or_else(ends)?;
        let filled = rest.iter().skip(skipped).position(|&byte| byte != 0xff).ok_or_else(ends)?;
        let marker_at = skipped + filled;
        let (marker, segment) =
            rest.get(marker_at..).and_then(<[u8]>::split_first).ok_or_else(ends)?;
        at += marker_at + 1;
        match *marker {
            0x00 | 0x01 | 0xd0..=0xd7 => {}
            0xd8..=0xda => return Err(damaged("a damaged JPEG: no frame header")),
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let &[_, _, _, h1, h0, w1, w0, components] =
                    segment.first_chunk::<8>().ok_or_else(ends)?;
                let (height, width) = (u16::from_be_bytes([h1, h0]), u16::from_be_bytes([w1, w0]));
                return Ok((height, width, components));
            }
            _ => {
                let length = segment.first_chunk::<2>().ok_or_else(ends)?;
                at += usize::from(u16::from_be_bytes(*length)).max(2);
            }
        }
    }
}

/// Options for encoding a JPEG.
#[derive(Clone, Copy, Debug)]
pub struct Manner<'a> {
    /// 0 to 100.
    pub quality: u8,
    /// Whether to write several scans.
    pub progressive: bool,
    /// A smaller file, for more work.
    pub optimize: bool,
    /// Whether colour has half the resolution.
    pub chroma_downsampling: bool,
    /// 0 none, 1 inches, 2 centimetres.
    pub density_unit: u8,
    /// Pixels per unit, horizontally.
    pub x_density: u16,
    /// Pixels per unit, vertically.
    pub y_density: u16,
    /// Metadata, may be empty.
    pub xmp: &'a [u8],
}

/// Encode an image of one or three channels.
pub fn encode(
    pixels: &[u8],
    (height, width, channels): (usize, usize, usize),
    manner: &Manner<'_>,
) -> Result<Vec<u8>, Fault> {
    const MOST: usize = 65_500;
    let refuse = |message: String| Fault::new(FaultKind::Schema, 0, message);
    if height > MOST || width > MOST || height == 0 || width == 0 {
        let message = format!("{width} x {height} pixels: JPEG holds 1 to {MOST} a side");
        return Err(refuse(message));
    }
    if pixels.len() != height * width * channels || !matches!(channels, 1 | 3) {
        return Err(refuse("the pixels do not have the given shape".to_owned()));
    }
    if manner.xmp.len() > 65_500 {
        return Err(refuse("metadata of more than 65500 bytes".to_owned()));
    }
    let raw = RawManner {
        width: width as c_int,
        height: height as c_int,
        channels: channels as c_int,
        quality: manner.quality.into(),
        progressive: manner.progressive.into(),
        optimize: manner.optimize.into(),
        chroma_downsampling: manner.chroma_downsampling.into(),
        density_unit: manner.density_unit.into(),
        x_density: manner.x_density.into(),
        y_density: manner.y_density.into(),
    };
    let (mut made, mut length) = (std::ptr::null_mut(), 0);
    let mut message = [0; MESSAGE];
    // SAFETY: `pixels` has as many bytes as the shape says; all other pointers are to structures and slices
    // of this function.
    let done = unsafe {
        penstock_jpeg_encode(
            pixels.as_ptr(),
            &raw const raw,
            manner.xmp.as_ptr(),
            manner.xmp.len(),
            &raw mut made,
            &raw mut length,
            message.as_mut_ptr(),
        )
    };
    if done == 0 {
        // SAFETY: a text that ends with a zero, which format_message writes.
        let text = unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy().into_owned();
        return Err(refuse(format!("no JPEG of these pixels: {text}")));
    }
    // SAFETY: after success there are this many bytes, and they are freed once.
    unsafe {
        let bytes = std::slice::from_raw_parts(made, length).to_vec();
        penstock_jpeg_free(made);
        Ok(bytes)
    }
}
