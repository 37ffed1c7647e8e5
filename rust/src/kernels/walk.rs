//! Finds the frames in a window of bytes, and verifies them.

use crate::tuned::{AHEAD_BYTES, AHEAD_TAKES, AHEAD_VIEWS};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::BinaryViewArray;
use arrow_buffer::Buffer;

use super::views::Views;
use crate::wire::frames::{AnyFraming, Framing, Step, with_framing};
use crate::wire::{Fault, FaultKind};
use penstock_codecs::prefetch::prefetch;

/// The frames of one buffer.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    /// Their framing.
    pub kind: AnyFraming,
    /// The bytes.
    pub buffer: Buffer,
    /// Offset of the buffer in its file (or in the decompressed stream).
    pub base: u64,
    /// Start and length of each payload in the buffer.
    pub spans: Vec<(usize, usize)>,
    /// Offset of each payload in its file, if the buffer was gathered from many places.
    pub places: Option<Arc<[u64]>>,
}

impl Frames {
    /// The payload of one record.
    #[inline(always)]
    pub fn payload(&self, record: usize) -> Option<&[u8]> {
        let &(start, length) = self.spans.get(record)?;
        self.buffer.get(start..start.checked_add(length)?)
    }

    /// The whole frame of one record.
    #[inline(always)]
    fn frame<F: Framing>(&self, record: usize) -> Option<&[u8]> {
        let &(start, length) = self.spans.get(record)?;
        let end = start.checked_add(length)?.checked_add(F::TAIL)?;
        self.buffer.get(start.checked_sub(F::HEAD)?..end)
    }

    /// Offset of a record's payload in its file.
    pub fn place(&self, record: usize) -> u64 {
        match &self.places {
            Some(places) => places.get(record).copied().unwrap_or_default(),
            None => {
                let start = self.spans.get(record).map_or(0, |span| span.0 as u64);
                self.base.saturating_add(start)
            }
        }
    }

    /// Some of the records, in this order. None if a number is too large.
    pub fn select(&self, records: impl Iterator<Item = usize> + Clone) -> Option<Self> {
        let spans = records.clone().map(|r| self.spans.get(r).copied()).collect::<Option<_>>()?;
        let places = match &self.places {
            None => None,
            Some(all) => Some(records.map(|r| all.get(r).copied()).collect::<Option<Arc<_>>>()?),
        };
        let (kind, buffer, base) = (self.kind, self.buffer.clone(), self.base);
        Some(Self { kind, buffer, base, spans, places })
    }

    /// Offset of a record's frame in its file.
    pub fn start(&self, record: usize) -> u64 {
        self.place(record).saturating_sub(with_framing!(self.kind, f => head_of(f)))
    }

    /// The stored checksums, in the form that an index keeps.
    pub fn checksums(&self) -> Vec<u32> {
        with_framing!(self.kind, f => self.checksums_in(f))
    }

    fn checksums_in<F: Framing>(&self, framing: F) -> Vec<u32> {
        let stored = |record| self.frame::<F>(record).map_or(0, |frame| framing.stored(frame));
        (0..self.spans.len()).map(stored).collect()
    }

    /// Verify some records; returns the first fault.
    pub fn verify_range(
        &self,
        records: Range<usize>,
        indexed: Option<&[u32]>,
    ) -> Result<(), Fault> {
        with_framing!(self.kind, f => self.verify_range_in(f, records, indexed))
    }

    /// Verify all records; returns all faults.
    pub fn verify(&self, indexed: Option<&[u32]>) -> Vec<Fault> {
        let records = 0..self.spans.len();
        with_framing!(self.kind, f => {
            records.filter_map(|record| self.verify_record(f, record, indexed).err()).collect()
        })
    }

    /// Compare a payload with its stored checksum, and the stored checksum with that of the index,
    /// if given.
    #[inline(always)]
    pub fn verify_record<F: Framing>(
        &self,
        framing: F,
        record: usize,
        indexed: Option<&[u32]>,
    ) -> Result<(), Fault> {
        let frame = self.frame::<F>(record).unwrap_or_default();
        if let Err(fault) = framing.check(frame) {
            let head = self.place(record).saturating_sub(F::HEAD as u64);
            return Err(fault.shifted(head).in_record(record));
        }
        match indexed.and_then(|all| all.get(record)) {
            Some(&known) if known != framing.stored(frame) => {
                let (kind, message) = match F::CHECKED {
                    true => (FaultKind::Stale, "the record is not the one that was indexed"),
                    false => (FaultKind::DataChecksum, "the checksum in the index does not match"),
                };
                let fault = Fault::new(kind, self.place(record), message);
                let found = u64::from(framing.stored(frame));
                Err(fault.values(u64::from(known), found).in_record(record))
            }
            _ => Ok(()),
        }
    }

