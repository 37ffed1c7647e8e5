//! Decodes MessagePack maps to Arrow columns, record by record; each value is read once.
//!
//! The wanted columns are an Arrow schema. The metadata key `penstock.msgpack` of a field states
//! facts that the Arrow type does not express: "tensor 2,3" (a map of an array of shape 2 × 3),
//! "ragged 2" (arrays of two axes), "ext" (an extension), "raw" (the bytes of any value). Values
//! under other keys are skipped.

mod arrays;
mod columns;
mod faults;
mod form;
#[cfg(test)]
mod tests;

use crate::tuned::BLOCK_RECORDS;
use std::collections::HashMap;
use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field, Fields};

pub use self::columns::Column;
pub use self::form::{Form, dtype_of};
use super::walk::Frames;
use crate::kernels::columns::are_large;
use crate::wire::cursor::Cursor;
use crate::wire::msgpack::{Token, skip, token};
use crate::wire::{Fault, FaultKind};

/// The key of the metadata.
pub const MARK: &str = "penstock.msgpack";

/// A limit that no option changes: deeper types are not read into columns.
pub const TYPE_LEVELS: usize = 32;

/// Limits for the values of one file.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Nesting depth of arrays and maps.
    pub nesting: usize,
    /// Bytes of nulls in one batch, which take no space in the file.
    pub blanks: u64,
    /// Whether other text keys are a fault.
    pub complete: bool,
}

/// The columns to fill, made once for many batches.
#[derive(Clone, Debug)]
pub struct Plan {
    fields: Vec<(Vec<u8>, Form)>,
    costs: Costs,
}

impl Plan {
    /// A plan for the fields of a schema.
    pub fn new(fields: &Fields, costs: Costs) -> Result<Self, Fault> {
        let form = |field: &std::sync::Arc<Field>| {
            let form = Form::of(field, 0).map_err(|fault| fault.in_field(field.name()))?;
            Ok((field.name().as_bytes().to_vec(), form))
        };
        Ok(Self { fields: fields.iter().map(form).collect::<Result<_, Fault>>()?, costs })
    }
}

/// Decode all frames. `verify` checks each run of frames first.
pub fn decode(
    frames: &Frames,
    plan: &Plan,
    verify: impl Fn(Range<usize>) -> Result<(), Fault>,
) -> Result<Vec<ArrayRef>, Fault> {
    let num_records = frames.spans.len();
    let mut costs = plan.costs;
    let mut map = Map::new(&plan.fields, num_records);
    let num_bytes = frames.spans.iter().fold(0usize, |all, span| all.saturating_add(span.1));
    if are_large(num_bytes, num_records) {
        map.reserve_bytes(num_bytes);
    }
    for first in (0..num_records).step_by(BLOCK_RECORDS) {
        let last = first.saturating_add(BLOCK_RECORDS).min(num_records);
        verify(first..last)?;
        for record in first..last {
            let mut cursor = Cursor::new(frames.payload(record).unwrap_or_default());
            let read = match token(&mut cursor) {
                Ok(Token::Map(count)) => map.read(&mut cursor, count, &mut costs, true),
                Ok(other) => Err(no_map(&other)),
                Err(fault) => Err(fault),
            };
            if let Err(mut fault) = read {
                fault.byte = frames.place(record).saturating_add(cursor.offset() as u64);
                return Err(fault.in_record(record));
            }
        }
    }
    map.columns.into_iter().map(Column::finish).collect()
}

/// The columns of a map's values, record by record or, within another column, value by value.
#[derive(Debug)]
pub struct Map {
    columns: Vec<Column>,
    names: Vec<Vec<u8>>,
    places: HashMap<Vec<u8>, usize>,
    /// For each place in a map, the bytes of the key that was there in the previous map, and its
    /// column.
    guesses: Vec<(Vec<u8>, Option<usize>)>,
    rows: usize,
}

/// How many keys are remembered by their place.
const MOST_GUESSES: usize = 4096;

impl Map {
    fn new(fields: &[(Vec<u8>, Form)], rows: usize) -> Self {
        Self {
            columns: fields.iter().map(|(_, form)| Column::new(form, rows)).collect(),
            names: fields.iter().map(|(name, _)| name.clone()).collect(),
            places: fields.iter().enumerate().map(|(n, (name, _))| (name.clone(), n)).collect(),
            guesses: Vec::new(),
            rows: 0,
        }
    }

