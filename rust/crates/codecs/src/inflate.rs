//! Inflates raw deflate data, in pieces of any size.
//!
//! RFC 1951, as a state machine: a step reads one item of the stream and returns the next step. At
//! the end of the input the machine pauses, and later continues there.

mod codes;
#[cfg(test)]
mod oracle;
mod symbols;
#[cfg(test)]
mod tests;

use self::codes::{DISTANCES, DistanceTable, LENGTHS, LITLENS, LengthTable, LitlenTable, low};

/// The maximum distance of a match, and so the maximum size of a seek point's window.
pub const WINDOW_BYTES: usize = 32 << 10;

/// Why inflating paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The input is used up.
    Hungry,
    /// The output is full.
    Full,
    /// Between two blocks, as the caller requested.
    Border,
    /// The last block has ended.
    End,
    /// The data breaks the rules of deflate.
    Broken(&'static str),
}

/// The result of one call.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Input bytes used. The last bits of the last byte may belong to what follows.
    pub consumed: usize,
    /// Plain bytes written to the output.
    pub produced: usize,
    /// Why it paused.
    pub pause: Pause,
}

/// The part of the stream that comes next.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    BlockHead,
    StoredHead,
    Stored {
        left: usize,
    },
    CodeCounts,
    LengthCode {
        num_read: usize,
    },
    Lengths {
        num_read: usize,
    },
    Symbols,
    /// A match that the fast copy does not handle, or the rest of such a match.
    Match {
        length: usize,
        distance: usize,
    },
    BlockEnd,
    Ended,
}

/// A raw deflate stream, inflated in pieces.
pub struct RawInflate {
    pub(crate) held: Held,
    pub(crate) step: Step,
    is_last: bool,
    counts: Counts,
    lengths: [u8; LITLENS.len() + DISTANCES.len()],
    length_code: LengthTable,
    pub(crate) litlens: LitlenTable,
    pub(crate) distances: DistanceTable,
    /// The plain bytes before those of this call.
    pub(crate) window: Vec<u8>,
}

/// Bits read from the input but not used yet, the next bit lowest.
#[derive(Clone, Copy, Default)]
pub(crate) struct Held {
    pub bits: u64,
    pub num_bits: u32,
}

/// The number of codes of a block.
#[derive(Clone, Copy, Default)]
struct Counts {
    litlens: usize,
    distances: usize,
    lengths: usize,
}

/// The input and the output of one call.
pub(crate) struct Io<'a> {
    pub input: &'a [u8],
    pub taken: usize,
    pub out: &'a mut [u8],
    pub filled: usize,
}

impl Io<'_> {
    pub fn room(&self) -> usize {
        self.out.len().saturating_sub(self.filled)
    }
}

impl Default for RawInflate {
    /// At the start of a deflate stream.
    fn default() -> Self {
        Self {
            held: Held::default(),
            step: Step::BlockHead,
            is_last: false,
            counts: Counts::default(),
            lengths: [0; LITLENS.len() + DISTANCES.len()],
            length_code: LengthTable::new(),
            litlens: LitlenTable::new(),
            distances: DistanceTable::new(),
            window: Vec::new(),
        }
    }
}

impl RawInflate {
    /// Return to the start of a deflate stream, keeping the memory.
    pub fn reset(&mut self) {
        self.held = Held::default();
        self.step = Step::BlockHead;
        self.window.clear();
    }

    /// Start before a block in the middle of a stream, after the plain bytes in `window`.
    pub fn start_inside(&mut self, window: &[u8]) {
        self.reset();
        self.keep(window);
    }

    /// Begin with the low `num_bits` (fewer than 8) of `bits`, from a byte that was already used.
    pub fn prime(&mut self, num_bits: u32, bits: u8) {
        let num_bits = num_bits.min(7);
        self.held = Held { bits: low(u64::from(bits), num_bits), num_bits };
    }

    /// The last plain bytes, as many as the next block may refer to.
    pub fn window(&self) -> &[u8] {
        &self.window
    }

    /// Bits of the used input that belong to what follows; fewer than 8, unless the input ran out.
    pub fn unused_bits(&self) -> u32 {
        self.held.num_bits
    }

    /// Inflate from the front of `input` into `out`, and if requested only up to the next block boundary.
    pub fn inflate(&mut self, input: &[u8], out: &mut [u8], to_border: bool) -> Progress {
        let mut io = Io { input, taken: 0, out, filled: 0 };
        let pause = loop {
            match self.take_step(&mut io) {
                Ok(Step::BlockHead) if to_border => {
                    self.step = Step::BlockHead;
                    break Pause::Border;
                }
                Ok(step) => self.step = step,
                Err(pause) => break pause,
            }
        };
        if pause != Pause::Hungry {
            self.give_back(&mut io);
        }
        let Io { taken, out, filled, .. } = io;
        self.keep(out.get(..filled).unwrap_or_default());
        Progress { consumed: taken, produced: filled, pause }
    }

