//! Decompresses the chunks of an HDF5 dataset, one after another.
//!
//! ```text
//! shuffle  all first bytes of the values, then all second ones, ...
//! gzip     a zlib stream
//! lzf      000LLLLL            L + 1 literal bytes follow
//!          LLLooooo oooooooo   L + 2 bytes copied from o + 1 bytes back
//!          111ooooo LLLLLLLL oooooooo   the same of L + 9 bytes
//! ```
//!
//! Filters are undone in the reverse order of the dataset's header. A chunk's mask has a bit for each
//! filter that was skipped. Sources: "HDF5 File Format Specification", 3.0, and liblzf's `lzf_d.c` for the
//! meaning of LZF's bytes.

use libdeflater::{DecompressionError, Decompressor};

use super::buffer_pool;
use super::codec::{MAX_RATIO, no_memory};
use super::parallel_for::parallel_for;
use crate::wire::{Fault, FaultKind};

/// A filter applied to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Byte shuffle: all first bytes of the values, then all second bytes, and so on.
    Shuffle,
    /// A zlib stream.
    Gzip,
    /// LZF, as h5py writes it.
    Lzf,
}

/// How the chunks of a dataset are packed.
#[derive(Clone, Debug)]
pub struct Packing {
    /// In the order in which they were applied.
    pub filters: Vec<Filter>,
    /// Bytes of a whole chunk.
    pub chunk_bytes: usize,
    /// Bytes of a value.
    pub width: usize,
}

/// Decompress the chunks in `data`, one after another, each given as (bytes, mask). A fault has the number
/// of its chunk as its record.
pub fn unpack_chunks(
    data: &[u8],
    chunks: &[(usize, u32)],
    packing: &Packing,
    threads: usize,
) -> Result<Vec<u8>, Fault> {
    if packing.chunk_bytes == 0 {
        return Err(other_size());
    }
    let mut jobs = Vec::with_capacity(chunks.len());
    let mut rest = data;
    for (number, &(size, mask)) in chunks.iter().enumerate() {
        let (chunk, after) = rest
            .split_at_checked(size)
            .ok_or_else(|| fault("is longer than the data that was read").in_record(number))?;
        // Reject impossible sizes before allocating memory for them.
        if size.saturating_add(64).saturating_mul(MAX_RATIO) < packing.chunk_bytes {
            return Err(other_size().in_record(number));
        }
        jobs.push((chunk, mask));
        rest = after;
    }
    let total = packing.chunk_bytes.saturating_mul(chunks.len());
    let mut out = buffer_pool::take_used(total).ok_or_else(|| no_memory(total))?;
    let places = out.chunks_exact_mut(packing.chunk_bytes);
    let jobs = jobs.into_iter().zip(places);
    let state = || (Decompressor::new(), Vec::new());
    parallel_for(jobs, chunks.len(), threads, state, |(engine, scratch), ((chunk, mask), out)| {
        unpack(chunk, mask, packing, engine, scratch, out)
    })?;
    Ok(out)
}

