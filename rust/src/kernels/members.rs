//! Inflates whole gzip members at known positions in one call. This is the fastest way, and several threads
//! can do it in one file.

use libdeflater::crc32;

use super::buffer_pool;
use super::codec::{MAX_RATIO, WholeInflate, no_memory};
use crate::wire::gzip::{Container, HeaderReader, TRAILER_BYTES, trailer};
use crate::wire::{Fault, FaultKind};

/// Where the parts of one member are, and the sizes that it states.
struct Member<'a> {
    start: u64,
    head_bytes: usize,
    deflated: &'a [u8],
    checksum: u32,
    plain_bytes: u32,
}

impl<'a> Member<'a> {
    fn find(data: &'a [u8], start: usize, length: usize) -> Result<Self, Fault> {
        let at = start as u64;
        let bytes = start
            .checked_add(length)
            .and_then(|end| data.get(start..end))
            .ok_or_else(|| Fault::new(FaultKind::Truncated, at, "gzip member is truncated"))?;
        let mut reader = HeaderReader::new(Container::Gzip);
        let head_bytes = reader.feed(bytes).map_err(|fault| fault.shifted(at))?;
        let rest = bytes.get(head_bytes..).unwrap_or_default();
        match rest.split_last_chunk::<TRAILER_BYTES>() {
            Some((deflated, tail)) if reader.is_done() => {
                let (checksum, plain_bytes) = trailer(*tail);
                Ok(Self { start: at, head_bytes, deflated, checksum, plain_bytes })
            }
            _ => Err(Fault::new(FaultKind::Truncated, at, "gzip member is truncated")),
        }
    }

    fn trailer_at(&self) -> u64 {
        let before = self.head_bytes.saturating_add(self.deflated.len());
        self.start.saturating_add(before as u64)
    }

    /// The stated length may be wrong: more than the data can expand to is not allocated.
    fn check_size(&self) -> Result<(), Fault> {
        let most = (self.deflated.len() as u64).saturating_mul(MAX_RATIO as u64);
        if u64::from(self.plain_bytes) > most {
            let message = "gzip length is beyond what the member can hold";
            let at = self.trailer_at().saturating_add(4);
            return Err(Fault::new(FaultKind::Compression, at, message)
                .values(u64::from(self.plain_bytes), most));
        }
        Ok(())
    }

    fn inflate(&self, engine: &mut WholeInflate, out: &mut Vec<u8>) -> Result<(), Fault> {
        let before = out.len();
        engine.inflate(self.deflated, out, self.plain_bytes as usize).map_err(|message| {
            let at = self.start.saturating_add(self.head_bytes as u64);
            Fault::new(FaultKind::Compression, at, format!("gzip member: {message}"))
        })?;
        let found = crc32(out.get(before..).unwrap_or_default());
        if found != self.checksum {
            let message = "gzip checksum does not match";
            return Err(Fault::new(FaultKind::CompressionChecksum, self.trailer_at(), message)
                .values(u64::from(self.checksum), u64::from(found)));
        }
        Ok(())
    }
}

/// The plain bytes of the members at these starts and lengths in `data`, one after another. Each must be
/// exactly one whole member, and all together may have at most `max_bytes` plain bytes.
pub fn inflate_members(
    data: &[u8],
    members: &[(usize, usize)],
    max_bytes: u64,
) -> Result<Vec<u8>, Fault> {
    let mut total = 0u64;
    for &(start, length) in members {
        let member = Member::find(data, start, length)?;
        member.check_size()?;
        total = total.saturating_add(u64::from(member.plain_bytes));
        if total > max_bytes {
            let message = format!("a member would bring the plain bytes to {total}");
            return Err(
                Fault::new(FaultKind::Limit, start as u64, message).values(max_bytes, total)
            );
        }
    }
    let total = usize::try_from(total).unwrap_or(usize::MAX);
    let mut out = buffer_pool::take(total).ok_or_else(|| no_memory(total))?;
    let mut engine = WholeInflate::new()?;
    for &(start, length) in members {
        Member::find(data, start, length)?.inflate(&mut engine, &mut out)?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::deflate::gzip_member;
    use crate::wire::gzip::member_head;

    fn member(plain: &[u8]) -> Vec<u8> {
        gzip_member(plain, 1, 6).unwrap()
    }

    #[test]
    fn members_are_found_by_hopping_and_inflated_together() {
        let plain: Vec<Vec<u8>> = (1..20).map(|i| vec![i as u8; i * 100]).collect();
        let file: Vec<u8> = plain.iter().flat_map(|part| member(part)).collect();
        let (mut at, mut found) = (0, Vec::new());
        while at < file.len() {
            let (bytes, records) = member_head(&file[at..]).unwrap();
            assert_eq!(records, 1);
            found.push((at, bytes as usize));
            at += bytes as usize;
        }
        assert_eq!(inflate_members(&file, &found, 1 << 20).unwrap(), plain.concat());
    }

    #[test]
    fn every_flipped_bit_is_found_or_changes_nothing() {
        let good = member(b"some plain bytes, some plain bytes, and more");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            if let Ok(out) = inflate_members(&bad, &[(0, bad.len())], 1 << 20) {
                assert_eq!(out, b"some plain bytes, some plain bytes, and more", "bit {bit}");
            }
        }
    }

    #[test]
    fn wrong_places_and_sizes_are_refused() {
        let two = [member(b"one"), member(b"one")].concat();
        for length in 0..two.len() {
            let whole = length == two.len() / 2;
            assert_eq!(inflate_members(&two, &[(0, length)], 1 << 20).is_ok(), whole, "{length}");
        }
        assert!(inflate_members(&two, &[(0, two.len())], 1 << 20).is_err(), "two in one");
        assert!(inflate_members(&two, &[(usize::MAX, 2)], 1 << 20).is_err());
        let fault = inflate_members(&two, &[(0, two.len() / 2)], 2).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Limit);
    }

    #[test]
    fn a_stated_length_beyond_the_possible_reserves_nothing() {
        let mut bad = member(b"small");
        let end = bad.len();
        bad[end - 4..].copy_from_slice(&u32::MAX.to_le_bytes());
        let fault = inflate_members(&bad, &[(0, end)], u64::MAX).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Compression);
    }
}
