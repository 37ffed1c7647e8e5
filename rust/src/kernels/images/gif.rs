//! Decodes GIF by the gif crate: every frame as displayed, drawn over the previous frame, in RGB. The
//! picture is as large as the largest frame, as in TensorFlow. If the end of a file is missing or damaged,
//! the frames before it are returned.

use std::io::Cursor;

use gif::{ColorOutput, DecodeOptions, MemoryLimit};

use super::{damaged, zeroed};
use crate::wire::{Fault, FaultKind};

/// Frames one after another, RGB.
pub struct Frames {
    /// One value each.
    pub pixels: Vec<u8>,
    /// Frames.
    pub count: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

struct Frame {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
    transparent: Option<u8>,
    palette: Vec<u8>,
    indices: Vec<u8>,
}

/// Decode the frames, or only the first with `first_only`.
pub fn decode(bytes: &[u8], first_only: bool, most_pixels: u64) -> Result<Frames, Fault> {
    let limit = |pixels: u64| {
        let message =
            format!("frames of {pixels} pixels in all, beyond image_pixels={most_pixels}");
        Fault::new(FaultKind::Limit, 0, message).values(most_pixels, pixels)
    };
    let (frames, end) = read(bytes, most_pixels, &limit)?;
    let (Some(width), Some(height)) =
        (frames.iter().map(|f| f.width).max(), frames.iter().map(|f| f.height).max())
    else {
        return Err(end.unwrap_or_else(|| damaged("a GIF that does not contain any image")));
    };
    let count = if first_only { 1 } else { frames.len() };
    let frame_bytes = width * height * 3;
    let total = (width * height) as u64 * count as u64;
    if total > most_pixels {
        return Err(limit(total));
    }
    let mut pixels = zeroed(frame_bytes * count)?;
    let mut before: &[u8] = &[];
    for (frame, canvas) in frames.iter().zip(pixels.chunks_exact_mut(frame_bytes.max(1))) {
        if !before.is_empty() {
            canvas.copy_from_slice(before);
        }
        draw(frame, canvas, width)?;
        before = canvas;
    }
    Ok(Frames { pixels, count, height, width })
}

/// The frames that can be read, and the fault after them.
fn read(
    bytes: &[u8],
    most_pixels: u64,
    limit: &impl Fn(u64) -> Fault,
) -> Result<(Vec<Frame>, Option<Fault>), Fault> {
    let fault = |error: gif::DecodingError| damaged(format!("a damaged GIF: {error}"));
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    options.check_frame_consistency(false);
    options.set_memory_limit(MemoryLimit::Unlimited); // counted below, before memory is allocated
    let mut decoder = options.read_info(Cursor::new(bytes)).map_err(fault)?;
    let global = decoder.global_palette().map(<[u8]>::to_vec);
    let (mut frames, mut total) = (Vec::new(), 0u64);
    loop {
        let frame = match decoder.next_frame_info() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok((frames, None)),
            Err(error) => return Ok((frames, Some(fault(error)))),
        };
        let (width, height) = (usize::from(frame.width), usize::from(frame.height));
        total += (width * height) as u64;
        if total > most_pixels {
            return Err(limit(total));
        }
        let palette = frame.palette.clone().or_else(|| global.clone());
        let mut made = Frame {
            left: frame.left.into(),
            top: frame.top.into(),
            width,
            height,
            transparent: frame.transparent,
            palette: palette.ok_or_else(|| damaged("a GIF frame without colours"))?,
            indices: zeroed(width * height)?,
        };
        if let Err(error) = decoder.read_into_buffer(&mut made.indices) {
            return Ok((frames, Some(fault(error))));
        }
        frames.push(made);
    }
}

fn draw(frame: &Frame, canvas: &mut [u8], width: usize) -> Result<(), Fault> {
    let palette = frame.palette.as_chunks::<3>().0;
    let rows = canvas.chunks_exact_mut((width * 3).max(1)).skip(frame.top);
    for (row, indices) in rows.zip(frame.indices.chunks_exact(frame.width.max(1))) {
        let targets = row.as_chunks_mut::<3>().0.iter_mut().skip(frame.left);
        for (pixel, &index) in targets.zip(indices) {
            if frame.transparent != Some(index) {
                *pixel = *palette.get(usize::from(index)).ok_or_else(|| {
                    damaged(format!("a damaged GIF: colour {index} beyond its palette"))
                })?;
            }
        }
    }
    Ok(())
}
