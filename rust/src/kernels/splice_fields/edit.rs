//! The changes to make to the fields of records, by key.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::btree_set::BTreeSet;

use crate::kernels::encode_examples::{Encoder, Payload};
use crate::kernels::example_columns::{Section, section_of};
use crate::wire::{Fault, FaultKind};

/// The action for the map entries of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Remove the entries. The index is that of the key's name among the requested names, if it is
    /// one of them.
    Cut(Option<usize>),
    /// Give the entries this key. The index is as above.
    Rename(usize, Box<[u8]>),
    /// The entries are a fault, because the field with this name is to be added.
    Refuse(Box<str>),
}

/// Keys of one part of a message, each with its action.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// A bit for each key, so that most other keys are skipped without a comparison.
    sieve: u64,
    sorted: Vec<(Box<[u8]>, Action)>,
}

#[inline(always)]
fn bit(key: &[u8]) -> u64 {
    let (first, last) = (key.first().copied(), key.last().copied());
    let mixed = key
        .len()
        .wrapping_add(usize::from(first.unwrap_or(0)).wrapping_mul(7))
        .wrapping_add(usize::from(last.unwrap_or(0)).wrapping_mul(11));
    1 << (mixed & 63)
}

impl Keys {
    fn new(actions: BTreeMap<Box<[u8]>, Action>) -> Self {
        let sieve = actions.keys().fold(0, |bits, key| bits | bit(key));
        Self { sieve, sorted: actions.into_iter().collect() }
    }

    /// Whether there are no changes.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The action for the entries of `key`.
    #[inline(always)]
    pub fn get(&self, key: &[u8]) -> Option<&Action> {
        if self.sieve & bit(key) == 0 {
            return None;
        }
        let found = self.sorted.binary_search_by(|(known, _)| known.as_ref().cmp(key));
        found.ok().and_then(|at| self.sorted.get(at)).map(|(_, action)| action)
    }
}

/// The keys to find, and their actions.
#[derive(Clone, Debug)]
pub struct Edit {
    /// Keys of features: of an Example, or of a SequenceExample's context.
    pub context: Keys,
    /// Keys of feature lists; always empty for Examples.
    pub lists: Keys,
    /// The number of names to drop or rename.
    pub num_names: usize,
    /// The number of bytes by which a renamed entry may grow.
    pub growth: usize,
}

#[cold]
fn refused(name: &str, message: &str) -> Fault {
    Fault::new(FaultKind::Schema, 0, message).in_field(name)
}

/// The parts in which a name is searched, and its key there. As for columns, a prefix names the part.
/// Without a prefix, both parts of a SequenceExample are searched.
fn places(payload: Payload, name: &str) -> (&'static [Section], &str) {
    if payload == Payload::Example {
        return (&[Section::Context], name);
    }
    match section_of(name) {
        (None, key) => (&[Section::Context, Section::Lists], key),
        (Some(Section::Context), key) => (&[Section::Context], key),
        (Some(Section::Lists), key) => (&[Section::Lists], key),
    }
}

type Actions = BTreeMap<(Section, Box<[u8]>), Action>;

impl Edit {
    /// Remove `drop`, give the first of each pair in `rename` the key of the second. Records that already
    /// have a field of `added` are refused, or the old entries are removed if `replace` is set.
    pub fn new(
        payload: Payload,
        drop: &[String],
        rename: &[(String, String)],
        added: Option<&Encoder<'_>>,
        replace: bool,
    ) -> Result<Self, Fault> {
        let mut actions = Actions::new();
        let mut coming = BTreeSet::new();
        let mut growth = 0usize;
        for (number, name) in drop.iter().enumerate() {
            put(&mut actions, payload, name, &Action::Cut(Some(number)))?;
        }
        for (number, (old, new)) in rename.iter().enumerate() {
            let (sections, key) = places(payload, old);
            let (new_sections, new_key) = places(payload, new);
            if new_sections.len() == 1 && new_sections != sections {
                let message = "cannot be renamed into another part of the message";
                return Err(refused(old, message));
            }
            growth = growth.saturating_add(new_key.len().saturating_sub(key.len()));
            let number = drop.len().saturating_add(number);
            put(&mut actions, payload, old, &Action::Rename(number, new_key.as_bytes().into()))?;
            for &section in sections {
                if !coming.insert((section, Box::<[u8]>::from(new_key.as_bytes()))) {
                    return Err(refused(new, "is the new name of two fields"));
                }
            }
        }
        for (section, key) in &coming {
            let name = String::from_utf8_lossy(key).into();
            actions.entry((*section, key.clone())).or_insert(Action::Refuse(name));
        }
        for column in added.map_or(&[] as &[_], |encoder| encoder.columns()) {
            let place = (column.section, Box::<[u8]>::from(column.key.as_bytes()));
            if coming.contains(&place) {
                return Err(refused(&column.name, "is added, and another field is renamed to it"));
            }
            let name = column.name.as_str().into();
            let action = if replace { Action::Cut(None) } else { Action::Refuse(name) };
            actions.entry(place).or_insert(action);
        }
        let part = |wanted| {
            let of_part = actions.iter().filter(|((section, _), _)| *section == wanted);
            Keys::new(of_part.map(|((_, key), action)| (key.clone(), action.clone())).collect())
        };
        Ok(Self {
            context: part(Section::Context),
            lists: part(Section::Lists),
            num_names: drop.len().saturating_add(rename.len()),
            growth,
        })
    }

    /// The keys of one part.
    #[inline(always)]
    pub fn keys(&self, section: Section) -> &Keys {
        match section {
            Section::Context => &self.context,
            Section::Lists => &self.lists,
        }
    }

    /// Whether fields are only added: no entry is removed or renamed.
    pub fn only_adds(&self) -> bool {
        let refuses = |(_, action): &(_, Action)| matches!(action, Action::Refuse(_));
        self.context.sorted.iter().chain(&self.lists.sorted).all(refuses)
    }
}

fn put(actions: &mut Actions, payload: Payload, name: &str, action: &Action) -> Result<(), Fault> {
    let (sections, key) = places(payload, name);
    for &section in sections {
        match actions.entry((section, key.as_bytes().into())) {
            Entry::Vacant(place) => {
                place.insert(action.clone());
            }
            Entry::Occupied(_) => return Err(refused(name, "is dropped or renamed twice")),
        }
    }
    Ok(())
}
