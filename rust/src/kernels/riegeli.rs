//! Unpacks chunks of Riegeli files: from ranges of a file to the records in them.

use std::io::Read;

use arrow_buffer::Buffer;
use zstd_safe::{DCtx, WriteBuf};

use crate::kernels::buffer_pool;
use crate::kernels::walk::Frames;
use crate::wire::cursor::Cursor;
use crate::wire::frames::AnyFraming;
use crate::wire::riegeli::{Blocks, Head};
use crate::wire::{Fault, FaultKind, varint};

/// The position of a chunk, and the facts about it in an index.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// Its start in the buffer.
    pub start: usize,
    /// The maximum number of its bytes in the buffer.
    pub length: usize,
    /// Its start in the file.
    pub offset: u64,
    /// The number of its records, and their bytes, if they are known.
    pub known: Option<(u64, u64)>,
}

/// Limits, and whether hashes are verified.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one record.
    pub record: u64,
    /// Bytes of the records of one chunk.
    pub chunk: u64,
    /// Whether the data of the chunks is compared with its hash.
    pub check: bool,
}

/// The records of some chunks, in this order. A fault names the first record of its chunk.
pub fn unpack(buffer: &Buffer, chunks: &[Stretch], limits: Limits) -> Result<Frames, Fault> {
    let mut unpacker = Unpacker { limits, ..Unpacker::default() };
    // The heads first, so that the total size is known, because a growing vector would be copied.
    let mut room = 0usize;
    for chunk in chunks {
        let head = stretch(buffer, chunk)?.head().ok();
        let size = head.map_or(0, |head| head.decoded_size.min(limits.chunk));
        room = room.saturating_add(size as usize).saturating_add(chunk.length.min(16));
    }
    unpacker.bytes = buffer_pool::take(room).ok_or_else(|| no_memory(0, room as u64))?;
    let mut places = Vec::new();
    for chunk in chunks {
        let first = unpacker.spans.len();
        let one = |unpacker: &mut Unpacker| unpacker.chunk(stretch(buffer, chunk)?, chunk);
        one(&mut unpacker).map_err(|fault| fault.in_record(first))?;
        places.resize(unpacker.spans.len(), chunk.offset);
    }
    let buffer = buffer_pool::pooled(unpacker.bytes);
    let kind = AnyFraming::Bare;
    let (spans, places) = (unpacker.spans, Some(places.into()));
    Ok(Frames { kind, buffer, base: 0, spans, places })
}

fn stretch<'a>(buffer: &'a Buffer, chunk: &Stretch) -> Result<Blocks<'a>, Fault> {
    let end = chunk.start.saturating_add(chunk.length);
    match buffer.get(chunk.start..end) {
        Some(data) => Ok(Blocks::new(data, chunk.offset)),
        None => Err(Fault::new(FaultKind::Truncated, chunk.offset, "the file ends before a chunk")),
    }
}

#[cold]
fn no_memory(place: u64, size: u64) -> Fault {
    let message = format!("no memory for {size} bytes");
    Fault::new(FaultKind::Limit, place, message)
}

#[cold]
fn broken(place: u64, message: &str) -> Fault {
    Fault::new(FaultKind::Structure, place, message)
}

struct Unpacker {
    limits: Limits,
    bytes: Vec<u8>,
    spans: Vec<(usize, usize)>,
    joined: Vec<u8>,
    sizes: Vec<u8>,
    zstd: Option<DCtx<'static>>,
}

impl Default for Unpacker {
    fn default() -> Self {
        let limits = Limits { record: 0, chunk: 0, check: true };
        let (bytes, spans, joined, sizes) = <_>::default();
        Self { limits, bytes, spans, joined, sizes, zstd: None }
    }
}

