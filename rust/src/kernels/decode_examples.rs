//! `tf.train.Example` and `SequenceExample` payloads to columns, in one pass over the wire.
//!
//! Nearly every file writes its features in one order and one shape of bytes. So a record is read
//! along a guess (the keys of the record before, at the same places) and along a fast path for the
//! one shape that all common writers produce. Whatever is not of that shape goes to the exact, slow
//! functions of the dialect. Features that were not asked for are stepped over.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use arrow_array::ArrayRef;

use super::columns::{Column, Layout, Values, are_large};
use super::walk::Frames;
use crate::wire::cursor::Cursor;
use crate::wire::example::{self, Kind, WireField, WireValue};
use crate::wire::tf_example::{self, Parser};
use crate::wire::{Fault, FaultKind};

/// Whose rules decide where writers were odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// protobuf's own.
    Protobuf,
    /// Those of TensorFlow's own parsers.
    TensorFlow(Parser),
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
    /// Columns whose key an earlier column has too, with that column.
    shared: Vec<(usize, usize)>,
    /// Whether an entry without a kind never replaces an earlier one, as in `parse_single_example`.
    /// In TensorFlow's batch form that is so for dense tensors only.
    pub single: bool,
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
        Self { wanted, dialect, context, lists, shared, single: false }
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

impl Slot<'_> {
    fn is_present(&self) -> bool {
        !matches!(self, Slot::Empty)
    }
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

const BLOCK_RECORDS: usize = 64;

/// Serialized records, wherever they lie.
pub trait Payloads {
    /// How many records there are.
    fn count(&self) -> usize;

    /// The bytes of one.
    fn payload(&self, record: usize) -> &[u8];

