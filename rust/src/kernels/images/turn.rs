//! Turns and mirrors pixels as the EXIF orientation of their image says.

use super::{damaged, room};
use crate::wire::{Fault, exif};

/// What is done to the stored pixels of an image: first they are transposed, then their rows are
/// put in reverse, then their columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Whether rows become columns.
    transposed: bool,
    /// Whether the order of the rows is reversed.
    rows: bool,
    /// Whether the order of the columns is reversed.
    columns: bool,
}

impl Turn {
    /// What the EXIF of an encoded image says; nothing unless it is `wanted`.
    pub fn of(image: &[u8], wanted: bool) -> Self {
        let way = if wanted { exif::orientation(image) } else { 1 };
        Self {
            transposed: matches!(way, 5..=8),
            rows: matches!(way, 3 | 4 | 7 | 8),
            columns: matches!(way, 2 | 3 | 6 | 7),
        }
    }

    /// Whether the stored pixels are upright already.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Width and height of the upright image.
    pub fn size(self, (width, height): (u32, u32)) -> (u32, u32) {
        if self.transposed { (height, width) } else { (width, height) }
    }

    /// Write the pixels of an image of this width and height to `out`, upright.
    pub fn pixels<T: Copy>(self, stored: &[T], (width, height): (u32, u32), out: &mut [T]) {
        let row_length = (width as usize).max(1);
        let (across, down) = self.size((width, height));
        for (place, row) in out.chunks_exact_mut((across as usize).max(1)).enumerate() {
            let place = if self.rows { (down as usize).saturating_sub(place + 1) } else { place };
            if self.transposed {
                let column = stored.get(place..).unwrap_or_default();
                copy(row, column.iter().step_by(row_length), self.columns);
            } else {
                let from = stored.get(place.saturating_mul(row_length)..).unwrap_or_default();
                copy(row, from.iter(), self.columns);
            }
        }
    }

    /// Write an image of this width and height to `turned`, upright. Returns its bytes.
    pub fn bytes<'a>(
        self,
        stored: &[u8],
        pixel_bytes: usize,
        size: (u32, u32),
        turned: &'a mut Vec<u8>,
    ) -> Result<&'a mut [u8], Fault> {
        let out = room(turned, stored.len())?;
        match pixel_bytes {
            1 => self.pixels(stored.as_chunks::<1>().0, size, out.as_chunks_mut().0),
            2 => self.pixels(stored.as_chunks::<2>().0, size, out.as_chunks_mut().0),
            3 => self.pixels(stored.as_chunks::<3>().0, size, out.as_chunks_mut().0),
            4 => self.pixels(stored.as_chunks::<4>().0, size, out.as_chunks_mut().0),
            6 => self.pixels(stored.as_chunks::<6>().0, size, out.as_chunks_mut().0),
            8 => self.pixels(stored.as_chunks::<8>().0, size, out.as_chunks_mut().0),
            _ => return Err(damaged(format!("pixels of {pixel_bytes} bytes"))),
        }
        Ok(out)
    }
}

fn copy<'a, T: Copy + 'a>(row: &mut [T], from: impl Iterator<Item = &'a T>, reversed: bool) {
    if reversed {
        row.iter_mut().rev().zip(from).for_each(|(target, value)| *target = *value);
    } else {
        row.iter_mut().zip(from).for_each(|(target, value)| *target = *value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_of_any_width_are_turned() {
        // Orientation 6: the picture is shown turned to the right.
        let right = Turn { transposed: true, rows: false, columns: true };
        for pixel in [1, 2, 3, 4, 6, 8] {
            let stored: Vec<u8> = (0..6).flat_map(|value| vec![value; pixel]).collect();
            let mut room = Vec::new();
            let made = right.bytes(&stored, pixel, (3, 2), &mut room).unwrap();
            let firsts: Vec<u8> = made.iter().copied().step_by(pixel).collect();
            assert_eq!(firsts, [3, 0, 4, 1, 5, 2]);
        }
        assert!(right.bytes(&[0; 5], 5, (1, 1), &mut Vec::new()).is_err());
        assert_eq!(right.size((3, 2)), (2, 3));
        assert!(Turn::of(b"no image", true).is_none());
    }
}
