//! Decodes the symbols of a block. The fast path works while there is enough input and output space for the
//! longest match. The slow path uses bits only once a whole symbol is available.

#[cfg(target_arch = "x86_64")]
use super::codes::Bmi;
use super::codes::{Anyhow, Entry, Shift};
use super::{Held, Io, Pause, RawInflate, Step};

/// The most bits of a length and a distance with their extra bits.
const SYMBOL_BITS: u32 = 48;
/// The number of literals between two refills. With codes of up to 11 bits, found in one lookup, they leave
/// 12 of 56 bits for the next lookup.
const LITERALS: usize = 4;
/// Most matches are at most this long and at least this distant; for them, this many bytes are copied.
const COPY_BYTES: usize = 32;
const LONGEST_MATCH: usize = 258;
const FAST_ROOM: usize = LITERALS + LONGEST_MATCH + COPY_BYTES;

const NO_SYMBOL: Pause = Pause::Broken("a code for which there is no symbol");
const NO_DISTANCE: Pause = Pause::Broken("a code for which there is no distance");
const TOO_FAR: Pause = Pause::Broken("a match that begins before the data");

/// The bit buffer of the fast path, and the input that refills it.
struct Bits<'a> {
    input: &'a [u8],
    taken: usize,
    bits: u64,
    /// Only the low six bits count.
    num_bits: u32,
}

impl Bits<'_> {
    /// Refill to at least 56 bits; the next entry does not change. False if the input is too short.
    #[inline(always)]
    fn refill(&mut self) -> bool {
        let rest = self.input.get(self.taken..);
        let Some(word) = rest.and_then(|rest| rest.first_chunk::<8>()) else {
            return false;
        };
        self.bits |= u64::from_le_bytes(*word) << (self.num_bits & 63);
        self.taken = self.taken.wrapping_add((!self.num_bits >> 3 & 7) as usize);
        self.num_bits |= 56;
        true
    }

    #[inline(always)]
    fn take(&mut self, entry: Entry) {
        self.bits >>= entry.0 & 63;
        self.num_bits = self.num_bits.wrapping_sub(entry.0);
    }
}

impl RawInflate {
    pub(super) fn symbols(&mut self, io: &mut Io<'_>) -> Result<Step, Pause> {
        loop {
            if let Some(step) = self.fast_symbols(io)? {
                return Ok(step);
            }
            if let Some(step) = self.symbol(io)? {
                return Ok(step);
            }
        }
    }

    /// Decode one symbol, if all its bits are available. Returns the next step, if it changes.
    fn symbol(&mut self, io: &mut Io<'_>) -> Result<Option<Step>, Pause> {
        let is_short = self.need(io, SYMBOL_BITS).is_err();
        let bits = self.held.bits;
        let entry = self.litlens.find(bits);
        let mut num_bits = entry.num_bits();
        if is_short && num_bits > self.held.num_bits {
            return Err(Pause::Hungry);
        }
        if entry.is_odd() {
            self.drop_bits(num_bits);
            return if entry.is_end() { Ok(Some(Step::BlockEnd)) } else { Err(NO_SYMBOL) };
        }
        if entry.is_literal() {
            *io.out.get_mut(io.filled).ok_or(Pause::Full)? = entry.byte();
            io.filled = io.filled.wrapping_add(1);
            self.drop_bits(num_bits);
            return Ok(None);
        }
        let length = entry.value(bits);
        let bits = bits.wrapping_shr(num_bits);
        let entry = self.distances.find(bits);
        num_bits = num_bits.wrapping_add(entry.num_bits());
        if is_short && num_bits > self.held.num_bits {
            return Err(Pause::Hungry);
        }
        if entry.is_odd() {
            return Err(NO_DISTANCE);
        }
        let distance = entry.value(bits);
        self.drop_bits(num_bits);
        if distance > io.filled.saturating_add(self.window.len()) {
            return Err(TOO_FAR);
        }
        Ok(Some(Step::Match { length, distance }))
    }

    /// A match that may begin before this call's output and end after it.
    pub(super) fn finish_match(
        &mut self,
        io: &mut Io<'_>,
        length: usize,
        distance: usize,
    ) -> Result<Step, Pause> {
        let now = length.min(io.room());
        let from_window = now.min(distance.saturating_sub(io.filled));
        let start = self.window.len().wrapping_add(io.filled).wrapping_sub(distance);
        let old = self.window.get(start..).unwrap_or_default();
        let room = io.out.get_mut(io.filled..).unwrap_or_default();
        for (to, from) in room.iter_mut().zip(old).take(from_window) {
            *to = *from;
        }
        let at = io.filled.wrapping_add(from_window);
        repeat(io.out, at, distance, now.wrapping_sub(from_window));
        io.filled = io.filled.wrapping_add(now);
        if now == length {
            return Ok(Step::Symbols);
        }
        self.step = Step::Match { length: length.wrapping_sub(now), distance };
        Err(Pause::Full)
    }

