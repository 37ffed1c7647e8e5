//! The containers around deflate: gzip (RFC 1952) and zlib (RFC 1950).
//!
//! | gzip member | bytes | |
//! |---|---|---|
//! | magic | 2 | `1f 8b` |
//! | method | 1 | 8 |
//! | flags | 1 | 1 text, 2 header checksum, 4 extra, 8 name, 16 comment |
//! | mtime, XFL, OS | 6 | |
//! | extra | 2 + n | if flagged: length, then subfields of id (2), length (2), data |
//! | name, comment | n | if flagged: up to and including a zero byte |
//! | header checksum | 2 | if flagged: low half of the CRC-32 of all before |
//! | deflate data | n | |
//! | trailer | 8 | CRC-32 of the plain bytes, their number modulo 2^32 |
//!
//! penstock writes its members with one extra subfield, "PS": the bytes of the whole member and the number
//! of its records, both u32. So a reader can find members by hopping from head to head, without
//! inflating. Other readers ignore the field.

use libdeflater::Crc;

use super::cursor::Cursor;
use super::{Fault, FaultKind};

const FLAG_CHECKSUM: u8 = 2;
const FLAG_EXTRA: u8 = 4;
const FLAG_NAME: u8 = 8;
const FLAG_COMMENT: u8 = 16;
const FLAGS_RESERVED: u8 = 0xe0;
const SUBFIELD: [u8; 2] = *b"PS";

/// Bytes of the header that penstock writes.
pub const HEAD_BYTES: usize = 24;
/// Bytes of a gzip header without optional fields.
pub const PLAIN_HEAD_BYTES: usize = 10;
/// Bytes after a member's deflate data.
pub const TRAILER_BYTES: usize = 8;

/// The container of the deflate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// RFC 1952: any number of members, each with CRC-32 and length.
    Gzip,
    /// RFC 1950: one stream with Adler-32.
    Zlib,
}

impl Container {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zlib => "zlib",
        }
    }

    /// Bytes after the deflate data.
    pub fn trailer_bytes(self) -> usize {
        match self {
            Self::Gzip => TRAILER_BYTES,
            Self::Zlib => 4,
        }
    }
}

/// The field of a header that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Zlib,
    Magic,
    Fixed,
    ExtraLength,
    Extra,
    Name,
    Comment,
    Checksum,
    Done,
}

/// Reads a header that arrives in pieces of any size, in constant memory.
pub struct HeaderReader {
    field: Field,
    /// A field of fixed size, and how many of its bytes have arrived.
    small: [u8; 8],
    have: usize,
    flags: u8,
    extra_left: usize,
    sum: Crc,
    length: u64,
}

impl HeaderReader {
    /// At the first byte.
    pub fn new(container: Container) -> Self {
        Self {
            field: match container {
                Container::Gzip => Field::Magic,
                Container::Zlib => Field::Zlib,
            },
            small: [0; 8],
            have: 0,
            flags: 0,
            extra_left: 0,
            sum: Crc::new(),
            length: 0,
        }
    }

    /// Whether the header is complete.
    pub fn is_done(&self) -> bool {
        self.field == Field::Done
    }

    /// Header bytes read so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether the first two bytes were the container's.
    pub fn is_recognised(&self) -> bool {
        !matches!(self.field, Field::Zlib | Field::Magic)
    }

    /// Read from the front of `data`, and return the number of bytes used: all, unless the header ends
    /// before. A fault's byte is relative to the start of the header.
    pub fn feed(&mut self, data: &[u8]) -> Result<usize, Fault> {
        let mut taken = 0usize;
        while let Some(rest) = data.get(taken..)
            && !rest.is_empty()
            && !self.is_done()
        {
            let summed = self.field != Field::Checksum;
            let (used, ends) = self.part(rest);
            let part = rest.get(..used).unwrap_or_default();
            if summed {
                self.sum.update(part);
            }
            self.early_magic()?;
            if ends {
                self.check()?;
                self.next_field();
            }
            self.length = self.length.wrapping_add(used as u64);
            taken = taken.wrapping_add(used);
        }
        Ok(taken)
    }

