//! Lookup tables for the Huffman codes of a JPEG. One lookup of the next bits decodes several codes and the
//! values after them.
//!
//! A symbol is a code and the value after it. The code gives the number of zeros before the value, and the
//! number of the value's bits. In photographs a symbol has six bits on average, so eleven bits mostly
//! contain two symbols. If values are not wanted, a lookup skips all symbols that are complete in the
//! index.

/// Index bits of the table for values.
const VALUE_BITS: u32 = 11;
/// Index bits of the table for skipping values.
const SKIP_BITS: u32 = 12;
/// Index bits of the table for the first value of a block.
const FIRST_BITS: u32 = 9;

/// The number of codes of each length from 1 to 16, and their symbols in order.
pub type Spec = ([u8; 16], [u8; 256]);

/// The signed value of the top `size` bits; the lower half of the numbers is for negative values.
#[inline(always)]
pub fn extended(bits: u64, size: u32) -> i32 {
    let number = (bits >> 1) >> (63 - (size & 63));
    let negative = !(bits.cast_signed() >> 63).cast_unsigned();
    let below = (1u64 << (size & 63)).wrapping_sub(1);
    number.wrapping_sub(below & negative) as i32
}

/// One symbol: the bits of its code, the bits of its value, and the places that it advances.
#[derive(Clone, Copy, Default)]
pub struct One(u16);

impl One {
    /// The symbol of a first value of a block.
    fn first(code: u32, symbol: u8) -> Option<Self> {
        (symbol < 16).then(|| Self::new(code as u16, symbol.into(), 0))
    }

    /// The symbol of another value.
    fn other(code: u32, symbol: u8) -> Option<Self> {
        let (zeros, size) = (u16::from(symbol >> 4), u16::from(symbol & 15));
        let advance = if size > 0 || zeros == 15 { zeros + 1 } else { 0 };
        Some(Self::new(code as u16, size, advance))
    }

    fn new(code: u16, size: u16, advance: u16) -> Self {
        Self((code + size) | (size << 6) | (advance << 10))
    }

    /// Bits of code and value; 0 if there is no symbol. Six bits, so that a shift needs no mask.
    #[inline(always)]
    pub fn total(self) -> u32 {
        u32::from(self.0) & 63
    }

    /// Bits of the code.
    #[inline(always)]
    pub fn code(self) -> u32 {
        self.total().wrapping_sub(self.size())
    }

    /// Bits of the value.
    #[inline(always)]
    pub fn size(self) -> u32 {
        (u32::from(self.0) >> 6) & 15
    }

    /// Places that it advances; 0 at the end of a block.
    #[inline(always)]
    pub fn advance(self) -> u32 {
        u32::from(self.0) >> 10
    }
}

/// Codes of 1 to 16 bits. Codes of the same length are consecutive numbers.
struct Codes {
    /// One past the last code of each length, at the top of 16 bits.
    ends: [u32; 17],
    /// For each length, the number to add to a code to get the index of its symbol.
    offsets: [i32; 17],
    symbols: [u8; 256],
    meaning: fn(u32, u8) -> Option<One>,
}

impl Codes {
    /// None if there cannot be such codes.
    fn new((counts, symbols): &Spec, meaning: fn(u32, u8) -> Option<One>) -> Option<Self> {
        let mut codes = Self { ends: [0; 17], offsets: [0; 17], symbols: *symbols, meaning };
        let (mut code, mut place) = (0u32, 0u32);
        let places = codes.ends.iter_mut().zip(&mut codes.offsets).skip(1);
        for ((length, count), (end, offset)) in (1u32..).zip(counts).zip(places) {
            *offset = place.cast_signed() - code.cast_signed();
            code += u32::from(*count);
            place += u32::from(*count);
            // No code is all ones.
            if code >= 1 << length || place > 256 {
                return None;
            }
            *end = code << (16 - length);
            code <<= 1;
        }
        Some(codes)
    }

