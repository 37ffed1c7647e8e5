//! Reads the bits of a scan, and the blocks of 64 values coded in them.

use super::codes::{Firsts, Others, extended};

/// The position of each value in its block; low frequencies come first.
const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// Values of a block, from left to right and from top to bottom.
pub type Block = [i16; 64];

/// A scan that is not decoded here, for any reason: the caller falls back to libjpeg-turbo.
#[derive(Debug)]
pub struct Odd;

/// A bit reader. It reads eight bytes at a time, so seven bytes of padding must follow the last byte. After
/// the end it reads zeros; `taken` shows how many bits were used.
#[derive(Clone, Copy)]
pub struct Bits<'a> {
    bytes: &'a [u8],
    state: State,
}

/// The position of a bit reader.
#[derive(Clone, Copy, Default)]
pub struct State {
    /// The first byte whose bits are not all in the reader.
    pub at: usize,
    /// The next bits, from the top. After `count` bits there may be some of the next byte.
    held: u64,
    count: u32,
}

impl State {
    /// The number of bits used so far.
    #[inline(always)]
    pub fn taken(&self) -> usize {
        self.at.wrapping_mul(8).wrapping_sub(self.count as usize)
    }
}

impl<'a> Bits<'a> {
    /// Read these bytes, from the position of another reader.
    #[inline(always)]
    pub fn new(bytes: &'a [u8], state: State) -> Self {
        Self { bytes, state }
    }

    /// Its position.
    #[inline(always)]
    pub fn state(&self) -> State {
        self.state
    }

    /// Refill to at least 56 bits, which is enough for two lookups.
    #[inline(always)]
    fn refill(&mut self) {
        let State { at, held, count } = self.state;
        let next = self.bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        let next = next.map_or(0, |next| u64::from_be_bytes(*next));
        self.state = State {
            at: at.wrapping_add((63u32.wrapping_sub(count) >> 3) as usize),
            held: held | (next >> (count & 63)),
            count: count | 56,
        };
    }

    #[inline(always)]
    fn held(&self) -> u64 {
        self.state.held
    }

    #[inline(always)]
    fn take(&mut self, bits: u32) {
        self.state.held <<= bits & 63;
        self.state.count = self.state.count.wrapping_sub(bits);
    }

    /// The first value of a block, a difference.
    #[inline(always)]
    pub fn first(&mut self, table: &Firsts) -> Result<i32, Odd> {
        self.refill();
        let mut one = table.lookup(self.held());
        if one.code() == 0 {
            one = table.long(self.held());
            if one.code() == 0 {
                return Err(Odd);
            }
        }
        let value = extended(self.held() << one.code(), one.size());
        self.take(one.total());
        Ok(value)
    }

    /// The other values of a block, which must be zero before the call.
    #[inline(always)]
    pub fn others(&mut self, table: &Others, block: &mut Block) -> Result<(), Odd> {
        let mut last = 0u32;
        loop {
            self.refill();
            for _ in 0..2 {
                let entry = table.lookup(self.held());
                let first = last.wrapping_add(entry.first());
                let second = first.wrapping_add(entry.second());
                let value = extended(self.held() << entry.code(), entry.size()) as i16;
                if (62i32.wrapping_sub_unsigned(second) | entry.end()) < 0 {
                    if entry.end() < 0 && entry.total() != 0 && first < 63 {
                        // If the entry is only the end, the value is 0, and its place belongs to another
                        // value.
                        put(block, first, |there| *there |= value);
                        self.take(entry.total());
                        return Ok(());
                    }
                    let Some((place, value)) = self.one(table, last)? else { return Ok(()) };
                    put(block, place, |there| *there = value);
                    if place == 63 {
                        return Ok(());
                    }
                    last = place;
                    break;
                }
                // The first value is added before the second is stored: without a second value,
                // both have the same place.
                put(block, second, |there| *there = entry.value());
                put(block, first, |there| *there = value);
                self.take(entry.total());
                last = second;
            }
        }
    }

    /// Skip the other values of a block.
    #[inline(always)]
    pub fn skip_others(&mut self, table: &Others) -> Result<(), Odd> {
        let mut last = 0u32;
        loop {
            self.refill();
            for _ in 0..2 {
                let entry = table.skip(self.held());
                let next = last.wrapping_add(entry.advance());
                if (62i32.wrapping_sub_unsigned(next) | entry.end()) < 0 {
                    let ends = entry.end() < 0;
                    if entry.total() != 0 && ((ends && next < 63) || (!ends && next == 63)) {
                        self.take(entry.total());
                        return Ok(());
                    }
                    match self.one(table, last)? {
                        None | Some((63, _)) => return Ok(()),
                        Some((place, _)) => last = place,
                    }
                    break;
                }
                self.take(entry.total());
                last = next;
            }
        }
    }

    /// Decode one symbol that is not in the table, or is the last of its block: the place of its value, and
    /// the value. None at the end of the block.
    #[inline(always)]
    fn one(&mut self, table: &Others, last: u32) -> Result<Option<(u32, i16)>, Odd> {
        self.refill();
        let one = table.one(self.held());
        if one.code() == 0 {
            return Err(Odd);
        }
        let value = extended(self.held() << one.code(), one.size()) as i16;
        let place = last.wrapping_add(one.advance());
        self.take(one.total());
        match one.advance() {
            0 => Ok(None),
            _ if place > 63 => Err(Odd),
            _ => Ok(Some((place, value))),
        }
    }
}

/// The masks let the compiler drop bounds checks.
#[inline(always)]
fn put(block: &mut Block, place: u32, change: impl FnOnce(&mut i16)) {
    let place = ZIGZAG.get((place & 63) as usize).copied().unwrap_or(0);
    if let Some(value) = block.get_mut(usize::from(place & 63)) {
        change(value);
    }
}
