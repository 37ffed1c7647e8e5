//! The messages of `tf.train` as trees of shared nodes, for code that builds and changes them.
//!
//! A node is a message. Parents and views hold nodes in an `Arc`, so a view stays attached to its
//! tree. A child that is viewed before it is set is in its parent's slot but does not count as
//! present, and refers to its parent: the first change sets the child and all nodes above it
//! (`touch`). A node that is removed from a tree keeps its contents.
//!
//! Setting a message as a field of another has to copy it. `share` makes this cheap: if the message has no
//! view, both parents have the same node, marked as shared. Before a holder changes it, it calls `settle`:
//! the last holder keeps the node, and others copy it.
//!
//! Locks are taken from parent to child or one at a time, and no Python code runs while one is held.

mod kinds;
mod parse;
#[cfg(test)]
mod tests;
mod text;
mod write;

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub use kinds::{Field, Kind};
pub use parse::parse;
pub use text::{key_text, text};
pub use write::{serialize, size};

/// A byte string of a `BytesList`, which Python keeps as an object.
pub trait Blob: Sized {
    /// A copy of these bytes.
    fn of(bytes: &[u8]) -> Self;
    /// Another reference to the string.
    fn share(&self) -> Self;
    /// Its bytes.
    fn bytes(&self) -> &[u8];
}

impl Blob for Vec<u8> {
    fn of(bytes: &[u8]) -> Self {
        bytes.to_vec()
    }

    fn share(&self) -> Self {
        self.clone()
    }

    fn bytes(&self) -> &[u8] {
        self
    }
}

/// The fields of one message.
#[derive(Debug)]
pub enum Body<B> {
    /// One message for each field, and a bit for each that is set.
    Parts([Option<Arc<Node<B>>>; 3], u8),
    /// A map of messages, sorted by key.
    Map(BTreeMap<Box<str>, Arc<Node<B>>>),
    /// A list of messages.
    Many(Vec<Arc<Node<B>>>),
    /// The values of a `BytesList`.
    Bytes(Vec<B>),
    /// The values of a `FloatList`.
    Floats(Vec<f32>),
    /// The values of an `Int64List`.
    Ints(Vec<i64>),
}

impl<B> Body<B> {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Example | Kind::SequenceExample | Kind::Feature => {
                Self::Parts([const { None }; 3], 0)
            }
            Kind::Features | Kind::FeatureLists => Self::Map(BTreeMap::new()),
            Kind::FeatureList => Self::Many(Vec::new()),
            Kind::BytesList => Self::Bytes(Vec::new()),
            Kind::FloatList => Self::Floats(Vec::new()),
            Kind::Int64List => Self::Ints(Vec::new()),
        }
    }
}

/// The state of a node.
#[derive(Debug)]
pub struct State<B> {
    /// The parent in which this message is not set yet.
    up: Weak<Node<B>>,
    /// Unknown fields, as serialized.
    pub unknown: Vec<u8>,
    /// The fields.
    pub body: Body<B>,
}

/// One message.
#[derive(Debug)]
pub struct Node<B> {
    kind: Kind,
    /// Whether several holders may share the node, each as its own copy.
    shared: AtomicBool,
    state: Mutex<State<B>>,
}

impl<B: Blob> Node<B> {
    /// An empty message.
    pub fn new(kind: Kind) -> Arc<Self> {
        Self::with(kind, Body::new(kind))
    }

    /// A message with these fields, which belong to its kind.
    pub fn with(kind: Kind, body: Body<B>) -> Arc<Self> {
        Self::below(kind, body, Weak::new())
    }

    fn below(kind: Kind, body: Body<B>, up: Weak<Self>) -> Arc<Self> {
        Arc::new(Self {
            kind,
            shared: AtomicBool::new(false),
            state: Mutex::new(State { up, unknown: Vec::new(), body }),
        })
    }

    /// Which message it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Lock the node's state.
    pub fn lock(&self) -> MutexGuard<'_, State<B>> {
        // A poisoned lock is safe to use: no panic can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The message of a field, as a live node, whether it is set or not.
    pub fn child(self: &Arc<Self>, index: usize) -> Arc<Self> {
        let mut state = self.lock();
        let Body::Parts(slots, _) = &mut state.body else { return self.clone() };
        let Some(slot) = slots.get_mut(index) else { return self.clone() };
        let held = self.kind.held(index);
        let child =
            slot.get_or_insert_with(|| Self::below(held, Body::new(held), Arc::downgrade(self)));
        Self::settle(child);
        child.clone()
    }

