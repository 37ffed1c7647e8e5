//! PPM and PGM: raw pixels after a text header.

use super::{Shape, change_channels, damaged, room};
use crate::wire::{Fault, FaultKind, image_head};

/// The pixels as a slice of the file, if they are RGB bytes from 0 to 255.
pub fn plain(bytes: &[u8], shape: Shape) -> Result<Option<&[u8]>, Fault> {
    let (head, start, largest) = image_head::ppm(bytes)?;
    let length = shape.bytes()?;
    let same = (head.width, head.height, head.channels, largest)
        == (shape.width, shape.height, shape.channels, 255);
    Ok(bytes.get(start..).and_then(|rest| rest.get(..length)).filter(|_| same))
}

/// Decode into `pixels`, which have the image's size and the wanted channels.
pub fn decode(bytes: &[u8], shape: Shape, pixels: &mut [u8]) -> Result<(), Fault> {
    let (head, start, largest) = image_head::ppm(bytes)?;
    let channels = head.channels;
    let length = Shape { channels, ..shape }.bytes()?;
    let width = if largest > 255 { 2 } else { 1 };
    let rest = bytes.get(start..).unwrap_or_default();
    let Some(source) = rest.get(..length.saturating_mul(width)) else {
        let (announced, left) = (length.saturating_mul(width) as u64, rest.len() as u64);
        let message = format!("a PPM of {announced} bytes of pixels, {left} are left");
        let fault = Fault::new(FaultKind::Truncated, bytes.len() as u64, message);
        return Err(fault.values(announced, left));
    };
    if pixels.len() != shape.bytes()? {
        return Err(damaged("no room for the pixels of a PPM"));
    }
    if largest == 255 {
        return change_channels(source, channels, shape.channels, pixels);
    }
    let most = u32::from(largest);
    let scaled = |value: u32| ((value.min(most) * 255 + most / 2) / most) as u8;
    let source: Vec<u8> = if width == 1 {
        source.iter().map(|&value| scaled(u32::from(value))).collect()
    } else {
        let pairs = source.as_chunks::<2>().0;
        pairs.iter().map(|&pair| scaled(u32::from(u16::from_be_bytes(pair)))).collect()
    };
    change_channels(&source, channels, shape.channels, pixels)
}

/// Decode the stored values, without scaling, to the beginning of `pixels`. They have 8 bits, or 16
/// in native byte order.
pub fn stored(bytes: &[u8], shape: Shape, pixels: &mut Vec<u8>) -> Result<(), Fault> {
    let (head, start, largest) = image_head::ppm(bytes)?;
    let width = if head.deep { 2 } else { 1 };
    let values = room(pixels, shape.bytes()?.saturating_mul(width))?;
    let source = bytes.get(start..).and_then(|rest| rest.get(..values.len()));
    let is_same = head.channels == shape.channels;
    let source = source.filter(|_| is_same).ok_or_else(|| {
        Fault::new(FaultKind::Truncated, bytes.len() as u64, "a PPM whose pixels are cut")
    })?;
    if !head.deep {
        values.copy_from_slice(source);
        return Ok(());
    }
    for (value, pair) in values.as_chunks_mut::<2>().0.iter_mut().zip(source.as_chunks::<2>().0) {
        *value = u16::from_be_bytes(*pair).min(largest).to_ne_bytes();
    }
    Ok(())
}

/// Encode an image of one channel as PGM, or of three channels as PPM.
pub fn encode(pixels: &[u8], shape: Shape) -> Result<Vec<u8>, Fault> {
    let magic = if shape.channels == 1 { 5 } else { 6 };
    let mut bytes = format!("P{magic}\n{} {}\n255\n", shape.width, shape.height).into_bytes();
    bytes.try_reserve_exact(pixels.len()).map_err(|_| {
        Fault::new(FaultKind::Limit, 0, format!("no memory for {} bytes of pixels", pixels.len()))
    })?;
    bytes.extend_from_slice(pixels);
    Ok(bytes)
}
