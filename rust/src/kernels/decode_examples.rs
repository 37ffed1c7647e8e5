//! Decodes `tf.train.Example` and `SequenceExample` payloads to columns, in one pass over the bytes.
//!
//! In nearly every file, all records have the same feature order and encoding. So the decoder predicts the
//! keys of a record from the previous record, and has a fast path for the encoding that all common writers
//! produce. Everything else is decoded by exact, slow functions for each dialect. Features that were not
//! requested are skipped.

pub mod at_once;
mod fill;
mod walker;

use crate::tuned::BLOCK_RECORDS;
use std::collections::HashMap;
use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;
use walker::Walker;

use super::columns::{Column, Layout, Values, are_large};
use super::strings::settle;
use super::walk::Frames;
use crate::wire::example::Kind;
use crate::wire::tf_example::Parser;
use crate::wire::{Fault, FaultKind};

/// The rules for unusual encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Those of protobuf.
    Protobuf,
    /// Those of TensorFlow's parsers.
    TensorFlow(Parser),
}

/// Which numbers a column of numbers accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Numbers of the column's kind.
    OfItsKind,
    /// Also numbers of the other kind, if no value changes.
    Any,
    /// Like `Any`, but the numbers are converted to float64.
    Doubles,
}

/// One wanted column.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The key on the wire.
    pub key: Vec<u8>,
    /// Whether the key is one of a SequenceExample's feature lists.
    pub in_lists: bool,
    /// The kind of its values, or None for a column that has only nulls.
    pub kind: Option<Kind>,
    /// Which numbers it accepts. Not used in TensorFlow's dialects, which convert nothing.
    pub numbers: Numbers,
    /// How values become a column.
    pub layout: Layout,
    /// Whether bytes are checked as UTF-8 and become strings.
    pub text: bool,
    /// Whether byte strings become views into the buffer that was read. Not for text.
    pub borrow: bool,
    /// Whether a record without the feature is an error.
    pub required: bool,
    /// The value for records that lack the feature.
    pub default: Option<Values>,
}

/// What to decode, made once for many batches.
#[derive(Clone, Debug)]
pub struct Plan {
    wanted: Vec<Wanted>,
    dialect: Dialect,
    context: HashMap<Vec<u8>, usize>,
    lists: HashMap<Vec<u8>, usize>,
    /// Columns that share their key with an earlier column, each with that column.
    shared: Vec<(usize, usize)>,
    /// Whether an entry without a kind never replaces an earlier entry, as in `parse_single_example`. In
    /// TensorFlow's batch parser, this is true only for dense tensors.
    pub single: bool,
    /// Whether a record may have no other features.
    pub complete: bool,
}

impl Plan {
    /// A plan for these columns.
    pub fn new(wanted: Vec<Wanted>, mut dialect: Dialect) -> Self {
        let (mut context, mut lists) = (HashMap::new(), HashMap::new());
        let mut shared = Vec::new();
        for (at, column) in wanted.iter().enumerate() {
            let keys = if column.in_lists { &mut lists } else { &mut context };
            let first = *keys.entry(column.key.clone()).or_insert(at);
            if first != at {
                shared.push((at, first));
            }
        }
        if dialect != Dialect::Protobuf && !lists.is_empty() {
            dialect = Dialect::TensorFlow(Parser::Sequence);
        }
        Self { wanted, dialect, context, lists, shared, single: false, complete: false }
    }

    fn columns(&self, records: usize) -> Vec<Column> {
        let values = |w: &Wanted| match w.numbers {
            Numbers::Doubles => Some(Values::Double(Vec::new())),
            _ => w.kind.map(Values::new),
        };
        let new = |w: &Wanted| Column::of(values(w), w.layout, w.text, records);
        self.wanted.iter().map(new).collect()
    }
}

/// Serialized records in any storage.
pub trait Payloads {
    /// How many records there are.
    fn count(&self) -> usize;

    /// The bytes of one record.
    fn payload(&self, record: usize) -> &[u8];

    /// The record's offset in its file, for faults.
    fn place(&self, _record: usize) -> u64 {
        0
    }
}

impl Payloads for Frames {
    fn count(&self) -> usize {
        self.spans.len()
    }

    #[inline(always)]
    fn payload(&self, record: usize) -> &[u8] {
        self.payload(record).unwrap_or_default()
    }

    fn place(&self, record: usize) -> u64 {
        self.place(record)
    }
}