impl Unpacker {
    fn chunk(&mut self, mut blocks: Blocks<'_>, chunk: &Stretch) -> Result<(), Fault> {
        let place = chunk.offset;
        let head = blocks.head()?;
        match head.kind {
            b'r' => {}
            b't' => {
                let message = "the chunk is transposed, which penstock cannot read; write it with transpose:false";
                return Err(Fault::new(FaultKind::Unsupported, place, message));
            }
            // A signature, metadata or padding has no records.
            b's' | b'm' | b'p' if head.num_records == 0 => return self.known(&head, chunk),
            _ => return Err(broken(place, "the chunk is of an unknown kind")),
        }
        self.known(&head, chunk)?;
        if head.decoded_size > self.limits.chunk {
            let message = "the chunk is beyond the limit member_bytes";
            let fault = Fault::new(FaultKind::Limit, place, message);
            return Err(fault.values(self.limits.chunk, head.decoded_size));
        }
        let mut pieces = Vec::new();
        blocks.take(head.data_size, &mut pieces)?;
        // A chunk is padded until it has at least one byte for each record.
        if head.num_records > chunk.length as u64 {
            return Err(broken(place, "the chunk has more records than bytes"));
        }
        if self.limits.check {
            let found = crate::wire::riegeli::hash(&pieces);
            if found != head.data_hash {
                let message = "the hash of a chunk's data does not match";
                let fault = Fault::new(FaultKind::DataChecksum, place, message);
                return Err(fault.values(head.data_hash, found));
            }
        }
        match pieces.first().and_then(|piece| piece.first()) {
            Some(0) => self.plain(&pieces, &head, place),
            Some(&codec @ (b'z' | b'b' | b's')) => self.packed(codec, &pieces, &head, place),
            Some(_) => Err(broken(place, "the chunk is compressed with an unknown codec")),
            None => Err(broken(place, "the chunk has no data")),
        }
    }

    /// Compare a head with the facts in the index.
    fn known(&self, head: &Head, chunk: &Stretch) -> Result<(), Fault> {
        let Some((records, bytes)) = chunk.known else { return Ok(()) };
        let (expected, found) = match head.num_records == records {
            true => (bytes, head.decoded_size),
            false => (records, head.num_records),
        };
        if expected == found {
            return Ok(());
        }
        Err(broken(chunk.offset, "the chunk contradicts the footer").values(expected, found))
    }

    /// An uncompressed chunk: everything is copied once, with its sizes.
    fn plain(&mut self, pieces: &[&[u8]], head: &Head, place: u64) -> Result<(), Fault> {
        let before = self.bytes.len();
        let size = pieces.iter().map(|piece| piece.len()).sum();
        self.bytes.try_reserve(size).map_err(|_| no_memory(place, size as u64))?;
        pieces.iter().for_each(|piece| self.bytes.extend_from_slice(piece));
        let data = self.bytes.get(before..).unwrap_or_default();
        let mut cursor = Cursor::new(data);
        cursor.u8()?;
        let sizes = cursor.length_prefixed().map_err(|fault| fault.shifted(place))?;
        let start = before.saturating_add(cursor.offset());
        lay_out(&mut self.spans, sizes, start, self.bytes.len(), head, self.limits, place)
    }

    fn packed(
        &mut self,
        codec: u8,
        pieces: &[&[u8]],
        head: &Head,
        place: u64,
    ) -> Result<(), Fault> {
        let mut joined = std::mem::take(&mut self.joined);
        let data = match pieces {
            [one] => one,
            _ => {
                joined.clear();
                pieces.iter().for_each(|piece| joined.extend_from_slice(piece));
                joined.as_slice()
            }
        };
        let mut cursor = Cursor::new(data);
        cursor.u8()?;
        let packed_sizes = cursor.length_prefixed().map_err(|fault| fault.shifted(place))?;
        let mut sizes = std::mem::take(&mut self.sizes);
        sizes.clear();
        // A size is a varint of at most ten bytes.
        let most = head.num_records.saturating_mul(10);
        self.inflate(codec, packed_sizes, most, &mut sizes, place)?;
        let mut bytes = std::mem::take(&mut self.bytes);
        let start = bytes.len();
        self.inflate(codec, cursor.rest(), head.decoded_size, &mut bytes, place)?;
        self.bytes = bytes;
        lay_out(&mut self.spans, &sizes, start, self.bytes.len(), head, self.limits, place)?;
        (self.joined, self.sizes) = (joined, sizes);
        Ok(())
    }

