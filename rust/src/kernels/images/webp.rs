//! Decodes and encodes WebP by libwebp. It needs `unsafe` because libwebp is a C library: its structures
//! are made by its functions and freed here, and slices are passed with their lengths. Of an
//! animation, only the first frame is decoded.

use std::ffi::c_int;

use libwebp_sys as lib;

use super::{Shape, change_channels, damaged, fit};
use crate::wire::image_head::Head;
use crate::wire::{Fault, FaultKind};

/// Decode into `pixels`, which have the image's size and the wanted channels.
pub fn decode(
    bytes: &[u8],
    head: &Head,
    shape: Shape,
    scratch: &mut Vec<u8>,
    pixels: &mut [u8],
) -> Result<(), Fault> {
    if pixels.len() != shape.bytes()? {
        return Err(damaged("no room for the pixels of a WebP"));
    }
    if head.animated {
        return first_frame(bytes, shape, pixels);
    }
    if matches!(shape.channels, 3 | 4) {
        return still(bytes, shape, pixels);
    }
    let rgb = Shape { channels: 3, ..shape };
    let source = fit(scratch, rgb.bytes()?)?;
    still(bytes, rgb, source)?;
    change_channels(source, 3, shape.channels, pixels)
}

fn still(bytes: &[u8], shape: Shape, pixels: &mut [u8]) -> Result<(), Fault> {
    let Ok(mut config) = lib::WebPDecoderConfig::new() else {
        return Err(damaged("no WebP decoder"));
    };
    // SAFETY: the pointer and length of a slice, and a structure that this function owns.
    let status =
        unsafe { lib::WebPGetFeatures(bytes.as_ptr(), bytes.len(), &raw mut config.input) };
    checked(status)?;
    if (config.input.width, config.input.height) != (shape.width as c_int, shape.height as c_int) {
        return Err(damaged("a WebP whose size differs from its header"));
    }
    config.output.colorspace = if shape.channels == 4 {
        lib::WEBP_CSP_MODE::MODE_RGBA
    } else {
        lib::WEBP_CSP_MODE::MODE_RGB
    };
    config.output.is_external_memory = 1;
    config.output.u.RGBA = lib::WebPRGBABuffer {
        rgba: pixels.as_mut_ptr(),
        stride: shape.row_bytes() as c_int,
        size: pixels.len(),
    };
    // SAFETY: the output is external memory of the size given.
    let status = unsafe { lib::WebPDecode(bytes.as_ptr(), bytes.len(), &raw mut config) };
    // SAFETY: frees what the library may have allocated, never external memory.
    unsafe { lib::WebPFreeDecBuffer(&raw mut config.output) };
    checked(status)
}

fn checked(status: lib::VP8StatusCode) -> Result<(), Fault> {
    use lib::VP8StatusCode as Code;
    let (kind, what) = match status {
        Code::VP8_STATUS_OK => return Ok(()),
        Code::VP8_STATUS_OUT_OF_MEMORY => (FaultKind::Limit, "no memory for it"),
        Code::VP8_STATUS_UNSUPPORTED_FEATURE => (FaultKind::Unsupported, "an unknown feature"),
        Code::VP8_STATUS_SUSPENDED | Code::VP8_STATUS_NOT_ENOUGH_DATA => {
            (FaultKind::Truncated, "its data ends too early")
        }
        _ => (FaultKind::Image, "its data breaks the rules"),
    };
    Err(Fault::new(kind, 0, format!("a damaged WebP: {what}")))
}

struct Frames(*mut lib::WebPAnimDecoder);

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: made by WebPAnimDecoderNew, and deleted only here.
        unsafe { lib::WebPAnimDecoderDelete(self.0) }
    }
}