    /// The symbol at the beginning of the bits; its code has 0 bits if there is none.
    #[cold]
    #[inline(never)]
    fn find(&self, bits: u64) -> One {
        let bits = (bits >> 48) as u32;
        let mut ends = (1u32..).zip(self.ends.iter().skip(1));
        let Some((length, _)) = ends.find(|(_, end)| bits < **end) else { return One::default() };
        let code = (bits >> (16 - length)).cast_signed();
        let place = code + self.offsets.get(length as usize).copied().unwrap_or(-code);
        let symbol = self.symbols.get(place.cast_unsigned() as usize).copied().unwrap_or(0);
        (self.meaning)(length, symbol).unwrap_or_default()
    }

    /// For each table index, the symbol that it begins with, if the index contains the whole code.
    fn table<const N: usize>(&self, (counts, symbols): &Spec) -> Box<[One; N]> {
        let mut table = Box::new([One::default(); N]);
        let (mut at, mut symbols) = (0, symbols.iter());
        for (length, count) in (1u32..=N.ilog2()).zip(counts) {
            for symbol in symbols.by_ref().take(usize::from(*count)) {
                let span = N >> length;
                let one = (self.meaning)(length, *symbol).unwrap_or_default();
                if let Some(table) = table.get_mut(at..at + span) {
                    table.fill(one);
                }
                at += span;
            }
        }
        table
    }
}

/// Codes of the first value of a block, which is stored as the difference from the first value of the
/// previous block.
pub struct Firsts {
    table: Box<[One; 1 << FIRST_BITS]>,
    codes: Codes,
}

impl Firsts {
    /// None if there cannot be such codes.
    pub fn new(spec: &Spec) -> Option<Self> {
        let codes = Codes::new(spec, One::first)?;
        Some(Self { table: codes.table(spec), codes })
    }

    /// The symbol at the beginning of the bits.
    #[inline(always)]
    pub fn lookup(&self, bits: u64) -> One {
        self.table.get((bits >> (64 - FIRST_BITS)) as usize).copied().unwrap_or_default()
    }

    /// The same, for codes that are too long for the table.
    pub fn long(&self, bits: u64) -> One {
        self.codes.find(bits)
    }
}

/// A table entry: one or two symbols, with the sizes of the first and the value of the second.
#[derive(Clone, Copy)]
pub struct Entry(u32);

impl Entry {
    const END: u32 = 1 << 31;

    fn new(ones: &[One; 1 << SKIP_BITS], bits: usize) -> Self {
        const BITS: u32 = VALUE_BITS;
        let seen = |used: u32| {
            let rest = (bits << used) & ((1 << BITS) - 1);
            let one = ones.get(rest << (SKIP_BITS - BITS)).copied().unwrap_or_default();
            (rest, if one.code() <= BITS - used { one } else { One::default() })
        };
        let (_, first) = seen(0);
        let used = first.total();
        if first.code() == 0 || first.advance() == 0 {
            return Self(used | (used << 6) | Self::END);
        }
        let single = (first.code() << 6) | (first.size() << 10) | (first.advance() << 14);
        if used >= BITS {
            return Self(single | used);
        }
        let (rest, second) = seen(used);
        let total = used + second.total();
        if second.code() == 0 {
            Self(single | used)
        } else if second.advance() == 0 {
            Self(single | total | Self::END)
        } else if total <= BITS && second.size() < 7 {
            // The value has seven bits.
            let value = extended((rest as u64) << (64 - BITS + second.code()), second.size());
            let value = value.cast_unsigned() & 127;
            Self(single | total | (second.advance() << 19) | (value << 24))
        } else {
            Self(single | used)
        }
    }

    /// Bits of all symbols; 0 if there is no code.
    #[inline(always)]
    pub fn total(self) -> u32 {
        self.0 & 63
    }

    /// Bits of the first code.
    #[inline(always)]
    pub fn code(self) -> u32 {
        (self.0 >> 6) & 15
    }