    /// Append the plain bytes of a block, at most `most`.
    fn inflate(
        &mut self,
        codec: u8,
        block: &[u8],
        most: u64,
        bytes: &mut Vec<u8>,
        place: u64,
    ) -> Result<(), Fault> {
        let bad = || Fault::new(FaultKind::Compression, place, "the compressed data is damaged");
        let (size, taken) = varint::read(block).ok_or_else(bad)?;
        if size > most {
            return Err(broken(place, "a block is longer than its chunk says").values(most, size));
        }
        let data = block.get(taken..).unwrap_or_default();
        let size = usize::try_from(size).map_err(|_| bad())?;
        bytes.try_reserve(size).map_err(|_| no_memory(place, size as u64))?;
        let start = bytes.len();
        match codec {
            b'z' => {
                let context = match &mut self.zstd {
                    Some(context) => context,
                    none => none.insert(DCtx::try_create().ok_or_else(|| no_memory(place, 0))?),
                };
                let mut room = Room { bytes, start, size };
                context.decompress(&mut room, data).map_err(|_| bad())?;
            }
            b'b' => {
                let reader = brotli_decompressor::Decompressor::new(data, 4096);
                let limit = (size as u64).saturating_add(1);
                reader.take(limit).read_to_end(bytes).map_err(|_| bad())?;
            }
            _ => {
                if snap::raw::decompress_len(data).ok() != Some(size) {
                    return Err(bad());
                }
                bytes.resize(start.saturating_add(size), 0);
                let room = bytes.get_mut(start..).unwrap_or_default();
                snap::raw::Decoder::new().decompress(data, room).map_err(|_| bad())?;
            }
        }
        if bytes.len().checked_sub(start) == Some(size) { Ok(()) } else { Err(bad()) }
    }
}

/// The records of a chunk, by their sizes. They fill the bytes from `start` to `end`.
fn lay_out(
    spans: &mut Vec<(usize, usize)>,
    sizes: &[u8],
    start: usize,
    end: usize,
    head: &Head,
    limits: Limits,
    place: u64,
) -> Result<(), Fault> {
    let misfit = || broken(place, "the sizes of the records are not those of the chunk");
    if end.checked_sub(start).map(|size| size as u64) != Some(head.decoded_size) {
        return Err(misfit());
    }
    spans.reserve((head.num_records as usize).min(sizes.len()));
    let mut cursor = Cursor::new(sizes);
    let mut at = start;
    for _ in 0..head.num_records {
        let size = cursor.varint().map_err(|_| misfit())?;
        if size > limits.record {
            let fault = Fault::new(FaultKind::Limit, place, "the record is too large");
            return Err(fault.values(limits.record, size));
        }
        let next = usize::try_from(size).ok().and_then(|size| at.checked_add(size));
        let Some(next) = next.filter(|next| *next <= end) else { return Err(misfit()) };
        spans.push((at, size as usize));
        at = next;
    }
    if at == end && cursor.is_empty() { Ok(()) } else { Err(misfit()) }
}

/// Reserved capacity for `size` more bytes after the `start` bytes of a vector.
struct Room<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
    size: usize,
}

// SAFETY: the pointer is to `capacity()` reserved bytes, and the length grows only by the bytes that were
// written.
unsafe impl WriteBuf for Room<'_> {
    fn as_slice(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    fn capacity(&self) -> usize {
        self.bytes.capacity().saturating_sub(self.start).min(self.size)
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.spare_capacity_mut().as_mut_ptr().cast()
    }

    unsafe fn filled_until(&mut self, n: usize) {
        // SAFETY: the caller has written `n` bytes after `start`.
        unsafe { self.bytes.set_len(self.start.saturating_add(n)) }
    }
}

// -- the end of an ArrayRecord file ---------------------------------------------------------------