    /// A node that another message can hold as a copy of this one. If there is no view of this node
    /// or of a part of it, that is this node, marked as shared; otherwise it is a real copy.
    pub fn share(self: &Arc<Self>) -> Arc<Self> {
        if !self.is_unseen() {
            return self.copy();
        }
        self.shared.store(true, Ordering::Relaxed);
        self.clone()
    }

    /// Whether there is no view of it or of any part of it.
    fn is_unseen(self: &Arc<Self>) -> bool {
        // A shared node has no views until a holder settles it.
        if self.shared.load(Ordering::Relaxed) {
            return true;
        }
        if Arc::strong_count(self) > 1 {
            return false;
        }
        if self.kind.is_list() {
            return true;
        }
        match &self.lock().body {
            Body::Parts(slots, _) => slots.iter().flatten().all(Self::is_unseen),
            Body::Map(entries) => entries.values().all(Self::is_unseen),
            Body::Many(items) => items.iter().all(Self::is_unseen),
            _ => true,
        }
    }

    /// Make a shared message this holder's only, before it is viewed and may be changed.
    pub fn settle(holder: &mut Arc<Self>) {
        if holder.shared.load(Ordering::Relaxed) {
            if Arc::strong_count(holder) > 1 {
                *holder = holder.copy();
            } else {
                holder.shared.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Whether a field that holds a message is set.
    pub fn has(&self, index: usize) -> bool {
        matches!(self.lock().body, Body::Parts(_, set) if set & 1 << index != 0)
    }

    /// Set this message in its parent, and so on for all parents above.
    pub fn touch(self: &Arc<Self>) {
        let mut node = self.clone();
        loop {
            let up = mem::take(&mut node.lock().up);
            let Some(parent) = up.upgrade() else { return };
            let place = match &parent.lock().body {
                Body::Parts(slots, _) => slots
                    .iter()
                    .position(|slot| slot.as_ref().is_some_and(|s| Arc::ptr_eq(s, &node))),
                _ => None,
            };
            // The field was cleared in the meantime, so this message has no parent any more.
            let Some(index) = place else { return };
            parent.set(index);
            node = parent;
        }
    }

    /// Mark a field as set, and clear the other fields of a oneof.
    fn set(&self, index: usize) {
        let mut state = self.lock();
        let Body::Parts(slots, set) = &mut state.body else { return };
        let bit = 1 << index;
        if self.kind == Kind::Feature && *set & !bit != 0 {
            for (other, slot) in slots.iter_mut().enumerate() {
                if *set & 1 << other != 0 && other != index {
                    *slot = None;
                }
            }
            *set = 0;
        }
        *set |= bit;
        if let Some(Some(child)) = slots.get(index) {
            child.lock().up = Weak::new();
        }
    }

    /// Set a field to an unshared message. If the field has views, the message is merged into it.
    pub fn put(self: &Arc<Self>, index: usize, message: Arc<Self>) {
        let waiting = {
            let mut state = self.lock();
            let Body::Parts(slots, _) = &mut state.body else { return };
            match slots.get_mut(index) {
                Some(slot @ None) => {
                    *slot = Some(message);
                    None
                }
                Some(Some(child)) => {
                    Self::settle(child);
                    Some((child.clone(), message))
                }
                None => return,
            }
        };
        if let Some((child, message)) = waiting {
            child.absorb(message);
        }
        self.set(index);
    }

    /// Clear the message. Views of removed messages keep their contents.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.body = Body::new(self.kind);
        state.unknown.clear();
    }

    /// Clear the message before another is merged into it: views of unset fields stay attached.
    pub fn make_room(&self) {
        let mut state = self.lock();
        state.unknown.clear();
        let Body::Parts(slots, set) = &mut state.body else {
            state.body = Body::new(self.kind);
            return;
        };
        for (index, slot) in slots.iter_mut().enumerate() {
            if *set & 1 << index != 0 {
                *slot = None;
            }
        }
        *set = 0;
    }

    /// Clear one field.
    pub fn clear_field(&self, index: usize) {
        let mut state = self.lock();
        match &mut state.body {
            Body::Parts(slots, set) => {
                if let Some(slot) = slots.get_mut(index) {
                    // As in protobuf: clearing a message that was viewed first sets it, which clears the
                    // other fields of a oneof.
                    if slot.take().is_some() && self.kind == Kind::Feature && *set & 1 << index == 0
                    {
                        let set_ones = slots.iter_mut().enumerate();
                        set_ones.filter(|(n, _)| *set & 1 << n != 0).for_each(|(_, s)| *s = None);
                        *set = 0;
                    }
                    *set &= !(1 << index);
                }
            }
            body => *body = Body::new(self.kind),
        }
    }

    /// Drop unknown fields, in this message and all below.
    pub fn discard_unknown(&self) {
        let mut state = self.lock();
        state.unknown = Vec::new();
        let discard = |child: &mut Arc<Self>| {
            Self::settle(child);
            child.discard_unknown();
        };
        match &mut state.body {
            Body::Parts(slots, _) => slots.iter_mut().flatten().for_each(discard),
            Body::Map(entries) => entries.values_mut().for_each(discard),
            Body::Many(items) => items.iter_mut().for_each(discard),
            _ => {}
        }
    }

    /// A deep copy.
    pub fn copy(&self) -> Arc<Self> {
        let state = self.lock();
        let body = match &state.body {
            Body::Parts(slots, set) => {
                let mut copies = [const { None }; 3];
                for (index, (copy, slot)) in copies.iter_mut().zip(slots).enumerate() {
                    *copy =
                        slot.as_ref().filter(|_| *set & 1 << index != 0).map(|child| child.copy());
                }
                Body::Parts(copies, *set)
            }
            Body::Map(entries) => {
                Body::Map(entries.iter().map(|(key, value)| (key.clone(), value.copy())).collect())
            }
            Body::Many(items) => Body::Many(items.iter().map(|item| item.copy()).collect()),
            Body::Bytes(values) => Body::Bytes(values.iter().map(B::share).collect()),
            Body::Floats(values) => Body::Floats(values.clone()),
            Body::Ints(values) => Body::Ints(values.clone()),
        };
        let copy = Self::with(self.kind, body);
        if !state.unknown.is_empty() {
            copy.lock().unknown.clone_from(&state.unknown);
        }
        copy
    }

    /// Merge a message of the same kind: set fields are merged, keys replaced, values appended.
    pub fn absorb(self: &Arc<Self>, mut other: Arc<Self>) {
        Self::settle(&mut other);
        let (body, unknown) = {
            let mut other = other.lock();
            (mem::replace(&mut other.body, Body::new(self.kind)), mem::take(&mut other.unknown))
        };
        if let Body::Parts(slots, set) = body {
            for (index, slot) in slots.into_iter().enumerate() {
                if let Some(message) = slot
                    && set & 1 << index != 0
                {
                    self.put(index, message);
                }
            }
            self.lock().unknown.extend_from_slice(&unknown);
            return;
        }
        let mut state = self.lock();
        match (&mut state.body, body) {
            (Body::Map(into), Body::Map(from)) => into.extend(from),
            (Body::Many(into), Body::Many(from)) => into.extend(from),
            (Body::Bytes(into), Body::Bytes(from)) => into.extend(from),
            (Body::Floats(into), Body::Floats(from)) => into.extend(from),
            (Body::Ints(into), Body::Ints(from)) => into.extend(from),
            _ => {}
        }
        state.unknown.extend_from_slice(&unknown);
    }

    /// The message under a key, if there is one.
    pub fn get(&self, key: &str) -> Option<Arc<Self>> {
        let Body::Map(entries) = &mut self.lock().body else { return None };
        let found = entries.get_mut(key)?;
        Self::settle(found);
        Some(found.clone())
    }

    /// Remove the message of a key.
    pub fn remove(&self, key: &str) -> Option<Arc<Self>> {
        let Body::Map(entries) = &mut self.lock().body else { return None };
        let mut found = entries.remove(key)?;
        Self::settle(&mut found);
        Some(found)
    }

    /// The keys of a map.
    pub fn keys(&self) -> Vec<Box<str>> {
        match &self.lock().body {
            Body::Map(entries) => entries.keys().cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// The messages of a list.
    pub fn items(&self) -> Vec<Arc<Self>> {
        let Body::Many(items) = &mut self.lock().body else { return Vec::new() };
        items.iter_mut().for_each(Self::settle);
        items.clone()
    }

    /// The message under a key; it is created if missing, as when a protobuf map is read.
    pub fn get_or_create(self: &Arc<Self>, key: &str) -> Arc<Self> {
        if let Some(found) = self.get(key) {
            return found;
        }
        self.touch();
        let made = Self::new(self.kind.held(0));
        self.insert(key, made.clone());
        made
    }

    /// Put an unshared message under a key.
    pub fn insert(&self, key: &str, message: Arc<Self>) {
        if let Body::Map(entries) = &mut self.lock().body {
            entries.insert(key.into(), message);
        }
    }
}