    fn fast_symbols(&mut self, io: &mut Io<'_>) -> Result<Option<Step>, Pause> {
        #[cfg(target_arch = "x86_64")]
        if let Some(bmi) = Bmi::here() {
            // SAFETY: the processor has these instructions.
            return unsafe { self.fast_symbols_bmi(io, bmi) };
        }
        self.fast_symbols_by(io, Anyhow)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "bmi1,bmi2")]
    fn fast_symbols_bmi(&mut self, io: &mut Io<'_>, bmi: Bmi) -> Result<Option<Step>, Pause> {
        self.fast_symbols_by(io, bmi)
    }

    #[inline(always)]
    fn fast_symbols_by(
        &mut self,
        io: &mut Io<'_>,
        shift: impl Shift,
    ) -> Result<Option<Step>, Pause> {
        let Held { bits, num_bits } = self.held;
        let mut bits = Bits { input: io.input, taken: io.taken, bits, num_bits };
        let mut filled = io.filled;
        let result = self.read(&mut bits, io.out, &mut filled, shift);
        (io.taken, io.filled) = (bits.taken, filled);
        self.held = Held { bits: bits.bits, num_bits: bits.num_bits & 63 };
        self.give_back(io);
        result
    }

    /// Decode symbols until input or output space runs low, or a symbol needs the slow path.
    ///
    /// Every lookup waits for the previous one. So the lookup after a literal does not wait until the bits
    /// are shifted, and the lookup after a match starts before the match is copied.
    #[inline(always)]
    fn read(
        &self,
        bits: &mut Bits<'_>,
        out: &mut [u8],
        filled: &mut usize,
        shift: impl Shift,
    ) -> Result<Option<Step>, Pause> {
        let (litlens, distances) = (&self.litlens, &self.distances);
        if !bits.refill() {
            return Ok(None);
        }
        let mut entry = litlens.lookup(bits.bits);
        'symbols: loop {
            let rest = out.get_mut(*filled..);
            let Some(room) = rest.and_then(|rest| rest.first_chunk_mut::<FAST_ROOM>()) else {
                return Ok(None);
            };
            if !bits.refill() {
                return Ok(None);
            }
            for (num_read, slot) in room.iter_mut().take(LITERALS).enumerate() {
                if !entry.is_literal() {
                    *filled = filled.wrapping_add(num_read);
                    break;
                }
                *slot = entry.byte();
                let next = litlens.look_behind(bits.bits, entry, shift);
                bits.take(entry);
                entry = next;
                if num_read == LITERALS - 1 {
                    *filled = filled.wrapping_add(LITERALS);
                    continue 'symbols;
                }
            }
            if !bits.refill() {
                return Ok(None);
            }
            if entry.is_odd() {
                entry = litlens.find(bits.bits);
                if entry.is_literal() {
                    if let Some(slot) = out.get_mut(*filled) {
                        *slot = entry.byte();
                    }
                    *filled = filled.wrapping_add(1);
                    bits.take(entry);
                    entry = litlens.lookup(bits.bits);
                    continue;
                }
                if entry.is_odd() {
                    bits.take(entry);
                    return if entry.is_end() { Ok(Some(Step::BlockEnd)) } else { Err(NO_SYMBOL) };
                }
            }
            let length = entry.value(bits.bits);
            bits.take(entry);
            let mut far = distances.lookup(bits.bits);
            if far.is_odd() {
                far = distances.find(bits.bits);
                if far.is_odd() {
                    return Err(NO_DISTANCE);
                }
            }
            let distance = far.value(bits.bits);
            bits.take(far);
            let at = *filled;
            if distance > at {
                let is_known = distance <= at.saturating_add(self.window.len());
                return if is_known {
                    Ok(Some(Step::Match { length, distance }))
                } else {
                    Err(TOO_FAR)
                };
            }
            *filled = at.wrapping_add(length);
            let is_more = bits.refill();
            entry = litlens.lookup(bits.bits);
            if length <= COPY_BYTES && distance >= COPY_BYTES {
                let (before, after) = out.split_at_mut(at);
                let from = before.get(at.wrapping_sub(distance)..);
                if let Some(from) = from.and_then(|from| from.first_chunk::<COPY_BYTES>())
                    && let Some(to) = after.first_chunk_mut()
                {
                    *to = *from;
                }
            } else {
                repeat(out, at, distance, length);
            }
            if !is_more {
                return Ok(None);
            }
        }
    }
}

/// Copy a match: `length` bytes from `distance` before `at`, repeating if they overlap.
fn repeat(out: &mut [u8], at: usize, distance: usize, length: usize) {
    let Some(both) = out.get_mut(at.wrapping_sub(distance)..at.wrapping_add(length)) else {
        return;
    };
    if distance == 1 {
        let byte = both.first().copied().unwrap_or_default();
        both.fill(byte);
        return;
    }
    let (mut ready, end) = (distance, both.len());
    while ready < end {
        let num_bytes = ready.min(end.wrapping_sub(ready));
        both.copy_within(..num_bytes, ready);
        ready = ready.wrapping_add(num_bytes);
    }
}