    /// Reserve capacity for this many bytes in the only column of strings, if there is just one.
    fn reserve_bytes(&mut self, num_bytes: usize) {
        let mut strings = self.columns.iter_mut().filter_map(Column::strings);
        if let (Some(only), None) = (strings.next(), strings.next()) {
            only.reserve(num_bytes);
        }
    }

    /// Append a map whose head has been read. If a key is repeated, its last value counts.
    #[inline(always)]
    fn read(
        &mut self,
        cursor: &mut Cursor<'_>,
        count: u32,
        costs: &mut Costs,
        top: bool,
    ) -> Result<(), Fault> {
        let mut filled = 0usize;
        for place in 0..count as usize {
            let start = cursor.offset();
            let Some(number) = self.column_of(place, cursor)? else {
                if costs.complete {
                    no_text(&mut cursor.at(start))?;
                }
                skip(cursor, costs.nesting)?;
                continue;
            };
            let Some(column) = self.columns.get_mut(number) else { continue };
            if column.len() > self.rows {
                column.truncate(self.rows);
            } else {
                filled = filled.wrapping_add(1);
            }
            if let Err(fault) = column.read(cursor, costs) {
                let name = self.names.get(number).map(|name| String::from_utf8_lossy(name));
                // Inside a field, the error names the field, because the user knows it.
                return Err(if top { fault.in_field(&name.unwrap_or_default()) } else { fault });
            }
        }
        if filled < self.columns.len() {
            self.fill(costs)?;
        }
        self.rows = self.rows.wrapping_add(1);
        Ok(())
    }

    /// Append a null to the columns that the last map had no value for.
    fn fill(&mut self, costs: &mut Costs) -> Result<(), Fault> {
        let rows = self.rows;
        self.columns.iter_mut().filter(|c| c.len() == rows).try_for_each(|c| c.push_null(costs))
    }

    /// The column of the next key.
    #[inline(always)]
    fn column_of(&mut self, place: usize, cursor: &mut Cursor<'_>) -> Result<Option<usize>, Fault> {
        if let Some((bytes, column)) = self.guesses.get(place)
            && cursor.rest().starts_with(bytes)
        {
            cursor.take(bytes.len())?;
            return Ok(*column);
        }
        self.look_up(place, cursor)
    }

    fn look_up(&mut self, place: usize, cursor: &mut Cursor<'_>) -> Result<Option<usize>, Fault> {
        let start = cursor.offset();
        let key = match token(cursor)? {
            Token::Str(key) | Token::Bin(key) => key,
            Token::Array(_) | Token::Map(_) => {
                // A key that is a container is not a field. It is skipped together with its value.
                *cursor = cursor.at(start);
                skip(cursor, TYPE_LEVELS)?;
                return Ok(None);
            }
            _ => return Ok(None),
        };
        let column = self.places.get(key).copied();
        let raw = cursor.since(start);
        if raw.len() <= 64 && place < MOST_GUESSES {
            if self.guesses.len() <= place {
                // MessagePack does not use 0xc1, so this guess matches nothing.
                self.guesses.resize(place.wrapping_add(1), (vec![0xc1], None));
            }
            if let Some(guess) = self.guesses.get_mut(place) {
                *guess = (raw.to_vec(), column);
            }
        }
        Ok(column)
    }

    fn truncate(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
    }

    fn push_nulls(&mut self, costs: &mut Costs) -> Result<(), Fault> {
        self.rows = self.rows.wrapping_add(1);
        self.columns.iter_mut().try_for_each(|column| column.push_null(costs))
    }
}

/// The fault of a record that is not a map.
#[cold]
fn no_map(found: &Token<'_>) -> Fault {
    Fault { kind: FaultKind::Message, ..unfit("a record", found, "a map") }
}

/// The fault of a value that a column cannot hold.
#[cold]
pub fn unfit(what: &str, found: &Token<'_>, wanted: &str) -> Fault {
    let message = format!("{what} is {}, the schema wants {wanted}", found.name());
    Fault::new(FaultKind::Schema, 0, message)
}

/// The fault of a key that has no column, but could have one.
#[cold]
fn no_text(cursor: &mut Cursor<'_>) -> Result<(), Fault> {
    match token(cursor)? {
        Token::Str(key) | Token::Bin(key) => Err(Fault::unexpected(0, key)),
        _ => Ok(()),
    }
}

/// The mark of a field.
fn mark(field: &Field) -> &str {
    field.metadata().get(MARK).map_or("", String::as_str)
}

/// The fault of a type for which there is no column.
#[cold]
fn unknown(kind: &DataType) -> Fault {
    let message = format!("MessagePack values cannot be read as {kind}");
    Fault::new(FaultKind::Schema, 0, message)
}
