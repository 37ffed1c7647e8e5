//! Adds, removes, renames and replaces fields of existing records without reading their values.
//!
//! ```text
//! before   0a L { entry entry … } …                      crc(before)
//! after    0a L { entry entry … } …  0a L' { new … }     crc(before) extended over the new bytes
//! ```
//!
//! **Adding** appends another `features` (or `context`) message, which protobuf merges with those before
//! it. All of TensorFlow's parsers do the same, and give no warning if the keys differ:
//! `Example.FromString`, `parse_example` and `parse_single_example` of fixed, varlen and ragged features,
//! `parse_sequence_example` and its single form. This is also true if the record is empty, has an empty
//! `features`, or begins with feature lists (tests/payloads/test_splice_kernel.py checks it). The
//! parsers warn once per record about duplicate keys, so an existing key is an error, or its entry
//! is removed. The checksum of the old payload is not recomputed: the stored checksum is extended
//! over the addition. If it was wrong for the old bytes, it is wrong for the new ones, with or
//! without verification.
//!
//! **Removing and renaming** changes map entries and the length of the message around them; everything else
//! is copied unchanged. The result gets a new checksum, so such a record is always verified first.
//!
//! If removing entries makes a submessage empty, the result has
//!
//! * nothing in its place, if the record or the addition has another submessage of its kind, or if
//!   it is a `features` message after the first, which was appended earlier. So adding and then
//!   dropping a field leaves no trace, and a replaced field occurs once;
//! * otherwise an empty submessage in its place, as in protobuf, where a message whose map was
//!   emptied is still set.

mod edit;
mod find;
#[cfg(test)]
mod tests;

pub use edit::Edit;

use crate::tuned::BORROWED_BYTES;
use crate::tuned::SPLICE_BYTES;
use std::ops::Range;

use edit::Action;
use find::{Found, Hit, Map};

use super::buffer_pool;
use super::encode_examples::{Encoder, FIRST, Framed, MESSAGE_BYTES, Payload, field_len, too_long};
use super::example_columns::Section;
use super::parts::Between;
use super::walk::Frames;
use crate::wire::frames::{Framing, TFRECORD_HEAD, TFRECORD_TAIL, TfRecord};
use crate::wire::{Fault, FaultKind, varint};
use penstock_codecs::crc32c::{crc32c, crc32c_u64, extend, extend_stored, mask};

/// The records with their new fields.
#[derive(Clone, Debug)]
pub struct Spliced {
    /// Their frames. Large payloads to which fields are only added are borrowed.
    pub framed: Framed,
    /// For each name to drop or rename, how many records had it.
    pub found: Vec<u64>,
}

/// Bytes that the encoder may write after the end of an addition.
const SLACK: usize = 64;

/// Remove and rename as `edit` says, then append the features of `added`, record by record.
///
/// With `verify`, every old payload is verified. Without it, damage stays detectable: the new checksum is
/// as wrong as the old one. A record that is not a message is a fault in both cases, except a damaged
/// record to which fields are only added, without `verify`.
pub fn splice(
    frames: &Frames,
    edit: &Edit,
    added: Option<&Encoder<'_>>,
    verify: bool,
) -> Result<Spliced, Fault> {
    let num_records = frames.spans.len();
    if let Some(encoder) = added
        && encoder.num_records() != num_records
    {
        let message = format!("{} records, and fields for {}", num_records, encoder.num_records());
        return Err(Fault::new(FaultKind::Schema, 0, message));
    }
    let payloads: usize = frames.spans.iter().map(|span| span.1).fold(0, usize::saturating_add);
    let borrows = edit.only_adds() && payloads / num_records.max(1) >= BORROWED_BYTES;
    let mut splicer = Splicer {
        frames,
        edit,
        added,
        verify,
        verified: false,
        borrows,
        borrowed: Between::default(),
        out: room(frames, edit, added, borrows)?,
        lengths: Vec::with_capacity(num_records),
        checksums: Vec::with_capacity(num_records),
        found: vec![0; edit.num_names],
    };
    let mut found = Found::default();
    let mut block = 0..0;
    while block.end < num_records {
        block = block_from(frames, block.end);
        splicer.verified = verify && block.len() > 1 && {
            // The checksums of consecutive records overlap in the CPU. If one is wrong, records are
            // verified one by one, to report the first fault of any kind.
            frames.verify_range_in(TfRecord, block.clone(), None).is_ok()
        };
        for record in block.clone() {
            splicer.next(record, &mut found).map_err(|fault| fault.in_record(record))?;
        }
    }
    let Splicer { out, borrowed, lengths, checksums, found, .. } = splicer;
    Ok(Spliced { framed: Framed { bytes: borrowed.finish(out), lengths, checksums }, found })
}

