//! `tf.train.Example` and `SequenceExample` payloads to columns, in one pass over the wire.
//!
//! Nearly every file writes its features in one order and one shape of bytes. So a record is read
//! along a guess (the keys of the record before, at the same places) and along a fast path for the
//! one shape that all common writers produce. Whatever is not of that shape goes to the exact, slow
//! functions of the dialect. Features that were not asked for are stepped over.

use std::collections::HashMap;

use arrow_array::ArrayRef;

use super::columns::{Column, Layout, Values};
use super::walk::Frames;
use crate::wire::cursor::Cursor;
use crate::wire::example::{self, Kind, WireField, WireValue};
use crate::wire::{Fault, FaultKind, tf_example};

/// Whose rules decide where writers were odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// protobuf's own.
    Protobuf,
    /// Those of TensorFlow's `parse_example`.
    TensorFlow,
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
    /// How values become a column.
    pub layout: Layout,
    /// Whether bytes are to be checked as UTF-8 and become strings.
    pub text: bool,
    /// Whether a record without the feature is an error.
    pub required: bool,
    /// What stands for the feature where a record lacks it.
    pub default: Option<Values>,
}

/// What to decode, made once for many batches.
#[derive(Clone, Debug)]
pub struct Plan {
    wanted: Vec<Wanted>,
    dialect: Dialect,
    context: HashMap<Vec<u8>, usize>,
    lists: HashMap<Vec<u8>, usize>,
}

impl Plan {
    /// A plan for these columns.
    pub fn new(wanted: Vec<Wanted>, dialect: Dialect) -> Self {
        let keys = |in_lists: bool| {
            let chosen = wanted.iter().enumerate().filter(move |(_, w)| w.in_lists == in_lists);
            chosen.map(|(at, w)| (w.key.clone(), at)).collect::<HashMap<_, _>>()
        };
        Self { context: keys(false), lists: keys(true), wanted, dialect }
    }
}

/// A wanted value found in a record: where its bytes are.
#[derive(Clone, Copy)]
enum Slot<'a> {
    Empty,
    /// In the record.
    Span(&'a [u8]),
    /// Joined from several places; a number in `Walker::joined`.
    Joined(usize),
}

/// The keys of the record before, each with its column.
type Guess = Vec<(Vec<u8>, Option<usize>)>;

struct Walker<'a, 'p> {
    plan: &'p Plan,
    slots: Vec<Slot<'a>>,
    joined: Vec<Vec<u8>>,
    context_guess: Guess,
    lists_guess: Guess,
    place: usize,
}

/// Decode the payloads of all frames. Arrays come in the order of the plan's columns.
pub fn decode(frames: &Frames, plan: &Plan) -> Result<Vec<ArrayRef>, Fault> {
    let records = frames.spans.len();
    let new = |w: &Wanted| Column::new(w.kind, w.layout, w.text, records);
    let mut columns: Vec<Column> = plan.wanted.iter().map(new).collect();
    let mut walker = Walker {
        plan,
        slots: vec![Slot::Empty; plan.wanted.len()],
        joined: Vec::new(),
        context_guess: Vec::new(),
        lists_guess: Vec::new(),
        place: 0,
    };
    for record in 0..records {
        let payload = frames.payload(record).unwrap_or_default();
        let start = || frames.spans.get(record).map_or(0, |s| s.0 as u64) + frames.base;
        walker
            .find(payload)
            .and_then(|()| walker.fill(&mut columns))
            .map_err(|fault| fault.shifted(start()).in_record(record))?;
    }
    let finish = |(column, wanted): (Column, &Wanted)| {
        let key = String::from_utf8_lossy(&wanted.key);
        column.finish().map_err(|fault| fault.in_field(&key))
    };
    columns.into_iter().zip(&plan.wanted).map(finish).collect()
}

/// The length of `entry` when `b` starts with a field of tag `tag` and a short length, with the
/// bytes of head before it. Short means below 2^14, which covers keys, tags and most values.
#[inline(always)]
fn short_field(b: &[u8], tag: u8) -> Option<(usize, usize)> {
    match *b {
        [t, length, ..] if t == tag && length < 0x80 => Some((usize::from(length), 2)),
        [t, low, high, ..] if t == tag && high < 0x80 => {
            Some((usize::from(low & 0x7f) | usize::from(high) << 7, 3))
        }
        _ => None,
    }
}