    /// Where it lies in its file, for faults.
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

/// Decode the payloads of all frames. Arrays come in the order of the plan's columns.
///
/// `prove` is called for each block of records before they are read. A block is small enough for the
/// nearest cache, and large enough that the checksums of several records overlap in the processor.
pub fn decode(
    frames: &Frames,
    plan: &Plan,
    prove: impl Fn(Range<usize>) -> Result<(), Fault>,
) -> Result<Vec<ArrayRef>, Fault> {
    let finish = |(column, wanted): (Column, &Wanted)| {
        let key = String::from_utf8_lossy(&wanted.key);
        column.finish().map_err(|fault| fault.in_field(&key))
    };
    decode_columns(frames, plan, prove)?.into_iter().zip(&plan.wanted).map(finish).collect()
}

/// The same, as columns that are no arrays yet.
pub fn decode_columns<P: Payloads + ?Sized>(
    payloads: &P,
    plan: &Plan,
    prove: impl Fn(Range<usize>) -> Result<(), Fault>,
) -> Result<Vec<Column>, Fault> {
    let records = payloads.count();
    let new = |w: &Wanted| Column::new(w.kind, w.layout, w.text, records);
    let mut columns: Vec<Column> = plan.wanted.iter().map(new).collect();
    let strings = plan.wanted.iter().filter(|w| w.kind == Some(Kind::Bytes)).count();
    let num_bytes: usize = (0..records).map(|record| payloads.payload(record).len()).sum();
    if strings == 1 && are_large(num_bytes, records) {
        columns.iter_mut().for_each(|column| column.reserve_bytes(num_bytes));
    }
    let mut walker = Walker {
        plan,
        slots: vec![Slot::Empty; plan.wanted.len()],
        joined: Vec::new(),
        context_guess: Vec::new(),
        lists_guess: Vec::new(),
        place: 0,
    };
    for record in 0..records {
        if record.is_multiple_of(BLOCK_RECORDS) {
            prove(record..record.saturating_add(BLOCK_RECORDS).min(records))?;
        }
        let payload = payloads.payload(record);
        let start = || payloads.place(record);
        walker
            .find(payload)
            .and_then(|()| walker.fill(&mut columns))
            .map_err(|fault| fault.shifted(start()).in_record(record))?;
    }
    Ok(columns)
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

/// Whether two keys are the same. Most are short enough for two loads each that may overlap, which
/// is less than calling a function.
#[inline(always)]
fn same_key(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match a.len() {
        4..8 => a.first_chunk::<4>() == b.first_chunk() && a.last_chunk::<4>() == b.last_chunk(),
        8..17 => a.first_chunk::<8>() == b.first_chunk() && a.last_chunk::<8>() == b.last_chunk(),
        2..4 => a.first_chunk::<2>() == b.first_chunk() && a.last() == b.last(),
        _ => a == b,
    }
}

impl<'a> Walker<'a, '_> {
    /// Note where the wanted values of a record are.
    fn find(&mut self, payload: &'a [u8]) -> Result<(), Fault> {
        self.slots.fill(Slot::Empty);
        self.joined.clear();
        self.place = 0;
        if self.plan.lists.is_empty()
            && self.plan.dialect != Dialect::TensorFlow(Parser::Sequence)
            && let Some(features) = only_field(payload, 0x0a)
        {
            self.entries(features, false)?;
        } else {
            self.find_odd(payload)?;
        }
        if self.plan.shared.is_empty() { Ok(()) } else { self.share() }
    }

    /// Give columns that share a key with an earlier one what was found for that.
    #[cold]
    fn share(&mut self) -> Result<(), Fault> {
        for &(column, first) in &self.plan.shared {
            if let Some(&slot) = self.slots.get(first)
                && let Some(place) = self.slots.get_mut(column)
            {
                *place = slot;
            }
        }
        Ok(())
    }

    /// The same for a payload that is not one plain `Features` message.
    fn find_odd(&mut self, payload: &'a [u8]) -> Result<(), Fault> {
        let mut list_place = 0;
        let mut map = |walker: &mut Self, in_lists: bool, map: &'a [u8]| {
            if !in_lists {
                return walker.entries(map, false);
            }
            std::mem::swap(&mut walker.place, &mut list_place);
            let done = walker.entries(map, true);
            std::mem::swap(&mut walker.place, &mut list_place);
            done
        };
        if let Dialect::TensorFlow(parser) = self.plan.dialect {
            return tf_example::maps(payload, parser, |in_lists, bytes| map(self, in_lists, bytes));
        }
        let mut cursor = Cursor::new(payload);
        while !cursor.is_empty() {
            match example::next_field(&mut cursor)? {
                WireField { number: 1, value: WireValue::Bytes(features) } => {
                    map(self, false, features)?;
                }
                WireField { number: 2, value: WireValue::Bytes(lists) }
                    if !self.plan.lists.is_empty() =>
                {
                    map(self, true, lists)?;
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
        if let Dialect::TensorFlow(parser) = self.plan.dialect {
            return tf_example::entries(rest, parser, |key, value| {
                self.put(key, Slot::Span(value), in_lists)
            });
        }
        let mut cursor = Cursor::new(rest);
        while !cursor.is_empty() {
            let field = example::next_field(&mut cursor)?;
            if let WireField { number: 1, value: WireValue::Bytes(entry) } = field {
                self.odd_entry(entry, in_lists)?;
            }
        }
        Ok(())
    }

    #[cold]
    fn odd_entry(&mut self, entry: &'a [u8], in_lists: bool) -> Result<(), Fault> {
        if let Dialect::TensorFlow(parser) = self.plan.dialect {
            let (key, value) = tf_example::entry(entry, parser)?;
            return self.put(key, Slot::Span(value), in_lists);
        }
        let Some((key, value)) = example::entry(entry, in_lists)? else {
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
            Some((expected, column)) if same_key(expected, key) => *column,
            _ => self.look_up(key, in_lists)?,
        };
        self.place = self.place.wrapping_add(1);
        if let Some(place) = column.and_then(|column| self.slots.get_mut(column)) {
            if place.is_present() {
                return self.put_again(column, slot, in_lists);
            }
            *place = slot;
        }
        Ok(())
    }

    /// Note a further value of a key. The one before is read for its faults, as the parsers do.
    #[cold]
    fn put_again(
        &mut self,
        column: Option<usize>,
        slot: Slot<'a>,
        in_lists: bool,
    ) -> Result<(), Fault> {
        let Some(place) = column.and_then(|column| self.slots.get_mut(column)) else {
            return Ok(());
        };
        match (self.plan.dialect, &*place) {
            (Dialect::Protobuf, Slot::Span(before)) => example::check(before, in_lists)?,
            (Dialect::TensorFlow(Parser::Example), Slot::Span(before)) => {
                tf_example::kind(before)?;
                // In a dense column an entry without a kind does not replace the one before.
                let wanted = column.and_then(|column| self.plan.wanted.get(column));
                let keeps = |w: &Wanted| self.plan.single || w.layout.is_dense();
                if matches!(slot, Slot::Span([])) && wanted.is_some_and(keeps) {
                    return Ok(());
                }
            }
            _ => {}
        }
        *place = slot;
        Ok(())
    }

    /// The column of a key that was not guessed; it is the guess for the next record.
    #[cold]
    fn look_up(&mut self, key: &[u8], in_lists: bool) -> Result<Option<usize>, Fault> {
        if self.plan.dialect == Dialect::Protobuf {
            example::check_key(key)?;
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
                fill_list(column, wanted, bytes, slot.is_present(), self.plan.dialect)
            } else {
                fill_feature(column, wanted, bytes, || slot.is_present(), self.plan.dialect)
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
    present: impl Fn() -> bool,
    dialect: Dialect,
) -> Result<(), Fault> {
    let before = column.values.as_ref().map_or(0, Values::len);
    if append_usual(&mut column.values, bytes)? {
        return column.close_record(before);
    }
    fill_odd(column, wanted, bytes, present(), dialect)
}

/// The same for a feature in any other shape.
#[cold]
fn fill_odd(
    column: &mut Column,
    wanted: &Wanted,
    bytes: &[u8],
    present: bool,
    dialect: Dialect,
) -> Result<(), Fault> {
    let before = column.values.as_ref().map_or(0, Values::len);
    let counts = match dialect {
        Dialect::Protobuf => append_odd(column, wanted, bytes)?,
        Dialect::TensorFlow(parser) => {
            append_tensorflow(column, wanted, &mut Cursor::new(bytes), parser)?
                || (present && parser == Parser::Sequence)
        }
    };
    if counts { column.close_record(before) } else { missing(column, wanted) }
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

/// Append the values of a feature in any shape that protobuf reads. False if it has no kind.
fn append_odd(column: &mut Column, wanted: &Wanted, bytes: &[u8]) -> Result<bool, Fault> {
    let Some((kind, lists)) = example::feature(bytes)? else { return Ok(false) };
    if wanted.kind != Some(kind) {
        return Err(wrong_kind(wanted.kind, kind));
    }
    let Some(values) = &mut column.values else { return Ok(false) };
    example::lists(kind, lists, |list| match &mut *values {
        Values::Int64(out) => example::int64s(list, out),
        Values::Float(out) => example::floats(list, out),
        out @ Values::Bytes(..) => example::byte_strings(list, |value| out.push_bytes(value)),
    })?;
    Ok(true)
}

/// Append the values of a feature in any shape that TensorFlow reads. False if it has no kind.
fn append_tensorflow(
    column: &mut Column,
    wanted: &Wanted,
    feature: &mut Cursor<'_>,
    parser: Parser,
) -> Result<bool, Fault> {
    let Some(kind) = tf_example::kind(feature.rest())? else { return Ok(false) };
    feature.u8()?;
    append_list_tensorflow(column, wanted, kind, feature, parser)?;
    Ok(true)
}

/// Append the values of the list of a kind, from behind its tag on.
fn append_list_tensorflow(
    column: &mut Column,
    wanted: &Wanted,
    kind: Kind,
    list: &mut Cursor<'_>,
    parser: Parser,
) -> Result<(), Fault> {
    if wanted.kind != Some(kind) {
        return Err(wrong_kind(wanted.kind, kind));
    }
    match &mut column.values {
        Some(Values::Int64(out)) => tf_example::int64s(list, parser, out),
        Some(Values::Float(out)) => tf_example::floats(list, parser, out),
        Some(out @ Values::Bytes(..)) => {
            tf_example::byte_strings(list, |value| out.push_bytes(value))
        }
        None => Ok(()),
    }
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
    if dialect != Dialect::Protobuf {
        return fill_list_tensorflow(column, wanted, bytes);
    }
    let mut cursor = Cursor::new(bytes);
    while !cursor.is_empty() {
        let field = example::next_field(&mut cursor)?;
        let WireField { number: 1, value: WireValue::Bytes(frame) } = field else {
            continue;
        };
        let before = column.values.as_ref().map_or(0, Values::len);
        if !append_usual(&mut column.values, frame)? {
            append_odd(column, wanted, frame)?;
        }
        column.close_frame(before)?;
    }
    let before = column.values.as_ref().map_or(0, Values::len);
    column.close_record(before)
}

/// The same by TensorFlow's rules, which take what is left over in a frame for the next one.
fn fill_list_tensorflow(
    column: &mut Column,
    wanted: &Wanted,
    mut bytes: &[u8],
) -> Result<(), Fault> {
    for frame in 0.. {
        if bytes.is_empty() {
            break;
        }
        bytes =
            fill_frame_tensorflow(column, wanted, bytes).map_err(|fault| fault.in_frame(frame))?;
    }
    let before = column.values.as_ref().map_or(0, Values::len);
    column.close_record(before)
}

/// Append one frame; what follows it is returned.
fn fill_frame_tensorflow<'a>(
    column: &mut Column,
    wanted: &Wanted,
    bytes: &'a [u8],
) -> Result<&'a [u8], Fault> {
    let before = column.values.as_ref().map_or(0, Values::len);
    let rest = match split_field(bytes, 0x0a) {
        Some((frame, rest)) if append_usual(&mut column.values, frame)? => rest,
        _ => {
            let mut cursor = Cursor::new(bytes);
            tf_example::frame(&mut cursor, |kind, list| {
                append_list_tensorflow(column, wanted, kind, list, Parser::Sequence)
            })?;
            cursor.rest()
        }
    };
    column.close_frame(before)?;
    Ok(rest)
}