/// The next records that fit into the L1 cache together, or one longer record.
fn block_from(frames: &Frames, start: usize) -> Range<usize> {
    let mut bytes = 0usize;
    let rest = frames.spans.get(start..).unwrap_or_default();
    let fits = |span: &&(usize, usize)| {
        bytes = bytes.saturating_add(span.1);
        bytes <= SPLICE_BYTES
    };
    let count = rest.iter().take_while(fits).count().max(1);
    start..start.saturating_add(count)
}

/// For each name, whether each record has the field.
pub fn has_fields(
    frames: &Frames,
    names: &[String],
    payload: Payload,
) -> Result<Vec<Vec<bool>>, Fault> {
    let edit = Edit::new(payload, names, &[], None, false)?;
    let mut present = vec![vec![false; frames.spans.len()]; names.len()];
    let mut found = Found::default();
    for record in 0..frames.spans.len() {
        let bytes = frames.payload(record).unwrap_or_default();
        found.look(&edit, bytes).map_err(|fault| blame(frames, record, fault))?;
        for hit in &found.hits {
            if let Action::Cut(Some(name)) = hit.action
                && let Some(place) = present.get_mut(*name).and_then(|all| all.get_mut(record))
            {
                *place = true;
            }
        }
    }
    Ok(present)
}

/// The fault of a record whose payload could not be parsed. If it is damaged, that is the fault.
#[cold]
fn blame(frames: &Frames, record: usize, fault: Fault) -> Fault {
    match frames.verify_record(TfRecord, record, None) {
        Err(damage) => damage,
        Ok(()) => fault.shifted(frames.place(record)).in_record(record),
    }
}

/// Memory for the whole result. More is needed only if several entries of a record are renamed to longer
/// keys.
fn room(
    frames: &Frames,
    edit: &Edit,
    added: Option<&Encoder<'_>>,
    borrows: bool,
) -> Result<Vec<u8>, Fault> {
    let mut total = SLACK;
    for (record, span) in frames.spans.iter().enumerate() {
        let addition = added.map_or(0, |encoder| encoder.addition_len(record)) as usize;
        let copied = if borrows { 0 } else { span.1 };
        let parts = [copied, TFRECORD_HEAD + TFRECORD_TAIL, edit.growth, addition];
        total = parts.into_iter().fold(total, usize::saturating_add);
    }
    buffer_pool::take(total).ok_or_else(|| {
        Fault::new(FaultKind::Limit, frames.base, format!("no memory for {total} bytes"))
    })
}

fn part(bytes: &[u8], start: usize, end: usize) -> &[u8] {
    bytes.get(start..end).unwrap_or_default()
}

/// Writes the frames of a result, one after another.
struct Splicer<'a> {
    frames: &'a Frames,
    edit: &'a Edit,
    added: Option<&'a Encoder<'a>>,
    verify: bool,
    /// Whether the current block has been verified.
    verified: bool,
    /// Whether payloads are borrowed, not copied.
    borrows: bool,
    borrowed: Between,
    out: Vec<u8>,
    lengths: Vec<u64>,
    checksums: Vec<u32>,
    found: Vec<u64>,
}

impl<'a> Splicer<'a> {
    #[inline(always)]
    fn next(&mut self, record: usize, found: &mut Found<'a>) -> Result<(), Fault> {
        let frames = self.frames;
        let payload = frames.payload(record).unwrap_or_default();
        match found.look(self.edit, payload) {
            Ok(()) if found.hits.is_empty() => self.carry(record, payload),
            Ok(()) => {
                if !self.verified {
                    frames.verify_record(TfRecord, record, None)?;
                }
                self.rewrite(record, payload, found)
            }
            Err(fault) => {
                let fault = blame(frames, record, fault);
                let is_damage = fault.kind == FaultKind::DataChecksum;
                if is_damage && !self.verify && self.edit.only_adds() {
                    return self.carry(record, payload);
                }
                Err(fault)
            }
        }
    }