    /// Bits of the first value.
    #[inline(always)]
    pub fn size(self) -> u32 {
        (self.0 >> 10) & 15
    }

    /// Places that the first value advances; 0 if the block ends instead.
    #[inline(always)]
    pub fn first(self) -> u32 {
        (self.0 >> 14) & 31
    }

    /// Places that the second value advances; 0 if there is none.
    #[inline(always)]
    pub fn second(self) -> u32 {
        (self.0 >> 19) & 31
    }

    /// The second value.
    #[inline(always)]
    pub fn value(self) -> i16 {
        ((self.0 << 1).cast_signed() >> 25) as i16
    }

    /// Negative if the block ends, or there is no code.
    #[inline(always)]
    pub fn end(self) -> i32 {
        self.0.cast_signed()
    }
}

/// A table entry: all symbols that are complete in the index, and their total size.
#[derive(Clone, Copy)]
pub struct Skip(u16);

impl Skip {
    const END: u16 = 1 << 15;

    fn new(ones: &[One; 1 << SKIP_BITS], bits: usize) -> Self {
        let (mut used, mut advance) = (0, 0);
        while used < SKIP_BITS {
            let rest = (bits << used) & ((1 << SKIP_BITS) - 1);
            let one = ones.get(rest).copied().unwrap_or_default();
            let (left, total) = (SKIP_BITS - used, one.total());
            if one.code() == 0 || one.code() > left {
                break;
            }
            if one.advance() == 0 {
                return Self(((used + total) | (advance << 6)) as u16 | Self::END);
            }
            // The first value may end outside the index. For later values, the reader may not have enough
            // bits.
            if advance + one.advance() > 63 || (used > 0 && total > left) {
                break;
            }
            used += total;
            advance += one.advance();
        }
        if used == 0 { Self(Self::END) } else { Self((used | (advance << 6)) as u16) }
    }

    /// Bits of all symbols; 0 if there is no code.
    #[inline(always)]
    pub fn total(self) -> u32 {
        u32::from(self.0) & 63
    }

    /// Places that they advance.
    #[inline(always)]
    pub fn advance(self) -> u32 {
        (u32::from(self.0) >> 6) & 63
    }

    /// Negative if the block ends, or there is no code.
    #[inline(always)]
    pub fn end(self) -> i32 {
        i32::from(self.0.cast_signed())
    }
}

/// Codes of the other 63 values.
pub struct Others {
    table: Box<[Entry; 1 << VALUE_BITS]>,
    skips: Box<[Skip; 1 << SKIP_BITS]>,
    codes: Codes,
}

impl Others {
    /// None if there cannot be such codes.
    pub fn new(spec: &Spec) -> Option<Self> {
        let codes = Codes::new(spec, One::other)?;
        let ones = codes.table(spec);
        let mut table = Box::new([Entry(Entry::END); 1 << VALUE_BITS]);
        for (bits, entry) in table.iter_mut().enumerate() {
            *entry = Entry::new(&ones, bits);
        }
        let mut skips = Box::new([Skip(Skip::END); 1 << SKIP_BITS]);
        for (bits, skip) in skips.iter_mut().enumerate() {
            *skip = Skip::new(&ones, bits);
        }
        Some(Self { table, skips, codes })
    }

    /// The entry for the next bits.
    #[inline(always)]
    pub fn lookup(&self, bits: u64) -> Entry {
        let entry = self.table.get((bits >> (64 - VALUE_BITS)) as usize).copied();
        entry.unwrap_or(Entry(Entry::END))
    }

    /// The symbols of the next bits that can be skipped.
    #[inline(always)]
    pub fn skip(&self, bits: u64) -> Skip {
        let skip = self.skips.get((bits >> (64 - SKIP_BITS)) as usize).copied();
        skip.unwrap_or(Skip(Skip::END))
    }

    /// The symbol at the beginning of the bits, of any length.
    pub fn one(&self, bits: u64) -> One {
        self.codes.find(bits)
    }
}
