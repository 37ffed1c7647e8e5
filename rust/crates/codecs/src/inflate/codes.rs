//! Huffman codes of deflate, as lookup tables indexed by the next bits.
//!
//! RFC 1951, section 3.2. In a stream, the first bit of a code is the lowest, so the index, which is the
//! next bits of the stream, is the code reversed. Codes longer than the index continue in a second table
//! after the first.

/// The meaning of the bits at an index, in 32 bits:
///
/// | bits | literal | length, distance | end, nothing | refers to a second table |
/// |---|---|---|---|---|
/// | 0 to 5 | bits of the code | the same, plus its extra bits | bits of the code | |
/// | 7 | 0 | 0 | 1 | 1 |
/// | 8 to 15 | bits of a first lookup | bits of the code | | bits of that table's index |
/// | 16 to 30 | the literal | the smallest length or distance | 0; 1 | where it begins |
/// | 31 | 1 | 0 | 0 | 0 |
///
/// The low half of a literal's entry is the control word of the instruction BEXTR for the next
/// lookup: how many bits to skip, and how many to use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Entry(pub u32);

const IS_LITERAL: u32 = 1 << 31;
const IS_ODD: u32 = 1 << 7;
const NOTHING: u32 = IS_ODD | 1 << 16;
/// What each bit of a code adds to the entry of its symbol, unless it is a literal.
const CODE_BIT: u32 = 1 << 8 | 1;
/// Index bits of the first table for literals and lengths.
const LITLEN_BITS: u32 = 11;
/// The longest code of deflate.
const MAX_BITS: u32 = 15;

impl Entry {
    /// The bits of the code and its extra bits.
    #[inline(always)]
    pub fn num_bits(self) -> u32 {
        self.0 & 63
    }

    #[inline(always)]
    pub fn is_literal(self) -> bool {
        self.0 & IS_LITERAL != 0
    }

    /// An entry that is neither a literal nor a length nor a distance.
    #[inline(always)]
    pub fn is_odd(self) -> bool {
        self.0 & IS_ODD != 0
    }

    /// Whether such an entry is the end of a block.
    pub fn is_end(self) -> bool {
        self.0 >> 16 == 0
    }

    /// The literal.
    #[inline(always)]
    pub fn byte(self) -> u8 {
        (self.0 >> 16) as u8
    }

    /// The length or distance whose code is at the beginning of these bits.
    #[inline(always)]
    pub fn value(self, bits: u64) -> usize {
        let extra = low(bits, self.num_bits()) >> (self.0 >> 8 & 15);
        ((self.0 >> 16) as usize).wrapping_add(extra as usize)
    }
}

/// How to compute the index of the lookup after a literal, which is on the critical path.
pub trait Shift: Copy {
    /// The next `LITLEN_BITS` bits after the literal's code.
    fn index_behind(self, bits: u64, literal: Entry) -> u64;
}

/// By a shift and a mask, on every CPU.
#[derive(Clone, Copy)]
pub struct Anyhow;

impl Shift for Anyhow {
    #[inline(always)]
    fn index_behind(self, bits: u64, literal: Entry) -> u64 {
        low(bits >> literal.num_bits(), LITLEN_BITS)
    }
}

/// Both by BEXTR, an instruction of BMI.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Bmi(());

