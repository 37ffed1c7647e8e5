//! Decodes uncompressed BMP of 8 bits (read as grey, whatever its palette says), 24 or 32 bits.
//!
//! | byte | what (little endian) |
//! |---|---|
//! | 0 | `BM` |
//! | 10 | i32: offset of the pixels |
//! | 18, 22 | i32: width, height; rows go upwards, or downwards if the height is negative |
//! | 28 | i16: bits per pixel |
//!
//! Rows are padded to 4 bytes; colour is blue, green, red, alpha.

use super::libjpeg::Picture;
use super::{change_channels, damaged, zeroed};
use crate::wire::cursor::Cursor;
use crate::wire::{Fault, FaultKind};

/// Bytes that include every number of the header.
const HEAD: usize = 32;

/// Decode to this many channels, or with 0 to those of the file.
pub fn decode(bytes: &[u8], channels: usize, most_pixels: u64) -> Result<Picture, Fault> {
    let cut = |needed: usize| {
        let message = format!(
            "Incomplete bmp content, requires at least {needed} bytes, got {} bytes",
            bytes.len()
        );
        Fault::new(FaultKind::Truncated, bytes.len() as u64, message)
    };
    if bytes.len() < HEAD {
        return Err(cut(HEAD));
    }
    let mut cursor = Cursor::new(bytes);
    cursor.take(10)?;
    let start = cursor.u32_le()?.cast_signed();
    cursor.take(4)?;
    let (width, height) = (cursor.u32_le()?.cast_signed(), cursor.u32_le()?.cast_signed());
    cursor.take(2)?;
    let bits = cursor.u16_le()?.cast_signed();
    let found = usize::try_from(bits / 8).unwrap_or(0);
    if !matches!(found, 1 | 3 | 4) {
        let message =
            format!("Number of channels inherent in the image must be 1, 3 or 4, was {}", bits / 8);
        return Err(damaged(message));
    }
    let channels = if channels == 0 { found } else { channels };
    let rows = height.unsigned_abs() as usize;
    let (Ok(width @ 1..), 1.., Ok(start)) = (usize::try_from(width), rows, usize::try_from(start))
    else {
        return Err(damaged(format!("a BMP of {width} x {height} pixels, from byte {start} on")));
    };
    let pixels = width as u64 * rows as u64;
    if pixels > most_pixels {
        let message =
            format!("an image of {width} x {rows} pixels, beyond image_pixels={most_pixels}");
        return Err(Fault::new(FaultKind::Limit, 0, message).values(most_pixels, pixels));
    }
    let row_bytes = width * found;
    let stride = row_bytes.div_ceil(4) * 4;
    let needed = start + stride * (rows - 1) + row_bytes;
    let data = bytes.get(start..needed).ok_or_else(|| cut(needed))?;
    let made_bytes = width * channels;
    let mut pixels = zeroed(made_bytes * rows)?;
    let mut turned = Vec::new();
    for (y, out) in pixels.chunks_exact_mut(made_bytes).enumerate() {
        let from = if height < 0 { y } else { rows - 1 - y };
        let row = data.get(from * stride..from * stride + row_bytes).ok_or_else(|| cut(needed))?;
        turned.clear();
        turned.extend_from_slice(row);
        if found >= 3 {
            turned.chunks_exact_mut(found).for_each(|pixel| pixel.swap(0, 2));
        }
        change_channels(&turned, found as u8, channels as u8, out)?;
    }
    Ok(Picture { pixels, height: rows, width, channels })
}
