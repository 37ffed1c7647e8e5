//! Tar archives: headers of 512 bytes, and the members they describe.
//!
//! ```text
//! offset  size  field
//! 0       100   name                  to the first NUL
//! 124     12    size                  octal text, or base 256 if the first bit is set
//! 148     8     checksum              sum of the header's bytes, with these eight as spaces
//! 156     1     type                  '0', NUL or '7': a regular file
//! 257     6     magic                 "ustar\0", or "ustar " of GNU, or nothing (version 7)
//! 345     155   prefix                of the name, if the magic is "ustar\0"
//! ```
//!
//! The contents follow, padded to 512 bytes. Members of type `L` (GNU) and `x` (PAX) have facts about the
//! next member: a longer name, a different size. Two blocks of zeros end an archive. Source: POSIX.1-2017,
//! pax; the GNU tar manual.

use std::borrow::Cow;

use super::{Fault, FaultKind};

pub use self::framing::Tar;

/// Headers and paddings are multiples of this.
pub const BLOCK: usize = 512;
/// The most bytes of a member that only describes the next member.
const MOST_DESCRIPTION: u64 = 1 << 20;
/// How many such members may precede a member.
const MOST_DESCRIPTIONS: usize = 16;

/// What is at the front of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Head<'a> {
    /// A block of zeros: the archive ends here, or has ended.
    Zeros,
    /// A member.
    Member(Member<'a>),
    /// At least this many bytes are needed.
    Need(u64),
    /// The bytes break the rules.
    Broken(Fault),
}

/// A member, with the facts from PAX headers. Offsets are relative to the front.
#[derive(Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its name, as bytes.
    pub name: Cow<'a, [u8]>,
    /// Whether it is a regular file.
    pub is_file: bool,
    /// Where its contents start.
    pub contents: usize,
    /// Bytes of its contents.
    pub length: u64,
    /// Bytes up to the next header.
    pub total: u64,
}

/// A member's name, divided into a record's key and the name of a field, which is not lower-cased yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// The name up to the first dot of its last part.
    pub key: &'a [u8],
    /// The rest after this dot.
    pub field: &'a [u8],
}

/// Split a member's name as WebDataset does; None if the member belongs to no record.
pub fn split(name: &[u8]) -> Option<Name<'_>> {
    let first = name.split(|&byte| byte == b'/').next().unwrap_or_default();
    if first.len() >= 4 && first.starts_with(b"__") && first.ends_with(b"__") {
        return None;
    }
    let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash.wrapping_add(1));
    let dot = base.wrapping_add(name.get(base..)?.iter().position(|&byte| byte == b'.')?);
    if dot == base {
        // A name like `folder/.x` has the key `folder/`, if `folder` has no dot.
        let folder = name.get(..base.checked_sub(1)?)?;
        if folder.rsplit(|&byte| byte == b'/').next()?.contains(&b'.') {
            return None;
        }
    }
    Some(Name { key: name.get(..dot)?, field: name.get(dot.wrapping_add(1)..)? })
}

/// Whether a header's stored checksum is right: the sum of its bytes, with the checksum's bytes taken as
/// spaces. Some old programs summed the bytes as signed numbers.
#[inline]
fn sums_to(block: &[u8; BLOCK], stored: i64) -> bool {
    let own = block.get(148..156).unwrap_or_default();
    let spaces = sum(block).wrapping_sub(sum(own)).wrapping_add(8 * 32);
    if i64::from(spaces) == stored {
        return true;
    }
    let high = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte >= 0x80).count() as i64;
    let signs = high(block).wrapping_sub(high(own)).wrapping_mul(256);
    i64::from(spaces).wrapping_sub(signs) == stored
}

/// The sum of at most 512 bytes; their number is a multiple of eight. Pairs of bytes are added in
/// 16-bit lanes, which cannot overflow with that few bytes.
#[inline]
fn sum(bytes: &[u8]) -> u32 {
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    let lanes = bytes.as_chunks::<8>().0.iter().fold(0u64, |lanes, word| {
        let word = u64::from_le_bytes(*word);
        lanes.wrapping_add(word & EVEN).wrapping_add((word >> 8) & EVEN)
    });
    let lane = |shift: u32| (lanes >> shift) as u32 & 0xffff;
    lane(0).wrapping_add(lane(16)).wrapping_add(lane(32)).wrapping_add(lane(48))
}

