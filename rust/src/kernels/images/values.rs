//! Writes RGB pixels as the values that a model gets. The values are looked up in tables, rows may
//! be mirrored, and channels are interleaved or separate planes.

use super::Shape;

/// The value of each byte of each channel.
#[derive(Clone, Debug)]
pub struct Table<const N: usize>(Box<[[[u8; N]; 256]; 3]>);

impl<const N: usize> Table<N> {
    fn new(bytes: &[u8]) -> Option<Self> {
        let (channels, []) = bytes.as_chunks::<N>().0.as_chunks::<256>() else { return None };
        channels.try_into().ok().map(|channels| Self(Box::new(channels)))
    }

    /// The values of a pixel.
    #[inline]
    pub fn pixel(&self, [r, g, b]: [u8; 3]) -> [[u8; N]; 3] {
        let [red, green, blue] = &*self.0;
        let of = |values: &[[u8; N]; 256], byte: u8| {
            values.get(usize::from(byte)).copied().unwrap_or([0; N])
        };
        [of(red, r), of(green, g), of(blue, b)]
    }
}

/// The output values of bytes.
#[derive(Clone, Debug)]
pub enum Values {
    /// The byte itself.
    Bytes,
    /// A value of two bytes.
    Two(Table<2>),
    /// A value of four bytes.
    Four(Table<4>),
}

/// The output values of images of 16 bits, of two or four bytes each.
#[derive(Clone, Debug)]
pub enum DeepValues {
    /// A value of two bytes.
    Two(DeepTable<2>),
    /// A value of four bytes.
    Four(DeepTable<4>),
}

impl DeepValues {
    /// From a table of the 65,536 values each of red, green and blue; None if the table has a
    /// different length.
    pub fn table(bytes: &[u8]) -> Option<Self> {
        match bytes.len() / (3 * DEEP) {
            2 => DeepTable::new(bytes).map(Self::Two),
            4 => DeepTable::new(bytes).map(Self::Four),
            _ => None,
        }
    }

    /// Bytes of a value.
    pub fn width(&self) -> usize {
        match self {
            Self::Two(_) => 2,
            Self::Four(_) => 4,
        }
    }
}

/// The number of different values of 16 bits.
const DEEP: usize = 1 << 16;

/// The output value of each 16-bit value of each channel. The table is on the heap because it is
/// large.
#[derive(Clone, Debug)]
pub struct DeepTable<const N: usize>([Box<[[u8; N]]>; 3]);

impl<const N: usize> DeepTable<N> {
    fn new(bytes: &[u8]) -> Option<Self> {
        let (channels, []) = bytes.as_chunks::<N>().0.as_chunks::<DEEP>() else { return None };
        let [red, green, blue] = channels else { return None };
        Some(Self([red, green, blue].map(|channel| channel.as_slice().into())))
    }

    /// The values of a pixel.
    #[inline]
    pub fn pixel(&self, pixel: [u16; 3]) -> [[u8; N]; 3] {
        let [red, green, blue] = &self.0;
        let of = |values: &[[u8; N]], value: u16| {
            values.get(usize::from(value)).copied().unwrap_or([0; N])
        };
        let [r, g, b] = pixel;
        [of(red, r), of(green, g), of(blue, b)]
    }
}

impl Values {
    /// From a table of the 256 values each of red, green and blue, which have this width; None if
    /// the table has a different length.
    pub fn table(bytes: &[u8]) -> Option<Self> {
        match bytes.len() / (3 * 256) {
            2 => Table::new(bytes).map(Self::Two),
            4 => Table::new(bytes).map(Self::Four),
            _ => None,
        }
    }

    /// Bytes of a value.
    pub fn width(&self) -> usize {
        match self {
            Self::Bytes => 1,
            Self::Two(_) => 2,
            Self::Four(_) => 4,
        }
    }
}

