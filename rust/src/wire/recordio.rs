//! MXNet's RecordIO: parts that begin with a magic number, at multiples of four bytes.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `0xced7230a` |
//! | 4 | 4 | part of a record (3 bits: 0 whole, 1 first, 2 middle, 3 last), length L (29 bits) |
//! | 8 | L | payload, or a piece of it |
//! | 8+L | 0..3 | zeros up to a multiple of four |
//!
//! If a payload has the magic at a multiple of four, the writer splits it there and leaves the magic out;
//! the reader puts it back. Source: dmlc-core's recordio.h.

use super::frames::{Candidate, Framing, Skim, Skip, Step, u32_at};
use super::{Fault, FaultKind};

/// The beginning of each part.
pub const MAGIC: u32 = 0xced7_230a;
/// Bytes before the payload of a part.
pub const PART_HEAD: usize = 8;
/// Parts are shorter than this.
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

/// The maximum number of parts that are followed from a position that may be the beginning of a
/// record. Without a limit, the time could grow with the square of the window, because many such
/// positions may lead into the same parts.
const FOLLOWED_PARTS: usize = 64;

/// The frame at the front of a window, if it has at most this many parts.
#[inline(always)]
fn next_of(window: &[u8], most_parts: usize) -> Step {
    let mut at = 0usize;
    for _ in 0..most_parts {
        let Some((magic, flag, length)) = head(window, at) else {
            return Step::Need(at.wrapping_add(PART_HEAD) as u64);
        };
        if magic != MAGIC {
            return broken(at, "there is no RecordIO magic number here");
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
    Step::Need(at.wrapping_add(PART_HEAD) as u64)
}

impl Framing for RecordIo {
    #[inline(always)]
    fn next(self, window: &[u8], _last: bool) -> Step {
        next_of(window, usize::MAX)
    }

    fn skim(self, state: &mut Skim, window: &[u8], _last: bool) -> Skip {
        let refuse = |message| match broken(0, message) {
            Step::Broken(fault) => Skip::Broken(fault),
            _ => Skip::More(PART_HEAD),
        };
        let Some((magic, flag, length)) = head(window, 0) else {
            return Skip::More(PART_HEAD);
        };
        if magic != MAGIC {
            return refuse("there is no RecordIO magic number here");
        }
        if (flag < 2) == state.begun || flag > 3 {
            return refuse("the parts of a record are out of order");
        }
        state.begun = true;
        let end = PART_HEAD.wrapping_add(length.next_multiple_of(4)) as u64;
        if flag == 0 || flag == 3 { Skip::End(end) } else { Skip::On(end) }
    }

    fn find(self, window: &[u8], from: usize) -> Option<Candidate> {
        let bytes = MAGIC.to_le_bytes();
        (from..window.len().saturating_sub(PART_HEAD - 1)).find_map(|at| {
            let rest = window.get(at..)?;
            if !rest.starts_with(&bytes) {
                return None;
            }
            match next_of(rest, FOLLOWED_PARTS) {
                Step::Frame { total, .. } => Some(Candidate { at, total: total as u64 }),
                Step::Need(total) => Some(Candidate { at, total }),
                _ => None,
            }
        })
    }
}

/// The pieces of the payload of a whole frame, which `RecordIo` found.
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

/// The payload of a frame of one part, in place.
#[inline(always)]
pub fn only_piece(frame: &[u8]) -> Option<&[u8]> {
    match head(frame, 0)? {
        (_, 0, length) => frame.get(PART_HEAD..PART_HEAD.checked_add(length)?),
        _ => None,
    }
}

/// Append the payload of a frame of any number of parts.
pub fn join(frame: &[u8], out: &mut Vec<u8>) {
    for (number, piece) in pieces(frame).enumerate() {
        if number > 0 {
            out.extend_from_slice(&MAGIC.to_le_bytes());
        }
        out.extend_from_slice(piece);
    }
}

/// Append a payload as a frame, split wherever the magic is at a multiple of four bytes. The
/// payload is passed in two parts, the first of which consists of whole words.
pub fn write_frame(out: &mut Vec<u8>, words: &[u8], rest: &[u8]) {
    let mut part = out.len();
    out.extend_from_slice(&[0; PART_HEAD]);
    let mut is_cut = false;
    for mut left in [words, rest] {
        while let Some(at) = next_magic(left) {
            let (piece, after) = left.split_at_checked(at).unwrap_or_default();
            out.extend_from_slice(piece);
            close_part(out, part, if is_cut { 2 } else { 1 });
            is_cut = true;
            part = out.len();
            out.extend_from_slice(&[0; PART_HEAD]);
            left = after.get(4..).unwrap_or_default();
        }
        out.extend_from_slice(left);
    }
    close_part(out, part, if is_cut { 3 } else { 0 });
    let padded = out.len().next_multiple_of(4);
    out.resize(padded, 0);
}

fn close_part(out: &mut [u8], part: usize, flag: u32) {
    let length = out.len().wrapping_sub(part).wrapping_sub(PART_HEAD) as u32;
    let word = flag << 29 | length;
    if let Some(head) = out.get_mut(part..).and_then(|rest| rest.first_chunk_mut::<PART_HEAD>()) {
        let (magic, lrec) = head.split_at_mut(4);
        magic.copy_from_slice(&MAGIC.to_le_bytes());
        lrec.copy_from_slice(&word.to_le_bytes());
    }
}

/// The first magic at a multiple of four bytes.
#[inline]
fn next_magic(payload: &[u8]) -> Option<usize> {
    let is_magic = |word: &[u8; 4]| u32::from_le_bytes(*word) == MAGIC;
    let (words, _) = payload.as_chunks::<4>();
    // Sixteen words are compared at a time, without a branch for each word.
    let block = words.chunks(16).position(|b| b.iter().fold(false, |any, w| any | is_magic(w)))?;
    let first = block.wrapping_mul(16);
    let inside = words.get(first..)?.iter().position(is_magic)?;
    Some(first.wrapping_add(inside).wrapping_mul(4))
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
        let mut out = Vec::new();
        join(frame, &mut out);
        out
    }

    fn written(words: &[u8], rest: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write_frame(&mut out, words, rest);
        out
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
            assert_eq!(only_piece(&frame).is_none(), frame[7] >> 5 != 0);
            for cut in (0..=wanted.len()).step_by(4) {
                assert_eq!(written(&wanted[..cut], &wanted[cut..]), frame);
            }
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
