//! MXNet's RecordIO: parts that begin with a magic number, at multiples of four bytes.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `0xced7230a` |
//! | 4 | 4 | part of a record (3 bits: 0 whole, 1 first, 2 middle, 3 last), length L (29 bits) |
//! | 8 | L | payload, or a piece of it |
//! | 8+L | 0..3 | zeros up to a multiple of four |
//!
//! Where a payload has the magic at a multiple of four, the writer cuts it there and leaves the magic
//! out; the reader puts it back. Source: dmlc-core's recordio.h.

use super::frames::{Candidate, Framing, Step, u32_at};
use super::{Fault, FaultKind};

/// What each part begins with.
pub const MAGIC: u32 = 0xced7_230a;
/// Bytes before the payload of a part.
pub const PART_HEAD: usize = 8;
/// No part is as long.
pub const LENGTH_LIMIT: u32 = 1 << 29;

/// RecordIO: a frame is all parts of one record.
#[derive(Clone, Copy, Debug)]
pub struct RecordIo;

/// One part: its flag, and its length.
#[inline(always)]
fn head(window: &[u8], at: usize) -> Option<(u32, u32, usize)> {
    let word = u32_at(window, at.checked_add(4)?)?;
    Some((u32_at(window, at)?, word >> 29, (word & (LENGTH_LIMIT - 1)) as usize))
}

#[cold]
fn broken(at: usize, message: &str) -> Step {
    Step::Broken(Fault::new(FaultKind::Framing, at as u64, message))
}

impl Framing for RecordIo {
    #[inline(always)]
    fn next(self, window: &[u8], _last: bool) -> Step {
        let mut at = 0usize;
        loop {
            let Some((magic, flag, length)) = head(window, at) else {
                return Step::Need(at.wrapping_add(PART_HEAD) as u64);
            };
            if magic != MAGIC {
                return broken(at, "no RecordIO magic number stands here");
            }
            if (flag < 2) != (at == 0) || flag > 3 {
                return broken(at, "the parts of a record are out of order");
            }
            let end = at.wrapping_add(PART_HEAD).wrapping_add(length.next_multiple_of(4));
            if end > window.len() {
                return Step::Need(end as u64);
            }
            if flag == 0 || flag == 3 {
                return Step::Frame { payload: 0, length: end, total: end };
            }
            at = end;
        }
    }

    fn find(self, window: &[u8], from: usize) -> Option<Candidate> {
        let bytes = MAGIC.to_le_bytes();
        (from..window.len().saturating_sub(PART_HEAD - 1)).find_map(|at| {
            let rest = window.get(at..)?;
            if !rest.starts_with(&bytes) {
                return None;
            }
            match self.next(rest, false) {
                Step::Frame { total, .. } => Some(Candidate { at, total: total as u64 }),
                Step::Need(total) => Some(Candidate { at, total }),
                _ => None,
            }
        })
    }
}

/// The pieces of a payload: those of a whole frame that `RecordIo` found.
pub fn pieces(frame: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = 0usize;
    std::iter::from_fn(move || {
        let (_, _, length) = head(frame, at)?;
        let start = at.wrapping_add(PART_HEAD);
        let piece = frame.get(start..start.checked_add(length)?)?;
        at = start.wrapping_add(length.next_multiple_of(4));
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        digits.chunks(2).map(|pair| byte(pair).unwrap()).collect()
    }

    fn payload(frame: &[u8]) -> Vec<u8> {
        pieces(frame).collect::<Vec<_>>().join(&MAGIC.to_le_bytes()[..])
    }

    #[test]
    fn the_published_records_are_read() {
        let magic = bytes("0a23d7ce");
        let cases: [(&[u8], &str); 6] = [
            (b"", "0a23d7ce 00000000"),
            (b"a", "0a23d7ce 01000000 61000000"),
            (b"hello", "0a23d7ce 05000000 68656c6c 6f000000"),
            (&magic, "0a23d7ce 00000020 0a23d7ce 00000060"),
            (b"ab\x0a\x23\xd7\xce", "0a23d7ce 06000000 61620a23 d7ce0000"),
            (b"abcd\x0a\x23\xd7\xceefg", "0a23d7ce 04000020 61626364 0a23d7ce 03000060 65666700"),
        ];
        for (wanted, hex) in cases {
            let frame = bytes(hex);
            let whole = Step::Frame { payload: 0, length: frame.len(), total: frame.len() };
            assert_eq!(RecordIo.next(&frame, true), whole);
            assert_eq!(payload(&frame), wanted);
            for end in 1..frame.len() {
                assert!(matches!(RecordIo.next(&frame[..end], true), Step::Need(_)), "{end}");
            }
        }
    }

    #[test]
    fn parts_out_of_order_are_broken() {
        for hex in ["0a23d7ce 00000040", "0a23d7ce 00000060", "0a23d7ce 00000080"] {
            assert!(matches!(RecordIo.next(&bytes(hex), true), Step::Broken(_)));
        }
        let first_then_whole = bytes("0a23d7ce 00000020 0a23d7ce 00000000");
        assert!(matches!(RecordIo.next(&first_then_whole, true), Step::Broken(_)));
    }
}