    /// Write the payload unchanged, then the addition.
    #[inline(always)]
    fn carry(&mut self, record: usize, payload: &[u8]) -> Result<(), Fault> {
        let stored = self.stored(record);
        let addition = self.added.map_or(0, |encoder| encoder.addition_len(record));
        let length = (payload.len() as u64).saturating_add(addition);
        if addition > 0 && length > MESSAGE_BYTES {
            return Err(too_long(record, length));
        }
        self.out.extend_from_slice(&head(length));
        let is_borrowed =
            self.borrows && self.borrowed.borrow(self.out.len(), payload, &self.frames.buffer);
        if self.verify && !self.verified {
            let crc = if is_borrowed { crc32c(payload) } else { self.copy_checked(payload) };
            if mask(crc) != stored {
                self.frames.verify_record(TfRecord, record, None)?;
                let message = "the record changed while it was read";
                return Err(Fault::new(FaultKind::Stale, self.frames.place(record), message));
            }
        } else if !is_borrowed {
            self.out.extend_from_slice(payload);
        }
        if addition == 0 {
            self.finish(length, stored);
            return Ok(());
        }
        let start = self.out.len();
        if let Some(encoder) = self.added {
            encoder.append(record, &mut self.out)?;
        }
        let added = self.out.get(start..).unwrap_or_default();
        self.finish(length, extend_stored(stored, added));
        Ok(())
    }

    /// Copy a payload, and return its checksum.
    #[inline(always)]
    fn copy_checked(&mut self, payload: &[u8]) -> u32 {
        if payload.len() <= SPLICE_BYTES {
            self.out.extend_from_slice(payload);
            return crc32c(payload);
        }
        payload.chunks(SPLICE_BYTES).fold(0, |crc, piece| {
            self.out.extend_from_slice(piece);
            extend(crc, piece)
        })
    }

    /// The stored checksum of the old record.
    #[inline(always)]
    fn stored(&self, record: usize) -> u32 {
        let (start, length) = self.frames.spans.get(record).copied().unwrap_or_default();
        let end = start.saturating_add(length);
        TfRecord.stored(part(&self.frames.buffer, end, end.saturating_add(TFRECORD_TAIL)))
    }

    #[inline(always)]
    fn finish(&mut self, length: u64, checksum: u32) {
        self.out.extend_from_slice(&checksum.to_le_bytes());
        self.lengths.push(length.wrapping_add((TFRECORD_HEAD + TFRECORD_TAIL) as u64));
        self.checksums.push(checksum);
    }

    /// Write the payload with entries removed and renamed, then the addition.
    fn rewrite(&mut self, record: usize, payload: &[u8], found: &Found<'a>) -> Result<(), Fault> {
        self.count(&found.hits);
        let start = self.out.len();
        self.out.extend_from_slice(&[0; TFRECORD_HEAD]);
        let mut leftovers = self.leftovers(record, found);
        let mut copied = 0;
        for group in maps(&found.hits) {
            let Some(map) = group.first().map(|hit| hit.map) else { continue };
            self.out.extend_from_slice(part(payload, copied, map.start));
            copied = map.end;
            let length = length_after(map, group);
            if length > 0 || leftovers.stays(map) {
                let tag = varint::read(part(payload, map.start, map.end)).map_or(0, |read| read.1);
                let tag_end = map.start.wrapping_add(tag);
                self.out.extend_from_slice(part(payload, map.start, tag_end));
                varint::write(&mut self.out, length);
                self.entries(payload, map, group);
            }
        }
        self.out.extend_from_slice(part(payload, copied, payload.len()));
        if let Some(encoder) = self.added {
            encoder.append(record, &mut self.out)?;
        }
        let body = start.saturating_add(TFRECORD_HEAD);
        let payload = self.out.get(body..).unwrap_or_default();
        let (length, checksum) = (payload.len() as u64, mask(crc32c(payload)));
        if length > MESSAGE_BYTES {
            return Err(too_long(record, length));
        }
        if let Some(place) = self.out.get_mut(start..body) {
            place.copy_from_slice(&head(length));
        }
        self.finish(length, checksum);
        Ok(())
    }