    /// `verify_range` for a known framing.
    pub fn verify_range_in<F: Framing>(
        &self,
        framing: F,
        records: Range<usize>,
        indexed: Option<&[u32]>,
    ) -> Result<(), Fault> {
        let spans = self.spans.get(records.clone());
        let is_right = |spans| framing.first_broken(&self.buffer, spans).is_none();
        let known = indexed.and_then(|all| all.get(records.clone()));
        let stored = |r| framing.stored(self.frame::<F>(r).unwrap_or_default());
        let differs =
            known.is_some_and(|known| !known.iter().copied().eq(records.clone().map(stored)));
        if spans.is_some_and(is_right) && !differs {
            return Ok(());
        }
        records.clone().try_for_each(|record| self.verify_record(framing, record, indexed))
    }

    /// The payloads, as views into the buffer.
    pub fn views(&self) -> Result<BinaryViewArray, Fault> {
        let mut views = Views::new(&self.buffer, self.spans.len());
        for (record, &(start, length)) in self.spans.iter().enumerate() {
            // A view contains the first bytes of its value, which may no longer be in the L1 and L2 caches.
            if let Some(&(later, _)) = self.spans.get(record.saturating_add(AHEAD_VIEWS)) {
                prefetch(&self.buffer, later, 1);
            }
            views.push(start, length).ok_or_else(|| self.too_long_to_view(record, length))?;
        }
        Ok(views.finish())
    }

    /// The fault for a value that a view cannot point to.
    #[cold]
    pub fn too_long_to_view(&self, record: usize, length: usize) -> Fault {
        let message = "a record is too long for a view into a mapped file";
        let fault = Fault::new(FaultKind::Limit, self.place(record), message);
        fault.values(1 << 30, length as u64).in_record(record)
    }
}

/// The frames found in a window.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// The complete frames, in order: start and length of the payload.
    pub spans: Vec<(usize, usize)>,
    /// Total bytes of these frames.
    pub consumed: usize,
    /// Total bytes of the next frame, or of its head; 0 at the window's end.
    pub need: u64,
    /// The fault that stopped the walk, if any.
    pub fault: Option<Fault>,
}

fn head_of<F: Framing>(_: F) -> u64 {
    F::HEAD as u64
}

/// Find the frames at the front of `window`, until it ends, something is wrong, or the next frame is longer
/// than `max_record`. `last`: the stream ends where the window ends.
pub fn walk<F: Framing>(framing: F, window: &[u8], max_record: u64, last: bool) -> Walk {
    let mut found = Walk::default();
    loop {
        let rest = window.get(found.consumed..).unwrap_or_default();
        if rest.is_empty() {
            return found;
        }
        match framing.next(rest, last) {
            Step::Frame { payload, length, total } => {
                if total <= AHEAD_BYTES {
                    prefetch(window, found.consumed.wrapping_add(AHEAD_BYTES), total);
                }
                if length as u64 > max_record {
                    let at = found.consumed as u64;
                    let fault = too_long::<F>(total as u64, max_record, at);
                    found.fault = fault.map(|f| f.in_record(found.spans.len()));
                    return found;
                }
                if found.spans.len() == found.spans.capacity() {
                    // One estimate from the size of the first frame is better than ten reallocations.
                    found.spans.reserve((rest.len() / total.max(1)).clamp(16, 1 << 20));
                }
                found.spans.push((found.consumed.wrapping_add(payload), length));
                found.consumed = found.consumed.wrapping_add(total);
            }
            Step::Blank(length) => {
                found.consumed = found.consumed.wrapping_add(length.max(1)).min(window.len());
            }
            Step::Need(need) => {
                let record = found.spans.len();
                let at = found.consumed as u64;
                found.need = need;
                found.fault = too_long::<F>(need, max_record, at).map(|f| f.in_record(record));
                return found;
            }
            Step::Broken(fault) => {
                let at = found.consumed as u64;
                found.fault = Some(fault.shifted(at).in_record(found.spans.len()));
                return found;
            }
        }
    }
}

/// The fault for a frame of `total` bytes, if that exceeds the limit.
pub fn too_long<F: Framing>(total: u64, max_record: u64, at: u64) -> Option<Fault> {
    let length = total.saturating_sub((F::HEAD + F::TAIL) as u64);
    (length > max_record).then(|| {
        let message = "the record is longer than the limit record_bytes";
        Fault::new(FaultKind::Limit, at, message).values(max_record, length)
    })
}