/// Copy a row of RGB bytes from right to left. Four pixels are three words, and each new word is
/// composed of parts of three old words. This is several times as fast as byte by byte.
pub fn mirror(row: &[u8], target: &mut [u8]) {
    let (rest, fours) = row.as_rchunks::<12>();
    let (targets, last) = target.as_chunks_mut::<12>();
    for (target, four) in targets.iter_mut().zip(fours.iter().rev()) {
        let &[b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11] = four;
        let left = u32::from_le_bytes([b0, b1, b2, b3]);
        let middle = u32::from_le_bytes([b4, b5, b6, b7]);
        let right = u32::from_le_bytes([b8, b9, b10, b11]);
        let words = [
            (right >> 8) | ((middle << 8) & 0xff00_0000),
            (middle >> 24) | ((right & 0xff) << 8) | ((left >> 24) << 16) | (middle << 24),
            ((middle >> 8) & 0xff) | (left << 8),
        ];
        for (bytes, word) in target.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
    }
    let pixels = rest.as_chunks::<3>().0.iter().rev();
    for (target, pixel) in last.as_chunks_mut::<3>().0.iter_mut().zip(pixels) {
        *target = *pixel;
    }
}

/// Write rows of pixels as values; rows may be mirrored, and channels are interleaved or separate
/// planes.
pub fn write<'a, P: Copy + 'a, const N: usize>(
    rows: impl Iterator<Item = &'a [P]>,
    new: Shape,
    (flip, planes): (bool, bool),
    values: impl Fn(P) -> [[u8; N]; 3] + Copy,
    out: &mut [u8],
) {
    let out = out.as_chunks_mut::<N>().0;
    let width = (new.width as usize).max(1);
    if planes {
        let (red, rest) = out.split_at_mut(out.len() / 3);
        let (green, blue) = rest.split_at_mut(rest.len() / 2);
        let reds = red.chunks_exact_mut(width);
        let others = green.chunks_exact_mut(width).zip(blue.chunks_exact_mut(width));
        for (row, (red, (green, blue))) in rows.zip(reds.zip(others)) {
            let targets = red.iter_mut().zip(green.iter_mut().zip(blue.iter_mut()));
            let put = |((red, (green, blue)), pixel): ((&mut _, (&mut _, &mut _)), &P)| {
                [*red, *green, *blue] = values(*pixel);
            };
            if flip {
                targets.zip(row.iter().rev()).for_each(put);
            } else {
                targets.zip(row).for_each(put);
            }
        }
    } else {
        for (row, target) in rows.zip(out.chunks_exact_mut(width.saturating_mul(3))) {
            let targets = target.as_chunks_mut::<3>().0.iter_mut();
            let put = |(target, pixel): (&mut [[u8; N]; 3], &P)| *target = values(*pixel);
            if flip {
                targets.zip(row.iter().rev()).for_each(put);
            } else {
                targets.zip(row).for_each(put);
            }
        }
    }
}

/// Write rows of pixels as one value each, the first of `values`; rows may be mirrored.
pub fn write_grey<'a, P: Copy + 'a, const N: usize>(
    rows: impl Iterator<Item = &'a [P]>,
    new: Shape,
    flip: bool,
    values: impl Fn(P) -> [[u8; N]; 3] + Copy,
    out: &mut [u8],
) {
    let targets = out.as_chunks_mut::<N>().0.chunks_exact_mut((new.width as usize).max(1));
    for (row, target) in rows.zip(targets) {
        let put = |(target, pixel): (&mut [u8; N], &P)| [*target, ..] = values(*pixel);
        if flip {
            target.iter_mut().zip(row.iter().rev()).for_each(put);
        } else {
            target.iter_mut().zip(row).for_each(put);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirrored_row_has_its_pixels_in_reverse() {
        for width in 0..14u8 {
            let row: Vec<u8> = (0..width * 3).collect();
            let mut found = vec![0; row.len()];
            mirror(&row, &mut found);
            let expected: Vec<u8> = row.chunks(3).rev().flatten().copied().collect();
            assert_eq!(found, expected);
        }
    }
}