    /// How many bytes of `data` belong to this field, and whether they complete it.
    fn part(&mut self, data: &[u8]) -> (usize, bool) {
        match self.field {
            Field::Zlib | Field::Magic | Field::ExtraLength | Field::Checksum => self.fill(data, 2),
            Field::Fixed => self.fill(data, 8),
            Field::Extra => {
                let used = self.extra_left.min(data.len());
                self.extra_left = self.extra_left.wrapping_sub(used);
                (used, self.extra_left == 0)
            }
            Field::Name | Field::Comment => match data.iter().position(|&byte| byte == 0) {
                Some(at) => (at.wrapping_add(1), true),
                None => (data.len(), false),
            },
            Field::Done => (0, true),
        }
    }

    fn fill(&mut self, data: &[u8], size: usize) -> (usize, bool) {
        let mut used = 0usize;
        let free = self.small.iter_mut().take(size).skip(self.have);
        for (to, from) in free.zip(data) {
            *to = *from;
            used = used.wrapping_add(1);
        }
        self.have = self.have.wrapping_add(used);
        (used, self.have == size)
    }

    /// One wrong byte is enough to refuse the header, so do not wait for the second byte.
    fn early_magic(&self) -> Result<(), Fault> {
        let [first, ..] = self.small;
        if self.field == Field::Magic && self.have > 0 && first != 0x1f {
            return Err(Fault::new(FaultKind::Compression, 0, "not a gzip header"));
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), Fault> {
        let [a, b, ..] = self.small;
        let word = u16::from_le_bytes([a, b]);
        match self.field {
            Field::Magic if b != 0x8b => {
                Err(Fault::new(FaultKind::Compression, 0, "not a gzip header"))
            }
            Field::Zlib => check_zlib(a, b),
            Field::Fixed if a != 8 => {
                let message = format!("unknown compression method {a}");
                Err(Fault::new(FaultKind::Compression, 2, message).values(8, u64::from(a)))
            }
            Field::Fixed if b & FLAGS_RESERVED != 0 => {
                Err(Fault::new(FaultKind::Compression, 3, "reserved flags in the gzip header"))
            }
            Field::Fixed => {
                self.flags = b;
                Ok(())
            }
            Field::ExtraLength => {
                self.extra_left = usize::from(word);
                Ok(())
            }
            Field::Checksum if word != self.sum.sum() as u16 => Err(Fault::new(
                FaultKind::CompressionChecksum,
                self.length,
                "gzip header checksum does not match",
            )
            .values(u64::from(word), u64::from(self.sum.sum() as u16))),
            _ => Ok(()),
        }
    }

    fn next_field(&mut self) {
        self.have = 0;
        loop {
            let (next, wanted) = match self.field {
                Field::Magic => (Field::Fixed, true),
                Field::Fixed => (Field::ExtraLength, self.flags & FLAG_EXTRA != 0),
                Field::ExtraLength => (Field::Extra, self.extra_left > 0),
                Field::Extra => (Field::Name, self.flags & FLAG_NAME != 0),
                Field::Name => (Field::Comment, self.flags & FLAG_COMMENT != 0),
                Field::Comment => (Field::Checksum, self.flags & FLAG_CHECKSUM != 0),
                Field::Zlib | Field::Checksum | Field::Done => (Field::Done, true),
            };
            self.field = next;
            if wanted {
                return;
            }
        }
    }
}

fn check_zlib(method: u8, flags: u8) -> Result<(), Fault> {
    let check = u16::from_be_bytes([method, flags]);
    let wrong = |message: &str| Err(Fault::new(FaultKind::Compression, 0, message));
    if method & 0x0f != 8 || method >> 4 > 7 || !check.is_multiple_of(31) {
        return wrong("not a zlib header");
    }
    if flags & 0x20 != 0 {
        return wrong("a zlib stream with a preset dictionary");
    }
    Ok(())
}

/// The head of a member that penstock wrote: bytes of the whole member, and number of its records.
pub fn member_head(data: &[u8]) -> Option<(u32, u32)> {
    let mut cursor = Cursor::new(data);
    let start = cursor.take(PLAIN_HEAD_BYTES).ok()?;
    let &[0x1f, 0x8b, 8, flags, ..] = start else {
        return None;
    };
    if flags & FLAG_EXTRA == 0 || flags & FLAGS_RESERVED != 0 {
        return None;
    }
    let length = cursor.u16_le().ok()?;
    let mut extra = Cursor::new(cursor.take(usize::from(length)).ok()?);
    while !extra.is_empty() {
        let id = extra.take(2).ok()?;
        let size = extra.u16_le().ok()?;
        let mut value = Cursor::new(extra.take(usize::from(size)).ok()?);
        if id == SUBFIELD && size == 8 {
            let (bytes, records) = (value.u32_le().ok()?, value.u32_le().ok()?);
            // A member cannot be shorter than its header and trailer. A smaller size could make a
            // hopping reader stay at the same place.
            let least = cursor.offset().checked_add(TRAILER_BYTES)?;
            return (bytes as usize > least).then_some((bytes, records));
        }
    }
    None
}

/// The header that penstock writes. It has no time and no name, so equal input gives equal bytes.
pub fn head(member_bytes: u32, num_records: u32) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let fixed = [0x1f, 0x8b, 8, FLAG_EXTRA, 0, 0, 0, 0, 0, 3, 12, 0, b'P', b'S', 8, 0];
    let values = member_bytes.to_le_bytes().into_iter().chain(num_records.to_le_bytes());
    for (to, from) in head.iter_mut().zip(fixed.into_iter().chain(values)) {
        *to = from;
    }
    head
}

