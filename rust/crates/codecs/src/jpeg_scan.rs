//! Decodes the scan of a baseline JPEG, one minimum coded unit after another: from Huffman codes to
//! the blocks of 64 values that libjpeg-turbo transforms to pixels.
//!
//! It decodes only what every encoder writes. Anything else (an unknown code, a marker in the wrong place,
//! missing or surplus bits) stops it, and libjpeg-turbo decodes the file from the start. So damaged
//! files give the same pixels as if libjpeg-turbo had decoded them alone.

pub mod bits;
pub mod codes;

use std::rc::Rc;

use self::bits::{Bits, Block, Odd, State};
use self::codes::{Firsts, Others, Spec};

/// The most blocks of a unit.
pub const MOST_BLOCKS: usize = 10;
/// The most bytes of a unit: a value has at most 16 bits of code and 15 of its own.
const MOST_BYTES: usize = MOST_BLOCKS * 64 * 31 / 8;
/// How many bytes are unstuffed in one step.
const READY: usize = 16 << 10;
/// The number of zeros after these bytes, so that eight bytes can be read at the last one.
const MARGIN: usize = 8;
/// The number of cached tables: luminance and colour of two kinds of files.
const KEPT: usize = 4;

/// A cache of tables. Most files have the same ones.
#[derive(Default)]
pub struct Tables {
    firsts: Vec<(Box<Spec>, Rc<Firsts>)>,
    others: Vec<(Box<Spec>, Rc<Others>)>,
}

fn kept<T>(
    made: &mut Vec<(Box<Spec>, Rc<T>)>,
    spec: &Spec,
    make: fn(&Spec) -> Option<T>,
) -> Option<Rc<T>> {
    if let Some(place) = made.iter().position(|(known, _)| **known == *spec) {
        made.get_mut(..=place)?.rotate_right(1);
    } else {
        let table = Rc::new(make(spec)?);
        made.truncate(KEPT - 1);
        made.insert(0, (Box::new(*spec), table));
    }
    made.first().map(|(_, table)| Rc::clone(table))
}

impl Tables {
    /// The table for the first values of blocks.
    pub fn firsts(&mut self, spec: &Spec) -> Option<Rc<Firsts>> {
        kept(&mut self.firsts, spec, Firsts::new)
    }

    /// The table for the other values.
    pub fn others(&mut self, spec: &Spec) -> Option<Rc<Others>> {
        kept(&mut self.others, spec, Others::new)
    }
}

/// The values of a block that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None.
    Nothing,
    /// Only the mean, for an eighth of each side.
    First,
    /// All values.
    All,
}

/// A component of the image.
pub struct Component {
    /// Its table for first values.
    pub firsts: Rc<Firsts>,
    /// Its table for the other values.
    pub others: Rc<Others>,
    /// The values of its blocks that are wanted.
    pub wanted: Wanted,
}

/// The layout of a scan.
pub struct Layout {
    /// The components.
    pub components: Vec<Component>,
    /// The component of each block of a unit.
    pub blocks: Vec<usize>,
    /// Units between restart markers; 0 if there are none.
    pub interval: u32,
    /// Units per row.
    pub columns: u32,
    /// Rows of units.
    pub rows: u32,
    /// The first and the last wanted unit of each row.
    pub wanted: (u32, u32),
}

/// Bytes of a scan without byte stuffing. The memory is reused for other scans.
pub struct Ready {
    bytes: Box<[u8]>,
    length: usize,
}

impl Default for Ready {
    fn default() -> Self {
        Self { bytes: vec![0; MOST_BYTES + READY + MARGIN].into_boxed_slice(), length: 0 }
    }
}

impl Ready {
    /// Drop the bytes before `at`, and add those of `source` from `from` on, up to a marker.
    /// Returns whether there was a marker. If there is no marker at the end, the scan is odd, even
    /// if the last bytes are not needed: the library may read that far ahead, and warn.
    fn fill(&mut self, at: &mut usize, source: &[u8], from: &mut usize) -> Result<bool, Odd> {
        self.bytes.copy_within((*at).min(self.length)..self.length, 0);
        self.length -= (*at).min(self.length);
        *at = 0;
        let ended = loop {
            // Many at a time, because 0xff is rare.
            while self.copy::<32>(source, from) {}
            while self.copy::<8>(source, from) {}
            if self.length >= self.bytes.len() - MARGIN {
                break false;
            }
            let (byte, length) = match source.get(*from..).unwrap_or_default() {
                [0xff, 0, ..] => (0xff, 2),
                [0xff, _, ..] => break true,
                [0xff] | [] => return Err(Odd),
                [byte, ..] => (*byte, 1),
            };
            if let Some(room) = self.bytes.get_mut(self.length) {
                *room = byte;
            }
            self.length += 1;
            *from += length;
        };
        let margin = self.bytes.get_mut(self.length..).and_then(|room| room.get_mut(..MARGIN));
        margin.unwrap_or_default().fill(0);
        Ok(ended)
    }