fn unpack(
    chunk: &[u8],
    mask: u32,
    packing: &Packing,
    engine: &mut Decompressor,
    scratch: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<(), Fault> {
    let (mut codec, mut is_shuffled) = (None, false);
    for (bit, filter) in packing.filters.iter().enumerate() {
        let is_left_out = mask.checked_shr(bit as u32).unwrap_or(0) & 1 == 1;
        match filter {
            _ if is_left_out => {}
            Filter::Shuffle => is_shuffled = packing.width > 1,
            other => codec = Some(*other),
        }
    }
    if !is_shuffled {
        return decompress(chunk, codec, engine, out);
    }
    let missing = out.len().saturating_sub(scratch.len());
    scratch.try_reserve_exact(missing).map_err(|_| no_memory(out.len()))?;
    scratch.resize(out.len(), 0);
    decompress(chunk, codec, engine, scratch)?;
    unshuffle(scratch, packing.width, out);
    Ok(())
}

fn decompress(
    chunk: &[u8],
    codec: Option<Filter>,
    engine: &mut Decompressor,
    out: &mut [u8],
) -> Result<(), Fault> {
    let size = match codec {
        None => {
            if chunk.len() == out.len() {
                out.copy_from_slice(chunk);
            }
            Some(chunk.len())
        }
        Some(Filter::Lzf) => lzf(chunk, out),
        Some(_) => match engine.zlib_decompress(chunk, out) {
            Ok(size) => Some(size),
            Err(DecompressionError::InsufficientSpace) => return Err(other_size()),
            Err(DecompressionError::BadData) => return Err(fault("is not a whole zlib stream")),
        },
    };
    match size {
        Some(size) if size == out.len() => Ok(()),
        Some(_) => Err(other_size()),
        None => Err(fault("is not LZF data of the size in the dataset")),
    }
}

/// Decompress LZF. Returns the number of bytes, or None if it ends inside a word, points before its
/// beginning, or does not fit.
fn lzf(mut data: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut at = 0usize;
    while let Some((&control, after)) = data.split_first() {
        data = after;
        let control = usize::from(control);
        if control < 32 {
            let (literal, after) = data.split_at_checked(control.wrapping_add(1))?;
            let end = at.wrapping_add(literal.len());
            // A run has at most 32 bytes. If there is room, it is copied in two moves.
            match (data.first_chunk::<32>(), out.get_mut(at..).and_then(|o| o.first_chunk_mut())) {
                (Some(from), Some(to)) => *to = *from,
                _ => out.get_mut(at..end)?.copy_from_slice(literal),
            }
            (at, data) = (end, after);
            continue;
        }
        let mut length = control >> 5;
        if length == 7 {
            let (&more, after) = data.split_first()?;
            length = length.wrapping_add(usize::from(more));
            data = after;
        }
        let (&low, after) = data.split_first()?;
        data = after;
        let back = ((control & 31) << 8 | usize::from(low)).wrapping_add(1);
        at = repeat(out, at, back, length.wrapping_add(2))?;
    }
    Some(at)
}

/// Copy `length` bytes from `back` bytes before `at`; the ranges may overlap.
fn repeat(out: &mut [u8], at: usize, back: usize, length: usize) -> Option<usize> {
    at.checked_sub(back)?;
    let end = at.checked_add(length).filter(|&end| end <= out.len())?;
    let mut done = at;
    // Eight bytes at a time, which may go beyond the end of the copy but not of the memory.
    while back >= 8 && done < end && done.wrapping_add(8) <= out.len() {
        let word = *out.get(done.wrapping_sub(back)..)?.first_chunk::<8>()?;
        *out.get_mut(done..)?.first_chunk_mut::<8>()? = word;
        done = done.wrapping_add(8);
    }
    let from = done.wrapping_sub(back);
    while done < end {
        // Copy whole periods of the bytes already written, twice as many each round.
        let step = done.wrapping_sub(from).min(end.wrapping_sub(done));
        out.copy_within(from..from.wrapping_add(step), done);
        done = done.wrapping_add(step);
    }
    Some(end)
}

/// Bring the bytes of each value together. Bytes after the last whole value stay at the end.
fn unshuffle(planes: &[u8], width: usize, out: &mut [u8]) {
    let count = planes.len() / width.max(1);
    let mut each = planes.chunks_exact(count.max(1));
    match width {
        2 => {
            let [a, b] = std::array::from_fn(|_| each.next().unwrap_or_default());
            let values = out.as_chunks_mut::<2>().0.iter_mut();
            values.zip(a).zip(b).for_each(|((v, a), b)| *v = [*a, *b]);
        }
        4 => {
            let [a, b, c, d] = std::array::from_fn(|_| each.next().unwrap_or_default());
            let values = out.as_chunks_mut::<4>().0.iter_mut();
            let bytes = a.iter().zip(b).zip(c.iter().zip(d));
            values.zip(bytes).for_each(|(v, ((a, b), (c, d)))| *v = [*a, *b, *c, *d]);
        }
        _ => {
            for (byte, plane) in each.take(width).enumerate() {
                for (value, from) in out.chunks_exact_mut(width).zip(plane) {
                    if let Some(to) = value.get_mut(byte) {
                        *to = *from;
                    }
                }
            }
        }
    }
    let whole = count.wrapping_mul(width);
    if let (Some(to), Some(from)) = (out.get_mut(whole..), planes.get(whole..)) {
        to.copy_from_slice(from);
    }
}

#[cold]
fn fault(message: &str) -> Fault {
    Fault::new(FaultKind::Compression, 0, format!("a chunk {message}"))
}

#[cold]
fn other_size() -> Fault {
    fault("does not inflate to the size in the dataset")
}

/// For any bytes: a fault, or exactly the requested number of bytes.
#[cfg(any(test, fuzzing))]
pub fn fuzz_unpack_chunks(data: &[u8]) {
    let Some((&[how, width, low, high], packed)) = data.split_first_chunk::<4>() else { return };
    let filters = match how & 7 {
        0 => vec![],
        1 => vec![Filter::Gzip],
        2 => vec![Filter::Shuffle, Filter::Gzip],
        3 => vec![Filter::Shuffle],
        4 => vec![Filter::Lzf],
        _ => vec![Filter::Shuffle, Filter::Lzf],
    };
    let width = usize::from(width % 20).max(1);
    let chunk_bytes = usize::from(u16::from_le_bytes([low, high])) / width * width;
    let packing = Packing { filters, chunk_bytes, width };
    let half = packed.len() / 2;
    let chunks = [(half, u32::from(how >> 3)), (packed.len() - half, 0)];
    for threads in [1, 2] {
        if let Ok(out) = unpack_chunks(packed, &chunks, &packing, threads) {
            assert_eq!(out.len(), chunk_bytes * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packing(filters: &[Filter], chunk_bytes: usize, width: usize) -> Packing {
        Packing { filters: filters.to_vec(), chunk_bytes, width }
    }

    fn shuffled(values: &[u8], width: usize) -> Vec<u8> {
        let whole = values.len() / width * width;
        let planes = (0..width).flat_map(|b| values[..whole].iter().skip(b).step_by(width));
        planes.chain(&values[whole..]).copied().collect()
    }

    fn zlib(plain: &[u8]) -> Vec<u8> {
        let mut engine = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
        let mut out = vec![0; engine.zlib_compress_bound(plain.len())];
        let size = engine.zlib_compress(plain, &mut out).unwrap();
        out.truncate(size);
        out
    }

    #[test]
    fn chunks_come_out_in_order_whatever_the_threads_and_filters_left_out() {
        for width in [1, 2, 3, 4, 8, 16] {
            let plain: Vec<Vec<u8>> = (0..5u8)
                .map(|n| (0..48 * 16).map(|i| (i as u8).wrapping_mul(n)).collect())
                .collect();
            let all = packing(&[Filter::Shuffle, Filter::Gzip], 48 * 16, width);
            let packed: Vec<(Vec<u8>, u32)> = plain
                .iter()
                .enumerate()
                .map(|(n, chunk)| match n {
                    0 => (chunk.clone(), 3),
                    1 => (zlib(chunk), 1),
                    2 => (shuffled(chunk, width), 2),
                    _ => (zlib(&shuffled(chunk, width)), 0),
                })
                .collect();
            let data: Vec<u8> = packed.iter().flat_map(|(chunk, _)| chunk.clone()).collect();
            let chunks: Vec<_> = packed.iter().map(|(chunk, mask)| (chunk.len(), *mask)).collect();
            for threads in [1, 3] {
                let out = unpack_chunks(&data, &chunks, &all, threads).unwrap();
                assert_eq!(out, plain.concat(), "width {width}");
            }
        }
    }

    #[test]
    fn lzf_repeats_what_it_has_just_written() {
        let packed = [2, b'a', b'b', b'c', 0b0010_0000, 2, 0b1110_0000, 1, 0, 0, b'!'];
        // Three literals; 3 bytes from 3 back; 10 bytes from 1 back; a literal.
        let plain = b"abcabccccccccccc!";
        let how = packing(&[Filter::Lzf], plain.len(), 1);
        assert_eq!(unpack_chunks(&packed, &[(packed.len(), 0)], &how, 1).unwrap(), plain);
        for (data, bytes) in [
            (&packed[..10], plain.len()),
            (&packed[..2], 1),
            (&[0x20, 0][..], 3),
            (&packed[..], plain.len() - 1),
            (&packed[..], plain.len() + 1),
        ] {
            let how = packing(&[Filter::Lzf], bytes, 1);
            let fault = unpack_chunks(data, &[(data.len(), 0)], &how, 1).unwrap_err();
            assert_eq!((fault.kind, fault.record), (FaultKind::Compression, Some(0)));
        }
    }

    #[test]
    fn lzf_repeats_at_any_distance_up_to_the_end_of_the_room() {
        let start: Vec<u8> = (1..=32).collect();
        for back in 1..=32usize {
            for length in 9..=40usize {
                for more in 0..20usize {
                    let mut plain = start.clone();
                    (0..length).for_each(|_| plain.push(plain[plain.len() - back]));
                    let mut packed = vec![31];
                    packed.extend(&start);
                    packed.extend([0b1110_0000, (length - 9) as u8, (back - 1) as u8]);
                    if more > 0 {
                        packed.push(more as u8 - 1);
                        packed.extend((0..more).map(|n| n as u8 | 0x80));
                        plain.extend((0..more).map(|n| n as u8 | 0x80));
                    }
                    let how = packing(&[Filter::Lzf], plain.len(), 1);
                    let found = unpack_chunks(&packed, &[(packed.len(), 0)], &how, 1).unwrap();
                    assert_eq!(found, plain, "{length} from {back} back, {more} more");
                }
            }
        }
    }

    #[test]
    fn what_no_chunk_can_be_takes_no_memory() {
        let how = packing(&[Filter::Gzip], usize::MAX / 4, 1);
        assert!(unpack_chunks(b"x", &[(1, 0)], &how, 1).is_err());
        assert!(unpack_chunks(b"x", &[(2, 0)], &packing(&[], 2, 1), 1).is_err());
        assert!(unpack_chunks(b"xy", &[(2, 0)], &packing(&[], 1, 1), 1).is_err());
    }

    #[test]
    fn any_bytes_are_taken() {
        let mut state = 1u64;
        for _ in 0..20_000 {
            let mut next = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) as u8
            };
            let length = usize::from(next()) / 2;
            let data: Vec<u8> = (0..length).map(|_| next()).collect();
            fuzz_unpack_chunks(&data);
        }
    }
}
