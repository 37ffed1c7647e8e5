//! Puts an image that was made into the result: upside down if that is wanted, and with a filled
//! margin.

use super::crop::{Margin, View};
use super::{damaged, room};
use crate::wire::Fault;

/// The value of the pixels of a margin, and how the result is stored.
#[derive(Clone, Copy, Debug)]
pub struct Fill<'a> {
    /// The bytes of a pixel.
    pub pixel: &'a [u8],
    /// Planes of equal size, each with its part of a pixel: one for each channel, or 1.
    pub planes: usize,
}

/// Make an image, without its margin and with its rows in order, into memory of its size. Then
/// write it to `out` as its view says.
pub fn framed(
    view: &View,
    fill: Fill<'_>,
    buffer: &mut Vec<u8>,
    out: &mut [u8],
    make: impl FnOnce(&mut [u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let Margin { left, top, right, bottom } = view.margin;
    if view.margin == Margin::default() {
        make(out)?;
        if view.upside_down {
            reverse_rows(out, view.height as usize, fill.planes);
        }
        return Ok(());
    }
    let (width, height) = (view.width as usize, view.height as usize);
    let all = (left as usize + width + right as usize, top as usize + height + bottom as usize);
    let length =
        |(width, height): (usize, usize)| width.checked_mul(height)?.checked_mul(fill.pixel.len());
    let (Some(inner), true) = (length((width, height)), length(all) == Some(out.len())) else {
        return Err(damaged("no room for the pixels that are made"));
    };
    let inner = room(buffer, inner)?;
    make(inner)?;
    if view.upside_down {
        reverse_rows(inner, height, fill.planes);
    }
    let part = |length: usize| (length / fill.planes.max(1)).max(1);
    let planes = out.chunks_exact_mut(part(out.len())).zip(inner.chunks_exact(part(inner.len())));
    for ((plane, inner), pixel) in planes.zip(fill.pixel.chunks_exact(part(fill.pixel.len()))) {
        let filled = pixel.repeat(all.0);
        let mut rows = inner.chunks_exact((width * pixel.len()).max(1));
        for (place, target) in plane.chunks_exact_mut(filled.len().max(1)).enumerate() {
            target.copy_from_slice(&filled);
            if place < top as usize {
                continue;
            }
            let start = left as usize * pixel.len();
            if let Some(row) = rows.next()
                && let Some(target) = target.get_mut(start..start + row.len())
            {
                target.copy_from_slice(row);
            }
        }
    }
    Ok(())
}

/// Put the rows of each plane in reverse.
fn reverse_rows(pixels: &mut [u8], height: usize, planes: usize) {
    let plane_bytes = (pixels.len() / planes.max(1)).max(1);
    let row_bytes = (plane_bytes / height.max(1)).max(1);
    for plane in pixels.chunks_exact_mut(plane_bytes) {
        let (upper, lower) = plane.split_at_mut(height / 2 * row_bytes);
        let pairs = upper.chunks_exact_mut(row_bytes).zip(lower.rchunks_exact_mut(row_bytes));
        pairs.for_each(|(one, other)| one.swap_with_slice(other));
    }
}

#[cfg(test)]
mod tests {
    use super::super::crop::{Region, Span};
    use super::*;

    fn view(upside_down: bool, margin: Margin) -> View {
        View {
            bounds: Region { left: 0, top: 0, width: 2, height: 3 },
            across: Span { start: 0.0, length: 2.0 },
            down: Span { start: 0.0, length: 3.0 },
            width: 2,
            height: 3,
            flip: false,
            upside_down,
            margin,
        }
    }

    fn counted(out: &mut [u8]) -> Result<(), Fault> {
        out.iter_mut().zip(1..).for_each(|(byte, number)| *byte = number);
        Ok(())
    }

    #[test]
    fn a_margin_is_filled_and_rows_are_reversed_in_each_plane() {
        let fill = Fill { pixel: &[91, 92], planes: 2 };
        let mut out = [0; 12];
        framed(&view(true, Margin::default()), fill, &mut Vec::new(), &mut out, counted).unwrap();
        assert_eq!(out, [5, 6, 3, 4, 1, 2, 11, 12, 9, 10, 7, 8]);
        let margin = Margin { left: 1, top: 0, right: 2, bottom: 0 };
        let mut out = [0; 30];
        framed(&view(false, margin), fill, &mut Vec::new(), &mut out, counted).unwrap();
        assert_eq!(out[..15], [91, 1, 2, 91, 91, 91, 3, 4, 91, 91, 91, 5, 6, 91, 91]);
        assert_eq!(out[15..20], [92, 7, 8, 92, 92]);
        let (margin, fill) = (Margin { top: 1, ..Margin::default() }, Fill { planes: 1, ..fill });
        let mut out = [0; 16];
        framed(&view(true, margin), fill, &mut Vec::new(), &mut out, counted).unwrap();
        assert_eq!(out, [91, 92, 91, 92, 9, 10, 11, 12, 5, 6, 7, 8, 1, 2, 3, 4]);
        let short = framed(&view(true, margin), fill, &mut Vec::new(), &mut out[1..], counted);
        assert!(short.is_err());
    }
}
