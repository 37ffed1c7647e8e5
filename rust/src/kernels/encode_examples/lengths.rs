//! The first pass: measures the length of every part of every message, before anything is written.

use super::{ABSENT, MESSAGE_BYTES, Payload, disagree, too_long};
use crate::kernels::example_columns::{Column, Rows, Section, Values};
use crate::wire::{Fault, varint};

/// Bytes of a varint, in the type of lengths.
#[inline(always)]
pub(super) fn varint_len(value: u64) -> u64 {
    varint::len(value) as u64
}

/// Bytes of a length-delimited field whose tag takes one byte.
#[inline(always)]
pub fn field_len(length: u64) -> u64 {
    1u64.saturating_add(varint_len(length)).saturating_add(length)
}

/// The bytes of a list's packed run, given those of the list: tag, varint and run.
#[inline(always)]
pub(super) fn run_len(list: u64) -> Option<u64> {
    (1..=10).find_map(|width| {
        let run = list.checked_sub(1)?.checked_sub(width)?;
        (varint_len(run) == width).then_some(run)
    })
}

/// The lengths of the parts of every record's message, without their tags and lengths. A part that no
/// message has is an empty vector.
pub(super) struct Sections {
    context: Vec<u64>,
    lists: Vec<u64>,
}

impl Sections {
    pub(super) fn new(columns: &[Column<'_>], payload: Payload, num_records: usize) -> Self {
        let has = |section| columns.iter().any(|column| column.section == section);
        let part = |present| if present { vec![0; num_records] } else { Vec::new() };
        Self {
            context: part(payload == Payload::Example || has(Section::Context)),
            lists: part(has(Section::Lists)),
        }
    }

    pub(super) fn of(&mut self, section: Section) -> &mut [u64] {
        match section {
            Section::Context => &mut self.context,
            Section::Lists => &mut self.lists,
        }
    }

    #[inline(always)]
    pub(super) fn lengths(&self, section: Section) -> &[u64] {
        match section {
            Section::Context => &self.context,
            Section::Lists => &self.lists,
        }
    }

    pub(super) fn payload_len(&self, record: usize) -> Option<u64> {
        let part = |lengths: &Vec<u64>| lengths.get(record).map_or(0, |&length| field_len(length));
        Some(part(&self.context).saturating_add(part(&self.lists)))
    }
}

/// The bytes inside the list of each record's feature, or inside its feature list.
pub(super) fn measure(column: &Column<'_>, num_records: usize) -> Result<Vec<u32>, Fault> {
    if let Some(lengths) = measure_usual(column, num_records) {
        return Ok(lengths);
    }
    let mut lengths = Vec::with_capacity(num_records);
    for record in 0..num_records {
        if column.is_null(record) {
            lengths.push(ABSENT);
            continue;
        }
        let length = match &column.frames {
            None => feature_list_len(column, record, record)?,
            Some(frames) => {
                let (start, count) = frames.span(record).ok_or_else(|| disagree(record))?;
                let mut total = 0u64;
                for frame in start..start.saturating_add(count) {
                    let list = feature_list_len(column, frame, record)?;
                    total = total.saturating_add(field_len(list.map_or(0, field_len)));
                }
                Some(total)
            }
        };
        match length {
            None => lengths.push(ABSENT),
            Some(length) if length <= MESSAGE_BYTES => lengths.push(length as u32),
            Some(length) => return Err(too_long(record, length)),
        }
    }
    Ok(lengths)
}

/// The same for the most common columns: the same number of values in every record, and no nulls. None for
/// other columns, and if anything is wrong.
fn measure_usual(column: &Column<'_>, num_records: usize) -> Option<Vec<u32>> {
    if column.has_nulls() || column.frames.is_some() {
        return None;
    }
    match (&column.rows, &column.values) {
        (Rows::One, Values::Int(values)) => {
            let list = |&value: &i64| field_len(varint_len(value as u64)) as u32;
            Some(values.get(..num_records)?.iter().map(list).collect())
        }
        (Rows::One, Values::Bytes(values)) => {
            let list = |record| u32::try_from(field_len(values.get(record)?.len() as u64)).ok();
            let lengths: Vec<u32> = (0..num_records).map(list).collect::<Option<_>>()?;
            let longest = lengths.iter().copied().max().unwrap_or(0);
            (u64::from(longest) <= MESSAGE_BYTES).then_some(lengths)
        }
        (&Rows::Fixed(width), Values::Float(values)) => {
            values.get(..num_records.checked_mul(width)?)?;
            let length = column.values.list_len(0, width)?;
            (length <= MESSAGE_BYTES).then(|| vec![length as u32; num_records])
        }
        _ => None,
    }
}

/// The bytes inside the list of one feature, or None if its column does not determine the type of an empty
/// list.
#[inline(always)]
pub(super) fn feature_list_len(
    column: &Column<'_>,
    row: usize,
    record: usize,
) -> Result<Option<u64>, Fault> {
    let (start, count) = column.rows.span(row).ok_or_else(|| disagree(record))?;
    column.refuse_nulls(row, start, count).map_err(|fault| fault.in_record(record))?;
    if matches!(column.values, Values::Nothing) {
        return Ok(None);
    }
    let length = column.values.list_len(start, count).ok_or_else(|| disagree(record))?;
    Ok(Some(length))
}

impl Values<'_> {
    /// Bytes inside the message of a list with `count` values.
    #[inline(always)]
    pub(super) fn list_len(&self, start: usize, count: usize) -> Option<u64> {
        let run = match self {
            Self::Nothing => 0,
            Self::Int(values) => {
                let values = values.get(start..start.checked_add(count)?)?;
                values.iter().fold(0u64, |sum, &v| sum.wrapping_add(varint_len(v as u64)))
            }
            Self::Float(values) => {
                let values = values.get(start..start.checked_add(count)?)?;
                (values.len() as u64).saturating_mul(4)
            }
            Self::Bytes(values) => {
                let mut total = 0u64;
                for at in start..start.checked_add(count)? {
                    total = total.saturating_add(field_len(values.get(at)?.len() as u64));
                }
                return Some(total);
            }
        };
        Some(if run == 0 { 0 } else { field_len(run) })
    }
}