/// A number of a header: octal text, or base 256.
fn number(field: &[u8]) -> Option<u64> {
    let (&first, rest) = field.split_first()?;
    if first == 0x80 {
        return rest
            .iter()
            .try_fold(0u64, |value, &byte| value.checked_mul(256)?.checked_add(u64::from(byte)));
    }
    let text = text(field).trim_ascii();
    text.iter().try_fold(0u64, |value, &byte| match byte {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(u64::from(byte.wrapping_sub(b'0'))),
        _ => None,
    })
}

/// A text of a header: up to the first NUL.
fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// The length of contents with their padding.
fn padded(length: u64) -> u64 {
    length.checked_next_multiple_of(BLOCK as u64).unwrap_or(u64::MAX)
}

/// Facts about a member, from the members before it that describe it. The first fact of each kind
/// counts.
#[derive(Default)]
struct Said<'a> {
    name: Option<&'a [u8]>,
    length: Option<u64>,
}

#[cold]
fn broken(message: &'static str) -> Fault {
    Fault::new(FaultKind::Framing, 0, message)
}

/// The member, or whatever else is at the front of `bytes`.
#[inline]
pub fn head(bytes: &[u8]) -> Head<'_> {
    let mut said = Said::default();
    let mut at = 0;
    for _ in 0..=MOST_DESCRIPTIONS {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(block) = rest.first_chunk::<BLOCK>() else {
            return Head::Need(at.wrapping_add(BLOCK) as u64);
        };
        let (kind, size) = match checked(block) {
            Ok(Some(found)) => found,
            Ok(None) if at == 0 => return Head::Zeros,
            Ok(None) => {
                let message = "the archive ends between a member's descriptions and the member";
                return Head::Broken(broken(message).shifted(at as u64));
            }
            Err(fault) => return Head::Broken(fault.shifted(at as u64)),
        };
        if !matches!(kind, b'L' | b'K' | b'x' | b'X' | b'g') {
            return match member(block, kind, size, at, &said) {
                Ok(member) => Head::Member(member),
                Err(fault) => Head::Broken(fault.shifted(at as u64)),
            };
        }
        if size > MOST_DESCRIPTION {
            let message = "a description of a member is too long";
            let fault = Fault::new(FaultKind::Limit, at as u64, message);
            return Head::Broken(fault.values(MOST_DESCRIPTION, size));
        }
        let total = (BLOCK as u64).saturating_add(padded(size)) as usize;
        let Some(contents) = rest.get(BLOCK..total).and_then(|part| part.get(..size as usize))
        else {
            return Head::Need(at.saturating_add(total) as u64);
        };
        if let Err(fault) = said.hear(kind, contents) {
            return Head::Broken(fault.shifted(at as u64));
        }
        at = at.saturating_add(total);
    }
    Head::Broken(broken("too many descriptions of one member"))
}

/// The type and size that a header has, if its checksum is right; None for a block of zeros.
#[inline]
fn checked(block: &[u8; BLOCK]) -> Result<Option<(u8, u64)>, Fault> {
    if block.first() == Some(&0) && block.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let field = |from: usize, to: usize| block.get(from..to).unwrap_or_default();
    let stored = number(field(148, 156)).and_then(|number| i64::try_from(number).ok());
    if !stored.is_some_and(|stored| sums_to(block, stored)) {
        let message = "there is no header of a tar member here";
        return Err(Fault::new(FaultKind::Framing, 0, message));
    }
    let kind = block.get(156).copied().unwrap_or_default();
    match number(field(124, 136)) {
        Some(size) => Ok(Some((kind, size))),
        None => Err(broken("the size of a member is not a number").shifted(124)),
    }
}