impl Payloads for [&[u8]] {
    fn count(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn payload(&self, record: usize) -> &[u8] {
        self.get(record).copied().unwrap_or_default()
    }
}

/// Decode the payloads of all frames. The arrays are in the order of the plan's columns.
///
/// `verify` is called for each block of records before they are decoded. A block fits into the L1 cache,
/// and is large enough that the checksums of several records overlap in the CPU. If records are large,
/// `threads` threads verify them and copy their strings after all have been decoded.
pub fn decode(
    frames: &Frames,
    plan: &Plan,
    threads: usize,
    verify: impl Fn(Range<usize>) -> Result<(), Fault> + Sync,
) -> Result<Vec<ArrayRef>, Fault> {
    let records = frames.spans.len();
    let is_late = are_large(num_bytes(frames), records);
    let mut columns = plan.columns(records);
    for (column, wanted) in columns.iter_mut().zip(&plan.wanted) {
        if is_late || wanted.borrow {
            column.borrow_from(&frames.buffer);
        }
    }
    if is_late {
        read(frames, plan, &mut columns, |_| Ok(())).map_err(|fault| {
            // If a record is damaged, report that fault instead.
            let end = fault.record.map_or(records, |record| record.saturating_add(1));
            verify(0..end).err().unwrap_or(fault)
        })?;
        let is_borrowed =
            |column: usize| plan.wanted.get(column).is_some_and(|wanted| wanted.borrow);
        let key = |column: usize| {
            let key = plan.wanted.get(column).map(|wanted| wanted.key.as_slice());
            String::from_utf8_lossy(key.unwrap_or_default()).into_owned()
        };
        // As above, report damage first: a column may be too large because records are damaged.
        let explained = |fault: Fault| match fault.kind {
            FaultKind::Limit => verify(0..records).err().unwrap_or(fault),
            _ => fault,
        };
        settle(frames, &mut columns, is_borrowed, key, threads, &verify).map_err(explained)?;
    } else {
        read(frames, plan, &mut columns, verify)?;
    }
    finished(columns, plan)
}

fn finished(columns: Vec<Column>, plan: &Plan) -> Result<Vec<ArrayRef>, Fault> {
    let finish = |(column, wanted): (Column, &Wanted)| {
        let key = String::from_utf8_lossy(&wanted.key);
        column.finish().map_err(|fault| fault.in_field(&key))
    };
    columns.into_iter().zip(&plan.wanted).map(finish).collect()
}

/// Decode unverified payloads to columns that are not arrays yet. Strings are borrowed if all payloads are
/// in one `buffer`.
pub fn decode_columns<P: Payloads + ?Sized>(
    payloads: &P,
    plan: &Plan,
    buffer: Option<&Buffer>,
) -> Result<Vec<Column>, Fault> {
    let mut columns = plan.columns(payloads.count());
    let strings = plan.wanted.iter().filter(|w| w.kind == Some(Kind::Bytes)).count();
    let num_bytes = num_bytes(payloads);
    if let Some(buffer) = buffer {
        columns.iter_mut().for_each(|column| column.borrow_from(buffer));
    } else if strings == 1 && are_large(num_bytes, payloads.count()) {
        columns.iter_mut().for_each(|column| column.reserve_bytes(num_bytes));
    }
    read(payloads, plan, &mut columns, |_| Ok(()))?;
    Ok(columns)
}

fn num_bytes<P: Payloads + ?Sized>(payloads: &P) -> usize {
    (0..payloads.count()).map(|record| payloads.payload(record).len()).sum()
}

fn read<P: Payloads + ?Sized>(
    payloads: &P,
    plan: &Plan,
    columns: &mut [Column],
    verify: impl Fn(Range<usize>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let records = payloads.count();
    let mut walker = Walker::new(plan);
    for record in 0..records {
        if record.is_multiple_of(BLOCK_RECORDS) {
            verify(record..record.saturating_add(BLOCK_RECORDS).min(records))?;
        }
        if record == BLOCK_RECORDS {
            let num_bytes = num_bytes(payloads);
            columns.iter_mut().for_each(|column| column.expect(records, num_bytes));
        }
        let payload = payloads.payload(record);
        let start = || payloads.place(record);
        walker
            .find(payload)
            .and_then(|()| walker.fill(columns))
            .map_err(|fault| fault.shifted(start()).in_record(record))?;
    }
    Ok(())
}
