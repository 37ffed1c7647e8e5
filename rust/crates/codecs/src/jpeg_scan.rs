//! The scan of a baseline JPEG: Huffman codes to the blocks of 64 values that are transformed to
//! pixels, one minimum coded unit after another.
//!
//! Only what every encoder writes is decoded. Whatever else there is (a code that no table has, a
//! marker in the wrong place, bits that are missing or too many) ends it, and libjpeg-turbo looks
//! at the file from its start; so what it makes of damage is what is given.

pub mod bits;
pub mod codes;

use std::rc::Rc;

use self::bits::{Bits, Block, Odd, State};
use self::codes::{Firsts, Others, Spec};

/// Blocks that a unit has at most.
pub const MOST_BLOCKS: usize = 10;
/// Bytes of a unit at most: no value has more than 16 bits of code and 15 of its own.
const MOST_BYTES: usize = MOST_BLOCKS * 64 * 31 / 8;
/// Bytes that are made ready at once.
const READY: usize = 16 << 10;
/// Zeros behind them, so that eight bytes can be read at the last of them.
const MARGIN: usize = 8;
/// Tables that are kept: those of luminance and colour, of two kinds of files.
const KEPT: usize = 4;

/// Tables that were made. Most files have the same ones.
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
    /// For the first values of blocks.
    pub fn firsts(&mut self, spec: &Spec) -> Option<Rc<Firsts>> {
        kept(&mut self.firsts, spec, Firsts::new)
    }

    /// For the others.
    pub fn others(&mut self, spec: &Spec) -> Option<Rc<Others>> {
        kept(&mut self.others, spec, Others::new)
    }
}

/// What of a block is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing.
    Nothing,
    /// Its mean: an eighth of each side.
    First,
    /// All values.
    All,
}

/// A component of the image.
pub struct Component {
    /// Its tables.
    pub firsts: Rc<Firsts>,
    /// Its tables.
    pub others: Rc<Others>,
    /// What of its blocks is wanted.
    pub wanted: Wanted,
}

/// How a scan is laid out.
pub struct Layout {
    /// The components.
    pub components: Vec<Component>,
    /// The component of each block of a unit.
    pub blocks: Vec<usize>,
    /// Units between restart markers; 0 where there are none.
    pub interval: u32,
    /// Units in a row.
    pub columns: u32,
    /// Rows of units.
    pub rows: u32,
    /// The first and the last unit of each row that are wanted.
    pub wanted: (u32, u32),
}

/// Bytes of a scan without what keeps them apart from markers. Used again for other scans.
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
    /// Drop what is before `at`, and add what `source` has from `from` on, up to a marker. Tells
    /// whether one was met. Bytes that end without one are odd, whether they are needed or not: the
    /// library may look as far ahead, and warn.
    fn fill(&mut self, at: &mut usize, source: &[u8], from: &mut usize) -> Result<bool, Odd> {
        self.bytes.copy_within((*at).min(self.length)..self.length, 0);
        self.length -= (*at).min(self.length);
        *at = 0;
        let ended = loop {
            // Many at a time, as most have no 0xff among them.
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

    /// Add so many bytes; false where they are not there, or not as they are to be read.
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

/// A scan that is being decoded.
pub struct Scan<'a> {
    layout: Layout,
    source: &'a [u8],
    /// The first byte of the source that is not ready.
    from: usize,
    ready: &'a mut Ready,
    /// A marker is behind what is ready.
    ended: bool,
    state: State,
    predictions: [i32; 4],
    column: u32,
    /// Units up to the end.
    left: u64,
    /// Units up to a restart marker, and the number of that.
    restart: (u32, u8),
}

impl<'a> Scan<'a> {
    /// The scan whose bytes begin where the source does.
    pub fn new(layout: Layout, source: &'a [u8], ready: &'a mut Ready) -> Self {
        ready.length = 0;
        let left = u64::from(layout.columns) * u64::from(layout.rows);
        let restart = (layout.interval, 0);
        let (state, predictions) = Default::default();
        let (from, ended, column) = Default::default();
        Self { layout, source, from, ready, ended, state, predictions, column, left, restart }
    }

    /// Blocks of a unit.
    pub fn num_blocks(&self) -> usize {
        self.layout.blocks.len()
    }

    /// Decode a unit into its blocks, which are zeros so far; without them it is passed over, as it
    /// is outside the wanted columns. After the last one, tells where its marker is.
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

    /// Where the marker is that follows the last bits, with less than a byte before it.
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