/// CRC-32 and length from a gzip member's last eight bytes.
pub fn trailer(bytes: [u8; TRAILER_BYTES]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = bytes;
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with every optional field.
    fn full() -> Vec<u8> {
        let mut header = vec![0x1f, 0x8b, 8, 2 | 4 | 8 | 16, 1, 2, 3, 4, 0, 3, 6, 0];
        header.extend_from_slice(b"XY\x02\x00zzname\0some comment\0");
        let sum = libdeflater::crc32(&header) as u16;
        header.extend_from_slice(&sum.to_le_bytes());
        header
    }

    #[test]
    fn a_full_header_is_read_in_pieces_of_any_size() {
        let mut header = full();
        let length = header.len();
        header.extend_from_slice(b"deflate data");
        for piece in 1..=header.len() {
            let mut reader = HeaderReader::new(Container::Gzip);
            let mut taken = 0;
            for part in header.chunks(piece) {
                taken += reader.feed(part).unwrap();
            }
            assert!(reader.is_done());
            assert_eq!((taken, reader.length()), (length, length as u64), "pieces of {piece}");
        }
    }

    #[test]
    fn every_flip_under_a_header_checksum_is_found_or_leaves_the_header_unfinished() {
        let header = full();
        for bit in 0..header.len() * 8 {
            let mut bad = header.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let mut reader = HeaderReader::new(Container::Gzip);
            let whole = reader.feed(&bad).is_ok() && reader.is_done();
            // Without its flag, the checksum is not there.
            assert!(!whole || bit == 3 * 8 + 1, "bit {bit}");
        }
    }

    #[test]
    fn zlib_headers_are_checked() {
        for (bytes, good) in [
            ([0x78, 0x9c], true),
            ([0x78, 0x01], true),
            ([0x78, 0x9d], false),
            ([0x78, 0xbb], false),
        ] {
            let fed = HeaderReader::new(Container::Zlib).feed(&bytes);
            assert_eq!(fed.is_ok(), good, "{bytes:x?}");
        }
    }

    #[test]
    fn the_head_that_is_written_is_read_back() {
        let bytes = head(1000, 7);
        assert_eq!(member_head(&bytes), Some((1000, 7)));
        let mut reader = HeaderReader::new(Container::Gzip);
        assert_eq!(reader.feed(&bytes), Ok(HEAD_BYTES));
        assert!(reader.is_done());
        for cut in 0..bytes.len() {
            assert_eq!(member_head(&bytes[..cut]), None);
        }
        assert_eq!(member_head(&head(32, 7)), None, "too short to be a member");
    }
}