/// The frames at positions from an index. It is a fault if there is no frame at one of them.
pub fn frames_at(
    kind: AnyFraming,
    buffer: &Buffer,
    starts: &[u64],
    lengths: &[u64],
    places: &[u64],
) -> Result<Frames, Fault> {
    let spans = with_framing!(kind, f => spans_at(f, buffer, starts, lengths, places))?;
    let head = with_framing!(kind, f => head_of(f));
    let places = places.iter().map(|place| place.saturating_add(head)).collect();
    Ok(Frames { kind, buffer: buffer.clone(), base: 0, spans, places: Some(places) })
}

fn spans_at<F: Framing>(
    framing: F,
    buffer: &Buffer,
    starts: &[u64],
    lengths: &[u64],
    places: &[u64],
) -> Result<Vec<(usize, usize)>, Fault> {
    let mut spans = Vec::with_capacity(starts.len());
    for (record, ((&start, &total), &place)) in starts.iter().zip(lengths).zip(places).enumerate() {
        // These may be records from anywhere in a mapped file. Prefetching lets several of them
        // wait for memory at the same time.
        let later = record.saturating_add(AHEAD_TAKES);
        if let (Some(&start), Some(&total)) = (starts.get(later), lengths.get(later)) {
            prefetch(buffer, start as usize, (total as usize).min(AHEAD_BYTES));
        }
        let end = start.saturating_add(total);
        let frame = buffer.get(start as usize..end as usize).unwrap_or_default();
        match framing.next(frame, true) {
            Step::Frame { payload, length, total } if total == frame.len() => {
                spans.push(((start as usize).saturating_add(payload), length));
            }
            _ => {
                let message = "there is no record where the index has one";
                return Err(Fault::new(FaultKind::Stale, place, message).in_record(record));
            }
        }
    }
    Ok(spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frames::{TfRecord, write_tfrecord};

    fn file(payloads: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        payloads.iter().for_each(|payload| write_tfrecord(&mut out, payload));
        out
    }

    #[test]
    fn views_hold_short_and_long_payloads() {
        let bytes = file(&[b"", b"twelve bytes", b"thirteen byte"]);
        let found = walk(TfRecord, &bytes, 1 << 30, true);
        let frames =
            Frames { buffer: Buffer::from_vec(bytes), spans: found.spans, ..Frames::default() };
        let views = frames.views().unwrap();
        assert_eq!(views.value(0), b"");
        assert_eq!(views.value(1), b"twelve bytes");
        assert_eq!(views.value(2), b"thirteen byte");
        assert!(frames.verify(None).is_empty());
        assert_eq!(frames.verify(Some(&[0, 0, 0])).len(), 3);
    }

    #[test]
    fn a_cut_file_asks_for_what_is_missing() {
        let bytes = file(&[b"first", b"second"]);
        for end in 22..bytes.len() {
            let found = walk(TfRecord, &bytes[..end], 1 << 30, true);
            assert_eq!((found.spans.len(), found.consumed), (1, 21));
            assert_eq!(found.need, if end < 33 { 12 } else { 22 });
        }
    }

    #[test]
    fn a_long_record_is_a_limit_fault() {
        let found = walk(TfRecord, &file(&[&[7; 100]])[..50], 99, true);
        assert_eq!(found.fault.unwrap().kind, FaultKind::Limit);
        let whole = walk(TfRecord, &file(&[b"short", &[7; 100]]), 99, true);
        assert_eq!((whole.spans.len(), whole.fault.unwrap().record), (1, Some(1)));
    }

    #[test]
    fn a_broken_payload_is_found_by_all_checks() {
        let payloads: Vec<Vec<u8>> = (0..20).map(|n| vec![n as u8; n * 37]).collect();
        let mut bytes = file(&payloads.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let spans = walk(TfRecord, &bytes, 1 << 30, true).spans;
        for broken in [None, Some(5), Some(19)] {
            broken.iter().for_each(|&record| bytes[spans[record].0] ^= 1);
            let buffer = Buffer::from_slice_ref(&bytes);
            let frames = Frames { buffer, spans: spans.clone(), ..Frames::default() };
            let found: Vec<_> = frames.verify(None).iter().map(|fault| fault.record).collect();
            assert_eq!(found, broken.map(Some).into_iter().collect::<Vec<_>>());
            assert_eq!(frames.verify_range(0..20, None).is_err(), broken.is_some());
            broken.iter().for_each(|&record| bytes[spans[record].0] ^= 1);
        }
    }
}
