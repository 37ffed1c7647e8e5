//! Finds the wanted values of a record, predicting its keys from the previous record.

use std::borrow::Cow;

use super::fill::{fill_feature, fill_list};
use super::{Dialect, Plan, Wanted};
use crate::kernels::columns::Column;
use crate::wire::Fault;
use crate::wire::cursor::Cursor;
use crate::wire::example::{self, WireField, WireValue};
use crate::wire::fields::{only_field, split_field};
use crate::wire::tf_example::{self, Parser};

/// The position of a wanted value in a record.
#[derive(Clone, Copy)]
enum Slot<'a> {
    Empty,
    /// The value is in the record.
    Span(&'a [u8]),
    /// The value was joined from several places, and has a number in `Walker::joined`.
    Joined(usize),
}

impl<'a> Slot<'a> {
    fn is_present(&self) -> bool {
        !matches!(self, Slot::Empty)
    }

    /// Start of the bytes, or the number of the joined value.
    #[inline(always)]
    fn new(value: &'a [u8], joined: Option<usize>) -> Self {
        joined.map_or(Slot::Span(value), Slot::Joined)
    }
}

/// The keys of the previous record, each with its column.
type Guess = Vec<(Vec<u8>, Option<usize>)>;

/// Reads one record after another.
pub(super) struct Walker<'a, 'p> {
    plan: &'p Plan,
    slots: Vec<Slot<'a>>,
    joined: Vec<Vec<u8>>,
    context_guess: Guess,
    lists_guess: Guess,
    place: usize,
}

/// Whether two keys are equal. Most keys are so short that two loads of each key, which may
/// overlap, are enough. That costs less than calling a function.
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

impl<'a, 'p> Walker<'a, 'p> {
    /// A reader that has seen no record yet.
    pub(super) fn new(plan: &'p Plan) -> Self {
        Self {
            plan,
            slots: vec![Slot::Empty; plan.wanted.len()],
            joined: Vec::new(),
            context_guess: Vec::new(),
            lists_guess: Vec::new(),
            place: 0,
        }
    }

    /// Find the positions of a record's wanted values.
    pub(super) fn find(&mut self, payload: &'a [u8]) -> Result<(), Fault> {
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

    /// Copy the results for a key to the other columns with the same key.
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

    /// The same for a payload that is not exactly one `Features` message.
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
                    if self.plan.complete || !self.plan.lists.is_empty() =>
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
                Some((key, value)) => self.put(key, value, None, in_lists)?,
                None => self.odd_entry(entry, in_lists)?,
            }
            rest = after;
        }
        Ok(())
    }

    /// The rest of a `Features` message, from the first field that is not a normal map entry.
    #[cold]
    fn odd_entries(&mut self, rest: &'a [u8], in_lists: bool) -> Result<(), Fault> {
        if let Dialect::TensorFlow(parser) = self.plan.dialect {
            return tf_example::entries(rest, parser, |key, value| {
                self.put(key, value, None, in_lists)
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
            return self.put(key, value, None, in_lists);
        }
        let Some((key, value)) = example::entry(entry, in_lists)? else {
            return Ok(()); // protobuf drops an entry that has an unknown field
        };
        match value {
            Cow::Borrowed(value) => self.put(&key, value, None, in_lists),
            Cow::Owned(value) => {
                self.joined.push(value);
                self.put(&key, &[], Some(self.joined.len().wrapping_sub(1)), in_lists)
            }
        }
    }

    /// Note a value under its column, if the key is wanted. The last value of a key counts. Each slot is
    /// built in place, because a slot passed by value is written and read back in different sizes, which
    /// stalls store forwarding.
    #[inline(always)]
    fn put(
        &mut self,
        key: &[u8],
        value: &'a [u8],
        joined: Option<usize>,
        in_lists: bool,
    ) -> Result<(), Fault> {
        let guess = if in_lists { &self.lists_guess } else { &self.context_guess };
        let column = match guess.get(self.place) {
            Some((expected, column)) if same_key(expected, key) => *column,
            _ => self.look_up(key, in_lists)?,
        };
        self.place = self.place.wrapping_add(1);
        if let Some(place) = column.and_then(|column| self.slots.get_mut(column)) {
            if place.is_present() {
                return self.put_again(column, value, joined, in_lists);
            }
            *place = Slot::new(value, joined);
        }
        Ok(())
    }

    /// Note another value of a key. The previous value is still checked for faults, as the parsers do.
    #[cold]
    fn put_again(
        &mut self,
        column: Option<usize>,
        value: &'a [u8],
        joined: Option<usize>,
        in_lists: bool,
    ) -> Result<(), Fault> {
        let Some(place) = column.and_then(|column| self.slots.get_mut(column)) else {
            return Ok(());
        };
        match (self.plan.dialect, &*place) {
            (Dialect::Protobuf, Slot::Span(before)) => example::check(before, in_lists)?,
            (Dialect::TensorFlow(Parser::Example), Slot::Span(before)) => {
                tf_example::kind(before)?;
                // In a dense column, an entry without a kind does not replace the entry before it.
                let wanted = column.and_then(|column| self.plan.wanted.get(column));
                let keeps = |w: &Wanted| self.plan.single || w.layout.is_dense();
                if joined.is_none() && value.is_empty() && wanted.is_some_and(keeps) {
                    return Ok(());
                }
            }
            _ => {}
        }
        *place = Slot::new(value, joined);
        Ok(())
    }

    /// The column of a key that was not predicted. It becomes the prediction for the next record.
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
        if column.is_none() && self.plan.complete {
            return Err(Fault::unexpected(0, key));
        }
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
    pub(super) fn fill(&mut self, columns: &mut [Column]) -> Result<(), Fault> {
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