    /// Return unused whole bytes to the input.
    pub(crate) fn give_back(&mut self, io: &mut Io<'_>) {
        let num_bytes = (self.held.num_bits / 8).min(u32::try_from(io.taken).unwrap_or(u32::MAX));
        io.taken = io.taken.wrapping_sub(num_bytes as usize);
        let num_bits = self.held.num_bits.wrapping_sub(num_bytes.wrapping_mul(8));
        self.held = Held { bits: low(self.held.bits, num_bits), num_bits };
    }

    fn keep(&mut self, made: &[u8]) {
        let made = made.last_chunk::<WINDOW_BYTES>().map_or(made, |last| last.as_slice());
        let most = WINDOW_BYTES.saturating_sub(made.len());
        self.window.drain(..self.window.len().saturating_sub(most));
        self.window.extend_from_slice(made);
    }

    fn take_step(&mut self, io: &mut Io<'_>) -> Result<Step, Pause> {
        match self.step {
            Step::BlockHead => self.block_head(io),
            Step::StoredHead => self.stored_head(io),
            Step::Stored { left } => self.stored(io, left),
            Step::CodeCounts => self.code_counts(io),
            Step::LengthCode { num_read } => self.length_code(io, num_read),
            Step::Lengths { num_read } => self.lengths(io, num_read),
            Step::Symbols => self.symbols(io),
            Step::Match { length, distance } => self.finish_match(io, length, distance),
            Step::BlockEnd if self.is_last => Ok(Step::Ended),
            Step::BlockEnd => Ok(Step::BlockHead),
            Step::Ended => Err(Pause::End),
        }
    }

    /// The next bits: at least `num_bits` (up to 56), if the input has them.
    pub(crate) fn need(&mut self, io: &mut Io<'_>, num_bits: u32) -> Result<u64, Pause> {
        let Held { bits, num_bits: held } = self.held;
        if held >= num_bits {
            return Ok(bits);
        }
        let rest = io.input.get(io.taken..).unwrap_or_default();
        let word = match rest.first_chunk::<8>() {
            Some(word) => u64::from_le_bytes(*word),
            None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        };
        let num_bytes = (63u32.saturating_sub(held) / 8).min(rest.len().min(8) as u32);
        io.taken = io.taken.wrapping_add(num_bytes as usize);
        let now = held.saturating_add(num_bytes.saturating_mul(8));
        self.held = Held { bits: low(bits | word << (held & 63), now), num_bits: now };
        if now < num_bits { Err(Pause::Hungry) } else { Ok(self.held.bits) }
    }

    pub(crate) fn drop_bits(&mut self, num_bits: u32) {
        self.held.bits = self.held.bits.wrapping_shr(num_bits);
        self.held.num_bits = self.held.num_bits.saturating_sub(num_bits);
    }

    fn block_head(&mut self, io: &mut Io<'_>) -> Result<Step, Pause> {
        let bits = self.need(io, 3)?;
        self.drop_bits(3);
        self.is_last = bits & 1 == 1;
        match bits >> 1 & 3 {
            0 => {
                self.drop_bits(self.held.num_bits % 8);
                Ok(Step::StoredHead)
            }
            1 => {
                self.set_fixed_codes();
                Ok(Step::Symbols)
            }
            2 => Ok(Step::CodeCounts),
            _ => Err(Pause::Broken("a block of an unknown kind")),
        }
    }

    fn stored_head(&mut self, io: &mut Io<'_>) -> Result<Step, Pause> {
        let bits = self.need(io, 32)?;
        let (length, inverse) = (bits as u16, (bits >> 16) as u16);
        if length != !inverse {
            return Err(Pause::Broken("a stored block whose length and its inverse differ"));
        }
        self.drop_bits(32);
        Ok(Step::Stored { left: usize::from(length) })
    }

    fn stored(&mut self, io: &mut Io<'_>, left: usize) -> Result<Step, Pause> {
        self.give_back(io);
        let rest = io.input.get(io.taken..).unwrap_or_default();
        let num_bytes = left.min(rest.len()).min(io.room());
        let room = io.out.get_mut(io.filled..).unwrap_or_default();
        for (to, from) in room.iter_mut().zip(rest).take(num_bytes) {
            *to = *from;
        }
        io.taken = io.taken.wrapping_add(num_bytes);
        io.filled = io.filled.wrapping_add(num_bytes);
        let left = left.saturating_sub(num_bytes);
        if left == 0 {
            return Ok(Step::BlockEnd);
        }
        self.step = Step::Stored { left };
        Err(if io.room() == 0 { Pause::Full } else { Pause::Hungry })
    }