    /// Write the entries of a submessage that remain, with new names.
    fn entries(&mut self, payload: &[u8], map: Map, group: &[Hit<'_>]) {
        let mut copied = map.body;
        for hit in group {
            self.out.extend_from_slice(part(payload, copied, hit.start));
            copied = hit.end;
            if let Action::Rename(_, key) = hit.action {
                self.out.push(FIRST);
                varint::write(&mut self.out, renamed_len(key, &hit.rest));
                self.out.push(FIRST);
                varint::write(&mut self.out, key.len() as u64);
                self.out.extend_from_slice(key);
                self.out.extend_from_slice(&hit.rest);
            }
        }
        self.out.extend_from_slice(part(payload, copied, map.end));
    }

    /// Count the requested names that this record has.
    fn count(&mut self, hits: &[Hit<'_>]) {
        let name = |hit: &Hit<'_>| match hit.action {
            Action::Cut(name) => *name,
            Action::Rename(name, _) => Some(*name),
            Action::Refuse(_) => None,
        };
        for (at, hit) in hits.iter().enumerate() {
            let again = hits.iter().take(at).any(|before| name(before) == name(hit));
            if let Some(count) = name(hit).and_then(|name| self.found.get_mut(name))
                && !again
            {
                *count = count.wrapping_add(1);
            }
        }
    }

    fn leftovers(&self, record: usize, found: &Found<'_>) -> Leftovers {
        let mut emptied = [0; 2];
        for group in maps(&found.hits) {
            if let Some(map) = group.first().map(|hit| hit.map)
                && length_after(map, group) == 0
                && let Some(count) = emptied.get_mut(map.section as usize)
            {
                *count = usize::wrapping_add(*count, 1);
            }
        }
        let others = |section: Section| {
            let at = section as usize;
            found.num_maps.get(at) > emptied.get(at)
                || self.added.is_some_and(|encoder| encoder.has(record, section))
        };
        Leftovers { covered: [others(Section::Context), others(Section::Lists)] }
    }
}

/// Decides which submessages are kept although they are empty.
struct Leftovers {
    /// For each section, whether the message has it anyway.
    covered: [bool; 2],
}

impl Leftovers {
    /// Whether this empty submessage is kept: at most one for each section.
    fn stays(&mut self, map: Map) -> bool {
        let appended = map.section == Section::Context && map.start > 0;
        match self.covered.get_mut(map.section as usize) {
            Some(covered) => !appended && !std::mem::replace(covered, true),
            None => false,
        }
    }
}

/// The matching entries of each submessage.
fn maps<'h, 'a>(hits: &'h [Hit<'a>]) -> impl Iterator<Item = &'h [Hit<'a>]> {
    hits.chunk_by(|a, b| a.map.start == b.map.start)
}

/// Bytes of a map entry with this key and the rest of the old entry.
fn renamed_len(key: &[u8], rest: &[u8]) -> u64 {
    field_len(key.len() as u64).saturating_add(rest.len() as u64)
}

/// Bytes inside a submessage after the edits.
fn length_after(map: Map, group: &[Hit<'_>]) -> u64 {
    let before = map.end.saturating_sub(map.body) as u64;
    group.iter().fold(before, |length, hit| {
        let kept = length.saturating_sub(hit.end.saturating_sub(hit.start) as u64);
        match hit.action {
            Action::Rename(_, key) => kept.saturating_add(field_len(renamed_len(key, &hit.rest))),
            Action::Cut(_) | Action::Refuse(_) => kept,
        }
    })
}

/// The head of a frame.
#[inline(always)]
fn head(length: u64) -> [u8; TFRECORD_HEAD] {
    let mut head = [0; TFRECORD_HEAD];
    let (size, checksum) = head.split_at_mut(8);
    size.copy_from_slice(&length.to_le_bytes());
    checksum.copy_from_slice(&mask(crc32c_u64(length)).to_le_bytes());
    head
}
