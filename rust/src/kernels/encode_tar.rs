//! Encodes columns of byte strings as records of a tar archive, with one member per value.
//!
//! Equal records give equal bytes: owner, mode and time are constant, and members are in the order of their
//! fields. A name that does not fit ustar is written in a PAX header before the member. A null is
//! stored as no member at all. A record with only nulls gets one empty member, because otherwise it
//! would not exist.

use crate::tuned::BORROWED_BYTES;
use arrow_array::{Array, StructArray};
use arrow_buffer::Buffer;

use super::buffer_pool;
use super::encode_examples::Framed;
use super::example_columns::Bytes;
use super::parts::Between;
use crate::wire::tar::{BLOCK, split};
use crate::wire::{Fault, FaultKind};

/// The field of the member that stands for a record of nulls.
pub const NOTHING: &[u8] = b"none";
/// The largest size that eleven octal digits can express.
const MOST_BYTES: usize = (1 << 33) - 1;
/// The maximum length of a name in ustar's first field.
const NAME_BYTES: usize = 100;

/// The constant part of every header, and the sum of its bytes if the checksum field is blank.
struct Template {
    block: [u8; BLOCK],
    sum: u32,
}

impl Template {
    fn new(kind: u8) -> Self {
        let mut block = [0; BLOCK];
        let parts: [(usize, &[u8]); 9] = [
            (100, b"0000444\0"),
            (108, b"0000000\0"),
            (116, b"0000000\0"),
            (136, b"00000000000\0"),
            (148, b"        "),
            (156, &[kind]),
            (257, b"ustar\x0000"),
            (265, b"penstock"),
            (297, b"penstock"),
        ];
        for (at, part) in parts {
            if let Some(room) = block.get_mut(at..at.wrapping_add(part.len())) {
                room.copy_from_slice(part);
            }
        }
        let sum = sum(&block);
        Self { block, sum }
    }

    /// Append the header of a member.
    fn write(&self, out: &mut Vec<u8>, name: &[u8], length: usize) {
        let mut block = self.block;
        let name = name.get(..NAME_BYTES).unwrap_or(name);
        let size: [u8; 11] = octal(length);
        let checksum: [u8; 6] =
            octal(self.sum.wrapping_add(sum(name)).wrapping_add(sum(&size)) as usize);
        let parts: [(usize, &[u8]); 4] = [(0, name), (124, &size), (148, &checksum), (154, b"\0 ")];
        for (at, part) in parts {
            if let Some(room) = block.get_mut(at..at.wrapping_add(part.len())) {
                room.copy_from_slice(part);
            }
        }
        out.extend_from_slice(&block);
    }
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, &byte| sum.wrapping_add(byte.into()))
}

fn octal<const N: usize>(mut value: usize) -> [u8; N] {
    let mut digits = [b'0'; N];
    for digit in digits.iter_mut().rev() {
        *digit = b'0'.wrapping_add((value & 7) as u8);
        value >>= 3;
    }
    digits
}

/// Pad with zeros to whole blocks after `length` bytes.
fn pad(out: &mut Vec<u8>, length: usize) {
    let zeros = length.next_multiple_of(BLOCK).wrapping_sub(length);
    out.resize(out.len().wrapping_add(zeros), 0);
}

