//! Finds map entries by key. Values are skipped by their length.

use std::borrow::Cow;

use super::edit::{Action, Edit};
use crate::kernels::encode_examples::FIRST;
use crate::kernels::example_columns::Section;
use crate::wire::cursor::Cursor;
use crate::wire::example::{WireField, WireValue, next_field};
use crate::wire::{Fault, FaultKind};

/// A submessage of map entries, by its position in the payload.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// The part of the message that it belongs to.
    pub section: Section,
    /// The start of its tag.
    pub start: usize,
    /// The start of its entries.
    pub body: usize,
    /// The end of its entries.
    pub end: usize,
}

/// A map entry to change.
pub struct Hit<'a> {
    /// Its submessage.
    pub map: Map,
    /// The start of its tag in the payload.
    pub start: usize,
    /// Its end.
    pub end: usize,
    /// The action.
    pub action: &'a Action,
    /// Its bytes without the key, if it is to be renamed.
    pub rest: Cow<'a, [u8]>,
}

/// The entries found in a record. It is reused for the next record.
#[derive(Default)]
pub struct Found<'a> {
    /// The entries to change, in order.
    pub hits: Vec<Hit<'a>>,
    /// The number of submessages of features and of feature lists.
    pub num_maps: [usize; 2],
}

impl<'a> Found<'a> {
    /// Search one payload. A refused field is a fault of kind Schema.
    #[inline]
    pub fn look(&mut self, edit: &'a Edit, payload: &'a [u8]) -> Result<(), Fault> {
        self.hits.clear();
        self.num_maps = [0; 2];
        let mut cursor = Cursor::new(payload);
        while !cursor.is_empty() {
            let start = cursor.offset();
            let WireField { number, value: WireValue::Bytes(body) } = field(&mut cursor)? else {
                continue;
            };
            let section = match number {
                1 => Section::Context,
                2 => Section::Lists,
                _ => continue,
            };
            let end = cursor.offset();
            let map = Map { section, start, body: end.wrapping_sub(body.len()), end };
            if let Some(count) = self.num_maps.get_mut(section as usize) {
                *count = count.wrapping_add(1);
            }
            if !edit.keys(section).is_empty() {
                self.look_in(edit, map, body)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn look_in(&mut self, edit: &'a Edit, map: Map, body: &'a [u8]) -> Result<(), Fault> {
        let keys = edit.keys(map.section);
        let mut cursor = Cursor::new(body);
        while !cursor.is_empty() {
            let start = cursor.offset();
            let field = field(&mut cursor).map_err(|f| f.shifted(map.body as u64))?;
            let WireField { number: 1, value: WireValue::Bytes(entry) } = field else {
                continue;
            };
            let place = map.body.wrapping_add(cursor.offset()).wrapping_sub(entry.len());
            let key = key(entry).map_err(|f| f.shifted(place as u64))?;
            if let Some(action) = keys.get(key) {
                let (start, end) = (map.body.wrapping_add(start), place.wrapping_add(entry.len()));
                let rest = match action {
                    Action::Cut(_) => Cow::Borrowed(&[][..]),
                    Action::Rename(..) => without_key(entry)?,
                    Action::Refuse(name) => return Err(exists(start, name)),
                };
                self.hits.push(Hit { map, start, end, action, rest });
            }
        }
        Ok(())
    }
}

/// The next field, which nearly always is the first one of its message.
#[inline(always)]
fn field<'a>(cursor: &mut Cursor<'a>) -> Result<WireField<'a>, Fault> {
    if cursor.rest().first() == Some(&FIRST) {
        cursor.u8()?;
        return Ok(WireField { number: 1, value: WireValue::Bytes(cursor.length_prefixed()?) });
    }
    next_field(cursor)
}

#[cold]
fn exists(start: usize, name: &str) -> Fault {
    Fault::new(FaultKind::Schema, start as u64, "the field exists already").in_field(name)
}

/// The key of a map entry by protobuf's rules: its last key, or the empty key.
#[inline(always)]
fn key(entry: &[u8]) -> Result<&[u8], Fault> {
    // Nearly every entry is a key and a value.
    let mut cursor = Cursor::new(entry);
    if entry.first() == Some(&FIRST) {
        cursor.u8()?;
        let key = cursor.length_prefixed()?;
        if cursor.rest().first() == Some(&VALUE) {
            cursor.u8()?;
            cursor.length_prefixed()?;
            if cursor.is_empty() {
                return Ok(key);
            }
        }
    }
    odd_key(entry)
}

/// The tag of an entry's value.
const VALUE: u8 = 0x12;

#[cold]
fn odd_key(entry: &[u8]) -> Result<&[u8], Fault> {
    let mut cursor = Cursor::new(entry);
    let mut last: &[u8] = &[];
    while !cursor.is_empty() {
        if let WireField { number: 1, value: WireValue::Bytes(key) } = next_field(&mut cursor)? {
            last = key;
        }
    }
    Ok(last)
}

/// The bytes of an entry without its keys, which are nearly always contiguous.
fn without_key(entry: &[u8]) -> Result<Cow<'_, [u8]>, Fault> {
    let mut cursor = Cursor::new(entry);
    let mut rest: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    let mut kept = 0usize;
    let mut keep = |from: usize, to: usize| match entry.get(from..to).unwrap_or_default() {
        [] => {}
        part if rest.is_empty() => rest = Cow::Borrowed(part),
        part => rest.to_mut().extend_from_slice(part),
    };
    while !cursor.is_empty() {
        let start = cursor.offset();
        if let WireField { number: 1, value: WireValue::Bytes(_) } = next_field(&mut cursor)? {
            keep(kept, start);
            kept = cursor.offset();
        }
    }
    keep(kept, entry.len());
    Ok(rest)
}