    fn set_fixed_codes(&mut self) {
        let (litlens, distances) = self.lengths.split_at_mut(LITLENS.len());
        for (symbol, length) in litlens.iter_mut().enumerate() {
            *length = match symbol {
                144..256 => 9,
                256..280 => 7,
                _ => 8,
            };
        }
        distances.fill(5);
        self.litlens.fill(litlens, &LITLENS);
        self.distances.fill(distances, &DISTANCES);
    }

    fn code_counts(&mut self, io: &mut Io<'_>) -> Result<Step, Pause> {
        let bits = self.need(io, 14)?;
        let [litlens, distances, lengths] = [(bits, 5, 257), (bits >> 5, 5, 1), (bits >> 10, 4, 4)]
            .map(|(bits, num_bits, least)| (low(bits, num_bits) as usize).wrapping_add(least));
        if litlens > 286 || distances > 30 {
            return Err(Pause::Broken("a block with more codes than there are symbols"));
        }
        self.drop_bits(14);
        self.counts = Counts { litlens, distances, lengths };
        self.lengths.fill(0);
        Ok(Step::LengthCode { num_read: 0 })
    }

    /// Reads the code in which the code lengths are written.
    fn length_code(&mut self, io: &mut Io<'_>, num_read: usize) -> Result<Step, Pause> {
        const ORDER: [usize; 19] =
            [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
        for (at, &symbol) in ORDER.iter().enumerate().take(self.counts.lengths).skip(num_read) {
            self.step = Step::LengthCode { num_read: at };
            let bits = self.need(io, 3)?;
            self.drop_bits(3);
            if let Some(length) = self.lengths.get_mut(symbol) {
                *length = low(bits, 3) as u8;
            }
        }
        let lengths = self.lengths.get(..LENGTHS.len()).unwrap_or_default();
        if !self.length_code.fill(lengths, &LENGTHS) {
            return Err(Pause::Broken("a block whose code for code lengths is invalid"));
        }
        Ok(Step::Lengths { num_read: 0 })
    }

    fn lengths(&mut self, io: &mut Io<'_>, num_read: usize) -> Result<Step, Pause> {
        let total = self.counts.litlens.wrapping_add(self.counts.distances);
        let mut at = num_read;
        while at < total {
            self.step = Step::Lengths { num_read: at };
            let (length, repeats) = self.next_length(io, at)?;
            let slots = self.lengths.get_mut(at..total).and_then(|rest| rest.get_mut(..repeats));
            let Some(slots) = slots else {
                return Err(Pause::Broken("a block with more code lengths than codes"));
            };
            slots.fill(length);
            at = at.wrapping_add(repeats);
        }
        self.set_codes()
    }

    /// The length of code number `at`, and the number of codes that it applies to.
    fn next_length(&mut self, io: &mut Io<'_>, at: usize) -> Result<(u8, usize), Pause> {
        // The most bits of a length; at the end of the input, fewer are enough.
        let _ = self.need(io, 14);
        let entry = self.length_code.lookup(self.held.bits);
        let (extra_bits, least) = match entry.byte() {
            0..16 => (0, 1),
            16 => (2, 3),
            17 => (3, 3),
            _ => (7, 11),
        };
        let num_bits = entry.num_bits().wrapping_add(extra_bits);
        if num_bits > self.held.num_bits {
            return Err(Pause::Hungry);
        }
        let length = match entry.byte() {
            length @ 0..16 => length,
            16 => *at
                .checked_sub(1)
                .and_then(|before| self.lengths.get(before))
                .ok_or(Pause::Broken("a block that repeats a length before it has one"))?,
            _ => 0,
        };
        let extra = low(self.held.bits >> entry.num_bits(), extra_bits) as usize;
        self.drop_bits(num_bits);
        Ok((length, extra.wrapping_add(least)))
    }

    fn set_codes(&mut self) -> Result<Step, Pause> {
        let litlens = self.lengths.get(..self.counts.litlens).unwrap_or_default();
        let rest = self.lengths.get(self.counts.litlens..).unwrap_or_default();
        let distances = rest.get(..self.counts.distances).unwrap_or_default();
        if litlens.get(256) == Some(&0) {
            return Err(Pause::Broken("a block without a code for its end"));
        }
        if !self.litlens.fill(litlens, &LITLENS) {
            return Err(Pause::Broken("a block whose code for literals and lengths is invalid"));
        }
        if !self.distances.fill(distances, &DISTANCES) {
            return Err(Pause::Broken("a block whose code for distances is invalid"));
        }
        Ok(Step::Symbols)
    }
}