#[cfg(target_arch = "x86_64")]
impl Bmi {
    /// On CPUs that have it, and that shift by any number of bits in one instruction.
    pub fn here() -> Option<Self> {
        let is_here = std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2");
        is_here.then_some(Self(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Shift for Bmi {
    #[inline(always)]
    fn index_behind(self, bits: u64, literal: Entry) -> u64 {
        // SAFETY: a value of this type exists only if the CPU has the instruction.
        unsafe { std::arch::x86_64::_bextr2_u64(bits, u64::from(literal.0)) }
    }
}

/// The low bits, fewer than 64.
#[inline(always)]
pub fn low(bits: u64, num_bits: u32) -> u64 {
    bits & !(u64::MAX << (num_bits & 63))
}

/// The entries of literals, of the end, and of lengths. The last two symbols have codes in fixed
/// blocks, but no meaning.
#[allow(clippy::indexing_slicing)] // by the compiler, which would refuse to
pub const LITLENS: [u32; 288] = {
    let mut table = [NOTHING; 288];
    let mut symbol = 0;
    while symbol < 256 {
        table[symbol] = (symbol as u32) << 16 | IS_LITERAL | LITLEN_BITS << 8;
        symbol += 1;
    }
    table[256] = IS_ODD;
    let mut least = 3;
    symbol = 257;
    while symbol < 285 {
        let extra_bits = if symbol < 265 { 0 } else { (symbol as u32 - 261) / 4 };
        table[symbol] = least << 16 | extra_bits;
        least += 1 << extra_bits;
        symbol += 1;
    }
    table[285] = 258 << 16;
    table
};

/// The entries of distances. The last two symbols have codes in fixed blocks, but no meaning.
#[allow(clippy::indexing_slicing)]
pub const DISTANCES: [u32; 32] = {
    let mut table = [NOTHING; 32];
    let (mut symbol, mut least) = (0, 1);
    while symbol < 30 {
        let extra_bits = if symbol < 4 { 0 } else { (symbol as u32 - 2) / 2 };
        table[symbol] = least << 16 | extra_bits;
        least += 1 << extra_bits;
        symbol += 1;
    }
    table
};

/// Symbols for the code lengths in the head of a block: a length, or how often to repeat one.
#[allow(clippy::indexing_slicing)]
pub const LENGTHS: [u32; 19] = {
    let mut table = [0; 19];
    let mut symbol = 0;
    while symbol < 19 {
        table[symbol] = (symbol as u32) << 16;
        symbol += 1;
    }
    table
};

/// Codes of up to `BITS` bits take one lookup, longer codes two.
pub struct Table<const BITS: u32, const SIZE: usize> {
    entries: [u32; SIZE],
}

// The largest sizes for any 288 (32, 19) codes of up to 15 (15, 7) bits, computed by zlib's program
// `enough`.
pub type LitlenTable = Table<LITLEN_BITS, 2342>;
pub type DistanceTable = Table<8, 402>;
pub type LengthTable = Table<7, 128>;

impl<const BITS: u32, const SIZE: usize> Table<BITS, SIZE> {
    pub fn new() -> Self {
        Self { entries: [NOTHING | 1; SIZE] }
    }

    /// The entry for the next `BITS` bits.
    #[inline(always)]
    pub fn lookup(&self, bits: u64) -> Entry {
        self.at(low(bits, BITS) as usize)
    }

    /// The entry for the bits after a literal.
    #[inline(always)]
    pub fn look_behind(&self, bits: u64, literal: Entry, shift: impl Shift) -> Entry {
        self.at(shift.index_behind(bits, literal) as usize)
    }

    /// The entry for the code at the beginning of the bits, of any length.
    #[inline(always)]
    pub fn find(&self, bits: u64) -> Entry {
        let entry = self.lookup(bits);
        let start = (entry.0 >> 16) as usize;
        if !entry.is_odd() || start < 1 << BITS {
            return entry;
        }
        let index = low(bits >> BITS, entry.0 >> 8 & 15) as usize;
        self.at(start.wrapping_add(index))
    }

    #[inline(always)]
    fn at(&self, index: usize) -> Entry {
        Entry(self.entries.get(index).copied().unwrap_or(NOTHING))
    }

    fn put(&mut self, index: usize, entry: u32) {
        if let Some(slot) = self.entries.get_mut(index) {
            *slot = entry;
        }
    }

    /// Set up the table for these code lengths, which are 0 for unused symbols. False if the
    /// lengths are not a complete prefix code. A single code of one bit, and no code at all, are
    /// also allowed.
    pub fn fill(&mut self, lengths: &[u8], symbols: &[u32]) -> bool {
        let mut sorted = [0; LITLENS.len()];
        let Some(counts) = sort(lengths, symbols, &mut sorted) else {
            return false;
        };
        let num_codes = counts.iter().sum();
        let entries = sorted.get(..num_codes).unwrap_or_default();
        let mut codes = Codes { counts, entries, code: 0 };
        if num_codes < 2 {
            self.entries.fill(NOTHING | 1);
        }
        self.fill_first(&mut codes);
        self.fill_second(&mut codes);
        true
    }

    /// Start with a table for codes of one bit. Two copies of it are the beginning of the table for
    /// codes of up to two bits, and so on.
    fn fill_first(&mut self, codes: &mut Codes<'_>) {
        for length in 1..=BITS {
            let half = 1 << length.wrapping_sub(1);
            self.entries.copy_within(..half, half);
            for _ in 0..codes.count(length) {
                let (code, entry) = codes.next(length);
                self.put(code, entry);
            }
        }
    }

    /// The second tables, one for each index of the first table with which longer codes begin.
    fn fill_second(&mut self, codes: &mut Codes<'_>) {
        let mut end = 1usize << BITS;
        let (mut prefix, mut table) = (usize::MAX, 0..0);
        for length in BITS.wrapping_add(1)..=MAX_BITS {
            for num_left in (1..=codes.count(length)).rev() {
                let (code, entry) = codes.next(length);
                let (first, second) = (low(code as u64, BITS) as usize, code >> BITS);
                if first != prefix {
                    let num_bits = codes.table_bits(BITS, length, num_left);
                    self.put(first, (end as u32) << 16 | num_bits << 8 | IS_ODD);
                    (prefix, table) = (first, end..end.wrapping_add(1 << num_bits));
                    end = table.end;
                }
                let step = 1 << length.wrapping_sub(BITS);
                for index in table.clone().skip(second).step_by(step) {
                    self.put(index, entry);
                }
            }
        }
    }
}

type Counts = [usize; MAX_BITS as usize + 1];

/// The entries of the symbols sorted by the length of their codes, and the number of each length.
fn sort(lengths: &[u8], symbols: &[u32], sorted: &mut [u32; LITLENS.len()]) -> Option<Counts> {
    let mut counts: Counts = [0; _];
    for &length in lengths {
        let count = counts.get_mut(usize::from(length))?;
        *count = count.wrapping_add(1);
    }
    counts[0] = 0;
    let mut starts: Counts = [0; _];
    let (mut num_codes, mut room) = (0usize, 1usize << MAX_BITS);
    for ((length, &count), start) in counts.iter().enumerate().zip(&mut starts) {
        *start = num_codes;
        num_codes = num_codes.wrapping_add(count);
        room = room.checked_sub(count.wrapping_mul(1 << MAX_BITS as usize >> length))?;
    }
    let is_alone = num_codes == counts[1] && symbols.len() != LENGTHS.len();
    if room > 0 && !is_alone {
        return None;
    }
    for (&length, &symbol) in lengths.iter().zip(symbols).filter(|(length, _)| **length > 0) {
        let start = starts.get_mut(usize::from(length))?;
        *sorted.get_mut(*start)? = symbol;
        *start = start.wrapping_add(1);
    }
    Some(counts)
}

/// Codes and entries of the symbols in order, the shortest first.
struct Codes<'a> {
    counts: Counts,
    entries: &'a [u32],
    /// The next code, in the bit order of the stream: its first bit is the lowest.
    code: usize,
}

impl Codes<'_> {
    fn count(&self, length: u32) -> usize {
        self.counts.get(length as usize).copied().unwrap_or(0)
    }

    /// The next code, which has this length, and its entry.
    #[inline(always)]
    fn next(&mut self, length: u32) -> (usize, u32) {
        let code = self.code;
        // Add one, where the highest bit counts least: the highest 0 becomes 1, and the bits above
        // it become 0.
        let zeros = low(!code as u64, length);
        let bit = zeros.checked_ilog2().map_or(0, |bit| 1usize << bit);
        self.code = code & bit.saturating_sub(1) | bit;
        let (&symbol, rest) = self.entries.split_first().unwrap_or((&NOTHING, &[]));
        self.entries = rest;
        let code_bit = if Entry(symbol).is_literal() { 1 } else { CODE_BIT };
        (code, symbol.wrapping_add(code_bit.wrapping_mul(length)))
    }

    /// The index bits of a second table whose first code has this length, with `num_left` codes of this
    /// length to come: enough for the longest code in it.
    fn table_bits(&self, first_bits: u32, length: u32, num_left: usize) -> u32 {
        let (mut longest, mut used) = (length, num_left);
        while used < 1 << longest.wrapping_sub(first_bits) && longest < MAX_BITS {
            longest = longest.wrapping_add(1);
            used = used.wrapping_mul(2).wrapping_add(self.count(longest));
        }
        longest.wrapping_sub(first_bits)
    }
}