fn first_frame(bytes: &[u8], shape: Shape, pixels: &mut [u8]) -> Result<(), Fault> {
    let broken = || damaged("a damaged WebP: its first frame cannot be decoded");
    let data = lib::WebPData { bytes: bytes.as_ptr(), size: bytes.len() };
    // SAFETY: `data` borrows from `bytes`, which outlive the decoder; null means the defaults.
    let frames = unsafe { lib::WebPAnimDecoderNew(&raw const data, std::ptr::null()) };
    if frames.is_null() {
        return Err(broken());
    }
    let frames = Frames(frames);
    // SAFETY: plain numbers, filled in by the call.
    let mut info: lib::WebPAnimInfo = unsafe { std::mem::zeroed() };
    // SAFETY: a live decoder.
    let known = unsafe { lib::WebPAnimDecoderGetInfo(frames.0, &raw mut info) };
    if known == 0 || (info.canvas_width, info.canvas_height) != (shape.width, shape.height) {
        return Err(broken());
    }
    let mut canvas = std::ptr::null_mut();
    let mut time = 0;
    // SAFETY: a live decoder; it keeps the canvas until it is called again.
    let given = unsafe { lib::WebPAnimDecoderGetNext(frames.0, &raw mut canvas, &raw mut time) };
    if given == 0 || canvas.is_null() {
        return Err(broken());
    }
    let length = Shape { channels: 4, ..shape }.bytes()?;
    // SAFETY: the canvas is RGBA of the size that the decoder reported.
    let source = unsafe { std::slice::from_raw_parts(canvas, length) };
    change_channels(source, 4, shape.channels, pixels)
}

struct Picture(lib::WebPPicture, lib::WebPMemoryWriter);

impl Drop for Picture {
    fn drop(&mut self) {
        // SAFETY: both were initialised by the library, and are cleared only here.
        unsafe {
            lib::WebPPictureFree(&raw mut self.0);
            lib::WebPMemoryWriterClear(&raw mut self.1);
        }
    }
}

/// Encode an image of three or four channels.
pub fn encode(pixels: &[u8], shape: Shape, quality: u8, lossless: bool) -> Result<Vec<u8>, Fault> {
    const MOST: u32 = 16_383;
    let (width, height) = (shape.width, shape.height);
    if width > MOST || height > MOST {
        let message = format!("{width} x {height} pixels: WebP holds at most {MOST} a side");
        return Err(Fault::new(FaultKind::Schema, 0, message));
    }
    if pixels.len() != shape.bytes()? || !matches!(shape.channels, 3 | 4) {
        return Err(damaged("the pixels do not have the given shape"));
    }
    let (Ok(mut config), Ok(picture)) = (lib::WebPConfig::new(), lib::WebPPicture::new()) else {
        return Err(damaged("no WebP encoder"));
    };
    config.quality = f32::from(quality);
    if lossless {
        config.lossless = 1;
        config.exact = 1;
        config.quality = 70.0; // here it means effort
    }
    // SAFETY: plain pointers and numbers, filled in by the call below.
    let mut picture = Picture(picture, unsafe { std::mem::zeroed() });
    // SAFETY: the writer is owned here, and is not moved while the picture points to it.
    unsafe { lib::WebPMemoryWriterInit(&raw mut picture.1) };
    picture.0.use_argb = c_int::from(lossless);
    picture.0.width = width as c_int;
    picture.0.height = height as c_int;
    picture.0.writer = Some(lib::WebPMemoryWrite);
    picture.0.custom_ptr = (&raw mut picture.1).cast();
    let stride = shape.row_bytes() as c_int;
    // SAFETY: `pixels` are as many as the shape says, and are copied.
    let done = unsafe {
        let raw = &raw mut picture.0;
        let taken = if shape.channels == 4 {
            lib::WebPPictureImportRGBA(raw, pixels.as_ptr(), stride)
        } else {
            lib::WebPPictureImportRGB(raw, pixels.as_ptr(), stride)
        };
        taken != 0 && lib::WebPEncode(&raw const config, raw) != 0
    };
    if !done {
        let code = picture.0.error_code;
        return Err(damaged(format!("no WebP of these pixels: {code:?}")));
    }
    if picture.1.mem.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the writer's memory has `size` bytes.
    Ok(unsafe { std::slice::from_raw_parts(picture.1.mem, picture.1.size) }.to_vec())
}
