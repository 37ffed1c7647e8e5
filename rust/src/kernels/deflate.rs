//! Compresses data as gzip members that can be found without inflating, and as zlib streams.

use std::cell::RefCell;

use libdeflater::{CompressionLvl, Compressor, crc32};
use zlib_rs::{Deflate, DeflateFlush, Status};

use crate::wire::gzip::{HEAD_BYTES, TRAILER_BYTES, head};
use crate::wire::{Fault, FaultKind};

/// The zlib output buffer grows in steps of this size.
const STEP_BYTES: usize = 64 << 10;

thread_local! {
    /// A compressor has up to several megabytes of tables, so each thread reuses it for many members of a
    /// level.
    static COMPRESSOR: RefCell<Option<(i32, Compressor)>> = const { RefCell::new(None) };
}

#[cold]
fn limit(message: String) -> Fault {
    Fault::new(FaultKind::Limit, 0, message)
}

/// One gzip member of `plain`, which has `num_records` records; level 0 to 12.
pub fn gzip_member(plain: &[u8], num_records: u32, level: i32) -> Result<Vec<u8>, Fault> {
    if plain.is_empty() {
        // TensorFlow treats an empty member as the end of the file.
        return Err(limit("an empty gzip member is never written".to_owned()));
    }
    let Ok(plain_bytes) = u32::try_from(plain.len()) else {
        return Err(limit(format!("{} bytes are too many for one gzip member", plain.len())));
    };
    let wanted = CompressionLvl::new(level)
        .map_err(|_| limit(format!("gzip level {level} is not between 0 and 12")))?;
    COMPRESSOR.with_borrow_mut(|kept| {
        let compressor = match kept {
            Some((kept_level, compressor)) if *kept_level == level => compressor,
            _ => &mut kept.insert((level, Compressor::new(wanted))).1,
        };
        write_member(compressor, plain, plain_bytes, num_records)
    })
}

fn write_member(
    compressor: &mut Compressor,
    plain: &[u8],
    plain_bytes: u32,
    num_records: u32,
) -> Result<Vec<u8>, Fault> {
    let bound = compressor.deflate_compress_bound(plain.len());
    let mut member = vec![0; bound.saturating_add(HEAD_BYTES)];
    let body = member.get_mut(HEAD_BYTES..).unwrap_or_default();
    let deflated = compressor
        .deflate_compress(plain, body)
        .map_err(|error| limit(format!("deflate failed: {error}")))?;
    member.truncate(deflated.saturating_add(HEAD_BYTES));
    let Ok(member_bytes) = u32::try_from(member.len().saturating_add(TRAILER_BYTES)) else {
        return Err(limit(format!("{plain_bytes} bytes are too many for one gzip member")));
    };
    for (to, from) in member.iter_mut().zip(head(member_bytes, num_records)) {
        *to = from;
    }
    member.extend_from_slice(&crc32(plain).to_le_bytes());
    member.extend_from_slice(&plain_bytes.to_le_bytes());
    member.shrink_to_fit();
    Ok(member)
}

/// Writes one zlib stream, or one gzip member, in pieces.
pub struct ZlibDeflater {
    stream: Deflate,
    finished: bool,
}

impl ZlibDeflater {
    /// A new stream, or a gzip member; level 0 to 9.
    pub fn new(level: i32, gzip: bool) -> Result<Self, Fault> {
        if !(0..=9).contains(&level) {
            return Err(limit(format!("zlib level {level} is not between 0 and 9")));
        }
        Ok(Self { stream: Deflate::new(level, true, if gzip { 31 } else { 15 }), finished: false })
    }

    /// Add plain bytes, and return the compressed bytes that are ready, often none.
    pub fn push(&mut self, plain: &[u8]) -> Result<Vec<u8>, Fault> {
        self.write(plain, DeflateFlush::NoFlush)
    }

    /// End the stream, and return the last compressed bytes.
    pub fn finish(&mut self) -> Result<Vec<u8>, Fault> {
        let out = self.write(&[], DeflateFlush::Finish)?;
        self.finished = true;
        Ok(out)
    }

    fn write(&mut self, plain: &[u8], flush: DeflateFlush) -> Result<Vec<u8>, Fault> {
        if self.finished {
            return Err(limit("the zlib stream is finished".to_owned()));
        }
        let (mut out, mut used, mut rest) = (Vec::new(), 0usize, plain);
        loop {
            if out.len().saturating_sub(used) < STEP_BYTES / 2 {
                out.resize(used.saturating_add(STEP_BYTES), 0);
            }
            let room = out.get_mut(used..).unwrap_or_default();
            let (in_before, out_before) = (self.stream.total_in(), self.stream.total_out());
            let status = self
                .stream
                .compress(rest, room, flush)
                .map_err(|error| limit(format!("deflate failed: {}", error.as_str())))?;
            let taken = self.stream.total_in().wrapping_sub(in_before) as usize;
            let given = self.stream.total_out().wrapping_sub(out_before) as usize;
            rest = rest.get(taken..).unwrap_or_default();
            used = used.saturating_add(given);
            let full = used == out.len();
            let ended = match flush {
                DeflateFlush::Finish => status == Status::StreamEnd,
                _ => rest.is_empty() && !full,
            };
            if ended {
                break;
            }
            if taken == 0 && given == 0 && !full {
                return Err(limit("deflate makes no progress".to_owned()));
            }
        }
        out.truncate(used);
        out.shrink_to_fit();
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_input_gives_equal_members_at_every_level() {
        let plain: Vec<u8> = (0..50_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        for level in 0..=12 {
            let one = gzip_member(&plain, 5, level).unwrap();
            assert_eq!(gzip_member(&plain, 5, level).unwrap(), one);
        }
    }

    #[test]
    fn what_cannot_be_a_member_is_refused() {
        assert!(gzip_member(b"", 0, 6).is_err());
        assert!(gzip_member(b"x", 1, 13).is_err());
        assert!(gzip_member(b"x", 1, -1).is_err());
        assert!(ZlibDeflater::new(10, false).is_err());
    }

    #[test]
    fn a_zlib_stream_written_in_pieces_is_one_stream() {
        let plain: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(i) >> 9) as u8).collect();
        for piece in [1000, 70_000, 300_000] {
            let mut deflater = ZlibDeflater::new(6, false).unwrap();
            let mut out = Vec::new();
            for part in plain.chunks(piece) {
                out.extend(deflater.push(part).unwrap());
            }
            out.extend(deflater.finish().unwrap());
            assert!(deflater.push(b"more").is_err());
            let mut back = vec![0; plain.len()];
            let size = libdeflater::Decompressor::new().zlib_decompress(&out, &mut back).unwrap();
            assert!(size == plain.len() && back == plain);
        }
    }

    #[test]
    fn a_gzip_member_written_in_pieces_is_one_member() {
        let plain: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(i) >> 9) as u8).collect();
        let mut deflater = ZlibDeflater::new(6, true).unwrap();
        let mut out = Vec::new();
        for part in plain.chunks(70_000) {
            out.extend(deflater.push(part).unwrap());
        }
        out.extend(deflater.finish().unwrap());
        // The smallest header: without time, name and extra field.
        assert_eq!(&out[..8], &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0]);
        let mut back = vec![0; plain.len()];
        let size = libdeflater::Decompressor::new().gzip_decompress(&out, &mut back).unwrap();
        assert!(size == plain.len() && back == plain);
    }
}
