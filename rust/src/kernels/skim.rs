//! Finds the end of a frame that is too long to be read as a whole. Only windows around its heads are read.

use crate::wire::Fault;
use crate::wire::frames::{Framing, Skim, Skip};
use penstock_codecs::crc32c::extend;

/// Bytes of a window. Heads that are close together are read in one window.
const WINDOW_BYTES: usize = 64 << 10;
/// Bytes per read for a checksum.
const PIECE_BYTES: usize = 1 << 20;

/// The end of the frame at `start`; None if the stream ends inside it. `read` returns bytes from an offset,
/// fewer than requested only at the end of the stream.
pub fn end_of<F: Framing, B: AsRef<[u8]>, E>(
    framing: F,
    start: u64,
    mut read: impl FnMut(u64, usize) -> Result<B, E>,
) -> Result<Result<Option<u64>, Fault>, E> {
    let mut state = Skim::default();
    let (mut at, mut want) = (start, WINDOW_BYTES);
    loop {
        let window = read(at, want)?;
        let window = window.as_ref();
        let last = window.len() < want;
        let end = match framing.skim(&mut state, window, last) {
            Skip::End(length) => at.saturating_add(length),
            Skip::On(length) => {
                (at, want) = (at.saturating_add(length.max(1)), WINDOW_BYTES);
                if last && length > window.len() as u64 {
                    return Ok(Ok(None));
                }
                continue;
            }
            Skip::More(_) if last => return Ok(Ok(None)),
            Skip::More(need) => {
                want = need.max(want.saturating_mul(2));
                continue;
            }
            Skip::Broken(fault) => return Ok(Err(fault.shifted(at))),
        };
        // The end was computed from a head, so check that the stream is long enough.
        let is_seen = end > at && end <= at.saturating_add(window.len() as u64);
        let is_there = is_seen || read(end.saturating_sub(1), 1)?.as_ref().len() == 1;
        return Ok(Ok(is_there.then_some(end)));
    }
}

/// The checksum that an index keeps for a frame: the stored one, or the checksum of all its bytes. None if
/// the stream ends before the frame does.
pub fn stored<F: Framing, B: AsRef<[u8]>, E>(
    framing: F,
    start: u64,
    end: u64,
    mut read: impl FnMut(u64, usize) -> Result<B, E>,
) -> Result<Option<u32>, E> {
    if F::TAIL > 0 {
        let tail = read(end.saturating_sub(F::TAIL as u64), F::TAIL)?;
        let tail = tail.as_ref();
        return Ok((tail.len() == F::TAIL).then(|| framing.stored(tail)));
    }
    let (mut at, mut found) = (start, 0);
    while at < end {
        let length = PIECE_BYTES.min(usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX));
        let part = read(at, length)?;
        let part = part.as_ref();
        if part.len() < length {
            return Ok(None);
        }
        found = extend(found, part);
        at = at.saturating_add(length as u64);
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frames::{Step, TfRecord, write_tfrecord};
    use crate::wire::msgpack::MessagePack;
    use crate::wire::recordio::{RecordIo, write_frame};
    use penstock_codecs::crc32c::crc32c;

    fn reader<'a>(bytes: &'a [u8]) -> impl FnMut(u64, usize) -> Result<&'a [u8], ()> {
        move |at, length| {
            let start = bytes.len().min(at as usize);
            Ok(&bytes[start..bytes.len().min(start.saturating_add(length))])
        }
    }

    fn agrees<F: Framing>(framing: F, bytes: &[u8], start: usize) {
        let Step::Frame { total, .. } = framing.next(&bytes[start..], true) else {
            panic!("no frame");
        };
        let end = (start + total) as u64;
        assert_eq!(end_of(framing, start as u64, reader(bytes)), Ok(Ok(Some(end))));
        let known = framing.stored(&bytes[start..start + total]);
        assert_eq!(stored(framing, start as u64, end, reader(bytes)), Ok(Some(known)));
        let cut = &bytes[..start + total - 1];
        assert_eq!(end_of(framing, start as u64, reader(cut)), Ok(Ok(None)));
    }

    #[test]
    fn long_frames_end_where_a_walk_over_all_of_them_does() {
        let long = vec![7; 3 * WINDOW_BYTES + 5];
        let mut records = Vec::new();
        write_tfrecord(&mut records, b"first");
        let start = records.len();
        write_tfrecord(&mut records, &long);
        agrees(TfRecord, &records, start);
        let mut parts = long.clone();
        parts[4..8].copy_from_slice(&crate::wire::recordio::MAGIC.to_le_bytes());
        let mut packed = Vec::new();
        write_frame(&mut packed, &parts[..parts.len() / 4 * 4], &[]);
        agrees(RecordIo, &packed, 0);
        let mut values = vec![0x92, 0xc6];
        values.extend_from_slice(&(long.len() as u32).to_be_bytes());
        values.extend_from_slice(&long);
        values.extend_from_slice(&[0xdd, 0, 2, 0, 0]);
        values.resize(values.len() + 2 * (2 << 16), 0xcc); // each is a head and its byte
        agrees(MessagePack, &values, 0);
        assert_eq!(crc32c(&long), extend(extend(0, &long[..9]), &long[9..]));
    }
}