/// The varint fields of a small message, 0 for missing fields; other fields are skipped.
pub fn numbers<const N: usize>(message: &[u8], fields: [u64; N]) -> Result<[u64; N], Fault> {
    let mut values = [0; N];
    let mut cursor = Cursor::new(message);
    while !cursor.is_empty() {
        let tag = cursor.varint()?;
        let value = match tag & 7 {
            0 => cursor.varint()?,
            1 => cursor.u64_le()?,
            2 => cursor.length_prefixed()?.len() as u64,
            5 => u64::from(cursor.u32_le()?),
            _ => return Err(Fault::new(FaultKind::Message, 0, "a field of an unknown type")),
        };
        let places = fields.iter().zip(values.iter_mut());
        places.filter(|(field, _)| **field == tag >> 3).for_each(|(_, slot)| *slot = value);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::riegeli::hash;

    const ALL: Limits = Limits { record: 1 << 30, chunk: 1 << 30, check: true };

    /// A chunk at byte 64 of a file, with correct hashes.
    fn chunk(data: &[u8], num_records: u64, decoded_size: u64) -> Vec<u8> {
        let mut rest = Vec::new();
        rest.extend((data.len() as u64).to_le_bytes());
        rest.extend(hash(&[data]).to_le_bytes());
        rest.extend((num_records << 8 | u64::from(b'r')).to_le_bytes());
        rest.extend(decoded_size.to_le_bytes());
        let mut chunk = hash(&[&rest]).to_le_bytes().to_vec();
        chunk.extend(rest);
        chunk.extend(data);
        chunk
    }

    fn unpacked(chunk: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
        let buffer = Buffer::from(chunk.to_vec());
        let whole = Stretch { start: 0, length: chunk.len(), offset: 64, known: None };
        let frames = unpack(&buffer, &[whole], ALL)?;
        Ok((0..frames.spans.len()).filter_map(|r| frames.payload(r).map(Into::into)).collect())
    }

    #[test]
    fn records_come_out_as_they_were() {
        let records = unpacked(&chunk(&[0, 3, 2, 0, 1, b'a', b'b', b'c'], 3, 3)).unwrap();
        assert_eq!(records, [b"ab".to_vec(), vec![], b"c".to_vec()]);
    }

    #[test]
    fn wrong_sizes_are_refused() {
        for (data, count, size) in [
            (&[0u8, 1, 3, b'a', b'b'][..], 1, 2),
            (&[0, 1, 1, b'a', b'b'], 1, 2),
            (&[0, 2, 1, 1, b'a', b'b'], 1, 2),
            (&[0, 1, 2, b'a', b'b'], 2, 2),
            (&[0, 1, 2, b'a', b'b'], 1, 3),
            (&[0, 9, 2, b'a', b'b'], 1, 2),
            (&[7, 1, 2, b'a', b'b'], 1, 2),
            (&[b'z', 1, 2, b'a', b'b'], 1, 2),
            (&[b'b', 1, 2, b'a', b'b'], 1, 2),
            (&[b's', 1, 2, b'a', b'b'], 1, 2),
            (&[], 1, 2),
            (&[0, 1, 2, b'a', b'b'], 1 << 40, 2),
            (&[0, 1, 2, b'a', b'b'], 1, 1 << 40),
        ] {
            assert!(unpacked(&chunk(data, count, size)).is_err(), "{data:?} {count} {size}");
        }
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let good = chunk(&[0, 3, 2, 0, 1, b'a', b'b', b'c'], 3, 3);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(unpacked(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn zstd_is_inflated_behind_what_is_there() {
        let mut packed = vec![0; 100];
        let block = |plain: &[u8], packed: &mut Vec<u8>| {
            let size = zstd_safe::compress(&mut packed[..], plain, 3).unwrap();
            let mut block = vec![plain.len() as u8];
            block.extend(&packed[..size]);
            block
        };
        let (sizes, values) = (block(&[2, 1], &mut packed), block(b"abc", &mut packed));
        let mut data = vec![b'z', sizes.len() as u8];
        data.extend(sizes);
        data.extend(values);
        let one = chunk(&data, 2, 3);
        assert_eq!(unpacked(&one).unwrap(), [b"ab".to_vec(), b"c".to_vec()]);
    }

    #[test]
    fn numbers_of_a_message_are_found() {
        assert_eq!(numbers(&[0x08, 0x40, 0x10, 3, 0x18, 1], [1, 2, 3]).unwrap(), [64, 3, 1]);
        assert!(numbers(&[0x08], [1]).is_err());
        assert!(numbers(&[0x0f], [1]).is_err());
    }
}