/// One line of a PAX header. Its length includes its digits.
pub fn pax_line(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len().saturating_add(value.len()).saturating_add(3);
    let mut length = rest;
    while rest.saturating_add(length.to_string().len()) != length {
        length = rest.saturating_add(length.to_string().len());
    }
    [length.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

/// Writes members.
struct Archive {
    out: Vec<u8>,
    borrowed: Between,
    file: Template,
    pax: Template,
}

impl Archive {
    /// Append a member. Long contents are borrowed from the buffer `home`.
    fn member(&mut self, name: &[u8], contents: &[u8], home: Option<&Buffer>) {
        let out = &mut self.out;
        if name.len() > NAME_BYTES || !name.is_ascii() {
            let line = pax_line(b"path", name);
            self.pax.write(out, b"././@PaxHeader", line.len());
            out.extend_from_slice(&line);
            pad(out, line.len());
        }
        // Readers without PAX see the beginning of a long name.
        self.file.write(out, name, contents.len());
        let is_borrowed = contents.len() >= BORROWED_BYTES
            && home.is_some_and(|home| self.borrowed.borrow(out.len(), contents, home));
        if !is_borrowed {
            out.extend_from_slice(contents);
        }
        pad(out, contents.len());
    }
}

/// The head of an archive whose members' fields are described by `comment`: a global PAX header.
pub fn comment(comment: &[u8]) -> Vec<u8> {
    let line = pax_line(b"comment", comment);
    let mut out = Vec::new();
    Template::new(b'g').write(&mut out, b"pax_global_header", line.len());
    out.extend_from_slice(&line);
    pad(&mut out, line.len());
    out
}

/// Encode the records of a batch; each column is the field with its name.
pub fn encode(keys: &dyn Array, batch: &StructArray) -> Result<Framed, Fault> {
    let records = batch.len();
    let keys = bytes_of(keys, "__key__")?;
    let names = batch.column_names();
    let mut columns = Vec::with_capacity(names.len());
    for (name, array) in names.iter().zip(batch.columns()) {
        columns.push((name.as_bytes(), bytes_of(array.as_ref(), name)?, array.logical_nulls()));
    }
    let copied = columns.iter().map(|(_, values, _)| copied_bytes(values, records));
    let headers = records.saturating_mul(names.len()).saturating_mul(2 * BLOCK);
    let room = copied.fold(headers, usize::saturating_add);
    let Some(out) = buffer_pool::take(room) else {
        return Err(Fault::new(FaultKind::Limit, 0, "no memory for the records"));
    };
    let mut archive = Archive {
        out,
        borrowed: Between::default(),
        file: Template::new(b'0'),
        pax: Template::new(b'x'),
    };
    let (mut lengths, mut checksums) = (Vec::with_capacity(records), Vec::with_capacity(records));
    let mut name = Vec::new();
    for record in 0..records {
        let (start, before) = (archive.out.len(), archive.borrowed.mark());
        let key = keys.get(record).ok_or_else(|| outside(record))?;
        let mut put = |field: &[u8], contents: &[u8], home: Option<&Buffer>| {
            name.clear();
            [key, b".", field].iter().for_each(|part| name.extend_from_slice(part));
            check(&name, key, field, contents).map_err(|fault| fault.in_record(record))?;
            archive.member(&name, contents, home);
            Ok::<(), Fault>(())
        };
        let mut is_empty = true;
        for (field, values, nulls) in &columns {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(record)) {
                continue;
            }
            let contents = values.get(record).ok_or_else(|| outside(record))?;
            put(field, contents, values.home(record))?;
            is_empty = false;
        }
        if is_empty {
            put(NOTHING, b"", None)?;
        }
        let end = archive.out.len();
        let length = end.wrapping_sub(start).wrapping_add(archive.borrowed.bytes_since(before));
        lengths.push(length as u64);
        checksums.push(archive.borrowed.crc32c(&archive.out, start, end, before));
    }
    Ok(Framed { bytes: archive.borrowed.finish(archive.out), lengths, checksums })
}

/// Bytes of the copied values of a column.
fn copied_bytes(values: &Bytes<'_>, records: usize) -> usize {
    let lengths = (0..records).filter_map(|record| values.get(record)).map(<[u8]>::len);
    lengths.filter(|&length| length < BORROWED_BYTES).fold(0, usize::saturating_add)
}

fn bytes_of<'a>(array: &'a dyn Array, name: &str) -> Result<Bytes<'a>, Fault> {
    Bytes::of(array).ok_or_else(|| {
        let message = format!("a member must be a byte string, not {}", array.data_type());
        Fault::new(FaultKind::Schema, 0, message).in_field(name)
    })
}

#[cold]
fn outside(record: usize) -> Fault {
    Fault::new(FaultKind::Schema, 0, "the array's offsets point outside of its values")
        .in_record(record)
}

/// Check that a member's name reads back as the same key and field.
fn check(name: &[u8], key: &[u8], field: &[u8], contents: &[u8]) -> Result<(), Fault> {
    let broken = |message: String| Fault::new(FaultKind::Schema, 0, message).in_field("__key__");
    let shown = || String::from_utf8_lossy(key);
    if contents.len() > MOST_BYTES {
        let message = "a member of a tar archive has at most 8 GiB".to_owned();
        return Err(Fault::new(FaultKind::Schema, 0, message));
    }
    if name.contains(&0) {
        return Err(broken(format!("the key {:?} has a NUL, which ends a name", shown())));
    }
    match split(name) {
        Some(parts) if parts.key == key && parts.field == field => Ok(()),
        None => Err(broken(format!("readers skip members with the key {:?}", shown()))),
        Some(parts) => {
            let seen = String::from_utf8_lossy(parts.key);
            Err(broken(format!("the key {:?} has a dot, so it would be read as {seen:?}", shown())))
        }
    }
}