    /// Add `N` bytes; false if there are fewer, or if one of them is 0xff.
    #[inline(always)]
    fn copy<const N: usize>(&mut self, source: &[u8], from: &mut usize) -> bool {
        let end = self.bytes.len() - MARGIN;
        let next = source.get(*from..).and_then(|source| source.first_chunk::<N>());
        let room = self.bytes.get_mut(self.length..end).and_then(|room| room.first_chunk_mut());
        let (Some(next), Some(room)) = (next, room) else { return false };
        if next.iter().fold(false, |found, byte| found | (*byte == 0xff)) {
            return false;
        }
        *room = *next;
        *from += N;
        self.length += N;
        true
    }
}

/// A scan being decoded.
pub struct Scan<'a> {
    layout: Layout,
    source: &'a [u8],
    /// The first byte of the source that is not in `ready`.
    from: usize,
    ready: &'a mut Ready,
    /// A marker follows the bytes in `ready`.
    ended: bool,
    state: State,
    predictions: [i32; 4],
    column: u32,
    /// The number of units left.
    left: u64,
    /// The units up to the next restart marker, and its number.
    restart: (u32, u8),
}

impl<'a> Scan<'a> {
    /// The scan at the start of `source`.
    pub fn new(layout: Layout, source: &'a [u8], ready: &'a mut Ready) -> Self {
        ready.length = 0;
        let left = u64::from(layout.columns) * u64::from(layout.rows);
        let restart = (layout.interval, 0);
        let (state, predictions) = Default::default();
        let (from, ended, column) = Default::default();
        Self { layout, source, from, ready, ended, state, predictions, column, left, restart }
    }

    /// The number of blocks of a unit.
    pub fn num_blocks(&self) -> usize {
        self.layout.blocks.len()
    }

    /// Decode a unit into its blocks, which must be zeros. Without blocks, skip the unit, which is outside
    /// the wanted columns. After the last unit, returns the offset of the marker.
    pub fn unit(&mut self, blocks: Option<&mut [Block]>) -> Result<Option<usize>, Odd> {
        self.left = self.left.checked_sub(1).ok_or(Odd)?;
        if self.layout.interval > 0 {
            if self.restart.0 == 0 {
                self.restart()?;
            }
            self.restart.0 -= 1;
        }
        if !self.ended && self.ready.length < self.state.at.wrapping_add(MOST_BYTES) {
            self.ended = self.ready.fill(&mut self.state.at, self.source, &mut self.from)?;
        }
        let (first, last) = self.layout.wanted;
        let wanted = first <= self.column && self.column <= last;
        self.column = if self.column + 1 < self.layout.columns { self.column + 1 } else { 0 };
        let mut bits = Bits::new(&self.ready.bytes, self.state);
        let mut blocks = blocks.filter(|_| wanted).unwrap_or_default().iter_mut();
        for component in &self.layout.blocks {
            let block = blocks.next();
            let (Some(component), Some(prediction)) =
                (self.layout.components.get(*component), self.predictions.get_mut(*component))
            else {
                return Err(Odd);
            };
            let difference = bits.first(&component.firsts)?;
            *prediction = prediction.wrapping_add(difference);
            if let Some(block) = block
                && component.wanted != Wanted::Nothing
            {
                let [first, ..] = block;
                *first = *prediction as i16;
                if component.wanted == Wanted::All {
                    bits.others(&component.others, block)?;
                    continue;
                }
            }
            bits.skip_others(&component.others)?;
        }
        self.state = bits.state();
        if self.state.taken() > self.ready.length.wrapping_mul(8) {
            return Err(Odd);
        }
        if self.left == 0 { self.marker().map(Some) } else { Ok(None) }
    }

    /// The offset of the marker after the last bits. Only the rest of their byte may be between
    /// them and the marker.
    fn marker(&mut self) -> Result<usize, Odd> {
        if !self.ended {
            self.ended = self.ready.fill(&mut self.state.at, self.source, &mut self.from)?;
        }
        let left = self.ready.length.wrapping_mul(8).checked_sub(self.state.taken()).ok_or(Odd)?;
        let is_marker = matches!(self.source.get(self.from..), Some([0xff, 1..=0xfe, ..]));
        if self.ended && left < 8 && is_marker { Ok(self.from) } else { Err(Odd) }
    }

    fn restart(&mut self) -> Result<(), Odd> {
        let marker = self.marker()?;
        let code = self.source.get(marker + 1).copied();
        if code != Some(0xd0 | self.restart.1) {
            return Err(Odd);
        }
        self.from = marker + 2;
        self.restart = (self.layout.interval, (self.restart.1 + 1) & 7);
        (self.state, self.predictions) = Default::default();
        self.ready.length = 0;
        self.ended = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
