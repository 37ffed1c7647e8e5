//! Collects the facts about Examples from which a schema is inferred.

use std::collections::BTreeMap;

use super::walk::Frames;
use crate::wire::Fault;
use crate::wire::cursor::Cursor;
use crate::wire::example::{self, Kind, WireField, WireValue};

/// Facts about one key.
#[derive(Clone, Debug, Default)]
pub struct KeyFacts {
    /// Records that have the key with a kind set.
    pub present: u64,
    /// Records that have the key with no kind set.
    pub unset: u64,
    /// Features of kind bytes, float, int64.
    pub kinds: [u64; 3],
    /// Fewest and most values in one feature, or, for a feature list, in one frame.
    pub values: Option<(u64, u64)>,
    /// Fewest and most frames; None if the key is not a feature list.
    pub frames: Option<(u64, u64)>,
    /// Byte strings seen, and how many of them are UTF-8.
    pub strings: (u64, u64),
}

/// Facts about some records.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Records seen.
    pub num_records: u64,
    /// The number of those with at least one feature and nothing that does not belong in an Example.
    pub num_examples: u64,
    /// The number of those that are not valid messages.
    pub num_broken: u64,
    /// Facts by (is a feature list, key).
    pub keys: BTreeMap<(bool, Vec<u8>), KeyFacts>,
}

impl KeyFacts {
    fn count(&mut self, values: u64) {
        let (low, high) = self.values.unwrap_or((values, values));
        self.values = Some((low.min(values), high.max(values)));
    }
}

/// Add the payloads of all frames.
pub fn infer(frames: &Frames) -> Facts {
    let mut facts = Facts::default();
    for record in 0..frames.spans.len() {
        let payload = frames.payload(record).unwrap_or_default();
        facts.num_records = facts.num_records.wrapping_add(1);
        let mut strict = true;
        match record_keys(payload, &mut strict) {
            Err(_) => facts.num_broken = facts.num_broken.wrapping_add(1),
            Ok(keys) => {
                if strict && !keys.is_empty() {
                    facts.num_examples = facts.num_examples.wrapping_add(1);
                }
                for (key, seen) in keys {
                    merge(facts.keys.entry(key).or_default(), seen);
                }
            }
        }
    }
    facts
}

type Keys = BTreeMap<(bool, Vec<u8>), KeyFacts>;

/// Add one record. `strict` becomes false if the record has anything that does not belong in an
/// Example.
fn record_keys(payload: &[u8], strict: &mut bool) -> Result<Keys, Fault> {
    let mut keys = Keys::new();
    let mut cursor = Cursor::new(payload);
    while !cursor.is_empty() {
        match example::next_field(&mut cursor)? {
            WireField { number: number @ (1 | 2), value: WireValue::Bytes(entries) } => {
                let mut cursor = Cursor::new(entries);
                while !cursor.is_empty() {
                    let WireField { number: 1, value: WireValue::Bytes(entry) } =
                        example::next_field(&mut cursor)?
                    else {
                        *strict = false;
                        continue;
                    };
                    let Some((key, value)) = example::entry(entry, number == 2)? else {
                        *strict = false;
                        continue;
                    };
                    let mut seen = KeyFacts::default();
                    if number == 2 {
                        list_facts(&value, &mut seen, strict)?;
                    } else {
                        feature_facts(&value, &mut seen, strict)?;
                        let set = seen.kinds.iter().any(|&count| count > 0);
                        (seen.present, seen.unset) = (u64::from(set), u64::from(!set));
                    }
                    keys.insert((number == 2, key.into_owned()), seen);
                }
            }
            _ => *strict = false,
        }
    }
    Ok(keys)
}

fn list_facts(value: &[u8], seen: &mut KeyFacts, strict: &mut bool) -> Result<(), Fault> {
    let mut cursor = Cursor::new(value);
    let mut frames = 0u64;
    while !cursor.is_empty() {
        match example::next_field(&mut cursor)? {
            WireField { number: 1, value: WireValue::Bytes(feature) } => {
                frames = frames.wrapping_add(1);
                let kinds = seen.kinds;
                feature_facts(feature, seen, strict)?;
                if seen.kinds == kinds {
                    seen.count(0); // a frame without a kind has no values
                }
            }
            _ => *strict = false,
        }
    }
    seen.present = 1;
    seen.frames = Some((frames, frames));
    Ok(())
}

fn feature_facts(value: &[u8], seen: &mut KeyFacts, strict: &mut bool) -> Result<(), Fault> {
    let Some((kind, lists)) = example::feature(value)? else {
        *strict &= value.is_empty();
        return Ok(());
    };
    let mut count = 0u64;
    let slot = match kind {
        Kind::Bytes => &mut seen.kinds[0],
        Kind::Float => &mut seen.kinds[1],
        Kind::Int64 => &mut seen.kinds[2],
    };
    *slot = slot.wrapping_add(1);
    let strings = &mut seen.strings;
    let (mut ints, mut floats) = (Vec::new(), Vec::new());
    example::lists(kind, lists, |list| match kind {
        Kind::Int64 => example::int64s(list, &mut ints),
        Kind::Float => example::floats(list, &mut floats),
        Kind::Bytes => example::byte_strings(list, |text| {
            count = count.wrapping_add(1);
            strings.0 = strings.0.wrapping_add(1);
            strings.1 = strings.1.wrapping_add(u64::from(std::str::from_utf8(text).is_ok()));
            Ok(())
        }),
    })?;
    seen.count(count.wrapping_add((ints.len() + floats.len()) as u64));
    Ok(())
}

fn merge(total: &mut KeyFacts, seen: KeyFacts) {
    let widen = |a: Option<(u64, u64)>, b: Option<(u64, u64)>| match (a, b) {
        (Some((low, high)), Some((l, h))) => Some((low.min(l), high.max(h))),
        (a, b) => a.or(b),
    };
    total.present = total.present.wrapping_add(seen.present);
    total.unset = total.unset.wrapping_add(seen.unset);
    for (mine, theirs) in total.kinds.iter_mut().zip(seen.kinds) {
        *mine = mine.wrapping_add(theirs);
    }
    total.values = widen(total.values, seen.values);
    total.frames = widen(total.frames, seen.frames);
    total.strings.0 = total.strings.0.wrapping_add(seen.strings.0);
    total.strings.1 = total.strings.1.wrapping_add(seen.strings.1);
}