fn member<'a>(
    block: &'a [u8; BLOCK],
    kind: u8,
    size: u64,
    at: usize,
    said: &Said<'a>,
) -> Result<Member<'a>, Fault> {
    let field = |from: usize, to: usize| block.get(from..to).unwrap_or_default();
    let own = text(field(0, 100));
    let prefix = match field(257, 263) {
        b"ustar\0" => text(field(345, 500)),
        _ => b"",
    };
    let name = match said.name {
        Some(name) => Cow::Borrowed(name),
        None if prefix.is_empty() => Cow::Borrowed(own),
        None => Cow::Owned([prefix, b"/", own].concat()),
    };
    if kind == b'S' {
        let message = "a sparse member, which penstock cannot read";
        return Err(Fault::new(FaultKind::Unsupported, 0, message));
    }
    let length = said.length.unwrap_or(size);
    let is_folder = kind == 0 && own.last() == Some(&b'/');
    let is_file = matches!(kind, b'0' | b'7' | 0) && !is_folder;
    // Links, devices and folders have no contents, whatever size the header has.
    let has_contents = is_file || !(matches!(kind, b'1'..=b'6') || is_folder);
    let contents = at.saturating_add(BLOCK);
    let body = if has_contents { padded(length) } else { 0 };
    let total = (contents as u64).saturating_add(body);
    Ok(Member { name, is_file, contents, length, total })
}

impl<'a> Said<'a> {
    fn hear(&mut self, kind: u8, contents: &'a [u8]) -> Result<(), Fault> {
        match kind {
            b'L' => {
                self.name.get_or_insert(text(contents));
                Ok(())
            }
            b'K' => Ok(()),
            _ => self.hear_pax(contents, kind == b'g'),
        }
    }

    /// Lines of `length key=value\n`. The length is that of the whole line.
    fn hear_pax(&mut self, mut lines: &'a [u8], is_global: bool) -> Result<(), Fault> {
        while lines.first().is_some_and(|&byte| byte != 0) {
            let (key, value, rest) =
                pax_line(lines).ok_or_else(|| broken("a PAX header has an invalid line"))?;
            lines = rest;
            if key.starts_with(b"GNU.sparse.") {
                let message = "a sparse member, which penstock cannot read";
                return Err(Fault::new(FaultKind::Unsupported, 0, message));
            }
            if is_global && matches!(key, b"path" | b"size") {
                let message = "a global PAX header gives all members the same name or size";
                return Err(Fault::new(FaultKind::Unsupported, 0, message));
            }
            match key {
                b"path" => {
                    let end = value.iter().rposition(|&byte| byte != b'/');
                    let name = value.get(..=end.unwrap_or(0)).unwrap_or_default();
                    self.name.get_or_insert(name);
                }
                b"size" => {
                    let length =
                        decimal(value).ok_or_else(|| broken("a PAX size is not a number"))?;
                    self.length.get_or_insert(length);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The first line of a PAX header: key, value, and the rest.
pub fn pax_line(lines: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let blank = lines.iter().take(20).position(|&byte| byte == b' ')?;
    let length = usize::try_from(decimal(lines.get(..blank)?)?).ok()?;
    let line = lines.get(blank.wrapping_add(1)..length)?.strip_suffix(b"\n")?;
    let equals = line.iter().position(|&byte| byte == b'=')?;
    let (key, value) = (line.get(..equals)?, line.get(equals.wrapping_add(1)..)?);
    (!key.is_empty()).then_some((key, value, lines.get(length..)?))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &byte| match byte {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(byte.wrapping_sub(b'0'))),
        _ => None,
    })
}

/// Iterates over bytes that consist of whole members. It ends at the first bytes that are not a member.
pub struct Members<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The members of a frame that `Tar` found.
pub fn members(frame: &[u8]) -> Members<'_> {
    Members { bytes: frame, at: 0 }
}

/// The end of the last member of a frame. The zeros that end an archive may follow.
pub fn end_of_members(frame: &[u8]) -> usize {
    let mut found = members(frame);
    let mut end = 0;
    while found.next().is_some() {
        end = found.at();
    }
    end
}

impl Members<'_> {
    /// The start of the next member, or of the headers that describe it.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Whether all bytes belonged to members.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.at == self.bytes.len()
    }
}

impl<'a> Iterator for Members<'a> {
    /// A member and its contents.
    type Item = (Member<'a>, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.bytes.get(self.at..)?;
            match head(rest) {
                Head::Zeros => self.at = self.at.wrapping_add(BLOCK),
                Head::Member(member) => {
                    let end = member.contents.checked_add(usize::try_from(member.length).ok()?)?;
                    let contents = match member.is_file {
                        true => rest.get(member.contents..end)?,
                        false => b"",
                    };
                    self.at = self.at.checked_add(usize::try_from(member.total).ok()?)?;
                    return Some((member, contents));
                }
                Head::Need(_) | Head::Broken(_) => return None,
            }
        }
    }
}

mod framing;
#[cfg(test)]
mod tests;
