//! Decodes records of a tar archive to columns: the contents of their members, by field.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use arrow_array::ArrayRef;

use super::columns::{Column, Layout, Values};
use super::walk::Frames;
use crate::wire::example::Kind;
use crate::wire::tar::{Member, Members, members, split};
use crate::wire::{Fault, FaultKind};

/// The type of the contents of a field's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Bytes, unchanged.
    Bytes,
    /// Bytes, as views into the buffer that was read.
    Views,
    /// UTF-8.
    Text,
    /// A whole number, as text.
    Number,
}

/// The columns that are wanted.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The fields, with the type of their contents.
    fields: Vec<(String, Contents)>,
    numbers: HashMap<Vec<u8>, usize>,
    /// Whether the keys are wanted, as the first column.
    keys: bool,
    /// Whether a record may have no other fields.
    complete: bool,
}

impl Plan {
    /// These fields, after the keys if they are wanted. With `complete`, a record with other fields is a
    /// fault.
    pub fn new(fields: Vec<(String, Contents)>, keys: bool, complete: bool) -> Self {
        let number = |(at, field): (usize, &(String, Contents))| (field.0.clone().into_bytes(), at);
        let numbers = fields.iter().enumerate().map(number).collect();
        Self { fields, numbers, keys, complete }
    }

    /// The index of a field among the wanted fields. `guess` is right if all records have the same
    /// fields.
    #[inline(always)]
    fn number(&self, field: &[u8], guess: usize) -> Option<usize> {
        match self.fields.get(guess) {
            Some((name, _)) if name.as_bytes() == field => Some(guess),
            _ => self.numbers.get(field).copied(),
        }
    }
}

/// Reserved names, which a field must not have.
const RESERVED: [&[u8]; 3] = [b"__key__", b"__url__", b"__local_path__"];
/// Up to this many names are searched linearly.
const FEW: usize = 16;

/// The members of one record that are fields. Each may occur only once.
struct Fields<'a> {
    members: Members<'a>,
    place: u64,
    few: Vec<Cow<'a, [u8]>>,
    many: HashSet<Cow<'a, [u8]>>,
}

/// A member of a record: its name, its field, its contents.
struct Field<'a> {
    name: Cow<'a, [u8]>,
    field: Cow<'a, [u8]>,
    contents: &'a [u8],
}

impl<'a> Fields<'a> {
    fn of(frames: &'a Frames, record: usize) -> Self {
        let frame = frames.payload(record).unwrap_or_default();
        let place = frames.place(record);
        Self { members: members(frame), place, few: Vec::new(), many: HashSet::new() }
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Field<'a>>, Fault> {
        loop {
            let place = self.place.saturating_add(self.members.at() as u64);
            let Some((Member { name, is_file, .. }, contents)) = self.members.next() else {
                let done = self.members.is_done();
                return if done { Ok(None) } else { Err(changed(place)) };
            };
            let Some(start) = split(&name).map(|parts| parts.key.len().wrapping_add(1)) else {
                continue;
            };
            if is_file {
                let field = lower(part(&name, start), place)?;
                return Ok(Some(Field { name, field, contents }));
            }
        }
    }

    /// Note a field, which must not have occurred before.
    #[inline]
    fn once(&mut self, field: &Field<'a>) -> Result<(), Fault> {
        let known = self.few.contains(&field.field) || self.many.contains(&field.field);
        if known || RESERVED.contains(&&*field.field) {
            return Err(twice(self.place, field));
        }
        match self.few.len() < FEW {
            true => self.few.push(field.field.clone()),
            false => drop(self.many.insert(field.field.clone())),
        }
        Ok(())
    }
}

/// The end of a name.
fn part<'a>(name: &Cow<'a, [u8]>, start: usize) -> Cow<'a, [u8]> {
    match name {
        Cow::Borrowed(name) => Cow::Borrowed(name.get(start..).unwrap_or_default()),
        Cow::Owned(name) => Cow::Owned(name.get(start..).unwrap_or_default().to_vec()),
    }
}

/// A field's name in the form that records have.
#[inline]
fn lower(field: Cow<'_, [u8]>, place: u64) -> Result<Cow<'_, [u8]>, Fault> {
    if field.iter().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Ok(field);
    }
    match std::str::from_utf8(&field) {
        Ok(text) => Ok(Cow::Owned(text.to_lowercase().into_bytes())),
        Err(_) => Err(no_text(place)),
    }
}

#[cold]
fn no_text(place: u64) -> Fault {
    Fault::new(FaultKind::Message, place, "the name of a member is not UTF-8")
}

#[cold]
fn changed(place: u64) -> Fault {
    Fault::new(FaultKind::Framing, place, "the header of a tar member is no longer here")
}