/// The contents of a field of this tag at the front of `b`, and what follows it.
#[inline(always)]
fn split_field(b: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    if let Some((length, head)) = short_field(b, tag) {
        return b.get(head..)?.split_at_checked(length);
    }
    let (first, rest) = b.split_first()?;
    if *first != tag {
        return None;
    }
    let (length, head) = crate::wire::varint::read(rest)?;
    rest.get(head..)?.split_at_checked(usize::try_from(length).ok()?)
}

/// The contents of a field of this tag that is all of `b`.
#[inline(always)]
fn only_field(b: &[u8], tag: u8) -> Option<&[u8]> {
    match split_field(b, tag) {
        Some((contents, [])) => Some(contents),
        _ => None,
    }
}

impl<'a> Walker<'a, '_> {
    /// Note where the wanted values of a record are.
    fn find(&mut self, payload: &'a [u8]) -> Result<(), Fault> {
        self.slots.fill(Slot::Empty);
        self.joined.clear();
        self.place = 0;
        if self.plan.lists.is_empty()
            && let Some(features) = only_field(payload, 0x0a)
        {
            return self.entries(features, false);
        }
        if self.plan.dialect == Dialect::TensorFlow && self.plan.lists.is_empty() {
            return tf_example::messages(payload, |features| self.entries(features, false));
        }
        let mut cursor = Cursor::new(payload);
        let mut list_place = 0;
        while !cursor.is_empty() {
            match example::next_field(&mut cursor)? {
                WireField { number: 1, value: WireValue::Bytes(features) } => {
                    self.entries(features, false)?;
                }
                WireField { number: 2, value: WireValue::Bytes(lists) }
                    if !self.plan.lists.is_empty() =>
                {
                    std::mem::swap(&mut self.place, &mut list_place);
                    let done = self.entries(lists, true);
                    std::mem::swap(&mut self.place, &mut list_place);
                    done?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Go through the map entries of `Features` or `FeatureLists`.
    #[inline(always)]
    fn entries(&mut self, mut rest: &'a [u8], in_lists: bool) -> Result<(), Fault> {
        while !rest.is_empty() {
            let Some((entry, after)) = split_field(rest, 0x0a) else {
                return self.odd_entries(rest, in_lists);
            };
            let usual = split_field(entry, 0x0a)
                .and_then(|(key, value)| Some((key, only_field(value, 0x12)?)));
            match usual {
                Some((key, value)) => self.put(key, Slot::Span(value), in_lists)?,
                None => self.odd_entry(entry, in_lists)?,
            }
            rest = after;
        }
        Ok(())
    }

    /// The rest of a `Features` message from the first field that is no plain map entry.
    #[cold]
    fn odd_entries(&mut self, rest: &'a [u8], in_lists: bool) -> Result<(), Fault> {
        let mut cursor = Cursor::new(rest);
        while !cursor.is_empty() {
            match example::next_field(&mut cursor)? {
                WireField { number: 1, value: WireValue::Bytes(entry) } => {
                    self.odd_entry(entry, in_lists)?;
                }
                _ if self.plan.dialect == Dialect::TensorFlow => {
                    return Err(tf_example::refused(cursor.offset()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    #[cold]
    fn odd_entry(&mut self, entry: &'a [u8], in_lists: bool) -> Result<(), Fault> {
        use std::borrow::Cow;
        if self.plan.dialect == Dialect::TensorFlow {
            let (key, value) = tf_example::entry(entry)?;
            return self.put(key, Slot::Span(value), in_lists);
        }
        let Some((key, value)) = example::entry(entry)? else {
            return Ok(()); // protobuf drops an entry that has a field it does not know
        };
        let slot = match value {
            Cow::Borrowed(value) => Slot::Span(value),
            Cow::Owned(value) => {
                self.joined.push(value);
                Slot::Joined(self.joined.len().wrapping_sub(1))
            }
        };
        self.put(&key, slot, in_lists)
    }

    /// Note a value under its column, if the key is wanted. The last one of a key wins.
    #[inline(always)]
    fn put(&mut self, key: &[u8], slot: Slot<'a>, in_lists: bool) -> Result<(), Fault> {
        let guess = if in_lists { &self.lists_guess } else { &self.context_guess };
        let column = match guess.get(self.place) {
            Some((expected, column)) if expected == key => *column,
            _ => self.look_up(key, in_lists)?,
        };
        self.place = self.place.wrapping_add(1);
        if let Some(place) = column.and_then(|column| self.slots.get_mut(column)) {
            let unset = matches!(slot, Slot::Span(value) if value.is_empty());
            if unset && self.plan.dialect == Dialect::TensorFlow && !matches!(place, Slot::Empty) {
                // TensorFlow passes over a later entry without a kind in some layouts.
                return self.put_unset(column);
            }
            *place = slot;
        }
        Ok(())
    }

    #[cold]
    fn put_unset(&mut self, column: Option<usize>) -> Result<(), Fault> {
        let dense = |w: &Wanted| matches!(w.layout, Layout::Scalar | Layout::Fixed(_));
        if let Some(column) = column
            && !self.plan.wanted.get(column).is_some_and(dense)
            && let Some(place) = self.slots.get_mut(column)
        {
            *place = Slot::Empty;
        }
        Ok(())
    }

    /// The column of a key that was not guessed; it is the guess for the next record.
    #[cold]
    fn look_up(&mut self, key: &[u8], in_lists: bool) -> Result<Option<usize>, Fault> {
        if self.plan.dialect == Dialect::Protobuf && std::str::from_utf8(key).is_err() {
            return Err(Fault::new(FaultKind::Message, 0, "key is not UTF-8"));
        }
        let (keys, guess) = if in_lists {
            (&self.plan.lists, &mut self.lists_guess)
        } else {
            (&self.plan.context, &mut self.context_guess)
        };
        let column = keys.get(key).copied();
        if self.place >= guess.len() && guess.len() < 4096 {
            guess.resize(self.place.wrapping_add(1).min(4096), (Vec::new(), None));
        }
        if let Some((expected, known)) = guess.get_mut(self.place) {
            expected.clear();
            expected.extend_from_slice(key);
            *known = column;
        }
        Ok(column)
    }

    /// Append a record's values to all columns.
    #[inline(always)]
    fn fill(&mut self, columns: &mut [Column]) -> Result<(), Fault> {
        let wanted = self.plan.wanted.iter();
        for ((column, wanted), slot) in columns.iter_mut().zip(wanted).zip(&self.slots) {
            let bytes: &[u8] = match *slot {
                Slot::Empty => &[],
                Slot::Span(bytes) => bytes,
                Slot::Joined(at) => self.joined.get(at).map_or(&[], Vec::as_slice),
            };
            let filled = if wanted.in_lists {
                let present = !matches!(slot, Slot::Empty);
                fill_list(column, wanted, bytes, present, self.plan.dialect)
            } else {
                fill_feature(column, wanted, bytes, self.plan.dialect)
            };
            filled.map_err(|fault| fault.in_field(&String::from_utf8_lossy(&wanted.key)))?;
        }
        Ok(())
    }
}

#[cold]
fn missing(column: &mut Column, wanted: &Wanted) -> Result<(), Fault> {
    match &wanted.default {
        Some(default) => column.close_default(default),
        None if wanted.required => {
            Err(Fault::new(FaultKind::Schema, 0, "required, but this record lacks it"))
        }
        None => {
            column.close_null();
            Ok(())
        }
    }
}

#[cold]
fn wrong_kind(wanted: Option<Kind>, found: Kind) -> Fault {
    let message = format!(
        "holds {} values, the schema wants {}",
        found.name(),
        wanted.map_or("none at all", Kind::name)
    );
    Fault::new(FaultKind::Schema, 0, message)
}

/// Append one record's feature to its column.
#[inline(always)]
fn fill_feature(
    column: &mut Column,
    wanted: &Wanted,
    bytes: &[u8],
    dialect: Dialect,
) -> Result<(), Fault> {
    let before = column.values.as_ref().map_or(0, Values::len);
    if append_usual(&mut column.values, bytes)? {
        return column.close_record(before);
    }
    match odd_kind(bytes, dialect)? {
        None => missing(column, wanted),
        Some((kind, lists)) => {
            append_odd(column, wanted, kind, lists, dialect)?;
            column.close_record(before)
        }
    }
}

/// Append the values of a feature of the wanted kind in the one shape that common writers use.
/// False, and nothing appended, if it is anything else.
#[inline(always)]
fn append_usual(values: &mut Option<Values>, bytes: &[u8]) -> Result<bool, Fault> {
    match values {
        Some(Values::Int64(out)) => {
            // The commonest feature of all: one number.
            if let [0x1a, 3, 0x0a, 1, byte] = *bytes
                && byte < 0x80
            {
                out.push(i64::from(byte));
                return Ok(true);
            }
            let Some(packed) = only_field(bytes, 0x1a).and_then(|list| only_field(list, 0x0a))
            else {
                return Ok(false);
            };
            example::packed_int64s(packed, out)?;
            Ok(true)
        }
        Some(Values::Float(out)) => {
            match only_field(bytes, 0x12).and_then(|list| only_field(list, 0x0a)) {
                Some(packed) if packed.len().is_multiple_of(4) => {
                    example::packed_floats(packed, out)?;
                    Ok(true)
                }
                _ => Ok(false),
            }
        }
        Some(out @ Values::Bytes(..)) => {
            let Some(mut list) = only_field(bytes, 0x0a) else { return Ok(false) };
            if let Some(value) = only_field(list, 0x0a) {
                out.push_bytes(value)?;
                return Ok(true);
            }
            let Values::Bytes(offsets, data) = out else { return Ok(false) };
            let mark = (offsets.len(), data.len());
            while !list.is_empty() {
                let Some((value, rest)) = split_field(list, 0x0a) else {
                    offsets.truncate(mark.0);
                    data.truncate(mark.1);
                    return Ok(false);
                };
                data.extend_from_slice(value);
                let end = i32::try_from(data.len()).map_err(|_| {
                    Fault::new(FaultKind::Limit, 0, "a column of this batch outgrows 2 GiB")
                })?;
                offsets.push(end);
                list = rest;
            }
            Ok(true)
        }
        None => Ok(false),
    }
}

#[cold]
fn odd_kind(bytes: &[u8], dialect: Dialect) -> Result<Option<(Kind, &[u8])>, Fault> {
    match dialect {
        Dialect::Protobuf => example::feature(bytes),
        Dialect::TensorFlow => tf_example::feature(bytes),
    }
}

#[cold]
fn append_odd(
    column: &mut Column,
    wanted: &Wanted,
    kind: Kind,
    lists: &[u8],
    dialect: Dialect,
) -> Result<(), Fault> {
    if wanted.kind != Some(kind) {
        return Err(wrong_kind(wanted.kind, kind));
    }
    let Some(values) = &mut column.values else { return Ok(()) };
    if dialect == Dialect::TensorFlow {
        let dense = matches!(wanted.layout, Layout::Scalar | Layout::Fixed(_));
        return match values {
            Values::Int64(out) => tf_example::int64s(lists, out, dense),
            Values::Float(out) => tf_example::floats(lists, out, dense),
            out @ Values::Bytes(..) => tf_example::byte_strings(lists, dense, |v| out.push_bytes(v)),
        };
    }
    example::lists(kind, lists, |list| match &mut *values {
        Values::Int64(out) => example::int64s(list, out),
        Values::Float(out) => example::floats(list, out),
        out @ Values::Bytes(..) => example::byte_strings(list, |value| out.push_bytes(value)),
    })
}

/// Append one record's feature list to its column.
fn fill_list(
    column: &mut Column,
    wanted: &Wanted,
    bytes: &[u8],
    present: bool,
    dialect: Dialect,
) -> Result<(), Fault> {
    if !present {
        return missing(column, wanted);
    }
    let mut cursor = Cursor::new(bytes);
    while !cursor.is_empty() {
        let field = example::next_field(&mut cursor)?;
        let WireField { number: 1, value: WireValue::Bytes(frame) } = field else {
            continue;
        };
        let before = column.values.as_ref().map_or(0, Values::len);
        if !append_usual(&mut column.values, frame)?
            && let Some((kind, lists)) = odd_kind(frame, dialect)?
        {
            append_odd(column, wanted, kind, lists, dialect)?;
        }
        column.close_frame(before)?;
    }
    let before = column.values.as_ref().map_or(0, Values::len);
    column.close_record(before)
}