#[cold]
fn twice(place: u64, field: &Field<'_>) -> Fault {
    let shown = String::from_utf8_lossy(&field.name);
    let message = format!("the member {shown:?} repeats a field of its record");
    Fault::new(FaultKind::Message, place, message).in_field(&String::from_utf8_lossy(&field.field))
}

/// The number of records that have each field. More than `most` fields are a fault.
pub fn count_fields(frames: &Frames, most: usize) -> Result<BTreeMap<String, u64>, Fault> {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for record in 0..frames.spans.len() {
        let mut fields = Fields::of(frames, record);
        while let Some(field) = fields.next().map_err(|fault| fault.in_record(record))? {
            let Ok(name) = std::str::from_utf8(&field.field) else {
                return Err(no_text(fields.place).in_record(record));
            };
            match found.get_mut(name) {
                Some(count) => *count = count.saturating_add(1),
                None => drop(found.insert(name.to_owned(), 1)),
            }
            if found.len() > most {
                let message = "the members have too many different endings to be fields";
                let fault = Fault::new(FaultKind::Limit, fields.place, message);
                return Err(fault.values(most as u64, found.len() as u64).in_record(record));
            }
        }
    }
    Ok(found)
}

/// The columns of a plan: the keys, if they are wanted, then the fields. A missing field is null.
pub fn decode(frames: &Frames, plan: &Plan) -> Result<Vec<ArrayRef>, Fault> {
    let records = frames.spans.len();
    let width = plan.fields.len();
    let mut values: Vec<Option<&[u8]>> = vec![None; records.saturating_mul(width)];
    let mut keys = Column::new(Some(Kind::Bytes), Layout::Scalar, true, records);
    for record in 0..records {
        let start = record.saturating_mul(width);
        let row = values.get_mut(start..start.saturating_add(width)).unwrap_or_default();
        collect(frames, record, plan, row, &mut keys).map_err(|fault| fault.in_record(record))?;
    }
    let mut arrays = Vec::with_capacity(width.saturating_add(1));
    if plan.keys {
        arrays.push(keys.finish().map_err(|fault| fault.in_field("__key__"))?);
    }
    for (at, (name, contents)) in plan.fields.iter().enumerate() {
        let column = || {
            (0..records).map(|record| {
                values.get(record.saturating_mul(width).saturating_add(at)).copied().flatten()
            })
        };
        let array = fill(frames, column, *contents, records);
        arrays.push(array.map_err(|fault| fault.in_field(name))?);
    }
    Ok(arrays)
}

/// The contents of a record's members, each at its place in `row`.
#[inline]
fn collect<'a>(
    frames: &'a Frames,
    record: usize,
    plan: &Plan,
    row: &mut [Option<&'a [u8]>],
    keys: &mut Column,
) -> Result<(), Fault> {
    let mut fields = Fields::of(frames, record);
    let mut guess = 0usize;
    let mut is_first = true;
    while let Some(field) = fields.next()? {
        if plan.keys && is_first {
            let length = split(&field.name).map_or(0, |parts| parts.key.len());
            if let Some(values) = &mut keys.values {
                values.push_bytes(field.name.get(..length).unwrap_or_default())?;
            }
            keys.close_record(record)?;
        }
        is_first = false;
        let place = plan.number(&field.field, guess).and_then(|number| {
            guess = number.wrapping_add(1);
            row.get_mut(number)
        });
        match place {
            Some(value) if value.is_none() => *value = Some(field.contents),
            Some(_) => return Err(twice(fields.place, &field)),
            None => {
                fields.once(&field)?;
                if plan.complete {
                    return Err(Fault::unexpected(fields.place, &field.field));
                }
            }
        }
    }
    Ok(())
}

fn fill<'a, I: Iterator<Item = Option<&'a [u8]>>>(
    frames: &Frames,
    values: impl Fn() -> I,
    contents: Contents,
    records: usize,
) -> Result<ArrayRef, Fault> {
    let kind = if contents == Contents::Number { Kind::Int64 } else { Kind::Bytes };
    let is_text = contents == Contents::Text;
    let mut column = Column::new(Some(kind), Layout::Scalar, is_text, records);
    match contents {
        Contents::Views => column.borrow_from(&frames.buffer),
        _ => column.reserve_bytes(values().flatten().map(<[u8]>::len).sum()),
    }
    for (record, value) in values().enumerate() {
        let Some(value) = value else {
            column.close_null()?;
            continue;
        };
        match &mut column.values {
            Some(Values::Int64(numbers)) => {
                numbers.push(number(value).ok_or_else(|| no_number(frames.place(record), record))?)
            }
            Some(values) => values.push_bytes(value)?,
            None => {}
        }
        column.close_record(record)?;
    }
    column.finish()
}

/// A whole number, which may have blanks around it.
fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

#[cold]
fn no_number(place: u64, record: usize) -> Fault {
    let message = "the contents of the member are not a 64-bit integer";
    Fault::new(FaultKind::Schema, place, message).in_record(record)
}
